/* compile_late.c -- functions and macros that do not come in the order in which a compiler wants them.
 *
 * EusLisp expands a macro when the form that uses it is evaluated. So its programs may define a function before the macros that
 * it uses, and a macro before the functions that its expander calls. Here a function is compiled where it is defined, and two
 * things make up for that:
 *  - A definition that cannot be compiled yet becomes a function that is compiled at its first call (kri_late_function); the
 *    error is raised then, if it still stands.
 *  - *macro-users* keeps the names of the functions in which a user's macro was expanded or a function called that was not
 *    defined. When such a symbol becomes a macro, or another macro, these functions are compiled again (kri_macro_changed).
 *  - Other forms, and a definition at its first call, cannot wait: there a call of an undefined function is compiled with a second way, which
 *    evaluates the form anew if its name is a macro's by then, and setf of an undefined place is evaluated when it is reached.
 * Closures, and functions inside flet or macrolet, are not compiled again: their source is not all there is to them. */
#include "lisp/compile.h"
#include "lisp/interp.h"
#include "lisp/native.h"
#include "lisp/sequence.h"

/* ---- attempts ---- */

struct attempt {
    kr_value (*f)(struct kri_worker *w, void *arg);
    void *arg;
    bool definition;
};

static kr_value attempt_definition(struct kri_worker *w, void *arg)
{
    struct attempt *a = arg;
    if (!a->definition)
        return a->f(w, a->arg);
    return kri_with_binding(w, w->vm->sym.compiling_definition, w->vm->sym.t, a->f, a->arg);
}

static kr_value attempt_inside(struct kri_worker *w, void *arg)
{
    struct kr_vm *vm = w->vm;
    kr_value leave = kri_symbol_function(vm, kri_intern(w, "%LEAVE-ATTEMPT", 14, vm->pkg_lisp));
    kr_value cluster = kri_list(w, 1, kri_cons(w, vm->classes[KRI_CLASS_ERROR].object, leave));
    kr_value clusters = kri_cons(w, cluster, kri_special(w, vm->sym.handler_clusters));
    return kri_with_binding(w, vm->sym.handler_clusters, clusters, attempt_definition, arg);
}

KR_BUILTIN(leave_attempt, "lisp::%leave-attempt", "(condition)",
           "The handler of an attempt to compile: leave it with CONDITION. It declines what is not the program's fault: a full stack or "
           "heap, an interrupt.")
{
    if (!kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_ERROR].object))
        kri_argument_error(w, 0, argv[0], KRI_E_TYPE_MISMATCH);
    const struct kri_condition *e = (const struct kri_condition *)argv[0].w;
    intptr_t code = kri_is_fixnum(e->code) ? kri_fixnum_value(e->code) : 0;
    if (code == KRI_E_STACK || code == KRI_E_ALLOCATION || code == KRI_E_INTERRUPT)
        return KRI_NIL;
    struct kri_entry *barrier = w->ctx->entry;
    while (barrier && !barrier->barrier)
        barrier = barrier->prev;
    kri_unwind_to(w, barrier ? barrier->handler : NULL, argv[0]);
}

bool kri_attempt(struct kri_worker *w, kr_value (*f)(struct kri_worker *w, void *arg), void *arg, bool definition, kr_value *result)
{
    struct attempt a = {f, arg, definition};
    struct kr_context *ctx = w->ctx;
    kr_value callee = w->callee;
    bool done = kri_protect(w, attempt_inside, &a, result);
    w->callee = callee;
    if (done)
        return true;
    if (!kri_is_nil(*result)) {
        const struct kri_condition *e = (const struct kri_condition *)result->w;
        intptr_t code = kri_is_fixnum(e->code) ? kri_fixnum_value(e->code) : 0;
        if (code == KRI_E_STACK || code == KRI_E_ALLOCATION || code == KRI_E_INTERRUPT)
            kri_raise(w, *result);
        return false;
    }
    /* A macro's expander threw. */
    kr_value *h = ctx->thrown >= 0 ? kri_find_handler(ctx, (enum kri_handler_kind)ctx->thrown, ctx->thrown_tag) : NULL;
    if (h)
        kri_unwind_to(w, h, ctx->thrown_value);
    kri_error(w, KRI_E_INTERRUPT, KRI_NIL, NULL);
}

/* Is a form compiled that cannot be compiled again later? */
bool kri_last_chance(struct kri_worker *w) { return kri_late_ready(w) && kri_is_nil(kri_special(w, w->vm->sym.compiling_definition)); }

bool kri_late_ready(struct kri_worker *w) { return kri_has_class(kri_special(w, w->vm->sym.macro_users), KRI_CLASS_HASH_TABLE); }

/* ---- definitions that wait ---- */

static kr_value quoted(struct kri_worker *w, kr_value v) { return kri_list(w, 2, w->vm->sym.quote, v); }

static void pose_as(struct kri_worker *w, kr_value fn, kr_value source)
{
    struct kri_code *code = kri_code_of(fn);
    kr_value body = kri_cdr(kri_cdr(source));
    unsigned line = kri_position_line(w, kri_car(kri_cdr(source)));
    for (kr_value l = body; !line && kri_is_cons(l); l = kri_cdr(l))
        line = kri_position_line(w, kri_car(l));
    code->line = line;
    kri_store(w, &code->head, &code->source, source);
    kri_store(w, &code->head, &code->lambda_list, kri_car(kri_cdr(source)));
    if (kri_is_cons(body) && kri_is_string(w->vm, kri_car(body)) && kri_is_cons(kri_cdr(body)))
        kri_store(w, &code->head, &code->documentation, kri_car(body));
}

/* Mistakes that no later definition can mend are worth a word when they are made. */
static void warn(struct kri_worker *w, kr_value name, kr_value condition)
{
    const struct kri_condition *e = (const struct kri_condition *)condition.w;
    if (kri_eq(e->code, kri_fixnum(KRI_E_UNDEFINED)) || kri_eq(e->code, kri_fixnum(KRI_E_UNBOUND)))
        return;
    kr_value f = kri_symbol_function(w->vm, kri_intern(w, "WARN-LATE", 9, w->vm->pkg_lisp));
    kri_call2(w, f, name, condition);
}

/* (apply '%compile-late name source where args), the body of what stands for the function until its first call. */
static kr_value late_body(struct kri_worker *w, kr_value name, kr_value source, kr_value where, kr_value self, kr_value args)
{
    kr_value late = kri_intern(w, "%COMPILE-LATE", 13, w->vm->pkg_lisp);
    kr_value call = kri_list(w, 2, self, args);
    if (kri_is_nil(self))
        call = kri_cdr(call);
    call = kri_cons(w, quoted(w, where), call);
    call = kri_cons(w, quoted(w, name), kri_cons(w, quoted(w, source), call));
    return kri_cons(w, w->vm->sym.apply, kri_cons(w, quoted(w, late), call));
}

kr_value kri_late_function(struct kri_worker *w, kr_value name, kr_value source, bool macro, kr_value condition)
{
    struct kri_symbols *sym = &w->vm->sym;
    kr_value args = kri_intern(w, "ARGUMENTS", 9, w->vm->pkg_lisp), list = kri_list(w, 2, sym->amp_rest, args);
    kr_value where = macro ? sym->macro : sym->function;
    kr_value fn = kri_compile_lambda(w, name, kri_list(w, 3, sym->lambda, list, late_body(w, name, source, where, KRI_NIL, args)));
    if (macro) {
        kri_code_of(fn)->flags |= KRI_CODE_MACRO;
        kri_ptr(fn)->length = 0;
    }
    pose_as(w, fn, source);
    warn(w, name, condition);
    return fn;
}

kr_value kri_late_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value source, kr_value condition)
{
    struct kri_symbols *sym = &w->vm->sym;
    kr_value args = kri_intern(w, "ARGUMENTS", 9, w->vm->pkg_lisp), list = kri_list(w, 2, sym->amp_rest, args);
    kr_value body = kri_list(w, 1, late_body(w, selector, source, cls, sym->self, args));
    kr_value fn = kri_compile_method(w, cls, selector, list, body);
    pose_as(w, fn, source);
    warn(w, kri_code_of(fn)->name, condition);
    return fn;
}

static kr_value method_entry(kr_value cls, kr_value selector)
{
    for (kr_value l = kri_slot(&kri_metaclass_of(cls)->methods); kri_is_cons(l); l = kri_cdr(l))
        if (kri_eq(kri_car(kri_car(l)), selector))
            return kri_car(l);
    return KRI_NIL;
}

static kr_value entry_function(kr_value entry) { return kri_car(kri_cdr(entry)); }

static kr_value compile_function(struct kri_worker *w, kr_value name, kr_value source, bool macro)
{
    kr_value fn = kri_compile_lambda(w, name, source);
    if (macro) {
        kri_code_of(fn)->flags |= KRI_CODE_MACRO;
        kri_ptr(fn)->length = 0;
    }
    return fn;
}

static kr_value compile_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value source)
{
    return kri_compile_method(w, cls, selector, kri_car(kri_cdr(source)), kri_cdr(kri_cdr(source)));
}

/* A definition to be compiled again: CLS is NIL, or the class of the method NAME. */
struct renewal {
    kr_value name, cls, source;
    bool macro;
};

static kr_value renewed(struct kri_worker *w, void *arg)
{
    const struct renewal *r = arg;
    return kri_is_nil(r->cls) ? compile_function(w, r->name, r->source, r->macro) : compile_method(w, r->cls, r->name, r->source);
}

/* Compile at the first call: what still does not compile raises its error when it is reached. */
static kr_value second_chance(struct kri_worker *w, struct renewal *r)
{
    kr_value fn;
    if (kri_attempt(w, renewed, r, false, &fn))
        return fn;
    return kri_compile_tolerant(w, r->cls, r->name, r->source, r->macro);
}

KR_BUILTIN(compile_late, "lisp::%compile-late", "(name source where &rest arguments)",
           "Compile SOURCE, a lambda list, which could not be compiled when it was defined, and call it with ARGUMENTS. WHERE: function "
           "or macro, whose NAME is, or the class of the method NAME. If the definition still stands, the function takes its place.")
{
    struct kr_vm *vm = w->vm;
    kr_value name = kri_arg_symbol(w, argv, 0), source = argv[1], where = argv[2], fn;
    bool macro = kri_eq(where, vm->sym.macro);
    w->callee = kri_running_function(w->ctx); /* errors are the stub's, not this builtin's */
    if (!kri_is_cons(source) || !kri_is_cons(kri_cdr(source)))
        kri_argument_error(w, 1, source, KRI_E_LAMBDA_FORM);
    if (kri_is_class(vm, where)) {
        fn = second_chance(w, &(struct renewal){name, where, source, false});
        kr_value entry = method_entry(where, name);
        if (kri_is_cons(entry) && kri_eq(kri_code_of(entry_function(entry))->source, source))
            kri_replace_method(w, where, name, entry_function(entry), fn);
    } else {
        fn = second_chance(w, &(struct renewal){name, KRI_NIL, source, macro});
        kr_value old = kri_symbol_function(vm, name);
        if (kri_eq(kri_code_of(old)->source, source))
            kri_replace_function(w, name, old, fn);
    }
    if (macro)
        return kri_call_macro(w, fn, argc - 3, argv + 3);
    memmove(argv, argv + 3, (size_t)(argc - 3) * sizeof *argv);
    return kri_tail_call(w, fn, argc - 3);
}

/* ---- who uses a macro ---- */

static kr_value call_named(struct kri_worker *w, const char *name, int argc, kr_value a, kr_value b, kr_value c)
{
    kr_value argv[3] = {a, b, c};
    return kri_call(w, kri_symbol_function(w->vm, kri_intern(w, name, strlen(name), w->vm->pkg_lisp)), argc, argv);
}

void kri_note_macro_use(struct kri_compiler *c, kr_value symbol)
{
    struct kri_worker *w = c->w;
    kr_value table = kri_special(w, c->vm->sym.macro_users);
    if (!kri_has_class(table, KRI_CLASS_HASH_TABLE))
        return;
    for (struct kri_fn *f = c->fn; f; f = f->parent) {
        if (f->inside || kri_is_nil(f->name) || kri_eq(f->name, symbol))
            continue;
        kr_value users = call_named(w, "GETHASH", 2, symbol, table, KRI_NIL);
        if (!kri_is_cons(users) || !kri_eq(kri_car(users), f->name))
            call_named(w, "SETHASH", 3, symbol, table, kri_cons(w, f->name, users));
    }
}

static void renew(struct kri_worker *w, kr_value name)
{
    struct kr_vm *vm = w->vm;
    struct renewal r = {name, KRI_NIL, KRI_NIL, false};
    kr_value old, entry = KRI_NIL, fn;
    if (kri_is_cons(name)) {
        r.cls = kri_slot(&kri_symbol_of(vm, kri_car(name))->value);
        r.name = kri_car(kri_cdr(name));
        if (!kri_is_class(vm, r.cls) || !kri_is_cons(entry = method_entry(r.cls, r.name)))
            return;
        old = entry_function(entry);
    } else {
        old = kri_symbol_function(vm, name);
    }
    const struct kri_code *code = kri_code_of(old);
    r.source = code->source;
    r.macro = code->flags & KRI_CODE_MACRO;
    if (kri_is_builtin_code(code) || code->captures || !kri_is_cons(r.source))
        return;
    if (!kri_attempt(w, renewed, &r, true, &fn))
        fn = kri_is_nil(r.cls) ? kri_late_function(w, r.name, r.source, r.macro, fn) : kri_late_method(w, r.cls, r.name, r.source, fn);
    if (kri_is_nil(r.cls))
        kri_replace_function(w, name, old, fn);
    else
        kri_replace_method(w, r.cls, r.name, old, fn);
}

void kri_macro_changed(struct kri_worker *w, kr_value symbol, kr_value old, kr_value fn)
{
    const struct kri_code *before = kri_code_of(old), *now = kri_code_of(fn);
    kr_value table = kri_special(w, w->vm->sym.macro_users);
    bool was = before->flags & KRI_CODE_MACRO, is = now->flags & KRI_CODE_MACRO;
    if ((!was && !is && !(before->flags & KRI_CODE_UNDEFINED)) || !kri_has_class(table, KRI_CLASS_HASH_TABLE))
        return;
    if (was && is && kri_equal(w, before->source, now->source))
        return;
    kr_value users = call_named(w, "GETHASH", 2, symbol, table, KRI_NIL);
    if (kri_is_nil(users))
        return;
    call_named(w, "REMHASH", 2, symbol, table, KRI_NIL);
    if (was || is)
        for (; kri_is_cons(users); users = kri_cdr(users))
            renew(w, kri_car(users));
}

KR_BUILTIN(raise_late, "lisp::%raise-late", "(condition)", "Raise CONDITION, why the form in whose place this stands could not be compiled.")
{
    if (!kri_is_pointer(argv[0]) || !kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_ERROR].object))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_OBJECT);
    kri_raise(w, argv[0]);
}

KR_BUILTIN(late_ready, "lisp::%late-ready", "()", "Is the core there that late definitions need?") { return kri_bool(w, kri_late_ready(w)); }

KR_BUILTIN(note_macro_users, "lisp::%note-macro-users", "(users)",
           "Note in *macro-users* what a module of native code was compiled with: USERS is a list of (symbol function-name..). Returns nil.")
{
    kr_value table = kri_special(w, w->vm->sym.macro_users);
    if (!kri_has_class(table, KRI_CLASS_HASH_TABLE))
        return KRI_NIL;
    kri_list_length(w, argv[0]); /* not circular */
    for (kr_value l = argv[0]; kri_is_cons(l); l = kri_cdr(l)) {
        kr_value entry = kri_car(l);
        if (!kri_is_cons(entry))
            kri_argument_error(w, 0, entry, KRI_E_NO_LIST);
        kri_list_length(w, entry);
        kr_value users = call_named(w, "GETHASH", 2, kri_car(entry), table, KRI_NIL);
        for (kr_value names = kri_cdr(entry); kri_is_cons(names); names = kri_cdr(names))
            users = kri_cons(w, kri_car(names), users);
        call_named(w, "SETHASH", 3, kri_car(entry), table, users);
    }
    return KRI_NIL;
}

const struct kri_builtin *const kri_builtins_late[] = {&late_ready_def, &raise_late_def, &note_macro_users_def, &leave_attempt_def, &compile_late_def, NULL};
