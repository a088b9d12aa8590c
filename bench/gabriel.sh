#!/bin/sh
# gabriel.sh -- programs in the manner of Gabriel's benchmarks as native code, and on SBCL and Chez Scheme, where these are installed.
#
#   bench/gabriel.sh [--programs "tak boyer ..."] [--rounds N] [--check] [--karakuri FILE] [--out DIR]
#
# The systems take turns within a round, medians over the rounds; every answer is checked. Prints times, ratios (above 1: Karakuri is faster) and
# their geometric means, also into DIR/gabriel.txt. --check: Karakuri alone, once as bytecode and once as native code, and only the answers.
set -u
here=$(CDPATH= cd "$(dirname "$0")" && pwd)
karakuri=${KARAKURI:-$here/../bin/karakuri}
out=build/bench
rounds=5
check=
programs="tak takl stak ctak div2 destructive deriv queens puzzle sieve boyer browse fft"
fail() { echo "bench: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --check) check=1 ;;
    --programs|--rounds|--karakuri|--out)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in --programs) programs=$2 ;; --rounds) rounds=$2 ;; --karakuri) karakuri=$2 ;; --out) out=$2 ;; esac
        shift ;;
    -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown argument $1 (--help tells)" ;;
    esac
    shift
done
[ -x "$karakuri" ] || fail "no executable $karakuri (make builds it)"
karakuri=$(realpath "$karakuri")
mkdir -p "$out/gabriel" || exit 2
out=$(cd "$out" && pwd)
log=$out/gabriel/log
cp "$here/gabriel/gabriel.l" "$here/gabriel/prelude.l" "$out/gabriel/" || exit 2
(cd "$out/gabriel" && "$karakuri" --batch prelude.l '(compile-file "gabriel.l")' '(exit 0)') >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail "gabriel.l cannot be compiled"; }
sbcl=$(command -v sbcl || true)
chez=$(command -v chezscheme || command -v chez || command -v scheme || true)

answer() { # program: of one repetition
    case $1 in
    tak|takl|stak|ctak) echo 7 ;; div2) echo 60000 ;; destructive) echo 45300 ;; deriv) echo 29200 ;; queens) echo 92 ;;
    puzzle) echo 6728 ;; sieve) echo 9592 ;; boyer) echo 1 ;; browse) echo 200 ;; fft) echo 2 ;; *) echo none ;;
    esac
}
run() { # system program repetitions
    case $1 in
    bytecode) "$karakuri" --batch "$here/gabriel/prelude.l" "$here/gabriel/gabriel.l" "(main \"$2\" $3)" '(exit 0)' ;;
    native) "$karakuri" --batch "$out/gabriel/prelude.l" "$out/gabriel/gabriel.l" "(main \"$2\" $3)" '(exit 0)' ;;
    sbcl) "$sbcl" --noinform --no-userinit --no-sysinit --non-interactive --load "$here/gabriel/prelude.lisp" --load "$here/gabriel/gabriel.l" --eval "(main \"$2\" $3)" ;;
    chez) "$chez" --script "$here/gabriel/gabriel.ss" "$2" "$3" ;;
    esac </dev/null 2>>"$log" | awk -v OFS='\t' -v p="$2" -v s="$1" -v n="$3" -v right="$(answer "$2")" '
        $1 == p { print p, s, $2 / n, $3 == right * n ? "ok" : "WRONG"; seen = 1 }
        END { if (!seen) print p, s, 0, "FAILED" }'
}
data=$out/gabriel/data.tsv
: >"$data"
if [ -n "$check" ]; then
    for p in $programs; do
        for s in bytecode native; do run $s "$p" 1; done
    done >"$data"
    awk -F '\t' '$4 != "ok" { print "gabriel: " $1 " on " $2 ": " $4; bad++ } $4 == "ok" { good++ } END { printf "%d passed, %d failed\n", good, bad; exit bad > 0 }' "$data"
    exit
fi
systems="native ${sbcl:+sbcl} ${chez:+chez}"
round=1
while [ "$round" -le "$rounds" ]; do
    for p in $programs; do
        printf 'round %d of %d: %s\n' "$round" "$rounds" "$p" >&2
        for s in $systems; do run "$s" "$p" 30; done
    done >>"$data"
    round=$((round + 1))
done
awk -F '\t' -v systems="$systems" '
    function median(text,    a, n, i, j, x) {
        n = split(text, a, " ")
        for (i = 2; i <= n; i++) { x = a[i] + 0; for (j = i - 1; j >= 1 && a[j] + 0 > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
        return n % 2 ? a[(n + 1) / 2] + 0 : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    { if (!($1 in rows)) { rows[$1] = 1; row[++n] = $1 }
      if ($4 == "ok") t[$1, $2] = t[$1, $2] " " $3; else bad[$1, $2] = $4 }
    END {
        m = split(systems, s, " ")
        printf "%-14s", "milliseconds"
        for (j = 1; j <= m; j++) printf " %10s", s[j]
        for (j = 2; j <= m; j++) printf " %10s", s[j] " /"
        print ""
        for (i = 1; i <= n; i++) {
            printf "%-14s", row[i]
            for (j = 1; j <= m; j++) printf " %10s", ((row[i], s[j]) in t) ? sprintf("%.3f", median(t[row[i], s[j]]) / 1e6) : bad[row[i], s[j]]
            for (j = 2; j <= m; j++) {
                if (!((row[i], s[j]) in t) || !((row[i], "native") in t)) { printf " %10s", "-"; continue }
                r = median(t[row[i], s[j]]) / median(t[row[i], "native"])
                sum[j] += log(r); count[j]++
                printf " %10.2f", r
            }
            print ""
        }
        printf "%-14s", "geometric mean"
        for (j = 1; j <= m; j++) printf " %10s", ""
        for (j = 2; j <= m; j++) printf " %10.2f", count[j] ? exp(sum[j] / count[j]) : 0
        print ""
    }' "$data" | tee "$out/gabriel.txt"
! grep -q 'WRONG\|FAILED' "$data"
