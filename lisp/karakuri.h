/* karakuri.h -- the whole embedding interface; a host includes nothing else.
 *
 * Nothing here unwinds through the host's frames: a Lisp error comes back as KR_ERROR with its condition. Tags:
 *   [any]       from any thread
 *   [attached]  from the thread that CTX was attached by, on its vm
 *   [no-gc]     cannot collect       [may-gc] may stop the world and collect
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

#define KR_VERSION "0.1.0"
#define KR_ABI_VERSION 1

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
    KR_BAD_TYPE    /* the value is not of the type asked for, or the configuration is wrong */
} kr_status;

typedef enum kr_alloc {
    KR_ALLOC_GATE,   /* local bases, readers pay nothing (default) */
    KR_ALLOC_RWLOCK, /* local bases, a POSIX reader/writer lock around each allocation */
    KR_ALLOC_MUTEX,  /* the global base under one mutex */
    KR_ALLOC_NONE    /* no exclusion: one context only */
} kr_alloc;

/* Zero everywhere means the default. */
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
} kr_config;

/* KR_ABI_VERSION of the library that is linked. [any, no-gc] */
int kr_abi_version(void);

/* Make a VM and attach the calling thread to it. On success *VM and *CTX are set. CONFIG may be NULL. Otherwise nothing is left
 * behind; KR_ERROR: the core library could not be loaded, and standard error says why. [any] */
kr_status kr_vm_new(const kr_config *config, kr_vm **vm, kr_context **ctx);
/* Detach CTX, the last context attached, and release everything. Threads that Lisp made are stopped first: their cleanup forms run,
 * for a second at most; one that is within a system call of unknown length (a command, a write to a full pipe) is waited for. Not from within a
 * kr_function. [attached] */
void kr_vm_free(kr_context *ctx);
/* Attach the calling thread to VM, once at a time; NULL when memory is out, or for a second context under KR_ALLOC_NONE. It must
 * keep to the stack that it has now. [any] */
kr_context *kr_attach(kr_vm *vm);
/* Detach the calling thread; releases the mutex locks it holds. Not from within a kr_function. [attached] */
void kr_detach(kr_context *ctx);
kr_vm *kr_context_vm(kr_context *ctx);

/* Values handed out between begin and end are dropped at the end. Scopes nest. [attached, no-gc] */
size_t kr_scope_begin(kr_context *ctx);
void kr_scope_end(kr_context *ctx, size_t scope);
/* Keep V alive until kr_unref; NULL when memory is out. [attached, no-gc] */
kr_ref *kr_ref_new(kr_context *ctx, kr_value v);
kr_value kr_ref_value(const kr_ref *ref);
void kr_unref(kr_context *ctx, kr_ref *ref);

/* The next five may be nested in a kr_function. An error in them comes back to it and not to handlers of the Lisp code around it;
 * kr_reraise passes it on.
 * Read and evaluate all forms of TEXT, which is not kept. *OUT receives the last value, or on KR_ERROR the condition. OUT may
 * be NULL. [attached, may-gc] */
kr_status kr_eval_string(kr_context *ctx, const char *text, kr_value *out);
/* Load the file PATH (sought along *load-path*). [attached, may-gc] */
kr_status kr_load_file(kr_context *ctx, const char *path, kr_value *out);
/* Call the function that NAME names. [attached, may-gc] */
kr_status kr_call(kr_context *ctx, const char *name, int argc, const kr_value *argv, kr_value *out);
/* Call FN, a function or symbol. [attached, may-gc] */
kr_status kr_funcall(kr_context *ctx, kr_value fn, int argc, const kr_value *argv, kr_value *out);
/* Send OBJECT the message SELECTOR ("init" for :init). [attached, may-gc] */
kr_status kr_send(kr_context *ctx, kr_value object, const char *selector, int argc, const kr_value *argv, kr_value *out);

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

/* Reading values: KR_BAD_TYPE if V is something else, or an integer beyond 64 bits. kr_to_real takes any real number.
 * [attached, no-gc; kr_to_real of a ratio may-gc] */
kr_status kr_to_integer(kr_context *ctx, kr_value v, int64_t *n);
kr_status kr_to_real(kr_context *ctx, kr_value v, double *d);
/* The bytes of a string, or the elements of a float-vector, in place: cells never move, so the pointer is good as long as
 * the value is alive. Strings have a zero byte behind the last. */
kr_status kr_to_bytes(kr_context *ctx, kr_value v, char **bytes, size_t *n);
kr_status kr_to_reals(kr_context *ctx, kr_value v, double **elements, size_t *n);
/* Print V as prin1 would, at most SIZE - 1 bytes and a zero byte; returns the length of the whole text. [attached, may-gc] */
size_t kr_print(kr_context *ctx, kr_value v, char *buffer, size_t size);
/* The message of a condition, as the REPL prints it, likewise. [attached, may-gc] */
size_t kr_error_message(kr_context *ctx, kr_value condition, char *buffer, size_t size);
/* The condition's backtrace, one line a frame, likewise. [attached, may-gc] */
size_t kr_error_backtrace(kr_context *ctx, kr_value condition, char *buffer, size_t size);

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

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
