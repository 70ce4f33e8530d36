/* Roads by which bytes leave: each sends up to n bytes of the buffer, and says how many. */
#include "roads.h"

#include <aio.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

long inline_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* The buffer in three pieces, one of them empty at times. */
static void pieces(struct way *w, size_t n, struct iovec v[3])
{
    size_t a = any(w, n + 1), b = any(w, n - a + 1);
    v[0] = (struct iovec){w->buffer, a};
    v[1] = (struct iovec){w->buffer + a, b};
    v[2] = (struct iovec){w->buffer + a + b, n - a - b};
}

static ssize_t by_messages(struct way *w, size_t n)
{
    struct iovec v[3];
    struct mmsghdr m[3];
    ssize_t all = 0;
    pieces(w, n, v);
    memset(m, 0, sizeof m);
    for (int i = 0; i < 3; i++)
        m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
    int k = sendmmsg(w->fd, m, 3, MSG_NOSIGNAL);
    for (int i = 0; i < k; i++)
        all += m[i].msg_len;
    /* Empty messages alone are no progress. */
    if (k > 0 && all == 0)
        return send(w->fd, w->buffer, n, MSG_NOSIGNAL);
    return k < 0 ? -1 : all;
}

/* What went into the pipe goes on to the socket; what the socket does not take is not sent. */
static ssize_t through_pipe(struct way *w, size_t n, enum road road)
{
    int p[2] = {-1, -1}, q[2] = {-1, -1};
    ssize_t r = -1, all = 0;
    void *pages = MAP_FAILED;
    n = n > 60000 ? 60000 : n;
    if (pipe2(p, O_CLOEXEC) || pipe2(q, O_CLOEXEC))
        fail(w, "pipe: %m");
    if (road == R_VMSPLICE) {
        /* Nobody may write to these pages until the other end has read them. */
        pages = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(pages, w->buffer, n);
        struct iovec v = {pages, n};
        if (vmsplice(p[1], &v, 1, 0) != (ssize_t)n)
            fail(w, "vmsplice: %m");
        munmap(pages, n);
    } else if (write(p[1], w->buffer, n) != (ssize_t)n) {
        fail(w, "a pipe: %m");
    }
    int from = p[0];
    if (road == R_OUT_TEE) {
        if (tee(p[0], q[1], n, 0) != (ssize_t)n)
            fail(w, "tee: %m");
        from = q[0];
    }
    while ((size_t)all < n && (r = splice(from, NULL, w->fd, NULL, n - (size_t)all, 0)) > 0)
        all += r;
    int error = errno;
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
    errno = error;
    return all > 0 ? all : r;
}

static ssize_t of_a_file(struct way *w, size_t n)
{
    int f = memfd_create("soak", MFD_CLOEXEC);
    off_t from = (off_t)any(w, 5000);
    if (f < 0 || pwrite(f, w->buffer, n, from) != (ssize_t)n)
        fail(w, "a file: %m");
    ssize_t r;
    if (any(w, 2)) {
        r = sendfile(w->fd, f, &from, n);
    } else {
        lseek(f, from, SEEK_SET);
        r = sendfile(w->fd, f, NULL, n);
    }
    int error = errno;
    close(f);
    errno = error;
    return r;
}

/* The buffer is the kernel's until it says so. */
static ssize_t without_copy(struct way *w, size_t n)
{
    int one = 1;
    char room[200];
    if (setsockopt(w->fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) != 0) {
        refuse(w, R_ZEROCOPY);
        return send(w->fd, w->buffer, n, MSG_NOSIGNAL);
    }
    ssize_t r = send(w->fd, w->buffer, n, MSG_NOSIGNAL | MSG_ZEROCOPY);
    if (r < 0 && errno == ENOBUFS)
        return send(w->fd, w->buffer, n, MSG_NOSIGNAL);
    for (uint64_t until = now_ms() + PATIENCE_MS; r > 0;) {
        struct msghdr m = {.msg_control = room, .msg_controllen = sizeof room};
        if (recvmsg(w->fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
            break;
        struct pollfd p = {w->fd, 0, 0};
        if (errno == EAGAIN)
            poll(&p, 1, 100);
        if (now_ms() > until)
            fail(w, "no notification of MSG_ZEROCOPY");
    }
    return r;
}

static ssize_t by_stream(struct way *w, size_t n)
{
    int fd = dup(w->fd);
    FILE *f = fdopen(fd, "w");
    atomic_store(&w->end->for_good, 1);
    if (f == NULL || fwrite(w->buffer, 1, n, f) != n || fflush(f) != 0)
        fail(w, "fwrite: %m");
    fclose(f);
    return (ssize_t)n;
}

static ssize_t by_aio(struct way *w, size_t n)
{
    struct aiocb c = {.aio_fildes = w->fd, .aio_buf = w->buffer, .aio_nbytes = n};
    const struct aiocb *list[1] = {&c};
    if (aio_write(&c) != 0)
        return -1;
    while (aio_error(&c) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    errno = aio_error(&c);
    return aio_return(&c);
}

static ssize_t with_time(struct way *w, size_t n)
{
    struct timeval short_one = {0, 5000}, none = {0, 0};
    setsockopt(w->fd, SOL_SOCKET, SO_SNDTIMEO, &short_one, sizeof short_one);
    ssize_t r = send(w->fd, w->buffer, n, MSG_NOSIGNAL);
    int error = errno;
    setsockopt(w->fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    errno = error;
    return r;
}

ssize_t outward(struct way *w, enum road road, size_t n)
{
    struct iovec v[3];
    struct sockaddr_in ignored = {.sin_family = AF_INET};
    int flags = MSG_NOSIGNAL | (any(w, 3) ? 0 : MSG_DONTWAIT);
    switch (road) {
    case R_WRITE:
        return write(w->fd, w->buffer, n);
    case R_SENDTO:
        if (any(w, 2))
            return sendto(w->fd, w->buffer, n, flags, NULL, 0);
        return sendto(w->fd, w->buffer, n, flags, (struct sockaddr *)&ignored, sizeof ignored);
    case R_WRITEV:
        pieces(w, n, v);
        return writev(w->fd, v, 3);
    case R_PWRITEV2:
        pieces(w, n, v);
        return pwritev2(w->fd, v, 3, -1, 0);
    case R_SENDMSG:
        pieces(w, n, v);
        return sendmsg(w->fd, &(struct msghdr){.msg_iov = v, .msg_iovlen = 3}, flags);
    case R_SENDMMSG:
        return by_messages(w, n);
    case R_OUT_NUMBER:
        if (any(w, 2))
            return syscall(SYS_write, w->fd, w->buffer, n);
        return syscall(SYS_sendto, w->fd, w->buffer, n, flags, NULL, 0);
    case R_SNDTIMEO:
        return with_time(w, n);
    case R_SENDFILE:
        return of_a_file(w, n);
    case R_OUT_SPLICE:
    case R_VMSPLICE:
    case R_OUT_TEE:
        return through_pipe(w, n, road);
    case R_OOB:
        return send(w->fd, w->buffer, n > 50 ? 50 : n, flags | MSG_OOB);
    case R_ZEROCOPY:
        return without_copy(w, n);
    case R_OUT_STDIO:
        return by_stream(w, n);
    case R_OUT_AIO:
        return by_aio(w, n);
    case R_OUT_URING:
        return by_uring(w, n);
    case R_OUT_RAW:
        return inline_call(SYS_write, w->fd, (long)w->buffer, (long)n, 0, 0, 0);
    default:
        return send(w->fd, w->buffer, n, flags);
    }
}
