/* Calls with arguments that cannot be right: structures at bad addresses. */
#include "agent.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each takes the kind of bad pointer (null, one, kernel, none, unmapped) as its last word. */
static void *bad(struct args *a, size_t len) { return bad_pointer(arg(a, a->n - 1), len); }

static void bad_poll(struct args *a, struct out *o) { CALL(o, poll(bad(a, 64), 2, 0)); }
static void bad_select(struct args *a, struct out *o) { CALL(o, select(8, bad(a, sizeof(fd_set)), NULL, NULL, NULL)); }
static void bad_sendmsg(struct args *a, struct out *o) { CALL(o, sendmsg((int)num(a, 1), bad(a, 64), 0)); }
static void bad_recvmsg(struct args *a, struct out *o) { CALL(o, recvmsg((int)num(a, 1), bad(a, 64), MSG_DONTWAIT)); }
static void bad_iov(struct args *a, struct out *o)
{
    struct msghdr m = {.msg_iov = bad(a, 64), .msg_iovlen = 1};
    CALL(o, sendmsg((int)num(a, 1), &m, 0));
    say(o, " / ");
    CALL(o, recvmsg((int)num(a, 1), &m, MSG_DONTWAIT));
}
static void bad_readv(struct args *a, struct out *o) { CALL(o, readv((int)num(a, 1), bad(a, 64), 1)); }
static void bad_writev(struct args *a, struct out *o) { CALL(o, writev((int)num(a, 1), bad(a, 64), 1)); }
static void bad_epoll_wait(struct args *a, struct out *o) { CALL(o, epoll_wait((int)num(a, 1), bad(a, 64), 2, 0)); }
static void bad_epoll_ctl(struct args *a, struct out *o)
{
    CALL(o, epoll_ctl((int)num(a, 1), EPOLL_CTL_ADD, (int)num(a, 2), bad(a, sizeof(struct epoll_event))));
}
static void bad_fionread(struct args *a, struct out *o) { CALL(o, ioctl((int)num(a, 1), FIONREAD, bad(a, 4))); }
static void bad_fionbio(struct args *a, struct out *o) { CALL(o, ioctl((int)num(a, 1), FIONBIO, bad(a, 4))); }
static void bad_getsockopt(struct args *a, struct out *o)
{
    socklen_t len = 4;
    CALL(o, getsockopt((int)num(a, 1), SOL_SOCKET, SO_ERROR, bad(a, 4), &len));
}
static void bad_setsockopt(struct args *a, struct out *o)
{
    CALL(o, setsockopt((int)num(a, 1), SOL_SOCKET, SO_RCVLOWAT, bad(a, 4), 4));
}
static void bad_getsockname(struct args *a, struct out *o)
{
    socklen_t len = 16;
    CALL(o, getsockname((int)num(a, 1), bad(a, 16), &len));
}
static void bad_connect(struct args *a, struct out *o) { CALL(o, connect((int)num(a, 1), bad(a, 16), 16)); }

/* Vectors that the kernel refuses before it looks at them. */
static void iov_count(struct args *a, struct out *o)
{
    static struct iovec iov[1100];
    static char byte[1100];
    for (int i = 0; i < 1100; i++)
        iov[i] = (struct iovec){&byte[i], 1};
    CALL(o, strcmp(arg(a, 1), "readv") == 0 ? readv((int)num(a, 2), iov, (int)num(a, 3))
                                             : writev((int)num(a, 2), iov, (int)num(a, 3)));
}
/* iov_huge FD: lengths whose sum does not fit */
static void iov_huge(struct args *a, struct out *o)
{
    char byte[2];
    struct iovec iov[2] = {{byte, SIZE_MAX / 2}, {byte, SIZE_MAX / 2}};
    CALL(o, readv((int)num(a, 1), iov, 2));
    say(o, " / ");
    CALL(o, writev((int)num(a, 1), iov, 2));
    iov[0].iov_len = (size_t)-1;
    say(o, " / ");
    CALL(o, writev((int)num(a, 1), iov, 1));
}

const struct command bad_commands[] = {
    {"bad_poll", bad_poll},             {"bad_select", bad_select},         {"bad_sendmsg", bad_sendmsg},
    {"bad_recvmsg", bad_recvmsg},       {"bad_iov", bad_iov},               {"bad_readv", bad_readv},
    {"bad_writev", bad_writev},         {"bad_epoll_wait", bad_epoll_wait}, {"bad_epoll_ctl", bad_epoll_ctl},
    {"bad_fionread", bad_fionread},     {"bad_fionbio", bad_fionbio},       {"bad_getsockopt", bad_getsockopt},
    {"bad_setsockopt", bad_setsockopt}, {"bad_getsockname", bad_getsockname}, {"bad_connect", bad_connect},
    {"iov_count", iov_count},           {"iov_huge", iov_huge},             {NULL, NULL},
};
