// A sender is killed when what it sent last waits unread in its ring, and the receiver passes the connection on: exec, spawn, SCM_RIGHTS.
// Who comes after it has no ring. The receiver itself reads all of it, and the end.
// Usage: cut WAY [early], where WAY is exec (a plain program), again (with the library), failed, spawn, passed, or what has the library follow nothing any more
// in the receiver itself, or the kernel read: splice, ring (of io_uring, of which nobody asks anything), filter (of system calls), table (of descriptors, of a thread). Prints "first N octets,
// next X octets, ERROR or end": what the receiver read, and what its successor did. early: the ring
// comes up behind octets that wait in the kernel, and they are counted, too.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 500, MESSAGE = 64, LAST = 10000, PIECE = 100, READ = 200 };

static void die(const char *what) {
    perror(what);
    _exit(9);
}

static void all(int fd, char *data, size_t n, int out) {
    for (size_t done = 0; done < n;) {
        ssize_t k = out ? write(fd, data + done, n - done) : read(fd, data + done, n - done);
        if (k <= 0)
            die("all");
        done += k;
    }
}

// Reads to the end, whatever that is, and says it.
static void rest(const char *who, int fd, size_t had) {
    static char data[LAST];
    ssize_t n;
    for (;;) {
        n = read(fd, data, sizeof data);
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            if (data[i] != (char)((had + i) % 251)) {
                printf("%s wrong at %zu\n", who, had + i);
                _exit(8);
            }
        had += n;
    }
    printf("%s %zu octets, %s\n", who, had, n == 0 ? "end" : strerror(errno));
    fflush(stdout);
}

static void sends(int fd, int rounds) {
    static char data[LAST];
    for (int i = 0; i < rounds; i++) {
        all(fd, data, MESSAGE, 1);
        all(fd, data, MESSAGE, 0);
    }
    for (int i = 0; i < LAST; i++)
        data[i] = i % 251;
    for (int done = 0; done < LAST; done += PIECE) {
        all(fd, data + done, PIECE, 1);
        if (rounds == 0 && done >= LAST / 2)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    kill(getpid(), SIGKILL);
}

static int receiver(const char *self, char **environment, pid_t *sender, int rounds) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    char data[MESSAGE], port[16];
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l, (void *)&a, len) || listen(l, 1) || getsockname(l, (void *)&a, &len))
        die("listen");
    snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
    char *words[] = {(char *)self, "send", port, rounds ? NULL : "early", NULL};
    if (posix_spawn(sender, self, NULL, NULL, words, environment))
        die("posix_spawn");
    int fd = accept(l, NULL, NULL);
    if (fd < 0)
        die("accept");
    close(l);
    for (int i = 0; i < rounds; i++) {
        all(fd, data, MESSAGE, 0);
        all(fd, data, MESSAGE, 1);
    }
    for (int i = 0; rounds == 0 && i < READ; i++)
        all(fd, data, 1, 0);
    if (waitpid(*sender, NULL, 0) != *sender)
        die("waitpid");
    return fd;
}

static void *sleeps(void *nothing) {
    pause();
    return nothing;
}

static void pass(int to, int fd) {
    char octet = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&octet, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(to, &m, 0) != 1)
        die("sendmsg");
}

static int passed(int from) {
    int fd;
    char octet, control[CMSG_SPACE(sizeof fd)];
    struct iovec v = {&octet, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(from, &m, 0) != 1 || !CMSG_FIRSTHDR(&m))
        die("recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

int main(int count, char **words) {
    extern char **environ;
    char *plain[] = {NULL};
    pid_t sender, child;
    if (count < 2)
        return 2;
    alarm(30);
    const char *way = words[1];
    if (!strcmp(way, "send")) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(words[2]))};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&a, sizeof a))
            die("connect");
        sends(fd, count > 3 ? 0 : ROUNDS);
    }
    if (!strcmp(way, "next")) {
        rest("next", atoi(words[2]), count > 3 ? READ : 0);
        return 0;
    }
    if (!strcmp(way, "taker")) {
        rest("next", passed(atoi(words[2])), count > 3 ? READ : 0);
        return 0;
    }
    char *early = count > 2 ? words[2] : NULL;
    size_t had = early ? READ : 0;
    int fd = receiver(words[0], environ, &sender, early ? 0 : ROUNDS);
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    char *next[] = {words[0], "next", number, early, NULL};
    if (!strcmp(way, "exec") || !strcmp(way, "again")) {
        execve(words[0], next, way[0] == 'e' ? plain : environ);
        die("execve");
    }
    if (!strcmp(way, "failed")) {
        if (execve("/nonexistent/program", next, plain) == 0)
            die("execve");
        rest("first", fd, had);
        return 0;
    }
    if (!strcmp(way, "spawn")) {
        if (posix_spawn(&child, words[0], NULL, NULL, next, plain))
            die("posix_spawn");
        // One after the other: what the kernel has they would share.
        waitpid(child, NULL, 0);
        rest("first", fd, had);
        return 0;
    }
    if (!strcmp(way, "filter") || !strcmp(way, "table")) {
        struct sock_filter all = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
        struct sock_fprog filter = {1, &all};
        // A table of its own is that of a process with one thread already.
        pthread_t thread;
        if (way[0] == 'f' ? prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)
                          : pthread_create(&thread, NULL, sleeps, NULL) || unshare(CLONE_FILES))
            die(way);
        rest("next", fd, had);
        return 0;
    }
    if (!strcmp(way, "splice")) {
        int pipes[2];
        ssize_t n;
        size_t all = 0;
        if (pipe(pipes))
            die("pipe");
        while ((n = splice(fd, NULL, pipes[1], NULL, LAST, 0)) > 0)
            all += n;
        printf("next %zu octets, %s\n", all, n == 0 ? "end" : strerror(errno));
        rest("first", fd, n == 0 ? all : had);
        return 0;
    }
    if (!strcmp(way, "ring")) {
        // What it is made with does not matter.
        char parameters[120] = {0};
        syscall(SYS_io_uring_setup, 8, parameters);
        rest("first", fd, had);
        return 0;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        die("socketpair");
    int theirs = dup(pair[1]);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    snprintf(number, sizeof number, "%d", theirs);
    char *taker[] = {words[0], "taker", number, early, NULL};
    if (posix_spawn(&child, words[0], NULL, NULL, taker, plain))
        die("posix_spawn");
    close(theirs);
    pass(pair[0], fd);
    waitpid(child, NULL, 0);
    rest("first", fd, had);
    return 0;
}
