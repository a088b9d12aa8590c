/* call.c -- C calls Lisp: entries into the virtual machine, protection, unwinding, the arrangement of arguments. */
#include <stdio.h>
#include <stdlib.h>
#include "lisp/interp.h"
#include "lisp/printer.h"
#include "lisp/native.h"
#include "lisp/send.h"

/* ---- entries ---- */

static void entry_push(struct kri_worker *w, struct kri_entry *e, kr_value *record, bool barrier)
{
    struct kr_context *ctx = w->ctx;
    e->prev = ctx->entry;
    e->handler = record;
    e->segment = ctx->segment;
    e->base = ctx->base;
    e->top = ctx->top;
    e->pc = ctx->pc;
    e->callee = w->callee;
    e->compiler = ctx->compiler;
    ctx->compiler = NULL;
    e->evaluated = ctx->evaluated;
    ctx->evaluated = KRI_NIL;
    e->native = ctx->native;
    e->region = ctx->region;
    e->locals = kri_load_relaxed(&ctx->locals_count);
    e->barrier = barrier;
    record[0] = kri_tag_pointer(ctx->handler);
    record[1] = kri_fixnum(KRI_HANDLER_NATIVE);
    record[2] = kri_tag_pointer(e);
    record[3] = kri_tag_pointer(ctx->base);
    ctx->handler = record;
    ctx->entry = e;
}

/* Restore what the entry found; SEGMENT is the one from before its record was placed. */
static void entry_pop(struct kr_context *ctx, struct kri_entry *e, struct kri_segment *segment)
{
    ctx->handler = kri_op_previous(e->handler);
    ctx->entry = e->prev;
    ctx->compiler = e->compiler;
    ctx->evaluated = e->evaluated;
    ctx->base = e->base;
    ctx->top = e->top;
    ctx->pc = e->pc;
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
}

/* Unwinding has come to E: no C function that was called from it goes on, so what they kept as hosts goes, and no native code does. */
static void drop_newer(struct kr_context *ctx, const struct kri_entry *e)
{
    kri_store_relaxed(&ctx->locals_count, e->locals);
    ctx->compiler = NULL; /* what was being compiled is left */
    ctx->native = e->native;
    ctx->region = e->region;
}

/* Unwinding has come to a handler of native code, which is off the chain. */
_Noreturn static void enter_handler(struct kr_context *ctx, struct kri_native_handler *h)
{
    struct kri_region *r = h->region;
    ctx->region = r;
    ctx->native = &r->frame;
    ctx->base = r->base;
    ctx->pc = r->pc;
    ctx->top = NULL;
    ctx->compiler = NULL;
    ctx->evaluated = KRI_NIL;
    kri_store_relaxed(&ctx->locals_count, r->locals);
    if (ctx->segment != r->segment)
        kri_segment_unlink_to(ctx, r->segment);
    kri_overflow_end(ctx);
    h->go(h);
    __builtin_unreachable();
}

/* Not inlined: gcc's setjmp and longjmp may not meet in one function. Entries that lie in C frames are dealt with while these frames still stand;
 * the rest is the affair of the innermost entry from C. */
_Noreturn static KRI_NOINLINE void unwind_on(struct kri_worker *w)
{
    struct kr_context *ctx = w->ctx;
    struct kri_entry *e = ctx->entry;
    for (kr_value *h; (h = ctx->handler) != NULL;) {
        if (kri_handler_kind(h) == KRI_HANDLER_BIND) {
            kri_op_unbind(ctx, h);
            continue;
        }
        if (!kri_handler_in_c(h))
            break;
        ctx->handler = kri_op_previous(h);
        if (h == ctx->unwind_target || kri_handler_kind(h) == KRI_HANDLER_UNWIND)
            enter_handler(ctx, (struct kri_native_handler *)h);
    }
    if (!e) {
        fputs("karakuri: unwinding passed the outermost entry\n", stderr);
        abort();
    }
    KRI_LONGJMP(e->jump);
}

_Noreturn void kri_unwind_to(struct kri_worker *w, kr_value *target, kr_value value)
{
    w->ctx->unwind_target = target;
    w->ctx->unwind_value = value;
    unwind_on(w);
}

/* Bindings made from C below an entry are undone here; Lisp frames' entries are kri_run's affair. */
static void unwind_bindings(struct kr_context *ctx, const struct kri_entry *e)
{
    while (ctx->handler != e->handler) {
        if (kri_handler_kind(ctx->handler) == KRI_HANDLER_BIND)
            kri_op_unbind(ctx, ctx->handler);
        else
            ctx->handler = kri_op_previous(ctx->handler);
    }
}

kr_value *kri_find_handler(struct kr_context *ctx, enum kri_handler_kind kind, kr_value tag)
{
    for (kr_value *h = ctx->handler; h; h = kri_op_previous(h))
        if (kri_handler_kind(h) == kind && kri_eq(h[2], tag))
            return h;
    return NULL;
}

_Noreturn void kri_throw(struct kri_worker *w, kr_value tag, kr_value value)
{
    kr_value *h = kri_find_handler(w->ctx, KRI_HANDLER_CATCH, tag);
    if (!h)
        kri_error(w, KRI_E_NO_CATCHER, tag, NULL);
    kri_unwind_to(w, h, value);
}

/* ---- calls ---- */

enum { ENTRY_WORDS = KRI_FRAME_LINK + KRI_HANDLER_WORDS + KRI_FRAME_LINK };

/* Run bytecode FN; ARRANGED: the arguments are its parameters already. The Lisp stack gets a pseudo-frame (its registers 0..3 are the entry's handler record, 4 the start of
 * the call frame) and FN's frame. */
static kr_value call_bytecode(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv, bool arranged)
{
    struct kr_context *ctx = w->ctx;
    struct kri_code *code = kri_code_of(fn);
    struct kri_segment *segment = ctx->segment;
    struct kri_entry e;
    kr_value result;
    if (kri_native_exhausted(w))
        kri_error_stack(w);
    if (kri_load_relaxed(&w->lisp_limit) == 0)
        kri_poll_slow(w);
    size_t need = (size_t)code->frame + (argc > code->frame ? (size_t)argc : 0);
    kr_value *e_base = kri_stack_reserve(w, ENTRY_WORDS + need) + KRI_FRAME_LINK;
    kr_value *base = e_base + KRI_HANDLER_WORDS + KRI_FRAME_LINK;
    e_base[-3] = w->vm->entry_function;
    e_base[-2] = kri_tag_pointer(ctx->pc);
    e_base[-1] = kri_tag_pointer(ctx->base);
    if (argc) /* argv may be NULL */
        memmove(base, argv, (size_t)argc * sizeof *argv);
    entry_push(w, &e, e_base, false);
    ctx->depth++;
    base[-3] = fn;
    base[-2] = kri_tag_pointer(kri_exit_code);
    base[-1] = kri_tag_pointer(e_base);
    ctx->base = e_base;
    ctx->pc = kri_exit_code;
    ctx->top = base + argc;
    bool done;
    if (KRI_SETJMP(e.jump) == 0) {
        if (!arranged && kri_ptr(fn)->length != KRI_SIGNATURE(argc))
            kri_arrange(w, code, fn, base, argc);
        ctx->top = NULL;
        done = kri_run(w, base, code->instr, false, &result);
    } else {
        /* Raised below: some builtin that the loop called, or the arrangement. Go on unwinding inside the loop. */
        drop_newer(ctx, &e);
        ctx->top = NULL;
        done = kri_run(ctx->worker, NULL, NULL, true, &result);
    }
    ctx->depth--;
    entry_pop(ctx, &e, segment);
    if (!done)
        unwind_on(ctx->worker);
    return result;
}

static kr_value call_any(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv, bool expander)
{
    struct kr_context *ctx = w->ctx;
    kr_value *saved_top = ctx->top;
    kr_value saved_callee = w->callee;
    struct kri_segment *segment = ctx->segment;
    kr_value result;
    for (;;) {
        if (!kri_is_function(fn))
            fn = kri_coerce_function(w, fn);
        struct kri_code *code = kri_code_of(fn);
        if (code->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL | KRI_CODE_UNDEFINED) && !(expander && code->flags & KRI_CODE_MACRO)) {
            if (code->flags & KRI_CODE_UNDEFINED)
                kri_error(w, KRI_E_UNDEFINED, KRI_NIL, NULL);
            kri_error(w, KRI_E_ILLEGAL_FUNCTION, code->name, NULL);
        }
        expander = false;
        if (!code->builtin) {
            result = call_bytecode(w, fn, argc, argv, false);
            break;
        }
        if (kri_native_exhausted(w))
            kri_error_stack(w);
        kr_value *frame = kri_stack_reserve(w, (size_t)argc + KRI_FRAME_SLACK);
        if (argc)
            memmove(frame, argv, (size_t)argc * sizeof *argv);
        w->callee = fn;
        ctx->top = frame + argc;
        if (!code->native && (argc < code->nreq || (code->max >= 0 && argc > code->max)))
            kri_argc_error(w, fn, argc, frame);
        result = code->builtin(w, argc, frame);
        if (result.w != KRI_IMM_TAIL_CALL)
            break;
        fn = w->tail;
        argc = w->tail_argc;
        argv = frame;
        ctx->top = frame + argc; /* apply leaves more arguments than it got: the next frame begins behind them */
    }
    ctx->top = saved_top;
    w->callee = saved_callee;
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
    return result;
}

kr_value kri_call_bytecode(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv) { return call_bytecode(w, fn, argc, argv, false); }
kr_value kri_call_arranged(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv) { return call_bytecode(w, fn, argc, argv, true); }
kr_value kri_call(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv) { return call_any(w, fn, argc, argv, false); }
kr_value kri_call_macro(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv) { return call_any(w, fn, argc, argv, true); }
kr_value kri_call1(struct kri_worker *w, kr_value fn, kr_value a) { return kri_call(w, fn, 1, &a); }
kr_value kri_call2(struct kri_worker *w, kr_value fn, kr_value a, kr_value b)
{
    kr_value argv[2] = {a, b};
    return kri_call(w, fn, 2, argv);
}

kr_value kri_send(struct kri_worker *w, kr_value object, kr_value selector, int argc, const kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    kr_value *saved_top = ctx->top;
    struct kri_segment *segment = ctx->segment;
    kr_value *frame = kri_stack_reserve(w, (size_t)argc + 3 + KRI_FRAME_SLACK);
    frame[0] = object;
    if (argc)
        memcpy(frame + 1, argv, (size_t)argc * sizeof *argv);
    ctx->top = frame + argc + 1;
    int n = argc + 1;
    kr_value fn = kri_send_slow(w, frame, &n, selector, KRI_NIL);
    ctx->top = frame + n;
    kr_value result = kri_call(w, fn, n, frame);
    ctx->top = saved_top;
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
    return result;
}

kr_value kri_accessor_function(struct kri_worker *w, kr_value symbol, kr_value macro)
{
    kr_value f = kri_get(w, symbol, w->vm->sym.k_accessor);
    return kri_is_function(f) ? f : macro;
}

kr_value kri_coerce_function(struct kri_worker *w, kr_value fn)
{
    if (kri_is_function(fn))
        return fn;
    if (kri_is_symbol(fn)) {
        kr_value f = kri_symbol_function(w->vm, fn);
        if (kri_code_of(f)->flags & KRI_CODE_UNDEFINED)
            return kri_undefined_function(w, fn, false);
        return kri_code_of(f)->flags & KRI_CODE_MACRO ? kri_accessor_function(w, fn, f) : f;
    }
    if (kri_is_cons(fn) && kri_eq(kri_car(fn), w->vm->sym.lambda))
        return kri_compile_lambda(w, KRI_NIL, fn);
    /* (lambda-closure name env fenv (parameters) ..): what EusLisp prints for a closure; only its text is left. */
    if (kri_is_cons(fn) && kri_eq(kri_car(fn), w->vm->sym.lambda_closure)) {
        kr_value rest = kri_cdr(fn);
        for (int i = 0; i < 3 && kri_is_cons(rest); i++)
            rest = kri_cdr(rest);
        return kri_compile_lambda(w, KRI_NIL, kri_cons(w, w->vm->sym.lambda, rest));
    }
    kri_error(w, KRI_E_ILLEGAL_FUNCTION, fn, NULL);
}

/* ---- protection ---- */

/* What a throw that ends here wanted, for who passes it on (kr_reraise). The frame it was meant for is an older one. */
static void remember_throw(struct kr_context *ctx, const struct kri_entry *e)
{
    const kr_value *h = ctx->unwind_target;
    bool thrown = h && h != e->handler;
    ctx->thrown = thrown ? (int)kri_handler_kind(h) : -1;
    ctx->thrown_tag = thrown ? h[2] : KRI_NIL;
    ctx->thrown_value = thrown ? ctx->unwind_value : KRI_NIL;
}

bool kri_protect(struct kri_worker *w, kr_value (*f)(struct kri_worker *w, void *arg), void *arg, kr_value *result)
{
    struct kr_context *ctx = w->ctx;
    struct kri_segment *segment = ctx->segment;
    struct kri_entry e;
    kr_value *top = kri_stack_try(w, KRI_HANDLER_WORDS + KRI_FRAME_SLACK);
    if (!top) {
        *result = w->vm->stack_condition;
        return false;
    }
    entry_push(w, &e, top, true);
    ctx->top = top + KRI_HANDLER_WORDS;
    if (KRI_SETJMP(e.jump) == 0) {
        *result = f(w, arg);
        entry_pop(ctx, &e, segment);
        return true;
    }
    drop_newer(ctx, &e);
    remember_throw(ctx, &e);
    unwind_bindings(ctx, &e);
    kr_value value = ctx->unwind_target == e.handler ? ctx->unwind_value : KRI_NIL;
    entry_pop(ctx, &e, segment);
    kri_overflow_end(ctx);
    ctx->unwind_target = NULL;
    ctx->unwind_value = KRI_NIL;
    *result = value;
    return false;
}

kr_value kri_unwind_protect(struct kri_worker *w, kr_value (*f)(struct kri_worker *w, void *arg), void *arg,
                            void (*cleanup)(struct kri_worker *w, void *arg))
{
    struct kr_context *ctx = w->ctx;
    struct kri_segment *segment = ctx->segment;
    struct kri_entry e;
    kr_value *top = kri_stack_reserve(w, KRI_HANDLER_WORDS + KRI_FRAME_SLACK);
    entry_push(w, &e, top, false);
    ctx->top = top + KRI_HANDLER_WORDS;
    if (KRI_SETJMP(e.jump) == 0) {
        kr_value result = f(w, arg);
        entry_pop(ctx, &e, segment);
        cleanup(w, arg);
        return result;
    }
    drop_newer(ctx, &e);
    unwind_bindings(ctx, &e);
    entry_pop(ctx, &e, segment);
    kr_value *target = ctx->unwind_target;
    kr_value value = ctx->unwind_value;
    cleanup(ctx->worker, arg);
    kri_unwind_to(ctx->worker, target, value);
}

kr_value kri_with_binding(struct kri_worker *w, kr_value symbol, kr_value value, kr_value (*f)(struct kri_worker *w, void *arg), void *arg)
{
    struct kr_context *ctx = w->ctx;
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    kr_value *saved_top = ctx->top;
    struct kri_segment *segment = ctx->segment;
    if (kri_fixnum_value(s->special) == 0)
        kri_proclaim_special(w, symbol);
    size_t i = (size_t)kri_fixnum_value(s->special);
    if (!kri_dynamic_ensure(ctx, i))
        kri_error_memory(w, i * sizeof(kr_value));
    kr_value *h = kri_stack_reserve(w, KRI_HANDLER_WORDS + KRI_FRAME_SLACK);
    h[0] = kri_tag_pointer(ctx->handler);
    h[1] = kri_fixnum((intptr_t)(i << 3 | KRI_HANDLER_BIND));
    h[2] = ctx->dynamic[i];
    h[3] = kri_tag_pointer(ctx->base);
    ctx->handler = h;
    ctx->dynamic[i] = value;
    ctx->top = h + KRI_HANDLER_WORDS;
    kr_value result = f(w, arg);
    kri_op_unbind(ctx, h);
    ctx->top = saved_top;
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
    return result;
}

/* ---- arguments ---- */

_Noreturn void kri_argc_error(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv)
{
    const struct kri_code *code = kri_code_of(fn);
    int min = code->nreq, max = code->max;
    if (code->flags & KRI_CODE_SPECIAL)
        kri_error(w, KRI_E_ILLEGAL_FUNCTION, code->name, NULL);
    if (code->flags & KRI_CODE_METHOD) {
        if (argc == 0)
            kri_error(w, KRI_E_ARGC, code->name, "a method without its receiver");
        min--;
        max -= max > 0;
        argc--;
        argv++;
    }
    kr_value call = kri_cons(w, code->name, kri_list_from(w, argv, argc < 0 ? 0 : (size_t)(argc > 20 ? 20 : argc)));
    char parameters[200] = "";
    if (kri_is_string(w->vm, code->lambda_list))
        snprintf(parameters, sizeof parameters, "%s", (const char *)kri_string_of(code->lambda_list)->byte);
    else
        snprintf(parameters, sizeof parameters, "%s", (const char *)kri_string_of(kri_print_cut(w, code->lambda_list, sizeof parameters - 1))->byte);
    if (max < 0)
        kri_error_call(w, KRI_E_ARGC, code->name, call, "%d given, at least %d expected: %s", argc, min, parameters);
    if (min == max)
        kri_error_call(w, KRI_E_ARGC, code->name, call, "%d given, %d expected: %s", argc, min, parameters);
    kri_error_call(w, KRI_E_ARGC, code->name, call, "%d given, %d to %d expected: %s", argc, min, max, parameters);
}

static int key_index(const struct kri_code *code, kr_value key)
{
    const struct kri_vector *keys = kri_vector_of(code->keywords);
    for (unsigned i = 0; i < code->nkey; i++)
        if (kri_eq(keys->at[i], key))
            return (int)i;
    return -1;
}

/* The call of CODE with the ARGC arguments at BASE as a list, for an error. */
static kr_value failed_call(struct kri_worker *w, const struct kri_code *code, int argc, const kr_value *base)
{
    return kri_cons(w, code->name, kri_list_from(w, base, (size_t)(argc > 20 ? 20 : argc)));
}

void kri_arrange(struct kri_worker *w, struct kri_code *code, kr_value fn, kr_value *base, int argc)
{
    int positional = code->nreq + code->nopt;
    bool tail = code->flags & (KRI_CODE_REST | KRI_CODE_KEYS);
    if (argc < code->nreq || (argc > positional && !tail))
        kri_argc_error(w, fn, argc, base);
    if (!tail) {
        for (int i = argc; i < positional; i++)
            base[i] = KRI_ABSENT;
        return;
    }
    int extra = argc > positional ? argc - positional : 0;
    kr_value keys[32], *key = keys;
    kr_value *spill = NULL;
    if (code->nkey > 32) {
        kr_value v = kri_make_vector(w, code->nkey);
        spill = kri_vector_of(v)->at;
        key = spill;
    }
    if (code->flags & KRI_CODE_KEYS) {
        for (unsigned i = 0; i < code->nkey; i++)
            key[i] = KRI_ABSENT;
        if (extra & 1)
            kri_error_call(w, KRI_E_KEYWORD_EXPECTED, code->name, failed_call(w, code, argc, base), "a value is missing after %V", base[argc - 1]);
        bool allow = code->flags & KRI_CODE_ALLOW;
        for (int i = positional; i < argc; i += 2) {
            if (!kri_is_symbol(base[i]) || kri_is_nil(base[i]))
                kri_error_call(w, KRI_E_KEYWORD_EXPECTED, code->name, failed_call(w, code, argc, base), "%V is none; parameters: %V", base[i],
                               code->lambda_list);
            int j = key_index(code, base[i]);
            if (j < 0 && !allow)
                kri_error_call(w, KRI_E_NO_KEYWORD, base[i], failed_call(w, code, argc, base), "of %V; parameters: %V", code->name, code->lambda_list);
            if (j >= 0 && kri_eq(key[j], KRI_ABSENT)) /* the first of duplicates wins */
                key[j] = base[i + 1];
        }
    }
    int at = positional;
    if (code->flags & KRI_CODE_REST) {
        kr_value rest = kri_list_from(w, base + positional, (size_t)extra);
        base[at++] = rest;
    }
    if (code->flags & KRI_CODE_KEYS)
        memcpy(base + at, key, code->nkey * sizeof *key);
    for (int i = argc; i < positional; i++)
        base[i] = KRI_ABSENT;
}
