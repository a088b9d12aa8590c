/* signals.c -- a host that owns SIGINT, SIGSEGV and SIGCHLD keeps them, whatever Lisp does meanwhile. */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "embed.h"

static volatile sig_atomic_t interrupts, children;
static sigjmp_buf fault;
static kr_context *ctx;

static void on_interrupt(int n)
{
    (void)n;
    interrupts++;
    kr_interrupt(ctx);
}
static void on_child(int n)
{
    (void)n;
    children++;
}
static void on_fault(int n)
{
    (void)n;
    siglongjmp(fault, 1);
}

static void own(int signal, void (*f)(int))
{
    struct sigaction a = {.sa_handler = f};
    CHECK(sigaction(signal, &a, NULL) == 0);
}
static bool owned(int signal, void (*f)(int))
{
    struct sigaction a;
    return sigaction(signal, NULL, &a) == 0 && a.sa_handler == f;
}

int main(void)
{
    kr_vm *vm;
    kr_value v;
    own(SIGINT, on_interrupt);
    own(SIGSEGV, on_fault);
    own(SIGCHLD, on_child);
    ctx = must_new(NULL, &vm);
    must(ctx, "(dotimes (i 5) (sys:gc)) (sys:wait-thread (sys:thread #'(lambda () (let ((l nil)) (dotimes (i 100000) (push i l)) (length l)))))");
    must(ctx, "(unix:system \"true\")");
    CHECK(kr_eval_string(ctx, "(defun deep (n) (1+ (deep n))) (deep 1)", &v) == KR_ERROR); /* no guard page and handler */

    /* SIGINT goes to the host's handler, which asks Lisp to stop. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(100000);
        kill(getppid(), SIGINT);
        _exit(0);
    }
    CHECK(kr_eval_string(ctx, "(loop)", &v) == KR_ERROR && message_has(ctx, v, "interrupted") && interrupts == 1);
    while (waitpid(child, NULL, 0) < 0)
        ;
    CHECK(children >= 1);

    /* A fault of the host's is the host's. */
    volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool caught = sigsetjmp(fault, 1) != 0;
    if (!caught)
        (void)page[0];
    CHECK(caught);
    CHECK(must_integer(ctx, "(+ 40 2)") == 42);
    kr_vm_free(ctx);
    CHECK(owned(SIGINT, on_interrupt) && owned(SIGSEGV, on_fault) && owned(SIGCHLD, on_child));
    return 0;
}
