/* number.c -- the generic operations on numbers: what kind each operand is, and which arithmetic that means.
 *
 * Contagion goes integer, ratio, float, complex. Comparisons between exact numbers and floats are exact: the float counts
 * as the rational number it is. Nothing here traps: integer division by zero is a Lisp error, float division gives an infinity. */
#include "lisp/number.h"

#include <math.h>

/* ---- kinds ---- */

enum kri_number_kind kri_number_kind_slow(kr_value v)
{
    if (kri_is_fixnum(v))
        return KRI_NUMBER_FIXNUM;
    if (kri_is_float(v))
        return KRI_NUMBER_FLOAT;
    if (!kri_is_pointer(v))
        return KRI_NUMBER_NONE;
    switch (kri_ptr(v)->cls) {
    case KRI_CLASS_BIGNUM:
        return KRI_NUMBER_BIGNUM;
    case KRI_CLASS_RATIO:
        return KRI_NUMBER_RATIO;
    case KRI_CLASS_COMPLEX:
        return KRI_NUMBER_COMPLEX;
    default:
        return KRI_NUMBER_NONE;
    }
}

bool kri_is_number(kr_value v) { return kri_number_kind(v) != KRI_NUMBER_NONE; }
bool kri_is_integer(kr_value v) { return kri_is_fixnum(v) || kri_is_bignum(v); }

bool kri_is_float_slow(kr_value v)
{
    return kri_is_flonum(v) || kri_has_class(v, KRI_CLASS_FLOAT_BOX) || v.w == KRI_IMM_MINUS_ZERO || v.w == KRI_IMM_PLUS_INF ||
           v.w == KRI_IMM_MINUS_INF || v.w == KRI_IMM_NAN;
}

double kri_float_value_slow(kr_value v)
{
    switch (v.w) {
    case KRI_IMM_MINUS_ZERO:
        return -0.0;
    case KRI_IMM_PLUS_INF:
        return INFINITY;
    case KRI_IMM_MINUS_INF:
        return -INFINITY;
    case KRI_IMM_NAN:
        return -(double)NAN; /* the sign that x86 gives to the results of invalid operations; EusLisp prints it */
    default:
        return kri_is_flonum(v) ? kri_flonum_value(v) : ((const struct kri_float_box *)v.w)->d;
    }
}

kr_value kri_float_slow(struct kri_worker *w, double d)
{
    if (d == 0)
        return signbit(d) ? KRI_IMMEDIATE(KRI_IMM_MINUS_ZERO) : (kr_value){KRI_FLONUM_ZERO};
    if (isnan(d))
        return KRI_IMMEDIATE(KRI_IMM_NAN);
    if (isinf(d))
        return KRI_IMMEDIATE(d > 0 ? KRI_IMM_PLUS_INF : KRI_IMM_MINUS_INF);
    kr_value v = kri_flonum_try(d);
    if (kri_is_flonum(v))
        return v;
    kr_value bits;
    memcpy(&bits, &d, sizeof bits);
    struct kri_cell *c = kri_alloc_pair(w, KRI_CLASS_FLOAT_BOX, bits, KRI_NIL);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, KRI_GRANULE);
    return kri_value_of(c);
}

_Noreturn static void not_number(struct kri_worker *w, kr_value a, kr_value b, const char *operation)
{
    kri_error(w, KRI_E_NO_NUMBER, kri_is_number(a) ? b : a, "operand of %s", operation);
}

/* Numerator and denominator of an integer or a ratio. A ratio whose slots somebody filled with something else is refused. */
static void parts(struct kri_worker *w, kr_value v, kr_value *n, kr_value *d)
{
    if (!kri_is_ratio(v)) {
        *n = v;
        *d = kri_fixnum(1);
        return;
    }
    const struct kri_ratio *r = (const struct kri_ratio *)v.w;
    *n = kri_slot(&r->numerator);
    *d = kri_slot(&r->denominator);
    if (!kri_is_integer(*n) || !kri_is_integer(*d) || kri_int_sign(*d) <= 0)
        kri_error(w, KRI_E_NO_NUMBER, KRI_NIL, "a ratio of two integers, the lower one positive");
}

static void complex_parts(struct kri_worker *w, kr_value v, kr_value *re, kr_value *im)
{
    if (!kri_is_complex(v)) {
        *re = v;
        *im = kri_fixnum(0);
        return;
    }
    const struct kri_complex *c = (const struct kri_complex *)v.w;
    *re = kri_slot(&c->real);
    *im = kri_slot(&c->imaginary);
    if (!kri_is_number(*re) || !kri_is_number(*im) || kri_is_complex(*re) || kri_is_complex(*im))
        kri_error(w, KRI_E_NO_NUMBER, KRI_NIL, "a complex number with two real parts");
}

kr_value kri_make_ratio(struct kri_worker *w, kr_value n, kr_value d)
{
    int sign = kri_int_sign(d);
    if (sign == 0)
        kri_error(w, KRI_E_DIVISION, n, NULL);
    kr_value g = kri_int_gcd(w, n, d);
    if (!kri_eq(g, kri_fixnum(1))) {
        kri_int_divide(w, n, g, &n, NULL);
        kri_int_divide(w, d, g, &d, NULL);
    }
    if (sign < 0) {
        n = kri_int_negate(w, n);
        d = kri_int_negate(w, d);
    }
    if (kri_eq(d, kri_fixnum(1)))
        return n;
    struct kri_cell *c = kri_alloc_pair(w, KRI_CLASS_RATIO, n, d);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, KRI_GRANULE);
    return kri_value_of(c);
}

kr_value kri_make_complex(struct kri_worker *w, kr_value real, kr_value imaginary)
{
    if (kri_eq(imaginary, kri_fixnum(0)))
        return real;
    if (kri_is_float(real) != kri_is_float(imaginary)) {
        real = kri_float(w, kri_to_double(w, real));
        imaginary = kri_float(w, kri_to_double(w, imaginary));
    }
    struct kri_cell *c = kri_alloc_pair(w, KRI_CLASS_COMPLEX, real, imaginary);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, KRI_GRANULE);
    return kri_value_of(c);
}

/* ---- floats and rationals ---- */

double kri_ratio_to_double(struct kri_worker *w, kr_value n, kr_value d)
{
    int64_t shift = 66 - ((int64_t)kri_int_length(n) - (int64_t)kri_int_length(d));
    bool negative = kri_int_sign(n) < 0;
    kr_value q, r;
    if (negative)
        n = kri_int_negate(w, n);
    if (kri_int_sign(n) == 0)
        return 0;
    /* A quotient of 65 to 67 bits and a remainder say all that rounding needs. */
    if (shift >= 0)
        n = kri_int_shift(w, n, (intptr_t)shift);
    else
        d = kri_int_shift(w, d, (intptr_t)-shift);
    kri_int_divide(w, n, d, &q, &r);
    intptr_t extra = (intptr_t)kri_int_length(q) - 64;
    bool sticky = kri_int_sign(r) != 0;
    for (intptr_t i = 0; i < extra; i++)
        sticky |= kri_int_bit(q, (size_t)i);
    kr_value top = kri_int_shift(w, q, -extra);
    return kri_compose_double((uint64_t)kri_int_low64(top), sticky, extra - shift, negative);
}

double kri_to_double(struct kri_worker *w, kr_value v)
{
    switch (kri_number_kind(v)) {
    case KRI_NUMBER_FIXNUM:
        return (double)kri_fixnum_value(v);
    case KRI_NUMBER_FLOAT:
        return kri_float_value(v);
    case KRI_NUMBER_BIGNUM:
        return kri_int_to_double(v);
    case KRI_NUMBER_RATIO: {
        kr_value n, d;
        parts(w, v, &n, &d);
        return kri_ratio_to_double(w, n, d);
    }
    default:
        kri_error(w, KRI_E_NO_NUMBER, v, "a real number");
    }
}

kr_value kri_rational(struct kri_worker *w, kr_value v)
{
    if (!kri_is_float(v))
        return v;
    double d = kri_float_value(v);
    if (!isfinite(d))
        kri_error(w, KRI_E_RANGE, v, "no rational number equals it");
    int e;
    double m = frexp(d, &e);
    kr_value n = kri_fixnum((intptr_t)ldexp(m, 53));
    e -= 53;
    return e >= 0 ? kri_int_shift(w, n, e) : kri_make_ratio(w, n, kri_int_shift(w, kri_fixnum(1), -e));
}

/* ---- arithmetic ---- */

enum operation { ADD, SUB, MUL, DIV };
static const char *const operation_name[] = {"+", "-", "*", "/"};

static kr_value ratio_arithmetic(struct kri_worker *w, enum operation op, kr_value a, kr_value b)
{
    kr_value an, ad, bn, bd;
    parts(w, a, &an, &ad);
    parts(w, b, &bn, &bd);
    switch (op) {
    case MUL:
        return kri_make_ratio(w, kri_int_mul(w, an, bn), kri_int_mul(w, ad, bd));
    case DIV:
        return kri_make_ratio(w, kri_int_mul(w, an, bd), kri_int_mul(w, ad, bn));
    default: {
        kr_value x = kri_int_mul(w, an, bd), y = kri_int_mul(w, bn, ad);
        return kri_make_ratio(w, op == ADD ? kri_int_add(w, x, y) : kri_int_sub(w, x, y), kri_int_mul(w, ad, bd));
    }
    }
}

/* Division of real numbers as complex arithmetic needs it: exact, not truncated. */
static kr_value exact_quotient(struct kri_worker *w, kr_value a, kr_value b)
{
    return kri_is_integer(a) && kri_is_integer(b) ? kri_make_ratio(w, a, b) : kri_div(w, a, b);
}

static kr_value complex_arithmetic(struct kri_worker *w, enum operation op, kr_value a, kr_value b)
{
    kr_value ar, ai, br, bi;
    complex_parts(w, a, &ar, &ai);
    complex_parts(w, b, &br, &bi);
    switch (op) {
    case ADD:
        return kri_make_complex(w, kri_add(w, ar, br), kri_add(w, ai, bi));
    case SUB:
        return kri_make_complex(w, kri_sub(w, ar, br), kri_sub(w, ai, bi));
    case MUL:
        return kri_make_complex(w, kri_sub(w, kri_mul(w, ar, br), kri_mul(w, ai, bi)), kri_add(w, kri_mul(w, ar, bi), kri_mul(w, ai, br)));
    default: {
        kr_value n = kri_add(w, kri_mul(w, br, br), kri_mul(w, bi, bi));
        kr_value re = kri_add(w, kri_mul(w, ar, br), kri_mul(w, ai, bi)), im = kri_sub(w, kri_mul(w, ai, br), kri_mul(w, ar, bi));
        return kri_make_complex(w, exact_quotient(w, re, n), exact_quotient(w, im, n));
    }
    }
}

static kr_value arithmetic(struct kri_worker *w, enum operation op, kr_value a, kr_value b)
{
    enum kri_number_kind ka = kri_number_kind(a), kb = kri_number_kind(b);
    if (ka == KRI_NUMBER_NONE || kb == KRI_NUMBER_NONE)
        not_number(w, a, b, operation_name[op]);
    if (ka == KRI_NUMBER_COMPLEX || kb == KRI_NUMBER_COMPLEX)
        return complex_arithmetic(w, op, a, b);
    if (ka == KRI_NUMBER_FLOAT || kb == KRI_NUMBER_FLOAT) {
        double x = kri_to_double(w, a), y = kri_to_double(w, b);
        return kri_float(w, op == ADD ? x + y : op == SUB ? x - y : op == MUL ? x * y : x / y);
    }
    if (ka == KRI_NUMBER_RATIO || kb == KRI_NUMBER_RATIO)
        return ratio_arithmetic(w, op, a, b);
    switch (op) {
    case ADD:
        return kri_int_add(w, a, b);
    case SUB:
        return kri_int_sub(w, a, b);
    case MUL:
        return kri_int_mul(w, a, b);
    default: {
        kr_value q;
        if (kri_eq(b, kri_fixnum(0)))
            kri_error(w, KRI_E_DIVISION, a, NULL);
        kri_int_divide(w, a, b, &q, NULL);
        return q;
    }
    }
}

kr_value kri_add(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_integer(w, kri_fixnum_value(a) + kri_fixnum_value(b));
    if (kri_is_flonum(a) && kri_is_flonum(b))
        return kri_float(w, kri_flonum_value(a) + kri_flonum_value(b));
    return arithmetic(w, ADD, a, b);
}

kr_value kri_sub(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_integer(w, kri_fixnum_value(a) - kri_fixnum_value(b));
    if (kri_is_flonum(a) && kri_is_flonum(b))
        return kri_float(w, kri_flonum_value(a) - kri_flonum_value(b));
    return arithmetic(w, SUB, a, b);
}

kr_value kri_mul(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_is_flonum(a) && kri_is_flonum(b))
        return kri_float(w, kri_flonum_value(a) * kri_flonum_value(b));
    return arithmetic(w, MUL, a, b);
}

kr_value kri_div(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_is_flonum(a) && kri_is_flonum(b))
        return kri_float(w, kri_flonum_value(a) / kri_flonum_value(b));
    return arithmetic(w, DIV, a, b);
}

kr_value kri_negate(struct kri_worker *w, kr_value a)
{
    if (kri_is_float(a))
        return kri_float(w, -kri_float_value(a));
    return kri_sub(w, kri_fixnum(0), a);
}

kr_value kri_mod(struct kri_worker *w, kr_value a, kr_value b)
{
    enum kri_number_kind ka = kri_number_kind(a), kb = kri_number_kind(b);
    if (ka == KRI_NUMBER_NONE || kb == KRI_NUMBER_NONE || ka == KRI_NUMBER_COMPLEX || kb == KRI_NUMBER_COMPLEX)
        kri_error(w, KRI_E_NO_INTEGER, ka == KRI_NUMBER_NONE || ka == KRI_NUMBER_COMPLEX ? a : b, "operand of mod");
    if (ka == KRI_NUMBER_FLOAT || kb == KRI_NUMBER_FLOAT)
        return kri_float(w, fmod(kri_to_double(w, a), kri_to_double(w, b)));
    if (ka == KRI_NUMBER_RATIO || kb == KRI_NUMBER_RATIO)
        return kri_sub(w, a, kri_mul(w, b, kri_round_quotient(w, KRI_TRUNCATE, a, b)));
    kr_value r;
    if (kri_eq(b, kri_fixnum(0)))
        kri_error(w, KRI_E_DIVISION, a, NULL);
    kri_int_divide(w, a, b, NULL, &r);
    return r;
}

/* ---- comparison ---- */

static int compare_rationals(struct kri_worker *w, kr_value a, kr_value b)
{
    kr_value an, ad, bn, bd;
    parts(w, a, &an, &ad);
    parts(w, b, &bn, &bd);
    return kri_int_compare(kri_int_mul(w, an, bd), kri_int_mul(w, bn, ad));
}

/* An exact number and a float, exactly. */
static int compare_with_double(struct kri_worker *w, kr_value a, double d)
{
    if (isnan(d))
        return 2;
    if (isinf(d))
        return d > 0 ? -1 : 1;
    if (kri_is_fixnum(a)) {
        intptr_t n = kri_fixnum_value(a);
        if ((n > -((intptr_t)1 << 53) && n < (intptr_t)1 << 53) || fabs(d) >= 0x1p63)
            return ((double)n > d) - ((double)n < d);
        intptr_t whole = (intptr_t)d; /* where N's float would be rounded, a float within its reach has no fraction */
        return n != whole ? (n > whole) - (n < whole) : ((double)whole > d) - ((double)whole < d);
    }
    return compare_rationals(w, a, kri_rational(w, kri_float(w, d)));
}

static int compare(struct kri_worker *w, kr_value a, kr_value b, const char *operation)
{
    enum kri_number_kind ka = kri_number_kind(a), kb = kri_number_kind(b);
    if (ka == KRI_NUMBER_NONE || kb == KRI_NUMBER_NONE || ka == KRI_NUMBER_COMPLEX || kb == KRI_NUMBER_COMPLEX)
        kri_error(w, KRI_E_NO_NUMBER, ka == KRI_NUMBER_NONE || ka == KRI_NUMBER_COMPLEX ? a : b, "operand of %s", operation);
    if (ka == KRI_NUMBER_FLOAT && kb == KRI_NUMBER_FLOAT) {
        double x = kri_float_value(a), y = kri_float_value(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    if (ka == KRI_NUMBER_FLOAT) {
        int c = compare_with_double(w, b, kri_float_value(a));
        return c == 2 ? 2 : -c;
    }
    if (kb == KRI_NUMBER_FLOAT)
        return compare_with_double(w, a, kri_float_value(b));
    if (ka == KRI_NUMBER_RATIO || kb == KRI_NUMBER_RATIO)
        return compare_rationals(w, a, b);
    return kri_int_compare(a, b);
}

int kri_compare(struct kri_worker *w, kr_value a, kr_value b) { return compare(w, a, b, "a comparison"); }

bool kri_lt(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_fixnum_value(a) < kri_fixnum_value(b);
    int c = compare(w, a, b, "<");
    return c < 0 || c == 2;
}

bool kri_le(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_fixnum_value(a) <= kri_fixnum_value(b);
    return compare(w, a, b, "<=") != 1;
}

bool kri_numeq(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_eq(a, b);
    if (kri_is_complex(a) || kri_is_complex(b)) {
        kr_value ar, ai, br, bi;
        if (!kri_is_number(a) || !kri_is_number(b))
            not_number(w, a, b, "=");
        complex_parts(w, a, &ar, &ai);
        complex_parts(w, b, &br, &bi);
        return kri_numeq(w, ar, br) && kri_numeq(w, ai, bi);
    }
    return compare(w, a, b, "=") == 0;
}

/* ---- rounding to integers ---- */

static double round_double(enum kri_rounding how, double d)
{
    switch (how) {
    case KRI_FLOOR:
        return floor(d);
    case KRI_CEILING:
        return ceil(d);
    case KRI_TRUNCATE:
        return trunc(d);
    default: {
        /* To even, whatever the thread's rounding mode. */
        double down = floor(d), rest = d - down;
        return rest < 0.5 || (rest == 0.5 && fmod(down, 2) == 0) ? down : down + 1;
    }
    }
}

static kr_value integer_of_double(struct kri_worker *w, double d)
{
    if (!isfinite(d))
        kri_error(w, KRI_E_RANGE, kri_float(w, d), "no integer is near it");
    return kri_int_from_double(w, d);
}

/* N / D rounded; integers, D positive or negative. */
static kr_value round_integers(struct kri_worker *w, enum kri_rounding how, kr_value n, kr_value d)
{
    kr_value q, r;
    if (kri_eq(d, kri_fixnum(0)))
        kri_error(w, KRI_E_DIVISION, n, NULL);
    kri_int_divide(w, n, d, &q, &r);
    int rest = kri_int_sign(r), sign = rest * kri_int_sign(d); /* the exact quotient lies beyond q on the side of SIGN */
    int step = 0;
    if (rest != 0)
        switch (how) {
        case KRI_FLOOR:
            step = sign < 0 ? -1 : 0;
            break;
        case KRI_CEILING:
            step = sign > 0 ? 1 : 0;
            break;
        case KRI_TRUNCATE:
            break;
        case KRI_ROUND: {
            kr_value twice = kri_int_shift(w, r, 1), limit = d;
            if (kri_int_sign(twice) < 0)
                twice = kri_int_negate(w, twice);
            if (kri_int_sign(limit) < 0)
                limit = kri_int_negate(w, limit);
            int c = kri_int_compare(twice, limit);
            step = c > 0 || (c == 0 && kri_int_odd(q)) ? sign : 0;
            break;
        }
        }
    return step ? kri_int_add(w, q, kri_fixnum(step)) : q;
}

kr_value kri_round_to_integer(struct kri_worker *w, enum kri_rounding how, kr_value a)
{
    switch (kri_number_kind(a)) {
    case KRI_NUMBER_FIXNUM:
    case KRI_NUMBER_BIGNUM:
        return a;
    case KRI_NUMBER_FLOAT:
        return integer_of_double(w, round_double(how, kri_float_value(a)));
    case KRI_NUMBER_RATIO: {
        kr_value n, d;
        parts(w, a, &n, &d);
        return round_integers(w, how, n, d);
    }
    default:
        kri_error(w, KRI_E_NO_NUMBER, a, "a real number");
    }
}

kr_value kri_round_quotient(struct kri_worker *w, enum kri_rounding how, kr_value a, kr_value b)
{
    enum kri_number_kind ka = kri_number_kind(a), kb = kri_number_kind(b);
    if (ka == KRI_NUMBER_NONE || kb == KRI_NUMBER_NONE || ka == KRI_NUMBER_COMPLEX || kb == KRI_NUMBER_COMPLEX)
        kri_error(w, KRI_E_NO_NUMBER, ka == KRI_NUMBER_NONE || ka == KRI_NUMBER_COMPLEX ? a : b, "a real number");
    if (ka == KRI_NUMBER_FLOAT || kb == KRI_NUMBER_FLOAT) {
        if (!isfinite(kri_to_double(w, a)) || !isfinite(kri_to_double(w, b)))
            return integer_of_double(w, round_double(how, kri_to_double(w, a) / kri_to_double(w, b)));
        /* By the exact values: a rounded quotient might step over an integer. */
        a = kri_rational(w, a);
        b = kri_rational(w, b);
    }
    kr_value an, ad, bn, bd;
    parts(w, a, &an, &ad);
    parts(w, b, &bn, &bd);
    return round_integers(w, how, kri_int_mul(w, an, bd), kri_int_mul(w, ad, bn));
}

/* ---- powers ---- */

double complex kri_complex_value(struct kri_worker *w, kr_value v)
{
    kr_value re, im;
    complex_parts(w, v, &re, &im);
    double both[2] = {kri_to_double(w, re), kri_to_double(w, im)};
    double complex z;
    memcpy(&z, both, sizeof z); /* re + im * I would lose infinities and signs of zeros */
    return z;
}

/* BASE (ratio, float or complex) to the power N by squaring. */
static kr_value power_by_squaring(struct kri_worker *w, kr_value base, uintptr_t n)
{
    kr_value result = kri_fixnum(1);
    for (;;) {
        if (n & 1)
            result = kri_mul(w, result, base);
        n >>= 1;
        if (n == 0)
            return result;
        base = kri_mul(w, base, base);
        kri_poll(w);
    }
}

static kr_value exact_power(struct kri_worker *w, kr_value base, kr_value exponent, enum kri_number_kind kind)
{
    kr_value n, d;
    parts(w, base, &n, &d);
    if (kri_is_bignum(exponent)) {
        /* Only 0, 1 and -1 have such powers. */
        if (kind == KRI_NUMBER_FIXNUM && kri_fixnum_value(n) >= -1 && kri_fixnum_value(n) <= 1)
            return kri_int_power(w, n, kri_int_odd(exponent) ? 1 : 2);
        kri_error(w, KRI_E_RANGE, exponent, "the exponent of an exact power");
    }
    uintptr_t e = (uintptr_t)kri_fixnum_value(exponent);
    n = kri_int_power(w, n, e);
    return kri_is_ratio(base) ? kri_make_ratio(w, n, kri_int_power(w, d, e)) : n;
}

kr_value kri_expt(struct kri_worker *w, kr_value base, kr_value exponent)
{
    enum kri_number_kind kb = kri_number_kind(base), ke = kri_number_kind(exponent);
    if (kb == KRI_NUMBER_NONE || ke == KRI_NUMBER_NONE)
        not_number(w, base, exponent, "expt");
    bool whole = ke == KRI_NUMBER_FIXNUM || ke == KRI_NUMBER_BIGNUM;
    if (whole && kri_int_sign(exponent) == 0)
        return kri_fixnum(1);
    if (kb == KRI_NUMBER_COMPLEX || ke == KRI_NUMBER_COMPLEX) {
        if (ke == KRI_NUMBER_FIXNUM) {
            intptr_t n = kri_fixnum_value(exponent);
            kr_value p = power_by_squaring(w, base, n < 0 ? -(uintptr_t)n : (uintptr_t)n);
            return n < 0 ? kri_div(w, kri_fixnum(1), p) : p;
        }
        double complex z = cpow(kri_complex_value(w, base), kri_complex_value(w, exponent));
        return kri_make_complex(w, kri_float(w, creal(z)), kri_float(w, cimag(z)));
    }
    if (whole && kb != KRI_NUMBER_FLOAT && kri_int_sign(exponent) > 0)
        return exact_power(w, base, exponent, kb);
    return kri_float(w, pow(kri_to_double(w, base), kri_to_double(w, exponent)));
}
