// A process that gives up what it was: users, capabilities, namespaces, the file system, while a TCP connection is live.
// It prints the same on the kernel and under Bypath. Usage: identity CHANGE us|peer|both DIRECTORY
// Exit status 77: the change cannot be made here.
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "roads_peer.h"

enum { USER = 4242, END = 1000, TOGETHER = 1001, MESSAGE = 100, MESSAGES = 500, TURNS = 10 };

static const char *change, *directory;

static void cannot(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(77);
}

static void make_change(void) {
    int failed;
    if (!strcmp(change, "user"))
        failed = setgroups(0, NULL) || setresgid(USER, USER, USER) || setresuid(USER, USER, USER);
    else if (!strcmp(change, "euid"))
        failed = seteuid(USER);
    else if (!strcmp(change, "setuid"))
        failed = setgid(USER) || setuid(USER);
    else if (!strcmp(change, "capabilities")) {
        struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct none[2] = {0};
        failed = syscall(SYS_capset, &h, none);
    } else if (!strcmp(change, "dumpable"))
        failed = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    else if (!strcmp(change, "net"))
        failed = unshare(CLONE_NEWNET);
    else if (!strcmp(change, "userns"))
        failed = unshare(CLONE_NEWUSER);
    else if (!strcmp(change, "pid")) {
        failed = unshare(CLONE_NEWPID);
        // The first child is the namespace's init, without which there are no others.
        pid_t init = failed ? 0 : fork();
        if (!failed && init == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close_range(3, 1000, 0);
            for (;;)
                pause();
        }
    }
    else if (!strcmp(change, "mount"))
        failed = unshare(CLONE_NEWNS);
    else if (!strcmp(change, "setns")) {
        int fd = open("/proc/1/ns/net", O_RDONLY);
        failed = fd < 0 || setns(fd, CLONE_NEWNET);
    } else if (!strcmp(change, "chroot"))
        failed = chroot(directory) || chdir("/");
    else if (!strcmp(change, "jail"))
        // As servers do it: no file system, another user.
        failed = chroot(directory) || chdir("/") || setgroups(0, NULL) || setresgid(USER, USER, USER) ||
                 setresuid(USER, USER, USER);
    else if (!strcmp(change, "leader"))
        failed = 0; // the first thread has ended already
    else
        _exit(2);
    if (failed)
        cannot(change);
}

// ---------------------------------------------------------------- what the peer does besides

static void count_together(void) {
    // Messages of two processes, each in one piece.
    static char m[MESSAGE];
    int from[2] = {0, 0};
    for (int i = 0; i < 2 * MESSAGES; i++) {
        get_all(s, m, sizeof m);
        int who = m[0] == 'P' ? 0 : m[0] == 'C' ? 1 : -1;
        for (int k = 1; k < MESSAGE; k++)
            if (m[k] != m[0])
                who = -1;
        if (who < 0) {
            errno = EILSEQ;
            die("a message in pieces");
        }
        from[who]++;
    }
    if (from[0] != MESSAGES || from[1] != MESSAGES)
        die("messages");
}

static void peers_own(uint32_t n) {
    char end[8];
    if (n == END) {
        errno = 0;
        if (read(s, end, sizeof end) != 0)
            die("the end");
    } else if (n == TOGETHER) {
        count_together();
    } else {
        make_change();
    }
}

// ---------------------------------------------------------------- what happens before and after

static void exchange(int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t n = i % 10 == 9 ? 300000 : 1 + i * 91;
        order('s', 700);
        order('r', n);
        give(n, 0);
        take(700, 0);
        done();
        done();
    }
}

static void reap(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        die("a child");
}

// Children share the connection: one that ends with bytes unread, one that goes on with it, one that writes beside us.
static void children(void) {
    pid_t child;
    order('s', 1000);
    done();
    if ((child = fork()) == 0)
        exit(0);
    reap(child);
    take(1000, 0);
    exchange(10);
    int state[2];
    pipe(state);
    if ((child = fork()) == 0) {
        exchange(10);
        uint64_t both[2] = {sent, received};
        write(state[1], both, sizeof both);
        close(s);
        exit(0);
    }
    uint64_t both[2];
    get_all(state[0], (char *)both, sizeof both);
    sent = both[0], received = both[1];
    reap(child);
    exchange(10);
    // Both write, no more at a time than there is room for, so that nobody has to wait within a message.
    char m[MESSAGE], go;
    int start[2];
    pipe(start);
    child = fork();
    memset(m, child ? 'P' : 'C', sizeof m);
    for (int turn = 0; turn < TURNS; turn++) {
        if (child)
            order('x', TOGETHER), write(start[1], "g", 1);
        else
            get_all(start[0], &go, 1);
        for (int i = 0; i < MESSAGES; i++)
            put_all(s, m, sizeof m);
        if (child)
            done();
    }
    if (child == 0)
        exit(0);
    reap(child);
    exchange(10);
}

static void close_and_see(void) {
    order('s', 300);
    done();
    take(300, 0);
    order('r', 5000);
    order('x', END);
    give(5000, 0);
    done();
    close(s);
    done();
    close(control);
    int status;
    if (waitpid(other, &status, 0) != other)
        die("the peer");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        _exit(77);
    if (status != 0)
        die("the peer");
}

static const char *who;

static void *everything(void *arg) {
    (void)arg;
    connection();
    warm_up();
    exchange(10);
    // Bytes under way in both directions.
    order('s', 5000);
    done();
    if (strcmp(who, "us")) {
        order('x', 0);
        char what;
        if (read(control, &what, 1) != 1)
            _exit(77);
    }
    if (strcmp(who, "peer"))
        make_change();
    take(5000, 0);
    exchange(20);
    puts("the connection goes on");
    fflush(stdout);
    children();
    puts("so it does in children");
    fflush(stdout);
    close_and_see();
    puts("it ends in order");
    if (!strcmp(change, "net")) {
        // Its loopback device is down.
        puts("connected anew");
        exit(0);
    }
    fflush(stdout);
    sent = received = 0;
    connection();
    warm_up();
    exchange(20);
    close_and_see();
    puts("connected anew");
    exit(0);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    change = argv[1], who = argv[2], directory = argv[3];
    own_order = peers_own;
    if (!strcmp(change, "leader")) {
        // The process goes on without its first thread, which the kernel shows as a zombie.
        pthread_t t;
        pthread_create(&t, NULL, everything, NULL);
        pthread_exit(NULL);
    }
    everything(NULL);
}
