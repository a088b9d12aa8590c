/* regex.c -- running the programs that lib/regex.l makes of regular expressions.
 *
 * All ways through the program are followed side by side, byte by byte (Thompson), each with its own captures, in the order in which a
 * search with backtracking would try them (Pike): the first that reaches the end wins. So the time is bounded by the length of the text
 * times that of the program, whatever the pattern.
 *
 * A program is an integer-vector of instructions, three numbers each. Sets of bytes lie in a string, 32 bytes each. */
#include "lisp/sequence.h"

enum op {
    OP_MATCH,
    OP_RANGE,  /* a byte from A to B */
    OP_SET,    /* a byte of set A */
    OP_SPLIT,  /* go on at A, or else at B */
    OP_JUMP,   /* go on at A */
    OP_SAVE,   /* note the position in slot A */
    OP_ASSERT, /* enum place A */
    OP_COUNT
};
enum place { AT_BEGIN, AT_END, AT_LINE_BEGIN, AT_LINE_END, AT_WORD_EDGE, NOT_AT_WORD_EDGE, PLACE_COUNT };

struct program {
    const int64_t *code; /* of a Lisp vector that argv holds */
    size_t n, sets, slots;
    const unsigned char *set;
};

/* Threads of one step, in order: `pc` of each, its captures behind. All lies in cells without values, which never move. */
struct threads {
    size_t n;
    uint32_t *pc;
    intptr_t *capture; /* slots for each */
};

struct machine {
    struct program p;
    const unsigned char *text;
    size_t length;
    size_t *seen;          /* by pc: the step at which it was added last, plus one */
    uint32_t *stack;       /* of `follow`: what is left to add */
    intptr_t *saved;       /* of `follow`: captures to restore: slot and old value */
    struct threads a, b;
};

static void *scratch(struct kri_worker *w, size_t bytes)
{
    size_t words = (bytes + 7) / 8;
    return kri_make(w, KRI_CLASS_BYTES, 0, words ? words : 1)->slot;
}

static void check_program(struct kri_worker *w, const struct program *p, kr_value program)
{
    bool good = p->n > 0 && p->n < 1000000;
    for (size_t i = 0; good && i < p->n; i++) {
        int64_t op = p->code[3 * i], a = p->code[3 * i + 1], b = p->code[3 * i + 2], n = (int64_t)p->n;
        switch (op) {
        case OP_MATCH: break;
        case OP_RANGE: good = a >= 0 && b <= 255; break;
        case OP_SET: good = a >= 0 && (size_t)a < p->sets; break;
        case OP_SPLIT: good = a >= 0 && a < n && b >= 0 && b < n; break;
        case OP_JUMP: good = a >= 0 && a < n; break;
        case OP_SAVE: good = a >= 0 && (size_t)a < p->slots; break;
        case OP_ASSERT: good = a >= 0 && a < PLACE_COUNT; break;
        default: good = false;
        }
        if (op != OP_JUMP && op != OP_MATCH && op != OP_SPLIT && i + 1 == p->n)
            good = false;
    }
    if (!good)
        kri_error(w, KRI_E_RANGE, program, "no program of a regular expression");
}

static bool is_word(const struct machine *m, size_t i)
{
    unsigned char c = i < m->length ? m->text[i] : 0;
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
}

static bool holds(const struct machine *m, enum place place, size_t at)
{
    bool edge = (at > 0 && is_word(m, at - 1)) != is_word(m, at);
    switch (place) {
    case AT_BEGIN: return at == 0;
    case AT_END: return at == m->length;
    case AT_LINE_BEGIN: return at == 0 || m->text[at - 1] == '\n';
    case AT_LINE_END: return at == m->length || m->text[at] == '\n';
    case AT_WORD_EDGE: return edge;
    default: return !edge;
    }
}

/* Add to L the threads that PC leads to without a byte, in order. CAPTURE is changed on the way and restored. */
static void follow(struct machine *m, struct threads *l, uint32_t pc, size_t at, intptr_t *capture)
{
    enum { RESTORE = 0x80000000u };
    size_t n = 0, saves = 0;
    m->stack[n++] = pc;
    while (n > 0) {
        pc = m->stack[--n];
        if (pc & RESTORE) {
            saves--;
            capture[m->saved[2 * saves]] = m->saved[2 * saves + 1];
            continue;
        }
        if (m->seen[pc] == at + 1)
            continue;
        m->seen[pc] = at + 1;
        const int64_t *i = &m->p.code[3 * pc];
        switch (i[0]) {
        case OP_JUMP:
            m->stack[n++] = (uint32_t)i[1];
            break;
        case OP_SPLIT:
            m->stack[n++] = (uint32_t)i[2];
            m->stack[n++] = (uint32_t)i[1];
            break;
        case OP_SAVE:
            m->saved[2 * saves] = (intptr_t)i[1];
            m->saved[2 * saves + 1] = capture[i[1]];
            saves++;
            capture[i[1]] = (intptr_t)at;
            m->stack[n++] = RESTORE;
            m->stack[n++] = pc + 1;
            break;
        case OP_ASSERT:
            if (holds(m, (enum place)i[1], at))
                m->stack[n++] = pc + 1;
            break;
        default:
            l->pc[l->n] = pc;
            memcpy(&l->capture[l->n * m->p.slots], capture, m->p.slots * sizeof *capture);
            l->n++;
        }
    }
}

static bool takes(const struct program *p, const int64_t *i, unsigned char c)
{
    return i[0] == OP_RANGE ? c >= i[1] && c <= i[2] : (p->set[32 * i[1] + c / 8] >> (c % 8) & 1) != 0;
}

/* Search from byte AT on; true: BEST has the captures. FIRST: a set of the bytes a match can begin with, or NULL. */
static bool run(struct kri_worker *w, struct machine *m, size_t at, bool anchored, const unsigned char *first, intptr_t *best)
{
    bool found = false;
    size_t ticks = 0;
    intptr_t *none = scratch(w, m->p.slots * sizeof *none);
    for (size_t i = 0; i < m->p.slots; i++)
        none[i] = -1;
    m->a.n = m->b.n = 0;
    for (size_t start = at;; at++) {
        struct threads *now = &m->a, *next = &m->b, swap;
        if (!found && (!anchored || at == start)) {
            if (now->n == 0 && first)
                for (; at < m->length && !(first[m->text[at] / 8] >> (m->text[at] % 8) & 1) && !anchored; at++)
                    kri_tick(w, &ticks);
            follow(m, now, 0, at, none);
        }
        if (now->n == 0 && (found || anchored || at >= m->length))
            return found;
        next->n = 0;
        for (size_t k = 0; k < now->n; k++) {
            uint32_t pc = now->pc[k];
            const int64_t *i = &m->p.code[3 * pc];
            intptr_t *capture = &now->capture[k * m->p.slots];
            if (i[0] == OP_MATCH) { /* those behind it would have come later */
                found = true;
                memcpy(best, capture, m->p.slots * sizeof *best);
                break;
            }
            if (at < m->length && takes(&m->p, i, m->text[at]))
                follow(m, next, pc + 1, at + 1, capture);
        }
        if (at >= m->length)
            return found;
        swap = m->a;
        m->a = m->b;
        m->b = swap;
        ticks += m->a.n;
        kri_tick(w, &ticks);
    }
}

KR_BUILTIN(regex_run, "lisp::%regex-run", "(program sets slots first string start end anchored)",
           "Search STRING from byte START up to END for a match of PROGRAM, an integer-vector of instructions that the compiler in lib/regex.l\n"
           "makes, with SETS and SLOTS; at START only if ANCHORED. FIRST: the set of bytes that a match can begin with, or nil. Returns nil, or\n"
           "an integer-vector: begin and end of the match and of each group, -1 for groups that took no part.")
{
    struct kri_string *sets = kri_arg_string(w, argv, 1), *text = kri_arg_string(w, argv, 4);
    intptr_t slots = kri_arg_natural(w, argv, 2), start = kri_arg_natural(w, argv, 5), end = kri_arg_natural(w, argv, 6);
    if (!kri_is_ivector(w->vm, argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER_VECTOR);
    if (slots < 2 || slots > 2000 || start > end || (size_t)end > text->head.length)
        kri_error(w, KRI_E_START_END, argv[5], "%zu bytes, %ld slots", (size_t)text->head.length, (long)slots);
    /* A copy that no other thread changes while it is run. */
    size_t n = kri_length(argv[0]) / 3;
    kr_value code = kri_make_ivector(w, 3 * n);
    memcpy(kri_ivector_of(code)->at, kri_ivector_of(argv[0])->at, 3 * n * sizeof(int64_t));
    const unsigned char *first = NULL;
    if (!kri_is_nil(argv[3])) {
        if (kri_arg_string(w, argv, 3)->head.length < 32)
            kri_argument_error(w, 3, argv[3], KRI_E_NO_STRING);
        first = kri_vector_bytes(w->vm, argv[3]);
    }
    struct machine m = {.p = {kri_ivector_of(code)->at, n, sets->head.length / 32, (size_t)slots, kri_vector_bytes(w->vm, argv[1])},
                        .text = kri_vector_bytes(w->vm, argv[4]), .length = (size_t)end};
    check_program(w, &m.p, argv[0]);
    m.seen = scratch(w, n * sizeof *m.seen);
    m.stack = scratch(w, (3 * n + 3) * sizeof *m.stack);
    m.saved = scratch(w, (2 * n + 2) * sizeof *m.saved);
    m.a.pc = scratch(w, n * sizeof *m.a.pc);
    m.b.pc = scratch(w, n * sizeof *m.b.pc);
    m.a.capture = scratch(w, n * m.p.slots * sizeof *m.a.capture);
    m.b.capture = scratch(w, n * m.p.slots * sizeof *m.b.capture);
    kr_value result = kri_make_ivector(w, m.p.slots);
    return run(w, &m, (size_t)start, !kri_is_nil(argv[7]), first, kri_ivector_of(result)->at) ? result : KRI_NIL;
}

const struct kri_builtin *const kri_builtins_regex[] = {&regex_run_def, NULL};
