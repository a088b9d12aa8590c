/* load.h -- files by name, and loading them. */
#ifndef KRI_LISP_LOAD_H
#define KRI_LISP_LOAD_H

#include "lisp/reader.h"

/* PATH (a string, symbol or pathname) as a fresh string without null characters; kri_path_text is its C text. */
kr_value kri_path_string(struct kri_worker *w, kr_value path);
const char *kri_path_text(kr_value path);
/* Open outside the gate: the descriptor or -errno. PATH is from kri_path_string. */
int kri_open_file(struct kri_worker *w, kr_value path, int flags, int mode);
/* Load FILE (a path taken as it is); raises. */
void kri_load_path(struct kri_worker *w, const char *path);
/* The forms of STREAM as those of a file named PATH, a string; the value of the last. */
kr_value kri_load_stream(struct kri_worker *w, kr_value stream, kr_value path);
/* Where load finds NAME, a string: as it is, with a suffix, along *load-path*; or NIL. */
kr_value kri_find_load_file(struct kri_worker *w, kr_value name);

extern const struct kri_builtin *const kri_builtins_load[];

#endif
