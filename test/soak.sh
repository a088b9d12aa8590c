#!/bin/sh
# soak.sh -- the long runs, outside CI: thousands of stress runs, then the tests with a heap check around every collection.
cd "$(dirname "$0")/.." || exit 1
sh test/stress.sh build/release/karakuri "${RUNS:-3000}" || exit 1
KR_GC_CHECK=1 sh test/lisp/run.sh build/release/karakuri
