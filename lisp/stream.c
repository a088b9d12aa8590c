/* stream.c -- byte streams over files and strings. See stream.h for the representation and the locking rule.
 * Always true of a native side, under its lock: RESERVE <= pos <= end <= size for input (so that a character can be put
 * back), pos <= end <= size for output; BYTES are those of the string in slot BUFFER. */
#include "lisp/host.h"
#include "lisp/interp.h"
#include "lisp/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RESERVE = KRI_STREAM_RESERVE, NESTING = 64 };

static struct kri_stream_cell *cell_of(kr_value v) { return (struct kri_stream_cell *)kri_ptr(v); }

/* ---- texts ---- */

void kri_text_reserve(struct kri_worker *w, struct kri_text *t, size_t more)
{
    if (t->n + more <= t->cap)
        return;
    size_t cap = t->cap * 2 > t->n + more ? t->cap * 2 : t->n + more + 64;
    kr_value cell = kri_make_string(w, cap);
    memcpy(kri_string_of(cell)->byte, t->p, t->n);
    t->cell = cell;
    t->p = (char *)kri_string_of(cell)->byte;
    t->cap = cap;
}

void kri_text_write(struct kri_worker *w, struct kri_text *t, const char *data, size_t n)
{
    if (n == 0)
        return; /* DATA may be NULL */
    kri_text_reserve(w, t, n);
    memcpy(t->p + t->n, data, n);
    t->n += n;
}

void kri_text_puts(struct kri_worker *w, struct kri_text *t, const char *text) { kri_text_write(w, t, text, strlen(text)); }

kr_value kri_text_string(struct kri_worker *w, const struct kri_text *t) { return kri_string_n(w, t->p, t->n); }

/* ---- what is a stream ---- */

static bool is_a(struct kr_vm *vm, kr_value v, unsigned cls)
{
    return kri_is_pointer(v) && (kri_ptr(v)->cls == cls || kri_derivedp(vm, v, vm->classes[cls].object));
}

bool kri_is_stream(struct kr_vm *vm, kr_value v) { return is_a(vm, v, KRI_CLASS_STREAM) || is_a(vm, v, KRI_CLASS_IO_STREAM); }

struct kri_stream *kri_stream_state(struct kr_vm *vm, kr_value v)
{
    if (!is_a(vm, v, KRI_CLASS_STREAM))
        return NULL;
    kr_value tail = kri_slot(&cell_of(v)->tail);
    return kri_has_class(tail, KRI_CLASS_BYTES) ? (struct kri_stream *)kri_ptr(tail) : NULL;
}

static bool has_direction(struct kr_vm *vm, kr_value v, kr_value direction)
{
    if (is_a(vm, v, KRI_CLASS_IO_STREAM))
        return true;
    return is_a(vm, v, KRI_CLASS_STREAM) && kri_eq(kri_slot(&cell_of(v)->direction), direction);
}
bool kri_is_input_stream(struct kr_vm *vm, kr_value v) { return has_direction(vm, v, vm->sym.k_input); }
bool kri_is_output_stream(struct kr_vm *vm, kr_value v)
{
    return has_direction(vm, v, vm->sym.k_output) || is_a(vm, v, KRI_CLASS_BROADCAST_STREAM);
}

static kr_value resolve(struct kri_worker *w, kr_value s, bool input)
{
    struct kr_vm *vm = w->vm;
    for (int i = 0; i < NESTING; i++) {
        if (kri_is_nil(s) || kri_eq(s, vm->sym.t)) {
            kr_value standard = kri_special(w, input ? vm->sym.standard_input : vm->sym.standard_output);
            if (kri_eq(s, standard))
                break;
            s = standard;
        } else if (is_a(vm, s, KRI_CLASS_STREAM)) {
            if (!is_a(vm, s, KRI_CLASS_BROADCAST_STREAM) &&
                !kri_eq(kri_slot(&cell_of(s)->direction), input ? vm->sym.k_input : vm->sym.k_output))
                kri_error(w, KRI_E_STREAM_DIRECTION, s, "%V is closed or no %s stream", s, input ? "input" : "output");
            return s;
        } else if (is_a(vm, s, KRI_CLASS_IO_STREAM)) {
            s = kri_slot(&kri_ptr(s)->slot[input ? 1 : 2]);
        } else {
            break;
        }
    }
    kri_error(w, KRI_E_NO_STREAM, s, "%V", s);
}
kr_value kri_input_stream(struct kri_worker *w, kr_value s) { return resolve(w, s, true); }
kr_value kri_output_stream(struct kri_worker *w, kr_value s) { return resolve(w, s, false); }

int kri_stream_fd(struct kri_worker *w, kr_value stream, bool input)
{
    struct kri_stream *st = kri_stream_state(w->vm, resolve(w, stream, input));
    if (!st || st->kind != KRI_STREAM_FD)
        return -1;
    kri_lock(w, &st->lock); /* another thread may close it */
    int fd = st->fd;
    kri_unlock(&st->lock);
    return fd;
}

/* ---- making ---- */

static void attach(struct kri_worker *w, kr_value stream, enum kri_stream_kind kind, bool input, kr_value buffer, size_t end)
{
    struct kri_stream *st = (struct kri_stream *)kri_make(w, KRI_CLASS_BYTES, 0, (sizeof *st + 7) / 8 - 1);
    struct kri_stream_cell *c = cell_of(stream);
    pthread_mutex_init(&st->lock, NULL); /* plain: the cell's death needs no destroy */
    st->bytes = kri_string_of(buffer)->byte;
    st->size = kri_length(buffer);
    st->pos = input ? RESERVE : 0;
    st->end = end;
    st->line = 1;
    st->fd = -1;
    st->kind = kind;
    st->input = input;
    kri_store(w, &c->head, &c->buffer, buffer);
    kri_store(w, &c->head, &c->direction, input ? w->vm->sym.k_input : w->vm->sym.k_output);
    kri_store(w, &c->head, &c->count, KRI_NIL);
    kri_store(w, &c->head, &c->tail, kri_value_of(st));
}

void kri_attach_string(struct kri_worker *w, kr_value stream, bool input, const char *text, size_t n)
{
    kr_value buffer = kri_make_string(w, input ? n + RESERVE : n < 64 ? 64 : n);
    if (input)
        memcpy(kri_string_of(buffer)->byte + RESERVE, text, n);
    attach(w, stream, KRI_STREAM_STRING, input, buffer, input ? n + RESERVE : 0);
}

void kri_attach_fd(struct kri_worker *w, kr_value stream, int fd, kr_value name, bool input, size_t buffer_size)
{
    struct kri_stream_cell *c = cell_of(stream);
    size_t nominal = buffer_size;
    if (buffer_size < KRI_STREAM_BUFFER)
        buffer_size = KRI_STREAM_BUFFER;
    attach(w, stream, KRI_STREAM_FD, input, kri_make_string(w, buffer_size + RESERVE), input ? RESERVE : 0);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    st->fd = fd;
    st->nominal = (uint32_t)nominal;
    struct stat about;
    bool known = fstat(fd, &about) == 0;
    st->interactive = known && S_ISCHR(about.st_mode) && isatty(fd);
    st->socket = known && S_ISSOCK(about.st_mode);
    st->pipe = known && S_ISFIFO(about.st_mode);
    st->unbuffered = fd == STDERR_FILENO;
    kri_store(w, &c->head, &c->fd, kri_fixnum(fd));
    kri_store(w, &c->head, &c->fname, name);
}

kr_value kri_make_fd_stream(struct kri_worker *w, int fd, kr_value name, bool input, size_t buffer_size)
{
    kr_value s = kri_value_of(kri_make(w, KRI_CLASS_FILE_STREAM, 0, 7));
    kri_attach_fd(w, s, fd, name, input, buffer_size);
    return s;
}

kr_value kri_make_string_input(struct kri_worker *w, const char *text, size_t n)
{
    kr_value s = kri_value_of(kri_make(w, KRI_CLASS_STREAM, 0, 5));
    kri_attach_string(w, s, true, text, n);
    return s;
}

kr_value kri_make_string_output(struct kri_worker *w)
{
    kr_value s = kri_value_of(kri_make(w, KRI_CLASS_STREAM, 0, 5));
    kri_attach_string(w, s, false, "", 0);
    return s;
}

kr_value kri_make_io_stream(struct kri_worker *w, kr_value in, kr_value out)
{
    struct kri_cell *c = kri_make(w, KRI_CLASS_IO_STREAM, 0, 3);
    c->slot[1] = in;
    c->slot[2] = out;
    return kri_value_of(c);
}

kr_value kri_make_two_way_fd(struct kri_worker *w, int in, int out, kr_value name, size_t buffer_size)
{
    kr_value i = kri_make_fd_stream(w, in, name, true, buffer_size);
    kri_finalize(w, i);
    kr_value o = kri_make_fd_stream(w, out, name, false, buffer_size);
    kri_finalize(w, o);
    return kri_make_io_stream(w, i, o);
}

/* The sources, a list in slot COUNT, are taken line by line into a buffer of its own. */
kr_value kri_make_concatenated(struct kri_worker *w, kr_value inputs)
{
    kr_value s = kri_value_of(kri_make(w, KRI_CLASS_STREAM, 0, 5));
    attach(w, s, KRI_STREAM_CONCATENATED, true, kri_make_string(w, 512 + RESERVE), RESERVE);
    kri_store(w, kri_ptr(s), &cell_of(s)->count, inputs);
    return s;
}

void kri_stream_init(struct kri_worker *w)
{
    struct kr_vm *vm = w->vm;
    kr_value in = kri_make_fd_stream(w, STDIN_FILENO, KRI_NIL, true, 256);
    kr_value out = kri_make_fd_stream(w, STDOUT_FILENO, KRI_NIL, false, 256);
    kr_value err = kri_make_fd_stream(w, STDERR_FILENO, KRI_NIL, false, 256);
    kri_set_special(w, vm->sym.standard_input, in);
    kri_set_special(w, vm->sym.standard_output, out);
    kri_set_special(w, vm->sym.error_output, err);
    kri_set_special(w, vm->sym.terminal_io, kri_make_io_stream(w, in, out));
}

/* ---- system calls, outside the gate ---- */

struct transfer {
    struct kr_vm *vm;
    int fd, error;
    bool input, socket, pipe;
    unsigned char *at;
    size_t n;
    ssize_t done;
};

enum { LOOK_UP_MS = 100 };

/* True when ST can be read or written, or an error told; false: look up, and come again. */
static bool wait_ready(const struct transfer *t)
{
    struct pollfd p = {.fd = t->fd, .events = t->input ? POLLIN : POLLOUT};
    int n = poll(&p, 1, LOOK_UP_MS);
    return n > 0 || (n < 0 && errno != EINTR);
}

/* write(2), but what nobody reads is an error only: the signal that would end a host is kept from it. */
intptr_t kri_write_quietly(int fd, const void *from, size_t n)
{
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    sigpending(&pending);
    ssize_t done = write(fd, from, n);
    int error = errno;
    if (done < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return done;
}

/* The standard three may be the host's affair. */
static bool host_transfer(struct transfer *t)
{
    const struct kri_host *host = t->vm->host;
    if (t->input && t->fd == STDIN_FILENO && host->hooks.input) {
        size_t n = host->hooks.input((char *)t->at, t->n, host->user);
        t->done = (ssize_t)(n <= t->n ? n : t->n);
        return true;
    }
    t->done = (ssize_t)t->n;
    return !t->input && kri_host_output(t->vm, t->fd, (const char *)t->at, t->n);
}

bool kri_host_output(struct kr_vm *vm, int fd, const char *text, size_t n)
{
    const struct kri_host *host = vm->host;
    if (!host->hooks.output || (fd != STDOUT_FILENO && fd != STDERR_FILENO))
        return false;
    host->hooks.output(fd == STDOUT_FILENO ? KR_OUTPUT : KR_ERROR_OUTPUT, text, n, host->user);
    return true;
}

/* One read or write; a descriptor in non-blocking mode is waited for. Who waits for input looks up ten times a second: another
 * thread's interrupt is no signal. */
static void do_transfer(void *arg)
{
    struct transfer *t = arg;
    if (t->fd <= STDERR_FILENO && host_transfer(t))
        return;
    if (t->input && !wait_ready(t)) {
        t->error = EINTR;
        return;
    }
    for (;;) {
        t->done = t->input    ? read(t->fd, t->at, t->n)
                  : t->socket ? send(t->fd, t->at, t->n, MSG_NOSIGNAL) /* a connection that is gone is an error, not the end of the host */
                  : t->pipe   ? kri_write_quietly(t->fd, t->at, t->n)
                              : write(t->fd, t->at, t->n);
        t->error = t->done < 0 ? errno : 0;
        if (t->error != EAGAIN && t->error != EWOULDBLOCK)
            return;
        if (!wait_ready(t)) {
            t->error = EINTR;
            return;
        }
    }
}

/* Transfer with ST locked. When a signal came in between, the lock is dropped for a poll, and false returned: look again. */
static bool transfer_locked(struct kri_worker *w, struct kri_stream *st, struct transfer *t)
{
    kri_blocking(w, do_transfer, t);
    if (t->error != EINTR)
        return true;
    kri_unlock(&st->lock);
    kri_poll(w);
    kri_lock(w, &st->lock);
    return false;
}

/* ---- output ---- */

/* Write out what ST holds. Returns 0 or the error; what could not be written is dropped then. */
static int flush_locked(struct kri_worker *w, struct kri_stream *st)
{
    if (st->kind != KRI_STREAM_FD)
        return 0;
    while (st->pos < st->end && !st->closed) {
        struct transfer t = {.vm = w->vm, .fd = st->fd, .socket = st->socket, .pipe = st->pipe, .at = st->bytes + st->pos, .n = st->end - st->pos};
        if (!transfer_locked(w, st, &t))
            continue;
        if (t.error) {
            st->pos = st->end = 0;
            return t.error;
        }
        st->pos += (size_t)t.done;
    }
    st->pos = st->end = 0;
    return 0;
}

_Noreturn static void write_error(struct kri_worker *w, kr_value stream, int error)
{
    kri_error(w, KRI_E_WRITE, stream, "%V: %s", stream, strerror(error));
}

static void count_columns(struct kri_stream *st, const char *data, size_t n)
{
    for (size_t i = n; i-- > 0;)
        if (data[i] == '\n') {
            st->column = 0;
            data += i + 1;
            n -= i + 1;
            break;
        }
    for (size_t i = 0; i < n; i++)
        st->column += ((unsigned char)data[i] & 0xc0) != 0x80; /* a character of UTF-8 counts once */
}

/* A string stream needs room for N bytes more: a larger string, made without the lock. */
static void grow(struct kri_worker *w, kr_value stream, struct kri_stream *st, size_t n)
{
    size_t need = st->end + n, size = st->size * 2 > need ? st->size * 2 : need;
    kri_unlock(&st->lock);
    kr_value larger = kri_make_string(w, size);
    kri_lock(w, &st->lock);
    if (size <= st->size)
        return;
    struct kri_stream_cell *c = cell_of(stream);
    memcpy(kri_string_of(larger)->byte, st->bytes, st->end);
    st->bytes = kri_string_of(larger)->byte;
    st->size = size;
    kri_store(w, &c->head, &c->buffer, larger);
}

static void write_native(struct kri_worker *w, kr_value stream, struct kri_stream *st, const char *data, size_t n)
{
    int error = 0;
    bool newline = st->interactive && memchr(data, '\n', n);
    kri_lock(w, &st->lock);
    count_columns(st, data, n);
    while (n > 0 && !error && !st->closed) {
        size_t room = st->size - st->end;
        if (room == 0 || (st->kind == KRI_STREAM_STRING && room < n)) {
            if (st->kind == KRI_STREAM_STRING)
                grow(w, stream, st, n);
            else
                error = flush_locked(w, st);
            continue;
        }
        size_t take = n < room ? n : room;
        memcpy(st->bytes + st->end, data, take);
        st->end += take;
        data += take;
        n -= take;
    }
    if (!error && (newline || st->unbuffered))
        error = flush_locked(w, st);
    kri_unlock(&st->lock);
    if (error)
        write_error(w, stream, error);
}

/* EusLisp's protocol for user-made streams: bytes go to the string in BUFFER from COUNT on; when it is full, :flush. */
static struct kri_string *user_buffer(struct kri_worker *w, kr_value stream, intptr_t *count)
{
    struct kri_stream_cell *c = cell_of(stream);
    kr_value buffer = kri_slot(&c->buffer), n = kri_slot(&c->count);
    if (!kri_is_string(w->vm, buffer) || !kri_is_fixnum(n) || kri_fixnum_value(n) < 0 || kri_length(buffer) == 0)
        kri_error(w, KRI_E_NO_STREAM, stream, "%V has no buffer", stream);
    *count = kri_fixnum_value(n);
    return kri_string_of(buffer);
}

static void user_flush(struct kri_worker *w, kr_value stream)
{
    kri_send(w, stream, kri_keyword(w, "FLUSH"), 0, NULL);
}

static void write_user(struct kri_worker *w, kr_value stream, const char *data, size_t n)
{
    struct kri_stream_cell *c = cell_of(stream);
    intptr_t count;
    for (int idle = 0; n > 0;) {
        struct kri_string *s = user_buffer(w, stream, &count);
        if ((size_t)count >= s->head.length) {
            if (idle++ > 0)
                kri_error(w, KRI_E_WRITE, stream, "%V: :flush made no room", stream);
            user_flush(w, stream);
            continue;
        }
        size_t room = s->head.length - (size_t)count, take = n < room ? n : room;
        memcpy(s->byte + count, data, take);
        kri_store(w, &c->head, &c->count, kri_fixnum(count + (intptr_t)take));
        data += take;
        n -= take;
        idle = 0;
    }
}

static void write_to(struct kri_worker *w, kr_value stream, const char *data, size_t n, int depth)
{
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (st) {
        write_native(w, stream, st, data, n);
    } else if (is_a(w->vm, stream, KRI_CLASS_BROADCAST_STREAM)) {
        if (depth > NESTING)
            kri_error(w, KRI_E_NO_STREAM, stream, "%V broadcasts to itself", stream);
        for (kr_value l = kri_slot(&kri_ptr(stream)->slot[5]); kri_is_cons(l); l = kri_cdr(l), kri_poll(w))
            write_to(w, resolve(w, kri_car(l), false), data, n, depth + 1);
    } else {
        write_user(w, stream, data, n);
    }
}

void kri_stream_write(struct kri_worker *w, kr_value stream, const char *data, size_t n)
{
    stream = resolve(w, stream, false);
    if (n > 0)
        write_to(w, stream, data, n, 0);
}

void kri_stream_putc(struct kri_worker *w, kr_value stream, int c)
{
    char byte = (char)c;
    kri_stream_write(w, stream, &byte, 1);
}

void kri_stream_puts(struct kri_worker *w, kr_value stream, const char *text) { kri_stream_write(w, stream, text, strlen(text)); }

static void flush_to(struct kri_worker *w, kr_value stream, int depth)
{
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (st) {
        kri_lock(w, &st->lock);
        int error = flush_locked(w, st);
        kri_unlock(&st->lock);
        if (error)
            write_error(w, stream, error);
    } else if (is_a(w->vm, stream, KRI_CLASS_BROADCAST_STREAM)) {
        for (kr_value l = kri_slot(&kri_ptr(stream)->slot[5]); depth < NESTING && kri_is_cons(l); l = kri_cdr(l)) {
            kri_poll(w); /* the list may be circular */
            flush_to(w, resolve(w, kri_car(l), false), depth + 1);
        }
    } else {
        user_flush(w, stream);
    }
}
void kri_stream_flush(struct kri_worker *w, kr_value stream) { flush_to(w, resolve(w, stream, false), 0); }

size_t kri_stream_column(struct kri_worker *w, kr_value stream)
{
    stream = resolve(w, stream, false);
    for (int i = 0; i < NESTING && is_a(w->vm, stream, KRI_CLASS_BROADCAST_STREAM); i++) {
        kr_value l = kri_slot(&kri_ptr(stream)->slot[5]);
        if (!kri_is_cons(l))
            return 0;
        stream = resolve(w, kri_car(l), false);
    }
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (!st)
        return 1;
    kri_lock(w, &st->lock);
    size_t column = st->column;
    kri_unlock(&st->lock);
    return column;
}

static kr_value output_string(struct kri_worker *w, kr_value stream, bool take)
{
    stream = resolve(w, stream, false);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (!st && !take) {
        intptr_t count;
        struct kri_string *s = user_buffer(w, stream, &count);
        return kri_string_n(w, (char *)s->byte, (size_t)count < s->head.length ? (size_t)count : s->head.length);
    }
    if (!st || st->kind != KRI_STREAM_STRING)
        kri_error(w, KRI_E_NO_STREAM, stream, "%V is no string stream", stream);
    /* The string made without the lock may be too short by the time it is filled: then again. */
    kri_lock(w, &st->lock);
    size_t size = st->end;
    kri_unlock(&st->lock);
    for (;;) {
        kr_value text = kri_make_string(w, size);
        kri_lock(w, &st->lock);
        size_t n = st->end;
        if (n == size)
            memcpy(kri_string_of(text)->byte, st->bytes, n);
        if (n == size && take)
            st->pos = st->end = 0;
        kri_unlock(&st->lock);
        if (n == size)
            return text;
        size = n;
    }
}
kr_value kri_get_output_string(struct kri_worker *w, kr_value stream) { return output_string(w, stream, false); }
kr_value kri_take_output_string(struct kri_worker *w, kr_value stream) { return output_string(w, stream, true); }

void kri_stream_clear_output(struct kri_worker *w, kr_value stream)
{
    struct kri_stream *st = kri_stream_state(w->vm, resolve(w, stream, false));
    if (!st)
        return;
    kri_lock(w, &st->lock);
    st->pos = st->end = st->column = 0;
    kri_unlock(&st->lock);
}

/* ---- input ---- */

_Noreturn static void read_error(struct kri_worker *w, kr_value stream, int error)
{
    kri_error(w, KRI_E_SYSTEM, stream, "reading %V: %s", stream, strerror(error));
}

/* Next bytes of a concatenated stream from its sources. Called and returns without the lock. */
static size_t take_from_sources(struct kri_worker *w, kr_value stream, char *to, size_t n)
{
    struct kri_stream_cell *c = cell_of(stream);
    if (kri_native_exhausted(w)) /* a stream that is its own source */
        kri_error_stack(w);
    for (kr_value l; kri_is_cons(l = kri_slot(&c->count)); kri_store(w, &c->head, &c->count, kri_cdr(l)), kri_poll(w)) {
        size_t got = 0;
        for (int ch; got < n && (ch = kri_stream_getc(w, kri_car(l))) >= 0;) {
            to[got++] = (char)ch;
            if (ch == '\n')
                break;
        }
        if (got > 0)
            return got;
    }
    return 0;
}

/* More bytes for ST, which has none unread. False at the end. Errors are raised with the lock given back. */
static bool refill_locked(struct kri_worker *w, kr_value stream, struct kri_stream *st)
{
    if (st->closed || st->kind == KRI_STREAM_STRING)
        return false;
    if (st->kind == KRI_STREAM_CONCATENATED) {
        char chunk[256];
        kri_unlock(&st->lock);
        size_t n = take_from_sources(w, stream, chunk, sizeof chunk);
        kri_lock(w, &st->lock);
        if (st->end + n > st->size) /* other readers of this stream may have added to it: put it behind theirs if it fits */
            memmove(st->bytes, st->bytes + st->pos - RESERVE, st->end - st->pos + RESERVE), st->end -= st->pos - RESERVE, st->pos = RESERVE;
        if (st->end + n > st->size)
            n = st->size - st->end;
        memcpy(st->bytes + st->end, chunk, n);
        st->end += n;
        return st->pos < st->end;
    }
    if (st->interactive) {
        kri_unlock(&st->lock);
        kri_stream_flush(w, KRI_NIL);
        kri_lock(w, &st->lock);
    }
    while (st->pos == st->end) {
        memmove(st->bytes, st->bytes + st->pos - RESERVE, RESERVE);
        st->pos = st->end = RESERVE;
        struct transfer t = {.vm = w->vm, .fd = st->fd, .input = true, .at = st->bytes + RESERVE, .n = st->size - RESERVE};
        if (st->closed)
            return false;
        if (!transfer_locked(w, st, &t))
            continue;
        if (t.error) {
            kri_unlock(&st->lock);
            read_error(w, stream, t.error);
        }
        if (t.done == 0)
            return false;
        st->end = RESERVE + (size_t)t.done;
    }
    return true;
}

bool kri_stream_lock_filled(struct kri_worker *w, kr_value stream, struct kri_stream *st)
{
    kri_lock(w, &st->lock);
    if (KRI_LIKELY(st->pos < st->end) || refill_locked(w, stream, st))
        return true;
    kri_unlock(&st->lock);
    return false;
}

/* A user-made input stream: bytes of BUFFER from COUNT to TAIL; when there are none left, :fill. */
static bool user_filled(struct kri_worker *w, kr_value stream, struct kri_string **buffer, intptr_t *count)
{
    for (int tries = 0; tries < 2; tries++) {
        *buffer = user_buffer(w, stream, count);
        kr_value tail = kri_slot(&cell_of(stream)->tail);
        intptr_t end = kri_is_fixnum(tail) ? kri_fixnum_value(tail) : 0;
        if (*count < end && *count < (intptr_t)(*buffer)->head.length)
            return true;
        if (tries == 0)
            kri_send(w, stream, kri_keyword(w, "FILL"), 0, NULL);
    }
    return false;
}

static int next_char(struct kri_worker *w, kr_value stream, bool consume)
{
    stream = resolve(w, stream, true);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (!st) {
        struct kri_string *buffer;
        intptr_t count;
        if (!user_filled(w, stream, &buffer, &count))
            return -1;
        if (consume)
            kri_store(w, kri_ptr(stream), &cell_of(stream)->count, kri_fixnum(count + 1));
        return buffer->byte[count];
    }
    if (!kri_stream_lock_filled(w, stream, st))
        return -1;
    int c = st->bytes[st->pos];
    if (consume) {
        st->pos++;
        st->line += c == '\n';
    }
    kri_unlock(&st->lock);
    return c;
}
int kri_stream_getc(struct kri_worker *w, kr_value stream) { return next_char(w, stream, true); }
int kri_stream_peek(struct kri_worker *w, kr_value stream) { return next_char(w, stream, false); }

void kri_stream_ungetc(struct kri_worker *w, kr_value stream, int c)
{
    stream = resolve(w, stream, true);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    bool room = true;
    if (!st) {
        intptr_t count;
        struct kri_string *s = user_buffer(w, stream, &count);
        room = count > 0 && (size_t)count <= s->head.length;
        if (room) {
            s->byte[count - 1] = (unsigned char)c;
            kri_store(w, kri_ptr(stream), &cell_of(stream)->count, kri_fixnum(count - 1));
        }
    } else {
        kri_lock(w, &st->lock);
        room = st->pos > 0 && !st->closed;
        if (room) {
            st->bytes[--st->pos] = (unsigned char)c;
            st->line -= c == '\n' && st->line > 1;
        }
        kri_unlock(&st->lock);
    }
    if (!room)
        kri_error(w, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(c), "no room to put a character back");
}

static uint64_t count_lines(const unsigned char *p, size_t n)
{
    uint64_t lines = 0;
    for (const unsigned char *end = p + n; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        lines++;
    return lines;
}

size_t kri_stream_read(struct kri_worker *w, kr_value stream, char *to, size_t n)
{
    stream = resolve(w, stream, true);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (n == 0)
        return 0;
    if (!st) {
        int c = next_char(w, stream, true);
        *to = (char)c;
        return c >= 0;
    }
    if (!kri_stream_lock_filled(w, stream, st))
        return 0;
    size_t take = st->end - st->pos < n ? st->end - st->pos : n;
    memcpy(to, st->bytes + st->pos, take);
    st->line += count_lines(st->bytes + st->pos, take);
    st->pos += take;
    kri_unlock(&st->lock);
    return take;
}

bool kri_stream_read_line(struct kri_worker *w, kr_value stream, struct kri_text *t, bool *newline)
{
    stream = resolve(w, stream, true);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    bool any = false;
    if (newline)
        *newline = false;
    if (!st) {
        for (int c; (c = next_char(w, stream, true)) >= 0; kri_text_putc(w, t, (char)c)) {
            any = true;
            if (c == '\n') {
                if (newline)
                    *newline = true;
                break;
            }
        }
        return any;
    }
    bool more = kri_stream_lock_filled(w, stream, st);
    while (more) {
        unsigned char *from = st->bytes + st->pos, *nl = memchr(from, '\n', st->end - st->pos);
        size_t n = nl ? (size_t)(nl - from) : st->end - st->pos, room = nl ? n : n + st->size;
        if (room > t->cap - t->n) { /* make room without the lock, then look again; for what follows a part of a line, too, so that it stays whole */
            kri_unlock(&st->lock);
            kri_text_reserve(w, t, room);
            more = kri_stream_lock_filled(w, stream, st);
            continue;
        }
        any = true;
        memcpy(t->p + t->n, from, n);
        t->n += n;
        st->pos += n + (nl != NULL);
        st->line += nl != NULL;
        more = !nl && refill_locked(w, stream, st);
        if (!more)
            kri_unlock(&st->lock);
        if (nl) {
            if (newline)
                *newline = true;
            return true;
        }
    }
    return any;
}

size_t kri_stream_unread(struct kri_worker *w, kr_value stream)
{
    struct kri_stream *st = kri_stream_state(w->vm, resolve(w, stream, true));
    if (!st)
        return 0;
    kri_lock(w, &st->lock);
    size_t n = st->end - st->pos;
    kri_unlock(&st->lock);
    return n;
}

uint64_t kri_stream_line(struct kri_worker *w, kr_value stream)
{
    struct kri_stream *st = kri_stream_state(w->vm, resolve(w, stream, true));
    if (!st)
        return 0;
    kri_lock(w, &st->lock);
    uint64_t line = st->line;
    kri_unlock(&st->lock);
    return line;
}

/* Room behind the unread bytes of ST. Caller holds its lock. */
static bool make_room_locked(struct kri_stream *st)
{
    if (st->end == st->size && st->pos > RESERVE) {
        memmove(st->bytes, st->bytes + st->pos - RESERVE, st->end - st->pos + RESERVE);
        st->end -= st->pos - RESERVE;
        st->pos = RESERVE;
    }
    return st->end < st->size;
}

size_t kri_stream_fill(struct kri_worker *w, kr_value stream, int *error)
{
    stream = resolve(w, stream, true);
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (!st || st->kind != KRI_STREAM_FD)
        kri_error(w, KRI_E_NO_STREAM, stream, "%V reads no file", stream);
    struct transfer t;
    kri_lock(w, &st->lock);
    do {
        if (st->closed || !make_room_locked(st)) {
            *error = st->closed ? EBADF : ENOBUFS;
            kri_unlock(&st->lock);
            return 0;
        }
        t = (struct transfer){.fd = st->fd, .input = true, .at = st->bytes + st->end, .n = st->size - st->end};
    } while (!transfer_locked(w, st, &t));
    *error = t.error;
    size_t n = t.error ? 0 : (size_t)t.done;
    st->end += n;
    kri_unlock(&st->lock);
    return n;
}

void kri_stream_reset_input(struct kri_worker *w, kr_value stream)
{
    struct kri_stream *st = kri_stream_state(w->vm, resolve(w, stream, true));
    if (!st || st->kind == KRI_STREAM_STRING)
        return;
    kri_lock(w, &st->lock);
    st->pos = st->end = RESERVE;
    kri_unlock(&st->lock);
}

/* ---- closing and positions ---- */

static void do_close(void *arg)
{
    struct transfer *t = arg;
    t->error = close(t->fd) < 0 ? errno : 0;
}

static bool close_native(struct kri_worker *w, kr_value stream, struct kri_stream *st)
{
    kri_lock(w, &st->lock);
    if (st->closed) {
        kri_unlock(&st->lock);
        return false;
    }
    int error = st->input ? 0 : flush_locked(w, st);
    int fd = st->kind == KRI_STREAM_FD ? st->fd : -1;
    st->closed = true;
    st->fd = -1;
    kri_unlock(&st->lock);
    struct kri_stream_cell *c = cell_of(stream);
    /* A string stream may still be asked for its text. */
    if (st->kind != KRI_STREAM_STRING || st->input)
        kri_store(w, &c->head, &c->direction, KRI_NIL);
    if (fd > STDERR_FILENO) {
        struct transfer t = {.vm = w->vm, .fd = fd};
        kri_blocking(w, do_close, &t);
        error = error ? error : t.error;
    }
    if (error)
        write_error(w, stream, error);
    return true;
}

bool kri_stream_close(struct kri_worker *w, kr_value stream)
{
    struct kr_vm *vm = w->vm;
    struct kri_stream *st = kri_stream_state(vm, stream);
    if (st)
        return close_native(w, stream, st);
    if (is_a(vm, stream, KRI_CLASS_IO_STREAM)) {
        kr_value in = kri_slot(&kri_ptr(stream)->slot[1]), out = kri_slot(&kri_ptr(stream)->slot[2]);
        struct kri_stream *i = kri_stream_state(vm, in), *o = kri_stream_state(vm, out);
        if (i && o && i != o && i->kind == KRI_STREAM_FD && o->kind == KRI_STREAM_FD && i->fd == o->fd && i->fd >= 0) {
            kri_lock(w, &i->lock); /* one descriptor for both ways: only one half closes it */
            i->closed = true;
            i->fd = -1;
            kri_unlock(&i->lock);
            kri_store(w, kri_ptr(in), &cell_of(in)->direction, KRI_NIL);
        }
        bool was = i && close_native(w, in, i);
        return (o && close_native(w, out, o)) || was;
    }
    if (!kri_is_stream(vm, stream))
        kri_error(w, KRI_E_NO_STREAM, stream, NULL);
    return false;
}

void kri_stream_finalize(struct kri_worker *w, kr_value v)
{
    struct kri_stream *st = kri_stream_state(w->vm, v);
    if (!st || st->kind != KRI_STREAM_FD)
        return;
    kri_lock(w, &st->lock);
    int fd = st->fd;
    if (!st->input && !st->closed)
        flush_locked(w, st);
    st->closed = true;
    st->fd = -1;
    kri_unlock(&st->lock);
    if (fd > STDERR_FILENO)
        close(fd);
}

struct finish {
    struct kri_worker *w;
    bool closing;
    int *fd; /* to be closed: in order of discovery, some twice */
    size_t n, size;
};

static void finish_later(struct finish *f, int fd)
{
    if (f->n == f->size) {
        size_t size = f->size ? 2 * f->size : 32;
        int *more = realloc(f->fd, size * sizeof *more);
        if (!more)
            return; /* it stays open */
        f->fd = more;
        f->size = size;
    }
    f->fd[f->n++] = fd;
}

/* The world stands still: nobody else is in this stream, or he holds its lock and blocks in a system call. */
static void finish_cell(struct kri_cell *c, void *arg)
{
    struct finish *f = arg;
    struct kri_stream *st = kri_stream_state(f->w->vm, kri_value_of(c));
    if (!st || st->kind != KRI_STREAM_FD || (st->input && !f->closing) || pthread_mutex_trylock(&st->lock) != 0)
        return;
    if (f->closing && !st->closed && st->fd > STDERR_FILENO)
        finish_later(f, st->fd);
    while (!st->input && !st->closed && st->pos < st->end) {
        size_t left = st->end - st->pos;
        ssize_t n = kri_host_output(f->w->vm, st->fd, (char *)st->bytes + st->pos, left) ? (ssize_t)left
                  : st->socket ? send(st->fd, st->bytes + st->pos, left, MSG_NOSIGNAL) : kri_write_quietly(st->fd, st->bytes + st->pos, left);
        if (n < 0 && errno != EINTR)
            break;
        st->pos += n > 0 ? (size_t)n : 0;
    }
    if (!st->input || f->closing)
        st->pos = st->end = 0;
    pthread_mutex_unlock(&st->lock);
}

static void finish_all(struct kri_worker *w, void *arg) { kri_heap_walk(w, finish_cell, arg); }

void kri_streams_finish(struct kri_worker *w)
{
    struct finish f = {.w = w};
    kri_with_world_stopped(w, finish_all, &f);
}

static void unlock_cell(struct kri_cell *c, void *arg)
{
    struct kri_worker *w = arg;
    struct kri_stream *st = kri_stream_state(w->vm, kri_value_of(c));
    if (st)
        pthread_mutex_init(&st->lock, NULL);
}
void kri_streams_after_fork(struct kri_worker *w) { kri_heap_walk(w, unlock_cell, w); }

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

void kri_streams_close(struct kri_worker *w)
{
    struct finish f = {.w = w, .closing = true};
    kri_with_world_stopped(w, finish_all, &f);
    /* Each descriptor once, also if two streams share it: its number may belong to somebody else afterwards. */
    if (f.n)
        qsort(f.fd, f.n, sizeof *f.fd, by_number);
    for (size_t i = 0; i < f.n; i++)
        if (i == 0 || f.fd[i] != f.fd[i - 1])
            close(f.fd[i]);
    free(f.fd);
}

intptr_t kri_stream_position(struct kri_worker *w, kr_value stream)
{
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (!st || st->closed)
        return -1;
    kri_lock(w, &st->lock);
    off_t at;
    if (st->kind == KRI_STREAM_STRING)
        at = st->input ? (off_t)(st->pos - RESERVE) : (off_t)st->end;
    else if ((at = st->kind == KRI_STREAM_FD ? lseek(st->fd, 0, SEEK_CUR) : -1) >= 0)
        at += st->input ? -(off_t)(st->end - st->pos) : (off_t)(st->end - st->pos);
    kri_unlock(&st->lock);
    return (intptr_t)at;
}

bool kri_stream_seek(struct kri_worker *w, kr_value stream, intptr_t position)
{
    struct kri_stream *st = kri_stream_state(w->vm, stream);
    if (!st || st->closed || position < 0)
        return false;
    kri_lock(w, &st->lock);
    bool done = false;
    if (st->kind == KRI_STREAM_STRING) {
        done = st->input && (size_t)position <= st->end - RESERVE;
        st->pos = done ? RESERVE + (size_t)position : st->pos;
    } else if (st->kind == KRI_STREAM_FD && (st->input || flush_locked(w, st) == 0)) {
        done = lseek(st->fd, position, SEEK_SET) >= 0;
        if (done)
            st->pos = st->end = st->input ? RESERVE : 0;
    }
    kri_unlock(&st->lock);
    return done;
}
