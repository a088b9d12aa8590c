/* builtin.c -- entering C functions into the language: arity from the arglist's text, the function cell, the docstring. */
#include <ctype.h>
#include "lisp/host.h"
#include "lisp/interp.h"
#include "lisp/opcode.h"

/* The next word or parenthesised group at *P; empty at the end or at an unbalanced parenthesis. */
static size_t next_item(const char **p)
{
    while (isspace((unsigned char)**p))
        ++*p;
    const char *start = *p;
    int depth = 0;
    while (**p && (depth > 0 || (!isspace((unsigned char)**p) && **p != ')'))) {
        depth += **p == '(' ? 1 : **p == ')' ? -1 : 0;
        ++*p;
    }
    return depth == 0 ? (size_t)(*p - start) : 0;
}

bool kri_arity_parse(const char *arglist, int *min, int *max)
{
    enum { REQUIRED, OPTIONAL, TAIL } state = REQUIRED;
    const char *p = arglist;
    *min = *max = 0;
    if (*p++ != '(')
        return false;
    for (;;) {
        size_t n = next_item(&p);
        const char *item = p - n;
        if (n == 0)
            break;
        if (*item == '&') {
            if (n == 9 && memcmp(item, "&optional", 9) == 0 && state == REQUIRED)
                state = OPTIONAL;
            else if ((n == 5 && memcmp(item, "&rest", 5) == 0) || (n == 4 && memcmp(item, "&key", 4) == 0))
                state = TAIL;
            else if (n != 17)
                return false;
            continue;
        }
        if (state == REQUIRED)
            ++*min;
        if (state != TAIL)
            ++*max;
    }
    while (isspace((unsigned char)*p))
        p++;
    if (p[0] != ')' || p[1] != '\0')
        return false;
    if (state == TAIL)
        *max = -1;
    return true;
}

static kr_value package_of(struct kr_vm *vm, const char *prefix, size_t n)
{
    if (n == 3 && memcmp(prefix, "sys", 3) == 0)
        return vm->pkg_system;
    if (n == 4 && memcmp(prefix, "unix", 4) == 0)
        return vm->pkg_unix;
    if (n == 4 && memcmp(prefix, "comp", 4) == 0)
        return vm->pkg_compiler;
    if (n == 4 && memcmp(prefix, "user", 4) == 0)
        return vm->pkg_user;
    return vm->pkg_lisp;
}

kr_value kri_make_builtin(struct kri_worker *w, kr_value name, kri_builtin_fn fn, const char *arglist, const char *doc)
{
    int min, max;
    if (!kri_arity_parse(arglist, &min, &max))
        kri_error(w, KRI_E_LAMBDA_PARAMETER, name, "malformed arglist %s", arglist);
    kr_value lambda_list = kri_string(w, arglist), documentation = doc ? kri_string(w, doc) : KRI_NIL;
    struct kri_code *code = (struct kri_code *)kri_make(w, KRI_CLASS_CODE, 1, (sizeof *code - 8) / 8 + 1);
    code->name = name;
    code->lambda_list = lambda_list;
    code->documentation = documentation;
    code->builtin = fn;
    code->nreq = (uint16_t)min;
    code->max = max;
    code->instr[0] = kri_encode(KRI_OP_BUILTIN, 0, 0, 0);
    struct kri_function *f = (struct kri_function *)kri_make(w, KRI_CLASS_COMPILED_CODE, 0, 1);
    f->code = kri_value_of(code);
    return kri_value_of(f);
}

void kri_define_builtin(struct kri_worker *w, const struct kri_builtin *b)
{
    struct kr_vm *vm = w->vm;
    const char *name = b->name, *colon = strchr(name, ':');
    kr_value package = vm->pkg_lisp;
    bool internal = false;
    if (colon && colon > name) {
        package = package_of(vm, name, (size_t)(colon - name));
        internal = colon[1] == ':';
        name = colon + 1 + internal;
    }
    char upper[80] = "";
    size_t n = 0;
    for (; name[n] && n < sizeof upper; n++)
        upper[n] = (char)toupper((unsigned char)name[n]);
    kr_value symbol = kri_intern(w, upper, n, package);
    if (!internal)
        kri_export(w, symbol, package);
    kr_value fn = kri_make_builtin(w, symbol, b->fn, b->arglist, b->doc);
    unsigned takes = kri_capability_of(b->name);
    if (takes) {
        struct kri_code *code = kri_code_of(fn);
        code->builtin = kri_guarded_call;
        code->k = (const kr_value *)b;
        code->captures = takes;
    }
    kri_set_function(w, symbol, fn);
}

kr_value kri_arg_key(int argc, const kr_value *argv, int from, kr_value key, kr_value otherwise)
{
    for (int i = from; i + 1 < argc; i += 2)
        if (kri_eq(argv[i], key))
            return argv[i + 1];
    return otherwise;
}

_Noreturn static void unknown_key(struct kri_worker *w, kr_value key)
{
    const struct kri_code *code = kri_is_function(w->callee) ? kri_code_of(w->callee) : NULL;
    if (!code || !kri_is_string(w->vm, code->lambda_list))
        kri_error(w, KRI_E_NO_KEYWORD, key, NULL);
    kri_error(w, KRI_E_NO_KEYWORD, key, "of %V; parameters: %s", code->name, (const char *)kri_string_of(code->lambda_list)->byte);
}

void kri_check_keys(struct kri_worker *w, int argc, const kr_value *argv, int from, const kr_value *allowed, int n)
{
    for (int i = from; i < argc; i += 2) {
        if (!kri_has_class(argv[i], KRI_CLASS_SYMBOL))
            kri_error(w, KRI_E_KEYWORD_EXPECTED, argv[i], NULL);
        if (i + 1 == argc)
            kri_error(w, KRI_E_KEYWORD_EXPECTED, argv[i], "its value is missing");
        int j = 0;
        while (j < n && !kri_eq(argv[i], allowed[j]))
            j++;
        if (j == n)
            unknown_key(w, argv[i]);
    }
}
