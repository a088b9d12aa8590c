/* gate.h -- the writer's side of the gate, for collect.c and worker.c. */
#ifndef KRI_RUNTIME_GATE_H
#define KRI_RUNTIME_GATE_H

#include "runtime/heap_private.h"

struct kri_gate_state {
    kri_atomic writer;           /* 1: somebody wants or has the writer's side; readers sleep on it */
    char pad1[56];
    kri_atomic left;             /* counts leaves that a writer waits for; the writer sleeps on it */
    kri_atomic waiting;          /* readers that wait for the writer to go */
    char pad2[48];
    bool fences;                 /* constant: there is no membarrier, both sides fence */
    struct kri_worker *holder;   /* who holds the writer's side; under workers_lock */
    uint64_t resumed;            /* when the world went on the last time; under workers_lock */
};

/* The owner's limits as they are without poison; owner only. */
struct kri_worker_stop {
    void *lisp_limit, *native_limit, *native_low;
};

/* Close the gate for W, which is inside, has spilled its registers and set native_top: true with every other worker outside,
 * their runs closed and workers_lock held. False if another writer was there: W has yielded to it. */
bool kri_gate_close(struct kri_worker *w);
/* Open it again; releases workers_lock. */
void kri_gate_open(struct kri_worker *w);
/* W leaves the gate, its registers spilled and native_top set, and comes back when no writer is there. */
void kri_gate_yield_spilled(struct kri_worker *w);
/* In the child after fork: only W is left; if it holds the writer's side it holds it still. */
void kri_gate_after_fork(struct kri_worker *w);
/* And frees the others (worker.c). */
void kri_workers_after_fork(struct kri_worker *w);

/* Note [spilling]
 * While a worker is outside the gate or collects, its stack is scanned from native_top up. Values may live only in registers
 * that a callee must preserve. So who leaves the gate goes through two frames: the first calls __builtin_unwind_init, which makes
 * the compiler save all those registers in that frame; the second, never inlined, takes its own frame address, which lies below
 * the whole first frame. The barrier at the end of the first keeps the compiler from making the second's call a tail call. */
#define KRI_SPILLED_CALL(call) (__builtin_unwind_init(), (call), kri_compiler_barrier())

#endif
