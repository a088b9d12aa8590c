#!/bin/sh
# check.sh -- what must hold before a change lands: lint, then the tests as release, with the address and undefined-behaviour
# sanitizers, with the thread sanitizer, for aarch64 under qemu, and with a collection at every few allocations; programs that abuse
# Karakuri, a minute of fuzzing, and what is given to others: the one-file Karakuri, the Debian packages. AFTER_TEST=1: the release
# tests ran before. FUZZ_SEED chooses what the fuzzer does.
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
stage() { # name, command...
    name=$1
    shift
    echo "=== $name"
    log=$(mktemp)
    "$@" 2>&1 | tee "$log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    rm -f "$log"
    if [ -n "$line" ]; then
        p=${line%% *} f=${line#*, } f=${f%% *}
        passed=$((passed + p)) failed=$((failed + f))
    else
        failed=$((failed + 1))
    fi
}
lint() { make -s lint && echo "1 passed, 0 failed"; }
jobs=-j$(nproc)
for mode in release asan tsan; do
    make -s "$jobs" MODE=$mode build/$mode/karakuri build/$mode/libkarakuri.a || { echo "0 passed, 1 failed"; exit 1; }
done
make -s "$jobs" MODE=aarch64 all || { echo "0 passed, 1 failed"; exit 1; }
stage lint lint
[ -n "${AFTER_TEST:-}" ] || stage release sh test/run.sh release
stage asan env TEST_VMS=1000 sh test/run.sh asan
stage tsan sh test/run.sh tsan
stage aarch64 env TEST_TIMEOUT=600 sh test/run.sh aarch64
stage stress sh test/stress.sh build/release/karakuri 24
stage hostile sh test/fuzz/hostile.sh build/release/karakuri
stage fuzz sh test/fuzz/run.sh build/asan/karakuri 60 "${FUZZ_SEED:-1}"
stage emacs sh -c 'sh test/slime.sh build/release/karakuri && echo "1 passed, 0 failed"'
stage amalgamation sh -c 'sh test/amalgamation.sh release full && echo "1 passed, 0 failed"'
stage packages sh test/deb.sh
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
