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
 *     between jumped     a handler leaves a send by siglongjmp; later ones are sent
 *
 * The other end is a process that obeys orders. Who waits for an order or its answer does so by a system call that the
 * library does not see: it does nothing for anybody meanwhile. */
#include "between_peer.h"

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
    else if (!strcmp(mode, "jumped"))
        jumped();
    else
        printf("what is %s\n", mode);
    printf(met ? "whole\n" : "never\n");
    return 0;
}
