/* One operation of an io_uring instance that is made for it. What the instance is asked to do no hook sees; that it is made,
 * one sees unless it does not matter any more. */
#include "roads.h"

#include <sys/mman.h>
#include <sys/syscall.h>

static ssize_t without(struct way *w, size_t n)
{
    refuse(w, (w->may & OUT) ? R_OUT_URING : R_IN_URING);
    return (w->may & OUT) ? outward(w, R_SEND, n) : inward(w, R_RECV, n);
}

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>

static void *part(int ring, size_t n, uint64_t offset)
{
    return mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, (off_t)offset);
}

ssize_t by_uring(struct way *w, size_t n)
{
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    int ring = (int)(atomic_load(&w->end->for_good) && any(w, 2)
                         ? inline_call(SYS_io_uring_setup, 2, (long)&p, 0, 0, 0, 0)
                         : syscall(SYS_io_uring_setup, 2, &p));
    if (ring < 0) {
        if (errno != ENOSYS && errno != EPERM && errno != ENOMEM)
            fail(w, "io_uring_setup: %m");
        return without(w, n);
    }
    size_t sq_size = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
    size_t cq_size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t sqe_size = p.sq_entries * sizeof(struct io_uring_sqe);
    char *sq = part(ring, sq_size, IORING_OFF_SQ_RING), *cq = part(ring, cq_size, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe = part(ring, sqe_size, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || (void *)sqe == MAP_FAILED)
        fail(w, "mmap of an io_uring: %m");
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = (w->may & OUT) ? IORING_OP_SEND : IORING_OP_RECV;
    sqe->fd = w->fd;
    sqe->addr = (uint64_t)w->buffer;
    sqe->len = (uint32_t)n;
    sqe->msg_flags = (w->may & OUT) ? MSG_NOSIGNAL : 0;
    ((uint32_t *)(sq + p.sq_off.array))[0] = 0;
    atomic_store((_Atomic uint32_t *)(sq + p.sq_off.tail), 1);
    for (unsigned submit = 1; atomic_load((_Atomic uint32_t *)(cq + p.cq_off.tail)) == 0;) {
        long r = inline_call(SYS_io_uring_enter, ring, submit, 1, IORING_ENTER_GETEVENTS, 0, 0);
        if (r < 0 && errno != EINTR)
            fail(w, "io_uring_enter: %m");
        submit = atomic_load((_Atomic uint32_t *)(sq + p.sq_off.head)) == 0;
    }
    int32_t result = ((struct io_uring_cqe *)(cq + p.cq_off.cqes))[0].res;
    munmap(sqe, sqe_size), munmap(cq, cq_size), munmap(sq, sq_size);
    close(ring);
    if (result < 0) {
        errno = -result;
        return -1;
    }
    return result;
}

#else

/* The headers know of none. */
ssize_t by_uring(struct way *w, size_t n)
{
    return without(w, n);
}

#endif
