/* gate_test.c -- runtime/gate.c, worker.c, collect.c: stopping, going on, requests, native stacks as roots. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/gate.h"
#include "runtime/mark.h"
#include "test/unit/unit.h"

enum { CONS = 1, VECTOR = 2, THREADS = 4 };

static void mark_nothing(struct kri_heap *heap, struct kri_marker *m)
{
    (void)heap;
    (void)m;
}

static kri_atomic interrupts, after_gcs;
static jmp_buf *raise_to;

static void count_interrupt(struct kri_worker *w)
{
    (void)w;
    kri_fetch_add(&interrupts, 1);
    if (raise_to)
        longjmp(*raise_to, 1);
}
static void count_after_gc(struct kri_worker *w)
{
    (void)w;
    kri_fetch_add(&after_gcs, 1);
    if (raise_to)
        longjmp(*raise_to, 2);
}

static struct kri_heap *new_heap(enum kri_discipline discipline, unsigned stress)
{
    const struct kri_heap_config config = {.limit_bytes = 256 << 20, .discipline = discipline, .markers = 2, .stress = stress};
    const struct kri_heap_hooks hooks = {.mark_roots = mark_nothing, .interrupt = count_interrupt, .after_gc = count_after_gc};
    struct kri_heap *heap = kri_heap_new(&config, &hooks, NULL);
    ck_assert_ptr_nonnull(heap);
    kri_heap_layouts(heap)[CONS] = (struct kri_layout){.kind = KRI_LAYOUT_SLOTS, .slots = 2};
    kri_heap_layouts(heap)[VECTOR] = (struct kri_layout){.kind = KRI_LAYOUT_VECTOR};
    return heap;
}

static kr_value cons(struct kri_worker *w, kr_value a, kr_value d)
{
    struct kri_cell *c = kri_alloc_pair(w, CONS, a, d);
    EXPECT(c != NULL);
    return kri_value_of(c);
}

/* A list 0 .. n-1, and whether it still is one. */
static kr_value count_up(struct kri_worker *w, int n)
{
    kr_value l = KRI_NIL;
    while (n-- > 0)
        l = cons(w, kri_fixnum(n), l);
    return l;
}
static bool counts_up(kr_value l, int n)
{
    for (int i = 0; i < n; i++, l = kri_slot(&kri_ptr(l)->slot[1]))
        if (!kri_has_class(l, CONS) || !kri_eq(kri_slot(&kri_ptr(l)->slot[0]), kri_fixnum(i)))
            return false;
    return kri_is_nil(l);
}

/* Overwrite what a collection freed. */
static void litter(struct kri_worker *w, int n)
{
    while (n-- > 0)
        cons(w, kri_fixnum(-1), kri_fixnum(-1));
}

static void start(pthread_t *t, void *(*f)(void *), void *arg) { EXPECT(pthread_create(t, NULL, f, arg) == 0); }
static void start_all(pthread_t t[THREADS], void *(*f)(void *), void *arg)
{
    for (int i = 0; i < THREADS; i++)
        start(&t[i], f, arg);
}
static void join_all(pthread_t t[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

START_TEST(a_value_in_a_local_survives)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *w = attach(heap);
    kr_value l = count_up(w, 1000);
    for (int i = 0; i < 3; i++) {
        kri_collect(w, KRI_GC_REQUEST);
        litter(w, 5000);
    }
    ck_assert(counts_up(l, 1000));
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST

/* The only reference lies in a callee-saved register when F is called, whatever the compiler does with locals. */
#ifdef __x86_64__
static KRI_NOINLINE kr_value keep_in_register(struct kri_worker *w, kr_value l, void (*f)(struct kri_worker *w))
{
    kr_value kept;
    __asm__ volatile("mov %[l], %%r13\n\t"
                     "xor %[l], %[l]\n\t"
                     "mov %%rsp, %%r14\n\t"
                     "and $-16, %%rsp\n\t"
                     "call *%[f]\n\t"
                     "mov %%r14, %%rsp\n\t"
                     "mov %%r13, %[kept]"
                     : [kept] "=r"(kept.w), [l] "+b"(l.w)
                     : [f] "r"(f), "D"(w)
                     : "r13", "r14", "r12", "r15", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return kept;
}

static void collect_and_litter(struct kri_worker *w)
{
    kri_collect(w, KRI_GC_REQUEST);
    litter(w, 5000);
}

START_TEST(a_value_in_a_callee_saved_register_survives)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *w = attach(heap);
    kr_value l = keep_in_register(w, count_up(w, 1000), collect_and_litter);
    ck_assert(counts_up(l, 1000));
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST
#endif

START_TEST(an_interior_pointer_keeps_its_cell)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *w = attach(heap);
    static const size_t sizes[] = {7, 100, 5000, 500000};
    for (size_t k = 0; k < 4; k++) {
        struct kri_cell *v = kri_alloc(w, VECTOR, (uint32_t)sizes[k], sizes[k]);
        char *volatile inside = (char *)&v->slot[sizes[k] - 1] + 5;
        v->slot[sizes[k] - 1] = kri_fixnum(42);
        v = NULL;
        kri_collect(w, KRI_GC_REQUEST);
        litter(w, 1000);
        ck_assert(kri_eq(*(kr_value *)(inside - 5), kri_fixnum(42)));
    }
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST

/* ---- blocking ---- */

struct blocked {
    struct kri_heap *heap;
    kri_atomic outside, go_on;
};

static void wait_to_go_on(void *arg)
{
    struct blocked *b = arg;
    kri_store_release(&b->outside, 1);
    while (!kri_load_acquire(&b->go_on))
        sched_yield();
}
static void *blocking_thread(void *arg)
{
    struct blocked *b = arg;
    struct kri_worker *w = attach(b->heap);
    kr_value l = count_up(w, 1000);
    kri_blocking(w, wait_to_go_on, b);
    EXPECT(counts_up(l, 1000));
    kri_worker_free(w);
    return NULL;
}

START_TEST(a_blocked_thread_costs_nothing_and_keeps_its_values)
{
    struct blocked b = {.heap = new_heap(KRI_ALLOC_GATE, 0)};
    struct kri_worker *w = attach(b.heap);
    pthread_t t;
    start(&t, blocking_thread, &b);
    while (!kri_load_acquire(&b.outside))
        kri_poll(w);
    for (int i = 0; i < 5; i++) { /* returns although the other never polls */
        kri_collect(w, KRI_GC_REQUEST);
        litter(w, 5000);
    }
    kri_store_release(&b.go_on, 1);
    kri_gate_leave_host(w);
    pthread_join(t, NULL);
    kri_gate_enter(w);
    kri_worker_free(w);
    kri_heap_free(b.heap);
}
END_TEST

static void inner_work(void *arg)
{
    struct kri_worker *w = arg;
    EXPECT(kri_inside(w));
    kri_collect(w, KRI_GC_REQUEST);
    litter(w, 5000);
}
static void call_back(void *arg)
{
    struct kri_worker *w = arg;
    EXPECT(!kri_inside(w));
    kri_unblocking(w, inner_work, w);
    EXPECT(!kri_inside(w));
}

START_TEST(foreign_code_calls_back)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *w = attach(heap);
    kr_value l = count_up(w, 1000);
    kri_blocking(w, call_back, w);
    ck_assert(kri_inside(w));
    ck_assert(counts_up(l, 1000));
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST

/* ---- many threads ---- */

struct crowd {
    struct kri_heap *heap;
    kri_atomic inside_stop, stop;
    size_t plain;                    /* changed inside the gate by whoever polls, without any lock but a stop */
    kri_atomic polled;
};

static void nap(void *arg) { usleep(*(const unsigned *)arg); }

static void *busy_thread(void *arg)
{
    struct crowd *c = arg;
    struct kri_worker *w = attach(c->heap);
    unsigned seed = (unsigned)(uintptr_t)w >> 4, micros;
#ifdef KRI_TSAN
    const int rounds = c->heap->config.stress ? 10 : 150;
#else
    const int rounds = 150;
#endif
    for (int round = 0; round < rounds; round++) {
        int n = (int)(rand_r(&seed) % 400);
        kr_value l = count_up(w, n);
        switch (rand_r(&seed) % 6) {
        case 0:
            kri_collect(w, KRI_GC_REQUEST);
            break;
        case 1:
            micros = rand_r(&seed) % 100;
            kri_blocking(w, nap, &micros);
            break;
        case 2:
            kri_gate_yield(w);
            break;
        default:
            for (int i = 0; i < 100; i++)
                kri_poll(w);
        }
        EXPECT(!kri_load_relaxed(&c->inside_stop));
        EXPECT(counts_up(l, n));
    }
    kri_worker_free(w);
    return NULL;
}

static void *allocating_thread(void *arg)
{
    struct crowd *c = arg;
    struct kri_worker *w = attach(c->heap);
    while (!kri_load_acquire(&c->stop))
        count_up(w, 100);
    kri_worker_free(w);
    return NULL;
}

START_TEST(a_thread_that_only_allocates_stops)
{
    struct crowd c = {.heap = new_heap(KRI_ALLOC_GATE, 0)};
    struct kri_worker *w = attach(c.heap);
    pthread_t t[THREADS];
    start_all(t, allocating_thread, &c);
    for (int i = 0; i < 50; i++)
        kri_collect(w, KRI_GC_REQUEST);
    kri_store_release(&c.stop, 1);
    kri_gate_leave_host(w);
    join_all(t);
    kri_gate_enter(w);
    kri_worker_free(w);
    kri_heap_free(c.heap);
}
END_TEST

static const struct { enum kri_discipline discipline; bool fences; unsigned stress; } ways[] = {
    {KRI_ALLOC_GATE, false, 0}, {KRI_ALLOC_GATE, true, 0}, {KRI_ALLOC_GATE, false, 3},
    {KRI_ALLOC_RWLOCK, false, 0}, {KRI_ALLOC_MUTEX, false, 0},
};

START_TEST(threads_allocate_block_poll_and_collect)
{
    struct crowd c = {.heap = new_heap(ways[_i].discipline, ways[_i].stress)};
    pthread_t t[THREADS];
    if (ways[_i].fences)
        c.heap->gate->fences = true;
    start_all(t, busy_thread, &c);
    join_all(t);
    ck_assert_ptr_null(c.heap->workers);
    kri_heap_free(c.heap);
}
END_TEST

static void look_twice(struct kri_worker *w, void *arg)
{
    struct crowd *c = arg;
    size_t before = c->plain;
    (void)w;
    EXPECT(!kri_load_relaxed(&c->inside_stop));
    kri_store_relaxed(&c->inside_stop, 1);
    c->plain++;
    usleep(200);
    EXPECT(c->plain == before + 1);
    kri_store_relaxed(&c->inside_stop, 0);
}

static void *stopping_thread(void *arg)
{
    struct crowd *c = arg;
    struct kri_worker *w = attach(c->heap);
    for (int i = 0; i < 30; i++) {
        kri_with_world_stopped(w, look_twice, c);
        EXPECT(!kri_load_relaxed(&c->inside_stop));
        for (int k = 0; k < 1000; k++)
            kri_poll(w);
    }
    kri_worker_free(w);
    return NULL;
}

START_TEST(only_one_thread_stops_the_world)
{
    struct crowd c = {.heap = new_heap(KRI_ALLOC_GATE, 0)};
    pthread_t t[THREADS];
    c.heap->gate->fences = _i;
    start_all(t, stopping_thread, &c);
    join_all(t);
    ck_assert_uint_eq(c.plain, THREADS * 30);
    kri_heap_free(c.heap);
}
END_TEST

static void *attaching_thread(void *arg)
{
    struct crowd *c = arg;
    for (int i = 0; i < 100; i++) {
        struct kri_worker *w = attach(c->heap);
        kr_value l = count_up(w, 20);
        if (i % 3 == 0)
            kri_poll(w);
        EXPECT(counts_up(l, 20));
        kri_worker_free(w);
    }
    return NULL;
}

START_TEST(workers_come_and_go_while_others_collect)
{
    struct crowd c = {.heap = new_heap(KRI_ALLOC_GATE, 0)};
    struct kri_worker *w = attach(c.heap);
    pthread_t t[THREADS];
    start_all(t, attaching_thread, &c);
    for (int i = 0; i < 100; i++)
        kri_collect(w, KRI_GC_REQUEST);
    kri_gate_leave_host(w);
    join_all(t);
    kri_gate_enter(w);
    ck_assert_uint_eq(c.heap->worker_count, 1);
    kri_worker_free(w);
    kri_heap_free(c.heap);
}
END_TEST

static void *collecting_thread(void *arg)
{
    struct crowd *c = arg;
    struct kri_worker *w = attach(c->heap);
    for (int i = 0; i < 50; i++)
        kri_collect(w, KRI_GC_REQUEST);
    kri_worker_free(w);
    return NULL;
}

START_TEST(all_collect_at_once)
{
    struct crowd c = {.heap = new_heap(KRI_ALLOC_GATE, 0)};
    pthread_t t[THREADS];
    size_t collections;
    start_all(t, collecting_thread, &c);
    join_all(t);
    collections = kri_load_relaxed(&c.heap->collections);
    ck_assert_uint_ge(collections, 50);
    ck_assert_uint_le(collections, 50 * THREADS);
    kri_heap_free(c.heap);
}
END_TEST

/* ---- requests ---- */

START_TEST(requests_reach_the_next_poll)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *w = attach(heap);
    kri_poll(w);
    ck_assert_uint_eq(interrupts, 0);
    kri_request(w, KRI_REQUEST_INTERRUPT);
    kri_set_lisp_limit(w, (void *)2); /* does not undo the poison */
    kri_set_native_limit(w, (void *)2);
    ck_assert_uint_eq(kri_load_relaxed(&w->lisp_limit), 0);
    kri_poll(w);
    ck_assert_uint_eq(interrupts, 1);
    ck_assert_uint_eq(kri_load_relaxed(&w->lisp_limit), 2);
    ck_assert_uint_ge(kri_load_relaxed(&w->native_limit), 2); /* what is left to C and bytecode comes on top */
    ck_assert_uint_lt(kri_load_relaxed(&w->native_limit), UINTPTR_MAX);
    kri_poll(w);
    ck_assert_uint_eq(interrupts, 1);
    kri_collect(w, KRI_GC_REQUEST);
    ck_assert_uint_eq(after_gcs, 0); /* the hook waits for a poll */
    kri_poll(w);
    ck_assert_uint_eq(after_gcs, 1);
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST

START_TEST(a_hook_that_raises_loses_no_request)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *volatile w = attach(heap);
    jmp_buf here;
    volatile int raised = 0;
    kri_request(w, KRI_REQUEST_INTERRUPT);
    kri_request(w, KRI_REQUEST_HOOK);
    raise_to = &here;
    while (raised < 2) {
        if (setjmp(here) == 0)
            kri_poll(w);
        else
            raised++;
    }
    raise_to = NULL;
    kri_poll(w);
    ck_assert_uint_eq(interrupts, 1);
    ck_assert_uint_eq(after_gcs, 1);
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST

START_TEST(a_deep_native_stack_is_told_from_a_poisoned_limit)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct kri_worker *w = attach(heap);
    char *here = __builtin_frame_address(0);
    ck_assert(!kri_native_exhausted(w));
    kri_request(w, KRI_REQUEST_INTERRUPT);
    ck_assert(!kri_native_exhausted(w));
    ck_assert_uint_eq(kri_load_relaxed(&w->lisp_limit), 0); /* the request waits still */
    kri_set_native_limit(w, here + 4096);
    ck_assert(kri_native_exhausted(w));
    kri_poll(w);
    ck_assert(kri_native_exhausted(w));
    ck_assert_uint_eq(interrupts, 1);
    kri_worker_free(w);
    kri_heap_free(heap);
}
END_TEST

struct asker {
    struct kri_worker *w;
    kri_atomic served, done;
};
enum { ASKED = 3000 };

/* One request after the other: each must be served, or this waits for ever. */
static void *asking_thread(void *arg)
{
    struct asker *a = arg;
    for (size_t i = 0; i < ASKED; i++) {
        kri_request(a->w, KRI_REQUEST_INTERRUPT);
        while (kri_load_acquire(&interrupts) <= i)
            sched_yield();
    }
    kri_store_release(&a->done, 1);
    return NULL;
}
static void *stop_asking_thread(void *arg)
{
    struct asker *a = arg;
    struct kri_worker *w = attach(a->w->heap);
    while (!kri_load_acquire(&a->done)) {
        kri_collect(w, KRI_GC_REQUEST);
        kri_poll(w);
    }
    kri_worker_free(w);
    return NULL;
}

START_TEST(no_request_is_lost)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct asker a = {.w = attach(heap)};
    pthread_t asks, stops;
    start(&asks, asking_thread, &a);
    start(&stops, stop_asking_thread, &a);
    while (!kri_load_acquire(&a.done)) {
        for (uintptr_t k = 1; k < 20; k++)
            kri_set_lisp_limit(a.w, (void *)k);
        kri_poll(a.w);
    }
    kri_gate_leave_host(a.w);
    pthread_join(asks, NULL);
    pthread_join(stops, NULL);
    kri_gate_enter(a.w);
    ck_assert_uint_eq(interrupts, ASKED);
    kri_worker_free(a.w);
    kri_heap_free(heap);
}
END_TEST

static struct kri_worker *signalled;
static void on_signal(int number)
{
    (void)number;
    kri_request(signalled, KRI_REQUEST_INTERRUPT);
}

START_TEST(a_signal_handler_may_request)
{
    struct kri_heap *heap = new_heap(KRI_ALLOC_GATE, 0);
    struct sigaction action = {.sa_handler = on_signal};
    signalled = attach(heap);
    sigaction(SIGUSR1, &action, NULL);
    for (size_t i = 1; i <= 100; i++) {
        raise(SIGUSR1);
        kri_poll(signalled);
        EXPECT(kri_load_relaxed(&interrupts) == i);
    }
    kri_worker_free(signalled);
    kri_heap_free(heap);
}
END_TEST

/* ---- fork ---- */

static void fork_here(struct kri_worker *w, void *arg)
{
    pid_t *pid = arg;
    *pid = fork();
    if (*pid == 0)
        kri_heap_after_fork(w);
}

START_TEST(a_forked_child_has_one_worker_and_collects)
{
    struct blocked b = {.heap = new_heap(KRI_ALLOC_GATE, 0)};
    struct kri_worker *w = attach(b.heap);
    kr_value l = count_up(w, 200000); /* enough for helpers */
    pthread_t t;
    pid_t pid;
    int status;
#ifdef KRI_TSAN
    b.heap->config.markers = 1; /* the sanitizer wants no new threads in a child */
#endif
    start(&t, blocking_thread, &b);
    while (!kri_load_acquire(&b.outside))
        kri_poll(w);
    kri_collect(w, KRI_GC_REQUEST);
    if (_i == 0) {
        kri_with_world_stopped(w, fork_here, &pid);
    } else {
        pid = fork(); /* a host's own: the only other thread is outside the gate and sleeps */
        if (pid == 0)
            kri_heap_after_fork(w);
    }
    if (pid == 0) {
        bool ok = b.heap->worker_count == 1 && b.heap->workers == w && kri_mark_helpers(b.heap) == 0;
        for (int i = 0; i < 3; i++) {
            kri_collect(w, KRI_GC_REQUEST);
            litter(w, 5000);
        }
        ok = ok && counts_up(l, 200000);
        kri_worker_free(w);
        kri_heap_free(b.heap);
        _exit(ok ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    kri_store_release(&b.go_on, 1);
    kri_gate_leave_host(w);
    pthread_join(t, NULL);
    kri_gate_enter(w);
    ck_assert(counts_up(l, 200000));
    kri_worker_free(w);
    kri_heap_free(b.heap);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gate");
    TCase *roots = tcase_create("roots"), *many = tcase_create("threads"), *requests = tcase_create("requests");
    SRunner *r;
    int failed;

    tcase_add_test(roots, a_value_in_a_local_survives);
#ifdef __x86_64__
    tcase_add_test(roots, a_value_in_a_callee_saved_register_survives);
#endif
    tcase_add_test(roots, an_interior_pointer_keeps_its_cell);
    tcase_add_test(roots, a_blocked_thread_costs_nothing_and_keeps_its_values);
    tcase_add_test(roots, foreign_code_calls_back);
    tcase_set_timeout(many, 120);
    tcase_add_loop_test(many, threads_allocate_block_poll_and_collect, 0, (int)(sizeof ways / sizeof *ways));
    tcase_add_loop_test(many, only_one_thread_stops_the_world, 0, 2);
    tcase_add_test(many, a_thread_that_only_allocates_stops);
    tcase_add_test(many, workers_come_and_go_while_others_collect);
    tcase_add_test(many, all_collect_at_once);
    tcase_add_loop_test(many, a_forked_child_has_one_worker_and_collects, 0, 2);
    tcase_set_timeout(requests, 120);
    tcase_add_test(requests, requests_reach_the_next_poll);
    tcase_add_test(requests, a_hook_that_raises_loses_no_request);
    tcase_add_test(requests, a_deep_native_stack_is_told_from_a_poisoned_limit);
    tcase_add_test(requests, no_request_is_lost);
    tcase_add_test(requests, a_signal_handler_may_request);
    suite_add_tcase(s, roots);
    suite_add_tcase(s, many);
    suite_add_tcase(s, requests);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
