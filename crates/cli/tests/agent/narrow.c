/* Connections whose threads have the smallest stacks there are (PTHREAD_STACK_MIN).
 *
 *     narrow serve CONNECTIONS          prints "port N", and gives back what comes
 *     narrow call CONNECTIONS PORT      says so many octets by each one, in step, and prints "payload OCTETS", both ways together
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 64, LONG = 1024, ROUNDS = 10000 };

static int listener;
/* All threads are there before anything is said, and until all was: the program may have no more of them. */
static pthread_barrier_t all;
static struct sockaddr_in address = {.sin_family = AF_INET};
/* The stack is for the library. */
static char room[MOST][2][LONG];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void say(int fd, const char *from, long n)
{
    for (long done = 0, more; done < n; done += more)
        if ((more = send(fd, from + done, n - done, MSG_NOSIGNAL)) <= 0)
            die("send");
}

static void *serve(void *slot)
{
    char *into = room[(long)slot][0];
    pthread_barrier_wait(&all);
    struct pollfd waits = {.fd = accept(listener, NULL, NULL), .events = POLLIN};
    if (waits.fd < 0)
        die("accept");
    long n;
    while (poll(&waits, 1, -1) == 1 && (n = recv(waits.fd, into, LONG, 0)) > 0)
        say(waits.fd, into, n);
    if (n < 0)
        die("recv");
    close(waits.fd);
    pthread_barrier_wait(&all);
    return NULL;
}

static void *call(void *slot)
{
    char *said = room[(long)slot][0], *heard = room[(long)slot][1];
    pthread_barrier_wait(&all);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect");
    for (int i = 0; i < ROUNDS; i++) {
        memset(said, 'a' + (i + (long)slot) % 26, LONG);
        say(fd, said, LONG);
        if (recv(fd, heard, LONG, MSG_WAITALL) != LONG)
            die("recv");
        if (memcmp(said, heard, LONG) != 0) {
            fprintf(stderr, "other octets came back in round %d\n", i);
            exit(1);
        }
    }
    close(fd);
    pthread_barrier_wait(&all);
    return NULL;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[2]) : 0;
    int calls = argc > 3;
    if (count < 1 || count > MOST)
        return 2;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (calls) {
        address.sin_port = htons(atoi(argv[3]));
    } else {
        socklen_t length = sizeof address;
        listener = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, MOST) != 0 ||
            getsockname(listener, (struct sockaddr *)&address, &length) != 0)
            die("listen");
    }
    pthread_t threads[MOST];
    pthread_attr_t smallest;
    pthread_barrier_init(&all, NULL, count + 1);
    pthread_attr_init(&smallest);
    pthread_attr_setstacksize(&smallest, PTHREAD_STACK_MIN);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], &smallest, calls ? call : serve, (void *)i) != 0)
            die("pthread_create");
    pthread_barrier_wait(&all);
    if (!calls)
        printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    pthread_barrier_wait(&all);
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (calls)
        printf("payload %ld\n", count * ROUNDS * LONG * 2);
    return 0;
}
