#!/bin/sh
# soak.sh -- the long runs, outside CI: thousands of stress runs, the tests with a heap check around every collection, and fuzzing for
# an HOUR (seconds, 3600) with a seed of its own for each ten minutes: FUZZ_SEED and those behind it, the time if it is not given.
cd "$(dirname "$0")/.." || exit 1
make -s -j"$(nproc)" MODE=asan all && make -s -j"$(nproc)" MODE=tsan all || exit 1
status=0
sh test/stress.sh build/release/karakuri "${RUNS:-3000}" || status=1
KR_GC_CHECK=1 sh test/lisp/run.sh build/release/karakuri || status=1
TEST_TIMEOUT=1200 sh test/fuzz/hostile.sh build/asan/karakuri || status=1
seed=${FUZZ_SEED:-$(date +%s)} left=${HOUR:-3600}
while [ "$left" -gt 0 ]; do
    sh test/fuzz/run.sh build/asan/karakuri 300 "$seed" || status=1
    KR_GC_CHECK=1 STRESS=200 sh test/fuzz/run.sh build/release/karakuri 200 "$seed" || status=1
    TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/test/tsan.supp sh test/fuzz/run.sh build/tsan/karakuri 100 "$seed" races programs || status=1
    seed=$((seed + 1)) left=$((left - 600))
done
exit $status
