/* package.h -- what package.c offers beyond vm.h: the operations behind the package builtins. */
#ifndef KRI_LISP_PACKAGE_H
#define KRI_LISP_PACKAGE_H

#include "lisp/vm.h"

/* The first packages and NIL's record, before any symbol exists. */
void kri_package_init_early(struct kr_vm *vm, struct kri_worker *w);

static inline bool kri_is_package(kr_value v) { return kri_has_class(v, KRI_CLASS_PACKAGE); }
/* The package that a designator names, or error NO_PACKAGE. */
kr_value kri_package_arg(struct kri_worker *w, kr_value designator);
/* Only PACKAGE's own table (or only its external symbols); not those it uses. */
kr_value kri_find_present(struct kri_worker *w, const char *name, size_t bytes, kr_value package, bool external_only, bool *found);
void kri_import(struct kri_worker *w, kr_value symbol, kr_value package);
bool kri_unintern(struct kri_worker *w, kr_value symbol, kr_value package);
void kri_unexport(struct kri_worker *w, kr_value symbol, kr_value package);
void kri_shadow(struct kri_worker *w, kr_value name, kr_value package);
void kri_use_package(struct kri_worker *w, kr_value used, kr_value user);
void kri_unuse_package(struct kri_worker *w, kr_value used, kr_value user);
/* NAMES: a list of strings, the first is the name. */
void kri_forget_package(struct kri_worker *w, kr_value package);
kr_value kri_make_package_list(struct kri_worker *w, kr_value names);
void kri_set_package_names(struct kri_worker *w, kr_value package, kr_value names);
/* A fresh list of PACKAGE's symbols. */
kr_value kri_package_symbols(struct kri_worker *w, kr_value package, bool external_only);
/* T's name as a fresh string: of strings, symbols. Or error NO_STRING. */
kr_value kri_name_string(struct kri_worker *w, kr_value designator);

#endif
