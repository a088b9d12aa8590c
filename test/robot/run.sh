#!/bin/sh
# run.sh MODE -- the robot of doc/examples does its programme, beside threads that allocate too; it comes to its targets within a
# millimetre, draws a picture, and does as it is told over its socket. How late its loop is is nothing to test.
mode=${1:-release}
cd "$(dirname "$0")/../.." || exit 1
robot=build/$mode/examples/robot karakuri=build/$mode/karakuri
at=$(mktemp -d) || exit 1
trap 'rm -rf "$at"' EXIT
failed=0
fail() {
    echo "FAILED $*"
    cat "$at"/log* 2>/dev/null
    failed=1
}

# ---- a run ----
timeout 250 $robot --seconds 0 --threads 2 --script test/robot/script.l --svg "$at/way.svg" >"$at/log" 2>&1 </dev/null || fail "the robot's exit code is $?"
awk '$1 == "MOVE" || $1 == "LINE" {n++; if ($3 < -1 || $(NF - 3) == "" || $(NF - 2) + 0 >= 1) far = 1} END {exit !(n == 3 && !far)}' "$at/log" || fail targets
grep -q '^Lisp plans  *[1-9]' "$at/log" && grep -q '^Lisp allocates too  *[1-9]' "$at/log" || fail statistics
$karakuri --script test/robot/xml.l "$at/way.svg" svg polyline circle text >"$at/log.xml" 2>&1 || fail "the picture: $(cat "$at/log.xml")"
for bad in '<a><b></a></b>' '<a b="1" b="2"/>' '<a>&</a>' '<a/><b/>' '<a b=1/>' '<a'; do # the judge can say no
    echo "$bad" >"$at/bad.svg"
    $karakuri --script test/robot/xml.l "$at/bad.svg" >/dev/null 2>&1 && fail "taken for XML: $bad"
done

# ---- over the socket ----
timeout 250 $robot --seconds 240 --script test/robot/script.l --repl "$at/socket" >"$at/log" 2>&1 </dev/null &
pid=$!
timeout 240 $karakuri --script test/robot/client.l "$at/socket" >"$at/log.client" 2>&1 || fail "the client's exit code is $?"
[ $failed -eq 0 ] || kill $pid
wait $pid || fail "the robot's exit code is $?"
[ ! -e "$at/socket" ] || fail "the socket is left"

# ---- what cannot be ----
$robot --seconds five >"$at/log" 2>&1 && fail "five seconds"
$robot --lisp "$at" >"$at/log" 2>&1 && fail "no Lisp files"
$robot --repl /nowhere/socket >"$at/log" 2>&1 && fail "no directory"
grep -q 'no socket at /nowhere/socket: No such file' "$at/log" || fail "it does not say why there is no socket"
exit $failed
