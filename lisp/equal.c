/* equal.c -- eql, equal and the hash that goes with them.
 *
 * equal compares numbers as eql does, and conses, vectors, arrays and instances part by part, whatever their class, if
 * both have the same class. Symbols, classes, packages, functions, streams, threads and hash tables are equal to themselves only.
 * Lists are followed in a loop along the cdr; everything else recurses within the native stack's limit. */
#include "lisp/number.h"

#include <math.h>

static uint64_t float_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

bool kri_eql(kr_value a, kr_value b)
{
    if (kri_eq(a, b))
        return true;
    if (!kri_is_pointer(a) || !kri_is_pointer(b) || kri_ptr(a)->cls != kri_ptr(b)->cls)
        return false;
    switch (kri_ptr(a)->cls) {
    case KRI_CLASS_FLOAT_BOX:
        return float_bits(kri_float_value(a)) == float_bits(kri_float_value(b));
    case KRI_CLASS_BIGNUM: {
        const struct kri_bignum *x = (const struct kri_bignum *)a.w, *y = (const struct kri_bignum *)b.w;
        return x->head.length == y->head.length && x->sign == y->sign && memcmp(x->limb, y->limb, x->head.length * sizeof x->limb[0]) == 0;
    }
    case KRI_CLASS_RATIO: {
        const struct kri_ratio *x = (const struct kri_ratio *)a.w, *y = (const struct kri_ratio *)b.w;
        /* The parts are integers: where somebody stored something else, only identity counts. */
        return (kri_is_integer(x->numerator) ? kri_eql(x->numerator, y->numerator) : kri_eq(x->numerator, y->numerator)) &&
               (kri_is_integer(x->denominator) ? kri_eql(x->denominator, y->denominator) : kri_eq(x->denominator, y->denominator));
    }
    case KRI_CLASS_COMPLEX: {
        const struct kri_complex *x = (const struct kri_complex *)a.w, *y = (const struct kri_complex *)b.w;
        return (kri_is_complex(x->real) ? kri_eq(x->real, y->real) : kri_eql(x->real, y->real)) &&
               (kri_is_complex(x->imaginary) ? kri_eq(x->imaginary, y->imaginary) : kri_eql(x->imaginary, y->imaginary));
    }
    default:
        return false;
    }
}

/* The class that C code knows which CLS is or derives from. */
static unsigned known_class(const struct kr_vm *vm, unsigned cls)
{
    while (cls >= KRI_CLASS_BUILTIN_COUNT)
        cls = vm->classes[cls].super;
    return cls;
}

bool kri_has_parts(struct kri_worker *w, unsigned cls, size_t *slots)
{
    const struct kri_layout *layout = &kri_heap_layouts(w->heap)[cls];
    if (layout->kind != KRI_LAYOUT_SLOTS)
        return false;
    *slots = layout->slots;
    switch (known_class(w->vm, cls)) {
    case KRI_CLASS_OBJECT: case KRI_CLASS_PROPERTIED_OBJECT: case KRI_CLASS_CONS: case KRI_CLASS_ARRAY:
    case KRI_CLASS_EXTENDED_NUMBER: case KRI_CLASS_RATIO: case KRI_CLASS_COMPLEX: case KRI_CLASS_PATHNAME: case KRI_CLASS_CONDITION: case KRI_CLASS_ERROR:
        return true;
    default:
        return false;
    }
}

static bool equal_bytes(const struct kri_cell *a, const struct kri_cell *b, enum kri_element element)
{
    size_t n = a->length;
    switch (element) {
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_BYTE:
        return memcmp(a->slot, b->slot, n) == 0;
    case KRI_ELEMENT_FLOAT:
    case KRI_ELEMENT_INTEGER:
        return memcmp(a->slot, b->slot, n * 8) == 0;
    case KRI_ELEMENT_BIT: {
        const unsigned char *x = (const unsigned char *)a->slot, *y = (const unsigned char *)b->slot;
        return memcmp(x, y, n / 8) == 0 && (n % 8 == 0 || ((x[n / 8] ^ y[n / 8]) & ((1u << n % 8) - 1)) == 0);
    }
    case KRI_ELEMENT_FOREIGN:
        return memcmp(((const struct kri_foreign *)a)->address, ((const struct kri_foreign *)b)->address, n) == 0;
    default:
        return false;
    }
}

enum answer { DIFFERENT, EQUAL, TOO_DEEP };

static enum answer compare(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_native_exhausted(w))
        return TOO_DEEP;
    for (;;) {
        if (kri_eq(a, b))
            return EQUAL;
        if (!kri_is_pointer(a) || !kri_is_pointer(b))
            return DIFFERENT;
        struct kri_cell *x = kri_ptr(a), *y = kri_ptr(b);
        if (x->cls != y->cls)
            return DIFFERENT;
        enum answer answer = EQUAL;
        size_t slots;
        if (x->cls == KRI_CLASS_CONS) {
            kri_poll(w);
            answer = compare(w, kri_car(a), kri_car(b));
            if (answer != EQUAL)
                return answer;
            a = kri_cdr(a);
            b = kri_cdr(b);
            continue;
        }
        if (kri_is_number(a))
            return kri_eql(a, b) ? EQUAL : DIFFERENT;
        enum kri_element element = (enum kri_element)w->vm->classes[x->cls].element;
        if (element != KRI_ELEMENT_NONE) {
            if (x->length != y->length)
                return DIFFERENT;
            if (element != KRI_ELEMENT_T)
                return equal_bytes(x, y, element) ? EQUAL : DIFFERENT;
            slots = x->length;
        } else if (!kri_has_parts(w, x->cls, &slots)) {
            return DIFFERENT;
        }
        kri_poll(w);
        for (size_t i = 0; answer == EQUAL && i < slots; i++)
            answer = compare(w, kri_slot(&x->slot[i]), kri_slot(&y->slot[i]));
        return answer;
    }
}

bool kri_equal(struct kri_worker *w, kr_value a, kr_value b)
{
    enum answer answer = compare(w, a, b);
    /* Raised only here, where the stack has room again for handlers to run. */
    if (answer == TOO_DEEP)
        kri_error(w, KRI_E_STACK, KRI_NIL, "equal of structures nested too deeply");
    return answer == EQUAL;
}

/* ---- hashing ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t word = 0;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = mix(h, word);
    }
    word = n;
    for (size_t i = 0; i < n; i++)
        word = word << 8 | p[i];
    return mix(h, word);
}

/* Only the first parts and the upper levels count: hashing stays cheap for large structures. */
enum { HASH_PARTS = 16, HASH_DEPTH = 4 };

static uint64_t hash(struct kri_worker *w, kr_value v, int depth);

static uint64_t hash_slots(struct kri_worker *w, uint64_t h, const struct kri_cell *c, size_t n, int depth)
{
    for (size_t i = 0; depth > 0 && i < n && i < HASH_PARTS; i++)
        h = mix(h, hash(w, kri_slot(&c->slot[i]), depth - 1));
    return h;
}

static uint64_t hash_list(struct kri_worker *w, kr_value v, int depth)
{
    uint64_t h = KRI_CLASS_CONS;
    for (int i = 0; depth > 0 && i < HASH_PARTS && kri_is_cons(v); i++, v = kri_cdr(v))
        h = mix(h, hash(w, kri_car(v), depth - 1));
    return depth > 0 && !kri_is_cons(v) ? mix(h, hash(w, v, depth - 1)) : h;
}

static uint64_t hash(struct kri_worker *w, kr_value v, int depth)
{
    if (!kri_is_pointer(v))
        return mix(1, v.w);
    const struct kri_cell *c = kri_ptr(v);
    size_t n = c->length, slots;
    switch (c->cls) {
    case KRI_CLASS_CONS:
        return hash_list(w, v, depth);
    case KRI_CLASS_FLOAT_BOX:
        return mix(2, float_bits(kri_float_value(v)));
    case KRI_CLASS_BIGNUM:
        return hash_bytes((uint64_t)((const struct kri_bignum *)c)->sign, ((const struct kri_bignum *)c)->limb, n * 8);
    case KRI_CLASS_SYMBOL: {
        /* By name, so that the hash survives printing and reading. */
        kr_value name = kri_slot(&((const struct kri_symbol *)c)->pname);
        return kri_is_string(w->vm, name) ? hash_bytes(3, kri_string_of(name)->byte, kri_length(name)) : mix(3, v.w);
    }
    default:
        break;
    }
    uint64_t h = mix(4, c->cls);
    switch ((enum kri_element)w->vm->classes[c->cls].element) {
    case KRI_ELEMENT_CHAR:
    case KRI_ELEMENT_BYTE:
        return hash_bytes(h, c->slot, n);
    case KRI_ELEMENT_FLOAT:
    case KRI_ELEMENT_INTEGER:
        return hash_bytes(mix(h, n), c->slot, (n < 4 * HASH_PARTS ? n : 4 * HASH_PARTS) * 8);
    case KRI_ELEMENT_BIT: /* whole bytes only: the last may hold stray bits */
        return hash_bytes(mix(h, n), c->slot, n / 8);
    case KRI_ELEMENT_FOREIGN:
        return hash_bytes(h, ((const struct kri_foreign *)c)->address, n < 64 ? n : 64);
    case KRI_ELEMENT_T:
        return hash_slots(w, mix(h, n), c, n, depth);
    case KRI_ELEMENT_NONE:
        break;
    }
    return kri_has_parts(w, c->cls, &slots) ? hash_slots(w, h, c, slots, depth) : mix(h, v.w);
}

uintptr_t kri_sxhash(struct kri_worker *w, kr_value v) { return hash(w, v, HASH_DEPTH); }
