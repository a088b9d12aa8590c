/* report.c -- the text of errors and backtraces, as the REPL, batch runs and hosts show them. */
#include <stdio.h>
#include <unistd.h>
#include <unistd.h>
#include "lisp/frame.h"
#include "lisp/init.h"
#include "lisp/printer.h"
#include "lisp/suggest.h"

/* A growing Lisp string is the buffer, so that nothing leaks when printing raises. */
struct text {
    kr_value string;
    size_t n;
};

static void add(struct kri_worker *w, struct text *t, const char *s, size_t n)
{
    if (t->n + n > kri_length(t->string)) {
        kr_value bigger = kri_make_string(w, 2 * (t->n + n));
        memcpy(kri_string_of(bigger)->byte, kri_string_of(t->string)->byte, t->n);
        t->string = bigger;
    }
    memcpy(kri_string_of(t->string)->byte + t->n, s, n);
    t->n += n;
}

static void add_text(struct kri_worker *w, struct text *t, const char *s) { add(w, t, s, strlen(s)); }

static void add_lisp_string(struct kri_worker *w, struct text *t, kr_value s)
{
    add(w, t, (const char *)kri_string_of(s)->byte, kri_length(s));
}

static void add_value(struct kri_worker *w, struct text *t, kr_value v, size_t most)
{
    add_lisp_string(w, t, kri_print_cut(w, v, most));
}

static kr_value finish(struct kri_worker *w, struct text *t)
{
    return kri_string_n(w, (const char *)kri_string_of(t->string)->byte, t->n);
}

static bool is_condition(struct kri_worker *w, kr_value v)
{
    return kri_is_pointer(v) && kri_derivedp(w->vm, v, w->vm->classes[KRI_CLASS_CONDITION].object);
}

/* Of anything: backtraces can be set by hand. */
static kr_value first(kr_value v) { return kri_is_cons(v) ? kri_car(v) : KRI_NIL; }
static kr_value rest(kr_value v) { return kri_is_cons(v) ? kri_cdr(v) : KRI_NIL; }

/* Is FILE one of the core library's? */
bool kri_is_core_file(kr_value file)
{
    const char *path = (const char *)kri_string_of(file)->byte;
    return strncmp(path, "lib/core/", 9) == 0 || strncmp(path, "lib/auto/", 9) == 0;
}

/* Adds " (file:line)" if PLACE, (file line), is one of the program's. */
static bool add_if_place(struct kri_worker *w, struct text *t, kr_value place)
{
    kr_value file = first(place), line = first(rest(place));
    char number[40];
    if (!kri_is_string(w->vm, file) || kri_is_core_file(file) || !kri_is_fixnum(line))
        return false;
    add_text(w, t, " (");
    add_lisp_string(w, t, file);
    snprintf(number, sizeof number, ":%ld)", (long)kri_fixnum_value(line));
    add_text(w, t, number);
    return true;
}

/* Where the form at fault is if it is being loaded, else where the innermost frame of the program's is. */
static void add_place(struct kri_worker *w, struct text *t, kr_value condition)
{
    if (add_if_place(w, t, kri_get(w, condition, kri_keyword(w, "PLACE"))))
        return;
    for (kr_value l = ((const struct kri_condition *)condition.w)->backtrace; kri_is_cons(l); l = kri_cdr(l), kri_poll(w))
        if (add_if_place(w, t, rest(kri_car(l))))
            return;
}

/* ", did you mean ...?" for a name that does not exist. */
static void add_near_names(struct kri_worker *w, struct text *t, const struct kri_condition *c)
{
    kr_value names = kri_near_names(w, kri_value_of(&c->head));
    for (int i = 0; kri_is_cons(names); names = kri_cdr(names), i++) {
        add_text(w, t, i == 0 ? "; did you mean " : kri_is_nil(kri_cdr(names)) ? " or " : ", ");
        add_value(w, t, kri_car(names), 60);
        if (kri_is_nil(kri_cdr(names)))
            add_text(w, t, "?");
    }
}

static kr_value condition_text(struct kri_worker *w, void *arg)
{
    kr_value v = *(kr_value *)arg;
    struct text t = {kri_make_string(w, 120), 0};
    if (!is_condition(w, v)) {
        add_text(w, &t, "throw to a tag outside");
        return finish(w, &t);
    }
    const struct kri_condition *c = (const struct kri_condition *)v.w;
    bool user = kri_eq(c->code, kri_fixnum(KRI_E_USER));
    if (!kri_is_string(w->vm, c->extra) && (user || !kri_is_string(w->vm, c->message))) {
        /* The program's own kind: its :report says what it is. */
        kr_value report = kri_send(w, v, kri_keyword(w, "REPORT"), 0, NULL);
        if (kri_is_string(w->vm, report))
            add_lisp_string(w, &t, report);
    } else if (kri_is_string(w->vm, c->message))
        add_lisp_string(w, &t, c->message);
    if (user && kri_is_string(w->vm, c->extra))
        add_lisp_string(w, &t, c->extra);
    if (!user) {
        if (!kri_is_nil(c->datum)) {
            add_text(w, &t, " ");
            add_value(w, &t, c->datum, 120);
        }
        if (kri_is_string(w->vm, c->extra)) {
            add_text(w, &t, ": ");
            add_lisp_string(w, &t, c->extra);
        }
    }
    if (!kri_is_nil(c->form) || !(kri_is_nil(c->callee) || kri_is_evaluator(w, c->callee))) {
        add_text(w, &t, " in ");
        add_value(w, &t, kri_is_nil(c->form) ? c->callee : c->form, 120);
    }
    add_place(w, &t, v);
    add_near_names(w, &t, c);
    return finish(w, &t);
}

/* "   y=4 z=(1 2)": what kri_raise kept of the variables of a frame. */
static void add_locals(struct kri_worker *w, struct text *t, kr_value locals)
{
    enum { MOST_LOCALS = 8, LOCAL_BYTES = 40 };
    int n = 0;
    for (; kri_is_cons(locals) && n < MOST_LOCALS; locals = kri_cdr(locals), n++) {
        add_text(w, t, n ? " " : "   ");
        add_value(w, t, first(first(locals)), LOCAL_BYTES);
        add_text(w, t, "=");
        add_value(w, t, rest(first(locals)), LOCAL_BYTES);
    }
    if (!kri_is_nil(locals))
        add_text(w, t, " ...");
}

static kr_value backtrace_text(struct kri_worker *w, void *arg)
{
    kr_value v = *(kr_value *)arg;
    struct text t = {kri_make_string(w, 400), 0};
    if (!is_condition(w, v))
        return finish(w, &t);
    int i = 0;
    kr_value locals = kri_get(w, v, kri_keyword(w, "LOCALS"));
    for (kr_value l = ((const struct kri_condition *)v.w)->backtrace; kri_is_cons(l); l = kri_cdr(l), i++, locals = rest(locals), kri_poll(w)) {
        kr_value frame = kri_car(l), file = first(rest(frame)), line = first(rest(rest(frame)));
        char number[40];
        snprintf(number, sizeof number, "%3d: ", i);
        add_text(w, &t, number);
        add_text(w, &t, "(");
        add_value(w, &t, first(frame), 80);
        for (kr_value a = rest(rest(rest(frame))); kri_is_cons(a); a = kri_cdr(a), kri_poll(w)) {
            add_text(w, &t, " ");
            add_value(w, &t, kri_car(a), 60);
        }
        add_text(w, &t, ")");
        if (kri_is_string(w->vm, file)) {
            add_text(w, &t, " at ");
            add_lisp_string(w, &t, file);
            snprintf(number, sizeof number, ":%ld", (long)kri_fixnum_value(line));
            add_text(w, &t, number);
        }
        add_locals(w, &t, first(locals));
        add_text(w, &t, "\n");
    }
    return finish(w, &t);
}

kr_value kri_condition_text(struct kri_worker *w, kr_value condition) { return condition_text(w, &condition); }
kr_value kri_backtrace_text(struct kri_worker *w, kr_value condition) { return backtrace_text(w, &condition); }

struct report {
    struct kr_vm *vm;
    const char *text;
};

static void write_report(void *arg)
{
    const struct report *r = arg;
    if (!kri_host_output(r->vm, STDERR_FILENO, r->text, strlen(r->text)))
        fputs(r->text, stderr);
}

/* TEXT on error output, the host's or the process's. */
static void report(struct kri_worker *w, const char *text)
{
    struct report r = {w->vm, text};
    kri_blocking(w, write_report, &r);
}

void kri_report_error(struct kri_worker *w, kr_value condition, const char *where)
{
    kr_value s;
    fflush(stdout);
    report(w, "karakuri: error");
    if (where) {
        report(w, " ");
        report(w, where);
    }
    if (kri_protect(w, condition_text, &condition, &s)) {
        report(w, ": ");
        report(w, (const char *)kri_string_of(s)->byte);
    }
    report(w, "\n");
    if (kri_protect(w, backtrace_text, &condition, &s))
        report(w, (const char *)kri_string_of(s)->byte);
    fflush(stderr);
}

KR_BUILTIN(condition_text, "lisp::%condition-text", "(condition)", "The message of CONDITION as the REPL shows it, a string.")
{
    return kri_condition_text(w, argv[0]);
}

KR_BUILTIN(backtrace_text, "lisp::%backtrace-text", "(condition)", "The backtrace of CONDITION, a line for each frame.")
{
    return kri_backtrace_text(w, argv[0]);
}

const struct kri_builtin *const kri_builtins_report[] = {&condition_text_def, &backtrace_text_def, NULL};
