#!/bin/sh
# slime.sh [EXECUTABLE] -- Emacs with SLIME, in batch, at a server of the network prompt. Without Emacs or SLIME it says so and passes.
karakuri=$(realpath "${1:-bin/karakuri}") || exit 1
here=$(cd "$(dirname "$0")" && pwd)
command -v emacs >/dev/null || { echo "slime.sh: skipped, there is no Emacs (Debian: emacs-nox)"; exit 0; }
emacs --batch --eval "(require 'slime)" >/dev/null 2>&1 || { echo "slime.sh: skipped, Emacs has no SLIME (Debian: slime)"; exit 0; }
HOME=$(mktemp -d) || exit 1
export HOME
trap 'kill $server 2>/dev/null; rm -rf "$HOME"' EXIT
umask 077
echo "a secret for the test" >"$HOME/.slime-secret"
"$karakuri" --batch '(require :swank-server)' \
    '(with-open-file (out "'"$HOME"'/port" :direction :output) (print (swank:server-port (swank:start-server :port 0)) out))' \
    '(while t (unix:sleep 1))' >"$HOME/log" 2>&1 &
server=$!
for i in 1 2 3 4 5 6 7 8 9 10; do [ -s "$HOME/port" ] && break; sleep 0.5; done
KARAKURI_PORT=$(cat "$HOME/port") timeout 100 emacs --batch -l "$here/slime.el" 2>"$HOME/emacs"
code=$?
[ $code -eq 0 ] || { tail -n 30 "$HOME/emacs"; cat "$HOME/log"; }
exit $code
