/* How much stack calls on a connection take: each one in a thread of its own, whose stack was filled with a pattern.
 *
 *     stack SIZE    SIZE: bytes of the threads' stacks
 *
 * Standard output: what each call answered. Standard error: the bytes of stack that each took beyond a thread's that calls
 * nothing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATTERN = 0xa5, WARM = 300, MANY = 60, FILE_BYTES = 50000 };

static int a, b, set, many[MANY], file;
/* Arrays of the calls: the stack is for the library. */
static char bytes[FILE_BYTES];
static struct pollfd fds[MANY + 1];
static fd_set readers;
static long answer;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void connect_both(int *from, int *to)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        die("listen");
    *from = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*from, (struct sockaddr *)&address, length) != 0 || (*to = accept(listener, NULL, NULL)) < 0)
        die("connect");
    close(listener);
}

static void exchange(int from, int to)
{
    if (send(from, bytes, 64, 0) != 64 || recv(to, bytes, 64, MSG_WAITALL) != 64 || send(to, bytes, 64, 0) != 64 ||
        recv(from, bytes, 64, MSG_WAITALL) != 64)
        die("exchange");
}

static int select_on(int count, int precise, int ms)
{
    struct timeval time = {ms / 1000, ms % 1000 * 1000};
    struct timespec exact = {ms / 1000, ms % 1000 * 1000000L};
    FD_ZERO(&readers);
    FD_SET(b, &readers);
    int highest = b;
    for (int i = 0; i < count; i++) {
        FD_SET(many[i], &readers);
        highest = many[i] > highest ? many[i] : highest;
    }
    return precise ? pselect(highest + 1, &readers, NULL, NULL, &exact, NULL)
                   : select(highest + 1, &readers, NULL, NULL, &time);
}

static int poll_on(int count, int precise, int ms)
{
    struct timespec exact = {ms / 1000, ms % 1000 * 1000000L};
    for (int i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = many[i], .events = POLLIN};
    fds[count] = (struct pollfd){.fd = b, .events = POLLIN};
    return precise ? ppoll(fds, count + 1, &exact, NULL) : poll(fds, count + 1, ms);
}

static void *idle(void *unused)
{
    return unused;
}

/* A wait finds nothing, and then 64 bytes. */
#define WAIT(name, call)                                                                                               \
    static void *name(void *unused)                                                                                    \
    {                                                                                                                  \
        int ms = 2;                                                                                                    \
        answer = call;                                                                                                 \
        ms = 10000;                                                                                                    \
        if (send(a, bytes, 64, 0) != 64)                                                                               \
            die("send");                                                                                               \
        answer = 10 * answer + call;                                                                                   \
        if (recv(b, bytes, 64, MSG_WAITALL) != 64)                                                                     \
            die("recv");                                                                                               \
        return unused;                                                                                                 \
    }

WAIT(selects, select_on(0, 0, ms))
WAIT(selects_of_many, select_on(MANY, 0, ms))
WAIT(pselects, select_on(0, 1, ms))
WAIT(pselects_of_many, select_on(MANY, 1, ms))
WAIT(polls, poll_on(0, 0, ms))
WAIT(polls_of_many, poll_on(MANY, 0, ms))
WAIT(ppolls, poll_on(0, 1, ms))
WAIT(ppolls_of_many, poll_on(MANY, 1, ms))

static int wait_on_set(int ms)
{
    struct epoll_event event;
    return epoll_wait(set, &event, 1, ms);
}

WAIT(epoll_waits, wait_on_set(ms))

static void *sends_and_receives(void *unused)
{
    for (int i = 0; i < 10; i++)
        exchange(a, b);
    answer = recv(b, bytes, 64, MSG_DONTWAIT) < 0 ? errno : 0;
    return unused;
}

static void *receives_in_vain(void *unused)
{
    struct timeval limit = {0, 2000}, none = {0, 0};
    if (setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        die("SO_RCVTIMEO");
    answer = recv(b, bytes, 64, 0) < 0 ? errno : 0;
    if (setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) != 0)
        die("no SO_RCVTIMEO");
    return unused;
}

static void *sends_a_file(void *unused)
{
    off_t from = 0;
    answer = sendfile(a, file, &from, FILE_BYTES);
    if (recv(b, bytes, FILE_BYTES, MSG_WAITALL) != FILE_BYTES)
        die("the file's bytes");
    for (int i = 0; i < FILE_BYTES; i++)
        answer += bytes[i] != (char)(i % 251);
    return unused;
}

static size_t in_a_thread(void *(*f)(void *), size_t size)
{
    unsigned char *stack =
        mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0)
        die("a stack");
    stack += 4096;
    memset(stack, PATTERN, size);
    pthread_attr_t how;
    pthread_t thread;
    pthread_attr_init(&how);
    if ((errno = pthread_attr_setstack(&how, stack, size)) != 0 ||
        (errno = pthread_create(&thread, &how, f, NULL)) != 0)
        die("a thread");
    pthread_join(thread, NULL);
    size_t unused = 0;
    while (unused < size && stack[unused] == PATTERN)
        unused++;
    munmap(stack - 4096, size + 4096);
    return size - unused;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void *(*f)(void *);
    } calls[] = {
        {"select", selects}, {"select of many", selects_of_many},
        {"pselect", pselects}, {"pselect of many", pselects_of_many},
        {"poll", polls}, {"poll of many", polls_of_many},
        {"ppoll", ppolls}, {"ppoll of many", ppolls_of_many},
        {"epoll_wait", epoll_waits}, {"send and recv", sends_and_receives},
        {"recv in vain", receives_in_vain}, {"sendfile", sends_a_file},
    };
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    alarm(60);
    connect_both(&a, &b);
    for (int i = 0; i < WARM; i++)
        exchange(a, b);
    for (int i = 0; i < MANY; i += 2) {
        connect_both(&many[i], &many[i + 1]);
        for (int k = 0; k < 30; k++)
            exchange(many[i], many[i + 1]);
    }
    struct epoll_event event = {.events = EPOLLIN};
    set = epoll_create1(0);
    if (epoll_ctl(set, EPOLL_CTL_ADD, b, &event) != 0)
        die("epoll_ctl");
    file = memfd_create("file", 0);
    for (int i = 0; i < FILE_BYTES; i++)
        bytes[i] = (char)(i % 251);
    if (write(file, bytes, FILE_BYTES) != FILE_BYTES)
        die("a file");
    /* What the library sets up for a first thread serves the next ones: without optimisation that takes more stack. */
    in_a_thread(sends_and_receives, 16 * size);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        answer = -1;
        size_t least = in_a_thread(idle, size), used = in_a_thread(calls[i].f, size);
        printf("%s: %ld\n", calls[i].name, answer);
        fprintf(stderr, "%s: %zu of %zu\n", calls[i].name, used - least, size - least);
    }
}
