#!/bin/sh
# library.sh [EXECUTABLE] -- bench/library.l in EusLisp ($EUS, by default eus) and in Karakuri, in turns, three times each: each
# function's best times and their ratio, the slowest first. Exit code 1 if one is slower here (by more than a tenth, which is
# noise), or if the answers differ.
bin=${1:-bin/karakuri}
eus=${EUS:-eus}
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
for _ in 1 2 3; do
    "$eus" bench/library.l '(exit 0)' </dev/null 2>/dev/null | awk 'NF == 3 && $2 + 0 == $2' >>"$dir/eus"
    "$bin" --batch bench/library.l | awk 'NF == 3 && $2 + 0 == $2' >>"$dir/karakuri"
done
awk 'FNR == NR { if (!($1 in e) || $2 < e[$1]) e[$1] = $2; answer[$1] = $3; next }
     !($1 in k) || $2 < k[$1] { k[$1] = $2 }
     $1 in answer && answer[$1] != $3 { if (!wrong[$1]++) others = others " " $1 }
     !($1 in answer) && !missing[$1]++ { print $1 " has no answer in EusLisp" >"/dev/stderr" }
     END {
         for (n in k) if (e[n] > 0) {
             printf "%-20s %9.2f %9.2f %6.2f\n", n, e[n], k[n], k[n] / e[n]
             if (k[n] > 1.1 * e[n] && k[n] - e[n] > 0.2) slower = slower " " n
         }
         if (others) print "different answers:" others >"/dev/stderr"
         if (slower) print "slower than EusLisp:" slower >"/dev/stderr"
         exit (others || slower) ? 1 : 0
     }' "$dir/eus" "$dir/karakuri" >"$dir/table"
code=$?
echo "                       EusLisp  Karakuri  ratio   (ms)"
sort -k4 -rn "$dir/table"
exit $code
