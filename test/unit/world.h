/* world.h -- a heap with a few layouts, its roots, and the calling thread as its worker. */
#ifndef KARAKURI_TEST_WORLD_H
#define KARAKURI_TEST_WORLD_H

#include "test/unit/unit.h"

enum { RAW = 1, CONS = 2, VECTOR = 3, ALL = 4, WEAK = 5, ROOTS = 400, LIMIT = 64 << 20 };

struct world {
    struct kri_heap *heap;
    struct kri_worker *w;
    kr_value roots[ROOTS];
};

static inline void mark_roots(struct kri_heap *heap, struct kri_marker *m)
{
    struct world *t = kri_heap_user(heap);
    kri_mark_range(m, t->roots, t->roots + ROOTS);
}

static inline void open_world(struct world *t, struct kri_heap_config config)
{
    const struct kri_heap_hooks hooks = {.mark_roots = mark_roots};
    struct kri_layout *l;

    memset(t, 0, sizeof *t);
    if (!config.limit_bytes)
        config.limit_bytes = LIMIT;
    t->heap = kri_heap_new(&config, &hooks, t);
    ck_assert_ptr_nonnull(t->heap);
    l = kri_heap_layouts(t->heap);
    l[RAW].kind = KRI_LAYOUT_RAW;
    l[CONS] = (struct kri_layout){.kind = KRI_LAYOUT_SLOTS, .slots = 2};
    l[VECTOR].kind = KRI_LAYOUT_VECTOR;
    l[ALL].kind = KRI_LAYOUT_ALL;
    l[WEAK] = (struct kri_layout){.kind = KRI_LAYOUT_WEAK, .slots = 1};
    t->w = attach(t->heap);
}

static inline void check_heap(struct kri_worker *w)
{
    char message[200];
    ck_assert_msg(kri_heap_check(w, message, sizeof message), "%s", message);
}

static inline void close_world(struct world *t)
{
    check_heap(t->w);
    kri_worker_free(t->w);
    kri_heap_free(t->heap);
}

#endif
