#!/bin/sh
# tiers.sh -- the recorded expressions as functions, in bytecode and as native code: the answers must be the same.
#
#   sh test/euslisp/tiers.sh [EXECUTABLE [NAME.tsv...]]
#
# Prints the answers that differ and at the end "N passed, N failed". Each table is one module.
bin=$(realpath "${1:-bin/karakuri}")
here=$(realpath "$(dirname "$0")")
[ $# -gt 0 ] && shift
if [ $# -eq 0 ]; then
    for table in "$here"/*.tsv; do
        [ "$(basename "$table")" = differences.tsv ] || set -- "$@" "$table"
    done
fi
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
answers() { # table, directory, t or nil
    mkdir -p "$work/$2"
    (cd "$work/$2" && timeout "${TEST_TIMEOUT:-200}" "$bin" "$here/answer.l" "$here/replay.l" "$here/tiers.l" \
        "(tiers-write \"$here/differences.tsv\" \"$1\" \"$work/$2.out\" $3)" </dev/null >"$work/$2.log" 2>&1)
}
for table; do
    table=$(realpath "$table")
    rm -rf "$work"/*
    answers "$table" bytecode nil &
    answers "$table" native t
    wait
    if ! tail -n 1 "$work/native.out" 2>/dev/null | grep -q '^[0-9]*$' || ! tail -n 1 "$work/bytecode.out" 2>/dev/null | grep -q '^[0-9]*$'; then
        echo "== $table: ended before all was answered"
        tail -n 5 "$work/bytecode.log" "$work/native.log"
        failed=$((failed + 1))
        continue
    fi
    n=$(tail -n 1 "$work/native.out")
    f=$(diff "$work/bytecode.out" "$work/native.out" | grep -c '^>')
    passed=$((passed + n - f)) failed=$((failed + f))
    [ "$f" -eq 0 ] || { echo "== $table: < bytecode, > native"; diff "$work/bytecode.out" "$work/native.out"; }
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
