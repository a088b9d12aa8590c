/* target.c -- the entry for libFuzzer, and for AFL++ through its driver for the same. The first byte of an input says what happens
 * to the rest: it is read and printed (r), or evaluated (anything else). A VM serves REUSE inputs, or as many as the environment's
 * FUZZ_REUSE says: 1 makes a crash depend on its input alone. See README. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "karakuri.h"

enum { HEAP = 64 << 20, MILLISECONDS = 300, REUSE = 200 };

/* What would end, block or leave the process. */
static const char setup[] =
    "(progn (do-symbols (s \"UNIX\") (if (eq (symbol-package s) (find-package \"UNIX\")) (fmakunbound s)))"
    " (dolist (s '(exit load require open directory probe-file sys:make-thread sys:thread sys:thread-no-wait sys::free-threads lisp::%load)) (fmakunbound s))"
    " (setq *standard-output* (make-string-output-stream) *error-output* *standard-output* *standard-input* (make-string-input-stream \"\"))"
    " (setq *print-length* 100 *print-level* 100))";
static const char reading[] =
    "(defun fuzz-read (text) (let ((in (make-string-input-stream text)) (eof (list nil)) x)"
    " (until (eq (setq x (read in nil eof)) eof) (let ((*print-circle* t)) (read-from-string (prin1-to-string x))))))";

/* Interrupts what takes too long, again and again: handlers may go on. */
struct watch {
    kr_context *ctx;
    pthread_mutex_t lock;
    pthread_cond_t done;
    int over;
};

static void *watch(void *arg)
{
    struct watch *w = arg;
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        until.tv_nsec += MILLISECONDS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (pthread_cond_timedwait(&w->done, &w->lock, &until) != 0 && !w->over)
            kr_interrupt(w->ctx);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void run(kr_context *ctx, const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), report[1000];
    kr_value v;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (data[0] == 'r') {
        v = kr_bytes(ctx, text, size - 1);
        kr_call(ctx, "fuzz-read", 1, &v, NULL);
    } else if (kr_eval_string(ctx, text, &v) == KR_ERROR) {
        kr_error_message(ctx, v, report, sizeof report);
        kr_error_backtrace(ctx, v, report, sizeof report);
    } else {
        kr_print(ctx, v, report, sizeof report);
    }
    free(text);
}

static kr_vm *vm;
static kr_context *ctx;
static unsigned age; /* inputs that the VM has seen */

/* The VM for the next input; NULL if there is none. */
static kr_context *vm_for_input(void)
{
    const kr_config config = {.heap_limit = HEAP, .stack_limit = 4 << 20, .markers = 1, .stress = 500};
    const char *reuse = getenv("FUZZ_REUSE");

    if (ctx && ++age >= (reuse ? strtoul(reuse, NULL, 10) : REUSE)) {
        kr_vm_free(ctx);
        ctx = NULL;
    }
    if (!ctx) {
        age = 0;
        if (kr_vm_new(&config, &vm, &ctx) != KR_OK)
            return NULL;
        if (kr_eval_string(ctx, setup, NULL) != KR_OK || kr_eval_string(ctx, reading, NULL) != KR_OK)
            abort();
    }
    return ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct watch w = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    pthread_t thread;

    if (size == 0 || !(w.ctx = vm_for_input()))
        return 0;
    size_t scope = kr_scope_begin(ctx);
    if (pthread_create(&thread, NULL, watch, &w) != 0)
        abort();
    run(ctx, data, size);
    pthread_mutex_lock(&w.lock);
    w.over = 1;
    pthread_cond_signal(&w.done);
    pthread_mutex_unlock(&w.lock);
    pthread_join(thread, NULL);
    kr_scope_end(ctx, scope);
    return 0;
}
