# packaging.mk -- what others build on: make install, uninstall, deb, amalgamation.

.PHONY: install uninstall deb amalgamation
LIBDIR ?= $(PREFIX)/lib
AT     := $(DESTDIR)$(PREFIX)
LIBAT  := $(DESTDIR)$(LIBDIR)
TO_PREFIX = $(shell realpath -m --relative-to=$(LIBDIR) $(PREFIX))
FILL    = sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@version@|$(VERSION)|; s|@soversion@|$(SOVERSION)|; s|@libs@|$(LIBS)|' \
              -e 's|@to_prefix@|$(TO_PREFIX)|'

# ---- installing ----
install: all doc
	install -d $(AT)/bin $(AT)/include $(AT)/share/man/man1 $(AT)/share/man/man3 $(AT)/share/info $(AT)/share/doc/karakuri/examples
	install -d $(LIBAT)/pkgconfig $(LIBAT)/cmake/karakuri
	install -m 755 $B/karakuri$(ELF) $(AT)/bin/karakuri
	install -m 644 $B/libkarakuri.a $(LIBAT)/
	install -m 644 $B/libkarakuri.so $(LIBAT)/libkarakuri.so.$(VERSION)
	ln -sf libkarakuri.so.$(VERSION) $(LIBAT)/libkarakuri.so.$(SOVERSION)
	ln -sf libkarakuri.so.$(SOVERSION) $(LIBAT)/libkarakuri.so
	install -m 644 lisp/karakuri.h $(AT)/include/
	$(FILL) tools/karakuri.pc.in >$(LIBAT)/pkgconfig/karakuri.pc
	$(FILL) tools/karakuri-config.cmake.in >$(LIBAT)/cmake/karakuri/karakuri-config.cmake
	$(FILL) tools/karakuri-config-version.cmake.in >$(LIBAT)/cmake/karakuri/karakuri-config-version.cmake
	sed 's/Karakuri [0-9.]*"/Karakuri $(VERSION)"/' doc/karakuri.1 >$(AT)/share/man/man1/karakuri.1
	awk -f tools/man3.awk -v version=$(VERSION) lisp/karakuri.h >$(AT)/share/man/man3/libkarakuri.3
	for f in karakuri.h $$(sed -n 's/^[a-z].*[ *]\(kr_[a-z_0-9]*\)(.*/\1/p; s/^#define \(kr_[a-z_]*\)(.*/\1/p' lisp/karakuri.h); do \
	    echo '.so man3/libkarakuri.3' >$(AT)/share/man/man3/$$f.3; done
	install -m 644 build/manual/karakuri.info $(AT)/share/info/
	install -m 644 build/manual/*.html doc/*.md $(AT)/share/doc/karakuri/
	install -m 644 doc/examples/*.c doc/examples/*.expected $(AT)/share/doc/karakuri/examples/
	cd lib && find . -name '*.l' -exec install -D -m 644 {} $(AT)/share/karakuri/{} \;
	cd bench && find . -name '*.l' -not -path './peers/*' -exec install -D -m 644 {} $(AT)/share/karakuri/bench/{} \;
	$(if $(FFCALL),install -D -m 644 $(FFCALL) $(LIBAT)/karakuri/ffcall.so)
	$(if $(FFCALL),ln -sf $$(realpath -m --relative-to=$(PREFIX)/share/karakuri $(LIBDIR)/karakuri/ffcall.so) $(AT)/share/karakuri/ffcall.so)
	$(if $(YAMLLIB),install -D -m 644 $(YAMLLIB) $(LIBAT)/karakuri/yamllib.so)
	$(if $(YAMLLIB),ln -sf $$(realpath -m --relative-to=$(PREFIX)/share/karakuri $(LIBDIR)/karakuri/yamllib.so) $(AT)/share/karakuri/yamllib.so)
	$(if $(DESTDIR),,-[ $$(id -u) != 0 ] || ldconfig)

# What install would put there goes, and directories that are Karakuri's own.
uninstall:
	@rm -rf $B/uninstall
	@$(MAKE) -s install DESTDIR=$(abspath $B)/uninstall
	cd $B/uninstall && find . ! -type d | while read -r f; do rm -f "$(DESTDIR)/$$f"; done
	cd $B/uninstall && find . -depth -type d -path '*/karakuri*' | while read -r d; do rmdir "$(DESTDIR)/$$d" 2>/dev/null || true; done
	@rm -rf $B/uninstall

# ---- Debian packages, in build/deb ----
deb:
	@rm -rf build/deb
	@$(MAKE) -s MODE=release PREFIX=/usr LIBDIR=/usr/lib/$$(dpkg-architecture -q DEB_HOST_MULTIARCH) DESTDIR=$(CURDIR)/build/deb/all install
	sh tools/deb.sh $(VERSION) $(SOVERSION) build/deb

# ---- Karakuri as one C file and its header ----
AMALGAMATION := $B/amalgamation
amalgamation: $(AMALGAMATION)/karakuri.c $(AMALGAMATION)/karakuri.h
$(AMALGAMATION)/karakuri.c: tools/amalgamate.sh tools/amalgamate.awk $(SRC) $(wildcard runtime/*.h lisp/*.h lisp/*.def) $B/core.fasl $(NATIVE_C) $B/native_code.h LICENSE
	@mkdir -p $(@D); echo "  AMALGAMATE $@"
	@sh tools/amalgamate.sh $B/core.fasl $B/native_code.h $(VERSION) $(SRC) -- $(NATIVE_C) >$@.new && mv $@.new $@
$(AMALGAMATION)/karakuri.h: lisp/karakuri.h
	@mkdir -p $(@D)
	@cp $< $@
