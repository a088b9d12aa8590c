/* hash_order.c -- EusLisp's sxhash, and the order in which its hash tables list their entries.
 *
 * Programs print what is in a table without sorting it, so a table lists its entries as EusLisp's would (maphash and what stands on
 * it); how it finds them is its own (hash_table.c). EusLisp's place for a key is the rest of its sxhash divided by the size, or the
 * next free place; a table that doubles enters its old places one after the other. From the entries in the order in which they came,
 * the size and the growth that follows from it, the places are found again. What was removed in between is not known, and the
 * address of an object is no address of EusLisp's: here objects count as entered at addresses one after the other. */
#include "lisp/sequence.h"

enum { MOST_PARTS = 100000, DEFAULT_SIZE = 10, PROBES_PER_ENTRY = 64, PROBES = 4096 };
static const uint64_t FIXNUM_MASK = ((uint64_t)1 << 61) - 1, TEXT_MASK = ((uint64_t)1 << 29) - 1;

static uint64_t text_hash(kr_value string)
{
    uint64_t h = kri_length(string);
    for (size_t i = 0; i < kri_length(string); i++)
        h = h * 5 + kri_string_of(string)->byte[i];
    return h & TEXT_MASK;
}

static uint64_t float_hash(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits & ~(uint64_t)3 & FIXNUM_MASK; /* two bits of a float are its tag there */
}

/* The sum of what is in V; OTHER for what EusLisp hashes by address. PARTS bounds the walk: V may be circular. */
static uint64_t content_hash(struct kri_worker *w, kr_value v, uint64_t other, size_t *parts)
{
    if (kri_is_fixnum(v))
        return (uint64_t)kri_fixnum_value(v) & FIXNUM_MASK;
    if (kri_is_float(v))
        return float_hash(kri_float_value(v));
    if (kri_is_symbol(v))
        return text_hash(kri_symbol_of(w->vm, v)->pname);
    if (kri_is_string(w->vm, v))
        return text_hash(v);
    uint64_t h = 0;
    enum kri_element e = kri_element(w->vm, v);
    if (kri_is_cons(v)) {
        for (; kri_is_cons(v) && *parts > 0 && !kri_native_exhausted(w); v = kri_cdr(v)) {
            --*parts;
            h += content_hash(w, kri_car(v), other, parts);
        }
        return h & FIXNUM_MASK;
    }
    switch (e) {
    case KRI_ELEMENT_T:
        for (size_t i = 0; i < kri_length(v) && *parts > 0 && !kri_native_exhausted(w); i++) {
            --*parts;
            h += content_hash(w, kri_slot(&kri_vector_of(v)->at[i]), other, parts);
        }
        return h & FIXNUM_MASK;
    case KRI_ELEMENT_FLOAT:
        for (size_t i = 0; i < kri_length(v); i++)
            h += float_hash(kri_fvector_of(v)->at[i]);
        return h & FIXNUM_MASK;
    case KRI_ELEMENT_INTEGER:
        for (size_t i = 0; i < kri_length(v); i++)
            h += (uint64_t)kri_ivector_of(v)->at[i] & FIXNUM_MASK;
        return h & FIXNUM_MASK;
    case KRI_ELEMENT_BIT: return 0;
    default: return other;
    }
}

KR_BUILTIN(sxhash, "sxhash", "(obj)", "Return a number from 0 up for OBJ; objects that are EQUAL have the same.")
{
    size_t parts = MOST_PARTS;
    return kri_fixnum((intptr_t)content_hash(w, argv[0], (kri_sxhash(w, argv[0]) >> 3) & FIXNUM_MASK, &parts));
}

/* ---- the order ---- */

/* Tables of the simulation live in strings: cells that are reachable from the C stack and need no freeing. */
struct order {
    uint64_t *hash;   /* of each entry */
    uint32_t *place;  /* 0, or an entry's number plus one */
    uint32_t *next;   /* the same, while the table doubles */
    size_t size, probes;
};

/* Put entry E into TABLE; false: there are no more probes. */
static bool enter(struct order *o, uint32_t *table, uint32_t e)
{
    size_t i = (size_t)(o->hash[e] % o->size);
    while (table[i] != 0) {
        if (o->probes == 0)
            return false;
        o->probes--;
        if (++i == o->size)
            i = 0;
    }
    table[i] = e + 1;
    return true;
}

static bool twice_as_large(struct order *o)
{
    size_t old = o->size;
    uint32_t *from = o->place;
    memset(o->next, 0, 2 * old * sizeof *o->next);
    o->size *= 2;
    for (size_t i = 0; i < old; i++)
        if (from[i] != 0 && !enter(o, o->next, from[i] - 1))
            return false;
    o->place = o->next;
    o->next = from;
    return true;
}

/* The size that a table of SIZE with N entries began with, if it grew no earlier than it had to. */
static size_t first_size(size_t size, size_t n, double load)
{
    while (size % 2 == 0 && size != DEFAULT_SIZE && n > 0 && (double)(n - 1) > (double)(size / 2) / load)
        size /= 2;
    return size;
}

static bool simulate(struct kri_worker *w, struct order *o, size_t n, size_t size, double load)
{
    size_t ticks = 0;
    for (uint32_t e = 0; e < n; e++) {
        while (o->size < size && (double)e > (double)o->size / load)
            if (!twice_as_large(o))
                return false;
        if (!enter(o, o->place, e))
            return false;
        kri_tick(w, &ticks);
    }
    while (o->size < size)
        if (!twice_as_large(o))
            return false;
    return true;
}

kr_value kri_hash_order(struct kri_worker *w, kr_value entries, size_t size, double load)
{
    size_t n = kri_length(entries) / 2, ticks = 0;
    if (n < 2 || n > size || size > UINT32_MAX / 2)
        return entries;
    kr_value hashes = kri_make_string(w, n * sizeof(uint64_t));
    kr_value places = kri_make_string(w, size * sizeof(uint32_t)), spare = kri_make_string(w, size * sizeof(uint32_t));
    struct order o = {(uint64_t *)kri_string_of(hashes)->byte, (uint32_t *)kri_string_of(places)->byte, (uint32_t *)kri_string_of(spare)->byte,
                      first_size(size, n, load), PROBES_PER_ENTRY * n + PROBES};
    memset(o.place, 0, o.size * sizeof *o.place);
    size_t parts = MOST_PARTS + n * 16;
    for (size_t i = 0; i < n; i++, kri_tick(w, &ticks))
        o.hash[i] = content_hash(w, kri_slot(&kri_vector_of(entries)->at[2 * i]), i, &parts);
    if (!simulate(w, &o, n, size, load))
        return entries; /* keys that crowd: EusLisp would search as long for each of them */
    kr_value out = kri_make_vector(w, 2 * n);
    size_t to = 0;
    for (size_t i = 0; i < size; i++, kri_tick(w, &ticks))
        if (o.place[i] != 0) {
            kri_vector_copy(w, out, to, entries, 2 * (size_t)(o.place[i] - 1), 2);
            to += 2;
        }
    return out;
}

const struct kri_builtin *const kri_builtins_hash_order[] = {&sxhash_def, NULL};
