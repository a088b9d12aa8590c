#!/bin/sh
# amalgamate.sh CORE HEADER VERSION SOURCE... -- Karakuri as one C file, on standard output: the sources (amalgamate.awk), and as data the
# compiled core library CORE and the one header HEADER for generated C. What lisp/boot/image.S does in the other builds.
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
#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-variable-sized-type-not-at-end"
#pragma clang diagnostic ignored "-Wunused-function"
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
const struct kri_native_module *const kri_core_native = NULL; /* its functions are bytecode here */

/* ---- the headers for generated C ---- */
const char kri_native_header[] =
END
sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/' "$header"
cat <<'END'
;
const uint64_t kri_native_header_bytes = sizeof kri_native_header - 1;
#pragma GCC visibility pop
END
