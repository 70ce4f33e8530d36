/* One side writes 64 KB at a time, the other reads.
 *   bulk server ADDRESS                 prints the bytes per second that arrived
 *   bulk client ADDRESS SECONDS
 * The stream: 4 MB that are checked, the timed part, a block that announces its end, the number of timed
 * blocks, 4 MB that are checked. */
#include "net.h"

enum { SIZE = 65536, CHECKED = 64, LAST = 255 };

static unsigned char block[SIZE];

static void client(const char *text, double seconds) {
    struct address a = parse(text);
    int fd = connect_to(&a);
    for (uint32_t i = 0; i < CHECKED; i++) fill(block, SIZE, i), send_all(fd, block, SIZE);
    uint64_t start = now_ns(), blocks = 0;
    block[0] = 0;
    for (; now_ns() - start < (uint64_t)(seconds * 1e9); blocks++) send_all(fd, block, SIZE);
    block[0] = LAST;
    send_all(fd, block, SIZE);
    send_all(fd, &blocks, sizeof blocks);
    for (uint32_t i = 0; i < CHECKED; i++) fill(block, SIZE, i), send_all(fd, block, SIZE);
    shutdown(fd, SHUT_WR);
    if (recv(fd, block, 1, 0) != 1 || block[0] != 'y') wrong("the server did not confirm");
    close(fd);
}

static void receive_checked(int fd) {
    for (uint32_t i = 0; i < CHECKED; i++) {
        if (!recv_all(fd, block, SIZE)) wrong("the stream ended too early");
        check(block, SIZE, i);
    }
}

static void server(const char *text) {
    int fd = accept_one(listen_at(text));
    receive_checked(fd);
    uint64_t blocks = 0, announced, start = now_ns();
    while (recv_all(fd, block, SIZE) && block[0] != LAST) blocks++;
    double seconds = (double)(now_ns() - start) / 1e9;
    if (!recv_all(fd, &announced, sizeof announced) || announced != blocks) wrong("bytes were lost or doubled");
    receive_checked(fd);
    if (recv(fd, block, 1, 0) != 0) wrong("more bytes than were sent");
    send_all(fd, "y", 1);
    close(fd);
    printf("%.0f\n", (double)blocks * SIZE / seconds);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "server")) server(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "client")) client(argv[2], atof(argv[3]));
    else return fprintf(stderr, "usage: bulk server ADDRESS | client ADDRESS SECONDS\n"), 1;
    return 0;
}
