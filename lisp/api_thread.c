/* api_thread.c -- karakuri.h: threads of the host come and go; a thread's own contexts (kr_current).
 *
 * What kr_current attaches is noted in a list of the thread's, and detached when the thread ends. VMs that live stand in a
 * list of the process: a thread that ends looks there before it touches one, and kr_vm_free waits for those that do. */
#include <stdlib.h>
#include "lisp/api.h"

struct own {
    struct own *next;
    struct kr_vm *vm;
    uint64_t serial; /* of that VM: another may get its address */
    struct kr_context *ctx;
};

static _Thread_local struct own *own_contexts;
static pthread_key_t ending_key;
static pthread_once_t ending_once = PTHREAD_ONCE_INIT;
static bool ending_known;

static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static struct live {
    struct live *next;
    struct kr_vm *vm;
    unsigned ending; /* threads that are detaching from it */
} *live_vms;
static uint64_t serials; /* given to VMs so far */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

uint64_t kri_vm_serial(void)
{
    pthread_mutex_lock(&live_lock);
    uint64_t n = ++serials;
    pthread_mutex_unlock(&live_lock);
    return n;
}

bool kri_vm_enlist(struct kr_vm *vm)
{
    struct live *l = malloc(sizeof *l);
    if (!l)
        return false;
    pthread_mutex_lock(&live_lock);
    *l = (struct live){live_vms, vm, 0};
    live_vms = l;
    pthread_mutex_unlock(&live_lock);
    return true;
}

void kri_vm_delist(struct kr_vm *vm)
{
    pthread_mutex_lock(&live_lock);
    struct live **at = &live_vms, *found;
    while ((*at)->vm != vm)
        at = &(*at)->next;
    found = *at;
    *at = found->next;
    while (found->ending)
        pthread_cond_wait(&ended, &live_lock);
    pthread_mutex_unlock(&live_lock);
    free(found);
}

/* The entry of O's VM, if that lives and O's context is to be detached with the thread. */
static struct live *to_be_left_locked(const struct own *o)
{
    for (struct live *l = live_vms; l; l = l->next)
        if (l->vm == o->vm)
            return l->vm->host->serial == o->serial && o->ctx->automatic ? l : NULL;
    return NULL;
}

/* A thread ends. */
static void detach_all(void *ignored)
{
    (void)ignored;
    for (struct own *o = own_contexts, *next; o; o = next) {
        next = o->next;
        pthread_mutex_lock(&live_lock);
        struct live *l = to_be_left_locked(o);
        if (l)
            l->ending++;
        pthread_mutex_unlock(&live_lock);
        if (l) {
            kri_visit_begin(o->ctx);
            kri_release_locks(o->ctx->worker);
            kri_detach(o->ctx); /* which frees O */
            pthread_mutex_lock(&live_lock);
            l->ending--;
            pthread_cond_broadcast(&ended);
            pthread_mutex_unlock(&live_lock);
        } else {
            free(o);
        }
    }
    own_contexts = NULL;
}

static void make_key(void) { ending_known = pthread_key_create(&ending_key, detach_all) == 0; }

static struct own **own_of(const struct kr_vm *vm)
{
    struct own **at = &own_contexts;
    while (*at && (*at)->vm != vm)
        at = &(*at)->next;
    return at;
}

kr_context *kr_current(kr_vm *vm)
{
    KRI_CHECK_VM(vm);
    struct own **at = own_of(vm), *o = *at;
    if (o && o->serial == vm->host->serial)
        return o->ctx;
    if (o) { /* of a VM that is gone */
        *at = o->next;
        free(o);
    }
    kr_context *ctx = kr_attach(vm);
    pthread_once(&ending_once, make_key);
    if (ctx && ending_known && *own_of(vm)) { /* noted by kr_attach */
        ctx->automatic = true;
        pthread_setspecific(ending_key, &own_contexts); /* any value but NULL: the destructor runs */
    }
    return ctx;
}

bool kri_current_note(struct kr_context *ctx)
{
    struct own *o = malloc(sizeof *o);
    if (!o)
        return false;
    *o = (struct own){own_contexts, ctx->vm, ctx->vm->host->serial, ctx};
    own_contexts = o;
    return true;
}

struct kr_context *kri_context_here(const struct kr_vm *vm)
{
    const struct own *o = *own_of(vm);
    return o && o->serial == vm->host->serial ? o->ctx : NULL;
}

void kri_current_forget(struct kr_context *ctx)
{
    for (struct own **at = &own_contexts; *at; at = &(*at)->next)
        if ((*at)->ctx == ctx) {
            struct own *o = *at;
            *at = o->next;
            free(o);
            return;
        }
}

/* Contexts of kr_current whose threads are outside, by the rule that kr_vm_free states. */
void kri_current_release(struct kr_vm *vm, struct kr_context *but)
{
    struct kr_context *found;
    do {
        found = NULL;
        pthread_mutex_lock(&vm->contexts_lock);
        for (struct kr_context *c = vm->contexts; c && !found; c = c->next)
            if (c != but && c->automatic)
                found = c;
        pthread_mutex_unlock(&vm->contexts_lock);
        if (!found)
            return;
        kri_gate_enter(found->worker);
        kri_detach(found);
    } while (found);
}

static void detached_from_outside(kr_context *ctx, const char *function)
{
    if (kri_inside(ctx->worker) || ctx->entry)
        kri_misuse(ctx->vm, function, "from within a function that Lisp called");
}

kr_context *kr_attach(kr_vm *vm)
{
    KRI_CHECK_VM(vm);
    if (kri_is_checking() && *own_of(vm) && (*own_of(vm))->serial == vm->host->serial)
        kri_misuse(vm, __func__, "this thread is attached already (kr_current finds its context)");
    kr_context *ctx = kri_attach(vm, NULL);
    if (!ctx)
        return NULL;
    kri_thread_started(ctx);
    kri_gate_leave_host(ctx->worker);
    return ctx;
}

void kr_detach(kr_context *ctx)
{
    KRI_CHECK_CONTEXT(ctx);
    if (kri_is_checking())
        detached_from_outside(ctx, __func__);
    kri_visit_begin(ctx);
    kri_release_locks(ctx->worker);
    kri_detach(ctx);
}

/* What must be so when a VM ends. */
void kri_check_last(kr_context *ctx, const char *function)
{
    kri_check_context(ctx, function);
    detached_from_outside(ctx, function);
    pthread_mutex_lock(&ctx->vm->contexts_lock);
    bool others = false;
    for (const struct kr_context *c = ctx->vm->contexts; c; c = c->next)
        others |= c != ctx && !c->automatic && kri_is_nil(c->thread);
    pthread_mutex_unlock(&ctx->vm->contexts_lock);
    if (others)
        kri_misuse(ctx->vm, function, "other threads of the host are still attached");
}

kr_vm *kr_context_vm(kr_context *ctx)
{
    KRI_CHECK_CONTEXT(ctx);
    return ctx->vm;
}

void *kr_vm_user(kr_vm *vm)
{
    KRI_CHECK_VM(vm);
    return vm->host->user;
}

/* ---- hooks of threads ---- */

static kr_value call_started(struct kri_worker *w, void *hook)
{
    (*(void (**)(kr_context *, void *))hook)(w->ctx, w->vm->host->user);
    return KRI_NIL;
}

static void call_hook(kr_context *ctx, void (*hook)(kr_context *, void *))
{
    kr_value ignored;
    if (hook && ctx->vm->running)
        kri_protect(ctx->worker, call_started, &hook, &ignored);
}

void kri_thread_started(kr_context *ctx) { call_hook(ctx, ctx->vm->host->hooks.thread_start); }
void kri_thread_stopping(kr_context *ctx)
{
    if (pthread_equal(ctx->owner, pthread_self())) /* not for one that kr_vm_free found */
        call_hook(ctx, ctx->vm->host->hooks.thread_stop);
}
