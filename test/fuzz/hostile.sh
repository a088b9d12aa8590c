#!/bin/sh
# hostile.sh EXECUTABLE [FILE...] -- programs that abuse Karakuri; each must end in errors or results, with the heap as it should be.
#
# A file's head may give options of the executable and the exit codes that are right (";;; options: --heap=40m", ";;; exit code: 1");
# 0 otherwise, and then its last line must be t, from sys:heap-check. Last line: "N passed, N failed".
bin=$(realpath "$1")
shift
here=$(realpath "$(dirname "$0")")
[ $# -gt 0 ] || set -- "$here"/hostile/*.l
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=0:detect_leaks=0:allocator_may_return_null=1}" UBSAN_OPTIONS=print_stacktrace=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for file; do
    file=$(realpath "$file")
    options=$(sed -n 's/^;;; options: //p' "$file")
    codes=$(sed -n 's/^;;; exit code: //p' "$file")
    # shellcheck disable=SC2086
    (cd "$work" && timeout "${TEST_TIMEOUT:-120}" "$bin" --batch --heap=200m $options "$here/try.l" "$file") >"$work/out" 2>&1 </dev/null
    code=$?
    good=no
    for c in ${codes:-0}; do [ $code -ne "$c" ] || good=yes; done
    [ -n "$codes" ] || [ "$(tail -n 1 "$work/out")" = t ] || good=no
    grep -q -E 'ERROR: |runtime error' "$work/out" && good=no
    if [ $good = yes ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $(basename "$file"), exit code $code"
        grep -E 'ERROR: |runtime error|^ +#[0-9]+ .*/?(lisp|runtime)/' "$work/out" | head -n 8
        tail -n 5 "$work/out" | cut -c1-300
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
