// Prints the answer of every call that touches a socket, in easy and in odd cases. The output must be the
// same with and without the preload library.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int a, b;
#define BAD ((void *)8)
#define P(x)                                                              \
    do {                                                                  \
        errno = 0;                                                        \
        long r_ = (long)(x);                                              \
        printf("%s = %ld errno %d\n", #x, r_, errno);                     \
    } while (0)

// Success must leave errno alone.
#define KEEPS(x)                                                          \
    do {                                                                  \
        errno = 4711;                                                     \
        long r_ = (long)(x);                                              \
        printf("%s = %ld errno %s\n", #x, r_, errno == 4711 ? "kept" : "changed"); \
    } while (0)

// Hides a buffer's size from the compiler's own checks.
static void *__attribute__((noinline)) opaque(void *p) {
    __asm__ volatile("" : "+r"(p));
    return p;
}

static void connect_pair(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in s = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof s;
    bind(l, (void *)&s, n);
    listen(l, 1);
    getsockname(l, (void *)&s, &n);
    a = socket(AF_INET, SOCK_STREAM, 0);
    KEEPS(connect(a, (void *)&s, n));
    KEEPS((b = accept4(l, NULL, NULL, SOCK_CLOEXEC)) > 0);
    n = sizeof s;
    KEEPS(getpeername(a, (void *)&s, &n));
    close(l);
    int one = 1, value = 0;
    KEEPS(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    n = sizeof value;
    KEEPS(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &value, &n));
    P(value != 0);
}

static void addresses(void) {
    char buf[64], ctl[64];
    struct sockaddr_storage ss;
    socklen_t n;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    P(sendto(a, "x", 1, 0, (void *)&to, sizeof to));
    P(sendto(a, "x", 1, 0, (void *)&to, 0));
    P(sendto(a, "x", 1, 0, (void *)&to, 129));
    P(sendto(a, "x", 1, 0, (void *)&to, -1));
    P(sendto(a, "x", 1, 0, BAD, 16));
    P(sendto(a, "x", 1, 0, NULL, -1));
    P(sendto(a, "x", 1, 0, NULL, 0));
    n = sizeof ss;
    P(recvfrom(b, buf, 1, 0, (void *)&ss, &n));
    P(n);
    n = -1;
    P(recvfrom(b, buf, 1, 0, (void *)&ss, &n));
    P(recvfrom(b, buf, 1, 0, (void *)&ss, NULL));
    n = 77;
    P(recvfrom(b, buf, 1, 0, NULL, &n));
    P(n);
    send(a, "abcdefghijklmnop", 16, 0);
    struct iovec v = {buf, 1};
    struct msghdr m = {.msg_name = &ss, .msg_namelen = sizeof ss, .msg_iov = &v, .msg_iovlen = 1,
                       .msg_control = ctl, .msg_controllen = 64, .msg_flags = 0x7777};
    P(recvmsg(b, &m, 0));
    printf("%d %zu %x\n", m.msg_namelen, m.msg_controllen, m.msg_flags);
    m.msg_name = NULL, m.msg_namelen = 55, m.msg_controllen = 64, m.msg_flags = 0x7777;
    P(recvmsg(b, &m, MSG_CMSG_CLOEXEC));
    printf("%d %zu %x\n", m.msg_namelen, m.msg_controllen, m.msg_flags);
    m.msg_name = &ss, m.msg_namelen = -1;
    P(recvmsg(b, &m, 0));
    m.msg_name = NULL, m.msg_control = BAD, m.msg_controllen = 64;
    P(recvmsg(b, &m, 0));
    m.msg_control = NULL, m.msg_controllen = 0, m.msg_name = &to, m.msg_namelen = 200;
    P(sendmsg(a, &m, 0));
    m.msg_name = BAD, m.msg_namelen = 16;
    P(sendmsg(a, &m, 0));
    m.msg_name = NULL, m.msg_namelen = 0, m.msg_controllen = 16;
    P(sendmsg(a, &m, 0));
    m.msg_controllen = 0, m.msg_iovlen = 1025;
    P(sendmsg(a, &m, 0));
    P(recvmsg(b, &m, 0));
    P(sendmsg(a, BAD, 0));
    P(recvmsg(b, BAD, 0));
    m.msg_iovlen = 1, m.msg_iov = BAD;
    P(sendmsg(a, &m, 0));
    P(recvmsg(b, &m, 0));
    while (recv(b, buf, sizeof buf, MSG_DONTWAIT) > 0)
        ;
}

static void many_messages(void) {
    char buf[8];
    struct iovec out = {"ab", 2}, in = {buf, 2};
    struct mmsghdr m[3] = {{.msg_hdr = {.msg_iov = &out, .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &out, .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = BAD, .msg_iovlen = 1}}};
    P(sendmmsg(a, m, 0, 0));
    P(sendmmsg(a, m, 3, 0));
    P(m[1].msg_len);
    P(sendmmsg(a, m + 2, 1, 0));
    for (int i = 0; i < 3; i++)
        m[i].msg_hdr.msg_iov = &in;
    struct timespec never = {-1, 0}, soon = {0, 1};
    P(recvmmsg(b, m, 1, 0, &never));
    P(recvmmsg(b, m, 3, MSG_WAITFORONE, NULL));
    send(a, "abcdef", 6, 0);
    P(recvmmsg(b, m, 3, 0, &soon));
    P(recv(b, buf, 8, MSG_DONTWAIT));
}

static void odd_buffers(void) {
    char buf[64];
    struct iovec v = {buf, 1};
    P(read(b, buf, 0));
    P(recv(b, buf, 0, MSG_DONTWAIT));
    P(readv(b, &v, 0));
    P(write(a, buf, 0));
    v.iov_len = 0;
    P(readv(b, &v, 1));
    v.iov_len = 1;
    P(preadv2(b, &v, 1, -1, RWF_NOWAIT));
    P(preadv2(b, &v, 1, 0, 0));
    P(pread(b, buf, 1, 0));
    P(pwrite(b, buf, 1, 0));
    send(a, "abcdefghijklmnop", 16, 0);
    P(preadv2(b, &v, 1, -1, 0));
    P(preadv2(b, &v, 1, -1, RWF_HIPRI));
    P(pwritev2(a, &v, 1, -1, RWF_NOWAIT));
    P(read(b, BAD, 1));
    P(read(b, opaque(buf), -1));
    P(recv(b, buf, 4, MSG_PEEK));
    P(recv(b, buf, 64, 0));
    P(readv(b, BAD, 1));
    P(writev(a, BAD, 1));
    P(readv(b, &v, -1));
    P(readv(b, &v, 1025));
    P(send(a, BAD, 1, 0));
    struct iovec two[2] = {{buf, 2}, {BAD, 10}};
    send(a, "abcdef", 6, 0);
    P(readv(b, two, 2));
    P(recv(b, buf, 64, MSG_DONTWAIT));
    P(recv(-1, buf, 1, 0));
    P(read(-1, buf, 1));
    P(close(-1));
}

static void moved_by_the_kernel(void) {
    char buf[64];
    int f = fileno(tmpfile()), p[2];
    P(write(f, "0123456789", 10));
    off_t at = 2;
    KEEPS(sendfile(a, f, &at, 5));
    P(at);
    KEEPS(recv(b, buf, 64, 0));
    P(pipe(p));
    P(write(p[1], "xyz", 3));
    KEEPS(splice(p[0], NULL, a, NULL, 3, 0));
    KEEPS(recv(b, buf, 64, 0));
    P(send(a, "!", 1, MSG_OOB));
    P(poll(&(struct pollfd){b, POLLPRI, 0}, 1, 1000));
    P(recv(b, buf, 1, MSG_OOB));
    close(f), close(p[0]), close(p[1]);
}

static void descriptors(void) {
    int n = 0;
    char buf[8];
    send(a, "abc", 3, 0);
    poll(&(struct pollfd){b, POLLIN, 0}, 1, 1000);
    KEEPS(ioctl(b, FIONREAD, &n));
    P(n);
    P(ioctl(b, FIONREAD, BAD));
    n = 1;
    KEEPS(ioctl(b, FIONBIO, &n));
    P((fcntl(b, F_GETFL) & O_NONBLOCK) != 0);
    KEEPS(fcntl(b, F_SETFL, 0));
    P((fcntl(b, F_GETFL) & O_NONBLOCK) != 0);
    int d = dup(b), d2 = fcntl(b, F_DUPFD, 100), d3 = fcntl(b, F_DUPFD_CLOEXEC, 100);
    P(d2);
    P(d3);
    P(fcntl(d3, F_GETFD));
    P(dup2(d, 110));
    P(dup2(110, 110));
    P(dup2(-1, 110));
    P(dup3(110, 110, 0));
    P(dup3(110, 111, O_CLOEXEC));
    P(read(111, buf, 3));
    P(close_range(100, 111, 0));
    P(read(111, buf, 3));
    P(close_range(5, 4, 0));
    P(close(d));
    P(close(d));
}

static void readiness(void) {
    char buf[8];
    struct pollfd f[2] = {{b, POLLIN, 0}, {a, POLLOUT, 0}};
    P(poll(f, 2, 0));
    P(f[1].revents);
    P(poll(f, 1, 5));
    P(poll(NULL, 0, 1));
    P(poll(BAD, 1, 0));
    struct timespec t = {0, 1000}, wrong = {0, 1000000000};
    sigset_t mask;
    sigemptyset(&mask);
    P(ppoll(f, 1, &t, &mask));
    P(ppoll(f, 1, &wrong, NULL));
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(b, &r);
    FD_SET(a, &w);
    struct timeval left = {0, 2000};
    P(select(a + b + 1, &r, &w, NULL, &left));
    P(FD_ISSET(b, &r));
    P(FD_ISSET(a, &w));
    FD_ZERO(&r);
    FD_SET(b, &r);
    P(select(a + b + 1, &r, NULL, NULL, &left));
    P(left.tv_sec * 1000000 + left.tv_usec);
    P(pselect(0, NULL, NULL, NULL, &t, &mask));
    FD_SET(60, &r);
    P(select(61, &r, NULL, NULL, &left));
    P(select(-1, NULL, NULL, NULL, &left));
    int e = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {EPOLLIN, {.u64 = 0x123456789abcdef}}, out[4];
    P(epoll_ctl(e, EPOLL_CTL_ADD, b, &ev));
    P(epoll_ctl(e, EPOLL_CTL_ADD, b, &ev));
    P(epoll_ctl(e, EPOLL_CTL_ADD, a, NULL));
    P(epoll_ctl(e, EPOLL_CTL_DEL, a, NULL));
    P(epoll_wait(e, out, 4, 0));
    P(epoll_wait(e, out, 0, 0));
    P(epoll_wait(e, BAD, 1, 0));
    send(a, "x", 1, 0);
    P(epoll_pwait(e, out, 4, 1000, &mask));
    P(out[0].data.u64 == ev.data.u64 && out[0].events == EPOLLIN);
    P(epoll_pwait2(e, out, 4, &t, NULL));
    P(epoll_pwait2(e, out, 4, &wrong, NULL));
    P(recv(b, buf, 8, 0));
    close(e);
}

// Each number twice: once it is answered here, once by the C library.
static void by_number(void) {
    char buf[64];
    struct iovec v = {buf, 3};
    struct timespec t = {0, 1000000};
    struct pollfd f = {b, POLLIN, 0};
    P(syscall(SYS_getppid) == getppid());
    P(syscall(SYS_sendto, a, "abcdefghi", 9, 0, NULL, 0));
    P(syscall(SYS_read, b, buf, 3));
    P(syscall(SYS_readv, b, &v, 1));
    P(syscall(SYS_recvfrom, b, buf, 64, 0, NULL, NULL));
    P(syscall(SYS_recvfrom, b, buf, 64, MSG_DONTWAIT, NULL, NULL));
    P(syscall(SYS_ppoll, &f, 1, &t, NULL, 8));
    P(t.tv_nsec);
    P(syscall(SYS_fcntl, b, F_GETFD));
    int d = syscall(SYS_dup, b);
    P(syscall(SYS_close, d));
    P(syscall(SYS_close, d));
    P(syscall(SYS_mmap, 0, 0, 0, 0, 0, 0));
    P(syscall(1000000));
    P(syscall(-1));
    size_t sized[2] = {0, 8};
    fd_set r;
    FD_ZERO(&r);
    FD_SET(b, &r);
    t.tv_nsec = 1000;
    P(syscall(SYS_pselect6, b + 1, &r, NULL, NULL, &t, sized));
}

static void print_to(int fd, const char *format, ...) {
    va_list args;
    va_start(args, format);
    P(vdprintf(fd, format, args));
    va_end(args);
}

static void streams(void) {
    char buf[256] = {0};
    int d = dup(a);
    FILE *f = fdopen(d, "w");
    P(fprintf(f, "%s", "through a stream"));
    P(fclose(f));
    P(close(d));
    P(dprintf(a, " %d %s %.3f %g %d %d %d %ld %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f", 1, "two", 3.25, 4e9, 5, 6, 7,
              8L, 9.5, 10.5, 11.5, 12.5, 13.5, 14.5, 15.5, 16.5));
    print_to(a, " [%d %.2f]\n", 17, 18.25);
    P(recv(b, buf, 255, 0) > 0);
    printf("%s", buf);
    FILE *m = fmemopen(buf, 16, "r");
    P(fclose(m));
    f = tmpfile();
    P(freopen("/dev/null", "w", f) == f);
    P(fclose(f));
}

static void endings(void) {
    char buf[4];
    send(a, "ab", 2, 0);
    KEEPS(shutdown(a, SHUT_WR));
    P(read(b, buf, 4));
    P(read(b, buf, 4));
    signal(SIGPIPE, SIG_IGN);
    P(send(a, "x", 1, 0));
    P(send(a, "x", 1, MSG_NOSIGNAL));
    KEEPS(close(b));
    P(recv(a, buf, 4, 0));
    KEEPS(close(a));
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    connect_pair();
    addresses();
    many_messages();
    odd_buffers();
    moved_by_the_kernel();
    descriptors();
    readiness();
    by_number();
    streams();
    endings();
    return 0;
}
