/* number_text.c -- numbers to text and back, the same in every locale.
 *
 * Reading is correctly rounded: short numbers by one exact multiplication or division, the others by integer arithmetic.
 * Printing follows EusLisp's rule of about six digits, or gives the shortest of 15 to 17 digits that reads back the same. */
#include "lisp/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- printing ---- */

/* The host's locale chose the decimal point that printf wrote: make it a period. */
static void use_period(char *text)
{
    char *p = text;
    while (*p == '-' || (*p >= '0' && *p <= '9'))
        p++;
    if (*p == '\0' || *p == 'e' || *p == '.')
        return;
    char *rest = p;
    while (*rest && !(*rest >= '0' && *rest <= '9'))
        rest++;
    *p++ = '.';
    memmove(p, rest, strlen(rest) + 1);
}

static void print_shortest(double d, char buffer[64])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, 64, "%.*g", digits, d);
        if (strtod(buffer, NULL) == d)
            break;
    }
    use_period(buffer);
    if (!strpbrk(buffer, ".e"))
        strcat(buffer, ".0");
}

static void print_as_euslisp(double d, char buffer[64])
{
    double a = fabs(d);
    if (a < 0.0001 || a > 100000) {
        snprintf(buffer, 64, "%1.6e", d);
        use_period(buffer);
        return;
    }
    int decimals = a < 1 ? 6 : a < 10 ? 5 : a < 100 ? 4 : a < 1000 ? 3 : a < 10000 ? 2 : 1;
    snprintf(buffer, 64, "%.*f", decimals, d);
    use_period(buffer);
    char *end = buffer + strlen(buffer);
    while (end[-1] == '0' && end[-2] != '.')
        *--end = '\0';
}

size_t kri_print_float(struct kr_vm *vm, double d, bool shortest, char buffer[64])
{
    (void)vm;
    if (isnan(d))
        strcpy(buffer, "-nan"); /* whatever sign the processor gave it: kri_float_value_slow */
    else if (isinf(d))
        strcpy(buffer, d < 0 ? "-inf" : "inf");
    else if (d == 0)
        strcpy(buffer, shortest && signbit(d) ? "-0.0" : "0.0");
    else if (shortest)
        print_shortest(d, buffer);
    else
        print_as_euslisp(d, buffer);
    return strlen(buffer);
}

/* ---- reading ---- */

static int digit_value(unsigned char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

static size_t span_digits(const char *text, size_t n, int base)
{
    size_t i = 0;
    while (i < n && digit_value((unsigned char)text[i]) < base)
        i++;
    return i;
}

/* N digit characters as an integer. */
static kr_value parse_digits(struct kri_worker *w, const char *text, size_t n, int base, bool negative)
{
    uint64_t m = 0;
    size_t i = 0;
    for (; i < n; i++)
        if (__builtin_mul_overflow(m, (uint64_t)base, &m) || __builtin_add_overflow(m, (uint64_t)digit_value((unsigned char)text[i]), &m))
            break;
    if (i == n)
        return kri_int_from_u64(w, m, negative);
    kr_value scratch = kri_make_string(w, n);
    unsigned char *digit = kri_string_of(scratch)->byte;
    for (i = 0; i < n; i++)
        digit[i] = (unsigned char)digit_value((unsigned char)text[i]);
    return kri_int_from_digits(w, digit, n, base, negative);
}

static kr_value power_of_ten(struct kri_worker *w, intptr_t n) { return kri_int_power(w, kri_fixnum(10), (uintptr_t)n); }

/* A decimal number's parts: digits before and after the point, and the exponent written. */
struct decimal {
    const char *whole, *fraction;
    size_t nwhole, nfraction;
    intptr_t exponent;
    bool negative;
};

static char decimal_digit(const struct decimal *d, size_t i) { return i < d->nwhole ? d->whole[i] : d->fraction[i - d->nwhole]; }

static double parse_exactly(struct kri_worker *w, const struct decimal *d, size_t first, size_t last, intptr_t exponent)
{
    enum { ENOUGH = 800 }; /* no double lies nearer to a tie than 767 digits can tell; one more for the rest */
    unsigned char digit[ENOUGH + 1];
    size_t n = last - first;
    size_t kept = n > ENOUGH ? ENOUGH : n;
    for (size_t i = 0; i < kept; i++)
        digit[i] = (unsigned char)(decimal_digit(d, first + i) - '0');
    if (kept < n) { /* the last digit is not zero, so something was lost */
        digit[kept] = 1;
        exponent += (intptr_t)(n - kept - 1);
        kept++;
    }
    kr_value m = kri_int_from_digits(w, digit, kept, 10, false);
    return exponent >= 0 ? kri_int_to_double(kri_int_mul(w, m, power_of_ten(w, exponent)))
                         : kri_ratio_to_double(w, m, power_of_ten(w, -exponent));
}

static double parse_decimal(struct kri_worker *w, const struct decimal *d)
{
    static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    size_t all = d->nwhole + d->nfraction, first = 0, last = all;
    while (first < all && decimal_digit(d, first) == '0')
        first++;
    while (last > first && decimal_digit(d, last - 1) == '0')
        last--;
    if (first == last)
        return 0;
    /* The value is digits[first..last) * 10^exponent. */
    intptr_t exponent = d->exponent - (intptr_t)d->nfraction + (intptr_t)(all - last), magnitude = exponent + (intptr_t)(last - first);
    if (magnitude > 310)
        return INFINITY;
    if (magnitude < -326)
        return 0;
    if (last - first <= 15) {
        int64_t m = 0;
        for (size_t i = first; i < last; i++)
            m = m * 10 + (decimal_digit(d, i) - '0');
        /* Both factors are exact, so the one operation rounds correctly. */
        if (exponent >= 0 && exponent <= 22)
            return (double)m * ten[exponent];
        if (exponent < 0 && exponent >= -22)
            return (double)m / ten[-exponent];
    }
    return parse_exactly(w, d, first, last, exponent);
}

/* digits [. digits] [marker [sign] digits]: with a digit in front of the marker, and a period or a marker. */
static bool scan_decimal(const char *text, size_t n, struct decimal *d)
{
    size_t i = span_digits(text, n, 10);
    bool point = false;
    d->whole = text;
    d->nwhole = i;
    d->fraction = text;
    d->nfraction = 0;
    d->exponent = 0;
    if (i < n && text[i] == '.') {
        point = true;
        d->fraction = text + ++i;
        d->nfraction = span_digits(text + i, n - i, 10);
        i += d->nfraction;
    }
    if (d->nwhole + d->nfraction == 0)
        return false;
    if (i == n)
        return point;
    if (!memchr("eEdDfFlL", text[i], 8))
        return false;
    i++;
    bool negative = false;
    if (i < n && (text[i] == '+' || text[i] == '-'))
        negative = text[i++] == '-';
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        if (d->exponent < 1000000000000)
            d->exponent = d->exponent * 10 + (text[i] - '0');
    if (negative)
        d->exponent = -d->exponent;
    return i == n;
}

kr_value kri_parse_number(struct kri_worker *w, const char *text, size_t n, int base)
{
    if (n > 1 && text[n - 1] == '%')
        n--;
    bool negative = n > 0 && *text == '-';
    if (n > 0 && (*text == '-' || *text == '+')) {
        text++;
        n--;
    }
    if (n == 0 || (digit_value((unsigned char)*text) >= base && digit_value((unsigned char)*text) > 9 && *text != '.'))
        return KRI_UNBOUND;
    size_t digits = span_digits(text, n, base);
    if (digits > 0) {
        if (digits == n || (digits == n - 1 && text[digits] == '.'))
            return parse_digits(w, text, digits, base, negative);
        if (text[digits] == '/') {
            const char *below = text + digits + 1;
            size_t left = n - digits - 1;
            if (left == 0 || span_digits(below, left, base) != left)
                return KRI_UNBOUND;
            kr_value numerator = parse_digits(w, text, digits, base, negative);
            return kri_make_ratio(w, numerator, parse_digits(w, below, left, base, false));
        }
    }
    struct decimal d;
    if (!scan_decimal(text, n, &d))
        return KRI_UNBOUND;
    if (d.nfraction == 0 && text[n - 1] == '.')
        return parse_digits(w, text, d.nwhole, 10, negative);
    double value = parse_decimal(w, &d);
    return kri_float(w, negative ? -value : value);
}
