/* mark_bench.c -- how fast the collector marks.
 *
 *     mark_bench [markers] [rounds]
 *
 * Six million conses held as 6,000 lists by a vector, in address order and shuffled; a binary tree of 8.4 million conses;
 * one vector of eight million fixnums; one single list. Prints the best mark time of each, nanoseconds a cell, and the
 * shares of the markers; fails when a collection did not find every cell. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/heap.h"

enum { CONS = 1, VECTOR = 2 };
enum { LISTS = 6000, LENGTH = 1000, CONSES = LISTS * LENGTH, TREE_DEPTH = 23, BIG = 8000000 };

static kr_value root;
static int rounds = 7;

static void mark_roots(struct kri_heap *heap, struct kri_marker *m)
{
    (void)heap;
    kri_mark_value(m, root);
}

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "mark_bench: %s\n", what);
    exit(1);
}

static kr_value cons(struct kri_worker *w, kr_value a, kr_value d)
{
    struct kri_cell *c = kri_alloc_pair(w, CONS, a, d);
    need(c != NULL, "out of memory");
    return kri_value_of(c);
}

static kr_value vector(struct kri_worker *w, size_t n)
{
    struct kri_cell *c = kri_alloc(w, VECTOR, (uint32_t)n, n);
    need(c != NULL, "out of memory");
    return kri_value_of(c);
}

/* LISTS lists of LENGTH conses each, in address order. */
static void ordered_lists(struct kri_worker *w)
{
    root = vector(w, LISTS);
    for (int i = 0; i < LISTS; i++) {
        kr_value l = KRI_NIL;
        for (int k = 0; k < LENGTH; k++)
            l = cons(w, kri_fixnum(k), l);
        kri_store(w, kri_ptr(root), &kri_ptr(root)->slot[i], l);
    }
}

static uint64_t random_state = 88172645463325252u;
static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* The same, each list's conses from anywhere in the heap. */
static void shuffled_lists(struct kri_worker *w)
{
    struct kri_cell **cell = malloc(CONSES * sizeof *cell);
    struct kri_cell *v;
    kr_value all = KRI_NIL;
    need(cell != NULL, "out of memory");
    for (int i = 0; i < CONSES; i++) {
        root = all = cons(w, kri_fixnum(i), all);
        cell[i] = kri_ptr(all);
    }
    for (int i = CONSES - 1; i > 0; i--) {
        int k = (int)(next_random() % (uint64_t)(i + 1));
        struct kri_cell *c = cell[i];
        cell[i] = cell[k];
        cell[k] = c;
    }
    v = kri_ptr(vector(w, LISTS)); /* the last one that may collect */
    for (int i = 0; i < LISTS; i++)
        for (int k = 0; k < LENGTH; k++) {
            struct kri_cell *c = cell[i * LENGTH + k];
            kri_store(w, c, &c->slot[1], k + 1 < LENGTH ? kri_value_of(cell[i * LENGTH + k + 1]) : KRI_NIL);
            if (k == 0)
                kri_store(w, v, &v->slot[i], kri_value_of(c));
        }
    root = kri_value_of(v);
    free(cell);
}

static kr_value grow_tree(struct kri_worker *w, int depth)
{
    kr_value left, right;
    if (depth == 0)
        return KRI_NIL;
    left = grow_tree(w, depth - 1);
    right = grow_tree(w, depth - 1);
    return cons(w, left, right);
}

static void tree(struct kri_worker *w) { root = grow_tree(w, TREE_DEPTH); }

static void fixnums(struct kri_worker *w)
{
    root = vector(w, BIG);
    for (int i = 0; i < BIG; i++)
        kri_store(w, kri_ptr(root), &kri_ptr(root)->slot[i], kri_fixnum(i));
}

static void one_list(struct kri_worker *w)
{
    kr_value l = KRI_NIL;
    for (int i = 0; i < CONSES; i++)
        root = l = cons(w, kri_fixnum(i), l);
}

struct scene {
    const char *name;
    void (*build)(struct kri_worker *w);
    uint64_t cells;
};

static void measure(const struct scene *scene, unsigned markers)
{
    struct kri_heap_config config = {.limit_bytes = (size_t)2 << 30, .markers = markers};
    struct kri_heap_hooks hooks = {.mark_roots = mark_roots};
    struct kri_heap *heap;
    struct kri_worker *w;
    struct kri_gc_record best = {.mark = UINT64_MAX};
    char *base = __builtin_frame_address(0);

    root = KRI_NIL;
    heap = kri_heap_new(&config, &hooks, NULL);
    need(heap != NULL, "no heap");
    kri_heap_layouts(heap)[CONS] = (struct kri_layout){.kind = KRI_LAYOUT_SLOTS, .slots = 2};
    kri_heap_layouts(heap)[VECTOR] = (struct kri_layout){.kind = KRI_LAYOUT_VECTOR};
    w = kri_worker_new(heap, base, base - (1 << 20));
    need(w != NULL, "no worker");
    scene->build(w);
    for (int i = 0; i < rounds; i++) {
        struct kri_gc_record r;
        uint64_t cells = 0;
        kri_collect(w, KRI_GC_REQUEST);
        need(kri_heap_records(w, &r, 1) == 1, "no record");
        for (unsigned k = 0; k < r.markers; k++)
            cells += r.marked[k];
        if (cells < scene->cells || cells > scene->cells + 1000) {
            fprintf(stderr, "mark_bench: %s: %llu cells marked, not %llu\n", scene->name, (unsigned long long)cells,
                    (unsigned long long)scene->cells);
            exit(1);
        }
        if (r.mark < best.mark)
            best = r;
    }
    printf("%-16s %8.2f ms  %6.2f ns/cell  total %8.2f ms  by marker", scene->name, (double)best.mark / 1e6,
           (double)best.mark / (double)scene->cells, (double)best.total / 1e6);
    for (unsigned k = 0; k < best.markers; k++)
        printf(" %llu", (unsigned long long)best.marked[k]);
    printf("\n");
    kri_worker_free(w);
    kri_heap_free(heap);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {
        {"ordered lists", ordered_lists, CONSES + 1},
        {"shuffled lists", shuffled_lists, CONSES + 1},
        {"tree", tree, ((uint64_t)1 << TREE_DEPTH) - 1},
        {"fixnum vector", fixnums, 1},
        {"one list", one_list, CONSES},
    };
    unsigned markers = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    if (argc > 2)
        rounds = atoi(argv[2]);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        measure(&scenes[i], markers);
    return 0;
}
