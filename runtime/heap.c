/* heap.c -- the global buddy base, the local ones of the workers, and the policies between them.
 *
 * A request goes the first way that serves it: the worker's own base (inline in heap.h, or kri_alloc below); a refill of
 * that in bulk from the global base; sweeping one chunk after the other into the global base; another chunk from the system,
 * if the policy allows; a collection; another chunk whatever the policy says; NULL.
 *
 * Note [growth]. A collection is due when `budget` bytes were handed out since the last one and the heap is used up. The budget
 * is at least the live memory (so that marking is paid for by as much allocation) and at least the initial size for each worker
 * that allocates, up to the number of cores: twice the threads do not collect twice as often. `factor` raises
 * it while collections take more than 30 % of the time: up to five times the live memory for small heaps, whose peak is of no
 * concern, a tenth for big ones. A heap in fragments grows all the same until it can hand out its budget. */
#define _GNU_SOURCE
#include <assert.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/heap_private.h"

const uint32_t kri_fib[KRI_CHUNK_INDEX + 1] = {
    1,   2,   3,   5,    8,    13,   21,   34,   55,    89,    144,   233,
    377, 610, 987, 1597, 2584, 4181, 6765, 10946, 17711, 28657, 46368, 75025,
};

enum {
    INITIAL_BYTES = 16 << 20,
    TREE_BYTES = KRI_TREE_GRANULES * KRI_GRANULE,
    REFILL_NODES = 64,             /* at most, so that base_lock is held briefly */
    STRESS_RUN = 4,                /* index of the runs in stress mode: 8 granules */
    STRESS_CELLS = 2,
    STRIP_CELLS = 16,              /* smaller nodes are cut into a list */
    BIG_BUDGET = 64 << 20,         /* beyond this the peak matters */
    RELEASE_CHUNKS = 256,          /* given back by one collection: bounds its pause */
    WITHHELD_BYTES = 128 << 10,    /* kept back where no chunk can be; the largest blocks for it */
    WITHHELD_INDEX = 16,
};
#define SHARE_HIGH 0.30
#define SHARE_LOW 0.12
#define FACTOR_MOST 5.0
#define FACTOR_BIG 1.07 /* (1 + 1.07) x 2 MB / 1.8 MB, and the rest of the process: the peak stays below 2.5 times the live memory */

/* The paper's quotas, in cells; what adaptation may raise them to. Runs count in granules. */
static const uint32_t quota_first[KRI_LOCAL_SIZES] = {500, 300, 20, 15, 10, 5};
static const uint32_t quota_most[KRI_LOCAL_SIZES] = {10946, 1200, 400, 240, 150, 90};

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

/* ---- the global base; callers hold base_lock or have the world stopped ---- */

static void push_locked(struct kri_heap *heap, struct kri_cell *c, unsigned k)
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
static uint32_t pop_batch_locked(struct kri_heap *heap, unsigned k, uint32_t most, struct kri_cell **first, struct kri_cell **last)
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
static void splice_locked(struct kri_heap *heap, unsigned k, const struct kri_free_list *found)
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
static unsigned right_index(unsigned k) { return k >= 2 ? k - 2 : 0; }

/* A free block of index K, split off NODE of index M; the other parts go to the base. */
static struct kri_cell *split_locked(struct kri_heap *heap, struct kri_cell *node, unsigned m, unsigned k)
{
    while (m > k) {
        struct kri_cell *right = granule_at(node, kri_fib[m - 1]);
        if (right_index(m) == k && m >= 2) { /* the right part fits: keep the left one whole */
            push_locked(heap, node, m - 1);
            return right;
        }
        push_locked(heap, right, right_index(m));
        m--;
    }
    return node;
}

/* A block of index K from the smallest sufficient one. It has no header yet. */
static struct kri_cell *take_block_locked(struct kri_heap *heap, unsigned k)
{
    uint32_t bits = heap->base_bits >> k << k;
    unsigned m;

    if (!bits)
        return NULL;
    m = (unsigned)__builtin_ctz(bits);
    return split_locked(heap, pop_locked(heap, m), m, k);
}

/* Statistics: only their owner writes them, so this needs no atomic addition; readers may see the old number. */
static void add_relaxed(kri_atomic *p, size_t n) { kri_store_relaxed(p, kri_load_relaxed(p) + n); }
static void count_handed(struct kri_local_base *b, unsigned index, size_t n) { add_relaxed(&b->handed[index], n); }

/* ---- local bases ---- */

static struct kri_cell **lists_of(struct kri_worker *w)
{
    return w->heap->config.discipline == KRI_ALLOC_RWLOCK ? w->gc->base.hidden_free : w->free;
}

/* How many cells to fetch: twice as many at each refill of one collection's span, so that a worker with a need comes
 * rarely; half as many after a span without any, so that one without hoards nothing. */
static uint32_t quota_for(struct kri_worker *w, unsigned k)
{
    struct kri_local_base *b = &w->gc->base;
    struct kri_heap *heap = w->heap;
    uint64_t epoch = kri_load_relaxed(&heap->collections);
    uint32_t most = heap->local_limit / KRI_LOCAL_SIZES / kri_fib[k];

    if (heap->config.stress)
        return k ? STRESS_CELLS : kri_fib[STRESS_RUN];
    if (k == 0)
        most = heap->local_limit / 2;
    if (most > quota_most[k])
        most = quota_most[k];
    if (b->epoch != epoch) {
        for (unsigned i = 0; i < KRI_LOCAL_SIZES; i++) {
            if (b->refills[i] == 0 && b->quota[i] / 2 >= quota_first[i])
                b->quota[i] /= 2;
            b->refills[i] = 0;
        }
        b->epoch = epoch;
    }
    if (b->refills[k]++ && b->quota[k] * 2 <= most)
        b->quota[k] *= 2;
    if (b->quota[k] > most)
        b->quota[k] = most > 1 ? most : 1;
    return b->quota[k];
}

/* Fetch blocks to be carved into one-granule cells, the smallest first: they fill the holes, and large blocks stay for large
 * requests. False: the base is empty. */
static bool refill_runs_locked(struct kri_worker *w, uint32_t quota)
{
    struct kri_heap *heap = w->heap;
    struct kri_cell *first = NULL, *last = NULL;
    uint32_t got = 0;

    for (unsigned n = 0; n < REFILL_NODES && got < quota && heap->base_bits; n++) {
        unsigned m = (unsigned)__builtin_ctz(heap->base_bits), k = m;
        struct kri_cell *c, *end;
        uint32_t blocks = pop_batch_locked(heap, m, (quota - got) / kri_fib[m], &c, &end);
        if (blocks == 1) {
            while (k > 0 && kri_fib[k] > quota - got)
                k--;
            c = end = split_locked(heap, c, m, k);
            kri_set_header(c, kri_header(KRI_CLASS_FREE, k, 0));
        }
        got += blocks * kri_fib[k];
        if (last)
            last->slot[0] = kri_value_of(c);
        else
            first = c;
        last = end;
    }
    if (!last)
        return false;
    last->slot[0] = kri_value_of(lists_of(w)[0]); /* not empty only if a collection's hooks allocated meanwhile */
    lists_of(w)[0] = first;
    count_handed(&w->gc->base, 0, got);
    heap->handed += (size_t)got * KRI_GRANULE;
    add_relaxed(&w->gc->base.held_granules, got);
    return true;
}

/* Cells of index K in a node of index M, when as much as possible becomes such cells. */
static uint32_t cells_within(unsigned m, unsigned k) { return m == k ? 1 : kri_fib[m - k - 1]; }

/* Note [Fibonacci word]. A node cut into as many blocks of one index K as possible, the rest being of index K-1, has these lie in
 * the order of the letters of the Fibonacci word abaababa... (each node's word is its left part's followed by its right
 * part's), of which every node has a prefix. So a node is cut in one pass, without descending it. Moreover the word is its own
 * image when each a becomes ab and each b becomes a: so its i-th letter also tells whether the i-th a has a b behind it, and
 * whether there are two a's between the i-th b and the next. So cells are cut off one by one, and the rests found without
 * looking at what lies between them. */
static void spell_word(uint8_t *word, size_t size)
{
    size_t n = 2, before = 1; /* "ab", and the length of the word before it */

    word[0] = 0;
    word[1] = 1;
    while (n < size) {
        size_t add = before < size - n ? before : size - n;
        memcpy(word + n, word, add);
        before = n;
        n += add;
    }
}

/* All of NODE becomes blocks of index K, appended to CELLS in address order, and what is left over goes to REST. */
static void cut_node(const struct kri_heap *heap, struct kri_cell *node, unsigned m, unsigned k, struct kri_free_list *cells,
                     struct kri_free_list *rest)
{
    uint32_t letters = kri_fib[m - k];
    const uint64_t cell = kri_header(KRI_CLASS_FREE, k, 0), left = kri_header(KRI_CLASS_FREE, k - 1, 0);
    const size_t cell_bytes = kri_block_bytes(k), left_bytes = kri_block_bytes(k - 1);
    char *at = (char *)node;

    assert(letters <= KRI_WORD_LETTERS);
    for (uint32_t i = 0; i < letters; i++) {
        struct kri_cell *c = (struct kri_cell *)at;
        if (heap->word[i]) {
            kri_set_header(c, left);
            kri_list_append(rest, c);
            at += left_bytes;
        } else {
            kri_set_header(c, cell);
            kri_list_append(cells, c);
            at += cell_bytes;
        }
    }
}

/* The bytes of a cell of index K, and of the block that may lie behind it. */
static const uint16_t strip_cell[KRI_LOCAL_SIZES] = {0, 48, 72, 120, 192, 312}, strip_rest[KRI_LOCAL_SIZES] = {0, 24, 48, 72, 120, 192};

/* The next cell of a strip that has one. */
static inline struct kri_cell *cut_off(struct kri_strip *s, unsigned k)
{
    struct kri_cell *c = (struct kri_cell *)s->at;
    s->at += strip_cell[k] + (((size_t)*s->step++ - 1) & strip_rest[k]);
    return c;
}

/* NODE becomes W's strip for index K; what is left over goes to REST. Returns the number of cells. */
static uint32_t open_strip(struct kri_worker *w, struct kri_cell *node, unsigned m, unsigned k, struct kri_free_list *rest)
{
    const uint8_t *word = w->heap->word;
    const uint64_t header = kri_header(KRI_CLASS_FREE, k - 1, 0);
    uint32_t cells = cells_within(m, k), rests = m > k ? kri_fib[m - k] - cells : 0;
    char *at = (char *)node + strip_cell[k];

    assert(cells <= KRI_WORD_LETTERS);
    w->strip[k] = (struct kri_strip){(char *)node, word, word + cells};
    for (uint32_t i = 0; i < rests; i++) {
        kri_set_header((struct kri_cell *)at, header);
        kri_list_append(rest, (struct kri_cell *)at);
        at += strip_rest[k] + (size_t)(2 - word[i]) * strip_cell[k];
    }
    return cells;
}

/* A strip's rests stay with the worker, who may want smaller cells as well, unless it has not used the last one's. */
static void keep_rest(struct kri_worker *w, unsigned k, struct kri_free_list *rest)
{
    struct kri_cell **list = &lists_of(w)[k];
    struct kri_heap *heap = w->heap;

    if (!rest->head)
        return;
    if (*list) {
        kri_base_lock(heap);
        splice_locked(heap, k, rest);
        heap->handed -= rest->count * kri_block_bytes(k);
        kri_base_unlock(heap);
        return;
    }
    *list = rest->head;
    count_handed(&w->gc->base, k, rest->count);
    add_relaxed(&w->gc->base.held_granules, rest->count * kri_fib[k]);
}

/* How many cells a node must give to become a strip. */
static uint32_t strip_least(const struct kri_heap *heap)
{
    if (heap->config.discipline == KRI_ALLOC_RWLOCK)
        return UINT32_MAX; /* the lists are hidden, a strip is not */
    return heap->config.stress ? 1 : STRIP_CELLS;
}

/* Nodes for about QUOTA cells of index K > 0, chained; none behind one that is large enough for a strip. NULL: none to be had.
 * Cutting them is left to their owner, outside the lock. */
static struct kri_cell *take_nodes_locked(struct kri_heap *heap, unsigned k, uint32_t quota)
{
    struct kri_cell *first = NULL, *last = NULL;
    uint32_t bits, cells = 0, least = strip_least(heap);
    bool strip = false;

    while (cells < quota && !strip && (bits = heap->base_bits >> k << k) != 0) {
        unsigned m = (unsigned)__builtin_ctz(bits), to = m;
        struct kri_cell *c, *end;
        uint32_t each = cells_within(m, k), blocks = pop_batch_locked(heap, m, each < least ? (quota - cells) / each : 1, &c, &end);
        if (blocks == 1) {
            while (to > k && cells_within(to, k) > quota - cells)
                to--;
            c = end = split_locked(heap, c, m, to);
            kri_set_header(c, kri_header(KRI_CLASS_FREE, to, 0));
        }
        end->slot[0] = KRI_NIL;
        if (last)
            last->slot[0] = kri_value_of(c);
        else
            first = c;
        last = end;
        heap->handed += blocks * kri_block_bytes(to);
        cells += blocks * cells_within(to, k);
        strip = blocks == 1 && cells_within(to, k) >= least;
    }
    return first;
}

/* W's nodes become a strip, or if they are small a list; the first cell of it is the caller's. */
static struct kri_cell *cut_nodes(struct kri_worker *w, struct kri_cell *nodes, unsigned k)
{
    struct kri_free_list cells = {0}, rest = {0};
    struct kri_cell **list = &lists_of(w)[k], *c, *next;
    struct kri_strip *s = &w->strip[k];
    uint32_t cut = 0, least = strip_least(w->heap);

    for (c = nodes; c; c = next) {
        next = kri_ptr(c->slot[0]);
        if (cells_within(c->buddy, k) >= least && s->step == s->end)
            cut = open_strip(w, c, c->buddy, k, &rest);
        else
            cut_node(w->heap, c, c->buddy, k, &cells, &rest);
    }
    cut += (uint32_t)cells.count;
    count_handed(&w->gc->base, k, cut);
    add_relaxed(&w->gc->base.held_granules, cut * kri_fib[k]);
    if (cells.count) {
        cells.tail->slot[0] = kri_value_of(*list);
        *list = cells.head;
    }
    keep_rest(w, k - 1, &rest);
    if (s->step != s->end)
        return cut_off(s, k);
    c = *list;
    *list = kri_ptr(c->slot[0]);
    return c;
}

/* The cells of a strip that were not cut off go to the base; returns how many. */
static size_t close_strip_locked(struct kri_worker *w, unsigned k)
{
    struct kri_strip *s = &w->strip[k];
    size_t n = (size_t)(s->end - s->step);

    while (s->step != s->end)
        push_locked(w->heap, cut_off(s, k), k);
    return n;
}

static void set_local_limit_locked(struct kri_heap *heap)
{
    size_t granules = heap->chunk_count * KRI_TREE_GRANULES / 10 / (heap->bases ? heap->bases : 1);
    heap->local_limit = granules > 60000 ? 60000 : granules < 512 ? 512 : (uint32_t)granules;
}

void kri_local_base_init(struct kri_worker *w)
{
    struct kri_local_base *b = &w->gc->base;

    kri_base_lock(w->heap);
    w->heap->bases++;
    set_local_limit_locked(w->heap);
    kri_base_unlock(w->heap);
    memset(b, 0, sizeof *b);
    memcpy(b->quota, quota_first, sizeof b->quota);
    w->run = w->run_end = NULL;
    memset(w->strip, 0, sizeof w->strip);
    memset(w->free, 0, sizeof w->free);
}

/* The part of the node (NODE, K) from FREE on, as maximal blocks to the base. */
static void close_node_locked(struct kri_heap *heap, char *node, unsigned k, const char *free)
{
    while (node < free) {
        char *right = node + kri_block_bytes(k - 1);
        if (k == 0 || node + kri_block_bytes(k) <= free)
            return;
        if (free < right) {
            push_locked(heap, (struct kri_cell *)right, right_index(k));
            k--;
        } else {
            node = right;
            k = right_index(k);
        }
    }
    push_locked(heap, (struct kri_cell *)node, k);
}

static size_t close_run_locked(struct kri_worker *w, char *run, char *run_end)
{
    if (run == run_end)
        return 0;
    close_node_locked(w->heap, w->gc->base.run_node, w->gc->base.run_index, run);
    return (size_t)(run_end - run) / KRI_GRANULE;
}

void kri_close_runs(struct kri_worker *w)
{
    struct kri_local_base *b = &w->gc->base;
    struct kri_heap *heap = w->heap;
    struct kri_cell **lists = lists_of(w);
    size_t granules;

    /* World stopped: nobody holds the lock. A worker that closes its own runs needs it. */
    kri_base_lock(heap);
    granules = close_run_locked(w, w->run, w->run_end) + close_run_locked(w, b->hidden_run, b->hidden_end);
    w->run = w->run_end = b->hidden_run = b->hidden_end = b->run_node = NULL;
    for (unsigned k = 0; k < KRI_LOCAL_SIZES; k++) {
        size_t n = k ? close_strip_locked(w, k) : 0;
        for (struct kri_cell *c = lists[k], *next; c; c = next) {
            next = kri_ptr(c->slot[0]);
            n += k ? 1 : kri_fib[c->buddy];
            push_locked(heap, c, c->buddy);
        }
        lists[k] = NULL;
        if (k)
            count_handed(b, k, -n);
        else
            granules += n;
    }
    count_handed(b, 0, -granules);
    kri_store_relaxed(&b->held_granules, 0);
    kri_base_unlock(heap);
}

void kri_local_base_finish(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;

    kri_close_runs(w);
    kri_base_lock(heap);
    heap->bases--;
    set_local_limit_locked(heap);
    for (unsigned k = 0; k <= KRI_SIZES; k++) {
        count_handed(&heap->retired, k, kri_load_relaxed(&w->gc->base.handed[k]));
        kri_store_relaxed(&w->gc->base.handed[k], 0);
    }
    add_relaxed(&heap->retired.large_bytes, kri_load_relaxed(&w->gc->base.large_bytes));
    kri_store_relaxed(&w->gc->base.large_bytes, 0);
    kri_base_unlock(heap);
}

/* ---- sweeping and growing; base_lock held at entry and exit ---- */

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

static bool sweep_one_locked(struct kri_heap *heap)
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
        push_locked(heap, kri_chunk_tree(c), KRI_CHUNK_INDEX);
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
        splice_locked(heap, k, &found[k]);
    return true;
}

bool kri_sweep_finish_step(struct kri_heap *heap)
{
    bool swept;
    kri_base_lock(heap);
    swept = sweep_one_locked(heap);
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

static bool within_limit(const struct kri_heap *heap, size_t limit, size_t bytes)
{
    return bytes <= limit && heap->heap_bytes <= limit - bytes;
}

/* How large the heap may become for W. */
static size_t limit_for(const struct kri_worker *w)
{
    size_t limit = w->heap->config.limit_bytes, own = w->gc->limit_bytes;
    return own && own < limit ? own : limit;
}

/* A new chunk or large object, registered and counted. NULL: the limit, or the system has no memory. */
static struct kri_chunk *map_locked(struct kri_heap *heap, size_t limit, size_t object_bytes)
{
    struct kri_chunk *c;

    if (!within_limit(heap, limit, object_bytes ? kri_large_mapping(object_bytes) : KRI_CHUNK_BYTES))
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

static void unmap_locked(struct kri_heap *heap, struct kri_chunk *c)
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
    set_local_limit_locked(heap);
    push_locked(heap, kri_chunk_tree(c), KRI_CHUNK_INDEX);
}

static bool grow_locked(struct kri_heap *heap, size_t limit)
{
    struct kri_chunk *c = map_locked(heap, limit, 0);
    if (c)
        add_chunk_locked(heap, c);
    return c != NULL;
}

bool kri_heap_retire_chunks_stw(struct kri_heap *heap)
{
    struct kri_chunk *chunks = heap->chunks, *fresh;

    kri_base_lock(heap);
    heap->chunks = NULL; /* the next one is the first again, and a small program stays small */
    fresh = map_locked(heap, heap->config.limit_bytes, 0);
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
    for (size_t got = 0; got < bytes && grown; got += TREE_BYTES)
        grown = grow_locked(heap, limit_for(w));
    kri_base_unlock(heap);
    return grown;
}

/* The program is about to be told that memory is out. It may want to say so: the reserve is for that. Where a LARGE object
 * was wanted there may be room enough for words. */
static void open_reserve(struct kri_heap *heap, bool large)
{
    kri_base_lock(heap);
    if (heap->reserve && !(large && (heap->base_bits || heap->unswept))) {
        add_chunk_locked(heap, heap->reserve);
        heap->reserve = NULL;
    }
    heap->withholding = false; /* until the next collection */
    if (heap->withheld_bytes && !(large && (heap->base_bits || heap->unswept))) {
        for (unsigned k = 0; k < KRI_SIZES; k++)
            splice_locked(heap, k, &heap->withheld[k]);
        forget_withheld(heap);
    }
    kri_base_unlock(heap);
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
    may = within_limit(heap, limit_for(w), bytes);
    kri_base_unlock(heap);
    return may;
}

/* A heap at its limit that is all but full would collect for every few cells: it counts as full. */
static bool starved(const struct kri_worker *w)
{
    const struct kri_heap *heap = w->heap;
    return heap->chunk_count * TREE_BYTES < heap->live_small + limit_for(w) / 64;
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
        if (sweep_one_locked(heap) || ((beyond || heap->handed < heap->budget) && grow_locked(heap, limit_for(w))))
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
            open_reserve(heap, false);
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
    struct kri_cell *c = take_block_locked(w->heap, k);
    if (c) {
        count_handed(&w->gc->base, k, 1);
        w->heap->handed += kri_block_bytes(k);
    }
    return c;
}

/* Fetches for the local base: the first block to be carved into granules, or nodes to be cut into cells of index K. */
static struct kri_cell *serve_local(struct kri_worker *w, unsigned k)
{
    uint32_t quota = quota_for(w, k);
    struct kri_cell **list = &lists_of(w)[0], *c;

    if (k)
        return take_nodes_locked(w->heap, k, quota);
    if (!refill_runs_locked(w, quota))
        return NULL;
    c = *list;
    *list = kri_ptr(c->slot[0]);
    return c;
}

/* Begin to carve NODE: its first granule is the caller's. A run that a collection's hooks left open is closed first. */
static struct kri_cell *open_run(struct kri_worker *w, struct kri_cell *node, char **run, char **run_end)
{
    if (KRI_UNLIKELY(*run != *run_end)) {
        kri_base_lock(w->heap);
        size_t n = close_run_locked(w, *run, *run_end);
        kri_base_unlock(w->heap);
        count_handed(&w->gc->base, 0, -n);
    }
    w->gc->base.run_node = (char *)node;
    w->gc->base.run_index = node->buddy;
    *run_end = (char *)node + kri_block_bytes(node->buddy);
    *run = (char *)node + KRI_GRANULE;
    return node;
}

/* Discipline rwlock: from the hidden base, each cell within the reader lock, which keeps the collector away as the gate
 * does otherwise. NULL: the list is empty. */
static struct kri_cell *take_as_reader(struct kri_worker *w, unsigned k)
{
    struct kri_local_base *b = &w->gc->base;
    struct kri_cell *c = NULL;

    pthread_rwlock_rdlock(&w->heap->discipline_lock);
    if (k == 0 && b->hidden_run != b->hidden_end) {
        c = (struct kri_cell *)b->hidden_run;
        b->hidden_run += KRI_GRANULE;
    } else if ((c = b->hidden_free[k]) != NULL) {
        b->hidden_free[k] = kri_ptr(c->slot[0]);
        if (k == 0)
            c = open_run(w, c, &b->hidden_run, &b->hidden_end);
    }
    pthread_rwlock_unlock(&w->heap->discipline_lock);
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
        if ((c = take_as_reader(w, k)) != NULL)
            return c;
        c = obtain(w, k, serve_local);
        if (!c)
            return NULL;
        return k ? cut_nodes(w, c, k) : open_run(w, c, &b->hidden_run, &b->hidden_end);
    default:
        c = obtain(w, k, serve_local);
        if (!c)
            return NULL;
        return k ? cut_nodes(w, c, k) : open_run(w, c, &w->run, &w->run_end);
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
    return open_run(w, c, &w->run, &w->run_end);
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
        c = map_locked(heap, limit_for(w), bytes);
    if (c) {
        c->next = heap->large;
        heap->large = c;
        heap->large_count++;
        heap->handed += c->mapped;
        heap->handed_large += c->mapped;
        count_handed(&w->gc->base, KRI_SIZES, 1);
        add_relaxed(&w->gc->base.large_bytes, bytes);
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
    if (mapping > limit_for(w))
        return NULL;
    while ((c = map_large(w, bytes, collected)) == NULL) {
        if (at_limit) {
            open_reserve(heap, true);
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
        c = cut_off(s, k);
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
            unmap_locked(heap, c);
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
    size_t need = (size_t)(heap->live_bytes + heap->budget + heap->budget / 4) / TREE_BYTES + 1;
    size_t give = heap->chunk_count > need ? (heap->chunk_count - need + 1) / 2 : 0;

    if (give > RELEASE_CHUNKS)
        give = RELEASE_CHUNKS;
    if (heap->wanted && !within_limit(heap, heap->config.limit_bytes, heap->wanted)) {
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
        unmap_locked(heap, c);
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
    set_local_limit_locked(heap);
    heap->handed = heap->handed_large = 0;
    heap->wanted = 0;
    record->live_bytes = live_bytes + heap->permanent_bytes;
    record->heap_bytes = heap->heap_bytes;
    record->freed_chunks = heap->freed_chunks;
    kri_base_unlock(heap);
}

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

/* ---- life ---- */

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
    spell_word(heap->word, KRI_WORD_LETTERS);
    heap->layouts = kri_system_map(LAYOUTS * sizeof *heap->layouts, 0);
    if (!heap->layouts)
        goto fail_layouts;
    set_local_limit_locked(heap);
    if (heap->config.limit_bytes >= 2 * KRI_CHUNK_BYTES) /* a smaller heap goes without */
        heap->reserve = map_locked(heap, heap->config.limit_bytes, 0);
    if (!grow_locked(heap, heap->config.limit_bytes)) /* a limit below one chunk is no heap */
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
        unmap_locked(heap, heap->reserve);
    if (heap->chunks)
        unmap_locked(heap, heap->chunks);
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
        unmap_locked(heap, c);
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
        unmap_locked(heap, heap->reserve);
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
