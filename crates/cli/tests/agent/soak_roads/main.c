/* The ends of a pair of processes, connection after connection.
 *
 *   soak-roads create FILE SEED
 *   soak-roads end FILE PAIR T0 T1 HELPS PLAIN CONNECTIONS OPERATIONS SIDE
 *   soak-roads kin|both FILE PAIR T0 T1 HELPS PLAIN CONNECTIONS OPERATIONS     both ends: two processes of a family, or one
 *   soak-roads report FILE
 *
 * T0 and T1: whether side 0 and side 1 move their directions by two threads; else one thread does both, and never waits for
 * what depends on itself at the other end. HELPS: which helper it has. PLAIN: runs without the library. */
#include "roads.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

const char *file, *own;

static const char *const names[ROADS] = {
#define TEXT(id, text, weight) [R_##id] = text,
    OUTWARD(TEXT) INWARD(TEXT) BY_OTHERS(TEXT) WAITS(TEXT) CHANGES(TEXT)
#undef TEXT
};

static struct shared *everything;

uint64_t any(struct way *w, uint64_t below)
{
    uint64_t z = *w->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) % below;
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct shared *map(void)
{
    int f = open(file, O_RDWR | O_CLOEXEC);
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (f < 0 || p == MAP_FAILED) {
        perror(file);
        _exit(9);
    }
    close(f);
    return everything = p;
}

struct way way(struct shared *all, int pair, int side, int fd, unsigned may)
{
    struct pair *p = &all->pairs[pair];
    int writer = (may & OUT) ? side : !side;
    void *buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return (struct way){.all = all, .end = &p->ends[side], .peer = &p->ends[!side], .pair = pair, .side = side, .fd = fd,
                        .may = may, .seed = all->seed * 31 + (uint64_t)(pair * 2 + writer) * 0x51ed27,
                        .random = &p->ends[side].random[may & OUT], .buffer = buffer};
}

/* ---- what was done ------------------------------------------------------------------------------------------- */

uint64_t at(struct way *w)
{
    return atomic_load((w->may & OUT) ? &w->end->sent : &w->end->received);
}

/* What the other end has sent for sure, and was not read. */
uint64_t ahead(struct way *w)
{
    uint64_t sent = atomic_load(&w->peer->sent), received = atomic_load(&w->end->received);
    return sent > received ? sent - received : 0;
}

struct note *note(struct way *w, enum road road, size_t n)
{
    int out = (w->may & OUT) != 0;
    struct note *to = &w->end->notes[out][atomic_fetch_add(&w->end->noted[out], 1) % NOTES];
    *to = (struct note){(uint16_t)road, 1, getpid(), w->fd, (uint32_t)n, at(w), 0};
    return to;
}

void done(struct way *w, struct note *noted, int64_t result)
{
    noted->result = result;
    noted->open = 0;
    if (result > 0)
        atomic_fetch_add(&w->all->taken[noted->road], 1);
}

void refuse(struct way *w, enum road road)
{
    atomic_fetch_add(&w->all->refused[road], 1);
}

void fail(struct way *w, const char *what, ...)
{
    char text[240];
    va_list list;
    va_start(list, what);
    vsnprintf(text, sizeof text, what, list);
    va_end(list);
    if (atomic_exchange(&w->all->failed, 1) == 0)
        snprintf(w->all->failure, sizeof w->all->failure, "pair %d side %d %s pid %d at %llu: %s", w->pair, w->side,
                 (w->may & OUT) ? "out" : "in", getpid(), (unsigned long long)at(w), text);
    /* Whoever watches looks at both ends as they are, then ends them. */
    char name[600];
    snprintf(name, sizeof name, "%s.failed", file);
    close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (uint64_t until = now_ms() + WATCHED_MS; now_ms() < until;)
        poll(NULL, 0, 100);
    _exit(9);
}

static void report_end(struct shared *all, int pair, int side)
{
    struct end *e = &all->pairs[pair].ends[side];
    if (atomic_load(&e->pid) == 0)
        return;
    printf("pair %d side %d: pid %d fd %d connection %u of %u, sent %llu received %llu need %llu, ended %u eof %u shut %u, "
           "%s%s%s for good %u\n",
           pair, side, e->pid, e->fd, e->conn, e->conns, (unsigned long long)e->sent, (unsigned long long)e->received,
           (unsigned long long)e->need, e->ended, e->eof, e->shut, e->threads ? "threads" : "alone",
           e->free ? " free" : "", e->plain ? " plain" : "", e->for_good);
    for (int out = 0; out < 2; out++)
        for (uint32_t last = e->noted[out], i = last > NOTES ? last - NOTES : 0; i < last; i++) {
            struct note *n = &e->notes[out][i % NOTES];
            printf("    %s %s fd %d n %u at %llu %s %lld by %d\n", out ? "out" : "in ", names[n->road], n->fd, n->n,
                   (unsigned long long)n->at, n->open ? "OPEN" : "gave", (long long)n->result, n->pid);
        }
}

static int report(void)
{
    struct shared *all = map();
    for (int i = 0; i < ROADS; i++)
        printf("road\t%s\t%u\t%u\n", names[i], all->taken[i], all->refused[i]);
    if (all->failed)
        printf("failure\t%s\n", all->failure);
    printf("seed %llu\n", (unsigned long long)all->seed);
    for (int pair = 0; pair < PAIRS; pair++)
        for (int side = 0; side < 2; side++)
            report_end(all, pair, side);
    return 0;
}

/* ---- one direction --------------------------------------------------------------------------------------------- */

static size_t size(struct way *w)
{
    switch (any(w, 8)) {
    case 0:
        return 1 + any(w, BUFFER);
    case 1:
    case 2:
        return 1 + any(w, 20000);
    case 3:
    case 4:
        return 1 + any(w, 3000);
    default:
        return 1 + any(w, 100);
    }
}

static void toggle(struct way *w)
{
    int flags = fcntl(w->fd, F_GETFL);
    if (may_take(w, R_NONBLOCK) && any(w, 2)) {
        struct note *n = note(w, R_NONBLOCK, 0);
        fcntl(w->fd, F_SETFL, flags ^ O_NONBLOCK);
        done(w, n, 1);
    } else if (may_take(w, R_ASYNC)) {
        struct note *n = note(w, R_ASYNC, 0);
        fcntl(w->fd, F_SETOWN, getpid());
        if (fcntl(w->fd, F_SETFL, flags ^ O_ASYNC) != 0)
            fail(w, "O_ASYNC: %m");
        done(w, n, 1);
    }
}

/* Everything that was sent is read, while this end does nothing that would help. */
static void await_reader(struct way *w)
{
    struct note *n = note(w, R_RECEIVED_ALL, 0);
    uint64_t sent = at(w), until = now_ms() + PATIENCE_MS;
    struct pollfd p = {w->fd, 0, 0};
    while (atomic_load(&w->peer->received) < sent && atomic_load(&w->peer->need) <= sent) {
        poll(&p, 1, 5);
        if (now_ms() > until)
            fail(w, "the reader does not get what was sent");
    }
    done(w, n, 1);
}

/* False if there is no room. */
static int out_turn(struct way *w)
{
    size_t n = size(w);
    if (!(w->may & FREE)) {
        uint64_t under_way = at(w) - atomic_load(&w->peer->received);
        if (under_way >= WINDOW)
            return 0;
        n = n > WINDOW - under_way ? WINDOW - under_way : n;
    }
    enum road first = first_final(w);
    w->end->left--;
    if (any(w, 5) == 0 && !wait_for(w, PATIENCE_MS))
        fail(w, "no room comes");
    if (any(w, 30) == 0 && !begins(w))
        toggle(w);
    if (first < FIRST_INWARD)
        step_by(w, first, n);
    else if (first != ROADS)
        by_others(w, first, n);
    else if (any(w, 5) == 0 && !begins(w))
        by_others(w, (enum road)chosen(w, FIRST_OTHER, FIRST_WAIT), n);
    else
        step(w, n);
    if ((w->may & FREE) && any(w, 12) == 0)
        await_reader(w);
    return 1;
}

static void out_end(struct way *w)
{
    atomic_store(&w->end->ended_at, at(w));
    atomic_store(&w->end->ended, w->end->conn + 1);
    w->end->shut = 1;
    if (shutdown(w->fd, SHUT_WR) != 0)
        fail(w, "shutdown: %m");
}

static void in_turn(struct way *w)
{
    size_t n = size(w);
    ssize_t k = 0;
    int over = atomic_load(&w->peer->ended) > w->end->conn;
    uint64_t there = ahead(w);
    if (!(w->may & FREE)) {
        if (there == 0 && !over) {
            /* Perhaps it sends nothing before this end does. */
            if (!wait_for(w, 1 + (int)any(w, 3)))
                return;
            struct note *noted = note(w, R_RECV, n);
            k = recv(w->fd, w->buffer, n, MSG_DONTWAIT);
            done(w, noted, k);
            if (k > 0) {
                check(w, w->buffer, (size_t)k, "a read");
                atomic_fetch_add(&w->end->received, (uint64_t)k);
            }
            if (k != 0)
                return;
        }
        n = there > 0 && n > there ? there : n;
    }
    if (any(w, 5) == 0 && !wait_for(w, PATIENCE_MS))
        fail(w, "a wait for what was sent");
    if (any(w, 30) == 0 && !begins(w))
        toggle(w);
    if (any(w, 5) == 0 && !begins(w) && (there > 0 || (w->may & FREE)))
        by_others(w, (enum road)chosen(w, FIRST_OTHER, FIRST_WAIT), n);
    else
        k = step(w, n);
    if (k == -1 || (k == 0 && over && there == 0)) {
        char c;
        if (k != -1 && recv(w->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
            return;
        if (atomic_load(&w->peer->ended) != w->end->conn + 1 || atomic_load(&w->peer->ended_at) != at(w))
            fail(w, "the end came after %llu bytes of %llu", (unsigned long long)at(w),
                 (unsigned long long)atomic_load(&w->peer->ended_at));
        w->end->eof = 1;
    }
}

/* ---- one end --------------------------------------------------------------------------------------------------- */

static void *writes(void *p)
{
    struct way *w = p;
    while (w->end->left > 0)
        out_turn(w);
    out_end(w);
    return NULL;
}

static void by_threads(struct way *in, struct way *out)
{
    pthread_t writer;
    if (pthread_create(&writer, NULL, writes, out) != 0)
        fail(out, "a thread");
    while (!in->end->eof)
        in_turn(in);
    pthread_join(writer, NULL);
}

static void alone(struct way *in, struct way *out)
{
    struct end *e = in->end;
    while (!e->eof || !e->shut) {
        in->fd = out->fd = atomic_load(&e->fd);
        if (!e->shut && (e->eof || any(out, 2))) {
            if (e->left == 0)
                out_end(out);
            else if (!out_turn(out) && !e->eof)
                in_turn(in);
        } else if (!e->eof) {
            in_turn(in);
        }
    }
    in->fd = atomic_load(&e->fd);
}

static void connect_ends(struct way *w)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pair *p = &w->all->pairs[w->pair];
    socklen_t len = sizeof a;
    int fd, one = 1;
    if (w->side == 0) {
        if (w->end->listener < 0) {
            w->end->listener = socket(AF_INET, SOCK_STREAM, 0);
            if (bind(w->end->listener, (void *)&a, len) || listen(w->end->listener, 4) ||
                getsockname(w->end->listener, (void *)&a, &len))
                fail(w, "listen: %m");
            atomic_store(&p->port, ntohs(a.sin_port));
        }
        while ((fd = accept(w->end->listener, NULL, NULL)) < 0)
            if (errno != EINTR)
                fail(w, "accept: %m");
    } else {
        while (atomic_load(&p->port) == 0)
            poll(NULL, 0, 1);
        a.sin_port = htons((uint16_t)atomic_load(&p->port));
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&a, len) != 0)
            fail(w, "connect: %m");
    }
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
    if (any(w, 2))
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    w->end->left = w->end->total = w->end->conn % 4 == 2 ? 6 * w->end->ops : w->end->ops;
    w->end->eof = w->end->shut = 0;
    atomic_store(&w->end->need, 0);
    atomic_store(&w->end->for_good, w->end->plain);
    atomic_store(&w->end->fd, fd);
}

static void counts(int number)
{
    (void)number;
    atomic_fetch_add(&everything->taken[R_SIGIO_CAME], 1);
}

static void *run(void *p)
{
    struct way *in = p, out = way(in->all, in->pair, in->side, -1, in->may | OUT);
    struct end *e = in->end;
    for (; e->conn < e->conns; e->conn++) {
        if (e->fd < 0)
            connect_ends(in);
        in->fd = out.fd = atomic_load(&e->fd);
        if (e->threads)
            by_threads(in, &out);
        else
            alone(in, &out);
        forget_edges(in->fd);
        close(in->fd);
        atomic_store(&e->fd, -1);
        /* The other end's notes are of the connection that it is at. */
        atomic_store(&e->left_behind, e->conn + 1);
        while (atomic_load(&in->peer->left_behind) <= e->conn)
            poll(NULL, 0, 1);
    }
    return NULL;
}

/* This process is that end, from its beginning or after an exec. */
static struct way *become_end(int pair, int side)
{
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART};
    struct end *e = &map()->pairs[pair].ends[side];
    struct way *w = malloc(sizeof *w);
    unsigned may = (e->free ? FREE : 0) | (e->threads ? 0 : ALONE);
    atomic_store(&e->pid, getpid());
    sigaction(SIGIO, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    *w = way(everything, pair, side, -1, may);
    return w;
}

static struct way *begin(int pair, int side, char **v)
{
    struct end *e = &map()->pairs[pair].ends[side];
    const char *preload = getenv("LD_PRELOAD");
    memset(e, 0, sizeof *e);
    e->side = (uint32_t)side;
    e->threads = (uint32_t)atoi(v[side]);
    e->free = atoi(v[0]) || atoi(v[1]);
    e->helps = (uint32_t)atoi(v[2]);
    e->plain = (uint32_t)atoi(v[3]);
    e->conns = (uint32_t)atoi(v[4]);
    e->ops = (uint32_t)atoi(v[5]);
    e->listener = e->helper = -1;
    atomic_store(&e->fd, -1);
    snprintf(e->preload, sizeof e->preload, "%s", preload ? preload : "");
    for (int i = 0; i < 2; i++)
        e->random[i] = everything->seed * 77 + (uint64_t)(pair * 4 + side * 2 + i) * 0x2545f4914f6cdd1dull;
    struct way *w = become_end(pair, side);
    start_helper(w, (int)e->helps);
    return w;
}

static int both(int pair, char **v)
{
    pthread_t one;
    struct way *w0 = begin(pair, 0, v), *w1 = begin(pair, 1, v);
    pthread_create(&one, NULL, run, w1);
    run(w0);
    pthread_join(one, NULL);
    return 0;
}

static int kin(int pair, char **v)
{
    int status = 0;
    close(socket(AF_INET, SOCK_STREAM, 0));
    pid_t child = fork();
    if (child == 0) {
        run(begin(pair, 1, v));
        return 0;
    }
    run(begin(pair, 0, v));
    /* It may have helpers as children, and be another image by now. */
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 8;
}

int main(int argc, char **argv)
{
    own = argv[0];
    file = argc > 2 ? argv[2] : "";
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "create") == 0 && argc == 4) {
        int f = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (f < 0 || ftruncate(f, sizeof(struct shared)) != 0)
            return 1;
        map()->seed = strtoull(argv[3], NULL, 10);
        return 0;
    }
    if (strcmp(what, "report") == 0)
        return report();
    if (strcmp(what, "end") == 0 && argc == 11)
        return run(begin(atoi(argv[3]), atoi(argv[10]), argv + 4)), 0;
    if (strcmp(what, "kin") == 0 && argc == 10)
        return kin(atoi(argv[3]), argv + 4);
    if (strcmp(what, "both") == 0 && argc == 10)
        return both(atoi(argv[3]), argv + 4);
    if (strcmp(what, "image") == 0 && argc == 5)
        return run(become_end(atoi(argv[3]), atoi(argv[4]))), 0;
    if (strcmp(what, "helper") == 0 && argc == 4)
        serve_end(atoi(argv[3]));
    if (strcmp(what, "move") == 0 && argc == 8) {
        signal(SIGPIPE, SIG_IGN);
        struct way w = way(map(), atoi(argv[3]), atoi(argv[4]), atoi(argv[6]), (unsigned)atoi(argv[5]));
        move(&w, strtoul(argv[7], NULL, 10));
        return 0;
    }
    fprintf(stderr, "usage: soak-roads create|report|end|kin|both FILE ...\n");
    return 2;
}
