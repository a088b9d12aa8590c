/* hostile.c -- a program that is denied everything calls all that there is, every function and method, with arguments of all kinds. The kernel
 * is the judge: a filter catches each system call that opens, changes, starts or connects something, does not let it happen, and says what
 * Lisp was calling. It runs in a child, so that what ends it is found out as well.
 *
 * Whatever a hole lets through, the filter stops: without it, and before it has shown that it works, nothing is attacked. The files in
 * the arguments are this test's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <time.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include "embed.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__) || !defined(__NR_seccomp)
#define JUDGED 0 /* the sanitizers open files of their own; elsewhere the handler does not know the registers */
#else
#define JUDGED 1
#endif

/* Shared with the parent. */
static struct progress {
    char now[300];     /* what Lisp is calling */
    int attacks, caught;
} *progress;

static const int forbidden[] = {
#ifdef __x86_64__
    __NR_open, __NR_creat, __NR_stat, __NR_lstat, __NR_access, __NR_readlink, __NR_unlink, __NR_rename, __NR_mkdir, __NR_rmdir, __NR_mknod, __NR_link, __NR_symlink,
    __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_getdents, __NR_dup2, __NR_pipe, __NR_fork, __NR_vfork, __NR_alarm,
#endif
    __NR_openat, __NR_newfstatat, __NR_statx, __NR_faccessat, __NR_readlinkat, __NR_unlinkat, __NR_renameat2, __NR_mkdirat, __NR_mknodat, __NR_linkat, __NR_symlinkat,
    __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_utimensat, __NR_truncate, __NR_ftruncate, __NR_chdir, __NR_fchdir, __NR_chroot, __NR_getcwd,
    __NR_getdents64, __NR_dup, __NR_dup3, __NR_fcntl, __NR_flock, __NR_pipe2, __NR_memfd_create, __NR_mount, __NR_umount2,
    __NR_socket, __NR_socketpair, __NR_connect, __NR_bind, __NR_listen, __NR_accept, __NR_accept4, __NR_sendto, __NR_sendmsg, __NR_recvfrom, __NR_recvmsg,
    __NR_shutdown, __NR_getsockname, __NR_getpeername, __NR_setsockopt, __NR_getsockopt,
    __NR_execve, __NR_execveat, __NR_clone, __NR_clone3, __NR_kill, __NR_tkill, __NR_ptrace, __NR_wait4, __NR_waitid,
    __NR_setuid, __NR_setgid, __NR_setpgid, __NR_setsid, __NR_setpriority, __NR_sched_setscheduler, __NR_sched_setaffinity, __NR_setrlimit, __NR_prlimit64,
    __NR_mlockall, __NR_rt_sigaction, __NR_setitimer, __NR_timer_create, __NR_umask, __NR_sethostname,
    __NR_shmget, __NR_shmat, __NR_shmctl, __NR_msgget, __NR_msgsnd, __NR_msgrcv, __NR_msgctl, __NR_semget, __NR_semop, __NR_semctl,
};

/* Files that the arguments name: one that is not there, one that is. */
static char directory[] = "/tmp/karakuri-test-XXXXXX", made[60], there[60];

static void say(const char *text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

/* The call was not made; it fails with EPERM. */
static void on_forbidden(int signal, siginfo_t *info, void *context)
{
    char number[40];
    (void)signal;
    snprintf(number, sizeof number, "\n  made system call %d\n", info->si_syscall);
    say(progress->now);
    say(number);
    progress->caught++;
#ifdef __x86_64__
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
    (void)context;
#endif
}

static void forbid(void)
{
    enum { N = sizeof forbidden / sizeof *forbidden };
    struct sock_filter program[N + 3];
    struct sigaction a = {.sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO | SA_NODEFER};
    program[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < N; i++)
        program[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)forbidden[i], (unsigned char)(N - i), 0);
    program[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog filter = {.len = N + 3, .filter = program};
    CHECK(sigaction(SIGSYS, &a, NULL) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

/* The filter says no, and notes it; else nothing is attacked. */
static void judge_works(void)
{
    int before = progress->caught;
    snprintf(progress->now, sizeof progress->now, "the test of the judge itself, which is to be caught 3 times");
    CHECK(open(made, O_WRONLY | O_CREAT, 0600) == -1 && errno == EPERM);
    CHECK(unlink(there) == -1 && errno == EPERM && kill(getpid(), 0) == -1 && errno == EPERM);
    CHECK(progress->caught == before + 3);
    progress->caught = before;
}

/* (note text): what is called next */
static kr_value note(kr_context *ctx, int argc, kr_value *argv, void *user)
{
    char *text;
    size_t n;
    (void)argc, (void)user;
    if (kr_to_bytes(ctx, argv[0], &text, &n) == KR_OK)
        snprintf(progress->now, sizeof progress->now, "%s", text);
    return argv[0];
}

static const char program[] =
    "(dolist (m '(\"common\" \"coordinates\" \"debugger\" \"foreign\" \"internals\" \"loop\" \"process\" \"profile\" \"selector\" \"socket\" \"structure\" \"url\"))"
    "  (or (lisp::%load-module m) (error m)))"
    "(require :json) (require :regex) (require :csv) (require :time) (require :base64) (require :queue) (require :argparse) (require :ffi)"
    "(defclass victim :super propertied-object :slots (a b))"
    "(setq pool (vector nil t 0 1 2 3 -1 5.5 *made* *there* \"true\" 'some-symbol (list *there* 1) #'list (make-string 16)"
    "                   (instance victim) (make-string-output-stream) *standard-output* *standard-input* :input '(1 . 2) (float-vector 1 2) file-stream 'user-function))"
    "(defun user-function (&rest l) l)"
    "(setq seed 1)"
    "(defun rnd (n) (setq seed (logand (+ (* seed 1103515245) 12345) #x7fffffffffff)) (mod (ash seed -16) n))"
    "(defun pick () (svref pool (rnd (length pool))))"
    "(defun picks (n) (let ((l nil)) (dotimes (i n l) (push (pick) l))))"
    "(setq skipped (quote (fail-allocations interrupted sigint-handler %forbid-allocation reset reploop rep1 %set-condition-classes install-error-handler %leave-attempt eustop start break read-entry rnd pick picks argument-lists attack-with note)))"
    "(setq functions nil)"
    "(dolist (p (list-all-packages)) (do-symbols (s p)"
    "  (if (and (fboundp s) (functionp (symbol-function s)) (not (member (symbol-name s) skipped :test #'(lambda (a b) (string= a (symbol-name b)))))) (pushnew s functions))))"
    "(setq functions (coerce (sort functions #'string< #'symbol-name) vector))"
    "(setq methods nil)"
    "(dolist (c (sys:list-all-classes)) (dolist (m (send c :methods)) (push (list c (if (consp m) (car m) m)) methods)))"
    "(setq methods (coerce methods vector))"
    "(defun argument-lists () (append (list nil) (mapcar #'list (coerce pool cons)) (mapcar #'picks '(2 2 2 2 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 3 4 4 4 5 6))))"
    "(defun attack-with (what function)"
    "  (dolist (args (argument-lists) t)"
    "    (note (format nil \"~s ~s\" what (mapcar #'class args)))"
    "    (catch :out (ignore-errors (apply function args)))))"
    "(defun attack (i) (attack-with (svref functions i) (svref functions i)))"
    "(defun attack-method (i)"
    "  (let* ((m (svref methods i)) (o (or (ignore-errors (instantiate (car m))) (car m))))"
    "    (attack-with m #'(lambda (&rest args) (apply #'send o (cadr m) args)))))"
    /* Streams, whose slots say what they are, filled with anything; then used. */
    "(defun attack-stream (i)"
    "  (dolist (s (list (instantiate file-stream) (instantiate io-stream) (instantiate broadcast-stream) (make-string-input-stream \"abc\") (copy-object *standard-output*)))"
    "    (dotimes (k 10)"
    "      (note (format nil \"slots of ~a\" (class s)))"
    "      (catch :out (ignore-errors (setslot s (class s) (rnd 8) (pick))))"
    "      (catch :out (ignore-errors (read-char s nil nil))) (catch :out (ignore-errors (write-byte 65 s)))"
    "      (catch :out (ignore-errors (finish-output s))) (catch :out (ignore-errors (close s)))))"
    "  t)";

/* One call of FUNCTION with I, for three tenths of a second at most. */
static void attack(kr_context *ctx, const char *function, int i)
{
    const kr_budget budget = {.time_ns = 300000000, .heap_bytes = 64 << 20};
    size_t scope = kr_scope_begin(ctx);
    kr_value argument = kr_integer(ctx, i), v;
    kr_budget_begin(ctx, &budget);
    kr_status s = kr_call(ctx, function, 1, &argument, &v);
    kr_exceeded e = kr_budget_end(ctx);
    if (s != KR_OK && e == KR_WITHIN_BUDGET) /* an interrupt, say; but the attacker must be there still */
        CHECK(must_integer(ctx, "(if (and (eq (funcall #'attack-with 1 #'list) t) (ignore-errors (argument-lists))) 3 4)") == 3);
    kr_scope_end(ctx, scope);
}

static void no_output(kr_output_stream which, const char *text, size_t n, void *user) { (void)which, (void)text, (void)n, (void)user; }
static size_t no_input(char *text, size_t n, void *user)
{
    (void)text, (void)n, (void)user;
    return 0;
}

/* All attacks from number FIRST on. */
static void attack_all(int first)
{
    const kr_config config = {.library = "lib", .heap_limit = 256 << 20, .stack_limit = 4 << 20, .hooks = {.output = no_output, .input = no_input}};
    const kr_budget any = {.time_ns = 1000000000};
    kr_vm *vm;
    kr_context *ctx = must_new(&config, &vm);
    kr_define(ctx, "note", "(text)", NULL, note, NULL);
    kr_set(ctx, "*made*", kr_string(ctx, made));
    kr_set(ctx, "*there*", kr_string(ctx, there));
    must(ctx, program);
    int functions = (int)must_integer(ctx, "(length functions)"), methods = (int)must_integer(ctx, "(length methods)"), streams = 20;
    CHECK(functions > 1000 && methods > 100);
    kr_budget_begin(ctx, &any); /* the watchdog, and what marks: threads that are Karakuri's own */
    kr_budget_end(ctx);
    kr_collect(ctx);
    kr_vm_deny(vm, KR_EVERYTHING);
    tzset(); /* libc reads a file for it, once */
    forbid();
    judge_works();
    for (int i = progress->attacks = first; i < streams + methods + functions; i = ++progress->attacks) {
        if (i < streams)
            attack(ctx, "attack-stream", i);
        else if (i < streams + methods)
            attack(ctx, "attack-method", i - streams);
        else
            attack(ctx, "attack", i - streams - methods);
    }
}

static bool same_file(void)
{
    char text[20] = "";
    FILE *f = fopen(there, "r");
    bool same = f && fgets(text, sizeof text, f) && strcmp(text, "untouched") == 0;
    if (f)
        fclose(f);
    return same;
}

int main(void)
{
    bool bad = false;
    if (!JUDGED) {
        puts("no filter of system calls in this build: nothing is attacked");
        return 0;
    }
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(progress != MAP_FAILED && mkdtemp(directory));
    snprintf(made, sizeof made, "%s/made", directory);
    snprintf(there, sizeof there, "%s/there", directory);
    FILE *f = fopen(there, "w");
    CHECK(f && fputs("untouched", f) >= 0 && fclose(f) == 0);
    for (int first = 0, status;; first = progress->attacks + 1) {
        pid_t child = fork();
        CHECK(child >= 0);
        progress->attacks = -1;
        if (child == 0) {
            attack_all(first);
            _exit(42);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 42)
            break;
        fprintf(stderr, "%s\n  ended the process, status %x\n", progress->now, (unsigned)status);
        bad = true;
        if (progress->attacks < first) /* it did not come to attacking */
            break;
    }
    bad |= progress->caught || !same_file() || access(made, F_OK) == 0;
    unlink(made);
    unlink(there);
    return rmdir(directory) != 0 || bad;
}
