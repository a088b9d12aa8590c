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

/* ---- the variables of the function that failed ---- */

enum { MOST_VARIABLES = 50 };

struct variables {
    kr_value names[MOST_VARIABLES], boxes[MOST_VARIABLES];
    unsigned n;
};

static void add_variable(struct kri_worker *w, struct variables *v, kr_value name, kr_value value)
{
    if (v->n == MOST_VARIABLES || !kri_is_symbol(name) || kri_is_nil(name) || kri_eq(value, KRI_ABSENT))
        return;
    const struct kri_symbol *s = kri_symbol_of(w->vm, name);
    if (kri_eq(s->vtype, kri_fixnum(0)) || kri_fixnum_value(s->special) != 0)
        return; /* a special variable's value is seen without help */
    v->names[v->n] = name;
    v->boxes[v->n++] = kri_has_class(value, KRI_CLASS_BOX) ? value : kri_make_box(w, value);
}

static kr_value parameter_name(kr_value p, bool key)
{
    if (kri_is_cons(p))
        p = kri_car(p);
    if (key && kri_is_cons(p)) /* ((:keyword name) default) */
        p = kri_car(kri_cdr(p));
    return p;
}

/* The parameters stand in the first registers in the order of the lambda list. */
static void add_parameters(struct kri_worker *w, struct variables *v, const struct kri_code *code, const kr_value *base)
{
    const struct kri_symbols *sym = &w->vm->sym;
    kr_value l = code->lambda_list;
    bool key = false;
    unsigned at = code->flags & KRI_CODE_METHOD ? 1 : 0, last = (unsigned)code->nreq + code->nopt + code->nkey + 1;
    for (; kri_is_cons(l) && at < last && at < code->frame; l = kri_cdr(l)) {
        kr_value p = kri_car(l);
        if (kri_eq(p, sym->amp_aux))
            return;
        if (kri_eq(p, sym->amp_key)) {
            key = true;
        } else if (!kri_eq(p, sym->amp_optional) && !kri_eq(p, sym->amp_rest) && !kri_eq(p, sym->amp_body) && !kri_eq(p, sym->amp_allow)) {
            add_variable(w, v, parameter_name(p, key), base[at]);
            at++;
        }
    }
}

/* Functions of the system are passed over: one looks at one's own variables. */
static bool is_system_function(struct kri_worker *w, const struct kri_code *code)
{
    kr_value name = code->name;
    if (!kri_is_symbol(name) || kri_is_nil(name))
        return false;
    kr_value home = kri_symbol_of(w->vm, name)->homepkg;
    return kri_eq(home, w->vm->pkg_lisp) || kri_eq(home, w->vm->pkg_system) || kri_eq(home, w->vm->pkg_unix);
}

KR_BUILTIN(frame_variables, "lisp::%frame-variables", "()",
           "The parameters of the innermost running function that is not the system's, as %eval-in wants them: (#(class-or-nil "
           "symbol..) value..), or nil. Variables that no closure shares are copies.")
{
    struct variables v = {.n = 0};
    struct kri_frames f;
    kri_frames_begin(&f, w->ctx);
    while (kri_frames_next(&f)) {
        const struct kri_code *code = f.code;
        const kr_value *base = f.registers;
        if ((code->builtin && !code->native) || is_system_function(w, code))
            continue;
        bool method = code->flags & KRI_CODE_METHOD;
        kr_value self = KRI_NIL, cls = KRI_NIL;
        if (method) {
            self = kri_has_class(base[0], KRI_CLASS_BOX) ? kri_slot(&((struct kri_box *)base[0].w)->value) : base[0];
            cls = kri_is_pointer(self) && !kri_is_nil(self) ? w->vm->classes[kri_ptr(self)->cls].object : KRI_NIL;
        }
        add_parameters(w, &v, code, base);
        if (v.n == 0 && kri_is_nil(cls))
            return KRI_NIL;
        kr_value names = kri_make_vector(w, v.n + 1), list = kri_list_from(w, v.boxes, v.n);
        kri_store(w, kri_ptr(names), &kri_vector_of(names)->at[0], cls);
        for (unsigned i = 0; i < v.n; i++)
            kri_store(w, kri_ptr(names), &kri_vector_of(names)->at[i + 1], v.names[i]);
        if (!kri_is_nil(cls))
            list = kri_cons(w, self, list);
        return kri_cons(w, names, list);
    }
    return KRI_NIL;
}

const struct kri_builtin *const kri_builtins_toplevel[] = {&form_complete_def, &find_accessible_def, &same_file_def, &frame_variables_def, NULL};
