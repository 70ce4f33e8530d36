// Descriptors of one epoll set that are always ready, two connections and two pipes, and an array with little room: each
// gets its turns. Usage: turns ROOM, prints a line for each descriptor.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WARM = 40, CALLS = 2000, READY = 4, MOST = 8 };

static void die(const char *what) {
    perror(what);
    _exit(9);
}

// One end of a connection on which a byte waits.
static int connection(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int ends[2], l = socket(AF_INET, SOCK_STREAM, 0);
    char data[100] = "x";
    if (bind(l, (void *)&at, len) || listen(l, 1) || getsockname(l, (void *)&at, &len))
        die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&at, len))
        die("connect");
    ends[1] = accept(l, NULL, NULL);
    close(l);
    for (int i = 0; i < WARM; i++)
        for (int from = 0; from < 2; from++)
            if (write(ends[from], data, sizeof data) != sizeof data ||
                recv(ends[!from], data, sizeof data, MSG_WAITALL) != sizeof data)
                die("warm");
    if (write(ends[0], "x", 1) != 1)
        die("write");
    return ends[1];
}

static int pipe_with_a_byte(void) {
    int ends[2];
    if (pipe(ends) || write(ends[1], "x", 1) != 1)
        die("pipe");
    return ends[0];
}

int main(int argc, char **argv) {
    int turns[READY] = {0}, room = argc > 1 ? atoi(argv[1]) : 0, set = epoll_create1(0);
    struct epoll_event e[MOST];
    if (room < 1 || room > MOST)
        return 2;
    for (int i = 0; i < READY; i++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = i};
        // The set serves rings from its first wait on.
        epoll_wait(set, e, room, 0);
        if (epoll_ctl(set, EPOLL_CTL_ADD, i < 2 ? connection() : pipe_with_a_byte(), &wanted))
            die("epoll_ctl");
    }
    for (int call = 0; call < CALLS; call++) {
        int n = epoll_wait(set, e, room, -1);
        for (int i = 0; i < n; i++)
            turns[e[i].data.u32]++;
    }
    for (int i = 0; i < READY; i++)
        printf("%s: %s\n", i < 2 ? "connection" : "pipe", turns[i] >= CALLS / 8 ? "enough" : "too few");
    return 0;
}
