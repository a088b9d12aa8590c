/* repl.c -- a session: the command line and the loop are Lisp (lib/core/toplevel.l); this starts them and ends the process. */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lisp/repl/line.h"
#include "lisp/repl/repl.h"

static void report(kr_context *ctx, kr_value condition)
{
    kr_value done;
    char text[4000];
    if (kr_call(ctx, "lisp::report-condition", 1, &condition, &done) == KR_OK && !kr_is_nil(done))
        return;
    /* Not even that works: the plain text. */
    kr_error_message(ctx, condition, text, sizeof text);
    fprintf(stderr, "karakuri: error: %s\n", text);
}

/* The name under which this program can be run again, also from another directory. */
static kr_value program_name(kr_context *ctx, const char *name)
{
    char path[PATH_MAX];
    return kr_string(ctx, strchr(name, '/') && realpath(name, path) ? path : name);
}

static kr_value command_line(kr_context *ctx, const struct repl_options *o)
{
    kr_value *v = malloc((size_t)o->argc * sizeof *v), list = kr_nil();
    if (!v)
        return list;
    for (int i = 0; i < o->argc; i++)
        v[i] = i == 0 ? program_name(ctx, o->argv[0]) : kr_string(ctx, o->argv[i]);
    list = kr_list(ctx, o->argc, v);
    free(v);
    return list;
}

static __attribute__((noreturn)) void end(kr_context *ctx, int64_t code)
{
    kr_value v = kr_integer(ctx, code);
    kr_call(ctx, "exit", 1, &v, NULL);
    _exit((int)code);
}

void repl_main(kr_context *ctx, const struct repl_options *o)
{
    bool terminal = !o->batch && isatty(STDIN_FILENO) && (isatty(STDOUT_FILENO) || isatty(STDERR_FILENO));
    signal(SIGPIPE, SIG_IGN);
    if (terminal) {
        line_init(ctx);
        fputs("Karakuri " KR_VERSION "\n", stderr);
    }
    kr_value argv[3] = {command_line(ctx, o), kr_boolean(ctx, o->batch), kr_boolean(ctx, terminal)}, v;
    int64_t code = 0;
    if (kr_call(ctx, "lisp::start", 3, argv, &v) != KR_OK) {
        report(ctx, v);
        end(ctx, 1);
    }
    kr_to_integer(ctx, v, &code);
    end(ctx, code);
}
