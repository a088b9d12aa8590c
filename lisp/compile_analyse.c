/* compile_analyse.c -- forms to trees: macros are expanded, names resolved, special forms checked. */
#include "lisp/compile.h"

/* ---- nodes and scopes ---- */

struct kri_node *kri_node_new(struct kri_compiler *c, enum kri_node_op op, size_t kids)
{
    if (kids > 1u << 24)
        kri_error(c->w, KRI_E_LISP_FORM, KRI_NIL, "a form of %ld elements is too long", (long)kids);
    struct kri_node *n = kri_compiler_alloc(c, sizeof *n + kids * sizeof n->kid[0]);
    n->op = (uint8_t)op;
    n->kids = (uint32_t)kids;
    n->line = c->line;
    n->form = c->here;
    n->outer = c->outer;
    return n;
}

/* The kids are in place: gather what they say. */
struct kri_node *kri_node_seal(struct kri_node *n)
{
    for (uint32_t i = 0; i < n->kids; i++)
        if (n->kid[i])
            n->flags |= n->kid[i]->flags;
    return n;
}

struct kri_node *kri_node_const(struct kri_compiler *c, kr_value v)
{
    struct kri_node *n = kri_node_new(c, KRI_N_CONST, 0);
    n->value = kri_keep(c, v);
    return n;
}

static struct kri_node *node1(struct kri_compiler *c, enum kri_node_op op, struct kri_node *a)
{
    struct kri_node *n = kri_node_new(c, op, 1);
    n->kid[0] = a;
    return kri_node_seal(n);
}

static struct kri_node *node2(struct kri_compiler *c, enum kri_node_op op, struct kri_node *a, struct kri_node *b)
{
    struct kri_node *n = kri_node_new(c, op, 2);
    n->kid[0] = a;
    n->kid[1] = b;
    return kri_node_seal(n);
}

static struct kri_node *inline1(struct kri_compiler *c, enum kri_inline i, struct kri_node *a)
{
    struct kri_node *n = node1(c, KRI_N_OP, a);
    n->index = i;
    return n;
}

static struct kri_node *inline2(struct kri_compiler *c, enum kri_inline i, struct kri_node *a, struct kri_node *b)
{
    struct kri_node *n = node2(c, KRI_N_OP, a, b);
    n->index = i;
    return n;
}

struct kri_scope *kri_scope_push(struct kri_compiler *c, enum kri_scope_kind kind, kr_value name)
{
    struct kri_scope *s = kri_compiler_alloc(c, sizeof *s);
    s->up = c->scope;
    s->kind = kind;
    s->name = name;
    c->scope = s;
    return s;
}

/* ---- symbols ---- */

bool kri_symbol_is_constant(struct kr_vm *vm, kr_value symbol)
{
    return kri_eq(kri_slot(&kri_symbol_of(vm, symbol)->vtype), kri_fixnum(0));
}

/* Bound dynamically by every binding. A variable that was only declared special somewhere has an index, but its vtype is 1. */
bool kri_symbol_is_special(struct kr_vm *vm, kr_value symbol)
{
    const struct kri_symbol *s = kri_symbol_of(vm, symbol);
    return !kri_eq(kri_slot(&s->special), kri_fixnum(0)) && !kri_eq(kri_slot(&s->vtype), kri_fixnum(1));
}

static bool is_keyword(struct kr_vm *vm, kr_value symbol)
{
    return kri_eq(kri_symbol_of(vm, symbol)->homepkg, vm->pkg_keyword);
}

static bool memq(kr_value x, kr_value list)
{
    for (; kri_is_cons(list); list = kri_cdr(list))
        if (kri_eq(x, kri_car(list)))
            return true;
    return false;
}

/* ---- variables ---- */

/* V, an outer function's, is used in F: so F and the functions around it, up to the owner, need it, and those that call them if they have no
 * closure to hold it. */
static void note_free(struct kri_compiler *c, struct kri_fn *f, struct kri_var *v)
{
    if (v->owner != f)
        v->captured = true;
    for (; f && f != v->owner; f = f->parent) {
        for (unsigned i = 0; i < f->frees; i++)
            if (f->free[i] == v)
                return;
        if (f->frees == f->free_size)
            f->free = kri_compiler_grow(c, f->free, f->frees, &f->free_size, sizeof *f->free);
        f->free[f->frees++] = v;
        if (f->lifted)
            for (const struct kri_local_call *k = f->local->calls; k; k = k->next)
                note_free(c, k->from, v);
    }
}

static void note_use(struct kri_compiler *c, struct kri_var *v)
{
    if (v->owner != c->fn)
        note_free(c, c->fn, v);
}

/* The scope entry that says what variable SYMBOL is, or NULL: global. */
static struct kri_scope *find_variable(struct kri_compiler *c, kr_value symbol, uint32_t *slot)
{
    for (struct kri_scope *s = c->scope; s; s = s->up)
        switch (s->kind) {
        case KRI_SCOPE_VARIABLE:
        case KRI_SCOPE_SPECIAL:
        case KRI_SCOPE_EXPANSION:
            if (kri_eq(s->name, symbol))
                return s;
            break;
        case KRI_SCOPE_METHOD: {
            if (kri_eq(symbol, c->vm->sym.class)) {
                *slot = UINT32_MAX;
                return s;
            }
            kr_value names = kri_slot(&kri_metaclass_of(s->value)->vars);
            if (kri_has_class(names, KRI_CLASS_VECTOR))
                for (size_t i = kri_length(names); i-- > 0;)
                    if (kri_eq(kri_slot(&kri_vector_of(names)->at[i]), symbol)) {
                        *slot = (uint32_t)i;
                        return s;
                    }
            break;
        }
        default:
            break;
        }
    return NULL;
}

/* Slots that a class written in Lisp adds, and plist and the two of a cons, are read and written directly. The others belong to
 * objects that C code relies on: they go through `slot` and `setslot`, which know them. */
static bool slot_is_direct(struct kr_vm *vm, kr_value cls, uint32_t slot)
{
    unsigned cix = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix));
    if (slot >= vm->classes[cix].slots || vm->classes[cix].element != KRI_ELEMENT_NONE || slot > 60000)
        return false;
    while (cix >= KRI_CLASS_BUILTIN_COUNT)
        cix = vm->classes[cix].super;
    return cix == KRI_CLASS_PROPERTIED_OBJECT || cix == KRI_CLASS_CONS || slot >= vm->classes[cix].slots;
}

static struct kri_node *var_node(struct kri_compiler *c, struct kri_var *v)
{
    struct kri_node *n = kri_node_new(c, KRI_N_VAR, 0);
    note_use(c, v);
    n->u.var = v;
    return n;
}

static struct kri_node *call_node(struct kri_compiler *c, kr_value symbol, size_t kids)
{
    struct kri_node *n = kri_node_new(c, KRI_N_CALL, kids);
    n->value = kri_keep(c, symbol);
    return n;
}

static void note_slot(struct kri_compiler *c, uint32_t slot)
{
    /* The method itself checks its receiver once; closures inside it rely on that. */
    for (struct kri_fn *f = c->fn; f; f = f->parent)
        if (f->receiver) {
            if (f->slots_used < slot + 1)
                f->slots_used = slot + 1;
            return;
        }
}

static struct kri_node *slot_node(struct kri_compiler *c, struct kri_scope *s, kr_value name, uint32_t slot, struct kri_node *value)
{
    note_use(c, s->var);
    if (slot_is_direct(c->vm, s->value, slot)) {
        struct kri_node *n = kri_node_new(c, value ? KRI_N_SETSLOT : KRI_N_SLOT, value ? 1 : 0);
        n->u.var = s->var;
        n->index = slot;
        note_slot(c, slot);
        if (value)
            n->kid[0] = value;
        return kri_node_seal(n);
    }
    if (slot == 0 && !value && c->vm->classes[kri_fixnum_value(kri_slot(&kri_metaclass_of(s->value)->cix))].element != KRI_ELEMENT_NONE) {
        struct kri_node *l = call_node(c, kri_compiler_symbol(c, "LENGTH"), 1); /* a vector's only slot is in its header */
        l->kid[0] = var_node(c, s->var);
        return l;
    }
    struct kri_node *n = call_node(c, kri_compiler_symbol(c, value ? "SETSLOT" : "SLOT"), value ? 4 : 3);
    n->kid[0] = var_node(c, s->var);
    n->kid[1] = kri_node_const(c, s->value);
    n->kid[2] = kri_node_const(c, name);
    if (value)
        n->kid[3] = value;
    return kri_node_seal(n);
}

static struct kri_node *global_node(struct kri_compiler *c, kr_value symbol)
{
    if (kri_is_nil(symbol))
        return kri_node_const(c, symbol);
    if (kri_eq(symbol, c->vm->sym.t) || is_keyword(c->vm, symbol))
        return kri_node_const(c, symbol);
    if (kri_eq(kri_slot(&kri_symbol_of(c->vm, symbol)->value), KRI_UNBOUND)) {
        kr_value expansion = kri_get(c->w, symbol, c->vm->sym.k_symbol_macro);
        if (kri_is_cons(expansion))
            return kri_analyse(c, kri_car(expansion));
    }
    struct kri_node *n = kri_node_new(c, KRI_N_GLOBAL, 0);
    n->value = kri_keep(c, symbol);
    return n;
}

static struct kri_node *analyse_symbol(struct kri_compiler *c, kr_value symbol)
{
    uint32_t slot = 0;
    if (kri_is_nil(symbol))
        return kri_node_const(c, symbol);
    struct kri_scope *s = find_variable(c, symbol, &slot);
    if (!s || s->kind == KRI_SCOPE_SPECIAL)
        return global_node(c, symbol);
    switch (s->kind) {
    case KRI_SCOPE_VARIABLE:
        return var_node(c, s->var);
    case KRI_SCOPE_EXPANSION:
        return kri_analyse(c, s->value);
    default:
        return slot == UINT32_MAX ? kri_node_const(c, s->value) : slot_node(c, s, symbol, slot, NULL);
    }
}

void kri_check_variable(struct kri_compiler *c, kr_value symbol)
{
    if (!kri_is_symbol(symbol))
        kri_error(c->w, KRI_E_NO_SYMBOL, symbol, "a variable's name expected");
    if (kri_is_nil(symbol) || kri_symbol_is_constant(c->vm, symbol) || is_keyword(c->vm, symbol))
        kri_error(c->w, KRI_E_NO_VARIABLE, symbol, "a constant");
}

static struct kri_node *analyse_assignment(struct kri_compiler *c, kr_value symbol, kr_value value)
{
    uint32_t slot = 0;
    if (!kri_is_symbol(symbol))
        kri_error(c->w, KRI_E_NO_SYMBOL, symbol, "a variable's name expected");
    if (kri_is_nil(symbol) || kri_eq(symbol, c->vm->sym.t) || is_keyword(c->vm, symbol))
        kri_error(c->w, KRI_E_CONSTANT, symbol, NULL);
    struct kri_scope *s = find_variable(c, symbol, &slot);
    struct kri_node *n;
    if (!s && kri_eq(kri_slot(&kri_symbol_of(c->vm, symbol)->value), KRI_UNBOUND)) {
        kr_value expansion = kri_get(c->w, symbol, c->vm->sym.k_symbol_macro);
        if (kri_is_cons(expansion))
            return kri_analyse(c, kri_keep(c, kri_list(c->w, 3, c->vm->sym.setf, kri_car(expansion), value)));
    }
    if (!s || s->kind == KRI_SCOPE_SPECIAL) {
        n = node1(c, KRI_N_SETGLOBAL, kri_analyse(c, value));
        n->value = kri_keep(c, symbol);
        return n;
    }
    switch (s->kind) {
    case KRI_SCOPE_VARIABLE:
        note_use(c, s->var);
        s->var->assigned = true;
        n = node1(c, KRI_N_SETVAR, kri_analyse(c, value));
        n->u.var = s->var;
        n->flags |= KRI_NODE_ASSIGNS;
        return n;
    case KRI_SCOPE_EXPANSION:
        return kri_analyse(c, kri_keep(c, kri_list(c->w, 3, c->vm->sym.setf, s->value, value)));
    default:
        if (slot == UINT32_MAX)
            kri_error(c->w, KRI_E_CONSTANT, symbol, "the class of a method");
        return slot_node(c, s, symbol, slot, kri_analyse(c, value));
    }
}

/* What binding NAME makes: a special binding or a new lexical variable (not yet in scope). */
struct kri_binding kri_bind(struct kri_compiler *c, kr_value name, const struct kri_declarations *d)
{
    struct kri_binding b = {NULL, KRI_NIL};
    kri_check_variable(c, name);
    if (kri_symbol_is_special(c->vm, name) || memq(name, d->specials)) {
        b.special = kri_keep(c, name);
        return b;
    }
    b.var = kri_compiler_alloc(c, sizeof *b.var);
    b.var->name = kri_keep(c, name);
    b.var->owner = c->fn;
    kri_declare_variable(c, d, b.var);
    return b;
}

void kri_binding_scope(struct kri_compiler *c, const struct kri_binding *b)
{
    if (b->var)
        kri_scope_push(c, KRI_SCOPE_VARIABLE, b->var->name)->var = b->var;
    else
        kri_scope_push(c, KRI_SCOPE_SPECIAL, b->special);
}

/* ---- bodies ---- */

static void declare_free(struct kri_compiler *c, kr_value specials)
{
    for (; kri_is_cons(specials); specials = kri_cdr(specials))
        kri_scope_push(c, KRI_SCOPE_SPECIAL, kri_car(specials));
}

struct kri_node *kri_analyse_body(struct kri_compiler *c, kr_value forms, kr_value whole)
{
    size_t n = kri_form_length(c->w, forms, whole, KRI_E_LISP_FORM);
    if (n == 0)
        return kri_node_const(c, KRI_NIL);
    if (n == 1)
        return kri_analyse(c, kri_car(forms));
    struct kri_node *p = kri_node_new(c, KRI_N_PROGN, n);
    for (size_t i = 0; i < n; i++, forms = kri_cdr(forms))
        p->kid[i] = kri_analyse(c, kri_car(forms));
    return kri_node_seal(p);
}

/* ---- macros ---- */

kr_value kri_expand(struct kri_compiler *c, kr_value expander, kr_value form)
{
    struct kri_worker *w = c->w;
    enum { FEW = 32 };
    kr_value few[FEW], *argv = few;
    size_t n = kri_form_length(w, kri_cdr(form), form, KRI_E_LISP_FORM);
    if (n > FEW) {
        kr_value v = kri_keep(c, kri_make_vector(w, n));
        argv = kri_vector_of(v)->at;
    }
    size_t i = 0;
    for (kr_value l = kri_cdr(form); i < n && kri_is_cons(l); l = kri_cdr(l))
        argv[i++] = kri_car(l);
    return kri_keep(c, kri_call_macro(w, expander, (int)i, argv));
}

/* ---- calls ---- */

static struct kri_scope *find_function(struct kri_compiler *c, kr_value symbol)
{
    for (struct kri_scope *s = c->scope; s; s = s->up)
        if ((s->kind == KRI_SCOPE_FUNCTION || s->kind == KRI_SCOPE_MACRO) && kri_eq(s->name, symbol))
            return s;
    return NULL;
}

static void analyse_list(struct kri_compiler *c, struct kri_node **to, kr_value forms)
{
    for (; kri_is_cons(forms); forms = kri_cdr(forms))
        *to++ = kri_analyse(c, kri_car(forms));
}

static struct kri_node *analyse_call(struct kri_compiler *c, kr_value symbol, kr_value arguments, size_t n)
{
    struct kri_node *call = call_node(c, symbol, n);
    analyse_list(c, call->kid, arguments);
    return kri_node_seal(call);
}

/* The quoted symbol or keyword that FORM always is, or NIL. */
static kr_value constant_symbol(struct kri_compiler *c, kr_value form)
{
    if (kri_is_symbol(form))
        return kri_is_nil(form) || !is_keyword(c->vm, form) ? KRI_NIL : form;
    if (kri_is_cons(form) && kri_eq(kri_car(form), c->vm->sym.quote) && kri_is_cons(kri_cdr(form))) {
        kr_value s = kri_car(kri_cdr(form));
        if (kri_is_symbol(s))
            return s;
    }
    return KRI_NIL;
}

static struct kri_node *analyse_send(struct kri_compiler *c, kr_value arguments, size_t n)
{
    kr_value rest = kri_cdr(arguments), selector = constant_symbol(c, kri_car(rest));
    struct kri_node *send;
    if (kri_is_nil(selector)) {
        send = kri_node_new(c, KRI_N_SENDV, n);
        analyse_list(c, send->kid, arguments);
        return kri_node_seal(send);
    }
    send = kri_node_new(c, KRI_N_SEND, n - 1);
    send->value = kri_keep(c, selector);
    send->kid[0] = kri_analyse(c, kri_car(arguments));
    analyse_list(c, send->kid + 1, kri_cdr(rest));
    return kri_node_seal(send);
}

/* (send-super :selector ..) inside a method; NULL otherwise. */
static struct kri_node *analyse_send_super(struct kri_compiler *c, kr_value form)
{
    kr_value arguments = kri_cdr(form), selector;
    struct kri_scope *s = c->scope;
    while (s && s->kind != KRI_SCOPE_METHOD)
        s = s->up;
    if (!s || !kri_is_cons(arguments) || kri_is_nil(selector = constant_symbol(c, kri_car(arguments))))
        return NULL;
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM);
    struct kri_node *send = kri_node_new(c, KRI_N_SENDSUPER, n);
    send->value = kri_keep(c, kri_cons(c->w, s->value, selector));
    send->kid[0] = analyse_symbol(c, c->vm->sym.self);
    analyse_list(c, send->kid + 1, kri_cdr(arguments));
    return kri_node_seal(send);
}

/* ((lambda (a b) ..) x y) with required parameters only is a let. NIL_BLOCK: the call stands for a funcall. */
static struct kri_node *analyse_lambda_call(struct kri_compiler *c, kr_value lambda, kr_value arguments, kr_value form, bool nil_block)
{
    struct kri_symbols *sym = &c->vm->sym;
    if (!kri_is_cons(kri_cdr(lambda)))
        kri_error(c->w, KRI_E_LAMBDA_FORM, lambda, "(lambda parameters form..) expected");
    kr_value parameters = kri_car(kri_cdr(lambda)), body = kri_cdr(kri_cdr(lambda));
    bool simple = true;
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM), m = 0;
    kr_value p = parameters;
    for (; kri_is_cons(p) && simple && m <= n; p = kri_cdr(p), m++) {
        kr_value name = kri_car(p);
        simple = kri_is_symbol(name) && !kri_is_nil(name) && !kri_eq(name, sym->amp_optional) && !kri_eq(name, sym->amp_rest) &&
                 !kri_eq(name, sym->amp_body) && !kri_eq(name, sym->amp_key) && !kri_eq(name, sym->amp_aux) &&
                 !kri_eq(name, sym->amp_allow);
    }
    if (simple && kri_is_nil(p) && n == m) {
        kr_value bindings = KRI_NIL, a = arguments, *list = kri_compiler_alloc(c, (n + 1) * sizeof *list);
        p = parameters;
        for (size_t i = 0; i < n; i++, p = kri_cdr(p), a = kri_cdr(a))
            list[i] = kri_keep(c, kri_list(c->w, 2, kri_car(p), kri_car(a)));
        for (size_t i = n; i-- > 0;)
            bindings = kri_keep(c, kri_cons(c->w, list[i], bindings));
        if (nil_block) { /* declarations stay with the variables */
            kr_value declarations = KRI_NIL, rest = body;
            while (kri_is_cons(rest) && kri_is_cons(kri_car(rest)) && kri_eq(kri_car(kri_car(rest)), sym->declare)) {
                declarations = kri_cons(c->w, kri_car(rest), declarations);
                rest = kri_cdr(rest);
            }
            body = kri_list(c->w, 1, kri_cons(c->w, sym->block, kri_cons(c->w, KRI_NIL, rest)));
            for (; kri_is_cons(declarations); declarations = kri_cdr(declarations))
                body = kri_cons(c->w, kri_car(declarations), body);
        }
        return kri_analyse(c, kri_keep(c, kri_cons(c->w, sym->let, kri_cons(c->w, bindings, body))));
    }
    struct kri_lambda l = {.name = KRI_NIL, .lambda_list = parameters, .body = body, .source = lambda,
                           .block = nil_block ? KRI_LAMBDA_NIL_BLOCK : KRI_LAMBDA_NO_BLOCK};
    struct kri_node *call = kri_node_new(c, KRI_N_CALLV, n + 1);
    call->kid[0] = kri_node_new(c, KRI_N_CLOSURE, 0);
    call->kid[0]->u.fn = kri_analyse_lambda(c, &l, lambda);
    analyse_list(c, call->kid + 1, arguments);
    return kri_node_seal(call);
}

static bool is_function_form(struct kri_compiler *c, kr_value form)
{
    return kri_is_cons(form) && kri_eq(kri_car(form), c->vm->sym.function) && kri_is_cons(kri_cdr(form)) &&
           kri_is_nil(kri_cdr(kri_cdr(form)));
}

static bool is_lambda(struct kri_compiler *c, kr_value v) { return kri_is_cons(v) && kri_eq(kri_car(v), c->vm->sym.lambda); }

static bool is_plain_function(struct kri_compiler *c, kr_value symbol)
{
    return kri_is_symbol(symbol) && !kri_is_nil(symbol) &&
           !(kri_code_of(kri_symbol_function(c->vm, symbol))->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL));
}

static struct kri_node *analyse_inline(struct kri_compiler *c, unsigned what, kr_value symbol, kr_value form, size_t n);

static struct kri_node *analyse_funcall(struct kri_compiler *c, kr_value form, size_t n)
{
    kr_value arguments = kri_cdr(form), f = kri_car(arguments), rest = kri_cdr(arguments);
    if (is_function_form(c, f)) {
        kr_value target = kri_car(kri_cdr(f));
        if (is_lambda(c, target))
            return analyse_lambda_call(c, target, rest, form, true);
        if (is_plain_function(c, target) && !find_function(c, target)) {
            unsigned what = kri_code_of(kri_symbol_function(c->vm, target))->spare;
            struct kri_node *i = NULL;
            if (what)
                i = analyse_inline(c, what, target, arguments, n - 1);
            return i ? i : analyse_call(c, target, rest, n - 1);
        }
    } else {
        kr_value target = constant_symbol(c, f);
        if (is_plain_function(c, target))
            return analyse_call(c, target, rest, n - 1);
    }
    struct kri_node *call = kri_node_new(c, KRI_N_CALLV, n);
    analyse_list(c, call->kid, arguments);
    return kri_node_seal(call);
}

/* (eval form) inside functions sees their variables. */
static struct kri_node *analyse_eval(struct kri_compiler *c, kr_value form)
{
    size_t n = 0, room = 0;
    struct kri_scope *method = NULL;
    for (struct kri_scope *s = c->scope; s; s = s->up) {
        if (s->kind == KRI_SCOPE_VARIABLE)
            room++;
        if (s->kind == KRI_SCOPE_METHOD) {
            method = s;
            break;
        }
    }
    if (room == 0 && !method)
        return NULL;
    kr_value names = kri_keep(c, kri_make_vector(c->w, room + 1));
    struct kri_var **vars = kri_compiler_alloc(c, (room + 2) * sizeof *vars);
    if (method) {
        note_use(c, method->var);
        note_slot(c, 0);
        kri_vector_of(names)->at[0] = method->value;
        vars[0] = method->var;
    }
    size_t first = method ? 1 : 0;
    for (struct kri_scope *s = c->scope; s && s != method; s = s->up) {
        bool shadowed = s->kind != KRI_SCOPE_VARIABLE || (method && kri_eq(s->name, c->vm->sym.self) && s->up == method);
        for (size_t i = 0; i < n && !shadowed; i++)
            shadowed = kri_eq(kri_vector_of(names)->at[i + 1], s->name);
        for (struct kri_scope *t = c->scope; t != s && !shadowed; t = t->up)
            shadowed = (t->kind == KRI_SCOPE_SPECIAL || t->kind == KRI_SCOPE_EXPANSION) && kri_eq(t->name, s->name);
        if (shadowed)
            continue;
        note_use(c, s->var);
        s->var->captured = s->var->assigned = s->var->unset = true; /* assigned without a check */
        kri_vector_of(names)->at[n + 1] = s->name;
        vars[first + n++] = s->var;
    }
    if (n < room) { /* a vector's length never shrinks: a fresh one of the right length */
        kr_value exact = kri_keep(c, kri_make_vector(c->w, n + 1));
        for (size_t i = 0; i <= n; i++)
            kri_vector_of(exact)->at[i] = kri_vector_of(names)->at[i];
        names = exact;
    }
    struct kri_node *e = node1(c, KRI_N_EVAL, kri_analyse(c, kri_car(kri_cdr(form))));
    e->value = names;
    e->index = (uint32_t)(first + n);
    e->u.vars = vars;
    e->flags |= KRI_NODE_ASSIGNS;
    return e;
}

/* ---- builtins with instructions ---- */

const struct kri_inline_name kri_inline_names[] = {
    {"+", KRI_I_ADD}, {"-", KRI_I_SUB}, {"*", KRI_I_MUL}, {"/", KRI_I_DIV}, {"MOD", KRI_I_MOD},
    {"1+", KRI_I_INCREMENT}, {"1-", KRI_I_DECREMENT},
    {"<", KRI_I_LT}, {"<=", KRI_I_LE}, {">", KRI_I_GT}, {">=", KRI_I_GE}, {"=", KRI_I_NUMEQ},
    {"EQ", KRI_I_EQ}, {"EQL", KRI_I_EQL}, {"EQUAL", KRI_I_EQL}, {"NOT", KRI_I_NOT}, {"NULL", KRI_I_NOT},
    {"CONSP", KRI_I_CONSP}, {"ATOM", KRI_I_ATOM},
    {"CAR", KRI_I_CAR}, {"FIRST", KRI_I_CAR}, {"CDR", KRI_I_CDR}, {"REST", KRI_I_CDR},
    {"CAAR", KRI_I_CXR}, {"CADR", KRI_I_CXR}, {"CDAR", KRI_I_CXR}, {"CDDR", KRI_I_CXR}, {"CADDR", KRI_I_CXR},
    {"CDDDR", KRI_I_CXR}, {"CAADR", KRI_I_CXR}, {"CDADR", KRI_I_CXR}, {"CADAR", KRI_I_CXR}, {"CADDDR", KRI_I_CXR},
    {"CONS", KRI_I_CONS}, {"LIST", KRI_I_LIST}, {"AREF", KRI_I_AREF}, {"ASET", KRI_I_ASET},
    {"TRUNCATE", KRI_I_TRUNCATE}, {"LOGAND", KRI_I_LOGAND}, {"LOGIOR", KRI_I_LOGIOR}, {"LOGXOR", KRI_I_LOGXOR}, {"ASH", KRI_I_ASH},
    {"LENGTH", KRI_I_LENGTH}, {"RPLACA", KRI_I_RPLACA}, {"RPLACD", KRI_I_RPLACD},
    {"FUNCALL", KRI_I_FUNCALL}, {"APPLY", KRI_I_APPLY}, {"SEND", KRI_I_SEND}, {"EVAL", KRI_I_EVAL},
    {"MAPC", KRI_I_MAPC}, {"MAPCAR", KRI_I_MAPCAR},
    {NULL, KRI_I_NONE},
};

static bool is_fixnum_node(const struct kri_node *n) { return n->op == KRI_N_CONST && kri_is_fixnum(n->value); }

static struct kri_node *fold(struct kri_compiler *c, enum kri_inline what, struct kri_node *a, struct kri_node *b)
{
    intptr_t x = kri_fixnum_value(a->value), y = kri_fixnum_value(b->value), r;
    bool fits;
    switch (what) {
    case KRI_I_ADD:
        fits = !__builtin_add_overflow(x, y, &r);
        break;
    case KRI_I_SUB:
        fits = !__builtin_sub_overflow(x, y, &r);
        break;
    case KRI_I_MUL:
        fits = !__builtin_mul_overflow(x, y, &r);
        break;
    default:
        return NULL;
    }
    return fits && kri_fits_fixnum(r) ? kri_node_const(c, kri_fixnum(r)) : NULL;
}

static struct kri_node *arithmetic(struct kri_compiler *c, enum kri_inline what, kr_value arguments, size_t n)
{
    struct kri_node *sum = kri_analyse(c, kri_car(arguments));
    for (size_t i = 1; i < n; i++) {
        arguments = kri_cdr(arguments);
        struct kri_node *x = kri_analyse(c, kri_car(arguments)), *folded = NULL;
        if (is_fixnum_node(sum) && is_fixnum_node(x))
            folded = fold(c, what, sum, x);
        sum = folded ? folded : inline2(c, what, sum, x);
    }
    return sum;
}

/* eq serves for eql and equal when one side is a symbol or a fixnum. */
static bool eq_suffices(const struct kri_node *n)
{
    return n->op == KRI_N_CONST && (kri_is_symbol(n->value) || kri_is_fixnum(n->value));
}

static struct kri_node *accessor(struct kri_compiler *c, kr_value symbol, struct kri_node *x)
{
    const struct kri_string *name = kri_string_of(kri_symbol_of(c->vm, symbol)->pname);
    for (size_t i = kri_length(kri_value_of(name)) - 1; i-- > 1;)
        x = inline1(c, name->byte[i] == 'A' ? KRI_I_CAR : KRI_I_CDR, x);
    return x;
}

/* Are the parameters of LAMBDA, a (lambda ..) form, one variable? */
static bool takes_one(struct kri_compiler *c, kr_value lambda)
{
    kr_value parameters = kri_is_cons(kri_cdr(lambda)) ? kri_car(kri_cdr(lambda)) : KRI_NIL, name;
    if (!kri_is_cons(parameters) || !kri_is_nil(kri_cdr(parameters)))
        return false;
    name = kri_car(parameters);
    return kri_is_symbol(name) && !kri_is_nil(name) &&
           kri_string_of(kri_symbol_of(c->vm, name)->pname)->byte[0] != '&';
}

/* (mapc #'(lambda (x) ..) list) and mapcar as the loops that their definitions are, the function called in place; NULL if the forms that make
 * a loop mean something else here. */
static struct kri_node *analyse_map(struct kri_compiler *c, bool collects, kr_value function, kr_value list)
{
    static const char *const names[] = {"LET", "WHILE", "CONSP", "FUNCALL", "CAR", "CDR", "SETQ", "CONS", "NREVERSE"};
    enum { LET, WHILE, CONSP, FUNCALL, CAR, CDR, SETQ, CONS, NREVERSE, NAMES };
    struct kri_worker *w = c->w;
    kr_value s[NAMES], g, r, step;
    if (c->stepping || !is_function_form(c, function) || !is_lambda(c, kri_car(kri_cdr(function))) || !takes_one(c, kri_car(kri_cdr(function))))
        return NULL;
    for (int i = 0; i < NAMES; i++) {
        s[i] = kri_compiler_symbol(c, names[i]);
        if (find_function(c, s[i]))
            return NULL;
    }
    g = kri_keep(c, kri_make_symbol(w, kri_string(w, "LIST")));
    r = kri_keep(c, kri_make_symbol(w, kri_string(w, "RESULTS")));
    kr_value call = kri_list(w, 3, s[FUNCALL], function, kri_list(w, 2, s[CAR], g));
    if (collects)
        call = kri_list(w, 3, s[SETQ], r, kri_list(w, 3, s[CONS], call, r));
    step = kri_list(w, 3, s[SETQ], g, kri_list(w, 2, s[CDR], g));
    kr_value loop = kri_list(w, 4, s[WHILE], kri_list(w, 2, s[CONSP], g), call, step);
    kr_value bindings = kri_list(w, 2, kri_list(w, 2, g, list), r);
    kr_value form = kri_list(w, 4, s[LET], bindings, loop, collects ? kri_list(w, 2, s[NREVERSE], r) : KRI_NIL);
    return kri_analyse(c, kri_keep(c, form));
}

/* The node for a call of builtin number WHAT, or NULL if it is an ordinary call after all. N: how many arguments. */
static struct kri_node *analyse_inline(struct kri_compiler *c, unsigned what, kr_value symbol, kr_value form, size_t n)
{
    kr_value arguments = kri_cdr(form), a = kri_car(arguments), rest = kri_cdr(arguments);
    struct kri_node *x, *y;
    switch ((enum kri_inline)what) {
    case KRI_I_ADD:
    case KRI_I_MUL:
        if (n == 0)
            return what == KRI_I_ADD ? kri_node_const(c, kri_fixnum(0)) : NULL;
        return n >= 2 && n <= 8 ? arithmetic(c, (enum kri_inline)what, arguments, n) : NULL;
    case KRI_I_SUB:
        if (n == 1 && kri_is_fixnum(a) && kri_fits_fixnum(-kri_fixnum_value(a)))
            return kri_node_const(c, kri_fixnum(-kri_fixnum_value(a)));
        return n >= 2 && n <= 8 ? arithmetic(c, KRI_I_SUB, arguments, n) : NULL;
    case KRI_I_DIV:
        return n >= 2 && n <= 8 ? arithmetic(c, KRI_I_DIV, arguments, n) : NULL;
    case KRI_I_INCREMENT:
    case KRI_I_DECREMENT:
        if (n != 1)
            return NULL;
        return inline2(c, KRI_I_ADD, kri_analyse(c, a), kri_node_const(c, kri_fixnum(what == KRI_I_INCREMENT ? 1 : -1)));
    case KRI_I_MOD:
    case KRI_I_LT:
    case KRI_I_LE:
    case KRI_I_GT:
    case KRI_I_GE:
    case KRI_I_NUMEQ:
    case KRI_I_EQ:
    case KRI_I_CONS:
    case KRI_I_AREF:
    case KRI_I_TRUNCATE:
    case KRI_I_LOGAND:
    case KRI_I_LOGIOR:
    case KRI_I_LOGXOR:
    case KRI_I_ASH:
    case KRI_I_RPLACA:
    case KRI_I_RPLACD:
        if (n != 2)
            return NULL;
        x = kri_analyse(c, a);
        y = kri_analyse(c, kri_car(rest));
        return inline2(c, (enum kri_inline)what, x, y);
    case KRI_I_EQL:
        if (n != 2)
            return NULL;
        x = kri_analyse(c, a);
        y = kri_analyse(c, kri_car(rest));
        if (eq_suffices(x) || eq_suffices(y))
            return inline2(c, KRI_I_EQ, x, y);
        {
            struct kri_node *call = call_node(c, symbol, 2);
            call->kid[0] = x;
            call->kid[1] = y;
            return kri_node_seal(call);
        }
    case KRI_I_NOT:
    case KRI_I_CONSP:
    case KRI_I_ATOM:
    case KRI_I_CAR:
    case KRI_I_CDR:
    case KRI_I_LENGTH:
        return n == 1 ? inline1(c, (enum kri_inline)what, kri_analyse(c, a)) : NULL;
    case KRI_I_CXR:
        return n == 1 ? accessor(c, symbol, kri_analyse(c, a)) : NULL;
    case KRI_I_LIST: {
        if (n == 0)
            return kri_node_const(c, KRI_NIL);
        if (n > 60)
            return NULL;
        struct kri_node *l = kri_node_new(c, KRI_N_OP, n);
        l->index = KRI_I_LIST;
        analyse_list(c, l->kid, arguments);
        return kri_node_seal(l);
    }
    case KRI_I_ASET: {
        if (n != 3)
            return NULL;
        struct kri_node *s = kri_node_new(c, KRI_N_OP, 3);
        s->index = KRI_I_ASET;
        analyse_list(c, s->kid, arguments);
        return kri_node_seal(s);
    }
    case KRI_I_FUNCALL:
        return n >= 1 ? analyse_funcall(c, form, n) : NULL;
    case KRI_I_APPLY: {
        if (n < 2)
            return NULL;
        struct kri_node *call = kri_node_new(c, KRI_N_APPLY, n);
        analyse_list(c, call->kid, arguments);
        return kri_node_seal(call);
    }
    case KRI_I_SEND:
        return n >= 2 ? analyse_send(c, arguments, n) : NULL;
    case KRI_I_EVAL:
        return n == 1 ? analyse_eval(c, form) : NULL;
    case KRI_I_MAPC:
    case KRI_I_MAPCAR:
        return n == 2 ? analyse_map(c, what == KRI_I_MAPCAR, a, kri_car(rest)) : NULL;
    case KRI_I_NONE:
        break;
    }
    return NULL;
}

/* ---- forms ---- */

static struct kri_node *special_form_still(struct kri_compiler *c, kr_value head, kr_value form, kr_value arguments);

/* A call of HEAD, which names nothing yet. If it is a macro when the form is reached, evaluate the form then. */
static struct kri_node *analyse_undefined(struct kri_compiler *c, kr_value head, kr_value form)
{
    size_t n = kri_form_length(c->w, kri_cdr(form), form, KRI_E_LISP_FORM);
    kr_value quoted = kri_keep(c, kri_list(c->w, 2, c->vm->sym.quote, form));
    kr_value evaluation = kri_keep(c, kri_list(c->w, 2, c->vm->sym.eval, quoted));
    struct kri_node *test = call_node(c, kri_compiler_symbol(c, "MACRO-FUNCTION"), 1), *either = kri_node_new(c, KRI_N_IF, 3);
    test->kid[0] = kri_node_const(c, head);
    either->kid[0] = kri_node_seal(test);
    either->kid[1] = kri_analyse(c, evaluation);
    either->kid[2] = analyse_call(c, head, kri_cdr(form), n);
    return kri_node_seal(either);
}

static struct kri_node *analyse_form(struct kri_compiler *c, kr_value form, bool *again, kr_value *expansion)
{
    kr_value head = kri_car(form), arguments = kri_cdr(form);
    *again = false;
    if (!kri_is_list(arguments)) {
        /* (object . slot) */
        if (!kri_is_symbol(arguments))
            kri_error(c->w, KRI_E_LISP_FORM, form, "a slot's name expected after the dot");
        struct kri_node *n = call_node(c, kri_compiler_symbol(c, "%SLOT-BY-NAME"), 2);
        n->kid[0] = kri_analyse(c, head);
        n->kid[1] = kri_node_const(c, arguments);
        return kri_node_seal(n);
    }
    if (!kri_is_symbol(head) || kri_is_nil(head)) {
        if (is_lambda(c, head))
            return analyse_lambda_call(c, head, arguments, form, false);
        kri_error(c->w, kri_is_nil(head) ? KRI_E_UNDEFINED : kri_is_cons(head) ? KRI_E_LAMBDA_FORM : KRI_E_ILLEGAL_FUNCTION, head,
                  "at the head of the form");
    }
    if (KRI_UNLIKELY(kri_eq(head, c->vm->sym.go) || kri_eq(head, c->vm->sym.block))) {
        struct kri_node *n = special_form_still(c, head, form, arguments);
        if (n)
            return n;
    }
    struct kri_scope *local = find_function(c, head);
    if (KRI_UNLIKELY(c->stepping) && !local && kri_eq(head, c->vm->sym.send)) {
        *again = true;
        *expansion = kri_keep(c, kri_cons(c->w, kri_compiler_symbol(c, "STEP-SEND"), arguments));
        return NULL;
    }
    if (local && local->kind == KRI_SCOPE_MACRO) {
        *again = true;
        *expansion = kri_expand(c, local->value, form);
        return NULL;
    }
    if (local) {
        size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM);
        struct kri_node *call = kri_node_new(c, KRI_N_CALLLOCAL, n);
        struct kri_local_call *k = kri_compiler_alloc(c, sizeof *k);
        call->u.var = local->var;
        *k = (struct kri_local_call){c->fn, n, local->var->calls};
        local->var->calls = k;
        analyse_list(c, call->kid, arguments);
        return kri_node_seal(call);
    }
    if (kri_eq(head, c->vm->sym.send_super)) {
        struct kri_node *n = analyse_send_super(c, form);
        if (n)
            return n;
    }
    kr_value f = kri_symbol_function(c->vm, head);
    const struct kri_code *code = kri_code_of(f);
    if (code->flags & KRI_CODE_SPECIAL && code->spare)
        return kri_special_handlers[code->spare - 1](c, form, arguments);
    if (code->flags & KRI_CODE_MACRO) {
        *again = true;
        if (!kri_eq(kri_symbol_of(c->vm, head)->homepkg, c->vm->pkg_lisp))
            kri_note_macro_use(c, head);
        *expansion = kri_expand(c, f, form);
        return NULL;
    }
    if (code->flags & KRI_CODE_UNDEFINED) {
        kri_note_macro_use(c, head);
        if (kri_last_chance(c->w))
            return analyse_undefined(c, head, form);
    }
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM);
    if (code->spare) {
        struct kri_node *i = analyse_inline(c, code->spare, head, form, n);
        if (i)
            return i;
    }
    return analyse_call(c, head, arguments, n);
}

/* N, what FORM stands for, between the calls that a stepper waits for. The function called is asked for by name, so that it may be
 * stepped as well. */
static struct kri_node *stepped(struct kri_compiler *c, kr_value form, struct kri_node *n)
{
    if (n->op == KRI_N_CONST || n->op == KRI_N_CLOSURE || n->op == KRI_N_FUNCTION)
        return n;
    if (n->op == KRI_N_CALL) {
        struct kri_node *call = kri_node_new(c, KRI_N_CALLV, n->kids + 1), *function = call_node(c, kri_compiler_symbol(c, "STEP-CALL"), 1);
        function->kid[0] = kri_node_const(c, n->value);
        call->kid[0] = kri_node_seal(function);
        memcpy(call->kid + 1, n->kid, n->kids * sizeof *n->kid);
        n = kri_node_seal(call);
    }
    struct kri_node *enter = call_node(c, kri_compiler_symbol(c, "STEP-ENTER"), 1), *leave = call_node(c, kri_compiler_symbol(c, "STEP-EXIT"), 2);
    enter->kid[0] = kri_node_const(c, form);
    leave->kid[0] = kri_node_const(c, form);
    leave->kid[1] = n;
    return node2(c, KRI_N_PROGN, kri_node_seal(enter), kri_node_seal(leave));
}

static struct kri_node *analyse(struct kri_compiler *c, kr_value form);

struct analysis {
    struct kri_compiler *c;
    kr_value form;
    struct kri_node *node;
};

static kr_value attempt_analysis(struct kri_worker *w, void *arg)
{
    struct analysis *a = arg;
    w->ctx->compiler = a->c; /* the attempt began without: errors name the form that is compiled */
    a->node = analyse(a->c, a->form);
    return KRI_NIL;
}

struct kri_node *kri_analyse(struct kri_compiler *c, kr_value form)
{
    if (KRI_LIKELY(!c->tolerant) || !kri_is_cons(form))
        return analyse(c, form);
    struct analysis a = {c, form, NULL};
    struct kri_scope *scope = c->scope;
    struct kri_fn *fn = c->fn;
    unsigned line = c->line;
    kr_value condition, here = c->here, outer = c->outer;
    if (kri_attempt(c->w, attempt_analysis, &a, false, &condition))
        return a.node;
    c->scope = scope;
    c->fn = fn;
    c->line = line;
    c->here = here;
    c->outer = outer;
    struct kri_node *raise = call_node(c, kri_compiler_symbol(c, "%RAISE-LATE"), 1);
    raise->kid[0] = kri_node_const(c, condition);
    return kri_node_seal(raise);
}

static struct kri_node *analyse(struct kri_compiler *c, kr_value form)
{
    if (kri_native_exhausted(c->w))
        kri_error(c->w, KRI_E_STACK, KRI_NIL, "forms nested too deeply");
    unsigned line = c->line;
    kr_value inside = c->here, outer = c->outer, whole = form;
    for (;;) {
        if (!kri_is_cons(form))
            return kri_is_symbol(form) ? analyse_symbol(c, form) : kri_node_const(c, form);
        unsigned here = kri_position_line(c->w, form);
        if (here)
            c->line = here;
        bool again;
        kr_value expansion;
        c->outer = inside;
        c->here = form;
        struct kri_node *n = analyse_form(c, form, &again, &expansion);
        c->here = inside;
        c->outer = outer;
        if (!again) {
            if (KRI_UNLIKELY(c->stepping))
                n = stepped(c, whole, n);
            c->line = line ? line : c->line;
            return n;
        }
        form = expansion;
    }
}

/* ---- special forms ---- */

_Noreturn static void shape_error(struct kri_compiler *c, kr_value form)
{
    kr_value f = kri_symbol_function(c->vm, kri_car(form)), list = kri_code_of(f)->lambda_list;
    kri_error(c->w, KRI_E_ARGC, form, "%V takes %s", kri_car(form), kri_is_string(c->vm, list) ? (const char *)kri_string_of(list)->byte : "other arguments");
}

static size_t arguments_between(struct kri_compiler *c, kr_value form, size_t least, size_t most)
{
    size_t n = kri_form_length(c->w, kri_cdr(form), form, KRI_E_LISP_FORM);
    if (n < least || n > most)
        shape_error(c, form);
    return n;
}

static kr_value second(kr_value list) { return kri_car(kri_cdr(list)); }
static kr_value cddr(kr_value list) { return kri_cdr(kri_cdr(list)); }

static struct kri_node *form_quote(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, 1);
    return kri_node_const(c, kri_car(arguments));
}

static struct kri_node *closure_node(struct kri_compiler *c, const struct kri_lambda *l, kr_value form)
{
    struct kri_node *n = kri_node_new(c, KRI_N_CLOSURE, 0);
    n->u.fn = kri_analyse_lambda(c, l, form);
    return n;
}

static struct kri_node *form_function(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, 1);
    kr_value f = kri_car(arguments);
    if (is_lambda(c, f)) {
        if (!kri_is_cons(kri_cdr(f)))
            kri_error(c->w, KRI_E_LAMBDA_FORM, f, "(lambda parameters form..) expected");
        struct kri_lambda l = {.name = KRI_NIL, .lambda_list = second(f), .body = cddr(f), .source = f, .block = KRI_LAMBDA_NIL_BLOCK};
        return closure_node(c, &l, f);
    }
    if (kri_is_symbol(f) && !kri_is_nil(f)) {
        struct kri_scope *s = find_function(c, f);
        if (s && s->kind == KRI_SCOPE_FUNCTION) {
            s->var->escapes = true;
            return var_node(c, s->var);
        }
        if (s)
            kri_error(c->w, KRI_E_ILLEGAL_FUNCTION, f, "a macro");
        struct kri_node *n = kri_node_new(c, KRI_N_FUNCTION, 0);
        n->value = kri_keep(c, f);
        return n;
    }
    if (kri_is_function(f))
        return kri_node_const(c, f);
    if (kri_is_cons(f) && kri_eq(kri_car(f), c->vm->sym.lambda_closure))
        return kri_node_const(c, kri_coerce_function(c->w, f));
    kri_error(c->w, KRI_E_ILLEGAL_FUNCTION, f, NULL);
}

static struct kri_node *form_progn(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    return kri_analyse_body(c, arguments, form);
}

static struct kri_node *form_if(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    size_t n = arguments_between(c, form, 2, 3);
    struct kri_node *i = kri_node_new(c, KRI_N_IF, 3);
    i->kid[0] = kri_analyse(c, kri_car(arguments));
    i->kid[1] = kri_analyse(c, second(arguments));
    i->kid[2] = n == 3 ? kri_analyse(c, kri_car(cddr(arguments))) : kri_node_const(c, KRI_NIL);
    return kri_node_seal(i);
}

static struct kri_node *form_cond(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM);
    if (n == 0)
        return kri_node_const(c, KRI_NIL);
    struct kri_node *k = kri_node_new(c, KRI_N_COND, 2 * n);
    for (size_t i = 0; i < n; i++, arguments = kri_cdr(arguments)) {
        kr_value clause = kri_car(arguments);
        if (!kri_is_cons(clause))
            kri_error(c->w, KRI_E_LISP_FORM, clause, "a clause (test form..) of cond expected");
        k->kid[2 * i] = kri_analyse(c, kri_car(clause));
        k->kid[2 * i + 1] = kri_is_nil(kri_cdr(clause)) ? NULL : kri_analyse_body(c, kri_cdr(clause), form);
    }
    return kri_node_seal(k);
}

static struct kri_node *junction(struct kri_compiler *c, enum kri_node_op op, kr_value empty, kr_value form, kr_value arguments)
{
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM);
    if (n == 0)
        return kri_node_const(c, empty);
    if (n == 1)
        return kri_analyse(c, kri_car(arguments));
    struct kri_node *j = kri_node_new(c, op, n);
    analyse_list(c, j->kid, arguments);
    return kri_node_seal(j);
}

static struct kri_node *form_and(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    return junction(c, KRI_N_AND, c->vm->sym.t, form, arguments);
}

static struct kri_node *form_or(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    return junction(c, KRI_N_OR, KRI_NIL, form, arguments);
}

static void check_duplicate(struct kri_compiler *c, const kr_value *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (kri_eq(names[i], names[n]))
            kri_error(c->w, KRI_E_MULTIPLE_VARIABLE, names[n], NULL);
}

static struct kri_node *let_form(struct kri_compiler *c, kr_value form, kr_value arguments, bool sequential)
{
    if (!kri_is_cons(arguments))
        shape_error(c, form);
    kr_value bindings = kri_car(arguments), body = kri_cdr(arguments);
    if (!kri_is_list(bindings))
        kri_error(c->w, KRI_E_NO_LIST, bindings, "bindings expected");
    size_t n = kri_form_length(c->w, bindings, form, KRI_E_LISP_FORM);
    struct kri_scope *outside = c->scope;
    struct kri_declarations declared = kri_take_declarations(c, &body, NULL);
    if (n == 0) {
        declare_free(c, declared.specials);
        struct kri_node *b = kri_analyse_body(c, body, form);
        c->scope = outside;
        return b;
    }
    struct kri_node *l = kri_node_new(c, KRI_N_LET, n + 1);
    l->index = sequential;
    l->u.bindings = kri_compiler_alloc(c, n * sizeof *l->u.bindings);
    kr_value *names = kri_compiler_alloc(c, n * sizeof *names);
    for (size_t i = 0; i < n; i++, bindings = kri_cdr(bindings)) {
        kr_value b = kri_car(bindings), init = KRI_NIL;
        bool unset = true;
        names[i] = b;
        if (kri_is_cons(b)) {
            kr_value rest = kri_cdr(b);
            names[i] = kri_car(b);
            unset = kri_is_nil(rest);
            if (kri_is_cons(rest) && kri_is_nil(kri_cdr(rest)))
                init = kri_car(rest);
            else if (!kri_is_nil(rest))
                kri_error(c->w, KRI_E_LISP_FORM, b, "a binding is name or (name form)");
        }
        l->u.bindings[i] = kri_bind(c, names[i], &declared);
        if (l->u.bindings[i].var)
            l->u.bindings[i].var->unset = unset;
        check_duplicate(c, names, i);
        l->kid[i] = kri_analyse(c, init);
        if (sequential)
            kri_binding_scope(c, &l->u.bindings[i]);
    }
    if (!sequential)
        for (size_t i = 0; i < n; i++)
            kri_binding_scope(c, &l->u.bindings[i]);
    for (kr_value s = declared.specials; kri_is_cons(s); s = kri_cdr(s)) {
        bool bound = false;
        for (size_t i = 0; i < n && !bound; i++)
            bound = kri_eq(names[i], kri_car(s));
        if (!bound)
            kri_scope_push(c, KRI_SCOPE_SPECIAL, kri_car(s));
    }
    l->kid[n] = kri_analyse_body(c, body, form);
    c->scope = outside;
    return kri_node_seal(l);
}

static struct kri_node *form_let(struct kri_compiler *c, kr_value form, kr_value arguments) { return let_form(c, form, arguments, false); }
static struct kri_node *form_let_star(struct kri_compiler *c, kr_value form, kr_value arguments) { return let_form(c, form, arguments, true); }

static struct kri_node *form_setq(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM);
    if (n == 0)
        return kri_node_const(c, KRI_NIL);
    if (n % 2)
        shape_error(c, form);
    if (n == 2)
        return analyse_assignment(c, kri_car(arguments), second(arguments));
    struct kri_node *p = kri_node_new(c, KRI_N_PROGN, n / 2);
    for (size_t i = 0; i < n / 2; i++, arguments = cddr(arguments))
        p->kid[i] = analyse_assignment(c, kri_car(arguments), second(arguments));
    return kri_node_seal(p);
}

struct kri_block *kri_block_scope(struct kri_compiler *c, kr_value name)
{
    struct kri_block *b = kri_compiler_alloc(c, sizeof *b);
    b->name = name;
    b->owner = c->fn;
    b->identity.owner = c->fn;
    kri_scope_push(c, KRI_SCOPE_BLOCK, name)->block = b;
    return b;
}

struct kri_node *kri_wrap_block(struct kri_compiler *c, struct kri_block *block, struct kri_node *body)
{
    if (!block->used)
        return body;
    struct kri_node *n = node1(c, KRI_N_BLOCK, body);
    n->u.block = block;
    return n;
}

static struct kri_node *form_while(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    struct kri_scope *outside = c->scope;
    struct kri_block *block = kri_block_scope(c, KRI_NIL);
    struct kri_node *test = kri_analyse(c, kri_car(arguments));
    struct kri_node *loop = node2(c, KRI_N_WHILE, test, kri_analyse_body(c, kri_cdr(arguments), form));
    c->scope = outside;
    return kri_wrap_block(c, block, loop);
}

static struct kri_node *form_block(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    if (!kri_is_symbol(kri_car(arguments)))
        kri_error(c->w, KRI_E_NO_SYMBOL, kri_car(arguments), "a block's name expected");
    struct kri_scope *outside = c->scope;
    struct kri_block *block = kri_block_scope(c, kri_car(arguments));
    struct kri_node *body = kri_analyse_body(c, kri_cdr(arguments), form);
    c->scope = outside;
    return kri_wrap_block(c, block, body);
}

/* A return or go to nowhere is an error of the moment it is tried: other paths of the function may be fine. */
static struct kri_node *no_block(struct kri_compiler *c, kr_value kind, kr_value name)
{
    struct kri_node *n = call_node(c, kri_compiler_symbol(c, "%NO-BLOCK"), 2);
    n->kid[0] = kri_node_const(c, kind);
    n->kid[1] = kri_node_const(c, name);
    return n;
}

static struct kri_node *form_return_from(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    size_t n = arguments_between(c, form, 1, 2);
    kr_value name = kri_car(arguments);
    struct kri_node *value = n == 2 ? kri_analyse(c, second(arguments)) : kri_node_const(c, KRI_NIL);
    bool crosses = false;
    for (struct kri_scope *s = c->scope; s; s = s->up) {
        if (s->kind == KRI_SCOPE_BARRIER)
            crosses = true;
        if (s->kind != KRI_SCOPE_BLOCK || !kri_eq(s->name, name))
            continue;
        struct kri_node *r = node1(c, KRI_N_RETURN, value);
        r->u.block = s->block;
        r->x = crosses;
        s->block->used = true;
        if (crosses) {
            s->block->real = true;
            note_use(c, &s->block->identity);
        }
        return r;
    }
    return node2(c, KRI_N_PROGN, value, no_block(c, c->vm->sym.return_from, name));
}

static bool is_tag(kr_value v) { return !kri_is_cons(v) && (kri_is_symbol(v) || kri_is_fixnum(v)); }

static struct kri_node *form_tagbody(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    size_t n = kri_form_length(c->w, arguments, form, KRI_E_LISP_FORM), tags = 0;
    for (kr_value l = arguments; kri_is_cons(l); l = kri_cdr(l))
        tags += is_tag(kri_car(l));
    struct kri_tagbody *t = kri_compiler_alloc(c, sizeof *t + tags * sizeof t->tag[0]);
    struct kri_scope *outside = c->scope;
    t->owner = t->identity.owner = c->fn;
    t->identity.assigned = true;
    kri_scope_push(c, KRI_SCOPE_TAGBODY, KRI_NIL)->tagbody = t;
    uint32_t statements = 0;
    for (kr_value l = arguments; kri_is_cons(l); l = kri_cdr(l)) {
        if (is_tag(kri_car(l)))
            t->tag[t->count++] = (struct kri_tag){.name = kri_keep(c, kri_car(l)), .before = statements};
        else
            statements++;
    }
    struct kri_node *body = kri_node_new(c, KRI_N_TAGBODY, statements);
    body->u.tagbody = t;
    uint32_t i = 0;
    for (; n > 0; n--, arguments = kri_cdr(arguments))
        if (!is_tag(kri_car(arguments)))
            body->kid[i++] = kri_analyse(c, kri_car(arguments));
    c->scope = outside;
    return kri_node_seal(body);
}

/* The tagbody around the form being analysed whose tag *INDEX is NAME, or NULL; *CROSSES: from there a function or cleanup lies between. */
static struct kri_tagbody *find_tag(struct kri_compiler *c, kr_value name, uint32_t *index, bool *crosses)
{
    *crosses = false;
    for (struct kri_scope *s = c->scope; s; s = s->up) {
        if (s->kind == KRI_SCOPE_BARRIER)
            *crosses = true;
        if (s->kind != KRI_SCOPE_TAGBODY)
            continue;
        for (*index = 0; *index < s->tagbody->count; ++*index)
            if (kri_eq(s->tagbody->tag[*index].name, name))
                return s->tagbody;
    }
    return NULL;
}

static struct kri_node *form_go(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, 1);
    uint32_t i;
    bool crosses;
    struct kri_tagbody *t = find_tag(c, kri_car(arguments), &i, &crosses);
    if (!t)
        return no_block(c, c->vm->sym.go, kri_car(arguments));
    struct kri_node *g = kri_node_new(c, KRI_N_GO, 0);
    g->u.tagbody = t;
    g->index = i;
    g->x = crosses;
    if (crosses) {
        t->real = t->tag[i].remote = true;
        note_use(c, &t->identity);
    }
    return g;
}

/* A program may have a function of its own called go or block, as EusLisp's may, while macros go on expanding to the special forms: go
 * with a tag of a tagbody around it, and a block without a name or with one that no program can write, are theirs. */
static struct kri_node *special_form_still(struct kri_compiler *c, kr_value head, kr_value form, kr_value arguments)
{
    uint32_t i;
    bool crosses;
    kr_value name = kri_is_cons(arguments) ? kri_car(arguments) : KRI_UNBOUND;
    if (kri_eq(head, c->vm->sym.go))
        return kri_is_cons(arguments) && kri_is_nil(kri_cdr(arguments)) && find_tag(c, name, &i, &crosses) ? form_go(c, form, arguments) : NULL;
    bool unnamed = kri_is_nil(name) || (kri_is_symbol(name) && kri_is_nil(kri_slot(&kri_symbol_of(c->vm, name)->homepkg)));
    return kri_eq(head, c->vm->sym.block) && unnamed ? form_block(c, form, arguments) : NULL;
}

static struct kri_node *form_catch(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    struct kri_node *tag = kri_analyse(c, kri_car(arguments));
    return node2(c, KRI_N_CATCH, tag, kri_analyse_body(c, kri_cdr(arguments), form));
}

static struct kri_node *form_throw(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 2, 2);
    struct kri_node *tag = kri_analyse(c, kri_car(arguments));
    return node2(c, KRI_N_THROW, tag, kri_analyse(c, second(arguments)));
}

static struct kri_node *form_unwind_protect(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    struct kri_scope *outside = c->scope;
    kri_scope_push(c, KRI_SCOPE_BARRIER, KRI_NIL);
    struct kri_node *body = kri_analyse(c, kri_car(arguments));
    c->scope = outside;
    return node2(c, KRI_N_PROTECT, body, kri_analyse_body(c, kri_cdr(arguments), form));
}

/* (name parameters form..) of flet, labels, macrolet. */
static void check_local_definition(struct kri_compiler *c, kr_value d)
{
    if (!kri_is_cons(d) || !kri_is_cons(kri_cdr(d)))
        kri_error(c->w, KRI_E_LISP_FORM, d, "(name parameters form..) expected");
    if (!kri_is_symbol(kri_car(d)) || kri_is_nil(kri_car(d)))
        kri_error(c->w, KRI_E_NO_SYMBOL, kri_car(d), "a function's name expected");
}

static kr_value lambda_of(struct kri_compiler *c, kr_value definition)
{
    return kri_keep(c, kri_cons(c->w, c->vm->sym.lambda, kri_cdr(definition)));
}

/* Note [lifting]: a local function that is only ever called, with as many arguments as it takes, needs no closure: the variables of outer
 * functions that it uses, their values or boxes, become its last parameters, and its calls pass them. It is a constant then of who calls it. Constants
 * must not refer to each other in a circle: a function that is called from a function within itself, or that calls itself by way of another one of
 * its labels, keeps its closure. Variables that become free later (of outer local functions that keep their closures, say) are passed on to the
 * callers by note_free. */
enum { LIFTED_PARAMETERS = 24, LIFTED_SIBLINGS = 32 };

/* The function in which, or in a part of which, FROM is, directly inside OWNER. */
static struct kri_fn *directly_inside(struct kri_fn *from, const struct kri_fn *owner)
{
    while (from && from->parent != owner)
        from = from->parent;
    return from;
}

static bool may_be_lifted(const struct kri_var *v)
{
    const struct kri_fn *f = v->function;
    if (v->escapes || f->nopt || f->nkey || f->flags || f->nreq + f->frees > LIFTED_PARAMETERS)
        return false;
    for (const struct kri_local_call *k = v->calls; k; k = k->next)
        if (k->arguments != f->nreq || (k->from != f && k->from != v->owner && directly_inside(k->from, v->owner) == f))
            return false;
    return true;
}

/* Which of the N functions that BINDINGS name are lifted. */
static void lift(struct kri_compiler *c, const struct kri_binding *bindings, size_t n)
{
    uint32_t reaches[LIFTED_SIBLINGS] = {0}; /* bit J of I: I calls J */
    size_t few = n <= LIFTED_SIBLINGS ? n : 0;
    for (size_t j = 0; j < few; j++)
        for (const struct kri_local_call *k = bindings[j].var->calls; k; k = k->next)
            for (size_t i = 0; i < few; i++)
                if (i != j && k->from != bindings[j].var->owner && directly_inside(k->from, bindings[j].var->owner) == bindings[i].var->function)
                    reaches[i] |= 1u << j;
    for (size_t via = 0; via < few; via++)
        for (size_t i = 0; i < few; i++)
            if (reaches[i] >> via & 1)
                reaches[i] |= reaches[via];
    for (size_t i = 0; i < n; i++) {
        struct kri_var *v = bindings[i].var;
        v->function->lifted = i < few && !(reaches[i] >> i & 1) && may_be_lifted(v);
        for (const struct kri_local_call *k = v->calls; k; k = k->next) {
            if (!v->function->lifted && k->from != v->owner)
                note_free(c, k->from, v);
            for (unsigned j = 0; v->function->lifted && j < v->function->frees; j++)
                if (v->function->free[j]->owner != k->from)
                    note_free(c, k->from, v->function->free[j]);
        }
    }
}

static struct kri_node *local_functions(struct kri_compiler *c, kr_value form, kr_value arguments, bool recursive)
{
    if (!kri_is_cons(arguments))
        shape_error(c, form);
    kr_value definitions = kri_car(arguments), body = kri_cdr(arguments);
    size_t n = kri_form_length(c->w, definitions, form, KRI_E_LISP_FORM);
    struct kri_scope *outside = c->scope;
    struct kri_node *l = kri_node_new(c, KRI_N_LABELS, n + 1);
    l->u.bindings = kri_compiler_alloc(c, (n + 1) * sizeof *l->u.bindings);
    kr_value d = definitions;
    for (size_t i = 0; i < n; i++, d = kri_cdr(d)) {
        check_local_definition(c, kri_car(d));
        struct kri_var *v = kri_compiler_alloc(c, sizeof *v);
        v->name = kri_car(kri_car(d));
        v->owner = c->fn;
        v->assigned = recursive; /* closures are made one after the other, each may hold all */
        l->u.bindings[i].var = v;
        if (recursive)
            kri_scope_push(c, KRI_SCOPE_FUNCTION, v->name)->var = v;
    }
    d = definitions;
    for (size_t i = 0; i < n; i++, d = kri_cdr(d)) {
        kr_value definition = kri_car(d), name = kri_car(definition);
        struct kri_lambda f = {.name = name, .lambda_list = second(definition), .body = cddr(definition),
                               .source = lambda_of(c, definition), .block = KRI_LAMBDA_BLOCK, .block_name = name};
        l->kid[i] = closure_node(c, &f, definition);
        l->u.bindings[i].var->function = l->kid[i]->u.fn;
        l->kid[i]->u.fn->local = l->u.bindings[i].var;
    }
    if (!recursive)
        for (size_t i = 0; i < n; i++)
            kri_scope_push(c, KRI_SCOPE_FUNCTION, l->u.bindings[i].var->name)->var = l->u.bindings[i].var;
    declare_free(c, kri_take_declarations(c, &body, NULL).specials);
    l->kid[n] = kri_analyse_body(c, body, form);
    c->scope = outside;
    lift(c, l->u.bindings, n);
    return kri_node_seal(l);
}

static struct kri_node *form_flet(struct kri_compiler *c, kr_value form, kr_value arguments) { return local_functions(c, form, arguments, false); }
static struct kri_node *form_labels(struct kri_compiler *c, kr_value form, kr_value arguments) { return local_functions(c, form, arguments, true); }

static kr_value compile_macro(struct kri_compiler *outer, kr_value name, kr_value definition)
{
    struct kri_compiler c;
    kri_compiler_init(&c, outer->w, definition);
    c.line = outer->line;
    struct kri_lambda l = {.name = name, .lambda_list = second(definition), .body = cddr(definition), .source = lambda_of(&c, definition),
                           .macro = true, .block = KRI_LAMBDA_BLOCK, .block_name = name};
    return kri_compiler_finish(&c, kri_analyse_lambda(&c, &l, definition));
}

static struct kri_node *form_macrolet(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    struct kri_scope *outside = c->scope;
    kr_value definitions = kri_car(arguments), body = kri_cdr(arguments);
    kri_form_length(c->w, definitions, form, KRI_E_LISP_FORM);
    for (; kri_is_cons(definitions); definitions = kri_cdr(definitions)) {
        kr_value d = kri_car(definitions);
        check_local_definition(c, d);
        kr_value expander = kri_keep(c, compile_macro(c, kri_car(d), d));
        kri_scope_push(c, KRI_SCOPE_MACRO, kri_car(d))->value = expander;
    }
    declare_free(c, kri_take_declarations(c, &body, NULL).specials);
    struct kri_node *n = kri_analyse_body(c, body, form);
    c->scope = outside;
    return n;
}

static struct kri_node *form_symbol_macrolet(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    struct kri_scope *outside = c->scope;
    kr_value definitions = kri_car(arguments), body = kri_cdr(arguments);
    kri_form_length(c->w, definitions, form, KRI_E_LISP_FORM);
    for (; kri_is_cons(definitions); definitions = kri_cdr(definitions)) {
        kr_value d = kri_car(definitions);
        if (!kri_is_cons(d) || !kri_is_cons(kri_cdr(d)) || !kri_is_nil(cddr(d)))
            kri_error(c->w, KRI_E_LISP_FORM, d, "(name expansion) expected");
        kri_check_variable(c, kri_car(d));
        kri_scope_push(c, KRI_SCOPE_EXPANSION, kri_car(d))->value = second(d);
    }
    declare_free(c, kri_take_declarations(c, &body, NULL).specials);
    struct kri_node *n = kri_analyse_body(c, body, form);
    c->scope = outside;
    return n;
}

static struct kri_node *form_locally(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    struct kri_scope *outside = c->scope;
    declare_free(c, kri_take_declarations(c, &arguments, NULL).specials);
    struct kri_node *n = kri_analyse_body(c, arguments, form);
    c->scope = outside;
    return n;
}

static struct kri_node *form_the(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 2, 2);
    struct kri_declared d;
    struct kri_node *value = kri_analyse(c, second(arguments));
    if (!kri_declare_type(c, kri_car(arguments), KRI_NIL, &d) || kri_node_satisfies(value, &d))
        return value;
    struct kri_node *n = node1(c, KRI_N_THE, value);
    n->u.declared = kri_compiler_alloc(c, sizeof d);
    *n->u.declared = d;
    return n;
}

static struct kri_node *form_declare(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    (void)arguments;
    kri_error(c->w, KRI_E_DECLARATION, form, NULL);
}

static struct kri_node *form_eval_when(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    if (!kri_situation_holds(c->w, kri_car(arguments)))
        return kri_node_const(c, KRI_NIL);
    return kri_analyse_body(c, kri_cdr(arguments), form);
}

struct closure_attempt {
    struct kri_compiler *c;
    const struct kri_lambda *l;
    kr_value form;
    struct kri_node *node;
};

static kr_value attempt_closure(struct kri_worker *w, void *arg)
{
    struct closure_attempt *a = arg;
    (void)w;
    a->node = closure_node(a->c, a->l, a->form);
    return KRI_NIL;
}

/* The function of a definition inside a form; one that cannot be compiled yet will be, outside of any scope, when it is called. */
static struct kri_node *defined_function(struct kri_compiler *c, const struct kri_lambda *l, kr_value form)
{
    struct closure_attempt a = {c, l, form, NULL};
    struct kri_scope *scope = c->scope;
    struct kri_fn *fn = c->fn;
    unsigned line = c->line;
    kr_value condition, here = c->here, outer = c->outer;
    if (!kri_late_ready(c->w))
        return closure_node(c, l, form);
    if (kri_attempt(c->w, attempt_closure, &a, true, &condition))
        return a.node;
    c->scope = scope;
    c->fn = fn;
    c->line = line;
    c->here = here;
    c->outer = outer;
    if (l->method)
        return kri_node_const(c, kri_late_method(c->w, l->method_class, l->block_name, l->source, condition));
    return kri_node_const(c, kri_late_function(c->w, l->name, l->source, l->macro, condition));
}

static struct kri_node *definition(struct kri_compiler *c, kr_value form, kr_value arguments, bool macro)
{
    arguments_between(c, form, 2, SIZE_MAX);
    kr_value name = kri_car(arguments);
    if (!kri_is_symbol(name) || kri_is_nil(name))
        kri_error(c->w, KRI_E_NO_SYMBOL, name, "a function's name expected");
    struct kri_lambda l = {.name = name, .lambda_list = second(arguments), .body = cddr(arguments), .source = lambda_of(c, arguments),
                           .macro = macro, .block = KRI_LAMBDA_BLOCK, .block_name = name};
    struct kri_node *n = call_node(c, kri_compiler_symbol(c, macro ? "%DEFMACRO" : "%DEFUN"), 2);
    n->kid[0] = kri_node_const(c, name);
    n->kid[1] = defined_function(c, &l, form);
    return kri_node_seal(n);
}

static struct kri_node *form_defun(struct kri_compiler *c, kr_value form, kr_value arguments) { return definition(c, form, arguments, false); }
/* A macro defined inside a form is used by the rest of that form, which is compiled before the definition is made. */
static struct kri_node *form_defmacro(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    struct kri_node *n = definition(c, form, arguments, true);
    kr_value expander = kri_keep(c, compile_macro(c, kri_car(arguments), arguments));
    kri_scope_push(c, KRI_SCOPE_MACRO, kri_car(arguments))->value = expander;
    return n;
}

static struct kri_node *form_defmethod(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    size_t n = arguments_between(c, form, 1, SIZE_MAX) - 1;
    kr_value name = kri_car(arguments), methods = kri_cdr(arguments);
    if (!kri_is_symbol(name) || kri_is_nil(name))
        kri_error(c->w, KRI_E_NO_CLASS, name, "defmethod takes (class (selector parameters form..)..)");
    kr_value cls = kri_slot(&kri_symbol_of(c->vm, name)->value);
    if (kri_eq(cls, KRI_UNBOUND))
        cls = kri_autoload_value(c->w, name, false);
    if (!kri_is_class(c->vm, cls)) {
        if (!c->scope)
            kri_error(c->w, KRI_E_NO_CLASS, name, "defmethod takes (class (selector parameters form..)..)");
        /* The class may be made before this is reached. */
        struct kri_node *e = call_node(c, c->vm->sym.eval, 1);
        e->kid[0] = kri_node_const(c, form);
        return e;
    }
    struct kri_node *p = kri_node_new(c, KRI_N_PROGN, n + 1);
    for (size_t i = 0; i < n; i++, methods = kri_cdr(methods)) {
        kr_value m = kri_car(methods);
        if (!kri_is_cons(m) || !kri_is_cons(kri_cdr(m)))
            kri_error(c->w, KRI_E_LISP_FORM, m, "(selector parameters form..) expected in (defmethod %V ..)", name);
        if (!kri_is_symbol(kri_car(m)))
            kri_error(c->w, KRI_E_NO_SYMBOL, kri_car(m), "a selector expected in (defmethod %V ..)", name);
        kr_value selector = kri_car(m);
        struct kri_lambda l = {.name = kri_keep(c, kri_list(c->w, 2, name, selector)), .lambda_list = second(m), .body = cddr(m),
                               .source = lambda_of(c, m), .method = true, .method_class = cls, .block = KRI_LAMBDA_BLOCK,
                               .block_name = selector};
        struct kri_node *call = call_node(c, kri_compiler_symbol(c, "%DEFMETHOD"), 4);
        call->kid[0] = kri_node_const(c, cls);
        call->kid[1] = kri_node_const(c, selector);
        struct kri_node *method = call->kid[2] = defined_function(c, &l, m);
        call->kid[3] = kri_node_const(c, method->op == KRI_N_CLOSURE ? method->u.fn->documentation
                                                                     : kri_code_of(method->value)->documentation);
        p->kid[i] = kri_node_seal(call);
    }
    p->kid[n] = kri_node_const(c, name);
    return kri_node_seal(p);
}

static struct kri_node *form_prog1(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 1, SIZE_MAX);
    struct kri_node *first = kri_analyse(c, kri_car(arguments));
    if (kri_is_nil(kri_cdr(arguments)))
        return first;
    return node2(c, KRI_N_PROG1, first, kri_analyse_body(c, kri_cdr(arguments), form));
}

static struct kri_node *form_progv(struct kri_compiler *c, kr_value form, kr_value arguments)
{
    arguments_between(c, form, 2, SIZE_MAX);
    struct kri_node *n = call_node(c, kri_compiler_symbol(c, "%PROGV"), 3);
    n->kid[0] = kri_analyse(c, kri_car(arguments));
    n->kid[1] = kri_analyse(c, second(arguments));
    struct kri_lambda l = {.name = KRI_NIL, .lambda_list = KRI_NIL, .body = cddr(arguments), .source = KRI_NIL, .block = KRI_LAMBDA_NO_BLOCK};
    n->kid[2] = closure_node(c, &l, form);
    return kri_node_seal(n);
}

static kr_value called_special(struct kri_worker *w, int argc, kr_value *argv)
{
    (void)argc;
    (void)argv;
    kri_error(w, KRI_E_ILLEGAL_FUNCTION, kri_code_of(w->callee)->name, "a special form");
}

#define SPECIAL_FORMS(FORM) \
    FORM("quote", form_quote, "(object)", "Return OBJECT itself, unevaluated.") \
    FORM("function", form_function, "(name-or-lambda)", \
         "The function that the name denotes here (a local one if there is one), or a closure of the (lambda ..) form.") \
    FORM("progn", form_progn, "(&rest forms)", "Evaluate FORMS in order; the value of the last, nil without any.") \
    FORM("if", form_if, "(test then &optional else)", "THEN's value if TEST is not nil, otherwise ELSE's.") \
    FORM("cond", form_cond, "(&rest clauses)", \
         "Each clause is (test form..): the first whose test is not nil gives its last form's value, or the test's if it has none.") \
    FORM("and", form_and, "(&rest forms)", "Evaluate FORMS until one is nil; the last value. (and) is t.") \
    FORM("or", form_or, "(&rest forms)", "Evaluate FORMS until one is not nil and return that value.") \
    FORM("let", form_let, "(bindings &rest body)", \
         "Bind variables, each as name or (name form), after evaluating all forms; then evaluate BODY. A special variable is bound dynamically.") \
    FORM("let*", form_let_star, "(bindings &rest body)", "Like let, but each form sees the variables bound before it.") \
    FORM("setq", form_setq, "(&rest variables-and-forms)", "Assign each variable the value of the form behind it; the last value.") \
    FORM("while", form_while, "(test &rest body)", \
         "Evaluate BODY again and again while TEST is not nil; nil. It stands in a block named nil, so (return value) leaves it.") \
    FORM("block", form_block, "(name &rest body)", "Evaluate BODY; (return-from NAME value) within it leaves with VALUE.") \
    FORM("return-from", form_return_from, "(name &optional value)", "Leave the innermost enclosing block called NAME with VALUE.") \
    FORM("tagbody", form_tagbody, "(&rest tags-and-statements)", "Evaluate the statements; (go tag) goes on behind TAG, a symbol or integer. nil.") \
    FORM("go", form_go, "(tag)", "Go on behind TAG in an enclosing tagbody.") \
    FORM("catch", form_catch, "(tag &rest body)", "Evaluate BODY; a (throw tag value) to an eq TAG meanwhile leaves with VALUE.") \
    FORM("throw", form_throw, "(tag value)", "Leave the newest catch whose tag is eq to TAG with VALUE. Error if there is none.") \
    FORM("unwind-protect", form_unwind_protect, "(form &rest cleanup)", \
         "Evaluate FORM and return its value; the CLEANUP forms are evaluated afterwards, however FORM is left.") \
    FORM("flet", form_flet, "(definitions &rest body)", "Evaluate BODY with local functions, each (name parameters form..).") \
    FORM("labels", form_labels, "(definitions &rest body)", "Like flet, but the functions may call each other and themselves.") \
    FORM("macrolet", form_macrolet, "(definitions &rest body)", "Evaluate BODY with local macros, each (name parameters form..).") \
    FORM("symbol-macrolet", form_symbol_macrolet, "(definitions &rest body)", \
         "Evaluate BODY; each (name expansion) makes NAME as a variable stand for EXPANSION.") \
    FORM("locally", form_locally, "(&rest body)", "Evaluate BODY, at whose start declarations may stand.") \
    FORM("the", form_the, "(type form)", "FORM's value, which is checked to be of TYPE, as for typep; at safety 0 it is taken for granted.") \
    FORM("declare", form_declare, "(&rest declarations)", \
         "At the start of a body: (special name..) makes bindings dynamic there; (type TYPE name..), or (TYPE name..), says what the variables hold: " \
         "their values are checked when they are bound and assigned, an error if one is of another type, save at (optimize (safety 0)). An error elsewhere.") \
    FORM("eval-when", form_eval_when, "(situations &rest body)", "Evaluate BODY if SITUATIONS contains eval; nil otherwise.") \
    FORM("defun", form_defun, "(name parameters &rest body)", \
         "Define function NAME; BODY is a block of that name and may begin with documentation. Surrounding lexical variables are seen. Returns NAME.") \
    FORM("defmacro", form_defmacro, "(name parameters &rest body)", \
         "Define macro NAME: its forms are replaced by what BODY returns. PARAMETERS may be nested lists and have &whole and &body. Returns NAME.") \
    FORM("defmethod", form_defmethod, "(class-name &rest methods)", \
         "Define methods, each (selector parameters form..), of an existing class. Slots are variables there, as are self and class.") \
    FORM("multiple-value-prog1", form_prog1, "(first &rest forms)", "Evaluate FIRST and FORMS; FIRST's value.") \
    FORM("progv", form_progv, "(symbols values &rest body)", \
         "Evaluate BODY while the special variables that the list SYMBOLS names are bound to VALUES.")

#define FORM(name, handler, arglist, doc) {name, arglist, doc, called_special},
const struct kri_builtin kri_special_forms[] = {SPECIAL_FORMS(FORM){NULL, NULL, NULL, NULL}};
#undef FORM
#define FORM(name, handler, arglist, doc) handler,
kri_special_form *const kri_special_handlers[] = {SPECIAL_FORMS(FORM)};
#undef FORM
