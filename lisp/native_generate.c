/* native_generate.c -- bytecode to C.
 *
 * A function becomes two in C. The fast version has only the fast paths of arithmetic, comparisons and accesses; where one does not apply it leaves
 * for the complete version, which begins at that instruction with the live registers and goes on to the end. So what the fast
 * version has tested stays known to the C compiler: nothing joins it again.
 *
 * Every instruction becomes a block that holds its text from opcodes.def, the operands put in; native_code.h says what the words
 * mean there. Calls, closures and lists are written here, since bytecode takes their operands from consecutive registers.
 * A function that setjmp may return to (catch, unwind-protect, blocks left from closures) has one version, which does what the complete one does. */
#include <stdarg.h>
#include <stdio.h>
#include "lisp/native_flow.h"
#include "lisp/stream.h"

struct output {
    struct kri_worker *w;
    const struct kri_native_source *source;
    struct kri_text text;
    struct function *function; /* of the module */
    kr_value keep;             /* working memory */
    uint32_t pool, sites;
    unsigned units;            /* C files */
};

struct function {
    const struct kri_code *code;
    bool compiled;
    bool inlined;          /* small, and calls itself: the C compiler may put it into itself */
    int link;              /* fixed parameters, if direct calls may be made by its name; else -1 */
    unsigned parameters;
    uint32_t pool, sites;
    unsigned unit;         /* the C file that it is in */
    unsigned declared;     /* the last unit in which it is declared, counted from 1 */
};

static void put(struct output *o, const char *format, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    kri_text_write(o->w, &o->text, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* ---- what can be compiled ---- */

static bool op_supported(unsigned op)
{
    switch (op) {
    case KRI_OP_BUILTIN:
    case KRI_OP_PROLOGUE:
    case KRI_OP_SEGRETURN:
    case KRI_OP_EXIT:
        return false;
    default:
        return true;
    }
}

/* The function of a top-level form runs once: worth compiling only if it loops. */
static bool runs_once(const struct kri_code *c)
{
    if (!kri_is_nil(c->name) || !kri_is_nil(c->source) || c->captures || c->max != 0)
        return false;
    for (uint32_t i = 0; i < c->head.length; i++)
        if (kri_decode_op(c->instr[i]) == KRI_OP_LOOP)
            return false;
    return true;
}

bool kri_native_can_compile(const struct kri_code *c)
{
    if (kri_is_builtin_code(c) || runs_once(c))
        return false;
    for (uint32_t i = 0; i < c->head.length; i++)
        if (!op_supported(kri_decode_op(c->instr[i])))
            return false;
    return true;
}

bool kri_native_pays_in_core(const struct kri_code *c)
{
    for (uint32_t i = 0; i < c->head.length; i++) {
        unsigned op = kri_decode_op(c->instr[i]);
        if (op == KRI_OP_CALL || op == KRI_OP_APPLY)
            return false;
    }
    return true;
}

static bool is_fixed(const struct kri_code *c)
{
    return !c->nopt && !c->nkey && !(c->flags & (KRI_CODE_KEYS | KRI_CODE_REST | KRI_CODE_MACRO)) && c->nreq <= KRI_NATIVE_FIXED;
}

/* ---- instructions ---- */

static void put_registers(struct output *o, unsigned from, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        put(o, "%sr%u", i ? ", " : "", from + i);
}

/* N values in an array, for a function that takes them so. */
static void put_array(struct output *o, unsigned from, unsigned n)
{
    if (n == 0) {
        put(o, "NULL");
        return;
    }
    put(o, "(const kr_value[]){");
    put_registers(o, from, n);
    put(o, "}");
}

/* The function of the module that calls of SYMBOL with N arguments may go to directly, or -1. */
static int linked(const struct output *o, kr_value symbol, unsigned n)
{
    for (size_t j = 0; j < o->source->count; j++)
        if (o->function[j].link == (int)n && kri_eq(o->function[j].code->name, symbol))
            return (int)j;
    return -1;
}

/* The function of the module that I, an instruction of C, calls if that is a local function without a closure; or -1. */
static int local_callee(const struct output *o, const struct kri_code *c, kri_instruction i)
{
    unsigned op = kri_decode_op(i);
    if (op != KRI_OP_CALLS && op != KRI_OP_CALLF)
        return -1;
    const struct kri_code *code = op == KRI_OP_CALLS ? c : kri_code_of(c->k[kri_decode_c(i)]);
    for (size_t j = 0; j < o->source->count; j++)
        if (o->function[j].code == code && o->function[j].compiled && o->function[j].parameters == kri_decode_b(i))
            return (int)j;
    return -1;
}

static void put_local_call(struct output *o, int j, unsigned a, unsigned n)
{
    put(o, "f%d(w, k, &rec.frame%s", j, n ? ", " : "");
    if (is_fixed(o->function[j].code))
        put_registers(o, a + KRI_FRAME_LINK, n);
    else
        put_array(o, a + KRI_FRAME_LINK, n);
    put(o, ");");
}

static void put_callg(struct output *o, const struct kri_code *c, unsigned a, unsigned n, unsigned k)
{
    int j = linked(o, c->k[k], n);
    put(o, "r%u = ", a);
    if (j >= 0) {
        put(o, "KRI_LIKELY(k[%d].w) ? f%d(w, k, &rec.frame", 1 + j, j);
        for (unsigned i = 0; i < n; i++)
            put(o, ", r%u", a + KRI_FRAME_LINK + i);
        put(o, ") : ");
    }
    if (n <= 3) {
        put(o, "kri_native_call%u(w, &rec.frame, K(%u)%s", n, k, n ? ", " : "");
        put_registers(o, a + KRI_FRAME_LINK, n);
    } else {
        put(o, "kri_native_calln(w, &rec.frame, K(%u), %u, ", k, n);
        put_array(o, a + KRI_FRAME_LINK, n);
    }
    put(o, ");");
}

static void put_call(struct output *o, const struct kri_code *c, kri_instruction i, bool clean)
{
    unsigned op = kri_decode_op(i), a = kri_decode_a(i), n = kri_decode_b(i), k = kri_decode_c(i);
    put(o, "%sSITE(); ", clean ? "" : "FRAME(); ");
    if (op == KRI_OP_CALLG) {
        put_callg(o, c, a, n, k);
        return;
    }
    put(o, "r%u = ", a);
    int local = local_callee(o, c, i);
    if (local >= 0) {
        put_local_call(o, local, a, n);
        return;
    }
    if (op == KRI_OP_SEND && (n == 1 || n == 2)) {
        put(o, "kri_native_send%u(w, &rec.frame, K(%u), ", n, k);
        put_registers(o, a + KRI_FRAME_LINK, n);
        put(o, ");");
        return;
    }
    switch (op) {
    case KRI_OP_CALL:
        put(o, "kri_native_funcall(w, &rec.frame, r%u, %u, ", a, n);
        break;
    case KRI_OP_CALLF:
        put(o, "kri_native_funcall(w, &rec.frame, K(%u), %u, ", k, n);
        break;
    case KRI_OP_APPLY:
        put(o, "kri_native_apply(w, &rec.frame, r%u, %u, ", a, n);
        break;
    case KRI_OP_SEND:
        put(o, "kri_native_send(w, &rec.frame, K(%u), %u, ", k, n);
        break;
    case KRI_OP_SENDV:
        put(o, "kri_native_send(w, &rec.frame, r%u, %u, ", k, n);
        break;
    default:
        put(o, "kri_native_sendsuper(w, &rec.frame, K(%u), %u, ", k, n);
    }
    put_array(o, a + KRI_FRAME_LINK, n);
    put(o, ");");
}

static void put_closure(struct output *o, const struct kri_code *c, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned n = kri_decode_c(i);
    put(o, "SYNC_HERE(); r%u = kri_native_closure(w, K(%u), %u, ", kri_decode_a(i), kri_decode_b(i), n);
    put(o, n ? "(const kr_value[]){" : "NULL");
    for (unsigned j = 0; j < n; j++) {
        kri_instruction capture = c->instr[at + 1 + j];
        put(o, kri_decode_a(capture) ? "%skri_function_of(SELF)->captured[%u]" : "%sr%u", j ? ", " : "", kri_decode_b(capture));
    }
    put(o, "%s);", n ? "}" : "");
}

static bool identifier(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

/* The text of the instruction's opcode with the operands in the place of A B C SB SC BX; jumps name their target. */
static void put_text(struct output *o, const struct kri_code *c, uint32_t at)
{
    kri_instruction i = c->instr[at];
    const char *p = kri_flow_ops[kri_decode_op(i)].code;
    while (*p) {
        size_t n = 0;
        while (identifier(p[n]))
            n++;
        if (n == 0) {
            put(o, "%c", *p++);
            continue;
        }
        if (n == 1 && *p == 'A')
            put(o, "%u", kri_decode_a(i));
        else if (n == 1 && *p == 'B')
            put(o, "%u", kri_decode_b(i));
        else if (n == 1 && *p == 'C')
            put(o, "%u", kri_decode_c(i));
        else if (n == 2 && !memcmp(p, "SB", 2))
            put(o, "%d", kri_decode_sb(i));
        else if (n == 2 && (!memcmp(p, "SC", 2) || !memcmp(p, "BX", 2)) && kri_flow_target(c, at) >= 0)
            put(o, "%d", (int)kri_flow_target(c, at));
        else if (n == 2 && !memcmp(p, "SC", 2))
            put(o, "%d", kri_decode_sc(i));
        else if (n == 2 && !memcmp(p, "BX", 2))
            put(o, "%d", (int)kri_decode_bx(i));
        else
            put(o, "%.*s", (int)n, p);
        p += n;
    }
    put(o, ";");
}

/* The live registers before AT, each as FORMAT; the parameters too, since the record shows them. BOXED: as they are in the fast version. */
static unsigned put_live(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at, const char *format, bool comma, bool boxed)
{
    unsigned n = 0;
    for (unsigned r = 0; r < c->frame; r++)
        if (r < kri_flow_parameters(c) || kri_flow_test(f->live + (size_t)at * f->words, r)) {
            put(o, comma && n ? ", " : "");
            put(o, boxed && r >= kri_flow_parameters(c) && kri_flow_is_double(f, at, r) ? "kri_box(w, d%u)" : format, r, n);
            n++;
        }
    return n;
}

/* Doubles that the instruction at AT reads as values, or (AT's successor TO) that are values there, get their word. */
static void put_boxes(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at, int64_t to, uint64_t *scratch)
{
    if (to < 0) {
        memset(scratch, 0, f->words * sizeof *scratch);
        kri_flow_step_back(scratch, c, at);
    }
    bool writes = kri_flow_writes_a(kri_decode_op(c->instr[at]));
    for (unsigned r = kri_flow_parameters(c); r < c->frame; r++) {
        if (to < 0 ? kri_flow_is_double(f, at, r) && kri_flow_test(scratch, r)
                   : !kri_flow_is_double(f, (uint32_t)to, r) && kri_flow_test(f->live + (size_t)to * f->words, r) &&
                         (writes && r == kri_decode_a(c->instr[at]) ? kri_flow_result(f, c, at) == KRI_FLOW_FLOAT : kri_flow_is_double(f, at, r)))
            put(o, "r%u = KRI_BOX(d%u); ", r, r);
    }
}

/* Register R before AT as a C double. */
static void put_double(struct output *o, const struct kri_flow *f, uint32_t at, unsigned r)
{
    put(o, kri_flow_is_double(f, at, r) ? "d%u" : "KRI_DOUBLE(r%u)", r);
}

/* The comparison that OP makes: C text with operands x_ and y_, and whether a jump is taken if it does not hold. */
static const char *comparison_text(unsigned op, bool fixnums, bool *negated, bool *immediate)
{
    static const struct {
        unsigned char op, immediate_op, negated_op, negated_immediate;
        const char *text, *fixnums;
    } table[] = {
        {KRI_OP_JLT, KRI_OP_JLTI, KRI_OP_JNLT, KRI_OP_JNLTI, "KRI_DOUBLE_LT(x_, y_)", "x_ < y_"},
        {KRI_OP_JLE, KRI_OP_JLEI, KRI_OP_JNLE, KRI_OP_JNLEI, "KRI_DOUBLE_LE(x_, y_)", "x_ <= y_"},
        {KRI_OP_JNUMEQ, KRI_OP_JNUMEQI, KRI_OP_JNNUMEQ, KRI_OP_JNNUMEQI, "x_ == y_", "x_ == y_"},
        {KRI_OP_COUNT, KRI_OP_JGTI, KRI_OP_COUNT, KRI_OP_JNGTI, "KRI_DOUBLE_LT(y_, x_)", "x_ > y_"},
        {KRI_OP_COUNT, KRI_OP_JGEI, KRI_OP_COUNT, KRI_OP_JNGEI, "KRI_DOUBLE_LE(y_, x_)", "x_ >= y_"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        *immediate = op == table[i].immediate_op || op == table[i].negated_immediate;
        *negated = op == table[i].negated_op || op == table[i].negated_immediate;
        if (*immediate || *negated || op == table[i].op)
            return fixnums ? table[i].fixnums : table[i].text;
    }
    return NULL;
}

static const char *float_comparison(unsigned op, bool *negated, bool *immediate) { return comparison_text(op, false, negated, immediate); }
static const char *fixnum_comparison(unsigned op, bool *negated, bool *immediate) { return comparison_text(op, true, negated, immediate); }

/* A declaration where the fast version knows how to test it, or knows already. */
static bool put_declared(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned a = kri_decode_a(i), kind = kri_decode_c(i);
    enum kri_flow_type t = kri_flow_type_of(f, at, a), to = kri_flow_declared(kind, t);
    bool trusted = kri_decode_op(i) == KRI_OP_TRUST, number = t == KRI_FLOW_FIXNUM || t == KRI_FLOW_FLOAT;
    if (t == to && (kind == KRI_TYPE_FIXNUM || kind == KRI_TYPE_INTEGER || kind == KRI_TYPE_FLOAT || (kind == KRI_TYPE_NUMBER && number) ||
                    kind < KRI_CLASS_BUILTIN_COUNT || trusted) && !(kind == KRI_CLASS_VECTOR && t == KRI_FLOW_ANY) &&
        !(kind < KRI_CLASS_BUILTIN_COUNT && to == t && t == KRI_FLOW_ANY))
        return true;
    switch (kind) {
    case KRI_TYPE_FIXNUM:
    case KRI_TYPE_INTEGER:
    case KRI_TYPE_RANGE:
        if (t == KRI_FLOW_FLOAT)
            put(o, "goto slow;");
        else if (trusted && kind != KRI_TYPE_INTEGER)
            put(o, "r%u.w |= 1;", a); /* whatever it was: now it is a fixnum */
        else if (kind != KRI_TYPE_RANGE)
            put(o, "if (KRI_UNLIKELY(!kri_is_fixnum(r%u))) goto slow;", a);
        else
            return false;
        return true;
    case KRI_TYPE_FLOAT:
        put(o, t == KRI_FLOW_FIXNUM ? "goto slow;" : "d%u = KRI_FLOAT(r%u);", a, a);
        return true;
    case KRI_CLASS_FLOAT_VECTOR:
    case KRI_CLASS_INTEGER_VECTOR:
    case KRI_CLASS_STRING:
        put(o, number ? "goto slow;" : "if (KRI_UNLIKELY(!kri_has_class(r%u, %u))) goto slow;", a, kind);
        return true;
    default:
        return trusted;
    }
}

/* An element of a vector whose class is known. */
static bool put_element(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned a = kri_decode_a(i), b = kri_decode_b(i), y = kri_decode_c(i);
    bool set = kri_decode_op(i) == KRI_OP_ASET;
    enum kri_flow_type vector = kri_flow_type_of(f, at, b), value = kri_flow_type_of(f, at, a);
    const char *test = kri_flow_type_of(f, at, y) == KRI_FLOW_FIXNUM ? "" : "KRI_FIXNUM_OR_LEAVE(r%u); ";
    if (kri_flow_is_double(f, at, y))
        return false;
    if (vector == KRI_FLOW_ANY && !*test)
        put(o, "KRI_KNOWN(kri_is_fixnum(r%u)); ", y);
    switch (vector) {
    case KRI_FLOW_FLOAT_VECTOR:
        put(o, test, y);
        if (set) {
            put(o, "const double x_ = ");
            put_double(o, f, at, a);
            put(o, "; KRI_ELEMENT(kri_fvector, r%u, r%u) = x_;", b, y);
        } else {
            put(o, "d%u = KRI_ELEMENT(kri_fvector, r%u, r%u);", a, b, y);
        }
        break;
    case KRI_FLOW_INTEGER_VECTOR:
        if (set && value == KRI_FLOW_FLOAT)
            return false;
        put(o, test, y);
        if (set && value != KRI_FLOW_FIXNUM)
            put(o, "KRI_FIXNUM_OR_LEAVE(r%u); ", a);
        if (set)
            put(o, "KRI_ELEMENT(kri_ivector, r%u, r%u) = kri_fixnum_value(r%u);", b, y, a);
        else
            put(o, "const int64_t n_ = KRI_ELEMENT(kri_ivector, r%u, r%u); if (KRI_UNLIKELY(!kri_fits_fixnum(n_))) goto slow; r%u = kri_fixnum(n_);", b, y, a);
        break;
    case KRI_FLOW_STRING:
        if (set)
            return false;
        put(o, test, y);
        put(o, "r%u = kri_fixnum(KRI_ELEMENT(kri_string, r%u, r%u));", a, b, y);
        break;
    default:
        return false;
    }
    return true;
}

static void put_fixnum_test(struct output *o, const struct kri_flow *f, uint32_t at, unsigned r)
{
    if (kri_flow_type_of(f, at, r) != KRI_FLOW_FIXNUM)
        put(o, "KRI_FIXNUM_OR_LEAVE(r%u); ", r);
}

/* Arithmetic and comparisons of registers that hold fixnums, or had better: no other tests, and no overflow where the result is trusted to be one. */
static bool put_on_fixnums(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned op = kri_decode_op(i), a = kri_decode_a(i), b = kri_decode_b(i), y = kri_decode_c(i);
    bool negated, immediate, trusted;
    const char *comparison = fixnum_comparison(op, &negated, &immediate);
    if (!kri_flow_on_fixnums(f, c, at))
        return false;
    put_fixnum_test(o, f, at, comparison ? a : b);
    if (comparison ? !immediate : op != KRI_OP_ADDI)
        put_fixnum_test(o, f, at, comparison ? b : y);
    if (comparison) {
        put(o, "const long x_ = (long)r%u.w, y_ = (long)", a);
        put(o, immediate ? "kri_fixnum(%d).w" : "r%u.w", immediate ? kri_decode_sb(i) : (int)b);
        put(o, "; if (%s(%s)) JUMP(%d);", negated ? "!" : "", comparison, (int)kri_flow_target(c, at));
        return true;
    }
    unsigned wanted = kri_flow_wanted(f, c, at, &trusted);
    bool wraps = trusted && (wanted == KRI_TYPE_FIXNUM || wanted == KRI_TYPE_RANGE);
    if (op == KRI_OP_ADDI)
        put(o, wraps ? "r%u.w = r%u.w + (uintptr_t)(%dl * 2);" : "KRI_FIXNUM_SUM(%u, (long)r%u.w, %dl * 2, __builtin_saddl_overflow);", a, b, kri_decode_sc(i));
    else if (op == KRI_OP_MUL)
        put(o, wraps ? "r%u.w = (r%u.w - 1) * (uintptr_t)kri_fixnum_value(r%u) + 1;" : "KRI_FIXNUM_PRODUCT(%u, r%u, r%u);", a, b, y);
    else if (wraps)
        put(o, "r%u.w = r%u.w %c (r%u.w - 1);", a, b, op == KRI_OP_ADD ? '+' : '-', y);
    else
        put(o, "KRI_FIXNUM_SUM(%u, (long)r%u.w, (long)(r%u.w - 1), %s);", a, b, y, op == KRI_OP_ADD ? "__builtin_saddl_overflow" : "__builtin_ssubl_overflow");
    return true;
}

/* The instruction at AT on doubles, if the fast version does it so. */
static bool put_on_doubles(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at)
{
    kri_instruction i = c->instr[at];
    unsigned op = kri_decode_op(i), a = kri_decode_a(i), b = kri_decode_b(i), y = kri_decode_c(i);
    bool negated, immediate, doubles = false;
    const char *comparison = float_comparison(op, &negated, &immediate);
    if (comparison)
        doubles = kri_flow_is_double(f, at, a) || (!immediate && kri_flow_is_double(f, at, b));
    if (comparison && doubles) {
        put(o, "const double x_ = ");
        put_double(o, f, at, a);
        put(o, ", y_ = ");
        if (immediate)
            put(o, "%d", kri_decode_sb(i));
        else
            put_double(o, f, at, b);
        put(o, "; if (%s(%s)) JUMP(%d);", negated ? "!" : "", comparison, (int)kri_flow_target(c, at));
        return true;
    }
    if (!kri_flow_writes_a(op) || kri_flow_result(f, c, at) != KRI_FLOW_FLOAT)
        return false;
    switch (op) {
    case KRI_OP_MOVE:
        put(o, "d%u = d%u;", a, b);
        break;
    case KRI_OP_LOADK: {
        double d = kri_float_value(c->k[kri_decode_bx(i)]);
        if (d - d != 0)
            put(o, d != d ? "d%u = __builtin_nan(\"\");" : d > 0 ? "d%u = __builtin_inf();" : "d%u = -__builtin_inf();", a);
        else
            put(o, "d%u = %a;", a, d);
        break;
    }
    default:
        if (!kri_flow_float_operator(op))
            return false;
        if (op != KRI_OP_ADDI && !kri_flow_is_double(f, at, b) && !kri_flow_is_double(f, at, y))
            put(o, "if (kri_both_fixnums(r%u, r%u)) goto slow; ", b, y);
        put(o, "const double x_ = ");
        put_double(o, f, at, b);
        put(o, ", y_ = ");
        if (op == KRI_OP_ADDI)
            put(o, "%d", kri_decode_sc(i));
        else
            put_double(o, f, at, y);
        put(o, "; %sd%u = x_ %c y_;", op == KRI_OP_DIV ? "if (y_ == 0) goto slow; " : "", a, kri_flow_float_operator(op));
    }
    return true;
}

/* The instruction at AT as the fast version does it better than its text, if it does. */
static bool put_typed(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at)
{
    unsigned op = kri_decode_op(c->instr[at]), a = kri_decode_a(c->instr[at]);
    bool done;
    if (op == KRI_OP_TYPE || op == KRI_OP_TRUST)
        return put_declared(o, c, f, at); /* a parameter keeps its word */
    if (op == KRI_OP_AREF || op == KRI_OP_ASET)
        done = put_element(o, c, f, at);
    else
        done = put_on_fixnums(o, c, f, at) || put_on_doubles(o, c, f, at);
    if (done && a < kri_flow_parameters(c) && kri_flow_writes_a(op) && kri_flow_result(f, c, at) == KRI_FLOW_FLOAT)
        put(o, " r%u = KRI_BOX(d%u);", a, a);
    return done;
}

/* Leaving with few registers is a tail call with C arguments, which needs no stack frame: a path that returns early does without one. */
enum { LEAVE_REGISTERS = 3 };

static unsigned count_live(const struct kri_code *c, const struct kri_flow *f, uint32_t at)
{
    unsigned n = 0;
    for (unsigned r = 0; r < c->frame; r++)
        n += r < kri_flow_parameters(c) || kri_flow_test(f->live + (size_t)at * f->words, r);
    return n;
}

static void put_leave(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at, size_t j)
{
    const char *self = c->captures ? ", self" : "";
    unsigned n = count_live(c, f, at);
    if (n <= LEAVE_REGISTERS) {
        put(o, " if (0) { slow: return x%zu_%u(w, k, caller%s%s", j, at, self, n ? ", " : "");
        put_live(o, c, f, at, "r%u", true, true);
        put(o, "); }");
        return;
    }
    put(o, " if (0) { slow: return s%zu(w, k, caller%s, %u, (const kr_value[]){", j, self, at);
    put_live(o, c, f, at, "r%u", true, true);
    put(o, "}); }");
}

/* The functions that the fast version of function J leaves through. */
static void put_exits(struct output *o, const struct kri_code *c, const struct kri_flow *f, size_t j)
{
    for (uint32_t at = 0; at < c->head.length; at++) {
        if (!(f->flags[at] & KRI_FLOW_REACHED) || !kri_flow_may_leave(kri_decode_op(c->instr[at])) || count_live(c, f, at) > LEAVE_REGISTERS)
            continue;
        put(o, "static KRI_COLD kr_value x%zu_%u(struct kri_worker *w, const kr_value *k, struct kri_native_frame *caller%s%s", j, at,
            c->captures ? ", kr_value self" : "", count_live(c, f, at) ? ", " : "");
        put_live(o, c, f, at, "kr_value r%u", true, false);
        put(o, ")\n{\n    return s%zu(w, k, caller%s, %u, (const kr_value[]){", j, c->captures ? ", self" : "", at);
        put_live(o, c, f, at, "r%u", true, false);
        put(o, "%s});\n}\n", count_live(c, f, at) ? "" : "{0}");
    }
}

/* ALONE: what was bound in the function was bound in this version of it. */
static void put_handler(struct output *o, const struct kri_code *c, uint32_t at, bool alone)
{
    kri_instruction i = c->instr[at];
    unsigned a = kri_decode_a(i);
    int to = (int)kri_flow_target(c, at);
    switch (kri_decode_op(i)) {
    case KRI_OP_BIND:
        put(o, "KRI_HANDLER_BINDS(b%u, K(%u), r%u);", a, kri_decode_b(i), a + 2);
        break;
    case KRI_OP_UNBIND:
        if (alone)
            put(o, "KRI_HANDLER_UNBINDS(b%u);", a);
        else
            put(o, "KRI_HANDLER_UNBINDS(ctx->handler);");
        break;
    case KRI_OP_CATCH:
        put(o, "KRI_HANDLER_CATCHES(h%u, KRI_HANDLER_CATCH, r%u, r%u, i%d);", a, a + 2, a, to);
        break;
    case KRI_OP_BLOCK:
        put(o, "SYNC_HERE(); r%u = kri_make_box(w, KRI_NIL); KRI_HANDLER_CATCHES(h%u, KRI_HANDLER_BLOCK, r%u, r%u, i%d);", a + 2, a, a + 2, a, to);
        break;
    case KRI_OP_PROTECT:
        put(o, "KRI_HANDLER_PROTECTS(h%u, r%u, r%u, i%d);", a, a, a + 1, to);
        break;
    case KRI_OP_ENDBODY:
        put(o, "KRI_HANDLER_POP(); r%u = KRI_NIL;", a);
        break;
    case KRI_OP_RESUME:
        put(o, "if (!kri_is_nil(r%u)) { SYNC_HERE(); kri_native_resume(w, r%u, r%u); }", a, a, a + 1);
        break;
    default:
        put(o, "KRI_HANDLER_POP();");
    }
}

/* The records of the handlers. */
static void put_records(struct output *o, const struct kri_code *c)
{
    for (unsigned r = 0; r < c->frame; r++) {
        bool binds = false, enters = false;
        for (uint32_t at = 0; at < c->head.length; at++) {
            unsigned op = kri_decode_op(c->instr[at]);
            if (kri_flow_ops[op].operands[0] == 'R' && kri_decode_a(c->instr[at]) == r) {
                binds |= op == KRI_OP_BIND;
                enters |= kri_flow_is_entered(op);
            }
        }
        if (binds)
            put(o, "    kr_value b%u[KRI_HANDLER_WORDS];\n", r);
        if (enters)
            put(o, "    struct kri_native_handler h%u;\n", r);
    }
}

/* Longer lists are made by a call. */
enum { CONSED_ELEMENTS = 4 };

static void put_instruction(struct output *o, const struct kri_code *c, const struct kri_flow *f, uint32_t at, size_t j, bool fast)
{
    kri_instruction i = c->instr[at];
    unsigned op = kri_decode_op(i);
    bool leave = fast && kri_flow_may_leave(op);
    uint64_t *scratch = f->live + (size_t)c->head.length * f->words;
    int64_t to = kri_flow_target(c, at), next = kri_flow_falls_through(op) ? (int64_t)kri_flow_next(c, at) : -1;
    if (f->flags[at] & KRI_FLOW_TARGET || (!fast && kri_flow_may_leave(op)))
        put(o, "i%u:\n", at);
    put(o, "    { %senum { PC = %u }; ", leave ? "__label__ slow; " : "", at + 1);
    if (fast && to >= 0 && to < c->head.length)
        put_boxes(o, c, f, at, to, scratch);
    bool done = fast && put_typed(o, c, f, at);
    if (fast && !done)
        put_boxes(o, c, f, at, -1, scratch);
    if (done) {
        ;
    } else if (kri_flow_is_call(op)) {
        put_call(o, c, i, fast && f->flags[at] & KRI_FLOW_CLEAN);
    } else if (kri_flow_is_handler(op)) {
        put_handler(o, c, at, fast || kri_flow_has_entered(c));
    } else if (op == KRI_OP_CLOSURE) {
        put_closure(o, c, at);
    } else if (op == KRI_OP_LIST && kri_decode_c(i) <= CONSED_ELEMENTS) {
        put(o, "kr_value l_ = KRI_NIL;");
        for (unsigned n = kri_decode_c(i); n-- > 0;)
            put(o, " l_ = KRI_CONS_OF(r%u, l_);", kri_decode_b(i) + n);
        put(o, " r%u = l_;", kri_decode_a(i));
    } else if (op == KRI_OP_LIST) {
        put(o, "SYNC_HERE(); r%u = kri_list_from(w, ", kri_decode_a(i));
        put_array(o, kri_decode_b(i), kri_decode_c(i));
        put(o, ", %u);", kri_decode_c(i));
    } else {
        put_text(o, c, at);
    }
    if (leave)
        put_leave(o, c, f, at, j);
    if (fast && next >= 0 && next < c->head.length) {
        put(o, " ");
        put_boxes(o, c, f, at, next, scratch);
    }
    put(o, " }\n");
}

/* ---- functions ---- */

static bool has_complete(const struct output *o, const struct kri_code *c)
{
    if (o->source->lean || kri_flow_has_entered(c))
        return false;
    for (uint32_t at = 0; at < c->head.length; at++)
        if (kri_flow_may_leave(kri_decode_op(c->instr[at])))
            return true;
    return false;
}

/* The head of a C function for function J, LETTER its kind: 's' is the complete version, which is entered in the middle. */
static void put_head(struct output *o, size_t j, const char *attribute, char letter)
{
    const struct function *f = &o->function[j];
    put(o, "%s%s kr_value %c%zu(struct kri_worker *w, const kr_value *k, struct kri_native_frame *caller",
        letter == 'f' && o->units > 1 ? "" : "static ", attribute, letter, j);
    if (f->code->captures)
        put(o, ", kr_value self");
    if (letter == 's')
        put(o, ", unsigned at, const kr_value *live");
    else if (is_fixed(f->code))
        for (unsigned i = 0; i < f->parameters; i++)
            put(o, ", %skr_value r%u", kri_flow_has_entered(f->code) ? "KRI_ACROSS " : "", i);
    else
        put(o, ", const kr_value *argv");
    put(o, ")");
}

enum { INLINED_INSTRUCTIONS = 60 };

static bool calls_itself(const struct function *f)
{
    const struct kri_code *c = f->code;
    for (uint32_t at = 0; at < c->head.length && c->head.length <= INLINED_INSTRUCTIONS; at++)
        if (kri_decode_op(c->instr[at]) == KRI_OP_CALLS ||
            (kri_decode_op(c->instr[at]) == KRI_OP_CALLG && (int)kri_decode_b(c->instr[at]) == f->link &&
             kri_eq(c->k[kri_decode_c(c->instr[at])], c->name)))
            return true;
    return false;
}

/* A Lisp value in a C comment. */
static void put_comment(struct output *o, kr_value v)
{
    kr_value s = kri_print_to_string(o->w, v, true);
    put(o, "/* ");
    for (size_t i = 0; i < kri_length(s) && i < 200; i++) {
        char c = (char)kri_string_of(s)->byte[i];
        put(o, "%c", c == '*' || c == '\\' || c == '?' ? '.' : c);
    }
    put(o, " */\n");
}

static void put_variables(struct output *o, const struct kri_code *c, unsigned from, unsigned to)
{
    const char *across = kri_flow_has_entered(c) ? "KRI_ACROSS " : "";
    for (unsigned i = from; i < to; i++)
        if (i % 16 == from % 16)
            put(o, "%s    %skr_value r%u", i > from ? ";\n" : "", across, i);
        else
            put(o, ", r%u", i);
    put(o, from < to ? ";\n" : "");
}

/* The parameters of function J, the poll, or the jump to where the complete version begins. */
static void put_entry(struct output *o, const struct kri_flow *flow, size_t j, bool complete)
{
    const struct function *f = &o->function[j];
    const struct kri_code *c = f->code;
    unsigned n = f->parameters;
    if (complete) {
        put_variables(o, c, 0, c->frame);
        put(o, "    switch (at) {\n");
        for (uint32_t at = 0; at < c->head.length; at++)
            if (flow->flags[at] & KRI_FLOW_REACHED && kri_flow_may_leave(kri_decode_op(c->instr[at]))) {
                put(o, "    case %u: ", at);
                put_live(o, c, flow, at, "r%u = live[%u]; ", false, false);
                put(o, "goto i%u;\n", at);
            }
        put(o, "    }\n");
        return;
    }
    if (!is_fixed(c) && n > 0) {
        put(o, "    %skr_value ", kri_flow_has_entered(c) ? "KRI_ACROSS " : "");
        for (unsigned i = 0; i < n; i++)
            put(o, "%sr%u = argv[%u]", i ? ", " : "", i, i);
        put(o, ";\n");
    }
    put_variables(o, c, n, c->frame);
    put(o, "    if (KRI_NATIVE_LOW())\n        return l%zu(w, k, caller%s", j, c->captures ? ", self" : "");
    if (!is_fixed(c))
        put(o, ", argv");
    for (unsigned i = 0; i < n && is_fixed(c); i++)
        put(o, ", r%u", i);
    put(o, ");\n");
}

/* What function J does when the native stack is low or a request waits: its bytecode serves, or it begins again. */
static void put_low(struct output *o, size_t j)
{
    const struct function *f = &o->function[j];
    const char *self = f->code->captures ? ", self" : "";
    unsigned n = is_fixed(f->code) ? f->parameters : 0;
    put_head(o, j, "KRI_COLD", 'l');
    put(o, "\n{\n    if (kri_native_low(w, k, caller, %zu))\n        return kri_native_twin(w, k, caller, %zu, %s, %u, ", j, j,
        f->code->captures ? "self" : "KRI_NIL", f->parameters);
    if (is_fixed(f->code))
        put_array(o, 0, n);
    put(o, "%s);\n    return f%zu(w, k, caller%s%s", is_fixed(f->code) ? "" : "argv", j, self, is_fixed(f->code) ? n ? ", " : "" : ", argv");
    put_registers(o, 0, n);
    put(o, ");\n}\n");
}

/* The record is completed before calls and on slow paths. In lean code the N parameters live in it, so that it always is. */
static void put_record(struct output *o, unsigned n)
{
    const char *format = o->source->lean ? "    rec.argument[%u] = r%u;\n#define r%u rec.argument[%u]\n" : ", rec.argument[%u] = r%u";
    put(o, o->source->lean ? "#define FRAME() ((void)0)\n    rec.frame.prev = caller;\n" : "#define FRAME() (rec.frame.prev = caller");
    for (unsigned i = 0; i < n; i++)
        put(o, format, i, i, i, i);
    put(o, o->source->lean ? "" : ")\n");
}

static void put_version(struct output *o, const struct kri_flow *flow, size_t j, bool complete)
{
    const struct function *f = &o->function[j];
    const struct kri_code *c = f->code;
    unsigned n = f->parameters;
    bool fast = !complete && has_complete(o, c);
    put_head(o, j, complete ? "KRI_COLD" : f->inlined ? "inline" : "", complete ? 's' : 'f');
    put(o, "\n{\n    enum { POOL = %u, SITES = %u };\n    struct kr_context *const ctx = w->ctx; struct kr_vm *const vm = w->vm;\n", f->pool, f->sites);
    put(o, "    struct { struct kri_native_frame frame; %skr_value argument[%u]; } rec;\n", o->source->lean && kri_flow_has_entered(c) ? "KRI_ACROSS " : "",
        n ? n : 1);
    put_records(o, c);
    put_entry(o, flow, j, complete);
    for (unsigned r = 0; fast && r < c->frame; r++)
        for (uint32_t at = 0; at < c->head.length; at++)
            if (flow->flags[at] & KRI_FLOW_REACHED && (kri_flow_is_double(flow, at, r) || (kri_flow_writes_a(kri_decode_op(c->instr[at])) && kri_decode_a(c->instr[at]) == r &&
                                                                         kri_flow_result(flow, c, at) == KRI_FLOW_FLOAT))) {
                put(o, "    double d%u;\n", r);
                break;
            }
    put(o, "#define SELF self\n#define SYNC() %s\n", fast ? "goto slow" : "SYNC_HERE()");
    put_record(o, n);
    for (uint32_t at = 0; at < c->head.length; at++)
        if (flow->flags[at] & KRI_FLOW_REACHED)
            put_instruction(o, c, flow, at, j, fast);
    for (unsigned i = 0; o->source->lean && i < n; i++)
        put(o, "#undef r%u\n", i);
    put(o, "#undef FRAME\n#undef SYNC\n#undef SELF\n}\n");
}

static void put_function(struct output *o, size_t j)
{
    const struct kri_code *c = o->function[j].code;
    struct kri_flow flow;
    o->keep = KRI_NIL;
    kri_flow_analyse(o->w, &flow, c, &o->keep);
    put(o, "\n");
    put_comment(o, c->name);
    if (has_complete(o, c)) {
        put_version(o, &flow, j, true);
        put_exits(o, c, &flow, j);
    }
    put_low(o, j);
    put_version(o, &flow, j, false);
}

/* ---- C files ----
 *
 * A large module is several units, which are compiled at the same time. What units share has external linkage, hidden in the shared object; its
 * names begin with the source's prefix, by macros, so that the text of a function is the same in one unit or many. */

static const char *prefix_of(const struct output *o) { return o->source->linked ? o->source->linked : "kri_unit_"; }

static void put_unit_head(struct output *o, unsigned unit)
{
    if (o->source->linked)
        put(o, "#define KRI_NATIVE_LINKED\n");
    else if (unit > 0)
        put(o, "#define KRI_NATIVE_UNIT\n");
    if (o->source->lean)
        put(o, "#define KRI_NATIVE_LEAN\n");
    put(o, "#include \"lisp/native_code.h\"\n\n");
    if (o->units > 1)
        put(o, "#define sites %ssites\nextern const struct kri_native_site sites[];\n", prefix_of(o));
    else
        put(o, "static const struct kri_native_site sites[%u];\n", o->sites + 1);
}

static void declare(struct output *o, size_t j, unsigned unit)
{
    struct function *f = &o->function[j];
    if (!f->compiled || f->declared == unit + 1)
        return;
    f->declared = unit + 1;
    if (o->units > 1)
        put(o, "#define f%zu %sf%zu\n", j, prefix_of(o), j);
    put_head(o, j, f->inlined && o->units == 1 ? "inline" : "", 'f');
    put(o, ";\n");
}

/* The function J and those that it calls directly. */
static void declare_with_callees(struct output *o, size_t j, unsigned unit)
{
    const struct kri_code *c = o->function[j].code;
    declare(o, j, unit);
    for (uint32_t at = 0; at < c->head.length && o->function[j].compiled; at = kri_flow_next(c, at)) {
        int callee = kri_decode_op(c->instr[at]) == KRI_OP_CALLG ? linked(o, c->k[kri_decode_c(c->instr[at])], kri_decode_b(c->instr[at])) : -1;
        if (callee < 0)
            callee = local_callee(o, c, c->instr[at]);
        if (callee >= 0)
            declare(o, (size_t)callee, unit);
    }
}

static void put_functions(struct output *o)
{
    put(o, "\nstatic const struct kri_native_function functions[] = {\n");
    for (size_t j = 0; j < o->source->count; j++) {
        const struct function *f = &o->function[j];
        if (f->compiled)
            put(o, "    {f%zu, %d, %d, %u, %u, %u},\n", j, is_fixed(f->code) ? (int)f->parameters : KRI_NATIVE_ARRAY, f->code->captures != 0, f->pool,
                (unsigned)kri_length(f->code->constants), f->sites);
        else
            put(o, "    {0, 0, 0, 0, 0, %u},\n", f->sites);
    }
    put(o, "    {0}\n};\n");
}

static void put_tables(struct output *o)
{
    const struct kri_native_source *s = o->source;
    for (size_t j = 0; j < s->count; j++)
        declare(o, j, 0);
    put_functions(o);
    put(o, "%sconst struct kri_native_site sites[%u];\n", o->units > 1 ? "" : "static ", o->sites + 1);
    if (s->image) {
        put(o, "static const unsigned char image[] = {");
        for (size_t i = 0; i < s->image_size; i++)
            put(o, i % 32 ? "%u," : "\n%u,", s->image[i]);
        put(o, "0};\n");
    }
    put(o, s->linked ? "const struct kri_native_module %smodule = {\n" : "__attribute__((visibility(\"default\"))) const struct kri_native_module %smodule = {\n",
        s->linked ? s->linked : "kri_");
    put(o, "    KRI_NATIVE_MAGIC, KRI_NATIVE_ABI, %u, KRI_NATIVE_FINGERPRINT, %zu, %u, %u, %zu, functions, sites, %s, %s, ", (unsigned)KRI_OP_COUNT, s->count,
        o->sites, o->pool, s->image ? s->image_size : 0, s->image ? "image" : "0", s->linked ? "0" : "&kri_api");
    put(o, "\"");
    for (const char *p = s->source; *p; p++)
        put(o, *p == '"' || *p == '\\' || *p == '?' || (unsigned char)*p < 32 ? "\\%03o" : "%c", (unsigned char)*p);
    put(o, "\", %lld, %lld\n};\n", (long long)s->source_size, (long long)s->source_time);
    if (s->linked)
        put(o, "const struct kri_native_module *const %snative = &%smodule;\n", s->linked, s->linked);
}

static kr_value put_unit(struct output *o, unsigned unit)
{
    kri_text_init(&o->text);
    put_unit_head(o, unit);
    for (size_t j = 0; j < o->source->count; j++)
        if (o->function[j].unit == unit)
            declare_with_callees(o, j, unit);
    for (size_t j = 0; j < o->source->count; j++)
        if (o->function[j].compiled && o->function[j].unit == unit)
            put_function(o, j);
    if (unit == 0)
        put_tables(o);
    return kri_text_string(o->w, &o->text);
}

static void prepare(struct output *o, size_t j)
{
    struct function *f = &o->function[j];
    f->code = (const struct kri_code *)kri_vector_of(o->source->codes)->at[j].w;
    f->compiled = kri_native_can_compile(f->code);
    f->parameters = kri_flow_parameters(f->code);
    bool named = f->compiled && !f->code->captures && is_fixed(f->code) && kri_is_symbol(f->code->name);
    bool lifted = f->code->flags & KRI_CODE_LIFTED;
    f->link = named && !lifted && !kri_is_nil(f->code->name) ? (int)f->parameters : -1;
    f->inlined = (f->link >= 0 || (lifted && is_fixed(f->code))) && !kri_flow_has_entered(f->code) && calls_itself(f);
    f->pool = o->pool;
    f->sites = o->sites;
    if (f->compiled) {
        o->pool += (uint32_t)kri_length(f->code->constants);
        o->sites += f->code->head.length + 1;
    }
}

/* So many instructions of bytecode make a unit, if the source does not say how many units there are: a second or two of the C compiler's time. */
enum { UNIT_INSTRUCTIONS = 3000 };

kr_value kri_native_generate(struct kri_worker *w, const struct kri_native_source *s)
{
    struct output o = {.w = w, .source = s, .keep = KRI_NIL};
    kr_value table = kri_value_of(kri_make(w, KRI_CLASS_BYTES, (uint32_t)(s->count * sizeof *o.function + 8), s->count * sizeof *o.function / 8 + 1));
    o.function = (struct function *)kri_string_of(table)->byte;
    o.pool = (uint32_t)(1 + 3 * s->count);
    for (size_t j = 0; j < s->count; j++)
        prepare(&o, j);
    o.units = s->units ? s->units : 1 + o.sites / UNIT_INSTRUCTIONS;
    for (size_t j = 0; j < s->count; j++)
        o.function[j].unit = (unsigned)((uint64_t)o.function[j].sites * o.units / (o.sites + 1));
    kr_value units = kri_make_vector(w, o.units);
    for (unsigned u = 0; u < o.units; u++) {
        kr_value text = put_unit(&o, u);
        kri_store(w, kri_ptr(units), &kri_vector_of(units)->at[u], text);
    }
    return units;
}
