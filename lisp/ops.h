/* ops.h -- what the instructions in opcodes.def are made of, for both tiers: the virtual machine's loop (vm.c) and native code,
 * whose generated C includes this through native.h. Fast paths are macros or inline, the rest lies in ops.c.
 *
 * The macros expect of the tier: R(n) a register, NEXT, which ends the instruction (each fast path ends with its own, since a join would
 * cost the loop a test of what is known already), and before what may collect, raise or call SYNC() or SYNC_HERE(). SYNC() stands where nothing
 * has been done yet that must not be done twice: native code's fast version leaves there for the complete one, which does the instruction anew.
 *
 * KRI_NATIVE_LEAN: the core library's native code, which is to be small, has in line what it does often; floats and elements of vectors are functions'. */
#ifndef KRI_LISP_OPS_H
#define KRI_LISP_OPS_H

#include "lisp/interp.h"

kr_value kri_op_getvar_slow(struct kri_worker *w, kr_value symbol);
kr_value kri_op_function(struct kri_worker *w, kr_value symbol);
_Noreturn void kri_op_bad_self(struct kri_worker *w, kr_value self, kr_value cls);
void kri_op_setvar_slow(struct kri_worker *w, kr_value symbol, kr_value v);
/* car and cdr of V, which is no list: the error. */
kr_value kri_op_car(struct kri_worker *w, kr_value v);
kr_value kri_op_cdr(struct kri_worker *w, kr_value v);
void kri_op_bind(struct kr_context *ctx, kr_value *base, kr_value *h, kr_value symbol, kr_value value);
/* V is not of the TYPE of KIND as far as kri_type_is knows: raises, unless it is of a subclass or typep says so. */
void kri_op_type(struct kri_worker *w, kr_value v, kr_value type, unsigned kind);
/* Call the builtin that SYMBOL names. */
kr_value kri_op_builtin(struct kri_worker *w, kr_value symbol, kr_value x, kr_value y);
kr_value kri_op_length(struct kri_worker *w, kr_value sequence);
kr_value kri_op_aref(struct kri_worker *w, kr_value v, kr_value i);
void kri_op_aset(struct kri_worker *w, kr_value v, kr_value i, kr_value x);

static inline bool kri_op_self_ok(struct kr_vm *vm, kr_value self, kr_value cls, unsigned slots)
{
    const struct kri_cell *c = kri_cell(vm, self);
    if (!c)
        return false;
    const struct kri_class *info = &vm->classes[c->cls];
    if (kri_eq(info->object, cls) && info->slots >= slots)
        return true;
    return kri_derivedp(vm, self, cls) && (info->slots >= slots || info->element != KRI_ELEMENT_NONE);
}

static inline void kri_handler_push(struct kr_context *ctx, kr_value *base, kr_value *h, enum kri_handler_kind kind, size_t target)
{
    h[0] = kri_tag_pointer(ctx->handler);
    h[1] = kri_fixnum((intptr_t)(target << 3 | kind));
    h[3] = kri_tag_pointer(base);
    ctx->handler = h;
}

static inline void kri_op_handler(struct kr_context *ctx, kr_value *base, const kri_instruction *pc, kr_value *h,
                                  enum kri_handler_kind kind, int32_t distance)
{
    kri_handler_push(ctx, base, h, kind, (size_t)(pc + distance - kri_code_of(base[-3])->instr));
}

static inline kr_value kri_unreachable_op(void) { __builtin_unreachable(); }

/* ---- declared types ---- */

/* Is V certainly of the type that KIND and TYPE (a vector) say? */
__attribute__((always_inline)) static inline bool kri_type_is(struct kr_vm *vm, kr_value v, kr_value type, unsigned kind)
{
    const kr_value *t = ((const struct kri_vector *)type.w)->at;
    switch (kind) {
    case KRI_TYPE_FIXNUM:
        return kri_is_fixnum(v);
    case KRI_TYPE_INTEGER:
        return kri_is_fixnum(v) || kri_has_class(v, KRI_CLASS_BIGNUM);
    case KRI_TYPE_FLOAT:
        return kri_is_float(v);
    case KRI_TYPE_NUMBER:
        return kri_is_fixnum(v) || kri_is_float(v) || kri_is_number(v);
    case KRI_TYPE_LIST:
        return kri_is_list(v);
    case KRI_TYPE_RANGE: /* fixnum order is word order */
        return kri_is_fixnum(v) && (intptr_t)v.w >= (intptr_t)t[KRI_TYPE_LOW].w && (intptr_t)v.w <= (intptr_t)t[KRI_TYPE_HIGH].w;
    case KRI_TYPE_CLASS:
        return kri_derivedp(vm, v, t[KRI_TYPE_LOW]);
    case KRI_TYPE_OTHER:
        return false;
    default:
        return kri_has_class(v, kind);
    }
}

/* OTHER is always seen to out of line, so it is no reason to leave native code's fast version. */
#define KRI_CHECK_TYPE(v, type, kind)                                                              \
    do {                                                                                           \
        if (KRI_UNLIKELY(!kri_type_is(vm, (v), (type), (kind)))) {                                 \
            if ((kind) == KRI_TYPE_OTHER)                                                          \
                SYNC_HERE();                                                                       \
            else                                                                                   \
                SYNC();                                                                            \
            kri_op_type(w, (v), (type), (kind));                                                   \
        }                                                                                          \
    } while (0)

/* ---- variables, cells ---- */

#define KRI_GETVAR(a, symbol)                                                                      \
    do {                                                                                           \
        const struct kri_symbol *s_ = (const struct kri_symbol *)(symbol).w;                       \
        kr_value v_ = kri_slot(&s_->value);                                                        \
        if (KRI_LIKELY(kri_eq(s_->special, kri_fixnum(0)) && !kri_eq(v_, KRI_UNBOUND))) {          \
            R(a) = v_;                                                                             \
            NEXT;                                                                                  \
        }                                                                                          \
        size_t i_ = (size_t)kri_fixnum_value(kri_slot(&s_->special));                              \
        kr_value d_ = i_ < ctx->dynamic_size ? ctx->dynamic[i_] : KRI_UNBOUND;                     \
        d_ = kri_eq(d_, KRI_UNBOUND) ? v_ : d_;                                                    \
        if (KRI_LIKELY(!kri_eq(d_, KRI_UNBOUND))) {                                                \
            R(a) = d_;                                                                             \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC_HERE();                                                                               \
        R(a) = kri_op_getvar_slow(w, (symbol));                                                    \
    } while (0)

#define KRI_SETVAR(symbol, v)                                                                      \
    do {                                                                                           \
        struct kri_symbol *s_ = (struct kri_symbol *)(symbol).w;                                   \
        if (KRI_LIKELY(kri_eq(s_->special, kri_fixnum(0)) && !kri_eq(s_->vtype, kri_fixnum(0)))) { \
            kri_store(w, &s_->head, &s_->value, (v));                                              \
            NEXT;                                                                                  \
        }                                                                                          \
        size_t i_ = (size_t)kri_fixnum_value(kri_slot(&s_->special));                              \
        if (i_ < ctx->dynamic_size && !kri_eq(ctx->dynamic[i_], KRI_UNBOUND) && !kri_eq(s_->vtype, kri_fixnum(0))) { \
            ctx->dynamic[i_] = (v);                                                                \
            NEXT;                                                                                  \
        }                                                                                          \
        if (kri_eq(s_->vtype, kri_fixnum(2))) { /* of defvar, no thread's own, and not bound here */ \
            kri_store(w, &s_->head, &s_->value, (v));                                              \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC_HERE();                                                                               \
        kri_op_setvar_slow(w, (symbol), (v));                                                      \
    } while (0)

/* Where the run is empty the allocation may stop, so the frame must be known before. */
#define KRI_CONS(a, x, y)                                                                          \
    do {                                                                                           \
        if (KRI_UNLIKELY(w->run == w->run_end))                                                    \
            SYNC_HERE();                                                                           \
        struct kri_cell *c_ = kri_alloc_pair(w, KRI_CLASS_CONS, (x), (y));                         \
        if (KRI_LIKELY(c_ != NULL)) {                                                              \
            R(a) = kri_value_of(c_);                                                               \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC_HERE();                                                                               \
        R(a) = kri_cons_slow(w, (x), (y));                                                         \
    } while (0)

/* ---- arithmetic ---- */

#define KRI_ARITH(a, x, y, overflow, op, slow)                                                     \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        long r_;                                                                                   \
        if (KRI_LIKELY(kri_both_fixnums(x_, y_))) {                                                \
            if (KRI_LIKELY(!overflow((long)x_.w, (long)(y_.w - 1), &r_))) {                        \
                R(a) = (kr_value){(uintptr_t)r_};                                                  \
                NEXT;                                                                              \
            }                                                                                      \
        } else {                                                                                   \
            KRI_FLOAT_ARITH(a, op);                                                                \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = slow(w, x_, y_);                                                                    \
    } while (0)

#ifdef KRI_NATIVE_LEAN
#define KRI_FLOAT_ARITH(a, op)
#define KRI_BOTH_FLOATS false
#else
#define KRI_FLOAT_ARITH(a, op)                                                                     \
    if (KRI_LIKELY(kri_is_flonum(x_) && kri_is_flonum(y_))) {                                      \
        kr_value f_ = kri_flonum_try(kri_flonum_value(x_) op kri_flonum_value(y_));                \
        if (KRI_LIKELY(kri_is_flonum(f_))) {                                                       \
            R(a) = f_;                                                                             \
            NEXT;                                                                                  \
        }                                                                                          \
        if (kri_is_tried_zero(f_)) {                                                               \
            R(a) = (kr_value){KRI_FLONUM_ZERO};                                                    \
            NEXT;                                                                                  \
        }                                                                                          \
    }
#define KRI_BOTH_FLOATS (kri_is_flonum(x_) && kri_is_flonum(y_))
#endif

#define KRI_ARITH_MUL(a, x, y)                                                                     \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        long r_;                                                                                   \
        if (kri_both_fixnums(x_, y_)) {                                                            \
            if (!__builtin_smull_overflow((long)(x_.w - 1), kri_fixnum_value(y_), &r_)) {          \
                R(a) = (kr_value){(uintptr_t)r_ + 1};                                              \
                NEXT;                                                                              \
            }                                                                                      \
        } else {                                                                                   \
            KRI_FLOAT_ARITH(a, *);                                                                 \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = kri_mul(w, x_, y_);                                                                 \
    } while (0)

#define KRI_ARITH_DIV(a, x, y)                                                                     \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        if (kri_both_fixnums(x_, y_) && kri_fixnum_value(y_) > 0) {                                \
            R(a) = kri_fixnum(kri_fixnum_value(x_) / kri_fixnum_value(y_));                        \
            NEXT;                                                                                  \
        }                                                                                          \
        KRI_FLOAT_ARITH(a, /);                                                                     \
        SYNC();                                                                                    \
        R(a) = kri_div(w, x_, y_);                                                                 \
    } while (0)

#define KRI_ARITH_MOD(a, x, y)                                                                     \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        if (kri_both_fixnums(x_, y_) && kri_fixnum_value(y_) > 0) {                                \
            R(a) = kri_fixnum(kri_fixnum_value(x_) % kri_fixnum_value(y_));                        \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = kri_mod(w, x_, y_);                                                                 \
    } while (0)

#define KRI_ARITH_TRUNCATE(a, x, y)                                                                \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        if (kri_both_fixnums(x_, y_) && kri_fixnum_value(y_) > 0) {                                \
            R(a) = kri_fixnum(kri_fixnum_value(x_) / kri_fixnum_value(y_));                        \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = kri_op_builtin(w, vm->sym.truncate, x_, y_);                                        \
    } while (0)

#define KRI_ARITH_LOGIC(a, x, y, op, name)                                                         \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        if (KRI_LIKELY(kri_both_fixnums(x_, y_))) {                                                \
            R(a) = (kr_value){(x_.w op y_.w) | 1};                                                 \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = kri_op_builtin(w, vm->sym.name, x_, y_);                                            \
    } while (0)

/* Shifts by less than a word of what stays a fixnum. */
#define KRI_ARITH_SHIFT(a, x, y)                                                                   \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        if (KRI_LIKELY(kri_both_fixnums(x_, y_))) {                                                \
            intptr_t n_ = kri_fixnum_value(y_), r_;                                                \
            if (n_ <= 0 && n_ > -64) {                                                             \
                R(a) = (kr_value){(uintptr_t)((intptr_t)x_.w >> -n_) | 1};                         \
                NEXT;                                                                              \
            }                                                                                      \
            if (n_ > 0 && n_ < 62 && !__builtin_mul_overflow((intptr_t)(x_.w - 1), (intptr_t)1 << n_, &r_)) { \
                R(a) = (kr_value){(uintptr_t)r_ | 1};                                              \
                NEXT;                                                                              \
            }                                                                                      \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = kri_op_builtin(w, vm->sym.ash, x_, y_);                                             \
    } while (0)

#define KRI_ARITH_IMMEDIATE(a, x, n)                                                               \
    do {                                                                                           \
        kr_value x_ = (x);                                                                         \
        long r_;                                                                                   \
        if (KRI_LIKELY(kri_is_fixnum(x_)) && KRI_LIKELY(!__builtin_saddl_overflow((long)x_.w, (long)(n) * 2, &r_))) { \
            R(a) = (kr_value){(uintptr_t)r_};                                                      \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC();                                                                                    \
        R(a) = kri_add(w, x_, kri_fixnum(n));                                                      \
    } while (0)

/* THEN is done if X OP Y holds, ELSE_ otherwise. Fixnum order is word order. A NaN is never a flonum word, so the float path needs
 * no care for it. */
#define KRI_COMPARE(x, y, op, slow, then, else_)                                                   \
    do {                                                                                           \
        kr_value x_ = (x), y_ = (y);                                                               \
        if (KRI_LIKELY(kri_both_fixnums(x_, y_))) {                                                \
            if ((long)x_.w op (long)y_.w)                                                          \
                then;                                                                              \
            else                                                                                   \
                else_;                                                                             \
            NEXT;                                                                                  \
        }                                                                                          \
        bool t_;                                                                                   \
        if (KRI_BOTH_FLOATS) {                                                               \
            t_ = kri_flonum_value(x_) op kri_flonum_value(y_);                                     \
        } else {                                                                                   \
            SYNC();                                                                                \
            t_ = slow;                                                                             \
        }                                                                                          \
        if (t_)                                                                                    \
            then;                                                                                  \
        else                                                                                       \
            else_;                                                                                 \
    } while (0)

#define KRI_COMPARE_IMMEDIATE(x, n, op, slow, then, else_)                                         \
    do {                                                                                           \
        kr_value x_ = (x), y_ = kri_fixnum(n);                                                     \
        if (KRI_LIKELY(kri_is_fixnum(x_))) {                                                       \
            if ((long)x_.w op (long)y_.w)                                                          \
                then;                                                                              \
            else                                                                                   \
                else_;                                                                             \
            NEXT;                                                                                  \
        }                                                                                          \
        SYNC();                                                                                    \
        if (slow)                                                                                  \
            then;                                                                                  \
        else                                                                                       \
            else_;                                                                                 \
    } while (0)
#define NOTHING ((void)0)

#define KRI_RPLAC(x, v, field, name)                                                            \
    do {                                                                                        \
        kr_value x_ = (x), v_ = (v);                                                            \
        if (KRI_LIKELY(kri_is_cons(x_))) {                                                      \
            kri_store(w, kri_ptr(x_), &kri_cons_of(x_)->field, v_);                             \
            NEXT;                                                                               \
        }                                                                                       \
        SYNC();                                                                                 \
        kri_op_builtin(w, vm->sym.name, x_, v_);                                                \
    } while (0)

/* A list's length is counted out of line, and that is no reason to leave native code's fast version. */
#define KRI_LENGTH(a, x)                                                                        \
    do {                                                                                        \
        kr_value x_ = (x);                                                                      \
        if (kri_is_pointer(x_) && (unsigned)(kri_ptr(x_)->cls - KRI_CLASS_VECTOR) <= KRI_CLASS_BIT_VECTOR - KRI_CLASS_VECTOR) { \
            R(a) = kri_fixnum((intptr_t)kri_ptr(x_)->length);                                   \
            NEXT;                                                                               \
        }                                                                                       \
        SYNC_HERE();                                                                            \
        R(a) = kri_op_length(w, x_);                                                            \
    } while (0)

#ifdef KRI_NATIVE_LEAN
#define KRI_AREF(a, x, y)                   \
    do {                                    \
        kr_value x_ = (x), y_ = (y);        \
        SYNC();                             \
        R(a) = kri_op_aref(w, x_, y_);      \
    } while (0)
#define KRI_ASET(v, x, y)                   \
    do {                                    \
        kr_value v_ = (v), x_ = (x), y_ = (y); \
        SYNC();                             \
        kri_op_aset(w, x_, y_, v_);         \
    } while (0)
#else
#define KRI_AREF(a, x, y)                                                                       \
    do {                                                                                        \
        kr_value x_ = (x), y_ = (y);                                                            \
        const struct kri_cell *c_ = kri_ptr(x_);                                                \
        if (kri_is_pointer(x_) && kri_is_fixnum(y_) && (uintptr_t)kri_fixnum_value(y_) < c_->length) { \
            size_t i_ = (size_t)kri_fixnum_value(y_);                                           \
            if (c_->cls == KRI_CLASS_VECTOR) {                                                  \
                R(a) = kri_slot(&c_->slot[i_]);                                                 \
                NEXT;                                                                           \
            }                                                                                   \
            if (c_->cls == KRI_CLASS_FLOAT_VECTOR) {                                            \
                kr_value f_ = kri_flonum_try(((const struct kri_fvector *)c_)->at[i_]);         \
                if (KRI_LIKELY(kri_is_flonum(f_))) {                                            \
                    R(a) = f_;                                                                  \
                    NEXT;                                                                       \
                }                                                                               \
                if (kri_is_tried_zero(f_)) {                                                    \
                    R(a) = (kr_value){KRI_FLONUM_ZERO};                                         \
                    NEXT;                                                                       \
                }                                                                               \
            } else if (c_->cls == KRI_CLASS_INTEGER_VECTOR) {                                   \
                int64_t n_ = ((const struct kri_ivector *)c_)->at[i_];                          \
                if (KRI_LIKELY(kri_fits_fixnum(n_))) {                                          \
                    R(a) = kri_fixnum(n_);                                                      \
                    NEXT;                                                                       \
                }                                                                               \
            } else if (c_->cls == KRI_CLASS_STRING) {                                           \
                R(a) = kri_fixnum(((const struct kri_string *)c_)->byte[i_]);                   \
                NEXT;                                                                           \
            }                                                                                   \
        }                                                                                       \
        SYNC();                                                                                 \
        R(a) = kri_op_aref(w, x_, y_);                                                            \
    } while (0)

#define KRI_ASET(v, x, y)                                                                       \
    do {                                                                                        \
        kr_value v_ = (v), x_ = (x), y_ = (y);                                                  \
        struct kri_cell *c_ = kri_ptr(x_);                                                      \
        if (kri_is_pointer(x_) && kri_is_fixnum(y_) && (uintptr_t)kri_fixnum_value(y_) < c_->length) { \
            size_t i_ = (size_t)kri_fixnum_value(y_);                                           \
            if (c_->cls == KRI_CLASS_VECTOR) {                                                  \
                kri_store(w, c_, &c_->slot[i_], v_);                                            \
                NEXT;                                                                           \
            }                                                                                   \
            if (c_->cls == KRI_CLASS_FLOAT_VECTOR && kri_is_flonum(v_)) {                       \
                ((struct kri_fvector *)c_)->at[i_] = kri_flonum_value(v_);                      \
                NEXT;                                                                           \
            }                                                                                   \
            if (c_->cls == KRI_CLASS_INTEGER_VECTOR && kri_is_fixnum(v_)) {                     \
                ((struct kri_ivector *)c_)->at[i_] = kri_fixnum_value(v_);                      \
                NEXT;                                                                           \
            }                                                                                   \
        }                                                                                       \
        SYNC();                                                                                 \
        kri_op_aset(w, x_, y_, v_);                                                               \
    } while (0)
#endif

#endif
