/* builtin_process.c -- processes: running programs, waiting for them, the environment, the end of this one.
 *
 * Children are of two kinds. Those of unix:fork and xfork belong to the program, which waits for them with `wait'. The others are
 * Karakuri's own: a command of unix:system, and the program behind a process stream, which nobody waits for. They are noted in a
 * table, `wait' passes them over, and the dead among them are collected whenever another child is made or waited for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/stream.h"
#include "lisp/unix.h"

extern char **environ;

/* ---- the environment: libc changes it in place ---- */

static pthread_mutex_t environment_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: held over no allocation */

KR_BUILTIN(getenv, "unix:getenv", "(name)", "The value of environment variable NAME as a string, or nil.")
{
    char small[256];
    kr_value name = argv[0], room;
    kri_arg_string(w, argv, 0);
    for (size_t size = sizeof small;;) {
        bool fits = size == sizeof small;
        room = fits ? KRI_NIL : kri_make_string(w, size);
        char *text = fits ? small : (char *)kri_string_of(room)->byte;
        kri_lock(w, &environment_lock);
        const char *v = getenv((const char *)kri_string_of(name)->byte);
        size_t n = v ? strlen(v) : 0;
        if (v && n < size)
            memcpy(text, v, n);
        kri_unlock(&environment_lock);
        if (!v)
            return KRI_NIL;
        if (n < size)
            return kri_string_n(w, text, n);
        size = n + 1;
    }
}

KR_BUILTIN(putenv, "unix:putenv", "(string)", "Set an environment variable; STRING is \"name=value\". Returns t, or -errno.")
{
    const char *text = (const char *)kri_arg_string(w, argv, 0)->byte, *equal = strchr(text, '=');
    if (!equal || equal == text)
        return kri_unix_error(EINVAL);
    char *name = strndup(text, (size_t)(equal - text));
    if (!name)
        kri_error_memory(w, 0);
    pthread_mutex_lock(&environment_lock);
    int error = setenv(name, equal + 1, 1) == 0 ? 0 : errno;
    pthread_mutex_unlock(&environment_lock);
    free(name);
    return error ? kri_unix_error(error) : w->vm->sym.t;
}

KR_BUILTIN(environment, "unix:environ", "()", "The environment: a list of strings \"name=value\".")
{
    struct kri_text text;
    kr_value list = KRI_NIL;
    size_t size = 0;
    kri_text_init(&text);
    for (;;) { /* all of them in one text, made large enough without the lock */
        size_t n = 0;
        kri_text_reserve(w, &text, size);
        kri_lock(w, &environment_lock);
        for (char **e = environ; e && *e; e++)
            n += strlen(*e) + 1;
        bool fits = n <= text.cap;
        for (char **e = environ; fits && e && *e; e++) {
            size_t length = strlen(*e) + 1;
            memcpy(text.p + text.n, *e, length);
            text.n += length;
        }
        kri_unlock(&environment_lock);
        if (fits)
            break;
        size = n;
    }
    for (size_t end = text.n; end > 0;) {
        size_t start = end - 1;
        while (start > 0 && text.p[start - 1])
            start--;
        list = kri_cons(w, kri_string_n(w, text.p + start, end - 1 - start), list);
        end = start;
    }
    return list;
}

/* ---- Karakuri's own children ---- */

static pthread_mutex_t children_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next three; a leaf, also held over spawn and waitid */
static struct own {
    pid_t pid;
    bool kept; /* its status is asked for: kri_child_look */
} *own;
static size_t own_count, own_size;
static size_t programs; /* children that belong to the program */

void kri_children_after_fork(void)
{
    pthread_mutex_init(&children_lock, NULL);
    pthread_mutex_init(&environment_lock, NULL);
    own_count = programs = 0;
}

void kri_children_forked(void)
{
    pthread_mutex_lock(&children_lock);
    programs++;
    pthread_mutex_unlock(&children_lock);
}

static size_t own_index_locked(pid_t pid)
{
    size_t i = 0;
    while (i < own_count && own[i].pid != pid)
        i++;
    return i;
}

static void own_forget_locked(size_t i) { own[i] = own[--own_count]; }

/* Room for one more; false when memory is out. */
static bool own_reserve_locked(void)
{
    if (own_count < own_size)
        return true;
    size_t size = own_size ? 2 * own_size : 16;
    struct own *more = realloc(own, size * sizeof *more);
    if (!more)
        return false;
    own = more;
    own_size = size;
    return true;
}

static void collect_own_locked(void)
{
    for (size_t i = own_count; i-- > 0;)
        if (!own[i].kept && waitpid(own[i].pid, NULL, WNOHANG) != 0) /* dead, or not ours any more */
            own_forget_locked(i);
}

/* ---- running a program ---- */

struct spawn {
    char **argv;
    int fd[3];
    bool mine;      /* Karakuri's own child */
    bool kept;      /* which is waited for by kri_child_look; it leads a process group */
    bool interrupts_default; /* the child is not to inherit that SIGINT and SIGQUIT are ignored */
    pid_t pid;
    int error;
};

static int prepare(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr, const struct spawn *s)
{
    sigset_t set;
    int error = 0;
    for (int i = 0; i < 3 && !error; i++)
        if (s->fd[i] >= 0)
            error = posix_spawn_file_actions_adddup2(actions, s->fd[i], i);
    sigemptyset(&set);
    posix_spawnattr_setsigmask(attr, &set);
    sigaddset(&set, SIGPIPE);
    if (s->interrupts_default) {
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGQUIT);
    }
    posix_spawnattr_setsigdefault(attr, &set);
    posix_spawnattr_setflags(attr, (short)(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | (s->kept ? POSIX_SPAWN_SETPGROUP : 0)));
    return error;
}

/* A source that is 0, 1 or 2 itself would be overwritten before it is copied: it gets another number. */
static void move_sources(struct spawn *s, int *moved)
{
    for (int i = 0; i < 3; i++) {
        moved[i] = s->fd[i] >= 0 && s->fd[i] < 3 && s->fd[i] != i ? fcntl(s->fd[i], F_DUPFD_CLOEXEC, 3) : -1;
        if (moved[i] >= 0)
            s->fd[i] = moved[i];
    }
}

static int open_pidfd(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static void do_spawn(void *arg)
{
    struct spawn *s = arg;
    int moved[3];
    move_sources(s, moved);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    s->error = prepare(&actions, &attr, s);
    pthread_mutex_lock(&children_lock);
    collect_own_locked();
    if (!s->error && s->mine && !own_reserve_locked())
        s->error = ENOMEM;
    if (!s->error) {
        pthread_mutex_lock(&environment_lock);
        s->error = posix_spawnp(&s->pid, s->argv[0], &actions, &attr, s->argv, environ);
        pthread_mutex_unlock(&environment_lock);
    }
    if (!s->error && s->mine)
        own[own_count++] = (struct own){s->pid, s->kept};
    else if (!s->error)
        programs++;
    pthread_mutex_unlock(&children_lock);
    for (int i = 0; i < 3; i++)
        if (moved[i] >= 0)
            close(moved[i]);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
}

int kri_child_start(char **argv, int input, int output, struct kri_child *child)
{
    struct spawn s = {.argv = argv, .fd = {input, output, output}, .mine = true, .kept = true, .interrupts_default = true};
    do_spawn(&s);
    child->pid = s.pid;
    child->pidfd = s.error ? -1 : open_pidfd(s.pid);
    return s.error;
}

int kri_child_look(struct kri_child *child)
{
    pthread_mutex_lock(&children_lock);
    pid_t pid = waitpid(child->pid, &child->status, WNOHANG);
    int error = pid > 0 ? 0 : pid == 0 ? EAGAIN : errno;
    size_t i = own_index_locked(child->pid);
    if (pid != 0 && i < own_count)
        own_forget_locked(i);
    pthread_mutex_unlock(&children_lock);
    if (pid != 0 && child->pidfd >= 0)
        close(child->pidfd);
    return error;
}

/* The words of a command as copies that nobody changes: a vector of strings. No string may hold a null character. */
static kr_value command_words(struct kri_worker *w, kr_value first, const kr_value *rest, size_t n)
{
    kr_value words = kri_make_vector(w, n + 1);
    for (size_t i = 0; i <= n; i++) {
        kr_value v = i == 0 ? first : rest[i - 1];
        if (!kri_is_string(w->vm, v))
            v = kri_print_to_string(w, v, false);
        if (memchr(kri_string_of(v)->byte, 0, kri_length(v)))
            kri_error(w, KRI_E_NO_STRING, v, "a word of a command with a null character");
        v = kri_string_n(w, (const char *)kri_string_of(v)->byte, kri_length(v));
        kri_store(w, kri_ptr(words), &kri_vector_of(words)->at[i], v);
    }
    return words;
}

/* The same for C; malloc'ed. */
static char **word_pointers(kr_value words)
{
    size_t n = kri_length(words);
    char **p = malloc((n + 1) * sizeof *p);
    for (size_t i = 0; p && i < n; i++)
        p[i] = (char *)kri_string_of(kri_vector_of(words)->at[i])->byte;
    if (p)
        p[n] = NULL;
    return p;
}

static void run_words(struct kri_worker *w, kr_value words, struct spawn *s)
{
    s->argv = word_pointers(words);
    if (!s->argv)
        kri_error_memory(w, 0);
    kri_blocking(w, do_spawn, s);
    free(s->argv);
}

KR_BUILTIN(spawn, "unix::%spawn", "(command arguments input output error own)",
           "Run the program COMMAND with the list ARGUMENTS in a child process. INPUT, OUTPUT and ERROR are the descriptors that it gets as "
           "standard ones, nil for this process's. OWN: nobody waits for it. Returns the process's number or minus errno.")
{
    size_t n = 0;
    kr_value rest[256];
    for (kr_value l = kri_arg_list(w, argv, 1); kri_is_cons(l); l = kri_cdr(l)) {
        if (n == 256)
            kri_error(w, KRI_E_RANGE, argv[1], "at most 256 arguments");
        rest[n++] = kri_car(l);
    }
    struct spawn s = {.mine = !kri_is_nil(argv[5])};
    for (int i = 0; i < 3; i++)
        s.fd[i] = kri_is_nil(argv[2 + i]) ? -1 : kri_arg_int(w, argv, 2 + i);
    run_words(w, command_words(w, argv[0], rest, n), &s);
    return s.error ? kri_unix_error(s.error) : kri_fixnum(s.pid);
}

struct exec {
    char **argv;
    bool unblock;
    int error;
};

static void do_exec(void *arg)
{
    struct exec *x = arg;
    struct kri_dispositions d;
    sigset_t none, before;
    kri_signals_before_exec(&d);
    sigemptyset(&none);
    if (x->unblock)
        pthread_sigmask(SIG_SETMASK, &none, &before);
    execvp(x->argv[0], x->argv);
    x->error = errno;
    if (x->unblock)
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    kri_signals_after_exec(&d);
}

KR_BUILTIN(exec, "unix:exec", "(program &rest arguments)",
           "Become PROGRAM, looked for along $PATH unless its name has a slash, with ARGUMENTS (strings; others are printed). Ends all threads. "
           "Returns only if that fails: minus errno.")
{
    kr_value words = command_words(w, kri_value_of(kri_arg_string(w, argv, 0)), argv + 1, (size_t)argc - 1);
    kri_stream_flush(w, kri_special(w, w->vm->sym.standard_output));
    struct exec x = {.argv = word_pointers(words), .unblock = !kri_is_nil(w->ctx->thread)};
    if (!x.argv)
        kri_error_memory(w, 0);
    kri_blocking(w, do_exec, &x);
    free(x.argv);
    return kri_unix_error(x.error);
}

KR_BUILTIN(vfork, "unix:vfork", "()", "The same as unix:fork.")
{
    kri_stream_flush(w, kri_special(w, w->vm->sym.standard_output));
    int pid = kri_fork(w);
    return pid < 0 ? kri_unix_error(errno) : kri_fixnum(pid);
}

/* ---- waiting for children ---- */

struct waiting {
    pid_t which; /* -1: any of the program's */
    pid_t pid;
    int status;
};

/* One look at the children: 0, ECHILD, or EAGAIN if none has ended. */
static int look_locked(struct waiting *x)
{
    for (;;) {
        siginfo_t info = {0};
        if (x->which > 0) {
            x->pid = waitpid(x->which, &x->status, WNOHANG);
            return x->pid > 0 ? 0 : x->pid == 0 ? EAGAIN : errno;
        }
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            return errno;
        if (info.si_pid == 0) /* children that are all Karakuri's own do not count */
            return programs == 0 && own_count > 0 ? ECHILD : EAGAIN;
        size_t i = own_index_locked(info.si_pid);
        x->pid = waitpid(info.si_pid, &x->status, WNOHANG);
        if (i < own_count)
            own_forget_locked(i);
        else if (x->pid > 0)
            return 0;
    }
}

static int look(void *arg)
{
    struct waiting *x = arg;
    pthread_mutex_lock(&children_lock);
    int error = look_locked(x);
    if (!error && own_index_locked(x->pid) < own_count)
        own_forget_locked(own_index_locked(x->pid));
    else if (!error && programs > 0)
        programs--;
    pthread_mutex_unlock(&children_lock);
    return error;
}

struct child_wait {
    struct waiting waiting;
    int pidfd, error;
};

static kr_value wait_for_child(struct kri_worker *w, void *arg)
{
    struct child_wait *c = arg;
    c->error = kri_unix_try(w, look, &c->waiting, c->pidfd, POLLIN);
    return KRI_NIL;
}

static void close_pidfd(struct kri_worker *w, void *arg)
{
    (void)w;
    struct child_wait *c = arg;
    if (c->pidfd >= 0)
        close(c->pidfd);
}

/* Wait for child PID: its status in *STATUS; 0 or an errno. */
static int wait_for(struct kri_worker *w, pid_t pid, int *status)
{
    struct child_wait c = {.waiting = {.which = pid}, .pidfd = open_pidfd(pid)};
    kri_unwind_protect(w, wait_for_child, &c, close_pidfd);
    *status = c.waiting.status;
    return c.error;
}

KR_BUILTIN(wait, "wait", "()",
           "Wait until a child process made by unix:fork or xfork ends: (pid status), the status as waitpid(2) tells it. (-1 0) if there is none.")
{
    struct waiting x = {.which = -1};
    int error = kri_unix_try(w, look, &x, -1, 0);
    if (error)
        kri_unix_error(error);
    return kri_list(w, 2, kri_fixnum(error ? -1 : x.pid), kri_fixnum(error ? 0 : x.status));
}

KR_BUILTIN(waitpid, "unix:waitpid", "(pid &optional no-wait)",
           "Wait until child process PID ends: (pid status); with NO-WAIT nil if it still runs. Minus errno if it is no child.")
{
    int pid = kri_arg_int(w, argv, 0), status = 0;
    if (pid <= 0)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    struct waiting x = {.which = pid};
    int error = argc > 1 && !kri_is_nil(argv[1]) ? look(&x) : wait_for(w, pid, &status);
    if (error == EAGAIN)
        return KRI_NIL;
    if (error)
        return kri_unix_error(error);
    return kri_list(w, 2, kri_fixnum(pid), kri_fixnum(argc > 1 && !kri_is_nil(argv[1]) ? x.status : status));
}

/* ---- unix:system: like system(3), but it can be interrupted ---- */

static pthread_mutex_t ignoring_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next three */
static unsigned ignoring;
static struct sigaction ignored_int, ignored_quit;

/* While commands run, a ^C at the terminal is theirs. */
static void ignore_interrupts(bool on)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    pthread_mutex_lock(&ignoring_lock);
    if (on && ignoring++ == 0) {
        sigaction(SIGINT, &ignore, &ignored_int);
        sigaction(SIGQUIT, &ignore, &ignored_quit);
    } else if (!on && --ignoring == 0) {
        sigaction(SIGINT, &ignored_int, NULL);
        sigaction(SIGQUIT, &ignored_quit, NULL);
    }
    pthread_mutex_unlock(&ignoring_lock);
}

struct command {
    kr_value words;
    struct spawn spawn;
    int status;
};

static kr_value run_command(struct kri_worker *w, void *arg)
{
    struct command *c = arg;
    run_words(w, c->words, &c->spawn);
    if (!c->spawn.error)
        c->spawn.error = wait_for(w, c->spawn.pid, &c->status);
    return KRI_NIL;
}

static void end_command(struct kri_worker *w, void *arg)
{
    (void)w;
    (void)arg;
    ignore_interrupts(false);
}

KR_BUILTIN(system, "unix:system", "(&optional (command \"/bin/sh\"))",
           "Run COMMAND by /bin/sh and wait; returns the raw wait status, or minus errno. It may be interrupted; the command goes on then.")
{
    const kr_value rest[2] = {kri_string(w, "-c"), argc > 0 ? kri_value_of(kri_arg_string(w, argv, 0)) : kri_string(w, "/bin/sh")};
    struct command c = {.words = command_words(w, kri_string(w, "/bin/sh"), rest, 2),
                        .spawn = {.fd = {-1, -1, -1}, .mine = true, .interrupts_default = true}};
    kri_stream_flush(w, kri_special(w, w->vm->sym.standard_output));
    ignore_interrupts(true);
    kri_unwind_protect(w, run_command, &c, end_command);
    return c.spawn.error ? kri_unix_error(c.spawn.error) : kri_fixnum(c.status);
}

/* ---- the end of the process ---- */

static int exit_code(kr_value v, int otherwise)
{
    if (kri_is_fixnum(v))
        return (int)kri_fixnum_value(v) & 255;
    return kri_is_nil(v) ? 1 : otherwise;
}

KR_BUILTIN(exit, "exit", "(&optional (code 0))", "End the process with exit code CODE modulo 256, whatever other threads do; output is flushed.")
{
    kri_streams_finish(w);
    fflush(NULL);
    _exit(argc > 0 ? exit_code(argv[0], 0) : 0);
}

KR_BUILTIN(exit_now, "unix::_exit", "(&optional (code 0))", "End the process with exit code CODE modulo 256; what streams hold is lost.")
{
    _exit(argc > 0 ? exit_code(argv[0], 0) : 0);
}

const struct kri_builtin *const kri_builtins_process[] = {
    &getenv_def, &putenv_def, &environment_def, &spawn_def, &exec_def, &vfork_def, &wait_def, &waitpid_def, &system_def, &exit_def,
    &exit_now_def, NULL};
