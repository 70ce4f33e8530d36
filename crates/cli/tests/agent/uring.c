// A program that moves the bytes of a TCP connection by io_uring (liburing, whose system calls are inline), beside plain
// calls. Where there is no io_uring it uses plain calls instead. It prints the same on the kernel and under Bypath.
// Usage: uring early|live|files|probe
#define _GNU_SOURCE
#include <liburing.h>
#include <poll.h>
#include <sys/wait.h>

#include "roads_peer.h"

enum { ROUNDS = 60, LARGE = 100000 };

static struct io_uring ring;
static int have_ring;

static void make_ring(void) {
#ifdef BY_NUMBER
    struct io_uring_params p = {0};
    int r = syscall(__NR_io_uring_setup, 8, &p);
    if (r < 0)
        r = -errno;
    else if (io_uring_queue_mmap(r, &p, &ring) != 0)
        die("mmap of the ring");
    // What io_uring_queue_init does besides.
    for (unsigned i = 0; r >= 0 && i < p.sq_entries; i++)
        ring.sq.array[i] = i;
    ring.features = p.features;
#else
    int r = io_uring_queue_init(8, &ring, 0);
#endif
    if (r < 0 && r != -ENOSYS) {
        errno = -r;
        die("io_uring_queue_init");
    }
    have_ring = r >= 0;
    fprintf(stderr, "io_uring %s\n", have_ring ? "is there" : "is not there");
}

static int complete(struct io_uring_sqe *sqe) {
    struct io_uring_cqe *cqe;
    (void)sqe;
    if (io_uring_submit(&ring) != 1 || io_uring_wait_cqe(&ring, &cqe) != 0)
        die("submit");
    int r = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    if (r < 0) {
        errno = -r;
        die("an operation");
    }
    return r;
}

static void uring_give(size_t n) {
    if (!have_ring)
        return give(n, 0);
    for (char *at = next_bytes(n, 0); n > 0;) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        io_uring_prep_send(sqe, s, at, n, 0);
        int k = complete(sqe);
        at += k, n -= k, sent += k;
    }
}

static void uring_take(size_t n) {
    if (!have_ring)
        return take(n, 0);
    while (n > 0) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        io_uring_prep_recv(sqe, s, bytes, n, 0);
        int k = complete(sqe);
        if (k == 0)
            die("the end");
        came(bytes, k, 0);
        n -= k;
    }
}

// Waits by io_uring until the connection can be read, then reads by a plain call.
static void polled_take(size_t n) {
    if (!have_ring)
        return take(n, 0);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_poll_add(sqe, s, POLLIN);
    if (!(complete(sqe) & POLLIN))
        die("poll");
    take(n, 0);
}

static void exchange(void) {
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = i % 10 == 9 ? LARGE : 1 + i * 37;
        order('r', n);
        i % 3 == 0 ? give(n, 0) : uring_give(n);
        done();
        order('s', n);
        i % 4 == 0 ? take(n, 0) : i % 4 == 1 ? polled_take(n) : uring_take(n);
        done();
        // One direction after the other and both at once.
        order('r', 500);
        uring_give(250);
        give(250, 0);
        order('s', 500);
        uring_take(100);
        take(400, 0);
        done();
        done();
    }
    printf("exchanged %llu and %llu bytes\n", (unsigned long long)sent, (unsigned long long)received);
}

// The operation waits in the kernel before its bytes come, and while the peer does something else afterwards.
static void waiting(void) {
    for (int i = 0; i < 5; i++) {
        if (have_ring) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            io_uring_prep_recv(sqe, s, bytes, 1000, MSG_WAITALL);
            if (io_uring_submit(&ring) != 1)
                die("submit");
        }
        order('s', 1000);
        if (have_ring) {
            struct io_uring_cqe *cqe;
            if (io_uring_wait_cqe(&ring, &cqe) != 0 || cqe->res != 1000)
                die("a receive that waited");
            io_uring_cqe_seen(&ring, cqe);
            came(bytes, 1000, 0);
        } else {
            take(1000, 0);
        }
        done();
    }
    puts("waited");
}

// Files only, as a database does: the connection has nothing to do with it.
static void files(void) {
    char line[64] = {0};
    FILE *f = tmpfile();
    if (have_ring) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        io_uring_prep_write(sqe, fileno(f), "written", 7, 0);
        if (complete(sqe) != 7)
            die("write");
    } else {
        pwrite(fileno(f), "written", 7, 0);
    }
    pread(fileno(f), line, sizeof line, 0);
    warm_up();
    puts(line);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "early")) {
        make_ring();
        connection();
        warm_up();
        exchange();
        waiting();
    } else if (!strcmp(how, "live")) {
        connection();
        warm_up();
        make_ring();
        exchange();
        waiting();
    } else if (!strcmp(how, "live-receives")) {
        // A ring that nobody saw come: what is sent to this end is not lost even so.
        connection();
        warm_up();
        make_ring();
        waiting();
        order('r', 5000);
        uring_give(5000);
        done();
    } else if (!strcmp(how, "files")) {
        connection();
        make_ring();
        files();
    } else if (!strcmp(how, "probe")) {
        // Looks whether there is io_uring, and does not use it.
        connection();
        warm_up();
        make_ring();
        if (have_ring)
            io_uring_queue_exit(&ring);
        warm_up();
    } else {
        return 2;
    }
    close(control);
    close(s);
    int status;
    if (waitpid(other, &status, 0) != other || status != 0)
        die("the peer");
    puts("ended");
    return 0;
}
