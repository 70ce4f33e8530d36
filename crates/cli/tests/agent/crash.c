/* Two programs that exchange verified bytes until one of them is killed; the other says how that looked.
 *
 *   crash server MODE FIRST FILLS PLACE   prints its port, serves one connection, then a second one
 *   crash client MODE FIRST FILLS PLACE   reads a port from its input for each of its two connections
 *
 * MODE: blocking, threads, poll, epoll or edge. FIRST: the side (server, client) that speaks first on the first
 * connection, or "nobody" for a program that has the second one only; FILLS: who writes more than a ring holds before
 * anybody reads (server, client, both); PLACE: a directory with two named pipes. On the second connection nobody may
 * die. Each prints
 *
 *   first received=N end=eof|reset wrong=BITS sends=N names=N
 *   second done
 *
 * The first connection goes through everything: a dialogue, then FILLS (so rings are taken back and flushed), then
 * another dialogue (so they come up again). */
#include "crash.h"

#define CHUNK 10000
#define SMALL 200
#define LARGE 8192
#define FULL (1u << 20)

enum mode { BLOCKING, THREADS, POLL, EPOLL, EDGE };

struct end {
    int fd, set;
    enum mode mode;
    uint64_t out, in; /* the streams */
    uint64_t sent, got;
    int reset; /* some call said ECONNRESET: only one does */
    struct progress *progress;
};

static enum mode mode_of(const char *name)
{
    static const char *names[] = { "blocking", "threads", "poll", "epoll", "edge" };
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum mode)i;
    fail("the mode");
    return BLOCKING;
}

static struct end begin(int fd, enum mode mode, int is_server, struct progress *progress)
{
    struct end e = { .fd = fd, .set = -1, .mode = mode, .out = 1 + is_server, .in = 2 - is_server };
    e.progress = progress;
    if (mode >= POLL && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        fail("fcntl");
    if (mode >= EPOLL) {
        struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
        if (mode == EDGE)
            ev.events |= EPOLLOUT | EPOLLET;
        e.set = epoll_create1(EPOLL_CLOEXEC);
        if (e.set < 0 || epoll_ctl(e.set, EPOLL_CTL_ADD, fd, &ev) < 0)
            fail("epoll");
    }
    return e;
}

/* Sleeps until the end may be ready for POLLIN or POLLOUT. */
static void wait_for(struct end *e, short event)
{
    struct pollfd one = { .fd = e->fd, .events = event };
    struct epoll_event ev = { .events = EPOLLRDHUP | (event == POLLIN ? EPOLLIN : EPOLLOUT) }, seen;
    if (e->mode == EPOLL && epoll_ctl(e->set, EPOLL_CTL_MOD, e->fd, &ev) < 0)
        fail("epoll_ctl");
    int n = e->mode == POLL ? poll(&one, 1, -1) : epoll_wait(e->set, &seen, 1, -1);
    if (n < 0)
        fail("wait");
}

/* Up to `n` bytes of the incoming stream, verified. 0 = its end; -1 = an error. */
static ssize_t take(struct end *e, size_t n)
{
    unsigned char bytes[CHUNK];
    if (n > sizeof bytes)
        n = sizeof bytes;
    e->progress->asked = e->got + n;
    ssize_t r;
    while ((r = recv(e->fd, bytes, n, 0)) < 0 && errno == EAGAIN && e->mode >= POLL)
        wait_for(e, POLLIN);
    for (ssize_t i = 0; i < r; i++)
        if (bytes[i] != stream_byte(e->in, e->got + i)) {
            fprintf(stderr, "wrong byte at %llu\n", (unsigned long long)(e->got + i));
            exit(2);
        }
    if (r > 0)
        e->progress->received = e->got += r;
    if (r < 0 && errno == ECONNRESET)
        e->reset = 1;
    return r;
}

/* Sends up to `n` bytes of the outgoing stream. -1 = an error. */
static ssize_t give(struct end *e, size_t n)
{
    unsigned char bytes[CHUNK];
    if (n > sizeof bytes)
        n = sizeof bytes;
    for (size_t i = 0; i < n; i++)
        bytes[i] = stream_byte(e->out, e->sent + i);
    e->progress->attempted = e->sent + n;
    ssize_t r;
    while ((r = send(e->fd, bytes, n, MSG_NOSIGNAL)) < 0 && errno == EAGAIN && e->mode >= POLL)
        wait_for(e, POLLOUT);
    if (r > 0)
        e->progress->returned = e->sent += r;
    if (r < 0 && errno == ECONNRESET)
        e->reset = 1;
    return r;
}

static int take_all(struct end *e, size_t n)
{
    while (n > 0) {
        ssize_t r = take(e, n);
        if (r <= 0)
            return 0;
        n -= r;
    }
    return 1;
}

static int give_all(struct end *e, size_t n)
{
    while (n > 0) {
        ssize_t r = give(e, n);
        if (r <= 0)
            return 0;
        n -= r;
    }
    return 1;
}

/* The pipes from and to the other program, beside the connection. */
static int from_other = -1, to_other = -1;

/* Waits until the other program is here too, or dead. */
static void meet(void)
{
    if (write(to_other, "x", 1) < 0 && errno != EPIPE)
        fail("the pipe");
    if (read(from_other, &(char){ 0 }, 1) < 0)
        fail("the pipe");
}

/* The first message: sent once both ends are open, and read once the library has begun what it then begins. */
static int greeting(struct end *e, int speaks_first)
{
    meet();
    int given = speaks_first && give_all(e, SMALL);
    meet();
    return speaks_first ? given : take_all(e, SMALL);
}

static int dialogue(struct end *e, int speaks_first, int rounds, size_t size)
{
    for (int i = 0; i < rounds; i++) {
        if (speaks_first && !give_all(e, size))
            return 0;
        if (!take_all(e, size))
            return 0;
        if (!speaks_first && !give_all(e, size))
            return 0;
    }
    return 1;
}

static void *writer(void *e)
{
    return give_all(e, FULL) ? e : NULL;
}

/* Both ways at once: a thread writes, this one reads. */
static int duplex(struct end *e)
{
    pthread_t thread;
    void *written;
    if (pthread_create(&thread, NULL, writer, e) != 0)
        fail("pthread_create");
    int read = take_all(e, FULL);
    pthread_join(thread, &written);
    return read && written;
}

static void open_pipes(const char *place, int is_server)
{
    char path[4096];
    for (int i = 0; i < 2; i++) {
        /* Each open waits for the other program's: both open the same pipe first. */
        snprintf(path, sizeof path, "%s/%s", place, i ? "to-client" : "to-server");
        int fd = open(path, (i == is_server ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        if (fd < 0)
            fail(path);
        *(i == is_server ? &to_other : &from_other) = fd;
    }
}

/* The first connection. */
static int talk(struct end *e, int speaks_first, int gives, int takes)
{
    if (!greeting(e, speaks_first) || !dialogue(e, !speaks_first, 40, SMALL))
        return 0;
    int given = !gives || give_all(e, FULL);
    meet();
    if (!given || (takes && !take_all(e, FULL)))
        return 0;
    if (e->mode == THREADS && !duplex(e))
        return 0;
    return dialogue(e, speaks_first, 60, LARGE);
}

/* Rendezvous names at which this process listens. */
static int count_names(void)
{
    char line[512], link[300], target[64], wanted[64];
    int n = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long inode, flags;
        if (!strstr(line, "@bypath/") || sscanf(line, "%*s %*s %*s %lx %*s %*s %lu", &flags, &inode) != 2)
            continue;
        /* A connection that was accepted there shows the name too; it is no name that anybody could dial. */
        if (!(flags & 0x10000)) /* __SO_ACCEPTCON */
            continue;
        snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
        DIR *d = opendir("/proc/self/fd");
        for (struct dirent *entry; d && (entry = readdir(d));) {
            snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
            ssize_t len = readlink(link, target, sizeof target - 1);
            if (len > 0) {
                target[len] = 0;
                n += strcmp(target, wanted) == 0;
            }
        }
        closedir(d);
    }
    if (f)
        fclose(f);
    return n;
}

/* The other end is gone: everything that it sent, then its end, then what writers get. */
static void last_words(struct end *e)
{
    ssize_t r;
    while ((r = take(e, CHUNK)) > 0)
        ;
    const char *end = e->reset ? "reset" : r == 0 ? "eof" : strerror(errno);
    int wrong = 0; /* a bit for each answer that is not the kernel's */
    /* Whoever waits is told at once, and again. */
    struct pollfd one = { .fd = e->fd, .events = POLLIN | POLLRDHUP };
    if (poll(&one, 1, 0) != 1 || !(one.revents & POLLIN) || !(one.revents & POLLRDHUP))
        wrong |= 1;
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP }, seen = { 0 };
    int set = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(set, EPOLL_CTL_ADD, e->fd, &ev);
    if (epoll_wait(set, &seen, 1, 0) != 1 || !(seen.events & EPOLLIN) || !(seen.events & EPOLLRDHUP))
        wrong |= 2;
    close(set);
    if (recv(e->fd, &(char){ 0 }, 1, 0) != 0)
        wrong |= 4;
    /* The kernel takes one more message, which the dead end's kernel answers with a reset. It answers once its close
     * is through, and may tell of the end before: whoever is quick sends a hundred messages meanwhile, so wait for it. */
    int sends = give(e, SMALL) >= 0;
    struct pollfd reset = { .fd = e->fd };
    if (poll(&reset, 1, 10000) != 1 || !(reset.revents & POLLHUP) || give(e, SMALL) >= 0 || errno != EPIPE)
        wrong |= 8;
    close(e->fd);
    close(e->set);
    printf("first received=%llu end=%s wrong=%d sends=%d names=%d\n", (unsigned long long)e->got, end, wrong, sends,
           count_names());
    fflush(stdout);
}

static int next_connection(int is_server, int listener)
{
    int port;
    if (is_server)
        return accept_one(listener);
    if (scanf("%d", &port) != 1)
        fail("a port");
    return connect_to(port);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 64;
    alarm(LIFETIME);
    int is_server = strcmp(argv[1], "server") == 0;
    enum mode mode = mode_of(argv[2]);
    int speaks_first = strcmp(argv[3], argv[1]) == 0;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.progress", argv[5], argv[1]);
    struct progress unobserved;
    int listener = is_server ? listen_on_loopback() : -1;

    struct end e;
    if (strcmp(argv[3], "nobody") != 0) {
        signal(SIGPIPE, SIG_IGN);
        open_pipes(argv[5], is_server);
        e = begin(next_connection(is_server, listener), mode, is_server, map_progress(path));
        int both = strcmp(argv[4], "both") == 0, mine = strcmp(argv[4], argv[1]) == 0;
        if (talk(&e, speaks_first, both || mine, both || !mine)) {
            /* Nobody died. */
            printf("finished\n");
            return 3;
        }
        last_words(&e);
    }
    e = begin(next_connection(is_server, listener), mode, is_server, &unobserved);
    if (!dialogue(&e, is_server, 100, LARGE))
        fail("the healthy connection");
    /* Whoever closes first must not take the other's last bytes away. */
    shutdown(e.fd, SHUT_WR);
    if (take(&e, 1) != 0)
        fail("the healthy connection's end");
    printf("second done\n");
    fflush(stdout);
    return 0;
}
