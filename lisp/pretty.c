/* pretty.c -- pprint: an object laid out over lines as EusLisp lays it out, since programs print other programs this way and people compare.
 *
 * What fits between its column and the right margin is printed flat. Of what does not fit, a call has its arguments below each
 * other three columns further in; a list of data has its elements one column further in; a definition keeps its name and
 * parameters on the first line. Whether something fits is measured roughly, without printing it: a float counts 7 columns, an
 * object its class's name and 12. */
#include <setjmp.h>
#include "lisp/package.h"
#include "lisp/printer.h"
#include "lisp/sequence.h"

enum { FLOAT_COLUMNS = 7, OBJECT_COLUMNS = 12, BODY_INDENT = 3, DEFAULT_PLATEN = 75, MOST_COLUMNS = 10000 };

struct pretty {
    struct kri_worker *w;
    struct kr_vm *vm;
    kr_value stream;
    struct kri_text text; /* not yet handed to the stream */
    int platen;           /* the right margin */
    jmp_buf shallow;      /* where a structure nested too deeply returns to: a handler needs the stack it used */
};

static void check_depth(struct pretty *p)
{
    if (kri_native_exhausted(p->w))
        longjmp(p->shallow, 1); /* past frames of this file only, which hold nothing */
}

/* Is V (quote x)? */
static bool is_quotation(struct pretty *p, kr_value v)
{
    kr_value rest = kri_cdr(v);
    return kri_eq(kri_car(v), p->vm->sym.quote) && kri_is_cons(rest) && kri_is_nil(kri_cdr(rest));
}

/* ---- measuring: the columns of V are taken from *LEFT; once that is negative nobody looks further ---- */

static void measure(struct pretty *p, kr_value v, intptr_t *left);

static void measure_vector(struct pretty *p, kr_value v, enum kri_element e, intptr_t *left)
{
    intptr_t n = (intptr_t)kri_length(v);
    switch (e) {
    case KRI_ELEMENT_T:
        *left -= 3;
        for (intptr_t i = 0; i < n && *left >= 0; i++) {
            *left -= 1;
            measure(p, kri_slot(&kri_vector_of(v)->at[i]), left);
        }
        return;
    case KRI_ELEMENT_FLOAT: *left -= 4 + n * (FLOAT_COLUMNS + 1); return;
    case KRI_ELEMENT_INTEGER:
        *left -= 4;
        for (intptr_t i = 0; i < n && *left >= 0; i++) {
            *left -= 1;
            measure(p, kri_vector_ref(p->w, v, (size_t)i), left);
        }
        return;
    case KRI_ELEMENT_BIT: *left -= n + 2; return;
    default: *left -= n; return;
    }
}

static void measure_list(struct pretty *p, kr_value v, intptr_t *left)
{
    size_t ticks = 0;
    *left -= 1;
    if (is_quotation(p, v)) {
        measure(p, kri_car(kri_cdr(v)), left);
        return;
    }
    for (; kri_is_cons(v) && *left >= 0; v = kri_cdr(v), kri_tick(p->w, &ticks)) {
        *left -= 1;
        measure(p, kri_car(v), left);
    }
    if (*left >= 0 && !kri_is_nil(v)) {
        *left -= 3;
        measure(p, v, left);
    }
}

static void measure(struct pretty *p, kr_value v, intptr_t *left)
{
    enum kri_element e;
    check_depth(p);
    if (kri_is_fixnum(v)) {
        intptr_t n = kri_fixnum_value(v);
        for (*left -= 1 + (n < 0); n > 9 || n < -9; n /= 10)
            *left -= 1;
    } else if (kri_is_float(v)) {
        *left -= FLOAT_COLUMNS;
    } else if (kri_is_symbol(v)) {
        *left -= (intptr_t)kri_length(kri_symbol_of(p->vm, v)->pname);
    } else if (kri_is_cons(v)) {
        measure_list(p, v, left);
    } else if ((e = kri_element(p->vm, v)) != KRI_ELEMENT_NONE) {
        measure_vector(p, v, e, left);
    } else {
        kr_value cls = kri_class_of(p->vm, v), name = kri_is_class(p->vm, cls) ? kri_slot(&kri_metaclass_of(cls)->name) : KRI_NIL;
        *left -= OBJECT_COLUMNS;
        if (kri_is_symbol(name))
            measure(p, name, left);
    }
}

static intptr_t columns(struct pretty *p, kr_value v)
{
    intptr_t left = INTPTR_MAX;
    measure(p, v, &left);
    return INTPTR_MAX - left;
}

static bool fits(struct pretty *p, kr_value v, int column)
{
    intptr_t left = p->platen - column - 1;
    measure(p, v, &left);
    return left >= 0;
}

/* ---- laying out ---- */

static void layout(struct pretty *p, kr_value v, int column);

static void put(struct pretty *p, const char *text) { kri_text_puts(p->w, &p->text, text); }
static void print(struct pretty *p, kr_value v) { kri_print_text(p->w, &p->text, v, true); }

static void hand_over(struct pretty *p)
{
    kri_stream_write(p->w, p->stream, p->text.p, p->text.n);
    p->text.n = 0;
}

static void new_line(struct pretty *p, int column)
{
    kri_text_putc(p->w, &p->text, '\n');
    while (column-- > 0)
        kri_text_putc(p->w, &p->text, ' ');
    hand_over(p);
    kri_poll(p->w); /* a circular list ends by an interrupt only */
}

/* The elements from REST on, each on a line of its own, and what follows a dot. */
static void layout_rest(struct pretty *p, kr_value rest, int column)
{
    for (; kri_is_cons(rest); rest = kri_cdr(rest)) {
        new_line(p, column);
        layout(p, kri_car(rest), column);
    }
    if (!kri_is_nil(rest)) {
        new_line(p, column);
        put(p, ". ");
        print(p, rest);
    }
}

/* A parameter list: as many as fit on each line, those from the second line on at COLUMN. */
static void layout_parameters(struct pretty *p, kr_value v, intptr_t column)
{
    if (!kri_is_cons(v)) {
        print(p, v);
        return;
    }
    intptr_t at = column;
    put(p, "(");
    for (bool first = true; kri_is_cons(v); v = kri_cdr(v), first = false) {
        intptr_t size = columns(p, kri_car(v));
        if (!first)
            put(p, " ");
        if (!first && at + size + 1 >= p->platen) {
            new_line(p, (int)column);
            at = column;
        }
        print(p, kri_car(v));
        at += size + 1;
    }
    if (!kri_is_nil(v)) {
        put(p, " . ");
        print(p, v);
    }
    put(p, ")");
}

static void layout_vector(struct pretty *p, kr_value v, enum kri_element e, int column)
{
    const char *open = e == KRI_ELEMENT_T ? "#(" : e == KRI_ELEMENT_FLOAT ? "#f(" : "#i(";
    column += (int)strlen(open);
    put(p, open);
    for (size_t i = 0; i < kri_length(v); i++) {
        layout(p, kri_vector_ref(p->w, v, i), column);
        new_line(p, column);
    }
    put(p, ")");
}

/* How many objects behind HEAD stay on its line, the last of them a list of parameters; 0 if HEAD defines nothing. */
static int kept_on_first_line(struct pretty *p, kr_value head)
{
    static const struct {
        const char *name;
        int n;
    } forms[] = {{"DEFUN", 2}, {"DEFMACRO", 2}, {"DEFCLASS", 2}, {"LAMBDA", 1}, {"MACRO", 1}};
    if (!kri_is_symbol(head) || !kri_eq(kri_slot(&kri_symbol_of(p->vm, head)->homepkg), p->vm->pkg_lisp))
        return 0;
    const char *name = (const char *)kri_string_of(kri_symbol_of(p->vm, head)->pname)->byte;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, name) == 0)
            return forms[i].n;
    return 0;
}

static void layout_definition(struct pretty *p, kr_value v, int kept, int column)
{
    kr_value before = kri_car(v), rest = kri_cdr(v);
    print(p, before);
    for (; kept > 1 && kri_is_cons(rest); kept--, rest = kri_cdr(rest)) {
        put(p, " ");
        print(p, before = kri_car(rest));
    }
    if (kri_is_cons(rest)) {
        intptr_t size = columns(p, before);
        put(p, " ");
        layout_parameters(p, kri_car(rest), column + (size < MOST_COLUMNS ? size : MOST_COLUMNS) + 3);
        rest = kri_cdr(rest);
    }
    layout_rest(p, rest, column + BODY_INDENT);
}

/* (setq variable value ...): a variable and its value on a line. */
static void layout_assignments(struct pretty *p, kr_value rest, int column)
{
    for (; kri_is_cons(rest) && kri_is_cons(kri_cdr(rest)); rest = kri_cdr(kri_cdr(rest))) {
        intptr_t size = columns(p, kri_car(rest));
        new_line(p, column);
        print(p, kri_car(rest));
        put(p, " ");
        layout(p, kri_car(kri_cdr(rest)), column + (int)(size < MOST_COLUMNS ? size : MOST_COLUMNS) + 1);
    }
    layout_rest(p, rest, column);
}

static void layout_list(struct pretty *p, kr_value v, int column)
{
    kr_value head = kri_car(v);
    if (is_quotation(p, v)) {
        put(p, "'");
        layout(p, kri_car(kri_cdr(v)), column);
        return;
    }
    put(p, "(");
    int kept = kept_on_first_line(p, head);
    if (kept > 0) {
        layout_definition(p, v, kept, column);
    } else if (kri_eq(head, p->vm->sym.setq)) {
        print(p, head);
        layout_assignments(p, kri_cdr(v), column + BODY_INDENT);
    } else if (kri_is_symbol(head) && kri_fboundp(p->vm, head)) {
        print(p, head);
        layout_rest(p, kri_cdr(v), column + BODY_INDENT);
    } else {
        layout(p, head, column + 1);
        layout_rest(p, kri_cdr(v), column + 1);
    }
    put(p, ")");
}

static void layout(struct pretty *p, kr_value v, int column)
{
    check_depth(p);
    enum kri_element e = kri_element(p->vm, v);
    bool wide = kri_is_cons(v) || e == KRI_ELEMENT_T || e == KRI_ELEMENT_FLOAT || e == KRI_ELEMENT_INTEGER;
    if (!wide || fits(p, v, column))
        print(p, v);
    else if (kri_is_cons(v))
        layout_list(p, v, column);
    else
        layout_vector(p, v, e, column);
}

/* ---- builtins ---- */

static void begin(struct pretty *p, struct kri_worker *w, kr_value stream, kr_value platen)
{
    p->w = w;
    p->vm = w->vm;
    p->stream = kri_output_stream(w, stream);
    p->platen = (int)(kri_fixnum_value(platen) < MOST_COLUMNS ? kri_fixnum_value(platen) : MOST_COLUMNS);
    kri_text_init(&p->text);
}

_Noreturn static void too_deep(struct kri_worker *w) { kri_error(w, KRI_E_STACK, KRI_NIL, "printing an object nested too deeply"); }

/* Argument I of a builtin, a column, or OTHERWISE. */
static kr_value column_arg(struct kri_worker *w, int argc, const kr_value *argv, int i, intptr_t otherwise)
{
    intptr_t n = argc > i ? kri_arg_natural(w, argv, i) : otherwise;
    return kri_fixnum(n < MOST_COLUMNS ? n : MOST_COLUMNS);
}

static void pretty_print(struct kri_worker *w, kr_value v, kr_value stream, kr_value column, kr_value platen)
{
    struct pretty p;
    kr_value circle = kri_special(w, w->vm->sym.print_circle);
    begin(&p, w, stream, platen);
    if (setjmp(p.shallow))
        too_deep(w);
    if (!kri_is_nil(circle) && !kri_eq(circle, KRI_UNBOUND)) /* labels are for the whole: no part is printed by itself */
        print(&p, v);
    else
        layout(&p, v, (int)kri_fixnum_value(column));
    hand_over(&p);
}

KR_BUILTIN(pprint, "pprint", "(obj &optional stream (tab 0) (platen 75))",
           "Print OBJ on STREAM with line breaks and indentation, its first line at column TAB, lines up to PLATEN columns "
           "long, and a newline. Returns nil.")
{
    kr_value stream = kri_output_stream(w, kri_arg_optional(argc, argv, 1, KRI_NIL));
    pretty_print(w, argv[0], stream, column_arg(w, argc, argv, 2, 0), column_arg(w, argc, argv, 3, DEFAULT_PLATEN));
    kri_stream_putc(w, stream, '\n');
    return KRI_NIL;
}

KR_BUILTIN(pprint1, "lisp::pprint1", "(obj stream column platen)",
           "Print OBJ on STREAM as pprint does, beginning at COLUMN, lines up to PLATEN columns long, without a newline. Returns nil.")
{
    pretty_print(w, argv[0], argv[1], column_arg(w, argc, argv, 2, 0), column_arg(w, argc, argv, 3, DEFAULT_PLATEN));
    return KRI_NIL;
}

KR_BUILTIN(pparg, "lisp::pparg", "(parameters column platen stream)",
           "Print the list PARAMETERS on STREAM as pprint does behind a function's name, later lines at COLUMN, up to PLATEN columns. Returns nil.")
{
    struct pretty p;
    intptr_t column = kri_fixnum_value(column_arg(w, argc, argv, 1, 0));
    begin(&p, w, argv[3], column_arg(w, argc, argv, 2, DEFAULT_PLATEN));
    if (setjmp(p.shallow))
        too_deep(w);
    layout_parameters(&p, argv[0], column);
    hand_over(&p);
    return KRI_NIL;
}

KR_BUILTIN(print_size, "print-size", "(obj &optional limit)",
           "Roughly how many columns OBJ takes when princ prints it, as pprint reckons: a float counts 7, an object its class's name and 12. LIMIT is ignored.")
{
    struct pretty p = {.w = w, .vm = w->vm};
    if (setjmp(p.shallow))
        too_deep(w);
    return kri_fixnum(columns(&p, argv[0]));
}

const struct kri_builtin *const kri_builtins_pretty[] = {&pprint_def, &pprint1_def, &pparg_def, &print_size_def, NULL};
