/* builtin.h -- how a function of the language is written in C: name, arglist, docstring, code in one place.
 *
 *   KR_BUILTIN(nthcdr, "nthcdr", "(n list)", "Return LIST without its first N conses ...")
 *   {
 *       intptr_t n = kri_arg_natural(w, argv, 0);
 *       ...
 *   }
 * NAME may carry a package: "sys:gc", "unix:getpid", "lisp::internal" (two colons: not exported). The arglist is the arity:
 * the caller checks it, so the body sees argc within bounds. Optional arguments that were not given are beyond argc.
 * Every builtin stands in one table: const struct kri_builtin *const kri_builtins_AREA[] = {&nthcdr_def, ..., NULL}; the
 * tables stand in lisp/builtins.c. w->callee is the running builtin. */
#ifndef KRI_LISP_BUILTIN_H
#define KRI_LISP_BUILTIN_H

struct kri_builtin {
    const char *name, *arglist, *doc;
    kri_builtin_fn fn;
};

#define KR_BUILTIN(id, name, arglist, doc)                                                                                       \
    static kr_value id##_fn(struct kri_worker *w, int argc, kr_value *argv);                                                     \
    static const struct kri_builtin id##_def = {name, arglist, doc, id##_fn};                                                    \
    static kr_value id##_fn(struct kri_worker *w __attribute__((unused)), int argc __attribute__((unused)),                     \
                            kr_value *argv __attribute__((unused)))

/* Defines BUILTIN in its package (exported unless "::"); its docstring answers to `documentation`. */
void kri_define_builtin(struct kri_worker *w, const struct kri_builtin *b);
/* Counts from an arglist's text: "(a b &optional c)" -> 2, 3; max -1 for any. False if the text is malformed. */
kr_value kri_make_builtin(struct kri_worker *w, kr_value name, kri_builtin_fn fn, const char *arglist, const char *doc);
/* The table in builtins.def that FN stands in, NULL if none. */
const char *kri_builtin_area(kri_builtin_fn fn);
bool kri_arity_parse(const char *arglist, int *min, int *max);

/* The running builtin's argument I as ..., or its type error. */
static inline intptr_t kri_arg_fixnum(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_fixnum(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_INTEGER);
    return kri_fixnum_value(argv[i]);
}
static inline intptr_t kri_arg_natural(struct kri_worker *w, const kr_value *argv, int i)
{
    intptr_t n = kri_arg_fixnum(w, argv, i);
    if (KRI_UNLIKELY(n < 0))
        kri_argument_error(w, i, argv[i], KRI_E_NO_INTEGER);
    return n;
}
static inline kr_value kri_arg_list(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_list(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_LIST);
    return argv[i];
}
static inline kr_value kri_arg_cons(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_cons(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_LIST);
    return argv[i];
}
static inline kr_value kri_arg_symbol(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_symbol(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_SYMBOL);
    return argv[i];
}
static inline struct kri_string *kri_arg_string(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_string(w->vm, argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_STRING);
    return kri_string_of(argv[i]);
}
static inline struct kri_fvector *kri_arg_fvector(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_fvector(w->vm, argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_FLOAT_VECTOR);
    return kri_fvector_of(argv[i]);
}
static inline double kri_arg_double(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_number(argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_NUMBER);
    return kri_to_double(w, argv[i]);
}
static inline kr_value kri_arg_class(struct kri_worker *w, const kr_value *argv, int i)
{
    if (KRI_UNLIKELY(!kri_is_class(w->vm, argv[i])))
        kri_argument_error(w, i, argv[i], KRI_E_NO_CLASS);
    return argv[i];
}
/* An optional argument: given and not beyond argc? */
static inline kr_value kri_arg_optional(int argc, const kr_value *argv, int i, kr_value otherwise)
{
    return i < argc ? argv[i] : otherwise;
}
/* Keyword arguments from argv[from..argc): the value of KEY, or OTHERWISE. kri_check_keys refuses others than the
 * NULL-terminated list of keyword symbols and odd counts (EusLisp's codes 69 and 70). */
kr_value kri_arg_key(int argc, const kr_value *argv, int from, kr_value key, kr_value otherwise);
void kri_check_keys(struct kri_worker *w, int argc, const kr_value *argv, int from, const kr_value *allowed, int n);

#endif
