#!/bin/sh
# run.sh -- run the Lisp tests: each file test/lisp/*_test.l in a process of its own.
#
#   sh test/lisp/run.sh [EXECUTABLE [FILE...]]
#
# $SKIP names tests that are left out, and counted. Prints what failed, file by file, and at the end the line "N passed, N failed". Exit code 1 if something failed.
bin=${1:-bin/karakuri}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- "$(dirname "$0")"/*_test.l
passed=0 failed=0
skip="(setq lisp::*unit-tests* (remove-if #'(lambda (e) (memq (car e) '(${SKIP-}))) lisp::*unit-tests*))"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for file; do
    timeout "${TEST_TIMEOUT:-120}" "$bin" '(require :unittest "unittest.l")' "$file" ${SKIP:+"$skip"} '(run-all-tests)' '(exit 0)' \
        </dev/null >"$log" 2>&1
    code=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    if [ -z "$line" ]; then
        echo "== $file: ended with code $code before its tests had run"
        tail -n 25 "$log"
        failed=$((failed + 1))
        continue
    fi
    p=${line%% *} f=${line#*, } f=${f%% *}
    passed=$((passed + p)) failed=$((failed + f))
    if [ "$f" -gt 0 ]; then
        echo "== $file"
        cat "$log"
    elif [ "$code" -ne 0 ]; then
        echo "== $file: exit code $code"
        failed=$((failed + 1))
    fi
done
[ -z "${SKIP-}" ] || echo "skipped: $SKIP ($(echo "$SKIP" | wc -w) tests)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
