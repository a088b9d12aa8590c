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
    struct kri_worker *w;
    kr_value buffer;      /* a string: an error unwinds, so what grows is a Lisp object */
    size_t n;
    kr_value symbols;     /* vector of those written, in order */
    size_t symbol_count;
    bool module;          /* the image of a compiled file: identity within a form and sources are kept */
    bool native;          /* code objects that can be compiled to native code are to be, and get numbers */
    kr_value codes;       /* these, the last first */
    size_t code_count;
    kr_value shared;
    size_t shared_count;
};
/* BEFORE: the section of the core whose numbering of code objects this one goes on with, or NULL. */
void kri_fasl_begin(struct kri_worker *w, struct kri_fasl *f, bool module, const struct kri_fasl *before);
/* Append a compiled form, a function without arguments. */
void kri_fasl_form(struct kri_fasl *f, kr_value thunk);
/* Compile, run and append every form of STREAM. */
void kri_fasl_add(struct kri_fasl *f, kr_value stream);
/* The code objects in the order of their numbers: a vector. */
kr_value kri_fasl_codes(const struct kri_fasl *f, size_t *count);
void kri_fasl_end(struct kri_fasl *f);
/* End, and write what was compiled as section NAME of an image. False: it could not be written; errno says why. */
bool kri_fasl_write(struct kri_fasl *f, const char *name, FILE *file);
/* Run the forms of a file in memory. INSTANCE: of the module whose image it is, or NULL. */
struct kri_native_instance;
void kri_fasl_load(struct kri_worker *w, const unsigned char *bytes, size_t n, struct kri_native_instance *instance);

#endif
