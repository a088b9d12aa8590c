/* compile_generate.c -- trees to instructions, a function at a time.
 *
 * Registers are a stack: parameters, then variables as they are bound, then temporaries; HEIGHT is the first free one.
 * Every node is generated for a destination: a register, DST_NONE (its effect only), or DST_RETURN (return its value). A destination
 * register is written last: nothing that the node still reads may be there, save when the register is fresh.
 * Comparisons that branch have a 16-bit distance; when one does not reach, the function is generated again with comparisons that
 * jump over a long jump. */
#include "lisp/compile.h"

enum { DST_NONE = -1, DST_RETURN = -2, REGISTER_LIMIT = 60000 };

struct kri_fixup {
    unsigned at; /* instruction */
    int next;    /* the label's fixup before this one, or -1 */
};

/* What is between here and the function's edge that leaving must undo. */
struct kri_dynamic {
    struct kri_dynamic *outside;
    enum kri_op undo; /* UNBIND or POP */
    unsigned reg;
};

/* ---- emitting ---- */

static unsigned emit(struct kri_compiler *c, struct kri_fn *f, kri_instruction i)
{
    if (f->length == f->size)
        f->instr = kri_compiler_grow(c, f->instr, f->length, &f->size, sizeof *f->instr);
    if (f->length >= 1u << 28)
        kri_error(c->w, KRI_E_LISP_FORM, KRI_NIL, "a function too long to compile");
    f->instr[f->length] = i;
    return f->length++;
}

static unsigned emit3(struct kri_compiler *c, struct kri_fn *f, enum kri_op op, unsigned x, unsigned y, unsigned z)
{
    return emit(c, f, kri_encode(op, x, y, z));
}

static unsigned push(struct kri_compiler *c, struct kri_fn *f, unsigned n)
{
    unsigned r = f->height;
    f->height += n;
    if (f->height > f->highest)
        f->highest = f->height;
    if (f->height > REGISTER_LIMIT)
        kri_error(c->w, KRI_E_LISP_FORM, f->name, "a function that needs more than %d registers", REGISTER_LIMIT);
    return r;
}

static unsigned constant(struct kri_compiler *c, struct kri_fn *f, kr_value v)
{
    if (f->constants * 2 >= f->hash_size) {
        unsigned size = f->hash_size ? f->hash_size * 4 : 32;
        f->constant_hash = kri_compiler_alloc(c, size * sizeof *f->constant_hash);
        f->hash_size = size;
        for (unsigned i = 0; i < f->constants; i++) {
            unsigned h = (unsigned)(f->constant[i].w * 0x9e3779b97f4a7c15u >> 40) & (size - 1);
            while (f->constant_hash[h])
                h = (h + 1) & (size - 1);
            f->constant_hash[h] = i + 1;
        }
    }
    unsigned h = (unsigned)(v.w * 0x9e3779b97f4a7c15u >> 40) & (f->hash_size - 1);
    for (; f->constant_hash[h]; h = (h + 1) & (f->hash_size - 1))
        if (kri_eq(f->constant[f->constant_hash[h] - 1], v))
            return f->constant_hash[h] - 1;
    if (f->constants == f->constant_size)
        f->constant = kri_compiler_grow(c, f->constant, f->constants, &f->constant_size, sizeof *f->constant);
    if (f->constants == 65535)
        kri_error(c->w, KRI_E_LISP_FORM, f->name, "a function with more than 65535 constants");
    f->constant[f->constants] = v;
    f->constant_hash[h] = f->constants + 1;
    return f->constants++;
}

/* ---- what the debugger will ask for ---- */

static void note_words(struct kri_compiler *c, struct kri_debug_table *t, unsigned n, const uint32_t *words)
{
    while (t->count + n > t->size)
        t->word = kri_compiler_grow(c, t->word, t->count, &t->size, sizeof *t->word);
    memcpy(t->word + t->count, words, n * sizeof *words);
    t->count += n;
}

enum { POOL_FIRST = 2 /* the tables themselves come before */, LOOK_BACK = 6 };

/* The index of V among the values that the tables name; a value noted long ago is entered again. Neighbours share forms. */
static uint32_t note_value(struct kri_compiler *c, struct kri_fn *f, kr_value v)
{
    if (kri_is_nil(v))
        return 0;
    for (unsigned i = f->pool_count; i > 0 && i + LOOK_BACK > f->pool_count; i--)
        if (kri_eq(f->pool[i - 1], v))
            return i - 1 + POOL_FIRST;
    if (f->pool_count >= f->pool_size)
        f->pool = kri_compiler_grow(c, f->pool, f->pool_count, &f->pool_size, sizeof *f->pool);
    f->pool[f->pool_count++] = v;
    return f->pool_count + POOL_FIRST - 1;
}

static void note_line(struct kri_compiler *c, struct kri_fn *f, unsigned line)
{
    if (!line || (f->line_words && f->lines[f->line_words - 1] == line))
        return;
    while (f->line_words + 2 > f->line_size)
        f->lines = kri_compiler_grow(c, f->lines, f->line_words, &f->line_size, sizeof *f->lines);
    f->lines[f->line_words++] = f->length;
    f->lines[f->line_words++] = line;
}

/* The next instruction is where N may fail. */
static void note_site(struct kri_compiler *c, struct kri_fn *f, const struct kri_node *n)
{
    note_line(c, f, n->line);
    uint32_t outer = note_value(c, f, n->outer), row[KRI_SITE_WORDS] = {f->length, note_value(c, f, n->form), outer};
    note_words(c, &f->sites, KRI_SITE_WORDS, row);
}

/* From the next instruction on variable V has its value. */
static void note_local(struct kri_compiler *c, struct kri_fn *f, const struct kri_var *v)
{
    uint32_t where = v->reg << 2 | (kri_var_boxed(v) ? KRI_LOCAL_BOXED : 0);
    uint32_t row[KRI_LOCAL_WORDS] = {note_value(c, f, v->name), where, f->length, UINT32_MAX};
    note_words(c, &f->locals, KRI_LOCAL_WORDS, row);
}

/* The variables noted since there were FROM words are gone. */
static void end_locals(struct kri_fn *f, unsigned from)
{
    for (unsigned i = from; i < f->locals.count; i += KRI_LOCAL_WORDS)
        if (f->locals.word[i + 3] == UINT32_MAX)
            f->locals.word[i + 3] = f->length;
}

static void note_captured(struct kri_compiler *c, struct kri_fn *f)
{
    struct kri_debug_table own = f->locals;
    f->locals = (struct kri_debug_table){NULL, 0, 0};
    for (unsigned i = 0; f->lifted && i < f->frees; i++) {
        uint32_t where = (f->nreq + i) << 2 | (kri_var_boxed(f->free[i]) ? KRI_LOCAL_BOXED : 0);
        uint32_t row[KRI_LOCAL_WORDS] = {note_value(c, f, f->free[i]->name), where, 0, UINT32_MAX};
        if (row[0])
            note_words(c, &f->locals, KRI_LOCAL_WORDS, row);
    }
    for (unsigned i = 0; i < f->ups; i++) {
        uint32_t where = i << 2 | KRI_LOCAL_CAPTURED | (kri_var_boxed(f->up[i]) ? KRI_LOCAL_BOXED : 0);
        uint32_t row[KRI_LOCAL_WORDS] = {note_value(c, f, f->up[i]->name), where, 0, UINT32_MAX};
        if (row[0])
            note_words(c, &f->locals, KRI_LOCAL_WORDS, row);
    }
    if (own.count)
        note_words(c, &f->locals, own.count, own.word);
}

static kr_value bytes_of(struct kri_compiler *c, const struct kri_debug_table *t)
{
    size_t bytes = t->count * sizeof *t->word;
    struct kri_cell *cell = kri_make(c->w, KRI_CLASS_BYTES, (uint32_t)bytes, (bytes + 7) / 8 + (bytes == 0));
    if (bytes)
        memcpy(cell->slot, t->word, bytes);
    return kri_value_of(cell);
}

static kr_value make_debug(struct kri_compiler *c, struct kri_fn *f)
{
    note_captured(c, f);
    if (f->sites.count + f->locals.count == 0)
        return KRI_NIL;
    kr_value sites = bytes_of(c, &f->sites), locals = bytes_of(c, &f->locals), v = kri_make_vector(c->w, POOL_FIRST + f->pool_count);
    struct kri_vector *pool = kri_vector_of(v);
    if (f->pool_count)
        memcpy(pool->at + POOL_FIRST, f->pool, f->pool_count * sizeof *f->pool);
    pool->at[0] = sites;
    pool->at[1] = locals;
    return v;
}

/* ---- jumps ---- */

static const struct kri_label new_label = {-1, -1};

static bool short_jump(enum kri_op op)
{
    switch (op) {
    case KRI_OP_JUMP:
    case KRI_OP_LOOP:
    case KRI_OP_JNIL:
    case KRI_OP_JTRUE:
    case KRI_OP_JGIVEN:
    case KRI_OP_JCONS:
    case KRI_OP_JNCONS:
    case KRI_OP_CATCH:
    case KRI_OP_BLOCK:
    case KRI_OP_PROTECT:
        return false;
    default:
        return true;
    }
}

static void patch(struct kri_fn *f, unsigned at, int target)
{
    kri_instruction i = f->instr[at];
    int distance = target - (int)at - 1;
    enum kri_op op = (enum kri_op)kri_decode_op(i);
    if (short_jump(op)) {
        if (distance != (int16_t)distance)
            f->overflow = true;
        f->instr[at] = kri_encode(op, kri_decode_a(i), kri_decode_b(i), (unsigned)distance);
    } else {
        f->instr[at] = kri_encode_x(op, kri_decode_a(i), distance);
    }
}

static void label_here(struct kri_fn *f, struct kri_label *l)
{
    l->at = (int)f->length;
    for (int i = l->fixup; i >= 0; i = f->fixup[i].next)
        patch(f, f->fixup[i].at, l->at);
    l->fixup = -1;
}

static void refer(struct kri_compiler *c, struct kri_fn *f, unsigned at, struct kri_label *l)
{
    if (l->at >= 0) {
        patch(f, at, l->at);
        return;
    }
    unsigned size = (unsigned)f->fixup_size;
    if (f->fixups == f->fixup_size)
        f->fixup = kri_compiler_grow(c, f->fixup, (size_t)f->fixups, &size, sizeof *f->fixup);
    f->fixup_size = (int)size;
    f->fixup[f->fixups] = (struct kri_fixup){at, l->fixup};
    l->fixup = f->fixups++;
}

/* JUMP, JNIL, JTRUE and the other jumps of 32 bits. */
static void jump(struct kri_compiler *c, struct kri_fn *f, enum kri_op op, unsigned a, struct kri_label *l)
{
    refer(c, f, emit(c, f, kri_encode_x(op, a, 0)), l);
}

static void jump_always(struct kri_compiler *c, struct kri_fn *f, struct kri_label *l)
{
    jump(c, f, l->at >= 0 ? KRI_OP_LOOP : KRI_OP_JUMP, 0, l);
}

/* A comparison that jumps; INVERSE is its opposite. */
static void jump_compare(struct kri_compiler *c, struct kri_fn *f, enum kri_op op, enum kri_op inverse, unsigned a, unsigned b,
                         struct kri_label *l)
{
    if (!f->long_jumps) {
        refer(c, f, emit3(c, f, op, a, b, 0), l);
        return;
    }
    emit3(c, f, inverse, a, b, 1);
    jump(c, f, KRI_OP_JUMP, 0, l);
}

/* ---- variables ---- */

static unsigned captured_index(struct kri_compiler *c, struct kri_fn *f, struct kri_var *v)
{
    for (unsigned i = 0; i < f->ups; i++)
        if (f->up[i] == v)
            return i;
    if (f->ups == f->up_size)
        f->up = kri_compiler_grow(c, f->up, f->ups, &f->up_size, sizeof *f->up);
    if (f->ups == 65535)
        kri_error(c->w, KRI_E_LISP_FORM, f->name, "a closure over more than 65535 variables");
    f->up[f->ups] = v;
    return f->ups++;
}

/* The register of F in which V, its value or its box, lies, or -1: it is in F's closure. */
static int register_of(const struct kri_fn *f, const struct kri_var *v)
{
    if (v->owner == f)
        return (int)v->reg;
    for (unsigned i = 0; f->lifted && i < f->frees; i++)
        if (f->free[i] == v)
            return (int)(f->nreq + i);
    return -1;
}

/* Bring what stands for V, its value or its box, into register DST. */
static void load_raw(struct kri_compiler *c, struct kri_fn *f, struct kri_var *v, unsigned dst)
{
    int r = register_of(f, v);
    if (r < 0)
        emit3(c, f, KRI_OP_GETUP, dst, captured_index(c, f, v), 0);
    else if ((unsigned)r != dst)
        emit3(c, f, KRI_OP_MOVE, dst, (unsigned)r, 0);
}

static void load_var(struct kri_compiler *c, struct kri_fn *f, struct kri_var *v, unsigned dst)
{
    if (!kri_var_boxed(v)) {
        load_raw(c, f, v, dst);
    } else if (register_of(f, v) >= 0) {
        emit3(c, f, KRI_OP_GETBOX, dst, (unsigned)register_of(f, v), 0);
    } else {
        load_raw(c, f, v, dst);
        emit3(c, f, KRI_OP_GETBOX, dst, dst, 0);
    }
}

static void store_var(struct kri_compiler *c, struct kri_fn *f, struct kri_var *v, unsigned from)
{
    if (!kri_var_boxed(v)) {
        if (v->reg != from)
            emit3(c, f, KRI_OP_MOVE, v->reg, from, 0);
    } else if (register_of(f, v) >= 0) {
        emit3(c, f, KRI_OP_SETBOX, (unsigned)register_of(f, v), from, 0);
    } else {
        unsigned height = f->height, t = push(c, f, 1);
        load_raw(c, f, v, t);
        emit3(c, f, KRI_OP_SETBOX, t, from, 0);
        f->height = height;
    }
}

static void load_constant(struct kri_compiler *c, struct kri_fn *f, kr_value v, unsigned dst)
{
    if (kri_is_nil(v))
        emit3(c, f, KRI_OP_LOADNIL, dst, 0, 0);
    else if (kri_eq(v, c->vm->sym.t))
        emit3(c, f, KRI_OP_LOADT, dst, 0, 0);
    else if (kri_is_fixnum(v) && kri_fixnum_value(v) == (int32_t)kri_fixnum_value(v))
        emit(c, f, kri_encode_x(KRI_OP_LOADI, dst, (int32_t)kri_fixnum_value(v)));
    else
        emit(c, f, kri_encode_x(KRI_OP_LOADK, dst, (int32_t)constant(c, f, v)));
}

/* ---- declared types ---- */

/* Register R holds a value meant for what D declares. */
static void check_type(struct kri_compiler *c, struct kri_fn *f, unsigned r, const struct kri_declared *d)
{
    if (d->kind)
        emit3(c, f, d->trusted ? KRI_OP_TRUST : KRI_OP_TYPE, r, constant(c, f, d->type), d->kind);
}

/* ---- nodes ---- */

static void generate(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst);
static void generate_test(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, bool sense, struct kri_label *l);

static bool fresh_top(const struct kri_fn *f, int dst) { return dst >= 0 && (unsigned)dst + 1 == f->height; }

/* The value is in register R: bring it to DST. */
static void deliver(struct kri_compiler *c, struct kri_fn *f, unsigned r, int dst)
{
    if (dst == DST_RETURN)
        emit3(c, f, KRI_OP_RET, r, 0, 0);
    else if (dst >= 0 && (unsigned)dst != r)
        emit3(c, f, KRI_OP_MOVE, (unsigned)dst, r, 0);
}

/* A register that has N's value: its variable's own if that cannot change before use (LATER_ASSIGNS: other operands are
 * evaluated in between and assign something), else a fresh one. */
static unsigned operand(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, bool later_assigns)
{
    if (n->op == KRI_N_VAR && !kri_var_boxed(n->u.var) && !(later_assigns && n->u.var->assigned) && register_of(f, n->u.var) >= 0)
        return (unsigned)register_of(f, n->u.var);
    unsigned r = push(c, f, 1);
    generate(c, f, n, (int)r);
    return r;
}

static void operands2(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, unsigned *a, unsigned *b)
{
    *a = operand(c, f, n->kid[0], n->kid[1]->flags & KRI_NODE_ASSIGNS);
    *b = operand(c, f, n->kid[1], false);
}

static bool small_constant(const struct kri_node *n)
{
    return n->op == KRI_N_CONST && kri_is_fixnum(n->value) && kri_fixnum_value(n->value) == (int16_t)kri_fixnum_value(n->value);
}

static unsigned immediate(const struct kri_node *n) { return (unsigned)kri_fixnum_value(n->value) & 0xffff; }

static void generate_op(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    unsigned height = f->height, a, b, to = 0;
    /* Operands come first, so the result may land where an operand's temporary was. */
    if (n->index == KRI_I_LIST) {
        unsigned first = f->height;
        for (uint32_t i = 0; i < n->kids; i++) {
            unsigned r = push(c, f, 1);
            generate(c, f, n->kid[i], (int)r);
        }
        to = dst >= 0 ? (unsigned)dst : first;
        note_site(c, f, n);
        emit3(c, f, KRI_OP_LIST, to, first, n->kids);
    } else if (n->index == KRI_I_ASET) {
        bool third = n->kid[2]->flags & KRI_NODE_ASSIGNS;
        a = operand(c, f, n->kid[0], third || n->kid[1]->flags & KRI_NODE_ASSIGNS);
        b = operand(c, f, n->kid[1], third);
        to = operand(c, f, n->kid[2], false);
        note_site(c, f, n);
        emit3(c, f, KRI_OP_ASET, to, a, b);
    } else if (n->index == KRI_I_RPLACA || n->index == KRI_I_RPLACD) {
        operands2(c, f, n, &to, &b);
        note_site(c, f, n);
        emit3(c, f, n->index == KRI_I_RPLACA ? KRI_OP_RPLACA : KRI_OP_RPLACD, to, b, 0);
    } else if (n->kids == 1) {
        static const enum kri_op unary[] = {[KRI_I_NOT] = KRI_OP_NOT, [KRI_I_ATOM] = KRI_OP_CONSP, [KRI_I_CONSP] = KRI_OP_CONSP,
                                            [KRI_I_CAR] = KRI_OP_CAR, [KRI_I_CDR] = KRI_OP_CDR, [KRI_I_LENGTH] = KRI_OP_LENGTH};
        a = operand(c, f, n->kid[0], false);
        if (dst < 0)
            push(c, f, 1);
        to = dst >= 0 ? (unsigned)dst : height;
        note_site(c, f, n);
        emit3(c, f, unary[n->index], to, a, 0);
        if (n->index == KRI_I_ATOM)
            emit3(c, f, KRI_OP_NOT, to, to, 0);
    } else if ((n->index == KRI_I_ADD || n->index == KRI_I_SUB) && small_constant(n->kid[1]) &&
               !(n->index == KRI_I_SUB && kri_fixnum_value(n->kid[1]->value) == INT16_MIN)) {
        a = operand(c, f, n->kid[0], false);
        if (dst < 0)
            push(c, f, 1);
        to = dst >= 0 ? (unsigned)dst : height;
        intptr_t k = kri_fixnum_value(n->kid[1]->value);
        note_site(c, f, n);
        emit3(c, f, KRI_OP_ADDI, to, a, (unsigned)(n->index == KRI_I_SUB ? -k : k) & 0xffff);
    } else {
        static const enum kri_op binary[] = {
            [KRI_I_ADD] = KRI_OP_ADD, [KRI_I_SUB] = KRI_OP_SUB, [KRI_I_MUL] = KRI_OP_MUL, [KRI_I_DIV] = KRI_OP_DIV,
            [KRI_I_MOD] = KRI_OP_MOD, [KRI_I_LT] = KRI_OP_LT, [KRI_I_LE] = KRI_OP_LE, [KRI_I_GT] = KRI_OP_LT, [KRI_I_GE] = KRI_OP_LE,
            [KRI_I_NUMEQ] = KRI_OP_NUMEQ, [KRI_I_EQ] = KRI_OP_EQ, [KRI_I_CONS] = KRI_OP_CONS, [KRI_I_AREF] = KRI_OP_AREF,
            [KRI_I_TRUNCATE] = KRI_OP_TRUNCATE, [KRI_I_LOGAND] = KRI_OP_LOGAND, [KRI_I_LOGIOR] = KRI_OP_LOGIOR, [KRI_I_LOGXOR] = KRI_OP_LOGXOR,
            [KRI_I_ASH] = KRI_OP_ASH};
        operands2(c, f, n, &a, &b);
        if (dst < 0)
            push(c, f, 1);
        to = dst >= 0 ? (unsigned)dst : height;
        note_site(c, f, n);
        if (n->index == KRI_I_GT || n->index == KRI_I_GE)
            emit3(c, f, binary[n->index], to, b, a);
        else
            emit3(c, f, binary[n->index], to, a, b);
    }
    deliver(c, f, to, dst);
    f->height = height;
}

/* ---- calls ---- */

/* Begin a call frame whose result is wanted in DST: the frame starts there if that is the top register. */
static unsigned frame_begin(struct kri_compiler *c, struct kri_fn *f, int dst)
{
    unsigned base = fresh_top(f, dst) ? (unsigned)dst : f->height;
    f->height = base;
    push(c, f, 3);
    return base;
}

static void arguments(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, uint32_t from)
{
    for (uint32_t i = from; i < n->kids; i++) {
        unsigned r = push(c, f, 1);
        generate(c, f, n->kid[i], (int)r);
    }
}

/* The call of local function V, whose frame begins at BASE with N arguments. */
static void call_local(struct kri_compiler *c, struct kri_fn *f, const struct kri_var *v, unsigned base, unsigned n)
{
    struct kri_fn *function = v->function;
    if (!function->lifted) {
        emit3(c, f, KRI_OP_CALL, base, n, 0);
    } else if (function == f) {
        emit3(c, f, KRI_OP_CALLS, base, n, 0);
    } else {
        emit3(c, f, KRI_OP_CALLF, base, n, constant(c, f, function->object));
    }
}

static void generate_call(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    unsigned height = f->height, selector = 0, base, passed = 0;
    if (n->op == KRI_N_CALLLOCAL && n->u.var->function->lifted) {
        struct kri_fn *function = n->u.var->function;
        passed = function->frees;
        if (function != f && kri_is_nil(function->object)) {
            kri_generate(c, function);
            function->object = kri_function_make(c, function);
        }
    }
    if (n->op == KRI_N_SENDV) {
        selector = push(c, f, 1);
        base = frame_begin(c, f, DST_NONE);
        unsigned receiver = push(c, f, 1);
        generate(c, f, n->kid[0], (int)receiver);
        generate(c, f, n->kid[1], (int)selector);
        arguments(c, f, n, 2);
    } else {
        base = frame_begin(c, f, dst);
        if (n->op == KRI_N_CALLV || n->op == KRI_N_APPLY) {
            /* The function goes in the frame's first word; nothing on its way may use the words behind. */
            unsigned top = f->height;
            f->height = base + 1;
            generate(c, f, n->kid[0], (int)base);
            f->height = top;
            arguments(c, f, n, 1);
        } else if (n->op == KRI_N_CALLLOCAL && !n->u.var->function->lifted) {
            unsigned top = f->height;
            f->height = base + 1;
            load_var(c, f, n->u.var, base);
            f->height = top;
            arguments(c, f, n, 0);
        } else {
            arguments(c, f, n, 0);
        }
    }
    for (unsigned i = 0; i < passed; i++) {
        unsigned r = push(c, f, 1);
        load_raw(c, f, n->u.var->function->free[i], r);
    }
    note_site(c, f, n);
    switch (n->op) {
    case KRI_N_CALLLOCAL:
        call_local(c, f, n->u.var, base, n->kids + passed);
        break;
    case KRI_N_CALL:
        emit3(c, f, KRI_OP_CALLG, base, n->kids, constant(c, f, n->value));
        break;
    case KRI_N_CALLV:
        emit3(c, f, KRI_OP_CALL, base, n->kids - 1, 0);
        break;
    case KRI_N_APPLY:
        emit3(c, f, KRI_OP_APPLY, base, n->kids - 1, 0);
        break;
    case KRI_N_SEND:
        emit3(c, f, KRI_OP_SEND, base, n->kids, constant(c, f, n->value));
        break;
    case KRI_N_SENDV:
        emit3(c, f, KRI_OP_SENDV, base, n->kids - 1, selector);
        break;
    default:
        emit3(c, f, KRI_OP_SENDSUPER, base, n->kids, constant(c, f, n->value));
        break;
    }
    deliver(c, f, base, dst);
    f->height = height;
}

static void generate_eval(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    unsigned height = f->height, base = frame_begin(c, f, dst), r;
    r = push(c, f, 1);
    generate(c, f, n->kid[0], (int)r);
    r = push(c, f, 1);
    load_constant(c, f, n->value, r);
    for (uint32_t i = 0; i < n->index; i++) {
        r = push(c, f, 1);
        load_raw(c, f, n->u.vars[i], r);
    }
    note_site(c, f, n);
    emit3(c, f, KRI_OP_CALLG, base, n->index + 2, constant(c, f, kri_compiler_symbol(c, "%EVAL-IN")));
    deliver(c, f, base, dst);
    f->height = height;
}

static void generate_closure(struct kri_compiler *c, struct kri_fn *f, struct kri_fn *inner, int dst)
{
    unsigned height = f->height, r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
    kr_value code = kri_generate(c, inner);
    if (dst == DST_NONE)
        goto done;
    if (inner->ups == 0) {
        emit(c, f, kri_encode_x(KRI_OP_LOADK, r, (int32_t)constant(c, f, kri_function_make(c, inner))));
    } else {
        /* Captured variables of outer functions are captured here first: their indices must exist before CLOSURE reads them. */
        for (unsigned i = 0; i < inner->ups; i++)
            if (register_of(f, inner->up[i]) < 0)
                captured_index(c, f, inner->up[i]);
        emit3(c, f, KRI_OP_CLOSURE, r, constant(c, f, code), inner->ups);
        for (unsigned i = 0; i < inner->ups; i++) {
            struct kri_var *v = inner->up[i];
            if (register_of(f, v) >= 0)
                emit3(c, f, KRI_OP_CAPTURE, 0, (unsigned)register_of(f, v), 0);
            else
                emit3(c, f, KRI_OP_CAPTURE, 1, captured_index(c, f, v), 0);
        }
    }
    deliver(c, f, r, dst);
done:
    f->height = height;
}

/* ---- conditionals ---- */

static void generate_if(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_label otherwise = new_label, end = new_label;
    struct kri_node *test = n->kid[0];
    if (test->op == KRI_N_CONST) {
        generate(c, f, n->kid[kri_is_nil(test->value) ? 2 : 1], dst);
        return;
    }
    if (dst == DST_NONE && n->kid[2]->op == KRI_N_CONST) {
        generate_test(c, f, test, false, &end);
        generate(c, f, n->kid[1], dst);
        label_here(f, &end);
        return;
    }
    if (dst == DST_NONE && n->kid[1]->op == KRI_N_CONST) {
        generate_test(c, f, test, true, &end);
        generate(c, f, n->kid[2], dst);
        label_here(f, &end);
        return;
    }
    generate_test(c, f, test, false, &otherwise);
    generate(c, f, n->kid[1], dst);
    if (dst != DST_RETURN)
        jump_always(c, f, &end);
    label_here(f, &otherwise);
    generate(c, f, n->kid[2], dst);
    label_here(f, &end);
}

static void generate_cond(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_label end = new_label;
    unsigned height = f->height;
    for (uint32_t i = 0; i < n->kids; i += 2) {
        struct kri_node *test = n->kid[i], *body = n->kid[i + 1];
        if (test->op == KRI_N_CONST && kri_is_nil(test->value))
            continue;
        if (test->op == KRI_N_CONST || (!body && i + 2 == n->kids)) { /* the last clause */
            generate(c, f, body ? body : test, dst);
            label_here(f, &end);
            return;
        }
        struct kri_label next = new_label;
        if (body) {
            generate_test(c, f, test, false, &next);
            generate(c, f, body, dst);
            if (dst != DST_RETURN)
                jump_always(c, f, &end);
        } else if (dst == DST_NONE) {
            generate_test(c, f, test, true, &end);
        } else {
            unsigned r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
            generate(c, f, test, (int)r);
            jump(c, f, KRI_OP_JNIL, r, &next);
            if (dst == DST_RETURN)
                emit3(c, f, KRI_OP_RET, r, 0, 0);
            else
                jump_always(c, f, &end);
            f->height = height;
        }
        label_here(f, &next);
    }
    if (dst >= 0)
        emit3(c, f, KRI_OP_LOADNIL, (unsigned)dst, 0, 0);
    else if (dst == DST_RETURN)
        emit3(c, f, KRI_OP_RETNIL, 0, 0, 0);
    label_here(f, &end);
}

static void generate_and(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_label fail = new_label, end = new_label;
    for (uint32_t i = 0; i + 1 < n->kids; i++)
        generate_test(c, f, n->kid[i], false, &fail);
    generate(c, f, n->kid[n->kids - 1], dst);
    if (dst == DST_NONE) {
        label_here(f, &fail);
        return;
    }
    if (dst == DST_RETURN) {
        if (fail.fixup < 0)
            return;
        label_here(f, &fail);
        emit3(c, f, KRI_OP_RETNIL, 0, 0, 0);
        return;
    }
    jump_always(c, f, &end);
    label_here(f, &fail);
    emit3(c, f, KRI_OP_LOADNIL, (unsigned)dst, 0, 0);
    label_here(f, &end);
}

static void generate_or(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_label end = new_label;
    unsigned height = f->height;
    uint32_t last = n->kids - 1;
    if (dst == DST_NONE) {
        for (uint32_t i = 0; i < last; i++)
            generate_test(c, f, n->kid[i], true, &end);
        generate(c, f, n->kid[last], dst);
        label_here(f, &end);
        return;
    }
    unsigned r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
    for (uint32_t i = 0; i < last; i++) {
        generate(c, f, n->kid[i], (int)r);
        jump(c, f, KRI_OP_JTRUE, r, &end);
    }
    if (dst == DST_RETURN) {
        f->height = height;
        generate(c, f, n->kid[last], DST_RETURN);
        label_here(f, &end);
        emit3(c, f, KRI_OP_RET, r, 0, 0);
        return;
    }
    generate(c, f, n->kid[last], dst);
    label_here(f, &end);
    f->height = height;
}

struct comparison {
    enum kri_op yes, no;                     /* registers */
    enum kri_op yes_right, no_right;         /* with a number on the right */
    enum kri_op yes_left, no_left;           /* with a number on the left, the register being the first operand */
    bool swap;
};

static const struct comparison comparisons[] = {
    [KRI_I_LT] = {KRI_OP_JLT, KRI_OP_JNLT, KRI_OP_JLTI, KRI_OP_JNLTI, KRI_OP_JGTI, KRI_OP_JNGTI, false},
    [KRI_I_LE] = {KRI_OP_JLE, KRI_OP_JNLE, KRI_OP_JLEI, KRI_OP_JNLEI, KRI_OP_JGEI, KRI_OP_JNGEI, false},
    [KRI_I_GT] = {KRI_OP_JLT, KRI_OP_JNLT, KRI_OP_JGTI, KRI_OP_JNGTI, KRI_OP_JLTI, KRI_OP_JNLTI, true},
    [KRI_I_GE] = {KRI_OP_JLE, KRI_OP_JNLE, KRI_OP_JGEI, KRI_OP_JNGEI, KRI_OP_JLEI, KRI_OP_JNLEI, true},
    [KRI_I_NUMEQ] = {KRI_OP_JNUMEQ, KRI_OP_JNNUMEQ, KRI_OP_JNUMEQI, KRI_OP_JNNUMEQI, KRI_OP_JNUMEQI, KRI_OP_JNNUMEQI, false},
};

static void generate_comparison(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, bool sense, struct kri_label *l)
{
    const struct comparison *k = &comparisons[n->index];
    unsigned height = f->height, a, b;
    if (small_constant(n->kid[1])) {
        a = operand(c, f, n->kid[0], false);
        note_site(c, f, n);
        jump_compare(c, f, sense ? k->yes_right : k->no_right, sense ? k->no_right : k->yes_right, a, immediate(n->kid[1]), l);
    } else if (small_constant(n->kid[0])) {
        b = operand(c, f, n->kid[1], false);
        note_site(c, f, n);
        jump_compare(c, f, sense ? k->yes_left : k->no_left, sense ? k->no_left : k->yes_left, b, immediate(n->kid[0]), l);
    } else {
        operands2(c, f, n, &a, &b);
        if (k->swap) {
            unsigned t = a;
            a = b;
            b = t;
        }
        note_site(c, f, n);
        jump_compare(c, f, sense ? k->yes : k->no, sense ? k->no : k->yes, a, b, l);
    }
    f->height = height;
}

static void generate_eq_test(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, bool sense, struct kri_label *l)
{
    unsigned height = f->height, a, b;
    struct kri_node *x = n->kid[0], *y = n->kid[1];
    if (x->op == KRI_N_CONST) { /* a constant has no effects: the order does not matter */
        struct kri_node *t = x;
        x = y;
        y = t;
    }
    if (y->op == KRI_N_CONST && kri_is_nil(y->value)) {
        generate_test(c, f, x, !sense, l);
    } else if (y->op == KRI_N_CONST) {
        a = operand(c, f, x, false);
        jump_compare(c, f, sense ? KRI_OP_JEQK : KRI_OP_JNEQK, sense ? KRI_OP_JNEQK : KRI_OP_JEQK, a, constant(c, f, y->value), l);
    } else {
        operands2(c, f, n, &a, &b);
        jump_compare(c, f, sense ? KRI_OP_JEQ : KRI_OP_JNEQ, sense ? KRI_OP_JNEQ : KRI_OP_JEQ, a, b, l);
    }
    f->height = height;
}

/* Jump to L if N's truth is SENSE, else fall through. */
static void generate_test(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, bool sense, struct kri_label *l)
{
    unsigned height = f->height;
    if (kri_native_exhausted(c->w))
        kri_error(c->w, KRI_E_STACK, KRI_NIL, "forms nested too deeply");
    switch (n->op) {
    case KRI_N_CONST:
        if (kri_is_nil(n->value) != sense)
            jump_always(c, f, l);
        return;
    case KRI_N_PROGN:
        for (uint32_t i = 0; i + 1 < n->kids; i++)
            generate(c, f, n->kid[i], DST_NONE);
        generate_test(c, f, n->kid[n->kids - 1], sense, l);
        return;
    case KRI_N_AND:
    case KRI_N_OR:
        if ((n->op == KRI_N_OR) == sense) {
            for (uint32_t i = 0; i < n->kids; i++)
                generate_test(c, f, n->kid[i], sense, l);
        } else {
            struct kri_label skip = new_label;
            for (uint32_t i = 0; i + 1 < n->kids; i++)
                generate_test(c, f, n->kid[i], !sense, &skip);
            generate_test(c, f, n->kid[n->kids - 1], sense, l);
            label_here(f, &skip);
        }
        return;
    case KRI_N_IF: {
        struct kri_label otherwise = new_label, end = new_label;
        generate_test(c, f, n->kid[0], false, &otherwise);
        generate_test(c, f, n->kid[1], sense, l);
        jump_always(c, f, &end);
        label_here(f, &otherwise);
        generate_test(c, f, n->kid[2], sense, l);
        label_here(f, &end);
        return;
    }
    case KRI_N_OP:
        switch (n->index) {
        case KRI_I_NOT:
            generate_test(c, f, n->kid[0], !sense, l);
            return;
        case KRI_I_LT:
        case KRI_I_LE:
        case KRI_I_GT:
        case KRI_I_GE:
        case KRI_I_NUMEQ:
            generate_comparison(c, f, n, sense, l);
            return;
        case KRI_I_EQ:
            generate_eq_test(c, f, n, sense, l);
            return;
        case KRI_I_CONSP:
        case KRI_I_ATOM: {
            unsigned a = operand(c, f, n->kid[0], false);
            jump(c, f, (n->index == KRI_I_CONSP) == sense ? KRI_OP_JCONS : KRI_OP_JNCONS, a, l);
            f->height = height;
            return;
        }
        default:
            break;
        }
        break;
    default:
        break;
    }
    unsigned r = operand(c, f, n, false);
    jump(c, f, sense ? KRI_OP_JTRUE : KRI_OP_JNIL, r, l);
    f->height = height;
}

/* ---- dynamic extent ---- */

static struct kri_dynamic *dynamic_push(struct kri_compiler *c, struct kri_fn *f, enum kri_op undo, unsigned reg)
{
    struct kri_dynamic *d = kri_compiler_alloc(c, sizeof *d);
    d->outside = f->dynamic;
    d->undo = undo;
    d->reg = reg;
    f->dynamic = d;
    return d;
}

static void undo_to(struct kri_compiler *c, struct kri_fn *f, const struct kri_dynamic *outside)
{
    for (const struct kri_dynamic *d = f->dynamic; d != outside; d = d->outside)
        emit3(c, f, d->undo, d->reg, 0, 0);
}

/* Bind the special whose value is in register HANDLER + 2. */
static void bind_special(struct kri_compiler *c, struct kri_fn *f, kr_value symbol, unsigned handler)
{
    emit3(c, f, KRI_OP_BIND, handler, constant(c, f, symbol), 0);
    dynamic_push(c, f, KRI_OP_UNBIND, handler);
}

/* Generate BODY for DST with the bindings made since OUTSIDE, and drop them after it. */
static void bound_body(struct kri_compiler *c, struct kri_fn *f, struct kri_node *body, const struct kri_dynamic *outside, int dst)
{
    if (f->dynamic == outside) {
        generate(c, f, body, dst);
        return;
    }
    unsigned r = dst == DST_RETURN ? push(c, f, 1) : 0;
    generate(c, f, body, dst == DST_RETURN ? (int)r : dst);
    undo_to(c, f, outside);
    f->dynamic = (struct kri_dynamic *)outside;
    if (dst == DST_RETURN)
        emit3(c, f, KRI_OP_RET, r, 0, 0);
}

static void generate_let(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    unsigned height = f->height;
    uint32_t count = n->kids - 1;
    struct kri_dynamic *outside = f->dynamic;
    unsigned locals = f->locals.count;
    for (uint32_t i = 0; i < count; i++) {
        struct kri_binding *b = &n->u.bindings[i];
        if (b->var) {
            b->var->reg = push(c, f, 1);
            generate(c, f, n->kid[i], (int)b->var->reg);
            if (b->var->declared.kind && !b->var->unset && !kri_node_satisfies(n->kid[i], &b->var->declared)) {
                note_site(c, f, n->kid[i]);
                check_type(c, f, b->var->reg, &b->var->declared);
            }
            if (kri_var_boxed(b->var))
                emit3(c, f, KRI_OP_BOX, b->var->reg, 0, 0);
            if (n->index)
                note_local(c, f, b->var);
            continue;
        }
        unsigned value = push(c, f, 3) + 2;
        generate(c, f, n->kid[i], (int)value);
        push(c, f, 1);
        if (n->index)
            bind_special(c, f, b->special, value - 2);
    }
    if (!n->index) { /* all values are there: now bind, in order */
        unsigned r = height;
        for (uint32_t i = 0; i < count; i++) {
            struct kri_binding *b = &n->u.bindings[i];
            if (b->var)
                note_local(c, f, b->var);
            else
                bind_special(c, f, b->special, r);
            r += b->var ? 1 : 4;
        }
    }
    bound_body(c, f, n->kid[count], outside, dst);
    end_locals(f, locals);
    f->height = height;
}

static void generate_labels(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    unsigned height = f->height;
    uint32_t count = n->kids - 1;
    for (uint32_t i = 0; i < count; i++) {
        struct kri_var *v = n->u.bindings[i].var;
        if (v->function->lifted)
            continue;
        v->reg = push(c, f, 1);
        if (kri_var_boxed(v)) {
            emit3(c, f, KRI_OP_LOADNIL, v->reg, 0, 0);
            emit3(c, f, KRI_OP_BOX, v->reg, 0, 0);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct kri_var *v = n->u.bindings[i].var;
        if (v->function->lifted)
            continue;
        if (!kri_var_boxed(v)) {
            generate(c, f, n->kid[i], (int)v->reg);
            continue;
        }
        unsigned t = push(c, f, 1);
        generate(c, f, n->kid[i], (int)t);
        emit3(c, f, KRI_OP_SETBOX, v->reg, t, 0);
        f->height = t;
    }
    generate(c, f, n->kid[count], dst);
    f->height = height;
}

static void generate_block(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_block *b = n->u.block;
    unsigned height = f->height;
    b->exit = new_label;
    b->outside = f->dynamic;
    b->dst = dst;
    if (!b->real) {
        generate(c, f, n->kid[0], dst);
        label_here(f, &b->exit);
        return;
    }
    unsigned h = push(c, f, 4), r = push(c, f, 1);
    b->handler = h;
    b->identity.reg = h + 2;
    jump(c, f, KRI_OP_BLOCK, h, &b->exit);
    dynamic_push(c, f, KRI_OP_POP, h);
    generate(c, f, n->kid[0], dst == DST_NONE ? DST_NONE : (int)r);
    f->dynamic = b->outside;
    emit3(c, f, KRI_OP_POP, h, 0, 0);
    if (dst != DST_NONE)
        emit3(c, f, KRI_OP_MOVE, h, r, 0);
    label_here(f, &b->exit);
    deliver(c, f, h, dst);
    f->height = height;
}

static void generate_return(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n)
{
    struct kri_block *b = n->u.block;
    unsigned height = f->height;
    if (n->x) { /* across a function or an unwind-protect */
        unsigned v = operand(c, f, n->kid[0], false), id = push(c, f, 1);
        load_var(c, f, &b->identity, id);
        note_site(c, f, n);
        emit3(c, f, KRI_OP_RETURN, id, v, 0);
        f->height = height;
        return;
    }
    if (!b->real && b->dst == DST_RETURN && f->dynamic == b->outside) {
        generate(c, f, n->kid[0], DST_RETURN);
        return;
    }
    if (b->dst == DST_NONE) {
        generate(c, f, n->kid[0], DST_NONE);
        undo_to(c, f, b->outside);
    } else if (b->real || b->dst == DST_RETURN) {
        unsigned v = operand(c, f, n->kid[0], false);
        undo_to(c, f, b->outside);
        if (!b->real) {
            emit3(c, f, KRI_OP_RET, v, 0, 0);
            f->height = height;
            return;
        }
        emit3(c, f, KRI_OP_MOVE, b->handler, v, 0);
    } else {
        unsigned v = operand(c, f, n->kid[0], false);
        undo_to(c, f, b->outside);
        deliver(c, f, v, b->dst);
    }
    jump_always(c, f, &b->exit);
    f->height = height;
}

static void generate_tagbody(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_tagbody *t = n->u.tagbody;
    struct kri_dynamic *outside = f->dynamic;
    struct kri_label landing = new_label, end = new_label;
    unsigned height = f->height, handler = 0, where = 0;
    uint32_t tag = 0;
    for (uint32_t i = 0; i < t->count; i++)
        t->tag[i].label = new_label;
    if (t->real) {
        struct kri_label enter = new_label, start = new_label;
        t->identity.reg = push(c, f, 1);
        where = push(c, f, 1);
        handler = push(c, f, 4);
        emit3(c, f, KRI_OP_LOADNIL, t->identity.reg, 0, 0);
        if (kri_var_boxed(&t->identity))
            emit3(c, f, KRI_OP_BOX, t->identity.reg, 0, 0);
        emit3(c, f, KRI_OP_LOADNIL, where, 0, 0);
        jump(c, f, KRI_OP_JUMP, 0, &enter);
        /* A go from elsewhere lands here with the tag's number, the handler being gone. */
        label_here(f, &landing);
        emit3(c, f, KRI_OP_MOVE, where, handler, 0);
        label_here(f, &enter);
        jump(c, f, KRI_OP_BLOCK, handler, &landing);
        dynamic_push(c, f, KRI_OP_POP, handler);
        if (kri_var_boxed(&t->identity))
            emit3(c, f, KRI_OP_SETBOX, t->identity.reg, handler + 2, 0);
        else
            emit3(c, f, KRI_OP_MOVE, t->identity.reg, handler + 2, 0);
        jump(c, f, KRI_OP_JNIL, where, &start);
        for (uint32_t i = 0; i < t->count; i++)
            if (t->tag[i].remote)
                jump_compare(c, f, KRI_OP_JEQK, KRI_OP_JNEQK, where, constant(c, f, kri_fixnum(i)), &t->tag[i].label);
        label_here(f, &start);
    }
    t->inside = f->dynamic;
    for (uint32_t i = 0; i <= n->kids; i++) {
        for (; tag < t->count && t->tag[tag].before == i; tag++)
            label_here(f, &t->tag[tag].label);
        if (i < n->kids)
            generate(c, f, n->kid[i], DST_NONE);
    }
    if (t->real)
        emit3(c, f, KRI_OP_POP, handler, 0, 0);
    f->dynamic = outside;
    label_here(f, &end);
    f->height = height;
    if (dst >= 0)
        emit3(c, f, KRI_OP_LOADNIL, (unsigned)dst, 0, 0);
    else if (dst == DST_RETURN)
        emit3(c, f, KRI_OP_RETNIL, 0, 0, 0);
}

static void generate_go(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n)
{
    struct kri_tagbody *t = n->u.tagbody;
    if (!n->x) {
        undo_to(c, f, t->inside);
        jump_always(c, f, &t->tag[n->index].label);
        return;
    }
    unsigned height = f->height, id = push(c, f, 1), v = push(c, f, 1);
    load_var(c, f, &t->identity, id);
    load_constant(c, f, kri_fixnum(n->index), v);
    note_site(c, f, n);
    emit3(c, f, KRI_OP_RETURN, id, v, 0);
    f->height = height;
}

static void generate_catch(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_label landing = new_label;
    struct kri_dynamic *outside = f->dynamic;
    unsigned height = f->height, h = push(c, f, 3);
    generate(c, f, n->kid[0], (int)h + 2);
    push(c, f, 1);
    unsigned r = push(c, f, 1);
    jump(c, f, KRI_OP_CATCH, h, &landing);
    dynamic_push(c, f, KRI_OP_POP, h);
    generate(c, f, n->kid[1], dst == DST_NONE ? DST_NONE : (int)r);
    f->dynamic = outside;
    emit3(c, f, KRI_OP_POP, h, 0, 0);
    if (dst != DST_NONE)
        emit3(c, f, KRI_OP_MOVE, h, r, 0);
    label_here(f, &landing);
    deliver(c, f, h, dst);
    f->height = height;
}

static void generate_protect(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_label cleanup = new_label;
    struct kri_dynamic *outside = f->dynamic;
    unsigned height = f->height, h = push(c, f, 4), r = push(c, f, 1);
    jump(c, f, KRI_OP_PROTECT, h, &cleanup);
    /* No local jump leaves the body, so nothing is ever undone across this entry. */
    generate(c, f, n->kid[0], dst == DST_NONE ? DST_NONE : (int)r);
    f->dynamic = outside;
    emit3(c, f, KRI_OP_ENDBODY, h, 0, 0);
    label_here(f, &cleanup);
    generate(c, f, n->kid[1], DST_NONE);
    emit3(c, f, KRI_OP_RESUME, h, 0, 0);
    deliver(c, f, r, dst);
    f->height = height;
}

/* ---- assignment ---- */

/* May N be generated straight into a variable's register, though N may read that variable? True if it is written last. */
static bool writes_last(const struct kri_node *n, int depth)
{
    switch (n->op) {
    case KRI_N_CONST:
    case KRI_N_GLOBAL:
    case KRI_N_SLOT:
    case KRI_N_FUNCTION:
    case KRI_N_CALL:
    case KRI_N_SEND:
        return true;
    case KRI_N_VAR:
        return true;
    case KRI_N_OP:
        return n->index != KRI_I_ATOM && n->index != KRI_I_ASET && n->index != KRI_I_RPLACA && n->index != KRI_I_RPLACD;
    case KRI_N_IF:
        return depth < 8 && n->kid[0]->op != KRI_N_CONST && writes_last(n->kid[1], depth + 1) && writes_last(n->kid[2], depth + 1);
    default:
        return false;
    }
}

static void generate_setvar(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    struct kri_var *v = n->u.var;
    unsigned height = f->height, r;
    struct kri_node *value = n->kid[0];
    bool check = v->declared.kind && !kri_node_satisfies(value, &v->declared);
    /* Where nothing in this function can catch the error, it does not matter that the variable is assigned before the check. */
    if (!kri_var_boxed(v) && v->owner == f && writes_last(value, 0) && (!check || !f->dynamic)) {
        if (fresh_top(f, (int)v->reg))
            push(c, f, 1); /* the register is not fresh */
        generate(c, f, value, (int)v->reg);
        f->height = height;
        if (check) {
            note_site(c, f, n);
            check_type(c, f, v->reg, &v->declared);
        }
        deliver(c, f, v->reg, dst);
        return;
    }
    r = operand(c, f, value, false);
    if (check) {
        note_site(c, f, n);
        check_type(c, f, r, &v->declared);
    }
    store_var(c, f, v, r);
    deliver(c, f, r, dst);
    f->height = height;
}

/* ---- everything ---- */

static void generate(struct kri_compiler *c, struct kri_fn *f, struct kri_node *n, int dst)
{
    unsigned height = f->height, r;
    if (kri_native_exhausted(c->w))
        kri_error(c->w, KRI_E_STACK, KRI_NIL, "forms nested too deeply");
    switch ((enum kri_node_op)n->op) {
    case KRI_N_CONST:
        if (dst == DST_RETURN && kri_is_nil(n->value))
            emit3(c, f, KRI_OP_RETNIL, 0, 0, 0);
        else if (dst != DST_NONE) {
            r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
            load_constant(c, f, n->value, r);
            deliver(c, f, r, dst);
        }
        break;
    case KRI_N_VAR:
        if (dst == DST_NONE)
            break;
        if (dst >= 0) {
            load_var(c, f, n->u.var, (unsigned)dst);
        } else {
            r = operand(c, f, n, false);
            emit3(c, f, KRI_OP_RET, r, 0, 0);
        }
        break;
    case KRI_N_GLOBAL:
        r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
        note_site(c, f, n);
        emit(c, f, kri_encode_x(KRI_OP_GETVAR, r, (int32_t)constant(c, f, n->value)));
        deliver(c, f, r, dst);
        break;
    case KRI_N_FUNCTION:
        r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
        note_site(c, f, n);
        emit(c, f, kri_encode_x(KRI_OP_FUNCTION, r, (int32_t)constant(c, f, n->value)));
        deliver(c, f, r, dst);
        break;
    case KRI_N_SLOT: {
        unsigned self = (unsigned)register_of(f, n->u.var);
        if (dst == DST_NONE)
            break;
        r = dst >= 0 ? (unsigned)dst : push(c, f, 1);
        if (register_of(f, n->u.var) < 0) {
            load_var(c, f, n->u.var, r);
            self = r;
        }
        emit3(c, f, KRI_OP_GETSLOT, r, self, n->index);
        deliver(c, f, r, dst);
        break;
    }
    case KRI_N_SETSLOT: {
        unsigned self = (unsigned)register_of(f, n->u.var);
        r = operand(c, f, n->kid[0], false);
        if (register_of(f, n->u.var) < 0) {
            self = push(c, f, 1);
            load_var(c, f, n->u.var, self);
        }
        emit3(c, f, KRI_OP_SETSLOT, r, self, n->index);
        deliver(c, f, r, dst);
        break;
    }
    case KRI_N_SETVAR:
        generate_setvar(c, f, n, dst);
        break;
    case KRI_N_SETGLOBAL:
        r = operand(c, f, n->kid[0], false);
        note_site(c, f, n);
        emit(c, f, kri_encode_x(KRI_OP_SETVAR, r, (int32_t)constant(c, f, n->value)));
        deliver(c, f, r, dst);
        break;
    case KRI_N_CLOSURE:
        generate_closure(c, f, n->u.fn, dst);
        break;
    case KRI_N_PROGN:
        for (uint32_t i = 0; i + 1 < n->kids; i++)
            generate(c, f, n->kid[i], DST_NONE);
        generate(c, f, n->kid[n->kids - 1], dst);
        break;
    case KRI_N_IF:
        generate_if(c, f, n, dst);
        break;
    case KRI_N_COND:
        generate_cond(c, f, n, dst);
        break;
    case KRI_N_AND:
        generate_and(c, f, n, dst);
        break;
    case KRI_N_OR:
        generate_or(c, f, n, dst);
        break;
    case KRI_N_WHILE: {
        struct kri_label top = new_label, end = new_label;
        label_here(f, &top);
        generate_test(c, f, n->kid[0], false, &end);
        generate(c, f, n->kid[1], DST_NONE);
        jump_always(c, f, &top);
        label_here(f, &end);
        if (dst >= 0)
            emit3(c, f, KRI_OP_LOADNIL, (unsigned)dst, 0, 0);
        else if (dst == DST_RETURN)
            emit3(c, f, KRI_OP_RETNIL, 0, 0, 0);
        break;
    }
    case KRI_N_LET:
        generate_let(c, f, n, dst);
        break;
    case KRI_N_LABELS:
        generate_labels(c, f, n, dst);
        break;
    case KRI_N_BLOCK:
        generate_block(c, f, n, dst);
        break;
    case KRI_N_RETURN:
        generate_return(c, f, n);
        break;
    case KRI_N_TAGBODY:
        generate_tagbody(c, f, n, dst);
        break;
    case KRI_N_GO:
        generate_go(c, f, n);
        break;
    case KRI_N_CATCH:
        generate_catch(c, f, n, dst);
        break;
    case KRI_N_THROW: {
        unsigned tag = operand(c, f, n->kid[0], n->kid[1]->flags & KRI_NODE_ASSIGNS);
        r = operand(c, f, n->kid[1], false);
        note_site(c, f, n);
        emit3(c, f, KRI_OP_THROW, tag, r, 0);
        break;
    }
    case KRI_N_PROTECT:
        generate_protect(c, f, n, dst);
        break;
    case KRI_N_PROG1:
        /* Not straight into DST: it may be a block's, and a return within the rest would write there first. That is harmless;
         * but DST_RETURN must wait. */
        r = push(c, f, 1);
        generate(c, f, n->kid[0], dst == DST_NONE ? DST_NONE : (int)r);
        generate(c, f, n->kid[1], DST_NONE);
        deliver(c, f, r, dst);
        break;
    case KRI_N_CALL:
    case KRI_N_CALLV:
    case KRI_N_CALLLOCAL:
    case KRI_N_APPLY:
    case KRI_N_SEND:
    case KRI_N_SENDV:
    case KRI_N_SENDSUPER:
        generate_call(c, f, n, dst);
        break;
    case KRI_N_OP:
        generate_op(c, f, n, dst);
        break;
    case KRI_N_THE:
        r = dst >= 0 ? (unsigned)dst : operand(c, f, n->kid[0], false);
        if (dst >= 0)
            generate(c, f, n->kid[0], dst);
        note_site(c, f, n);
        check_type(c, f, r, n->u.declared);
        deliver(c, f, r, dst);
        break;
    case KRI_N_EVAL:
        generate_eval(c, f, n, dst);
        break;
    }
    f->height = height;
}

/* ---- functions ---- */

/* The value of binding B is in register R, its own: box or bind it. */
static void establish(struct kri_compiler *c, struct kri_fn *f, struct kri_binding *b, unsigned r)
{
    if (b->var) {
        b->var->reg = r;
        if (!b->var->unset)
            check_type(c, f, r, &b->var->declared);
        if (kri_var_boxed(b->var))
            emit3(c, f, KRI_OP_BOX, r, 0, 0);
        note_local(c, f, b->var);
        return;
    }
    unsigned h = push(c, f, 4);
    emit3(c, f, KRI_OP_MOVE, h + 2, r, 0);
    bind_special(c, f, b->special, h);
}

static void prologue(struct kri_compiler *c, struct kri_fn *f)
{
    bool rest = f->flags & KRI_CODE_REST, method = f->flags & KRI_CODE_METHOD;
    unsigned next[4];
    next[KRI_P_REQUIRED] = method ? 1 : 0;
    next[KRI_P_OPTIONAL] = f->nreq;
    next[KRI_P_REST] = f->nreq + f->nopt;
    next[KRI_P_KEY] = f->nreq + f->nopt + rest;
    push(c, f, f->nreq + f->nopt + rest + f->nkey + (f->lifted ? f->frees : 0));
    if (f->receiver && f->slots_used) {
        unsigned r = 0;
        if (f->receiver->owner != f)
            load_raw(c, f, f->receiver, r = push(c, f, 1));
        emit3(c, f, KRI_OP_CHECKSELF, r, constant(c, f, f->method_class), f->slots_used);
    }
    if (f->self && f->self->owner == f) {
        f->self->reg = 0;
        if (f->self_local || f->self->assigned) {
            /* The variable SELF is a copy: slots always belong to the object that received the message. */
            f->self->reg = push(c, f, 1);
            load_raw(c, f, f->receiver, f->self->reg);
            if (kri_var_boxed(f->self))
                emit3(c, f, KRI_OP_BOX, f->self->reg, 0, 0);
        }
    }
    for (unsigned i = 0; i < f->parameters; i++) {
        struct kri_parameter *p = &f->parameter[i];
        unsigned height, r;
        if (p->kind == KRI_P_AUX) {
            r = push(c, f, 1);
            generate(c, f, p->init, (int)r);
        } else {
            r = next[p->kind]++;
        }
        if (p->kind == KRI_P_OPTIONAL || p->kind == KRI_P_KEY) {
            struct kri_label given = new_label;
            unsigned s = p->has_supplied ? push(c, f, 1) : 0;
            if (p->has_supplied)
                emit3(c, f, KRI_OP_LOADT, s, 0, 0);
            jump(c, f, KRI_OP_JGIVEN, r, &given);
            if (p->has_supplied)
                emit3(c, f, KRI_OP_LOADNIL, s, 0, 0);
            height = f->height;
            /* Never at the frame's top as seen by a call: other parameters lie above. */
            if (fresh_top(f, (int)r))
                push(c, f, 1);
            generate(c, f, p->init, (int)r);
            f->height = height;
            if (p->bind.var && p->bind.var->unset && p->bind.var->declared.kind) {
                struct kri_label unset = new_label;
                jump(c, f, KRI_OP_JUMP, 0, &unset);
                label_here(f, &given);
                check_type(c, f, r, &p->bind.var->declared);
                label_here(f, &unset);
            } else {
                label_here(f, &given);
            }
            establish(c, f, &p->bind, r);
            if (p->has_supplied)
                establish(c, f, &p->supplied, s);
        } else {
            establish(c, f, &p->bind, r);
        }
    }
}

static kr_value make_code(struct kri_compiler *c, struct kri_fn *f)
{
    struct kri_worker *w = c->w;
    kr_value constants = kri_make_vector(w, f->constants), keywords = KRI_NIL, lines = KRI_NIL;
    for (unsigned i = 0; i < f->constants; i++)
        kri_vector_of(constants)->at[i] = f->constant[i];
    if (f->nkey) {
        unsigned k = 0;
        keywords = kri_make_vector(w, f->nkey);
        for (unsigned i = 0; i < f->parameters; i++)
            if (f->parameter[i].kind == KRI_P_KEY)
                kri_vector_of(keywords)->at[k++] = f->parameter[i].keyword;
    }
    if (f->line_words) {
        size_t bytes = f->line_words * sizeof *f->lines;
        struct kri_cell *cell = kri_make(w, KRI_CLASS_BYTES, (uint32_t)bytes, (bytes + 7) / 8);
        memcpy(cell->slot, f->lines, bytes);
        lines = kri_value_of(cell);
    }
    kr_value debug = make_debug(c, f);
    size_t words = (sizeof(struct kri_code) - sizeof(struct kri_cell)) / 8 + f->length;
    struct kri_code *code = (struct kri_code *)kri_make(w, KRI_CLASS_CODE, f->length, words);
    code->name = f->name;
    code->constants = constants;
    code->lambda_list = f->lambda_list;
    code->source = f->source;
    code->documentation = f->documentation;
    code->lines = lines;
    code->keywords = keywords;
    code->debug = debug;
    code->k = kri_vector_of(constants)->at;
    code->nreq = (uint16_t)(f->nreq + (f->lifted ? f->frees : 0));
    code->nopt = (uint16_t)f->nopt;
    code->nkey = (uint16_t)f->nkey;
    code->flags = (uint16_t)(f->flags | (f->lifted ? KRI_CODE_LIFTED : 0));
    code->frame = (uint16_t)(f->highest + 1);
    code->max = f->flags & (KRI_CODE_REST | KRI_CODE_KEYS) ? -1 : (int32_t)(code->nreq + f->nopt);
    code->line = f->line;
    code->captures = f->ups;
    memcpy(code->instr, f->instr, f->length * sizeof *f->instr);
    kr_value file = kri_special(w, c->vm->sym.load_pathname);
    code->file = kri_is_string(c->vm, file) ? file : KRI_NIL;
    return kri_keep(c, kri_value_of(code));
}

kr_value kri_generate(struct kri_compiler *c, struct kri_fn *f)
{
    if (!kri_is_nil(f->code))
        return f->code;
    for (;;) {
        f->length = f->line_words = f->sites.count = f->locals.count = f->pool_count = 0;
        f->fixups = 0;
        f->height = f->highest = 0;
        f->dynamic = NULL;
        f->overflow = false;
        prologue(c, f);
        bound_body(c, f, f->body, NULL, DST_RETURN);
        /* A block's exit may be here, or a landing: nothing falls off the end, but a jump may aim behind it. */
        emit3(c, f, KRI_OP_RETNIL, 0, 0, 0);
        if (!f->overflow)
            break;
        f->long_jumps = true;
    }
    return f->code = make_code(c, f);
}
