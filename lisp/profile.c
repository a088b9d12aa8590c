/* profile.c -- where the time goes and where memory is allocated, by samples.
 *
 * Time: a thread that is no worker wakes at an interval and asks every worker that runs Lisp for a sample; a worker looks at its own
 * frames at its next poll, so nothing touches Lisp data from outside, and no signal is used. A poll is at the entry of a function
 * or the end of a loop's turn: a call that is about to begin is counted as its function's.
 * Allocation: the heap tells when a worker fetches memory; the bytes are counted for the line that made it fetch. A line that
 * allocates more fetches more often, so the shares are right in the long run.
 * The samples are summed in a table outside the heap, guarded by a lock under which nothing is allocated in Lisp, raised or polled. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "lisp/frame.h"
#include "lisp/profile.h"

enum { MOST_FRAMES = 400, FIRST_SIZE = 256 };

/* A row: a function in a thread, or with a line and a builtin a site. */
struct row {
    kr_value code;      /* NIL: a free place */
    kr_value thread;    /* a thread object, NIL for others */
    kr_value builtin;   /* a site's: the code of the builtin that allocated, or NIL */
    unsigned line;
    uint64_t self, total, stamp;
};

struct kri_profile {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    pthread_t thread;
    bool running, allocation;
    uint64_t interval_ns, samples;
    struct row *row;
    size_t size, count;
    struct kri_heap *heap;
};

/* ---- the table ---- */

static size_t place(const struct row *rows, size_t size, const struct row *key)
{
    uintptr_t h = (key->code.w ^ key->thread.w * 31 ^ key->builtin.w * 17 ^ key->line) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (size - 1);
    while (!kri_is_nil(rows[i].code) && !(kri_eq(rows[i].code, key->code) && kri_eq(rows[i].thread, key->thread) &&
                                          kri_eq(rows[i].builtin, key->builtin) && rows[i].line == key->line))
        i = (i + 1) & (size - 1);
    return i;
}

/* The row of KEY, made if there is none; NULL when memory is out. Caller holds lock. */
static struct row *row_locked(struct kri_profile *p, const struct row *key)
{
    if ((p->count + 1) * 2 > p->size) {
        size_t size = p->size ? p->size * 2 : FIRST_SIZE;
        struct row *rows = calloc(size, sizeof *rows);
        if (!rows)
            return NULL;
        for (size_t i = 0; i < p->size; i++)
            if (!kri_is_nil(p->row[i].code))
                rows[place(rows, size, &p->row[i])] = p->row[i];
        free(p->row);
        p->row = rows;
        p->size = size;
    }
    struct row *r = &p->row[place(p->row, p->size, key)];
    if (kri_is_nil(r->code)) {
        *r = *key;
        p->count++;
    }
    return r;
}

static kr_value code_value(const struct kri_code *code) { return kri_value_of(&code->head); }

/* The code of the function that is about to run or, if it is a builtin, runs; NULL: the innermost frame's. */
static const struct kri_code *leaf(struct kri_worker *w)
{
    return w->ctx->top && kri_is_function(w->callee) ? kri_code_of(w->callee) : NULL;
}

/* Caller holds lock. */
static void count_time_locked(struct kri_profile *p, kr_value thread, const struct kri_code *code, bool self)
{
    struct row key = {.code = code_value(code), .thread = thread}, *r = row_locked(p, &key);
    if (!r)
        return;
    r->self += self;
    if (r->stamp != p->samples) {
        r->stamp = p->samples;
        r->total++;
    }
}

void kri_profile_sample(struct kri_worker *w)
{
    struct kri_profile *p = w->vm->profile;
    if (!w->ctx || !p)
        return;
    kri_lock(w, &p->lock);
    if (p->running && !p->allocation) {
        const struct kri_code *first = leaf(w);
        struct kri_frames f;
        p->samples++;
        if (first)
            count_time_locked(p, w->ctx->thread, first, true);
        kri_frames_begin(&f, w->ctx);
        for (int n = 0; n < MOST_FRAMES && kri_frames_next(&f); n++)
            count_time_locked(p, w->ctx->thread, f.code, n == 0 && !first);
    }
    kri_unlock(&p->lock);
}

void kri_profile_allocated(struct kri_worker *w, size_t bytes)
{
    struct kri_profile *p = w->vm->profile;
    struct kri_frames f;
    if (!w->ctx || !p)
        return;
    /* A lock that is taken means another sample: this one is rare enough to be waited for, without leaving the gate. */
    pthread_mutex_lock(&p->lock);
    if (p->running && p->allocation) {
        const struct kri_code *builtin = leaf(w);
        struct row key = {.builtin = builtin && builtin->builtin ? code_value(builtin) : KRI_NIL}, *r;
        kri_frames_begin(&f, w->ctx);
        if (kri_frames_next(&f)) {
            key.code = code_value(f.code);
            key.line = f.line;
            r = row_locked(p, &key);
            if (r) {
                r->self++;
                r->total += bytes;
            }
        }
        p->samples++;
    }
    pthread_mutex_unlock(&p->lock);
}

void kri_profile_mark(struct kr_vm *vm, struct kri_marker *m)
{
    struct kri_profile *p = vm->profile;
    /* World stopped: whoever holds the lock waits at no poll, so nobody does but the thread that asks for samples, which leaves the
     * rows alone. */
    for (size_t i = 0; p && i < p->size; i++) {
        kri_mark_value(m, p->row[i].code);
        kri_mark_value(m, p->row[i].thread);
        kri_mark_value(m, p->row[i].builtin);
    }
}

/* ---- beginning and end ---- */

static void *ask(void *arg)
{
    struct kri_profile *p = arg;
    pthread_mutex_lock(&p->lock);
    while (p->running) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t ns = (uint64_t)until.tv_nsec + p->interval_ns;
        until.tv_sec += (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        pthread_cond_timedwait(&p->wake, &p->lock, &until);
        if (!p->running)
            break;
        pthread_mutex_unlock(&p->lock);
        kri_heap_request_samples(p->heap);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static struct kri_profile *profile_of(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    struct kri_profile *p = NULL;
    kri_lock(w, &vm->lock);
    if (!vm->profile && (p = calloc(1, sizeof *p)) != NULL) {
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->wake, &monotonic);
        pthread_condattr_destroy(&monotonic);
        p->heap = vm->heap;
        vm->profile = p;
    }
    p = vm->profile;
    kri_unlock(&vm->lock);
    if (!p)
        kri_error_memory(w, sizeof *p);
    return p;
}

KR_BUILTIN(profile_start, "sys::%profile-start", "(interval-ns)",
           "Begin a profile: of time with a sample each INTERVAL-NS nanoseconds of each thread that runs Lisp; of allocation if it is 0. "
           "Error: one is running already.")
{
    intptr_t interval = kri_arg_natural(w, argv, 0);
    struct kri_profile *p = profile_of(w);
    kri_lock(w, &p->lock);
    bool taken = p->running, started = !taken;
    if (!taken) {
        free(p->row);
        p->row = NULL;
        p->size = p->count = 0;
        p->samples = 0;
        p->interval_ns = (uint64_t)interval;
        p->allocation = interval == 0;
        p->running = true;
        started = p->allocation || pthread_create(&p->thread, NULL, ask, p) == 0;
        p->running = started;
    }
    kri_unlock(&p->lock);
    if (taken)
        kri_error(w, KRI_E_SYSTEM, KRI_NIL, "a profile is being made already");
    if (!started)
        kri_error(w, KRI_E_SYSTEM, KRI_NIL, "no thread can be made");
    if (interval == 0)
        kri_heap_watch(w->heap, true);
    return KRI_NIL;
}

static void join(void *arg) { pthread_join(*(pthread_t *)arg, NULL); }

static void stop(struct kri_worker *w, struct kri_profile *p)
{
    kri_heap_watch(w->heap, false);
    kri_lock(w, &p->lock);
    bool joins = p->running && !p->allocation;
    p->running = false;
    pthread_cond_signal(&p->wake);
    kri_unlock(&p->lock);
    if (joins)
        kri_blocking(w, join, &p->thread);
}

KR_BUILTIN(profile_stop, "sys::%profile-stop", "()",
           "End the profile: (samples row..). A row is (function-name file line thread builtin-name self total): of a profile of time "
           "samples in the function itself and in what it called; of allocation the times that the line fetched memory and how much.")
{
    struct kri_profile *p = profile_of(w);
    stop(w, p);
    kr_value list = KRI_NIL;
    for (size_t i = 0;; i++) { /* another profile may begin meanwhile */
        struct row r = {.code = KRI_NIL};
        kri_lock(w, &p->lock);
        bool more = i < p->size;
        if (more)
            r = p->row[i];
        kri_unlock(&p->lock);
        if (!more)
            break;
        if (kri_is_nil(r.code))
            continue;
        const struct kri_code *code = (const struct kri_code *)r.code.w;
        kr_value builtin = kri_is_nil(r.builtin) ? KRI_NIL : ((const struct kri_code *)r.builtin.w)->name;
        unsigned line = p->allocation ? r.line : code->line;
        list = kri_cons(w, kri_list(w, 7, code->name, code->file, kri_fixnum(line), r.thread, builtin, kri_fixnum((intptr_t)r.self),
                                    kri_fixnum((intptr_t)r.total)), list);
    }
    return kri_cons(w, kri_fixnum((intptr_t)p->samples), list);
}

void kri_profile_end(struct kri_worker *w)
{
    if (w->vm->profile)
        stop(w, w->vm->profile);
}

void kri_profile_after_fork(struct kr_vm *vm)
{
    kri_heap_watch(vm->heap, false);
    vm->profile = NULL;
}

void kri_profile_free(struct kr_vm *vm)
{
    struct kri_profile *p = vm->profile;
    if (!p)
        return;
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->row);
    free(p);
    vm->profile = NULL;
}

const struct kri_builtin *const kri_builtins_profile[] = {&profile_start_def, &profile_stop_def, NULL};
