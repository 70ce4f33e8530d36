// Signals and cancellation over one TCP connection of this host. The same program runs with and without the library;
// what it prints must be the same. Usage: signals TEST, prints lines.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "signals_peer.h"

#include "signals_interrupted.h"
#include "signals_files.h"
#include "signals_several.h"

// ---------------------------------------------------------------- what sigaction says, masks, siginfo

static void other(int n) { (void)n; }
static volatile sig_atomic_t value, code, on_stack;
static char stack[1 << 16];

static void detailed(int n, siginfo_t *i, void *context) {
    char here;
    (void)n, (void)context;
    ran++;
    value += i->si_value.sival_int;
    code = i->si_code;
    on_stack = &here >= stack && &here < stack + sizeof stack;
}

static void registration(void) {
    struct sigaction old, a = {.sa_handler = count};
    printf("first: %d\n", signal(SIGUSR1, other) == SIG_DFL);
    printf("second: %d\n", signal(SIGUSR1, count) == other);
    sigaction(SIGUSR1, &a, &old);
    printf("third: %d %d\n", old.sa_handler == count, (old.sa_flags & SA_RESTART) != 0);
    sigaction(SIGUSR1, NULL, &old);
    printf("asked: %d %d\n", old.sa_handler == count, (old.sa_flags & SA_RESTART) != 0);
    printf("ignored: %d\n", signal(SIGUSR1, SIG_IGN) == count);
    printf("default: %d\n", signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    sigaction(SIGUSR1, NULL, &old);
    printf("asked: %d\n", old.sa_handler == SIG_DFL);
    printf("kill: %d %d\n", sigaction(SIGKILL, &a, NULL), errno);
    printf("wrong: %d %d\n", sigaction(999, &a, NULL), errno);
    a.sa_flags = SA_RESETHAND;
    sigaction(SIGUSR1, &a, NULL);
    raise(SIGUSR1);
    sigaction(SIGUSR1, NULL, &old);
    printf("once: %d %d\n", (int)ran, old.sa_handler == SIG_DFL);
    ran = 0;
    signal(SIGUSR1, count);
    if (fork() == 0) {
        printf("child: %d\n", signal(SIGUSR1, other) == count);
        raise(SIGUSR1);
        printf("child: %d\n", (int)ran);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    pid_t p = vfork();
    if (p == 0) {
        signal(SIGUSR1, SIG_DFL);
        _exit(0);
    }
    waitpid(p, NULL, 0);
    raise(SIGUSR1);
    printf("after vfork: %d\n", (int)ran);
}

static void masks(void) {
    sigset_t none, usr1;
    char buf[64];
    struct epoll_event e = {.events = EPOLLIN};
    struct timespec zero = {0, 0};
    int ep = epoll_create1(0);
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    install(SIGUSR1, count, SA_RESTART);
    for (int ready = 0; ready < 2; ready++) {
        if (ready) {
            order('s', 0, 10);
            recv(s, buf, 1, MSG_PEEK);
        }
        for (int i = 0; i < 3; i++) {
            struct pollfd p = {s, POLLIN, 0};
            fd_set in;
            FD_ZERO(&in);
            FD_SET(s, &in);
            raise(SIGUSR1);
            ssize_t r = i == 0   ? ppoll(&p, 1, NULL, &none)
                        : i == 1 ? pselect(s + 1, &in, NULL, NULL, NULL, &none)
                                 : epoll_pwait(ep, &e, 1, -1, &none);
            result(ready ? "pending and ready" : "pending", r);
            sigset_t pending;
            sigpending(&pending);
            printf("still pending: %d\n", sigismember(&pending, SIGUSR1));
            sigtimedwait(&usr1, NULL, &zero);
        }
    }
    // Blocked during the wait only.
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
    all(s, buf, 10, 0);
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    install(SIGALRM, count, 0);
    struct pollfd p = {s, POLLIN, 0};
    order('s', LATER_MS, 10);
    alarm_in(SOON_US, 0);
    result("masked", ppoll(&p, 1, NULL, &alarm_only));
}

static void *pester(void *arg) {
    pthread_t main_thread = *(pthread_t *)arg;
    for (int i = 1; i <= 2000; i++) {
        union sigval v = {.sival_int = i};
        while (pthread_sigqueue(main_thread, SIGRTMIN + 3, v) == EAGAIN)
            usleep(1000);
        if (i % 16 == 0)
            usleep(50);
    }
    return NULL;
}

// Signals with data, sent while the connection is busy: each arrives once, with its data, on the right stack.
static void information(void) {
    pthread_t self = pthread_self(), t;
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    char buf[4096];
    uint64_t got[2];
    sigaltstack(&alternate, NULL);
    sigaction(SIGRTMIN + 3, &a, NULL);
    order('e', 0, 0);
    pthread_create(&t, NULL, pester, &self);
    for (int i = 0; i < 20000 || ran < 2000; i++) {
        all(s, buf, 100, 1);
        all(s, buf, 100, 0);
    }
    pthread_join(t, NULL);
    shutdown(s, SHUT_WR);
    answer(got);
    printf("%d signals, sum %d, code %d, on the stack %d\n", (int)ran, (int)value, (int)code, (int)on_stack);
}

// ---------------------------------------------------------------- storms: a timer over every call

static int act; // what the handler does
static sigjmp_buf back;
static volatile sig_atomic_t may_jump, jumps;
static volatile long handler_sent, handler_received, handler_forks;

static void storm(int n) {
    int saved = errno;
    char c = 'H';
    (void)n;
    ran++;
    switch (act) {
    case 's': // send on the same connection
        if (send(s, &c, 1, 0) == 1)
            handler_sent++;
        break;
    case 'd':
        if (send(s, &c, 1, MSG_DONTWAIT) == 1)
            handler_sent++;
        break;
    case 'r':
        if (recv(s, &c, 1, MSG_DONTWAIT) == 1)
            handler_received++;
        break;
    case 'p': {
        struct pollfd p = {s, POLLIN | POLLOUT, 0};
        poll(&p, 1, 0);
        break;
    }
    case 'f':
        if (ran % 50 == 0) {
            pid_t p = fork();
            if (p == 0)
                _exit(7);
            int status;
            while (waitpid(p, &status, 0) == -1 && errno == EINTR)
                ;
            if (WEXITSTATUS(status) == 7)
                handler_forks++;
        }
        break;
    case 'j':
        if (may_jump) {
            may_jump = 0;
            jumps++;
            errno = saved;
            siglongjmp(back, 1);
        }
    }
    errno = saved;
}

// Writes to a peer that counts, under a storm whose handler sends as well.
static void writes_under(char what, int flags) {
    uint64_t got[2];
    long sent = 0;
    act = what;
    memset(big, 'M', sizeof big);
    install(SIGALRM, storm, flags);
    install(SIGUSR2, storm, flags); // from marked points
    order('c', 0, 0);
    alarm_in(200, 200);
    for (int i = 0; sent < 60000000 || (ran < 200 && i < 10000000); i++) {
        size_t n = i % 3 == 0 ? 64 : i % 3 == 1 ? 5000 : 70000;
        ssize_t k = send(s, big, n, 0);
        if (k > 0)
            sent += k;
        else if (errno != EINTR)
            die("send");
    }
    alarm_in(0, 0);
    shutdown(s, SHUT_WR);
    answer(got);
    printf("storm %c: enough handlers %d, all of mine %d, all of its %d\n", what, ran >= 200,
           got[0] == (uint64_t)sent, got[1] == (uint64_t)handler_sent);
    if (got[0] != (uint64_t)sent || got[1] != (uint64_t)handler_sent)
        fprintf(stderr, "sent %ld and %ld, arrived %ju and %ju\n", sent, handler_sent, got[0], got[1]);
}

static void *reader(void *arg) {
    static char buf[1 << 16];
    long *received = arg;
    for (ssize_t k; (k = read(s, buf, sizeof buf)) != 0;) {
        if (k > 0)
            *received += k;
        else if (errno != EINTR)
            die("reader");
    }
    return NULL;
}

// Echo under a storm: a thread reads, or this one in turn.
static void echoes_under(char what, int flags, int threaded) {
    uint64_t got[2];
    long sent = 0, received = 0;
    pthread_t t;
    act = what;
    memset(big, 'M', sizeof big);
    install(SIGALRM, storm, flags);
    install(SIGUSR2, storm, flags); // from marked points
    order('e', 0, 0);
    if (threaded)
        pthread_create(&t, NULL, reader, &received);
    alarm_in(200, 200);
    for (int i = 0; sent < 20000000 || (ran < 200 && i < 10000000); i++) {
        size_t n = i % 3 == 0 ? 64 : i % 3 == 1 ? 900 : 20000;
        ssize_t k = send(s, big, n, 0);
        if (k < 0 && errno != EINTR)
            die("send");
        if (k > 0)
            sent += k;
        struct epoll_event e = {.events = EPOLLIN};
        static int ep = -1;
        if (!threaded && i % 5 == 0) {
            if (ep == -1) {
                ep = epoll_create1(0);
                epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
            }
            epoll_wait(ep, &e, 1, 0);
        }
        while (!threaded && received + handler_received < sent) {
            struct pollfd p = {s, POLLIN, 0};
            if (i % 2 && poll(&p, 1, 10) <= 0)
                continue;
            ssize_t r = recv(s, big + (1 << 19), 1 << 19, what == 'r' ? MSG_DONTWAIT : 0);
            if (r > 0)
                received += r;
            else if (r == 0 || (errno != EINTR && errno != EAGAIN))
                die("recv");
        }
    }
    alarm_in(0, 0);
    shutdown(s, SHUT_WR);
    if (threaded)
        pthread_join(t, NULL);
    answer(got);
    printf("echo %c: enough handlers %d, everything came back %d, handler's part %d\n", what, ran >= 200,
           received + handler_received == sent && got[0] == (uint64_t)sent,
           what == 'f' ? handler_forks > 0 : what == 'r');
    if (received + handler_received != sent)
        fprintf(stderr, "sent %ld, received %ld and %ld\n", sent, received, handler_received);
}

// A handler leaves calls by siglongjmp. What a call was doing then is not known, but the connection lives: afterwards
// everything goes both ways, and nothing hangs.
static void leaves(void) {
    uint64_t got[2];
    act = 'j';
    memset(big, 'M', sizeof big);
    install(SIGALRM, storm, SA_NODEFER);
    install(SIGUSR2, storm, SA_NODEFER);
    int ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    for (volatile int i = 0; i < 400; i++) {
        if (sigsetjmp(back, 1) == 0) {
            may_jump = 1;
            alarm_in(100 + i % 7 * 37, 0);
            char c;
            struct pollfd p = {s, POLLIN, 0};
            while (may_jump) {
                switch (i % 4) {
                case 0: recv(s, &c, 1, 0); break;
                case 1: poll(&p, 1, -1); break;
                case 2: epoll_wait(ep, &e, 1, -1); break;
                default: recv(s, &c, 1, MSG_DONTWAIT);
                }
            }
        }
        may_jump = 0;
    }
    printf("jumped %d\n", (int)jumps == 400);
    signal(SIGALRM, SIG_IGN);
    order('e', 0, 0);
    for (int i = 0; i < 1000; i++) {
        all(s, big, 1000, 1);
        all(s, big + 5000, 1000, 0);
    }
    struct pollfd p = {s, POLLIN, 0};
    printf("quiet %d\n", poll(&p, 1, 0));
    shutdown(s, SHUT_WR);
    answer(got);
    printf("end %zd, %ju\n", read(s, big, 1), got[0]);
}

// A child goes on with the connection under a storm of its own, and finds no signal blocked.
static void in_a_child(void) {
    sigset_t mask;
    int status;
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        echoes_under('p', SA_RESTART, 0);
        ran = 0;
        raise(SIGALRM);
        sigprocmask(SIG_BLOCK, NULL, &mask);
        printf("child: %d handlers ran, blocked %d\n", (int)ran, !sigisemptyset(&mask));
        fflush(stdout);
        _exit(0);
    }
    waitpid(p, &status, 0);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf("parent: %d blocked, child %d\n", !sigisemptyset(&mask), status);
}

// ---------------------------------------------------------------- SIGIO, SIGURG

static void notified(void) {
    char buf[64];
    install(SIGIO, count, SA_RESTART);
    fcntl(s, F_SETOWN, getpid());
    fcntl(s, F_SETFL, fcntl(s, F_GETFL) | O_ASYNC);
    order('s', 20, 10);
    for (int i = 0; i < 500 && ran == 0; i++)
        usleep(10000);
    printf("notified %d\n", ran > 0);
    all(s, buf, 10, 0);
}

// ---------------------------------------------------------------- pthread_cancel

static pthread_barrier_t there;
static volatile int cleaned, way;

static void clean(void *arg) {
    (void)arg;
    cleaned++;
}

static void *blocked(void *arg) {
    char buf[64];
    struct iovec v = {buf, sizeof buf};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct pollfd p = {s, POLLIN, 0};
    struct epoll_event e = {.events = EPOLLIN};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(s, &in);
    int ep = epoll_create1(0);
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    *(int *)arg = ep;
    pthread_cleanup_push(clean, NULL);
    pthread_barrier_wait(&there);
    switch (way) {
    case 0: read(s, buf, 64); break;
    case 1: readv(s, &v, 1); break;
    case 2: recv(s, buf, 64, 0); break;
    case 3: recvmsg(s, &m, 0); break;
    case 4: poll(&p, 1, -1); break;
    case 5: ppoll(&p, 1, NULL, NULL); break;
    case 6: select(s + 1, &in, NULL, NULL, NULL); break;
    case 7: epoll_wait(ep, &e, 1, -1); break;
    case 8: // never has to wait
        for (;;)
            recv(s, buf, 64, MSG_DONTWAIT);
    case 9: // waits for room
        for (;;)
            send(s, big, 50000, 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *protected(void *arg) {
    char buf[64];
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_barrier_wait(&there);
    printf("protected: %zd\n", recv(s, buf, 64, 0));
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    recv(s, buf, 64, 0);
    return arg;
}

static volatile int go_on;

// A thread that makes its first call after it was cancelled: one that waits, or many that do not.
static void *computes(void *arg) {
    char buf[64];
    pthread_barrier_wait(&there);
    while (!go_on)
        ;
    if (arg)
        recv(s, buf, 64, 0);
    for (int i = 0; i < 1000 && !arg; i++)
        recv(s, buf, 64, MSG_DONTWAIT);
    return arg;
}

static void cancels(void) {
    const char *names[] = {"read", "readv", "recv", "recvmsg", "poll", "ppoll", "select", "epoll_wait", "busy", "full"};
    pthread_barrier_init(&there, NULL, 2);
    uint64_t got[2];
    char buf[64];
    for (int early = 0; early < 2; early++)
        for (way = 0; way < 9; way++) {
            pthread_t t;
            void *r;
            int ep;
            pthread_create(&t, NULL, blocked, &ep);
            pthread_barrier_wait(&there);
            if (!early)
                usleep(SOON_US);
            pthread_cancel(t);
            pthread_join(t, &r);
            close(ep);
            // The connection is whole: nobody took its bytes, and it still moves some.
            order('s', 0, 10);
            order('r', 0, 10);
            all(s, buf, 10, 0);
            all(s, buf, 10, 1);
            answer(got);
            printf("%s: canceled %d, cleaned %d\n", names[way], r == PTHREAD_CANCELED, cleaned);
        }
    pthread_t t;
    void *r;
    pthread_create(&t, NULL, protected, NULL);
    pthread_barrier_wait(&there);
    usleep(SOON_US);
    pthread_cancel(t);
    order('s', LATER_MS, 10);
    pthread_join(t, &r);
    printf("then: canceled %d\n", r == PTHREAD_CANCELED);
    for (int waits = 0; waits < 2; waits++)
        // More of them than are remembered at a time.
        for (int i = 0; i < 400; i++) {
            go_on = 0;
            pthread_create(&t, NULL, computes, waits ? &there : NULL);
            pthread_barrier_wait(&there);
            pthread_cancel(t);
            go_on = 1;
            pthread_join(t, &r);
            if (r != PTHREAD_CANCELED)
                printf("computes %d: not canceled\n", waits);
        }
    int ep;
    way = 9;
    pthread_create(&t, NULL, blocked, &ep);
    pthread_barrier_wait(&there);
    usleep(10 * SOON_US);
    pthread_cancel(t);
    pthread_join(t, &r);
    printf("%s: canceled %d, cleaned %d\n", names[way], r == PTHREAD_CANCELED, cleaned);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    char *t = argc > 1 ? argv[1] : "";
    alarm(LIFETIME);
    signal(SIGUSR2, SIG_IGN); // raised at marked points, until a test has a handler for it
    if (!strcmp(t, "registration")) {
        alarm(0);
        registration();
        return 0;
    }
    connection();
    alarm(0);
    // The end of a test that hangs.
    timer_t limit_timer;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU};
    struct itimerspec life = {{0, 0}, {LIFETIME, 0}};
    timer_create(CLOCK_MONOTONIC, &ev, &limit_timer);
    timer_settime(limit_timer, 0, &life, NULL);
    if (!strcmp(t, "interruptions")) interruptions();
    else if (!strcmp(t, "files")) files(0);
    else if (!strcmp(t, "files-restart")) files(SA_RESTART);
    else if (!strcmp(t, "several")) several_messages();
    else if (!strcmp(t, "mixed")) mixed();
    else if (!strcmp(t, "masks")) masks();
    else if (!strcmp(t, "information")) information();
    else if (!strcmp(t, "leaves")) leaves();
    else if (!strcmp(t, "notified")) notified();
    else if (!strcmp(t, "cancels")) cancels();
    else if (!strcmp(t, "sends")) writes_under('s', SA_RESTART);
    else if (!strcmp(t, "sends-eintr")) writes_under('s', 0);
    else if (!strcmp(t, "sends-nowait")) writes_under('d', 0);
    else if (!strcmp(t, "polls")) echoes_under('p', SA_RESTART, 0);
    else if (!strcmp(t, "forks")) echoes_under('f', 0, 0);
    else if (!strcmp(t, "receives")) echoes_under('r', 0, 0);
    else if (!strcmp(t, "child")) in_a_child();
    else if (!strcmp(t, "threads")) echoes_under('p', 0, 1);
    else return 2;
    return 0;
}
