/* collect.c -- stopping the world and a collection from beginning to end (the order is in heap_private.h). */
#include "runtime/gate.h"
#include "runtime/mark.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* KR_GC_CHECK=1 */
static void check_heap_stw(struct kri_heap *heap, const char *when)
{
    char message[512];
    if (!heap->check_each || kri_heap_check_stw(heap, message, sizeof message))
        return;
    fprintf(stderr, "karakuri: heap check %s a collection: %s\n", when, message);
    abort();
}

static void collect_stw(struct kri_worker *w, struct kri_gc_record *record)
{
    struct kri_heap *heap = w->heap;
    uint64_t begin, live;
    record->workers = heap->worker_count;
    kri_shadow_verify(heap);
    check_heap_stw(heap, "before");
    kri_discipline_lock(heap);
    kri_mark_sweep_rest(heap);
    begin = kri_system_now();
    live = kri_mark_all(w, record);
    record->mark = kri_system_now() - begin;
    kri_heap_after_mark(heap, live, record);
    check_heap_stw(heap, "after");
    record->total = kri_system_now() - record->at;
    kri_heap_record(heap, record);
    kri_discipline_unlock(heap);
}

static KRI_NOINLINE void collect_spilled(struct kri_worker *w, enum kri_gc_cause cause)
{
    struct kri_heap *heap = w->heap;
    struct kri_gc_record record = {.cause = cause, .at = kri_system_now()};
    size_t collections = kri_load_relaxed(&heap->collections);
    w->gc->native_top = __builtin_frame_address(0);
    while (!kri_gate_close(w))
        /* A collection that began after the call does as well as one of ours. Relaxed: coming back through the gate ordered it. */
        if (kri_load_relaxed(&heap->collections) != collections)
            return;
    record.stop = kri_system_now() - record.at;
    collect_stw(w, &record);
    kri_gate_open(w);
    if (heap->hooks.after_gc)
        kri_request(w, KRI_REQUEST_HOOK);
    kri_compiler_barrier();
}

KRI_NOINLINE void kri_collect(struct kri_worker *w, enum kri_gc_cause cause)
{
    assert(kri_inside(w));
    KRI_SPILLED_CALL(collect_spilled(w, cause));
}

static KRI_NOINLINE void with_world_stopped_spilled(struct kri_worker *w, void (*f)(struct kri_worker *w, void *arg), void *arg)
{
    w->gc->native_top = __builtin_frame_address(0);
    while (!kri_gate_close(w))
        ;
    f(w, arg);
    kri_gate_open(w);
    kri_compiler_barrier();
}

KRI_NOINLINE void kri_with_world_stopped(struct kri_worker *w, void (*f)(struct kri_worker *w, void *arg), void *arg)
{
    assert(kri_inside(w));
    /* Within a stop of our own it stands already. */
    if (w->heap->gate->holder == w)
        f(w, arg);
    else
        KRI_SPILLED_CALL(with_world_stopped_spilled(w, f, arg));
}

void kri_heap_after_fork(struct kri_worker *w)
{
    kri_gate_after_fork(w);
    kri_base_after_fork(w->heap);
    kri_mark_after_fork(w->heap);
    kri_workers_after_fork(w);
}
