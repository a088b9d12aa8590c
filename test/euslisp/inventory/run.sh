#!/bin/sh
# run.sh -- is every function, variable, class and method of EusLisp's core there, or its absence explained in doc/absent.md?
#
#   sh test/euslisp/inventory/run.sh [EXECUTABLE]
#
# Prints the counts for each package and what is missing. Exit code 1 if something is.
bin=${1:-bin/karakuri}
here=$(dirname "$0")
timeout 60 "$bin" "$here/inventory.l" "(exit (if (inventory-run \"$here\" \"$here/../../../doc/absent.md\") 0 1))" </dev/null
