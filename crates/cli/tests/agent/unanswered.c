/* Many connections whose other ends are stopped, and what their process does beside them.
 *
 *   unanswered peer N          prints its port, accepts N connections
 *   unanswered caller PORT N   makes them; those are inherited
 *
 * Each connection begins with a dialogue, and its buffers are made small, which nobody sees. Then the caller reads lines:
 *
 *   fill       each connection, until nothing more goes in; says how many bytes went
 *   spawn      a program that ends at once
 *   fork K     so many children that live until all are there
 *   exec       /bin/echo
 *   close      all of them
 *   pass       all of them, in one message
 *
 * The answer to spawn and fork is how long the longest call took, in milliseconds; to close and pass how long they took.
 * With BYPATH_TEST_UNREAD the caller has something of each peer that it does not read. */
#include "crash.h"
#include "unseen.h"
#include <spawn.h>
#include <time.h>

#define MESSAGE 200
#define ROUNDS 40
#define MOST 100

static int ends[MOST], count;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void dialogue(int fd, int speaks_first)
{
    char bytes[MESSAGE] = "";
    for (int i = 0; i < ROUNDS; i++)
        for (int turn = 0; turn < 2; turn++)
            for (ssize_t done = 0; done < MESSAGE;) {
                ssize_t r = turn == !speaks_first ? send(fd, bytes, MESSAGE - done, MSG_NOSIGNAL)
                                                  : recv(fd, bytes, MESSAGE - done, 0);
                if (r <= 0)
                    fail("the dialogue");
                done += r;
            }
}

static void fill(void)
{
    static char bytes[16384];
    unsigned long sum = 0;
    for (int i = 0; i < count; i++)
        for (ssize_t r; (r = send(ends[i], bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;)
            sum += r;
    printf("%lu\n", sum);
}

static void spawn(void)
{
    char *words[] = { "true", NULL }, *environment[] = { NULL };
    double begin = now();
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environment) != 0)
        fail("posix_spawn");
    double took = now() - begin;
    waitpid(child, NULL, 0);
    printf("%.0f\n", took);
}

static void forks(int children)
{
    pid_t all[MOST];
    double longest = 0;
    for (int i = 0; i < children; i++) {
        double begin = now();
        if ((all[i] = fork()) < 0)
            fail("fork");
        if (all[i] == 0)
            for (alarm(LIFETIME);;)
                pause();
        double took = now() - begin;
        longest = took > longest ? took : longest;
    }
    for (int i = 0; i < children; i++) {
        kill(all[i], SIGKILL);
        waitpid(all[i], NULL, 0);
    }
    printf("%.0f\n", longest);
}

static void close_all(void)
{
    double begin = now();
    for (int i = 0; i < count; i++)
        close(ends[i]);
    printf("%.0f\n", now() - begin);
}

static void pass_all(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        fail("socketpair");
    char byte = 0, control[CMSG_SPACE(sizeof ends)];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(count * sizeof *ends) };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof *ends), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(head), ends, count * sizeof *ends);
    double begin = now();
    if (sendmsg(pair[0], &message, 0) != 1)
        fail("sendmsg");
    printf("%.0f\n", now() - begin);
}

int main(int argc, char **argv)
{
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int calls = argc == 4;
    count = argc > 2 ? atoi(argv[argc - 1]) : 0;
    if (count < 1 || count > MOST)
        fail("how many");
    int listener = calls ? -1 : listen_on_loopback();
    int small = 16384;
    for (int i = 0; i < count; i++) {
        ends[i] = calls ? connect_to(atoi(argv[2])) : accept_one(listener);
        fcntl(ends[i], F_SETFD, 0);
        dialogue(ends[i], calls);
        if (set_unseen(ends[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) < 0 || setsockopt(ends[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small) < 0)
            fail("setsockopt");
        if (!calls && getenv("BYPATH_TEST_UNREAD") && send(ends[i], "u", 1, MSG_NOSIGNAL) != 1)
            fail("send");
    }
    printf("ready\n");
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        int children = 0;
        if (strncmp(line, "fill", 4) == 0)
            fill();
        else if (strncmp(line, "spawn", 5) == 0)
            spawn();
        else if (sscanf(line, "fork %d", &children) == 1 && children <= MOST)
            forks(children);
        else if (strncmp(line, "exec", 4) == 0)
            execl("/bin/echo", "echo", "done", NULL);
        else if (strncmp(line, "close", 5) == 0)
            close_all();
        else if (strncmp(line, "pass", 4) == 0)
            pass_all();
        else
            fail(line);
    }
    return 0;
}
