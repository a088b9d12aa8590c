/* store.c -- stores of values into cells beyond the inline one, and the build that checks that none goes past them.
 *
 * Note [checked stores]. With -DKRI_CHECK_STORES a collection takes a copy of every live cell, its shadow, and every store
 * through this file writes the shadow too. The next collection compares: a value word that differs was written by a store
 * that bypassed kri_store. Stores into a cell that no collection has seen yet are initialising ones and not checked; nor are
 * integers in place of integers: locks and counters with atomic updates of their own, which no barrier cares for. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/heap_private.h"

#ifdef KRI_CHECK_STORES

/* Racing stores to one slot must reach cell and shadow in one order. Shared by all heaps of the process: leaf locks. */
static struct {
    _Alignas(64) pthread_mutex_t lock;
} slot_locks[64] = {[0 ... 63] = {PTHREAD_MUTEX_INITIALIZER}};

static pthread_mutex_t *lock_of(const kr_value *slot)
{
    return &slot_locks[((uintptr_t)slot >> 3) * 0x9e3779b97f4a7c15u >> 58].lock;
}

static size_t granule_of(const struct kri_cell *c)
{
    return (size_t)(kri_mark_byte(c) - (volatile unsigned char *)kri_chunk_of(c)->marks);
}

/* SLOT's copy, or NULL: OBJECT is not in a shadow yet. */
static uintptr_t *shadow_of(const struct kri_cell *object, const kr_value *slot)
{
    struct kri_chunk *c = kri_chunk_of(object);
    if (!c->seen || !c->seen[granule_of(object)])
        return NULL;
    return (uintptr_t *)(c->shadow + ((uintptr_t)slot - (uintptr_t)c));
}

static void check_inside(const struct kri_cell *object, const kr_value *slot)
{
    if ((uintptr_t)slot <= (uintptr_t)object || (uintptr_t)(slot + 1) > (uintptr_t)object + kri_cell_bytes(object)) {
        fprintf(stderr, "karakuri: a store to %p outside its object %p, class %u\n", (const void *)slot,
                (const void *)object, object->cls);
        abort();
    }
}

void kri_store_checked(struct kri_worker *w, struct kri_cell *object, kr_value *slot, kr_value v)
{
    uintptr_t *shadow;
    pthread_mutex_t *lock = lock_of(slot);

    (void)w;
    check_inside(object, slot);
    shadow = shadow_of(object, slot);
    pthread_mutex_lock(lock);
    kri_store_release((volatile kri_atomic *)&slot->w, v.w);
    if (shadow)
        *shadow = v.w;
    pthread_mutex_unlock(lock);
    kri_log(object);
}

static bool cas_checked(struct kri_cell *object, kr_value *slot, kr_value old, kr_value v)
{
    uintptr_t *shadow;
    pthread_mutex_t *lock = lock_of(slot);
    bool done;

    check_inside(object, slot);
    shadow = shadow_of(object, slot);
    pthread_mutex_lock(lock);
    done = kri_cas((volatile kri_atomic *)&slot->w, old.w, v.w);
    if (done && shadow)
        *shadow = v.w;
    pthread_mutex_unlock(lock);
    return done;
}

/* ---- taking and comparing shadows; world stopped ---- */

static size_t value_words(const struct kri_heap *heap, const struct kri_cell *c)
{
    const struct kri_layout *l = &heap->layouts[c->cls];
    switch ((enum kri_layout_kind)l->kind) {
    case KRI_LAYOUT_SLOTS:
    case KRI_LAYOUT_WEAK:
    case KRI_LAYOUT_WEAK_TABLE:
        return l->slots;
    case KRI_LAYOUT_VECTOR:
    case KRI_LAYOUT_WEAK_VECTOR:
        return c->length;
    case KRI_LAYOUT_ALL:
        return kri_cell_bytes(c) / KRI_WORD - 1;
    case KRI_LAYOUT_RAW:
        break;
    }
    return 0;
}

static void take_cell(struct kri_chunk *chunk, struct kri_cell *c)
{
    memcpy(chunk->shadow + ((uintptr_t)c - (uintptr_t)chunk), c, kri_cell_bytes(c));
}

static void take_chunk(struct kri_chunk *chunk)
{
    if (!chunk->shadow) {
        if (!chunk->touched)
            return;
        chunk->shadow = kri_system_map(chunk->mapped, 0);
        chunk->seen = kri_system_map(KRI_TREE_GRANULES, 0);
        if (!chunk->shadow || !chunk->seen) {
            fputs("karakuri: no memory for the shadows of checked stores\n", stderr);
            abort();
        }
    }
    for (size_t i = 0; i < KRI_TREE_GRANULES && (i == 0 || !chunk->object_bytes); i++) {
        chunk->seen[i] = chunk->marks[i] != 0;
        if (chunk->seen[i])
            take_cell(chunk, (struct kri_cell *)((char *)kri_chunk_tree(chunk) + i * KRI_GRANULE));
    }
}

void kri_shadow_take(struct kri_heap *heap)
{
    for (struct kri_chunk *c = heap->chunks; c; c = c->next)
        take_chunk(c);
    for (struct kri_chunk *c = heap->large; c; c = c->next)
        take_chunk(c);
}

void kri_shadow_take_permanent(struct kri_heap *heap)
{
    for (struct kri_chunk *c = heap->permanent; c; c = c->next)
        take_chunk(c);
    for (struct kri_chunk *c = heap->permanent_large; c; c = c->next)
        take_chunk(c);
}

static void verify_cell(struct kri_heap *heap, const struct kri_chunk *chunk, const struct kri_cell *c)
{
    const struct kri_cell *shadow = (const struct kri_cell *)(chunk->shadow + ((uintptr_t)c - (uintptr_t)chunk));
    size_t n = value_words(heap, c);

    if (c->cls != shadow->cls || c->buddy != shadow->buddy) {
        fprintf(stderr, "karakuri: H6: the cell %p changed from class %u, index %u to class %u, index %u\n",
                (const void *)c, shadow->cls, shadow->buddy, c->cls, c->buddy);
        abort();
    }
    for (size_t i = 0; i < n; i++)
        if (!kri_eq(c->slot[i], shadow->slot[i]) && !kri_both_fixnums(c->slot[i], shadow->slot[i])) {
            fprintf(stderr, "karakuri: a store went past kri_store: cell %p, class %u, word %zu: %#zx, should be %#zx\n",
                    (const void *)c, c->cls, i, (size_t)c->slot[i].w, (size_t)shadow->slot[i].w);
            abort();
        }
}

static void verify_chunk(struct kri_heap *heap, struct kri_chunk *chunk)
{
    if (!chunk->seen)
        return;
    for (size_t i = 0; i < KRI_TREE_GRANULES && (i == 0 || !chunk->object_bytes); i++)
        if (chunk->seen[i])
            verify_cell(heap, chunk, (struct kri_cell *)((char *)kri_chunk_tree(chunk) + i * KRI_GRANULE));
}

void kri_shadow_verify(struct kri_heap *heap)
{
    for (struct kri_chunk *c = heap->chunks; c; c = c->next)
        verify_chunk(heap, c);
    for (struct kri_chunk *c = heap->large; c; c = c->next)
        verify_chunk(heap, c);
    for (struct kri_chunk *c = heap->permanent; c; c = c->next)
        verify_chunk(heap, c);
    for (struct kri_chunk *c = heap->permanent_large; c; c = c->next)
        verify_chunk(heap, c);
}

#else

void kri_shadow_verify(struct kri_heap *heap) { (void)heap; }
void kri_shadow_take(struct kri_heap *heap) { (void)heap; }
void kri_shadow_take_permanent(struct kri_heap *heap) { (void)heap; }

static bool cas_checked(struct kri_cell *object, kr_value *slot, kr_value old, kr_value v)
{
    (void)object; /* its flag is the caller's matter */
    return kri_cas((volatile kri_atomic *)&slot->w, old.w, v.w);
}

#endif

bool kri_store_cas(struct kri_worker *w, struct kri_cell *object, kr_value *slot, kr_value old, kr_value v)
{
    bool done = cas_checked(object, slot, old, v);

    (void)w;
    if (done)
        kri_log(object);
    return done;
}

void kri_store_fill(struct kri_worker *w, struct kri_cell *object, kr_value *to, kr_value v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kri_store(w, object, to + i, v);
}

void kri_store_move(struct kri_worker *w, struct kri_cell *object, kr_value *to, const kr_value *from, size_t n)
{
    /* As memmove: upwards unless that would overwrite what is still to be read. */
    if ((uintptr_t)to - (uintptr_t)from >= n * sizeof *to)
        for (size_t i = 0; i < n; i++)
            kri_store(w, object, to + i, kri_slot(from + i));
    else
        for (size_t i = n; i-- > 0;)
            kri_store(w, object, to + i, kri_slot(from + i));
}
