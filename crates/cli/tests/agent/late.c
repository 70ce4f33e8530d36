// Echoes to one until an octet LAST comes, does something after which what stands in a ring is none of the stream's, and counts what it reads all the same.
// Usage: late WAY: which one; it prints its port, and then how many octets it read after that, how many of a connection that
// has the number since, and how it ended (end, reset, error, open)
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<liburing.h>)
#include <liburing.h>
#define HAVE_RING
#endif

enum { LAST = 0x7f, OTHER = 'w', PIECE = 65536 };
static unsigned char piece[PIECE];
static int listener, s;

static void die(const char *what) {
    printf("wrong: %s (%s)\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void set_key(int fd) {
    // One for somebody else; a kernel that has none refuses it.
    struct tcp_md5sig key = {.tcpm_keylen = 4, .tcpm_key = "none"};
    struct sockaddr_in *of = (void *)&key.tcpm_addr;
    of->sin_family = AF_INET;
    of->sin_addr.s_addr = htonl(0x7f000009);
    setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key);
}

static void by_key(void) {
    set_key(s);
}

static void by_filter(void) {
    struct sock_filter all = {BPF_RET | BPF_K, 0, 0, 0xffffffff};
    struct sock_fprog program = {1, &all};
    if (setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program))
        die("SO_ATTACH_FILTER");
}

// The other end is killed meanwhile, in the middle of taking back what it wrote.
static void by_late_filter(void) {
    usleep(300000);
    by_filter();
}

static void by_ttl(void) {
    int least = 1;
    if (setsockopt(s, IPPROTO_IP, IP_MINTTL, &least, sizeof least))
        die("IP_MINTTL");
}

static void wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        die("a child");
}

static void by_child(void) {
    pid_t child = fork();
    if (!child) {
        set_key(s);
        _exit(0);
    }
    wait_for(child);
}

static void by_child_in_memory(void) {
    pid_t child = vfork();
    if (!child) {
        set_key(s);
        _exit(0);
    }
    wait_for(child);
}

static void by_spawn(void) {
    static char *words[] = {"true", NULL}, *none[] = {NULL};
    pid_t child;
    if (posix_spawnp(&child, "true", NULL, NULL, words, none))
        die("posix_spawn");
    wait_for(child);
}

static void by_message(void) {
    int pair[2];
    char room[CMSG_SPACE(sizeof s)], octet = 0;
    struct iovec one = {&octet, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof s)};
    memcpy(CMSG_DATA(control), &s, sizeof s);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || sendmsg(pair[0], &message, 0) != 1)
        die("SCM_RIGHTS");
}

// By a process that has the library, too: what takes it says so.
static void by_taking(void) {
    pid_t whose = getpid(), child = fork();
    if (!child) {
        int file = pidfd_open(whose, 0), taken = file < 0 ? -1 : pidfd_getfd(file, s, 0);
        if (taken < 0)
            die("pidfd_getfd");
        set_key(taken);
        _exit(0);
    }
    wait_for(child);
}

static void by_end_of_child(void) {
    pid_t child = fork();
    if (!child) {
        shutdown(s, SHUT_RDWR);
        _exit(0);
    }
    wait_for(child);
}

static void by_end(void) {
    shutdown(s, SHUT_RDWR);
}

// Another connection has the number then.
static void by_closing(void) {
    close(s);
    if (accept(listener, NULL, NULL) != s)
        die("another number");
}

#ifdef HAVE_RING
// 0 where there is no io_uring.
static int ring_of(struct io_uring *ring) {
    int r = io_uring_queue_init(8, ring, 0);
    errno = -r;
    if (r < 0 && r != -ENOSYS && r != -EPERM)
        die("io_uring");
    return r >= 0;
}

static int complete(struct io_uring *ring) {
    struct io_uring_cqe *event;
    if (io_uring_submit(ring) != 1 || io_uring_wait_cqe(ring, &event))
        die("submit");
    int r = event->res;
    io_uring_cqe_seen(ring, event);
    return r;
}

static void by_ring(void) {
    static struct io_uring ring;
    if (!ring_of(&ring))
        by_closing();
}

static void by_closing_in_ring(void) {
    static struct io_uring ring;
    if (!ring_of(&ring))
        return by_closing();
    io_uring_prep_close(io_uring_get_sqe(&ring), s);
    if (complete(&ring))
        die("IORING_OP_CLOSE");
    io_uring_prep_accept(io_uring_get_sqe(&ring), listener, NULL, NULL, 0);
    if (complete(&ring) != s)
        die("another number");
}

// While octets to the first one wait for room in the kernel.
static void by_closing_full_in_ring(void) {
    for (double until = now() + 2; now() < until;)
        usleep(send(s, piece, 8000, MSG_DONTWAIT | MSG_NOSIGNAL) > 0 ? 50 : 1000);
    by_closing_in_ring();
}
#else
#define by_ring by_closing
#define by_closing_full_in_ring by_closing
#define by_closing_in_ring by_closing
#endif

static const struct {
    const char *name;
    void (*goes)(void);
} WAYS[] = {
    {"key", by_key},
    {"filter", by_filter},
    {"late-filter", by_late_filter},
    {"ttl", by_ttl},
    {"child", by_child},
    {"child-in-memory", by_child_in_memory},
    {"spawn", by_spawn},
    {"message", by_message},
    {"taking", by_taking},
    {"end", by_end},
    {"end-of-child", by_end_of_child},
    {"ring", by_ring},
    {"closing", by_closing},
    {"closing-in-ring", by_closing_in_ring},
    {"closing-full-in-ring", by_closing_full_in_ring},
};

int main(int count, char **words) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (void *)&a, len) || listen(listener, 64) || getsockname(listener, (void *)&a, &len))
        die("listen");
    printf("port %d\n", ntohs(a.sin_port));
    fflush(stdout);
    if ((s = accept(listener, NULL, NULL)) < 0)
        die("accept");
    for (;;) {
        ssize_t n = recv(s, piece, PIECE, 0);
        if (n <= 0)
            die("nothing to echo");
        if (piece[n - 1] == LAST)
            break;
        if (send(s, piece, n, MSG_NOSIGNAL) < 0)
            die("an echo");
    }
    int is_known = 0;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        if (count > 1 && !strcmp(words[1], WAYS[i].name))
            WAYS[i].goes(), is_known = 1;
    if (!is_known)
        die("another way");
    long later = 0, others = 0;
    const char *ends = NULL;
    for (double until = now() + 0.5; now() < until;) {
        ssize_t n = recv(s, piece, PIECE, MSG_DONTWAIT);
        for (ssize_t at = 0; at < n; at++)
            later += piece[at] != OTHER, others += piece[at] == OTHER;
        if (n <= 0 && !ends)
            ends = !n ? "end" : errno == EAGAIN ? NULL : errno == ECONNRESET ? "reset" : "error";
        if (n <= 0)
            usleep(1000);
    }
    piece[0] = OTHER;
    if (send(s, piece, 1, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
        die("an octet to whom has the number");
    close(s);
    printf("later %ld %ld %s\n", later, others, ends ? ends : "open");
    return 0;
}
