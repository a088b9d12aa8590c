/* suggest.c -- names near a misspelt one: those that the place of the error could have meant, by edit distance.
 *
 * Looked for only when a message is printed. Candidates are the names visible there: symbols of the current package and of those
 * it uses, the variables of the function at fault, the selectors, slots or keywords that the object or function has. */
#include <ctype.h>
#include "lisp/frame.h"
#include "lisp/package.h"
#include "lisp/suggest.h"

enum { MOST_NAMES = 3, MOST_LETTERS = 48, MOST_DISTANCE = 3 };

struct search {
    struct kri_worker *w;
    const unsigned char *name;
    size_t letters;
    unsigned limit;                 /* the greatest distance that counts */
    kr_value found[MOST_NAMES];
    unsigned distance[MOST_NAMES], count;
};

/* Insertions, deletions, replacements and swaps of neighbours between A and B, or LIMIT + 1 if there are more than LIMIT. */
static unsigned edit_distance(const unsigned char *a, size_t n, const unsigned char *b, size_t m, unsigned limit)
{
    unsigned rows[3][MOST_LETTERS + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    if (n > m ? n - m > limit : m - n > limit)
        return limit + 1;
    for (size_t j = 0; j <= m; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned least = row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned d = last[j - 1] + (a[i - 1] != b[j - 1]);
            d = last[j] + 1 < d ? last[j] + 1 : d;
            d = row[j - 1] + 1 < d ? row[j - 1] + 1 : d;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < d)
                d = before[j - 2] + 1;
            row[j] = d;
            least = d < least ? d : least;
        }
        if (least > limit)
            return limit + 1;
        unsigned *free = before;
        before = last;
        last = row;
        row = free;
    }
    return last[m];
}

static void consider(struct search *s, kr_value candidate, kr_value name)
{
    const struct kri_string *t = kri_string_of(name);
    if (t->head.length > MOST_LETTERS)
        return;
    unsigned d = edit_distance(s->name, s->letters, t->byte, t->head.length, s->limit), i = s->count;
    if (d == 0 || d > s->limit || d >= t->head.length)
        return;
    for (unsigned j = 0; j < s->count; j++)
        if (kri_eq(s->found[j], candidate))
            return;
    while (i > 0 && s->distance[i - 1] > d)
        i--;
    if (i == MOST_NAMES)
        return;
    if (s->count < MOST_NAMES)
        s->count++;
    for (unsigned j = s->count; j-- > i + 1;) {
        s->found[j] = s->found[j - 1];
        s->distance[j] = s->distance[j - 1];
    }
    s->found[i] = candidate;
    s->distance[i] = d;
}

static void consider_symbol(struct search *s, kr_value symbol)
{
    if (kri_is_symbol(symbol) && !kri_is_nil(symbol))
        consider(s, symbol, kri_symbol_of(s->w->vm, symbol)->pname);
}

/* A list or vector of symbols. */
static void consider_all(struct search *s, kr_value symbols)
{
    if (kri_has_class(symbols, KRI_CLASS_VECTOR))
        for (size_t i = 0; i < kri_length(symbols); i++)
            consider_symbol(s, kri_vector_of(symbols)->at[i]);
    for (; kri_is_cons(symbols); symbols = kri_cdr(symbols)) {
        kri_poll(s->w);
        consider_symbol(s, kri_car(symbols));
    }
}

static void consider_package(struct search *s, kr_value package, bool external, bool function)
{
    struct kr_vm *vm = s->w->vm;
    kr_value l = kri_package_symbols(s->w, package, external);
    for (; kri_is_cons(l); l = kri_cdr(l)) {
        kr_value symbol = kri_car(l);
        kri_poll(s->w);
        if (kri_is_nil(symbol))
            continue;
        if (function ? kri_fboundp(vm, symbol) : !kri_eq(kri_special(s->w, symbol), KRI_UNBOUND))
            consider_symbol(s, symbol);
    }
}

static void consider_visible(struct search *s, bool function)
{
    kr_value package = kri_special(s->w, s->w->vm->sym.package);
    if (!kri_is_package(package))
        return;
    consider_package(s, package, false, function);
    for (kr_value l = kri_slot(&kri_package_of(package)->use); kri_is_cons(l); l = kri_cdr(l))
        if (kri_is_package(kri_car(l)))
            consider_package(s, kri_car(l), true, function);
}

static void consider_selectors(struct search *s, kr_value object)
{
    struct kr_vm *vm = s->w->vm;
    const struct kri_cell *c = kri_cell(vm, object);
    for (unsigned i = c ? c->cls : 0; i; i = vm->classes[i].super) {
        if (kri_is_nil(vm->classes[i].object))
            continue;
        for (kr_value l = kri_slot(&kri_metaclass_of(vm->classes[i].object)->methods); kri_is_cons(l); l = kri_cdr(l))
            if (kri_is_cons(kri_car(l)))
                consider_symbol(s, kri_car(kri_car(l)));
    }
}

static void consider_slots(struct search *s, kr_value object)
{
    kr_value cls = kri_class_of(s->w->vm, object);
    if (!kri_is_nil(cls))
        consider_all(s, kri_slot(&kri_metaclass_of(cls)->vars));
}

static void consider_packages(struct search *s)
{
    for (kr_value l = kri_slot(&s->w->vm->packages); kri_is_cons(l); l = kri_cdr(l))
        for (kr_value n = kri_slot(&kri_package_of(kri_car(l))->names); kri_is_cons(n); n = kri_cdr(n))
            if (kri_is_string(s->w->vm, kri_car(n)))
                consider(s, kri_car(n), kri_car(n));
}

static void consider_variables(struct search *s, const struct kri_condition *c)
{
    if (kri_is_function(c->place)) {
        const struct kri_code *code = kri_code_of(c->place);
        consider_all(s, kri_variable_names(s->w, code));
        if (code->flags & KRI_CODE_METHOD && kri_is_cons(code->name)) {
            kr_value cls = kri_special(s->w, kri_car(code->name));
            if (kri_is_class(s->w->vm, cls))
                consider_all(s, kri_slot(&kri_metaclass_of(cls)->vars));
        }
    }
    consider_visible(s, false);
}

/* The keywords of a builtin, whose parameters are a text: the words behind &key. */
static void consider_words(struct search *s, kr_value parameters)
{
    const char *p = strstr((const char *)kri_string_of(parameters)->byte, "&key");
    while (p && *(p += strcspn(p, " (")) && *p) {
        p += strspn(p, " (");
        size_t n = strcspn(p, " ()");
        char name[MOST_LETTERS + 1];
        for (size_t i = 0; i < n && i < MOST_LETTERS; i++)
            name[i] = (char)toupper((unsigned char)p[i]);
        name[n < MOST_LETTERS ? n : MOST_LETTERS] = 0;
        if (isalpha((unsigned char)p[0]))
            consider_symbol(s, kri_keyword(s->w, name));
        p += n;
    }
}

kr_value kri_near_names(struct kri_worker *w, kr_value condition)
{
    struct kr_vm *vm = w->vm;
    const struct kri_condition *c = (const struct kri_condition *)condition.w;
    kr_value datum = c->datum, name;
    if (kri_is_string(vm, datum))
        name = datum;
    else if (kri_is_symbol(datum) && !kri_is_nil(datum))
        name = kri_symbol_of(vm, datum)->pname;
    else
        return KRI_NIL;
    size_t n = kri_length(name);
    if (!kri_is_fixnum(c->code) || n < 2 || n > MOST_LETTERS)
        return KRI_NIL;
    struct search s = {.w = w, .name = kri_string_of(name)->byte, .letters = n, .limit = n < 4 ? 1 : n < 9 ? 2 : MOST_DISTANCE};
    kr_value about = kri_get(w, condition, kri_keyword(w, "ABOUT"));
    switch (kri_fixnum_value(c->code)) {
    case KRI_E_UNBOUND:
        consider_variables(&s, c);
        break;
    case KRI_E_UNDEFINED:
        consider_visible(&s, true);
        break;
    case KRI_E_NO_METHOD:
        consider_selectors(&s, about);
        break;
    case KRI_E_NO_SLOT:
        consider_slots(&s, about);
        break;
    case KRI_E_NO_KEYWORD:
        if (kri_is_function(about) && kri_is_string(vm, kri_code_of(about)->lambda_list))
            consider_words(&s, kri_code_of(about)->lambda_list);
        else if (kri_is_function(about))
            consider_all(&s, kri_code_of(about)->keywords);
        break;
    case KRI_E_NO_PACKAGE:
        consider_packages(&s);
        break;
    }
    return kri_list_from(w, s.found, s.count);
}
