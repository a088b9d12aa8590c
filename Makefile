# Karakuri. make · make run · make bench · make test · make check · make soak · make install, deb, amalgamation (tools/packaging.mk)
# MODE=release|debug|asan|tsan|fuzz chooses the build; products lie in build/MODE, the executable also at bin/karakuri.

MODE    ?= release
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= gcc
B       := build/$(MODE)

PACKAGES := gcc libc6-dev libatomic-ops-dev libgmp-dev libreadline-dev libffcall-dev libyaml-dev pkg-config
TEST_PACKAGES := check cmake g++ groff-base libode-dev netbase procps spin tmux
BENCH_PACKAGES := gnuplot-nox

# MODE=aarch64 is a cross build, and what it links runs under qemu: each program is a script beside FILE.elf, so that tests
# know no difference. Headers and libraries of that architecture are unpacked under build/aarch64/sysroot. make check-aarch64 is all of it.
ifeq ($(MODE),aarch64)
CC      := aarch64-linux-gnu-gcc
CXX     := aarch64-linux-gnu-g++
AR      := aarch64-linux-gnu-ar
SYSROOT := $(abspath $B/sysroot)
TARGET  := -isystem $(SYSROOT)/usr/include -isystem $(SYSROOT)/usr/include/aarch64-linux-gnu \
           $(foreach d,$(SYSROOT)/usr/lib/aarch64-linux-gnu $(SYSROOT)/lib/aarch64-linux-gnu,-L$d -Wl,-rpath,$d) -Wl,--disable-new-dtags
ELF     := .elf
EMULATE = @install -m 755 $B/emulate $@ # the end of each recipe that links a program
endif
CROSS_PACKAGES   := gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
SYSROOT_PACKAGES := libgmp10 libgmp-dev libreadline8 libreadline-dev libtinfo6 check libsubunit0 libsubunit-dev libatomic-ops-dev \
                    libffcall-dev libffcall1b libyaml-dev libyaml-0-2 libode-dev libode8 libccd2 libccd-dev

CFLAGS_release := -O2 -g
CFLAGS_aarch64 := -O2 -g $(TARGET)
CFLAGS_debug   := -O0 -g -DKRI_DEBUG
CFLAGS_asan    := -O1 -g -DKRI_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -g -DKRI_DEBUG -fsanitize=thread
CFLAGS_fuzz    := -O1 -g -DKRI_DEBUG -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_stores  := -O1 -g -DKRI_DEBUG -DKRI_CHECK_STORES
# Of generated C: -Os is a sixth smaller than -O1 and takes as long; it needs no information for debuggers.
NATIVE_CFLAGS := -Os -g0 -w -fno-strict-aliasing -foptimize-sibling-calls
KR_CFLAGS := -std=gnu11 -Wall -Wextra -Wshadow -fPIC -fvisibility=hidden -ffp-contract=off -pthread -I. $(CFLAGS_$(MODE)) $(CFLAGS)
ifneq ($(findstring clang,$(CC)),)
KR_CFLAGS += -Wno-gnu-variable-sized-type-not-at-end # every object begins with a cell's header, which has no size of its own
endif
LIBS    := -lgmp -lm -ldl -pthread

SRC  := $(wildcard runtime/*.c lisp/*.c)
OBJ  := $(SRC:%.c=$B/%.o)
REPL := $(patsubst %.c,$B/%.o,$(wildcard lisp/repl/*.c))
VERSION := $(shell sed -n 's/.*KR_VERSION "\(.*\)"/\1/p' lisp/karakuri.h)
SOVERSION := $(shell sed -n 's/.*KR_ABI_VERSION \([0-9]*\)$$/\1/p' lisp/karakuri.h)

.PHONY: reproduce all run test check check-aarch64 soak bench bench-peers clean lint packages doc always
all: $(if $(ELF),$B/karakuri,bin/karakuri) $B/libkarakuri.so
# The module for foreign functions, where libffcall is there; all that links it (doc/foreign.md).
ifneq ($(wildcard /usr/include/avcall.h /usr/include/*/avcall.h /usr/local/include/avcall.h),)
FFCALL := $(if $(ELF),$B/)lib/ffcall.so
endif
# The module that lib/yaml.l calls, where libyaml is there; all that links it.
ifneq ($(wildcard /usr/include/yaml.h /usr/local/include/yaml.h),)
YAMLLIB := $(if $(ELF),$B/)lib/yamllib.so
endif
all: $(FFCALL) $(YAMLLIB)

# The Debian packages that are missing; nothing happens when all are there.
packages:
	@missing=""; for p in $(PACKAGES) $(WANTED); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "installing$$missing"; sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
	$$sudo apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -q --no-install-recommends $$missing >/dev/null; fi

# What a cross build needs before it compiles and runs anything: the other architecture's headers and libraries, the script that
# its programs are copies of, cc for programs that call a compiler, and modules with its own ffcall.so.
ifneq ($(ELF),)
READY := $B/emulate
$B/packages: always
	@mkdir -p $(@D)
	@echo '$(SYSROOT_PACKAGES)' | cmp -s - $@ || echo '$(SYSROOT_PACKAGES)' >$@
$(SYSROOT)/unpacked: $B/packages
	@echo "  unpacking $(SYSROOT_PACKAGES)"; rm -rf $(SYSROOT); sh tools/sysroot.sh arm64 $(SYSROOT) $(SYSROOT_PACKAGES) && touch $@
$(READY): tools/emulate.sh lib Makefile | $(SYSROOT)/unpacked
	@mkdir -p $B/lib $B/path
	@for f in $(filter-out %.so,$(wildcard lib/*)); do ln -sfn ../../../$$f $B/$$f; done
	@ln -sfn ../../bench $B/bench
	@printf '#!/bin/sh\nexec %s %s "$$@"\n' '$(CC)' '$(TARGET)' >$B/path/cc && chmod +x $B/path/cc
	@sed 's|@here@|$(abspath $B)|g' $< >$@ && chmod +x $@
endif

$B/%.o: %.c | $(READY)
	@mkdir -p $(@D); echo "  CC $<"
	@$(CC) $(KR_CFLAGS) -MMD -MP -c $< -o $@
-include $(OBJ:.o=.d) $(REPL:.o=.d) $B/lisp/boot/main.d

# Where the library lies is linked in: another PREFIX links anew.
$B/prefix: always
	@mkdir -p $(@D)
	@echo '$(PREFIX)' | cmp -s - $@ || echo '$(PREFIX)' >$@
$B/lisp/boot/image.o: $B/prefix

# One dispatch jump for each instruction, not one for all: the branch predictor learns the program's sequences.
ifneq ($(findstring clang,$(CC)),clang)
$B/lisp/vm.o: KR_CFLAGS += -fno-gcse -fno-crossjumping --param max-goto-duplication-insns=1000
endif

# The core library, in the order of loading, is compiled by an executable without it and linked in.
CORE := $(addprefix lib/core/,sequence.l macros.l setf.l class.l condition.l stream.l system.l module.l unix.l thread.l debug.l autoload.l document.l introspect.l toplevel.l)
AUTO := $(sort $(wildcard lib/auto/*.l))
# What stays bytecode: what waits for people, files and sockets, and what calls a function of the program's again and again, which costs
# more from native code. The rest becomes native code.
BYTECODE := $(addprefix lib/core/,module.l debug.l autoload.l document.l introspect.l toplevel.l) \
            $(filter-out $(addprefix lib/auto/,common.l coordinates.l loop.l structure.l),$(AUTO))
BOOT := $(if $(ELF),build/release,$B)/karakuri-boot
ifneq ($(ELF),)
$(BOOT): always
	@$(MAKE) -s MODE=release $@
endif
$B/karakuri-boot: $(OBJ) $B/lisp/boot/main.o
	@echo "  LD $@"
	@$(CC) $(KR_CFLAGS) -o $@ $^ $(LIBS)
# The C of their functions does not depend on the machine, and a file that stays the same is not written anew.
NATIVE_UNITS := 0 1 2 3 4 5 6 7
NATIVE_C     := $(NATIVE_UNITS:%=$B/native/core-%.c)
NATIVE_OBJ   := $(NATIVE_C:.c=.o)
BOOT_SOURCES := $(words $(NATIVE_UNITS)) $(foreach f,$(CORE) -- $(AUTO),$(if $(filter $f,$(BYTECODE)),-b) $f)
$B/core.fasl: $(BOOT) $(CORE) $(AUTO) Makefile
	@mkdir -p $B/native; echo "  BOOT $@"
	@$(BOOT) $@ $B/native/core $(BOOT_SOURCES)
$(NATIVE_C): $B/core.fasl ;
$(NATIVE_OBJ): %.o: %.c | $(READY)
	@echo "  CC $<"
	@$(CC) $(KR_CFLAGS) $(NATIVE_CFLAGS) -MMD -MP -c $< -o $@
-include $(NATIVE_OBJ:.o=.d)
# Compiled once more, and by an executable that has the core, the core must be what it is: nothing depends on the day, and nothing in it is
# used before it is defined.
$B/karakuri-again: lisp/boot/main.c $B/libkarakuri.a
	@$(CC) $(KR_CFLAGS) -DKRI_BOOT_LINKED -o $@ $^ $(LIBS)
reproduce: $(BOOT) $B/karakuri-again
	@rm -rf $B/reproduce; mkdir -p $B/reproduce/1 $B/reproduce/2
	@$(BOOT) $B/reproduce/1/core.fasl $B/reproduce/1/core $(BOOT_SOURCES)
	@$B/karakuri-again $B/reproduce/2/core.fasl $B/reproduce/2/core $(BOOT_SOURCES)
	@for i in 1 2; do cmp $B/core.fasl $B/reproduce/$$i/core.fasl || exit 1; \
	for c in $(notdir $(NATIVE_C)); do cmp $B/native/$$c $B/reproduce/$$i/$$c || exit 1; done; done; rm -rf $B/reproduce
# The headers that generated C includes are linked in too, as one.
$B/native_code.h: tools/flatten.awk $(wildcard runtime/*.h lisp/*.h lisp/*.def)
	@mkdir -p $(@D)
	@awk -f $< lisp/native_code.h >$@
$B/lisp/boot/image.o: lisp/boot/image.S $B/core.fasl $B/native_code.h | $(READY)
	@mkdir -p $(@D)
	$(CC) $(KR_CFLAGS) -DKRI_CORE='"$B/core.fasl"' -DKRI_HEADER='"$B/native_code.h"' -DKRI_LIBRARY='"$(PREFIX)/share/karakuri"' -c $< -o $@

$B/libkarakuri.a: $(OBJ) $(NATIVE_OBJ) $B/lisp/boot/image.o
	@rm -f $@; echo "  AR $@"
	@$(AR) rcs $@ $^
$B/libkarakuri.so: $(OBJ) $(NATIVE_OBJ) $B/lisp/boot/image.o
	@echo "  LD $@"
	@$(CC) $(KR_CFLAGS) -shared -Wl,-soname,libkarakuri.so.$(SOVERSION) -o $@ $^ $(LIBS)
$B/karakuri: $(REPL) $B/libkarakuri.a
	@echo "  LD $@"
	@$(CC) $(KR_CFLAGS) -o $@$(ELF) $^ -lreadline $(LIBS)
	$(EMULATE)
$(FFCALL): ffi/ffcall.c lisp/ffcall.h | $(READY)
	@echo "  LD $@"
	@$(CC) -std=gnu11 -Wall -Wextra -Wshadow -O2 -fPIC -fvisibility=hidden -I. $(TARGET) $(CFLAGS) -shared -o $@.new $< -lavcall -lcallback && mv $@.new $@
$(YAMLLIB): ffi/yamllib.c | $(READY)
	@echo "  LD $@"
	@$(CC) -std=gnu11 -Wall -Wextra -Wshadow -O2 -fPIC -fvisibility=hidden $(TARGET) $(CFLAGS) -shared -o $@.new $< -lyaml && mv $@.new $@
bin/karakuri: $B/karakuri
	@mkdir -p bin
	cp $< $@.new && mv $@.new $@

# The reference manual, from the docstrings: build/manual/index.html and build/manual/karakuri.info.
doc: bin/karakuri
	bin/karakuri --script doc/manual.l build/manual

run: bin/karakuri
	bin/karakuri

bench: WANTED := $(BENCH_PACKAGES)
bench: packages
	@$(MAKE) -j$$(nproc) all
	sh bench/run.sh $(if $(QUICK),--quick) $(BENCH)
bench-peers: packages
	@$(MAKE) -j$$(nproc) all
	sh bench/peers.sh

test: WANTED := $(TEST_PACKAGES)
test: packages
	@$(MAKE) -j$$(nproc) all
	sh test/run.sh $(MODE)
check: WANTED := $(TEST_PACKAGES) $(CROSS_PACKAGES) $(if $(shell command -v emacs),,emacs-nox) slime
check: packages
	@$(MAKE) -j$$(nproc) all
	AFTER_TEST=$(AFTER_TEST) sh test/check.sh
check-aarch64: WANTED := $(CROSS_PACKAGES)
check-aarch64: packages
	@$(MAKE) -j$$(nproc) MODE=aarch64 all
	sh test/run.sh aarch64
soak: WANTED := $(TEST_PACKAGES)
soak: packages
	@$(MAKE) -j$$(nproc) all
	sh test/soak.sh

# The tests' executables: one for each file.
$B/test/unit/%: test/unit/%.c $(wildcard test/unit/*.h) $B/libkarakuri.a
	@mkdir -p $(@D)
	$(CC) $(KR_CFLAGS) -o $@$(ELF) $(filter %.c %.a,$^) -lcheck -lsubunit $(LIBS)
	$(EMULATE)
$B/test/embed/%: test/embed/%.c test/embed/embed.h $B/libkarakuri.a
	@mkdir -p $(@D)
	$(CC) $(KR_CFLAGS) -Ilisp -o $@$(ELF) $(filter %.c %.a,$^) $(LIBS)
	$(EMULATE)

# The example programs, as a host outside the tree would compile them: C11, and warnings are errors.
$B/examples/%: doc/examples/%.c lisp/karakuri.h $B/libkarakuri.a
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Wshadow -Werror $(CFLAGS_$(MODE)) -Ilisp -o $@$(ELF) $< $B/libkarakuri.a $(LIBS)
	$(EMULATE)
# (No file there may be called as a C file is but .l: make would take it for one of lex.)
# The robot: several files, and the physics of libode-dev, which its package says is under the BSD licence or the LGPL, as one likes.
$B/examples/robot: $(wildcard doc/examples/robot/*.[ch]) lisp/karakuri.h $B/libkarakuri.a
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -DROBOT_LISP='"$(CURDIR)/doc/examples/robot"' -O1 -g -Wall -Wextra -Wshadow -Werror $(CFLAGS_$(MODE)) -Ilisp \
	  -o $@$(ELF) $(filter %.c %.a,$^) -lode $(LIBS)
	$(EMULATE)
$B/test/embed/%: test/embed/%.cc test/embed/embed.h $B/libkarakuri.a
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -Wall -Wextra -Wshadow -Wpedantic -pthread $(CFLAGS_$(MODE)) -Ilisp -o $@$(ELF) $(filter %.cc %.a,$^) $(LIBS)
	$(EMULATE)

# The target for libFuzzer: make CC=clang MODE=fuzz build/fuzz/test/fuzz/target
$B/test/fuzz/target: test/fuzz/target.c $B/libkarakuri.a
	@mkdir -p $(@D)
	$(CC) $(KR_CFLAGS) -fsanitize=fuzzer -Ilisp -o $@ $^ $(LIBS)

lint: $B/libkarakuri.a
	! grep -n '#include "lisp/' runtime/*.[ch]
	! nm -g --defined-only $< | awk 'NF == 3 && $$3 !~ /^kri?_/' | grep .

clean:
	rm -rf build bin lib/ffcall.so lib/yamllib.so

include tools/packaging.mk
