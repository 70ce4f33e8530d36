/* AF_XDP sockets. Run where `left` and `right` are connected, with the rights to attach programs. */
#include "check.h"

static bypath_l2_options options_for(uint32_t mode) {
    bypath_l2_options o;
    WORKS(bypath_l2_options_init(&o, &error));
    o.ethertype = BYPATH_ETHERTYPE_HYBRID;
    o.tag = bypath_vlan(BYPATH_DEFAULT_VLAN, BYPATH_DEFAULT_PRIORITY);
    o.receive_mode = o.send_mode = mode;
    o.timeout_ns = 20000000000;
    return o;
}

static bypath_l2_socket *opened(const char *name, const bypath_l2_options *o) {
    bypath_l2_socket *socket;
    WORKS(bypath_l2_open(name, o, &socket, &error));
    return socket;
}

/* Sends one way, and sees it arrive as it was sent. */
static void one(bypath_l2_socket *from, bypath_l2_socket *to, size_t len) {
    static unsigned char sent[1500], got[1500];
    bypath_mac source, destination;
    bypath_l2_frame frame;
    memset(sent, (int)len, sizeof sent);
    WORKS(bypath_l2_mac(from, &source, &error));
    WORKS(bypath_l2_mac(to, &destination, &error));
    WORKS(bypath_l2_send(from, destination, sent, len, &error));
    WORKS(bypath_l2_receive(to, got, sizeof got, &frame, &error));
    CHECK(frame.len == len && frame.whole == len && memcmp(sent, got, len) == 0);
    CHECK(memcmp(&frame.source, &source, 6) == 0 && frame.addressed == BYPATH_TO_HOST);
    CHECK(frame.ethertype == 0x88b5 && frame.vlan.vlan == 10 && frame.vlan.priority == 7);
}

static void frames(uint32_t place) {
    bypath_l2_options plain = options_for(BYPATH_MODE_PLAIN), xdp = options_for(BYPATH_MODE_XDP);
    bypath_l2_obtained got;
    char notes[200] = "x", buffer[100];
    bypath_l2_socket *left, *right, *other;
    bypath_l2_frame frame;
    bypath_l2_header header;
    bypath_mac to;
    xdp.place = place;
    left = opened("left", &xdp);
    right = opened("right", &plain);
    WORKS(bypath_l2_read_obtained(left, &got, notes, sizeof notes, &error));
    CHECK(got.receive_mode == BYPATH_MODE_XDP && got.send_mode == BYPATH_MODE_XDP && notes[0] == 0);
    CHECK(got.receive_mode_asked == BYPATH_MODE_XDP && got.send_mode_asked == BYPATH_MODE_XDP);
    CHECK(got.timestamps == BYPATH_TIMESTAMP_NONE && got.qdisc_bypass == 1 && got.queue == 0);
    CHECK(got.transfer_asked == BYPATH_TRANSFER_BEST && got.transfer == BYPATH_TRANSFER_COPY);
    CHECK(got.place_asked == place && got.place == (place == BYPATH_PLACE_BEST ? BYPATH_PLACE_DRIVER : place));
    CHECK(got.need_wakeup_asked == 1 && got.need_wakeup == 1 && got.busy_poll_asked == 0 && got.busy_poll == 0);
    CHECK(got.multi_buffer_asked == 0 && got.multi_buffer == 0 && got.longest_received >= 1522);
    CHECK(got.receive_ring == 2048 * 2048 && got.send_ring == 512 && got.memory > got.receive_ring);
    WORKS(bypath_l2_read_obtained(right, &got, notes, sizeof notes, &error));
    CHECK(got.receive_mode == BYPATH_MODE_PLAIN && got.transfer == 0 && got.place == 0 && got.memory == 0);
    CHECK(got.timestamps == BYPATH_TIMESTAMP_SOFTWARE);

    for (size_t len = BYPATH_SHORTEST_PAYLOAD; len <= 1500; len += 53) {
        one(left, right, len);
        one(right, left, len);
    }
    /* Another EtherType, and another VLAN, stay with the kernel. */
    plain.ethertype = BYPATH_ETHERTYPE_IPC;
    other = opened("left", &plain);
    WORKS(bypath_l2_mac(left, &to, &error));
    WORKS(bypath_l2_header_init(right, to, &header, &error));
    header.ethertype = BYPATH_ETHERTYPE_IPC;
    WORKS(bypath_l2_send_with(right, &header, "another type", 12, &error));
    WORKS(bypath_l2_receive(other, buffer, sizeof buffer, &frame, &error));
    CHECK(memcmp(buffer, "another type", 12) == 0 && frame.vlan.vlan == 10);
    WORKS(bypath_l2_set_wait(left, BYPATH_WAIT_NEVER, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_l2_receive(left, buffer, sizeof buffer, &frame, &error));
    WORKS(bypath_l2_close(other, &error));
    WORKS(bypath_l2_close(left, &error));
    WORKS(bypath_l2_close(right, &error));
}

static void asked_for(void) {
    bypath_l2_options o = options_for(BYPATH_MODE_XDP);
    bypath_l2_obtained got;
    bypath_l2_socket *socket, *second;
    o.transfer = BYPATH_TRANSFER_COPY;
    o.place = BYPATH_PLACE_GENERIC;
    o.flags = BYPATH_ALWAYS_WAKE | BYPATH_ALL_GROUPS;
    o.busy_poll_us = 20;
    o.receive_ring = 64 * 2048;
    o.send_ring = 16;
    socket = opened("left", &o);
    WORKS(bypath_l2_read_obtained(socket, &got, NULL, 0, &error));
    CHECK(got.transfer_asked == BYPATH_TRANSFER_COPY && got.place_asked == BYPATH_PLACE_GENERIC);
    CHECK(got.need_wakeup_asked == 0 && got.need_wakeup == 0 && got.busy_poll_asked == 1 && got.busy_poll == 1);
    CHECK(got.receive_ring == 64 * 2048 && got.send_ring == 16);

    /* One socket has a queue. */
    o = options_for(BYPATH_MODE_XDP);
    FAILS(BYPATH_E_IN_USE, bypath_l2_open("left", &o, &second, &error));
    CHECK(second == NULL && strstr(error.message, "left: queue 0 has an AF_XDP socket already") != NULL);
    WORKS(bypath_l2_close(socket, &error));
    socket = opened("left", &o);
    WORKS(bypath_l2_close(socket, &error));
}

static void refused(void) {
    const struct { size_t at; uint32_t value; const char *text; } wrong[] = {
        {offsetof(bypath_l2_options, send_mode), BYPATH_MODE_PLAIN, "both ways"},
        {offsetof(bypath_l2_options, receive_mode), BYPATH_MODE_RING, "both ways"},
        {offsetof(bypath_l2_options, fanout), BYPATH_FANOUT_HASH, "fanout"},
        {offsetof(bypath_l2_options, timestamps), BYPATH_TIMESTAMP_SOFTWARE, "timestamps"},
        {offsetof(bypath_l2_options, timestamps), BYPATH_TIMESTAMP_HARDWARE, "timestamps"},
        {offsetof(bypath_l2_options, send_clock), BYPATH_CLOCK_MONOTONIC, "a time of sending"},
        {offsetof(bypath_l2_options, flags), BYPATH_OUTGOING, "frames that this host sends"},
        {offsetof(bypath_l2_options, flags), BYPATH_SEND_ONLY, "only sending"},
        {offsetof(bypath_l2_options, receive_queue), 1 << 20, "receive queue"},
        {offsetof(bypath_l2_options, transfer), 3, "`transfer`"},
        {offsetof(bypath_l2_options, place), 3, "`place`"},
        {offsetof(bypath_l2_options, queue), 9, "queue 9 cannot be used"},
    };
    bypath_l2_socket *socket;
    bypath_l2_options o;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        o = options_for(BYPATH_MODE_XDP);
        memcpy((char *)&o + wrong[i].at, &wrong[i].value, sizeof wrong[i].value);
        FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
        CHECK(socket == NULL && strstr(error.message, wrong[i].text) != NULL);
    }
    o = options_for(BYPATH_MODE_XDP);
    o.ethertype = 0;
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
    o = options_for(BYPATH_MODE_XDP);
    o.transfer = BYPATH_TRANSFER_ZERO_COPY;
    FAILS(BYPATH_E_UNSUPPORTED, bypath_l2_open("left", &o, &socket, &error));
    o = options_for(BYPATH_MODE_RING);
    o.queue = 1;
    FAILS(BYPATH_E_INVALID, bypath_l2_open("left", &o, &socket, &error));
    CHECK(strstr(error.message, "ask for mode XDP") != NULL);
}

int main(void) {
    frames(BYPATH_PLACE_BEST);
    frames(BYPATH_PLACE_DRIVER);
    frames(BYPATH_PLACE_GENERIC);
    asked_for();
    refused();
    puts("all as it should be");
    return 0;
}
