/* permanent.c -- the part of the heap that is there to stay, and the log of the stores into it.
 *
 * Note [permanent]. What a program starts with -- classes, symbols, the core library -- lives as long as it does. Once all of
 * it is there its chunks are taken out of the collector's hands: each of their cells gets a mark that stays (so markers pass
 * it by), and the flag KRI_FLAG_UNLOGGED. They refer to one another only. The first store into such a cell, which kri_store
 * recognises by the flag, clears it and puts the cell into the log; what is in the log is scanned at each collection
 * (mark.c). So H7 holds: a permanent cell that is not in the log refers to permanent cells only.
 * A thread stores first and logs then: no collection comes between, for it polls at neither. */
#include "runtime/heap_private.h"

void kri_log_slow(struct kri_cell *object)
{
    struct kri_heap *heap = kri_chunk_of(object)->heap;

    pthread_mutex_lock(&heap->flags_lock);
    if (object->flags & KRI_FLAG_UNLOGGED) { /* else another thread was quicker */
        heap->log[heap->log_count++] = object;
        kri_store_byte(&object->flags, (unsigned char)(object->flags & ~KRI_FLAG_UNLOGGED));
    }
    pthread_mutex_unlock(&heap->flags_lock);
}

void kri_change_flags(struct kri_cell *c, unsigned clear, unsigned set)
{
    struct kri_heap *heap = kri_chunk_of(c)->heap;

    pthread_mutex_lock(&heap->flags_lock);
    kri_store_byte(&c->flags, (unsigned char)((c->flags & ~clear) | set));
    pthread_mutex_unlock(&heap->flags_lock);
}

static void seal_cell(struct kri_heap *heap, struct kri_cell *c, size_t bytes)
{
    *kri_mark_byte(c) = (unsigned char)(c->buddy + 1);
    c->flags |= KRI_FLAG_UNLOGGED;
    heap->permanent_cells++;
    heap->permanent_bytes += bytes;
}

static void seal_chunk(struct kri_heap *heap, struct kri_chunk *chunk)
{
    char *at = (char *)kri_chunk_tree(chunk), *end = at + (size_t)KRI_TREE_GRANULES * KRI_GRANULE;

    while (at < end) {
        struct kri_cell *c = (struct kri_cell *)at;
        size_t bytes = kri_block_bytes(c->buddy);
        if (c->cls != KRI_CLASS_FREE)
            seal_cell(heap, c, bytes);
        at += bytes;
    }
    chunk->state = KRI_CHUNK_PERMANENT;
    chunk->touched = 1;
}

static void seal_large(struct kri_heap *heap, struct kri_chunk *chunk)
{
    seal_cell(heap, kri_chunk_tree(chunk), chunk->object_bytes);
    chunk->state = KRI_CHUNK_PERMANENT;
    chunk->touched = 1;
}

static void make_permanent(struct kri_worker *w, void *arg)
{
    struct kri_heap *heap = w->heap;

    (void)arg;
    kri_sweep_finish_all(heap); /* now what is no free block is a cell */
    if (heap->permanent || heap->heap_bytes > heap->config.limit_bytes / 8)
        return;
    /* Room for every cell that could be there; what is not used is never touched. */
    heap->log = kri_system_map(heap->heap_bytes / KRI_GRANULE * sizeof *heap->log, 0);
    if (!heap->log)
        return;
    heap->log_bytes = heap->heap_bytes / KRI_GRANULE * sizeof *heap->log;
    if (!kri_heap_retire_chunks_stw(heap))
        return;
    for (struct kri_chunk *c = heap->permanent; c; c = c->next)
        seal_chunk(heap, c);
    for (struct kri_chunk *c = heap->permanent_large; c; c = c->next)
        seal_large(heap, c);
    kri_shadow_take_permanent(heap);
}

void kri_heap_make_permanent(struct kri_worker *w)
{
    kri_with_world_stopped(w, make_permanent, NULL);
}
