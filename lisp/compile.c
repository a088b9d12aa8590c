/* compile.c -- the compiler's arena and entry points, eval, and the builtins about evaluation. */
#include <ctype.h>
#include "lisp/reader.h"
#include "lisp/compile.h"
#include "lisp/init.h"
#include "lisp/native_module.h"
#include "lisp/sequence.h"

/* ---- the arena ---- */

void kri_compiler_init(struct kri_compiler *c, struct kri_worker *w, kr_value form)
{
    c->w = w;
    c->vm = w->vm;
    c->form = form;
    c->keep = KRI_NIL;
    c->free = c->first;
    c->end = c->first + sizeof c->first;
    c->scope = NULL;
    c->fn = NULL;
    c->line = kri_positions_frozen(w) ? kri_positions_form_line(w) : 0;
    c->tolerant = false;
    c->here = c->outer = KRI_NIL;
    c->stepping = false;
    c->outside = w->ctx->compiler;
    w->ctx->compiler = c;
}

void *kri_compiler_alloc(struct kri_compiler *c, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if ((size_t)(c->end - c->free) < bytes) {
        size_t block = bytes > 16000 ? bytes + 16 : 32000;
        struct kri_cell *cell = kri_make(c->w, KRI_CLASS_BYTES, (uint32_t)block, block / 8);
        char *start = (char *)(((uintptr_t)cell->slot + 15) & ~(uintptr_t)15);
        kri_keep(c, kri_value_of(cell));
        if (bytes > 16000)
            return start; /* the rest of the current block stays in use */
        c->free = start;
        c->end = (char *)cell->slot + block / 8 * 8;
    }
    void *p = c->free;
    c->free += bytes;
    return memset(p, 0, bytes);
}

void *kri_compiler_grow(struct kri_compiler *c, const void *old, size_t count, unsigned *size, size_t element)
{
    unsigned bigger = *size ? *size * 2 : 16;
    void *p = kri_compiler_alloc(c, bigger * element);
    if (count)
        memcpy(p, old, count * element);
    *size = bigger;
    return p;
}

kr_value kri_compiler_symbol(struct kri_compiler *c, const char *name)
{
    return kri_intern(c->w, name, strlen(name), c->vm->pkg_lisp);
}

size_t kri_form_length(struct kri_worker *w, kr_value list, kr_value form, int code)
{
    size_t n = 0, limit = 1;
    kr_value mark = list;
    while (kri_is_cons(list)) {
        list = kri_cdr(list);
        if (++n == limit) { /* Brent: the mark moves on at powers of two */
            mark = list;
            limit *= 2;
        } else if (kri_is_cons(list) && kri_eq(list, mark)) {
            kri_error(w, KRI_E_CIRCULAR, KRI_NIL, "in a form to be evaluated");
        }
    }
    if (!kri_is_nil(list))
        kri_error(w, code, form, "a list ends with %V instead of nil", list);
    return n;
}

/* ---- compiling ---- */

kr_value kri_compiler_form(const struct kri_compiler *c) { return kri_is_nil(c->here) ? c->form : c->here; }
unsigned kri_compiler_line(const struct kri_compiler *c) { return c->line; }

static void compiler_end(struct kri_compiler *c) { c->w->ctx->compiler = c->outside; }

kr_value kri_compiler_finish(struct kri_compiler *c, struct kri_fn *f)
{
    kri_generate(c, f);
    kr_value fn = kri_function_make(c, f);
    compiler_end(c);
    return fn;
}

static kr_value compile_form(struct kri_worker *w, kr_value form, bool tolerant)
{
    struct kri_compiler c;
    kri_compiler_init(&c, w, form);
    c.tolerant = tolerant;
    struct kri_fn *f = kri_compiler_alloc(&c, sizeof *f);
    f->source = KRI_NIL;
    c.fn = f;
    f->body = kri_analyse(&c, form);
    f->line = c.line;
    return kri_compiler_finish(&c, f);
}

struct form {
    kr_value form;
};

static kr_value compile_strictly(struct kri_worker *w, void *arg) { return compile_form(w, ((struct form *)arg)->form, false); }

/* A mistake in a part of a form is an error when that part is reached, as in an interpreter: what stands before it has its effects. */
kr_value kri_compile_form(struct kri_worker *w, kr_value form)
{
    struct form f = {form};
    kr_value fn;
    if (!kri_late_ready(w))
        return compile_form(w, form, false);
    return kri_attempt(w, compile_strictly, &f, false, &fn) ? fn : compile_form(w, form, true);
}

kr_value kri_compile_tolerant(struct kri_worker *w, kr_value cls, kr_value name, kr_value source, bool macro)
{
    struct kri_compiler c;
    kri_compiler_init(&c, w, source);
    c.tolerant = true;
    kr_value rest = kri_cdr(source);
    struct kri_lambda l = {.name = name, .lambda_list = kri_car(rest), .body = kri_cdr(rest), .source = source, .macro = macro,
                           .block = KRI_LAMBDA_BLOCK, .block_name = name};
    if (!kri_is_nil(cls)) {
        l.name = kri_keep(&c, kri_list(w, 2, kri_metaclass_of(cls)->name, name));
        l.method = true;
        l.method_class = cls;
    }
    return kri_compiler_finish(&c, kri_analyse_lambda(&c, &l, source));
}

static kr_value compile_lambda(struct kri_worker *w, kr_value name, kr_value lambda, bool stepping)
{
    struct kri_compiler c;
    kri_compiler_init(&c, w, lambda);
    c.stepping = stepping;
    if (!kri_is_cons(lambda) || !kri_is_cons(kri_cdr(lambda)))
        kri_error(w, KRI_E_LAMBDA_FORM, lambda, "(lambda parameters form..) expected");
    kr_value rest = kri_cdr(lambda);
    struct kri_lambda l = {.name = name, .lambda_list = kri_car(rest), .body = kri_cdr(rest), .source = lambda,
                           .block = kri_is_nil(name) ? KRI_LAMBDA_NIL_BLOCK : KRI_LAMBDA_BLOCK, .block_name = name};
    return kri_compiler_finish(&c, kri_analyse_lambda(&c, &l, lambda));
}

kr_value kri_compile_lambda(struct kri_worker *w, kr_value name, kr_value lambda) { return compile_lambda(w, name, lambda, false); }

static kr_value compile_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value lambda_list, kr_value body, bool stepping)
{
    struct kri_compiler c;
    kr_value source = kri_cons(w, w->vm->sym.lambda, kri_cons(w, lambda_list, body));
    kri_compiler_init(&c, w, source);
    c.stepping = stepping;
    kr_value name = kri_keep(&c, kri_list(w, 2, kri_slot(&kri_metaclass_of(cls)->name), selector));
    struct kri_lambda l = {.name = name, .lambda_list = lambda_list, .body = body, .source = source, .method = true,
                           .method_class = cls, .block = KRI_LAMBDA_BLOCK, .block_name = selector};
    return kri_compiler_finish(&c, kri_analyse_lambda(&c, &l, source));
}

kr_value kri_compile_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value lambda_list, kr_value body)
{
    return compile_method(w, cls, selector, lambda_list, body, false);
}

/* A global function or macro outside any lexical scope: no wrapper is compiled. */
static kr_value compile_definition(struct kri_worker *w, kr_value name, kr_value rest, kr_value form, bool macro)
{
    struct kri_compiler c;
    kri_compiler_init(&c, w, form);
    kr_value source = kri_cons(w, w->vm->sym.lambda, rest);
    kri_keep(&c, source);
    c.line = kri_position_line(w, form);
    struct kri_lambda l = {.name = name, .lambda_list = kri_car(rest), .body = kri_cdr(rest), .source = source, .macro = macro,
                           .block = KRI_LAMBDA_BLOCK, .block_name = name};
    return kri_compiler_finish(&c, kri_analyse_lambda(&c, &l, form));
}

struct definition {
    kr_value name, form;
    bool macro;
};

static kr_value compile_it(struct kri_worker *w, void *arg)
{
    const struct definition *d = arg;
    return compile_definition(w, d->name, kri_cdr(kri_cdr(d->form)), d->form, d->macro);
}

static kr_value compile_or_defer(struct kri_worker *w, struct definition *d)
{
    kr_value fn;
    if (!kri_late_ready(w))
        return compile_it(w, d);
    if (kri_attempt(w, compile_it, d, true, &fn))
        return fn;
    return kri_late_function(w, d->name, kri_cons(w, w->vm->sym.lambda, kri_cdr(kri_cdr(d->form))), d->macro, fn);
}

/* A function of no arguments that evaluates FORM where the lexical variables of a running function are visible. NAMES: #(class-or-nil symbol..); the values
 * are the receiver, if there is a class, and then the boxes of the variables. */
static kr_value compile_inside_as(struct kri_worker *w, kr_value form, kr_value names, int count, const kr_value *values, bool tolerant)
{
    struct kri_compiler c;
    kri_compiler_init(&c, w, form);
    c.tolerant = tolerant;
    struct kri_fn *outside = kri_compiler_alloc(&c, sizeof *outside), *f = kri_compiler_alloc(&c, sizeof *f);
    kr_value cls = kri_vector_of(names)->at[0];
    f->parent = outside;
    c.fn = f;
    f->up_size = (unsigned)count + 1;
    f->up = kri_compiler_alloc(&c, f->up_size * sizeof *f->up);
    if (!kri_is_nil(cls)) {
        struct kri_var *receiver = kri_compiler_alloc(&c, sizeof *receiver);
        receiver->name = w->vm->sym.self;
        receiver->owner = outside;
        receiver->captured = true;
        f->up[f->ups++] = receiver;
        struct kri_scope *s = kri_scope_push(&c, KRI_SCOPE_METHOD, KRI_NIL);
        s->value = cls;
        s->var = receiver;
        f->method_class = cls;
        f->receiver = receiver;
        f->self_local = true;
        f->self = kri_compiler_alloc(&c, sizeof *f->self);
        f->self->name = w->vm->sym.self;
        f->self->owner = f;
        kri_scope_push(&c, KRI_SCOPE_VARIABLE, w->vm->sym.self)->var = f->self;
    }
    /* The innermost variable comes first in NAMES, so the scopes are pushed from the end. */
    unsigned first = f->ups;
    f->ups = (unsigned)count;
    for (int i = count - 1; i >= (int)first; i--) {
        struct kri_var *v = kri_compiler_alloc(&c, sizeof *v);
        v->name = kri_vector_of(names)->at[(unsigned)i - first + 1];
        v->owner = outside;
        v->captured = v->assigned = true;
        f->up[i] = v;
        kri_scope_push(&c, KRI_SCOPE_VARIABLE, v->name)->var = v;
    }
    f->body = kri_analyse(&c, form);
    kr_value code = kri_generate(&c, f);
    struct kri_function *fn = (struct kri_function *)kri_make(w, KRI_CLASS_CLOSURE, kri_signature((const struct kri_code *)code.w), (size_t)count + 1);
    fn->code = code;
    for (int i = 0; i < count; i++)
        fn->captured[i] = values[i];
    compiler_end(&c);
    return kri_value_of(fn);
}

struct inside {
    kr_value form, names;
    int count;
    const kr_value *values;
};

static kr_value compile_inside_strictly(struct kri_worker *w, void *arg)
{
    const struct inside *a = arg;
    return compile_inside_as(w, a->form, a->names, a->count, a->values, false);
}

static kr_value compile_inside(struct kri_worker *w, kr_value form, kr_value names, int count, const kr_value *values)
{
    struct inside a = {form, names, count, values};
    kr_value fn;
    return kri_late_ready(w) && kri_attempt(w, compile_inside_strictly, &a, false, &fn) ? fn : compile_inside_as(w, form, names, count, values, true);
}

/* ---- macros ---- */

kr_value kri_macroexpand1(struct kri_worker *w, kr_value form, bool *expanded)
{
    *expanded = false;
    if (!kri_is_cons(form) || !kri_is_symbol(kri_car(form)) || kri_is_nil(kri_car(form)))
        return form;
    kr_value f = kri_symbol_function(w->vm, kri_car(form));
    if (!(kri_code_of(f)->flags & KRI_CODE_MACRO))
        return form;
    struct kri_compiler c;
    kri_compiler_init(&c, w, form);
    *expanded = true;
    kr_value expansion = kri_expand(&c, f, form);
    compiler_end(&c);
    return expansion;
}

/* ---- definitions ---- */

void kri_check_definable(struct kri_worker *w, kr_value name)
{
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value essential[] = {s->quote, s->function, s->if_, s->let, s->let_star, s->progn, s->setq, s->cond, s->and, s->or, s->tagbody};
    for (size_t i = 0; i < sizeof essential / sizeof *essential; i++)
        if (kri_eq(name, essential[i]))
            kri_error(w, KRI_E_ILLEGAL_FUNCTION, name, "a special form that the system's macros expand to cannot name a function of the program");
}

static kr_value define_function(struct kri_worker *w, kr_value name, kr_value fn)
{
    kri_check_definable(w, name);
    if (kri_is_nil(name))
        kri_error(w, KRI_E_NO_SYMBOL, name, "nil cannot name a function");
    kr_value doc = kri_code_of(fn)->documentation;
    if (!kri_is_nil(doc))
        kri_putprop(w, name, doc, w->vm->sym.function_documentation);
    kr_value old = kri_symbol_function(w->vm, name);
    kri_set_function(w, name, fn);
    kri_macro_changed(w, name, old, fn);
    return name;
}

/* ---- eval ---- */

/* The value of FORM if finding it cannot take more than a look: a constant, a variable, a quoted object. */
static bool eval_simple(struct kri_worker *w, kr_value form, kr_value *value)
{
    if (!kri_is_pointer(form)) {
        *value = form;
        return true;
    }
    if (kri_is_symbol(form)) {
        kr_value v = kri_special(w, form);
        if (kri_eq(v, KRI_UNBOUND) && kri_is_cons(kri_get(w, form, w->vm->sym.k_symbol_macro)))
            return false;
        *value = kri_eq(v, KRI_UNBOUND) ? kri_autoload_value(w, form, true) : v;
        return true;
    }
    if (!kri_is_cons(form)) {
        *value = form;
        return true;
    }
    if (kri_eq(kri_car(form), w->vm->sym.quote) && kri_is_cons(kri_cdr(form)) && kri_is_nil(kri_cdr(kri_cdr(form)))) {
        *value = kri_car(kri_cdr(form));
        return true;
    }
    return false;
}

enum { EVAL_ARGUMENTS = 16 };

/* A call of an ordinary function whose arguments are all simple: F and the arguments, without compiling. */
static bool eval_call(struct kri_worker *w, kr_value form, kr_value f, int *argc, kr_value *argv)
{
    int n = 0;
    if (kri_code_of(f)->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL | KRI_CODE_UNDEFINED))
        return false;
    for (kr_value l = kri_cdr(form); !kri_is_nil(l); l = kri_cdr(l))
        if (!kri_is_cons(l) || n == EVAL_ARGUMENTS)
            return false;
        else {
            kr_value a = kri_car(l);
            if (kri_is_cons(a) && !(kri_eq(kri_car(a), w->vm->sym.quote) && kri_is_cons(kri_cdr(a)) && kri_is_nil(kri_cdr(kri_cdr(a)))))
                return false;
            if (kri_is_symbol(a) && kri_eq(kri_special(w, a), KRI_UNBOUND))
                return false; /* compiled, the error names the form */
            n++;
        }
    *argc = 0;
    for (kr_value l = kri_cdr(form); kri_is_cons(l) && *argc < n; l = kri_cdr(l))
        if (!eval_simple(w, kri_car(l), &argv[(*argc)++]))
            return false;
    return true;
}

bool kri_situation_holds(struct kri_worker *w, kr_value situations)
{
    kri_list_length(w, situations); /* for its error, if it is circular */
    for (; kri_is_cons(situations); situations = kri_cdr(situations)) {
        kr_value s = kri_car(situations);
        if (kri_eq(s, w->vm->sym.eval) || kri_eq(s, kri_keyword(w, "EXECUTE")))
            return true;
    }
    return false;
}

static bool is_definition(kr_value form)
{
    kr_value rest = kri_cdr(form);
    return kri_is_cons(rest) && kri_is_symbol(kri_car(rest)) && !kri_is_nil(kri_car(rest)) && kri_is_cons(kri_cdr(rest));
}

/* Take the steps of evaluating FORM that need no compiled code. True: *VALUE is its value. False: *VALUE is a function to
 * call with argv[0..*argc). */
static bool eval_step(struct kri_worker *w, kr_value form, kr_value *value, int *argc, kr_value *argv)
{
    struct kri_symbols *sym = &w->vm->sym;
    if (kri_native_exhausted(w))
        kri_error(w, KRI_E_STACK, KRI_NIL, "in eval");
    for (;;) {
        if (eval_simple(w, form, value))
            return true;
        kr_value head = kri_car(form);
        if (!kri_is_symbol(head) || kri_is_nil(head))
            break;
        kr_value f = kri_symbol_function(w->vm, head);
        const struct kri_code *code = kri_code_of(f);
        if (code->flags & KRI_CODE_MACRO) {
            bool expanded;
            form = kri_macroexpand1(w, form, &expanded);
            continue;
        }
        if (!(code->flags & KRI_CODE_SPECIAL)) {
            if (!eval_call(w, form, f, argc, argv))
                break;
            *value = f;
            return false;
        }
        if (kri_eq(head, sym->progn) || (kri_eq(head, sym->eval_when) && kri_is_cons(kri_cdr(form)))) {
            kr_value rest = kri_cdr(form);
            if (kri_eq(head, sym->eval_when)) {
                bool holds = kri_situation_holds(w, kri_car(rest));
                rest = holds ? kri_cdr(rest) : KRI_NIL;
            }
            kri_form_length(w, rest, form, KRI_E_LISP_FORM);
            if (kri_is_nil(rest)) {
                *value = KRI_NIL;
                return true;
            }
            for (; kri_is_cons(kri_cdr(rest)); rest = kri_cdr(rest))
                kri_eval(w, kri_car(rest));
            form = kri_car(rest);
            continue;
        }
        if ((kri_eq(head, sym->defun) || kri_eq(head, sym->defmacro)) && is_definition(form)) {
            kr_value name = kri_car(kri_cdr(form));
            bool macro = kri_eq(head, sym->defmacro);
            struct definition d = {name, form, macro};
            *value = define_function(w, name, compile_or_defer(w, &d));
            return true;
        }
        break;
    }
    *value = kri_compile_form(w, form);
    *argc = 0;
    return false;
}

/* Call what eval_step found. An error in a builtin names FORM. */
static kr_value eval_finish(struct kri_worker *w, kr_value form, kr_value function, int argc, const kr_value *argv)
{
    struct kr_context *ctx = w->ctx;
    kr_value outside = ctx->evaluated;
    ctx->evaluated = form;
    kr_value value = kri_call(w, function, argc, argv);
    ctx->evaluated = outside;
    return value;
}

kr_value kri_eval(struct kri_worker *w, kr_value form)
{
    kr_value value, argv[EVAL_ARGUMENTS];
    int argc;
    return eval_step(w, form, &value, &argc, argv) ? value : eval_finish(w, form, value, argc, argv);
}

KR_BUILTIN(defun, "lisp::%defun", "(name function)", "Make FUNCTION the global definition of symbol NAME, as defun does. Returns NAME.")
{
    kri_arg_symbol(w, argv, 0);
    if (!kri_is_function(argv[1]))
        kri_argument_error(w, 1, argv[1], KRI_E_ILLEGAL_FUNCTION);
    return define_function(w, argv[0], argv[1]);
}

KR_BUILTIN(defmacro, "lisp::%defmacro", "(name function)",
           "Make FUNCTION, compiled as a macro's expander, the global macro NAME, as defmacro does. Returns NAME.")
{
    kri_arg_symbol(w, argv, 0);
    if (!kri_is_function(argv[1]))
        kri_argument_error(w, 1, argv[1], KRI_E_ILLEGAL_FUNCTION);
    if (!(kri_code_of(argv[1])->flags & KRI_CODE_MACRO))
        kri_argument_error(w, 1, argv[1], KRI_E_NO_MACRO);
    return define_function(w, argv[0], argv[1]);
}

/* ---- eval and kin ---- */

static kr_value eval_tail(struct kri_worker *w, kr_value form, kr_value *argv)
{
    kr_value value, values[EVAL_ARGUMENTS];
    int n;
    if (eval_step(w, form, &value, &n, values))
        return value;
    if (n <= 1 && !kri_code_of(value)->builtin) { /* the running builtin has room for one */
        argv[0] = n ? values[0] : KRI_NIL;
        return kri_tail_call(w, value, n);
    }
    return eval_finish(w, form, value, n, values);
}

KR_BUILTIN(eval, "eval", "(form)",
           "Evaluate FORM and return its value. Called directly in a function it sees that function's lexical variables, as in EusLisp; "
           "otherwise only global ones.")
{
    return eval_tail(w, argv[0], argv);
}

KR_BUILTIN(eval_in, "lisp::%eval-in", "(form names &rest values)",
           "Evaluate FORM among the lexical variables of a running function: NAMES is #(class-or-nil symbol..), VALUES are the receiver "
           "(if there is a class) and the variables' boxes. The compiler makes these calls for eval.")
{
    kr_value names = argv[1];
    if (!kri_has_class(names, KRI_CLASS_VECTOR) || kri_length(names) == 0)
        kri_argument_error(w, 1, names, KRI_E_NO_VECTOR);
    bool method = !kri_is_nil(kri_vector_of(names)->at[0]);
    if ((size_t)argc - 2 != kri_length(names) - 1 + method)
        kri_argument_error(w, 1, names, KRI_E_ARGC);
    for (int i = 2 + method; i < argc; i++)
        if (!kri_has_class(argv[i], KRI_CLASS_BOX))
            kri_argument_error(w, i, argv[i], KRI_E_TYPE_MISMATCH);
    kr_value form = argv[0];
    for (;;) { /* the forms of a progn one after the other, as at top level: each may define what the next uses */
        bool expanded = kri_is_pointer(form);
        if (!expanded)
            return form;
        while (expanded)
            form = kri_macroexpand1(w, form, &expanded);
        if (!kri_is_cons(form) || !kri_eq(kri_car(form), w->vm->sym.progn) || !kri_is_cons(kri_cdr(form)))
            break;
        kr_value rest = kri_cdr(form);
        kri_form_length(w, rest, form, KRI_E_LISP_FORM);
        for (; kri_is_cons(kri_cdr(rest)); rest = kri_cdr(rest))
            kri_call(w, compile_inside(w, kri_car(rest), names, argc - 2, argv + 2), 0, NULL);
        form = kri_car(rest);
    }
    return kri_tail_call(w, compile_inside(w, form, names, argc - 2, argv + 2), 0);
}

KR_BUILTIN(macroexpand_1, "macroexpand-1", "(form)", "If FORM is a call of a global macro return its expansion, one step; else FORM itself.")
{
    bool expanded;
    return kri_macroexpand1(w, argv[0], &expanded);
}

KR_BUILTIN(macroexpand2, "macroexpand2", "(form)", "Expand the macro call FORM by one step; other forms are returned as they are.")
{
    bool expanded;
    return kri_macroexpand1(w, argv[0], &expanded);
}

KR_BUILTIN(macroexpand, "macroexpand", "(form)", "Expand FORM for as long as it is a call of a global macro, and return the result.")
{
    kr_value form = argv[0];
    bool expanded;
    do
        form = kri_macroexpand1(w, form, &expanded);
    while (expanded);
    return form;
}

KR_BUILTIN(compile_stepping, "lisp::%compile-stepping", "(function)",
           "A version of FUNCTION, which is not a closure, whose forms call lisp::step-enter and lisp::step-exit; nil if its source is "
           "not kept. A (lambda ..) list is compiled so as well.")
{
    kr_value f = argv[0], source = f, name = KRI_NIL;
    if (kri_is_function(f)) {
        const struct kri_code *code = kri_code_of(f);
        if (code->captures || code->flags & (KRI_CODE_MACRO | KRI_CODE_METHOD))
            return KRI_NIL;
        name = code->name;
        source = code->source;
    }
    if (!kri_is_cons(source) || !kri_eq(kri_car(source), w->vm->sym.lambda))
        return KRI_NIL;
    return compile_lambda(w, name, source, true);
}

KR_BUILTIN(compile_stepping_method, "lisp::%compile-stepping-method", "(class selector function)",
           "A version of FUNCTION, the method of CLASS for SELECTOR, whose forms call lisp::step-enter and lisp::step-exit; nil if its source is not kept.")
{
    kri_arg_class(w, argv, 0);
    kr_value source = kri_is_function(argv[2]) ? kri_code_of(argv[2])->source : KRI_NIL;
    if (!kri_is_cons(source) || !kri_is_cons(kri_cdr(source)) || kri_code_of(argv[2])->captures)
        return KRI_NIL;
    return compile_method(w, argv[0], argv[1], kri_car(kri_cdr(source)), kri_cdr(kri_cdr(source)), true);
}

KR_BUILTIN(no_block, "lisp::%no-block", "(kind name)",
           "Raise the error of a return-from or go (KIND) whose block or tag NAME does not exist around it.")
{
    kri_error(w, KRI_E_NO_BLOCK, argv[1], "%V without such a block or tag around it", argv[0]);
}

KR_BUILTIN(special_form_p, "special-form-p", "(symbol)", "True if SYMBOL is a symbol that names a special form.")
{
    return kri_bool(w, kri_is_symbol(argv[0]) && kri_code_of(kri_symbol_function(w->vm, argv[0]))->flags & KRI_CODE_SPECIAL);
}

KR_BUILTIN(function_lambda_expression, "function-lambda-expression", "(function)",
           "The (lambda parameters form..) that FUNCTION, a function or the name of one, was compiled from; nil for builtins.")
{
    kr_value f = argv[0];
    if (kri_is_symbol(f))
        f = kri_symbol_function(w->vm, f);
    if (kri_is_cons(f) && kri_eq(kri_car(f), w->vm->sym.lambda))
        return f;
    if (!kri_is_function(f))
        kri_argument_error(w, 0, f, KRI_E_ILLEGAL_FUNCTION);
    return kri_code_of(f)->source;
}

KR_BUILTIN(proclaim, "proclaim", "(declaration)",
           "Make a global declaration: (special name..) makes the names dynamically bound variables; (optimize (safety n)) sets "
           "comp:*safety*. Other declarations are accepted and have no effect. Returns nil.")
{
    kr_value d = kri_arg_cons(w, argv, 0);
    if (kri_is_symbol(kri_car(d)) && !kri_is_nil(kri_car(d))) {
        const struct kri_string *name = kri_string_of(kri_symbol_of(w->vm, kri_car(d))->pname);
        kr_value safety = name->head.length == 8 && memcmp(name->byte, "OPTIMIZE", 8) == 0 ? kri_optimize_safety(w, kri_cdr(d)) : KRI_NIL;
        if (!kri_is_nil(safety))
            kri_set_special(w, w->vm->sym.safety, safety);
    }
    if (!kri_eq(kri_car(d), w->vm->sym.special))
        return KRI_NIL;
    kri_form_length(w, d, d, KRI_E_DECLARATION_FORM);
    for (kr_value l = kri_cdr(d); !kri_is_nil(l); l = kri_cdr(l)) {
        kr_value name = kri_car(l);
        if (!kri_is_symbol(name))
            kri_error(w, KRI_E_NO_SYMBOL, name, "in %V", d);
        if (kri_is_nil(name) || kri_symbol_is_constant(w->vm, name))
            kri_error(w, KRI_E_NO_VARIABLE, name, "a constant");
        struct kri_symbol *s = kri_symbol_of(w->vm, name);
        kri_proclaim_special(w, name);
        if (kri_eq(kri_slot(&s->vtype), kri_fixnum(1)))
            kri_store(w, &s->head, &s->vtype, kri_fixnum(2));
    }
    return KRI_NIL;
}

struct progv {
    kr_value symbols, values, function;
};
static kr_value progv_step(struct kri_worker *w, void *arg)
{
    struct progv *p = arg;
    if (!kri_is_cons(p->symbols))
        return kri_call(w, p->function, 0, NULL);
    if (kri_native_exhausted(w))
        kri_error(w, KRI_E_STACK, KRI_NIL, "too many variables in progv");
    kr_value symbol = kri_car(p->symbols), value = kri_is_cons(p->values) ? kri_car(p->values) : KRI_NIL;
    if (!kri_is_symbol(symbol) || kri_is_nil(symbol) || kri_symbol_is_constant(w->vm, symbol))
        kri_error(w, KRI_E_NO_VARIABLE, symbol, "in progv");
    kri_proclaim_special(w, symbol);
    p->symbols = kri_cdr(p->symbols);
    p->values = kri_is_cons(p->values) ? kri_cdr(p->values) : KRI_NIL;
    return kri_with_binding(w, symbol, value, progv_step, p);
}

KR_BUILTIN(progv, "lisp::%progv", "(symbols values function)",
           "Call FUNCTION without arguments while the special variables SYMBOLS are bound to VALUES (nil where these run out).")
{
    struct progv p = {kri_arg_list(w, argv, 0), kri_arg_list(w, argv, 1), argv[2]};
    kri_form_length(w, p.symbols, p.symbols, KRI_E_NO_LIST);
    return progv_step(w, &p);
}

KR_BUILTIN(disassemble, "disassemble", "(function)",
           "Print the instructions of FUNCTION, a function or the name of one, with their meanings; of a native function also its C and, where "
           "objdump is installed, its machine code. Returns nil.")
{
    kr_value f = kri_coerce_function(w, argv[0]);
    kr_value stream = kri_special(w, w->vm->sym.standard_output);
    if (kri_code_of(f)->native)
        kri_native_disassemble(w, f, stream);
    else
        kri_disassemble(w, f, stream);
    return KRI_NIL;
}

KR_BUILTIN(open_code, "lisp::%open-code", "(&rest symbols)",
           "The functions that SYMBOLS name, mapcar or mapc, are the core's: their calls may be compiled as loops. Returns nil.")
{
    for (int i = 0; i < argc; i++) {
        kr_value symbol = kri_arg_symbol(w, argv, i);
        struct kri_code *code = kri_code_of(kri_symbol_function(w->vm, symbol));
        const struct kri_string *s = kri_string_of(kri_symbol_of(w->vm, symbol)->pname);
        for (const struct kri_inline_name *n = kri_inline_names; n->name; n++)
            if (n->number >= KRI_I_MAPC && strlen(n->name) == s->head.length && !memcmp(n->name, s->byte, s->head.length) &&
                !(code->flags & KRI_CODE_UNDEFINED))
                code->spare = (uint16_t)n->number;
    }
    return KRI_NIL;
}

const struct kri_builtin *const kri_builtins_compile[] = {
    &defun_def, &defmacro_def, &eval_def, &eval_in_def, &macroexpand_1_def, &macroexpand2_def, &macroexpand_def,
    &compile_stepping_def, &compile_stepping_method_def, &no_block_def, &special_form_p_def, &function_lambda_expression_def, &proclaim_def, &progv_def, &disassemble_def,
    &open_code_def,
    NULL,
};

/* ---- the special forms' names; call it after the builtins are defined ---- */

void kri_compile_init(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    for (unsigned i = 0; kri_special_forms[i].name; i++) {
        const struct kri_builtin *b = &kri_special_forms[i];
        kri_define_builtin(w, b);
        char name[32];
        size_t n = strlen(b->name);
        for (size_t j = 0; j < n; j++)
            name[j] = (char)toupper((unsigned char)b->name[j]);
        kr_value symbol = kri_intern(w, name, n, vm->pkg_lisp);
        struct kri_code *code = kri_code_of(kri_symbol_function(vm, symbol));
        code->flags |= KRI_CODE_SPECIAL;
        code->spare = (uint16_t)(i + 1);
    }
    for (unsigned i = 0; kri_inline_names[i].name; i++) {
        const char *name = kri_inline_names[i].name;
        kr_value symbol = kri_intern(w, name, strlen(name), vm->pkg_lisp);
        struct kri_code *code = kri_code_of(kri_symbol_function(vm, symbol));
        if (code->builtin && !(code->flags & (KRI_CODE_UNDEFINED | KRI_CODE_SPECIAL | KRI_CODE_MACRO)))
            code->spare = (uint16_t)kri_inline_names[i].number;
    }
}
