/* Raw Ethernet one way in plain C: the yardstick for what our library adds to the kernel's interface. Its sockets are set up
 * as the library's are: every EtherType with a filter, VLAN tags told, frames of this host left out.
 * usage: raw send|recv plain|ring INTERFACE MAC SIZE SECONDS CPU
 * send: frames of SIZE octets of payload to MAC, numbered, as fast as they go.
 * recv: takes them until none has come for 200 ms; looks at the number of each.
 * Prints what the measured programs of `bypath bench` print. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TYPE 0x88b5
#define BATCH 64
#define SLOTS 64
#define BLOCK (512u * 1024)
#define BLOCKS 4u
#define QUIET_NS 200000000ull
#define PATIENCE_NS 3000000000ull

static void fail(const char *why) {
    printf("{\"error\":\"%s: %s\"}\n", why, strerror(errno));
    exit(1);
}

static uint64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static int sock, ring;
static size_t len;
static uint64_t frames, wrong, next_number;
static unsigned char template[66000];

static void bind_to(const char *interface, int type) {
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(type)};
    address.sll_ifindex = (int)if_nametoindex(interface);
    if (bind(sock, (struct sockaddr *)&address, sizeof address)) fail("bind");
}

static void compose(unsigned char *frame) {
    memcpy(frame, template, len);
    memcpy(frame + 14, &frames, 8);
    frames++;
}

static unsigned char *map(size_t octets) {
    unsigned char *base =
        mmap(0, octets, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, sock, 0);
    if (base == MAP_FAILED) fail("mmap");
    return base;
}

static void version(int v) {
    if (setsockopt(sock, SOL_PACKET, PACKET_VERSION, &v, sizeof v)) fail("PACKET_VERSION");
}

static void send_plain(uint64_t until) {
    unsigned char *frame = malloc(len);
    while (now_ns() < until)
        for (int i = 0; i < BATCH; i++) {
            compose(frame);
            if (send(sock, frame, len, 0) < 0) fail("send");
        }
}

static void send_ring(uint64_t until) {
    size_t slot = 4096;
    while (slot < len + 64) slot *= 2;
    size_t block = slot > 32768 ? slot : 32768;
    struct tpacket_req req = {.tp_block_size = block, .tp_frame_size = slot, .tp_frame_nr = SLOTS};
    req.tp_block_nr = (unsigned)(SLOTS / (block / slot));
    version(TPACKET_V2);
    if (setsockopt(sock, SOL_PACKET, PACKET_TX_RING, &req, sizeof req)) fail("PACKET_TX_RING");
    unsigned char *base = map((size_t)req.tp_block_size * req.tp_block_nr);
    size_t at = 0;
    while (now_ns() < until) {
        for (int i = 0; i < BATCH; i++, at = (at + 1) % SLOTS) {
            struct tpacket2_hdr *header = (void *)(base + at * slot);
            while (__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE) {
                struct pollfd fd = {.fd = sock, .events = POLLOUT};
                poll(&fd, 1, 1);
            }
            compose((unsigned char *)header + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll));
            header->tp_len = (unsigned)len;
            __atomic_store_n(&header->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
        }
        if (sendto(sock, 0, 0, MSG_DONTWAIT, 0, 0) < 0 && errno != EAGAIN && errno != ENOBUFS) fail("sendto");
    }
}

static void take(const unsigned char *frame, size_t got) {
    uint64_t number;
    memcpy(&number, frame + 14, 8);
    if (got != len || number < next_number) wrong++;
    next_number = number + 1;
    frames++;
}

static void receive_plain(void) {
    unsigned char *frame = malloc(70000);
    uint64_t begin = now_ns();
    uint64_t control[20];
    struct sockaddr_ll from;
    struct iovec piece = {frame, 70000};
    for (;;) {
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1,
                                 .msg_control = control, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(sock, &message, MSG_TRUNC);
        if (got >= 0) take(frame, (size_t)got);
        else if (errno != EAGAIN) fail("recv");
        else if (frames || now_ns() - begin > PATIENCE_NS) return;
    }
}

static unsigned char *blocks;

static void receive_ring(void) {
    uint64_t last = now_ns();
    for (unsigned at = 0;;) {
        struct tpacket_block_desc *block = (void *)(blocks + (size_t)at * BLOCK);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            struct pollfd fd = {.fd = sock, .events = POLLIN};
            if (poll(&fd, 1, 20) == 0 && now_ns() - last > (frames ? QUIET_NS : PATIENCE_NS)) return;
            continue;
        }
        unsigned char *here = (unsigned char *)block + block->hdr.bh1.offset_to_first_pkt;
        for (unsigned i = 0; i < block->hdr.bh1.num_pkts; i++) {
            struct tpacket3_hdr *header = (void *)here;
            take(here + header->tp_mac, header->tp_snaplen);
            here += header->tp_next_offset;
        }
        last = now_ns();
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        at = (at + 1) % BLOCKS;
    }
}

int main(int argc, char **argv) {
    if (argc != 8) fail("usage: raw send|recv plain|ring INTERFACE MAC SIZE SECONDS CPU");
    int sends = !strcmp(argv[1], "send");
    ring = !strcmp(argv[2], "ring");
    len = 14 + strtoul(argv[5], 0, 10);
    if (len > sizeof template || len < 60) fail("SIZE");
    for (size_t i = 14; i < len; i++) template[i] = (unsigned char)(i * 7 + (i >> 8));
    unsigned m[6];
    if (sscanf(argv[4], "%x:%x:%x:%x:%x:%x", m, m + 1, m + 2, m + 3, m + 4, m + 5) != 6) fail("MAC");
    for (int i = 0; i < 6; i++) template[i] = (unsigned char)m[i];
    template[12] = TYPE >> 8, template[13] = TYPE & 255;
    if (atoi(argv[7]) >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(atoi(argv[7]), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    sock = socket(AF_PACKET, SOCK_RAW, 0);
    if (sock < 0) fail("socket");
    uint64_t cpu, start;
    if (sends) {
        bind_to(argv[3], 0);
        cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
        uint64_t until = start + (uint64_t)(strtod(argv[6], 0) * 1e9);
        if (ring) send_ring(until);
        else send_plain(until);
    } else {
        int queue = 32 << 20;
        struct timeval quiet = {.tv_usec = QUIET_NS / 1000};
        if (setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof queue))
            setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &queue, sizeof queue);
        setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof quiet);
        if (ring) {
            struct tpacket_req3 req = {.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = 2048};
            req.tp_frame_nr = BLOCKS * (BLOCK / 2048), req.tp_retire_blk_tov = 1;
            version(TPACKET_V3);
            if (setsockopt(sock, SOL_PACKET, PACKET_RX_RING, &req, sizeof req)) fail("PACKET_RX_RING");
            blocks = map((size_t)BLOCK * BLOCKS);
        }
        int on = 1;
        struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TYPE, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, 0x40000), BPF_STMT(BPF_RET | BPF_K, 0)};
        struct sock_fprog filter = {4, code};
        if (setsockopt(sock, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on)) fail("PACKET_AUXDATA");
        if (setsockopt(sock, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)) fail("PACKET_IGNORE_OUTGOING");
        if (setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter)) fail("SO_ATTACH_FILTER");
        bind_to(argv[3], ETH_P_ALL);
        printf("{\"ready\":\"\"}\n"), fflush(stdout);
        cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
        if (ring) receive_ring();
        else receive_plain();
    }
    cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (wrong) errno = EILSEQ, fail("frames were lost or changed in order");
    printf("{\"result\":{\"elapsed_ns\":%llu,\"cpu_ns\":%llu,\"%s\":%llu}}\n",
           (unsigned long long)(now_ns() - start), (unsigned long long)cpu, sends ? "sent" : "received",
           (unsigned long long)frames);
    return 0;
}
