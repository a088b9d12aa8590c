#!/bin/sh
# html.sh DIR -- DIR/report.html from DIR/report.txt, summary.tsv and the figures: one page, nothing to fetch.
set -u
out=$1
svg() { [ -s "$out/$1.svg" ] && { echo "<figure>"; sed -n '/<svg/,$p' "$out/$1.svg"; echo "</figure>"; }; }
{
    cat <<'PAGE'
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Karakuri: benchmarks</title>
<style>
body { font: 15px/1.45 sans-serif; max-width: 68em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } tr.first td { border-top: 2px solid #999 } .bad { color: #b00; font-weight: bold }
figure { display: inline-block; margin: 0 1em 1em 0; width: 31em; max-width: 100% } figure svg { width: 100%; height: auto }
.bar { display: inline-block; height: .7em; background: #69c; vertical-align: middle }
pre { background: #f6f6f6; padding: .7em; overflow-x: auto } p.small { color: #555; font-size: .9em }
</style></head><body><h1>Karakuri: the paper's benchmarks on this machine</h1>
PAGE
    echo "<pre>"
    sed -n '1,/^Form:/p' "$out/report.txt" | sed 's/&/\&amp;/g; s/</\&lt;/g'
    echo "</pre>"
    [ -s "$out/notes.txt" ] && sed 's/&/\&amp;/g; s/</\&lt;/g; s/.*/<p>&<\/p>/' "$out/notes.txt"
    grep 'samples FAILED' "$out/report.txt" | sed 's/.*/<p class="bad">&<\/p>/'
    echo "<div>"
    svg figure-4a; svg figure-4b; svg figure-4c
    echo "</div>"
    awk -F '\t' '
        function cell(x) { return "<td>" x "</td>" }
        $1 == "run" {
            if (!($3 in body)) name[++n] = $3
            row = last[$3] == $2 ? "<tr>" : "<tr class=first>"; last[$3] = $2
            if ($5 == "FAILED") row = row cell($2) cell($4) "<td class=bad>failed</td><td colspan=9></td></tr>"
            else row = row cell($2) cell($4) cell($5) cell($6 " <span class=bar style=\"width:" ($6 == "-" ? 0 : $6 * 2) "em\"></span>") cell($7) cell($8) cell($9) cell($10) cell(sprintf("%.1f", $11 * 100)) cell($16) cell($12) cell($14) "</tr>"
            body[$3] = body[$3] row "\n"
        }
        $1 == "cell" { cells = cells "<tr>" cell($2) cell($3) cell($4) cell($5) cell(sprintf("%.2f", $6 * 100)) cell(sprintf("%.2f", $7 * 100)) "</tr>\n" }
        END {
            for (i = 1; i <= n; i++) {
                print "<h2>" (name[i] == "twin" ? "C twin: what the machine gives" : "Allocation discipline: " name[i]) "</h2><table>"
                print "<tr><th>program<th>threads<th>elapsed ms<th>speed-up<th>twin<th>of twin<th>CPU per work<th>collection ms<th>%<th>sweep ms<th>MB/s<th>heap MB</tr>"
                print body[name[i]] "</table>"
            }
            print "<p class=small>Speed-up is n t(1) / t(n), the work of each thread being constant. The twin is a C program of the same memory behaviour with as many threads in the same round. CPU per work is processor time per unit of work relative to one thread.</p>"
            if (cells != "") print "<h2>Cells requested, by size</h2><table><tr><th>program<th>under<th>words<th>cells<th>% of cells<th>% of words</tr>\n" cells "</table>"
        }' "$out/summary.tsv"
    echo "</body></html>"
} >"$out/report.html"
