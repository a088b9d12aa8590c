/* vm.c -- the virtual machine's loop.
 *
 * It does not recurse in C when bytecode calls bytecode: a call pushes a frame on the Lisp stack and goes on. Builtins are
 * called directly; one whose last act is a call answers kri_tail_call, and the loop makes that call.
 * Always true:
 *   V1  Before anything that may collect, raise or call, ctx->base and ctx->pc are those of the running frame (SYNC).
 *   V2  ctx->top is NULL, or the first word above the arguments of the builtin that runs.
 *   V3  Every register below the top of the live frames holds a value whose cell has not been reused (Note [stale words]). */
#include "lisp/interp.h"
#include "lisp/opcode.h"
#include "lisp/ops.h"
#include "lisp/send.h"

const kri_instruction kri_exit_code[1] = {KRI_OP_EXIT};
const kri_instruction kri_segment_return_code[1] = {KRI_OP_SEGRETURN};

static KRI_NOINLINE kr_value kri_op_closure(struct kri_worker *w, kr_value code, unsigned n, kr_value *base, const kri_instruction *pc)
{
    const struct kri_code *c = (const struct kri_code *)code.w;
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_CLOSURE, kri_signature(c), n + 1);
    f->code = code;
    for (unsigned i = 0; i < n; i++) {
        unsigned from = kri_decode_b(pc[i]);
        f->captured[i] = kri_decode_a(pc[i]) ? kri_function_of(base[-3])->captured[from] : base[from];
    }
    return kri_value_of(f);
}

/* The call at FRAME goes on in a new segment with room for NEED words of arguments and registers: a pseudo-frame there links
 * back to the caller (BASE, PC), its register 0 says where the result goes, and the call frame with a copy of the arguments
 * follows at SEGMENT_FRAME_CALL. Returns the pseudo-frame's base; its code is kri_segment_return_code. */
enum { SEGMENT_FRAME_CALL = 1 };

static KRI_NOINLINE kr_value *segment_frame(struct kri_worker *w, kr_value *base, const kri_instruction *pc, kr_value *frame, int argc,
                                            size_t need)
{
    if (!kri_segment_link(w, need + 2 * KRI_FRAME_LINK + SEGMENT_FRAME_CALL))
        kri_error_stack(w);
    kr_value *p = w->ctx->segment->slot + KRI_FRAME_LINK;
    p[-3] = w->vm->entry_function;
    p[-2] = kri_tag_pointer(pc);
    p[-1] = kri_tag_pointer(base);
    p[0] = kri_tag_pointer(frame);
    memcpy(p + SEGMENT_FRAME_CALL + KRI_FRAME_LINK, frame + KRI_FRAME_LINK, (size_t)argc * sizeof *p);
    return p;
}

/* ---- the loop ---- */

bool kri_run(struct kri_worker *w, kr_value *base, const kri_instruction *pc, bool unwinding, kr_value *result)
{
    static const void *const labels[] = {
#define OP(name, operands, meaning, code) &&op_##name,
#include "lisp/opcodes.def"
#undef OP
    };
    struct kr_context *const ctx = w->ctx;
    struct kr_vm *const vm = w->vm;
    const kr_value *k = NULL;
    kri_instruction i;
    /* A call that is not the simple case: function, frame start, argument count. */
    kr_value call_fn;
    kr_value *call_frame;
    int call_argc;

#define R(n) base[n]
#define K(n) k[n]
#define SELF base[-3]
#define A kri_decode_a(i)
#define B kri_decode_b(i)
#define C kri_decode_c(i)
#define SB kri_decode_sb(i)
#define SC kri_decode_sc(i)
#define BX kri_decode_bx(i)
#define JUMP(distance) (pc += (distance))
#define SYNC() (ctx->base = base, ctx->pc = pc)
#define SYNC_HERE SYNC
#define NEXT                                \
    do {                                    \
        i = *pc++;                          \
        goto *labels[kri_decode_op(i)];     \
    } while (0)

/* Enter bytecode CODE_ of FN_ in the frame whose start is F_. */
#define ENTER(fn_arg, frame_arg, argc_arg)                                                                          \
    do {                                                                                                \
        kr_value fn_ = (fn_arg);                                                                            \
        kr_value *frame_ = (frame_arg);                                                                     \
        if (KRI_LIKELY(kri_ptr(fn_)->length == KRI_SIGNATURE(argc_arg))) {                              \
            const struct kri_code *code_ = kri_code_of(fn_);                                            \
            kr_value *base_ = frame_ + KRI_FRAME_LINK;                                                  \
            if (KRI_LIKELY((uintptr_t)base_ <= kri_load_relaxed(&w->lisp_limit))) {                     \
                base_[-3] = fn_;                                                                        \
                base_[-2] = kri_tag_pointer(pc);                                                        \
                base_[-1] = kri_tag_pointer(base);                                                      \
                base = base_;                                                                           \
                pc = code_->instr;                                                                      \
                k = code_->k;                                                                           \
                NEXT;                                                                                   \
            }                                                                                           \
        }                                                                                               \
        call_fn = fn_;                                                                                  \
        call_frame = frame_;                                                                            \
        call_argc = (int)(argc_arg);                                                                      \
        goto call_generic;                                                                              \
    } while (0)
#define KRI_CALL_GLOBAL(a, n, symbol) ENTER(kri_slot(&((struct kri_symbol *)(symbol).w)->function), &R(a), n)
#define KRI_CALL_CONSTANT(a, n, function) ENTER(function, &R(a), n)
#define KRI_CALL_VALUE(a, n)                                    \
    do {                                                        \
        kr_value f_ = R(a);                                     \
        if (KRI_LIKELY(kri_is_function(f_)))                    \
            ENTER(f_, &R(a), n);                                \
        call_fn = f_;                                           \
        call_frame = &R(a);                                     \
        call_argc = (int)(n);                                   \
        goto call_generic;                                      \
    } while (0)
#define KRI_SEND(a, n, sel_arg)                                                                        \
    do {                                                                                                \
        kr_value sel_ = (sel_arg);                                                                     \
        const struct kri_cell *c_ = kri_cell(vm, R((a) + KRI_FRAME_LINK));                              \
        if (KRI_LIKELY(c_ != NULL)) {                                                                   \
            const struct kri_method_entry *e_ = kri_method_probe(w, c_->cls, sel_);                     \
            if (KRI_LIKELY(e_->cls == c_->cls && kri_eq(e_->selector, sel_) &&                          \
                           kri_method_cache_valid(w)))                                                  \
                ENTER(e_->function, &R(a), n);                                                          \
        }                                                                                               \
        SYNC();                                                                                         \
        ctx->top = &R((a) + KRI_FRAME_LINK + (n));                                                      \
        w->callee = KRI_NIL; /* the frame's function is at fault if there is no method */               \
        call_argc = (int)(n);                                                                           \
        call_frame = &R(a);                                                                             \
        call_fn = kri_send_slow(w, call_frame + KRI_FRAME_LINK, &call_argc, sel_, KRI_NIL);             \
        ctx->top = NULL;                                                                                \
        goto call_generic;                                                                              \
    } while (0)
#define KRI_SEND_SUPER(a, n, pair)                                                                      \
    do {                                                                                                \
        kr_value p_ = (pair);                                                                           \
        SYNC();                                                                                         \
        ctx->top = &R((a) + KRI_FRAME_LINK + (n));                                                      \
        w->callee = KRI_NIL; /* the frame's function is at fault if there is no method */               \
        call_argc = (int)(n);                                                                           \
        call_frame = &R(a);                                                                             \
        call_fn = kri_send_slow(w, call_frame + KRI_FRAME_LINK, &call_argc, kri_cdr(p_), kri_car(p_));  \
        ctx->top = NULL;                                                                                \
        goto call_generic;                                                                              \
    } while (0)
#define KRI_APPLY(a, n)                                                                                 \
    do {                                                                                                \
        call_frame = &R(a);                                                                             \
        call_argc = (int)(n);                                                                           \
        goto call_apply;                                                                                \
    } while (0)
#define KRI_RETURN(value)                               \
    do {                                                \
        kr_value v_ = (value);                          \
        kr_value *b_ = base;                            \
        pc = kri_untag_pointer(b_[-2]);                 \
        base = kri_untag_pointer(b_[-1]);               \
        b_[-3] = v_;                                    \
        k = kri_code_of(base[-3])->k;                   \
        NEXT;                                           \
    } while (0)
#define KRI_BUILTIN_BODY() kri_unreachable_op()
#define KRI_SEGMENT_RETURN()                                        \
    do {                                                            \
        kr_value v_ = R(SEGMENT_FRAME_CALL), *to_ = kri_untag_pointer(R(0)); \
        pc = kri_untag_pointer(R(-2));                              \
        base = kri_untag_pointer(R(-1));                            \
        kri_segment_unlink_to(ctx, ctx->segment->prev);             \
        *to_ = v_;                                                  \
        k = kri_code_of(base[-3])->k;                               \
    } while (0)
#define KRI_EXIT()                  \
    do {                            \
        *result = R(4);             \
        SYNC();                     \
        return true;                \
    } while (0)
#define KRI_RESUME(a)                                       \
    do {                                                    \
        ctx->unwind_target = kri_untag_pointer(R(a));       \
        ctx->unwind_value = R((a) + 1);                     \
        goto unwind;                                        \
    } while (0)
#define KRI_THROW(tag, value)                               \
    do {                                                    \
        kr_value tag_ = (tag);                              \
        SYNC();                                             \
        ctx->unwind_target = kri_find_handler(ctx, KRI_HANDLER_CATCH, tag_);            \
        if (!ctx->unwind_target)                            \
            kri_error(w, KRI_E_NO_CATCHER, tag_, NULL);     \
        ctx->unwind_value = (value);                        \
        goto unwind;                                        \
    } while (0)
#define KRI_RETURN_FROM(tag, value)                         \
    do {                                                    \
        kr_value tag_ = (tag);                              \
        SYNC();                                             \
        ctx->unwind_target = kri_find_handler(ctx, KRI_HANDLER_BLOCK, tag_);            \
        if (!ctx->unwind_target)                            \
            kri_error(w, KRI_E_NO_BLOCK, KRI_NIL, "the block was left before");         \
        ctx->unwind_value = (value);                        \
        goto unwind;                                        \
    } while (0)

    if (unwinding)
        goto unwind;
    k = kri_code_of(base[-3])->k;
    NEXT;

#define OP(name, operands, meaning, code) \
op_##name:                                \
    {                                     \
        code;                             \
    }                                     \
    NEXT;
#include "lisp/opcodes.def"
#undef OP

call_generic:
    for (;;) {
        if (KRI_UNLIKELY(!kri_is_function(call_fn))) {
            SYNC();
            ctx->top = call_frame + KRI_FRAME_LINK + call_argc;
            w->callee = base[-3]; /* whom the error names: the caller */
            call_fn = kri_coerce_function(w, call_fn);
            ctx->top = NULL;
        }
        struct kri_code *code = kri_code_of(call_fn);
        kr_value *argv = call_frame + KRI_FRAME_LINK;
        if (code->builtin && KRI_LIKELY(!(code->flags & KRI_CODE_MACRO) || !code->native)) { /* a macro's expander may be native code */
            SYNC();
            w->callee = call_fn;
            if (KRI_UNLIKELY(call_argc < code->nreq || (code->max >= 0 && call_argc > code->max)) && !code->native)
                kri_argc_error(w, call_fn, call_argc, argv);
            ctx->top = argv + call_argc;
            kr_value v = code->builtin(w, call_argc, argv);
            ctx->top = NULL;
            if (KRI_UNLIKELY(v.w == KRI_IMM_TAIL_CALL)) {
                call_fn = w->tail;
                call_argc = w->tail_argc;
                continue;
            }
            *call_frame = v;
            NEXT;
        }
        if (KRI_UNLIKELY(code->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL | KRI_CODE_UNDEFINED))) {
            SYNC();
            if (code->flags & KRI_CODE_UNDEFINED && kri_decode_op(pc[-1]) == KRI_OP_CALLG) {
                ctx->top = argv + call_argc;
                w->callee = KRI_NIL;
                call_fn = kri_undefined_function(w, k[kri_decode_c(pc[-1])], true);
                ctx->top = NULL;
                continue;
            }
            kri_error(w, KRI_E_ILLEGAL_FUNCTION, code->name, NULL);
        }
        /* Bytecode whose arguments must be arranged, or for which the stack is short, or a poll is due. */
        size_t need = (size_t)code->frame + (call_argc > code->frame ? (size_t)call_argc : 0);
        if ((uintptr_t)(argv + need) > kri_load_relaxed(&w->lisp_limit)) {
            SYNC();
            ctx->top = argv + call_argc;
            w->callee = call_fn; /* whom the errors name */
            call_frame[0] = call_fn;
            if (kri_load_relaxed(&w->lisp_limit) == 0)
                kri_poll_slow(w);
            if (argv + need > ctx->segment->limit) {
                w->callee = call_fn;
                base = segment_frame(w, base, pc, call_frame, call_argc, need);
                pc = kri_segment_return_code;
                call_frame = base + SEGMENT_FRAME_CALL;
                argv = call_frame + KRI_FRAME_LINK;
                SYNC();
            }
            ctx->top = NULL;
        }
        if (kri_ptr(call_fn)->length != KRI_SIGNATURE(call_argc)) {
            SYNC();
            ctx->top = argv + call_argc;
            w->callee = call_fn;
            kri_arrange(w, code, call_fn, argv, call_argc);
            ctx->top = NULL;
        }
        argv[-3] = call_fn;
        argv[-2] = kri_tag_pointer(pc);
        argv[-1] = kri_tag_pointer(base);
        base = argv;
        pc = code->instr;
        k = code->k;
        NEXT;
    }

call_apply: {
    /* Spread the last argument over the stack; a long list may need a new segment. */
    kr_value *argv = call_frame + KRI_FRAME_LINK;
    call_fn = call_frame[0];
    SYNC();
    ctx->top = argv + call_argc;
    w->callee = kri_symbol_function(vm, vm->sym.apply);
    kr_value list = argv[call_argc - 1], l;
    kr_value *to = argv + call_argc - 1, *room = (kr_value *)kri_load_relaxed(&w->lisp_limit); /* 0: a request waits */
    for (l = list; to < room && kri_is_cons(l); l = kri_slot(&kri_cons_of(l)->cdr))
        *to++ = kri_slot(&kri_cons_of(l)->car);
    if (!kri_is_cons(l) && room) {
        call_argc = (int)(to - argv);
        ctx->top = NULL;
        goto call_generic;
    }
    size_t n = 0;
    for (l = list; kri_is_cons(l); l = kri_slot(&kri_cons_of(l)->cdr))
        if (++n > vm->stack_limit_words)
            kri_error(w, KRI_E_CIRCULAR, list, "or more arguments than the stack holds");
    if ((uintptr_t)(argv + call_argc + n) > kri_load_relaxed(&w->lisp_limit)) {
        if (kri_load_relaxed(&w->lisp_limit) == 0)
            kri_poll_slow(w);
        if (argv + call_argc + n > ctx->segment->limit) {
            base = segment_frame(w, base, pc, call_frame, call_argc, (size_t)call_argc + n);
            pc = kri_segment_return_code;
            call_frame = base + SEGMENT_FRAME_CALL;
            argv = call_frame + KRI_FRAME_LINK;
            SYNC();
        }
    }
    call_argc--;
    /* The list may shrink or grow under another thread's hands: at most N elements are taken. */
    for (; n > 0 && kri_is_cons(list); n--, list = kri_cdr(list))
        argv[call_argc++] = kri_car(list);
    ctx->top = NULL;
    goto call_generic;
}

unwind:
    /* ctx->unwind_target and unwind_value are set; pass every newer entry, running cleanups. */
    for (;;) {
        kr_value *h = ctx->handler;
        kr_value *hbase = kri_untag_pointer(h[3]);
        enum kri_handler_kind kind = kri_handler_kind(h);
        if (kind == KRI_HANDLER_NATIVE) {
            *result = KRI_NIL;
            return false;
        }
        if (kind == KRI_HANDLER_BIND) {
            kri_op_unbind(ctx, h);
            continue;
        }
        ctx->handler = kri_op_previous(h);
        if (h != ctx->unwind_target && kind != KRI_HANDLER_UNWIND)
            continue;
        if (kri_segment_of(ctx, hbase) != ctx->segment)
            kri_segment_unlink_to(ctx, kri_segment_of(ctx, hbase));
        base = hbase;
        pc = kri_code_of(base[-3])->instr + kri_handler_target(h);
        k = kri_code_of(base[-3])->k;
        ctx->top = NULL;
        kri_overflow_end(ctx);
        if (h == ctx->unwind_target) {
            if (KRI_UNLIKELY(kind == KRI_HANDLER_CALL)) {
                call_fn = ctx->unwind_value;
                call_frame = &R(kri_decode_a(pc[-1]));
                call_argc = 0;
                ctx->returns = ctx->unwind_value = KRI_NIL;
                goto call_generic;
            }
            if (KRI_UNLIKELY(kind == KRI_HANDLER_RETURN)) {
                R(kri_decode_a(pc[-1])) = ctx->unwind_value;
                ctx->returns = KRI_NIL;
            } else {
                h[0] = ctx->unwind_value;
            }
            ctx->unwind_value = KRI_NIL;
        } else {
            h[0] = kri_tag_pointer(ctx->unwind_target);
            h[1] = ctx->unwind_value;
        }
        break;
    }
    NEXT;
}
