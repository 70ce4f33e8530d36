/* Connections whose threads have the smallest stacks there are (PTHREAD_STACK_MIN).
 *
 *     narrow serve CONNECTIONS [BESIDE]   prints "port N", and gives back what comes
 *     narrow call CONNECTIONS PORT        says so many octets by each one, in step, and prints "payload OCTETS", both ways together
 *
 * BESIDE: `told`: is told of messages that come to a queue (mq_notify), and says in the end whether it still is: "told 1".
 *         `apart`: its children are in a process namespace of their own.
 *         `puts`: puts something at the lowest number that is free (dup2) again and again, and says how often it was not there any more: "lost 0".
 *         `reopens`: has standard error closed, opens it anew (freopen), and says how often that failed, or came to nothing: "lost 0".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, LONG = 1024, ROUNDS = 10000 };

static int listener;
static struct sockaddr_in address = {.sin_family = AF_INET};
/* All threads are there before anything is said, and until all was: the program may have no more of them. */
static pthread_barrier_t all;
/* Of who takes the lowest number that is free. */
static pthread_mutex_t lowest = PTHREAD_MUTEX_INITIALIZER;
static atomic_int over;
static int is_apart;
static long lost, done;
/* The stack is for the library. */
static char room[MOST][2][LONG];

static void die(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
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
    /* Of the calling thread's children alone. */
    if (is_apart && unshare(CLONE_NEWPID) != 0)
        die("unshare");
    struct pollfd calls = {.fd = listener, .events = POLLIN}, waits = {.events = POLLIN};
    pthread_barrier_wait(&all);
    do {
        poll(&calls, 1, -1);
        pthread_mutex_lock(&lowest);
        waits.fd = accept(listener, NULL, NULL);
        pthread_mutex_unlock(&lowest);
    } while (waits.fd < 0 && errno == EAGAIN);
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
            printf("other octets came back in round %d\n", i);
            exit(1);
        }
    }
    close(fd);
    pthread_barrier_wait(&all);
    return NULL;
}

static int is(int fd, const struct stat *own)
{
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == own->st_dev && now.st_ino == own->st_ino;
}

static void *put(void *unused)
{
    struct stat own;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fstat(file, &own) != 0)
        die("fstat");
    for (; !over; done++) {
        pthread_mutex_lock(&lowest);
        int free = dup(file);
        close(free);
        int stays = dup2(file, free) == free;
        for (int i = 0; stays && i < 20; i++)
            stays = is(free, &own);
        lost += !stays | (close(free) != 0);
        pthread_mutex_unlock(&lowest);
    }
    return unused;
}

static void *reopen(void *unused)
{
    struct stat own;
    if (stat("/proc/self/exe", &own) != 0)
        die("stat");
    for (; !over; done++) {
        pthread_mutex_lock(&lowest);
        close(STDERR_FILENO);
        int stays = freopen("/proc/self/exe", "r", stderr) != NULL;
        for (int i = 0; stays && i < 20; i++)
            stays = is(STDERR_FILENO, &own);
        lost += !stays;
        pthread_mutex_unlock(&lowest);
    }
    return unused;
}

static mqd_t queue;
static struct sigevent by_none = {.sigev_notify = SIGEV_NONE};

static void be_told(void)
{
    char name[64];
    snprintf(name, sizeof name, "/bypath-narrow-%d", (int)getpid());
    queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    if (queue < 0 || mq_unlink(name) != 0 || mq_notify(queue, &by_none) != 0)
        die("mq_notify");
}

/* One process at a time is: another one is refused. */
static int is_told(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(mq_notify(queue, &by_none) == 0 ? 0 : errno == EBUSY ? 1 : 2);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        die("fork");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[2]) : 0;
    int calls = argc > 1 && strcmp(argv[1], "call") == 0;
    const char *beside = argc > 3 && !calls ? argv[3] : "";
    if (count < 1 || count > MOST || (calls && argc < 4))
        return 2;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (calls) {
        address.sin_port = htons(atoi(argv[3]));
    } else {
        socklen_t length = sizeof address;
        listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, MOST) != 0 ||
            getsockname(listener, (struct sockaddr *)&address, &length) != 0)
            die("listen");
    }
    if (strcmp(beside, "told") == 0)
        be_told();
    is_apart = strcmp(beside, "apart") == 0;
    pthread_t threads[MOST], other;
    pthread_attr_t smallest;
    pthread_barrier_init(&all, NULL, count + 1);
    pthread_attr_init(&smallest);
    pthread_attr_setstacksize(&smallest, PTHREAD_STACK_MIN);
    int puts = strcmp(beside, "puts") == 0, reopens = strcmp(beside, "reopens") == 0;
    if ((puts || reopens) && pthread_create(&other, NULL, puts ? put : reopen, NULL) != 0)
        die("pthread_create");
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
    over = 1;
    if (puts || reopens) {
        pthread_join(other, NULL);
        printf("done %ld\nlost %ld\n", done, lost);
    }
    if (strcmp(beside, "told") == 0)
        printf("told %d\n", is_told());
    if (calls)
        printf("payload %ld\n", count * ROUNDS * LONG * 2);
    return 0;
}
