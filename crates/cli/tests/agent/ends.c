// A server that forks a child for each connection, and more clients than one. Every byte is looked at. Prints the same on
// the kernel and under Bypath; on standard error, how many end numbers its family has used.
// Usage: ends closes|exits|killed|mixed CONNECTIONS CLIENTS | ends crowd CONNECTIONS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIFETIME = 3000, SHORT = 3, LONG = 300, MOST = 64, SIZE = 512 };

static struct sockaddr_in address = {.sin_family = AF_INET};

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(9);
}

static void get_all(int fd, unsigned char *data, size_t n) {
    while (n > 0) {
        ssize_t k = read(fd, data, n);
        if (k == -1 && errno == EINTR)
            continue;
        if (k <= 0)
            die("read");
        data += k, n -= k;
    }
}

static int connected(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd == -1 || connect(fd, (struct sockaddr *)&address, sizeof address) == -1)
        die("connect");
    return fd;
}

// Sends messages that no other connection sends, and wants each back.
static void exchange(int fd, uint32_t name, int rounds) {
    unsigned char message[SIZE], answer[SIZE];
    for (int i = 0; i < rounds; i++) {
        size_t n = 16 + (name + i) % (SIZE - 16);
        for (size_t k = 0; k < n; k++)
            message[k] = (name * 2654435761u + i * 40503u + k * 97u) >> 11;
        if (write(fd, message, n) != (ssize_t)n)
            die("write");
        get_all(fd, answer, n);
        if (memcmp(message, answer, n) != 0) {
            errno = EILSEQ;
            die("another answer");
        }
    }
}

static void echo(int fd) {
    unsigned char data[4096];
    ssize_t n;
    while ((n = read(fd, data, sizeof data)) > 0)
        if (write(fd, data, n) != n)
            die("write back");
}

// What `bypath ss` reads: end numbers that were ever used.
static void tell_numbers(void) {
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], link[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        uint32_t used;
        if (readlink(path, link, sizeof link - 1) > 0 && strncmp(link, "/memfd:bypath-view", 18) == 0 &&
            pread(atoi(e->d_name), &used, sizeof used, 8) == sizeof used)
            fprintf(stderr, "ends-used %u\n", used);
    }
}

static int reaped;

static void reap(int options) {
    while (waitpid(-1, NULL, options) > 0)
        reaped++;
}

static void serve(int l, const char *how, int connections) {
    for (int i = 0; i < connections; i++) {
        int c = accept(l, NULL, NULL);
        if (c == -1)
            die("accept");
        pid_t child = fork();
        if (child == -1)
            die("fork");
        if (child == 0) {
            int way = strcmp(how, "mixed") == 0 ? i % 3 : how[0] == 'c' ? 0 : how[0] == 'e' ? 1 : 2;
            alarm(LIFETIME);
            echo(c);
            if (way == 0)
                close(c);
            if (way == 2)
                raise(SIGKILL);
            exit(0);
        }
        close(c);
        reap(WNOHANG);
    }
}

static void short_lives(const char *how, int connections, int clients, int l) {
    int each = connections / clients;
    for (int c = 0; c < clients; c++)
        if (fork() == 0) {
            close(l);
            alarm(LIFETIME);
            for (int i = 0; i < each; i++) {
                int fd = connected();
                // The last ones live longer.
                exchange(fd, c * 1000000 + i, each - i <= 3 ? LONG : SHORT);
                close(fd);
            }
            exit(0);
        }
    serve(l, how, each * clients);
    tell_numbers();
    reap(0);
    printf("%d processes\n", reaped);
}

// More children than a family has places, each with a connection of its own; then as many connections of the parent's.
static void crowd(int connections, int l) {
    int go[2];
    if (pipe(go) == -1)
        die("pipe");
    pid_t client = fork();
    if (client == 0) {
        static int theirs[1000], ours[1000];
        close(l);
        alarm(LIFETIME);
        for (int i = 0; i < connections; i++)
            exchange(theirs[i] = connected(), i, 1);
        for (int i = 0; i < connections; i++) {
            ours[i] = connected();
            // Either sort in turn, those of the last children first.
            for (int k = 0; k < 8; k++) {
                exchange(theirs[connections - 1 - i], i + 1000 * k, 20);
                exchange(ours[i], i + 100000 + 1000 * k, 20);
            }
        }
        // Only now the children may go.
        exit(0);
    }
    for (int i = 0; i < connections; i++) {
        int c = accept(l, NULL, NULL);
        if (fork() == 0) {
            alarm(LIFETIME);
            echo(c);
            exit(0);
        }
        close(c);
    }
    for (int i = 0; i < connections; i++) {
        int c = accept(l, NULL, NULL);
        unsigned char data[SIZE];
        for (size_t left = 0, k = 0; k < 8 * 20; k++) {
            left = 16 + (i + 100000 + 1000 * (k / 20) + k % 20) % (SIZE - 16);
            get_all(c, data, left);
            if (write(c, data, left) != (ssize_t)left)
                die("write back");
        }
        // It stays open until the end.
    }
    reap(0);
    printf("%d processes\n", reaped);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    alarm(LIFETIME);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(l, (struct sockaddr *)&address, sizeof address) == -1 || listen(l, 512) == -1 ||
        getsockname(l, (struct sockaddr *)&address, &size) == -1)
        die("listen");
    if (strcmp(argv[1], "crowd") == 0)
        crowd(atoi(argv[2]), l);
    else
        short_lives(argv[1], atoi(argv[2]), atoi(argv[3]), l);
    return 0;
}
