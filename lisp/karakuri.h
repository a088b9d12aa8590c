/* karakuri.h -- the whole embedding interface; a host includes nothing else. C11 and C++17.
 *
 * Nothing here unwinds through the host's frames: a Lisp error comes back as KR_ERROR with its condition. Tags:
 *   [any]       from any thread, attached or not
 *   [attached]  from the thread that CTX was attached by, on its vm
 *   [kr_function]  only from C that Lisp called: a kr_function, a hook, what kr_protect runs; not below kr_blocking
 *   [real-time] from any thread; no lock, no system call, no allocation, a bounded number of steps
 *   [no-gc]     cannot collect       [may-gc] may stop the world and collect
 * Texts that come in are copied where they are kept; texts and arrays that go out belong to the value they are of.
 * A kr_value that a function hands to the host lives until the enclosing kr_scope_end (or, without one, until kr_detach);
 * kr_ref keeps it longer. C functions that Lisp calls may keep values in locals with no ceremony; what they were handed is
 * dropped when they return.
 * A name is "foo" for a symbol of package USER (which uses LISP), "pkg:foo", "pkg::foo" or ":foo" as in Lisp; letters are upcased
 * except between bars ("|Foo|"). */
#ifndef KARAKURI_H
#define KARAKURI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Semantic versioning: what this header declares keeps its meaning within a major version (while that is 0: within a minor one).
 * KR_ABI_VERSION counts the changes that a host compiled before does not survive. */
#define KR_VERSION "0.2.0"
#define KR_VERSION_MAJOR 0
#define KR_VERSION_MINOR 2
#define KR_VERSION_PATCH 0
#define KR_ABI_VERSION 2

#ifndef KR_VALUE_DEFINED
#define KR_VALUE_DEFINED
/* Any Lisp value; the all-zero word is nil. Opaque otherwise. */
typedef struct kr_value {
    uintptr_t w;
} kr_value;
#endif

typedef struct kr_vm kr_vm;           /* one Lisp world; two share nothing */
typedef struct kr_context kr_context; /* one thread of Lisp control in a vm */
typedef struct kr_ref kr_ref;         /* keeps one value alive until kr_unref */

typedef enum kr_status {
    KR_OK = 0,
    KR_ERROR,      /* a Lisp error; the out value is its condition, or nil if it was a throw that wanted to pass */
    KR_NO_MEMORY,  /* nothing was made */
    KR_BAD_TYPE,   /* the value is not of the type asked for, or the configuration is wrong */
    KR_BAD_VERSION /* the host was compiled against another header than the library that it runs with */
} kr_status;

typedef enum kr_alloc {
    KR_ALLOC_GATE,   /* local bases, readers pay nothing (default) */
    KR_ALLOC_RWLOCK, /* local bases, a POSIX reader/writer lock around each allocation */
    KR_ALLOC_MUTEX,  /* the global base under one mutex */
    KR_ALLOC_NONE    /* no exclusion: one context only */
} kr_alloc;

/* What Lisp code may be kept from (kr_config.deny, kr_vm_deny). */
typedef enum kr_capability {
    KR_FILES = 1,      /* opening, reading, changing files and directories by name, file descriptors by number */
    KR_PROCESSES = 2,  /* commands, processes, signals, the environment, exit: the process and its like */
    KR_NETWORK = 4,    /* sockets, names of machines */
    KR_FOREIGN = 8,    /* foreign functions and memory, loading of compiled code, the C compiler */
    KR_THREADS = 16,   /* threads of Lisp's own */
    KR_EVERYTHING = 31
} kr_capability;

/* Which standard stream an output hook is called for. */
typedef enum kr_output_stream { KR_OUTPUT = 1, KR_ERROR_OUTPUT = 2 } kr_output_stream;

/* A collection, as a hook is told of it. Times in nanoseconds. */
typedef struct kr_collection {
    uint64_t number;                   /* from 1 */
    uint64_t pause_ns;                 /* from the request until the other threads went on */
    uint64_t live_bytes, heap_bytes;   /* after it; heap_bytes as mapped */
} kr_collection;

/* Called with kr_config.user last. NULL: nothing is called. */
typedef struct kr_hooks {
    /* A thread was attached, or is about to be detached, on that thread: the host's, kr_vm_new's own, Lisp's. It may use CTX. */
    void (*thread_start)(kr_context *ctx, void *user);
    void (*thread_stop)(kr_context *ctx, void *user);
    /* After a collection, at a poll of the thread that collected. It may run Lisp; errors in it go nowhere. */
    void (*collection)(kr_context *ctx, const kr_collection *c, void *user);
    /* No handler took CONDITION: before the frames at fault are left, on top of them, so that kr_restarts, kr_error_backtrace
     * and kr_eval_string see them. Return, or kr_invoke_restart. An error in the hook is not told to it again. */
    void (*error)(kr_context *ctx, kr_value condition, void *user);
    /* Takes the place of standard output and error output: N bytes of TEXT, not zero-terminated. Outside the gate, as within
     * kr_blocking: it touches no value and calls nothing that is not [any]. Calls from several threads may overlap. */
    void (*output)(kr_output_stream which, const char *text, size_t n, void *user);
    /* Takes the place of standard input: at most N bytes, at least one; 0 at the end. Likewise outside the gate. */
    size_t (*input)(char *text, size_t n, void *user);
    /* With kr_config.check: the host misused FUNCTION as MESSAGE says. NULL: both are printed on standard error and the process
     * aborts. If it returns the process aborts as well. */
    void (*misuse)(const char *function, const char *message, void *user);
} kr_hooks;

/* Where the heap's memory comes from, in pieces of 2 MB or, for large objects, more. NULL: the system. */
typedef struct kr_memory_source {
    /* BYTES of zeroed memory at a multiple of ALIGNMENT, or NULL. From any thread; it calls nothing of this interface. */
    void *(*map)(void *user, size_t bytes, size_t alignment);
    /* Takes it back; NULL: what was mapped is never given back. */
    void (*unmap)(void *user, void *memory, size_t bytes);
    void *user;
} kr_memory_source;

/* Zero everywhere means the default. The structure is copied, hooks and all; texts need to last for the call only. */
typedef struct kr_config {
    size_t heap_limit;      /* bytes; default three quarters of physical memory */
    size_t heap_initial;    /* bytes */
    size_t stack_limit;     /* bytes of Lisp stack a context may use; default 256 MB */
    kr_alloc alloc;
    unsigned markers;       /* marking threads; default one for each core */
    unsigned stress;        /* collect at every STRESS-th slow allocation, for testing */
    unsigned max_threads;   /* bound of the pool behind sys:thread; default 256 */
    const char *library;    /* directory of the Lisp library; default $KARAKURI_LIB, else as installed */
    int bare;               /* do not load the library's core */
    int check;              /* debug mode: misuse of this interface is told, for all VMs of the process; $KARAKURI_CHECK=1 likewise */
    unsigned deny;          /* kr_capability bits that Lisp code is kept from */
    kr_hooks hooks;
    kr_memory_source memory;
    void *user;             /* for the hooks, and kr_vm_user */
} kr_config;

/* KR_ABI_VERSION and KR_VERSION of the library that is linked. [any, no-gc] */
int kr_abi_version(void);
const char *kr_version(void);

/* Make a VM and attach the calling thread to it. On success *VM and *CTX are set. CONFIG may be NULL. Otherwise nothing is left
 * behind; KR_ERROR: the core library could not be loaded, and standard error says why; KR_BAD_VERSION: the library is another than
 * this header's. In a child that the host made by fork() the VM is not to be used: make it afterwards, or let the child exec. [any] */
#define kr_vm_new(config, vm, ctx) kr_vm_new_abi(KR_ABI_VERSION, config, vm, ctx)
kr_status kr_vm_new_abi(int abi_version, const kr_config *config, kr_vm **vm, kr_context **ctx);
/* Detach CTX and release everything: the last context that was attached by kr_attach or kr_vm_new; threads attached by kr_current
 * must be outside the interface and stay so. Threads that Lisp made are stopped first: their cleanup forms run,
 * for a second at most; one that is within a system call of unknown length (a command, a write to a full pipe) is waited for.
 * Finalizers of foreign data run. Not from within a kr_function. [attached] */
void kr_vm_free(kr_context *ctx);
/* Attach the calling thread to VM, once at a time; NULL when memory is out, or for a second context under KR_ALLOC_NONE. It must
 * keep to the stack that it has now. [any] */
kr_context *kr_attach(kr_vm *vm);
/* Detach the calling thread; releases the mutex locks it holds. Not from within a kr_function. [attached] */
void kr_detach(kr_context *ctx);
/* The calling thread's context on VM: the one it has, or one attached now, which the thread's end detaches. For callbacks that come from
 * threads of unknown origin. NULL as for kr_attach. [any] */
kr_context *kr_current(kr_vm *vm);
/* kr_config.user. [any, no-gc] */
void *kr_vm_user(kr_vm *vm);
/* Keep Lisp code of VM from CAPABILITIES, kr_capability bits, and from nothing else, from now on. What it tries raises the error
 * capability-denied. Lisp cannot change it. It holds for kr_load_file too. [any, no-gc] */
void kr_vm_deny(kr_vm *vm, unsigned capabilities);
unsigned kr_vm_denied(kr_vm *vm);
/* [any, no-gc] */
kr_vm *kr_context_vm(kr_context *ctx);

/* Values handed out between begin and end are dropped at the end. Scopes nest. [attached, no-gc] */
size_t kr_scope_begin(kr_context *ctx);
void kr_scope_end(kr_context *ctx, size_t scope);
/* Keep V alive until kr_unref; NULL when memory is out. [attached, no-gc] */
kr_ref *kr_ref_new(kr_context *ctx, kr_value v);
/* Its value. [any, no-gc] */
kr_value kr_ref_value(const kr_ref *ref);
/* Give REF back; NULL is let through. [attached, no-gc] */
void kr_unref(kr_context *ctx, kr_ref *ref);

/* The next five may be nested in a kr_function. An error in them comes back to it and not to handlers of the Lisp code around it;
 * kr_reraise passes it on.
 * Read and evaluate all forms of TEXT, which is not kept. *OUT receives the last value, or on KR_ERROR the condition. OUT may
 * be NULL. [attached, may-gc] */
kr_status kr_eval_string(kr_context *ctx, const char *text, kr_value *out);
/* The same for N bytes; NAME (or NULL) is the file that backtraces and messages name. [attached, may-gc] */
kr_status kr_eval_bytes(kr_context *ctx, const char *text, size_t n, const char *name, kr_value *out);
/* Evaluate FORM. [attached, may-gc] */
kr_status kr_eval(kr_context *ctx, kr_value form, kr_value *out);
/* The first form of TEXT, unevaluated; KR_ERROR also when there is none. [attached, may-gc] */
kr_status kr_read(kr_context *ctx, const char *text, kr_value *out);
/* Load the file PATH (sought along *load-path*). [attached, may-gc] */
kr_status kr_load_file(kr_context *ctx, const char *path, kr_value *out);
/* Call the function that NAME names. [attached, may-gc] */
kr_status kr_call(kr_context *ctx, const char *name, int argc, const kr_value *argv, kr_value *out);
/* Call FN, a function or symbol. [attached, may-gc] */
kr_status kr_funcall(kr_context *ctx, kr_value fn, int argc, const kr_value *argv, kr_value *out);
/* Send OBJECT the message SELECTOR ("init" for :init). [attached, may-gc] */
kr_status kr_send(kr_context *ctx, kr_value object, const char *selector, int argc, const kr_value *argv, kr_value *out);

/* The value of the variable NAME, a thread's own binding if it has one; set it likewise. KR_ERROR: it is unbound; a constant. [attached, may-gc] */
kr_status kr_get(kr_context *ctx, const char *name, kr_value *out);
kr_status kr_set(kr_context *ctx, const char *name, kr_value v);

/* Making values: [attached, may-gc]. nil is the zero word. They answer nil when memory is out, kr_symbol also when there is no such
 * package or external symbol; kr_is_nil tells (kr_boolean(ctx, false), a list of nothing and the symbol "nil" are nil by right). */
kr_value kr_nil(void);
bool kr_is_nil(kr_value v);
kr_value kr_boolean(kr_context *ctx, bool b);
kr_value kr_integer(kr_context *ctx, int64_t n);
kr_value kr_real(kr_context *ctx, double d);
kr_value kr_string(kr_context *ctx, const char *text);
kr_value kr_bytes(kr_context *ctx, const void *bytes, size_t n);
kr_value kr_float_vector(kr_context *ctx, const double *elements, size_t n);
kr_value kr_list(kr_context *ctx, int n, const kr_value *elements);
kr_value kr_symbol(kr_context *ctx, const char *name);
kr_value kr_cons(kr_context *ctx, kr_value car, kr_value cdr);
/* N elements from ELEMENTS, or, if that is NULL, nils and zeros. */
kr_value kr_vector(kr_context *ctx, const kr_value *elements, size_t n);
kr_value kr_integer_vector(kr_context *ctx, const int64_t *elements, size_t n);
/* The integer that TEXT writes in base 10, of any size; nil if it is none. */
kr_value kr_big_integer(kr_context *ctx, const char *text);
/* The quotient of two integers, exact: a ratio, or an integer if it is one; nil also if DENOMINATOR is zero or one is no integer. */
kr_value kr_ratio(kr_context *ctx, kr_value numerator, kr_value denominator);
/* A complex number of two reals, also if IMAGINARY is zero. */
kr_value kr_complex(kr_context *ctx, double real, double imaginary);
/* ROWS times COLUMNS elements, row by row, from ELEMENTS, or, if that is NULL, zeros. */
kr_value kr_matrix(kr_context *ctx, const double *elements, size_t rows, size_t columns);
/* N bits, eight in a byte, the first the lowest; NULL: zeros. */
kr_value kr_bit_vector(kr_context *ctx, const unsigned char *bits, size_t n);
/* An empty hash table whose keys are compared by the function TEST: "eq", "eql", "equal" or "string=". */
kr_value kr_hash_table(kr_context *ctx, const char *test);

/* What V is. kr_eq: the same object (numbers may be equal and not the same). [any, no-gc] */
typedef enum kr_type {
    KR_NIL, KR_SYMBOL, KR_INTEGER, KR_REAL, KR_RATIO, KR_COMPLEX, KR_CONS, KR_STRING, KR_VECTOR, KR_FLOAT_VECTOR, KR_INTEGER_VECTOR,
    KR_BIT_VECTOR, KR_ARRAY, KR_HASH_TABLE, KR_FUNCTION, KR_STREAM, KR_CLASS, KR_CONDITION, KR_OBJECT, KR_OTHER
} kr_type;
kr_type kr_type_of(kr_context *ctx, kr_value v);
static inline bool kr_eq(kr_value a, kr_value b) { return a.w == b.w; }
/* As Lisp's equal; false also if that raised an error. [attached, may-gc] */
bool kr_equal(kr_context *ctx, kr_value a, kr_value b);
/* Is V an instance of the class NAME or of a subclass? [attached, may-gc] */
bool kr_is_a(kr_context *ctx, kr_value v, const char *name);

/* Reading values: KR_BAD_TYPE if V is something else, or an integer beyond 64 bits. kr_to_real takes any real number.
 * [attached, no-gc; kr_to_real of a ratio may-gc] */
kr_status kr_to_integer(kr_context *ctx, kr_value v, int64_t *n);
kr_status kr_to_real(kr_context *ctx, kr_value v, double *d);
/* The bytes of a string, or the elements of a float-vector, in place: cells never move, so the pointer is good as long as
 * the value is alive. Strings have a zero byte behind the last. */
kr_status kr_to_bytes(kr_context *ctx, kr_value v, char **bytes, size_t *n);
kr_status kr_to_reals(kr_context *ctx, kr_value v, double **elements, size_t *n);
/* The elements of an integer-vector; the bits of a bit-vector, eight in a byte, the first the lowest, *N being their number; the name
 * of a symbol, zero-terminated. In place, likewise. [attached, no-gc] */
kr_status kr_to_integers(kr_context *ctx, kr_value v, int64_t **elements, size_t *n);
kr_status kr_to_bits(kr_context *ctx, kr_value v, unsigned char **bits, size_t *n);
kr_status kr_symbol_name(kr_context *ctx, kr_value v, const char **name, size_t *n);
/* The elements of a matrix of reals, row by row, in place, likewise. [attached, no-gc] */
kr_status kr_to_matrix(kr_context *ctx, kr_value v, double **elements, size_t *rows, size_t *columns);
/* The parts of an exact number, integers: an integer's denominator is 1. The parts of any number as doubles. [attached, no-gc; kr_to_complex may-gc] */
kr_status kr_to_ratio(kr_context *ctx, kr_value v, kr_value *numerator, kr_value *denominator);
kr_status kr_to_complex(kr_context *ctx, kr_value v, double *real, double *imaginary);
/* Lists: those of nil are nil. Vectors of values: KR_BAD_TYPE also for an index beyond the end. What they give needs to be kept by
 * what holds it, or by a scope: it is entered there. [attached, no-gc] */
kr_status kr_car(kr_context *ctx, kr_value v, kr_value *out);
kr_status kr_cdr(kr_context *ctx, kr_value v, kr_value *out);
kr_status kr_length(kr_context *ctx, kr_value v, size_t *n); /* of a list or any vector */
kr_status kr_vector_ref(kr_context *ctx, kr_value v, size_t i, kr_value *out);
kr_status kr_vector_set(kr_context *ctx, kr_value v, size_t i, kr_value element);
/* Hash tables: the value for KEY, as gethash gives it (nil if there is none, unless the table has another not-found value); put one there; take it
 * out; all entries as at one moment, a fresh list of conses (key . value). KR_BAD_TYPE: TABLE is none; KR_ERROR: the table's
 * own test or hash function failed. [attached, may-gc] */
kr_status kr_table_get(kr_context *ctx, kr_value table, kr_value key, kr_value *out);
kr_status kr_table_set(kr_context *ctx, kr_value table, kr_value key, kr_value v);
kr_status kr_table_remove(kr_context *ctx, kr_value table, kr_value key);
kr_status kr_table_entries(kr_context *ctx, kr_value table, kr_value *out);
/* The instance variable NAME of OBJECT: "name" as it is written in Lisp. [attached, may-gc] */
kr_status kr_slot(kr_context *ctx, kr_value object, const char *name, kr_value *out);
kr_status kr_set_slot(kr_context *ctx, kr_value object, const char *name, kr_value v);
/* Print V as prin1 would, at most SIZE - 1 bytes and a zero byte; returns the length of the whole text. [attached, may-gc] */
size_t kr_print(kr_context *ctx, kr_value v, char *buffer, size_t size);
/* The message of a condition, as the REPL prints it, likewise. [attached, may-gc] */
size_t kr_error_message(kr_context *ctx, kr_value condition, char *buffer, size_t size);
/* The condition's backtrace, one line a frame, likewise. [attached, may-gc] */
size_t kr_error_backtrace(kr_context *ctx, kr_value condition, char *buffer, size_t size);
/* The code of a condition as EusLisp numbers errors (76: raised by a program); -1: V is no condition. [attached, no-gc] */
int kr_error_code(kr_context *ctx, kr_value v);
/* The restarts that serve CONDITION (nil: any) where the program stands, as a list, innermost first. Within the error hook, or a
 * kr_function: once a call has given KR_ERROR its frames are gone, and their restarts with them. [kr_function, may-gc] */
kr_status kr_restarts(kr_context *ctx, kr_value condition, kr_value *out);

/* A C function for Lisp. ARGV holds ARGC values, as many as the arglist allows; it may be overwritten. kr_raise leaves it. */
typedef kr_value (*kr_function)(kr_context *ctx, int argc, kr_value *argv, void *user);
/* Define FN under NAME ("pkg:foo" becomes external) with an arglist such as "(a &optional b)", which is its arity. [attached, may-gc] */
kr_status kr_define(kr_context *ctx, const char *name, const char *arglist, const char *doc, kr_function fn, void *user);
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
/* From within a kr_function only: raise a user error with MESSAGE. Unwinds through the kr_function. [attached, may-gc] */
void kr_raise(kr_context *ctx, const char *message);

/* From within a kr_function only: pass on what a call in it gave with KR_ERROR. A condition is signalled again, as it is; nil goes on
 * with the throw that the last call stopped. Unwinds through the kr_function. [attached, may-gc] */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void kr_reraise(kr_context *ctx, kr_value condition);

/* From within a kr_function only: raise a condition of class CLASS, a subclass of error, with MESSAGE; if there is no such class a
 * user error. Unwinds. [kr_function, may-gc] */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void kr_raise_condition(kr_context *ctx, const char *class_name, const char *message);
/* Leave by RESTART, one of kr_restarts or the name of one, with arguments. Unwinds; returns only with KR_ERROR, when there is no
 * such restart, or KR_OK, when the restart's function returned. [kr_function, may-gc] */
kr_status kr_invoke_restart(kr_context *ctx, kr_value restart, int argc, const kr_value *argv);
/* Run F(CTX, ARG), which may raise, call Lisp and be unwound, like a kr_function; errors and throws end here as they do in kr_call.
 * What F keeps in locals needs no scope. [attached, may-gc] */
kr_status kr_protect(kr_context *ctx, kr_value (*f)(kr_context *ctx, void *arg), void *arg, kr_value *out);
/* Run F(CTX, ARG), then CLEANUP(CTX, ARG) however F was left; the unwinding goes on afterwards. CLEANUP raises nothing.
 * [kr_function, may-gc] */
kr_value kr_with_cleanup(kr_context *ctx, kr_value (*f)(kr_context *ctx, void *arg), void (*cleanup)(kr_context *ctx, void *arg), void *arg);

/* ---- classes and data of the host ---- */

/* Define class NAME below SUPER (NULL: propertied-object) with instance variables SLOTS, "a b c" (NULL: none).
 * [attached, may-gc] */
kr_status kr_define_class(kr_context *ctx, const char *name, const char *super, const char *slots, const char *doc);
/* Give class CLASS the method SELECTOR ("move-to" for :move-to): ARGV[0] is the receiver, what follows agrees with ARGLIST.
 * [attached, may-gc] */
kr_status kr_define_method(kr_context *ctx, const char *class_name, const char *selector, const char *arglist, const char *doc, kr_function fn,
                           void *user);

/* A type of the host's data; its address identifies it, so it lives as long as the VM. FINALIZE (or NULL) is called once for each
 * datum: when Lisp has forgotten it (at a poll of the thread that collected), when it is released, or when the VM ends. It may
 * use CTX, but raises nothing. */
typedef struct kr_foreign_type {
    const char *name; /* the Lisp class of such data; kr_foreign_class defines it */
    void (*finalize)(kr_context *ctx, void *data);
} kr_foreign_type;
/* Define TYPE's class, below foreign-data, with SLOTS for Lisp's use. [attached, may-gc] */
kr_status kr_foreign_class(kr_context *ctx, const kr_foreign_type *type, const char *slots, const char *doc);
/* A Lisp object that stands for DATA; nil when memory is out or the class is missing: then DATA is still the caller's.
 * [attached, may-gc] */
kr_value kr_foreign(kr_context *ctx, const kr_foreign_type *type, void *data);
/* The data behind V; KR_BAD_TYPE if V is of another type, or released. It is there as long as V is alive. [attached, no-gc] */
kr_status kr_to_foreign(kr_context *ctx, kr_value v, const kr_foreign_type *type, void **data);
/* Finalize V's data now; V stands for nothing any more. KR_BAD_TYPE if it does so already. [attached, may-gc] */
kr_status kr_foreign_release(kr_context *ctx, kr_value v, const kr_foreign_type *type);

/* ---- budgets ---- */

/* What one evaluation may use; 0: as much as it likes. */
typedef struct kr_budget {
    uint64_t time_ns;    /* elapsed time, waiting included */
    size_t heap_bytes;   /* by which the heap, and what lives in it, may grow */
} kr_budget;
typedef enum kr_exceeded { KR_WITHIN_BUDGET, KR_TIME_EXCEEDED, KR_HEAP_EXCEEDED } kr_exceeded;
/* What CTX runs from now on, and threads that it starts, is to keep within BUDGET, until kr_budget_end. Beyond it the condition
 * budget-exceeded is raised, once, for handlers to see; a tenth of the time later, a second at most, everything is unwound to the host's call: no handler
 * is asked, and before long no cleanup form. KR_NO_MEMORY; KR_BAD_TYPE: there is one already. A heap budget begins with a collection.
 * [attached, may-gc] */
kr_status kr_budget_begin(kr_context *ctx, const kr_budget *budget);
/* The end of it: says whether it was exceeded. Threads that were started under it and still run are stopped. [attached, no-gc] */
kr_exceeded kr_budget_end(kr_context *ctx);

/* Ask CTX's thread to stop what it does at its next poll: the function *interrupt-handler* is called there if there is one, else
 * the error "interrupted" is raised. If it does nothing, this comes to what it does next. CTX must stay attached meanwhile. [any, also
 * signal handlers; no-gc] */
void kr_interrupt(kr_context *ctx);
/* Inside a kr_function: run BLOCK(ARG), which waits for something, while collections go on. BLOCK touches no value. [attached] */
void kr_blocking(kr_context *ctx, void (*block)(void *arg), void *arg);
/* Inside a BLOCK of kr_blocking: run F(ARG), which calls Lisp through this interface, and go on waiting. [attached, may-gc] */
void kr_unblocking(kr_context *ctx, void (*f)(void *arg), void *arg);
/* Collect now. [attached, may-gc] */
void kr_collect(kr_context *ctx);

/* ---- real time: exchanging data with a thread that never waits ----
 *
 * A channel is a triple buffer, in which the reader finds the newest element, or a ring, in which it finds all in order. One side is Lisp (any
 * number of its threads), the other one C thread, which needs no context: its functions, marked [real-time], are wait-free,
 * and a thread that runs Lisp, or is stopped by a collection, never delays it. An element is a vector of doubles, which Lisp sees
 * as a float-vector, or a C struct, which Lisp sees as an instance of a class with the fields as slots. Elements lie outside the heap,
 * in memory that is touched when the channel is made. In Lisp: sys:rt-read, sys:rt-write, sys:rt-count. */
typedef struct kr_rt kr_rt;
typedef enum kr_rt_kind { KR_RT_TRIPLE, KR_RT_RING } kr_rt_kind;
typedef enum kr_rt_direction { KR_RT_TO_LISP, KR_RT_FROM_LISP } kr_rt_direction;
typedef enum kr_rt_type { KR_RT_DOUBLE, KR_RT_FLOAT, KR_RT_INT8, KR_RT_UINT8, KR_RT_INT16, KR_RT_UINT16, KR_RT_INT32, KR_RT_UINT32, KR_RT_INT64, KR_RT_BOOL } kr_rt_type;
typedef struct kr_rt_field {
    const char *name; /* of the slot */
    kr_rt_type type;
    size_t offset;    /* in the struct */
    size_t count;     /* 0 or 1: one number (of KR_RT_BOOL t or nil); more: an array, in Lisp a float-vector or integer-vector */
} kr_rt_field;
typedef struct kr_rt_config {
    kr_rt_kind kind;
    kr_rt_direction direction;
    size_t capacity;             /* of a ring; rounded up to a power of two */
    size_t doubles;              /* an element is so many doubles; or 0, and */
    const char *struct_name;     /* it is a struct: the class, defined if it is not yet */
    size_t struct_bytes;         /* sizeof */
    const kr_rt_field *fields;   /* copied */
    size_t field_count;
} kr_rt_config;
/* Make a channel; all elements are zero. KR_BAD_TYPE: the configuration is wrong. It is the caller's until kr_rt_free, and outlives that as long
 * as a Lisp object refers to it. [attached, may-gc] */
kr_status kr_rt_new(kr_context *ctx, const kr_rt_config *config, kr_rt **out);
/* Give it back; the C thread uses it no more. NULL is let through. [any, no-gc] */
void kr_rt_free(kr_rt *rt);
/* A Lisp object for it, of class sys:rt-channel; nil when memory is out. [attached, may-gc] */
kr_value kr_rt_value(kr_context *ctx, kr_rt *rt);
/* The C thread writes (KR_RT_FROM_LISP channels answer NULL and false): the element to fill, of a full ring NULL; what a triple buffer's holds is old.
 * Then publish; a full ring stays as it is. Or both at once, copying ELEMENT: false if the ring is full. [real-time] */
void *kr_rt_back(kr_rt *rt);
void kr_rt_publish(kr_rt *rt);
bool kr_rt_push(kr_rt *rt, const void *element);
/* The C thread reads (KR_RT_TO_LISP channels answer NULL and false): a triple buffer's newest element, or a ring's oldest, NULL if it is empty;
 * it stays as it is until the next kr_rt_front of a triple buffer, or kr_rt_release of a ring (of nothing if it is empty). *FRESH (or NULL): it was not seen
 * before. Or copied to ELEMENT and released: false if there was nothing new. [real-time] */
const void *kr_rt_front(kr_rt *rt, bool *fresh);
void kr_rt_release(kr_rt *rt);
bool kr_rt_pop(kr_rt *rt, void *element);
/* How many elements wait in a ring; of a triple buffer 1 if there is one not seen. [any, no-gc] */
size_t kr_rt_count(kr_rt *rt);

/* What a real-time thread asks of the system: 0, or the errno with which it was refused. [any, no-gc]
 * Lock the memory of the process as far as it is committed, and what will be; reserved address space stays uncommitted. */
int kr_rt_lock_memory(void);
/* Touch BYTES of the calling thread's stack below here, so that they are there; ENOMEM if the stack is smaller. */
int kr_rt_prefault_stack(size_t bytes);
/* Run the calling thread on processor CPU only. */
int kr_rt_set_affinity(unsigned cpu);
/* Schedule the calling thread as SCHED_FIFO with PRIORITY, 1 to 99; 0: as an ordinary thread again. */
int kr_rt_set_fifo(int priority);
/* No allocation from here, a checked mode: while it is ON, Lisp code of CTX that allocates gets the error allocation-forbidden, which ends
 * the mode. In Lisp: (sys:without-allocation form...). [attached, no-gc] */
void kr_forbid_allocation(kr_context *ctx, bool on);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
