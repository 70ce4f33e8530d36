// One TCP connection of this host, and the process at its other end, which obeys orders. Each direction is a stream whose
// bytes tell their positions, so a byte that is lost, doubled or early is noticed where it is. Included once by a program.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

enum { LIFETIME = 60, WARM = 150 };

static int s = -1;       // the connection, this program's end
static int control = -1; // to the peer
static pid_t other;      // the peer
static int narrow;       // what the peer has room for, if it matters
static uint64_t sent, received;
static char bytes[1 << 20];

static void die(const char *what) {
    fprintf(stderr, "%s: %s (sent %llu, received %llu)\n", what, strerror(errno), (unsigned long long)sent,
            (unsigned long long)received);
    _exit(9);
}

static unsigned char byte_at(uint64_t position, int of_the_peer) {
    return (position * 0x9e3779b97f4a7c15ull + (of_the_peer ? 77 : 0)) >> 56;
}

// The next `n` bytes of the outgoing stream, for whoever sends them.
static char *next_bytes(size_t n, int i_am_the_peer) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(sent + i, i_am_the_peer);
    return bytes;
}

// `n` bytes came: they must be the next ones.
static void came(const char *data, size_t n, int i_am_the_peer) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)data[i] != byte_at(received + i, !i_am_the_peer)) {
            errno = EILSEQ;
            received += i;
            die(i_am_the_peer ? "the peer got another byte" : "got another byte");
        }
    received += n;
}

static void put_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t k = write(fd, data, n);
        if (k == -1 && errno == EINTR)
            continue;
        if (k <= 0)
            die("write");
        data += k, n -= k;
    }
}

static void get_all(int fd, char *data, size_t n) {
    while (n > 0) {
        ssize_t k = read(fd, data, n);
        if (k == -1 && errno == EINTR)
            continue;
        if (k <= 0)
            die("read");
        data += k, n -= k;
    }
}

static void give(size_t n, int i_am_the_peer) {
    put_all(s, next_bytes(n, i_am_the_peer), n);
    sent += n;
}

static void take(size_t n, int i_am_the_peer) {
    while (n > 0) {
        size_t part = n < sizeof bytes ? n : sizeof bytes;
        get_all(s, bytes, part);
        came(bytes, part, i_am_the_peer);
        n -= part;
    }
}

// ---------------------------------------------------------------- the peer: obeys, in its own process

struct order {
    char what; // 's' send n, 'r' receive n, 'x' something of the program's own
    uint32_t n;
};

static void (*own_order)(uint32_t);

static void obey(void) {
    struct order o;
    while (read(control, &o, sizeof o) == sizeof o) {
        if (o.what == 's')
            give(o.n, 1);
        else if (o.what == 'r')
            take(o.n, 1);
        else
            own_order(o.n);
        if (write(control, &o.what, 1) != 1)
            die("answer");
    }
    _exit(0);
}

// The peer does it while this process goes on.
static void order(char what, uint32_t n) {
    struct order o = {what, n};
    if (write(control, &o, sizeof o) != sizeof o)
        die("order");
}

static void done(void) {
    char what;
    if (read(control, &what, 1) != 1)
        die("the peer is gone");
}

// Both directions come up on the ring, if there can be one.
static void warm_up(void) {
    for (int i = 0; i < WARM; i++) {
        order('r', 64);
        give(64, 0);
        done();
        order('s', 64);
        take(64, 0);
        done();
    }
}

static void connection(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int two[2], l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two))
        die("listen");
    if ((other = fork()) == 0) {
        alarm(LIFETIME);
        control = two[1];
        close(two[0]);
        close(l);
        s = socket(AF_INET, SOCK_STREAM, 0);
        if (narrow)
            setsockopt(s, SOL_SOCKET, SO_RCVBUF, &narrow, sizeof narrow);
        if (connect(s, (void *)&a, len))
            die("connect");
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        obey();
    }
    control = two[0];
    close(two[1]);
    s = accept(l, NULL, NULL);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(l);
    alarm(LIFETIME);
}
