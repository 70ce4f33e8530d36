/* Fetches a file by HTTP, by hand: a host of its own on an interface or a device asks a server.
 *
 *     cc http_get.c $(pkg-config --cflags --libs bypath) -o http_get
 *     http_get packet:eth0 192.0.2.77/24 192.0.2.1:80 /index.html      # an address that nobody has; needs CAP_NET_RAW
 *     http_get tap:bp0 10.9.0.2/24 10.9.0.1:8000 / 10.9.0.1/24         # the last one is the kernel's, at the device's other end
 *
 * The head of the answer goes to standard error, the file to standard output.
 */
#include <bypath.h>
#include <stdio.h>
#include <string.h>

static bypath_error error;

static int failed(void) {
    fprintf(stderr, "http_get: %s\n", error.message);
    return 1;
}

int main(int argc, char **argv) {
    static char buffer[65536];
    bypath_netstack_options options;
    bypath_netstack *stack;
    bypath_tcp_options wanted;
    bypath_tcp_statistics how;
    bypath_tcp *tcp;
    bypath_endpoint server;
    size_t len = 0, n;
    char *end;

    if (argc < 5 || argc > 6) {
        fprintf(stderr, "usage: http_get LINK ADDRESS/PREFIX SERVER:PORT PATH [KERNEL/PREFIX]\n");
        return 2;
    }
    bypath_netstack_options_init(&options, NULL);
    options.link = argv[1];
    options.addresses = (const char *const *)&argv[2], options.address_count = 1;
    options.kernel_addresses = (const char *const *)&argv[5], options.kernel_address_count = argc > 5;
    if (bypath_endpoint_parse(argv[3], &server, &error) != BYPATH_OK) return failed();
    if (bypath_netstack_open(&options, &stack, &error) != BYPATH_OK) return failed();

    bypath_tcp_options_init(&wanted, NULL);
    wanted.timeout_ns = 10000000000;
    if (bypath_tcp_connect(stack, server, NULL, &wanted, &tcp, &error) != BYPATH_OK) return failed();
    n = (size_t)snprintf(buffer, sizeof buffer, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", argv[4], argv[3]);
    if (n >= sizeof buffer) return 2;
    if (bypath_tcp_write_all(tcp, buffer, n, NULL, &error) != BYPATH_OK) return failed();

    /* The head ends with an empty line; what follows is the file, up to the end of the connection. */
    do {
        if (len == sizeof buffer - 1) return fprintf(stderr, "http_get: the answer's head is too long\n"), 1;
        if (bypath_tcp_read(tcp, buffer + len, sizeof buffer - 1 - len, &n, &error) != BYPATH_OK) return failed();
        buffer[len += n] = 0;
        end = strstr(buffer, "\r\n\r\n");
    } while (end == NULL && n > 0);
    if (end == NULL) return fprintf(stderr, "http_get: this is no answer\n"), 1;
    fprintf(stderr, "%.*s\n", (int)(end - buffer), buffer);
    fwrite(end + 4, 1, len - (size_t)(end + 4 - buffer), stdout);
    do {
        if (bypath_tcp_read(tcp, buffer, sizeof buffer, &n, &error) != BYPATH_OK) return failed();
        fwrite(buffer, 1, n, stdout);
    } while (n > 0);

    bypath_tcp_read_statistics(tcp, &how, NULL);
    fprintf(stderr, "%llu octets, a round trip of %llu us\n", (unsigned long long)how.octets_received,
            (unsigned long long)how.srtt_ns / 1000);
    bypath_tcp_close(tcp, NULL);
    bypath_netstack_close(stack, NULL);
    return 0;
}
