/* vm.h -- one Lisp world, and what C code calls to run Lisp, raise errors, make values. */
#ifndef KRI_LISP_VM_H
#define KRI_LISP_VM_H

#include <pthread.h>
#include <stdarg.h>
#include "lisp/context.h"
#include "lisp/object.h"

struct kri_symbols {
#define SYMBOL(field, package, name) kr_value field;
#define SPECIAL(field, package, name) kr_value field;
#include "lisp/symbols.def"
#undef SYMBOL
#undef SPECIAL
};

struct kr_vm {
    size_t alive;                     /* KRI_ALIVE; the first word, for misuse.c */
    struct kri_host *host;            /* what the host configured: hooks and kin; constant (lisp/host.h) */
    kri_atomic denied;                /* KR_FILES and kin: what Lisp is kept from (lisp/capability.c) */
    kri_atomic names_epoch;           /* bumped when a name may mean another symbol: uninterned, imported ... */
    struct kri_heap *heap;
    struct kri_class *classes;        /* 65,536 entries reserved; grown under `lock`, entries constant once published */
    kri_atomic class_count;
    struct kri_symbols sym;           /* constant after kr_vm_new */
    kr_value nil_symbol;              /* the record of NIL: its class, property list, name */
    kr_value undefined;               /* what the function cell of an undefined function holds */
    kr_value entry_function;          /* the function of pseudo-frames: bottom of a stack, entry from C, segment link */
    kr_value stack_condition, memory_condition, budget_condition; /* made beforehand, for when nothing can be made */
    kr_value condition_classes;       /* alist: code -> class, set by lib/core (lisp::%set-condition-classes) */
    kr_value error_handler;           /* lisp::install-error-handler's; NIL: none */
    kr_value pkg_lisp, pkg_user, pkg_keyword, pkg_system, pkg_unix, pkg_compiler;
    kr_value packages;                /* list of all packages; guarded by package_lock */
    size_t special_count;             /* next free index of a special; guarded by `lock` */
    size_t stack_limit_words;
    kri_atomic method_epoch;          /* bumped by defmethod and defclass: empties method caches */
    kri_atomic gensym_counter;

    pthread_mutex_t contexts_lock;
    struct kr_context *contexts;

    struct kri_native_instance *natives; /* modules of native code; guarded by lock, entries stay until the end */
    kri_atomic ffcall;                /* const struct kri_ffcall *, or 0: the module for foreign calls (lisp/foreign_call.c) */
    kri_atomic c_type_names;          /* elements of the vector of type keywords, or 0 (lisp/foreign_type.c) */
    struct kri_foreign_object *foreign_objects; /* shared objects that were loaded; guarded by lock */
    struct kri_callback *callbacks;   /* C functions that call Lisp; guarded by lock */
    struct kr_ref *refs;              /* handles; guarded by lock */
    kr_value roots;                   /* list of values kept for the VM's life */
    kr_value finalizers;              /* functions by address (builtin_system.c); guarded by lock */
    size_t finalizer_count;           /* how many; guarded by lock */
    void *threads;                    /* lisp/builtin_thread.c */
    struct kri_profile *profile;      /* lisp/profile.c; NULL until one is made */
    unsigned max_threads;
    bool running;                     /* the world is made: hooks may run Lisp */
    const char *library;              /* directory of the Lisp library, malloc'ed */
    kr_value random;                  /* the initial *random-state*: who finds it gets a state of its own (number.c) */

    /* Lock order: contexts_lock, package_lock, lock. No Lisp code, allocation or error while one is held: a thread that
     * blocks on one does so through kri_lock, outside the gate. */
    pthread_mutex_t package_lock;     /* recursive: no; guards all packages' tables */
    pthread_mutex_t lock;
};

/* Take a runtime mutex without delaying a collection: tries, then waits outside the gate. */
void kri_lock(struct kri_worker *w, pthread_mutex_t *m);
static inline void kri_unlock(pthread_mutex_t *m) { pthread_mutex_unlock(m); }

/* ---- errors: none returns ---- */
enum kri_error_code {
#define ERROR(name, code, text) KRI_E_##name = code,
#include "lisp/errors.def"
#undef ERROR
};
const char *kri_error_text(int code);
/* Raise error CODE about VALUE (the culprit, may be NIL). FORMAT (or NULL) and what follows give a detail, printf-like plus
 * %V: a kr_value printed as by prin1, cut to a sensible length. The function at fault is w->callee or the current frame's. */
_Noreturn void kri_error(struct kri_worker *w, int code, kr_value value, const char *format, ...);
/* The same; CALL is the call that failed, a list, which EusLisp's handlers get. */
_Noreturn void kri_error_call(struct kri_worker *w, int code, kr_value value, kr_value call, const char *format, ...);
/* Argument I (from 0) of the running builtin is not what it should be: CODE says what was expected. */
_Noreturn void kri_argument_error(struct kri_worker *w, int i, kr_value value, int code);
/* Raise condition CONDITION (an instance of class error or a subclass): handlers are tried, then the thread's last resort. */
_Noreturn void kri_raise(struct kri_worker *w, kr_value condition);
_Noreturn void kri_error_memory(struct kri_worker *w, size_t bytes);
/* The error that the program raises: TEXT is its text, CALL the call of error. */
_Noreturn void kri_error_user(struct kri_worker *w, kr_value text, kr_value call);
/* A condition of CODE without anything that only an error tells. */
kr_value kri_ready_condition(struct kri_worker *w, int code);
/* What the place says that raises C: form, backtrace, function; once. */
void kri_complete_condition(struct kri_worker *w, struct kri_condition *c);
/* SYMBOL is unbound: raise that, or answer the value that a restart gave. */
kr_value kri_unbound_variable(struct kri_worker *w, kr_value symbol);
/* SYMBOL names no function: raise that, or answer the function that a restart gave. CALL: by the call that the frame is at. */
kr_value kri_undefined_function(struct kri_worker *w, kr_value symbol, bool call);
/* Call the handlers that match CONDITION; returns when all decline. */
void kri_signal(struct kri_worker *w, kr_value condition);
/* The condition class of an EusLisp error code (lisp/class.c); error itself for codes without one. */
kr_value kri_class_for_code(struct kri_worker *w, int code);
/* The source line of instruction PC of CODE. */
unsigned kri_code_line(const struct kri_code *code, const kri_instruction *pc);

/* ---- running Lisp from C. Values and argv may lie anywhere; errors and throws pass through the caller by longjmp ---- */
kr_value kri_call(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv);
/* The same for the function of a macro, which kri_call refuses: the arguments are those of the form, unevaluated. */
kr_value kri_call_macro(struct kri_worker *w, kr_value fn, int argc, const kr_value *argv);
kr_value kri_call1(struct kri_worker *w, kr_value fn, kr_value a);
/* The backtrace of W's context as a list of (function-name file line argument..), innermost first, at most N. */
kr_value kri_backtrace(struct kri_worker *w, int n);
kr_value kri_call2(struct kri_worker *w, kr_value fn, kr_value a, kr_value b);
kr_value kri_send(struct kri_worker *w, kr_value object, kr_value selector, int argc, const kr_value *argv);
/* FN may be a symbol, a function, or a quoted lambda list; returns the function to call, or raises ILLEGAL_FUNCTION. */
/* MACRO is that of SYMBOL. The function to use in its stead, if it is an accessor of a structure; else MACRO. */
kr_value kri_accessor_function(struct kri_worker *w, kr_value symbol, kr_value macro);
kr_value kri_coerce_function(struct kri_worker *w, kr_value fn);
/* A builtin whose last act is a call returns kri_tail_call(w, fn, argc, argv): the virtual machine then calls FN with
 * argv[0..argc), which must be the builtin's own argv area or lie inside it (move the arguments down first). No C frame stays. */
static inline kr_value kri_tail_call(struct kri_worker *w, kr_value fn, int argc)
{
    w->tail = fn;
    w->tail_argc = argc;
    return KRI_IMMEDIATE(KRI_IMM_TAIL_CALL);
}
/* Run F(w, arg) catching every error and throw. True: *RESULT is its value. False: unwinding wanted to pass;
 * *RESULT is the condition, or NIL if it was a throw to a tag outside. */
bool kri_protect(struct kri_worker *w, kr_value (*f)(struct kri_worker *w, void *arg), void *arg, kr_value *result);
/* Run F, and then CLEANUP whichever way F ends; the unwinding goes on after it. CLEANUP may not raise. */
kr_value kri_unwind_protect(struct kri_worker *w, kr_value (*f)(struct kri_worker *w, void *arg), void *arg,
                            void (*cleanup)(struct kri_worker *w, void *arg));
_Noreturn void kri_throw(struct kri_worker *w, kr_value tag, kr_value value);
/* Bind a special variable around F; unbinds on any exit. */
kr_value kri_with_binding(struct kri_worker *w, kr_value symbol, kr_value value, kr_value (*f)(struct kri_worker *w, void *arg), void *arg);

/* ---- evaluation (lisp/compile.c, lisp/eval.c) ---- */
kr_value kri_eval(struct kri_worker *w, kr_value form);
/* Compile FORM as the body of a function of no arguments. */
kr_value kri_compile_form(struct kri_worker *w, kr_value form);
/* (lambda (..) ..) -> function without lexical environment. NAME is for messages. */
kr_value kri_compile_lambda(struct kri_worker *w, kr_value name, kr_value lambda);
/* A method of class object CLASS; register 0 is self, slots are variables. */
kr_value kri_compile_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value lambda_list, kr_value body);
/* The instructions of FN as text on STREAM. */
void kri_disassemble(struct kri_worker *w, kr_value fn, kr_value stream);
struct kri_compiler;
/* The form that a compilation is at. */
kr_value kri_compiler_form(const struct kri_compiler *c);
unsigned kri_compiler_line(const struct kri_compiler *c); /* of that form; 0: not known */
/* Expand a macro call once; *EXPANDED says whether FORM was one. */
kr_value kri_macroexpand1(struct kri_worker *w, kr_value form, bool *expanded);

/* SYMBOL has no value. If it belongs to a module that is linked in and not loaded yet, that is done now (lisp/core.c). Returns the value; if there
 * is none still, raises UNBOUND, or without RAISE returns KRI_UNBOUND. */
kr_value kri_autoload_value(struct kri_worker *w, kr_value symbol, bool raise);

/* ---- making values; each raises the allocation error when the heap is full ---- */
kr_value kri_cons_slow(struct kri_worker *w, kr_value car, kr_value cdr);
static inline kr_value kri_cons(struct kri_worker *w, kr_value car, kr_value cdr)
{
    struct kri_cell *c = kri_alloc_pair(w, KRI_CLASS_CONS, car, cdr);
    return KRI_LIKELY(c != NULL) ? kri_value_of(c) : kri_cons_slow(w, car, cdr);
}
/* A zeroed cell / vector, or the error. */
struct kri_cell *kri_make(struct kri_worker *w, unsigned cls, uint32_t length, size_t words);
kr_value kri_make_vector(struct kri_worker *w, size_t length);          /* all NIL */
kr_value kri_make_string(struct kri_worker *w, size_t bytes);           /* all zero */
kr_value kri_string(struct kri_worker *w, const char *text);
kr_value kri_string_n(struct kri_worker *w, const char *text, size_t bytes);
kr_value kri_make_fvector(struct kri_worker *w, size_t length);          /* all zero */
kr_value kri_make_fvector_raw(struct kri_worker *w, size_t length);      /* for callers that fill it at once */
kr_value kri_make_ivector(struct kri_worker *w, size_t length);
kr_value kri_make_box(struct kri_worker *w, kr_value value);
kr_value kri_float_slow(struct kri_worker *w, double d);
static inline kr_value kri_float(struct kri_worker *w, double d)
{
    kr_value v = kri_flonum_try(d);
    return KRI_LIKELY(kri_is_flonum(v)) ? v : kri_float_slow(w, d);
}
kr_value kri_integer_slow(struct kri_worker *w, intptr_t n);
static inline kr_value kri_integer(struct kri_worker *w, intptr_t n)
{
    return KRI_LIKELY(kri_fits_fixnum(n)) ? kri_fixnum(n) : kri_integer_slow(w, n);
}
kr_value kri_list(struct kri_worker *w, int n, ...);
kr_value kri_list_from(struct kri_worker *w, const kr_value *from, size_t n);
static inline kr_value kri_bool(struct kri_worker *w, bool b) { return b ? w->vm->sym.t : KRI_NIL; }

/* ---- types ---- */
bool kri_is_float_slow(kr_value v); /* immediates and boxes */
static inline bool kri_is_float(kr_value v)
{
    return kri_is_flonum(v) || (!kri_is_fixnum(v) && kri_is_float_slow(v));
}
double kri_float_value_slow(kr_value v);
static inline double kri_float_value(kr_value v) { return kri_is_flonum(v) ? kri_flonum_value(v) : kri_float_value_slow(v); }
/* Is V an instance of a class below cons? Those are conses to Lisp (car, consp), but not to C code. */
bool kri_is_cons_subclass(struct kr_vm *vm, kr_value v);
static inline bool kri_is_consp(struct kr_vm *vm, kr_value v)
{
    return kri_is_pointer(v) && (kri_ptr(v)->cls == KRI_CLASS_CONS || (KRI_UNLIKELY(kri_ptr(v)->cls >= KRI_CLASS_BUILTIN_COUNT) && kri_is_cons_subclass(vm, v)));
}
static inline bool kri_is_symbol(kr_value v) /* NIL is one */
{
    return kri_is_nil(v) || kri_has_class(v, KRI_CLASS_SYMBOL);
}
/* The record of a symbol: NIL maps to its own. V must be a symbol. */
static inline struct kri_symbol *kri_symbol_of(struct kr_vm *vm, kr_value v)
{
    return (struct kri_symbol *)(kri_is_nil(v) ? vm->nil_symbol.w : v.w);
}
/* The cell that stands for V when it receives a message: NIL's symbol record; NULL for numbers and other immediates. */
static inline struct kri_cell *kri_cell(struct kr_vm *vm, kr_value v)
{
    if (kri_is_nil(v))
        return kri_ptr(vm->nil_symbol);
    return kri_is_pointer(v) ? kri_ptr(v) : NULL;
}
static inline struct kri_class *kri_class_info(struct kr_vm *vm, const struct kri_cell *c) { return &vm->classes[c->cls]; }
/* Element type of a vector (of a class or subclass), KRI_ELEMENT_NONE if V is no vector. */
static inline enum kri_element kri_element(struct kr_vm *vm, kr_value v)
{
    return kri_is_pointer(v) ? (enum kri_element)vm->classes[kri_ptr(v)->cls].element : KRI_ELEMENT_NONE;
}
static inline bool kri_is_string(struct kr_vm *vm, kr_value v)
{
    return kri_is_pointer(v) && (kri_ptr(v)->cls == KRI_CLASS_STRING || vm->classes[kri_ptr(v)->cls].element == KRI_ELEMENT_CHAR);
}
static inline bool kri_is_fvector(struct kr_vm *vm, kr_value v) { return kri_element(vm, v) == KRI_ELEMENT_FLOAT; }
static inline bool kri_is_ivector(struct kr_vm *vm, kr_value v) { return kri_element(vm, v) == KRI_ELEMENT_INTEGER; }
static inline bool kri_is_vector(struct kr_vm *vm, kr_value v) { return kri_element(vm, v) != KRI_ELEMENT_NONE; }
static inline size_t kri_length(kr_value vector) { return kri_ptr(vector)->length; }
/* Is V an instance of class object CLASS or of a subclass? False for numbers. */
bool kri_derivedp(struct kr_vm *vm, kr_value v, kr_value cls);
bool kri_subclassp(struct kr_vm *vm, kr_value cls, kr_value super);
bool kri_is_class(struct kr_vm *vm, kr_value v);
/* The class object of V, NIL for numbers. */
kr_value kri_class_of(struct kr_vm *vm, kr_value v);
/* Store element I (within range) of any vector, converting as EusLisp does; raises type errors. */
kr_value kri_vector_ref(struct kri_worker *w, kr_value vector, size_t i);
void kri_vector_set(struct kri_worker *w, kr_value vector, size_t i, kr_value v);
/* An instance of class object CLASS; SIZE for vector classes without :size, else -1. */
kr_value kri_instantiate(struct kri_worker *w, kr_value cls, intptr_t size);
/* The class record for a new class (or for new slots of an old one); lisp/class.c. */
kr_value kri_define_class(struct kri_worker *w, kr_value name, kr_value super, kr_value slot_names, kr_value slot_types,
                          kr_value forwards, kr_value metaclass, kr_value element_type, intptr_t size);
kr_value kri_find_method(struct kri_worker *w, unsigned cls, kr_value selector, kr_value *owner); /* NIL: none */
/* Add or replace a method of class object CLASS. */
void kri_add_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value fn, kr_value doc);
/* FN in place of OLD as the method of CLS itself for SELECTOR; false if that is not OLD any more. */
bool kri_replace_method(struct kri_worker *w, kr_value cls, kr_value selector, kr_value old, kr_value fn);
bool kri_remove_method(struct kri_worker *w, kr_value cls, kr_value selector); /* false: there was none */
/* Index of slot NAME (a symbol, compared by name) among the instance variables of CLASS, or -1. */
intptr_t kri_slot_index(struct kr_vm *vm, kr_value cls, kr_value name);

/* ---- symbols and packages (lisp/package.c) ---- */
kr_value kri_intern(struct kri_worker *w, const char *name, size_t bytes, kr_value package);
kr_value kri_find_symbol(struct kri_worker *w, const char *name, size_t bytes, kr_value package, bool *external, bool *found);
kr_value kri_make_symbol(struct kri_worker *w, kr_value name_string);
kr_value kri_find_package(struct kri_worker *w, kr_value designator); /* NIL if there is none */
kr_value kri_keyword(struct kri_worker *w, const char *name);
kr_value kri_make_package(struct kri_worker *w, const char *const *names /* NULL-terminated, first is the name */);
void kri_export(struct kri_worker *w, kr_value symbol, kr_value package);
/* Make FN, a function, the definition of SYMBOL: every store into a function cell is this (lisp/native.h, N2). */
void kri_set_function(struct kri_worker *w, kr_value symbol, kr_value fn);
/* Raise if NAME is a special form that cannot be made anything else; go, block, catch and kin can. */
void kri_check_definable(struct kri_worker *w, kr_value name);
/* The same if OLD is its definition still: false if another thread has given it one meanwhile, which stays. */
bool kri_replace_function(struct kri_worker *w, kr_value symbol, kr_value old, kr_value fn);
static inline kr_value kri_symbol_function(struct kr_vm *vm, kr_value sym) { return kri_slot(&kri_symbol_of(vm, sym)->function); }
bool kri_fboundp(struct kr_vm *vm, kr_value sym);
kr_value kri_get(struct kri_worker *w, kr_value object, kr_value key);        /* property, NIL without */
kr_value kri_property(struct kri_worker *w, kr_value object, kr_value key);   /* (key . property), NIL without */
void kri_putprop(struct kri_worker *w, kr_value object, kr_value value, kr_value key);

/* ---- numbers (lisp/number.c): the generic operations behind the fast paths; they raise NO_NUMBER and kin ---- */
kr_value kri_add(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_sub(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_mul(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_div(struct kri_worker *w, kr_value a, kr_value b);
kr_value kri_mod(struct kri_worker *w, kr_value a, kr_value b);
bool kri_lt(struct kri_worker *w, kr_value a, kr_value b);   /* true if an operand is NaN, as EusLisp's comparisons are */
bool kri_le(struct kri_worker *w, kr_value a, kr_value b);
bool kri_numeq(struct kri_worker *w, kr_value a, kr_value b);
bool kri_is_number(kr_value v);
bool kri_is_integer(kr_value v);                             /* fixnum or bignum */
double kri_to_double(struct kri_worker *w, kr_value v);      /* any real number */
bool kri_eql(kr_value a, kr_value b);                        /* eq, or equal numbers of one type */
bool kri_equal(struct kri_worker *w, kr_value a, kr_value b);
/* Are instances of class index CLS compared and copied slot by slot? Then *SLOTS says how many they have. */
bool kri_has_parts(struct kri_worker *w, unsigned cls, size_t *slots);
uintptr_t kri_sxhash(struct kri_worker *w, kr_value v);      /* equal values hash alike */
/* ENTRIES of a table, key, value, key, value ... as they came, in the order in which a table of EusLisp with SIZE places, which doubles
 * when it has more than SIZE / LOAD entries, would list them: a fresh vector, or ENTRIES. May-gc. */
kr_value kri_hash_order(struct kri_worker *w, kr_value entries, size_t size, double load);
/* The bytes of a number as the printer writes it, into BUFFER; returns the length needed. Bignums may be long. */
size_t kri_print_float(struct kr_vm *vm, double d, bool shortest, char buffer[64]);
kr_value kri_integer_to_string(struct kri_worker *w, kr_value n, int base);
/* Number syntax in base BASE: the number, or KRI_UNBOUND if TEXT is not one. */
kr_value kri_parse_number(struct kri_worker *w, const char *text, size_t n, int base);

/* ---- reading and printing (lisp/reader.c, lisp/printer.c) ---- */
/* One form from STREAM. At its end: error EOF if EOF_ERROR, else EOF_VALUE. */
kr_value kri_read(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value);
kr_value kri_read_from_string(struct kri_worker *w, kr_value string);
/* Lines for the compiler: between begin and end every list read remembers its line. */
void kri_positions_begin(struct kri_worker *w);
void kri_positions_end(struct kri_worker *w);
unsigned kri_position_line(struct kri_worker *w, kr_value cons); /* 0: unknown */
void kri_print(struct kri_worker *w, kr_value v, kr_value stream, bool escape);
kr_value kri_print_to_string(struct kri_worker *w, kr_value v, bool escape);

#include "lisp/builtin.h"
#endif
