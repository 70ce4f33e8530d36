/* Many connections whose other ends are stopped, and what their process does beside them.
 *
 *   unanswered peer N          prints its port, accepts N connections
 *   unanswered caller PORT N   makes them; those are inherited
 *
 * Each connection begins with a dialogue, and its buffers are made small. Then the caller reads lines:
 *
 *   fill       each connection, until nothing more goes in; says how many bytes went
 *   spawn      a program that ends at once
 *   fork K     so many children that live until all are there
 *   exec       /bin/echo
 *
 * The answer to spawn and fork is how long the longest call took, in milliseconds. */
#include "crash.h"
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
        if (setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) < 0 || setsockopt(ends[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small) < 0)
            fail("setsockopt");
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
        else
            fail(line);
    }
    return 0;
}
