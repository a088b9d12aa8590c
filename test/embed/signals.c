/* signals.c -- a host's signals are its own: the library takes one only when a program asks, gives it to another thread of the VM when
 * that of its handler goes, and gives it back with the VM. A connection or pipe that is gone ends no host. */
#include <pthread.h>
#include <signal.h>

#include "embed.h"

static volatile sig_atomic_t hosts; /* signals that the host's own handler has seen */

static void hosts_handler(int signo)
{
    (void)signo;
    hosts++;
}

static bool is_default(int signo)
{
    struct sigaction now;
    CHECK(sigaction(signo, NULL, &now) == 0);
    return !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL;
}

static void nothing_unasked(void)
{
    struct sigaction before[32], now; /* sanitizers have handlers of their own */
    for (int s = 1; s < 32; s++)
        sigaction(s, NULL, &before[s]);
    kr_vm *vm;
    kr_context *ctx = must_new(NULL, &vm);
    must(ctx, "(unix:system \"true\")");
    for (int s = 1; s < 32; s++) {
        sigaction(s, NULL, &now);
        CHECK(now.sa_handler == before[s].sa_handler);
    }
    kr_vm_free(ctx);
}

static void given_back(void)
{
    kr_vm *vm;
    signal(SIGUSR2, hosts_handler);
    kr_context *ctx = must_new(NULL, &vm);
    must(ctx, "(setq got 0) (unix:signal 10 #'(lambda (s c) (incf got))) (unix:signal 12 #'(lambda (s c) (incf got 10)))");
    raise(SIGUSR1);
    raise(SIGUSR2);
    CHECK(must_integer(ctx, "(progn (unix:usleep 1000) got)") == 11 && hosts == 0);
    kr_vm_free(ctx);
    CHECK(is_default(SIGUSR1));
    raise(SIGUSR2);
    CHECK(hosts == 1);
    signal(SIGUSR2, SIG_DFL);
}

static void *short_life(void *vm)
{
    kr_context *ctx = kr_attach(vm);
    CHECK(ctx);
    must(ctx, "(unix:signal 10 #'(lambda (s c) (incf got)))");
    kr_detach(ctx);
    return NULL;
}

static void handed_on(void)
{
    kr_vm *vm;
    kr_context *ctx = must_new(NULL, &vm);
    pthread_t thread;
    must(ctx, "(setq got 0)");
    CHECK(pthread_create(&thread, NULL, short_life, vm) == 0);
    pthread_join(thread, NULL);
    raise(SIGUSR1);
    CHECK(must_integer(ctx, "(progn (unix:usleep 1000) got)") == 1);
    kr_vm_free(ctx);
}

static void gone(void)
{
    kr_vm *vm;
    kr_value v;
    kr_context *ctx = must_new(NULL, &vm);
    CHECK(kr_eval_string(ctx, "(let ((p (unix:pipe))) (close (send p :instream)) (format p \"x~%\") (finish-output p))", &v) == KR_ERROR);
    CHECK(must_integer(ctx, "(let ((p (unix:pipe))) (close (send p :instream)) (unix:write (send p :outfd) \"x\"))") == -1);
    kr_vm_free(ctx);
}

int main(void)
{
    nothing_unasked();
    given_back();
    handed_on();
    gone();
    puts("signals: ok");
    return 0;
}
