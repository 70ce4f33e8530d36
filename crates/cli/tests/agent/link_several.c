/* Calls for several messages or descriptors, which the plug-in's table does not have: by those that it has. */
#include "link.h"
#include <errno.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <time.h>

int __wrap_poll(struct pollfd *, nfds_t, int);
ssize_t __wrap_sendmsg(int, const struct msghdr *, int);
ssize_t __wrap_recvmsg(int, struct msghdr *, int);
ssize_t __wrap_readv(int, const struct iovec *, int);
int __wrap_getsockopt(int, int, int, void *, socklen_t *);
int __wrap_ioctl(int, unsigned long, ...);

/* What select(2) calls readable, writable and exceptional; a descriptor that is closed meanwhile is all of that. */
#define READABLE (POLLNVAL | POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR)
#define WRITABLE (POLLNVAL | POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR)
#define STRANGE (POLLNVAL | POLLPRI)

static const short KINDS[3] = {READABLE, WRITABLE, STRANGE};

static long long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* select(2) by poll(2), which tells of the end without being asked for it. */
static int wait_for_sets(int most, fd_set *set[3], long long *us)
{
    struct pollfd p[FD_SETSIZE];
    int n = 0, found = 0;
    if (most < 0 || (us && *us < 0)) {
        errno = EINVAL;
        return -1;
    }
    for (int k = 0; k < 3; k++)
        if (set[k] && !is_there(set[k], ((size_t)most + 7) / 8))
            return -1;
    for (int fd = 0; fd < most && fd < FD_SETSIZE; fd++) {
        short wanted = 0;
        for (int k = 0; k < 3; k++)
            if (set[k] && FD_ISSET(fd, set[k]))
                wanted |= KINDS[k];
        if (wanted)
            p[n++] = (struct pollfd){fd, wanted, 0};
    }
    if (__wrap_poll(p, (nfds_t)n, 0) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (p[i].revents & POLLNVAL) {
            errno = EBADF;
            return -1;
        }
    long long end = us ? now_us() + *us : 0;
    for (;;) {
        long long left = us ? end - now_us() : 0;
        int ms = !us ? -1 : left <= 0 ? 0 : left / 1000 >= INT_MAX ? INT_MAX : (int)((left + 999) / 1000);
        if (__wrap_poll(p, (nfds_t)n, ms) < 0)
            return -1;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 3; k++)
                found += set[k] && FD_ISSET(p[i].fd, set[k]) && p[i].revents & KINDS[k];
        if (found || ms == 0)
            break;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            if (set[k] && !(p[i].revents & KINDS[k]))
                FD_CLR(p[i].fd, set[k]);
    if (us)
        *us = end > now_us() ? end - now_us() : 0;
    return found;
}

int __wrap_select(int most, fd_set *r, fd_set *w, fd_set *e, struct timeval *time)
{
    fd_set *set[3] = {r, w, e};
    if (!is_stack)
        return __real_select(most, r, w, e, time);
    long long us = time ? time->tv_sec * 1000000LL + time->tv_usec : 0;
    int before = errno, found = wait_for_sets(most, set, time ? &us : NULL);
    if (found < 0)
        return -1;
    if (time)
        *time = (struct timeval){us / 1000000, us % 1000000};
    errno = before;
    return found;
}
int __wrap_pselect(int most, fd_set *r, fd_set *w, fd_set *e, const struct timespec *time, const sigset_t *mask)
{
    fd_set *set[3] = {r, w, e};
    if (!is_stack)
        return __real_pselect(most, r, w, e, time, mask);
    long long us = time ? time->tv_sec * 1000000LL + time->tv_nsec / 1000 : 0;
    int before = errno, found = wait_for_sets(most, set, time ? &us : NULL);
    if (found >= 0)
        errno = before;
    return found;
}

int __wrap_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
    unsigned done = 0;
    if (!is_stack)
        return __real_sendmmsg(fd, m, n, flags);
    int before = errno;
    for (; done < n; done++) {
        ssize_t sent = __wrap_sendmsg(fd, &m[done].msg_hdr, flags);
        if (sent < 0)
            break;
        m[done].msg_len = (unsigned)sent;
    }
    if (done == 0 && n > 0)
        return -1;
    errno = before;
    return (int)done;
}

int __wrap_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *time)
{
    unsigned done = 0;
    int before = errno, error = 0;
    socklen_t len = sizeof error;
    if (!is_stack)
        return __real_recvmmsg(fd, m, n, flags, time);
    long long end = time ? now_us() + time->tv_sec * 1000000LL + time->tv_nsec / 1000 : 0;
    /* It tells an error before anything that came. */
    if (__wrap_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        return -1;
    if (error) {
        errno = error;
        return -1;
    }
    for (int last = 0; done < n && !last; done++) {
        ssize_t got = __wrap_recvmsg(fd, &m[done].msg_hdr, flags & ~MSG_WAITFORONE);
        if (got < 0)
            break;
        m[done].msg_len = (unsigned)got;
        if (flags & MSG_WAITFORONE)
            flags |= MSG_DONTWAIT;
        last = (time && now_us() >= end) || m[done].msg_hdr.msg_flags & MSG_OOB;
    }
    if (done == 0 && n > 0)
        return -1;
    if (time) {
        long long left = end > now_us() ? end - now_us() : 0;
        *time = (struct timespec){left / 1000000, left % 1000000 * 1000};
    }
    errno = before;
    return (int)done;
}

/* It is an ioctl of libc's own. */
int __wrap_sockatmark(int fd)
{
    int mark = 0;
    return __wrap_ioctl(fd, SIOCATMARK, &mark) < 0 ? -1 : mark;
}

/* Of a position that is none it is readv(2). */
ssize_t __wrap_preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
    if (!is_ours(fd))
        return __real_preadv2(fd, v, n, at, flags);
    if (at == -1 && flags == 0)
        return __wrap_readv(fd, v, n);
    errno = at == -1 ? EOPNOTSUPP : ESPIPE;
    return -1;
}
