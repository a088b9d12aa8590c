/* builtin_object.c -- classes, instances, messages as Lisp sees them. */
#include "lisp/interp.h"
#include "lisp/send.h"
#include "lisp/sequence.h"
#include "lisp/stream.h"

/* Slots of hash tables (lisp/hash_table.c). */
enum { SLOT_HASH_FUNCTION = 4, SLOT_TEST_FUNCTION = 5, SLOT_LOCK = 11, SLOT_INDEX = 12 };

KR_BUILTIN(send, "send", "(object selector &rest args)",
           "Send OBJECT the message SELECTOR with ARGS: call the method found in its class or the nearest superclass, else "
           "in the slot that forwards SELECTOR, else :nomethod with all arguments. Errors: object expected (a number), cannot find method.")
{
    kr_value selector = argv[1];
    memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof *argv);
    int n = argc - 1;
    kr_value fn = kri_send_slow(w, argv, &n, selector, KRI_NIL);
    return kri_tail_call(w, fn, n);
}

KR_BUILTIN(send_message, "send-message", "(object class selector &rest args)",
           "Send OBJECT the message SELECTOR, seeking the method from CLASS upward instead of from OBJECT's own class.")
{
    kr_value cls = kri_arg_class(w, argv, 1), selector = argv[2];
    if (!kri_derivedp(w->vm, argv[0], cls))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    kr_value fn = kri_find_method(w, (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix)), selector, NULL);
    if (kri_is_nil(fn))
        kri_error(w, KRI_E_NO_METHOD, selector, "receiver %V, class %V", argv[0], cls);
    memmove(argv + 1, argv + 3, (size_t)(argc - 3) * sizeof *argv);
    return kri_tail_call(w, fn, argc - 2);
}

KR_BUILTIN(find_method, "find-method", "(object selector)",
           "The method that OBJECT would run for SELECTOR as (class (selector function)), or nil.")
{
    const struct kri_cell *c = kri_cell(w->vm, argv[0]);
    kr_value owner;
    if (!c)
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    kr_value fn = kri_find_method(w, c->cls, argv[1], &owner);
    if (kri_is_nil(fn))
        return KRI_NIL;
    return kri_list(w, 2, owner, kri_list(w, 2, argv[1], fn));
}

KR_BUILTIN(class, "class", "(object)", "The class of OBJECT; nil for numbers, which are no objects.")
{
    return kri_class_of(w->vm, argv[0]);
}

KR_BUILTIN(derivedp, "derivedp", "(object class)", "t if OBJECT is an instance of CLASS or of a subclass; nil for numbers.")
{
    return kri_bool(w, kri_derivedp(w->vm, argv[0], kri_arg_class(w, argv, 1)));
}

KR_BUILTIN(subclassp, "subclassp", "(class super)", "t if CLASS is SUPER or inherits from it.")
{
    return kri_bool(w, kri_subclassp(w->vm, kri_arg_class(w, argv, 0), kri_arg_class(w, argv, 1)));
}

KR_BUILTIN(classp, "classp", "(object)", "t if OBJECT is a class.") { return kri_bool(w, kri_is_class(w->vm, argv[0])); }

KR_BUILTIN(instantiate, "instantiate", "(class &optional size)",
           "A new instance of CLASS, its slots nil; of a vector class, with SIZE elements (nil, 0 or 0.0). Sends no message.")
{
    kr_value cls = kri_arg_class(w, argv, 0);
    unsigned index = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix)), builtin = index;
    const struct kri_class *c = &w->vm->classes[index];
    while (builtin >= KRI_CLASS_BUILTIN_COUNT)
        builtin = w->vm->classes[builtin].super;
    if (builtin == KRI_CLASS_PACKAGE || builtin == KRI_CLASS_METACLASS || builtin == KRI_CLASS_VECTORCLASS)
        kri_error(w, KRI_E_INSTANTIATE, cls, "%s makes them", builtin == KRI_CLASS_PACKAGE ? "make-package" : "defclass");
    if (argc > 1 && !kri_is_nil(argv[1]) && (c->element == KRI_ELEMENT_NONE || c->fixed_size >= 0))
        kri_error(w, KRI_E_ARGC, argv[1], "class %V takes no size", kri_slot(&kri_metaclass_of(cls)->name));
    intptr_t size = argc > 1 && !kri_is_nil(argv[1]) ? kri_arg_fixnum(w, argv, 1) : -1;
    if (argc > 1 && size < 0 && c->element != KRI_ELEMENT_NONE)
        kri_error(w, KRI_E_ARRAY_SIZE, argv[1], NULL);
    return kri_instantiate(w, cls, size);
}

struct change {
    struct kri_cell *cell;
    uint16_t cls;
};

static void change_class(struct kri_worker *w, void *arg)
{
    (void)w;
    struct change *c = arg;
    c->cell->cls = c->cls;
}

KR_BUILTIN(become, "become", "(vector class)",
           "Make VECTOR an instance of the vector class CLASS, whose elements are of the same type. Returns VECTOR. Error: other classes.")
{
    struct kr_vm *vm = w->vm;
    kr_value cls = kri_arg_class(w, argv, 1);
    unsigned n = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix));
    enum kri_element from = kri_element(vm, argv[0]);
    if (from == KRI_ELEMENT_NONE || vm->classes[n].element == KRI_ELEMENT_NONE)
        kri_error(w, KRI_E_USER, argv[0], "vector class or number expected");
    if (from != vm->classes[n].element)
        kri_error(w, KRI_E_USER, argv[0], "element type mismatch");
    if (vm->classes[n].fixed_size >= 0 && (size_t)vm->classes[n].fixed_size != kri_length(argv[0]))
        kri_error(w, KRI_E_VECTOR_DIMENSION, argv[0], NULL);
    /* Elsewhere a cell's class never changes; here the layout stays the same, and nobody looks meanwhile. */
    struct change c = {kri_ptr(argv[0]), (uint16_t)n};
    kri_with_world_stopped(w, change_class, &c);
    return argv[0];
}

static struct kri_cell *slot_holder(struct kri_worker *w, kr_value *argv, size_t *index)
{
    struct kr_vm *vm = w->vm;
    struct kri_cell *c = kri_cell(vm, argv[0]);
    kr_value cls = kri_arg_class(w, argv, 1);
    if (!c || !kri_derivedp(vm, argv[0], cls))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    intptr_t i = kri_is_fixnum(argv[2]) ? kri_fixnum_value(argv[2]) : kri_slot_index(vm, cls, argv[2]);
    if (i < 0 || i >= vm->classes[c->cls].slots || vm->classes[c->cls].element != KRI_ELEMENT_NONE)
        kri_error(w, KRI_E_NO_SLOT, argv[2], "class %V has %V", kri_slot(&kri_metaclass_of(cls)->name), kri_slot(&kri_metaclass_of(cls)->vars));
    *index = (size_t)i;
    return c;
}

enum { VECTORCLASS_ELEMENT_TYPE = 8 };

/* EusLisp's number for the type of a vector's elements. */
static intptr_t element_code(enum kri_element element)
{
    switch (element) {
    case KRI_ELEMENT_BIT: return 1;
    case KRI_ELEMENT_CHAR: return 2;
    case KRI_ELEMENT_BYTE: return 3;
    case KRI_ELEMENT_INTEGER: return 4;
    case KRI_ELEMENT_FLOAT: return 5;
    case KRI_ELEMENT_FOREIGN: return 6;
    default: return 7;
    }
}

enum { SLOT_BUFFER = 2, SLOT_COUNT, SLOT_TAIL };

/* The slots buffer, count and tail of a stream as EusLisp's programs see them: the bytes taken in or gathered, where the next one is
 * read or written, and where they end. */
static kr_value shown_of_stream(struct kri_worker *w, kr_value stream, struct kri_stream *st, size_t i)
{
    kri_lock(w, &st->lock);
    size_t reserve = st->input ? KRI_STREAM_RESERVE : 0;
    size_t end = st->end > reserve ? st->end - reserve : 0, pos = st->pos > reserve ? st->pos - reserve : 0;
    kri_unlock(&st->lock);
    if (i == SLOT_COUNT)
        return kri_fixnum((intptr_t)(st->input ? pos : end));
    if (i == SLOT_TAIL)
        return kri_fixnum((intptr_t)end);
    kr_value buffer = kri_slot(&((struct kri_stream_cell *)kri_ptr(stream))->buffer);
    if (reserve == 0 || !kri_is_string(w->vm, buffer) || kri_length(buffer) < reserve + end)
        return buffer;
    kr_value text = kri_make_string(w, end);
    memcpy(kri_string_of(text)->byte, kri_string_of(buffer)->byte + reserve, end);
    return text;
}

/* What the system keeps in cells of its own (a stream's buffers, a table's state) is no value for programs, and the lists and
 * tables that it searches are shown as copies: a program that changes them changes nothing. */
static kr_value shown(struct kri_worker *w, const struct kri_cell *c, size_t i)
{
    struct kr_vm *vm = w->vm;
    kr_value v = kri_slot(&c->slot[i]);
    struct kri_stream *st = i >= SLOT_BUFFER && i <= SLOT_TAIL && kri_is_stream(vm, kri_value_of(c)) ? kri_stream_state(vm, kri_value_of(c)) : NULL;
    if (st)
        return shown_of_stream(w, kri_value_of(c), st, i);
    if (kri_eq(v, KRI_UNBOUND) || (kri_is_pointer(v) && kri_is_nil(vm->classes[kri_ptr(v)->cls].object) && !kri_is_number(v)))
        return KRI_NIL;
    unsigned cls = c->cls;
    if (i == VECTORCLASS_ELEMENT_TYPE && kri_derivedp(vm, kri_value_of(c), vm->classes[KRI_CLASS_VECTORCLASS].object))
        return kri_fixnum(element_code((enum kri_element)vm->classes[kri_fixnum_value(((const struct kri_metaclass *)c)->cix)].element));
    if (i == 0 || (cls != KRI_CLASS_PACKAGE && !kri_is_class(vm, kri_value_of(c))))
        return v;
    if (kri_has_class(v, KRI_CLASS_VECTOR)) {
        kr_value vector = kri_make_vector(w, kri_length(v));
        kri_vector_copy(w, vector, 0, v, 0, kri_length(v));
        return vector;
    }
    if (!kri_is_cons(v))
        return v;
    kr_value copy = KRI_NIL, list = KRI_NIL;
    for (; kri_is_cons(v); v = kri_cdr(v)) { /* a package's names, or methods: (selector function [documentation]) */
        kr_value e = kri_car(v), entry = KRI_NIL;
        if (kri_is_cons(e)) {
            kr_value rest = kri_cdr(kri_cdr(e));
            entry = kri_cons(w, kri_car(e), kri_cons(w, kri_car(kri_cdr(e)), kri_is_cons(rest) ? kri_cons(w, kri_car(rest), KRI_NIL) : KRI_NIL));
        }
        copy = kri_cons(w, kri_is_nil(entry) ? e : entry, copy);
    }
    for (; kri_is_cons(copy); copy = kri_cdr(copy))
        list = kri_cons(w, kri_car(copy), list);
    return list;
}

/* May slot I of C, of a class that C code relies on, become VALUE? */
static bool settable(struct kri_worker *w, const struct kri_cell *c, size_t i, kr_value value)
{
    struct kr_vm *vm = w->vm;
    unsigned cls = c->cls;
    if (kri_is_pointer(value) && kri_is_nil(vm->classes[kri_ptr(value)->cls].object) && !kri_is_number(value))
        return false;
    while (cls >= KRI_CLASS_BUILTIN_COUNT)
        cls = vm->classes[cls].super;
    switch (cls) {
    case KRI_CLASS_SYMBOL:
        return i >= vm->classes[cls].slots;
    case KRI_CLASS_METACLASS:
    case KRI_CLASS_VECTORCLASS:
    case KRI_CLASS_PACKAGE:
        return i == 0 || i >= vm->classes[cls].slots;
    case KRI_CLASS_STREAM: /* its own slots belong to the native side, if there is one */
    case KRI_CLASS_FILE_STREAM:
    case KRI_CLASS_BROADCAST_STREAM:
        return i == 0 || i >= vm->classes[KRI_CLASS_STREAM].slots || !kri_stream_state(vm, kri_value_of(c));
    case KRI_CLASS_HASH_TABLE:
    case KRI_CLASS_WEAK_HASH_TABLE:
        return i != SLOT_LOCK && i != SLOT_INDEX;
    case KRI_CLASS_RATIO:
        return kri_is_integer(value) && (i == 0 || !kri_eq(value, kri_fixnum(0)));
    default:
        return true;
    }
}

KR_BUILTIN(slot, "slot", "(object class name-or-index)", "The value of OBJECT's slot, by name or index as CLASS counts them.")
{
    size_t i;
    if (kri_element(w->vm, argv[0]) != KRI_ELEMENT_NONE) { /* a vector's only slot is in its header */
        kr_value cls = kri_arg_class(w, argv, 1);
        if (kri_derivedp(w->vm, argv[0], cls) && (kri_is_fixnum(argv[2]) ? kri_eq(argv[2], kri_fixnum(0)) : kri_slot_index(w->vm, cls, argv[2]) == 0))
            return kri_fixnum((intptr_t)kri_length(argv[0]));
    }
    const struct kri_cell *c = slot_holder(w, argv, &i);
    return shown(w, c, i);
}

KR_BUILTIN(setslot, "setslot", "(object class name-or-index value)", "Store VALUE in OBJECT's slot; returns VALUE.")
{
    size_t i;
    struct kri_cell *c = slot_holder(w, argv, &i);
    if (!settable(w, c, i, argv[3]))
        kri_error(w, KRI_E_CONSTANT, argv[2], "this slot of %V is set by the functions of its class only", argv[0]);
    kri_store(w, c, &c->slot[i], argv[3]);
    if (kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_HASH_TABLE].object) && (i == SLOT_HASH_FUNCTION || i == SLOT_TEST_FUNCTION))
        kri_hash_table_renew(w, argv[0]);
    return argv[3];
}

KR_BUILTIN(slot_by_name, "lisp::%slot-by-name", "(object name)", "The value of OBJECT's slot NAME; what (object . name) reads.")
{
    struct kr_vm *vm = w->vm;
    const struct kri_cell *c = kri_cell(vm, argv[0]);
    if (!c || kri_is_nil(vm->classes[c->cls].object))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    intptr_t i = kri_slot_index(vm, vm->classes[c->cls].object, argv[1]);
    if (i < 0 || i >= vm->classes[c->cls].slots)
        kri_error(w, KRI_E_NO_SLOT, argv[1], "of %V", argv[0]);
    return shown(w, c, (size_t)i);
}

/* Argument I, a vector or nil. */
static kr_value arg_vector_or_nil(struct kri_worker *w, const kr_value *argv, int i)
{
    if (!kri_is_nil(argv[i]) && kri_element(w->vm, argv[i]) != KRI_ELEMENT_T)
        kri_argument_error(w, i, argv[i], KRI_E_NO_VECTOR);
    return argv[i];
}

KR_BUILTIN(define_class, "lisp::%defclass", "(name super slots types forwards metaclass element-type size)",
           "Make or redefine class NAME. SLOTS, TYPES and FORWARDS are vectors over its own slots, or nil.")
{
    return kri_define_class(w, kri_arg_symbol(w, argv, 0), argv[1], arg_vector_or_nil(w, argv, 2), arg_vector_or_nil(w, argv, 3),
                            arg_vector_or_nil(w, argv, 4), argv[5], argv[6],
                            kri_is_fixnum(argv[7]) ? kri_fixnum_value(argv[7]) : -1);
}

KR_BUILTIN(define_method, "lisp::%defmethod", "(class selector function &optional documentation)",
           "Add FUNCTION, whose first argument is the receiver, as the method of CLASS for SELECTOR; returns SELECTOR.")
{
    kr_value cls = kri_arg_class(w, argv, 0);
    if (!kri_is_symbol(argv[1]) || kri_is_nil(argv[1]))
        kri_argument_error(w, 1, argv[1], KRI_E_NO_SYMBOL);
    if (!kri_is_function(argv[2]))
        kri_argument_error(w, 2, argv[2], KRI_E_ILLEGAL_FUNCTION);
    kri_add_method(w, cls, argv[1], argv[2], kri_arg_optional(argc, argv, 3, KRI_NIL));
    return argv[1];
}

KR_BUILTIN(delete_method, "lisp::%delete-method", "(class selector)", "Take away the method of CLASS itself for SELECTOR: t, or nil if there was none.")
{
    return kri_bool(w, kri_remove_method(w, kri_arg_class(w, argv, 0), argv[1]));
}

KR_BUILTIN(class_by_index, "sys::class-by-index", "(index)", "The class with index INDEX, or nil.")
{
    intptr_t i = kri_arg_natural(w, argv, 0);
    return (size_t)i < kri_load_acquire(&w->vm->class_count) ? kri_slot(&w->vm->classes[i].object) : KRI_NIL;
}

KR_BUILTIN(all_classes, "sys:list-all-classes", "()", "A list of all classes.")
{
    kr_value list = KRI_NIL;
    for (size_t i = kri_load_acquire(&w->vm->class_count); i-- > 1;) {
        kr_value cls = kri_slot(&w->vm->classes[i].object);
        if (!kri_is_nil(cls) && !kri_load_acquire(&w->vm->classes[i].superseded))
            list = kri_cons(w, cls, list);
    }
    return list;
}

KR_BUILTIN(method_cache, "sys::method-cache", "()", "(hits misses) of this thread's method cache; only misses are counted.")
{
    const struct kri_method_cache *c = w->method_cache;
    return kri_list(w, 2, kri_fixnum((intptr_t)c->hits), kri_fixnum((intptr_t)c->misses));
}

const struct kri_builtin *const kri_builtins_object[] = {
    &send_def, &send_message_def, &find_method_def, &class_def, &derivedp_def, &subclassp_def, &classp_def, &become_def, &instantiate_def,
    &slot_def, &setslot_def, &slot_by_name_def, &define_class_def, &define_method_def, &delete_method_def, &class_by_index_def, &all_classes_def,
    &method_cache_def, NULL};
