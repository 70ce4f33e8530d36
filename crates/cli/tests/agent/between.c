/* What another thread or process does between two looks of one call. The library raises SIGUSR2 there, and the handler has
 * it done. The bytes of the stream are told by their positions, so each that is lost, doubled or out of place shows.
 *
 *     between ended      the ring was empty: the writer sends and is killed, before the carrier is looked at
 *     between foreign    the ring was empty: bytes come there, then some that a system call puts into the carrier
 *     between owed       the ring was taken back, and nothing was sent again when the carrier was looked at
 *     between overtaken  a send of a cold connection has not gone into the kernel yet: a ring is there meanwhile
 *     between late       a receive of a cold connection is not known yet: a ring is there meanwhile
 *     between alone      sends of a process with one thread, which alone holds the connection: locks cost nothing
 *     between company    sends beside another thread
 *     between sibling    sends beside a process that holds the connection, too
 *     between read       a receive is about to sleep: bytes come into the ring
 *     between polled     a poll is; between epolled: an epoll_wait is, at first and when nothing came for a while
 *     between begun      a receive is about to sleep on the kernel's path: a ring begins
 *     between drained    the same, and somebody else has found out that the ring goes on
 *     between demanded   a poll is about to sleep: the other end wants what is in the ring by the kernel
 *     between cold-poll  a poll of a cold connection is about to sleep: a ring is there meanwhile
 *     between edge       the kernel tells of an end, once, just after the carrier was looked at
 *     between reused     a receive has copied its bytes: its connection is closed, and another one is in its place
 *     between inherited  the same in a forked process, where another thread has received them
 *     between peeked     a MSG_PEEK waits for more than there is: its connection is closed, and another one is in its place
 *     between owing      a receive waits for what is taken back: likewise
 *     between elsewhere  a poll is told of an end: its connection is closed, and another one is in its place
 *     between half       a MSG_PEEK waits for more than half a ring, and half of that is there: it sleeps
 *     between replaced   a receive is about to sleep, or the ring was empty: another descriptor takes the number
 *     between dissolved  a receive has copied its bytes: its connection is dissolved
 *     between parted     the second message of a call is about to be sent: another descriptor takes the number
 *     between long       a send is about to begin: another descriptor has taken the number long ago
 *     between jumped     a handler leaves a send by siglongjmp; later ones are sent
 *
 * The other end is a process that obeys orders. Who waits for an order or its answer does so by a system call that the
 * library does not see: it does nothing for anybody meanwhile. */
#include "between_peer.h"

static int poll_for(int ms)
{
    struct pollfd one = {.fd = connection, .events = POLLIN};
    return poll(&one, 1, ms);
}

/* ---- with an empty ring -------------------------------------------------------------------------------- */

static void die_sending(void)
{
    char what = 'd';
    int status;
    plain(SYS_write, orders[1], (long)&what, 1);
    /* Its end is in the carrier when it can be waited for. */
    while (plain(SYS_wait4, other, (long)&status, 0) == -1 && errno == EINTR)
        ;
}

static void send_both_ways(void)
{
    order('s');
    order('u');
}

static void look_at_an_empty_ring(void (*what)(void))
{
    char got[2 * MESSAGE];
    event = what;
    for (int i = 0; i < ROUNDS; i++) {
        order('s');
        receive_next(MESSAGE);
        send_next(0);
        order('r');
    }
    atomic_store(&armed, 1);
    long n = recv(connection, got, sizeof got, MSG_DONTWAIT);
    atomic_store(&armed, 0);
    if (n == 0) {
        printf("the end comes first\n");
        exit(1);
    }
    if (n > 0)
        take(got, n);
}

static void ended(void)
{
    look_at_an_empty_ring(die_sending);
    if (!met)
        return;
    char byte;
    receive_next((ROUNDS + 1l) * MESSAGE - (long)received);
    if (recv(connection, &byte, 1, 0) != 0)
        printf("no end\n");
}

static void go_on(void)
{
    char byte = 'g';
    plain(SYS_write, gate[1], (long)&byte, 1);
    plain(SYS_read, answers[0], (long)&byte, 1);
}

/* Who was told that there is something to read finds it, though it changes its path meanwhile. */
static void owed(void)
{
    char got[MESSAGE];
    event = go_on;
    be_sent();
    order('s');
    if (poll_for(0) != 1)
        die("the poll");
    order('b');
    atomic_store(&armed, 1);
    long n = recv(connection, got, sizeof got, MSG_DONTWAIT);
    atomic_store(&armed, 0);
    if (n != MESSAGE) {
        printf("%s where there is something to read\n", n < 0 ? strerror(errno) : "another number");
        exit(1);
    }
    take(got, n);
}

static void foreign(void)
{
    look_at_an_empty_ring(send_both_ways);
    if (met)
        receive_next((ROUNDS + 2l) * MESSAGE - (long)received);
}

/* ---- with a cold connection ---------------------------------------------------------------------------- */

static void await(void)
{
    while (!atomic_load(&met))
        nap_us(100);
}

static void open_gate(void) { plain(SYS_write, gate[1], (long)"", 1); }

static char first[MESSAGE];

static void *send_first(void *unused)
{
    if (send(connection, first, MESSAGE, MSG_NOSIGNAL) != MESSAGE)
        die("send");
    return unused;
}

static void *receive_first(void *unused)
{
    receive_next(MESSAGE);
    return unused;
}

static void overtaken(void)
{
    pthread_t thread;
    /* Its bytes are the second message, as they go into the kernel after the first. */
    sent = MESSAGE;
    prepare(first);
    sent = 0;
    event = hold;
    atomic_store(&armed, 1);
    if (pthread_create(&thread, NULL, send_first, NULL) != 0)
        die("pthread_create");
    await();
    for (int i = 0; i < ROUNDS; i++) {
        order('s');
        receive_next(MESSAGE);
    }
    send_next(0);
    open_gate();
    pthread_join(thread, NULL);
    order('r');
    order('r');
}

static void late(void)
{
    pthread_t thread;
    event = hold;
    atomic_store(&armed, 1);
    if (pthread_create(&thread, NULL, receive_first, NULL) != 0)
        die("pthread_create");
    await();
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
    order('s');
    open_gate();
    alarm(PATIENCE);
    pthread_join(thread, NULL);
}

/* ---- before a sleep ------------------------------------------------------------------------------------ */

enum { REST = 900 };

static void send_one(void) { order('s'); }

/* This end's bytes go through a ring, and what is done for its memory is done. */
static void send_and_rest(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
    poll_for(REST);
}

static void read_late(void)
{
    be_sent();
    watch(send_one);
    receive_next(MESSAGE);
}

static void poll_late(void)
{
    be_sent();
    watch(send_one);
    find(poll_for(-1));
}

static void epoll_late(int idle, uint32_t edge)
{
    struct epoll_event one = {.events = EPOLLIN | edge};
    int set = epoll_create1(0);
    if (epoll_ctl(set, EPOLL_CTL_ADD, connection, &one) != 0)
        die("epoll_ctl");
    /* A set that nobody waits on keeps its ends on the kernel. */
    epoll_wait(set, &one, 1, 0);
    be_sent();
    epoll_wait(set, &one, 1, 20);
    if (!idle) {
        order('s');
        epoll_wait(set, &one, 1, -1);
        receive_next(MESSAGE);
    }
    watch(send_one);
    find(epoll_wait(set, &one, 1, -1));
}

static void begun(void)
{
    send_and_rest();
    watch(send_one);
    receive_next(MESSAGE);
}

static atomic_int looked;

static void *look(void *unused)
{
    hold();
    poll_for(0);
    atomic_store(&looked, 1);
    return unused;
}

static void send_and_look(void)
{
    send_one();
    open_gate();
    while (!atomic_load(&looked))
        nap_us(100);
}

static void drained(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, look, NULL) != 0)
        die("pthread_create");
    send_and_rest();
    watch(send_and_look);
    receive_next(MESSAGE);
    pthread_join(thread, NULL);
}

static void demand(void) { order('a'); }

static void demanded(void)
{
    be_sent();
    send_and_rest();
    send_next(0);
    poll_for(REST);
    watch(demand);
    find(poll_for(-1));
}

/* An edge is told once: the read that follows must find the end, however fresh the last look is. */
static void edge(void)
{
    struct epoll_event one = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    char byte;
    int set = epoll_create1(0);
    if (epoll_ctl(set, EPOLL_CTL_ADD, connection, &one) != 0)
        die("epoll_ctl");
    epoll_wait(set, &one, 1, 0);
    be_sent();
    epoll_wait(set, &one, 1, 0);
    /* The first empty receive looks at the carrier, the second takes note of when. */
    if (recv(connection, &byte, 1, MSG_DONTWAIT) != -1 || recv(connection, &byte, 1, MSG_DONTWAIT) != -1)
        die("bytes from nowhere");
    order('f');
    alarm(PATIENCE);
    while (epoll_wait(set, &one, 1, -1) == 1 && !(one.events & EPOLLRDHUP))
        ;
    if (recv(connection, &byte, 1, MSG_DONTWAIT) != 0) {
        printf("the end is not to be seen\n");
        exit(1);
    }
    met = 1;
}

static char copied[MESSAGE];
static long copied_for;

static int copy_flags;

static void *copy_old(void *old)
{
    copied_for = recv(*(int *)old, copied, MESSAGE, copy_flags);
    return NULL;
}

static void reused(void)
{
    pthread_t thread;
    int old = connection;
    be_sent();
    order('s');
    watch(hold);
    if (pthread_create(&thread, NULL, copy_old, &old) != 0)
        die("pthread_create");
    await();
    close(old);
    order('n');
    connection = accept(listener, NULL, NULL);
    if (connection < 0)
        die("accept");
    unsigned long before = received;
    received = 0;
    be_sent();
    order('s');
    open_gate();
    pthread_join(thread, NULL);
    /* Those of the old connection, or none: the others are the new one's. */
    for (long i = 0; i < copied_for; i++)
        if (copied[i] != byte_at(before + (unsigned long)i)) {
            printf("bytes of another connection\n");
            exit(1);
        }
    receive_next(MESSAGE);
}

static int peek_for, client;

static void *look_long(void *old)
{
    static char seen[1 << 18];
    copied_for = recv(*(int *)old, seen, peek_for ? (size_t)peek_for : sizeof seen, copy_flags);
    if (copied_for > 0)
        memcpy(copied, seen, copied_for < MESSAGE ? (size_t)copied_for : MESSAGE);
    return NULL;
}

/* A connection of its own has the number, and brings something. */
static void take_over(int old)
{
    char message[MESSAGE];
    memset(message, '!', sizeof message);
    if (connect(client, (struct sockaddr *)&address, sizeof address) != 0 ||
        (connection = accept(listener, NULL, NULL)) != old || write(client, message, MESSAGE) != MESSAGE)
        die("another connection");
    nap_us(50000);
}

static void look_at_both(int old)
{
    char message[MESSAGE];
    if (copied_for > 0 && memmem(copied, sizeof copied, "!!!!!!!!", 8)) {
        printf("bytes of another connection\n");
        exit(1);
    }
    if (recv(old, message, MESSAGE, MSG_DONTWAIT) != MESSAGE || message[0] != '!') {
        printf("what another connection brought is gone\n");
        exit(1);
    }
}

/* Its connection is closed while a thread waits for more. */
static void close_beside_sleeper(void)
{
    pthread_t thread;
    int old = connection;
    client = socket(AF_INET, SOCK_STREAM, 0);
    peek_for = 2 * MESSAGE;
    if (pthread_create(&thread, NULL, look_long, &old) != 0)
        die("pthread_create");
    nap_us(20000);
    close(old);
    take_over(old);
    open_gate();
    if (copy_flags & MSG_PEEK)
        order('n');
    pthread_join(thread, NULL);
    look_at_both(old);
    met = 1;
}

/* Its child goes on. */
static void leave_to_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        return;
    close(connection);
    plain(SYS_wait4, child, (long)&status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void inherited(void)
{
    pthread_t thread;
    int old = connection;
    be_sent();
    order('s');
    leave_to_child();
    client = socket(AF_INET, SOCK_STREAM, 0);
    copy_flags = MSG_DONTWAIT;
    watch(hold);
    if (pthread_create(&thread, NULL, copy_old, &old) != 0)
        die("pthread_create");
    await();
    /* It has to look anew. */
    receive_next(MESSAGE);
    close(old);
    take_over(old);
    open_gate();
    pthread_join(thread, NULL);
    look_at_both(old);
}

static void *poll_once(void *unused)
{
    poll_for(-1);
    return unused;
}

static void elsewhere(void)
{
    pthread_t thread;
    int old = connection;
    be_sent();
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
    send_next(0);
    if (pthread_create(&thread, NULL, poll_once, NULL) != 0)
        die("pthread_create");
    nap_us(20000);
    watch(hold);
    order('f');
    await();
    close(old);
    order('n');
    if ((connection = accept(listener, NULL, NULL)) != old)
        die("another connection");
    sent = received = 0;
    be_sent();
    send_next(0);
    open_gate();
    pthread_join(thread, NULL);
    order('r');
    be_sent();
    send_next(0);
    order('r');
}

static void peeked(void)
{
    be_sent();
    order('p');
    copy_flags = MSG_PEEK | MSG_WAITALL;
    close_beside_sleeper();
}

static void owing(void)
{
    be_sent();
    order('s');
    order('b');
    copy_flags = MSG_DONTWAIT;
    close_beside_sleeper();
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Or few, and some that nobody saw in the carrier. */
static void half(int unseen)
{
    struct timeval limit = {.tv_usec = 500000};
    int there = unseen ? MESSAGE : 140000;
    be_sent();
    for (int i = 0; i < there / MESSAGE; i++)
        order('s');
    if (unseen)
        order('u');
    if (setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        die("SO_RCVTIMEO");
    peek_for = 200000;
    copy_flags = MSG_PEEK | MSG_WAITALL;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    look_long(&connection);
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (copied_for < there || wall < 0.4) {
        printf("%ld in %.3f s\n", copied_for, wall);
        exit(1);
    }
    if (cpu > wall / 2) {
        printf("%.3f s of processor time in %.3f s\n", cpu, wall);
        exit(1);
    }
    met = 1;
}

static int spare[2];

static void replace(void)
{
    if (dup2(spare[0], connection) != connection)
        die("dup2");
}

/* There is no moment at which the number means nothing. */
static void replaced(void)
{
    char got = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, spare) != 0 || write(spare[1], "x", 1) != 1)
        die("socketpair");
    be_sent();
    watch(replace);
    for (int flags = MSG_DONTWAIT; got == 0; flags ^= MSG_DONTWAIT)
        if (recv(connection, &got, 1, flags) == -1 && errno != EAGAIN)
            die("a receive");
    if (got != 'x')
        die("another byte");
}

/* What it has copied may have been written since. */
static void dissolved(void)
{
    pthread_t thread;
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    be_sent();
    order('s');
    watch(hold);
    if (pthread_create(&thread, NULL, copy_old, &connection) != 0)
        die("pthread_create");
    await();
    if (connect(connection, &nobody, sizeof nobody) != 0)
        die("connect");
    open_gate();
    pthread_join(thread, NULL);
    if (copied_for != -1) {
        printf("%ld bytes of a connection that is dissolved\n", copied_for);
        exit(1);
    }
}

static atomic_int passes, last_pass;

static void hold_last(void)
{
    if (atomic_fetch_add(&passes, 1) < last_pass)
        atomic_store(&met, 0);
    else
        hold();
}

static void *send_parts(void *sent_parts)
{
    char message[MESSAGE] = "parts";
    struct iovec what = {message, MESSAGE};
    struct mmsghdr parts[2] = {{.msg_hdr = {.msg_iov = &what, .msg_iovlen = 1}},
                               {.msg_hdr = {.msg_iov = &what, .msg_iovlen = 1}}};
    *(long *)sent_parts = last_pass ? sendmmsg(connection, parts, 2, MSG_NOSIGNAL)
                                    : send(connection, message, MESSAGE, MSG_NOSIGNAL);
    return NULL;
}

/* What was begun for one connection does not go to another. */
static void parted(int part)
{
    pthread_t thread;
    long done;
    char got;
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, spare) != 0)
        die("socketpair");
    last_pass = part;
    watch(hold_last);
    if (pthread_create(&thread, NULL, send_parts, &done) != 0)
        die("pthread_create");
    while (passes <= part)
        sched_yield();
    replace();
    open_gate();
    pthread_join(thread, NULL);
    if (done != (part ? 1 : -1) || recv(spare[1], &got, 1, MSG_DONTWAIT) != -1) {
        printf("%ld parts of one connection are sent, and then on another\n", done);
        exit(1);
    }
}

static void *poll_cold(void *unused)
{
    find(poll_for(-1));
    return unused;
}

static void cold_poll(void)
{
    pthread_t thread;
    watch(hold);
    if (pthread_create(&thread, NULL, poll_cold, NULL) != 0)
        die("pthread_create");
    await();
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
    open_gate();
    order('s');
    pthread_join(thread, NULL);
}

/* ---- with a lock --------------------------------------------------------------------------------------- */

static void exchange(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        send_next(0);
        order('r');
        order('s');
        receive_next(MESSAGE);
    }
}

static void nothing(void) {}

static void *idle(void *unused)
{
    hold();
    return unused;
}

static void alone(const char *beside)
{
    pthread_t thread;
    pid_t sibling = 0;
    exchange(ROUNDS);
    if (!strcmp(beside, "company") && pthread_create(&thread, NULL, idle, NULL) != 0)
        die("pthread_create");
    if (!strcmp(beside, "sibling") && (sibling = fork()) == 0) {
        hold();
        _exit(0);
    }
    event = nothing;
    atomic_store(&armed, 1);
    exchange(ROUNDS);
    close(socket(AF_INET, SOCK_STREAM, 0));
    atomic_store(&armed, 0);
    open_gate();
    if (!strcmp(beside, "company"))
        pthread_join(thread, NULL);
    if (sibling > 0)
        waitpid(sibling, NULL, 0);
}

static sigjmp_buf back;

static void jump(void) { siglongjmp(back, 1); }

/* Far down the stack: what it left there is known to be gone. */
static __attribute__((noinline)) void send_from_below(void)
{
    volatile char *room = alloca(32 * 1024);
    room[0] = 0;
    send_next(0);
    room[0] = 1;
}

static void jumped(void)
{
    exchange(ROUNDS);
    event = jump;
    if (sigsetjmp(back, 1) == 0) {
        atomic_store(&armed, 1);
        send_from_below();
        atomic_store(&armed, 0);
        order('r');
        return;
    }
    /* Nobody has seen its bytes yet. */
    sent -= MESSAGE;
    for (int i = 0; i < ROUNDS; i++) {
        send_next(0);
        order('r');
    }
}

void nap_us(unsigned us)
{
    struct timespec t = {0, (long)us * 1000};
    plain(SYS_nanosleep, (long)&t, 0, 0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    alarm(4 * PATIENCE);
    connect_both();
    if (!strcmp(mode, "ended"))
        ended();
    else if (!strcmp(mode, "foreign"))
        foreign();
    else if (!strcmp(mode, "owed"))
        owed();
    else if (!strcmp(mode, "overtaken"))
        overtaken();
    else if (!strcmp(mode, "late"))
        late();
    else if (!strcmp(mode, "alone") || !strcmp(mode, "company") || !strcmp(mode, "sibling"))
        alone(mode);
    else if (!strcmp(mode, "read"))
        read_late();
    else if (!strcmp(mode, "polled"))
        poll_late();
    else if (!strcmp(mode, "epolled") || !strcmp(mode, "epolled-idle"))
        epoll_late(!strcmp(mode, "epolled-idle"), 0);
    else if (!strcmp(mode, "epolled-edge"))
        epoll_late(0, EPOLLET);
    else if (!strcmp(mode, "begun"))
        begun();
    else if (!strcmp(mode, "drained"))
        drained();
    else if (!strcmp(mode, "demanded"))
        demanded();
    else if (!strcmp(mode, "cold-poll"))
        cold_poll();
    else if (!strcmp(mode, "edge"))
        edge();
    else if (!strcmp(mode, "reused"))
        reused();
    else if (!strcmp(mode, "inherited"))
        inherited();
    else if (!strcmp(mode, "elsewhere"))
        elsewhere();
    else if (!strcmp(mode, "peeked"))
        peeked();
    else if (!strcmp(mode, "owing"))
        owing();
    else if (!strcmp(mode, "half") || !strcmp(mode, "half-unseen"))
        half(!strcmp(mode, "half-unseen"));
    else if (!strcmp(mode, "replaced"))
        replaced();
    else if (!strcmp(mode, "dissolved"))
        dissolved();
    else if (!strcmp(mode, "parted"))
        parted(1);
    else if (!strcmp(mode, "long"))
        parted(0);
    else if (!strcmp(mode, "jumped"))
        jumped();
    else
        printf("what is %s\n", mode);
    printf(met ? "whole\n" : "never\n");
    return 0;
}
