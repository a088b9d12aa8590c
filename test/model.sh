#!/bin/sh
# model.sh -- check doc/gate.pml with Spin: the gate as it is must pass, each mutant must fail in the way it is meant to.
set -eu
model=$(cd "$(dirname "$0")/.." && pwd)/doc/gate.pml
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# verify FLAG...: run the verifier, its output to ./out
verify() {
    spin "$@" -a "$model" > spin.out || { cat spin.out; exit 2; }
    $cc -w -O2 -DSAFETY -DCOLLAPSE -o pan pan.c
    ./pan -m4000000 -n $options > out
    if grep -q 'max search depth too small' out || ! grep -q 'errors: ' out; then
        echo "model: the search was not complete" >&2
        cat out >&2
        exit 2
    fi
}

failed=0
options=
verify
if grep -q 'errors: 0' out; then
    echo "gate: holds ($(awk '/states, stored/ { print $1 }' out) states)"
else
    echo "gate: VIOLATED"
    cat out
    failed=1
fi

# must_fail FLAG MESSAGE
must_fail() {
    verify "$1"
    if grep -q "$2" out; then
        echo "gate with $1: fails as it must"
    else
        echo "gate with $1: should fail with \"$2\""
        cat out
        failed=1
    fi
}
options=-E    # look past deadlocks
must_fail -DNO_BARRIER 'assertion violated (holders==0)'
must_fail -DNO_RECHECK 'assertion violated  *!'
options=
must_fail -DNO_COMPARE 'invalid end state'
exit $failed
