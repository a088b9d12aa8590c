/* mark.h -- marking and finalizers, for collect.c. All of it runs while the world is stopped, but for kri_finalize and
 * kri_next_finalizable (heap.h). */
#ifndef KRI_RUNTIME_MARK_H
#define KRI_RUNTIME_MARK_H

#include "runtime/heap_private.h"

/* Before marking: sweep what is unswept, with the helpers' help if it is much (H4). */
void kri_mark_sweep_rest(struct kri_heap *heap);
/* Mark everything: the roots outside native stacks by hooks.mark_roots, the native stacks of all workers; clear weak
 * cells, call hooks.weak, put dead cells with a finalizer on the ready list. SELF collects. Fills marked and markers
 * of RECORD and returns the live bytes. */
uint64_t kri_mark_all(struct kri_worker *self, struct kri_gc_record *record);
/* In the child after fork: there are no helpers any more. */
void kri_mark_after_fork(struct kri_heap *heap);
/* For tests: at most BLOCKS blocks of mark stack, 0 for as many as there is memory. */
void kri_mark_limit_blocks(struct kri_heap *heap, size_t blocks);
/* For tests: how many helper threads there are. */
unsigned kri_mark_helpers(const struct kri_heap *heap);

/* ---- finalizers (finalize.c) ---- */
struct kri_finalizers {
    pthread_mutex_t lock;        /* guards all; before the heap's flags_lock */
    struct kri_cell **waiting;   /* registered cells, held weakly */
    size_t waiting_count;
    struct kri_cell **ready;     /* dead cells, held strongly until kri_next_finalizable: a ring of `capacity` */
    size_t ready_first, ready_count;
    size_t capacity;             /* of both; at least waiting_count + ready_count */
};
void kri_finalizers_init(struct kri_finalizers *f);
void kri_finalizers_free(struct kri_finalizers *f);
/* World stopped: the ready cells are roots. */
void kri_finalizers_mark_ready(struct kri_finalizers *f, struct kri_marker *m);
/* World stopped, after marking: move unmarked cells to the ready list, and have M mark each. True if there was one. */
bool kri_finalizers_revive(struct kri_finalizers *f, struct kri_marker *m);
struct kri_finalizers *kri_mark_finalizers(struct kri_heap *heap);

#endif
