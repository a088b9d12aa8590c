/* api.c -- karakuri.h: scopes, handles, evaluation, calls, interruption. Between two calls a host is outside the gate; values it was
 * given live in the context's list of locals. */
#include <stdlib.h>
#include "lisp/api.h"
#include "lisp/load.h"
#include "lisp/stream.h"

int kr_abi_version(void) { return KR_ABI_VERSION; }
const char *kr_version(void) { return KR_VERSION; }

/* ---- keeping values ---- */

bool kri_reserve_local_slow(kr_context *ctx)
{
    size_t size = ctx->locals_size ? 2 * ctx->locals_size : 64;
    kr_value *l = realloc(ctx->locals, size * sizeof *l);
    if (!l)
        return false;
    ctx->locals = l;
    ctx->locals_size = size;
    return true;
}

bool kri_hand_out(kr_context *ctx, kr_value v, kr_value *out)
{
    *out = v;
    if (!kri_is_pointer(v))
        return true;
    struct kri_visit visit = kri_visit_begin(ctx);
    bool room = kri_reserve_local(ctx);
    *out = room ? kri_local(ctx, v) : KRI_NIL;
    kri_visit_end(ctx, visit);
    return room;
}

size_t kr_scope_begin(kr_context *ctx)
{
    KRI_CHECK_CONTEXT(ctx);
    return kri_load_relaxed(&ctx->locals_count);
}

void kr_scope_end(kr_context *ctx, size_t scope)
{
    KRI_CHECK_CONTEXT(ctx);
    if (kri_is_checking() && scope > kri_load_relaxed(&ctx->locals_count))
        kri_misuse(ctx->vm, __func__, "this scope has ended already, or an enclosing one has");
    if (scope <= kri_load_relaxed(&ctx->locals_count))
        kri_store_relaxed(&ctx->locals_count, scope);
}

kr_ref *kr_ref_new(kr_context *ctx, kr_value v)
{
    struct kr_vm *vm = ctx->vm;
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, v, 2);
    kr_ref *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    struct kri_visit visit = kri_visit_begin(ctx);
    *r = (kr_ref){.alive = KRI_ALIVE, .value = v, .vm = vm};
    kri_lock(ctx->worker, &vm->lock);
    r->next = vm->refs;
    if (r->next)
        r->next->prev = r;
    vm->refs = r;
    kri_unlock(&vm->lock);
    kri_visit_end(ctx, visit);
    return r;
}

kr_value kr_ref_value(const kr_ref *ref)
{
    if (kri_is_checking())
        kri_check_ref(ref, __func__);
    return ref->value;
}

void kr_unref(kr_context *ctx, kr_ref *ref)
{
    struct kr_vm *vm = ctx->vm;
    if (!ref)
        return;
    KRI_CHECK_CONTEXT(ctx);
    if (kri_is_checking()) {
        kri_check_ref(ref, __func__);
        if (ref->vm != vm)
            kri_misuse(vm, __func__, "this handle is another VM's");
    }
    struct kri_visit visit = kri_visit_begin(ctx);
    kri_lock(ctx->worker, &vm->lock);
    if (ref->next)
        ref->next->prev = ref->prev;
    if (ref->prev)
        ref->prev->next = ref->next;
    else
        vm->refs = ref->next;
    kri_unlock(&vm->lock);
    kri_visit_end(ctx, visit);
    kri_forget(ref);
}

/* ---- protected calls ---- */

struct shielded {
    kri_protected *f;
    void *arg;
};

/* A kr_function that calls Lisp is the nearest handler of what goes wrong there: those of the Lisp code around it get to see the
 * error when the function passes it on. */
static kr_value call_shielded(struct kri_worker *w, void *arg)
{
    const struct shielded *s = arg;
    return kri_with_binding(w, w->vm->sym.handler_clusters, KRI_NIL, s->f, s->arg);
}

kr_status kri_protected_call(kr_context *ctx, kri_protected *f, void *arg, kr_value *out)
{
    struct kri_visit visit = kri_visit_begin(ctx);
    struct shielded s = {f, arg};
    kr_value v = ctx->vm->memory_condition;
    bool ok = false;
    if (kri_reserve_local(ctx)) {
        ok = ctx->entry ? kri_protect(ctx->worker, call_shielded, &s, &v) : kri_protect(ctx->worker, f, arg, &v);
        v = kri_local(ctx, v);
    }
    kri_visit_end(ctx, visit);
    if (out)
        *out = v;
    return ok ? KR_OK : KR_ERROR;
}

struct text {
    const char *at;
    size_t n;
    const char *name;
};

static kr_value eval_text(struct kri_worker *w, void *arg)
{
    const struct text *t = arg;
    kr_value stream = kri_make_string_input(w, t->at, t->n), v = KRI_NIL;
    for (;;) {
        kr_value form = kri_read(w, stream, false, KRI_IMMEDIATE(KRI_IMM_EOF));
        if (form.w == KRI_IMM_EOF)
            return v;
        v = kri_eval(w, form);
    }
}

/* As a file's forms are, so that functions know where they were defined. */
static kr_value eval_named(struct kri_worker *w, void *arg)
{
    const struct text *t = arg;
    kr_value stream = kri_make_string_input(w, t->at, t->n);
    return kri_load_stream(w, stream, kri_string(w, t->name));
}

kr_status kr_eval_string(kr_context *ctx, const char *text, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, text, 2);
    struct text t = {.at = text, .n = strlen(text)};
    return kri_protected_call(ctx, eval_text, &t, out);
}

kr_status kr_eval_bytes(kr_context *ctx, const char *text, size_t n, const char *name, kr_value *out)
{
    struct text t = {.at = text, .n = n, .name = name};
    KRI_CHECK_CONTEXT(ctx);
    return kri_protected_call(ctx, name ? eval_named : eval_text, &t, out);
}

static kr_value eval_form(struct kri_worker *w, void *arg) { return kri_eval(w, *(kr_value *)arg); }

kr_status kr_eval(kr_context *ctx, kr_value form, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_VALUE(ctx, form, 2);
    return kri_protected_call(ctx, eval_form, &form, out);
}

static kr_value read_text(struct kri_worker *w, void *arg) { return kri_read(w, kri_make_string_input(w, arg, strlen(arg)), true, KRI_NIL); }

kr_status kr_read(kr_context *ctx, const char *text, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, text, 2);
    return kri_protected_call(ctx, read_text, (void *)(uintptr_t)text, out);
}

static kr_value load_file(struct kri_worker *w, void *arg)
{
    kr_value path = kri_string(w, arg);
    return kri_call1(w, kri_symbol_function(w->vm, w->vm->sym.load), path);
}

kr_status kr_load_file(kr_context *ctx, const char *path, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, path, 2);
    return kri_protected_call(ctx, load_file, (void *)(uintptr_t)path, out);
}

struct call {
    const char *name;
    kr_value fn;
    int argc;
    const kr_value *argv;
};

/* ---- calls ---- */

static void check_call(kr_context *ctx, kr_value of, int argc, const kr_value *argv, const char *function)
{
    if (!kri_is_checking())
        return;
    kri_check_context(ctx, function);
    kri_check_value(ctx, of, function, 2);
    kri_check_arguments(ctx, argc, argv, function);
}

static kr_value call_named(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    return kri_call(w, kri_symbol_remembered(w, c->name), c->argc, c->argv);
}

kr_status kr_call(kr_context *ctx, const char *name, int argc, const kr_value *argv, kr_value *out)
{
    check_call(ctx, KRI_NIL, argc, argv, __func__);
    KRI_CHECK_TEXT(ctx, name, 2);
    struct call c = {.name = name, .argc = argc, .argv = argv};
    return kri_protected_call(ctx, call_named, &c, out);
}

static kr_value call_value(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    return kri_call(w, c->fn, c->argc, c->argv);
}

kr_status kr_funcall(kr_context *ctx, kr_value fn, int argc, const kr_value *argv, kr_value *out)
{
    check_call(ctx, fn, argc, argv, __func__);
    struct call c = {.fn = fn, .argc = argc, .argv = argv};
    return kri_protected_call(ctx, call_value, &c, out);
}

static kr_value send_named(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    kr_value selector = kri_selector_named(w, c->name);
    return kri_send(w, c->fn, selector, c->argc, c->argv);
}

kr_status kr_send(kr_context *ctx, kr_value object, const char *selector, int argc, const kr_value *argv, kr_value *out)
{
    check_call(ctx, object, argc, argv, __func__);
    KRI_CHECK_TEXT(ctx, selector, 3);
    struct call c = {.name = selector, .fn = object, .argc = argc, .argv = argv};
    return kri_protected_call(ctx, send_named, &c, out);
}

/* ---- variables ---- */

static kr_value get_variable(struct kri_worker *w, void *arg)
{
    kr_value symbol = kri_symbol_remembered(w, arg), v = kri_special(w, symbol);
    return kri_eq(v, KRI_UNBOUND) ? kri_autoload_value(w, symbol, true) : v;
}

kr_status kr_get(kr_context *ctx, const char *name, kr_value *out)
{
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, name, 2);
    return kri_protected_call(ctx, get_variable, (void *)(uintptr_t)name, out);
}

static kr_value set_variable(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    kr_value symbol = kri_symbol_remembered(w, c->name);
    if (kri_is_nil(symbol) || kri_fixnum_value(kri_slot(&kri_symbol_of(w->vm, symbol)->vtype)) == 0)
        kri_error(w, KRI_E_CONSTANT, symbol, NULL);
    kri_set_special(w, symbol, c->fn);
    return c->fn;
}

kr_status kr_set(kr_context *ctx, const char *name, kr_value v)
{
    struct call c = {.name = name, .fn = v};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, name, 2);
    KRI_CHECK_VALUE(ctx, v, 3);
    return kri_protected_call(ctx, set_variable, &c, NULL);
}

/* ---- errors ---- */

/* Also from below kr_blocking: the frame that is unwound to expects to be inside. */
void kr_raise(kr_context *ctx, const char *message)
{
    KRI_CHECK_INSIDE(ctx);
    KRI_CHECK_TEXT(ctx, message, 2);
    kri_visit_begin(ctx);
    kri_error(ctx->worker, KRI_E_USER, KRI_NIL, "%s", message);
}

_Noreturn void kri_pass_on(struct kri_worker *w, kr_value condition)
{
    struct kr_context *ctx = w->ctx;
    if (kri_is_pointer(condition) && kri_derivedp(ctx->vm, condition, ctx->vm->classes[KRI_CLASS_CONDITION].object))
        kri_raise(w, condition);
    if (!kri_is_nil(condition))
        kri_error(w, KRI_E_TYPE_MISMATCH, condition, "a condition expected");
    /* A throw. Its catcher is sought anew: it may have been left since. */
    kr_value *h = ctx->thrown >= 0 ? kri_find_handler(ctx, (enum kri_handler_kind)ctx->thrown, ctx->thrown_tag) : NULL;
    if (h)
        kri_unwind_to(w, h, ctx->thrown_value);
    kri_error(w, KRI_E_INTERRUPT, KRI_NIL, NULL);
}

void kr_reraise(kr_context *ctx, kr_value condition)
{
    KRI_CHECK_INSIDE(ctx);
    KRI_CHECK_VALUE(ctx, condition, 2);
    kri_visit_begin(ctx);
    kri_pass_on(ctx->worker, condition);
}

void kr_raise_condition(kr_context *ctx, const char *class_name, const char *message)
{
    KRI_CHECK_INSIDE(ctx);
    KRI_CHECK_TEXT(ctx, class_name, 2);
    KRI_CHECK_TEXT(ctx, message, 3);
    struct kri_worker *w = ctx->worker;
    kri_visit_begin(ctx);
    kr_value name = kri_symbol_remembered(w, class_name), cls = kri_special(w, name);
    if (!kri_is_class(ctx->vm, cls) || !kri_subclassp(ctx->vm, cls, ctx->vm->classes[KRI_CLASS_CONDITION].object))
        kri_error(w, KRI_E_USER, KRI_NIL, "%s", message);
    kr_value text = kri_string(w, message), signal = kri_intern(w, "ERROR", 5, ctx->vm->pkg_lisp);
    kr_value argv[3] = {name, kri_keyword(w, "MESSAGE"), text};
    kri_call(w, kri_symbol_function(ctx->vm, signal), 3, argv);
    kri_error(w, KRI_E_USER, KRI_NIL, "%s", message); /* that function was replaced by one that returns */
}

void kr_interrupt(kr_context *ctx)
{
    /* From a signal handler, too, and any thread: of the context only whether it lives is looked at. */
    if (kri_is_checking() && (!ctx || ctx->alive != KRI_ALIVE))
        kri_misuse(NULL, __func__, "this context was detached, or its VM freed");
    kri_request(ctx->worker, KRI_REQUEST_INTERRUPT);
}

void kr_blocking(kr_context *ctx, void (*block)(void *arg), void *arg)
{
    if (kri_inside(ctx->worker))
        kri_blocking(ctx->worker, block, arg);
    else
        block(arg);
}

void kr_unblocking(kr_context *ctx, void (*f)(void *arg), void *arg)
{
    if (kri_inside(ctx->worker))
        f(arg);
    else
        kri_unblocking(ctx->worker, f, arg);
}

void kr_collect(kr_context *ctx)
{
    struct kri_visit visit = kri_visit_begin(ctx);
    kri_collect(ctx->worker, KRI_GC_REQUEST);
    kri_visit_end(ctx, visit);
}
