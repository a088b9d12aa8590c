/* event_loop.c -- the host's epoll loop, its handlers written in Lisp.
 *
 * (on-readable fd function) asks for FUNCTION to be called with the text that comes through FD; (after milliseconds function) for a call
 * later; (stop) ends the loop. Handlers are kept by handles, so a collection spares them. An error in a handler is told and
 * the loop goes on. Meanwhile other threads collect when they like: the loop waits outside Lisp. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "karakuri.h"

enum { HANDLERS = 16 };

struct handler {
    int fd;
    bool timer;
    kr_ref *function; /* NULL: free */
};

static struct loop {
    int epoll;
    bool stopped;
    struct handler handler[HANDLERS];
} loop;

static void add_handler(kr_context *ctx, int fd, bool timer, kr_value function)
{
    for (int i = 0; i < HANDLERS; i++) {
        struct handler *h = &loop.handler[i];
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = h};
        if (h->function)
            continue;
        *h = (struct handler){fd, timer, kr_ref_new(ctx, function)};
        if (!h->function || epoll_ctl(loop.epoll, EPOLL_CTL_ADD, fd, &e) != 0)
            kr_raise(ctx, "this descriptor cannot be waited for");
        return;
    }
    kr_raise(ctx, "too many handlers");
}

static void remove_handler(kr_context *ctx, struct handler *h)
{
    epoll_ctl(loop.epoll, EPOLL_CTL_DEL, h->fd, NULL);
    if (h->timer)
        close(h->fd);
    kr_unref(ctx, h->function);
    h->function = NULL;
}

static kr_value on_readable(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    int64_t fd;
    (void)argc, (void)user;
    if (kr_to_integer(ctx, argv[0], &fd) != KR_OK)
        kr_raise(ctx, "on-readable: a descriptor expected");
    add_handler(ctx, (int)fd, false, argv[1]);
    return argv[1];
}

static kr_value after(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    int64_t ms;
    (void)argc, (void)user;
    if (kr_to_integer(ctx, argv[0], &ms) != KR_OK || ms < 1)
        kr_raise(ctx, "after: milliseconds expected");
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec t = {.it_value = {ms / 1000, ms % 1000 * 1000000}};
    timerfd_settime(fd, 0, &t, NULL);
    add_handler(ctx, fd, true, argv[1]);
    return argv[1];
}

static kr_value stop(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    (void)argc, (void)argv, (void)user;
    loop.stopped = true;
    return kr_boolean(ctx, true);
}

static void call(kr_context *ctx, kr_ref *function, int argc, const kr_value *argv)
{
    kr_value v;
    char text[300];
    if (kr_funcall(ctx, kr_ref_value(function), argc, argv, &v) == KR_OK)
        return;
    kr_error_message(ctx, v, text, sizeof text);
    kr_eval_string(ctx, "(finish-output)", NULL); /* Lisp's output has a buffer of its own */
    printf("in a handler: %.22s\n", text);
    fflush(stdout);
}

static void serve(kr_context *ctx, struct handler *h)
{
    char text[500];
    size_t scope = kr_scope_begin(ctx);
    if (h->timer) {
        kr_ref *function = h->function;
        kr_value fn = kr_ref_value(function);
        kr_ref *own = kr_ref_new(ctx, fn);
        remove_handler(ctx, h);
        call(ctx, own, 0, NULL);
        kr_unref(ctx, own);
    } else {
        ssize_t n = read(h->fd, text, sizeof text);
        if (n <= 0) {
            remove_handler(ctx, h);
        } else {
            kr_value s = kr_bytes(ctx, text, (size_t)n);
            call(ctx, h->function, 1, &s);
        }
    }
    kr_scope_end(ctx, scope);
}

int main(void)
{
    kr_vm *vm;
    kr_context *ctx;
    char program[2000];
    int data[2];
    loop.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (kr_vm_new(NULL, &vm, &ctx) != KR_OK || pipe(data) != 0)
        return 1;
    kr_define(ctx, "on-readable", "(fd function)", "Call FUNCTION with each text that comes through FD.", on_readable, NULL);
    kr_define(ctx, "after", "(milliseconds function)", "Call FUNCTION then.", after, NULL);
    kr_define(ctx, "stop", "()", "End the loop.", stop, NULL);
    snprintf(program, sizeof program,
             "(setq n 0)"
             "(defun tick () (setq n (1+ n)) (format t \"tick ~d~%%\" n) (if (< n 3) (after 5 #'tick) (after 5 #'(lambda () (format t \"stop~%%\") (stop)))))"
             "(on-readable %d #'(lambda (text) (format t \"got ~s~%%\" text) (sys:gc)"
             "  (cond ((string= text \"start\") (after 1 #'tick)) (t (car 5)))))",
             data[0]);
    kr_value v;
    if (kr_eval_string(ctx, program, &v) != KR_OK)
        return 1;
    if (write(data[1], "nonsense", 8) < 0)
        return 1;
    for (bool first = true; !loop.stopped; first = false) {
        struct epoll_event e[8];
        int n = epoll_wait(loop.epoll, e, 8, 1000);
        for (int i = 0; i < n; i++)
            serve(ctx, e[i].data.ptr);
        kr_eval_string(ctx, "(finish-output)", NULL);
        if (first && write(data[1], "start", 5) < 0)
            return 1;
    }
    for (int i = 0; i < HANDLERS; i++)
        if (loop.handler[i].function)
            remove_handler(ctx, &loop.handler[i]);
    kr_vm_free(ctx);
    return 0;
}
