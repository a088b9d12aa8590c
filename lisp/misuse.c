/* misuse.c -- debug mode: what a host does wrong with karakuri.h is told, with the function and what was wrong.
 *
 * Structs that hosts point to begin with a word that says they live. While checking, what is freed is only marked dead and kept, the
 * oldest of many thousand excepted, so that a pointer to it can be told. Checking is the process's: a dead VM knows no mode. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lisp/api.h"

enum { KEPT = 8192, DEAD = 0x64656164 };

kri_atomic kri_checking;

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static size_t *kept[KEPT];
static size_t kept_count;

void kri_forget(void *p)
{
    if (!kri_is_checking()) {
        free(p);
        return;
    }
    pthread_mutex_lock(&kept_lock);
    *(size_t *)p = DEAD;
    size_t at = kept_count++ % KEPT;
    size_t *old = kept[at];
    kept[at] = p;
    pthread_mutex_unlock(&kept_lock);
    free(old);
}

_Noreturn void kri_misuse(struct kr_vm *vm, const char *function, const char *message)
{
    if (vm && vm->alive == KRI_ALIVE && vm->host && vm->host->hooks.misuse)
        vm->host->hooks.misuse(function, message, vm->host->user);
    else
        fprintf(stderr, "karakuri: misuse of %s: %s\n", function, message);
    abort();
}

void kri_check_vm(kr_vm *vm, const char *function)
{
    if (!vm)
        kri_misuse(NULL, function, "the VM is NULL");
    if (vm->alive == DEAD)
        kri_misuse(NULL, function, "this VM was freed by kr_vm_free");
    if (vm->alive != KRI_ALIVE)
        kri_misuse(NULL, function, "this is no VM");
}

void kri_check_context(kr_context *ctx, const char *function)
{
    if (!ctx)
        kri_misuse(NULL, function, "the context is NULL");
    if (ctx->alive == DEAD)
        kri_misuse(NULL, function, "this context was detached, or its VM freed");
    if (ctx->alive != KRI_ALIVE)
        kri_misuse(NULL, function, "this is no context");
    if (ctx->vm->host && ctx->vm->host->process != getpid())
        kri_misuse(ctx->vm, function, "this process is a child made by fork(), which has no Lisp threads: only one of unix:fork may use the VM");
    if (!pthread_equal(ctx->owner, pthread_self()))
        kri_misuse(ctx->vm, function, "wrong thread: a context is used by the thread that attached it (kr_current gives each its own)");
}

void kri_check_ref(const kr_ref *ref, const char *function)
{
    if (!ref)
        kri_misuse(NULL, function, "the handle is NULL");
    if (ref->alive == DEAD)
        kri_misuse(NULL, function, "this handle was given back by kr_unref, or its VM freed");
    if (ref->alive != KRI_ALIVE)
        kri_misuse(NULL, function, "this is no handle");
}

void kri_check_value(kr_context *ctx, kr_value v, const char *function, int argument)
{
    char message[160];
    if (!kri_is_pointer(v) || kri_heap_owns(ctx->vm->heap, kri_ptr(v)))
        return;
    if (argument < 0)
        snprintf(message, sizeof message, "element %d of the arguments is another VM's value, or none that lives", -1 - argument);
    else
        snprintf(message, sizeof message, "argument %d is another VM's value, or none that lives", argument);
    kri_misuse(ctx->vm, function, message);
}

void kri_check_text(struct kr_vm *vm, const char *text, const char *function, int argument)
{
    char message[60];
    if (text)
        return;
    snprintf(message, sizeof message, "argument %d is NULL, a text expected", argument);
    kri_misuse(vm, function, message);
}

void kri_check_arguments(kr_context *ctx, int argc, const kr_value *argv, const char *function)
{
    if (argc < 0)
        kri_misuse(ctx->vm, function, "a negative number of arguments");
    if (argc > 0 && !argv)
        kri_misuse(ctx->vm, function, "the arguments are NULL");
    for (int i = 0; i < argc; i++)
        kri_check_value(ctx, argv[i], function, -1 - i);
}

void kri_check_inside(kr_context *ctx, const char *function)
{
    kri_check_context(ctx, function);
    if (!ctx->entry)
        kri_misuse(ctx->vm, function, "it is for a function that Lisp called, and none is running");
}
