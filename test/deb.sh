#!/bin/sh
# deb.sh -- build the Debian packages and use them where nothing else of Karakuri is: in a root that debootstrap makes, or, without a
# mirror, in a copy-on-write view of this system. Ends with the line "N passed, N failed"; what could not be tried is told and
# counted before it.
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
work=$(mktemp -d) || exit 1
trap 'rm -rf --one-file-system "$work"' EXIT

check() { # what, command...
    what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        printf '%-60s ok\n' "$what"
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        tail -n 30 "$work/log"
    fi
}
skip() {
    skipped=$((skipped + 1))
    echo "SKIPPED $*"
}
finish() {
    [ "$skipped" -eq 0 ] || echo "$skipped skipped"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

make -s packages WANTED="dpkg-dev debootstrap lintian" || echo "not all of dpkg-dev, debootstrap, lintian could be installed"
check "make deb" make -s deb
[ "$failed" -eq 0 ] || finish
if command -v lintian >/dev/null; then
    check "lintian" sh -c 'lintian --allow-root build/deb/*.deb >"$0" 2>&1; cat "$0"; ! grep -q "^[EW]:" "$0"' "$work/lintian"
else
    skip "lintian: it is not installed"
fi

# ---- the root ----
[ "$(id -u)" = 0 ] || { skip "installation in a clean root: only root can make one"; finish; }
unshare --mount --propagation private true 2>/dev/null || { skip "installation in a clean root: no mount namespace is allowed here"; finish; }
root=$work/root
mkdir "$root"
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
if command -v debootstrap >/dev/null && timeout 300 debootstrap --variant=minbase --include=gcc,libc6-dev,pkgconf "${suite:-bookworm}" \
    "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1; then
    where="a fresh root"
    cp /etc/resolv.conf "$root/etc/" 2>/dev/null
    mounts="mount -t proc proc $root/proc"
else
    tail -n 3 "$work/debootstrap.log" 2>/dev/null
    skip "a fresh root: debootstrap is not there or could not make one; a copy-on-write view of this system serves"
    where="a view of this system"
    rm -rf --one-file-system "$root"
    mkdir "$work/changes" "$root"
    mounts="mount -t tmpfs tmpfs $work/changes && mkdir $work/changes/upper $work/changes/work &&
        mount -t overlay overlay -o lowerdir=/,upperdir=$work/changes/upper,workdir=$work/changes/work $root &&
        mount --rbind /dev $root/dev && mount -t proc proc $root/proc"
fi
# What happens in there: each line it prints is "ok WHAT", or "FAILED WHAT" and why.
mkdir "$work/in"
check "make amalgamation" make -s amalgamation
cp build/deb/*.deb doc/examples/hello.c doc/examples/hello.expected build/release/amalgamation/karakuri.[ch] "$work/in/"
cat >"$work/in/use.sh" <<'END'
cd /karakuri || exit 1
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset KARAKURI_LIB
check() {
    what=$1
    shift
    if "$@" >log 2>&1; then echo "ok $what"; else echo "FAILED $what"; tail -n 30 log; fi
}
prints() { # what it should print, command...
    expected=$1
    shift
    got=$("$@" 2>&1 </dev/null)
    [ "$got" = "$expected" ] || { printf '%s\ninstead of\n%s\n' "$got" "$expected"; false; }
}
check "apt-get install" sh -c 'apt-get install -y --no-install-recommends ./*.deb'
check "karakuri -e" prints 3 karakuri --batch -e '(+ 1 2)'
check "a module" prints 'nil
"[1,2]"' karakuri --batch -e '(progn (require :json) nil)' -e '(json:text (list 1 2))'
check "native code" prints 832040 karakuri --batch -e '(progn (defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (compile (quote fib)) (fib 30))'
check "manual pages" sh -c 'gzip -dc /usr/share/man/man1/karakuri.1.gz | grep -q SYNOPSIS && gzip -dc /usr/share/man/man3/libkarakuri.3.gz | grep -q kr_eval_string'
check "pkg-config" sh -c 'cc -std=c11 -Wall -Werror hello.c $(pkg-config --cflags --libs karakuri) -o shared && ./shared | diff hello.expected -'
check "it needs the shared library" sh -c 'ldd ./shared | grep -q "libkarakuri\.so\.[0-9]* => /"'
check "pkg-config, static library" sh -c 'cc -std=c11 -Wall -Werror hello.c $(pkg-config --cflags --static --libs karakuri | sed s/-lkarakuri/-l:libkarakuri.a/) -o static && ./static | diff hello.expected - && ! ldd ./static | grep karakuri'
check "removal" sh -c 'apt-get purge -y karakuri "karakuri-*" "libkarakuri*" && ! find /usr -xdev -name "*karakuri*" -not -path "/usr/share/doc/*" | grep -v "^/usr/local" | grep .'
# Of Karakuri there is nothing any more but one C file, and what it is compiled with.
cat >evaluate.c <<'C'
#include <stdio.h>
#include "karakuri.h"
int main(int argc, char **argv)
{
    kr_vm *vm;
    kr_context *ctx;
    kr_value v;
    char text[200];
    if (argc < 2 || kr_vm_new(NULL, &vm, &ctx) != KR_OK)
        return 2;
    kr_status s = kr_eval_string(ctx, argv[1], &v);
    (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
    puts(text);
    kr_vm_free(ctx);
    return s;
}
C
check "one C file" cc -DKR_BYTECODE_CORE evaluate.c karakuri.c -lgmp -lm -ldl -pthread -o evaluate
check "one C file, native code" prints '(832040 t)' ./evaluate '(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (compile (quote fib)) (list (fib 30) (compiled-function-p (function fib)))'
END
(cd "$work/in" && tar -cf ../in.tar .) # the view shows what is below $work as it was, or not at all
unshare --mount --propagation private sh -c "$mounts && exec chroot $root /bin/sh -c \
    'mkdir /karakuri && tar -xf - -C /karakuri && sh /karakuri/use.sh'" <"$work/in.tar" >"$work/use.log" 2>&1
while read -r line; do
    case $line in
    "ok "*) passed=$((passed + 1)); printf '%-60s ok\n' "$where: ${line#ok }" ;;
    "FAILED "*) failed=$((failed + 1)); echo "FAILED $where: ${line#FAILED }" ;;
    *) echo "  $line" ;;
    esac
done <"$work/use.log"
[ "$(grep -c '^ok \|^FAILED ' "$work/use.log")" -ge 11 ] || { failed=$((failed + 1)); echo "FAILED $where: not all was tried"; }
finish
