// A server of several threads, which share an epoll set of one-shot registrations: each connection has one thread at a
// time, to the end of its close(). Clients are threads of the same process; their connections are short.
// Usage: oneshot CONNECTIONS CLIENTS edge|level, prints a line.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SERVERS = 3, CLIENTS = 4, EARLIER = 64, MOST = 1 << 16 };

static unsigned events = EPOLLIN | EPOLLONESHOT;
static struct sockaddr_in address = {.sin_family = AF_INET};
static int listener, set, over;
static atomic_int owned[MOST], left;
static atomic_long shared, wrong, answered;

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static void arm(int how, int fd, unsigned wanted) {
    struct epoll_event e = {.events = wanted, .data.fd = fd};
    if (epoll_ctl(set, how, fd, &e))
        atomic_fetch_add(&wrong, 1);
}

// All there is. False when the stream has ended.
static int echo(int fd) {
    char data[8192];
    for (;;) {
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got <= 0)
            return got < 0 && errno == EAGAIN;
        for (ssize_t sent = 0; sent < got;) {
            ssize_t n = send(fd, data + sent, got - sent, MSG_NOSIGNAL);
            if (n < 0 && errno == EAGAIN)
                poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 1000);
            else if (n < 0)
                return 0;
            else
                sent += n;
        }
    }
}

static void *serves(void *unused) {
    (void)unused;
    for (;;) {
        struct epoll_event e[4];
        int n = epoll_wait(set, e, 4, -1);
        for (int i = 0; i < n; i++) {
            int fd = e[i].data.fd, s;
            if (fd == over)
                return NULL;
            if (fd == listener) {
                while ((s = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    atomic_store(&owned[s], 0);
                    arm(EPOLL_CTL_ADD, s, events);
                }
                continue;
            }
            if (atomic_exchange(&owned[fd], 1))
                atomic_fetch_add(&shared, 1);
            if (echo(fd)) {
                atomic_store(&owned[fd], 0);
                arm(EPOLL_CTL_MOD, fd, events);
            } else {
                close(fd);
            }
        }
    }
}

static void *asks(void *seed) {
    unsigned random = (unsigned)(size_t)seed;
    char out[256], in[256];
    while (atomic_fetch_sub(&left, 1) > 0) {
        int s = socket(AF_INET, SOCK_STREAM, 0), messages = rand_r(&random) % 60;
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){30, 0}, sizeof(struct timeval));
        if (connect(s, (void *)&address, sizeof address))
            die("connect");
        for (int i = 0; i < messages; i++) {
            ssize_t n = 1 + rand_r(&random) % sizeof out;
            memset(out, i, n);
            if (send(s, out, n, MSG_NOSIGNAL) != n || recv(s, in, n, MSG_WAITALL) != n || memcmp(out, in, n))
                atomic_fetch_add(&wrong, 1);
            atomic_fetch_add(&answered, 1);
        }
        switch (rand_r(&random) % 4) {
        case 0:
            setsockopt(s, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
            break;
        case 1:
            shutdown(s, SHUT_WR);
            if (recv(s, in, 1, 0) != 0)
                atomic_fetch_add(&wrong, 1);
            break;
        case 2:
            send(s, "last", 4, MSG_NOSIGNAL);
            break;
        }
        close(s);
    }
    return NULL;
}

// Descriptors that are no connections: they had the numbers that connections get, in the same set.
static void had_other_numbers(void) {
    int fd[EARLIER];
    for (int i = 0; i < EARLIER; i++)
        arm(EPOLL_CTL_ADD, fd[i] = eventfd(0, 0), EPOLLIN);
    for (int i = 0; i < EARLIER; i++)
        close(fd[i]);
}

int main(int argc, char **argv) {
    pthread_t server[SERVERS], client[CLIENTS];
    socklen_t len = sizeof address;
    int clients = argc > 2 ? atoi(argv[2]) : 0;
    if (argc != 4 || clients < 1 || clients > CLIENTS)
        return 2;
    if (strcmp(argv[3], "edge") == 0)
        events |= EPOLLET | EPOLLRDHUP;
    alarm(200);
    atomic_store(&left, atoi(argv[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (void *)&address, len) || listen(listener, 100) || getsockname(listener, (void *)&address, &len))
        die("listen");
    set = epoll_create1(0);
    had_other_numbers();
    over = eventfd(0, 0);
    arm(EPOLL_CTL_ADD, listener, EPOLLIN);
    arm(EPOLL_CTL_ADD, over, EPOLLIN);
    for (int i = 0; i < SERVERS; i++)
        pthread_create(&server[i], NULL, serves, NULL);
    for (int i = 0; i < clients; i++)
        pthread_create(&client[i], NULL, asks, (void *)(i + 1l));
    for (int i = 0; i < clients; i++)
        pthread_join(client[i], NULL);
    eventfd_write(over, 1);
    for (int i = 0; i < SERVERS; i++)
        pthread_join(server[i], NULL);
    printf("answered %d, shared %ld, wrong %ld\n", answered > 1000, shared, wrong);
    return 0;
}
