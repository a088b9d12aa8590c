#!/bin/sh
# peers.sh -- the same small programs on Karakuri and on whatever of its peers is installed, and their ratios from one run.
#
#   bench/peers.sh [--programs "fib tak ..."] [--systems "karakuri lua ..."] [--rounds N] [--karakuri FILE] [--out DIR]
#
# The systems take turns within a round; medians over the rounds. Writes DIR/peers.txt and peers.tsv.
set -u
here=$(CDPATH= cd "$(dirname "$0")" && pwd)
karakuri=${KARAKURI:-$here/../bin/karakuri}
out=build/bench
rounds=3
programs="fib tak queens copy replace inner send trees threads start"
systems="karakuri native eus lua luajit sbcl chez guile ecl ocaml"
fail() { echo "bench: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --programs|--systems|--rounds|--karakuri|--out)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
        --programs) programs=$2 ;; --systems) systems=$2 ;; --rounds) rounds=$2 ;; --karakuri) karakuri=$2 ;; --out) out=$2 ;;
        esac
        shift ;;
    -h|--help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown argument $1 (--help tells)" ;;
    esac
    shift
done
[ -x "$karakuri" ] || fail "no executable $karakuri (make builds it)"
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
if [ ! -x "$out/measure" ] || [ "$here/measure.c" -nt "$out/measure" ]; then
    "${CC:-cc}" -std=gnu11 -O2 "$here/measure.c" -o "$out/measure" || fail "cannot compile measure.c"
fi

have() { command -v "$1" >/dev/null 2>&1; }
lua=$(command -v lua5.4 || command -v lua || true)
chez=$(command -v chezscheme || command -v chez || command -v scheme || true)
installed() {
    case $1 in
    karakuri) true ;;
    native) compiled_karakuri ;;
    lua) [ -n "$lua" ] && "$lua" -v 2>&1 | grep -q 'Lua 5\.4' ;;
    chez) [ -n "$chez" ] && "$chez" --version >/dev/null 2>&1 ;;
    ocaml) have ocamlc && have ocamlrun && compiled_ocaml ;;
    eus|luajit|sbcl|guile|ecl) have "$1" ;;
    *) false ;;
    esac
}
compiled_ocaml() {
    mkdir -p "$out/ocaml" && cp "$here/peers/peers.ml" "$out/ocaml/" &&
        (cd "$out/ocaml" && ocamlc -I +threads unix.cma threads.cma -o peers.byte peers.ml) 2>>"$out/peers.log"
}
compiled_karakuri() {
    mkdir -p "$out/native" && cp "$here/peers/peers.l" "$out/native/" &&
        "$karakuri" --compile "$out/native/peers.l" >>"$out/peers.log" 2>&1
}
# run SYSTEM PROGRAM REPS [LIVE DEPTH]: prints "PROGRAM nanoseconds answer".
run() {
    system=$1
    shift
    case $system in
    karakuri) "$karakuri" --batch "$here/peers/peers.l" "(main \"$1\" $2 ${3:-16} ${4:-12})" "(exit 0)" ;;
    native) "$karakuri" --batch "$out/native/peers.l" "(main \"$1\" $2 ${3:-16} ${4:-12})" "(exit 0)" ;;
    eus) eus "$here/peers/peers.l" "(main \"$1\" $2 ${3:-16} ${4:-12})" "(exit 0)" ;;
    lua) "$lua" "$here/peers/peers.lua" "$@" ;;
    luajit) luajit -joff "$here/peers/peers.lua" "$@" ;;
    sbcl) sbcl --noinform --no-userinit --no-sysinit --non-interactive --load "$here/peers/peers.lisp" --eval "(main \"$1\" $2 ${3:-16} ${4:-12})" ;;
    ecl) ecl --norc --load "$here/peers/peers.lisp" --eval "(main \"$1\" $2 ${3:-16} ${4:-12})" --eval "(ext:quit 0)" ;;
    chez) (cd "$here/peers" && "$chez" --script chez.ss "$@") ;;
    guile) XDG_CACHE_HOME="$out/guile" GUILE_AUTO_COMPILE=1 guile "$here/peers/guile.scm" "$@" ;;
    ocaml) ocamlrun "$out/ocaml/peers.byte" "$@" ;;
    esac </dev/null 2>>"$out/peers.log"
}
# start SYSTEM: how long from start to exit, doing nothing; the peak of its memory.
start() {
    case $1 in
    karakuri) "$out/measure" 21 "$karakuri" "(exit 0)" ;;
    native) ;;
    eus) "$out/measure" 21 eus "(exit 0)" ;;
    lua) "$out/measure" 21 "$lua" -e "" ;;
    luajit) "$out/measure" 21 luajit -joff -e "" ;;
    sbcl) "$out/measure" 21 sbcl --noinform --no-userinit --no-sysinit --non-interactive --eval "(sb-ext:exit :code 0)" ;;
    ecl) "$out/measure" 21 ecl --norc --eval "(ext:quit 0)" ;;
    chez) echo '(exit 0)' >"$out/exit.ss" && "$out/measure" 21 "$chez" --script "$out/exit.ss" ;;
    guile) "$out/measure" 21 guile -q -c "" ;;
    ocaml) "$out/measure" 21 ocamlrun "$out/ocaml/peers.byte" nothing 0 ;;
    esac 2>>"$out/peers.log"
}
reps_of() { # program system: the slow ones do less of the same; times are per repetition
    case $1:$2 in
    fib:eus|fib:ecl) echo 1 ;;      fib:*) echo 3 ;;
    tak:eus|tak:ecl) echo 2 ;;      tak:*) echo 20 ;;
    queens:eus|queens:ecl) echo 1 ;; queens:*) echo 10 ;;
    copy:eus|copy:guile|copy:lua|copy:luajit) echo 200 ;;  copy:*) echo 2000 ;;
    replace:eus|replace:ecl) echo 200 ;;  replace:*) echo 1000 ;;
    inner:ecl) echo 2 ;;            inner:*) echo 20 ;;
    send:eus) echo 1 ;;             send:*) echo 5 ;;
    trees:eus|trees:ecl) echo 40 ;; trees:*) echo 200 ;;
    threads:eus|threads:guile) echo 200 ;; threads:*) echo 1000 ;;
    *) echo 1 ;;
    esac
}

: >"$out/peers.log"
data=$out/peers.tsv
: >"$data"
present=
for s in $systems; do
    if installed "$s"; then present="$present $s"; else echo "bench: $s is not installed" >&2; fi
done
round=1
while [ "$round" -le "$rounds" ]; do
    for p in $programs; do
        for s in $present; do
            printf 'round %d of %d: %s on %s\n' "$round" "$rounds" "$p" "$s" >&2
            if [ "$p" = start ]; then
                start "$s" | awk -v OFS='\t' -v s="$s" '$1 == "measure" && $2 > 0 { print "start", s, $2, "ok"; print "start memory (KB)", s, $4, "ok" }'
            elif [ "$p" = threads ] && { [ "$s" = lua ] || [ "$s" = luajit ] || [ "$s" = eus ]; }; then
                continue    # no threads, or none that may allocate
            else
                n=$(reps_of "$p" "$s")
                run "$s" "$p" "$n" | awk -v OFS='\t' -v p="$p" -v s="$s" -v n="$n" '
                    BEGIN { right["fib"] = 832040 * n; right["tak"] = 7 * n; right["queens"] = 92 * n; right["copy"] = right["replace"] = 49995000
                            right["inner"] = 600000 * n; right["send"] = 1000000 * n; right["trees"] = 131071 + n; right["threads"] = 99990000 }
                    $1 == p { print p, s, $2 / n, $3 + 0 == right[p] ? "ok" : "WRONG"; seen = 1 }
                    END { if (!seen) print p, s, 0, "FAILED" }'
            fi >>"$data"
        done
    done
    round=$((round + 1))
done
awk -F '\t' -v systems="$present" '
    function median(text,    a, n, i, j, x) {
        n = split(text, a, " ")
        for (i = 2; i <= n; i++) { x = a[i] + 0; for (j = i - 1; j >= 1 && a[j] + 0 > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
        return n % 2 ? a[(n + 1) / 2] + 0 : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    function unit(ns, p) {
        if (p ~ /memory/) return sprintf("%.1f MB", ns / 1024)
        if (p == "send") return sprintf("%.1f ns", ns / 1e6)
        return ns < 1e6 ? sprintf("%.1f us", ns / 1e3) : sprintf("%.2f ms", ns / 1e6)
    }
    { if (!($1 in rows)) { rows[$1] = 1; row[++n] = $1 }
      if ($4 == "ok") t[$1, $2] = t[$1, $2] " " $3; else bad[$1, $2] = $4 }
    END {
        m = split(systems, s, " ")
        line = sprintf("%-18s", "time")
        for (j = 1; j <= m; j++) line = line sprintf(" %11s", s[j]); print line
        for (i = 1; i <= n; i++) {
            line = sprintf("%-18s", row[i])
            for (j = 1; j <= m; j++) line = line sprintf(" %11s", ((row[i], s[j]) in t) ? unit(median(t[row[i], s[j]]), row[i]) : ((row[i], s[j]) in bad) ? bad[row[i], s[j]] : "-")
            print line
        }
        line = sprintf("\n%-18s", "relative")
        for (j = 1; j <= m; j++) line = line sprintf(" %11s", s[j]); print line "     (time of the system / time of Karakuri: above 1, Karakuri is faster)"
        for (i = 1; i <= n; i++) {
            if (!((row[i], "karakuri") in t)) continue
            line = sprintf("%-18s", row[i]); base = median(t[row[i], "karakuri"])
            for (j = 1; j <= m; j++) line = line sprintf(" %11s", ((row[i], s[j]) in t) && base > 0 ? sprintf("%.2f", median(t[row[i], s[j]]) / base) : "-")
            print line
        }
    }' "$data" | tee "$out/peers.txt"
cat <<'EOT'
Times are per repetition: (fib 30); (tak 18 12 6); all solutions of 8 queens; a list of 10,000 copied, replaced; the inner product of 100,000
floats; one message send, loop included; a tree of 8,191 conses built and dropped beside a live one of 131,071; two threads copying a list each; start to exit.
Karakuri, EusLisp, Lua, LuaJIT -joff, ECL and OCaml run byte code or source here, Guile byte code with its own JIT; native (Karakuri's
own, by --compile), SBCL and Chez native code.
EOT
! grep -q 'WRONG\|FAILED' "$data"
