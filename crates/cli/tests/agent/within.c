/* What a receive or a close meets while it is under way. Both ends of a connection are here. The bytes of the stream are
 * told by their positions, so each that is lost, doubled or out of place shows.
 *
 *     within taken     another read takes the bytes that a read is copying
 *     within claimed   the writer takes them back
 *     within peeked    a peek is copying bytes that are read and overwritten
 *     within gap       a peek finds a part of the carrier's bytes, and a ring behind the others
 *     within closed    a close with unread bytes, and a reader that has not read what was sent
 *     within siblings  a thread drains the carrier while another sleeps, for which there are bytes in the ring
 *
 * The first three happen in the middle of a copy: its second page is taken away, so that a SIGSEGV comes there. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PIECE = 2 * PAGE, MOST = 25 * PAGE, ROUNDS = 200, RING = 256 * 1024 };

static int writer, reader;
static unsigned long sent, received;
/* Side by side: the library remembers pages by the low bits of their numbers, and these must not take each other's places. */
static char *buffer, *outgoing, *incoming;
static volatile sig_atomic_t met;
static void (*event)(void);

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static char byte_at(unsigned long position)
{
    return (char)((position * 2654435761u) >> 13);
}

static int orders[2], answers[2];

static void obey(void);

/* The writer's end is here, or in a process of its own that obeys. */
static void connect_both(int receive_buffer, int apart)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer &&
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer) != 0)
        die("SO_RCVBUF");
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        die("listen");
    if (apart && (pipe(orders) != 0 || pipe(answers) != 0))
        die("pipe");
    pid_t child = apart ? fork() : 0;
    if (child == 0) {
        writer = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(writer, (struct sockaddr *)&address, length) != 0)
            die("connect");
    }
    if (apart && child == 0) {
        close(orders[1]);
        obey();
    }
    reader = accept(listener, NULL, NULL);
    if (reader < 0)
        die("accept");
}

static void send_next(size_t n)
{
    char *bytes = outgoing;
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(sent + i);
    for (size_t at = 0; at < n;) {
        ssize_t done = send(writer, bytes + at, n - at, MSG_NOSIGNAL);
        if (done <= 0)
            die("send");
        at += (size_t)done;
    }
    sent += n;
}

/* The writer of `siblings`, in a process of its own: does one thing at a time. */
static void obey(void)
{
    char order;
    int on = 1, off = 0;
    while (read(orders[0], &order, 1) == 1) {
        if (order == 'w') {
            send_next(PIECE);
        } else if (order == 'h') {
            /* The last bytes of these are held back until 'p', at most for 200 ms. */
            if (setsockopt(writer, IPPROTO_TCP, TCP_CORK, &on, sizeof on) != 0)
                die("TCP_CORK");
            send_next(70001);
        } else if (order == 'r') {
            send_next(100);
        } else if (order == 'p') {
            setsockopt(writer, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
        }
        write(answers[1], &order, 1);
    }
    _exit(0);
}

static void order(char what)
{
    char done;
    if (write(orders[1], &what, 1) != 1 || read(answers[0], &done, 1) != 1)
        die("the writer");
}

static volatile int sleeper;
static char slept[100];
static ssize_t slept_for;

static int is_next(const char *got, size_t n)
{
    size_t i = 0;
    while (i < n && got[i] == byte_at(received + i))
        i++;
    return i == n;
}

/* `got` are the next `n` bytes of the stream. */
static void check(const char *got, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != byte_at(received + i)) {
            printf("%s: wrong byte %zu of %zu at %lu\n", what, i, n, received);
            exit(1);
        }
}

static void receive_next(size_t n)
{
    char *bytes = incoming;
    while (n > 0) {
        ssize_t done = recv(reader, bytes, n, 0);
        if (done <= 0)
            die("recv");
        check(bytes, (size_t)done, "recv");
        received += (unsigned long)done;
        n -= (size_t)done;
    }
}

static void nothing_more(void)
{
    char byte;
    if (received != sent || recv(reader, &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN) {
        printf("received %lu of %lu and more\n", received, sent);
        exit(1);
    }
}

/* Both ends map the rings, and the library comes to know both pages of the buffer. */
static void settle(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        send_next(PIECE);
        for (size_t left = PIECE; left > 0;) {
            ssize_t n = recv(reader, buffer + PIECE - left, left, 0);
            if (n <= 0)
                die("recv");
            check(buffer + PIECE - left, (size_t)n, "settle");
            received += (unsigned long)n;
            left -= (size_t)n;
        }
    }
}

static void on_fault(int number)
{
    (void)number;
    if (met++ || mprotect(buffer + PAGE, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(3);
    event();
}

static void take(void)
{
    receive_next(PIECE);
}

static void claim(void)
{
    if (fcntl(reader, F_SETFL, fcntl(reader, F_GETFL) | O_ASYNC) != 0)
        die("O_ASYNC");
}

static void overwrite(void)
{
    receive_next(sent - received);
    for (int i = 0; i < 2 * RING / PIECE; i++) {
        send_next(PIECE);
        receive_next(PIECE);
    }
    send_next(PIECE);
}

/* Sends `n` bytes and receives some, with `flags`; `what` happens when half of those are copied. */
static void copy(size_t n, void (*what)(void), int flags)
{
    event = what;
    for (int i = 0; i < ROUNDS; i++) {
        send_next(n);
        mprotect(buffer + PAGE, PAGE, PROT_NONE);
        ssize_t got = recv(reader, buffer, PIECE, flags);
        int error = errno;
        mprotect(buffer + PAGE, PAGE, PROT_READ | PROT_WRITE);
        if (got < 0 && (met || error != EFAULT))
            die("recv");
        if (got > 0) {
            check(buffer, (size_t)got, "copy");
            if (!(flags & MSG_PEEK))
                received += (unsigned long)got;
        }
        receive_next(sent - received);
        nothing_more();
        if (met)
            return;
        /* On a busy machine the ring may just have gone back: the kernel copied, and it does not fault. */
        settle();
    }
    printf("the bytes were never in a ring\n");
    exit(1);
}

static void gap(void)
{
    static char seen[200000];
    int size = 400000;
    setsockopt(writer, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    /* A read by a file of its own takes the ring back, for as many bytes as are sent next. */
    send_next(100);
    int ends[2];
    if (pipe(ends) != 0 || splice(reader, NULL, ends[1], NULL, 100, 0) != 100 || read(ends[0], seen, 100) != 100)
        die("splice");
    check(seen, 100, "splice");
    received += 100;
    send_next(90000);
    receive_next(1000);
    /* Into the ring; before them are those that the carrier had no room for. */
    send_next(1000);
    ssize_t n = recv(reader, seen, sizeof seen, MSG_PEEK);
    if (n <= 0)
        die("peek");
    check(seen, (size_t)n, "peek");
}

static void *close_writer(void *unused)
{
    (void)unused;
    close(writer);
    return NULL;
}

static void closed(void)
{
    pthread_t thread;
    char byte;
    if (send(reader, "unread", 6, 0) != 6)
        die("send");
    send_next(60000);
    if (pthread_create(&thread, NULL, close_writer, NULL) != 0)
        die("pthread_create");
    /* The close waits for the bytes to leave. One that does not is over by then. */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 300000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int over = pthread_timedjoin_np(thread, NULL, &until) == 0;
    receive_next(60000);
    if (!over)
        pthread_join(thread, NULL);
    if (recv(reader, &byte, 1, 0) != -1 || errno != ECONNRESET) {
        printf("the close did not reset the connection\n");
        exit(1);
    }
}

/* Runs where nobody else wants the processor: when the carrier's bytes come, another thread has them before it looks. */
static void *sleep_for_bytes(void *unused)
{
    struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
        die("SCHED_IDLE");
    sleeper = (int)syscall(SYS_gettid);
    slept_for = recv(reader, slept, sizeof slept, 0);
    return unused;
}

static int is_asleep(int thread)
{
    char name[64], text[512] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/syscall", thread);
    int file = open(name, O_RDONLY);
    read(file, text, sizeof text - 1);
    close(file);
    return atoi(text) == SYS_ppoll && text[0] != 'r';
}

/* Whether it came to that: where the processor has much else to do the sleeper may be first. */
static int siblings(void)
{
    cpu_set_t one;
    pthread_t thread;
    static char rest[200000];
    int ends[2];
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 || pipe(ends) != 0)
        die("sched_setaffinity");
    for (int i = 0; i < ROUNDS; i++) {
        order('w');
        receive_next(PIECE);
    }
    order('w');
    if (splice(reader, NULL, ends[1], NULL, PIECE, 0) != PIECE || read(ends[0], rest, PIECE) != PIECE)
        die("splice");
    check(rest, PIECE, "splice");
    received += PIECE;
    order('h');
    /* All but what is held back; then the ring is consented to. */
    for (ssize_t n; (n = recv(reader, rest, sizeof rest, MSG_DONTWAIT)) > 0; received += (unsigned long)n)
        check(rest, (size_t)n, "recv");
    unsigned long held = (ROUNDS + 1ul) * PIECE + 70001 - received;
    order('r');
    if (pthread_create(&thread, NULL, sleep_for_bytes, NULL) != 0)
        die("pthread_create");
    while (!sleeper || !is_asleep(sleeper))
        sched_yield();
    char what = 'p';
    write(orders[1], &what, 1);
    ssize_t n;
    int over = 0;
    while ((n = recv(reader, rest, held, MSG_DONTWAIT)) < 0 && errno == EAGAIN && !over)
        over = pthread_tryjoin_np(thread, NULL) == 0;
    if (!over)
        pthread_join(thread, NULL);
    if (slept_for <= 0)
        die("the sleeper");
    int awaited = held > 0 && n == (ssize_t)held && is_next(rest, held);
    for (int i = 0; i < 2; i++) {
        int of_the_sleeper = i == awaited;
        ssize_t length = of_the_sleeper ? slept_for : n;
        if (length > 0) {
            check(of_the_sleeper ? slept : rest, (size_t)length, "what was held back, or comes after it");
            received += (unsigned long)length;
        }
    }
    receive_next((ROUNDS + 1ul) * PIECE + 70101 - received);
    return awaited;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGIO, SIG_IGN);
    alarm(20);
    buffer = mmap(NULL, PIECE + 2 * MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        die("mmap");
    outgoing = buffer + PIECE;
    incoming = outgoing + MOST;
    int apart = !strcmp(mode, "siblings");
    connect_both(!strcmp(mode, "gap") || !strcmp(mode, "closed") ? 10000 : 0, apart);
    if (!apart)
        settle();
    if (!strcmp(mode, "taken")) {
        copy(2 * PIECE, take, 0);
    } else if (!strcmp(mode, "claimed")) {
        copy(PIECE, claim, 0);
    } else if (!strcmp(mode, "peeked")) {
        copy(PIECE, overwrite, MSG_PEEK);
    } else if (!strcmp(mode, "gap")) {
        gap();
        receive_next(sent - received);
        nothing_more();
    } else if (!strcmp(mode, "closed")) {
        closed();
    } else if (!strcmp(mode, "siblings")) {
        if (!siblings()) {
            printf("the sleeper came first\n");
            return 0;
        }
    } else {
        printf("what is %s\n", mode);
        return 1;
    }
    printf("whole\n");
    return 0;
}
