#!/bin/sh
# run.sh EXECUTABLE SECONDS SEED [KIND...] -- random calls, forms, texts and programs that must not crash, hang, damage the heap or
# mean different things in different guises.
#
# Each KIND (builtins forms reader programs corpus races native) gets an equal share of SECONDS, a heap of 256 MB and a collection at every STRESS-th
# slow allocation. What fails is reported with the command that repeats it, and the run goes on behind it. Last line: "N passed, N
# failed", counting units of work. With AGAIN=NAME-OF-UNIT one unit is run again, each of its calls named in the file ./log:
#   AGAIN="(case 438)" sh test/fuzz/run.sh bin/karakuri 60 2 forms
bin=$(realpath "$1") seconds=${2:-60} seed=${3:-1}
shift; shift; shift
[ $# -gt 0 ] || set -- builtins forms reader programs corpus races native
here=$(realpath "$(dirname "$0")")
FUZZ_TESTS=$(dirname "$here")
export FUZZ_TESTS
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=0:detect_leaks=0:allocator_may_return_null=1}" UBSAN_OPTIONS=print_stacktrace=1
run() { # kind, form
    timeout $((left + 120)) "$bin" --batch --heap="${HEAP:-256m}" --stress="${STRESS:-2000}" "$here/common.l" "$here/$1.l" "$2" </dev/null
}
if [ -n "$AGAIN" ]; then
    left=$seconds
    run "$1" "(fuzz::fuzz-again '$AGAIN $seed \"log\")"
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
echo "seed $seed"
passed=0 failed=0 share=$((seconds / $#))
for kind; do
    from=0 end=$(($(date +%s) + share))
    while left=$((end - $(date +%s))) && [ $left -gt 0 ]; do
        rm -rf "${work:?}"/*
        run "$kind" "(fuzz::fuzz $left $seed \"log\" $from)" >out 2>&1
        code=$?
        units=$(grep -a -c '^[0-9]' log)
        if [ $code -eq 0 ] && grep -a -q '^END' log; then
            passed=$((passed + units))
            echo "$kind: $(tail -n 1 log)"
            break
        fi
        [ "$units" -eq 0 ] && { echo "FAILED $kind: it did not start (code $code)"; tail -n 5 out; failed=$((failed + 1)); break; }
        [ $code -ne 96 ] || { passed=$((passed + units)) from=$((from + units)); continue; }
        unit=$(grep -a '^[0-9]' log | tail -n 1)
        passed=$((passed + units - 1)) failed=$((failed + 1))
        echo "FAILED with code $code: AGAIN='${unit#* }' sh test/fuzz/run.sh $bin 60 $seed $kind"
        grep -a -E '^(HANG|HEAP|MISMATCH)' log | tail -n 1
        grep -E 'ERROR: |runtime error|^ +#[0-9]+ .*/?(lisp|runtime)/' out | head -n "${FRAMES:-6}"
        [ $code -ne 1 ] || tail -n 8 out
        from=$((${unit%% *} + 1))
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
