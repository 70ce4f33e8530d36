// What FIONREAD tells is there: a receive that asks for so many bytes gets them, and what a wait found readable is readable.
// One process sends from all sizes, some with splice, the other counts and receives. Usage: counted BYTES, prints a line.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 100000 };

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static unsigned char byte_at(uint64_t position) { return (unsigned char)((position * 2654435761u) >> 13); }

static void sends(int s, uint64_t total) {
    static unsigned char data[MOST];
    unsigned random = 7;
    int way[2];
    if (pipe(way))
        die("pipe");
    for (uint64_t at = 0; at < total;) {
        int large = rand_r(&random) % 4 == 0, spliced = rand_r(&random) % 16 == 0;
        size_t n = 1 + rand_r(&random) % (spliced ? 60000 : large ? MOST : 2000);
        if (n > total - at)
            n = total - at;
        for (size_t i = 0; i < n; i++)
            data[i] = byte_at(at + i);
        if (spliced && write(way[1], data, n) != (ssize_t)n)
            die("write to a pipe");
        for (size_t done = 0; done < n;) {
            ssize_t k = spliced ? splice(way[0], NULL, s, NULL, n - done, 0) : write(s, data + done, n - done);
            if (k <= 0)
                die("send");
            done += k;
        }
        at += n;
    }
    close(s);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    static unsigned char data[MOST];
    uint64_t total = argc == 2 ? strtoull(argv[1], NULL, 0) : 0, at = 0, fewer = 0, none = 0;
    unsigned random = 11;
    int listener = socket(AF_INET, SOCK_STREAM, 0), status;
    alarm(200);
    if (total == 0 || bind(listener, (void *)&address, len) || listen(listener, 1) ||
        getsockname(listener, (void *)&address, &len))
        die("listen");
    pid_t child = fork();
    if (child == 0) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&address, len))
            die("connect");
        sends(s, total);
        _exit(0);
    }
    int s = accept(listener, NULL, NULL);
    for (;;) {
        struct pollfd p = {s, POLLIN, 0};
        int there = 0;
        if (poll(&p, 1, -1) != 1 || ioctl(s, FIONREAD, &there))
            die("wait");
        size_t want = there && rand_r(&random) % 2 ? (size_t)there : (size_t)(1 + rand_r(&random) % MOST);
        if (want > MOST)
            want = MOST;
        ssize_t n = recv(s, data, want, MSG_DONTWAIT);
        if (n == 0)
            break;
        if (n < 0 && errno != EAGAIN)
            die("recv");
        none += n < 0;
        fewer += n > 0 && (size_t)n < want && n < there;
        if (rand_r(&random) % 64 == 0)
            usleep(rand_r(&random) % 2000);
        for (ssize_t i = 0; i < n; i++)
            if (data[i] != byte_at(at + i))
                die("another byte");
        at += n > 0 ? n : 0;
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        die("the sender");
    printf("all %d, fewer than told %llu, nothing %llu\n", at == total, (unsigned long long)fewer, (unsigned long long)none);
    return 0;
}
