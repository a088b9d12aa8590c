/* repl.c -- what the executable does with its command line, and then with its standard input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lisp/repl/repl.h"

static void report(kr_context *ctx, kr_value condition)
{
    char text[4000];
    fflush(stdout);
    kr_error_message(ctx, condition, text, sizeof text);
    fprintf(stderr, "karakuri: error: %s\n", text);
    kr_error_backtrace(ctx, condition, text, sizeof text);
    fputs(text, stderr);
}

/* False: an error was reported. */
static bool run(kr_context *ctx, bool file, const char *text, bool print)
{
    kr_value v;
    size_t scope = kr_scope_begin(ctx);
    kr_status status = file ? kr_load_file(ctx, text, &v) : kr_eval_string(ctx, text, &v);
    if (status != KR_OK)
        report(ctx, v);
    else if (print) {
        size_t n = kr_print(ctx, v, NULL, 0);
        char *s = malloc(n + 1);
        if (s) {
            kr_print(ctx, v, s, n + 1);
            puts(s);
            free(s);
        }
    }
    kr_scope_end(ctx, scope);
    return status == KR_OK;
}

int repl_main(kr_context *ctx, const struct repl_options *o)
{
    bool ok = true;
    for (int i = 1; i < o->argc && ok; i++) {
        const char *a = o->argv[i];
        if (strcmp(a, "--") == 0)
            break;
        if (strcmp(a, "-e") == 0)
            ok = run(ctx, false, o->argv[++i], true);
        else if (a[0] == '(')
            ok = run(ctx, false, a, false);
        else if (a[0] != '-')
            ok = run(ctx, true, a, false);
    }
    if (ok && !o->batch)
        ok = run(ctx, false, "(lisp::%toplevel)", false);
    kr_vm_free(ctx);
    return ok ? 0 : 1;
}
