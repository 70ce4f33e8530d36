/* One of many processes that all talk to each other at once.
 *
 *   crowd INDEX OF EACH BYTES
 *
 * prints its port, reads the ports of all OF processes from one line, connects EACH times to every one of a higher INDEX and is
 * called by the others. On each connection BYTES go both ways, every one verified. When all have come it says
 *
 *   done connections=N received=N
 *
 * and closes once its input ends. */
#include "crash.h"

#define CHUNK 3000
/* An end is never further ahead than this of what it got. */
#define AHEAD 1500
#define MOST 1024

struct header {
    uint32_t from, number;
};

static struct talk {
    int fd;
    struct header header; /* who called, and for the how manieth time */
    size_t heard;         /* octets of it */
    uint64_t out, in;     /* the streams */
    uint64_t sent, got;
} talks[MOST];

static uint64_t own, bytes_each, all_received;
static int set, unfinished;

/* The stream that `a` sends to `b`. */
static uint64_t stream_of(uint64_t a, uint64_t b, uint64_t number)
{
    return (a * 1000 + b) * 1000 + number;
}

static void add(struct talk *t, int fd)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = t };
    t->fd = fd;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) < 0)
        fail("a registration");
}

static void give(struct talk *t)
{
    while (t->heard == sizeof t->header && t->sent < bytes_each && t->sent < t->got + AHEAD) {
        unsigned char bytes[CHUNK];
        size_t n = 1 + stream_byte(7, t->sent + t->out) * 5;
        n = n < bytes_each - t->sent ? n : bytes_each - t->sent;
        for (size_t i = 0; i < n; i++)
            bytes[i] = stream_byte(t->out, t->sent + i);
        ssize_t r = send(t->fd, bytes, n, MSG_NOSIGNAL);
        /* So little always finds room. */
        if (r < 0)
            fail("send");
        t->sent += r;
        if (t->sent == bytes_each)
            unfinished--;
    }
}

static void take(struct talk *t)
{
    unsigned char bytes[CHUNK];
    int is_header = t->heard < sizeof t->header;
    size_t most = is_header ? sizeof t->header - t->heard : sizeof bytes;
    ssize_t r = recv(t->fd, is_header ? (void *)((char *)&t->header + t->heard) : bytes, most, 0);
    if (r < 0 && errno == EAGAIN)
        return;
    if (r <= 0)
        fail("recv");
    if (is_header) {
        t->heard += r;
        t->out = stream_of(own, t->header.from, t->header.number);
        t->in = stream_of(t->header.from, own, t->header.number);
        return;
    }
    for (ssize_t i = 0; i < r; i++)
        if (bytes[i] != stream_byte(t->in, t->got + i))
            fail("a wrong byte");
    t->got += r;
    all_received += r;
    if (t->got > bytes_each)
        fail("too many bytes");
    if (t->got == bytes_each)
        unfinished--;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 64;
    alarm(60);
    own = atoi(argv[1]);
    unsigned of = atoi(argv[2]), each = atoi(argv[3]), count = (of - 1) * each, next = 0;
    bytes_each = atoi(argv[4]);
    if (count > MOST)
        return 64;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (void *)&a, sizeof a) || listen(listener, MOST) || getsockname(listener, (void *)&a, &len))
        fail("listen");
    printf("port %d\n", ntohs(a.sin_port));
    fflush(stdout);
    set = epoll_create1(EPOLL_CLOEXEC);
    for (uint64_t i = 0; i < of; i++) {
        int port;
        if (scanf("%d", &port) != 1)
            fail("a port");
        for (unsigned n = 0; i > own && n < each; n++) {
            struct talk *t = &talks[next++];
            t->header = (struct header){ own, n };
            t->heard = sizeof t->header;
            t->out = stream_of(own, i, n);
            t->in = stream_of(i, own, n);
            int fd = connect_to(port);
            if (send(fd, &t->header, sizeof t->header, MSG_NOSIGNAL) != sizeof t->header)
                fail("the header");
            add(t, fd);
        }
    }
    while (next < count)
        add(&talks[next++], accept_one(listener));
    unfinished = 2 * count;
    for (unsigned i = 0; i < count; i++)
        give(&talks[i]);
    while (unfinished > 0) {
        struct epoll_event seen[64];
        int n = epoll_wait(set, seen, 64, -1);
        for (int i = 0; i < n; i++) {
            struct talk *t = seen[i].data.ptr;
            take(t);
            give(t);
        }
    }
    printf("done connections=%u received=%llu\n", count, (unsigned long long)all_received);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
