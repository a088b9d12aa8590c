/* values_more.c -- every type is made and read; slots, classes, methods, foreign data, restarts, protection. */
#include "embed.h"

static int finalized;
static void finalize(kr_context *ctx, void *data)
{
    (void)ctx;
    ++*(int *)data;
    finalized++;
}
static const kr_foreign_type motor = {"motor", finalize}, other = {"other", NULL};

static kr_value method(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    void *data;
    if (kr_to_foreign(ctx, argv[0], &motor, &data) != KR_OK)
        kr_raise_condition(ctx, "lisp:type-error", "a motor that was released");
    CHECK(data == user);
    return kr_integer(ctx, argc);
}

static kr_value returns(kr_context *ctx, void *arg)
{
    (void)arg;
    return kr_string(ctx, "done");
}
static kr_value raises(kr_context *ctx, void *arg)
{
    ++*(int *)arg;
    kr_raise(ctx, "from C");
}
static void cleanup(kr_context *ctx, void *arg)
{
    (void)ctx;
    *(int *)arg += 100;
}
static kr_value with_cleanup(kr_context *ctx, void *arg) { return kr_with_cleanup(ctx, raises, cleanup, arg); }

static int told;
static void on_error(kr_context *ctx, kr_value condition, void *user)
{
    kr_value restarts, name;
    (void)user;
    told++;
    if (kr_restarts(ctx, condition, &restarts) != KR_OK || kr_is_nil(restarts))
        return;
    size_t n;
    CHECK(kr_length(ctx, restarts, &n) == KR_OK && n >= 1);
    name = kr_symbol(ctx, "use-this");
    kr_value seven = kr_integer(ctx, 7);
    kr_invoke_restart(ctx, name, 1, &seven);
}

static void types(kr_context *ctx)
{
    static const struct { const char *text; kr_type type; } all[] = {
        {"nil", KR_NIL}, {"'a", KR_SYMBOL}, {"5", KR_INTEGER}, {"(expt 2 100)", KR_INTEGER}, {"2.5", KR_REAL}, {"1e300", KR_REAL}, {"1/3", KR_RATIO},
        {"'(1)", KR_CONS}, {"\"s\"", KR_STRING}, {"#(1 2)", KR_VECTOR}, {"#f(1 2)", KR_FLOAT_VECTOR}, {"#i(1 2)", KR_INTEGER_VECTOR},
        {"#*101", KR_BIT_VECTOR}, {"(make-array '(2 2))", KR_ARRAY}, {"(make-hash-table)", KR_HASH_TABLE}, {"#'car", KR_FUNCTION},
        {"#'(lambda (x) x)", KR_FUNCTION}, {"*standard-output*", KR_STREAM}, {"object", KR_CLASS}, {"(instantiate object)", KR_OBJECT}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (kr_type_of(ctx, must(ctx, all[i].text)) != all[i].type) {
            fprintf(stderr, "%s is of type %d\n", all[i].text, kr_type_of(ctx, must(ctx, all[i].text)));
            exit(1);
        }
}

static void vectors(kr_context *ctx)
{
    const int64_t numbers[3] = {1, -2, INT64_MAX};
    int64_t *ints;
    unsigned char *bits;
    const char *name;
    size_t n;
    kr_value v = kr_integer_vector(ctx, numbers, 3), e;
    CHECK(kr_to_integers(ctx, v, &ints, &n) == KR_OK && n == 3 && ints[2] == INT64_MAX);
    CHECK(kr_to_bits(ctx, must(ctx, "#*101"), &bits, &n) == KR_OK && n == 3 && (bits[0] & 7) == 5);
    CHECK(kr_symbol_name(ctx, kr_symbol(ctx, "hello"), &name, &n) == KR_OK && n == 5 && memcmp(name, "HELLO", 5) == 0);
    const kr_value pair[2] = {kr_string(ctx, "a"), kr_integer(ctx, 4)};
    v = kr_vector(ctx, pair, 2);
    CHECK(kr_vector_ref(ctx, v, 1, &e) == KR_OK && kr_eq(e, kr_integer(ctx, 4)) && kr_vector_ref(ctx, v, 2, &e) == KR_BAD_TYPE);
    CHECK(kr_vector_set(ctx, v, 0, kr_boolean(ctx, true)) == KR_OK && prints(ctx, v, "#(t 4)"));
    v = kr_cons(ctx, pair[0], kr_cons(ctx, pair[1], kr_nil()));
    CHECK(prints(ctx, v, "(\"a\" 4)") && kr_length(ctx, v, &n) == KR_OK && n == 2);
    CHECK(kr_cdr(ctx, v, &e) == KR_OK && kr_car(ctx, e, &e) == KR_OK && kr_eq(e, pair[1]) && kr_car(ctx, e, &e) == KR_BAD_TYPE);
    CHECK(kr_length(ctx, must(ctx, "(let ((l (list 1 2 3))) (rplacd (cddr l) l) l)"), &n) == KR_BAD_TYPE);
    CHECK(prints(ctx, kr_big_integer(ctx, "123456789012345678901234567890"), "123456789012345678901234567890"));
    CHECK(kr_is_nil(kr_big_integer(ctx, "12x")));
    CHECK(kr_equal(ctx, must(ctx, "'(1 (2 \"x\"))"), must(ctx, "(list 1 (list 2 \"x\"))")) && !kr_equal(ctx, pair[0], pair[1]));
    CHECK(kr_set(ctx, "*speed*", pair[1]) == KR_OK && kr_get(ctx, "*speed*", &e) == KR_OK && kr_eq(e, pair[1]));
    CHECK(kr_get(ctx, "*not-there*", &e) == KR_ERROR && kr_set(ctx, "t", e) == KR_ERROR);
    CHECK(kr_read(ctx, "(a . b)", &e) == KR_OK && prints(ctx, e, "(a . b)") && kr_read(ctx, "", &e) == KR_ERROR);
    CHECK(kr_read(ctx, "(+ 1 2)", &e) == KR_OK && kr_eval(ctx, e, &e) == KR_OK && kr_eq(e, kr_integer(ctx, 3)));
    CHECK(kr_eval_bytes(ctx, "(defun far () (car 5))\n(far) xxx", 28, "far.l", &e) == KR_ERROR && message_has(ctx, e, "far.l"));
}

/* A name means what it means now, however often it was asked for. */
static void names(kr_context *ctx)
{
    kr_value v;
    for (int i = 0; i < 3; i++)
        CHECK(kr_call(ctx, "shady", 0, NULL, &v) == KR_ERROR);
    must(ctx, "(defun shady () 1)");
    CHECK(kr_call(ctx, "shady", 0, NULL, &v) == KR_OK && kr_eq(v, kr_integer(ctx, 1)));
    must(ctx, "(unintern 'shady)");
    CHECK(kr_call(ctx, "shady", 0, NULL, &v) == KR_ERROR);
    must(ctx, "(make-package \"FAST\") (defun fast::go-on () 2) (import 'fast::go-on)");
    CHECK(kr_call(ctx, "go-on", 0, NULL, &v) == KR_OK && kr_eq(v, kr_integer(ctx, 2)));
    CHECK(kr_call(ctx, "fast:go-on", 0, NULL, &v) == KR_ERROR);
    must(ctx, "(export 'fast::go-on \"FAST\")");
    CHECK(kr_call(ctx, "fast:go-on", 0, NULL, &v) == KR_OK);
}

/* Numbers of two parts, matrices, bit-vectors, hash tables. */
static void compound(kr_context *ctx)
{
    kr_value v, n, d;
    double re, im, *at;
    size_t rows, columns, count;
    unsigned char *bits;
    v = kr_ratio(ctx, kr_integer(ctx, 6), kr_big_integer(ctx, "-40000000000000000000000"));
    CHECK(kr_type_of(ctx, v) == KR_RATIO && prints(ctx, v, "-3/20000000000000000000000"));
    CHECK(kr_to_ratio(ctx, v, &n, &d) == KR_OK && prints(ctx, n, "-3") && prints(ctx, d, "20000000000000000000000"));
    CHECK(kr_type_of(ctx, kr_ratio(ctx, kr_integer(ctx, 6), kr_integer(ctx, 3))) == KR_INTEGER);
    CHECK(kr_to_ratio(ctx, kr_integer(ctx, 7), &n, &d) == KR_OK && prints(ctx, n, "7") && prints(ctx, d, "1"));
    CHECK(kr_is_nil(kr_ratio(ctx, n, kr_integer(ctx, 0))) && kr_is_nil(kr_ratio(ctx, n, kr_real(ctx, 2))) && kr_to_ratio(ctx, kr_real(ctx, 2), &n, &d) == KR_BAD_TYPE);

    v = kr_complex(ctx, 1.5, -2);
    CHECK(kr_type_of(ctx, v) == KR_COMPLEX && kr_to_complex(ctx, v, &re, &im) == KR_OK && re == 1.5 && im == -2);
    CHECK(kr_call(ctx, "abs", 1, &v, &n) == KR_OK && prints(ctx, n, "2.5"));
    CHECK(kr_to_complex(ctx, kr_integer(ctx, 3), &re, &im) == KR_OK && re == 3 && im == 0);
    CHECK(kr_to_complex(ctx, must(ctx, "1/4"), &re, &im) == KR_OK && re == 0.25 && kr_to_complex(ctx, kr_string(ctx, "1"), &re, &im) == KR_BAD_TYPE);

    v = kr_matrix(ctx, (const double[]){1, 2, 3, 4, 5, 6}, 2, 3);
    CHECK(kr_type_of(ctx, v) == KR_ARRAY && prints(ctx, v, "#2f((1.0 2.0 3.0) (4.0 5.0 6.0))"));
    CHECK(kr_to_matrix(ctx, v, &at, &rows, &columns) == KR_OK && rows == 2 && columns == 3 && at[5] == 6);
    at[0] = 10; /* in place */
    CHECK(kr_call(ctx, "transpose", 1, &v, &n) == KR_OK && prints(ctx, n, "#2f((10.0 4.0) (2.0 5.0) (3.0 6.0))"));
    CHECK(prints(ctx, kr_matrix(ctx, NULL, 1, 2), "#2f((0.0 0.0))") && kr_is_nil(kr_matrix(ctx, NULL, SIZE_MAX, 2)) && kr_is_nil(kr_matrix(ctx, NULL, SIZE_MAX / 2, 1)));
    CHECK(kr_to_matrix(ctx, must(ctx, "(make-array '(2 2))"), &at, &rows, &columns) == KR_BAD_TYPE && kr_to_matrix(ctx, kr_nil(), &at, &rows, &columns) == KR_BAD_TYPE);
    CHECK(kr_to_matrix(ctx, kr_float_vector(ctx, NULL, 4), &at, &rows, &columns) == KR_BAD_TYPE && kr_to_matrix(ctx, kr_integer(ctx, 4), &at, &rows, &columns) == KR_BAD_TYPE);

    v = kr_bit_vector(ctx, (const unsigned char[]){0xff, 0xff}, 11);
    CHECK(kr_type_of(ctx, v) == KR_BIT_VECTOR && prints(ctx, v, "#*11111111111") && kr_to_bits(ctx, v, &bits, &count) == KR_OK && count == 11 && bits[1] == 7);
    CHECK(prints(ctx, kr_bit_vector(ctx, NULL, 3), "#*000") && kr_equal(ctx, v, must(ctx, "#*11111111111")));

    v = kr_hash_table(ctx, "equal");
    CHECK(kr_type_of(ctx, v) == KR_HASH_TABLE);
    for (int i = 0; i < 100; i++) {
        char text[20];
        snprintf(text, sizeof text, "joint-%d", i);
        CHECK(kr_table_set(ctx, v, kr_string(ctx, text), kr_integer(ctx, i)) == KR_OK);
    }
    CHECK(kr_table_get(ctx, v, kr_string(ctx, "joint-42"), &n) == KR_OK && prints(ctx, n, "42"));
    CHECK(kr_table_remove(ctx, v, kr_string(ctx, "joint-42")) == KR_OK && kr_table_get(ctx, v, kr_string(ctx, "joint-42"), &n) == KR_OK && kr_is_nil(n));
    CHECK(kr_table_entries(ctx, v, &n) == KR_OK && kr_length(ctx, n, &count) == KR_OK && count == 99);
    CHECK(kr_call(ctx, "list-length", 1, &n, &d) == KR_OK && prints(ctx, d, "99") && kr_car(ctx, n, &d) == KR_OK && kr_type_of(ctx, d) == KR_CONS);
    CHECK(kr_table_get(ctx, kr_nil(), n, &d) == KR_BAD_TYPE && kr_is_nil(kr_hash_table(ctx, "no-such-test")));
    CHECK(kr_table_entries(ctx, kr_hash_table(ctx, "eq"), &n) == KR_OK && kr_is_nil(n));
}

int main(void)
{
    const kr_config config = {.hooks = {.error = on_error}};
    kr_vm *vm;
    kr_context *ctx = must_new(&config, &vm);
    kr_value v, e;
    int data[3] = {0}, count = 0;
    void *found;
    types(ctx);
    vectors(ctx);
    compound(ctx);
    names(ctx);

    CHECK(kr_define_class(ctx, "wheel", NULL, "radius turns", "A wheel.") == KR_OK);
    v = must(ctx, "(setq w (instance wheel))");
    CHECK(kr_set_slot(ctx, v, "radius", kr_real(ctx, 0.1)) == KR_OK && kr_slot(ctx, v, "radius", &e) == KR_OK && prints(ctx, e, "0.1"));
    CHECK(kr_slot(ctx, v, "colour", &e) == KR_ERROR && kr_slot(ctx, e, "x", &e) == KR_ERROR && kr_slot(ctx, kr_integer(ctx, 3), "x", &e) == KR_ERROR);
    CHECK(kr_is_a(ctx, v, "wheel") && kr_is_a(ctx, v, "object") && !kr_is_a(ctx, v, "cons"));

    CHECK(kr_is_nil(kr_foreign(ctx, &motor, &data[0]))); /* no class yet */
    CHECK(kr_foreign_class(ctx, &motor, "name", "A motor.") == KR_OK && kr_foreign_class(ctx, &other, NULL, NULL) == KR_OK);
    CHECK(kr_define_method(ctx, "motor", "turn", "(angle &optional speed)", "Turn.", method, &data[0]) == KR_OK);
    CHECK(kr_define_method(ctx, "no-class", "turn", "()", NULL, method, NULL) == KR_ERROR);
    v = kr_foreign(ctx, &motor, &data[0]);
    CHECK(kr_set(ctx, "m", v) == KR_OK && kr_to_foreign(ctx, v, &motor, &found) == KR_OK && found == &data[0]);
    CHECK(kr_to_foreign(ctx, v, &other, &found) == KR_BAD_TYPE && kr_to_foreign(ctx, kr_nil(), &motor, &found) == KR_BAD_TYPE);
    CHECK(must_integer(ctx, "(send m :turn 1)") == 2 && must_integer(ctx, "(send m :turn 1 2)") == 3);
    CHECK(kr_eval_string(ctx, "(send m :turn)", &e) == KR_ERROR && message_has(ctx, e, "mismatch argument"));
    CHECK(kr_eval_string(ctx, "(send (copy-object m) :turn 1)", &e) == KR_ERROR && message_has(ctx, e, "released")); /* a copy stands for nothing */
    CHECK(kr_eval_string(ctx, "(setslot m foreign-data 'data 12345)", NULL) == KR_ERROR || !(kr_to_foreign(ctx, v, &motor, &found) == KR_OK));
    must(ctx, "(setq m nil)");
    v = kr_foreign(ctx, &motor, &data[0]);
    kr_set(ctx, "m", v);
    CHECK(kr_foreign_release(ctx, v, &motor) == KR_OK && data[0] >= 1 && kr_foreign_release(ctx, v, &motor) == KR_BAD_TYPE);
    CHECK(kr_eval_string(ctx, "(send m :turn 1)", &e) == KR_ERROR && message_has(ctx, e, "released") && kr_is_a(ctx, e, "lisp:type-error"));
    kr_set(ctx, "m", kr_foreign(ctx, &motor, &data[1])); /* left for the end */

    CHECK(kr_protect(ctx, returns, NULL, &v) == KR_OK && prints(ctx, v, "\"done\""));
    CHECK(kr_protect(ctx, raises, &count, &v) == KR_ERROR && message_has(ctx, v, "from C") && count == 1);
    CHECK(kr_protect(ctx, with_cleanup, &count, &v) == KR_ERROR && count == 102);

    int before = told;
    CHECK(must_integer(ctx, "(1+ (restart-case (car 5) (use-this (x) x)))") == 8 && told == before + 1);
    CHECK(kr_eval_string(ctx, "(car 5)", &v) == KR_ERROR && told == before + 2);
    CHECK(kr_eval_string(ctx, "(ignore-errors (car 5))", &v) == KR_OK && told == before + 2);
    kr_vm_free(ctx);
    CHECK(data[0] == 2 && data[1] == 1 && finalized == 3);
    return 0;
}
