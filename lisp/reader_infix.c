/* reader_infix.c -- %(a + b * c): infix expressions to forms. */
#include "lisp/reader_private.h"

enum infix_kind { IN_END, IN_BRACKET, IN_OBJECT, IN_OPEN, IN_OPEN_BRACKET };
struct infix {
    struct reader *r;
    enum infix_kind kind; /* of the token at hand */
    kr_value object;
};

_Noreturn static void infix_error(struct infix *p)
{
    kri_reader_error(p->r, KRI_E_LISP_FORM, p->kind == IN_OBJECT ? p->object : KRI_NIL, "illegal expression in %( )");
}

static void infix_next(struct infix *p)
{
    struct reader *r = p->r;
    for (;;) {
        int c = kri_reader_skip_space(r);
        if (c < 0)
            kri_reader_end_error(r, "end of input in %(", 0);
        p->kind = c == '(' ? IN_OPEN : c == '[' ? IN_OPEN_BRACKET : c == ')' ? IN_END : c == ']' ? IN_BRACKET : IN_OBJECT;
        if (p->kind != IN_OBJECT)
            return;
        if (r->syntax[c] == TERMINATING) {
            p->object = kri_reader_item(r, c);
            if (kri_eq(p->object, NO_ITEM))
                continue;
            if (kri_eq(p->object, CLOSE) || kri_eq(p->object, DOT))
                infix_error(p);
            return;
        }
        struct token t;
        kri_reader_unget(r, c);
        kri_reader_scan_token(r, &t, true);
        if (r->text.n == 0 && !t.escaped)
            kri_reader_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(c), "in %(");
        p->object = kri_reader_token_object(r, &t);
        if (kri_eq(p->object, DOT))
            infix_error(p);
        return;
    }
}

static bool infix_is(struct infix *p, const char *operator)
{
    if (p->kind != IN_OBJECT || !kri_is_symbol(p->object) || kri_is_nil(p->object))
        return false;
    struct kri_string *s = kri_string_of(kri_symbol_of(p->r->vm, p->object)->pname);
    return s->head.length == strlen(operator) && memcmp(s->byte, operator, s->head.length) == 0;
}

static kr_value lisp_symbol(struct infix *p, const char *name)
{
    return kri_intern(p->r->w, name, strlen(name), p->r->vm->pkg_lisp);
}

static kr_value infix_expression(struct infix *p);

/* Expressions up to the closing KIND, taken too. */
static kr_value infix_arguments(struct infix *p, enum infix_kind kind)
{
    struct kri_worker *w = p->r->w;
    kr_value reversed = KRI_NIL, list = KRI_NIL;
    infix_next(p);
    while (p->kind != kind)
        reversed = kri_cons(w, infix_expression(p), reversed);
    infix_next(p);
    for (; kri_is_cons(reversed); reversed = kri_cdr(reversed))
        list = kri_cons(w, kri_car(reversed), list);
    return list;
}

static kr_value infix_primary(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x;
    kri_reader_check_depth(p->r);
    if (infix_is(p, "-")) {
        kr_value minus = p->object;
        infix_next(p);
        return kri_list(w, 2, minus, infix_primary(p));
    }
    if (p->kind == IN_OPEN) {
        infix_next(p);
        x = infix_expression(p);
        if (p->kind != IN_END)
            infix_error(p);
        infix_next(p);
    } else if (p->kind == IN_OBJECT) {
        x = p->object;
        infix_next(p);
        if (p->kind == IN_OPEN)
            x = kri_cons(w, x, infix_arguments(p, IN_END));
    } else {
        infix_error(p);
    }
    while (p->kind == IN_OPEN_BRACKET)
        x = kri_cons(w, p->r->vm->sym.aref, kri_cons(w, x, infix_arguments(p, IN_BRACKET)));
    return x;
}

static kr_value infix_power(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_primary(p);
    if (!infix_is(p, "**"))
        return x;
    infix_next(p);
    kr_value e = infix_power(p);
    intptr_t n = kri_is_fixnum(e) ? kri_fixnum_value(e) : 0;
    if (n < 1 || n > 5)
        return kri_list(w, 3, lisp_symbol(p, "EXPT"), x, e);
    kr_value product = KRI_NIL;
    while (n-- > 0)
        product = kri_cons(w, x, product);
    return kri_cons(w, lisp_symbol(p, "*"), product);
}

static kr_value infix_product(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_power(p), last = KRI_NIL, op = KRI_NIL;
    while (infix_is(p, "*") || infix_is(p, "/")) {
        bool same = kri_eq(p->object, op);
        op = p->object;
        infix_next(p);
        kr_value pair = kri_cons(w, infix_power(p), KRI_NIL);
        if (same)
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
        else
            x = kri_cons(w, op, kri_cons(w, x, pair));
        last = pair;
    }
    return x;
}

static kr_value infix_sum(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_product(p), last = KRI_NIL;
    while (infix_is(p, "+") || infix_is(p, "-")) {
        bool minus = infix_is(p, "-");
        infix_next(p);
        kr_value term = infix_product(p);
        kr_value pair = kri_cons(w, minus ? kri_list(w, 2, lisp_symbol(p, "-"), term) : term, KRI_NIL);
        if (kri_is_nil(last))
            x = kri_cons(w, lisp_symbol(p, "+"), kri_cons(w, x, pair));
        else
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
        last = pair;
    }
    return x;
}

static kr_value infix_expression(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_sum(p);
    while (infix_is(p, "<") || infix_is(p, ">") || infix_is(p, "<=") || infix_is(p, ">=")) {
        kr_value op = p->object;
        infix_next(p);
        x = kri_list(w, 3, op, x, infix_sum(p));
    }
    if (!infix_is(p, "="))
        return x;
    infix_next(p);
    kr_value set = kri_is_symbol(x) ? p->r->vm->sym.setq : lisp_symbol(p, "SETF");
    return kri_list(w, 3, set, x, infix_expression(p));
}

kr_value kri_read_infix(struct reader *r)
{
    struct infix p = {.r = r};
    infix_next(&p);
    kr_value x = infix_expression(&p);
    if (p.kind != IN_END)
        infix_error(&p);
    return x;
}
