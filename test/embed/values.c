/* values.c -- every function that makes or reads a value; scopes and references. */
#include <math.h>

#include "embed.h"

static void integers(kr_context *ctx)
{
    static const int64_t n[] = {0, 1, -1, INT64_C(1) << 61, -(INT64_C(1) << 62), (INT64_C(1) << 62) - 1, INT64_C(1) << 62,
                                INT64_MAX, INT64_MIN, -(INT64_C(1) << 62) - 1};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        int64_t back = 7;
        char text[40], printed[40];
        kr_value v = kr_integer(ctx, n[i]);
        CHECK(kr_to_integer(ctx, v, &back) == KR_OK && back == n[i]);
        kr_print(ctx, v, printed, sizeof printed);
        snprintf(text, sizeof text, "%lld", (long long)n[i]);
        CHECK(strcmp(text, printed) == 0);
    }
    int64_t back;
    double d;
    CHECK(kr_to_integer(ctx, must(ctx, "(expt 2 63)"), &back) == KR_BAD_TYPE);
    CHECK(kr_to_integer(ctx, must(ctx, "(- (expt 2 63))"), &back) == KR_OK && back == INT64_MIN);
    CHECK(kr_to_integer(ctx, kr_real(ctx, 1.0), &back) == KR_BAD_TYPE);
    CHECK(kr_to_integer(ctx, kr_nil(), &back) == KR_BAD_TYPE);
    CHECK(kr_to_integer(ctx, kr_string(ctx, "1"), &back) == KR_BAD_TYPE);
    CHECK(kr_to_real(ctx, must(ctx, "(expt 2 70)"), &d) == KR_OK && d == ldexp(1, 70));
    CHECK(kr_to_real(ctx, must(ctx, "(/ 1 4)"), &d) == KR_OK);
}

static void reals(kr_context *ctx)
{
    static const double x[] = {0.0, -0.0, 1.5, -1e300, 5e-324, 1e-200, 1.7976931348623157e308, INFINITY, -INFINITY, 0.1};
    double back;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        CHECK(kr_to_real(ctx, kr_real(ctx, x[i]), &back) == KR_OK);
        CHECK(memcmp(&back, &x[i], sizeof back) == 0);
    }
    CHECK(kr_to_real(ctx, kr_real(ctx, NAN), &back) == KR_OK && isnan(back));
    CHECK(kr_to_real(ctx, kr_integer(ctx, 3), &back) == KR_OK && back == 3.0);
    CHECK(kr_to_real(ctx, kr_symbol(ctx, "a"), &back) == KR_BAD_TYPE);
    CHECK(kr_to_real(ctx, kr_nil(), &back) == KR_BAD_TYPE);
}

static void bytes(kr_context *ctx)
{
    static const char raw[] = {'a', 0, 'b', (char)0xff};
    char *p;
    size_t n;
    CHECK(kr_to_bytes(ctx, kr_bytes(ctx, raw, sizeof raw), &p, &n) == KR_OK);
    CHECK(n == sizeof raw && memcmp(p, raw, n) == 0 && p[n] == 0);
    CHECK(kr_to_bytes(ctx, kr_string(ctx, ""), &p, &n) == KR_OK && n == 0 && *p == 0);
    CHECK(kr_to_bytes(ctx, kr_bytes(ctx, NULL, 0), &p, &n) == KR_OK && n == 0);
    CHECK(kr_to_bytes(ctx, kr_integer(ctx, 1), &p, &n) == KR_BAD_TYPE);
    CHECK(kr_to_bytes(ctx, kr_nil(), &p, &n) == KR_BAD_TYPE);
    CHECK(kr_to_bytes(ctx, kr_symbol(ctx, "a"), &p, &n) == KR_BAD_TYPE);
    /* In place: Lisp and the host see the same bytes. */
    kr_value s = kr_string(ctx, "robot");
    CHECK(kr_to_bytes(ctx, s, &p, &n) == KR_OK);
    p[0] = 'R';
    CHECK(prints(ctx, s, "\"Robot\""));
    kr_collect(ctx);
    CHECK(strcmp(p, "Robot") == 0);
    CHECK(kr_is_nil(kr_bytes(ctx, raw, SIZE_MAX)) && kr_is_nil(kr_bytes(ctx, raw, (size_t)1 << 40)));
}

static void float_vectors(kr_context *ctx)
{
    static const double x[] = {1, 2.5, -3};
    double *p;
    size_t n;
    kr_value v = kr_float_vector(ctx, x, 3), zeros = kr_float_vector(ctx, NULL, 4);
    CHECK(kr_to_reals(ctx, v, &p, &n) == KR_OK && n == 3 && memcmp(p, x, sizeof x) == 0);
    p[1] = 7;
    CHECK(prints(ctx, v, "#f(1.0 7.0 -3.0)"));
    CHECK(kr_to_reals(ctx, zeros, &p, &n) == KR_OK && n == 4 && p[0] == 0 && p[3] == 0);
    CHECK(kr_to_reals(ctx, kr_float_vector(ctx, x, 0), &p, &n) == KR_OK && n == 0);
    CHECK(kr_to_reals(ctx, kr_list(ctx, 1, &v), &p, &n) == KR_BAD_TYPE);
    CHECK(kr_is_nil(kr_float_vector(ctx, NULL, SIZE_MAX / 2)));
}

static void lists_and_symbols(kr_context *ctx)
{
    const kr_value e[] = {kr_integer(ctx, 1), kr_string(ctx, "two"), kr_symbol(ctx, "three"), kr_nil()};
    CHECK(prints(ctx, kr_list(ctx, 4, e), "(1 \"two\" three nil)"));
    CHECK(kr_is_nil(kr_list(ctx, 0, NULL)) && kr_is_nil(kr_list(ctx, -1, NULL)));
    CHECK(kr_is_nil(kr_nil()) && kr_is_nil(kr_boolean(ctx, false)) && !kr_is_nil(kr_boolean(ctx, true)));
    CHECK(kr_boolean(ctx, true).w == must(ctx, "t").w);
    CHECK(kr_symbol(ctx, "car").w == must(ctx, "'car").w);
    CHECK(kr_symbol(ctx, "Car").w == must(ctx, "'lisp::car").w);
    CHECK(kr_symbol(ctx, ":key").w == must(ctx, ":key").w);
    CHECK(kr_symbol(ctx, "lisp:car").w == must(ctx, "'car").w);
    CHECK(kr_symbol(ctx, "lisp::hidden-one").w == must(ctx, "'lisp::hidden-one").w);
    CHECK(kr_symbol(ctx, "|Mixed Case|").w == must(ctx, "'|Mixed Case|").w);
    CHECK(kr_symbol(ctx, "|a:b|").w == must(ctx, "'|a:b|").w);
    CHECK(kr_symbol(ctx, "12").w == must(ctx, "'|12|").w);
    CHECK(kr_is_nil(kr_symbol(ctx, "nil")));
    CHECK(kr_is_nil(kr_symbol(ctx, "no-such-package:x")));
    CHECK(kr_is_nil(kr_symbol(ctx, "lisp:no-such-external")));
    CHECK(kr_is_nil(kr_symbol(ctx, "")) && kr_is_nil(kr_symbol(ctx, ":")));
    /* Whatever package Lisp is in. */
    must(ctx, "(make-package \"ROBOT\") (in-package \"ROBOT\")");
    CHECK(kr_symbol(ctx, "foo").w == must(ctx, "'user::foo").w);
    must(ctx, "(lisp:in-package \"USER\")");
}

static void printing(kr_context *ctx)
{
    char text[8] = "xxxxxxx";
    kr_value s = kr_string(ctx, "0123456789");
    CHECK(kr_print(ctx, s, text, sizeof text) == 12 && strcmp(text, "\"012345") == 0);
    CHECK(kr_print(ctx, s, text, 1) == 12 && text[0] == 0);
    CHECK(kr_print(ctx, s, NULL, 0) == 12);
    CHECK(kr_print(ctx, kr_nil(), text, sizeof text) == 3 && strcmp(text, "nil") == 0);
}

/* What a scope dropped is collected, what a reference or an outer scope holds is not. */
static void lifetimes(kr_context *ctx)
{
    must(ctx, "(defvar *died* nil)"
              "(defun watched (name) (let ((v (list name))) (sys:finalize v #'(lambda (x) (push (car x) *died*))) v))");
    size_t outer = kr_scope_begin(ctx);
    kr_value kept = must(ctx, "(watched 'outer)");
    kr_ref *refs[100];
    for (int i = 0; i < 100; i++) {
        size_t inner = kr_scope_begin(ctx);
        char text[40];
        snprintf(text, sizeof text, "(watched %d)", i);
        kr_value v = must(ctx, text);
        refs[i] = i % 2 ? kr_ref_new(ctx, v) : NULL;
        for (int j = 0; j < 200; j++)
            kr_string(ctx, "something that fills the table of locals");
        kr_scope_end(ctx, inner);
    }
    /* One that a stale word of the stack still names may survive a collection. */
    for (int i = 0; i < 3; i++) {
        must(ctx, "(let ((l nil)) (dotimes (i 100000) (push i l)) (length l))");
        kr_collect(ctx);
    }
    CHECK(must_integer(ctx, "(count-if #'evenp (remove-if-not #'integerp *died*))") >= 45);
    CHECK(must_integer(ctx, "(count-if #'oddp (remove-if-not #'integerp *died*))") == 0);
    CHECK(must_integer(ctx, "(length (remove-if #'integerp *died*))") == 0);
    CHECK(prints(ctx, kept, "(outer)"));
    for (int i = 1; i < 100; i += 2) {
        char text[20];
        snprintf(text, sizeof text, "(%d)", i);
        CHECK(prints(ctx, kr_ref_value(refs[i]), text));
    }
    for (int i = 1; i < 100; i += 4)
        kr_unref(ctx, refs[i]);
    for (int i = 99; i > 0; i -= 4)
        kr_unref(ctx, refs[i]);
    kr_unref(ctx, NULL);
    kr_scope_end(ctx, outer);
    kr_ref_new(ctx, must(ctx, "(list 1)")); /* the VM's end releases it */
}

int main(void)
{
    kr_context *ctx = must_new(NULL, NULL);
    integers(ctx);
    reals(ctx);
    bytes(ctx);
    float_vectors(ctx);
    lists_and_symbols(ctx);
    printing(ctx);
    lifetimes(ctx);
    kr_vm_free(ctx);
    return 0;
}
