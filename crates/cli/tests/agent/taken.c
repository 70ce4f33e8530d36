// A descriptor of one end of a TCP connection is taken by a third process (pidfd_getfd) while bytes are under way. This
// program is one end, a child that obeys orders is the other one and the owner, and the taker is a program of its own, or a
// relative. Prints the same on the kernel and under Bypath.
// Usage: taken flight|blocked|polls|epolls|busy|stopped|killed|cold|heir|closed|self [kin|users]
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "roads_peer.h"

// ---------------------------------------------------------------- the taker

struct command {
    char what; // 't' take descriptor n of process pid, 's' send n, 'r' receive n, 'n' receive what is there, 'c' close
    int pid;
    uint32_t n;
    uint64_t position; // of the stream
};

static int to_taker = -1;
static pid_t taker;
static uint64_t taken_sent, taken_received; // what went through the owner's end, whoever moved it

static long elapsed(const struct timespec *since) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
}

static void serve_commands(int from) {
    struct command c;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int turn = 0; read(from, &c, sizeof c) == sizeof c; turn++) {
        long answer = 0;
        if (c.what == 't') {
            int pidfd = pidfd_open(c.pid, 0);
            struct timespec begin;
            clock_gettime(CLOCK_MONOTONIC, &begin);
            s = turn % 2 ? syscall(SYS_pidfd_getfd, pidfd, c.n, 0) : pidfd_getfd(pidfd, c.n, 0);
            if (s == -1)
                die("pidfd_getfd");
            close(pidfd);
            answer = elapsed(&begin);
        } else if (c.what == 's') {
            sent = c.position;
            give(c.n, 1);
        } else if (c.what == 'r') {
            received = c.position;
            take(c.n, 1);
        } else {
            close(s);
        }
        if (write(from, &answer, sizeof answer) != sizeof answer)
            die("the taker's answer");
    }
    _exit(0);
}

static void start_taker(const char *self, int kin) {
    int two[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, two))
        die("socketpair");
    if (kin)
        // Whoever is forked from here on is of one family.
        close(socket(AF_INET, SOCK_STREAM, 0));
    if ((taker = fork()) == 0) {
        char number[16];
        alarm(LIFETIME);
        close(two[0]);
        if (kin)
            serve_commands(two[1]);
        snprintf(number, sizeof number, "%d", two[1]);
        execl(self, self, "serve", number, NULL);
        die("exec");
    }
    close(two[1]);
    to_taker = two[0];
}

static int aside; // this program waits in a way that the library does not see

static ssize_t get_answer(long *answer) {
    if (!aside)
        return read(to_taker, answer, sizeof *answer);
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(SYS_read), "D"((long)to_taker), "S"(answer), "d"(sizeof *answer)
                     : "rcx", "r11", "memory");
    return r;
}

static long command_at(char what, uint32_t n, int pid, uint64_t position) {
    struct command c = {what, pid, n, position};
    long answer;
    if (write(to_taker, &c, sizeof c) != sizeof c || get_answer(&answer) != sizeof answer)
        die("the taker is gone");
    return answer;
}

enum { OWNERS_NUMBER = 77 }; // of its descriptor

static long taker_takes(void) {
    long ms = command_at('t', OWNERS_NUMBER, other, 0);
    if (ms > 5000)
        die("taking a descriptor took too long");
    return ms;
}

static void taker_sends(size_t n) {
    command_at('s', n, 0, taken_sent);
    taken_sent += n;
}

static void taker_receives(size_t n) {
    command_at('r', n, 0, taken_received);
    taken_received += n;
}

// ---------------------------------------------------------------- the owner, who obeys

enum { KNOW_SENT = 1 << 28, KNOW_RECEIVED = 2 << 28, POLLED = 3 << 28, EPOLLED = 4 << 28, CLOSED = 5 << 28, NUMBERED = 6 << 28 };

static void obey_more(uint32_t n) {
    uint32_t amount = n & ((1 << 28) - 1);
    switch (n - amount) {
    case KNOW_SENT:
        sent += amount;
        break;
    case KNOW_RECEIVED:
        received += amount;
        break;
    case POLLED: {
        struct pollfd p = {s, POLLIN, 0};
        if (poll(&p, 1, 30000) != 1)
            die("poll");
        take(amount, 1);
        break;
    }
    case EPOLLED: {
        int set = epoll_create1(0);
        struct epoll_event e = {.events = EPOLLIN | EPOLLET};
        if (epoll_ctl(set, EPOLL_CTL_ADD, s, &e) || epoll_wait(set, &e, 1, 30000) != 1)
            die("epoll");
        take(amount, 1);
        close(set);
        break;
    }
    case NUMBERED:
        // Also where it is stopped.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to_taker);
        if ((uint32_t)s != amount) {
            dup2(s, amount);
            close(s);
            s = amount;
        }
        break;
    case CLOSED:
        close(s);
        break;
    }
}

static void owner_starts_sending(size_t n) {
    order('s', n);
    taken_sent += n;
}

static void owner_starts_receiving(size_t n) {
    order('r', n);
    taken_received += n;
}

static void owner_sends(size_t n) {
    owner_starts_sending(n);
    done();
}

// What the taker moved has moved the owner's place in the streams.
static void owner_knows(size_t more_sent, size_t more_received) {
    order('x', KNOW_SENT | more_sent);
    done();
    order('x', KNOW_RECEIVED | more_received);
    done();
}

// Until it sleeps, waiting for an event that has not come.
static void owner_sleeps(void) {
    char path[40], text[256], state;
    snprintf(path, sizeof path, "/proc/%d/stat", other);
    do {
        FILE *f = fopen(path, "r");
        if (f == NULL || fgets(text, sizeof text, f) == NULL || sscanf(strrchr(text, ')'), ") %c", &state) != 1)
            die("the owner's state");
        fclose(f);
    } while (state != 'S' && state != 'T');
}

// Another user from now on, of whom root, the taker, may have descriptors all the same.
static void become(uid_t user) {
    if (user != 0 && setuid(user))
        die("setuid");
    prctl(PR_SET_DUMPABLE, 1);
}

static uid_t owners_user, own_user; // 0 = as it was started

// As in roads_peer.h, but of two families: the child makes its first socket after the fork.
static void connection_of_strangers(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int two[2], one = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two))
        die("socketpair");
    if ((other = fork()) == 0) {
        alarm(LIFETIME);
        control = two[1];
        close(two[0]);
        become(owners_user);
        get_all(control, (char *)&a, sizeof a);
        // Born with that number; that of a relative is another one's copy.
        while ((s = socket(AF_INET, SOCK_STREAM, 0)) < OWNERS_NUMBER)
            dup2(0, s);
        if (connect(s, (void *)&a, len))
            die("connect");
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        obey();
    }
    control = two[0];
    close(two[1]);
    become(own_user);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len))
        die("listen");
    put_all(control, (char *)&a, sizeof a);
    s = accept(l, NULL, NULL);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(l);
    alarm(LIFETIME);
}

static void owner_exchanges(int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t n = i % 10 == 9 ? 200000 : 1 + i * 91;
        owner_starts_receiving(n);
        give(n, 0);
        done();
        owner_starts_sending(700);
        take(700, 0);
        done();
    }
}

static void taker_exchanges(int rounds) {
    size_t both = 0;
    for (int i = 0; i < rounds; both += 100 + i++) {
        give(100 + i, 0);
        taker_receives(100 + i);
        taker_sends(100 + i);
        take(100 + i, 0);
    }
    owner_knows(both, both);
}

// ---------------------------------------------------------------- what may go on meanwhile

// Bytes of both directions are under way, and nobody reads.
static void in_flight(void) {
    for (int i = 0; i < 2; i++) {
        owner_sends(3000);
        give(4000, 0);
        taker_takes();
        taker_receives(1000);
        taker_sends(1500);
        taker_receives(3000);
        take(4500, 0);
        owner_knows(1500, 4000);
        taker_exchanges(10);
        owner_exchanges(20);
        command_at('c', 0, 0, 0);
    }
}

// The owner waits for bytes, in one way or another.
static void blocked(uint32_t how) {
    if (how == 0)
        owner_starts_receiving(300);
    else
        order('x', how | 300), taken_received += 300;
    owner_sleeps();
    taker_takes();
    give(300, 0);
    done();
    give(500, 0);
    taker_receives(500);
    taker_sends(20);
    take(20, 0);
    owner_knows(20, 500);
    taker_exchanges(5);
    owner_exchanges(20);
}

// Streams in both directions, one after the other, while it is taken.
static void busy(void) {
    enum { PIECES = 8, PIECE = 1 << 20 };
    for (int i = 0; i < PIECES; i++)
        owner_starts_receiving(PIECE);
    for (int i = 0; i < PIECES; i++) {
        if (i == PIECES / 2)
            taker_takes();
        give(PIECE, 0);
    }
    for (int i = 0; i < PIECES; i++)
        done();
    for (int i = 0; i < PIECES; i++)
        owner_starts_sending(PIECE);
    for (int i = 0; i < PIECES; i++) {
        if (i == PIECES / 2) {
            command_at('c', 0, 0, 0);
            taker_takes();
        }
        take(PIECE, 0);
    }
    for (int i = 0; i < PIECES; i++)
        done();
    taker_exchanges(10);
}

// The owner cannot do anything, and this end does only what it was asked to, at its next call.
static void stopped(int signal) {
    owner_sends(3000);
    give(2000, 0);
    aside = 1;
    kill(other, SIGSTOP);
    siginfo_t info;
    waitid(P_PID, other, &info, WSTOPPED);
    taker_takes();
    if (signal == SIGKILL) {
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
    }
    struct pollfd p = {s, POLLOUT, 0};
    poll(&p, 1, 0);
    taker_sends(1500);
    taker_receives(2000);
    aside = 0;
    take(4500, 0);
    if (signal == SIGKILL) {
        for (int i = 0; i < 10; i++) {
            give(10, 0);
            taker_receives(10);
            taker_sends(10);
            take(10, 0);
        }
        give(10000, 0);
        command_at('c', 0, 0, 0);
        // It closed with bytes unread.
        char byte;
        printf("end: %zd\n", read(s, &byte, 1));
        printf("%s\n", strerrorname_np(errno));
        return;
    }
    kill(other, SIGCONT);
    owner_knows(1500, 2000);
    owner_exchanges(20);
    taker_exchanges(10);
}

// Nothing has gone through it yet, and nothing may go through a ring later.
static void cold(void) {
    taker_takes();
    taker_exchanges(5);
    owner_exchanges(50);
    command_at('c', 0, 0, 0);
    owner_exchanges(50);
}

// The owner goes, the taker stays.
static void heir(void) {
    owner_sends(3000);
    give(2000, 0);
    taker_takes();
    close(control);
    waitpid(other, NULL, 0);
    taker_receives(2000);
    taker_sends(1000);
    take(4000, 0);
    shutdown(s, SHUT_WR);
    command_at('c', 0, 0, 0);
    char byte;
    printf("end: %zd\n", read(s, &byte, 1));
}

// The taker goes, and the owner closes in the end.
static void closed(void) {
    char byte;
    taker_takes();
    give(50, 0);
    taker_receives(50);
    owner_knows(0, 50);
    close(to_taker);
    waitpid(taker, NULL, 0);
    owner_exchanges(30);
    owner_sends(5000);
    order('x', CLOSED);
    done();
    take(5000, 0);
    printf("end: %zd\n", read(s, &byte, 1));
}

// The taker is at the other end of the connection.
static void self(void) {
    owner_sends(3000);
    give(4000, 0);
    int own = s, pidfd = pidfd_open(other, 0);
    uint64_t own_sent = sent, own_received = received;
    int there = pidfd_getfd(pidfd, OWNERS_NUMBER, 0);
    if (there == -1)
        die("pidfd_getfd");
    s = there, received = taken_received, sent = taken_sent;
    take(4000, 1);
    give(200, 1);
    s = own, received = own_received, sent = own_sent;
    take(3200, 0);
    taken_sent += 200, taken_received += 4000;
    owner_knows(200, 4000);
    owner_exchanges(20);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    // Where only descendants may be traced, and who allows it.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (argc > 2 && !strcmp(how, "serve"))
        serve_commands(atoi(argv[2]));
    int kin = argc > 2 && !strcmp(argv[2], "kin");
    if (argc > 2 && !kin)
        owners_user = 65001, own_user = 65002;
    own_order = obey_more;
    start_taker(argv[0], kin);
    if (kin)
        connection();
    else
        connection_of_strangers();
    order('x', NUMBERED | OWNERS_NUMBER);
    done();
    if (strcmp(how, "cold")) {
        warm_up();
        taken_sent = received, taken_received = sent;
    }
    if (!strcmp(how, "flight"))
        in_flight();
    else if (!strcmp(how, "blocked"))
        blocked(0);
    else if (!strcmp(how, "polls"))
        blocked(POLLED);
    else if (!strcmp(how, "epolls"))
        blocked(EPOLLED);
    else if (!strcmp(how, "busy"))
        busy();
    else if (!strcmp(how, "stopped"))
        stopped(SIGCONT);
    else if (!strcmp(how, "killed"))
        stopped(SIGKILL);
    else if (!strcmp(how, "cold"))
        cold();
    else if (!strcmp(how, "heir"))
        heir();
    else if (!strcmp(how, "closed"))
        closed();
    else if (!strcmp(how, "self"))
        self();
    else
        return 2;
    close(control);
    close(to_taker);
    close(s);
    int status;
    if (waitpid(taker, &status, 0) == taker && status != 0)
        die("the taker");
    if (waitpid(other, &status, 0) == other && status != 0)
        die("the peer");
    puts("ended");
    return 0;
}
