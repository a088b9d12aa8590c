/* twin.c -- what this machine, now, gives C threads that treat memory as the benchmark programs do.
 *
 *   twin KIND THREADS REPS [FLOATS ELEMENTS FOOTPRINT]
 *
 * Kinds: arith (calls and arithmetic in registers: compfib, intfib), vectors (inner products of two shared vectors: inner-prod),
 * lists (a shared scattered list into the thread's own scattered list: list-replace), carve (a shared scattered list into cells carved
 * in address order from the thread's part of FOOTPRINT bytes, over and over, as from a swept heap: copy-seq), bodies (half
 * 3-word and half 6-word cells carved so, with vector arithmetic between: body-intcheck).
 * Each thread does REPS repetitions, pinned to a processor of its own as far as there are any. Prints one line in the form of
 * bench:sample's: "sample KIND twin THREADS REPS elapsed-ns cpu-ns 0 0 0 bytes footprint ok".
 *
 * A shared machine gives two threads less than twice the work of one, and changes by the second: the speed-up of a Lisp program says
 * something only beside that of a twin measured in the same minute. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct cell { uint64_t header; struct cell *car, *cdr; };                 /* 3 words: a cons */
struct vec { uint64_t header; double x[3]; uint64_t unused[2]; };         /* 6 words: a 3-vector and its rest */

struct job {
    pthread_t thread;
    unsigned number;
    char *region;                      /* this thread's part of the footprint */
    size_t region_bytes;
    struct cell *own;                  /* this thread's list */
    uint64_t start, end, answer, bytes;
};

static unsigned threads;
static uint64_t reps;
static size_t floats = 100000, elements = 10000, footprint = 8 << 20;
static double *vector_a, *vector_b;    /* read by all */
static struct cell *shared;            /* read by all */
static pthread_barrier_t barrier;
static uint64_t (*work)(struct job *j);

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t cpu_time(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 + (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void *get(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "twin: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return p;
}

/* Pin the calling thread to the K-th processor this process may use, counting round. */
static void pin(unsigned k)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    k %= (unsigned)CPU_COUNT(&allowed);
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &allowed) || k-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(c, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

/* The list of 0 .. elements-1 with its cells in disorder. */
static struct cell *scattered_list(void)
{
    struct cell *cells = get(elements * sizeof *cells), *l = NULL;
    size_t *order = get(elements * sizeof *order), i;
    uint64_t seed = 12345;
    for (i = 0; i < elements; i++)
        order[i] = i;
    for (; i > 1; i--) {
        seed = (seed * 1103515245 + 12345) % 2147483648;
        size_t j = seed / 256 % i, x = order[i - 1];
        order[i - 1] = order[j];
        order[j] = x;
    }
    for (i = elements; i > 0; i--) {
        struct cell *c = &cells[order[i - 1]];
        *c = (struct cell){1, (struct cell *)(uintptr_t)(i - 1), l};
        l = c;
    }
    free(order);
    return l;                          /* the cells live as long as the process */
}

static uint64_t list_sum(const struct cell *l)
{
    uint64_t s = 0;
    for (; l; l = l->cdr)
        s += (uintptr_t)l->car;
    return s;
}

static __attribute__((noinline)) uint64_t fib(uint64_t n)
{
    __asm__ volatile("");              /* a real call each time */
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static uint64_t arith(struct job *j)
{
    uint64_t s = 0;
    (void)j;
    for (uint64_t r = 0; r < reps; r++)
        s += fib(27);
    return s;
}

static uint64_t vectors(struct job *j)
{
    double s = 0;
    (void)j;
    for (uint64_t r = 0; r < reps; r++)
        for (size_t i = 0; i < floats; i++)
            s += vector_a[i] * vector_b[i];
    return (uint64_t)s;
}

static uint64_t lists(struct job *j)
{
    for (uint64_t r = 0; r < reps; r++) {
        struct cell *to = j->own;
        for (const struct cell *from = shared; from; from = from->cdr, to = to->cdr)
            to->car = from->car;
    }
    return list_sum(j->own);
}

static uint64_t carve(struct job *j)
{
    char *next = j->region, *end = j->region + j->region_bytes;
    struct cell *head = NULL;
    for (uint64_t r = 0; r < reps; r++) {
        struct cell **tail = &head;
        for (const struct cell *from = shared; from; from = from->cdr) {
            if (next + sizeof(struct cell) > end)
                next = j->region;
            struct cell *c = (struct cell *)next;
            next += sizeof *c;
            c->header = 1;
            c->car = from->car;
            *tail = c;
            tail = &c->cdr;
        }
        *tail = NULL;
    }
    j->bytes = reps * elements * sizeof(struct cell);
    return list_sum(head);
}

/* Difference and cross product into fresh vectors, a fresh cell holding the result: the mix of body-intcheck. */
static uint64_t bodies(struct job *j)
{
    char *next = j->region, *end = j->region + j->region_bytes;
    double total = 0;
    for (uint64_t r = 0; r < reps; r++) {
        struct vec *last = NULL;
        for (size_t i = 0; i < elements; i++) {
            const double *p = &vector_a[i * 7 % (floats - 3)], *q = &vector_b[i * 13 % (floats - 3)];
            if (next + 2 * sizeof(struct vec) + 2 * sizeof(struct cell) > end)
                next = j->region, last = NULL;
            struct vec *d = (struct vec *)next, *x = d + 1;
            struct cell *c = (struct cell *)(x + 1);
            next = (char *)(c + 2);
            d->header = x->header = 2;
            for (int k = 0; k < 3; k++)
                d->x[k] = p[k] - q[k];
            x->x[0] = d->x[1] * p[2] - d->x[2] * p[1];
            x->x[1] = d->x[2] * p[0] - d->x[0] * p[2];
            x->x[2] = d->x[0] * p[1] - d->x[1] * p[0];
            c[0] = (struct cell){1, (struct cell *)x, NULL};
            c[1] = (struct cell){1, (struct cell *)last, &c[0]};
            last = x;
            total += x->x[0] + x->x[1] + x->x[2];
        }
    }
    j->bytes = reps * elements * (2 * sizeof(struct vec) + 2 * sizeof(struct cell));
    return (uint64_t)(int64_t)total;
}

static void *run(void *arg)
{
    struct job *j = arg;
    pin(j->number);
    if (work == lists)
        j->own = scattered_list();
    if (work == carve || work == bodies) {
        j->region_bytes = footprint / threads;
        if (j->region_bytes < elements * sizeof(struct cell) + 4096)  /* the last copy must stay whole */
            j->region_bytes = elements * sizeof(struct cell) + 4096;
        j->region = get(j->region_bytes);
        memset(j->region, 0, j->region_bytes);
    }
    pthread_barrier_wait(&barrier);    /* everybody has its data */
    pthread_barrier_wait(&barrier);    /* main has read the clocks */
    j->start = now();
    j->answer = work(j);
    j->end = now();
    return NULL;
}

static uint64_t right_answer(void)
{
    uint64_t s = 0;
    if (work == arith)
        return reps * 196418;
    if (work == vectors) {
        for (size_t i = 0; i < floats; i++)
            s += i % 7 * (i % 5);
        return s * reps;
    }
    return (uint64_t)elements * (elements - 1) / 2;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; uint64_t (*work)(struct job *j); } kinds[] = {
        {"arith", arith}, {"vectors", vectors}, {"lists", lists}, {"carve", carve}, {"bodies", bodies},
    };
    for (size_t k = 0; argc >= 4 && k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(argv[1], kinds[k].name) == 0)
            work = kinds[k].work;
    if (!work || (threads = (unsigned)atoi(argv[2])) < 1 || threads > 1024 || (reps = strtoull(argv[3], NULL, 10)) < 1) {
        fprintf(stderr, "usage: twin arith|vectors|lists|carve|bodies THREADS REPS [FLOATS ELEMENTS FOOTPRINT]\n");
        return 2;
    }
    if (argc > 4)
        floats = strtoull(argv[4], NULL, 10);
    if (argc > 5)
        elements = strtoull(argv[5], NULL, 10);
    if (argc > 6)
        footprint = strtoull(argv[6], NULL, 10);
    if (floats < 4 || elements < 1) {
        fprintf(stderr, "twin: FLOATS must be at least 4 and ELEMENTS at least 1\n");
        return 2;
    }

    vector_a = get(floats * sizeof *vector_a);
    vector_b = get(floats * sizeof *vector_b);
    for (size_t i = 0; i < floats; i++) {
        vector_a[i] = (double)(i % 7);
        vector_b[i] = (double)(i % 5);
    }
    shared = scattered_list();

    struct job *jobs = calloc(threads, sizeof *jobs);
    if (!jobs)
        return 2;
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (unsigned k = 0; k < threads; k++) {
        jobs[k].number = k;
        if (pthread_create(&jobs[k].thread, NULL, run, &jobs[k]) != 0) {
            fprintf(stderr, "twin: cannot make thread %u\n", k);
            return 2;
        }
    }
    pthread_barrier_wait(&barrier);
    uint64_t cpu = cpu_time();
    pthread_barrier_wait(&barrier);

    uint64_t start = UINT64_MAX, end = 0, bytes = 0;
    bool ok = true;
    for (unsigned k = 0; k < threads; k++) {
        pthread_join(jobs[k].thread, NULL);
        start = jobs[k].start < start ? jobs[k].start : start;
        end = jobs[k].end > end ? jobs[k].end : end;
        bytes += jobs[k].bytes;
        /* The sum of `bodies` is not known beforehand; all threads must agree on it. */
        ok = ok && jobs[k].answer == (work == bodies ? jobs[0].answer : right_answer());
    }
    cpu = cpu_time() - cpu;
    printf("sample %s twin %u %llu %llu %llu 0 0 0 %llu %zu %s\n", argv[1], threads, (unsigned long long)reps, (unsigned long long)(end - start),
           (unsigned long long)cpu, (unsigned long long)bytes, footprint, ok ? "ok" : "WRONG");
    return ok ? 0 : 1;
}
