#!/bin/sh
# emulate.sh -- what a program of the cross build is a copy of, with the build's directory for @here@: it runs the FILE.elf beside it under
# qemu. `cc` is there the cross compiler, and the modules are those of the cross build.
export KARAKURI_LIB="${KARAKURI_LIB-@here@/lib}" KARAKURI_INCLUDE="${KARAKURI_INCLUDE-@here@/../..}" PATH="@here@/path:$PATH"
exec qemu-aarch64-static -L /usr/aarch64-linux-gnu -0 "$0" "$0.elf" "$@"
