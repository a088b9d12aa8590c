/* object.h -- the cells of Lisp's own classes, and tests and accessors for them. */
#ifndef KRI_LISP_OBJECT_H
#define KRI_LISP_OBJECT_H

#include "runtime/heap.h"
#include "runtime/value.h"

enum kri_class_index {
    KRI_CLASS_NONE = 0, /* also free cells */
#define CLASS(enumerator, name, super, layout, values, element, slots) KRI_CLASS_##enumerator,
#include "lisp/classes.def"
#undef CLASS
    KRI_CLASS_BUILTIN_COUNT,
    KRI_CLASS_MAX = 65535
};

enum kri_element {
    KRI_ELEMENT_NONE,    /* not a vector */
    KRI_ELEMENT_T,       /* values */
    KRI_ELEMENT_CHAR,    /* bytes, with a zero byte kept behind the last */
    KRI_ELEMENT_BYTE,    /* the same, a byte vector that is not text (cstruct and kin) */
    KRI_ELEMENT_BIT,     /* bits, least significant first in each byte */
    KRI_ELEMENT_FLOAT,   /* doubles */
    KRI_ELEMENT_INTEGER, /* int64_t */
    KRI_ELEMENT_FOREIGN, /* slot[0] is the address of LENGTH bytes elsewhere */
};

/* The C side of a class; vm->classes[index]. A redefined class with another layout gets a new index under the same object. */
struct kri_class {
    kr_value object;          /* the metaclass instance; NIL for hidden classes */
    kr_value *display;        /* display[d]: the ancestor's class object at depth d; display[depth] is OBJECT itself */
    uint16_t super;           /* index, 0 for roots */
    uint16_t depth;
    uint16_t slots;           /* values after the header (instances), inherited ones included */
    uint8_t element;          /* enum kri_element */
    int32_t fixed_size;       /* vector classes with :size; else -1 */
    kri_atomic superseded;    /* true: the class was redefined, and `methods`, set before, serve the instances of this index */
    kr_value methods;
};

struct kri_cons { struct kri_cell head; kr_value car, cdr; };
struct kri_symbol {
    struct kri_cell head;
    kr_value plist;     /* association list */
    kr_value value;     /* global value, KRI_UNBOUND without */
    kr_value vtype;     /* fixnum: 0 constant, 1 variable, 2 special by defvar, 3 and up thread-local (deflocal) */
    kr_value function;  /* always a function cell; vm->undefined when there is none */
    kr_value pname;     /* string */
    kr_value homepkg;   /* package or NIL */
    kr_value special;   /* fixnum: index in every context's table of dynamic bindings; 0: never bound dynamically */
};
struct kri_metaclass {
    struct kri_cell head;
    kr_value plist, name, super, cix, vars, types, forwards, methods;
    kr_value element_type, size; /* vectorclass only */
};
struct kri_package {
    struct kri_cell head;
    kr_value plist, names, use, symvector, symcount, intsymvector, intsymcount, shadows, used_by;
};
struct kri_ratio { struct kri_cell head; kr_value numerator, denominator; };
struct kri_array {
    struct kri_cell head;
    kr_value plist, entity, rank, fill_pointer, offset, dim[7];
};
struct kri_readtable { struct kri_cell head; kr_value plist, syntax, macro, dispatch, readcase; };
struct kri_thread {
    struct kri_cell head;
    kr_value plist, id, requester, request_sem, done_sem, func, args, result, context, idle, wait;
};
/* DATUM: what was wrong. FORM: the form that failed, as EusLisp's handlers get it. PLACE: the function in whose frame it was. */
struct kri_condition { struct kri_cell head; kr_value plist, code, message, callee, form, extra, backtrace, datum, place; };
struct kri_pathname { struct kri_cell head; kr_value host, device, directory, name, type, version; };

/* Vectors: head.length elements. */
struct kri_vector { struct kri_cell head; kr_value at[]; };
struct kri_string { struct kri_cell head; unsigned char byte[]; };
struct kri_fvector { struct kri_cell head; double at[]; };
struct kri_ivector { struct kri_cell head; int64_t at[]; };
struct kri_foreign { struct kri_cell head; unsigned char *address; };
struct kri_float_box { struct kri_cell head; double d; };
/* head.length limbs, least significant first, normalised (no leading zero limb, never fits a fixnum). */
struct kri_bignum { struct kri_cell head; int64_t sign; uint64_t limb[]; };
struct kri_box { struct kri_cell head; kr_value value; };

/* A function: what symbols' function cells, #'f and closures are. head.length is its signature: KRI_SIGNATURE(n) if it is
 * bytecode with exactly n parameters, no prologue and a small frame; 0 otherwise (kri_signature). */
#define KRI_SIGNATURE(n) ((uint32_t)(n) + 1)
struct kri_function {
    struct kri_cell head;
    kr_value code;       /* struct kri_code */
    kr_value captured[]; /* values and boxes */
};

struct kri_worker;
struct kri_native;
typedef kr_value (*kri_builtin_fn)(struct kri_worker *w, int argc, kr_value *argv);
typedef uint64_t kri_instruction; /* op:16 a:16 b:16 c:16, or op:16 a:16 bx:32 signed; lisp/opcodes.def */

enum kri_code_flag {
    KRI_CODE_MACRO = 1,        /* a macro: called with the arguments of the form unevaluated */
    KRI_CODE_SPECIAL = 2,      /* names a special form: calling it is an error */
    KRI_CODE_KEYS = 4,         /* &key */
    KRI_CODE_REST = 8,         /* &rest */
    KRI_CODE_ALLOW = 16,       /* &allow-other-keys */
    KRI_CODE_METHOD = 32,      /* register 0 is self */
    KRI_CODE_UNDEFINED = 64,   /* vm->undefined */
    KRI_CODE_LIFTED = 128,     /* a local function: its last required parameters, which its lambda list has not, are variables of outer functions */
};
/* Note [debug]: what the debugger knows of a function beyond its lines is a vector: two %bytes of uint32 words, then the values that
 * they name by index.
 *   [0] sites, KRI_SITE_WORDS each: instruction, form, the form around it (index 0: the function's own call), ascending.
 *   [1] variables, KRI_LOCAL_WORDS each, an outer one before the inner ones: name, where, first instruction, end. Where is the
 *       register, or of a captured variable its index, shifted by two; bit 0: it is in a box, bit 1: it is captured. */
enum { KRI_SITE_WORDS = 3, KRI_LOCAL_WORDS = 4, KRI_LOCAL_BOXED = 1, KRI_LOCAL_CAPTURED = 2 };

/* What the instructions TYPE and TRUST test: a class's index (exactly that class inline, its subclasses out of line), or: */
enum kri_type_kind {
    KRI_TYPE_NONE = 0,
    KRI_TYPE_FIXNUM = 0x4000,
    KRI_TYPE_INTEGER,
    KRI_TYPE_FLOAT,
    KRI_TYPE_NUMBER,
    KRI_TYPE_LIST,
    KRI_TYPE_RANGE, /* fixnums from LOW to HIGH */
    KRI_TYPE_CLASS, /* LOW: the class object */
    KRI_TYPE_OTHER, /* as typep says */
};
/* Their second operand, a vector. VARIABLE: whose type it is, NIL: of a (the ..). */
enum { KRI_TYPE_SPECIFIER, KRI_TYPE_VARIABLE, KRI_TYPE_LOW, KRI_TYPE_HIGH, KRI_TYPE_WORDS };

struct kri_code {
    struct kri_cell head;        /* length: instructions */
    /* values: 9, as classes.def says */
    kr_value name;               /* symbol, or list such as (method-class :selector), or NIL */
    kr_value constants;          /* vector */
    kr_value lambda_list;        /* as written; of a builtin: its arglist, a string */
    kr_value source;             /* (lambda (..) body..), or NIL */
    kr_value documentation;      /* string or NIL */
    kr_value file;               /* string or NIL */
    kr_value lines;              /* %bytes: uint32 pairs (first instruction, line), ascending; or NIL */
    kr_value keywords;           /* vector of the keywords of &key, in order; or NIL. Their registers follow rest's */
    kr_value debug;              /* Note [debug], or NIL (the core's functions have none) */
    /* raw */
    const kr_value *k;           /* the constants' elements */
    kri_builtin_fn builtin;      /* not NULL: a builtin; argument count checked by the caller against min, max */
    const struct kri_native *native; /* not NULL: native code (lisp/native.h); builtin is its entry, which checks arguments itself */
    uint16_t nreq, nopt, nkey, flags;
    uint16_t frame;              /* registers, outgoing call frames included */
    uint16_t spare;              /* of builtins and special forms: what the compiler makes of them */
    int32_t max;                 /* most arguments; -1: any */
    uint32_t line;               /* of the definition */
    uint32_t captures;           /* of a guarded builtin: the capabilities it takes (lisp/capability.c); k is its record then */
    kri_instruction instr[];
};

/* Frames up to this size need no check of their own: the stack's limit keeps as much room above it. */
enum { KRI_SMALL_FRAME = 48 };
static inline uint32_t kri_signature(const struct kri_code *c)
{
    bool plain = !c->nopt && !c->nkey && !(c->flags & (KRI_CODE_KEYS | KRI_CODE_REST | KRI_CODE_MACRO));
    return plain && !c->native && c->frame <= KRI_SMALL_FRAME ? KRI_SIGNATURE(c->nreq) : 0;
}

/* Is C the code of a function written in C? */
static inline bool kri_is_builtin_code(const struct kri_code *c) { return c->builtin && !c->native; }

static inline bool kri_is_cons(kr_value v) { return kri_has_class(v, KRI_CLASS_CONS); }
static inline bool kri_is_list(kr_value v) { return kri_is_nil(v) || kri_is_cons(v); }
static inline bool kri_is_function(kr_value v)
{
    return kri_is_pointer(v) && (kri_ptr(v)->cls == KRI_CLASS_COMPILED_CODE || kri_ptr(v)->cls == KRI_CLASS_CLOSURE);
}
static inline struct kri_cons *kri_cons_of(kr_value v) { return (struct kri_cons *)v.w; }
static inline struct kri_vector *kri_vector_of(kr_value v) { return (struct kri_vector *)v.w; }
static inline struct kri_string *kri_string_of(kr_value v) { return (struct kri_string *)v.w; }
static inline struct kri_fvector *kri_fvector_of(kr_value v) { return (struct kri_fvector *)v.w; }
static inline struct kri_ivector *kri_ivector_of(kr_value v) { return (struct kri_ivector *)v.w; }
static inline struct kri_function *kri_function_of(kr_value v) { return (struct kri_function *)v.w; }
static inline struct kri_code *kri_code_of(kr_value fn) { return (struct kri_code *)kri_function_of(fn)->code.w; }
static inline struct kri_package *kri_package_of(kr_value v) { return (struct kri_package *)v.w; }
static inline struct kri_metaclass *kri_metaclass_of(kr_value v) { return (struct kri_metaclass *)v.w; }
/* car and cdr of a cons or NIL, without a check. */
static inline kr_value kri_car(kr_value v) { return kri_is_nil(v) ? v : kri_slot(&kri_cons_of(v)->car); }
static inline kr_value kri_cdr(kr_value v) { return kri_is_nil(v) ? v : kri_slot(&kri_cons_of(v)->cdr); }

#endif
