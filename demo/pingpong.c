/* A 64-byte message there, a 64-byte message back, again and again.
 *   pingpong server ADDRESS
 *   pingpong client ADDRESS SECONDS     prints the median round trip in nanoseconds
 * Data are checked in messages before and after the timed ones. */
#include "net.h"

enum { SIZE = 64, CHECKED = 1000, MOST = 1 << 22 };

static void checked_trips(int fd) {
    unsigned char out[SIZE], in[SIZE];
    for (uint32_t i = 0; i < CHECKED; i++) {
        fill(out, SIZE, i);
        send_all(fd, out, SIZE);
        if (!recv_all(fd, in, SIZE)) wrong("the server ended");
        check(in, SIZE, i);
    }
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void client(const char *text, double seconds) {
    struct address a = parse(text);
    int fd = connect_to(&a);
    no_delay(fd, &a);
    uint32_t *trips = malloc(MOST * sizeof *trips);
    if (!trips) die("malloc");
    checked_trips(fd);

    unsigned char message[SIZE];
    fill(message, SIZE, 7);
    uint64_t start = now_ns(), before = start, now = start;
    size_t n = 0;
    while (n < MOST && now - start < (uint64_t)(seconds * 1e9)) {
        send_all(fd, message, SIZE);
        if (!recv_all(fd, message, SIZE)) wrong("the server ended");
        now = now_ns();
        trips[n++] = now - before > UINT32_MAX ? UINT32_MAX : (uint32_t)(now - before);
        before = now;
    }
    check(message, SIZE, 7);
    checked_trips(fd);
    close(fd);
    qsort(trips, n, sizeof *trips, by_size);
    printf("%u\n", trips[n / 2]);
}

static void server(const char *text) {
    struct address a = parse(text);
    int fd = accept_one(listen_at(text));
    no_delay(fd, &a);
    unsigned char message[SIZE];
    while (recv_all(fd, message, SIZE)) send_all(fd, message, SIZE);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "server")) server(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "client")) client(argv[2], atof(argv[3]));
    else return fprintf(stderr, "usage: pingpong server ADDRESS | client ADDRESS SECONDS\n"), 1;
    return 0;
}
