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
            SYNC_HERE();                                                       \
            v_ = kri_float_slow(w, d_);                                        \
        }                                                                      \
        v_;                                                                    \
    })
/* The same where the fast version leaves, out of the way. */
static KRI_COLD kr_value kri_box(struct kri_worker *w, double d) { return kri_float(w, d); }
/* V as a double, if it is a float in the word or an integer that a double holds exactly; else the fast version leaves. */
#define KRI_DOUBLE(v)                                                          \
    ({                                                                         \
        kr_value v_ = (v);                                                     \
        double d_;                                                             \
        if (KRI_LIKELY(kri_is_flonum(v_)))                                     \
            d_ = kri_flonum_value(v_);                                         \
        else if (kri_is_fixnum(v_) && (uintptr_t)(kri_fixnum_value(v_) + ((intptr_t)1 << 53)) <= (uintptr_t)1 << 54) \
            d_ = (double)kri_fixnum_value(v_);                                 \
        else                                                                   \
            goto slow;                                                         \
        d_;                                                                    \
    })
/* Element I of V if it is a float-vector. */
#define KRI_FLOAT_ELEMENT(v, i)                                                \
    (*({                                                                       \
        kr_value x_ = (v), i_ = (i);                                           \
        struct kri_fvector *f_ = (struct kri_fvector *)x_.w;                   \
        if (KRI_UNLIKELY(!kri_has_class(x_, KRI_CLASS_FLOAT_VECTOR) || !kri_is_fixnum(i_) || \
                         (uintptr_t)kri_fixnum_value(i_) >= f_->head.length))  \
            goto slow;                                                         \
        &f_->at[kri_fixnum_value(i_)];                                         \
    }))
/* As kri_lt and kin: true if an operand is NaN. */
#define KRI_DOUBLE_LT(x, y) (!((x) >= (y)))
#define KRI_DOUBLE_LE(x, y) (!((x) > (y)))

#define KRI_THROW(tag, value)                      \
    do {                                           \
        SYNC_HERE();                               \
        kri_throw(w, (tag), (value));              \
    } while (0)
#define KRI_RETURN_FROM(tag, value)                \
    do {                                           \
        SYNC_HERE();                               \
        kri_native_return_from(w, (tag), (value)); \
    } while (0)
#define KRI_RETURN(value) return (value)

#endif
