/* What the three programs share: an address given as tcp:HOST:PORT or unix:PATH, whole sends and receives,
 * a pattern to check. Ordinary blocking sockets; nothing in here knows of Bypath. */
#ifndef DEMO_NET_H
#define DEMO_NET_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static inline void wrong(const char *what) {
    fprintf(stderr, "WRONG DATA: %s\n", what);
    exit(2);
}

struct address {
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    } u;
};

static inline struct address parse(const char *text) {
    struct address a;
    memset(&a, 0, sizeof a);
    if (!strncmp(text, "unix:", 5) && strlen(text + 5) < sizeof a.u.un.sun_path) {
        a.u.un.sun_family = AF_UNIX;
        strcpy(a.u.un.sun_path, text + 5);
        a.length = sizeof a.u.un;
        return a;
    }
    char host[64];
    unsigned port;
    if (sscanf(text, "tcp:%63[^:]:%u", host, &port) == 2 && inet_pton(AF_INET, host, &a.u.in.sin_addr) == 1) {
        a.u.in.sin_family = AF_INET;
        a.u.in.sin_port = htons((uint16_t)port);
        a.length = sizeof a.u.in;
        return a;
    }
    fprintf(stderr, "%s: expected tcp:HOST:PORT or unix:PATH\n", text);
    exit(1);
}

/* Small messages are to leave at once, as every program that cares about latency asks. */
static inline void no_delay(int fd, const struct address *a) {
    int one = 1;
    if (a->u.any.sa_family == AF_INET && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
}

/* The congestion control that is best on one host, where it may be chosen: the kernel shall show what it can. */
static inline void best_congestion_control(int fd, const struct address *a) {
    if (a->u.any.sa_family == AF_INET) (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

/* Listens and prints the address with the port that the kernel chose. */
static inline int listen_at(const char *text) {
    struct address a = parse(text);
    int fd = socket(a.u.any.sa_family, SOCK_STREAM, 0);
    if (fd >= 0) best_congestion_control(fd, &a);
    if (fd < 0 || bind(fd, &a.u.any, a.length) || listen(fd, 128)) die(text);
    if (a.u.any.sa_family == AF_INET) {
        if (getsockname(fd, &a.u.any, &a.length)) die("getsockname");
        printf("tcp:127.0.0.1:%u\n", ntohs(a.u.in.sin_port));
    } else {
        printf("%s\n", text);
    }
    fflush(stdout);
    return fd;
}

static inline int accept_one(int listener) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) die("accept");
    return fd;
}

static inline int connect_to(const struct address *a) {
    int fd = socket(a->u.any.sa_family, SOCK_STREAM, 0);
    if (fd >= 0) best_congestion_control(fd, a);
    if (fd < 0 || connect(fd, &a->u.any, a->length)) die("connect");
    return fd;
}

static inline void send_all(int fd, const void *data, size_t n) {
    const char *p = data;
    while (n) {
        ssize_t k = send(fd, p, n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) die("send");
        p += k, n -= (size_t)k;
    }
}

/* Returns 0 at the end of the stream, 1 when all of it has come. */
static inline int recv_all(int fd, void *data, size_t n) {
    char *p = data;
    size_t want = n;
    while (n) {
        ssize_t k = recv(fd, p, n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) die("recv");
        if (k == 0 && n == want) return 0;
        if (k == 0) wrong("the stream ended within a message");
        p += k, n -= (size_t)k;
    }
    return 1;
}

static inline void fill(unsigned char *data, size_t n, uint32_t number) {
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(number * 131 + i * 7 + (i >> 8));
}

static inline void check(const unsigned char *data, size_t n, uint32_t number) {
    for (size_t i = 0; i < n; i++)
        if (data[i] != (unsigned char)(number * 131 + i * 7 + (i >> 8))) wrong("a byte differs from what was sent");
}

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
