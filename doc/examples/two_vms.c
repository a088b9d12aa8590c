/* two_vms.c -- two Lisp worlds in one process; what one does is not seen by the other. */
#include <stdio.h>
#include "karakuri.h"

static void show(kr_context *ctx, const char *who, const char *form)
{
    kr_value v;
    char text[200];
    size_t scope = kr_scope_begin(ctx);
    kr_status s = kr_eval_string(ctx, form, &v);
    (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
    printf("%s: %s\n", who, text);
    kr_scope_end(ctx, scope);
}

int main(void)
{
    const kr_config small = {.heap_limit = 16 << 20};
    kr_vm *planner_vm, *guard_vm;
    kr_context *planner, *guard;
    if (kr_vm_new(NULL, &planner_vm, &planner) != KR_OK || kr_vm_new(&small, &guard_vm, &guard) != KR_OK)
        return 1;
    show(planner, "planner", "(setq x 1)");
    show(guard, "guard", "(boundp 'x)");
    show(guard, "guard", "(let ((l nil)) (loop (push (make-string 1000) l)))");
    show(planner, "planner", "x");

    /* Between worlds only C data passes. */
    kr_value v;
    double *d, length;
    size_t n;
    kr_eval_string(planner, "#f(1 2 3)", &v);
    if (kr_to_reals(planner, v, &d, &n) == KR_OK) {
        kr_value copy = kr_float_vector(guard, d, n), norm;
        if (kr_call(guard, "norm", 1, &copy, &norm) == KR_OK && kr_to_real(guard, norm, &length) == KR_OK)
            printf("guard: norm %g\n", length);
    }
    kr_vm_free(guard);
    show(planner, "planner", "(list x 'still 'here)");
    kr_vm_free(planner);
    return 0;
}
