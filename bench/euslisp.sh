#!/bin/sh
# euslisp.sh [EXECUTABLE] -- bench/euslisp.l in EusLisp ($EUS, by default eus) and in Karakuri; each function's best times
# and their ratio, the slowest first. Exit code 1 if sort, assoc, mapcar, append, string building or format is slower here
# (by more than a tenth, which is noise).
bin=${1:-bin/karakuri}
eus=${EUS:-eus}
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$eus" bench/euslisp.l '(exit 0)' </dev/null 2>/dev/null | awk 'NF == 2 && $2 + 0 == $2' >"$dir/eus"
"$bin" --batch bench/euslisp.l | awk 'NF == 2 && $2 + 0 == $2' >"$dir/karakuri"
awk 'FNR == NR { if (!($1 in e) || $2 < e[$1]) e[$1] = $2; next }
     !($1 in k) || $2 < k[$1] { k[$1] = $2 }
     END {
         for (n in k) if (e[n] > 0) {
             printf "%-20s %9.2f %9.2f %6.2f\n", n, e[n], k[n], k[n] / e[n]
             if (n ~ /^(sort|assoc|mapcar|append|string|concat|format|princ)/ && k[n] > 1.1 * e[n] && k[n] - e[n] > 0.2) slower = slower " " n
         }
         if (slower) { print "slower than EusLisp:" slower >"/dev/stderr"; exit 1 }
     }' "$dir/eus" "$dir/karakuri" >"$dir/table"
code=$?
echo "                       EusLisp  Karakuri  ratio   (ms)"
sort -k4 -rn "$dir/table"
exit $code
