/* Creating, naming, configuring and closing descriptors. */
#include "agent.h"
#include "unseen.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct word {
    const char *name;
    long value;
};

/* The sum of the |-joined names in `text`; numbers are allowed. */
static long lookup(const struct word *table, const char *text)
{
    char copy[256], *save = NULL;
    long sum = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
        const struct word *t = table;
        while (t->name && strcmp(t->name, w) != 0)
            t++;
        sum |= t->name ? t->value : number(w);
    }
    return sum;
}

static const struct word socket_words[] = {
    {"inet", AF_INET},       {"inet6", AF_INET6},         {"unix", AF_UNIX},
    {"stream", SOCK_STREAM}, {"dgram", SOCK_DGRAM},       {"nonblock", SOCK_NONBLOCK},
    {"cloexec", SOCK_CLOEXEC}, {NULL, 0},
};
static const struct word message_words[] = {
    {"peek", MSG_PEEK},   {"waitall", MSG_WAITALL}, {"dontwait", MSG_DONTWAIT}, {"trunc", MSG_TRUNC},
    {"oob", MSG_OOB},     {"nosignal", MSG_NOSIGNAL}, {"more", MSG_MORE},       {"waitforone", MSG_WAITFORONE},
    {"errqueue", MSG_ERRQUEUE}, {"fastopen", MSG_FASTOPEN}, {NULL, 0},
};
static const struct word fcntl_words[] = {
    {"getfl", F_GETFL},     {"setfl", F_SETFL}, {"getfd", F_GETFD},       {"setfd", F_SETFD},
    {"dupfd", F_DUPFD},     {"dupfd_cloexec", F_DUPFD_CLOEXEC},           {"nonblock", O_NONBLOCK},
    {"cloexec", FD_CLOEXEC}, {"getown", F_GETOWN}, {"async", O_ASYNC},     {NULL, 0},
};
static const struct word how_words[] = {{"rd", SHUT_RD}, {"wr", SHUT_WR}, {"rdwr", SHUT_RDWR}, {NULL, 0}};

long message_flags(const char *word) { return lookup(message_words, word); }

const char *unix_names;

/* The abstract name that stands for a port: NUL, prefix, colon, five digits. */
static socklen_t unix_address(long port, struct sockaddr_storage *to)
{
    struct sockaddr_un *a = (struct sockaddr_un *)to;
    memset(to, 0, sizeof *to);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s:%05ld", unix_names, port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* The port in an address, also in an abstract name that stands for one; 0 if it has none. */
int local_port(const struct sockaddr_storage *of, socklen_t len)
{
    if (of->ss_family != AF_UNIX)
        return ntohs(((const struct sockaddr_in *)of)->sin_port);
    char name[sizeof(struct sockaddr_un) + 1] = "";
    if (len <= offsetof(struct sockaddr_un, sun_path) + 1 || len > sizeof(struct sockaddr_un))
        return 0;
    memcpy(name, ((const struct sockaddr_un *)of)->sun_path + 1, len - offsetof(struct sockaddr_un, sun_path) - 1);
    const char *colon = strrchr(name, ':');
    return colon ? atoi(colon + 1) : 0;
}

socklen_t parse_address(const char *word, struct sockaddr_storage *to)
{
    char copy[160];
    if (unix_names && strrchr(word, ':'))
        return unix_address(number(strrchr(word, ':') + 1), to);
    snprintf(copy, sizeof copy, "%s", word);
    memset(to, 0, sizeof *to);
    char *colon = strrchr(copy, ':');
    if (!colon)
        return 0;
    *colon = 0;
    in_port_t port = htons((uint16_t)number(colon + 1));
    if (copy[0] == '[') {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)to;
        copy[strlen(copy) - 1] = 0;
        a->sin6_family = AF_INET6;
        a->sin6_port = port;
        inet_pton(AF_INET6, copy + 1, &a->sin6_addr);
        return sizeof *a;
    }
    struct sockaddr_in *a = (struct sockaddr_in *)to;
    a->sin_family = AF_INET;
    a->sin_port = port;
    inet_pton(AF_INET, copy, &a->sin_addr);
    return sizeof *a;
}

void say_address(struct out *o, const struct sockaddr_storage *from, socklen_t len)
{
    char text[64];
    if (len == 0) {
        say(o, " addr=none");
    } else if (from->ss_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)from;
        inet_ntop(AF_INET, &a->sin_addr, text, sizeof text);
        say(o, " len=%u addr=%s:%d", len, text, ntohs(a->sin_port));
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)from;
        inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof text);
        say(o, " len=%u addr=[%s]:%d", len, text, ntohs(a->sin6_port));
    } else if (from->ss_family == AF_UNIX && local_port(from, len)) {
        say(o, " len=%u addr=unix:%d", len, local_port(from, len));
    } else {
        say(o, " len=%u family=%d", len, from->ss_family);
    }
}

static void do_socket(struct args *a, struct out *o)
{
    int domain = (int)lookup(socket_words, arg(a, 1));
    int kind = (int)lookup(socket_words, a->n > 2 ? a->word[2] : "stream");
    int protocol = (int)num_or(a, 3, 0);
    if (unix_names && domain != AF_UNIX && !(kind & SOCK_DGRAM)) {
        domain = AF_UNIX;
        protocol = 0;
    }
    CALL(o, socket(domain, kind, protocol));
}

static void do_socketpair(struct args *a, struct out *o)
{
    int fd[2] = {-1, -1};
    CALL(o, socketpair(AF_UNIX, (int)lookup(socket_words, a->n > 1 ? a->word[1] : "stream"), 0, fd));
    say(o, " %d %d", fd[0], fd[1]);
}

static void do_pipe(struct args *a, struct out *o)
{
    (void)a;
    int fd[2] = {-1, -1};
    CALL(o, pipe(fd));
    say(o, " %d %d", fd[0], fd[1]);
}

static void do_bind(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = parse_address(arg(a, 2), &s);
    if (unix_names && local_port(&s, len) == 0) {
        /* Any free one, as the kernel chooses ports. */
        for (long port = 10000; port < 60000; port++) {
            len = unix_address(port, &s);
            o->len = 0;
            CALL(o, bind((int)num(a, 1), (struct sockaddr *)&s, len));
            if (!strstr(o->text, "EADDRINUSE"))
                return;
        }
    }
    CALL(o, bind((int)num(a, 1), (struct sockaddr *)&s, len));
}

static void do_listen(struct args *a, struct out *o) { CALL(o, listen((int)num(a, 1), (int)num_or(a, 2, 16))); }

static void do_connect(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = parse_address(arg(a, 2), &s);
    CALL(o, connect((int)num(a, 1), (struct sockaddr *)&s, len));
}

/* accept FD [null]; accept4 FD FLAGS */
static void do_accept(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    if (strcmp(arg(a, 2), "null") == 0) {
        CALL(o, accept((int)num(a, 1), NULL, NULL));
        return;
    }
    CALL(o, accept((int)num(a, 1), (struct sockaddr *)&s, &len));
    if (o->text[0] != '-')
        say_address(o, &s, len);
}

static void do_accept4(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    CALL(o, accept4((int)num(a, 1), (struct sockaddr *)&s, &len, (int)lookup(socket_words, arg(a, 2))));
    if (o->text[0] != '-')
        say_address(o, &s, len);
}

static void do_getsockname(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    CALL(o, getsockname((int)num(a, 1), (struct sockaddr *)&s, &len));
    if (o->text[0] != '-')
        say_address(o, &s, len);
}

static void do_getpeername(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    CALL(o, getpeername((int)num(a, 1), (struct sockaddr *)&s, &len));
    if (o->text[0] != '-')
        say_address(o, &s, len);
}

static void do_close(struct args *a, struct out *o) { CALL(o, close((int)num(a, 1))); }
/* raw_close FD: by a system call that no interposed function sees */
static void do_raw_close(struct args *a, struct out *o) { CALL(o, plain(SYS_close, num(a, 1), 0, 0)); }
/* raw_sndbuf FD OCTETS: likewise */
static void do_raw_sndbuf(struct args *a, struct out *o)
{
    int octets = (int)num(a, 2);
    CALL(o, set_unseen((int)num(a, 1), SOL_SOCKET, SO_SNDBUF, &octets, sizeof octets));
}
static void do_shutdown(struct args *a, struct out *o)
{
    CALL(o, shutdown((int)num(a, 1), (int)lookup(how_words, arg(a, 2))));
}
static void do_dup(struct args *a, struct out *o) { CALL(o, dup((int)num(a, 1))); }
static void do_dup2(struct args *a, struct out *o) { CALL(o, dup2((int)num(a, 1), (int)num(a, 2))); }
static void do_dup3(struct args *a, struct out *o)
{
    CALL(o, dup3((int)num(a, 1), (int)num(a, 2), strcmp(arg(a, 3), "cloexec") == 0 ? O_CLOEXEC : 0));
}
static void do_fcntl(struct args *a, struct out *o)
{
    CALL(o, fcntl((int)num(a, 1), (int)lookup(fcntl_words, arg(a, 2)), a->n > 3 ? lookup(fcntl_words, a->word[3]) : 0));
}
static void do_close_range(struct args *a, struct out *o)
{
    CALL(o, close_range((unsigned)num(a, 1), (unsigned)num(a, 2), 0));
}

/* closefrom FD: the pipes to the driver hide on 0 and 1 meanwhile. */
static void do_closefrom(struct args *a, struct out *o)
{
    for (int i = 0; i < 2; i++)
        syscall(SYS_dup3, CONTROL_IN + i, i, 0);
    errno = UNTOUCHED;
    closefrom((int)num(a, 1));
    int error = errno;
    for (int i = 0; i < 2; i++)
        syscall(SYS_dup3, i, CONTROL_IN + i, 0);
    int null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
    for (int i = 0; i < 2; i++)
        syscall(SYS_dup3, null, i, 0);
    if (null > 2)
        syscall(SYS_close, null);
    answer(o, 0, error);
}

static void do_ioctl(struct args *a, struct out *o, unsigned long request)
{
    int value = -7;
    CALL(o, ioctl((int)num(a, 1), request, &value));
    say(o, " %d", value);
}
static void do_fionread(struct args *a, struct out *o) { do_ioctl(a, o, FIONREAD); }
static void do_outq(struct args *a, struct out *o) { do_ioctl(a, o, SIOCOUTQ); }
static void do_atmark(struct args *a, struct out *o) { CALL(o, sockatmark((int)num(a, 1))); }
static void do_fionbio(struct args *a, struct out *o)
{
    int on = (int)num(a, 2);
    CALL(o, ioctl((int)num(a, 1), FIONBIO, &on));
}

/* wait_in FD N: until at least N bytes can be read. */
static void do_wait_in(struct args *a, struct out *o)
{
    uint64_t end = now_ms() + DEADLINE_MS;
    for (unsigned step = 10;; step = step < 1000 ? step * 2 : 1000) {
        int value = 0;
        if (ioctl((int)num(a, 1), FIONREAD, &value) != 0 || value >= num(a, 2)) {
            say(o, value >= num(a, 2) ? "arrived" : "error");
            return;
        }
        if (now_ms() > end) {
            say(o, "only %d", value);
            return;
        }
        nap_us(step);
    }
}

/* wait_sent FD: until the other end's kernel has acknowledged everything. */
static void do_wait_sent(struct args *a, struct out *o)
{
    uint64_t end = now_ms() + DEADLINE_MS;
    int value = 0;
    /* On AF_UNIX sent bytes are in the other end's queue at once, and counted here until they are read. */
    while (!unix_names && syscall(SYS_ioctl, num(a, 1), SIOCOUTQ, &value) == 0 && value > 0 && now_ms() < end)
        nap_us(200);
    say(o, value > 0 ? "unsent" : "sent");
}

enum kind { INT, TIME, LINGER, TEXT, FILTER };
static const struct option {
    const char *name;
    int level, option;
    enum kind kind;
} options[] = {
    {"rcvtimeo", SOL_SOCKET, SO_RCVTIMEO, TIME},   {"sndtimeo", SOL_SOCKET, SO_SNDTIMEO, TIME},
    {"rcvlowat", SOL_SOCKET, SO_RCVLOWAT, INT},    {"linger", SOL_SOCKET, SO_LINGER, LINGER},
    {"error", SOL_SOCKET, SO_ERROR, INT},          {"keepalive", SOL_SOCKET, SO_KEEPALIVE, INT},
    {"sndbuf", SOL_SOCKET, SO_SNDBUF, INT},        {"rcvbuf", SOL_SOCKET, SO_RCVBUF, INT},
    {"type", SOL_SOCKET, SO_TYPE, INT},            {"domain", SOL_SOCKET, SO_DOMAIN, INT},
    {"acceptconn", SOL_SOCKET, SO_ACCEPTCONN, INT}, {"reuseaddr", SOL_SOCKET, SO_REUSEADDR, INT},
    {"oobinline", SOL_SOCKET, SO_OOBINLINE, INT},  {"nodelay", IPPROTO_TCP, TCP_NODELAY, INT},
    {"cork", IPPROTO_TCP, TCP_CORK, INT},          {"ulp", IPPROTO_TCP, TCP_ULP, TEXT},
    {"v6only", IPPROTO_IPV6, IPV6_V6ONLY, INT},    {"peek_off", SOL_SOCKET, SO_PEEK_OFF, INT},
    {"maxseg", IPPROTO_TCP, TCP_MAXSEG, INT},      {"zerocopy", SOL_SOCKET, SO_ZEROCOPY, INT},
    {"inq", IPPROTO_TCP, TCP_INQ, INT},            {"timestamp", SOL_SOCKET, SO_TIMESTAMP_OLD, INT},
    {"timestampns", SOL_SOCKET, SO_TIMESTAMPNS_OLD, INT}, {"timestamping", SOL_SOCKET, SO_TIMESTAMPING_OLD, INT},
    {"timestamp_new", SOL_SOCKET, SO_TIMESTAMP_NEW, INT}, {"timestampns_new", SOL_SOCKET, SO_TIMESTAMPNS_NEW, INT},
    {"timestamping_new", SOL_SOCKET, SO_TIMESTAMPING_NEW, INT},
    {"incoming_cpu", SOL_SOCKET, SO_INCOMING_CPU, INT}, {"filter", SOL_SOCKET, SO_ATTACH_FILTER, FILTER},
    {"reuseport", SOL_SOCKET, SO_REUSEPORT, INT},  {"broadcast", SOL_SOCKET, SO_BROADCAST, INT},
    {"pktinfo", IPPROTO_IP, IP_PKTINFO, INT},      {"pktinfo6", IPPROTO_IPV6, IPV6_RECVPKTINFO, INT},
    {"recvttl", IPPROTO_IP, IP_RECVTTL, INT},      {"recverr", IPPROTO_IP, IP_RECVERR, INT},
    {"rxq_ovfl", SOL_SOCKET, SO_RXQ_OVFL, INT},    {"udp_cork", IPPROTO_UDP, UDP_CORK, INT},
    {"udp_segment", IPPROTO_UDP, UDP_SEGMENT, INT}, {"udp_gro", IPPROTO_UDP, UDP_GRO, INT},
    {NULL, 0, 0, INT},
};

static const struct option *find_option(const char *name)
{
    const struct option *p = options;
    while (p->name && strcmp(p->name, name) != 0)
        p++;
    return p;
}

/* setsockopt FD NAME VALUE [SECOND]; times in milliseconds, of a filter how many octets of each segment it lets pass */
static void do_setsockopt(struct args *a, struct out *o)
{
    const struct option *p = find_option(arg(a, 2));
    long v = num(a, 3);
    int as_int = (int)v;
    struct timeval as_time = {v / 1000, v % 1000 * 1000};
    struct linger as_linger = {(int)v, (int)num_or(a, 4, 0)};
    struct sock_filter passes = BPF_STMT(BPF_RET | BPF_K, (unsigned)v);
    struct sock_fprog as_filter = {1, &passes};
    const void *value = &as_int;
    socklen_t len = sizeof as_int;
    if (p->kind == TIME) {
        value = &as_time;
        len = sizeof as_time;
    } else if (p->kind == LINGER) {
        value = &as_linger;
        len = sizeof as_linger;
    } else if (p->kind == FILTER) {
        value = &as_filter;
        len = sizeof as_filter;
    } else if (p->kind == TEXT) {
        value = arg(a, 3);
        len = (socklen_t)strlen(arg(a, 3));
    }
    CALL(o, setsockopt((int)num(a, 1), p->level, p->option, value, len));
}

/* vfork_set FD fionbio|OPTION VALUE: a vfork child sets that, and ends. */
static void do_vfork_set(struct args *a, struct out *o)
{
    const struct option *p = find_option(arg(a, 2));
    int fd = (int)num(a, 1), value = (int)num(a, 3), status = 0;
    struct timeval as_time = {value / 1000, value % 1000 * 1000};
    pid_t pid = vfork();
    if (pid == 0) {
        int failed = !p->name            ? ioctl(fd, FIONBIO, &value)
                     : p->kind == TIME   ? setsockopt(fd, p->level, p->option, &as_time, sizeof as_time)
                                         : setsockopt(fd, p->level, p->option, &value, sizeof value);
        _exit(failed != 0);
    }
    waitpid(pid, &status, 0);
    say(o, "status %d", WEXITSTATUS(status));
}

static void do_getsockopt(struct args *a, struct out *o)
{
    const struct option *p = find_option(arg(a, 2));
    union {
        int i;
        struct timeval t;
        struct linger l;
        char text[64];
    } v;
    memset(&v, 0, sizeof v);
    socklen_t len = sizeof v;
    CALL(o, getsockopt((int)num(a, 1), p->level, p->option, &v, &len));
    say(o, " len=%u", len);
    if (p->kind == TIME)
        say(o, " %ld", v.t.tv_sec * 1000 + v.t.tv_usec / 1000);
    else if (p->kind == LINGER)
        say(o, " %d %d", v.l.l_onoff, v.l.l_linger);
    else if (p->kind == TEXT)
        say(o, " %.16s", v.text);
    else if (p->option == SO_ERROR && p->level == SOL_SOCKET && v.i)
        say(o, " %s", strerrorname_np(v.i));
    else
        say(o, " %d", v.i);
}

/* fds: the open descriptors below the driver's pipes, found behind libc's back. */
static void do_fds(struct args *a, struct out *o)
{
    (void)a;
    say(o, "open");
    for (int fd = 0; fd < CONTROL_IN; fd++)
        if (syscall(SYS_fcntl, fd, F_GETFD) >= 0)
            say(o, " %d", fd);
}

static void do_nofile(struct args *a, struct out *o)
{
    struct rlimit r;
    CALL(o, getrlimit(RLIMIT_NOFILE, &r));
    if (a->n > 1) {
        r.rlim_cur = (rlim_t)num(a, 1);
        o->len = 0;
        CALL(o, setrlimit(RLIMIT_NOFILE, &r));
        getrlimit(RLIMIT_NOFILE, &r);
    }
    say(o, " %lu %lu", (unsigned long)r.rlim_cur, (unsigned long)r.rlim_max);
}

const struct command socket_commands[] = {
    {"socket", do_socket},         {"socketpair", do_socketpair},   {"pipe", do_pipe},
    {"bind", do_bind},             {"listen", do_listen},           {"connect", do_connect},
    {"accept", do_accept},         {"accept4", do_accept4},         {"getsockname", do_getsockname},
    {"getpeername", do_getpeername}, {"close", do_close},           {"shutdown", do_shutdown},
    {"dup", do_dup},               {"dup2", do_dup2},               {"dup3", do_dup3},
    {"fcntl", do_fcntl},           {"close_range", do_close_range}, {"closefrom", do_closefrom},
    {"fionread", do_fionread},     {"outq", do_outq},               {"fionbio", do_fionbio},
    {"atmark", do_atmark},         {"wait_in", do_wait_in},         {"wait_sent", do_wait_sent},
    {"setsockopt", do_setsockopt}, {"vfork_set", do_vfork_set}, {"getsockopt", do_getsockopt},   {"fds", do_fds},
    {"nofile", do_nofile},         {"raw_close", do_raw_close},     {"raw_sndbuf", do_raw_sndbuf},
    {NULL, NULL},
};
