/* TCP of a netstack from C: every function, threads, poll, and bad arguments. Run in a network namespace of its own. */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char *const OWN[] = {"10.9.0.2/24"};
static const char *const KERNELS[] = {"10.9.0.1/24"};
static const uint64_t LONGEST = 20000000000;

static bypath_endpoint at(const char *text) {
    bypath_endpoint e;
    WORKS(bypath_endpoint_parse(text, &e, &error));
    return e;
}

static const char *text_of(bypath_endpoint e) {
    static char text[BYPATH_ENDPOINT_TEXT];
    WORKS(bypath_endpoint_format(e, text, &error));
    return text;
}

static bypath_netstack *opened(void) {
    bypath_netstack_options o;
    bypath_netstack *stack;
    WORKS(bypath_netstack_options_init(&o, &error));
    o.link = "tap:tcpc%d";
    o.addresses = OWN, o.address_count = 1;
    o.kernel_addresses = KERNELS, o.kernel_address_count = 1;
    WORKS(bypath_netstack_open(&o, &stack, &error));
    return stack;
}

static bypath_tcp_options options(void) {
    bypath_tcp_options o;
    WORKS(bypath_tcp_options_init(&o, &error));
    CHECK(o.size == sizeof o && o.timeout_ns == BYPATH_FOREVER && o.flags == 0 && o.backlog == 128);
    o.timeout_ns = LONGEST;
    return o;
}

static bypath_tcp_listener *listening(bypath_netstack *stack, const char *text) {
    bypath_tcp_options o = options();
    bypath_tcp_listener *listener;
    WORKS(bypath_tcp_listen(stack, at(text), &o, &listener, &error));
    return listener;
}

static int kernel_socket(void) {
    struct timeval longest = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest) == 0);
    return fd;
}

static struct sockaddr_in kernel_address(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    return to;
}

/* A connection of the kernel's to the netstack. */
static int kernel_calls(const char *address, int port) {
    struct sockaddr_in to = kernel_address(address, port);
    int fd = kernel_socket();
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static int kernel_listens(int port) {
    struct sockaddr_in own = kernel_address("10.9.0.1", port);
    int fd = kernel_socket(), one = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0 && listen(fd, 5) == 0);
    return fd;
}

enum { MUCH = 1000000 };
static unsigned char content[MUCH], room[MUCH];

static void *kernel_echoes(void *fd) {
    static unsigned char buffer[65536];
    ssize_t n, done;
    while ((n = recv((int)(intptr_t)fd, buffer, sizeof buffer, 0)) > 0)
        for (ssize_t from = 0; from < n; from += done)
            if ((done = send((int)(intptr_t)fd, buffer + from, (size_t)(n - from), 0)) <= 0) return (void *)1;
    shutdown((int)(intptr_t)fd, SHUT_WR);
    return (void *)(intptr_t)(n != 0);
}

static void *writes(void *tcp) {
    bypath_error own;
    size_t written = 0;
    if (bypath_tcp_write_all(tcp, content, MUCH, &written, &own) != BYPATH_OK || written != MUCH) {
        fprintf(stderr, "%s\n", own.message);
        exit(1);
    }
    return NULL;
}

/* The kernel calls, and is called: octets both ways at once, each side finishes by itself. */
static void exchange(bypath_netstack *stack) {
    bypath_tcp_options o = options();
    bypath_tcp_statistics s;
    bypath_tcp *tcp;
    bypath_endpoint remote, local;
    for (int ours = 0; ours < 2; ours++) {
        pthread_t echoes, writer;
        size_t got = 0, n;
        void *end;
        int fd;
        if (ours) {
            int listener = kernel_listens(81);
            WORKS(bypath_tcp_connect(stack, at("10.9.0.1:81"), NULL, &o, &tcp, &error));
            fd = accept(listener, NULL, NULL);
            CHECK(fd >= 0);
            close(listener);
            WORKS(bypath_tcp_remote(tcp, &remote, &error));
            CHECK(strcmp(text_of(remote), "10.9.0.1:81") == 0);
        } else {
            bypath_tcp_listener *listener = listening(stack, "0.0.0.0:80");
            fd = kernel_calls("10.9.0.2", 80);
            WORKS(bypath_tcp_accept(listener, &tcp, &remote, &error));
            CHECK(strncmp(text_of(remote), "10.9.0.1:", 9) == 0);
            WORKS(bypath_tcp_local(tcp, &local, &error));
            CHECK(strcmp(text_of(local), "10.9.0.2:80") == 0);
            /* Connections outlive it. */
            WORKS(bypath_tcp_listener_close(listener, &error));
        }
        CHECK(pthread_create(&echoes, NULL, kernel_echoes, (void *)(intptr_t)fd) == 0);
        CHECK(pthread_create(&writer, NULL, writes, tcp) == 0);
        while (got < MUCH) {
            WORKS(bypath_tcp_read(tcp, room + got, MUCH - got, &n, &error));
            CHECK(n > 0);
            got += n;
        }
        CHECK(memcmp(room, content, MUCH) == 0 && pthread_join(writer, &end) == 0);
        WORKS(bypath_tcp_read_statistics(tcp, &s, &error));
        CHECK(s.state == BYPATH_TCP_ESTABLISHED && s.octets_received == MUCH && s.octets_acknowledged <= MUCH);
        CHECK(s.agreed == (BYPATH_TCP_AGREED_SACK | BYPATH_TCP_AGREED_TIMESTAMPS) && s.mss >= 1400 && s.mss <= 1460);
        CHECK(s.srtt_ns > 0 && s.rto_ns >= 200000000 && s.cwnd > 0 && s.segments_in > 0 && s.segments_out > 0);
        CHECK(s.unread == 0 && s.congestion == BYPATH_TCP_CUBIC);
        WORKS(bypath_tcp_shutdown(tcp, BYPATH_SHUT_WRITE, &error));
        FAILS(BYPATH_E_CLOSED, bypath_tcp_write(tcp, "x", 1, &n, &error));
        WORKS(bypath_tcp_read(tcp, room, MUCH, &n, &error));
        CHECK(n == 0 && pthread_join(echoes, &end) == 0 && end == NULL);
        close(fd);
        WORKS(bypath_tcp_close(tcp, &error));
    }
}

static int is_ready(int fd, int milliseconds) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, milliseconds) == 1;
}

static int descriptor(bypath_tcp *tcp, uint32_t what) {
    int fd;
    WORKS(bypath_tcp_descriptor(tcp, what, &fd, &error));
    return fd;
}

/* What is polled is what calls do. */
static void polled(bypath_netstack *stack) {
    bypath_tcp_options o = options();
    bypath_tcp_listener *listener = listening(stack, "10.9.0.2:80");
    bypath_tcp *tcp, *begun;
    bypath_udp *udp;
    bypath_udp_datagram d;
    char buffer[9];
    size_t n, written = 0;
    int calls, fd, readable, writable, events = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};

    WORKS(bypath_tcp_listener_descriptor(listener, &calls, &error));
    CHECK(!is_ready(calls, 0) && events >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, calls, &event) == 0);
    fd = kernel_calls("10.9.0.2", 80);
    CHECK(epoll_wait(events, &event, 1, 20000) == 1);
    WORKS(bypath_tcp_accept(listener, &tcp, NULL, &error));
    CHECK(epoll_wait(events, &event, 1, 0) == 0);
    WORKS(bypath_tcp_set_timeouts(tcp, 0, 0, &error));
    readable = descriptor(tcp, BYPATH_READABLE), writable = descriptor(tcp, BYPATH_WRITABLE);
    CHECK(readable == descriptor(tcp, BYPATH_READABLE) && readable != writable);
    CHECK(!is_ready(readable, 0) && is_ready(writable, 0));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &error));
    CHECK(send(fd, "hello", 5, 0) == 5 && is_ready(readable, 20000));
    WORKS(bypath_tcp_peek(tcp, buffer, sizeof buffer, &n, &error));
    CHECK(n == 5 && is_ready(readable, 0));
    WORKS(bypath_tcp_read(tcp, buffer, 4, &n, &error));
    CHECK(n == 4 && is_ready(readable, 0));
    WORKS(bypath_tcp_read(tcp, buffer, 4, &n, &error));
    CHECK(n == 1 && buffer[0] == 'o' && !is_ready(readable, 0));
    while (bypath_tcp_write(tcp, content, MUCH, &n, &error) == BYPATH_OK) written += n;
    CHECK(error.status == BYPATH_E_WOULD_BLOCK && !is_ready(writable, 0));
    while (written > 0) {
        ssize_t got = recv(fd, room, MUCH, 0);
        CHECK(got > 0);
        written -= (size_t)got;
    }
    CHECK(is_ready(writable, 20000));
    shutdown(fd, SHUT_WR);
    CHECK(is_ready(readable, 20000));
    WORKS(bypath_tcp_read(tcp, buffer, 4, &n, &error));
    CHECK(n == 0);
    close(fd);
    WORKS(bypath_tcp_close(tcp, &error));
    WORKS(bypath_tcp_listener_close(listener, &error));
    close(events);

    /* A call that is begun. */
    o.timeout_ns = 0;
    fd = kernel_listens(82);
    WORKS(bypath_tcp_begin_connect(stack, at("10.9.0.1:82"), NULL, &o, &begun, &error));
    CHECK(is_ready(descriptor(begun, BYPATH_WRITABLE), 20000));
    WORKS(bypath_tcp_finish_connect(begun, &error));
    WORKS(bypath_tcp_finish_connect(begun, &error));
    WORKS(bypath_tcp_close(begun, &error));
    close(fd);
    WORKS(bypath_tcp_begin_connect(stack, at("10.9.0.1:82"), NULL, &o, &begun, &error));
    CHECK(is_ready(descriptor(begun, BYPATH_WRITABLE), 20000));
    FAILS(BYPATH_E_REFUSED, bypath_tcp_finish_connect(begun, &error));
    FAILS(BYPATH_E_CLOSED, bypath_tcp_finish_connect(begun, &error));
    FAILS(BYPATH_E_CLOSED, bypath_tcp_shutdown(begun, BYPATH_SHUT_WRITE, &error));
    WORKS(bypath_tcp_close(begun, &error));

    /* Datagrams likewise. */
    WORKS(bypath_udp_bind(stack, at("10.9.0.2:7"), 0, &udp, &error));
    WORKS(bypath_udp_descriptor(udp, BYPATH_READABLE, &readable, &error));
    WORKS(bypath_udp_descriptor(udp, BYPATH_WRITABLE, &writable, &error));
    CHECK(!is_ready(readable, 0) && is_ready(writable, 0));
    WORKS(bypath_udp_send_to(udp, at("10.9.0.2:7"), "self", 4, &error));
    CHECK(is_ready(readable, 20000));
    WORKS(bypath_udp_receive(udp, buffer, sizeof buffer, &d, &error));
    CHECK(d.len == 4 && !is_ready(readable, 0));
    FAILS(BYPATH_E_INVALID, bypath_udp_descriptor(udp, 3, &readable, &error));
    FAILS(BYPATH_E_INVALID, bypath_udp_descriptor(udp, BYPATH_READABLE, NULL, &error));
    WORKS(bypath_udp_close(udp, &error));
}

static void wants(bypath_netstack *stack) {
    bypath_tcp_options o = options(), now;
    bypath_tcp_listener *listener;
    bypath_tcp *tcp;
    bypath_endpoint from = at("10.9.0.2:4000"), local;
    bypath_tcp_statistics s;
    bypath_octets pieces[3] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    char buffer[9];
    size_t n;
    int fd, kernel = kernel_listens(83);

    o.flags = BYPATH_TCP_NODELAY | BYPATH_TCP_NO_SACK | BYPATH_TCP_NO_TIMESTAMPS | BYPATH_TCP_ECN | BYPATH_TCP_PROBE_MTU;
    o.congestion = BYPATH_TCP_RENO, o.send_octets = 20000, o.receive_octets = 30000;
    o.keepalive_idle_ns = 60000000000, o.keepalive_probes = 4;
    CHECK(o.base_mss == 1024);
    o.user_timeout_ns = 7000000000, o.ttl = 9, o.class_octet = 0xb8, o.base_mss = 512;
    WORKS(bypath_tcp_connect(stack, at("10.9.0.1:83"), &from, &o, &tcp, &error));
    WORKS(bypath_tcp_read_options(tcp, &now, &error));
    CHECK(now.flags == o.flags && now.congestion == BYPATH_TCP_RENO && now.send_octets == 20000);
    CHECK(now.receive_octets == 30000 && now.keepalive_idle_ns == 60000000000 && now.keepalive_interval_ns == 75000000000);
    CHECK(now.keepalive_probes == 4 && now.user_timeout_ns == 7000000000 && now.linger_ns == BYPATH_FOREVER);
    CHECK(now.ttl == 9 && now.class_octet == 0xb8 && now.base_mss == 512 && now.timeout_ns == LONGEST);
    WORKS(bypath_tcp_read_statistics(tcp, &s, &error));
    CHECK((s.agreed & ~BYPATH_TCP_AGREED_ECN) == 0 && s.congestion == BYPATH_TCP_RENO && s.receive_window <= 30000);
    WORKS(bypath_tcp_local(tcp, &local, &error));
    CHECK(local.port == 4000);
    /* What is corked goes out when that is taken back. */
    fd = accept(kernel, NULL, NULL);
    now.flags |= BYPATH_TCP_CORK, now.flags &= ~BYPATH_TCP_NO_SACK;
    WORKS(bypath_tcp_set_options(tcp, &now, &error));
    WORKS(bypath_tcp_write_pieces(tcp, pieces, 3, &n, &error));
    CHECK(n == 7);
    now.flags &= ~BYPATH_TCP_CORK, now.linger_ns = 0;
    WORKS(bypath_tcp_set_options(tcp, &now, &error));
    CHECK(recv(fd, buffer, sizeof buffer, 0) == 7 && memcmp(buffer, "one two", 7) == 0);
    WORKS(bypath_tcp_read_options(tcp, &now, &error));
    /* What was agreed on stays. */
    CHECK(now.flags == o.flags && now.linger_ns == 0);
    /* Without time to linger closing is a reset. */
    WORKS(bypath_tcp_close(tcp, &error));
    CHECK(recv(fd, buffer, sizeof buffer, 0) == -1);
    close(fd);
    close(kernel);

    o = options();
    o.size--;
    FAILS(BYPATH_E_INVALID, bypath_tcp_connect(stack, at("10.9.0.1:83"), NULL, &o, &tcp, &error));
    CHECK(strstr(error.message, "bypath_tcp_options_init") != NULL);
    o = options(), o.flags = 0x400;
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, at("10.9.0.2:84"), &o, &listener, &error));
    o = options(), o.base_mss = 47;
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, at("10.9.0.2:84"), &o, &listener, &error));
    o = options(), o.congestion = 2;
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, at("10.9.0.2:84"), &o, &listener, &error));
    o = options(), o.send_octets = 0;
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, at("10.9.0.2:84"), &o, &listener, &error));
    o = options(), o.keepalive_idle_ns = 1, o.keepalive_probes = 0;
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, at("10.9.0.2:84"), &o, &listener, &error));
    CHECK(listener == NULL);
    FAILS(BYPATH_E_INVALID, bypath_tcp_options_init(NULL, &error));
}

static atomic_uint inside;

static void *waits(void *tcp) {
    bypath_error own;
    char buffer[9];
    size_t n = 99;
    atomic_store(&inside, 1);
    bypath_status status = bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &own);
    return (void *)(intptr_t)(status == BYPATH_OK ? (int)n : status);
}

/* A thread that is inside a call. */
static pthread_t begun(bypath_tcp *tcp) {
    pthread_t thread;
    atomic_store(&inside, 0);
    CHECK(pthread_create(&thread, NULL, waits, tcp) == 0);
    while (!atomic_load(&inside)) poll(NULL, 0, 1);
    poll(NULL, 0, 100);
    return thread;
}

static bypath_tcp *connected(bypath_netstack *stack, int *fd) {
    bypath_tcp_listener *listener = listening(stack, "10.9.0.2:85");
    bypath_tcp *tcp;
    *fd = kernel_calls("10.9.0.2", 85);
    WORKS(bypath_tcp_accept(listener, &tcp, NULL, &error));
    WORKS(bypath_tcp_listener_close(listener, &error));
    return tcp;
}

/* Who waits is woken by what ends it. */
static void endings(bypath_netstack *stack) {
    bypath_tcp *tcp;
    pthread_t thread;
    struct linger now = {.l_onoff = 1};
    char buffer[9];
    size_t n;
    void *end;
    int fd;

    tcp = connected(stack, &fd);
    thread = begun(tcp);
    FAILS(BYPATH_E_BUSY, bypath_tcp_close(tcp, &error));
    WORKS(bypath_tcp_shutdown(tcp, BYPATH_SHUT_READ, &error));
    CHECK(pthread_join(thread, &end) == 0 && (intptr_t)end == 0);
    WORKS(bypath_tcp_write(tcp, "still", 5, &n, &error));
    CHECK(recv(fd, buffer, sizeof buffer, 0) == 5);
    WORKS(bypath_tcp_close(tcp, &error));
    CHECK(recv(fd, buffer, sizeof buffer, 0) == 0);
    close(fd);

    tcp = connected(stack, &fd);
    thread = begun(tcp);
    WORKS(bypath_tcp_abort(tcp, &error));
    CHECK(pthread_join(thread, &end) == 0 && (intptr_t)end == 0);
    CHECK(recv(fd, buffer, sizeof buffer, 0) == -1);
    FAILS(BYPATH_E_CLOSED, bypath_tcp_write(tcp, "x", 1, &n, &error));
    WORKS(bypath_tcp_close(tcp, &error));
    close(fd);

    /* What came before can be read, then there is an end, however often one asks. */
    tcp = connected(stack, &fd);
    CHECK(send(fd, "there", 5, 0) == 5);
    WORKS(bypath_tcp_peek(tcp, buffer, sizeof buffer, &n, &error));
    WORKS(bypath_tcp_abort(tcp, &error));
    for (size_t expected = 5, i = 0; i < 3; i++, expected = 0) {
        WORKS(bypath_tcp_peek(tcp, buffer, sizeof buffer, &n, &error));
        CHECK(n == expected);
        WORKS(bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &error));
        CHECK(n == expected);
        FAILS(BYPATH_E_CLOSED, bypath_tcp_write(tcp, "x", 1, &n, &error));
        FAILS(BYPATH_E_CLOSED, bypath_tcp_write_all(tcp, "x", 1, &n, &error));
        FAILS(BYPATH_E_CLOSED, bypath_tcp_shutdown(tcp, BYPATH_SHUT_BOTH, &error));
        WORKS(bypath_tcp_abort(tcp, &error));
    }
    WORKS(bypath_tcp_close(tcp, &error));
    close(fd);

    /* The other side resets it: told once, then it is over. */
    tcp = connected(stack, &fd);
    thread = begun(tcp);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(fd) == 0);
    CHECK(pthread_join(thread, &end) == 0 && (intptr_t)end == BYPATH_E_RESET);
    WORKS(bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &error));
    CHECK(n == 0);
    FAILS(BYPATH_E_CLOSED, bypath_tcp_write(tcp, "x", 1, &n, &error));
    WORKS(bypath_tcp_close(tcp, &error));

    tcp = connected(stack, &fd);
    WORKS(bypath_tcp_set_timeouts(tcp, 1000000, LONGEST, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &error));
    WORKS(bypath_tcp_close(tcp, &error));
    close(fd);
}

static void bad(bypath_netstack *stack) {
    bypath_tcp_options o = options();
    bypath_tcp_listener *listener, *second;
    bypath_tcp *tcp;
    bypath_endpoint e = at("10.9.0.1:9");
    char buffer[9];
    size_t n;
    int fd;

    FAILS(BYPATH_E_REFUSED, bypath_tcp_connect(stack, at("10.9.0.1:99"), NULL, &o, &tcp, &error));
    CHECK(tcp == NULL);
    FAILS(BYPATH_E_NO_ROUTE, bypath_tcp_connect(stack, at("192.0.2.1:99"), NULL, &o, &tcp, &error));
    FAILS(BYPATH_E_NO_ROUTE, bypath_tcp_connect(stack, at("10.9.0.77:99"), NULL, &o, &tcp, &error));
    FAILS(BYPATH_E_REFUSED, bypath_tcp_connect(stack, at("10.9.0.1:0"), NULL, &o, &tcp, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_connect(stack, at("10.9.0.1:99"), &e, &o, &tcp, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_connect(NULL, e, NULL, &o, &tcp, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_connect(stack, e, NULL, &o, NULL, &error));
    o.timeout_ns = 0;
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_tcp_connect(stack, at("10.9.0.78:9"), NULL, &o, &tcp, &error));
    e.family = 5;
    FAILS(BYPATH_E_INVALID, bypath_tcp_begin_connect(stack, e, NULL, NULL, &tcp, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, e, NULL, &listener, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_listen(stack, at("10.9.0.1:80"), NULL, &listener, &error));
    WORKS(bypath_tcp_listen(stack, at("10.9.0.2:0"), NULL, &listener, &error));
    WORKS(bypath_tcp_listener_local(listener, &e, &error));
    CHECK(e.port != 0);
    FAILS(BYPATH_E_IN_USE, bypath_tcp_listen(stack, e, NULL, &second, &error));
    WORKS(bypath_tcp_listener_set_timeout(listener, 0, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_tcp_accept(listener, &tcp, NULL, &error));
    WORKS(bypath_tcp_listener_set_timeout(listener, 1000000, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_tcp_accept(listener, &tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_accept(listener, NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_accept(NULL, &tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_listener_descriptor(listener, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_listener_local(NULL, &e, &error));
    WORKS(bypath_tcp_listener_close(listener, &error));
    WORKS(bypath_tcp_listener_close(NULL, &error));

    tcp = connected(stack, &fd);
    FAILS(BYPATH_E_INVALID, bypath_tcp_read(tcp, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_read(tcp, buffer, 1, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_read(NULL, buffer, 1, &n, &error));
    WORKS(bypath_tcp_read(tcp, NULL, 0, &n, &error));
    CHECK(n == 0);
    FAILS(BYPATH_E_INVALID, bypath_tcp_peek(tcp, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_write(tcp, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_write(tcp, "x", 1, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_write_all(tcp, NULL, 1, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_write_pieces(tcp, NULL, 1, &n, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_shutdown(tcp, 3, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_descriptor(tcp, 0, &fd, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_local(tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_remote(tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_read_options(tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_set_options(tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_read_statistics(tcp, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_set_timeouts(NULL, 0, 0, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_abort(NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_finish_connect(NULL, &error));
    WORKS(bypath_tcp_close(tcp, &error));
    WORKS(bypath_tcp_close(NULL, &error));
    close(fd);
}

int main(void) {
    bypath_netstack *stack = opened();
    bypath_tcp *tcp;
    pthread_t thread;
    size_t n;
    void *end;
    int fd, readable;

    for (size_t i = 0; i < MUCH; i++) content[i] = (unsigned char)(i * 7 + i / 251);
    exchange(stack);
    polled(stack);
    wants(stack);
    endings(stack);
    bad(stack);

    /* Who waits learns that the netstack is closed; so does who comes later, and who polls. */
    tcp = connected(stack, &fd);
    readable = descriptor(tcp, BYPATH_READABLE);
    CHECK(!is_ready(readable, 0));
    thread = begun(tcp);
    WORKS(bypath_netstack_close(stack, &error));
    CHECK(pthread_join(thread, &end) == 0 && (intptr_t)end == BYPATH_E_GONE);
    CHECK(is_ready(readable, 0));
    FAILS(BYPATH_E_GONE, bypath_tcp_write(tcp, "x", 1, &n, &error));
    FAILS(BYPATH_E_GONE, bypath_tcp_read(tcp, room, 1, &n, &error));
    WORKS(bypath_tcp_close(tcp, &error));
    close(fd);
    puts("all as it should be");
    return 0;
}
