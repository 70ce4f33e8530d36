/* A TCP/IP stack from C: every function, threads, and bad arguments. Run in a network namespace of its own. */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char *const OWN[] = {"10.9.0.2/24", "fd09::2/64"};
static const char *const KERNELS[] = {"10.9.0.1/24", "fd09::1/64"};
static const char *const ROUTERS[] = {"10.9.0.1"};
static const char *const BAD[] = {"10.9.0.2"};

static bypath_netstack_options options(const char *link) {
    bypath_netstack_options o;
    WORKS(bypath_netstack_options_init(&o, &error));
    CHECK(o.size == sizeof o && o.timeout_ns == 30000000000);
    o.link = link;
    o.addresses = OWN, o.address_count = 2;
    o.kernel_addresses = KERNELS, o.kernel_address_count = 2;
    return o;
}

static bypath_endpoint at(const char *text) {
    bypath_endpoint e;
    WORKS(bypath_endpoint_parse(text, &e, &error));
    return e;
}

static bypath_udp *bound(bypath_netstack *stack, const char *text) {
    bypath_udp *udp;
    WORKS(bypath_udp_bind(stack, at(text), 0, &udp, &error));
    WORKS(bypath_udp_set_timeout(udp, 20000000000, &error));
    return udp;
}

static int kernel(const char *address, int port) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval longest = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    inet_pton(AF_INET, address, &own.sin_addr);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) == 0);
    return fd;
}

/* With the kernel at the other end, datagrams of every length. */
static void exchange(bypath_netstack *stack) {
    static unsigned char sent[65507], buffer[65536];
    static const size_t LENGTHS[] = {0, 1, 1472, 1473, 9000, 65507};
    bypath_udp *udp = bound(stack, "0.0.0.0:7");
    bypath_udp_datagram d;
    bypath_endpoint local;
    char text[BYPATH_ENDPOINT_TEXT];
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int fd = kernel("10.9.0.1", 9);

    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        const size_t n = LENGTHS[i];
        WORKS(bypath_udp_send_to(udp, at("10.9.0.1:9"), sent, n, &error));
        CHECK(recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len) == (ssize_t)n);
        CHECK(memcmp(buffer, sent, n) == 0 && ntohs(from.sin_port) == 7);
        memset(buffer, 0, sizeof buffer);
        CHECK(sendto(fd, sent, n, 0, (struct sockaddr *)&from, len) == (ssize_t)n);
        WORKS(bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
        CHECK(d.len == n && d.whole == n && memcmp(buffer, sent, n) == 0 && d.ttl == 64);
        WORKS(bypath_endpoint_format(d.source, text, &error));
        CHECK(strcmp(text, "10.9.0.1:9") == 0);
        WORKS(bypath_endpoint_format(d.destination, text, &error));
        CHECK(strcmp(text, "10.9.0.2:7") == 0);
    }
    /* What does not fit is told. */
    CHECK(sendto(fd, "kernel", 6, 0, (struct sockaddr *)&from, len) == 6);
    WORKS(bypath_udp_receive(udp, buffer, 4, &d, &error));
    CHECK(d.len == 4 && d.whole == 6 && memcmp(buffer, "kern", 4) == 0);

    /* With a partner: nobody else is heard, and the network's answers are told once. */
    FAILS(BYPATH_E_INVALID, bypath_udp_send(udp, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_remote(udp, &local, &error));
    WORKS(bypath_udp_connect(udp, at("10.9.0.1:9"), &error));
    WORKS(bypath_udp_remote(udp, &local, &error));
    CHECK(local.port == 9);
    WORKS(bypath_udp_local(udp, &local, &error));
    WORKS(bypath_endpoint_format(local, text, &error));
    CHECK(strcmp(text, "10.9.0.2:7") == 0);
    WORKS(bypath_udp_send(udp, "hello", 5, &error));
    CHECK(recv(fd, buffer, sizeof buffer, 0) == 5);
    close(fd);
    WORKS(bypath_udp_send(udp, "lost", 4, &error));
    FAILS(BYPATH_E_UNREACHABLE, bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
    WORKS(bypath_udp_disconnect(udp, &error));
    FAILS(BYPATH_E_NO_ROUTE, bypath_udp_send_to(udp, at("192.0.2.1:9"), "x", 1, &error));
    FAILS(BYPATH_E_NOT_ALLOWED, bypath_udp_send_to(udp, at("255.255.255.255:9"), "x", 1, &error));
    CHECK(strstr(error.message, "BYPATH_UDP_BROADCAST") != NULL);
    FAILS(BYPATH_E_TOO_LONG, bypath_udp_send_to(udp, at("10.9.0.1:9"), buffer, 65508, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_send_to(udp, at("10.9.0.1:0"), "x", 1, &error));
    WORKS(bypath_udp_set_timeout(udp, 0, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
    WORKS(bypath_udp_set_timeout(udp, 1000000, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
    WORKS(bypath_udp_close(udp, &error));

    /* What the network says of datagrams to nobody in particular, who wants to know hears. */
    WORKS(bypath_udp_bind(stack, at("0.0.0.0:0"), BYPATH_UDP_ALL_ERRORS, &udp, &error));
    WORKS(bypath_udp_set_timeout(udp, 20000000000, &error));
    WORKS(bypath_udp_send_to(udp, at("10.9.0.1:9"), "lost", 4, &error));
    FAILS(BYPATH_E_UNREACHABLE, bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
    WORKS(bypath_udp_close(udp, &error));
    WORKS(bypath_udp_bind(stack, at("0.0.0.0:0"), 0, &udp, &error));
    WORKS(bypath_udp_send_to(udp, at("10.9.0.1:9"), "lost", 4, &error));
    WORKS(bypath_udp_set_timeout(udp, 100000000, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
    WORKS(bypath_udp_close(udp, &error));

    /* Flags. */
    WORKS(bypath_udp_bind(stack, at("0.0.0.0:0"), BYPATH_UDP_BROADCAST | BYPATH_UDP_DONT_FRAGMENT, &udp, &error));
    fd = kernel("0.0.0.0", 10);
    WORKS(bypath_udp_send_to(udp, at("10.9.0.255:10"), "all", 3, &error));
    CHECK(recv(fd, buffer, sizeof buffer, 0) == 3);
    FAILS(BYPATH_E_TOO_LONG, bypath_udp_send_to(udp, at("10.9.0.1:10"), buffer, 9000, &error));
    WORKS(bypath_udp_join(udp, at("239.1.2.3:0"), &error));
    FAILS(BYPATH_E_IN_USE, bypath_udp_join(udp, at("239.1.2.3:0"), &error));
    WORKS(bypath_udp_leave(udp, at("239.1.2.3:0"), &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_leave(udp, at("239.1.2.3:0"), &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_join(udp, at("10.9.0.1:0"), &error));
    close(fd);
    WORKS(bypath_udp_close(udp, &error));
}

static atomic_uint taken, inside;

static void *sends(void *udp) {
    bypath_error own;
    for (uint32_t n = 0; n < 2000; n++) {
        /* No more than the queue of a socket holds. */
        while (n - atomic_load(&taken) > 500) poll(NULL, 0, 1);
        if (bypath_udp_send_to(udp, at("10.9.0.2:20"), &n, sizeof n, &own) != BYPATH_OK) {
            fprintf(stderr, "%s\n", own.message);
            exit(1);
        }
    }
    return NULL;
}

static void *waits(void *udp) {
    bypath_error own;
    bypath_udp_datagram d;
    char buffer[9];
    atomic_store(&inside, 1);
    return (void *)(intptr_t)bypath_udp_receive(udp, buffer, sizeof buffer, &d, &own);
}

/* A thread that is inside a call. */
static pthread_t begun(bypath_udp *udp) {
    pthread_t thread;
    atomic_store(&inside, 0);
    CHECK(pthread_create(&thread, NULL, waits, udp) == 0);
    while (!atomic_load(&inside)) poll(NULL, 0, 1);
    poll(NULL, 0, 100);
    return thread;
}

/* One socket, a thread that sends and one that receives. */
static void threads(bypath_netstack *stack) {
    bypath_udp *udp = bound(stack, "10.9.0.2:20");
    pthread_t thread;
    bypath_udp_datagram d;
    uint32_t got;
    void *end;

    CHECK(pthread_create(&thread, NULL, sends, udp) == 0);
    for (uint32_t n = 0; n < 2000; n++) {
        WORKS(bypath_udp_receive(udp, &got, sizeof got, &d, &error));
        CHECK(d.len == sizeof got && got == n);
        atomic_store(&taken, n);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    /* Who is inside keeps it open. */
    thread = begun(udp);
    FAILS(BYPATH_E_BUSY, bypath_udp_close(udp, &error));
    WORKS(bypath_udp_send_to(udp, at("10.9.0.2:20"), "end", 3, &error));
    CHECK(pthread_join(thread, &end) == 0 && (intptr_t)end == BYPATH_OK);
    WORKS(bypath_udp_close(udp, &error));
}

static void bad(bypath_netstack *stack) {
    bypath_netstack_options o = options("tap:other");
    bypath_netstack_obtained got;
    bypath_netstack_address address;
    bypath_counter counter;
    bypath_netstack *other = stack;
    bypath_udp *udp = NULL, *second;
    bypath_udp_datagram d;
    bypath_endpoint e;
    char buffer[9];
    size_t n;

    FAILS(BYPATH_E_INVALID, bypath_netstack_options_init(NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(NULL, &other, &error));
    CHECK(other == NULL);
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, NULL, &error));
    o.size--;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options(NULL);
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("eth0");
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("tap:other"), o.addresses = NULL;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("tap:other"), o.addresses = BAD, o.address_count = 1;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("tap:other"), o.address_count = 0;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("tap:other"), o.routers = OWN, o.router_count = 1;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("tap:other"), o.flags = 8;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("tun:other"), o.flags = BYPATH_NETSTACK_DHCP;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("packet:left");
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &other, &error));
    o = options("packet:nobody"), o.kernel_address_count = 0;
    FAILS(BYPATH_E_UNKNOWN, bypath_netstack_open(&o, &other, &error));
    o = options("tap:left");
    FAILS(BYPATH_E_IN_USE, bypath_netstack_open(&o, &other, &error));
    /* An address that the kernel has at the other end, and a server that is not there. */
    o = options("tap:other"), o.addresses = KERNELS + 1, o.address_count = 1, o.kernel_addresses = KERNELS + 1,
    o.kernel_address_count = 1;
    FAILS(BYPATH_E_IN_USE, bypath_netstack_open(&o, &other, &error));
    o = options("tap:other"), o.flags = BYPATH_NETSTACK_DHCP, o.address_count = 0, o.timeout_ns = 100000000;
    o.host_name = "host";
    FAILS(BYPATH_E_TIMED_OUT, bypath_netstack_open(&o, &other, &error));
    CHECK(other == NULL);

    FAILS(BYPATH_E_INVALID, bypath_netstack_read_obtained(NULL, &got, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_read_obtained(stack, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_addresses(stack, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_addresses(stack, &address, 1, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_counters(stack, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_counters(NULL, &counter, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_add_address(stack, "10.9.0.2/24", &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_add_address(stack, "10.9.0.3", &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_add_address(stack, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_remove_address(stack, "10.9.0.9", &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_remove_address(stack, "x", &error));

    FAILS(BYPATH_E_INVALID, bypath_udp_bind(NULL, at("0.0.0.0:0"), 0, &udp, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_bind(stack, at("0.0.0.0:0"), 0, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_bind(stack, at("0.0.0.0:0"), 0x40, &udp, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_bind(stack, at("10.9.0.1:0"), 0, &udp, &error));
    e = at("0.0.0.0:0"), e.family = 5;
    FAILS(BYPATH_E_INVALID, bypath_udp_bind(stack, e, 0, &udp, &error));
    CHECK(udp == NULL);
    udp = bound(stack, "10.9.0.2:30");
    FAILS(BYPATH_E_IN_USE, bypath_udp_bind(stack, at("0.0.0.0:30"), 0, &second, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_connect(udp, e, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_connect(udp, at("[fd09::1]:9"), &error));
    FAILS(BYPATH_E_NO_ROUTE, bypath_udp_connect(udp, at("192.0.2.1:9"), &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_connect(NULL, at("10.9.0.1:9"), &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_disconnect(NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_local(udp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_remote(NULL, &e, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_send(udp, NULL, 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_send(NULL, "x", 1, &error));
    e.family = 5;
    FAILS(BYPATH_E_INVALID, bypath_udp_send_to(udp, e, "x", 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_send_to(udp, at("10.9.0.1:9"), NULL, 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_receive(udp, NULL, 1, &d, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_receive(udp, buffer, sizeof buffer, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_set_timeout(NULL, 1, &error));
    WORKS(bypath_udp_close(udp, &error));
    WORKS(bypath_udp_close(NULL, &error));
    WORKS(bypath_netstack_close(NULL, &error));
}

int main(void) {
    bypath_netstack_options o = options("tap:fromc%d");
    bypath_netstack *stack;
    bypath_netstack_obtained got;
    bypath_netstack_address list[9];
    static bypath_counter counters[500];
    bypath_udp *udp, *kept;
    bypath_udp_datagram d;
    pthread_t thread;
    char buffer[9];
    size_t count, found = 0;
    void *end;

    o.routers = ROUTERS, o.router_count = 1;
    WORKS(bypath_netstack_open(&o, &stack, &error));
    WORKS(bypath_netstack_read_obtained(stack, &got, &error));
    CHECK(strcmp(got.name, "fromc0") == 0 && got.mtu == 1500);
    WORKS(bypath_netstack_addresses(stack, NULL, 0, &count, &error));
    CHECK(count == 2);
    WORKS(bypath_netstack_add_address(stack, "10.9.0.3/24", &error));
    WORKS(bypath_netstack_addresses(stack, list, 9, &count, &error));
    CHECK(count == 3 && list[0].family == 4 && list[0].address[3] == 2 && list[0].prefix == 24);
    CHECK(list[0].state == BYPATH_ADDRESS_PREFERRED && list[1].family == 6 && list[1].state == BYPATH_ADDRESS_PREFERRED);
    udp = bound(stack, "10.9.0.3:9");
    WORKS(bypath_udp_close(udp, &error));
    WORKS(bypath_netstack_remove_address(stack, "10.9.0.3", &error));
    /* There is a router now: 192.0.2.1 has a way. */
    udp = bound(stack, "0.0.0.0:0");
    WORKS(bypath_udp_connect(udp, at("192.0.2.1:9"), &error));
    WORKS(bypath_udp_close(udp, &error));
    WORKS(bypath_netstack_close(stack, &error));

    /* The others need not be asked about an address of IPv6. */
    o = options("tap:fromc%d"), o.address_count = 1;
    WORKS(bypath_netstack_open(&o, &stack, &error));
    exchange(stack);
    threads(stack);
    bad(stack);
    WORKS(bypath_netstack_counters(stack, NULL, 0, &count, &error));
    CHECK(count > 50 && count < 500);
    WORKS(bypath_netstack_counters(stack, counters, 500, &count, &error));
    for (size_t i = 0; i < count; i++) {
        CHECK(strlen(counters[i].name) < BYPATH_COUNTER_NAME - 1);
        if (strcmp(counters[i].name, "udp_delivered") == 0) found = counters[i].value > 2000;
    }
    CHECK(found);

    /* Who waits learns that the netstack is closed; so does who comes later. */
    udp = bound(stack, "0.0.0.0:50");
    kept = bound(stack, "0.0.0.0:51");
    thread = begun(udp);
    WORKS(bypath_netstack_close(stack, &error));
    CHECK(pthread_join(thread, &end) == 0 && (intptr_t)end == BYPATH_E_GONE);
    FAILS(BYPATH_E_GONE, bypath_udp_send_to(kept, at("10.9.0.1:9"), "x", 1, &error));
    FAILS(BYPATH_E_GONE, bypath_udp_receive(kept, buffer, sizeof buffer, &d, &error));
    WORKS(bypath_udp_close(udp, &error));
    WORKS(bypath_udp_close(kept, &error));
    /* Its device has gone with it: the name is free. */
    WORKS(bypath_netstack_open(&o, &stack, &error));
    WORKS(bypath_netstack_read_obtained(stack, &got, &error));
    CHECK(strcmp(got.name, "fromc0") == 0);
    WORKS(bypath_netstack_close(stack, &error));
    puts("all as it should be");
    return 0;
}
