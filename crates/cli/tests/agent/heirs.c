/* A connection shared by a process and its child, one of which is killed: the other goes on with it.
 *
 *   heirs peer DUTY PLACE          prints its port and serves one connection
 *   heirs family DUTY PLACE PORT   connects; a parent and a child
 *
 * DUTY has two words, VICTIM-ACTION: the victim is the child, forked after a dialogue, or the parent, where a child
 * is forked by a signal handler at the very point. It is killed while it
 *
 *   writes     the peer reading and (if the child is the victim) the parent writing at the same time;
 *   stalls     writes, with a peer that does not read before somebody has died;
 *   departs    the same, and the survivor writes no more: what the dead one had sent must arrive all the same;
 *   falls      the same (the child alone), and the parent has been asleep in a read of the connection for long;
 *   reads      what the peer sends.
 *
 * What parent and child write is told apart by the top bit of each byte. The peer prints what it got of each and the
 * survivor what it read. PLACE is a directory with two named pipes and a file for the progress of parent and child. */
#include "crash.h"
#include <sys/syscall.h>
#include <time.h>

#define MESSAGE 200
#define ROUNDS 40
#define CHUNK 1000
#define BULK 300000 /* what the peer sends to readers, and what the survivor writes */
#define PEER 7      /* the peer's stream */

static struct progress *progress; /* of the parent and of the child */
static int from_other = -1, to_other = -1, fd = -1;
static int lifeline[2]; /* open in the parent alone: its end is seen */
static const char *victim, *action;
static uint64_t sent, got; /* by this process, of the peer's stream by all */

static unsigned char byte_of(int who, uint64_t p)
{
    return (unsigned char)(who << 7 | (stream_byte(1 + who, p) & 0x7f));
}

static void open_pipes(const char *place, int is_peer)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/to-peer", place);
    int first = open(path, (is_peer ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/to-family", place);
    int second = open(path, (is_peer ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (first < 0 || second < 0)
        fail("the pipes");
    from_other = is_peer ? first : second;
    to_other = is_peer ? second : first;
}

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- the family ----------------------------------------------------------------------------------------- */

static void give(int who, size_t n)
{
    while (n > 0) {
        unsigned char bytes[CHUNK];
        size_t len = n < sizeof bytes ? n : sizeof bytes;
        for (size_t i = 0; i < len; i++)
            bytes[i] = byte_of(who, sent + i);
        progress[who].attempted = sent + len;
        ssize_t r = send(fd, bytes, len, MSG_NOSIGNAL);
        if (r <= 0)
            fail("send");
        progress[who].returned = sent += r;
        n -= r;
    }
}

/* Reads and verifies; 0 at the end. */
static ssize_t take(int who, size_t n)
{
    unsigned char bytes[CHUNK];
    if (n > sizeof bytes)
        n = sizeof bytes;
    progress[who].asked = got + n;
    ssize_t r = recv(fd, bytes, n, 0);
    if (r < 0)
        fail("recv");
    for (ssize_t i = 0; i < r; i++)
        if (bytes[i] != stream_byte(PEER, got + i)) {
            fprintf(stderr, "wrong byte at %llu\n", (unsigned long long)(got + i));
            exit(2);
        }
    progress[who].received = got += r;
    progress[who].asked = got;
    return r;
}

/* Where the peer's stream goes on after the death of `who`, which may have died inside a read: the bytes tell. */
static void find_place(int who)
{
    unsigned char bytes[CHUNK];
    uint64_t from = progress[who].received, to = progress[who].asked, found = 0;
    int places = 0;
    ssize_t r = from == to ? 0 : recv(fd, bytes, sizeof bytes, MSG_PEEK);
    if (r < 0)
        fail("peek");
    got = from;
    for (uint64_t p = from; r > 0 && p <= to; p++) {
        ssize_t i = 0;
        while (i < r && bytes[i] == stream_byte(PEER, p + i))
            i++;
        if (i == r) {
            found = p;
            places++;
        }
    }
    if (r > 0 && places != 1) {
        fprintf(stderr, "bytes from %d places between %llu and %llu\n", places, (unsigned long long)from,
                (unsigned long long)to);
        exit(2);
    }
    if (r > 0)
        got = found;
}

static void meet(void)
{
    if (write(to_other, "x", 1) < 0 || read(from_other, &(char){ 0 }, 1) < 0)
        fail("the pipe");
}

/* What the survivor does, when the other is dead. */
static void survive(int who)
{
    if (is(action, "stalls") || is(action, "departs"))
        meet();
    if (!is(action, "departs")) {
        give(who, BULK);
        if (shutdown(fd, SHUT_WR) < 0)
            fail("shutdown");
    }
    find_place(!who);
    while (take(who, CHUNK) > 0)
        ;
    printf("survivor received=%llu\n", (unsigned long long)got);
    fflush(stdout);
    exit(0);
}

/* Does what it is to be killed at. */
static void be_killed(int who)
{
    if (is(action, "reads"))
        while (take(who, CHUNK) > 0)
            ;
    else
        give(who, 4 << 20);
    fprintf(stderr, "nobody died\n");
    exit(3);
}

/* At the point where the parent dies: the child that survives it. */
static void at_the_point(int signal)
{
    (void)signal;
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child > 0)
        return;
    alarm(LIFETIME);
    close(lifeline[1]);
    if (read(lifeline[0], &(char){ 0 }, 1) != 0)
        fail("the lifeline");
    sent = 0;
    survive(1);
}

/* Tells the peer of the child's death, while the parent's only other thread sleeps. */
static void *mourn(void *child)
{
    char byte = 'x';
    siginfo_t info;
    if (syscall(SYS_waitid, P_PID, *(pid_t *)child, &info, WEXITED | WNOWAIT, NULL) < 0 || info.si_code != CLD_KILLED)
        fail("nobody died");
    if (write(to_other, &byte, 1) != 1)
        fail("the pipe");
    return NULL;
}

/* What nobody else does for the child's bytes must be done from this sleep. */
static void sleep_beside(pid_t child)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, mourn, &child) != 0)
        fail("pthread_create");
    while (take(0, CHUNK) > 0)
        ;
    pthread_join(thread, NULL);
    printf("survivor received=%llu\n", (unsigned long long)got);
    fflush(stdout);
    exit(0);
}

static void family(const char *place, int port)
{
    struct sigaction act = { .sa_handler = at_the_point };
    if (pipe2(lifeline, O_CLOEXEC) < 0 || sigaction(SIGUSR2, &act, NULL) < 0)
        fail("sigaction");
    open_pipes(place, 0);
    fd = connect_to(port);
    for (int i = 0; i < ROUNDS; i++) {
        give(0, MESSAGE);
        for (uint64_t until = got + MESSAGE; got < until;)
            if (take(0, until - got) == 0)
                fail("the dialogue");
    }
    if (is(victim, "parent"))
        be_killed(0);
    progress[1] = (struct progress){ .received = got, .asked = got };
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        alarm(LIFETIME);
        sent = 0;
        /* By then the parent's sleep is not the first after its own writes: nothing else wakes it. */
        if (is(action, "falls"))
            nanosleep(&(struct timespec){ .tv_nsec = 900000000 }, NULL);
        be_killed(1);
    }
    if (is(action, "falls"))
        sleep_beside(child);
    if (is(action, "writes"))
        give(0, BULK);
    /* Not reaped until the end: a zombie is dead too. */
    siginfo_t info;
    if (waitid(P_PID, child, &info, WEXITED | WNOWAIT) < 0)
        fail("waitid");
    if (info.si_code != CLD_KILLED || info.si_status != SIGKILL) {
        fprintf(stderr, "nobody died\n");
        exit(3);
    }
    survive(0);
}

/* ---- the peer ------------------------------------------------------------------------------------------- */

static void peer_gives(size_t n)
{
    while (n > 0) {
        unsigned char bytes[CHUNK];
        size_t len = n < sizeof bytes ? n : sizeof bytes;
        for (size_t i = 0; i < len; i++)
            bytes[i] = stream_byte(PEER, sent + i);
        ssize_t r = send(fd, bytes, len, MSG_NOSIGNAL);
        if (r <= 0)
            fail("send");
        sent += r;
        n -= r;
    }
}

static void peer(const char *place)
{
    uint64_t count[2] = { 0, 0 }, last_words = UINT64_MAX;
    int listener = listen_on_loopback();
    open_pipes(place, 1);
    fd = accept_one(listener);
    for (;;) {
        unsigned char bytes[CHUNK];
        ssize_t r = recv(fd, bytes, sizeof bytes, 0);
        if (r < 0)
            fail("recv");
        for (ssize_t i = 0; i < r; i++) {
            int who = bytes[i] >> 7;
            if (bytes[i] != byte_of(who, count[who])) {
                fprintf(stderr, "wrong byte at %llu of the %s's stream\n", (unsigned long long)count[who],
                        who ? "child" : "parent");
                exit(2);
            }
            count[who]++;
        }
        uint64_t replies = MESSAGE * ROUNDS, dead = is(victim, "child");
        if (sent < replies) {
            /* A dialogue; then what the duty asks for. */
            peer_gives((uint64_t)r < replies - sent ? (uint64_t)r : replies - sent);
            if (sent == replies && is(action, "reads"))
                peer_gives(BULK);
            int waits = is(action, "stalls") || is(action, "departs") || is(action, "falls");
            if (sent == replies && waits) {
                if (read(from_other, bytes, 1) < 0 || write(to_other, "x", 1) < 0)
                    fail("the pipe");
                if (!is(action, "stalls"))
                    last_words = progress[dead].returned;
            }
        }
        if (r == 0)
            break;
        if (count[dead] >= last_words) {
            /* The survivor writes nothing: what the dead one had sent was all. */
            if (shutdown(fd, SHUT_WR) < 0)
                fail("shutdown");
            last_words = UINT64_MAX;
        }
    }
    printf("peer parent=%llu child=%llu sent=%llu\n", (unsigned long long)count[0], (unsigned long long)count[1],
           (unsigned long long)sent);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char duty[64];
    char path[4096];
    if (argc < 4)
        return 64;
    alarm(LIFETIME);
    signal(SIGPIPE, SIG_IGN);
    snprintf(duty, sizeof duty, "%s", argv[2]);
    victim = duty;
    action = strchr(duty, '-') + 1;
    *strchr(duty, '-') = 0;
    snprintf(path, sizeof path, "%s/family.progress", argv[3]);
    progress = map_progress(path);
    if (is(argv[1], "peer"))
        peer(argv[3]);
    else
        family(argv[3], atoi(argv[4]));
    return 0;
}
