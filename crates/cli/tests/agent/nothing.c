// Calls that move nothing: MSG_PEEK with MSG_TRUNC counts what there is, while it is partly in the carrier and partly in a
// ring; lists of empty pieces, before and after the end of the stream. Usage: nothing, prints lines.
#define _GNU_SOURCE
#include "warm.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

enum { ROUNDS = 60, PIECE = 500 };

static void writes(const char *when, int fd) {
    struct iovec empty[2] = {{"", 0}, {"", 0}};
    long list = writev(fd, empty, 2), first = errno;
    long flagged = pwritev2(fd, empty, 2, -1, 0), second = errno;
    long plain = write(fd, "", 0), third = errno, sent = send(fd, "", 0, MSG_NOSIGNAL), fourth = errno;
    printf("%s: writev %ld %ld, pwritev2 %ld %ld, write %ld %ld, send %ld %ld\n", when, list, list ? first : 0, flagged,
           flagged ? second : 0, plain, plain ? third : 0, sent, sent ? fourth : 0);
}

int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    char data[ROUNDS * PIECE] = "x";
    int all = 0, few = 0, there, l = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0);
    signal(SIGPIPE, SIG_IGN);
    if (bind(l, (void *)&at, len) || listen(l, 1) || getsockname(l, (void *)&at, &len) || connect(a, (void *)&at, len))
        die("connect");
    int b = accept(l, NULL, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        if (send(a, data, PIECE, 0) != PIECE)
            die("send");
        all += PIECE;
        do
            if (ioctl(b, FIONREAD, &there))
                die("ioctl");
        while (there < all);
        few += recv(b, NULL, sizeof data, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT) != all;
        few += recv(b, data, sizeof data, MSG_PEEK | MSG_DONTWAIT) != all;
        if (send(b, data, 10, 0) != 10 || recv(a, data, 10, MSG_WAITALL) != 10)
            die("answer");
    }
    printf("counted too few: %d\n", few);
    int ends[2];
    warm_connection(ends);
    writes("open", ends[0]);
    shutdown(ends[0], SHUT_WR);
    writes("ended", ends[0]);
    return 0;
}
