/* direct.c -- find-if, some and kin where predicate and key are builtins; Note [direct calls]. With other functions they go on in
 * lib/core/sequence.l. */
#include "lisp/direct.h"
#include "lisp/interp.h"
#include "lisp/sequence.h"

bool kri_direct(struct kri_worker *w, kr_value *fn, int argc, kri_builtin_fn *code)
{
    *code = NULL;
    if (kri_is_nil(*fn))
        return true;
    kr_value f = kri_is_symbol(*fn) ? kri_symbol_function(w->vm, *fn) : *fn;
    if (!kri_is_function(f))
        return false;
    const struct kri_code *c = kri_code_of(f);
    if (!kri_is_builtin_code(c) || c->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL | KRI_CODE_UNDEFINED) || argc < c->nreq ||
        (c->max >= 0 && argc > c->max))
        return false;
    *fn = f;
    *code = c->builtin;
    return true;
}

void kri_direct_begin(struct kri_worker *w, struct kri_direct *d)
{
    struct kr_context *ctx = w->ctx;
    *d = (struct kri_direct){NULL, ctx->top, w->callee, ctx->segment};
    if (kri_native_exhausted(w))
        kri_error_stack(w);
    d->frame = kri_stack_reserve(w, 2 + KRI_FRAME_SLACK);
}

void kri_direct_end(struct kri_worker *w, const struct kri_direct *d)
{
    w->ctx->top = d->top;
    w->callee = d->callee;
    if (w->ctx->segment != d->segment)
        kri_segment_unlink_to(w->ctx, d->segment);
}

kr_value kri_direct_call(struct kri_worker *w, const struct kri_direct *d, kr_value fn, kri_builtin_fn code, int argc)
{
    w->callee = fn;
    w->ctx->top = d->frame + argc;
    kr_value v = code(w, argc, d->frame);
    if (KRI_UNLIKELY(v.w == KRI_IMM_TAIL_CALL)) {
        w->ctx->top = d->frame + w->tail_argc;
        v = kri_call(w, w->tail, w->tail_argc, d->frame);
    }
    return v;
}

/* ---- the loop over a sequence ---- */

struct scan {
    struct kri_direct d;
    kr_value predicate, key;
    kri_builtin_fn predicate_code, key_code;
    kr_value list; /* what is left, or NIL */
    struct kri_span s;
    bool vector;
    size_t at, to, ticks;
    kr_value element; /* the one that predicate was true of */
};

/* Reads (predicate sequence &key start end key) and, if COUNT is not NULL, count. False: Lisp has to do it. */
static bool scan_begin(struct kri_worker *w, struct scan *c, int argc, kr_value *argv, kr_value *count)
{
    const struct kri_symbols *s = &w->vm->sym;
    kr_value start = KRI_NIL, end = KRI_NIL;
    c->predicate = argv[0];
    c->key = KRI_NIL;
    c->key_code = NULL;
    if (argc > 2) {
        const kr_value allowed[] = {s->k_start, s->k_end, s->k_key, s->k_count};
        kri_check_keys(w, argc, argv, 2, allowed, count ? 4 : 3);
        c->key = kri_arg_key(argc, argv, 2, s->k_key, KRI_NIL);
        start = kri_arg_key(argc, argv, 2, s->k_start, KRI_NIL);
        end = kri_arg_key(argc, argv, 2, s->k_end, KRI_NIL);
        if (count)
            *count = kri_arg_key(argc, argv, 2, s->k_count, *count);
    }
    if (!kri_direct(w, &c->predicate, 1, &c->predicate_code) || !c->predicate_code || !kri_direct(w, &c->key, 1, &c->key_code))
        return false;
    kri_bounds(w, start, end, kri_sequence_length(w, argv, 1), &c->at, &c->to);
    c->vector = kri_span_of(w->vm, argv[1], &c->s);
    c->list = argv[1];
    c->ticks = 0;
    for (size_t i = 0; !c->vector && i < c->at && kri_is_cons(c->list); i++, kri_tick(w, &c->ticks))
        c->list = kri_cdr(c->list);
    kri_direct_begin(w, &c->d);
    return true;
}

/* What predicate says of the next element, if there is one; else false. *TRUTH is nil for false. */
static inline bool scan_next(struct kri_worker *w, struct scan *c, kr_value *truth)
{
    if (c->at >= c->to)
        return false;
    if (c->vector) {
        c->element = kri_vector_ref(w, c->s.vector, c->s.start + c->at);
    } else {
        if (!kri_is_cons(c->list))
            return false;
        c->element = kri_slot(&kri_cons_of(c->list)->car);
        c->list = kri_slot(&kri_cons_of(c->list)->cdr);
    }
    c->at++;
    kri_tick(w, &c->ticks);
    kr_value v = c->key_code ? kri_direct_call1(w, &c->d, c->key, c->key_code, c->element) : c->element;
    *truth = kri_direct_call1(w, &c->d, c->predicate, c->predicate_code, v);
    return true;
}

/* The first element whose truth is WANTED, the N-th such: true if there is one. */
static bool scan_for(struct kri_worker *w, struct scan *c, bool wanted, intptr_t n)
{
    kr_value truth;
    bool found = false;
    while (!found && scan_next(w, c, &truth))
        found = kri_is_nil(truth) != wanted && --n <= 0;
    kri_direct_end(w, &c->d);
    return found;
}

static kr_value find_where(struct kri_worker *w, int argc, kr_value *argv, bool wanted, kr_value in_lisp)
{
    struct scan c;
    if (!scan_begin(w, &c, argc, argv, NULL))
        return kri_tail_call_symbol(w, in_lisp, argc);
    return scan_for(w, &c, wanted, 1) ? c.element : KRI_NIL;
}

KR_BUILTIN(find_if, "find-if", "(predicate sequence &key (start 0) end key)",
           "Return the first element of SEQUENCE from START up to END for which (for KEY's value of which) PREDICATE is true, or NIL.")
{
    return find_where(w, argc, argv, true, w->vm->sym.seq_find_if);
}

KR_BUILTIN(find_if_not, "find-if-not", "(predicate sequence &key (start 0) end key)",
           "Return the first element of SEQUENCE from START up to END for which PREDICATE is false, or NIL.")
{
    return find_where(w, argc, argv, false, w->vm->sym.seq_find_if_not);
}

static kr_value position_where(struct kri_worker *w, int argc, kr_value *argv, bool wanted, kr_value in_lisp)
{
    struct scan c;
    kr_value count = kri_fixnum(1);
    if (!scan_begin(w, &c, argc, argv, &count))
        return kri_tail_call_symbol(w, in_lisp, argc);
    bool found = scan_for(w, &c, wanted, kri_is_fixnum(count) ? kri_fixnum_value(count) : 1);
    return found ? kri_fixnum((intptr_t)c.at - 1) : KRI_NIL;
}

KR_BUILTIN(position_if, "position-if", "(predicate sequence &key (start 0) end key (count 1))",
           "Return the index of the COUNT-th element of SEQUENCE from START up to END for which PREDICATE is true, or NIL.")
{
    return position_where(w, argc, argv, true, w->vm->sym.seq_position_if);
}

KR_BUILTIN(position_if_not, "position-if-not", "(predicate sequence &key (start 0) end key (count 1))",
           "Return the index of the COUNT-th element of SEQUENCE from START up to END for which PREDICATE is false, or NIL.")
{
    return position_where(w, argc, argv, false, w->vm->sym.seq_position_if_not);
}

static kr_value count_where(struct kri_worker *w, int argc, kr_value *argv, bool wanted, kr_value in_lisp)
{
    struct scan c;
    kr_value truth;
    intptr_t n = 0;
    if (!scan_begin(w, &c, argc, argv, NULL))
        return kri_tail_call_symbol(w, in_lisp, argc);
    while (scan_next(w, &c, &truth))
        n += kri_is_nil(truth) != wanted;
    kri_direct_end(w, &c.d);
    return kri_fixnum(n);
}

KR_BUILTIN(count_if, "count-if", "(predicate sequence &key (start 0) end key)",
           "Return for how many elements of SEQUENCE from START up to END PREDICATE is true.")
{
    return count_where(w, argc, argv, true, w->vm->sym.seq_count_if);
}

KR_BUILTIN(count_if_not, "count-if-not", "(predicate sequence &key (start 0) end key)",
           "Return for how many elements of SEQUENCE from START up to END PREDICATE is false.")
{
    return count_where(w, argc, argv, false, w->vm->sym.seq_count_if_not);
}

const struct kri_builtin *const kri_builtins_direct[] = {
    &find_if_def, &find_if_not_def, &position_if_def, &position_if_not_def, &count_if_def, &count_if_not_def, NULL,
};
