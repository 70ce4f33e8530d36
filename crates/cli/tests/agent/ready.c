/* Readiness: poll, select and epoll in all their spellings. */
#include "agent.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static const struct bit {
    const char *name;
    uint32_t value;
} bits[] = {
    {"in", EPOLLIN},         {"pri", EPOLLPRI},     {"out", EPOLLOUT},
    {"err", EPOLLERR},       {"hup", EPOLLHUP},     {"nval", POLLNVAL},
    {"rdnorm", EPOLLRDNORM}, {"rdband", EPOLLRDBAND}, {"wrnorm", EPOLLWRNORM},
    {"wrband", EPOLLWRBAND}, {"rdhup", EPOLLRDHUP}, {"et", EPOLLET},
    {"oneshot", EPOLLONESHOT}, {"exclusive", EPOLLEXCLUSIVE}, {NULL, 0},
};

static uint32_t parse_bits(const char *words)
{
    char copy[128], *save = NULL;
    uint32_t sum = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save))
        for (const struct bit *b = bits; b->name; b++)
            if (strcmp(b->name, w) == 0)
                sum |= b->value;
    return sum;
}

static void say_bits(struct out *o, uint32_t value)
{
    const char *join = "";
    for (const struct bit *b = bits; b->name; b++)
        if (value & b->value) {
            say(o, "%s%s", join, b->name);
            value &= ~b->value;
            join = "|";
        }
    if (value)
        say(o, "%s%#x", join, value);
    else if (!*join)
        say(o, "0");
}

static sigset_t *empty_mask(void)
{
    static sigset_t set;
    sigemptyset(&set);
    return &set;
}

/* FD:EVENTS words from `from` on */
static nfds_t parse_polls(struct args *a, int from, struct pollfd *p, nfds_t most)
{
    nfds_t n = 0;
    for (int i = from; i < a->n && n < most; i++, n++) {
        char *colon = strchr(a->word[i], ':');
        p[n].fd = (int)number(a->word[i]);
        p[n].events = (short)parse_bits(colon ? colon + 1 : "");
        p[n].revents = 0x3333;
    }
    return n;
}

static void say_polls(struct out *o, const struct pollfd *p, nfds_t n, int failed)
{
    for (nfds_t i = 0; i < n; i++) {
        say(o, " %d:", p[i].fd);
        if (failed)
            say(o, p[i].revents == 0x3333 ? "untouched" : "written");
        else
            say_bits(o, (uint16_t)p[i].revents);
    }
}

/* poll MS FD:EVENTS ... */
static void do_poll(struct args *a, struct out *o)
{
    struct pollfd p[32];
    nfds_t n = parse_polls(a, 2, p, 32);
    CALL(o, poll(p, n, (int)num(a, 1)));
    say_polls(o, p, n, o->text[0] == '-');
}
static void do_ppoll(struct args *a, struct out *o)
{
    struct pollfd p[32];
    nfds_t n = parse_polls(a, 2, p, 32);
    long ms = num(a, 1);
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    CALL(o, ppoll(p, n, ms < 0 ? NULL : &t, empty_mask()));
    say_polls(o, p, n, o->text[0] == '-');
}

/* wait_ev FD EVENTS: until all of EVENTS are reported (asked behind nobody's back, by poll). */
static void do_wait_ev(struct args *a, struct out *o)
{
    uint64_t end = now_ms() + DEADLINE_MS;
    short want = (short)parse_bits(arg(a, 2));
    struct pollfd p = {(int)num(a, 1), want, 0};
    for (unsigned step = 10;; step = step < 1000 ? step * 2 : 1000) {
        p.revents = 0;
        int n = poll(&p, 1, 50);
        if (n > 0 && (p.revents & want) == want) {
            say(o, "seen");
            return;
        }
        if (now_ms() > end) {
            say(o, "only ");
            say_bits(o, (uint16_t)p.revents);
            return;
        }
        nap_us(step);
    }
}

/* select MS [r:FD] [w:FD] [e:FD] ... */
static void run_select(struct args *a, struct out *o, int with_mask)
{
    fd_set set[3];
    int use[3] = {0, 0, 0}, most = -1;
    const char *kinds = "rwe";
    for (int k = 0; k < 3; k++)
        FD_ZERO(&set[k]);
    for (int i = 2; i < a->n; i++) {
        const char *k = strchr(kinds, a->word[i][0]);
        int fd = (int)number(a->word[i] + 2);
        if (!k || fd < 0 || fd >= FD_SETSIZE)
            continue;
        FD_SET(fd, &set[k - kinds]);
        use[k - kinds] = 1;
        most = fd > most ? fd : most;
    }
    long ms = num(a, 1);
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    fd_set *s[3];
    for (int k = 0; k < 3; k++)
        s[k] = use[k] ? &set[k] : NULL;
    if (with_mask)
        CALL(o, pselect(most + 1, s[0], s[1], s[2], ms < 0 ? NULL : &ts, empty_mask()));
    else
        CALL(o, select(most + 1, s[0], s[1], s[2], ms < 0 ? NULL : &t));
    for (int k = 0; k < 3; k++)
        for (int fd = 0; use[k] && fd <= most; fd++)
            if (FD_ISSET(fd, &set[k]))
                say(o, " %c:%d", kinds[k], fd);
    /* Linux writes the time left; a call that found something at once left nearly all of it. */
    if (!with_mask && ms >= 1000)
        say(o, t.tv_sec * 1000 + t.tv_usec / 1000 > ms / 2 ? " left" : " used");
}
static void do_select(struct args *a, struct out *o) { run_select(a, o, 0); }
static void do_pselect(struct args *a, struct out *o) { run_select(a, o, 1); }

static void do_epoll_create(struct args *a, struct out *o) { CALL(o, epoll_create((int)num_or(a, 1, 8))); }
static void do_epoll_create1(struct args *a, struct out *o)
{
    CALL(o, epoll_create1(strcmp(arg(a, 1), "cloexec") == 0 ? EPOLL_CLOEXEC : (int)num_or(a, 1, 0)));
}

/* epoll_ctl EP add|mod|del FD [EVENTS [DATA]] */
static void do_epoll_ctl(struct args *a, struct out *o)
{
    const char *op = arg(a, 2);
    struct epoll_event e = {.events = a->n > 4 ? parse_bits(a->word[4]) : 0};
    e.data.u64 = (uint64_t)num_or(a, 5, num(a, 3));
    int code = strcmp(op, "add") == 0 ? EPOLL_CTL_ADD : strcmp(op, "mod") == 0 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    CALL(o, epoll_ctl((int)num(a, 1), code, (int)num(a, 3), a->n > 4 ? &e : NULL));
}

static int by_data(const void *x, const void *y)
{
    uint64_t a = ((const struct epoll_event *)x)->data.u64, b = ((const struct epoll_event *)y)->data.u64;
    return a < b ? -1 : a > b;
}

static void say_events(struct out *o, struct epoll_event *e, long n)
{
    if (n > 0)
        qsort(e, (size_t)n, sizeof *e, by_data);
    for (long i = 0; i < n; i++) {
        say(o, " %llu:", (unsigned long long)e[i].data.u64);
        say_bits(o, e[i].events);
    }
}

/* epoll_wait EP MAX MS: events sorted by their data (the order of the ready list is nobody's promise) */
#define WAIT_EPOLL(expression)                                                                               \
    struct epoll_event e[32];                                                                                \
    int ep = (int)num(a, 1), most = (int)num(a, 2);                                                          \
    long ms = num(a, 3);                                                                                     \
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};                                                    \
    (void)t;                                                                                                 \
    errno = UNTOUCHED;                                                                                       \
    long n = (expression);                                                                                   \
    answer(o, n, errno);                                                                                     \
    say_events(o, e, n)

static void do_epoll_wait(struct args *a, struct out *o) { WAIT_EPOLL(epoll_wait(ep, e, most, (int)ms)); }
static void do_epoll_pwait(struct args *a, struct out *o)
{
    WAIT_EPOLL(epoll_pwait(ep, e, most, (int)ms, empty_mask()));
}
static void do_epoll_pwait2(struct args *a, struct out *o)
{
    WAIT_EPOLL(epoll_pwait2(ep, e, most, ms < 0 ? NULL : &t, empty_mask()));
}

/* epoll_loop EP N FD: a server's loop: waits and reads all that is there until N bytes came (data = FD). */
static void do_epoll_loop(struct args *a, struct out *o)
{
    struct epoll_event e[8];
    long total = 0, n;
    uint64_t end = now_ms() + DEADLINE_MS;
    while (total < num(a, 2) && now_ms() < end) {
        n = epoll_wait((int)num(a, 1), e, 8, 100);
        for (long i = 0; i < n; i++) {
            long got;
            while ((got = recv((int)e[i].data.u64, area(a->slot), 65536, MSG_DONTWAIT)) > 0)
                total += got;
            if (got < 0 && errno != EAGAIN)
                say(o, "error ");
        }
    }
    say(o, "total %ld", total);
}

const struct command ready_commands[] = {
    {"poll", do_poll},           {"ppoll", do_ppoll},
    {"wait_ev", do_wait_ev},     {"select", do_select},
    {"pselect", do_pselect},     {"epoll_create", do_epoll_create},
    {"epoll_create1", do_epoll_create1}, {"epoll_ctl", do_epoll_ctl},
    {"epoll_wait", do_epoll_wait}, {"epoll_pwait", do_epoll_pwait},
    {"epoll_pwait2", do_epoll_pwait2}, {"epoll_loop", do_epoll_loop},
    {"epoll_edges", do_epoll_wait}, /* compared for what must be reported; more may be */
    {NULL, NULL},
};
