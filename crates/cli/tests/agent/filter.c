// A program that puts itself under a seccomp filter while its TCP connection is live. What the filter does not name kills
// the process. It prints the same on the kernel and under Bypath.
// Usage: filter prctl|number|replaces|strict|failing|epoll|edge|threads|slow|fork|full|beside|stuck|stuck-unseen|stuck-unsent|starved|actions|dirty|whole|pieces|messages|second|reused|later|listener
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "roads_peer.h"
#include "unseen.h"

static void say(const char *what) { put_all(1, what, strlen(what)); }

// What every sandbox needs (but one that writes no more), and what each test adds.
static const int basic[] = {SYS_read, SYS_write, SYS_close, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_wait4};

static int writes_no_more;

static struct sock_fprog filter(const int *more, int n) {
    static struct sock_filter code[80];
    int k = 0;
    code[k++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < (int)(sizeof basic / sizeof *basic) + n; i++) {
        int number = i < n ? more[i] : basic[i - n];
        if (number == SYS_write && writes_no_more)
            continue;
        code[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    return (struct sock_fprog){k, code};
}

static void no_new_privileges(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        die("no_new_privs");
}

static void confine(int by_number, int flags, const int *more, int n) {
    struct sock_fprog f = filter(more, n);
    no_new_privileges();
    int r = by_number ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &f)
                      : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &f);
    if (r != 0)
        die("the filter");
}
#define CONFINE(number, flags, ...)                            \
    do {                                                       \
        static const int more[] = {__VA_ARGS__};               \
        confine(number, flags, more, sizeof more / sizeof *more); \
    } while (0)

// Both directions, small and large, bytes of one way still unread when the next go the other way.
static void exchange(void) {
    for (int i = 0; i < 30; i++) {
        size_t n = i % 10 == 9 ? 300000 : 1 + i * 91;
        order('s', 700);
        order('r', n);
        give(n, 0);
        take(700, 0);
        done();
        done();
    }
    say("exchanged\n");
}

// Bytes that are on their way in both directions when the filter comes.
static void under_way(void) {
    order('s', 20000);
    done();
    take(5000, 0);
    give(9000, 0);
}

static void after(void) {
    take(15000, 0);
    order('r', 9000);
    done();
    exchange();
}

static void waits(int set, uint32_t events) {
    struct pollfd p = {s, POLLIN | POLLOUT, 0};
    if (poll(&p, 1, -1) != 1 || p.revents != POLLOUT)
        die("poll");
    order('s', 100);
    done();
    if (poll(&p, 1, -1) != 1 || p.revents != (POLLIN | POLLOUT))
        die("poll");
    for (int i = 0; i < 20; i++) {
        struct epoll_event e[4];
        // The descriptor, and nothing else that anybody has put there.
        int n = epoll_wait(set, e, 4, -1);
        if (n != 1 || e[0].data.u64 != 42 || !(e[0].events & EPOLLIN) || (e[0].events & ~events))
            die("epoll_wait");
        take(i ? 10 : 100, 0);
        if (i < 19) {
            order('s', 10);
            done();
        }
    }
    say("waited\n");
}

static void epolled(uint32_t flags) {
    int set = epoll_create1(0);
    uint32_t events = EPOLLIN | EPOLLOUT;
    struct epoll_event e = {.events = events | flags, .data.u64 = 42};
    if (!flags)
        e.events = EPOLLIN, events = EPOLLIN;
    epoll_ctl(set, EPOLL_CTL_ADD, s, &e);
    for (int i = 0; i < WARM; i++) {
        order('s', 10);
        done();
        if (epoll_wait(set, &e, 1, -1) != 1)
            die("epoll_wait");
        take(10, 0);
        order('r', 10);
        give(10, 0);
        done();
    }
    order('s', 10);
    done();
    CONFINE(0, 0, SYS_epoll_wait, SYS_poll);
    // These bytes were in a ring; the kernel's set must tell of them. (One edge for both writes.)
    take(10, 0);
    waits(set, events);
    exchange();
}

static int ready[2];

static void *reader(void *arg) {
    char data[500];
    (void)arg;
    write(ready[1], "r", 1);
    get_all(s, data, sizeof data);
    came(data, sizeof data, 0);
    return NULL;
}

static void *poller(void *arg) {
    struct pollfd p = {s, POLLIN, 0};
    (void)arg;
    write(ready[1], "p", 1);
    return (void *)(long)poll(&p, 1, -1);
}

// Threads sleep on the connection while another one confines them all.
static void threads(void) {
    pthread_t t[2];
    void *polled;
    char two[2];
    pipe(ready);
    pthread_create(&t[0], NULL, reader, NULL);
    pthread_create(&t[1], NULL, poller, NULL);
    get_all(ready[0], two, 2);
    // Asleep, or about to be.
    for (int i = 0; i < 20; i++)
        usleep(1000);
    CONFINE(1, SECCOMP_FILTER_FLAG_TSYNC, SYS_poll, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask,
            SYS_restart_syscall);
    // More than the reader takes, so that the other one sees it, too.
    order('s', 600);
    pthread_join(t[0], NULL);
    pthread_join(t[1], &polled);
    done();
    if ((long)polled != 1)
        die("poll in a thread");
    take(100, 0);
    exchange();
}

static void takes_no_notice(int signal) { (void)signal; }

static volatile pid_t slow_one;
static volatile int in_the_middle, goes_on, has_read;

// In the middle of a receive, for longer than who sleeps is waited for.
static void dawdles(int signal) {
    (void)signal;
    if (in_the_middle || gettid() != slow_one)
        return;
    in_the_middle = 1;
    for (int i = 0; i < 5; i++)
        usleep(100000);
    goes_on = 1;
}

static void *slow_reader(void *arg) {
    slow_one = gettid();
    take(900000, 0);
    has_read = 1;
    return arg;
}

// A thread is in the middle of a receive when another one confines them all. Its peer waits for room, and does not hear that its ring is taken back: so it is
// to be woken, for which a program that writes no more has no call.
static void slow(void) {
    pthread_t t;
    int status;
    order('s', 900000);
    pthread_create(&t, NULL, slow_reader, NULL);
    // On the kernel nothing stands in the middle.
    while (!slow_one || (!in_the_middle && getenv("LD_PRELOAD")))
        usleep(1000);
    usleep(3000);
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    say("confined\n");
    writes_no_more = 1;
    // Those of the thread's end, and of the test's own signal and nap.
    CONFINE(1, SECCOMP_FILTER_FLAG_TSYNC, SYS_kill, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask, SYS_restart_syscall,
            SYS_getpid, SYS_gettid, SYS_tgkill, SYS_clock_nanosleep);
    while (in_the_middle && !goes_on)
        usleep(1000);
    usleep(100000);
    kill(other, SIGCONT);
    while (!has_read)
        usleep(1000);
    done();
    kill(other, SIGKILL);
    _exit(0);
}

static volatile int runs_too;

static void *confines_too(void *arg) {
    runs_too = 1;
    while (!in_the_middle && getenv("LD_PRELOAD"))
        usleep(1000);
    for (int i = 0; i < 2; i++)
        usleep(100000);
    CONFINE(1, SECCOMP_FILTER_FLAG_TSYNC, SYS_kill, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask, SYS_restart_syscall,
            SYS_getpid, SYS_gettid, SYS_tgkill, SYS_clock_nanosleep, SYS_prctl, SYS_seccomp);
    return arg;
}

// Two threads confine all at once: what one still has to do the filter of the other one must not forbid.
static void second(void) {
    pthread_t t, u;
    pthread_create(&u, NULL, confines_too, NULL);
    while (!runs_too)
        usleep(1000);
    order('s', 900000);
    pthread_create(&t, NULL, slow_reader, NULL);
    while (!slow_one || (!in_the_middle && getenv("LD_PRELOAD")))
        usleep(1000);
    CONFINE(1, SECCOMP_FILTER_FLAG_TSYNC, SYS_kill, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask, SYS_restart_syscall,
            SYS_getpid, SYS_gettid, SYS_tgkill, SYS_clock_nanosleep, SYS_prctl, SYS_seccomp);
    while (!has_read)
        usleep(1000);
    for (int i = 0; i < 5; i++)
        usleep(100000);
    done();
    exchange();
    kill(other, SIGKILL);
    _exit(0);
}

static volatile int confines;

// Between the end of a sleep and what comes then.
static void is_late(int signal) {
    (void)signal;
    if (in_the_middle || !confines || gettid() != slow_one)
        return;
    for (in_the_middle = 1; !goes_on;)
        sched_yield();
}

static void *waiting_reader(void *arg) {
    char ten[10];
    slow_one = gettid();
    ssize_t n = read(s, ten, sizeof ten);
    // Where the number was looked up anew.
    if (n < 0 && errno == EBADF)
        n = read(s, ten, sizeof ten);
    if (n != sizeof ten)
        die("a read");
    came(ten, sizeof ten, 0);
    return arg;
}

static void *replaces(void *arg) {
    int pair[2], old = s;
    if (pipe(pair) || write(pair[1], "of another", 10) != 10)
        die("a pipe");
    while (!in_the_middle && getenv("LD_PRELOAD"))
        sched_yield();
    s = dup(old);
    if (s < 0 || dup2(pair[0], old) != old)
        die("another number");
    goes_on = 1;
    return arg;
}

// The number of a read that waits is another file's by the time that it is to go on, as the filter came.
static void reused(void) {
    pthread_t t, u;
    pthread_create(&t, NULL, waiting_reader, NULL);
    // Asleep for good: at first it looks around.
    for (int i = 0; i < 5 || !slow_one; i++)
        usleep(100000);
    confines = 1;
    pthread_create(&u, NULL, replaces, NULL);
    usleep(10000);
    CONFINE(0, 0, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask);
    pthread_join(u, NULL);
    order('s', 10);
    pthread_join(t, NULL);
    done();
    exchange();
}

static void *slow_writer(void *arg) {
    slow_one = gettid();
    give(100, 0);
    return arg;
}

// A thread has sent, and is about to say so, when the filter comes: what others read then asks the kernel nothing.
static void dirty(void) {
    pthread_t t;
    char word[5];
    pipe(ready);
    write(ready[1], "words", 5);
    order('r', 100);
    pthread_create(&t, NULL, slow_writer, NULL);
    while (!slow_one || (!in_the_middle && getenv("LD_PRELOAD")))
        usleep(1000);
    CONFINE(0, 0, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask);
    pthread_join(t, NULL);
    if (read(ready[0], word, 5) != 5)
        die("the pipe");
    done();
    exchange();
}

enum { LARGE = 12 << 20 };

static void *large_writer(void *arg) {
    char *all = malloc(LARGE);
    for (size_t at = 0; at < LARGE; at += sizeof bytes, sent += sizeof bytes)
        memcpy(all + at, next_bytes(sizeof bytes, 0), sizeof bytes);
    write(ready[1], "w", 1);
    ssize_t n = write(s, all, LARGE);
    say(n == LARGE ? "all\n" : "less\n");
    return arg;
}

// A send that waits is as long as it was to be, whatever another thread does meanwhile.
static void whole(void) {
    pthread_t t;
    char one;
    int status;
    pipe(ready);
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    order('r', LARGE);
    pthread_create(&t, NULL, large_writer, NULL);
    get_all(ready[0], &one, 1);
    for (int i = 0; i < 3; i++)
        usleep(100000);
    CONFINE(1, SECCOMP_FILTER_FLAG_TSYNC, SYS_kill, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask,
            SYS_restart_syscall);
    kill(other, SIGCONT);
    pthread_join(t, NULL);
    done();
    exchange();
}

static volatile int filled;
static int in_messages;

// With no room at all, a file or messages are sent, whose call waits before it has sent anything.
static void *waiting_writer(void *arg) {
    enum { N = 100000 };
    struct iovec v = {next_bytes(N, 0), N};
    int file = memfd_create("file", 0);
    if (write(file, bytes, N) != N)
        die("the file");
    off_t at = 0;
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
    filled = 2;
    for (size_t left = N; left > 0;) {
        ssize_t n = in_messages ? sendmmsg(s, &m, 1, 0) : sendfile(s, file, &at, left);
        if (n <= 0)
            die(in_messages ? "sendmmsg" : "sendfile");
        if (in_messages)
            n = m.msg_len, v.iov_base = (char *)v.iov_base + n, v.iov_len -= n;
        left -= n;
    }
    sent += N;
    return arg;
}

static void waiting(int messages) {
    pthread_t t;
    int status;
    in_messages = messages;
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    fcntl(s, F_SETFL, O_NONBLOCK);
    uint64_t before = sent;
    for (int vain = 0; vain < 30;) {
        ssize_t n = write(s, next_bytes(4096, 0), 4096);
        if (n > 0)
            sent += n, vain = 0;
        else
            vain++, usleep(10000);
    }
    fcntl(s, F_SETFL, 0);
    order('r', sent - before + 100000);
    pthread_create(&t, NULL, waiting_writer, NULL);
    while (filled != 2)
        usleep(1000);
    for (int i = 0; i < 2; i++)
        usleep(100000);
    // The other thread goes on without a filter.
    CONFINE(0, 0, SYS_kill, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask);
    kill(other, SIGCONT);
    pthread_join(t, NULL);
    done();
    exchange();
}

// What the program installs for a signal afterwards, from memory that nobody has asked about.
static void actions(void) {
    char *fresh = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction *a = (void *)(fresh + 4096 * 100), *old = (void *)(fresh + 4096 * 201 - 16);
    under_way();
    CONFINE(0, 0, SYS_rt_sigaction);
    a->sa_handler = takes_no_notice;
    a->sa_flags = SA_RESTART;
    if (sigaction(SIGTERM, a, NULL))
        die("an action");
    if (sigaction(SIGTERM, NULL, old) || old->sa_handler != takes_no_notice || !(old->sa_flags & SA_RESTART))
        die("the same action");
    after();
}

static void forked(void) {
    under_way();
    CONFINE(1, 0, SYS_clone, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_gettid, SYS_getpid, SYS_rseq);
    int status;
    pid_t child = fork();
    if (child == 0) {
        after();
        _exit(0);
    }
    if (wait4(child, &status, 0, NULL) != child || status != 0)
        die("the child");
}

static volatile int confined, waited;

// Lets the peer go on once the main thread waits for room in its carrier, or has not done so.
static void *makes_room(void *arg) {
    char name[64], text[64];
    snprintf(name, sizeof name, "/proc/self/task/%d/syscall", getpid());
    for (int waiting = 0; !waiting && !confined; sched_yield()) {
        int f = open(name, O_RDONLY);
        ssize_t n = read(f, text, sizeof text - 1);
        close(f);
        text[n > 0 ? n : 0] = 0;
        waiting = text[0] != 'r' && atoi(text) == SYS_ppoll;
    }
    waited = 1;
    kill(other, SIGCONT);
    return arg;
}

static void fills(void) {
    int small = 4608, status;
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    order('r', 60000);
    give(60000, 0);
    set_unseen(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
}

static void *reads_late(void *arg) {
    for (int i = 0; i < 30; i++)
        usleep(100000);
    kill(other, SIGCONT);
    return arg;
}

// The carrier has no room for what is in the ring when the filter comes.
static void full(void) {
    pthread_t t;
    fills();
    pthread_create(&t, NULL, makes_room, NULL);
    CONFINE(0, 0, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask);
    confined = 1;
    pthread_join(t, NULL);
    done();
    exchange();
}

static int first; // the connection that was there before the one that is served so slowly

// In the middle of sending what one carrier takes: the other one has room from now on, and the time to wait for it is over.
static void takes_long(int signal) {
    int large = 1 << 20;
    (void)signal;
    if (!waited || !first)
        return;
    if (set_unseen(first, SOL_SOCKET, SO_SNDBUF, &large, sizeof large))
        die("a larger buffer");
    first = 0;
    for (int i = 0; i < 22; i++)
        usleep(100000);
}

// Two carriers have no room for what is in their rings when the filter comes.
static void beside(void) {
    pthread_t t;
    fills();
    int one = s, its_control = control, status;
    pid_t its_other = other;
    uint64_t to_one = sent, from_one = received;
    sent = received = 0;
    connection();
    warm_up();
    fills();
    first = one;
    signal(SIGUSR2, takes_long);
    pthread_create(&t, NULL, makes_room, NULL);
    CONFINE(0, 0, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask, SYS_kill);
    confined = 1;
    pthread_join(t, NULL);
    kill(other, SIGKILL);
    wait4(other, &status, 0, NULL);
    s = one, control = its_control, other = its_other, sent = to_one, received = from_one;
    kill(other, SIGCONT);
    done();
    exchange();
}

static volatile int opened;

// Its first call that the library sees comes under the filter.
static void *opens_late(void *arg) {
    while (!confined)
        sched_yield();
    int set = epoll_create1(0);
    say(set >= 0 && !close(set) && !unshare(0) ? "done\n" : "not done\n");
    opened = 1;
    for (;;)
        sched_yield();
    return arg;
}

static void later(void) {
    pthread_t t;
    under_way();
    pthread_create(&t, NULL, opens_late, NULL);
    CONFINE(1, SECCOMP_FILTER_FLAG_TSYNC, SYS_epoll_create1, SYS_unshare, SYS_sched_yield, SYS_rt_sigprocmask, SYS_set_robust_list, SYS_rseq);
    confined = 1;
    while (!opened)
        sched_yield();
    after();
}

static volatile int written;

// The other thread may make no more calls than that.
static void *ends_both(void *arg) {
    while (!written)
        usleep(1000);
    kill(other, SIGKILL);
    _exit(0);
    return arg;
}

// Nobody reads what was sent, and the carrier's buffer has become smaller than a ring, or may have less that is not sent yet.
static void stuck(const char *what) {
    int small = 16384, status;
    pthread_t t;
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    if (!strcmp(what, "-unsent"))
        setsockopt(s, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &small, sizeof small);
    else if (!strcmp(what, "-unseen"))
        set_unseen(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    else
        setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    fcntl(s, F_SETFL, O_NONBLOCK);
    for (int vain = 0; vain < 50;)
        if (write(s, bytes, 4096) > 0)
            vain = 0;
        else
            vain++, usleep(10000);
    pthread_create(&t, NULL, ends_both, NULL);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        die("strict mode");
    // The last segment may have room for some.
    ssize_t k = 1;
    for (int i = 0; i < 50 && k > 0; i++)
        k = write(s, bytes, 4096);
    say(k > 0 ? "took more\n" : errno == EAGAIN ? "would wait\n" : errno == ECONNRESET ? "reset\n" : "an error\n");
    written = 1;
    syscall(SYS_exit, 0);
}

// Whoever lives longest gives the host's TCP its memory back: at a word by the pipe, or at its end.
static int starve(void) {
    char before[64] = "", word;
    int limits = open("/proc/sys/net/ipv4/tcp_mem", O_RDWR | O_CLOEXEC), ends[2];
    ssize_t n = read(limits, before, sizeof before);
    if (n <= 0 || pipe(ends))
        die("tcp_mem");
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        while (read(ends[0], &word, 1) < 0 && errno == EINTR)
            ;
        _exit(pwrite(limits, before, n, 0) != n);
    }
    close(ends[0]);
    if (pwrite(limits, "1 1 1", 5, 0) != 5)
        die("less of tcp_mem");
    close(limits);
    return ends[1];
}

// The host has no memory left for TCP when the filter comes, and nobody reads for longer than is waited for.
static void starved(void) {
    pthread_t t;
    int status;
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    order('r', 200000);
    give(200000, 0);
    int fed = starve();
    pthread_create(&t, NULL, reads_late, NULL);
    CONFINE(0, 0, SYS_futex, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask, SYS_clock_nanosleep, SYS_kill);
    pthread_join(t, NULL);
    close(fed);
    done();
    exchange();
}

// What comes after the filter is not followed.
static void listener(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, len) || listen(l, 4) || getsockname(l, (void *)&a, &len))
        die("listen");
    CONFINE(0, 0, SYS_accept, SYS_socket, SYS_connect, SYS_recvfrom, SYS_sendto, SYS_sendmsg, SYS_epoll_create1,
            SYS_epoll_ctl, SYS_dup, SYS_fcntl);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c, (void *)&a, len))
        die("connect");
    int o = accept(l, NULL, NULL), set = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, o, &e);
    char word[32];
    for (int i = 0; i < 200; i++) {
        struct iovec v = {"bytes", 5};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
        if (i % 3 == 0 ? sendmsg(c, &m, 0) != 5 : send(c, "bytes", 5, 0) != 5)
            die("send");
        if (recv(o, word, sizeof word, 0) != 5 || memcmp(word, "bytes", 5))
            die("recv");
    }
    close(dup(o));
    fcntl(o, F_SETFL, O_NONBLOCK);
    say(recv(o, word, sizeof word, 0) == -1 && errno == EAGAIN ? "served\n" : "not served\n");
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    narrow = !strcmp(how, "full") || !strcmp(how, "beside") || !strncmp(how, "stuck", 5) ? 10000 : 0;
    if (!strcmp(how, "slow") || !strcmp(how, "second") || !strcmp(how, "dirty"))
        signal(SIGUSR2, dawdles);
    if (!strcmp(how, "reused"))
        signal(SIGUSR2, is_late);
    connection();
    warm_up();
    if (!strcmp(how, "prctl") || !strcmp(how, "number")) {
        under_way();
        CONFINE(how[0] == 'n', 0, SYS_poll);
        after();
    } else if (!strcmp(how, "replaces")) {
        under_way();
        CONFINE(0, 0, SYS_poll, SYS_dup2, SYS_close_range);
        after();
        if (dup2(s, 60) != 60 || close(60) != 0 || close(0) != 0 || dup2(s, 0) != 0 || syscall(SYS_close_range, 0, 0, 0))
            die("other numbers");
    } else if (!strcmp(how, "strict")) {
        under_way();
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
            die("strict mode");
        after();
        // It may read, write and end one thread, and nothing else.
        say("ended\n");
        syscall(SYS_exit, 0);
    } else if (!strcmp(how, "failing")) {
        // Questions, and a filter that the kernel refuses.
        printf("%d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
        printf("%ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
        printf("%ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
        printf("%d\n", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
        fflush(stdout);
        exchange();
    } else if (!strcmp(how, "epoll")) {
        epolled(0);
    } else if (!strcmp(how, "edge")) {
        epolled(EPOLLET);
    } else if (!strcmp(how, "threads")) {
        threads();
    } else if (!strcmp(how, "slow")) {
        slow();
    } else if (!strcmp(how, "fork")) {
        forked();
    } else if (!strcmp(how, "full")) {
        full();
    } else if (!strcmp(how, "beside")) {
        beside();
    } else if (!strncmp(how, "stuck", 5)) {
        stuck(how + 5);
    } else if (!strcmp(how, "starved")) {
        starved();
    } else if (!strcmp(how, "actions")) {
        actions();
    } else if (!strcmp(how, "dirty")) {
        dirty();
    } else if (!strcmp(how, "whole")) {
        whole();
    } else if (!strcmp(how, "pieces") || !strcmp(how, "messages")) {
        waiting(how[0] == 'm');
    } else if (!strcmp(how, "second")) {
        second();
    } else if (!strcmp(how, "reused")) {
        reused();
    } else if (!strcmp(how, "later")) {
        later();
    } else if (!strcmp(how, "listener")) {
        listener();
    } else {
        return 2;
    }
    close(control);
    close(s);
    int status;
    if (wait4(other, &status, 0, NULL) != other || status != 0)
        die("the peer");
    say("ended\n");
    _exit(0);
}
