/* Sends lines of text as datagrams through a TUN device, and shows what comes back.
 *
 *     cc tun.c $(pkg-config --cflags --libs bypath) -o tun
 *
 *     unshare --user --net --map-root-user     # a network of your own, where you may make devices
 *     tun 10.9.0.1:9000 hello there            # nobody listens: the kernel says so
 *     socat UDP-RECVFROM:9000,fork EXEC:cat &  # an echo, of each datagram by itself
 *     tun 10.9.0.1:9000 hello there            # every word in a datagram of its own, and back
 *
 * The headers are made by the library; the kernel gets whole packets, as if from a network.
 */
#include <bypath.h>
#include <stdio.h>
#include <string.h>

static int failed(const bypath_error *error) {
    fprintf(stderr, "tun: %s\n", error->message);
    return 1;
}

int main(int argc, char **argv) {
    bypath_tun_options options;
    bypath_tun_obtained obtained;
    bypath_tun_datagram datagram;
    bypath_endpoint to;
    bypath_tun *tun;
    bypath_error error;
    unsigned char buffer[65536];
    char source[BYPATH_ENDPOINT_TEXT];
    bypath_octets words[64];
    size_t count = 0, sent = 0;

    if (argc < 3 || argc > 66) {
        fprintf(stderr, "usage: tun ADDRESS:PORT WORD...\n");
        return 2;
    }
    if (bypath_endpoint_parse(argv[1], &to, &error) != BYPATH_OK) return failed(&error);
    for (int i = 2; i < argc; i++) words[count++] = (bypath_octets){.data = argv[i], .len = strlen(argv[i])};

    bypath_tun_options_init(&options, NULL);
    options.address = "10.9.0.1/24"; /* the kernel's end */
    options.local = "10.9.0.2:7000"; /* ours */
    options.mode = BYPATH_TUN_SUPER; /* words of one length go together */
    options.timeout_ns = 5000000000;
    if (bypath_tun_open(&options, &tun, &error) != BYPATH_OK) return failed(&error);
    bypath_tun_read_obtained(tun, &obtained, NULL);
    printf("%s, MTU %u, super-packets: %s\n", obtained.name, obtained.mtu, obtained.udp ? "yes" : "no");

    if (bypath_tun_send_batch(tun, to, words, count, &sent, &error) != BYPATH_OK) return failed(&error);
    printf("%zu datagrams sent\n", sent);
    for (size_t i = 0; i < sent; i++) {
        if (bypath_tun_receive(tun, buffer, sizeof buffer, &datagram, &error) != BYPATH_OK) return failed(&error);
        bypath_endpoint_format(datagram.source, source, NULL);
        printf("%s: %.*s\n", source, (int)datagram.len, (const char *)buffer);
    }
    bypath_tun_close(tun, NULL);
    return 0;
}
