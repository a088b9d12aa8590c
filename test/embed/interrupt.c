/* interrupt.c -- what stops a program comes back as an error, and the VM goes on: kr_interrupt from another thread and from a signal
 * handler, the heap's limit, a full stack. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "embed.h"

static kr_context *victim;
static atomic_bool stop;

static void *interrupter(void *arg)
{
    struct timespec pause = {0, *(long *)arg};
    nanosleep(&pause, NULL);
    kr_interrupt(victim);
    return NULL;
}

static void interrupts(kr_context *ctx)
{
    static const char *const endless[] = {
        "(while t)", "(while t (list 1 2))", "(loop)", "(unix:sleep 1000)", "(dotimes (i 1000000000000) (car nil))",
        "(sys:sema-wait (sys:make-semaphore))", "(sys:wait-thread (sys:thread #'(lambda () (unix:sleep 2))))",
        "(progn (defmacro again (x) `(again ,x)) (eval '(again 1)))", "(mapcar #'(lambda (x) (while t)) '(1))", "(sort (list 3 2 1) #'(lambda (a b) (while t)))",
        "(let ((l (list 1 2))) (setf (cddr l) l) (length (mapcar #'identity (progn (while t) l))))",
        "(progn (setq *m* (sys:make-mutex-lock)) (sys:wait-thread (sys:thread #'(lambda () (sys:mutex-lock *m*) (unix:usleep 300000)))))",
    };
    long delay = 20000000;
    victim = ctx;
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        pthread_t t;
        kr_value v;
        CHECK(pthread_create(&t, NULL, interrupter, &delay) == 0);
        if (kr_eval_string(ctx, endless[i], &v) != KR_ERROR || !message_has(ctx, v, "interrupted")) {
            fprintf(stderr, "%s\n", endless[i]);
            exit(1);
        }
        pthread_join(t, NULL);
        CHECK(must_integer(ctx, "(+ 1 2)") == 3);
    }
    /* Lisp may handle it, and its cleanups run. */
    pthread_t t;
    CHECK(pthread_create(&t, NULL, interrupter, &delay) == 0);
    CHECK(prints(ctx, must(ctx, "(let ((l nil)) (handler-case (unwind-protect (while t) (push 'cleaned l)) (user-interrupt (c) (push 'handled l))) l)"),
                 "(handled cleaned)"));
    pthread_join(t, NULL);
    /* One that comes early comes to what is done next. */
    kr_value v;
    kr_interrupt(ctx);
    CHECK(kr_eval_string(ctx, "(dotimes (i 1000) (list i))", &v) == KR_ERROR && message_has(ctx, v, "interrupted"));
    CHECK(must_integer(ctx, "(dotimes (i 1000 i) (list i))") == 1000);
}

static void on_alarm(int signal)
{
    (void)signal;
    kr_interrupt(victim);
}

static void from_signal_handler(kr_context *ctx)
{
    struct sigaction action = {.sa_handler = on_alarm};
    kr_value v;
    victim = ctx;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    ualarm(20000, 0);
    CHECK(kr_eval_string(ctx, "(while t)", &v) == KR_ERROR && message_has(ctx, v, "interrupted"));
    int silent[2];
    char text[100];
    CHECK(pipe(silent) == 0);
    snprintf(text, sizeof text, "(read-line (open \"/proc/self/fd/%d\"))", silent[0]);
    ualarm(20000, 0);
    CHECK(kr_eval_string(ctx, text, &v) == KR_ERROR && message_has(ctx, v, "interrupted"));
    close(silent[0]);
    close(silent[1]);
    signal(SIGALRM, SIG_DFL);
}

static void *annoy(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
        kr_interrupt(victim);
    }
    return NULL;
}

/* Interrupts in the middle of anything leave the VM whole. */
static void many_interrupts(kr_context *ctx)
{
    pthread_t t;
    int errors = 0;
    victim = ctx;
    must(ctx, "(setq *table* (make-hash-table)) (defun churn (n) (dotimes (i n) (setf (gethash i *table*) (list i)) (format nil \"~A\" i)"
              " (sort (list 3 2 1) #'<) (intern (format nil \"S~D\" (mod i 50)))))");
    CHECK(pthread_create(&t, NULL, annoy, NULL) == 0);
    for (int i = 0; i < 300; i++)
        errors += kr_eval_string(ctx, "(churn 500)", NULL) == KR_ERROR;
    atomic_store(&stop, true);
    pthread_join(t, NULL);
    kr_eval_string(ctx, "(dotimes (i 100))", NULL); /* the last may still be due */
    must(ctx, "(churn 1000)");
    CHECK(errors > 0);
    CHECK(must_integer(ctx, "(car (gethash 999 *table*))") == 999);
    CHECK(prints(ctx, must(ctx, "(sys:heap-check)"), "t"));
}

static void full_heap(kr_context *ctx)
{
    static const char *const greedy[] = {
        "(let ((l nil)) (while t (push (list 1 2 3) l)))",
        "(let ((l nil)) (while t (push (make-string 100000) l)))",
        "(let ((l nil)) (while t (push (make-array 10000000) l)))",
        "(make-string 1000000000)",
        "(let ((l (list 1))) (while t (setq l (append l l))))",
        "(let ((n 3)) (while t (setq n (* n n))))",
        "(let ((s \"a\")) (while t (setq s (concatenate string s s))))",
        "(let ((h (make-hash-table)) (i 0)) (while t (setf (gethash (incf i) h) (list i))))",
    };
    kr_value v;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
            if (kr_eval_string(ctx, greedy[i], &v) != KR_ERROR) {
                fprintf(stderr, "no error: %s\n", greedy[i]);
                exit(1);
            }
            char text[300];
            CHECK(kr_error_message(ctx, v, text, sizeof text) > 0);
            kr_error_backtrace(ctx, v, text, sizeof text);
            CHECK(must_integer(ctx, "(length (make-list 10000))") == 10000);
        }
    CHECK(prints(ctx, must(ctx, "(handler-case (let ((l nil)) (while t (push (list 1 2 3) l))) (error (c) 'full))"), "full"));
    /* Full and staying so: values cannot be made, but nothing breaks; what is given back can be used. */
    CHECK(kr_eval_string(ctx, "(setq *hoard* nil) (while t (push (make-string 50) *hoard*))", &v) == KR_ERROR);
    int refused = 0;
    for (int i = 0; i < 100000 && refused < 10; i++)
        refused += kr_is_nil(kr_string(ctx, "one more, and one more, and one more"));
    CHECK(refused > 0);
    kr_scope_end(ctx, 0);
    kr_print(ctx, kr_integer(ctx, 5), (char[10]){0}, 10);
    CHECK(kr_eval_string(ctx, "(setq *hoard* nil)", &v) == KR_OK);
    CHECK(must_integer(ctx, "(length (make-list 100000))") == 100000);
    CHECK(prints(ctx, must(ctx, "(sys:heap-check)"), "t"));
}

static void full_stack(kr_context *ctx)
{
    static const char *const deep[] = {
        "(labels ((f (n) (+ 1 (f n)))) (f 1))",
        "(labels ((f (n) (+ 1 (apply #'f (list n))))) (f 1))",
        "(labels ((f (n) (mapcar #'f (list n)))) (f 1))",
        "(labels ((f (n) (sort (list n 2) #'(lambda (a b) (f 1))))) (f 1))",
        "(let ((l nil)) (dotimes (i 3000000) (setq l (list l))) (equal l (copy-tree l)))",
        "(progn (defclass deep :super object :slots ()) (defmethod deep (:go () (+ 1 (send self :go)))) (send (instance deep) :go))",
        "(let ((s (make-string 2000000))) (fill s #\\() (read-from-string s))",
    };
    kr_value v;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
            kr_status status = kr_eval_string(ctx, deep[i], &v);
            if (status != KR_ERROR && i != 4) {
                fprintf(stderr, "no error: %s\n", deep[i]);
                exit(1);
            }
            char text[300];
            if (status == KR_ERROR)
                CHECK(kr_error_message(ctx, v, text, sizeof text) > 0);
            CHECK(must_integer(ctx, "(labels ((f (n) (if (= n 0) 0 (+ 1 (f (- n 1)))))) (f 10000))") == 10000);
        }
}

/* The same on a thread of the host with a small native stack. */
static void *small_stack(void *arg)
{
    kr_context *ctx = kr_attach(arg);
    CHECK(ctx);
    full_stack(ctx);
    kr_detach(ctx);
    return NULL;
}

int main(void)
{
    const kr_config config = {.heap_limit = 48 << 20, .stack_limit = 8 << 20};
    kr_vm *vm;
    kr_context *ctx = must_new(&config, &vm);
    interrupts(ctx);
    from_signal_handler(ctx);
    many_interrupts(ctx);
    full_heap(ctx);
    const kr_config roomy = {.heap_limit = 512 << 20, .stack_limit = 8 << 20};
    kr_vm_free(ctx);
    ctx = must_new(&roomy, &vm);
    full_stack(ctx);
    pthread_attr_t attr;
    pthread_t t;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 512 << 10);
    CHECK(pthread_create(&t, &attr, small_stack, vm) == 0);
    pthread_join(t, NULL);
    pthread_attr_destroy(&attr);
    kr_vm_free(ctx);
    return 0;
}
