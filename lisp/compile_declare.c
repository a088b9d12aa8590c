/* compile_declare.c -- declarations: special, the types of variables and of `the`, optimize.
 *
 * A declared type becomes an instruction behind every binding and assignment of the variable: TYPE, which checks, or where safety is 0
 * TRUST, which only tells native code. So both tiers check the same, and native code knows a type where it was checked and nowhere else.
 * No check is made where the value is known to be of the type. */
#include "lisp/compile.h"
#include "lisp/ops.h"

/* ---- types ---- */

static bool is_named(kr_value symbol, const char *name)
{
    const struct kri_string *s = kri_string_of(((const struct kri_symbol *)symbol.w)->pname);
    return s->head.length == strlen(name) && memcmp(s->byte, name, s->head.length) == 0;
}

static bool is_among(kr_value symbol, const char *const *names)
{
    for (; *names; names++)
        if (is_named(symbol, *names))
            return true;
    return false;
}

static const struct {
    const char *name;
    unsigned kind;
} type_names[] = {
    {"FIXNUM", KRI_TYPE_FIXNUM}, {"INTEGER", KRI_TYPE_INTEGER}, {"SIGNED-BYTE", KRI_TYPE_INTEGER}, {"FLOAT", KRI_TYPE_FLOAT},
    {"DOUBLE-FLOAT", KRI_TYPE_FLOAT}, {"SINGLE-FLOAT", KRI_TYPE_FLOAT}, {"SHORT-FLOAT", KRI_TYPE_FLOAT}, {"LONG-FLOAT", KRI_TYPE_FLOAT},
    {"NUMBER", KRI_TYPE_NUMBER}, {"REAL", KRI_TYPE_NUMBER}, {"LIST", KRI_TYPE_LIST}, {"CONS", KRI_CLASS_CONS}, {"SYMBOL", KRI_CLASS_SYMBOL},
    {"STRING", KRI_CLASS_STRING}, {"SIMPLE-STRING", KRI_CLASS_STRING}, {"BASE-STRING", KRI_CLASS_STRING},
    {"SIMPLE-BASE-STRING", KRI_CLASS_STRING}, {"VECTOR", KRI_CLASS_VECTOR}, {"SIMPLE-VECTOR", KRI_CLASS_VECTOR},
    {"FLOAT-VECTOR", KRI_CLASS_FLOAT_VECTOR}, {"INTEGER-VECTOR", KRI_CLASS_INTEGER_VECTOR}, {"FUNCTION", KRI_CLASS_COMPILED_CODE},
    {NULL, 0},
};

static kr_value make_type(struct kri_compiler *c, kr_value specifier, kr_value name, kr_value low, kr_value high)
{
    kr_value v = kri_keep(c, kri_make_vector(c->w, KRI_TYPE_WORDS));
    struct kri_vector *t = kri_vector_of(v);
    t->at[KRI_TYPE_SPECIFIER] = specifier;
    t->at[KRI_TYPE_VARIABLE] = name;
    t->at[KRI_TYPE_LOW] = low;
    t->at[KRI_TYPE_HIGH] = high;
    return v;
}

static bool set_type(struct kri_compiler *c, struct kri_declared *d, unsigned kind, kr_value specifier, kr_value name)
{
    d->kind = (uint16_t)kind;
    d->type = make_type(c, specifier, name, KRI_NIL, KRI_NIL);
    return true;
}

/* A bound of a range: an integer, one in a list (exclusive, STEP away), or * and nothing: ALL. False: it is something else. */
static bool range_bound(kr_value list, intptr_t step, intptr_t all, intptr_t *bound)
{
    kr_value v = kri_is_cons(list) ? kri_car(list) : KRI_NIL;
    bool exclusive = kri_is_cons(v);
    if (exclusive)
        v = kri_car(v);
    if (kri_is_nil(v) || (kri_is_symbol(v) && is_named(v, "*"))) {
        *bound = all;
        return true;
    }
    if (!kri_is_fixnum(v))
        return false;
    *bound = kri_fixnum_value(v) + (exclusive ? step : 0);
    return true;
}

/* (integer low high), (fixnum low high), (mod n), (unsigned-byte n), (signed-byte n), where all are fixnums. */
static bool range_type(struct kri_compiler *c, kr_value specifier, kr_value name, struct kri_declared *d)
{
    kr_value head = kri_car(specifier), rest = kri_cdr(specifier), n = kri_is_cons(rest) ? kri_car(rest) : KRI_NIL;
    intptr_t low = 0, high = 0;
    bool fixnum = is_named(head, "FIXNUM"), limited = kri_is_fixnum(n) && kri_fixnum_value(n) > 0;
    if (fixnum || is_named(head, "INTEGER")) {
        if (!range_bound(rest, 1, fixnum ? KRI_FIXNUM_MIN : INTPTR_MIN, &low) ||
            !range_bound(kri_is_cons(rest) ? kri_cdr(rest) : KRI_NIL, -1, fixnum ? KRI_FIXNUM_MAX : INTPTR_MAX, &high))
            return false;
    } else if (is_named(head, "MOD") && limited) {
        high = kri_fixnum_value(n) - 1;
    } else if (is_named(head, "UNSIGNED-BYTE") && limited && kri_fixnum_value(n) <= 62) {
        high = (intptr_t)(((uintptr_t)1 << kri_fixnum_value(n)) - 1);
    } else if (is_named(head, "SIGNED-BYTE") && limited && kri_fixnum_value(n) <= 63) {
        high = (intptr_t)(((uintptr_t)1 << (kri_fixnum_value(n) - 1)) - 1);
        low = -high - 1;
    } else {
        return false;
    }
    if (!kri_fits_fixnum(low) || !kri_fits_fixnum(high))
        return false;
    d->kind = KRI_TYPE_RANGE;
    d->type = make_type(c, specifier, name, kri_fixnum(low), kri_fixnum(high));
    return true;
}

static bool compound_type(struct kri_compiler *c, kr_value specifier, kr_value name, struct kri_declared *d)
{
    static const char *const arrays[] = {"SIMPLE-ARRAY", "ARRAY", "VECTOR", NULL};
    static const char *const known[] = {"OR", "AND", "NOT", "MEMBER", "EQL", "SATISFIES", "CONS", "RATIONAL", "REAL", "NUMBER", "FLOAT", "INTEGER",
                                        "FIXNUM", "MOD", "UNSIGNED-BYTE", "SIGNED-BYTE", NULL};
    kr_value head = kri_car(specifier), rest = kri_cdr(specifier);
    if (!kri_is_symbol(head) || kri_is_nil(head))
        return false;
    if (kri_is_nil(rest) || (is_named(head, "STRING") && kri_is_cons(rest)))
        return kri_declare_type(c, head, name, d);
    if (range_type(c, specifier, name, d))
        return true;
    if (is_among(head, arrays) && kri_is_cons(rest) && kri_is_symbol(kri_car(rest)) && !kri_is_nil(kri_car(rest))) {
        struct kri_declared element;
        kr_value dimensions = kri_is_cons(kri_cdr(rest)) ? kri_car(kri_cdr(rest)) : KRI_NIL;
        bool flat = is_named(head, "VECTOR") || (kri_is_cons(dimensions) && kri_is_nil(kri_cdr(dimensions))) || kri_eq(dimensions, kri_fixnum(1));
        if (flat && kri_declare_type(c, kri_car(rest), name, &element)) {
            if (element.kind == KRI_TYPE_FLOAT)
                return set_type(c, d, KRI_CLASS_FLOAT_VECTOR, kri_slot(&kri_metaclass_of(c->vm->classes[KRI_CLASS_FLOAT_VECTOR].object)->name), name);
            if (element.kind == KRI_TYPE_FIXNUM || element.kind == KRI_TYPE_INTEGER)
                return set_type(c, d, KRI_CLASS_INTEGER_VECTOR, kri_slot(&kri_metaclass_of(c->vm->classes[KRI_CLASS_INTEGER_VECTOR].object)->name), name);
        }
        return false;
    }
    if (!is_among(head, known))
        return false;
    return set_type(c, d, KRI_TYPE_OTHER, specifier, name);
}

bool kri_declare_type(struct kri_compiler *c, kr_value specifier, kr_value name, struct kri_declared *d)
{
    static const char *const known[] = {"NULL", "ATOM", "KEYWORD", "SEQUENCE", "BOOLEAN", "RATIONAL", "BIT-VECTOR", "UNSIGNED-BYTE", NULL};
    d->trusted = kri_safety(c) == 0;
    if (kri_is_cons(specifier)) {
        kri_form_length(c->w, specifier, specifier, KRI_E_DECLARATION_FORM);
        kr_value head = kri_car(specifier);
        if (kri_is_symbol(head) && !kri_is_nil(head) && !kri_is_nil(kri_get(c->w, head, c->vm->sym.k_type_expander)))
            return kri_declare_type(c, kri_keep(c, kri_call(c->w, kri_symbol_function(c->vm, kri_compiler_symbol(c, "EXPAND-TYPE")), 1, &specifier)), name, d);
        return compound_type(c, specifier, name, d);
    }
    if (kri_is_class(c->vm, specifier))
        return set_type(c, d, KRI_TYPE_CLASS, specifier, name);
    if (!kri_is_symbol(specifier) || kri_is_nil(specifier) || kri_eq(specifier, c->vm->sym.t))
        return false;
    for (size_t i = 0; type_names[i].name; i++)
        if (is_named(specifier, type_names[i].name))
            return set_type(c, d, type_names[i].kind, specifier, name);
    if (is_named(specifier, "BIT") || is_named(specifier, "CHARACTER")) {
        d->kind = KRI_TYPE_RANGE;
        d->type = make_type(c, specifier, name, kri_fixnum(0), kri_fixnum(is_named(specifier, "BIT") ? 1 : 0x10ffff));
        return true;
    }
    if (is_among(specifier, known))
        return set_type(c, d, KRI_TYPE_OTHER, specifier, name);
    kr_value cls = kri_slot(&kri_symbol_of(c->vm, specifier)->value);
    if (kri_is_class(c->vm, cls)) {
        set_type(c, d, KRI_TYPE_CLASS, specifier, name);
        kri_vector_of(d->type)->at[KRI_TYPE_LOW] = cls;
        return true;
    }
    if (!kri_is_nil(kri_get(c->w, specifier, c->vm->sym.k_type_expander)))
        return kri_declare_type(c, kri_keep(c, kri_call(c->w, kri_symbol_function(c->vm, kri_compiler_symbol(c, "EXPAND-TYPE")), 1, &specifier)), name, d);
    return false;
}

void kri_declare_variable(struct kri_compiler *c, const struct kri_declarations *d, struct kri_var *v)
{
    for (kr_value l = d->types; kri_is_cons(l); l = kri_cdr(l))
        if (kri_eq(kri_car(kri_car(l)), v->name) && kri_declare_type(c, kri_cdr(kri_car(l)), v->name, &v->declared))
            return;
}

/* ---- declarations ---- */

unsigned kri_safety(struct kri_compiler *c)
{
    for (const struct kri_scope *s = c->scope; s; s = s->up)
        if (s->kind == KRI_SCOPE_SAFETY)
            return (unsigned)kri_fixnum_value(s->value);
    kr_value v = kri_special(c->w, c->vm->sym.safety);
    return kri_is_fixnum(v) && kri_fixnum_value(v) >= 0 ? (unsigned)kri_fixnum_value(v) : 1;
}

kr_value kri_optimize_safety(struct kri_worker *w, kr_value qualities)
{
    kr_value found = KRI_NIL;
    (void)w;
    for (; kri_is_cons(qualities); qualities = kri_cdr(qualities)) {
        kr_value q = kri_car(qualities);
        if (kri_is_symbol(q) && !kri_is_nil(q) && is_named(q, "SAFETY"))
            found = kri_fixnum(3);
        else if (kri_is_cons(q) && kri_is_symbol(kri_car(q)) && !kri_is_nil(kri_car(q)) && is_named(kri_car(q), "SAFETY") && kri_is_cons(kri_cdr(q)) &&
                 kri_is_fixnum(kri_car(kri_cdr(q))) && kri_fixnum_value(kri_car(kri_cdr(q))) >= 0)
            found = kri_car(kri_cdr(q));
    }
    return found;
}

static void check_name(struct kri_compiler *c, kr_value symbol, kr_value form)
{
    if (!kri_is_symbol(symbol))
        kri_error(c->w, KRI_E_NO_SYMBOL, symbol, "a variable's name expected in %V", form);
}

static void note_specials(struct kri_compiler *c, kr_value names, struct kri_declarations *d)
{
    for (; kri_is_cons(names); names = kri_cdr(names)) {
        kr_value name = kri_car(names);
        kri_check_variable(c, name);
        struct kri_symbol *s = kri_symbol_of(c->vm, name);
        if (kri_eq(kri_slot(&s->special), kri_fixnum(0))) {
            /* It needs an index, but elsewhere its bindings stay lexical. */
            kr_value vtype = kri_slot(&s->vtype);
            kri_proclaim_special(c->w, name);
            kri_store(c->w, &s->head, &s->vtype, vtype);
        }
        d->specials = kri_keep(c, kri_cons(c->w, name, d->specials));
    }
}

static void note_types(struct kri_compiler *c, kr_value specifier, kr_value names, kr_value form, struct kri_declarations *d)
{
    for (; kri_is_cons(names); names = kri_cdr(names)) {
        check_name(c, kri_car(names), form);
        d->types = kri_keep(c, kri_cons(c->w, kri_cons(c->w, kri_car(names), specifier), d->types));
    }
}

static void note_declaration(struct kri_compiler *c, kr_value declaration, kr_value form, struct kri_declarations *d)
{
    static const char *const others[] = {"IGNORE", "IGNORABLE", "INLINE", "NOTINLINE", "FTYPE", "DYNAMIC-EXTENT", "VALUES", "DECLARATION", NULL};
    kr_value head = kri_car(declaration), rest = kri_cdr(declaration);
    kri_form_length(c->w, declaration, form, KRI_E_DECLARATION_FORM);
    if (kri_eq(head, c->vm->sym.special)) {
        note_specials(c, rest, d);
    } else if (kri_is_cons(head)) {
        note_types(c, head, rest, form, d);
    } else if (!kri_is_symbol(head) || kri_is_nil(head) || is_among(head, others)) {
        return;
    } else if (is_named(head, "TYPE")) {
        if (kri_is_cons(rest))
            note_types(c, kri_car(rest), kri_cdr(rest), form, d);
    } else if (is_named(head, "OPTIMIZE")) {
        kr_value safety = kri_optimize_safety(c->w, rest);
        if (!kri_is_nil(safety))
            kri_scope_push(c, KRI_SCOPE_SAFETY, KRI_NIL)->value = safety;
    } else {
        struct kri_declared known;
        if (kri_declare_type(c, head, KRI_NIL, &known))
            note_types(c, head, rest, form, d);
    }
}

struct kri_declarations kri_take_declarations(struct kri_compiler *c, kr_value *body, kr_value *doc)
{
    struct kri_declarations found = {KRI_NIL, KRI_NIL};
    for (; kri_is_cons(*body); *body = kri_cdr(*body)) {
        kr_value form = kri_car(*body);
        if (doc && kri_is_nil(*doc) && kri_is_string(c->vm, form)) {
            *doc = kri_keep(c, form);
            if (!kri_is_cons(kri_cdr(*body)))
                break; /* the only form is the value, too */
            continue;
        }
        if (!kri_is_cons(form) || !kri_eq(kri_car(form), c->vm->sym.declare))
            break;
        kri_form_length(c->w, form, form, KRI_E_DECLARATION_FORM);
        for (kr_value d = kri_cdr(form); kri_is_cons(d); d = kri_cdr(d)) {
            if (!kri_is_cons(kri_car(d)))
                kri_error(c->w, KRI_E_DECLARATION_FORM, kri_car(d), "in %V", form);
            note_declaration(c, kri_car(d), form, &found);
        }
    }
    return found;
}

/* ---- what is known of a node's value ---- */

static bool is_integer_kind(unsigned kind) { return kind == KRI_TYPE_FIXNUM || kind == KRI_TYPE_INTEGER || kind == KRI_TYPE_RANGE; }

static unsigned constant_kind(kr_value v)
{
    return kri_is_fixnum(v) ? KRI_TYPE_FIXNUM : kri_is_float(v) ? KRI_TYPE_FLOAT : kri_is_list(v) ? KRI_TYPE_LIST : kri_is_pointer(v) ? kri_ptr(v)->cls : KRI_TYPE_NONE;
}

static unsigned op_kind(const struct kri_node *n, int depth)
{
    unsigned a, b;
    switch (n->index) {
    case KRI_I_ADD:
    case KRI_I_SUB:
    case KRI_I_MUL:
    case KRI_I_DIV:
        a = kri_node_kind(n->kid[0], depth);
        b = kri_node_kind(n->kid[1], depth);
        if (is_integer_kind(a) && is_integer_kind(b))
            return n->index == KRI_I_DIV ? KRI_TYPE_NONE : KRI_TYPE_INTEGER;
        return (a == KRI_TYPE_FLOAT && (b == a || is_integer_kind(b))) || (b == KRI_TYPE_FLOAT && is_integer_kind(a)) ? KRI_TYPE_FLOAT : KRI_TYPE_NONE;
    case KRI_I_AREF:
        a = kri_node_kind(n->kid[0], depth);
        return a == KRI_CLASS_FLOAT_VECTOR ? KRI_TYPE_FLOAT : a == KRI_CLASS_INTEGER_VECTOR || a == KRI_CLASS_STRING ? KRI_TYPE_INTEGER : KRI_TYPE_NONE;
    case KRI_I_LENGTH:
        return KRI_TYPE_FIXNUM;
    case KRI_I_LOGAND:
    case KRI_I_LOGIOR:
    case KRI_I_LOGXOR:
    case KRI_I_ASH:
        return KRI_TYPE_INTEGER;
    case KRI_I_CONS:
        return KRI_CLASS_CONS;
    case KRI_I_LIST:
        return KRI_TYPE_LIST;
    default:
        return KRI_TYPE_NONE;
    }
}

unsigned kri_node_kind(const struct kri_node *n, int depth)
{
    unsigned a, b;
    if (depth-- <= 0)
        return KRI_TYPE_NONE;
    switch ((enum kri_node_op)n->op) {
    case KRI_N_CONST:
        return constant_kind(n->value);
    case KRI_N_VAR:
        return n->u.var->unset ? KRI_TYPE_NONE : n->u.var->declared.kind;
    case KRI_N_THE:
        return n->u.declared->kind;
    case KRI_N_OP:
        return op_kind(n, depth);
    case KRI_N_SETVAR:
        return kri_node_kind(n->kid[0], depth);
    case KRI_N_PROGN:
    case KRI_N_LET:
        return kri_node_kind(n->kid[n->kids - 1], depth);
    case KRI_N_IF:
        a = kri_node_kind(n->kid[1], depth);
        b = kri_node_kind(n->kid[2], depth);
        if (is_integer_kind(a) && is_integer_kind(b))
            return a == KRI_TYPE_FIXNUM && b == KRI_TYPE_FIXNUM ? KRI_TYPE_FIXNUM : KRI_TYPE_INTEGER;
        return a == b ? a : KRI_TYPE_NONE;
    default:
        return KRI_TYPE_NONE;
    }
}

enum { KIND_DEPTH = 12 };

bool kri_node_satisfies(const struct kri_node *n, const struct kri_declared *d)
{
    unsigned known = kri_node_kind(n, KIND_DEPTH);
    switch (d->kind) {
    case KRI_TYPE_INTEGER:
        return is_integer_kind(known);
    case KRI_TYPE_FIXNUM:
        return known == KRI_TYPE_FIXNUM || known == KRI_TYPE_RANGE;
    case KRI_TYPE_NUMBER:
        return is_integer_kind(known) || known == KRI_TYPE_FLOAT || known == KRI_TYPE_NUMBER;
    case KRI_TYPE_LIST:
        return known == KRI_TYPE_LIST || known == KRI_CLASS_CONS;
    case KRI_TYPE_RANGE:
        return n->op == KRI_N_CONST && kri_type_is(NULL, n->value, d->type, KRI_TYPE_RANGE);
    case KRI_TYPE_CLASS:
    case KRI_TYPE_OTHER:
        return false;
    default:
        return known == d->kind;
    }
}
