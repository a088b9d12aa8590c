/* builtin_number.c -- the language's functions on numbers, the random generator, the constants. */
#include <float.h>
#include <math.h>
#include <sys/random.h>
#include <time.h>

#include "lisp/interp.h"
#include "lisp/number.h"

/* ---- arguments ---- */

static kr_value arg_number(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_number(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_NUMBER);
    return argv[i];
}

static kr_value arg_real(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_number(argv[i]) || kri_is_complex(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_NUMBER);
    return argv[i];
}

static kr_value arg_integer(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_integer(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_INTEGER);
    return argv[i];
}

static kr_value arg_rational(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_integer(argv[i]) && !kri_is_ratio(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_NUMBER);
    return argv[i];
}

static double arg_float(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_float(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_NUMBER);
    return kri_float_value(argv[i]);
}

/* ---- the four operations ---- */

KR_BUILTIN(add, "+", "(&rest numbers)", "Return the sum of NUMBERS, 0 without any. A float among them makes the result a float. Error 32 for what is no number.")
{
    if (argc == 0)
        return kri_fixnum(0);
    kr_value sum = arg_number(w, argv, 0);
    for (int i = 1; i < argc; i++) {
        intptr_t s = kri_both_fixnums(sum, argv[i]) ? kri_fixnum_value(sum) + kri_fixnum_value(argv[i]) : 0;
        sum = s != 0 && kri_fits_fixnum(s) ? kri_fixnum(s) : kri_add(w, sum, arg_number(w, argv, i));
    }
    return sum;
}

KR_BUILTIN(subtract, "-", "(num &rest more-numbers)", "Return NUM less all of MORE-NUMBERS; with one argument its negative. Error 32 for what is no number.")
{
    kr_value rest = arg_number(w, argv, 0);
    if (argc == 1)
        return kri_negate(w, rest);
    for (int i = 1; i < argc; i++)
        rest = kri_sub(w, rest, arg_number(w, argv, i));
    return rest;
}

KR_BUILTIN(multiply, "*", "(num &rest more-numbers)", "Return the product of the arguments, at least one. Error 32 for what is no number.")
{
    kr_value product = arg_number(w, argv, 0);
    for (int i = 1; i < argc; i++)
        product = kri_mul(w, product, arg_number(w, argv, i));
    return product;
}

KR_BUILTIN(divide, "/", "(num &rest more-numbers)",
           "Return NUM divided by each of MORE-NUMBERS in turn. Integers by integers are truncated toward zero: (/ -7 2) is -3; a ratio or "
           "a float among the operands keeps the fraction. With one argument return its reciprocal, which of an integer is a ratio. "
           "Dividing an integer or a ratio by integer 0 is error 100; floats give an infinity or NaN.")
{
    kr_value quotient = arg_number(w, argv, 0);
    if (argc == 1)
        return kri_is_integer(quotient) ? kri_make_ratio(w, kri_fixnum(1), quotient) : kri_div(w, kri_fixnum(1), quotient);
    for (int i = 1; i < argc; i++)
        quotient = kri_div(w, quotient, arg_number(w, argv, i));
    return quotient;
}

KR_BUILTIN(increment, "1+", "(number)", "Return NUMBER plus one.")
{
    if (!kri_is_number(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER);
    return kri_add(w, argv[0], kri_fixnum(1));
}

KR_BUILTIN(decrement, "1-", "(number)", "Return NUMBER less one.")
{
    if (!kri_is_number(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER);
    return kri_sub(w, argv[0], kri_fixnum(1));
}

KR_BUILTIN(mod, "mod", "(dividend divisor)",
           "Return the remainder of DIVIDEND by DIVISOR, truncating: its sign is the dividend's, (mod -7 3) is -1. Floats and ratios are "
           "allowed. Integer division by zero is error 100.")
{
    return kri_mod(w, argv[0], argv[1]);
}

KR_BUILTIN(rem, "rem", "(dividend divisor)", "The same as MOD: the remainder of truncating division.") { return kri_mod(w, argv[0], argv[1]); }

KR_BUILTIN(gcd, "gcd", "(&rest integers)", "Return the greatest common divisor of INTEGERS, 0 without any.")
{
    kr_value g = kri_fixnum(0);
    for (int i = 0; i < argc; i++)
        g = kri_int_gcd(w, g, arg_integer(w, argv, i));
    return g;
}

KR_BUILTIN(lcm, "lcm", "(&rest integers)", "Return the least common multiple of INTEGERS, 1 without any; 0 if one is 0.")
{
    kr_value m = kri_fixnum(1);
    for (int i = 0; i < argc; i++) {
        kr_value g = kri_int_gcd(w, m, arg_integer(w, argv, i)), q;
        if (kri_eq(argv[i], kri_fixnum(0)))
            return kri_fixnum(0);
        kri_int_divide(w, argv[i], g, &q, NULL);
        m = kri_int_mul(w, m, q);
        if (kri_int_sign(m) < 0)
            m = kri_int_negate(w, m);
    }
    return m;
}

/* ---- comparison ---- */

#define COMPARISON(id, name, text, holds)                                                                                        \
    KR_BUILTIN(id, name, "(num1 num2 &rest more-numbers)", text)                                                                 \
    {                                                                                                                            \
        bool all = true;                                                                                                         \
        for (int i = 0; i < argc; i++)                                                                                           \
            arg_real(w, argv, i);                                                                                                \
        for (int i = 0; all && i + 1 < argc; i++) {                                                                              \
            kr_value a = argv[i], b = argv[i + 1];                                                                               \
            all = holds;                                                                                                         \
        }                                                                                                                        \
        return kri_bool(w, all);                                                                                                 \
    }
COMPARISON(less, "<", "Return T if each argument is less than the next. A comparison with NaN holds.", kri_lt(w, a, b))
COMPARISON(greater, ">", "Return T if each argument is greater than the next. A comparison with NaN holds.", kri_lt(w, b, a))
COMPARISON(less_equal, "<=", "Return T if no argument is greater than the next. A comparison with NaN holds.", kri_le(w, a, b))
COMPARISON(greater_equal, ">=", "Return T if no argument is less than the next. A comparison with NaN holds.", kri_le(w, b, a))

KR_BUILTIN(equal_numbers, "=", "(num1 num2 &rest more-numbers)", "Return T if all arguments are the same number, whatever their types: (= 1 1.0). NaN equals nothing.")
{
    bool all = true;
    for (int i = 0; i < argc; i++)
        arg_number(w, argv, i);
    for (int i = 0; all && i + 1 < argc; i++)
        all = kri_numeq(w, argv[i], argv[i + 1]);
    return kri_bool(w, all);
}

KR_BUILTIN(different_numbers, "/=", "(num1 num2 &rest more-numbers)", "Return T if no two of the arguments are the same number.")
{
    for (int i = 0; i < argc; i++)
        arg_number(w, argv, i);
    for (int i = 0; i < argc; i++)
        for (int j = i + 1; j < argc; j++)
            if (kri_numeq(w, argv[i], argv[j]))
                return KRI_NIL;
    return w->vm->sym.t;
}

static kr_value extreme(struct kri_worker *w, int argc, const kr_value *argv, int wanted)
{
    kr_value best = arg_real(w, argv, 0);
    bool inexact = kri_is_float(best);
    for (int i = 1; i < argc; i++) {
        kr_value x = arg_real(w, argv, i);
        if (kri_both_fixnums(x, best)) {
            if (wanted > 0 ? kri_fixnum_value(x) > kri_fixnum_value(best) : kri_fixnum_value(x) < kri_fixnum_value(best))
                best = x;
            continue;
        }
        inexact |= kri_is_float(x);
        if (kri_compare(w, x, best) == wanted)
            best = x;
    }
    return inexact && !kri_is_float(best) ? kri_float(w, kri_to_double(w, best)) : best;
}

KR_BUILTIN(max, "max", "(num &rest more-numbers)", "Return the greatest argument, as a float if any argument is one.") { return extreme(w, argc, argv, 1); }
KR_BUILTIN(min, "min", "(num &rest more-numbers)", "Return the least argument, as a float if any argument is one.") { return extreme(w, argc, argv, -1); }

KR_BUILTIN(abs, "abs", "(number)", "Return the absolute value of NUMBER; of a complex number a float.")
{
    kr_value v = arg_number(w, argv, 0);
    if (kri_is_float(v))
        return kri_float(w, fabs(kri_float_value(v)));
    if (kri_is_complex(v)) {
        const struct kri_complex *c = (const struct kri_complex *)v.w;
        return kri_float(w, hypot(kri_to_double(w, kri_slot(&c->real)), kri_to_double(w, kri_slot(&c->imaginary))));
    }
    return kri_lt(w, v, kri_fixnum(0)) ? kri_negate(w, v) : v;
}

KR_BUILTIN(signum, "signum", "(number)", "Return -1, 0 or 1 (a float for a float) with the sign of NUMBER; NaN for NaN.")
{
    kr_value v = arg_real(w, argv, 0);
    if (kri_is_float(v)) {
        double d = kri_float_value(v);
        return kri_float(w, d > 0 ? 1 : d < 0 ? -1 : d);
    }
    return kri_fixnum(kri_compare(w, v, kri_fixnum(0)));
}

/* ---- predicates ---- */

KR_BUILTIN(numberp, "numberp", "(object)", "Return T if OBJECT is a number.") { return kri_bool(w, kri_is_number(argv[0])); }
KR_BUILTIN(integerp, "integerp", "(object)", "Return T if OBJECT is an integer of any size.") { return kri_bool(w, kri_is_integer(argv[0])); }
KR_BUILTIN(fixnump, "fixnump", "(object)", "Return T if OBJECT is an integer that needs no memory, from MOST-NEGATIVE-FIXNUM to MOST-POSITIVE-FIXNUM.")
{
    return kri_bool(w, kri_is_fixnum(argv[0]));
}
KR_BUILTIN(bignump, "bignump", "(object)", "Return T if OBJECT is an integer beyond the fixnums.") { return kri_bool(w, kri_is_bignum(argv[0])); }
KR_BUILTIN(ratiop, "ratiop", "(object)", "Return T if OBJECT is a ratio.") { return kri_bool(w, kri_is_ratio(argv[0])); }
KR_BUILTIN(rationalp, "rationalp", "(object)", "Return T if OBJECT is an integer or a ratio.")
{
    return kri_bool(w, kri_is_integer(argv[0]) || kri_is_ratio(argv[0]));
}
KR_BUILTIN(floatp, "floatp", "(object)", "Return T if OBJECT is a float.") { return kri_bool(w, kri_is_float(argv[0])); }
KR_BUILTIN(realp, "realp", "(object)", "Return T if OBJECT is a number other than a complex one.")
{
    return kri_bool(w, kri_is_number(argv[0]) && !kri_is_complex(argv[0]));
}
KR_BUILTIN(complexp, "complexp", "(object)", "Return T if OBJECT is a complex number.") { return kri_bool(w, kri_is_complex(argv[0])); }
KR_BUILTIN(zerop, "zerop", "(number)", "Return T if NUMBER is zero.") { return kri_bool(w, kri_numeq(w, arg_number(w, argv, 0), kri_fixnum(0))); }
KR_BUILTIN(plusp, "plusp", "(number)", "Return T if NUMBER is greater than zero.") { return kri_bool(w, kri_lt(w, kri_fixnum(0), arg_real(w, argv, 0))); }
KR_BUILTIN(minusp, "minusp", "(number)", "Return T if NUMBER is less than zero.") { return kri_bool(w, kri_lt(w, arg_real(w, argv, 0), kri_fixnum(0))); }
KR_BUILTIN(oddp, "oddp", "(integer)", "Return T if INTEGER is odd.") { return kri_bool(w, kri_int_odd(arg_integer(w, argv, 0))); }
KR_BUILTIN(evenp, "evenp", "(integer)", "Return T if INTEGER is even.") { return kri_bool(w, !kri_int_odd(arg_integer(w, argv, 0))); }

/* ---- rounding ---- */

static kr_value rounded(struct kri_worker *w, int argc, const kr_value *argv, enum kri_rounding how, bool as_float)
{
    kr_value a = arg_real(w, argv, 0);
    bool infinite = kri_is_float(a) && !isfinite(kri_float_value(a));
    if (as_float && infinite && argc == 1)
        return a;
    kr_value q = argc == 1 ? kri_round_to_integer(w, how, a) : kri_round_quotient(w, how, a, arg_real(w, argv, 1));
    return as_float ? kri_float(w, kri_to_double(w, q)) : q;
}

#define ROUNDING(id, name, how, toward)                                                                                          \
    KR_BUILTIN(id, name, "(number &optional divisor)",                                                                           \
               "Return NUMBER, or NUMBER divided by DIVISOR, rounded " toward " to an integer of any size. Infinities and NaN are "  \
               "error 105, an exact division by 0 error 100.")                                                                   \
    {                                                                                                                            \
        return rounded(w, argc, argv, how, false);                                                                               \
    }                                                                                                                            \
    KR_BUILTIN(f##id, "f" name, "(number &optional divisor)", "Return what " name " does, as a float.") { return rounded(w, argc, argv, how, true); }
ROUNDING(floor, "floor", KRI_FLOOR, "down")
ROUNDING(ceiling, "ceiling", KRI_CEILING, "up")
ROUNDING(truncate, "truncate", KRI_TRUNCATE, "toward zero")
ROUNDING(round, "round", KRI_ROUND, "to the nearest, ties to even,")

/* ---- functions of analysis: floats for real arguments, never complex numbers ---- */

static kr_value from_complex(struct kri_worker *w, double complex z) { return kri_make_complex(w, kri_float(w, creal(z)), kri_float(w, cimag(z))); }

#define ANALYTIC(id, name, f, text)                                                                                              \
    KR_BUILTIN(id, name, "(number)", text " For real arguments a float, NaN where it would be complex.")                         \
    {                                                                                                                            \
        kr_value v = arg_number(w, argv, 0);                                                                                     \
        return kri_is_complex(v) ? from_complex(w, c##f(kri_complex_value(w, v))) : kri_float(w, f(kri_to_double(w, v)));            \
    }
ANALYTIC(exp, "exp", exp, "Return e to the power NUMBER.")
ANALYTIC(sin, "sin", sin, "Return the sine of NUMBER, in radians.")
ANALYTIC(cos, "cos", cos, "Return the cosine of NUMBER, in radians.")
ANALYTIC(tan, "tan", tan, "Return the tangent of NUMBER, in radians.")
ANALYTIC(asin, "asin", asin, "Return the arc sine of NUMBER, in radians.")
ANALYTIC(acos, "acos", acos, "Return the arc cosine of NUMBER, in radians.")
ANALYTIC(sinh, "sinh", sinh, "Return the hyperbolic sine of NUMBER.")
ANALYTIC(cosh, "cosh", cosh, "Return the hyperbolic cosine of NUMBER.")
ANALYTIC(tanh, "tanh", tanh, "Return the hyperbolic tangent of NUMBER.")
ANALYTIC(asinh, "asinh", asinh, "Return the inverse hyperbolic sine of NUMBER.")
ANALYTIC(acosh, "acosh", acosh, "Return the inverse hyperbolic cosine of NUMBER.")
ANALYTIC(atanh, "atanh", atanh, "Return the inverse hyperbolic tangent of NUMBER.")

KR_BUILTIN(sqrt, "sqrt", "(number)", "Return the square root of NUMBER as a float; NaN for negative ones. A complex argument gives a complex root.")
{
    kr_value v = arg_number(w, argv, 0);
    if (kri_is_complex(v))
        return from_complex(w, csqrt(kri_complex_value(w, v)));
    if (kri_is_bignum(v) && kri_int_sign(v) > 0) { /* may be beyond the floats while its root is not */
        int64_t e;
        double m = kri_int_frexp(v, &e);
        return kri_float(w, ldexp(sqrt(e % 2 ? 2 * m : m), (int)(e / 2)));
    }
    return kri_float(w, sqrt(kri_to_double(w, v)));
}

/* The logarithm in the base that F computes and where 2 has the logarithm TWO. */
static double real_log(struct kri_worker *w, kr_value v, double (*f)(double), double two)
{
    if (kri_is_bignum(v) && kri_int_sign(v) > 0) {
        int64_t e;
        double m = kri_int_frexp(v, &e);
        return f(m) + (double)e * two;
    }
    return f(kri_to_double(w, v));
}

static double natural_log(struct kri_worker *w, kr_value v) { return real_log(w, v, log, 0.693147180559945309417); }

KR_BUILTIN(log, "log", "(number &optional base)", "Return the logarithm of NUMBER in BASE, the natural one without. A float: -inf for 0, NaN for negative numbers.")
{
    kr_value v = arg_number(w, argv, 0);
    if (argc == 2)
        arg_number(w, argv, 1);
    if (kri_is_complex(v) || (argc == 2 && kri_is_complex(argv[1]))) {
        double complex z = clog(kri_complex_value(w, v));
        return from_complex(w, argc == 2 ? z / clog(kri_complex_value(w, argv[1])) : z);
    }
    if (argc == 1)
        return kri_float(w, natural_log(w, v));
    if (kri_numeq(w, argv[1], kri_fixnum(2)))
        return kri_float(w, real_log(w, v, log2, 1));
    if (kri_numeq(w, argv[1], kri_fixnum(10)))
        return kri_float(w, real_log(w, v, log10, 0.301029995663981195214));
    return kri_float(w, natural_log(w, v) / natural_log(w, argv[1]));
}

KR_BUILTIN(atan, "atan", "(y &optional x)", "Return the arc tangent of Y, or of Y/X in the quadrant of the point (X, Y), from -pi to pi.")
{
    if (argc == 2)
        return kri_float(w, atan2(kri_to_double(w, arg_real(w, argv, 0)), kri_to_double(w, arg_real(w, argv, 1))));
    kr_value v = arg_number(w, argv, 0);
    return kri_is_complex(v) ? from_complex(w, catan(kri_complex_value(w, v))) : kri_float(w, atan(kri_to_double(w, v)));
}

KR_BUILTIN(expt, "expt", "(base power)",
           "Return BASE to the power POWER: exact for an integer or ratio BASE and a natural POWER, else a float. Powers too large to store are "
           "error 105.")
{
    arg_number(w, argv, 0);
    arg_number(w, argv, 1);
    return kri_expt(w, argv[0], argv[1]);
}

KR_BUILTIN(isqrt, "isqrt", "(natural)", "Return the greatest integer whose square is not above NATURAL.")
{
    kr_value v = arg_integer(w, argv, 0);
    if (kri_int_sign(v) < 0)
        kri_error(w, KRI_E_RANGE, v, "a negative number has no integer square root");
    return kri_int_isqrt(w, v);
}

static const double pi = 3.14159265358979323846;
KR_BUILTIN(deg2rad, "deg2rad", "(degrees)", "Return DEGREES in radians.") { return kri_float(w, kri_to_double(w, arg_real(w, argv, 0)) * pi / 180); }
KR_BUILTIN(rad2deg, "rad2deg", "(radians)", "Return RADIANS in degrees.") { return kri_float(w, kri_to_double(w, arg_real(w, argv, 0)) * 180 / pi); }

/* ---- conversions and parts ---- */

KR_BUILTIN(float_, "float", "(number)", "Return the float nearest to NUMBER.") { return kri_float(w, kri_to_double(w, arg_real(w, argv, 0))); }

KR_BUILTIN(rational, "rational", "(number)", "Return the integer or ratio that equals NUMBER exactly. Infinities and NaN are error 105.")
{
    return kri_rational(w, arg_real(w, argv, 0));
}

/* The fraction with the smallest denominator in [LOW, HIGH]; both positive. */
static kr_value simplest_between(struct kri_worker *w, kr_value low, kr_value high)
{
    kr_value whole = kri_round_to_integer(w, KRI_FLOOR, low);
    if (kri_numeq(w, whole, low))
        return whole;
    if (kri_lt(w, whole, kri_round_to_integer(w, KRI_FLOOR, high)))
        return kri_add(w, whole, kri_fixnum(1));
    kr_value a = kri_sub(w, low, whole), b = kri_sub(w, high, whole), one = kri_fixnum(1);
    kr_value rest = simplest_between(w, kri_is_integer(b) ? kri_make_ratio(w, one, b) : kri_div(w, one, b), kri_div(w, one, a));
    return kri_add(w, whole, kri_is_integer(rest) ? kri_make_ratio(w, one, rest) : kri_div(w, one, rest));
}

KR_BUILTIN(rationalize, "rationalize", "(number)", "Return the simplest integer or ratio that reads as NUMBER when made a float: (rationalize 0.1) is 1/10.")
{
    kr_value v = arg_real(w, argv, 0);
    if (!kri_is_float(v))
        return v;
    double d = kri_float_value(v);
    kr_value exact = kri_rational(w, v);
    if (d == 0 || kri_is_integer(exact))
        return exact;
    double a = fabs(d);
    kr_value half = kri_make_ratio(w, kri_fixnum(1), kri_fixnum(2));
    kr_value mid = kri_rational(w, kri_float(w, a));
    kr_value low = kri_mul(w, half, kri_add(w, mid, kri_rational(w, kri_float(w, nextafter(a, 0)))));
    kr_value high = kri_mul(w, half, kri_add(w, mid, kri_rational(w, kri_float(w, nextafter(a, INFINITY)))));
    kr_value result = simplest_between(w, low, high);
    if (kri_to_double(w, result) != a) /* the ends of the interval may round away */
        result = mid;
    return d < 0 ? kri_negate(w, result) : result;
}

KR_BUILTIN(numerator, "numerator", "(rational)", "Return the upper part of RATIONAL in lowest terms.")
{
    kr_value v = arg_rational(w, argv, 0);
    return kri_is_ratio(v) ? kri_slot(&((const struct kri_ratio *)v.w)->numerator) : v;
}

KR_BUILTIN(denominator, "denominator", "(rational)", "Return the lower part of RATIONAL in lowest terms: positive, 1 for an integer.")
{
    kr_value v = arg_rational(w, argv, 0);
    return kri_is_ratio(v) ? kri_slot(&((const struct kri_ratio *)v.w)->denominator) : kri_fixnum(1);
}

KR_BUILTIN(complex_, "complex", "(real &optional (imaginary 0))", "Return the number REAL + i IMAGINARY; REAL itself if IMAGINARY is the integer 0.")
{
    arg_real(w, argv, 0);
    return argc == 1 ? argv[0] : kri_make_complex(w, argv[0], arg_real(w, argv, 1));
}

KR_BUILTIN(realpart, "realpart", "(number)", "Return the real part of NUMBER.")
{
    kr_value v = arg_number(w, argv, 0);
    return kri_is_complex(v) ? kri_slot(&((const struct kri_complex *)v.w)->real) : v;
}

KR_BUILTIN(imagpart, "imagpart", "(number)", "Return the imaginary part of NUMBER, 0 for real ones.")
{
    kr_value v = arg_number(w, argv, 0);
    return kri_is_complex(v) ? kri_slot(&((const struct kri_complex *)v.w)->imaginary) : kri_is_float(v) ? kri_float(w, 0) : kri_fixnum(0);
}

KR_BUILTIN(conjugate, "conjugate", "(number)", "Return the complex conjugate of NUMBER.")
{
    kr_value v = arg_number(w, argv, 0);
    if (!kri_is_complex(v))
        return v;
    const struct kri_complex *c = (const struct kri_complex *)v.w;
    return kri_make_complex(w, kri_slot(&c->real), kri_negate(w, kri_slot(&c->imaginary)));
}

KR_BUILTIN(phase, "phase", "(number)", "Return the angle of NUMBER in the complex plane, from -pi to pi.")
{
    return kri_float(w, carg(kri_complex_value(w, arg_number(w, argv, 0))));
}

KR_BUILTIN(cis, "cis", "(radians)", "Return cos(RADIANS) + i sin(RADIANS).")
{
    double a = kri_to_double(w, arg_real(w, argv, 0));
    return kri_make_complex(w, kri_float(w, cos(a)), kri_float(w, sin(a)));
}

KR_BUILTIN(frexp, "lisp::frexp", "(number)", "Return a list (M E) with NUMBER = M * 2^E and M from 0.5 to 1.")
{
    int e = 0;
    double m = frexp(kri_to_double(w, arg_real(w, argv, 0)), &e);
    return kri_list(w, 2, kri_float(w, m), kri_fixnum(e));
}

KR_BUILTIN(decode_float, "decode-float", "(float)", "Return a list (M E S): FLOAT = S * M * 2^E, M from 0.5 to 1, S is 1.0 or -1.0.")
{
    double d = arg_float(w, argv, 0);
    int e = 0;
    double m = frexp(fabs(d), &e);
    return kri_list(w, 3, kri_float(w, m), kri_fixnum(isfinite(d) ? e : 0), kri_float(w, copysign(1, d)));
}

KR_BUILTIN(integer_decode_float, "integer-decode-float", "(float)", "Return a list (M E S) of integers: FLOAT = S * M * 2^E. Infinities and NaN are error 105.")
{
    double d = arg_float(w, argv, 0);
    if (!isfinite(d))
        kri_error(w, KRI_E_RANGE, argv[0], "no integer decodes it");
    int e = 0;
    double m = frexp(fabs(d), &e);
    return kri_list(w, 3, kri_fixnum((intptr_t)ldexp(m, 53)), kri_fixnum(d == 0 ? 0 : e - 53), kri_fixnum(signbit(d) ? -1 : 1));
}

KR_BUILTIN(scale_float, "scale-float", "(float integer)", "Return FLOAT * 2^INTEGER.")
{
    double d = arg_float(w, argv, 0);
    intptr_t n = kri_arg_fixnum(w, argv, 1);
    return kri_float(w, ldexp(d, n > 10000 ? 10000 : n < -10000 ? -10000 : (int)n));
}

KR_BUILTIN(float_digits, "float-digits", "(float)", "Return how many bits a float's mantissa has: 53.")
{
    arg_float(w, argv, 0);
    return kri_fixnum(DBL_MANT_DIG);
}

KR_BUILTIN(float_sign, "float-sign", "(float1 &optional (float2 1.0))", "Return a float with the sign of FLOAT1 and the magnitude of FLOAT2.")
{
    return kri_float(w, copysign(argc == 2 ? arg_float(w, argv, 1) : 1, arg_float(w, argv, 0)));
}

/* ---- bits ---- */

static kr_value fold_logic(struct kri_worker *w, enum kri_logic op, int argc, const kr_value *argv, intptr_t neutral)
{
    kr_value r = kri_fixnum(neutral);
    for (int i = 0; i < argc; i++)
        r = kri_int_logic(w, op, r, arg_integer(w, argv, i));
    return r;
}

static kr_value invert(struct kri_worker *w, kr_value v) { return kri_int_sub(w, kri_fixnum(-1), v); }

KR_BUILTIN(logand, "logand", "(&rest integers)", "Return the bitwise and of INTEGERS, -1 without any.") { return fold_logic(w, KRI_LOGIC_AND, argc, argv, -1); }
KR_BUILTIN(logior, "logior", "(&rest integers)", "Return the bitwise inclusive or of INTEGERS, 0 without any.") { return fold_logic(w, KRI_LOGIC_IOR, argc, argv, 0); }
KR_BUILTIN(logxor, "logxor", "(&rest integers)", "Return the bitwise exclusive or of INTEGERS, 0 without any.") { return fold_logic(w, KRI_LOGIC_XOR, argc, argv, 0); }
KR_BUILTIN(lognand, "lognand", "(&rest integers)", "Return the complement of the bitwise and of INTEGERS.") { return invert(w, fold_logic(w, KRI_LOGIC_AND, argc, argv, -1)); }
KR_BUILTIN(lognor, "lognor", "(&rest integers)", "Return the complement of the bitwise inclusive or of INTEGERS.") { return invert(w, fold_logic(w, KRI_LOGIC_IOR, argc, argv, 0)); }
KR_BUILTIN(logeqv, "logeqv", "(&rest integers)", "Return the complement of the bitwise exclusive or of INTEGERS.") { return invert(w, fold_logic(w, KRI_LOGIC_XOR, argc, argv, 0)); }
KR_BUILTIN(lognot, "lognot", "(integer)", "Return the bitwise complement of INTEGER.") { return invert(w, arg_integer(w, argv, 0)); }

KR_BUILTIN(logandc1, "logandc1", "(integer1 integer2)", "Return the bitwise and of INTEGER1's complement and INTEGER2.")
{
    return kri_int_logic(w, KRI_LOGIC_AND, invert(w, arg_integer(w, argv, 0)), arg_integer(w, argv, 1));
}
KR_BUILTIN(logandc2, "logandc2", "(integer1 integer2)", "Return the bitwise and of INTEGER1 and INTEGER2's complement.")
{
    return kri_int_logic(w, KRI_LOGIC_AND, arg_integer(w, argv, 0), invert(w, arg_integer(w, argv, 1)));
}
KR_BUILTIN(logorc1, "logorc1", "(integer1 integer2)", "Return the bitwise or of INTEGER1's complement and INTEGER2.")
{
    return kri_int_logic(w, KRI_LOGIC_IOR, invert(w, arg_integer(w, argv, 0)), arg_integer(w, argv, 1));
}
KR_BUILTIN(logorc2, "logorc2", "(integer1 integer2)", "Return the bitwise or of INTEGER1 and INTEGER2's complement.")
{
    return kri_int_logic(w, KRI_LOGIC_IOR, arg_integer(w, argv, 0), invert(w, arg_integer(w, argv, 1)));
}

KR_BUILTIN(logtest, "logtest", "(integer1 integer2)", "Return T if INTEGER1 and INTEGER2 have a one bit in common.")
{
    return kri_bool(w, kri_int_sign(kri_int_logic(w, KRI_LOGIC_AND, arg_integer(w, argv, 0), arg_integer(w, argv, 1))) != 0);
}

KR_BUILTIN(logbitp, "logbitp", "(index integer)", "Return T if bit INDEX of INTEGER, in two's complement, is one.")
{
    intptr_t i = kri_arg_natural(w, argv, 0);
    return kri_bool(w, kri_int_bit(arg_integer(w, argv, 1), (size_t)i));
}

KR_BUILTIN(ash, "ash", "(integer count)", "Return INTEGER shifted left by COUNT bits, right (rounding down) if COUNT is negative. Results too large to store are error 105.")
{
    kr_value v = arg_integer(w, argv, 0), count = arg_integer(w, argv, 1);
    if (kri_is_fixnum(count))
        return kri_int_shift(w, v, kri_fixnum_value(count));
    if (kri_int_sign(count) > 0 && kri_int_sign(v) != 0)
        kri_error(w, KRI_E_RANGE, count, "a shift");
    return kri_fixnum(kri_int_sign(v) < 0 ? -1 : 0);
}

static kr_value mask(struct kri_worker *w, intptr_t width) { return kri_int_sub(w, kri_int_shift(w, kri_fixnum(1), width), kri_fixnum(1)); }

KR_BUILTIN(ldb, "ldb", "(target position &optional (width 8))", "Return the WIDTH bits of TARGET from bit POSITION up, as a natural number.")
{
    kr_value target = arg_integer(w, argv, 0);
    intptr_t position = kri_arg_natural(w, argv, 1), width = argc > 2 ? kri_arg_natural(w, argv, 2) : 8;
    return kri_int_logic(w, KRI_LOGIC_AND, kri_int_shift(w, target, -position), mask(w, width));
}

KR_BUILTIN(dpb, "dpb", "(value target position &optional (width 8))", "Return TARGET with its WIDTH bits from bit POSITION up replaced by the low bits of VALUE.")
{
    kr_value value = arg_integer(w, argv, 0), target = arg_integer(w, argv, 1);
    intptr_t position = kri_arg_natural(w, argv, 2), width = argc > 3 ? kri_arg_natural(w, argv, 3) : 8;
    kr_value ones = mask(w, width), field = kri_int_shift(w, ones, position);
    kr_value bits = kri_int_shift(w, kri_int_logic(w, KRI_LOGIC_AND, value, ones), position);
    return kri_int_logic(w, KRI_LOGIC_IOR, kri_int_logic(w, KRI_LOGIC_AND, target, invert(w, field)), bits);
}

KR_BUILTIN(integer_length, "integer-length", "(integer)", "Return how many bits INTEGER needs in two's complement, the sign not counted.")
{
    return kri_fixnum((intptr_t)kri_int_length(arg_integer(w, argv, 0)));
}

KR_BUILTIN(logcount, "logcount", "(integer)", "Return the number of one bits in INTEGER, of zero bits if it is negative.")
{
    return kri_fixnum((intptr_t)kri_int_count(arg_integer(w, argv, 0)));
}

/* ---- text ---- */

static bool blank(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

KR_BUILTIN(parse_integer, "parse-integer", "(string &key (start 0) end (radix 10) junk-allowed)",
           "Return the integer that STRING spells from START to END in base RADIX, blanks around it skipped. Other text is error 32, or NIL or "
           "the integer before it with JUNK-ALLOWED.")
{
    struct kri_string *s = kri_arg_string(w, argv, 0);
    kr_value keys[] = {w->vm->sym.k_start, w->vm->sym.k_end, kri_keyword(w, "RADIX"), kri_keyword(w, "JUNK-ALLOWED")};
    kri_check_keys(w, argc, argv, 1, keys, 4);
    kr_value end_value = kri_arg_key(argc, argv, 1, keys[1], KRI_NIL), length = kri_fixnum((intptr_t)s->head.length);
    kr_value bounds[] = {kri_arg_key(argc, argv, 1, keys[0], kri_fixnum(0)), kri_is_nil(end_value) ? length : end_value,
                         kri_arg_key(argc, argv, 1, keys[2], kri_fixnum(10))};
    for (int i = 0; i < 3; i++)
        if (!kri_is_fixnum(bounds[i]))
            kri_error(w, KRI_E_NO_INTEGER, bounds[i], i == 2 ? ":radix" : i == 1 ? ":end" : ":start");
    intptr_t start = kri_fixnum_value(bounds[0]), end = kri_fixnum_value(bounds[1]), radix = kri_fixnum_value(bounds[2]);
    bool junk = !kri_is_nil(kri_arg_key(argc, argv, 1, keys[3], KRI_NIL));
    if (start < 0 || start > end || end > (intptr_t)s->head.length)
        kri_error(w, KRI_E_START_END, kri_fixnum(start), NULL);
    if (radix < 2 || radix > 36)
        kri_error(w, KRI_E_RANGE, kri_fixnum(radix), "a radix is 2 to 36");
    const unsigned char *p = s->byte;
    intptr_t from = start, to = end;
    while (from < to && blank(p[from]))
        from++;
    intptr_t digits = from < to && (p[from] == '+' || p[from] == '-') ? from + 1 : from, stop = digits;
    while (stop < to) {
        int c = p[stop], d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
        if (d >= radix)
            break;
        stop++;
    }
    while (to > stop && blank(p[to - 1]))
        to--;
    if (stop > digits && (junk || stop == to))
        return kri_parse_number(w, (const char *)p + from, (size_t)(stop - from), (int)radix);
    if (junk)
        return KRI_NIL;
    kri_error(w, KRI_E_NO_NUMBER, argv[0], "text of an integer in base %d", (int)radix);
}

/* ---- random numbers: EusLisp's generator, so that a state gives the sequence it gives there ---- */

static kr_value fresh_state(struct kri_worker *w)
{
    kr_value v = kri_make_ivector(w, 2);
    int64_t *at = kri_ivector_of(v)->at;
    uint64_t seed[2];
    if (getrandom(seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        /* Early in the boot of a machine there may be no entropy yet. */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        seed[0] = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)now.tv_sec ^ v.w;
        seed[1] = seed[0] >> 13;
    }
    at[0] = (int64_t)(seed[0] & 0xffffffffffff);
    at[1] = (int64_t)(seed[1] & 0xffffffffffff);
    return v;
}

static struct kri_ivector *state_vector(struct kri_worker *w, kr_value state)
{
    if (!kri_is_ivector(w->vm, state))
        kri_error(w, KRI_E_NO_INTEGER_VECTOR, state, "a random state");
    if (kri_length(state) < 2)
        kri_error(w, KRI_E_ARRAY_SIZE, state, "a random state has two words");
    return kri_ivector_of(state);
}

/* The state of this thread. The VM's initial one only marks that nobody chose a state: each context then binds its own. */
static kr_value current_state(struct kri_worker *w)
{
    kr_value state = kri_special(w, w->vm->sym.random_state);
    if (!kri_eq(state, w->vm->random))
        return state;
    size_t i = (size_t)kri_fixnum_value(kri_slot(&kri_symbol_of(w->vm, w->vm->sym.random_state)->special));
    if (!kri_dynamic_ensure(w->ctx, i))
        kri_error_memory(w, i * sizeof(kr_value));
    state = fresh_state(w);
    w->ctx->dynamic[i] = state;
    return state;
}

/* The next 48 bits. Only the low 48 of the first word change. Threads that share a state may get the same number twice. */
static uint64_t next_random(struct kri_ivector *state)
{
    const uint64_t low = 0xffffffffffff;
    volatile kri_atomic *word = (volatile kri_atomic *)&state->at[0];
    uint64_t s = kri_load_relaxed(word), next = (s * 0x5DEECE66D + 11) & low;
    kri_store_relaxed(word, (s & ~low) | next);
    return next;
}

KR_BUILTIN(random, "random", "(range &optional (state *random-state*))",
           "Return a random number from 0 up to but not including RANGE: an integer for an integer, a float for a float. STATE is an "
           "integer-vector of two words, which is updated; the same state gives the same sequence. Each thread has a state of its own, differently "
           "started in every run, unless *RANDOM-STATE* is set or bound.")
{
    kr_value range = argv[0];
    if (!kri_is_integer(range) && !kri_is_float(range))
        kri_argument_error(w, 0, range, KRI_E_NO_NUMBER);
    struct kri_ivector *state = state_vector(w, argc > 1 ? argv[1] : current_state(w));
    if (!kri_is_bignum(range)) {
        double fraction = (double)next_random(state) * 0x1p-48;
        return kri_is_float(range) ? kri_float(w, kri_float_value(range) * fraction)
                                   : kri_fixnum((intptr_t)((double)kri_fixnum_value(range) * fraction));
    }
    /* 96 bits more than needed make the bias of the remainder immaterial. */
    kr_value bits = kri_fixnum(0), result;
    for (size_t n = kri_int_length(range) + 96; ; n -= 48) {
        bits = kri_int_logic(w, KRI_LOGIC_IOR, kri_int_shift(w, bits, 48), kri_fixnum((intptr_t)next_random(state)));
        kri_poll(w);
        if (n <= 48)
            break;
    }
    kri_int_divide(w, bits, range, NULL, &result);
    return kri_int_sign(range) < 0 ? kri_int_negate(w, result) : result;
}

KR_BUILTIN(make_random_state, "make-random-state", "(&optional (state *random-state*))",
           "Return a copy of STATE, an integer-vector; of this thread's state if STATE is NIL or left out; a fresh, unpredictable one if STATE is T.")
{
    kr_value state = argc > 0 ? argv[0] : KRI_NIL;
    if (kri_eq(state, w->vm->sym.t))
        return fresh_state(w);
    struct kri_ivector *from = state_vector(w, kri_is_nil(state) ? current_state(w) : state);
    kr_value copy = kri_make_ivector(w, 2);
    kri_ivector_of(copy)->at[0] = from->at[0];
    kri_ivector_of(copy)->at[1] = from->at[1];
    return copy;
}

KR_BUILTIN(random_state_p, "random-state-p", "(object)", "Return T if OBJECT can serve as a random state.")
{
    return kri_bool(w, kri_is_ivector(w->vm, argv[0]) && kri_length(argv[0]) >= 2);
}

/* ---- constants ---- */

static void constant(struct kri_worker *w, const char *name, kr_value value, bool external)
{
    kr_value symbol = kri_intern(w, name, strlen(name), w->vm->pkg_lisp);
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    kri_store(w, &s->head, &s->value, value);
    kri_store(w, &s->head, &s->vtype, kri_fixnum(0));
    if (external)
        kri_export(w, symbol, w->vm->pkg_lisp);
}

void kri_number_init(struct kri_worker *w)
{
    static const struct { const char *name; double value; } floats[] = {
        {"PI", 3.14159265358979323846}, {"2PI", 6.28318530717958647692}, {"PI/2", 1.57079632679489661923},
        {"-PI", -3.14159265358979323846}, {"-2PI", -6.28318530717958647692}, {"-PI/2", -1.57079632679489661923},
        {"MOST-POSITIVE-FLOAT", DBL_MAX}, {"MOST-NEGATIVE-FLOAT", -DBL_MAX},
        {"LEAST-POSITIVE-FLOAT", 0x1p-1074}, {"LEAST-NEGATIVE-FLOAT", -0x1p-1074},
        /* EusLisp's tolerance, which its programs compare with; the true one is DOUBLE-FLOAT-EPSILON. */
        {"SHORT-FLOAT-EPSILON", 0x1p-21}, {"SINGLE-FLOAT-EPSILON", 0x1p-21}, {"LONG-FLOAT-EPSILON", 0x1p-21},
        {"DOUBLE-FLOAT-EPSILON", 0x1.0000000000001p-53},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        constant(w, floats[i].name, kri_float(w, floats[i].value), true);
    constant(w, "FLOAT-EPSILON", kri_float(w, 0x1p-21), false);
    constant(w, "MOST-POSITIVE-FIXNUM", kri_fixnum(KRI_FIXNUM_MAX), true);
    constant(w, "MOST-NEGATIVE-FIXNUM", kri_fixnum(KRI_FIXNUM_MIN), true);

    struct kr_vm *vm = w->vm;
    struct kri_symbol *s = kri_symbol_of(vm, vm->sym.random_state);
    kr_value initial = fresh_state(w);
    vm->roots = kri_cons(w, initial, vm->roots); /* current_state knows it by address */
    vm->random = initial;
    kri_store(w, &s->head, &s->value, initial);
}

const struct kri_builtin *const kri_builtins_number[] = {
    &add_def, &subtract_def, &multiply_def, &divide_def, &increment_def, &decrement_def, &mod_def, &rem_def, &gcd_def, &lcm_def,
    &less_def, &greater_def, &less_equal_def, &greater_equal_def, &equal_numbers_def, &different_numbers_def, &max_def, &min_def,
    &abs_def, &signum_def, &numberp_def, &integerp_def, &fixnump_def, &bignump_def, &ratiop_def, &rationalp_def, &floatp_def,
    &realp_def, &complexp_def, &zerop_def, &plusp_def, &minusp_def, &oddp_def, &evenp_def,
    &floor_def, &ffloor_def, &ceiling_def, &fceiling_def, &truncate_def, &ftruncate_def, &round_def, &fround_def,
    &exp_def, &sin_def, &cos_def, &tan_def, &asin_def, &acos_def, &sinh_def, &cosh_def, &tanh_def, &asinh_def, &acosh_def, &atanh_def,
    &sqrt_def, &log_def, &atan_def, &expt_def, &isqrt_def, &deg2rad_def, &rad2deg_def,
    &float__def, &rational_def, &rationalize_def, &numerator_def, &denominator_def, &complex__def, &realpart_def, &imagpart_def,
    &conjugate_def, &phase_def, &cis_def, &frexp_def, &decode_float_def, &integer_decode_float_def, &scale_float_def,
    &float_digits_def, &float_sign_def,
    &logand_def, &logior_def, &logxor_def, &lognand_def, &lognor_def, &logeqv_def, &lognot_def, &logandc1_def, &logandc2_def,
    &logorc1_def, &logorc2_def, &logtest_def, &logbitp_def, &ash_def, &ldb_def, &dpb_def, &integer_length_def, &logcount_def,
    &parse_integer_def, &random_def, &make_random_state_def, &random_state_p_def, NULL,
};
