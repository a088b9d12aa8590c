/* foreign.h -- what the files of foreign functions share: C types as Lisp names them, and values on their way between the two. */
#ifndef KRI_LISP_FOREIGN_H
#define KRI_LISP_FOREIGN_H

#include "lisp/ffcall.h"
#include "lisp/vm.h"

/* ---- foreign_type.c ---- */
/* A type's name: a keyword of the table there, or (:struct size align), (:record size), (:string size), (:pointer size). */
struct kri_c_type kri_c_type_of(struct kri_worker *w, kr_value name);
const char *kri_c_kind_name(unsigned kind);
/* V as a value of TYPE; raises. I is its index among the arguments of the running builtin, or negative. */
union kri_c_value kri_to_c(struct kri_worker *w, kr_value v, struct kri_c_type type, int i);
/* A KRI_C_ANY argument: the type that V suggests. */
struct kri_c_type kri_c_type_suggested(struct kri_worker *w, kr_value v, int i);
kr_value kri_from_c(struct kri_worker *w, struct kri_c_type type, const union kri_c_value *c);

/* ---- foreign_call.c ---- */
/* A foreign call in progress. A callback below it that fails leaves here what it failed with: the call raises that when it returns. */
struct kri_foreign_call {
    struct kri_foreign_call *outer;
    bool failed;
    kr_value condition; /* NIL: a throw, which the context remembers (kri_pass_on) */
};
const struct kri_ffcall *kri_ffcall_module(struct kri_worker *w); /* loads it, or raises */
void kri_foreign_objects_free(struct kr_vm *vm);

/* ---- foreign_callback.c ---- */
void kri_callbacks_free(struct kr_vm *vm);

#endif
