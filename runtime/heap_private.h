/* heap_private.h -- what the files of runtime/ know of each other: the heap, its chunks, a worker's private half.
 *
 * heap.c, heap_base.c, heap_local.c, permanent.c, chunk.c, sweep.c, store.c, heap_check.c, heap_stats.c, system.c are the memory;
 * gate.c, worker.c, collect.c, mark.c, finalize.c stop the workers and mark.
 *
 * A collection, in order (kri_collect, collect.c):
 *   1. the gate is closed; every worker gets kri_close_runs (H3)
 *   2. kri_discipline_lock, kri_sweep_finish_all (H4): from here every mark byte of the heap is zero, save the permanent ones
 *   3. marking through kri_mark_cell, finalizers, weak cells
 *   4. kri_heap_after_mark, kri_heap_record, kri_discipline_unlock; the gate opens
 *
 * Lock order: workers_lock, discipline_lock, base_lock; flags_lock is a leaf. None is held at a poll, so none is ever held
 * by a stopped worker. */
#ifndef KRI_RUNTIME_HEAP_PRIVATE_H
#define KRI_RUNTIME_HEAP_PRIVATE_H

#include <pthread.h>

#include "runtime/chunk.h"
#include "runtime/heap.h"

enum {
    KRI_BATCH_GRANULES = 1024,   /* of the blocks in a batch */
    KRI_RECORDS = 256,           /* collections that are remembered */
    KRI_SIZES = KRI_CHUNK_INDEX + 1,
    KRI_WORD_LETTERS = 1597,     /* a node cut into cells of a local size has no more blocks */
    KRI_INDEX_MAX = 19,          /* the largest cell in a chunk: 10,946 granules; what is larger has its own mapping */
};

/* Free blocks of one index, linked through slot[0]. What was found in one go forms batches: the first block of one says in its
 * length how many there are and in slot[1] which is the last, so that all are taken at once without a look at those between.
 * A block with length 0 is on its own. */
struct kri_free_list {
    struct kri_cell *head, *tail;
    struct kri_cell *batch;                   /* the one that grows at the tail; NULL: none */
    size_t count;
};

/* A worker's side of the memory. The run itself and the lists are in struct kri_worker. */
struct kri_local_base {
    /* The node that is being carved; NULL: none. Carved granules are one-granule cells. */
    char *run_node;
    unsigned run_index;
    /* Discipline rwlock only: run and lists, hidden from the inline fast paths. */
    char *hidden_run, *hidden_end;
    struct kri_cell *hidden_free[KRI_LOCAL_SIZES];
    uint32_t quota[KRI_LOCAL_SIZES];          /* cells to fetch at the next refill; [0] counts granules for runs */
    uint32_t slow_count;                      /* slow paths since the last stress collection */
    uint32_t fail_after, fail_count;          /* stress mode: so many slow paths succeed, then so many fail */
    uint64_t epoch;                           /* heap->collections when the quotas were adapted last */
    uint32_t refills[KRI_LOCAL_SIZES];        /* since then */
    /* Statistics: what was handed to this worker; what waits in its base is subtracted at a stop. Written by the owner
     * (by the collector at a stop), read by kri_heap_get_stats with relaxed loads. */
    kri_atomic handed[KRI_SIZES + 1];         /* cells by index; last: large objects */
    kri_atomic large_bytes;                   /* of the large objects among them */
    kri_atomic held_granules;                 /* brought by the refills since the last stop */
};

struct kri_worker_gc {
    struct kri_worker *worker;
    struct kri_local_base base;
    size_t limit_bytes;                       /* this worker's own limit of the heap; 0: none. Owner only */
    bool forbidden;                           /* no allocation from here; owner only */

    /* -- gate, worker and mark half: fields below are theirs -- */
    void *native_base;                        /* highest address of the native stack that may hold values */
    void *native_limit;                       /* lowest usable one */
    void *native_top;                         /* where scanning starts while the worker is stopped or outside */
    struct kri_worker_stop *stop;             /* gate.c's own */
    struct kri_worker_mark *mark;             /* mark.c's own */
};

struct kri_heap {
    /* -- constant after kri_heap_new: read freely -- */
    struct kri_heap_config config;            /* zeros replaced by what they stand for */
    struct kri_heap_hooks hooks;
    void *user;
    struct kri_layout *layouts;               /* 65,536; entries written by lisp/ before the first instance exists */
    uint8_t word[KRI_WORD_LETTERS];           /* Note [Fibonacci word], heap_local.c */
    unsigned cores;                           /* of the machine, or what of it the process may use */
    bool check_each;                          /* KR_GC_CHECK=1: kri_heap_check_stw around every collection */
    kri_atomic watch;                         /* hooks.allocated is called */
    struct kri_gate_state *gate;              /* gate.c */
    struct kri_mark_state *marking;           /* mark.c */

    /* -- address -> chunk: lock-free to read, written under base_lock (chunk.c) -- */
    struct kri_chunk_table table;

    pthread_mutex_t workers_lock;             /* guards the next two */
    struct kri_worker *workers;
    unsigned worker_count;

    /* Discipline rwlock: readers allocate, the collector writes. Discipline mutex uses base_lock. */
    pthread_rwlock_t discipline_lock;

    /* -- the global buddy base: under base_lock, or with the world stopped -- */
    pthread_mutex_t base_lock;
    struct kri_free_list base[KRI_SIZES];
    uint32_t base_bits;                       /* bit k: base[k] is not empty */
    struct kri_chunk *chunks;                 /* every tree chunk, through next */
    struct kri_chunk *large;                  /* every large object, through next */
    struct kri_chunk *unswept;                /* through next_unswept */
    struct kri_chunk *reserve;                /* a chunk kept for the program's last words at the limit; in no other list */
    struct kri_free_list withheld[KRI_SIZES]; /* free blocks kept back instead of a reserve */
    size_t withheld_bytes;
    bool withholding;                         /* the sweeps are to fill it */
    unsigned sweeping;                        /* chunks that workers are sweeping right now */
    size_t chunk_count, large_count;
    size_t heap_bytes, peak_bytes;            /* chunks and large objects, as mapped */
    size_t budget;                            /* bytes to hand out until the next collection */
    size_t handed, handed_large;              /* bytes handed out since the last one; those of them in large objects */
    size_t live_small;                        /* live bytes in chunks, after the last collection; without the permanent ones */
    size_t wanted;                            /* bytes a large object waits for at the limit: empty chunks make room */
    uint64_t freed_chunks;                    /* by the last collection */
    unsigned bases;                           /* local bases in use */
    uint32_t local_limit;                     /* granules one of them may hold */
    double factor;                            /* growth: budget = factor x live, see Note [growth] in heap_base.c */
    struct kri_local_base retired;            /* statistics of workers that are gone */

    /* -- what is permanent: lists and counts are written once with the world stopped -- */
    struct kri_chunk *permanent, *permanent_large;
    size_t permanent_chunks, permanent_large_count;
    size_t permanent_bytes, permanent_cells;
    pthread_mutex_t flags_lock;               /* guards the next two, and the flags of cells */
    struct kri_cell **log;                    /* permanent cells that were stored into; room for all there may be */
    size_t log_count, log_bytes;

    /* -- statistics of collections: written with the world stopped, read under base_lock -- */
    uint64_t stop_ns, mark_ns, gc_ns;
    uint64_t live_bytes;                      /* found by the last collection: without what is permanent */
    uint64_t last_end_ns;                     /* CLOCK_MONOTONIC at the end of the last collection */
    uint64_t last_sweep_ns;                   /* sweep_ns then */
    struct kri_gc_record records[KRI_RECORDS];
    uint64_t record_count;

    kri_atomic sweep_ns;
    kri_atomic collections;                   /* finished collections; any thread reads */
};

/* ---- what the memory gives to gate and mark ---- */

/* kri_worker_new and kri_worker_free call these; the second gives the local base back to the global one. The worker is inside
 * the gate. */
void kri_local_base_init(struct kri_worker *w);
void kri_local_base_finish(struct kri_worker *w);
/* At every stop (also kri_with_world_stopped), for each worker, also those outside the gate (H3): what is left of its run
 * becomes maximal free blocks in the global base, its lists go back too, so that the statistics are exact and the fast paths
 * find nothing. World stopped (or W's own thread). */
void kri_close_runs(struct kri_worker *w);
/* World stopped: sweep what is unswept (H4). Afterwards no mark byte of the heap is set. The step takes one chunk and may
 * be called by many threads at once; false when none was left to take. */
void kri_sweep_finish_all(struct kri_heap *heap);
bool kri_sweep_finish_step(struct kri_heap *heap);
/* World stopped, marking done. LIVE_BYTES is what the markers found (block sizes: kri_cell_bytes). Empties every list,
 * makes all chunks unswept, frees dead large objects and surplus empty chunks, sets the growth policy; fills heap_bytes,
 * live_bytes (what is permanent included), freed_chunks of RECORD. */
void kri_heap_after_mark(struct kri_heap *heap, uint64_t live_bytes, struct kri_gc_record *record);
/* The collection is over: counts it and keeps RECORD, complete. World stopped. */
void kri_heap_record(struct kri_heap *heap, const struct kri_gc_record *record);
/* Discipline rwlock: the collector's side of the POSIX lock. Else nothing. */
void kri_discipline_lock(struct kri_heap *heap);
void kri_discipline_unlock(struct kri_heap *heap);
/* In the child after fork: the locks anew. */
void kri_base_after_fork(struct kri_heap *heap);
/* The cell that WORD points into, first byte to last, or NULL: not of this heap, a free block, a dead cell of an unswept
 * chunk. World stopped, runs closed. */
struct kri_cell *kri_find_cell(struct kri_heap *heap, uintptr_t word);
/* World stopped: all chunks and large objects become permanent ones; a fresh chunk takes their place. False, and nothing
 * happened: there is no room for one. */
bool kri_heap_retire_chunks_stw(struct kri_heap *heap);
/* Set or clear flag bits of a cell. */
void kri_change_flags(struct kri_cell *c, unsigned clear, unsigned set);
/* The checks of kri_heap_check, world stopped and runs closed. */
bool kri_heap_check_stw(struct kri_heap *heap, char *message, size_t size);
/* Store-checking builds: compare each cell seen by the last collection with its shadow (abort with a message on a store that
 * went past kri_store); take new shadows of the cells marked now. mark.c calls the first right after step 1, memory the
 * second in kri_heap_after_mark. Nothing in other builds. */
void kri_shadow_verify(struct kri_heap *heap);
void kri_shadow_take(struct kri_heap *heap);
void kri_shadow_take_permanent(struct kri_heap *heap); /* once: they change by kri_store only */

/* Mark C, a cell (exact address, chunk or large). True if it was not marked before; two markers may both be told true, which
 * costs a scan twice and nothing else. The byte's value is the buddy index plus one, so the sweep reads no live cell. */
static inline volatile unsigned char *kri_mark_byte(const struct kri_cell *c)
{
    struct kri_chunk *chunk = kri_chunk_of(c);
    return &chunk->marks[(uint32_t)((uintptr_t)c - (uintptr_t)chunk - KRI_TREE_OFFSET) / KRI_GRANULE];
}
static inline bool kri_marked(const struct kri_cell *c) { return kri_load_byte(kri_mark_byte(c)) != 0; }
static inline bool kri_mark_cell(struct kri_cell *c)
{
    struct kri_chunk *chunk = kri_chunk_of(c);
    volatile unsigned char *m = kri_mark_byte(c);
    /* Relaxed: marks are read by others only after the markers have met (mark.c's termination), which orders them. */
    if (kri_load_byte(m))
        return false;
    kri_store_byte(m, (unsigned char)(c->buddy + 1));
    if (!kri_load_byte(&chunk->touched))
        kri_store_byte(&chunk->touched, 1);
    return true;
}

/* ---- what gate and mark give to the memory ----
 * kri_heap_new and kri_heap_free call these; they fill or free heap->gate and heap->marking. False: no memory. The heap's
 * config, hooks and locks are set; no worker exists. */
bool kri_gate_init(struct kri_heap *heap);
void kri_gate_finish(struct kri_heap *heap);
bool kri_mark_init(struct kri_heap *heap);
void kri_mark_finish(struct kri_heap *heap);
/* kri_collect (heap.h), called with no lock held: for cause KRI_GC_ALLOCATION it returns without collecting if another
 * collection finished between the call and the moment it got the gate. */

/* ---- within the memory ---- */
static inline size_t kri_block_bytes(unsigned index) { return (size_t)kri_fib[index] * KRI_GRANULE; }
static inline void kri_base_lock(struct kri_heap *heap) { pthread_mutex_lock(&heap->base_lock); }
static inline void kri_base_unlock(struct kri_heap *heap) { pthread_mutex_unlock(&heap->base_lock); }
/* Sweep CHUNK, which the caller took from the unswept list: every maximal free node gets a header and goes to FOUND[its index];
 * marks are cleared. Returns the free granules. */
size_t kri_sweep_chunk(struct kri_chunk *chunk, struct kri_free_list found[KRI_SIZES]);
/* C has its header. */
static inline void kri_list_append(struct kri_free_list *l, struct kri_cell *c)
{
    c->slot[0] = KRI_NIL;
    if (l->tail)
        l->tail->slot[0] = kri_value_of(c);
    else
        l->head = c;
    if (!l->batch || (l->batch->length + 1) * kri_fib[c->buddy] > KRI_BATCH_GRANULES)
        l->batch = c;
    l->batch->length++;
    l->batch->slot[1] = kri_value_of(c);
    l->tail = c;
    l->count++;
}
/* The first block of a list that is not empty. */
static inline struct kri_cell *kri_list_pop(struct kri_free_list *l)
{
    struct kri_cell *c = l->head, *next = kri_ptr(c->slot[0]);

    if (c->length > 1) {
        next->length = c->length - 1;
        next->slot[1] = c->slot[1];
    }
    l->batch = NULL;
    l->head = next;
    l->count--;
    if (!next)
        l->tail = NULL;
    return c;
}

/* -- heap_base.c: the global base. What ends in _locked wants base_lock, or the world stopped. -- */
enum { KRI_TREE_BYTES = KRI_TREE_GRANULES * KRI_GRANULE };
void kri_base_push_locked(struct kri_heap *heap, struct kri_cell *c, unsigned k);
uint32_t kri_base_pop_batch_locked(struct kri_heap *heap, unsigned k, uint32_t most, struct kri_cell **first, struct kri_cell **last);
void kri_base_splice_locked(struct kri_heap *heap, unsigned k, const struct kri_free_list *found);
struct kri_cell *kri_base_split_locked(struct kri_heap *heap, struct kri_cell *node, unsigned m, unsigned k);
struct kri_cell *kri_base_take_locked(struct kri_heap *heap, unsigned k);
/* Sweep the next chunk, which unlocks meanwhile; false: none is left. */
bool kri_base_sweep_one_locked(struct kri_heap *heap);
/* Chunks and large objects (OBJECT_BYTES not 0), registered and counted, up to LIMIT. */
struct kri_chunk *kri_base_map_locked(struct kri_heap *heap, size_t limit, size_t object_bytes);
void kri_base_unmap_locked(struct kri_heap *heap, struct kri_chunk *c);
bool kri_base_grow_locked(struct kri_heap *heap, size_t limit);
bool kri_within_limit(const struct kri_heap *heap, size_t limit, size_t bytes);
size_t kri_limit_for(const struct kri_worker *w);
void kri_base_open_reserve(struct kri_heap *heap, bool large);
/* The right part of a node of index K. */
static inline unsigned kri_right_index(unsigned k) { return k >= 2 ? k - 2 : 0; }
/* Statistics: only their owner writes them, so this needs no atomic addition; readers may see the old number. */
static inline void kri_add_relaxed(kri_atomic *p, size_t n) { kri_store_relaxed(p, kri_load_relaxed(p) + n); }
static inline void kri_count_handed(struct kri_local_base *b, unsigned index, size_t n) { kri_add_relaxed(&b->handed[index], n); }

/* -- heap_local.c: the local bases; by their owner -- */
/* The bytes of a cell of index K, and of the block that may lie behind it. */
static const uint16_t kri_strip_cell[KRI_LOCAL_SIZES] = {0, 48, 72, 120, 192, 312}, kri_strip_rest[KRI_LOCAL_SIZES] = {0, 24, 48, 72, 120, 192};

/* The next cell of a strip that has one. */
static inline struct kri_cell *kri_strip_cut(struct kri_strip *s, unsigned k)
{
    struct kri_cell *c = (struct kri_cell *)s->at;
    s->at += kri_strip_cell[k] + (((size_t)*s->step++ - 1) & kri_strip_rest[k]);
    return c;
}
void kri_local_limit_locked(struct kri_heap *heap);
/* A serve function (heap.c): fetches for W's base the first block to be carved into granules, or nodes for kri_local_cut. */
struct kri_cell *kri_local_serve(struct kri_worker *w, unsigned k);
struct kri_cell *kri_local_cut(struct kri_worker *w, struct kri_cell *nodes, unsigned k);
struct kri_cell *kri_open_run(struct kri_worker *w, struct kri_cell *node, char **run, char **run_end);
struct kri_cell *kri_take_as_reader(struct kri_worker *w, unsigned k);
void kri_spell_word(uint8_t *word, size_t size);

#endif
