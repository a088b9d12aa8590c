/* native_module.h -- shared objects of native code, and the C compiler that makes them. */
#ifndef KRI_LISP_NATIVE_MODULE_H
#define KRI_LISP_NATIVE_MODULE_H

#include <limits.h>
#include "lisp/native.h"

/* The module in shared object PATH; raises if it is none or of another version. It stays loaded. */
const struct kri_native_module *kri_native_open(struct kri_worker *w, const char *path);
/* Open the module at PATH and run its forms. */
void kri_native_load(struct kri_worker *w, const char *path);
/* The module to load in the place of SOURCE, or NIL: one beside it, made from it as it is. Says so if there is one that is stale. */
kr_value kri_native_fresh(struct kri_worker *w, kr_value source);
/* Bytecode, C and machine code of native function FN on STREAM. */
void kri_native_disassemble(struct kri_worker *w, kr_value fn, kr_value stream);
/* The end of VM. */
void kri_native_finish(struct kr_vm *vm);

/* A directory for the C compiler's files, and the compilers that run; for kri_unwind_protect. */
struct kri_scratch {
    char directory[PATH_MAX], object[PATH_MAX + 32];
    int optimize;   /* -O */
    unsigned units; /* C files */
    struct kri_compilers *compilers;
    void (*progress)(struct kri_worker *w, struct kri_scratch *s, unsigned done); /* so many units are compiled; NULL: nobody wants to know */
};
void kri_scratch_begin(struct kri_worker *w, struct kri_scratch *s);
void kri_scratch_end(struct kri_worker *w, void *scratch);
/* The C files TEXTS (a vector) to s->object, by as many compilers at a time as there are processors; raises what a compiler says. */
void kri_scratch_build(struct kri_worker *w, struct kri_scratch *s, kr_value texts);

extern const struct kri_builtin *const kri_builtins_native[];

#endif
