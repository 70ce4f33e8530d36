/* A plain single-producer single-consumer byte ring in shared memory, in C: the yardstick for our own ring.
 * usage: ring FILE serve|drive pingpong|stream SIZE SECONDS CPU
 * Prints what the measured programs of `bypath bench` print. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define CAPACITY (256u * 1024)
#define LOW 65536

struct ring {
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) unsigned char data[CAPACITY];
};
struct end { /* one side's view: the other side's counter is looked at only when needed */
    struct ring *ring;
    uint64_t own, other;
};

static void fail(const char *why) {
    printf("{\"error\":\"%s\"}\n", why);
    exit(1);
}

static void put(struct end *e, const unsigned char *from, size_t n) {
    while (n) {
        size_t room = CAPACITY - (size_t)(e->own - e->other);
        if (!room) {
            e->other = atomic_load_explicit(&e->ring->head, memory_order_acquire);
            continue;
        }
        size_t at = e->own & (CAPACITY - 1), k = n < room ? n : room;
        if (k > CAPACITY - at) k = CAPACITY - at;
        memcpy(e->ring->data + at, from, k);
        e->own += k, from += k, n -= k;
        atomic_store_explicit(&e->ring->tail, e->own, memory_order_release);
    }
}

static void take(struct end *e, unsigned char *to, size_t n) {
    while (n) {
        size_t ready = (size_t)(e->other - e->own);
        if (!ready) {
            e->other = atomic_load_explicit(&e->ring->tail, memory_order_acquire);
            continue;
        }
        size_t at = e->own & (CAPACITY - 1), k = n < ready ? n : ready;
        if (k > CAPACITY - at) k = CAPACITY - at;
        memcpy(to, e->ring->data + at, k);
        e->own += k, to += k, n -= k;
        atomic_store_explicit(&e->ring->head, e->own, memory_order_release);
    }
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fill(unsigned char *buf, size_t size, uint32_t number) {
    for (size_t i = 1; i < size; i++) buf[i] = (unsigned char)(number * 31 + i * 7 + (i >> 8));
}

static void check(const unsigned char *buf, size_t size, uint32_t number) {
    for (size_t i = 1; i < size; i++)
        if (buf[i] != (unsigned char)(number * 31 + i * 7 + (i >> 8))) fail("wrong byte");
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: ring FILE serve|drive pingpong|stream SIZE SECONDS CPU");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int serve = !strcmp(argv[2], "serve"), pingpong = !strcmp(argv[3], "pingpong");
    size_t size = strtoul(argv[4], 0, 10);
    uint64_t length = (uint64_t)(strtod(argv[5], 0) * 1e9);
    if (atoi(argv[6]) >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(atoi(argv[6]), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 2 * sizeof(struct ring))) fail("cannot open the ring's file");
    struct ring *rings = mmap(0, 2 * sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    unsigned char *buf = malloc(size);
    uint32_t *low = calloc(LOW, sizeof *low);
    if (rings == MAP_FAILED || !buf || !low) fail("no memory");
    if (serve) printf("{\"ready\":\"%s\"}\n", argv[1]), fflush(stdout);

    struct end tx = {rings + serve, 0, 0}, rx = {rings + !serve, 0, 0};
    memset(buf, 1, size);
    for (uint32_t i = 0; i < 256; i++) { /* the checked phase, both ways */
        if (!serve) fill(buf, size, i), put(&tx, buf, size);
        take(&rx, buf, size);
        check(buf, size, i);
        if (serve) put(&tx, buf, size);
    }
    uint64_t deltas[101], clock_cost = ~0ull;
    for (int i = 0; i < 100; i++) {
        deltas[i] = now_ns();
        if (i && deltas[i] - deltas[i - 1] < clock_cost) clock_cost = deltas[i] - deltas[i - 1];
    }

    uint64_t sent = 0, received = 0, start, before, now;
    buf[0] = 3;
    if (serve) {
        take(&rx, buf, size);
        start = now_ns();
        while (buf[0] == 3) {
            if (pingpong) put(&tx, buf, size);
            take(&rx, buf, size);
            received++;
        }
        now = now_ns();
        put(&tx, buf, size);
    } else {
        start = before = now = now_ns();
        size_t burst = pingpong || size >= 65536 ? 1 : 65536 / size;
        while (now - start < length) {
            for (size_t i = 0; i < burst; i++) put(&tx, buf, size);
            if (pingpong) take(&rx, buf, size);
            sent += burst;
            now = now_ns();
            uint64_t ns = now - before;
            ns -= ns < clock_cost ? ns : clock_cost;
            low[ns < LOW ? ns : LOW - 1]++;
            before = now;
        }
        buf[0] = 4;
        put(&tx, buf, size);
        take(&rx, buf, size);
        sent++;
    }
    printf("{\"result\":{\"elapsed_ns\":%llu,\"received\":%llu,\"sent\":%llu,\"bytes\":%llu,\"samples\":[",
           (unsigned long long)(now - start), (unsigned long long)received, (unsigned long long)sent,
           (unsigned long long)(received * size));
    const char *comma = "";
    for (size_t i = 0; pingpong && i < LOW; i++)
        if (low[i]) printf("%s[%zu,%u]", comma, i, low[i]), comma = ",";
    printf("],\"figures\":{\"messages_in_all\":%llu}}}\n", (unsigned long long)(received + 1));
    return 0;
}
