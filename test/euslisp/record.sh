#!/bin/sh
# record.sh -- ask an installed EusLisp for the answers to expressions, one per line in test/euslisp/*.expr.
#
#   sh test/euslisp/record.sh [NAME.expr ...]
#
# Each NAME.expr gives NAME.tsv: expression, tab, the printed value or "ERR code text". An expression that kills the process
# is recorded as CRASH and the rest goes on in a fresh one.
here=$(cd "$(dirname "$0")" && pwd)
eus=${EUS:-eus}
cd "$here" || exit 1
[ $# -gt 0 ] || set -- *.expr

for file; do
    out=${file%.expr}.tsv
    total=$(wc -l <"$file")
    start=0
    : >"$out"
    while [ "$start" -lt "$total" ]; do
        cat >record.tmp.l <<EOF
(load "answer.l")
(lisp::install-error-handler #'answer-handler)
(setq *out* (open "record.tmp.out" :direction :output))
(answer-file "$file" *out* $start)
(close *out*)
(exit 0)
EOF
        timeout 60 "$eus" record.tmp.l </dev/null >record.tmp.log 2>&1
        # A last line without a newline is the expression that killed the process.
        if [ -s record.tmp.out ] && [ -n "$(tail -c 1 record.tmp.out)" ]; then
            echo CRASH >>record.tmp.out
            killer=$(tail -n 1 record.tmp.out | cut -f1)
            start=$(awk -v k="$killer" -v s="$start" 'NR > s && $0 == k { print NR; exit }' "$file")
        else
            start=$total
        fi
        cat record.tmp.out >>"$out"
        rm -f record.tmp.out
    done
    rm -f record.tmp.l record.tmp.log
    echo "$out: $(wc -l <"$out") answers"
done
