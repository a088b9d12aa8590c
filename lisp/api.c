/* api.c -- karakuri.h: the host's side. Between two calls a host is outside the gate; values it was given live in the
 * context's list of locals. */
#include <stdlib.h>
#include "lisp/init.h"
#include "lisp/number.h"
#include "lisp/stream.h"

int kr_abi_version(void) { return KR_ABI_VERSION; }
kr_vm *kr_context_vm(kr_context *ctx) { return ctx->vm; }

/* ---- in and out of the gate ---- */

/* Whether the caller was outside, as hosts are (a kr_function that Lisp called is inside already); and what of its native
 * stack is answered for meanwhile: something if it came through kr_blocking. */
struct visit {
    bool entered;
    void *native_top;
};

static struct visit enter(kr_context *ctx)
{
    struct visit v = {.entered = !kri_inside(ctx->worker)};
    if (v.entered)
        v.native_top = kri_gate_enter_host(ctx->worker);
    return v;
}

static void leave(kr_context *ctx, struct visit v)
{
    if (v.entered)
        kri_gate_leave_to(ctx->worker, v.native_top);
}

kr_context *kr_attach(kr_vm *vm)
{
    kr_context *ctx = kri_attach(vm, NULL);
    if (ctx)
        kri_gate_leave_host(ctx->worker);
    return ctx;
}

void kr_detach(kr_context *ctx)
{
    enter(ctx);
    kri_release_locks(ctx->worker);
    kri_detach(ctx);
}

/* ---- keeping values ---- */

/* Room for one more. Whoever runs Lisp asks before it does, so that a result never gets lost for want of a place. */
static bool reserve_local(kr_context *ctx)
{
    if (kri_load_relaxed(&ctx->locals_count) < ctx->locals_size)
        return true;
    size_t size = ctx->locals_size ? 2 * ctx->locals_size : 64;
    kr_value *l = realloc(ctx->locals, size * sizeof *l);
    if (!l)
        return false;
    ctx->locals = l;
    ctx->locals_size = size;
    return true;
}

/* Inside the gate, with room. */
static kr_value local(kr_context *ctx, kr_value v)
{
    size_t n = kri_load_relaxed(&ctx->locals_count);
    if (!kri_is_pointer(v))
        return v;
    ctx->locals[n] = v;
    kri_store_relaxed(&ctx->locals_count, n + 1);
    return v;
}

size_t kr_scope_begin(kr_context *ctx) { return kri_load_relaxed(&ctx->locals_count); }

void kr_scope_end(kr_context *ctx, size_t scope)
{
    if (scope <= kri_load_relaxed(&ctx->locals_count))
        kri_store_relaxed(&ctx->locals_count, scope);
}

kr_ref *kr_ref_new(kr_context *ctx, kr_value v)
{
    struct kr_vm *vm = ctx->vm;
    kr_ref *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    struct visit visit = enter(ctx);
    *r = (kr_ref){.value = v, .vm = vm};
    kri_lock(ctx->worker, &vm->lock);
    r->next = vm->refs;
    if (r->next)
        r->next->prev = r;
    vm->refs = r;
    kri_unlock(&vm->lock);
    leave(ctx, visit);
    return r;
}

kr_value kr_ref_value(const kr_ref *ref) { return ref->value; }

void kr_unref(kr_context *ctx, kr_ref *ref)
{
    struct kr_vm *vm = ctx->vm;
    if (!ref)
        return;
    struct visit visit = enter(ctx);
    kri_lock(ctx->worker, &vm->lock);
    if (ref->next)
        ref->next->prev = ref->prev;
    if (ref->prev)
        ref->prev->next = ref->next;
    else
        vm->refs = ref->next;
    kri_unlock(&vm->lock);
    leave(ctx, visit);
    free(ref);
}

/* ---- protected calls ---- */

typedef kr_value protected_function(struct kri_worker *w, void *arg);

struct shielded {
    protected_function *f;
    void *arg;
};

/* A kr_function that calls Lisp is the nearest handler of what goes wrong there: those of the Lisp code around it get to see the
 * error when the function passes it on. */
static kr_value call_shielded(struct kri_worker *w, void *arg)
{
    const struct shielded *s = arg;
    return kri_with_binding(w, w->vm->sym.handler_clusters, KRI_NIL, s->f, s->arg);
}

static kr_status protected_call(kr_context *ctx, protected_function *f, void *arg, kr_value *out)
{
    struct visit visit = enter(ctx);
    struct shielded s = {f, arg};
    kr_value v = ctx->vm->memory_condition;
    bool ok = false;
    if (reserve_local(ctx)) {
        ok = ctx->entry ? kri_protect(ctx->worker, call_shielded, &s, &v) : kri_protect(ctx->worker, f, arg, &v);
        v = local(ctx, v);
    }
    leave(ctx, visit);
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

/* ---- names ---- */

struct name {
    kr_value text;   /* upcased, without bars */
    size_t n;        /* bytes in it */
    size_t package;  /* bytes of the prefix at its beginning */
    unsigned colons; /* behind the prefix */
};

static struct name parse_name(struct kri_worker *w, const char *s)
{
    struct name r = {.text = kri_make_string(w, strlen(s))};
    char *to = (char *)kri_string_of(r.text)->byte;
    bool bars = false;
    for (; *s; s++) {
        if (*s == '\\' && s[1]) {
            to[r.n++] = *++s;
        } else if (*s == '|') {
            bars = !bars;
        } else if (*s == ':' && !bars && r.colons == 0) {
            r.package = r.n;
            r.colons = s[1] == ':' ? 2 : 1;
            s += r.colons - 1;
        } else {
            to[r.n++] = (char)(*s >= 'a' && *s <= 'z' && !bars ? *s - 'a' + 'A' : *s);
        }
    }
    return r;
}

kr_value kri_symbol_named(struct kri_worker *w, const char *name, bool make)
{
    struct name r = parse_name(w, name);
    const char *text = (const char *)kri_string_of(r.text)->byte;
    kr_value package = w->vm->pkg_user;
    if (r.n == r.package)
        kri_error(w, KRI_E_NO_SYMBOL, kri_string(w, name), "a name");
    if (r.colons && r.package == 0) {
        package = w->vm->pkg_keyword;
    } else if (r.colons) {
        kr_value prefix = kri_string_n(w, text, r.package);
        package = kri_find_package(w, prefix);
        if (kri_is_nil(package))
            kri_error(w, KRI_E_NO_PACKAGE, prefix, NULL);
    }
    text += r.package;
    r.n -= r.package;
    if (r.colons == 1 && r.package > 0 && !make) {
        bool external, found;
        kr_value symbol = kri_find_symbol(w, text, r.n, package, &external, &found);
        if (!found || !external)
            kri_error(w, KRI_E_NO_EXTERNAL, kri_string(w, name), NULL);
        return symbol;
    }
    kr_value symbol = kri_intern(w, text, r.n, package);
    if (r.colons == 1)
        kri_export(w, symbol, package);
    return symbol;
}

/* ---- calls ---- */

static kr_value call_named(struct kri_worker *w, void *arg)
{
    const struct call *c = arg;
    return kri_call(w, kri_symbol_named(w, c->name, false), c->argc, c->argv);
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
    struct name r = parse_name(w, c->name + (c->name[0] == ':'));
    kr_value selector = kri_intern(w, (const char *)kri_string_of(r.text)->byte, r.n, w->vm->pkg_keyword);
    return kri_send(w, c->fn, selector, c->argc, c->argv);
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
static kr_value make_symbol(struct kri_worker *w, void *arg) { return kri_symbol_named(w, ((struct made *)arg)->data, false); }

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
    return kri_is_integer(v) && kri_int_to_i64(v, n) ? KR_OK : KR_BAD_TYPE;
}

struct ratio {
    kr_value v;
    double d;
};

static kr_value ratio_value(struct kri_worker *w, void *arg)
{
    struct ratio *r = arg;
    r->d = kri_to_double(w, r->v);
    return KRI_NIL;
}

static kr_status ratio_to_real(kr_context *ctx, kr_value v, double *d)
{
    struct ratio r = {.v = v};
    kr_status status = protected_call(ctx, ratio_value, &r, NULL);
    *d = r.d;
    return status == KR_OK ? KR_OK : KR_NO_MEMORY;
}

kr_status kr_to_real(kr_context *ctx, kr_value v, double *d)
{
    switch (kri_number_kind(v)) {
    case KRI_NUMBER_FIXNUM:
        *d = (double)kri_fixnum_value(v);
        return KR_OK;
    case KRI_NUMBER_FLOAT:
        *d = kri_float_value(v);
        return KR_OK;
    case KRI_NUMBER_BIGNUM:
        *d = kri_int_to_double(v);
        return KR_OK;
    case KRI_NUMBER_RATIO:
        return ratio_to_real(ctx, v, d);
    default:
        return KR_BAD_TYPE;
    }
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

/* The text of error codes is there even when there is no memory to put more together. */
static size_t plain_message(kr_context *ctx, kr_value c, char *buffer, size_t size)
{
    struct kr_vm *vm = ctx->vm;
    if (!kri_is_pointer(c) || !kri_derivedp(vm, c, vm->classes[KRI_CLASS_CONDITION].object))
        return 0;
    kr_value message = kri_slot(&((struct kri_condition *)c.w)->message);
    if (!kri_is_string(vm, message) || size == 0)
        return 0;
    size_t n = kri_length(message), most = n < size - 1 ? n : size - 1;
    memcpy(buffer, kri_string_of(message)->byte, most);
    buffer[most] = '\0';
    return n;
}

size_t kr_print(kr_context *ctx, kr_value v, char *buffer, size_t size) { return copy_text(ctx, print_text, v, buffer, size); }
size_t kr_error_message(kr_context *ctx, kr_value c, char *buffer, size_t size) 
{
    size_t n = copy_text(ctx, message_text, c, buffer, size);
    return n > 0 ? n : plain_message(ctx, c, buffer, size);
}
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
    const struct host_function *h = (const struct host_function *)kri_slot(&kri_function_of(w->callee)->captured[0]).w;
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
    kr_value symbol = kri_symbol_named(w, d->name, true);
    if (kri_is_nil(symbol))
        kri_error(w, KRI_E_NO_SYMBOL, symbol, "the name of a function");
    kr_value fn = kri_make_builtin(w, symbol, host_call, d->arglist, d->doc);
    struct host_function *h = (struct host_function *)kri_make(w, KRI_CLASS_BYTES, 16, 2);
    h->fn = d->host.fn;
    h->user = d->host.user;
    kri_store(w, kri_ptr(fn), &kri_function_of(fn)->captured[0], kri_value_of(h));
    kri_set_function(w, symbol, fn);
    return symbol;
}

kr_status kr_define(kr_context *ctx, const char *name, const char *arglist, const char *doc, kr_function fn, void *user)
{
    struct definition d = {name, arglist, doc, {.fn = fn, .user = user}};
    return protected_call(ctx, define, &d, NULL);
}

/* Also from below kr_blocking: the frame that is unwound to expects to be inside. */
void kr_raise(kr_context *ctx, const char *message)
{
    enter(ctx);
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
    enter(ctx);
    kri_pass_on(ctx->worker, condition);
}

void kr_interrupt(kr_context *ctx) { kri_request(ctx->worker, KRI_REQUEST_INTERRUPT); }

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
    struct visit visit = enter(ctx);
    kri_collect(ctx->worker, KRI_GC_REQUEST);
    leave(ctx, visit);
}
