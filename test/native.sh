#!/bin/sh
# native.sh -- the Lisp tests and the programs again, compiled to native code: the results must be the same.
#
#   sh test/native.sh [EXECUTABLE]
#
# Prints what differs and at the end "N passed, N failed".
bin=$(realpath "${1:-bin/karakuri}")
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r test README.md doc bin lib "$work" 2>/dev/null
cd "$work" || exit 1

compile() { # source, form first
    timeout "${TEST_TIMEOUT:-120}" "$bin" --batch "$2" "(compile-file \"$1\")" </dev/null >log 2>&1 && return 0
    echo "== $1: cannot be compiled"
    tail -n 5 log
    failed=$((failed + 1))
    return 1
}
# Native frames show no variables of let, and the debugger cannot return from them.
without="(setq lisp::*unit-tests* (remove-if #'(lambda (e) (memq (car e) '(frames-and-their-variables a-frame-goes-on-with-a-value leaving-frames))) lisp::*unit-tests*))"
for file in test/lisp/*_test.l; do
    # Not: what a collection finds, since native stacks are scanned conservatively; processes of their own.
    case $file in */weak_table_test.l | */texts_test.l) continue ;; esac
    compile "$file" '(require :unittest "unittest.l")' || continue
    timeout "${TEST_TIMEOUT:-120}" "$bin" '(require :unittest "unittest.l")' "(load \"$file\" :verbose t)" "$without" '(run-all-tests)' '(exit 0)' </dev/null >log 2>&1
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' log | tail -n 1)
    p=${line%% *} f=${line#*, } f=${f%% *}
    grep -q '^;; binloading' log || f=1
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    [ "${f:-1}" -eq 0 ] || { echo "== $file, native"; tail -n 25 log; }
done
for file in test/programs/*.l; do
    compile "$file" '(progn nil)' || continue
    timeout "${TEST_TIMEOUT:-120}" "$bin" "$file" </dev/null >out 2>/dev/null
    if cmp -s out "${file%.l}.out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "== $file, native: < EusLisp, > here"
        diff "${file%.l}.out" out | head -n 20
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
