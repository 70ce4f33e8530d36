/* Roads by which bytes come in: each takes up to n bytes into the buffer, and says how many; 0 is the end. */
#include "roads.h"

#include <aio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

static void pieces(struct way *w, size_t n, struct iovec v[3])
{
    size_t a = any(w, n + 1), b = any(w, n - a + 1);
    v[0] = (struct iovec){w->buffer, a};
    v[1] = (struct iovec){w->buffer + a, b};
    v[2] = (struct iovec){w->buffer + a + b, n - a - b};
}

/* Until that much is there, the reader does not go on. */
static uint64_t needs(struct way *w, size_t n)
{
    uint64_t before = atomic_load(&w->end->need), need = atomic_load(&w->end->received) + n;
    if (need > before)
        atomic_store(&w->end->need, need);
    return before;
}

static ssize_t peeked(struct way *w, size_t n)
{
    ssize_t k = recv(w->fd, w->buffer, n, MSG_PEEK | (any(w, 2) ? MSG_DONTWAIT : 0));
    if (k <= 0)
        return k;
    check(w, w->buffer, (size_t)k, "a peek");
    memset(w->buffer, 0, (size_t)k);
    ssize_t r = recv(w->fd, w->buffer, (size_t)k, 0);
    return r;
}

static ssize_t waited_for(struct way *w, size_t n, int peek)
{
    uint64_t before = needs(w, n);
    ssize_t k = recv(w->fd, w->buffer, n, MSG_WAITALL | peek);
    if (peek && k > 0) {
        check(w, w->buffer, (size_t)k, "a peek that waits");
        k = recv(w->fd, w->buffer, (size_t)k, 0);
    }
    int error = errno;
    atomic_store(&w->end->need, before);
    errno = error;
    return k;
}

/* As much as is there: for more the kernel need not have room while nothing is taken, and a peek would wait for ever. */
static ssize_t peeked_in_full(struct way *w, size_t n)
{
    int there = 0;
    if (ioctl(w->fd, FIONREAD, &there) != 0 || there == 0)
        return recv(w->fd, w->buffer, n, 0);
    return waited_for(w, n > (size_t)there ? (size_t)there : n, MSG_PEEK);
}

static ssize_t by_messages(struct way *w, size_t n)
{
    struct iovec v[3];
    struct mmsghdr m[3];
    size_t part = n / 3, all = 0;
    memset(m, 0, sizeof m);
    if (part == 0)
        return recv(w->fd, w->buffer, n, 0);
    for (int i = 0; i < 3; i++) {
        v[i] = (struct iovec){w->buffer + (size_t)i * part, part};
        m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
    }
    int k = recvmmsg(w->fd, m, 3, MSG_WAITFORONE, NULL);
    for (int i = 0; i < k; i++) {
        /* Each message may be a part of its buffer. */
        memmove(w->buffer + all, v[i].iov_base, m[i].msg_len);
        all += m[i].msg_len;
    }
    return k < 0 ? -1 : (ssize_t)all;
}

static ssize_t through_pipe(struct way *w, size_t n, int twice)
{
    static _Thread_local unsigned char copy[BUFFER];
    int p[2], q[2];
    n = n > 60000 ? 60000 : n;
    if (pipe2(p, O_CLOEXEC) || pipe2(q, O_CLOEXEC))
        fail(w, "pipe: %m");
    ssize_t k = splice(w->fd, NULL, p[1], NULL, n, 0);
    int error = errno;
    if (k > 0 && twice) {
        ssize_t t = tee(p[0], q[1], (size_t)k, 0);
        if (t <= 0 || read(q[0], copy, (size_t)t) != t)
            fail(w, "tee: %m");
        check(w, copy, (size_t)t, "a tee");
    }
    for (ssize_t got = 0; got < k;) {
        ssize_t r = read(p[0], w->buffer + got, (size_t)(k - got));
        if (r <= 0)
            fail(w, "a pipe: %m");
        got += r;
    }
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
    /* At the mark of urgent data nothing is spliced. */
    if (k == 0)
        return recv(w->fd, w->buffer, n, 0);
    errno = error;
    return k;
}

static ssize_t by_stream(struct way *w, size_t n)
{
    uint64_t before = needs(w, n);
    FILE *f = fdopen(dup(w->fd), "r");
    atomic_store(&w->end->for_good, 1);
    if (f == NULL)
        fail(w, "fdopen: %m");
    /* It must not read ahead. */
    setvbuf(f, NULL, _IONBF, 0);
    errno = 0;
    ssize_t k = (ssize_t)fread(w->buffer, 1, n, f);
    int error = errno, bad = ferror(f);
    fclose(f);
    atomic_store(&w->end->need, before);
    errno = error;
    return k == 0 && bad ? -1 : k;
}

static ssize_t by_aio(struct way *w, size_t n)
{
    struct aiocb c = {.aio_fildes = w->fd, .aio_buf = w->buffer, .aio_nbytes = n};
    const struct aiocb *list[1] = {&c};
    if (aio_read(&c) != 0)
        return -1;
    while (aio_error(&c) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    errno = aio_error(&c);
    return aio_return(&c);
}

static ssize_t above_mark(struct way *w, size_t n)
{
    int mark = n > 3000 ? 3000 : (int)n, one = 1;
    uint64_t before = needs(w, (size_t)mark);
    ssize_t k = -1;
    setsockopt(w->fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark);
    if (!wait_for(w, PATIENCE_MS))
        fail(w, "a wait for %d bytes", mark);
    /* Linux wakes who has taken a part only when as much as the mark comes on top of it. */
    k = recv(w->fd, w->buffer, n, MSG_DONTWAIT);
    int error = errno;
    setsockopt(w->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    atomic_store(&w->end->need, before);
    errno = error;
    return k;
}

static ssize_t with_time(struct way *w, size_t n)
{
    struct timeval short_one = {0, 5000}, none = {0, 0};
    setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &short_one, sizeof short_one);
    ssize_t k = recv(w->fd, w->buffer, n, 0);
    int error = errno;
    setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    errno = error;
    return k;
}

ssize_t inward(struct way *w, enum road road, size_t n)
{
    struct iovec v[3];
    int flags = any(w, 3) ? 0 : MSG_DONTWAIT;
    switch (road) {
    case R_READ:
        return read(w->fd, w->buffer, n);
    case R_READV:
        pieces(w, n, v);
        return readv(w->fd, v, 3);
    case R_PREADV2:
        pieces(w, n, v);
        return preadv2(w->fd, v, 3, -1, 0);
    case R_RECVMSG:
        pieces(w, n, v);
        return recvmsg(w->fd, &(struct msghdr){.msg_iov = v, .msg_iovlen = 3}, flags);
    case R_RECVMMSG:
        return by_messages(w, n);
    case R_PEEK:
        return peeked(w, n);
    case R_WAITALL:
        return waited_for(w, n, 0);
    case R_PEEKALL:
        return peeked_in_full(w, n);
    case R_IN_NUMBER:
        if (any(w, 2))
            return syscall(SYS_read, w->fd, w->buffer, n);
        return syscall(SYS_recvfrom, w->fd, w->buffer, n, flags, NULL, NULL);
    case R_RCVLOWAT:
        return above_mark(w, n);
    case R_RCVTIMEO:
        return with_time(w, n);
    case R_IN_SPLICE:
    case R_IN_TEE:
        return through_pipe(w, n, road == R_IN_TEE);
    case R_IN_STDIO:
        return by_stream(w, n);
    case R_IN_AIO:
        return by_aio(w, n);
    case R_IN_URING:
        return by_uring(w, n);
    case R_IN_RAW:
        return inline_call(SYS_recvfrom, w->fd, (long)w->buffer, (long)n, 0, 0, 0);
    default:
        return recv(w->fd, w->buffer, n, flags);
    }
}
