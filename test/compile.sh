#!/bin/sh
# compile.sh -- compile-file and compile where things go wrong: no compiler, one that fails or is interrupted, directories that cannot be written,
# odd names, several processes at once. Nothing may be left behind.
#
#   sh test/compile.sh [EXECUTABLE]
#
# Prints what went wrong and at the end "N passed, N failed".
bin=$(realpath "${1:-bin/karakuri}")
passed=0 failed=0
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir tmp
export TMPDIR="$work/tmp"
unset KARAKURI_CC KARAKURI_CFLAGS

# What the last run printed matches PATTERN, and no scratch file is left.
expect() { # what, pattern
    left=$(find tmp -mindepth 1; find . -name '*.new')
    if grep -q "$2" out && [ -z "$left" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "== $1: expected $2"
        tail -n 5 out
        echo "$left"
    fi
}
run() { timeout 120 "$bin" --batch "$@" </dev/null >out 2>&1; }

cat >f.l <<'END'
(defun f (x) (if (consp x) (+ 1 (f (cdr x))) 0))
(defun g (x) (f (list x x)))
END
run '(compile-file "f.l")' '(load "f" :verbose t)' '(print (g 1))' '(print lisp::*loaded-modules*)'
expect "a file" '^2$'
expect "is loaded as a module" '^;; binloading f.so'
expect "which is listed" '("f.so")'
echo '; more' >>f.l
run '(load "f")' '(print (g 1))'
expect "a stale module" 'f.so: it is not of this version of the source; the source is loaded'
printf 'no module' >f.so
run '(load "f")' '(print (g 1))'
expect "a module that is none" '^2$'
rm -f f.so

name="an odd 'name' of \"quotes\" ($), é.l"
cp f.l "$name"
timeout 120 "$bin" --compile "$name" >out 2>&1
expect "an odd name" compiled
[ -f "${name%.l}.so" ] && passed=$((passed + 1)) || failed=$((failed + 1))

export KARAKURI_CC=/nowhere/cc
run '(compile-file "f.l")'
expect "no compiler" 'there is no C compiler "/nowhere/cc"'
run "(setq h #'(lambda (x) (* x x)))" '(ignore-errors (compile h))' '(print (funcall h 7))'
expect "bytecode goes on" '^49$'
export KARAKURI_CC=false
run '(compile-file "f.l")'
expect "a compiler that fails" 'false failed'
unset KARAKURI_CC
KARAKURI_CFLAGS=-Dkr_value=7 run '(compile-file "f.l")'
expect "what the compiler says" 'cc failed: .*error:'

printf '#!/bin/sh\ntrap "echo ended >>%s/ended; exit 1" TERM\necho started >%s/started\nsleep 100 & wait\n' "$work" "$work" >slow
chmod +x slow
cat >interrupted.l <<'END'
(unix:signal unix::sigint #'(lambda (&rest r) (throw :out :interrupted)))
(print (catch :out (compile-file "f.l")))
END
KARAKURI_CC="$work/slow" timeout 120 "$bin" --batch interrupted.l </dev/null >out 2>&1 &
timeout 60 sh -c 'while [ ! -s started ]; do sleep 0.1; done'
kill -INT "$(pgrep -P $!)"
wait $!
expect "an interrupt" '^:interrupted$'
cp ended out
expect "ends the compiler" ended

mkdir closed
cp f.l closed
if [ "$(id -u)" = 0 ]; then
    run '(compile-file "f.l" :output "closed")'
    expect "an output that is a directory" 'Is a directory'
else
    chmod 555 closed
    run '(compile-file "closed/f.l")'
    expect "a closed directory" 'Permission denied'
fi
run '(compile-file "absent.l")'
expect "no such file" '^karakuri: error: absent.l: No such file'
printf '(defun f (x)\n  (nopackage:foo x))\n' >wrong.l
run '(compile-file "wrong.l")'
expect "a wrong package" 'no such package "NOPACKAGE".* line 2 of wrong.l'
run '(compile-file "f.l" :optimize 7)'
expect "a wrong level" ':optimize is 0, 1, 2 or 3'

for i in 1 2 3; do
    timeout 120 "$bin" --batch '(compile-file "f.l")' '(load "f" :verbose t)' '(print (g 1))' </dev/null >out.$i 2>&1 &
done
wait
cat out.1 out.2 out.3 | grep -c '^2$' >out
expect "three at once" '^3$'

# Many parts, which are compiled at the same time and linked once; calls go from one to another.
run '(with-open-file (s "large.l" :direction :output)
       (dotimes (i 400) (format s "(defun part-~a (x) (let ((n 0)) (dotimes (i 3) (if (evenp i) (setq n (+ n (* i x))) (push i n))) ~a))~%" i
                                (if (= i 0) "n" (format nil "(if (= x 7) (part-~a x) (cons (part-~a x) n))" (1- i) (1- i))))))' \
    '(compile-file "large.l" :optimize 0)'
expect "a large file" 'parts compiled'
run '(load "large")' '(print (handler-case (part-399 7) (error (c) (send c :report))))'
bytecode=$(cat out)
run '(sys:srcload "large.l")' '(print (handler-case (part-399 7) (error (c) (send c :report))))'
[ "$bytecode" = "$(cat out)" ] && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "== a large file: $bytecode"; cat out; }
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
