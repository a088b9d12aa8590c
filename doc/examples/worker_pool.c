/* worker_pool.c -- threads of the host take jobs from a queue and call one Lisp function in one VM, at the same time.
 *
 * The threads are the host's and know nothing of Lisp: kr_current attaches each when it calls the first time, and its end detaches
 * it. The function is found once and held by a handle. */
#include <pthread.h>
#include <stdio.h>
#include "karakuri.h"

enum { WORKERS = 4, JOBS = 40 };

static struct {
    pthread_mutex_t lock;
    int next;
    int64_t result[JOBS];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kr_vm *vm;
static kr_ref *collatz;

static int take_job(void)
{
    pthread_mutex_lock(&queue.lock);
    int job = queue.next < JOBS ? queue.next++ : -1;
    pthread_mutex_unlock(&queue.lock);
    return job;
}

/* What a library calls from some thread of its own. */
static int64_t steps(int64_t n)
{
    kr_context *ctx = kr_current(vm);
    kr_value v;
    if (!ctx)
        return -1;
    size_t scope = kr_scope_begin(ctx);
    kr_value argument = kr_integer(ctx, n);
    if (kr_funcall(ctx, kr_ref_value(collatz), 1, &argument, &v) != KR_OK || kr_to_integer(ctx, v, &n) != KR_OK)
        n = -1;
    kr_scope_end(ctx, scope);
    return n;
}

static void *work(void *arg)
{
    (void)arg;
    for (int job; (job = take_job()) >= 0;)
        queue.result[job] = steps(job + 1);
    return NULL;
}

int main(void)
{
    kr_context *ctx;
    kr_value fn;
    pthread_t worker[WORKERS];
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK)
        return 1;
    if (kr_eval_string(ctx, "(defun collatz (n) (let ((i 0)) (while (> n 1) (setq n (if (evenp n) (/ n 2) (+ 1 (* 3 n))) i (1+ i))) i)) #'collatz", &fn) != KR_OK)
        return 1;
    collatz = kr_ref_new(ctx, fn);
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&worker[i], NULL, work, NULL);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(worker[i], NULL);
    for (int i = 0; i < JOBS; i++)
        printf("%d%s", (int)queue.result[i], i % 10 == 9 ? "\n" : " ");
    kr_unref(ctx, collatz);
    kr_vm_free(ctx);
    return 0;
}
