/* Calls to others through a netstack from C: every function, and bad arguments. Run in a network namespace of its own. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/route.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const OWN[] = {"10.9.0.2/24"};
static const char *const KERNELS[] = {"10.9.0.1/24"};
static const uint64_t LONGEST = 20000000000;

static struct sockaddr_in kernel_address(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    return to;
}

/* The kernel's way to everybody in 198.51.100.0/24 leads to the netstack. */
static void leads_here(void) {
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    const struct sockaddr_in net = kernel_address("198.51.100.0", 0), mask = kernel_address("255.255.255.0", 0),
                             via = kernel_address("10.9.0.2", 0);
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    memcpy(&route.rt_dst, &net, sizeof net);
    memcpy(&route.rt_genmask, &mask, sizeof mask);
    memcpy(&route.rt_gateway, &via, sizeof via);
    CHECK(fd >= 0 && ioctl(fd, SIOCADDRT, &route) == 0);
    close(fd);
}

/* A call of the kernel's that is not answered yet. */
static int kernel_calls(const char *address, int port) {
    const struct sockaddr_in to = kernel_address(address, port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == -1 && errno == EINPROGRESS);
    return fd;
}

static int is_ready(int fd, short what, int milliseconds) {
    struct pollfd one = {.fd = fd, .events = what};
    return poll(&one, 1, milliseconds) == 1;
}

/* What came of the call. */
static int outcome(int fd) {
    int code = -1;
    socklen_t len = sizeof code;
    CHECK(is_ready(fd, POLLOUT, 20000) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) == 0);
    return code;
}

static int is(bypath_endpoint e, const char *wanted) {
    char text[BYPATH_ENDPOINT_TEXT];
    WORKS(bypath_endpoint_format(e, text, &error));
    return strcmp(text, wanted) == 0;
}

int main(void) {
    bypath_netstack_options o;
    bypath_tcp_options wanted;
    bypath_netstack *stack;
    bypath_tcp_forwarder *forwarder, *other;
    bypath_tcp_call *call;
    bypath_tcp *tcp;
    bypath_endpoint from, to;
    char buffer[100];
    size_t n;
    int fd, calls, late;

    WORKS(bypath_netstack_options_init(&o, &error));
    o.link = "tap:fwdc%d";
    o.addresses = OWN, o.address_count = 1;
    o.kernel_addresses = KERNELS, o.kernel_address_count = 1;
    WORKS(bypath_netstack_open(&o, &stack, &error));
    leads_here();
    WORKS(bypath_tcp_options_init(&wanted, &error));
    wanted.timeout_ns = LONGEST;
    WORKS(bypath_tcp_forward(stack, &wanted, &forwarder, &error));
    FAILS(BYPATH_E_IN_USE, bypath_tcp_forward(stack, NULL, &other, &error));
    CHECK(other == NULL);
    WORKS(bypath_tcp_forwarder_descriptor(forwarder, &calls, &error));
    CHECK(!is_ready(calls, POLLIN, 0));

    /* Whoever is called; nothing answers before that is wanted. */
    fd = kernel_calls("198.51.100.7", 80);
    CHECK(is_ready(calls, POLLIN, 20000));
    WORKS(bypath_tcp_forwarder_next(forwarder, &call, &from, &to, &error));
    CHECK(is(to, "198.51.100.7:80") && memcmp(from.address, "\x0a\x09\x00\x01", 4) == 0 && from.port != 0);
    CHECK(!is_ready(calls, POLLIN, 0) && !is_ready(fd, POLLOUT, 100));
    WORKS(bypath_tcp_call_accept(call, &tcp, &error));
    CHECK(outcome(fd) == 0);
    WORKS(bypath_tcp_local(tcp, &to, &error));
    CHECK(is(to, "198.51.100.7:80"));
    WORKS(bypath_tcp_write_all(tcp, "hello", 5, NULL, &error));
    CHECK(is_ready(fd, POLLIN, 20000) && recv(fd, buffer, sizeof buffer, 0) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(send(fd, "answer", 6, 0) == 6);
    WORKS(bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &error));
    CHECK(n == 6 && memcmp(buffer, "answer", 6) == 0);
    WORKS(bypath_tcp_close(tcp, &error));
    CHECK(is_ready(fd, POLLIN, 20000) && recv(fd, buffer, sizeof buffer, 0) == 0);
    close(fd);

    /* Who is refused; and who calls no more. */
    late = kernel_calls("198.51.100.8", 443);
    WORKS(bypath_tcp_forwarder_next(forwarder, &call, NULL, NULL, &error));
    WORKS(bypath_tcp_call_refuse(call, &error));
    CHECK(outcome(late) == ECONNREFUSED);
    close(late);
    late = kernel_calls("198.51.100.8", 444);
    WORKS(bypath_tcp_forwarder_next(forwarder, &call, NULL, &to, &error));
    CHECK(is(to, "198.51.100.8:444"));
    close(late);
    FAILS(BYPATH_E_REFUSED, bypath_tcp_call_accept(call, &tcp, &error));
    CHECK(tcp == NULL);

    /* Bad arguments. */
    FAILS(BYPATH_E_INVALID, bypath_tcp_forward(NULL, NULL, &other, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_forward(stack, NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_forwarder_next(NULL, &call, NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_forwarder_next(forwarder, NULL, NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_forwarder_set_timeout(NULL, 0, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_forwarder_descriptor(forwarder, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_tcp_call_accept(NULL, &tcp, &error));
    WORKS(bypath_tcp_call_refuse(NULL, &error));
    WORKS(bypath_tcp_forwarder_close(NULL, &error));
    WORKS(bypath_tcp_forwarder_set_timeout(forwarder, 0, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_tcp_forwarder_next(forwarder, &call, &from, &to, &error));
    WORKS(bypath_tcp_forwarder_set_timeout(forwarder, 1000000, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_tcp_forwarder_next(forwarder, &call, &from, &to, &error));
    CHECK(call == NULL);

    /* Whoever was not taken is refused with it; then somebody else may forward. */
    late = kernel_calls("198.51.100.9", 80);
    CHECK(is_ready(calls, POLLIN, 20000));
    WORKS(bypath_tcp_forwarder_close(forwarder, &error));
    CHECK(outcome(late) == ECONNREFUSED);
    close(late);
    WORKS(bypath_tcp_forward(stack, NULL, &forwarder, &error));
    WORKS(bypath_netstack_close(stack, &error));
    FAILS(BYPATH_E_GONE, bypath_tcp_forwarder_next(forwarder, &call, NULL, NULL, &error));
    WORKS(bypath_tcp_forwarder_close(forwarder, &error));
    puts("all as it should be");
    return 0;
}
