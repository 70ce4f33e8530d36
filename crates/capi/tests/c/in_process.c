/* A TCP/IP stack without a thread, from C. Run in a network namespace of its own. */
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const OWN[] = {"10.9.0.2/24"};
static const char *const KERNELS[] = {"10.9.0.1/24"};
enum { OCTETS = 1000000, ROUNDS = 1000 };

static bypath_endpoint at(const char *text) {
    bypath_endpoint e;
    WORKS(bypath_endpoint_parse(text, &e, &error));
    return e;
}

static int threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *one; (one = readdir(tasks)) != NULL;) count += one->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* The kernel's end: sends back what comes. */
static void *echoes(void *listener) {
    static char buffer[100000];
    const int fd = accept((int)(intptr_t)listener, NULL, NULL);
    CHECK(fd >= 0);
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t sent = 0, more; sent < n; sent += more) CHECK((more = write(fd, buffer + sent, (size_t)(n - sent))) > 0);
    close(fd);
    return NULL;
}

static void *calls(void *unused) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    char word[5];
    (void)unused;
    inet_pton(AF_INET, "10.9.0.2", &to.sin_addr);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && write(fd, "hello", 5) == 5);
    CHECK(recv(fd, word, 5, MSG_WAITALL) == 5 && memcmp(word, "HELLO", 5) == 0);
    close(fd);
    return NULL;
}

int main(void) {
    static unsigned char sent[OCTETS], got[OCTETS];
    bypath_netstack_options o;
    bypath_netstack *stack;
    bypath_tcp_options wanted;
    bypath_tcp *tcp;
    bypath_tcp_listener *listener;
    bypath_endpoint from;
    pthread_t thread;
    size_t n, read = 0, written = 0;
    int moved = 7;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(7)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    WORKS(bypath_netstack_options_init(&o, &error));
    o.link = "tap:fromc0";
    o.addresses = OWN, o.address_count = 1;
    o.kernel_addresses = KERNELS, o.kernel_address_count = 1;
    o.flags = BYPATH_NETSTACK_IN_PROCESS | 0x80;
    FAILS(BYPATH_E_INVALID, bypath_netstack_open(&o, &stack, &error));
    o.flags = BYPATH_NETSTACK_IN_PROCESS;
    WORKS(bypath_netstack_open(&o, &stack, &error));
    CHECK(threads() == 1);

    inet_pton(AF_INET, "10.9.0.1", &own.sin_addr);
    CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0 && listen(fd, 1) == 0);
    CHECK(pthread_create(&thread, NULL, echoes, (void *)(intptr_t)fd) == 0);
    WORKS(bypath_tcp_options_init(&wanted, &error));
    wanted.timeout_ns = 20000000000, wanted.flags = BYPATH_TCP_NODELAY;
    WORKS(bypath_tcp_connect(stack, at("10.9.0.1:7"), NULL, &wanted, &tcp, &error));
    for (int i = 0; i < ROUNDS; i++) {
        const unsigned char one = (unsigned char)i;
        WORKS(bypath_tcp_write_all(tcp, &one, 1, NULL, &error));
        WORKS(bypath_tcp_read(tcp, got, sizeof got, &n, &error));
        CHECK(n == 1 && got[0] == one);
    }
    /* One thread for both directions: calls that do not wait look at the link, too. */
    for (size_t i = 0; i < OCTETS; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
    WORKS(bypath_tcp_set_timeouts(tcp, 0, 0, &error));
    while (read < OCTETS) {
        if (written < OCTETS) {
            const bypath_status s = bypath_tcp_write(tcp, sent + written, OCTETS - written, &n, &error);
            CHECK(s == BYPATH_OK || s == BYPATH_E_WOULD_BLOCK);
            if (s == BYPATH_OK) written += n;
        }
        const bypath_status s = bypath_tcp_read(tcp, got + read, OCTETS - read, &n, &error);
        CHECK((s == BYPATH_OK && n > 0) || s == BYPATH_E_WOULD_BLOCK);
        if (s == BYPATH_OK) read += n;
    }
    CHECK(memcmp(sent, got, OCTETS) == 0);
    WORKS(bypath_tcp_close(tcp, &error));
    /* What is left of it is done by who polls: the kernel's end ends. */
    CHECK(pthread_join(thread, NULL) == 0);

    /* As a server. */
    WORKS(bypath_tcp_listen(stack, at("0.0.0.0:80"), &wanted, &listener, &error));
    CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
    WORKS(bypath_tcp_accept(listener, &tcp, &from, &error));
    WORKS(bypath_tcp_read(tcp, got, sizeof got, &n, &error));
    CHECK(n == 5 && memcmp(got, "hello", 5) == 0);
    WORKS(bypath_tcp_write_all(tcp, "HELLO", 5, NULL, &error));
    WORKS(bypath_tcp_read(tcp, got, sizeof got, &n, &error));
    CHECK(n == 0);
    WORKS(bypath_tcp_close(tcp, &error));
    CHECK(pthread_join(thread, NULL) == 0);
    WORKS(bypath_tcp_listener_close(listener, &error));

    while (moved != 0) WORKS(bypath_netstack_poll(stack, &moved, &error));
    WORKS(bypath_netstack_poll(stack, NULL, &error));
    WORKS(bypath_netstack_wait(stack, 1000000, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_poll(NULL, &moved, &error));
    FAILS(BYPATH_E_INVALID, bypath_netstack_wait(NULL, 0, &error));
    CHECK(threads() == 1);
    WORKS(bypath_netstack_close(stack, &error));
    close(fd);
    puts("all as it should be");
    return 0;
}
