/* Moving bytes. Sent bytes are a pattern of (seed, position); received ones are answered as length, hash and
 * the first few. The hash of two pieces can be computed from theirs, so that it does not matter how a stream was cut. */
#include "agent.h"
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned char areas[SLOTS][AREA_SIZE + GUARD];
#define HASH_FACTOR 0x9e3779b97f4a7c15ull
#define UNREAD 0xEE

unsigned char *area(int slot) { return areas[slot]; }

void fill(unsigned char *to, size_t n, unsigned seed, size_t position)
{
    for (size_t i = 0; i < n; i++) {
        size_t p = position + i;
        to[i] = (unsigned char)(seed * 131 + p * 7 + (p >> 8) * 13 + (p >> 16) * 29);
    }
}

struct sum {
    size_t length;
    uint64_t hash;
    unsigned char head[4];
};

static void add(struct sum *s, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s->length < sizeof s->head)
            s->head[s->length] = p[i];
        s->length++;
        s->hash = s->hash * HASH_FACTOR + p[i] + 1;
    }
}

static void say_sum(struct out *o, const struct sum *s)
{
    say(o, " n=%zu h=%016llx", s->length, (unsigned long long)s->hash);
    for (size_t i = 0; i < s->length && i < sizeof s->head; i++)
        say(o, "%s%02x", i ? "" : " head=", s->head[i]);
}

/* Bytes that a call returned, and whether it wrote behind them. */
static void say_received(struct out *o, const unsigned char *p, long n, size_t room)
{
    struct sum s = {0};
    add(&s, p, n > 0 ? (size_t)n < room ? (size_t)n : room : 0);
    say_sum(o, &s);
    for (size_t i = 0; i < GUARD; i++)
        if (p[room + i] != UNREAD) {
            say(o, " overrun");
            return;
        }
}

void *bad_pointer(const char *kind, size_t len)
{
    if (strcmp(kind, "null") == 0)
        return NULL;
    if (strcmp(kind, "one") == 0)
        return (void *)1;
    if (strcmp(kind, "kernel") == 0)
        return (void *)0xffff888000000000ull;
    if (strcmp(kind, "noncanonical") == 0)
        return (void *)0x0800000000000000ull;
    size_t page = 4096, span = (len + page - 1) / page * page + page;
    char *at = mmap(NULL, 2 * span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    memset(at, 0x5a, 2 * span);
    if (strcmp(kind, "none") == 0) {
        mprotect(at, 2 * span, PROT_NONE);
        return at;
    }
    if (strcmp(kind, "readonly") == 0) {
        mprotect(at, 2 * span, PROT_READ);
        return at;
    }
    if (strcmp(kind, "unmapped") == 0) {
        munmap(at, 2 * span);
        return at;
    }
    if (strcmp(kind, "edge") == 0) { /* the second half is out of reach */
        mprotect(at + span, span, PROT_NONE);
        return at + span - len / 2;
    }
    abort();
}

/* LEN or LEN@KIND: a buffer of the slot's area at `offset`, or a bad one. */
static void *buffer(struct args *a, const char *word, size_t *len, size_t offset)
{
    char *kind = strchr(word, '@');
    *len = (size_t)number(word);
    if (kind)
        return bad_pointer(kind + 1, *len);
    return areas[a->slot] + offset;
}

static int split_iov(struct args *a, const char *words, struct iovec *iov, int most, size_t *total)
{
    char copy[1024], *save = NULL;
    int n = 0;
    *total = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, ",", &save); w && n < most; w = strtok_r(NULL, ",", &save)) {
        size_t len;
        iov[n].iov_base = buffer(a, w, &len, *total);
        iov[n].iov_len = len;
        if (!strchr(w, '@'))
            *total += len;
        n++;
    }
    return n;
}

static unsigned char *clear(struct args *a, size_t room)
{
    if (room > AREA_SIZE)
        abort();
    memset(areas[a->slot], UNREAD, room + GUARD);
    return areas[a->slot];
}

#define RECEIVE(expression)                                                                                  \
    size_t len;                                                                                              \
    size_t room = strchr(arg(a, 2), '@') ? 0 : (size_t)num(a, 2);                                            \
    unsigned char *start = clear(a, room);                                                                   \
    unsigned char *p = buffer(a, arg(a, 2), &len, 0);                                                        \
    errno = UNTOUCHED;                                                                                       \
    long got = (long)(expression);                                                                           \
    answer(o, got, errno);                                                                                   \
    say_received(o, start, got, room)

/* Into an object whose size the compiler knows, _FORTIFY_SOURCE makes these calls __read_chk and so on. */
static void do_read(struct args *a, struct out *o)
{
    int fd = (int)num(a, 1);
    RECEIVE(p == areas[0] ? read(fd, areas[0], len) : read(fd, p, len));
}
static void do_recv(struct args *a, struct out *o)
{
    int fd = (int)num(a, 1), flags = (int)message_flags(a->n > 3 ? a->word[3] : "0");
    RECEIVE(p == areas[0] ? recv(fd, areas[0], len, flags) : recv(fd, p, len, flags));
}
static void do_recvfrom(struct args *a, struct out *o)
{
    int fd = (int)num(a, 1), flags = (int)message_flags(a->n > 3 ? a->word[3] : "0");
    struct sockaddr_storage from;
    socklen_t from_len = sizeof from;
    memset(&from, 0x77, sizeof from);
    RECEIVE(p == areas[0] ? recvfrom(fd, areas[0], len, flags, (struct sockaddr *)&from, &from_len)
                          : recvfrom(fd, p, len, flags, (struct sockaddr *)&from, &from_len));
    if (got >= 0)
        say(o, " fromlen=%u", from_len);
}

/* readv FD L1,L2,... */
static void do_readv(struct args *a, struct out *o)
{
    struct iovec iov[16];
    size_t total;
    int n = split_iov(a, arg(a, 2), iov, 16, &total);
    clear(a, total);
    errno = UNTOUCHED;
    long got = readv((int)num(a, 1), iov, n);
    answer(o, got, errno);
    say_received(o, areas[a->slot], got, total);
}

/* recvmsg FD L1,L2,... [FLAGS] */
static void do_recvmsg(struct args *a, struct out *o)
{
    struct iovec iov[16];
    size_t total;
    char control[128];
    struct sockaddr_storage from;
    struct msghdr m = {0};
    m.msg_iovlen = (size_t)split_iov(a, arg(a, 2), iov, 16, &total);
    m.msg_iov = iov;
    m.msg_name = &from;
    m.msg_namelen = sizeof from;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    m.msg_flags = 0x5555;
    clear(a, total);
    errno = UNTOUCHED;
    long got = recvmsg((int)num(a, 1), &m, (int)message_flags(a->n > 3 ? a->word[3] : "0"));
    answer(o, got, errno);
    say_received(o, areas[a->slot], got, total);
    if (got >= 0)
        say(o, " flags=%#x namelen=%u controllen=%zu", (unsigned)m.msg_flags, m.msg_namelen, m.msg_controllen);
}

/* recvmmsg FD L1,L2,... FLAGS [TIMEOUT_MS]: one buffer a message */
static void do_recvmmsg(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct mmsghdr m[16];
    size_t total;
    int n = split_iov(a, arg(a, 2), iov, 16, &total);
    memset(m, 0, sizeof m);
    for (int i = 0; i < n; i++) {
        m[i].msg_hdr.msg_iov = &iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    struct timespec t = {num_or(a, 4, 0) / 1000, num_or(a, 4, 0) % 1000 * 1000000};
    clear(a, total);
    errno = UNTOUCHED;
    long got = recvmmsg((int)num(a, 1), m, (unsigned)n, (int)message_flags(a->n > 3 ? a->word[3] : "0"),
                        a->n > 4 ? &t : NULL);
    answer(o, got, errno);
    for (long i = 0; i < got; i++) {
        struct sum s = {0};
        add(&s, iov[i].iov_base, m[i].msg_len);
        say_sum(o, &s);
        say(o, " flags=%#x", (unsigned)m[i].msg_hdr.msg_flags);
    }
}

static const void *pattern(struct args *a, const char *word, unsigned seed, size_t *len)
{
    void *p = buffer(a, word, len, 0);
    if (!strchr(word, '@')) {
        if (*len > AREA_SIZE)
            abort();
        fill(p, *len, seed, 0);
    }
    return p;
}

/* write FD LEN SEED; send FD LEN SEED [FLAGS]; sendto likewise, with a NULL or ignored address */
static void do_write(struct args *a, struct out *o)
{
    size_t len;
    const void *p = pattern(a, arg(a, 2), (unsigned)num(a, 3), &len);
    CALL(o, write((int)num(a, 1), p, len));
}
static void do_send(struct args *a, struct out *o)
{
    size_t len;
    const void *p = pattern(a, arg(a, 2), (unsigned)num(a, 3), &len);
    CALL(o, send((int)num(a, 1), p, len, (int)message_flags(a->n > 4 ? a->word[4] : "0")));
}
static void do_sendto(struct args *a, struct out *o)
{
    size_t len;
    struct sockaddr_storage to;
    const void *p = pattern(a, arg(a, 2), (unsigned)num(a, 3), &len);
    socklen_t to_len = a->n > 5 ? parse_address(a->word[5], &to) : 0;
    CALL(o, sendto((int)num(a, 1), p, len, (int)message_flags(a->n > 4 ? a->word[4] : "0"),
                   to_len ? (struct sockaddr *)&to : NULL, to_len));
}

static int pattern_iov(struct args *a, struct iovec *iov, unsigned seed)
{
    size_t total;
    int n = split_iov(a, arg(a, 2), iov, 16, &total);
    fill(areas[a->slot], total, seed, 0);
    return n;
}
static void do_writev(struct args *a, struct out *o)
{
    struct iovec iov[16];
    int n = pattern_iov(a, iov, (unsigned)num(a, 3));
    CALL(o, writev((int)num(a, 1), iov, n));
}
static void do_sendmsg(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct msghdr m = {0};
    m.msg_iovlen = (size_t)pattern_iov(a, iov, (unsigned)num(a, 3));
    m.msg_iov = iov;
    CALL(o, sendmsg((int)num(a, 1), &m, (int)message_flags(a->n > 4 ? a->word[4] : "0")));
}
static void do_sendmmsg(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct mmsghdr m[16];
    int n = pattern_iov(a, iov, (unsigned)num(a, 3));
    memset(m, 0, sizeof m);
    for (int i = 0; i < n; i++) {
        m[i].msg_hdr.msg_iov = &iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    CALL(o, sendmmsg((int)num(a, 1), m, (unsigned)n, (int)message_flags(a->n > 4 ? a->word[4] : "0")));
    for (int i = 0; i < n; i++)
        say(o, " %u", m[i].msg_len);
}

static int wait_for(int fd, short events, uint64_t end)
{
    struct pollfd p = {fd, events, 0};
    uint64_t now = now_ms();
    return now < end && poll(&p, 1, (int)(end - now)) > 0;
}

/* sendall FD N SEED [CHUNK]: everything, in calls of CHUNK bytes, waiting where the descriptor does not. */
static void do_sendall(struct args *a, struct out *o)
{
    size_t n = (size_t)num(a, 2), chunk = (size_t)num_or(a, 4, 65536), at = 0;
    uint64_t end = now_ms() + 2 * DEADLINE_MS;
    while (at < n) {
        size_t step = n - at < chunk ? n - at : chunk;
        fill(areas[a->slot], step, (unsigned)num(a, 3), at);
        long sent = send((int)num(a, 1), areas[a->slot], step, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN && wait_for((int)num(a, 1), POLLOUT, end))
            continue;
        if (sent < 0) {
            answer(o, -1, errno);
            say(o, " after=%zu", at);
            return;
        }
        at += (size_t)sent;
    }
    say(o, "%zu -", at);
}

/* recvall FD N [CHUNK]: until N bytes, end of file or an error. */
static void do_recvall(struct args *a, struct out *o)
{
    size_t n = (size_t)num(a, 2), chunk = (size_t)num_or(a, 3, 65536);
    uint64_t end = now_ms() + 2 * DEADLINE_MS;
    struct sum s = {0};
    while (s.length < n) {
        size_t step = n - s.length < chunk ? n - s.length : chunk;
        if (!wait_for((int)num(a, 1), POLLIN, end)) {
            say(o, "late");
            break;
        }
        long got = recv((int)num(a, 1), areas[a->slot], step, 0);
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got <= 0) {
            answer(o, got, got < 0 ? errno : UNTOUCHED);
            break;
        }
        add(&s, areas[a->slot], (size_t)got);
    }
    if (s.length == n)
        say(o, "all -");
    say_sum(o, &s);
}

/* drain FD: until end of file or an error. */
static void do_drain(struct args *a, struct out *o)
{
    struct sum s = {0};
    uint64_t end = now_ms() + 2 * DEADLINE_MS;
    long got = -1;
    int error = ETIMEDOUT;
    while (wait_for((int)num(a, 1), POLLIN, end)) {
        got = recv((int)num(a, 1), areas[a->slot], 65536, 0);
        error = got < 0 ? errno : UNTOUCHED;
        if (got < 0 && error == EAGAIN)
            continue;
        if (got <= 0)
            break;
        add(&s, areas[a->slot], (size_t)got);
    }
    answer(o, got, error);
    say_sum(o, &s);
}

/* drain_any FD: likewise; how much there was is not compared. */
static void do_drain_any(struct args *a, struct out *o)
{
    size_t at = 0;
    uint64_t end = now_ms() + 2 * DEADLINE_MS;
    long got = -1;
    errno = ETIMEDOUT;
    while (wait_for((int)num(a, 1), POLLIN, end) && (got = recv((int)num(a, 1), areas[a->slot], 65536, 0)) > 0)
        at += (size_t)got;
    answer(o, got, got < 0 ? errno : UNTOUCHED);
    say(o, " total=%zu", at);
}

/* sendsame FD N BYTE: N times the same byte, one to 999 of them at once (threads may do so side by side) */
static void do_sendsame(struct args *a, struct out *o)
{
    size_t n = (size_t)num(a, 2), at = 0;
    memset(areas[a->slot], (int)num(a, 3), 1000);
    while (at < n) {
        size_t step = at % 997 + 1 < n - at ? at % 997 + 1 : n - at;
        long sent = send((int)num(a, 1), areas[a->slot], step, MSG_NOSIGNAL);
        if (sent <= 0) {
            answer(o, -1, errno);
            return;
        }
        at += (size_t)sent;
    }
    say(o, "%zu -", at);
}

/* fillup FD SEED: non-blocking sends until the path is full; how much it took is not compared. */
static void do_fillup(struct args *a, struct out *o)
{
    size_t at = 0;
    /* Acknowledgements make room again for a while, and a ring is given up some time after it was full. */
    for (int quiet = 0; quiet < 50;) {
        fill(areas[a->slot], 65536, (unsigned)num(a, 2), at);
        long sent = send((int)num(a, 1), areas[a->slot], 65536, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break;
        quiet = sent > 0 ? 0 : quiet + 1;
        at += sent > 0 ? (size_t)sent : 0;
        if (quiet)
            nap_us(5000);
        errno = EAGAIN;
    }
    answer(o, -1, errno);
    say(o, " %s total=%zu", at >= 65536 ? "took-some" : "took-nothing", at);
}

/* overfill FD SEED: non-blocking sends until the first that finds no room; how much went is not compared. */
static void do_overfill(struct args *a, struct out *o)
{
    size_t at = 0;
    long sent;
    do {
        fill(areas[a->slot], 65536, (unsigned)num(a, 2), at);
        sent = send((int)num(a, 1), areas[a->slot], 65536, MSG_DONTWAIT | MSG_NOSIGNAL);
        at += sent > 0 ? (size_t)sent : 0;
    } while (sent > 0);
    answer(o, sent, errno);
    say(o, " total=%zu", at);
}

/* verify FD SEED: reads a pattern to the end of the stream; `total=` is not compared, being right is. */
static void do_verify(struct args *a, struct out *o)
{
    size_t at = 0, wrong = 0;
    uint64_t end = now_ms() + 2 * DEADLINE_MS;
    static unsigned char want[SLOTS][65536];
    long got = -1;
    errno = ETIMEDOUT;
    while (wait_for((int)num(a, 1), POLLIN, end)) {
        got = recv((int)num(a, 1), areas[a->slot], 65536, 0);
        if (got <= 0)
            break;
        fill(want[a->slot], (size_t)got, (unsigned)num(a, 2), at);
        wrong += memcmp(want[a->slot], areas[a->slot], (size_t)got) != 0;
        at += (size_t)got;
    }
    answer(o, got, got < 0 ? errno : UNTOUCHED);
    say(o, " wrong=%zu total=%zu", wrong, at);
}

/* ping FD N LEN and echo FD N LEN: N messages there and back: enough traffic for an upgrade. */
static int exactly(int fd, unsigned char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        long got = recv(fd, p + at, n - at, 0);
        if (got <= 0)
            return 0;
        at += (size_t)got;
    }
    return 1;
}
static void do_ping(struct args *a, struct out *o)
{
    int fd = (int)num(a, 1);
    size_t len = (size_t)num(a, 3);
    unsigned char *p = areas[a->slot], want[4096];
    for (int i = 0; i < num(a, 2); i++) {
        fill(p, len, (unsigned)i, 0);
        fill(want, len, (unsigned)i, 0);
        memset(p + len, 0, len);
        if (send(fd, p, len, MSG_NOSIGNAL) != (long)len || !exactly(fd, p + len, len) ||
            memcmp(p + len, want, len) != 0) {
            say(o, "wrong at %d", i);
            return;
        }
    }
    say(o, "pinged");
}
static void do_echo(struct args *a, struct out *o)
{
    int fd = (int)num(a, 1);
    size_t len = (size_t)num(a, 3);
    for (int i = 0; i < num(a, 2); i++)
        if (!exactly(fd, areas[a->slot], len) || send(fd, areas[a->slot], len, MSG_NOSIGNAL) != (long)len) {
            say(o, "ended at %d", i);
            return;
        }
    say(o, "echoed");
}

/* file N SEED: an unlinked file with a pattern, at offset 0 */
static void do_file(struct args *a, struct out *o)
{
    char name[] = "/tmp/bypath-agent-XXXXXX";
    int fd = mkostemp(name, 0);
    unlink(name);
    size_t n = (size_t)num(a, 1);
    fill(areas[a->slot], n, (unsigned)num(a, 2), 0);
    if (write(fd, areas[a->slot], n) != (long)n || lseek(fd, 0, SEEK_SET) != 0)
        say(o, "! file");
    else
        say(o, "%d -", fd);
}
static void do_sendfile(struct args *a, struct out *o)
{
    CALL(o, sendfile((int)num(a, 1), (int)num(a, 2), NULL, (size_t)num(a, 3)));
}
static void do_splice(struct args *a, struct out *o)
{
    CALL(o, splice((int)num(a, 1), NULL, (int)num(a, 2), NULL, (size_t)num(a, 3),
                   strcmp(arg(a, 4), "nonblock") == 0 ? SPLICE_F_NONBLOCK : 0));
}
static void do_pread(struct args *a, struct out *o)
{
    RECEIVE(p == areas[0] ? pread((int)num(a, 1), areas[0], len, num_or(a, 3, 0))
                          : pread((int)num(a, 1), p, len, num_or(a, 3, 0)));
}
static void do_pwrite(struct args *a, struct out *o)
{
    size_t len;
    const void *p = pattern(a, arg(a, 2), (unsigned)num(a, 3), &len);
    CALL(o, pwrite((int)num(a, 1), p, len, 0));
}
static void do_lseek(struct args *a, struct out *o) { CALL(o, lseek((int)num(a, 1), 0, SEEK_CUR)); }
static void do_preadv2(struct args *a, struct out *o)
{
    struct iovec iov[16];
    size_t total;
    int n = split_iov(a, arg(a, 2), iov, 16, &total);
    clear(a, total);
    errno = UNTOUCHED;
    long got = preadv2((int)num(a, 1), iov, n, -1, (int)num_or(a, 3, 0));
    answer(o, got, errno);
    say_received(o, areas[a->slot], got, total);
}

/* raw_read FD N and raw_write FD N SEED: system calls that no interposed function sees */
static void do_raw_read(struct args *a, struct out *o)
{
    RECEIVE(plain(SYS_read, num(a, 1), (long)p, (long)len));
}
static void do_raw_write(struct args *a, struct out *o)
{
    size_t len;
    const void *p = pattern(a, arg(a, 2), (unsigned)num(a, 3), &len);
    CALL(o, plain(SYS_write, num(a, 1), (long)p, (long)len));
}

const struct command data_commands[] = {
    {"read", do_read},         {"readv", do_readv},       {"recv", do_recv},         {"recvfrom", do_recvfrom},
    {"recvmsg", do_recvmsg},   {"recvmmsg", do_recvmmsg}, {"write", do_write},       {"writev", do_writev},
    {"send", do_send},         {"sendto", do_sendto},     {"sendmsg", do_sendmsg},   {"sendmmsg", do_sendmmsg},
    {"sendall", do_sendall},   {"recvall", do_recvall},   {"drain", do_drain},       {"fillup", do_fillup},
    {"overfill", do_overfill},
    {"verify", do_verify},     {"ping", do_ping},         {"echo", do_echo},         {"file", do_file},
    {"sendfile", do_sendfile}, {"splice", do_splice},     {"pread", do_pread},       {"pwrite", do_pwrite},
    {"drain_any", do_drain_any}, {"sendsame", do_sendsame},
    {"lseek", do_lseek},       {"preadv2", do_preadv2},   {"raw_read", do_raw_read}, {"raw_write", do_raw_write},
    {NULL, NULL},
};
