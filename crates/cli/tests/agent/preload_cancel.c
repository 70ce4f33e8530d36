// pthread_cancel of a thread in each blocking call: the clean-up function runs and the thread is joined.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int pair[2], listener, cleaned;
static pthread_barrier_t ready;

static void clean(void *arg) { cleaned += *(int *)arg; }

#define BLOCKS(name, call)                    \
    static void *name(void *arg) {            \
        int one = 1;                          \
        char buf[8];                          \
        struct iovec v = {buf, 8};            \
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; \
        struct pollfd f = {pair[0], POLLIN, 0}; \
        struct epoll_event e;                 \
        fd_set r;                             \
        int ep = epoll_create1(0);            \
        FD_ZERO(&r);                          \
        FD_SET(pair[0], &r);                  \
        (void)buf, (void)m, (void)f, (void)e; \
        pthread_cleanup_push(clean, &one);    \
        pthread_barrier_wait(&ready);         \
        call;                                 \
        pthread_cleanup_pop(0);               \
        close(ep);                            \
        return arg;                           \
    }

BLOCKS(in_read, read(pair[0], buf, 8))
BLOCKS(in_readv, readv(pair[0], &v, 1))
BLOCKS(in_recv, recv(pair[0], buf, 8, 0))
BLOCKS(in_recvfrom, recvfrom(pair[0], buf, 8, 0, NULL, NULL))
BLOCKS(in_recvmsg, recvmsg(pair[0], &m, 0))
BLOCKS(in_poll, poll(&f, 1, -1))
BLOCKS(in_ppoll, ppoll(&f, 1, NULL, NULL))
BLOCKS(in_select, select(pair[0] + 1, &r, NULL, NULL, NULL))
BLOCKS(in_epoll_wait, epoll_wait(ep, &e, 1, -1))
BLOCKS(in_accept, accept(listener, NULL, NULL))

int main(void) {
    struct { const char *name; void *(*run)(void *); } all[] = {
        {"read", in_read}, {"readv", in_readv}, {"recv", in_recv}, {"recvfrom", in_recvfrom}, {"recvmsg", in_recvmsg},
        {"poll", in_poll}, {"ppoll", in_ppoll}, {"select", in_select}, {"epoll_wait", in_epoll_wait}, {"accept", in_accept},
    };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(listener, 1))
        return 1;
    pthread_barrier_init(&ready, NULL, 2);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        pthread_t t;
        void *result;
        struct timespec limit;
        pthread_create(&t, NULL, all[i].run, NULL);
        pthread_barrier_wait(&ready);
        pthread_cancel(t);
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 20;
        int r = pthread_timedjoin_np(t, &result, &limit);
        printf("%s: join %d, %s\n", all[i].name, r, r == 0 && result == PTHREAD_CANCELED ? "canceled" : "not canceled");
        fflush(stdout);
        if (r)
            return 1;
    }
    printf("cleaned %d\n", cleaned);
    return 0;
}
