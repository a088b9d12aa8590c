#!/bin/sh
# install.sh [MODE] -- install into a temporary root and use what is there as a host would: the programs of README.md and
# doc/embedding.md are compiled by pkg-config against the shared and the static library, and must print what the texts say;
# the library must find its modules from where it was put; the header must do for C11 and C++; only kr_ is exported. A CMake project finds
# the package; all goes away again.
mode=${1:-release}
cd "$(dirname "$0")/.." || exit 1
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
prefix=/usr/local
tree=$PWD
version=$(sed -n 's/^#define KR_VERSION "\(.*\)"/\1/p' lisp/karakuri.h)
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
soname=$(objdump -p "$at/lib/libkarakuri.so" | sed -n 's/^ *SONAME *//p')
[ "$soname" = "libkarakuri.so.$(sed -n 's/^#define KR_ABI_VERSION //p' lisp/karakuri.h)" ] || fail "the soname is $soname"
for file in bin/karakuri lib/libkarakuri.a lib/libkarakuri.so lib/$soname lib/pkgconfig/karakuri.pc lib/cmake/karakuri/karakuri-config.cmake \
    include/karakuri.h share/man/man1/karakuri.1 share/man/man3/libkarakuri.3 share/man/man3/kr_vm_new.3 share/man/man3/kr_eval_string.3 share/karakuri/core/macros.l share/karakuri/unittest.l \
    share/karakuri/json.l share/info/karakuri.info share/doc/karakuri/index.html share/doc/karakuri/tutorial.md; do
    [ -s "$at/$file" ] || fail "not installed: $file"
done

# ---- names ----
nm -D --defined-only "$at/lib/libkarakuri.so" | awk '$3 !~ /^kr_/ {print "exported:", $3; n++} END {exit n > 0}' || fail symbols of the shared library
make -s MODE="$mode" lint || fail lint
grep -v '^static' "$at/include/karakuri.h" | sed -n 's/^[a-z].*[ *]\(kr_[a-z_]*\)(.*/\1/p' | sort -u >"$root/declared"
nm -D --defined-only "$at/lib/libkarakuri.so" | awk '{print $3}' | sort -u >"$root/exported"
diff "$root/declared" "$root/exported" || fail declared and exported functions differ

# ---- manual pages: every function of the header has one, and they are well formed ----
while read -r name; do
    [ -s "$at/share/man/man3/$name.3" ] || fail "no manual page: $name"
    grep -q "$name" "$at/share/man/man3/libkarakuri.3" || fail "not in libkarakuri(3): $name"
done <"$root/declared"
if command -v groff >/dev/null; then
    for page in man1/karakuri.1 man3/libkarakuri.3; do
        groff -man -Tutf8 -ww -z "$at/share/man/$page" >"$root/groff.log" 2>&1
        [ ! -s "$root/groff.log" ] || { cat "$root/groff.log"; fail "$page"; }
    done
else
    echo "SKIPPED manual pages' form: groff is not installed"
fi

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

# ---- CMake: C and C++17, shared and static, from the build tree's side and where the whole was moved ----
cmake_project() { # where it is installed
    rm -rf "$root/cmake" && mkdir -p "$root/cmake/build"
    cp "$root/module.c" "$root/cmake/module.c"
    sed 's/kr_status s =/auto s =/; s/return s;/return static_cast<int>(s);/' "$root/module.c" >"$root/cmake/module.cc"
    sed "s/@VERSION@/$version/" >"$root/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(host C CXX)
set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 17)
find_package(karakuri @VERSION@ REQUIRED)
find_package(karakuri 99.0 QUIET)
if(karakuri_FOUND)
  message(FATAL_ERROR "99.0 is another interface")
endif()
find_package(karakuri REQUIRED)
add_executable(c_shared module.c)
target_link_libraries(c_shared karakuri::karakuri)
add_executable(c_static module.c)
target_link_libraries(c_static karakuri::static)
add_executable(cxx_shared module.cc)
target_link_libraries(cxx_shared karakuri::karakuri)
add_executable(cxx_static module.cc)
target_link_libraries(cxx_static karakuri::static)
CMAKE
    cmake -S "$root/cmake" -B "$root/cmake/build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_C_FLAGS="-Wall -Werror" -DCMAKE_CXX_FLAGS="-Wall -Werror" \
        >"$root/cmake.log" 2>&1 && cmake --build "$root/cmake/build" >>"$root/cmake.log" 2>&1 || { cat "$root/cmake.log"; fail "CMake, $1"; return; }
    for program in c_shared c_static cxx_shared cxx_static; do
        # A static host knows the modules where PREFIX says, which here is below the temporary root.
        case $program in *_static) modules=$1/share/karakuri ;; *) modules="" ;; esac
        KARAKURI_LIB=$modules "$root/cmake/build/$program" >"$root/cmake.log" 2>&1 || fail "CMake, $program: $(cat "$root/cmake.log")"
    done
    "$root/cmake/build/c_shared" | grep -qF "$1/share/karakuri" || fail "CMake, modules of the shared library"
}
unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
if command -v cmake >/dev/null; then
    cmake_project "$at"
    mkdir "$root/moved" && cp -a "$at" "$root/moved/here" && cmake_project "$root/moved/here"
    rm -rf "$root/moved"
else
    echo "SKIPPED CMake: it is not installed"
fi

# ---- and all goes away ----
cd "$tree" && make -s MODE="$mode" DESTDIR="$root" PREFIX=$prefix uninstall >"$root/make.log" 2>&1 || { cat "$root/make.log"; fail make uninstall; }
rm -f "$at/bin/module"
left=$(find "$at" ! -type d)
[ -z "$left" ] || fail "left by make uninstall: $left"
[ ! -d "$at/share/karakuri" ] || fail "make uninstall leaves $at/share/karakuri"

[ $failed -eq 0 ] && echo "$programs programs of the texts, shared and static: ok"
exit $failed
