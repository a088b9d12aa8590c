/* builtin_toplevel.c -- what the read-eval-print loop (lib/core/toplevel.l) needs to know of reader, packages and frames. */
#include <sys/stat.h>
#include "lisp/native.h"
#include "lisp/package.h"
#include "lisp/reader.h"

KR_BUILTIN(form_complete, "lisp::%form-complete", "(text)",
           "t if the string TEXT holds complete forms only; else the column at which its next line might begin, an integer.")
{
    const struct kri_string *s = kri_arg_string(w, argv, 0);
    int indent = 0;
    bool complete = kri_form_complete(w, (const char *)s->byte, kri_length(argv[0]), &indent);
    return complete ? w->vm->sym.t : kri_fixnum(indent);
}

KR_BUILTIN(find_accessible, "lisp::%find-accessible", "(name package)",
           "A list of the symbol NAME, a string, that PACKAGE holds or inherits; nil if there is none. Interns nothing.")
{
    const struct kri_string *s = kri_arg_string(w, argv, 0);
    kr_value package = kri_package_arg(w, argv[1]);
    bool external, found;
    kr_value symbol = kri_find_symbol(w, (const char *)s->byte, kri_length(argv[0]), package, &external, &found);
    return found ? kri_cons(w, symbol, KRI_NIL) : KRI_NIL;
}

KR_BUILTIN(same_file, "lisp::%same-file", "(path other)", "t if the strings PATH and OTHER lead to the same file.")
{
    struct stat a, b;
    const char *p = (const char *)kri_arg_string(w, argv, 0)->byte, *q = (const char *)kri_arg_string(w, argv, 1)->byte;
    return kri_bool(w, stat(p, &a) == 0 && stat(q, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

KR_BUILTIN(system_function, "lisp::%system-function", "(function)",
           "t if FUNCTION is one of the system's, by its file or the package of its name.")
{
    if (!kri_is_function(argv[0]))
        return KRI_NIL;
    kr_value file = kri_code_of(argv[0])->file;
    if (kri_is_string(w->vm, file)) {
        const char *path = (const char *)kri_string_of(file)->byte;
        return kri_bool(w, strncmp(path, "lib/core/", 9) == 0 || strncmp(path, "lib/auto/", 9) == 0);
    }
    kr_value name = kri_code_of(argv[0])->name;
    if (kri_is_cons(name)) /* (class selector) */
        name = kri_car(name);
    if (!kri_is_symbol(name) || kri_is_nil(name))
        return KRI_NIL;
    kr_value home = kri_symbol_of(w->vm, name)->homepkg;
    return kri_bool(w, kri_eq(home, w->vm->pkg_lisp) || kri_eq(home, w->vm->pkg_system) || kri_eq(home, w->vm->pkg_unix));
}

const struct kri_builtin *const kri_builtins_toplevel[] = {&form_complete_def, &find_accessible_def, &same_file_def, &system_function_def, NULL};
