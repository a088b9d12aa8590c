/* main.c -- the karakuri executable: the options that the machine is made with; the rest of the command line is the session's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lisp/karakuri.h"
#include "lisp/repl/repl.h"

static const char usage[] =
    "usage: karakuri [options] [file.l | '(form)']... [-- arguments]\n"
    "  FILE            load it\n"
    "  '(FORM)'        evaluate it\n"
    "  -e FORM         evaluate FORM and print its value\n"
    "  --batch         no init files and no prompt; an uncaught error prints a backtrace and exits with code 1\n"
    "  --compile FILE..  compile the files to modules of native code, which load prefers to their sources\n"
    "  --script FILE   --batch, load FILE, and leave all further arguments to it\n"
    "  --alloc=D       allocation discipline: gate (default), rwlock, mutex, none\n"
    "  --markers=N     threads that mark during a collection (default: the cores)\n"
    "  --heap=SIZE     heap limit in bytes, with k, m or g\n"
    "  --heap-initial=SIZE  allocation before the first collection (default 16m)\n"
    "  --stack=SIZE    limit of each thread's Lisp stack\n"
    "  --threads=N     most threads that sys:thread makes (default 256)\n"
    "  --stress=N      collect at every N-th slow allocation\n"
    "  --library=DIR   the Lisp library\n"
    "  --version, --help\n"
    "Without --batch, forms are then read from standard input; on a terminal with a prompt.\n"
    "Programs find the command line in lisp::*eustop-argument*. See karakuri(1).\n";

static size_t size_argument(const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    switch (*end) {
    case 'k': case 'K': n <<= 10; end++; break;
    case 'm': case 'M': n <<= 20; end++; break;
    case 'g': case 'G': n <<= 30; end++; break;
    }
    if (end == text || *end) {
        fprintf(stderr, "karakuri: %s is not a size\n", text);
        exit(2);
    }
    return (size_t)n;
}

static const char *value_of(const char *argument, const char *name)
{
    size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 ? argument + n : NULL;
}

static kr_alloc discipline(const char *name)
{
    static const char *const names[] = {[KR_ALLOC_GATE] = "gate", [KR_ALLOC_RWLOCK] = "rwlock", [KR_ALLOC_MUTEX] = "mutex", [KR_ALLOC_NONE] = "none"};
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0)
            return (kr_alloc)i;
    fprintf(stderr, "karakuri: unknown allocation discipline %s (gate, rwlock, mutex, none)\n", name);
    exit(2);
}

static void parse_options(int argc, char **argv, struct repl_options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v;
        if (strcmp(a, "--") == 0)
            break;
        if ((v = value_of(a, "--alloc=")))
            o->config.alloc = discipline(v);
        else if ((v = value_of(a, "--markers=")))
            o->config.markers = (unsigned)atoi(v);
        else if ((v = value_of(a, "--heap=")))
            o->config.heap_limit = size_argument(v);
        else if ((v = value_of(a, "--heap-initial=")))
            o->config.heap_initial = size_argument(v);
        else if ((v = value_of(a, "--stack=")))
            o->config.stack_limit = size_argument(v);
        else if ((v = value_of(a, "--threads=")))
            o->config.max_threads = (unsigned)atoi(v);
        else if ((v = value_of(a, "--stress=")))
            o->config.stress = (unsigned)atoi(v);
        else if ((v = value_of(a, "--library=")))
            o->config.library = v;
        else if (strcmp(a, "--batch") == 0)
            o->batch = true;
        else if (strcmp(a, "--compile") == 0) {
            if (i + 1 == argc) {
                fputs("karakuri: --compile needs files\n", stderr);
                exit(2);
            }
            o->batch = true;
            return;
        }
        else if (strcmp(a, "--script") == 0) {
            if (++i == argc) {
                fputs("karakuri: --script needs a file\n", stderr);
                exit(2);
            }
            o->batch = true;
            return;
        }
        else if (strcmp(a, "--version") == 0) {
            puts("karakuri " KR_VERSION);
            exit(0);
        } else if (strcmp(a, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else if (strcmp(a, "-e") == 0) {
            if (++i == argc) {
                fputs("karakuri: -e needs a form\n", stderr);
                exit(2);
            }
        } else if (a[0] == '-' && a[1] == '-') {
            fprintf(stderr, "karakuri: unknown option %s; --help lists them\n", a);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct repl_options o = {.argc = argc, .argv = argv};
    kr_vm *vm;
    kr_context *ctx;
    parse_options(argc, argv, &o);
    if (kr_vm_new(&o.config, &vm, &ctx) != KR_OK) {
        fputs("karakuri: cannot start\n", stderr);
        return 1;
    }
    repl_main(ctx, &o);
}
