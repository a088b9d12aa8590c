/* builtin_inspect.c -- what a thread is in the midst of, and who refers to whom, as lists. */
#include "lisp/interp.h"
#include "lisp/builtin.h"
#include "runtime/chunk.h"

KR_BUILTIN(list_all_catchers, "sys:list-all-catchers", "()", "The tags of the catch forms that this thread is in, innermost first.")
{
    kr_value list = KRI_NIL, tags = KRI_NIL;
    for (kr_value *h = w->ctx->handler; h; h = kri_op_previous(h))
        if (kri_handler_kind(h) == KRI_HANDLER_CATCH)
            list = kri_cons(w, h[2], list);
    for (; kri_is_cons(list); list = kri_cdr(list))
        tags = kri_cons(w, kri_car(list), tags);
    return tags;
}

/* The symbols whose special variables the bindings are of: one walk of the heap finds them all. */
struct specials {
    kr_value *symbol; /* by index */
    size_t n;
};

static void note_special(struct kri_cell *c, void *arg)
{
    struct specials *s = arg;
    if (c->cls != KRI_CLASS_SYMBOL)
        return;
    size_t i = (size_t)kri_fixnum_value(((struct kri_symbol *)c)->special);
    if (i > 0 && i < s->n)
        s->symbol[i] = kri_value_of(c);
}

static void note_specials(struct kri_worker *w, void *arg) { kri_heap_walk(w, note_special, arg); }

KR_BUILTIN(list_all_special_bindings, "sys:list-all-special-bindings", "()",
           "An association list from the special variables that this thread has bound, the latest first, to the values that they had before.")
{
    kr_value symbols = kri_make_vector(w, w->vm->special_count), list = KRI_NIL, bindings = KRI_NIL;
    struct specials s = {kri_vector_of(symbols)->at, kri_length(symbols)};
    kri_with_world_stopped(w, note_specials, &s);
    for (kr_value *h = w->ctx->handler; h; h = kri_op_previous(h)) {
        size_t i = kri_handler_target(h);
        if (kri_handler_kind(h) != KRI_HANDLER_BIND || i >= s.n || kri_is_nil(s.symbol[i]))
            continue;
        kr_value before = h[2];
        if (kri_eq(before, KRI_UNBOUND)) /* the global value was in force */
            before = kri_slot(&kri_symbol_of(w->vm, s.symbol[i])->value);
        list = kri_cons(w, kri_cons(w, s.symbol[i], kri_eq(before, KRI_UNBOUND) ? KRI_NIL : before), list);
    }
    for (; kri_is_cons(list); list = kri_cdr(list))
        bindings = kri_cons(w, kri_car(list), bindings);
    return bindings;
}

/* ---- the heap ---- */

struct gathering {
    struct kr_vm *vm;
    kr_value target;
    uintptr_t chunk;
    size_t n, room;
    kr_value *into; /* NULL: count only */
};

static void gather(struct gathering *g, kr_value x)
{
    if (g->into && g->n < g->room)
        g->into[g->n] = x;
    g->n++;
}

static void note_chunk(struct kri_cell *c, void *arg)
{
    struct gathering *g = arg;
    uintptr_t chunk = (uintptr_t)c >> KRI_UNIT_SHIFT;
    if (chunk == g->chunk)
        return;
    g->chunk = chunk;
    gather(g, kri_fixnum((intptr_t)chunk));
}

static void note_reference(struct kri_cell *c, void *arg)
{
    struct gathering *g = arg;
    const struct kri_layout *l = &kri_heap_layouts(g->vm->heap)[c->cls];
    size_t n;
    switch (l->kind) {
    case KRI_LAYOUT_SLOTS:
        n = l->slots;
        break;
    case KRI_LAYOUT_VECTOR:
        n = c->length;
        break;
    case KRI_LAYOUT_ALL:
        n = kri_cell_bytes(c) / sizeof(kr_value) - 1;
        break;
    default:
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (kri_eq(kri_slot(&c->slot[i]), g->target)) {
            gather(g, kri_value_of(c));
            return;
        }
}

static void walk_chunks(struct kri_worker *w, void *arg) { kri_heap_walk(w, note_chunk, arg); }
static void walk_references(struct kri_worker *w, void *arg) { kri_heap_walk(w, note_reference, arg); }

/* What WALK gathers, in a vector that may have nils at its end. */
static kr_value gathered(struct kri_worker *w, void (*walk)(struct kri_worker *w, void *arg), kr_value target)
{
    struct gathering g = {.vm = w->vm, .target = target};
    kri_collect(w, KRI_GC_REQUEST);
    kri_with_world_stopped(w, walk, &g);
    kr_value found = kri_make_vector(w, g.n + 16);
    g = (struct gathering){.vm = w->vm, .target = target, .room = g.n + 16, .into = kri_vector_of(found)->at};
    kri_with_world_stopped(w, walk, &g);
    return found;
}

KR_BUILTIN(list_all_chunks, "sys:list-all-chunks", "()", "A list of (ADDRESS WORDS) for each chunk of the heap that holds objects.")
{
    kr_value found = gathered(w, walk_chunks, KRI_NIL), list = KRI_NIL;
    for (size_t i = kri_length(found); i-- > 0;) {
        kr_value unit = kri_vector_of(found)->at[i];
        if (kri_is_fixnum(unit))
            list = kri_cons(w, kri_list(w, 2, kri_fixnum(kri_fixnum_value(unit) << KRI_UNIT_SHIFT), kri_fixnum((1 << KRI_UNIT_SHIFT) / 8)), list);
    }
    return list;
}

KR_BUILTIN(list_all_references, "sys:list-all-references", "(object)", "A list of the objects that hold OBJECT in a slot or as an element, after a collection.")
{
    kr_value found = gathered(w, walk_references, argv[0]), list = KRI_NIL;
    for (size_t i = kri_length(found); i-- > 0;) {
        kr_value v = kri_vector_of(found)->at[i];
        if (kri_is_pointer(v) && !kri_eq(v, found) && !kri_is_nil(w->vm->classes[kri_ptr(v)->cls].object))
            list = kri_cons(w, v, list);
    }
    return list;
}

const struct kri_builtin *const kri_builtins_inspect[] = {
    &list_all_catchers_def, &list_all_special_bindings_def, &list_all_chunks_def, &list_all_references_def, NULL,
};
