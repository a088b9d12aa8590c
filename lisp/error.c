/* error.c -- conditions: making them, finding who handles them, and the backtrace they carry.
 *
 * An error is raised where it happens, without unwinding: handlers run on top of the frames at fault. In order: the handlers
 * of handler-bind and handler-case (*handler-clusters*, innermost first), the function given to install-error-handler, the
 * value of *error-handler* (EusLisp's two). A handler that returns declines. At last the context unwinds to the nearest
 * kri_protect, which hands the condition to its caller. */
#include <stdio.h>
#include "lisp/host.h"
#include "lisp/frame.h"
#include "lisp/reader.h"
#include "lisp/printer.h"

enum { BACKTRACE_FRAMES = 60, DETAIL_BYTES = 400, VALUE_BYTES = 120, LOCALS_FRAMES = 20 };

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
    for (; kri_is_cons(type); type = kri_cdr(type)) /* one of several */
        if (!kri_is_cons(kri_car(type)) && handler_matches(w, kri_car(type), condition))
            return true;
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

/* *handler-clusters*: a list of clusters, each a list of (type . function); type is a class, its name, a code, t, or a list of these. */
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
    case KRI_E_UNBOUND:
    case KRI_E_UNDEFINED:
    case KRI_E_NO_CATCHER:
    case KRI_E_NO_CLASS:
    case KRI_E_NO_METHOD:
    case KRI_E_NO_SLOT:
    case KRI_E_NO_VARIABLE:
    case KRI_E_NO_PACKAGE:
    case KRI_E_NO_KEYWORD:
        return true;
    }
    return false;
}

/* EusLisp's handlers get code, text, the form that failed and, of some errors, a fourth argument. Errors that EusLisp does not
 * have give their detail. */
static kr_value call_error_handler(struct kri_worker *w, void *arg)
{
    struct handler_call *c = arg;
    const struct kri_condition *e = (const struct kri_condition *)c->condition.w;
    bool own = kri_is_fixnum(e->code) && kri_fixnum_value(e->code) >= KRI_E_USER;
    kr_value argv[4] = {e->code, e->message, e->form, names_datum(e->code) ? e->datum : own ? e->extra : KRI_NIL};
    w->ctx->condition = c->condition;
    return kri_call(w, c->handler, kri_is_nil(argv[3]) ? 3 : 4, argv);
}

/* Nobody handled the error and the frames are still there: keep what their variables hold, for the report. */
static void keep_locals(struct kri_worker *w, struct kri_condition *e)
{
    if (!kri_is_fixnum(e->code) || kri_fixnum_value(e->code) < KRI_E_CONSTANT || kri_is_nil(e->backtrace))
        return;
    kr_value head = kri_cons(w, kri_keyword(w, "LOCALS"), KRI_NIL), tail = head;
    struct kri_frames f;
    int n = LOCALS_FRAMES;
    for (bool more = kri_frame_first(w, &f); more && n > 0; more = kri_frame_next(w, &f, NULL), n--) {
        kr_value cell = kri_cons(w, kri_frame_locals(w, &f), KRI_NIL);
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, cell);
        tail = cell;
    }
    kri_store(w, &e->head, &e->plist, kri_cons(w, head, e->plist));
}

static kr_value call_host(struct kri_worker *w, void *arg)
{
    const struct kri_host *host = w->vm->host;
    w->ctx->telling = true;
    host->hooks.error(w->ctx, *(kr_value *)arg, host->user);
    return KRI_NIL;
}

static void told(struct kri_worker *w, void *arg)
{
    (void)arg;
    w->ctx->telling = false;
}

/* The host's hook sees the frames at fault. It may leave by a restart; what it raises itself it is not told. */
static void tell_host(struct kri_worker *w, kr_value condition)
{
    if (!w->ctx->telling && w->vm->running)
        kri_unwind_protect(w, call_host, &condition, told);
}

_Noreturn void kri_raise(struct kri_worker *w, kr_value condition)
{
    struct kr_vm *vm = w->vm;
    struct kr_context *ctx = w->ctx;
    if (kri_native_exhausted(w)) /* handlers that fail before they run */
        kri_error_stack(w);
    kri_signal(w, condition);
    struct handler_call c = {vm->error_handler, condition};
    if (kri_is_nil(c.handler))
        c.handler = kri_special(w, vm->sym.error_handler);
    if (!kri_is_nil(c.handler) && !kri_eq(c.handler, KRI_UNBOUND))
        call_error_handler(w, &c);
    keep_locals(w, (struct kri_condition *)condition.w);
    if (vm->host->hooks.error)
        tell_host(w, condition);
    kr_value *h = ctx->entry ? ctx->entry->handler : NULL;
    for (struct kri_entry *e = ctx->entry; e; e = e->prev) {
        h = e->handler;
        if (e->barrier)
            break;
    }
    kri_unwind_to(w, h, condition);
}

/* The function of the frame at fault. */
static kr_value fault_frame(struct kri_worker *w)
{
    struct kri_frames f;
    return kri_frame_first(w, &f) ? f.function : KRI_NIL;
}

/* The class of error CODE. EusLisp has no code of its own for files that cannot be opened: handlers see that of user errors. */
static kr_value class_and_code(struct kri_worker *w, int code, int *shown)
{
    *shown = code == KRI_E_OPEN_FILE ? KRI_E_USER : code;
    return kri_class_for_code(w, code);
}

kr_value kri_ready_condition(struct kri_worker *w, int code)
{
    kr_value message = kri_string(w, kri_error_text(code));
    kr_value v = kri_instantiate(w, kri_class_for_code(w, code), -1);
    struct kri_condition *c = (struct kri_condition *)v.w;
    c->code = kri_fixnum(code);
    c->message = message;
    return v;
}

void kri_complete_condition(struct kri_worker *w, struct kri_condition *c)
{
    if (!kri_is_nil(c->backtrace))
        return;
    kri_store(w, &c->head, &c->backtrace, kri_backtrace(w, BACKTRACE_FRAMES));
    if (kri_is_nil(c->form))
        kri_store(w, &c->head, &c->form, kri_fault_form(w, false, KRI_NIL));
    kri_store(w, &c->head, &c->place, fault_frame(w));
}

struct fault {
    int code;
    kr_value datum;
    kr_value call;  /* the call that failed as a list, or NIL */
    bool outer;     /* it failed before that call began */
};

/* Where the arguments of the running builtin, of CODE with a fixed number of them, lie: below the top, and below entries of the unwind chain
 * that it has made since; NULL if those began a segment of the stack. */
static const kr_value *builtin_arguments(struct kri_worker *w, const struct kri_code *code)
{
    const struct kr_context *ctx = w->ctx;
    const kr_value *end = ctx->top;
    for (kr_value *h = ctx->handler; h && h + KRI_HANDLER_WORDS == end; h = kri_op_previous(h))
        end = h;
    return end - ctx->segment->slot >= code->nreq && end <= ctx->segment->limit ? end - code->nreq : NULL;
}

/* The call of the running builtin as a list; NIL if its number of parameters, which tells that of arguments, is not fixed. */
static kr_value running_builtin(struct kri_worker *w)
{
    const struct kri_code *code = kri_code_of(w->callee);
    kr_value call = KRI_NIL;
    if (code->max != code->nreq)
        return KRI_NIL;
    const kr_value *arguments = builtin_arguments(w, code);
    if (!arguments)
        return KRI_NIL;
    for (int i = code->nreq; i-- > 0;)
        call = kri_cons(w, arguments[i], call);
    return kri_cons(w, code->name, call);
}

/* What has no method, slot or keyword of the name that was asked for: where near names are looked for. */
static kr_value name_bearer(struct kri_worker *w, const struct fault *fault, bool builtin)
{
    const struct kri_code *code = builtin ? kri_code_of(w->callee) : NULL;
    switch (fault->code) {
    case KRI_E_NO_METHOD:
        return kri_is_cons(fault->call) ? kri_car(kri_cdr(fault->call)) : KRI_NIL;
    case KRI_E_NO_SLOT:
        return code && code->nreq > 0 && code->max == code->nreq && builtin_arguments(w, code) ? *builtin_arguments(w, code) : KRI_NIL;
    case KRI_E_NO_KEYWORD:
        return builtin ? w->callee : KRI_NIL;
    }
    return KRI_NIL;
}

/* Does a function of the program's run that was called from what is being loaded? */
static bool in_function(struct kri_worker *w)
{
    struct kri_frames f;
    kri_frames_begin(&f, w->ctx);
    kri_frames_settle(&f);
    while (!kri_positions_frame(w, f.base, f.native) && kri_frames_next(&f)) {
        if (kri_is_string(w->vm, f.code->file) && !kri_is_core_file(f.code->file))
            return true;
        kri_frames_settle(&f);
    }
    return false;
}

/* The compiler at work: this thread's, or the one whose macro is expanded. */
static const struct kri_compiler *compiler_at_work(const struct kr_context *ctx)
{
    const struct kri_compiler *c = ctx->compiler;
    for (const struct kri_entry *e = ctx->entry; e && !c; e = e->prev)
        c = e->compiler;
    return c;
}

/* (file line) of the form that is being loaded, or of the part of it that is compiled or evaluated; NIL if nothing is loaded, or
 * if a function's frame tells it better. */
static kr_value loaded_place(struct kri_worker *w, kr_value form)
{
    if (!kri_positions_frozen(w)) /* an error of reading says itself where */
        return KRI_NIL;
    kr_value file = kri_special(w, w->vm->sym.load_pathname);
    const struct kri_compiler *c = compiler_at_work(w->ctx);
    unsigned line = w->ctx->compiler ? kri_compiler_line(c) : kri_position_line(w, form);
    if (!line && in_function(w))
        return KRI_NIL;
    if (!line && c)
        line = kri_compiler_line(c);
    if (!line)
        line = kri_positions_form_line(w);
    return line && kri_is_string(w->vm, file) ? kri_list(w, 2, file, kri_fixnum(line)) : KRI_NIL;
}

static kr_value make_condition(struct kri_worker *w, const struct fault *fault, const char *detail, size_t n)
{
    kr_value frame = fault_frame(w), name = KRI_NIL;
    bool builtin = w->ctx->top && kri_is_function(w->callee) && !w->ctx->compiler;
    if (builtin || !kri_is_nil(frame))
        name = kri_code_of(builtin ? w->callee : frame)->name;
    int code;
    kr_value cls = class_and_code(w, fault->code, &code);
    kr_value message = kri_string(w, kri_error_text(code)), extra = n > 0 ? kri_string_n(w, detail, n) : KRI_NIL;
    kr_value call = kri_is_nil(fault->call) && builtin ? running_builtin(w) : fault->call;
    kr_value form = kri_fault_form(w, fault->outer, call), backtrace = kri_backtrace(w, BACKTRACE_FRAMES);
    kr_value about = name_bearer(w, fault, builtin), place = loaded_place(w, form);
    if (!kri_is_nil(about))
        about = kri_cons(w, kri_cons(w, kri_keyword(w, "ABOUT"), about), KRI_NIL);
    if (!kri_is_nil(place))
        about = kri_cons(w, kri_cons(w, kri_keyword(w, "PLACE"), place), about);
    kr_value v = kri_instantiate(w, cls, -1);
    struct kri_condition *c = (struct kri_condition *)v.w;
    c->plist = about;
    c->code = kri_fixnum(code);
    c->message = message;
    c->callee = name;
    c->form = form;
    c->extra = extra;
    c->backtrace = backtrace;
    c->datum = fault->datum;
    c->place = frame;
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
    struct fault fault = {code, value, call, false};
    kri_raise(w, make_condition(w, &fault, t->bytes, t->n));
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
    if (KRI_UNLIKELY(kri_heap_forbidden(w))) {
        kri_heap_forbid(w, false); /* the mode ends with its error, which needs memory */
        kri_error(w, KRI_E_NO_ALLOCATION, KRI_NIL, NULL);
    }
    kri_budget_memory(w);
    kri_raise(w, w->vm->memory_condition);
}

_Noreturn void kri_error_user(struct kri_worker *w, kr_value text, kr_value call)
{
    struct fault fault = {KRI_E_USER, KRI_NIL, call, false};
    kr_value frame = fault_frame(w), v = make_condition(w, &fault, NULL, 0);
    struct kri_condition *c = (struct kri_condition *)v.w;
    kri_store(w, &c->head, &c->extra, text);
    if (!kri_is_nil(frame))
        kri_store(w, &c->head, &c->callee, kri_code_of(frame)->name);
    kri_raise(w, v);
}

/* ---- errors that one may go on from: Lisp functions raise them, with restarts around, and answer what a restart gave ---- */

static bool recoverable(struct kri_worker *w, kr_value function)
{
    return !w->ctx->overflowed && !(kri_code_of(kri_symbol_function(w->vm, function))->flags & KRI_CODE_UNDEFINED);
}

static _Noreturn void raise_name(struct kri_worker *w, int code, kr_value symbol, bool outer)
{
    struct fault fault = {code, symbol, KRI_NIL, outer};
    kri_raise(w, make_condition(w, &fault, NULL, 0));
}

kr_value kri_unbound_variable(struct kri_worker *w, kr_value symbol)
{
    kr_value f = w->vm->sym.recover_unbound;
    if (!recoverable(w, f))
        raise_name(w, KRI_E_UNBOUND, symbol, false);
    return kri_call1(w, kri_symbol_function(w->vm, f), symbol);
}

kr_value kri_undefined_function(struct kri_worker *w, kr_value symbol, bool call)
{
    kr_value f = w->vm->sym.recover_undefined;
    if (!recoverable(w, f))
        raise_name(w, KRI_E_UNDEFINED, symbol, call);
    return kri_coerce_function(w, kri_call2(w, kri_symbol_function(w->vm, f), symbol, kri_bool(w, call)));
}

KR_BUILTIN(raise_unbound, "lisp::%raise-unbound", "(symbol)", "Raise the error that SYMBOL is an unbound variable in the caller's caller.")
{
    w->callee = KRI_NIL;
    raise_name(w, KRI_E_UNBOUND, argv[0], false);
}

KR_BUILTIN(raise_undefined, "lisp::%raise-undefined", "(symbol call)",
           "Raise the error that SYMBOL names no function in the caller's caller; CALL: the form around the call is at fault.")
{
    w->callee = KRI_NIL;
    raise_name(w, KRI_E_UNDEFINED, argv[0], !kri_is_nil(argv[1]));
}

const struct kri_builtin *const kri_builtins_error[] = {&raise_unbound_def, &raise_undefined_def, NULL};
