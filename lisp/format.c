/* format.c -- the function format: EusLisp's directives and Common Lisp's.
 *
 * The whole output is gathered in a text and then written in one piece. Where the two languages differ EusLisp wins: ~n,md is
 * a field of n with at least m digits, ~t without a column is a tab, ~wf has one decimal, ~d of a symbol is an error. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include "lisp/printer.h"
#include "lisp/reader.h"
#include "lisp/sequence.h"

enum { PARAMETERS = 7, WIDEST = 100000 };

struct arguments {
    const kr_value *at;
    size_t n, next;
    kr_value keep; /* the vector that AT lies in, or NIL */
    size_t lists;  /* within ~:{: how many lists come after this one */
};

struct format {
    struct kri_worker *w;
    struct kr_vm *vm;
    struct kri_text *out;
    size_t base_column; /* of the stream, before the text */
    kr_value control;
    const char *start, *end;
    jmp_buf *shallow;   /* where directives nested too deeply return to */
};

struct directive {
    intptr_t value[PARAMETERS];
    enum { ABSENT, NUMBER, CHARACTER } given[PARAMETERS];
    bool colon, at;
    char c;          /* in lower case */
    const char *from, *next;
};

enum outcome { FINISHED, ESCAPED /* ~^ */, ENDED /* ~:^, the whole of ~:{ */ };

_Noreturn static void bad_control(struct format *f, const char *why) { kri_error(f->w, KRI_E_FORMAT, f->control, "%s", why); }

static kr_value next_argument(struct format *f, struct arguments *a)
{
    if (a->next >= a->n)
        kri_error(f->w, KRI_E_ARGC, f->control, "format: too few arguments for the control string");
    return a->at[a->next++];
}

static void put(struct format *f, char c) { kri_text_putc(f->w, f->out, c); }
static void pad(struct format *f, intptr_t n, char c)
{
    while (n-- > 0)
        put(f, c);
}
static void put_n(struct format *f, const char *s, size_t n) { kri_text_write(f->w, f->out, s, n); }

static size_t column(struct format *f)
{
    size_t n = 0;
    for (size_t i = f->out->n; i-- > 0;) {
        if (f->out->p[i] == '\n')
            return n;
        n += ((unsigned char)f->out->p[i] & 0xc0) != 0x80;
    }
    return f->base_column + n;
}

/* ---- parsing ---- */

/* The directive at P, just behind the tilde. ARGS may be NULL when it is only skipped. */
static void parse(struct format *f, const char *p, struct directive *d, struct arguments *args)
{
    memset(d, 0, sizeof *d);
    d->from = p - 1;
    int n = 0;
    for (bool more = true; more;) {
        if (p >= f->end)
            bad_control(f, "it ends within a directive");
        if (n == PARAMETERS)
            bad_control(f, "too many parameters");
        if ((*p >= '0' && *p <= '9') || ((*p == '-' || *p == '+') && p + 1 < f->end && p[1] >= '0' && p[1] <= '9')) {
            bool minus = *p == '-';
            p += *p == '-' || *p == '+';
            for (; p < f->end && *p >= '0' && *p <= '9'; p++)
                d->value[n] = d->value[n] > 100000000 ? d->value[n] : d->value[n] * 10 + *p - '0';
            d->value[n] = minus ? -d->value[n] : d->value[n];
            d->given[n] = NUMBER;
        } else if (*p == '\'' && p + 1 < f->end) {
            d->value[n] = (unsigned char)p[1];
            d->given[n] = CHARACTER;
            p += 2;
        } else if (*p == 'v' || *p == 'V') {
            p++;
            kr_value v = args ? next_argument(f, args) : KRI_NIL;
            if (!kri_is_nil(v)) {
                if (!kri_is_fixnum(v))
                    kri_error(f->w, KRI_E_NO_INTEGER, v, "format: a parameter");
                d->value[n] = kri_fixnum_value(v);
                d->given[n] = NUMBER;
            }
        } else if (*p == '#') {
            p++;
            d->value[n] = args ? (intptr_t)(args->n - args->next) : 0;
            d->given[n] = NUMBER;
        }
        more = p < f->end && *p == ',';
        p += more;
        n++;
    }
    for (; p < f->end && (*p == ':' || *p == '@'); p++) {
        d->colon = d->colon || *p == ':';
        d->at = d->at || *p == '@';
    }
    if (p >= f->end)
        bad_control(f, "it ends within a directive");
    for (int i = 0; i < PARAMETERS; i++)
        if (d->value[i] > WIDEST || d->value[i] < -WIDEST)
            bad_control(f, "a parameter is too large");
    d->c = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
    d->next = p + 1;
}

static intptr_t parameter(const struct directive *d, int i, intptr_t otherwise) { return d->given[i] ? d->value[i] : otherwise; }

/* From P, find the next directive that is CLOSE or ~; at this level of nesting. */
static void find_clause_end(struct format *f, const char *p, char close, struct directive *found)
{
    static const char opens[] = "{[(<", closes[] = "}])>";
    int depth = 0;
    for (; p < f->end; p++) {
        if (*p != '~')
            continue;
        if (p + 1 >= f->end)
            break;
        parse(f, p + 1, found, NULL);
        if (depth == 0 && (found->c == close || found->c == ';'))
            return;
        if (strchr(opens, found->c))
            depth++;
        else if (strchr(closes, found->c))
            depth--;
        p = found->next - 1;
    }
    bad_control(f, "an opening directive is not closed");
}

static void find_close(struct format *f, const char *p, char close, struct directive *found)
{
    do
        find_clause_end(f, p, close, found);
    while (p = found->next, found->c != close);
}

/* ---- padding ---- */

/* Pad the text written since FROM to D's field: mincol, colinc, minpad, padchar. */
static void pad_field(struct format *f, const struct directive *d, size_t from, bool left)
{
    intptr_t mincol = parameter(d, 0, 0), colinc = parameter(d, 1, 1), minpad = parameter(d, 2, 0);
    char c = (char)parameter(d, 3, ' ');
    size_t columns = 0, n = f->out->n - from;
    for (size_t i = from; i < f->out->n; i++)
        columns += ((unsigned char)f->out->p[i] & 0xc0) != 0x80;
    intptr_t padding = minpad > 0 ? minpad : 0;
    if (colinc < 1)
        colinc = 1;
    while ((intptr_t)columns + padding < mincol)
        padding += colinc;
    pad(f, padding, c);
    if (left) {
        memmove(f->out->p + from + padding, f->out->p + from, n);
        memset(f->out->p + from, c, (size_t)padding);
    }
}

static void put_right(struct format *f, const char *s, size_t n, intptr_t width, char c)
{
    pad(f, width - (intptr_t)n, c);
    put_n(f, s, n);
}

static void do_object(struct format *f, const struct directive *d, kr_value v, bool escape)
{
    size_t from = f->out->n;
    if (d->colon && kri_is_nil(v))
        put_n(f, "()", 2);
    else if (!escape && kri_is_string(f->vm, v) && kri_ptr(v)->cls == KRI_CLASS_STRING)
        put_n(f, (char *)kri_string_of(v)->byte, kri_length(v));
    else
        kri_print_text(f->w, f->out, v, escape);
    if (d->given[0] || d->given[2])
        pad_field(f, d, from, d->at);
}

/* ---- integers ---- */

/* Digits of integer V in BASE, with sign, commas and field; FIRST is the index of the field's parameter. */
static void put_integer(struct format *f, const struct directive *d, kr_value v, int base, int first)
{
    char small[72];
    const char *digits;
    size_t n;
    if (kri_is_fixnum(v)) {
        intptr_t i = kri_fixnum_value(v);
        uintptr_t u = i < 0 ? -(uintptr_t)i : (uintptr_t)i;
        char *at = small + sizeof small;
        do
            *--at = "0123456789abcdefghijklmnopqrstuvwxyz"[u % (unsigned)base];
        while (u /= (unsigned)base);
        if (i < 0)
            *--at = '-';
        digits = at;
        n = (size_t)(small + sizeof small - at);
    } else {
        kr_value s = kri_integer_to_string(f->w, v, base);
        digits = (const char *)kri_string_of(s)->byte;
        n = kri_length(s);
    }
    bool minus = n > 0 && *digits == '-';
    digits += minus;
    n -= minus;
    intptr_t width = parameter(d, first, 0);
    intptr_t least = d->given[first + 1] == NUMBER ? d->value[first + 1] : 0;
    char padding = d->given[first + 1] == CHARACTER ? (char)d->value[first + 1] : ' ';
    char comma = (char)parameter(d, first + 2, ',');
    intptr_t interval = parameter(d, first + 3, 3);
    if (interval < 1)
        interval = 3;
    intptr_t zeros = least > (intptr_t)n ? least - (intptr_t)n : 0;
    intptr_t commas = d->colon ? ((intptr_t)n + zeros - 1) / interval : 0;
    bool sign = minus || d->at;
    pad(f, width - (intptr_t)n - zeros - commas - sign, padding);
    if (sign)
        put(f, minus ? '-' : '+');
    intptr_t total = (intptr_t)n + zeros;
    for (intptr_t i = 0; i < total; i++) {
        if (d->colon && i > 0 && (total - i) % interval == 0)
            put(f, comma);
        put(f, i < zeros ? '0' : digits[i - zeros]);
    }
}

static void do_integer(struct format *f, const struct directive *d, kr_value v, int base, int first)
{
    if (kri_is_integer(v)) {
        put_integer(f, d, v, base, first);
        return;
    }
    if (!kri_is_number(v))
        kri_error(f->w, KRI_E_NO_NUMBER, v, "format ~%c", d->c);
    kr_value s = kri_print_to_string(f->w, v, false);
    put_right(f, (char *)kri_string_of(s)->byte, kri_length(s), parameter(d, first, 0), ' ');
}

/* ---- words for numbers ---- */

static const char *const small_cardinals[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
                                              "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
                                              "eighteen", "nineteen"};
static const char *const small_ordinals[] = {"zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth",
                                             "ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth",
                                             "sixteenth", "seventeenth", "eighteenth", "nineteenth"};
static const char *const tens[] = {"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};
static const char *const thousands[] = {"", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion"};

static void put_s(struct format *f, const char *s) { put_n(f, s, strlen(s)); }

/* 1 to 999; ORDINAL: the last word is one. */
static void put_hundreds(struct format *f, unsigned n, bool ordinal)
{
    if (n >= 100) {
        put_s(f, small_cardinals[n / 100]);
        put_s(f, n % 100 == 0 && ordinal ? " hundredth" : " hundred");
        if (n % 100)
            put(f, ' ');
        n %= 100;
    }
    if (n >= 20) {
        const char *ten = tens[n / 10];
        if (n % 10 == 0 && ordinal) {
            put_n(f, ten, strlen(ten) - 1);
            put_s(f, "ieth");
            return;
        }
        put_s(f, ten);
        n %= 10;
        if (n)
            put(f, '-');
    }
    if (n)
        put_s(f, ordinal ? small_ordinals[n] : small_cardinals[n]);
}

static void put_words(struct format *f, intptr_t i, bool ordinal)
{
    uintptr_t u = i < 0 ? -(uintptr_t)i : (uintptr_t)i;
    unsigned group[7];
    int n = 0, last = 0;
    if (i < 0)
        put_s(f, "minus ");
    if (u == 0)
        put_s(f, ordinal ? "zeroth" : "zero");
    for (; u; u /= 1000)
        group[n++] = (unsigned)(u % 1000);
    while (last < n && group[last] == 0)
        last++;
    for (int k = n - 1; k >= last; k--) {
        if (group[k] == 0)
            continue;
        put_hundreds(f, group[k], ordinal && k == last && k == 0);
        put_s(f, thousands[k]);
        if (ordinal && k == last && k > 0)
            put_s(f, "th");
        if (k > last)
            put(f, ' ');
    }
}

static void put_roman(struct format *f, intptr_t n, bool old)
{
    static const struct {
        int value;
        const char *text, *old;
    } steps[] = {{1000, "M", "M"}, {900, "CM", "DCCCC"}, {500, "D", "D"}, {400, "CD", "CCCC"}, {100, "C", "C"}, {90, "XC", "LXXXX"},
                 {50, "L", "L"}, {40, "XL", "XXXX"}, {10, "X", "X"}, {9, "IX", "VIIII"}, {5, "V", "V"}, {4, "IV", "IIII"}, {1, "I", "I"}};
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
        for (; n >= steps[k].value; n -= steps[k].value)
            put_s(f, old ? steps[k].old : steps[k].text);
}

static void do_radix(struct format *f, const struct directive *d, kr_value v)
{
    if (d->given[0]) {
        if (d->value[0] < 2 || d->value[0] > 36)
            bad_control(f, "~r wants a radix from 2 to 36");
        do_integer(f, d, v, (int)d->value[0], 1);
        return;
    }
    if (!kri_is_integer(v))
        kri_error(f->w, KRI_E_NO_INTEGER, v, "format ~r");
    if (!kri_is_fixnum(v))
        put_integer(f, d, v, 10, 0);
    else if (d->at && kri_fixnum_value(v) > 0 && kri_fixnum_value(v) < 4000)
        put_roman(f, kri_fixnum_value(v), d->colon);
    else if (d->at)
        put_integer(f, d, v, 10, 0);
    else
        put_words(f, kri_fixnum_value(v), d->colon);
}

/* ---- floats ---- */

static double number_argument(struct format *f, const struct directive *d, kr_value v)
{
    if (!kri_is_number(v))
        kri_error(f->w, KRI_E_NO_NUMBER, v, "format ~%c", d->c);
    return kri_to_double(f->w, v);
}

/* X printed by C's FORMAT with precision, in D's field (parameters: width, .., overflow at 3, padding at 4). */
static void put_float(struct format *f, const struct directive *d, const char *c_format, int precision, double x)
{
    char small[128], *text = small;
    kr_value cell;
    int n = snprintf(small, sizeof small, c_format, precision, x);
    if (n >= (int)sizeof small) { /* 1e300 with all its digits */
        cell = kri_make_string(f->w, (size_t)n + 1);
        text = (char *)kri_string_of(cell)->byte;
        snprintf(text, (size_t)n + 1, c_format, precision, x);
    }
    bool sign = d->at && *text != '-';
    intptr_t width = parameter(d, 0, 0);
    if (d->given[3] && width > 0 && n + sign > width) {
        pad(f, width, (char)d->value[3]);
        return;
    }
    pad(f, width - n - sign, (char)parameter(d, 4, ' '));
    if (sign)
        put(f, '+');
    put_n(f, text, (size_t)n);
}

static void do_fixed(struct format *f, const struct directive *d, kr_value v)
{
    double x = number_argument(f, d, v);
    if (d->given[2])
        x *= pow(10, (double)d->value[2]);
    if (!d->given[0] && !d->given[1] && !d->given[2]) {
        char text[64];
        bool sign = d->at && !signbit(x);
        if (sign)
            put(f, '+');
        put_n(f, text, kri_print_float(f->vm, x, !kri_is_nil(kri_special(f->w, f->vm->sym.print_float_shortest)), text));
        return;
    }
    intptr_t decimals = parameter(d, 1, 1);
    put_float(f, d, "%.*f", decimals < 0 ? 0 : (int)decimals, x);
}

static void do_exponent(struct format *f, const struct directive *d, kr_value v)
{
    intptr_t decimals = parameter(d, 1, 1);
    struct directive field = *d; /* ~w,d,e,k,overflow,pad: the exponent's width and the scale are C's own */
    field.given[3] = d->given[4];
    field.value[3] = d->value[4];
    field.given[4] = d->given[5];
    field.value[4] = d->value[5];
    put_float(f, &field, "%.*e", decimals < 0 ? 0 : (int)decimals, number_argument(f, d, v));
}

static void do_general(struct format *f, const struct directive *d, kr_value v)
{
    double x = number_argument(f, d, v), size = fabs(x);
    struct directive field = *d;
    field.given[2] = ABSENT;
    if (x == 0 || !isfinite(x) || (size >= 1e-4 && size <= 1e5))
        do_fixed(f, &field, v);
    else
        do_exponent(f, &field, v);
}

static void do_money(struct format *f, const struct directive *d, kr_value v)
{
    double x = number_argument(f, d, v);
    intptr_t decimals = parameter(d, 0, 2), least = parameter(d, 1, 1), width = parameter(d, 2, 0);
    char text[400];
    int n = snprintf(text, sizeof text, "%.*f", decimals < 0 ? 0 : decimals > 60 ? 60 : (int)decimals, fabs(x));
    char *point = memchr(text, '.', (size_t)n);
    intptr_t whole = point ? point - text : n, zeros = least > whole ? least - whole : 0;
    const char *sign = signbit(x) ? "-" : d->at ? "+" : "";
    intptr_t padding = width - n - zeros - (intptr_t)strlen(sign);
    if (d->colon)
        put_s(f, sign);
    pad(f, padding, (char)parameter(d, 3, ' '));
    if (!d->colon)
        put_s(f, sign);
    pad(f, zeros, '0');
    put_n(f, text, (size_t)n);
}

/* ---- characters, columns, case ---- */

static void do_character(struct format *f, const struct directive *d, kr_value v)
{
    static const struct {
        int c;
        const char *name;
    } names[] = {{0, "Null"}, {7, "Bell"}, {8, "Backspace"}, {9, "Tab"}, {10, "Newline"}, {12, "Page"}, {13, "Return"}, {27, "Escape"},
                 {32, "Space"}, {127, "Rubout"}};
    if (kri_is_string(f->vm, v) && kri_length(v) == 1)
        v = kri_fixnum(kri_string_of(v)->byte[0]);
    if (!kri_is_fixnum(v) || kri_fixnum_value(v) < 0 || kri_fixnum_value(v) > 0x10ffff)
        kri_error(f->w, KRI_E_NO_INTEGER, v, "format ~c wants a character");
    uint32_t c = (uint32_t)kri_fixnum_value(v);
    if (d->at)
        put_s(f, "#\\");
    for (size_t i = 0; (d->at || d->colon) && i < sizeof names / sizeof *names; i++)
        if (names[i].c == (int)c) {
            put_s(f, names[i].name);
            return;
        }
    if (c < 256) {
        put(f, (char)c);
    } else if (c < 0x800) {
        put(f, (char)(0xc0 | c >> 6));
        put(f, (char)(0x80 | (c & 63)));
    } else {
        if (c < 0x10000) {
            put(f, (char)(0xe0 | c >> 12));
        } else {
            put(f, (char)(0xf0 | c >> 18));
            put(f, (char)(0x80 | (c >> 12 & 63)));
        }
        put(f, (char)(0x80 | (c >> 6 & 63)));
        put(f, (char)(0x80 | (c & 63)));
    }
}

static void do_tab(struct format *f, const struct directive *d)
{
    if (!d->given[0] && !d->given[1] && !d->at) {
        put(f, '\t');
        return;
    }
    intptr_t at = (intptr_t)column(f), target = parameter(d, 0, 1), step = parameter(d, 1, 1);
    if (d->at) { /* relative: TARGET columns, then up to a multiple of STEP */
        intptr_t to = at + target;
        pad(f, target, ' ');
        pad(f, step > 0 && to % step ? step - to % step : 0, ' ');
    } else if (at < target) {
        pad(f, target - at, ' ');
    } else if (step > 0) {
        pad(f, step - (at - target) % step, ' ');
    }
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 32) : c; }

static void convert_case(const struct directive *d, char *p, size_t n)
{
    bool in_word = false, done = false;
    for (size_t i = 0; i < n; i++) {
        if (d->colon && d->at)
            p[i] = upper(p[i]);
        else if ((d->colon || (d->at && !done)) && is_letter(p[i]) && !in_word)
            p[i] = upper(p[i]), done = true;
        else
            p[i] = lower(p[i]);
        in_word = is_letter(p[i]) || (p[i] >= '0' && p[i] <= '9');
    }
}

/* ---- blocks ---- */

static enum outcome run(struct format *f, const char *p, const char *end, struct arguments *a);

static struct arguments list_arguments(struct format *f, kr_value list)
{
    if (!kri_is_list(list))
        kri_error(f->w, KRI_E_NO_LIST, list, "format: a directive's argument");
    size_t n = kri_list_length(f->w, list), i = 0;
    kr_value v = kri_make_vector(f->w, n);
    for (kr_value l = list; i < n && kri_is_cons(l); l = kri_cdr(l))
        kri_store(f->w, kri_ptr(v), &kri_vector_of(v)->at[i++], kri_car(l));
    return (struct arguments){.at = kri_vector_of(v)->at, .n = n, .keep = v};
}

/* Another control string for a while: ~?, and ~{~} without a body. */
static enum outcome run_control(struct format *f, kr_value control, struct arguments *a)
{
    if (!kri_is_string(f->vm, control))
        kri_error(f->w, KRI_E_FORMAT, control, "a string expected as control of ~? or ~{~}");
    struct format saved = *f;
    f->control = control;
    f->start = (const char *)kri_string_of(control)->byte;
    f->end = f->start + kri_length(control);
    enum outcome o = run(f, f->start, f->end, a);
    f->control = saved.control;
    f->start = saved.start;
    f->end = saved.end;
    return o;
}

/* ~{body~}: over a list; ~:{ over a list of lists; ~@{ over the arguments left; ~:@{ over those, each a list. */
static void do_iteration(struct format *f, const struct directive *d, const struct directive *close, struct arguments *a)
{
    const char *body = d->next, *end = close->from;
    intptr_t most = parameter(d, 0, -1);
    kr_value control = body == end ? next_argument(f, a) : KRI_NIL;
    struct arguments own;
    struct arguments *items = a;
    if (!d->at) {
        own = list_arguments(f, next_argument(f, a));
        items = &own;
    }
    bool at_least_once = close->colon;
    while (most != 0 && (items->next < items->n || at_least_once)) {
        enum outcome o;
        size_t before = items->next;
        at_least_once = false;
        most -= most > 0;
        if (d->colon) {
            struct arguments sub = items->next < items->n ? list_arguments(f, items->at[items->next++]) : (struct arguments){0};
            sub.lists = items->n - items->next;
            o = body == end ? run_control(f, control, &sub) : run(f, body, end, &sub);
            if (o == ESCAPED)
                continue;
        } else {
            o = body == end ? run_control(f, control, items) : run(f, body, end, items);
        }
        if (o != FINISHED)
            break;
        if (items->next == before && items->next < items->n && most < 0)
            bad_control(f, "~{ consumes no arguments and would never end");
        kri_poll(f->w);
    }
}

/* ~[a~;b~:;c~]: by number; ~:[false~;true~]; ~@[text~] if the next argument is true, which stays. */
static enum outcome do_conditional(struct format *f, const struct directive *d, struct arguments *a, const char **next)
{
    struct directive close;
    const char *from = d->next;
    intptr_t wanted;
    if (d->at) {
        find_close(f, from, ']', &close);
        *next = close.next;
        if (a->next < a->n && !kri_is_nil(a->at[a->next]))
            return run(f, from, close.from, a);
        next_argument(f, a);
        return FINISHED;
    }
    if (d->colon) {
        wanted = kri_is_nil(next_argument(f, a)) ? 0 : 1;
    } else if (d->given[0]) {
        wanted = d->value[0];
    } else {
        kr_value v = next_argument(f, a);
        if (!kri_is_integer(v))
            kri_error(f->w, KRI_E_NO_INTEGER, v, "format ~[");
        wanted = kri_is_fixnum(v) ? kri_fixnum_value(v) : -1;
    }
    const char *chosen = NULL, *chosen_end = NULL;
    bool otherwise = false;
    for (intptr_t i = 0;; i++) {
        find_clause_end(f, from, ']', &close);
        if (!chosen && (i == wanted || otherwise)) {
            chosen = from;
            chosen_end = close.from;
        }
        if (close.c == ']')
            break;
        otherwise = close.colon;
        from = close.next;
    }
    *next = close.next;
    return chosen ? run(f, chosen, chosen_end, a) : FINISHED;
}

/* ~mincol<left~;middle~;right~>: segments spread over a field. */
static enum outcome do_justification(struct format *f, const struct directive *d, struct arguments *a, const char **next)
{
    enum { SEGMENTS = 32 };
    size_t ends[SEGMENTS], start = f->out->n;
    int n = 0;
    const char *from = d->next;
    struct directive close;
    enum outcome o = FINISHED;
    do {
        find_clause_end(f, from, '>', &close);
        if (o == FINISHED && n < SEGMENTS) {
            size_t before = f->out->n;
            o = run(f, from, close.from, a);
            if (o == FINISHED)
                ends[n++] = f->out->n;
            else
                f->out->n = before; /* ~^ drops its segment and those behind it */
        }
        from = close.next;
    } while (close.c != '>');
    *next = close.next;
    intptr_t text = (intptr_t)(f->out->n - start), mincol = parameter(d, 0, 0), colinc = parameter(d, 1, 1), minpad = parameter(d, 2, 0);
    char c = (char)parameter(d, 3, ' ');
    bool before = d->colon || (n == 1 && !d->at), after = d->at;
    intptr_t gaps = n - 1 + before + after, total = mincol;
    if (gaps < 1)
        gaps = 1;
    if (colinc < 1)
        colinc = 1;
    while (total < text + gaps * minpad)
        total += colinc;
    intptr_t spare = total - text;
    kr_value copy = kri_string_n(f->w, f->out->p + start, (size_t)text);
    const char *segment = (const char *)kri_string_of(copy)->byte;
    f->out->n = start;
    size_t done = start;
    for (int i = 0; i <= n; i++) {
        if ((i == 0 && before) || (i > 0 && i < n) || (i == n && after)) {
            intptr_t share = spare / gaps;
            pad(f, share, c);
            spare -= share;
            gaps--;
        }
        if (i < n) {
            put_n(f, segment + (done - start), ends[i] - done);
            done = ends[i];
        }
    }
    return FINISHED;
}

/* ~<prefix~;body~;suffix~:>: the body with the elements of a list as its arguments (~@<: those that are left), ~:< between parentheses.
 * Something else than a list is printed. */
static enum outcome do_block(struct format *f, const struct directive *d, struct arguments *a, const char **next)
{
    const char *from[3], *to[3], *p = d->next;
    int n = 0;
    struct directive close;
    do {
        find_clause_end(f, p, '>', &close);
        if (n == 3)
            bad_control(f, "~< ~:> has a prefix, a body and a suffix at most");
        from[n] = p;
        to[n++] = close.from;
        p = close.next;
    } while (close.c != '>');
    *next = close.next;
    struct arguments own, *items = a;
    if (!d->at) {
        kr_value v = next_argument(f, a);
        if (!kri_is_list(v)) {
            do_object(f, &(struct directive){.c = 'w'}, v, true);
            return FINISHED;
        }
        own = list_arguments(f, v);
        items = &own;
    }
    int body = n > 1;
    if (body)
        put_n(f, from[0], (size_t)(to[0] - from[0]));
    else if (d->colon)
        put(f, '(');
    run(f, from[body], to[body], items);
    if (n == 3)
        put_n(f, from[2], (size_t)(to[2] - from[2]));
    else if (d->colon && !body)
        put(f, ')');
    return FINISHED;
}

/* ~/name/: calls NAME with a stream, the argument, whether : and @ were there, and the parameters. */
static void do_call(struct format *f, const struct directive *d, kr_value argument, const char **next)
{
    const char *end = d->next;
    while (end < f->end && *end != '/')
        end++;
    if (end >= f->end)
        bad_control(f, "~/ is not closed");
    kr_value name = kri_read_from_string(f->w, kri_string_n(f->w, d->next, (size_t)(end - d->next)));
    kr_value stream = kri_make_string_output(f->w);
    kr_value argv[4 + PARAMETERS] = {stream, argument, kri_bool(f->w, d->colon), kri_bool(f->w, d->at)};
    int argc = 4;
    for (int i = 0; i < PARAMETERS && d->given[i]; i++)
        argv[argc++] = kri_fixnum(d->value[i]);
    kri_call(f->w, kri_coerce_function(f->w, name), argc, argv);
    kr_value text = kri_get_output_string(f->w, stream);
    put_n(f, (char *)kri_string_of(text)->byte, kri_length(text));
    *next = end + 1;
}

static void do_skip(struct format *f, const struct directive *d, struct arguments *a)
{
    intptr_t n = parameter(d, 0, d->at ? 0 : 1), to = d->at ? n : (intptr_t)a->next + (d->colon ? -n : n);
    if (to < 0 || (size_t)to > a->n)
        kri_error(f->w, KRI_E_ARGC, f->control, "format: ~* leaves the arguments");
    a->next = (size_t)to;
}

static bool escapes(const struct directive *d, const struct arguments *a)
{
    if (d->colon && !d->given[0])
        return a->lists == 0;
    if (d->given[2])
        return d->value[0] <= d->value[1] && d->value[1] <= d->value[2];
    if (d->given[1])
        return d->value[0] == d->value[1];
    return d->given[0] ? d->value[0] == 0 : a->next >= a->n;
}

static void do_plural(struct format *f, const struct directive *d, struct arguments *a)
{
    if (d->colon && a->next == 0)
        bad_control(f, "~:p has no argument to go back to");
    a->next -= d->colon;
    bool one = kri_eq(next_argument(f, a), kri_fixnum(1));
    put_s(f, d->at ? (one ? "y" : "ies") : one ? "" : "s");
}

static enum outcome directive(struct format *f, const struct directive *d, struct arguments *a, const char **next)
{
    struct directive close;
    enum outcome o;
    switch (d->c) {
    case 'a': do_object(f, d, next_argument(f, a), false); break;
    case 's': case 'w': do_object(f, d, next_argument(f, a), true); break;
    case 'd': do_integer(f, d, next_argument(f, a), 10, 0); break;
    case 'b': do_integer(f, d, next_argument(f, a), 2, 0); break;
    case 'o': do_integer(f, d, next_argument(f, a), 8, 0); break;
    case 'x': do_integer(f, d, next_argument(f, a), 16, 0); break;
    case 'r': do_radix(f, d, next_argument(f, a)); break;
    case 'f': do_fixed(f, d, next_argument(f, a)); break;
    case 'e': do_exponent(f, d, next_argument(f, a)); break;
    case 'g': do_general(f, d, next_argument(f, a)); break;
    case '$': do_money(f, d, next_argument(f, a)); break;
    case 'c': do_character(f, d, next_argument(f, a)); break;
    case 'p': do_plural(f, d, a); break;
    case '%': pad(f, parameter(d, 0, 1), '\n'); break;
    case '&':
        if (parameter(d, 0, 1) > 0 && column(f) > 0)
            put(f, '\n');
        pad(f, parameter(d, 0, 1) - 1, '\n');
        break;
    case '|': pad(f, parameter(d, 0, 1), '\f'); break;
    case '~': pad(f, parameter(d, 0, 1), '~'); break;
    case 't': do_tab(f, d); break;
    case '*': do_skip(f, d, a); break;
    case '\n':
        if (d->at)
            put(f, '\n');
        while (!d->colon && *next < f->end && (**next == ' ' || **next == '\t' || **next == '\n'))
            ++*next;
        break;
    case '?':
        if (d->at)
            return run_control(f, next_argument(f, a), a);
        {
            kr_value control = next_argument(f, a);
            struct arguments own = list_arguments(f, next_argument(f, a));
            run_control(f, control, &own);
        }
        break;
    case '{':
        find_close(f, d->next, '}', &close);
        *next = close.next;
        do_iteration(f, d, &close, a);
        break;
    case '[': return do_conditional(f, d, a, next);
    case '<':
        find_close(f, d->next, '>', &close);
        return close.colon ? do_block(f, d, a, next) : do_justification(f, d, a, next);
    case '(': {
        find_close(f, d->next, ')', &close);
        size_t from = f->out->n;
        *next = close.next;
        o = run(f, d->next, close.from, a);
        convert_case(d, f->out->p + from, f->out->n - from);
        return o;
    }
    case '^': return !escapes(d, a) ? FINISHED : d->colon ? ENDED : ESCAPED;
    case '/': do_call(f, d, next_argument(f, a), next); break;
    case '_': case 'i': break; /* pretty printing: no line is broken here */
    case '}': case ']': case ')': case '>': case ';': bad_control(f, "a closing directive without its opening one");
    default: {
        char why[] = "unknown directive ~?";
        why[sizeof why - 2] = d->c;
        bad_control(f, why);
    }
    }
    return FINISHED;
}

static enum outcome run(struct format *f, const char *p, const char *end, struct arguments *a)
{
    if (kri_native_exhausted(f->w))
        longjmp(*f->shallow, 1); /* past frames of this file only, which hold nothing */
    while (p < end) {
        const char *tilde = memchr(p, '~', (size_t)(end - p));
        if (!tilde) {
            put_n(f, p, (size_t)(end - p));
            break;
        }
        put_n(f, p, (size_t)(tilde - p));
        struct directive d;
        parse(f, tilde + 1, &d, a);
        p = d.next;
        enum outcome o = directive(f, &d, a, &p);
        if (o != FINISHED)
            return o;
    }
    return FINISHED;
}

static void run_whole(struct format *f, struct arguments *a)
{
    jmp_buf shallow;
    f->shallow = &shallow;
    if (setjmp(shallow))
        kri_error(f->w, KRI_E_STACK, KRI_NIL, "format: directives nested too deeply");
    run(f, f->start, f->end, a);
}

KR_BUILTIN(format, "format", "(destination control &rest args)",
           "Write ARGS as the string CONTROL says, to a stream, or *standard-output* if DESTINATION is t, and return nil; or "
           "return the text as a string if it is nil. Directives: ~a ~s object; ~d ~b ~o ~x ~nr integer (~n,md: field n, at least "
           "m digits; ~n,'cd: padded with c; : commas, @ sign); ~w,df ~w,de ~w,dg ~$ float; ~c character; ~% newline; ~& fresh "
           "line; ~~ tilde; ~t tab, ~nt column n; ~p plural; ~r in words; ~* skip; ~? indirection; ~{..~} iteration, ~^ leaves "
           "it; ~[..~;..~] choice; ~(..~) case; ~<..~> justification; ~<..~:> a list's elements; ~newline ignored. v stands for an argument as parameter. "
           "Error: invalid format string; too few arguments.")
{
    struct kr_vm *vm = w->vm;
    struct kri_text out;
    struct arguments args = {.at = argv + 2, .n = (size_t)argc - 2};
    struct format f = {.w = w, .vm = vm, .out = &out, .control = argv[1]};
    kr_value stream = KRI_NIL;
    if (!kri_is_string(vm, argv[1]))
        kri_error(w, KRI_E_FORMAT, argv[1], "the control is no string");
    if (!kri_is_nil(argv[0])) {
        stream = kri_output_stream(w, argv[0]);
        f.base_column = kri_stream_column(w, stream);
    }
    f.start = (const char *)kri_string_of(argv[1])->byte;
    f.end = f.start + kri_length(argv[1]);
    kri_text_init(&out);
    run_whole(&f, &args);
    if (kri_is_nil(argv[0]))
        return kri_text_string(w, &out);
    kri_stream_write(w, stream, out.p, out.n);
    return KRI_NIL;
}

const struct kri_builtin *const kri_builtins_format[] = {&format_def, NULL};
