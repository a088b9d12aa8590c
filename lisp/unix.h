/* unix.h -- what the files of package UNIX share: results as EusLisp gives them, descriptors, waits that can be interrupted.
 *
 * Note [waiting]
 * A call that may wait is made so that it does not: a descriptor is polled first, a lock or message is tried for. What is not there
 * yet is waited for outside the gate for a tenth of a second at most, then the worker polls: a collection goes on meanwhile, and
 * interrupts from other threads, which are no signals, are seen. A signal ends the wait at once and runs its handler. */
#ifndef KRI_LISP_UNIX_H
#define KRI_LISP_UNIX_H

#include <sys/types.h>
#include "lisp/vm.h"

/* Keep ERROR, an errno, for unix:errno. Returns minus ERROR, or -1 (EusLisp gives only that for some functions), as Lisp's number. */
kr_value kri_unix_error(int error);
kr_value kri_unix_minus_one(int error);
/* N, or if it is negative minus ERROR. */
static inline kr_value kri_unix_result(intptr_t n, int error) { return n < 0 ? kri_unix_error(error) : kri_fixnum(n); }
/* Argument I as a C int (unsigned numbers of 32 bits included), or the error RANGE. */
int kri_arg_int(struct kri_worker *w, const kr_value *argv, int i);
/* Argument I as a file descriptor: a number, that of a stream, or what its method :infd (:outfd) tells. */
int kri_arg_descriptor(struct kri_worker *w, const kr_value *argv, int i, bool input);
/* Argument I, a string (or foreign string), as bytes. The cell must stay reachable. */
unsigned char *kri_arg_bytes(struct kri_worker *w, const kr_value *argv, int i, size_t *length);

/* ---- waits: see Note [waiting]. They poll, so they may run Lisp and raise ---- */
enum { KRI_LOOK_UP_MS = 100 };
/* The monotonic clock in nanoseconds; and when SECONDS (a number >= 0; NIL: never) will have passed: INT64_MAX for never. */
int64_t kri_now(void);
int64_t kri_arg_deadline(struct kri_worker *w, const kr_value *argv, int i);
/* Sleep until DEADLINE or for a tenth of a second, whichever is first; then poll. */
void kri_wait_until(struct kri_worker *w, int64_t deadline);
/* Wait until FD is ready for EVENTS (of poll(2)), or DEADLINE. Errors of FD count as ready. False: time is up. */
bool kri_wait_descriptor(struct kri_worker *w, int fd, short events, int64_t deadline);
/* Call F(arg) outside the gate until it returns something else than EAGAIN or EINTR, an errno or 0. Between two calls, wait for
 * FD as above, or, if FD is -1, for a while that grows from 1 to 20 ms. */
int kri_unix_try(struct kri_worker *w, int (*f)(void *arg), void *arg, int fd, short events);

/* ---- processes and signals ---- */
/* fork(2): the child goes on with the calling thread only. -1 and errno on failure. lisp/builtin_thread.c */
int kri_fork(struct kri_worker *w);
/* In the child: there are no children yet. In the parent: one was made that belongs to the program. lisp/builtin_process.c */
void kri_children_after_fork(void);
void kri_children_forked(void);
/* Programs that Karakuri runs for itself and waits for. Each leads a process group of its own. May be called outside the gate. */
struct kri_child {
    pid_t pid;
    int pidfd;  /* readable when it has ended; -1 where there are none */
    int status; /* as waitpid tells it */
};
/* Run ARGV with descriptors INPUT and OUTPUT, the latter for errors too. 0 or an errno. Whoever starts a child looks at it until it has ended. */
int kri_child_start(char **argv, int input, int output, struct kri_child *child);
/* 0 if CHILD has ended, which is so once; EAGAIN if it runs; else an errno. */
int kri_child_look(struct kri_child *child);
/* In the child: signals go to W, the only worker; its thread takes them. lisp/signal.c */
void kri_signals_after_fork(struct kri_worker *w);
/* A process is about to run another program: what this one ignores for its own sake is not ignored there. And the reverse. */
struct kri_dispositions {
    void (*pipe)(int);
    bool changed;
};
void kri_signals_before_exec(struct kri_dispositions *d);
void kri_signals_after_exec(const struct kri_dispositions *d);
/* W is going: its signals go to another thread of the VM, or have their former effect again. */
void kri_signals_forget(struct kri_worker *w);
/* Run the handlers of the signals that have come for W. The heap's hook. */
void kri_signals_deliver(struct kri_worker *w);

#endif
