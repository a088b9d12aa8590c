;;; prelude.lisp -- what gabriel.l needs of Common Lisp.
(setq *read-default-float-format* 'double-float)
(defun now ()
  #+sbcl (multiple-value-bind (s us) (sb-ext:get-time-of-day) (* 1000 (+ (* 1000000 s) us)))
  #-sbcl (* (/ 1000000000 internal-time-units-per-second) (get-internal-real-time)))
(defmacro while (test &body body) `(loop (if (not ,test) (return nil)) ,@body))
(deftype float-vector () '(simple-array double-float (*)))
(defun make-floats (n) (make-array n :element-type 'double-float :initial-element 0.0d0))
