/* hooks.c -- the host hears of threads, collections, errors and output, feeds input, and gives the memory. */
#include <pthread.h>
#include <sys/mman.h>
#include "embed.h"

static struct {
    pthread_mutex_t lock;
    int started, stopped, collections, errors;
    char out[1000], err[1000];
    size_t mapped;
    char *user;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void started(kr_context *ctx, void *user)
{
    CHECK(user == &seen && kr_context_vm(ctx));
    pthread_mutex_lock(&seen.lock);
    seen.started++;
    pthread_mutex_unlock(&seen.lock);
}
static void stopped(kr_context *ctx, void *user)
{
    (void)ctx, (void)user;
    pthread_mutex_lock(&seen.lock);
    seen.stopped++;
    pthread_mutex_unlock(&seen.lock);
}
static void collection(kr_context *ctx, const kr_collection *c, void *user)
{
    (void)user;
    CHECK(c->number > 0 && c->live_bytes > 0 && c->heap_bytes >= c->live_bytes && c->pause_ns > 0);
    CHECK(must_integer(ctx, "(+ 1 2)") == 3); /* it may run Lisp */
    kr_raise(ctx, "goes nowhere");
    seen.collections++;
}
static void error(kr_context *ctx, kr_value condition, void *user)
{
    char text[500];
    (void)user;
    seen.errors++;
    kr_error_message(ctx, condition, text, sizeof text);
    if (strstr(text, "again"))
        kr_raise(ctx, "in the hook"); /* is not told again */
}
static void output(kr_output_stream which, const char *text, size_t n, void *user)
{
    (void)user;
    strncat(which == KR_OUTPUT ? seen.out : seen.err, text, n);
}
static size_t input(char *text, size_t n, void *user)
{
    static int lines;
    (void)user;
    return lines++ < 2 ? (size_t)snprintf(text, n, "(line %d)\n", lines) : 0;
}

static void *map(void *user, size_t bytes, size_t alignment)
{
    char *p = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)p & (alignment - 1);
    if (before)
        munmap(p, before);
    munmap(p + before + bytes, alignment - before);
    *(size_t *)user += bytes;
    return p + before;
}
static void unmap(void *user, void *memory, size_t bytes)
{
    *(size_t *)user -= bytes;
    munmap(memory, bytes);
}

static void *host_thread(void *vm)
{
    kr_context *ctx = kr_attach(vm);
    CHECK(ctx);
    kr_detach(ctx);
    return NULL;
}

int main(void)
{
    const kr_config config = {.hooks = {started, stopped, collection, error, output, input, NULL}, .user = &seen, .memory = {map, unmap, &seen.mapped}};
    kr_vm *vm;
    pthread_t t;
    kr_context *ctx = must_new(&config, &vm);
    kr_value v;
    CHECK(kr_vm_user(vm) == &seen && seen.started == 1 && seen.mapped >= 2 << 20);
    pthread_create(&t, NULL, host_thread, vm);
    pthread_join(t, NULL);
    CHECK(seen.started == 2 && seen.stopped == 1);
    CHECK(must_integer(ctx, "(sys:wait-thread (sys:thread #'+ 1 2))") == 3 && seen.started == 3);

    must(ctx, "(dotimes (i 3) (sys:gc))");
    must(ctx, "(dotimes (i 3) i)");
    CHECK(seen.mapped >= 2 << 20);

    CHECK(kr_eval_string(ctx, "(car 5)", &v) == KR_ERROR && seen.errors >= 1);
    int before = seen.errors;
    CHECK(kr_eval_string(ctx, "(ignore-errors (car 5))", &v) == KR_OK && seen.errors == before);
    CHECK(kr_eval_string(ctx, "(error \"again\")", &v) == KR_ERROR && message_has(ctx, v, "in the hook") && seen.errors == before + 1);

    must(ctx, "(format t \"to ~a~%\" 'out) (finish-output) (format *error-output* \"to ~a~%\" 'err)");
    CHECK(strcmp(seen.out, "to out\n") == 0 && strstr(seen.err, "to err\n"));
    must(ctx, "(sys:wait-thread (sys:thread #'(lambda () nil))) (sys:thread-no-wait #'(lambda () (error \"in a thread\"))) (unix:usleep 100000)");
    CHECK(strstr(seen.err, "in a thread"));
    CHECK(prints(ctx, must(ctx, "(list (read) (read-line) (read-line) (read-line nil nil :end))"), "((line 1) \"\" \"(line 2)\" :end)"));
    must(ctx, "(princ 'last)");
    kr_vm_free(ctx);
    CHECK(strstr(seen.out, "last") && seen.started == seen.stopped && seen.mapped == 0);
    return 0;
}
