/* repl.h -- the read-eval-print loop, a client of the library. */
#ifndef KRI_REPL_H
#define KRI_REPL_H

#include "lisp/karakuri.h"

struct repl_options {
    kr_config config;
    int argc;
    char **argv;
    bool batch;
};

/* Run the command line's files and forms, then the loop; returns the exit code. */
int repl_main(kr_context *ctx, const struct repl_options *o);

#endif
