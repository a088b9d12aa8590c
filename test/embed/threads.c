/* threads.c -- threads of the host attach, evaluate, allocate and detach, all at once, while Lisp's own threads run and the world is
 * collected. */
#include <pthread.h>
#include <stdatomic.h>

#include "embed.h"

enum { THREADS = 8, ROUNDS = 12 };

static kr_vm *vm;
static kr_ref *shared;
static atomic_int finished, host_calls;

static kr_value host_id(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)argv;
    (void)user;
    return kr_integer(ctx, atomic_fetch_add(&host_calls, 1));
}

static void work(kr_context *ctx, int id)
{
    char text[200];
    kr_value v;
    size_t scope = kr_scope_begin(ctx);
    CHECK(must_integer(ctx, "(length (build 4000))") == 4000);
    /* Values that only the host holds, between two calls. */
    kr_value mine[20];
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "%d/%d", id, i);
        mine[i] = kr_string(ctx, text);
    }
    must(ctx, "(build 10000)");
    kr_value list = kr_list(ctx, 20, mine);
    CHECK(kr_call(ctx, "length", 1, &list, &v) == KR_OK && prints(ctx, v, "20"));
    for (int i = 0; i < 20; i++) {
        char *p;
        size_t n;
        snprintf(text, sizeof text, "%d/%d", id, i);
        CHECK(kr_to_bytes(ctx, mine[i], &p, &n) == KR_OK && strcmp(p, text) == 0);
    }
    kr_ref *kept = kr_ref_new(ctx, list);
    kr_scope_end(ctx, scope);
    /* Each thread has its bindings, all have the globals. */
    snprintf(text, sizeof text, "(let ((*mine* %d)) (build 3000) *mine*)", id);
    CHECK(must_integer(ctx, text) == id);
    must(ctx, "(sys:mutex-lock *lock*) (setq *count* (+ *count* 1)) (sys:mutex-unlock *lock*)");
    snprintf(text, sizeof text, "(defun f%d (x) (list x %d)) (cadr (f%d 1))", id, id, id);
    CHECK(must_integer(ctx, text) == id);
    snprintf(text, sizeof text, "(intern \"SYMBOL-%d\")", id);
    must(ctx, text);
    CHECK(kr_eval_string(ctx, "(car (host-id))", &v) == KR_ERROR && message_has(ctx, v, "list expected"));
    CHECK(must_integer(ctx, "(sys:wait-thread (sys:thread #'(lambda () (length (build 1000)))))") == 1000);
    CHECK(kr_funcall(ctx, kr_ref_value(shared), 0, NULL, &v) == KR_OK && prints(ctx, v, "shared"));
    if (id % 3 == 0)
        kr_collect(ctx);
    CHECK(kr_call(ctx, "length", 1, (kr_value[]){kr_ref_value(kept)}, &v) == KR_OK && prints(ctx, v, "20"));
    kr_unref(ctx, kept);
    kr_scope_end(ctx, scope);
}

static void *thread(void *arg)
{
    int id = *(int *)arg;
    for (int round = 0; round < ROUNDS; round++) {
        kr_context *ctx = kr_attach(vm);
        CHECK(ctx && kr_context_vm(ctx) == vm);
        work(ctx, id);
        if (round % 2)
            work(ctx, id);
        kr_detach(ctx);
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* A thread that detaches with a lock in its hand does not keep it. */
static void *lock_and_go(void *arg)
{
    (void)arg;
    kr_context *ctx = kr_attach(vm);
    CHECK(ctx);
    must(ctx, "(sys:mutex-lock *lock*)");
    kr_detach(ctx);
    return NULL;
}

/* One that is attached and does nothing keeps nobody. */
static void *idle(void *arg)
{
    (void)arg;
    kr_context *ctx = kr_attach(vm);
    CHECK(ctx);
    atomic_fetch_add(&finished, 1);
    while (atomic_load(&finished) < THREADS + 1)
        ;
    kr_detach(ctx);
    return NULL;
}

int main(void)
{
    kr_context *ctx = must_new(NULL, &vm);
    must(ctx, "(defvar *mine* 0) (setq *count* 0 *lock* (sys:make-mutex-lock))"
              "(defun build (n) (let ((l nil)) (dotimes (i n) (push (cons i (float-vector i i i)) l)) l))");
    CHECK(kr_define(ctx, "host-id", "()", NULL, host_id, NULL) == KR_OK);
    shared = kr_ref_new(ctx, must(ctx, "#'(lambda () 'shared)"));
    pthread_t t[THREADS], other;
    int id[THREADS];
    CHECK(pthread_create(&other, NULL, idle, NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        id[i] = i;
        CHECK(pthread_create(&t[i], NULL, thread, &id[i]) == 0);
    }
    /* The first thread works along. */
    while (atomic_load(&finished) < THREADS + 1)
        CHECK(must_integer(ctx, "(length (build 2000))") == 2000);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    pthread_join(other, NULL);
    CHECK(must_integer(ctx, "*count*") == THREADS * (ROUNDS + ROUNDS / 2));
    CHECK(pthread_create(&other, NULL, lock_and_go, NULL) == 0);
    pthread_join(other, NULL);
    CHECK(must_integer(ctx, "(if (sys:mutex-trylock *lock*) 1 0)") == 1);
    CHECK(prints(ctx, must(ctx, "(sys:heap-check)"), "t"));
    kr_vm_free(ctx);
    return 0;
}
