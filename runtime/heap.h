/* heap.h -- the Fibonacci-buddy heap: allocation, stores, collection, statistics. What lisp/ sees of it.
 *
 * Sizes count granules of three words (24 bytes). A block of index k holds kri_fib[k] granules: 1 2 3 5 8 13 21 34 55 ...;
 * it splits into a left block of index k-1 and a right one of index k-2 (index 1 into two of index 0). A chunk is 2 MB,
 * aligned; its tree of index KRI_CHUNK_INDEX (75,025 granules) lies behind the mark bytes, one a granule.
 * Larger objects have a mapping of their own, 2 MB aligned, with the same head.
 *
 * Always true (kri_heap_check tests each by name):
 *   H1  Every node of a chunk's tree that is a cell or a free block has a true header, except inside an open run.
 *   H2  A run belongs to one worker, and only its owner carves from it.
 *   H3  No worker has an open run while the collector holds the gate.
 *   H4  No mark phase starts while a chunk is unswept; whoever walks the heap skips unmarked cells of unswept chunks.
 *   H5  Free blocks are in exactly one list: the global base's, one worker's, or their unswept chunk's.
 *   H6  A cell never moves, and its header's class and buddy index never change while it lives.
 *   H7  A permanent cell that is not in the log refers to permanent cells only (Note [permanent], runtime/permanent.c). */
#ifndef KRI_RUNTIME_HEAP_H
#define KRI_RUNTIME_HEAP_H

#include "runtime/value.h"
#include "runtime/worker.h"

enum {
    KRI_WORD = 8,
    KRI_GRANULE = 24,
    KRI_CHUNK_INDEX = 23, /* kri_fib[23] == 75025 with kri_fib[0] == 1, kri_fib[1] == 2 */
    KRI_CHUNK_BYTES = 2 << 20,
};
extern const uint32_t kri_fib[KRI_CHUNK_INDEX + 1];

enum kri_discipline { KRI_ALLOC_GATE, KRI_ALLOC_RWLOCK, KRI_ALLOC_MUTEX, KRI_ALLOC_NONE };

struct kri_heap_config {
    size_t limit_bytes;      /* 0: three quarters of physical memory */
    size_t initial_bytes;    /* 0: a default */
    enum kri_discipline discipline;
    unsigned markers;        /* threads that mark; 0: the cores of the machine */
    unsigned stress;         /* collect at every STRESS-th slow-path allocation (and keep runs short); 0: never */
    /* Where chunks and large objects come from; NULL: the system. MAP answers zeroed memory at a multiple of ALIGNMENT, or NULL; called
     * from any thread, with a lock held: neither may come back here. */
    void *(*map)(void *user, size_t bytes, size_t alignment);
    void (*unmap)(void *user, void *memory, size_t bytes);
    void *memory_user;
};

struct kri_marker; /* one marking thread (runtime/mark.c) */

/* What the runtime calls in lisp/. All may be NULL but mark_roots. */
struct kri_heap_hooks {
    /* World stopped. Mark every root outside native stacks: symbols, classes, handles, all contexts' Lisp stacks. Called once,
     * by the collecting thread. Clears dead parts of Lisp stacks (Note [stale words], lisp/context.c). */
    void (*mark_roots)(struct kri_heap *heap, struct kri_marker *m);
    /* World stopped, all is marked and dead weak references are gone. */
    void (*weak)(struct kri_heap *heap);
    /* World stopped, all that is reachable is marked: have M mark what entries of the live weak table C keep alive (kri_is_marked
     * tells what is marked). True if there was something. Called again until no table has anything to add. FORWARD tells in
     * which direction to go, so that chains of entries end soon whichever way they lie. */
    bool (*weak_trace)(struct kri_heap *heap, struct kri_marker *m, struct kri_cell *c, bool forward);
    /* Then: drop the dead entries of C. */
    void (*weak_clear)(struct kri_heap *heap, struct kri_cell *c);
    /* At a poll of the worker that collected, inside the gate: run finalizers and *gc-hook*. May run Lisp, may raise. */
    void (*after_gc)(struct kri_worker *w);
    /* KRI_REQUEST_INTERRUPT at a poll. May run Lisp, may raise. */
    void (*interrupt)(struct kri_worker *w);
    /* KRI_REQUEST_BUDGET at a poll. May run Lisp, may raise. */
    void (*budget)(struct kri_worker *w);
    /* KRI_REQUEST_SAMPLE at a poll, for profiles. Allocates nothing, raises nothing. */
    void (*sample)(struct kri_worker *w);
    /* While kri_heap_watch is on: about BYTES more were fetched for the cell that is being made. Allocates nothing, raises nothing. */
    void (*allocated)(struct kri_worker *w, size_t bytes);
    void (*signal)(struct kri_worker *w);
};

/* A collection, as recorded. Times in nanoseconds. */
struct kri_gc_record {
    uint64_t number, cause;         /* enum kri_gc_cause */
    uint64_t at;                    /* CLOCK_MONOTONIC at the request */
    uint64_t stop, mark, total;     /* until the world stood; marking; whole pause */
    uint64_t live_bytes, heap_bytes, freed_chunks;
    uint64_t marked[16];            /* cells by marker, the first 16 */
    unsigned markers, workers;
};
enum kri_gc_cause { KRI_GC_ALLOCATION, KRI_GC_REQUEST, KRI_GC_STRESS, KRI_GC_LIMIT };

/* Totals over a heap's life; snapshot by kri_heap_stats. */
struct kri_heap_stats {
    uint64_t collections, stop_ns, mark_ns, sweep_ns, gc_ns;
    uint64_t heap_bytes, peak_bytes, free_bytes, live_bytes; /* live: after the last collection */
    uint64_t allocated_bytes;
    uint64_t allocated_cells[KRI_CHUNK_INDEX + 2];  /* by buddy index; last: large. Counted per slow path, exact at a stop */
    uint64_t chunks, large_objects, local_bytes;
};

/* ---- life ---- */
struct kri_heap *kri_heap_new(const struct kri_heap_config *config, const struct kri_heap_hooks *hooks, void *user);
void kri_heap_free(struct kri_heap *heap); /* no worker is attached any more */
void *kri_heap_user(struct kri_heap *heap);
enum kri_discipline kri_heap_discipline(const struct kri_heap *heap);
/* Change `stress` of the configuration; not between zero and others. One worker. */
void kri_heap_set_stress(struct kri_heap *heap, unsigned stress);
/* For tests: of this worker's slow-path allocations, AFTER succeed, then COUNT fail as if the limit was reached. In stress mode only;
 * false otherwise. */
bool kri_heap_fail(struct kri_worker *w, uint32_t after, uint32_t count);
/* W gets no more memory from the system once the heap has BYTES; 0: the heap's own limit holds. The owner, inside the gate. */
void kri_heap_limit_worker(struct kri_worker *w, size_t bytes);
/* The checked mode without allocation: while it is on, W's every allocation fails (NULL). The owner, inside the gate. */
void kri_heap_forbid(struct kri_worker *w, bool forbidden);
bool kri_heap_forbidden(const struct kri_worker *w);
/* Does ADDRESS lie in a chunk or large object of this heap? Any thread. */
bool kri_heap_owns(struct kri_heap *heap, const void *address);
/* Class index -> layout. Written by lisp/ before the first instance exists, read by the collector. */
struct kri_layout *kri_heap_layouts(struct kri_heap *heap); /* 65,536 entries, reserved, touched as needed */

/* ---- allocation ---- */
/* A cell with WORDS words after the header (all zero: NIL), header as given. NULL when the heap limit is reached even
 * after a collection. Any word count; large ones get their own mapping. May collect. */
struct kri_cell *kri_alloc(struct kri_worker *w, unsigned cls, uint32_t length, size_t words);
/* The same for cells whose words the caller fills at once, before anything that may collect. */
struct kri_cell *kri_alloc_raw(struct kri_worker *w, unsigned cls, uint32_t length, size_t words);
/* One granule by the slow path; NULL as above. */
struct kri_cell *kri_alloc_granule_slow(struct kri_worker *w);

static inline uint64_t kri_header(unsigned cls, unsigned buddy, uint32_t length)
{
    return (uint64_t)buddy << 48 | (uint64_t)cls << 32 | length;
}
static inline void kri_set_header(struct kri_cell *c, uint64_t header) { memcpy(c, &header, sizeof header); }

/* A one-granule cell of class CLS with two words A and B; NULL when the heap is full. The fast path: seven instructions. */
static inline struct kri_cell *kri_alloc_pair(struct kri_worker *w, unsigned cls, kr_value a, kr_value b)
{
    struct kri_cell *c = (struct kri_cell *)w->run;
    if (KRI_UNLIKELY(w->run == w->run_end)) {
        c = kri_alloc_granule_slow(w);
        if (KRI_UNLIKELY(!c))
            return NULL;
    } else {
        w->run += KRI_GRANULE;
    }
    kri_set_header(c, kri_header(cls, 0, 0));
    c->slot[0] = a;
    c->slot[1] = b;
    return c;
}

/* Bytes a cell occupies, header included (the whole block). */
size_t kri_cell_bytes(const struct kri_cell *c);

/* ---- stores ----
 * Every store of a value into a cell goes through these, save the initialising stores of a fresh cell. A release store: another
 * core that reads the pointer sees the cell's contents; it pairs with the data dependency of kri_slot. They are the write
 * barrier: the first store into a permanent cell puts it into the log (H7). OBJECT is the cell that SLOT lies in. */
void kri_log_slow(struct kri_cell *object);
static inline void kri_log(struct kri_cell *object)
{
    /* Relaxed: the flag is set with the world stopped, and who finds it cleared needs nothing of the log. */
    if (KRI_UNLIKELY(kri_load_byte(&object->flags) & KRI_FLAG_UNLOGGED))
        kri_log_slow(object);
}
#ifdef KRI_CHECK_STORES
void kri_store_checked(struct kri_worker *w, struct kri_cell *object, kr_value *slot, kr_value v);
#endif
static inline void kri_store(struct kri_worker *w, struct kri_cell *object, kr_value *slot, kr_value v)
{
#ifdef KRI_CHECK_STORES
    kri_store_checked(w, object, slot, v);
#else
    (void)w;
    kri_store_release((volatile kri_atomic *)&slot->w, v.w);
    kri_log(object);
#endif
}
/* A relaxed load: racing programs read old or new values, never torn ones. The thread sanitizer knows no data dependencies,
 * so there it is an acquire. */
static inline kr_value kri_slot(const kr_value *slot)
{
#ifdef KRI_TSAN
    return (kr_value){kri_load_acquire((const volatile kri_atomic *)&slot->w)};
#else
    return (kr_value){kri_load_relaxed((const volatile kri_atomic *)&slot->w)};
#endif
}
/* Move N values within or between cells; overlapping allowed. */
void kri_store_move(struct kri_worker *w, struct kri_cell *object, kr_value *to, const kr_value *from, size_t n);
void kri_store_fill(struct kri_worker *w, struct kri_cell *object, kr_value *to, kr_value v, size_t n);
bool kri_store_cas(struct kri_worker *w, struct kri_cell *object, kr_value *slot, kr_value old, kr_value v);

/* ---- collection ---- */
/* Collect now. Inside the gate; other workers are stopped meanwhile. */
void kri_collect(struct kri_worker *w, enum kri_gc_cause cause);
/* Grow the heap by at least BYTES; false at the limit. */
bool kri_heap_grow(struct kri_worker *w, size_t bytes);
void kri_mark_value(struct kri_marker *m, kr_value v);
void kri_mark_range(struct kri_marker *m, const kr_value *from, const kr_value *to);
/* Any word: marks the cell it points into, if it is a live one (conservative). */
void kri_mark_word(struct kri_marker *m, uintptr_t word);
/* The words of a native stack or a saved register set from FROM up to TO, conservatively. The sanitizers do not see it read. */
void kri_mark_words(struct kri_marker *m, const void *from, const void *to);
bool kri_is_marked(struct kri_heap *heap, kr_value v); /* only while the world is stopped */
void kri_mark_drain(struct kri_marker *m); /* in weak_trace: mark what was given to kri_mark_value, and what hangs on it, at once */

/* All that exists becomes permanent: no collection marks it, frees it, or looks into it, save what is stored into afterwards.
 * For the image a program starts with. Nothing happens where that would take more than an eighth of the heap's limit. */
void kri_heap_make_permanent(struct kri_worker *w);

/* Register V (a cell) so that, when it dies, it is kept once more and put on the list that kri_next_finalizable drains. */
bool kri_finalize(struct kri_worker *w, kr_value v);
/* The next dead cell with a finalizer, or NIL. It is an ordinary live value again. */
kr_value kri_next_finalizable(struct kri_worker *w);

/* Stop all other workers, run F, let them go on. For fork and the heap walks below. */
void kri_with_world_stopped(struct kri_worker *w, void (*f)(struct kri_worker *w, void *arg), void *arg);
/* Call F for every live cell. World stopped, or one worker. */
void kri_heap_walk(struct kri_worker *w, void (*f)(struct kri_cell *c, void *arg), void *arg);
/* Verify H1 to H7 and that every value points to a live cell; the first violation goes to MESSAGE. World gets stopped. */
bool kri_heap_check(struct kri_worker *w, char *message, size_t size);

void kri_heap_get_stats(struct kri_worker *w, struct kri_heap_stats *out);
/* Up to N of the newest records, newest first; returns how many. */
size_t kri_heap_records(struct kri_worker *w, struct kri_gc_record *out, size_t n);
/* Have hooks.allocated called, or no more. */
void kri_heap_watch(struct kri_heap *heap, bool on);
/* Ask every worker that is inside the gate for a sample. Any thread that is no worker of HEAP. */
void kri_heap_request_samples(struct kri_heap *heap);
/* After fork, in the child: only W's thread is left. */
void kri_heap_after_fork(struct kri_worker *w);

#endif
