/* error_text.c -- what a host learns of an error: message, backtrace, and nothing of what was no error. */
#include "embed.h"

static kr_value value_of(kr_context *ctx, const char *text)
{
    kr_value v;
    CHECK(kr_eval_string(ctx, text, &v) == KR_ERROR);
    return v;
}

int main(void)
{
    kr_context *ctx = must_new(NULL, NULL);
    char text[3000], small[10];
    kr_value v;
    must(ctx, "(defun inner (x) (+ x (car x))) (defun outer (x) (list (inner x)))");
    kr_value c = value_of(ctx, "(outer 7)");
    CHECK(message_has(ctx, c, "list expected") && message_has(ctx, c, "7"));
    size_t n = kr_error_message(ctx, c, text, sizeof text);
    CHECK(n == strlen(text) && kr_error_message(ctx, c, small, sizeof small) == n && strncmp(text, small, 9) == 0 && small[9] == 0);
    CHECK(kr_error_message(ctx, c, NULL, 0) == n);
    n = kr_error_backtrace(ctx, c, text, sizeof text);
    CHECK(n == strlen(text));
    char *inner = strstr(text, "(inner 7)"), *outer = strstr(text, "(outer 7)");
    CHECK(inner && outer && inner < outer);
    /* The texts of other errors. */
    CHECK(message_has(ctx, value_of(ctx, "(error \"speed ~A\" 42)"), "speed 42"));
    CHECK(message_has(ctx, value_of(ctx, "(no-such-function 1)"), "no-such-function"));
    CHECK(message_has(ctx, value_of(ctx, "no-such-variable"), "no-such-variable"));
    CHECK(message_has(ctx, value_of(ctx, "(/ 1 0)"), "division by zero"));
    CHECK(message_has(ctx, value_of(ctx, "(throw 'nowhere 1)"), "nowhere"));
    CHECK(message_has(ctx, value_of(ctx, "(foo::bar)"), "no such package"));
    CHECK(kr_load_file(ctx, "/no/such/file.l", &v) == KR_ERROR && message_has(ctx, v, "/no/such/file.l"));
    /* A file's error knows the place. */
    FILE *f = fopen("/tmp/karakuri-error-text.l", "w");
    CHECK(f && fputs("(defun broken (x)\n  (let ((y 1))\n    (car y)))\n(broken 1)\n", f) >= 0 && fclose(f) == 0);
    CHECK(kr_load_file(ctx, "/tmp/karakuri-error-text.l", &v) == KR_ERROR);
    remove("/tmp/karakuri-error-text.l");
    CHECK(message_has(ctx, v, "karakuri-error-text.l:"));
    kr_error_backtrace(ctx, v, text, sizeof text);
    CHECK(strstr(text, "karakuri-error-text.l:"));
    /* A condition of the program's own, one that cannot print what it holds. */
    must(ctx, "(defclass sulky :super object :slots ()) (defmethod sulky (:prin1 (&rest args) (error \"no\")))");
    CHECK(kr_error_message(ctx, value_of(ctx, "(car (instance sulky))"), text, sizeof text) > 0);
    CHECK(kr_print(ctx, must(ctx, "(instance sulky)"), text, sizeof text) == 0 && *text == 0);
    /* No condition at all. */
    kr_value other[] = {kr_nil(), kr_integer(ctx, 1), kr_string(ctx, "text"), must(ctx, "(list 1 2)")};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        kr_error_message(ctx, other[i], text, sizeof text);
        CHECK(kr_error_backtrace(ctx, other[i], text, sizeof text) == 0 && *text == 0);
    }
    /* Circular data and long data are cut, not followed for ever. */
    c = value_of(ctx, "(let ((*print-circle* nil)) (car (make-string 100000)))");
    CHECK(kr_error_message(ctx, c, text, sizeof text) < 2000);
    kr_vm_free(ctx);
    return 0;
}
