/* context.c -- Lisp stacks, dynamic bindings, and what the collector finds in them. */
#include <stdlib.h>
#include "lisp/host.h"
#include "lisp/vm.h"
#include "lisp/interp.h"
#include "lisp/native.h"

enum { SPARE_LIMIT_WORDS = KRI_SEGMENT_WORDS * 16 };

static struct kri_segment *segment_new(size_t words)
{
    struct kri_segment *s = calloc(1, sizeof *s + words * sizeof(kr_value));
    if (!s)
        return NULL;
    s->words = words;
    s->limit = s->slot + words - KRI_FRAME_SLACK;
    return s;
}

static void segment_push(struct kr_context *ctx, struct kri_segment *s)
{
    s->prev = ctx->segment;
    ctx->segment = s;
    ctx->stack_words += s->words;
    kri_set_lisp_limit(ctx->worker, s->limit);
}

bool kri_segment_link(struct kri_worker *w, size_t words)
{
    struct kr_context *ctx = w->ctx;
    size_t limit = ctx->vm->stack_limit_words;
    struct kri_segment *s = ctx->spare;
    words += KRI_FRAME_SLACK + 16;
    /* Past the limit an error is being handled: a little more is allowed for its handler. */
    if (ctx->overflowed)
        limit += KRI_STACK_RESERVE_WORDS;
    if (ctx->stack_words + words > limit)
        return false;
    if (s && s->words >= words && s->words <= limit - ctx->stack_words) {
        ctx->spare = NULL;
    } else {
        /* Segments double, so that deep recursion crosses few boundaries. */
        size_t size = ctx->segment->words * 2;
        if (size > KRI_SEGMENT_WORDS * 64)
            size = KRI_SEGMENT_WORDS * 64;
        if (size > limit - ctx->stack_words)
            size = limit - ctx->stack_words;
        if (size < words)
            size = words;
        s = segment_new(size);
        if (!s)
            return false;
    }
    segment_push(ctx, s);
    return true;
}

void kri_segment_unlink_to(struct kr_context *ctx, struct kri_segment *keep)
{
    while (ctx->segment != keep) {
        struct kri_segment *s = ctx->segment;
        ctx->segment = s->prev;
        ctx->stack_words -= s->words;
        if (!ctx->spare || ctx->spare->words < s->words) {
            free(ctx->spare);
            ctx->spare = s;
        } else {
            free(s);
        }
    }
    if (ctx->spare && ctx->spare->words > SPARE_LIMIT_WORDS && ctx->segment->words * 2 < ctx->spare->words) {
        free(ctx->spare);
        ctx->spare = NULL;
    }
    kri_set_lisp_limit(ctx->worker, ctx->segment->limit);
}

struct kri_segment *kri_segment_of(struct kr_context *ctx, const kr_value *p)
{
    struct kri_segment *s = ctx->segment;
    while (s && !(p >= s->slot && p < s->slot + s->words))
        s = s->prev;
    return s;
}

kr_value *kri_context_top(const struct kr_context *ctx)
{
    if (ctx->top)
        return ctx->top;
    if (ctx->region && ctx->region->base == ctx->base)
        return ctx->region->top;
    return ctx->base + kri_code_of(ctx->base[-3])->frame;
}

kr_value *kri_stack_try(struct kri_worker *w, size_t words)
{
    struct kr_context *ctx = w->ctx;
    kr_value *top = kri_context_top(ctx);
    if (top + words <= ctx->segment->limit && top >= ctx->segment->slot)
        return top;
    return kri_segment_link(w, words) ? ctx->segment->slot : NULL;
}

kr_value *kri_stack_reserve(struct kri_worker *w, size_t words)
{
    kr_value *top = kri_stack_try(w, words);
    if (!top)
        kri_error_stack(w);
    return top;
}

struct kr_context *kri_context_new(struct kr_vm *vm)
{
    struct kr_context *ctx = calloc(1, sizeof *ctx);
    struct kri_segment *s = segment_new(KRI_SEGMENT_WORDS);
    if (!ctx || !s) {
        free(ctx);
        free(s);
        return NULL;
    }
    ctx->vm = vm;
    ctx->thrown = -1;
    ctx->segment = s;
    ctx->stack_words = s->words;
    /* The bottom frame: linkage to itself, no registers. */
    ctx->base = s->slot + KRI_FRAME_LINK;
    ctx->base[-3] = vm->entry_function;
    ctx->base[-2] = KRI_NIL;
    ctx->base[-1] = KRI_NIL;
    ctx->top = ctx->base;
    pthread_mutex_lock(&vm->contexts_lock);
    ctx->next = vm->contexts;
    if (ctx->next)
        ctx->next->prev = ctx;
    vm->contexts = ctx;
    pthread_mutex_unlock(&vm->contexts_lock);
    return ctx;
}

void kri_context_free(struct kr_context *ctx)
{
    struct kr_vm *vm = ctx->vm;
    pthread_mutex_lock(&vm->contexts_lock);
    if (ctx->next)
        ctx->next->prev = ctx->prev;
    if (ctx->prev)
        ctx->prev->next = ctx->next;
    else
        vm->contexts = ctx->next;
    pthread_mutex_unlock(&vm->contexts_lock);
    for (struct kri_segment *s = ctx->segment, *prev; s; s = prev) {
        prev = s->prev;
        free(s);
    }
    free(ctx->spare);
    free(ctx->dynamic);
    free(ctx->locals);
    free(ctx->held);
    free(ctx->names);
    kri_forget(ctx);
}

/* ---- special variables ---- */

bool kri_dynamic_ensure(struct kr_context *ctx, size_t index)
{
    if (index < ctx->dynamic_size)
        return true;
    size_t size = index + 64;
    kr_value *d = realloc(ctx->dynamic, size * sizeof *d);
    if (!d)
        return false;
    for (size_t i = ctx->dynamic_size; i < size; i++)
        d[i] = KRI_UNBOUND;
    ctx->dynamic = d;
    ctx->dynamic_size = size;
    return true;
}

kr_value kri_special(struct kri_worker *w, kr_value symbol)
{
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    size_t i = (size_t)kri_fixnum_value(kri_slot(&s->special));
    if (i && i < w->ctx->dynamic_size && !kri_eq(w->ctx->dynamic[i], KRI_UNBOUND))
        return w->ctx->dynamic[i];
    return kri_slot(&s->value);
}

void kri_set_special(struct kri_worker *w, kr_value symbol, kr_value value)
{
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    size_t i = (size_t)kri_fixnum_value(kri_slot(&s->special));
    if (i) {
        bool local = kri_fixnum_value(kri_slot(&s->vtype)) >= 3;
        bool bound = i < w->ctx->dynamic_size && !kri_eq(w->ctx->dynamic[i], KRI_UNBOUND);
        if (bound || (local && w->ctx->thread.w != 0)) {
            if (!kri_dynamic_ensure(w->ctx, i))
                kri_error_memory(w, i * sizeof(kr_value));
            w->ctx->dynamic[i] = value;
            return;
        }
    }
    kri_store(w, &s->head, &s->value, value);
}

void kri_proclaim_special(struct kri_worker *w, kr_value symbol)
{
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    kri_lock(w, &w->vm->lock);
    if (kri_fixnum_value(kri_slot(&s->special)) == 0)
        kri_store(w, &s->head, &s->special, kri_fixnum((intptr_t)w->vm->special_count++));
    if (kri_fixnum_value(kri_slot(&s->vtype)) == 1)
        kri_store(w, &s->head, &s->vtype, kri_fixnum(2));
    kri_unlock(&w->vm->lock);
}

/* ---- what the collector sees; the world is stopped ---- */

/* WORDS may be NULL if N is 0. */
static void mark_words(struct kri_marker *m, kr_value *words, size_t n)
{
    if (n > 0)
        kri_mark_range(m, words, words + n);
}

static void mark_context(struct kr_context *ctx, struct kri_marker *m)
{
    kr_value *top = kri_context_top(ctx);
    for (struct kri_segment *s = ctx->segment; s; s = s->prev) {
        /* In an older segment the live part ends where the next one was linked; what lies above it there was
         * written since the last collection or cleared by it (Note [stale words]), so marking all is safe. */
        kr_value *end = s == ctx->segment ? top : s->slot + s->words;
        kri_mark_range(m, s->slot, end);
        memset(end, 0, (size_t)((char *)(s->slot + s->words) - (char *)end));
    }
    if (ctx->spare)
        memset(ctx->spare->slot, 0, ctx->spare->words * sizeof(kr_value));
    mark_words(m, ctx->dynamic, ctx->dynamic_size);
    mark_words(m, ctx->locals, kri_load_relaxed(&ctx->locals_count));
    kri_mark_value(m, ctx->thrown_tag);
    kri_mark_value(m, ctx->thrown_value);
    mark_words(m, ctx->held, ctx->held_count);
    kri_mark_value(m, ctx->unwind_value);
    kri_mark_value(m, ctx->thread);
    kri_mark_value(m, ctx->condition);
    kri_mark_value(m, ctx->returns);
    kri_mark_value(m, ctx->evaluated);
    for (const struct kri_entry *e = ctx->entry; e; e = e->prev)
        kri_mark_value(m, e->evaluated);
    kri_mark_value(m, ctx->pending_interrupt);
}

void kri_mark_contexts(struct kr_vm *vm, struct kri_marker *m)
{
    for (struct kr_context *ctx = vm->contexts; ctx; ctx = ctx->next)
        mark_context(ctx, m);
}
