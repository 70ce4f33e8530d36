// Interposed calls inside a signal handler that interrupts interposed calls, from a timer, for a number of ticks.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int inner[2], outer[2];
static volatile sig_atomic_t ticks, wrong;

static void tick(int n) {
    int saved = errno;
    char c = 0;
    (void)n;
    struct pollfd f = {inner[1], POLLIN, 0};
    if (write(inner[0], "t", 1) != 1 || poll(&f, 1, 0) != 1 || recv(inner[1], &c, 1, 0) != 1 || c != 't')
        wrong++;
    ticks++;
    errno = saved;
}

int main(void) {
    char c;
    long interrupted = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, inner) || socketpair(AF_UNIX, SOCK_STREAM, 0, outer))
        return 1;
    struct sigaction a = {.sa_handler = tick};
    sigaction(SIGALRM, &a, NULL);
    struct itimerval every = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &every, NULL);
    while (ticks < 2000) {
        if (ticks % 4 == 0) {
            if (recv(outer[1], &c, 1, 0) == -1 && errno == EINTR)
                interrupted++;
        } else {
            while (send(outer[0], "x", 1, 0) == -1 && errno == EINTR)
                ;
            while (recv(outer[1], &c, 1, 0) == -1 && errno == EINTR)
                ;
        }
    }
    printf("wrong %d, %s\n", wrong, interrupted > 0 ? "interrupted" : "never interrupted");
    return wrong != 0;
}
