/* worker.h -- one kernel thread that runs Lisp: its local buddy base, its side of the gate, its limits.
 *
 * The gate is a reader/writer lock whose readers pay nothing. Readers are workers that run Lisp and allocate; the writer
 * is the collector. A worker is inside the gate while it runs Lisp and outside around everything that blocks. Outside it
 * touches no cell and no Lisp stack; the collector answers for it. See runtime/gate.c and doc/gate.pml (the model).
 *
 * Who may touch a worker's fields: its own thread, at any time, all; the collector, while it holds the gate, all but
 * `gate`; anybody, `requests` and the two limits (by the rules in Note [requests], runtime/gate.c). */
#ifndef KRI_RUNTIME_WORKER_H
#define KRI_RUNTIME_WORKER_H

#include "runtime/atomic.h"
#include "runtime/value.h"

struct kri_heap;
struct kr_context;
struct kr_vm;

/* The local base: conses are carved from a run, cells of 2, 3, 5, 8 and 13 granules from a strip; what lies alone waits in lists. */
enum { KRI_LOCAL_SIZES = 6 }; /* buddy indices 0..5: 1 2 3 5 8 13 granules */

/* A node that is being cut into cells of one size, see Note [Fibonacci word] in heap_local.c. */
struct kri_strip {
    char *at;                                 /* the next cell */
    const uint8_t *step, *end;                /* a byte for each cell to come: 0 if a smaller block lies behind it */
};

struct kri_worker {
    /* -- the allocation fast path: this worker only -- */
    char *run;                                /* next granule to carve; run == run_end: fetch another run */
    char *run_end;
    struct kri_strip strip[KRI_LOCAL_SIZES];  /* [0] unused */
    struct kri_cell *free[KRI_LOCAL_SIZES];   /* linked through slot[0]; headers say class 0; [0]: nodes to become runs */

    /* -- limits: poisoned by requesters, see Note [requests] -- */
    kri_atomic lisp_limit;                    /* a frame must end at or below it; 0 when poisoned */
    kri_atomic native_limit;                  /* below it the native stack is low, and further down exhausted; all ones when poisoned */

    struct kr_context *ctx;                   /* the context this worker runs */
    struct kr_vm *vm;
    struct kri_heap *heap;

    /* -- what builtins hand to the virtual machine (lisp/vm.h) -- */
    kr_value tail;                            /* KRI_IMM_TAIL_CALL: the function to call with argv[0..tail_argc) */
    int tail_argc;
    kr_value callee;                          /* the builtin that runs, for messages */

    kri_atomic gate;                          /* 1 inside, 0 outside; written by the owner, read by the collector */
    kri_atomic requests;                      /* enum kri_request bits */
    void *method_cache;                       /* lisp/send.c; emptied by its owner when vm->method_epoch moved on */

    struct kri_worker_gc *gc;                 /* runtime-private: quotas, native stack bounds, statistics, mark stack */
    struct kri_worker *next;                  /* all workers of a heap; guarded by heap->workers_lock */
};

enum kri_request {
    KRI_REQUEST_STOP = 1,       /* the collector wants the gate */
    KRI_REQUEST_INTERRUPT = 2,  /* a Lisp interrupt waits: hooks.interrupt is called at the next poll */
    KRI_REQUEST_HOOK = 4,       /* after-collection work (finalizers, *gc-hook*) waits: hooks.after_gc */
    KRI_REQUEST_SAMPLE = 16,    /* hooks.sample is called at the next poll */
    KRI_REQUEST_SIGNAL = 8,     /* a signal of the system waits for its handler in Lisp: hooks.signal */
    KRI_REQUEST_BUDGET = 32,    /* what this worker runs has used up its time or memory: hooks.budget */
};

/* Attach the calling kernel thread to HEAP as a worker, inside the gate. NATIVE_BASE is the highest address of the native
 * stack that may hold values, NATIVE_LIMIT the lowest usable one. NULL when memory is out. May stop. */
struct kri_worker *kri_worker_new(struct kri_heap *heap, void *native_base, void *native_limit);
/* Detach: gives the local base back. The calling thread must be W's; it is inside the gate and leaves it. */
void kri_worker_free(struct kri_worker *w);

/* Leave and enter the gate. Leave spills the callee-saved registers into the frame of the caller, so use them through
 * kri_blocking where you can: F(ARG) runs outside the gate and may not touch cells or Lisp stacks. */
void kri_blocking(struct kri_worker *w, void (*f)(void *arg), void *arg);
/* The reverse, for a call back into Lisp from below kri_blocking: F(ARG) runs inside the gate; afterwards the worker is
 * outside as before, with the same part of its native stack answered for. If F leaves by longjmp to a frame above the
 * kri_blocking, the worker stays inside, as that frame expects. */
void kri_unblocking(struct kri_worker *w, void (*f)(void *arg), void *arg);
/* Let a waiting collector go first, and nothing else: no hook is called, nothing is raised. For slow paths that may
 * collect but may not run Lisp. */
void kri_gate_yield(struct kri_worker *w);
/* A host that returns from the API stays attached but outside; its native stack is not scanned then. */
void kri_gate_leave_host(struct kri_worker *w);
void kri_gate_leave_to(struct kri_worker *w, void *native_top);
void kri_gate_enter(struct kri_worker *w);
/* The pair for a host, which may be outside within kri_blocking: enter answers what of the native stack is answered for, leave
 * takes it back. */
void *kri_gate_enter_host(struct kri_worker *w);
/* Depth-less test, for assertions. */
static inline bool kri_inside(const struct kri_worker *w) { return kri_load_relaxed(&w->gate) != 0; }

/* Ask W to look up at its next poll. Any thread, also a signal handler (lock-free). */
void kri_request(struct kri_worker *w, enum kri_request what);
/* The owner: what was requested is not to be served any more. */
void kri_withdraw(struct kri_worker *w, enum kri_request what);
/* The slow half of a poll: yields the gate to a waiting collector, calls hooks.interrupt / .after_gc / .signal (which may run
 * Lisp and may raise), restores the limits. May collect. */
void kri_poll_slow(struct kri_worker *w);
/* For long builtins: cheap. May collect, may raise. */
static inline void kri_poll(struct kri_worker *w)
{
    /* Relaxed is enough: kri_poll_slow re-reads `requests` with acquire. */
    if (KRI_UNLIKELY(kri_load_relaxed(&w->lisp_limit) == 0))
        kri_poll_slow(w);
}
/* The owner sets its limits through these: they keep the poison if a request waits. */
void kri_set_lisp_limit(struct kri_worker *w, void *limit);
void kri_set_native_limit(struct kri_worker *w, void *limit);
/* The worker's thread goes on on another native stack: values lie below BASE, LIMIT is the lowest usable address. Sets the native
 * limit too, 128 KB (at most a quarter of the stack) above LIMIT. Inside the gate, between two polls. What waits on the stack
 * that was left is from now on the business of hooks.mark_roots (kri_mark_words). */
void kri_set_native_bounds(struct kri_worker *w, void *base, void *limit);
/* True when the native stack is too deep for recursive C code to go on (128 KB are kept in hand). Clears false alarms
 * made by poison. */
bool kri_native_exhausted_slow(struct kri_worker *w);
/* True when native code should go on as bytecode: the stack is deep, though not yet so deep. Clears false alarms likewise. */
bool kri_native_low_slow(struct kri_worker *w);
/* Give two thirds of the reserve to the handlers of a stack overflow (RELAXED), or take it back. */
void kri_native_relax(struct kri_worker *w, bool relaxed);
static inline bool kri_native_exhausted(struct kri_worker *w)
{
    return KRI_UNLIKELY((uintptr_t)__builtin_frame_address(0) < kri_load_relaxed(&w->native_limit)) && kri_native_exhausted_slow(w);
}

#endif
