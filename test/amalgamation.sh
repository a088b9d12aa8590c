#!/bin/sh
# amalgamation.sh [MODE [full]] -- the one-file Karakuri in an empty directory: it compiles by one command without a warning, as C11, and a
# host made of nothing else evaluates, compiles a function to machine code, and exports only kr_. full: also optimized, by clang, as a
# shared library for a host in C++, and the Lisp tests with it.
mode=${1:-release} full=${2:-}
cd "$(dirname "$0")/.." || exit 1
tree=$PWD
make -s MODE="$mode" amalgamation || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cp "build/$mode/amalgamation/karakuri.c" "build/$mode/amalgamation/karakuri.h" "$work"
cd "$work" || exit 1
unset KARAKURI_LIB
failed=0
fail() {
    echo "FAILED $*"
    failed=1
}

cat >host.c <<'C'
#include <stdio.h>
#include "karakuri.h"

static kr_value twice(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    int64_t n = 0;
    (void)argc, (void)user;
    if (kr_to_integer(ctx, argv[0], &n) != KR_OK)
        kr_raise(ctx, "twice: an integer is expected");
    return kr_integer(ctx, 2 * n);
}

int main(void)
{
    static const char *const forms[] = {
        "(mapcar #'twice '(1 2 3))",
        "(twice 'a)",
        "(format nil \"~a ~,2f\" (expt 2 100) pi)",
        "(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))",
        "(compile 'fib)",
        "(list (fib 25) (compiled-function-p #'fib))",
        "(let ((threads (mapcar #'(lambda (n) (sys:thread #'fib n)) '(10 15 20)))) (mapcar #'sys:wait-thread threads))",
    };
    kr_vm *vm;
    kr_context *ctx;
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK || kr_define(ctx, "twice", "(n)", "Double N.", twice, NULL) != KR_OK)
        return 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        kr_value v;
        char text[200];
        (kr_eval_string(ctx, forms[i], &v) == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
        puts(text);
    }
    kr_vm_free(ctx);
    return 0;
}
C
cat >expected <<'END'
(2 4 6)
twice: an integer is expected in (twice 'a)
"1267650600228229401496703205376 3.14"
fib
fib
(75025 t)
(55 610 6765)
END
# The command, as doc/embedding.md gives it, and what the host prints.
try() { # name, command...
    name=$1
    shift
    "$@" >warnings 2>&1 || fail "$name: it does not compile"
    [ ! -s warnings ] || { head -n 20 warnings; fail "$name: warnings"; }
    timeout 120 ./host >got 2>&1 || fail "$name: exit code $?"
    diff expected got || fail "$name: it prints something else"
}
LIBS="-lgmp -lm -ldl -pthread"
# shellcheck disable=SC2086
try "gcc, C11" gcc -std=c11 -Wall -Wextra host.c karakuri.c $LIBS -o host
if [ -n "$full" ]; then
    # shellcheck disable=SC2086
    try "cc, optimized" cc -O2 -Wall -Wextra host.c karakuri.c $LIBS -o host
    # shellcheck disable=SC2086
    try "cc, core as bytecode" cc -O1 -DKR_BYTECODE_CORE -Wall -Wextra host.c karakuri.c $LIBS -o host
    # shellcheck disable=SC2086
    if command -v clang >/dev/null; then
        try "clang" clang -std=gnu11 -Wall -Wextra host.c karakuri.c $LIBS -o host
    else
        echo "SKIPPED clang: it is not installed"
    fi
    # shellcheck disable=SC2086
    gcc -O2 -g -shared -fPIC karakuri.c $LIBS -o libone.so || fail "shared"
    nm -D --defined-only libone.so | awk '$3 !~ /^kr_/ {print "exported:", $3; n++} END {exit n > 0}' || fail "symbols of the shared library"
    cp host.c host.cc
    try "C++" g++ -std=c++17 -Wall -Wextra host.cc -L. -lone "-Wl,-rpath,$work" -o host
    # shellcheck disable=SC2086
    gcc -O2 "$tree"/build/"$mode"/lisp/repl/*.o karakuri.c -lreadline $LIBS -o repl &&
        (cd "$tree" && KARAKURI_LIB=$tree/lib sh test/lisp/run.sh "$work/repl") >lisp.log 2>&1 || { tail -n 20 lisp.log; fail "Lisp tests"; }
fi
[ $failed -eq 0 ] && echo "one file: ok"
exit $failed
