/* worker.c -- attaching kernel threads to a heap and detaching them. */
#include "runtime/gate.h"

#include <assert.h>
#include <stdlib.h>

enum { NATIVE_RESERVE = 128 << 10 }; /* of native stack, kept in hand for libc, GMP and LAPACK */

/* A worker and its private parts, in one piece. */
struct whole_worker {
    struct kri_worker worker;
    struct kri_worker_stop stop;
    _Alignas(64) struct kri_worker_gc gc;
};

/* W is outside the gate; the lock is the collector's while it collects, so neither half sees a collection. */
static void link_worker(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    pthread_mutex_lock(&heap->workers_lock);
    kri_local_base_init(w);
    w->next = heap->workers;
    heap->workers = w;
    heap->worker_count++;
    pthread_mutex_unlock(&heap->workers_lock);
}

static void unlink_worker_locked(struct kri_worker *w)
{
    struct kri_worker **p = &w->heap->workers;
    kri_local_base_finish(w);
    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    w->heap->worker_count--;
}

struct kri_worker *kri_worker_new(struct kri_heap *heap, void *native_base, void *native_limit)
{
    struct whole_worker *whole;
    if (posix_memalign((void **)&whole, 64, sizeof *whole) != 0)
        return NULL;
    memset(whole, 0, sizeof *whole);
    struct kri_worker *w = &whole->worker;
    w->heap = heap;
    w->gc = &whole->gc;
    w->gc->worker = w;
    w->gc->stop = &whole->stop;
    kri_set_native_bounds(w, native_base, native_limit);
    link_worker(w);
    kri_gate_enter(w);
    return w;
}

void kri_worker_free(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    assert(kri_inside(w));
    kri_gate_leave_host(w);
    pthread_mutex_lock(&heap->workers_lock);
    unlink_worker_locked(w);
    pthread_mutex_unlock(&heap->workers_lock);
    free(w);
}

void kri_set_native_bounds(struct kri_worker *w, void *base, void *limit)
{
    size_t reserve = (size_t)((char *)base - (char *)limit) / 4;
    w->gc->native_base = base;
    w->gc->native_limit = limit;
    kri_set_native_limit(w, (char *)limit + (reserve < NATIVE_RESERVE ? reserve : (size_t)NATIVE_RESERVE));
}

void kri_native_relax(struct kri_worker *w, bool relaxed)
{
    size_t reserve = (size_t)((char *)w->gc->native_base - (char *)w->gc->native_limit) / 4;
    if (reserve > NATIVE_RESERVE)
        reserve = NATIVE_RESERVE;
    kri_set_native_limit(w, (char *)w->gc->native_limit + (relaxed ? reserve / 3 : reserve));
}

/* World stopped, or the lock new. */
void kri_workers_after_fork(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    for (struct kri_worker *o = heap->workers, *next; o; o = next) {
        next = o->next;
        if (o == w)
            continue;
        unlink_worker_locked(o);
        free(o);
    }
}
