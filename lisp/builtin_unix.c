/* builtin_unix.c -- package UNIX: files and directories, descriptors, the process, the machine, calendar time.
 *
 * As in EusLisp a function returns t or a result, and minus errno when the system refuses; but some return errno itself, or -1. errno
 * is kept for unix:errno in any case. The calls are made outside the gate: a directory may lie on a slow disk, and a collection
 * does not wait for it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/load.h"
#include "lisp/stream.h"
#include "lisp/unix.h"

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

static int make_call(struct kri_worker *w, struct call *c)
{
    kri_blocking(w, do_call, c);
    return c->error;
}

/* The answers of EusLisp's functions: t, or on failure minus errno; or errno; or a number, or on failure -1. */
static kr_value call_result(struct kri_worker *w, struct call *c)
{
    int e = make_call(w, c);
    return e ? kri_unix_error(e) : w->vm->sym.t;
}

static kr_value plain_result(struct kri_worker *w, struct call *c)
{
    int e = make_call(w, c);
    if (e == 0)
        return w->vm->sym.t;
    kri_unix_error(e);
    return kri_fixnum(e);
}

static kr_value number_result(struct kri_worker *w, struct call *c)
{
    int e = make_call(w, c);
    return e ? kri_unix_minus_one(e) : kri_fixnum(c->result);
}

/* ---- files ---- */

static int do_access(struct call *c) { return access(c->path, (int)c->a); }
static int do_unlink(struct call *c) { return unlink(c->path); }
static int do_rmdir(struct call *c) { return rmdir(c->path); }
static int do_mkdir(struct call *c) { return mkdir(c->path, (mode_t)c->a); }
static int do_chmod(struct call *c) { return chmod(c->path, (mode_t)c->a); }
static int do_chown(struct call *c) { return chown(c->path, (uid_t)c->a, (gid_t)c->b); }
static int do_mknod(struct call *c) { return mknod(c->path, (mode_t)c->a, (dev_t)c->b); }
static int do_chdir(struct call *c) { return chdir(c->path); }
static int do_rename(struct call *c) { return rename(c->path, c->other); }
static int do_link(struct call *c) { return link(c->path, c->other); }
static int do_symlink(struct call *c) { return symlink(c->path, c->other); }
static int do_stat(struct call *c) { return stat(c->path, &c->st); }

static kr_value on_path(struct kri_worker *w, int (*f)(struct call *), kr_value name, long a)
{
    kr_value path = kri_path_string(w, name);
    struct call c = {.f = f, .path = kri_path_text(path), .a = a};
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
    return on_path(w, do_access, argv[0], argc > 1 ? kri_arg_int(w, argv, 1) : R_OK);
}

KR_BUILTIN(unlink, "unix:unlink", "(path)", "Remove file PATH; t or minus errno.") { return on_path(w, do_unlink, argv[0], 0); }
KR_BUILTIN(rmdir, "unix:rmdir", "(path)", "Remove the empty directory PATH; t or minus errno.") { return on_path(w, do_rmdir, argv[0], 0); }
KR_BUILTIN(chdir, "unix:chdir", "(path)", "Make PATH the current directory of this process; t or minus errno.")
{
    return on_path(w, do_chdir, argv[0], 0);
}

KR_BUILTIN(mkdir, "unix:mkdir", "(path &optional (mode #o777))", "Make directory PATH with permissions MODE; t or minus errno.")
{
    return on_path(w, do_mkdir, argv[0], argc > 1 ? kri_arg_int(w, argv, 1) : 0777);
}

KR_BUILTIN(chmod, "unix:chmod", "(path mode)", "Give file PATH the permissions MODE; t, or errno.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct call c = {.f = do_chmod, .path = kri_path_text(path), .a = kri_arg_int(w, argv, 1)};
    return plain_result(w, &c);
}

KR_BUILTIN(chown, "unix:chown", "(path user group)", "Give file PATH to USER and GROUP, both numbers; t, or errno.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct call c = {.f = do_chown, .path = kri_path_text(path), .a = kri_arg_int(w, argv, 1), .b = kri_arg_int(w, argv, 2)};
    return plain_result(w, &c);
}

KR_BUILTIN(mknod, "unix:mknod", "(path mode &optional (device 0))",
           "Make PATH a file of the type and permissions MODE: #o100000 plain, #o10000 a fifo, #o20000 and #o60000 the device number DEVICE. t or "
           "minus errno.")
{
    kr_value path = kri_path_string(w, argv[0]);
    struct call c = {.f = do_mknod, .path = kri_path_text(path), .a = kri_arg_int(w, argv, 1), .b = argc > 2 ? kri_arg_int(w, argv, 2) : 0};
    return call_result(w, &c);
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
        return kri_unix_error(e);
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
    return kri_unix_error(errno);
}

/* The entries of a directory, gathered in memory of C's own. */
struct entries {
    const char *path;
    char *names; /* each with its zero byte; malloc'ed */
    size_t n, size;
    int error;
};

static bool add_entry(struct entries *e, const char *name)
{
    size_t length = strlen(name) + 1;
    if (e->n + length > e->size) {
        size_t size = 2 * (e->n + length) + 4000;
        char *more = realloc(e->names, size);
        if (!more)
            return false;
        e->names = more;
        e->size = size;
    }
    memcpy(e->names + e->n, name, length);
    e->n += length;
    return true;
}

static void read_entries(void *arg)
{
    struct entries *e = arg;
    DIR *d = opendir(e->path);
    e->error = d ? 0 : errno;
    for (struct dirent *entry; d && !e->error && (entry = readdir(d));)
        if (!add_entry(e, entry->d_name))
            e->error = ENOMEM;
    if (d)
        closedir(d);
}

KR_BUILTIN(readdir, "unix::readdir", "(&optional (directory \".\"))",
           "The names of all that is in DIRECTORY, \".\" and \"..\" included, in the system's order; or minus errno.")
{
    kr_value path = argc > 0 ? kri_path_string(w, argv[0]) : kri_string(w, ".");
    struct entries e = {.path = kri_path_text(path)};
    kri_blocking(w, read_entries, &e);
    if (e.error) {
        free(e.names);
        return kri_unix_error(e.error);
    }
    kr_value all = kri_value_of(kri_alloc_raw(w, KRI_CLASS_BYTES, 0, e.n / 8 + 1)), list = KRI_NIL;
    if (all.w)
        memcpy(kri_string_of(all)->byte, e.names, e.n);
    free(e.names);
    if (!all.w)
        kri_error_memory(w, e.n);
    const char *names = (const char *)kri_string_of(all)->byte;
    for (size_t end = e.n; end > 0;) {
        size_t start = end - 1;
        while (start > 0 && names[start - 1])
            start--;
        list = kri_cons(w, kri_string_n(w, names + start, end - 1 - start), list);
        end = start;
    }
    return list;
}

/* ---- descriptors ---- */

static int do_dup(struct call *c) { return dup((int)c->a); }
static int do_dup2(struct call *c) { return dup2((int)c->a, (int)c->b); }
static int do_close(struct call *c) { return close((int)c->a); }

KR_BUILTIN(isatty, "unix:isatty", "(stream-or-fd)", "t if STREAM-OR-FD leads to a terminal.")
{
    return kri_bool(w, isatty(kri_arg_descriptor(w, argv, 0, true)));
}

KR_BUILTIN(dup, "unix:dup", "(fd)", "Another file descriptor for what FD, a number or stream, refers to, or -1.")
{
    struct call c = {.f = do_dup, .a = kri_arg_descriptor(w, argv, 0, true)};
    return number_result(w, &c);
}

KR_BUILTIN(dup2, "unix:dup2", "(fd new-fd)", "Make file descriptor NEW-FD refer to what FD does; NEW-FD or -1.")
{
    struct call c = {.f = do_dup2, .a = kri_arg_descriptor(w, argv, 0, true), .b = kri_arg_descriptor(w, argv, 1, true)};
    return number_result(w, &c);
}

KR_BUILTIN(uclose, "unix:uclose", "(fd)", "Close file descriptor FD, a number; t, or errno.")
{
    struct call c = {.f = do_close, .a = kri_arg_int(w, argv, 0)};
    return plain_result(w, &c);
}

KR_BUILTIN(lseek, "unix:lseek", "(stream position &optional (whence 0))",
           "Move the read and write position of STREAM, a number or stream: WHENCE 0 from the start, 1 from here, 2 from the end. The "
           "new position or -1.")
{
    static const int kind[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    int fd = kri_arg_descriptor(w, argv, 0, true);
    intptr_t position = kri_arg_fixnum(w, argv, 1);
    long whence = argc > 2 ? kri_arg_int(w, argv, 2) : 0;
    if (whence < 0 || whence > 2)
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    if (!kri_is_fixnum(argv[0])) {
        if (kri_is_output_stream(w->vm, argv[0]))
            kri_stream_flush(w, argv[0]);
        if (kri_is_input_stream(w->vm, argv[0]))
            kri_stream_reset_input(w, argv[0]);
    }
    off_t at = lseek(fd, (off_t)position, kind[whence]);
    return at < 0 ? kri_unix_minus_one(errno) : kri_integer(w, (intptr_t)at);
}

/* Bytes on their way between a descriptor and Lisp, in memory of C's own: the gate may close while the call waits. */
struct raw {
    int fd;
    size_t n;
    ssize_t done;
    char bytes[65536];
};

static int try_read(void *arg)
{
    struct raw *r = arg;
    r->done = read(r->fd, r->bytes, r->n);
    return r->done < 0 ? errno : 0;
}

static int try_write(void *arg)
{
    struct raw *r = arg;
    r->done = kri_write_quietly(r->fd, r->bytes, r->n);
    return r->done < 0 ? errno : 0;
}

/* (uread stream): into the buffer of the stream, past what is unread there. */
static kr_value read_into_stream(struct kri_worker *w, kr_value stream)
{
    int error = 0;
    size_t n = kri_stream_fill(w, stream, &error);
    return error ? kri_unix_error(error) : kri_fixnum((intptr_t)n);
}

KR_BUILTIN(uread, "unix:uread", "(fd &optional buffer size (offset 0))",
           "Read what there is, at least one byte unless the end has come, from FD. With a string BUFFER: at most SIZE bytes (by default as "
           "many as fit) into that from OFFSET on, past the buffer of FD if that is a stream. Without: into the buffer of the stream FD, where "
           "read-char finds them. Returns how many bytes there were, 0 at the end; or minus errno.")
{
    bool stream = !kri_is_fixnum(argv[0]) && kri_is_stream(w->vm, argv[0]);
    if (stream && (argc < 2 || !kri_is_string(w->vm, argv[1])))
        return read_into_stream(w, argv[0]);
    int fd = kri_arg_descriptor(w, argv, 0, true);
    size_t room, offset = argc > 3 ? (size_t)kri_arg_natural(w, argv, 3) : 0;
    if (argc < 2)
        kri_argument_error(w, 0, argv[0], KRI_E_NO_STRING); /* as EusLisp: it is the buffer that is missing */
    kri_arg_bytes(w, argv, 1, &room);
    if (offset > room)
        kri_argument_error(w, 3, argv[3], KRI_E_ARRAY_INDEX);
    size_t limit = argc > 2 && !kri_is_nil(argv[2]) ? (size_t)kri_arg_natural(w, argv, 2) : room - offset;
    if (limit > room - offset)
        kri_argument_error(w, 2, argv[2], KRI_E_ARRAY_INDEX);
    struct raw r;
    r.fd = fd;
    r.n = limit < sizeof r.bytes ? limit : sizeof r.bytes;
    if (r.n > 0)
        kri_wait_descriptor(w, fd, POLLIN, INT64_MAX);
    int error = kri_unix_try(w, try_read, &r, fd, POLLIN);
    if (error)
        return kri_unix_error(error);
    unsigned char *to = kri_arg_bytes(w, argv, 1, &room);
    memcpy(to + offset, r.bytes, (size_t)r.done);
    return kri_fixnum((intptr_t)r.done);
}

KR_BUILTIN(write, "unix:write", "(fd string &optional size)",
           "Write STRING, or its first SIZE bytes, to FD, a number or stream, past any buffer. Returns how many bytes were written, or -1.")
{
    size_t length, done = 0;
    int fd = kri_arg_descriptor(w, argv, 0, false);
    kri_arg_bytes(w, argv, 1, &length);
    if (argc > 2 && !kri_is_nil(argv[2]) && (size_t)kri_arg_natural(w, argv, 2) < length)
        length = (size_t)kri_arg_natural(w, argv, 2);
    if (!kri_is_fixnum(argv[0]) && kri_is_stream(w->vm, argv[0]))
        kri_stream_flush(w, argv[0]);
    do {
        struct raw r;
        size_t now;
        unsigned char *from = kri_arg_bytes(w, argv, 1, &now);
        r.fd = fd;
        r.n = length - done < sizeof r.bytes ? length - done : sizeof r.bytes;
        memcpy(r.bytes, from + done, r.n);
        kri_wait_descriptor(w, fd, POLLOUT, INT64_MAX);
        int error = kri_unix_try(w, try_write, &r, fd, POLLOUT);
        if (error)
            return done > 0 ? kri_fixnum((intptr_t)done) : kri_unix_minus_one(error);
        done += (size_t)r.done;
    } while (done < length);
    return kri_fixnum((intptr_t)done);
}

KR_BUILTIN(pipe, "unix:pipe", "(&optional (size 128))",
           "A new pipe as an io-stream: what is written comes out where it is read. SIZE: of the buffers. Programs that are run do not inherit "
           "it. Minus errno if the system has no more.")
{
    size_t size = argc > 0 ? (size_t)kri_arg_natural(w, argv, 0) : 128;
    int fd[2];
    if (size > 1 << 28)
        kri_argument_error(w, 0, argv[0], KRI_E_RANGE);
    if (pipe2(fd, O_CLOEXEC) != 0)
        return kri_unix_error(errno);
    return kri_make_two_way_fd(w, fd[0], fd[1], KRI_NIL, size);
}

/* Lock commands as lockf(3) has them; waiting for a lock is trying for it. */
static int do_lockf(void *arg)
{
    struct call *c = arg;
    bool waits = c->a == F_LOCK;
    int error = lockf((int)c->b, waits ? F_TLOCK : (int)c->a, (off_t)c->result) == 0 ? 0 : errno;
    bool taken = error == EAGAIN || error == EACCES;
    return taken ? (waits ? EAGAIN : EACCES) : error;
}

KR_BUILTIN(lockf, "unix::lockf", "(fd command &optional (size 0))",
           "Lock the part of file FD, a number or stream, that begins at its position and has SIZE bytes (0: up to the end) against other "
           "processes: COMMAND 1 waits for the lock, 2 tries, 0 gives it up, 3 asks. 0, or -1.")
{
    struct call c = {.a = kri_arg_int(w, argv, 1), .b = kri_arg_descriptor(w, argv, 0, false), .result = argc > 2 ? kri_arg_int(w, argv, 2) : 0};
    int error = kri_unix_try(w, do_lockf, &c, -1, 0);
    return error ? kri_unix_minus_one(error) : kri_fixnum(0);
}

/* What the third argument of fcntl(2) is; a command that is not here is refused, since it might take an address. */
static bool command_takes_number(int command)
{
    static const int known[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_SETOWN, F_GETOWN, F_SETSIG, F_GETSIG,
                                F_SETLEASE, F_GETLEASE, F_NOTIFY, F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == command)
            return true;
    return false;
}

static bool command_takes_lock(int command)
{
    return command == F_GETLK || command == F_SETLK || command == F_SETLKW || command == F_OFD_GETLK || command == F_OFD_SETLK ||
           command == F_OFD_SETLKW;
}

struct control {
    int fd, command, result;
    bool waits;
    struct flock lock;
};

static int do_lock_control(void *arg)
{
    struct control *c = arg;
    c->result = fcntl(c->fd, c->command, &c->lock);
    int error = c->result < 0 ? errno : 0;
    bool busy = error == EAGAIN || error == EACCES;
    return busy ? (c->waits ? EAGAIN : EACCES) : error;
}

static kr_value lock_control(struct kri_worker *w, int fd, int command, kr_value *argv)
{
    struct control c = {.fd = fd, .command = command, .waits = command == F_SETLKW || command == F_OFD_SETLKW};
    size_t n;
    unsigned char *bytes = kri_arg_bytes(w, argv, 2, &n);
    if (n < sizeof c.lock)
        kri_argument_error(w, 2, argv[2], KRI_E_ARRAY_INDEX);
    if (c.waits)
        c.command = command == F_SETLKW ? F_SETLK : F_OFD_SETLK;
    memcpy(&c.lock, bytes, sizeof c.lock);
    int error = kri_unix_try(w, do_lock_control, &c, -1, 0);
    memcpy(kri_arg_bytes(w, argv, 2, &n), &c.lock, sizeof c.lock);
    return error ? kri_unix_minus_one(error) : kri_fixnum(c.result);
}

KR_BUILTIN(fcntl, "unix:fcntl", "(fd command argument)",
           "Ask or change what descriptor FD, a number or stream, is: COMMAND and ARGUMENT as fcntl(2) has them, ARGUMENT an integer, or for "
           "record locks a string that holds a struct flock. The result, or -1.")
{
    int fd = kri_arg_descriptor(w, argv, 0, true), command = kri_arg_int(w, argv, 1);
    if (command_takes_lock(command))
        return lock_control(w, fd, command, argv);
    if (!command_takes_number(command))
        return kri_unix_minus_one(EINVAL);
    int result = fcntl(fd, command, kri_arg_int(w, argv, 2));
    return result < 0 ? kri_unix_minus_one(errno) : kri_fixnum(result);
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

KR_BUILTIN(setuid, "unix:setuid", "(user)", "Go on with the rights of USER, a number; t, or errno.")
{
    struct call c = {.f = do_setuid, .a = kri_arg_int(w, argv, 0)};
    return plain_result(w, &c);
}

KR_BUILTIN(setgid, "unix:setgid", "(group)", "Go on with the rights of GROUP, a number; t, or errno.")
{
    struct call c = {.f = do_setgid, .a = kri_arg_int(w, argv, 0)};
    return plain_result(w, &c);
}

KR_BUILTIN(setpgrp, "unix:setpgrp", "()", "Begin a process group of this process's own; 0 or -1.")
{
    struct call c = {.f = do_setpgrp};
    return number_result(w, &c);
}

KR_BUILTIN(getpriority, "unix:getpriority", "(which who)",
           "The scheduling priority (-20 to 19, lower goes first) of process (WHICH 0), group (1) or user (2) WHO; 0 is this one.")
{
    errno = 0;
    int n = getpriority((__priority_which_t)kri_arg_int(w, argv, 0), (id_t)kri_arg_int(w, argv, 1));
    return n == -1 && errno ? kri_unix_minus_one(errno) : kri_fixnum(n);
}

KR_BUILTIN(setpriority, "unix:setpriority", "(which who priority)", "Set the scheduling priority that unix:getpriority tells; 0 or -1.")
{
    struct call c = {.f = do_setpriority, .a = kri_arg_int(w, argv, 0), .b = kri_arg_int(w, argv, 1), .result = (int)kri_arg_int(w, argv, 2)};
    return number_result(w, &c);
}

KR_BUILTIN(kill, "unix:kill", "(pid signal)", "Send SIGNAL, a number, to process PID; 0 or -1.")
{
    struct call c = {.f = do_kill, .a = kri_arg_int(w, argv, 0), .b = kri_arg_int(w, argv, 1)};
    return number_result(w, &c);
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
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER_VECTOR);
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
    &access_def, &unlink_def, &rmdir_def, &chdir_def, &mkdir_def, &chmod_def, &chown_def, &mknod_def, &rename_def, &link_def, &symlink_def, &stat_def,
    &getwd_def, &readdir_def, &isatty_def, &dup_def, &dup2_def, &uclose_def, &lseek_def, &uread_def, &write_def, &pipe_def, &lockf_def, &fcntl_def, &getppid_def, &getpgrp_def, &getuid_def,
    &geteuid_def, &getgid_def, &getegid_def, &setuid_def, &setgid_def, &setpgrp_def, &getpriority_def, &setpriority_def, &kill_def,
    &uname_def, &gethostname_def, &getpagesize_def, &runtime_def, &ptimes_def,
    &localtime_def, &asctime_def, NULL};
