# text.awk -- summary.tsv -> the tables of report.txt.
BEGIN { FS = "\t" }
function rule() { return "-----------------------------------------------------------------------------------------------------------------------" }
function head(d) {
    if (d == "twin") title = "C twin (what the machine gives; twin.c)"
    else title = "Allocation discipline: " d
    printf "\n%s\n%s\n", title, rule()
    printf "%-15s %7s %10s %9s %6s %9s %9s %9s %7s %9s %9s %8s %7s\n", "program", "threads", "elapsed ms", "speed-up", "twin", "of twin", "CPU/work", "coll. ms", "coll. %", "sweep ms", "MB/s", "collect.", "heap MB"
}
$1 == "run" {
    if (!($3 in tables)) { tables[$3] = ++n; name[n] = $3 }
    if ($5 == "FAILED") line = sprintf("%-15s %7s %10s", $2, $4, "FAILED")
    else line = sprintf("%-15s %7s %10s %9s %6s %9s %9s %9s %7.1f %9s %9s %8s %7s", $2, $4, $5, $6, $7, $8, $9, $10, $11 * 100, $16, $12, $13, $14)
    if (last[$3] != "" && last[$3] != $2) body[$3] = body[$3] "\n"
    last[$3] = $2
    body[$3] = body[$3] line "\n"
}
$1 == "cell" { cells[$2 SUBSEP $3] = cells[$2 SUBSEP $3] sprintf("%-15s %-8s %8s %14s %10.2f %10.2f\n", $2, $3, $4, $5, $6 * 100, $7 * 100); if (!(($2 SUBSEP $3) in seen)) { seen[$2 SUBSEP $3] = 1; order[++m] = $2 SUBSEP $3 } }
END {
    for (i = 1; i <= n; i++) { head(name[i]); printf "%s", body[name[i]] }
    print "\nspeed-up: n * t(1) / t(n), the work of each thread being constant. twin: the C twin's speed-up with as many threads in the same"
    print "round; of twin: speed-up as a share of it. CPU/work: processor time per unit of work relative to one thread: above 1, threads are in"
    print "each other's way, whatever the scheduler does. coll.: time in which the world stood for collections, its share of elapsed time;"
    print "sweep: time each thread spent sweeping while it allocated, beside the others."
    if (m) {
        printf "\nCells requested, by size\n%s\n%-15s %-8s %8s %14s %10s %10s\n", rule(), "program", "under", "words", "cells", "% of cells", "% of words"
        for (i = 1; i <= m; i++) printf "%s", cells[order[i]]
        print "The paper (geometric modelling): 3 words 48.4 % of requests and 30.6 % of memory, 6 words 47.8 and 60.5, 9 to 24 words 3.7 and 7.2."
    }
}
