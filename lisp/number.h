/* number.h -- what the files of the number system share: kinds, integers of any size, text.
 *
 * Integers are fixnums, or bignums when they do not fit one; every function here takes either and gives the smaller form.
 * Ratios are in lowest terms with a denominator above 1; complex numbers with an imaginary part of integer 0 are real. */
#ifndef KRI_LISP_NUMBER_H
#define KRI_LISP_NUMBER_H

#include <complex.h>
#include "lisp/vm.h"

enum kri_number_kind {
    KRI_NUMBER_NONE, KRI_NUMBER_FIXNUM, KRI_NUMBER_BIGNUM, KRI_NUMBER_RATIO, KRI_NUMBER_FLOAT, KRI_NUMBER_COMPLEX
};

/* Numbers longer than this are refused before they are computed: error RANGE. 2^28 bits, 80 million decimal digits; GMP's
 * scratch memory for them stays within a few hundred megabytes. */
enum { KRI_BIGNUM_LIMBS = 1 << 22 };

struct kri_complex { struct kri_cell head; kr_value real, imaginary; };

static inline bool kri_is_bignum(kr_value v) { return kri_has_class(v, KRI_CLASS_BIGNUM); }
static inline bool kri_is_ratio(kr_value v) { return kri_has_class(v, KRI_CLASS_RATIO); }
static inline bool kri_is_complex(kr_value v) { return kri_has_class(v, KRI_CLASS_COMPLEX); }
enum kri_number_kind kri_number_kind_slow(kr_value v);
static inline enum kri_number_kind kri_number_kind(kr_value v)
{
    return kri_is_fixnum(v) ? KRI_NUMBER_FIXNUM : kri_is_flonum(v) ? KRI_NUMBER_FLOAT : kri_number_kind_slow(v);
}

/* ---- integers (lisp/bignum.c): fixnums and bignums only. All may collect; big work runs outside the gate ---- */
kr_value kri_int_from_u64(struct kri_worker *w, uint64_t magnitude, bool negative);
kr_value kri_int_from_double(struct kri_worker *w, double d); /* finite D without its fraction */
kr_value kri_int_add(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_int_sub(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_int_mul(struct kri_worker *w, kr_value a, kr_value b);
/* Truncating; B is not 0. QUOTIENT or REMAINDER may be NULL. */
void kri_int_divide(struct kri_worker *w, kr_value a, kr_value b, kr_value *quotient, kr_value *remainder);
kr_value kri_int_negate(struct kri_worker *w, kr_value a);
kr_value kri_int_gcd(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_int_shift(struct kri_worker *w, kr_value a, intptr_t left); /* right when negative, rounding down */
kr_value kri_int_power(struct kri_worker *w, kr_value a, uintptr_t n);
kr_value kri_int_isqrt(struct kri_worker *w, kr_value a); /* A is not negative */
/* N digit values (not characters), most significant first. */
kr_value kri_int_from_digits(struct kri_worker *w, const unsigned char *digits, size_t n, int base, bool negative);
enum kri_logic { KRI_LOGIC_AND, KRI_LOGIC_IOR, KRI_LOGIC_XOR };
kr_value kri_int_logic(struct kri_worker *w, enum kri_logic op, kr_value a, kr_value b);
/* These neither allocate nor raise. */
int kri_int_sign(kr_value a);
int kri_int_compare(kr_value a, kr_value b);
bool kri_int_odd(kr_value a);
bool kri_int_bit(kr_value a, size_t index);     /* of the two's complement */
size_t kri_int_length(kr_value a);              /* as integer-length */
size_t kri_int_count(kr_value a);               /* as logcount */
double kri_int_to_double(kr_value a);           /* nearest, ties to even; infinite beyond the range */
double kri_int_frexp(kr_value a, int64_t *exponent); /* A = result * 2^exponent, result in [0.5, 1) */
int64_t kri_int_low64(kr_value a);              /* the value modulo 2^64 */
bool kri_int_to_i64(kr_value a, int64_t *out);  /* false if it does not fit */
/* MAGNITUDE (its top bit set; STICKY: and a little more) times 2^EXPONENT, correctly rounded. */
double kri_compose_double(uint64_t magnitude, bool sticky, int64_t exponent, bool negative);

/* ---- ratios, rounding, floats (lisp/number.c) ---- */
kr_value kri_make_ratio(struct kri_worker *w, kr_value n, kr_value d); /* integers; D 0 raises DIVISION */
double kri_ratio_to_double(struct kri_worker *w, kr_value n, kr_value d);
kr_value kri_rational(struct kri_worker *w, kr_value real);   /* the exact value of a float */
enum kri_rounding { KRI_FLOOR, KRI_CEILING, KRI_TRUNCATE, KRI_ROUND };
kr_value kri_round_to_integer(struct kri_worker *w, enum kri_rounding how, kr_value a);
kr_value kri_round_quotient(struct kri_worker *w, enum kri_rounding how, kr_value a, kr_value b);
kr_value kri_negate(struct kri_worker *w, kr_value a);
kr_value kri_make_complex(struct kri_worker *w, kr_value real, kr_value imaginary);
double complex kri_complex_value(struct kri_worker *w, kr_value v); /* any number */
kr_value kri_expt(struct kri_worker *w, kr_value base, kr_value exponent);
/* -1, 0, 1, or 2 when an operand is NaN. */
int kri_compare(struct kri_worker *w, kr_value a, kr_value b);

/* ---- start (lisp/builtin_number.c) ---- */
/* Constants (pi, most-positive-fixnum, ...) and the first random state. */
void kri_number_init(struct kri_worker *w);

#endif
