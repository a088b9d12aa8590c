/* native_flow.h -- what the translation of bytecode to C knows of a function's flow: targets, live registers, types (native_flow.c). */
#ifndef KRI_LISP_NATIVE_FLOW_H
#define KRI_LISP_NATIVE_FLOW_H

#include "lisp/native.h"
#include "lisp/opcode.h"

struct kri_flow_op {
    const char *operands, *code;
};
extern const struct kri_flow_op kri_flow_ops[];

/* CLEAN: before the instruction the record is complete but for the site. */
enum { KRI_FLOW_TARGET = 1, KRI_FLOW_REACHED = 2, KRI_FLOW_CLEAN = 4 };

/* What is known of a register in the fast version. FLOAT: the variable dN holds it; rN does too only if it is a parameter. The vectors
 * are of exactly that class. */
enum kri_flow_type {
    KRI_FLOW_NEVER, KRI_FLOW_FIXNUM, KRI_FLOW_FLOAT, KRI_FLOW_FLOAT_VECTOR, KRI_FLOW_INTEGER_VECTOR, KRI_FLOW_STRING, KRI_FLOW_VECTOR, KRI_FLOW_ANY
};

struct kri_flow {
    unsigned char *flags;
    uint64_t *live;      /* before each instruction, WORDS words of it; one more is for whoever needs it */
    uint64_t *hoped;     /* likewise: registers that had better be fixnums */
    unsigned words;
    unsigned char *type; /* before each instruction, FRAME of them */
    unsigned frame;
};

static inline enum kri_flow_type kri_flow_type_of(const struct kri_flow *f, uint32_t at, unsigned r)
{
    return (enum kri_flow_type)f->type[(size_t)at * f->frame + r];
}
static inline bool kri_flow_is_double(const struct kri_flow *f, uint32_t at, unsigned r) { return kri_flow_type_of(f, at, r) == KRI_FLOW_FLOAT; }
static inline bool kri_flow_test(const uint64_t *live, unsigned r) { return live[r / 64] >> r % 64 & 1; }
static inline uint32_t kri_flow_next(const struct kri_code *c, uint32_t at)
{
    return at + 1 + (kri_decode_op(c->instr[at]) == KRI_OP_CLOSURE ? kri_decode_c(c->instr[at]) : 0);
}
static inline bool kri_flow_is_handler(unsigned op) { return op >= KRI_OP_BIND && op <= KRI_OP_RESUME; }
/* Does the function go on, having called setjmp, where OP's handler is entered? Such a function has one version, which does not leave. */
static inline bool kri_flow_is_entered(unsigned op) { return op == KRI_OP_CATCH || op == KRI_OP_BLOCK || op == KRI_OP_PROTECT; }
bool kri_flow_has_entered(const struct kri_code *c);
/* Registers that are parameters, the first ones. */
static inline unsigned kri_flow_parameters(const struct kri_code *c)
{
    return (unsigned)c->nreq + c->nopt + c->nkey + (c->flags & KRI_CODE_REST ? 1 : 0);
}

/* The instruction that the one at AT may jump to, or -1. */
int64_t kri_flow_target(const struct kri_code *c, uint32_t at);
bool kri_flow_falls_through(unsigned op);
/* Does the operation write its register A? */
bool kri_flow_writes_a(unsigned op);
bool kri_flow_is_call(unsigned op);
/* May the fast version leave at OP? */
bool kri_flow_may_leave(unsigned op);
/* LIVE after the instruction at AT to LIVE before it. */
void kri_flow_step_back(uint64_t *live, const struct kri_code *c, uint32_t at);

/* Fill F. Its memory is a cell that *KEEP holds. */
void kri_flow_analyse(struct kri_worker *w, struct kri_flow *f, const struct kri_code *c, kr_value *keep);
/* What the instruction at AT leaves in its register A. */
enum kri_flow_type kri_flow_result(const struct kri_flow *f, const struct kri_code *c, uint32_t at);
/* What a declared type, the operand of TYPE or TRUST, makes of a register of type T in the fast version. */
enum kri_flow_type kri_flow_declared(unsigned kind, enum kri_flow_type t);
/* The declared type that the next instruction checks or trusts the result of the one at AT to be, or KRI_TYPE_NONE. */
unsigned kri_flow_wanted(const struct kri_flow *f, const struct kri_code *c, uint32_t at, bool *trusted);
/* Does the fast version do the instruction at AT, arithmetic or a comparison, on fixnums only? */
bool kri_flow_on_fixnums(const struct kri_flow *f, const struct kri_code *c, uint32_t at);
/* Arithmetic on doubles: '+', '-', '*', '/', or 0. */
char kri_flow_float_operator(unsigned op);

#endif
