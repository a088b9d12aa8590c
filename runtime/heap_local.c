/* heap_local.c -- the local buddy bases of the workers: how much they fetch, and how nodes become cells.
 *
 * Owner only, or world stopped; what ends in _locked holds base_lock besides. */
#include <assert.h>
#include <string.h>
#include "runtime/heap_private.h"

enum {
    REFILL_NODES = 64,             /* at most, so that base_lock is held briefly */
    STRESS_RUN = 4,                /* index of the runs in stress mode: 8 granules */
    STRESS_CELLS = 2,
    STRIP_CELLS = 16,              /* smaller nodes are cut into a list */
};

/* The paper's quotas, in cells; what adaptation may raise them to. Runs count in granules. */
static const uint32_t quota_first[KRI_LOCAL_SIZES] = {500, 300, 20, 15, 10, 5};
static const uint32_t quota_most[KRI_LOCAL_SIZES] = {10946, 1200, 400, 240, 150, 90};

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
        uint32_t blocks = kri_base_pop_batch_locked(heap, m, (quota - got) / kri_fib[m], &c, &end);
        if (blocks == 1) {
            while (k > 0 && kri_fib[k] > quota - got)
                k--;
            c = end = kri_base_split_locked(heap, c, m, k);
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
    kri_count_handed(&w->gc->base, 0, got);
    heap->handed += (size_t)got * KRI_GRANULE;
    kri_add_relaxed(&w->gc->base.held_granules, got);
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
void kri_spell_word(uint8_t *word, size_t size)
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

/* NODE becomes W's strip for index K; what is left over goes to REST. Returns the number of cells. */
static uint32_t open_strip(struct kri_worker *w, struct kri_cell *node, unsigned m, unsigned k, struct kri_free_list *rest)
{
    const uint8_t *word = w->heap->word;
    const uint64_t header = kri_header(KRI_CLASS_FREE, k - 1, 0);
    uint32_t cells = cells_within(m, k), rests = m > k ? kri_fib[m - k] - cells : 0;
    char *at = (char *)node + kri_strip_cell[k];

    assert(cells <= KRI_WORD_LETTERS);
    w->strip[k] = (struct kri_strip){(char *)node, word, word + cells};
    for (uint32_t i = 0; i < rests; i++) {
        kri_set_header((struct kri_cell *)at, header);
        kri_list_append(rest, (struct kri_cell *)at);
        at += kri_strip_rest[k] + (size_t)(2 - word[i]) * kri_strip_cell[k];
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
        kri_base_splice_locked(heap, k, rest);
        heap->handed -= rest->count * kri_block_bytes(k);
        kri_base_unlock(heap);
        return;
    }
    *list = rest->head;
    kri_count_handed(&w->gc->base, k, rest->count);
    kri_add_relaxed(&w->gc->base.held_granules, rest->count * kri_fib[k]);
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
        uint32_t each = cells_within(m, k), blocks = kri_base_pop_batch_locked(heap, m, each < least ? (quota - cells) / each : 1, &c, &end);
        if (blocks == 1) {
            while (to > k && cells_within(to, k) > quota - cells)
                to--;
            c = end = kri_base_split_locked(heap, c, m, to);
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
struct kri_cell *kri_local_cut(struct kri_worker *w, struct kri_cell *nodes, unsigned k)
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
    kri_count_handed(&w->gc->base, k, cut);
    kri_add_relaxed(&w->gc->base.held_granules, cut * kri_fib[k]);
    if (cells.count) {
        cells.tail->slot[0] = kri_value_of(*list);
        *list = cells.head;
    }
    keep_rest(w, k - 1, &rest);
    if (s->step != s->end)
        return kri_strip_cut(s, k);
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
        kri_base_push_locked(w->heap, kri_strip_cut(s, k), k);
    return n;
}

void kri_local_limit_locked(struct kri_heap *heap)
{
    size_t granules = heap->chunk_count * KRI_TREE_GRANULES / 10 / (heap->bases ? heap->bases : 1);
    heap->local_limit = granules > 60000 ? 60000 : granules < 512 ? 512 : (uint32_t)granules;
}

void kri_local_base_init(struct kri_worker *w)
{
    struct kri_local_base *b = &w->gc->base;

    kri_base_lock(w->heap);
    w->heap->bases++;
    kri_local_limit_locked(w->heap);
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
            kri_base_push_locked(heap, (struct kri_cell *)right, kri_right_index(k));
            k--;
        } else {
            node = right;
            k = kri_right_index(k);
        }
    }
    kri_base_push_locked(heap, (struct kri_cell *)node, k);
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
            kri_base_push_locked(heap, c, c->buddy);
        }
        lists[k] = NULL;
        if (k)
            kri_count_handed(b, k, -n);
        else
            granules += n;
    }
    kri_count_handed(b, 0, -granules);
    kri_store_relaxed(&b->held_granules, 0);
    kri_base_unlock(heap);
}

void kri_local_base_finish(struct kri_worker *w)
{
    struct kri_heap *heap = w->heap;

    kri_close_runs(w);
    kri_base_lock(heap);
    heap->bases--;
    kri_local_limit_locked(heap);
    for (unsigned k = 0; k <= KRI_SIZES; k++) {
        kri_count_handed(&heap->retired, k, kri_load_relaxed(&w->gc->base.handed[k]));
        kri_store_relaxed(&w->gc->base.handed[k], 0);
    }
    kri_add_relaxed(&heap->retired.large_bytes, kri_load_relaxed(&w->gc->base.large_bytes));
    kri_store_relaxed(&w->gc->base.large_bytes, 0);
    kri_base_unlock(heap);
}

/* ---- serving the slow path ---- */

struct kri_cell *kri_local_serve(struct kri_worker *w, unsigned k)
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
struct kri_cell *kri_open_run(struct kri_worker *w, struct kri_cell *node, char **run, char **run_end)
{
    if (KRI_UNLIKELY(*run != *run_end)) {
        kri_base_lock(w->heap);
        size_t n = close_run_locked(w, *run, *run_end);
        kri_base_unlock(w->heap);
        kri_count_handed(&w->gc->base, 0, -n);
    }
    w->gc->base.run_node = (char *)node;
    w->gc->base.run_index = node->buddy;
    *run_end = (char *)node + kri_block_bytes(node->buddy);
    *run = (char *)node + KRI_GRANULE;
    return node;
}

/* Discipline rwlock: from the hidden base, each cell within the reader lock, which keeps the collector away as the gate
 * does otherwise. NULL: the list is empty. */
struct kri_cell *kri_take_as_reader(struct kri_worker *w, unsigned k)
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
            c = kri_open_run(w, c, &b->hidden_run, &b->hidden_end);
    }
    pthread_rwlock_unlock(&w->heap->discipline_lock);
    return c;
}
