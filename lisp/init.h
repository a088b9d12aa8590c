/* init.h -- what init.c ties together, and what only it needs of the other files. */
#ifndef KRI_LISP_INIT_H
#define KRI_LISP_INIT_H

#include "lisp/host.h"
#include "lisp/interp.h"
#include "lisp/karakuri.h"

struct kr_ref {
    size_t alive;               /* KRI_ALIVE; for misuse.c */
    kr_value value;
    struct kr_ref *next, *prev; /* guarded by vm->lock */
    struct kr_vm *vm;
};

#define TABLE(name) extern const struct kri_builtin *const kri_builtins_##name[];
#include "lisp/builtins.def"
#undef TABLE

bool kri_class_init_layouts(struct kr_vm *vm);
void kri_class_init(struct kri_worker *w);
void kri_classes_free(struct kr_vm *vm);
void kri_package_init_early(struct kr_vm *vm, struct kri_worker *w);
void kri_compile_init(struct kri_worker *w);
void kri_stream_init(struct kri_worker *w);
void kri_reader_init(struct kri_worker *w);
void kri_printer_init(struct kri_worker *w);
void kri_number_init(struct kri_worker *w);
void kri_system_init(struct kri_worker *w);
void kri_thread_init(struct kri_worker *w);
/* W is a thread of the pool and the VM is being freed: it is to unwind, NOW without its cleanup forms. */
enum kri_stopping { KRI_STOPPING_NOT, KRI_STOPPING, KRI_STOPPING_NOW };
enum kri_stopping kri_threads_stopping(struct kri_worker *w);
void kri_streams_finish(struct kri_worker *w);  /* flush what is open */
void kri_streams_close(struct kri_worker *w);   /* and close it, save the standard three */
void kri_threads_stop(struct kri_worker *w);    /* end all threads that Lisp made, and wait for them */
void kri_streams_after_fork(struct kri_worker *w); /* world stopped, in the child: nobody else is in a stream */
void kri_release_locks(struct kri_worker *w);   /* those that this context holds */
bool kri_bootstrap_functions(struct kri_worker *w); /* false: memory is out */
void kri_lock_outside(void *m);
/* No cleanup form between here and E is run; what C code left to be tidied is, as ever. */
void kri_forget_cleanups(struct kr_context *ctx, const struct kri_entry *e);
/* What finalizing V means: its finalizer function is called with it. */
void kri_run_finalizer(struct kri_worker *w, kr_value v);

/* Attach the calling thread, inside the gate; NULL when memory is out, or for a second context without exclusion. No value lies above
 * BASE on its stack (NULL: the stack's end, behind which thread-local storage may take much room). And the reverse. */
struct kr_context *kri_attach(struct kr_vm *vm, void *base);
void kri_detach(struct kr_context *ctx);

struct kri_core_load {
    const char *library;
};
kr_value kri_load_core(struct kri_worker *w, void *load); /* lisp/core.c */
/* Load FILE (an absolute or relative path), compiling each form; lisp/builtin_io.c. */
void kri_load_path(struct kri_worker *w, const char *path);

/* Raise CONDITION, which a protected call gave, as it is; nil: go on with the throw that the call stopped. */
_Noreturn void kri_pass_on(struct kri_worker *w, kr_value condition);
/* What a C program calls something: "foo" is in package user, "pkg:foo" and "pkg::foo" as the reader has them, ":foo" a keyword;
 * letters are upcased, save between bars. MAKE: "pkg:foo" need not be there; it becomes external. Raises NO_PACKAGE and kin. */
kr_value kri_symbol_named(struct kri_worker *w, const char *name, bool make);

/* The error message of CONDITION as the REPL shows it, and its backtrace; lisp/report.c. */
kr_value kri_condition_text(struct kri_worker *w, kr_value condition);
kr_value kri_backtrace_text(struct kri_worker *w, kr_value condition);
/* Print both on standard error. Raises nothing. */
void kri_report_error(struct kri_worker *w, kr_value condition, const char *where);

#endif
