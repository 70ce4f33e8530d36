/* What others who have the connection do: bytes come where nobody that the other end knows looks, and options change that
 * nobody heard of.
 *
 *     between-others forked       a forked process waits in an epoll set of its own: then bytes come; forked-edge: an edge
 *     between-others marked       too few bytes for the low-water mark are in the carrier, the others in the ring behind them
 *     between-others passed       another process that has the socket changes its options
 *     between-others kept         a dup2 over the connection fails
 */
#include "between_peer.h"

static void nothing(void) {}

/* Until the kernel has that call of the process's. */
static void await_call(pid_t process, const char *calls[])
{
    char path[40], text[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", process);
    for (int found = 0; !found;) {
        FILE *f = fopen(path, "r");
        if (f == NULL || fgets(text, sizeof text, f) == NULL)
            die(path);
        fclose(f);
        for (int i = 0; calls[i] != NULL; i++)
            found |= strncmp(text, calls[i], strlen(calls[i])) == 0;
    }
}

static void forked(uint32_t how)
{
    static const char *waits[] = {"232 ", "281 ", "441 ", NULL};
    int status;
    be_sent();
    pid_t child = fork();
    if (child == 0) {
        struct epoll_event one = {.events = EPOLLIN | how};
        alarm(PATIENCE);
        int set = epoll_create1(0);
        for (int i = 0; i < 3; i++) {
            if (epoll_ctl(set, i ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, connection, &one) != 0)
                die("epoll_ctl");
            find(epoll_wait(set, &one, 1, -1));
            plain(SYS_write, gate[1], (long)"", 1);
        }
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        await_call(child, waits);
        order('s');
        hold();
    }
    received += 3 * MESSAGE;
    if (waitpid(child, &status, 0) != child || status != 0)
        die("the child");
    be_sent();
    met = 1;
}

static void marked(void)
{
    int mark = MESSAGE + 1, one = 1;
    char byte;
    be_sent();
    /* That way it is back on the kernel, and comes up again. */
    watch(nothing);
    for (int i = 0; i < 4000 && !met; i++) {
        alarm(PATIENCE);
        order('p');
        order('s');
        if (setsockopt(connection, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) != 0)
            die("SO_RCVLOWAT");
        struct pollfd p = {.fd = connection, .events = POLLIN};
        if (poll(&p, 1, -1) != 1)
            die("poll");
        setsockopt(connection, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
        receive_next(2 * MESSAGE);
        if (recv(connection, &byte, 1, MSG_DONTWAIT) != -1)
            die("more than was sent");
    }
}

static void set_unseen(int name, const void *value, long size)
{
    register long r10 __asm__("r10") = (long)value;
    register long r8 __asm__("r8") = size;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_setsockopt), "D"((long)connection), "S"(SOL_SOCKET), "d"(name), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    if (result != 0)
        die("setsockopt");
}

static void passed(void)
{
    struct timeval little = {0, 50000};
    int two[2];
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &connection, sizeof(int));
    be_sent();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, two) != 0 || sendmsg(two[0], &m, 0) != 1)
        die("sendmsg");
    watch(nothing);
    /* As by whoever has the message: nobody sees these calls. */
    set_unseen(SO_RCVTIMEO, &little, sizeof little);
    if (recv(connection, &byte, 1, 0) != -1 || errno != EAGAIN)
        die("a receive with a time");
    little.tv_usec = 0;
    set_unseen(SO_RCVTIMEO, &little, sizeof little);
    plain(SYS_fcntl, connection, F_SETFL, O_RDWR | O_NONBLOCK);
    if (recv(connection, &byte, 1, 0) != -1 || errno != EAGAIN)
        die("a receive that does not wait");
    plain(SYS_fcntl, connection, F_SETFL, O_RDWR);
    order('s');
    receive_next(MESSAGE);
    met = 1;
}

static void kept(void)
{
    be_sent();
    order('s');
    watch(nothing);
    if (dup2(999, connection) != -1 || errno != EBADF)
        die("dup2 of nothing");
    receive_next(MESSAGE);
    be_sent();
    met = 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    alarm(4 * PATIENCE);
    connect_both();
    if (!strcmp(mode, "forked"))
        forked(0);
    else if (!strcmp(mode, "forked-edge"))
        forked(EPOLLET);
    else if (!strcmp(mode, "marked"))
        marked();
    else if (!strcmp(mode, "passed"))
        passed();
    else if (!strcmp(mode, "kept"))
        kept();
    else
        printf("what is %s\n", mode);
    printf(met ? "whole\n" : "never\n");
    return 0;
}
