/* calculator.c -- a service that computes what its clients send, a line each, over a socket; a client's mistake ends with an answer.
 *
 * One thread serves each client, attached to one VM. Each request is evaluated in a scope of its own and under a budget: what a client sends
 * does not stop the others. The clients here are threads of the same process; a real service would listen. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "karakuri.h"

struct client {
    kr_vm *vm;
    int socket;
};

/* The answer to LINE. */
static void answer(kr_context *ctx, const char *line, char *text, size_t size)
{
    const kr_budget budget = {.time_ns = 100000000, .heap_bytes = 32 << 20};
    kr_value v;
    size_t scope = kr_scope_begin(ctx);
    kr_budget_begin(ctx, &budget);
    kr_status s = kr_eval_string(ctx, line, &v);
    kr_exceeded exceeded = kr_budget_end(ctx);
    size_t n = 0;
    if (exceeded != KR_WITHIN_BUDGET)
        n = (size_t)snprintf(text, size, "too much %s, ", exceeded == KR_TIME_EXCEEDED ? "time" : "memory");
    if (s == KR_OK)
        kr_print(ctx, v, text + n, size - n);
    else
        snprintf(text + n, size - n, "error %d", kr_error_code(ctx, v));
    kr_scope_end(ctx, scope);
}

static void *serve(void *arg)
{
    struct client *c = arg;
    char line[1000], text[1000];
    kr_context *ctx = kr_attach(c->vm);
    FILE *in = fdopen(c->socket, "r");
    while (ctx && in && fgets(line, sizeof line, in)) {
        answer(ctx, line, text, sizeof text - 1);
        strcat(text, "\n");
        if (write(c->socket, text, strlen(text)) < 0)
            break;
    }
    if (ctx)
        kr_detach(ctx);
    if (in)
        fclose(in);
    return NULL;
}

static void ask(FILE *in, int socket, const char *question)
{
    char text[1000];
    if (write(socket, question, strlen(question)) < 0 || !fgets(text, sizeof text, in))
        return;
    printf("%.*s => %s", (int)strcspn(question, "\n"), question, text);
}

int main(void)
{
    static const char *const questions[] = {"(+ 1 2 3)\n", "(expt 2 100)\n", "(error \"no such thing\")\n", "(loop)\n", "(setq *answer* (* 6 7))\n", "*answer*\n"};
    kr_vm *vm;
    kr_context *ctx;
    pthread_t thread;
    int pair[2];
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 1;
    struct client client = {vm, pair[1]};
    pthread_create(&thread, NULL, serve, &client);
    FILE *in = fdopen(pair[0], "r");
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        ask(in, pair[0], questions[i]);
    shutdown(pair[0], SHUT_WR);
    pthread_join(thread, NULL);
    fclose(in);
    kr_vm_free(ctx);
    return 0;
}
