/* bignum.c -- integers of any size, over GMP's mpn layer.
 *
 * Always true: a bignum's magnitude has no leading zero limb and does not fit a fixnum. Magnitudes lie in cells, which never
 * move, so long computations run outside the gate; GMP's own scratch memory never holds a value. Results whose size
 * exceeds KRI_BIGNUM_LIMBS are refused before anything is computed, because GMP aborts when it cannot allocate. */
#include "lisp/number.h"

#include <gmp.h>
#include <math.h>

_Static_assert(sizeof(mp_limb_t) == 8 && GMP_NAIL_BITS == 0, "a limb is 64 bits");

/* A look at an integer: magnitude and sign. LIMB may point to SMALL, so a view is not copied. */
struct view {
    const mp_limb_t *limb;
    size_t n;              /* 0 for zero */
    bool negative;
    mp_limb_t small;
};

static void look(struct view *x, kr_value v)
{
    if (kri_is_fixnum(v)) {
        intptr_t i = kri_fixnum_value(v);
        x->small = i < 0 ? -(mp_limb_t)i : (mp_limb_t)i;
        x->limb = &x->small;
        x->n = i != 0;
        x->negative = i < 0;
    } else {
        const struct kri_bignum *b = (const struct kri_bignum *)v.w;
        x->limb = (const mp_limb_t *)b->limb;
        x->n = b->head.length;
        x->negative = b->sign < 0;
    }
}

static mp_limb_t *limbs_of(struct kri_bignum *b) { return (mp_limb_t *)b->limb; }

static struct kri_bignum *make(struct kri_worker *w, size_t limbs)
{
    if (KRI_UNLIKELY(limbs > KRI_BIGNUM_LIMBS))
        kri_error(w, KRI_E_RANGE, KRI_NIL, "an integer of %zu bits is beyond the limit of %zu", limbs * 64, (size_t)KRI_BIGNUM_LIMBS * 64);
    /* Whoever asks fills the limbs before anything can collect or fail, or does not care what they hold. */
    struct kri_cell *c = kri_alloc_raw(w, KRI_CLASS_BIGNUM, (uint32_t)limbs, limbs + 1);
    if (KRI_UNLIKELY(!c))
        kri_error_memory(w, (limbs + 2) * 8);
    return (struct kri_bignum *)c;
}

/* B's first N limbs with the sign as an integer in its smallest form. */
static kr_value finish(struct kri_bignum *b, size_t n, bool negative)
{
    const mp_limb_t *limb = limbs_of(b);
    while (n > 0 && limb[n - 1] == 0)
        n--;
    if (n == 0)
        return kri_fixnum(0);
    if (n == 1 && limb[0] <= (mp_limb_t)KRI_FIXNUM_MAX + negative)
        return kri_fixnum(negative ? (intptr_t)-limb[0] : (intptr_t)limb[0]);
    b->head.length = (uint32_t)n;
    b->sign = negative ? -1 : 1;
    return kri_value_of(b);
}

kr_value kri_int_from_u64(struct kri_worker *w, uint64_t magnitude, bool negative)
{
    if (magnitude <= (uint64_t)KRI_FIXNUM_MAX + negative)
        return kri_fixnum(negative ? (intptr_t)-magnitude : (intptr_t)magnitude);
    struct kri_bignum *b = make(w, 1);
    b->limb[0] = magnitude;
    return finish(b, 1, negative);
}

kr_value kri_integer_slow(struct kri_worker *w, intptr_t n)
{
    return kri_int_from_u64(w, n < 0 ? -(uint64_t)n : (uint64_t)n, n < 0);
}

/* ---- long computations outside the gate ---- */

enum { LONG_WORK = 1 << 18 }; /* limb operations: a fraction of a millisecond */

static void run(struct kri_worker *w, double work, void (*f)(void *), void *arg)
{
    if (work < LONG_WORK) {
        f(arg);
    } else {
        kri_poll(w);
        kri_blocking(w, f, arg);
    }
}

struct operands {
    mp_limb_t *r, *r2;
    const mp_limb_t *a, *b;
    size_t an, bn, rn;
    unsigned char *text;
    const unsigned char *digits;
    int base;
};

/* ---- sums ---- */

static kr_value add_signed(struct kri_worker *w, kr_value va, kr_value vb, bool subtract)
{
    struct view a, b;
    look(&a, va);
    look(&b, vb);
    bool bneg = b.negative != subtract;
    if (a.n < b.n) {
        struct kri_bignum *r = make(w, b.n + 1);
        mp_limb_t *p = limbs_of(r);
        if (a.negative == bneg) {
            p[b.n] = mpn_add(p, b.limb, (mp_size_t)b.n, a.limb, (mp_size_t)a.n);
            return finish(r, b.n + 1, bneg);
        }
        mpn_sub(p, b.limb, (mp_size_t)b.n, a.limb, (mp_size_t)a.n);
        return finish(r, b.n, bneg);
    }
    struct kri_bignum *r = make(w, a.n + 1);
    mp_limb_t *p = limbs_of(r);
    if (a.n == 0)
        return kri_fixnum(0);
    if (a.negative == bneg) {
        p[a.n] = mpn_add(p, a.limb, (mp_size_t)a.n, b.limb, (mp_size_t)b.n);
        return finish(r, a.n + 1, a.negative);
    }
    if (a.n > b.n || mpn_cmp(a.limb, b.limb, (mp_size_t)a.n) >= 0) {
        mpn_sub(p, a.limb, (mp_size_t)a.n, b.limb, (mp_size_t)b.n);
        return finish(r, a.n, a.negative);
    }
    mpn_sub_n(p, b.limb, a.limb, (mp_size_t)a.n);
    return finish(r, a.n, bneg);
}

kr_value kri_int_add(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_integer(w, kri_fixnum_value(a) + kri_fixnum_value(b));
    return add_signed(w, a, b, false);
}

kr_value kri_int_sub(struct kri_worker *w, kr_value a, kr_value b)
{
    if (kri_both_fixnums(a, b))
        return kri_integer(w, kri_fixnum_value(a) - kri_fixnum_value(b));
    return add_signed(w, a, b, true);
}

kr_value kri_int_negate(struct kri_worker *w, kr_value a) { return kri_int_sub(w, kri_fixnum(0), a); }

/* ---- products ---- */

static void multiply(void *arg)
{
    struct operands *o = arg;
    if (o->a == o->b && o->an == o->bn)
        mpn_sqr(o->r, o->a, (mp_size_t)o->an);
    else if (o->an >= o->bn)
        mpn_mul(o->r, o->a, (mp_size_t)o->an, o->b, (mp_size_t)o->bn);
    else
        mpn_mul(o->r, o->b, (mp_size_t)o->bn, o->a, (mp_size_t)o->an);
}

/* Rough cost of multiplying: schoolbook for small ones, near linear for large ones. */
static double multiply_work(size_t an, size_t bn)
{
    size_t small = an < bn ? an : bn;
    return (double)(an < bn ? bn : an) * (small < 64 ? (double)small : 64 + sqrt((double)small));
}

kr_value kri_int_mul(struct kri_worker *w, kr_value va, kr_value vb)
{
    intptr_t product;
    if (kri_both_fixnums(va, vb) && !__builtin_mul_overflow(kri_fixnum_value(va), kri_fixnum_value(vb), &product))
        return kri_integer(w, product);
    struct view a, b;
    look(&a, va);
    look(&b, vb);
    if (a.n == 0 || b.n == 0)
        return kri_fixnum(0);
    struct kri_bignum *r = make(w, a.n + b.n);
    struct operands o = {.r = limbs_of(r), .a = a.limb, .an = a.n, .b = b.limb, .bn = b.n};
    run(w, multiply_work(a.n, b.n), multiply, &o);
    return finish(r, a.n + b.n, a.negative != b.negative);
}

kr_value kri_int_power(struct kri_worker *w, kr_value a, uintptr_t n)
{
    struct view x;
    look(&x, a);
    if (n == 0)
        return kri_fixnum(1);
    if (x.n == 0)
        return a;
    if (x.n == 1 && x.limb[0] == 1)
        return kri_fixnum(x.negative && n % 2 ? -1 : 1);
    /* The result has at least n * (length - 1) bits. */
    double bits = (double)n * (double)(x.n * 64 - (size_t)__builtin_clzl(x.limb[x.n - 1]) - 1);
    if (bits > (double)KRI_BIGNUM_LIMBS * 64)
        kri_error(w, KRI_E_RANGE, a, "its power is beyond the limit of %zu bits", (size_t)KRI_BIGNUM_LIMBS * 64);
    kr_value result = kri_fixnum(1);
    for (;;) {
        if (n & 1)
            result = kri_int_mul(w, result, a);
        n >>= 1;
        if (n == 0)
            return result;
        a = kri_int_mul(w, a, a);
    }
}

/* ---- quotients ---- */

static void divide(void *arg)
{
    struct operands *o = arg;
    mpn_tdiv_qr(o->r, o->r2, 0, o->a, (mp_size_t)o->an, o->b, (mp_size_t)o->bn);
}

void kri_int_divide(struct kri_worker *w, kr_value va, kr_value vb, kr_value *quotient, kr_value *remainder)
{
    if (kri_both_fixnums(va, vb)) {
        intptr_t a = kri_fixnum_value(va), b = kri_fixnum_value(vb);
        if (remainder)
            *remainder = kri_fixnum(a % b);
        if (quotient)
            *quotient = kri_integer(w, a / b);
        return;
    }
    struct view a, b;
    look(&a, va);
    look(&b, vb);
    if (b.n == 0)
        kri_error(w, KRI_E_DIVISION, va, NULL);
    if (a.n < b.n) {
        if (quotient)
            *quotient = kri_fixnum(0);
        if (remainder)
            *remainder = va;
        return;
    }
    struct kri_bignum *q = make(w, a.n - b.n + 1);
    if (b.n == 1) {
        mp_limb_t rest = mpn_divrem_1(limbs_of(q), 0, a.limb, (mp_size_t)a.n, b.limb[0]);
        if (remainder)
            *remainder = kri_int_from_u64(w, rest, a.negative);
    } else {
        struct kri_bignum *r = make(w, b.n);
        struct operands o = {.r = limbs_of(q), .r2 = limbs_of(r), .a = a.limb, .an = a.n, .b = b.limb, .bn = b.n};
        run(w, 2 * multiply_work(a.n - b.n + 1, b.n), divide, &o);
        if (remainder)
            *remainder = finish(r, b.n, a.negative);
    }
    if (quotient)
        *quotient = finish(q, a.n - b.n + 1, a.negative != b.negative);
}

static void greatest_divisor(void *arg)
{
    struct operands *o = arg;
    o->rn = (size_t)mpn_gcd(o->r, (mp_limb_t *)o->a, (mp_size_t)o->an, (mp_limb_t *)o->b, (mp_size_t)o->bn);
}

/* X without its trailing zero bits, as a fresh copy for mpn_gcd, which destroys its operands. */
static mp_limb_t *odd_part(struct kri_worker *w, const struct view *x, size_t *n, size_t *zeros)
{
    size_t skip = 0;
    while (x->limb[skip] == 0)
        skip++;
    unsigned shift = (unsigned)__builtin_ctzl(x->limb[skip]);
    mp_limb_t *p = limbs_of(make(w, x->n - skip));
    *n = x->n - skip;
    if (shift)
        mpn_rshift(p, x->limb + skip, (mp_size_t)*n, shift);
    else
        memcpy(p, x->limb + skip, *n * sizeof *p);
    if (p[*n - 1] == 0)
        --*n;
    *zeros = skip * 64 + shift;
    return p;
}

kr_value kri_int_gcd(struct kri_worker *w, kr_value va, kr_value vb)
{
    struct view a, b;
    look(&a, va);
    look(&b, vb);
    if (a.n == 0 || b.n == 0) {
        kr_value other = a.n == 0 ? vb : va;
        return kri_int_sign(other) < 0 ? kri_int_negate(w, other) : other;
    }
    if (a.n == 1 && b.n == 1) {
        mp_limb_t x = a.limb[0], y = b.limb[0];
        while (y) {
            mp_limb_t t = x % y;
            x = y;
            y = t;
        }
        return kri_int_from_u64(w, x, false);
    }
    if (a.n == 1)
        return kri_int_from_u64(w, mpn_gcd_1(b.limb, (mp_size_t)b.n, a.limb[0]), false);
    if (b.n == 1)
        return kri_int_from_u64(w, mpn_gcd_1(a.limb, (mp_size_t)a.n, b.limb[0]), false);
    struct operands o = {0};
    size_t az, bz;
    mp_limb_t *ap = odd_part(w, &a, &o.an, &az), *bp = odd_part(w, &b, &o.bn, &bz);
    o.a = ap;
    o.b = bp;
    if (o.an < o.bn || (o.an == o.bn && mpn_cmp(ap, bp, (mp_size_t)o.an) < 0)) {
        size_t n = o.an;
        o.a = bp;
        o.an = o.bn;
        o.b = ap;
        o.bn = n;
    }
    struct kri_bignum *r = make(w, o.bn);
    o.r = limbs_of(r);
    run(w, 4 * multiply_work(o.an, o.bn), greatest_divisor, &o);
    return kri_int_shift(w, finish(r, o.rn, false), (intptr_t)(az < bz ? az : bz));
}

static void square_root(void *arg)
{
    struct operands *o = arg;
    mpn_sqrtrem(o->r, NULL, o->a, (mp_size_t)o->an);
}

kr_value kri_int_isqrt(struct kri_worker *w, kr_value va)
{
    struct view a;
    look(&a, va);
    if (a.n == 0)
        return va;
    struct kri_bignum *r = make(w, (a.n + 1) / 2);
    struct operands o = {.r = limbs_of(r), .a = a.limb, .an = a.n};
    run(w, 2 * multiply_work(a.n, a.n), square_root, &o);
    return finish(r, (a.n + 1) / 2, false);
}

/* ---- bits, as of two's complement ---- */

kr_value kri_int_shift(struct kri_worker *w, kr_value va, intptr_t left)
{
    struct view a;
    look(&a, va);
    if (left == 0 || a.n == 0)
        return va;
    if (left > 0) {
        size_t words = (size_t)left / 64;
        unsigned bits = (unsigned)((size_t)left % 64);
        if (words > KRI_BIGNUM_LIMBS)
            kri_error(w, KRI_E_RANGE, kri_integer(w, left), "a shift by %ld bits makes an integer beyond the limit of %zu bits", (long)left,
                      (size_t)KRI_BIGNUM_LIMBS * 64);
        size_t n = a.n + words + 1;
        struct kri_bignum *r = make(w, n);
        mp_limb_t *p = limbs_of(r);
        memset(p, 0, words * sizeof *p);
        p[n - 1] = 0;
        if (bits)
            p[n - 1] = mpn_lshift(p + words, a.limb, (mp_size_t)a.n, bits);
        else
            memcpy(p + words, a.limb, a.n * sizeof *p);
        return finish(r, n, a.negative);
    }
    size_t right = -(size_t)left, words = right / 64;
    unsigned bits = (unsigned)(right % 64);
    if (words >= a.n)
        return kri_fixnum(a.negative ? -1 : 0);
    /* Rounding down: a negative number that loses a one bit is one further from zero. */
    bool lost = false;
    for (size_t i = 0; a.negative && !lost && i < words; i++)
        lost = a.limb[i] != 0;
    size_t n = a.n - words;
    struct kri_bignum *r = make(w, n + 1);
    mp_limb_t *p = limbs_of(r);
    if (bits)
        lost |= mpn_rshift(p, a.limb + words, (mp_size_t)n, bits) != 0;
    else
        memcpy(p, a.limb + words, n * sizeof *p);
    p[n] = 0;
    if (a.negative && lost)
        mpn_add_1(p, p, (mp_size_t)n + 1, 1);
    return finish(r, n + 1, a.negative);
}

/* Limb I of the two's complement of X; *BORROW starts as 1 and is carried along. */
static mp_limb_t complement_limb(const struct view *x, size_t i, mp_limb_t *borrow)
{
    mp_limb_t m = i < x->n ? x->limb[i] : 0;
    if (!x->negative)
        return m;
    m = ~m + *borrow;
    *borrow = *borrow && m == 0;
    return m;
}

static mp_limb_t logic_limb(enum kri_logic op, mp_limb_t a, mp_limb_t b)
{
    return op == KRI_LOGIC_AND ? a & b : op == KRI_LOGIC_IOR ? a | b : a ^ b;
}

kr_value kri_int_logic(struct kri_worker *w, enum kri_logic op, kr_value va, kr_value vb)
{
    if (kri_both_fixnums(va, vb)) {
        intptr_t a = kri_fixnum_value(va), b = kri_fixnum_value(vb);
        return kri_fixnum(op == KRI_LOGIC_AND ? a & b : op == KRI_LOGIC_IOR ? a | b : a ^ b);
    }
    struct view a, b;
    look(&a, va);
    look(&b, vb);
    size_t n = (a.n > b.n ? a.n : b.n) + 1;
    struct kri_bignum *r = make(w, n);
    mp_limb_t *p = limbs_of(r), ab = 1, bb = 1;
    for (size_t i = 0; i < n; i++) {
        mp_limb_t x = complement_limb(&a, i, &ab);
        p[i] = logic_limb(op, x, complement_limb(&b, i, &bb));
    }
    bool negative = logic_limb(op, a.negative, b.negative) & 1;
    if (negative)
        mpn_neg(p, p, (mp_size_t)n);
    return finish(r, n, negative);
}

int kri_int_sign(kr_value v)
{
    struct view a;
    look(&a, v);
    return a.n == 0 ? 0 : a.negative ? -1 : 1;
}

bool kri_int_odd(kr_value v)
{
    struct view a;
    look(&a, v);
    return a.n != 0 && (a.limb[0] & 1);
}

int kri_int_compare(kr_value va, kr_value vb)
{
    if (kri_both_fixnums(va, vb)) {
        intptr_t x = kri_fixnum_value(va), y = kri_fixnum_value(vb);
        return (x > y) - (x < y);
    }
    struct view a, b;
    look(&a, va);
    look(&b, vb);
    if (a.negative != b.negative)
        return a.negative ? -1 : 1;
    int c = a.n != b.n ? (a.n < b.n ? -1 : 1) : a.n == 0 ? 0 : mpn_cmp(a.limb, b.limb, (mp_size_t)a.n);
    c = (c > 0) - (c < 0);
    return a.negative ? -c : c;
}

bool kri_int_bit(kr_value v, size_t index)
{
    struct view a;
    look(&a, v);
    size_t word = index / 64;
    if (word >= a.n)
        return a.negative;
    mp_limb_t m = a.limb[word];
    if (a.negative) {
        bool below = false;
        for (size_t i = 0; !below && i < word; i++)
            below = a.limb[i] != 0;
        m = below ? ~m : -m;
    }
    return m >> (index % 64) & 1;
}

static bool power_of_two(const struct view *a)
{
    mp_limb_t top = a->limb[a->n - 1];
    if (top & (top - 1))
        return false;
    for (size_t i = 0; i + 1 < a->n; i++)
        if (a->limb[i])
            return false;
    return true;
}

size_t kri_int_length(kr_value v)
{
    struct view a;
    look(&a, v);
    if (a.n == 0)
        return 0;
    size_t bits = a.n * 64 - (size_t)__builtin_clzl(a.limb[a.n - 1]);
    return a.negative && power_of_two(&a) ? bits - 1 : bits;
}

size_t kri_int_count(kr_value v)
{
    struct view a;
    look(&a, v);
    if (a.n == 0)
        return 0;
    if (!a.negative)
        return mpn_popcount(a.limb, (mp_size_t)a.n);
    /* The zeros of -m are the ones of m - 1. */
    size_t count = 0;
    mp_limb_t borrow = 1;
    for (size_t i = 0; i < a.n; i++) {
        count += (size_t)__builtin_popcountl(a.limb[i] - borrow);
        borrow = borrow && a.limb[i] == 0;
    }
    return count;
}

int64_t kri_int_low64(kr_value v)
{
    struct view a;
    look(&a, v);
    mp_limb_t m = a.n ? a.limb[0] : 0;
    return (int64_t)(a.negative ? -m : m);
}

bool kri_int_to_i64(kr_value v, int64_t *out)
{
    struct view a;
    look(&a, v);
    *out = kri_int_low64(v);
    return a.n == 0 || (a.n == 1 && a.limb[0] <= (mp_limb_t)INT64_MAX + a.negative);
}

/* ---- floats ---- */

double kri_compose_double(uint64_t magnitude, bool sticky, int64_t exponent, bool negative)
{
    int64_t top = exponent + 63; /* the weight of the top bit */
    double d;
    if (top > 1023) {
        d = INFINITY;
    } else if (top < -1075) {
        d = 0;
    } else {
        /* Keep 53 bits, or as many as a subnormal has, and round to even by hand: ldexp would round a second time. */
        int drop = top >= -1022 ? 11 : (int)(11 + (-1022 - top));
        uint64_t kept = drop >= 64 ? 0 : magnitude >> drop;
        uint64_t half = (uint64_t)1 << (drop - 1);
        bool up = (magnitude & half) && ((magnitude & (half - 1)) || sticky || (kept & 1));
        d = ldexp((double)(kept + up), (int)(exponent + drop));
    }
    return negative ? -d : d;
}

/* The magnitude's top 64 bits, left-adjusted, and whether bits below them were lost. */
static uint64_t top_bits(const struct view *a, bool *sticky, int64_t *exponent)
{
    unsigned shift = (unsigned)__builtin_clzl(a->limb[a->n - 1]);
    uint64_t top = a->limb[a->n - 1] << shift;
    size_t rest = a->n - 1;
    *sticky = false;
    if (a->n > 1 && shift) {
        top |= a->limb[a->n - 2] >> (64 - shift);
        *sticky = a->limb[a->n - 2] << shift != 0;
        rest--;
    }
    for (size_t i = 0; !*sticky && i < rest; i++)
        *sticky = a->limb[i] != 0;
    *exponent = (int64_t)(a->n * 64) - 64 - shift;
    return top;
}

double kri_int_to_double(kr_value v)
{
    if (kri_is_fixnum(v))
        return (double)kri_fixnum_value(v);
    struct view a;
    bool sticky;
    int64_t exponent;
    look(&a, v);
    if (a.n == 0)
        return 0;
    uint64_t top = top_bits(&a, &sticky, &exponent);
    return kri_compose_double(top, sticky, exponent, a.negative);
}

double kri_int_frexp(kr_value v, int64_t *exponent)
{
    struct view a;
    bool sticky;
    look(&a, v);
    *exponent = 0;
    if (a.n == 0)
        return 0;
    uint64_t top = top_bits(&a, &sticky, exponent);
    *exponent += 64;
    double d = kri_compose_double(top, sticky, -64, a.negative);
    if (fabs(d) == 1) { /* rounded up */
        d /= 2;
        ++*exponent;
    }
    return d;
}

kr_value kri_int_from_double(struct kri_worker *w, double d)
{
    if (fabs(d) < 0x1p62)
        return kri_fixnum((intptr_t)d);
    int e;
    double m = frexp(d, &e);
    return kri_int_shift(w, kri_fixnum((intptr_t)ldexp(m, 53)), e - 53);
}

/* ---- digits ---- */

static void to_digits(void *arg)
{
    struct operands *o = arg;
    o->rn = mpn_get_str(o->text, o->base, o->r, (mp_size_t)o->an);
}

kr_value kri_integer_to_string(struct kri_worker *w, kr_value v, int base)
{
    static const char digit[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    struct view a;
    if (base < 2 || base > 36)
        kri_error(w, KRI_E_RANGE, kri_fixnum(base), "a number base is 2 to 36");
    if (!kri_is_integer(v)) /* the part of a ratio that somebody made by hand */
        kri_error(w, KRI_E_NO_INTEGER, v, NULL);
    look(&a, v);
    if (a.n <= 1) {
        char buffer[72], *p = buffer + sizeof buffer;
        mp_limb_t m = a.n ? a.limb[0] : 0;
        do
            *--p = digit[m % (unsigned)base];
        while (m /= (unsigned)base);
        if (a.negative)
            *--p = '-';
        return kri_string_n(w, p, (size_t)(buffer + sizeof buffer - p));
    }
    size_t room = mpn_sizeinbase(a.limb, (mp_size_t)a.n, base) + 2;
    kr_value text = kri_make_string(w, room);
    unsigned char *byte = kri_string_of(text)->byte;
    mp_limb_t *copy = limbs_of(make(w, a.n + 1)); /* mpn_get_str destroys its argument */
    memcpy(copy, a.limb, a.n * sizeof *copy);
    copy[a.n] = 0;
    struct operands o = {.r = copy, .an = a.n, .text = byte + 1, .base = base};
    run(w, 4 * multiply_work(a.n, a.n), to_digits, &o);
    size_t skip = 0, n = o.rn;
    while (skip < n - 1 && byte[1 + skip] == 0)
        skip++;
    n -= skip;
    size_t at = 0;
    if (a.negative)
        byte[at++] = '-';
    for (size_t i = 0; i < n; i++)
        byte[at + i] = (unsigned char)digit[byte[1 + skip + i]];
    byte[at + n] = 0;
    kri_string_of(text)->head.length = (uint32_t)(at + n);
    return text;
}

static void from_digits(void *arg)
{
    struct operands *o = arg;
    o->rn = (size_t)mpn_set_str(o->r, o->digits, o->an, o->base);
}

kr_value kri_int_from_digits(struct kri_worker *w, const unsigned char *digits, size_t n, int base, bool negative)
{
    while (n > 0 && *digits == 0) {
        digits++;
        n--;
    }
    if (n == 0)
        return kri_fixnum(0);
    double bits = (double)n * log2(base);
    if (bits > (double)(KRI_BIGNUM_LIMBS - 4) * 64)
        kri_error(w, KRI_E_RANGE, KRI_NIL, "an integer of %zu digits is beyond the limit", n);
    struct kri_bignum *r = make(w, (size_t)(bits / 64) + 3);
    struct operands o = {.r = limbs_of(r), .digits = digits, .an = n, .base = base};
    run(w, 4 * multiply_work(n / 16 + 1, n / 16 + 1), from_digits, &o);
    return finish(r, o.rn, negative);
}
