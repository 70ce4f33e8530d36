/* A connection's descriptor is passed on, comes back, and is put in its own place (dup2) while a thread waits for it in an epoll set. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int end, told;
static unsigned how;

static void die(const char *what)
{
    perror(what);
    _exit(9);
}

static void *waits(void *set)
{
    struct epoll_event e;
    told = epoll_wait((int)(long)set, &e, 1, 5000);
    return NULL;
}

/* One octet and a descriptor; -1: none came. */
static int moves(int fd, int socket, ssize_t (*call)(int, struct msghdr *, int))
{
    char octet = 0;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof fd)];
    } along = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {&octet, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &along, .msg_controllen = sizeof along};
    memcpy(CMSG_DATA(&along.head), &fd, sizeof fd);
    if (call(socket, &m, 0) != 1)
        return -1;
    memcpy(&fd, CMSG_DATA(&along.head), sizeof fd);
    return fd;
}

static ssize_t sends(int socket, struct msghdr *m, int flags)
{
    return sendmsg(socket, m, flags);
}

/* Another process, which sends back what it gets. */
static int relay(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        die("socketpair");
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        for (int fd; (fd = moves(-1, pair[1], recvmsg)) >= 0; close(fd))
            moves(fd, pair[1], sends);
        _exit(0);
    }
    close(pair[1]);
    return pair[0];
}

int main(void)
{
    static const unsigned kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int away = relay();
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&a, len) || listen(listener, 8) || getsockname(listener, (void *)&a, &len))
        die("listen");
    for (int i = 0; i < 3; i++) {
        how = kinds[i];
        int other = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
        if (connect(other, (void *)&a, len) || (end = accept(listener, NULL, NULL)) < 0)
            die("a connection");
        char data[64];
        for (int n = 0; n < 200; n++)
            if (send(other, "question", 8, 0) != 8 || recv(end, data, 8, MSG_WAITALL) != 8 || send(end, "answer", 6, 0) != 6 ||
                recv(other, data, 6, MSG_WAITALL) != 6)
                die("an exchange");
        struct epoll_event e = {.events = how, .data.u64 = 0};
        pthread_t waiter;
        if (epoll_ctl(set, EPOLL_CTL_ADD, end, &e) || pthread_create(&waiter, NULL, waits, (void *)(long)set))
            die("a waiter");
        /* Mostly it sleeps by then; what it is told is the same if not. */
        usleep(50000);
        moves(end, away, sends);
        int back = moves(-1, away, recvmsg);
        if (back < 0 || dup2(back, end) != end || close(back) || send(other, "news", 4, 0) != 4)
            die("its own place");
        pthread_join(waiter, NULL);
        ssize_t got = recv(end, data, sizeof data, MSG_DONTWAIT);
        printf("told %d, read %zd\n", told, got);
        close(end);
        close(other);
        close(set);
    }
    return 0;
}
