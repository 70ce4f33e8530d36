// Calls that move bytes inside the kernel, tell of them in other ways, or come by number. Prints the same on the kernel
// and under Bypath. Usage: moves splice|zerocopy|async|numbers|pidfd
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "roads_peer.h"

static void tell(const char *what, long r) {
    if (r == -1)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, r);
}

static void exchange(int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t n = i % 10 == 9 ? 300000 : 1 + i * 91;
        order('s', 700);
        order('r', n);
        give(n, 0);
        take(700, 0);
        done();
        done();
    }
}

// ---------------------------------------------------------------- splice and its kin

static char lent[4096];

static void spliced(void) {
    int p[2], q[2], file = memfd_create("file", 0);
    char data[4000];
    loff_t at = 0;
    pipe(p), pipe(q);
    write(file, "0123456789", 10);
    // What knows pipes or files only.
    order('s', 100);
    done();
    tell("tee from the socket", tee(s, p[1], 10, 0));
    tell("tee into the socket", tee(p[0], s, 10, 0));
    struct iovec v = {data, 10};
    tell("vmsplice into the socket", vmsplice(s, &v, 1, 0));
    tell("copy_file_range into the socket", copy_file_range(file, &at, s, NULL, 10, 0));
    tell("copy_file_range from the socket", copy_file_range(s, NULL, file, &at, 10, 0));
    tell("splice at a position", splice(s, &at, p[1], NULL, 10, 0));
    tell("splice of nothing there", splice(p[0], NULL, s, NULL, 10, SPLICE_F_NONBLOCK));
    take(100, 0);
    fcntl(s, F_SETFL, O_NONBLOCK);
    tell("splice from an empty socket", splice(s, NULL, p[1], NULL, 10, 0));
    fcntl(s, F_SETFL, 0);
    for (int i = 0; i < 60; i++) {
        // From the socket, with bytes before and behind read plainly; into it from the program's pages, and a copy.
        order('s', 3000);
        if (i % 2)
            done();
        take(500, 0);
        for (ssize_t left = 2000, k; left > 0; left -= k) {
            if ((k = splice(s, NULL, p[1], NULL, left, 0)) <= 0)
                die("splice from the socket");
            get_all(p[0], data, k);
            came(data, k, 0);
        }
        take(500, 0);
        if (i % 2 == 0)
            done();
        order('r', 4000);
        give(1000, 0);
        // Its pages are sent as they are when the other end reads: they are not touched before that.
        memcpy(lent, next_bytes(1500, 0), 1500);
        v = (struct iovec){lent, 1500};
        if (vmsplice(p[1], &v, 1, 0) != 1500)
            die("vmsplice");
        if (tee(p[0], q[1], 1500, 0) != 1500 || splice(q[0], NULL, s, NULL, 1500, i % 3 ? SPLICE_F_MORE : 0) != 1500)
            die("tee and splice");
        get_all(p[0], data, 1500);
        sent += 1500;
        put_all(p[1], next_bytes(500, 0), 500);
        if (sendfile(s, p[0], NULL, 500) != 500 && splice(p[0], NULL, s, NULL, 500, 0) != 500)
            die("a pipe into the socket");
        sent += 500;
        give(1000, 0);
        done();
        if (i % 20 == 19)
            exchange(10);
    }
    tell("sendfile from the socket", sendfile(file, s, NULL, 0));
    puts("spliced");
}

// ---------------------------------------------------------------- MSG_ZEROCOPY

static long notified(void) {
    char control[200];
    struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
    struct pollfd p = {s, 0, 0};
    if (poll(&p, 1, 10000) != 1 || !(p.revents & POLLERR))
        die("no notification");
    if (recvmsg(s, &m, MSG_ERRQUEUE) == -1)
        die("the error queue");
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    struct sock_extended_err *e = (struct sock_extended_err *)CMSG_DATA(c);
    if (!(m.msg_flags & MSG_ERRQUEUE) || e->ee_origin != SO_EE_ORIGIN_ZEROCOPY)
        die("what was notified");
    return e->ee_data;
}

static void uncopied(void) {
    int one = 1;
    char control[100];
    struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
    exchange(10);
    // The flag alone means nothing.
    order('r', 5000);
    tell("send", send(s, next_bytes(5000, 0), 5000, MSG_ZEROCOPY));
    sent += 5000;
    done();
    tell("an empty error queue", recvmsg(s, &m, MSG_ERRQUEUE));
    exchange(10);
    order('s', 2000);
    done();
    tell("setsockopt", setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one));
    take(2000, 0);
    for (int i = 0; i < 5; i++) {
        order('r', 60000);
        char *at = next_bytes(60000, 0);
        for (ssize_t left = 60000, k; left > 0; left -= k, at += k)
            if ((k = send(s, at, left, MSG_ZEROCOPY)) <= 0)
                die("send");
        sent += 60000;
        done();
    }
    long last = -1;
    while (last < 4)
        last = notified();
    // One number for each call; a call may have taken less than all.
    printf("notified %d\n", last >= 4);
    exchange(10);
}

// ---------------------------------------------------------------- SIGIO

static volatile sig_atomic_t signals, of_fd;

static void on_signal(int n, siginfo_t *info, void *context) {
    (void)n, (void)context;
    signals++;
    of_fd = info->si_fd;
}

static int was_signalled(void) {
    struct timespec t = {0, 1000000};
    for (int i = 0; i < 5000 && signals == 0; i++)
        nanosleep(&t, NULL);
    int any = signals > 0;
    signals = 0;
    return any;
}

static void asynchronous(void) {
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    int on = 1, off = 0;
    sigaction(SIGRTMIN, &a, NULL);
    sigaction(SIGIO, &a, NULL);
    order('s', 3000); // in the ring, and unread, when it begins
    done();
    tell("F_SETOWN", fcntl(s, F_SETOWN, getpid()));
    tell("F_GETOWN", fcntl(s, F_GETOWN) == getpid());
    tell("F_SETSIG", fcntl(s, F_SETSIG, SIGRTMIN));
    tell("O_ASYNC", fcntl(s, F_SETFL, fcntl(s, F_GETFL) | O_ASYNC));
    signals = 0;
    take(3000, 0);
    for (int i = 0; i < 5; i++) {
        signals = 0;
        order('s', 10);
        done();
        printf("input %d of it %d\n", was_signalled(), of_fd == s);
        take(10, 0);
    }
    tell("no O_ASYNC", fcntl(s, F_SETFL, fcntl(s, F_GETFL) & ~O_ASYNC));
    signals = 0;
    exchange(10);
    printf("quiet %d\n", signals == 0);
    tell("FIOASYNC", ioctl(s, FIOASYNC, &on));
    signals = 0;
    order('s', 10);
    done();
    printf("input %d\n", was_signalled());
    take(10, 0);
    tell("no FIOASYNC", ioctl(s, FIOASYNC, &off));
    exchange(10);
}

// ---------------------------------------------------------------- syscall()

#define BY(call, ...) syscall(SYS_##call, __VA_ARGS__)

static void by_number(void) {
    static char b[8][1000];
    struct timespec no_time = {0, 0};
    struct timeval soon = {1, 0};
    struct {
        void *set;
        size_t size;
    } mask = {NULL, 8};
    int set = BY(epoll_create1, 0), copy, pair[2], file = memfd_create("file", 0);
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7};
    pipe(pair);
    write(file, b, sizeof b);
    BY(epoll_ctl, set, EPOLL_CTL_ADD, s, &e);
    for (int i = 0; i < 40; i++) {
        order('s', 8000);
        if (i % 2)
            done();
        struct pollfd p = {s, POLLIN, 0};
        fd_set in;
        FD_ZERO(&in);
        FD_SET(s, &in);
        long n = i % 6 == 0   ? BY(poll, &p, 1, -1)
                 : i % 6 == 1 ? BY(ppoll, &p, 1, NULL, NULL, 8)
                 : i % 6 == 2 ? BY(select, s + 1, &in, NULL, NULL, NULL)
                 : i % 6 == 3 ? BY(pselect6, s + 1, &in, NULL, NULL, NULL, &mask)
                 : i % 6 == 4 ? BY(epoll_wait, set, &e, 1, -1)
                              : BY(epoll_pwait, set, &e, 1, -1, NULL, 8);
        if (n != 1)
            die("a wait by number");
        struct iovec v = {b[2], 1000};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
        struct mmsghdr mm = {.msg_hdr = m};
        for (int k = 0; k < 8; k++) {
            size_t got = 0;
            while (got < 1000) {
                v = (struct iovec){b[0] + got, 1000 - got};
                mm.msg_hdr = m;
                n = k == 0   ? BY(read, s, v.iov_base, v.iov_len)
                    : k == 1 ? BY(readv, s, &v, 1)
                    : k == 2 ? BY(recvfrom, s, v.iov_base, v.iov_len, 0, NULL, NULL)
                    : k == 3 ? BY(recvmsg, s, &m, 0)
                    : k == 4 ? BY(preadv2, s, &v, 1, -1l, -1l, 0)
                    : k == 5 ? (BY(recvmmsg, s, &mm, 1, 0, NULL) == 1 ? (long)mm.msg_len : -1)
                    : k == 6 ? BY(recvfrom, s, v.iov_base, v.iov_len, MSG_WAITALL, NULL, NULL)
                             : BY(read, s, v.iov_base, v.iov_len);
                if (n <= 0)
                    die("a receive by number");
                got += n;
            }
            came(b[0], 1000, 0);
        }
        if (i % 2 == 0)
            done();
        order('r', 7000);
        for (int k = 0; k < 7; k++) {
            char *data = next_bytes(1000, 0);
            v = (struct iovec){data, 1000};
            mm.msg_hdr = m;
            if (k == 6)
                pwrite(file, data, 1000, 0);
            off_t from = 0;
            n = k == 0   ? BY(write, s, data, 1000)
                : k == 1 ? BY(writev, s, &v, 1)
                : k == 2 ? BY(sendto, s, data, 1000, 0, NULL, 0)
                : k == 3 ? BY(sendmsg, s, &m, 0)
                : k == 4 ? BY(pwritev2, s, &v, 1, -1l, -1l, 0)
                : k == 5 ? (BY(sendmmsg, s, &mm, 1, 0) == 1 ? (long)mm.msg_len : -1)
                         : BY(sendfile, s, file, &from, 1000);
            if (n != 1000)
                die("a send by number");
            sent += 1000;
        }
        done();
    }
    puts("moved");
    tell("recvfrom nothing", BY(recvfrom, s, b[0], 10, MSG_DONTWAIT, NULL, NULL));
    struct pollfd none = {s, POLLIN, 0};
    tell("ppoll nothing", BY(ppoll, &none, 1, &no_time, NULL, 8));
    soon.tv_sec = 0;
    fd_set in;
    FD_ZERO(&in);
    FD_SET(s, &in);
    tell("select nothing", BY(select, s + 1, &in, NULL, NULL, &soon));
    tell("pread64", BY(pread64, s, b[0], 10, 0l));
    tell("pwrite64", BY(pwrite64, s, b[0], 10, 0l));
    tell("lseek", BY(lseek, s, 0l, SEEK_CUR));
    tell("getpeername", BY(getpeername, s, b[0], &(socklen_t){100}));
    // Descriptors.
    copy = BY(dup, s);
    BY(dup2, s, copy);
    BY(dup3, s, copy, O_CLOEXEC);
    int high = BY(fcntl, s, F_DUPFD, 100);
    BY(close, s);
    order('r', 10);
    BY(write, copy, next_bytes(10, 0), 10);
    sent += 10;
    done();
    BY(close, copy);
    s = high;
    exchange(10);
    // Vector and splice by number; then the end.
    order('s', 50);
    done();
    tell("splice", BY(splice, s, NULL, pair[1], NULL, 50, 0));
    get_all(pair[0], b[0], 50);
    came(b[0], 50, 0);
    exchange(10);
    order('r', 100);
    give(100, 0);
    done();
    tell("shutdown", BY(shutdown, s, SHUT_WR));
    tell("write", BY(sendto, s, "x", 1, MSG_NOSIGNAL, NULL, 0));
}

// ---------------------------------------------------------------- another descriptor by way of a pidfd

static int take_descriptor(int pidfd, int fd, int how) {
    return how ? syscall(SYS_pidfd_getfd, pidfd, fd, 0) : pidfd_getfd(pidfd, fd, 0);
}

static void by_pidfd(void) {
    int self = pidfd_open(getpid(), 0);
    tell("of no process", take_descriptor(-1, s, 0));
    tell("of no descriptor", take_descriptor(self, 999, 1));
    for (int how = 0; how < 2; how++) {
        order('s', 4000); // in the ring
        done();
        int second = take_descriptor(self, s, how);
        if (second < 0)
            die("pidfd_getfd");
        int first = s;
        take(1000, 0);
        s = second;
        take(2000, 0);
        s = first;
        take(1000, 0);
        for (int i = 0; i < 20; i++) {
            s = i % 2 ? first : second;
            exchange(3);
        }
        close(first);
        s = second;
        exchange(10);
    }
    // A descriptor that only a child has still got.
    int start[2];
    char go;
    pipe(start);
    pid_t child = fork();
    if (child == 0) {
        close(start[1]);
        read(start[0], &go, 1);
        _exit(0);
    }
    int of_child = take_descriptor(pidfd_open(child, 0), s, 0), own = s;
    s = of_child;
    exchange(5);
    s = own;
    exchange(5);
    close(of_child);
    close(start[1]);
    waitpid(child, NULL, 0);
    exchange(10);
    puts("taken");
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    connection();
    warm_up();
    if (!strcmp(how, "splice"))
        spliced();
    else if (!strcmp(how, "zerocopy"))
        uncopied();
    else if (!strcmp(how, "async"))
        asynchronous();
    else if (!strcmp(how, "numbers"))
        by_number();
    else if (!strcmp(how, "pidfd"))
        by_pidfd();
    else
        return 2;
    close(control);
    close(s);
    int status;
    if (waitpid(other, &status, 0) != other || status != 0)
        die("the peer");
    puts("ended");
    return 0;
}
