/* reader_private.h -- what the files of the reader share.
 *
 * reader.c           characters, tokens, lists, backquote, labels, macro characters, the entries
 * reader_sharp.c     what follows a #: vectors, numbers, features, instances
 * reader_infix.c     %(a + b)
 * reader_complete.c  whether a text holds whole forms, for the prompt
 * readtable.c        readtables and the functions on them */
#ifndef KRI_LISP_READER_PRIVATE_H
#define KRI_LISP_READER_PRIVATE_H

#include <setjmp.h>
#include "lisp/package.h"
#include "lisp/reader.h"

/* The numbers are EusLisp's: programs look into the slot syntax. */
enum syntax { ILLEGAL, WHITE, CONSTITUENT = 4, SINGLE_ESCAPE, MULTIPLE_ESCAPE, TERMINATING, NONTERMINATING };

/* The standard macros: NATIVE(enumerator, character, dispatched, "lisp name", "what it reads"). */
#define NATIVES                                                                                                         \
    NATIVE(LIST, '(', 0, "lisp::read-list", "a list up to the closing parenthesis")                                     \
    NATIVE(CLOSE, ')', 0, "lisp::read-close", "nothing: a closing parenthesis without an open one is skipped")          \
    NATIVE(QUOTE, '\'', 0, "lisp::read-quote", "'form as (quote form)")                                                 \
    NATIVE(STRING, '"', 0, "lisp::read-string", "a string; a backslash keeps the next character")                       \
    NATIVE(COMMENT, ';', 0, "lisp::read-comment", "a comment up to the end of the line")                                \
    NATIVE(BACKQUOTE, '`', 0, "lisp::read-backquote", "`form, expanded to list, cons and append forms")                 \
    NATIVE(COMMA, ',', 0, "lisp::read-comma", ",form and ,@form within a backquote")                                    \
    NATIVE(SHARP, '#', 0, "lisp::read-sharp", "an object of # syntax")                                                  \
    NATIVE(SUBSCRIPTS, '[', 0, "lisp::read-aref", "[i j] as (aref i j), what the infix reader makes of a[i j]")             \
    NATIVE(END_SUBSCRIPTS, ']', 0, "lisp::read-close-bracket", "nothing: a closing bracket without an open one is skipped")   \
    NATIVE(INFIX, '%', 0, "lisp::infix2prefix", "%(a + b) as (+ a b)")                                                  \
    NATIVE(FUNCTION, '\'', 1, "lisp::read-function", "#'name as (function name)")                                       \
    NATIVE(VECTOR, '(', 1, "lisp::read-vector", "#(a b), or #n(a b) of length n")                                       \
    NATIVE(ARRAY, 'A', 1, "read-array", "#na, an array of rank n")                                                      \
    NATIVE(FLOAT_ARRAY, 'F', 1, "read-float-array", "#f(..), a float-vector, or #nf, a float array of rank n")          \
    NATIVE(INTEGER_ARRAY, 'I', 1, "read-integer-array", "#i(..), an integer-vector, or #ni, an integer array")          \
    NATIVE(BITS, '*', 1, "read-bit-vector", "#*101, a bit-vector")                                                      \
    NATIVE(BINARY, 'B', 1, "read-binary", "#b101, a binary integer")                                                    \
    NATIVE(OCTAL, 'O', 1, "lisp::read-octal", "#o17, an octal integer")                                                 \
    NATIVE(HEX, 'X', 1, "lisp::read-hex", "#xff, a hexadecimal integer")                                                \
    NATIVE(DEGREES, 'D', 1, "read-degree", "#d90, a number of degrees, as radians")                                     \
    NATIVE(RADIANS, 'R', 1, "read-radian", "#r1.57, a number of radians, as degrees")                                   \
    NATIVE(PATHNAME, 'P', 1, "lisp::read-pathname", "#p\"..\", a pathname")                                             \
    NATIVE(COMPLEX, 'C', 1, "lisp::read-complex", "#c(real imaginary), a complex number")                                \
    NATIVE(EVAL, '.', 1, "lisp::read-eval", "#.form, the value of form at read time")                                   \
    NATIVE(EVAL2, ',', 1, "lisp::read-eval-comma", "#,form, the value of form at read time")                            \
    NATIVE(UNINTERNED, ':', 1, "lisp::read-uninterned", "#:name, a symbol in no package")                               \
    NATIVE(LABEL, '=', 1, "lisp::read-label", "#n=object, labelled for #n#")                                            \
    NATIVE(REFERENCE, '#', 1, "lisp::read-label-reference", "#n#, the object labelled #n=")                             \
    NATIVE(BLOCK_COMMENT, '|', 1, "lisp::read-block-comment", "#| a comment, which may contain others |#")              \
    NATIVE(LINE_COMMENT, '!', 1, "lisp::read-script-line", "#! a comment up to the end of the line")                    \
    NATIVE(FEATURE, '+', 1, "lisp::read-feature", "#+feature form, read if *features* has it")                          \
    NATIVE(NO_FEATURE, '-', 1, "lisp::read-without-feature", "#-feature form, read unless *features* has it")           \
    NATIVE(STRUCTURE, 'S', 1, "lisp::read-structure", "#s(class slot value ..), an instance")                           \
    NATIVE(OBJECT, 'J', 1, "lisp::read-object", "#j(class value ..), an instance, its slots by position")               \
    NATIVE(OBJECT2, 'V', 1, "lisp::read-instance", "#v(class value ..), an instance, its slots by position")            \
    NATIVE(LIVE, '<', 1, "lisp::read-live-object", "#<class #Xaddress ..>, the live object at that address")            \
    NATIVE(CHARACTER, '\\', 1, "lisp::read_sharp_backslash", "#\\a, a character's code")

enum native {
    NATIVE_NONE,
#define NATIVE(e, c, dispatched, name, doc) NATIVE_##e,
    NATIVES
#undef NATIVE
    NATIVE_COUNT
};
extern const struct kri_native_macro {
    unsigned char c;
    bool dispatched;
    const char *name;
} kri_natives[NATIVE_COUNT];

/* What reading an item may yield besides an object. */
#define NO_ITEM KRI_UNBOUND
#define DOT KRI_ABSENT
#define CLOSE KRI_IMMEDIATE(KRI_IMM_DELETED)

/* Markers inside forms being read are %record cells: [0] the kind, [1] the expression, or a label's number and value. */
enum marker { MARK_COMMA = 1, MARK_SPLICE, MARK_LABEL };

struct reader {
    struct kri_worker *w;
    struct kr_vm *vm;
    kr_value stream;         /* resolved */
    struct kri_stream *st;   /* its native side; of a user-made stream: own */
    kr_value readtable, package;
    const unsigned char *syntax;
    const struct kri_vector *macro;
    int delimiter;           /* of read-delimited-list: it ends tokens too; -1 without */
    unsigned char own_syntax[256];
    kr_value letter_case;
    int base;
    int backquote;           /* how deep */
    kr_value labels;         /* alist (n . object), the object a MARK_LABEL record while it is being read */
    bool unresolved;         /* such a record was handed out */
    bool data;               /* inf and nan are numbers, as they are printed; in a program's source they are symbols */
    bool suppress;           /* skipping a form under #+ or #- */
    bool user;               /* a user-made stream */
    unsigned line;           /* of the item being read */
    kr_value state;          /* the *reader-state* this read continues, or NIL */
    struct kri_text text;    /* the token */
    jmp_buf shallow;         /* where a read that goes too deep returns to: a handler needs the stack it used */
    struct kri_stream own;
    unsigned char own_bytes[KRI_STREAM_RESERVE + 1];
};

struct token {
    bool escaped;
    size_t colon, colons; /* the last run of colons; colons 0: none */
};

/* ---- reader.c ---- */
_Noreturn void kri_reader_error(struct reader *r, int code, kr_value value, const char *text);
_Noreturn void kri_reader_end_error(struct reader *r, const char *within, unsigned line);
_Noreturn void kri_reader_too_deep(struct reader *r);
void kri_reader_check_depth(struct reader *r);
bool kri_reader_fill(struct reader *r);
void kri_reader_sync_user(struct reader *r);
int kri_reader_get(struct reader *r);
int kri_reader_peek(struct reader *r);
void kri_reader_unget(struct reader *r, int c);
int kri_reader_skip_space(struct reader *r);
void kri_reader_scan_token(struct reader *r, struct token *t, bool infix);
kr_value kri_reader_token_object(struct reader *r, const struct token *t);
kr_value kri_reader_list(struct reader *r, int close);
kr_value kri_reader_native(struct reader *r, enum native n, int c, int number);
kr_value kri_reader_dispatch(struct reader *r, kr_value table);
kr_value kri_reader_item(struct reader *r, int c);
kr_value kri_reader_object(struct reader *r);
void kri_reader_load_readtable(struct reader *r);
void kri_reader_setup(struct reader *r, struct kri_worker *w, kr_value stream, int delimiter);
kr_value kri_reader_finish(struct reader *r, kr_value v);
kr_value kri_reader_dot_symbol(struct reader *r);
/* ---- reader_sharp.c ---- */
kr_value kri_read_vector(struct reader *r, int n);
kr_value kri_read_array(struct reader *r, int rank, enum kri_element element);
kr_value kri_read_bits(struct reader *r);
kr_value kri_read_based(struct reader *r, int base);
kr_value kri_read_angle(struct reader *r, double factor);
kr_value kri_read_character(struct reader *r);
void kri_skip_block_comment(struct reader *r);
kr_value kri_read_feature(struct reader *r, bool wanted);
kr_value kri_read_eval(struct reader *r);
kr_value kri_read_instance(struct reader *r, bool named);
kr_value kri_read_live(struct reader *r);
/* ---- reader_infix.c ---- */
kr_value kri_read_infix(struct reader *r);
/* ---- readtable.c ---- */
struct kri_readtable *kri_readtable_of(struct kri_worker *w, kr_value v); /* v, checked */

#endif
