#!/bin/sh
# native.sh -- the Lisp tests and the programs again, compiled to native code: the results must be the same.
#
#   sh test/native.sh [EXECUTABLE]
#
# Prints what differs and at the end "N passed, N failed".
bin=${1:-bin/karakuri}
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile() { # source, module, forms first
    timeout "${TEST_TIMEOUT:-120}" "$bin" --batch "$3" "(compile-file \"$1\" :output \"$2\")" </dev/null >"$work/log" 2>&1 && return 0
    echo "== $1: cannot be compiled"
    tail -n 5 "$work/log"
    failed=$((failed + 1))
    return 1
}
for file in test/lisp/*_test.l; do
    # Not: what a collection finds, since native stacks are scanned conservatively; processes of their own.
    case $file in */weak_table_test.l | */texts_test.l) continue ;; esac
    compile "$file" "$work/module.so" '(require :unittest "unittest.l")' || continue
    timeout "${TEST_TIMEOUT:-120}" "$bin" '(require :unittest "unittest.l")' "(let ((*load-pathname* \"$file\")) (load \"$work/module.so\"))" \
        '(run-all-tests)' '(exit 0)' </dev/null >"$work/log" 2>&1
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/log" | tail -n 1)
    p=${line%% *} f=${line#*, } f=${f%% *}
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    [ "${f:-1}" -eq 0 ] || { echo "== $file, native"; tail -n 25 "$work/log"; }
done
for file in test/programs/*.l; do
    compile "$file" "$work/module.so" '(progn nil)' || continue
    timeout "${TEST_TIMEOUT:-120}" "$bin" "$work/module.so" </dev/null >"$work/out" 2>/dev/null
    if cmp -s "$work/out" "${file%.l}.out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "== $file, native: < EusLisp, > here"
        diff "${file%.l}.out" "$work/out" | head -n 20
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
