/* alloc_bench.c -- the allocator without a Lisp: nanoseconds per cons under each discipline, one thread and two, and the copying
 * of a list of 10,000 elements 2,000 times, beside a live list of N million conses if an argument N is given.
 *
 *     alloc_bench [live-millions [heap-megabytes]] */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "runtime/heap.h"

enum { CLASS_CONS = 1, LIST = 10000, COPIES = 2000, CONSES = 20000000 };

struct roots {
    kr_value live, list[2], copy[2];
};

static void mark_roots(struct kri_heap *heap, struct kri_marker *m)
{
    struct roots *r = kri_heap_user(heap);
    kri_mark_value(m, r->live);
    kri_mark_range(m, r->list, r->list + 2);
    kri_mark_range(m, r->copy, r->copy + 2);
}

static struct kri_worker *attach(struct kri_heap *heap)
{
    char *here = __builtin_frame_address(0);
    struct kri_worker *w = kri_worker_new(heap, here + 256, here - (1 << 20));

    if (!w) {
        fputs("alloc_bench: no memory\n", stderr);
        exit(1);
    }
    kri_set_lisp_limit(w, (void *)UINTPTR_MAX); /* no Lisp stack: a limit that only a request poisons */
    return w;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct kri_cell *cons(struct kri_worker *w, kr_value a, kr_value d)
{
    struct kri_cell *c = kri_alloc_pair(w, CLASS_CONS, a, d);
    if (!c) {
        fputs("alloc_bench: the heap is full\n", stderr);
        exit(1);
    }
    return c;
}

static kr_value make_list(struct kri_worker *w, kr_value *root, size_t n)
{
    for (*root = KRI_NIL; n; n--)
        *root = kri_value_of(cons(w, kri_fixnum((intptr_t)n), *root));
    return *root;
}

static void copy_list(struct kri_worker *w, kr_value list, kr_value *root)
{
    struct kri_cell *tail = cons(w, kri_ptr(list)->slot[0], KRI_NIL);

    *root = kri_value_of(tail);
    for (kr_value l = kri_slot(&kri_ptr(list)->slot[1]); !kri_is_nil(l); l = kri_slot(&kri_ptr(l)->slot[1])) {
        struct kri_cell *c = cons(w, kri_ptr(l)->slot[0], KRI_NIL);
        kri_store(w, tail, &tail->slot[1], kri_value_of(c));
        tail = c;
        kri_poll(w);
    }
}

/* The sum of the elements: a benchmark checks its answer. */
static void check_list(kr_value l)
{
    intptr_t sum = 0;
    for (; !kri_is_nil(l); l = kri_ptr(l)->slot[1])
        sum += kri_fixnum_value(kri_ptr(l)->slot[0]);
    if (sum != (intptr_t)LIST * (LIST + 1) / 2) {
        fprintf(stderr, "alloc_bench: the list's sum is %zd\n", sum);
        exit(1);
    }
}

struct task {
    struct kri_heap *heap;
    int number;
    pthread_barrier_t *start;
    double cons_seconds, copy_seconds;
};

static void *run_task(void *arg)
{
    struct task *t = arg;
    struct roots *r = kri_heap_user(t->heap);
    cpu_set_t core;
    double before;

    CPU_ZERO(&core);
    CPU_SET(t->number, &core);
    pthread_setaffinity_np(pthread_self(), sizeof core, &core);
    struct kri_worker *w = attach(t->heap);
    make_list(w, &r->list[t->number], LIST);
    kri_gate_leave_host(w);
    pthread_barrier_wait(t->start);
    kri_gate_enter(w);
    before = now();
    for (long i = 0; i < CONSES; i++) {
        r->copy[t->number] = kri_value_of(cons(w, kri_fixnum(i), KRI_NIL));
        kri_poll(w);
    }
    t->cons_seconds = now() - before;
    kri_gate_leave_host(w);
    pthread_barrier_wait(t->start);
    kri_gate_enter(w);
    before = now();
    for (int i = 0; i < COPIES; i++)
        copy_list(w, r->list[t->number], &r->copy[t->number]);
    t->copy_seconds = now() - before;
    check_list(r->copy[t->number]);
    kri_worker_free(w);
    return NULL;
}

static void measure(const char *name, enum kri_discipline discipline, int threads, size_t live, size_t megabytes)
{
    struct kri_heap_config config = {.discipline = discipline, .initial_bytes = megabytes << 20};
    struct kri_heap_hooks hooks = {.mark_roots = mark_roots};
    struct roots roots = {0};
    struct kri_heap *heap = kri_heap_new(&config, &hooks, &roots);
    struct task tasks[2];
    struct kri_heap_stats stats;
    pthread_t thread[2];
    pthread_barrier_t start;
    struct kri_worker *w;

    if (!heap) {
        fputs("alloc_bench: no memory\n", stderr);
        exit(1);
    }
    w = attach(heap);
    kri_heap_layouts(heap)[CLASS_CONS] = (struct kri_layout){.kind = KRI_LAYOUT_SLOTS, .slots = 2};
    make_list(w, &roots.live, live);
    kri_gate_leave_host(w);
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        tasks[i] = (struct task){.heap = heap, .number = i, .start = &start};
        pthread_create(&thread[i], NULL, run_task, &tasks[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
    kri_gate_enter(w);
    kri_heap_get_stats(w, &stats);
    printf("%-7s %d thread%s  cons %6.2f ns   copy-list %7.1f ms   %4ju collections, %6.1f ms in them (stops %5.1f), sweep %5.1f ms, peak %4ju MB\n",
           name, threads, threads == 1 ? " " : "s", tasks[0].cons_seconds / CONSES * 1e9, tasks[0].copy_seconds * 1e3,
           (uintmax_t)stats.collections, (double)stats.gc_ns * 1e-6, (double)stats.stop_ns * 1e-6, (double)stats.sweep_ns * 1e-6,
           (uintmax_t)(stats.peak_bytes >> 20));
    kri_worker_free(w);
    kri_heap_free(heap);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum kri_discipline discipline;
        int threads;
    } runs[] = {
        {"gate", KRI_ALLOC_GATE, 1},   {"none", KRI_ALLOC_NONE, 1},     {"gate", KRI_ALLOC_GATE, 1},
        {"none", KRI_ALLOC_NONE, 1},   {"mutex", KRI_ALLOC_MUTEX, 1},   {"rwlock", KRI_ALLOC_RWLOCK, 1},
        {"gate", KRI_ALLOC_GATE, 2},   {"mutex", KRI_ALLOC_MUTEX, 2},   {"rwlock", KRI_ALLOC_RWLOCK, 2},
    };
    size_t live = argc > 1 ? (size_t)(atof(argv[1]) * 1e6) : 0, megabytes = argc > 2 ? (size_t)atol(argv[2]) : 0;

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        measure(runs[i].name, runs[i].discipline, runs[i].threads, live, megabytes);
    return 0;
}
