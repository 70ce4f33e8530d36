// Calls that a handler interrupts: EINTR and SA_RESTART. Included once, by signals.c, after what it uses.

static void count(int n) {
    (void)n;
    ran++;
    handled = now();
}

static void install(int sig, void (*handler)(int), int flags) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
    if (sig == SIGUSR2)
        sigaddset(&a.sa_mask, SIGALRM);
    if (sig == SIGALRM)
        sigaddset(&a.sa_mask, SIGUSR2);
    if (sigaction(sig, &a, NULL))
        die("sigaction");
}

static void alarm_in(long us, long every) {
    struct itimerval t = {{0, every}, {0, us}};
    setitimer(ITIMER_REAL, &t, NULL);
}

static void result(const char *name, ssize_t r) {
    int e = errno;
    alarm_in(0, 0);
    if (r == -1)
        printf("%s: %s, handler %d\n", name, strerrorname_np(e), (int)ran);
    else
        printf("%s: %zd, handler %d\n", name, r, (int)ran);
    ran = 0;
}

// Whether the handler ran well before the peer did what it was told to do LATER. Where the whole machine stood still in
// between, both are there at once and either may end the call: such a case says nothing and is made again.
static int in_time(void) {
    static int more = 20;
    int64_t after = (handled ? handled : now()) - ordered;
    return after < (LATER_MS - 20) * 1000000ll || more-- <= 0;
}

// Nothing of a case that is made again.
static void forget(void) {
    alarm_in(0, 0);
    ran = 0;
}

static void limit(int which, long us) {
    struct timeval t = {us / 1000000, us % 1000000};
    setsockopt(s, SOL_SOCKET, which, &t, sizeof t);
}

// Each blocking call that waits for bytes: interrupted after SOON, the bytes come LATER.
static void receives(int flags, const char *kind) {
    char buf[64], name[64];
    struct iovec v = {buf, sizeof buf};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct mmsghdr mm = {.msg_hdr = m};
    const char *calls[] = {"read", "readv", "recv", "recvfrom", "recvmsg", "recvmmsg", "peek", "waitall"};
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s %s", calls[i], kind);
        install(SIGALRM, count, flags);
        order('s', LATER_MS, 10);
        alarm_in(SOON_US, 0);
        ssize_t r = i == 0   ? read(s, buf, sizeof buf)
                    : i == 1 ? readv(s, &v, 1)
                    : i == 2 ? recv(s, buf, sizeof buf, 0)
                    : i == 3 ? recvfrom(s, buf, sizeof buf, 0, NULL, NULL)
                    : i == 4 ? recvmsg(s, &m, 0)
                    : i == 5 ? recvmmsg(s, &mm, 1, 0, NULL)
                    : i == 6 ? recv(s, buf, sizeof buf, MSG_PEEK)
                             : recv(s, buf, 10, MSG_WAITALL);
        int told = in_time();
        told ? result(name, r) : forget();
        if (r == -1 || i == 6)
            all(s, buf, 10, 0);
        i -= !told;
    }
}

// Each call that waits for readiness.
static void readiness(int flags, const char *kind) {
    char buf[64], name[64];
    const char *calls[] = {"poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait"};
    int ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    for (int i = 0; i < 6; i++) {
        struct pollfd p = {s, POLLIN, 0};
        fd_set in;
        FD_ZERO(&in);
        FD_SET(s, &in);
        snprintf(name, sizeof name, "%s %s", calls[i], kind);
        install(SIGALRM, count, flags);
        order('s', LATER_MS, 10);
        alarm_in(SOON_US, 0);
        ssize_t r = i == 0   ? poll(&p, 1, -1)
                    : i == 1 ? ppoll(&p, 1, NULL, NULL)
                    : i == 2 ? select(s + 1, &in, NULL, NULL, NULL)
                    : i == 3 ? pselect(s + 1, &in, NULL, NULL, NULL, NULL)
                    : i == 4 ? epoll_wait(ep, &e, 1, -1)
                             : epoll_pwait(ep, &e, 1, -1, NULL);
        int told = in_time();
        told ? result(name, r) : forget();
        all(s, buf, 10, 0);
        i -= !told;
    }
    close(ep);
}

// Each call that waits for room: the peer reads LATER. Bytes that went before the signal are an answer of their own, so
// everything is filled first.
static void sends(int flags, const char *kind) {
    char name[64];
    struct iovec v = {big, 1000};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    const char *calls[] = {"write", "writev", "send", "sendto", "sendmsg"};
    for (int i = 0; i < 5; i++) {
        uint64_t got[2];
        size_t filled = 0;
        struct timespec pause = {0, 20000000};
        install(SIGALRM, count, flags);
        // What a full ring holds goes to the kernel after a while, and there is room again.
        for (int full = 0; full < 30;) {
            ssize_t k = send(s, big, 50000, MSG_DONTWAIT);
            if (k > 0)
                filled += k, full = 0;
            else
                full++, nanosleep(&pause, NULL);
        }
        snprintf(name, sizeof name, "%s %s", calls[i], kind);
        order('r', LATER_MS, filled);
        alarm_in(SOON_US, 0);
        ssize_t r = i == 0   ? write(s, big, 1000)
                    : i == 1 ? writev(s, &v, 1)
                    : i == 2 ? send(s, big, 1000, 0)
                    : i == 3 ? sendto(s, big, 1000, 0, NULL, 0)
                             : sendmsg(s, &m, 0);
        int told = in_time();
        told ? result(name, r) : forget();
        answer(got);
        if (r > 0) {
            order('r', 0, r);
            answer(got);
        }
        i -= !told;
    }
}

static void interruptions(void) {
    receives(0, "breaks");
    receives(SA_RESTART, "restarts");
    readiness(0, "breaks");
    readiness(SA_RESTART, "restarts");
    sends(0, "breaks");
    sends(SA_RESTART, "restarts");
    limit(SO_RCVTIMEO, 5000000);
    receives(SA_RESTART, "with a time-out");
}

// With handlers of both kinds installed, the one that ran decides.
static void mixed(void) {
    char buf[64];
    install(SIGUSR1, count, 0);
    for (int i = 0; i < 4; i++) {
        int breaks = i % 2;
        install(SIGALRM, count, breaks ? 0 : SA_RESTART);
        install(SIGUSR1, count, breaks ? SA_RESTART : 0);
        order('s', LATER_MS, 10);
        alarm_in(SOON_US, 0);
        ssize_t r = recv(s, buf, 10, 0);
        int told = in_time();
        told ? result(breaks ? "breaks among others" : "restarts among others", r) : forget();
        if (r == -1)
            all(s, buf, 10, 0);
        i -= !told;
    }
    // As signal() and siginterrupt() leave it.
    for (int i = 0; i < 3; i++) {
        signal(SIGALRM, count);
        if (i)
            siginterrupt(SIGALRM, i == 1);
        order('s', LATER_MS, 10);
        alarm_in(SOON_US, 0);
        ssize_t r = recv(s, buf, 10, 0);
        int told = in_time();
        told ? result(i == 0 ? "signal" : i == 1 ? "siginterrupt on" : "siginterrupt off", r) : forget();
        if (r == -1)
            all(s, buf, 10, 0);
        i -= !told;
    }
}
