/* send.h -- each worker's method cache: (class index, selector) -> function.
 * Only its owner touches it. Entries are not roots: whatever removes a method bumps vm->method_epoch, and a cache of
 * another epoch is emptied before it is used. */
#ifndef KRI_LISP_SEND_H
#define KRI_LISP_SEND_H

#include "lisp/vm.h"

struct kri_method_entry {
    kr_value selector, function;
    uintptr_t cls;
};
enum { KRI_METHOD_CACHE = 1024 };
struct kri_method_cache {
    size_t epoch;
    uint64_t hits, misses;
    struct kri_method_entry entry[KRI_METHOD_CACHE];
};

static inline struct kri_method_entry *kri_method_probe(struct kri_worker *w, unsigned cls, kr_value selector)
{
    struct kri_method_cache *c = w->method_cache;
    return &c->entry[(selector.w / KRI_GRANULE * 3 + cls * 31u) & (KRI_METHOD_CACHE - 1)];
}
/* Relaxed: defmethod bumps the epoch before it returns; a thread that was told of the new method by any synchronising
 * means sees the new epoch. */
static inline bool kri_method_cache_valid(struct kri_worker *w)
{
    return ((struct kri_method_cache *)w->method_cache)->epoch == kri_load_relaxed(&w->vm->method_epoch);
}
/* The function for message SELECTOR to argv[0], with argv[1..*argc) the arguments; handles super, forwarding and :nomethod
 * (both may change argv and *argc). SUPER_OF: NIL, or the class whose superclass the search starts at. */
kr_value kri_send_slow(struct kri_worker *w, kr_value *argv, int *argc, kr_value selector, kr_value super_of);

#endif
