/* TUN devices from C: every function, every mode, and bad arguments. Run in a network namespace of its own. */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static bypath_tun_options options(void) {
    bypath_tun_options o;
    WORKS(bypath_tun_options_init(&o, &error));
    o.name = "fromc%d";
    o.address = "10.9.0.1/24";
    o.local = "10.9.0.2:7000";
    o.timeout_ns = 20000000000;
    return o;
}

static int kernel(bypath_endpoint *to) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    struct timeval longest = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char text[64];
    inet_pton(AF_INET, "10.9.0.1", &at.sin_addr);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) == 0);
    snprintf(text, sizeof text, "10.9.0.1:%u", ntohs(at.sin_port));
    WORKS(bypath_endpoint_parse(text, to, &error));
    return fd;
}

struct taken {
    size_t count, octets;
};

static void take(void *context, const bypath_tun_datagram *d, const void *payload) {
    struct taken *all = context;
    CHECK(((const unsigned char *)payload)[0] == 'k' && d->ttl == 64 && d->whole == d->len);
    all->count++;
    all->octets += d->len;
}

static void modes(bypath_tun *tun) {
    static const uint32_t all[] = {BYPATH_TUN_PIECES, BYPATH_TUN_ASSEMBLE, BYPATH_TUN_SUPER};
    static unsigned char buffer[65536], data[60000];
    bypath_octets three[3];
    bypath_tun_datagram d;
    bypath_endpoint to;
    char text[BYPATH_ENDPOINT_TEXT];
    size_t sent;
    int fd = kernel(&to);

    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t m = 0; m < 3; m++) {
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        WORKS(bypath_tun_set_mode(tun, all[m], &error));
        WORKS(bypath_tun_send(tun, to, data, 1000, &error));
        CHECK(recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len) == 1000);
        CHECK(memcmp(buffer, data, 1000) == 0 && ntohs(from.sin_port) == 7000);
        for (size_t i = 0; i < 3; i++) three[i] = (bypath_octets){.data = data + i, .len = 500};
        WORKS(bypath_tun_send_batch(tun, to, three, 3, &sent, &error));
        CHECK(sent == 3);
        for (size_t i = 0; i < 3; i++)
            CHECK(recv(fd, buffer, sizeof buffer, 0) == 500 && memcmp(buffer, data + i, 500) == 0);
        WORKS(bypath_tun_send_cut(tun, to, data, sizeof data, 2000, &sent, &error));
        CHECK(sent == 30);
        for (size_t i = 0; i < 30; i++)
            CHECK(recv(fd, buffer, sizeof buffer, 0) == 2000 && memcmp(buffer, data + 2000 * i, 2000) == 0);
        /* In fragments. */
        WORKS(bypath_tun_send(tun, to, data, sizeof data, &error));
        CHECK(recv(fd, buffer, sizeof buffer, 0) == sizeof data && memcmp(buffer, data, sizeof data) == 0);
        /* And back. */
        CHECK(sendto(fd, "kernel", 6, 0, (struct sockaddr *)&from, len) == 6);
        WORKS(bypath_tun_receive(tun, buffer, 4, &d, &error));
        CHECK(d.len == 4 && d.whole == 6 && d.ttl == 64 && memcmp(buffer, "kern", 4) == 0);
        WORKS(bypath_endpoint_format(d.source, text, &error));
        CHECK(strncmp(text, "10.9.0.1:", 9) == 0);
        struct taken seen = {0, 0};
        for (int i = 0; i < 3; i++) CHECK(sendto(fd, "kkkk", 4, 0, (struct sockaddr *)&from, len) == 4);
        while (seen.count < 3) {
            size_t received;
            WORKS(bypath_tun_receive_each(tun, 10, take, &seen, &received, &error));
            CHECK(received > 0);
        }
        CHECK(seen.octets == 12);
    }
    close(fd);
    WORKS(bypath_tun_send(tun, to, "lost", 4, &error));
    FAILS(BYPATH_E_UNREACHABLE, bypath_tun_receive(tun, buffer, sizeof buffer, &d, &error));
}

static void bad(bypath_tun *tun) {
    bypath_tun_options o = options();
    bypath_endpoint to;
    bypath_tun_datagram d;
    bypath_tun *other = tun;
    char text[BYPATH_ENDPOINT_TEXT];
    static unsigned char longest[65508];
    size_t n;

    FAILS(BYPATH_E_INVALID, bypath_tun_open(NULL, &other, &error));
    CHECK(other == NULL);
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_options_init(NULL, &error));
    o.size = 8;
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.local = NULL;
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.local = "10.9.0.2";
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.address = "10.9.0.1";
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.mode = 3;
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.checksum = 4;
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.flags = 0x10;
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.dscp = 64;
    FAILS(BYPATH_E_INVALID, bypath_tun_open(&o, &other, &error));
    o = options(), o.name = "a-name-of-16-oct";
    FAILS(BYPATH_E_NAME, bypath_tun_open(&o, &other, &error));
    o = options(), o.name = "left";
    FAILS(BYPATH_E_IN_USE, bypath_tun_open(&o, &other, &error));
    o = options(), o.name = "nobody", o.flags = BYPATH_TUN_ATTACH;
    FAILS(BYPATH_E_UNKNOWN, bypath_tun_open(&o, &other, &error));
    o = options(), o.path = "/nonexistent";
    FAILS(BYPATH_E_UNSUPPORTED, bypath_tun_open(&o, &other, &error));
    o = options(), o.mode = BYPATH_TUN_SUPER, o.flags = BYPATH_TUN_NO_OFFLOADS, o.address = NULL;
    FAILS(BYPATH_E_UNSUPPORTED, bypath_tun_open(&o, &other, &error));
    CHECK(other == NULL);

    WORKS(bypath_endpoint_parse("[fd09::1]:9", &to, &error));
    CHECK(to.family == 6 && to.port == 9 && to.address[0] == 0xfd && to.address[15] == 1);
    FAILS(BYPATH_E_INVALID, bypath_tun_send(tun, to, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_endpoint_parse("10.9.0.1", &to, &error));
    WORKS(bypath_endpoint_parse("10.9.0.1:9", &to, &error));
    FAILS(BYPATH_E_INVALID, bypath_endpoint_format(to, NULL, &error));
    FAILS(BYPATH_E_TOO_LONG, bypath_tun_send(tun, to, longest, sizeof longest, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_send(tun, to, NULL, 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_send(NULL, to, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_send_cut(tun, to, "x", 1, 0, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_send_cut(tun, to, "x", 1, 1, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_send_batch(tun, to, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_set_mode(tun, 9, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_receive(tun, text, sizeof text, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tun_receive_each(tun, 1, NULL, NULL, &n, &error));
    to.family = 5;
    FAILS(BYPATH_E_INVALID, bypath_tun_send(tun, to, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_endpoint_format(to, text, &error));
    WORKS(bypath_tun_set_timeout(tun, 0, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_tun_receive(tun, text, sizeof text, &d, &error));
    WORKS(bypath_tun_set_timeout(tun, 1000000, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_tun_receive(tun, text, sizeof text, &d, &error));
}

int main(void) {
    bypath_tun_options o = options();
    bypath_tun *tun;
    bypath_tun_obtained got;
    struct pollfd poll_it = {.events = POLLIN};

    o.mtu = 9000;
    WORKS(bypath_tun_open(&o, &tun, &error));
    WORKS(bypath_tun_read_obtained(tun, &got, &error));
    CHECK(strcmp(got.name, "fromc0") == 0 && got.mtu == 9000 && got.created == 1 && got.persistent == 0);
    CHECK(got.checksum == 1 && got.tcp == 1 && got.udp == 1 && got.index > 0);
    CHECK(got.most_payload == 65507 && got.most_uncut == 9000 - 28);
    WORKS(bypath_tun_descriptor(tun, &poll_it.fd, &error));
    modes(tun);
    CHECK(poll(&poll_it, 1, 0) >= 0 && (poll_it.revents & (POLLERR | POLLNVAL)) == 0);
    bad(tun);
    WORKS(bypath_tun_close(tun, &error));
    WORKS(bypath_tun_close(NULL, &error));

    /* One that stays. */
    o = options(), o.name = "stays", o.flags = BYPATH_TUN_PERSISTENT, o.dscp = 46, o.ttl = 3;
    WORKS(bypath_tun_open(&o, &tun, &error));
    WORKS(bypath_tun_close(tun, &error));
    o.flags = BYPATH_TUN_ATTACH | BYPATH_TUN_DONT_FRAGMENT, o.checksum = BYPATH_CHECKSUM_OWN;
    WORKS(bypath_tun_open(&o, &tun, &error));
    WORKS(bypath_tun_read_obtained(tun, &got, &error));
    CHECK(got.created == 0 && got.persistent == 1 && got.mtu == 1500);
    static unsigned char data[1473];
    bypath_endpoint to;
    WORKS(bypath_endpoint_parse("10.9.0.1:9", &to, &error));
    FAILS(BYPATH_E_TOO_LONG, bypath_tun_send(tun, to, data, sizeof data, &error));
    WORKS(bypath_tun_send(tun, to, data, sizeof data - 1, &error));
    WORKS(bypath_tun_close(tun, &error));
    puts("all as it should be");
    return 0;
}
