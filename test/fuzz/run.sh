#!/bin/sh
# run.sh EXECUTABLE SECONDS SEED [KIND...] -- random calls, forms and texts that must not crash, hang or damage the heap.
#
# Each KIND (builtins forms reader hostile) gets an equal share of SECONDS. What crashes is reported with the log's last line, and
# the run goes on behind it. Last line: "N passed, N failed", counting units.
bin=$(realpath "$1") seconds=${2:-60} seed=${3:-1}
shift; shift; shift
[ $# -gt 0 ] || set -- builtins forms reader
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=0:detect_leaks=0:allocator_may_return_null=1}" UBSAN_OPTIONS=print_stacktrace=1
passed=0 failed=0 share=$((seconds / $#))
for kind; do
    from=0 end=$(($(date +%s) + share))
    while left=$((end - $(date +%s))) && [ $left -gt 0 ]; do
        rm -rf "${work:?}"/*
        timeout $((left + 120)) "$bin" --batch --heap=256m --stress="${STRESS:-2000}" "$here/common.l" "$here/$kind.l" \
            "(fuzz-$kind $left $seed \"log\" $from)" >out 2>&1 </dev/null
        code=$?
        units=$(grep -c '^[0-9]' log)
        if [ $code -eq 0 ]; then
            passed=$((passed + units))
            break
        fi
        [ "$units" -eq 0 ] && { echo "FAILED $kind: it did not start (code $code)"; tail -n 5 out; failed=$((failed + 1)); break; }
        passed=$((passed + units - 1)) failed=$((failed + 1))
        echo "FAILED $kind, seed $seed, code $code: $(tail -n 1 log)"
        grep -E 'ERROR: |runtime error|^ +#[0-9]+ .*/?(lisp|runtime)/' out | head -n "${FRAMES:-4}"
        from=$(grep '^[0-9]' log | tail -n 1 | cut -d' ' -f1)
        from=$((from + 1))
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
