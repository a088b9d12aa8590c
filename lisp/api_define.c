/* api_define.c -- karakuri.h: functions, classes and methods that a host gives to Lisp; C run within Lisp's protection. */
#include <stdlib.h>
#include "lisp/api.h"

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

kr_value kri_host_function(struct kri_worker *w, kr_value name, const char *arglist, const char *doc, kr_function fn, void *user)
{
    kr_value made = kri_make_builtin(w, name, host_call, arglist, doc);
    struct host_function *h = (struct host_function *)kri_make(w, KRI_CLASS_BYTES, 16, 2);
    h->fn = fn;
    h->user = user;
    kri_store(w, kri_ptr(made), &kri_function_of(made)->captured[0], kri_value_of(h));
    return made;
}

struct definition {
    const char *name, *arglist, *doc;
    kr_function fn;
    void *user;
    const char *cls; /* of a method */
};

static kr_value define(struct kri_worker *w, void *arg)
{
    const struct definition *d = arg;
    kr_value symbol = kri_symbol_named(w, d->name, true);
    if (kri_is_nil(symbol))
        kri_error(w, KRI_E_NO_SYMBOL, symbol, "the name of a function");
    kri_set_function(w, symbol, kri_host_function(w, symbol, d->arglist, d->doc, d->fn, d->user));
    return symbol;
}

kr_status kr_define(kr_context *ctx, const char *name, const char *arglist, const char *doc, kr_function fn, void *user)
{
    struct definition d = {.name = name, .arglist = arglist, .doc = doc, .fn = fn, .user = user};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, name, 2);
    KRI_CHECK_TEXT(ctx, arglist, 3);
    if (kri_is_checking() && !fn)
        kri_misuse(ctx->vm, __func__, "the function is NULL");
    return kri_protected_call(ctx, define, &d, NULL);
}

/* ---- classes ---- */

struct class_definition {
    const char *name, *super, *slots, *doc;
};

/* The words of TEXT as symbols. */
static kr_value slot_symbols(struct kri_worker *w, const char *text)
{
    kr_value list = KRI_NIL;
    while (text && *text) {
        size_t space = strspn(text, " \t\n"), n = strcspn(text + space, " \t\n");
        char name[100];
        if (n >= sizeof name)
            kri_error(w, KRI_E_LONG_STRING, kri_string(w, text), "the name of a slot");
        memcpy(name, text + space, n);
        name[n] = '\0';
        if (n > 0)
            list = kri_cons(w, kri_symbol_named(w, name, true), list);
        text += space + n;
    }
    kr_value forward = KRI_NIL;
    for (; kri_is_cons(list); list = kri_cdr(list))
        forward = kri_cons(w, kri_car(list), forward);
    return forward;
}

static kr_value define_class(struct kri_worker *w, void *arg)
{
    const struct class_definition *d = arg;
    kr_value name = kri_symbol_named(w, d->name, true), defclass = kri_intern(w, "DEFCLASS", 8, w->vm->pkg_lisp);
    kr_value super = d->super ? kri_symbol_remembered(w, d->super) : kri_intern(w, "PROPERTIED-OBJECT", 17, w->vm->pkg_lisp);
    kr_value form = kri_list(w, 2, kri_keyword(w, "SLOTS"), slot_symbols(w, d->slots));
    if (d->doc) {
        kr_value doc = kri_string(w, d->doc);
        form = kri_cons(w, kri_keyword(w, "DOCUMENTATION"), kri_cons(w, doc, form));
    }
    form = kri_cons(w, kri_keyword(w, "SUPER"), kri_cons(w, super, form));
    return kri_eval(w, kri_cons(w, defclass, kri_cons(w, name, form)));
}

kr_status kr_define_class(kr_context *ctx, const char *name, const char *super, const char *slots, const char *doc)
{
    struct class_definition d = {name, super, slots, doc};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, name, 2);
    return kri_protected_call(ctx, define_class, &d, NULL);
}

/* The host's arglist leaves the receiver out, which every method gets first. */
static kr_value method_arglist(struct kri_worker *w, const char *arglist)
{
    const char *rest = strchr(arglist, '(');
    if (!rest)
        kri_error(w, KRI_E_LAMBDA_PARAMETER, kri_string(w, arglist), "an arglist such as \"(a b)\" expected");
    size_t n = strlen(rest + 1);
    kr_value text = kri_make_string(w, n + 6);
    memcpy(kri_string_of(text)->byte, "(self ", 6);
    memcpy(kri_string_of(text)->byte + 6, rest + 1, n);
    return text;
}

static kr_value define_method(struct kri_worker *w, void *arg)
{
    const struct definition *d = arg;
    kr_value cls = kri_class_named(w, d->cls), selector = kri_selector_named(w, d->name), arglist = method_arglist(w, d->arglist);
    kr_value name = kri_list(w, 2, kri_metaclass_of(cls)->name, selector), doc = d->doc ? kri_string(w, d->doc) : KRI_NIL;
    kr_value fn = kri_host_function(w, name, (const char *)kri_string_of(arglist)->byte, d->doc, d->fn, d->user);
    kri_add_method(w, cls, selector, fn, doc);
    return selector;
}

kr_status kr_define_method(kr_context *ctx, const char *class_name, const char *selector, const char *arglist, const char *doc, kr_function fn,
                           void *user)
{
    struct definition d = {.name = selector, .arglist = arglist, .doc = doc, .fn = fn, .user = user, .cls = class_name};
    KRI_CHECK_CONTEXT(ctx);
    KRI_CHECK_TEXT(ctx, class_name, 2);
    KRI_CHECK_TEXT(ctx, selector, 3);
    KRI_CHECK_TEXT(ctx, arglist, 4);
    if (kri_is_checking() && !fn)
        kri_misuse(ctx->vm, __func__, "the function is NULL");
    return kri_protected_call(ctx, define_method, &d, NULL);
}

/* ---- protection ---- */

struct protected_c {
    kr_value (*f)(kr_context *ctx, void *arg);
    void (*cleanup)(kr_context *ctx, void *arg);
    void *arg;
};

/* F sees what a kr_function sees: values handed to it go when it returns. */
static kr_value run_protected(struct kri_worker *w, void *arg)
{
    const struct protected_c *p = arg;
    kr_context *ctx = w->ctx;
    size_t scope = kri_load_relaxed(&ctx->locals_count);
    kr_value v = p->f(ctx, p->arg);
    kri_store_relaxed(&ctx->locals_count, scope);
    return v;
}

static void run_cleanup(struct kri_worker *w, void *arg)
{
    const struct protected_c *p = arg;
    p->cleanup(w->ctx, p->arg);
}

kr_status kr_protect(kr_context *ctx, kr_value (*f)(kr_context *ctx, void *arg), void *arg, kr_value *out)
{
    struct protected_c p = {.f = f, .arg = arg};
    KRI_CHECK_CONTEXT(ctx);
    return kri_protected_call(ctx, run_protected, &p, out);
}

kr_value kr_with_cleanup(kr_context *ctx, kr_value (*f)(kr_context *ctx, void *arg), void (*cleanup)(kr_context *ctx, void *arg), void *arg)
{
    struct protected_c p = {.f = f, .cleanup = cleanup, .arg = arg};
    KRI_CHECK_CONTEXT(ctx);
    if (kri_is_checking() && !kri_inside(ctx->worker))
        kri_misuse(ctx->vm, __func__, "it is for C that Lisp called: outside, use kr_protect");
    return kri_unwind_protect(ctx->worker, run_protected, &p, run_cleanup);
}

/* ---- restarts ---- */

static kr_value list_restarts(struct kri_worker *w, void *arg)
{
    kr_value fn = kri_intern(w, "COMPUTE-RESTARTS", 16, w->vm->pkg_lisp);
    return kri_call1(w, kri_symbol_function(w->vm, fn), *(kr_value *)arg);
}

kr_status kr_restarts(kr_context *ctx, kr_value condition, kr_value *out)
{
    KRI_CHECK_INSIDE(ctx);
    KRI_CHECK_VALUE(ctx, condition, 2);
    return kri_protected_call(ctx, list_restarts, &condition, out);
}

static kr_value find_restart(struct kri_worker *w, void *arg)
{
    kr_value fn = kri_intern(w, "FIND-RESTART", 12, w->vm->pkg_lisp);
    return kri_call1(w, kri_symbol_function(w->vm, fn), *(kr_value *)arg);
}

kr_status kr_invoke_restart(kr_context *ctx, kr_value restart, int argc, const kr_value *argv)
{
    struct kri_worker *w = ctx->worker;
    kr_value found;
    KRI_CHECK_INSIDE(ctx);
    KRI_CHECK_VALUE(ctx, restart, 2);
    KRI_CHECK_ARGUMENTS(ctx, argc, argv);
    if (kri_protected_call(ctx, find_restart, &restart, &found) != KR_OK || kri_is_nil(found))
        return KR_ERROR;
    kri_visit_begin(ctx);
    kr_value arguments = kri_cons(w, found, kri_list_from(w, argv, argc < 0 ? 0 : (size_t)argc));
    kr_value fn = kri_symbol_function(ctx->vm, kri_intern(w, "INVOKE-RESTART", 14, ctx->vm->pkg_lisp));
    kri_call2(w, kri_symbol_function(ctx->vm, ctx->vm->sym.apply), fn, arguments);
    return KR_OK;
}
