/* number_test.c -- lisp/number*.c, lisp/bignum.c against the C library: text of floats, rounding, conversions. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lisp/karakuri.h"
#include "lisp/number.h"

#define EXPECT(x) do { if (!(x)) ck_abort_msg("%s", #x); } while (0)

static struct kr_vm *vm;
static struct kr_context *ctx;
static struct kri_worker *w;

static void begin(void)
{
    const kr_config config = {.bare = 1, .heap_limit = 64 << 20};
    ck_assert_int_eq(kr_vm_new(&config, &vm, &ctx), KR_OK);
    w = ctx->worker;
    kri_gate_enter(w);
}
static void end(void)
{
    kri_gate_leave_host(w);
    kr_vm_free(ctx);
}

static uint64_t seed = 88172645463325252u;
static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}
static double any_double(void)
{
    double d;
    uint64_t bits = next();
    memcpy(&d, &bits, sizeof d);
    return d;
}

static double parsed(const char *text)
{
    kr_value v = kri_parse_number(w, text, strlen(text), 10);
    EXPECT(kri_is_float(v));
    return kri_float_value(v);
}

START_TEST(every_float_survives_its_word_or_box)
{
    const double special[] = {0.0, -0.0, 1.0, INFINITY, -INFINITY, 0x1p-1074, 0x1p-255, -0x1p-255, 0x1p-256, 0x1.fffffffffffffp1023};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        kr_value v = kri_float(w, special[i]);
        EXPECT(kri_is_float(v) && !kri_is_fixnum(v));
        double d = kri_float_value(v);
        EXPECT(memcmp(&d, &special[i], sizeof d) == 0);
    }
    EXPECT(isnan(kri_float_value(kri_float(w, NAN))));
    for (int i = 0; i < 200000; i++) {
        double d = any_double();
        kr_value v = kri_float(w, d);
        EXPECT(kri_is_float(v));
        EXPECT(isnan(d) ? isnan(kri_float_value(v)) : kri_float_value(v) == d);
        EXPECT(kri_eql(v, kri_float(w, d)));
    }
}
END_TEST

START_TEST(decimals_are_read_as_strtod_reads_them)
{
    char text[128];
    for (int i = 0; i < 20000; i++) {
        double d = any_double();
        if (!isfinite(d))
            continue;
        snprintf(text, sizeof text, "%.*e", (int)(next() % 45), d);
        EXPECT(parsed(text) == strtod(text, NULL));
        snprintf(text, sizeof text, "%lu.%lue%d", (unsigned long)(next() >> next() % 64), (unsigned long)(next() >> next() % 64), (int)(next() % 700) - 350);
        EXPECT(parsed(text) == strtod(text, NULL));
    }
    /* Just below, on and above the middle between two floats, far behind the point. */
    EXPECT(parsed("9007199254740993.0") == 9007199254740992.0);
    EXPECT(parsed("9007199254740993.00000000000000000000000000000000000001") == 9007199254740994.0);
    EXPECT(parsed("2.4703282292062327208e-324") == 0);
    EXPECT(parsed("2.4703282292062328e-324") == 0x1p-1074);
    EXPECT(parsed("1.7976931348623158e308") == 0x1.fffffffffffffp1023);
    EXPECT(isinf(parsed("1.7976931348623159e308")));
}
END_TEST

START_TEST(shortest_text_reads_back)
{
    char text[64];
    for (int i = 0; i < 20000; i++) {
        double d = any_double();
        if (!isfinite(d))
            continue;
        size_t n = kri_print_float(vm, d, true, text);
        EXPECT(n == strlen(text) && n < 32);
        EXPECT(parsed(text) == d);
    }
}
END_TEST

static const struct { double d; const char *text; } printed[] = {
    {0, "0.0"}, {-0.0, "0.0"}, {0.1, "0.1"}, {3.14159265, "3.14159"}, {-12.5, "-12.5"}, {100, "100.0"}, {1234.5678, "1234.57"},
    {12345.67, "12345.7"}, {99999.99, "100000.0"}, {100000, "100000.0"}, {100001, "1.000010e+05"}, {0.0001, "0.0001"},
    {0.00001, "1.000000e-05"}, {9.9999999, "10.0"}, {1e100, "1.000000e+100"}, {INFINITY, "inf"}, {-INFINITY, "-inf"}, {NAN, "-nan"},
};

START_TEST(floats_print_by_the_rule)
{
    char text[64];
    kri_print_float(vm, printed[_i].d, false, text);
    ck_assert_str_eq(text, printed[_i].text);
}
END_TEST

START_TEST(integers_become_the_nearest_floats)
{
    for (int i = 0; i < 50000; i++) {
        unsigned __int128 n = (unsigned __int128)next() << 64 | next();
        unsigned shift = (unsigned)(next() % 128);
        n >>= shift;
        kr_value high = kri_int_from_u64(w, (uint64_t)(n >> 64), false), low = kri_int_from_u64(w, (uint64_t)n, false);
        kr_value v = kri_int_add(w, kri_int_shift(w, high, 64), low);
        EXPECT(kri_int_to_double(v) == (double)n);
        EXPECT(kri_int_to_double(kri_int_negate(w, v)) == -(double)n);
        EXPECT(kri_int_compare(kri_int_from_double(w, trunc((double)n)), v) == 0 || (double)n != 0);
        kr_value half = kri_make_ratio(w, kri_int_add(w, kri_int_shift(w, v, 1), kri_fixnum(1)), kri_fixnum(2));
        double d = kri_to_double(w, half);
        EXPECT(d >= (double)n && d <= nextafter((double)n, INFINITY) + 1);
    }
}
END_TEST

START_TEST(floats_are_rational)
{
    for (int i = 0; i < 5000; i++) {
        double d = any_double();
        if (!isfinite(d))
            continue;
        kr_value r = kri_rational(w, kri_float(w, d));
        EXPECT(kri_to_double(w, r) == d);
        EXPECT(kri_compare(w, r, kri_float(w, d)) == 0);
        double above = nextafter(d, INFINITY);
        EXPECT(!isfinite(above) || kri_compare(w, r, kri_float(w, above)) == -1);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("number");
    TCase *t = tcase_create("number");
    tcase_add_checked_fixture(t, begin, end);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_float_survives_its_word_or_box);
    tcase_add_test(t, decimals_are_read_as_strtod_reads_them);
    tcase_add_test(t, shortest_text_reads_back);
    tcase_add_loop_test(t, floats_print_by_the_rule, 0, (int)(sizeof printed / sizeof *printed));
    tcase_add_test(t, integers_become_the_nearest_floats);
    tcase_add_test(t, floats_are_rational);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
