/* builtin_thread.c -- EusLisp's threads: a pool of kernel threads to which calls are handed; locks, conditions, semaphores.
 *
 * Each thread of the pool is a context with a worker of its own, and a Lisp object of class thread. All its C fields are
 * guarded by the pool's lock; whoever waits on a condition variable does so outside the gate, so it delays no collection.
 * Locks, conditions and semaphores are integer-vectors, as in EusLisp; their first words are the state, changed by compare-and-
 * swap or under one of a few stripe locks chosen by address. A program that scribbles over one may make threads wait, not crash.
 * Lock order: pool lock, then a stripe lock; vm->lock is a leaf. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "lisp/host.h"
#include "lisp/profile.h"
#include "lisp/init.h"
#include "lisp/stream.h"
#include "lisp/unix.h"

enum { STRIPES = 16, DEFAULT_NATIVE_STACK = 1 << 20 };

enum thread_state { THREAD_STARTING, THREAD_IDLE, THREAD_REQUESTED, THREAD_RUNNING, THREAD_DONE, THREAD_ENDING, THREAD_ENDED, THREAD_FAILED_START };

struct pool_thread {
    struct kr_vm *vm;
    struct kr_context *ctx;     /* set while it lives */
    pthread_t tid;
    pid_t kernel;               /* the kernel's number of it; 0 before it runs */
    unsigned number;            /* 1 and up; the thread object's id */
    enum thread_state state;
    bool made;                  /* tid is to be joined */
    bool asked;                 /* to stop what it runs */
    bool reserved;              /* by sys:thread, until wait-thread */
    bool failed;                /* result is a condition */
    kr_value object;            /* also in sys:*threads* and vm->roots */
};

struct stripe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct kri_threads {
    pthread_mutex_t lock;       /* guards the rest, and all pool_thread fields */
    pthread_cond_t changed;     /* some thread's state changed */
    struct pool_thread **thread;
    unsigned count, size;
    enum kri_stopping stopping;
    struct stripe stripe[STRIPES];
};

static struct kri_threads *threads_of(struct kri_worker *w) { return w->vm->threads; }

static bool threads_init(struct kr_vm *vm)
{
    struct kri_threads *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, &attr);
    for (int i = 0; i < STRIPES; i++) {
        pthread_mutex_init(&t->stripe[i].lock, NULL);
        pthread_cond_init(&t->stripe[i].changed, &attr);
    }
    pthread_condattr_destroy(&attr);
    vm->threads = t;
    return true;
}

/* ---- waiting outside the gate ---- */

struct wait {
    pthread_mutex_t *lock; /* held on entry and return */
    pthread_cond_t *changed;
    struct timespec until;
    bool timed_out;
};

static void wait_outside(void *arg)
{
    struct wait *x = arg;
    x->timed_out = pthread_cond_timedwait(x->changed, x->lock, &x->until) == ETIMEDOUT;
}

static struct timespec after_ms(long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static bool is_past(const struct timespec *t)
{
    struct timespec now = after_ms(0);
    return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

static void wait_forever(void *arg)
{
    struct wait *x = arg;
    pthread_cond_wait(x->changed, x->lock);
}

/* Wait for a change; false: an interrupt is due. The wait looks up ten times a second because a signal handler can post a request
 * but cannot signal a condition variable. */
static bool wait_a_while(struct kri_worker *w, pthread_mutex_t *lock, pthread_cond_t *changed)
{
    struct wait x = {.lock = lock, .changed = changed, .until = after_ms(100)};
    kri_blocking(w, wait_outside, &x);
    return kri_load_relaxed(&w->lisp_limit) != 0;
}

/* The same; on false the lock was released to let the interrupt in (it may raise). */
static bool wait_for_change(struct kri_worker *w, pthread_mutex_t *lock, pthread_cond_t *changed)
{
    if (wait_a_while(w, lock, changed))
        return true;
    pthread_mutex_unlock(lock);
    kri_poll_slow(w);
    kri_lock(w, lock);
    return false;
}

/* ---- a thread of the pool ---- */

static struct kri_thread *thread_cell(kr_value v) { return (struct kri_thread *)v.w; }

static kr_value run_job(struct kri_worker *w, void *arg)
{
    const struct pool_thread *p = arg;
    kr_value fn = kri_slot(&thread_cell(p->object)->func), args = kri_slot(&thread_cell(p->object)->args);
    kr_value argv[2] = {fn, args};
    return kri_call(w, kri_symbol_function(w->vm, w->vm->sym.apply), 2, argv);
}

static void report_failure(struct kri_worker *w, const struct pool_thread *p, kr_value condition)
{
    char where[40];
    snprintf(where, sizeof where, "in thread %u", p->number);
    kri_report_error(w, condition, where);
}

struct thread_wait {
    struct kri_threads *t;
    struct pool_thread *p;
};

/* Who has been claimed must wait for the request, also at the end: the claimer is at work on this context. */
static void wait_for_request(void *arg)
{
    struct thread_wait *x = arg;
    pthread_mutex_lock(&x->t->lock);
    while (x->p->state != THREAD_REQUESTED && !(x->t->stopping && x->p->state != THREAD_STARTING))
        pthread_cond_wait(&x->t->changed, &x->t->lock);
    x->p->state = x->p->state == THREAD_REQUESTED ? THREAD_RUNNING : THREAD_ENDING;
    x->p->asked = false;
    pthread_mutex_unlock(&x->t->lock);
}

static void set_state(struct kri_worker *w, struct pool_thread *p, enum thread_state state)
{
    struct kri_threads *t = threads_of(w);
    kri_lock(w, &t->lock);
    p->state = state;
    pthread_cond_broadcast(&t->changed);
    kri_unlock(&t->lock);
}

/* What was meant for the job that is over must not hit the next one. The pool's lock is held, so no interrupt comes after. */
static void drop_interrupts(struct kri_worker *w)
{
    kri_lock(w, &w->vm->lock);
    w->ctx->pending_interrupt = KRI_NIL;
    kri_unlock(&w->vm->lock);
    kri_withdraw(w, KRI_REQUEST_INTERRUPT);
}

static KRI_NOINLINE void *run_thread(struct pool_thread *p, void *base)
{
    struct kr_vm *vm = p->vm;
    struct kri_threads *t = vm->threads;
    struct kr_context *ctx = kri_attach(vm, base);
    if (!ctx) {
        pthread_mutex_lock(&t->lock);
        p->state = THREAD_FAILED_START;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        return NULL;
    }
    struct kri_worker *w = ctx->worker;
    kri_lock(w, &vm->contexts_lock); /* signal.c looks for it there */
    ctx->thread = p->object;
    kri_unlock(&vm->contexts_lock);
    kri_thread_started(ctx);
    kri_lock(w, &t->lock);
    p->ctx = ctx;
    p->kernel = gettid();
    p->state = THREAD_IDLE;
    pthread_cond_broadcast(&t->changed);
    kri_unlock(&t->lock);
    for (;;) {
        struct thread_wait x = {t, p};
        kri_blocking(w, wait_for_request, &x);
        kri_lock(w, &t->lock);
        bool go = p->state == THREAD_RUNNING;
        kri_unlock(&t->lock);
        if (!go)
            break;
        kr_value result;
        bool ok = kri_protect(w, run_job, p, &result);
        kri_budget_drop(ctx);
        kri_release_locks(w);
        struct kri_thread *cell = thread_cell(p->object);
        kri_store(w, &cell->head, &cell->result, result);
        kri_lock(w, &t->lock);
        bool reserved = p->reserved, stopping = t->stopping;
        kri_unlock(&t->lock);
        if (!ok && !reserved && !stopping)
            report_failure(w, p, result);
        kri_lock(w, &t->lock);
        p->failed = !ok;
        p->state = p->reserved ? THREAD_DONE : THREAD_IDLE;
        drop_interrupts(w);
        kri_store(w, &cell->head, &cell->idle, kri_bool(w, !p->reserved));
        pthread_cond_broadcast(&t->changed);
        kri_unlock(&t->lock);
    }
    kri_lock(w, &t->lock);
    p->ctx = NULL;
    kri_unlock(&t->lock);
    kri_detach(ctx);
    pthread_mutex_lock(&t->lock);
    p->state = THREAD_ENDED;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Its frame lies above all that hold values. */
static void *thread_main(void *arg)
{
    void *result = run_thread(arg, __builtin_frame_address(0));
    kri_compiler_barrier(); /* no tail call */
    return result;
}

/* Make one thread; NULL when the bound is reached or the system refuses (*WHY says). */
static struct pool_thread *thread_new(struct kri_worker *w, const char **why)
{
    struct kr_vm *vm = w->vm;
    struct kri_threads *t = vm->threads;
    kr_value object = kri_instantiate(w, vm->classes[KRI_CLASS_THREAD].object, -1);
    struct pool_thread *p = calloc(1, sizeof *p);
    *why = "memory is out";
    if (!p)
        return NULL;
    p->vm = vm;
    p->object = object;
    kri_lock(w, &t->lock);
    bool room = t->count < vm->max_threads && !t->stopping;
    if (room && t->count == t->size) {
        unsigned size = t->size ? 2 * t->size : 16;
        struct pool_thread **more = realloc(t->thread, size * sizeof *more);
        if (more) {
            t->thread = more;
            t->size = size;
        } else {
            room = false;
        }
    } else if (!room) {
        *why = "the bound of the thread pool is reached (--threads)";
    }
    if (room) {
        p->number = t->count + 1;
        t->thread[t->count++] = p;
    }
    kri_unlock(&t->lock);
    if (!room) {
        free(p);
        return NULL;
    }
    kri_store(w, kri_ptr(object), &thread_cell(object)->id, kri_fixnum((intptr_t)p->number));
    kri_store(w, kri_ptr(object), &thread_cell(object)->idle, vm->sym.t);
    kr_value all = kri_cons(w, object, KRI_NIL);
    kri_lock(w, &t->lock);
    struct kri_symbol *threads = kri_symbol_of(vm, vm->sym.threads);
    kri_store(w, kri_ptr(all), &kri_cons_of(all)->cdr, kri_slot(&threads->value));
    kri_store(w, &threads->head, &threads->value, all);
    kri_unlock(&t->lock);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, DEFAULT_NATIVE_STACK);
    /* Signals are the host's affair: threads of the pool take none. */
    sigset_t all_signals, old;
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &old);
    int error = pthread_create(&p->tid, &attr, thread_main, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    kri_lock(w, &t->lock);
    p->made = error == 0;
    if (error)
        p->state = THREAD_FAILED_START;
    while (p->state == THREAD_STARTING) {
        struct wait x = {.lock = &t->lock, .changed = &t->changed};
        kri_blocking(w, wait_forever, &x);
    }
    bool ok = p->state != THREAD_FAILED_START;
    kri_unlock(&t->lock);
    *why = "the system made no thread";
    return ok ? p : NULL;
}

/* ---- handing out work ---- */

static struct pool_thread *thread_of(struct kri_worker *w, const kr_value *argv, int i)
{
    struct kri_threads *t = threads_of(w);
    struct pool_thread *p = NULL;
    if (kri_is_pointer(argv[i]) && kri_derivedp(w->vm, argv[i], w->vm->classes[KRI_CLASS_THREAD].object)) {
        kri_lock(w, &t->lock);
        for (unsigned k = 0; k < t->count && !p; k++)
            if (kri_eq(t->thread[k]->object, argv[i]))
                p = t->thread[k];
        kri_unlock(&t->lock);
    }
    if (!p)
        kri_error(w, KRI_E_THREAD, argv[i], "a thread expected");
    return p;
}

/* Claim an idle thread, making one if need be; it is REQUESTED by nobody else afterwards. */
static struct pool_thread *claim(struct kri_worker *w, bool reserved)
{
    struct kri_threads *t = threads_of(w);
    for (;;) {
        struct pool_thread *p = NULL;
        kri_lock(w, &t->lock);
        for (unsigned i = 0; i < t->count && !p; i++)
            if (t->thread[i]->state == THREAD_IDLE && t->thread[i]->ctx)
                p = t->thread[i];
        if (p) {
            p->state = THREAD_STARTING; /* claimed: only we go on with it */
            p->reserved = reserved;
            p->failed = false;
        }
        kri_unlock(&t->lock);
        if (p)
            return p;
        const char *why;
        if (!thread_new(w, &why))
            kri_error(w, KRI_E_THREAD, KRI_NIL, "no thread is free: %s", why);
    }
}

static kr_value hand_out(struct kri_worker *w, int argc, kr_value *argv, bool reserved)
{
    struct kri_threads *t = threads_of(w);
    kr_value fn = kri_coerce_function(w, argv[0]);
    kr_value args = kri_list_from(w, argv + 1, (size_t)(argc - 1));
    struct pool_thread *p = claim(w, reserved);
    struct kri_thread *cell = thread_cell(p->object);
    kri_store(w, &cell->head, &cell->func, fn);
    kri_store(w, &cell->head, &cell->args, args);
    kri_store(w, &cell->head, &cell->requester, w->ctx->thread);
    kri_store(w, &cell->head, &cell->result, KRI_NIL);
    kri_store(w, &cell->head, &cell->idle, KRI_NIL);
    /* The new job inherits this context's bindings. The thread is parked outside the gate and nobody else claims it; the
     * pool lock, taken below, publishes the copy. */
    struct kr_context *from = w->ctx, *to = p->ctx;
    if (from->dynamic_size > 0 && !kri_dynamic_ensure(to, from->dynamic_size - 1)) {
        set_state(w, p, THREAD_IDLE);
        kri_error_memory(w, 0);
    }
    for (size_t i = 0; i < to->dynamic_size; i++)
        to->dynamic[i] = i < from->dynamic_size ? from->dynamic[i] : KRI_UNBOUND;
    /* But not its handlers and restarts: they leave by a throw to frames that the other thread does not have. */
    const kr_value own[] = {w->vm->sym.handler_clusters, w->vm->sym.restarts, w->vm->sym.error_handler};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t index = (size_t)kri_fixnum_value(kri_symbol_of(w->vm, own[i])->special);
        if (!kri_dynamic_ensure(to, index)) {
            set_state(w, p, THREAD_IDLE);
            kri_error_memory(w, 0);
        }
        to->dynamic[index] = KRI_NIL;
    }
    kri_budget_inherit(from, to);
    kr_value object = p->object;
    kri_lock(w, &t->lock);
    p->state = THREAD_REQUESTED;
    pthread_cond_broadcast(&t->changed);
    kri_unlock(&t->lock);
    return object;
}

KR_BUILTIN(make_thread, "sys:make-thread", "(n &optional lisp-stack native-stack)",
           "Make N idle threads for sys:thread; returns them as a list. The stack sizes are accepted and ignored: stacks grow.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    kr_value list = KRI_NIL;
    for (intptr_t i = 0; i < n; i++) {
        const char *why;
        struct pool_thread *p = thread_new(w, &why);
        if (!p)
            kri_error(w, KRI_E_THREAD, argv[0], "%d threads made: %s", (int)i, why);
        list = kri_cons(w, p->object, list);
    }
    return list;
}

KR_BUILTIN(thread, "sys:thread", "(function &rest args)",
           "Call FUNCTION with ARGS in another thread of the pool, made if none is free; returns the thread, which stays "
           "reserved until wait-thread. Error: thread error, when the pool's bound is reached.")
{
    return hand_out(w, argc, argv, true);
}

KR_BUILTIN(thread_no_wait, "sys:thread-no-wait", "(function &rest args)",
           "Like sys:thread, but nobody will wait: the thread is free again when FUNCTION returns. Its errors are reported on standard error.")
{
    return hand_out(w, argc, argv, false);
}

KR_BUILTIN(wait_thread, "sys:wait-thread", "(thread)",
           "Wait until THREAD has done its call and return the result; frees THREAD. An error in it is signalled here, with its "
           "backtrace. Waiting again returns the same result, until THREAD gets another call.")
{
    struct kri_threads *t = threads_of(w);
    struct pool_thread *p = thread_of(w, argv, 0);
    if (p->ctx == w->ctx)
        kri_error(w, KRI_E_THREAD, argv[0], "a thread cannot wait for itself");
    kri_lock(w, &t->lock);
    while (p->state == THREAD_REQUESTED || p->state == THREAD_RUNNING || p->state == THREAD_STARTING)
        wait_for_change(w, &t->lock, &t->changed);
    bool failed = p->failed;
    if (p->state == THREAD_DONE) {
        p->state = THREAD_IDLE;
        p->reserved = false;
        pthread_cond_broadcast(&t->changed);
    }
    kr_value result = kri_slot(&thread_cell(p->object)->result);
    kri_store(w, kri_ptr(p->object), &thread_cell(p->object)->idle, kri_bool(w, true));
    kri_unlock(&t->lock);
    if (failed && kri_is_pointer(result) && kri_derivedp(w->vm, result, w->vm->classes[KRI_CLASS_CONDITION].object))
        kri_raise(w, result);
    if (failed)
        kri_error(w, KRI_E_THREAD, argv[0], "it was stopped");
    return result;
}

KR_BUILTIN(free_threads, "sys::free-threads", "()", "The threads of the pool that wait for work.")
{
    struct kri_threads *t = threads_of(w);
    kr_value list = KRI_NIL;
    for (unsigned i = 0;; i++) {
        kr_value object = KRI_NIL;
        kri_lock(w, &t->lock);
        bool more = i < t->count;
        if (more && t->thread[i]->state == THREAD_IDLE)
            object = t->thread[i]->object;
        kri_unlock(&t->lock);
        if (!more)
            return list;
        if (!kri_is_nil(object))
            list = kri_cons(w, object, list);
    }
}

KR_BUILTIN(thread_self, "sys:thread-self", "()", "The thread that runs this; nil in the first one.") { return w->ctx->thread; }

KR_BUILTIN(thr_self, "unix:thr-self", "()", "The number of the thread that runs this; 0 in the first one.")
{
    return kri_is_nil(w->ctx->thread) ? kri_fixnum(0) : kri_slot(&thread_cell(w->ctx->thread)->id);
}

KR_BUILTIN(kernel_thread, "sys::%kernel-thread", "(number)", "The kernel's number of the thread with NUMBER (0: the process); nil if there is none.")
{
    struct kri_threads *t = threads_of(w);
    intptr_t number = kri_arg_natural(w, argv, 0);
    pid_t kernel = 0;
    if (number == 0)
        return kri_fixnum(getpid());
    kri_lock(w, &t->lock);
    if ((size_t)number <= t->count && t->thread[number - 1]->state != THREAD_ENDED)
        kernel = t->thread[number - 1]->kernel;
    kri_unlock(&t->lock);
    return kernel ? kri_fixnum(kernel) : KRI_NIL;
}

/* Caller holds vm->lock. */
static void append_interrupt_locked(struct kri_worker *w, struct kr_context *ctx, kr_value entry)
{
    kr_value last = KRI_NIL;
    for (kr_value l = ctx->pending_interrupt; kri_is_cons(l); l = kri_cdr(l)) {
        if (kri_is_nil(kri_car(entry)) && kri_is_nil(kri_car(l)))
            return;
        last = l;
    }
    if (kri_is_nil(last))
        ctx->pending_interrupt = entry;
    else
        kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, entry);
}

/* Whoever waits for anything looks again. */
static void wake_all(struct kri_threads *t)
{
    pthread_cond_broadcast(&t->changed);
    for (int i = 0; i < STRIPES; i++)
        pthread_cond_broadcast(&t->stripe[i].changed);
}

KR_BUILTIN(interrupt_thread, "sys:interrupt-thread", "(thread &optional function)",
           "Have THREAD call FUNCTION at its next poll, or without FUNCTION raise the error interrupted there. Functions that wait are "
           "called in order; errors that wait are one. nil if it runs nothing.")
{
    struct kri_threads *t = threads_of(w);
    struct pool_thread *p = thread_of(w, argv, 0);
    kr_value fn = argc > 1 ? kri_coerce_function(w, argv[1]) : KRI_NIL;
    kr_value entry = kri_cons(w, fn, KRI_NIL);
    kri_lock(w, &t->lock);
    bool running = (p->state == THREAD_RUNNING || p->state == THREAD_REQUESTED) && p->ctx; /* requested: at its first poll */
    if (running) {
        kri_lock(w, &w->vm->lock);
        append_interrupt_locked(w, p->ctx, entry);
        kri_unlock(&w->vm->lock);
        kri_request(p->ctx->worker, KRI_REQUEST_INTERRUPT);
        wake_all(t);
    }
    kri_unlock(&t->lock);
    return kri_bool(w, running);
}

/* ---- the end ---- */

enum { GRACE_MS = 1000 }; /* for cleanup forms when the VM ends */

enum kri_stopping kri_threads_stopping(struct kri_worker *w)
{
    struct kri_threads *t = threads_of(w);
    if (!t || kri_is_nil(w->ctx->thread))
        return KRI_STOPPING_NOT;
    kri_lock(w, &t->lock);
    enum kri_stopping stopping = t->stopping;
    kri_unlock(&t->lock);
    return stopping;
}

void kri_threads_stop(struct kri_worker *w)
{
    struct kri_threads *t = threads_of(w);
    if (!t)
        return;
    kri_lock(w, &t->lock);
    t->stopping = KRI_STOPPING;
    /* Asked once, a thread unwinds and runs its cleanup forms. If it is still there after a while it is asked again and again. */
    for (const struct timespec until = after_ms(GRACE_MS);;) {
        bool alive = false;
        if (is_past(&until))
            t->stopping = KRI_STOPPING_NOW;
        for (unsigned i = 0; i < t->count; i++) {
            struct pool_thread *p = t->thread[i];
            alive |= p->state != THREAD_ENDED && p->state != THREAD_FAILED_START;
            if (p->ctx && p->state == THREAD_RUNNING && (!p->asked || t->stopping == KRI_STOPPING_NOW)) {
                p->asked = true;
                kri_request(p->ctx->worker, KRI_REQUEST_INTERRUPT);
            }
        }
        wake_all(t);
        if (!alive)
            break;
        struct wait x = {.lock = &t->lock, .changed = &t->changed, .until = after_ms(10)};
        kri_blocking(w, wait_outside, &x);
    }
    kri_unlock(&t->lock);
    /* They are past their last look at the VM, but not necessarily past their last instruction. */
    for (unsigned i = 0; i < t->count; i++) {
        if (t->thread[i]->made)
            pthread_join(t->thread[i]->tid, NULL);
        free(t->thread[i]);
    }
    free(t->thread);
    for (int i = 0; i < STRIPES; i++) {
        pthread_mutex_destroy(&t->stripe[i].lock);
        pthread_cond_destroy(&t->stripe[i].changed);
    }
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t);
    w->vm->threads = NULL;
}

struct fork {
    pid_t pid;
    int error;
};

static void fork_stopped(struct kri_worker *w, void *arg)
{
    struct fork *f = arg;
    f->pid = fork();
    f->error = errno;
    if (f->pid != 0)
        return;
    kri_heap_after_fork(w);
    kri_streams_after_fork(w);
    kri_signals_after_fork(w);
    kri_profile_after_fork(w->vm);
    kri_children_after_fork();
}

/* The other contexts' threads are gone, and with them whatever locks they held. */
static void keep_this_thread(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    struct kri_threads *t = vm->threads;
    pthread_mutex_init(&vm->lock, NULL);
    pthread_mutex_init(&vm->package_lock, NULL);
    pthread_mutex_init(&vm->contexts_lock, NULL);
    if (vm->host)
        vm->host->process = getpid();
    for (struct kr_context *c = vm->contexts, *next; c; c = next) {
        next = c->next;
        if (c != w->ctx)
            kri_context_free(c);
    }
    for (unsigned i = 0; i < t->count; i++)
        free(t->thread[i]);
    free(t->thread);
    free(t);
    vm->threads = NULL;
    if (!threads_init(vm))
        kri_error_memory(w, 0);
    struct kri_symbol *threads = kri_symbol_of(vm, vm->sym.threads);
    kri_store(w, &threads->head, &threads->value, KRI_NIL);
}

int kri_fork(struct kri_worker *w)
{
    struct fork f;
    fflush(NULL);
    kri_with_world_stopped(w, fork_stopped, &f);
    if (f.pid == 0)
        keep_this_thread(w);
    else if (f.pid > 0)
        kri_children_forked();
    errno = f.error;
    return f.pid;
}

KR_BUILTIN(fork, "unix:fork", "()",
           "Make a child process; returns its number, 0 in the child, or -errno. The child keeps the calling thread only.")
{
    kri_stream_flush(w, kri_special(w, w->vm->sym.standard_output)); /* or the child would write it again */
    int pid = kri_fork(w);
    return pid < 0 ? kri_unix_error(errno) : kri_fixnum(pid);
}

/* ---- locks ---- */

static struct stripe *stripe_of(struct kri_worker *w, kr_value v) { return &threads_of(w)->stripe[v.w / KRI_GRANULE % STRIPES]; }

static kri_atomic *word(kr_value v, int i) { return (kri_atomic *)&kri_ivector_of(v)->at[i]; }

static kr_value sync_object(struct kri_worker *w, const kr_value *argv, int i)
{
    if (!kri_is_ivector(w->vm, argv[i]) || kri_length(argv[i]) < 2)
        kri_argument_error(w, i, argv[i], KRI_E_NO_INTEGER_VECTOR);
    return argv[i];
}

/* This thread's mark in a lock's owner word: never 0. */
static size_t owner_mark(const struct kri_worker *w) { return (size_t)(uintptr_t)w->ctx; }

static void held_add(struct kri_worker *w, kr_value lock)
{
    struct kr_context *ctx = w->ctx;
    if (ctx->held_count == ctx->held_size) {
        size_t size = ctx->held_size ? 2 * ctx->held_size : 8;
        kr_value *h = realloc(ctx->held, size * sizeof *h);
        if (!h)
            return; /* the lock works; it is only not released by the death of its thread */
        ctx->held = h;
        ctx->held_size = size;
    }
    ctx->held[ctx->held_count++] = lock;
}

static void held_remove(struct kri_worker *w, kr_value lock)
{
    struct kr_context *ctx = w->ctx;
    for (size_t i = ctx->held_count; i-- > 0;)
        if (kri_eq(ctx->held[i], lock)) {
            ctx->held[i] = ctx->held[--ctx->held_count];
            return;
        }
}

KR_BUILTIN(make_mutex_lock, "sys:make-mutex-lock", "(&optional type)",
           "A lock for mutex-lock and (sys:mutex lock form..), an integer-vector that is not to be written.")
{
    return kri_make_ivector(w, 5);
}

static bool lock_try(struct kri_worker *w, kr_value lock)
{
    /* Acquire: pairs with the release of lock_release; what the last owner wrote is seen. */
    if (!kri_cas(word(lock, 0), 0, owner_mark(w)))
        return false;
    held_add(w, lock);
    return true;
}

/* POLLS: interruptions are served meanwhile, which may raise; else the lock is held when this returns, whatever was asked. */
static void lock_acquire(struct kri_worker *w, kr_value lock, bool polls)
{
    struct stripe *s = stripe_of(w, lock);
    if (lock_try(w, lock))
        return;
    if (kri_load_relaxed(word(lock, 0)) == owner_mark(w))
        kri_error(w, KRI_E_THREAD, lock, "this thread holds the lock already");
    kri_lock(w, &s->lock);
    /* Count ourselves, then look again: the releaser clears the owner, then looks at the count, by adding nothing to it. One of the two
     * read-modify-writes of the count comes second and sees what came before the first. */
    kri_fetch_add(word(lock, 1), 1);
    while (!lock_try(w, lock)) {
        if (!wait_a_while(w, &s->lock, &s->changed) && polls) {
            kri_fetch_add(word(lock, 1), (size_t)-1);
            pthread_mutex_unlock(&s->lock);
            kri_poll_slow(w);
            kri_lock(w, &s->lock);
            kri_fetch_add(word(lock, 1), 1);
        }
    }
    kri_fetch_add(word(lock, 1), (size_t)-1);
    kri_unlock(&s->lock);
}

static void lock_release(struct kri_worker *w, kr_value lock)
{
    if (!kri_cas(word(lock, 0), owner_mark(w), 0))
        kri_error(w, KRI_E_THREAD, lock, "this thread does not hold the lock");
    held_remove(w, lock);
    if (kri_fetch_add(word(lock, 1), 0) != 0) { /* see lock_acquire */
        struct stripe *s = stripe_of(w, lock);
        kri_lock(w, &s->lock);
        pthread_cond_broadcast(&s->changed);
        kri_unlock(&s->lock);
    }
}

void kri_release_locks(struct kri_worker *w)
{
    while (w->ctx->held_count > 0) {
        kr_value lock = w->ctx->held[w->ctx->held_count - 1];
        if (kri_load_relaxed(word(lock, 0)) == owner_mark(w))
            lock_release(w, lock);
        else
            w->ctx->held_count--;
    }
}

KR_BUILTIN(mutex_lock, "sys:mutex-lock", "(lock)", "Take LOCK, waiting until it is free. Returns t. Error: this thread holds it already.")
{
    lock_acquire(w, sync_object(w, argv, 0), true);
    return w->vm->sym.t;
}

KR_BUILTIN(mutex_trylock, "sys:mutex-trylock", "(lock)", "Take LOCK if it is free: t, else nil.")
{
    return kri_bool(w, lock_try(w, sync_object(w, argv, 0)));
}

KR_BUILTIN(mutex_unlock, "sys:mutex-unlock", "(lock)", "Release LOCK, which this thread must hold. Returns t.")
{
    lock_release(w, sync_object(w, argv, 0));
    return w->vm->sym.t;
}

KR_BUILTIN(make_cond, "sys:make-cond", "()", "A condition variable for cond-wait and cond-signal.") { return kri_make_ivector(w, 12); }

KR_BUILTIN(cond_wait, "sys:cond-wait", "(condition lock)",
           "Release LOCK, wait for a cond-signal of CONDITION, take LOCK again. Returns t. May return early: test what you wait for in a loop.")
{
    kr_value c = sync_object(w, argv, 0), lock = sync_object(w, argv, 1);
    struct stripe *s = stripe_of(w, c);
    size_t seen = kri_load_acquire(word(c, 0));
    lock_release(w, lock);
    kri_lock(w, &s->lock);
    bool interrupted = false;
    while (kri_load_relaxed(word(c, 0)) == seen && !interrupted)
        interrupted = !wait_a_while(w, &s->lock, &s->changed);
    kri_unlock(&s->lock);
    /* The lock is taken again before the interrupt runs: a form around that releases it finds it held. */
    lock_acquire(w, lock, false);
    kri_poll(w);
    return w->vm->sym.t;
}

/* Add one to the count of V, a semaphore or of a condition variable's signals, and wake who waits for it. */
static kr_value count_and_wake(struct kri_worker *w, kr_value v)
{
    struct stripe *s = stripe_of(w, v);
    kri_lock(w, &s->lock);
    kri_store_release(word(v, 0), kri_load_relaxed(word(v, 0)) + 1);
    pthread_cond_broadcast(&s->changed);
    kri_unlock(&s->lock);
    return w->vm->sym.t;
}

KR_BUILTIN(cond_signal, "sys:cond-signal", "(condition)", "Wake the threads that wait for CONDITION. Returns t.")
{
    return count_and_wake(w, sync_object(w, argv, 0));
}

KR_BUILTIN(make_semaphore, "sys:make-semaphore", "()", "A counting semaphore, its count 0.") { return kri_make_ivector(w, 12); }

KR_BUILTIN(sema_post, "sys:sema-post", "(semaphore)", "Add one to SEMAPHORE's count and wake a waiter. Returns t.")
{
    return count_and_wake(w, sync_object(w, argv, 0));
}

static bool sema_take_locked(kr_value v)
{
    intptr_t n = (intptr_t)kri_load_acquire(word(v, 0));
    if (n <= 0)
        return false;
    kri_store_release(word(v, 0), (size_t)(n - 1));
    return true;
}

KR_BUILTIN(sema_wait, "sys:sema-wait", "(semaphore)", "Wait until SEMAPHORE's count is above 0 and take one off. Returns t.")
{
    kr_value v = sync_object(w, argv, 0);
    struct stripe *s = stripe_of(w, v);
    kri_lock(w, &s->lock);
    while (!sema_take_locked(v))
        wait_for_change(w, &s->lock, &s->changed);
    kri_unlock(&s->lock);
    return w->vm->sym.t;
}

KR_BUILTIN(sema_trywait, "sys:sema-trywait", "(semaphore)", "Take one off SEMAPHORE's count if it is above 0: t, else nil.")
{
    kr_value v = sync_object(w, argv, 0);
    struct stripe *s = stripe_of(w, v);
    kri_lock(w, &s->lock);
    bool taken = sema_take_locked(v);
    kri_unlock(&s->lock);
    return kri_bool(w, taken);
}

void kri_thread_init(struct kri_worker *w)
{
    if (!threads_init(w->vm))
        kri_error_memory(w, 0);
}

const struct kri_builtin *const kri_builtins_thread[] = {
    &make_thread_def, &thread_def, &thread_no_wait_def, &wait_thread_def, &free_threads_def, &thread_self_def, &thr_self_def, &kernel_thread_def,
    &interrupt_thread_def, &fork_def, &make_mutex_lock_def, &mutex_lock_def, &mutex_trylock_def, &mutex_unlock_def, &make_cond_def,
    &cond_wait_def, &cond_signal_def, &make_semaphore_def, &sema_post_def, &sema_wait_def, &sema_trywait_def, NULL};
