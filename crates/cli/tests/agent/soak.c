/* Many connections, pseudo-random streams of random sizes both ways, every byte verified.
 *
 *   soak server EXPECT          prints its port, serves until EXPECT connections have ended and prints a report
 *   soak client PORT CONNECTIONS MEGABYTES SEED DOOMED
 *
 * The server is epoll-driven and non-blocking (two threads), the client has a blocking reader and writer for each
 * connection. A connection begins with a header {magic, id, bytes to come, bytes to send, may die}: where
 * a peer may be killed (DOOMED, or MORTAL for a client whose server is), a stream may end early but what
 * arrives must be right. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x6b616f73u
#define CHUNK 70000
#define WORKERS 2

struct header {
    uint32_t magic, id;
    uint64_t to_server, to_client;
    uint64_t seed;
    uint32_t mortal, pad;
};

static atomic_ulong verified, wrong, early, ended;

static uint64_t next(uint64_t *s)
{
    uint64_t x = *s;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *s = x;
}

/* The stream of a direction: byte `p` from its seed, 8 bytes from one mixing of the position. */
static void stream(unsigned char *to, size_t n, uint64_t seed, uint64_t p)
{
    for (size_t i = 0; i < n;) {
        uint64_t w = (p + i) / 8 * 0x9e3779b97f4a7c15ull ^ seed;
        w = (w ^ (w >> 29)) * 0xbf58476d1ce4e5b9ull;
        w ^= w >> 32;
        for (size_t k = (p + i) % 8; k < 8 && i < n; k++, i++)
            to[i] = (unsigned char)(w >> (8 * k));
    }
}

static int check(const unsigned char *got, size_t n, uint64_t seed, uint64_t p, uint32_t id)
{
    static __thread unsigned char want[CHUNK];
    stream(want, n, seed, p);
    if (memcmp(want, got, n) != 0) {
        size_t i = 0;
        while (want[i] == got[i])
            i++;
        fprintf(stderr, "connection %u: wrong byte at %lu\n", id, (unsigned long)(p + i));
        atomic_fetch_add(&wrong, 1);
        return 0;
    }
    atomic_fetch_add(&verified, n);
    return 1;
}

/* A stream ended after `got` of `want` bytes with `error` (0 = end of file). */
static void stream_ended(uint32_t id, const char *side, uint64_t got, uint64_t want, int error, int mortal)
{
    if (got == want && error == 0)
        return;
    if (mortal && (error == 0 || error == ECONNRESET || error == EPIPE)) {
        atomic_fetch_add(&early, 1);
        return;
    }
    fprintf(stderr, "connection %u: %s ended after %lu of %lu bytes: %s\n", id, side, (unsigned long)got,
            (unsigned long)want, error ? strerror(error) : "end of file");
    atomic_fetch_add(&wrong, 1);
}

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static int count_memfds(void)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, "memfd:") != NULL;
    if (f)
        fclose(f);
    return n;
}

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * 4;
}

static void report(const char *who, int fds_before)
{
    printf("%s ended=%lu verified=%lu wrong=%lu early=%lu fds_before=%d fds=%d memfds=%d resident_kib=%ld\n", who,
           atomic_load(&ended), atomic_load(&verified), atomic_load(&wrong), atomic_load(&early), fds_before,
           count_fds(), count_memfds(), resident_kib());
    fflush(stdout);
}

/* ---- server --------------------------------------------------------------------------------------------- */

struct session {
    int fd, closing;
    size_t have; /* of the header */
    struct header h;
    uint64_t received, sent, random;
    int eof, shut;
};

static int listener;
static unsigned long expect;
static int epolls[WORKERS];

static void session_end(struct session *s, int error)
{
    if (s->have == sizeof s->h || error)
        stream_ended(s->h.id, "server's input", s->received, s->h.to_server, error, (int)s->h.mortal);
    close(s->fd);
    free(s);
    atomic_fetch_add(&ended, 1);
}

/* Returns 0 when the session is over. */
static int session_read(struct session *s)
{
    static __thread unsigned char buffer[CHUNK];
    for (int turn = 0; turn < 8; turn++) {
        void *to = buffer;
        size_t room = 1 + next(&s->random) % CHUNK;
        if (s->have < sizeof s->h) {
            to = (char *)&s->h + s->have;
            room = sizeof s->h - s->have;
        }
        ssize_t n = recv(s->fd, to, room, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 1;
        if (n < 0) {
            session_end(s, errno);
            return 0;
        }
        if (n == 0) {
            if (s->have < sizeof s->h) { /* killed before it said anything */
                atomic_fetch_add(&early, 1);
                close(s->fd);
                free(s);
                atomic_fetch_add(&ended, 1);
                return 0;
            }
            s->eof = 1;
            return 1;
        }
        if (s->have < sizeof s->h) {
            s->have += (size_t)n;
            if (s->have == sizeof s->h && s->h.magic != MAGIC) {
                atomic_fetch_add(&wrong, 1);
                fprintf(stderr, "wrong header\n");
                session_end(s, 0);
                return 0;
            }
            continue;
        }
        if (!check(buffer, (size_t)n, s->h.seed, s->received, s->h.id)) {
            session_end(s, EIO);
            return 0;
        }
        s->received += (uint64_t)n;
    }
    return 1;
}

static int session_write(struct session *s)
{
    static __thread unsigned char buffer[CHUNK];
    for (int turn = 0; turn < 8 && s->have == sizeof s->h && s->sent < s->h.to_client; turn++) {
        size_t n = 1 + next(&s->random) % CHUNK;
        if (n > s->h.to_client - s->sent)
            n = s->h.to_client - s->sent;
        stream(buffer, n, ~s->h.seed, s->sent);
        ssize_t sent = send(s->fd, buffer, n, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            return 1;
        if (sent < 0) {
            session_end(s, errno);
            return 0;
        }
        s->sent += (uint64_t)sent;
    }
    if (s->have == sizeof s->h && s->sent == s->h.to_client && !s->shut) {
        s->shut = 1;
        shutdown(s->fd, SHUT_WR);
    }
    return 1;
}

static void session_step(struct session *s, int ep)
{
    if (!s->eof && !session_read(s))
        return;
    if (!s->shut && !session_write(s))
        return;
    if (s->eof && s->shut) {
        session_end(s, 0);
        return;
    }
    int writing = s->have == sizeof s->h && !s->shut;
    struct epoll_event e = {.events = (s->eof ? 0u : EPOLLIN) | (writing ? EPOLLOUT : 0u), .data.ptr = s};
    epoll_ctl(ep, EPOLL_CTL_MOD, s->fd, &e);
}

static void *worker(void *p)
{
    int ep = epolls[(long)p];
    struct epoll_event e[64];
    while (atomic_load(&ended) < expect) {
        int n = epoll_wait(ep, e, 64, 100);
        for (int i = 0; i < n; i++)
            session_step(e[i].data.ptr, ep);
    }
    return NULL;
}

static int server(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&a, len) || listen(listener, 256) ||
        getsockname(listener, (struct sockaddr *)&a, &len))
        return 1;
    printf("port %d\n", ntohs(a.sin_port));
    fflush(stdout);
    int before = count_fds();
    pthread_t t[WORKERS];
    for (long i = 0; i < WORKERS; i++) {
        epolls[i] = epoll_create1(EPOLL_CLOEXEC);
        pthread_create(&t[i], NULL, worker, (void *)i);
    }
    for (unsigned long accepted = 0; atomic_load(&ended) < expect;) {
        struct epoll_event e;
        int ep = epolls[accepted % WORKERS];
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) {
            usleep(500);
            continue;
        }
        struct session *s = calloc(1, sizeof *s);
        s->fd = fd;
        s->random = 0x1234567 + accepted++;
        e.events = EPOLLIN;
        e.data.ptr = s;
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(t[i], NULL);
        close(epolls[i]);
    }
    report("server", before);
    return atomic_load(&wrong) != 0;
}

/* ---- client --------------------------------------------------------------------------------------------- */

struct flow {
    int fd;
    struct header h;
    uint64_t random;
};

static void *flow_write(void *p)
{
    struct flow *f = p;
    unsigned char *buffer = malloc(CHUNK);
    uint64_t at = 0;
    while (at < f->h.to_server) {
        size_t n = 1 + next(&f->random) % (next(&f->random) % 4 ? 2000 : CHUNK);
        if (n > f->h.to_server - at)
            n = f->h.to_server - at;
        stream(buffer, n, f->h.seed, at);
        ssize_t sent = send(f->fd, buffer, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            stream_ended(f->h.id, "client's output", at, f->h.to_server, errno, (int)f->h.mortal);
            break;
        }
        at += (uint64_t)sent;
    }
    shutdown(f->fd, SHUT_WR);
    free(buffer);
    return NULL;
}

static void *flow_run(void *p)
{
    struct flow *f = p;
    uint64_t random = f->random * 3 + 1, at = 0;
    unsigned char *buffer = malloc(CHUNK);
    pthread_t writer;
    if (send(f->fd, &f->h, sizeof f->h, MSG_NOSIGNAL) != (ssize_t)sizeof f->h)
        stream_ended(f->h.id, "header", 0, 1, errno, (int)f->h.mortal);
    pthread_create(&writer, NULL, flow_write, f);
    for (;;) {
        ssize_t n = recv(f->fd, buffer, 1 + next(&random) % CHUNK, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            stream_ended(f->h.id, "client's input", at, f->h.to_client, n < 0 ? errno : 0, (int)f->h.mortal);
            break;
        }
        if (!check(buffer, (size_t)n, ~f->h.seed, at, f->h.id))
            break;
        at += (uint64_t)n;
    }
    pthread_join(writer, NULL);
    close(f->fd);
    free(buffer);
    free(f);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static int client(int port, int connections, double megabytes, uint64_t seed, int mortal)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int before = count_fds();
    pthread_t *t = calloc((size_t)connections, sizeof *t);
    uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;
    for (int i = 0; i < connections; i++) {
        struct flow *f = calloc(1, sizeof *f);
        f->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(f->fd, (struct sockaddr *)&a, sizeof a) != 0) {
            perror("connect");
            return 1;
        }
        int one = 1;
        if (i % 2)
            setsockopt(f->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        uint64_t most = (uint64_t)(megabytes * 1048576.0) + 1;
        f->h = (struct header){MAGIC, (uint32_t)i, next(&random) % most, next(&random) % most, next(&random),
                               (uint32_t)mortal, 0};
        f->random = next(&random) | 1;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 256 << 10);
        if (pthread_create(&t[i], &attr, flow_run, f) != 0)
            return 1;
        pthread_attr_destroy(&attr);
    }
    puts("connected");
    fflush(stdout);
    for (int i = 0; i < connections; i++)
        pthread_join(t[i], NULL);
    free(t);
    report("client", before);
    return atomic_load(&wrong) != 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "server") == 0) {
        expect = strtoul(argv[2], NULL, 10);
        return server();
    }
    if (argc == 7 && strcmp(argv[1], "client") == 0)
        return client(atoi(argv[2]), atoi(argv[3]), atof(argv[4]), strtoull(argv[5], NULL, 10), atoi(argv[6]));
    fprintf(stderr, "usage: soak server EXPECT | soak client PORT CONNECTIONS MEGABYTES SEED MORTAL\n");
    return 2;
}
