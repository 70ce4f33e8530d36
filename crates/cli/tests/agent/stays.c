// A thread sleeps in a call on a descriptor that another thread closes: the call goes on with the connection, which ends
// when the call does. Usage: stays, prints lines.
#define _GNU_SOURCE
#include "warm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { BIG = 8 << 20 };

static int a, b; // the two ends
static char *big;

static void connection(void) {
    int ends[2];
    warm_connection(ends);
    a = ends[0];
    b = ends[1];
}

// ---------------------------------------------------------------- a thread that sleeps in one call

struct sleeper {
    pthread_t thread;
    volatile pid_t tid;
    int fd, how;
    size_t n;
    ssize_t result;
    int error;
};

static void *sleeps(void *arg) {
    struct sleeper *s = arg;
    char *to = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->tid = gettid();
    s->result = s->how == 'w' ? write(s->fd, big, s->n) : recv(s->fd, to, s->n, s->how == 'a' ? MSG_WAITALL : 0);
    s->error = errno;
    munmap(to, BIG);
    return NULL;
}

static void *goes(void *arg);

// Until it has slept for a while.
static void settled(struct sleeper *s) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", s->tid);
    for (int in_a_row = 0; in_a_row < 30;) {
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            die(path);
        fclose(f);
        struct timespec t = {0, 1000000};
        nanosleep(&t, NULL);
        in_a_row = state == 'S' ? in_a_row + 1 : 0;
    }
}

static void start(struct sleeper *s, int fd, int how, size_t n) {
    *s = (struct sleeper){.fd = fd, .how = how, .n = n};
    pthread_create(&s->thread, NULL, how == 'g' ? goes : sleeps, s);
    while (s->tid == 0)
        ;
    settled(s);
}

static void ended(const char *what, struct sleeper *s) {
    pthread_join(s->thread, NULL);
    printf("%s: %zd %s\n", what, s->result, s->result < 0 ? strerrorname_np(s->error) : "");
}

// What the other end sees of the connection's end, if anything, within a while.
static void end_seen(int fd) {
    char c;
    struct pollfd p = {fd, POLLIN | POLLRDHUP, 0};
    int r = poll(&p, 1, 100);
    printf("other end: %d %x", r, p.revents);
    if (r > 0) {
        ssize_t k = recv(fd, &c, 1, MSG_DONTWAIT);
        printf(", %zd %s", k, k < 0 ? strerrorname_np(errno) : "");
    }
    printf("\n");
}

static sigjmp_buf back;
static void leap(int n) {
    (void)n;
    siglongjmp(back, 1);
}

static void nothing(int n) {
    (void)n;
}

// Ends in its handler, or goes on after it, while its call stays.
static int third[2];
static volatile int leaves, on;
static void out(int n) {
    (void)n;
    if (!leaves)
        pthread_exit(NULL);
    siglongjmp(back, 1);
}

static void *goes(void *arg) {
    struct sleeper *s = arg;
    char data[10];
    s->tid = gettid();
    if (sigsetjmp(back, 1) == 0)
        recv(s->fd, data, sizeof data, 0);
    recv(third[0], data, sizeof data, MSG_DONTWAIT);
    on = 1;
    for (;;)
        pause();
    return NULL;
}

static void *child_sends(void *arg) {
    (void)arg;
    all(b, big, 5, 1);
    return NULL;
}

int main(void) {
    struct sleeper s, t;
    char data[100];
    alarm(50);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    big = calloc(1, BIG);

    for (int numbers = 0; numbers < 2; numbers++) {
        // With the number used anew or not, the call has the connection.
        connection();
        start(&s, a, 'r', 100);
        close(a);
        int other = numbers ? dup(0) : -1;
        end_seen(b);
        all(b, big, 10, 1);
        ended("read, then bytes", &s);
        end_seen(b);
        close(b);
        close(other);
    }

    connection();
    start(&s, a, 'r', 100);
    close(a);
    close(b);
    ended("read, then the end", &s);

    connection();
    start(&s, a, 'a', 3000);
    close(a);
    all(b, big, 1000, 1);
    end_seen(b);
    all(b, big, 2000, 1);
    ended("read of all", &s);
    end_seen(b);
    close(b);

    connection();
    start(&s, a, 'r', 100);
    start(&t, a, 'r', 100);
    close(a);
    all(b, big, 10, 1);
    end_seen(b);
    all(b, big, 10, 1);
    ended("first of two", &s);
    ended("second of two", &t);
    end_seen(b);
    close(b);

    connection();
    start(&s, a, 'w', BIG);
    close(a);
    size_t got = 0;
    for (ssize_t k; (k = read(b, data, sizeof data)) > 0; got += k)
        ;
    ended("write", &s);
    printf("arrived: %zu\n", got);
    close(b);

    // One of two descriptors is closed, then the other.
    connection();
    int twin = dup(a);
    start(&s, a, 'r', 100);
    close(a);
    all(b, big, 10, 1);
    ended("read by one of two descriptors", &s);
    start(&s, twin, 'r', 100);
    dup2(0, twin);
    end_seen(b);
    all(b, big, 10, 1);
    ended("read by a descriptor that was replaced", &s);
    end_seen(b);
    close(twin);
    close(b);

    // The number becomes a file's that is always ready, and a signal comes: so Java ends a thread's read.
    struct sigaction act = {.sa_handler = nothing};
    sigaction(SIGUSR1, &act, NULL);
    for (int n = 0; n < 10; n++) {
        int closed[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, closed))
            die("socketpair");
        close(closed[1]);
        connection();
        start(&s, a, 'r', 100);
        dup2(closed[0], a);
        settled(&s);
        pthread_kill(s.thread, SIGUSR1);
        ended("read by a descriptor that was replaced, and a signal", &s);
        end_seen(b);
        close(closed[0]);
        close(a);
        close(b);
    }

    // Unread bytes: the end of the call resets the connection.
    connection();
    start(&s, a, 'a', 10);
    close(a);
    all(b, big, 30, 1);
    ended("read of a part", &s);
    end_seen(b);
    close(b);

    // A call that was left long ago keeps nothing.
    connection();
    signal(SIGUSR1, leap);
    if (sigsetjmp(back, 1) == 0) {
        act.sa_handler = leap;
        sigaction(SIGALRM, &act, NULL);
        ualarm(50000, 0);
        recv(a, data, 10, 0);
    }
    signal(SIGALRM, SIG_DFL);
    alarm(50);
    close(a);
    end_seen(b);
    close(b);

    // A child has nothing of a call in its parent.
    connection();
    start(&s, a, 'r', 100);
    close(a);
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        close(b);
        _exit(0);
    }
    waitpid(p, NULL, 0);
    end_seen(b);
    pthread_create(&t.thread, NULL, child_sends, NULL);
    pthread_join(t.thread, NULL);
    ended("read beside a fork", &s);
    end_seen(b);
    close(b);

    // Cancelled while it stays.
    connection();
    start(&s, a, 'r', 100);
    close(a);
    end_seen(b);
    pthread_cancel(s.thread);
    pthread_join(s.thread, NULL);
    end_seen(b);
    close(b);

    // Ended or left by a handler while it stays.
    connection();
    third[0] = a;
    third[1] = b;
    for (leaves = 0; leaves < 2; leaves++) {
        connection();
        signal(SIGUSR2, out);
        start(&s, a, 'g', 0);
        close(a);
        end_seen(b);
        on = 0;
        pthread_kill(s.thread, SIGUSR2);
        while (leaves && !on)
            ;
        if (leaves)
            pthread_cancel(s.thread);
        pthread_join(s.thread, NULL);
        end_seen(b);
        close(b);
    }
    close(third[0]);
    end_seen(third[1]);
    return 0;
}
