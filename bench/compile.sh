#!/bin/sh
# compile.sh -- what compiling costs: a small function by compile, and a program of so many lines by compile-file, at -O1 and -O2.
#
#   sh bench/compile.sh [LINES] [EXECUTABLE]      10000 bin/karakuri
#
# Prints milliseconds for the function (median of 9), and for the program seconds, the processor time of the C compilers, the memory of the largest of
# them, and the size of the module. The program checks its own answer.
lines=${1:-10000}
bin=$(realpath "${2:-bin/karakuri}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >small.l <<'END'
(defun milliseconds (f)
  (let ((begin (unix:gettimeofday)) (end (progn (funcall f) (unix:gettimeofday))))
    (+ (* 1000.0 (- (car end) (car begin))) (/ (- (cadr end) (cadr begin)) 1000.0))))
(let ((times nil))
  (dotimes (i 9)
    (push (milliseconds #'(lambda () (compile (list 'lambda '(n) (list 'if '(< n 2) i '(+ (* n n) (length (list n)))))))) times))
  (format t "a function: ~,1f ms~%" (elt (sort times #'<) 4)))
END
"$bin" --batch small.l </dev/null || exit 1
awk -v lines="$lines" 'BEGIN {
    for (k = 1; n < lines; k++) {
        printf "(defun step-%d (x y &optional (z %d))\n  \"Function %d of the program.\"\n  (let ((sum 0) (list nil))\n", k, k, k
        printf "    (dotimes (i x)\n      (if (evenp i) (setq sum (+ sum (* i y))) (push (cons i sum) list)))\n"
        printf "    (cond ((> sum 1000000) (step-%d-aux list z))\n          ((assoc x list) (cdr (assoc x list)))\n", (k > 1 ? k - 1 : 1)
        printf "          (t (+ sum (length list) z)))))\n(defun step-%d-aux (list n)\n  (if (null list) n (step-%d-aux (cdr list) (+ n (caar list)))))\n", k, k
        n += 10
    }
    printf "(defun total () (+"
    for (i = 1; i < k; i++) printf "%s(step-%d 5 2)", i % 8 == 1 ? "\n  " : " ", i
    print "))"
}' >program.l
for level in 1 2; do
    /usr/bin/time -f "%e s, %U s in all, %M KB" -o time "$bin" --batch "(compile-file \"program.l\" :verbose nil :optimize $level)" </dev/null || exit 1
    echo "$lines lines at -O$level: $(cat time), module of $(stat -c %s program.so) bytes"
    "$bin" --batch '(load "program.l" :verbose t)' '(let ((native (total))) (sys:srcload "program.l") (if (not (= native (total))) (error "a wrong answer: ~a" native)))' </dev/null |
        grep -q '^;; binloading' || { echo "the program is wrong"; exit 1; }
done
