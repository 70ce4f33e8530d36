// sendmmsg and recvmmsg while a handler runs, and what they leave for the next call. Included once, by signals.c, after
// what it uses.

enum { SEVERAL = 64, LENGTH = 100000 };

static struct mmsghdr several[SEVERAL];
static struct iovec parts[SEVERAL];

static void prepare(int n, size_t length) {
    memset(several, 0, sizeof several);
    for (int i = 0; i < n; i++) {
        parts[i].iov_base = big + i * 1000;
        parts[i].iov_len = length;
        several[i].msg_hdr.msg_iov = &parts[i];
        several[i].msg_hdr.msg_iovlen = 1;
    }
}

static int pending_error(void) {
    int error;
    socklen_t len = sizeof error;
    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len);
    return error;
}

static void arrives(uint32_t n) {
    struct pollfd p = {s, POLLIN, 0};
    int there = 0;
    order('s', 0, n);
    for (int i = 0; i < 1000 && there < (int)n; i++) {
        poll(&p, 1, 10);
        ioctl(s, FIONREAD, &there);
    }
}

// What `n` messages have sent, and whether only the last is short.
static size_t sent_by(int n, int *whole) {
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += several[i].msg_len;
        *whole &= i == n - 1 || several[i].msg_len == LENGTH;
    }
    return sum;
}

static void several_messages(void) {
    uint64_t got[2];
    int whole = 1;
    for (int i = 0; i < 2; i++) {
        install(SIGALRM, count, i ? SA_RESTART : 0);
        install(SIGUSR2, count, i ? SA_RESTART : 0);
        arrives(10);
        prepare(3, 10);
        alarm_in(SOON_US, 0);
        result("recvmmsg, then a handler", recvmmsg(s, several, 3, 0, NULL));
        pending_error();
        // The peer reads only when it is told how much.
        prepare(SEVERAL, LENGTH);
        alarm_in(SOON_US, 0);
        int r = sendmmsg(s, several, SEVERAL, 0);
        alarm_in(0, 0);
        size_t sum = sent_by(r, &whole);
        printf("sendmmsg, then a handler: short %d, whole %d, handler %d\n", r > 0 && sum < SEVERAL * LENGTH, whole, (int)ran);
        ran = 0;
        order('r', 0, sum);
        answer(got);
    }
    // Room comes while a call is under way: nothing overtakes the rest of a message that was cut.
    enum { TOTAL = 32 << 20 };
    order('r', 0, TOTAL);
    for (size_t left = TOTAL; left > 0;) {
        prepare(SEVERAL, LENGTH);
        for (size_t i = 0, plan = 0; i < SEVERAL; plan += LENGTH, i++)
            parts[i].iov_len = plan >= left ? 0 : left - plan < LENGTH ? left - plan : LENGTH;
        int n = 0;
        while (n < SEVERAL && parts[n].iov_len == LENGTH)
            n++;
        if (n == 0)
            n = 1;
        int r = sendmmsg(s, several, n, MSG_DONTWAIT);
        struct pollfd p = {s, POLLOUT, 0};
        if (r < 0)
            poll(&p, 1, 1000);
        else
            left -= left < LENGTH ? several[0].msg_len : sent_by(r, &whole);
    }
    answer(got);
    printf("cut and whole: %d\n", whole);
    // An error after some messages is the next call's.
    arrives(20);
    prepare(2, 10);
    parts[1].iov_base = (void *)8;
    printf("recvmmsg into nowhere: %d\n", recvmmsg(s, several, 2, 0, NULL));
    printf("then: %d\n", recvmmsg(s, several, 1, MSG_DONTWAIT, NULL) == -1 ? errno : 0);
    prepare(2, 5);
    printf("then: %d\n", recvmmsg(s, several, 2, 0, NULL));
    arrives(20);
    prepare(2, 10);
    several[1].msg_hdr.msg_iov = (void *)8;
    printf("recvmmsg by nothing: %d\n", recvmmsg(s, several, 2, 0, NULL));
    printf("then: %d\n", pending_error());
    struct timespec soon = {0, 1};
    prepare(2, 5);
    printf("recvmmsg for a while: %d\n", recvmmsg(s, several, 2, 0, &soon));
    printf("recvmmsg for one: %d\n", recvmmsg(s, several, 2, MSG_WAITFORONE, NULL));
}
