/* native.c -- one module of native code in two VMs, in one thread and in two, and in VMs that come and go. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "embed.h"

static const char source[] =
    "(defvar *calls* 0)\n"
    "(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))\n"
    "(defun note (x) (setq *calls* (1+ *calls*)) (list x 'noted))\n"
    "(defun sum (v) (let ((s 0.0)) (dotimes (i (length v)) (setq s (+ s (aref v i)))) s))\n";
static char file[64], module[64];

static kr_context *with_module(kr_vm **vm)
{
    char form[200];
    kr_context *ctx = must_new(NULL, vm);
    snprintf(form, sizeof form, "(load \"%s\")", module);
    must(ctx, form);
    return ctx;
}

static void *work(void *arg)
{
    kr_vm *vm;
    (void)arg;
    for (int i = 0; i < 5; i++) {
        kr_context *ctx = with_module(&vm);
        CHECK(must_integer(ctx, "(fib 22)") == 17711);
        CHECK(must_integer(ctx, "(progn (dotimes (i 10000) (note i)) *calls*)") == 10000);
        CHECK(must_integer(ctx, "(round (sum (float-vector 1 2 3.5 4)))") == 10);
        CHECK(must_integer(ctx, "(progn (defun fib (n) 1) (fib 22))") == 1);
        kr_vm_free(ctx);
    }
    return NULL;
}

/* A host that has the status of every child, or wants none, is left with that; the C compiler's work is judged by what it leaves. */
static void children_are_the_hosts(void)
{
    kr_value v;
    kr_context *ctx = must_new(NULL, NULL);
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    CHECK(must_integer(ctx, "(progn (defun twice (x) (* 2 x)) (compile 'twice) (if (compiled-function-p #'twice) (twice 21) 0))") == 42);
    setenv("KARAKURI_CFLAGS", "--no-such-option", 1);
    CHECK(kr_eval_string(ctx, "(defun thrice (x) (* 3 x)) (compile 'thrice)", &v) == KR_ERROR && message_has(ctx, v, "no-such-option"));
    CHECK(message_has(ctx, v, "in (compile 'thrice)")); /* its argument, not what the call has put behind it */
    unsetenv("KARAKURI_CFLAGS");
    CHECK(must_integer(ctx, "(thrice 5)") == 15);
    CHECK(must_integer(ctx, "(unix:system \"true\")") <= 0);
    struct sigaction a;
    CHECK(sigaction(SIGCHLD, NULL, &a) == 0 && a.sa_handler == SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    kr_vm_free(ctx);
}

int main(void)
{
    char form[200];
    kr_vm *vm;
    snprintf(file, sizeof file, "/tmp/karakuri-embed-%d.l", (int)getpid());
    snprintf(module, sizeof module, "/tmp/karakuri-embed-%d.so", (int)getpid());
    FILE *f = fopen(file, "w");
    CHECK(f && fputs(source, f) >= 0 && fclose(f) == 0);
    kr_context *ctx = must_new(NULL, &vm);
    snprintf(form, sizeof form, "(compile-file \"%s\")", file);
    must(ctx, form);
    kr_vm_free(ctx);

    kr_vm *vm2;
    kr_context *a = with_module(&vm), *b = with_module(&vm2);
    must(a, "(defun fib (n) 'mine)");
    CHECK(must_integer(b, "(fib 15)") == 610);
    CHECK(must_integer(a, "(if (eq (fib 15) 'mine) 1 0)") == 1);
    kr_vm_free(a);
    CHECK(must_integer(b, "(fib 15)") == 610);
    kr_vm_free(b);

    pthread_t other;
    CHECK(pthread_create(&other, NULL, work, NULL) == 0);
    work(NULL);
    pthread_join(other, NULL);
    unlink(file);
    unlink(module);
    children_are_the_hosts();
    return 0;
}
