/* signal.c -- signals: caught by a handler in C that sets flags, answered by a function of Lisp at a poll; timers that send them.
 *
 * Nothing is installed before a program calls unix:signal. A signal's number has one entry in a table of the process: which worker
 * answers it (the one that called unix:signal, or that of the thread it named), and whether it has come since. What Lisp calls stands
 * in the vector *signal-handlers* of that worker's VM.
 *
 * Note [signal handler]
 * The handler touches the table's atomics and a worker's, nothing else. It counts itself in `busy`: who takes a worker away stores
 * another one (or none) in the entry first and then waits until nobody is busy, by adding nothing to the count: the handler that still saw the
 * old worker counted itself before, and is seen (Note [orders], runtime/atomic.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/unix.h"

enum { SIGNALS = 65 }; /* 1..64 are signals */

static struct {
    kri_atomic worker;       /* struct kri_worker *, or 0 */
    kri_atomic pending;      /* it came and has not been answered */
    kri_atomic code;         /* si_code of the last one */
    struct sigaction before; /* what was there when the first handler was installed; guarded by lock */
    bool ours;               /* the handler below is installed; guarded by lock */
} table[SIGNALS];

static kri_atomic busy; /* handlers that run */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */

static bool is_fault(int signo) { return signo == SIGSEGV || signo == SIGBUS || signo == SIGFPE || signo == SIGILL || signo == SIGTRAP; }

static void on_signal(int signo, siginfo_t *info, void *unused)
{
    (void)unused;
    int error = errno;
    if (is_fault(signo) && info->si_code > 0) {
        signal(signo, SIG_DFL); /* an instruction failed; it will again, and end the process */
        return;
    }
    kri_fetch_add(&busy, 1);
    struct kri_worker *w = (struct kri_worker *)kri_load_acquire(&table[signo].worker);
    if (w) {
        kri_store_relaxed(&table[signo].code, (size_t)(intptr_t)info->si_code);
        kri_store_release(&table[signo].pending, 1); /* pairs with the exchange in take */
        kri_request(w, KRI_REQUEST_SIGNAL);
    }
    kri_fetch_add(&busy, (size_t)-1);
    errno = error;
}

/* Nobody is in the handler with a worker that it read before the caller stored another. */
static void wait_for_handlers(void)
{
    while (kri_fetch_add(&busy, 0) != 0)
        sched_yield();
}

/* ---- answering ---- */

static bool take(struct kri_worker *w, int signo)
{
    if ((struct kri_worker *)kri_load_relaxed(&table[signo].worker) != w || !kri_load_relaxed(&table[signo].pending))
        return false;
    return kri_cas(&table[signo].pending, 1, 0);
}

static kr_value handler_of(struct kri_worker *w, int signo)
{
    kr_value v = kri_special(w, w->vm->sym.signal_handlers);
    return kri_element(w->vm, v) == KRI_ELEMENT_T && kri_length(v) > (size_t)signo ? kri_slot(&kri_vector_of(v)->at[signo]) : KRI_NIL;
}

struct answer {
    int signo;
    uint64_t outer; /* signals that were being answered before */
};

static kr_value call_handler(struct kri_worker *w, void *arg)
{
    struct answer *a = arg;
    kr_value fn = handler_of(w, a->signo);
    kr_value argv[2] = {kri_fixnum(a->signo), kri_fixnum((intptr_t)kri_load_relaxed(&table[a->signo].code))};
    return kri_is_nil(fn) ? KRI_NIL : kri_call(w, kri_coerce_function(w, fn), 2, argv);
}

/* However the handler was left: another signal of its kind may be answered now. */
static void end_answer(struct kri_worker *w, void *arg)
{
    struct answer *a = arg;
    w->ctx->answering = a->outer;
    if (kri_load_relaxed(&table[a->signo].pending))
        kri_request(w, KRI_REQUEST_SIGNAL);
}

void kri_signals_deliver(struct kri_worker *w)
{
    for (int s = 1; s < SIGNALS; s++) {
        struct answer a = {s, w->ctx->answering};
        if (a.outer >> (s - 1) & 1 || !take(w, s))
            continue;
        kri_request(w, KRI_REQUEST_SIGNAL); /* if this handler leaves by a throw, the next poll looks at the others */
        w->ctx->answering |= (uint64_t)1 << (s - 1);
        w->ctx->signals_answered++;
        kri_unwind_protect(w, call_handler, &a, end_answer);
    }
}

/* ---- installing ---- */

/* Caller holds the lock. */
static int install_locked(int signo)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (table[signo].ours)
        return 0;
    if (sigaction(signo, &action, &table[signo].before) != 0)
        return errno;
    table[signo].ours = true;
    return 0;
}

/* Caller holds the lock. What the executable did with the signal before, it does again; else HANDLER: SIG_DFL or SIG_IGN. */
static int uninstall_locked(int signo, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    bool had = table[signo].ours && ((table[signo].before.sa_flags & SA_SIGINFO) ||
                                     (table[signo].before.sa_handler != SIG_DFL && table[signo].before.sa_handler != SIG_IGN));
    sigemptyset(&action.sa_mask);
    if (sigaction(signo, handler == SIG_DFL && had ? &table[signo].before : &action, NULL) != 0)
        return errno;
    table[signo].ours = false;
    kri_store_release(&table[signo].worker, 0);
    kri_store_release(&table[signo].pending, 0);
    return 0;
}

static struct kri_worker *another_worker(struct kri_worker *w)
{
    struct kri_worker *found = NULL;
    pthread_mutex_lock(&w->vm->contexts_lock);
    for (struct kr_context *c = w->vm->contexts; c && !found; c = c->next)
        if (c != w->ctx && c->worker && !c->deaf)
            found = c->worker;
    pthread_mutex_unlock(&w->vm->contexts_lock);
    return found;
}

void kri_signals_forget(struct kri_worker *w)
{
    bool any = false;
    pthread_mutex_lock(&lock);
    w->ctx->deaf = true;
    for (int s = 1; s < SIGNALS; s++) {
        if ((struct kri_worker *)kri_load_relaxed(&table[s].worker) != w)
            continue;
        struct kri_worker *other = another_worker(w);
        any = true;
        if (!other) {
            uninstall_locked(s, SIG_DFL);
            continue;
        }
        kri_store_release(&table[s].worker, (size_t)other);
        kri_request(other, KRI_REQUEST_SIGNAL); /* one may wait */
    }
    pthread_mutex_unlock(&lock);
    if (any)
        wait_for_handlers();
}

void kri_signals_after_fork(struct kri_worker *w)
{
    sigset_t none;
    pthread_mutex_init(&lock, NULL);
    kri_store_relaxed(&busy, 0);
    for (int s = 1; s < SIGNALS; s++) {
        kri_store_relaxed(&table[s].pending, 0);
        if (kri_load_relaxed(&table[s].worker))
            kri_store_relaxed(&table[s].worker, (size_t)w);
    }
    if (!kri_is_nil(w->ctx->thread)) { /* a thread of the pool takes no signals, but it is the process now */
        sigemptyset(&none);
        pthread_sigmask(SIG_SETMASK, &none, NULL);
    }
}

void kri_signals_before_exec(struct kri_dispositions *d)
{
    struct sigaction now;
    d->changed = sigaction(SIGPIPE, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_IGN;
    d->pipe = d->changed ? signal(SIGPIPE, SIG_DFL) : SIG_DFL;
}

void kri_signals_after_exec(const struct kri_dispositions *d)
{
    if (d->changed)
        signal(SIGPIPE, d->pipe);
}

static int signal_argument(struct kri_worker *w, const kr_value *argv, int i)
{
    intptr_t n = kri_arg_fixnum(w, argv, i);
    if (n < 0 || n >= SIGNALS)
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    return (int)n;
}

static bool is_thread(struct kr_vm *vm, kr_value v)
{
    return kri_is_pointer(v) && kri_derivedp(vm, v, vm->classes[KRI_CLASS_THREAD].object);
}

/* The worker of THREAD; W if that is no thread; NULL if it has ended. Caller holds the lock, so the worker stays. */
static struct kri_worker *worker_of_locked(struct kri_worker *w, kr_value thread)
{
    struct kri_worker *found = NULL;
    if (!is_thread(w->vm, thread))
        return w;
    pthread_mutex_lock(&w->vm->contexts_lock);
    for (struct kr_context *c = w->vm->contexts; c && !found; c = c->next)
        if (kri_eq(c->thread, thread) && !c->deaf)
            found = c->worker;
    pthread_mutex_unlock(&w->vm->contexts_lock);
    return found;
}

static kr_value handlers_vector(struct kri_worker *w)
{
    kr_value v = kri_special(w, w->vm->sym.signal_handlers);
    if (kri_element(w->vm, v) == KRI_ELEMENT_T && kri_length(v) >= SIGNALS)
        return v;
    v = kri_make_vector(w, SIGNALS);
    kri_set_special(w, w->vm->sym.signal_handlers, v);
    return v;
}

KR_BUILTIN(signal, "unix:signal", "(signal &optional function thread)",
           "Have FUNCTION called with the signal's number and a code that tells its origin when SIGNAL comes; it runs at the next poll of "
           "this thread, or of THREAD if one is given. FUNCTION nil or 0 brings back what the system does, 1 ignores the signal. Returns the "
           "function that served before, or nil; or minus errno. With SIGNAL alone nothing changes.")
{
    int signo = signal_argument(w, argv, 0), error;
    kr_value handlers = handlers_vector(w), before = kri_slot(&kri_vector_of(handlers)->at[signo]), fn = argc > 1 ? argv[1] : KRI_NIL;
    if (argc == 1)
        return before;
    bool number = kri_is_fixnum(fn);
    if (number ? kri_fixnum_value(fn) < 0 || kri_fixnum_value(fn) > 1 : !kri_is_symbol(fn) && !kri_is_function(fn) && !kri_is_cons(fn))
        kri_argument_error(w, 1, fn, KRI_E_ILLEGAL_FUNCTION);
    kr_value thread = argc > 2 ? argv[2] : KRI_NIL;
    if (number || kri_is_nil(fn)) {
        kri_lock(w, &lock);
        error = uninstall_locked(signo, number && kri_fixnum_value(fn) == 1 ? SIG_IGN : SIG_DFL);
        kri_unlock(&lock);
        fn = KRI_NIL;
        wait_for_handlers();
    } else {
        /* First the function, or a signal that comes at once would find none. */
        kri_store(w, kri_ptr(handlers), &kri_vector_of(handlers)->at[signo], fn);
        kri_lock(w, &lock);
        struct kri_worker *serving = worker_of_locked(w, thread);
        error = signo == 0 ? EINVAL : serving ? install_locked(signo) : ESRCH;
        if (!error)
            kri_store_release(&table[signo].worker, (size_t)serving);
        kri_unlock(&lock);
    }
    if (error) {
        kri_store(w, kri_ptr(handlers), &kri_vector_of(handlers)->at[signo], before);
        return kri_unix_error(error);
    }
    kri_store(w, kri_ptr(handlers), &kri_vector_of(handlers)->at[signo], fn);
    return before;
}

/* ---- sets of signals: bit N-1 of a bit-vector, integer-vector or integer ---- */

static unsigned char *signal_set(struct kri_worker *w, const kr_value *argv, int i, size_t *bits)
{
    enum kri_element e = kri_element(w->vm, argv[i]);
    if (e != KRI_ELEMENT_BIT && e != KRI_ELEMENT_INTEGER)
        kri_argument_error(w, i, argv[i], KRI_E_NO_BIT_VECTOR);
    *bits = kri_length(argv[i]) * (e == KRI_ELEMENT_BIT ? 1 : 64);
    return e == KRI_ELEMENT_BIT ? kri_string_of(argv[i])->byte : (unsigned char *)kri_ivector_of(argv[i])->at;
}

static kr_value change_set(struct kri_worker *w, kr_value *argv, bool add)
{
    size_t bits;
    unsigned char *set = signal_set(w, argv, 0, &bits);
    int signo = signal_argument(w, argv, 1);
    if (signo == 0 || (size_t)signo > bits)
        kri_argument_error(w, 1, argv[1], KRI_E_RANGE);
    unsigned char bit = (unsigned char)(1 << (signo - 1) % 8);
    set[(signo - 1) / 8] = (unsigned char)(add ? set[(signo - 1) / 8] | bit : set[(signo - 1) / 8] & ~bit);
    return argv[0];
}

KR_BUILTIN(sigaddset, "unix:sigaddset", "(signal-set signal)", "Add SIGNAL to SIGNAL-SET, a bit-vector or integer-vector, which is returned.")
{
    return change_set(w, argv, true);
}

KR_BUILTIN(sigdelset, "unix:sigdelset", "(signal-set signal)", "Remove SIGNAL from SIGNAL-SET, a bit-vector or integer-vector, which is returned.")
{
    return change_set(w, argv, false);
}

KR_BUILTIN(sigprocmask, "unix:sigprocmask", "(how new-set &optional old-set)",
           "Block the signals of NEW-SET in this thread (HOW is unix:sig_block or 0), let them through (unix:sig_unblock), or block these and no "
           "others (unix:sig_setmask). OLD-SET becomes the set of those blocked before. The sets are bit-vectors or integer-vectors. "
           "Returns t or minus errno.")
{
    static const int kind[] = {SIG_BLOCK, SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK};
    intptr_t how = kri_arg_natural(w, argv, 0);
    size_t bits, old_bits = 0;
    unsigned char *set = signal_set(w, argv, 1, &bits), *before = argc > 2 ? signal_set(w, argv, 2, &old_bits) : NULL;
    sigset_t new_set, old_set;
    if (how > 3)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    sigemptyset(&new_set);
    for (size_t i = 0; i < bits && i < SIGNALS - 1; i++)
        if (set[i / 8] >> i % 8 & 1)
            sigaddset(&new_set, (int)i + 1);
    int error = pthread_sigmask(kind[how], &new_set, &old_set);
    if (error)
        return kri_unix_error(error);
    for (size_t i = 0; i < old_bits && i < SIGNALS - 1; i++) {
        before[i / 8] = (unsigned char)(before[i / 8] & ~(1 << i % 8));
        if (sigismember(&old_set, (int)i + 1) == 1)
            before[i / 8] = (unsigned char)(before[i / 8] | 1 << i % 8);
    }
    return w->vm->sym.t;
}

/* ---- timers ---- */

static kr_value seconds(struct kri_worker *w, struct timeval t) { return kri_float(w, (double)t.tv_sec + (double)t.tv_usec * 1e-6); }

static struct timeval interval_argument(struct kri_worker *w, const kr_value *argv, int i)
{
    double s = kri_arg_double(w, argv, i);
    if (!(s >= 0) || s > 1e9)
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    struct timeval t = {(time_t)s, (suseconds_t)((s - (double)(time_t)s) * 1e6)};
    if (s > 0 && t.tv_sec == 0 && t.tv_usec == 0)
        t.tv_usec = 1; /* zero would mean never */
    return t;
}

KR_BUILTIN(getitimer, "unix:getitimer", "(timer)",
           "(SECONDS INTERVAL) of TIMER: when it will send its signal, and how often after that; 0.0 is never. TIMER 0 goes by the clock and "
           "sends sigalrm, 1 by this process's processor time (sigvtalrm), 2 by that and the system's for it (sigprof). nil for another one.")
{
    struct itimerval now;
    if (getitimer((__itimer_which_t)kri_arg_int(w, argv, 0), &now) != 0) {
        kri_unix_error(errno);
        return KRI_NIL;
    }
    return kri_list(w, 2, seconds(w, now.it_value), seconds(w, now.it_interval));
}

KR_BUILTIN(setitimer, "unix:setitimer", "(timer seconds interval)",
           "Have TIMER, as unix:getitimer has them, send its signal in SECONDS and every INTERVAL seconds after that; 0 is never. Returns what "
           "was left of the setting before, as unix:getitimer does, or nil.")
{
    int which = kri_arg_int(w, argv, 0);
    struct itimerval new = {.it_value = interval_argument(w, argv, 1), .it_interval = interval_argument(w, argv, 2)}, old;
    if (setitimer((__itimer_which_t)which, &new, &old) != 0) {
        kri_unix_error(errno);
        return KRI_NIL;
    }
    return kri_list(w, 2, seconds(w, old.it_value), seconds(w, old.it_interval));
}

KR_BUILTIN(alarm, "unix:alarm", "(seconds)",
           "Have sigalrm sent in SECONDS, an integer; 0 cancels it. Returns how many seconds were left before.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    if (n > 1000000000)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    return kri_fixnum(alarm((unsigned)n));
}

KR_BUILTIN(ualarm, "unix:ualarm", "(microseconds interval)",
           "Have sigalrm sent in MICROSECONDS and every INTERVAL microseconds after that; 0 is never. Returns how many microseconds were left before.")
{
    intptr_t first = kri_arg_natural(w, argv, 0), next = kri_arg_natural(w, argv, 1);
    if (first > (intptr_t)1000000000 * 1000000 || next > (intptr_t)1000000000 * 1000000)
        kri_argument_error(w, first > (intptr_t)1000000000 * 1000000 ? 0 : 1, argv[0], KRI_E_RANGE);
    struct itimerval new = {.it_value = {first / 1000000, first % 1000000}, .it_interval = {next / 1000000, next % 1000000}}, old;
    if (setitimer(ITIMER_REAL, &new, &old) != 0)
        return kri_unix_error(errno);
    return kri_fixnum((intptr_t)old.it_value.tv_sec * 1000000 + old.it_value.tv_usec);
}

/* ---- waiting for time and signals ---- */

/* True when the time was up, false when a signal was answered before. */
static bool sleep_until(struct kri_worker *w, int64_t deadline)
{
    size_t answered = w->ctx->signals_answered;
    while (kri_now() < deadline) {
        kri_wait_until(w, deadline);
        if (w->ctx->signals_answered != answered)
            return false;
    }
    return true;
}

KR_BUILTIN(sleep, "unix:sleep", "(seconds)",
           "Wait SECONDS (an integer or float); collections and interrupts go on. Returns t, or nil at once when a signal was answered.")
{
    double s = kri_arg_double(w, argv, 0);
    if (!(s >= 0) || s > 1e9)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    return kri_bool(w, sleep_until(w, kri_now() + (int64_t)(s * 1e9)));
}

KR_BUILTIN(usleep, "unix:usleep", "(microseconds)", "Wait MICROSECONDS. Returns t, or nil at once when a signal was answered.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    if (n > (intptr_t)1000000000 * 1000000)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    return kri_bool(w, sleep_until(w, kri_now() + (int64_t)n * 1000));
}

KR_BUILTIN(pause, "unix:pause", "()", "Wait until a signal is answered in this thread. Returns -1.")
{
    sleep_until(w, INT64_MAX);
    return kri_unix_minus_one(EINTR);
}

const struct kri_builtin *const kri_builtins_signal[] = {
    &signal_def, &sigaddset_def, &sigdelset_def, &sigprocmask_def, &getitimer_def, &setitimer_def, &alarm_def, &ualarm_def,
    &sleep_def, &usleep_def, &pause_def, NULL};
