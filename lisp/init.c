/* init.c -- making and unmaking a VM: heap, classes, packages, symbols, builtins, the core library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/foreign.h"
#include "lisp/profile.h"
#include "lisp/native_module.h"
#include "lisp/opcode.h"
#include "lisp/send.h"
#include "lisp/sequence.h"
#include "lisp/unix.h"

static const struct kri_builtin *const *const builtin_tables[] = {
#define TABLE(name) kri_builtins_##name,
#include "lisp/builtins.def"
#undef TABLE
};

const char *kri_builtin_area(kri_builtin_fn fn)
{
    static const char *const names[] = {
#define TABLE(name) #name,
#include "lisp/builtins.def"
#undef TABLE
    };
    for (size_t i = 0; i < sizeof builtin_tables / sizeof *builtin_tables; i++)
        for (const struct kri_builtin *const *b = builtin_tables[i]; *b; b++)
            if ((*b)->fn == fn)
                return names[i];
    return NULL;
}

/* ---- roots; the world is stopped ---- */

static void mark_roots(struct kri_heap *heap, struct kri_marker *m)
{
    struct kr_vm *vm = kri_heap_user(heap);
    kri_mark_range(m, (const kr_value *)&vm->sym, (const kr_value *)(&vm->sym + 1));
    const kr_value single[] = {vm->nil_symbol, vm->undefined, vm->entry_function, vm->pkg_lisp, vm->pkg_user, vm->pkg_keyword,
                               vm->pkg_system, vm->pkg_unix, vm->pkg_compiler, vm->packages, vm->roots, vm->stack_condition,
                               vm->memory_condition, vm->budget_condition, vm->condition_classes, vm->error_handler, vm->finalizers, vm->random};
    kri_mark_range(m, single, single + sizeof single / sizeof *single);
    size_t n = kri_load_acquire(&vm->class_count);
    for (size_t i = 1; i < n; i++) {
        kri_mark_value(m, vm->classes[i].object);
        kri_mark_value(m, vm->classes[i].methods);
    }
    for (const struct kr_ref *r = vm->refs; r; r = r->next)
        kri_mark_value(m, r->value);
    for (const struct kr_context *c = vm->contexts; c; c = c->next)
        if (c->worker) {
            kri_mark_value(m, c->worker->callee);
            kri_mark_value(m, c->worker->tail);
        }
    kri_mark_contexts(vm, m);
    kri_profile_mark(vm, m);
}

/* ---- finalizers and the collection hook, run at a poll of the worker that collected ---- */

static kr_value run_hook(struct kri_worker *w, void *arg)
{
    (void)arg;
    for (kr_value v; !kri_is_nil(v = kri_next_finalizable(w));)
        kri_run_finalizer(w, v);
    kr_value hook = kri_special(w, w->vm->sym.gc_hook);
    if (!kri_is_nil(hook) && !kri_eq(hook, KRI_UNBOUND)) {
        struct kri_heap_stats s;
        kri_heap_get_stats(w, &s);
        kri_call2(w, hook, kri_fixnum((intptr_t)(s.free_bytes / KRI_WORD)), kri_fixnum((intptr_t)(s.heap_bytes / KRI_WORD)));
    }
    return KRI_NIL;
}

/* What the host's hook for collections is told. */
static kr_value tell_collection(struct kri_worker *w, void *arg)
{
    const struct kri_host *host = w->vm->host;
    struct kri_gc_record r;
    (void)arg;
    if (kri_heap_records(w, &r, 1) == 1) {
        const kr_collection c = {.number = r.number, .pause_ns = r.total, .live_bytes = r.live_bytes, .heap_bytes = r.heap_bytes};
        host->hooks.collection(w->ctx, &c, host->user);
    }
    return KRI_NIL;
}

static void after_gc(struct kri_worker *w)
{
    kr_value ignored;
    if (w->ctx && w->vm->running && w->vm->host->hooks.collection)
        kri_protect(w, tell_collection, NULL, &ignored);
    kri_budget_after_gc(w);
    if (w->ctx && w->vm->running)
        kri_protect(w, run_hook, NULL, &ignored); /* an error in a hook must not hit the code that happened to poll */
}

/* Cleanup forms up to E are not run: they had their time. Bindings and what C code left to be tidied are undone as ever. */
void kri_forget_cleanups(struct kr_context *ctx, const struct kri_entry *e)
{
    for (kr_value *h = ctx->handler; h != e->handler; h = kri_op_previous(h))
        if (kri_handler_kind(h) == KRI_HANDLER_UNWIND) {
            h[1] = kri_fixnum((intptr_t)(kri_handler_target(h) << 3 | KRI_HANDLER_CATCH));
            h[2] = KRI_UNBOUND;
        }
}

/* This thread is to end. No handler is asked. */
_Noreturn static void stop_thread(struct kri_worker *w, enum kri_stopping how)
{
    struct kri_entry *e = w->ctx->entry; /* there is one: a thread's job runs in kri_protect */
    while (!e->barrier)
        e = e->prev;
    if (how == KRI_STOPPING_NOW)
        kri_forget_cleanups(w->ctx, e);
    kri_unwind_to(w, e->handler, KRI_NIL);
}

static void interrupt(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    enum kri_stopping how = kri_threads_stopping(w);
    if (how != KRI_STOPPING_NOT && w->ctx->entry)
        stop_thread(w, how);
    kri_lock(w, &vm->lock); /* who has it may be waiting for a collection that waits for us */
    kr_value fn = kri_car(w->ctx->pending_interrupt); /* NIL also for an interrupt from the host */
    w->ctx->pending_interrupt = kri_cdr(w->ctx->pending_interrupt);
    bool more = !kri_is_nil(w->ctx->pending_interrupt);
    kri_unlock(&vm->lock);
    if (more)
        kri_request(w, KRI_REQUEST_INTERRUPT);
    if (kri_is_nil(fn))
        fn = kri_special(w, vm->sym.interrupt_handler);
    if (kri_is_nil(fn) || kri_eq(fn, KRI_UNBOUND))
        kri_error(w, KRI_E_INTERRUPT, KRI_NIL, NULL);
    kri_call(w, fn, 0, NULL);
}

/* ---- attaching ---- */

static bool native_bounds(void **base, void **limit)
{
    pthread_attr_t attr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return false;
    bool known = pthread_attr_getstack(&attr, limit, &size) == 0 && size > 0;
    pthread_attr_destroy(&attr);
    *base = known ? (char *)*limit + size : NULL;
#ifdef KRI_TSAN
    /* The sanitizer's own record of the stack has room for 65,536 frames. */
    if (known && size > (size_t)2 << 20)
        *limit = (char *)*base - ((size_t)2 << 20);
#endif
    return known;
}

/* Without exclusion there is one context only. */
static bool room_for_context(struct kr_vm *vm)
{
    pthread_mutex_lock(&vm->contexts_lock);
    bool room = !vm->contexts || kri_heap_discipline(vm->heap) != KRI_ALLOC_NONE;
    pthread_mutex_unlock(&vm->contexts_lock);
    return room;
}

struct kr_context *kri_attach(struct kr_vm *vm, void *base)
{
    void *end, *limit;
    if (!native_bounds(&end, &limit) || !room_for_context(vm))
        return NULL;
    if (!base)
        base = end;
    struct kri_method_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    struct kri_worker *w = kri_worker_new(vm->heap, base, limit);
    if (!w) {
        free(cache);
        return NULL;
    }
    w->vm = vm;
    w->method_cache = cache;
    bool ready = !kri_is_nil(vm->entry_function) || kri_bootstrap_functions(w);
    struct kr_context *ctx = ready ? kri_context_new(vm) : NULL;
    if (!ctx) {
        kri_worker_free(w);
        free(cache);
        return NULL;
    }
    kri_lock(w, &vm->contexts_lock); /* signal.c looks at it */
    ctx->worker = w;
    ctx->owner = pthread_self();
    ctx->alive = KRI_ALIVE;
    kri_unlock(&vm->contexts_lock);
    w->ctx = ctx;
    kri_set_lisp_limit(w, ctx->segment->limit);
    if (!kri_current_note(ctx)) {
        kri_detach(ctx);
        return NULL;
    }
    return ctx;
}

void kri_detach(struct kr_context *ctx)
{
    struct kri_worker *w = ctx->worker;
    void *cache = w->method_cache;
    kri_thread_stopping(ctx);
    kri_budget_drop(ctx);
    kri_current_forget(ctx);
    while (ctx->positions)
        kri_positions_end(w);
    kri_signals_forget(w);
    kri_context_free(ctx);
    w->ctx = NULL;
    kri_worker_free(w);
    free(cache);
}

/* ---- the first functions: pseudo-frames' and undefined functions' ---- */

static kr_value bare_function(struct kri_worker *w, unsigned flags)
{
    struct kri_cell *c = kri_alloc(w, KRI_CLASS_CODE, 1, (sizeof(struct kri_code) - 8) / 8 + 1);
    struct kri_cell *f = kri_alloc(w, KRI_CLASS_COMPILED_CODE, 0, 1);
    if (!c || !f)
        return KRI_NIL;
    struct kri_code *code = (struct kri_code *)c;
    code->flags = (uint16_t)flags;
    code->max = -1;
    code->instr[0] = kri_encode(KRI_OP_EXIT, 0, 0, 0);
    f->slot[0] = kri_value_of(c);
    return kri_value_of(f);
}

bool kri_bootstrap_functions(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    vm->entry_function = bare_function(w, 0);
    vm->undefined = bare_function(w, KRI_CODE_UNDEFINED);
    struct kri_cell *name = kri_alloc(w, KRI_CLASS_STRING, 3, 1);
    struct kri_symbol *nil = (struct kri_symbol *)kri_alloc(w, KRI_CLASS_SYMBOL, 0, 7); /* last: it is filled plainly */
    if (!nil || !name || kri_is_nil(vm->entry_function) || kri_is_nil(vm->undefined))
        return false;
    memcpy(((struct kri_string *)name)->byte, "NIL", 3);
    nil->value = KRI_NIL;
    nil->vtype = kri_fixnum(0);
    nil->function = vm->undefined;
    nil->pname = kri_value_of(name);
    nil->special = kri_fixnum(0);
    vm->nil_symbol = kri_value_of(nil);
    return true;
}

static void intern_symbols(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    kr_value pkg_lisp = vm->pkg_lisp, pkg_system = vm->pkg_system, pkg_keyword = vm->pkg_keyword, pkg_unix = vm->pkg_unix, pkg_user = vm->pkg_user,
             pkg_compiler = vm->pkg_compiler;
    (void)pkg_unix;
    (void)pkg_user;
#define SYMBOL(field, package, name)                                        \
    vm->sym.field = kri_intern(w, name, strlen(name), pkg_##package);       \
    kri_export(w, vm->sym.field, pkg_##package);
#define SPECIAL(field, package, name) SYMBOL(field, package, name)
#include "lisp/symbols.def"
#undef SYMBOL
#undef SPECIAL
#define SYMBOL(field, package, name)
#define SPECIAL(field, package, name)                                                   \
    kri_proclaim_special(w, vm->sym.field);                                             \
    kri_store(w, kri_ptr(vm->sym.field), &kri_symbol_of(vm, vm->sym.field)->vtype, kri_fixnum(3)); \
    kri_store(w, kri_ptr(vm->sym.field), &kri_symbol_of(vm, vm->sym.field)->value, KRI_NIL);
#include "lisp/symbols.def"
#undef SYMBOL
#undef SPECIAL
    struct kri_symbol *t = kri_symbol_of(vm, vm->sym.t);
    kri_store(w, &t->head, &t->value, vm->sym.t);
    kri_store(w, &t->head, &t->vtype, kri_fixnum(0));
    /* These are shared by all threads, not each thread's own. */
    const kr_value global[] = {vm->sym.features, vm->sym.modules, vm->sym.load_path, vm->sym.gc_hook, vm->sym.threads, vm->sym.program_name,
                               vm->sym.signal_handlers, vm->sym.safety};
    for (size_t i = 0; i < sizeof global / sizeof *global; i++)
        kri_store(w, kri_ptr(global[i]), &kri_symbol_of(vm, global[i])->vtype, kri_fixnum(2));
    kri_store(w, kri_ptr(vm->sym.safety), &kri_symbol_of(vm, vm->sym.safety)->value, kri_fixnum(1));
    struct kri_symbol *pkg = kri_symbol_of(vm, vm->sym.package);
    kri_store(w, &pkg->head, &pkg->value, vm->pkg_user);
}

static kr_value init_world(struct kri_worker *w, void *arg)
{
    (void)arg;
    kri_package_init_early(w->vm, w);
    intern_symbols(w);
    kri_class_init(w);
    for (size_t i = 0; i < sizeof builtin_tables / sizeof *builtin_tables; i++)
        for (const struct kri_builtin *const *b = builtin_tables[i]; *b; b++)
            kri_define_builtin(w, *b);
    kri_compile_init(w);
    kri_stream_init(w);
    kri_reader_init(w);
    kri_printer_init(w);
    kri_number_init(w);
    kri_system_init(w);
    kri_thread_init(w);
    w->vm->running = true;
    return w->vm->sym.t;
}

/* ---- life ---- */

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* W is the last worker, inside the gate. */
static void release_world(struct kr_context *ctx)
{
    struct kr_vm *vm = ctx->vm;
    kri_profile_end(ctx->worker);
    kri_threads_stop(ctx->worker);
    kri_foreign_finalize_all(ctx->worker);
    kri_streams_close(ctx->worker);
    kri_current_release(vm, ctx);
    kri_detach(ctx);
    kri_watchdog_stop(vm);
    kri_heap_free(vm->heap);
}

static void release_vm(struct kr_vm *vm)
{
    kri_callbacks_free(vm);
    kri_foreign_objects_free(vm);
    for (struct kr_ref *r = vm->refs, *next; r; r = next) {
        next = r->next;
        kri_forget(r);
    }
    kri_classes_free(vm);
    pthread_mutex_destroy(&vm->lock);
    pthread_mutex_destroy(&vm->package_lock);
    pthread_mutex_destroy(&vm->contexts_lock);
    kri_native_finish(vm);
    kri_profile_free(vm);
    free((char *)(uintptr_t)vm->library);
    pthread_mutex_destroy(&vm->host->watchdog_lock);
    free(vm->host);
    vm->host = NULL;
    kri_forget(vm);
}

/* Collections at every few allocations (config->stress) are for programs. The core library is always the same, and it would
 * take most of their time. */
enum { STRESS_AT_START = 100 };

/* Everything in Lisp; what fails is reported, since no VM is left to ask. */
static kr_status make_world(struct kr_context *ctx, const kr_config *config)
{
    struct kr_vm *vm = ctx->vm;
    struct kri_core_load load = {config->library};
    kr_value result;
    bool ok = kri_protect(ctx->worker, init_world, NULL, &result);
    if (ok && !config->bare)
        ok = kri_protect(ctx->worker, kri_load_core, &load, &result);
    if (ok && !config->bare)
        kri_heap_make_permanent(ctx->worker);
    kri_heap_set_stress(vm->heap, config->stress);
    if (ok)
        return KR_OK;
    if (kri_is_nil(result) || kri_eq(result, vm->memory_condition))
        return KR_NO_MEMORY;
    kri_report_error(ctx->worker, result, "while loading the core library");
    return KR_ERROR;
}

/* VM begins, with locks and what its host said. False: memory is out. */
static bool begin_vm(struct kr_vm *vm, const kr_config *config)
{
    vm->host = calloc(1, sizeof *vm->host);
    if (!vm->host)
        return false;
    vm->host->hooks = config->hooks;
    vm->host->user = config->user;
    vm->host->serial = kri_vm_serial();
    vm->host->process = getpid();
    pthread_mutex_init(&vm->host->watchdog_lock, NULL);
    pthread_mutex_init(&vm->lock, NULL);
    pthread_mutex_init(&vm->package_lock, NULL);
    pthread_mutex_init(&vm->contexts_lock, NULL);
    vm->alive = KRI_ALIVE;
    vm->special_count = 1;
    vm->method_epoch = 1;
    vm->stack_limit_words = (config->stack_limit ? config->stack_limit : (size_t)256 << 20) / sizeof(kr_value);
    vm->max_threads = config->max_threads ? config->max_threads : 256;
    return true;
}

kr_status kr_vm_new_abi(int abi_version, const kr_config *config, kr_vm **out, kr_context **out_ctx)
{
    static const kr_config defaults;
    static const enum kri_discipline disciplines[] = {[KR_ALLOC_GATE] = KRI_ALLOC_GATE, [KR_ALLOC_RWLOCK] = KRI_ALLOC_RWLOCK,
                                                      [KR_ALLOC_MUTEX] = KRI_ALLOC_MUTEX, [KR_ALLOC_NONE] = KRI_ALLOC_NONE};
    const char *check = getenv("KARAKURI_CHECK");
    if (abi_version != KR_ABI_VERSION) {
        fprintf(stderr, "karakuri: the program was compiled against version %d of the interface, the library has %d (%s)\n", abi_version,
                KR_ABI_VERSION, KR_VERSION);
        return KR_BAD_VERSION;
    }
    if (!config)
        config = &defaults;
    if (config->check || (check && *check && *check != '0'))
        kri_store_release(&kri_checking, 1);
    if ((unsigned)config->alloc > KR_ALLOC_NONE)
        return KR_BAD_TYPE;
    struct kr_vm *vm = calloc(1, sizeof *vm);
    if (!vm)
        return KR_NO_MEMORY;
    kr_status status = KR_NO_MEMORY;
    if (!begin_vm(vm, config)) {
        free(vm);
        return KR_NO_MEMORY;
    }
    vm->classes = reserve((KRI_CLASS_MAX + 1) * sizeof *vm->classes);
    if (!vm->classes)
        goto fail_vm;
    const struct kri_heap_config heap_config = {.limit_bytes = config->heap_limit, .initial_bytes = config->heap_initial,
                                                .discipline = disciplines[config->alloc], .markers = config->markers,
                                                .stress = config->stress && config->stress < STRESS_AT_START ? STRESS_AT_START : config->stress,
                                                .map = config->memory.map, .unmap = config->memory.unmap, .memory_user = config->memory.user};
    static const struct kri_heap_hooks hooks = {.mark_roots = mark_roots, .after_gc = after_gc, .interrupt = interrupt, .budget = kri_budget_poll,
                                                 .signal = kri_signals_deliver, .sample = kri_profile_sample, .allocated = kri_profile_allocated,
                                                 .weak_trace = kri_hash_table_trace, .weak_clear = kri_hash_table_clear_dead};
    vm->heap = kri_heap_new(&heap_config, &hooks, vm);
    if (!vm->heap)
        goto fail_vm;
    if (!kri_class_init_layouts(vm))
        goto fail_heap;
    struct kr_context *ctx = kri_attach(vm, NULL);
    if (!ctx)
        goto fail_heap;
    status = make_world(ctx, config);
    if (status == KR_OK && !kri_vm_enlist(vm))
        status = KR_NO_MEMORY;
    if (status != KR_OK) {
        release_world(ctx);
        goto fail_vm;
    }
    kri_store_release(&vm->denied, config->deny & KR_EVERYTHING); /* the core library was loaded without */
    kri_thread_started(ctx);
    kri_gate_leave_host(ctx->worker);
    *out = vm;
    *out_ctx = ctx;
    return KR_OK;
fail_heap:
    kri_heap_free(vm->heap);
fail_vm:
    release_vm(vm);
    return status;
}

void kr_vm_free(kr_context *ctx)
{
    struct kr_vm *vm = ctx->vm;
    if (kri_is_checking())
        kri_check_last(ctx, __func__);
    kri_vm_delist(vm); /* outside the gate: it may wait for threads that are ending */
    if (!kri_inside(ctx->worker))
        kri_gate_enter(ctx->worker);
    release_world(ctx);
    release_vm(vm);
}

void kri_classes_free(struct kr_vm *vm)
{
    if (!vm->classes)
        return;
    for (size_t i = 1; i < vm->class_count; i++)
        free(vm->classes[i].display);
    munmap(vm->classes, (KRI_CLASS_MAX + 1) * sizeof *vm->classes);
}

void kri_lock(struct kri_worker *w, pthread_mutex_t *m)
{
    if (pthread_mutex_trylock(m) != 0)
        kri_blocking(w, kri_lock_outside, m);
}

void kri_lock_outside(void *m) { pthread_mutex_lock(m); }
