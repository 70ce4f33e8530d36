/* What the programs that get killed share: streams whose every byte can be verified, and progress that survives
 * kill -9. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* No program runs longer, whatever it waits for. */
#define LIFETIME 20

/* Kept in a file: what a killed program had been told, and what it had asked for, is known after its death. */
struct progress {
    volatile uint64_t returned;  /* bytes that send() said it took */
    volatile uint64_t attempted; /* the same with those of a call that never returned */
    volatile uint64_t received;  /* bytes that recv() gave */
    volatile uint64_t asked;     /* the same with what a call that never returned could have taken */
};

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static struct progress *map_progress(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) < 0)
        fail(path);
    struct progress *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        fail(path);
    close(fd);
    return p;
}

/* Byte `p` of the stream `seed`. */
static unsigned char stream_byte(uint64_t seed, uint64_t p)
{
    uint64_t w = (p / 8 + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull;
    w = (w ^ (w >> 29)) * 0xbf58476d1ce4e5b9ull;
    w ^= w >> 32;
    return (unsigned char)(w >> (8 * (p % 8)));
}

static int listen_on_loopback(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l < 0 || bind(l, (void *)&a, sizeof a) < 0 || listen(l, 8) < 0 || getsockname(l, (void *)&a, &n) < 0)
        fail("listen");
    printf("port %d\n", ntohs(a.sin_port));
    fflush(stdout);
    return l;
}

static int accept_one(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        fail("accept");
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (void *)&a, sizeof a) < 0)
        fail("connect");
    return fd;
}
