/* A call takes the connection back, or looks at it, and is the kernel's own afterwards. In between, where the library raises
 * SIGUSR2, another thread closes a number of the call and something else gets it: the call fails, and is not for that.
 *
 *     meant-splice       splice() into the connection        meant-passes        SCM_RIGHTS of the connection
 *     meant-splice-from  the same, and the pipe is closed    meant-passed-on     the same, and the way is closed
 *     meant-sendfile     sendfile() of what is no file       meant-option        setsockopt()
 *     meant-urgent       send() with MSG_OOB                 meant-asynchronous  fcntl() with O_ASYNC
 *     meant-urgent-read  recv() with MSG_OOB                 meant-shutdown      shutdown()
 *     meant-control      sendmsg() with control data         meant-print         dprintf()
 *     meant-peek         MSG_PEEK with MSG_WAITALL           meant-stream        fdopen()
 *     meant-dissolve     connect() to AF_UNSPEC              meant-submit        io_submit()
 *     meant-register     epoll_ctl() with EPOLLEXCLUSIVE
 *     meant-duplicate    dup2() over the connection, of what is closed
 *     meant-foreign      read() of a pipe, with unread bytes of this end in a ring */
#include "between_peer.h"
#include <linux/aio_abi.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum { ROOM = 64 };

/* What the number that is closed is afterwards, and the other end of that. */
static int spare[2];
/* The way to and from a program that nobody sees: a pair of sockets and a pipe. */
static int way[2], tube[2];
/* The number that is closed. */
static int gone;
static long result;
static int error;

static long splice_call(void) { return splice(tube[0], NULL, connection, NULL, 4, 0); }
static long sendfile_call(void) { return sendfile(connection, tube[0], NULL, 4); }
static long urgent(void) { return send(connection, "u", 1, MSG_OOB | MSG_NOSIGNAL); }
static long print(void) { return dprintf(connection, "%s", "printed"); }
static long end_sending(void) { return shutdown(connection, SHUT_WR); }
static long stream(void) { return fdopen(connection, "w") ? 0 : -1; }

static long urgent_read(void)
{
    char byte;
    return recv(connection, &byte, 1, MSG_OOB);
}

static long peek(void)
{
    char got[4];
    return recv(connection, got, sizeof got, MSG_PEEK | MSG_WAITALL);
}

static long foreign(void)
{
    char got[4];
    return read(tube[0], got, sizeof got);
}

static long option(void)
{
    int on = 1;
    return setsockopt(connection, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
}

static long asynchronous(void) { return fcntl(connection, F_SETFL, O_ASYNC); }

static long duplicate(void) { return dup2(way[0], connection); }

static int set;

static long register_it(void)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    return epoll_ctl(set, EPOLL_CTL_ADD, connection, &event);
}

static long dissolve(void)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    return connect(connection, &nobody, sizeof nobody);
}

static long message_on(int on, int type, int value)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr start;
    } control = {.start = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = type}};
    struct iovec what = {"message", 7};
    struct msghdr message = {.msg_iov = &what, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.start), &value, sizeof value);
    return sendmsg(on, &message, MSG_NOSIGNAL);
}

static long control(void) { return message_on(connection, SO_TIMESTAMPING, 1 << 8); }
static long passes(void) { return message_on(way[0], SCM_RIGHTS, connection); }

static long submit(void)
{
    aio_context_t context = 0;
    struct iocb block = {.aio_fildes = (unsigned)connection,
                         .aio_lio_opcode = IOCB_CMD_PWRITE,
                         .aio_buf = (unsigned long)"submitted",
                         .aio_nbytes = 9};
    struct iocb *list[] = {&block};
    if (plain(SYS_io_setup, 1, (long)&context, 0) != 0)
        die("io_setup");
    long done = syscall(SYS_io_submit, context, 1, list);
    int why = errno;
    plain(SYS_io_destroy, (long)context, 0, 0);
    errno = why;
    return done;
}

static void *call_it(void *call)
{
    errno = 0;
    result = ((long (*)(void))call)();
    error = errno;
    return NULL;
}

static void differs(const char *what)
{
    printf("%s\n", what);
    exit(1);
}

/* What has the number is as it was. */
static void look_at_spare(int is_urgent)
{
    char got[ROOM];
    struct sockaddr_storage name;
    int value = -1;
    socklen_t length = sizeof value;
    if (recv(spare[1], got, sizeof got, MSG_DONTWAIT) != -1 || errno != EAGAIN)
        differs("something goes to what has the number");
    if (getsockopt(gone, SOL_SOCKET, SO_TIMESTAMP, &value, &length) != 0 || value != 0)
        differs("it has another option");
    if (fcntl(gone, F_GETFL) & O_ASYNC)
        differs("it has another flag");
    if (is_urgent && recv(gone, got, 1, MSG_OOB | MSG_DONTWAIT) != 1)
        differs("an urgent byte is gone");
    length = sizeof name;
    if (getpeername(gone, (struct sockaddr *)&name, &length) != 0)
        differs("it is not connected");
    if (recv(gone, got, 7, MSG_DONTWAIT) != 7 || memcmp(got, "waiting", 7) != 0)
        differs("what waits there is gone");
}

static void make_spare(int domain, int type)
{
    if (domain == AF_UNIX) {
        if (socketpair(AF_UNIX, type, 0, spare) != 0)
            die("socketpair");
        return;
    }
    struct sockaddr_in names[2];
    for (int i = 0; i < 2; i++) {
        socklen_t length = sizeof names[i];
        names[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        spare[i] = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(spare[i], (struct sockaddr *)&names[i], length) != 0 ||
            getsockname(spare[i], (struct sockaddr *)&names[i], &length) != 0)
            die("bind");
    }
    for (int i = 0; i < 2; i++)
        if (connect(spare[i], (struct sockaddr *)&names[!i], sizeof names[i]) != 0)
            die("connect");
}

static const struct {
    const char *name;
    long (*call)(void);
    /* 'c': the connection is closed; 't': what the tube is read by; 'w': the way. */
    char closed;
} CALLS[] = {
    {"splice", splice_call, 'c'},       {"splice-from", splice_call, 't'}, {"sendfile", sendfile_call, 'c'},
    {"urgent", urgent, 'c'},            {"urgent-read", urgent_read, 'c'}, {"control", control, 'c'},
    {"passes", passes, 'c'},            {"passed-on", passes, 'w'},        {"option", option, 'c'},
    {"asynchronous", asynchronous, 'c'}, {"shutdown", end_sending, 'c'},    {"print", print, 'c'},
    {"stream", stream, 'c'},            {"submit", submit, 'c'},           {"peek", peek, 'c'},
    {"duplicate", duplicate, 'w'},      {"dissolve", dissolve, 'c'},        {"foreign", foreign, 't'},           {"register", register_it, 'c'},
};

int main(int argc, char **argv)
{
    const char *mode = argc > 1 && !strncmp(argv[1], "meant-", 6) ? argv[1] + 6 : "";
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    char got[ROOM];
    pthread_t thread;
    size_t kind = 0;
    while (kind < sizeof CALLS / sizeof *CALLS && strcmp(CALLS[kind].name, mode) != 0)
        kind++;
    if (kind == sizeof CALLS / sizeof *CALLS)
        differs("what is that");
    int is_urgent = !strcmp(mode, "urgent-read"), is_foreign = !strcmp(mode, "foreign");
    sigaction(SIGUSR2, &action, NULL);
    alarm(4 * PATIENCE);
    connect_both();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, way) != 0 || pipe(tube) != 0)
        die("socketpair");
    set = epoll_create1(0);
    make_spare(!strcmp(mode, "dissolve") ? AF_INET : AF_UNIX, !strcmp(mode, "dissolve") ? SOCK_DGRAM : SOCK_STREAM);
    if (write(spare[1], "waiting", 7) != 7 || (is_urgent && send(spare[1], "u", 1, MSG_OOB) != 1))
        die("write");
    if (!is_foreign && write(tube[1], "tube", 4) != 4)
        die("write");
    be_sent();
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
    if (!strcmp(mode, "peek")) {
        /* The other direction is the kernel's now. */
        int on = 1;
        if (setsockopt(connection, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) != 0)
            die("setsockopt");
        order('s');
    }
    if (is_foreign)
        send_next(0);
    gone = CALLS[kind].closed == 'c' ? connection : CALLS[kind].closed == 't' ? tube[0] : way[0];
    watch(hold);
    if (pthread_create(&thread, NULL, call_it, (void *)CALLS[kind].call) != 0)
        die("pthread_create");
    for (int waited = 0; !atomic_load(&met) && waited < 1000; waited++)
        nap_us(1000);
    close(gone);
    if (fcntl(spare[0], F_DUPFD, gone) != gone)
        differs("somebody else has the number");
    plain(SYS_write, gate[1], (long)"", 1);
    pthread_join(thread, NULL);
    if (met) {
        if (result != -1 || error != EBADF) {
            printf("%s: %ld, %s\n", mode, result, strerror(error));
            return 1;
        }
        look_at_spare(is_urgent);
        if (!strcmp(mode, "duplicate") && fcntl(connection, F_GETFD) != -1)
            differs("the connection is there");
        if (epoll_ctl(set, EPOLL_CTL_DEL, gone, NULL) != -1 || errno != ENOENT)
            differs("it is in a set");
        if (recv(way[1], got, sizeof got, MSG_DONTWAIT) > 0)
            differs("it was passed on");
    }
    printf(met ? "whole\n" : "never\n");
    return 0;
}
