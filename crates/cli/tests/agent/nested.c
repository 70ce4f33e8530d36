// An epoll set that is looked at from outside, while a message lies in a ring and its sender makes no call.
// Usage: nested, prints lines.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM = 60, LONGEST = 10000 };

static void die(const char *what) {
    perror(what);
    _exit(9);
}

// Sends a message when it is told to, and then does nothing until it is killed.
static void sender(struct sockaddr_in *at, int told) {
    char data[100];
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)at, sizeof *at))
        die("connect");
    for (int i = 0; i < WARM; i++)
        if (recv(s, data, sizeof data, MSG_WAITALL) != sizeof data || send(s, data, sizeof data, 0) != sizeof data)
            die("warm");
    if (read(told, data, 1) != 1 || send(s, "message", 7, 0) != 7)
        die("send");
    for (;;)
        pause();
}

// Whether it pauses: it sleeps nowhere else once its message is there.
static int sleeps(pid_t pid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        die("stat");
    fclose(f);
    return state == 'S';
}

// 1: ready, 0: not within the time.
static int look(const char *how, int set, int outer, int timeout) {
    struct epoll_event e;
    if (strcmp(how, "poll") == 0)
        return poll(&(struct pollfd){set, POLLIN, 0}, 1, timeout);
    if (strcmp(how, "epoll") == 0)
        return epoll_wait(outer, &e, 1, timeout);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(set, &in);
    return select(set + 1, &in, NULL, NULL, &(struct timeval){timeout / 1000, timeout % 1000 * 1000});
}

static void one(const char *how, unsigned edge) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct epoll_event wanted = {.events = EPOLLIN | edge}, e;
    int tell[2], l = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0), outer = epoll_create1(0);
    char data[100] = "x";
    if (pipe(tell) || bind(l, (void *)&at, len) || listen(l, 1) || getsockname(l, (void *)&at, &len))
        die("listen");
    pid_t child = fork();
    if (child == 0) {
        close(tell[1]);
        sender(&at, tell[0]);
    }
    int s = accept(l, NULL, NULL);
    if (epoll_ctl(set, EPOLL_CTL_ADD, s, &wanted))
        die("epoll_ctl");
    for (int i = 0; i < WARM; i++) {
        if (send(s, data, sizeof data, 0) != sizeof data)
            die("warm");
        if (epoll_wait(set, &e, 1, -1) != 1)
            die("epoll_wait");
        if (recv(s, data, sizeof data, MSG_WAITALL) != sizeof data)
            die("warm");
    }
    printf("%s: none %d", how, epoll_wait(set, &e, 1, 0));
    if (write(tell[1], "x", 1) != 1)
        die("write");
    // The message is there, and its sender does nothing.
    while (recv(s, data, sizeof data, MSG_PEEK) != 7 || !sleeps(child))
        ;
    wanted.events = EPOLLIN;
    if (epoll_ctl(outer, EPOLL_CTL_ADD, set, &wanted))
        die("epoll_ctl");
    printf(", ready %d", look(how, set, outer, LONGEST));
    if (!edge)
        printf(", again %d", look(how, set, outer, LONGEST));
    int n = epoll_wait(set, &e, 1, LONGEST);
    printf(", inside %d %x", n, e.events);
    if (!edge)
        printf(", still %d", look(how, set, outer, LONGEST));
    printf(", part %zd", recv(s, data, 3, 0));
    if (!edge)
        printf(", the rest %d", look(how, set, outer, LONGEST));
    printf(", rest %zd", recv(s, data, sizeof data, 0));
    printf(", nothing %d", look(how, set, outer, 0));
    kill(child, SIGTERM);
    printf(", end %d", look(how, set, outer, LONGEST));
    printf(" %zd\n", recv(s, data, sizeof data, 0));
    fflush(stdout);
    waitpid(child, NULL, 0);
    close(tell[0]);
    close(tell[1]);
    close(l);
    close(s);
    close(set);
    close(outer);
}

int main(void) {
    alarm(150);
    const char *how[] = {"poll", "select", "epoll"};
    for (int i = 0; i < 3; i++)
        for (int edge = 0; edge < 2; edge++)
            one(how[i], edge ? EPOLLET : 0);
    return 0;
}
