/* native_code.h -- what generated C includes: opcodes.def's words as they are meant in native code. Registers are C variables r0, r1 ...
 * A function defines POOL (its constants), SITES (its first site), SELF, and FRAME(), which completes its record; an instruction
 * defines PC. See native.h and native_generate.c. */
#ifndef KRI_LISP_NATIVE_CODE_H
#define KRI_LISP_NATIVE_CODE_H

#include "lisp/native.h"

/* The runtime's functions: linked with it, they are called as they are; in a shared object through its table, by wrappers which the module's first
 * unit defines. */
#if defined(KRI_NATIVE_LINKED)
#define API(type, name, parameters, arguments) type kri_##name parameters;
#define API_VOID(name, parameters, arguments) void kri_##name parameters;
#define API_NORETURN(name, parameters, arguments) _Noreturn void kri_##name parameters;
#else
#ifdef KRI_NATIVE_UNIT
extern const struct kri_native_api *kri_api;
#define KRI_WRAPPER extern inline __attribute__((gnu_inline, always_inline))
#else
const struct kri_native_api *kri_api;
#define KRI_WRAPPER
#endif
#define API(type, name, parameters, arguments) \
    KRI_WRAPPER type kri_##name parameters { return kri_api->name arguments; }
#define API_VOID(name, parameters, arguments) \
    KRI_WRAPPER void kri_##name parameters { kri_api->name arguments; }
#define API_NORETURN(name, parameters, arguments) \
    KRI_WRAPPER _Noreturn void kri_##name parameters { kri_api->name arguments; __builtin_unreachable(); }
#endif
#include "lisp/native_api.def"
#undef API
#undef API_VOID
#undef API_NORETURN

/* The native stack's pointer, for the poll at every entry. */
#if defined(__x86_64__)
register uintptr_t kri_stack_pointer __asm__("rsp");
#elif defined(__aarch64__)
register uintptr_t kri_stack_pointer __asm__("sp");
#else
#define kri_stack_pointer ((uintptr_t)__builtin_frame_address(0))
#endif
#define KRI_NATIVE_LOW() KRI_UNLIKELY(kri_stack_pointer < kri_load_relaxed(&w->native_limit))

#define KRI_PASTE_(a, b) a##b
#define KRI_PASTE(a, b) KRI_PASTE_(a, b)
#define R(n) KRI_PASTE(r, n)
#define K(n) k[POOL + (n)]
#define JUMP(n) goto KRI_PASTE(i, n)
#define NEXT break
#define SITE() (rec.frame.site = &sites[SITES + PC])
#define SYNC_HERE() (FRAME(), SITE(), w->ctx->native = &rec.frame)

/* ---- floats without their word ---- */

/* A double as a value. */
#define KRI_BOX(d)                                                             \
    ({                                                                         \
        double d_ = (d);                                                       \
        kr_value v_ = kri_flonum_try(d_);                                      \
        if (KRI_UNLIKELY(!kri_is_flonum(v_))) {                                \
            if (kri_is_tried_zero(v_)) {                                       \
                v_ = (kr_value){KRI_FLONUM_ZERO};                              \
            } else {                                                           \
                SYNC_HERE();                                                   \
                v_ = kri_float_slow(w, d_);                                    \
            }                                                                  \
        }                                                                      \
        v_;                                                                    \
    })
/* The same where the fast version leaves, out of the way. */
static KRI_COLD kr_value kri_box(struct kri_worker *w, double d) { return kri_float(w, d); }
/* A float that has no word of its own (MIXED: or an integer that a double holds exactly) as a double; false: V is none. */
struct kri_found_double { double d; bool found; };
static KRI_COLD struct kri_found_double kri_find_double(kr_value v, bool mixed)
{
    if (kri_is_fixnum(v))
        return (struct kri_found_double){(double)kri_fixnum_value(v), mixed && (uintptr_t)(kri_fixnum_value(v) + ((intptr_t)1 << 53)) <= (uintptr_t)1 << 54};
    if (kri_is_pointer(v))
        return (struct kri_found_double){((const struct kri_float_box *)v.w)->d, kri_ptr(v)->cls == KRI_CLASS_FLOAT_BOX};
    switch (v.w) {
    case KRI_IMM_MINUS_ZERO: return (struct kri_found_double){-0.0, true};
    case KRI_IMM_PLUS_INF: return (struct kri_found_double){__builtin_inf(), true};
    case KRI_IMM_MINUS_INF: return (struct kri_found_double){-__builtin_inf(), true};
    case KRI_IMM_NAN: return (struct kri_found_double){__builtin_nan(""), true};
    default: return (struct kri_found_double){0, false};
    }
}
#define KRI_FIND_DOUBLE(v, mixed)                                              \
    ({                                                                         \
        kr_value v_ = (v);                                                     \
        double d_;                                                             \
        if (KRI_LIKELY(kri_is_flonum(v_))) {                                   \
            d_ = kri_flonum_value(v_);                                         \
        } else {                                                               \
            struct kri_found_double f_ = kri_find_double(v_, mixed);           \
            if (!f_.found)                                                     \
                goto slow;                                                     \
            d_ = f_.d;                                                         \
        }                                                                      \
        d_;                                                                    \
    })
/* V, a float or an integer that a double holds exactly, as a double; else the fast version leaves. */
#define KRI_DOUBLE(v)                                                          \
    ({                                                                         \
        kr_value u_ = (v);                                                     \
        kri_is_fixnum(u_) && (uintptr_t)(kri_fixnum_value(u_) + ((intptr_t)1 << 53)) <= (uintptr_t)1 << 54 ? (double)kri_fixnum_value(u_) \
                                                                                                           : KRI_FIND_DOUBLE(u_, false); \
    })
/* V, a float, as a double; else the fast version leaves. */
#define KRI_FLOAT(v) KRI_FIND_DOUBLE(v, false)

/* ---- what is known to be a fixnum, or a vector of a class ---- */

#define KRI_KNOWN(condition) do { if (!(condition)) __builtin_unreachable(); } while (0)
#define KRI_FIXNUM_OR_LEAVE(v)                                                 \
    do {                                                                       \
        if (KRI_UNLIKELY(!kri_is_fixnum(v)))                                   \
            goto slow;                                                         \
    } while (0)
#define KRI_FIXNUM_SUM(a, x, y, overflow)                                      \
    do {                                                                       \
        long r_;                                                               \
        if (KRI_UNLIKELY(overflow((x), (y), &r_)))                             \
            goto slow;                                                         \
        R(a) = (kr_value){(uintptr_t)r_};                                      \
    } while (0)
#define KRI_FIXNUM_PRODUCT(a, x, y)                                            \
    do {                                                                       \
        long r_;                                                               \
        if (KRI_UNLIKELY(__builtin_smull_overflow((long)((x).w - 1), kri_fixnum_value(y), &r_))) \
            goto slow;                                                         \
        R(a) = (kr_value){(uintptr_t)r_ + 1};                                  \
    } while (0)
/* Element I, a fixnum, of V, which is a TYPE. */
#define KRI_ELEMENT(type, v, i)                                                \
    (*({                                                                       \
        struct type *f_ = (struct type *)(v).w;                                \
        uintptr_t i_ = (uintptr_t)kri_fixnum_value(i);                         \
        if (KRI_UNLIKELY(i_ >= KRI_ELEMENTS(f_)))                              \
            goto slow;                                                         \
        KRI_ELEMENT_ADDRESS(f_, i_);                                           \
    }))
#define KRI_ELEMENTS(f) ((f)->head.length)
#define KRI_ELEMENT_ADDRESS(f, i) _Generic((f), struct kri_string *: &((struct kri_string *)(f))->byte[i], \
                                           struct kri_ivector *: &((struct kri_ivector *)(f))->at[i], struct kri_fvector *: &((struct kri_fvector *)(f))->at[i])
/* As kri_lt and kin: true if an operand is NaN. */
#define KRI_DOUBLE_LT(x, y) (!((x) >= (y)))
#define KRI_DOUBLE_LE(x, y) (!((x) > (y)))

/* A cons of X and Y. */
#define KRI_CONS_OF(x, y)                                                      \
    ({                                                                         \
        kr_value x_ = (x), y_ = (y);                                           \
        if (KRI_UNLIKELY(w->run == w->run_end))                                \
            SYNC_HERE();                                                       \
        const struct kri_cell *c_ = kri_alloc_pair(w, KRI_CLASS_CONS, x_, y_); \
        kr_value v_ = kri_value_of(c_);                                        \
        if (KRI_UNLIKELY(c_ == NULL)) {                                        \
            SYNC_HERE();                                                       \
            v_ = kri_cons_slow(w, x_, y_);                                     \
        }                                                                      \
        v_;                                                                    \
    })

static KRI_NOINLINE void kri_native_go(struct kri_native_handler *h) { KRI_LONGJMP(h->jump); }

/* The commonest throw: to the newest handler, which is in this region. */
static inline void kri_native_leave(struct kr_context *ctx, enum kri_handler_kind kind, kr_value tag, kr_value value)
{
    kr_value *h = ctx->handler;
    if (KRI_LIKELY(h && kri_eq(h[1], kri_fixnum((intptr_t)(KRI_HANDLER_IN_C << 3 | kind))) && kri_eq(h[2], tag)) &&
        ((struct kri_native_handler *)h)->region == ctx->region && !ctx->overflowed) {
        ctx->handler = kri_op_previous(h);
        ctx->unwind_value = value;
        kri_native_go((struct kri_native_handler *)h);
        __builtin_unreachable();
    }
}
#define KRI_THROW(tag, value)                                         \
    do {                                                              \
        kri_native_leave(ctx, KRI_HANDLER_CATCH, (tag), (value));     \
        SYNC_HERE();                                                  \
        kri_throw(w, (tag), (value));                                 \
    } while (0)
#define KRI_RETURN_FROM(tag, value)                                   \
    do {                                                              \
        kri_native_leave(ctx, KRI_HANDLER_BLOCK, (tag), (value));     \
        SYNC_HERE();                                                  \
        kri_native_return_from(w, (tag), (value));                    \
    } while (0)
#define KRI_RETURN(value) return (value)

/* ---- handlers: Note [native handlers] ---- */

static inline void kri_native_push(struct kr_context *ctx, struct kri_native_handler *h, enum kri_handler_kind kind, kr_value tag)
{
    h->word[2] = tag;
    h->region = ctx->region;
    h->go = kri_native_go;
    kri_handler_push(ctx, ctx->base, h->word, kind, KRI_HANDLER_IN_C);
}
/* A throw or the like to H puts its value into REGISTER and goes on at LABEL. */
#define KRI_HANDLER_CATCHES(h, kind, tag, register, label) \
    kri_native_push(ctx, &h, kind, tag);                   \
    if (KRI_UNLIKELY(KRI_SETJMP(h.jump))) {                \
        register = ctx->unwind_value;                      \
        ctx->unwind_value = KRI_NIL;                       \
        goto label;                                        \
    }
/* Unwinding enters the cleanup at LABEL with its target and value in two registers. */
#define KRI_HANDLER_PROTECTS(h, target, value, label)              \
    kri_native_push(ctx, &h, KRI_HANDLER_UNWIND, KRI_ABSENT);      \
    if (KRI_UNLIKELY(KRI_SETJMP(h.jump))) {                        \
        target = kri_tag_pointer(ctx->unwind_target);              \
        value = ctx->unwind_value;                                 \
        goto label;                                                \
    }
#define KRI_HANDLER_POP() (ctx->handler = kri_op_previous(ctx->handler))
/* H: the entry's words. */
#define KRI_HANDLER_BINDS(h, symbol, value_arg)                                              \
    do {                                                                                     \
        kr_value symbol_ = (symbol), value_ = (value_arg);                                   \
        kr_value special_ = ((const struct kri_symbol *)symbol_.w)->special;                 \
        size_t i_ = (size_t)kri_fixnum_value(special_);                                      \
        if (KRI_UNLIKELY(i_ == 0 || i_ >= ctx->dynamic_size)) {                              \
            SYNC_HERE();                                                                     \
            kri_op_bind(ctx, ctx->base, h, symbol_, value_);                                 \
        } else {                                                                             \
            h[0] = kri_tag_pointer(ctx->handler);                                            \
            h[1] = (kr_value){((special_.w - 1) << 3) + (KRI_HANDLER_BIND << 1 | 1)};        \
            h[2] = ctx->dynamic[i_];                                                         \
            h[3] = kri_tag_pointer(ctx->base);                                               \
            ctx->handler = h;                                                                \
            ctx->dynamic[i_] = value_;                                                       \
        }                                                                                    \
    } while (0)
/* H: that entry's words, or ctx->handler where another version of the function may have made it. */
#define KRI_HANDLER_UNBINDS(h)                              \
    do {                                                    \
        const kr_value *h_ = (h);                           \
        ctx->dynamic[kri_handler_target(h_)] = h_[2];       \
        ctx->handler = kri_op_previous(h_);                 \
    } while (0)

#endif
