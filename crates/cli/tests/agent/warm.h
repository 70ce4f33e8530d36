/* A connection on loopback that has carried enough to be upgraded. Included once by a program. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WARM = 40 };

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static void all(int fd, char *data, size_t n, int out) {
    for (size_t done = 0; done < n;) {
        ssize_t k = out ? write(fd, data + done, n - done) : read(fd, data + done, n - done);
        if (k <= 0)
            die("all");
        done += k;
    }
}

static void warm_connection(int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    char data[100] = "x";
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&at, len) || listen(l, 1) || getsockname(l, (void *)&at, &len))
        die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&at, len))
        die("connect");
    ends[1] = accept(l, NULL, NULL);
    close(l);
    for (int i = 0; i < WARM; i++)
        for (int from = 0; from < 2; from++) {
            all(ends[from], data, sizeof data, 1);
            all(ends[!from], data, sizeof data, 0);
        }
}
