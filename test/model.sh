#!/bin/sh
# model.sh -- check doc/gate.pml and doc/orders.pml with Spin: the gate as it is must pass, each mutant must fail in the way it is meant
# to; each pairing of memory orders must hold as it is, and fail with any of its orders weakened.
set -eu
doc=$(cd "$(dirname "$0")/.." && pwd)/doc
model=$doc/gate.pml
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

# Prints "ran P V" for each program and variant, "wrong P V" for what can go wrong.
spin -a "$doc/orders.pml" > spin.out || { cat spin.out; exit 2; }
$cc -w -DSAFETY -DCOLLAPSE -o pan pan.c
./pan -E -m100000 -n > out
if ! grep -q 'errors: 0' out || grep -q 'max search depth too small' out; then
    echo "model: the search was not complete" >&2
    cat out >&2
    exit 2
fi
sed -n 's/^\(ran\|wrong\) \([0-9]* [0-9]*\)$/\1 \2/p' out | sort -u > told
if ! awk '$1 == "ran" { ran[$2 " " $3] = 1 } $1 == "wrong" { wrong[$2 " " $3] = 1 }
    END {
        for (k in ran) {
            split(k, pv)
            pv[2] == 0 ? holds++ : weakened++
            if ((pv[2] == 0) == (k in wrong)) {
                print "orders: program " pv[1] (pv[2] == 0 ? " goes wrong" : ", variant " pv[2] ", should go wrong")
                bad = 1
            }
        }
        print "orders: " holds " pairings hold, " weakened " weakened ones fail" (bad ? ", but for these" : " as they must")
        exit bad || holds != PROGRAMS
    }' PROGRAMS="$(sed -n 's/^#define PROGRAMS //p' "$doc/orders.pml")" told; then
    failed=1
fi
exit $failed
