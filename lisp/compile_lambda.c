/* compile_lambda.c -- lambda lists, functions, methods, and the nested parameter lists of macros. */
#include "lisp/compile.h"
#include "lisp/sequence.h"

/* ---- macros' nested lists ----
 * A macro's parameter list becomes an ordinary one. A nested list P is replaced by a fresh symbol g and the body by
 * (apply #'(lambda P body) g), so that nested lists are checked like calls. */

static kr_value fresh(struct kri_compiler *c, const char *name)
{
    return kri_keep(c, kri_make_symbol(c->w, kri_string(c->w, name)));
}

static bool is_rest(struct kri_compiler *c, kr_value v)
{
    return kri_eq(v, c->vm->sym.amp_rest) || kri_eq(v, c->vm->sym.amp_body);
}

/* Is there anything in the list that an ordinary lambda list has not? */
static bool is_nested(struct kri_compiler *c, kr_value list)
{
    struct kri_symbols *sym = &c->vm->sym;
    enum kri_parameter_kind kind = KRI_P_REQUIRED;
    kri_list_length(c->w, list); /* for its error: a circular list is none of parameters */
    for (; kri_is_cons(list); list = kri_cdr(list)) {
        kr_value p = kri_car(list);
        if (kri_eq(p, sym->amp_whole))
            return true;
        if (kri_eq(p, sym->amp_optional))
            kind = KRI_P_OPTIONAL;
        else if (is_rest(c, p))
            kind = KRI_P_REST;
        else if (kri_eq(p, sym->amp_key))
            kind = KRI_P_KEY;
        else if (kri_eq(p, sym->amp_aux))
            kind = KRI_P_AUX;
        else if (!kri_is_cons(p))
            continue;
        else if (kind == KRI_P_REQUIRED || kind == KRI_P_REST)
            return true;
        else if (kind == KRI_P_OPTIONAL && kri_is_cons(kri_car(p)))
            return true;
        else if (kind == KRI_P_KEY && kri_is_cons(kri_car(p)) && kri_is_cons(kri_cdr(kri_car(p))) &&
                 kri_is_cons(kri_car(kri_cdr(kri_car(p)))))
            return true;
    }
    return !kri_is_nil(list);
}

static kr_value flatten(struct kri_compiler *c, kr_value list, kr_value *body, kr_value name);

/* ((apply #'(lambda P . body) g)) */
static kr_value apply_lambda(struct kri_compiler *c, kr_value parameters, kr_value body, kr_value g)
{
    struct kri_worker *w = c->w;
    struct kri_symbols *sym = &c->vm->sym;
    if (is_nested(c, parameters))
        parameters = flatten(c, parameters, &body, KRI_NIL);
    kr_value lambda = kri_cons(w, sym->lambda, kri_cons(w, parameters, body));
    return kri_keep(c, kri_list(w, 1, kri_list(w, 3, kri_compiler_symbol(c, "APPLY"), kri_list(w, 2, sym->function, lambda), g)));
}

static kr_value reverse_onto(struct kri_compiler *c, kr_value list, kr_value tail)
{
    for (; kri_is_cons(list); list = kri_cdr(list))
        tail = kri_cons(c->w, kri_car(list), tail);
    return kri_keep(c, tail);
}

static kr_value flatten(struct kri_compiler *c, kr_value list, kr_value *body, kr_value name)
{
    struct kri_worker *w = c->w;
    struct kri_symbols *sym = &c->vm->sym;
    kr_value out = KRI_NIL, deferred = KRI_NIL, whole = list;
    enum kri_parameter_kind kind = KRI_P_REQUIRED;
    if (kri_native_exhausted(w))
        kri_error(w, KRI_E_STACK, KRI_NIL, "parameter lists nested too deeply");
    kri_list_length(w, list); /* for its error, if it is circular */
    for (; kri_is_cons(list); list = kri_cdr(list)) {
        kr_value p = kri_car(list), rest = kri_cdr(list), g;
        if (kri_eq(p, sym->amp_whole)) {
            if (!kri_is_nil(out) || !kri_is_cons(rest) || !kri_is_symbol(kri_car(rest)))
                kri_error(w, KRI_E_LAMBDA_PARAMETER, whole, "&whole and a variable come first");
            g = fresh(c, "FORM");
            kr_value variable = kri_car(rest);
            kr_value value = kri_is_nil(name) ? g : kri_list(w, 3, sym->cons, kri_list(w, 2, sym->quote, name), g);
            kr_value inner = apply_lambda(c, kri_cdr(rest), *body, g);
            *body = kri_keep(c, kri_list(w, 1, kri_cons(w, sym->let, kri_cons(w, kri_list(w, 1, kri_list(w, 2, variable, value)), inner))));
            return kri_keep(c, kri_list(w, 2, sym->amp_rest, g));
        }
        if (kri_eq(p, sym->amp_optional))
            kind = KRI_P_OPTIONAL;
        else if (is_rest(c, p))
            kind = KRI_P_REST;
        else if (kri_eq(p, sym->amp_key))
            kind = KRI_P_KEY;
        else if (kri_eq(p, sym->amp_aux))
            kind = KRI_P_AUX;
        else if (kri_is_cons(p) && kind == KRI_P_REQUIRED) {
            g = fresh(c, "ARGUMENT");
            kr_value end = KRI_NIL;
            if (!kri_is_nil(rest)) {
                kr_value r = fresh(c, "ARGUMENTS");
                *body = apply_lambda(c, rest, *body, r);
                end = kri_list(w, 2, sym->amp_rest, r);
            }
            *body = apply_lambda(c, p, *body, g);
            return reverse_onto(c, kri_cons(w, g, out), end);
        } else if (kri_is_cons(p) && kind == KRI_P_REST) {
            g = fresh(c, "REST");
            deferred = kri_cons(w, kri_cons(w, p, g), deferred);
            p = g;
        } else if (kri_is_cons(p) && kind == KRI_P_OPTIONAL && kri_is_cons(kri_car(p))) {
            g = fresh(c, "OPTIONAL");
            deferred = kri_cons(w, kri_cons(w, kri_car(p), g), deferred);
            p = kri_cons(w, g, kri_cdr(p));
        } else if (kri_is_cons(p) && kind == KRI_P_KEY && kri_is_cons(kri_car(p)) && kri_is_cons(kri_cdr(kri_car(p))) &&
                   kri_is_cons(kri_car(kri_cdr(kri_car(p))))) {
            g = fresh(c, "KEY");
            deferred = kri_cons(w, kri_cons(w, kri_car(kri_cdr(kri_car(p))), g), deferred);
            p = kri_cons(w, kri_list(w, 2, kri_car(kri_car(p)), g), kri_cdr(p));
        }
        out = kri_cons(w, p, out);
    }
    for (; kri_is_cons(deferred); deferred = kri_cdr(deferred))
        *body = apply_lambda(c, kri_car(kri_car(deferred)), *body, kri_cdr(kri_car(deferred)));
    return reverse_onto(c, out, kri_is_nil(list) ? KRI_NIL : kri_list(w, 2, sym->amp_rest, list));
}

/* ---- lambda lists ---- */

static _Noreturn void bad_parameter(struct kri_compiler *c, kr_value p, kr_value list, const char *why)
{
    kri_error(c->w, KRI_E_LAMBDA_PARAMETER, p, "%s in %V", why, list);
}

static kr_value keyword_named(struct kri_compiler *c, kr_value symbol)
{
    const struct kri_string *name = kri_string_of(kri_symbol_of(c->vm, symbol)->pname);
    return kri_intern(c->w, (const char *)name->byte, name->head.length, c->vm->pkg_keyword);
}

static void check_new(struct kri_compiler *c, struct kri_fn *f, kr_value name, kr_value list)
{
    for (unsigned i = 0; i < f->parameters; i++) {
        const struct kri_parameter *p = &f->parameter[i];
        const struct kri_binding *bs[2] = {&p->bind, &p->supplied};
        for (int j = 0; j < 1 + p->has_supplied; j++)
            if (kri_eq(bs[j]->var ? bs[j]->var->name : bs[j]->special, name))
                kri_error(c->w, KRI_E_MULTIPLE_VARIABLE, name, "in the parameters %V", list);
    }
}

/* Parse LIST; each default form sees the parameters before it. Parameters are in scope afterwards. */
static void analyse_parameters(struct kri_compiler *c, struct kri_fn *f, kr_value list, const struct kri_declarations *declared)
{
    struct kri_symbols *sym = &c->vm->sym;
    kr_value whole = list;
    enum kri_parameter_kind kind = KRI_P_REQUIRED;
    bool rest_seen = false, rest_due = false;
    size_t n = kri_form_length(c->w, list, list, KRI_E_LAMBDA_PARAMETER);
    f->parameter = kri_compiler_alloc(c, (n + 1) * sizeof *f->parameter);
    for (; kri_is_cons(list); list = kri_cdr(list)) {
        kr_value p = kri_car(list), init = KRI_NIL, supplied = KRI_NIL, keyword = KRI_NIL, name = p;
        enum kri_parameter_kind next = kind;
        bool marker = true;
        if (kri_eq(p, sym->amp_optional))
            next = KRI_P_OPTIONAL;
        else if (is_rest(c, p))
            next = KRI_P_REST;
        else if (kri_eq(p, sym->amp_key))
            next = KRI_P_KEY;
        else if (kri_eq(p, sym->amp_aux))
            next = KRI_P_AUX;
        else if (kri_eq(p, sym->amp_allow)) {
            if (!(f->flags & KRI_CODE_KEYS) || kind != KRI_P_KEY)
                bad_parameter(c, p, whole, "out of place");
            f->flags |= KRI_CODE_ALLOW;
            continue;
        } else
            marker = false;
        if (marker) {
            if (rest_due || next < kind || (next == kind && kind != KRI_P_REQUIRED))
                bad_parameter(c, p, whole, "out of place");
            kind = next;
            rest_due = kind == KRI_P_REST;
            if (kind == KRI_P_KEY)
                f->flags |= KRI_CODE_KEYS;
            continue;
        }
        if (kind == KRI_P_REST && !rest_due)
            bad_parameter(c, p, whole, "a second &rest variable");
        if (kri_is_cons(p)) {
            if (kind == KRI_P_REQUIRED || kind == KRI_P_REST)
                kri_error(c->w, KRI_E_NO_SYMBOL, p, "a parameter's name expected in %V", whole);
            kr_value tail = kri_cdr(p);
            size_t parts = kri_form_length(c->w, p, whole, KRI_E_LAMBDA_PARAMETER);
            if (parts > 3 || (parts > 2 && kind == KRI_P_AUX))
                bad_parameter(c, p, whole, "too many parts");
            name = kri_car(p);
            if (kri_is_cons(tail)) {
                init = kri_car(tail);
                if (kri_is_cons(kri_cdr(tail)))
                    supplied = kri_car(kri_cdr(tail));
            }
            if (kind == KRI_P_KEY && kri_is_cons(name)) {
                if (!kri_is_symbol(kri_car(name)) || kri_form_length(c->w, name, whole, KRI_E_LAMBDA_PARAMETER) != 2)
                    bad_parameter(c, p, whole, "(keyword variable) expected");
                keyword = kri_car(name);
                name = kri_car(kri_cdr(name));
            }
        }
        if (kri_is_symbol(name) && !kri_is_nil(name))
            check_new(c, f, name, whole);
        struct kri_parameter *q = &f->parameter[f->parameters];
        q->kind = kind;
        q->bind = kri_bind(c, name, declared);
        if (kind == KRI_P_OPTIONAL || kind == KRI_P_KEY || kind == KRI_P_AUX)
            q->init = kri_analyse(c, init);
        if (q->bind.var)
            q->bind.var->unset = q->init && q->init->op == KRI_N_CONST && kri_is_nil(q->init->value);
        if (!kri_is_nil(supplied)) {
            check_new(c, f, supplied, whole);
            q->supplied = kri_bind(c, supplied, declared);
            q->has_supplied = true;
        }
        f->parameters++;
        kri_binding_scope(c, &q->bind);
        if (q->has_supplied)
            kri_binding_scope(c, &q->supplied);
        switch (kind) {
        case KRI_P_REQUIRED:
            f->nreq++;
            break;
        case KRI_P_OPTIONAL:
            f->nopt++;
            break;
        case KRI_P_REST:
            f->flags |= KRI_CODE_REST;
            rest_due = false;
            rest_seen = true;
            break;
        case KRI_P_KEY:
            q->keyword = kri_is_nil(keyword) ? keyword_named(c, name) : keyword;
            f->nkey++;
            break;
        case KRI_P_AUX:
            break;
        }
    }
    (void)rest_seen;
    if (rest_due)
        bad_parameter(c, KRI_NIL, whole, "&rest without a variable");
    if (n > 30000)
        kri_error(c->w, KRI_E_LAMBDA_PARAMETER, KRI_NIL, "too many parameters");
}

/* ---- functions ---- */

struct kri_fn *kri_analyse_lambda(struct kri_compiler *c, const struct kri_lambda *l, kr_value form)
{
    struct kri_scope *outside = c->scope;
    unsigned line = kri_position_line(c->w, form), outer_line = c->line;
    kr_value here = c->here, outer = c->outer;
    struct kri_fn *f = kri_compiler_alloc(c, sizeof *f);
    if (kri_native_exhausted(c->w))
        kri_error(c->w, KRI_E_STACK, KRI_NIL, "functions nested too deeply");
    if (line)
        c->line = line;
    kri_keep(c, l->source);
    f->parent = c->fn;
    c->fn = f;
    c->here = c->outer = KRI_NIL;
    f->name = l->name;
    f->lambda_list = l->lambda_list;
    f->source = l->source;
    f->documentation = f->object = KRI_NIL;
    f->line = c->line;
    for (struct kri_scope *s = outside; s && !f->inside; s = s->up)
        f->inside = s->kind == KRI_SCOPE_FUNCTION || s->kind == KRI_SCOPE_MACRO || s->kind == KRI_SCOPE_EXPANSION;
    if (outside)
        kri_scope_push(c, KRI_SCOPE_BARRIER, KRI_NIL);
    if (l->method) {
        f->flags |= KRI_CODE_METHOD;
        f->method_class = l->method_class;
        f->receiver = kri_compiler_alloc(c, sizeof *f->receiver);
        f->self = kri_compiler_alloc(c, sizeof *f->self);
        f->receiver->name = f->self->name = c->vm->sym.self;
        f->receiver->owner = f->self->owner = f;
        f->nreq = 1;
        struct kri_scope *s = kri_scope_push(c, KRI_SCOPE_METHOD, KRI_NIL);
        s->value = l->method_class;
        s->var = f->receiver;
        kri_scope_push(c, KRI_SCOPE_VARIABLE, f->self->name)->var = f->self;
    }
    kr_value body = l->body, list = l->lambda_list;
    kri_form_length(c->w, body, form, KRI_E_LAMBDA_FORM);
    struct kri_declarations declared = kri_take_declarations(c, &body, &f->documentation);
    if (l->macro) {
        f->flags |= KRI_CODE_MACRO;
        if (is_nested(c, list))
            list = flatten(c, list, &body, l->name);
    }
    if (!kri_is_list(list))
        kri_error(c->w, KRI_E_LAMBDA_PARAMETER, list, "a list of parameters expected");
    analyse_parameters(c, f, list, &declared);
    for (kr_value specials = declared.specials; kri_is_cons(specials); specials = kri_cdr(specials)) {
        bool bound = false;
        for (unsigned i = 0; i < f->parameters && !bound; i++)
            bound = kri_eq(f->parameter[i].bind.special, kri_car(specials)) || kri_eq(f->parameter[i].supplied.special, kri_car(specials));
        if (!bound)
            kri_scope_push(c, KRI_SCOPE_SPECIAL, kri_car(specials));
    }
    if (l->block == KRI_LAMBDA_NO_BLOCK) {
        f->body = kri_analyse_body(c, body, form);
    } else {
        struct kri_block *block = kri_block_scope(c, l->block == KRI_LAMBDA_BLOCK ? l->block_name : KRI_NIL);
        f->body = kri_wrap_block(c, block, kri_analyse_body(c, body, form));
    }
    c->scope = outside;
    c->fn = f->parent;
    c->line = outer_line;
    c->here = here;
    c->outer = outer;
    return f;
}

kr_value kri_function_make(struct kri_compiler *c, struct kri_fn *f)
{
    kr_value code = f->code;
    struct kri_function *fn = (struct kri_function *)kri_make(c->w, KRI_CLASS_COMPILED_CODE, kri_signature((const struct kri_code *)code.w), 1);
    fn->code = code;
    return kri_keep(c, kri_value_of(fn));
}
