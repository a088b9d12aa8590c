/* exchange.h -- data between a thread that must never wait and one that may: triple buffers and rings. Knows nothing of Lisp.
 *
 * Both have one writer and one reader at a time. Every operation is wait-free: no lock, no loop, no system call. The memory is made
 * and touched beforehand. Always true:
 *   X1  Of a triple buffer's three slots one is the writer's, one the reader's, and one in the middle; `middle` names the last
 *       and says whether it is newer than what the reader has.
 *   X2  A ring's slots from `head` to `tail` are the reader's, the others the writer's. `head` and `tail` only grow; their difference is at
 *       most the capacity. */
#ifndef KRI_RUNTIME_EXCHANGE_H
#define KRI_RUNTIME_EXCHANGE_H

#include "runtime/atomic.h"

#include <stdbool.h>
#include <stddef.h>

enum { KRI_LINE = 64, KRI_TRIPLE_NEW = 4 };

struct kri_triple {
    size_t bytes, stride;        /* constant */
    char *slots;                 /* constant */
    char pad0[KRI_LINE];
    kri_atomic middle;           /* 0..2, + KRI_TRIPLE_NEW: not yet seen */
    char pad1[KRI_LINE];
    size_t back;                 /* the writer's */
    char pad2[KRI_LINE];
    size_t front;                /* the reader's */
};

struct kri_ring {
    size_t bytes, stride, mask;  /* constant; capacity - 1, the capacity a power of two */
    char *slots;                 /* constant */
    char pad0[KRI_LINE];
    kri_atomic tail;             /* written by the writer */
    size_t head_seen;            /* the writer's: `head` as it knows it */
    char pad1[KRI_LINE];
    kri_atomic head;             /* written by the reader */
    size_t tail_seen;            /* the reader's */
};

/* All zero at first. False: memory is out. */
bool kri_triple_init(struct kri_triple *t, size_t bytes);
void kri_triple_finish(struct kri_triple *t);
bool kri_ring_init(struct kri_ring *r, size_t bytes, size_t capacity);
void kri_ring_finish(struct kri_ring *r);

static inline void *kri_triple_back(struct kri_triple *t) { return t->slots + t->back * t->stride; }
static inline const void *kri_triple_front(const struct kri_triple *t) { return t->slots + t->front * t->stride; }

/* The writer: what is in the back slot becomes the newest; the back slot is another one then, its contents old. */
static inline void kri_triple_publish(struct kri_triple *t)
{
    /* Release: pairs with the acquire in kri_triple_take; the reader that gets the slot sees it filled. Acquire: pairs with the
     * release there; the reader has done with the slot that comes back. */
    t->back = kri_exchange(&t->middle, t->back | KRI_TRIPLE_NEW) & 3;
}

/* The reader: is there something newer? Then the front slot is that. */
static inline bool kri_triple_take(struct kri_triple *t)
{
    /* Relaxed: only a hint; the exchange orders. A publication that comes after this look is found by the next. */
    if (!(kri_load_relaxed(&t->middle) & KRI_TRIPLE_NEW))
        return false;
    t->front = kri_exchange(&t->middle, t->front) & 3; /* acquire and release: see kri_triple_publish */
    return true;
}

/* The writer: the slot that the next kri_ring_push publishes, NULL if the ring is full. */
static inline void *kri_ring_back(struct kri_ring *r)
{
    size_t tail = kri_load_relaxed(&r->tail); /* its own */
    if (tail - r->head_seen > r->mask) {
        r->head_seen = kri_load_acquire(&r->head); /* pairs with the release in kri_ring_pop: the reader has done with the slot */
        if (tail - r->head_seen > r->mask)
            return NULL;
    }
    return r->slots + (tail & r->mask) * r->stride;
}
/* Release: pairs with the acquire in kri_ring_front; who sees the new tail sees the slot filled. */
static inline void kri_ring_push(struct kri_ring *r) { kri_store_release(&r->tail, kri_load_relaxed(&r->tail) + 1); }

/* The reader: the oldest slot, NULL if the ring is empty. */
static inline const void *kri_ring_front(struct kri_ring *r)
{
    size_t head = kri_load_relaxed(&r->head); /* its own */
    if (head == r->tail_seen) {
        r->tail_seen = kri_load_acquire(&r->tail); /* pairs with the release in kri_ring_push */
        if (head == r->tail_seen)
            return NULL;
    }
    return r->slots + (head & r->mask) * r->stride;
}
/* Release: pairs with the acquire in kri_ring_back; the writer fills the slot only after it was read. */
static inline void kri_ring_pop(struct kri_ring *r) { kri_store_release(&r->head, kri_load_relaxed(&r->head) + 1); }

/* How many wait: exact for either side's own next step, a guess for others. */
static inline size_t kri_ring_count(struct kri_ring *r)
{
    /* Head first: the tail is not behind it then, by the acquire that its storer made. It may be more than the capacity before it by now. */
    size_t head = kri_load_acquire(&r->head), count = kri_load_acquire(&r->tail) - head;
    return count <= r->mask ? count : r->mask + 1;
}

#endif
