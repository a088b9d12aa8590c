/* hello.c -- the smallest host: make a VM, evaluate, read the result. */
#include "embed.h"

int main(void)
{
    kr_vm *vm;
    kr_context *ctx;
    kr_value v;
    char text[100];
    CHECK(kr_abi_version() == KR_ABI_VERSION);
    CHECK(kr_vm_new(NULL, &vm, &ctx) == KR_OK);
    CHECK(kr_eval_string(ctx, "(defun greet (name) (format nil \"Hello, ~A!\" name)) (greet \"robot\")", &v) == KR_OK);
    char *bytes;
    size_t n;
    CHECK(kr_to_bytes(ctx, v, &bytes, &n) == KR_OK);
    CHECK(n == 13 && strcmp(bytes, "Hello, robot!") == 0);
    CHECK(kr_print(ctx, v, text, sizeof text) == 15 && strcmp(text, "\"Hello, robot!\"") == 0);
    CHECK(kr_eval_string(ctx, "", &v) == KR_OK && kr_is_nil(v));
    CHECK(kr_eval_string(ctx, "(+ 1 2)", NULL) == KR_OK);
    CHECK(kr_eval_string(ctx, "(car 'a", &v) == KR_ERROR);
    CHECK(must_integer(ctx, "(* 6 7)") == 42);
    kr_vm_free(ctx);
    return 0;
}
