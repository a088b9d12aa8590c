#!/bin/sh
# figures.sh DIR THREADS -- the paper's Figure 4 from DIR/summary.tsv: (a) gain under exclusive allocation, (b) gain of the programs that
# allocate with local buddy bases, (c) share of collection. Draws DIR/figure-4a.svg, -4b, -4c with gnuplot.
set -u
out=$1
threads=$2
command -v gnuplot >/dev/null 2>&1 || exit 0
plots=$out/plot
mkdir -p "$plots"
rm -f "$plots"/*.dat
awk -F '\t' -v dir="$plots" '$1 == "run" && $5 != "FAILED" { print $4, $6, $11 * 100 >(dir "/" $2 "." $3 ".dat") }' "$out/summary.tsv"
most=$(printf '%s\n' $threads | tail -1)

# One curve per line of standard input: "PROGRAM DISCIPLINE COLUMN TITLE".
draw() { # name title y-label y-range curves
    list=
    k=0
    while read -r program discipline column title; do
        file=$plots/$program.$discipline.dat
        k=$((k + 1))
        [ -s "$file" ] || continue
        list="$list${list:+, }'$file' using 1:$column with linespoints linewidth 2 linetype $k pointtype $((k + 3)) title '$title'"
    done
    [ -n "$list" ] || return 0
    gnuplot 2>>"$out/errors.log" <<GP
set terminal svg size 640,460 dynamic font 'sans,13' background '#ffffff'
set output '$out/$1.svg'
set title '$2' noenhanced
set xlabel 'threads'
set ylabel '$3'
set key outside below maxcols 3
set grid
set xtics ($(printf '%s\n' $threads | sed 's/.*/"&" &/' | tr '\n' ',' | sed 's/,$//'))
set xrange [0.8:$most.2]
$4
plot $list
GP
}
ideal="set yrange [0:*]; set style line 9 dashtype 2"
{
    for p in compfib intfib inner-prod list-replace copy-seq body-intcheck; do echo "$p mutex 2 $p"; done
} | draw figure-4a 'Figure 4 (a): gain with exclusive allocation (mutex)' 'gain n t(1) / t(n)' "$ideal"
{
    for p in copy-seq body-intcheck; do
        echo "$p mutex 2 $p, mutex"; echo "$p rwlock 2 $p, local bases and rwlock"; echo "$p gate 2 $p, gate"; echo "$p twin 2 $p, C twin"
    done
} | draw figure-4b 'Figure 4 (b): gain with local buddy bases' 'gain n t(1) / t(n)' "$ideal"
{
    for p in copy-seq body-intcheck; do
        for d in mutex rwlock gate; do echo "$p $d 3 $p, $d"; done
    done
} | draw figure-4c 'Figure 4 (c): share of collection in elapsed time' 'per cent' 'set yrange [0:100]'
