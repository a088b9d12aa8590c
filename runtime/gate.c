/* gate.c -- the gate: a reader/writer lock whose readers pay a store and a load. doc/gate.pml is its model.
 *
 * A reader sets its own flag and then looks at the writer's; the writer sets its flag and then looks at the readers'. One of the
 * two sees the other, provided that neither machine nor compiler swaps the store with the load. The readers only keep
 * the compiler from it; the writer calls membarrier(2) between its store and its loads, which makes every running thread pass a
 * full barrier: a reader's store that came before is visible then, a reader's load that comes after sees the writer's
 * flag. The same holds on the way out: a reader clears its flag and then looks whether a writer waits for that.
 *
 * Always true:
 *   G1  While kri_gate_close has returned true and kri_gate_open has not been called, gate == 0 for all other workers, or it
 *       is 1 for the moment between a reader's store and its look at the writer's flag.
 *   G2  A worker inside the gate never waits for workers_lock longer than a writer's look at the list: the writer gives it up
 *       before it sleeps, and once it keeps it nobody is inside.
 *   G3  A limit that is not poisoned while a request waits gets poisoned before its owner runs on: Note [requests].
 *
 * Note [requests]
 * A requester sets a bit of `requests`, fences, and then poisons both limits. The owner, when it changes a limit,
 * stores it, fences and reads `requests` again; a bit that it finds makes it poison the limit itself. Either the owner's read
 * comes after the bit was set, and it poisons; or before, then its store of the limit precedes the requester's poison.
 * A poison may come late, when its bit has been served: the owner takes the slow path once for nothing. The owner clears a
 * bit before it serves it, so a request that arrives meanwhile is served again rather than lost. The poison that counts is
 * that of lisp_limit, which the slow half of either poll looks at. */
#include "runtime/gate.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/futex.h"

#ifdef KRI_TSAN
kri_atomic kri_fence_word;
#endif

enum {
    STOP_SPINS = 400,                /* looks before the writer sleeps */
    ENTER_GRACE_NS = 200 * 1000,     /* what a writer grants those that the last one kept waiting */
};
#define NATIVE_POISON (~(size_t)0)
enum { NATIVE_LOW = 256 << 10 }; /* of native stack, above what is kept in hand, are left to C and bytecode */

bool kri_gate_init(struct kri_heap *heap)
{
    struct kri_gate_state *g = calloc(1, sizeof *g);
    if (!g)
        return false;
#ifdef KRI_TSAN
    g->fences = true; /* the sanitizer does not know membarrier */
#else
    g->fences = !kri_system_membarrier_prepare();
#endif
    heap->gate = g;
    return true;
}

void kri_gate_finish(struct kri_heap *heap)
{
    free(heap->gate);
    heap->gate = NULL;
}

/* Between a reader's own flag and the writer's. Pairs with membarrier or fence in announce_writer. */
static inline void order_reader(const struct kri_gate_state *g)
{
    if (KRI_UNLIKELY(g->fences))
        kri_fence();
    else
        kri_compiler_barrier();
}

/* ---- readers ---- */

static inline void leave(struct kri_worker *w)
{
    struct kri_gate_state *g = w->heap->gate;
    /* Release: pairs with the acquire in everybody_outside; the writer sees all that this worker did to cells and lists. */
    kri_store_release(&w->gate, 0);
    order_reader(g);
    if (KRI_UNLIKELY(kri_load_relaxed(&g->writer))) {
        kri_fetch_add(&g->left, 1);
        kri_futex_wake(&g->left, 1);
    }
}

static KRI_COLD void wait_for_writer(struct kri_gate_state *g)
{
    kri_fetch_add(&g->waiting, 1);
    while (kri_load_relaxed(&g->writer))
        kri_futex_wait(&g->writer, 1);
    kri_fetch_add(&g->waiting, (size_t)-1);
}

void kri_gate_enter(struct kri_worker *w)
{
    struct kri_gate_state *g = w->heap->gate;
    assert(!kri_inside(w));
    for (;;) {
        kri_store_relaxed(&w->gate, 1);
        order_reader(g);
        /* Acquire: pairs with the release in kri_gate_open; this worker sees all that the collector did. */
        if (KRI_LIKELY(!kri_load_acquire(&g->writer)))
            return;
        leave(w);
        wait_for_writer(g);
    }
}

void kri_gate_leave_to(struct kri_worker *w, void *native_top)
{
    assert(kri_inside(w));
    w->gc->native_top = native_top;
    leave(w);
}

void kri_gate_leave_host(struct kri_worker *w) { kri_gate_leave_to(w, NULL); }

void *kri_gate_enter_host(struct kri_worker *w)
{
    void *top = w->gc->native_top; /* outside it is the owner's to read */
    kri_gate_enter(w);
    return top;
}

static KRI_NOINLINE void blocking_spilled(struct kri_worker *w, void (*f)(void *arg), void *arg)
{
    assert(kri_inside(w));
    w->gc->native_top = __builtin_frame_address(0);
    leave(w);
    f(arg);
    kri_gate_enter(w);
    kri_compiler_barrier();
}

KRI_NOINLINE void kri_blocking(struct kri_worker *w, void (*f)(void *arg), void *arg)
{
    KRI_SPILLED_CALL(blocking_spilled(w, f, arg));
}

void kri_unblocking(struct kri_worker *w, void (*f)(void *arg), void *arg)
{
    void *top = kri_gate_enter_host(w);
    f(arg);
    kri_gate_leave_to(w, top);
}

void kri_gate_yield_spilled(struct kri_worker *w)
{
    leave(w);
    kri_gate_enter(w);
}

/* ---- requests ---- */

/* Lock-free and without the C library, so a signal handler may call it. */
static inline void poison(struct kri_worker *w)
{
    kri_store_relaxed(&w->lisp_limit, 0);
    kri_store_relaxed(&w->native_limit, NATIVE_POISON);
}

void kri_request(struct kri_worker *w, enum kri_request what)
{
    kri_set_bits(&w->requests, what);
    kri_fence(); /* pairs with that in recheck */
    poison(w);
}

/* Owner: look again for requests after a limit was stored. The fence pairs with that in kri_request. Note [requests]. */
static inline void recheck(struct kri_worker *w)
{
    kri_fence();
    if (kri_load_relaxed(&w->requests))
        poison(w);
}

static void unpoison(struct kri_worker *w)
{
    kri_store_relaxed(&w->lisp_limit, (uintptr_t)w->gc->stop->lisp_limit);
    kri_store_relaxed(&w->native_limit, (uintptr_t)w->gc->stop->native_low);
    recheck(w);
}

void kri_set_lisp_limit(struct kri_worker *w, void *limit)
{
    w->gc->stop->lisp_limit = limit;
    kri_store_relaxed(&w->lisp_limit, (uintptr_t)limit);
    recheck(w);
}

void kri_set_native_limit(struct kri_worker *w, void *limit)
{
    size_t room = (size_t)((char *)w->gc->native_base - (char *)limit) / 4;
    w->gc->stop->native_limit = limit;
    w->gc->stop->native_low = (char *)limit + (room < NATIVE_LOW ? room : (size_t)NATIVE_LOW);
    kri_store_relaxed(&w->native_limit, (uintptr_t)w->gc->stop->native_low);
    recheck(w);
}

/* The stack's limit, should it be poisoned for no reason; native code polls by it, so a request keeps it. */
static void restore_native_limit(struct kri_worker *w)
{
    if (kri_load_relaxed(&w->native_limit) == NATIVE_POISON) {
        kri_store_relaxed(&w->native_limit, (uintptr_t)w->gc->stop->native_low);
        recheck(w);
    }
}

bool kri_native_exhausted_slow(struct kri_worker *w)
{
    if ((uintptr_t)__builtin_frame_address(0) < (uintptr_t)w->gc->stop->native_limit)
        return true;
    restore_native_limit(w);
    return false;
}

bool kri_native_low_slow(struct kri_worker *w)
{
    restore_native_limit(w);
    return (uintptr_t)__builtin_frame_address(0) < (uintptr_t)w->gc->stop->native_low;
}

/* Whether BIT was requested; takes it. The read-modify-write orders what the requester wrote before the serving. */
static bool take_request(struct kri_worker *w, enum kri_request bit)
{
    if (!(kri_load_acquire(&w->requests) & bit))
        return false;
    kri_clear_bits(&w->requests, bit);
    unpoison(w);
    return true;
}

void kri_withdraw(struct kri_worker *w, enum kri_request what) { take_request(w, what); }

static KRI_NOINLINE void yield_spilled(struct kri_worker *w)
{
    w->gc->native_top = __builtin_frame_address(0);
    kri_gate_yield_spilled(w);
    kri_compiler_barrier();
}

KRI_NOINLINE void kri_gate_yield(struct kri_worker *w)
{
    assert(kri_inside(w));
    take_request(w, KRI_REQUEST_STOP);
    /* The bit is gone first, the flag read after it: by its acquire the writer's flag is seen with it; a writer that comes later sets it again. */
    if (kri_load_relaxed(&w->heap->gate->writer))
        KRI_SPILLED_CALL(yield_spilled(w));
}

void kri_poll_slow(struct kri_worker *w)
{
    const struct kri_heap_hooks *hooks = &w->heap->hooks;
    kri_gate_yield(w);
    /* A late poison: nothing to serve. While a bit is left the limits stay poisoned, also when a hook raises. */
    if (!kri_load_acquire(&w->requests)) {
        unpoison(w);
        return;
    }
    if (take_request(w, KRI_REQUEST_SAMPLE) && hooks->sample)
        hooks->sample(w);
    if (take_request(w, KRI_REQUEST_HOOK) && hooks->after_gc)
        hooks->after_gc(w);
    if (take_request(w, KRI_REQUEST_INTERRUPT) && hooks->interrupt)
        hooks->interrupt(w);
    if (take_request(w, KRI_REQUEST_BUDGET) && hooks->budget)
        hooks->budget(w);
    if (take_request(w, KRI_REQUEST_SIGNAL) && hooks->signal)
        hooks->signal(w);
}

void kri_heap_request_samples(struct kri_heap *heap)
{
    pthread_mutex_lock(&heap->workers_lock);
    for (struct kri_worker *w = heap->workers; w; w = w->next)
        if (kri_load_relaxed(&w->gate))
            kri_request(w, KRI_REQUEST_SAMPLE);
    pthread_mutex_unlock(&heap->workers_lock);
}

/* ---- the writer ---- */

/* Those that the last writer kept waiting get in before the next one closes the gate again, or a thread that collects all
 * the time (stress) would starve them. */
static void let_waiting_in(struct kri_gate_state *g)
{
    uint64_t resumed = g->resumed;
    while (kri_load_relaxed(&g->waiting) && kri_system_now() - resumed < ENTER_GRACE_NS)
        sched_yield();
}

/* Set the writer's flag and make sure that every reader has seen it or is seen. Pairs with order_reader. */
static void announce_writer(struct kri_gate_state *g)
{
    kri_store_relaxed(&g->writer, 1);
    kri_fence();
    if (!g->fences)
        kri_system_membarrier();
}

/* Caller holds workers_lock. */
static bool everybody_outside_locked(const struct kri_worker *self)
{
    for (const struct kri_worker *o = self->heap->workers; o; o = o->next)
        /* Acquire: pairs with the release in leave. */
        if (o != self && kri_load_acquire(&o->gate))
            return false;
    return true;
}

/* Caller holds workers_lock, which is given up to sleep and held on return. */
static void wait_until_outside_locked(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    struct kri_gate_state *g = heap->gate;
    for (unsigned looks = 0;; looks++) {
        size_t left = kri_load_acquire(&g->left); /* before the look at the workers */
        if (everybody_outside_locked(w))
            return;
        pthread_mutex_unlock(&heap->workers_lock);
        if (looks < STOP_SPINS)
            kri_spin_pause();
        else
            kri_futex_wait(&g->left, left);
        pthread_mutex_lock(&heap->workers_lock);
    }
}

bool kri_gate_close(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    struct kri_gate_state *g = heap->gate;
    assert(kri_inside(w));
    if (kri_load_relaxed(&g->waiting))
        let_waiting_in(g);
    pthread_mutex_lock(&heap->workers_lock);
    if (kri_load_relaxed(&g->writer)) {
        pthread_mutex_unlock(&heap->workers_lock);
        kri_gate_yield_spilled(w);
        return false;
    }
    announce_writer(g);
    /* Who is outside needs no request: it sees the flag when it enters. */
    for (struct kri_worker *o = heap->workers; o; o = o->next)
        if (o != w && kri_load_relaxed(&o->gate))
            kri_request(o, KRI_REQUEST_STOP);
    wait_until_outside_locked(w);
    g->holder = w;
    for (struct kri_worker *o = heap->workers; o; o = o->next)
        kri_close_runs(o);
    return true;
}

void kri_gate_open(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    struct kri_gate_state *g = heap->gate;
    g->holder = NULL;
    g->resumed = kri_system_now();
    /* Release: pairs with the acquire in kri_gate_enter. */
    kri_store_release(&g->writer, 0);
    kri_futex_wake(&g->writer, INT_MAX);
    pthread_mutex_unlock(&heap->workers_lock);
}

void kri_gate_after_fork(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;
    struct kri_gate_state *g = heap->gate;
    /* Who held or wanted the lock in the parent is not here. */
    pthread_mutex_init(&heap->workers_lock, NULL);
    if (g->holder == w)
        pthread_mutex_lock(&heap->workers_lock);
    else
        kri_store_relaxed(&g->writer, 0);
    kri_store_relaxed(&g->waiting, 0);
#ifndef KRI_TSAN
    g->fences = !kri_system_membarrier_prepare();
#endif
}
