// Calls that never return: their thread is cancelled, ends in a signal handler, or leaves by siglongjmp, while it is in a
// blocking call on a connection that is not on a ring yet. The connection works on. Usage: left, prints lines.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300, SIZE = 64 };
enum { CANCEL, EXIT, LEAP, ENDS };

static const char *calls[] = {"poll", "select", "recv", "epoll_wait", "send"};
static const char *ends[] = {"cancelled", "ended by its handler", "left by longjmp"};
static int s, call, end, ep;
static volatile pid_t tid;
static sigjmp_buf back;

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static void all(int fd, char *data, size_t n, int out) {
    for (size_t done = 0; done < n;) {
        ssize_t k = out ? write(fd, data + done, n - done) : read(fd, data + done, n - done);
        if (k <= 0)
            die("all");
        done += k;
    }
}

// A connection whose other end first waits for a byte from `go`, then answers each message. What a send that was left has
// sent, zeroes, comes before the first one.
static pid_t connection(int go) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len))
        die("listen");
    pid_t p = fork();
    if (p == 0) {
        alarm(50);
        char data[SIZE], first;
        static char room[1 << 16];
        ssize_t got, begin;
        close(l);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&a, len))
            die("connect");
        all(go, &first, 1, 0);
        do {
            if ((got = read(fd, room, sizeof room)) <= 0)
                die("read");
            for (begin = 0; begin < got && room[begin] != 'x'; begin++)
                ;
        } while (begin == got);
        for (int i = 0; i < ROUNDS; i++) {
            if (i > 0)
                all(fd, data, SIZE, 0);
            else
                all(fd, data, SIZE - (got - begin), 0);
            all(fd, data, SIZE, 1);
        }
        _exit(0);
    }
    s = accept(l, NULL, NULL);
    close(l);
    return p;
}

static void handler(int n) {
    (void)n;
    if (end == EXIT)
        pthread_exit((void *)1);
    siglongjmp(back, 1);
}

static void *blocked(void *arg) {
    (void)arg;
    static char buf[1 << 20];
    struct epoll_event e;
    struct pollfd p = {s, POLLIN, 0};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(s, &in);
    tid = gettid();
    if (sigsetjmp(back, 1))
        return (void *)1;
    switch (call) {
    case 0: poll(&p, 1, -1); break;
    case 1: select(s + 1, &in, NULL, NULL, NULL); break;
    case 2: recv(s, buf, SIZE, 0); break;
    case 3: epoll_wait(ep, &e, 1, -1); break;
    case 4: send(s, buf, sizeof buf, 0); break;
    }
    return NULL;
}

// Until the thread sleeps in a system call.
static void until_asleep(void) {
    char path[64], state = 0;
    while (tid == 0)
        ;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int in_a_row = 0; in_a_row < 20;) {
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            die(path);
        fclose(f);
        struct timespec t = {0, 1000000};
        nanosleep(&t, NULL);
        in_a_row = state == 'S' ? in_a_row + 1 : 0;
    }
}

int main(void) {
    struct sigaction a = {.sa_handler = handler};
    sigaction(SIGUSR1, &a, NULL);
    alarm(50);
    for (call = 0; call < 5; call++)
        for (end = 0; end < ENDS; end++) {
            int go[2], status;
            char data[SIZE] = "x";
            pthread_t t;
            void *result;
            if (pipe(go))
                die("pipe");
            pid_t p = connection(go[0]);
            // What a blocked send fills first.
            if (call == 4) {
                static char full[1 << 16];
                int size = 40000;
                setsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
                while (syscall(SYS_sendto, s, full, sizeof full, MSG_DONTWAIT, NULL, 0) > 0)
                    ;
            }
            ep = epoll_create1(0);
            struct epoll_event e = {.events = EPOLLIN};
            epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
            tid = 0;
            pthread_create(&t, NULL, blocked, NULL);
            until_asleep();
            if (end == CANCEL)
                pthread_cancel(t);
            else
                pthread_kill(t, SIGUSR1);
            pthread_join(t, &result);
            printf("%s %s: %d\n", calls[call], ends[end], end == CANCEL ? result == PTHREAD_CANCELED : result == (void *)1);
            all(go[1], data, 1, 1);
            for (int i = 0; i < ROUNDS; i++) {
                data[0] = 'x';
                all(s, data, SIZE, 1);
                if (i % 2)
                    epoll_wait(ep, &e, 1, -1);
                all(s, data, SIZE, 0);
            }
            waitpid(p, &status, 0);
            printf("%d messages, %d\n", ROUNDS, status);
            close(ep);
            close(s);
            close(go[0]);
            close(go[1]);
        }
    return 0;
}
