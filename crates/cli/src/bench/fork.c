/* A small program that forks: what do fork + _exit + waitpid and fork + exec + waitpid cost it?
 * usage: fork serve                 echoes on one connection until its end
 *        fork drive PORT SECONDS    PORT 0: without a connection
 * Prints what the measured programs of `bypath bench` print. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE 1024
#define FIRST 4096 /* messages there and back before the clock starts, so that nothing moves afterwards */
#define LAST 64    /* and after it has stopped: the connection is as good as before */
#define LEAST 20
#define MOST 65536

static void fail(const char *why) {
    printf("{\"error\":\"%s\"}\n", why);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void write_all(int fd, const unsigned char *from, size_t n) {
    while (n) {
        ssize_t done = write(fd, from, n);
        if (done <= 0) fail("write");
        from += done;
        n -= (size_t)done;
    }
}

/* How many bytes came before the end, at most n. */
static size_t read_all(int fd, unsigned char *into, size_t n) {
    size_t have = 0;
    while (have < n) {
        ssize_t done = read(fd, into + have, n - have);
        if (done < 0) fail("read");
        if (done == 0) break;
        have += (size_t)done;
    }
    return have;
}

static void echo(int fd, int messages) {
    unsigned char out[SIZE], in[SIZE];
    static unsigned number;
    for (int i = 0; fd >= 0 && i < messages; i++) {
        memset(out, (int)(++number % 251), SIZE);
        write_all(fd, out, SIZE);
        if (read_all(fd, in, SIZE) != SIZE || memcmp(in, out, SIZE)) fail("a wrong answer");
    }
}

static void serve(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1)
        || getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    printf("{\"ready\":\"%d\"}\n", ntohs(address.sin_port));
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) fail("accept");
    unsigned char buf[SIZE];
    unsigned long received = 0;
    for (; read_all(fd, buf, SIZE) == SIZE; received++) write_all(fd, buf, SIZE);
    close(fd);
    printf("{\"result\":{\"received\":%lu}}\n", received);
}

static uint64_t once(const char *program) {
    uint64_t before = now_ns();
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        if (program) execl(program, program, (char *)NULL);
        _exit(program ? 127 : 0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("a child failed");
    return now_ns() - before;
}

struct series {
    const char *name;
    const char *program;
    uint32_t n;
    uint64_t ns[MOST];
};

static void measure(struct series *s, uint64_t length) {
    for (int i = 0; i < LEAST; i++) once(s->program);
    for (uint64_t start = now_ns(); s->n < MOST && (s->n < LEAST || now_ns() - start < length);)
        s->ns[s->n++] = once(s->program);
}

static void drive(int port, uint64_t length) {
    int fd = -1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    if (port) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    }
    echo(fd, FIRST);
    static struct series all[] = {{.name = "fork_ns"}, {.name = "fork_exec_ns", .program = "/bin/true"}};
    for (int i = 0; i < 2; i++) measure(&all[i], length);
    echo(fd, LAST);
    unsigned char byte;
    if (fd >= 0 && (shutdown(fd, SHUT_WR) || read_all(fd, &byte, 1))) fail("the end");
    printf("{\"result\":{\"sent\":%d,\"series\":{", port ? FIRST + LAST : 0);
    for (int i = 0; i < 2; i++) {
        printf("%s\"%s\":[", i ? "," : "", all[i].name);
        for (uint32_t j = 0; j < all[i].n; j++)
            printf("%s[%llu,1]", j ? "," : "", (unsigned long long)all[i].ns[j]);
        printf("]");
    }
    printf("}}}\n");
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "drive"))
        drive(atoi(argv[2]), (uint64_t)(atof(argv[3]) * 1e9));
    else
        serve();
    return 0;
}
