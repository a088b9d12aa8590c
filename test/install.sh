#!/bin/sh
# install.sh [MODE] -- install into a temporary root and use what is there as a host would: the programs of README.md and
# doc/embedding.md are compiled by pkg-config against the shared and the static library, and must print what the texts say;
# the library must find its modules from where it was put; the header must do for C11 and C++; only kr_ is exported.
mode=${1:-release}
cd "$(dirname "$0")/.." || exit 1
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
prefix=/usr/local
at=$root$prefix
failed=0

fail() {
    echo "FAILED $*"
    failed=1
}

make -s MODE="$mode" DESTDIR="$root" PREFIX=$prefix install >"$root/make.log" 2>&1 || {
    cat "$root/make.log"
    fail make install
    exit 1
}
for file in bin/karakuri lib/libkarakuri.a lib/libkarakuri.so lib/libkarakuri.so.0 lib/pkgconfig/karakuri.pc include/karakuri.h \
    share/man/man1/karakuri.1 share/karakuri/core/macros.l share/karakuri/unittest.l \
    share/karakuri/json.l share/info/karakuri.info share/doc/karakuri/index.html share/doc/karakuri/tutorial.md; do
    [ -s "$at/$file" ] || fail "not installed: $file"
done

# ---- names ----
nm -D --defined-only "$at/lib/libkarakuri.so" | awk '$3 !~ /^kr_/ {print "exported:", $3; n++} END {exit n > 0}' || fail symbols of the shared library
make -s MODE="$mode" lint || fail lint
grep -v '^static' "$at/include/karakuri.h" | sed -n 's/^[a-z].*[ *]\(kr_[a-z_]*\)(.*/\1/p' | sort -u >"$root/declared"
nm -D --defined-only "$at/lib/libkarakuri.so" | awk '{print $3}' | sort -u >"$root/exported"
diff "$root/declared" "$root/exported" || fail declared and exported functions differ

# ---- the header ----
echo '#include "karakuri.h"
static kr_value f(kr_context *ctx, int argc, kr_value *argv, void *user) { (void)user; return argc > 0 ? argv[0] : kr_boolean(ctx, false); }
int main(void) { kr_function g = f; return g == nullptr || kr_abi_version() != KR_ABI_VERSION; }' >"$root/header.cc"
sed 's/nullptr/(kr_function)0/' "$root/header.cc" >"$root/header.c"
for compiler in "gcc -std=c11" "clang -std=c11" "g++ -std=c++17" "clang++ -std=c++17"; do
    command -v "${compiler%% *}" >/dev/null || continue
    case $compiler in *++*) source=header.cc ;; *) source=header.c ;; esac
    $compiler -Wall -Wextra -Wpedantic -Werror -I"$at/include" -fsyntax-only "$root/$source" || fail "$compiler"
done

# ---- programs ----
export PKG_CONFIG_PATH="$at/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
cflags=$(pkg-config --cflags karakuri) && libs=$(pkg-config --libs karakuri) && static=$(pkg-config --static --libs karakuri) || fail pkg-config

# The programs of FILE, each an indented block with a main, go to DIRECTORY/NAME.c; what follows "Output:", or a line that runs the
# program, to NAME.out. The name is in the first line's comment, or else "program".
extract() { # file, directory
    mkdir -p "$2"
    awk -v to="$2" '
        function finish() {
            if (block ~ /int main\(void\)/) {
                name = "program"
                if (match(block, /^\/\* [a-z_0-9]*\.c --/)) name = substr(block, 4, RLENGTH - 8)
                printf "%s", block >(to "/" name ".c"); close(to "/" name ".c")
            } else if (name != "" && (expected || block ~ /^\$ cc /)) {
                sub(/^\$ cc [^\n]*\n/, "", block)
                printf "%s", block >(to "/" name ".out"); close(to "/" name ".out")
                name = ""
            }
            block = ""; expected = 0
        }
        /^    / { block = block pending substr($0, 5) "\n"; pending = ""; next }
        /^$/ { if (block != "") pending = pending "\n"; if (block ~ /int main\(void\)/ && block ~ /\n}\n$/) { finish(); pending = "" } next }
        { if (block != "") finish(); pending = ""; if ($0 ~ /^Output:/) expected = 1 }
        END { if (block != "") finish() }' "$1"
}
extract README.md "$root/readme"
extract doc/embedding.md "$root/embedding"
programs=0
for source in "$root"/readme/*.c "$root"/embedding/*.c; do
    program=${source%.c} name=${source#"$root/"}
    [ -e "$program.out" ] || { fail "$name: its output is missing in the text"; continue; }
    # shellcheck disable=SC2086
    cc -O1 -D_GNU_SOURCE -std=c11 -Wall $cflags "$source" -o "$program.shared" $libs -pthread || { fail "$name, shared"; continue; }
    # shellcheck disable=SC2086
    cc -O1 -D_GNU_SOURCE -std=c11 -Wall $cflags "$source" -o "$program.static" $(echo "$static" | sed 's/-lkarakuri/-l:libkarakuri.a/') ||
        { fail "$name, static"; continue; }
    LD_LIBRARY_PATH="$at/lib" timeout 60 "$program.shared" >"$program.shared.log" 2>&1 || fail "$name, shared: exit code $?"
    timeout 60 "$program.static" >"$program.static.log" 2>&1 || fail "$name, static: exit code $?"
    for log in "$program.shared.log" "$program.static.log"; do
        diff "$program.out" "$log" || fail "$name: it prints something else than the text says"
    done
    programs=$((programs + 1))
done
[ "$programs" -ge 5 ] || fail "only $programs programs found in the texts"

# ---- the library's modules, from where it was put ----
cat >"$root/module.c" <<'C'
#include <stdio.h>
#include "karakuri.h"
int main(void)
{
    kr_vm *vm; kr_context *ctx; kr_value v; char text[500];
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK) return 1;
    kr_status s = kr_eval_string(ctx, "(require :unittest) *load-path*", &v);
    (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
    puts(text);
    kr_vm_free(ctx);
    return s;
}
C
unset KARAKURI_LIB
# shellcheck disable=SC2086
cc $cflags "$root/module.c" -o "$root/module" $libs && cd / && LD_LIBRARY_PATH="$at/lib" "$root/module" | grep -qF "$at/share/karakuri" || fail modules, shared
# shellcheck disable=SC2086
cc $cflags "$root/module.c" -o "$at/bin/module" $(echo "$static" | sed 's/-lkarakuri/-l:libkarakuri.a/') && "$at/bin/module" | grep -qF "$at/share/karakuri" ||
    fail modules, static
"$at/bin/karakuri" -e '(require :unittest)' </dev/null >/dev/null 2>&1 || fail modules, installed executable

[ $failed -eq 0 ] && echo "$programs programs of the texts, shared and static: ok"
exit $failed
