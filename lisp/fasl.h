/* fasl.h -- compiled forms as bytes (fasl.c). */
#ifndef KRI_LISP_FASL_H
#define KRI_LISP_FASL_H

#include <stdio.h>
#include "lisp/vm.h"

/* What stands before each part of the image: the core, and the modules. */
struct kri_section {
    char name[24];
    uint64_t length; /* of what follows, a multiple of eight */
};

/* A file being made. Kept on a C stack, where the collector sees its values. */
struct kri_fasl {
    kr_value buffer;
    size_t n;
    kr_value symbols;
    size_t symbol_count;
};
kr_value kri_fasl_begin(struct kri_worker *w, struct kri_fasl *f);
/* Compile, run and append every form of STREAM. */
void kri_fasl_add(struct kri_worker *w, struct kri_fasl *f, kr_value stream);
/* Write what was compiled as section NAME of an image. False: it could not be written; errno says why. */
bool kri_fasl_write(struct kri_worker *w, struct kri_fasl *f, const char *name, FILE *file);
/* Run the forms of a file in memory. */
void kri_fasl_load(struct kri_worker *w, const unsigned char *bytes, size_t n);

#endif
