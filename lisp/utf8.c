/* utf8.c -- characters of UTF-8 in strings, which are bytes: what lib/utf8.l builds on. */
#include "lisp/sequence.h"

/* The character at P (N > 0 bytes there) and how many bytes it takes; 0 bytes: there is none. Overlong forms, surrogates and
 * what lies beyond Unicode are none. */
static unsigned decode(const unsigned char *p, size_t n, uint32_t *code)
{
    static const struct { unsigned char mask, lead; uint32_t least; } forms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (unsigned more = 0; more < 4; more++) {
        if ((p[0] & forms[more].mask) != forms[more].lead)
            continue;
        if (more >= n)
            return 0;
        uint32_t c = p[0] & (uint32_t)~forms[more].mask;
        for (unsigned i = 1; i <= more; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (p[i] & 0x3f);
        }
        *code = c;
        return c < forms[more].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : more + 1;
    }
    return 0;
}

static size_t bound_arg(struct kri_worker *w, const kr_value *argv, int i, size_t n)
{
    intptr_t at = kri_arg_natural(w, argv, i);
    if ((size_t)at > n)
        kri_error(w, KRI_E_ARRAY_INDEX, argv[i], "a string of %zu bytes", n);
    return (size_t)at;
}

KR_BUILTIN(utf8_decode, "lisp::%utf8-decode", "(string index)",
           "The character that begins at byte INDEX of STRING, times 8, plus how many bytes it takes; nil at the end; -1 if there is no UTF-8.\n"
           "Errors: no string, an index out of range.")
{
    const struct kri_string *s = kri_arg_string(w, argv, 0);
    size_t n = s->head.length, at = bound_arg(w, argv, 1, n);
    uint32_t code;
    if (at == n)
        return KRI_NIL;
    unsigned taken = decode(kri_vector_bytes(w->vm, argv[0]) + at, n - at, &code);
    return taken ? kri_fixnum((intptr_t)code << 3 | taken) : kri_fixnum(-1);
}

/* Go over at most LIMIT characters from byte AT on; each byte that begins none counts as one, and *BAD is the first of them. */
static size_t skip(struct kri_worker *w, kr_value string, size_t at, size_t limit, size_t *count, size_t *bad)
{
    size_t n = kri_length(string), ticks = 0;
    *bad = SIZE_MAX;
    for (*count = 0; at < n && *count < limit; (*count)++) {
        uint32_t code;
        unsigned taken = decode(kri_vector_bytes(w->vm, string) + at, n - at, &code);
        if (!taken && *bad == SIZE_MAX)
            *bad = at;
        at += taken ? taken : 1;
        kri_tick(w, &ticks);
    }
    return at;
}

KR_BUILTIN(utf8_length, "lisp::%utf8-length", "(string start end)",
           "How many characters of UTF-8 the bytes START up to END of STRING are; each byte that begins none counts as one. Errors: no string, an\n"
           "index out of range.")
{
    const struct kri_string *s = kri_arg_string(w, argv, 0);
    size_t at = bound_arg(w, argv, 1, s->head.length), end = bound_arg(w, argv, 2, s->head.length), count = 0, bad;
    while (at < end) {
        size_t n;
        at = skip(w, argv[0], at, 1, &n, &bad);
        count++;
    }
    return kri_fixnum((intptr_t)count);
}

KR_BUILTIN(utf8_skip, "lisp::%utf8-skip", "(string index count)",
           "The byte index COUNT characters of UTF-8 after byte INDEX of STRING; nil if it has fewer. Each byte that begins none counts as one.\n"
           "Errors: no string, an index out of range.")
{
    const struct kri_string *s = kri_arg_string(w, argv, 0);
    size_t limit = (size_t)kri_arg_natural(w, argv, 2), count, bad;
    size_t at = skip(w, argv[0], bound_arg(w, argv, 1, s->head.length), limit, &count, &bad);
    return count == limit ? kri_fixnum((intptr_t)at) : KRI_NIL;
}

KR_BUILTIN(utf8_invalid, "lisp::%utf8-invalid", "(string)", "The index of the first byte of STRING that begins no character of UTF-8, or nil. Error: no string.")
{
    size_t count, bad;
    kri_arg_string(w, argv, 0);
    skip(w, argv[0], 0, SIZE_MAX, &count, &bad);
    return bad == SIZE_MAX ? KRI_NIL : kri_fixnum((intptr_t)bad);
}

const struct kri_builtin *const kri_builtins_utf8[] = {&utf8_decode_def, &utf8_length_def, &utf8_skip_def, &utf8_invalid_def, NULL};
