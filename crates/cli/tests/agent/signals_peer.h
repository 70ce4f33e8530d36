// One TCP connection of this host, and the process at its other end, which obeys orders. Included once, by signals.c.
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LIFETIME = 60, SOON_US = 30000, LATER_MS = 150, WARM = 40 };

static int s;       // the connection, this program's end
static int control; // to the peer
static volatile sig_atomic_t ran;
static int64_t ordered;                   // when the peer got its last order, ns of CLOCK_MONOTONIC
static volatile int64_t handled;          // when the last handler ran since then, 0 if none did

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static void all(int fd, void *data, size_t n, int out) {
    for (char *p = data; n > 0;) {
        ssize_t k = out ? write(fd, p, n) : read(fd, p, n);
        if (k == -1 && errno == EINTR)
            continue;
        if (k <= 0)
            die("all");
        p += k, n -= k;
    }
}

// ---------------------------------------------------------------- the peer: obeys, in its own process

struct order {
    char what; // 's' send, 'r' read and report their sum, 'c' count 'M' and 'H' until the end, 'e' echo until the end
    uint32_t after_ms, n;
};
static char big[1 << 20];

static void peer(int fd) {
    struct order o;
    while (read(control, &o, sizeof o) == sizeof o) {
        struct timespec t = {o.after_ms / 1000, o.after_ms % 1000 * 1000000l};
        nanosleep(&t, NULL);
        uint64_t answer[2] = {0, 0};
        if (o.what == 's') {
            memset(big, 'P', o.n);
            all(fd, big, o.n, 1);
            continue;
        }
        if (o.what == 'r') {
            for (uint32_t left = o.n; left > 0;) {
                ssize_t k = read(fd, big, left < sizeof big ? left : sizeof big);
                if (k <= 0)
                    die("peer reads");
                for (ssize_t i = 0; i < k; i++)
                    answer[0] += (unsigned char)big[i];
                left -= k;
            }
        }
        for (ssize_t k; (o.what == 'c' || o.what == 'e') && (k = read(fd, big, sizeof big)) != 0;) {
            if (k < 0)
                die("peer counts");
            for (ssize_t i = 0; i < k; i++)
                answer[big[i] == 'H']++;
            if (o.what == 'e')
                all(fd, big, k, 1);
        }
        if (o.what == 'e')
            shutdown(fd, SHUT_WR);
        all(control, answer, sizeof answer, 1);
    }
    _exit(0);
}

static void order(char what, uint32_t after_ms, uint32_t n) {
    struct order o = {what, after_ms, n};
    handled = 0, ordered = now();
    all(control, &o, sizeof o, 1);
}

static void answer(uint64_t two[2]) { all(control, two, 2 * sizeof *two, 0); }

static void connection(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int two[2], l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len) ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, two))
        die("listen");
    if (fork() == 0) {
        control = two[1];
        close(two[0]);
        close(l);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&a, len))
            die("connect");
        peer(fd);
    }
    control = two[0];
    close(two[1]);
    s = accept(l, NULL, NULL);
    close(l);
    // Both directions come up on the ring.
    for (int i = 0; i < WARM; i++) {
        uint64_t got[2];
        char data[64] = {0};
        order('r', 0, sizeof data);
        all(s, data, sizeof data, 1);
        answer(got);
        order('s', 0, sizeof data);
        all(s, data, sizeof data, 0);
    }
}
