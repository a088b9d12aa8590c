;;; peers.lisp -- the small programs in Common Lisp, for SBCL and ECL: PROGRAM REPS [LIVE DEPTH]. See peers.l.
(defun now ()
  #+sbcl (multiple-value-bind (s us) (sb-ext:get-time-of-day) (* 1000 (+ (* 1000000 s) us))) ; its internal time is coarse
  #-sbcl (* (/ 1000000000 internal-time-units-per-second) (get-internal-real-time)))

(defun fib (n)
  (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))

(defun tak (x y z)
  (if (< y x)
      (tak (tak (- x 1) y z) (tak (- y 1) z x) (tak (- z 1) x y))
      z))

(defun safe (row distance placed)
  (cond ((null placed) t)
        ((= (car placed) row) nil)
        ((= (car placed) (+ row distance)) nil)
        ((= (car placed) (- row distance)) nil)
        (t (safe row (+ distance 1) (cdr placed)))))

(defun queens (n k placed)
  (if (= k n)
      1
      (let ((s 0))
        (dotimes (row n s)
          (when (safe row 1 placed) (incf s (queens n (+ k 1) (cons row placed))))))))

(defun numbers (n)
  (let ((l nil))
    (loop while (> n 0) do (decf n) (push n l))
    l))

(defun sum (l)
  (let ((s 0))
    (dolist (x l s) (incf s x))))

(defun copies (reps)
  (let ((l (numbers 10000)) (c nil))
    (dotimes (i reps (sum c)) (setq c (copy-seq l)))))

(defun replaces (reps)
  (let ((l (numbers 10000)) (c (numbers 10000)))
    (dotimes (i reps (sum c)) (replace c l))))

(defun inner (a b)
  (declare (type (simple-array double-float (*)) a b))
  (let ((s 0d0))
    (declare (double-float s))
    (dotimes (i (length a) s) (incf s (* (aref a i) (aref b i))))))

(defun products (reps)
  (let ((a (make-array 100000 :element-type 'double-float)) (b (make-array 100000 :element-type 'double-float)) (s 0d0))
    (dotimes (i 100000)
      (setf (aref a i) (float (mod i 7) 1d0) (aref b i) (float (mod i 5) 1d0)))
    (dotimes (i reps (round s)) (incf s (inner a b)))))

(defclass receiver () ((one :initform 1)))
(defgeneric one (r))
(defmethod one ((r receiver)) (slot-value r 'one))

(defun sends (n)
  (let ((r (make-instance 'receiver)) (s 0))
    (dotimes (i n s) (incf s (one r)))))

(defun tree (depth)
  (if (= depth 0)
      (cons nil nil)
      (cons (tree (- depth 1)) (tree (- depth 1)))))

(defun nodes (tree)
  (if (null tree) 0 (+ 1 (nodes (car tree)) (nodes (cdr tree)))))

(defvar *kept* nil)

(defun trees (reps live depth)
  (let ((done 0))
    (setq *kept* (tree live))
    (dotimes (i reps) (when (consp (tree depth)) (incf done)))
    (+ done (nodes *kept*))))

#+sb-thread
(defun two-threads (reps)
  (let ((a (sb-thread:make-thread (lambda () (copies reps)))) (b (sb-thread:make-thread (lambda () (copies reps)))))
    (+ (sb-thread:join-thread a) (sb-thread:join-thread b))))
#+(and ecl threads)
(defun two-threads (reps)
  (let ((a (mp:process-run-function 'a (lambda () (copies reps)))) (b (mp:process-run-function 'b (lambda () (copies reps)))))
    (+ (mp:process-join a) (mp:process-join b))))

(defun main (program reps &optional (live 16) (depth 12))
  (let ((start (now)) (s 0))
    (cond
      ((string= program "fib") (dotimes (i reps) (incf s (fib 30))))
      ((string= program "tak") (dotimes (i reps) (incf s (tak 18 12 6))))
      ((string= program "queens") (dotimes (i reps) (incf s (queens 8 0 nil))))
      ((string= program "copy") (setq s (copies reps)))
      ((string= program "replace") (setq s (replaces reps)))
      ((string= program "inner") (setq s (products reps)))
      ((string= program "send") (setq s (sends (* reps 1000000))))
      ((string= program "trees") (setq s (trees reps live depth)))
      ((string= program "threads") (setq s (two-threads reps))))
    (format t "~a ~d ~d~%" program (- (now) start) s)
    (finish-output)))
