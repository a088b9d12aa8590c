/* heap_stats.c -- totals of a heap and the records of its collections. */
#include "runtime/heap_private.h"

static void add_local(struct kri_heap_stats *out, const struct kri_local_base *b)
{
    for (unsigned k = 0; k <= KRI_SIZES; k++)
        out->allocated_cells[k] += kri_load_relaxed(&b->handed[k]);
    out->local_bytes += kri_load_relaxed(&b->held_granules) * KRI_GRANULE;
    out->allocated_bytes += kri_load_relaxed(&b->large_bytes);
}

void kri_heap_get_stats(struct kri_worker *w, struct kri_heap_stats *out)
{
    struct kri_heap *heap = w->heap;
    size_t total, used;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&heap->workers_lock);
    for (struct kri_worker *v = heap->workers; v; v = v->next)
        add_local(out, &v->gc->base);
    kri_base_lock(heap);
    pthread_mutex_unlock(&heap->workers_lock);
    add_local(out, &heap->retired);
    out->collections = kri_load_relaxed(&heap->collections);
    out->stop_ns = heap->stop_ns;
    out->mark_ns = heap->mark_ns;
    out->gc_ns = heap->gc_ns;
    out->sweep_ns = kri_load_relaxed(&heap->sweep_ns);
    out->heap_bytes = heap->heap_bytes;
    out->peak_bytes = heap->peak_bytes;
    out->live_bytes = heap->live_bytes + heap->permanent_bytes;
    out->chunks = heap->chunk_count + heap->permanent_chunks;
    out->large_objects = heap->large_count + heap->permanent_large_count;
    total = heap->chunk_count * KRI_TREE_GRANULES * KRI_GRANULE;
    used = heap->live_small + heap->handed - heap->handed_large; /* handed to local bases counts as used */
    out->free_bytes = total > used ? total - used : 0;
    kri_base_unlock(heap);
    for (unsigned k = 0; k < KRI_SIZES; k++)
        out->allocated_bytes += out->allocated_cells[k] * kri_block_bytes(k);
}

void kri_heap_record(struct kri_heap *heap, const struct kri_gc_record *record)
{
    struct kri_gc_record *kept;

    kri_base_lock(heap);
    kept = &heap->records[heap->record_count++ % KRI_RECORDS];
    *kept = *record;
    kept->number = heap->record_count;
    heap->stop_ns += record->stop;
    heap->mark_ns += record->mark;
    heap->gc_ns += record->total;
    kri_base_unlock(heap);
    /* Release: who sees the count and then takes base_lock finds the record; pairs with nothing but the lock. */
    kri_store_release(&heap->collections, kri_load_relaxed(&heap->collections) + 1);
}

size_t kri_heap_records(struct kri_worker *w, struct kri_gc_record *out, size_t n)
{
    struct kri_heap *heap = w->heap;
    size_t kept;

    kri_base_lock(heap);
    kept = heap->record_count < KRI_RECORDS ? heap->record_count : KRI_RECORDS;
    n = n < kept ? n : kept;
    for (size_t i = 0; i < n; i++)
        out[i] = heap->records[(heap->record_count - 1 - i) % KRI_RECORDS];
    kri_base_unlock(heap);
    return n;
}
