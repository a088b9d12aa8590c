/* copy.c -- copy-object: a structure is copied with all that it refers to, shared and circular parts alike.
 *
 * A copy is made shallow at first and entered in a table beside the original; then what it refers to is replaced by copies in
 * turn. All copies hang on the first one, so neither the table nor the list of copies to look at keeps anything alive. Hash
 * tables, whose keys hash differently when they are copied, are left to Lisp (lib/core/class.l). */
#include "lisp/address_table.h"
#include "lisp/sequence.h"

struct copying {
    struct kri_address_table known; /* from originals to copies */
    kr_value cell;                  /* a string: the cells of copies not looked at yet */
    size_t count, size;
    bool hard; /* something is in it that Lisp has to copy */
};

static void put_off(struct kri_worker *w, struct copying *c, kr_value copy)
{
    if (c->count == c->size) {
        size_t size = c->size ? c->size * 2 : 64;
        kr_value cell = kri_make_string(w, size * sizeof copy);
        if (c->count)
            memcpy(kri_string_of(cell)->byte, kri_string_of(c->cell)->byte, c->count * sizeof copy);
        c->cell = cell;
        c->size = size;
    }
    memcpy(kri_string_of(c->cell)->byte + c->count++ * sizeof copy, &copy, sizeof copy);
}

static kr_value take_next(struct copying *c)
{
    kr_value copy;
    memcpy(&copy, kri_string_of(c->cell)->byte + --c->count * sizeof copy, sizeof copy);
    return copy;
}

/* How many values a copy of V holds that are to be copied in turn. */
static size_t inner_parts(const struct kr_vm *vm, kr_value v)
{
    const struct kri_layout *layout = &kri_heap_layouts(vm->heap)[kri_ptr(v)->cls];
    if (kri_ptr(v)->cls == KRI_CLASS_VECTOR)
        return kri_length(v);
    return layout->kind == KRI_LAYOUT_SLOTS ? layout->slots : 0;
}

/* A copy of the cell V that shares its parts; V itself where it is never copied. */
static kr_value copy_cell(struct kri_worker *w, struct copying *c, kr_value v)
{
    size_t slots;
    unsigned cls = kri_ptr(v)->cls;
    if (cls == KRI_CLASS_CONS)
        return kri_cons(w, kri_car(v), kri_cdr(v));
    if (kri_is_number(v) || kri_is_symbol(v))
        return v;
    if (kri_is_vector(w->vm, v)) {
        kr_value copy = kri_make_vector_of(w, cls, kri_length(v));
        kri_vector_copy(w, copy, 0, v, 0, kri_length(v));
        return copy;
    }
    if (kri_has_parts(w, cls, &slots)) {
        struct kri_cell *copy = kri_make(w, cls, 0, slots);
        kri_store_move(w, copy, copy->slot, kri_ptr(v)->slot, slots);
        return kri_value_of(copy);
    }
    static const unsigned never[] = {KRI_CLASS_COMPILED_CODE, KRI_CLASS_METACLASS, KRI_CLASS_STREAM, KRI_CLASS_PACKAGE, KRI_CLASS_THREAD};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (kri_derivedp(w->vm, v, w->vm->classes[never[i]].object))
            return v;
    c->hard = true;
    return v;
}

static kr_value copy_of(struct kri_worker *w, struct copying *c, kr_value v)
{
    if (!kri_is_pointer(v))
        return v;
    const struct kri_address_entry *known = kri_address_find(&c->known, v);
    if (known)
        return (kr_value){(uintptr_t)known->number};
    kr_value copy = copy_cell(w, c, v);
    if (!kri_eq(copy, v)) {
        kri_address_enter(w, &c->known, v)->number = (intptr_t)copy.w;
        if (inner_parts(w->vm, copy) > 0)
            put_off(w, c, copy);
    }
    return copy;
}

KR_BUILTIN(copy_object, "copy-object", "(object)",
           "A copy of OBJECT and of all that it refers to, shared and circular parts alike. Numbers, symbols, functions, classes, packages,\n"
           "streams and threads are not copied.")
{
    struct copying c = {{KRI_NIL, NULL, 0, 0}, KRI_NIL, 0, 0, false};
    size_t ticks = 0;
    kr_value first = copy_of(w, &c, argv[0]);
    while (c.count > 0 && !c.hard) {
        struct kri_cell *copy = kri_ptr(take_next(&c));
        size_t n = inner_parts(w->vm, kri_value_of(copy));
        for (size_t i = 0; i < n; i++, kri_tick(w, &ticks)) {
            kr_value part = kri_slot(&copy->slot[i]);
            if (kri_is_pointer(part))
                kri_store(w, copy, &copy->slot[i], copy_of(w, &c, part));
        }
    }
    return c.hard ? kri_tail_call_symbol(w, w->vm->sym.copy_object_, 1) : first;
}

const struct kri_builtin *const kri_builtins_copy[] = {&copy_object_def, NULL};
