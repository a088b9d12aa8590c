/* context.h -- one thread of Lisp control: its Lisp stack, dynamic bindings and unwind chain.
 *
 * The Lisp stack is a chain of segments that never move. A frame is FRAME_LINK words of linkage and then its registers:
 *   base[-3]  the function        base[-2]  return address | 1        base[-1]  the caller's base | 1
 * The linkage words look like fixnums to the collector. A call's result replaces base[-3]: the caller finds it in the register
 * at which the call frame began.
 *
 * Note [stale words]: registers are not cleared on entry. The collector marks every word from a segment's start to the top of
 * the live frames and clears the rest up to the segment's high-water mark, so any stale word in a later frame was written
 * since the last collection, or marked by it: its cell has not been reused. Marking is thus exact about addresses and at
 * worst a little generous about liveness. */
#ifndef KRI_LISP_CONTEXT_H
#define KRI_LISP_CONTEXT_H

#include <pthread.h>
#include "lisp/object.h"

enum { KRI_FRAME_LINK = 3, KRI_HANDLER_WORDS = 4, KRI_SEGMENT_WORDS = 8192, KRI_FRAME_SLACK = 64,
       KRI_STACK_RESERVE_WORDS = 1 << 16 };

struct kri_segment {
    struct kri_segment *prev;
    kr_value *limit;           /* one past the last usable word */
    size_t words;
    kr_value slot[];
};

/* An entry of the unwind chain: four registers of some frame, newest first.
 *   [0] the previous entry | 1   [1] kind and target instruction, a fixnum   [2] tag, symbol index or saved   [3] the frame's base | 1 */
enum kri_handler_kind {
    KRI_HANDLER_CATCH,    /* [2] the tag */
    KRI_HANDLER_BLOCK,    /* [2] a fresh box: the block's or tagbody's identity */
    KRI_HANDLER_UNWIND,   /* cleanup at the target */
    KRI_HANDLER_BIND,     /* [2] the value to restore, target field: the special's index */
    KRI_HANDLER_NATIVE,   /* a C frame that entered the virtual machine: [2] struct kri_entry * | 1 */
    KRI_HANDLER_RETURN,   /* a frame goes on behind its call with the value; [2] the vector that the entry lies in */
    KRI_HANDLER_CALL,     /* the same with what the value, a function of no arguments, returns */
};

struct kri_name;
struct kri_budget;

struct kr_context {
    size_t alive;                     /* KRI_ALIVE; the first word, for misuse.c */
    struct kri_worker *worker;
    struct kr_vm *vm;
    struct kri_segment *segment;      /* the newest */
    struct kri_segment *spare;        /* one kept, so that calls across a boundary do not allocate each time */
    bool overflowed;                  /* the stack limit was hit and its error is being handled */
    kr_value *base;                   /* current frame; kept up to date whenever C code runs */
    const kri_instruction *pc;        /* likewise: the instruction after the call */
    kr_value *top;                    /* first free word, while a builtin runs; NULL: the end of the current frame */
    struct kri_native_frame *native;  /* innermost native frame that entered the runtime, and its region: lisp/native.h */
    struct kri_region *region;
    kr_value *handler;                /* newest entry of the unwind chain, or NULL */
    size_t stack_words;               /* in all segments; bounded by vm->stack_limit_words */

    kr_value *dynamic;                /* bindings of special variables by index; KRI_UNBOUND: see the global value */
    size_t dynamic_size;

    struct kri_entry *entry;          /* innermost entry from C into the virtual machine */
    kr_value *unwind_target;          /* while unwinding: the entry to stop at */
    kr_value unwind_value;

    kr_value *locals;                 /* what a host holds between API calls; kr_scope_begin / kr_scope_end */
    kri_atomic locals_count;          /* atomic: a host outside the gate may drop some while a collection reads */
    size_t locals_size;

    int thrown;                       /* a throw that kri_protect stopped last: enum kri_handler_kind, or -1; to what, with what */
    kr_value thrown_tag, thrown_value;

    struct kri_foreign_call *foreign; /* innermost call of a foreign function in progress (lisp/foreign.h) */
    int foreign_errno;                /* errno after the last one */

    kr_value *held;                   /* the mutex locks this context holds */
    size_t held_count, held_size;

    kr_value thread;                  /* the Lisp thread object, NIL for the first */
    kr_value condition;               /* the condition being handled, for the REPL */
    kr_value evaluated;               /* the form whose builtin eval runs without compiling it, or NIL */
    kr_value returns;                 /* the vectors of RETURN entries in the chain, a list */
    kr_value pending_interrupt;       /* list of functions to call at the next polls, NIL among them: the error; guarded by vm->lock */
    struct kri_positions *positions;  /* line numbers of the form being read (lisp/reader.c), or NULL */
    uint64_t answering;               /* signals whose handlers run, bit N-1 */
    size_t signals_answered;
    bool deaf;                        /* takes no signals any more; guarded by signal.c's lock */
    struct kri_compiler *compiler;    /* the compilation that runs, NULL while its macros do */
    unsigned depth;                   /* nested entries from C */

    struct kri_name *names;           /* symbols by what C programs call them (lisp/api_name.c) */
    size_t names_epoch;

    kri_atomic budget;                /* struct kri_budget *: what runs here keeps within it, or 0 (lisp/budget.c) */
    bool budget_told;                 /* its condition was raised here */
    bool budget_own;                  /* kr_budget_begin was called here */
    bool telling;                     /* the host's hook for errors runs */
    bool automatic;                   /* attached by kr_current */
    pthread_t owner;                  /* the thread that may use it */

    struct kr_context *next, *prev;   /* all contexts of the VM; guarded by vm->contexts_lock */
};

/* The value of special variable SYMBOL in W's context, or KRI_UNBOUND. */
kr_value kri_special(struct kri_worker *w, kr_value symbol);
/* Set it where it is bound: the context's binding if there is one, else the global value. */
void kri_set_special(struct kri_worker *w, kr_value symbol, kr_value value);
/* Make SYMBOL special (idempotent): it gets an index in the dynamic tables. */
void kri_proclaim_special(struct kri_worker *w, kr_value symbol);

struct kr_context *kri_context_new(struct kr_vm *vm);
/* The context of VM that the calling thread attached last, or NULL. */
struct kr_context *kri_context_here(const struct kr_vm *vm);
void kri_context_free(struct kr_context *ctx);
/* Room for a frame of WORDS words above ctx->top from C code; links a new segment when needed; raises stack overflow. */
kr_value *kri_stack_reserve(struct kri_worker *w, size_t words);
/* The same, or NULL. */
kr_value *kri_stack_try(struct kri_worker *w, size_t words);

#endif
