// Threads that may be cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS) are cancelled in the middle of recv and send. What
// others send after them arrives, behind whole bytes of theirs, and the stream ends. Usage: severed, prints a line.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, SIZE = 4096 };

static int to, from;

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static void anywhere(void) {
    if (pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL))
        die("pthread_setcanceltype");
}

static void *reads(void *unused) {
    char data[SIZE];
    (void)unused;
    anywhere();
    while (recv(from, data, sizeof data, 0) > 0)
        ;
    return NULL;
}

static void *writes(void *unused) {
    static char zeroes[SIZE];
    (void)unused;
    anywhere();
    while (send(to, zeroes, sizeof zeroes, MSG_NOSIGNAL) > 0)
        ;
    return NULL;
}

static void *computes(void *unused) {
    (void)unused;
    anywhere();
    for (;;)
        ;
    return NULL;
}

static void pause_us(long us) {
    nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

static int end(pthread_t t) {
    void *result;
    if (pthread_cancel(t) || pthread_join(t, &result))
        die("end");
    return result == PTHREAD_CANCELED;
}

static void connection(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len))
        die("listen");
    to = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(to, (void *)&a, len) || (from = accept(l, NULL, NULL)) < 0)
        die("connect");
    close(l);
}

int main(void) {
    int cancelled = 0, marked = 0, ended = 0, changed = 0;
    alarm(100);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[2];
        connection();
        pthread_create(&threads[0], NULL, reads, NULL);
        pthread_create(&threads[1], NULL, writes, NULL);
        pause_us(1000 + rand() % 4000);
        int first = round % 2;
        cancelled += end(threads[first]);
        pause_us(rand() % 500);
        cancelled += end(threads[!first]);
        if (pthread_create(&threads[0], NULL, reads, NULL))
            die("pthread_create");
        pause_us(500);
        cancelled += end(threads[0]);
        // One that is in no call of ours at all.
        pthread_create(&threads[0], NULL, computes, NULL);
        pause_us(100);
        cancelled += end(threads[0]);
        // The buffers may be full of what nobody read.
        static char data[1 << 16];
        ssize_t got;
        while ((got = recv(from, data, sizeof data, MSG_DONTWAIT)) > 0)
            for (ssize_t i = 0; i < got; i++)
                changed += data[i] != 0;
        if (send(to, "ends", 4, MSG_NOSIGNAL) != 4 || shutdown(to, SHUT_WR))
            die("send");
        char last[4] = "";
        while ((got = recv(from, data, sizeof data, 0)) > 0) {
            ssize_t keep = got < 4 ? got : 4;
            memmove(last, last + keep, 4 - keep);
            memcpy(last + 4 - keep, data + got - keep, keep);
        }
        ended += got == 0;
        marked += memcmp(last, "ends", 4) == 0;
        close(to);
        close(from);
    }
    printf("cancelled %d, changed %d, marked %d, ended %d\n", cancelled, changed, marked, ended);
    return 0;
}
