/* error.c -- conditions: making them, finding who handles them, and the backtrace they carry.
 *
 * An error is raised where it happens, without unwinding: handlers run on top of the frames at fault. In order: the handlers
 * of handler-bind and handler-case (*handler-clusters*, innermost first), the function given to install-error-handler, the
 * value of *error-handler* (EusLisp's two). A handler that returns declines. At last the context unwinds to the nearest
 * kri_protect, which hands the condition to its caller. */
#include <stdio.h>
#include "lisp/interp.h"
#include "lisp/native.h"
#include "lisp/opcode.h"
#include "lisp/printer.h"

enum { BACKTRACE_FRAMES = 60, DETAIL_BYTES = 400, VALUE_BYTES = 120 };

const char *kri_error_text(int code)
{
    switch (code) {
#define ERROR(name, number, text) \
    case number:                  \
        return text;
#include "lisp/errors.def"
#undef ERROR
    }
    return "error";
}

/* ---- backtrace ---- */

unsigned kri_code_line(const struct kri_code *code, const kri_instruction *pc)
{
    unsigned line = code->line;
    if (kri_is_nil(code->lines))
        return line;
    const uint32_t *pair = (const uint32_t *)kri_string_of(code->lines)->byte;
    size_t n = kri_length(code->lines) / 8, at = (size_t)(pc - code->instr);
    for (size_t i = 0; i < n && pair[2 * i] < at; i++)
        line = pair[2 * i + 1];
    return line;
}

kr_value kri_backtrace(struct kri_worker *w, int n)
{
    kr_value head = kri_cons(w, KRI_NIL, KRI_NIL), tail = head;
    struct kri_frames f;
    kri_frames_begin(&f, w->ctx);
    for (; n > 0 && kri_frames_next(&f); n--) {
        const struct kri_code *code = f.code;
        kr_value arguments = KRI_NIL;
        for (int i = code->nreq + code->nopt; i-- > 0;) {
            kr_value v = f.registers[i];
            if (!kri_eq(v, KRI_ABSENT))
                arguments = kri_cons(w, kri_has_class(v, KRI_CLASS_BOX) ? kri_slot(&((struct kri_box *)v.w)->value) : v, arguments);
        }
        kr_value frame = kri_cons(w, code->name, kri_cons(w, code->file, kri_cons(w, kri_fixnum(f.line), arguments)));
        kr_value cell = kri_cons(w, frame, KRI_NIL);
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, cell);
        tail = cell;
    }
    return kri_cdr(head);
}

/* ---- raising ---- */

struct handler_call {
    kr_value handler, condition;
};

static kr_value call_handler(struct kri_worker *w, void *arg)
{
    struct handler_call *c = arg;
    return kri_call1(w, c->handler, c->condition);
}

static bool handler_matches(struct kri_worker *w, kr_value type, kr_value condition)
{
    if (kri_is_fixnum(type)) {
        const struct kri_condition *c = (const struct kri_condition *)condition.w;
        return kri_eq(c->code, type);
    }
    if (kri_is_symbol(type)) {
        if (kri_eq(type, w->vm->sym.t))
            return true;
        type = kri_special(w, type);
    }
    return kri_is_class(w->vm, type) && kri_derivedp(w->vm, condition, type);
}

/* *handler-clusters*: a list of clusters, each a list of (type . function); type is a class, its name, a code, or t. */
void kri_signal(struct kri_worker *w, kr_value condition)
{
    struct kr_vm *vm = w->vm;
    kr_value clusters = kri_special(w, vm->sym.handler_clusters);
    for (; kri_is_cons(clusters); clusters = kri_cdr(clusters)) {
        for (kr_value l = kri_car(clusters); kri_is_cons(l); l = kri_cdr(l)) {
            kri_poll(w); /* a program can make these lists circular */
            kr_value entry = kri_car(l);
            if (!kri_is_cons(entry) || !handler_matches(w, kri_car(entry), condition))
                continue;
            struct handler_call c = {kri_cdr(entry), condition};
            kri_with_binding(w, vm->sym.handler_clusters, kri_cdr(clusters), call_handler, &c);
        }
    }
}

/* Does EusLisp hand what these errors are about, a name or a wrong object, to the handler as the extra argument? */
static bool names_datum(kr_value code)
{
    switch (kri_is_fixnum(code) ? kri_fixnum_value(code) : 0) {
    case KRI_E_CONSTANT:
    case KRI_E_UNBOUND:
    case KRI_E_UNDEFINED:
    case KRI_E_ILLEGAL_FUNCTION:
    case KRI_E_NO_CATCHER:
    case KRI_E_NO_BLOCK:
    case KRI_E_NO_CLASS:
    case KRI_E_NO_METHOD:
    case KRI_E_NO_PACKAGE:
    case KRI_E_NO_KEYWORD:
        return true;
    }
    return false;
}

/* EusLisp's handlers get the form that failed: the call with its arguments where it is known, else the name of the function. */
static kr_value call_error_handler(struct kri_worker *w, void *arg)
{
    struct handler_call *c = arg;
    const struct kri_condition *e = (const struct kri_condition *)c->condition.w;
    kr_value call = kri_get(w, c->condition, kri_keyword(w, "CALL")), form;
    if (kri_is_cons(call))
        form = call;
    else if (kri_is_nil(e->callee) || kri_eq(e->code, kri_fixnum(KRI_E_ARGC)))
        form = e->form;
    else
        form = kri_cons(w, e->callee, KRI_NIL);
    kr_value argv[4] = {e->code, e->message, form, names_datum(e->code) ? e->form : e->extra};
    w->ctx->condition = c->condition;
    return kri_call(w, c->handler, kri_is_nil(argv[3]) ? 3 : 4, argv);
}

_Noreturn void kri_raise(struct kri_worker *w, kr_value condition)
{
    struct kr_vm *vm = w->vm;
    struct kr_context *ctx = w->ctx;
    if (kri_native_exhausted(w)) /* handlers that fail before they run */
        kri_error_stack(w);
    kri_signal(w, condition);
    if (kri_derivedp(vm, condition, vm->classes[KRI_CLASS_ERROR].object)) {
        struct handler_call c = {vm->error_handler, condition};
        if (kri_is_nil(c.handler))
            c.handler = kri_special(w, vm->sym.error_handler);
        if (!kri_is_nil(c.handler) && !kri_eq(c.handler, KRI_UNBOUND))
            call_error_handler(w, &c);
    }
    kr_value *h = ctx->entry ? ctx->entry->handler : NULL;
    for (struct kri_entry *e = ctx->entry; e; e = e->prev) {
        h = e->handler;
        if (e->barrier)
            break;
    }
    kri_unwind_to(w, h, condition);
}

/* The function at fault: the builtin that runs, or the frame's. */
static kr_value fault_name(struct kri_worker *w)
{
    struct kr_context *ctx = w->ctx;
    if (ctx->top && kri_is_function(w->callee))
        return kri_code_of(w->callee)->name;
    return kri_code_of(kri_running_function(ctx))->name;
}

/* CALL: the call that failed as a list, or NIL. */
static kr_value make_condition(struct kri_worker *w, int code, kr_value value, kr_value call, const char *detail, size_t n)
{
    kr_value callee = fault_name(w);
    kr_value cls = kri_class_for_code(w, code);
    kr_value message = kri_string(w, kri_error_text(code)), extra = n > 0 ? kri_string_n(w, detail, n) : KRI_NIL;
    kr_value backtrace = kri_backtrace(w, BACKTRACE_FRAMES);
    if (!kri_is_nil(call))
        call = kri_cons(w, kri_cons(w, kri_keyword(w, "CALL"), call), KRI_NIL);
    kr_value v = kri_instantiate(w, cls, -1);
    struct kri_condition *c = (struct kri_condition *)v.w;
    c->code = kri_fixnum(code);
    c->message = message;
    c->callee = callee;
    c->form = value;
    c->extra = extra;
    c->backtrace = backtrace;
    c->plist = call;
    return v;
}

/* ---- text ---- */

struct text {
    char bytes[DETAIL_BYTES];
    size_t n;
};

static void text_add(struct text *t, const char *s, size_t n)
{
    if (n > DETAIL_BYTES - t->n)
        n = DETAIL_BYTES - t->n;
    memcpy(t->bytes + t->n, s, n);
    t->n += n;
}

static void text_add_value(struct kri_worker *w, struct text *t, kr_value v)
{
    kr_value s = kri_print_cut(w, v, VALUE_BYTES);
    text_add(t, (const char *)kri_string_of(s)->byte, kri_length(s));
}

static void text_format(struct kri_worker *w, struct text *t, const char *format, va_list ap)
{
    for (const char *p = format; *p; p++) {
        if (*p != '%') {
            text_add(t, p, 1);
            continue;
        }
        char number[32];
        switch (*++p) {
        case 'V':
            text_add_value(w, t, va_arg(ap, kr_value));
            break;
        case 's': {
            const char *s = va_arg(ap, const char *);
            text_add(t, s, strlen(s));
            break;
        }
        case 'd':
            text_add(t, number, (size_t)snprintf(number, sizeof number, "%d", va_arg(ap, int)));
            break;
        case 'u':
            text_add(t, number, (size_t)snprintf(number, sizeof number, "%u", va_arg(ap, unsigned)));
            break;
        case 'c':
            number[0] = (char)va_arg(ap, int);
            text_add(t, number, 1);
            break;
        case 'l': /* ld, lu */
        case 'z': /* zd, zu */
            p++;
            text_add(t, number, (size_t)snprintf(number, sizeof number, *p == 'u' ? "%lu" : "%ld", va_arg(ap, long)));
            break;
        default:
            text_add(t, p, 1);
        }
    }
}

static _Noreturn void raise_text(struct kri_worker *w, int code, kr_value value, kr_value call, const struct text *t)
{
    kri_raise(w, make_condition(w, code, value, call, t->bytes, t->n));
}

/* The call of the running builtin as a list, VALUE being its argument I. Where the number of its arguments may vary, the least
 * that fits is taken: so no word below the arguments is looked at. */
static kr_value running_call(struct kri_worker *w, int i, kr_value value)
{
    if (!kri_is_function(w->callee))
        return KRI_NIL;
    const struct kri_code *code = kri_code_of(w->callee);
    const kr_value *top = w->ctx->top;
    int n = code->nreq > i + 1 ? code->nreq : i + 1;
    if (code->builtin && top) {
        int most = code->max >= 0 ? code->max : n;
        while (n <= most && !kri_eq(top[i - n], value))
            n++;
        if (n <= most) {
            kr_value call = KRI_NIL;
            for (int k = 1; k <= n; k++)
                call = kri_cons(w, top[-k], call);
            return kri_cons(w, code->name, call);
        }
    }
    return kri_list(w, 2, code->name, value);
}

/* A stack is full: its handlers get the reserve. If they go too deep themselves, straight to the barrier. */
static void stack_overflow(struct kri_worker *w)
{
    struct kr_context *ctx = w->ctx;
    if (ctx->overflowed) {
        struct kri_entry *e = ctx->entry;
        while (e && !e->barrier)
            e = e->prev;
        kri_unwind_to(w, e ? e->handler : NULL, w->vm->stack_condition);
    }
    ctx->overflowed = true;
    kri_native_relax(w, true);
}

_Noreturn void kri_error(struct kri_worker *w, int code, kr_value value, const char *format, ...)
{
    struct text t = {.n = 0};
    if (code == KRI_E_STACK)
        stack_overflow(w);
    kr_value callee = w->callee;
    if (format) {
        va_list ap;
        va_start(ap, format);
        text_format(w, &t, format, ap);
        va_end(ap);
    }
    w->callee = callee;
    raise_text(w, code, value, KRI_NIL, &t);
}

_Noreturn void kri_error_call(struct kri_worker *w, int code, kr_value value, kr_value call, const char *format, ...)
{
    struct text t = {.n = 0};
    kr_value callee = w->callee;
    va_list ap;
    va_start(ap, format);
    text_format(w, &t, format, ap);
    va_end(ap);
    w->callee = callee;
    raise_text(w, code, value, call, &t);
}

_Noreturn void kri_argument_error(struct kri_worker *w, int i, kr_value value, int code)
{
    kr_value name = kri_is_function(w->callee) ? kri_code_of(w->callee)->name : KRI_NIL;
    kr_value callee = w->callee;
    struct text t = {.n = 0};
    char number[40];
    kr_value call = running_call(w, i, value);
    text_add(&t, number, (size_t)snprintf(number, sizeof number, "argument %d of ", i + 1));
    text_add_value(w, &t, name);
    text_add(&t, " is ", 4);
    text_add_value(w, &t, value);
    w->callee = callee;
    raise_text(w, code, value, call, &t);
}

_Noreturn void kri_error_stack(struct kri_worker *w) { kri_error(w, KRI_E_STACK, KRI_NIL, NULL); }

_Noreturn void kri_error_memory(struct kri_worker *w, size_t bytes)
{
    /* Nothing may be allocated here: the condition was made with the VM. */
    (void)bytes;
    kri_raise(w, w->vm->memory_condition);
}
