/* builtin_device.c -- ioctl and terminals.
 *
 * The system writes to the buffer of an ioctl what it likes: the call gets memory of its own that ends at a page nobody may touch, and
 * the buffer in Lisp a copy of as much as it holds. A number as argument is one that can be no address of this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/unix.h"

enum { LARGEST_NUMBER = 65535, /* addresses up to there are never mapped */
       ROOM = 16384 /* the largest size that a request can name */ };

/* Requests whose buffers hold addresses of more memory: the system would write there. */
static bool is_refused(unsigned long request)
{
    static const unsigned long refused[] = {0x8912 /* SIOCGIFCONF */, 0x8946 /* SIOCETHTOOL */, 0x2285 /* SG_IO */, 0x301 /* HDIO_* */,
                                            0x4b63, 0x4b61, 0x4b65, 0x4b66, 0x4b67, 0x4b6d, 0x4b6c, 0x4b72 /* console fonts and maps */};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i] == request)
            return true;
    return (request & 0xff00) == 0x8b00; /* wireless */
}

struct control {
    int fd, result, error;
    unsigned long request, number;
    bool has_buffer;
    unsigned char *buffer; /* of the call's own */
};

static void do_control(void *arg)
{
    struct control *c = arg;
    do
        c->result = c->has_buffer ? ioctl(c->fd, c->request, c->buffer) : ioctl(c->fd, c->request, c->number);
    while (c->result < 0 && errno == EINTR);
    c->error = c->result < 0 ? errno : 0;
}

/* ROOM bytes and a page behind them that faults. */
static unsigned char *map_room(void)
{
    unsigned char *p = mmap(NULL, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    mprotect(p + ROOM, 4096, PROT_NONE);
    return p;
}

/* The request with the buffer in argument I, of which SIZE bytes at most are meant. An errno or 0. */
static int control_buffer(struct kri_worker *w, struct control *c, const kr_value *argv, int i, size_t size)
{
    size_t n;
    kri_arg_bytes(w, argv, i, &n);
    if (n > size)
        n = size;
    unsigned char *room = map_room();
    if (!room)
        return ENOMEM;
    /* A buffer that is smaller than the system takes it to be lies at the very end. */
    size_t named = _IOC_SIZE(c->request) > n ? _IOC_SIZE(c->request) : n;
    size_t offset = named < ROOM ? (ROOM - (named > 256 ? named : 256)) & ~(size_t)15 : 0;
    if (n > ROOM)
        n = ROOM;
    c->has_buffer = true;
    c->buffer = room + offset;
    memcpy(c->buffer, kri_arg_bytes(w, argv, i, &(size_t){0}), n);
    kri_blocking(w, do_control, c);
    memcpy(kri_arg_bytes(w, argv, i, &(size_t){0}), c->buffer, n);
    munmap(room, ROOM + 4096);
    return c->error;
}

static kr_value control(struct kri_worker *w, struct control *c, int argc, const kr_value *argv, int i, size_t size)
{
    if (is_refused(c->request))
        return kri_unix_minus_one(EINVAL);
    if (argc > i && !kri_is_fixnum(argv[i]) && !kri_is_nil(argv[i])) {
        int error = control_buffer(w, c, argv, i, size);
        return error ? kri_unix_minus_one(error) : kri_fixnum(c->result);
    }
    intptr_t number = argc > i && kri_is_fixnum(argv[i]) ? kri_fixnum_value(argv[i]) : 0;
    if (number < 0 || number > LARGEST_NUMBER)
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    c->number = (unsigned long)number;
    kri_blocking(w, do_control, c);
    return c->error ? kri_unix_minus_one(c->error) : kri_fixnum(c->result);
}

KR_BUILTIN(ioctl, "unix:ioctl", "(stream request buffer)",
           "Make REQUEST of the device behind STREAM, a number or stream: numbers as ioctl(2) has them. BUFFER is a string with what the device gets "
           "and answers, or an integer up to 65535. The result, or -1.")
{
    struct control c = {.fd = kri_arg_descriptor(w, argv, 0, true), .request = (unsigned)kri_arg_int(w, argv, 1)};
    return control(w, &c, argc, argv, 2, SIZE_MAX);
}

/* A request made of a direction, the size of its buffer, the device's group and the number there. */
static kr_value made_request(struct kri_worker *w, int argc, kr_value *argv, unsigned direction)
{
    int group = kri_arg_int(w, argv, 1), number = kri_arg_int(w, argv, 2);
    size_t size = 0;
    if (group < 0 || group > 255 || number < 0 || number > 255)
        kri_argument_error(w, group < 0 || group > 255 ? 1 : 2, argv[group < 0 || group > 255 ? 1 : 2], KRI_E_RANGE);
    if (direction != _IOC_NONE) {
        kri_arg_bytes(w, argv, 3, &size);
        if (argc > 4 && (size_t)kri_arg_natural(w, argv, 4) > size)
            kri_argument_error(w, 4, argv[4], KRI_E_ARRAY_INDEX);
        if (argc > 4)
            size = (size_t)kri_arg_natural(w, argv, 4);
        if (size >= ROOM)
            kri_argument_error(w, 3, argv[3], KRI_E_ARRAY_SIZE);
    }
    struct control c = {.fd = kri_arg_descriptor(w, argv, 0, true),
                        .request = _IOC(direction, (unsigned)group, (unsigned)number, (unsigned)size)};
    return control(w, &c, direction == _IOC_NONE ? 3 : argc, argv, 3, size);
}

KR_BUILTIN(ioctl_none, "unix:ioctl_", "(stream group number)",
           "Make the request NUMBER of GROUP (both up to 255) that carries nothing of the device behind STREAM. The result, or -1.")
{
    return made_request(w, argc, argv, _IOC_NONE);
}
KR_BUILTIN(ioctl_read, "unix:ioctl_r", "(stream group number buffer &optional size)",
           "Make the request NUMBER of GROUP that reads SIZE bytes, by default as many as fit, into the string BUFFER. The result, or -1.")
{
    return made_request(w, argc, argv, _IOC_READ);
}
KR_BUILTIN(ioctl_write, "unix:ioctl_w", "(stream group number buffer &optional size)",
           "Make the request NUMBER of GROUP that gives the device SIZE bytes, by default all, of the string BUFFER. The result, or -1.")
{
    return made_request(w, argc, argv, _IOC_WRITE);
}
KR_BUILTIN(ioctl_both, "unix:ioctl_wr", "(stream group number buffer &optional size)",
           "Make the request NUMBER of GROUP that gives the device the string BUFFER and puts its answer there. The result, or -1.")
{
    return made_request(w, argc, argv, _IOC_READ | _IOC_WRITE);
}

/* ---- terminals ---- */

static kr_value terminal_request(struct kri_worker *w, kr_value *argv, unsigned long request)
{
    size_t n;
    struct control c = {.fd = kri_arg_descriptor(w, argv, 0, true), .request = request};
    kri_arg_bytes(w, argv, 1, &n);
    if (n < 36) /* the kernel's struct termios; that of tcgeta is smaller */
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_SIZE);
    int error = control_buffer(w, &c, argv, 1, n);
    return error ? kri_unix_error(error) : kri_fixnum(c.result);
}

#define TERMINAL(id, name, doc, request) \
    KR_BUILTIN(id, name, "(stream buffer)", doc " BUFFER is a string of at least 36 bytes. 0 or minus errno.") { return terminal_request(w, argv, request); }
TERMINAL(tcgets, "unix:tcgets", "Put how the terminal behind STREAM is set, as the kernel's struct termios, into BUFFER.", TCGETS)
TERMINAL(tcsets, "unix:tcsets", "Set the terminal behind STREAM as BUFFER, filled by tcgets, says.", TCSETS)
TERMINAL(tcsetsw, "unix:tcsetsw", "Like tcsets, when the output is written.", TCSETSW)
TERMINAL(tcsetsf, "unix:tcsetsf", "Like tcsetsw, and drop the input that was not read.", TCSETSF)
TERMINAL(tcgeta, "unix:tcgeta", "Put how the terminal behind STREAM is set, as a struct termio, into BUFFER.", TCGETA)
TERMINAL(tcseta, "unix:tcseta", "Set the terminal behind STREAM as BUFFER, filled by tcgeta, says.", TCSETA)
TERMINAL(tcsetaw, "unix:tcsetaw", "Like tcseta, when the output is written.", TCSETAW)
TERMINAL(tcsetaf, "unix:tcsetaf", "Like tcsetaw, and drop the input that was not read.", TCSETAF)

KR_BUILTIN(tcgetattr, "unix:tcgetattr", "(stream &optional buffer)",
           "How the terminal behind STREAM is set: the library's struct termios as a string, BUFFER if one is given. Minus errno.")
{
    struct termios t;
    size_t n = sizeof t;
    int fd = kri_arg_descriptor(w, argv, 0, true);
    if (argc > 1)
        kri_arg_bytes(w, argv, 1, &n);
    if (n < sizeof t)
        kri_argument_error(w, 1, argv[1], KRI_E_ARRAY_SIZE);
    if (tcgetattr(fd, &t) != 0)
        return kri_unix_error(errno);
    kr_value buffer = argc > 1 ? argv[1] : kri_make_string(w, sizeof t);
    memcpy(kri_arg_bytes(w, &buffer, 0, &n), &t, sizeof t);
    return buffer;
}

struct setting {
    int fd, action, error;
    struct termios t;
};

static void do_set(void *arg)
{
    struct setting *s = arg;
    do
        s->error = tcsetattr(s->fd, s->action, &s->t) != 0 ? errno : 0;
    while (s->error == EINTR);
}

KR_BUILTIN(tcsetattr, "unix:tcsetattr", "(stream action &optional buffer)",
           "Set the terminal behind STREAM as BUFFER, filled by tcgetattr, says: ACTION 0 now, 1 when the output is written, 2 then and dropping the "
           "input. 0 or minus errno.")
{
    size_t n;
    struct setting s = {.fd = kri_arg_descriptor(w, argv, 0, true), .action = argc > 2 ? kri_arg_int(w, argv, 1) : 0};
    int i = argc > 2 ? 2 : 1;
    unsigned char *bytes = kri_arg_bytes(w, argv, i, &n);
    if (n < sizeof s.t)
        kri_argument_error(w, i, argv[i], KRI_E_ARRAY_SIZE);
    memcpy(&s.t, bytes, sizeof s.t);
    kri_blocking(w, do_set, &s);
    return s.error ? kri_unix_error(s.error) : kri_fixnum(0);
}

const struct kri_builtin *const kri_builtins_device[] = {
    &ioctl_def, &ioctl_none_def, &ioctl_read_def, &ioctl_write_def, &ioctl_both_def, &tcgets_def, &tcsets_def, &tcsetsw_def, &tcsetsf_def,
    &tcgeta_def, &tcseta_def, &tcsetaw_def, &tcsetaf_def, &tcgetattr_def, &tcsetattr_def, NULL};
