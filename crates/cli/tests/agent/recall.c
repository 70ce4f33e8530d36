/* Numbered datagrams to a socket that others come to have.
 *
 *   recall reader FILE PORT HOW [FD]   a socket at PORT (0: any; HOW: kept = close-on-exec, passed = not), or FD. Prints "port PORT FD",
 *                                      then does what the lines of its standard input say, and prints a line for each:
 *       look          takes what is there, until there is nothing: "got N"
 *       take N        takes N, and waits for them: "got N"
 *       drops         what the kernel has dropped at the socket: "drops N"
 *       connect PORT  to who sends from there: "connected PORT"
 *       inherit       makes it inheritable: "took WALL CPU", in microseconds
 *       exec          becomes this program anew, with the socket: "port PORT FD"
 *       vfork         a vfork child becomes another program: "status N"
 *       heir          a forked child becomes this program, with the socket and the input, until a line "end": "port PORT FD", and at last
 *                     "status N" of its parent, which goes on then
 *       rest          a forked child ends at once: "status N"
 *   recall writer ID PORT HOW          a socket (HOW: connected, bound, everywhere). Prints "port PORT", then as above:
 *       send N        N numbered datagrams: "sent ALL LONGEST", all so far, and the longest send in microseconds
 *       flood         "flooding", and sends until the next line: "sent ALL LONGEST"
 *       refused       how many sends said ECONNREFUSED: "refused N"
 *
 * What was received stands in FILE, whoever received it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* No program runs longer, whatever it waits for. */
#define LIFETIME 60

enum { WRITERS = 4, NUMBERS = 1 << 22, WORDS = 8 };

struct seen {
    volatile uint64_t received, twice, disorder, damaged, next;
    volatile uint8_t bits[NUMBERS / 8];
};

static struct seen *all;
static const char *program;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

static void say(const char *what, uint64_t one)
{
    printf("%s %llu\n", what, (unsigned long long)one);
    fflush(stdout);
}

static void say_two(const char *what, uint64_t one, uint64_t two)
{
    printf("%s %llu %llu\n", what, (unsigned long long)one, (unsigned long long)two);
    fflush(stdout);
}

/* Nothing is read ahead: it may be for another image, or a child. */
static int hear(char *line, size_t most)
{
    size_t n = 0;
    while (n + 1 < most && read(0, line + n, 1) == 1) {
        if (line[n] == '\n') {
            line[n] = 0;
            return 1;
        }
        n++;
    }
    return 0;
}

static struct sockaddr_in loopback(const char *port)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
}

static int bound(const char *port, int flags)
{
    struct sockaddr_in a = loopback(port);
    int s = socket(AF_INET, SOCK_DGRAM | flags, 0);
    /* A child of the test's, not yet another program, may have a copy of what was there: until LIFETIME. */
    while (s >= 0 && bind(s, (void *)&a, sizeof a) < 0)
        if (errno != EADDRINUSE)
            fail("a socket");
    return s;
}

static int port_of(int s)
{
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    if (getsockname(s, (void *)&a, &len) < 0)
        fail("getsockname");
    return ntohs(a.sin_port);
}

/* ---------------------------------------------------------------- reader */

static void note(const uint64_t *words, ssize_t n)
{
    uint64_t id = words[0], number = words[1];
    struct seen *s = &all[id < WRITERS ? id : 0];
    int whole = n == WORDS * 8 && id < WRITERS && number < NUMBERS;
    for (int i = 2; whole && i < WORDS; i++)
        whole = words[i] == (id + 1) * 0x9e3779b97f4a7c15ull + number * i;
    if (!whole) {
        s->damaged++;
        return;
    }
    if (s->bits[number / 8] >> number % 8 & 1)
        s->twice++;
    s->bits[number / 8] |= 1 << number % 8;
    if (number < s->next)
        s->disorder++;
    else
        s->next = number + 1;
    s->received++;
}

static int take_one(int s, int flags)
{
    uint64_t words[WORDS + 1];
    ssize_t n = recv(s, words, sizeof words, flags);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        fail("recv");
    note(words, n);
    return 1;
}

/* Until there is nothing, as the kernel says, too: EAGAIN may be late by microseconds. */
static uint64_t look(int s)
{
    uint64_t got = 0;
    for (int in_vain = 0; in_vain < 3;) {
        if (take_one(s, MSG_DONTWAIT)) {
            got++;
            in_vain = 0;
        } else {
            uint64_t until = now_us(CLOCK_MONOTONIC) + 5;
            while (now_us(CLOCK_MONOTONIC) < until)
                ;
            in_vain++;
        }
    }
    return got;
}

static void become(int s, const char *file)
{
    char fd[16];
    snprintf(fd, sizeof fd, "%d", s);
    execl(program, program, "reader", file, "0", "-", fd, NULL);
    fail("exec");
}

static void say_status(pid_t pid)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        fail("a child");
    say("status", status);
}

/* False: it is over. */
static int does(int s, const char *file, const char *line)
{
    uint32_t memory[9] = {0};
    socklen_t len = sizeof memory;
    if (!strcmp(line, "look")) {
        say("got", look(s));
    } else if (!strncmp(line, "take ", 5)) {
        uint64_t wanted = atoi(line + 5), got = 0;
        while (got < wanted)
            got += take_one(s, 0);
        say("got", got);
    } else if (!strcmp(line, "drops")) {
        if (getsockopt(s, SOL_SOCKET, SO_MEMINFO, memory, &len) < 0 || len < sizeof memory)
            fail("SO_MEMINFO");
        say("drops", memory[8]);
    } else if (!strncmp(line, "connect ", 8)) {
        struct sockaddr_in to = loopback(line + 8);
        if (connect(s, (void *)&to, sizeof to) < 0)
            fail("connect");
        say("connected", atoi(line + 8));
    } else if (!strcmp(line, "inherit")) {
        uint64_t wall = now_us(CLOCK_MONOTONIC), cpu = now_us(CLOCK_THREAD_CPUTIME_ID);
        if (fcntl(s, F_SETFD, 0) < 0)
            fail("F_SETFD");
        say_two("took", now_us(CLOCK_MONOTONIC) - wall, now_us(CLOCK_THREAD_CPUTIME_ID) - cpu);
    } else if (!strcmp(line, "exec")) {
        become(s, file);
    } else if (!strcmp(line, "vfork")) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/true", "true", NULL);
            _exit(127);
        }
        say_status(pid);
    } else if (!strcmp(line, "rest")) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        say_status(pid);
    } else if (!strcmp(line, "heir")) {
        pid_t pid = fork();
        if (pid == 0)
            become(s, file);
        say_status(pid);
    } else if (!strcmp(line, "end")) {
        return 0;
    } else {
        fail(line);
    }
    return 1;
}

static int reader(char **words, int count)
{
    int fd = open(words[0], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, WRITERS * sizeof *all) < 0)
        fail(words[0]);
    all = mmap(NULL, WRITERS * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (all == MAP_FAILED)
        fail(words[0]);
    int s = count == 4 ? atoi(words[3]) : bound(words[1], strcmp(words[2], "kept") ? 0 : SOCK_CLOEXEC);
    char line[64];
    say_two("port", port_of(s), s);
    while (hear(line, sizeof line) && does(s, words[0], line))
        ;
    return 0;
}

/* ---------------------------------------------------------------- writer */

static uint64_t sent, refused, longest;

static void send_one(int s, const struct sockaddr_in *to, uint64_t id)
{
    uint64_t words[WORDS] = {id, sent};
    for (int i = 2; i < WORDS; i++)
        words[i] = (id + 1) * 0x9e3779b97f4a7c15ull + sent * i;
    uint64_t begin = now_us(CLOCK_MONOTONIC);
    ssize_t n = to ? sendto(s, words, sizeof words, 0, (void *)to, sizeof *to) : send(s, words, sizeof words, 0);
    uint64_t took = now_us(CLOCK_MONOTONIC) - begin;
    if (took > longest)
        longest = took;
    if (n == sizeof words)
        sent++;
    else if (n < 0 && errno == ECONNREFUSED)
        refused++;
    else
        fail("send");
}

static int writer(char **words)
{
    int id = atoi(words[0]), connected = !strcmp(words[2], "connected");
    struct sockaddr_in to = loopback(words[1]);
    /* One that is not bound gets its port, at every address, from its first send. */
    int s = strcmp(words[2], "bound") ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : bound("0", SOCK_CLOEXEC);
    const struct sockaddr_in *at = connected ? NULL : &to;
    if (connected && connect(s, (void *)&to, sizeof to) < 0)
        fail("connect");
    send_one(s, at, id);
    say("port", port_of(s));
    char line[64];
    while (hear(line, sizeof line)) {
        longest = 0;
        if (!strncmp(line, "send ", 5)) {
            for (uint64_t end = sent + refused + atoi(line + 5); sent + refused < end;)
                send_one(s, at, id);
            say_two("sent", sent, longest);
        } else if (!strcmp(line, "flood")) {
            struct pollfd input = {.fd = 0, .events = POLLIN};
            printf("flooding\n");
            fflush(stdout);
            /* By a call that no library sees: nobody sleeps here. */
            while (syscall(SYS_poll, &input, 1, 0) == 0 && sent < NUMBERS - 64)
                for (int i = 0; i < 64; i++)
                    send_one(s, at, id);
            hear(line, sizeof line);
            say_two("sent", sent, longest);
        } else if (!strcmp(line, "refused")) {
            say("refused", refused);
        } else {
            fail(line);
        }
    }
    return 0;
}

int main(int count, char **words)
{
    alarm(LIFETIME);
    program = words[0];
    if (count >= 5 && !strcmp(words[1], "reader"))
        return reader(words + 2, count - 2);
    if (count == 5 && !strcmp(words[1], "writer"))
        return writer(words + 2);
    return 2;
}
