/* What hostile ends of mailboxes are let loose on: a program that sends and receives datagrams, and knows nothing of mailboxes.
 *
 *   mail            prints "echo PORT" (answers there), then does what the lines of its standard input say:
 *                     receive HOW    a socket; prints "port P", then takes what comes until that is END, and prints "end"
 *                     send PORT      a socket that sends there again and again; prints "sending"
 *                     stop           that one ends; prints "sent"
 *                   HOW: threads (two that block), timed (SO_RCVTIMEO), poll, epoll, edges (EPOLLET)
 *   mail talk PORT  sends numbered datagrams and compares the echo, until its standard input ends
 *
 * Octets stand at the end of a page behind which there is no memory. Who gets more than there is room for, a datagram of which
 * some octets were not written, a wrong echo or none in time says so and fails. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { AREA = 1 << 17, PAGE = 4096, UNTOUCHED = 0xee, RUN = 24, PATIENCE = 20000 };

static const unsigned char END[8] = {0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8};
static pthread_mutex_t says = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what) {
    printf("wrong: %s (%s)\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static void say(const char *what, int number) {
    pthread_mutex_lock(&says);
    printf(number < 0 ? "%s\n" : "%s %d\n", what, number);
    fflush(stdout);
    pthread_mutex_unlock(&says);
}

/* The address behind its last octet. */
static unsigned char *area(void) {
    unsigned char *at = mmap(NULL, AREA + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + AREA, PAGE, PROT_NONE))
        fail("memory");
    return at + AREA;
}

static void start(void *(*what)(void *), void *with) {
    pthread_attr_t detached;
    pthread_t thread;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, what, with))
        fail("a thread");
}

static int bound(int *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (void *)&a, len) || getsockname(s, (void *)&a, &len))
        fail("a socket");
    *port = ntohs(a.sin_port);
    return s;
}

/* ---------------------------------------------------------------- receiving */

struct box {
    int s, set, port, threads;
    int quiet; /* flags of each call */
};

/* Every way to receive that leads to other code of the library. What was received stands at *at, of `most` at most. */
static ssize_t take(int s, unsigned char *end, unsigned char **at, size_t *most, unsigned turn, int flags) {
    static const size_t MOST[] = {65536, 1500, 64, 8, 1};
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    char control[64];
    *most = MOST[turn / 9 % 5];
    *at = end - *most;
    memset(*at, UNTOUCHED, *most);
    struct iovec two[2] = {{*at, *most / 2}, {*at + *most / 2, *most - *most / 2}};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = two, .msg_iovlen = 2,
                             .msg_control = control, .msg_controllen = sizeof control};
    struct mmsghdr many[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    int next = 0;
    switch (turn % 9) {
    case 0:
        return flags ? recv(s, *at, *most, flags) : read(s, *at, *most);
    case 1:
        return recv(s, *at, *most, flags);
    case 2: {
        ssize_t n = recvfrom(s, *at, *most, flags, (void *)&from, &len);
        if (n >= 0 && len != sizeof from)
            fail("an address of another length");
        return n;
    }
    case 3:
        return flags ? recvmsg(s, &message, flags) : readv(s, two, 2);
    case 4: {
        ssize_t n = recvmsg(s, &message, flags);
        if (n >= 0 && (message.msg_namelen != sizeof from || message.msg_controllen > sizeof control))
            fail("a head of another length");
        return n;
    }
    case 5: {
        ssize_t seen = recv(s, *at, *most, flags | MSG_PEEK);
        return seen < 0 ? seen : recv(s, *at, *most, flags);
    }
    case 6:
        many[1].msg_hdr.msg_iovlen = 0;
        return recvmmsg(s, many, 2, flags | MSG_WAITFORONE, NULL) < 0 ? -1 : (ssize_t)many[0].msg_len;
    case 7: {
        ssize_t n = recv(s, *at, *most, flags | MSG_TRUNC);
        if (n > 65535)
            fail("a datagram that there cannot be");
        return n > (ssize_t)*most ? (ssize_t)*most : n;
    }
    default:
        if (ioctl(s, FIONREAD, &next) || next < 0 || next > 65535)
            fail("a length that there cannot be");
        return recv(s, *at, *most, flags);
    }
}

/* One look. 1: go on, 0: nothing now, -1: that was the end. */
static int serve(struct box *b, unsigned char *end, unsigned turn) {
    unsigned char *at;
    size_t most;
    ssize_t n = take(b->s, end, &at, &most, turn, b->quiet);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        fail("a receive");
    if (n > (ssize_t)most)
        fail("more octets than were asked for");
    for (ssize_t i = 0, run = 0; i < n; i++) {
        run = at[i] == UNTOUCHED ? run + 1 : 0;
        if (run == RUN)
            fail("octets that were not written");
    }
    return n == sizeof END && !memcmp(at, END, sizeof END) ? -1 : 1;
}

static void *receiver(void *argument) {
    struct box *b = argument;
    unsigned char *end = area();
    for (unsigned turn = b->port;; turn++) {
        struct pollfd one = {.fd = b->s, .events = POLLIN};
        struct epoll_event event;
        int ready = b->set ? epoll_wait(b->set, &event, 1, -1) : b->quiet ? poll(&one, 1, -1) : 1;
        if (ready < 0 && errno != EINTR)
            fail("a wait");
        int more;
        while ((more = serve(b, end, turn)) > 0)
            turn++;
        if (more < 0)
            break;
    }
    munmap(end - AREA, AREA + PAGE);
    if (__atomic_sub_fetch(&b->threads, 1, __ATOMIC_ACQ_REL) == 0) {
        close(b->s);
        if (b->set)
            close(b->set);
        free(b);
        say("end", -1);
    }
    return NULL;
}

static void receive(const char *how) {
    struct box *b = calloc(1, sizeof *b);
    int port;
    b->s = bound(&port);
    b->port = port;
    b->threads = !strcmp(how, "threads") ? 2 : 1;
    b->quiet = !strcmp(how, "poll") || !strcmp(how, "epoll") || !strcmp(how, "edges") ? MSG_DONTWAIT : 0;
    struct timeval time = {.tv_usec = 20000};
    if (!strcmp(how, "timed") && setsockopt(b->s, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time))
        fail("a time");
    if (!strcmp(how, "epoll") || !strcmp(how, "edges")) {
        struct epoll_event event = {.events = EPOLLIN | (how[1] == 'd' ? EPOLLET : 0)};
        b->set = epoll_create1(0);
        if (epoll_ctl(b->set, EPOLL_CTL_ADD, b->s, &event))
            fail("a registration");
    }
    int threads = b->threads;
    for (int i = 0; i < threads; i++)
        start(receiver, b);
    say("port", port);
}

/* ---------------------------------------------------------------- sending */

static int stops;

/* Every octet has the top bit. */
static void *sender(void *argument) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((int)(long)argument),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int port, s = bound(&port);
    unsigned seed = port, connected = port & 1;
    unsigned char *end = area(), answer[2048];
    memset(end - AREA, 0x91, AREA);
    if (connected && connect(s, (void *)&to, sizeof to))
        fail("connect");
    for (unsigned turn = 0; !__atomic_load_n(&stops, __ATOMIC_ACQUIRE); turn++) {
        size_t len = turn % 64 == 0 ? rand_r(&seed) % 65508 : rand_r(&seed) % 1500;
        unsigned char *at = end - len;
        struct iovec two[2] = {{at, len / 2}, {at + len / 2, len - len / 2}};
        struct msghdr message = {.msg_name = connected ? NULL : &to, .msg_namelen = connected ? 0 : sizeof to,
                                 .msg_iov = two, .msg_iovlen = 2};
        struct mmsghdr many[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
        ssize_t n;
        switch (turn % 4) {
        case 0:
            n = connected ? write(s, at, len) : sendto(s, at, len, 0, (void *)&to, sizeof to);
            break;
        case 1:
            n = connected ? send(s, at, len, MSG_DONTWAIT) : sendto(s, at, len, MSG_DONTWAIT, (void *)&to, sizeof to);
            break;
        case 2:
            n = sendmsg(s, &message, 0);
            break;
        default:
            n = sendmmsg(s, many, 2, 0) < 0 ? -1 : (ssize_t)many[0].msg_len;
        }
        if (n >= 0 ? n != (ssize_t)len : errno != ECONNREFUSED && errno != EAGAIN && errno != ENOBUFS)
            fail("a send");
        if (recv(s, answer, sizeof answer, MSG_DONTWAIT) > (ssize_t)sizeof answer)
            fail("more octets than were asked for");
        if (turn % 16 == 0)
            usleep(rand_r(&seed) % 300);
    }
    close(s);
    munmap(end - AREA, AREA + PAGE);
    say("sent", -1);
    return NULL;
}

/* ---------------------------------------------------------------- honest ends */

static void *echo(void *argument) {
    int s = (int)(long)argument;
    for (;;) {
        unsigned char piece[4096];
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(s, piece, sizeof piece, 0, (void *)&from, &len);
        if (n < 0 || len != sizeof from)
            fail("the echo");
        sendto(s, piece, n, 0, (void *)&from, len);
    }
    return NULL;
}

static int talk(int to) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(to), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int port, s = bound(&port);
    unsigned seed = 1;
    if (connect(s, (void *)&a, sizeof a))
        fail("connect");
    for (unsigned turn = 0;; turn++) {
        unsigned char said[2048], heard[4096];
        size_t len = 4 + rand_r(&seed) % (sizeof said - 4);
        for (size_t i = 0; i < len; i++)
            said[i] = turn * 7 + i;
        struct pollfd input = {.fd = 0, .events = POLLIN}, one = {.fd = s, .events = POLLIN};
        if (turn % 16 == 0 && poll(&input, 1, 0) == 1)
            return 0;
        if (send(s, said, len, 0) != (ssize_t)len)
            fail("send");
        if (turn % 2 && poll(&one, 1, PATIENCE) != 1)
            fail("no echo in time");
        struct timeval time = {.tv_sec = PATIENCE / 1000};
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
        ssize_t n = recv(s, heard, sizeof heard, 0);
        if (n != (ssize_t)len || memcmp(said, heard, len))
            fail("another echo");
        if (turn == 100)
            say("talking", -1);
        if (turn > 100 && turn % 4 == 0)
            usleep(rand_r(&seed) % 2000);
    }
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "talk"))
        return talk(atoi(words[2]));
    int port, s = bound(&port);
    start(echo, (void *)(long)s);
    say("echo", port);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "receive ", 8)) {
            receive(line + 8);
        } else if (!strncmp(line, "send ", 5)) {
            __atomic_store_n(&stops, 0, __ATOMIC_RELEASE);
            start(sender, (void *)(long)atoi(line + 5));
            say("sending", -1);
        } else if (!strcmp(line, "stop")) {
            __atomic_store_n(&stops, 1, __ATOMIC_RELEASE);
        } else {
            return 2;
        }
    }
    return 0;
}
