/* arity_test.c -- lisp/builtin.c: an arglist's text to accepted argument counts. */
#include <check.h>
#include <stdlib.h>
#include "lisp/vm.h"

static const struct {
    const char *arglist;
    int min, max;
} good[] = {
    {"()", 0, 0},
    {"(a)", 1, 1},
    {"( a  b )", 2, 2},
    {"(list &optional (n 1))", 1, 2},
    {"(list &optional (n (+ 1 (f 2))) m)", 1, 3},
    {"(&rest args)", 0, -1},
    {"(a b &rest args)", 2, -1},
    {"(item alist &key (test #'eq) key)", 2, -1},
    {"(a &key b &allow-other-keys)", 1, -1},
};

static const char *const bad[] = {"", "a", "(a", "(a))", "(a) b", "(a &what b)", "(a (b)"};

START_TEST(counts_follow_the_arglist)
{
    int min, max;
    ck_assert_msg(kri_arity_parse(good[_i].arglist, &min, &max), "%s", good[_i].arglist);
    ck_assert_int_eq(min, good[_i].min);
    ck_assert_int_eq(max, good[_i].max);
}
END_TEST

START_TEST(malformed_arglists_are_refused)
{
    int min, max;
    ck_assert_msg(!kri_arity_parse(bad[_i], &min, &max), "%s", bad[_i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arity");
    TCase *t = tcase_create("parse");
    tcase_add_loop_test(t, counts_follow_the_arglist, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(t, malformed_arglists_are_refused, 0, sizeof bad / sizeof *bad);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
