/* An end of a link of its own, for the scripted program: linked with --wrap for every call below, which come here.
 *
 * AGENT_LINK=kernel: this process gets a network namespace with a TUN device, and its calls are the kernel's.
 * AGENT_LINK=stack: they are those of the table of functions of the plug-in AGENT_PLUGIN, as packetdrill calls it.
 * AGENT_WIDE: octets for SO_SNDBUF and SO_RCVBUF of every TCP socket, where a script leaves much unread.
 * Packets go through AGENT_OWN to AGENT_OTHER, names of datagram sockets. Addresses: 10.77.N.1 to .9 and fd77:0:N::1, where N is
 * AGENT_NUMBER. */
#include "link.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define NUMBERS 1024
/* A level of getsockopt that the plug-in alone has: the names of the ends. */
#define NAMES 0x4259
#define OWN_NAME 0
#define OTHER_NAME 1
/* A command of fcntl that the plug-in alone has: dup3(2). */
#define DUP_TO 0x4259

/* The plug-in's functions, in the order of packetdrill's interface. */
static struct {
    void *data;
    void (*free)(void *);
    int (*socket)(void *, int, int, int);
    int (*bind)(void *, int, const struct sockaddr *, socklen_t);
    int (*listen)(void *, int, int);
    int (*accept)(void *, int, struct sockaddr *, socklen_t *);
    int (*connect)(void *, int, const struct sockaddr *, socklen_t);
    ssize_t (*read)(void *, int, void *, size_t);
    ssize_t (*readv)(void *, int, const struct iovec *, int);
    ssize_t (*recv)(void *, int, void *, size_t, int);
    ssize_t (*recvfrom)(void *, int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(void *, int, struct msghdr *, int);
    ssize_t (*write)(void *, int, const void *, size_t);
    ssize_t (*writev)(void *, int, const struct iovec *, int);
    ssize_t (*send)(void *, int, const void *, size_t, int);
    ssize_t (*sendto)(void *, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(void *, int, const struct msghdr *, int);
    int (*fcntl)(void *, int, int, ...);
    int (*ioctl)(void *, int, unsigned long, ...);
    int (*close)(void *, int);
    int (*shutdown)(void *, int, int);
    int (*getsockopt)(void *, int, int, int, void *, socklen_t *);
    int (*setsockopt)(void *, int, int, int, const void *, socklen_t);
    int (*poll)(void *, struct pollfd *, nfds_t, int);
    int (*netdev_send)(void *, const void *, size_t);
    int (*netdev_receive)(void *, void *, size_t *, long long *);
    int (*usleep)(void *, useconds_t);
    int (*gettimeofday)(void *, struct timeval *, void *);
    int (*epoll_create)(void *, int);
    int (*epoll_ctl)(void *, int, int, int, struct epoll_event *);
    int (*epoll_wait)(void *, int, struct epoll_event *, int, int);
    int (*pipe)(void *, int[2]);
    ssize_t (*splice)(void *, int, loff_t *, int, loff_t *, size_t, unsigned);
} t;

int wide;
int is_stack;
static atomic_char ours[NUMBERS];
static int tun = -1, line = -1;
static struct sockaddr_un other = {.sun_family = AF_UNIX};

static void fail(const char *what)
{
    dprintf(2, "link: %s: %s\n", what, strerrorname_np(errno));
    _exit(77);
}

/* ---- packets ------------------------------------------------------------------------------------------- */

static long next_packet(void *to, size_t room)
{
    long long at;
    if (!is_stack)
        return __real_read(tun, to, room);
    return t.netdev_receive(t.data, to, &room, &at) < 0 ? -1 : (long)room;
}

static void *carry_out(void *unused)
{
    static char packet[65536];
    long n;
    for (;;) {
        if ((n = next_packet(packet, sizeof packet)) <= 0)
            continue;
        /* Until there is somebody at the other end, packets are lost. */
        while (__real_sendto(line, packet, (size_t)n, 0, (struct sockaddr *)&other, sizeof other) < 0 && errno == EINTR)
            ;
    }
    return unused;
}

static void *carry_in(void *unused)
{
    static char packet[65536];
    for (;;) {
        long n = __real_recv(line, packet, sizeof packet, 0);
        if (n <= 0)
            continue;
        if (is_stack)
            t.netdev_send(t.data, packet, (size_t)n);
        else
            __real_write(tun, packet, (size_t)n);
    }
    return unused;
}

static void open_line(void)
{
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    const char *own_name = getenv("AGENT_OWN"), *other_name = getenv("AGENT_OTHER");
    int fd = __real_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (!own_name || !other_name || strlen(own_name) >= sizeof own.sun_path)
        fail("no names of the link");
    snprintf(own.sun_path, sizeof own.sun_path, "%s", own_name);
    snprintf(other.sun_path, sizeof other.sun_path, "%s", other_name);
    if (fd < 0 || __real_bind(fd, (struct sockaddr *)&own, sizeof own) != 0)
        fail("a socket for the link");
    line = out_of_the_way(fd);
}

static void open_plugin(int number)
{
    char flags[512];
    void (*init)(const char *, void *) = NULL;
    void *library = dlopen(getenv("AGENT_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    if (library)
        *(void **)&init = dlsym(library, "packetdrill_interface_init");
    if (!init) {
        dprintf(2, "link: %s\n", dlerror());
        _exit(77);
    }
    int n = snprintf(flags, sizeof flags, "patience=36000,mtu=1500,local=fd77:0:%d::1/32", number);
    for (int last = 1; last < 10; last++)
        n += snprintf(flags + n, sizeof flags - (size_t)n, ",local=10.77.%d.%d/16", number, last);
    init(flags, &t);
}

/* Before main: its descriptors and threads are out of the way then, and signals are not theirs. */
__attribute__((constructor)) static void begin(void)
{
    const char *kind = getenv("AGENT_LINK"), *number = getenv("AGENT_NUMBER");
    sigset_t all, before;
    pthread_t threads[2];
    if (!kind || !number)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    is_stack = strcmp(kind, "stack") == 0;
    wide = getenv("AGENT_WIDE") ? atoi(getenv("AGENT_WIDE")) : 0;
    if (is_stack)
        open_plugin(atoi(number));
    else
        tun = become_host(atoi(number));
    open_line();
    if (pthread_create(&threads[0], NULL, carry_out, NULL) || pthread_create(&threads[1], NULL, carry_in, NULL))
        fail("threads");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

int is_ours(int fd) { return is_stack && fd >= 0 && fd < NUMBERS && atomic_load(&ours[fd]); }

/* Also what is open nowhere: the plug-in says so. */
static int is_for_plugin(int fd)
{
    int before = errno;
    int yes = is_stack && (is_ours(fd) || __real_fcntl(fd, F_GETFD) < 0);
    errno = before;
    return yes;
}

static int take(int fd)
{
    if (fd >= 0 && fd < NUMBERS)
        atomic_store(&ours[fd], 1);
    return fd;
}

/* What succeeds may change errno, but the kernel's calls do not. */
#define TABLE(type, call)                                                                                    \
    do {                                                                                                     \
        int before_ = errno;                                                                                 \
        type ret_ = (call);                                                                                  \
        if (ret_ != -1)                                                                                      \
            errno = before_;                                                                                 \
        return ret_;                                                                                         \
    } while (0)
#define CALL(type, name, fd, ...)                                                                            \
    if (!is_for_plugin(fd))                                                                                  \
        return __real_##name(fd, ##__VA_ARGS__);                                                             \
    TABLE(type, t.name(t.data, fd, ##__VA_ARGS__))

int __wrap_socket(int domain, int type, int protocol)
{
    int before = errno;
    int kernels = !is_stack || domain == AF_UNIX;
    int fd = kernels ? __real_socket(domain, type, protocol) : take(t.socket(t.data, domain, type, protocol));
    if (fd < 0)
        return fd;
    if (wide && domain != AF_UNIX && (type & 15) == SOCK_STREAM) {
        if (kernels) {
            __real_setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &wide, sizeof wide);
            __real_setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &wide, sizeof wide);
        } else {
            t.setsockopt(t.data, fd, SOL_SOCKET, SO_SNDBUF, &wide, sizeof wide);
            t.setsockopt(t.data, fd, SOL_SOCKET, SO_RCVBUF, &wide, sizeof wide);
        }
    }
    errno = before;
    return fd;
}
int __wrap_bind(int fd, const struct sockaddr *a, socklen_t n) { CALL(int, bind, fd, a, n); }
int __wrap_listen(int fd, int n) { CALL(int, listen, fd, n); }
int __wrap_accept(int fd, struct sockaddr *a, socklen_t *n)
{
    if (!is_for_plugin(fd))
        return __real_accept(fd, a, n);
    TABLE(int, take(t.accept(t.data, fd, a, n)));
}
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
    if (!is_for_plugin(fd))
        return __real_accept4(fd, a, n, flags);
    if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
        errno = EINVAL;
        return -1;
    }
    int got = __wrap_accept(fd, a, n);
    if (got >= 0 && flags & SOCK_NONBLOCK)
        t.fcntl(t.data, got, F_SETFL, (long)O_NONBLOCK);
    if (got >= 0 && flags & SOCK_CLOEXEC)
        t.fcntl(t.data, got, F_SETFD, (long)FD_CLOEXEC);
    return got;
}
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t n) { CALL(int, connect, fd, a, n); }
ssize_t __wrap_read(int fd, void *p, size_t n) { CALL(ssize_t, read, fd, p, n); }
ssize_t __wrap_readv(int fd, const struct iovec *v, int n) { CALL(ssize_t, readv, fd, v, n); }
ssize_t __wrap_recv(int fd, void *p, size_t n, int flags) { CALL(ssize_t, recv, fd, p, n, flags); }
ssize_t __wrap_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *a, socklen_t *len)
{
    CALL(ssize_t, recvfrom, fd, p, n, flags, a, len);
}
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags) { CALL(ssize_t, recvmsg, fd, m, flags); }
ssize_t __wrap_write(int fd, const void *p, size_t n) { CALL(ssize_t, write, fd, p, n); }
ssize_t __wrap_writev(int fd, const struct iovec *v, int n) { CALL(ssize_t, writev, fd, v, n); }
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags) { CALL(ssize_t, send, fd, p, n, flags); }
ssize_t __wrap_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *a, socklen_t len)
{
    CALL(ssize_t, sendto, fd, p, n, flags, a, len);
}
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags) { CALL(ssize_t, sendmsg, fd, m, flags); }
int __wrap_shutdown(int fd, int how) { CALL(int, shutdown, fd, how); }
int __wrap_getsockopt(int fd, int level, int name, void *p, socklen_t *n)
{
    CALL(int, getsockopt, fd, level, name, p, n);
}
int __wrap_setsockopt(int fd, int level, int name, const void *p, socklen_t n)
{
    CALL(int, setsockopt, fd, level, name, p, n);
}
int __wrap_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
    if (!is_for_plugin(fd))
        return __real_getsockname(fd, a, n);
    TABLE(int, t.getsockopt(t.data, fd, NAMES, OWN_NAME, a, n));
}
int __wrap_getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
    if (!is_for_plugin(fd))
        return __real_getpeername(fd, a, n);
    TABLE(int, t.getsockopt(t.data, fd, NAMES, OTHER_NAME, a, n));
}
int __wrap_fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    long value = va_arg(ap, long);
    va_end(ap);
    if (is_for_plugin(fd) && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
        TABLE(int, take(t.fcntl(t.data, fd, command, value)));
    CALL(int, fcntl, fd, command, value);
}
int __wrap_dup(int fd)
{
    if (!is_for_plugin(fd))
        return __real_dup(fd);
    return __wrap_fcntl(fd, F_DUPFD, 0L);
}
int __wrap_dup3(int fd, int to, int flags)
{
    if (is_for_plugin(fd))
        TABLE(int, take(t.fcntl(t.data, fd, DUP_TO, (long)((unsigned long)flags << 32 | (unsigned)to))));
    /* The number will be the kernel's. */
    if (is_ours(to) && !(flags & ~O_CLOEXEC)) {
        int before = errno;
        atomic_store(&ours[to], 0);
        t.close(t.data, to);
        errno = before;
    }
    return __real_dup3(fd, to, flags);
}
int __wrap_dup2(int fd, int to)
{
    /* A number that stands for something of the plug-in is one of the kernel's, too. */
    return fd == to ? __real_dup2(fd, to) : __wrap_dup3(fd, to, 0);
}
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *value = va_arg(ap, void *);
    va_end(ap);
    CALL(int, ioctl, fd, request, value);
}
int __wrap_close(int fd)
{
    if (!is_for_plugin(fd))
        return __real_close(fd);
    if (is_ours(fd))
        atomic_store(&ours[fd], 0);
    TABLE(int, t.close(t.data, fd));
}

int is_there(const void *p, size_t len)
{
    char octets[4096];
    for (size_t at = 0; at < len; at += sizeof octets) {
        size_t n = len - at < sizeof octets ? len - at : sizeof octets;
        struct iovec own = {octets, n}, other_ = {(char *)p + at, n};
        if (process_vm_readv(getpid(), &own, 1, &other_, 1, 0) != (ssize_t)n) {
            errno = EFAULT;
            return 0;
        }
    }
    return 1;
}

static int has_ours(const struct pollfd *p, nfds_t n)
{
    for (nfds_t i = 0; i < n; i++)
        if (is_ours(p[i].fd))
            return 1;
    return 0;
}
int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
    if (!is_stack || n > NUMBERS)
        return __real_poll(p, n, ms);
    if (!is_there(p, n * sizeof *p))
        return -1;
    if (!has_ours(p, n))
        return __real_poll(p, n, ms);
    TABLE(int, t.poll(t.data, p, n, ms));
}
static int as_ms(const struct timespec *time)
{
    return time ? (int)(time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000) : -1;
}
int __wrap_ppoll(struct pollfd *p, nfds_t n, const struct timespec *time, const sigset_t *mask)
{
    return is_stack ? __wrap_poll(p, n, as_ms(time)) : __real_ppoll(p, n, time, mask);
}
int __wrap_epoll_create(int size)
{
    if (!is_stack)
        return __real_epoll_create(size);
    TABLE(int, take(t.epoll_create(t.data, size)));
}
int __wrap_epoll_create1(int flags)
{
    if (!is_stack || flags & ~EPOLL_CLOEXEC)
        return __real_epoll_create1(flags);
    return __wrap_epoll_create(1);
}
int __wrap_epoll_ctl(int set, int what, int fd, struct epoll_event *e) { CALL(int, epoll_ctl, set, what, fd, e); }
int __wrap_epoll_wait(int set, struct epoll_event *e, int n, int ms) { CALL(int, epoll_wait, set, e, n, ms); }
int __wrap_epoll_pwait(int set, struct epoll_event *e, int n, int ms, const sigset_t *mask)
{
    return is_stack ? __wrap_epoll_wait(set, e, n, ms) : __real_epoll_pwait(set, e, n, ms, mask);
}
int __wrap_epoll_pwait2(int set, struct epoll_event *e, int n, const struct timespec *time, const sigset_t *mask)
{
    return is_stack ? __wrap_epoll_wait(set, e, n, as_ms(time)) : __real_epoll_pwait2(set, e, n, time, mask);
}
int __wrap_pipe(int fd[2])
{
    if (!is_stack)
        return __real_pipe(fd);
    int before = errno;
    if (t.pipe(t.data, fd) != 0)
        return -1;
    take(fd[0]);
    take(fd[1]);
    errno = before;
    return 0;
}
ssize_t __wrap_splice(int from, loff_t *a, int to, loff_t *b, size_t n, unsigned flags)
{
    if (!is_ours(from) && !is_ours(to))
        return __real_splice(from, a, to, b, n, flags);
    TABLE(ssize_t, t.splice(t.data, from, a, to, b, n, flags));
}
/* What the scripted program asks behind the C library's back. */
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_getsockname && is_ours((int)a[0]))
        return __wrap_getsockname((int)a[0], (struct sockaddr *)a[1], (socklen_t *)a[2]);
    if (number == SYS_ioctl && is_ours((int)a[0]))
        return __wrap_ioctl((int)a[0], (unsigned long)a[1], a[2]);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
