#!/bin/sh
# run.sh MODE -- every fast test of one build: C units (Check), embedding hosts, Lisp, recorded EusLisp answers, the model
# of the gate, the REPL on a terminal. Ends with the line "N passed, N failed".
mode=${1:-release}
cd "$(dirname "$0")/.." || exit 1
b=build/$mode
passed=0 failed=0 skipped=0

# Add the counts of a part that closes with "N passed, N failed"; a part without that line has failed.
add() { # name, log
    line=$(grep -a -E '^[0-9]+ passed, [0-9]+ failed$' "$2" | tail -n 1)
    if [ -z "$line" ]; then
        echo "FAILED $1: it did not finish"
        tail -n 30 "$2"
        failed=$((failed + 1))
        return
    fi
    p=${line%% *} f=${line#*, } f=${f%% *}
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-40s %s\n' "$1" "$line"
    [ "$f" -eq 0 ] || grep -a -v '^[0-9]* passed' "$2" | tail -n 60
}
# A part that says yes or no by its exit code. What it could not try it says in lines that begin with SKIPPED.
check() { # name, command...
    what=$1
    shift
    if "$@" >"$b/part.log" 2>&1; then
        passed=$((passed + 1))
        printf '%-40s ok\n' "$what"
        grep -a '^SKIPPED' "$b/part.log" && skipped=$((skipped + $(grep -a -c '^SKIPPED' "$b/part.log")))
    else
        echo "FAILED $what"
        tail -n 40 "$b/part.log"
        failed=$((failed + 1))
    fi
}

# Under qemu a process that the system's posix_spawn makes does not report that there is no such program: a test or two ask for that.
[ "$mode" = aarch64 ] && export SKIP="process-streams xfork-joins-streams"
export ASAN_OPTIONS=detect_stack_use_after_return=0:detect_leaks=1 TSAN_OPTIONS=halt_on_error=1:suppressions=test/tsan.supp
for source in test/unit/*_test.c; do
    name=$(basename "$source" .c)
    check "$name: build" make -s MODE="$mode" "$b/test/unit/$name"
    timeout 300 "$b/test/unit/$name" >"$b/$name.log" 2>&1
    # Check's own summary, "100%: Checks: 12, Failures: 0, Errors: 0", in the common form.
    sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\)$/\1 \2 \3/p' "$b/$name.log" |
        awk '{n += $1; f += $2 + $3} END {if (NR) print n - f " passed, " f " failed"}' >>"$b/$name.log"
    add "$name" "$b/$name.log"
done
for source in test/embed/*.c test/embed/*.cc; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .c)
    name=${name%.cc}
    check "embed/$name: build" make -s MODE="$mode" "$b/test/embed/$name"
    check "embed/$name" timeout 300 "$b/test/embed/$name"
done
for source in doc/examples/*.c; do
    name=$(basename "$source" .c)
    check "examples/$name: build" make -s MODE="$mode" "$b/examples/$name"
    check "examples/$name" sh -c "timeout 120 $b/examples/$name </dev/null | diff doc/examples/$name.expected -"
done
check "examples/robot: build" make -s MODE="$mode" "$b/examples/robot"
check "examples/robot" sh test/robot/run.sh "$mode"
sh test/lisp/run.sh "$b/karakuri" >"$b/lisp.log" 2>&1
add "test/lisp" "$b/lisp.log"
if [ -e test/euslisp/replay.sh ]; then
    sh test/euslisp/replay.sh "$b/karakuri" >"$b/euslisp.log" 2>&1
    add "recorded EusLisp answers" "$b/euslisp.log"
    sh test/programs/run.sh "$b/karakuri" >"$b/programs.log" 2>&1
    add "programs" "$b/programs.log"
fi
check "inventory of EusLisp" sh test/euslisp/inventory/run.sh "$b/karakuri"
if [ "$mode" = aarch64 ]; then
    echo "skipped: $(echo "$SKIP" | wc -w) tests of processes, the prompt on a terminal, installation"
fi
if [ "$mode" = release ]; then
    [ -e test/repl.sh ] && check "REPL on a terminal" sh test/repl.sh "$b/karakuri"
    sh test/native.sh "$b/karakuri" >"$b/native.log" 2>&1
    add "Lisp tests and programs, native" "$b/native.log"
    sh test/euslisp/tiers.sh "$b/karakuri" >"$b/tiers.log" 2>&1
    add "recorded expressions, both tiers" "$b/tiers.log"
    sh bench/gabriel.sh --check --karakuri "$b/karakuri" --out "$b" >"$b/gabriel.log" 2>&1
    add "Gabriel's programs, both tiers" "$b/gabriel.log"
    check "models of gate and orders" sh test/model.sh
    check "installation, programs of the texts" sh test/install.sh "$mode"
    check "the one-file Karakuri" sh test/amalgamation.sh "$mode"
fi
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
