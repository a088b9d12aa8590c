/* make.c -- making cells and the common values. */
#include "lisp/vm.h"

struct kri_cell *kri_make(struct kri_worker *w, unsigned cls, uint32_t length, size_t words)
{
    struct kri_cell *c = kri_alloc(w, cls, length, words);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, words * 8);
    return c;
}

kr_value kri_cons_slow(struct kri_worker *w, kr_value car, kr_value cdr)
{
    /* kri_alloc_pair found the heap full even after a collection. */
    (void)car;
    (void)cdr;
    kri_error_memory(w, KRI_GRANULE);
}

static uint32_t checked_length(struct kri_worker *w, size_t n)
{
    if (n > UINT32_MAX - 8)
        kri_error(w, KRI_E_ARRAY_SIZE, kri_fixnum((intptr_t)n), "at most %ld elements", (long)(UINT32_MAX - 8));
    return (uint32_t)n;
}

kr_value kri_make_vector(struct kri_worker *w, size_t length)
{
    uint32_t n = checked_length(w, length);
    return kri_value_of(kri_make(w, KRI_CLASS_VECTOR, n, n));
}

kr_value kri_make_string(struct kri_worker *w, size_t bytes)
{
    uint32_t n = checked_length(w, bytes);
    return kri_value_of(kri_make(w, KRI_CLASS_STRING, n, bytes / 8 + 1));
}

kr_value kri_string_n(struct kri_worker *w, const char *text, size_t bytes)
{
    kr_value s = kri_make_string(w, bytes);
    if (bytes > 0) /* TEXT may be NULL then */
        memcpy(kri_string_of(s)->byte, text, bytes);
    return s;
}

kr_value kri_string(struct kri_worker *w, const char *text) { return kri_string_n(w, text, strlen(text)); }

kr_value kri_make_fvector(struct kri_worker *w, size_t length)
{
    uint32_t n = checked_length(w, length);
    return kri_value_of(kri_make(w, KRI_CLASS_FLOAT_VECTOR, n, n));
}

kr_value kri_make_fvector_raw(struct kri_worker *w, size_t length)
{
    uint32_t n = checked_length(w, length);
    struct kri_cell *c = kri_alloc_raw(w, KRI_CLASS_FLOAT_VECTOR, n, n);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, length * 8);
    return kri_value_of(c);
}

kr_value kri_make_ivector(struct kri_worker *w, size_t length)
{
    uint32_t n = checked_length(w, length);
    return kri_value_of(kri_make(w, KRI_CLASS_INTEGER_VECTOR, n, n));
}

kr_value kri_make_box(struct kri_worker *w, kr_value value)
{
    struct kri_cell *c = kri_alloc_pair(w, KRI_CLASS_BOX, value, KRI_NIL);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, KRI_GRANULE);
    return kri_value_of(c);
}

kr_value kri_list_from(struct kri_worker *w, const kr_value *from, size_t n)
{
    kr_value list = KRI_NIL;
    while (n > 0)
        list = kri_cons(w, from[--n], list);
    return list;
}

kr_value kri_list(struct kri_worker *w, int n, ...)
{
    kr_value v[32];
    va_list ap;
    va_start(ap, n);
    for (int i = 0; i < n && i < 32; i++)
        v[i] = va_arg(ap, kr_value);
    va_end(ap);
    return kri_list_from(w, v, (size_t)n);
}
