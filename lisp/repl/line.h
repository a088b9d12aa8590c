/* line.h -- the line editor of the prompt: readline, asked through the Lisp function lisp::%edit-line. */
#ifndef KRI_REPL_LINE_H
#define KRI_REPL_LINE_H

#include "lisp/karakuri.h"

/* Define lisp::%edit-line and take over SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGCONT. CTX's thread is the one that edits and that ^C
 * interrupts. Readline itself starts with the first prompt. */
void line_init(kr_context *ctx);

#endif
