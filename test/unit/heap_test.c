/* heap_test.c -- runtime/heap.c, chunk.c, sweep.c, store.c, heap_check.c, heap_stats.c: allocation through collections. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "test/unit/world.h"

static struct kri_heap_stats stats_of(struct kri_worker *w)
{
    struct kri_heap_stats s;
    kri_heap_get_stats(w, &s);
    return s;
}

static uint64_t random_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* ---- sizes and addresses ---- */

static void cell_is_found(struct kri_worker *w, void *arg)
{
    struct kri_cell *c = arg;
    size_t bytes = kri_cell_bytes(c);

    ck_assert_ptr_eq(kri_find_cell(w->heap, (uintptr_t)c), c);
    ck_assert_ptr_eq(kri_find_cell(w->heap, (uintptr_t)c + 1), c);
    ck_assert_ptr_eq(kri_find_cell(w->heap, (uintptr_t)c + bytes / 2), c);
    ck_assert_ptr_eq(kri_find_cell(w->heap, (uintptr_t)c + bytes - 1), c);
    ck_assert_ptr_ne(kri_find_cell(w->heap, (uintptr_t)c + bytes), c);
    ck_assert_ptr_ne(kri_find_cell(w->heap, (uintptr_t)c - 1), c);
}

START_TEST(every_size_is_served_zeroed_and_found)
{
    static const size_t big[] = {200, 1000, 5000, 25000, 32834, 32837, 32838, 40000, 300000, 1000000};
    struct world t;

    open_world(&t, (struct kri_heap_config){.discipline = (enum kri_discipline)_i});
    for (size_t i = 0; i < 140 + sizeof big / sizeof *big; i++) {
        size_t words = i < 140 ? i : big[i - 140];
        for (int repeat = 0; repeat < 3; repeat++) {
            struct kri_cell *c = kri_alloc(t.w, RAW, (uint32_t)words, words);
            ck_assert_ptr_nonnull(c);
            ck_assert_uint_eq(c->cls, RAW);
            ck_assert_uint_eq(c->flags, 0);
            ck_assert_uint_eq(c->length, words);
            ck_assert_uint_ge(kri_cell_bytes(c), (words + 1) * 8);
            for (size_t j = 0; j < kri_cell_bytes(c) / 8 - 1; j++) {
                EXPECT(c->slot[j].w == 0);
                c->slot[j].w = ~(uintptr_t)0;
            }
            kri_with_world_stopped(t.w, cell_is_found, c);
        }
    }
    close_world(&t);
}
END_TEST

static void strange_words(struct kri_worker *w, void *arg)
{
    uint64_t state = 7;
    (void)arg;
    ck_assert_ptr_null(kri_find_cell(w->heap, 0));
    ck_assert_ptr_null(kri_find_cell(w->heap, ~(uintptr_t)0));
    ck_assert_ptr_null(kri_find_cell(w->heap, (uintptr_t)1 << 47));
    ck_assert_ptr_null(kri_find_cell(w->heap, (uintptr_t)w));
    for (struct kri_chunk *c = w->heap->chunks; c; c = c->next) {
        ck_assert_ptr_null(kri_find_cell(w->heap, (uintptr_t)c));
        ck_assert_ptr_null(kri_find_cell(w->heap, (uintptr_t)kri_chunk_tree(c) - 1));
        ck_assert_ptr_null(kri_find_cell(w->heap, (uintptr_t)c + KRI_CHUNK_BYTES - 1));
    }
    for (int i = 0; i < 100000; i++)
        kri_find_cell(w->heap, random_word(&state) << (i % 32));
}

START_TEST(strange_words_are_no_cells)
{
    struct world t;
    open_world(&t, (struct kri_heap_config){0});
    kri_with_world_stopped(t.w, strange_words, NULL);
    close_world(&t);
}
END_TEST

/* ---- the sweep against a slow and simple one ---- */

/* Make the tree of a chunk at random; LIVE says for each granule the index + 1 of the cell that starts there. */
static void grow_tree(struct kri_chunk *chunk, uint32_t at, unsigned k, unsigned density, unsigned deepest, uint64_t *state)
{
    struct kri_cell *c = (struct kri_cell *)((char *)kri_chunk_tree(chunk) + (size_t)at * KRI_GRANULE);

    if (k > deepest || (k > 0 && random_word(state) % 4)) {
        grow_tree(chunk, at, k - 1, density, deepest, state);
        grow_tree(chunk, at + kri_fib[k - 1], k >= 2 ? k - 2 : 0, density, deepest, state);
        return;
    }
    kri_set_header(c, kri_header(RAW, k, 0));
    if (random_word(state) % 1000 < density)
        kri_mark_cell(c);
}

/* True if no mark lies in the node; else whether each maximal free node below it is what EXPECTED counts. */
static bool slow_sweep(const unsigned char *marks, uint32_t at, unsigned k, size_t expected[KRI_SIZES])
{
    bool left, right, any = false;
    unsigned r = k >= 2 ? k - 2 : 0;

    for (uint32_t i = at; i < at + kri_fib[k]; i++)
        any |= marks[i] != 0;
    if (!any)
        return true;
    if (marks[at] == k + 1)
        return false;
    EXPECT(k > 0);
    left = slow_sweep(marks, at, k - 1, expected);
    right = slow_sweep(marks, at + kri_fib[k - 1], r, expected);
    expected[k - 1] += left;
    expected[r] += right;
    return false;
}

START_TEST(sweep_finds_every_maximal_free_node)
{
    static const unsigned density[] = {0, 1, 10, 100, 500, 900, 999, 1000};
    struct world t;
    struct kri_chunk *chunk;
    uint64_t state = 1;

    open_world(&t, (struct kri_heap_config){0});
    chunk = kri_chunk_map(t.heap, 0);
    for (unsigned round = 0; round < 80; round++) {
        struct kri_free_list found[KRI_SIZES] = {0};
        size_t expected[KRI_SIZES] = {0}, free = 0;
        grow_tree(chunk, 0, KRI_CHUNK_INDEX, density[round % 8], round % 20, &state);
        expected[KRI_CHUNK_INDEX] += slow_sweep(chunk->marks, 0, KRI_CHUNK_INDEX, expected);
        size_t swept = kri_sweep_chunk(chunk, found);
        for (unsigned k = 0; k < KRI_SIZES; k++) {
            size_t n = 0;
            for (struct kri_cell *c = found[k].head; c; c = kri_ptr(c->slot[0]), n++) {
                EXPECT(c->cls == KRI_CLASS_FREE);
                EXPECT(c->buddy == k);
            }
            ck_assert_uint_eq(n, expected[k]);
            ck_assert_uint_eq(n, found[k].count);
            free += n * kri_fib[k];
        }
        ck_assert_uint_eq(free, swept);
        ck_assert_uint_eq(chunk->touched, 0);
        for (size_t i = 0; i < KRI_TREE_GRANULES; i++)
            EXPECT(chunk->marks[i] == 0);
    }
    kri_chunk_unmap(chunk);
    close_world(&t);
}
END_TEST

/* ---- random programs ---- */

/* An object's words tell its stamp, so that a cell handed out twice is found out. Slot 0 is the stamp; then values or noise. */
static kr_value make_random(struct kri_worker *w, const kr_value *roots, uint64_t *state)
{
    unsigned cls = RAW + (unsigned)(random_word(state) % 4);
    size_t words = random_word(state) % 20;
    intptr_t stamp = (intptr_t)random_word(state);
    struct kri_cell *c;

    if (random_word(state) % 50 == 0)
        words = random_word(state) % 3000;
    if (random_word(state) % 5000 == 0)
        words = 40000 + random_word(state) % 200000;
    if (cls == CONS) {
        c = kri_alloc_pair(w, CONS, kri_fixnum(stamp), roots[random_word(state) % ROOTS]);
        ck_assert_ptr_nonnull(c);
        return kri_value_of(c);
    }
    words++;
    c = random_word(state) % 2 ? kri_alloc(w, cls, (uint32_t)words, words) : kri_alloc_raw(w, cls, (uint32_t)words, words);
    ck_assert_ptr_nonnull(c);
    c->slot[0] = kri_fixnum(stamp);
    for (size_t i = 1; i < words; i++)
        c->slot[i] = cls == RAW ? kri_fixnum(stamp + (intptr_t)i) : roots[random_word(state) % ROOTS];
    return kri_value_of(c);
}

/* RAW cells hold arithmetic sequences. */
static void check_object(struct kri_cell *c, void *arg)
{
    (void)arg;
    EXPECT(c->cls >= RAW && c->cls <= ALL);
    EXPECT(kri_is_fixnum(c->slot[0]));
    if (c->cls == RAW)
        for (size_t i = 1; i < c->length; i++)
            EXPECT(kri_fixnum_value(c->slot[i]) == kri_fixnum_value(c->slot[0]) + (intptr_t)i);
}

static void walk_all(struct kri_worker *w, void *arg) { kri_heap_walk(w, check_object, arg); }

static void run_random(struct world *t, int steps, uint64_t seed)
{
    uint64_t state = seed;

    for (int i = 0; i < steps; i++) {
        size_t at = random_word(&state) % ROOTS;
        if (random_word(&state) % 4 == 0)
            t->roots[at] = KRI_NIL;
        else
            t->roots[at] = make_random(t->w, t->roots, &state);
        if (i % 64 == 0) /* break the chains, or all stays alive */
            for (size_t j = 0; j < ROOTS / 4; j++)
                t->roots[random_word(&state) % ROOTS] = KRI_NIL;
        if (i % 1000 == 999) {
            t->roots[random_word(&state) % ROOTS] = KRI_NIL;
            for (size_t j = 0; j < ROOTS; j++)
                if (kri_has_class(t->roots[j], RAW) == false)
                    t->roots[j] = KRI_NIL;
            kri_collect(t->w, KRI_GC_REQUEST);
            check_heap(t->w);
            kri_with_world_stopped(t->w, walk_all, NULL);
        }
    }
}

START_TEST(random_program_survives_collections)
{
    struct world t;
    open_world(&t, (struct kri_heap_config){.discipline = (enum kri_discipline)_i, .limit_bytes = (size_t)1 << 30});
    run_random(&t, 20000, (uint64_t)_i + 1);
    close_world(&t);
}
END_TEST

START_TEST(random_program_survives_stress)
{
    struct world t;
    open_world(&t, (struct kri_heap_config){.discipline = (enum kri_discipline)(_i % 4), .stress = _i < 4 ? 1 : 7,
                                            .limit_bytes = (size_t)1 << 30});
    run_random(&t, 3000, (uint64_t)_i + 100);
    close_world(&t);
}
END_TEST

/* ---- policy ---- */

static KRI_NOINLINE void make_list(struct world *t, size_t root, size_t n)
{
    for (t->roots[root] = KRI_NIL; n; n--) {
        struct kri_cell *c = kri_alloc_pair(t->w, CONS, kri_fixnum((intptr_t)n), t->roots[root]);
        EXPECT(c != NULL);
        t->roots[root] = kri_value_of(c);
    }
}

/* Overwrite what dead calls left on the stack. */
static KRI_NOINLINE void clear_stack(void)
{
    volatile char room[8192];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = 0;
}

START_TEST(peak_stays_below_two_and_a_half_times_a_big_live_heap)
{
    struct world t;
    struct kri_heap_stats s;

    open_world(&t, (struct kri_heap_config){.limit_bytes = (size_t)2 << 30});
    make_list(&t, 0, 4000000);
    kri_collect(t.w, KRI_GC_REQUEST);
    for (int i = 0; i < 50; i++)
        make_list(&t, 1, 400000);
    s = stats_of(t.w);
    ck_assert_uint_ge(s.live_bytes, (uint64_t)4000000 * 24);
    ck_assert_uint_le(s.peak_bytes, (uint64_t)4400000 * 24 * 5 / 2);
    close_world(&t);
}
END_TEST

START_TEST(memory_is_given_back)
{
    struct world t;
    uint64_t before, after;

    open_world(&t, (struct kri_heap_config){.limit_bytes = (size_t)2 << 30});
    make_list(&t, 0, 4000000);
    before = stats_of(t.w).heap_bytes;
    t.roots[0] = KRI_NIL;
    clear_stack();
    for (int i = 0; i < 8; i++)
        kri_collect(t.w, KRI_GC_REQUEST);
    after = stats_of(t.w).heap_bytes;
    ck_assert_uint_lt(after, before / 2);
    close_world(&t);
}
END_TEST

START_TEST(dead_cells_merge_to_whole_chunks)
{
    struct world t;
    uint64_t before;

    open_world(&t, (struct kri_heap_config){.initial_bytes = 8 << 20});
    make_list(&t, 0, 200000);
    t.roots[0] = KRI_NIL;
    clear_stack();
    kri_collect(t.w, KRI_GC_REQUEST);
    before = stats_of(t.w).heap_bytes;
    for (int i = 0; i < 12; i++) /* four of index 19 fit in a chunk beside each other, or nearly so */
        t.roots[i] = kri_value_of(kri_alloc(t.w, VECTOR, 0, 30000));
    ck_assert_uint_le(stats_of(t.w).heap_bytes, before + (2 << 20));
    close_world(&t);
}
END_TEST

static bool fill_until_full(struct world *t, size_t words)
{
    for (size_t i = 0; i < 100000000; i++) {
        struct kri_cell *c = kri_alloc(t->w, VECTOR, 1, words);
        if (!c)
            return true;
        c->slot[0] = t->roots[0];
        t->roots[0] = kri_value_of(c);
    }
    return false;
}

/* 2, 5, 3000, 40,000 words: runs, lists, the global base, large objects. */
START_TEST(the_limit_is_an_answer_and_not_an_end)
{
    static const size_t words[] = {2, 5, 3000, 40000};
    struct world t;
    struct kri_heap_stats s;

    open_world(&t, (struct kri_heap_config){.limit_bytes = 16 << 20, .discipline = (enum kri_discipline)(_i / 4)});
    for (int repeat = 0; repeat < 3; repeat++) {
        ck_assert(fill_until_full(&t, words[_i % 4]));
        s = stats_of(t.w);
        ck_assert_uint_le(s.peak_bytes, 16 << 20);
        if (words[_i % 4] < 40000)
            ck_assert_uint_ge(s.live_bytes, 8 << 20);
        for (int i = 0; i < 1000; i++) /* the reserve: room for an error message */
            EXPECT(kri_alloc_pair(t.w, CONS, KRI_NIL, KRI_NIL) != NULL);
        t.roots[0] = KRI_NIL;
        clear_stack();
        check_heap(t.w);
        for (int i = 0; i < 100000; i++)
            EXPECT(kri_alloc_pair(t.w, CONS, KRI_NIL, KRI_NIL) != NULL);
    }
    close_world(&t);
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
    struct world t;
    open_world(&t, (struct kri_heap_config){0});
    ck_assert_ptr_null(kri_alloc(t.w, RAW, 0, SIZE_MAX));
    ck_assert_ptr_null(kri_alloc(t.w, RAW, 0, SIZE_MAX / 8));
    ck_assert_ptr_null(kri_alloc(t.w, RAW, 0, SIZE_MAX / 16));
    ck_assert_ptr_null(kri_alloc(t.w, RAW, 0, (size_t)1 << 45));
    ck_assert_ptr_null(kri_alloc(t.w, RAW, 0, LIMIT / 8));
    ck_assert(!kri_heap_grow(t.w, (size_t)1 << 40));
    close_world(&t);
}
END_TEST

START_TEST(an_empty_heap_makes_room_for_a_large_object)
{
    struct world t;
    open_world(&t, (struct kri_heap_config){.limit_bytes = 32 << 20});
    make_list(&t, 0, 800000);
    t.roots[0] = KRI_NIL;
    clear_stack();
    t.roots[1] = kri_value_of(kri_alloc(t.w, RAW, 0, (20 << 20) / 8));
    ck_assert(!kri_is_nil(t.roots[1]));
    close_world(&t);
}
END_TEST

static KRI_NOINLINE void make_large(struct world *t)
{
    for (int i = 0; i < 200; i++) { /* 100 MB through a limit of 64 */
        struct kri_cell *c = kri_alloc(t->w, VECTOR, 2, 65536);
        ck_assert_ptr_nonnull(c);
        c->slot[1] = t->roots[0];
        t->roots[0] = kri_value_of(c);
        if (i % 20 == 0)
            t->roots[0] = KRI_NIL;
    }
    t->roots[0] = KRI_NIL;
}

START_TEST(dead_large_objects_go)
{
    struct world t;

    open_world(&t, (struct kri_heap_config){0});
    make_large(&t);
    clear_stack();
    kri_collect(t.w, KRI_GC_REQUEST);
    ck_assert_uint_le(stats_of(t.w).large_objects, 1);
    close_world(&t);
}
END_TEST

/* ---- statistics ---- */

START_TEST(counts_are_exact_at_a_stop)
{
    struct world t;
    struct kri_heap_stats a, b;

    open_world(&t, (struct kri_heap_config){.discipline = (enum kri_discipline)_i});
    kri_collect(t.w, KRI_GC_REQUEST);
    a = stats_of(t.w);
    for (int i = 0; i < 12345; i++)
        kri_alloc_pair(t.w, CONS, KRI_NIL, KRI_NIL);
    for (int i = 0; i < 777; i++)
        kri_alloc(t.w, RAW, 0, 4);
    for (int i = 0; i < 55; i++)
        kri_alloc(t.w, RAW, 0, 100);
    for (int i = 0; i < 3; i++)
        kri_alloc(t.w, RAW, 0, 50000);
    kri_collect(t.w, KRI_GC_REQUEST);
    b = stats_of(t.w);
    ck_assert_uint_eq(b.allocated_cells[0] - a.allocated_cells[0], 12345);
    ck_assert_uint_eq(b.allocated_cells[1] - a.allocated_cells[1], 777);
    ck_assert_uint_eq(b.allocated_cells[7] - a.allocated_cells[7], 55);
    ck_assert_uint_eq(b.allocated_cells[KRI_SIZES] - a.allocated_cells[KRI_SIZES], 3);
    ck_assert_uint_eq(b.allocated_bytes - a.allocated_bytes,
                      12345 * 24 + 777 * 48 + 55 * 34 * 24 + 3 * (50001 * 8));
    close_world(&t);
}
END_TEST

START_TEST(collections_are_recorded)
{
    struct world t;
    struct kri_gc_record r[400];
    size_t n;

    open_world(&t, (struct kri_heap_config){0});
    for (int i = 0; i < 300; i++)
        kri_collect(t.w, KRI_GC_REQUEST);
    n = kri_heap_records(t.w, r, 400);
    ck_assert_uint_eq(n, KRI_RECORDS);
    for (size_t i = 1; i < n; i++) {
        ck_assert_uint_eq(r[i].number + 1, r[i - 1].number);
        ck_assert_uint_le(r[i].at, r[i - 1].at);
    }
    ck_assert_uint_eq(kri_heap_records(t.w, r, 2), 2);
    ck_assert_uint_eq(stats_of(t.w).collections, 300);
    close_world(&t);
}
END_TEST

/* ---- stores ---- */

START_TEST(stores_move_fill_and_swap)
{
    struct world t;
    struct kri_cell *v;

    open_world(&t, (struct kri_heap_config){0});
    v = kri_alloc(t.w, VECTOR, 100, 100);
    t.roots[0] = kri_value_of(v);
    kri_collect(t.w, KRI_GC_REQUEST); /* from here on a store-checking build watches */
    for (int i = 0; i < 100; i++)
        kri_store(t.w, v, &v->slot[i], kri_fixnum(i));
    kri_store_move(t.w, v, &v->slot[10], &v->slot[0], 50);
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(kri_fixnum_value(v->slot[10 + i]), i);
    kri_store_move(t.w, v, &v->slot[5], &v->slot[10], 50);
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(kri_fixnum_value(v->slot[5 + i]), i);
    kri_store_fill(t.w, v, &v->slot[90], kri_fixnum(-1), 10);
    ck_assert_int_eq(kri_fixnum_value(v->slot[99]), -1);
    ck_assert_int_eq(kri_fixnum_value(v->slot[89]), 89);
    ck_assert(kri_store_cas(t.w, v, &v->slot[99], kri_fixnum(-1), kri_fixnum(7)));
    ck_assert(!kri_store_cas(t.w, v, &v->slot[99], kri_fixnum(-1), kri_fixnum(8)));
    ck_assert_int_eq(kri_fixnum_value(v->slot[99]), 7);
    kri_collect(t.w, KRI_GC_REQUEST);
    close_world(&t);
}
END_TEST

#ifdef KRI_CHECK_STORES
START_TEST(a_store_past_kri_store_is_caught) /* expects SIGABRT */
{
    struct world t;
    struct kri_cell *v;

    open_world(&t, (struct kri_heap_config){0});
    v = kri_alloc(t.w, VECTOR, 10, 10);
    t.roots[0] = kri_value_of(v);
    kri_collect(t.w, KRI_GC_REQUEST);
    v->slot[3] = kri_fixnum(1);
    kri_collect(t.w, KRI_GC_REQUEST);
}
END_TEST
#endif

/* ---- the checker finds what it is for ---- */

START_TEST(check_finds_damage)
{
    struct world t;
    struct kri_cell *c, *other;
    char message[200];

    open_world(&t, (struct kri_heap_config){0});
    c = kri_alloc(t.w, ALL, 0, 8);
    other = kri_alloc(t.w, ALL, 0, 8);
    t.roots[0] = kri_value_of(c);
    t.roots[1] = kri_value_of(other);
    check_heap(t.w);
    c->slot[1] = kri_value_of((char *)other + 8); /* into the middle */
    ck_assert(!kri_heap_check(t.w, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "values"));
    c->slot[1] = KRI_NIL;
    check_heap(t.w);
    c->buddy = 22;
    ck_assert(!kri_heap_check(t.w, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "H1"));
    c->buddy = 2;
    check_heap(t.w);
    c->cls = KRI_CLASS_FREE;
    ck_assert(!kri_heap_check(t.w, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "H5"));
    c->cls = ALL;
    close_world(&t);
}
END_TEST

/* ---- several workers ---- */

enum { THREADS = 4 };

struct thread_task {
    struct world *t;
    int number, rounds, length;
};

/* Builds lists, copies them, and checks that nobody else's cells got into them. The roots at NUMBER * 4 are this thread's. */
static void *build_lists(void *arg)
{
    struct thread_task *k = arg;
    struct kri_worker *w = attach(k->t->heap);
    kr_value *root = &k->t->roots[k->number * 4];

    ck_assert_ptr_nonnull(w);
    for (int round = 0; round < k->rounds; round++) {
        int n = round % k->length + 1;
        root[0] = KRI_NIL;
        for (int i = 0; i < n; i++) {
            struct kri_cell *v = kri_alloc(w, VECTOR, 3, i % 7 == 0 ? 3 + (size_t)(i % 60) : 3), *c;
            EXPECT(v != NULL);
            v->slot[0] = kri_fixnum(k->number);
            v->slot[1] = kri_fixnum(i);
            c = kri_alloc_pair(w, CONS, kri_value_of(v), root[0]);
            EXPECT(c != NULL);
            root[0] = kri_value_of(c);
            kri_poll(w);
        }
        kr_value l = root[0];
        for (int i = n; i-- > 0; l = kri_slot(&kri_ptr(l)->slot[1])) {
            struct kri_cell *v = kri_ptr(kri_slot(&kri_ptr(l)->slot[0]));
            EXPECT(kri_fixnum_value(v->slot[0]) == k->number);
            EXPECT(kri_fixnum_value(v->slot[1]) == i);
        }
        ck_assert(kri_is_nil(l));
    }
    kri_worker_free(w);
    return NULL;
}

static void run_threads(struct kri_heap_config config, int rounds, int length)
{
    struct world t;
    struct thread_task k[THREADS];
    pthread_t thread[THREADS];

    open_world(&t, config);
    kri_gate_leave_host(t.w);
    for (int i = 0; i < THREADS; i++) {
        k[i] = (struct thread_task){&t, i, rounds, length};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, build_lists, &k[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        kri_gate_enter(t.w);
        kri_collect(t.w, KRI_GC_REQUEST);
        check_heap(t.w);
        kri_gate_leave_host(t.w);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    kri_gate_enter(t.w);
    close_world(&t);
}

START_TEST(threads_allocate_beside_each_other)
{
    static const enum kri_discipline all[] = {KRI_ALLOC_GATE, KRI_ALLOC_RWLOCK, KRI_ALLOC_MUTEX};
    run_threads((struct kri_heap_config){.discipline = all[_i], .initial_bytes = 4 << 20}, 300, 1500);
}
END_TEST

START_TEST(threads_allocate_under_stress)
{
    static const enum kri_discipline all[] = {KRI_ALLOC_GATE, KRI_ALLOC_RWLOCK, KRI_ALLOC_MUTEX};
    run_threads((struct kri_heap_config){.discipline = all[_i], .initial_bytes = 4 << 20, .stress = 5}, 20, 60);
}
END_TEST

START_TEST(heaps_come_and_go)
{
    for (int i = 0; i < 50; i++) {
        struct world t;
        open_world(&t, (struct kri_heap_config){0});
        make_list(&t, 0, 1000);
        close_world(&t);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("heap");
    TCase *c = tcase_create("heap");
    SRunner *r;
    int failed;

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, every_size_is_served_zeroed_and_found, 0, 4);
    tcase_add_test(c, strange_words_are_no_cells);
    tcase_add_test(c, sweep_finds_every_maximal_free_node);
    tcase_add_loop_test(c, random_program_survives_collections, 0, 4);
    tcase_add_loop_test(c, random_program_survives_stress, 0, 8);
    tcase_add_test(c, peak_stays_below_two_and_a_half_times_a_big_live_heap);
    tcase_add_test(c, memory_is_given_back);
    tcase_add_test(c, dead_cells_merge_to_whole_chunks);
    tcase_add_loop_test(c, the_limit_is_an_answer_and_not_an_end, 0, 16);
    tcase_add_test(c, absurd_sizes_are_refused);
    tcase_add_test(c, an_empty_heap_makes_room_for_a_large_object);
    tcase_add_test(c, dead_large_objects_go);
    tcase_add_loop_test(c, counts_are_exact_at_a_stop, 0, 4);
    tcase_add_test(c, collections_are_recorded);
    tcase_add_test(c, stores_move_fill_and_swap);
#ifdef KRI_CHECK_STORES
    tcase_add_test_raise_signal(c, a_store_past_kri_store_is_caught, 6);
#endif
    tcase_add_test(c, check_finds_damage);
    tcase_add_loop_test(c, threads_allocate_beside_each_other, 0, 3);
    tcase_add_loop_test(c, threads_allocate_under_stress, 0, 3);
    tcase_add_test(c, heaps_come_and_go);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
