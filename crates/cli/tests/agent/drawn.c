// What waits in the mailbox of a UDP socket when the kernel, or the C library, reads from that: by splice, and as a stream. Prints the same on the kernel.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int r, s;

static void die(const char *what) {
    perror(what);
    exit(9);
}

// Two sockets that know each other, and a gate that is open: what is sent next lies in memory.
static void meet(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    char room[100];
    r = socket(AF_INET, SOCK_DGRAM, 0), s = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(r, (void *)&address, len) || getsockname(r, (void *)&address, &len) || connect(s, (void *)&address, len))
        die("sockets");
    for (int i = 0; i < 200; i++) {
        recv(r, room, sizeof room, MSG_DONTWAIT);
        if (send(s, "warm\n", 5, 0) != 5 || recv(r, room, sizeof room, MSG_DONTWAIT) != 5)
            die("a datagram");
    }
    if (recv(r, room, sizeof room, MSG_DONTWAIT) >= 0)
        die("one too many");
}

static void end(void) {
    close(r);
    close(s);
}

static void put(const char *text) {
    if (send(s, text, strlen(text), 0) != (ssize_t)strlen(text))
        die("send");
}

static void drawn(int way[2], unsigned flags) {
    char room[100] = "";
    ssize_t n = splice(r, NULL, way[1], NULL, sizeof room - 1, flags);
    if (n > 0 && read(way[0], room, n) != n)
        die("read");
    printf("splice %zd %s\n", n, room);
}

int main(void) {
    int way[2];
    char line[100];
    // Whoever sleeps on is ended.
    alarm(60);
    if (pipe(way))
        die("pipe");
    meet();
    put("one"), put("two");
    drawn(way, 0), drawn(way, 0);
    for (int i = 0; i < 5; i++) {
        char text[] = {'a' + i, 0};
        put(text);
        drawn(way, SPLICE_F_NONBLOCK);
    }
    end();
    meet();
    put("first\n"), put("second\n");
    FILE *stream = fdopen(r, "r");
    for (int i = 0; i < 2; i++)
        printf("line %s", fgets(line, sizeof line, stream) ? line : "none\n");
    put("third\n");
    printf("line %s", fgets(line, sizeof line, stream) ? line : "none\n");
    return 0;
}
