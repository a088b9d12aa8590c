/* exchange.c -- the memory of triple buffers and rings: each slot on cache lines of its own, touched before it is used. */
#include "runtime/exchange.h"

#include <stdlib.h>
#include <string.h>

static char *make_slots(size_t bytes, size_t n, size_t *stride)
{
    void *p;
    if (bytes == 0 || bytes > SIZE_MAX / 2 - KRI_LINE)
        return NULL;
    *stride = (bytes + KRI_LINE - 1) & ~(size_t)(KRI_LINE - 1);
    if (n > SIZE_MAX / 2 / *stride || posix_memalign(&p, KRI_LINE, *stride * n) != 0)
        return NULL;
    memset(p, 0, *stride * n);
    return p;
}

bool kri_triple_init(struct kri_triple *t, size_t bytes)
{
    memset(t, 0, sizeof *t);
    t->bytes = bytes;
    t->slots = make_slots(bytes, 3, &t->stride);
    t->back = 0;
    t->middle = 1;
    t->front = 2;
    return t->slots != NULL;
}

void kri_triple_finish(struct kri_triple *t) { free(t->slots); }

bool kri_ring_init(struct kri_ring *r, size_t bytes, size_t capacity)
{
    size_t n = 1;
    memset(r, 0, sizeof *r);
    while (n < capacity) {
        if (n > SIZE_MAX / 4)
            return false;
        n *= 2;
    }
    r->bytes = bytes;
    r->mask = n - 1;
    r->slots = make_slots(bytes, n, &r->stride);
    return r->slots != NULL;
}

void kri_ring_finish(struct kri_ring *r) { free(r->slots); }
