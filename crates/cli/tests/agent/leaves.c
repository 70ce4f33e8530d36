// A connection that is closed at exec is shared by two processes, one of which calls exec. Prints the same on the kernel
// and under Bypath.
// Usage: leaves fails|fails-warm|succeeds|succeeds-warm
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "roads_peer.h"

enum { ROUNDS = 300 };

static int to_child[2], to_parent[2], acted, within;

static void exchange(int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t n = i % 10 == 9 ? 100000 : 1 + i * 7;
        order('s', 700);
        order('r', n);
        give(n, 0);
        take(700, 0);
        done();
        done();
    }
}

// Where the stream stands, for who goes on with it.
static void tell_position(int to) {
    put_all(to, (char *)&sent, sizeof sent);
    put_all(to, (char *)&received, sizeof received);
}

static void learn_position(int from) {
    get_all(from, (char *)&sent, sizeof sent);
    get_all(from, (char *)&received, sizeof received);
}

// In the child, in the middle of its exec: the parent uses the connection.
static void act(void) {
    if (acted++)
        return;
    tell_position(to_parent[1]);
    learn_position(to_child[0]);
}

static void handler(int number) {
    (void)number;
    within = 1;
    act();
}

static void child(void) {
    signal(SIGUSR2, handler);
    execl("/nonexistent/program", "program", NULL);
    act();
    if (getenv("BYPATH_TEST_RAISE") != NULL && !within) {
        errno = ECHILD;
        die("the exec was not passed");
    }
    signal(SIGUSR2, SIG_IGN);
    // Nothing that it sends first calls bytes back.
    order('s', 700);
    take(700, 0);
    done();
    exchange(20);
    tell_position(to_parent[1]);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        // The next image: lives until the pipe ends.
        char c;
        alarm(LIFETIME);
        while (read(atoi(argv[2]), &c, 1) > 0) {
        }
        return 0;
    }
    if (argc < 2)
        return 2;
    connection();
    if (pipe(to_child) || pipe(to_parent))
        die("pipe");
    fcntl(s, F_SETFD, FD_CLOEXEC);
    fcntl(control, F_SETFD, FD_CLOEXEC);
    if (strstr(argv[1], "warm") != NULL)
        warm_up();
    else
        exchange(1);
    signal(SIGUSR2, SIG_IGN);
    pid_t pid;
    if (strncmp(argv[1], "fails", 5) == 0) {
        if ((pid = fork()) == 0) {
            alarm(LIFETIME);
            child();
        }
        learn_position(to_parent[0]);
        exchange(ROUNDS);
        tell_position(to_child[1]);
        learn_position(to_parent[0]);
        exchange(20);
    } else {
        if ((pid = fork()) == 0) {
            char number[12];
            snprintf(number, sizeof number, "%d", to_child[0]);
            close(to_child[1]);
            close(to_parent[0]);
            fcntl(to_parent[1], F_SETFD, FD_CLOEXEC);
            execl("/proc/self/exe", "leaves", argv[1], number, NULL);
            die("exec");
        }
        char c;
        close(to_parent[1]);
        // It ends at the exec.
        if (read(to_parent[0], &c, 1) != 0)
            die("the child's pipe");
        exchange(ROUNDS);
    }
    close(to_child[1]);
    int status;
    if (waitpid(pid, &status, 0) != pid)
        die("wait");
    printf("sent %llu, received %llu, the child %d\n", (unsigned long long)sent, (unsigned long long)received, status);
    return 0;
}
