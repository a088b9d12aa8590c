/* hello.c -- evaluate a text, print its value. */
#include <stdio.h>
#include "karakuri.h"

int main(void)
{
    kr_vm *vm;
    kr_context *ctx;
    kr_value v;
    char text[200];
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK)
        return 1;
    kr_status s = kr_eval_string(ctx, "(defun square (x) (* x x)) (mapcar #'square '(1 2.5 100000000000))", &v);
    (s == KR_OK ? kr_print : kr_error_message)(ctx, v, text, sizeof text);
    puts(text);
    kr_vm_free(ctx);
    return s != KR_OK;
}
