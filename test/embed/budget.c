/* budget.c -- time and memory of an evaluation are bounded, whatever the script does to swallow that. */
#include "embed.h"
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static kr_exceeded run(kr_context *ctx, const char *text, kr_budget budget, kr_status expected, double most)
{
    kr_value v;
    size_t scope = kr_scope_begin(ctx);
    double begin = now();
    CHECK(kr_budget_begin(ctx, &budget) == KR_OK);
    CHECK(kr_budget_begin(ctx, &budget) == KR_BAD_TYPE);
    kr_status s = kr_eval_string(ctx, text, &v);
    kr_exceeded e = kr_budget_end(ctx);
    char message[300] = "";
    if (s == KR_ERROR)
        kr_error_message(ctx, v, message, sizeof message);
    if (s != expected || now() - begin > most) {
        fprintf(stderr, "%s\n  status %d (%s) after %.3f s\n", text, s, message, now() - begin);
        exit(1);
    }
    kr_scope_end(ctx, scope);
    return e;
}

int main(void)
{
    static const char *const endless[] = {
        "(loop)",
        "(loop (handler-case (loop) (lisp::budget-exceeded (c) nil)))",
        "(loop (handler-case (loop) (error (c) nil)))",
        "(handler-bind ((t #'(lambda (c) (loop)))) (loop))",
        "(unwind-protect (loop) (loop))",
        "(loop (catch 'out (unwind-protect (loop) (throw 'out 1))))",
        "(defun again () (unwind-protect (loop) (again))) (again)",
        "(lisp::install-error-handler #'(lambda (&rest l) (loop))) (loop)",
        "(lisp::install-error-handler nil) (loop (catch 'x (unwind-protect (loop) (throw 'x 1))))",
        "(unix:sleep 1000)",
        "(loop (ignore-errors (unix:sleep 1)))",
        "(setq *interrupt-handler* #'(lambda () (loop))) (loop)",
        "(setq *gc-hook* #'(lambda (a b) (loop))) (sys:gc) (loop)",
        "(setq *gc-hook* nil) (sort (let ((l nil)) (dotimes (i 10000) (push i l)) l) #'(lambda (a b) (loop)))",
        "(let ((l (make-sequence vector 10))) (while t (mapcar #'(lambda (x) x) l)))",
        "(loop (loop (ignore-errors (car 5))))",
        "(progn (sys:thread-no-wait #'(lambda () (loop))) (loop))",
        "(sys:wait-thread (sys:thread #'(lambda () (loop (ignore-errors (loop))))))",
        "(let ((m (sys:make-mutex-lock))) (sys:mutex m (sys:wait-thread (sys:thread #'(lambda () (sys:mutex m 1))))))",
    };
    const kr_config config = {.heap_limit = 512 << 20};
    const char *some = getenv("TEST_STRESS");
    kr_vm *vm;
    kr_context *ctx = must_new(&config, &vm);
    if (some)
        return 0; /* everything takes too long */
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        CHECK(run(ctx, endless[i], (kr_budget){.time_ns = 30000000}, KR_ERROR, 10) == KR_TIME_EXCEEDED);
        CHECK(must_integer(ctx, "(+ 40 2)") == 42); /* nothing is left of it */
    }
    must(ctx, "(setq *interrupt-handler* nil)");

    /* Within it nothing is noticed; the handler of the script sees the condition. */
    CHECK(run(ctx, "(length (make-string 1000))", (kr_budget){.time_ns = 60000000000, .heap_bytes = 8 << 20}, KR_OK, 5) == KR_WITHIN_BUDGET);
    CHECK(run(ctx, "(handler-case (loop) (lisp::budget-exceeded (c) :saw-it))", (kr_budget){.time_ns = 30000000}, KR_OK, 5) == KR_TIME_EXCEEDED);
    kr_value v;
    kr_budget little = {.time_ns = 20000000};
    CHECK(kr_budget_begin(ctx, &little) == KR_OK);
    CHECK(kr_eval_string(ctx, "(loop)", &v) == KR_ERROR && message_has(ctx, v, "budget exceeded") && kr_is_a(ctx, v, "lisp:budget-exceeded"));
    CHECK(kr_error_code(ctx, v) == 107);
    kr_budget_end(ctx);

    /* Memory: what lives, and what one object would take. */
    kr_budget heap = {.time_ns = 20000000000, .heap_bytes = 16 << 20};
    CHECK(run(ctx, "(setq l nil) (loop (push (make-string 1000) l))", heap, KR_ERROR, 20) == KR_HEAP_EXCEEDED);
    CHECK(run(ctx, "(setq l nil) (loop (ignore-errors (push (make-string 100000) l)))", heap, KR_ERROR, 20) == KR_HEAP_EXCEEDED);
    CHECK(run(ctx, "(setq l nil) (make-string 100000000)", heap, KR_ERROR, 20) == KR_HEAP_EXCEEDED);
    CHECK(run(ctx, "(dotimes (i 300000) (make-string 1000))", heap, KR_OK, 20) == KR_WITHIN_BUDGET); /* garbage is none */
    CHECK(must_integer(ctx, "(length (make-string 50000000))") == 50000000); /* the VM has its limit back */
    kr_vm_free(ctx);
    return 0;
}
