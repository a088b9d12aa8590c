;;; tables.lisp -- the same as bench/tables.l for Common Lisp.

(defun nanoseconds-each (n function)
  (let ((start (get-internal-real-time)))
    (funcall function)
    (/ (* 1e9 (- (get-internal-real-time) start)) internal-time-units-per-second n)))

(defun put-all (table keys n)
  (declare (simple-vector keys) (fixnum n))
  (dotimes (i n) (setf (gethash (svref keys i) table) i)))

(defun get-all (table keys n)
  (declare (simple-vector keys) (fixnum n))
  (let ((sum 0))
    (declare (fixnum sum))
    (dotimes (i n) (incf sum (the fixnum (gethash (svref keys i) table))))
    (unless (= sum (/ (* n (1- n)) 2)) (error "wrong values"))))

(defun median (l) (elt (sort l #'<) (floor (length l) 2)))

(defun bench-table (name keys test)
  (let ((n (length keys)) (puts nil) (gets nil))
    (dotimes (round 5)
      (let ((table (make-hash-table :test test)))
        #+sbcl (sb-ext:gc :full t)
        (push (nanoseconds-each n (lambda () (put-all table keys n))) puts)
        (push (nanoseconds-each n (lambda () (get-all table keys n))) gets)))
    (format t "~10a insert ~5d lookup ~5d~%" name (round (median puts)) (round (median gets)))))

(defun bench-tables (n)
  (let ((keys (make-array n)) (names (make-array n)))
    (dotimes (i n) (setf (aref names i) (format nil "key~d" i)))
    (dotimes (i n) (setf (aref keys i) (* i 7)))
    (bench-table "fixnum" keys #'eql)
    (dotimes (i n) (setf (aref keys i) (make-symbol (aref names i))))
    (bench-table "symbol" keys #'eq)
    (bench-table "string" names #'equal)
    (dotimes (i n) (setf (aref keys i) (list i (1+ i) 'a)))
    (bench-table "list" keys #'equal)))

(bench-tables 1000000)
