# packaging.mk -- what others build on: make amalgamation, install, uninstall, deb.

# Karakuri as one C file and its header.
AMALGAMATION := $B/amalgamation
amalgamation: $(AMALGAMATION)/karakuri.c $(AMALGAMATION)/karakuri.h
$(AMALGAMATION)/karakuri.c: tools/amalgamate.sh tools/amalgamate.awk $(SRC) $(wildcard runtime/*.h lisp/*.h lisp/*.def) $B/core.fasl $B/native_code.h LICENSE
	@mkdir -p $(@D)
	@echo "  AMALGAMATE $@"
	@sh tools/amalgamate.sh $B/core.fasl $B/native_code.h $(VERSION) $(SRC) >$@.new && mv $@.new $@
$(AMALGAMATION)/karakuri.h: lisp/karakuri.h
	@mkdir -p $(@D)
	@cp $< $@
