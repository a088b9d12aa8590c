/* permanent_test.c -- runtime/permanent.c: what collections no longer touch, and the log of the stores into it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "test/unit/world.h"

enum { THREADS = 4, CONSES = 2000, BIG = 600000 };

static kr_value cons(struct kri_worker *w, kr_value a, kr_value d)
{
    struct kri_cell *c = kri_alloc_pair(w, CONS, a, d);
    ck_assert_ptr_nonnull(c);
    return kri_value_of(c);
}

static kr_value numbers(struct kri_worker *w, int n)
{
    kr_value l = KRI_NIL;
    for (int i = 0; i < n; i++)
        l = cons(w, kri_fixnum(i), l);
    return l;
}

static int length(kr_value l)
{
    int n = 0;
    for (; kri_is_pointer(l); l = kri_slot(&kri_ptr(l)->slot[1]))
        n++;
    return n;
}

static void set(struct kri_worker *w, kr_value object, size_t i, kr_value v)
{
    kri_store(w, kri_ptr(object), &kri_ptr(object)->slot[i], v);
}

static void count_cell(struct kri_cell *c, void *arg)
{
    (void)c;
    ++*(size_t *)arg;
}

static uint64_t newest_marked(struct kri_worker *w)
{
    struct kri_gc_record r;
    uint64_t n = 0;
    ck_assert_uint_eq(kri_heap_records(w, &r, 1), 1);
    for (unsigned i = 0; i < r.markers; i++)
        n += r.marked[i];
    return n;
}

/* ---- the tests ---- */

START_TEST(nothing_of_it_is_marked_freed_or_lost)
{
    struct world t;
    size_t cells = 0, again = 0;

    /* A limit of which the big vector is no eighth: beyond that nothing becomes permanent. */
    open_world(&t, (struct kri_heap_config){.discipline = (enum kri_discipline)_i, .limit_bytes = 256 << 20});
    t.roots[0] = numbers(t.w, CONSES);
    struct kri_cell *big = kri_alloc(t.w, VECTOR, BIG, BIG); /* a mapping of its own */
    t.roots[1] = kri_value_of(big);
    set(t.w, t.roots[1], BIG - 1, t.roots[0]);
    kri_heap_make_permanent(t.w);
    check_heap(t.w);
    kri_heap_walk(t.w, count_cell, &cells);
    ck_assert_uint_ge(cells, CONSES + 1);
    t.roots[0] = KRI_NIL; /* found by the vector only, which no one looks into */
    for (int i = 0; i < 3; i++) {
        numbers(t.w, 100000);
        kri_collect(t.w, KRI_GC_REQUEST);
        ck_assert_uint_lt(newest_marked(t.w), 100100);
        check_heap(t.w);
    }
    ck_assert_int_eq(length(big->slot[BIG - 1]), CONSES);
    t.roots[1] = KRI_NIL;
    kri_collect(t.w, KRI_GC_REQUEST);
    kri_collect(t.w, KRI_GC_REQUEST);
    kri_heap_walk(t.w, count_cell, &again);
    ck_assert_uint_ge(again, cells);
    ck_assert_int_eq(length(big->slot[BIG - 1]), CONSES);
    close_world(&t);
}
END_TEST

START_TEST(a_store_keeps_what_it_stored)
{
    struct world t;

    open_world(&t, (struct kri_heap_config){0});
    t.roots[0] = numbers(t.w, CONSES);
    kri_heap_make_permanent(t.w);
    ck_assert_uint_eq(t.heap->log_count, 0);
    /* The cell that is stored into is reachable from roots[0] only. */
    kr_value last = t.roots[0];
    while (kri_is_pointer(kri_ptr(last)->slot[1]))
        last = kri_ptr(last)->slot[1];
    set(t.w, last, 1, numbers(t.w, CONSES));
    set(t.w, last, 0, cons(t.w, KRI_NIL, KRI_NIL));
    ck_assert_uint_eq(t.heap->log_count, 1);
    for (int i = 0; i < 3; i++) {
        kri_collect(t.w, KRI_GC_REQUEST);
        numbers(t.w, 50000);
        ck_assert_int_eq(length(t.roots[0]), 2 * CONSES);
        check_heap(t.w);
    }
    /* And lets go of it again. The native stack may hold an old word or two. */
    uint64_t marked = newest_marked(t.w);
    set(t.w, last, 1, KRI_NIL);
    set(t.w, last, 0, KRI_NIL);
    numbers(t.w, 10);
    kri_collect(t.w, KRI_GC_REQUEST);
    ck_assert_uint_le(newest_marked(t.w), marked);
    ck_assert_int_eq(length(t.roots[0]), CONSES);
    close_world(&t);
}
END_TEST

START_TEST(moves_fills_and_swaps_are_logged)
{
    struct world t;
    enum { N = 100 };

    open_world(&t, (struct kri_heap_config){0});
    for (int i = 0; i < 3; i++)
        t.roots[i] = kri_value_of(kri_alloc(t.w, VECTOR, N, N));
    kri_heap_make_permanent(t.w);
    struct kri_cell *moved = kri_ptr(t.roots[0]), *filled = kri_ptr(t.roots[1]), *swapped = kri_ptr(t.roots[2]);
    kr_value one = cons(t.w, kri_fixnum(1), KRI_NIL);
    kri_store_move(t.w, moved, moved->slot + 3, &one, 1);
    kri_store_fill(t.w, filled, filled->slot + 10, cons(t.w, kri_fixnum(2), KRI_NIL), 20);
    ck_assert(!kri_store_cas(t.w, swapped, &swapped->slot[7], kri_fixnum(1), one));
    ck_assert_uint_eq(t.heap->log_count, 2);
    ck_assert(kri_store_cas(t.w, swapped, &swapped->slot[7], KRI_NIL, cons(t.w, kri_fixnum(3), KRI_NIL)));
    ck_assert_uint_eq(t.heap->log_count, 3);
    one = KRI_NIL;
    kri_collect(t.w, KRI_GC_REQUEST);
    numbers(t.w, 50000);
    kri_collect(t.w, KRI_GC_REQUEST);
    ck_assert_int_eq(kri_fixnum_value(kri_ptr(moved->slot[3])->slot[0]), 1);
    ck_assert_int_eq(kri_fixnum_value(kri_ptr(filled->slot[29])->slot[0]), 2);
    ck_assert_int_eq(kri_fixnum_value(kri_ptr(swapped->slot[7])->slot[0]), 3);
    close_world(&t);
}
END_TEST

static KRI_NOINLINE void hang_dead_one(struct world *t, kr_value weak)
{
    kri_store(t->w, kri_ptr(weak), &kri_ptr(weak)->slot[0], numbers(t->w, 1));
}

static KRI_NOINLINE int scrub(int depth)
{
    volatile char room[4096];
    memset((char *)room, 0, sizeof room);
    return depth ? scrub(depth - 1) + room[7] : room[9];
}

START_TEST(weak_cells_stay_weak)
{
    struct world t;

    open_world(&t, (struct kri_heap_config){0});
    t.roots[0] = kri_value_of(kri_alloc(t.w, WEAK, 0, 1));
    t.roots[1] = kri_value_of(kri_alloc(t.w, WEAK, 0, 1));
    kr_value old = numbers(t.w, 1);
    set(t.w, t.roots[1], 0, old);
    kri_heap_make_permanent(t.w);
    hang_dead_one(&t, t.roots[0]);
    scrub(3);
    numbers(t.w, 100000);
    kri_collect(t.w, KRI_GC_REQUEST);
    ck_assert(kri_is_nil(kri_ptr(t.roots[0])->slot[0]));
    ck_assert(kri_eq(kri_ptr(t.roots[1])->slot[0], old));
    close_world(&t);
}
END_TEST

START_TEST(a_small_heap_keeps_its_garbage_collectable)
{
    struct world t;

    open_world(&t, (struct kri_heap_config){.limit_bytes = 8 << 20});
    numbers(t.w, CONSES);
    kri_heap_make_permanent(t.w);
    ck_assert_ptr_null(t.heap->permanent);
    close_world(&t);
}
END_TEST

START_TEST(the_check_sees_a_store_that_is_not_logged)
{
    struct world t;
    char message[200];

    open_world(&t, (struct kri_heap_config){0});
    t.roots[0] = numbers(t.w, CONSES);
    kri_heap_make_permanent(t.w);
    t.roots[1] = numbers(t.w, 1);
    kri_ptr(t.roots[0])->slot[0] = t.roots[1];
    ck_assert(!kri_heap_check(t.w, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "H7"));
    kri_ptr(t.roots[0])->slot[0] = kri_fixnum(CONSES - 1);
    close_world(&t);
}
END_TEST

/* Threads hang lists of their own into one permanent vector and into permanent conses that all of them store into. */
struct job {
    struct world *t;
    int number, rounds;
    bool good;
};

static void *hang_lists(void *arg)
{
    struct job *j = arg;
    struct kri_worker *w = attach(j->t->heap);
    struct kri_cell *v = kri_ptr(j->t->roots[0]);

    j->good = w != NULL;
    for (int round = 0; j->good && round < j->rounds; round++) {
        for (size_t i = (size_t)j->number; i < CONSES; i += THREADS) {
            kri_store(w, v, &v->slot[i], numbers(w, 1 + (int)i % 7));
            set(w, v->slot[CONSES + i], 0, v->slot[i]);
        }
        for (size_t i = (size_t)j->number; i < CONSES; i += THREADS)
            if (length(v->slot[i]) != 1 + (int)i % 7 || !kri_eq(kri_ptr(v->slot[CONSES + i])->slot[0], v->slot[i]))
                j->good = false;
        kri_poll(w);
    }
    if (w)
        kri_worker_free(w);
    return NULL;
}

static void join_all(void *arg)
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(((pthread_t *)arg)[i], NULL);
}

START_TEST(threads_store_into_it_at_once)
{
    struct world t;
    struct job job[THREADS];
    pthread_t thread[THREADS];

    open_world(&t, (struct kri_heap_config){.stress = _i ? 3 : 0, .initial_bytes = 2 << 20});
    t.roots[0] = kri_value_of(kri_alloc(t.w, VECTOR, 2 * CONSES, 2 * CONSES));
    for (int i = 0; i < CONSES; i++)
        set(t.w, t.roots[0], (size_t)(CONSES + i), cons(t.w, KRI_NIL, KRI_NIL));
    kri_heap_make_permanent(t.w);
    for (int i = 0; i < THREADS; i++) {
        job[i] = (struct job){&t, i, _i ? 5 : 60, false};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, hang_lists, &job[i]), 0);
    }
    kri_blocking(t.w, join_all, thread);
    for (int i = 0; i < THREADS; i++)
        ck_assert(job[i].good);
    ck_assert_uint_eq(t.heap->log_count, CONSES + 1);
    close_world(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("permanent");
    TCase *c = tcase_create("permanent");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, nothing_of_it_is_marked_freed_or_lost, 0, 4);
    tcase_add_test(c, a_store_keeps_what_it_stored);
    tcase_add_test(c, moves_fills_and_swaps_are_logged);
    tcase_add_test(c, weak_cells_stay_weak);
    tcase_add_test(c, a_small_heap_keeps_its_garbage_collectable);
    tcase_add_test(c, the_check_sees_a_store_that_is_not_logged);
    tcase_add_loop_test(c, threads_store_into_it_at_once, 0, 2);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
