/* builtin_control.c -- functions, calls, errors. */
#include "lisp/compile.h"
#include "lisp/interp.h"
#include "lisp/native.h"

KR_BUILTIN(funcall, "funcall", "(function &rest args)",
           "Call FUNCTION (a function, its name, or a lambda list) with ARGS. Errors: illegal function, undefined function.")
{
    kr_value fn = kri_coerce_function(w, argv[0]);
    memmove(argv, argv + 1, (size_t)(argc - 1) * sizeof *argv);
    return kri_tail_call(w, fn, argc - 1);
}

KR_BUILTIN(apply, "apply", "(function &rest args)",
           "Call FUNCTION with ARGS, the last of which is a list whose elements are spread; a last argument that is no list counts as nil.")
{
    struct kr_context *ctx = w->ctx;
    kr_value fn = kri_coerce_function(w, argv[0]);
    if (argc == 1)
        return kri_tail_call(w, fn, 0);
    kr_value list = argv[argc - 1];
    size_t n = 0;
    for (kr_value l = list; kri_is_cons(l); l = kri_cdr(l))
        if (++n > w->vm->stack_limit_words)
            kri_error(w, KRI_E_CIRCULAR, list, "or more arguments than the stack holds");
    int given = argc - 2;
    if (argv + given + n + KRI_FRAME_SLACK <= ctx->segment->limit && argv >= ctx->segment->slot) {
        memmove(argv, argv + 1, (size_t)given * sizeof *argv);
        for (; n > 0 && kri_is_cons(list); n--, list = kri_cdr(list))
            argv[given++] = kri_car(list);
        return kri_tail_call(w, fn, given);
    }
    /* No room in this segment: the arguments wait in a vector while the call makes room. */
    kr_value v = kri_make_vector(w, (size_t)given + n);
    struct kri_vector *vec = kri_vector_of(v);
    memcpy(vec->at, argv + 1, (size_t)given * sizeof *argv);
    size_t i = (size_t)given;
    for (; i < kri_length(v) && kri_is_cons(list); i++, list = kri_cdr(list))
        vec->at[i] = kri_car(list);
    return kri_call(w, fn, (int)i, vec->at);
}

KR_BUILTIN(fboundp, "fboundp", "(symbol)", "t if SYMBOL names a function, macro or special form.")
{
    return kri_bool(w, kri_fboundp(w->vm, kri_arg_symbol(w, argv, 0)));
}

KR_BUILTIN(symbol_function, "symbol-function", "(symbol)",
           "The function that SYMBOL names. Its text is function-lambda-expression's. Error: undefined function.")
{
    kr_value s = kri_arg_symbol(w, argv, 0);
    if (!kri_fboundp(w->vm, s))
        kri_error(w, KRI_E_UNDEFINED, s, NULL);
    return kri_symbol_function(w->vm, s);
}

KR_BUILTIN(set_symbol_function, "lisp::%set-symbol-function", "(symbol function)",
           "Make SYMBOL name FUNCTION: a function, or a list (lambda ..) or (macro ..), which is compiled. Returns FUNCTION.")
{
    struct kr_vm *vm = w->vm;
    kr_value s = kri_arg_symbol(w, argv, 0), fn = argv[1];
    if (kri_is_cons(fn) && kri_eq(kri_car(fn), vm->sym.macro)) {
        fn = kri_compile_lambda(w, s, kri_cons(w, vm->sym.lambda, kri_cdr(fn)));
        kri_code_of(fn)->flags |= KRI_CODE_MACRO;
        kri_ptr(fn)->length = 0;
    } else if (kri_is_cons(fn) && kri_eq(kri_car(fn), vm->sym.lambda)) {
        fn = kri_compile_lambda(w, s, fn);
    } else if (kri_is_symbol(fn) && !kri_is_nil(fn)) {
        fn = kri_coerce_function(w, fn);
    }
    if (!kri_is_function(fn))
        kri_argument_error(w, 1, fn, KRI_E_ILLEGAL_FUNCTION);
    kri_check_definable(w, s);
    kr_value old = kri_symbol_function(vm, s);
    kri_set_function(w, s, fn);
    kri_macro_changed(w, s, old, fn);
    return argv[1];
}

KR_BUILTIN(fmakunbound, "fmakunbound", "(symbol)", "Make SYMBOL name no function; returns SYMBOL.")
{
    kri_set_function(w, kri_arg_symbol(w, argv, 0), w->vm->undefined);
    return argv[0];
}

KR_BUILTIN(functionp, "functionp", "(object)",
           "t for functions, lambda lists, and symbols that name a function (not a macro or special form).")
{
    kr_value f = argv[0];
    if (kri_is_cons(f))
        return kri_bool(w, kri_eq(kri_car(f), w->vm->sym.lambda) || kri_eq(kri_car(f), w->vm->sym.lambda_closure));
    if (kri_is_symbol(f))
        f = kri_symbol_function(w->vm, f);
    return kri_bool(w, kri_is_function(f) && !(kri_code_of(f)->flags & (KRI_CODE_MACRO | KRI_CODE_SPECIAL | KRI_CODE_UNDEFINED)));
}

KR_BUILTIN(compiled_function_p, "compiled-function-p", "(object)", "t if OBJECT is a function object.")
{
    return kri_bool(w, kri_is_function(argv[0]));
}

KR_BUILTIN(macro_function, "macro-function", "(symbol)", "The expander of the macro SYMBOL, or nil if it names none or is no symbol.")
{
    if (!kri_is_symbol(argv[0]))
        return KRI_NIL;
    kr_value f = kri_symbol_function(w->vm, argv[0]);
    return kri_code_of(f)->flags & KRI_CODE_MACRO ? f : KRI_NIL;
}

KR_BUILTIN(as_macro, "lisp::%as-macro", "(function)", "Make FUNCTION, and all that share its code, the expander of a macro. Returns FUNCTION.")
{
    if (!kri_is_function(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_ILLEGAL_FUNCTION);
    kri_code_of(argv[0])->flags |= KRI_CODE_MACRO;
    kri_ptr(argv[0])->length = 0;
    return argv[0];
}

KR_BUILTIN(function_name, "lisp::%function-name", "(function)", "What FUNCTION was defined as.")
{
    return kri_is_function(argv[0]) ? kri_code_of(argv[0])->name : KRI_NIL;
}

KR_BUILTIN(function_arglist, "lisp::%function-arglist", "(function)", "The lambda list of FUNCTION; of a builtin, its text.")
{
    return kri_is_function(argv[0]) ? kri_code_of(argv[0])->lambda_list : KRI_NIL;
}

KR_BUILTIN(function_documentation, "lisp::%function-documentation", "(function)", "The docstring of FUNCTION, or nil.")
{
    return kri_is_function(argv[0]) ? kri_code_of(argv[0])->documentation : KRI_NIL;
}

KR_BUILTIN(function_area, "lisp::%function-area", "(function)", "For a FUNCTION of the system the area it belongs to, a string: a table of builtins or a file of the core; else nil.")
{
    if (!kri_is_function(argv[0]))
        return KRI_NIL;
    const struct kri_code *code = kri_code_of(argv[0]);
    const char *area = kri_is_builtin_code(code) ? kri_builtin_area(code->builtin) : NULL;
    return area ? kri_string(w, area) : code->file;
}

KR_BUILTIN(function_file, "lisp::%function-file", "(function)", "(file line) of FUNCTION's definition, or nil.")
{
    if (!kri_is_function(argv[0]))
        return KRI_NIL;
    const struct kri_code *code = kri_code_of(argv[0]);
    return kri_is_nil(code->file) ? KRI_NIL : kri_list(w, 2, code->file, kri_fixnum((intptr_t)code->line));
}

KR_BUILTIN(symbol_value_global, "lisp::%global-value", "(symbol)", "The global value of SYMBOL, whatever is bound; nil if unbound.")
{
    kr_value v = kri_slot(&kri_symbol_of(w->vm, kri_arg_symbol(w, argv, 0))->value);
    return kri_eq(v, KRI_UNBOUND) ? KRI_NIL : v;
}

KR_BUILTIN(set_global, "lisp::%set-global", "(symbol value)", "Set the global value of SYMBOL, constant or not; returns VALUE.")
{
    struct kri_symbol *s = kri_symbol_of(w->vm, kri_arg_symbol(w, argv, 0));
    kri_store(w, &s->head, &s->value, argv[1]);
    return argv[1];
}

KR_BUILTIN(proclaim_special, "lisp::%proclaim-special", "(symbol)", "Make SYMBOL a special variable; returns SYMBOL.")
{
    kr_value s = kri_arg_symbol(w, argv, 0);
    if (kri_eq(kri_symbol_of(w->vm, s)->vtype, kri_fixnum(0)))
        kri_error(w, KRI_E_NO_VARIABLE, s, "a constant");
    kri_proclaim_special(w, s);
    return s;
}

KR_BUILTIN(set_vtype, "lisp::%set-vtype", "(symbol vtype)",
           "Set SYMBOL's kind: 0 constant, 1 variable, 2 special, 3 and up thread-local special. Returns VTYPE.")
{
    struct kri_symbol *s = kri_symbol_of(w->vm, kri_arg_symbol(w, argv, 0));
    intptr_t n = kri_arg_natural(w, argv, 1);
    if (n >= 2)
        kri_proclaim_special(w, argv[0]);
    kri_store(w, &s->head, &s->vtype, kri_fixnum(n));
    return argv[1];
}

/* ---- errors ---- */

static kr_value formatted(struct kri_worker *w, int argc, kr_value *argv)
{
    enum { MOST = 60 };
    kr_value v[MOST];
    int n = argc < MOST - 1 ? argc : MOST - 1;
    v[0] = KRI_NIL;
    memcpy(v + 1, argv, (size_t)n * sizeof *v);
    return kri_call(w, kri_symbol_function(w->vm, w->vm->sym.format), n + 1, v);
}

static void complete_and_raise(struct kri_worker *w, kr_value condition)
{
    struct kri_condition *c = (struct kri_condition *)condition.w;
    kri_complete_condition(w, c);
    kri_raise(w, condition);
}

/* (error 'class :slot value..) */
static void raise_new(struct kri_worker *w, int argc, kr_value *argv)
{
    kr_value make = kri_symbol_function(w->vm, w->vm->sym.make_condition);
    complete_and_raise(w, kri_call(w, make, argc, argv));
}

KR_BUILTIN(error, "error", "(control &rest args)",
           "Raise a user error (code 76) whose text is CONTROL formatted with ARGS; or the condition CONTROL; or, if CONTROL names a class of "
           "conditions, a new one whose slots ARGS give, as for make-condition; or, if CONTROL is EusLisp's code of an error, that error, "
           "with ARGS, a control string and its arguments, as detail.")
{
    struct kr_vm *vm = w->vm;
    if (kri_is_pointer(argv[0]) && kri_derivedp(vm, argv[0], vm->classes[KRI_CLASS_CONDITION].object)) {
        complete_and_raise(w, argv[0]);
    }
    if (kri_is_fixnum(argv[0])) {
        kr_value detail = argc > 1 && kri_is_string(vm, argv[1]) ? formatted(w, argc - 1, argv + 1) : KRI_NIL;
        w->callee = kri_running_function(w->ctx);
        if (kri_is_nil(detail))
            kri_error(w, (int)kri_arg_natural(w, argv, 0), KRI_NIL, NULL);
        kri_error(w, (int)kri_arg_natural(w, argv, 0), KRI_NIL, "%s", (const char *)kri_string_of(detail)->byte);
    }
    if (kri_is_symbol(argv[0]) && !kri_is_nil(argv[0])) {
        kr_value named = kri_symbol_function(vm, vm->sym.condition_class_named);
        if (!kri_is_nil(kri_call1(w, named, argv[0])))
            raise_new(w, argc, argv);
    }
    if (!kri_is_string(vm, argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER);
    kr_value text = formatted(w, argc, argv), call = KRI_NIL;
    for (int i = argc; i-- > 0;)
        call = kri_cons(w, argv[i], call);
    kri_error_user(w, text, kri_cons(w, kri_code_of(w->callee)->name, call));
}

KR_BUILTIN(raise_code, "lisp::%error-code", "(code form &optional detail)",
           "Raise the error with EusLisp's CODE about FORM; DETAIL is text. For Lisp-defined functions of the system.")
{
    int code = (int)kri_arg_natural(w, argv, 0);
    w->callee = kri_running_function(w->ctx); /* the Lisp function that calls is the one at fault */
    if (argc > 2 && kri_is_string(w->vm, argv[2]))
        kri_error(w, code, argv[1], "%s", (const char *)kri_string_of(argv[2])->byte);
    kri_error(w, code, argv[1], NULL);
}

KR_BUILTIN(signal_condition, "lisp::%signal", "(condition)", "Call the handlers that match CONDITION; nil when all decline.")
{
    if (!kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_CONDITION].object))
        kri_argument_error(w, 0, argv[0], KRI_E_TYPE_MISMATCH);
    kri_signal(w, argv[0]);
    return KRI_NIL;
}

KR_BUILTIN(install_error_handler, "lisp::install-error-handler", "(function)",
           "Have FUNCTION called with (code message form &optional extra) at every error, before *error-handler* is looked at; nil "
           "removes it. It handles an error by leaving with throw; returning declines.")
{
    w->vm->error_handler = argv[0];
    return argv[0];
}

KR_BUILTIN(set_condition_classes, "lisp::%set-condition-classes", "(alist)", "Set the classes of errors: an alist from code to class.")
{
    struct kr_vm *vm = w->vm;
    vm->condition_classes = kri_arg_list(w, argv, 0);
    vm->memory_condition = kri_ready_condition(w, KRI_E_ALLOCATION);
    vm->budget_condition = kri_ready_condition(w, KRI_E_BUDGET);
    vm->stack_condition = kri_ready_condition(w, KRI_E_STACK);
    return argv[0];
}

KR_BUILTIN(error_text, "lisp::%error-text", "(code)", "EusLisp's text of error CODE.")
{
    return kri_string(w, kri_error_text((int)kri_arg_natural(w, argv, 0)));
}

KR_BUILTIN(backtrace, "lisp::%backtrace", "(&optional (n 20))",
           "The innermost N frames as a list of (function file line arg...).")
{
    return kri_backtrace(w, (int)kri_fixnum_value(kri_arg_optional(argc, argv, 0, kri_fixnum(20))));
}

struct protected_call {
    kr_value fn;
};

static kr_value run_protected(struct kri_worker *w, void *arg)
{
    return kri_call(w, ((struct protected_call *)arg)->fn, 0, NULL);
}

KR_BUILTIN(protected_call, "lisp::%protected-call", "(function)",
           "Call FUNCTION without arguments, letting no error or throw pass: (t value), or (nil condition).")
{
    struct protected_call c = {argv[0]};
    kr_value v;
    bool ok = kri_protect(w, run_protected, &c, &v);
    return kri_list(w, 2, kri_bool(w, ok), v);
}

KR_BUILTIN(last_condition, "lisp::%last-condition", "()", "The condition that this thread's error handler was last called for, or nil.")
{
    return w->ctx->condition;
}

const struct kri_builtin *const kri_builtins_control[] = {
    &funcall_def, &apply_def, &fboundp_def, &symbol_function_def, &set_symbol_function_def, &fmakunbound_def, &functionp_def,
    &compiled_function_p_def, &macro_function_def, &as_macro_def, &function_name_def, &function_arglist_def, &function_documentation_def,
    &function_area_def, &function_file_def, &symbol_value_global_def, &set_global_def, &proclaim_special_def, &set_vtype_def, &error_def,
    &raise_code_def, &signal_condition_def, &install_error_handler_def, &set_condition_classes_def, &error_text_def,
    &backtrace_def, &protected_call_def, &last_condition_def, NULL};
