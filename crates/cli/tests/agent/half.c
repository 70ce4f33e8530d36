// A receiver that shuts its connection down for reading when all octets are there, and reads them then; the sender goes on. Prints how many there were each time,
// where that was not all.
// Usage: half CONNECTIONS OCTETS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 60, MESSAGE = 64, MOST = 65536 };

static char data[2 * MOST];

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(9);
}

static void all(int fd, size_t n, int out) {
    for (size_t done = 0; done < n;) {
        ssize_t k = out ? send(fd, data + done, n - done, MSG_NOSIGNAL) : recv(fd, data + done, n - done, 0);
        if (k <= 0)
            die(out ? "send" : "recv");
        done += k;
    }
}

static void talk(int fd, int first) {
    for (int i = 0; i < ROUNDS; i++) {
        all(fd, MESSAGE, first);
        all(fd, MESSAGE, !first);
    }
}

static void sends(const struct sockaddr_in *to, int connections, int octets) {
    for (int i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const void *)to, sizeof *to))
            die("connect");
        talk(fd, 1);
        all(fd, octets, 1);
        // Each look takes back what it is asked for.
        for (struct pollfd one = {.fd = fd, .events = POLLIN}; !poll(&one, 1, 0);)
            ;
        all(fd, 1, 0);
        close(fd);
    }
    _exit(0);
}

int main(int count, char **words) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int connections = count > 1 ? atoi(words[1]) : 1, octets = count > 2 ? atoi(words[2]) : 1;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (octets > MOST || bind(l, (void *)&a, len) || listen(l, 8) || getsockname(l, (void *)&a, &len))
        die("listen");
    alarm(60);
    pid_t sender = fork();
    if (!sender)
        sends(&a, connections, octets);
    for (int i = 0; i < connections; i++) {
        int fd = accept(l, NULL, NULL), there = 0;
        talk(fd, 0);
        while (there < octets)
            if (ioctl(fd, FIONREAD, &there))
                die("FIONREAD");
        shutdown(fd, SHUT_RD);
        ssize_t n, got = 0;
        while ((n = recv(fd, data, sizeof data, 0)) > 0)
            got += n;
        if (n < 0 || got != octets)
            printf("connection %d: %zd octets, %s\n", i, got, n < 0 ? strerror(errno) : "end");
        all(fd, 1, 1);
        close(fd);
    }
    int status;
    if (waitpid(sender, &status, 0) != sender || status)
        die("the sender");
    puts("over");
    return 0;
}
