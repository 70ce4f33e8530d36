/* Connections that come up, say something and end, again and again, in every way.
 *
 *   cycles server         prints its port and echoes; a message that begins with LAST is answered by the end. It says how it
 *                         stands for each line that it reads, and ends with its input
 *   cycles client PORT    runs as many cycles as each line says, and says how it stands
 *   cycles once PORT N    N cycles, and ends
 *
 * How it stands: descriptors, mappings, mappings of arenas, resident KiB. */
#include "crash.h"

#define MESSAGE 100
#define ROUNDS 12
#define LAST 'L'
#define BURST 20000

static void report(void)
{
    char line[512];
    int fds = 0, maps = 0, arenas = 0;
    long pages = 0, resident = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        fds++;
    closedir(d);
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f)) {
        maps++;
        arenas += strstr(line, "bypath-arena") != NULL;
    }
    fclose(f);
    f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
        fail("statm");
    fclose(f);
    printf("fds=%d maps=%d arenas=%d kib=%ld\n", fds, maps, arenas, resident * 4);
    fflush(stdout);
}

static void echo(int set, int fd)
{
    char bytes[65536];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    int is_over = n <= 0;
    for (ssize_t done = 0; done < n && !is_over;) {
        ssize_t r = send(fd, bytes + done, n - done, MSG_NOSIGNAL);
        struct pollfd one = { .fd = fd, .events = POLLOUT };
        if (r < 0 && errno == EAGAIN)
            poll(&one, 1, 10000);
        else if (r < 0)
            is_over = 1;
        else
            done += r;
    }
    if (is_over || bytes[0] == LAST) {
        epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
        close(fd);
    }
}

static void server(void)
{
    int listener = listen_on_loopback(), set = epoll_create1(EPOLL_CLOEXEC);
    int input[2] = { listener, 0 };
    for (int i = 0; i < 2; i++) {
        struct epoll_event e = { .events = EPOLLIN, .data.fd = input[i] };
        if (epoll_ctl(set, EPOLL_CTL_ADD, input[i], &e) < 0)
            fail("epoll_ctl");
    }
    for (;;) {
        struct epoll_event seen[16];
        int n = epoll_wait(set, seen, 16, -1);
        for (int i = 0; i < n; i++) {
            int fd = seen[i].data.fd;
            char line[100];
            if (fd == listener) {
                struct epoll_event e = { .events = EPOLLIN };
                e.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (e.data.fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, e.data.fd, &e) < 0)
                    fail("epoll_ctl");
            } else if (fd != 0) {
                echo(set, fd);
            } else if (read(0, line, sizeof line) > 0) {
                report();
            } else {
                return;
            }
        }
    }
}

static void say(int fd, size_t n, unsigned char first, uint64_t turn)
{
    unsigned char bytes[BURST];
    for (size_t i = 0; i < n; i++)
        bytes[i] = stream_byte(turn, i);
    bytes[0] = first;
    for (size_t done = 0; done < n;) {
        ssize_t r = send(fd, bytes + done, n - done, MSG_NOSIGNAL);
        if (r < 0)
            fail("send");
        done += r;
    }
}

static void hear(int fd, size_t n, unsigned char first, uint64_t turn)
{
    unsigned char bytes[BURST];
    for (size_t done = 0; done < n;) {
        ssize_t r = recv(fd, bytes + done, n - done, 0);
        if (r <= 0)
            fail("recv");
        done += r;
    }
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != (i ? stream_byte(turn, i) : first))
            fail("the echo");
}

static void expect_end(int fd)
{
    char byte;
    if (recv(fd, &byte, 1, 0) != 0)
        fail("the end");
}

static void cycle(int port, uint64_t turn)
{
    int fd = connect_to(port);
    for (int i = 0; i < ROUNDS; i++) {
        say(fd, MESSAGE, 'm', turn);
        hear(fd, MESSAGE, 'm', turn);
    }
    struct linger at_once = { 1, 0 };
    switch (turn % 6) {
    case 0:
        break;
    case 1: /* in order */
        shutdown(fd, SHUT_WR);
        expect_end(fd);
        break;
    case 2: /* unread bytes */
        say(fd, MESSAGE, 'm', turn);
        break;
    case 3: /* reset */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        break;
    case 4: /* the other end first */
        say(fd, MESSAGE, LAST, turn);
        hear(fd, MESSAGE, LAST, turn);
        expect_end(fd);
        break;
    default: /* in the middle of much */
        say(fd, BURST, 'm', turn);
        hear(fd, 1, 'm', turn);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2) {
        server();
        return 0;
    }
    static uint64_t turn;
    int port = atoi(argv[2]);
    char line[100];
    if (argc == 4) {
        for (int n = atoi(argv[3]); n > 0; n--)
            cycle(port, turn++);
        return 0;
    }
    while (fgets(line, sizeof line, stdin)) {
        for (int n = atoi(line); n > 0; n--)
            cycle(port, turn++);
        report();
    }
    return 0;
}
