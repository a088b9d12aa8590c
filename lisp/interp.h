/* interp.h -- what vm.c, context.c, call.c and error.c share about frames, segments and unwinding. */
#ifndef KRI_LISP_INTERP_H
#define KRI_LISP_INTERP_H

#include <setjmp.h>
#include "lisp/vm.h"

/* gcc's own pair restores only what it must; the sanitizers understand the library's. */
#if defined(__SANITIZE_ADDRESS__) || defined(KRI_TSAN) || defined(__clang__)
typedef jmp_buf kri_jump;
#define KRI_ACROSS volatile /* what lives on where setjmp returns again */
#define KRI_SETJMP(b) setjmp(b)
#define KRI_LONGJMP(b) longjmp(b, 1) /* the thread sanitizer does not know _longjmp */
#else
typedef void *kri_jump[5];
#define KRI_ACROSS /* gcc knows that calls may go there, and keeps nothing in registers */
#define KRI_SETJMP(b) __builtin_setjmp(b)
#define KRI_LONGJMP(b) __builtin_longjmp(b, 1)
#endif

/* A C frame that can be unwound to. It stands in the unwind chain as a NATIVE handler, on the Lisp stack. */
struct kri_entry {
    kri_jump jump;
    struct kri_entry *prev;
    kr_value *handler;           /* its own record */
    struct kri_segment *segment; /* as they were, for restoring */
    kr_value *base, *top;
    struct kri_native_frame *native;
    struct kri_region *region;
    const kri_instruction *pc;
    kr_value callee;             /* the builtin that entered, or NIL */
    kr_value evaluated;
    struct kri_compiler *compiler;
    size_t locals;               /* those of host functions above are dropped with them */
    bool barrier;                /* unwinding ends here and becomes a status (kri_protect) */
};

static inline kr_value kri_tag_pointer(const void *p) { return (kr_value){(uintptr_t)p | 1}; }
static inline void *kri_untag_pointer(kr_value v) { return (void *)(v.w & ~(uintptr_t)1); }

static inline kr_value *kri_op_previous(const kr_value *h) { return kri_untag_pointer(h[0]); }
static inline enum kri_handler_kind kri_handler_kind(const kr_value *h) { return (enum kri_handler_kind)(kri_fixnum_value(h[1]) & 7); }
/* In an entry's target field: it lies in a struct kri_native_handler (native.h). */
#define KRI_HANDLER_IN_C ((size_t)1 << 40)
static inline bool kri_handler_in_c(const kr_value *h) { return ((size_t)kri_fixnum_value(h[1]) >> 3 & KRI_HANDLER_IN_C) != 0; }
static inline size_t kri_handler_target(const kr_value *h) { return (size_t)kri_fixnum_value(h[1]) >> 3; }

/* A stack overflow has been dealt with: the reserve that its handlers could use is one again. */
static inline void kri_overflow_end(struct kr_context *ctx)
{
    if (KRI_UNLIKELY(ctx->overflowed)) {
        ctx->overflowed = false;
        kri_native_relax(ctx->worker, false);
    }
}
/* Link a segment with room for WORDS; false at the limit. */
bool kri_segment_link(struct kri_worker *w, size_t words);
void kri_segment_unlink_to(struct kr_context *ctx, struct kri_segment *keep);
struct kri_segment *kri_segment_of(struct kr_context *ctx, const kr_value *p);
kr_value *kri_context_top(const struct kr_context *ctx);
bool kri_dynamic_ensure(struct kr_context *ctx, size_t index);
void kri_mark_contexts(struct kr_vm *vm, struct kri_marker *m);
_Noreturn void kri_error_stack(struct kri_worker *w);

/* Run from FN's frame at BASE (arguments in place) until it returns; false: unwinding reached the entry. */
bool kri_run(struct kri_worker *w, kr_value *base, const kri_instruction *pc, bool unwinding, kr_value *result);
/* Call FN, which is bytecode; the arguments lie anywhere below ctx->top. */
kr_value kri_call_bytecode(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv);
/* The same with the parameters as kri_arrange leaves them. */
kr_value kri_call_arranged(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv);
/* Begin unwinding to handler TARGET with VALUE. */
_Noreturn void kri_unwind_to(struct kri_worker *w, kr_value *target, kr_value value);
/* The nearest catch of TAG (or block with identity TAG), or NULL. */
kr_value *kri_find_handler(struct kr_context *ctx, enum kri_handler_kind kind, kr_value tag);
/* Arrange ARGC arguments at BASE as CODE's prologue wants them; raises argument-count and keyword errors. */
void kri_arrange(struct kri_worker *w, struct kri_code *code, kr_value fn, kr_value *base, int argc);
_Noreturn void kri_argc_error(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv);
/* Undo a binding entry / any entry that needs no Lisp. */
void kri_op_unbind(struct kr_context *ctx, kr_value *h);
extern const kri_instruction kri_exit_code[1], kri_segment_return_code[1];

#endif
