/* One connection, the process at its other end, which obeys orders, and what is to happen where the library raises SIGUSR2.
 * The bytes of the stream are told by their positions, so each that is lost, doubled or out of place shows. Included once by
 * a program. */
#include "agent.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <alloca.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE = 100, ROUNDS = 100, PATIENCE = 5 };

static int listener, connection, orders[2], answers[2], gate[2];
static unsigned long sent, received;
static pid_t other;
static atomic_int armed, met;
static void (*event)(void);

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static char byte_at(unsigned long position) { return (char)((position * 2654435761u) >> 13); }

static void prepare(char *message)
{
    for (int i = 0; i < MESSAGE; i++)
        message[i] = byte_at(sent + (unsigned long)i);
    sent += MESSAGE;
}

static void send_next(int unseen)
{
    char message[MESSAGE];
    prepare(message);
    long n = unseen ? plain(SYS_write, connection, (long)message, MESSAGE)
                    : send(connection, message, MESSAGE, MSG_NOSIGNAL);
    if (n != MESSAGE)
        die("send");
}

/* The next bytes of the stream, `n` of them. */
static void take(const char *got, long n)
{
    for (long i = 0; i < n; i++)
        if (got[i] != byte_at(received + (unsigned long)i)) {
            printf("wrong byte %ld of %ld at %lu\n", i, n, received);
            exit(1);
        }
    received += (unsigned long)n;
}

static void receive_next(long left)
{
    char got[MESSAGE];
    while (left > 0) {
        long n = recv(connection, got, (size_t)(left < MESSAGE ? left : MESSAGE), 0);
        if (n <= 0) {
            printf("%s after %lu bytes\n", n ? strerror(errno) : "the end", received);
            exit(1);
        }
        take(got, n);
        left -= n;
    }
}

static struct sockaddr_in address = {.sin_family = AF_INET};

static void connect_again(void)
{
    sent = received = 0;
    connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect");
}

/* Taken back, and not sent again yet: it says so, and waits until it is told to go on. */
static void stay_between(int number)
{
    char byte = 'b';
    (void)number;
    signal(SIGUSR2, SIG_IGN);
    plain(SYS_write, answers[1], (long)&byte, 1);
    plain(SYS_read, gate[0], (long)&byte, 1);
}

static void obey(void)
{
    char what;
    signal(SIGUSR2, SIG_IGN);
    signal(SIGIO, SIG_IGN);
    while (plain(SYS_read, orders[0], (long)&what, 1) == 1) {
        /* Bytes that wait where nobody looks for them end this, and with it everything. */
        alarm(PATIENCE);
        if (what == 's') {
            send_next(0);
        } else if (what == 'p') {
            char message[MESSAGE];
            int way[2];
            prepare(message);
            if (pipe(way) != 0 || write(way[1], message, MESSAGE) != MESSAGE ||
                splice(way[0], NULL, connection, NULL, MESSAGE, 0) != MESSAGE)
                die("splice");
            close(way[0]);
            close(way[1]);
        } else if (what == 'u') {
            send_next(1);
        } else if (what == 'r') {
            receive_next(MESSAGE);
        } else if (what == 'f') {
            /* Unseen: the ring is left as it is, as by a process that is killed. */
            if (plain(SYS_shutdown, connection, SHUT_WR, 0) != 0)
                die("shutdown");
        } else if (what == 'n') {
            close(connection);
            connect_again();
        } else if (what == 'a') {
            if (fcntl(connection, F_SETFL, fcntl(connection, F_GETFL) | O_ASYNC) != 0)
                die("O_ASYNC");
            plain(SYS_write, answers[1], (long)&what, 1);
            /* The bytes come by themselves, or never. */
            alarm(PATIENCE);
            char got[MESSAGE];
            for (long n, left = MESSAGE; left > 0; left -= n) {
                if ((n = plain(SYS_read, connection, (long)got, left)) <= 0)
                    die("read");
                take(got, n);
            }
            send_next(0);
            alarm(0);
            continue;
        } else if (what == 'b') {
            signal(SIGUSR2, stay_between);
            if (fcntl(connection, F_SETFL, fcntl(connection, F_GETFL) | O_ASYNC) != 0)
                die("O_ASYNC");
            signal(SIGUSR2, SIG_IGN);
        } else if (what == 'd') {
            send_next(0);
            plain(SYS_kill, getpid(), SIGKILL, 0);
        }
        alarm(0);
        plain(SYS_write, answers[1], (long)&what, 1);
    }
    _exit(0);
}

static void order(char what)
{
    char done;
    if (plain(SYS_write, orders[1], (long)&what, 1) != 1 || plain(SYS_read, answers[0], (long)&done, 1) != 1) {
        printf("the other end does not answer to %c\n", what);
        exit(1);
    }
}

static void connect_both(void)
{
    socklen_t length = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 || pipe(orders) != 0 ||
        pipe(answers) != 0 || pipe(gate) != 0)
        die("listen");
    other = fork();
    if (other == 0) {
        close(orders[1]);
        close(answers[0]);
        connect_again();
        obey();
    }
    close(answers[1]);
    connection = accept(listener, NULL, NULL);
    if (connection < 0)
        die("accept");
}

static void on_signal(int number)
{
    (void)number;
    if (atomic_load(&armed) && !atomic_exchange(&met, 1))
        event();
}

/* The call stays where it is until the gate opens. */
static void hold(void)
{
    char byte;
    while (plain(SYS_read, gate[0], (long)&byte, 1) == -1 && errno == EINTR)
        ;
}

/* The other end's bytes go through a ring; this one has sent nothing, so nothing of its own wakes it. */
static void be_sent(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        order('s');
        receive_next(MESSAGE);
    }
}

static void watch(void (*what)(void))
{
    event = what;
    alarm(PATIENCE);
    atomic_store(&armed, 1);
}

static void find(int ready)
{
    if (ready != 1)
        die("the wait");
    receive_next(MESSAGE);
}

void nap_us(unsigned us)
{
    struct timespec t = {0, (long)us * 1000};
    plain(SYS_nanosleep, (long)&t, 0, 0);
}

static int poll_for(int ms)
{
    struct pollfd one = {.fd = connection, .events = POLLIN};
    return poll(&one, 1, ms);
}

static void await(void)
{
    while (!atomic_load(&met))
        nap_us(100);
}

static void open_gate(void) { plain(SYS_write, gate[1], (long)"", 1); }
