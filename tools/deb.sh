#!/bin/sh
# deb.sh VERSION SOVERSION DIRECTORY -- Debian packages from what `make install` put into DIRECTORY/all, with PREFIX=/usr:
#   karakuri          the prompt (links readline)              libkarakuriN     the shared library
#   karakuri-ffi      ffcall.so, which alone links libffcall   libkarakuri-dev  header, static library, pkg-config, CMake, section 3
#   karakuri-yaml     YAML, with yamllib.so, which alone links libyaml
#   karakuri-modules  the modules that programs require        karakuri-doc     the manual and the guides
# The first five are of this machine's architecture. The .deb files are put into DIRECTORY.
set -eu
version=$1 so=$2 directory=$(cd "$3" && pwd)
cd "$(dirname "$0")/.."
license=$PWD/LICENSE
architecture=$(dpkg-architecture -q DEB_HOST_ARCH)
multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
lib=usr/lib/$multiarch
maintainer="${DEBFULLNAME:-The Karakuri authors} <${DEBEMAIL:-karakuri@users.noreply.github.com}>"
# The date of the sources, so that the same sources give the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
cd "$directory"

# Move FILE... of what was installed to PACKAGE.
take() { # package, files relative to the root
    package=$1
    shift
    for file; do
        mkdir -p "$package/$(dirname "$file")"
        mv "all/$file" "$package/$file"
    done
}
# The packages that the programs and libraries of PACKAGE need, by their versions' symbols.
needs() { # package, a binary in it
    mkdir -p debian
    printf 'Source: karakuri\n\nPackage: %s\nArchitecture: any\n' "$1" >debian/control
    dpkg-shlibdeps -O "$1/$2" 2>/dev/null | sed -n 's/^shlibs:Depends=//p'
}
strip_all() { # package
    find "$1" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} +
    find "$1" -type f -name '*.a' -exec strip --strip-debug {} +
}
# Close PACKAGE: its control file, changelog and copyright.
close() { # package, architecture, section, depends, more control lines, synopsis; the description on standard input
    package=$1
    doc=$package/usr/share/doc/$package
    mkdir -p "$doc" "$package/DEBIAN"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: Karakuri\n\nFiles: *\n'
        sed -n 's/^Copyright (c) /Copyright: /p' "$license"
        echo 'License: BSD-3-Clause'
        sed '1,/^Copyright/d; s/^$/./; s/^/ /' "$license" | sed '1{/^ \.$/d}'
    } >"$doc/copyright"
    printf 'karakuri (%s) unstable; urgency=medium\n\n  * Built from the sources of this version.\n\n -- %s  %s\n' "$version" "$maintainer" "$date" |
        gzip -9n >"$doc/changelog.gz"
    find "$package/usr/share/man" "$package/usr/share/info" -type f -exec gzip -9nf {} + 2>/dev/null || true
    {
        printf 'Package: %s\nSource: karakuri\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$package" "$version" "$2" "$maintainer"
        printf 'Installed-Size: %s\n' "$(du -ks --exclude=DEBIAN "$package" | cut -f 1)"
        [ -z "$4" ] || printf 'Depends: %s\n' "$4"
        [ -z "$5" ] || printf '%s\n' "$5"
        printf 'Section: %s\nPriority: optional\nDescription: %s\n' "$3" "$6"
        sed 's/^$/./; s/^/ /'
    } >"$package/DEBIAN/control"
    (cd "$package" && find usr -type f -exec md5sum {} + | sort -k 2 >DEBIAN/md5sums)
    find "$package" -type d -exec chmod 755 {} +
    find "$package" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zgzip --build "$package" . >/dev/null
}

take karakuri usr/bin/karakuri usr/share/man/man1/karakuri.1
take "libkarakuri$so" "$lib/libkarakuri.so.$so" "$lib/libkarakuri.so.$version"
take libkarakuri-dev usr/include "$lib/libkarakuri.a" "$lib/libkarakuri.so" "$lib/pkgconfig" "$lib/cmake" usr/share/man/man3
[ ! -e "all/$lib/karakuri/ffcall.so" ] || take karakuri-ffi "$lib/karakuri/ffcall.so" usr/share/karakuri/ffcall.so
[ ! -e "all/$lib/karakuri/yamllib.so" ] || take karakuri-yaml "$lib/karakuri/yamllib.so" usr/share/karakuri/yamllib.so usr/share/karakuri/yaml.l
take karakuri-modules usr/share/karakuri
mkdir -p karakuri-doc/usr/share/doc
mv all/usr/share/doc/karakuri karakuri-doc/usr/share/doc/karakuri-doc
take karakuri-doc usr/share/info
left=$(find all ! -type d)
[ -z "$left" ] || { printf 'deb: in no package:\n%s\n' "$left" >&2; exit 1; }
for package in karakuri "libkarakuri$so" libkarakuri-dev karakuri-ffi karakuri-yaml; do
    [ ! -d $package ] || strip_all $package
done

close karakuri "$architecture" lisp "karakuri-modules (= $version), $(needs karakuri usr/bin/karakuri)" \
    "Recommends: gcc, libc6-dev
Suggests: karakuri-ffi, karakuri-doc" "multithreaded Lisp for robots, a dialect of EusLisp" <<END
The prompt: a line editor, a debugger, a compiler to native code (with gcc).
It links GNU readline, and is as a whole under the GPL's terms; the library
libkarakuri$so is not.
END

mkdir -p "libkarakuri$so/DEBIAN"
echo "libkarakuri $so libkarakuri$so (>= $version)" >"libkarakuri$so/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"libkarakuri$so/DEBIAN/triggers"
close "libkarakuri$so" "$architecture" libs "$(needs "libkarakuri$so" "$lib/libkarakuri.so.$version")" \
    "Multi-Arch: same
Recommends: karakuri-modules (= $version)" "multithreaded Lisp for robots, shared library" <<END
Karakuri as a library for C and C++ programs: many threads in one Lisp
world, several worlds in one process, objects that never move.
END

close libkarakuri-dev "$architecture" libdevel "libkarakuri$so (= $version), libgmp-dev, libc6-dev" \
    "Multi-Arch: same
Suggests: pkg-config, cmake, karakuri-doc" "multithreaded Lisp for robots, for programs in C and C++" <<END
karakuri.h, the static library, and what pkg-config and CMake need to find
them; manual pages of the interface.
END

if [ -d karakuri-ffi ]; then
    mkdir -p karakuri-ffi/usr/share/lintian/overrides
    printf '# It calls libffcall, which calls libc.\nkarakuri-ffi: library-not-linked-against-libc [%s/karakuri/ffcall.so]\n' "$lib" \
        >karakuri-ffi/usr/share/lintian/overrides/karakuri-ffi
    close karakuri-ffi "$architecture" lisp "karakuri-modules (= $version), $(needs karakuri-ffi "$lib/karakuri/ffcall.so")" \
        "Multi-Arch: same" "multithreaded Lisp for robots, all foreign calls" <<END
The module that calls C functions of every type, and lets C call Lisp. It
links libffcall: a program that loads it is under the GPL's terms. Calls
with integers, pointers and doubles alone do without it.
END
fi

if [ -d karakuri-yaml ]; then
    close karakuri-yaml "$architecture" lisp "karakuri-modules (= $version), $(needs karakuri-yaml "$lib/karakuri/yamllib.so")" \
        "Multi-Arch: same" "multithreaded Lisp for robots, YAML" <<END
The module that reads and writes YAML, on libyaml.
END
fi

close karakuri-modules all lisp "" "Multi-Arch: foreign
Recommends: karakuri | libkarakuri$so" "multithreaded Lisp for robots, modules" <<END
The modules of Karakuri's library that programs load with require: JSON and
CSV, time, regular expressions, a server for SLIME, unit tests and others;
and the sources of what is compiled into the library.
END

close karakuri-doc all doc "" "Multi-Arch: foreign" "multithreaded Lisp for robots, manual and guides" <<END
The reference of functions, classes and variables, as HTML and info; guides
to embedding, foreign functions, threads and the prompt; example programs.
END

rm -rf all debian
find . -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
ls -1 ./*.deb
