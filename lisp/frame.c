/* frame.c -- frames for errors and for the debugger: the form that is evaluated, arguments, variables (Note [debug], object.h). */
#include "lisp/frame.h"
#include "lisp/opcode.h"
#include "lisp/sequence.h"

/* ---- walking ---- */

/* The functions that stand in where a variable or function is missing. */
static bool is_hidden(struct kri_worker *w, const struct kri_frames *f)
{
    return kri_eq(f->code->name, w->vm->sym.recover_unbound) || kri_eq(f->code->name, w->vm->sym.recover_undefined);
}

/* The builtin that entered by way of pseudo-frame BASE, or NIL. */
static kr_value entering_builtin(const struct kr_context *ctx, const kr_value *base)
{
    for (const struct kri_entry *e = base ? ctx->entry : NULL; e; e = e->prev)
        if (e->handler == base)
            return kri_is_function(e->callee) ? kri_code_of(e->callee)->name : KRI_NIL;
    return KRI_NIL;
}

bool kri_frame_first(struct kri_worker *w, struct kri_frames *f)
{
    kri_frames_begin(f, w->ctx);
    return kri_frame_next(w, f, NULL);
}

bool kri_frame_next(struct kri_worker *w, struct kri_frames *f, kr_value *caller)
{
    if (caller)
        *caller = KRI_NIL;
    while (kri_frames_next(f)) {
        if (is_hidden(w, f))
            continue;
        if (caller)
            *caller = entering_builtin(w->ctx, f->entered);
        return true;
    }
    return false;
}

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

static kr_value unboxed(kr_value v)
{
    return kri_has_class(v, KRI_CLASS_BOX) ? kri_slot(&((struct kri_box *)v.w)->value) : v;
}

kr_value kri_frame_arguments(struct kri_worker *w, const struct kri_frames *f)
{
    const struct kri_code *code = f->code;
    int positional = code->nreq + code->nopt;
    kr_value arguments = KRI_NIL;
    if (code->flags & KRI_CODE_LIFTED)
        positional = (int)kri_list_length(w, code->lambda_list);
    if (code->flags & KRI_CODE_REST && kri_is_list(unboxed(f->registers[positional])))
        arguments = unboxed(f->registers[positional]);
    for (int i = code->flags & KRI_CODE_REST ? 0 : code->nkey; i-- > 0;)
        if (!kri_eq(f->registers[positional + i], KRI_ABSENT))
            arguments = kri_cons(w, kri_vector_of(code->keywords)->at[i], kri_cons(w, unboxed(f->registers[positional + i]), arguments));
    for (int i = positional; i-- > 0;)
        if (!kri_eq(f->registers[i], KRI_ABSENT))
            arguments = kri_cons(w, unboxed(f->registers[i]), arguments);
    return arguments;
}

kr_value kri_backtrace(struct kri_worker *w, int n)
{
    kr_value head = kri_cons(w, KRI_NIL, KRI_NIL), tail = head;
    struct kri_frames f;
    for (bool more = kri_frame_first(w, &f); more && n > 0; more = kri_frame_next(w, &f, NULL), n--) {
        const struct kri_code *code = f.code;
        kr_value arguments = kri_frame_arguments(w, &f);
        kr_value frame = kri_cons(w, code->name, kri_cons(w, code->file, kri_cons(w, kri_fixnum(f.line), arguments)));
        kr_value cell = kri_cons(w, frame, KRI_NIL);
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, cell);
        tail = cell;
    }
    return kri_cdr(head);
}

/* ---- forms ---- */

/* The words of table I of CODE; *N is how many. */
static const uint32_t *debug_table(const struct kri_code *code, unsigned i, size_t *n)
{
    *n = 0;
    if (kri_is_nil(code->debug))
        return NULL;
    kr_value t = kri_vector_of(code->debug)->at[i];
    *n = kri_length(t) / sizeof(uint32_t);
    return (const uint32_t *)kri_string_of(t)->byte;
}

static kr_value debug_value(const struct kri_code *code, uint32_t i)
{
    return i && i < kri_length(code->debug) ? kri_vector_of(code->debug)->at[i] : KRI_NIL;
}

/* The site of the instruction before F's pc, or NULL. */
static const uint32_t *site_of(const struct kri_frames *f)
{
    const struct kri_code *code = f->code;
    size_t n;
    const uint32_t *t = debug_table(code, 0, &n);
    if (n == 0 || f->at <= code->instr || f->at > code->instr + code->head.length)
        return NULL;
    uint32_t at = (uint32_t)(f->at - code->instr) - 1;
    size_t low = 0, high = n / KRI_SITE_WORDS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t[middle * KRI_SITE_WORDS] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n / KRI_SITE_WORDS && t[low * KRI_SITE_WORDS] == at ? t + low * KRI_SITE_WORDS : NULL;
}

/* Is NAME a function that evaluates a form of someone else's? What is called from there is no part of the form that calls NAME. */
bool kri_is_evaluator(struct kri_worker *w, kr_value name)
{
    const struct kri_symbols *s = &w->vm->sym;
    return kri_eq(name, s->eval) || kri_eq(name, s->eval_in) || kri_eq(name, s->load) || kri_eq(name, s->evaluate_entry) ||
           kri_eq(name, s->evaluate_text) || kri_eq(name, s->start) || kri_eq(name, s->run_arguments);
}

static kr_value quoted(struct kri_worker *w, kr_value v)
{
    bool evaluates = kri_is_cons(v) || (kri_has_class(v, KRI_CLASS_SYMBOL) && !kri_eq(v, w->vm->sym.t) &&
                                        !kri_eq(kri_symbol_of(w->vm, v)->homepkg, w->vm->pkg_keyword));
    return evaluates ? kri_list(w, 2, w->vm->sym.quote, v) : v;
}

/* A call (NAME ARGUMENT..) as one would write it. */
static kr_value as_written(struct kri_worker *w, kr_value name, kr_value arguments)
{
    kr_value head = kri_cons(w, name, KRI_NIL), tail = head;
    for (; kri_is_cons(arguments); arguments = kri_cdr(arguments)) {
        kr_value cell = kri_cons(w, quoted(w, kri_car(arguments)), KRI_NIL);
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, cell);
        tail = cell;
    }
    return head;
}

kr_value kri_fault_form(struct kri_worker *w, bool outer, kr_value call)
{
    struct kri_frames f, inner;
    bool named = false;
    kr_value caller = KRI_NIL;
    const struct kri_entry *e = w->ctx->entry;
    if (w->ctx->compiler)
        return kri_compiler_form(w->ctx->compiler);
    if (!kri_is_nil(w->ctx->evaluated))
        return w->ctx->evaluated;
    if (e && e->compiler && w->ctx->base == e->handler) /* the arguments of a macro do not fit */
        return kri_compiler_form(e->compiler);
    for (bool more = kri_frame_first(w, &f); more; more = kri_frame_next(w, &f, &caller)) {
        const struct kri_code *code = f.code;
        const uint32_t *site = kri_is_evaluator(w, caller) ? NULL : site_of(&f);
        kr_value form = site ? debug_value(code, site[outer ? 2 : 1]) : KRI_NIL;
        if (kri_is_evaluator(w, caller) || kri_is_evaluator(w, code->name) || kri_is_evaluator(w, kri_is_cons(form) ? kri_car(form) : KRI_NIL))
            break;
        if (!kri_is_nil(form))
            return form;
        if (!kri_is_nil(code->name)) {
            inner = f;
            named = true;
            outer = false;
        }
        if (kri_is_nil(code->name) && !kri_is_nil(code->debug) && !site)
            outer = false;
    }
    if (!named)
        return kri_is_cons(call) ? as_written(w, kri_car(call), kri_cdr(call)) : call;
    kr_value name = inner.code->name, arguments = kri_frame_arguments(w, &inner);
    if (inner.code->flags & KRI_CODE_MACRO)
        return kri_cons(w, name, arguments);
    if (kri_is_cons(name) && kri_is_cons(kri_cdr(name)) && kri_is_cons(arguments)) /* a method: (class selector) */
        return kri_cons(w, w->vm->sym.send, as_written(w, kri_car(arguments), kri_cons(w, kri_car(kri_cdr(name)), kri_cdr(arguments))));
    return as_written(w, name, arguments);
}

/* ---- variables ---- */

enum { MOST_VARIABLES = 100 };

struct variables {
    kr_value names[MOST_VARIABLES];
    kr_value *at[MOST_VARIABLES]; /* where the value or its box is; NULL: nowhere to store to */
    kr_value value[MOST_VARIABLES];
    unsigned n;
    bool parameter[MOST_VARIABLES];
};

static void add_variable(struct kri_worker *w, struct variables *v, kr_value name, kr_value *at, kr_value value, bool parameter)
{
    if (v->n == MOST_VARIABLES || !kri_is_symbol(name) || kri_is_nil(name) || kri_eq(value, KRI_ABSENT))
        return;
    if (kri_is_nil(kri_symbol_of(w->vm, name)->homepkg)) /* made by a macro */
        return;
    for (unsigned i = 0; i < v->n; i++)
        if (kri_eq(v->names[i], name)) /* hidden by an inner one */
            return;
    v->names[v->n] = name;
    v->at[v->n] = at;
    v->value[v->n] = value;
    v->parameter[v->n++] = parameter;
}

/* The variables of F that are visible where it is, inner ones first. */
static void frame_variables(struct kri_worker *w, const struct kri_frames *f, struct variables *v)
{
    const struct kri_code *code = f->code;
    size_t n;
    const uint32_t *t = debug_table(code, 1, &n);
    uint32_t at = (uint32_t)(f->at - code->instr) - 1;
    unsigned parameters = code->nreq + code->nopt + code->nkey + (code->flags & KRI_CODE_REST ? 1 : 0);
    v->n = 0;
    for (size_t i = n / KRI_LOCAL_WORDS; i-- > 0;) {
        const uint32_t *row = t + i * KRI_LOCAL_WORDS;
        uint32_t where = row[1] >> 2;
        if (at < row[2] || at >= row[3])
            continue;
        if (!f->writable) { /* native code: the parameters */
            if (!(row[1] & KRI_LOCAL_CAPTURED) && where < parameters)
                add_variable(w, v, debug_value(code, row[0]), NULL, f->registers[where], true);
        } else if (row[1] & KRI_LOCAL_CAPTURED)
            add_variable(w, v, debug_value(code, row[0]), NULL, kri_function_of(f->function)->captured[where], false);
        else if (where < code->frame)
            add_variable(w, v, debug_value(code, row[0]), &f->writable[where], f->writable[where], where < parameters);
    }
}

/* The class whose slots are visible in F, and the receiver; NIL if it runs no method. */
static kr_value frame_class(struct kri_worker *w, const struct kri_frames *f, kr_value *self)
{
    *self = KRI_NIL;
    if (!(f->code->flags & KRI_CODE_METHOD))
        return KRI_NIL;
    *self = unboxed(f->registers[0]);
    return kri_is_pointer(*self) && !kri_is_nil(*self) ? w->vm->classes[kri_ptr(*self)->cls].object : KRI_NIL;
}

kr_value kri_frame_locals(struct kri_worker *w, const struct kri_frames *f)
{
    struct variables v;
    kr_value list = KRI_NIL;
    frame_variables(w, f, &v);
    for (unsigned i = 0; i < v.n; i++)
        if (!v.parameter[i])
            list = kri_cons(w, kri_cons(w, v.names[i], unboxed(v.value[i])), list);
    return list;
}

/* A frame's handle for Lisp is the address of its base in words; a frame that is gone is an error. */
static kr_value frame_handle(const struct kri_frames *f) { return kri_fixnum((intptr_t)((uintptr_t)f->registers / sizeof(kr_value))); }

static struct kri_frames frame_arg(struct kri_worker *w, kr_value *argv, int i)
{
    struct kri_frames f;
    for (bool more = kri_frame_first(w, &f); more; more = kri_frame_next(w, &f, NULL))
        if (kri_eq(frame_handle(&f), argv[i]))
            return f;
    kri_error(w, KRI_E_RANGE, argv[i], "no frame of this thread");
}

KR_BUILTIN(frames, "lisp::%frames", "(&optional (n 100000))",
           "The handles of the N innermost frames of this thread, a list. A handle is good until its function returns.")
{
    intptr_t n = argc > 0 ? kri_arg_natural(w, argv, 0) : 100000;
    kr_value head = kri_cons(w, KRI_NIL, KRI_NIL), tail = head;
    struct kri_frames f;
    for (bool more = kri_frame_first(w, &f); more && n > 0; more = kri_frame_next(w, &f, NULL), n--) {
        kr_value cell = kri_cons(w, frame_handle(&f), KRI_NIL);
        kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, cell);
        tail = cell;
    }
    return kri_cdr(head);
}

KR_BUILTIN(frame_information, "lisp::%frame-information", "(frame)",
           "What FRAME, a handle from %frames, runs: (name file line function form arguments); form is the innermost one that is "
           "evaluated in it, or nil.")
{
    struct kri_frames f = frame_arg(w, argv, 0);
    const struct kri_code *code = f.code;
    const uint32_t *site = site_of(&f);
    kr_value form = site ? debug_value(code, site[1]) : KRI_NIL, arguments = kri_frame_arguments(w, &f);
    return kri_list(w, 6, code->name, code->file, kri_fixnum(f.line), f.function, form, arguments);
}

KR_BUILTIN(frame_variables, "lisp::%frame-variables", "(frame)",
           "The variables visible in FRAME as %eval-in wants them: (#(class-or-nil symbol..) value..), where the values are the "
           "receiver if there is a class, and boxes. Variables that no closure shares are copies: see %frame-store.")
{
    struct kri_frames f = frame_arg(w, argv, 0);
    struct variables v;
    kr_value self, cls = frame_class(w, &f, &self), list = KRI_NIL;
    frame_variables(w, &f, &v);
    kr_value names = kri_make_vector(w, v.n + 1);
    kri_vector_of(names)->at[0] = cls;
    for (unsigned i = v.n; i-- > 0;) {
        kri_store(w, kri_ptr(names), &kri_vector_of(names)->at[i + 1], v.names[i]);
        list = kri_cons(w, kri_has_class(v.value[i], KRI_CLASS_BOX) ? v.value[i] : kri_make_box(w, v.value[i]), list);
    }
    return kri_cons(w, names, kri_is_nil(cls) ? list : kri_cons(w, self, list));
}

KR_BUILTIN(frame_locals, "lisp::%frame-locals", "(frame)", "An association list of FRAME's variables that are no parameters, and their values.")
{
    struct kri_frames f = frame_arg(w, argv, 0);
    return kri_frame_locals(w, &f);
}

KR_BUILTIN(frame_store, "lisp::%frame-store", "(frame variables)",
           "VARIABLES is what %frame-variables gave for FRAME: give the frame's variables the values in its boxes. Returns nil.")
{
    struct kri_frames f = frame_arg(w, argv, 0);
    struct variables v;
    kr_value self, list = kri_cdr(kri_arg_cons(w, argv, 1));
    if (!kri_is_nil(frame_class(w, &f, &self)) && kri_is_cons(list))
        list = kri_cdr(list);
    frame_variables(w, &f, &v);
    for (unsigned i = 0; i < v.n && kri_is_cons(list); i++, list = kri_cdr(list))
        if (v.at[i] && !kri_has_class(v.value[i], KRI_CLASS_BOX) && kri_has_class(kri_car(list), KRI_CLASS_BOX))
            *v.at[i] = unboxed(kri_car(list));
    return KRI_NIL;
}

KR_BUILTIN(box_value, "lisp::%box-value", "(box)", "What BOX, a variable's from %frame-variables, holds.")
{
    if (!kri_has_class(argv[0], KRI_CLASS_BOX))
        kri_argument_error(w, 0, argv[0], KRI_E_TYPE_MISMATCH);
    return unboxed(argv[0]);
}

kr_value kri_variable_names(struct kri_worker *w, const struct kri_code *code)
{
    kr_value list = KRI_NIL;
    size_t n;
    const uint32_t *t = debug_table(code, 1, &n);
    for (size_t i = 0; i < n / KRI_LOCAL_WORDS; i++) {
        kr_value name = debug_value(code, t[i * KRI_LOCAL_WORDS]);
        if (kri_is_symbol(name) && !kri_is_nil(kri_symbol_of(w->vm, name)->homepkg))
            list = kri_cons(w, name, list);
    }
    return list;
}

KR_BUILTIN(variable_names, "lisp::%variable-names", "(function)", "The names of all variables of FUNCTION and of those it captured.")
{
    return kri_is_function(argv[0]) ? kri_variable_names(w, kri_code_of(argv[0])) : KRI_NIL;
}

/* ---- what a function uses ---- */

static void add_use(struct kri_worker *w, kr_value *list, kr_value kind, kr_value symbol)
{
    for (kr_value l = *list; kri_is_cons(l); l = kri_cdr(l))
        if (kri_eq(kri_car(kri_car(l)), kind) && kri_eq(kri_cdr(kri_car(l)), symbol))
            return;
    *list = kri_cons(w, kri_cons(w, kind, symbol), *list);
}

/* The symbols that CODE and the functions in it name in their instructions. */
static kr_value uses_of(struct kri_worker *w, const struct kri_code *code, kr_value list)
{
    if (kri_native_exhausted(w) || kri_is_builtin_code(code))
        return list;
    kr_value constants = code->constants;
    size_t n = kri_is_nil(constants) ? 0 : kri_length(constants);
    for (uint32_t at = 0; at < code->head.length; at++) {
        kri_instruction i = code->instr[at];
        const char *kind = NULL;
        unsigned k = 0;
        switch ((enum kri_op)kri_decode_op(i)) {
        case KRI_OP_CALLG: kind = "CALLS"; k = kri_decode_c(i); break;
        case KRI_OP_FUNCTION: kind = "CALLS"; k = (unsigned)kri_decode_bx(i); break;
        case KRI_OP_GETVAR: kind = "REFERENCES"; k = (unsigned)kri_decode_bx(i); break;
        case KRI_OP_SETVAR: kind = "SETS"; k = (unsigned)kri_decode_bx(i); break;
        case KRI_OP_BIND: kind = "BINDS"; k = kri_decode_b(i); break;
        case KRI_OP_SEND: kind = "CALLS"; k = kri_decode_c(i); break;
        default: break;
        }
        if (kind && k < n && kri_is_symbol(kri_vector_of(constants)->at[k]))
            add_use(w, &list, kri_keyword(w, kind), kri_vector_of(constants)->at[k]);
    }
    for (size_t i = 0; i < n; i++) {
        kr_value v = kri_vector_of(constants)->at[i];
        if (kri_has_class(v, KRI_CLASS_CODE))
            list = uses_of(w, (const struct kri_code *)v.w, list);
        else if (kri_is_function(v) && kri_is_nil(kri_code_of(v)->name))
            list = uses_of(w, kri_code_of(v), list);
    }
    return list;
}

KR_BUILTIN(function_uses, "lisp::%function-uses", "(function)",
           "What FUNCTION's code names: a list of pairs (KIND . SYMBOL), KIND one of :calls, :references, :sets, :binds. What the compiler "
           "makes instructions of, such as car, is not in it.")
{
    return kri_is_function(argv[0]) ? uses_of(w, kri_code_of(argv[0]), KRI_NIL) : KRI_NIL;
}

/* ---- going on behind a call ---- */

/* Does the instruction before PC leave its value in register A? */
static bool gives_value(const kri_instruction *pc)
{
    switch ((enum kri_op)kri_decode_op(pc[-1])) {
    case KRI_OP_CALLG:
    case KRI_OP_CALL:
    case KRI_OP_CALLF:
    case KRI_OP_CALLS:
    case KRI_OP_SEND:
    case KRI_OP_SENDV:
    case KRI_OP_SENDSUPER:
    case KRI_OP_APPLY:
    case KRI_OP_GETVAR:
    case KRI_OP_FUNCTION:
    case KRI_OP_ADD:
    case KRI_OP_SUB:
    case KRI_OP_MUL:
    case KRI_OP_DIV:
    case KRI_OP_MOD:
    case KRI_OP_ADDI:
    case KRI_OP_LT:
    case KRI_OP_LE:
    case KRI_OP_NUMEQ:
    case KRI_OP_CAR:
    case KRI_OP_CDR:
    case KRI_OP_AREF:
        return true;
    default:
        return false;
    }
}

/* Is the instruction before PC a call? Then there is room for another one in its place. */
static bool is_call(const kri_instruction *pc)
{
    unsigned op = kri_decode_op(pc[-1]);
    return op == KRI_OP_CALLG || op == KRI_OP_CALL || op == KRI_OP_SEND || op == KRI_OP_SENDV || op == KRI_OP_SENDSUPER || op == KRI_OP_APPLY;
}

static bool can_return_to(const struct kri_frames *f)
{
    return f->writable && f->at > f->code->instr && f->at <= f->code->instr + f->code->head.length && gives_value(f->at);
}

/* Was handler H there before frame BASE made the call that it is at? */
static bool older_handler(kr_value *h, kr_value *base)
{
    kr_value *of = kri_untag_pointer(h[3]);
    if (of == base) /* its own lie in its registers, those of C code that it called do not */
        return h >= base && h < base + kri_code_of(base[-3])->frame;
    for (kr_value *b = kri_untag_pointer(base[-1]); b; b = kri_untag_pointer(b[-1]))
        if (b == of)
            return true;
    return false;
}

KR_BUILTIN(return_value_p, "lisp::%return-value-p", "(frame)", "t if %return-to can let FRAME go on.")
{
    struct kri_frames f = frame_arg(w, argv, 0);
    return kri_bool(w, can_return_to(&f));
}

KR_BUILTIN(return_to, "lisp::%return-to", "(frame value &optional call)",
           "Leave everything that FRAME has called, running cleanups, and let FRAME go on as if that call had returned VALUE; with CALL, "
           "what VALUE, a function of no arguments, returns when it is called then.")
{
    bool call = argc > 2 && !kri_is_nil(argv[2]);
    struct kr_context *ctx = w->ctx;
    struct kri_frames f = frame_arg(w, argv, 0);
    if (!can_return_to(&f) || (call && !is_call(f.at)))
        kri_error(w, KRI_E_RANGE, argv[0], "no value can be returned there");
    if (call)
        argv[1] = kri_coerce_function(w, argv[1]);
    kr_value entry = kri_make_vector(w, KRI_HANDLER_WORDS);
    kr_value *at = kri_vector_of(entry)->at, *newer = NULL, *h = ctx->handler;
    for (; h && !older_handler(h, f.writable); h = kri_op_previous(h))
        newer = h;
    at[0] = kri_tag_pointer(h);
    at[1] = kri_fixnum((intptr_t)((size_t)(f.at - f.code->instr) << 3 | (call ? KRI_HANDLER_CALL : KRI_HANDLER_RETURN)));
    at[2] = entry;
    at[3] = kri_tag_pointer(f.writable);
    ctx->returns = kri_cons(w, entry, ctx->returns);
    if (newer)
        newer[0] = kri_tag_pointer(at);
    else
        ctx->handler = at;
    kri_unwind_to(w, at, argv[1]);
}

const struct kri_builtin *const kri_builtins_frame[] = {&frames_def, &frame_information_def, &frame_variables_def, &frame_locals_def, &frame_store_def,
                                                        &box_value_def, &variable_names_def, &return_value_p_def, &function_uses_def,
                                                        &return_to_def, NULL};
