/* Datagrams: with names and ancillary data, there and back, numbered ones whose order is checked, and floods. */
#include "agent.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define LARGEST 65536
/* Longest wait for a datagram, if nobody is told to be patient. */
#define WAIT_MS DEADLINE_MS

/* The address in a word; none for `-` and for a word that is not there. */
static socklen_t address(struct args *a, int i, struct sockaddr_storage *to)
{
    return i < a->n && strcmp(a->word[i], "-") != 0 ? parse_address(a->word[i], to) : 0;
}

static struct sockaddr *or_null(struct sockaddr_storage *s, socklen_t len)
{
    return len ? (struct sockaddr *)s : NULL;
}

static int split(struct args *a, const char *words, struct iovec *iov, size_t *total)
{
    char copy[1024], *save = NULL;
    int n = 0;
    *total = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, ",", &save); w && n < 16; w = strtok_r(NULL, ",", &save)) {
        iov[n].iov_base = area(a->slot) + *total;
        iov[n].iov_len = (size_t)number(w);
        *total += iov[n++].iov_len;
    }
    return n;
}

static void say_pieces(struct out *o, const struct iovec *iov, int n, long got)
{
    uint64_t hash = 0;
    size_t left = got > 0 ? (size_t)got : 0;
    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < iov[i].iov_len && left > 0; at++, left--)
            hash = hash * 0x9e3779b97f4a7c15ull + ((unsigned char *)iov[i].iov_base)[at] + 1;
    say(o, " h=%016llx", (unsigned long long)hash);
}

static void say_flags(struct out *o, int flags)
{
    say(o, " flags=%s%s", flags & MSG_TRUNC ? "trunc" : "", flags & MSG_CTRUNC ? "ctrunc" : "");
    if (flags & ~(MSG_TRUNC | MSG_CTRUNC | MSG_CMSG_CLOEXEC))
        say(o, "%#x", (unsigned)flags);
}

/* ---- ancillary data ------------------------------------------------------------------------------------ */

/* Whether a time of the wall clock has just been. */
static const char *is_recent(int64_t seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return seconds > now.tv_sec + 1 ? "future" : seconds < now.tv_sec - 60 ? "past" : "recent";
}

static void say_control(struct out *o, struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        struct sockaddr_storage s = {0};
        size_t len = c->cmsg_len - CMSG_LEN(0);
        say(o, " cmsg=%d/%d/%zu", c->cmsg_level, c->cmsg_type, len);
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO && len == sizeof(struct in_pktinfo)) {
            struct in_pktinfo info;
            struct sockaddr_in *at = (struct sockaddr_in *)&s;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            at->sin_family = AF_INET;
            say(o, " index=%d", info.ipi_ifindex);
            at->sin_addr = info.ipi_spec_dst;
            say_address(o, &s, sizeof *at);
            at->sin_addr = info.ipi_addr;
            say_address(o, &s, sizeof *at);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO && len == sizeof(struct in6_pktinfo)) {
            struct in6_pktinfo info;
            struct sockaddr_in6 *at = (struct sockaddr_in6 *)&s;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            at->sin6_family = AF_INET6;
            at->sin6_addr = info.ipi6_addr;
            say(o, " index=%d", (int)info.ipi6_ifindex);
            say_address(o, &s, sizeof *at);
        } else if (c->cmsg_level == SOL_SOCKET && len >= 2 * sizeof(long)) {
            /* Of either size, seconds first. */
            long seconds;
            memcpy(&seconds, CMSG_DATA(c), sizeof seconds);
            say(o, " %s", is_recent(seconds));
        } else if (len == sizeof(int)) {
            int value;
            memcpy(&value, CMSG_DATA(c), sizeof value);
            say(o, " %d", value);
        }
    }
}

static void put(struct msghdr *m, int level, int type, const void *data, size_t len)
{
    struct cmsghdr *c = (struct cmsghdr *)((char *)m->msg_control + m->msg_controllen);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(c), data, len);
    m->msg_controllen += CMSG_SPACE(len);
}

/* ttl=N, tos=N, segment=N, src=ADDRESS */
static void put_word(struct msghdr *m, const char *word)
{
    int value = (int)number(strchr(word, '=') ? strchr(word, '=') + 1 : "0");
    uint16_t size = (uint16_t)value;
    if (strncmp(word, "ttl=", 4) == 0)
        put(m, IPPROTO_IP, IP_TTL, &value, sizeof value);
    else if (strncmp(word, "tos=", 4) == 0)
        put(m, IPPROTO_IP, IP_TOS, &value, sizeof value);
    else if (strncmp(word, "segment=", 8) == 0)
        put(m, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
    else if (strncmp(word, "src=", 4) == 0) {
        struct sockaddr_storage s;
        if (parse_address(word + 4, &s) == sizeof(struct sockaddr_in)) {
            struct in_pktinfo info = {.ipi_spec_dst = ((struct sockaddr_in *)&s)->sin_addr};
            put(m, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
        } else {
            struct in6_pktinfo info = {.ipi6_addr = ((struct sockaddr_in6 *)&s)->sin6_addr};
            put(m, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
        }
    }
}

/* ---- one by one ---------------------------------------------------------------------------------------- */

/* send_msg FD L1,L2,... SEED FLAGS ADDRESS|- [ttl=N] [tos=N] [segment=N] [src=ADDRESS] */
static void do_send_msg(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct sockaddr_storage to;
    size_t total;
    _Alignas(struct cmsghdr) char control[256] = {0};
    struct msghdr m = {.msg_iov = iov, .msg_control = control};
    m.msg_iovlen = (size_t)split(a, arg(a, 2), iov, &total);
    fill(area(a->slot), total, (unsigned)num(a, 3), 0);
    m.msg_namelen = address(a, 5, &to);
    m.msg_name = or_null(&to, m.msg_namelen);
    for (int i = 6; i < a->n; i++)
        put_word(&m, a->word[i]);
    if (m.msg_controllen == 0)
        m.msg_control = NULL;
    CALL(o, sendmsg((int)num(a, 1), &m, (int)message_flags(arg(a, 4))));
}

/* named FD to|msg|mmsg LENGTH ADDRESS: sendto, sendmsg or sendmmsg to an address that is said to be so long */
static void do_named(struct args *a, struct out *o)
{
    struct sockaddr_storage to;
    struct iovec iov = {area(a->slot), 10};
    int fd = (int)num(a, 1);
    struct mmsghdr m = {.msg_hdr = {.msg_name = &to, .msg_iov = &iov, .msg_iovlen = 1}};
    m.msg_hdr.msg_namelen = (socklen_t)num(a, 3);
    address(a, 4, &to);
    fill(area(a->slot), iov.iov_len, 1, 0);
    if (strcmp(arg(a, 2), "to") == 0)
        CALL(o, sendto(fd, iov.iov_base, iov.iov_len, 0, (struct sockaddr *)&to, m.msg_hdr.msg_namelen));
    else if (strcmp(arg(a, 2), "msg") == 0)
        CALL(o, sendmsg(fd, &m.msg_hdr, 0));
    else
        CALL(o, sendmmsg(fd, &m, 1, 0));
}

/* receive FD LEN [FLAGS]: recvfrom with the address */
static void do_receive(struct args *a, struct out *o)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    struct iovec iov = {area(a->slot), (size_t)num(a, 2)};
    memset(&from, 0, sizeof from);
    errno = UNTOUCHED;
    long got = recvfrom((int)num(a, 1), iov.iov_base, iov.iov_len, a->n > 3 ? (int)message_flags(a->word[3]) : 0,
                        (struct sockaddr *)&from, &len);
    answer(o, got, errno);
    if (got >= 0) {
        say_pieces(o, &iov, 1, got);
        say_address(o, &from, len);
    }
}

/* receive_msg FD L1,L2,... [FLAGS [ROOM]]: recvmsg with the address and room for so many octets of ancillary data */
static void do_receive_msg(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct sockaddr_storage from;
    size_t total;
    _Alignas(struct cmsghdr) char control[512];
    struct msghdr m = {.msg_iov = iov, .msg_name = &from, .msg_namelen = sizeof from, .msg_control = control};
    m.msg_iovlen = (size_t)split(a, arg(a, 2), iov, &total);
    m.msg_controllen = (size_t)num_or(a, 4, 0);
    m.msg_flags = 0x5555;
    memset(&from, 0, sizeof from);
    errno = UNTOUCHED;
    long got = recvmsg((int)num(a, 1), &m, a->n > 3 ? (int)message_flags(a->word[3]) : 0);
    answer(o, got, errno);
    if (got < 0)
        return;
    say_pieces(o, iov, (int)m.msg_iovlen, got);
    say_address(o, &from, m.msg_namelen);
    say_flags(o, m.msg_flags);
    say(o, " control=%zu", (size_t)m.msg_controllen);
    say_control(o, &m);
}

/* send_many FD L1,L2,... SEED FLAGS ADDRESS|-: sendmmsg, one buffer a datagram */
static void do_send_many(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct mmsghdr m[16] = {0};
    struct sockaddr_storage to;
    size_t total;
    int n = split(a, arg(a, 2), iov, &total);
    socklen_t len = address(a, 5, &to);
    fill(area(a->slot), total, (unsigned)num(a, 3), 0);
    for (int i = 0; i < n; i++)
        m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1, .msg_name = or_null(&to, len), .msg_namelen = len};
    CALL(o, sendmmsg((int)num(a, 1), m, (unsigned)n, (int)message_flags(arg(a, 4))));
    for (int i = 0; i < n; i++)
        say(o, " %u", m[i].msg_len);
}

/* receive_many FD L1,L2,... FLAGS [MS]: recvmmsg, one buffer a datagram */
static void do_receive_many(struct args *a, struct out *o)
{
    struct iovec iov[16];
    struct mmsghdr m[16] = {0};
    struct sockaddr_storage from[16] = {0};
    size_t total;
    int n = split(a, arg(a, 2), iov, &total);
    struct timespec t = {num_or(a, 4, 0) / 1000, num_or(a, 4, 0) % 1000 * 1000000};
    for (int i = 0; i < n; i++)
        m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1, .msg_name = &from[i], .msg_namelen = sizeof from[i]};
    errno = UNTOUCHED;
    long got = recvmmsg((int)num(a, 1), m, (unsigned)n, (int)message_flags(arg(a, 3)), a->n > 4 ? &t : NULL);
    answer(o, got, errno);
    for (long i = 0; i < got; i++) {
        say(o, " %u", m[i].msg_len);
        say_pieces(o, &iov[i], 1, m[i].msg_len);
        say_address(o, &from[i], m[i].msg_hdr.msg_namelen);
        say_flags(o, m[i].msg_hdr.msg_flags);
    }
}

/* disconnect FD */
static void do_disconnect(struct args *a, struct out *o)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    CALL(o, connect((int)num(a, 1), &nobody, sizeof nobody));
}

/* until_refused FD: sends an octet every millisecond until that is refused. */
static void do_until_refused(struct args *a, struct out *o)
{
    uint64_t end = now_ms() + WAIT_MS;
    while (now_ms() < end) {
        if (send((int)num(a, 1), "x", 1, 0) < 0) {
            answer(o, -1, errno);
            return;
        }
        nap_us(1000);
    }
    say(o, "never");
}

/* ---- there and back ------------------------------------------------------------------------------------ */

static int can_read(int fd, int ms)
{
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms) > 0;
}

/* Whoever sleeps hears by the kernel, so that after the first third the waiting is a loop of calls that do not wait. */
static long hear(int fd, int i, int count, void *to, struct sockaddr_storage *from, socklen_t *len)
{
    if (i < count / 3)
        return can_read(fd, WAIT_MS) ? recvfrom(fd, to, LARGEST, 0, (struct sockaddr *)from, len) : -1;
    for (uint64_t end = now_ms() + WAIT_MS; now_ms() < end; sched_yield()) {
        long got = recvfrom(fd, to, LARGEST, MSG_DONTWAIT, (struct sockaddr *)from, len);
        if (got >= 0 || errno != EAGAIN)
            return got;
    }
    return -1;
}

/* ping_to FD COUNT LEN ADDRESS|- [WORD]: datagrams there and back, one at a time, with such a control message */
static void do_ping_to(struct args *a, struct out *o)
{
    struct sockaddr_storage to;
    socklen_t to_len = address(a, 4, &to);
    int fd = (int)num(a, 1);
    size_t len = (size_t)num(a, 3);
    unsigned char *sent = area(a->slot), *back = sent + LARGEST;
    for (int i = 0; i < num(a, 2); i++) {
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        fill(sent, len, (unsigned)i, 0);
        struct iovec iov = {sent, len};
        _Alignas(struct cmsghdr) char control[64] = {0};
        struct msghdr m = {.msg_name = or_null(&to, to_len), .msg_namelen = to_len, .msg_iov = &iov, .msg_iovlen = 1};
        m.msg_control = a->n > 5 ? control : NULL;
        if (a->n > 5)
            put_word(&m, arg(a, 5));
        if ((a->n > 5 ? sendmsg(fd, &m, 0) : sendto(fd, sent, len, 0, m.msg_name, to_len)) != (long)len ||
            hear(fd, i, (int)num(a, 2), back, &from, &from_len) != (long)len || memcmp(sent, back, len) != 0) {
            say(o, "wrong at %d", i);
            return;
        }
    }
    say(o, "pinged");
}

/* echo_from FD COUNT: whatever comes goes back to whom it came from. */
static void do_echo_from(struct args *a, struct out *o)
{
    struct sockaddr_storage from;
    int fd = (int)num(a, 1);
    for (int i = 0; i < num(a, 2); i++) {
        socklen_t len = sizeof from;
        long got = hear(fd, i, (int)num(a, 2), area(a->slot), &from, &len);
        if (got < 0 || sendto(fd, area(a->slot), (size_t)got, 0, (struct sockaddr *)&from, len) != got) {
            say(o, "ended at %d", i);
            return;
        }
    }
    say(o, "echoed");
}

/* echo_group COUNT FD...: the same by sockets that share a port; all that comes from one address comes to one of them. */
static void do_echo_group(struct args *a, struct out *o)
{
    int last = -1, count = (int)num(a, 1);
    uint64_t end = now_ms() + WAIT_MS;
    for (int i = 0; i < count && now_ms() < end;) {
        struct pollfd fds[8];
        int n = a->n - 2;
        for (int k = 0; k < n; k++)
            fds[k] = (struct pollfd){(int)num(a, k + 2), POLLIN, 0};
        if (i < count / 3)
            poll(fds, (nfds_t)n, WAIT_MS);
        for (int k = 0; k < n; k++) {
            struct sockaddr_storage from;
            socklen_t len = sizeof from;
            long got = recvfrom(fds[k].fd, area(a->slot), LARGEST, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
            if (got < 0)
                continue;
            if (last >= 0 && last != k) {
                say(o, "wrong: at two of them");
                return;
            }
            last = k;
            sendto(fds[k].fd, area(a->slot), (size_t)got, 0, (struct sockaddr *)&from, len);
            i++;
        }
        sched_yield();
    }
    say(o, now_ms() < end ? "echoed" : "late");
}

/* ---- numbered ------------------------------------------------------------------------------------------ */

#define TAGS 16
#define LAST UINT32_MAX
struct mark {
    uint32_t tag, index;
};

static void make(unsigned char *to, size_t len, uint32_t tag, uint32_t index)
{
    struct mark mark = {tag, index};
    fill(to, len, tag * 1000 + index, 0);
    memcpy(to, &mark, sizeof mark);
}

/* Whether it is a whole one. */
static int look(const unsigned char *p, long len, struct mark *mark)
{
    static _Thread_local unsigned char want[LARGEST];
    if (len < (long)sizeof *mark)
        return 0;
    memcpy(mark, p, sizeof *mark);
    make(want, (size_t)len, mark->tag, mark->index);
    return mark->tag < TAGS && memcmp(want, p, (size_t)len) == 0;
}

/* Whose last one has arrived: threads that send by one socket hear what is meant for the others. */
static atomic_char heard[TAGS];

/* number FD ADDRESS|- TAG COUNT SIZES WINDOW [ttl|also=ADDRESS]: numbered datagrams of these sizes in turn. After each WINDOW of them an
 * octet must come back; without a window (0) they may be lost, and the last one is sent until its sender's number comes back.
 * `ttl`: every third has ancillary data; `also=`: every third goes there. */
static void do_number(struct args *a, struct out *o)
{
    struct sockaddr_storage to, also;
    struct iovec sizes[16];
    size_t total;
    int fd = (int)num(a, 1), n = split(a, arg(a, 5), sizes, &total), extra = strcmp(arg(a, 7), "ttl") == 0;
    socklen_t len = address(a, 2, &to), also_len = strncmp(arg(a, 7), "also=", 5) ? 0 : parse_address(arg(a, 7) + 5, &also);
    uint32_t tag = (uint32_t)num(a, 3), count = (uint32_t)num(a, 4), window = (uint32_t)num(a, 6);
    unsigned char *p = area(a->slot), octet;
    atomic_store(&heard[tag], 0);
    for (uint32_t i = 0; i < count; i++) {
        struct iovec iov = {p, sizes[i % (uint32_t)n].iov_len};
        _Alignas(struct cmsghdr) char control[64] = {0};
        struct msghdr m = {.msg_name = or_null(&to, len), .msg_namelen = len, .msg_iov = &iov, .msg_iovlen = 1};
        make(p, iov.iov_len, tag, i);
        m.msg_control = control;
        if (extra && i % 3 == 2)
            put_word(&m, "ttl=9");
        else
            m.msg_control = NULL;
        if (also_len && i % 3 == 2) {
            m.msg_name = &also;
            m.msg_namelen = also_len;
        }
        if (sendmsg(fd, &m, 0) != (long)iov.iov_len) {
            answer(o, -1, errno);
            say(o, " at %u", i);
            return;
        }
        if (window && i % window == window - 1 && (!can_read(fd, WAIT_MS) || recv(fd, &octet, 1, 0) != 1)) {
            say(o, "nobody answers at %u", i);
            return;
        }
    }
    make(p, sizeof(struct mark), tag, LAST);
    for (int tries = 0; !window && !atomic_load(&heard[tag]); tries++) {
        if (tries == 500 || sendto(fd, p, sizeof(struct mark), 0, or_null(&to, len), len) < 0) {
            say(o, "nobody says that it ended: %s", strerrorname_np(errno));
            return;
        }
        if (can_read(fd, 10) && recv(fd, &octet, 1, MSG_DONTWAIT) == 1 && octet < TAGS)
            atomic_store(&heard[octet], 1);
    }
    say(o, "numbered");
}

/* What is waited with: recv, poll, epoll, edge, spin, naps (rests between datagrams), mixed. */
static int await(int fd, const char *how, int ep, uint64_t end, unsigned count)
{
    struct epoll_event e;
    if (strcmp(how, "mixed") == 0) {
        static const char *const ways[] = {"recv", "poll", "epoll", "naps", "spin"};
        how = ways[count / 50 % 5];
    }
    if (strcmp(how, "naps") == 0 && count % 40 == 0)
        nap_us(count % 400 ? 60 : 2000);
    if (strcmp(how, "poll") == 0)
        return can_read(fd, WAIT_MS);
    if (strcmp(how, "epoll") == 0)
        return epoll_wait(ep, &e, 1, WAIT_MS) == 1;
    return now_ms() < end;
}

/* collect FD SENDERS COUNT WINDOW HOW: COUNT numbered datagrams of each of so many senders, which come in their order; without a
 * window those that come come in order, until each sender has sent its last. */
static void do_collect(struct args *a, struct out *o)
{
    struct sockaddr_storage from;
    int fd = (int)num(a, 1), senders = (int)num(a, 2), done = 0, ep = -1;
    uint32_t count = (uint32_t)num(a, 3), window = (uint32_t)num(a, 4), next[TAGS] = {0};
    char ended[TAGS] = {0};
    const char *how = arg(a, 5);
    int waits = strcmp(how, "recv") == 0 || strcmp(how, "naps") == 0;
    uint64_t end = now_ms() + 3 * WAIT_MS;
    struct mark mark = {0};
    unsigned char octet;
    if (strcmp(how, "epoll") == 0 || strcmp(how, "mixed") == 0) {
        struct epoll_event e = {.events = EPOLLIN};
        ep = epoll_create1(0);
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
    struct timeval t = {WAIT_MS / 1000, 0}, none = {0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    for (unsigned got = 0; done < senders; got++) {
        socklen_t len = sizeof from;
        long n = -1;
        errno = ETIMEDOUT;
        while (await(fd, how, ep, end, got) && now_ms() < end) {
            n = recvfrom(fd, area(a->slot), LARGEST, waits ? 0 : MSG_DONTWAIT, (struct sockaddr *)&from, &len);
            if (n >= 0 || errno != EAGAIN)
                break;
        }
        if (n < 0) {
            answer(o, -1, errno);
            say(o, " after %u", got);
            break;
        }
        if (!look(area(a->slot), n, &mark)) {
            say(o, "damaged: %ld octets of %u/%u", n, mark.tag, mark.index);
            break;
        }
        if (mark.index == LAST) {
            octet = (unsigned char)mark.tag;
            sendto(fd, &octet, 1, 0, (struct sockaddr *)&from, len);
            done += !ended[mark.tag];
            ended[mark.tag] = 1;
            continue;
        }
        if (ended[mark.tag] || (window ? mark.index != next[mark.tag] : mark.index < next[mark.tag])) {
            say(o, "out of order: %u of sender %u where %u comes next", mark.index, mark.tag, next[mark.tag]);
            break;
        }
        next[mark.tag] = mark.index + 1;
        if (window && mark.index % window == window - 1)
            sendto(fd, "", 1, 0, (struct sockaddr *)&from, len);
        if (window && next[mark.tag] == count) {
            ended[mark.tag] = 1;
            done++;
        }
    }
    if (ep >= 0)
        close(ep);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    if (done == senders)
        say(o, "in order");
}

/* crowd FD THREADS COUNT WINDOW: threads that receive side by side; each of COUNT numbered datagrams comes to one of them. */
#define MOST 65536
static struct crowd {
    int fd;
    uint32_t count, window;
    atomic_uint got, twice, damaged;
    atomic_uchar seen[MOST];
} crowd;

static void *member(void *unused)
{
    unsigned char *p = malloc(LARGEST);
    struct sockaddr_storage from;
    struct mark mark = {0};
    uint64_t end = now_ms() + 2 * WAIT_MS;
    while (atomic_load(&crowd.got) < crowd.count && now_ms() < end) {
        socklen_t len = sizeof from;
        long n = recvfrom(crowd.fd, p, LARGEST, 0, (struct sockaddr *)&from, &len);
        if (n < 0)
            continue;
        if (!look(p, n, &mark) || mark.index >= MOST) {
            atomic_fetch_add(&crowd.damaged, 1);
            continue;
        }
        atomic_fetch_add(&crowd.twice, atomic_fetch_add(&crowd.seen[mark.index], 1) != 0);
        if ((atomic_fetch_add(&crowd.got, 1) + 1) % crowd.window == 0)
            sendto(crowd.fd, "", 1, 0, (struct sockaddr *)&from, len);
    }
    free(p);
    return unused;
}

static void do_crowd(struct args *a, struct out *o)
{
    pthread_t threads[8];
    int n = (int)num(a, 2);
    struct timeval t = {0, 50000}, none = {0};
    memset(&crowd, 0, sizeof crowd);
    crowd.fd = (int)num(a, 1);
    crowd.count = (uint32_t)num(a, 3);
    crowd.window = (uint32_t)num(a, 4);
    /* Those for whom nothing is left look up. */
    setsockopt(crowd.fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, member, NULL);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    setsockopt(crowd.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    say(o, "got %u twice %u damaged %u", crowd.got, crowd.twice, crowd.damaged);
}

/* ---- floods -------------------------------------------------------------------------------------------- */

/* flood FD ADDRESS|- COUNT SIZE: as fast as they go, whoever reads them */
static void do_flood(struct args *a, struct out *o)
{
    struct sockaddr_storage to;
    socklen_t len = address(a, 2, &to);
    memset(area(a->slot), 7, LARGEST);
    for (int i = 0; i < num(a, 3); i++)
        if (sendto((int)num(a, 1), area(a->slot), (size_t)num(a, 4), 0, or_null(&to, len), len) < 0 && errno != ECONNREFUSED) {
            answer(o, -1, errno);
            return;
        }
    say(o, "flooded");
}

/* count FD...: what is there; `total=` is not compared, how many of them had something is. near FD: what is there, compared
 * roughly. pairs FD: whether an even number is there. gulp FD MS: reads for so long. */
static unsigned drain_all(struct args *a, int fd)
{
    unsigned n = 0;
    while (recv(fd, area(a->slot), LARGEST, MSG_DONTWAIT) >= 0)
        n++;
    return n;
}
static void do_count(struct args *a, struct out *o)
{
    unsigned sum = 0, some = 0;
    for (int i = 1; i < a->n; i++) {
        unsigned n = drain_all(a, (int)num(a, i));
        sum += n;
        some += n > 0;
    }
    say(o, "%u from %u", sum, some);
}
static void do_near(struct args *a, struct out *o) { say(o, "near %u", drain_all(a, (int)num(a, 1))); }
static void do_pairs(struct args *a, struct out *o) { say(o, drain_all(a, (int)num(a, 1)) % 2 ? "wrong: odd" : "pairs"); }
/* steer FD N: a filter says that the Nth of those at the port gets everything. */
static void do_steer(struct args *a, struct out *o)
{
    struct sock_filter always = {BPF_RET | BPF_K, 0, 0, (uint32_t)num(a, 2)};
    struct sock_fprog filter = {1, &always};
    answer(o, setsockopt((int)num(a, 1), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof filter), errno);
}
/* let_in FD N: a filter leaves N octets of each datagram, 0: none comes in. */
static void do_let_in(struct args *a, struct out *o)
{
    struct sock_filter always = {BPF_RET | BPF_K, 0, 0, (uint32_t)num(a, 2)};
    struct sock_fprog filter = {1, &always};
    CALL(o, setsockopt((int)num(a, 1), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
}
/* member FD GROUP in|out: of a group of IPv4, at the loopback. */
static void do_member(struct args *a, struct out *o)
{
    struct ip_mreq group = {.imr_interface.s_addr = htonl(INADDR_LOOPBACK)};
    inet_pton(AF_INET, arg(a, 2), &group.imr_multiaddr);
    int option = strcmp(arg(a, 3), "out") ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP;
    CALL(o, setsockopt((int)num(a, 1), IPPROTO_IP, option, &group, sizeof group));
}
/* group_by_loopback FD: what it sends to groups goes there. */
static void do_group_by_loopback(struct args *a, struct out *o)
{
    struct in_addr at = {htonl(INADDR_LOOPBACK)};
    CALL(o, setsockopt((int)num(a, 1), IPPROTO_IP, IP_MULTICAST_IF, &at, sizeof at));
}
static void do_gulp(struct args *a, struct out *o)
{
    size_t sum = 0;
    for (uint64_t end = now_ms() + (uint64_t)num(a, 2); now_ms() < end;)
        if (can_read((int)num(a, 1), 10))
            sum += drain_all(a, (int)num(a, 1));
    say(o, "gulped total=%zu", sum);
}

const struct command datagram_commands[] = {
    {"send_msg", do_send_msg},   {"named", do_named},   {"receive", do_receive},       {"receive_msg", do_receive_msg},
    {"send_many", do_send_many}, {"receive_many", do_receive_many}, {"disconnect", do_disconnect},
    {"ping_to", do_ping_to},     {"echo_from", do_echo_from},   {"echo_group", do_echo_group},
    {"number", do_number},
    {"collect", do_collect},     {"crowd", do_crowd},           {"flood", do_flood},
    {"count", do_count},         {"near", do_near},             {"pairs", do_pairs},
    {"steer", do_steer},         {"gulp", do_gulp},             {"member", do_member},
    {"group_by_loopback", do_group_by_loopback},                 {"let_in", do_let_in},
    {"until_refused", do_until_refused}, {NULL, NULL},
};
