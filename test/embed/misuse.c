/* misuse.c -- in debug mode each way to misuse the interface ends with a message that names it. Each runs in a process of its own. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "embed.h"

static kr_context *ctx, *second;
static kr_vm *vm;

static void make(void)
{
    const kr_config config = {.check = 1};
    ctx = must_new(&config, &vm);
}
static void make_two(void)
{
    make();
    second = must_new(NULL, NULL);
}

static void use_after_free(void)
{
    make();
    kr_vm_free(ctx);
    kr_eval_string(ctx, "1", NULL);
}
static void attach_to_freed(void)
{
    make();
    kr_vm_free(ctx);
    kr_attach(vm);
}
static void double_unref(void)
{
    make();
    kr_ref *r = kr_ref_new(ctx, kr_string(ctx, "x"));
    kr_unref(ctx, r);
    kr_unref(ctx, r);
}
static void dead_ref(void)
{
    make();
    kr_ref *r = kr_ref_new(ctx, kr_string(ctx, "x"));
    kr_unref(ctx, r);
    kr_ref_value(r);
}
static void ref_after_vm(void)
{
    make();
    kr_ref *r = kr_ref_new(ctx, kr_string(ctx, "x"));
    kr_vm_free(ctx);
    kr_ref_value(r);
}
static void *use(void *arg)
{
    (void)arg;
    kr_integer(ctx, INT64_MAX);
    return NULL;
}
static void wrong_thread(void)
{
    pthread_t t;
    make();
    pthread_create(&t, NULL, use, NULL);
    pthread_join(t, NULL);
}
static void wrong_vm(void)
{
    make_two();
    kr_value v = kr_string(second, "x");
    kr_call(ctx, "length", 1, &v, NULL);
}
static void wrong_vm_read(void)
{
    make_two();
    char *p;
    size_t n;
    kr_to_bytes(ctx, kr_string(second, "x"), &p, &n);
}
static void wrong_vm_ref(void)
{
    make_two();
    kr_ref_new(ctx, kr_string(second, "x"));
}
static void wrong_vm_unref(void)
{
    make_two();
    kr_unref(ctx, kr_ref_new(second, kr_string(second, "x")));
}
static void scope_twice(void)
{
    make();
    size_t s = kr_scope_begin(ctx);
    kr_string(ctx, "x");
    size_t inner = kr_scope_begin(ctx);
    kr_scope_end(ctx, s);
    kr_scope_end(ctx, inner);
}
static void attach_twice(void)
{
    make();
    kr_attach(vm);
}
static kr_value detach(kr_context *c, int argc, kr_value *argv, void *user)
{
    (void)argc, (void)argv, (void)user;
    kr_detach(c);
    return kr_nil();
}
static void detach_inside(void)
{
    make();
    kr_define(ctx, "leave", "()", NULL, detach, NULL);
    kr_eval_string(ctx, "(leave)", NULL);
}
static void *stay(void *arg)
{
    pthread_barrier_t *b = arg;
    kr_attach(vm);
    pthread_barrier_wait(b);
    pause();
    return NULL;
}
static void free_too_early(void)
{
    pthread_t t;
    pthread_barrier_t b;
    make();
    pthread_barrier_init(&b, NULL, 2);
    pthread_create(&t, NULL, stay, &b);
    pthread_barrier_wait(&b);
    kr_vm_free(ctx);
}
static void null_context(void)
{
    make();
    kr_eval_string(NULL, "1", NULL);
}
static void budget_without(void)
{
    make();
    kr_budget_end(ctx);
}

static void free_twice(void)
{
    make();
    kr_vm_free(ctx);
    kr_vm_free(ctx);
}
static kr_value free_vm(kr_context *c, int argc, kr_value *argv, void *user)
{
    (void)argc, (void)argv, (void)user;
    kr_vm_free(c);
    return kr_nil();
}
static void free_inside(void)
{
    make();
    kr_define(ctx, "end-it", "()", NULL, free_vm, NULL);
    kr_eval_string(ctx, "(end-it)", NULL);
}
static void raise_outside(void)
{
    make();
    kr_raise(ctx, "nobody is there");
}
static void reraise_outside(void)
{
    kr_value v;
    make();
    kr_eval_string(ctx, "(car 5)", &v);
    kr_reraise(ctx, v);
}
static void restart_outside(void)
{
    make();
    kr_invoke_restart(ctx, kr_symbol(ctx, "abort"), 0, NULL);
}
static void interrupt_freed(void)
{
    make();
    kr_vm_free(ctx);
    kr_interrupt(ctx);
}
static void null_text(void)
{
    make();
    kr_eval_string(ctx, NULL, NULL);
}
static void null_name(void)
{
    make();
    kr_call(ctx, NULL, 0, NULL, NULL);
}
static void null_function(void)
{
    make();
    kr_define(ctx, "f", "()", NULL, NULL, NULL);
}
static void fewer_than_none(void)
{
    make();
    kr_call(ctx, "list", -1, NULL, NULL);
}
static void wrong_vm_element(void)
{
    make_two();
    kr_value v[2] = {kr_integer(ctx, 1), kr_string(second, "x")};
    kr_list(ctx, 2, v);
}
static void wrong_vm_key(void)
{
    make_two();
    kr_table_set(ctx, kr_hash_table(ctx, "equal"), kr_string(second, "x"), kr_nil());
}
static const kr_rt_config channel = {.kind = KR_RT_TRIPLE, .doubles = 3};
static void in_a_child(void)
{
    int status;
    make();
    pid_t child = fork();
    if (child == 0)
        kr_eval_string(ctx, "1", NULL);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(must_integer(ctx, "(let ((pid (unix:fork))) (if (= pid 0) (unix::_exit (length (make-list 7))) pid))") > 0); /* has one that may */
    abort();
}
static void channel_twice(void)
{
    kr_rt *rt;
    make();
    kr_rt_new(ctx, &channel, &rt);
    kr_set(ctx, "*kept*", kr_rt_value(ctx, rt)); /* Lisp has it still, the host not */
    kr_rt_free(rt);
    kr_rt_free(rt);
}
static void dead_channel(void)
{
    kr_rt *rt;
    make();
    kr_rt_new(ctx, &channel, &rt);
    kr_rt_free(rt);
    kr_rt_back(rt);
}

static const struct {
    void (*misuse)(void);
    const char *message;
} cases[] = {
    {use_after_free, "kr_eval_string: this context was detached, or its VM freed"},
    {attach_to_freed, "kr_attach: this VM was freed"},
    {double_unref, "kr_unref: this handle was given back"},
    {dead_ref, "kr_ref_value: this handle was given back"},
    {ref_after_vm, "kr_ref_value: this handle was given back by kr_unref, or its VM freed"},
    {wrong_thread, "kr_integer: wrong thread"},
    {wrong_vm, "kr_call: element 0 of the arguments is another VM's value"},
    {wrong_vm_read, "kr_to_bytes: argument 2 is another VM's value"},
    {wrong_vm_ref, "kr_ref_new: argument 2 is another VM's value"},
    {wrong_vm_unref, "kr_unref: this handle is another VM's"},
    {scope_twice, "kr_scope_end: this scope has ended already"},
    {attach_twice, "kr_attach: this thread is attached already"},
    {detach_inside, "kr_detach: from within a function that Lisp called"},
    {free_too_early, "kr_vm_free: other threads of the host are still attached"},
    {null_context, "kr_eval_string: the context is NULL"},
    {free_twice, "kr_vm_free: this context was detached, or its VM freed"},
    {free_inside, "kr_vm_free: from within a function that Lisp called"},
    {raise_outside, "kr_raise: it is for a function that Lisp called, and none is running"},
    {reraise_outside, "kr_reraise: it is for a function that Lisp called"},
    {restart_outside, "kr_invoke_restart: it is for a function that Lisp called"},
    {interrupt_freed, "kr_interrupt: this context was detached, or its VM freed"},
    {null_text, "kr_eval_string: argument 2 is NULL, a text expected"},
    {null_name, "kr_call: argument 2 is NULL, a text expected"},
    {null_function, "kr_define: the function is NULL"},
    {fewer_than_none, "kr_call: a negative number of arguments"},
    {wrong_vm_element, "kr_list: element 1 of the arguments is another VM's value"},
    {wrong_vm_key, "kr_table_set: argument 3 is another VM's value"},
    {in_a_child, "kr_eval_string: this process is a child made by fork()"},
    {channel_twice, "kr_rt_free: this channel was given back by kr_rt_free"},
    {dead_channel, "kr_rt_back: this channel was given back by kr_rt_free"},
    {budget_without, "kr_budget_end: no budget was begun"},
};

static bool dies_with(void (*misuse)(void), const char *message)
{
    int pipes[2], status;
    char text[2000];
    size_t n = 0;
    ssize_t got;
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        misuse();
        _exit(0);
    }
    close(pipes[1]);
    while (n < sizeof text - 1 && (got = read(pipes[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(pipes[0]);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, message))
        return true;
    fprintf(stderr, "expected: %s\ngot (status %x): %s\n", message, (unsigned)status, text);
    return false;
}

static void *first_thread(void *arg) /* so that the forking thread is one among others, as in a host */
{
    return arg;
}

int main(void)
{
    pthread_t t;
    bool ok = true;
    pthread_create(&t, NULL, first_thread, NULL);
    pthread_join(t, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ok &= dies_with(cases[i].misuse, cases[i].message);

    /* What is right is not complained about, in debug mode either. */
    make();
    kr_vm *other;
    CHECK(kr_vm_new_abi(KR_ABI_VERSION + 1, NULL, &other, &second) == KR_BAD_VERSION);
    size_t scope = kr_scope_begin(ctx);
    kr_ref *r = kr_ref_new(ctx, must(ctx, "(list 1 \"two\" 3.0)"));
    kr_scope_end(ctx, scope);
    must(ctx, "(sys:gc)");
    CHECK(prints(ctx, kr_ref_value(r), "(1 \"two\" 3.0)"));
    kr_unref(ctx, r);
    CHECK(kr_current(vm) == ctx);
    kr_vm_free(ctx);
    return !ok;
}
