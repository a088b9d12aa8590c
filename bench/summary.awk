# summary.awk -- data.tsv -> one line per program, discipline and number of threads: medians over the rounds.
# Ratios are formed within a round, between samples taken beside each other, and then the median of them is taken.
BEGIN {
    FS = OFS = "\t"
    print "line", "program", "discipline", "threads", "ms", "speedup", "twin", "share", "cpu_ratio", "gc_ms", "gc_share", "mb_per_s", "collections", "heap_mb", "rounds", "sweep_ms"
}
function median(text,    a, n, i, j, x) {
    n = split(text, a, " ")
    if (n == 0) return ""
    for (i = 2; i <= n; i++) {
        x = a[i] + 0
        for (j = i - 1; j >= 1 && a[j] + 0 > x; j--) a[j + 1] = a[j]
        a[j + 1] = x
    }
    return n % 2 ? a[(n + 1) / 2] + 0 : (a[n / 2] + a[n / 2 + 1]) / 2
}
function number(x, format) { return x == "" ? "-" : sprintf(format, x) }
$1 == "sample" && $14 == "ok" {
    k = $2 SUBSEP $3 SUBSEP $4 SUBSEP $5
    time[k] = $7 / $6; cpu[k] = $8 / ($6 * $5)
    g = $3 SUBSEP $4 SUBSEP $5
    ms[g] = ms[g] " " $7 / 1e6; gc[g] = gc[g] " " $9 / 1e6; gcs[g] = gcs[g] " " ($7 > 0 ? $9 / $7 : 0)
    rate[g] = rate[g] " " ($7 > 0 ? $12 / $7 * 1e3 : 0); colls[g] = colls[g] " " $11; sweep[g] = sweep[g] " " $10 / 1e6 / $5; heap[g] = heap[g] " " $13 / 1048576
    if (!(g in seen)) { seen[g] = 1; order[++groups] = g }
    if ($2 + 0 > rounds) rounds = $2 + 0
}
$1 == "sample" && $14 != "ok" { failed[$3 SUBSEP $4 SUBSEP $5]++ }
$1 == "cells" {
    g = $3 SUBSEP $4
    if (!(g in cells)) { cells[g] = 1; cellorder[++cellgroups] = g }
    for (i = 6; i <= NF; i++) { split($i, c, ":"); count[g, c[1]] += c[2]; if (c[1] + 0 > top[g]) top[g] = c[1] + 0 }
}
END {
    for (i = 1; i <= groups; i++) {
        g = order[i]; split(g, f, SUBSEP); speed = twin = share = ratio = ""
        for (r = 1; r <= rounds; r++) {
            one = r SUBSEP f[1] SUBSEP f[2] SUBSEP 1; many = r SUBSEP g
            if (!(one in time) || !(many in time)) continue
            s = f[3] * time[one] / time[many]; speed = speed " " s
            if (cpu[one] > 0) ratio = ratio " " cpu[many] / cpu[one]
            tone = r SUBSEP f[1] SUBSEP "twin" SUBSEP 1; tmany = r SUBSEP f[1] SUBSEP "twin" SUBSEP f[3]
            if (!(tone in time) || !(tmany in time)) continue
            t = f[3] * time[tone] / time[tmany]; twin = twin " " t; share = share " " s / t
        }
        n = split(ms[g], unused, " ")
        print "run", f[1], f[2], f[3], sprintf("%.1f", median(ms[g])), number(median(speed), "%.2f"), number(median(twin), "%.2f"),
            number(median(share), "%.2f"), number(median(ratio), "%.2f"), sprintf("%.1f", median(gc[g])), sprintf("%.3f", median(gcs[g])),
            sprintf("%.1f", median(rate[g])), sprintf("%.0f", median(colls[g])), sprintf("%.1f", median(heap[g])), n (failed[g] ? "-" failed[g] : ""), sprintf("%.1f", median(sweep[g]))
    }
    for (g in failed) if (!(g in seen)) { split(g, f, SUBSEP); print "run", f[1], f[2], f[3], "FAILED", "-", "-", "-", "-", "-", "-", "-", "-", "-", "0", "-" }
    for (i = 1; i <= cellgroups; i++) {
        g = cellorder[i]; split(g, f, SUBSEP); requests = words = 0
        for (w = 3; w <= top[g]; w += 3) if ((g, w) in count) { requests += count[g, w]; words += count[g, w] * w }
        for (w = 3; w <= top[g]; w += 3)
            if ((g, w) in count && count[g, w] > 0)
                print "cell", f[1], f[2], w, count[g, w], sprintf("%.4f", count[g, w] / requests), sprintf("%.4f", count[g, w] * w / words)
    }
}
