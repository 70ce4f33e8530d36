/* Connect, a 64-byte request, a 64-byte reply, close; again and again.
 *   churn server ADDRESS                prints the connections per second that it served
 *   churn client ADDRESS SECONDS
 * Every reply is checked: it is the request's pattern with the next number. */
#include "net.h"

enum { SIZE = 64 };
static const uint32_t LAST = UINT32_MAX;

struct message {
    uint32_t number;
    unsigned char rest[SIZE - 4];
};

static void client(const char *text, double seconds) {
    struct address a = parse(text);
    struct message m;
    uint64_t start = now_ns();
    for (uint32_t number = 0, last = 0; !last; number++) {
        last = now_ns() - start >= (uint64_t)(seconds * 1e9);
        int fd = connect_to(&a);
        m.number = last ? LAST : number;
        fill(m.rest, sizeof m.rest, number);
        send_all(fd, &m, SIZE);
        if (!recv_all(fd, &m, SIZE)) wrong("no reply");
        check(m.rest, sizeof m.rest, number + 1);
        close(fd);
    }
}

static void server(const char *text) {
    int listener = listen_at(text);
    struct message m;
    uint64_t start = 0, connections = 0;
    for (uint32_t number = 0;; number++) {
        int fd = accept_one(listener);
        if (!start) start = now_ns();
        if (!recv_all(fd, &m, SIZE)) wrong("no request");
        check(m.rest, sizeof m.rest, number);
        if (m.number != LAST && m.number != number) wrong("a connection was lost or doubled");
        fill(m.rest, sizeof m.rest, number + 1);
        send_all(fd, &m, SIZE);
        if (recv(fd, m.rest, 1, 0) != 0) wrong("more bytes than were sent");
        close(fd);
        connections++;
        if (m.number == LAST) break;
    }
    printf("%.0f\n", (double)connections * 1e9 / (double)(now_ns() - start));
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "server")) server(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "client")) client(argv[2], atof(argv[3]));
    else return fprintf(stderr, "usage: churn server ADDRESS | client ADDRESS SECONDS\n"), 1;
    return 0;
}
