/* embed.h -- what the embedding tests share: a check that says where it failed, and evaluation that must succeed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "karakuri.h"

#define CHECK(condition) \
    ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition), exit(1)))

/* The value of TEXT, whatever it raises being a failure. */
static inline kr_value must(kr_context *ctx, const char *text)
{
    kr_value v;
    if (kr_eval_string(ctx, text, &v) == KR_OK)
        return v;
    char message[2000];
    kr_error_message(ctx, v, message, sizeof message);
    fprintf(stderr, "%s\n  raised: %s\n", text, message);
    kr_error_backtrace(ctx, v, message, sizeof message);
    fputs(message, stderr);
    exit(1);
}

static inline int64_t must_integer(kr_context *ctx, const char *text)
{
    int64_t n;
    size_t scope = kr_scope_begin(ctx);
    kr_value v = must(ctx, text);
    if (kr_to_integer(ctx, v, &n) != KR_OK) {
        char s[200];
        kr_print(ctx, v, s, sizeof s);
        fprintf(stderr, "%s\n  gave %s, no integer\n", text, s);
        exit(1);
    }
    kr_scope_end(ctx, scope);
    return n;
}

/* True if V prints as TEXT. */
static inline bool prints(kr_context *ctx, kr_value v, const char *text)
{
    char s[500];
    kr_print(ctx, v, s, sizeof s);
    if (strcmp(s, text) == 0)
        return true;
    fprintf(stderr, "printed: %s, expected: %s\n", s, text);
    return false;
}

/* True if CONDITION's message has PART in it. */
static inline bool message_has(kr_context *ctx, kr_value condition, const char *part)
{
    char s[1000];
    kr_error_message(ctx, condition, s, sizeof s);
    if (strstr(s, part))
        return true;
    fprintf(stderr, "message: %s, expected in it: %s\n", s, part);
    return false;
}

static inline kr_context *must_new(const kr_config *config, kr_vm **vm)
{
    kr_vm *made;
    kr_context *ctx;
    const char *stress = getenv("TEST_STRESS"); /* collect at every N-th slow allocation */
    kr_config c;
    memset(&c, 0, sizeof c);
    if (config)
        c = *config;
    if (stress && !c.stress)
        c.stress = (unsigned)atoi(stress);
    CHECK(kr_vm_new(&c, &made, &ctx) == KR_OK);
    CHECK(kr_context_vm(ctx) == made);
    if (vm)
        *vm = made;
    return ctx;
}
