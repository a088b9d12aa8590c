/* hash_table.c -- hash tables, in the slots that EusLisp's tables have.
 *
 * `key` and `value` are vectors of the same length; a place without an entry holds the symbol in `empty` or `deleted` as its key.
 * Tables whose test is eq, eql, equal or string= (hashed by sxhash) are worked here; tables with functions of the program's own
 * by lib/core/sequence.l with the builtins at the end, so that no C frame waits for Lisp. Cells never move: identity hashes by address.
 *
 * Note [index]. Entries stand in the order in which they came, so a program that goes through its keys in that order reads memory in
 * order; the place in `fill-count` is the next one's. Where a key stands is told by the index, a hidden cell of 32-bit words,
 * open addressing, linear probing: zero, or the entry's place plus one with bits of the hash above, which spare most looks at keys
 * of another hash. An index knows the vector of keys that it was made for; one that does not fit (the slots were set by hand) is
 * made anew. The word of a removed entry stays until the next rehash.
 * Identity hashes so that numbers and cells which are neighbours have neighbouring words: programs that go through them in order find
 * the index's lines in the cache. Keys for which that ends in crowds (the index is `orderly`, and a new word is further than FARTHEST
 * from where its search began) get an index that scatters. Tables with functions of their own have no index: their
 * entries stand where their hash says.
 *
 * Note [versions]. Threads share tables freely. The slot `lock` holds a fixnum, the table's version: bits 1 to 3 the kind of test,
 * bit 0 set while somebody writes, the rest counting writes. A reader notes an even version, searches, and believes what it found
 * if the version is still the same. A writer searches in the same way and then goes from the noted version to the odd one by
 * compare-and-swap: if that succeeds nothing has changed since it looked, and it stores and goes to the next even version.
 * So no test runs, and nothing is allocated or raised, while a version is odd; and whoever meets an odd one waits for a few
 * stores (or, when a rehash was disturbed too often, one rehash of keys whose hash cannot raise). */
#include <sched.h>
#include "lisp/sequence.h"

struct table {
    struct kri_cell head;
    kr_value key, value, size, count, hash_function, test_function, rehash_size, empty, deleted, not_found, fill_count, lock, index;
    kr_value weakness; /* of weak tables only */
};

/* See Note [index]. */
struct index {
    struct kri_cell head;
    uintptr_t keys;      /* the vector's address */
    uint64_t shift;      /* 64 minus the number of bits that tell a word's place */
    uint32_t place_bits; /* of a word's bits: how many are the entry's place plus one */
    uint32_t orderly;    /* identity hashes keep neighbours together */
    unsigned word[];
};

enum { KIND_UNKNOWN, KIND_EQL, KIND_EQUAL, KIND_STRING, KIND_OTHER, WRITING = 1, KIND_SHIFT = 1, KIND_MASK = 7, VERSION_STEP = 16 };

/* What a search goes by: one state of the table. */
struct view {
    struct table *t;
    size_t version;      /* as the lock slot holds it, a fixnum's word */
    int kind;
    kr_value keys, values;
    size_t size;
    struct index *index; /* NULL: a table with functions of the program's own */
};

static bool is_table(struct kr_vm *vm, kr_value v)
{
    return kri_has_class(v, KRI_CLASS_HASH_TABLE) || kri_has_class(v, KRI_CLASS_WEAK_HASH_TABLE) ||
           (kri_is_pointer(v) && kri_ptr(v)->cls >= KRI_CLASS_BUILTIN_COUNT &&
            kri_derivedp(vm, v, vm->classes[KRI_CLASS_HASH_TABLE].object));
}

static struct table *table_arg(struct kri_worker *w, const kr_value *argv, int i)
{
    if (!is_table(w->vm, argv[i]))
        kri_error(w, KRI_E_NO_OBJECT, argv[i], "a hash table, as argument %d of %V", i + 1, kri_is_function(w->callee) ? kri_code_of(w->callee)->name : KRI_NIL);
    return (struct table *)argv[i].w;
}

static volatile kri_atomic *lock_word(struct table *t) { return (volatile kri_atomic *)&t->lock.w; }
static bool is_indexed(int kind) { return kind == KIND_EQL || kind == KIND_EQUAL || kind == KIND_STRING; }
static kr_value *keys_at(kr_value v) { return kri_vector_of(v)->at; }

/* Acquire: pairs with the releases of kri_store by writers; a search sees the cells behind what it reads, and its later look
 * at the version comes after. See Note [versions]. */
static kr_value load(const kr_value *slot) { return (kr_value){kri_load_acquire((const volatile kri_atomic *)&slot->w)}; }

static int kind_for(struct kr_vm *vm, kr_value test, kr_value hash)
{
    if (!kri_is_nil(hash) && !kri_is_builtin_named(vm, hash, "SXHASH"))
        return KIND_OTHER;
    switch (kri_test_of(vm, test)) {
    case KRI_TEST_EQL:
        return KIND_EQL;
    case KRI_TEST_EQUAL:
        return KIND_EQUAL;
    case KRI_TEST_STRING:
        return KIND_STRING;
    default:
        return KIND_OTHER;
    }
}

static size_t word_of(size_t version) { return version << 1 | 1; }
static size_t version_of(size_t word) { return word >> 1; }
static void make_index(struct kri_worker *w, const struct view *v);

/* The table's state, once nobody writes. The table may have been made by instantiate or changed by hand: all is checked. */
static struct view look(struct kri_worker *w, struct table *t)
{
    for (unsigned turn = 1;; turn++) {
        size_t word = kri_load_acquire(lock_word(t));
        if (word == 0) {
            int kind = kind_for(w->vm, kri_slot(&t->test_function), kri_slot(&t->hash_function));
            kri_cas(lock_word(t), 0, word_of((size_t)kind << KIND_SHIFT));
            continue;
        }
        if (version_of(word) & WRITING) {
            if (turn % 64 == 0)
                sched_yield();
            continue;
        }
        struct view v = {t, word, (int)(version_of(word) >> KIND_SHIFT & KIND_MASK), load(&t->key), load(&t->value), 0, NULL};
        if (kri_element(w->vm, v.keys) == KRI_ELEMENT_T && kri_element(w->vm, v.values) == KRI_ELEMENT_T &&
            (v.size = kri_length(v.keys)) == kri_length(v.values)) {
            if (!is_indexed(v.kind))
                return v;
            v.index = (struct index *)load(&t->index).w;
            if (KRI_LIKELY(v.index && v.index->keys == v.keys.w))
                return v;
            make_index(w, &v);
            continue;
        }
        if (kri_load_acquire(lock_word(t)) == word)
            kri_error(w, KRI_E_NO_OBJECT, kri_value_of(t), "a hash table without places: %V", kri_value_of(t));
    }
}

static bool unchanged(const struct view *v) { return kri_load_acquire(lock_word(v->t)) == v->version; }

/* From the noted state to writing; false if the table has changed since. */
static bool begin(const struct view *v)
{
    return kri_cas(lock_word(v->t), v->version, word_of(version_of(v->version) | WRITING));
}

static void end(const struct view *v)
{
    kri_store_release(lock_word(v->t), word_of(version_of(v->version) + VERSION_STEP));
}

void kri_hash_table_renew(struct kri_worker *w, kr_value table)
{
    struct table *t = (struct table *)table.w;
    for (;;) {
        struct view v = look(w, t);
        size_t kind = (size_t)kind_for(w->vm, kri_slot(&t->test_function), kri_slot(&t->hash_function));
        size_t next = (version_of(v.version) & ~(size_t)(KIND_MASK << KIND_SHIFT)) + VERSION_STEP;
        if (begin(&v)) {
            kri_store(w, &t->head, &t->index, KRI_NIL);
            kri_store_release(lock_word(t), word_of(next | kind << KIND_SHIFT));
            return;
        }
    }
}

/* ---- hashing and searching ---- */

static uint64_t scramble(uint64_t h)
{
    h ^= h >> 32;
    h *= 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static uint64_t hash_text(const unsigned char *p, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return scramble(h);
}

/* The hash of KEY as itself. Floats close to each other are as far apart as others, so they are scattered. */
static uint64_t hash_address(const struct index *x, kr_value key)
{
    if (!x->orderly || kri_is_flonum(key))
        return scramble(key.w >> 3 ^ key.w << 61);
    uint64_t a = kri_is_fixnum(key) ? key.w >> 1 : key.w / KRI_GRANULE; /* no two cells lie closer */
    uint64_t turns = a >> (64 - x->shift); /* how often the index was gone round: each begins elsewhere */
    return (a + turns * 0x9E3779B1u) << x->shift | (a * 0x9E3779B97F4A7C15u >> 32 & (((uint64_t)1 << x->shift) - 1));
}

/* A hash of KEY for index X, which cannot raise; false: KEY is not possible in a table of this kind. */
static bool hash(struct kri_worker *w, const struct index *x, int kind, kr_value key, uint64_t *h)
{
    const unsigned char *text;
    size_t n;
    switch (kind) {
    case KIND_STRING:
        if (!kri_string_designator(w->vm, key, &text, &n))
            return false;
        *h = hash_text(text, n);
        return true;
    case KIND_EQUAL:
        *h = kri_sxhash(w, key);
        return true;
    default:
        *h = kri_eq_suffices(key) ? hash_address(x, key) : kri_sxhash(w, key);
        return true;
    }
}

/* Where the search for hash H begins: its upper half as a fraction of the size. */
static size_t first_place(uint64_t h, size_t size) { return (size_t)((h >> 32) * (uint64_t)size >> 32); }

static bool matches(struct kri_worker *w, int kind, kr_value a, kr_value b)
{
    if (kri_eq(a, b))
        return true;
    if (kind == KIND_EQL)
        return !kri_eq_suffices(a) && kri_eql(a, b);
    if (kind == KIND_EQUAL)
        return kri_equal(w, a, b);
    const unsigned char *x, *y;
    size_t n, m;
    return kri_string_designator(w->vm, a, &x, &n) && kri_string_designator(w->vm, b, &y, &m) && n == m && !memcmp(x, y, n);
}

enum { NOWHERE = -1, FARTHEST = 256 };

/* ---- the index ---- */

/* What the word of an entry with hash H has above its place, and the word that the search for H begins at. */
static unsigned tag(const struct index *x, uint64_t h) { return (unsigned)(h << x->place_bits); }
static size_t first_word(const struct index *x, uint64_t h) { return (size_t)(h >> x->shift); }
static size_t last_word(const struct index *x) { return ((size_t)1 << (64 - x->shift)) - 1; }

/* An index without entries, with more words than a table of SIZE places lets in. */
static struct index *empty_index(struct kri_worker *w, size_t size, bool orderly)
{
    unsigned bits = 3, place_bits = 1;
    while (((size_t)1 << bits) * 4 < size * 3)
        bits++;
    while (((size_t)1 << place_bits) <= size)
        place_bits++;
    struct index *x = (struct index *)kri_make(w, KRI_CLASS_BYTES, 0, 3 + ((size_t)1 << bits) * sizeof *x->word / sizeof(kr_value));
    x->shift = 64 - bits;
    x->place_bits = place_bits;
    x->orderly = orderly;
    return x;
}

/* Most entries that a table of SIZE places may get: some words of its index stay free. */
static size_t most_entries(const struct index *x) { return last_word(x); }

static void index_enter(struct index *x, size_t word, uint64_t h, size_t place)
{
    kri_store_int_release(&x->word[word], tag(x, h) | (unsigned)(place + 1));
}

static bool is_crowded(const struct index *x, uint64_t h, size_t word)
{
    return x->orderly && ((word - first_word(x, h)) & last_word(x)) > FARTHEST;
}

static size_t free_word(const struct index *x, uint64_t h)
{
    size_t i = first_word(x, h), last = last_word(x);
    while (x->word[i])
        i = (i + 1) & last;
    return i;
}

/* The place of KEY, whose hash is H, in V, or NOWHERE; then *FREE is the word of the index for it. May poll. */
static inline intptr_t search(struct kri_worker *w, const struct view *v, kr_value key, uint64_t h, intptr_t *free)
{
    const struct index *x = v->index;
    size_t i = first_word(x, h), last = last_word(x);
    unsigned mask = (unsigned)(((uint64_t)1 << x->place_bits) - 1), wanted = tag(x, h);
    for (;; i = (i + 1) & last) {
        unsigned word = kri_load_int_acquire(&x->word[i]);
        if (word == 0)
            break;
        if ((word & ~mask) != wanted)
            continue;
        size_t place = (word & mask) - 1;
        if (place < v->size && matches(w, v->kind, key, load(&keys_at(v->keys)[place])))
            return (intptr_t)place;
    }
    *free = (intptr_t)i;
    return NOWHERE;
}

/* ---- growing ---- */

static double rehash_size(const struct table *t)
{
    kr_value r = kri_slot(&t->rehash_size);
    double d = kri_is_fixnum(r) ? (double)kri_fixnum_value(r) : kri_is_float(r) ? kri_float_value(r) : 1.7;
    return d > 1.0 && d < 100.0 ? d : 1.0;
}

static size_t counted(const kr_value *slot)
{
    kr_value v = kri_slot(slot);
    return kri_is_fixnum(v) && kri_fixnum_value(v) > 0 ? (size_t)kri_fixnum_value(v) : 0;
}

static bool is_weak(const struct table *t) { return t->head.cls == KRI_CLASS_WEAK_HASH_TABLE || t->head.cls >= KRI_CLASS_BUILTIN_COUNT; }

/* A vector for T's keys or values; of a weak table, for the halves that it holds weakly (Note [weak tables]). */
static kr_value places(struct kri_worker *w, const struct table *t, size_t size)
{
    if (is_weak(t) && kri_derivedp(w->vm, kri_value_of(t), w->vm->classes[KRI_CLASS_WEAK_HASH_TABLE].object))
        return kri_value_of(kri_make(w, KRI_CLASS_WEAK_VECTOR, (uint32_t)size, size));
    return kri_make_vector(w, size);
}

static kr_value empty_places(struct kri_worker *w, const struct table *t, size_t size)
{
    kr_value keys = places(w, t, size);
    if (size)
        kri_store_fill(w, kri_ptr(keys), keys_at(keys), w->vm->sym.hash_empty, size);
    return keys;
}

static bool is_entry(struct kr_vm *vm, kr_value key) { return !kri_eq(key, vm->sym.hash_empty) && !kri_eq(key, vm->sym.hash_deleted); }

/* Enter all of V's entries in fresh vectors of SIZE places and in X. Returns how many, SIZE_MAX if they do not fit (the table
 * changed) or crowd in X, which is not orderly then. */
static size_t enter_all(struct kri_worker *w, const struct view *v, kr_value keys, kr_value values, size_t size, struct index *x, bool poll)
{
    size_t count = 0, ticks = 0;
    for (size_t i = 0; i < v->size; i++) {
        kr_value k = load(&keys_at(v->keys)[i]), value = load(&keys_at(v->values)[i]);
        uint64_t h;
        if (!is_entry(w->vm, k) || !hash(w, x, v->kind, k, &h))
            continue;
        if (count >= size || count >= most_entries(x))
            return SIZE_MAX;
        size_t word = free_word(x, h);
        if (is_crowded(x, h, word)) {
            x->orderly = false;
            return SIZE_MAX;
        }
        kri_store(w, kri_ptr(keys), &keys_at(keys)[count], k);
        kri_store(w, kri_ptr(values), &keys_at(values)[count], value);
        index_enter(x, word, h, count++);
        if (poll)
            kri_tick(w, &ticks);
    }
    return count;
}

/* Give the table seen as V, which has none that fits, an index for the entries where they stand. False: an orderly one would be
 * crowded. */
static bool try_index(struct kri_worker *w, const struct view *v, bool orderly)
{
    struct index *x = empty_index(w, v->size, orderly);
    size_t count = 0, ticks = 0, fill = 0;
    bool full = false;
    for (size_t i = 0; i < v->size && !full; i++) {
        kr_value k = load(&keys_at(v->keys)[i]);
        uint64_t h;
        if (!kri_eq(k, w->vm->sym.hash_empty))
            fill = i + 1;
        if (!is_entry(w->vm, k) || !hash(w, x, v->kind, k, &h))
            continue;
        full = count >= most_entries(x);
        if (!full) {
            size_t word = free_word(x, h);
            if (is_crowded(x, h, word))
                return false;
            index_enter(x, word, h, i);
            count++;
        }
        kri_tick(w, &ticks);
    }
    if (full) { /* more entries than EusLisp lets in, set by hand: more places for them */
        kr_value keys = empty_places(w, v->t, 2 * v->size), values = places(w, v->t, 2 * v->size);
        kri_store_move(w, kri_ptr(keys), keys_at(keys), keys_at(v->keys), v->size);
        kri_store_move(w, kri_ptr(values), keys_at(values), keys_at(v->values), v->size);
        if (!begin(v))
            return true;
        kri_store(w, &v->t->head, &v->t->key, keys);
        kri_store(w, &v->t->head, &v->t->value, values);
        kri_store(w, &v->t->head, &v->t->size, kri_fixnum((intptr_t)(2 * v->size)));
    } else {
        x->keys = v->keys.w;
        if (!begin(v))
            return true;
        kri_store(w, &v->t->head, &v->t->index, kri_value_of(x));
        kri_store(w, &v->t->head, &v->t->fill_count, kri_fixnum((intptr_t)fill));
        kri_store(w, &v->t->head, &v->t->count, kri_fixnum((intptr_t)count));
    }
    end(v);
    return true;
}

static void make_index(struct kri_worker *w, const struct view *v)
{
    if (!try_index(w, v, true))
        try_index(w, v, false);
}

/* Between begin and end. */
static void install(struct kri_worker *w, struct table *t, kr_value keys, kr_value values, kr_value index, size_t count)
{
    kri_store(w, &t->head, &t->index, index);
    kri_store(w, &t->head, &t->key, keys);
    kri_store(w, &t->head, &t->value, values);
    kri_store(w, &t->head, &t->size, kri_fixnum((intptr_t)kri_length(keys)));
    kri_store(w, &t->head, &t->count, kri_fixnum((intptr_t)count));
    kri_store(w, &t->head, &t->fill_count, kri_fixnum((intptr_t)count));
}

/* How many places a crowded table should have: twice as many, or as many if deleted entries are what fills it. */
static size_t wanted_size(const struct view *v)
{
    size_t size = v->size ? v->size : 4;
    return (double)counted(&v->t->count) * 2 * rehash_size(v->t) > (double)v->size ? 2 * size : size;
}

/* Rehash state V to SIZE places; false if the table has changed. Disturbed TRIES times before, hold the others up and rehash
 * while they wait. */
static bool grow(struct kri_worker *w, const struct view *v, size_t size, bool orderly, unsigned tries)
{
    kr_value keys = empty_places(w, v->t, size), values = places(w, v->t, size);
    bool patient = tries < 3;
    struct index *x = empty_index(w, size, orderly && patient);
    size_t count = 0;
    x->keys = keys.w;
    if (patient)
        count = enter_all(w, v, keys, values, size, x, true);
    if (count == SIZE_MAX && patient && orderly && !x->orderly)
        return grow(w, v, size, false, tries);
    if (count == SIZE_MAX || !begin(v))
        return false;
    if (!patient)
        count = enter_all(w, v, keys, values, size, x, false);
    if (count != SIZE_MAX)
        install(w, v->t, keys, values, kri_value_of(x), count);
    end(v);
    return count != SIZE_MAX;
}

/* Is one more new key too much? EusLisp's limit: more than size / rehash-size entries already. */
static bool crowded(const struct view *v)
{
    size_t fill = counted(&v->t->fill_count);
    return fill >= v->size || (double)fill * rehash_size(v->t) > (double)v->size;
}

/* ---- the functions ---- */

/* The hash of argument 0 as key for V, or its error. */
static uint64_t key_hash(struct kri_worker *w, const struct view *v, const kr_value *argv)
{
    uint64_t h;
    if (!hash(w, v->index, v->kind, argv[0], &h))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_STRING);
    if (kri_eq(argv[0], w->vm->sym.hash_empty) || kri_eq(argv[0], w->vm->sym.hash_deleted))
        kri_argument_error(w, 0, argv[0], KRI_E_CONSTANT);
    return h;
}

/* The place of KEY in V, or NOWHERE. */
static intptr_t find(struct kri_worker *w, const struct view *v, const kr_value *argv)
{
    intptr_t free, place;
    /* Most keys are found by identity, and then nothing of the key itself was looked at. */
    if (v->kind == KIND_EQL && (place = search(w, v, argv[0], hash_address(v->index, argv[0]), &free)) != NOWHERE)
        return place;
    if (v->kind == KIND_EQL && kri_eq_suffices(argv[0]))
        return NOWHERE;
    return search(w, v, argv[0], key_hash(w, v, argv), &free);
}

KR_BUILTIN(gethash, "gethash", "(key table &optional default)", "Return the value for KEY in TABLE; if there is none, DEFAULT, or else the table's not-found value.")
{
    struct table *t = table_arg(w, argv, 1);
    for (;;) {
        struct view v = look(w, t);
        if (v.kind == KIND_OTHER)
            return kri_tail_call_symbol(w, w->vm->sym.hash_get, argc);
        intptr_t i = find(w, &v, argv);
        kr_value found = i == NOWHERE ? kri_arg_optional(argc, argv, 2, kri_slot(&t->not_found)) : load(&keys_at(v.values)[i]);
        if (unchanged(&v))
            return found;
    }
}

KR_BUILTIN(sethash, "sethash", "(key table value)", "Make VALUE the value for KEY in TABLE; return VALUE.")
{
    struct table *t = table_arg(w, argv, 1);
    for (unsigned tries = 0;; tries++) {
        struct view v = look(w, t);
        intptr_t free;
        if (v.kind == KIND_OTHER)
            return kri_tail_call_symbol(w, w->vm->sym.hash_put, argc);
        uint64_t h = key_hash(w, &v, argv);
        intptr_t i = search(w, &v, argv[0], h, &free);
        if (i != NOWHERE) {
            if (!begin(&v))
                continue;
        } else {
            size_t fill = counted(&t->fill_count);
            if (crowded(&v) || fill >= most_entries(v.index) || !kri_eq(load(&keys_at(v.keys)[fill]), w->vm->sym.hash_empty)) {
                grow(w, &v, wanted_size(&v), true, tries);
                continue;
            }
            if (is_crowded(v.index, h, (size_t)free)) {
                grow(w, &v, v.size, false, tries);
                continue;
            }
            if (!begin(&v))
                continue;
            i = (intptr_t)fill;
            kri_store(w, &t->head, &t->fill_count, kri_fixnum((intptr_t)fill + 1));
            kri_store(w, &t->head, &t->count, kri_fixnum((intptr_t)counted(&t->count) + 1));
            kri_store(w, kri_ptr(v.keys), &keys_at(v.keys)[i], argv[0]);
            index_enter(v.index, (size_t)free, h, fill);
        }
        kri_store(w, kri_ptr(v.values), &keys_at(v.values)[i], argv[2]);
        end(&v);
        return argv[2];
    }
}

KR_BUILTIN(remhash, "remhash", "(key table)", "Remove the entry for KEY, if there is one, from TABLE; return NIL.")
{
    struct table *t = table_arg(w, argv, 1);
    for (;;) {
        struct view v = look(w, t);
        if (v.kind == KIND_OTHER)
            return kri_tail_call_symbol(w, w->vm->sym.hash_remove, argc);
        intptr_t i = find(w, &v, argv);
        if (i == NOWHERE) {
            if (unchanged(&v))
                return KRI_NIL;
            continue;
        }
        if (!begin(&v))
            continue;
        kri_store(w, kri_ptr(v.keys), &keys_at(v.keys)[i], w->vm->sym.hash_deleted);
        kri_store(w, kri_ptr(v.values), &keys_at(v.values)[i], KRI_NIL);
        size_t count = counted(&t->count);
        kri_store(w, &t->head, &t->count, kri_fixnum(count ? (intptr_t)count - 1 : 0));
        end(&v);
        return KRI_NIL;
    }
}

KR_BUILTIN(clrhash, "clrhash", "(table)", "Remove all entries of TABLE; return it.")
{
    struct table *t = table_arg(w, argv, 0);
    for (;;) {
        struct view v = look(w, t);
        kr_value keys = empty_places(w, t, v.size), values = places(w, t, v.size);
        if (begin(&v)) {
            install(w, t, keys, values, KRI_NIL, 0);
            end(&v);
            return argv[0];
        }
    }
}

static bool is_weakness(const struct kri_symbols *s, kr_value v)
{
    return kri_eq(v, s->k_key) || kri_eq(v, s->k_value) || kri_eq(v, s->k_key_and_value) || kri_eq(v, s->k_key_or_value);
}

KR_BUILTIN(make_hash_table, "make-hash-table", "(&key (size 10) (test #'eq) (rehash-size 1.7) (hash #'sxhash) not-found weakness)",
           "Return a table with SIZE places. TEST compares keys: EQ, EQL, EQUAL, STRING= or a function of two arguments, and HASH, a\n"
           "function of one argument, gives the same integer for keys that the test finds equal. It doubles once more than\n"
           "SIZE / REHASH-SIZE entries are in it. NOT-FOUND is what GETHASH returns for missing keys. WEAKNESS makes it a weak table, whose\n"
           "entries go once the garbage collector finds nothing else that refers to the :key, the :value, one of them (:key-and-value:\n"
           "both must live) or both (:key-or-value: one living half keeps the other). Error: no integer as size, an unknown weakness.")
{
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_size, s->k_test, s->k_rehash_size, s->k_hash, s->k_not_found, s->k_weakness};
    kri_check_keys(w, argc, argv, 0, allowed, 6);
    kr_value weakness = kri_arg_key(argc, argv, 0, s->k_weakness, KRI_NIL);
    if (!kri_is_nil(weakness) && !is_weakness(s, weakness))
        kri_error(w, KRI_E_RANGE, weakness, "as the weakness of a hash table: :key, :value, :key-and-value, :key-or-value or nil");
    kr_value size = kri_arg_key(argc, argv, 0, s->k_size, kri_fixnum(10));
    kr_value test = kri_arg_key(argc, argv, 0, s->k_test, KRI_NIL), hash_function = kri_arg_key(argc, argv, 0, s->k_hash, KRI_NIL);
    kr_value rehash = kri_arg_key(argc, argv, 0, s->k_rehash_size, KRI_ABSENT);
    if (!kri_is_fixnum(size) || kri_fixnum_value(size) > UINT32_MAX / 2)
        kri_error(w, KRI_E_NO_INTEGER, size, "as the size of a hash table: %V", size);
    if (!kri_eq(rehash, KRI_ABSENT) && !kri_is_number(rehash))
        kri_error(w, KRI_E_NO_NUMBER, rehash, "as rehash-size of a hash table: %V", rehash);
    size_t n = kri_fixnum_value(size) > 0 ? (size_t)kri_fixnum_value(size) : 1;
    if (kri_is_nil(test))
        test = kri_symbol_function(w->vm, s->eq);
    if (kri_is_nil(hash_function))
        hash_function = kri_symbol_function(w->vm, s->sxhash);
    struct table *t = kri_is_nil(weakness) ? (struct table *)kri_make(w, KRI_CLASS_HASH_TABLE, 0, sizeof *t / sizeof(kr_value) - 2)
                                           : (struct table *)kri_make(w, KRI_CLASS_WEAK_HASH_TABLE, 0, sizeof *t / sizeof(kr_value) - 1);
    if (!kri_is_nil(weakness))
        t->weakness = weakness;
    kr_value keys = empty_places(w, t, n), values = places(w, t, n);
    kri_store(w, &t->head, &t->key, keys);
    kri_store(w, &t->head, &t->value, values);
    t->size = kri_fixnum((intptr_t)n);
    t->count = t->fill_count = kri_fixnum(0);
    t->hash_function = hash_function;
    t->test_function = test;
    kri_store(w, &t->head, &t->empty, s->hash_empty);
    kri_store(w, &t->head, &t->deleted, s->hash_deleted);
    t->not_found = kri_arg_key(argc, argv, 0, s->k_not_found, KRI_NIL);
    t->lock = (kr_value){word_of((size_t)kind_for(w->vm, test, hash_function) << KIND_SHIFT)};
    rehash = kri_eq(rehash, KRI_ABSENT) ? kri_float(w, 1.7) : rehash;
    kri_store(w, &t->head, &t->rehash_size, rehash);
    return kri_value_of(t);
}

KR_BUILTIN(hash_table_p, "hash-table-p", "(object)", "Return T if OBJECT is a hash table.")
{
    return kri_bool(w, is_table(w->vm, argv[0]));
}

KR_BUILTIN(hash_table_test, "hash-table-test", "(table)", "Return the test of TABLE, as it was given.")
{
    return kri_slot(&table_arg(w, argv, 0)->test_function);
}

KR_BUILTIN(hash_table_weakness, "hash-table-weakness", "(table)",
           "Return the weakness that TABLE was made with: :key, :value, :key-and-value, :key-or-value, or NIL if it holds its entries like\n"
           "any other object. Error: no table.")
{
    const struct table *t = table_arg(w, argv, 0);
    return kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_WEAK_HASH_TABLE].object) ? kri_slot(&t->weakness) : KRI_NIL;
}

/* Copy the entries to OUT, a vector: key, value, key, value ... Returns how many entries there were room for, or were. */
static size_t collect(struct kri_worker *w, const struct view *v, kr_value out, bool poll)
{
    size_t n = 0, room = kri_length(out) / 2, ticks = 0;
    for (size_t i = 0; i < v->size && n < room; i++) {
        kr_value k = load(&keys_at(v->keys)[i]), x = load(&keys_at(v->values)[i]);
        if (kri_eq(k, w->vm->sym.hash_empty) || kri_eq(k, w->vm->sym.hash_deleted))
            continue;
        kri_store(w, kri_ptr(out), &keys_at(out)[2 * n], k);
        kri_store(w, kri_ptr(out), &keys_at(out)[2 * n + 1], x);
        n++;
        if (poll)
            kri_tick(w, &ticks);
    }
    return n;
}

KR_BUILTIN(hash_entries, "lisp::%hash-entries", "(table)",
           "Return a vector of the keys and values of TABLE in turn, as at one moment, in the order in which they stand: as they came, unless the table's functions are the program's own.")
{
    struct table *t = table_arg(w, argv, 0);
    for (unsigned tries = 0;; tries++) {
        struct view v = look(w, t);
        size_t count = counted(&t->count);
        kr_value out = kri_make_vector(w, 2 * count);
        if (tries < 3) {
            if (collect(w, &v, out, true) == count && unchanged(&v))
                return out;
        } else if (begin(&v)) {
            size_t n = collect(w, &v, out, false);
            end(&v);
            if (n == count)
                return out;
            if (tries > 6) { /* `count` was set by hand */
                kr_value cut = kri_make_vector(w, 2 * n);
                kri_vector_copy(w, cut, 0, out, 0, 2 * n);
                return cut;
            }
        }
    }
}

KR_BUILTIN(hash_listing, "lisp::%hash-listing", "(table)",
           "Return what %HASH-ENTRIES does in the order in which EusLisp's table would list it.")
{
    kr_value entries = hash_entries_fn(w, argc, argv);
    struct table *t = table_arg(w, argv, 0);
    struct view v = look(w, t);
    return is_indexed(v.kind) ? kri_hash_order(w, entries, v.size, rehash_size(t)) : entries;
}

/* ---- for tables with functions of the program's own: lib/core/sequence.l searches, these note states and change ---- */

KR_BUILTIN(hash_look, "lisp::%hash-look", "(table)", "Return (version keys values) of TABLE.")
{
    struct view v = look(w, table_arg(w, argv, 0));
    return kri_list(w, 3, (kr_value){v.version}, v.keys, v.values);
}

KR_BUILTIN(hash_place, "lisp::%hash-place", "(hash size)", "Return the place among SIZE at which the search for HASH begins.")
{
    size_t n = (size_t)kri_arg_natural(w, argv, 1);
    if (!kri_is_number(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER);
    uint64_t h = kri_is_fixnum(argv[0]) ? scramble((uint64_t)kri_fixnum_value(argv[0])) : kri_sxhash(w, argv[0]);
    return kri_fixnum((intptr_t)first_place(h, n));
}

KR_BUILTIN(hash_places, "lisp::%hash-places", "(table size)", "Return a list of two vectors of SIZE places for the keys and values of TABLE; no place has an entry.")
{
    const struct table *t = table_arg(w, argv, 0);
    intptr_t n = kri_arg_natural(w, argv, 1);
    if (n > UINT32_MAX / 2)
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_SIZE);
    kr_value keys = empty_places(w, t, (size_t)n);
    return kri_list(w, 2, keys, places(w, t, (size_t)n));
}

KR_BUILTIN(hash_same, "lisp::%hash-unchanged", "(table version)", "Return T if TABLE is still as %HASH-LOOK saw it.")
{
    return kri_bool(w, kri_load_acquire(lock_word(table_arg(w, argv, 0))) == argv[1].w);
}

KR_BUILTIN(hash_crowded, "lisp::%hash-crowded", "(table)", "Return the number of places TABLE should have if one more key is too much, else NIL.")
{
    struct view v = look(w, table_arg(w, argv, 0));
    return crowded(&v) ? kri_fixnum((intptr_t)wanted_size(&v)) : KRI_NIL;
}

KR_BUILTIN(hash_extend, "lisp::%hash-extend", "(table)", "Double the places of TABLE, whose test is one of Karakuri's; return TABLE, NIL if the test is another.")
{
    struct table *t = table_arg(w, argv, 0);
    for (unsigned tries = 0;; tries++) {
        struct view v = look(w, t);
        if (v.kind == KIND_OTHER)
            return KRI_NIL;
        if (grow(w, &v, v.size ? 2 * v.size : 4, v.index->orderly, tries))
            return argv[0];
    }
}

KR_BUILTIN(hash_commit, "lisp::%hash-commit", "(table version place key value)",
           "If TABLE is still as %HASH-LOOK saw it, put KEY and VALUE at PLACE, or delete what is there if KEY is the symbol for that;\n"
           "return whether it was.")
{
    struct table *t = table_arg(w, argv, 0);
    struct view v = look(w, t);
    intptr_t i = kri_arg_natural(w, argv, 2);
    kr_value empty = w->vm->sym.hash_empty, deleted = w->vm->sym.hash_deleted;
    if (v.version != argv[1].w || (size_t)i >= v.size || !begin(&v))
        return KRI_NIL;
    kr_value old = keys_at(v.keys)[i];
    intptr_t was = !kri_eq(old, empty) && !kri_eq(old, deleted), is = !kri_eq(argv[3], deleted);
    intptr_t count = (intptr_t)counted(&t->count) + is - was;
    kri_store(w, &t->head, &t->count, kri_fixnum(count > 0 ? count : 0));
    if (kri_eq(old, empty))
        kri_store(w, &t->head, &t->fill_count, kri_fixnum((intptr_t)counted(&t->fill_count) + 1));
    kri_store(w, kri_ptr(v.keys), &keys_at(v.keys)[i], argv[3]);
    kri_store(w, kri_ptr(v.values), &keys_at(v.values)[i], argv[4]);
    end(&v);
    return w->vm->sym.t;
}

KR_BUILTIN(hash_install, "lisp::%hash-install", "(table version keys values count)",
           "If TABLE is still as %HASH-LOOK saw it, make KEYS and VALUES, with COUNT entries, its places; return whether it was.")
{
    struct table *t = table_arg(w, argv, 0);
    struct view v = look(w, t);
    intptr_t count = kri_arg_natural(w, argv, 4);
    if (kri_element(w->vm, argv[2]) != KRI_ELEMENT_T || kri_element(w->vm, argv[3]) != KRI_ELEMENT_T || kri_length(argv[2]) != kri_length(argv[3]))
        kri_argument_error(w, 2, argv[2], KRI_E_NO_VECTOR);
    if (v.version != argv[1].w || !begin(&v))
        return KRI_NIL;
    install(w, t, argv[2], argv[3], KRI_NIL, (size_t)count);
    end(&v);
    return w->vm->sym.t;
}

KR_BUILTIN(hash_adopt, "lisp::%hash-adopt", "(table fresh)",
           "Make TABLE, an instance that nobody uses yet, what FRESH is, a table of make-hash-table that is not used otherwise. Returns TABLE.")
{
    struct table *t = table_arg(w, argv, 0), *from = table_arg(w, argv, 1);
    kr_value *to = &t->key, *source = &from->key;
    for (size_t i = 0; &to[i] < &t->lock; i++)
        kri_store(w, &t->head, &to[i], kri_slot(&source[i]));
    kri_store(w, &t->head, &t->index, kri_slot(&from->index));
    kri_store_release(lock_word(t), 0);
    return argv[0];
}

/* ---- weak tables ----
 *
 * Note [weak tables]. The keys and values of a table of class weak-hash-table lie in weak vectors, which the collector does not look
 * into. When all else is marked, it asks each such table that lives what its entries keep alive: by weakness :key, a living key its
 * value, by :value a living value its key, by :key-or-value one the other, and by :key-and-value neither. Then entries with a dead half are
 * dropped, as remhash does it; the table's version changes, for somebody may be in the middle of a search, never of a change. */

static bool pair_is_settled(struct kri_heap *heap, const struct kri_symbols *s, kr_value weakness, kr_value key, kr_value value, kr_value *save)
{
    bool k = kri_is_marked(heap, key), v = kri_is_marked(heap, value);
    if (k == v)
        return true;
    *save = k ? value : key;
    return k ? kri_eq(weakness, s->k_value) || kri_eq(weakness, s->k_key_and_value) : kri_eq(weakness, s->k_key) || kri_eq(weakness, s->k_key_and_value);
}

static bool weak_places(struct kr_vm *vm, const struct table *t, kr_value **keys, kr_value **values, size_t *n)
{
    kr_value k = t->key, v = t->value;
    if (kri_element(vm, k) != KRI_ELEMENT_T || kri_element(vm, v) != KRI_ELEMENT_T || kri_length(k) != kri_length(v))
        return false;
    *keys = keys_at(k);
    *values = keys_at(v);
    *n = kri_length(k);
    return true;
}

bool kri_hash_table_trace(struct kri_heap *heap, struct kri_marker *m, struct kri_cell *c, bool forward)
{
    struct kr_vm *vm = kri_heap_user(heap);
    const struct table *t = (struct table *)c;
    kr_value *keys, *values, save;
    size_t n;
    bool progress = false;
    if (!weak_places(vm, t, &keys, &values, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t at = forward ? i : n - 1 - i;
        if (!pair_is_settled(heap, &vm->sym, t->weakness, keys[at], values[at], &save)) {
            kri_mark_value(m, save);
            kri_mark_drain(m); /* a later entry may wait for what hangs on it */
            progress = true;
        }
    }
    return progress;
}

void kri_hash_table_clear_dead(struct kri_heap *heap, struct kri_cell *c)
{
    struct kr_vm *vm = kri_heap_user(heap);
    struct table *t = (struct table *)c;
    kr_value *keys, *values;
    size_t n, dropped = 0;
    if (!weak_places(vm, t, &keys, &values, &n))
        return;
    for (size_t i = 0; i < n; i++)
        if (!kri_is_marked(heap, keys[i]) || !kri_is_marked(heap, values[i])) {
            keys[i] = vm->sym.hash_deleted;
            values[i] = KRI_NIL;
            dropped++;
        }
    size_t count = counted(&t->count), version = version_of(t->lock.w);
    t->count = kri_fixnum(count > dropped ? (intptr_t)(count - dropped) : 0);
    if (dropped && t->lock.w && !(version & WRITING))
        t->lock = (kr_value){word_of(version + VERSION_STEP)};
}

const struct kri_builtin *const kri_builtins_hash[] = {
    &gethash_def, &sethash_def, &remhash_def, &clrhash_def, &make_hash_table_def, &hash_table_p_def, &hash_table_test_def,
    &hash_table_weakness_def, &hash_places_def,
    &hash_entries_def, &hash_listing_def, &hash_look_def, &hash_place_def, &hash_same_def, &hash_crowded_def, &hash_extend_def,
    &hash_commit_def, &hash_install_def, &hash_adopt_def, NULL,
};
