/* compile.h -- what the parts of the compiler share: the tree between analysis and generation.
 *
 * compile_analyse.c  forms to trees: macros expanded, names resolved (with compile_lambda.c for lambda lists, functions, methods)
 * compile_generate.c trees to instructions, one function at a time
 * compile.c          the arena, entry points, eval, builtins
 *
 * A compilation's memory is an arena: first a piece of the C stack, then %bytes cells. It is dropped with the compiler, also when an
 * error unwinds. The collector does not look inside the cells, so every value that the tree names and the source form might not
 * hold (macro expansions, constants made here) is put on the list `keep`, which the C stack holds. */
#ifndef KRI_LISP_COMPILE_H
#define KRI_LISP_COMPILE_H

#include "lisp/vm.h"
#include "lisp/opcode.h"

struct kri_fn;
struct kri_dynamic;

/* A declared type: what TYPE and TRUST take (object.h). KIND is 0 where none is. */
struct kri_declared {
    kr_value type;
    uint16_t kind;
    bool trusted; /* safety 0 */
};

/* A lexical variable, or a hidden register with a name's duties (block identities, local functions). */
struct kri_var {
    kr_value name;
    struct kri_fn *owner;
    unsigned reg;
    bool captured, assigned; /* both: it lives in a box */
    bool unset;              /* bound without a value: nil then, whatever is declared */
    struct kri_declared declared;
    struct kri_fn *function; /* of a local function, with what is known of its use: */
    bool escapes;            /* it is taken as a value */
    struct kri_local_call *calls;
};
struct kri_local_call {
    struct kri_fn *from;
    size_t arguments;
    struct kri_local_call *next;
};
static inline bool kri_var_boxed(const struct kri_var *v) { return v->captured && v->assigned; }

/* A jump target of the function being generated. */
struct kri_label {
    int at;            /* instruction, or -1 */
    int fixup;         /* index of the newest fixup, or -1 */
};

struct kri_block {
    kr_value name;
    struct kri_fn *owner;
    bool used, real;         /* real: left from a closure or out of an unwind-protect, so it needs a handler */
    struct kri_var identity; /* of a real one */
    /* while its body is generated */
    int dst;
    unsigned handler;
    struct kri_dynamic *outside;
    struct kri_label exit;
};

struct kri_tag {
    kr_value name;
    uint32_t before;         /* the statement it stands before */
    bool remote;             /* some go crosses a function or an unwind-protect */
    struct kri_label label;
};
struct kri_tagbody {
    struct kri_fn *owner;
    bool real;
    struct kri_var identity; /* boxed: every landing begins a new block */
    struct kri_dynamic *inside;
    uint32_t count;
    struct kri_tag tag[];
};

enum kri_scope_kind {
    KRI_SCOPE_VARIABLE,  /* name, var */
    KRI_SCOPE_SPECIAL,   /* name: declared special here */
    KRI_SCOPE_EXPANSION, /* name, value: symbol-macrolet */
    KRI_SCOPE_FUNCTION,  /* name, var: flet, labels */
    KRI_SCOPE_MACRO,     /* name, value: macrolet's expander */
    KRI_SCOPE_BLOCK,     /* name, block */
    KRI_SCOPE_TAGBODY,   /* tagbody */
    KRI_SCOPE_METHOD,    /* value: the class; var: self as it came */
    KRI_SCOPE_SAFETY,    /* value */
    KRI_SCOPE_BARRIER,   /* a function's edge, or an unwind-protect's body: leaving by a local jump is impossible */
};
struct kri_scope {
    struct kri_scope *up;
    enum kri_scope_kind kind;
    kr_value name, value;
    struct kri_var *var;
    struct kri_block *block;
    struct kri_tagbody *tagbody;
};

enum kri_node_op {
    KRI_N_CONST,      /* value */
    KRI_N_VAR,        /* var */
    KRI_N_GLOBAL,     /* value: the symbol */
    KRI_N_SLOT,       /* var: self; index */
    KRI_N_SETVAR,     /* var; kid */
    KRI_N_SETGLOBAL,  /* value; kid */
    KRI_N_SETSLOT,    /* var; index; kid */
    KRI_N_FUNCTION,   /* value: the symbol */
    KRI_N_CLOSURE,    /* fn */
    KRI_N_PROGN,      /* kids, at least one */
    KRI_N_IF,         /* test, then, else */
    KRI_N_COND,       /* test, body or NULL, ... */
    KRI_N_AND,        /* kids, at least two */
    KRI_N_OR,
    KRI_N_WHILE,      /* test, body */
    KRI_N_LET,        /* bindings; inits.., body; index: sequential */
    KRI_N_LABELS,     /* bindings; closures.., body */
    KRI_N_BLOCK,      /* block; body */
    KRI_N_RETURN,     /* block; value. index: crosses */
    KRI_N_TAGBODY,    /* tagbody; statements */
    KRI_N_GO,         /* tagbody, index: tag, x: crosses */
    KRI_N_CATCH,      /* tag, body */
    KRI_N_THROW,      /* tag, value */
    KRI_N_PROTECT,    /* body, cleanup */
    KRI_N_PROG1,      /* first, rest */
    KRI_N_CALL,       /* value: the symbol; arguments */
    KRI_N_CALLV,      /* function, arguments */
    KRI_N_CALLLOCAL,  /* var: the local function's; arguments */
    KRI_N_APPLY,      /* function, arguments */
    KRI_N_SEND,       /* value: the selector; receiver, arguments */
    KRI_N_SENDV,      /* receiver, selector, arguments */
    KRI_N_SENDSUPER,  /* value: (class . selector); self, arguments */
    KRI_N_OP,         /* index: enum kri_inline; operands */
    KRI_N_THE,        /* declared; form */
    KRI_N_EVAL,       /* value: names; vars; form */
};

/* Builtins that have instructions; struct kri_code.spare of the builtin holds the number. */
enum kri_inline {
    KRI_I_NONE,
    KRI_I_ADD, KRI_I_SUB, KRI_I_MUL, KRI_I_DIV, KRI_I_MOD, KRI_I_INCREMENT, KRI_I_DECREMENT,
    KRI_I_LT, KRI_I_LE, KRI_I_GT, KRI_I_GE, KRI_I_NUMEQ,
    KRI_I_EQ, KRI_I_EQL, KRI_I_NOT, KRI_I_CONSP, KRI_I_ATOM,
    KRI_I_CAR, KRI_I_CDR, KRI_I_CXR, KRI_I_CONS, KRI_I_LIST, KRI_I_AREF, KRI_I_ASET,
    KRI_I_TRUNCATE, KRI_I_LOGAND, KRI_I_LOGIOR, KRI_I_LOGXOR, KRI_I_ASH, KRI_I_LENGTH, KRI_I_RPLACA, KRI_I_RPLACD,
    KRI_I_FUNCALL, KRI_I_APPLY, KRI_I_SEND, KRI_I_EVAL,
    KRI_I_MAPC, KRI_I_MAPCAR, /* functions in Lisp that are loops where the function is a lambda form: %open-code marks them */
};

/* What the declarations of a body say: a list of names, and one of (name . type). */
struct kri_declarations {
    kr_value specials, types;
};

enum { KRI_NODE_ASSIGNS = 1 /* somewhere below a local register is assigned */ };

struct kri_binding {
    struct kri_var *var;  /* or NULL: */
    kr_value special;     /* the special variable bound */
};

struct kri_node {
    uint8_t op, flags;
    bool x;
    uint32_t index, line, kids;
    kr_value value;
    kr_value form, outer; /* the form it stands for (of a variable: the form around it), and the one around that */
    union {
        struct kri_var *var;
        struct kri_var **vars;
        struct kri_block *block;
        struct kri_tagbody *tagbody;
        struct kri_binding *bindings;
        struct kri_fn *fn;
        struct kri_declared *declared;
    } u;
    struct kri_node *kid[];
};

enum kri_parameter_kind { KRI_P_REQUIRED, KRI_P_OPTIONAL, KRI_P_REST, KRI_P_KEY, KRI_P_AUX };
struct kri_parameter {
    enum kri_parameter_kind kind;
    struct kri_binding bind, supplied; /* supplied: var and special both empty when there is none */
    bool has_supplied;
    kr_value keyword;
    struct kri_node *init;             /* or NULL */
};

/* Words gathered for the debugger. */
struct kri_debug_table {
    uint32_t *word;
    unsigned count, size;
};

struct kri_fn {
    struct kri_fn *parent;
    kr_value name, lambda_list, source, documentation;
    unsigned flags, nreq, nopt, nkey; /* nreq counts self */
    unsigned line;
    struct kri_parameter *parameter;
    unsigned parameters;
    struct kri_node *body;
    kr_value method_class;
    bool inside;                      /* local functions or macros, which its source alone does not show */
    struct kri_var *receiver, *self;  /* the object as it came; the variable SELF */
    bool self_local;                  /* evaluated inside a method: SELF starts as a copy of the captured receiver */
    unsigned slots_used;              /* 1 + the highest slot used directly, in closures too */
    struct kri_var **up;              /* captured variables */
    unsigned ups, up_size;
    struct kri_var **free;            /* variables of outer functions that it, or a function in it, uses */
    unsigned frees, free_size;
    bool lifted;                      /* no closure: the free variables, their values or boxes, are its last parameters (Note [lifting]) */
    struct kri_var *local;            /* the variable that names a local function */
    kr_value object;                  /* of a lifted one that others call, the function, else NIL */
    kr_value code;                    /* once generated, else NIL */

    /* generation */
    kri_instruction *instr;
    unsigned length, size;
    kr_value *constant;
    unsigned constants, constant_size;
    uint32_t *constant_hash;
    unsigned hash_size;
    uint32_t *lines;
    unsigned line_words, line_size;
    struct kri_debug_table sites, locals; /* what becomes code->debug, see object.h */
    kr_value *pool;
    unsigned pool_count, pool_size;
    struct kri_fixup *fixup;
    int fixups, fixup_size;
    unsigned height, highest;
    bool long_jumps, overflow;
    struct kri_dynamic *dynamic;
};

enum { KRI_ARENA_FIRST = 6144 };
struct kri_compiler {
    struct kri_worker *w;
    struct kr_vm *vm;
    kr_value form;            /* the whole, for the collector */
    kr_value keep;
    char *free, *end;
    struct kri_compiler *outside; /* the compilation in whose macro expansion this one runs, or NULL */
    struct kri_scope *scope;
    struct kri_fn *fn;
    unsigned line;
    bool tolerant;            /* what cannot be compiled raises its error when it is reached */
    bool stepping;            /* forms report when they begin and end: (step form) */
    kr_value here, outer;     /* the form that is analysed, and the one around it in the same function; NIL: none */
    _Alignas(16) char first[KRI_ARENA_FIRST];
};

void kri_compiler_init(struct kri_compiler *c, struct kri_worker *w, kr_value form);
void *kri_compiler_alloc(struct kri_compiler *c, size_t bytes); /* zeroed */
/* A bigger copy of an array of COUNT elements; *SIZE is its capacity. */
void *kri_compiler_grow(struct kri_compiler *c, const void *old, size_t count, unsigned *size, size_t element);
static inline kr_value kri_keep(struct kri_compiler *c, kr_value v)
{
    if (kri_is_pointer(v))
        c->keep = kri_cons(c->w, v, c->keep);
    return v;
}
/* The code of F, the whole of what C compiles; C is not the one at work any more. */
kr_value kri_compiler_finish(struct kri_compiler *c, struct kri_fn *f);
/* The symbol LISP::NAME. */
kr_value kri_compiler_symbol(struct kri_compiler *c, const char *name);
/* Elements of a proper list; raises CODE for a dotted one, CIRCULAR for a cycle. */
size_t kri_form_length(struct kri_worker *w, kr_value list, kr_value form, int code);
/* Is evaluation among the SITUATIONS of an eval-when? Raises CIRCULAR. */
bool kri_situation_holds(struct kri_worker *w, kr_value situations);

/* compile_analyse.c */
typedef struct kri_node *kri_special_form(struct kri_compiler *c, kr_value form, kr_value arguments);
struct kri_node *kri_analyse(struct kri_compiler *c, kr_value form);
struct kri_node *kri_analyse_body(struct kri_compiler *c, kr_value forms, kr_value whole);
struct kri_node *kri_node_new(struct kri_compiler *c, enum kri_node_op op, size_t kids);
struct kri_node *kri_node_seal(struct kri_node *n);
struct kri_node *kri_node_const(struct kri_compiler *c, kr_value v);
struct kri_scope *kri_scope_push(struct kri_compiler *c, enum kri_scope_kind kind, kr_value name);
struct kri_binding kri_bind(struct kri_compiler *c, kr_value name, const struct kri_declarations *d);
/* Raises unless SYMBOL may name a variable. */
void kri_check_variable(struct kri_compiler *c, kr_value symbol);
void kri_binding_scope(struct kri_compiler *c, const struct kri_binding *b);
bool kri_symbol_is_special(struct kr_vm *vm, kr_value symbol);
bool kri_symbol_is_constant(struct kr_vm *vm, kr_value symbol);
struct kri_node *kri_wrap_block(struct kri_compiler *c, struct kri_block *block, struct kri_node *body);
struct kri_block *kri_block_scope(struct kri_compiler *c, kr_value name);
kr_value kri_expand(struct kri_compiler *c, kr_value expander, kr_value form);
extern const struct kri_builtin kri_special_forms[];
extern kri_special_form *const kri_special_handlers[];
/* The builtin or macro NAME with an instruction of its own, by enum kri_inline. */
extern const struct kri_inline_name { const char *name; enum kri_inline number; } kri_inline_names[];

/* compile_declare.c */
/* Take the declarations (and with DOC not NULL the documentation) off the front of *BODY. A safety becomes a scope. */
struct kri_declarations kri_take_declarations(struct kri_compiler *c, kr_value *body, kr_value *doc);
/* The type of V, if there is one among D. */
void kri_declare_variable(struct kri_compiler *c, const struct kri_declarations *d, struct kri_var *v);
/* SPECIFIER, of the variable NAME or NIL, to *D; false if it needs no check or is not known. */
bool kri_declare_type(struct kri_compiler *c, kr_value specifier, kr_value name, struct kri_declared *d);
/* The safety in force: of the innermost declaration, else comp:*safety*. */
unsigned kri_safety(struct kri_compiler *c);
/* The safety that the qualities of an optimize declaration give, or NIL. */
kr_value kri_optimize_safety(struct kri_worker *w, kr_value qualities);
/* What N's value certainly is: a class index or an enum kri_type_kind. DEPTH: how deep to look. */
unsigned kri_node_kind(const struct kri_node *n, int depth);
/* Is N's value certainly of the type D? */
bool kri_node_satisfies(const struct kri_node *n, const struct kri_declared *d);

/* compile_lambda.c */
enum kri_lambda_block { KRI_LAMBDA_NO_BLOCK, KRI_LAMBDA_BLOCK, KRI_LAMBDA_NIL_BLOCK };
struct kri_lambda {
    kr_value name, lambda_list, body, source;
    enum kri_lambda_block block;
    kr_value block_name;
    bool macro;
    bool method;
    kr_value method_class;
};
struct kri_fn *kri_analyse_lambda(struct kri_compiler *c, const struct kri_lambda *l, kr_value form);
/* The function object of closed function F. */
kr_value kri_function_make(struct kri_compiler *c, struct kri_fn *f);

/* compile_late.c */
/* Run F(w, arg), with DEFINITION what can be compiled again at its first call. False: *RESULT is the condition that it raised; no handler of the program's has seen it. */
bool kri_attempt(struct kri_worker *w, kr_value (*f)(struct kri_worker *w, void *arg), void *arg, bool definition, kr_value *result);
/* Compile SOURCE, a lambda list, as method NAME of class CLS, or function or macro NAME if CLS is NIL; forms that do not compile raise their errors
 * when they are reached. */
kr_value kri_compile_tolerant(struct kri_worker *w, kr_value cls, kr_value name, kr_value source, bool macro);
/* Is the core there that late definitions need? */
bool kri_late_ready(struct kri_worker *w);
bool kri_last_chance(struct kri_worker *w);
/* Functions that compile SOURCE, a lambda list, when they are called; CONDITION is why. */
kr_value kri_late_function(struct kri_worker *w, kr_value name, kr_value source, bool macro, kr_value condition);
kr_value kri_late_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value source, kr_value condition);
/* SYMBOL, a macro or no function at all so far, is called in what C compiles. */
void kri_note_macro_use(struct kri_compiler *c, kr_value symbol);
/* The function of SYMBOL was OLD and is FN now. */
void kri_macro_changed(struct kri_worker *w, kr_value symbol, kr_value old, kr_value fn);

/* compile_generate.c */
kr_value kri_generate(struct kri_compiler *c, struct kri_fn *f);

#endif
