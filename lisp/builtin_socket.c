/* builtin_socket.c -- sockets, the names of hosts and services, waiting for several descriptors.
 *
 * An address is a string that holds the bytes of a struct sockaddr; class socket-address, in Lisp, is such a string. What waits does so
 * as Note [waiting] in unix.h says. A socket that listens does not block, so that of several threads that accept from it none is
 * caught in the call. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "lisp/init.h"
#include "lisp/stream.h"
#include "lisp/unix.h"

/* ---- addresses ---- */

struct address {
    struct sockaddr_storage at;
    socklen_t length;
};

static struct address address_argument(struct kri_worker *w, const kr_value *argv, int i)
{
    struct address a = {.length = 0};
    if (!kri_is_string(w->vm, argv[i]))
        kri_argument_error(w, i, argv[i], KRI_E_SOCKET_ADDRESS);
    size_t n = kri_length(argv[i]);
    if (n < sizeof(sa_family_t) || n > sizeof a.at)
        kri_argument_error(w, i, argv[i], KRI_E_SOCKET_ADDRESS);
    memcpy(&a.at, kri_string_of(argv[i])->byte, n);
    a.length = (socklen_t)n;
    return a;
}

static kr_value address_string(struct kri_worker *w, const struct address *a)
{
    size_t n = a->length < sizeof a->at ? a->length : sizeof a->at;
    return kri_string_n(w, (const char *)&a->at, n);
}

/* ---- sockets ---- */

KR_BUILTIN(socket, "unix:socket", "(domain type &optional (protocol 0))",
           "A new socket: DOMAIN af_unix, af_inet or af_inet6, TYPE sock_stream or sock_dgram. Its descriptor or minus errno.")
{
    int domain = kri_arg_int(w, argv, 0), type = kri_arg_int(w, argv, 1), protocol = argc > 2 ? kri_arg_int(w, argv, 2) : 0;
    int fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    return kri_unix_result(fd, errno);
}

KR_BUILTIN(bind, "unix:bind", "(socket address)", "Give SOCKET the ADDRESS. 0 or minus errno.")
{
    struct address a = address_argument(w, argv, 1);
    int result = bind(kri_arg_descriptor(w, argv, 0, true), (struct sockaddr *)&a.at, a.length);
    return kri_unix_result(result, errno);
}

KR_BUILTIN(listen_socket, "unix:listen", "(socket &optional (backlog 3))",
           "Let others connect to SOCKET, which has an address; BACKLOG of them may wait for accept. 0 or minus errno.")
{
    int fd = kri_arg_descriptor(w, argv, 0, true), backlog = argc > 1 ? kri_arg_int(w, argv, 1) : 3;
    if (listen(fd, backlog) != 0)
        return kri_unix_error(errno);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return kri_fixnum(0);
}

struct accepting {
    int fd, accepted;
    struct address from;
};

static int do_accept(void *arg)
{
    struct accepting *a = arg;
    a->from.length = sizeof a->from.at;
    a->accepted = accept4(a->fd, (struct sockaddr *)&a->from.at, &a->from.length, SOCK_CLOEXEC);
    return a->accepted >= 0 ? 0 : errno == ECONNABORTED ? EAGAIN : errno;
}

KR_BUILTIN(accept, "unix:accept", "(socket)",
           "Wait until somebody connects to SOCKET, which listens: (descriptor address), or minus errno.")
{
    struct accepting a = {.fd = kri_arg_descriptor(w, argv, 0, true)};
    int listening = 0;
    socklen_t size = sizeof listening;
    if (getsockopt(a.fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0)
        return kri_unix_error(errno);
    if (!listening)
        return kri_unix_error(EINVAL); /* waiting would never end */
    kri_wait_descriptor(w, a.fd, POLLIN, INT64_MAX);
    int error = kri_unix_try(w, do_accept, &a, a.fd, POLLIN);
    if (error)
        return kri_unix_error(error);
    return kri_list(w, 2, kri_fixnum(a.accepted), address_string(w, &a.from));
}

struct connecting {
    int fd, flags, error;
    struct address to;
    int64_t deadline;
};

static int do_connect(void *arg)
{
    struct connecting *c = arg;
    return connect(c->fd, (struct sockaddr *)&c->to.at, c->to.length) == 0 ? 0 : errno;
}

static void connect_outside(void *arg)
{
    struct connecting *c = arg;
    c->error = do_connect(c);
}

/* Without blocking; then the socket is waited for. A local socket whose queue is full says EAGAIN: it is asked again. */
static kr_value run_connect(struct kri_worker *w, void *arg)
{
    struct connecting *c = arg;
    socklen_t size = sizeof c->error;
    for (;;) {
        kri_blocking(w, connect_outside, c);
        if (c->error != EAGAIN || kri_now() >= c->deadline)
            break;
        kri_wait_until(w, kri_now() + 2000000);
    }
    if (c->error == EAGAIN)
        c->error = ETIMEDOUT;
    if (c->error != EINPROGRESS && c->error != EINTR)
        return KRI_NIL;
    if (!kri_wait_descriptor(w, c->fd, POLLOUT, c->deadline))
        c->error = ETIMEDOUT;
    else if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &c->error, &size) != 0)
        c->error = errno;
    return KRI_NIL;
}

static void end_connect(struct kri_worker *w, void *arg)
{
    (void)w;
    struct connecting *c = arg;
    if (c->flags >= 0)
        fcntl(c->fd, F_SETFL, c->flags);
}

KR_BUILTIN(connect, "unix:connect", "(socket address &optional seconds)",
           "Connect SOCKET to ADDRESS, waiting at most SECONDS (nil: as long as the system does). 0 or minus errno.")
{
    struct connecting c = {.to = address_argument(w, argv, 1), .fd = kri_arg_descriptor(w, argv, 0, true),
                           .deadline = argc > 2 ? kri_arg_deadline(w, argv, 2) : INT64_MAX};
    c.flags = fcntl(c.fd, F_GETFL);
    if (c.flags < 0)
        return kri_unix_error(errno);
    fcntl(c.fd, F_SETFL, c.flags | O_NONBLOCK);
    kri_unwind_protect(w, run_connect, &c, end_connect);
    return c.error ? kri_unix_error(c.error) : kri_fixnum(0);
}

typedef int name_of_socket(int fd, struct sockaddr *address, socklen_t *length);

static kr_value socket_name(struct kri_worker *w, kr_value *argv, name_of_socket *f)
{
    struct address a = {.length = sizeof a.at};
    if (f(kri_arg_descriptor(w, argv, 0, true), (struct sockaddr *)&a.at, &a.length) != 0)
        return kri_unix_error(errno);
    return address_string(w, &a);
}

KR_BUILTIN(getpeername, "unix:getpeername", "(socket)", "The address that SOCKET, a number or stream, is connected to, as a string; or minus errno.")
{
    return socket_name(w, argv, getpeername);
}

KR_BUILTIN(getsockname, "unix:getsockname", "(socket)", "The address of SOCKET, a number or stream, as a string; or minus errno.")
{
    return socket_name(w, argv, getsockname);
}

KR_BUILTIN(setsockopt, "unix:setsockopt", "(socket level option value)",
           "Set an OPTION of SOCKET to VALUE, an integer: LEVEL and OPTION are numbers as setsockopt(2) has them. 0 or minus errno.")
{
    int value = kri_arg_int(w, argv, 3);
    int result = setsockopt(kri_arg_descriptor(w, argv, 0, true), kri_arg_int(w, argv, 1), kri_arg_int(w, argv, 2), &value, sizeof value);
    return kri_unix_result(result, errno);
}

KR_BUILTIN(getsockopt, "unix:getsockopt", "(socket level option)", "The value, an integer, of an OPTION of SOCKET; or minus errno.")
{
    int value = 0;
    socklen_t size = sizeof value;
    if (getsockopt(kri_arg_descriptor(w, argv, 0, true), kri_arg_int(w, argv, 1), kri_arg_int(w, argv, 2), &value, &size) != 0)
        return kri_unix_error(errno);
    return kri_fixnum(value);
}

KR_BUILTIN(shutdown, "unix:shutdown", "(socket how)",
           "End one way of the connection of SOCKET: HOW 0 reading, 1 writing (the other side reads its end), 2 both. 0 or minus errno.")
{
    int fd = kri_arg_descriptor(w, argv, 0, true), how = kri_arg_int(w, argv, 1);
    if (!kri_is_fixnum(argv[0]) && kri_is_output_stream(w->vm, argv[0]))
        kri_stream_flush(w, argv[0]);
    return kri_unix_result(shutdown(fd, how), errno);
}

/* ---- datagrams ---- */

struct datagram {
    int fd, flags;
    struct address peer;
    size_t n;
    ssize_t done;
    char bytes[65536];
};

static int do_send(void *arg)
{
    struct datagram *d = arg;
    d->done = sendto(d->fd, d->bytes, d->n, d->flags | MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&d->peer.at, d->peer.length);
    return d->done < 0 ? errno : 0;
}

static int do_receive(void *arg)
{
    struct datagram *d = arg;
    d->peer.length = sizeof d->peer.at;
    d->done = recvfrom(d->fd, d->bytes, d->n, d->flags | MSG_DONTWAIT, (struct sockaddr *)&d->peer.at, &d->peer.length);
    return d->done < 0 ? errno : 0;
}

KR_BUILTIN(sendto, "unix:sendto", "(socket address message &optional length (flags 0))",
           "Send the first LENGTH bytes of the string MESSAGE, by default all, from SOCKET to ADDRESS. How many were sent, or minus errno.")
{
    struct datagram d;
    size_t n;
    d.fd = kri_arg_descriptor(w, argv, 0, false);
    d.peer = address_argument(w, argv, 1);
    kri_arg_bytes(w, argv, 2, &n);
    d.n = argc > 3 && !kri_is_nil(argv[3]) ? (size_t)kri_arg_natural(w, argv, 3) : n;
    d.flags = argc > 4 ? kri_arg_int(w, argv, 4) : 0;
    if (d.n > n)
        kri_argument_error(w, 3, argv[3], KRI_E_ARRAY_INDEX);
    if (d.n > sizeof d.bytes)
        return kri_unix_error(EMSGSIZE);
    memcpy(d.bytes, kri_arg_bytes(w, argv, 2, &n), d.n);
    int error = d.flags & MSG_DONTWAIT ? do_send(&d) : kri_unix_try(w, do_send, &d, d.fd, POLLOUT);
    return error ? kri_unix_error(error) : kri_fixnum((intptr_t)d.done);
}

static void fill_address(kr_value to, const struct address *from)
{
    size_t n = kri_length(to) < from->length ? kri_length(to) : from->length;
    memcpy(kri_string_of(to)->byte, &from->at, n);
}

KR_BUILTIN(recvfrom, "unix:recvfrom", "(socket &optional buffer address (flags 0))",
           "Wait for a message to SOCKET. With a string BUFFER it is put there, and how many bytes it has is returned; without (or with a number "
           "there, the most bytes) the message itself. ADDRESS, a string, becomes the sender's. Minus errno on failure.")
{
    struct datagram d;
    bool into = argc > 1 && !kri_is_nil(argv[1]) && !kri_is_fixnum(argv[1]);
    size_t room = sizeof d.bytes;
    d.fd = kri_arg_descriptor(w, argv, 0, true);
    if (into)
        kri_arg_bytes(w, argv, 1, &room);
    else if (argc > 1 && kri_is_fixnum(argv[1]))
        room = (size_t)kri_arg_natural(w, argv, 1);
    if (argc > 2 && !kri_is_nil(argv[2]) && !kri_is_string(w->vm, argv[2]))
        kri_argument_error(w, 2, argv[2], KRI_E_SOCKET_ADDRESS);
    d.n = room < sizeof d.bytes ? room : sizeof d.bytes;
    d.flags = (argc > 3 ? kri_arg_int(w, argv, 3) : 0) & ~MSG_TRUNC; /* which would tell more bytes than there are */
    int error = d.flags & MSG_DONTWAIT ? do_receive(&d) : kri_unix_try(w, do_receive, &d, d.fd, POLLIN);
    if (error)
        return kri_unix_error(error);
    if (argc > 2 && !kri_is_nil(argv[2]))
        fill_address(argv[2], &d.peer);
    if (!into)
        return kri_string_n(w, d.bytes, (size_t)d.done);
    memcpy(kri_arg_bytes(w, argv, 1, &room), d.bytes, (size_t)d.done);
    return kri_fixnum((intptr_t)d.done);
}

/* ---- names: looked up by a thread of their own, since the resolver neither polls nor can be interrupted ---- */

enum lookup_kind { LOOKUP_NAME, LOOKUP_ADDRESS, LOOKUP_NET };

struct lookup {
    enum lookup_kind kind;
    int family;
    char name[NI_MAXHOST];
    unsigned char address[16];
    size_t length; /* of address; 0: not found */
    unsigned net;
};

/* Held by the thread that asks and the one that looks it up; malloc'ed. */
struct shared_lookup {
    struct lookup data; /* the latter's until DONE is written */
    int done;           /* an eventfd */
    kri_atomic users;
};

static void look_up_name(struct lookup *l)
{
    struct addrinfo hints = {.ai_family = l->family, .ai_socktype = SOCK_STREAM}, *found = NULL, *best;
    if (getaddrinfo(l->name, NULL, &hints, &found) != 0)
        return;
    for (best = found; best && best->ai_family != AF_INET; best = best->ai_next)
        ;
    if (!best)
        best = found;
    l->family = best->ai_family;
    if (best->ai_family == AF_INET) {
        l->length = 4;
        memcpy(l->address, &((struct sockaddr_in *)(void *)best->ai_addr)->sin_addr, 4);
    } else if (best->ai_family == AF_INET6) {
        l->length = 16;
        memcpy(l->address, &((struct sockaddr_in6 *)(void *)best->ai_addr)->sin6_addr, 16);
    }
    freeaddrinfo(found);
}

static void look_up_address(struct lookup *l)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (l->length == 4)
        memcpy(&v4.sin_addr, l->address, 4);
    else
        memcpy(&v6.sin6_addr, l->address, 16);
    const struct sockaddr *a = l->length == 4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
    if (getnameinfo(a, l->length == 4 ? sizeof v4 : sizeof v6, l->name, sizeof l->name, NULL, 0, NI_NAMEREQD) != 0)
        l->length = 0;
}

static void look_up_net(struct lookup *l)
{
    struct netent entry, *found = NULL;
    char buffer[2048];
    int error;
    if (getnetbyname_r(l->name, &entry, buffer, sizeof buffer, &found, &error) != 0 || !found)
        return;
    l->length = 4;
    l->net = found->n_net;
    l->family = found->n_addrtype;
}

static void release_lookup(struct shared_lookup *l)
{
    if (kri_fetch_add(&l->users, (size_t)-1) != 1)
        return;
    close(l->done);
    free(l);
}

static void *lookup_main(void *arg)
{
    struct shared_lookup *l = arg;
    uint64_t one = 1;
    if (l->data.kind == LOOKUP_NAME)
        look_up_name(&l->data);
    else if (l->data.kind == LOOKUP_ADDRESS)
        look_up_address(&l->data);
    else
        look_up_net(&l->data);
    if (write(l->done, &one, sizeof one) < 0)
        abort(); /* the counter of a fresh eventfd has room */
    release_lookup(l);
    return NULL;
}

static int start_lookup(struct shared_lookup *l)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    l->done = eventfd(0, EFD_CLOEXEC);
    if (l->done < 0)
        return errno;
    l->users = 2;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &attr, lookup_main, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (error)
        close(l->done);
    return error;
}

struct lookup_job {
    struct shared_lookup *l;
    bool complete;
    struct lookup result;
};

static kr_value run_lookup(struct kri_worker *w, void *arg)
{
    struct lookup_job *job = arg;
    uint64_t count;
    do
        kri_wait_descriptor(w, job->l->done, POLLIN, INT64_MAX);
    while (read(job->l->done, &count, sizeof count) < 0 && errno == EINTR);
    job->complete = true;
    return KRI_NIL;
}

static void end_lookup(struct kri_worker *w, void *arg)
{
    (void)w;
    struct lookup_job *job = arg;
    if (job->complete)
        job->result = job->l->data;
    release_lookup(job->l);
}

/* QUESTION with its answer; its length is 0 if there is none. */
static struct lookup look_up(struct kri_worker *w, const struct lookup *question)
{
    struct lookup_job job = {.l = malloc(sizeof *job.l)};
    if (!job.l)
        kri_error_memory(w, 0);
    job.l->data = *question;
    int error = start_lookup(job.l);
    if (error) {
        free(job.l);
        kri_error(w, KRI_E_SYSTEM, KRI_NIL, "looking up a name: %s", strerror(error));
    }
    kri_unwind_protect(w, run_lookup, &job, end_lookup);
    return job.result;
}

/* Argument I as the name in L. */
static void name_argument(struct kri_worker *w, const kr_value *argv, int i, struct lookup *l)
{
    const struct kri_string *s = kri_arg_string(w, argv, i);
    if (s->head.length >= sizeof l->name || memchr(s->byte, 0, s->head.length))
        kri_argument_error(w, i, argv[i], KRI_E_RANGE);
    memcpy(l->name, s->byte, s->head.length);
    l->name[s->head.length] = '\0';
}

KR_BUILTIN(gethostbyname, "unix:gethostbyname", "(name &optional family)",
           "(ADDRESS FAMILY) of the host NAME: its address as a string of 4 or 16 bytes, and af_inet or af_inet6. FAMILY: look for that only. "
           "0 if there is none.")
{
    struct lookup l = {.kind = LOOKUP_NAME, .family = argc > 1 && !kri_is_nil(argv[1]) ? kri_arg_int(w, argv, 1) : AF_UNSPEC};
    name_argument(w, argv, 0, &l);
    l = look_up(w, &l);
    if (l.length == 0)
        return kri_fixnum(0);
    return kri_list(w, 2, kri_string_n(w, (const char *)l.address, l.length), kri_fixnum(l.family));
}

KR_BUILTIN(gethostbyaddr, "unix:gethostbyaddr", "(address)", "The name of the host with ADDRESS, a string of 4 or 16 bytes; 0 if it has none.")
{
    struct lookup l = {.kind = LOOKUP_ADDRESS};
    l.length = kri_arg_string(w, argv, 0)->head.length;
    if (l.length != 4 && l.length != 16)
        return kri_fixnum(0);
    memcpy(l.address, kri_string_of(argv[0])->byte, l.length);
    l = look_up(w, &l);
    return l.length ? kri_string(w, l.name) : kri_fixnum(0);
}

KR_BUILTIN(getnetbyname, "unix:getnetbyname", "(name)", "(NUMBER FAMILY) of the network NAME; 0 if there is none.")
{
    struct lookup l = {.kind = LOOKUP_NET};
    name_argument(w, argv, 0, &l);
    l = look_up(w, &l);
    return l.length ? kri_list(w, 2, kri_fixnum(l.net), kri_fixnum(l.family)) : kri_fixnum(0);
}

KR_BUILTIN(getservbyname, "unix:getservbyname", "(service &optional protocol)",
           "(PORT PROTOCOL) of SERVICE, a name, as /etc/services has it; 0 if it is not there.")
{
    struct servent entry, *found = NULL;
    struct lookup name, protocol;
    char buffer[4096];
    name_argument(w, argv, 0, &name);
    if (argc > 1 && !kri_is_nil(argv[1]))
        name_argument(w, argv, 1, &protocol);
    getservbyname_r(name.name, argc > 1 && !kri_is_nil(argv[1]) ? protocol.name : NULL, &entry, buffer, sizeof buffer, &found);
    return found ? kri_list(w, 2, kri_fixnum(ntohs((uint16_t)found->s_port)), kri_string(w, found->s_proto)) : kri_fixnum(0);
}

KR_BUILTIN(getprotobyname, "unix:getprotobyname", "(name)", "The number of the protocol NAME, such as \"tcp\"; 0 if there is none.")
{
    struct protoent entry, *found = NULL;
    struct lookup name;
    char buffer[2048];
    name_argument(w, argv, 0, &name);
    getprotobyname_r(name.name, &entry, buffer, sizeof buffer, &found);
    return kri_fixnum(found ? found->p_proto : 0);
}

KR_BUILTIN(htons, "unix::htons", "(n)", "The 16-bit number N with the order of its bytes as networks have it.")
{
    return kri_fixnum(htons((uint16_t)kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(ntohs, "unix::ntohs", "(n)", "The 16-bit number N, which is in the order of networks, in this machine's.")
{
    return kri_fixnum(ntohs((uint16_t)kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(address_text, "unix::%address-text", "(bytes)", "The address BYTES, a string of 4 or 16 bytes, as it is written: \"127.0.0.1\", \"::1\".")
{
    char text[INET6_ADDRSTRLEN] = "";
    size_t n = kri_arg_string(w, argv, 0)->head.length;
    if (n != 4 && n != 16)
        kri_argument_error(w, 0, argv[0], KRI_E_SOCKET_ADDRESS);
    inet_ntop(n == 4 ? AF_INET : AF_INET6, kri_string_of(argv[0])->byte, text, sizeof text);
    return kri_string(w, text);
}

/* ---- waiting for several descriptors ---- */

struct polling {
    struct pollfd *p; /* in a %bytes cell that the caller keeps */
    size_t n;
    struct timespec time;
    int ready, error;
};

static struct polling make_polling(struct kri_worker *w, size_t n)
{
    if (n > 1 << 20)
        kri_error(w, KRI_E_RANGE, kri_fixnum((intptr_t)n), "so many descriptors");
    struct kri_cell *c = kri_make(w, KRI_CLASS_BYTES, 0, (n + 1) * sizeof(struct pollfd) / 8 + 1);
    return (struct polling){.p = (struct pollfd *)(void *)c->slot, .n = 0};
}

static void poll_outside(void *arg)
{
    struct polling *x = arg;
    x->ready = ppoll(x->p, x->n, &x->time, NULL);
    x->error = x->ready < 0 ? errno : 0;
}

/* Until one is ready or DEADLINE: how many are, 0 when the time is up; -1 and x->error. */
static int poll_many(struct kri_worker *w, struct polling *x, int64_t deadline)
{
    for (;;) {
        kri_poll(w);
        int64_t left = deadline - kri_now(), most = KRI_LOOK_UP_MS * (int64_t)1000000;
        left = left < 0 ? 0 : left < most ? left : most;
        x->time = (struct timespec){left / 1000000000, left % 1000000000};
        kri_blocking(w, poll_outside, x);
        if (x->ready > 0 || (x->ready < 0 && x->error != EINTR))
            return x->ready;
        if (kri_now() >= deadline)
            return 0;
    }
}

/* A set of descriptors: a bit-vector, an integer-vector of 64 bits each, or an integer; nil is empty. */
static const unsigned char *set_bits(struct kri_worker *w, const kr_value *argv, int i, size_t *bits, intptr_t *word)
{
    enum kri_element e = kri_element(w->vm, argv[i]);
    *bits = 0;
    if (kri_is_nil(argv[i]))
        return NULL;
    if (kri_is_fixnum(argv[i])) {
        *word = kri_fixnum_value(argv[i]);
        *bits = 62;
        return (const unsigned char *)word;
    }
    if (e != KRI_ELEMENT_BIT && e != KRI_ELEMENT_INTEGER)
        kri_argument_error(w, i, argv[i], KRI_E_NO_VECTOR);
    *bits = kri_length(argv[i]) * (e == KRI_ELEMENT_BIT ? 1 : 64);
    return e == KRI_ELEMENT_BIT ? kri_string_of(argv[i])->byte : (const unsigned char *)kri_ivector_of(argv[i])->at;
}

static bool in_set(const unsigned char *set, size_t bits, size_t i) { return i < bits && set[i / 8] >> i % 8 & 1; }

enum { SETS = 3 };
static const short set_events[SETS] = {POLLIN, POLLOUT, POLLPRI};
static const short set_answers[SETS] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};

struct sets {
    const unsigned char *set[SETS];
    size_t bits[SETS];
    intptr_t word[SETS];
};

static short wanted(const struct sets *s, size_t fd)
{
    short events = 0;
    for (int i = 0; i < SETS; i++)
        if (in_set(s->set[i], s->bits[i], fd))
            events = (short)(events | set_events[i]);
    return events;
}

static struct polling poll_sets(struct kri_worker *w, const struct sets *s)
{
    size_t most = 0, n = 0;
    for (int i = 0; i < SETS; i++)
        most = s->bits[i] > most ? s->bits[i] : most;
    for (size_t fd = 0; fd < most; fd++)
        n += wanted(s, fd) != 0;
    struct polling x = make_polling(w, n);
    for (size_t fd = 0; fd < most && x.n < n; fd++)
        if (wanted(s, fd))
            x.p[x.n++] = (struct pollfd){.fd = (int)fd, .events = wanted(s, fd)};
    return x;
}

/* What stands in set I afterwards, argument V: the descriptors that are ready. Returns how many. */
static int store_set(struct kri_worker *w, kr_value v, int i, const struct polling *x, intptr_t *word)
{
    int count = 0;
    *word = 0;
    enum kri_element e = kri_element(w->vm, v);
    unsigned char *bytes = e == KRI_ELEMENT_BIT ? kri_string_of(v)->byte
                           : e == KRI_ELEMENT_INTEGER ? (unsigned char *)kri_ivector_of(v)->at
                                                      : (unsigned char *)word;
    if (e == KRI_ELEMENT_BIT || e == KRI_ELEMENT_INTEGER)
        memset(bytes, 0, e == KRI_ELEMENT_BIT ? (kri_length(v) + 7) / 8 : kri_length(v) * 8);
    else if (!kri_is_fixnum(v))
        return 0;
    for (size_t k = 0; k < x->n; k++)
        if (x->p[k].events & set_events[i] && x->p[k].revents & set_answers[i]) {
            bytes[x->p[k].fd / 8] = (unsigned char)(bytes[x->p[k].fd / 8] | 1 << x->p[k].fd % 8);
            count++;
        }
    return count;
}

static bool any_invalid(const struct polling *x)
{
    for (size_t k = 0; k < x->n; k++)
        if (x->p[k].revents & POLLNVAL)
            return true;
    return false;
}

KR_BUILTIN(select, "unix:select", "(inputs outputs exceptions seconds)",
           "Wait until a descriptor of the set INPUTS can be read, one of OUTPUTS written, or one of EXCEPTIONS has something urgent; at most SECONDS, "
           "nil is for ever. The sets are bit-vectors (or nil), and hold what is ready afterwards. Returns how many are, or minus errno.")
{
    struct sets s;
    intptr_t word;
    int count = 0;
    int64_t deadline = kri_arg_deadline(w, argv, 3);
    for (int i = 0; i < SETS; i++) {
        if (kri_is_fixnum(argv[i]))
            kri_argument_error(w, i, argv[i], KRI_E_NO_VECTOR);
        s.set[i] = set_bits(w, argv, i, &s.bits[i], &s.word[i]);
    }
    struct polling x = poll_sets(w, &s);
    int ready = poll_many(w, &x, deadline);
    if (ready < 0 || any_invalid(&x))
        return kri_unix_error(ready < 0 ? x.error : EBADF);
    for (int i = 0; i < SETS; i++)
        count += store_set(w, argv[i], i, &x, &word);
    return kri_fixnum(count);
}

KR_BUILTIN(select_read_fd, "unix:select-read-fd", "(set seconds)",
           "Wait at most SECONDS, nil is for ever, until a descriptor of SET can be read. SET is a bit-vector, which then holds those that are "
           "ready and is returned, or an integer, and an integer is returned. Minus errno on failure.")
{
    struct sets s = {{NULL}, {0}, {0}};
    intptr_t word = 0;
    int64_t deadline = kri_arg_deadline(w, argv, 1);
    s.set[0] = set_bits(w, argv, 0, &s.bits[0], &s.word[0]);
    struct polling x = poll_sets(w, &s);
    int ready = poll_many(w, &x, deadline);
    if (ready < 0 || any_invalid(&x))
        return kri_unix_error(ready < 0 ? x.error : EBADF);
    store_set(w, argv[0], 0, &x, &word);
    return kri_is_fixnum(argv[0]) ? kri_fixnum(word) : argv[0];
}

/* An element of unix::%ready's list: something already read waits in its buffer. */
static bool has_unread(struct kri_worker *w, kr_value v)
{
    return !kri_is_fixnum(v) && kri_is_input_stream(w->vm, v) && kri_stream_unread(w, kri_input_stream(w, v)) > 0;
}

KR_BUILTIN(ready, "unix::%ready", "(list seconds)",
           "The elements of LIST, streams or descriptors, that can be read without waiting: all of those that are so first, within SECONDS (nil: "
           "for ever).")
{
    size_t n = 0, i = 0;
    int64_t deadline = kri_arg_deadline(w, argv, 1);
    bool unread = false;
    for (kr_value l = kri_arg_list(w, argv, 0); kri_is_cons(l) && n <= 1 << 20; l = kri_cdr(l))
        n++;
    struct polling x = make_polling(w, n);
    for (kr_value l = argv[0]; kri_is_cons(l) && i < n; l = kri_cdr(l), i++) {
        kr_value v = kri_car(l);
        x.p[i] = (struct pollfd){.fd = kri_arg_descriptor(w, &v, 0, true), .events = POLLIN};
        unread |= has_unread(w, v);
    }
    x.n = i;
    int ready = poll_many(w, &x, unread ? kri_now() : deadline);
    kr_value list = KRI_NIL;
    if (ready < 0 || (ready == 0 && !unread))
        return list;
    kr_value found = kri_make_vector(w, i);
    size_t have = 0, k = 0;
    for (kr_value l = argv[0]; kri_is_cons(l) && k < i; l = kri_cdr(l), k++)
        if (x.p[k].revents || has_unread(w, kri_car(l)))
            kri_store(w, kri_ptr(found), &kri_vector_of(found)->at[have++], kri_car(l));
    while (have-- > 0)
        list = kri_cons(w, kri_slot(&kri_vector_of(found)->at[have]), list);
    return list;
}

KR_BUILTIN(unread, "unix::%unread", "(stream)",
           "How many bytes can be read from STREAM, a stream or descriptor, without waiting; nil if that cannot be told.")
{
    int n = 0, fd = kri_arg_descriptor(w, argv, 0, true);
    if (fd < 0 || ioctl(fd, FIONREAD, &n) != 0)
        return KRI_NIL;
    return kri_fixnum(n + (has_unread(w, argv[0]) ? (intptr_t)kri_stream_unread(w, kri_input_stream(w, argv[0])) : 0));
}

const struct kri_builtin *const kri_builtins_socket[] = {
    &socket_def, &bind_def, &listen_socket_def, &accept_def, &connect_def, &getpeername_def, &getsockname_def, &setsockopt_def, &getsockopt_def,
    &shutdown_def, &sendto_def, &recvfrom_def, &gethostbyname_def, &gethostbyaddr_def, &getnetbyname_def, &getservbyname_def,
    &getprotobyname_def, &htons_def, &ntohs_def, &address_text_def, &select_def, &select_read_fd_def, &ready_def, &unread_def, NULL};
