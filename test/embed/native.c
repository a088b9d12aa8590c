/* native.c -- one module of native code in two VMs, in one thread and in two, and in VMs that come and go. */
#include <pthread.h>
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
    return 0;
}
