/* The classic ways to send UDP through a TUN device in plain C: the yardstick for what our library adds to the system calls.
 * usage: tun assemble|writev DEVICE ADDRESS PORT SIZE SECONDS CPU
 * DEVICE exists and persists; the kernel's end is ADDRESS. Datagrams of SIZE octets, numbered, go to ADDRESS:PORT, a socket of
 * this program, which takes them between two stretches of sending, as many of which as its queue holds.
 * Prints {"sent":..,"received":..,"elapsed_ns":..,"cpu_ns":..,"median_ns":..}: time in the stretches only, and of a datagram in
 * half of them or less. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define VNET 10
#define HEAD (VNET + 28)

static void fail(const char *why) {
    printf("{\"error\":\"%s: %s\"}\n", why, strerror(errno));
    exit(1);
}

static uint64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t sum(const unsigned char *at, size_t len, uint32_t sum) {
    for (size_t i = 0; i + 1 < len; i += 2) sum += (uint32_t)(at[i] << 8 | at[i + 1]);
    return sum;
}

static uint16_t fold(uint32_t sum) {
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static void put(unsigned char *at, uint16_t word) {
    at[0] = (unsigned char)(word >> 8);
    at[1] = (unsigned char)word;
}

static uint16_t identification;
static struct in_addr from, to;

/* Headers with the checksum left to the kernel, as the library's are. */
static void headers(unsigned char *head, uint16_t port, size_t size) {
    unsigned char *ip = head + VNET, *udp = ip + 20;
    memset(head, 0, HEAD);
    head[0] = 1;
    head[6] = 20;
    head[8] = 6;
    ip[0] = 0x45;
    put(ip + 2, (uint16_t)(28 + size));
    put(ip + 4, identification++);
    ip[8] = 64;
    ip[9] = 17;
    memcpy(ip + 12, &from, 4);
    memcpy(ip + 16, &to, 4);
    put(ip + 10, (uint16_t)~fold(sum(ip, 20, 0)));
    put(udp, 7000);
    put(udp + 2, port);
    put(udp + 4, (uint16_t)(8 + size));
    put(udp + 6, fold(sum(ip + 12, 8, 17 + 8 + (uint32_t)size)));
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 8) return 2;
    int assemble = strcmp(argv[1], "assemble") == 0;
    size_t size = (size_t)atoi(argv[5]);
    uint64_t length = (uint64_t)(atof(argv[6]) * 1e9);
    cpu_set_t set;
    if (atoi(argv[7]) >= 0) {
        CPU_ZERO(&set);
        CPU_SET(atoi(argv[7]), &set);
        if (sched_setaffinity(0, sizeof set, &set)) fail("affinity");
    }
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (tun < 0) fail("/dev/net/tun");
    struct ifreq req = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(req.ifr_name, sizeof req.ifr_name, "%s", argv[2]);
    if (ioctl(tun, TUNSETIFF, &req)) fail("TUNSETIFF");
    int vnet = VNET;
    if (ioctl(tun, TUNSETVNETHDRSZ, &vnet) || ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM)) fail("offloads");
    inet_pton(AF_INET, argv[3], &to);
    from = to;
    ((unsigned char *)&from)[3]++;

    int sock = socket(AF_INET, SOCK_DGRAM, 0), queue = 8 << 20;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = to, .sin_port = htons((uint16_t)atoi(argv[4]))};
    if (sock < 0 || bind(sock, (struct sockaddr *)&at, sizeof at)) fail("bind");
    if (setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof queue))
        setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &queue, sizeof queue);
    socklen_t len = sizeof queue;
    getsockopt(sock, SOL_SOCKET, SO_RCVBUF, &queue, &len);
    size_t stretch = (size_t)queue / 2 / (4096 + 2 * size);
    if (stretch < 1) stretch = 1;
    if (stretch > 20) stretch = 20;

    unsigned char *payload = aligned_alloc(4096, (size + 4095) & ~(size_t)4095), *packet = malloc(HEAD + size), *got = malloc(65536), head[HEAD];
    memset(payload, 0x5a, size);
    size_t stretches = 0, room = 1u << 20;
    double *each = malloc(room * sizeof *each);
    uint64_t sent = 0, received = 0, next = 0, elapsed = 0, cpu = 0, end = clock_ns(CLOCK_MONOTONIC) + length;
    while (clock_ns(CLOCK_MONOTONIC) < end) {
        uint64_t cpu_before = clock_ns(CLOCK_THREAD_CPUTIME_ID), before = clock_ns(CLOCK_MONOTONIC);
        for (size_t i = 0; i < stretch; i++, sent++) {
            memcpy(payload, &sent, 8);
            if (assemble) {
                headers(packet, (uint16_t)atoi(argv[4]), size);
                memcpy(packet + HEAD, payload, size);
                if (write(tun, packet, HEAD + size) < 0) fail("write");
            } else {
                headers(head, (uint16_t)atoi(argv[4]), size);
                struct iovec pieces[] = {{head, HEAD}, {payload, size}};
                if (writev(tun, pieces, 2) < 0) fail("writev");
            }
        }
        uint64_t took = clock_ns(CLOCK_MONOTONIC) - before;
        elapsed += took;
        if (stretches < room) each[stretches++] = (double)took / (double)stretch;
        cpu += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before;
        ssize_t n;
        while ((n = recv(sock, got, 65536, MSG_DONTWAIT)) >= 0) {
            uint64_t number;
            memcpy(&number, got, 8);
            if ((size_t)n == size && number >= next) received++, next = number + 1;
        }
    }
    qsort(each, stretches, sizeof *each, by_value);
    printf("{\"sent\":%lu,\"received\":%lu,\"elapsed_ns\":%lu,\"cpu_ns\":%lu,\"median_ns\":%f}\n", sent, received,
           elapsed, cpu, stretches ? each[stretches / 2] : 0.0);
    return 0;
}
