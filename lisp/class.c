/* class.c -- classes, instances, methods and message sending.
 *
 * A class is a metaclass instance (what Lisp sees) and, under its index, a struct kri_class (what C reads). The index is in
 * the header of every instance and never changes its meaning: a class that is redefined with other slots gets a new index
 * under the same object; instances made before keep the old index, its slot count and the methods of that time. */
#include <stdlib.h>
#include "lisp/interp.h"
#include "lisp/send.h"
#include "lisp/sequence.h"

bool kri_is_class(struct kr_vm *vm, kr_value v)
{
    if (!kri_is_pointer(v))
        return false;
    unsigned cls = kri_ptr(v)->cls;
    return cls == KRI_CLASS_METACLASS || cls == KRI_CLASS_VECTORCLASS ||
           (cls >= KRI_CLASS_BUILTIN_COUNT && kri_derivedp(vm, v, vm->classes[KRI_CLASS_METACLASS].object));
}

bool kri_derivedp(struct kr_vm *vm, kr_value v, kr_value cls)
{
    const struct kri_cell *c = kri_cell(vm, v);
    if (!c)
        return false;
    const struct kri_class *info = &vm->classes[c->cls];
    const struct kri_class *target = &vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix))];
    return info->display && info->depth >= target->depth && kri_eq(info->display[target->depth], cls);
}

bool kri_subclassp(struct kr_vm *vm, kr_value cls, kr_value super)
{
    const struct kri_class *info = &vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix))];
    const struct kri_class *target = &vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(super)->cix))];
    return info->depth >= target->depth && kri_eq(info->display[target->depth], super);
}

kr_value kri_class_of(struct kr_vm *vm, kr_value v)
{
    const struct kri_cell *c = kri_cell(vm, v);
    return c ? vm->classes[c->cls].object : KRI_NIL;
}

/* Release: pairs with the data dependency of who finds the class by its index; all about it is filled in. */
static void show_class(struct kri_class *c, kr_value object) { kri_store_release((volatile kri_atomic *)&c->object.w, object.w); }

/* Fill in the C side of class INDEX, save OBJECT, which show_class adds. False when memory is out. */
static bool class_record(struct kr_vm *vm, unsigned index, kr_value object, unsigned super, unsigned slots, unsigned layout, unsigned element,
                         int fixed_size)
{
    struct kri_class *c = &vm->classes[index];
    const struct kri_class *s = super ? &vm->classes[super] : NULL;
    unsigned depth = s ? s->depth + 1u : 0;
    kr_value *display = malloc((depth + 1) * sizeof *display);
    if (!display)
        return false;
    if (s)
        memcpy(display, s->display, depth * sizeof *display);
    display[depth] = object;
    c->display = display;
    c->super = (uint16_t)super;
    c->depth = (uint16_t)depth;
    c->slots = (uint16_t)slots;
    c->element = (uint8_t)element;
    c->fixed_size = fixed_size;
    kri_heap_layouts(vm->heap)[index] = (struct kri_layout){.kind = (uint8_t)layout, .slots = (uint16_t)slots};
    return true;
}

/* ---- the built-in classes ---- */

static const struct {
    const char *name, *slots;
    uint16_t super, values;
    uint8_t layout, element;
} builtin_classes[] = {
    {NULL, NULL, 0, 0, 0, 0},
#define CLASS(enumerator, name, super, layout, values, element, slots) \
    {name, slots, KRI_CLASS_##super, values, KRI_LAYOUT_##layout, KRI_ELEMENT_##element},
#include "lisp/classes.def"
#undef CLASS
};

/* Layouts first: nothing can be allocated before. Class objects come when packages exist. */
bool kri_class_init_layouts(struct kr_vm *vm)
{
    for (unsigned i = 1; i < KRI_CLASS_BUILTIN_COUNT; i++) {
        unsigned slots = builtin_classes[i].values;
        if (!class_record(vm, i, KRI_NIL, builtin_classes[i].super, slots, builtin_classes[i].layout, builtin_classes[i].element, -1))
            return false;
    }
    vm->class_count = KRI_CLASS_BUILTIN_COUNT;
    return true;
}

static kr_value element_keyword(struct kr_vm *vm, unsigned element)
{
    switch (element) {
    case KRI_ELEMENT_CHAR:
        return vm->sym.k_char;
    case KRI_ELEMENT_BYTE:
        return vm->sym.k_byte;
    case KRI_ELEMENT_BIT:
        return vm->sym.k_bit;
    case KRI_ELEMENT_FLOAT:
        return vm->sym.k_float;
    case KRI_ELEMENT_INTEGER:
        return vm->sym.k_integer;
    case KRI_ELEMENT_FOREIGN:
        return vm->sym.k_foreign;
    default:
        return vm->sym.t;
    }
}

static size_t vars_of(struct kr_vm *vm, unsigned cls, kr_value *vars)
{
    *vars = cls ? kri_slot(&kri_metaclass_of(vm->classes[cls].object)->vars) : KRI_NIL;
    return kri_is_nil(*vars) ? 0 : kri_length(*vars);
}

/* Make the class objects of classes.def, bind their symbols. */
void kri_class_init(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    for (unsigned i = 1; i < KRI_CLASS_BUILTIN_COUNT; i++) {
        const char *name = builtin_classes[i].name;
        if (name[0] == '%')
            continue;
        struct kri_class *c = &vm->classes[i];
        bool vector = c->element != KRI_ELEMENT_NONE;
        struct kri_metaclass *m = (struct kri_metaclass *)kri_make(w, vector ? KRI_CLASS_VECTORCLASS : KRI_CLASS_METACLASS, 0, vector ? 10 : 8);
        kr_value object = kri_value_of(m);
        vm->roots = kri_cons(w, object, vm->roots);
        char upper[64];
        size_t n = 0;
        for (; name[n]; n++)
            upper[n] = (char)(name[n] >= 'a' && name[n] <= 'z' ? name[n] - 32 : name[n]);
        kr_value symbol = kri_intern(w, upper, n, vm->pkg_lisp);
        kri_export(w, symbol, vm->pkg_lisp);
        kri_store(w, &m->head, &m->name, symbol);
        kri_store(w, &m->head, &m->super, c->super ? vm->classes[c->super].object : KRI_NIL);
        kri_store(w, &m->head, &m->cix, kri_fixnum((intptr_t)i));
        if (vector) {
            kri_store(w, &m->head, &m->element_type, element_keyword(vm, c->element));
            kri_store(w, &m->head, &m->size, kri_fixnum(-1));
        }
        c->object = object;
        const struct kri_class *s = c->super ? &vm->classes[c->super] : NULL;
        if (s)
            memcpy(c->display, s->display, c->depth * sizeof *c->display);
        c->display[c->depth] = object;
        /* vars: the super's, then the own ones. */
        kr_value super_vars, names[16];
        size_t inherited = vars_of(vm, c->super, &super_vars), own = 0;
        for (const char *p = builtin_classes[i].slots; *p;) {
            size_t len = strcspn(p, " ");
            char up[32];
            for (size_t j = 0; j < len; j++)
                up[j] = (char)(p[j] >= 'a' && p[j] <= 'z' ? p[j] - 32 : p[j]);
            names[own] = kri_intern(w, up, len, vm->pkg_lisp);
            kri_export(w, names[own++], vm->pkg_lisp); /* methods in any package name inherited slots */
            p += len + (p[len] == ' ');
        }
        kr_value vars = kri_make_vector(w, inherited + own);
        for (size_t j = 0; j < inherited; j++)
            kri_vector_of(vars)->at[j] = kri_vector_of(super_vars)->at[j];
        for (size_t j = 0; j < own; j++)
            kri_vector_of(vars)->at[inherited + j] = names[j];
        kri_store(w, &m->head, &m->vars, vars);
        kri_store(w, &m->head, &m->types, kri_make_vector(w, inherited + own));
        for (size_t j = 0; j < inherited + own; j++)
            kri_store(w, kri_ptr(m->types), &kri_vector_of(m->types)->at[j], vm->sym.t);
        kri_store(w, &m->head, &m->forwards, kri_make_vector(w, inherited + own));
        struct kri_symbol *sym = kri_symbol_of(vm, symbol);
        kri_store(w, &sym->head, &sym->value, object);
    }
    vm->stack_condition = kri_instantiate(w, vm->classes[KRI_CLASS_ERROR].object, -1);
    vm->memory_condition = kri_instantiate(w, vm->classes[KRI_CLASS_ERROR].object, -1);
    struct kri_condition *c = (struct kri_condition *)vm->stack_condition.w;
    kri_store(w, &c->head, &c->code, kri_fixnum(KRI_E_STACK));
    kri_store(w, &c->head, &c->message, kri_string(w, kri_error_text(KRI_E_STACK)));
    c = (struct kri_condition *)vm->memory_condition.w;
    kri_store(w, &c->head, &c->code, kri_fixnum(KRI_E_ALLOCATION));
    kri_store(w, &c->head, &c->message, kri_string(w, kri_error_text(KRI_E_ALLOCATION)));
}

/* ---- defclass ---- */

/* What another thread may be redefining, as it was at one moment. */
struct definition {
    kr_value cix, vars, types, forwards;
};

static struct definition current_definition(struct kri_worker *w, kr_value cls)
{
    const struct kri_metaclass *m = kri_metaclass_of(cls);
    kri_lock(w, &w->vm->lock);
    struct definition d = {kri_slot(&m->cix), kri_slot(&m->vars), kri_slot(&m->types), kri_slot(&m->forwards)};
    kri_unlock(&w->vm->lock);
    return d;
}

static bool same_names(kr_value a, kr_value b)
{
    if (kri_is_nil(a) || kri_length(a) != kri_length(b))
        return false;
    return memcmp(kri_vector_of(a)->at, kri_vector_of(b)->at, kri_length(a) * sizeof(kr_value)) == 0;
}

static kr_value joined(struct kri_worker *w, kr_value inherited, kr_value own)
{
    size_t n = kri_is_nil(inherited) ? 0 : kri_length(inherited), m = kri_is_nil(own) ? 0 : kri_length(own);
    kr_value v = kri_make_vector(w, n + m);
    for (size_t i = 0; i < n + m; i++)
        kri_vector_of(v)->at[i] = i < n ? kri_vector_of(inherited)->at[i] : kri_vector_of(own)->at[i - n];
    return v;
}

static bool same_symbol_name(struct kr_vm *vm, kr_value a, kr_value b)
{
    if (kri_eq(a, b))
        return true;
    if (!kri_is_symbol(a) || !kri_is_symbol(b))
        return false;
    kr_value x = kri_symbol_of(vm, a)->pname, y = kri_symbol_of(vm, b)->pname;
    return kri_length(x) == kri_length(y) && memcmp(kri_string_of(x)->byte, kri_string_of(y)->byte, kri_length(x)) == 0;
}

static unsigned element_from(struct kri_worker *w, kr_value v, unsigned inherited)
{
    struct kr_vm *vm = w->vm;
    if (kri_is_nil(v))
        return inherited;
    for (unsigned e = KRI_ELEMENT_T; e <= KRI_ELEMENT_FOREIGN; e++)
        if (kri_eq(v, element_keyword(vm, e)))
            return e;
    if (kri_eq(v, vm->sym.k_character))
        return KRI_ELEMENT_CHAR;
    kri_error(w, KRI_E_NO_CLASS, v, "an element type expected: :float :integer :char :byte :bit :foreign t");
}

/* A method compiled anew for a class whose slots changed; methods without source stay. */
static kr_value recompiled_methods(struct kri_worker *w, kr_value cls, kr_value methods)
{
    struct kri_lister list = {KRI_NIL, NULL};
    for (; kri_is_cons(methods); methods = kri_cdr(methods)) {
        kr_value entry = kri_car(methods), fn = kri_car(kri_cdr(entry));
        kr_value source = kri_code_of(fn)->source;
        if (kri_is_cons(source))
            fn = kri_compile_method(w, cls, kri_car(entry), kri_car(kri_cdr(source)), kri_cdr(kri_cdr(source)));
        kri_lister_add(w, &list, kri_cons(w, kri_car(entry), kri_cons(w, fn, kri_cdr(kri_cdr(entry)))));
    }
    return list.head;
}

kr_value kri_define_class(struct kri_worker *w, kr_value name, kr_value super, kr_value slot_names, kr_value slot_types, kr_value forwards,
                          kr_value metaclass, kr_value element_type, intptr_t size)
{
    struct kr_vm *vm = w->vm;
    if (!kri_is_nil(super) && !kri_is_class(vm, super))
        kri_error(w, KRI_E_NO_CLASS, super, "the super of class %V", name);
    struct definition of_super = {.cix = kri_fixnum(0)};
    if (!kri_is_nil(super))
        of_super = current_definition(w, super);
    unsigned super_index = (unsigned)kri_fixnum_value(of_super.cix);
    const struct kri_class *s = &vm->classes[super_index];
    kr_value super_vars = of_super.vars;
    size_t inherited = kri_is_nil(super_vars) ? 0 : kri_length(super_vars);
    size_t own = kri_is_nil(slot_names) ? 0 : kri_length(slot_names);
    for (size_t i = 0; i < own; i++) {
        kr_value n = kri_vector_of(slot_names)->at[i];
        if (!kri_is_symbol(n) || kri_is_nil(n))
            kri_error(w, KRI_E_NO_SYMBOL, n, "a slot name of class %V", name);
        for (size_t j = 0; j < inherited + i; j++)
            if (same_symbol_name(vm, n, j < inherited ? kri_vector_of(super_vars)->at[j] : kri_vector_of(slot_names)->at[j - inherited]))
                kri_error(w, KRI_E_DUPLICATE_SLOT, n, "in class %V", name);
    }
    unsigned element = super_index ? s->element : KRI_ELEMENT_NONE;
    bool vector = element != KRI_ELEMENT_NONE || !kri_is_nil(element_type);
    if (vector)
        element = element_from(w, element_type, element == KRI_ELEMENT_NONE ? KRI_ELEMENT_T : element);
    if (vector && own > 0)
        kri_error(w, KRI_E_INSTANTIATE, name, "a vector class has no slots of its own");
    unsigned slots = vector ? 0 : (unsigned)(s->slots + own);
    if (slots > 60000)
        kri_error(w, KRI_E_CLASS_OVERFLOW, name, "too many slots");
    unsigned layout = !vector ? KRI_LAYOUT_SLOTS : element == KRI_ELEMENT_T ? KRI_LAYOUT_VECTOR : KRI_LAYOUT_RAW;
    if (super_index && !vector) {
        /* A subclass of a class whose cells hold raw words keeps them raw; those of weak pointers and kin stay special. */
        unsigned inherited_layout = kri_heap_layouts(vm->heap)[super_index].kind;
        if (inherited_layout != KRI_LAYOUT_SLOTS && inherited_layout != KRI_LAYOUT_WEAK_TABLE)
            kri_error(w, KRI_E_INSTANTIATE, name, "class %V cannot be inherited from", kri_slot(&kri_metaclass_of(super)->name));
        layout = inherited_layout;
    }
    if (vector && element == KRI_ELEMENT_T && super_index && kri_heap_layouts(vm->heap)[super_index].kind == KRI_LAYOUT_WEAK_VECTOR)
        layout = KRI_LAYOUT_WEAK_VECTOR;
    kr_value vars = joined(w, super_vars, slot_names);
    kr_value types = joined(w, of_super.types, slot_types);
    kr_value fwd = joined(w, of_super.forwards, forwards);

    struct kri_symbol *sym = kri_symbol_of(vm, name);
    kr_value object = kri_slot(&sym->value);
    bool redefine = kri_is_class(vm, object) && kri_eq(kri_slot(&kri_metaclass_of(object)->name), name);
    kr_value meta = kri_is_nil(metaclass) ? vm->classes[vector ? KRI_CLASS_VECTORCLASS : KRI_CLASS_METACLASS].object : metaclass;
    if (!kri_is_class(vm, meta) || !kri_subclassp(vm, meta, vm->classes[KRI_CLASS_METACLASS].object))
        kri_error(w, KRI_E_NO_CLASS, meta, "the metaclass of class %V", name);
    if (redefine) {
        unsigned old = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(object)->cix));
        const struct kri_class *o = &vm->classes[old];
        if (old < KRI_CLASS_BUILTIN_COUNT)
            kri_error(w, KRI_E_INSTANTIATE, name, "a class of the system cannot be redefined");
        if (o->super == super_index && same_names(kri_slot(&kri_metaclass_of(object)->vars), vars) && o->element == element && o->fixed_size == (int32_t)size) {
            struct kri_metaclass *m = kri_metaclass_of(object);
            kri_store(w, &m->head, &m->types, types);
            kri_store(w, &m->head, &m->forwards, fwd);
            kri_fetch_add(&vm->method_epoch, 1);
            return object;
        }
    } else {
        object = kri_instantiate(w, meta, -1);
    }
    kri_lock(w, &vm->lock);
    size_t index = kri_load_relaxed(&vm->class_count);
    bool room = index < KRI_CLASS_MAX;
    if (room)
        kri_store_release(&vm->class_count, index + 1);
    kri_unlock(&vm->lock);
    if (!room)
        kri_error(w, KRI_E_CLASS_OVERFLOW, name, "%d classes exist", KRI_CLASS_MAX);
    if (!class_record(vm, (unsigned)index, object, super_index, slots, layout, element, vector ? (int)size : -1))
        kri_error_memory(w, 0);
    struct kri_metaclass *m = kri_metaclass_of(object);
    kri_lock(w, &vm->lock); /* what belongs together changes together: see current_definition */
    if (redefine) {
        show_class(&vm->classes[index], object); /* before the first instance can be made */
        struct kri_class *o = &vm->classes[kri_fixnum_value(kri_slot(&m->cix))];
        o->methods = kri_slot(&m->methods);
        kri_store_release(&o->superseded, true); /* pairs with the acquire in find_in */
    }
    kri_store(w, &m->head, &m->name, name);
    kri_store(w, &m->head, &m->super, super);
    kri_store(w, &m->head, &m->vars, vars);
    kri_store(w, &m->head, &m->types, types);
    kri_store(w, &m->head, &m->forwards, fwd);
    kri_store(w, &m->head, &m->cix, kri_fixnum((intptr_t)index));
    if (vector && vm->classes[kri_ptr(object)->cls].slots >= 10) {
        kri_store(w, &m->head, &m->element_type, element_keyword(vm, element));
        kri_store(w, &m->head, &m->size, kri_fixnum(size));
    }
    if (!redefine)
        show_class(&vm->classes[index], object); /* when nothing is missing from it */
    kri_unlock(&vm->lock);
    if (redefine) {
        kr_value methods, old;
        do {
            old = kri_slot(&m->methods);
            methods = recompiled_methods(w, object, old);
        } while (!kri_store_cas(w, &m->head, &m->methods, old, methods));
    }
    kri_store(w, &sym->head, &sym->value, object);
    kri_fetch_add(&vm->method_epoch, 1);
    return object;
}

intptr_t kri_slot_index(struct kr_vm *vm, kr_value cls, kr_value name)
{
    kr_value vars = kri_slot(&kri_metaclass_of(cls)->vars);
    if (kri_is_nil(vars) || vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix))].element != KRI_ELEMENT_NONE)
        return -1;
    for (size_t i = 0; i < kri_length(vars); i++)
        if (same_symbol_name(vm, name, kri_vector_of(vars)->at[i]))
            return (intptr_t)i;
    return -1;
}

/* ---- instances ---- */

static size_t element_bytes(unsigned element, size_t n)
{
    switch (element) {
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_BYTE:
        return n + 1;
    case KRI_ELEMENT_BIT:
        return (n + 7) / 8;
    case KRI_ELEMENT_FOREIGN:
        return 8;
    default:
        return n * 8;
    }
}

kr_value kri_instantiate(struct kri_worker *w, kr_value cls, intptr_t size)
{
    struct kr_vm *vm = w->vm;
    unsigned index = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix));
    const struct kri_class *c = &vm->classes[index];
    if (c->element == KRI_ELEMENT_NONE) {
        unsigned layout = kri_heap_layouts(vm->heap)[index].kind;
        if (index < KRI_CLASS_BUILTIN_COUNT && layout != KRI_LAYOUT_SLOTS && layout != KRI_LAYOUT_WEAK && layout != KRI_LAYOUT_WEAK_TABLE)
            kri_error(w, KRI_E_INSTANTIATE, cls, "instances of %V are made by the system only", kri_slot(&kri_metaclass_of(cls)->name));
        if (index == KRI_CLASS_SYMBOL)
            return kri_make_symbol(w, kri_make_string(w, 0));
        return kri_value_of(kri_make(w, index, 0, c->slots));
    }
    if (c->fixed_size >= 0)
        size = c->fixed_size;
    if (size < 0)
        size = 0;
    if ((uint64_t)size > UINT32_MAX - 8)
        kri_error(w, KRI_E_ARRAY_SIZE, kri_fixnum(size), "at most %ld elements", (long)(UINT32_MAX - 8));
    if (c->element == KRI_ELEMENT_FOREIGN)
        size = 0;
    return kri_value_of(kri_make(w, index, (uint32_t)size, (element_bytes(c->element, (size_t)size) + 7) / 8));
}

/* ---- methods ---- */

/* LIST, the methods in the order of their first definition, with ENTRY in place of the one for SELECTOR or at the end; without
 * that one if ENTRY is NIL. The list is copied, not changed: searchers walk it without a lock. */
static kr_value methods_with(struct kri_worker *w, kr_value list, kr_value selector, kr_value entry)
{
    struct kri_lister new = {KRI_NIL, NULL};
    for (; kri_is_cons(list); list = kri_cdr(list)) {
        kr_value old = kri_car(list);
        if (!kri_eq(kri_car(old), selector)) {
            kri_lister_add(w, &new, old);
        } else if (!kri_is_nil(entry)) {
            kri_lister_add(w, &new, entry);
            entry = KRI_NIL;
        }
    }
    if (!kri_is_nil(entry))
        kri_lister_add(w, &new, entry);
    return new.head;
}

void kri_add_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value fn, kr_value doc)
{
    struct kri_metaclass *m = kri_metaclass_of(cls);
    kr_value entry = kri_cons(w, selector, kri_cons(w, fn, kri_is_nil(doc) ? KRI_NIL : kri_cons(w, doc, KRI_NIL)));
    kr_value old;
    do
        old = kri_slot(&m->methods);
    while (!kri_store_cas(w, &m->head, &m->methods, old, methods_with(w, old, selector, entry))); /* another thread changes the same class */
    kri_fetch_add(&w->vm->method_epoch, 1);
}

bool kri_replace_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value old_fn, kr_value fn)
{
    struct kri_metaclass *m = kri_metaclass_of(cls);
    kr_value old, list, entry;
    do {
        old = list = kri_slot(&m->methods);
        while (kri_is_cons(list) && !kri_eq(kri_car(kri_car(list)), selector))
            list = kri_cdr(list);
        if (!kri_is_cons(list) || !kri_eq(kri_car(kri_cdr(kri_car(list))), old_fn))
            return false;
        entry = kri_cons(w, selector, kri_cons(w, fn, kri_cdr(kri_cdr(kri_car(list)))));
        list = methods_with(w, old, selector, entry);
    } while (!kri_store_cas(w, &m->head, &m->methods, old, list));
    kri_fetch_add(&w->vm->method_epoch, 1);
    return true;
}

bool kri_remove_method(struct kri_worker *w, kr_value cls, kr_value selector)
{
    struct kri_metaclass *m = kri_metaclass_of(cls);
    kr_value old, l;
    do {
        l = old = kri_slot(&m->methods);
        while (kri_is_cons(l) && !kri_eq(kri_car(kri_car(l)), selector))
            l = kri_cdr(l);
        if (!kri_is_cons(l))
            return false;
    } while (!kri_store_cas(w, &m->head, &m->methods, old, methods_with(w, old, selector, KRI_NIL)));
    kri_fetch_add(&w->vm->method_epoch, 1);
    return true;
}

static kr_value find_in(struct kr_vm *vm, unsigned cls, kr_value selector)
{
    const struct kri_class *c = &vm->classes[cls];
    if (kri_is_nil(c->object))
        return KRI_NIL;
    kr_value l = kri_load_acquire(&c->superseded) ? c->methods : kri_slot(&kri_metaclass_of(c->object)->methods);
    for (; kri_is_cons(l); l = kri_cdr(l)) {
        kr_value entry = kri_car(l);
        if (kri_eq(kri_car(entry), selector))
            return kri_car(kri_cdr(entry));
    }
    return KRI_NIL;
}

kr_value kri_find_method(struct kri_worker *w, unsigned cls, kr_value selector, kr_value *owner)
{
    struct kr_vm *vm = w->vm;
    for (; cls; cls = vm->classes[cls].super) {
        kr_value fn = find_in(vm, cls, selector);
        if (!kri_is_nil(fn)) {
            if (owner)
                *owner = vm->classes[cls].object;
            return fn;
        }
    }
    return KRI_NIL;
}

static kr_value forwarded_to(struct kr_vm *vm, const struct kri_cell *c, kr_value selector, bool *found)
{
    const struct kri_class *info = &vm->classes[c->cls];
    *found = false;
    if (kri_is_nil(info->object))
        return KRI_NIL;
    kr_value forwards = kri_slot(&kri_metaclass_of(info->object)->forwards);
    size_t n = kri_is_nil(forwards) ? 0 : kri_length(forwards);
    for (size_t i = 0; i < n && i < info->slots; i++)
        for (kr_value l = kri_vector_of(forwards)->at[i]; kri_is_cons(l); l = kri_cdr(l))
            if (kri_eq(kri_car(l), selector)) {
                *found = true;
                return kri_slot(&c->slot[i]);
            }
    return KRI_NIL;
}

_Noreturn static void no_method(struct kri_worker *w, kr_value selector, int argc, const kr_value *argv)
{
    kr_value call = KRI_NIL;
    for (int i = argc < 20 ? argc : 20; i-- > 1;)
        call = kri_cons(w, argv[i], call);
    call = kri_cons(w, w->vm->sym.send, kri_cons(w, argv[0], kri_cons(w, selector, call)));
    w->callee = kri_symbol_function(w->vm, w->vm->sym.send);
    kri_error_call(w, KRI_E_NO_METHOD, selector, call, "receiver %V", argv[0]);
}

/* No method: another thread may be loading the module that defines it. */
static void await_modules(struct kri_worker *w)
{
    kr_value callee = w->callee, f = w->vm->sym.await_modules;
    if (w->vm->running && !(kri_code_of(kri_symbol_function(w->vm, f))->flags & KRI_CODE_UNDEFINED))
        kri_call(w, kri_symbol_function(w->vm, f), 0, NULL);
    w->callee = callee;
}

kr_value kri_send_slow(struct kri_worker *w, kr_value *argv, int *argc, kr_value selector, kr_value super_of)
{
    struct kr_vm *vm = w->vm;
    struct kri_method_cache *cache = w->method_cache;
    size_t epoch = kri_load_acquire(&vm->method_epoch);
    if (cache->epoch != epoch) {
        memset(cache->entry, 0, sizeof cache->entry);
        cache->epoch = epoch;
    }
    cache->misses++;
    bool awaited = false;
    for (int hops = 0; hops < 100; hops++) {
        struct kri_cell *c = kri_cell(vm, argv[0]);
        if (!c) {
            w->callee = kri_symbol_function(vm, vm->sym.send);
            kri_error(w, KRI_E_NO_OBJECT, argv[0], "it cannot receive %V", selector);
        }
        unsigned start = c->cls;
        if (!kri_is_nil(super_of)) {
            if (!kri_derivedp(vm, argv[0], super_of))
                kri_error(w, KRI_E_NO_OBJECT, argv[0], "an instance of %V expected", kri_slot(&kri_metaclass_of(super_of)->name));
            /* The class in the receiver's own ancestry, so that old instances meet their own methods. */
            unsigned target = vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(super_of)->cix))].depth;
            while (start && vm->classes[start].depth >= target)
                start = vm->classes[start].super;
        }
        kr_value fn = kri_find_method(w, start, selector, NULL);
        if (!kri_is_nil(fn)) {
            if (kri_is_nil(super_of)) {
                struct kri_method_entry *e = kri_method_probe(w, c->cls, selector);
                *e = (struct kri_method_entry){selector, fn, c->cls};
            }
            return fn;
        }
        bool found;
        kr_value next = forwarded_to(vm, c, selector, &found);
        if (!found) {
            fn = kri_find_method(w, start, vm->sym.k_nomethod, NULL);
            if (kri_is_nil(fn) && !awaited) {
                await_modules(w);
                awaited = true;
                continue;
            }
            if (kri_is_nil(fn))
                no_method(w, selector, *argc, argv);
            memmove(argv + 2, argv + 1, (size_t)(*argc - 1) * sizeof *argv);
            argv[1] = selector;
            ++*argc;
            return fn;
        }
        argv[0] = next;
        super_of = KRI_NIL;
    }
    kri_error(w, KRI_E_NO_METHOD, selector, "forwarding goes in a circle at %V", argv[0]);
}

/* The classes of errors are defined in Lisp; the table maps codes to them. */
kr_value kri_class_for_code(struct kri_worker *w, int code)
{
    for (kr_value l = w->vm->condition_classes; kri_is_cons(l); l = kri_cdr(l)) {
        kr_value entry = kri_car(l);
        if (kri_is_cons(entry) && kri_eq(kri_car(entry), kri_fixnum(code)) && kri_is_class(w->vm, kri_cdr(entry)))
            return kri_cdr(entry);
    }
    return w->vm->classes[KRI_CLASS_ERROR].object;
}
