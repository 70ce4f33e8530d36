/* Sends back what comes by TCP: a host of its own on an interface or a device, with one thread for all connections, by poll.
 *
 *     cc tcp_echo.c $(pkg-config --cflags --libs bypath) -o tcp_echo
 *
 *     unshare --user --net --map-root-user sh        # a network of your own, where you may make devices
 *     tcp_echo tap:bp0 10.9.0.2/24 7 &
 *     ip address add 10.9.0.1/24 dev bp0
 *     nc 10.9.0.2 7
 *
 * On an interface: `tcp_echo packet:eth0 ADDRESS/PREFIX 7`, with an address that nobody has. A number at the end is how many
 * connections are served; without it there is no end.
 */
#include <bypath.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100, ROOM = 65536 };

/* A connection, and what came of it and was not sent back yet. */
struct client {
    bypath_tcp *tcp;
    int readable, writable;
    size_t begin, end;
    unsigned char octets[ROOM];
};

static bypath_error error;

static int failed(void) {
    fprintf(stderr, "tcp_echo: %s\n", error.message);
    return 1;
}

/* Does what can be done without waiting. 0: the connection is over. */
static int serve(struct client *c) {
    size_t n;
    bypath_status status;
    for (;;) {
        if (c->begin == c->end) {
            c->begin = c->end = 0;
            status = bypath_tcp_read(c->tcp, c->octets, ROOM, &c->end, &error);
            if (status == BYPATH_OK && c->end == 0) return 0;
        } else {
            status = bypath_tcp_write(c->tcp, c->octets + c->begin, c->end - c->begin, &n, &error);
            if (status == BYPATH_OK) c->begin += n;
        }
        if (status != BYPATH_OK) return status == BYPATH_E_WOULD_BLOCK;
    }
}

int main(int argc, char **argv) {
    static struct client *clients[MOST];
    struct pollfd waits[MOST + 1];
    bypath_netstack_options options;
    bypath_netstack *stack;
    bypath_tcp_options wanted;
    bypath_tcp_listener *listener;
    bypath_endpoint all, remote;
    char text[BYPATH_ENDPOINT_TEXT];
    int count = 0;

    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: tcp_echo LINK ADDRESS/PREFIX PORT [COUNT]\n");
        return 2;
    }
    bypath_netstack_options_init(&options, NULL);
    options.link = argv[1];
    options.addresses = (const char *const *)&argv[2], options.address_count = 1;
    if (bypath_netstack_open(&options, &stack, &error) != BYPATH_OK) return failed();

    /* Nothing waits but poll. */
    bypath_tcp_options_init(&wanted, NULL);
    wanted.timeout_ns = 0;
    snprintf(text, sizeof text, "0.0.0.0:%s", argv[3]);
    if (bypath_endpoint_parse(text, &all, &error) != BYPATH_OK) return failed();
    if (bypath_tcp_listen(stack, all, &wanted, &listener, &error) != BYPATH_OK) return failed();
    if (bypath_tcp_listener_descriptor(listener, &waits[0].fd, &error) != BYPATH_OK) return failed();
    printf("ready\n");
    fflush(stdout);

    for (long left = argc > 4 ? atol(argv[4]) : -1; left != 0;) {
        /* Who is owed octets waits for room, the others for octets. Both are POLLIN. */
        for (int i = 0; i < count; i++)
            waits[i + 1].fd = clients[i]->begin < clients[i]->end ? clients[i]->writable : clients[i]->readable;
        for (int i = 0; i <= count; i++) waits[i].events = POLLIN;
        /* While there are as many as may be, others wait in the netstack. */
        poll(waits + (count == MOST), (nfds_t)count + (count != MOST), -1);

        for (int i = count - 1; i >= 0; i--) {
            struct client *c = clients[i];
            if (waits[i + 1].revents == 0 || serve(c)) continue;
            bypath_tcp_close(c->tcp, NULL);
            free(c);
            clients[i] = clients[--count];
            left -= left > 0;
        }
        if (count < MOST && waits[0].revents != 0) {
            struct client *c = calloc(1, sizeof *c);
            if (c == NULL) return 1;
            if (bypath_tcp_accept(listener, &c->tcp, &remote, &error) != BYPATH_OK) return failed();
            if (bypath_tcp_descriptor(c->tcp, BYPATH_READABLE, &c->readable, &error) != BYPATH_OK) return failed();
            if (bypath_tcp_descriptor(c->tcp, BYPATH_WRITABLE, &c->writable, &error) != BYPATH_OK) return failed();
            clients[count++] = c;
            bypath_endpoint_format(remote, text, NULL);
            printf("%s\n", text);
            fflush(stdout);
        }
    }
    while (count > 0) {
        bypath_tcp_close(clients[--count]->tcp, NULL);
        free(clients[count]);
    }
    bypath_tcp_listener_close(listener, NULL);
    /* What is still to be sent is sent. */
    bypath_netstack_close(stack, NULL);
    return 0;
}
