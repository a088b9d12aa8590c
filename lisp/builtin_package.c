/* builtin_package.c -- symbols and packages as Lisp sees them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include "lisp/package.h"
#include "lisp/reader.h"
#include "lisp/sequence.h"

static kr_value arg_package(struct kri_worker *w, int argc, kr_value *argv, int i)
{
    return kri_package_arg(w, i < argc ? argv[i] : kri_special(w, w->vm->sym.package));
}

static kr_value arg_package_nil(struct kri_worker *w, int argc, kr_value *argv, int i)
{
    return i < argc && kri_is_nil(argv[i]) ? kri_special(w, w->vm->sym.package) : arg_package(w, argc, argv, i);
}

/* A string, or the name of a symbol. */
static struct kri_string *arg_name(struct kri_worker *w, kr_value *argv, int i)
{
    kr_value v = argv[i];
    if (kri_is_symbol(v))
        v = kri_symbol_of(w->vm, v)->pname;
    if (!kri_is_string(w->vm, v))
        kri_argument_error(w, i, argv[i], KRI_E_NO_STRING);
    return kri_string_of(v);
}

/* ---- symbols ---- */

KR_BUILTIN(intern, "intern", "(string &optional package class)",
           "The symbol named STRING accessible in PACKAGE (the current one by default), made there if there is none. CLASS may "
           "only be the class symbol. Error: no such package.")
{
    struct kri_string *s = arg_name(w, argv, 0);
    if (argc > 2 && !kri_is_nil(argv[2]) && !kri_eq(argv[2], w->vm->classes[KRI_CLASS_SYMBOL].object))
        kri_error(w, KRI_E_UNSUPPORTED, argv[2], "intern: symbols of another class");
    return kri_intern(w, (char *)s->byte, s->head.length, arg_package_nil(w, argc, argv, 1));
}

KR_BUILTIN(find_symbol, "find-symbol", "(string &optional package)",
           "The symbol named STRING that is present in PACKAGE itself (not in those it uses), or nil.")
{
    struct kri_string *s = arg_name(w, argv, 0);
    bool found;
    return kri_find_present(w, (char *)s->byte, s->head.length, arg_package_nil(w, argc, argv, 1), false, &found);
}

KR_BUILTIN(make_symbol, "make-symbol", "(string &optional package)",
           "A new symbol named STRING that is in no package; PACKAGE, the current one by default, is noted as its home.")
{
    kr_value symbol = kri_make_symbol(w, kri_name_string(w, argv[0]));
    kri_store(w, kri_ptr(symbol), &((struct kri_symbol *)kri_ptr(symbol))->homepkg, arg_package(w, argc, argv, 1));
    return symbol;
}

static kr_value numbered_name(struct kri_worker *w, const char *prefix, size_t n)
{
    char digits[24];
    size_t count = kri_fetch_add(&w->vm->gensym_counter, 1) + 1;
    int m = snprintf(digits, sizeof digits, "%zu", count);
    kr_value name = kri_make_string(w, n + (size_t)m);
    memcpy(kri_string_of(name)->byte, prefix, n);
    memcpy(kri_string_of(name)->byte + n, digits, (size_t)m);
    return name;
}

KR_BUILTIN(gensym, "gensym", "(&optional prefix)",
           "A new uninterned symbol named PREFIX (a string or symbol, \"G\" by default) and a number. An integer as PREFIX sets "
           "the counter instead.")
{
    if (argc == 0 || kri_is_nil(argv[0]))
        return kri_make_symbol(w, numbered_name(w, "G", 1));
    if (kri_is_fixnum(argv[0]) && kri_fixnum_value(argv[0]) > 0) {
        kri_store_release(&w->vm->gensym_counter, (size_t)kri_fixnum_value(argv[0]) - 1);
        return kri_make_symbol(w, numbered_name(w, "G", 1));
    }
    struct kri_string *s = arg_name(w, argv, 0);
    return kri_make_symbol(w, numbered_name(w, (char *)s->byte, s->head.length));
}

KR_BUILTIN(gentemp, "gentemp", "(&optional (prefix \"T\") package)",
           "A new symbol interned in PACKAGE, named PREFIX and a number that no symbol there has yet.")
{
    kr_value package = arg_package(w, argc, argv, 1);
    struct kri_string *s = argc > 0 ? arg_name(w, argv, 0) : NULL;
    for (;;) {
        kr_value name = s ? numbered_name(w, (char *)s->byte, s->head.length) : numbered_name(w, "T", 1);
        bool found;
        kri_find_symbol(w, (char *)kri_string_of(name)->byte, kri_length(name), package, NULL, &found);
        if (!found)
            return kri_intern(w, (char *)kri_string_of(name)->byte, kri_length(name), package);
    }
}

KR_BUILTIN(symbol_name, "symbol-name", "(symbol)", "The name of SYMBOL, a string that must not be changed.")
{
    return kri_symbol_of(w->vm, kri_arg_symbol(w, argv, 0))->pname;
}

KR_BUILTIN(symbol_package, "symbol-package", "(symbol)", "The home package of SYMBOL, or nil.")
{
    return kri_slot(&kri_symbol_of(w->vm, kri_arg_symbol(w, argv, 0))->homepkg);
}

KR_BUILTIN(symbol_plist, "symbol-plist", "(symbol)", "The properties of SYMBOL, or of another propertied object: an association list ((key . value) ...).")
{
    if (!kri_is_symbol(argv[0]) && kri_is_pointer(argv[0]) && kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_PROPERTIED_OBJECT].object))
        return kri_slot(&kri_ptr(argv[0])->slot[0]);
    return kri_slot(&kri_symbol_of(w->vm, kri_arg_symbol(w, argv, 0))->plist);
}

KR_BUILTIN(symbol_value, "symbol-value", "(symbol)",
           "The value of SYMBOL as a special or global variable, dynamic bindings of this thread included. Error: unbound variable.")
{
    kr_value v = kri_special(w, kri_arg_symbol(w, argv, 0));
    return kri_eq(v, KRI_UNBOUND) ? kri_autoload_value(w, argv[0], true) : v;
}

static void check_variable(struct kri_worker *w, kr_value symbol)
{
    if (kri_is_nil(symbol) || kri_eq(kri_slot(&kri_symbol_of(w->vm, symbol)->vtype), kri_fixnum(0)))
        kri_error(w, KRI_E_CONSTANT, symbol, NULL);
}

KR_BUILTIN(set, "set", "(symbol value)",
           "Make VALUE the value of SYMBOL as a special or global variable, and return it. Error: SYMBOL is a constant.")
{
    check_variable(w, kri_arg_symbol(w, argv, 0));
    kri_set_special(w, argv[0], argv[1]);
    return argv[1];
}

KR_BUILTIN(has_value, "lisp::%has-value", "(symbol)", "T if SYMBOL has a value now; unlike boundp it loads no module.")
{
    kri_arg_symbol(w, argv, 0);
    return kri_bool(w, !kri_eq(kri_special(w, argv[0]), KRI_UNBOUND));
}

KR_BUILTIN(boundp, "boundp", "(symbol)", "T if SYMBOL has a value as a special or global variable.")
{
    kr_value v = kri_special(w, kri_arg_symbol(w, argv, 0));
    return kri_bool(w, !kri_eq(kri_eq(v, KRI_UNBOUND) ? kri_autoload_value(w, argv[0], false) : v, KRI_UNBOUND));
}

KR_BUILTIN(makunbound, "makunbound", "(symbol)", "Take the value of SYMBOL away; returns t. Error: SYMBOL is a constant.")
{
    check_variable(w, kri_arg_symbol(w, argv, 0));
    kri_set_special(w, argv[0], KRI_UNBOUND);
    return w->vm->sym.t;
}

KR_BUILTIN(symbolp, "symbolp", "(x)", "T if X is a symbol.") { return kri_bool(w, kri_is_symbol(argv[0])); }

KR_BUILTIN(keywordp, "keywordp", "(x)", "T if X is a keyword.")
{
    return kri_bool(w, kri_is_symbol(argv[0]) && kri_eq(kri_symbol_of(w->vm, argv[0])->homepkg, w->vm->pkg_keyword));
}

/* ---- property lists ---- */

KR_BUILTIN(get, "get", "(object key &optional default)",
           "The property KEY of OBJECT, a symbol or another propertied object, or DEFAULT. Keys are compared by eq.")
{
    kr_value pair = kri_property(w, argv[0], argv[1]);
    return kri_is_nil(pair) ? kri_arg_optional(argc, argv, 2, KRI_NIL) : kri_cdr(pair);
}

KR_BUILTIN(putprop, "putprop", "(object value key)", "Make VALUE the property KEY of OBJECT, a propertied object, and return it.")
{
    kri_putprop(w, argv[0], argv[1], argv[2]);
    return argv[1];
}

KR_BUILTIN(remprop, "remprop", "(object key)", "Remove property KEY of OBJECT; returns the property list left, or nil if there was no such property.")
{
    struct kr_vm *vm = w->vm;
    struct kri_cell *c = kri_cell(vm, argv[0]);
    if (!c || (c->cls != KRI_CLASS_SYMBOL && !kri_derivedp(vm, argv[0], vm->classes[KRI_CLASS_PROPERTIED_OBJECT].object)))
        kri_error(w, KRI_E_NO_OBJECT, argv[0], "%V has no property list", argv[0]);
    for (;;) {
        kr_value plist = kri_slot(&c->slot[0]), copy = KRI_NIL, last = KRI_NIL;
        bool removed = false;
        for (kr_value l = plist; kri_is_cons(l); l = kri_cdr(l)) {
            if (kri_is_cons(kri_car(l)) && kri_eq(kri_car(kri_car(l)), argv[1])) {
                removed = true;
                continue;
            }
            kr_value pair = kri_cons(w, kri_car(l), KRI_NIL);
            if (kri_is_nil(last))
                copy = pair;
            else
                kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
            last = pair;
        }
        if (!removed)
            return KRI_NIL;
        if (kri_store_cas(w, c, &c->slot[0], plist, copy))
            return copy;
    }
}

/* ---- packages ---- */

KR_BUILTIN(packagep, "packagep", "(x)", "T if X is a package.") { return kri_bool(w, kri_is_package(argv[0])); }

KR_BUILTIN(find_package, "find-package", "(name)", "The package NAME names (a string, symbol or package), or nil.")
{
    return kri_find_package(w, argv[0]);
}

KR_BUILTIN(list_all_packages, "list-all-packages", "()", "A list of all packages.")
{
    kr_value list = KRI_NIL;
    for (kr_value l = kri_slot(&w->vm->packages); kri_is_cons(l); l = kri_cdr(l))
        list = kri_cons(w, kri_car(l), list);
    return list;
}

/* The names of a package: NAME and those in the list NICKNAMES, as fresh strings; none may name a package but SAME. */
static kr_value package_names(struct kri_worker *w, kr_value name, kr_value nicknames, kr_value same)
{
    kr_value names = KRI_NIL, last = KRI_NIL;
    if (!kri_is_list(nicknames))
        kri_error(w, KRI_E_NO_LIST, nicknames, "nicknames of a package");
    for (kr_value l = kri_cons(w, name, nicknames); kri_is_cons(l); l = kri_cdr(l)) {
        kr_value other = kri_find_package(w, kri_car(l));
        if (!kri_is_nil(other) && !kri_eq(other, same))
            kri_error(w, KRI_E_PACKAGE_NAME, kri_car(l), "%V is a package already", kri_car(l));
        kr_value pair = kri_cons(w, kri_name_string(w, kri_car(l)), KRI_NIL);
        if (kri_is_nil(last))
            names = pair;
        else
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
        last = pair;
    }
    return names;
}

KR_BUILTIN(make_package, "make-package", "(name &key nicknames (use '(lisp)))",
           "Make a package named NAME with NICKNAMES that uses the packages in the list USE. Error: the name is taken.")
{
    const kr_value keys[] = {kri_keyword(w, "NICKNAMES"), kri_keyword(w, "USE")};
    kri_check_keys(w, argc, argv, 1, keys, 2);
    kr_value use = kri_arg_key(argc, argv, 1, keys[1], KRI_UNBOUND);
    if (kri_eq(use, KRI_UNBOUND))
        use = kri_cons(w, w->vm->pkg_lisp, KRI_NIL);
    else if (!kri_is_list(use))
        use = kri_cons(w, use, KRI_NIL);
    kri_list_length(w, use); /* for its error, if it is circular */
    for (kr_value l = use; kri_is_cons(l); l = kri_cdr(l))
        kri_package_arg(w, kri_car(l));
    kr_value package = kri_make_package_list(w, package_names(w, argv[0], kri_arg_key(argc, argv, 1, keys[0], KRI_NIL), KRI_NIL));
    for (; kri_is_cons(use); use = kri_cdr(use))
        kri_use_package(w, kri_package_arg(w, kri_car(use)), package);
    return package;
}

KR_BUILTIN(rename_package, "rename-package", "(package name &optional nicknames)",
           "Give PACKAGE a new NAME and NICKNAMES instead of its old ones; returns t. Error: a name is taken.")
{
    kr_value package = kri_package_arg(w, argv[0]);
    kri_set_package_names(w, package, package_names(w, argv[1], kri_arg_optional(argc, argv, 2, KRI_NIL), package));
    return w->vm->sym.t;
}

/* Programs get copies of the lists that lookups walk. */
static kr_value copied(struct kri_worker *w, kr_value list)
{
    struct kri_lister l = {KRI_NIL, NULL};
    for (; kri_is_cons(list); list = kri_cdr(list))
        kri_lister_add(w, &l, kri_car(list));
    return l.head;
}

KR_BUILTIN(delete_package, "lisp::%delete-package", "(package)", "Take PACKAGE, which nobody uses, off the list of packages. Error: it is one of the system's.")
{
    struct kr_vm *vm = w->vm;
    kr_value p = kri_package_arg(w, argv[0]), own[] = {vm->pkg_lisp, vm->pkg_user, vm->pkg_keyword, vm->pkg_system, vm->pkg_unix, vm->pkg_compiler};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (kri_eq(p, own[i]))
            kri_error(w, KRI_E_PACKAGE_NAME, p, "a package of the system cannot be deleted");
    kri_forget_package(w, p);
    return vm->sym.t;
}

KR_BUILTIN(package_name, "package-name", "(package)", "The name of PACKAGE, a package or one of its names; nil if there is none of that name.")
{
    kr_value p = kri_find_package(w, argv[0]);
    return kri_is_nil(p) ? KRI_NIL : kri_car(kri_slot(&kri_package_of(p)->names));
}

KR_BUILTIN(package_nicknames, "package-nicknames", "(package)", "A list of the names of PACKAGE, its own first.")
{
    return copied(w, kri_slot(&kri_package_of(kri_package_arg(w, argv[0]))->names));
}

KR_BUILTIN(package_use_list, "package-use-list", "(package)", "A list of the packages that PACKAGE uses.")
{
    return copied(w, kri_slot(&kri_package_of(kri_package_arg(w, argv[0]))->use));
}

KR_BUILTIN(package_used_by_list, "package-used-by-list", "(package)", "A list of the packages that use PACKAGE.")
{
    return copied(w, kri_slot(&kri_package_of(kri_package_arg(w, argv[0]))->used_by));
}

KR_BUILTIN(package_shadowing_symbols, "package-shadowing-symbols", "(package)", "A list of the symbols that PACKAGE shadows.")
{
    return copied(w, kri_slot(&kri_package_of(kri_package_arg(w, argv[0]))->shadows));
}

/* Call F for a symbol or each symbol of a list. */
static void each_symbol(struct kri_worker *w, kr_value symbols, kr_value package, void (*f)(struct kri_worker *w, kr_value symbol, kr_value package))
{
    if (kri_is_symbol(symbols) && !kri_is_nil(symbols)) {
        f(w, symbols, package);
        return;
    }
    kri_list_length(w, symbols); /* for its error, if it is circular */
    for (; kri_is_cons(symbols); symbols = kri_cdr(symbols)) {
        if (!kri_is_symbol(kri_car(symbols)))
            kri_error(w, KRI_E_NO_SYMBOL, kri_car(symbols), NULL);
        f(w, kri_car(symbols), package);
    }
    if (!kri_is_nil(symbols))
        kri_error(w, KRI_E_NO_SYMBOL, symbols, NULL);
}

KR_BUILTIN(export, "export", "(symbols &optional package)",
           "Make SYMBOLS (one or a list) external in PACKAGE, which thereby has them; returns t. Error: symbol conflict, if a "
           "package that uses PACKAGE has another symbol of that name that is in use.")
{
    each_symbol(w, argv[0], arg_package(w, argc, argv, 1), kri_export);
    return w->vm->sym.t;
}

KR_BUILTIN(unexport, "unexport", "(symbols &optional package)", "Make SYMBOLS (one or a list) internal in PACKAGE; returns t.")
{
    each_symbol(w, argv[0], arg_package(w, argc, argv, 1), kri_unexport);
    return w->vm->sym.t;
}

KR_BUILTIN(import, "import", "(symbols &optional package)",
           "Make SYMBOLS (one or a list) present in PACKAGE, in place of others of the same names; returns t.")
{
    each_symbol(w, argv[0], arg_package(w, argc, argv, 1), kri_import);
    return w->vm->sym.t;
}

static void shadow_name(struct kri_worker *w, kr_value name, kr_value package) { kri_shadow(w, kri_name_string(w, name), package); }

KR_BUILTIN(shadow, "shadow", "(symbols &optional package)",
           "See to it that PACKAGE has symbols of its own by the names of SYMBOLS (one or a list, strings too), whatever the "
           "packages it uses export; returns t.")
{
    kr_value package = arg_package(w, argc, argv, 1);
    if (kri_is_cons(argv[0]))
        for (kr_value l = argv[0]; kri_is_cons(l); l = kri_cdr(l), kri_poll(w))
            shadow_name(w, kri_car(l), package);
    else
        shadow_name(w, argv[0], package);
    return w->vm->sym.t;
}

static void shadow_import(struct kri_worker *w, kr_value symbol, kr_value package)
{
    kri_import(w, symbol, package);
    kri_shadow(w, kri_symbol_of(w->vm, symbol)->pname, package);
}

KR_BUILTIN(shadowing_import, "shadowing-import", "(symbols &optional package)",
           "Import SYMBOLS (one or a list) into PACKAGE and let them shadow what the packages it uses export; returns t.")
{
    each_symbol(w, argv[0], arg_package(w, argc, argv, 1), shadow_import);
    return w->vm->sym.t;
}

static void each_package(struct kri_worker *w, kr_value used, kr_value user, void (*f)(struct kri_worker *, kr_value, kr_value))
{
    if (!kri_is_cons(used)) {
        f(w, kri_package_arg(w, used), user);
        return;
    }
    kri_list_length(w, used); /* for its error, if it is circular */
    for (; kri_is_cons(used); used = kri_cdr(used))
        f(w, kri_package_arg(w, kri_car(used)), user);
}

KR_BUILTIN(use_package, "use-package", "(packages &optional package)",
           "Make the external symbols of PACKAGES (one or a list) accessible in PACKAGE, the current one by default; returns t. "
           "Error: symbol conflict.")
{
    each_package(w, argv[0], arg_package(w, argc, argv, 1), kri_use_package);
    return w->vm->sym.t;
}

KR_BUILTIN(unuse_package, "unuse-package", "(packages &optional package)",
           "Let PACKAGE, the current one by default, no longer use PACKAGES (one or a list); returns t.")
{
    each_package(w, argv[0], arg_package(w, argc, argv, 1), kri_unuse_package);
    return w->vm->sym.t;
}

KR_BUILTIN(unintern, "unintern", "(symbol &optional package)", "Take SYMBOL out of PACKAGE; t if it was there.")
{
    return kri_bool(w, kri_unintern(w, kri_arg_symbol(w, argv, 0), arg_package(w, argc, argv, 1)));
}

KR_BUILTIN(in_package, "lisp::%in-package", "(name)", "Make the package NAME the current one and return it. Error: no such package.")
{
    kr_value package = kri_package_arg(w, argv[0]);
    kri_set_special(w, w->vm->sym.package, package);
    return package;
}

KR_BUILTIN(package_symbols, "lisp::%package-symbols", "(package &optional external-only)",
           "A fresh list of the symbols present in PACKAGE, or of its external ones.")
{
    return kri_package_symbols(w, kri_package_arg(w, argv[0]), argc > 1 && !kri_is_nil(argv[1]));
}

KR_BUILTIN(find_all_symbols, "find-all-symbols", "(name)", "A list of the symbols named NAME (a string or symbol) in any package.")
{
    struct kri_string *s = arg_name(w, argv, 0);
    kr_value list = KRI_NIL;
    for (kr_value l = kri_slot(&w->vm->packages); kri_is_cons(l); l = kri_cdr(l)) {
        bool found, known = false;
        kr_value symbol = kri_find_present(w, (char *)s->byte, s->head.length, kri_car(l), false, &found);
        for (kr_value k = list; kri_is_cons(k); k = kri_cdr(k))
            known = known || kri_eq(kri_car(k), symbol);
        if (found && !known)
            list = kri_cons(w, symbol, list);
    }
    return list;
}

static bool contains(const struct kri_string *s, const struct kri_string *part)
{
    for (size_t i = 0; i + part->head.length <= s->head.length; i++) {
        size_t j = 0;
        while (j < part->head.length && toupper(s->byte[i + j]) == toupper(part->byte[j]))
            j++;
        if (j == part->head.length)
            return true;
    }
    return false;
}

/* Does SYMBOL mean anything: a value, function or properties? */
static bool means_something(struct kr_vm *vm, kr_value symbol)
{
    struct kri_symbol *s = kri_symbol_of(vm, symbol);
    return !kri_eq(kri_slot(&s->value), KRI_UNBOUND) || kri_fboundp(vm, symbol) || !kri_is_nil(kri_slot(&s->plist));
}

KR_BUILTIN(apropos_list, "apropos-list", "(string &optional package)",
           "A list of the symbols with a meaning whose names contain STRING in any letter case, from PACKAGE or, without it, "
           "from all but the keywords.")
{
    struct kr_vm *vm = w->vm;
    struct kri_string *part = arg_name(w, argv, 0);
    bool one = argc > 1 && !kri_is_nil(argv[1]);
    kr_value packages = one ? kri_cons(w, kri_package_arg(w, argv[1]), KRI_NIL) : kri_slot(&vm->packages), list = KRI_NIL;
    for (; kri_is_cons(packages); packages = kri_cdr(packages)) {
        kr_value package = kri_car(packages);
        if (!one && kri_eq(package, vm->pkg_keyword))
            continue;
        for (kr_value l = kri_package_symbols(w, package, false); kri_is_cons(l); l = kri_cdr(l)) {
            kr_value symbol = kri_car(l);
            struct kri_symbol *s = kri_symbol_of(vm, symbol);
            if (contains(kri_string_of(s->pname), part) && means_something(vm, symbol) && (one || kri_eq(s->homepkg, package)))
                list = kri_cons(w, symbol, list);
        }
    }
    return list;
}

const struct kri_builtin *const kri_builtins_package[] = {
    &intern_def, &find_symbol_def, &make_symbol_def, &gensym_def, &gentemp_def, &symbol_name_def, &symbol_package_def, &symbol_plist_def,
    &symbol_value_def, &set_def, &boundp_def, &has_value_def, &makunbound_def, &symbolp_def, &keywordp_def, &get_def, &putprop_def, &remprop_def, &packagep_def,
    &find_package_def, &list_all_packages_def, &make_package_def, &rename_package_def, &delete_package_def, &package_name_def, &package_nicknames_def,
    &package_use_list_def, &package_used_by_list_def, &package_shadowing_symbols_def, &export_def, &unexport_def, &import_def, &shadow_def,
    &shadowing_import_def, &use_package_def, &unuse_package_def, &unintern_def, &in_package_def, &package_symbols_def,
    &find_all_symbols_def, &apropos_list_def, NULL,
};
