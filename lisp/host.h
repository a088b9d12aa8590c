/* host.h -- what a VM keeps of its host: hooks, the watchdog of budgets, and the checks of debug mode. */
#ifndef KRI_LISP_HOST_H
#define KRI_LISP_HOST_H

#include <sys/types.h>
#include "lisp/karakuri.h"
#include "lisp/vm.h"

struct kri_watchdog;

struct kri_host {
    kr_hooks hooks;                  /* constant */
    void *user;                      /* constant */
    uint64_t serial;                 /* constant: no two VMs of a process have the same */
    pid_t process;                   /* whose threads use the VM; another one in a child of unix:fork */
    kri_atomic foreign_count;        /* foreign data made and not finalized */
    pthread_mutex_t watchdog_lock;   /* guards the next */
    struct kri_watchdog *watchdog;   /* the thread that looks after budgets; NULL: none was needed */
};

/* ---- output and input: true if a hook served (outside the gate) ---- */
bool kri_host_output(struct kr_vm *vm, int fd, const char *text, size_t n);

/* ---- capabilities (capability.c) ---- */
/* Raise capability-denied unless Lisp code may use CAPABILITY (KR_FILES ...). */
void kri_need(struct kri_worker *w, unsigned capability);
/* Is Lisp code kept from one of CAPABILITIES? */
bool kri_is_denied(struct kri_worker *w, unsigned capabilities);
/* What calling the builtin NAME ("unix:unlink") takes; 0: nothing. */
unsigned kri_capability_of(const char *name);
/* Stands before a builtin that takes a capability. */
kr_value kri_guarded_call(struct kri_worker *w, int argc, kr_value *argv);

/* ---- budgets (budget.c) ---- */
void kri_budget_poll(struct kri_worker *w);                /* hooks.budget */
void kri_budget_after_gc(struct kri_worker *w);            /* looks whether what lives is more than budgets allow */
void kri_budget_memory(struct kri_worker *w);              /* W was refused memory */
void kri_budget_inherit(struct kr_context *from, struct kr_context *to);
void kri_budget_drop(struct kr_context *ctx);              /* what runs in CTX ends */
void kri_watchdog_stop(struct kr_vm *vm);                  /* no context is left */

/* ---- foreign data (api_foreign.c) ---- */
void kri_foreign_finalize(struct kri_worker *w, kr_value cell); /* a %foreign cell died */
void kri_foreign_finalize_all(struct kri_worker *w);            /* the VM ends */

/* ---- the calling thread's contexts (api_thread.c) ---- */
uint64_t kri_vm_serial(void);
bool kri_vm_enlist(struct kr_vm *vm);                       /* VM lives; false: memory is out */
void kri_vm_delist(struct kr_vm *vm);
bool kri_current_note(struct kr_context *ctx);             /* CTX is the calling thread's, for kr_current; false: memory is out */
void kri_current_forget(struct kr_context *ctx);           /* CTX is being detached, on its own thread */
/* The hooks; inside the gate. */
void kri_thread_started(struct kr_context *ctx);
void kri_thread_stopping(struct kr_context *ctx);
void kri_current_release(struct kr_vm *vm, struct kr_context *but); /* the VM ends: contexts of kr_current go */

/* ---- misuse (misuse.c) ---- */
enum { KRI_ALIVE = 0x6b61726b };
extern kri_atomic kri_checking;  /* some VM was made with kr_config.check */
void kri_check_context(kr_context *ctx, const char *function);
void kri_check_vm(kr_vm *vm, const char *function);
void kri_check_last(kr_context *ctx, const char *function);
void kri_check_ref(const kr_ref *ref, const char *function);
void kri_check_value(kr_context *ctx, kr_value v, const char *function, int argument);
void kri_check_text(struct kr_vm *vm, const char *text, const char *function, int argument);
void kri_check_arguments(kr_context *ctx, int argc, const kr_value *argv, const char *function);
/* What unwinds needs something to unwind to. */
void kri_check_inside(kr_context *ctx, const char *function);
_Noreturn void kri_misuse(struct kr_vm *vm, const char *function, const char *message);
/* Free a struct that the host holds a pointer to. While checking it is kept, marked dead. */
void kri_forget(void *p);
static inline bool kri_is_checking(void) { return KRI_UNLIKELY(kri_load_relaxed(&kri_checking) != 0); }

#define KRI_CHECK_CONTEXT(ctx) (kri_is_checking() ? kri_check_context(ctx, __func__) : (void)0)
#define KRI_CHECK_VM(vm) (kri_is_checking() ? kri_check_vm(vm, __func__) : (void)0)
#define KRI_CHECK_TEXT(ctx, text, i) (kri_is_checking() ? kri_check_text((ctx)->vm, text, __func__, i) : (void)0)
#define KRI_CHECK_ARGUMENTS(ctx, argc, argv) (kri_is_checking() ? kri_check_arguments(ctx, argc, argv, __func__) : (void)0)
#define KRI_CHECK_INSIDE(ctx) (kri_is_checking() ? kri_check_inside(ctx, __func__) : (void)0)
#define KRI_CHECK_VALUE(ctx, v, i) (kri_is_checking() ? kri_check_value(ctx, v, __func__, i) : (void)0)

#endif
