/* value.h -- one 64-bit word that holds any Lisp value, and the cell that a pointer word names.
 *
 *   ...1    fixnum, 63 bits, in the upper bits
 *   ...10   float: an IEEE double of magnitude about 1.7e-77 to 2.3e77, its bits plus 2^60 rotated left by three:
 *           the exponent's two top bits become 10 and fall into the tag, no bit is lost
 *   ...000  pointer to a cell; the all-zero word is NIL
 *   ...100  other immediates (below)
 * Other doubles are boxed, save +0.0 (the pattern of 2^-255, which is boxed in its stead), -0.0, the infinities
 * and the one canonical NaN, which are immediates. */
#ifndef KRI_RUNTIME_VALUE_H
#define KRI_RUNTIME_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef KR_VALUE_DEFINED
#define KR_VALUE_DEFINED
/* A struct, so that the compiler keeps it apart from integers. */
typedef struct kr_value {
    uintptr_t w;
} kr_value;
#endif

#define KRI_NIL ((kr_value){0})

enum kri_immediate {
    KRI_IMM_UNBOUND = 0x0c,      /* a variable's cell without a value; a slot of the dynamic table without a binding */
    KRI_IMM_ABSENT = 0x14,       /* an optional or keyword argument that was not given */
    KRI_IMM_MINUS_ZERO = 0x1c,   /* -0.0 */
    KRI_IMM_PLUS_INF = 0x24,     /* the infinities */
    KRI_IMM_MINUS_INF = 0x2c,
    KRI_IMM_NAN = 0x34,          /* every NaN */
    KRI_IMM_EMPTY = 0x3c,        /* hash tables: a free place */
    KRI_IMM_DELETED = 0x44,      /* hash tables: a removed key's place */
    KRI_IMM_EOF = 0x4c,          /* the reader's internal end of file */
    KRI_IMM_TAIL_CALL = 0x54,    /* a builtin's answer "call w->tail in my stead" (lisp/vm.h) */
};
#define KRI_IMMEDIATE(n) ((kr_value){n})
#define KRI_UNBOUND KRI_IMMEDIATE(KRI_IMM_UNBOUND)
#define KRI_ABSENT KRI_IMMEDIATE(KRI_IMM_ABSENT)

static inline bool kri_eq(kr_value a, kr_value b) { return a.w == b.w; }
static inline bool kri_is_nil(kr_value v) { return v.w == 0; }

/* ---- fixnums ---- */
#define KRI_FIXNUM_MAX (INTPTR_MAX >> 1)
#define KRI_FIXNUM_MIN (INTPTR_MIN >> 1)
static inline bool kri_is_fixnum(kr_value v) { return v.w & 1; }
static inline bool kri_both_fixnums(kr_value a, kr_value b) { return a.w & b.w & 1; }
static inline kr_value kri_fixnum(intptr_t n) { return (kr_value){(uintptr_t)n << 1 | 1}; }
static inline intptr_t kri_fixnum_value(kr_value v) { return (intptr_t)v.w >> 1; }
static inline bool kri_fits_fixnum(intptr_t n) { return n >= KRI_FIXNUM_MIN && n <= KRI_FIXNUM_MAX; }

/* ---- floats within the word ---- */
#define KRI_FLONUM_BIAS ((uint64_t)1 << 60)
#define KRI_FLONUM_ZERO ((uint64_t)2)   /* rotl(2^-255's bits + bias, 3): +0.0 */

static inline bool kri_is_flonum(kr_value v) { return (v.w & 3) == 2; }
static inline double kri_flonum_value(kr_value v)
{
    uint64_t bits = (v.w >> 3 | v.w << 61) - KRI_FLONUM_BIAS;
    double d;
    bits = v.w == KRI_FLONUM_ZERO ? 0 : bits;
    memcpy(&d, &bits, sizeof d);
    return d;
}
/* The word for D, or a word for which kri_is_flonum is false if D has none of its own; +0.0 too comes out false here
 * and gets its word in kri_float_slow. */
static inline kr_value kri_flonum_try(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof d);
    bits += KRI_FLONUM_BIAS;
    bits = bits << 3 | bits >> 61;
    return (kr_value){bits == KRI_FLONUM_ZERO ? 0 : bits};
}

/* Of what kri_flonum_try gave: was the double +0.0? */
static inline bool kri_is_tried_zero(kr_value tried) { return tried.w == KRI_FLONUM_BIAS << 3; }

/* ---- cells ---- */
/* The first word of every cell. CLS and BUDDY never change while the cell lives; FLAGS is written by byte stores
 * only, under the heap's flags_lock or with the world stopped. */
struct kri_cell {
    uint32_t length; /* elements of a vector; a function's signature; else 0 */
    uint16_t cls;    /* index of the class in the VM's table; 0 is a free cell */
    uint8_t buddy;   /* the cell holds kri_fib[buddy] granules; KRI_BUDDY_LARGE: a mapping of its own */
    uint8_t flags;   /* enum kri_cell_flag */
    kr_value slot[];
};
enum kri_cell_flag {
    KRI_FLAG_FINALIZE = 1, /* registered with a finalizer */
    KRI_FLAG_UNLOGGED = 2, /* permanent, and not in the heap's log yet: kri_store puts it there (runtime/permanent.c) */
};
enum { KRI_BUDDY_LARGE = 63, KRI_CLASS_FREE = 0 };

static inline bool kri_is_pointer(kr_value v) { return (v.w & 7) == 0 && v.w != 0; }
static inline struct kri_cell *kri_ptr(kr_value v) { return (struct kri_cell *)v.w; }
static inline kr_value kri_value_of(const void *cell) { return (kr_value){(uintptr_t)cell}; }
static inline bool kri_has_class(kr_value v, unsigned cls) { return kri_is_pointer(v) && kri_ptr(v)->cls == cls; }

/* What the collector must know of a class; indexed by class index (struct kri_heap.layouts). */
enum kri_layout_kind {
    KRI_LAYOUT_RAW,    /* no values (class 0, free cells, is one) */
    KRI_LAYOUT_SLOTS,  /* the first `slots` words after the header are values, the rest is raw */
    KRI_LAYOUT_VECTOR, /* `length` values after the header */
    KRI_LAYOUT_ALL,    /* every word of the cell after the header is a value (unused ones are zero) */
    KRI_LAYOUT_WEAK,   /* slot[0] is weak: becomes KRI_NIL when its cell dies; slot[1..slots) are values */
    KRI_LAYOUT_WEAK_VECTOR, /* `length` weak values: each becomes KRI_NIL when its cell dies */
    KRI_LAYOUT_WEAK_TABLE, /* like SLOTS; some of them are weak vectors, and kri_heap_hooks settles what is in those */
};
struct kri_layout {
    uint8_t kind;
    uint8_t spare;
    uint16_t slots;
};

#endif
