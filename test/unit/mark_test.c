/* mark_test.c -- runtime/mark.c, finalize.c: what is marked is what is reachable, with any number of markers and any
 * lack of memory; weak cells, finalizers, conservative words. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/mark.h"
#include "test/unit/unit.h"

enum { CONS = 1, VECTOR = 2, RAW = 3, SLOTS = 4, ALL = 5, WEAK = 6, WEAK_TABLE = 7, CLASSES = 8 };
enum { ROOTS = 64 };

/* A heap, its roots, and what the hook shall look at while the marks are fresh. */
struct world {
    struct kri_heap *heap;
    struct kri_worker *w;
    kr_value roots[ROOTS];
    const void *words_from, *words_to;           /* scanned conservatively */
    void (*look)(struct world *t);
    unsigned looks;
};

static void mark_roots(struct kri_heap *heap, struct kri_marker *m)
{
    struct world *t = kri_heap_user(heap);
    kri_mark_range(m, t->roots, t->roots + ROOTS);
    kri_mark_words(m, t->words_from, t->words_to);
}

static void weak_hook(struct kri_heap *heap)
{
    struct world *t = kri_heap_user(heap);
    t->looks++;
    if (t->look)
        t->look(t);
}

/* The worker's native stack is said to end below the frames of the test: so what the test holds in C is no root, and the
 * comparisons can be exact. What is being built hangs on the roots. */
static void open_world(struct world *t, unsigned markers)
{
    const struct kri_heap_config config = {.limit_bytes = (size_t)1 << 30, .markers = markers};
    const struct kri_heap_hooks hooks = {.mark_roots = mark_roots, .weak = weak_hook};
    char *low = (char *)__builtin_frame_address(0) - (64 << 10);
    struct kri_layout *l;

    memset(t, 0, sizeof *t);
    t->heap = kri_heap_new(&config, &hooks, t);
    ck_assert_ptr_nonnull(t->heap);
    l = kri_heap_layouts(t->heap);
    l[CONS] = (struct kri_layout){.kind = KRI_LAYOUT_SLOTS, .slots = 2};
    l[VECTOR] = (struct kri_layout){.kind = KRI_LAYOUT_VECTOR};
    l[RAW] = (struct kri_layout){.kind = KRI_LAYOUT_RAW};
    l[SLOTS] = (struct kri_layout){.kind = KRI_LAYOUT_SLOTS, .slots = 5};
    l[ALL] = (struct kri_layout){.kind = KRI_LAYOUT_ALL};
    l[WEAK] = (struct kri_layout){.kind = KRI_LAYOUT_WEAK, .slots = 3};
    l[WEAK_TABLE] = (struct kri_layout){.kind = KRI_LAYOUT_WEAK_TABLE};
    t->w = kri_worker_new(t->heap, low, low - (64 << 10));
    ck_assert_ptr_nonnull(t->w);
}

static void close_world(struct world *t)
{
    char message[200];
    ck_assert_msg(kri_heap_check(t->w, message, sizeof message), "%s", message);
    kri_worker_free(t->w);
    kri_heap_free(t->heap);
}

static void collect(struct world *t) { kri_collect(t->w, KRI_GC_REQUEST); }

static struct kri_cell *make(struct world *t, unsigned cls, uint32_t length, size_t words)
{
    struct kri_cell *c = kri_alloc(t->w, cls, length, words);
    EXPECT(c != NULL);
    return c;
}
static void set(struct world *t, struct kri_cell *c, size_t i, kr_value v) { kri_store(t->w, c, &c->slot[i], v); }
static kr_value cons(struct world *t, kr_value a, kr_value d)
{
    struct kri_cell *c = kri_alloc_pair(t->w, CONS, a, d);
    EXPECT(c != NULL);
    return kri_value_of(c);
}
static void litter(struct world *t, int n)
{
    while (n-- > 0)
        cons(t, kri_fixnum(-1), kri_fixnum(-1));
}

/* ---- random graphs ---- */

enum { NODES = 30000, DEGREE = 5 };

struct node {
    struct kri_cell *cell;
    int edge[DEGREE];        /* by slot; -1: a fixnum there */
    int weak;                /* a weak cell's target */
    bool reachable;
};
static struct node node[NODES];
static uint64_t random_state;
static unsigned next_random(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

static struct kri_cell *make_node(struct world *t, struct node *n)
{
    switch (next_random(12)) {
    case 0: case 1: case 2: case 3:
        return kri_ptr(cons(t, KRI_NIL, KRI_NIL));
    case 4: case 5:
        return make(t, SLOTS, 0, 8);
    case 6:
        return make(t, ALL, 0, DEGREE + next_random(3));
    case 7:
        return make(t, RAW, 0, DEGREE);
    case 8:
        return make(t, WEAK_TABLE, 0, DEGREE);
    case 9:
        n->weak = (int)next_random(NODES);
        return make(t, WEAK, 0, 5);
    default: {
        /* Now and then one that is split, one with a mapping of its own. */
        size_t length = next_random(500) ? DEGREE + next_random(20) : next_random(5) ? 3000 : 70000;
        return make(t, VECTOR, (uint32_t)length, length);
    }
    }
}

/* Where N's edge K lies; false if this kind of cell has none there. */
static bool edge_slot(const struct node *n, int k, size_t *slot)
{
    *slot = (size_t)k;
    switch (n->cell->cls) {
    case CONS:
        return k < 2;
    case WEAK:
        return k == 1 || k == 2;
    case VECTOR: /* spread over its length */
        *slot = n->cell->length / DEGREE * (size_t)k + n->cell->length / DEGREE - 1;
        return true;
    case SLOTS: case ALL:
        return true;
    default:
        return false;
    }
}

static void make_graph(struct world *t, uint64_t seed)
{
    struct kri_cell *all = make(t, VECTOR, NODES, NODES);
    t->roots[0] = kri_value_of(all);
    random_state = seed;
    for (int i = 0; i < NODES; i++) {
        node[i].weak = -1;
        node[i].reachable = false;
        node[i].cell = make_node(t, &node[i]);
        set(t, all, (size_t)i, kri_value_of(node[i].cell));
    }
    for (int i = 0; i < NODES; i++) {
        struct node *n = &node[i];
        for (int k = 0; k < DEGREE; k++) {
            size_t slot;
            /* The odd ones are found by odd ones only. */
            n->edge[k] = next_random(3) ? (int)(next_random(NODES) & ~1u) | ((i & 1) && next_random(2)) : -1;
            if (edge_slot(n, k, &slot))
                set(t, n->cell, slot, n->edge[k] < 0 ? kri_fixnum(i) : kri_value_of(node[n->edge[k]].cell));
            else
                n->edge[k] = -1;
        }
        if (n->cell->cls == WEAK)
            set(t, n->cell, 0, kri_value_of(node[n->weak].cell));
        if (n->cell->cls == SLOTS || n->cell->cls == RAW) /* looks like a value, is none */
            memcpy(&n->cell->slot[n->cell->cls == RAW ? 0 : 6], &node[next_random(NODES)].cell, sizeof(void *));
    }
    for (int i = 1; i < ROOTS; i++)
        t->roots[i] = kri_value_of(node[next_random(NODES / 2) * 2].cell);
}

/* The reference: depth first with a stack of all nodes. */
static void find_reachable(struct world *t)
{
    static int stack[NODES];
    int depth = 0;
    for (int i = 0; i < NODES; i++)
        for (int k = 1; k < ROOTS; k++)
            if (!node[i].reachable && kri_ptr(t->roots[k]) == node[i].cell) {
                node[i].reachable = true;
                stack[depth++] = i;
            }
    while (depth > 0) {
        const struct node *n = &node[stack[--depth]];
        for (int k = 0; k < DEGREE; k++)
            if (n->edge[k] >= 0 && !node[n->edge[k]].reachable) {
                node[n->edge[k]].reachable = true;
                stack[depth++] = n->edge[k];
            }
    }
}

static void compare_marks(struct world *t)
{
    int reachable = 0;
    for (int i = 0; i < NODES; i++) {
        EXPECT(kri_is_marked(t->heap, kri_value_of(node[i].cell)) == node[i].reachable);
        reachable += node[i].reachable;
    }
    EXPECT(reachable > NODES / 20 && reachable < NODES * 19 / 20);
}

static void compare_contents(void)
{
    for (int i = 0; i < NODES; i++) {
        const struct node *n = &node[i];
        if (!n->reachable)
            continue;
        for (int k = 0; k < DEGREE; k++) {
            size_t slot;
            if (edge_slot(n, k, &slot))
                EXPECT(kri_eq(n->cell->slot[slot], n->edge[k] < 0 ? kri_fixnum(i) : kri_value_of(node[n->edge[k]].cell)));
        }
        if (n->cell->cls == WEAK)
            EXPECT(kri_eq(n->cell->slot[0], node[n->weak].reachable ? kri_value_of(node[n->weak].cell) : KRI_NIL));
    }
}

static const struct { unsigned markers; size_t blocks; } crews[] = {{1, 0}, {2, 0}, {4, 0}, {1, 1}, {1, 3}, {3, 4}};

START_TEST(what_is_marked_is_what_is_reachable)
{
    struct world t;
    open_world(&t, crews[_i].markers);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        make_graph(&t, seed);
        kri_mark_limit_blocks(t.heap, crews[_i].blocks);
        find_reachable(&t);
        t.roots[0] = KRI_NIL;
        t.look = compare_marks;
        t.looks = 0;
        collect(&t);
        EXPECT(t.looks == 1);
        t.look = NULL;
        litter(&t, 100000);
        collect(&t);
        compare_contents();
    }
    close_world(&t);
}
END_TEST

/* ---- shapes ---- */

/* Twice as much as one marker does alone; a count of the marked cells tells that each was found. */
START_TEST(long_and_deep_structures)
{
    const uint64_t length = crews[_i].blocks ? 40000 : 300000;
    struct world t;
    struct kri_gc_record r;
    uint64_t marked = 0;
    open_world(&t, crews[_i].markers);
    for (intptr_t i = 0; i < (intptr_t)length; i++) {
        t.roots[0] = cons(&t, kri_fixnum(i), t.roots[0]);  /* along the cdrs */
        t.roots[1] = cons(&t, t.roots[1], kri_fixnum(i));  /* down the cars */
        t.roots[2] = cons(&t, t.roots[2], t.roots[2]);     /* both ways to the same: 2^length paths */
        t.roots[3] = cons(&t, cons(&t, kri_fixnum(i), KRI_NIL), t.roots[3]);
    }
    kri_mark_limit_blocks(t.heap, crews[_i].blocks);
    collect(&t);
    ck_assert_uint_eq(kri_heap_records(t.w, &r, 1), 1);
    for (unsigned i = 0; i < r.markers; i++)
        marked += r.marked[i];
    ck_assert_uint_ge(marked, 5 * length);
    if (crews[_i].markers == 1 || kri_mark_helpers(t.heap) == 0)
        ck_assert_uint_eq(marked, 5 * length);
    ck_assert_uint_eq(kri_mark_helpers(t.heap), crews[_i].markers - 1);
    close_world(&t);
}
END_TEST

START_TEST(a_long_vector_is_split)
{
    enum { LENGTH = 500000 };
    struct world t;
    struct kri_cell *v;
    open_world(&t, crews[_i].markers);
    v = make(&t, VECTOR, LENGTH, LENGTH);
    t.roots[0] = kri_value_of(v);
    for (size_t i = 0; i < LENGTH; i++)
        set(&t, v, i, cons(&t, kri_fixnum((intptr_t)i), KRI_NIL));
    kri_mark_limit_blocks(t.heap, crews[_i].blocks);
    for (int round = 0; round < 3; round++) {
        collect(&t);
        litter(&t, 100000);
    }
    for (size_t i = 0; i < LENGTH; i++)
        EXPECT(kri_eq(kri_ptr(v->slot[i])->slot[0], kri_fixnum((intptr_t)i)));
    close_world(&t);
}
END_TEST

START_TEST(a_small_heap_starts_no_helper)
{
    struct world t;
    open_world(&t, 4);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 1000; i++)
            t.roots[0] = cons(&t, KRI_NIL, t.roots[0]);
        litter(&t, 10000);
        collect(&t);
    }
    ck_assert_uint_eq(kri_mark_helpers(t.heap), 0);
    close_world(&t);
}
END_TEST

/* How many threads of the process may run on all of CORES. */
static int threads_on(const cpu_set_t *cores)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        cpu_set_t set;
        int id = atoi(e->d_name);
        /* Right after its creation a helper may not have come to it yet. */
        for (int patience = 0; id > 0 && patience < 200; patience++) {
            if (sched_getaffinity(id, sizeof set, &set) == 0 && CPU_EQUAL(&set, cores)) {
                n++;
                break;
            }
            usleep(id == getpid() ? 0 : 1000);
        }
    }
    closedir(d);
    return n;
}

/* A program that had pinned its thread to a core before the first big collection got all its markers on that core. */
START_TEST(helpers_are_not_pinned_with_their_creator)
{
    struct world t;
    cpu_set_t all, one;
    int core = 0;

    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        return;
    open_world(&t, 2);
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    int before = threads_on(&all);
    for (int i = 0; i < 200000; i++)
        t.roots[0] = cons(&t, KRI_NIL, t.roots[0]);
    collect(&t);
    ck_assert_uint_eq(kri_mark_helpers(t.heap), 1);
    ck_assert_int_eq(threads_on(&all), before + 1);
    close_world(&t);
}
END_TEST

/* ---- weak cells and finalizers ---- */

START_TEST(a_weak_cell_forgets_the_dead)
{
    enum { PAIRS = 5000 };
    struct world t;
    struct kri_cell *weak, *strong;
    open_world(&t, crews[_i].markers);
    kri_mark_limit_blocks(t.heap, crews[_i].blocks);
    t.roots[0] = kri_value_of(weak = make(&t, VECTOR, PAIRS, PAIRS));
    t.roots[1] = kri_value_of(strong = make(&t, VECTOR, PAIRS, PAIRS));
    for (size_t i = 0; i < PAIRS; i++) {
        set(&t, weak, i, kri_value_of(make(&t, WEAK, 0, 3)));
        t.roots[2] = cons(&t, kri_fixnum((intptr_t)i), KRI_NIL);
        set(&t, kri_ptr(weak->slot[i]), 0, i % 7 ? t.roots[2] : kri_fixnum(7));
        if (i % 2)
            set(&t, strong, i, t.roots[2]);
    }
    t.roots[2] = KRI_NIL;
    for (int round = 0; round < 2; round++) {
        collect(&t);
        litter(&t, 50000);
        for (size_t i = 0; i < PAIRS; i++) {
            kr_value v = kri_ptr(weak->slot[i])->slot[0];
            if (i % 7 == 0)
                EXPECT(kri_eq(v, kri_fixnum(7)));
            else
                EXPECT(i % 2 ? kri_eq(v, strong->slot[i]) : kri_is_nil(v));
        }
    }
    close_world(&t);
}
END_TEST

START_TEST(the_dead_have_a_last_word)
{
    enum { DYING = 300 };
    struct world t;
    kr_value weak;
    int seen[DYING] = {0};
    open_world(&t, crews[_i].markers);
    kri_mark_limit_blocks(t.heap, crews[_i].blocks);
    t.roots[5] = weak = kri_value_of(make(&t, WEAK, 0, 3));
    for (int i = 0; i < DYING; i++) {
        /* Each has an inner cell that only it refers to, and refers to the one before. */
        kr_value inner = t.roots[0] = cons(&t, kri_fixnum(i), t.roots[1]);
        t.roots[1] = cons(&t, inner, KRI_NIL);
        ck_assert(kri_finalize(t.w, t.roots[1]));
        ck_assert(kri_finalize(t.w, t.roots[1])); /* once is enough */
    }
    set(&t, kri_ptr(weak), 0, t.roots[1]);
    collect(&t);
    ck_assert(kri_is_nil(kri_next_finalizable(t.w)));
    ck_assert(kri_eq(kri_ptr(weak)->slot[0], t.roots[1]));
    t.roots[0] = t.roots[1] = KRI_NIL;
    for (int round = 0; round < 3; round++) { /* those that wait are roots */
        collect(&t);
        litter(&t, 20000);
    }
    ck_assert(kri_is_nil(kri_ptr(weak)->slot[0]));
    for (int i = 0; i < DYING; i++) {
        kr_value v = t.roots[0] = kri_next_finalizable(t.w);
        ck_assert(kri_has_class(v, CONS));
        seen[kri_fixnum_value(kri_ptr(kri_ptr(v)->slot[0])->slot[0])]++;
    }
    for (int i = 0; i < DYING; i++)
        ck_assert_int_eq(seen[i], 1);
    ck_assert(kri_is_nil(kri_next_finalizable(t.w)));
    /* Not registered any more, unless again. */
    ck_assert(kri_finalize(t.w, t.roots[0]));
    collect(&t);
    ck_assert(kri_is_nil(kri_next_finalizable(t.w)));
    t.roots[0] = KRI_NIL;
    collect(&t);
    ck_assert(!kri_is_nil(kri_next_finalizable(t.w)));
    ck_assert(kri_is_nil(kri_next_finalizable(t.w)));
    close_world(&t);
}
END_TEST

/* ---- conservative words ---- */

START_TEST(any_word_into_a_cell_keeps_it_and_no_other_word_harms)
{
    enum { CELLS = 2000, WORDS = 4 * CELLS };
    static uintptr_t words[WORDS];
    static const size_t sizes[] = {2, 5, 8, 14, 23, 100, 5000, 80000};
    struct world t;
    int n = 0;
    open_world(&t, 1);
    random_state = 99;
    for (int i = 0; i < CELLS; i++) {
        size_t size = sizes[next_random(i % 100 ? 5 : 8)];
        struct kri_cell *v = make(&t, VECTOR, (uint32_t)size, size);
        /* Scanned while the rest is built: its own collections must find it. */
        words[n++] = (uintptr_t)v + next_random((unsigned)kri_cell_bytes(v));
        t.words_from = words;
        t.words_to = words + n;
        v->slot[0] = kri_fixnum(i);
        v->slot[size - 1] = cons(&t, kri_fixnum(-i), KRI_NIL);
        node[i].cell = v;
        node[i].edge[0] = (int)size;
    }
    for (int i = 0; i < CELLS; i++)
        words[n++] = ((uintptr_t)node[i].cell & ~(uintptr_t)0x1fffff) + next_random(1 << 21); /* heads, marks, cells, gaps */
    for (int i = 0; i < CELLS; i++)
        words[n++] = ((uintptr_t)next_random(1u << 31) << 33) ^ next_random(1u << 31);
    words[n++] = ~(uintptr_t)0;
    t.words_to = words + n;
    for (int round = 0; round < 3; round++) {
        collect(&t);
        litter(&t, 50000);
    }
    for (int i = 0; i < CELLS; i++) {
        const struct kri_cell *v = node[i].cell;
        ck_assert(kri_eq(v->slot[0], kri_fixnum(i)));
        ck_assert(kri_eq(kri_ptr(v->slot[node[i].edge[0] - 1])->slot[0], kri_fixnum(-i)));
    }
    t.words_from = t.words_to = NULL;
    close_world(&t);
}
END_TEST

/* ---- several threads with large heaps ---- */

static void *allocating_thread(void *arg)
{
    struct world *t = arg;
    pthread_attr_t a;
    void *low;
    size_t size;
    struct kri_worker *w;
    pthread_getattr_np(pthread_self(), &a);
    pthread_attr_getstack(&a, &low, &size);
    pthread_attr_destroy(&a);
    w = kri_worker_new(t->heap, (char *)low + size, (char *)low + 4096);
    EXPECT(w != NULL);
    for (int round = 0; round < 4; round++) {
        struct kri_cell *l = NULL;
        int n = 0;
        for (int i = 0; i < 60000; i++) {
            l = kri_alloc_pair(w, CONS, kri_fixnum(i), kri_value_of(l));
            EXPECT(l != NULL);
            if (i % 1000 == 0)
                kri_poll(w);
        }
        kri_collect(w, KRI_GC_REQUEST);
        for (struct kri_cell *c = l; c; c = kri_ptr(c->slot[1]))
            EXPECT(kri_eq(c->slot[0], kri_fixnum(60000 - ++n)));
        EXPECT(n == 60000);
    }
    kri_worker_free(w);
    return NULL;
}

START_TEST(threads_fill_a_heap_that_many_mark)
{
    struct world t;
    pthread_t thread[3];
    open_world(&t, 3);
    for (int i = 0; i < 3; i++)
        EXPECT(pthread_create(&thread[i], NULL, allocating_thread, &t) == 0);
    kri_gate_leave_host(t.w);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    kri_gate_enter(t.w);
    ck_assert_uint_gt(kri_mark_helpers(t.heap), 0);
    close_world(&t);
}
END_TEST

int main(void)
{
    enum { CREWS = sizeof crews / sizeof *crews };
    Suite *s = suite_create("mark");
    TCase *c = tcase_create("mark");
    SRunner *r;
    int failed;

    tcase_set_timeout(c, 200);
    tcase_add_loop_test(c, what_is_marked_is_what_is_reachable, 0, CREWS);
    tcase_add_loop_test(c, long_and_deep_structures, 0, CREWS);
    tcase_add_loop_test(c, a_long_vector_is_split, 0, CREWS);
    tcase_add_test(c, a_small_heap_starts_no_helper);
    tcase_add_test(c, helpers_are_not_pinned_with_their_creator);
    tcase_add_loop_test(c, a_weak_cell_forgets_the_dead, 0, CREWS);
    tcase_add_loop_test(c, the_dead_have_a_last_word, 0, CREWS);
    tcase_add_test(c, any_word_into_a_cell_keeps_it_and_no_other_word_harms);
    tcase_add_test(c, threads_fill_a_heap_that_many_mark);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
