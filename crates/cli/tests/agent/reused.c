/* What becomes of a call whose connection another thread closes, replaces or dissolves while it waits, or is held up: nothing of what has
 * the number next is taken, told or sent by it. The library raises SIGUSR2 at one place of the call, and the handler stops it there.
 *
 *     reused reused     a receive has copied its bytes: its connection is closed, and another one is in its place
 *     reused inherited  the same in a forked process, where another thread has received them
 *     reused peeked     a MSG_PEEK waits for more than there is: its connection is closed, and another one is in its place
 *     reused owing      a receive waits for what is taken back: likewise
 *     reused elsewhere  a poll is told of an end: its connection is closed, and another one is in its place
 *     reused half       a MSG_PEEK waits for more than half a ring, and half of that is there: it sleeps
 *     reused replaced   a receive is about to sleep, or the ring was empty: another descriptor takes the number
 *     reused dissolved  a receive has copied its bytes: its connection is dissolved
 *     reused parted     the second message of a call is about to be sent: another descriptor takes the number
 *     reused long       a send is about to begin: another descriptor has taken the number long ago
 *
 * The other end obeys orders, as in between.c. */
#include "between_peer.h"

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

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    alarm(4 * PATIENCE);
    connect_both();
    if (!strcmp(mode, "reused"))
        reused();
    else if (!strcmp(mode, "inherited"))
        inherited();
    else if (!strcmp(mode, "peeked"))
        peeked();
    else if (!strcmp(mode, "owing"))
        owing();
    else if (!strcmp(mode, "elsewhere"))
        elsewhere();
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
    else
        printf("what is %s\n", mode);
    printf(met ? "whole\n" : "never\n");
    return 0;
}
