/* builtin_unix.c -- package UNIX: files and directories, the process, the machine, calendar time.
 *
 * As in EusLisp a function returns t or a result, and minus errno when the system refuses; errno itself is kept for unix:errno.
 * The calls are made outside the gate: a directory may lie on a slow disk, and a collection does not wait for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/load.h"
#include "lisp/stream.h"

extern char **environ;

/* The errno of this thread's last function of UNIX that failed. */
static _Thread_local int last_error;

struct call {
    int (*f)(struct call *c);
    const char *path, *other;
    long a, b;
    struct stat st;
    int result, error;
};

static void do_call(void *arg)
{
    struct call *c = arg;
    errno = 0;
    c->result = c->f(c);
    c->error = c->result < 0 ? errno : 0;
}

/* Make call C: 0, or minus errno. */
static int make_call(struct kri_worker *w, struct call *c)
{
    kri_blocking(w, do_call, c);
    if (c->error)
        last_error = c->error;
    return -c->error;
}

static kr_value call_result(struct kri_worker *w, struct call *c)
{
    int e = make_call(w, c);
    return e ? kri_fixnum(e) : w->vm->sym.t;
}

/* The answer of a call that gives a number >= 0. */
static kr_value number_result(struct kri_worker *w, struct call *c)
{
    int e = make_call(w, c);
    return kri_fixnum(e ? e : c->result);
}

static long int_argument(struct kri_worker *w, const kr_value *argv, int i)
{
    intptr_t n = kri_arg_fixnum(w, argv, i);
    if (n < INT32_MIN || n > UINT32_MAX)
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    return (long)n;
}

/* A file descriptor: a number, or that of a stream. */
static int descriptor(struct kri_worker *w, const kr_value *argv, int i)
{
    if (kri_is_fixnum(argv[i]))
        return (int)int_argument(w, argv, i);
    if (!kri_is_stream(w->vm, argv[i]))
        kri_argument_error(w, i, argv[i], KRI_E_NO_STREAM);
    return kri_stream_fd(w, argv[i], kri_is_input_stream(w->vm, argv[i]));
}

/* ---- files ---- */

static int do_access(struct call *c) { return access(c->path, (int)c->a); }
static int do_unlink(struct call *c) { return unlink(c->path); }
static int do_rmdir(struct call *c) { return rmdir(c->path); }
static int do_mkdir(struct call *c) { return mkdir(c->path, (mode_t)c->a); }
static int do_chmod(struct call *c) { return chmod(c->path, (mode_t)c->a); }
static int do_chown(struct call *c) { return chown(c->path, (uid_t)c->a, (gid_t)c->b); }
static int do_chdir(struct call *c) { return chdir(c->path); }
static int do_rename(struct call *c) { return rename(c->path, c->other); }
static int do_link(struct call *c) { return link(c->path, c->other); }
static int do_symlink(struct call *c) { return symlink(c->path, c->other); }
static int do_stat(struct call *c) { return stat(c->path, &c->st); }

static kr_value on_path(struct kri_worker *w, int (*f)(struct call *), kr_value name, long a, long b)
{
    kr_value path = kri_path_string(w, name);
    struct call c = {.f = f, .path = kri_path_text(path), .a = a, .b = b};
    return call_result(w, &c);
}

static kr_value on_paths(struct kri_worker *w, int (*f)(struct call *), kr_value from, kr_value to)
{
    kr_value path = kri_path_string(w, from), other = kri_path_string(w, to);
    struct call c = {.f = f, .path = kri_path_text(path), .other = kri_path_text(other)};
    return call_result(w, &c);
}

KR_BUILTIN(access, "unix:access", "(path &optional (mode 4))",
           "May this process use file PATH? MODE is a sum of 4 (read), 2 (write), 1 (execute), or 0 (it exists). t or minus errno.")
{
    return on_path(w, do_access, argv[0], argc > 1 ? int_argument(w, argv, 1) : R_OK, 0);
}

KR_BUILTIN(unlink, "unix:unlink", "(path)", "Remove file PATH; t or minus errno.") { return on_path(w, do_unlink, argv[0], 0, 0); }
KR_BUILTIN(rmdir, "unix:rmdir", "(path)", "Remove the empty directory PATH; t or minus errno.") { return on_path(w, do_rmdir, argv[0], 0, 0); }
KR_BUILTIN(chdir, "unix:chdir", "(path)", "Make PATH the current directory of this process; t or minus errno.")
{
    return on_path(w, do_chdir, argv[0], 0, 0);
}

KR_BUILTIN(mkdir, "unix:mkdir", "(path &optional (mode #o777))", "Make directory PATH with permissions MODE; t or minus errno.")
{
    return on_path(w, do_mkdir, argv[0], argc > 1 ? int_argument(w, argv, 1) : 0777, 0);
}

KR_BUILTIN(chmod, "unix:chmod", "(path mode)", "Give file PATH the permissions MODE; t or minus errno.")
{
    return on_path(w, do_chmod, argv[0], int_argument(w, argv, 1), 0);
}

KR_BUILTIN(chown, "unix:chown", "(path user group)", "Give file PATH to USER and GROUP, both numbers; t or minus errno.")
{
    return on_path(w, do_chown, argv[0], int_argument(w, argv, 1), int_argument(w, argv, 2));
}

KR_BUILTIN(rename, "unix:rename", "(from to)", "Give file FROM the name TO; t or minus errno.") { return on_paths(w, do_rename, argv[0], argv[1]); }
KR_BUILTIN(link, "unix:link", "(path new)", "Make NEW another name of file PATH; t or minus errno.") { return on_paths(w, do_link, argv[0], argv[1]); }
KR_BUILTIN(symlink, "unix:symlink", "(path new)", "Make NEW a symbolic link to PATH; t or minus errno.")
{
    return on_paths(w, do_symlink, argv[0], argv[1]);
}

KR_BUILTIN(stat, "unix:stat", "(path)",
           "What the system knows of file PATH: (mode inode device rdevice links user group size access-time modification-time "
           "change-time), times in seconds since 1970; or minus errno.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct call c = {.f = do_stat, .path = kri_path_text(path)};
    int e = make_call(w, &c);
    if (e)
        return kri_fixnum(e);
    const intptr_t field[] = {(intptr_t)c.st.st_mode, (intptr_t)c.st.st_ino,   (intptr_t)c.st.st_dev,   (intptr_t)c.st.st_rdev,
                              (intptr_t)c.st.st_nlink, (intptr_t)c.st.st_uid,  (intptr_t)c.st.st_gid,   (intptr_t)c.st.st_size,
                              (intptr_t)c.st.st_atime, (intptr_t)c.st.st_mtime, (intptr_t)c.st.st_ctime};
    kr_value list = KRI_NIL;
    for (size_t i = sizeof field / sizeof *field; i-- > 0;)
        list = kri_cons(w, kri_integer(w, field[i]), list);
    return list;
}

KR_BUILTIN(getwd, "unix:getwd", "()", "The current directory of this process, or minus errno.")
{
    char path[4096];
    if (getcwd(path, sizeof path))
        return kri_string(w, path);
    last_error = errno;
    return kri_fixnum(-last_error);
}

static int do_dup(struct call *c) { return dup((int)c->a); }
static int do_dup2(struct call *c) { return dup2((int)c->a, (int)c->b); }
static int do_close(struct call *c) { return close((int)c->a); }

KR_BUILTIN(isatty, "unix:isatty", "(stream-or-fd)", "t if STREAM-OR-FD leads to a terminal.")
{
    return kri_bool(w, isatty(descriptor(w, argv, 0)));
}

KR_BUILTIN(dup, "unix:dup", "(fd)", "Another file descriptor for what FD, a number or stream, refers to, or minus errno.")
{
    struct call c = {.f = do_dup, .a = descriptor(w, argv, 0)};
    return number_result(w, &c);
}

KR_BUILTIN(dup2, "unix:dup2", "(fd new-fd)", "Make file descriptor NEW-FD refer to what FD does; NEW-FD or minus errno.")
{
    struct call c = {.f = do_dup2, .a = descriptor(w, argv, 0), .b = descriptor(w, argv, 1)};
    return number_result(w, &c);
}

KR_BUILTIN(uclose, "unix:uclose", "(fd)", "Close file descriptor FD, a number; t or minus errno.")
{
    struct call c = {.f = do_close, .a = int_argument(w, argv, 0)};
    return call_result(w, &c);
}

KR_BUILTIN(lseek, "unix:lseek", "(stream position &optional (whence 0))",
           "Move the read and write position of STREAM, a number or stream: WHENCE 0 from the start, 1 from here, 2 from the end. The "
           "new position or minus errno.")
{
    int fd = descriptor(w, argv, 0);
    intptr_t position = kri_arg_fixnum(w, argv, 1);
    long whence = argc > 2 ? int_argument(w, argv, 2) : 0;
    static const int kind[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    if (whence < 0 || whence > 2)
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    if (!kri_is_fixnum(argv[0])) {
        if (kri_is_output_stream(w->vm, argv[0]))
            kri_stream_flush(w, argv[0]);
        if (kri_is_input_stream(w->vm, argv[0]))
            kri_stream_reset_input(w, argv[0]);
    }
    off_t at = lseek(fd, (off_t)position, kind[whence]);
    if (at < 0) {
        last_error = errno;
        return kri_fixnum(-last_error);
    }
    return kri_fixnum((intptr_t)at);
}

/* Read into memory of C's own: the gate may close while the call waits. */
struct raw {
    int fd, error;
    char bytes[65536];
    size_t n;
    ssize_t got;
};

static void do_read(void *arg)
{
    struct raw *r = arg;
    do
        r->got = read(r->fd, r->bytes, r->n);
    while (r->got < 0 && errno == EINTR);
    r->error = errno;
}

KR_BUILTIN(uread, "unix:uread", "(fd &optional buffer size)",
           "Read what there is, at most SIZE bytes, from FD, a number or stream, past any buffer. With a string BUFFER into that, and "
           "the number of bytes, 0 at the end, is returned; without (or with a number there, the size) a new string. Minus errno.")
{
    int fd = descriptor(w, argv, 0);
    bool into = argc > 1 && kri_is_string(w->vm, argv[1]);
    size_t limit = into ? kri_length(argv[1]) : 512;
    if (argc > 2)
        limit = (size_t)kri_arg_natural(w, argv, 2);
    else if (argc > 1 && !into)
        limit = (size_t)kri_arg_natural(w, argv, 1);
    if (into && limit > kri_length(argv[1]))
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    struct raw r = {.fd = fd, .n = limit < sizeof r.bytes ? limit : sizeof r.bytes};
    kri_blocking(w, do_read, &r);
    if (r.got < 0) {
        last_error = r.error;
        return kri_fixnum(-last_error);
    }
    if (!into)
        return kri_string_n(w, r.bytes, (size_t)r.got);
    memcpy(kri_string_of(argv[1])->byte, r.bytes, (size_t)r.got);
    return kri_fixnum((intptr_t)r.got);
}

/* ---- the process ---- */

KR_BUILTIN(getppid, "unix:getppid", "()", "The number of the process that started this one.") { return kri_fixnum(getppid()); }
KR_BUILTIN(getpgrp, "unix:getpgrp", "()", "The number of this process's group.") { return kri_fixnum(getpgrp()); }
KR_BUILTIN(getuid, "unix:getuid", "()", "The number of the user.") { return kri_fixnum((intptr_t)getuid()); }
KR_BUILTIN(geteuid, "unix:geteuid", "()", "The number of the user whose rights this process has.") { return kri_fixnum((intptr_t)geteuid()); }
KR_BUILTIN(getgid, "unix:getgid", "()", "The number of the user's group.") { return kri_fixnum((intptr_t)getgid()); }
KR_BUILTIN(getegid, "unix:getegid", "()", "The number of the group whose rights this process has.") { return kri_fixnum((intptr_t)getegid()); }

static int do_setuid(struct call *c) { return setuid((uid_t)c->a); }
static int do_setgid(struct call *c) { return setgid((gid_t)c->a); }
static int do_setpgrp(struct call *c) { return setpgid((pid_t)c->a, (pid_t)c->b); }
static int do_setpriority(struct call *c) { return setpriority((__priority_which_t)c->a, (id_t)c->b, c->result); }
static int do_kill(struct call *c) { return kill((pid_t)c->a, (int)c->b); }

KR_BUILTIN(setuid, "unix:setuid", "(user)", "Go on with the rights of USER, a number; t or minus errno.")
{
    struct call c = {.f = do_setuid, .a = int_argument(w, argv, 0)};
    return call_result(w, &c);
}

KR_BUILTIN(setgid, "unix:setgid", "(group)", "Go on with the rights of GROUP, a number; t or minus errno.")
{
    struct call c = {.f = do_setgid, .a = int_argument(w, argv, 0)};
    return call_result(w, &c);
}

KR_BUILTIN(setpgrp, "unix:setpgrp", "()", "Begin a process group of this process's own; t or minus errno.")
{
    struct call c = {.f = do_setpgrp};
    return call_result(w, &c);
}

KR_BUILTIN(getpriority, "unix:getpriority", "(which who)",
           "The scheduling priority (-20 to 19, lower goes first) of process (WHICH 0), group (1) or user (2) WHO; 0 is this one.")
{
    errno = 0;
    int n = getpriority((__priority_which_t)int_argument(w, argv, 0), (id_t)int_argument(w, argv, 1));
    if (n == -1 && errno) {
        last_error = errno;
        return kri_fixnum(-last_error);
    }
    return kri_fixnum(n);
}

KR_BUILTIN(setpriority, "unix:setpriority", "(which who priority)", "Set the scheduling priority that unix:getpriority tells; 0 or minus errno.")
{
    struct call c = {.f = do_setpriority, .a = int_argument(w, argv, 0), .b = int_argument(w, argv, 1), .result = (int)int_argument(w, argv, 2)};
    return number_result(w, &c);
}

KR_BUILTIN(kill, "unix:kill", "(pid signal)", "Send SIGNAL, a number, to process PID; t or minus errno.")
{
    struct call c = {.f = do_kill, .a = int_argument(w, argv, 0), .b = int_argument(w, argv, 1)};
    return call_result(w, &c);
}

KR_BUILTIN(errno, "unix:errno", "()", "The error number of this thread's last function of UNIX that failed, 0 if there was none.")
{
    return kri_fixnum(last_error);
}

KR_BUILTIN(syserrlist, "unix:syserrlist", "(errno)", "What error number ERRNO means, in words.")
{
    char buffer[128];
    return kri_string(w, strerror_r((int)int_argument(w, argv, 0), buffer, sizeof buffer));
}

KR_BUILTIN(perror, "unix:perror", "(message)", "Print MESSAGE and what unix:errno means on standard error. Returns t.")
{
    char buffer[128];
    struct kri_string *message = kri_arg_string(w, argv, 0);
    kr_value out = kri_special(w, w->vm->sym.error_output);
    kri_stream_write(w, out, (const char *)message->byte, kri_length(argv[0]));
    kri_stream_puts(w, out, ": ");
    kri_stream_puts(w, out, strerror_r(last_error, buffer, sizeof buffer));
    kri_stream_putc(w, out, '\n');
    return w->vm->sym.t;
}

KR_BUILTIN(environment, "unix:environ", "()", "The environment: a list of strings \"name=value\".")
{
    kr_value list = KRI_NIL;
    size_t n = 0;
    while (environ && environ[n])
        n++;
    while (n-- > 0)
        list = kri_cons(w, kri_string(w, environ[n]), list);
    return list;
}

/* ---- the machine ---- */

KR_BUILTIN(uname, "unix:uname", "()", "(system host release version machine) as uname(2) tells, strings.")
{
    struct utsname u;
    uname(&u);
    return kri_list(w, 5, kri_string(w, u.sysname), kri_string(w, u.nodename), kri_string(w, u.release), kri_string(w, u.version),
                    kri_string(w, u.machine));
}

KR_BUILTIN(gethostname, "unix:gethostname", "()", "The name of this machine.")
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return kri_string(w, name);
}

KR_BUILTIN(getpagesize, "unix:getpagesize", "()", "The size of a page of memory in bytes.") { return kri_fixnum(getpagesize()); }

/* ---- time ---- */

KR_BUILTIN(runtime, "unix:runtime", "()", "Processor time that this process has used, in clock ticks of 1/100 s.")
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return kri_fixnum((intptr_t)t.tv_sec * 100 + t.tv_nsec / 10000000);
}

KR_BUILTIN(ptimes, "unix:ptimes", "()", "(elapsed user system children's-user children's-system) in clock ticks of 1/100 s.")
{
    struct tms t;
    clock_t elapsed = times(&t);
    return kri_list(w, 5, kri_fixnum((intptr_t)elapsed), kri_fixnum((intptr_t)t.tms_utime), kri_fixnum((intptr_t)t.tms_stime),
                    kri_fixnum((intptr_t)t.tms_cutime), kri_fixnum((intptr_t)t.tms_cstime));
}

KR_BUILTIN(localtime, "unix:localtime", "(&optional seconds)",
           "The local calendar time, now or SECONDS after 1970, as a vector: second minute hour day month-1 year-1900 weekday (0 is "
           "Sunday) yearday summer-time (t or nil) (zone summer-zone).")
{
    time_t at = argc > 0 && !kri_is_nil(argv[0]) ? (time_t)kri_arg_fixnum(w, argv, 0) : time(NULL);
    struct tm t;
    if (!localtime_r(&at, &t))
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    const int field[] = {t.tm_sec, t.tm_min, t.tm_hour, t.tm_mday, t.tm_mon, t.tm_year, t.tm_wday, t.tm_yday};
    kr_value zones = kri_list(w, 2, kri_string(w, tzname[0]), kri_string(w, tzname[1]));
    kr_value v = kri_make_vector(w, 10);
    for (size_t i = 0; i < 8; i++)
        kri_store(w, kri_ptr(v), &kri_vector_of(v)->at[i], kri_fixnum(field[i]));
    kri_store(w, kri_ptr(v), &kri_vector_of(v)->at[8], kri_bool(w, t.tm_isdst > 0));
    kri_store(w, kri_ptr(v), &kri_vector_of(v)->at[9], zones);
    return v;
}

KR_BUILTIN(asctime, "unix:asctime", "(time)", "The calendar time TIME, a vector as unix:localtime gives, as a line of 25 characters.")
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    if (kri_element(w->vm, argv[0]) != KRI_ELEMENT_T || kri_length(argv[0]) < 7)
        kri_argument_error(w, 0, argv[0], KRI_E_NO_VECTOR);
    intptr_t field[7];
    for (size_t i = 0; i < 7; i++) {
        kr_value v = kri_slot(&kri_vector_of(argv[0])->at[i]);
        if (!kri_is_fixnum(v))
            kri_argument_error(w, 0, v, KRI_E_NO_INTEGER);
        field[i] = kri_fixnum_value(v);
    }
    if (field[4] < 0 || field[4] > 11 || field[6] < 0 || field[6] > 6)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    char line[160];
    snprintf(line, sizeof line, "%s %s %2ld %02ld:%02ld:%02ld %ld\n", days[field[6]], months[field[4]], (long)field[3], (long)field[2],
             (long)field[1], (long)field[0], (long)(1900 + field[5]));
    return kri_string(w, line);
}

const struct kri_builtin *const kri_builtins_unix[] = {
    &access_def, &unlink_def, &rmdir_def, &chdir_def, &mkdir_def, &chmod_def, &chown_def, &rename_def, &link_def, &symlink_def, &stat_def,
    &getwd_def, &isatty_def, &dup_def, &dup2_def, &uclose_def, &lseek_def, &uread_def, &getppid_def, &getpgrp_def, &getuid_def,
    &geteuid_def, &getgid_def, &getegid_def, &setuid_def, &setgid_def, &setpgrp_def, &getpriority_def, &setpriority_def, &kill_def,
    &errno_def, &syserrlist_def, &perror_def, &environment_def, &uname_def, &gethostname_def, &getpagesize_def, &runtime_def, &ptimes_def,
    &localtime_def, &asctime_def, NULL};
