/* value_test.c -- runtime/value.h: every double and fixnum survives its word. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "runtime/value.h"

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

START_TEST(doubles_in_the_word_lose_no_bit)
{
    int within = 0;
    for (int i = 0; i < 1000000; i++) {
        uint64_t bits = next_random();
        double d, back;
        memcpy(&d, &bits, sizeof d);
        kr_value v = kri_flonum_try(d);
        if (!kri_is_flonum(v))
            continue;
        within++;
        back = kri_flonum_value(v);
        ck_assert_msg(memcmp(&d, &back, sizeof d) == 0, "%a", d);
        ck_assert(!kri_is_fixnum(v) && !kri_is_pointer(v) && !kri_is_nil(v));
    }
    ck_assert_int_gt(within, 200000); /* two exponents in eight */
}
END_TEST

START_TEST(the_range_is_as_documented)
{
    const double in[] = {1.0, -1.0, 0.1, 1e77, -1e77, 2e-77, 3.5, DBL_EPSILON, 1.15e77};
    const double out[] = {0.0, -0.0, 1e78, 1e-78, INFINITY, -INFINITY, DBL_MAX, DBL_MIN, 0x1p-255};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        ck_assert_msg(kri_is_flonum(kri_flonum_try(in[i])), "%a", in[i]);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        ck_assert_msg(!kri_is_flonum(kri_flonum_try(out[i])), "%a", out[i]);
    ck_assert(!kri_is_flonum(kri_flonum_try(NAN)));
    ck_assert(kri_flonum_value((kr_value){KRI_FLONUM_ZERO}) == 0.0);
    ck_assert(!signbit(kri_flonum_value((kr_value){KRI_FLONUM_ZERO})));
}
END_TEST

START_TEST(fixnums_have_63_bits)
{
    const intptr_t n[] = {0, 1, -1, KRI_FIXNUM_MAX, KRI_FIXNUM_MIN, 12345678901234};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        ck_assert(kri_is_fixnum(kri_fixnum(n[i])));
        ck_assert_int_eq(kri_fixnum_value(kri_fixnum(n[i])), n[i]);
    }
    ck_assert(!kri_fits_fixnum(KRI_FIXNUM_MAX + 1) && !kri_fits_fixnum(KRI_FIXNUM_MIN - 1));
}
END_TEST

START_TEST(kinds_exclude_each_other)
{
    const kr_value v[] = {KRI_NIL, KRI_UNBOUND, KRI_ABSENT, kri_fixnum(7), kri_flonum_try(1.5), {0x1000}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        ck_assert_int_le(kri_is_nil(v[i]) + kri_is_fixnum(v[i]) + kri_is_flonum(v[i]) + kri_is_pointer(v[i]), 1);
    ck_assert(kri_is_pointer(v[5]));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("value");
    TCase *t = tcase_create("words");
    tcase_add_test(t, doubles_in_the_word_lose_no_bit);
    tcase_add_test(t, the_range_is_as_documented);
    tcase_add_test(t, fixnums_have_63_bits);
    tcase_add_test(t, kinds_exclude_each_other);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
