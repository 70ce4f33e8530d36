/* A reader asks for the kernel path while a send to it is under way: SIGUSR2 comes inside the send (the library raises
 * it at a point of its own), and its handler makes the other end one that only the kernel serves. What was sent must
 * then be found by a read that the library does not see. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MESSAGE = 100, MOST = 2000 };

static int writer, reader;
static volatile sig_atomic_t asked;

/* A system call as a program makes it that does not use the C library. */
static long plain(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void on_signal(int number)
{
    (void)number;
    if (fcntl(reader, F_SETFL, fcntl(reader, F_GETFL) | O_ASYNC) != 0)
        _exit(3);
    asked = 1;
}

static void connect_both(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    writer = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(writer, (struct sockaddr *)&address, length) != 0)
        die("connect");
    reader = accept(listener, NULL, NULL);
    if (reader < 0)
        die("accept");
}

int main(void)
{
    char message[MESSAGE], got[MESSAGE];
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR2, &action, NULL);
    signal(SIGIO, SIG_IGN);
    connect_both();
    for (int round = 0; round < MOST; round++) {
        memset(message, 'a' + round % 26, MESSAGE);
        if (send(writer, message, MESSAGE, 0) != MESSAGE)
            die("send");
        /* Nobody answers: a byte that stays in a ring ends this by SIGALRM. */
        alarm(5);
        for (long at = 0; at < MESSAGE;) {
            long n = asked ? plain(SYS_read, reader, (long)got + at, MESSAGE - at)
                           : recv(reader, got + at, (size_t)(MESSAGE - at), 0);
            if (n <= 0)
                die("receive");
            at += n;
        }
        alarm(0);
        if (memcmp(message, got, MESSAGE) != 0) {
            printf("wrong in round %d\n", round);
            return 1;
        }
        if (asked) {
            printf("whole\n");
            return 0;
        }
    }
    printf("never asked\n");
    return 1;
}
