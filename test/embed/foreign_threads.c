/* foreign_threads.c -- threads of unknown origin call in at once, and come and go; what is left when the VM ends is cleared up. */
#include <pthread.h>
#include "embed.h"

enum { THREADS = 8, CALLS = 300 };

static kr_vm *vm;
static kr_value called(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    kr_value v;
    (void)user;
    CHECK(kr_current(vm) == ctx); /* a callback finds its own */
    CHECK(kr_call(ctx, "list", argc, argv, &v) == KR_OK);
    return v;
}

static void *work(void *arg)
{
    int64_t n;
    for (int i = 0; i < CALLS; i++) {
        kr_context *ctx = kr_current(vm);
        CHECK(ctx);
        size_t scope = kr_scope_begin(ctx);
        kr_value argv[2] = {kr_integer(ctx, i), kr_string(ctx, "text")}, v;
        CHECK(kr_call(ctx, "work", 2, argv, &v) == KR_OK && kr_to_integer(ctx, v, &n) == KR_OK && n == i + 4);
        kr_scope_end(ctx, scope);
    }
    return arg;
}

static pthread_barrier_t both;
static void *linger(void *arg)
{
    CHECK(kr_current(vm));
    pthread_barrier_wait(&both); /* attached */
    pthread_barrier_wait(&both); /* the VM is gone */
    return arg;
}

int main(void)
{
    kr_context *ctx = must_new(NULL, &vm);
    pthread_t t[THREADS];
    kr_define(ctx, "back", "(a b)", "Both as a list.", called, NULL);
    must(ctx, "(defun work (i s) (let ((l (back i s))) (dotimes (k 20) (make-string 100)) (+ (car l) (length (cadr l)))))");
    CHECK(kr_current(vm) == ctx);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < THREADS; i++)
            pthread_create(&t[i], NULL, work, NULL);
        must(ctx, "(dotimes (i 10) (sys:gc))");
        for (int i = 0; i < THREADS; i++)
            pthread_join(t[i], NULL);
    }
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&t[0], NULL, linger, NULL);
    pthread_barrier_wait(&both);
    kr_vm_free(ctx);
    pthread_barrier_wait(&both);
    pthread_join(t[0], NULL);

    ctx = must_new(NULL, &vm); /* perhaps at the same address */
    must(ctx, "(defun work (i s) (+ i (length s)))");
    pthread_create(&t[0], NULL, work, NULL);
    pthread_join(t[0], NULL);
    kr_vm_free(ctx);
    return 0;
}
