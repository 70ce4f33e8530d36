// A connection that goes on in another program image of its process. Prints the same on the kernel and under Bypath.
// Usage: heir once|flight|twice|shell|static|child|cleared|moved|range|standard|late|fork|spawned|vforked|passed|failed|many|helper|helper-closes|helper-forks|helper-spawns|
//             sandbox|sandbox-late|sandbox-forks|sandbox-late-forks|stale|hostile0...hostile8
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "roads_peer.h"

extern char **environ;

enum { ROUNDS = 400 };

static char *own, *how;

// Many messages both ways, some of them large: several meetings can be tried meanwhile.
static void exchange(int rounds) {
    for (int i = 0; i < rounds; i++) {
        size_t n = i % 10 == 9 ? 200000 : 1 + i * 7;
        order('s', 700);
        order('r', n);
        give(n, 0);
        take(700, 0);
        done();
        done();
    }
}

// Another process of ours has done that.
static void exchanged(int rounds) {
    for (int i = 0; i < rounds; i++)
        sent += i % 10 == 9 ? 200000 : 1 + i * 7, received += 700;
}

// What the next image needs to know, in its arguments.
static char words[6][24];
static char *next[12];

static void arguments(int stage, int first) {
    snprintf(words[0], 24, "%d", stage);
    snprintf(words[1], 24, "%d", s);
    snprintf(words[2], 24, "%d", control);
    snprintf(words[3], 24, "%llu", (unsigned long long)sent);
    snprintf(words[4], 24, "%llu", (unsigned long long)received);
    char **at = next + first;
    *at++ = own, *at++ = how;
    for (int i = 0; i < 5; i++)
        *at++ = words[i];
    *at = NULL;
}

static void become(int stage) {
    arguments(stage, 0);
    fcntl(control, F_SETFD, 0);
    execv(own, next);
    die("exec");
}

// The shell in between, which executes the next image.
static void become_by_shell(int stage) {
    next[0] = "sh", next[1] = "-c", next[2] = "exec \"$0\" \"$@\"";
    arguments(stage, 3);
    fcntl(control, F_SETFD, 0);
    execv("/bin/sh", next);
    die("exec of a shell");
}

// A static program in between (plain.c, beside this one), which executes the next image, or starts it as its child.
static void become_by_plain(char *deed, int stage) {
    char plain[4096];
    snprintf(plain, sizeof plain, "%.*s/plain", (int)(strrchr(own, '/') - own), own);
    next[0] = "plain", next[1] = deed;
    arguments(stage, 2);
    fcntl(control, F_SETFD, 0);
    execv(plain, next);
    die("exec of a static program");
}

// This program once more, in a file that nobody may execute: the exec fails.
static int execute_forbidden(void) {
    char path[32], *no[] = {"nothing", NULL};
    struct stat st;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = memfd_create("forbidden", MFD_CLOEXEC);
    if (fstat(from, &st) || fchmod(to, 0600))
        die("a copy");
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, n) != n)
            die("a copy");
    snprintf(path, sizeof path, "/proc/self/fd/%d", to);
    int r = execv(path, no);
    close(from), close(to);
    return r;
}

static void tell(void) {
    printf("sent %llu received %llu\n", (unsigned long long)sent, (unsigned long long)received);
    fflush(stdout);
}

static void finish(void) {
    tell();
    close(s);
    close(control);
    _exit(0);
}

// Bytes of both directions under way: some read by nobody yet, wherever they are.
static void into_flight(void) {
    order('s', 150000);
    order('r', 90000);
    order('s', 40000);
    give(30000, 0);
    take(1000, 0);
    give(60000, 0);
    take(10000, 0);
}

static void land(void) {
    take(179000, 0);
    done(), done(), done();
}

// ---------------------------------------------------------------- a parent that holds it too

static void late(void) {
    int go[2], gone[2];
    char c;
    if (pipe(go) || pipe(gone))
        die("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(go[0]), close(gone[1]);
        dup2(go[1], 60), dup2(gone[0], 61);
        close(go[1]), close(gone[0]);
        become(1);
    }
    close(go[1]), close(gone[0]);
    // The other image has it, and we have it: it is ours to write too.
    if (read(go[0], &c, 1) != 1)
        die("the child");
    exchanged(30);
    order('r', 5000);
    give(5000, 0);
    done();
    close(s);
    if (write(gone[1], "x", 1) != 1)
        die("to the child");
    int status;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 8);
}

static void late_heir(void) {
    char c;
    exchange(30);
    if (write(60, "x", 1) != 1 || read(61, &c, 1) != 1)
        die("the parent");
    sent += 5000;
    exchange(ROUNDS);
    finish();
}

// Many connections, each given to a child with another image, which ends as it should or is killed: more than there are
// places for processes in a family.
static void many(void) {
    for (int i = 0; i < 80; i++) {
        sent = received = 0;
        connection();
        pid_t child = fork();
        if (child == 0)
            become(i % 2 ? 30 : 31);
        close(s);
        close(control);
        int status;
        waitpid(child, &status, 0);
        waitpid(other, NULL, 0);
        if (i % 2 ? !WIFEXITED(status) || WEXITSTATUS(status) != 0 : !WIFSIGNALED(status))
            die("a child");
    }
    puts("many");
    fflush(stdout);
    _exit(0);
}

// A helper for the beginning, as a program of its own that shares the connection with its parent and ends.
static void helper(void) {
    int end[2], status;
    if (pipe(end))
        die("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(end[1]);
        dup2(end[0], 9);
        become(40);
    }
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die("the helper");
    exchanged(5);
    exchange(ROUNDS);
    finish();
}

static void help(void) {
    char c;
    exchange(5);
    if (strcmp(how, "helper-forks") == 0 && fork() == 0) {
        // Holds the connection until the end.
        close(control);
        _exit(read(9, &c, 1));
    }
    if (strcmp(how, "helper-spawns") == 0) {
        char *wait[] = {"sh", "-c", "read x <&9", NULL};
        pid_t child;
        fcntl(control, F_SETFD, FD_CLOEXEC);
        if (posix_spawn(&child, "/bin/sh", NULL, NULL, wait, environ))
            die("spawn");
    }
    if (strcmp(how, "helper-closes") == 0)
        close(s);
    _exit(0);
}

// ---------------------------------------------------------------- a child under a filter

static void sandbox(void) {
    int end[2];
    char c;
    if (strncmp(how, "sandbox-late", 12) == 0)
        exchange(ROUNDS);
    if (pipe(end))
        die("pipe");
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
            die("a filter");
        exchange(5);
        if (strstr(how, "forks") != NULL && fork() == 0) {
            // Holds the connection until the end, and nobody can know.
            close(end[1]);
            close(control);
            _exit(read(end[0], &c, 1));
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
    exchanged(5);
    exchange(ROUNDS);
    finish();
}

// ---------------------------------------------------------------- variables that mean nothing

static unsigned long long started(void) {
    char text[1024] = {0};
    int f = open("/proc/self/stat", O_RDONLY);
    if (read(f, text, sizeof text - 1) <= 0)
        die("stat");
    close(f);
    char *at = strrchr(text, ')') + 2;
    unsigned long long n = 0;
    for (int field = 3; field < 22; field++)
        at = strchr(at, ' ') + 1;
    n = strtoull(at, NULL, 10);
    return n;
}

static void spawn(void) {
    char *no[] = {"true", NULL};
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, no, environ))
        die("spawn");
    waitpid(child, NULL, 0);
}

// The variable that this image began with, if any, once more for the next one.
static void stale(void) {
    static char all[1 << 16];
    int f = open("/proc/self/environ", O_RDONLY);
    ssize_t n = read(f, all, sizeof all - 1);
    close(f);
    for (char *at = all; at < all + n; at += strlen(at) + 1)
        if (strncmp(at, "BYPATH_DEED=", 12) == 0)
            putenv(at);
    spawn();
    become(2);
}

// The connection in a message that is not read before the other image is there.
static void passed(void) {
    int two[2];
    char data = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&data, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &s, sizeof(int));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, two) || sendmsg(two[0], &m, 0) != 1)
        die("a message");
    become(1);
}

// The region of this image's family, at a number that stays open, if there is one.
static void region_at(int to) {
    for (int f = 3; f < 4096; f++) {
        char path[32], link[64] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", f);
        if (readlink(path, link, sizeof link - 1) > 0 && strstr(link, "bypath-view") && f != to)
            dup2(f, to);
    }
}

// A deed as the library would write it, but for what it leads to: `kind` says what is wrong. Nothing else is inherited
// that the library knows of.
static void hostile(int kind) {
    char variable[400];
    int f = memfd_create("bypath-view", MFD_ALLOW_SEALING);
    if (kind >= 2)
        ftruncate(f, kind == 2 ? 4096 : 40 << 20);
    if (kind >= 4)
        fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    dup2(f, 50);
    close(f);
    snprintf(variable, sizeof variable, "BYPATH_DEED=%x:%llx:%x:%x:%x:1:2,%x:0:1", getpid(), started(),
             kind == 0 ? 9999 : 50, kind == 5 ? 0xffffffff : 0, 77, s);
    if (kind == 6)
        snprintf(variable, sizeof variable, "BYPATH_DEED=%x:%llx", getpid(), started());
    if (kind == 7)
        snprintf(variable, sizeof variable, "BYPATH_DEED=,,,:::-1,%0300d", 7);
    if (kind == 8) {
        // All of it is right but the number that the region has not got.
        struct stat st;
        stat("/proc/self/exe", &st);
        region_at(50);
        int n = snprintf(variable, sizeof variable, "BYPATH_DEED=%x:%llx:32:0:4d:%lx:%lx", getpid(), started(),
                         (long)st.st_dev, (long)st.st_ino);
        for (int end = 0; end < 8; end++)
            n += snprintf(variable + n, sizeof variable - n, ",%x:%x:1", s, end);
    }
    // After this nothing is left to the next image but what we write.
    spawn();
    putenv(variable);
    become(20 + kind);
}

// ---------------------------------------------------------------- main

static void begin(void) {
    if (strcmp(how, "many") == 0)
        many();
    connection();
    if (strcmp(how, "flight") == 0) {
        warm_up();
        into_flight();
        become(1);
    }
    if (strncmp(how, "helper", 6) == 0)
        helper();
    if (strncmp(how, "sandbox", 7) == 0)
        sandbox();
    exchange(strcmp(how, "once") == 0 ? 3 : 30);
    if (strcmp(how, "shell") == 0)
        become_by_shell(1);
    if (strcmp(how, "static") == 0)
        become_by_plain("exec", 1);
    if (strcmp(how, "child") == 0)
        become_by_plain("child", 1);
    if (strcmp(how, "cleared") == 0) {
        environ = (char *[]){NULL};
        become(1);
    }
    if (strcmp(how, "moved") == 0) {
        dup2(s, 77);
        close(s);
        s = 77;
        become(1);
    }
    if (strcmp(how, "range") == 0) {
        int top = s > control ? s : control, low = s < control ? s : control;
        close_range(3, low - 1, 0);
        close_range(low + 1, top - 1, 0);
        close_range(top + 1, ~0u, 0);
        become(1);
    }
    if (strcmp(how, "standard") == 0) {
        dup2(s, 0);
        close(s);
        s = 0;
        become(1);
    }
    if (strcmp(how, "late") == 0)
        late();
    if (strcmp(how, "spawned") == 0) {
        spawn();
        become(1);
    }
    if (strcmp(how, "vforked") == 0) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
        become(1);
    }
    if (strcmp(how, "passed") == 0)
        passed();
    if (strcmp(how, "failed") == 0) {
        printf("%d\n", execute_forbidden());
        exchange(30);
        finish();
    }
    if (strncmp(how, "hostile", 7) == 0)
        hostile(atoi(how + 7));
    become(1);
}

static void heir(int stage) {
    if (strcmp(how, "flight") == 0)
        land();
    if (getenv("BYPATH_DEED") != NULL && stage < 20)
        puts("the variable is there still");
    if (strcmp(how, "stale") == 0 && stage == 1) {
        exchange(ROUNDS);
        stale();
    }
    if (stage == 40)
        help();
    if (strcmp(how, "many") == 0) {
        exchange(30);
        if (stage == 31)
            raise(SIGKILL);
        _exit(0);
    }
    if (strcmp(how, "twice") == 0 && stage < 3) {
        exchange(ROUNDS);
        become(stage + 1);
    }
    if (strcmp(how, "standard") == 0) {
        s = dup(0);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        close(null);
    }
    if (strcmp(how, "late") == 0)
        late_heir();
    if (strcmp(how, "fork") == 0) {
        exchange(ROUNDS);
        tell();
        pid_t child = fork();
        if (child == 0) {
            exchange(30);
            finish();
        }
        int status;
        close(s);
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 8);
    }
    if (stage >= 20 && stage < 28)
        printf("its descriptor is its own: %d\n", fcntl(50, F_GETFD) != -1);
    exchange(ROUNDS);
    finish();
}

int main(int argc, char **argv) {
    own = argv[0], how = argv[1];
    if (argc < 7) {
        begin();
        return 1;
    }
    s = atoi(argv[3]), control = atoi(argv[4]);
    sent = strtoull(argv[5], NULL, 10), received = strtoull(argv[6], NULL, 10);
    heir(atoi(argv[2]));
}
