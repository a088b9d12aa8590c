/* builtin_ipc.c -- System V's message queues, semaphores and shared memory; files in memory; memory of C's.
 *
 * Memory that Lisp sees through a foreign string stays readable and writable for ever: what is given back (munmap, shmdt) becomes
 * zeros at the same place, so a string that is still there harms nobody. A mapping that may not be written is a private one: what Lisp
 * writes there stays in this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/unix.h"

/* ---- message queues ---- */

struct message {
    int queue, flags;
    long type;
    size_t n;
    ssize_t done;
    struct msgbuf *text; /* malloc'ed, room for n bytes */
};

static int do_msgsnd(void *arg)
{
    struct message *m = arg;
    return msgsnd(m->queue, m->text, m->n, m->flags | IPC_NOWAIT) == 0 ? 0 : errno;
}

static int do_msgrcv(void *arg)
{
    struct message *m = arg;
    m->done = msgrcv(m->queue, m->text, m->n, m->type, m->flags | IPC_NOWAIT);
    return m->done >= 0 ? 0 : errno == ENOMSG ? EAGAIN : errno;
}

struct transfer {
    struct message m;
    int (*f)(void *arg);
    int error;
};

static kr_value run_transfer(struct kri_worker *w, void *arg)
{
    struct transfer *t = arg;
    if (t->m.flags & IPC_NOWAIT)
        t->error = t->f(&t->m);
    else
        t->error = kri_unix_try(w, t->f, &t->m, -1, 0);
    return KRI_NIL;
}

/* Kept for a thread that is interrupted while it waits: its message is freed. */
static void end_transfer(struct kri_worker *w, void *arg)
{
    (void)w;
    struct transfer *t = arg;
    if (t->error < 0) {
        free(t->m.text);
        t->m.text = NULL;
    }
}

/* Send or receive; an errno or 0. After that the message is the caller's to free. */
static int transfer_message(struct kri_worker *w, struct transfer *t)
{
    t->error = -1;
    kri_unwind_protect(w, run_transfer, t, end_transfer);
    return t->error;
}

/* A flag argument: an integer as it is; another true value means not to wait. */
static int flag_argument(struct kri_worker *w, int argc, const kr_value *argv, int i)
{
    if (argc <= i || kri_is_nil(argv[i]))
        return 0;
    return kri_is_fixnum(argv[i]) ? kri_arg_int(w, argv, i) : IPC_NOWAIT;
}

static struct msgbuf *message_room(struct kri_worker *w, size_t n)
{
    struct msgbuf *text = malloc(sizeof(long) + n + 1);
    if (!text)
        kri_error_memory(w, n);
    return text;
}

KR_BUILTIN(msgget, "unix:msgget", "(key &optional (mode #o1666))",
           "The number of the message queue KEY, made if need be; 0 is a new one. MODE: its permissions, and #o2000 (only if it is "
           "not there). Minus errno.")
{
    int key = kri_arg_int(w, argv, 0), mode = argc > 1 ? kri_arg_int(w, argv, 1) : IPC_CREAT | 0666;
    return kri_unix_result(msgget(key, mode | IPC_CREAT), errno);
}

KR_BUILTIN(msgsnd, "unix:msgsnd", "(queue message &optional size type flag)",
           "Put the first SIZE bytes of the string MESSAGE, by default all, into QUEUE as a message of TYPE, an integer above 0, by default this "
           "process's number. A full queue is waited for unless FLAG is true. 0 or minus errno.")
{
    struct transfer t = {.m = {.queue = kri_arg_int(w, argv, 0)}, .f = do_msgsnd};
    size_t length;
    kri_arg_bytes(w, argv, 1, &length);
    t.m.n = argc > 2 && !kri_is_nil(argv[2]) ? (size_t)kri_arg_natural(w, argv, 2) : length;
    intptr_t type = argc > 3 && !kri_is_nil(argv[3]) ? kri_arg_natural(w, argv, 3) : getpid();
    t.m.flags = flag_argument(w, argc, argv, 4);
    if (t.m.n > length)
        kri_argument_error(w, 2, argv[2], KRI_E_ARRAY_INDEX);
    t.m.text = message_room(w, t.m.n);
    t.m.text->mtype = type;
    memcpy(t.m.text->mtext, kri_arg_bytes(w, argv, 1, &length), t.m.n);
    int error = transfer_message(w, &t);
    free(t.m.text);
    return error ? kri_unix_error(error) : kri_fixnum(0);
}

KR_BUILTIN(msgrcv, "unix:msgrcv", "(queue buffer &optional (type 0) flag)",
           "Take the first message of TYPE (0: of any) from QUEUE into the string BUFFER: (type size). It is waited for unless FLAG is true. Minus "
           "errno on failure, -7 if the message has more bytes than BUFFER.")
{
    struct transfer t = {.m = {.queue = kri_arg_int(w, argv, 0)}, .f = do_msgrcv};
    kri_arg_bytes(w, argv, 1, &t.m.n);
    t.m.type = argc > 2 && !kri_is_nil(argv[2]) ? (long)kri_arg_fixnum(w, argv, 2) : 0;
    t.m.flags = flag_argument(w, argc, argv, 3) & ~MSG_COPY;
    t.m.text = message_room(w, t.m.n);
    int error = transfer_message(w, &t);
    size_t n;
    if (!error)
        memcpy(kri_arg_bytes(w, argv, 1, &n), t.m.text->mtext, (size_t)t.m.done);
    long type = error ? 0 : t.m.text->mtype;
    free(t.m.text);
    if (error)
        return kri_unix_error(error == EAGAIN ? ENOMSG : error);
    return kri_list(w, 2, kri_integer(w, type), kri_fixnum((intptr_t)t.m.done));
}

/* A control command whose answer or setting, SIZE bytes, lies in the string of argument I. NULL if none is given: it is not needed. */
static unsigned char *control_buffer(struct kri_worker *w, int argc, const kr_value *argv, int i, size_t size)
{
    size_t n;
    if (argc <= i || kri_is_nil(argv[i]))
        return NULL;
    unsigned char *bytes = kri_arg_bytes(w, argv, i, &n);
    if (n < size)
        kri_argument_error(w, i, argv[i], KRI_E_ARRAY_SIZE);
    return bytes;
}

KR_BUILTIN(msgctl, "unix:msgctl", "(queue command &optional buffer)",
           "COMMAND 0 removes QUEUE, 2 puts what is known of it (a struct msqid_ds) into the string BUFFER, 1 sets it from there. t or minus errno.")
{
    struct msqid_ds ds = {0};
    int queue = kri_arg_int(w, argv, 0), command = kri_arg_int(w, argv, 1);
    unsigned char *buffer = command == IPC_RMID ? NULL : control_buffer(w, argc, argv, 2, sizeof ds);
    if (command != IPC_RMID && command != IPC_STAT && command != IPC_SET)
        return kri_unix_error(EINVAL);
    if (command == IPC_SET && !buffer)
        kri_argument_error(w, 1, argv[1], KRI_E_NO_STRING);
    if (buffer)
        memcpy(&ds, buffer, sizeof ds);
    if (msgctl(queue, command, &ds) < 0)
        return kri_unix_error(errno);
    if (buffer && command == IPC_STAT)
        memcpy(buffer, &ds, sizeof ds);
    return w->vm->sym.t;
}

/* ---- semaphores ---- */

KR_BUILTIN(semget, "unix:semget", "(key count &optional (mode #o1666))",
           "The number of the set of COUNT semaphores KEY, made if need be, as unix:msgget does. Minus errno.")
{
    int key = kri_arg_int(w, argv, 0), count = kri_arg_int(w, argv, 1), mode = argc > 2 ? kri_arg_int(w, argv, 2) : IPC_CREAT | 0666;
    return kri_unix_result(semget(key, count, mode), errno);
}

struct operation {
    int set;
    struct sembuf change;
};

static int do_semop(void *arg)
{
    struct operation *o = arg;
    struct sembuf change = o->change;
    change.sem_flg |= IPC_NOWAIT;
    return semop(o->set, &change, 1) == 0 ? 0 : errno;
}

KR_BUILTIN(semop, "unix:semop", "(set index change &optional flag)",
           "Add CHANGE to the semaphore INDEX of SET, waiting until the sum is not below 0; CHANGE 0 waits until it is 0. With FLAG true it is "
           "tried only; an integer FLAG holds IPC_NOWAIT (#o4000) and SEM_UNDO (#o10000). 0 or minus errno.")
{
    intptr_t change = kri_arg_fixnum(w, argv, 2), index = kri_arg_natural(w, argv, 1);
    int flags = flag_argument(w, argc, argv, 3);
    if (change < INT16_MIN || change > INT16_MAX || index > UINT16_MAX)
        kri_argument_error(w, index > UINT16_MAX ? 1 : 2, argv[index > UINT16_MAX ? 1 : 2], KRI_E_RANGE);
    struct operation o = {kri_arg_int(w, argv, 0), {(unsigned short)index, (short)change, (short)(flags & SEM_UNDO)}};
    int error = flags & IPC_NOWAIT ? do_semop(&o) : kri_unix_try(w, do_semop, &o, -1, 0);
    return error ? kri_unix_error(error) : kri_fixnum(0);
}

KR_BUILTIN(semctl, "unix:semctl", "(set index command &optional value)",
           "COMMAND 0 removes the set, 12 tells the value of semaphore INDEX, 16 makes it VALUE, 14 and 15 tell how many wait for it to grow and to be "
           "0, 11 who changed it last. The result, 0, or minus errno.")
{
    union semun {
        int value;
        struct semid_ds *ds;
    } u = {.value = argc > 3 ? kri_arg_int(w, argv, 3) : 0};
    int command = kri_arg_int(w, argv, 2);
    if (command != IPC_RMID && command != GETVAL && command != SETVAL && command != GETNCNT && command != GETZCNT && command != GETPID)
        return kri_unix_error(EINVAL);
    int result = semctl(kri_arg_int(w, argv, 0), kri_arg_int(w, argv, 1), command, u);
    return kri_unix_result(result, errno);
}

/* ---- memory: what is mapped, and what Lisp got from malloc ---- */

struct region {
    void *address;
    size_t length;
};

static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next four; a leaf */
static struct region *regions;
static size_t region_count, region_size;

static bool region_add_locked(void *address, size_t length)
{
    if (region_count == region_size) {
        size_t size = region_size ? 2 * region_size : 16;
        struct region *more = realloc(regions, size * sizeof *more);
        if (!more)
            return false;
        regions = more;
        region_size = size;
    }
    regions[region_count++] = (struct region){address, length};
    return true;
}

static bool region_add(void *address, size_t length)
{
    pthread_mutex_lock(&regions_lock);
    bool done = region_add_locked(address, length);
    pthread_mutex_unlock(&regions_lock);
    return done;
}

/* Take out the region that begins at ADDRESS; its length, or 0. */
static size_t region_take(const void *address)
{
    size_t length = 0;
    pthread_mutex_lock(&regions_lock);
    for (size_t i = 0; i < region_count && !length; i++)
        if (regions[i].address == address) {
            length = regions[i].length;
            regions[i] = regions[--region_count];
        }
    pthread_mutex_unlock(&regions_lock);
    return length;
}

/* Give the memory back, but keep its place: zeros from now on. */
static int blank(void *address, size_t length)
{
    return mmap(address, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED ? errno : 0;
}

static kr_value foreign_string(struct kri_worker *w, void *address, size_t length)
{
    struct kri_cell *c = kri_make(w, KRI_CLASS_FOREIGN_STRING, (uint32_t)length, 1);
    ((struct kri_foreign *)c)->address = address;
    return kri_value_of(c);
}

/* Argument I as the start of a region: a foreign string, or the address itself. */
static void *region_argument(struct kri_worker *w, const kr_value *argv, int i)
{
    if (kri_element(w->vm, argv[i]) == KRI_ELEMENT_FOREIGN)
        return ((struct kri_foreign *)argv[i].w)->address;
    return (void *)kri_arg_fixnum(w, argv, i);
}

KR_BUILTIN(mmap, "unix:mmap", "(address length protection share stream offset)",
           "LENGTH bytes of the file behind STREAM (a number or stream) from OFFSET on, a multiple of the page size, as a foreign string. PROTECTION "
           "3 and SHARE 1: what is written there changes the file; else it stays here. SHARE #x20 added: no file, zeros. ADDRESS is a wish, not "
           "heeded. Minus errno.")
{
    intptr_t length = kri_arg_natural(w, argv, 1), offset = kri_arg_natural(w, argv, 5);
    int protection = kri_arg_int(w, argv, 2), share = kri_arg_int(w, argv, 3);
    bool anonymous = share & MAP_ANONYMOUS, writes = (protection & PROT_WRITE) && (share & MAP_SHARED);
    int fd = anonymous ? -1 : kri_arg_descriptor(w, argv, 4, true);
    struct stat st;
    kri_arg_fixnum(w, argv, 0);
    if (length <= 0 || length >= (intptr_t)UINT32_MAX)
        kri_argument_error(w, 1, argv[1], KRI_E_RANGE);
    if (!anonymous && fstat(fd, &st) != 0)
        return kri_unix_error(errno);
    /* Pages wholly beyond the end of a file cannot be touched. */
    if (!anonymous && S_ISREG(st.st_mode) && (st.st_size == 0 || offset > st.st_size || length > ((st.st_size - offset + 4095) & ~(intptr_t)4095)))
        return kri_unix_error(EINVAL);
    void *p = mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE, (writes ? MAP_SHARED : MAP_PRIVATE) | (anonymous ? MAP_ANONYMOUS : 0), fd,
                   (off_t)offset);
    if (p == MAP_FAILED)
        return kri_unix_error(errno);
    if (!region_add(p, (size_t)length)) {
        munmap(p, (size_t)length);
        return kri_unix_error(ENOMEM);
    }
    return foreign_string(w, p, (size_t)length);
}

/* The end of the region at P, if it is one: 0 or minus errno. */
static kr_value region_give_back(void *p)
{
    size_t length = region_take(p);
    int error = length ? blank(p, length) : EINVAL;
    return error ? kri_unix_error(error) : kri_fixnum(0);
}

KR_BUILTIN(munmap, "unix:munmap", "(address length)",
           "Give back what unix:mmap mapped: ADDRESS is the foreign string or its address. The string holds zeros from now on. 0 or minus errno.")
{
    kri_arg_natural(w, argv, 1);
    return region_give_back(region_argument(w, argv, 0));
}

KR_BUILTIN(shmget, "unix:shmget", "(key size &optional (mode #o1666))",
           "The number of the shared memory KEY of SIZE bytes, made if need be, as unix:msgget does. Minus errno.")
{
    int key = kri_arg_int(w, argv, 0), mode = argc > 2 ? kri_arg_int(w, argv, 2) : IPC_CREAT | 0666;
    return kri_unix_result(shmget(key, (size_t)kri_arg_natural(w, argv, 1), mode), errno);
}

KR_BUILTIN(shmat, "unix:shmat", "(id)", "The shared memory ID as a foreign string, readable and writable; or minus errno.")
{
    int id = kri_arg_int(w, argv, 0);
    struct shmid_ds ds;
    if (shmctl(id, IPC_STAT, &ds) != 0)
        return kri_unix_error(errno);
    if (ds.shm_segsz == 0 || ds.shm_segsz >= UINT32_MAX)
        return kri_unix_error(EINVAL);
    void *p = shmat(id, NULL, 0);
    if (p == (void *)-1)
        return kri_unix_error(errno);
    if (!region_add(p, ds.shm_segsz)) {
        shmdt(p);
        return kri_unix_error(ENOMEM);
    }
    return foreign_string(w, p, ds.shm_segsz);
}

KR_BUILTIN(shmdt, "unix:shmdt", "(memory)", "Give back the shared MEMORY, a foreign string, which holds zeros from now on. 0 or minus errno.")
{
    return region_give_back(region_argument(w, argv, 0));
}

KR_BUILTIN(shmctl, "unix:shmctl", "(id command &optional buffer)",
           "COMMAND 0 removes the shared memory ID when nobody uses it any more, 2 puts what is known of it (a struct shmid_ds) into the string "
           "BUFFER. 0 or minus errno.")
{
    struct shmid_ds ds;
    int id = kri_arg_int(w, argv, 0), command = kri_arg_int(w, argv, 1);
    unsigned char *buffer = command == IPC_STAT ? control_buffer(w, argc, argv, 2, sizeof ds) : NULL;
    if (command != IPC_RMID && command != IPC_STAT)
        return kri_unix_error(EINVAL);
    if (shmctl(id, command, &ds) < 0)
        return kri_unix_error(errno);
    if (buffer)
        memcpy(buffer, &ds, sizeof ds);
    return kri_fixnum(0);
}

static struct region *allocated; /* what unix:malloc gave; guarded by regions_lock */
static size_t allocated_count, allocated_size;

KR_BUILTIN(malloc, "unix:malloc", "(bytes)", "The address of BYTES bytes of memory of C's, for foreign functions; unix:free gives it back.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    void *p = NULL;
    pthread_mutex_lock(&regions_lock);
    if (allocated_count == allocated_size) {
        size_t size = allocated_size ? 2 * allocated_size : 16;
        struct region *more = realloc(allocated, size * sizeof *more);
        allocated = more ? more : allocated;
        allocated_size = more ? size : allocated_size;
    }
    if (allocated_count < allocated_size && n < (intptr_t)1 << 46)
        p = malloc(n ? (size_t)n : 1);
    if (p)
        allocated[allocated_count++] = (struct region){p, (size_t)n};
    pthread_mutex_unlock(&regions_lock);
    if (!p)
        kri_error_memory(w, (size_t)n);
    return kri_integer(w, (intptr_t)p);
}

KR_BUILTIN(free, "unix:free", "(address)", "Give back the memory at ADDRESS, which unix:malloc gave. t, or minus errno if it did not.")
{
    void *p = (void *)kri_arg_fixnum(w, argv, 0);
    bool found = false;
    pthread_mutex_lock(&regions_lock);
    for (size_t i = 0; i < allocated_count && !found; i++)
        if (allocated[i].address == p) {
            allocated[i] = allocated[--allocated_count];
            found = true;
        }
    pthread_mutex_unlock(&regions_lock);
    if (!found)
        return kri_unix_error(EINVAL);
    free(p);
    return w->vm->sym.t;
}

KR_BUILTIN(sbrk, "unix::sbrk", "(increment)",
           "The end of this process's data, which is moved by INCREMENT bytes, 0 or more. Minus errno.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    void *p = n < (intptr_t)1 << 40 ? sbrk(n) : (void *)-1;
    return p == (void *)-1 ? kri_unix_error(ENOMEM) : kri_integer(w, (intptr_t)p);
}

const struct kri_builtin *const kri_builtins_ipc[] = {
    &msgget_def, &msgsnd_def, &msgrcv_def, &msgctl_def, &semget_def, &semop_def, &semctl_def, &mmap_def, &munmap_def, &shmget_def, &shmat_def,
    &shmdt_def, &shmctl_def, &malloc_def, &free_def, &sbrk_def, NULL};
