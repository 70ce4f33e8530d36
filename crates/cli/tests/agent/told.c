/* What the kernel tells beside the bytes: the control messages of recvmsg and recvmmsg. */
#include "agent.h"

#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 256, MOST = 8 };

static const char *is_now(const void *data)
{
    long long at, now = time(NULL);
    memcpy(&at, data, sizeof at);
    return at >= now - 60 && at <= now + 60 ? "now" : "another time";
}

static void say_told(struct out *o, struct msghdr *m, size_t room)
{
    say(o, " flags=%#x controllen=%zu", (unsigned)m->msg_flags, m->msg_controllen);
    if (m->msg_controllen > room)
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        say(o, " %d/%d len=%zu", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
        int left;
        if (c->cmsg_level == IPPROTO_TCP && c->cmsg_len == CMSG_LEN(sizeof left)) {
            memcpy(&left, CMSG_DATA(c), sizeof left);
            say(o, " %d", left);
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_len >= CMSG_LEN(16)) {
            say(o, " %s", is_now(CMSG_DATA(c)));
        }
    }
}

/* told FD LENGTH [FLAGS] [ROOM[@KIND]] */
static void do_told(struct args *a, struct out *o)
{
    const char *where = a->n > 4 ? strchr(a->word[4], '@') : NULL;
    size_t room = (size_t)num_or(a, 4, ROOM);
    char own[ROOM], *control = where ? bad_pointer(where + 1, room) : room ? own : NULL;
    struct iovec v = {area(a->slot), (size_t)num(a, 2)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    m.msg_flags = 0x5555;
    errno = UNTOUCHED;
    long got = recvmsg((int)num(a, 1), &m, (int)message_flags(a->n > 3 ? a->word[3] : "0"));
    answer(o, got, errno);
    if (got >= 0)
        say_told(o, &m, room);
}

/* told_each FD LENGTH COUNT [FLAGS] */
static void do_told_each(struct args *a, struct out *o)
{
    static char control[MOST][ROOM];
    struct iovec v[MOST];
    struct mmsghdr m[MOST];
    size_t length = (size_t)num(a, 2), count = (size_t)num(a, 3);
    if (count > MOST)
        abort();
    memset(m, 0, sizeof m);
    for (size_t i = 0; i < count; i++) {
        v[i] = (struct iovec){area(a->slot) + i * length, length};
        m[i].msg_hdr = (struct msghdr){
            .msg_iov = &v[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = ROOM};
    }
    errno = UNTOUCHED;
    int got = recvmmsg((int)num(a, 1), m, (unsigned)count, (int)message_flags(a->n > 4 ? a->word[4] : "0"), NULL);
    answer(o, got, errno);
    for (int i = 0; i < got; i++) {
        say(o, " : %u", m[i].msg_len);
        say_told(o, &m[i].msg_hdr, ROOM);
    }
}

/* copied FD LEN: receives by getsockopt TCP_ZEROCOPY_RECEIVE, into a buffer of LEN bytes (linux/tcp.h). */
static void do_copied(struct args *a, struct out *o)
{
    struct {
        uint64_t address;
        uint32_t length, recv_skip_hint, inq;
        int32_t err;
        uint64_t copybuf_address;
        int32_t copybuf_len;
        uint32_t flags;
    } z = {.copybuf_address = (uint64_t)(uintptr_t)area(a->slot), .copybuf_len = (int32_t)num(a, 2)};
    socklen_t len = sizeof z;
    memset(area(a->slot), 0x77, (size_t)num(a, 2));
    CALL(o, getsockopt((int)num(a, 1), IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len));
    uint32_t sum = 0;
    for (int32_t i = 0; i < z.copybuf_len && i < (int32_t)num(a, 2); i++)
        sum = sum * 31 + area(a->slot)[i];
    say(o, " copied=%d skip=%u sum=%u", z.copybuf_len, z.recv_skip_hint, sum);
}

static int with_times(int fd)
{
    int on = 1;
    return fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) != 0 ? -1 : fd;
}

/* times: until the kernel takes the time of what comes in. It begins a while after the first socket has asked. */
static void do_times(struct args *a, struct out *o)
{
    (void)a;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = with_times(socket(AF_INET, SOCK_STREAM, 0)), one = socket(AF_INET, SOCK_STREAM, 0), other = -1;
    if (bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&at, &len) == 0 && connect(one, (struct sockaddr *)&at, len) == 0)
        other = with_times(accept(listener, NULL, NULL));
    uint64_t end = now_ms() + DEADLINE_MS;
    const char *said = "never";
    while (other >= 0 && now_ms() < end) {
        char byte, control[ROOM];
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = ROOM};
        if (send(one, "", 1, 0) != 1 || recvmsg(other, &m, 0) != 1)
            break;
        if (m.msg_controllen > 0) {
            said = "taken";
            break;
        }
    }
    say(o, "%s", said);
    close(one);
    close(other);
    close(listener);
}

const struct command told_commands[] = {
    {"told", do_told}, {"told_each", do_told_each}, {"times", do_times}, {"copied", do_copied}, {NULL, NULL},
};
