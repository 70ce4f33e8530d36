/* Every function once as it should be, and with what cannot be. Run where `left` and `right` are connected. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <poll.h>
#include <pthread.h>

/* Whether root here is somebody else, or nobody else, outside. */
static int root_of_a_part;

static void whose_root(void) {
    unsigned long inside, outside, count;
    FILE *map = fopen("/proc/self/uid_map", "r");
    CHECK(map != NULL && fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3 && fclose(map) == 0);
    root_of_a_part = count < 4294967295u;
}

static const uint16_t more[] = {BYPATH_ETHERTYPE_IPC};

/* There is no ring for latency on the way out. */
static uint32_t way_out(uint32_t mode) { return mode == BYPATH_MODE_LATENCY_RING ? BYPATH_MODE_PLAIN : mode; }

static bypath_l2_socket *opened(const char *name, uint32_t mode) {
    bypath_l2_options options;
    bypath_l2_socket *socket;
    WORKS(bypath_l2_options_init(&options, &error));
    options.ethertype = BYPATH_ETHERTYPE_HYBRID;
    options.more_ethertypes = more;
    options.more_ethertype_count = 1;
    options.tag = bypath_vlan(BYPATH_DEFAULT_VLAN, BYPATH_DEFAULT_PRIORITY);
    options.receive_vlan = BYPATH_VLAN_ANY;
    options.timeout_ns = 20000000000;
    options.receive_mode = mode;
    options.send_mode = way_out(mode);
    WORKS(bypath_l2_open(name, &options, &socket, &error));
    return socket;
}

static void bad_options(void) {
    bypath_l2_options o;
    bypath_l2_socket *socket = (bypath_l2_socket *)&o;
    const struct { size_t at; uint32_t value; } wrong[] = {
        {offsetof(bypath_l2_options, flags), 0x80000000u},   {offsetof(bypath_l2_options, wait), 9},
        {offsetof(bypath_l2_options, receive_mode), 9},      {offsetof(bypath_l2_options, send_mode), 3},
        {offsetof(bypath_l2_options, timestamps), 9},        {offsetof(bypath_l2_options, receive_vlan), 9},
        {offsetof(bypath_l2_options, fanout), 99},           {offsetof(bypath_l2_options, send_clock), 9},
        {offsetof(bypath_l2_options, size), 8},              {offsetof(bypath_l2_options, place), 9},
        {offsetof(bypath_l2_options, transfer), 9},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        WORKS(bypath_l2_options_init(&o, NULL));
        memcpy((char *)&o + wrong[i].at, &wrong[i].value, sizeof wrong[i].value);
        FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
        CHECK(socket == NULL);
    }
    WORKS(bypath_l2_options_init(&o, NULL));
    o.tag.tpid = 5;
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
    o.tag.tpid = BYPATH_TPID_VLAN;
    o.tag.vlan = 4095;
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
    WORKS(bypath_l2_options_init(&o, NULL));
    o.ethertype = BYPATH_ETHERTYPE_HYBRID;
    o.more_ethertype_count = 3;
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
    o.ethertype = 0;
    o.more_ethertypes = more;
    o.more_ethertype_count = 1;
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
    /* Root of a user namespace may not attach programs: a text that says what to do. */
    WORKS(bypath_l2_options_init(&o, NULL));
    o.ethertype = BYPATH_ETHERTYPE_HYBRID;
    o.receive_mode = o.send_mode = BYPATH_MODE_XDP;
    if (root_of_a_part) {
        FAILS(BYPATH_E_NOT_ALLOWED, bypath_l2_open("left", &o, &socket, &error));
        CHECK(strstr(error.message, "CAP_BPF") != NULL && strstr(error.message, "mode RING") != NULL);
    }
    FAILS(BYPATH_E_INVALID, bypath_l2_options_init(NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_open(NULL, NULL, &socket, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_open("\xff", NULL, &socket, &error));
    FAILS(BYPATH_E_UNKNOWN, bypath_l2_open("nowhere", NULL, &socket, &error));
    FAILS(BYPATH_E_NAME, bypath_l2_open("a-name-that-is-too-long", NULL, &socket, &error));
    CHECK(bypath_l2_open("nowhere", NULL, &socket, NULL) == BYPATH_E_UNKNOWN);
}

struct looked {
    bypath_l2_socket *socket;
    unsigned count;
    char first[10];
};

/* Frames where they are. The socket is in use meanwhile. */
static void look(void *context, const bypath_l2_frame *frame, const void *payload) {
    struct looked *looked = context;
    size_t mtu;
    CHECK(frame->len == 100 && frame->whole == 100 && frame->vlan.vlan == 10);
    CHECK(memcmp(payload, (const char *)payload + 1, 99) == 0);
    looked->first[looked->count++] = *(const char *)payload;
    FAILS(BYPATH_E_BUSY, bypath_l2_mtu(looked->socket, &mtu, &error));
    FAILS(BYPATH_E_BUSY, bypath_l2_close(looked->socket, &error));
}

static void bad_pointers(bypath_l2_socket *s) {
    bypath_mac to = bypath_mac_broadcast();
    bypath_l2_frame frame;
    bypath_l2_slot slot = {.data = NULL, .capacity = 10};
    bypath_octets part = {NULL, 10};
    char buffer[64];
    size_t n;
    int fd;
    FAILS(BYPATH_E_INVALID, bypath_l2_send(NULL, to, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send((bypath_l2_socket *)((char *)s + 1), to, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send(s, to, NULL, 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send(s, to, "x", SIZE_MAX, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send_with(s, NULL, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send_octets(s, NULL, 60, &error));
    FAILS(BYPATH_E_TOO_SHORT, bypath_l2_send_octets(s, "12345", 5, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send_batch(s, to, &part, 1, &n, &error));
    CHECK(n == 0);
    FAILS(BYPATH_E_INVALID, bypath_l2_send_batch(s, to, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_send_batch(s, to, &part, 0, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive(s, NULL, 64, &frame, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive(s, buffer, 64, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive_batch(s, &slot, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive_batch(s, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive_batch(s, NULL, 0, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive_each(s, 1, NULL, NULL, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_receive_each(s, 1, look, NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_descriptor(s, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_descriptor(NULL, &fd, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_mac(s, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_mtu(s, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_header_init(s, to, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_read_statistics(s, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_read_obtained(s, NULL, NULL, 0, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_set_wait(s, 77, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_set_timeout(NULL, 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_l2_leave(s, to, &error));
    FAILS(BYPATH_E_INVALID, bypath_interfaces(NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_interfaces(NULL, 0, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_interface_named(NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_mac_parse("zz", &to, &error));
    FAILS(BYPATH_E_INVALID, bypath_mac_format(to, NULL, &error));
    WORKS(bypath_l2_close(NULL, &error));
}

static void blocks(void) {
    bypath_l2_options options;
    bypath_l2_socket *socket;
    bypath_l2_obtained obtained;
    WORKS(bypath_l2_options_init(&options, &error));
    options.receive_mode = BYPATH_MODE_RING;
    options.receive_ring = 1;
    options.block = 512 << 10;
    WORKS(bypath_l2_open("left", &options, &socket, &error));
    WORKS(bypath_l2_read_obtained(socket, &obtained, NULL, 0, &error));
    /* Four blocks at least. */
    CHECK(obtained.receive_ring == 4 * options.block);
    WORKS(bypath_l2_close(socket, &error));
}

static void frames(uint32_t mode) {
    bypath_l2_socket *left = opened("left", mode), *right = opened("right", mode);
    bypath_l2_header header;
    bypath_l2_frame frame;
    bypath_l2_statistics counts;
    bypath_l2_obtained obtained;
    bypath_octets parts[5];
    bypath_l2_slot slots[5];
    bypath_mac from, to;
    char notes[100] = "x", buffer[5][1500], whole[100] = {0};
    static char big[20000];
    size_t n, got = 0, mtu;

    WORKS(bypath_l2_mac(left, &from, &error));
    WORKS(bypath_l2_mac(right, &to, &error));
    WORKS(bypath_l2_mtu(left, &mtu, &error));
    CHECK(mtu == 1500);
    WORKS(bypath_l2_read_obtained(left, &obtained, notes, sizeof notes, &error));
    CHECK(obtained.receive_mode == mode && obtained.send_mode == way_out(mode) && notes[0] == 0);

    WORKS(bypath_l2_send(left, to, "hello", 5, &error));
    WORKS(bypath_l2_receive(right, buffer[0], 3, &frame, &error));
    CHECK(frame.len == 3 && frame.whole == BYPATH_SHORTEST_PAYLOAD && memcmp(buffer[0], "hel", 3) == 0);
    CHECK(memcmp(&frame.source, &from, 6) == 0 && memcmp(&frame.destination, &to, 6) == 0);
    CHECK(frame.vlan.tpid == 0x8100 && frame.vlan.vlan == 10 && frame.vlan.priority == 7);
    CHECK(frame.inner_vlan.tpid == 0 && frame.ethertype == 0x88b5 && frame.addressed == BYPATH_TO_HOST);
    CHECK(frame.timestamp_source == BYPATH_TIMESTAMP_SOFTWARE && frame.timestamp_ns > 1000000000000000000);

    WORKS(bypath_l2_header_init(left, to, &header, &error));
    CHECK(header.ethertype == 0x88b5 && header.vlan.vlan == 10);
    header.ethertype = BYPATH_ETHERTYPE_IPC;
    header.vlan = (bypath_vlan_tag){BYPATH_TPID_SERVICE, 20, 3, 1};
    header.inner_vlan = (bypath_vlan_tag){BYPATH_TPID_VLAN, 30, 2, 0};
    header.vlan.priority = 8;
    FAILS(BYPATH_E_INVALID, bypath_l2_send_with(left, &header, "x", 1, &error));
    header.vlan.priority = 3;
    header.inner_vlan.tpid = 0;
    WORKS(bypath_l2_send_with(left, &header, "x", 1, &error));
    WORKS(bypath_l2_receive(right, buffer[0], 1500, &frame, &error));
    CHECK(frame.ethertype == 0xaaaa && frame.vlan.tpid == 0x88a8 && frame.vlan.vlan == 20);
    CHECK(frame.vlan.priority == 3 && frame.vlan.drop_eligible == 1);

    memcpy(whole, &to, 6);
    memcpy(whole + 6, &from, 6);
    memcpy(whole + 12, "\x88\xb5octets", 8);
    WORKS(bypath_l2_send_octets(left, whole, sizeof whole, &error));
    WORKS(bypath_l2_receive(right, buffer[0], 1500, &frame, &error));
    CHECK(frame.len == 86 && frame.vlan.tpid == 0 && memcmp(buffer[0], "octets", 6) == 0);

    for (int i = 0; i < 5; i++) {
        memset(big + 100 * i, 'a' + i, 100);
        parts[i] = (bypath_octets){big + 100 * i, 100};
        slots[i].data = buffer[i];
        slots[i].capacity = sizeof buffer[i];
    }
    WORKS(bypath_l2_send_batch(left, to, parts, 5, &n, &error));
    CHECK(n == 5);
    while (got < 5) {
        WORKS(bypath_l2_receive_batch(right, slots + got, 5 - got, &n, &error));
        CHECK(n > 0);
        got += n;
    }
    for (int i = 0; i < 5; i++) CHECK(slots[i].frame.len == 100 && memcmp(buffer[i], big + 100 * i, 100) == 0);

    struct looked looked = {.socket = right};
    WORKS(bypath_l2_send_batch(left, to, parts, 5, &n, &error));
    while (looked.count < 5) {
        unsigned before = looked.count;
        WORKS(bypath_l2_receive_each(right, 5 - before, look, &looked, &n, &error));
        CHECK(n > 0 && looked.count == before + n);
    }
    CHECK(memcmp(looked.first, "abcde", 5) == 0);
    WORKS(bypath_l2_receive_each(right, 0, look, &looked, &n, &error));
    CHECK(n == 0 && looked.count == 5);

    FAILS(BYPATH_E_TOO_LONG, bypath_l2_send(left, to, big, mtu + 1, &error));
    WORKS(bypath_l2_set_timeout(right, 1000000, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_l2_receive(right, buffer[0], 10, &frame, &error));
    WORKS(bypath_l2_set_wait(right, BYPATH_WAIT_SPIN, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_l2_receive(right, buffer[0], 10, &frame, &error));
    WORKS(bypath_l2_set_wait(right, BYPATH_WAIT_NEVER, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_l2_receive_batch(right, slots, 5, &n, &error));
    CHECK(n == 0);

    WORKS(bypath_mac_parse("03-00-00-00-12-34", &to, &error));
    WORKS(bypath_l2_join(right, to, &error));
    WORKS(bypath_l2_set_wait(right, BYPATH_WAIT_SLEEP, &error));
    WORKS(bypath_l2_set_timeout(right, 20000000000, &error));
    WORKS(bypath_l2_send(left, to, "group", 5, &error));
    WORKS(bypath_l2_receive(right, buffer[0], 10, &frame, &error));
    CHECK(frame.addressed == BYPATH_TO_GROUP);
    WORKS(bypath_l2_leave(right, to, &error));

    WORKS(bypath_l2_read_statistics(right, &counts, &error));
    CHECK(counts.received == 14 && counts.dropped == 0);
    bad_pointers(right);
    WORKS(bypath_l2_close(left, &error));
    WORKS(bypath_l2_close(right, &error));
}

/* A thread that waits in a call, for the other one to see that. */
static void *waits(void *socket) {
    char buffer[100];
    bypath_l2_frame frame;
    bypath_status *status = malloc(sizeof *status);
    /* The other one may be the one who is inside. */
    do {
        *status = bypath_l2_receive(socket, buffer, sizeof buffer, &frame, NULL);
    } while (*status == BYPATH_E_BUSY);
    return status;
}

static void one_thread_at_a_time(void) {
    bypath_l2_socket *left = opened("left", BYPATH_MODE_PLAIN), *right = opened("right", BYPATH_MODE_PLAIN);
    pthread_t thread;
    void *status;
    size_t mtu;
    bypath_mac to;
    WORKS(bypath_l2_mac(right, &to, &error));
    CHECK(pthread_create(&thread, NULL, waits, right) == 0);
    /* It waits until a frame comes, and none comes before this has been seen. */
    int looks = 0;
    while (bypath_l2_mtu(right, &mtu, &error) == BYPATH_OK) {
        CHECK(looks++ < 20000);
        poll(NULL, 0, 1);
    }
    CHECK(error.status == BYPATH_E_BUSY);
    FAILS(BYPATH_E_BUSY, bypath_l2_close(right, &error));
    WORKS(bypath_l2_send(left, to, "x", 1, &error));
    CHECK(pthread_join(thread, &status) == 0);
    CHECK(*(bypath_status *)status == BYPATH_OK);
    free(status);
    WORKS(bypath_l2_close(left, &error));
    WORKS(bypath_l2_close(right, &error));
}

int main(void) {
    bypath_interface all[2], one;
    size_t count;
    char text[BYPATH_MAC_TEXT];
    WORKS(bypath_interfaces(all, 2, &count, &error));
    CHECK(count == 3 && strcmp(all[0].name, "lo") == 0 && all[0].loopback == 1);
    WORKS(bypath_interface_named("left", &one, &error));
    CHECK(one.mtu == 1500 && one.ethernet == 1 && one.up == 1 && strcmp(one.name, "left") == 0);
    FAILS(BYPATH_E_UNKNOWN, bypath_interface_named("nowhere", &one, &error));
    WORKS(bypath_mac_format(bypath_mac_broadcast(), text, &error));
    CHECK(strcmp(text, "ff:ff:ff:ff:ff:ff") == 0);
    CHECK(strcmp(bypath_status_name(BYPATH_E_DOWN), "BYPATH_E_DOWN") == 0 && bypath_status_name(5) != NULL);
    snprintf(text, sizeof text, "%d.%d.%d", BYPATH_VERSION_MAJOR, BYPATH_VERSION_MINOR, BYPATH_VERSION_PATCH);
    CHECK(strcmp(bypath_version(), text) == 0);
    whose_root();
    bad_options();
    frames(BYPATH_MODE_PLAIN);
    frames(BYPATH_MODE_MMSG);
    frames(BYPATH_MODE_RING);
    blocks();
    frames(BYPATH_MODE_LATENCY_RING);
    one_thread_at_a_time();
    puts("all as it should be");
    return 0;
}
