/* Compiled with -fsanitize=address: a connection of the process with itself, its bytes checked, and where they went. */
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS = 200, BYTES = 100 };

static void die(const char *what)
{
    perror(what);
    exit(1);
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), ends[2];
    if (bind(listener, (void *)&address, length) || listen(listener, 1)
        || getsockname(listener, (void *)&address, &length))
        die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&address, length) || (ends[1] = accept(listener, NULL, NULL)) < 0)
        die("connect");
    for (int i = 0; i < 2 * ROUNDS; i++) {
        char *out = malloc(BYTES), *in = malloc(BYTES);
        memset(out, i, BYTES);
        if (send(ends[i % 2], out, BYTES, 0) != BYTES || recv(ends[1 - i % 2], in, BYTES, MSG_WAITALL) != BYTES)
            die("round");
        if (memcmp(in, out, BYTES)) {
            puts("wrong bytes");
            return 1;
        }
        free(out);
        free(in);
    }
    struct tcp_info info;
    length = sizeof info;
    if (getsockopt(ends[1], IPPROTO_TCP, TCP_INFO, &info, &length))
        die("TCP_INFO");
    fflush(stdout);
    if (system("exit 3") >> 8 != 3)
        die("system");
    puts(info.tcpi_bytes_received < ROUNDS * BYTES / 2 ? "ring" : "kernel");
    return 0;
}
