/* opcode.h -- names and encoding of the instructions in opcodes.def. */
#ifndef KRI_LISP_OPCODE_H
#define KRI_LISP_OPCODE_H

#include "lisp/object.h"

enum kri_op {
#define OP(name, operands, meaning, code) KRI_OP_##name,
#include "lisp/opcodes.def"
#undef OP
    KRI_OP_COUNT
};

static inline kri_instruction kri_encode(enum kri_op op, unsigned a, unsigned b, unsigned c)
{
    return (kri_instruction)op | (kri_instruction)(a & 0xffff) << 16 | (kri_instruction)(b & 0xffff) << 32 | (kri_instruction)(c & 0xffff) << 48;
}
static inline kri_instruction kri_encode_x(enum kri_op op, unsigned a, int32_t bx)
{
    return (kri_instruction)op | (kri_instruction)(a & 0xffff) << 16 | (kri_instruction)(uint32_t)bx << 32;
}
static inline unsigned kri_decode_op(kri_instruction i) { return i & 0xffff; }
static inline unsigned kri_decode_a(kri_instruction i) { return i >> 16 & 0xffff; }
static inline unsigned kri_decode_b(kri_instruction i) { return i >> 32 & 0xffff; }
static inline unsigned kri_decode_c(kri_instruction i) { return (unsigned)(i >> 48); }
static inline int kri_decode_sb(kri_instruction i) { return (int16_t)(i >> 32); }
static inline int kri_decode_sc(kri_instruction i) { return (int16_t)(i >> 48); }
static inline int32_t kri_decode_bx(kri_instruction i) { return (int32_t)(i >> 32); }

#endif
