#!/bin/sh
# repl.sh [EXECUTABLE] -- the executable's command line, its input from a pipe, and its prompt on a terminal that tmux plays.
# Exits with 0 if all is as it should be. Needs no terminal itself.
karakuri=${1:-bin/karakuri}
cd "$(dirname "$0")/.." || exit 1
karakuri=$(realpath "$karakuri") || exit 1
dir=$(mktemp -d) || exit 1
sessions=0 socket=karakuri-test-$$
passed=0 failed=0
unset EUSRC KARAKURI_HISTORY KARAKURI_LIB
HOME=$dir INPUTRC=/dev/null TERM=xterm LANG=C.UTF-8
export HOME INPUTRC TERM LANG
t() { tmux -L "$socket" -f /dev/null "$@"; }
trap 't kill-server 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf 'FAILED %s\n' "$1"; shift; printf '    %s\n' "$@"; }
same() { # name, expected, found
    if [ "$2" = "$3" ]; then ok; else bad "$1" "expected: $2" "found:    $3"; fi
}
has() { # name, part, whole
    case $3 in *"$2"*) ok ;; *) bad "$1" "expected a part: $2" "found: $3" ;; esac
}
hasnt() { case $3 in *"$2"*) bad "$1" "unexpected: $2" "found: $3" ;; *) ok ;; esac; }

# ---- the command line

same version 0 "$("$karakuri" --version >"$dir/out"; echo $?)"
has version "karakuri " "$(cat "$dir/out")"
has help --batch "$("$karakuri" --help)"
same 'unknown option' 2 "$("$karakuri" --nonsense 2>/dev/null; echo $?)"
same '-e prints' '(1 2)' "$("$karakuri" --batch -e '(list 1 2)')"
same 'a form does not print' '' "$("$karakuri" --batch '(list 1 2)')"
printf '#!/usr/bin/karakuri\n(setq loaded 7)\n' >"$dir/a.l"
same 'file, then form' 7 "$("$karakuri" --batch "$dir/a.l" '(print loaded)')"
same 'after --' '("--" "x.l")' "$("$karakuri" --batch '(print (member "--" lisp::*eustop-argument* :test (function equal)))' -- x.l)"
out=$("$karakuri" --batch '(defun g (x) (car x))' '(g 3)' 2>&1)
same 'error in batch: exit code' 1 $?
has 'error in batch: message' 'list expected' "$out"
has 'error in batch: backtrace' '0: (g 3)' "$out"
same 'error in a file without terminal' 1 "$("$karakuri" '(car 1)' '(print 1)' </dev/null >/dev/null 2>&1; echo $?)"
same 'missing file' 1 "$("$karakuri" "$dir/none.l" </dev/null >/dev/null 2>&1; echo $?)"
same 'exit code' 3 "$("$karakuri" --batch '(exit 3)'; echo $?)"
printf '#!%s --script\n(print (member "one" lisp::*eustop-argument* :test (function equal)))\n' "$karakuri" >"$dir/script.l"
chmod +x "$dir/script.l"
same 'script with arguments' '("one" "--two" "three.l")' "$("$dir/script.l" one --two three.l)"
mkdir "$dir/lib" && printf '(print (quote from-the-library))\n' >"$dir/lib/some-module.l"
same KARAKURI_LIB from-the-library "$(KARAKURI_LIB=$dir/lib "$karakuri" --batch '(load "some-module")')"
same 'closed output' 0 "$("$karakuri" --batch '(print 1)' >/dev/null; echo $?)"

# ---- init files

printf '(print (quote home))\n' >"$dir/.eusrc"
mkdir "$dir/here" && printf '(print (quote here))\n' >"$dir/here/.eusrc" && printf '(print (quote given))\n' >"$dir/rc"
same 'init files' 'home here' "$(cd "$dir/here" && "$karakuri" </dev/null | tr '\n' ' ' | sed 's/ $//')"
same EUSRC 'given here' "$(cd "$dir/here" && EUSRC=$dir/rc "$karakuri" </dev/null | tr '\n' ' ' | sed 's/ $//')"
same 'no init files in batch' 1 "$(cd "$dir/here" && "$karakuri" --batch '(print 1)')"
same 'init file once' home "$(cd "$dir" && "$karakuri" </dev/null)"
rm "$dir/.eusrc"

# ---- input from a pipe

piped() { printf "$1" | "$karakuri" 2>"$dir/err" | tr '\n' '|'; }
same 'forms'            '3|(1 2)|' "$(piped '(+ 1 2)\n(list 1\n 2)\n')"
same 'several on a line' '1|2|' "$(piped '(car (list 1)) (car (list 2))\n')"
same 'a call'           '7|' "$(piped '+ 3 4\n')"
same 'a call, quoted'   '1|' "$(piped "car '(1 2)\n")"
same 'a call over lines' '(1 (2 3))|' "$(piped 'list 1 (list 2\n3)\n')"
same 'a variable'       '5|5|' "$(piped '(setq v 5)\nv\n')"
same 'a package'        '"SYSTEM"|' "$(piped 'system\n(package-name *package*)\n' | cut -d'|' -f2-)"
same 'a command'        'hello world|0|' "$(piped 'echo hello world\n')"
same 'no such command'  '32512|' "$(piped 'no-such-command\n')"
same 'no commands'      'nil|?|' "$(piped '(setq *try-unix* nil)\nno-such-command\n')"
same 'numbers, strings' '1.5|"a"|:k|-5|4|' "$(piped '1.5\n"a"\n:k\n-5\n1+ 3\n')"
same 'comma'            '3|' "$(piped ',(+ 1 2)\n')"
same 'comments'         '1|' "$(piped '; (print 2)\n(progn ; 3\n 1)\n)\n')"
same 'script line'      '1|' "$(piped '#!/bin/karakuri\n(progn 1)\n')"
same 'results'          '1|2|(2 1 nil (+ 1 1) (+ 0 1) (list * ** *** + ++ -))|' "$(piped '(+ 0 1)\n(+ 1 1)\n(list * ** *** + ++ -)\n')"
same 'a result alone'   '1|1|' "$(piped '(+ 0 1)\n*\n')"
same 'errors'           '2|' "$(piped '(car 1)\n(+ 1 1)\n')"
has  'errors: message'  'list expected' "$(cat "$dir/err")"
same 'the code after errors' 0 "$(printf '(car 1)\n' | "$karakuri" >/dev/null 2>&1; echo $?)"
same 'unreadable input' '3|' "$(piped '(no-such-package:a 1)\n(+ 1 2)\n')"
has  'unreadable input: message' 'no such package' "$(cat "$dir/err")"
same 'reading the same input' '"rest"|abc|1|' "$(piped '(progn (read-line) (print (read-line)) (read))\nrest\nabc\n(+ 0 1)\n')"
same 'stack overflow'   'f|1|2|' "$(piped '(defun f (x) (+ 1 (f x)))\n(f 1)\n(+ 0 1)\n(f 1)\n(+ 1 1)\n')"
has  'stack overflow: message' 'stack overflow' "$(cat "$dir/err")"
same 'heap exhaustion'  'nil|1|nil|2|' "$(printf '(setq l nil)\n(while t (setq l (cons 1 l)))\n(+ 0 1)\n(setq l nil)\n(+ 1 1)\n' | "$karakuri" --heap=32m 2>"$dir/err" | tr '\n' '|')"
has  'heap exhaustion: message' 'allocation' "$(cat "$dir/err")"
hasnt 'no colour in a pipe' "$(printf '\033')" "$(printf '(car 1)\n' | "$karakuri" 2>&1)"
same 'a worker does not read' '(nil t)|1|' "$(piped '(list nil (null (ignore-errors (sys:wait-thread (sys:thread (function car) 3)))))\n(+ 0 1)\n')"

# ---- a terminal

screen() { t capture-pane -p -J -S - -t k; }
# Wait until the screen's last lines, without blanks at the end, hold a text.
await() { # name, text
    n=0
    while [ $n -lt 200 ]; do
        case $(screen) in *"$2"*) ok; return 0 ;; esac
        sleep 0.05
        n=$((n + 1))
    done
    bad "$1" "the screen never showed: $2"
    screen | sed '/^$/d; s/^/    | /' | tail -n 25
    return 1
}
type() { t send-keys -t k -l -- "$1"; }
key() { t send-keys -t k "$@"; }
line() { type "$1"; key Enter; }
start() { # arguments of the executable
    t kill-server 2>/dev/null
    sessions=$((sessions + 1))
    socket=karakuri-test-$$-$sessions # a server that ends may still hold its socket
    t new-session -d -s k -x 100 -y 100 "cd $dir; $karakuri $*; echo exit code \$?; sleep 60"
}

start
await 'the first prompt' '1.karakuri$ '
line '(list 1 2)'
await 'a value' '(1 2)
2.karakuri$'
line '(defun f (a &optional b)'
n=0
while [ "$(t display-message -p -t k '#{cursor_x}')" != 2 ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n + 1)); done
line '(car a))'
await 'several lines, indented' '3.karakuri$'
has 'the indentation' '  (car a))' "$(screen)"
line '(f 3)'
await 'an error' 'list expected'
await 'its backtrace' '0: (f 3 nil)'
await 'the error level' '4.E1-karakuri$'
has 'in red' "$(printf '\033[1m\033[31m')karakuri: error:" "$(t capture-pane -p -e -J -S - -t k)"
line '(list a a)'
await 'a variable of the failed function' '(3 3)'
line 'a'
await 'alone on a line' '
3
6.E1-karakuri$'
line '(car 7)'
await 'a second level' '7.E2-karakuri$'
line 'system'
await 'the package in the prompt' '8.E2-SYSTEM:karakuri$'
line 'user'
await 'and back' '9.E2-karakuri$'
key C-d
await '^D leaves a level' '9.E1-karakuri$'
line '(reset)'
await 'reset leaves all' '10.karakuri$'
line '(progn (car 1))'
await 'a level again' '11.E1-karakuri$'
line '(car 2)'
await 'and one more' '12.E2-karakuri$'
line '(reset 1)'
await 'reset to a level' '13.E1-karakuri$'
line 'reset'
await 'reset without parentheses' '14.karakuri$'
line '(while t)'
sleep 0.3
key C-c
await '^C in an endless loop' '15.B1-karakuri$'
line '(list 40 2)'
await 'the loop goes on' '(40 2)'
line 'reset'
await 'and is left' '17.karakuri$'
line '(progn (unix:sleep 1) (quote slept))'
sleep 0.3
key C-c
await '^C in a builtin' '18.B1-karakuri$'
key C-d
await '^D goes on with what was interrupted' 'slept'
line '(unwind-protect (car 5) (print (quote cleanup)))'
await 'an error is not unwound' 'E1-karakuri$'
hasnt 'the cleanup waits' '
cleanup' "$(screen)"
line reset
await 'the cleanup runs' '
cleanup'
type '(list (quote dropped'
await 'text' '(list (quote dropped'
key C-c
await '^C drops the line' 'dropped^C'
type '(list 5 (list 6 7'
await 'an unfinished entry' '(list 6 7'
before=$(t display-message -p -t k '#{cursor_x}')
type ')'
n=0
while after=$(t display-message -p -t k '#{cursor_x}'); [ "$after" -ge "$before" ] && [ $n -lt 40 ]; do n=$((n + 1)); done
same 'the matching parenthesis' $((before - 9)) "$after"
key C-c
line '(list 6 7)'
await 'and reading goes on' '(6 7)'
line '(no-such-package:x)'
await 'unreadable input' 'no such package'
line '(list 8 9)'
await 'does not matter' '(8 9)'
line '(progn (defun deep (x) (+ 1 (deep x))) (deep 1))'
await 'stack overflow' 'stack overflow'
line '(list 10 11)'
await 'does not matter either' '(10 11)'
type '(with-output-to'
key Tab
await 'completion of a symbol' '(with-output-to-string'
key C-c
line '(defclass snail :super propertied-object :slots (shell-size))'
await 'a class' 'snail'
line '(defmethod snail (:withdraw () shell-size))'
line '(setq s (instantiate snail))'
await 'an object' '#<snail'
type '(send s :withd'
key Tab
await 'completion of a selector' '(send s :withdraw'
key C-c
type '(s . shell'
key Tab
await 'completion of a slot' '(s . shell-size'
key C-c
line '(progn (princ "no newline") 5)'
await 'the value on a line of its own' 'no newline
5'
line 'echo from $((40 + 2))'
await 'a command' 'from 42
0'
line '(quote history-one)'
await 'an entry' '
history-one'
key Up
key Enter
await 'history' 'history-one
'
line '(break "here: ")'
await 'break' 'here: '
key C-d
await 'break ends' '
nil'
key C-d
await 'the end' 'exit code 0'
has 'the history file' '(quote history-one)' "$(cat "$dir/.karakuri_history")"
same 'the history file is private' '-rw-------' "$(ls -l "$dir/.karakuri_history" | cut -c1-10)"

start
await 'another session' '1.karakuri$ '
key C-r
type 'history-o'
key Enter
await 'history of the last session' '
history-one'
t send-keys -t k -l "$(printf '(list\n  "in\n  a string"\n  12)')"
key Enter
await 'text of several lines' '("in'
line "(exit 4)"
await 'exit' 'exit code 4'

start --heap=32m "'(setq begun 12)'"
await 'a form on the command line' '1.karakuri$ '
line 'begun'
await 'was evaluated' '
12'
line '(setq l nil)'
line '(while t (setq l (cons 1 l)))'
await 'heap exhaustion' 'error: allocation'
line '(setq l (list 13))'
await 'memory is back' '(13)'
line '(length (make-list 100000))'
await 'and can be used' '100000'
line '(exit)'
await 'exit' 'exit code 0'

printf '(defun g (x) (car x))\n(g 9)\n' >"$dir/b.l"
start "$dir/b.l"
await 'an error in a file opens a level' 'E1-karakuri$'
line '(list x x)'
await 'with its variables' '(9 9)'
line 'reset'
await 'reset' '.karakuri$'
line '(list 1 4)'
await 'the prompt' '(1 4)'
key C-d
await 'the end' 'exit code 0'

start
await 'a session with errors' '1.karakuri$ '
line '(defun deep-car (x) (let ((y (+ x 1))) (list (quote result) (car y))))'
line '(defun caller (x) (list :got (deep-car x)))'
line '(caller 3)'
await 'the form' 'argument 1 of car is 4 in (car y)'
await 'the variable of a let' '0: (deep-car 3)   y=4'
await 'a value can be given' '1 :use-value   return a value in place of (car y)'
await 'the entry can be tried again' '2 :retry       evaluate (caller 3) again'
await 'or left' '3 :abort       return to level 0'
line ':local'
await 'the variables' '  x = 3
  y = 4'
line '(setq y (list (quote new)))'
await 'a variable is set' '(new)'
line '(list y x)'
await 'and has its value' '((new) 3)'
line ':up'
await 'the frame further out' '*  1: (caller 3)
      in (deep-car x)'
line ':down'
await 'and back' '*  0: (deep-car 3)'
line ':no-such-command'
await 'other keywords are values' '
:no-such-command'
line ':use-value (+ x 40)'
await 'the program goes on with the value' '(:got (result 43))'
line '(caller 4)'
await 'another error' 'E1-karakuri$'
line ':return 55'
await 'a frame returns a value' '(:got 55)'
line '(list (no-such-function 5))'
await 'an undefined function' ':return-value return a value from the call of no-such-function'
line ':restart 3 77'
await 'by number' '
(77)'
line '(+ 1 no-such-value)'
await 'an unbound variable' 'set no-such-value to a value and use it'
line ':store-value 6'
await 'is set' '
7'
line 'no-such-value'
await 'for good' '
6'
line '(lenght (list 1))'
await 'a misspelt name' 'did you mean length?'
line ':abort'
line '(car 5)'
await 'a level' 'E1-karakuri$'
line '(car 6)'
await 'two levels' 'E2-karakuri$'
line ':abort 0'
line '(list 1 2 3 (quote down))'
await 'abort to level 0' '(1 2 3 down)'
line '(progn (unix:sleep 1) (quote slept-on))'
sleep 0.3
key C-c
await 'interrupted' 'go on with what was interrupted'
line ':continue'
await 'and continued' '
slept-on'
line '(step (deep-car 1))'
await 'a step' '(deep-car 1) ? '
line ''
await 'into the function' '(let ((y (+ x 1)))'
line 'l'
await 'its variables' '  x = 1'
line 'q'
line '(setbreak caller)'
line '(caller 1)'
await 'a breakpoint' ';; caller called with (1)'
line ':continue'
await 'goes on' 'argument 1 of car is 2'
line ':abort'
line '(exit)'
await 'the end' 'exit code 0'

start
await 'a prompt' '1.karakuri$ '
kill -TERM "$(t list-panes -t k -F '#{pane_pid}' | xargs -I{} pgrep -P {} -f karakuri)"
await 'SIGTERM ends it' 'exit code 143'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
