/* builtin_array.c -- vectors of all element types, and array objects over them.
 *
 * An array object (class array) has a rank, dimensions, and a vector that holds the elements row by row, from a displaced
 * index offset on; several arrays may share a vector. Programs can set the slots by hand, so every access checks against the vector. */
#include <math.h>
#include "lisp/sequence.h"

enum { RANK_MAX = 7 };

/* ---- single elements ---- */

kr_value kri_vector_ref(struct kri_worker *w, kr_value vector, size_t i)
{
    switch (kri_element(w->vm, vector)) {
    case KRI_ELEMENT_T:
        return kri_slot(&kri_vector_of(vector)->at[i]);
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_BYTE:
        return kri_fixnum(kri_string_of(vector)->byte[i]);
    case KRI_ELEMENT_FOREIGN:
        return kri_fixnum(((struct kri_foreign *)vector.w)->address[i]);
    case KRI_ELEMENT_BIT:
        return kri_fixnum(kri_string_of(vector)->byte[i / 8] >> i % 8 & 1);
    case KRI_ELEMENT_FLOAT:
        return kri_float(w, kri_fvector_of(vector)->at[i]);
    case KRI_ELEMENT_INTEGER:
        return kri_integer(w, (intptr_t)kri_ivector_of(vector)->at[i]);
    default:
        kri_error(w, KRI_E_NO_VECTOR, vector, NULL);
    }
}

/* V as an element of an integer vector: floats are rounded, halves away from zero, and big integers cut to 64 bits. */
static int64_t to_int64(struct kri_worker *w, kr_value v)
{
    if (kri_is_fixnum(v))
        return kri_fixnum_value(v);
    if (kri_is_float(v)) {
        double d = round(kri_float_value(v));
        if (!(d >= -0x1p63 && d < 0x1p63))
            kri_error(w, KRI_E_RANGE, v, "%V does not fit an integer vector", v);
        return (int64_t)d;
    }
    if (kri_has_class(v, KRI_CLASS_BIGNUM)) {
        const struct kri_bignum *b = (struct kri_bignum *)v.w;
        uint64_t low = b->head.length ? b->limb[0] : 0;
        return (int64_t)(b->sign < 0 ? 0 - low : low);
    }
    kri_error(w, KRI_E_NO_INTEGER, v, "%V cannot be an element of an integer vector", v);
}

void kri_vector_set(struct kri_worker *w, kr_value vector, size_t i, kr_value v)
{
    enum kri_element e = kri_element(w->vm, vector);
    switch (e) {
    case KRI_ELEMENT_T:
        kri_store(w, kri_ptr(vector), &kri_vector_of(vector)->at[i], v);
        return;
    case KRI_ELEMENT_FLOAT:
        if (kri_is_flonum(v))
            kri_fvector_of(vector)->at[i] = kri_flonum_value(v);
        else if (kri_is_fixnum(v))
            kri_fvector_of(vector)->at[i] = (double)kri_fixnum_value(v);
        else if (kri_is_number(v))
            kri_fvector_of(vector)->at[i] = kri_to_double(w, v);
        else
            kri_error(w, KRI_E_NO_NUMBER, v, "%V cannot be an element of a float vector", v);
        return;
    case KRI_ELEMENT_INTEGER:
        kri_ivector_of(vector)->at[i] = to_int64(w, v);
        return;
    case KRI_ELEMENT_NONE:
        kri_error(w, KRI_E_NO_VECTOR, vector, NULL);
    default:
        break;
    }
    if (!kri_is_fixnum(v))
        kri_error(w, KRI_E_NO_INTEGER, v, "%V cannot be an element of a vector of bytes or bits", v);
    intptr_t n = kri_fixnum_value(v);
    if (e == KRI_ELEMENT_BIT) {
        /* Neighbours share the word: threads that set different bits must not undo each other. On a little-endian machine
         * bit I of the bytes is bit I % 64 of the word. */
        _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bits of bytes are bits of words");
        volatile kri_atomic *word = (volatile kri_atomic *)kri_string_of(vector)->byte + i / 64;
        size_t bit = (size_t)1 << i % 64, old;
        do
            old = kri_load_relaxed(word);
        while (!kri_cas(word, old, n & 1 ? old | bit : old & ~bit));
    } else if (e == KRI_ELEMENT_FOREIGN) {
        ((struct kri_foreign *)vector.w)->address[i] = (unsigned char)n;
    } else {
        kri_string_of(vector)->byte[i] = (unsigned char)n;
    }
}

/* ---- arrays ---- */

static bool is_array(struct kr_vm *vm, kr_value v)
{
    return kri_has_class(v, KRI_CLASS_ARRAY) || (kri_is_pointer(v) && kri_ptr(v)->cls >= KRI_CLASS_BUILTIN_COUNT &&
                                                 kri_derivedp(vm, v, vm->classes[KRI_CLASS_ARRAY].object));
}

static struct kri_array *array_arg(struct kri_worker *w, const kr_value *argv, int i)
{
    if (!is_array(w->vm, argv[i]))
        kri_argument_error(w, i, argv[i], KRI_E_NO_ARRAY);
    return (struct kri_array *)argv[i].w;
}

static intptr_t natural_slot(const kr_value *slot)
{
    kr_value v = kri_slot(slot);
    return kri_is_fixnum(v) && kri_fixnum_value(v) >= 0 ? kri_fixnum_value(v) : 0;
}

static int rank_of(const struct kri_array *a)
{
    intptr_t r = natural_slot(&a->rank);
    return r <= RANK_MAX ? (int)r : RANK_MAX;
}

static size_t total_size(const struct kri_array *a)
{
    size_t n = 1;
    for (int i = 0; i < rank_of(a); i++)
        n *= (size_t)natural_slot(&a->dim[i]);
    return n;
}

struct place {
    kr_value vector;
    size_t i;
};

/* The place of row-major index N of array A. */
static struct place array_place(struct kri_worker *w, const struct kri_array *a, size_t n, kr_value index)
{
    struct place p = {kri_slot(&a->entity), n + (size_t)natural_slot(&a->offset)};
    if (!kri_is_vector(w->vm, p.vector))
        kri_argument_error(w, 0, kri_value_of(a), KRI_E_NO_ARRAY);
    if (p.i >= kri_length(p.vector))
        kri_error(w, KRI_E_ARRAY_INDEX, index, NULL);
    return p;
}

/* Argument 0, a vector or array, with N indices behind it. */
static struct place place(struct kri_worker *w, const kr_value *argv, int n)
{
    if (kri_is_vector(w->vm, argv[0])) {
        if (n != 1)
            kri_argument_error(w, 0, argv[0], KRI_E_ARRAY_DIMENSION);
        intptr_t i = kri_arg_fixnum(w, argv, 1);
        if (i < 0 || (size_t)i >= kri_length(argv[0]))
            kri_index_error(w, 1, argv[1], KRI_E_ARRAY_INDEX, kri_length(argv[0]));
        return (struct place){argv[0], (size_t)i};
    }
    const struct kri_array *a = array_arg(w, argv, 0);
    size_t at = 0;
    if (!kri_eq(kri_slot(&a->rank), kri_fixnum(n)) || n > RANK_MAX)
        kri_argument_error(w, 0, argv[0], KRI_E_ARRAY_DIMENSION);
    for (int k = 0; k < n; k++) {
        intptr_t i = kri_arg_fixnum(w, argv, k + 1), d = natural_slot(&a->dim[k]);
        if (i < 0 || i >= d)
            kri_index_error(w, k + 1, argv[k + 1], KRI_E_ARRAY_INDEX, (size_t)(d > 0 ? d : 0));
        at = at * (size_t)d + (size_t)i;
    }
    return array_place(w, a, at, argv[1]);
}

KR_BUILTIN(aref, "aref", "(array index &rest indices)",
           "Return the element of ARRAY (a vector, string or array) at the indices, one for each dimension, counted from 0.")
{
    struct place p = place(w, argv, argc - 1);
    return kri_vector_ref(w, p.vector, p.i);
}

KR_BUILTIN(aset, "aset", "(array index &rest more-indices-then-value)",
           "Make the last argument the element of ARRAY at the indices; return it. A float vector converts numbers, an integer vector\n"
           "rounds floats.")
{
    if (argc < 3)
        kri_error(w, KRI_E_ARGC, argv[0], "aset takes an array, indices and a value");
    struct place p = place(w, argv, argc - 2);
    kri_vector_set(w, p.vector, p.i, argv[argc - 1]);
    return argv[argc - 1];
}

static struct place simple_place(struct kri_worker *w, const kr_value *argv, enum kri_element e, int code)
{
    if (kri_element(w->vm, argv[0]) != e)
        kri_argument_error(w, 0, argv[0], code);
    return place(w, argv, 1);
}

KR_BUILTIN(svref, "svref", "(vector index)", "Return the element of VECTOR, a general vector, at INDEX.")
{
    struct place p = simple_place(w, argv, KRI_ELEMENT_T, KRI_E_NO_VECTOR);
    return kri_slot(&kri_vector_of(p.vector)->at[p.i]);
}

KR_BUILTIN(svset, "svset", "(vector index value)", "Make VALUE the element of VECTOR, a general vector, at INDEX; return VALUE.")
{
    struct place p = simple_place(w, argv, KRI_ELEMENT_T, KRI_E_NO_VECTOR);
    kri_store(w, kri_ptr(p.vector), &kri_vector_of(p.vector)->at[p.i], argv[2]);
    return argv[2];
}

static struct place row_major_place(struct kri_worker *w, const kr_value *argv)
{
    if (kri_is_vector(w->vm, argv[0]))
        return place(w, argv, 1);
    const struct kri_array *a = array_arg(w, argv, 0);
    intptr_t i = kri_arg_fixnum(w, argv, 1);
    if (i < 0 || (size_t)i >= total_size(a))
        kri_index_error(w, 1, argv[1], KRI_E_ARRAY_INDEX, total_size(a));
    return array_place(w, a, (size_t)i, argv[1]);
}

KR_BUILTIN(row_major_aref, "row-major-aref", "(array index)", "Return element INDEX of ARRAY, its elements counted row by row.")
{
    struct place p = row_major_place(w, argv);
    return kri_vector_ref(w, p.vector, p.i);
}

KR_BUILTIN(row_major_aset, "lisp::%row-major-aset", "(array index value)", "Make VALUE element INDEX of ARRAY, counted row by row; return VALUE.")
{
    struct place p = row_major_place(w, argv);
    kri_vector_set(w, p.vector, p.i, argv[2]);
    return argv[2];
}

/* ---- bits ---- */

KR_BUILTIN(bit, "bit", "(bit-vector index)", "Return the bit, 0 or 1, of BIT-VECTOR at INDEX.")
{
    struct place p = simple_place(w, argv, KRI_ELEMENT_BIT, KRI_E_NO_BIT_VECTOR);
    return kri_vector_ref(w, p.vector, p.i);
}

KR_BUILTIN(sbit, "sbit", "(bit-vector index)", "Return the bit, 0 or 1, of BIT-VECTOR at INDEX.")
{
    return bit_fn(w, argc, argv);
}

KR_BUILTIN(setbit, "setbit", "(bit-vector index bit)", "Make the lowest bit of BIT the bit of BIT-VECTOR at INDEX; return BIT.")
{
    struct place p = simple_place(w, argv, KRI_ELEMENT_BIT, KRI_E_NO_BIT_VECTOR);
    kri_vector_set(w, p.vector, p.i, argv[2]);
    return argv[2];
}

static unsigned char *bits_arg(struct kri_worker *w, const kr_value *argv, int i, size_t length)
{
    if (kri_element(w->vm, argv[i]) != KRI_ELEMENT_BIT)
        kri_argument_error(w, i, argv[i], KRI_E_NO_BIT_VECTOR);
    if (kri_length(argv[i]) != length)
        kri_argument_error(w, i, argv[i], KRI_E_VECTOR_DIMENSION);
    return kri_string_of(argv[i])->byte;
}

#define BIT_OPERATION(id, name, expression, doc)                                                                                 \
    KR_BUILTIN(id, name, "(bits1 bits2 &optional result)", doc " bit by bit, in RESULT if given, else in a fresh bit vector.")   \
    {                                                                                                                            \
        size_t n = kri_element(w->vm, argv[0]) == KRI_ELEMENT_BIT ? kri_length(argv[0]) : 0;                                     \
        bits_arg(w, argv, 0, n);                                                                                                 \
        bits_arg(w, argv, 1, n);                                                                                                 \
        bool into = argc > 2 && !kri_is_nil(argv[2]);                                                                            \
        kr_value r = into ? (bits_arg(w, argv, 2, n), argv[2]) : kri_make_vector_of(w, KRI_CLASS_BIT_VECTOR, n);                 \
        const unsigned char *pa = kri_string_of(argv[0])->byte, *pb = kri_string_of(argv[1])->byte;                              \
        for (size_t i = 0; i < (n + 7) / 8; i++) {                                                                               \
            unsigned a = pa[i], b = pb[i];                                                                                       \
            kri_string_of(r)->byte[i] = (unsigned char)(expression);                                                             \
        }                                                                                                                        \
        return r;                                                                                                                \
    }
BIT_OPERATION(bit_and, "bit-and", a & b, "Return the AND of BITS1 and BITS2")
BIT_OPERATION(bit_ior, "bit-ior", a | b, "Return the OR of BITS1 and BITS2")
BIT_OPERATION(bit_xor, "bit-xor", a ^ b, "Return the exclusive OR of BITS1 and BITS2")
BIT_OPERATION(bit_eqv, "bit-eqv", ~(a ^ b), "Return the equivalence of BITS1 and BITS2")
BIT_OPERATION(bit_nand, "bit-nand", ~(a & b), "Return the NAND of BITS1 and BITS2")
BIT_OPERATION(bit_nor, "bit-nor", ~(a | b), "Return the NOR of BITS1 and BITS2")

KR_BUILTIN(bit_not, "bit-not", "(bits &optional result)", "Return the complement of BITS, in RESULT if given, else in a fresh bit vector.")
{
    size_t n = kri_element(w->vm, argv[0]) == KRI_ELEMENT_BIT ? kri_length(argv[0]) : 0;
    bits_arg(w, argv, 0, n);
    bool into = argc > 1 && !kri_is_nil(argv[1]);
    kr_value r = into ? (bits_arg(w, argv, 1, n), argv[1]) : kri_make_vector_of(w, KRI_CLASS_BIT_VECTOR, n);
    for (size_t i = 0; i < (n + 7) / 8; i++)
        kri_string_of(r)->byte[i] = (unsigned char)~kri_string_of(argv[0])->byte[i];
    return r;
}

/* ---- what is what ---- */

KR_BUILTIN(vectorp, "vectorp", "(object)", "Return T if OBJECT is a vector of any element type, a string included.")
{
    return kri_bool(w, kri_is_vector(w->vm, argv[0]));
}

KR_BUILTIN(arrayp, "arrayp", "(object)", "Return T if OBJECT is an array or a vector.")
{
    return kri_bool(w, kri_is_vector(w->vm, argv[0]) || is_array(w->vm, argv[0]));
}

KR_BUILTIN(bit_vector_p, "bit-vector-p", "(object)", "Return T if OBJECT is a bit vector.")
{
    return kri_bool(w, kri_element(w->vm, argv[0]) == KRI_ELEMENT_BIT);
}

KR_BUILTIN(vector, "vector", "(&rest elements)", "Return a fresh general vector of ELEMENTS.")
{
    kr_value v = kri_make_vector(w, (size_t)argc);
    for (int i = 0; i < argc; i++)
        kri_vector_of(v)->at[i] = argv[i];
    return v;
}

/* ---- make-array ---- */

/* The class of vectors for what :element-type was given. */
static unsigned element_class(struct kri_worker *w, kr_value type)
{
    const struct kri_symbols *s = &w->vm->sym;
    if (kri_is_class(w->vm, type))
        return kri_arg_vector_class(w, &type, 0);
    if (kri_eq(type, s->k_float) || kri_eq(type, s->float_))
        return KRI_CLASS_FLOAT_VECTOR;
    if (kri_eq(type, s->k_integer) || kri_eq(type, s->integer) || kri_eq(type, s->fixnum))
        return KRI_CLASS_INTEGER_VECTOR;
    if (kri_eq(type, s->k_character) || kri_eq(type, s->k_char) || kri_eq(type, s->k_byte))
        return KRI_CLASS_STRING;
    if (kri_eq(type, s->k_bit))
        return KRI_CLASS_BIT_VECTOR;
    /* The name of a class of vectors; any other symbol, T among them, asks for general elements. */
    if (kri_has_class(type, KRI_CLASS_SYMBOL)) {
        kr_value c = kri_slot(&kri_symbol_of(w->vm, type)->value);
        if (kri_is_class(w->vm, c) && w->vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(c)->cix))].element != KRI_ELEMENT_NONE)
            return kri_arg_vector_class(w, &c, 0);
    }
    return KRI_CLASS_VECTOR;
}

/* Read dimensions from argument I: an integer or a list. Returns the rank; *TOTAL the product. */
static int dimensions_arg(struct kri_worker *w, const kr_value *argv, int i, size_t dim[RANK_MAX], size_t *total)
{
    kr_value l = argv[i];
    int rank = 0;
    *total = 1;
    if (!kri_is_cons(l) && !kri_is_fixnum(l))
        kri_argument_error(w, i, l, kri_is_number(l) ? KRI_E_NO_INTEGER : KRI_E_NO_NUMBER);
    for (bool more = true; more && !kri_is_nil(l); rank++) {
        kr_value d = kri_is_cons(l) ? kri_car(l) : l;
        if (rank == RANK_MAX)
            kri_error(w, KRI_E_USER, argv[i], "array rank limit over: %V", argv[i]);
        if (!kri_is_fixnum(d))
            kri_argument_error(w, i, d, KRI_E_NO_INTEGER);
        if (kri_fixnum_value(d) < 0 || kri_fixnum_value(d) >= UINT32_MAX)
            kri_argument_error(w, i, d, KRI_E_ARRAY_SIZE);
        dim[rank] = (size_t)kri_fixnum_value(d);
        if (dim[rank] && *total > UINT32_MAX / dim[rank])
            kri_argument_error(w, i, argv[i], KRI_E_ARRAY_SIZE);
        *total *= dim[rank];
        more = kri_is_cons(l);
        if (more)
            l = kri_cdr(l);
    }
    return rank;
}

/* Put nested sequences CONTENTS into VECTOR from AT on, as dimensions dim[0..rank) say. Short ones leave elements alone. */
static void fill_contents(struct kri_worker *w, kr_value vector, size_t at, const size_t *dim, int rank, kr_value contents)
{
    struct kri_span s;
    bool list = kri_is_list(contents);
    size_t step = 1, ticks = 0;
    if (!list && !kri_span_of(w->vm, contents, &s))
        kri_error(w, KRI_E_NO_SEQUENCE, contents, "%V as initial contents", contents);
    for (int i = 1; i < rank; i++)
        step *= dim[i];
    for (size_t i = 0; list ? kri_is_cons(contents) : i < s.length; i++, kri_tick(w, &ticks)) {
        kr_value v = list ? kri_car(contents) : kri_vector_ref(w, s.vector, s.start + i);
        if (i >= dim[0])
            kri_error(w, KRI_E_ARRAY_INDEX, contents, "more than %ld initial contents", (long)dim[0]);
        if (rank == 1)
            kri_vector_set(w, vector, at + i, v);
        else
            fill_contents(w, vector, at + i * step, dim + 1, rank - 1, v);
        if (list)
            contents = kri_cdr(contents);
    }
}

static kr_value filled(struct kri_worker *w, unsigned cls, size_t n, kr_value element)
{
    kr_value v = kri_make_vector_of(w, cls, n);
    size_t ticks = 0;
    if (kri_eq(element, KRI_ABSENT))
        return v;
    if (kri_element(w->vm, v) == KRI_ELEMENT_T) {
        kri_store_fill(w, kri_ptr(v), kri_vector_of(v)->at, element, n);
        return v;
    }
    for (size_t i = 0; i < n; i++, kri_tick(w, &ticks))
        kri_vector_set(w, v, i, element);
    return v;
}

static kr_value make_array_object(struct kri_worker *w, kr_value entity, size_t offset, int rank, const size_t *dim, kr_value fill)
{
    struct kri_array *a = (struct kri_array *)kri_make(w, KRI_CLASS_ARRAY, 0, sizeof *a / sizeof(kr_value) - 1);
    a->entity = entity;
    a->rank = kri_fixnum(rank);
    a->fill_pointer = fill;
    a->offset = kri_fixnum((intptr_t)offset);
    for (int i = 0; i < rank; i++)
        a->dim[i] = kri_fixnum((intptr_t)dim[i]);
    return kri_value_of(a);
}

/* A value for :fill-pointer, checked against the array's only dimension. */
static kr_value fill_pointer(struct kri_worker *w, kr_value fill, int rank, size_t size)
{
    if (kri_is_nil(fill) || rank != 1)
        return KRI_NIL;
    if (kri_eq(fill, w->vm->sym.t))
        return kri_fixnum((intptr_t)size);
    if (!kri_is_fixnum(fill))
        kri_error(w, KRI_E_NO_INTEGER, fill, "%V as fill pointer", fill);
    if (kri_fixnum_value(fill) < 0 || (size_t)kri_fixnum_value(fill) > size)
        kri_error(w, KRI_E_ARRAY_INDEX, fill, "%V as fill pointer", fill);
    return fill;
}

KR_BUILTIN(make_array, "make-array",
           "(dimensions &key element-type initial-contents initial-element fill-pointer displaced-to (displaced-index-offset 0) adjustable)",
           "Return a vector of DIMENSIONS elements, or, if that is a list of 1 to 7 integers, an array object. ELEMENT-TYPE is :float,\n"
           ":integer, :character, :byte, :bit, T or a class of vectors. INITIAL-CONTENTS are nested sequences. A FILL-POINTER (an\n"
           "integer, or T for the end) is kept by arrays of one dimension. DISPLACED-TO gives the array or vector to share elements with.")
{
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_element_type, s->k_initial_contents, s->k_initial_element, s->k_fill_pointer, s->k_displaced_to,
                                s->k_displaced_index_offset, s->k_adjustable};
    size_t dim[RANK_MAX], total;
    kri_check_keys(w, argc, argv, 1, allowed, 7);
    int rank = dimensions_arg(w, argv, 0, dim, &total);
    kr_value to = kri_arg_key(argc, argv, 1, s->k_displaced_to, KRI_NIL);
    kr_value contents = kri_arg_key(argc, argv, 1, s->k_initial_contents, KRI_NIL);
    kr_value fill = fill_pointer(w, kri_arg_key(argc, argv, 1, s->k_fill_pointer, KRI_NIL), rank, total);
    if (!kri_is_nil(to)) {
        kr_value offset = kri_arg_key(argc, argv, 1, s->k_displaced_index_offset, kri_fixnum(0));
        if (!kri_is_fixnum(offset) || kri_fixnum_value(offset) < 0)
            kri_error(w, KRI_E_NO_INTEGER, offset, "%V as displaced index offset", offset);
        size_t at = (size_t)kri_fixnum_value(offset);
        if (is_array(w->vm, to)) {
            at += (size_t)natural_slot(&((struct kri_array *)to.w)->offset);
            to = kri_slot(&((struct kri_array *)to.w)->entity);
        }
        if (!kri_is_vector(w->vm, to))
            kri_error(w, KRI_E_NO_ARRAY, to, "%V to be displaced to", to);
        if (at > kri_length(to) || total > kri_length(to) - at)
            kri_error(w, KRI_E_ARRAY_DIMENSION, to, "%ld elements from %ld on, but there are %ld", (long)total, (long)at, (long)kri_length(to));
        return make_array_object(w, to, at, rank, dim, fill);
    }
    kr_value v = filled(w, element_class(w, kri_arg_key(argc, argv, 1, s->k_element_type, KRI_NIL)), total,
                        kri_arg_key(argc, argv, 1, s->k_initial_element, KRI_ABSENT));
    if (!kri_is_nil(contents))
        fill_contents(w, v, 0, dim, rank, contents);
    return kri_is_fixnum(argv[0]) ? v : make_array_object(w, v, 0, rank, dim, fill);
}

KR_BUILTIN(fill_initial_contents, "lisp::fill-initial-contents", "(vector offset dimensions contents)",
           "Put the nested sequences CONTENTS into VECTOR from OFFSET on, row by row as DIMENSIONS say; return VECTOR.")
{
    size_t dim[RANK_MAX], total, at = (size_t)kri_arg_natural(w, argv, 1);
    if (!kri_is_vector(w->vm, argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_VECTOR);
    int rank = dimensions_arg(w, argv, 2, dim, &total);
    if (at > kri_length(argv[0]) || total > kri_length(argv[0]) - at)
        kri_argument_error(w, 0, argv[0], KRI_E_ARRAY_DIMENSION);
    fill_contents(w, argv[0], at, dim, rank, argv[3]);
    return argv[0];
}

KR_BUILTIN(byte_size, "byte-size", "(type)",
           "Return the size in bytes of the C type TYPE: :bit (a byte), :char, :character, :byte, :short, :integer, :int, :long, :float,\n"
           ":double, :pointer; NIL for others.")
{
    static const struct {
        const char *name;
        int size;
    } sizes[] = {{"BIT", 1},     {"CHAR", 1},  {"CHARACTER", 1}, {"BYTE", 1},   {"SHORT", 2},   {"INTEGER", 4},
                 {"INT", 4},     {"LONG", 8},  {"FLOAT", 4},     {"DOUBLE", 8}, {"POINTER", 8}, {"FLOAT32", 4}};
    const unsigned char *text;
    size_t n;
    if (kri_string_designator(w->vm, argv[0], &text, &n))
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if (n == strlen(sizes[i].name) && memcmp(text, sizes[i].name, n) == 0)
                return kri_fixnum(sizes[i].size);
    return KRI_NIL;
}

/* ---- properties of arrays; a vector counts as an array of one dimension ---- */

KR_BUILTIN(array_rank, "array-rank", "(array)", "Return the number of dimensions of ARRAY.")
{
    if (kri_is_vector(w->vm, argv[0]))
        return kri_fixnum(1);
    return kri_fixnum(rank_of(array_arg(w, argv, 0)));
}

KR_BUILTIN(array_dimension, "array-dimension", "(array axis)", "Return dimension AXIS (from 0) of ARRAY, NIL if it has fewer.")
{
    intptr_t i = kri_arg_natural(w, argv, 1);
    if (kri_is_vector(w->vm, argv[0]))
        return i == 0 ? kri_fixnum((intptr_t)kri_length(argv[0])) : KRI_NIL;
    const struct kri_array *a = array_arg(w, argv, 0);
    return i < rank_of(a) ? kri_slot(&a->dim[i]) : KRI_NIL;
}

KR_BUILTIN(array_dimensions, "array-dimensions", "(array)", "Return a list of the dimensions of ARRAY.")
{
    if (kri_is_vector(w->vm, argv[0]))
        return kri_list(w, 1, kri_fixnum((intptr_t)kri_length(argv[0])));
    const struct kri_array *a = array_arg(w, argv, 0);
    return kri_list_from(w, a->dim, (size_t)rank_of(a));
}

KR_BUILTIN(array_total_size, "array-total-size", "(array)", "Return the number of elements of ARRAY.")
{
    if (kri_is_vector(w->vm, argv[0]))
        return kri_fixnum((intptr_t)kri_length(argv[0]));
    return kri_fixnum((intptr_t)total_size(array_arg(w, argv, 0)));
}

KR_BUILTIN(array_vector, "array-vector", "(array)", "Return the vector that holds the elements of ARRAY: a vector itself.")
{
    return kri_is_vector(w->vm, argv[0]) ? argv[0] : kri_slot(&array_arg(w, argv, 0)->entity);
}

KR_BUILTIN(array_row_major_index, "array-row-major-index", "(array &rest indices)", "Return the row-major index of the element of ARRAY at INDICES.")
{
    struct place p = place(w, argv, argc - 1);
    intptr_t offset = is_array(w->vm, argv[0]) ? natural_slot(&((struct kri_array *)argv[0].w)->offset) : 0;
    return kri_fixnum((intptr_t)p.i - offset);
}

KR_BUILTIN(array_in_bounds_p, "array-in-bounds-p", "(array &rest indices)", "Return T if INDICES name an element of ARRAY.")
{
    bool vector = kri_is_vector(w->vm, argv[0]);
    const struct kri_array *a = vector ? NULL : array_arg(w, argv, 0);
    bool good = argc - 1 == (vector ? 1 : rank_of(a));
    for (int k = 1; k < argc; k++) {
        intptr_t i = kri_arg_fixnum(w, argv, k);
        good = good && i >= 0 && i < (vector ? (intptr_t)kri_length(argv[0]) : natural_slot(&a->dim[k - 1]));
    }
    return kri_bool(w, good);
}

KR_BUILTIN(array_element_type, "array-element-type", "(array)", "Return what the elements of ARRAY are: T, :float, :integer, :character or :bit.")
{
    const struct kri_symbols *s = &w->vm->sym;
    switch (kri_element(w->vm, array_vector_fn(w, argc, argv))) {
    case KRI_ELEMENT_FLOAT:
        return s->k_float;
    case KRI_ELEMENT_INTEGER:
        return s->k_integer;
    case KRI_ELEMENT_BIT:
        return s->k_bit;
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_FOREIGN:
        return s->k_character;
    case KRI_ELEMENT_BYTE:
        return s->k_byte;
    default:
        return s->t;
    }
}

KR_BUILTIN(array_displacement, "array-displacement", "(array)", "Return a list of the vector that holds ARRAY's elements and the index of the first.")
{
    if (kri_is_vector(w->vm, argv[0]))
        return kri_list(w, 2, KRI_NIL, kri_fixnum(0));
    const struct kri_array *a = array_arg(w, argv, 0);
    return kri_list(w, 2, kri_slot(&a->entity), kri_slot(&a->offset));
}

/* ---- fill pointers ---- */

KR_BUILTIN(array_has_fill_pointer_p, "array-has-fill-pointer-p", "(array)", "Return T if ARRAY has a fill pointer.")
{
    return kri_bool(w, !kri_is_vector(w->vm, argv[0]) && !kri_is_nil(kri_slot(&array_arg(w, argv, 0)->fill_pointer)));
}

KR_BUILTIN(fill_pointer_, "fill-pointer", "(array)", "Return the fill pointer of ARRAY, NIL without.")
{
    return kri_slot(&array_arg(w, argv, 0)->fill_pointer);
}

KR_BUILTIN(set_fill_pointer, "lisp::%set-fill-pointer", "(array n)", "Make N the fill pointer of ARRAY, an array of one dimension; return N.")
{
    struct kri_array *a = array_arg(w, argv, 0);
    kri_store(w, &a->head, &a->fill_pointer, fill_pointer(w, argv[1], rank_of(a), (size_t)natural_slot(&a->dim[0])));
    return argv[1];
}

/* Argument I, an array with a fill pointer; *N is the pointer. */
static struct kri_array *filling_arg(struct kri_worker *w, const kr_value *argv, int i, intptr_t *n)
{
    struct kri_array *a = array_arg(w, argv, i);
    kr_value f = kri_slot(&a->fill_pointer);
    if (!kri_is_fixnum(f) || kri_fixnum_value(f) < 0 || rank_of(a) != 1)
        kri_error(w, KRI_E_NO_INTEGER, argv[i], "the array has no fill pointer");
    *n = kri_fixnum_value(f);
    return a;
}

static kr_value vector_push(struct kri_worker *w, kr_value *argv, struct kri_array *a, intptr_t n)
{
    if (n >= natural_slot(&a->dim[0]))
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_INDEX);
    struct place p = array_place(w, a, (size_t)n, kri_fixnum(n));
    kri_vector_set(w, p.vector, p.i, argv[0]);
    kri_store(w, &a->head, &a->fill_pointer, kri_fixnum(n + 1));
    return argv[0];
}

KR_BUILTIN(vector_push_, "vector-push", "(value array)", "Store VALUE at the fill pointer of ARRAY and advance it; return VALUE. A full array is an error.")
{
    intptr_t n;
    struct kri_array *a = filling_arg(w, argv, 1, &n);
    return vector_push(w, argv, a, n);
}

KR_BUILTIN(vector_push_extend, "vector-push-extend", "(value array &optional extension)",
           "Store VALUE at the fill pointer of ARRAY and advance it, making the array longer (EXTENSION elements, or twice) if it is full.")
{
    intptr_t n, more = argc > 2 && !kri_is_nil(argv[2]) ? kri_arg_natural(w, argv, 2) : 0;
    struct kri_array *a = filling_arg(w, argv, 1, &n);
    intptr_t size = natural_slot(&a->dim[0]);
    if (n >= size) {
        kr_value old = array_vector_fn(w, 1, argv + 1);
        if (!kri_is_vector(w->vm, old))
            kri_argument_error(w, 1, argv[1], KRI_E_NO_ARRAY);
        size_t start = (size_t)natural_slot(&a->offset), have = kri_length(old) > start ? kri_length(old) - start : 0;
        intptr_t bigger = n + (more > 0 ? more : n > 0 ? n : 1);
        kr_value v = kri_make_vector_of(w, kri_ptr(old)->cls, (size_t)bigger);
        kri_vector_copy(w, v, 0, old, start, have < (size_t)n ? have : (size_t)n);
        kri_store(w, &a->head, &a->entity, v);
        kri_store(w, &a->head, &a->offset, kri_fixnum(0));
        kri_store(w, &a->head, &a->dim[0], kri_fixnum(bigger));
    }
    return vector_push(w, argv, a, n);
}

KR_BUILTIN(vector_pop, "vector-pop", "(array)", "Move the fill pointer of ARRAY back by one and return the element there.")
{
    intptr_t n;
    struct kri_array *a = filling_arg(w, argv, 0, &n);
    if (n == 0)
        kri_argument_error(w, 0, argv[0], KRI_E_ARRAY_INDEX);
    struct place p = array_place(w, a, (size_t)n - 1, kri_fixnum(n - 1));
    kri_store(w, &a->head, &a->fill_pointer, kri_fixnum(n - 1));
    return kri_vector_ref(w, p.vector, p.i);
}

KR_BUILTIN(adjust_array, "adjust-array", "(array dimensions &key element-type initial-element initial-contents fill-pointer)",
           "Give ARRAY, an array object, new DIMENSIONS, keeping the elements at indices that both have; return it. For a vector a\n"
           "fresh one is returned.")
{
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_element_type, s->k_initial_element, s->k_initial_contents, s->k_fill_pointer};
    size_t dim[RANK_MAX], total, ticks = 0;
    kri_check_keys(w, argc, argv, 2, allowed, 4);
    int rank = dimensions_arg(w, argv, 1, dim, &total);
    bool vector = kri_is_vector(w->vm, argv[0]);
    struct kri_array *a = vector ? NULL : array_arg(w, argv, 0);
    size_t old_dim[RANK_MAX] = {vector ? kri_length(argv[0]) : 0};
    for (int i = 0; a && i < rank_of(a); i++)
        old_dim[i] = (size_t)natural_slot(&a->dim[i]);
    if (rank != (vector ? 1 : rank_of(a)))
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_DIMENSION);
    kr_value old = array_vector_fn(w, 1, argv);
    if (!kri_is_vector(w->vm, old))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_ARRAY);
    kr_value type = kri_arg_key(argc, argv, 2, s->k_element_type, KRI_NIL);
    kr_value v = filled(w, kri_is_nil(type) ? kri_ptr(old)->cls : element_class(w, type), total,
                        kri_arg_key(argc, argv, 2, s->k_initial_element, KRI_ABSENT));
    size_t offset = a ? (size_t)natural_slot(&a->offset) : 0, index[RANK_MAX] = {0};
    for (size_t n = 0; n < total; n++, kri_tick(w, &ticks)) {
        size_t from = 0;
        bool both = true;
        for (int i = 0; i < rank; i++) {
            both = both && index[i] < old_dim[i];
            from = from * old_dim[i] + index[i];
        }
        if (both && offset + from < kri_length(old))
            kri_vector_set(w, v, n, kri_vector_ref(w, old, offset + from));
        for (int i = rank - 1; i >= 0 && ++index[i] == dim[i]; i--)
            index[i] = 0;
    }
    kr_value contents = kri_arg_key(argc, argv, 2, s->k_initial_contents, KRI_NIL);
    if (!kri_is_nil(contents))
        fill_contents(w, v, 0, dim, rank, contents);
    if (vector)
        return v;
    kr_value fill = kri_arg_key(argc, argv, 2, s->k_fill_pointer, kri_slot(&a->fill_pointer));
    if (kri_is_fixnum(fill) && kri_fixnum_value(fill) > (intptr_t)total)
        fill = kri_fixnum((intptr_t)total);
    fill = fill_pointer(w, fill, rank, total);
    kri_store(w, &a->head, &a->entity, v);
    kri_store(w, &a->head, &a->offset, kri_fixnum(0));
    kri_store(w, &a->head, &a->fill_pointer, fill);
    for (int i = 0; i < rank; i++)
        kri_store(w, &a->head, &a->dim[i], kri_fixnum((intptr_t)dim[i]));
    return argv[0];
}

const struct kri_builtin *const kri_builtins_array[] = {
    &aref_def, &aset_def, &svref_def, &svset_def, &row_major_aref_def, &row_major_aset_def, &bit_def, &sbit_def, &setbit_def,
    &bit_and_def, &bit_ior_def, &bit_xor_def, &bit_eqv_def, &bit_nand_def, &bit_nor_def, &bit_not_def, &vectorp_def, &arrayp_def,
    &bit_vector_p_def, &vector_def, &make_array_def, &fill_initial_contents_def, &byte_size_def, &array_rank_def,
    &array_dimension_def, &array_dimensions_def, &array_total_size_def, &array_vector_def, &array_row_major_index_def,
    &array_in_bounds_p_def, &array_element_type_def, &array_displacement_def, &array_has_fill_pointer_p_def, &fill_pointer__def,
    &set_fill_pointer_def, &vector_push__def, &vector_push_extend_def, &vector_pop_def, &adjust_array_def, NULL,
};
