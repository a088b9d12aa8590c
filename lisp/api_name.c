/* api_name.c -- what C programs call Lisp's symbols: "foo" in package USER, "pkg:foo", ":foo"; letters are upcased save between bars.
 *
 * Each context remembers the symbols of the names it was asked for last, so that kr_call costs no search. Whatever may give a
 * name another meaning bumps vm->names_epoch after it has done so; a context of another epoch forgets all. */
#include <stdlib.h>
#include "lisp/api.h"

/* ---- names ---- */

struct name {
    kr_value text;   /* upcased, without bars */
    size_t n;        /* bytes in it */
    size_t package;  /* bytes of the prefix at its beginning */
    unsigned colons; /* behind the prefix */
};

static struct name parse_name(struct kri_worker *w, const char *s)
{
    struct name r = {.text = kri_make_string(w, strlen(s))};
    char *to = (char *)kri_string_of(r.text)->byte;
    bool bars = false;
    for (; *s; s++) {
        if (*s == '\\' && s[1]) {
            to[r.n++] = *++s;
        } else if (*s == '|') {
            bars = !bars;
        } else if (*s == ':' && !bars && r.colons == 0) {
            r.package = r.n;
            r.colons = s[1] == ':' ? 2 : 1;
            s += r.colons - 1;
        } else {
            to[r.n++] = (char)(*s >= 'a' && *s <= 'z' && !bars ? *s - 'a' + 'A' : *s);
        }
    }
    return r;
}

kr_value kri_symbol_named(struct kri_worker *w, const char *name, bool make)
{
    struct name r = parse_name(w, name);
    const char *text = (const char *)kri_string_of(r.text)->byte;
    kr_value package = w->vm->pkg_user;
    if (r.n == r.package)
        kri_error(w, KRI_E_NO_SYMBOL, kri_string(w, name), "a name");
    if (r.colons && r.package == 0) {
        package = w->vm->pkg_keyword;
    } else if (r.colons) {
        kr_value prefix = kri_string_n(w, text, r.package);
        package = kri_find_package(w, prefix);
        if (kri_is_nil(package))
            kri_error(w, KRI_E_NO_PACKAGE, prefix, NULL);
    }
    text += r.package;
    r.n -= r.package;
    if (r.colons == 1 && r.package > 0 && !make) {
        bool external, found;
        kr_value symbol = kri_find_symbol(w, text, r.n, package, &external, &found);
        if (!found || !external)
            kri_error(w, KRI_E_NO_EXTERNAL, kri_string(w, name), NULL);
        return symbol;
    }
    kr_value symbol = kri_intern(w, text, r.n, package);
    if (r.colons == 1)
        kri_export(w, symbol, package);
    return symbol;
}

/* ---- remembering ---- */

enum { NAMES = 64, NAME_BYTES = 55 }; /* a power of two; a line of the cache for each */

struct kri_name {
    kr_value symbol;
    uint8_t n; /* 0: empty */
    char text[NAME_BYTES];
};

static size_t hash_text(const char *s, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u, word = 0;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
    }
    word = 0;
    memcpy(&word, s, n);
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 58);
}

static struct kri_name *names_of(struct kr_context *ctx, size_t epoch)
{
    if (!ctx->names)
        ctx->names = calloc(NAMES, sizeof *ctx->names); /* without memory it goes without */
    else if (ctx->names_epoch != epoch)
        memset(ctx->names, 0, NAMES * sizeof *ctx->names);
    ctx->names_epoch = epoch;
    return ctx->names;
}

kr_value kri_symbol_remembered(struct kri_worker *w, const char *name)
{
    struct kr_context *ctx = w->ctx;
    /* Acquire: pairs with the read-modify-write of who bumps it: what the name means is looked up after the change. */
    size_t epoch = kri_load_acquire(&w->vm->names_epoch), n = strlen(name);
    if (n == 0 || n > NAME_BYTES)
        return kri_symbol_named(w, name, false);
    struct kri_name *names = KRI_LIKELY(ctx->names && ctx->names_epoch == epoch) ? ctx->names : names_of(ctx, epoch);
    struct kri_name *e = names ? &names[hash_text(name, n)] : NULL;
    if (KRI_LIKELY(e && e->n == n && memcmp(e->text, name, n) == 0))
        return e->symbol;
    kr_value symbol = kri_symbol_named(w, name, false);
    if (e) {
        e->symbol = symbol; /* kept alive by its package: leaving that bumps the epoch */
        e->n = (uint8_t)n;
        memcpy(e->text, name, n);
    }
    return symbol;
}

kr_value kri_selector_named(struct kri_worker *w, const char *name)
{
    char keyword[NAME_BYTES + 1];
    size_t n = strlen(name);
    if (name[0] == ':')
        return kri_symbol_remembered(w, name);
    if (n + 1 <= NAME_BYTES) {
        keyword[0] = ':';
        memcpy(keyword + 1, name, n + 1);
        return kri_symbol_remembered(w, keyword);
    }
    struct name r = parse_name(w, name);
    return kri_intern(w, (const char *)kri_string_of(r.text)->byte, r.n, w->vm->pkg_keyword);
}

kr_value kri_class_named(struct kri_worker *w, const char *name)
{
    kr_value symbol = kri_symbol_remembered(w, name), cls = kri_special(w, symbol);
    if (kri_eq(cls, KRI_UNBOUND))
        cls = kri_autoload_value(w, symbol, false);
    if (!kri_is_class(w->vm, cls))
        kri_error(w, KRI_E_NO_CLASS, symbol, "%s", name);
    return cls;
}
