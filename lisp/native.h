/* native.h -- native code: what generated C includes, and what the runtime knows of it.
 *
 * A native function is one C function, made from bytecode (native_generate.c). It takes the worker, its module's constants in this
 * VM, the caller's frame and the arguments; its registers are C locals, which the conservative scan of native stacks sees. Its
 * instructions are the text of opcodes.def.
 *
 * Note [native frames]: what bytecode keeps in its frame for errors and backtraces, native code writes into a record on the
 * native stack: the caller's record, which it got as an argument, the site (function and instruction) and the parameters. The record
 * is written before a call, or on the slow path of an instruction; what needs no record pays nothing. ctx->native is the innermost record
 * and is set only before the runtime is entered.
 *
 * Note [regions]: native frames that follow each other without bytecode between form a region. It begins at kri_native_enter, stands
 * above the Lisp frame ctx->base, and its part of the Lisp stack (arguments of builtins) begins at TOP. While native code runs
 * ctx->top is NULL, as while bytecode runs, and is set around builtins.
 *
 * Always true:
 *   N1  A native function's bytecode is kept, in its code object: it runs in the native one's stead when the native stack is low. A copy of
 *       the code object that is not native, the twin, is made when that happens first.
 *   N2  k[1 + j] is not NIL if and only if the symbol that names function J of the module has that function as its definition.
 *       kri_set_function keeps it so; direct calls rely on it.
 *   N3  Generated code and its static data are the same for all VMs and threads; what belongs to a VM lies in K. */
#ifndef KRI_LISP_NATIVE_H
#define KRI_LISP_NATIVE_H

#include "lisp/ops.h"
#include "lisp/send.h"

/* Changes with everything that generated code relies on and that the fingerprint does not show. */
enum { KRI_NATIVE_ABI = 7 };
/* Of what generated code has from the headers: places and sizes. */
#define KRI_NATIVE_FINGERPRINT                                                                                               \
    ((((sizeof(struct kri_worker) * 31 + offsetof(struct kri_worker, native_limit)) * 31 + offsetof(struct kr_context, native)) * 31 + \
      offsetof(struct kr_vm, sym)) * 31 + sizeof(struct kri_symbols) * 31 + sizeof(struct kri_class) * 31 + sizeof(struct kri_native_api) * 31 + \
      sizeof(struct kri_code) + sizeof(struct kri_method_cache) * 31 + KRI_CLASS_BUILTIN_COUNT)
#define KRI_NATIVE_MAGIC "KRNATIV1"

/* The place after an instruction of a function of the module: its address tells, there is nothing in it. */
struct kri_native_site {
    unsigned char nothing;
};
struct kri_native_frame {
    struct kri_native_frame *prev; /* the caller's; at a region's beginning the one that was innermost before */
    const struct kri_native_site *site; /* NULL: a region begins */
    kr_value argument[];           /* the parameters as they are */
};
struct kri_region {
    struct kri_native_frame frame;
    struct kri_region *outer;
    kr_value *base; /* the Lisp frame below */
    kr_value *top;  /* the first free word of the Lisp stack */
    /* As they were when it began, for who unwinds to a handler in it: */
    const kri_instruction *pc;
    struct kri_segment *segment;
    size_t locals;
    /* For when it ends; meanwhile there is none of them: */
    struct kri_compiler *compiler;
    kr_value evaluated;
};

/* Note [native handlers]: catch, blocks left by closures and unwind-protect in native code have their entry of the unwind chain in this record, a C
 * variable of the function, which did setjmp with it: unwinding (call.c) takes the newer entries off one by one, and each C function below an entry
 * ends its own business, before the function goes on. KRI_HANDLER_IN_C in the entry tells it from bytecode's. The entry of a binding needs no record:
 * unwinding undoes it where it stands. So all that lies in C frames is dealt with before these frames are left. */
struct kri_native_handler {
    kr_value word[KRI_HANDLER_WORDS];
    struct kri_region *region;
    void (*go)(struct kri_native_handler *h); /* longjmp as the module's compiler knows it; does not return */
    kri_jump jump;
};

/* ---- modules: constant data of a shared object ---- */
enum { KRI_NATIVE_FIXED = 8 }; /* up to so many parameters, if their number is fixed, are C arguments; else an array */
struct kri_native_function {
    void *entry;       /* NULL: not compiled, the bytecode serves */
    uint16_t fixed;    /* parameters as C arguments, or KRI_NATIVE_ARRAY */
    uint16_t closure;  /* takes the function object too */
    uint32_t pool, constants; /* where in K its constants lie, and how many */
    uint32_t site;            /* its first; they ascend */
};
enum { KRI_NATIVE_ARRAY = 0xffff };
struct kri_native_api;
struct kri_native_module {
    char magic[8];
    uint32_t abi, opcodes;
    uint64_t fingerprint;
    uint32_t functions, sites, pool, image_size;
    const struct kri_native_function *function;
    const struct kri_native_site *site;
    const unsigned char *image;        /* the file's forms as bytecode (fasl.c), or NULL */
    const struct kri_native_api **api; /* to be set */
    const char *source;                /* the file it was made from, "" for none; with its size and time */
    int64_t source_size, source_time;
};

/* A module in a VM. K is the vector of: this, as a fixnum-like word; a word for each function (N2); function and twin (or NIL) of each; constants. */
struct kri_native {
    const struct kri_native_function *function;
    const kr_value *k;
    kr_value object;  /* the function, where it captures nothing; the code is its */
    kr_value code;
    uint32_t index;
};
struct kri_native_instance {
    struct kri_native_instance *next;
    const struct kri_native_module *module;
    kr_value constants; /* the vector K */
    struct kri_native native[];
};

/* ---- what generated code calls: a table, so that the host need not export symbols ---- */
struct kri_native_api {
#define API(type, name, parameters, arguments) type (*name) parameters;
#define API_VOID(name, parameters, arguments) void (*name) parameters;
#define API_NORETURN(name, parameters, arguments) void (*name) parameters;
#include "lisp/native_api.def"
#undef API
#undef API_VOID
#undef API_NORETURN
};

/* Calls from native code; FRAME is the caller's, its site written. */
kr_value kri_native_call0(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol);
kr_value kri_native_call1(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, kr_value a);
kr_value kri_native_call2(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, kr_value a, kr_value b);
kr_value kri_native_call3(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, kr_value a, kr_value b, kr_value c);
kr_value kri_native_calln(struct kri_worker *w, struct kri_native_frame *frame, kr_value symbol, int argc, const kr_value *argv);
kr_value kri_native_funcall(struct kri_worker *w, struct kri_native_frame *frame, kr_value fn, int argc, const kr_value *argv);
kr_value kri_native_apply(struct kri_worker *w, struct kri_native_frame *frame, kr_value fn, int argc, const kr_value *argv);
kr_value kri_native_send1(struct kri_worker *w, struct kri_native_frame *frame, kr_value selector, kr_value a);
kr_value kri_native_send2(struct kri_worker *w, struct kri_native_frame *frame, kr_value selector, kr_value a, kr_value b);
kr_value kri_native_send(struct kri_worker *w, struct kri_native_frame *frame, kr_value selector, int argc, const kr_value *argv);
kr_value kri_native_sendsuper(struct kri_worker *w, struct kri_native_frame *frame, kr_value pair, int argc, const kr_value *argv);
/* Entered with little native stack or a request: serves it; true if the bytecode must serve this call. */
bool kri_native_low(struct kri_worker *w, const kr_value *k, struct kri_native_frame *caller, unsigned function);
/* That call. SELF: the closure, or NIL. */
kr_value kri_native_twin(struct kri_worker *w, const kr_value *k, struct kri_native_frame *caller, unsigned function, kr_value self,
                         int argc, const kr_value *argv);
kr_value kri_native_closure(struct kri_worker *w, kr_value code, unsigned n, const kr_value *captured);
_Noreturn void kri_native_return_from(struct kri_worker *w, kr_value identity, kr_value value);
/* The end of a cleanup that unwinding to TARGET (a handler, tagged) entered: it goes on. */
_Noreturn void kri_native_resume(struct kri_worker *w, kr_value target, kr_value value);

/* ---- the runtime's side ---- */
/* The code->builtin of every native function. */
kr_value kri_native_enter(struct kri_worker *w, int argc, kr_value *argv);
extern const struct kri_native_api kri_native_table;
/* Frames of both tiers, innermost first. */
struct kri_frames {
    struct kr_context *ctx;
    struct kri_native_frame *native;
    struct kri_region *region;
    kr_value *base;
    const kri_instruction *pc;
    /* the frame found: */
    kr_value function;
    const struct kri_code *code;
    const kr_value *registers; /* the parameters at least */
    kr_value *writable;        /* of bytecode: all registers; else NULL */
    const kri_instruction *at; /* the instruction after the one it is at, of CODE or of its twin */
    const kr_value *entered;   /* the pseudo-frame of an entry from C between the frame before and this one, or NULL */
    unsigned line;
};
void kri_frames_begin(struct kri_frames *f, struct kr_context *ctx);
bool kri_frames_next(struct kri_frames *f);
void kri_frames_settle(struct kri_frames *f); /* over beginnings of regions: native is a frame then */
/* The function that runs: native or bytecode. */
kr_value kri_running_function(struct kr_context *ctx);

/* native_generate.c: the C of the code objects in CODES. */
struct kri_native_source {
    kr_value codes;         /* vector of code objects */
    size_t count;
    const char *source;     /* or "" */
    int64_t source_size, source_time;
    const unsigned char *image;
    size_t image_size;
    unsigned units;         /* C files; 0: as many as its size asks for */
    bool lean;              /* small code: one version of each function, fewer fast paths */
    const char *linked;     /* it is linked into the library, its names begin so; NULL: a shared object */
};
/* Can the function whose bytecode C is become native, and is it worth it? */
bool kri_native_can_compile(const struct kri_code *c);
/* Is it worth it in the core? Not for what calls the functions it is given: those are mostly bytecode, and a call from native code into bytecode
 * costs more than one within bytecode. */
bool kri_native_pays_in_core(const struct kri_code *c);
/* A vector of strings, a C file each. */
kr_value kri_native_generate(struct kri_worker *w, const struct kri_native_source *s);
/* native_module.c */
/* The newest instance of module M in VM, or NULL; and a new one. */
struct kri_native_instance *kri_native_instance_of(struct kr_vm *vm, const struct kri_native_module *m);
struct kri_native_instance *kri_native_instance_new(struct kri_worker *w, const struct kri_native_module *m);
/* CODE, which nothing runs yet, is function J of the module: it becomes native. */
void kri_native_attach(struct kri_worker *w, struct kri_native_instance *n, unsigned j, kr_value code);
/* The core is loaded: its functions run as native code from now on. */
void kri_native_activate(struct kri_native_instance *n);
/* The functions of the module are copies of CODES, a vector; those go on as they are. */
void kri_native_attach_copies(struct kri_worker *w, struct kri_native_instance *n, kr_value codes);
/* The function that runs the bytecode of NATIVE. */
kr_value kri_native_twin_of(struct kri_worker *w, const struct kri_native *native);

#endif
