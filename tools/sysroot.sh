#!/bin/sh
# sysroot.sh ARCHITECTURE DIRECTORY PACKAGE... -- unpack Debian packages of another architecture into DIRECTORY, for a cross compiler to
# read. The system's package database is left alone: the lists and the archives are kept in DIRECTORY too, and nobody need be root.
set -eu
architecture=$1 root=$2
shift 2
mkdir -p "$root/apt/state/lists/partial" "$root/apt/cache/archives/partial" "$root/deb"
root=$(cd "$root" && pwd)
: >"$root/apt/status"
get() {
    apt-get -q -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o Dir::State="$root/apt/state" \
        -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User= "$@"
}
get update >"$root/log"
(cd "$root/deb" && get download "$@" >>"$root/log") || { tail -n 5 "$root/log" >&2; exit 1; }
for package in "$root"/deb/*.deb; do
    dpkg -x "$package" "$root"
done
# A link to /lib/... means this tree's.
find "$root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$root$(readlink "$link")" "$link"
done
rm -rf "$root/apt" "$root/deb"
