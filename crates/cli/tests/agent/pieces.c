// A thread is in one call that goes in several parts, and another thread closes the number and opens something else by it: the
// rest goes to, and comes from, what the number meant at the begin. Usage: pieces, prints lines.
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
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <time.h>

enum { MESSAGES = 64, LONG = 3 * 65536, BIG = MESSAGES * LONG, SHORT = 1000 };

static int a, b; // the connection
static int c, d; // the one that takes its number
static char *mine, *room;

static void connections(void) {
    int ends[2];
    warm_connection(ends);
    a = ends[0];
    b = ends[1];
    warm_connection(ends);
    c = ends[0];
    d = ends[1];
}

// A file of so many of these, without a name.
static int file(char what, size_t n) {
    int f = memfd_create("file", MFD_CLOEXEC);
    char *data = malloc(n);
    memset(data, what, n);
    all(f, data, n, 1);
    free(data);
    lseek(f, 0, SEEK_SET);
    return f;
}

// ---------------------------------------------------------------- a thread that sleeps in one call

struct sleeper {
    pthread_t thread;
    volatile pid_t tid;
    char how;
    int fd, from;
    size_t n;
    ssize_t result;
    int error;
    off_t at;
};

static struct mmsghdr headers[MESSAGES];
static struct iovec vectors[MESSAGES];

static void list(char *data, size_t each) {
    memset(headers, 0, sizeof headers);
    for (int i = 0; i < MESSAGES; i++) {
        vectors[i] = (struct iovec){data + i * each, each};
        headers[i].msg_hdr.msg_iov = &vectors[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
}

static sigjmp_buf back;
static volatile int left, stop;
static void leap(int n) {
    (void)n;
    siglongjmp(back, 1);
}

static void *sleeps(void *arg) {
    struct sleeper *s = arg;
    s->tid = gettid();
    if (sigsetjmp(back, 1) == 0) {
        switch (s->how) {
        case 's':
            s->result = sendmmsg(s->fd, headers, s->n, MSG_NOSIGNAL);
            break;
        case 'r':
            s->result = recvmmsg(s->fd, headers, s->n, MSG_WAITALL, NULL);
            break;
        case 'f':
            s->result = sendfile(s->fd, s->from, &s->at, s->n);
            break;
        default: // by the file's own position
            s->result = sendfile(s->fd, s->from, NULL, s->n);
        }
        s->error = errno;
        return NULL;
    }
    // Its next call finds what was left.
    int small = file('x', 40000), out[2];
    warm_connection(out);
    off_t at = 0;
    s->result = sendfile(out[0], small, &at, 40000);
    headers[0].msg_len = 0;
    sendmmsg(out[0], headers, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(small);
    close(out[0]);
    close(out[1]);
    left = 1;
    while (!stop)
        usleep(1000);
    return NULL;
}

// Until it has slept for a while.
static void settled(struct sleeper *s) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", s->tid);
    for (int in_a_row = 0; in_a_row < 30;) {
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            die(path);
        fclose(f);
        usleep(1000);
        in_a_row = state == 'S' ? in_a_row + 1 : 0;
    }
}

static void start(struct sleeper *s, int fd, char how, int from, size_t n) {
    *s = (struct sleeper){.fd = fd, .how = how, .from = from, .n = n};
    pthread_create(&s->thread, NULL, sleeps, s);
    while (s->tid == 0)
        ;
    settled(s);
}

static void ended(const char *what, struct sleeper *s) {
    pthread_join(s->thread, NULL);
    printf("%s: %zd %s\n", what, s->result, s->result < 0 ? strerrorname_np(s->error) : "");
}

// The number of a connection or file is closed, and is another one's.
static int becomes(int number, int other) {
    close(number);
    int now = fcntl(other, F_DUPFD, number);
    if (now != number)
        die("the number");
    return now;
}

// All that comes up to the end, and whether it is all the same.
static void drained(int fd) {
    static char data[LONG];
    size_t got = 0, first = 0;
    ssize_t k;
    char what = 0;
    while ((k = recv(fd, data, sizeof data, 0)) > 0) {
        what = got == 0 ? data[0] : what;
        for (ssize_t i = 0; i < k; i++)
            first += data[i] == what;
        got += k;
    }
    printf("arrived: %zu, %zu of them %c, %s\n", got, first, what, k < 0 ? strerrorname_np(errno) : "end");
}

static void nothing_comes(int fd) {
    char data[100];
    ssize_t k = recv(fd, data, sizeof data, MSG_DONTWAIT);
    printf("the other one: %zd %s\n", k, k < 0 ? strerrorname_np(errno) : "");
}

static void closed(int x, int y, int z) {
    close(x);
    close(y);
    close(z);
}

// Whether nobody has `path`'s file open that had it locked.
static void is_free(const char *path) {
    int f = open(path, O_RDONLY | O_CLOEXEC);
    printf("the file: %s\n", flock(f, LOCK_EX | LOCK_NB) ? strerrorname_np(errno) : "free");
    close(f);
}

static int locked(char *path) {
    int f = mkostemp(path, O_CLOEXEC);
    memset(room, 'p', LONG);
    for (int i = 0; i < MESSAGES; i++)
        all(f, room, LONG, 1);
    lseek(f, 0, SEEK_SET);
    if (flock(f, LOCK_EX))
        die("flock");
    return f;
}

int main(void) {
    struct sleeper s;
    alarm(50);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, leap);
    mine = malloc(BIG);
    room = malloc(BIG);
    memset(mine, 'a', BIG);

    for (int replaced = 0; replaced < 2; replaced++) {
        connections();
        list(mine, LONG);
        start(&s, a, 's', -1, MESSAGES);
        int now = replaced ? dup2(c, a) : becomes(a, c);
        drained(b);
        ended("sendmmsg", &s);
        nothing_comes(d);
        close(now);
        closed(b, c, d);

        connections();
        memset(room, '.', BIG);
        list(room, SHORT);
        start(&s, a, 'r', -1, 8);
        all(b, mine, 2 * SHORT + 500, 1);
        settled(&s);
        now = replaced ? dup2(c, a) : becomes(a, c);
        memset(mine, 'd', 8 * SHORT);
        all(d, mine, 8 * SHORT, 1);
        memset(mine, 'a', BIG);
        settled(&s);
        all(b, mine, 5 * SHORT + 500, 1);
        ended("recvmmsg", &s);
        printf("of them: %d\n", memchr(room, 'd', 8 * SHORT) ? -1 : memcmp(room, mine, 8 * SHORT));
        all(now, room, 8 * SHORT, 0);
        printf("of the other one: %c %c\n", room[0], room[8 * SHORT - 1]);
        close(now);
        closed(b, c, d);

        for (int plain = 0; plain < 2; plain++) {
            int from = file('p', BIG), other = file('s', BIG), twin = dup(from);
            connections();
            start(&s, a, plain ? 'p' : 'f', from, BIG);
            now = replaced ? dup2(c, a) : becomes(a, c);
            if (replaced)
                dup2(other, from);
            else
                becomes(from, other);
            drained(b);
            ended("sendfile", &s);
            printf("positions: %ld, %ld and %ld\n", s.at, lseek(twin, 0, SEEK_CUR), lseek(other, 0, SEEK_CUR));
            nothing_comes(d);
            close(now);
            closed(b, c, d);
            closed(from, other, twin);
        }
    }

    // Before the upgrade.
    {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof at;
        int l = socket(AF_INET, SOCK_STREAM, 0), from = file('p', BIG), other = file('s', BIG);
        if (bind(l, (void *)&at, len) || listen(l, 1) || getsockname(l, (void *)&at, &len))
            die("listen");
        a = socket(AF_INET, SOCK_STREAM, 0);
        int few = 4096;
        setsockopt(a, SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
        if (connect(a, (void *)&at, len))
            die("connect");
        b = accept(l, NULL, NULL);
        int ends[2];
        warm_connection(ends);
        start(&s, a, 'f', from, BIG);
        becomes(a, ends[0]);
        becomes(from, other);
        drained(b);
        ended("sendfile, the first thing", &s);
        nothing_comes(ends[1]);
        closed(ends[0], ends[1], a);
        closed(from, other, l);
        close(b);
    }

    // One piece, which waits.
    {
        int from = file('p', SHORT), other = file('s', SHORT), twin = dup(from);
        connections();
        memset(mine, 'p', BIG);
        // Fewer and fewer octets, down to one, until nothing gets free any more.
        for (int more = 1; more;) {
            more = 0;
            for (size_t n = BIG; n > 0; n = n / 2)
                while (send(a, mine, n, MSG_DONTWAIT) > 0)
                    more = 1;
            // A ring that stays full is given up in a while.
            poll(&(struct pollfd){a, POLLOUT, 0}, 1, 200);
        }
        start(&s, a, 'p', from, SHORT);
        becomes(from, other);
        close(a);
        size_t got = 0;
        for (ssize_t k; (k = recv(b, room, BIG, 0)) > 0; got += k)
            if (memchr(room, 's', k))
                printf("of the other file\n");
        ended("sendfile of a piece", &s);
        printf("positions: %ld and %ld\n", lseek(twin, 0, SEEK_CUR), lseek(other, 0, SEEK_CUR));
        memset(mine, 'a', BIG);
        closed(from, other, twin);
        closed(b, c, d);
    }

    // An error is not the other one's.
    {
        struct linger abort = {1, 0};
        char data[10];
        connections();
        list(room, SHORT);
        start(&s, a, 'r', -1, 8);
        all(b, mine, 2 * SHORT, 1);
        settled(&s);
        int now = becomes(a, c);
        setsockopt(b, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
        close(b);
        ended("recvmmsg, then a reset", &s);
        nothing_comes(now);
        all(now, data, 2, 1);
        all(d, data, 2, 0);
        all(d, data, 2, 1);
        nothing_comes(now);
        close(now);
        close(c);
        close(d);
    }

    // A child has nothing of a call in its parent; cancelled, left by a handler, it keeps nothing.
    for (int n = 0; n < 6; n++) {
        char path[] = "/tmp/pieces.XXXXXX";
        int go[2], gone[2], from = locked(path);
        connections();
        list(mine, LONG);
        // sendfile is no place to be cancelled.
        int messages = n % 2 || n == 2;
        start(&s, a, messages ? 's' : 'f', from, messages ? MESSAGES : BIG);
        close(a);
        // The call has taken a number for itself.
        all(b, room, LONG, 0);
        settled(&s);
        if (n < 2) {
            pipe(go);
            pipe(gone);
            fflush(stdout);
            pid_t p = fork();
            if (p == 0) {
                close(go[1]);
                closed(b, c, d);
                close(from);
                write(gone[1], "", 1);
                read(go[0], room, 1);
                _exit(0);
            }
            read(gone[0], room, 1);
            close(from);
            drained(b);
            ended("beside a fork", &s);
            is_free(path);
            closed(go[0], go[1], gone[0]);
            close(gone[1]);
            waitpid(p, NULL, 0);
        } else if (n < 4) {
            close(from);
            pthread_cancel(s.thread);
            pthread_join(s.thread, NULL);
            is_free(path);
        } else {
            close(from);
            left = stop = 0;
            pthread_kill(s.thread, SIGUSR1);
            while (!left)
                usleep(1000);
            ssize_t k;
            while ((k = recv(b, room, BIG, 0)) > 0)
                ;
            printf("left: %zd\n", k);
            is_free(path);
            stop = 1;
            pthread_join(s.thread, NULL);
        }
        unlink(path);
        closed(b, c, d);
    }
    return 0;
}
