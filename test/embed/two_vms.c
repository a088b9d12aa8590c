/* two_vms.c -- two VMs in one process share nothing: at once in one thread, one called from the other, and in two threads. */
#include <pthread.h>

#include "embed.h"

static kr_context *other;

/* (other-vm text): evaluate TEXT in the other VM, an integer. */
static kr_value other_vm(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)user;
    char *text;
    size_t n;
    kr_value v;
    int64_t answer;
    if (kr_to_bytes(ctx, argv[0], &text, &n) != KR_OK)
        kr_raise(ctx, "a string expected");
    if (kr_eval_string(other, text, &v) != KR_OK) {
        char message[200];
        kr_error_message(other, v, message, sizeof message);
        kr_raise(ctx, message);
    }
    CHECK(kr_to_integer(other, v, &answer) == KR_OK);
    return kr_integer(ctx, answer);
}

static void in_one_thread(void)
{
    kr_vm *vm1, *vm2;
    kr_value v;
    kr_context *a = must_new(NULL, &vm1), *b = must_new(NULL, &vm2);
    CHECK(vm1 != vm2);
    must(a, "(defvar *x* 1) (defun f () 'first)");
    must(b, "(defvar *x* 2)");
    CHECK(must_integer(a, "*x*") == 1 && must_integer(b, "*x*") == 2);
    CHECK(kr_eval_string(b, "(f)", &v) == KR_ERROR && message_has(b, v, "undefined function"));
    CHECK(kr_symbol(a, "car").w != kr_symbol(b, "car").w);
    must(a, "(defun list-length (x) 'mine)");
    CHECK(must_integer(b, "(list-length '(5 6))") == 2);
    kr_collect(a);
    kr_collect(b);
    other = b;
    CHECK(kr_define(a, "other-vm", "(text)", NULL, other_vm, NULL) == KR_OK);
    must(b, "(defun work (n) (let ((l nil)) (dotimes (i n) (push (list i) l)) (length l)))");
    CHECK(must_integer(a, "(let ((s 0)) (dotimes (i 20 s) (setq s (+ s (other-vm \"(work 10000)\") (length (make-list 10000))))))") == 400000);
    CHECK(prints(a, must(a, "(handler-case (other-vm \"(error 'elsewhere)\") (error () 'came-back))"), "came-back"));
    kr_vm_free(a);
    CHECK(must_integer(b, "(work 100000)") == 100000);
    kr_vm_free(b);
}

static void *whole_life(void *arg)
{
    const int64_t id = *(int *)arg;
    char text[200];
    for (int i = 0; i < 5; i++) {
        kr_context *ctx = must_new(NULL, NULL);
        snprintf(text, sizeof text, "(defvar *id* %lld) (defun f (n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2)))))", (long long)id);
        must(ctx, text);
        CHECK(must_integer(ctx, "(f 18)") == 2584);
        CHECK(must_integer(ctx, "(let ((l nil)) (dotimes (i 200000) (push (cons i *id*) l)) (cdr (car l)))") == id);
        kr_collect(ctx);
        CHECK(must_integer(ctx, "*id*") == id);
        kr_vm_free(ctx);
    }
    return NULL;
}

int main(void)
{
    in_one_thread();
    pthread_t thread[2];
    int id[2] = {17, 18};
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, whole_life, &id[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
