/* mark.c -- parallel marking.
 *
 * The collecting worker is marker 0 and starts alone. What turns out to be worth it is shared with helper threads, which are
 * created at the first such collection and then sleep between collections.
 *
 * An entry of a mark stack is one word: a cell that may be marked already, or a range of values, RANGE_WORDS at a
 * time taken off its front. A cell taken from the stack does not get looked at yet: it is prefetched, waits in a small
 * ring while others arrive there, and is marked and scanned when it leaves it. Neighbours are followed at once: lists and trees
 * built in one go lie so. Marks are plain bytes: two markers that meet on a cell may both scan it, which is harmless and rare.
 *
 * Stacks are chains of blocks. A marker that has more than it needs while others starve publishes its oldest block, or
 * the older half of its only one: the oldest entries lead to the most work.
 *
 * Always true while a mark job runs:
 *   M1  Every cell that is marked but whose values are not all marked is in some stack, ring, or published block as itself or
 *       as a range, or is being scanned, or the state's `overflow` is set.
 *   M2  `work` counts busy markers and published blocks in one word. Work is published by busy markers only and a block is
 *       taken in the same step in which its taker becomes busy. So zero means that all is done, and stays zero.
 *
 * When there is no memory for a block (M1's overflow), the cells are marked and forgotten; when the stacks are empty the
 * heap is walked and every marked cell scanned again, until nothing was forgotten. */
#define _GNU_SOURCE
#include "runtime/mark.h"

#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/futex.h"

enum {
    BLOCK_ENTRIES = 1020,
    ARENA_BLOCKS = 32,               /* mapped at a time: 256 KB */
    KEPT_ARENAS = 4,                 /* over the collection */
    RING = 32,                       /* cells under way from memory */
    NEAR_BYTES = 256,                /* a neighbour: most likely in the cache already, or fetched next */
    NEAR_AHEAD = 40,                 /* steps; more than a processor's own prefetch looks ahead */
    RANGE_WORDS = 512,
    SHARE_TICKS = 64,                /* cells from the ring between two looks at who starves */
    ALONE_CELLS = 30000,             /* a good half millisecond */
    ALONE_CHUNKS = 24,
    TOUCHED_CACHE = 256,             /* chunk heads are 2 MB apart and compete for few places in a processor's cache */
    IDLE_SPINS = 500,
    MAX_MARKERS = 64,
    ENTRY_ADDRESS_BITS = 48,
};

/* 8 KB of mark stack; also of a list of weak cells. */
struct block {
    struct block *below, *above;     /* in a stack; `below` also in the lists of free and published blocks */
    size_t count;                    /* while it is not the top of a stack */
    uintptr_t entry[BLOCK_ENTRIES];
};

struct arena {
    struct arena *next;
    struct block block[ARENA_BLOCKS];
};

/* What was marked. */
struct tally {
    uint64_t cells, bytes;
};

struct kri_marker {
    struct kri_mark_state *state;
    const struct kri_layout *layouts;
    uintptr_t *sp, *base, *end;      /* the top block's entries: the next goes to *sp */
    struct block *top, *bottom;
    struct block *spare;             /* one kept against toggling at a block's border */
    struct block *weak;              /* weak cells met, chained through below */
    struct kri_chunk *touched[TOUCHED_CACHE]; /* chunks whose `touched` was set, by the low bits of their number */
    struct tally tally;
    unsigned ticks;
    unsigned at, waiting;            /* of the ring: where the next goes, how many are in it */
    struct kri_cell *ring[RING];
    _Alignas(64) char pad[];
};

enum job { JOB_SWEEP, JOB_MARK };
enum { CREW_OPEN = 1 << 16 };        /* in `crew`: helpers may join; the low half counts those who did */
enum { WORK_BLOCK = 1 << 16 };       /* in `work`: one published block; the low half counts busy markers */

struct kri_mark_state {
    struct kri_heap *heap;
    struct kri_finalizers finalizers;

    /* -- published blocks and free ones -- */
    pthread_mutex_t pool_lock;       /* guards the next five; a leaf */
    struct block *published;
    struct block *unused;
    struct arena *arenas;
    size_t arena_count, blocks_out;
    size_t block_limit;              /* tests */

    _Alignas(64) kri_atomic work;    /* M2; idle markers sleep on it */
    kri_atomic sleepers;
    kri_atomic overflow, weak_overflow;
    bool weak_progress, weak_forward; /* collector only: a weak table had something marked; the direction of this pass */
    _Alignas(64) kri_atomic crew;    /* who takes part in the job; the collector sleeps on it at the end */
    kri_atomic call;                 /* counts jobs that helpers were called to; they sleep on it */
    kri_atomic quit;
    enum job job;                    /* written before crew is opened */
    bool called;                     /* helpers were called to this job; collector only */
    bool open;                       /* the crew is: to be closed once, however often the job traces */

    unsigned helpers;                /* threads that exist; collector only */
    cpu_set_t cores;                 /* those of the thread that made the heap: helpers run there, whoever creates them */
    bool has_cores;                  /* false: more than the set has room for */
    pthread_t thread[MAX_MARKERS];   /* [i] is marker i's; [0] unused */
    struct kri_marker marker[MAX_MARKERS];
};

/* ---- blocks ---- */

static bool map_arena_locked(struct kri_mark_state *s)
{
    struct arena *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a == MAP_FAILED)
        return false;
    a->next = s->arenas;
    s->arenas = a;
    s->arena_count++;
    for (int i = ARENA_BLOCKS; i-- > 0;) {
        a->block[i].below = s->unused;
        s->unused = &a->block[i];
    }
    return true;
}

static struct block *new_block(struct kri_mark_state *s)
{
    struct block *b = NULL;
    pthread_mutex_lock(&s->pool_lock);
    if ((!s->block_limit || s->blocks_out < s->block_limit) && (s->unused || map_arena_locked(s))) {
        b = s->unused;
        s->unused = b->below;
        s->blocks_out++;
    }
    pthread_mutex_unlock(&s->pool_lock);
    return b;
}

static void free_block(struct kri_mark_state *s, struct block *b)
{
    pthread_mutex_lock(&s->pool_lock);
    b->below = s->unused;
    s->unused = b;
    s->blocks_out--;
    pthread_mutex_unlock(&s->pool_lock);
}

/* All blocks are unused: give surplus memory back. */
static void trim_arenas(struct kri_mark_state *s, size_t keep)
{
    if (s->arena_count <= keep)
        return;
    s->unused = NULL;
    while (s->arena_count > keep) {
        struct arena *a = s->arenas;
        s->arenas = a->next;
        s->arena_count--;
        munmap(a, sizeof *a);
    }
    for (struct arena *a = s->arenas; a; a = a->next)
        for (int i = ARENA_BLOCKS; i-- > 0;) {
            a->block[i].below = s->unused;
            s->unused = &a->block[i];
        }
}

/* ---- sharing ---- */

static void publish(struct kri_mark_state *s, struct block *b)
{
    pthread_mutex_lock(&s->pool_lock);
    b->below = s->published;
    s->published = b;
    pthread_mutex_unlock(&s->pool_lock);
    /* After the block is in the list: who counts it finds it. */
    kri_fetch_add(&s->work, WORK_BLOCK);
    kri_fence(); /* one that goes to sleep counts itself and then compares `work`, which the system does behind a barrier: it finds
                  * the block, or we find it */
    if (kri_load_relaxed(&s->sleepers))
        kri_futex_wake(&s->work, 1);
}

static void set_top(struct kri_marker *m, struct block *b)
{
    m->top = b;
    m->base = b->entry;
    m->end = b->entry + BLOCK_ENTRIES;
}

/* Publish this marker's oldest entries, if it has any to spare. */
static void share(struct kri_marker *m)
{
    struct block *b = m->bottom;
    size_t n = (size_t)(m->sp - m->base);
    if (b != m->top) {
        m->bottom = b->above;
        m->bottom->below = NULL;
    } else if (n < 2 || !(b = new_block(m->state))) {
        return;
    } else {
        b->count = n / 2;
        memcpy(b->entry, m->base, n / 2 * sizeof *m->base);
        memmove(m->base, m->base + n / 2, (n - n / 2) * sizeof *m->base);
        m->sp -= n / 2;
    }
    publish(m->state, b);
}

static void call_helpers(struct kri_mark_state *s);

/* Now and then: are there helpers to call, or markers without work? */
static void look_around(struct kri_marker *m)
{
    struct kri_mark_state *s = m->state;
    m->ticks = 0;
    if (m == s->marker && !s->called) {
        if (m->tally.cells > ALONE_CELLS)
            call_helpers(s);
        return;
    }
    /* Relaxed loads: a wrong guess costs a block more or less in the pool. */
    size_t helping = kri_load_relaxed(&s->crew) % CREW_OPEN, work = kri_load_relaxed(&s->work);
    if (helping && work % WORK_BLOCK + work / WORK_BLOCK < helping + 1)
        share(m);
}

/* Join the busy ones with a published block; false when all work is done. */
static struct block *find_work(struct kri_mark_state *s)
{
    /* The last to run out of work wakes those who wait, for there will be none. */
    if (kri_fetch_add(&s->work, (size_t)-1) == 1)
        kri_futex_wake(&s->work, INT_MAX);
    for (unsigned spins = 0;; spins++) {
        size_t work = kri_load_acquire(&s->work);
        if (work == 0)
            return NULL;
        if (work >= WORK_BLOCK) {
            struct block *b;
            if (!kri_cas(&s->work, work, work - WORK_BLOCK + 1))
                continue;
            pthread_mutex_lock(&s->pool_lock);
            b = s->published;
            s->published = b->below;
            pthread_mutex_unlock(&s->pool_lock);
            return b;
        }
        if (spins < IDLE_SPINS) {
            kri_spin_pause();
            continue;
        }
        kri_fetch_add(&s->sleepers, 1);
        kri_futex_wait(&s->work, work);
        kri_fetch_add(&s->sleepers, (size_t)-1);
    }
}

/* ---- the stack ---- */

static KRI_COLD bool push_block(struct kri_marker *m)
{
    struct block *b = m->spare ? m->spare : new_block(m->state);
    m->spare = NULL;
    if (!b)
        return false;
    m->top->count = BLOCK_ENTRIES;
    m->top->above = b;
    b->below = m->top;
    b->above = NULL;
    set_top(m, b);
    m->sp = m->base;
    look_around(m);
    return true;
}

static void forget(struct kri_marker *m, uintptr_t entry);

static inline void push_entry(struct kri_marker *m, uintptr_t entry)
{
    if (KRI_UNLIKELY(m->sp == m->end) && !push_block(m)) {
        forget(m, entry);
        return;
    }
    *m->sp++ = entry;
}

static inline void push(struct kri_marker *m, kr_value v)
{
    if (kri_is_pointer(v))
        push_entry(m, v.w);
}

/* The block below becomes the top; false if there is none. */
static KRI_COLD bool pop_block(struct kri_marker *m)
{
    struct block *b = m->top, *below = b->below;
    if (b == m->bottom)
        return false;
    if (m->spare)
        free_block(m->state, b); /* links it elsewhere */
    else
        m->spare = b;
    set_top(m, below);
    m->top->above = NULL;
    m->sp = m->base + m->top->count;
    return true;
}

/* ---- scanning ---- */

/* An entry is a cell's address, or a range's with the length in the upper 16 bits. */
static inline uintptr_t entry_address(uintptr_t entry) { return entry & (((uintptr_t)1 << ENTRY_ADDRESS_BITS) - 1); }

static inline void push_range(struct kri_marker *m, const kr_value *from, size_t n)
{
    enum { MOST = 65535 };
    while (n > 0) {
        size_t piece = n < MOST ? n : (size_t)MOST;
        push_entry(m, (uintptr_t)from | (uintptr_t)piece << ENTRY_ADDRESS_BITS);
        from += piece;
        n -= piece;
    }
}

static inline void scan_values(struct kri_marker *m, const kr_value *from, size_t n)
{
    if (n > RANGE_WORDS) {
        push_range(m, from, n);
        return;
    }
    /* Backwards, so that they leave the stack forwards. */
    while (n-- > 0)
        push(m, kri_slot(&from[n]));
}

static void scan_range(struct kri_marker *m, uintptr_t entry)
{
    const kr_value *from = (const kr_value *)entry_address(entry);
    size_t n = entry >> ENTRY_ADDRESS_BITS;
    m->ticks += 8;
    if (n > RANGE_WORDS) {
        push_entry(m, (uintptr_t)(from + RANGE_WORDS) | (uintptr_t)(n - RANGE_WORDS) << ENTRY_ADDRESS_BITS);
        n = RANGE_WORDS;
    }
    scan_values(m, from, n);
}

static size_t cell_words(const struct kri_cell *c) { return kri_cell_bytes(c) / KRI_WORD - 1; }

static KRI_COLD void remember_weak(struct kri_marker *m, struct kri_cell *c)
{
    struct block *b = m->weak;
    if (!b || b->count == BLOCK_ENTRIES) {
        b = new_block(m->state);
        if (!b) {
            kri_store_relaxed(&m->state->weak_overflow, 1);
            return;
        }
        b->count = 0;
        b->below = m->weak;
        m->weak = b;
    }
    b->entry[b->count++] = (uintptr_t)c;
}

/* Push what C of layout L, no pair, refers to; its last value may be left for the caller: NIL if not. */
static KRI_NOINLINE kr_value scan_other(struct kri_marker *m, struct kri_cell *c, struct kri_layout l)
{
    switch (l.kind) {
    case KRI_LAYOUT_SLOTS:
        if (l.slots == 0)
            break;
        scan_values(m, c->slot, l.slots - 1u);
        return kri_slot(&c->slot[l.slots - 1]);
    case KRI_LAYOUT_VECTOR:
        scan_values(m, c->slot, c->length);
        break;
    case KRI_LAYOUT_ALL:
        scan_values(m, c->slot, cell_words(c));
        break;
    case KRI_LAYOUT_WEAK:
        remember_weak(m, c);
        if (l.slots > 1)
            scan_values(m, c->slot + 1, l.slots - 1u);
        break;
    case KRI_LAYOUT_WEAK_VECTOR:
        remember_weak(m, c);
        break;
    case KRI_LAYOUT_WEAK_TABLE:
        remember_weak(m, c);
        scan_values(m, c->slot, l.slots);
        break;
    default: /* raw */
        break;
    }
    return KRI_NIL;
}

/* Push what C refers to, except that its last value may come back as the next cell to mark: when it is a neighbour. */
static inline struct kri_cell *scan_cell(struct kri_marker *m, struct kri_cell *c)
{
    struct kri_layout l = m->layouts[c->cls];
    uintptr_t step;
    kr_value last;

    if (KRI_LIKELY(l.kind == KRI_LAYOUT_SLOTS && l.slots == 2)) {
        push(m, kri_slot(&c->slot[0]));
        last = kri_slot(&c->slot[1]);
    } else {
        last = scan_other(m, c, l);
    }
    if (!kri_is_pointer(last))
        return NULL;
    step = last.w - (uintptr_t)c;
    if (step + NEAR_BYTES >= 2 * NEAR_BYTES) {
        push_entry(m, last.w);
        return NULL;
    }
    /* Most likely it goes on in steps like this one. */
    __builtin_prefetch((const void *)(last.w + NEAR_AHEAD * step));
    return kri_ptr(last);
}

/* Set C's mark and count it; false if it has one. */
static inline bool mark(struct kri_marker *m, struct kri_cell *c, struct tally *tally)
{
    struct kri_chunk *chunk = kri_chunk_of(c);
    volatile unsigned char *byte = kri_mark_byte(c);
    struct kri_chunk **seen = &m->touched[(uintptr_t)chunk >> KRI_UNIT_SHIFT & (TOUCHED_CACHE - 1)];
    unsigned buddy;
    /* Relaxed, as in kri_mark_cell: the sweep reads marks after the crew has met, which orders them. */
    if (kri_load_byte(byte))
        return false;
    buddy = c->buddy;
    kri_store_byte(byte, (unsigned char)(buddy + 1));
    if (*seen != chunk) {
        *seen = chunk;
        if (!kri_load_byte(&chunk->touched))
            kri_store_byte(&chunk->touched, 1);
    }
    tally->cells++;
    tally->bytes += KRI_LIKELY(buddy <= KRI_CHUNK_INDEX) ? kri_fib[buddy] * KRI_GRANULE : kri_cell_bytes(c);
    return true;
}

static inline void mark_and_scan(struct kri_marker *m, struct kri_cell *c)
{
    struct tally tally = {0, 0}; /* in registers: the store of a mark byte may alias what is in memory */
    while (mark(m, c, &tally) && (c = scan_cell(m, c)) != NULL)
        ;
    m->tally.cells += tally.cells;
    m->tally.bytes += tally.bytes;
}

/* No memory for the stack: mark what ENTRY stands for, for the rescan to find. What was marked before needs no rescan, so each
 * one makes progress. */
static KRI_COLD void forget(struct kri_marker *m, uintptr_t entry)
{
    const kr_value *from = (const kr_value *)entry_address(entry);
    size_t n = entry >> ENTRY_ADDRESS_BITS;
    bool news = n == 0 && mark(m, (struct kri_cell *)entry, &m->tally);
    while (n-- > 0)
        if (kri_is_pointer(kri_slot(&from[n])) && mark(m, kri_ptr(kri_slot(&from[n])), &m->tally))
            news = true;
    if (news)
        kri_store_relaxed(&m->state->overflow, 1);
}

/* ---- a marker's loop ---- */

static inline void prefetch_cell(struct kri_cell *c)
{
    __builtin_prefetch(c);
    __builtin_prefetch((char *)c + 16);
    __builtin_prefetch((const void *)kri_mark_byte(c), 1);
}

/* What waits longest in the ring, which is not empty. */
static inline struct kri_cell *leave_ring(struct kri_marker *m)
{
    struct kri_cell *c = m->ring[(m->at - m->waiting) % RING];
    m->waiting--;
    return c;
}

/* Until stack and ring are empty. A cell leaves the ring when that is full, or when the stack has nothing to send after it: a
 * list whose cells lie apart does not wait for company. */
static void drain(struct kri_marker *m)
{
    for (;;) {
        if (KRI_LIKELY(m->sp != m->base) || pop_block(m)) {
            uintptr_t entry = *--m->sp;
            if (KRI_UNLIKELY(entry >> ENTRY_ADDRESS_BITS)) {
                scan_range(m, entry);
                continue;
            }
            prefetch_cell((struct kri_cell *)entry);
            m->ring[m->at++ % RING] = (struct kri_cell *)entry;
            if (++m->waiting < RING)
                continue;
        } else if (m->waiting == 0) {
            return;
        }
        mark_and_scan(m, leave_ring(m));
        if (KRI_UNLIKELY(++m->ticks >= SHARE_TICKS))
            look_around(m);
    }
}

/* Take part in a mark job, busy already, until all work is done. */
static void run_marker(struct kri_marker *m)
{
    struct block *b;
    do {
        drain(m);
        b = find_work(m->state);
        if (b) {
            /* The empty block is kept for want of a better place. */
            if (m->spare)
                free_block(m->state, m->top);
            else
                m->spare = m->top;
            b->below = b->above = NULL;
            m->bottom = b;
            set_top(m, b);
            m->sp = m->base + b->count;
        }
    } while (b);
}

/* False when there is no memory even for the first block: the marker can do nothing. */
static bool prepare_marker(struct kri_mark_state *s, struct kri_marker *m)
{
    struct block *b = new_block(s);
    memset(m, 0, sizeof *m);
    if (!b)
        return false;
    m->state = s;
    m->layouts = s->heap->layouts;
    b->below = b->above = NULL;
    m->bottom = b;
    set_top(m, b);
    m->sp = m->base;
    return true;
}

/* The stack is empty; the weak list stays. */
static void release_blocks(struct kri_marker *m)
{
    free_block(m->state, m->top);
    if (m->spare)
        free_block(m->state, m->spare);
    m->top = m->bottom = m->spare = NULL;
}

/* ---- helpers ---- */

/* True if the crew takes the caller. */
static bool join_crew(struct kri_mark_state *s)
{
    size_t crew;
    do {
        crew = kri_load_acquire(&s->crew);
        if (!(crew & CREW_OPEN))
            return false;
    } while (!kri_cas(&s->crew, crew, crew + 1));
    return true;
}

/* A release: what the helper marked is seen by the collector, which loads crew with acquire. */
static void leave_crew(struct kri_mark_state *s)
{
    if (kri_fetch_add(&s->crew, (size_t)-1) == 1)
        kri_futex_wake(&s->crew, 1);
}

static void sweep_chunks(struct kri_mark_state *s)
{
    while (kri_sweep_finish_step(s->heap))
        ;
}

static void help(struct kri_mark_state *s, struct kri_marker *m)
{
    if (s->job == JOB_SWEEP) {
        sweep_chunks(s);
        return;
    }
    if (!prepare_marker(s, m))
        return;
    /* Busy from here on, which nobody minds: the collector cannot have finished without the work that it called us to, or it
     * has, and we find none. */
    kri_fetch_add(&s->work, 1);
    run_marker(m);
    release_blocks(m);
}

struct start {
    struct kri_mark_state *state;
    unsigned index;
};

static void *helper_main(void *arg)
{
    struct start start = *(struct start *)arg;
    struct kri_mark_state *s = start.state;
    size_t seen = 0;
    free(arg);
    if (s->has_cores)
        sched_setaffinity(0, sizeof s->cores, &s->cores); /* if they are no longer ours, it stays where its creator is */
    while (!kri_load_acquire(&s->quit)) {
        /* Acquire: pairs with the release in call_helpers; the crew is open then, or closed again. */
        size_t call = kri_load_acquire(&s->call);
        if (call == seen) {
            kri_futex_wait(&s->call, call);
            continue;
        }
        seen = call;
        if (join_crew(s)) {
            help(s, &s->marker[start.index]);
            leave_crew(s);
        }
    }
    return NULL;
}

/* As many as are configured, or as the system lets us have. Signals are for others. */
static void create_helpers(struct kri_mark_state *s)
{
    sigset_t all, old;
    unsigned wanted = s->heap->config.markers;
    if (wanted > MAX_MARKERS)
        wanted = MAX_MARKERS;
    if (s->helpers + 1 >= wanted)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (s->helpers + 1 < wanted) {
        struct start *start = malloc(sizeof *start);
        if (!start)
            break;
        *start = (struct start){s, s->helpers + 1};
        if (pthread_create(&s->thread[s->helpers + 1], NULL, helper_main, start) != 0) {
            free(start);
            break;
        }
        s->helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void call_helpers(struct kri_mark_state *s)
{
    s->called = true;
    create_helpers(s);
    if (!s->helpers)
        return;
    /* The job is written, then the crew opened, then the call raised. */
    s->open = true;
    kri_fetch_add(&s->crew, CREW_OPEN);
    kri_fetch_add(&s->call, 1);
    kri_futex_wake(&s->call, INT_MAX);
}

/* Let nobody join any more, wait for those who did. */
static void dismiss_helpers(struct kri_mark_state *s)
{
    size_t crew;
    if (!s->open)
        return;
    s->open = false;
    kri_fetch_add(&s->crew, (size_t)-CREW_OPEN);
    /* Acquire: pairs with leave_crew. */
    for (unsigned spins = 0; (crew = kri_load_acquire(&s->crew)) != 0; spins++)
        if (spins < IDLE_SPINS)
            kri_spin_pause();
        else
            kri_futex_wait(&s->crew, crew);
}

static void begin_job(struct kri_mark_state *s, enum job job)
{
    s->job = job;
    s->called = false;
}

/* ---- the phases ---- */

void kri_mark_sweep_rest(struct kri_heap *heap)
{
    struct kri_mark_state *s = heap->marking;
    unsigned chunks = 0;
    for (struct kri_chunk *c = heap->unswept; c && chunks <= ALONE_CHUNKS; c = c->next_unswept)
        chunks++;
    begin_job(s, JOB_SWEEP);
    if (chunks > ALONE_CHUNKS)
        call_helpers(s);
    sweep_chunks(s);
    dismiss_helpers(s);
    kri_sweep_finish_all(heap);
}

/* The native stacks of all workers, the collecting one's included; of workers that are with their host there is none. */
static void mark_stacks(struct kri_heap *heap, struct kri_marker *m)
{
    for (struct kri_worker *w = heap->workers; w; w = w->next)
        if (w->gc->native_top) {
            assert((char *)w->gc->native_top >= (char *)w->gc->native_limit);
            kri_mark_words(m, w->gc->native_top, w->gc->native_base);
        }
}

/* What permanent cells refer to that were stored into (H7). */
static void mark_log(const struct kri_heap *heap, struct kri_marker *m)
{
    for (size_t i = 0; i < heap->log_count; i++) {
        struct kri_cell *next = scan_cell(m, heap->log[i]);
        if (next)
            push_entry(m, (uintptr_t)next);
    }
}

/* Call F for every marked cell that is not permanent. */
static void walk_marked(struct kri_heap *heap, void (*f)(struct kri_marker *m, struct kri_cell *c), struct kri_marker *m)
{
    for (struct kri_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
        if (!kri_load_byte(&chunk->touched))
            continue;
        for (size_t i = 0; i < KRI_TREE_GRANULES; i++)
            if (kri_load_byte(&chunk->marks[i]))
                f(m, (struct kri_cell *)((char *)kri_chunk_tree(chunk) + i * KRI_GRANULE));
    }
    for (struct kri_chunk *chunk = heap->large; chunk; chunk = chunk->next)
        if (kri_load_byte(&chunk->marks[0]))
            f(m, kri_chunk_tree(chunk));
}

static void rescan_cell(struct kri_marker *m, struct kri_cell *c)
{
    struct kri_cell *next = scan_cell(m, c);
    if (next)
        mark_and_scan(m, next);
    /* Most have nothing new to say. */
    while (m->top == m->bottom && m->sp > m->base && m->sp[-1] == entry_address(m->sp[-1]) &&
           kri_marked((struct kri_cell *)m->sp[-1]))
        m->sp--;
    if (m->sp > m->base || m->top != m->bottom)
        drain(m);
}

/* Alone: until nothing was forgotten. Each round marks at least one cell more, or is the last. */
static void rescan(struct kri_marker *m)
{
    struct kri_mark_state *s = m->state;
    while (kri_load_relaxed(&s->overflow)) {
        kri_store_relaxed(&s->overflow, 0);
        walk_marked(s->heap, rescan_cell, m);
    }
}

/* Marker 0: trace all that is on its stack, with whoever comes to help. */
static void trace(struct kri_marker *m)
{
    struct kri_mark_state *s = m->state;
    run_marker(m);
    dismiss_helpers(s);
    s->called = true; /* what is left to do is done alone */
    rescan(m);
}

/* ---- weak cells ---- */

/* Call F for the weak cells that were marked since they were forgotten last. M of F is marker 0. */
static void each_weak(struct kri_mark_state *s, void (*f)(struct kri_marker *m, struct kri_cell *c))
{
    struct kri_marker *m = &s->marker[0];
    for (unsigned i = 0; i <= s->helpers; i++)
        for (struct block *b = s->marker[i].weak; b; b = b->below)
            for (size_t k = 0; k < b->count; k++)
                f(m, (struct kri_cell *)b->entry[k]);
    if (kri_load_relaxed(&s->weak_overflow)) { /* not all could be noted down */
        walk_marked(s->heap, f, m);
        for (size_t i = 0; i < s->heap->log_count; i++)
            f(m, s->heap->log[i]);
    }
}

static void forget_weak(struct kri_mark_state *s)
{
    for (unsigned i = 0; i <= s->helpers; i++)
        while (s->marker[i].weak) {
            struct block *b = s->marker[i].weak;
            s->marker[i].weak = b->below;
            free_block(s, b);
        }
    kri_store_relaxed(&s->weak_overflow, 0);
}

static void trace_table(struct kri_marker *m, struct kri_cell *c)
{
    struct kri_mark_state *s = m->state;
    if (m->layouts[c->cls].kind == KRI_LAYOUT_WEAK_TABLE && s->heap->hooks.weak_trace)
        s->weak_progress |= s->heap->hooks.weak_trace(s->heap, m, c, s->weak_forward);
}

static void clear_table(struct kri_marker *m, struct kri_cell *c)
{
    struct kri_heap *heap = m->state->heap;
    if (m->layouts[c->cls].kind == KRI_LAYOUT_WEAK_TABLE && heap->hooks.weak_clear)
        heap->hooks.weak_clear(heap, c);
}

static void clear_slot_if_dead(kr_value *slot)
{
    kr_value v = kri_slot(slot);
    if (kri_is_pointer(v) && !kri_marked(kri_ptr(v)))
        *slot = KRI_NIL;
}

static void clear_weak_cell(struct kri_marker *m, struct kri_cell *c)
{
    switch (m->layouts[c->cls].kind) {
    case KRI_LAYOUT_WEAK:
        clear_slot_if_dead(&c->slot[0]);
        break;
    case KRI_LAYOUT_WEAK_VECTOR:
        for (uint32_t i = 0; i < c->length; i++)
            clear_slot_if_dead(&c->slot[i]);
        break;
    default:
        break;
    }
}

static void trace(struct kri_marker *m);

/* All is marked that is reachable strongly: what tables keep alive by living keys, then the dead weak references. Tables before
 * vectors: a table drops its entries as pairs. */
static void settle_weak(struct kri_mark_state *s)
{
    do {
        s->weak_progress = false;
        s->weak_forward = !s->weak_forward;
        kri_store_relaxed(&s->work, 1);
        each_weak(s, trace_table);
        trace(&s->marker[0]);
    } while (s->weak_progress);
    each_weak(s, clear_table);
    each_weak(s, clear_weak_cell);
    forget_weak(s);
    if (s->heap->hooks.weak)
        s->heap->hooks.weak(s->heap);
}

void kri_mark_drain(struct kri_marker *m) { drain(m); }

/* Marker 0's first block is kept for it, so that it can always begin. */
static struct kri_marker *begin_marking(struct kri_mark_state *s)
{
    size_t limit = s->block_limit;
    s->block_limit = 0;
    if (!prepare_marker(s, &s->marker[0]))
        abort(); /* kri_mark_init mapped an arena and trim_arenas keeps one */
    s->block_limit = limit;
    for (unsigned i = 1; i <= s->helpers; i++) {
        s->marker[i].tally = (struct tally){0, 0};
        s->marker[i].weak = NULL;
    }
    begin_job(s, JOB_MARK);
    kri_store_relaxed(&s->work, 1); /* marker 0 is busy */
    return &s->marker[0];
}

static uint64_t end_marking(struct kri_mark_state *s, struct kri_gc_record *record)
{
    uint64_t bytes = 0;
    release_blocks(&s->marker[0]);
    assert(s->blocks_out == 0);
    trim_arenas(s, KEPT_ARENAS);
    record->markers = 1;
    for (unsigned i = 0; i <= s->helpers; i++) {
        bytes += s->marker[i].tally.bytes;
        if (s->marker[i].tally.cells)
            record->markers = i + 1;
        if (i < sizeof record->marked / sizeof *record->marked)
            record->marked[i] = s->marker[i].tally.cells;
    }
    return bytes;
}

uint64_t kri_mark_all(struct kri_worker *self, struct kri_gc_record *record)
{
    struct kri_heap *heap = self->heap;
    struct kri_mark_state *s = heap->marking;
    struct kri_marker *m = begin_marking(s);
    heap->hooks.mark_roots(heap, m);
    mark_stacks(heap, m);
    mark_log(heap, m);
    kri_finalizers_mark_ready(&s->finalizers, m);
    trace(m);
    /* Weak references go before finalizers run: nobody else finds a cell that is being finalized. */
    settle_weak(s);
    if (kri_finalizers_revive(&s->finalizers, m)) {
        kri_store_relaxed(&s->work, 1);
        trace(m);
        settle_weak(s);
    }
    return end_marking(s, record);
}

/* ---- roots ---- */

void kri_mark_value(struct kri_marker *m, kr_value v)
{
    push(m, v);
}

void kri_mark_range(struct kri_marker *m, const kr_value *from, const kr_value *to)
{
    /* Not as an entry of the stack: an overflow could not find the range again, it belongs to no marked cell. */
    for (; from < to; from++)
        push(m, kri_slot(from));
}

void kri_mark_word(struct kri_marker *m, uintptr_t word)
{
    struct kri_cell *c = kri_find_cell(m->state->heap, word);
    if (c)
        push_entry(m, (uintptr_t)c);
}

KRI_NO_SANITIZE void kri_mark_words(struct kri_marker *m, const void *from, const void *to)
{
    const uintptr_t *p = (const uintptr_t *)(((uintptr_t)from + KRI_WORD - 1) & ~(uintptr_t)(KRI_WORD - 1));
    for (; (const char *)(p + 1) <= (const char *)to; p++)
        kri_mark_word(m, *p);
}

bool kri_is_marked(struct kri_heap *heap, kr_value v)
{
    (void)heap;
    return !kri_is_pointer(v) || kri_marked(kri_ptr(v));
}

/* ---- life ---- */

static void init_locks(struct kri_mark_state *s)
{
    pthread_mutex_init(&s->pool_lock, NULL);
}

bool kri_mark_init(struct kri_heap *heap)
{
    struct kri_mark_state *s;
    if (posix_memalign((void **)&s, 64, sizeof *s) != 0)
        return false;
    memset(s, 0, sizeof *s);
    s->heap = heap;
    s->has_cores = sched_getaffinity(0, sizeof s->cores, &s->cores) == 0;
    init_locks(s);
    kri_finalizers_init(&s->finalizers);
    if (!map_arena_locked(s)) {
        free(s);
        return false;
    }
    heap->marking = s;
    return true;
}

void kri_mark_finish(struct kri_heap *heap)
{
    struct kri_mark_state *s = heap->marking;
    kri_store_release(&s->quit, 1);
    kri_fetch_add(&s->call, 1);
    kri_futex_wake(&s->call, INT_MAX);
    for (unsigned i = 1; i <= s->helpers; i++)
        pthread_join(s->thread[i], NULL);
    trim_arenas(s, 0);
    pthread_mutex_destroy(&s->pool_lock);
    kri_finalizers_free(&s->finalizers);
    free(s);
    heap->marking = NULL;
}

void kri_mark_after_fork(struct kri_heap *heap)
{
    struct kri_mark_state *s = heap->marking;
    init_locks(s);
    pthread_mutex_init(&s->finalizers.lock, NULL);
    s->helpers = 0;
    kri_store_relaxed(&s->crew, 0);
    kri_store_relaxed(&s->sleepers, 0);
}

struct kri_finalizers *kri_mark_finalizers(struct kri_heap *heap) { return &heap->marking->finalizers; }

void kri_mark_limit_blocks(struct kri_heap *heap, size_t blocks) { heap->marking->block_limit = blocks; }

unsigned kri_mark_helpers(const struct kri_heap *heap) { return heap->marking->helpers; }
