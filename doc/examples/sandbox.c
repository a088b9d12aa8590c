/* sandbox.c -- a script that nobody trusts: its own world, small, without the system, under a budget, its output caught.
 *
 * It sees what the host gives it and nothing else: two functions and the language. Whatever it does, the host has an answer in time. */
#include <stdio.h>
#include <string.h>
#include "karakuri.h"

struct output {
    char text[400];
    size_t n;
};

/* What the script prints, as far as there is room. */
static void catch_output(kr_output_stream which, const char *text, size_t n, void *user)
{
    struct output *o = user;
    size_t room = sizeof o->text - 1 - o->n;
    (void)which;
    memcpy(o->text + o->n, text, n < room ? n : room);
    o->n += n < room ? n : room;
}

static kr_value battery(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc, (void)argv, (void)user;
    return kr_real(ctx, 11.5);
}

static void run(const char *script)
{
    struct output output = {.n = 0};
    const kr_config config = {.heap_limit = 64 << 20, .stack_limit = 4 << 20, .max_threads = 1, .deny = KR_EVERYTHING,
                              .hooks = {.output = catch_output}, .user = &output};
    const kr_budget budget = {.time_ns = 1000000000, .heap_bytes = 16 << 20};
    static const char *const why[] = {"", " (too long)", " (too much memory)"};
    kr_vm *vm;
    kr_context *ctx;
    kr_value v;
    char text[300];
    if (kr_vm_new(&config, &vm, &ctx) != KR_OK)
        return;
    kr_define(ctx, "battery", "()", "Volts.", battery, NULL);
    kr_budget_begin(ctx, &budget);
    kr_status s = kr_eval_string(ctx, script, &v);
    kr_exceeded e = kr_budget_end(ctx);
    if (s == KR_OK)
        kr_print(ctx, v, text, sizeof text);
    else
        snprintf(text, sizeof text, "error %d", kr_error_code(ctx, v));
    printf("%s\n  %s %s%s\n", script, s == KR_OK ? "=>" : "stopped:", text, why[e]);
    kr_vm_free(ctx); /* writes out what it printed */
    if (output.n)
        printf("  it printed: %s\n", output.text);
}

int main(void)
{
    run("(if (< (battery) 12) (format t \"low~%\")) (mapcar #'1+ '(1 2 3))");
    run("(loop)");
    run("(loop (handler-case (loop) (error (c) nil)))");
    run("(let ((l nil)) (loop (push (make-string 1000) l)))");
    run("(defun f (n) (1+ (f n))) (f 1)");
    run("(unix:system \"rm -rf /\")");
    run("(with-open-file (s \"/etc/passwd\") (read-line s))");
    run("(sys:thread #'(lambda () (loop)))");
    run("(exit 1)");
    return 0;
}
