/* budget.c -- what an evaluation may use of time and memory, and what becomes of one that uses more.
 *
 * A budget belongs to the context that kr_budget_begin was called in, and to threads that are started under it. It goes
 * through stages, on by the watchdog, a thread of the VM's that sleeps until the next one is due:
 *   WITHIN    nothing is wrong
 *   EXCEEDED  each context under it raises budget-exceeded, once, where it stands: handlers see it
 *   UNWIND    each is unwound to the host's call (or its thread's), again and again until it is there; no handler is asked
 *   NOW       likewise, and cleanup forms are not run any more
 * Always true:
 *   B1  The stage is written under watchdog_lock and never goes back; a context reads it without.
 *   B2  A budget is freed by who takes its last user away: its contexts and, until kr_budget_end, its owner.
 * Lock order: watchdog_lock, then contexts_lock. Neither is held while Lisp runs. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "lisp/api.h"

enum stage { WITHIN, EXCEEDED, UNWIND, NOW };
enum { AGAIN_NS = 10000000, LEAST_GRACE_NS = 20000000, MOST_GRACE_NS = 1000000000 };

struct kri_budget {
    struct kri_budget *next;   /* all of the VM; under watchdog_lock */
    kri_atomic stage;
    unsigned users;            /* B2; under watchdog_lock */
    kr_exceeded why;           /* under watchdog_lock */
    uint64_t due;              /* when the next stage begins, 0: never; under watchdog_lock */
    uint64_t grace;            /* constant */
    size_t live_most;          /* bytes that may live after a collection, 0: any; constant */
    size_t heap_most;          /* what the heap may become for a worker under it; constant */
};

struct kri_watchdog {
    struct kr_vm *vm;
    pthread_t tid;
    pthread_cond_t changed;    /* with watchdog_lock: an earlier date, or the end */
    bool stop;
    struct kri_budget *budgets;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct kri_budget *budget_of(const struct kr_context *ctx) { return (struct kri_budget *)kri_load_acquire(&ctx->budget); }

/* Caller holds watchdog_lock. */
static void request_all_locked(struct kr_vm *vm, const struct kri_budget *b)
{
    pthread_mutex_lock(&vm->contexts_lock);
    for (struct kr_context *c = vm->contexts; c; c = c->next)
        if (c->worker && budget_of(c) == b)
            kri_request(c->worker, KRI_REQUEST_BUDGET);
    pthread_mutex_unlock(&vm->contexts_lock);
}

/* B goes on to its next stage. Caller holds watchdog_lock. */
static void advance_locked(struct kr_vm *vm, struct kri_budget *b, kr_exceeded why)
{
    enum stage stage = (enum stage)kri_load_relaxed(&b->stage);
    if (stage == WITHIN)
        b->why = why;
    if (stage < NOW)
        kri_store_release(&b->stage, stage + 1); /* pairs with the acquire in kri_budget_poll */
    b->due = now_ns() + (stage + 1 >= NOW ? (uint64_t)AGAIN_NS : b->grace);
    request_all_locked(vm, b);
}

static void *watch(void *arg)
{
    struct kri_watchdog *d = arg;
    pthread_mutex_t *lock = &d->vm->host->watchdog_lock;
    pthread_mutex_lock(lock);
    while (!d->stop) {
        uint64_t now = now_ns(), next = 0;
        for (struct kri_budget *b = d->budgets; b; b = b->next) {
            if (b->due && b->due <= now)
                advance_locked(d->vm, b, KR_TIME_EXCEEDED);
            if (b->due && (!next || b->due < next))
                next = b->due;
        }
        struct timespec until = {.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)};
        if (next)
            pthread_cond_timedwait(&d->changed, lock, &until);
        else
            pthread_cond_wait(&d->changed, lock);
    }
    pthread_mutex_unlock(lock);
    return NULL;
}

/* The VM's watchdog, made at the first budget. Caller holds watchdog_lock. */
static struct kri_watchdog *watchdog_locked(struct kr_vm *vm)
{
    struct kri_watchdog *d = vm->host->watchdog;
    if (d)
        return d;
    d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->vm = vm;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &attr);
    pthread_condattr_destroy(&attr);
    sigset_t all, old; /* signals are the host's affair */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&d->tid, NULL, watch, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        pthread_cond_destroy(&d->changed);
        free(d);
        return NULL;
    }
    vm->host->watchdog = d;
    return d;
}

void kri_watchdog_stop(struct kr_vm *vm)
{
    struct kri_watchdog *d = vm->host->watchdog;
    if (!d)
        return;
    pthread_mutex_lock(&vm->host->watchdog_lock);
    d->stop = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&vm->host->watchdog_lock);
    pthread_join(d->tid, NULL);
    for (struct kri_budget *b = d->budgets, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    pthread_cond_destroy(&d->changed);
    free(d);
    vm->host->watchdog = NULL;
}

/* ---- where the program stands ---- */

/* Cleanup forms up to E are not run: they had their time. */
static void unwind(struct kri_worker *w, bool cleanups)
{
    struct kri_entry *e = w->ctx->entry;
    while (e && !e->barrier)
        e = e->prev;
    if (!e)
        return; /* nothing runs here */
    if (!cleanups)
        kri_forget_cleanups(w->ctx, e);
    kri_unwind_to(w, e->handler, w->vm->budget_condition);
}

void kri_budget_poll(struct kri_worker *w)
{
    struct kr_context *ctx = w->ctx;
    struct kri_budget *b = budget_of(ctx);
    if (!b)
        return;
    switch ((enum stage)kri_load_acquire(&b->stage)) {
    case WITHIN:
        return;
    case EXCEEDED:
        if (ctx->budget_told || !ctx->entry)
            return;
        ctx->budget_told = true;
        kri_error(w, KRI_E_BUDGET, KRI_NIL, b->why == KR_HEAP_EXCEEDED ? "memory" : "time");
    case UNWIND:
        unwind(w, true);
        return;
    case NOW:
        unwind(w, false);
        return;
    }
}

static void exceed(struct kr_vm *vm, struct kri_budget *b)
{
    pthread_mutex_lock(&vm->host->watchdog_lock);
    if (kri_load_relaxed(&b->stage) == WITHIN) {
        advance_locked(vm, b, KR_HEAP_EXCEEDED);
        pthread_cond_broadcast(&vm->host->watchdog->changed);
    }
    pthread_mutex_unlock(&vm->host->watchdog_lock);
}

void kri_budget_memory(struct kri_worker *w)
{
    struct kri_budget *b = budget_of(w->ctx);
    if (b && b->live_most)
        exceed(w->vm, b);
}

void kri_budget_after_gc(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    struct kri_heap_stats s;
    if (!vm->host->watchdog) /* set before a budget is, by a thread that made this one's request or was stopped with it */
        return;
    kri_heap_get_stats(w, &s);
    kri_lock(w, &vm->host->watchdog_lock);
    for (struct kri_budget *b = vm->host->watchdog->budgets; b; b = b->next)
        if (b->live_most && s.live_bytes > b->live_most && kri_load_relaxed(&b->stage) == WITHIN) {
            advance_locked(vm, b, KR_HEAP_EXCEEDED);
            pthread_cond_broadcast(&vm->host->watchdog->changed);
        }
    kri_unlock(&vm->host->watchdog_lock);
}

/* ---- life ---- */

/* Caller holds watchdog_lock. */
static void drop_locked(struct kr_vm *vm, struct kri_budget *b)
{
    if (--b->users > 0)
        return;
    struct kri_budget **at = &vm->host->watchdog->budgets;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    free(b);
}

void kri_budget_inherit(struct kr_context *from, struct kr_context *to)
{
    struct kri_budget *b = budget_of(from);
    if (!b)
        return;
    kri_lock(from->worker, &from->vm->host->watchdog_lock);
    b->users++;
    to->budget_told = false;
    kri_store_release(&to->budget, (size_t)b);
    kri_unlock(&from->vm->host->watchdog_lock);
    kri_heap_limit_worker(to->worker, b->live_most ? b->heap_most : 0);
    if (kri_load_acquire(&b->stage) != WITHIN)
        kri_request(to->worker, KRI_REQUEST_BUDGET);
}

void kri_budget_drop(struct kr_context *ctx)
{
    struct kri_budget *b = budget_of(ctx);
    if (!b)
        return;
    kri_lock(ctx->worker, &ctx->vm->host->watchdog_lock);
    kri_store_release(&ctx->budget, 0);
    drop_locked(ctx->vm, b);
    kri_unlock(&ctx->vm->host->watchdog_lock);
    kri_heap_limit_worker(ctx->worker, 0);
    kri_withdraw(ctx->worker, KRI_REQUEST_BUDGET);
    ctx->budget_told = false;
}

/* Memory is measured from what lives now. */
static void measure(struct kri_worker *w, struct kri_budget *b, size_t bytes)
{
    struct kri_heap_stats s;
    kri_collect(w, KRI_GC_REQUEST);
    kri_heap_get_stats(w, &s);
    b->live_most = (size_t)s.live_bytes + bytes;
    b->heap_most = (size_t)s.heap_bytes + bytes;
}

kr_status kr_budget_begin(kr_context *ctx, const kr_budget *budget)
{
    struct kr_vm *vm = ctx->vm;
    KRI_CHECK_CONTEXT(ctx);
    if (budget_of(ctx))
        return KR_BAD_TYPE;
    struct kri_budget *b = calloc(1, sizeof *b);
    if (!b)
        return KR_NO_MEMORY;
    struct kri_visit visit = kri_visit_begin(ctx);
    b->users = 1;
    b->grace = budget->time_ns / 10;
    b->grace = b->grace < LEAST_GRACE_NS ? (uint64_t)LEAST_GRACE_NS : b->grace > MOST_GRACE_NS ? (uint64_t)MOST_GRACE_NS : b->grace;
    if (budget->heap_bytes)
        measure(ctx->worker, b, budget->heap_bytes);
    uint64_t now = now_ns(); /* after the collection, which is not the script's */
    b->due = !budget->time_ns ? 0 : budget->time_ns > UINT64_MAX / 2 ? 0 : now + budget->time_ns;
    kri_lock(ctx->worker, &vm->host->watchdog_lock);
    struct kri_watchdog *d = watchdog_locked(vm);
    if (d) {
        b->next = d->budgets;
        d->budgets = b;
        pthread_cond_broadcast(&d->changed);
        ctx->budget_told = false;
        ctx->budget_own = true;
        kri_store_release(&ctx->budget, (size_t)b);
    }
    kri_unlock(&vm->host->watchdog_lock);
    if (d)
        kri_heap_limit_worker(ctx->worker, b->live_most ? b->heap_most : 0);
    else
        free(b);
    kri_visit_end(ctx, visit);
    return d ? KR_OK : KR_NO_MEMORY;
}

kr_exceeded kr_budget_end(kr_context *ctx)
{
    struct kr_vm *vm = ctx->vm;
    struct kri_budget *b = budget_of(ctx);
    KRI_CHECK_CONTEXT(ctx);
    if (!b || !ctx->budget_own) {
        if (kri_is_checking())
            kri_misuse(vm, __func__, "no budget was begun");
        return KR_WITHIN_BUDGET;
    }
    struct kri_visit visit = kri_visit_begin(ctx);
    kri_lock(ctx->worker, &vm->host->watchdog_lock);
    kr_exceeded why = b->why;
    ctx->budget_own = false;
    kri_store_release(&ctx->budget, 0);
    if (b->users > 1 && kri_load_relaxed(&b->stage) < UNWIND) { /* threads that still run under it are not to go on */
        kri_store_release(&b->stage, EXCEEDED);
        advance_locked(vm, b, KR_WITHIN_BUDGET);
        pthread_cond_broadcast(&vm->host->watchdog->changed);
    }
    drop_locked(vm, b);
    kri_unlock(&vm->host->watchdog_lock);
    kri_heap_limit_worker(ctx->worker, 0);
    kri_withdraw(ctx->worker, KRI_REQUEST_BUDGET);
    ctx->budget_told = false;
    kri_visit_end(ctx, visit);
    return why;
}
