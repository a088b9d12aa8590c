/* unix.c -- what the files of package UNIX share: see unix.h. */
#define _GNU_SOURCE
#include "lisp/unix.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include "lisp/sequence.h"
#include "lisp/stream.h"

/* The errno of this thread's last function of UNIX that failed. */
static _Thread_local int last_error;

kr_value kri_unix_error(int error)
{
    last_error = error;
    return kri_fixnum(-error);
}

kr_value kri_unix_minus_one(int error)
{
    last_error = error;
    return kri_fixnum(-1);
}

int kri_arg_int(struct kri_worker *w, const kr_value *argv, int i)
{
    intptr_t n = kri_arg_fixnum(w, argv, i);
    if (n < INT32_MIN || n > UINT32_MAX)
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    return (int)(uint32_t)n;
}

int kri_arg_descriptor(struct kri_worker *w, const kr_value *argv, int i, bool input)
{
    kr_value v = argv[i], selector;
    if (!kri_is_fixnum(v) && kri_is_stream(w->vm, v) && (input ? kri_is_input_stream(w->vm, v) : kri_is_output_stream(w->vm, v)))
        return kri_stream_fd(w, v, input);
    if (!kri_is_fixnum(v) && kri_is_stream(w->vm, v) && (kri_is_input_stream(w->vm, v) || kri_is_output_stream(w->vm, v)))
        return kri_stream_fd(w, v, !input);
    if (kri_is_pointer(v) && !kri_is_fixnum(v)) {
        selector = kri_keyword(w, input ? "INFD" : "OUTFD");
        if (kri_cell(w->vm, v) && !kri_is_nil(kri_find_method(w, kri_ptr(v)->cls, selector, NULL)))
            v = kri_send(w, v, selector, 0, NULL);
    }
    if (!kri_is_fixnum(v))
        kri_argument_error(w, i, argv[i], KRI_E_NO_STREAM);
    if (kri_fixnum_value(v) < INT32_MIN || kri_fixnum_value(v) > INT32_MAX)
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    return (int)kri_fixnum_value(v);
}

unsigned char *kri_arg_bytes(struct kri_worker *w, const kr_value *argv, int i, size_t *length)
{
    enum kri_element e = kri_element(w->vm, argv[i]);
    if (e != KRI_ELEMENT_CHAR && e != KRI_ELEMENT_BYTE && e != KRI_ELEMENT_FOREIGN)
        kri_argument_error(w, i, argv[i], KRI_E_NO_STRING);
    *length = kri_length(argv[i]);
    return kri_vector_bytes(w->vm, argv[i]);
}

/* ---- waits ---- */

int64_t kri_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t kri_arg_deadline(struct kri_worker *w, const kr_value *argv, int i)
{
    if (kri_is_nil(argv[i]))
        return INT64_MAX;
    double s = kri_arg_double(w, argv, i);
    if (!(s >= 0))
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    return s > 1e9 ? INT64_MAX : kri_now() + (int64_t)(s * 1e9);
}

struct slice {
    struct pollfd p;
    struct timespec time;
    int n, error;
};

static struct timespec slice_until(int64_t deadline, int64_t most)
{
    int64_t left = deadline - kri_now();
    if (left < 0)
        left = 0;
    if (left > most)
        left = most;
    return (struct timespec){left / 1000000000, left % 1000000000};
}

static void sleep_slice(void *arg)
{
    struct slice *s = arg;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &s->time, NULL);
}

void kri_wait_until(struct kri_worker *w, int64_t deadline)
{
    /* A shorter slice than a descriptor's: a sleep is what an interrupt most often finds. */
    struct slice s = {.time = slice_until(deadline, 20 * 1000000)};
    kri_poll(w);
    kri_blocking(w, sleep_slice, &s);
    kri_poll(w);
}

static void poll_slice(void *arg)
{
    struct slice *s = arg;
    s->n = ppoll(&s->p, 1, &s->time, NULL);
    s->error = s->n < 0 ? errno : 0;
}

bool kri_wait_descriptor(struct kri_worker *w, int fd, short events, int64_t deadline)
{
    struct slice s = {.p = {.fd = fd, .events = events}};
    if (fd < 0)
        return true; /* the call will say so */
    for (;;) {
        kri_poll(w);
        s.time = slice_until(deadline, KRI_LOOK_UP_MS * (int64_t)1000000);
        kri_blocking(w, poll_slice, &s);
        if (s.n > 0 || (s.n < 0 && s.error != EINTR))
            return true;
        kri_poll(w);
        if (kri_now() >= deadline)
            return false;
    }
}

struct attempt {
    int (*f)(void *arg);
    void *arg;
    int error;
};

static void do_attempt(void *arg)
{
    struct attempt *a = arg;
    a->error = a->f(a->arg);
}

int kri_unix_try(struct kri_worker *w, int (*f)(void *arg), void *arg, int fd, short events)
{
    struct attempt a = {f, arg, 0};
    for (int64_t pause = 1000000;; pause = pause < 20000000 ? pause * 5 / 4 : pause) {
        kri_blocking(w, do_attempt, &a);
        if (a.error != EAGAIN && a.error != EWOULDBLOCK && a.error != EINTR)
            return a.error;
        if (a.error == EINTR)
            kri_poll(w);
        else if (fd >= 0)
            kri_wait_descriptor(w, fd, events, INT64_MAX);
        else
            kri_wait_until(w, kri_now() + pause);
    }
}

/* ---- errno ---- */

KR_BUILTIN(errno, "unix:errno", "()", "The error number of this thread's last function of UNIX that failed, 0 if there was none.")
{
    return kri_fixnum(last_error);
}

KR_BUILTIN(syserrlist, "unix:syserrlist", "(errno)", "What error number ERRNO means, in words.")
{
    char buffer[128];
    return kri_string(w, strerror_r(kri_arg_int(w, argv, 0), buffer, sizeof buffer));
}

KR_BUILTIN(perror, "unix:perror", "(message)", "Print MESSAGE and what unix:errno means on standard error. Returns t.")
{
    char buffer[128];
    struct kri_string *message = kri_arg_string(w, argv, 0);
    kr_value out = kri_special(w, w->vm->sym.error_output);
    kri_stream_puts(w, out, ";; ERROR ");
    kri_stream_write(w, out, (const char *)message->byte, kri_length(argv[0]));
    kri_stream_puts(w, out, ": ");
    kri_stream_puts(w, out, strerror_r(last_error, buffer, sizeof buffer));
    kri_stream_putc(w, out, '\n');
    return w->vm->sym.t;
}

const struct kri_builtin *const kri_builtins_errno[] = {&errno_def, &syserrlist_def, &perror_def, NULL};
