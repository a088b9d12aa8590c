/* direct.h -- Note [direct calls]: tests, keys and predicates that are builtins.
 *
 * Functions on sequences that call back are Lisp (lib/core/sequence.l), so that no C frame waits for Lisp. A callback that is a builtin
 * is no Lisp; it is called from C here, on a frame of the Lisp stack that serves the whole loop. Between kri_direct_begin and
 * kri_direct_end nothing else is put on the Lisp stack. */
#ifndef KRI_LISP_DIRECT_H
#define KRI_LISP_DIRECT_H

#include "lisp/vm.h"

/* Can FN, a function or symbol, be called directly with ARGC arguments? Then *CODE is its code; NULL for FN nil, which stands for none. */
bool kri_direct(struct kri_worker *w, kr_value *fn, int argc, kri_builtin_fn *code);

struct kri_direct {
    kr_value *frame;
    kr_value *top;    /* what the context had before */
    kr_value callee;
    struct kri_segment *segment;
};
void kri_direct_begin(struct kri_worker *w, struct kri_direct *d);
void kri_direct_end(struct kri_worker *w, const struct kri_direct *d);
/* The value of builtin FN, whose code is CODE, for the ARGC arguments in d->frame. */
kr_value kri_direct_call(struct kri_worker *w, const struct kri_direct *d, kr_value fn, kri_builtin_fn code, int argc);

static inline kr_value kri_direct_call1(struct kri_worker *w, const struct kri_direct *d, kr_value fn, kri_builtin_fn code, kr_value a)
{
    d->frame[0] = a;
    return kri_direct_call(w, d, fn, code, 1);
}

#endif
