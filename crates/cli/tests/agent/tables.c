// A program whose threads and processes do not all have the descriptor table that its first thread has, or have it in
// common with another process. It prints the same on the kernel and under Bypath.
// Usage: tables alone|thread|number|range|raw|raw-number|clone|clone-number|clone3|memory|memory-number
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "roads_peer.h"

static const char *how;
static int spare, another;
static volatile int over, ended;

static void say(const char *what) { put_all(1, what, strlen(what)); }

// Bytes that are on their way in both directions when the tables part.
static void under_way(void) {
    order('s', 20000);
    done();
    take(5000, 0);
    give(9000, 0);
}

static void exchange(void) {
    for (int i = 0; i < 30; i++) {
        size_t n = i % 10 == 9 ? 300000 : 1 + i * 91;
        order('s', 700);
        order('r', n);
        give(n, 0);
        take(700, 0);
        done();
        done();
    }
    say("exchanged\n");
}

static void after(void) {
    take(15000, 0);
    order('r', 9000);
    done();
    exchange();
}

static int listening(struct sockaddr_in *a, socklen_t *len) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)a, *len) || listen(l, 4) || getsockname(l, (void *)a, len))
        die("listen");
    return l;
}

// A connection of this process with itself: its end that connected.
static int other_end;
static int to_itself(int l, struct sockaddr_in *a, socklen_t len) {
    int c = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c, (void *)a, len))
        die("connect");
    other_end = accept(l, NULL, NULL);
    return c;
}

static void there_and_back(int c) {
    char word[6];
    if (send(c, "there!", 6, 0) != 6)
        die("send");
    get_all(other_end, word, 6);
    if (memcmp(word, "there!", 6) || send(other_end, "back!!", 6, 0) != 6)
        die("what came over the other connection");
    get_all(c, word, 6);
    if (memcmp(word, "back!!", 6))
        die("what came back over the other connection");
}

static void parts(void) {
    int r = !strcmp(how, "thread")   ? unshare(CLONE_FILES)
            : !strcmp(how, "number") ? syscall(SYS_unshare, CLONE_FILES)
                                     : syscall(SYS_close_range, s, s, 2 /* CLOSE_RANGE_UNSHARE */);
    if (r != 0)
        die("a table of its own");
    if (strcmp(how, "range"))
        close(s);
}

// Its number for the connection means another one in its own table.
static void *with_own_table(void *arg) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = listening(&a, &len);
    parts();
    int c = to_itself(l, &a, len);
    say(c == s ? "the same number\n" : "another number\n");
    for (int i = 0; !over || i < 400; i++) {
        there_and_back(c);
        __atomic_store_n((int *)arg, i, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void thread(void) {
    pthread_t t;
    int turns = 0;
    pthread_create(&t, NULL, with_own_table, &turns);
    while (__atomic_load_n(&turns, __ATOMIC_ACQUIRE) < WARM)
        sched_yield();
    after();
    over = 1;
    pthread_join(t, NULL);
}

static char stack[1 << 18] __attribute__((aligned(16)));

// A thread of the kernel's that the C library knows nothing of, with a table of its own.
static int closes_and_ends(void *arg) {
    (void)arg;
    dup2(another, s);
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    syscall(SYS_exit, 0);
    return 0;
}

// A child with the same table closes what the parent has, which goes for both.
static int closes(void *arg) {
    (void)arg;
    close(spare);
    _exit(7);
}

// The system call by its number. What shares the memory begins by returning to the first word of its stack.
static pid_t by_number(int (*f)(void *), int flags) {
    int shares = flags & CLONE_VM;
    void **top = (void *)(stack + sizeof stack - 64);
    *top = (void *)f;
    pid_t child;
    if (!strcmp(how, "clone3")) {
        struct clone_args a = {.flags = flags & ~0xff, .exit_signal = SIGCHLD};
        child = syscall(SYS_clone3, &a, sizeof a);
    } else {
        child = syscall(SYS_clone, flags, shares ? top : NULL, 0, 0, 0);
    }
    if (child == 0)
        f(NULL);
    return child;
}

static pid_t makes(int (*f)(void *), int flags) {
    pid_t made = strstr(how, "number") || !strcmp(how, "clone3") ? by_number(f, flags)
                                                                 : clone(f, stack + sizeof stack, flags, NULL);
    if (made == -1)
        die("clone");
    return made;
}

static void raw(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    another = to_itself(listening(&a, &len), &a, len);
    for (int i = 0; i < WARM; i++)
        there_and_back(another);
    makes(closes_and_ends, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_FS);
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
        sched_yield();
    after();
    there_and_back(another);
}

static void process(int flags) {
    int two[2], status;
    char word[2];
    pid_t child = makes(closes, flags | SIGCHLD);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        die("the child");
    if (pipe(two))
        die("pipe");
    say(two[0] == spare ? "the same number\n" : "another number\n");
    if (write(two[1], "zz", 2) != 2 || read(two[0], word, 2) != 2)
        die("the pipe");
    after();
}

int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "";
    connection();
    warm_up();
    under_way();
    if (!strcmp(how, "alone")) {
        if (unshare(CLONE_FILES) || syscall(SYS_close_range, 500, 600, 2))
            die("unshare");
        after();
    } else if (!strcmp(how, "thread") || !strcmp(how, "number") || !strcmp(how, "range")) {
        thread();
    } else if (!strncmp(how, "raw", 3)) {
        raw();
    } else if (!strncmp(how, "clone", 5) || !strncmp(how, "memory", 6)) {
        spare = dup(s);
        process(how[0] == 'm' ? CLONE_FILES | CLONE_VM : CLONE_FILES);
    } else {
        return 2;
    }
    close(control);
    close(s);
    int status;
    if (waitpid(other, &status, 0) != other || status != 0)
        die("the peer");
    say("ended\n");
    return 0;
}
