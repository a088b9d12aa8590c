/* reader.h -- the reader's offers beyond vm.h. */
#ifndef KRI_LISP_READER_H
#define KRI_LISP_READER_H

#include "lisp/stream.h"

void kri_reader_init(struct kri_worker *w); /* the standard readtable */
/* Does TEXT hold complete forms only? If not, *INDENT (may be NULL) is the column at which its next line might begin.
 * By the current readtable's syntax; dispatch characters mean what they mean in the standard one. */
bool kri_form_complete(struct kri_worker *w, const char *text, size_t n, int *indent);
/* The same as kri_read, for a program that reads data: inf and nan are numbers. */
kr_value kri_read_data(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value);
/* An object read for a caller amid a read (read-delimited-list, read with recursive-p): labels and backquotes go on. */
kr_value kri_read_recursive(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value);
kr_value kri_read_delimited(struct kri_worker *w, kr_value stream, int delimiter);
/* The line at which the outermost form being read between kri_positions_begin and _end began; 0 outside. */
unsigned kri_positions_form_line(struct kri_worker *w);
/* The line of the list that the end of the file closed, as EusLisp has it do; 0: none. */
unsigned kri_positions_unclosed_line(struct kri_worker *w);
/* The line of a closing parenthesis without an open one before that form; 0: there is none. */
unsigned kri_positions_stray_line(struct kri_worker *w);
/* The form has been read: what else is read until kri_positions_end notes no lines. */
void kri_positions_freeze(struct kri_worker *w);
bool kri_positions_frozen(struct kri_worker *w);
/* Is the frame at BASE, or the native one NATIVE, the one that asked for the reading? */
bool kri_positions_frame(struct kri_worker *w, const kr_value *base, const void *native);
/* "a/b.c" to a pathname and back (lisp/pathname.c). */
kr_value kri_parse_namestring(struct kri_worker *w, const char *text, size_t n);
kr_value kri_namestring(struct kri_worker *w, kr_value pathname);

extern const struct kri_builtin *const kri_builtins_reader[];
extern const struct kri_builtin *const kri_builtins_io[];
extern const struct kri_builtin *const kri_builtins_package[];
extern const struct kri_builtin *const kri_builtins_format[];
extern const struct kri_builtin *const kri_builtins_printer[];

#endif
