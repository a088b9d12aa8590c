/* heap_check.c -- walking the heap and proving that H1 to H5 and H7 of heap.h hold. (H6 needs a copy of the past: Note [checked
 * stores], store.c.) */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/heap_private.h"

/* ---- the walk ----
 * Blocks lie side by side, each with a true header once the runs are closed (H1, H3): no need to descend the tree. */
static void walk_chunk(struct kri_chunk *chunk, void (*f)(struct kri_cell *c, void *arg), void *arg)
{
    char *at = (char *)kri_chunk_tree(chunk), *end = at + (size_t)KRI_TREE_GRANULES * KRI_GRANULE;

    while (at < end) {
        struct kri_cell *c = (struct kri_cell *)at;
        at += kri_block_bytes(c->buddy);
        if (c->cls != KRI_CLASS_FREE && (chunk->state != KRI_CHUNK_UNSWEPT || kri_marked(c)))
            f(c, arg);
    }
}

void kri_heap_walk(struct kri_worker *w, void (*f)(struct kri_cell *c, void *arg), void *arg)
{
    kri_close_runs(w); /* the others' are closed: the world is stopped, or there are none */
    for (struct kri_chunk *c = w->heap->chunks; c; c = c->next)
        walk_chunk(c, f, arg);
    for (struct kri_chunk *c = w->heap->large; c; c = c->next)
        f(kri_chunk_tree(c), arg);
    for (struct kri_chunk *c = w->heap->permanent; c; c = c->next)
        walk_chunk(c, f, arg);
    for (struct kri_chunk *c = w->heap->permanent_large; c; c = c->next)
        f(kri_chunk_tree(c), arg);
}

/* ---- the check ---- */

enum { SEEN_IN_LIST = 0x80 }; /* in the flags of a free block, while the check runs */

struct check {
    struct kri_heap *heap;
    char *message;
    size_t size;
    bool good;
};

static __attribute__((format(printf, 2, 3))) bool fail(struct check *k, const char *format, ...)
{
    va_list args;

    if (k->good && k->size) {
        va_start(args, format);
        vsnprintf(k->message, k->size, format, args);
        va_end(args);
    }
    k->good = false;
    return false;
}

/* H5, first half: list members are free blocks of swept chunks, none twice. */
static bool check_list(struct check *k, const struct kri_free_list *l, unsigned index)
{
    size_t n = 0;

    for (struct kri_cell *c = l->head; c; c = kri_ptr(c->slot[0]), n++) {
        struct kri_chunk *chunk = kri_chunk_find(&k->heap->table, (uintptr_t)c);
        if (!chunk || chunk->object_bytes || (uintptr_t)c < (uintptr_t)kri_chunk_tree(chunk))
            return fail(k, "H5: list %u holds %p, which is in no chunk", index, (void *)c);
        if (chunk->state != KRI_CHUNK_SWEPT)
            return fail(k, "H5: list %u holds %p of an unswept chunk", index, (void *)c);
        if (c->cls != KRI_CLASS_FREE || c->buddy != index)
            return fail(k, "H5: list %u holds %p, class %u, index %u", index, (void *)c, c->cls, c->buddy);
        if (c->flags & SEEN_IN_LIST)
            return fail(k, "H5: the free block %p, index %u, is in two lists or twice in one", (void *)c, index);
        c->flags |= SEEN_IN_LIST;
        if (!c->slot[0].w && l->tail != c)
            return fail(k, "H5: list %u ends at %p, not at its tail", index, (void *)c);
    }
    return n == l->count || fail(k, "H5: list %u counts %zu blocks and has %zu", index, l->count, n);
}

static bool check_value(struct check *k, const struct kri_cell *c, size_t i)
{
    kr_value v = c->slot[i];

    if (!kri_is_pointer(v))
        return true;
    if (kri_find_cell(k->heap, v.w) == kri_ptr(v))
        return !(c->flags & KRI_FLAG_UNLOGGED) || kri_chunk_of(kri_ptr(v))->state == KRI_CHUNK_PERMANENT ||
               fail(k, "H7: word %zu of the permanent cell %p, class %u, is %#zx, which is not permanent, and it is not in the log", i,
                    (const void *)c, c->cls, (size_t)v.w);
    return fail(k, "values: word %zu of cell %p, class %u, is %#zx, no live cell", i, (const void *)c, c->cls, (size_t)v.w);
}

static bool check_values(struct check *k, const struct kri_cell *c)
{
    const struct kri_layout *l = &k->heap->layouts[c->cls];
    size_t n = 0, words = kri_cell_bytes(c) / KRI_WORD - 1;

    switch ((enum kri_layout_kind)l->kind) {
    case KRI_LAYOUT_SLOTS:
    case KRI_LAYOUT_WEAK:
    case KRI_LAYOUT_WEAK_TABLE:
        n = l->slots;
        break;
    case KRI_LAYOUT_VECTOR:
    case KRI_LAYOUT_WEAK_VECTOR:
        n = c->length;
        break;
    case KRI_LAYOUT_ALL:
        n = words;
        break;
    case KRI_LAYOUT_RAW:
        break;
    }
    if (n > words)
        return fail(k, "H1: cell %p, class %u, has %zu values in %zu words", (const void *)c, c->cls, n, words);
    for (size_t i = 0; i < n; i++)
        if (!check_value(k, c, i))
            return false;
    return true;
}

/* H1 and H5's second half: every block at its place in the tree, every free one of a swept chunk in a list. */
static bool check_node(struct check *k, struct kri_chunk *chunk, uint32_t offset, unsigned index)
{
    struct kri_cell *c = (struct kri_cell *)((char *)kri_chunk_tree(chunk) + (size_t)offset * KRI_GRANULE);
    bool listed;

    if (c->buddy > index)
        return fail(k, "H1: the node %p of index %u has a header of index %u", (void *)c, index, c->buddy);
    if (c->buddy < index)
        return check_node(k, chunk, offset, index - 1) &&
               check_node(k, chunk, offset + kri_fib[index - 1], index >= 2 ? index - 2 : 0);
    if (c->cls == KRI_CLASS_FREE) {
        listed = (c->flags & SEEN_IN_LIST) != 0;
        c->flags &= (uint8_t)~SEEN_IN_LIST;
        if (listed != (chunk->state == KRI_CHUNK_SWEPT))
            return fail(k, "H5: the free block %p, index %u, is in %s list", (void *)c, index, listed ? "a" : "no");
        return true;
    }
    if (chunk->state == KRI_CHUNK_PERMANENT && !kri_marked(c))
        return fail(k, "H7: the permanent cell %p, class %u, has no mark", (void *)c, c->cls);
    return (chunk->state == KRI_CHUNK_UNSWEPT && !kri_marked(c)) || check_values(k, c);
}

static bool check_chunk(struct check *k, struct kri_chunk *chunk)
{
    if (kri_chunk_find(&k->heap->table, (uintptr_t)chunk) != chunk)
        return fail(k, "table: the chunk %p is not found", (void *)chunk);
    if (chunk->state == KRI_CHUNK_SWEPT)
        for (size_t i = 0; i < KRI_TREE_GRANULES; i++)
            if (chunk->marks[i])
                return fail(k, "H4: a mark at granule %zu of the swept chunk %p", i, (void *)chunk);
    return check_node(k, chunk, 0, KRI_CHUNK_INDEX);
}

static bool check_large(struct check *k, struct kri_chunk *c)
{
    struct kri_cell *cell = kri_chunk_tree(c);

    if (kri_find_cell(k->heap, (uintptr_t)cell + c->object_bytes - 1) != cell)
        return fail(k, "table: the large object %p is not found by its last byte", (void *)cell);
    if (cell->buddy != KRI_BUDDY_LARGE || cell->cls == KRI_CLASS_FREE)
        return fail(k, "H1: the large object %p has class %u, index %u", (void *)cell, cell->cls, cell->buddy);
    return check_values(k, cell);
}

/* H7's other half: each cell of the log is permanent and flagged so. */
static bool check_log(struct check *k)
{
    for (size_t i = 0; i < k->heap->log_count; i++)
        if (kri_chunk_of(k->heap->log[i])->state != KRI_CHUNK_PERMANENT || (k->heap->log[i]->flags & KRI_FLAG_UNLOGGED))
            return fail(k, "H7: place %zu of the log holds %p, which does not belong there", i, (void *)k->heap->log[i]);
    return true;
}

static bool check_permanent(struct check *k)
{
    for (struct kri_chunk *c = k->heap->permanent; c; c = c->next)
        if (c->state != KRI_CHUNK_PERMANENT || !check_chunk(k, c))
            return fail(k, "H7: the chunk %p is not permanent", (void *)c);
    for (struct kri_chunk *c = k->heap->permanent_large; c; c = c->next)
        if (c->state != KRI_CHUNK_PERMANENT || !check_large(k, c))
            return fail(k, "H7: the large object %p is not permanent", (void *)c);
    return check_log(k);
}

/* H2 and H3: nobody carves while the world stands. */
static bool check_worker(struct check *k, const struct kri_worker *w)
{
    if (w->run != w->run_end || w->gc->base.hidden_run != w->gc->base.hidden_end)
        return fail(k, "H3: worker %p has an open run", (const void *)w);
    for (unsigned i = 0; i < KRI_LOCAL_SIZES; i++)
        if (w->free[i] || w->gc->base.hidden_free[i] || w->strip[i].step != w->strip[i].end)
            return fail(k, "H3: worker %p holds free blocks of index %u", (const void *)w, i);
    return true;
}

static bool check_all(struct check *k)
{
    struct kri_heap *heap = k->heap;
    size_t chunks = 0, large = 0;

    for (struct kri_worker *w = heap->workers; w; w = w->next)
        if (!check_worker(k, w))
            return false;
    for (unsigned i = 0; i < KRI_SIZES; i++)
        if ((heap->base[i].head != NULL) != (heap->base_bits >> i & 1))
            return fail(k, "H5: the bit of list %u is wrong", i);
        else if (!check_list(k, &heap->base[i], i) || !check_list(k, &heap->withheld[i], i))
            return false;
    for (struct kri_chunk *c = heap->chunks; c; c = c->next, chunks++)
        if (!check_chunk(k, c))
            return false;
    for (struct kri_chunk *c = heap->large; c; c = c->next, large++)
        if (!check_large(k, c))
            return false;
    if (chunks != heap->chunk_count || large != heap->large_count)
        return fail(k, "lists: %zu chunks and %zu large objects, counted %zu and %zu", chunks, large, heap->chunk_count,
                    heap->large_count);
    return k->good && check_permanent(k);
}

/* After a violation: the lists' members as they were. The lists themselves may be broken. */
static void clear_flags(struct kri_heap *heap, const struct kri_free_list *l)
{
    struct kri_cell *c = l->head;
    for (size_t n = 0; n <= l->count && kri_chunk_find(&heap->table, (uintptr_t)c); n++) {
        c->flags &= (uint8_t)~SEEN_IN_LIST;
        c = kri_ptr(c->slot[0]);
    }
}

static void clear_list_flags(struct kri_heap *heap)
{
    for (unsigned i = 0; i < KRI_SIZES; i++) {
        clear_flags(heap, &heap->base[i]);
        clear_flags(heap, &heap->withheld[i]);
    }
}

bool kri_heap_check_stw(struct kri_heap *heap, char *message, size_t size)
{
    struct check k = {heap, message, size, true};

    if (check_all(&k))
        return true;
    clear_list_flags(heap);
    return false;
}

static void check_stopped(struct kri_worker *w, void *arg)
{
    struct check *k = arg;
    k->good = kri_heap_check_stw(w->heap, k->message, k->size);
}

bool kri_heap_check(struct kri_worker *w, char *message, size_t size)
{
    struct check k = {w->heap, message, size, true};

    if (size)
        message[0] = '\0';
    kri_with_world_stopped(w, check_stopped, &k);
    return k.good;
}
