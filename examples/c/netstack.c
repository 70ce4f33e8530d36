/* Sends datagrams back: a host of its own on an interface or a device, by the TCP/IP stack of the library.
 *
 *     cc netstack.c $(pkg-config --cflags --libs bypath) -o netstack
 *
 *     unshare --user --net --map-root-user sh        # a network of your own, where you may make devices
 *     ip link add left type veth peer name right; ip link set left up; ip link set right up
 *     netstack packet:right 10.1.0.2/24 7 &          # answers at 10.1.0.2, which the kernel does not have
 *     netstack_cpp packet:left 10.1.0.1/24 10.1.0.2:7 hello there
 *
 * With a device the kernel is at the other end: `netstack tap:bp0 10.9.0.2/24 7`, then `ip address add 10.9.0.1/24 dev bp0`,
 * and any program of this host can ask 10.9.0.2. `dhcp` in place of the address asks a DHCP server for one. A number at the end
 * is how many datagrams are answered; without it there is no end.
 */
#include <bypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const bypath_error *error) {
    fprintf(stderr, "netstack: %s\n", error->message);
    return 1;
}

int main(int argc, char **argv) {
    bypath_netstack_options options;
    bypath_netstack_obtained obtained;
    bypath_netstack *stack;
    bypath_udp_datagram datagram;
    bypath_endpoint all;
    bypath_udp *udp;
    bypath_error error;
    static unsigned char buffer[65536];
    char text[32], source[BYPATH_ENDPOINT_TEXT];

    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: netstack LINK ADDRESS/PREFIX|dhcp PORT [COUNT]\n");
        return 2;
    }
    bypath_netstack_options_init(&options, NULL);
    options.link = argv[1];
    if (strcmp(argv[2], "dhcp") == 0) {
        options.flags = BYPATH_NETSTACK_DHCP;
    } else {
        options.addresses = (const char *const *)&argv[2];
        options.address_count = 1;
    }
    /* Returns when the address can be used. */
    if (bypath_netstack_open(&options, &stack, &error) != BYPATH_OK) return failed(&error);
    bypath_netstack_read_obtained(stack, &obtained, NULL);

    snprintf(text, sizeof text, "0.0.0.0:%s", argv[3]);
    if (bypath_endpoint_parse(text, &all, &error) != BYPATH_OK) return failed(&error);
    if (bypath_udp_bind(stack, all, 0, &udp, &error) != BYPATH_OK) return failed(&error);
    printf("ready on %s\n", obtained.name);
    fflush(stdout);

    for (long left = argc > 4 ? atol(argv[4]) : -1; left != 0; left -= left > 0) {
        if (bypath_udp_receive(udp, buffer, sizeof buffer, &datagram, &error) != BYPATH_OK) return failed(&error);
        if (bypath_udp_send_to(udp, datagram.source, buffer, datagram.len, &error) != BYPATH_OK) return failed(&error);
        bypath_endpoint_format(datagram.source, source, NULL);
        printf("%s: %zu octets\n", source, datagram.len);
    }
    /* What is still to be sent is sent, and a lease is given back. */
    bypath_udp_close(udp, NULL);
    bypath_netstack_close(stack, NULL);
    return 0;
}
