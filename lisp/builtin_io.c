/* builtin_io.c -- streams and files as Lisp sees them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lisp/load.h"
#include "lisp/printer.h"

static kr_value optional(int argc, kr_value *argv, int i) { return kri_arg_optional(argc, argv, i, KRI_NIL); }

static kr_value arg_stream(struct kri_worker *w, kr_value *argv, int i)
{
    if (!kri_is_stream(w->vm, argv[i]))
        kri_argument_error(w, i, argv[i], KRI_E_NO_STREAM);
    return argv[i];
}

/* At the end of input: the error, or the value given for it. Arguments FROM and FROM + 1 are eof-error-p and eof-value. */
static kr_value at_end(struct kri_worker *w, int argc, kr_value *argv, int from)
{
    if (argc <= from || !kri_is_nil(argv[from]))
        kri_error(w, KRI_E_EOF, from > 0 ? optional(argc, argv, from - 1) : KRI_NIL, NULL);
    return optional(argc, argv, from + 1);
}

/* ---- making streams ---- */

static kr_value make_file_stream(struct kri_worker *w, int fd, kr_value path, kr_value direction, size_t size)
{
    struct kr_vm *vm = w->vm;
    kr_value s;
    if (kri_eq(direction, vm->sym.k_io)) {
        kr_value in = kri_make_fd_stream(w, fd, path, true, size);
        s = kri_make_io_stream(w, in, kri_make_fd_stream(w, fd, path, false, size));
    } else {
        s = kri_make_fd_stream(w, fd, path, kri_eq(direction, vm->sym.k_input), size);
        kri_finalize(w, s); /* closed when it is forgotten */
    }
    return s;
}

KR_BUILTIN(open, "open",
           "(path &key (direction :input) (if-exists :new-version) if-does-not-exist (permission #o644) (buffer-size 512))",
           "A stream on file PATH. :direction is :input, :output or :io; :if-exists of an output file :new-version (it is emptied), "
           ":append, :overwrite, :error or nil; :if-does-not-exist :error, :create or nil, which returns nil; :permission the mode "
           "of a new file. Error: the file cannot be opened; unknown keyword.")
{
    struct kr_vm *vm = w->vm;
    const struct kri_symbols *sym = &vm->sym;
    const kr_value keys[] = {kri_keyword(w, "DIRECTION"), kri_keyword(w, "IF-EXISTS"), kri_keyword(w, "IF-DOES-NOT-EXIST"),
                             kri_keyword(w, "PERMISSION"), kri_keyword(w, "BUFFER-SIZE"), kri_keyword(w, "ELEMENT-TYPE"),
                             kri_keyword(w, "EXTERNAL-FORMAT")};
    kr_value path = kri_path_string(w, argv[0]);
    kri_check_keys(w, argc, argv, 1, keys, 7);
    kr_value direction = kri_arg_key(argc, argv, 1, keys[0], sym->k_input), exists = kri_arg_key(argc, argv, 1, keys[1], sym->k_new_version);
    kr_value mode = kri_arg_key(argc, argv, 1, keys[3], kri_fixnum(0644)), size = kri_arg_key(argc, argv, 1, keys[4], kri_fixnum(512));
    bool input = kri_eq(direction, sym->k_input), io = kri_eq(direction, sym->k_io);
    kr_value missing = kri_arg_key(argc, argv, 1, keys[2], input ? sym->k_error : kri_keyword(w, "CREATE"));
    if (!input && !io && !kri_eq(direction, sym->k_output))
        kri_error(w, KRI_E_STREAM_DIRECTION, direction, "open: :input, :output or :io expected");
    if (!kri_is_fixnum(mode) || !kri_is_fixnum(size) || kri_fixnum_value(size) < 0 || kri_fixnum_value(size) > 1 << 28)
        kri_error(w, KRI_E_NO_INTEGER, kri_is_fixnum(mode) ? size : mode, "open: :permission or :buffer-size");
    int flags = input ? O_RDONLY : io ? O_RDWR : O_WRONLY;
    bool create = kri_eq(missing, kri_keyword(w, "CREATE")), exclusive = false;
    if (!input) {
        if (kri_eq(exists, sym->k_append))
            flags |= O_APPEND;
        else if (kri_eq(exists, sym->k_error) || kri_is_nil(exists))
            exclusive = true;
        else if (!kri_eq(exists, sym->k_overwrite) && !io)
            flags |= O_TRUNC;
    }
    flags |= create ? O_CREAT : 0;
    flags |= exclusive && create ? O_EXCL : 0;
    int fd = kri_open_file(w, path, flags, (int)kri_fixnum_value(mode));
    if (fd == -ENOENT && kri_is_nil(missing))
        return KRI_NIL;
    if (fd == -EEXIST && kri_is_nil(exists))
        return KRI_NIL;
    if (fd < 0)
        kri_error(w, KRI_E_OPEN_FILE, argv[0], "cannot open %s: %s", kri_path_text(path), strerror(-fd));
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        kri_error(w, KRI_E_OPEN_FILE, argv[0], "cannot open %s: %s", kri_path_text(path), strerror(EISDIR));
    }
    return make_file_stream(w, fd, path, direction, (size_t)kri_fixnum_value(size));
}

KR_BUILTIN(openfile, "sys:openfile", "(path flags mode buffer-size)",
           "Open file PATH with the flags and mode of open(2); a stream, or minus the error number.")
{
    kr_value path = kri_path_string(w, argv[0]);
    int flags = (int)kri_arg_natural(w, argv, 1), mode = (int)kri_arg_natural(w, argv, 2);
    intptr_t size = kri_arg_natural(w, argv, 3);
    int fd = kri_open_file(w, path, flags, mode);
    if (fd < 0)
        return kri_fixnum(fd);
    int access_mode = flags & O_ACCMODE;
    const struct kri_symbols *sym = &w->vm->sym;
    return make_file_stream(w, fd, path, access_mode == O_RDONLY ? sym->k_input : access_mode == O_RDWR ? sym->k_io : sym->k_output, (size_t)size);
}

KR_BUILTIN(close, "close", "(stream)", "Write out what STREAM holds and close it; t, or nil if it was closed already.")
{
    return kri_bool(w, kri_stream_close(w, arg_stream(w, argv, 0)));
}

static void bounds(struct kri_worker *w, int argc, kr_value *argv, int from, size_t length, size_t *start, size_t *end)
{
    *start = argc > from && !kri_is_nil(argv[from]) ? (size_t)kri_arg_natural(w, argv, from) : 0;
    *end = argc > from + 1 && !kri_is_nil(argv[from + 1]) ? (size_t)kri_arg_natural(w, argv, from + 1) : length;
    if (*start > *end || *end > length)
        kri_error(w, KRI_E_START_END, argv[from], NULL);
}

KR_BUILTIN(make_string_input_stream, "make-string-input-stream", "(string &optional start end)",
           "A stream that reads the characters of STRING from START up to END.")
{
    struct kri_string *s = kri_arg_string(w, argv, 0);
    size_t start, end;
    bounds(w, argc, argv, 1, s->head.length, &start, &end);
    return kri_make_string_input(w, (char *)s->byte + start, end - start);
}

KR_BUILTIN(make_string_output_stream, "make-string-output-stream", "(&optional size)",
           "A stream that gathers what is written to it; get-output-stream-string returns it. SIZE is ignored.")
{
    return kri_make_string_output(w);
}

KR_BUILTIN(get_output_stream_string, "get-output-stream-string", "(stream)",
           "What was written to the string STREAM so far. The stream keeps it.")
{
    return kri_get_output_string(w, arg_stream(w, argv, 0));
}

KR_BUILTIN(take_output, "lisp::%take-output", "(stream)",
           "What was written to the string STREAM so far, which is empty then. One step, whatever other threads write meanwhile; the column "
           "that fresh-line goes by stays.")
{
    return kri_take_output_string(w, arg_stream(w, argv, 0));
}

KR_BUILTIN(reset_stream, "reset-stream", "(stream)",
           "Drop what STREAM has gathered for output or read ahead, and return it. A string being read begins anew.")
{
    struct kr_vm *vm = w->vm;
    kr_value s = arg_stream(w, argv, 0);
    if (kri_is_input_stream(vm, s)) {
        struct kri_stream *st = kri_stream_state(vm, s);
        if (st && st->kind == KRI_STREAM_STRING)
            kri_stream_seek(w, s, 0);
        else
            kri_stream_reset_input(w, s);
    }
    if (kri_is_output_stream(vm, s))
        kri_stream_clear_output(w, s);
    return s;
}

KR_BUILTIN(make_broadcast_stream, "make-broadcast-stream", "(&rest streams)", "A stream that writes to all output STREAMS.")
{
    kr_value list = KRI_NIL;
    for (int i = argc; i-- > 0;)
        list = kri_cons(w, arg_stream(w, argv, i), list);
    struct kri_cell *c = kri_make(w, KRI_CLASS_BROADCAST_STREAM, 0, 6);
    c->slot[1] = w->vm->sym.k_output;
    c->slot[5] = list;
    return kri_value_of(c);
}

KR_BUILTIN(make_two_way_stream, "make-two-way-stream", "(in out)", "A stream that reads from IN and writes to OUT.")
{
    kr_value in = arg_stream(w, argv, 0), out = arg_stream(w, argv, 1);
    return kri_make_io_stream(w, in, out);
}

KR_BUILTIN(make_concatenated_stream, "make-concatenated-stream", "(&rest streams)",
           "A stream that reads the input STREAMS one after another.")
{
    kr_value list = KRI_NIL;
    for (int i = argc; i-- > 0;)
        list = kri_cons(w, arg_stream(w, argv, i), list);
    return kri_make_concatenated(w, list);
}

static void check_instance(struct kri_worker *w, kr_value *argv, unsigned cls)
{
    if (!kri_is_pointer(argv[0]) || !kri_derivedp(w->vm, argv[0], w->vm->classes[cls].object))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_STREAM);
}

KR_BUILTIN(attach_string, "lisp::%attach-string-stream", "(stream direction &optional string start end)",
           "Make STREAM, an instance of class stream or a subclass, read from a copy of STRING (DIRECTION :input) or gather output "
           "(:output). Returns STREAM.")
{
    check_instance(w, argv, KRI_CLASS_STREAM);
    bool input = kri_eq(argv[1], w->vm->sym.k_input);
    if (!input) {
        kri_attach_string(w, argv[0], false, "", 0);
        return argv[0];
    }
    if (argc < 3)
        kri_error(w, KRI_E_NO_STRING, KRI_NIL, "an input stream needs a string");
    struct kri_string *s = kri_arg_string(w, argv, 2);
    size_t start, end;
    bounds(w, argc, argv, 3, s->head.length, &start, &end);
    kri_attach_string(w, argv[0], true, (char *)s->byte + start, end - start);
    return argv[0];
}

KR_BUILTIN(attach_file, "lisp::%attach-file-stream", "(stream fd name direction &optional (size 512))",
           "Make STREAM, an instance of class file-stream or a subclass, read or write (DIRECTION :input or :output) the open file "
           "with descriptor FD, called NAME. Returns STREAM.")
{
    check_instance(w, argv, KRI_CLASS_FILE_STREAM);
    intptr_t fd = kri_arg_natural(w, argv, 1), size = argc > 4 ? kri_arg_natural(w, argv, 4) : 512;
    bool input = kri_eq(argv[3], w->vm->sym.k_input);
    if (!input && !kri_eq(argv[3], w->vm->sym.k_output))
        kri_error(w, KRI_E_STREAM_DIRECTION, argv[3], NULL);
    kri_attach_fd(w, argv[0], (int)fd, argv[2], input, size > 1 << 28 ? 1 << 28 : (size_t)size);
    return argv[0];
}

KR_BUILTIN(stream_descriptor, "lisp::%stream-fd", "(stream &optional output)",
           "The file descriptor that STREAM reads, or writes if OUTPUT is true; nil if there is none.")
{
    int fd = kri_stream_fd(w, argv[0], argc < 2 || kri_is_nil(argv[1]));
    return fd < 0 ? KRI_NIL : kri_fixnum(fd);
}

KR_BUILTIN(two_way_stream, "lisp::%two-way-stream", "(input output name &optional (size 512))",
           "An io-stream that reads descriptor INPUT and writes OUTPUT, another one; each is closed with its half or when that is forgotten.")
{
    intptr_t in = kri_arg_natural(w, argv, 0), out = kri_arg_natural(w, argv, 1), size = argc > 3 ? kri_arg_natural(w, argv, 3) : 512;
    if (in == out || in > INT32_MAX || out > INT32_MAX)
        kri_argument_error(w, 1, argv[1], KRI_E_RANGE);
    return kri_make_two_way_fd(w, (int)in, (int)out, argv[2], size > 1 << 28 ? 1 << 28 : (size_t)size);
}

/* ---- predicates ---- */

KR_BUILTIN(streamp, "streamp", "(x)", "T if X is a stream.") { return kri_bool(w, kri_is_stream(w->vm, argv[0])); }
KR_BUILTIN(input_stream_p, "input-stream-p", "(x)", "T if X is a stream that can be read.") { return kri_bool(w, kri_is_input_stream(w->vm, argv[0])); }
KR_BUILTIN(output_stream_p, "output-stream-p", "(x)", "T if X is a stream that can be written.") { return kri_bool(w, kri_is_output_stream(w->vm, argv[0])); }
KR_BUILTIN(io_stream_p, "io-stream-p", "(x)", "T if X is a pair of streams, one to read and one to write.")
{
    return kri_bool(w, kri_is_pointer(argv[0]) && kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_IO_STREAM].object));
}
KR_BUILTIN(open_stream_p, "open-stream-p", "(stream)", "T if STREAM is not closed.")
{
    struct kri_stream *st = kri_stream_state(w->vm, arg_stream(w, argv, 0));
    return kri_bool(w, !st || !st->closed);
}
KR_BUILTIN(interactive_stream_p, "interactive-stream-p", "(stream)", "T if STREAM is a terminal.")
{
    struct kr_vm *vm = w->vm;
    kr_value s = arg_stream(w, argv, 0);
    struct kri_stream *st = kri_stream_state(vm, kri_is_input_stream(vm, s) ? kri_input_stream(w, s) : s);
    return kri_bool(w, st && st->interactive);
}

/* ---- reading ---- */

KR_BUILTIN(read, "read", "(&optional stream (eof-error-p t) eof-value recursive-p)",
           "The next object in STREAM, *standard-input* by default. At its end EOF-VALUE, or an error if EOF-ERROR-P is true.")
{
    bool eof_error = argc < 2 || !kri_is_nil(argv[1]);
    return kri_read_data(w, optional(argc, argv, 0), eof_error, optional(argc, argv, 2));
}

KR_BUILTIN(read_source, "lisp::%read-source", "(&optional stream (eof-error-p t) eof-value)",
           "The next object in STREAM as a form of a program: inf and nan are symbols. Else like read.")
{
    bool eof_error = argc < 2 || !kri_is_nil(argv[1]);
    return kri_read(w, optional(argc, argv, 0), eof_error, optional(argc, argv, 2));
}

KR_BUILTIN(read_from_string, "read-from-string", "(string &optional (eof-error-p t) eof-value)",
           "The first object in STRING. Without one EOF-VALUE, or an error if EOF-ERROR-P is true.")
{
    struct kri_string *s = kri_arg_string(w, argv, 0);
    bool eof_error = argc < 2 || !kri_is_nil(argv[1]);
    return kri_read_data(w, kri_make_string_input(w, (char *)s->byte, s->head.length), eof_error, optional(argc, argv, 2));
}

KR_BUILTIN(read_delimited_list, "read-delimited-list", "(char &optional stream recursive-p)",
           "A list of the objects in STREAM up to the character CHAR, which is taken too, or up to its end.")
{
    intptr_t c = kri_arg_natural(w, argv, 0);
    if (c > 255)
        kri_argument_error(w, 0, argv[0], KRI_E_CHAR_RANGE);
    return kri_read_delimited(w, optional(argc, argv, 1), (int)c);
}

KR_BUILTIN(read_line, "read-line", "(&optional stream (eof-error-p t) eof-value)",
           "The next line of STREAM without its newline. At the end EOF-VALUE, or an error if EOF-ERROR-P is true.")
{
    struct kri_text t;
    kri_text_init(&t);
    if (!kri_stream_read_line(w, optional(argc, argv, 0), &t, NULL))
        return at_end(w, argc, argv, 1);
    return kri_text_string(w, &t);
}

KR_BUILTIN(read_run, "lisp::%read-run", "(set &optional stream)",
           "The bytes that come next in STREAM as far as they are in SET, a string of 32 bytes that has a bit for each, as a string; the byte behind\n"
           "them stays unread. Error: no such set.")
{
    const unsigned char *set = kri_arg_string(w, argv, 0)->byte;
    if (!kri_has_class(argv[0], KRI_CLASS_STRING) || kri_length(argv[0]) < 32)
        kri_argument_error(w, 0, argv[0], KRI_E_NO_STRING);
    kr_value stream = kri_input_stream(w, optional(argc, argv, 1));
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    struct kri_text t;
    kri_text_init(&t);
#define IN_SET(c) (set[(c) >> 3] >> ((c) & 7) & 1)
    for (int c; !st && (c = kri_stream_peek(w, stream)) >= 0 && IN_SET(c);) /* a stream of the program's own */
        kri_text_putc(w, &t, (char)kri_stream_getc(w, stream));
    for (bool more = st != NULL; more && kri_stream_lock_filled(w, stream, st);) {
        char part[256];
        size_t n = 0;
        for (; n < sizeof part && st->pos < st->end && (more = IN_SET(st->bytes[st->pos])); st->pos++) {
            st->line += st->bytes[st->pos] == '\n';
            part[n++] = (char)st->bytes[st->pos];
        }
        kri_unlock(&st->lock);
        kri_text_write(w, &t, part, n);
        kri_poll(w);
    }
#undef IN_SET
    return kri_text_string(w, &t);
}

KR_BUILTIN(read_char, "read-char", "(&optional stream (eof-error-p t) eof-value)",
           "The next character of STREAM, an integer. At the end EOF-VALUE, or an error if EOF-ERROR-P is true.")
{
    int c = kri_stream_getc(w, optional(argc, argv, 0));
    return c < 0 ? at_end(w, argc, argv, 1) : kri_fixnum(c);
}

KR_BUILTIN(read_byte, "read-byte", "(&optional stream (eof-error-p t) eof-value)",
           "The next byte of STREAM, an integer. At the end EOF-VALUE, or an error if EOF-ERROR-P is true.")
{
    int c = kri_stream_getc(w, optional(argc, argv, 0));
    return c < 0 ? at_end(w, argc, argv, 1) : kri_fixnum(c);
}

KR_BUILTIN(unread_char, "unread-char", "(char &optional stream)", "Put CHAR back before what is left to read in STREAM. Returns CHAR.")
{
    intptr_t c = kri_arg_natural(w, argv, 0);
    if (c > 255)
        kri_argument_error(w, 0, argv[0], KRI_E_CHAR_RANGE);
    kri_stream_ungetc(w, optional(argc, argv, 1), (int)c);
    return argv[0];
}

KR_BUILTIN(peek_char, "peek-char", "(&optional stream (eof-error-p t) eof-value common-lisp-eof-value)",
           "The next character of STREAM, which is left there. Common Lisp's arguments are understood too: (peek-type stream "
           "eof-error-p eof-value), where peek-type t skips white space and a character skips to that character.")
{
    struct kr_vm *vm = w->vm;
    bool common = argc > 1 && kri_is_stream(vm, argv[1]);
    kr_value stream = optional(argc, argv, common ? 1 : 0);
    int c = kri_stream_peek(w, stream);
    if (common && !kri_is_nil(argv[0]))
        while (c >= 0 && (kri_is_fixnum(argv[0]) ? c != kri_fixnum_value(argv[0]) : c == ' ' || (c >= '\t' && c <= '\r'))) {
            kri_stream_getc(w, stream);
            c = kri_stream_peek(w, stream);
        }
    return c < 0 ? at_end(w, argc, argv, common ? 2 : 1) : kri_fixnum(c);
}

static void do_poll(void *arg)
{
    struct pollfd *p = arg;
    while (poll(p, 1, 0) < 0 && errno == EINTR) {
    }
}

KR_BUILTIN(listen, "listen", "(&optional stream)", "T if a character of STREAM can be read without waiting.")
{
    struct kr_vm *vm = w->vm;
    kr_value s = kri_input_stream(w, optional(argc, argv, 0));
    struct kri_stream *st = kri_stream_state(vm, s);
    if (!st || st->kind != KRI_STREAM_FD)
        return kri_bool(w, kri_stream_peek(w, s) >= 0);
    kri_lock(w, &st->lock);
    bool ready = st->pos < st->end;
    struct pollfd p = {.fd = st->fd, .events = POLLIN};
    kri_unlock(&st->lock);
    if (!ready)
        do_poll(&p);
    return kri_bool(w, ready || ((p.revents & POLLIN) && kri_stream_peek(w, s) >= 0));
}

KR_BUILTIN(clear_input, "clear-input", "(&optional stream)", "Drop what was read ahead from STREAM. Returns nil.")
{
    kri_stream_reset_input(w, optional(argc, argv, 0));
    return KRI_NIL;
}

/* ---- writing ---- */

KR_BUILTIN(terpri, "terpri", "(&optional stream)", "Begin a new line on STREAM. Returns nil.")
{
    kri_stream_putc(w, optional(argc, argv, 0), '\n');
    return KRI_NIL;
}

KR_BUILTIN(fresh_line, "fresh-line", "(&optional stream)", "Begin a new line on STREAM unless it is at the start of one; t if it did.")
{
    kr_value s = kri_output_stream(w, optional(argc, argv, 0));
    if (kri_stream_column(w, s) == 0)
        return KRI_NIL;
    kri_stream_putc(w, s, '\n');
    return w->vm->sym.t;
}

KR_BUILTIN(write_char, "write-char", "(char &optional stream)", "Write the character CHAR, an integer, to STREAM, and return it.")
{
    intptr_t c = kri_arg_natural(w, argv, 0);
    if (c > 255)
        kri_argument_error(w, 0, argv[0], KRI_E_CHAR_RANGE);
    kri_stream_putc(w, optional(argc, argv, 1), (int)c);
    return argv[0];
}

/* The N lowest bytes of integer argument 0, least significant first. */
static kr_value write_bytes(struct kri_worker *w, int argc, kr_value *argv, size_t n)
{
    intptr_t i = kri_arg_fixnum(w, argv, 0);
    char bytes[8];
    for (size_t k = 0; k < n; k++)
        bytes[k] = (char)(i >> 8 * k);
    kri_stream_write(w, optional(argc, argv, 1), bytes, n);
    return argv[0];
}

KR_BUILTIN(write_byte, "write-byte", "(integer &optional stream)", "Write the lowest byte of INTEGER to STREAM, and return INTEGER.")
{
    return write_bytes(w, argc, argv, 1);
}
KR_BUILTIN(write_word, "write-word", "(integer &optional stream)",
           "Write the two lowest bytes of INTEGER to STREAM, the lower one first, and return INTEGER.")
{
    return write_bytes(w, argc, argv, 2);
}
KR_BUILTIN(write_long, "write-long", "(integer &optional stream)",
           "Write the four lowest bytes of INTEGER to STREAM, the lowest one first, and return INTEGER.")
{
    return write_bytes(w, argc, argv, 4);
}

/* (string &optional stream &key start end) */
static kr_value write_text(struct kri_worker *w, int argc, kr_value *argv, bool newline)
{
    struct kri_string *s = kri_arg_string(w, argv, 0);
    const kr_value keys[] = {w->vm->sym.k_start, w->vm->sym.k_end};
    kri_check_keys(w, argc, argv, 2, keys, 2);
    kr_value range[] = {KRI_NIL, kri_arg_key(argc, argv, 2, keys[0], KRI_NIL), kri_arg_key(argc, argv, 2, keys[1], KRI_NIL)};
    size_t start, end;
    bounds(w, 3, range, 1, s->head.length, &start, &end);
    kr_value stream = kri_output_stream(w, optional(argc, argv, 1));
    if (!newline) {
        kri_stream_write(w, stream, (char *)s->byte + start, end - start);
        return argv[0];
    }
    struct kri_text t;
    kri_text_init(&t);
    kri_text_write(w, &t, (char *)s->byte + start, end - start);
    kri_text_putc(w, &t, '\n');
    kri_stream_write(w, stream, t.p, t.n);
    return argv[0];
}

KR_BUILTIN(write_string, "write-string", "(string &optional stream &key start end)", "Write STRING, or its part from START to END, to STREAM. Returns STRING.")
{
    return write_text(w, argc, argv, false);
}
KR_BUILTIN(write_line, "write-line", "(string &optional stream &key start end)", "The same as write-string, and a newline.")
{
    return write_text(w, argc, argv, true);
}

KR_BUILTIN(finish_output, "finish-output", "(&optional stream)", "Write out what STREAM still holds. Returns nil.")
{
    kri_stream_flush(w, optional(argc, argv, 0));
    return KRI_NIL;
}
KR_BUILTIN(force_output, "force-output", "(&optional stream)", "Write out what STREAM still holds. Returns nil.")
{
    kri_stream_flush(w, optional(argc, argv, 0));
    return KRI_NIL;
}
KR_BUILTIN(clear_output, "clear-output", "(&optional stream)", "Drop what STREAM still holds. Returns nil.")
{
    kri_stream_clear_output(w, optional(argc, argv, 0));
    return KRI_NIL;
}

KR_BUILTIN(line_number, "lisp::%stream-line", "(stream)", "The number of the line that is read next in STREAM, from 1.")
{
    return kri_fixnum((intptr_t)kri_stream_line(w, argv[0]));
}
KR_BUILTIN(unread_bytes, "lisp::%stream-unread", "(stream)", "How many bytes that STREAM has taken in are not read yet.")
{
    return kri_fixnum((intptr_t)kri_stream_unread(w, argv[0]));
}
KR_BUILTIN(column_number, "lisp::%stream-column", "(&optional stream)", "How many characters were written to STREAM since its last newline.")
{
    return kri_fixnum((intptr_t)kri_stream_column(w, optional(argc, argv, 0)));
}

/* ---- positions ---- */

KR_BUILTIN(file_position, "file-position", "(stream &optional position)",
           "The position in bytes of STREAM in its file or string, nil if it has none. With POSITION, a number, :start or :end, "
           "move there; t if that was possible.")
{
    kr_value s = arg_stream(w, argv, 0);
    if (argc < 2 || kri_is_nil(argv[1])) {
        intptr_t at = kri_stream_position(w, s);
        return at < 0 ? KRI_NIL : kri_fixnum(at);
    }
    if (kri_eq(argv[1], w->vm->sym.k_start))
        return kri_bool(w, kri_stream_seek(w, s, 0));
    if (kri_eq(argv[1], w->vm->sym.k_end)) {
        struct kri_stream *st = kri_stream_state(w->vm, s);
        struct stat info;
        bool known = st && st->kind == KRI_STREAM_FD && !st->closed && fstat(st->fd, &info) == 0;
        return kri_bool(w, known && kri_stream_seek(w, s, (intptr_t)info.st_size));
    }
    return kri_bool(w, kri_stream_seek(w, s, kri_arg_natural(w, argv, 1)));
}

KR_BUILTIN(file_length, "file-length", "(stream)", "The size in bytes of the file that STREAM reads or writes, or nil.")
{
    struct kri_stream *st = kri_stream_state(w->vm, arg_stream(w, argv, 0));
    struct stat info;
    if (!st || st->kind != KRI_STREAM_FD || st->closed)
        return KRI_NIL;
    if (!st->input)
        kri_stream_flush(w, argv[0]);
    return fstat(st->fd, &info) == 0 ? kri_fixnum((intptr_t)info.st_size) : KRI_NIL;
}

/* ---- files ---- */

struct file_call {
    const char *path, *other;
    struct stat st;
    int result;
};

static int file_call(struct kri_worker *w, void (*f)(void *), struct file_call *c)
{
    kri_blocking(w, f, c);
    return c->result;
}
static void do_stat(void *arg)
{
    struct file_call *c = arg;
    c->result = stat(c->path, &c->st) < 0 ? errno : 0;
}
static void do_remove(void *arg)
{
    struct file_call *c = arg;
    c->result = remove(c->path) < 0 ? errno : 0;
}
static void do_rename(void *arg)
{
    struct file_call *c = arg;
    c->result = rename(c->path, c->other) < 0 ? errno : 0;
}

KR_BUILTIN(probe_file, "probe-file", "(path)", ":file or :directory, as PATH is; nil if there is no such file.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct file_call c = {.path = kri_path_text(path)};
    if (file_call(w, do_stat, &c))
        return KRI_NIL;
    return S_ISDIR(c.st.st_mode) ? w->vm->sym.k_directory : w->vm->sym.k_file;
}

_Noreturn static void file_error(struct kri_worker *w, kr_value path, int error)
{
    kri_error(w, KRI_E_OPEN_FILE, path, "%V: %s", path, strerror(error));
}

KR_BUILTIN(file_size, "file-size", "(path)", "The size in bytes of file PATH. Error: no such file.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct file_call c = {.path = kri_path_text(path)};
    if (file_call(w, do_stat, &c))
        file_error(w, argv[0], c.result);
    return kri_fixnum((intptr_t)c.st.st_size);
}

KR_BUILTIN(file_write_date, "file-write-date", "(path)", "When file PATH was last written, in seconds since 1970. Error: no such file.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct file_call c = {.path = kri_path_text(path)};
    if (file_call(w, do_stat, &c))
        file_error(w, argv[0], c.result);
    return kri_fixnum((intptr_t)c.st.st_mtime);
}

KR_BUILTIN(delete_file, "delete-file", "(path)", "Remove file PATH. Returns t. Error: it cannot be removed.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct file_call c = {.path = kri_path_text(path)};
    if (file_call(w, do_remove, &c))
        file_error(w, argv[0], c.result);
    return w->vm->sym.t;
}

KR_BUILTIN(rename_file, "rename-file", "(path new-path)", "Give file PATH the name NEW-PATH, in place of a file of that name. Returns t.")
{
    kr_value path = kri_path_string(w, argv[0]), other = kri_path_string(w, argv[1]);
    struct file_call c = {.path = kri_path_text(path), .other = kri_path_text(other)};
    if (file_call(w, do_rename, &c))
        file_error(w, argv[0], c.result);
    return w->vm->sym.t;
}

/* The names in a directory, gathered outside the gate, each with its null character. */
struct listing {
    const char *path;
    char *names;
    size_t n, size;
    int error;
};

static void do_list(void *arg)
{
    struct listing *l = arg;
    DIR *d = opendir(l->path);
    if (!d) {
        l->error = errno;
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name) + 1;
        if (l->n + length > l->size) {
            size_t size = (l->n + length) * 2;
            char *names = realloc(l->names, size);
            if (!names) {
                l->error = ENOMEM;
                break;
            }
            l->names = names;
            l->size = size;
        }
        memcpy(l->names + l->n, e->d_name, length);
        l->n += length;
    }
    closedir(d);
}

KR_BUILTIN(directory, "directory", "(&optional (path \".\"))", "A list of the names in directory PATH, \".\" and \"..\" included; nil if it cannot be read.")
{
    kr_value path = argc > 0 ? kri_path_string(w, argv[0]) : kri_string(w, "."), list = KRI_NIL;
    struct listing l = {.path = kri_path_text(path)};
    kri_blocking(w, do_list, &l);
    if (l.error) {
        free(l.names);
        return KRI_NIL;
    }
    /* Into a cell first: making the list may raise, and malloc'ed memory would be lost. */
    struct kri_cell *copy = kri_alloc(w, KRI_CLASS_STRING, (uint32_t)l.n, l.n / 8 + 1);
    if (copy)
        memcpy(((struct kri_string *)copy)->byte, l.names, l.n);
    size_t n = l.n;
    free(l.names);
    if (!copy)
        kri_error_memory(w, n);
    const char *names = (const char *)((struct kri_string *)copy)->byte;
    for (size_t i = 0; i < n; i += strlen(names + i) + 1)
        list = kri_cons(w, kri_string(w, names + i), list);
    return list;
}

const struct kri_builtin *const kri_builtins_io[] = {
    &open_def, &openfile_def, &close_def, &make_string_input_stream_def, &make_string_output_stream_def, &get_output_stream_string_def, &take_output_def,
    &reset_stream_def, &make_broadcast_stream_def, &make_two_way_stream_def, &make_concatenated_stream_def, &attach_string_def,
    &attach_file_def, &two_way_stream_def, &stream_descriptor_def, &streamp_def, &input_stream_p_def, &output_stream_p_def, &io_stream_p_def,
    &open_stream_p_def, &interactive_stream_p_def, &read_def, &read_source_def, &read_from_string_def, &read_delimited_list_def, &read_line_def,
    &read_run_def, &read_char_def, &read_byte_def, &unread_char_def, &peek_char_def, &listen_def, &clear_input_def, &terpri_def, &fresh_line_def,
    &write_char_def, &write_byte_def, &write_word_def, &write_long_def, &write_string_def, &write_line_def, &finish_output_def,
    &force_output_def, &clear_output_def, &line_number_def, &unread_bytes_def, &column_number_def, &file_position_def, &file_length_def, &probe_file_def,
    &file_size_def, &file_write_date_def, &delete_file_def, &rename_file_def, &directory_def, NULL,
};
