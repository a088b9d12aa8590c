/* api.c -- karakuri.h: the host's side. Between two calls a host is outside the gate; values it was given live in the
 * context's list of locals. */
#include <stdio.h>
#include <stdlib.h>
#include "lisp/init.h"
#include "lisp/stream.h"

int kr_abi_version(void) { return KR_ABI_VERSION; }
kr_vm *kr_context_vm(kr_context *ctx) { return ctx->vm; }

/* ---- in and out of the gate ---- */

/* True if the caller was outside, as hosts are; a kr_function that Lisp called is inside already. */
static bool enter(kr_context *ctx)
{
    if (kri_inside(ctx->worker))
        return false;
    kri_gate_enter(ctx->worker);
    return true;
}

static void leave(kr_context *ctx, bool entered)
{
    if (entered)
        kri_gate_leave_host(ctx->worker);
}

kr_context *kr_attach(kr_vm *vm)
{
    kr_context *ctx = kri_attach(vm);
    if (ctx)
        kri_gate_leave_host(ctx->worker);
    return ctx;
}

void kr_detach(kr_context *ctx)
{
    enter(ctx);
    kri_detach(ctx);
}

/* ---- keeping values ---- */

static kr_value local(kr_context *ctx, kr_value v)
{
    if (!kri_is_pointer(v))
        return v;
    if (ctx->locals_count == ctx->locals_size) {
        size_t size = ctx->locals_size ? 2 * ctx->locals_size : 64;
        kr_value *l = realloc(ctx->locals, size * sizeof *l);
        if (!l)
            return KRI_NIL;
        ctx->locals = l;
        ctx->locals_size = size;
    }
    return ctx->locals[ctx->locals_count++] = v;
}

size_t kr_scope_begin(kr_context *ctx) { return ctx->locals_count; }

void kr_scope_end(kr_context *ctx, size_t scope)
{
    if (scope <= ctx->locals_count)
        ctx->locals_count = scope;
}

kr_ref *kr_ref_new(kr_context *ctx, kr_value v)
{
    struct kr_vm *vm = ctx->vm;
    kr_ref *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    bool entered = enter(ctx);
    *r = (kr_ref){.value = v, .vm = vm};
    kri_lock(ctx->worker, &vm->lock);
    r->next = vm->refs;
    if (r->next)
        r->next->prev = r;
    vm->refs = r;
    kri_unlock(&vm->lock);
    leave(ctx, entered);
    return r;
}

kr_value kr_ref_value(const kr_ref *ref) { return ref->value; }

void kr_unref(kr_context *ctx, kr_ref *ref)
{
    struct kr_vm *vm = ctx->vm;
    if (!ref)
        return;
    bool entered = enter(ctx);
    kri_lock(ctx->worker, &vm->lock);
    if (ref->next)
        ref->next->prev = ref->prev;
    if (ref->prev)
        ref->prev->next = ref->next;
    else
        vm->refs = ref->next;
    kri_unlock(&vm->lock);
    leave(ctx, entered);
    free(ref);
}

/* ---- protected calls ---- */

typedef kr_value protected_function(struct kri_worker *w, void *arg);

static kr_status protected_call(kr_context *ctx, protected_function *f, void *arg, kr_value *out)
{
    bool entered = enter(ctx);
    kr_value v;
    bool ok = kri_protect(ctx->worker, f, arg, &v);
    v = local(ctx, v);
    leave(ctx, entered);
    if (out)
        *out = v;
    return ok ? KR_OK : KR_ERROR;
}

static kr_value eval_text(struct kri_worker *w, void *arg)
{
    kr_value stream = kri_make_string_input(w, arg, strlen(arg)), v = KRI_NIL;
    for (;;) {
        kr_value form = kri_read(w, stream, false, KRI_IMMEDIATE(KRI_IMM_EOF));
        if (form.w == KRI_IMM_EOF)
            return v;
        v = kri_eval(w, form);
    }
}

kr_status kr_eval_string(kr_context *ctx, const char *text, kr_value *out) { return protected_call(ctx, eval_text, (void *)(uintptr_t)text, out); }

static kr_value load_file(struct kri_worker *w, void *arg)
{
    kr_value path = kri_string(w, arg);
    return kri_call1(w, kri_symbol_function(w->vm, w->vm->sym.load), path);
}

kr_status kr_load_file(kr_context *ctx, const char *path, kr_value *out) { return protected_call(ctx, load_file, (void *)(uintptr_t)path, out); }

struct call {
    const char *name;
    kr_value fn;
    int argc;
    const kr_value *argv;
};

static kr_value symbol_named(struct kri_worker *w, const char *name) { return kri_read_from_string(w, kri_string(w, name)); }

static kr_value call_named(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    return kri_call(w, symbol_named(w, c->name), c->argc, c->argv);
}

kr_status kr_call(kr_context *ctx, const char *name, int argc, const kr_value *argv, kr_value *out)
{
    struct call c = {.name = name, .argc = argc, .argv = argv};
    return protected_call(ctx, call_named, &c, out);
}

static kr_value call_value(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    return kri_call(w, c->fn, c->argc, c->argv);
}

kr_status kr_funcall(kr_context *ctx, kr_value fn, int argc, const kr_value *argv, kr_value *out)
{
    struct call c = {.fn = fn, .argc = argc, .argv = argv};
    return protected_call(ctx, call_value, &c, out);
}

static kr_value send_named(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    char upper[100];
    size_t n = 0;
    for (; c->name[n] && n + 1 < sizeof upper; n++)
        upper[n] = (char)(c->name[n] >= 'a' && c->name[n] <= 'z' ? c->name[n] - 32 : c->name[n]);
    upper[n] = '\0';
    return kri_send(w, c->fn, kri_keyword(w, upper), c->argc, c->argv);
}

kr_status kr_send(kr_context *ctx, kr_value object, const char *selector, int argc, const kr_value *argv, kr_value *out)
{
    struct call c = {.name = selector, .fn = object, .argc = argc, .argv = argv};
    return protected_call(ctx, send_named, &c, out);
}

/* ---- making values ---- */

struct made {
    const void *data;
    size_t n;
    double d;
    int64_t i;
};

static kr_value made(kr_context *ctx, protected_function *f, struct made m)
{
    kr_value v;
    return protected_call(ctx, f, &m, &v) == KR_OK ? v : KRI_NIL;
}

static kr_value make_integer(struct kri_worker *w, void *arg) { return kri_integer(w, ((struct made *)arg)->i); }
static kr_value make_real(struct kri_worker *w, void *arg) { return kri_float(w, ((struct made *)arg)->d); }
static kr_value make_bytes(struct kri_worker *w, void *arg) { return kri_string_n(w, ((struct made *)arg)->data, ((struct made *)arg)->n); }
static kr_value make_reals(struct kri_worker *w, void *arg)
{
    const struct made *m = arg;
    kr_value v = kri_make_fvector(w, m->n);
    if (m->data)
        memcpy(kri_fvector_of(v)->at, m->data, m->n * sizeof(double));
    return v;
}
static kr_value make_list(struct kri_worker *w, void *arg) { return kri_list_from(w, ((struct made *)arg)->data, ((struct made *)arg)->n); }
static kr_value make_symbol(struct kri_worker *w, void *arg) { return symbol_named(w, ((struct made *)arg)->data); }

kr_value kr_nil(void) { return KRI_NIL; }
bool kr_is_nil(kr_value v) { return kri_is_nil(v); }
kr_value kr_boolean(kr_context *ctx, bool b) { return b ? ctx->vm->sym.t : KRI_NIL; }
kr_value kr_integer(kr_context *ctx, int64_t n)
{
    return kri_fits_fixnum(n) ? kri_fixnum(n) : made(ctx, make_integer, (struct made){.i = n});
}
kr_value kr_real(kr_context *ctx, double d)
{
    kr_value v = kri_flonum_try(d);
    return kri_is_flonum(v) ? v : made(ctx, make_real, (struct made){.d = d});
}
kr_value kr_string(kr_context *ctx, const char *text) { return kr_bytes(ctx, text, strlen(text)); }
kr_value kr_bytes(kr_context *ctx, const void *bytes, size_t n) { return made(ctx, make_bytes, (struct made){.data = bytes, .n = n}); }
kr_value kr_float_vector(kr_context *ctx, const double *elements, size_t n)
{
    return made(ctx, make_reals, (struct made){.data = elements, .n = n});
}
kr_value kr_list(kr_context *ctx, int n, const kr_value *elements)
{
    return made(ctx, make_list, (struct made){.data = elements, .n = n < 0 ? 0 : (size_t)n});
}
kr_value kr_symbol(kr_context *ctx, const char *name) { return made(ctx, make_symbol, (struct made){.data = name}); }

/* ---- reading values ---- */

kr_status kr_to_integer(kr_context *ctx, kr_value v, int64_t *n)
{
    (void)ctx;
    if (!kri_is_fixnum(v))
        return KR_BAD_TYPE;
    *n = kri_fixnum_value(v);
    return KR_OK;
}

kr_status kr_to_real(kr_context *ctx, kr_value v, double *d)
{
    (void)ctx;
    if (kri_is_fixnum(v))
        *d = (double)kri_fixnum_value(v);
    else if (kri_is_float(v))
        *d = kri_float_value(v);
    else
        return KR_BAD_TYPE;
    return KR_OK;
}

kr_status kr_to_bytes(kr_context *ctx, kr_value v, char **bytes, size_t *n)
{
    if (!kri_is_string(ctx->vm, v))
        return KR_BAD_TYPE;
    *bytes = (char *)kri_string_of(v)->byte;
    *n = kri_length(v);
    return KR_OK;
}

kr_status kr_to_reals(kr_context *ctx, kr_value v, double **elements, size_t *n)
{
    if (!kri_is_fvector(ctx->vm, v))
        return KR_BAD_TYPE;
    *elements = kri_fvector_of(v)->at;
    *n = kri_length(v);
    return KR_OK;
}

static size_t copy_text(kr_context *ctx, protected_function *f, kr_value v, char *buffer, size_t size)
{
    kr_value s;
    size_t scope = kr_scope_begin(ctx), n = 0;
    if (protected_call(ctx, f, &v, &s) == KR_OK && kri_is_string(ctx->vm, s)) {
        n = kri_length(s);
        if (size > 0) {
            size_t most = n < size - 1 ? n : size - 1;
            memcpy(buffer, kri_string_of(s)->byte, most);
            buffer[most] = '\0';
        }
    } else if (size > 0) {
        buffer[0] = '\0';
    }
    kr_scope_end(ctx, scope);
    return n;
}

static kr_value print_text(struct kri_worker *w, void *arg) { return kri_print_to_string(w, *(kr_value *)arg, true); }
static kr_value message_text(struct kri_worker *w, void *arg) { return kri_condition_text(w, *(kr_value *)arg); }
static kr_value frames_text(struct kri_worker *w, void *arg) { return kri_backtrace_text(w, *(kr_value *)arg); }

size_t kr_print(kr_context *ctx, kr_value v, char *buffer, size_t size) { return copy_text(ctx, print_text, v, buffer, size); }
size_t kr_error_message(kr_context *ctx, kr_value c, char *buffer, size_t size) { return copy_text(ctx, message_text, c, buffer, size); }
size_t kr_error_backtrace(kr_context *ctx, kr_value c, char *buffer, size_t size) { return copy_text(ctx, frames_text, c, buffer, size); }

/* ---- C functions for Lisp ---- */

/* What a host function's captured cell holds: raw pointers in a %bytes cell. */
struct host_function {
    struct kri_cell head;
    kr_function fn;
    void *user;
};

static kr_value host_call(struct kri_worker *w, int argc, kr_value *argv)
{
    kr_context *ctx = w->ctx;
    const struct host_function *h = (const struct host_function *)kri_function_of(w->callee)->captured[0].w;
    size_t scope = kr_scope_begin(ctx);
    kr_value v = h->fn(ctx, argc, argv, h->user);
    kr_scope_end(ctx, scope);
    return v;
}

struct definition {
    const char *name, *arglist, *doc;
    struct host_function host;
};

static kr_value define(struct kri_worker *w, void *arg)
{
    const struct definition *d = arg;
    struct kr_vm *vm = w->vm;
    kr_value symbol = symbol_named(w, d->name);
    if (!kri_is_symbol(symbol) || kri_is_nil(symbol))
        kri_error(w, KRI_E_NO_SYMBOL, symbol, "the name of a function");
    kr_value fn = kri_make_builtin(w, symbol, host_call, d->arglist, d->doc);
    struct host_function *h = (struct host_function *)kri_make(w, KRI_CLASS_BYTES, 16, 2);
    h->fn = d->host.fn;
    h->user = d->host.user;
    kri_function_of(fn)->captured[0] = kri_value_of(h);
    struct kri_symbol *s = kri_symbol_of(vm, symbol);
    kri_store(w, &s->head, &s->function, fn);
    return symbol;
}

kr_status kr_define(kr_context *ctx, const char *name, const char *arglist, const char *doc, kr_function fn, void *user)
{
    struct definition d = {name, arglist, doc, {.fn = fn, .user = user}};
    return protected_call(ctx, define, &d, NULL);
}

void kr_raise(kr_context *ctx, const char *message)
{
    kri_error(ctx->worker, KRI_E_USER, KRI_NIL, "%s", message);
}

void kr_interrupt(kr_context *ctx) { kri_request(ctx->worker, KRI_REQUEST_INTERRUPT); }

void kr_blocking(kr_context *ctx, void (*block)(void *arg), void *arg) { kri_blocking(ctx->worker, block, arg); }
void kr_unblocking(kr_context *ctx, void (*f)(void *arg), void *arg) { kri_unblocking(ctx->worker, f, arg); }

void kr_collect(kr_context *ctx)
{
    bool entered = enter(ctx);
    kri_collect(ctx->worker, KRI_GC_REQUEST);
    leave(ctx, entered);
}
