/* heap_base.c -- the global buddy base: free blocks by size, chunks that are swept into it, that come from the system and go back,
 * and how large the heap becomes. What ends in _locked is called with base_lock held or the world stopped.
 *
 * Note [growth]. A collection is due when `budget` bytes were handed out since the last one and the heap is used up. The budget
 * is at least the live memory (so that marking is paid for by as much allocation) and at least the initial size for each worker
 * that allocates, up to the number of cores: twice the threads do not collect twice as often. `factor` raises
 * it while collections take more than 30 % of the time: up to five times the live memory for small heaps, whose peak is of no
 * concern, a tenth for big ones. A heap in fragments grows all the same until it can hand out its budget. */
#include <string.h>
#include "runtime/heap_private.h"

enum {
    BIG_BUDGET = 64 << 20,         /* beyond this the peak matters */
    RELEASE_CHUNKS = 256,          /* given back by one collection: bounds its pause */
    WITHHELD_BYTES = 128 << 10,    /* kept back where no chunk can be; the largest blocks for it */
    WITHHELD_INDEX = 16,
};
#define SHARE_HIGH 0.30
#define SHARE_LOW 0.12
#define FACTOR_MOST 5.0
#define FACTOR_BIG 1.07 /* (1 + 1.07) x 2 MB / 1.8 MB, and the rest of the process: the peak stays below 2.5 times the live memory */

/* ---- free blocks ---- */

void kri_base_push_locked(struct kri_heap *heap, struct kri_cell *c, unsigned k)
{
    struct kri_free_list *l = &heap->base[k];

    kri_set_header(c, kri_header(KRI_CLASS_FREE, k, 0));
    c->slot[0] = kri_value_of(l->head);
    if (!l->head)
        l->tail = c;
    l->head = c;
    l->count++;
    heap->base_bits |= 1u << k;
}

static struct kri_cell *pop_locked(struct kri_heap *heap, unsigned k)
{
    struct kri_cell *c = kri_list_pop(&heap->base[k]);

    if (!heap->base[k].head)
        heap->base_bits &= ~(1u << k);
    return c;
}

/* The first blocks of index K, which there are: a batch if it has no more than MOST blocks, else one. They are linked, and *LAST is
 * the last, which has its header. Returns how many. */
uint32_t kri_base_pop_batch_locked(struct kri_heap *heap, unsigned k, uint32_t most, struct kri_cell **first, struct kri_cell **last)
{
    struct kri_free_list *l = &heap->base[k];
    uint32_t n = l->head->length;

    if (n <= 1 || n > most) {
        *first = *last = pop_locked(heap, k);
        return 1;
    }
    *first = l->head;
    *last = kri_ptr(l->head->slot[1]);
    l->head = kri_ptr((*last)->slot[0]);
    l->count -= n;
    if (!l->head) {
        l->tail = NULL;
        heap->base_bits &= ~(1u << k);
    }
    return n;
}

/* The list FOUND of index K goes to the base. */
void kri_base_splice_locked(struct kri_heap *heap, unsigned k, const struct kri_free_list *found)
{
    struct kri_free_list *l = &heap->base[k];

    if (!found->head)
        return;
    found->tail->slot[0] = kri_value_of(l->head);
    if (!l->head)
        l->tail = found->tail;
    l->head = found->head;
    l->count += found->count;
    heap->base_bits |= 1u << k;
}

static struct kri_cell *granule_at(struct kri_cell *node, uint32_t offset)
{
    return (struct kri_cell *)((char *)node + (size_t)offset * KRI_GRANULE);
}
/* A free block of index K, split off NODE of index M; the other parts go to the base. */
struct kri_cell *kri_base_split_locked(struct kri_heap *heap, struct kri_cell *node, unsigned m, unsigned k)
{
    while (m > k) {
        struct kri_cell *right = granule_at(node, kri_fib[m - 1]);
        if (kri_right_index(m) == k && m >= 2) { /* the right part fits: keep the left one whole */
            kri_base_push_locked(heap, node, m - 1);
            return right;
        }
        kri_base_push_locked(heap, right, kri_right_index(m));
        m--;
    }
    return node;
}

/* A block of index K from the smallest sufficient one. It has no header yet. */
struct kri_cell *kri_base_take_locked(struct kri_heap *heap, unsigned k)
{
    uint32_t bits = heap->base_bits >> k << k;
    unsigned m;

    if (!bits)
        return NULL;
    m = (unsigned)__builtin_ctz(bits);
    return kri_base_split_locked(heap, pop_locked(heap, m), m, k);
}

/* ---- sweeping and growing ---- */

/* Without a chunk in reserve (each holds something that lives) some of the free blocks are kept back in its stead: the largest
 * that are no larger than needed, so that the last words of a full heap find room. */
static void withhold_locked(struct kri_heap *heap, struct kri_free_list *found)
{
    size_t want = heap->config.limit_bytes / 64 < WITHHELD_BYTES ? heap->config.limit_bytes / 64 : WITHHELD_BYTES;

    for (unsigned k = WITHHELD_INDEX + 1; k-- > 0;) {
        struct kri_free_list *f = &found[k];
        while (f->head && heap->withheld_bytes < want) {
            struct kri_cell *c = kri_list_pop(f);
            kri_set_header(c, kri_header(KRI_CLASS_FREE, k, 0));
            kri_list_append(&heap->withheld[k], c);
            heap->withheld_bytes += kri_block_bytes(k);
        }
    }
}

static void forget_withheld(struct kri_heap *heap)
{
    memset(heap->withheld, 0, sizeof heap->withheld);
    heap->withheld_bytes = 0;
}

bool kri_base_sweep_one_locked(struct kri_heap *heap)
{
    struct kri_chunk *c = heap->unswept;
    struct kri_free_list found[KRI_SIZES] = {0};
    uint64_t before;

    if (!c)
        return false;
    heap->unswept = c->next_unswept;
    c->next_unswept = NULL;
    if (!c->touched) { /* all free: one block, no time */
        c->state = KRI_CHUNK_SWEPT;
        kri_base_push_locked(heap, kri_chunk_tree(c), KRI_CHUNK_INDEX);
        return true;
    }
    heap->sweeping++;
    kri_base_unlock(heap);
    before = kri_system_now();
    kri_sweep_chunk(c, found);
    kri_fetch_add(&heap->sweep_ns, kri_system_now() - before);
    kri_base_lock(heap);
    heap->sweeping--;
    c->state = KRI_CHUNK_SWEPT;
    if (heap->withholding)
        withhold_locked(heap, found);
    for (unsigned k = 0; k < KRI_SIZES; k++)
        kri_base_splice_locked(heap, k, &found[k]);
    return true;
}

bool kri_sweep_finish_step(struct kri_heap *heap)
{
    bool swept;
    kri_base_lock(heap);
    swept = kri_base_sweep_one_locked(heap);
    kri_base_unlock(heap);
    return swept;
}

void kri_sweep_finish_all(struct kri_heap *heap)
{
    while (kri_sweep_finish_step(heap))
        ;
}

static void count_mapping_locked(struct kri_heap *heap, const struct kri_chunk *c)
{
    heap->heap_bytes += c->mapped;
    if (heap->heap_bytes > heap->peak_bytes)
        heap->peak_bytes = heap->heap_bytes;
}

bool kri_within_limit(const struct kri_heap *heap, size_t limit, size_t bytes)
{
    return bytes <= limit && heap->heap_bytes <= limit - bytes;
}

/* How large the heap may become for W. */
size_t kri_limit_for(const struct kri_worker *w)
{
    size_t limit = w->heap->config.limit_bytes, own = w->gc->limit_bytes;
    return own && own < limit ? own : limit;
}

/* A new chunk or large object, registered and counted. NULL: the limit, or the system has no memory. */
struct kri_chunk *kri_base_map_locked(struct kri_heap *heap, size_t limit, size_t object_bytes)
{
    struct kri_chunk *c;

    if (!kri_within_limit(heap, limit, object_bytes ? kri_large_mapping(object_bytes) : KRI_CHUNK_BYTES))
        return NULL;
    c = kri_chunk_map(heap, object_bytes);
    if (!c)
        return NULL;
    if (!kri_chunk_register(&heap->table, c)) {
        kri_chunk_unmap(c);
        return NULL;
    }
    count_mapping_locked(heap, c);
    return c;
}

void kri_base_unmap_locked(struct kri_heap *heap, struct kri_chunk *c)
{
    kri_chunk_unregister(&heap->table, c);
    heap->heap_bytes -= c->mapped;
    kri_chunk_unmap(c);
}

/* CHUNK, wholly free and in no list, begins to serve. */
static void add_chunk_locked(struct kri_heap *heap, struct kri_chunk *c)
{
    c->next = heap->chunks;
    heap->chunks = c;
    heap->chunk_count++;
    kri_local_limit_locked(heap);
    kri_base_push_locked(heap, kri_chunk_tree(c), KRI_CHUNK_INDEX);
}

bool kri_base_grow_locked(struct kri_heap *heap, size_t limit)
{
    struct kri_chunk *c = kri_base_map_locked(heap, limit, 0);
    if (c)
        add_chunk_locked(heap, c);
    return c != NULL;
}

bool kri_heap_retire_chunks_stw(struct kri_heap *heap)
{
    struct kri_chunk *chunks = heap->chunks, *fresh;

    kri_base_lock(heap);
    heap->chunks = NULL; /* the next one is the first again, and a small program stays small */
    fresh = kri_base_map_locked(heap, heap->config.limit_bytes, 0);
    if (!fresh) {
        heap->chunks = chunks;
    } else {
        heap->permanent = chunks;
        heap->permanent_large = heap->large;
        heap->permanent_chunks = heap->chunk_count;
        heap->permanent_large_count = heap->large_count;
        heap->large = NULL;
        heap->chunk_count = heap->large_count = 0;
        memset(heap->base, 0, sizeof heap->base); /* the lists held free blocks of these chunks only */
        heap->base_bits = 0;
        forget_withheld(heap);
        heap->handed = heap->handed_large = 0;
        heap->live_bytes = heap->live_small = 0;
        add_chunk_locked(heap, fresh);
    }
    kri_base_unlock(heap);
    return fresh != NULL;
}

bool kri_heap_grow(struct kri_worker *w, size_t bytes)
{
    struct kri_heap *heap = w->heap;
    bool grown = true;

    kri_base_lock(heap);
    for (size_t got = 0; got < bytes && grown; got += KRI_TREE_BYTES)
        grown = kri_base_grow_locked(heap, kri_limit_for(w));
    kri_base_unlock(heap);
    return grown;
}

/* The program is about to be told that memory is out. It may want to say so: the reserve is for that. Where a LARGE object
 * was wanted there may be room enough for words. */
void kri_base_open_reserve(struct kri_heap *heap, bool large)
{
    kri_base_lock(heap);
    if (heap->reserve && !(large && (heap->base_bits || heap->unswept))) {
        add_chunk_locked(heap, heap->reserve);
        heap->reserve = NULL;
    }
    heap->withholding = false; /* until the next collection */
    if (heap->withheld_bytes && !(large && (heap->base_bits || heap->unswept))) {
        for (unsigned k = 0; k < KRI_SIZES; k++)
            kri_base_splice_locked(heap, k, &heap->withheld[k]);
        forget_withheld(heap);
    }
    kri_base_unlock(heap);
}

/* ---- after marking; world stopped ---- */

/* Free the large objects without a mark, clear the marks of the others, whose bytes are returned. */
static size_t sort_large_stw(struct kri_heap *heap)
{
    struct kri_chunk **at = &heap->large, *c;
    size_t bytes = 0;

    while ((c = *at) != NULL) {
        if (c->touched) {
            bytes += c->object_bytes;
            c->marks[0] = 0;
            c->touched = 0;
            at = &c->next;
        } else {
            *at = c->next;
            heap->large_count--;
            kri_base_unmap_locked(heap, c);
        }
    }
    return bytes;
}

/* How many workers came for more since the last collection; at least one, at most the cores there are. */
static unsigned allocating_stw(const struct kri_heap *heap)
{
    uint64_t epoch = kri_load_relaxed(&heap->collections);
    unsigned n = 0;

    for (const struct kri_worker *w = heap->workers; w; w = w->next)
        n += w->gc->base.epoch == epoch;
    return n < 1 ? 1 : n > heap->cores ? heap->cores : n;
}

/* See Note [growth]. */
static void set_budget_stw(struct kri_heap *heap, uint64_t pause_began)
{
    uint64_t now = kri_system_now(), swept = kri_load_relaxed(&heap->sweep_ns);
    double span = (double)(now - heap->last_end_ns);
    double share = ((double)(now - pause_began) + (double)(swept - heap->last_sweep_ns)) / (span > 1 ? span : 1);
    double live = (double)heap->live_bytes, budget, big = live * FACTOR_BIG;
    size_t least;

    if (share > SHARE_HIGH)
        heap->factor *= 1.25;
    else if (share < SHARE_LOW)
        heap->factor *= 0.9;
    heap->factor = heap->factor > FACTOR_MOST ? FACTOR_MOST : heap->factor < 1 ? 1 : heap->factor;
    big = big > BIG_BUDGET ? big : BIG_BUDGET;
    budget = live * heap->factor;
    heap->budget = (size_t)(budget < big ? budget : big);
    least = heap->config.initial_bytes * allocating_stw(heap);
    if (heap->budget < least)
        heap->budget = least;
    heap->last_end_ns = now;
    heap->last_sweep_ns = swept;
}

/* How many of EMPTY wholly free chunks go back to the system: half of what exceeds the budget with a quarter to spare; at the
 * limit, what a large object waits for. */
static size_t surplus_stw(const struct kri_heap *heap, size_t empty)
{
    size_t need = (size_t)(heap->live_bytes + heap->budget + heap->budget / 4) / KRI_TREE_BYTES + 1;
    size_t give = heap->chunk_count > need ? (heap->chunk_count - need + 1) / 2 : 0;

    if (give > RELEASE_CHUNKS)
        give = RELEASE_CHUNKS;
    if (heap->wanted && !kri_within_limit(heap, heap->config.limit_bytes, heap->wanted)) {
        size_t missing = heap->heap_bytes + heap->wanted - heap->config.limit_bytes;
        size_t chunks = (missing + KRI_CHUNK_BYTES - 1) / KRI_CHUNK_BYTES;
        give = chunks > give ? chunks : give;
    }
    if (give > empty)
        give = empty;
    return give < heap->chunk_count ? give : heap->chunk_count - 1; /* one stays for the small things */
}

/* Put an empty chunk aside, if none is and there is another. */
static void restore_reserve_stw(struct kri_heap *heap)
{
    struct kri_chunk **at = &heap->chunks, *c;

    if (heap->reserve || heap->chunk_count < 2)
        return;
    while ((c = *at) != NULL && c->touched)
        at = &c->next;
    if (!c)
        return;
    *at = c->next;
    heap->chunk_count--;
    heap->reserve = c;
    kri_set_header(kri_chunk_tree(c), kri_header(KRI_CLASS_FREE, KRI_CHUNK_INDEX, 0));
}

/* Unmap N empty chunks; there are as many. */
static void release_empty_stw(struct kri_heap *heap, size_t n)
{
    struct kri_chunk **at = &heap->chunks, *c;

    heap->freed_chunks = n;
    heap->chunk_count -= n;
    while (n > 0 && (c = *at) != NULL) {
        if (c->touched) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        kri_base_unmap_locked(heap, c);
        n--;
    }
}

/* Every chunk becomes unswept, those with live cells first: they fill up, and the empty ones stay for large requests or for
 * giving back. */
static void queue_chunks_stw(struct kri_heap *heap)
{
    struct kri_chunk *partial = NULL, *empty = NULL, **end = &heap->unswept;

    for (struct kri_chunk *c = heap->chunks; c; c = c->next) {
        struct kri_chunk **queue = c->touched ? &partial : &empty;
        c->state = KRI_CHUNK_UNSWEPT;
        c->next_unswept = *queue;
        *queue = c;
    }
    *end = partial;
    while (*end)
        end = &(*end)->next_unswept;
    *end = empty;
}

static size_t count_empty_stw(const struct kri_heap *heap)
{
    size_t n = 0;
    for (const struct kri_chunk *c = heap->chunks; c; c = c->next)
        n += !c->touched;
    return n;
}

void kri_heap_after_mark(struct kri_heap *heap, uint64_t live_bytes, struct kri_gc_record *record)
{
    kri_base_lock(heap); /* free now; for those who read statistics meanwhile */
    kri_shadow_take(heap);
    memset(heap->base, 0, sizeof heap->base);
    heap->base_bits = 0;
    forget_withheld(heap);
    heap->live_bytes = live_bytes;
    heap->live_small = live_bytes - sort_large_stw(heap);
    set_budget_stw(heap, record->at);
    restore_reserve_stw(heap);
    heap->withholding = !heap->reserve;
    release_empty_stw(heap, surplus_stw(heap, count_empty_stw(heap)));
    queue_chunks_stw(heap);
    kri_local_limit_locked(heap);
    heap->handed = heap->handed_large = 0;
    heap->wanted = 0;
    record->live_bytes = live_bytes + heap->permanent_bytes;
    record->heap_bytes = heap->heap_bytes;
    record->freed_chunks = heap->freed_chunks;
    kri_base_unlock(heap);
}
