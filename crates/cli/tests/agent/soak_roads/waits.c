/* Waiting until a direction can go on, in every way there is. */
#include "roads.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

/* An edge-triggered registration that stays, of the thread that reads: an edge counts until a read found nothing. */
static _Thread_local int kept = -1, kept_fd = -1, nothing_seen;
static _Thread_local pid_t kept_by;

void forget_edges(int fd)
{
    if (kept >= 0 && kept_by == getpid() && kept_fd == fd)
        epoll_ctl(kept, EPOLL_CTL_DEL, fd, NULL);
    if (kept_fd == fd)
        kept_fd = -1;
}

void saw_nothing(void)
{
    nothing_seen = 1;
}

static int kept_edge(struct way *w, int ms)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLET | EPOLLRDHUP, .data.u64 = 7};
    if (kept < 0 || kept_by != getpid()) {
        if (kept >= 0)
            close(kept);
        kept = epoll_create1(EPOLL_CLOEXEC), kept_fd = -1, kept_by = getpid();
    }
    if (kept_fd != w->fd) {
        if (epoll_ctl(kept, EPOLL_CTL_ADD, w->fd, &e) != 0 && errno != EEXIST)
            fail(w, "EPOLL_CTL_ADD: %m");
        kept_fd = w->fd;
    } else if (!nothing_seen) {
        char c;
        if (recv(w->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN)
            return 1;
    }
    int n = epoll_wait(kept, &e, 1, ms);
    if (n > 0)
        nothing_seen = 0;
    return n;
}

static int fresh_epoll(struct way *w, uint32_t how, int ms)
{
    struct epoll_event e = {.events = ((w->may & OUT) ? EPOLLOUT : EPOLLIN) | how}, again;
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ctl(set, EPOLL_CTL_ADD, w->fd, &e) != 0)
        fail(w, "EPOLL_CTL_ADD: %m");
    int n = epoll_wait(set, &again, 1, ms);
    if (n == 1 && how == EPOLLONESHOT) {
        if (epoll_wait(set, &again, 1, 0) != 0)
            fail(w, "a oneshot registration was told twice");
        epoll_ctl(set, EPOLL_CTL_MOD, w->fd, &e);
        n = epoll_wait(set, &again, 1, ms);
    }
    int error = errno;
    close(set);
    errno = error;
    return n;
}

static int selected(struct way *w, int ms, int with_mask)
{
    fd_set set;
    struct timeval tv = {ms / 1000, ms % 1000 * 1000};
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
    sigset_t none;
    sigemptyset(&none);
    FD_ZERO(&set);
    FD_SET(w->fd, &set);
    fd_set *in = (w->may & OUT) ? NULL : &set, *out = (w->may & OUT) ? &set : NULL;
    if (with_mask)
        return pselect(w->fd + 1, in, out, NULL, &ts, &none);
    return select(w->fd + 1, in, out, NULL, &tv);
}

/* Whether it can go on; 0 if it could not for `ms` milliseconds. */
int wait_for(struct way *w, int ms)
{
    struct pollfd p = {w->fd, (w->may & OUT) ? POLLOUT : POLLIN, 0};
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
    sigset_t none;
    sigemptyset(&none);
    enum road road = (enum road)chosen(w, FIRST_WAIT, FIRST_CHANGE);
    if (road == R_KEPT_EDGE && (w->may & (OUT | LENT)))
        road = R_EDGE;
    struct note *n = note(w, road, (size_t)ms);
    uint64_t until = now_ms() + (uint64_t)ms;
    int r;
    do {
        switch (road) {
        case R_PPOLL:
            r = ppoll(&p, 1, &ts, &none);
            break;
        case R_SELECT:
            r = selected(w, ms, 0);
            break;
        case R_PSELECT:
            r = selected(w, ms, 1);
            break;
        case R_LEVEL:
            r = fresh_epoll(w, 0, ms);
            break;
        case R_EDGE:
            r = fresh_epoll(w, EPOLLET, ms);
            break;
        case R_ONESHOT:
            r = fresh_epoll(w, EPOLLONESHOT, ms);
            break;
        case R_KEPT_EDGE:
            r = kept_edge(w, ms);
            break;
        default:
            r = poll(&p, 1, ms);
        }
    } while (r < 0 && errno == EINTR && now_ms() < until);
    if (r < 0 && errno != EINTR)
        fail(w, "a wait: %m");
    done(w, n, r);
    return r > 0;
}
