// A program that is spawned writes to a connection behind what its parent wrote, although the carrier has no room for all of
// that yet: the reader comes late. Prints whether every byte came, in its place.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unseen.h"

enum { ROUNDS = 300, PIECE = 1000, LATE_MS = 300, HEIRS = 100, LIFETIME = 30, NUMBER = 9 };

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static char byte_at(size_t position) { return (char)((position * 0x9e3779b97f4a7c15ull) >> 56); }

static void whole(int fd, char *data, size_t n, ssize_t (*move)(int, void *, size_t)) {
    while (n > 0) {
        ssize_t k = move(fd, data, n);
        if (k <= 0) die("whole");
        data += k, n -= (size_t)k;
    }
}

static ssize_t give(int fd, void *data, size_t n) { return write(fd, data, n); }

static void writer(const struct sockaddr_in *address, int tell) {
    int s = socket(AF_INET, SOCK_STREAM, 0), small = 4608;
    if (connect(s, (const struct sockaddr *)address, sizeof *address)) die("connect");
    char ping[100], piece[PIECE];
    for (int i = 0; i < ROUNDS; i++) whole(s, ping, sizeof ping, read), whole(s, ping, sizeof ping, give);
    set_unseen(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    fcntl(s, F_SETFL, O_NONBLOCK);
    size_t sent = 0;
    for (;;) {
        for (size_t i = 0; i < PIECE; i++) piece[i] = byte_at(sent + i);
        ssize_t k = write(s, piece, PIECE);
        if (k < 0 && errno == EAGAIN) break;
        if (k < 0) die("write");
        sent += (size_t)k;
    }
    fcntl(s, F_SETFL, 0);
    if (dup2(s, NUMBER) != NUMBER) die("dup2");
    whole(tell, (char *)&sent, sizeof sent, give);
    char *argv[] = {"sh", "-c", "printf '%0100d' 7 >&9", NULL}, *plain[] = {"PATH=/usr/bin:/bin", NULL};
    pid_t child;
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, argv, plain)) die("posix_spawn");
    int status;
    if (waitpid(child, &status, 0) != child || status) die("sh");
    _exit(0);
}

int main(void) {
    alarm(LIFETIME);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), little = 10000, told[2];
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) || pipe(told)) die("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    pid_t child = fork();
    if (child == 0) writer(&address, told[1]);
    int s = accept(listener, NULL, NULL);
    char ping[100] = {0}, data[500];
    for (int i = 0; i < ROUNDS; i++) whole(s, ping, sizeof ping, give), whole(s, ping, sizeof ping, read);
    size_t sent = 0, got = 0;
    whole(told[0], (char *)&sent, sizeof sent, read);
    poll(NULL, 0, LATE_MS);
    for (ssize_t k; (k = read(s, data, sizeof data)) > 0;)
        for (ssize_t i = 0; i < k; i++, got++) {
            char due = got < sent ? byte_at(got) : got + 1 < sent + HEIRS ? '0' : '7';
            if (data[i] != due) return printf("another byte at %zu of %zu\n", got, sent), 1;
        }
    int status;
    if (waitpid(child, &status, 0) != child || status) return printf("status %x\n", status), 1;
    if (got != sent + HEIRS) return printf("%zu bytes of %zu\n", got, sent + HEIRS), 1;
    puts("every byte in its place");
    return 0;
}
