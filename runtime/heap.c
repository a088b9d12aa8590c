/* heap.c -- allocation: the slow paths, and the heap's life.
 *
 * A request goes the first way that serves it: the worker's own base (inline in heap.h, or kri_alloc below); a refill of
 * that in bulk from the global base; sweeping one chunk after the other into the global base; another chunk from the system,
 * if the policy allows; a collection; another chunk whatever the policy says; NULL. */
#define _GNU_SOURCE
#include <assert.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/heap_private.h"

const uint32_t kri_fib[KRI_CHUNK_INDEX + 1] = {
    1,   2,   3,   5,    8,    13,   21,   34,   55,    89,    144,   233,
    377, 610, 987, 1597, 2584, 4181, 6765, 10946, 17711, 28657, 46368, 75025,
};

enum { INITIAL_BYTES = 16 << 20 };

/* ---- sizes ---- */

/* The index of the smallest block that holds a header and WORDS words. */
static unsigned index_of(size_t words)
{
    size_t granules = words / 3 + 1; /* (words + 1) / 3, rounded up */
    unsigned k = 0;
    while (k <= KRI_INDEX_MAX && kri_fib[k] < granules)
        k++;
    return k; /* KRI_INDEX_MAX + 1: large */
}

/* The same for the sizes of the local lists. */
enum { LOCAL_WORDS = 13 * 3 - 1 };
static const uint8_t local_index[LOCAL_WORDS + 1] = {
    0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
};

size_t kri_cell_bytes(const struct kri_cell *c)
{
    return c->buddy == KRI_BUDDY_LARGE ? kri_chunk_of(c)->object_bytes : kri_block_bytes(c->buddy);
}

/* ---- the slow paths ---- */

/* Stress mode: collects at every few calls. False: this request is to fail (kri_heap_fail). */
static bool stress(struct kri_worker *w)
{
    struct kri_local_base *b = &w->gc->base;

    if (++b->slow_count >= w->heap->config.stress) {
        b->slow_count = 0;
        kri_collect(w, KRI_GC_STRESS);
    }
    if (b->fail_after > 0) {
        b->fail_after--;
        return true;
    }
    if (b->fail_count == 0)
        return true;
    b->fail_count--;
    return false;
}

/* A guess when others allocate; the answer only chooses a collection's cause. */
static bool may_grow(struct kri_worker *w, size_t bytes)
{
    struct kri_heap *heap = w->heap;
    bool may;
    kri_base_lock(heap);
    may = kri_within_limit(heap, kri_limit_for(w), bytes);
    kri_base_unlock(heap);
    return may;
}

/* A heap at its limit that is all but full would collect for every few cells: it counts as full. */
static bool starved(const struct kri_worker *w)
{
    const struct kri_heap *heap = w->heap;
    return heap->chunk_count * KRI_TREE_BYTES < heap->live_small + kri_limit_for(w) / 64;
}

/* Take what SERVE takes from the global base, making that serve by sweeping, growing, collecting. SERVE is called with
 * base_lock held and returns NULL if the base has nothing for index K. */
typedef struct kri_cell *serve_function(struct kri_worker *w, unsigned k);

/* What SERVE finds, if need be in chunks yet to be swept or in a new one: beyond the budget only if BEYOND. */
static struct kri_cell *serve_or_grow(struct kri_worker *w, unsigned k, serve_function *serve, bool beyond)
{
    struct kri_heap *heap = w->heap;
    struct kri_cell *c;

    kri_base_lock(heap);
    for (;;) {
        c = serve(w, k);
        if (c)
            break;
        if (kri_base_sweep_one_locked(heap) || ((beyond || heap->handed < heap->budget) && kri_base_grow_locked(heap, kri_limit_for(w))))
            continue;
        if (!heap->sweeping)
            break;
        kri_base_unlock(heap); /* what another worker is sweeping may do */
        sched_yield();
        kri_base_lock(heap);
    }
    kri_base_unlock(heap);
    return c;
}

static struct kri_cell *obtain(struct kri_worker *w, unsigned k, serve_function *serve)
{
    struct kri_heap *heap = w->heap;
    bool collected = false, at_limit = false, full = false;

    if (KRI_UNLIKELY(kri_load_relaxed(&w->requests) & KRI_REQUEST_STOP))
        kri_gate_yield(w); /* a program that only allocates polls here */
    if (KRI_UNLIKELY(heap->config.stress) && !stress(w))
        return NULL;
    for (;;) {
        struct kri_cell *c = full ? NULL : serve_or_grow(w, k, serve, collected);
        if (c)
            return c;
        if (at_limit) {
            kri_base_open_reserve(heap, false);
            return NULL;
        }
        /* A collection for want of a budget may be somebody else's, who then takes all of it. Only the one at the limit is
         * ours for certain, so only after that we give up. */
        at_limit = collected || !may_grow(w, KRI_CHUNK_BYTES);
        kri_collect(w, at_limit ? KRI_GC_LIMIT : KRI_GC_ALLOCATION);
        collected = true;
        full = at_limit && starved(w);
    }
}

static struct kri_cell *serve_block(struct kri_worker *w, unsigned k)
{
    struct kri_cell *c = kri_base_take_locked(w->heap, k);
    if (c) {
        kri_count_handed(&w->gc->base, k, 1);
        w->heap->handed += kri_block_bytes(k);
    }
    return c;
}

/* One cell of a local size when the inline paths found none. */
static KRI_NOINLINE struct kri_cell *local_slow(struct kri_worker *w, unsigned k)
{
    struct kri_local_base *b = &w->gc->base;
    struct kri_cell *c;

    switch (w->heap->config.discipline) {
    case KRI_ALLOC_MUTEX:
        return obtain(w, k, serve_block);
    case KRI_ALLOC_RWLOCK:
        if ((c = kri_take_as_reader(w, k)) != NULL)
            return c;
        c = obtain(w, k, kri_local_serve);
        if (!c)
            return NULL;
        return k ? kri_local_cut(w, c, k) : kri_open_run(w, c, &b->hidden_run, &b->hidden_end);
    default:
        c = obtain(w, k, kri_local_serve);
        if (!c)
            return NULL;
        return k ? kri_local_cut(w, c, k) : kri_open_run(w, c, &w->run, &w->run_end);
    }
}

static struct kri_cell *granule_slow(struct kri_worker *w)
{
    struct kri_cell *c; /* from the blocks that wait to be carved; none under the disciplines that hide them */

    if (KRI_UNLIKELY(w->gc->forbidden))
        return NULL;
    if (KRI_UNLIKELY(w->heap->config.stress) && !stress(w))
        return NULL;
    c = w->free[0];
    if (KRI_UNLIKELY(!c))
        return local_slow(w, 0);
    w->free[0] = kri_ptr(c->slot[0]);
    if (c->buddy == 0 && w->run == w->run_end) { /* a strip's rest: no run */
        __builtin_prefetch(w->free[0], 1);
        return c;
    }
    return kri_open_run(w, c, &w->run, &w->run_end);
}

/* Somebody wants to know who allocates: BYTES were fetched. What is asked for each batch is asked in proportion to the bytes. */
static inline void watched(struct kri_worker *w, size_t bytes)
{
    if (KRI_UNLIKELY(kri_load_relaxed(&w->heap->watch)) && bytes)
        w->heap->hooks.allocated(w, bytes);
}

struct kri_cell *kri_alloc_granule_slow(struct kri_worker *w)
{
    struct kri_cell *c = granule_slow(w);
    if (c)
        watched(w, (size_t)(w->run_end - w->run) + KRI_GRANULE);
    return c;
}

void kri_heap_watch(struct kri_heap *heap, bool on) { kri_store_relaxed(&heap->watch, on); }

/* A large object of BYTES, counted; NULL: the budget is spent and it is not BEYOND, or the limit is reached. */
static struct kri_chunk *map_large(struct kri_worker *w, size_t bytes, bool beyond)
{
    struct kri_heap *heap = w->heap;
    struct kri_chunk *c = NULL;

    kri_base_lock(heap);
    if (beyond || heap->handed < heap->budget)
        c = kri_base_map_locked(heap, kri_limit_for(w), bytes);
    if (c) {
        c->next = heap->large;
        heap->large = c;
        heap->large_count++;
        heap->handed += c->mapped;
        heap->handed_large += c->mapped;
        kri_count_handed(&w->gc->base, KRI_SIZES, 1);
        kri_add_relaxed(&w->gc->base.large_bytes, bytes);
    } else {
        heap->wanted = kri_large_mapping(bytes);
    }
    kri_base_unlock(heap);
    return c;
}

/* A cell of more than kri_fib[KRI_INDEX_MAX] granules: a mapping of its own, zeroed by the system. */
static struct kri_cell *large_alloc(struct kri_worker *w, unsigned cls, uint32_t length, size_t words)
{
    struct kri_heap *heap = w->heap;
    size_t bytes = (words + 1) * KRI_WORD, mapping;
    struct kri_chunk *c;
    bool collected = false, at_limit = false;

    if (words > SIZE_MAX / KRI_WORD / 2)
        return NULL;
    mapping = kri_large_mapping(bytes);
    if (KRI_UNLIKELY(kri_load_relaxed(&w->requests) & KRI_REQUEST_STOP))
        kri_gate_yield(w);
    if (heap->config.stress && !stress(w))
        return NULL;
    if (mapping > kri_limit_for(w))
        return NULL;
    while ((c = map_large(w, bytes, collected)) == NULL) {
        if (at_limit) {
            kri_base_open_reserve(heap, true);
            return NULL;
        }
        at_limit = collected || !may_grow(w, mapping); /* as in obtain */
        kri_collect(w, at_limit ? KRI_GC_LIMIT : KRI_GC_ALLOCATION);
        collected = true;
    }
    kri_set_header(kri_chunk_tree(c), kri_header(cls, KRI_BUDDY_LARGE, length));
    return kri_chunk_tree(c);
}

/* A cell of a local size, if the inline paths have one. */
static inline struct kri_cell *take_local(struct kri_worker *w, unsigned k)
{
    struct kri_strip *s = &w->strip[k];
    struct kri_cell *c;

    if (k == 0) {
        c = (struct kri_cell *)w->run;
        if (w->run == w->run_end)
            return NULL;
        w->run += KRI_GRANULE;
    } else if (KRI_LIKELY(s->step != s->end)) {
        c = kri_strip_cut(s, k);
    } else if ((c = w->free[k]) != NULL) {
        w->free[k] = kri_ptr(c->slot[0]);
    }
    return c;
}

/* Clear the words of a block of a local size; if it is RAW, which the caller fills, only those that not every cell of that size has. */
static inline void clear_local(struct kri_cell *c, unsigned k, bool raw)
{
    switch (k) { /* constant sizes: the compiler makes a few stores of them */
    case 0:
        memset(c->slot, 0, 2 * KRI_WORD);
        break;
    case 1:
        memset(c->slot + (raw ? 3 : 0), 0, (raw ? 2 : 5) * KRI_WORD);
        break;
    case 2:
        memset(c->slot + (raw ? 6 : 0), 0, (raw ? 2 : 8) * KRI_WORD);
        break;
    case 3:
        memset(c->slot + (raw ? 9 : 0), 0, (raw ? 5 : 14) * KRI_WORD);
        break;
    case 4:
        memset(c->slot + (raw ? 15 : 0), 0, (raw ? 8 : 23) * KRI_WORD);
        break;
    default:
        memset(c->slot + (raw ? 24 : 0), 0, (raw ? 14 : 38) * KRI_WORD);
        break;
    }
}

static KRI_NOINLINE struct kri_cell *alloc_slow(struct kri_worker *w, unsigned cls, uint32_t length, size_t words, bool raw)
{
    unsigned k = words <= LOCAL_WORDS ? local_index[words] : index_of(words);
    struct kri_cell *c;

    if (KRI_UNLIKELY(w->gc->forbidden))
        return NULL;
    if (k > KRI_INDEX_MAX) {
        c = large_alloc(w, cls, length, words);
        if (c)
            watched(w, words * KRI_WORD);
        return c;
    }
    size_t handed = kri_load_relaxed(&w->gc->base.handed[k]);
    c = k == 0 ? kri_alloc_granule_slow(w) : k < KRI_LOCAL_SIZES ? local_slow(w, k) : obtain(w, k, serve_block);
    if (k && c)
        watched(w, (kri_load_relaxed(&w->gc->base.handed[k]) - handed) * kri_block_bytes(k));
    if (KRI_UNLIKELY(!c))
        return NULL;
    kri_set_header(c, kri_header(cls, k, length));
    if (raw)
        memset(c->slot + words, 0, kri_block_bytes(k) - (words + 1) * KRI_WORD);
    else
        memset(c->slot, 0, kri_block_bytes(k) - KRI_WORD);
    return c;
}

static inline struct kri_cell *alloc(struct kri_worker *w, unsigned cls, uint32_t length, size_t words, bool raw)
{
    if (KRI_LIKELY(words <= LOCAL_WORDS)) {
        unsigned k = local_index[words];
        struct kri_cell *c = take_local(w, k);
        if (KRI_LIKELY(c != NULL)) {
            kri_set_header(c, kri_header(cls, k, length));
            clear_local(c, k, raw);
            return c;
        }
    }
    return alloc_slow(w, cls, length, words, raw);
}

struct kri_cell *kri_alloc(struct kri_worker *w, unsigned cls, uint32_t length, size_t words)
{
    return alloc(w, cls, length, words, false);
}

struct kri_cell *kri_alloc_raw(struct kri_worker *w, unsigned cls, uint32_t length, size_t words)
{
    return alloc(w, cls, length, words, true);
}

/* ---- life ---- */

void kri_discipline_lock(struct kri_heap *heap)
{
    if (heap->config.discipline == KRI_ALLOC_RWLOCK)
        pthread_rwlock_wrlock(&heap->discipline_lock);
}

void kri_discipline_unlock(struct kri_heap *heap)
{
    if (heap->config.discipline == KRI_ALLOC_RWLOCK)
        pthread_rwlock_unlock(&heap->discipline_lock);
}

static void init_locks(struct kri_heap *heap)
{
    pthread_rwlockattr_t prefer_writer;
    pthread_mutexattr_t spin_first;

    pthread_mutexattr_init(&spin_first); /* it is held for less time than sleeping takes */
    pthread_mutexattr_settype(&spin_first, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&heap->base_lock, &spin_first);
    pthread_mutexattr_destroy(&spin_first);
    pthread_mutex_init(&heap->workers_lock, NULL);
    pthread_mutex_init(&heap->flags_lock, NULL);
    pthread_rwlockattr_init(&prefer_writer);
    pthread_rwlockattr_setkind_np(&prefer_writer, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&heap->discipline_lock, &prefer_writer);
    pthread_rwlockattr_destroy(&prefer_writer);
}

void kri_base_after_fork(struct kri_heap *heap)
{
    init_locks(heap);
}

static void fill_config(struct kri_heap_config *c)
{
    if (!c->limit_bytes)
        c->limit_bytes = kri_system_memory_bytes() / 4 * 3;
    if (!c->initial_bytes)
        c->initial_bytes = INITIAL_BYTES;
    if (c->initial_bytes > c->limit_bytes)
        c->initial_bytes = c->limit_bytes;
    if (!c->markers)
        c->markers = kri_system_cores();
}

enum { LAYOUTS = 65536 };

struct kri_heap *kri_heap_new(const struct kri_heap_config *config, const struct kri_heap_hooks *hooks, void *user)
{
    struct kri_heap *heap = kri_system_map(sizeof *heap, 0);
    const char *check = getenv("KR_GC_CHECK");

    if (!heap)
        return NULL;
    heap->config = *config;
    fill_config(&heap->config);
    heap->hooks = *hooks;
    heap->user = user;
    heap->cores = kri_system_cores();
    heap->check_each = check && *check && *check != '0';
    heap->factor = 1;
    heap->budget = heap->config.initial_bytes;
    heap->last_end_ns = kri_system_now();
    init_locks(heap);
    kri_spell_word(heap->word, KRI_WORD_LETTERS);
    heap->layouts = kri_system_map(LAYOUTS * sizeof *heap->layouts, 0);
    if (!heap->layouts)
        goto fail_layouts;
    kri_local_limit_locked(heap);
    if (heap->config.limit_bytes >= 2 * KRI_CHUNK_BYTES) /* a smaller heap goes without */
        heap->reserve = kri_base_map_locked(heap, heap->config.limit_bytes, 0);
    if (!kri_base_grow_locked(heap, heap->config.limit_bytes)) /* a limit below one chunk is no heap */
        goto fail_chunk;
    if (!kri_gate_init(heap))
        goto fail_chunk;
    if (!kri_mark_init(heap))
        goto fail_mark;
    return heap;

fail_mark:
    kri_gate_finish(heap);
fail_chunk:
    if (heap->reserve)
        kri_base_unmap_locked(heap, heap->reserve);
    if (heap->chunks)
        kri_base_unmap_locked(heap, heap->chunks);
    kri_chunk_table_free(&heap->table);
    kri_system_unmap(heap->layouts, LAYOUTS * sizeof *heap->layouts);
fail_layouts:
    kri_system_unmap(heap, sizeof *heap);
    return NULL;
}

static void unmap_all(struct kri_heap *heap, struct kri_chunk *list)
{
    for (struct kri_chunk *c = list, *next; c; c = next) {
        next = c->next;
        kri_base_unmap_locked(heap, c);
    }
}

void kri_heap_free(struct kri_heap *heap)
{
    kri_mark_finish(heap);
    kri_gate_finish(heap);
    unmap_all(heap, heap->chunks);
    unmap_all(heap, heap->large);
    unmap_all(heap, heap->permanent);
    unmap_all(heap, heap->permanent_large);
    kri_system_unmap(heap->log, heap->log_bytes);
    if (heap->reserve)
        kri_base_unmap_locked(heap, heap->reserve);
    kri_chunk_table_free(&heap->table);
    kri_system_unmap(heap->layouts, LAYOUTS * sizeof *heap->layouts);
    pthread_mutex_destroy(&heap->base_lock);
    pthread_mutex_destroy(&heap->workers_lock);
    pthread_mutex_destroy(&heap->flags_lock);
    pthread_rwlock_destroy(&heap->discipline_lock);
    kri_system_unmap(heap, sizeof *heap);
}

void *kri_heap_user(struct kri_heap *heap) { return heap->user; }
enum kri_discipline kri_heap_discipline(const struct kri_heap *heap) { return heap->config.discipline; }

void kri_heap_limit_worker(struct kri_worker *w, size_t bytes) { w->gc->limit_bytes = bytes; }

void kri_heap_forbid(struct kri_worker *w, bool forbidden)
{
    if (forbidden)
        kri_close_runs(w); /* so that every allocation takes the slow path, which looks */
    w->gc->forbidden = forbidden;
}

bool kri_heap_forbidden(const struct kri_worker *w) { return w->gc->forbidden; }
bool kri_heap_owns(struct kri_heap *heap, const void *address) { return kri_chunk_find(&heap->table, (uintptr_t)address) != NULL; }

void kri_heap_set_stress(struct kri_heap *heap, unsigned stress_every) { heap->config.stress = stress_every; }

bool kri_heap_fail(struct kri_worker *w, uint32_t after, uint32_t count)
{
    w->gc->base.fail_after = after;
    w->gc->base.fail_count = count;
    return w->heap->config.stress > 0;
}

struct kri_layout *kri_heap_layouts(struct kri_heap *heap) { return heap->layouts; }
