#!/bin/sh
# run.sh -- the paper's six programs at 1, 2, 4 ... threads under the three allocation disciplines, and the report.
#
#   bench/run.sh [--quick] [--threads "1 2 4"] [--disciplines "mutex rwlock gate"] [--programs "copy-seq ..."]
#                [--rounds N] [--share N] [--karakuri FILE] [--out DIR]
#
# One process per sample. What is compared is interleaved: a round runs every program under every discipline with every number of
# threads, and beside them the program's C twin (twin.c) with as many threads; medians over the rounds are reported. --share N
# does one N-th of the repetitions. Writes DIR/report.txt, report.html, figure-4a.svg, -4b, -4c, data.tsv. See README.md.
set -u
here=$(CDPATH= cd "$(dirname "$0")" && pwd)
karakuri=${KARAKURI:-$here/../bin/karakuri}
out=build/bench
rounds=3
share=1
threads=
form=full
disciplines="mutex rwlock gate"
programs="compfib intfib inner-prod list-replace copy-seq body-intcheck"

fail() { echo "bench: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --quick) form=quick; rounds=2; share=12 ;;
    --threads|--disciplines|--programs|--rounds|--share|--karakuri|--out)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
        --threads) threads=$2 ;;       --disciplines) disciplines=$2 ;;  --programs) programs=$2 ;;
        --rounds) rounds=$2 ;;         --share) share=$2 ;;              --karakuri) karakuri=$2 ;;
        --out) out=$2 ;;
        esac
        shift ;;
    -h|--help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown argument $1 (--help tells)" ;;
    esac
    shift
done

# ---- what it needs ----
command -v gnuplot >/dev/null 2>&1 || echo "bench: no gnuplot (package gnuplot-nox): the report will have no figures" >&2
command -v "${CC:-cc}" >/dev/null 2>&1 || fail "no C compiler for the twin"
[ -x "$karakuri" ] || fail "no executable $karakuri (make builds it)"
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
for tool in twin measure; do
    if [ ! -x "$out/$tool" ] || [ "$here/$tool.c" -nt "$out/$tool" ]; then
        "${CC:-cc}" -std=gnu11 -O2 -pthread "$here/$tool.c" -o "$out/$tool" || fail "cannot compile $tool.c"
    fi
done

# ---- how many threads: 1 2 4 ... up to the cores, and the cores themselves; always 1, for the speed-up ----
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
if [ -z "$threads" ]; then
    n=1
    while [ "$n" -lt "$cores" ]; do threads="$threads $n"; n=$((n * 2)); done
    threads="$threads $cores"
fi
for n in $threads; do
    case $n in ''|*[!0-9]*|0*) fail "--threads: not a number of threads: $n" ;; esac
done
threads=$(printf '%s\n' 1 $threads | sort -nu | tr '\n' ' ')

# ---- settings that the programs and the twin share ----
: "${BENCH_FLOATS:=100000}" "${BENCH_ELEMENTS:=10000}" "${BENCH_PAIRS:=64}" "${BENCH_FIB:=27}"
BENCH_DIRECTORY=$here
BENCH_OUT=$out
export BENCH_FLOATS BENCH_ELEMENTS BENCH_PAIRS BENCH_FIB BENCH_DIRECTORY BENCH_OUT

data=$out/data.tsv
notes=$out/notes.txt
log=$out/errors.log
: >"$notes"
: >"$log"
printf 'kind\tround\tprogram\tdiscipline\tthreads\treps\telapsed_ns\tcpu_ns\tgc_ns\tsweep_ns\tcollections\tallocated_bytes\theap_bytes\tok\n' >"$data"

case " $programs " in
*" compfib "*)
    if "$karakuri" "(progn (princ (if (memq :native-code *features*) \"native\" \"none\")) (terpri) (exit 0))" </dev/null 2>>"$log" | grep -q '^native'; then
        "$karakuri" "$here/bench.l" "(bench::find-program \"compfib\")" "(exit 0)" </dev/null >>"$log" 2>&1
    else
        echo "compfib is not measured: it is defined as native code, and this Karakuri makes none yet. Nothing stands in for it." >>"$notes"
        programs=$(printf '%s\n' $programs | grep -vx compfib | tr '\n' ' ')
    fi ;;
esac

# Allocating costs 5 to 50 times as much under a lock: a quarter of the repetitions makes a second of it there too.
share_of() { # program discipline
    case $1:$2 in
    copy-seq:mutex|copy-seq:rwlock|body-intcheck:mutex|body-intcheck:rwlock) echo $((share * 4)) ;;
    *) echo "$share" ;;
    esac
}
twin_of() { # program -> kind and repetitions of about half a second
    case $1 in
    compfib|intfib) echo arith 1200 ;;
    inner-prod) echo vectors 9000 ;;
    list-replace) echo lists 15000 ;;
    copy-seq) echo carve 15000 ;;
    body-intcheck) echo bodies 12000 ;;
    *) echo arith 1200 ;;
    esac
}

set -- $programs; n_programs=$#
set -- $disciplines; n_disciplines=$#
set -- $threads; n_threads=$#
total=$((rounds * n_programs * n_threads * (n_disciplines + 1)))
done_=0
bad=0
progress() {
    done_=$((done_ + 1))
    if [ -t 2 ]; then
        printf '\r\033[K[%d/%d] round %d of %d: %s, %s, %s' "$done_" "$total" "$round" "$rounds" "$1" "$2" "$3 threads" >&2
    else
        echo "[$done_/$total] round $round of $rounds: $1, $2, $3 threads" >&2
    fi
}
# Append the lines of a sample, fields separated by tabs; a run without a line is a failed one.
record() { # program discipline threads, sample lines on standard input
    awk -v OFS='\t' -v round="$round" -v p="$1" -v d="$2" -v n="$3" '
        $1 == "sample" || $1 == "cells" { $1 = $1; $2 = round OFS p; if ($1 == "sample") seen = 1; print }
        END { if (!seen) print "sample", round, p, d, n, 1, 0, 0, 0, 0, 0, 0, 0, "FAILED" }' >>"$data"
}
heap_of() { # program threads: the heap that Karakuri used, for the twin to use as much
    awk -v p="$1" -v n="$2" '$1 == "sample" && $3 == p && $4 == "gate" && $5 == n && $13 > 0 { h = $13 } END { printf "%.0f\n", h ? h : 8388608 }' "$data"
}

round=1
while [ "$round" -le "$rounds" ]; do
    for p in $programs; do
        for d in $disciplines; do
            for n in $threads; do
                progress "$p" "$d" "$n"
                timeout 900 "$karakuri" "--alloc=$d" "$here/bench.l" "(bench:sample \"$p\" \"$d\" $n $(share_of "$p" "$d"))" "(exit 0)" \
                    </dev/null 2>>"$log" | record "$p" "$d" "$n"
            done
        done
        set -- $(twin_of "$p")
        for n in $threads; do
            progress "$p" "C twin" "$n"
            "$out/twin" "$1" "$n" $(( ($2 + share - 1) / share )) "$BENCH_FLOATS" "$BENCH_ELEMENTS" "$(heap_of "$p" "$n")" 2>>"$log" | record "$p" twin "$n"
        done
    done
    round=$((round + 1))
done
[ -t 2 ] && printf '\r\033[K' >&2
bad=$(awk -F '\t' '$1 == "sample" && $14 != "ok"' "$data" | wc -l)

# ---- the report ----
{
    echo "Karakuri's benchmarks: $(date '+%Y-%m-%d %H:%M')"
    echo "Machine: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), $cores cores; $(uname -sr); load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    echo "Form: $form; $rounds rounds; threads $threads; 1/$share of the repetitions; floats $BENCH_FLOATS, elements $BENCH_ELEMENTS, pairs $BENCH_PAIRS, fib $BENCH_FIB"
    echo
    cat "$notes"
    [ "$bad" -gt 0 ] && echo "$bad samples FAILED or gave a wrong answer: see $data and $log"
    awk -f "$here/summary.awk" "$data" >"$out/summary.tsv"
    awk -f "$here/text.awk" "$out/summary.tsv"
} >"$out/report.txt"
"$here/figures.sh" "$out" "$threads"
"$here/html.sh" "$out"
cat "$out/report.txt"
echo "Written: $out/report.txt, $out/report.html"
[ "$bad" -eq 0 ]
