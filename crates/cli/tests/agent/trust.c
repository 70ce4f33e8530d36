/* What a hostile peer is let loose on: a program that knows nothing of rings.
 *
 *   trust threads|poll|epoll   prints its port, then echoes: each octet comes back with its top bit set, and nobody sends
 *                              octets with it. A piece that begins with FLOOD is answered by more than a small ring holds, too.
 *   trust room                 prints its port, echoes to one until a piece ends with FLOOD, and sends octets for each line it hears, behind a poll for room:
 *                              room, sent; for "fill" as many as there is room for
 *   trust octets               the same, but receives one, behind a poll for octets: octets, received
 *   trust herd                 as poll, with four threads for each connection, of which one gets what all were told of
 *   trust drip PORT            sends single octets by eight connections, with long pauses, and hears as many
 *   trust sink                 as threads, without answers to control characters; a piece with FLOOD in it has another thread shut the connection down a
 *                              moment later
 *   trust strict [OCTETS]      prints its port, echoes to one until a piece ends with FLOOD, has OCTETS for SO_SNDBUF from then on, sends what goes
 *                              for two seconds, and then allows itself no system calls but read, write and exit
 *   trust exec                 prints its port, echoes to one until a piece ends with FLOOD, and executes itself: trust anew, which says so
 *   trust talk PORT...         sends numbered messages to each and compares the echo, until its standard input ends
 *   trust steps PORT           the same, and says so of each
 *
 * Octets stand at the end of a page behind which there is no memory. Whoever gets an octet that nobody can have sent, or one that was not written,
 * a wrong echo or none in time says so and fails. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 16384, FLOOD = 0x7f, FLOODED = 49152, ENDS = 65536, PAGE = 4096, UNTOUCHED = 0xee };

static unsigned char *flood;

static void fail(const char *what) {
    printf("wrong: %s (%s)\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* The address behind the last of so many octets (a multiple of a page). */
static unsigned char *area(size_t octets) {
    unsigned char *at = mmap(NULL, octets + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + octets, PAGE, PROT_NONE))
        fail("memory");
    return at + octets;
}

/* Every way to read that leads to other code of the library. */
static ssize_t take(int s, unsigned char *at, size_t most, unsigned turn) {
    struct iovec two[2] = {{at, most / 2}, {at + most / 2, most - most / 2}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
    switch (turn % 5) {
    case 0:
        return read(s, at, most);
    case 1:
        return recv(s, at, most, 0);
    case 2:
        return readv(s, two, 2);
    case 3:
        return recvmsg(s, &message, 0);
    default: {
        ssize_t seen = recv(s, at, most, MSG_PEEK);
        if (seen <= 0)
            return seen;
        return recv(s, at, most, 0);
    }
    }
}

static int is_sink, polls, is_herd;

static void *shut_down(void *argument) {
    usleep(100000);
    shutdown((int)(long)argument, SHUT_RDWR);
    return NULL;
}

/* One piece and its answer. False: it is over. */
static int serve(int s, unsigned char *end, unsigned turn) {
    static const size_t MOST[] = {PIECE, PIECE, 1500, PIECE, 64};
    size_t most = MOST[turn / 5 % 5];
    unsigned char *piece = end - most;
    memset(piece, UNTOUCHED, most);
    time_t begun = time(NULL);
    ssize_t n = take(s, piece, most, turn);
    if (polls && time(NULL) - begun > 4)
        fail("a receive behind a poll waits");
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n <= 0)
        return 0;
    if (n > (ssize_t)most)
        fail("more octets than were asked for");
    if (is_sink && (piece[0] < ' ' || piece[0] == FLOOD)) {
        pthread_t thread;
        if (is_sink == 1 && memchr(piece, FLOOD, n) && is_sink++ &&
            (pthread_create(&thread, NULL, shut_down, (void *)(long)s) || pthread_detach(thread)))
            fail("a thread");
        /* Whoever pours is faster. */
        usleep(4000);
        return 1;
    }
    int floods = piece[0] == FLOOD;
    /* The answer ends where its memory does, too. */
    memmove(end - n, piece, n);
    piece = end - n;
    for (ssize_t i = 0; i < n; i++) {
        if (piece[i] & 0x80)
            fail("an octet that nobody sent");
        piece[i] |= 0x80;
    }
    if (send(s, piece, n, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        return 0;
    return !floods || send(s, flood, FLOODED, MSG_NOSIGNAL) >= 0 || errno == EAGAIN;
}

static void ended(int s) {
    /* Whoever looks at /proc/PID/fd just then has the file for a moment: until he lets it go the set tells of what is closed, on the kernel alone, too. */
    if (close(s))
        return;
    printf("end\n");
    fflush(stdout);
}

static int wait_for(int s, short what) {
    struct pollfd one = {.fd = s, .events = what};
    return poll(&one, 1, -1);
}

static void *one(void *argument) {
    int s = (int)(long)argument;
    unsigned char *end = area(PIECE);
    for (unsigned turn = s; (!(polls || is_herd) || wait_for(s, POLLIN) >= 0) && serve(s, end, turn); turn++)
        ;
    munmap(end - PIECE, PIECE + PAGE);
    ended(s);
    return NULL;
}

static int listener(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, len) || listen(l, 64) || getsockname(l, (void *)&a, &len))
        fail("listen");
    printf("port %d\n", ntohs(a.sin_port));
    fflush(stdout);
    return l;
}

static void threads(void) {
    int l = listener();
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (;;) {
        int s = accept(l, NULL, NULL);
        pthread_t thread;
        for (int i = 0; s >= 0 && i < (is_herd ? 4 : 1); i++)
            if (pthread_create(&thread, &detached, one, (void *)(long)s))
                fail("a thread");
    }
}

static void set(void) {
    static unsigned turns[ENDS];
    unsigned char *end = area(PIECE);
    int l = listener(), e = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = l}, events[16];
    epoll_ctl(e, EPOLL_CTL_ADD, l, &event);
    for (;;) {
        int n = epoll_wait(e, events, 16, -1);
        for (int i = 0; i < n; i++) {
            int s = events[i].data.fd;
            if (s == l) {
                s = accept4(l, NULL, NULL, SOCK_NONBLOCK);
                event.data.fd = s;
                if (s >= 0 && epoll_ctl(e, EPOLL_CTL_ADD, s, &event))
                    fail("a registration");
            } else if (!serve(s, end, turns[s % ENDS]++)) {
                ended(s);
            }
        }
    }
}

/* Echoes to one until a piece ends with FLOOD. */
static int echoed(unsigned char *piece) {
    int l = listener(), s = accept(l, NULL, NULL);
    for (;;) {
        ssize_t n = recv(s, piece, PIECE, 0);
        if (n <= 0)
            fail("nothing to echo");
        if (piece[n - 1] == FLOOD)
            return s;
        for (ssize_t i = 0; i < n; i++)
            piece[i] |= 0x80;
        send(s, piece, n, MSG_NOSIGNAL);
    }
}

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

/* Waits until poll tells of something, and until it is told to go on. */
static int is_told(int s, short events, const char *what) {
    static char line[16];
    if (wait_for(s, events) != 1)
        fail("poll");
    say(what);
    if (!fgets(line, sizeof line, stdin))
        exit(0);
    return *line;
}

static void room(void) {
    int s = echoed(area(PIECE) - PIECE);
    for (;;) {
        int fills = is_told(s, POLLOUT, "room") == 'f';
        if (!fills && send(s, flood, PAGE, MSG_NOSIGNAL) != PAGE)
            fail("send");
        while (fills && send(s, flood, PAGE, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
            ;
        say("sent");
    }
}

static void octets(void) {
    int s = echoed(area(PIECE) - PIECE);
    char octet;
    for (;;) {
        is_told(s, POLLIN, "octets");
        if (recv(s, &octet, 1, 0) != 1)
            return say(strerror(errno));
        say("received");
    }
}

static void strict(int buffer) {
    unsigned char *piece = area(PIECE) - PIECE;
    int s = echoed(piece);
    if (buffer && setsockopt(s, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer))
        fail("SO_SNDBUF");
    fcntl(s, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 100; i++) {
        while (send(s, flood, FLOODED, MSG_NOSIGNAL) > 0)
            ;
        usleep(20000);
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        fail("prctl");
    if (read(s, piece, 1) < 2 && write(1, "strict\n", 7) == 7)
        syscall(SYS_exit, 0);
}

static int steps;

static void *talk(void *argument) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((int)(long)argument),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&a, sizeof a))
        fail("connect");
    unsigned seed = (unsigned)(long)argument;
    unsigned char *said_end = area(PAGE), *heard_end = area(PAGE);
    for (unsigned turn = 0;; turn++) {
        size_t len = 1 + rand_r(&seed) % 2048;
        unsigned char *said = said_end - len, *heard = heard_end - len;
        for (size_t i = 0; i < len; i++)
            said[i] = (turn + i) % 100;
        if (send(s, said, len, MSG_NOSIGNAL) != (ssize_t)len)
            fail("send");
        for (size_t done = 0; done < len;) {
            struct pollfd one = {.fd = s, .events = POLLIN};
            if (poll(&one, 1, 20000) != 1)
                fail("no echo in 20 seconds");
            ssize_t n = recv(s, heard + done, len - done, 0);
            if (n <= 0)
                fail("the echo ends");
            done += n;
        }
        for (size_t i = 0; i < len; i++)
            if (heard[i] != (said[i] | 0x80))
                fail("another echo");
        if (steps || turn == 100) {
            printf(steps ? "step\n" : "talking\n");
            fflush(stdout);
        }
        if (turn > 100 && turn % 4 == 0)
            usleep(rand_r(&seed) % 2000);
    }
    return NULL;
}

static void drip(int port) {
    enum { LINES = 8, ROUNDS = 3, DROPS = 100 };
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int line[LINES], owed[LINES] = {0};
    unsigned seed = 1;
    char octets[64] = "lll";
    for (int i = 0; i < LINES; i++) {
        line[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(line[i], (void *)&a, sizeof a))
            fail("connect");
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int drop = 0; drop < DROPS; drop++) {
            for (int i = 0; i < LINES; i++) {
                int n = 1 + rand_r(&seed) % 3;
                if (send(line[i], octets, n, MSG_NOSIGNAL) != n)
                    fail("a drop");
                owed[i] += n;
            }
            usleep(drop % 3 ? 200 : 20);
        }
        /* Longer than anybody waits for what was told, and is not there. */
        usleep(2500000);
        for (int i = 0; i < LINES; i++)
            while (owed[i] > 0) {
                struct pollfd one = {.fd = line[i], .events = POLLIN};
                ssize_t n = poll(&one, 1, 20000) == 1 ? recv(line[i], octets, sizeof octets, 0) : 0;
                if (n <= 0)
                    fail("an echo is missing");
                owed[i] -= n;
            }
        memcpy(octets, "lll", 3);
    }
    puts("dripped");
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    flood = area(FLOODED) - FLOODED;
    memset(flood, 0xff, FLOODED);
    polls = !strcmp(mode, "poll");
    is_sink = !strcmp(mode, "sink");
    is_herd = !strcmp(mode, "herd");
    if (!strcmp(mode, "threads") || polls || is_sink || is_herd)
        threads();
    if (!strcmp(mode, "epoll"))
        set();
    if (!strcmp(mode, "room"))
        return room(), 0;
    if (!strcmp(mode, "octets"))
        return octets(), 0;
    if (!strcmp(mode, "strict"))
        strict(count > 2 ? atoi(words[2]) : 0);
    if (!strcmp(mode, "exec")) {
        echoed(area(PIECE) - PIECE);
        execl(words[0], words[0], "anew", NULL);
        fail("exec");
    }
    if (!strcmp(mode, "anew"))
        return puts("anew") < 0;
    if (!strcmp(mode, "drip") && count > 2)
        return drip(atoi(words[2])), 0;
    steps = !strcmp(mode, "steps");
    if (strcmp(mode, "talk") && !steps)
        return 2;
    for (int i = 2; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, talk, (void *)(long)atoi(words[i])))
            fail("a thread");
    }
    while (getchar() != EOF)
        ;
    return 0;
}
