/* repl.h -- the session of the executable, a client of the library. */
#ifndef KRI_REPL_H
#define KRI_REPL_H

#include "lisp/karakuri.h"

struct repl_options {
    kr_config config;
    int argc;
    char **argv;
    bool batch; /* no init files, no loop */
};

/* Init files, the command line's files and forms, the loop; then the process ends. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void repl_main(kr_context *ctx, const struct repl_options *o);

#endif
