#!/bin/sh
# run.sh -- run the programs test/programs/*.l and compare what they print with what EusLisp printed, *.out.
#
#   sh test/programs/run.sh [EXECUTABLE [FILE.l...]]
#
# Prints the differences and at the end "N passed, N failed". With RECORD=1 the executable's output becomes the *.out files:
#   RECORD=1 sh test/programs/run.sh eus
bin=${1:-bin/karakuri}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- "$(dirname "$0")"/*.l
passed=0 failed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for file; do
    expected=${file%.l}.out
    timeout "${TEST_TIMEOUT:-120}" "$bin" "$file" </dev/null >"$out" 2>/dev/null
    code=$?
    if [ -n "$RECORD" ]; then
        cp "$out" "$expected"
        passed=$((passed + 1))
    elif [ "$code" -eq 0 ] && cmp -s "$out" "$expected"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "== $file: exit code $code; < EusLisp, > $bin"
        diff "$expected" "$out" | head -n 40
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
