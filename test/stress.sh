#!/bin/sh
# stress.sh EXECUTABLE RUNS -- threads that only allocate, with a collection at every few allocations: on each run two to
# eight threads build private lists, vectors, strings and objects and check them; then they work on symbols, tables, vectors,
# classes and functions that they share.
bin=$1
runs=${2:-24}
passed=0 failed=0
i=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while [ $i -lt "$runs" ]; do
    threads=$((2 + i % 7))
    stress=$((1 + i % 5))
    alloc=$(set -- gate rwlock mutex; shift $((i % 3)); echo "$1")
    if timeout 300 "$bin" --batch --stress=$stress --alloc="$alloc" test/stress.l "(stress $threads)" "(stress-shared $threads)" >"$log" 2>&1 &&
        [ "$(grep -c '^ok$' "$log")" -eq 2 ]; then
        passed=$((passed + 1))
    else
        echo "FAILED run $i: $threads threads, --stress=$stress --alloc=$alloc, exit code $?"
        tail -n 20 "$log"
        failed=$((failed + 1))
    fi
    i=$((i + 1))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
