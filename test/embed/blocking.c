/* blocking.c -- a C function that waits keeps no collection waiting; it may call Lisp from where it waits. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "embed.h"

static kr_vm *vm;
static int to_block[2], from_block[2];
static atomic_int collections;

static void wait_for_byte(void *arg)
{
    char c;
    CHECK(write(from_block[1], "b", 1) == 1);
    CHECK(read(to_block[0], &c, 1) == 1);
    *(char *)arg = c;
}

/* (wait-byte): blocks until the host writes; its locals live through the collections meanwhile. */
static kr_value wait_byte(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)argv;
    (void)user;
    char c = 0;
    kr_value before = kr_list(ctx, 2, (kr_value[]){kr_string(ctx, "before"), kr_real(ctx, 1e-300)});
    kr_blocking(ctx, wait_for_byte, &c);
    kr_value after = kr_bytes(ctx, &c, 1);
    return kr_list(ctx, 2, (kr_value[]){before, after});
}

/* Another thread collects and allocates while the first one waits, then lets it go on. */
static void *collector(void *arg)
{
    (void)arg;
    char c;
    kr_context *ctx = kr_attach(vm);
    CHECK(ctx);
    CHECK(read(from_block[0], &c, 1) == 1);
    for (int i = 0; i < 20; i++) {
        kr_collect(ctx);
        must(ctx, "(let ((l nil)) (dotimes (i 20000) (push (list \"garbage\" 1e-300) l)) (length l))");
        atomic_fetch_add(&collections, 1);
    }
    CHECK(write(to_block[1], "x", 1) == 1);
    kr_detach(ctx);
    return NULL;
}

struct event_loop {
    kr_context *ctx;
    kr_value handler;
    int handled;
    bool failed;
};

static void call_handler(void *arg)
{
    struct event_loop *e = arg;
    kr_value n = kr_integer(e->ctx, e->handled);
    e->failed = kr_funcall(e->ctx, e->handler, 1, &n, NULL) != KR_OK;
    kr_collect(e->ctx);
}

/* A loop that waits for events outside and has Lisp handle each, until the handler fails. */
static void loop_outside(void *arg)
{
    struct event_loop *e = arg;
    for (; !e->failed; e->handled++)
        kr_unblocking(e->ctx, call_handler, e);
}

/* The same by calling the interface directly. */
static void loop_plainly(void *arg)
{
    struct event_loop *e = arg;
    for (; !e->failed; e->handled++)
        call_handler(e);
}

static kr_value events(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    struct event_loop e = {.ctx = ctx, .handler = argv[0]};
    kr_value mine = kr_list(ctx, 1, (kr_value[]){kr_string(ctx, "still here")});
    kr_blocking(ctx, user ? loop_outside : loop_plainly, &e);
    must(ctx, "(let ((l nil)) (dotimes (i 20000) (push (list 1 2) l)) (length l))");
    CHECK(prints(ctx, mine, "(\"still here\")"));
    return kr_integer(ctx, e.handled);
}

static void raise_outside(void *arg) { kr_raise(arg, "from below"); }

static kr_value raise_below(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)argv;
    (void)user;
    kr_blocking(ctx, raise_outside, ctx);
    return kr_nil();
}

static void count(void *arg) { ++*(int *)arg; }

int main(void)
{
    kr_context *ctx = must_new(NULL, &vm);
    pthread_t t;
    CHECK(pipe(to_block) == 0 && pipe(from_block) == 0);
    CHECK(kr_define(ctx, "wait-byte", "()", NULL, wait_byte, NULL) == KR_OK);
    CHECK(pthread_create(&t, NULL, collector, NULL) == 0);
    CHECK(prints(ctx, must(ctx, "(let ((x (list 1 2))) (list x (wait-byte)))"), "((1 2) ((\"before\" 1.000000e-300) \"x\"))"));
    CHECK(atomic_load(&collections) == 20);
    pthread_join(t, NULL);
    static int unblocking = 1;
    CHECK(kr_define(ctx, "events", "(handler)", NULL, events, &unblocking) == KR_OK);
    CHECK(must_integer(ctx, "(events #'(lambda (n) (if (= n 50) (error \"enough\") (make-list 1000))))") == 51);
    CHECK(kr_define(ctx, "events", "(handler)", NULL, events, NULL) == KR_OK);
    CHECK(must_integer(ctx, "(events #'(lambda (n) (if (= n 50) (error \"enough\") (make-list 1000))))") == 51);
    CHECK(must_integer(ctx, "(catch 'out (events #'(lambda (n) (throw 'out 99))))") == 1); /* the throw ends in kr_funcall */
    CHECK(kr_define(ctx, "raise-below", "()", NULL, raise_below, NULL) == KR_OK);
    CHECK(prints(ctx, must(ctx, "(handler-case (raise-below) (error () 'caught))"), "caught"));
    must(ctx, "(dotimes (i 100) (handler-case (raise-below) (error () nil)) (if (= 0 (mod i 10)) (sys:gc)))");
    /* From where nothing is to be left. */
    int n = 0;
    kr_blocking(ctx, count, &n);
    kr_unblocking(ctx, count, &n);
    CHECK(n == 2 && must_integer(ctx, "(+ 1 2)") == 3);
    kr_vm_free(ctx);
    return 0;
}
