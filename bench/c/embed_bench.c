/* embed_bench.c -- what the embedding interface costs: a call of a trivial Lisp function by name and by value, a value made and read, a
 * VM made and freed. Each figure is the best of several rounds; the answer of each is checked.
 *
 *   cc -O2 -Ilisp bench/c/embed_bench.c build/release/libkarakuri.a -lgmp -lm -ldl -pthread -o /tmp/embed_bench && /tmp/embed_bench */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "karakuri.h"

enum { ROUNDS = 7, CALLS = 1000000, VMS = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static kr_context *ctx;
static kr_value function;

static double by_name(void)
{
    kr_value argument = kr_integer(ctx, 41), v = kr_nil();
    int64_t n;
    double begin = now();
    for (int i = 0; i < CALLS; i++)
        kr_call(ctx, "same", 1, &argument, &v);
    double end = now();
    if (kr_to_integer(ctx, v, &n) != KR_OK || n != 41)
        exit(1);
    return (end - begin) / CALLS;
}

static double by_value(void)
{
    kr_value argument = kr_integer(ctx, 41), v = kr_nil();
    int64_t n;
    double begin = now();
    for (int i = 0; i < CALLS; i++)
        kr_funcall(ctx, function, 1, &argument, &v);
    double end = now();
    if (kr_to_integer(ctx, v, &n) != KR_OK || n != 41)
        exit(1);
    return (end - begin) / CALLS;
}

static double string_made(void)
{
    double begin = now();
    for (int i = 0; i < CALLS; i++) {
        size_t scope = kr_scope_begin(ctx);
        char *p;
        size_t n;
        if (kr_to_bytes(ctx, kr_string(ctx, "a short text"), &p, &n) != KR_OK || n != 12)
            exit(1);
        kr_scope_end(ctx, scope);
    }
    return (now() - begin) / CALLS;
}

static void report(const char *what, double (*f)(void), double unit, const char *name)
{
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double t = f();
        best = t < best ? t : best;
    }
    printf("%-40s %8.2f %s\n", what, best / unit, name);
}

static double lives[2];

static void vm_lives(void)
{
    lives[0] = lives[1] = 1e9;
    for (int i = 0; i < VMS; i++) {
        kr_vm *vm;
        kr_context *c;
        double begin = now();
        if (kr_vm_new(NULL, &vm, &c) != KR_OK)
            exit(1);
        double made = now();
        kr_vm_free(c);
        double freed = now();
        lives[0] = made - begin < lives[0] ? made - begin : lives[0];
        lives[1] = freed - made < lives[1] ? freed - made : lives[1];
    }
}

int main(void)
{
    kr_vm *vm;
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK || kr_eval_string(ctx, "(defun same (x) x) #'same", &function) != KR_OK)
        return 1;
    report("kr_call of a trivial function", by_name, 1e-9, "ns");
    report("kr_funcall of a trivial function", by_value, 1e-9, "ns");
    report("a string made and read", string_made, 1e-9, "ns");
    kr_vm_free(ctx);
    vm_lives();
    printf("%-40s %8.2f ms\n%-40s %8.2f ms\n", "a VM made", lives[0] * 1e3, "a VM freed", lives[1] * 1e3);
    return 0;
}
