#!/bin/sh
# load.sh [EXECUTABLE [LINES]] -- how long loading LINES lines (100,000) of ordinary source takes: the programs and libraries of this
# repository, over and over in packages of their own, so that nothing is redefined.
bin=${1:-bin/karakuri}
lines=${2:-100000}
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0 turn=0
while [ "$n" -lt "$lines" ]; do
    for file in lib/json.l lib/regex.l lib/csv.l lib/queue.l lib/argparse.l bench/bodies.l; do
        [ "$n" -lt "$lines" ] || break
        grep -v '^(provide' "$file" | sed "s/\"\\([A-Z0-9]*\\)\"))\$/\"\\1$turn\"))/; s/^(in-package \"\\([A-Z0-9]*\\)\")/(in-package \"\\1$turn\")/; s/(find-package \"\\([A-Z0-9]*\\)\")/(find-package \"\\1$turn\")/; s/\"USER[0-9]*\"/\"USER\"/" >>"$dir/source.l"
        n=$(wc -l <"$dir/source.l")
    done
    turn=$((turn + 1))
done
"$bin" --batch "(setq start (sys:nanotime))" "$dir/source.l" "(format t \"$n lines in ~,2f s~%\" (/ (- (sys:nanotime) start) 1e9))"
