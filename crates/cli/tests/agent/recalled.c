/* Datagrams that wait in a mailbox are recalled by one thread, as it gives the socket away, while another one receives. Where the library raises SIGUSR2, with
 * the first of them taken out of the ring and not with the kernel yet, that other one tries to: it gets them in their order.
 *
 * Says "whole"; "never" where nothing waited, or the signal did not come; else what is wrong. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAITING = 3, PINGS = 400, LONGEST_MS = 20000 };

static int receiver, sender;
static atomic_int wanted, got;
static char order[WAITING + 1];

static void nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    syscall(SYS_nanosleep, &t, NULL);
}

static void *receives(void *unused)
{
    while (!atomic_load(&wanted))
        nap_ms(1);
    for (int tries = 0; atomic_load(&got) < WAITING && tries < LONGEST_MS; tries++) {
        char octet;
        if (recv(receiver, &octet, 1, MSG_DONTWAIT) == 1)
            order[atomic_fetch_add(&got, 1)] = octet;
        else
            nap_ms(1);
    }
    return unused;
}

/* Time for the other one, which is not to use it. */
static void raised(int signal)
{
    (void)signal;
    if (!atomic_exchange(&wanted, 1))
        for (int ms = 0; ms < 200 && !atomic_load(&got); ms++)
            nap_ms(1);
}

/* Memory that datagrams take in the kernel's queue. */
static unsigned queued(void)
{
    unsigned memory[16] = {0};
    socklen_t len = sizeof memory;
    getsockopt(receiver, SOL_SOCKET, SO_MEMINFO, memory, &len);
    return memory[0];
}

/* Whether the next datagram goes by shared memory: nothing waits for it, and the one before was received just now. */
static int is_open(void)
{
    char octet = 'p';
    for (int i = 0; i < PINGS; i++) {
        recv(receiver, &octet, 1, MSG_DONTWAIT);
        send(sender, &octet, 1, 0);
        int by_ring = !queued();
        if (recv(receiver, &octet, 1, 0) != 1)
            return 0;
        if (i > PINGS / 2 && by_ring)
            return recv(receiver, &octet, 1, MSG_DONTWAIT) < 0;
    }
    return 0;
}

int main(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof own;
    receiver = socket(AF_INET, SOCK_DGRAM, 0);
    sender = socket(AF_INET, SOCK_DGRAM, 0);
    int way[2];
    if (bind(receiver, (struct sockaddr *)&own, sizeof own) || getsockname(receiver, (struct sockaddr *)&own, &len)
        || connect(sender, (struct sockaddr *)&own, len) || socketpair(AF_UNIX, SOCK_STREAM, 0, way)) {
        perror("sockets");
        return 1;
    }
    signal(SIGUSR2, raised);
    pthread_t thread;
    pthread_create(&thread, NULL, receives, NULL);
    int is_ready = is_open();
    for (char octet = '0'; octet < '0' + WAITING; octet++)
        send(sender, &octet, 1, 0);
    is_ready &= !queued();
    char octet = 'x';
    struct iovec iov = {&octet, 1};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(c), &receiver, sizeof receiver);
    if (sendmsg(way[0], &m, 0) != 1) {
        perror("sendmsg");
        return 1;
    }
    is_ready &= atomic_exchange(&wanted, 1);
    pthread_join(thread, NULL);
    if (strcmp(order, "012"))
        printf("received: %s\n", order);
    else
        puts(is_ready ? "whole" : "never");
    return 0;
}
