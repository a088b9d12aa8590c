#!/bin/sh
# amalgamate.sh CORE HEADER VERSION SOURCE... -- GENERATED... -- Karakuri as one C file, on standard output: the sources, the C that the core
# library's functions become (amalgamate.awk), and as data the compiled core library CORE and the one header HEADER for generated C: what
# lisp/boot/image.S does in the other builds.
set -eu
core=$1 header=$2 version=$3
shift 3
here=$(dirname "$0")

cat <<END
/* karakuri.c -- Karakuri $version, all of it but the prompt, in one file; karakuri.h is the interface.
 *
 *     cc -O2 host.c karakuri.c -lgmp -lm -ldl -pthread -o host
 *
 * Made by \`make amalgamation\` from the sources, which are where changes belong.
 *
END
sed 's/^/ * /; s/ *$//' "$here/../LICENSE"
cat <<'END'
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
/* What a host asks to be warned of is meant for its own code. */
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Woverlength-strings"
/* One rounding for each operation, on every processor. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-variable-sized-type-not-at-end"
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif
#pragma GCC visibility push(hidden)
END
awk -f "$here/amalgamate.awk" "$@"
cat <<'END'

/* ---- the core library, compiled ---- */
_Alignas(8) const unsigned char kri_core_image[] =
END
od -An -v -to1 -w48 "$core" | sed 's/ /\\/g; s/.*/"&"/'
cat <<'END'
;
const uint64_t kri_core_image_bytes = sizeof kri_core_image - 1;

/* ---- the headers for generated C ---- */
const char kri_native_header[] =
END
sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/' "$header"
cat <<'END'
;
const uint64_t kri_native_header_bytes = sizeof kri_native_header - 1;

/* ---- where modules are sought if neither the host nor $KARAKURI_LIB tells ---- */
#ifndef KR_LIBRARY
#define KR_LIBRARY "/usr/local/share/karakuri"
#endif
const char kri_default_library[] = KR_LIBRARY;
#pragma GCC visibility pop
END
