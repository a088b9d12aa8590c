#!/bin/sh
# replay.sh -- compare Karakuri's answers with those recorded from EusLisp.
#
#   sh test/euslisp/replay.sh [EXECUTABLE [NAME.tsv...]]
#
# Prints the answers that differ and at the end "N passed, N failed"; each table is replayed in a process of its own.
bin=${1:-bin/karakuri}
here=$(dirname "$0")
[ $# -gt 0 ] && shift
if [ $# -eq 0 ]; then
    for table in "$here"/*.tsv; do
        [ "$(basename "$table")" = differences.tsv ] || set -- "$@" "$table"
    done
fi
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for table; do
    timeout "${TEST_TIMEOUT:-120}" "$bin" "$here/answer.l" "$here/replay.l" "(replay-all \"$here/differences.tsv\" \"$table\")" \
        </dev/null >"$log" 2>&1
    line=$(grep -a -o -E '[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    if [ -z "$line" ]; then
        echo "== $table: ended before all was replayed"
        tail -n 20 "$log"
        failed=$((failed + 1))
        continue
    fi
    f=${line#*, } f=${f%% *}
    passed=$((passed + ${line%% *})) failed=$((failed + f))
    [ "$f" -eq 0 ] || grep -a -v -E '^[0-9]+ passed, [0-9]+ failed$' "$log"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
