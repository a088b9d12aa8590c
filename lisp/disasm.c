/* disasm.c -- the instructions of a function as text, with their meanings from opcodes.def. */
#include <stdio.h>
#include "lisp/opcode.h"
#include "lisp/vm.h"

static const struct {
    const char *name, *operands, *meaning;
} ops[] = {
#define OP(name, operands, meaning, code) {#name, operands, meaning},
#include "lisp/opcodes.def"
#undef OP
};

/* One operand of kind KIND at BUFFER; a constant is printed by its number and appended to the line afterwards. */
static size_t operand(char *buffer, size_t size, char kind, unsigned field, unsigned at)
{
    switch (kind) {
    case 'R':
        return (size_t)snprintf(buffer, size, " r%u", field);
    case 'K':
        return (size_t)snprintf(buffer, size, " k%u", field);
    case 'I':
        return (size_t)snprintf(buffer, size, " %d", (int16_t)field);
    case 'N':
        return (size_t)snprintf(buffer, size, " %u", field);
    case 'J':
        return (size_t)snprintf(buffer, size, " ->%d", (int)at + 1 + (int16_t)field);
    default:
        return 0;
    }
}

static void write_text(struct kri_worker *w, kr_value stream, const char *text, size_t n)
{
    kri_print(w, kri_string_n(w, text, n), stream, false);
}

static void write_constant(struct kri_worker *w, kr_value stream, const struct kri_code *code, unsigned k)
{
    if (k >= kri_length(code->constants))
        return;
    write_text(w, stream, "  ; ", 4);
    kr_value v = kri_vector_of(code->constants)->at[k];
    if (kri_has_class(v, KRI_CLASS_CODE)) {
        write_text(w, stream, "code of ", 8);
        v = ((struct kri_code *)v.w)->name;
    }
    kri_print(w, v, stream, true);
}

void kri_disassemble(struct kri_worker *w, kr_value fn, kr_value stream)
{
    char line[256];
    if (!kri_is_function(fn))
        kri_error(w, KRI_E_ILLEGAL_FUNCTION, fn, "disassemble: a function expected");
    const struct kri_code *code = kri_code_of(fn);
    if (kri_is_builtin_code(code)) {
        kri_print(w, code->name, stream, true);
        write_text(w, stream, " is a builtin.\n", 15);
        return;
    }
    kri_print(w, code->name, stream, true);
    int n = snprintf(line, sizeof line, ": %u required, %u optional, %u keywords%s, %u registers, %u captured\n", code->nreq, code->nopt,
                     code->nkey, code->flags & KRI_CODE_REST ? ", rest" : "", code->frame, code->captures);
    write_text(w, stream, line, (size_t)n);
    size_t lines = kri_is_nil(code->lines) ? 0 : kri_length(code->lines) / 8, next = 0;
    for (unsigned at = 0; at < code->head.length; at++) {
        kri_instruction i = code->instr[at];
        unsigned op = kri_decode_op(i), a = kri_decode_a(i), b = kri_decode_b(i), c = kri_decode_c(i);
        int32_t bx = kri_decode_bx(i);
        if (op >= KRI_OP_COUNT)
            break;
        const char *kinds = ops[op].operands;
        const uint32_t *table = lines ? (const uint32_t *)kri_ptr(code->lines)->slot : NULL;
        size_t at_column;
        if (next < lines && table[2 * next] <= at) {
            while (next < lines && table[2 * next] <= at)
                next++;
            at_column = (size_t)snprintf(line, sizeof line, "%5u:", table[2 * next - 1]);
        } else {
            at_column = (size_t)snprintf(line, sizeof line, "      ");
        }
        at_column += (size_t)snprintf(line + at_column, sizeof line - at_column, "%5u  %-10s", at, ops[op].name);
        at_column += operand(line + at_column, sizeof line - at_column, kinds[0], a, at);
        if (kinds[1] == 'X') {
            const char *format = kinds[2] == 'J' ? " ->%ld" : kinds[2] == 'K' ? " k%ld" : " %ld";
            long v = kinds[2] == 'J' ? (long)at + 1 + bx : bx;
            at_column += (size_t)snprintf(line + at_column, sizeof line - at_column, format, v);
        } else {
            at_column += operand(line + at_column, sizeof line - at_column, kinds[1], b, at);
            at_column += operand(line + at_column, sizeof line - at_column, kinds[2], c, at);
        }
        if (at_column < 45) {
            memset(line + at_column, ' ', 45 - at_column);
            at_column = 45;
        }
        at_column += (size_t)snprintf(line + at_column, sizeof line - at_column, "  %s", ops[op].meaning);
        write_text(w, stream, line, at_column < sizeof line ? at_column : sizeof line - 1);
        if (kinds[1] == 'X' && kinds[2] == 'K')
            write_constant(w, stream, code, (unsigned)bx);
        else if (kinds[1] == 'K')
            write_constant(w, stream, code, b);
        else if (kinds[2] == 'K')
            write_constant(w, stream, code, c);
        write_text(w, stream, "\n", 1);
    }
}
