/* stream.h -- byte streams: files, strings, broadcast, pairs; what reader, printer and builtins use.
 *
 * A stream is an instance of class stream or a subclass. Its native side, struct kri_stream, is a %bytes cell in slot TAIL;
 * slot BUFFER holds the string that the bytes lie in. A user's subclass of stream without a native side follows EusLisp's
 * protocol instead: a string in BUFFER, COUNT and TAIL as fixnums, and methods :fill and :flush.
 *
 * A stream's lock guards the fields of struct kri_stream and is held over the read or write of its file, but never over
 * allocation, an error or Lisp: a worker that waits for it does so outside the gate (kri_lock). */
#ifndef KRI_LISP_STREAM_H
#define KRI_LISP_STREAM_H

#include "lisp/vm.h"

enum kri_stream_kind { KRI_STREAM_FD, KRI_STREAM_STRING, KRI_STREAM_CONCATENATED };
enum { KRI_STREAM_RESERVE = 8, KRI_STREAM_BUFFER = 8192 }; /* bytes kept before the unread ones, for unread-char */

struct kri_stream {
    struct kri_cell head;
    pthread_mutex_t lock;   /* guards the rest */
    unsigned char *bytes;   /* of the string in slot BUFFER */
    size_t size;            /* its capacity */
    size_t pos, end;        /* input: the unread bytes; output: those not yet written (a string stream: pos is 0) */
    uint64_t line;          /* input: of the next byte, from 1 */
    size_t column;          /* output: characters since the last newline */
    int fd;
    uint32_t nominal;       /* the buffer size asked for; the real one may be larger */
    uint8_t kind;           /* enum kri_stream_kind */
    bool input;
    bool closed;
    bool interactive;       /* a terminal: output is flushed at newlines, input flushes standard output */
    bool unbuffered;        /* output is flushed after each write */
    bool socket, pipe;
};

struct kri_stream_cell {
    struct kri_cell head;
    kr_value plist, direction, buffer, count, tail;
    kr_value fd, fname; /* file streams only */
};

/* A text that grows: first in the C frame that holds it, then in a string cell (which the frame keeps alive). */
struct kri_text {
    char *p;
    size_t n, cap;
    kr_value cell;
    char small[232];
};
static inline void kri_text_init(struct kri_text *t)
{
    t->p = t->small;
    t->n = 0;
    t->cap = sizeof t->small;
    t->cell = KRI_NIL;
}
void kri_text_reserve(struct kri_worker *w, struct kri_text *t, size_t more); /* may-gc */
static inline void kri_text_putc(struct kri_worker *w, struct kri_text *t, char c)
{
    if (KRI_UNLIKELY(t->n == t->cap))
        kri_text_reserve(w, t, 1);
    t->p[t->n++] = c;
}
void kri_text_write(struct kri_worker *w, struct kri_text *t, const char *data, size_t n);
void kri_text_puts(struct kri_worker *w, struct kri_text *t, const char *text);
kr_value kri_text_string(struct kri_worker *w, const struct kri_text *t);

/* ---- making and finding streams ---- */
void kri_stream_init(struct kri_worker *w); /* the standard streams */
bool kri_is_stream(struct kr_vm *vm, kr_value v);
bool kri_is_input_stream(struct kr_vm *vm, kr_value v);
bool kri_is_output_stream(struct kr_vm *vm, kr_value v);
kr_value kri_make_fd_stream(struct kri_worker *w, int fd, kr_value name, bool input, size_t buffer_size);
kr_value kri_make_string_input(struct kri_worker *w, const char *text, size_t n);
kr_value kri_make_string_output(struct kri_worker *w);
kr_value kri_make_io_stream(struct kri_worker *w, kr_value in, kr_value out);
/* An io-stream that reads IN and writes OUT, two descriptors of its own (not one twice); each is closed when its half is forgotten. */
kr_value kri_make_two_way_fd(struct kri_worker *w, int in, int out, kr_value name, size_t buffer_size);
kr_value kri_make_concatenated(struct kri_worker *w, kr_value inputs);
/* Give STREAM, an instance of a subclass of stream, a native side. For :init methods. */
void kri_attach_string(struct kri_worker *w, kr_value stream, bool input, const char *text, size_t n);
void kri_attach_fd(struct kri_worker *w, kr_value stream, int fd, kr_value name, bool input, size_t buffer_size);
/* The stream that a designator means: NIL and T are the standard ones, an io-stream is its half. Or the error. */
kr_value kri_input_stream(struct kri_worker *w, kr_value designator);
kr_value kri_output_stream(struct kri_worker *w, kr_value designator);
struct kri_stream *kri_stream_state(struct kr_vm *vm, kr_value v); /* NULL: a user's stream, or none */
/* The file descriptor behind STREAM, -1 if there is none. */
int kri_stream_fd(struct kri_worker *w, kr_value stream, bool input);

/* ---- bytes in; all take designators, may block outside the gate, poll, and raise ---- */
int kri_stream_getc(struct kri_worker *w, kr_value stream); /* -1 at the end */
int kri_stream_peek(struct kri_worker *w, kr_value stream);
void kri_stream_ungetc(struct kri_worker *w, kr_value stream, int c);
size_t kri_stream_read(struct kri_worker *w, kr_value stream, char *to, size_t n); /* at least one byte; 0 at the end */
/* A line without its newline into T; false at the end. *NEWLINE (or NULL): it ended with one. */
bool kri_stream_read_line(struct kri_worker *w, kr_value stream, struct kri_text *t, bool *newline);
size_t kri_stream_unread(struct kri_worker *w, kr_value stream); /* bytes in the buffer */
uint64_t kri_stream_line(struct kri_worker *w, kr_value stream);
/* For scanners: lock ST, the state of STREAM (a resolved input stream), with at least one unread byte, or return false,
 * unlocked, at the end. Between this and the unlock: no allocation, no error. */
bool kri_stream_lock_filled(struct kri_worker *w, kr_value stream, struct kri_stream *st);
/* Read once from the file of STREAM behind what is unread in its buffer: how many bytes came, 0 at the end; *ERROR an errno or 0. */
size_t kri_stream_fill(struct kri_worker *w, kr_value stream, int *error);
void kri_stream_reset_input(struct kri_worker *w, kr_value stream); /* drop what was read ahead */

/* ---- bytes out ---- */
void kri_stream_write(struct kri_worker *w, kr_value stream, const char *data, size_t n);
void kri_stream_putc(struct kri_worker *w, kr_value stream, int c);
void kri_stream_puts(struct kri_worker *w, kr_value stream, const char *text);
void kri_stream_flush(struct kri_worker *w, kr_value stream);
size_t kri_stream_column(struct kri_worker *w, kr_value stream);
kr_value kri_get_output_string(struct kri_worker *w, kr_value stream); /* does not empty it */
kr_value kri_take_output_string(struct kri_worker *w, kr_value stream); /* empties it; the column stays */
void kri_stream_clear_output(struct kri_worker *w, kr_value stream);

bool kri_stream_close(struct kri_worker *w, kr_value stream); /* false: it was closed already */
/* V died (kri_next_finalizable): write out and close its file. */
void kri_stream_finalize(struct kri_worker *w, kr_value v);
/* write(2) without SIGPIPE. Outside the gate. */
intptr_t kri_write_quietly(int fd, const void *from, size_t n);
/* Write out what every open output stream still holds, without raising. For the end of the process. */
void kri_streams_finish(struct kri_worker *w);
/* The position in bytes of a file stream, or -1; set it (false on failure). */
intptr_t kri_stream_position(struct kri_worker *w, kr_value stream);
bool kri_stream_seek(struct kri_worker *w, kr_value stream, intptr_t position);

#endif
