/* native_flow.c -- what is known of a function's flow: which registers live where, and what types they have in the fast version. */
#include "lisp/native_flow.h"

const struct kri_flow_op kri_flow_ops[] = {
#define OP(name, operands, meaning, code) {operands, #code},
#include "lisp/opcodes.def"
#undef OP
};

/* ---- control flow ---- */

int64_t kri_flow_target(const struct kri_code *c, uint32_t at)
{
    kri_instruction i = c->instr[at];
    const char *kinds = kri_flow_ops[kri_decode_op(i)].operands;
    if (kinds[2] != 'J')
        return -1;
    return (int64_t)at + 1 + (kinds[1] == 'X' ? kri_decode_bx(i) : kri_decode_sc(i));
}

bool kri_flow_falls_through(unsigned op)
{
    return op != KRI_OP_JUMP && op != KRI_OP_LOOP && op != KRI_OP_RET && op != KRI_OP_RETNIL && op != KRI_OP_THROW && op != KRI_OP_RETURN;
}

bool kri_flow_writes_a(unsigned op)
{
    switch (op) {
    case KRI_OP_SETVAR:
    case KRI_OP_SETBOX:
    case KRI_OP_CHECKSELF:
    case KRI_OP_SETSLOT:
    case KRI_OP_ASET:
    case KRI_OP_RPLACA:
    case KRI_OP_RPLACD:
    case KRI_OP_RET:
    case KRI_OP_THROW:
    case KRI_OP_RETURN:
    case KRI_OP_BIND:
    case KRI_OP_UNBIND:
    case KRI_OP_POP:
    case KRI_OP_RESUME:
        return false;
    default:
        return kri_flow_ops[op].operands[0] == 'R' && kri_flow_ops[op].operands[2] != 'J';
    }
}

bool kri_flow_is_call(unsigned op)
{
    switch (op) {
    case KRI_OP_CALLG:
    case KRI_OP_CALL:
    case KRI_OP_CALLF:
    case KRI_OP_CALLS:
    case KRI_OP_SEND:
    case KRI_OP_SENDV:
    case KRI_OP_SENDSUPER:
    case KRI_OP_APPLY:
        return true;
    default:
        return false;
    }
}

/* A must-analysis: KRI_FLOW_CLEAN starts as true and is taken away. */
static void find_clean(struct kri_flow *f, const struct kri_code *c, unsigned params)
{
    uint32_t n = c->head.length;
    memset(f->flags, KRI_FLOW_CLEAN, n + 1);
    f->flags[0] = KRI_FLOW_REACHED;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t at = 0; at < n; at++) {
            if (!(f->flags[at] & KRI_FLOW_REACHED))
                continue;
            unsigned op = kri_decode_op(c->instr[at]);
            bool clean = f->flags[at] & KRI_FLOW_CLEAN;
            if (kri_flow_is_call(op))
                clean = true;
            if (kri_flow_writes_a(op) && op != KRI_OP_TYPE && kri_decode_a(c->instr[at]) < params)
                clean = false;
            int64_t to[2] = {kri_flow_target(c, at), kri_flow_falls_through(op) ? (int64_t)kri_flow_next(c, at) : -1};
            for (int j = 0; j < 2; j++) {
                if (to[j] < 0 || to[j] >= n)
                    continue;
                unsigned char *flags = &f->flags[to[j]], was = *flags;
                *flags |= KRI_FLOW_REACHED | (j == 0 ? KRI_FLOW_TARGET : 0);
                if (!clean)
                    *flags &= (unsigned char)~KRI_FLOW_CLEAN;
                changed |= was != *flags;
            }
        }
    }
}

static void set(uint64_t *live, unsigned r) { live[r / 64] |= (uint64_t)1 << r % 64; }
static void clear(uint64_t *live, unsigned r) { live[r / 64] &= ~((uint64_t)1 << r % 64); }

bool kri_flow_has_entered(const struct kri_code *c)
{
    for (uint32_t at = 0; at < c->head.length; at++)
        if (kri_flow_is_entered(kri_decode_op(c->instr[at])))
            return true;
    return false;
}

/* The registers of OP's handler, A to A + 3: only the tag or value is one in native code, and what entering it leaves. */
static void step_back_handler(uint64_t *live, unsigned op, unsigned a)
{
    switch (op) {
    case KRI_OP_BIND:
    case KRI_OP_CATCH:
        set(live, a + 2);
        break;
    case KRI_OP_BLOCK:
        clear(live, a + 2);
        break;
    case KRI_OP_ENDBODY:
        clear(live, a);
        break;
    case KRI_OP_RESUME:
        set(live, a);
        set(live, a + 1);
        break;
    default:
        break;
    }
}

void kri_flow_step_back(uint64_t *live, const struct kri_code *c, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned op = kri_decode_op(i), field[3] = {kri_decode_a(i), kri_decode_b(i), kri_decode_c(i)};
    const char *kinds = kri_flow_ops[op].operands;
    if (kri_flow_is_handler(op)) {
        step_back_handler(live, op, field[0]);
        return;
    }
    if (kri_flow_writes_a(op))
        clear(live, field[0]);
    for (int j = kri_flow_writes_a(op) && op != KRI_OP_BOX && op != KRI_OP_TYPE && op != KRI_OP_TRUST && op != KRI_OP_CALL && op != KRI_OP_APPLY ? 1 : 0; j < 3; j++)
        if (kinds[j] == 'R')
            set(live, field[j]);
    if (kri_flow_is_call(op))
        for (unsigned j = 0; j < field[1]; j++)
            set(live, field[0] + KRI_FRAME_LINK + j);
    if (op == KRI_OP_LIST)
        for (unsigned j = 0; j < field[2]; j++)
            set(live, field[1] + j);
    if (op == KRI_OP_CLOSURE)
        for (unsigned j = 1; j <= field[2]; j++)
            if (!kri_decode_a(c->instr[at + j]))
                set(live, kri_decode_b(c->instr[at + j]));
}

static void find_live(struct kri_flow *f, const struct kri_code *c)
{
    uint32_t n = c->head.length;
    memset(f->live, 0, (size_t)(n + 1) * f->words * sizeof *f->live);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t at = n; at-- > 0;) {
            uint64_t *live = f->live + (size_t)n * f->words; /* the last is scratch */
            if (!(f->flags[at] & KRI_FLOW_REACHED))
                continue;
            int64_t to[2] = {kri_flow_target(c, at), kri_flow_falls_through(kri_decode_op(c->instr[at])) ? (int64_t)kri_flow_next(c, at) : -1};
            memset(live, 0, f->words * sizeof *live);
            for (int j = 0; j < 2; j++)
                for (unsigned k = 0; k < f->words && to[j] >= 0 && to[j] < n; k++)
                    live[k] |= f->live[(size_t)to[j] * f->words + k];
            kri_flow_step_back(live, c, at);
            uint64_t *before = f->live + (size_t)at * f->words;
            if (memcmp(before, live, f->words * sizeof *live) != 0) {
                memcpy(before, live, f->words * sizeof *live);
                changed = true;
            }
        }
    }
}

/* ---- types ----
 *
 * Inferred forward from constants, operations and declarations (TYPE, TRUST). What is checked in the fast version is known behind the
 * check: where a value is of another type, the fast version has left. */

enum kri_flow_type kri_flow_declared(unsigned kind, enum kri_flow_type t)
{
    switch (kind) {
    case KRI_TYPE_FIXNUM:
    case KRI_TYPE_INTEGER: /* for a bignum the fast version leaves */
    case KRI_TYPE_RANGE:
        return KRI_FLOW_FIXNUM;
    case KRI_TYPE_FLOAT:
        return KRI_FLOW_FLOAT;
    case KRI_CLASS_FLOAT_VECTOR:
        return KRI_FLOW_FLOAT_VECTOR;
    case KRI_CLASS_INTEGER_VECTOR:
        return KRI_FLOW_INTEGER_VECTOR;
    case KRI_CLASS_STRING:
        return KRI_FLOW_STRING;
    case KRI_CLASS_VECTOR: /* or one of the others, which are vectors too */
    default:
        return t;
    }
}

unsigned kri_flow_wanted(const struct kri_flow *f, const struct kri_code *c, uint32_t at, bool *trusted)
{
    kri_instruction i = c->instr[at], next = at + 1 < c->head.length ? c->instr[at + 1] : 0;
    unsigned op = kri_decode_op(next);
    *trusted = op == KRI_OP_TRUST;
    if ((op != KRI_OP_TYPE && op != KRI_OP_TRUST) || kri_decode_a(next) != kri_decode_a(i) || f->flags[at + 1] & KRI_FLOW_TARGET)
        return KRI_TYPE_NONE;
    return kri_decode_c(next);
}

char kri_flow_float_operator(unsigned op)
{
    switch (op) {
    case KRI_OP_ADD:
    case KRI_OP_ADDI:
        return '+';
    case KRI_OP_SUB:
        return '-';
    case KRI_OP_MUL:
        return '*';
    case KRI_OP_DIV:
        return '/';
    default:
        return 0;
    }
}

/* Does the fast version do the instruction at AT, arithmetic, on doubles? */
static bool on_doubles(const struct kri_flow *f, const struct kri_code *c, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned op = kri_decode_op(i), b = kri_decode_b(i), y = kri_decode_c(i);
    if (!kri_flow_float_operator(op))
        return false;
    if (kri_flow_is_double(f, at, b) || (op != KRI_OP_ADDI && kri_flow_is_double(f, at, y)))
        return true;
    /* Where a float is wanted: unless both are integers, which it leaves for. */
    bool trusted;
    return op != KRI_OP_ADDI && kri_flow_type_of(f, at, b) == KRI_FLOW_ANY && kri_flow_type_of(f, at, y) == KRI_FLOW_ANY &&
           kri_flow_wanted(f, c, at, &trusted) == KRI_TYPE_FLOAT;
}

static bool is_fixnum(const struct kri_flow *f, uint32_t at, unsigned r) { return kri_flow_type_of(f, at, r) == KRI_FLOW_FIXNUM; }

/* The registers that the instruction at AT compares, adds, subtracts or multiplies: how many. */
static unsigned operands(const struct kri_code *c, uint32_t at, unsigned r[2])
{
    kri_instruction i = c->instr[at];
    switch (kri_decode_op(i)) {
    case KRI_OP_ADDI:
        r[0] = kri_decode_b(i);
        return 1;
    case KRI_OP_ADD:
    case KRI_OP_SUB:
    case KRI_OP_MUL:
        r[0] = kri_decode_b(i);
        r[1] = kri_decode_c(i);
        return 2;
    case KRI_OP_JLT:
    case KRI_OP_JNLT:
    case KRI_OP_JLE:
    case KRI_OP_JNLE:
    case KRI_OP_JNUMEQ:
    case KRI_OP_JNNUMEQ:
        r[0] = kri_decode_a(i);
        r[1] = kri_decode_b(i);
        return 2;
    case KRI_OP_JLTI:
    case KRI_OP_JNLTI:
    case KRI_OP_JLEI:
    case KRI_OP_JNLEI:
    case KRI_OP_JGTI:
    case KRI_OP_JNGTI:
    case KRI_OP_JGEI:
    case KRI_OP_JNGEI:
    case KRI_OP_JNUMEQI:
    case KRI_OP_JNNUMEQI:
        r[0] = kri_decode_a(i);
        return 1;
    default:
        return 0;
    }
}

/* Does the instruction at AT, where the fast version goes on, leave no doubt that register R is a fixnum? As far as one can say without types. */
static bool demands_fixnum(const struct kri_code *c, uint32_t at, unsigned r)
{
    kri_instruction i = c->instr[at];
    unsigned p[2];
    switch (kri_decode_op(i)) {
    case KRI_OP_MOD:
    case KRI_OP_TRUNCATE:
    case KRI_OP_LOGAND:
    case KRI_OP_LOGIOR:
    case KRI_OP_LOGXOR:
    case KRI_OP_ASH:
        return r == kri_decode_b(i) || r == kri_decode_c(i);
    case KRI_OP_AREF:
    case KRI_OP_ASET:
        return r == kri_decode_c(i);
    default:
        return operands(c, at, p) == 1 && p[0] == r;
    }
}

bool kri_flow_on_fixnums(const struct kri_flow *f, const struct kri_code *c, uint32_t at)
{
    unsigned r[2], n = operands(c, at, r);
    bool known = n == 1, hoped = false;
    if (n == 0 || on_doubles(f, c, at))
        return false;
    for (unsigned j = 0; j < n; j++) {
        if (!is_fixnum(f, at, r[j]) && kri_flow_type_of(f, at, r[j]) != KRI_FLOW_ANY)
            return false;
        known |= is_fixnum(f, at, r[j]);
        hoped |= kri_flow_test(f->hoped + (size_t)at * f->words, r[j]);
    }
    return known || hoped;
}

/* Of a register of any type, read by the instruction at AT: is it a fixnum where the fast version goes on? */
static bool tests_fixnum(const struct kri_flow *f, const struct kri_code *c, uint32_t at, unsigned r)
{
    unsigned p[2], n = operands(c, at, p);
    if (n > 0)
        return (p[0] == r || (n == 2 && p[1] == r)) && kri_flow_on_fixnums(f, c, at);
    return demands_fixnum(c, at, r);
}

enum kri_flow_type kri_flow_result(const struct kri_flow *f, const struct kri_code *c, uint32_t at)
{
    kri_instruction i = c->instr[at];
    enum kri_flow_type x = kri_decode_b(i) < f->frame ? kri_flow_type_of(f, at, kri_decode_b(i)) : KRI_FLOW_ANY;
    enum kri_flow_type y = kri_decode_c(i) < f->frame ? kri_flow_type_of(f, at, kri_decode_c(i)) : KRI_FLOW_ANY;
    switch (kri_decode_op(i)) {
    case KRI_OP_MOVE:
        return x;
    case KRI_OP_LOADI:
        return KRI_FLOW_FIXNUM;
    case KRI_OP_LOADK: {
        kr_value k = c->k[kri_decode_bx(i)];
        return kri_is_float(k) ? KRI_FLOW_FLOAT : kri_is_fixnum(k) ? KRI_FLOW_FIXNUM : KRI_FLOW_ANY;
    }
    case KRI_OP_ADD:
    case KRI_OP_SUB:
    case KRI_OP_MUL:
    case KRI_OP_DIV:
        /* Of a fixnum and something else than a fixnum: the fast version has left. */
        return on_doubles(f, c, at) ? KRI_FLOW_FLOAT : kri_flow_on_fixnums(f, c, at) || (x == KRI_FLOW_FIXNUM && y == x) ? KRI_FLOW_FIXNUM : KRI_FLOW_ANY;
    case KRI_OP_ADDI:
        return x == KRI_FLOW_FLOAT ? KRI_FLOW_FLOAT : KRI_FLOW_FIXNUM;
    case KRI_OP_MOD:
    case KRI_OP_TRUNCATE:
    case KRI_OP_LOGAND:
    case KRI_OP_LOGIOR:
    case KRI_OP_LOGXOR:
    case KRI_OP_ASH:
    case KRI_OP_LENGTH:
        return KRI_FLOW_FIXNUM;
    case KRI_OP_AREF:
        return x == KRI_FLOW_FLOAT_VECTOR ? KRI_FLOW_FLOAT : x == KRI_FLOW_INTEGER_VECTOR || x == KRI_FLOW_STRING ? KRI_FLOW_FIXNUM : KRI_FLOW_ANY;
    case KRI_OP_TYPE:
    case KRI_OP_TRUST:
        return kri_flow_declared(kri_decode_c(i), kri_flow_type_of(f, at, kri_decode_a(i)));
    default:
        return KRI_FLOW_ANY;
    }
}

/* Registers that are tested for fixnums further on, on some path: where it costs nothing more, that is done at once. */
static void find_hoped(struct kri_flow *f, const struct kri_code *c)
{
    uint32_t n = c->head.length;
    memset(f->hoped, 0, (size_t)(n + 1) * f->words * sizeof *f->hoped);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t at = n; at-- > 0;) {
            uint64_t *scratch = f->hoped + (size_t)n * f->words, *before = f->hoped + (size_t)at * f->words;
            if (!(f->flags[at] & KRI_FLOW_REACHED))
                continue;
            unsigned op = kri_decode_op(c->instr[at]);
            int64_t to[2] = {kri_flow_target(c, at), kri_flow_falls_through(op) ? (int64_t)kri_flow_next(c, at) : -1};
            memset(scratch, 0, f->words * sizeof *scratch);
            for (int j = 0; j < 2; j++)
                for (unsigned k = 0; k < f->words && to[j] >= 0 && to[j] < n; k++)
                    scratch[k] |= f->hoped[(size_t)to[j] * f->words + k];
            if (kri_flow_writes_a(op))
                clear(scratch, kri_decode_a(c->instr[at]));
            for (unsigned r = 0; r < f->frame; r++)
                if (demands_fixnum(c, at, r))
                    set(scratch, r);
            if (memcmp(before, scratch, f->words * sizeof *scratch) != 0) {
                memcpy(before, scratch, f->words * sizeof *scratch);
                changed = true;
            }
        }
    }
}

enum { TYPED = 8 }; /* a flag: the types before the instruction have begun to come in */

static void find_types(struct kri_flow *f, const struct kri_code *c, unsigned params)
{
    uint32_t n = c->head.length;
    memset(f->type, KRI_FLOW_NEVER, (size_t)n * f->frame);
    f->flags[0] |= TYPED;
    for (unsigned r = 0; r < f->frame; r++)
        f->type[r] = r < params ? KRI_FLOW_ANY : KRI_FLOW_NEVER;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t at = 0; at < n; at++) {
            if (!(f->flags[at] & TYPED))
                continue;
            unsigned op = kri_decode_op(c->instr[at]), a = kri_decode_a(c->instr[at]);
            enum kri_flow_type result = kri_flow_writes_a(op) ? kri_flow_result(f, c, at) : KRI_FLOW_NEVER;
            int64_t to[2] = {kri_flow_target(c, at), kri_flow_falls_through(op) ? (int64_t)kri_flow_next(c, at) : -1};
            for (int j = 0; j < 2; j++) {
                if (to[j] < 0 || to[j] >= n)
                    continue;
                changed |= !(f->flags[to[j]] & TYPED);
                f->flags[to[j]] |= TYPED;
                for (unsigned r = 0; r < f->frame; r++) {
                    unsigned char *t = &f->type[(size_t)to[j] * f->frame + r];
                    enum kri_flow_type out = kri_flow_writes_a(op) && r == a ? result : kri_flow_type_of(f, at, r);
                    if (out == KRI_FLOW_ANY && !(kri_flow_writes_a(op) && r == a) && tests_fixnum(f, c, at, r))
                        out = KRI_FLOW_FIXNUM;
                    if (out == KRI_FLOW_NEVER || out == *t || *t == KRI_FLOW_ANY)
                        continue;
                    *t = (unsigned char)(*t == KRI_FLOW_NEVER ? out : KRI_FLOW_ANY);
                    changed = true;
                }
            }
        }
    }
}

void kri_flow_analyse(struct kri_worker *w, struct kri_flow *f, const struct kri_code *c, kr_value *keep)
{
    size_t n = c->head.length + 1;
    unsigned params = kri_flow_parameters(c);
    f->words = (c->frame + 64u) / 64;
    f->frame = c->frame;
    size_t bytes = (n + 7) / 8 * 8 + 2 * n * f->words * 8 + n * f->frame;
    char *p = (char *)kri_make(w, KRI_CLASS_BYTES, (uint32_t)bytes, bytes / 8 + 1)->slot;
    *keep = kri_cons(w, kri_value_of(p - sizeof(struct kri_cell)), *keep);
    f->flags = (unsigned char *)p;
    f->live = (uint64_t *)(p + (n + 7) / 8 * 8);
    f->hoped = f->live + n * f->words;
    f->type = (unsigned char *)(f->hoped + n * f->words);
    find_clean(f, c, params);
    find_live(f, c);
    find_hoped(f, c);
    find_types(f, c, params);
}

bool kri_flow_may_leave(unsigned op)
{
    static const char *const words[] = {"KRI_ARITH", "KRI_COMPARE", "KRI_AREF", "KRI_ASET", "KRI_CHECK_TYPE", "KRI_RPLAC", "SYNC()"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(kri_flow_ops[op].code, words[i]))
            return true;
    return op == KRI_OP_TRUST;
}
