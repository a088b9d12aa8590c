/* foreign.c -- foreign functions in a host: VMs with callbacks come and go; callbacks reach Lisp from threads that are attached, that are
 * not, and from below kr_blocking; an error in one that no foreign call waits for is printed and gives zero. */
#include <pthread.h>
#include <unistd.h>

#include "embed.h"

typedef long (*callback)(long);

static callback made(kr_context *ctx, const char *function)
{
    char text[400];
    snprintf(text, sizeof text, "(foreign-address (make-foreign-callback %s '(:long) :long))", function);
    return (callback)(uintptr_t)must_integer(ctx, text);
}

/* Where the modules are: a build for another architecture says it. */
static const char *library(void) { return getenv("KARAKURI_LIB") ? getenv("KARAKURI_LIB") : "lib"; }

struct caller {
    kr_vm *vm; /* attach to it, or NULL */
    callback f;
    long sum;
};

static void *call_it(void *arg)
{
    struct caller *c = arg;
    kr_context *ctx = c->vm ? kr_attach(c->vm) : NULL;
    for (long i = 0; i < 300; i++)
        c->sum += c->f(i);
    if (ctx)
        kr_detach(ctx);
    return NULL;
}

static void call_blocking(void *arg) { call_it(arg); }

static kr_value wait_and_call(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc, (void)argv;
    kr_blocking(ctx, call_blocking, user);
    return kr_nil();
}

static void life(bool markers)
{
    const kr_config config = {.library = library(), .heap_limit = 128 << 20, .stack_limit = 4 << 20, .markers = 1 + markers};
    kr_vm *vm;
    kr_context *ctx = must_new(&config, &vm);
    callback f = made(ctx, "#'(lambda (x) (if (= 0 (mod x 50)) (sys:gc)) (length (make-list x)))");
    struct caller c[3] = {{NULL, f, 0}, {vm, f, 0}, {NULL, f, 0}};
    pthread_t t[2];

    CHECK(f(7) == 7); /* from this thread, which is outside the gate */
    kr_define(ctx, "wait-and-call", "()", "", wait_and_call, &c[2]);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, call_it, &c[i]) == 0);
    must(ctx, "(wait-and-call)");
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 3; i++)
        CHECK(c[i].sum == 300 * 299 / 2);

    must(ctx, "(define-foreign c-qsort \"qsort\" ((base :buffer) (n :size) (size :size) (f (:callback (:pointer :pointer) :int))) :void)");
    kr_value v;
    CHECK(kr_eval_string(ctx, "(c-qsort #f(3 1 2) 3 8 #'(lambda (a b) (car 5)))", &v) == KR_ERROR && message_has(ctx, v, "list expected"));
    CHECK(kr_eval_string(ctx, "(catch 'out (c-qsort #f(3 1 2) 3 8 #'(lambda (a b) (throw 'out 5))))", &v) == KR_OK && prints(ctx, v, "5"));
    made(ctx, "#'(lambda (x) x)"); /* never freed: the VM's end does it */
    kr_vm_free(ctx);
}

/* Errors of callbacks that the host calls itself. */
static void nobody_waits(void)
{
    const kr_config config = {.library = library()};
    kr_context *ctx = must_new(&config, NULL);
    callback f = made(ctx, "#'(lambda (x) (error \"nobody waits\"))");
    pthread_t t;
    struct caller c = {NULL, f, 0};
    FILE *log = tmpfile();
    int saved = dup(2);
    CHECK(log && saved >= 0);
    dup2(fileno(log), 2);
    long here = f(3);
    CHECK(pthread_create(&t, NULL, call_it, &c) == 0);
    pthread_join(t, NULL);
    dup2(saved, 2);
    close(saved);
    CHECK(here == 0 && c.sum == 0);
    char line[300];
    rewind(log);
    CHECK(fgets(line, sizeof line, log) && strstr(line, "nobody waits"));
    fclose(log);
    kr_vm_free(ctx);
}

int main(void)
{
    if (access("lib/ffcall.so", R_OK) != 0) {
        puts("no lib/ffcall.so: nothing to test");
        return 0;
    }
    for (int i = 0; i < 12; i++)
        life(i & 1);
    nobody_waits();
    return 0;
}
