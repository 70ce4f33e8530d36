// Registrations of one epoll set that have the same data word, one of them one-shot: what the kernel tells of the others is
// told. Usage: words, prints lines.
#define _GNU_SOURCE
#include "warm.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

static void add(int set, int fd, uint32_t events) {
    struct epoll_event e = {.events = events, .data.u64 = 5};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e))
        die("epoll_ctl");
}

static void waits(const char *what, int set, int timeout) {
    struct epoll_event e[8];
    int n = epoll_wait(set, e, 8, timeout);
    printf("%s: %d", what, n);
    for (int i = 0; i < n; i++)
        printf(" %lu:%x", (unsigned long)e[i].data.u64, e[i].events);
    printf("\n");
}

int main(void) {
    // What else is in the set: a pipe's end, another connection, the same one by another number.
    for (int other = 0; other < 3; other++)
        for (int armed = 0; armed < 2; armed++)
            for (int later = 0; later < 2; later++) {
                int a[2], b[2], pipe_ends[2], set = epoll_create1(0);
                char c;
                warm_connection(a);
                warm_connection(b);
                if (pipe(pipe_ends))
                    die("pipe");
                int in = other == 0 ? pipe_ends[0] : other == 1 ? b[0] : dup(a[0]);
                int out = other == 0 ? pipe_ends[1] : other == 1 ? b[1] : a[1];
                // Of two that watch the same end both would tell.
                uint32_t once = EPOLLONESHOT | (armed && other < 2 ? EPOLLIN : EPOLLOUT);
                if (!later)
                    add(set, in, EPOLLIN);
                add(set, a[0], once);
                if (later)
                    add(set, in, EPOLLIN);
                printf("%d %d %d\n", other, armed, later);
                if (once & EPOLLOUT)
                    waits("once", set, 1000);
                waits("nothing", set, 0);
                for (int n = 0; n < 3; n++) {
                    if (write(out, "x", 1) != 1)
                        die("write");
                    waits("the other one", set, 1000);
                    waits("the other one again", set, 1000);
                    if (read(in, &c, 1) != 1)
                        die("read");
                    waits("nothing", set, 0);
                }
                int all[] = {a[0], a[1], b[0], b[1], pipe_ends[0], pipe_ends[1], set};
                for (int i = 0; i < 7; i++)
                    close(all[i]);
                if (other == 2)
                    close(in);
            }
    return 0;
}
