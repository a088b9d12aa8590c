/* functions.c -- C functions for Lisp: arguments, errors and throws in both directions, calls nested in calls. */
#include "embed.h"

static kr_value sum(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    int64_t total = *(const int64_t *)user, n;
    for (int i = 0; i < argc; i++) {
        if (kr_to_integer(ctx, argv[i], &n) != KR_OK)
            kr_raise(ctx, "sum: an integer expected");
        total += n;
    }
    return kr_integer(ctx, total);
}

static kr_value count(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argv;
    ++*(int *)user;
    return kr_integer(ctx, argc);
}

/* (call-it function arg..): what FUNCTION gives; an error in it becomes a list. */
static kr_value call_it(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)user;
    kr_value v;
    if (kr_funcall(ctx, argv[0], argc - 1, argv + 1, &v) == KR_OK)
        return v;
    char text[300];
    kr_error_message(ctx, v, text, sizeof text);
    const kr_value answer[] = {kr_symbol(ctx, "caught"), kr_string(ctx, text)};
    return kr_list(ctx, 2, answer);
}

/* The same, but errors and throws pass. */
static kr_value pass_it(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)user;
    kr_value v;
    for (int i = 0; i < 10; i++)
        kr_string(ctx, "a local that the error drops");
    if (kr_funcall(ctx, argv[0], argc - 1, argv + 1, &v) != KR_OK)
        kr_reraise(ctx, v);
    return v;
}

/* (fib n) by way of Lisp at every step. */
static kr_value fib(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)user;
    int64_t n, a, b;
    CHECK(kr_to_integer(ctx, argv[0], &n) == KR_OK);
    if (n < 2)
        return argv[0];
    kr_value one = kr_integer(ctx, n - 1), two = kr_integer(ctx, n - 2), x, y;
    CHECK(kr_call(ctx, "lisp-fib", 1, &one, &x) == KR_OK && kr_call(ctx, "lisp-fib", 1, &two, &y) == KR_OK);
    CHECK(kr_to_integer(ctx, x, &a) == KR_OK && kr_to_integer(ctx, y, &b) == KR_OK);
    return kr_integer(ctx, a + b);
}

/* Values in C locals only, while Lisp collects. */
static kr_value locals(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)argv;
    (void)user;
    kr_value e[50];
    for (int i = 0; i < 50; i++) {
        size_t scope = kr_scope_begin(ctx);
        char text[20];
        snprintf(text, sizeof text, "value %d", i);
        e[i] = kr_string(ctx, text);
        kr_scope_end(ctx, scope);
        kr_collect(ctx);
    }
    return kr_list(ctx, 50, e);
}

static kr_value raise_cause(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc;
    (void)argv;
    kr_raise(ctx, user);
}

static void arguments(kr_context *ctx)
{
    static int64_t base = 100;
    static int calls;
    kr_value v;
    CHECK(kr_define(ctx, "sum", "(a &optional b c)", "The sum of A, B, C and 100.", sum, &base) == KR_OK);
    CHECK(kr_define(ctx, "count-them", "(&rest all)", NULL, count, &calls) == KR_OK);
    CHECK(kr_define(ctx, "keyed", "(a &key b c)", NULL, count, &calls) == KR_OK);
    CHECK(must_integer(ctx, "(sum 1)") == 101 && must_integer(ctx, "(sum 1 2 3)") == 106);
    CHECK(must_integer(ctx, "(apply #'sum '(1 2))") == 103);
    CHECK(must_integer(ctx, "(reduce #'+ (mapcar #'sum '(1 2 3)))") == 306);
    CHECK(kr_eval_string(ctx, "(sum)", &v) == KR_ERROR && message_has(ctx, v, "mismatch argument"));
    CHECK(kr_eval_string(ctx, "(sum 1 2 3 4)", &v) == KR_ERROR && message_has(ctx, v, "1 to 3 expected"));
    CHECK(must_integer(ctx, "(count-them)") == 0);
    CHECK(must_integer(ctx, "(apply #'count-them (make-list 5000))") == 5000);
    CHECK(must_integer(ctx, "(keyed 1 :c 2)") == 3 && calls == 3);
    CHECK(prints(ctx, must(ctx, "(documentation 'sum)"), "\"The sum of A, B, C and 100.\""));
    /* Names. */
    must(ctx, "(make-package \"ARM\")");
    CHECK(kr_define(ctx, "arm:move", "()", NULL, count, &calls) == KR_OK);
    CHECK(must_integer(ctx, "(arm:move)") == 0 && kr_call(ctx, "arm:move", 0, NULL, &v) == KR_OK);
    CHECK(kr_define(ctx, "no-such-package:move", "()", NULL, count, &calls) == KR_ERROR);
    CHECK(kr_define(ctx, "broken", "(a &optional", NULL, count, &calls) == KR_ERROR);
    CHECK(kr_define(ctx, "broken", "a", NULL, count, &calls) == KR_ERROR);
    CHECK(kr_define(ctx, "nil", "()", NULL, count, &calls) == KR_ERROR);
    CHECK(kr_define(ctx, "", "()", NULL, count, &calls) == KR_ERROR);
    /* Defined again, callers see the new one. */
    static int64_t other = 1000;
    must(ctx, "(defun caller () (sum 1))");
    CHECK(must_integer(ctx, "(caller)") == 101);
    CHECK(kr_define(ctx, "sum", "(a)", NULL, sum, &other) == KR_OK && must_integer(ctx, "(caller)") == 1001);
}

static void calls(kr_context *ctx)
{
    kr_value v, argv[3] = {kr_integer(ctx, 1), kr_integer(ctx, 2), kr_integer(ctx, 3)};
    CHECK(kr_call(ctx, "list", 3, argv, &v) == KR_OK && prints(ctx, v, "(1 2 3)"));
    CHECK(kr_call(ctx, "lisp:+", 3, argv, &v) == KR_OK && prints(ctx, v, "6"));
    CHECK(kr_call(ctx, "list", 0, NULL, NULL) == KR_OK);
    CHECK(kr_call(ctx, "no-such-function", 0, NULL, &v) == KR_ERROR && message_has(ctx, v, "undefined function"));
    CHECK(kr_call(ctx, "when", 0, NULL, &v) == KR_ERROR && message_has(ctx, v, "illegal function"));
    CHECK(kr_call(ctx, "if", 3, argv, &v) == KR_ERROR);
    CHECK(kr_call(ctx, "nowhere:f", 0, NULL, &v) == KR_ERROR && message_has(ctx, v, "no such package"));
    CHECK(kr_funcall(ctx, must(ctx, "#'(lambda (a b c) (vector a b c))"), 3, argv, &v) == KR_OK && prints(ctx, v, "#(1 2 3)"));
    CHECK(kr_funcall(ctx, kr_symbol(ctx, "list"), 1, argv, &v) == KR_OK && prints(ctx, v, "(1)"));
    CHECK(kr_funcall(ctx, argv[0], 0, NULL, &v) == KR_ERROR && message_has(ctx, v, "illegal function"));
    must(ctx, "(defclass point :super object :slots (x))"
              "(defmethod point (:init (n) (setq x n) self) (:plus (n) (+ x n)) (:|Mixed| () x))");
    kr_value p = must(ctx, "(instance point :init 40)");
    CHECK(kr_send(ctx, p, "plus", 1, argv + 1, &v) == KR_OK && prints(ctx, v, "42"));
    CHECK(kr_send(ctx, p, ":plus", 1, argv + 1, &v) == KR_OK && prints(ctx, v, "42"));
    CHECK(kr_send(ctx, p, "|Mixed|", 0, NULL, &v) == KR_OK && prints(ctx, v, "40"));
    CHECK(kr_send(ctx, p, "no-such-method", 0, NULL, &v) == KR_ERROR && message_has(ctx, v, "cannot find method"));
    CHECK(kr_send(ctx, argv[0], "plus", 0, NULL, &v) == KR_ERROR);
    CHECK(kr_send(ctx, kr_nil(), "plus", 0, NULL, &v) == KR_ERROR);
}

static void errors(kr_context *ctx)
{
    static char cause[] = "100% wrong: %s";
    kr_value v;
    CHECK(kr_define(ctx, "raise-cause", "()", NULL, raise_cause, cause) == KR_OK);
    CHECK(kr_define(ctx, "call-it", "(f &rest args)", NULL, call_it, NULL) == KR_OK);
    CHECK(kr_define(ctx, "pass-it", "(f &rest args)", NULL, pass_it, NULL) == KR_OK);
    CHECK(kr_eval_string(ctx, "(raise-cause)", &v) == KR_ERROR && message_has(ctx, v, cause));
    CHECK(prints(ctx, must(ctx, "(handler-case (raise-cause) (error (c) 'handled))"), "handled"));
    CHECK(prints(ctx, must(ctx, "(let ((cleaned nil)) (handler-case (unwind-protect (raise-cause) (setq cleaned t)) (error () cleaned)))"), "t"));
    CHECK(kr_eval_string(ctx, "(sum 'a)", &v) == KR_ERROR && message_has(ctx, v, "sum: an integer expected"));
    /* Errors below a C function come to it, not to handlers above it. */
    CHECK(prints(ctx, must(ctx, "(car (call-it #'car 1))"), "caught"));
    CHECK(prints(ctx, must(ctx, "(handler-case (car (call-it #'car 1)) (error () 'outer))"), "caught"));
    CHECK(prints(ctx, must(ctx, "(call-it #'(lambda () (handler-case (car 1) (error () 'inner))))"), "inner"));
    CHECK(prints(ctx, must(ctx, "(handler-bind ((error #'(lambda (c) (throw 'x 'bound)))) (catch 'x (call-it #'car 1) 'passed))"), "passed"));
    /* Unless it passes them on: the same condition, its backtrace from where it happened. */
    CHECK(prints(ctx, must(ctx, "(handler-case (pass-it #'car 1) (error (c) 'outer))"), "outer"));
    CHECK(kr_eval_string(ctx, "(defun at-fault (x) (list (car x))) (pass-it #'pass-it #'at-fault 1)", &v) == KR_ERROR);
    CHECK(message_has(ctx, v, "car"));
    char text[4000];
    kr_error_backtrace(ctx, v, text, sizeof text);
    CHECK(strstr(text, "at-fault"));
    /* Throws and returns. */
    CHECK(prints(ctx, must(ctx, "(catch 'out (pass-it #'(lambda () (throw 'out 'thrown))))"), "thrown"));
    CHECK(prints(ctx, must(ctx, "(block b (pass-it #'pass-it #'(lambda () (return-from b 'returned))) 'not)"), "returned"));
    CHECK(prints(ctx, must(ctx, "(let ((l nil)) (catch 'out (unwind-protect (pass-it #'(lambda () (unwind-protect (throw 'out 1) (push 'in l)))) (push 'outside l))) l)"), "(outside in)"));
    CHECK(prints(ctx, must(ctx, "(catch 'out (list (car (call-it #'(lambda () (throw 'out 'thrown))))))"), "(caught)"));
    CHECK(prints(ctx, must(ctx, "(let ((n 0)) (tagbody again (incf n) (if (< n 5) (pass-it #'(lambda () (go again))))) n)"), "5"));
    CHECK(kr_eval_string(ctx, "(pass-it #'(lambda () (throw 'nobody 1)))", &v) == KR_ERROR && message_has(ctx, v, "no catcher"));
    CHECK(prints(ctx, must(ctx, "(defvar *special* 1) (list (catch 'out (let ((*special* 2)) (pass-it #'(lambda () (let ((*special* 3)) (throw 'out *special*)))))) *special*)"), "(3 1)"));
    /* Left by an error again and again, a C function's locals go. */
    must(ctx, "(dotimes (i 100000) (handler-case (pass-it #'car 1) (error () nil)))");
    CHECK(kr_scope_begin(ctx) < 500);
}

static kr_value deep(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    ++*(int *)user;
    return pass_it(ctx, argc, argv, NULL);
}

static void nesting(kr_context *ctx)
{
    static int depth;
    kr_value v;
    CHECK(kr_define(ctx, "fib", "(n)", NULL, fib, NULL) == KR_OK);
    must(ctx, "(defun lisp-fib (n) (fib n))");
    CHECK(must_integer(ctx, "(fib 15)") == 610);
    CHECK(kr_define(ctx, "locals", "()", NULL, locals, NULL) == KR_OK);
    CHECK(prints(ctx, must(ctx, "(let ((l (locals))) (list (length l) (car l) (car (last l))))"), "(50 \"value 0\" \"value 49\")"));
    /* C and Lisp call each other until a stack is full. */
    CHECK(kr_define(ctx, "deep", "(f)", NULL, deep, &depth) == KR_OK);
    must(ctx, "(defun down () (deep 'down))");
    for (int i = 0; i < 3; i++) {
        depth = 0;
        CHECK(kr_eval_string(ctx, "(down)", &v) == KR_ERROR && message_has(ctx, v, "stack overflow"));
        CHECK(depth > 100);
        CHECK(prints(ctx, must(ctx, "(handler-case (down) (error () 'deep-enough))"), "deep-enough"));
    }
    must(ctx, "(defun fill-stack (n) (if (= n 0) (call-it #'fill-stack 100000000) (+ 1 (fill-stack (- n 1)))))");
    CHECK(kr_eval_string(ctx, "(fill-stack 100000)", &v) == KR_ERROR);
    CHECK(must_integer(ctx, "(fib 10)") == 55);
}

int main(void)
{
    const kr_config config = {.stack_limit = 16 << 20};
    kr_context *ctx = must_new(&config, NULL);
    arguments(ctx);
    calls(ctx);
    errors(ctx);
    nesting(ctx);
    kr_vm_free(ctx);
    return 0;
}
