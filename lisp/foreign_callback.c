/* foreign_callback.c -- Lisp functions that C can call.
 *
 * C may call from below a foreign call, from a thread that is attached, or from one that is not: that one is attached for the call's
 * length. Nothing unwinds through C. What goes wrong in a callback ends it, C gets a zero, and the foreign call that C was called by raises it
 * when it returns; until then further callbacks give zeros at once. Where no foreign call waits, standard error says what went wrong. */
#include <stdio.h>
#include <stdlib.h>
#include "lisp/foreign.h"
#include "lisp/init.h"

struct kri_callback {
    struct kri_callback *next;  /* guarded by vm->lock */
    struct kr_vm *vm;
    kr_ref *function;
    kri_atomic running;         /* calls in progress, which forbid that it is freed */
    struct kri_c_callback c;    /* its end is open */
};

struct invocation {
    struct kri_callback *callback;
    const union kri_c_value *argument;
    union kri_c_value *value;
    struct kr_context *ctx;
};

/* ---- being called ---- */

static kr_value call_function(struct kri_worker *w, void *arg)
{
    const struct invocation *v = arg;
    const struct kri_c_callback *c = &v->callback->c;
    kr_value argv[KRI_C_ARGUMENTS];
    for (int i = 0; i < c->n; i++)
        argv[i] = kri_from_c(w, c->type[i], &v->argument[i]);
    kr_value result = kri_call(w, kr_ref_value(v->callback->function), c->n, argv);
    /* A vector that C is given the address of could die before C looks at it. */
    if (c->result.kind == KRI_C_POINTER && !kri_is_nil(result) && !kri_is_integer(result) && kri_is_vector(w->vm, result))
        kri_error(w, KRI_E_TYPE_MISMATCH, result, "a callback cannot return the address of a Lisp vector");
    *v->value = kri_to_c(w, result, c->result, -1);
    return KRI_NIL;
}

/* Handlers around the foreign call see the error when it is raised there. */
static kr_value call_shielded(struct kri_worker *w, void *arg)
{
    return kri_with_binding(w, w->vm->sym.handler_clusters, KRI_NIL, call_function, arg);
}

static void report(struct kri_worker *w, kr_value condition)
{
    if (kri_is_nil(condition))
        fprintf(stderr, "a throw out of a callback that no foreign call of this thread waits for\n");
    else
        kri_report_error(w, condition, "in a callback from C");
}

/* Inside the gate. */
static void run_callback(void *arg)
{
    struct invocation *v = arg;
    struct kr_context *ctx = v->ctx;
    struct kri_foreign_call *call = ctx->foreign;
    kr_value condition;
    if (call && call->failed)
        return;
    /* What this callback's function calls in its turn keeps its failures to itself. */
    if (kri_protect(ctx->worker, call_shielded, v, &condition))
        return;
    ctx->foreign = call;
    *v->value = (union kri_c_value){0};
    if (!call) {
        report(ctx->worker, condition);
        return;
    }
    call->failed = true;
    call->condition = condition;
}

static void call_attached(struct invocation *v)
{
    struct kri_worker *w = v->ctx->worker;
    if (kri_inside(w))
        run_callback(v);
    else
        kri_unblocking(w, run_callback, v);
}

static void call_from_stranger(struct invocation *v)
{
    v->ctx = kri_attach(v->callback->vm, NULL);
    if (!v->ctx) {
        fprintf(stderr, "a callback from a thread that cannot be attached: no memory, or one context only is allowed\n");
        return;
    }
    run_callback(v);
    kri_release_locks(v->ctx->worker);
    kri_detach(v->ctx);
}

static void invoke(struct kri_c_callback *c, const union kri_c_value *argument, union kri_c_value *value)
{
    struct kri_callback *callback = (struct kri_callback *)((char *)c - offsetof(struct kri_callback, c));
    struct invocation v = {callback, argument, value, kri_context_here(callback->vm)};
    kri_fetch_add(&callback->running, 1);
    if (v.ctx)
        call_attached(&v);
    else
        call_from_stranger(&v);
    kri_fetch_add(&callback->running, (size_t)-1);
}

/* ---- making and freeing them ---- */

static struct kri_callback *make_callback(struct kri_worker *w, int n, const struct kri_c_type *type, struct kri_c_type result)
{
    const struct kri_ffcall *module = kri_ffcall_module(w);
    struct kri_callback *cb = calloc(1, sizeof *cb + (size_t)n * sizeof *type);
    if (!cb)
        kri_error_memory(w, sizeof *cb);
    cb->vm = w->vm;
    cb->c.invoke = invoke;
    cb->c.result = result;
    cb->c.n = n;
    for (int i = 0; i < n; i++)
        cb->c.type[i] = type[i];
    cb->c.code = module->callback_code(&cb->c);
    if (!cb->c.code) {
        free(cb);
        kri_error_memory(w, sizeof *cb);
    }
    return cb;
}

KR_BUILTIN(make_callback, "lisp::%make-callback", "(function types result)",
           "The address of a C function that calls FUNCTION with arguments of TYPES, a list, and returns its value as type RESULT. It stays until "
           "lisp::%free-callback. Error: a type that cannot be; no module ffcall.so.")
{
    struct kri_c_type type[KRI_C_ARGUMENTS], result = kri_c_type_of(w, argv[2]);
    int n = 0;
    kr_value function = kri_coerce_function(w, argv[0]);
    (void)function;
    for (kr_value l = kri_arg_list(w, argv, 1); kri_is_cons(l); l = kri_cdr(l)) {
        if (n == KRI_C_ARGUMENTS)
            kri_error(w, KRI_E_ARGC, argv[1], "at most %d parameters are possible", (int)KRI_C_ARGUMENTS);
        type[n] = kri_c_type_of(w, kri_car(l));
        if (type[n].kind == KRI_C_VOID || type[n].kind == KRI_C_ANY)
            kri_error(w, KRI_E_TYPE_MISMATCH, kri_car(l), "no parameter of a callback is of type %V", kri_car(l));
        n++;
    }
    if (result.kind == KRI_C_STRING || result.kind == KRI_C_BUFFER || result.kind == KRI_C_STRUCT || result.kind == KRI_C_RECORD || result.kind == KRI_C_ANY)
        kri_error(w, KRI_E_TYPE_MISMATCH, argv[2], "no callback can return a value of type %V", argv[2]);
    struct kri_callback *cb = make_callback(w, n, type, result);
    cb->function = kr_ref_new(w->ctx, argv[0]);
    if (!cb->function) {
        kri_ffcall_module(w)->callback_free(cb->c.code);
        free(cb);
        kri_error_memory(w, sizeof *cb);
    }
    kri_lock(w, &w->vm->lock);
    cb->next = w->vm->callbacks;
    w->vm->callbacks = cb;
    kri_unlock(&w->vm->lock);
    return kri_integer(w, (intptr_t)cb->c.code);
}

KR_BUILTIN(free_callback, "lisp::%free-callback", "(address)", "Free the callback whose code is at ADDRESS: C must not call it any more. Returns t, or nil if there is none. Error: it is running.")
{
    void *code = (void *)(uintptr_t)kri_arg_natural(w, argv, 0);
    struct kri_callback *cb, **p;
    kri_lock(w, &w->vm->lock);
    for (p = &w->vm->callbacks; *p && (*p)->c.code != code; p = &(*p)->next)
        continue;
    cb = *p;
    bool running = cb && kri_load_acquire(&cb->running) > 0;
    if (cb && !running)
        *p = cb->next;
    kri_unlock(&w->vm->lock);
    if (running)
        kri_error(w, KRI_E_USER, argv[0], "the callback is running; it can be freed when it has returned");
    if (!cb)
        return KRI_NIL;
    kri_ffcall_module(w)->callback_free(code);
    kr_unref(w->ctx, cb->function);
    free(cb);
    return w->vm->sym.t;
}

/* The VM goes: its handles have been freed. */
void kri_callbacks_free(struct kr_vm *vm)
{
    const struct kri_ffcall *module = (const struct kri_ffcall *)kri_load_acquire(&vm->ffcall);
    for (struct kri_callback *cb = vm->callbacks, *next; cb; cb = next) {
        next = cb->next;
        module->callback_free(cb->c.code);
        free(cb);
    }
    vm->callbacks = NULL;
}

const struct kri_builtin *const kri_builtins_foreign_callback[] = {&make_callback_def, &free_callback_def, NULL};
