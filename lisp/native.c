/* native.c -- native functions at run time: entering them, calls out of them, their frames, redefinition. */
#include "lisp/native.h"

/* ---- frames ---- */

/* The function that SITE lies in; the instruction after it in *PC. */
static const struct kri_native *native_of_site(const struct kr_vm *vm, const struct kri_native_site *site, uint32_t *pc)
{
    const struct kri_native_instance *i = vm->natives;
    while (site < i->module->site || site >= i->module->site + i->module->sites)
        i = i->next;
    uint32_t at = (uint32_t)(site - i->module->site), low = 0, high = i->module->functions;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (i->module->function[middle].site <= at)
            low = middle;
        else
            high = middle;
    }
    *pc = at - i->module->function[low].site;
    return &i->native[low];
}

void kri_frames_begin(struct kri_frames *f, struct kr_context *ctx)
{
    *f = (struct kri_frames){.ctx = ctx, .native = ctx->native, .region = ctx->region, .base = ctx->base, .pc = ctx->pc};
}

static bool next_native(struct kri_frames *f)
{
    while (f->region && f->region->base == f->base) {
        struct kri_native_frame *n = f->native;
        f->native = n->prev;
        if (n == &f->region->frame) {
            f->region = f->region->outer;
            continue;
        }
        uint32_t pc;
        const struct kri_native *native = native_of_site(f->ctx->vm, n->site, &pc);
        const struct kri_code *code = (const struct kri_code *)native->code.w;
        f->function = native->object;
        f->code = code;
        f->registers = n->argument;
        f->writable = NULL;
        f->at = code->instr + pc;
        f->line = kri_code_line(code, f->at);
        return true;
    }
    return false;
}

void kri_frames_settle(struct kri_frames *f)
{
    while (f->region && f->region->base == f->base && f->native == &f->region->frame) {
        f->native = f->native->prev;
        f->region = f->region->outer;
    }
}

bool kri_frames_next(struct kri_frames *f)
{
    f->entered = NULL;
    for (;;) {
        if (next_native(f))
            return true;
        kr_value *base = f->base;
        const kri_instruction *pc = f->pc;
        if (!base)
            return false;
        f->base = kri_untag_pointer(base[-1]);
        f->pc = kri_untag_pointer(base[-2]);
        if (kri_eq(base[-3], f->ctx->vm->entry_function)) {
            f->entered = base;
            continue;
        }
        f->function = base[-3];
        f->code = kri_code_of(base[-3]);
        f->registers = f->writable = base;
        f->at = pc;
        f->line = kri_code_line(f->code, pc);
        return true;
    }
}

kr_value kri_running_function(struct kr_context *ctx)
{
    const struct kri_native_frame *n = ctx->native;
    uint32_t pc;
    for (const struct kri_region *r = ctx->region; r && r->base == ctx->base; r = r->outer, n = n->prev)
        if (n != &r->frame)
            return native_of_site(ctx->vm, n->site, &pc)->object;
    return ctx->base[-3];
}

/* ---- the definition of a symbol; N2 ---- */

static void note_definition(struct kri_worker *w, kr_value symbol, kr_value fn, kr_value valid)
{
    const struct kri_native *n = kri_code_of(fn)->native;
    if (!n || !kri_eq(n->object, fn) || !kri_eq(kri_code_of(fn)->name, symbol))
        return;
    kr_value *flag = (kr_value *)&n->k[1 + n->index];
    kri_store(w, (struct kri_cell *)n->k - 1, flag, valid);
}

/* Unless EXPECTED is nil, only if that is the definition still. */
static bool set_function(struct kri_worker *w, kr_value symbol, kr_value expected, kr_value fn)
{
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    kri_lock(w, &w->vm->lock);
    kr_value old = kri_slot(&s->function);
    bool stands = kri_is_nil(expected) || kri_eq(old, expected);
    if (stands) {
        if (kri_is_function(old))
            note_definition(w, symbol, old, KRI_NIL);
        kri_store(w, &s->head, &s->function, fn);
        note_definition(w, symbol, fn, kri_fixnum(1));
    }
    kri_unlock(&w->vm->lock);
    return stands;
}

void kri_set_function(struct kri_worker *w, kr_value symbol, kr_value fn) { set_function(w, symbol, KRI_NIL, fn); }
bool kri_replace_function(struct kri_worker *w, kr_value symbol, kr_value old, kr_value fn) { return set_function(w, symbol, old, fn); }

/* ---- entering ---- */

static kr_value run(const struct kri_native *n, struct kri_worker *w, struct kri_native_frame *f, kr_value self, const kr_value *a)
{
    typedef struct kri_worker *W;
    typedef const kr_value *K;
    typedef struct kri_native_frame *F;
    typedef kr_value V;
    void *e = n->function->entry;
    K k = n->k;
    if (n->function->closure)
        switch (n->function->fixed) {
        case 0: return ((V (*)(W, K, F, V))e)(w, k, f, self);
        case 1: return ((V (*)(W, K, F, V, V))e)(w, k, f, self, a[0]);
        case 2: return ((V (*)(W, K, F, V, V, V))e)(w, k, f, self, a[0], a[1]);
        case 3: return ((V (*)(W, K, F, V, V, V, V))e)(w, k, f, self, a[0], a[1], a[2]);
        case 4: return ((V (*)(W, K, F, V, V, V, V, V))e)(w, k, f, self, a[0], a[1], a[2], a[3]);
        case 5: return ((V (*)(W, K, F, V, V, V, V, V, V))e)(w, k, f, self, a[0], a[1], a[2], a[3], a[4]);
        case 6: return ((V (*)(W, K, F, V, V, V, V, V, V, V))e)(w, k, f, self, a[0], a[1], a[2], a[3], a[4], a[5]);
        case 7: return ((V (*)(W, K, F, V, V, V, V, V, V, V, V))e)(w, k, f, self, a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
        case 8: return ((V (*)(W, K, F, V, V, V, V, V, V, V, V, V))e)(w, k, f, self, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
        default: return ((V (*)(W, K, F, V, const V *))e)(w, k, f, self, a);
        }
    switch (n->function->fixed) {
    case 0: return ((V (*)(W, K, F))e)(w, k, f);
    case 1: return ((V (*)(W, K, F, V))e)(w, k, f, a[0]);
    case 2: return ((V (*)(W, K, F, V, V))e)(w, k, f, a[0], a[1]);
    case 3: return ((V (*)(W, K, F, V, V, V))e)(w, k, f, a[0], a[1], a[2]);
    case 4: return ((V (*)(W, K, F, V, V, V, V))e)(w, k, f, a[0], a[1], a[2], a[3]);
    case 5: return ((V (*)(W, K, F, V, V, V, V, V))e)(w, k, f, a[0], a[1], a[2], a[3], a[4]);
    case 6: return ((V (*)(W, K, F, V, V, V, V, V, V))e)(w, k, f, a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7: return ((V (*)(W, K, F, V, V, V, V, V, V, V))e)(w, k, f, a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    case 8: return ((V (*)(W, K, F, V, V, V, V, V, V, V, V))e)(w, k, f, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    default: return ((V (*)(W, K, F, const V *))e)(w, k, f, a);
    }
}

static inline bool low(struct kri_worker *w)
{
    return KRI_UNLIKELY((uintptr_t)__builtin_frame_address(0) < kri_load_relaxed(&w->native_limit)) && kri_native_low_slow(w);
}

/* The function that runs N's bytecode in the place of SELF. */
static kr_value twin_of(struct kri_worker *w, const struct kri_native *n, kr_value self)
{
    kr_value twin = kri_native_twin_of(w, n);
    const struct kri_function *t = kri_function_of(twin);
    const struct kri_code *code = kri_code_of(twin);
    if (code->captures == 0)
        return twin;
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_CLOSURE, t->head.length, code->captures + 1);
    f->code = t->code;
    memcpy(f->captured, kri_function_of(self)->captured, code->captures * sizeof(kr_value));
    return kri_value_of(f);
}

kr_value kri_native_enter(struct kri_worker *w, int argc, kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    kr_value self = w->callee;
    struct kri_code *code = kri_code_of(self);
    const struct kri_native *n = code->native;
    if (low(w))
        return kri_tail_call(w, twin_of(w, n, self), argc);
    struct kri_segment *segment = ctx->segment;
    int used = argc;
    if (n->function->fixed != argc) {
        int parameters = code->nreq + code->nopt + code->nkey + (code->flags & KRI_CODE_REST ? 1 : 0);
        if (parameters > argc) {
            kr_value *at = argv;
            if (argv < segment->slot || argv + parameters > segment->limit)
                at = kri_stack_reserve(w, (size_t)parameters);
            if (at != argv && at != argv + argc)
                memcpy(at, argv, (size_t)argc * sizeof *argv);
            else
                at = argv;
            argv = at;
            used = parameters;
            ctx->top = argv + argc;
        }
        kri_arrange(w, code, self, argv, argc);
    }
    struct kri_region r = {.frame = {.prev = ctx->native}, .outer = ctx->region, .base = ctx->base, .top = argv + used, .pc = ctx->pc,
                           .segment = ctx->segment, .locals = kri_load_relaxed(&ctx->locals_count), .compiler = ctx->compiler,
                           .evaluated = ctx->evaluated};
    ctx->region = &r;
    ctx->native = &r.frame;
    ctx->top = NULL;
    ctx->compiler = NULL;
    ctx->evaluated = KRI_NIL;
    kr_value v = run(n, w, &r.frame, self, argv);
    ctx->region = r.outer;
    ctx->native = r.frame.prev;
    ctx->compiler = r.compiler;
    ctx->evaluated = r.evaluated;
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
    return v;
}

/* ---- calls from native code ---- */

/* Room on the Lisp stack for N words above the region's, in a new segment if need be; the caller unlinks it. */
static kr_value *stack_room(struct kri_worker *w, size_t n)
{
    struct kr_context *ctx = w->ctx;
    kr_value *top = ctx->region->top;
    if (KRI_LIKELY(top >= ctx->segment->slot && top + n <= ctx->segment->limit))
        return top;
    return kri_stack_reserve(w, n);
}

/* Call FN, whose arguments lie on the Lisp stack above the region's part. */
static kr_value call_on_stack(struct kri_worker *w, kr_value fn, int argc, kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    for (;;) {
        if (KRI_UNLIKELY(!kri_is_function(fn))) {
            w->callee = kri_running_function(ctx);
            ctx->top = argv + argc;
            fn = kri_coerce_function(w, fn);
            ctx->top = NULL;
        }
        struct kri_code *code = kri_code_of(fn);
        if (!code->builtin || (code->native && code->flags & KRI_CODE_MACRO))
            break;
        w->callee = fn;
        if (KRI_UNLIKELY(argc < code->nreq || (code->max >= 0 && argc > code->max)) && !code->native)
            kri_argc_error(w, fn, argc, argv);
        ctx->top = argv + argc;
        kr_value v = code->builtin(w, argc, argv);
        ctx->top = NULL;
        if (KRI_LIKELY(v.w != KRI_IMM_TAIL_CALL))
            return v;
        fn = w->tail;
        argc = w->tail_argc;
    }
    const struct kri_code *code = kri_code_of(fn);
    if (KRI_UNLIKELY(code->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL | KRI_CODE_UNDEFINED))) {
        if (code->flags & KRI_CODE_UNDEFINED)
            kri_error(w, KRI_E_UNDEFINED, KRI_NIL, NULL);
        kri_error(w, KRI_E_ILLEGAL_FUNCTION, code->name, NULL);
    }
    ctx->top = argv + argc;
    kr_value v = kri_call_bytecode(w, fn, argc, argv);
    ctx->top = NULL;
    return v;
}

static kr_value call_copied(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    struct kri_segment *segment = ctx->segment;
    kr_value *at = stack_room(w, (size_t)argc);
    for (int i = 0; i < argc; i++)
        at[i] = argv[i];
    kr_value v = call_on_stack(w, fn, argc, at);
    if (KRI_UNLIKELY(ctx->segment != segment))
        kri_segment_unlink_to(ctx, segment);
    return v;
}

static inline kr_value call_function(struct kri_worker *w, struct kri_native_frame *frame, kr_value fn, int argc, const kr_value *argv)
{
    if (KRI_LIKELY(kri_is_function(fn))) {
        const struct kri_native *n = kri_code_of(fn)->native;
        if (n && n->function->fixed == argc)
            return run(n, w, frame, fn, argv);
    }
    w->ctx->native = frame;
    return call_copied(w, fn, argc, argv);
}

static KRI_COLD kr_value undefined(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol)
{
    w->ctx->native = frame;
    return kri_undefined_function(w, symbol, true);
}

static inline kr_value definition(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol)
{
    kr_value fn = kri_slot(&((const struct kri_symbol *)symbol.w)->function);
    return KRI_UNLIKELY(kri_eq(fn, w->vm->undefined)) ? undefined(w, frame, symbol) : fn;
}

kr_value kri_native_call0(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol)
{
    return call_function(w, frame, definition(w, frame, symbol), 0, NULL);
}

kr_value kri_native_call1(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, kr_value a)
{
    kr_value fn = definition(w, frame, symbol);
    const struct kri_native *n = kri_code_of(fn)->native;
    if (n && n->function->fixed == 1 && !n->function->closure)
        return ((kr_value (*)(struct kri_worker *, const kr_value *, struct kri_native_frame *, kr_value))n->function->entry)(w, n->k, frame, a);
    return call_function(w, frame, fn, 1, &a);
}

kr_value kri_native_call2(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, kr_value a, kr_value b)
{
    kr_value fn = definition(w, frame, symbol), argv[] = {a, b};
    const struct kri_native *n = kri_code_of(fn)->native;
    if (n && n->function->fixed == 2 && !n->function->closure)
        return ((kr_value (*)(struct kri_worker *, const kr_value *, struct kri_native_frame *, kr_value, kr_value))n->function->entry)(w, n->k, frame, a, b);
    return call_function(w, frame, fn, 2, argv);
}

kr_value kri_native_call3(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, kr_value a, kr_value b, kr_value c)
{
    kr_value argv[] = {a, b, c};
    return call_function(w, frame, definition(w, frame, symbol), 3, argv);
}

kr_value kri_native_calln(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, int argc, const kr_value *argv)
{
    return call_function(w, frame, definition(w, frame, symbol), argc, argv);
}

kr_value kri_native_funcall(struct kri_worker *w, struct kri_native_frame *frame, kr_value fn, int argc, const kr_value *argv)
{
    return call_function(w, frame, fn, argc, argv);
}

kr_value kri_native_apply(struct kri_worker *w, struct kri_native_frame *frame, kr_value fn, int argc, const kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    struct kri_segment *segment = ctx->segment;
    kr_value list = argv[argc - 1];
    size_t n = 0;
    ctx->native = frame;
    w->callee = kri_symbol_function(w->vm, w->vm->sym.apply);
    kr_value *at = stack_room(w, (size_t)argc);
    memcpy(at, argv, (size_t)argc * sizeof *argv);
    ctx->top = at + argc;
    for (kr_value l = list; kri_is_cons(l); l = kri_cdr(l))
        if (++n > w->vm->stack_limit_words)
            kri_error(w, KRI_E_CIRCULAR, list, "or more arguments than the stack holds");
    ctx->top = NULL;
    if (at + argc + n > ctx->segment->limit) {
        ctx->top = at + argc;
        kr_value *more = kri_stack_reserve(w, (size_t)argc + n);
        memcpy(more, argv, (size_t)argc * sizeof *argv);
        at = more;
        ctx->top = NULL;
    }
    argc--;
    /* The list may shrink or grow under another thread's hands: at most N elements are taken. */
    for (; n > 0 && kri_is_cons(list); n--, list = kri_cdr(list))
        at[argc++] = kri_car(list);
    kr_value v = call_on_stack(w, fn, argc, at);
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
    return v;
}

static kr_value send_slow(struct kri_worker *w, kr_value selector, int argc, const kr_value *argv, kr_value super_of)
{
    struct kr_context *ctx = w->ctx;
    struct kri_segment *segment = ctx->segment;
    kr_value *at = stack_room(w, (size_t)argc);
    memcpy(at, argv, (size_t)argc * sizeof *argv);
    ctx->top = at + argc;
    w->callee = KRI_NIL; /* the frame's function is at fault if there is no method */
    kr_value fn = kri_send_slow(w, at, &argc, selector, super_of);
    ctx->top = NULL;
    kr_value v = call_on_stack(w, fn, argc, at);
    if (ctx->segment != segment)
        kri_segment_unlink_to(ctx, segment);
    return v;
}

/* The method in the worker's cache for a message to A, or NIL. */
static inline kr_value cached_method(struct kri_worker *w, kr_value selector, kr_value a)
{
    const struct kri_cell *c = kri_cell(w->vm, a);
    if (KRI_UNLIKELY(c == NULL))
        return KRI_NIL;
    const struct kri_method_entry *e = kri_method_probe(w, c->cls, selector);
    return KRI_LIKELY(e->cls == c->cls && kri_eq(e->selector, selector) && kri_method_cache_valid(w)) ? e->function : KRI_NIL;
}

kr_value kri_native_send1(struct kri_worker *w, struct kri_native_frame *frame, kr_value selector, kr_value a)
{
    kr_value fn = cached_method(w, selector, a);
    if (KRI_LIKELY(!kri_is_nil(fn))) {
        const struct kri_native *n = kri_code_of(fn)->native;
        if (n && n->function->fixed == 1 && !n->function->closure)
            return ((kr_value (*)(struct kri_worker *, const kr_value *, struct kri_native_frame *, kr_value))n->function->entry)(w, n->k, frame, a);
    }
    return kri_native_send(w, frame, selector, 1, &a);
}

kr_value kri_native_send2(struct kri_worker *w, struct kri_native_frame *frame, kr_value selector, kr_value a, kr_value b)
{
    kr_value fn = cached_method(w, selector, a), argv[] = {a, b};
    if (KRI_LIKELY(!kri_is_nil(fn))) {
        const struct kri_native *n = kri_code_of(fn)->native;
        if (n && n->function->fixed == 2 && !n->function->closure)
            return ((kr_value (*)(struct kri_worker *, const kr_value *, struct kri_native_frame *, kr_value, kr_value))n->function->entry)(w, n->k, frame, a, b);
    }
    return kri_native_send(w, frame, selector, 2, argv);
}

kr_value kri_native_send(struct kri_worker *w, struct kri_native_frame *frame, kr_value selector, int argc, const kr_value *argv)
{
    kr_value fn = cached_method(w, selector, argv[0]);
    if (KRI_LIKELY(!kri_is_nil(fn)))
        return call_function(w, frame, fn, argc, argv);
    w->ctx->native = frame;
    return send_slow(w, selector, argc, argv, KRI_NIL);
}

kr_value kri_native_sendsuper(struct kri_worker *w, struct kri_native_frame *frame, kr_value pair, int argc, const kr_value *argv)
{
    w->ctx->native = frame;
    return send_slow(w, kri_cdr(pair), argc, argv, kri_car(pair));
}

bool kri_native_low(struct kri_worker *w, const kr_value *k, struct kri_native_frame *caller, unsigned function)
{
    struct kr_context *ctx = w->ctx;
    const struct kri_native_instance *i = kri_untag_pointer(k[0]);
    /* The function compared its own stack pointer, which is deeper than this: what it found is not judged again. */
    if (kri_load_relaxed(&w->native_limit) != ~(size_t)0)
        return true;
    if (kri_load_relaxed(&w->lisp_limit) == 0) {
        ctx->native = caller;
        ctx->top = ctx->region->top;
        w->callee = i->native[function].object; /* whom the errors name */
        kri_poll_slow(w);
        ctx->top = NULL;
    }
    kri_native_low_slow(w);
    return false;
}

kr_value kri_native_twin(struct kri_worker *w, const kr_value *k, struct kri_native_frame *caller, unsigned function, kr_value self,
                         int argc, const kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    const struct kri_native_instance *i = kri_untag_pointer(k[0]);
    ctx->native = caller;
    ctx->top = ctx->region->top;
    kr_value v = kri_call_arranged(w, twin_of(w, &i->native[function], self), argc, argv);
    ctx->top = NULL;
    return v;
}

/* ---- closures, exits ---- */

kr_value kri_native_closure(struct kri_worker *w, kr_value code, unsigned n, const kr_value *captured)
{
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_CLOSURE, kri_signature((const struct kri_code *)code.w), n + 1);
    f->code = code;
    memcpy(f->captured, captured, n * sizeof *captured);
    return kri_value_of(f);
}

_Noreturn void kri_native_return_from(struct kri_worker *w, kr_value identity, kr_value value)
{
    kr_value *h = kri_find_handler(w->ctx, KRI_HANDLER_BLOCK, identity);
    if (!h)
        kri_error(w, KRI_E_NO_BLOCK, KRI_NIL, "the block was left before");
    kri_unwind_to(w, h, value);
}

_Noreturn void kri_native_resume(struct kri_worker *w, kr_value target, kr_value value) { kri_unwind_to(w, kri_untag_pointer(target), value); }

const struct kri_native_api kri_native_table = {
#define API(type, name, parameters, arguments) .name = kri_##name,
#define API_VOID(name, parameters, arguments) .name = kri_##name,
#define API_NORETURN(name, parameters, arguments) .name = kri_##name,
#include "lisp/native_api.def"
};
