// Processes: every way to make, replace and end one. The output and the status must be the same with and without
// the preload library.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

extern char **environ;
extern pid_t _Fork(void);
static const char *self;
static int shared;

static void ended(const char *what, pid_t pid) {
    int s = 0;
    if (pid <= 0 || waitpid(pid, &s, 0) != pid)
        printf("%s: no child, errno %d\n", what, errno);
    else
        printf("%s: %s %d\n", what, WIFEXITED(s) ? "exit" : "signal", WIFEXITED(s) ? WEXITSTATUS(s) : WTERMSIG(s));
}

// A child that replaces itself by each exec; argument numbers tell whether the list arrived whole.
static void execs(void) {
    char *argv[] = {"me", "args", "a1", "a2", NULL}, *envp[] = {"MARK=1", NULL};
#define CHILD(call)             \
    do {                        \
        fflush(stdout);         \
        pid_t p = fork();       \
        if (p == 0) {           \
            call;               \
            _exit(99);          \
        }                       \
        ended(#call, p);        \
    } while (0)
    CHILD(execl(self, "me", "args", NULL));
    CHILD(execl(self, "me", "args", "a1", NULL));
    CHILD(execl(self, "me", "args", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", NULL));
    CHILD(execlp(self, "me", "args", "a1", "a2", "a3", NULL));
    CHILD(execle(self, "me", "args", NULL, envp));
    CHILD(execle(self, "me", "args", "a1", "a2", "a3", "a4", "a5", NULL, envp));
    CHILD(execv(self, argv));
    CHILD(execve(self, argv, envp));
    CHILD(execvp(self, argv));
    CHILD(execvpe(self, argv, envp));
    CHILD(fexecve(open(self, O_RDONLY | O_CLOEXEC), argv, envp));
    CHILD(syscall(SYS_execve, self, argv, envp));
    CHILD(syscall(SYS_execveat, AT_FDCWD, self, argv, envp, 0));
    errno = 0;
    int r = execl("/does/not/exist", "x", "1", "2", "3", "4", "5", "6", "7", NULL);
    printf("execl failed: %d %d\n", r, errno);
    errno = 0;
    r = execv("/does/not/exist", argv);
    printf("execv failed: %d %d\n", r, errno);
}

static void vforks(void) {
    int keep = dup(1), closed_in_child = dup(1);
    volatile int local = 1;
    fflush(stdout);
    pid_t p = vfork();
    if (p == 0) {
        // Same memory, other descriptors.
        local = 2, shared = 3;
        close(closed_in_child);
        dup2(keep, 50);
        execl(self, "me", "args", "by-vfork", NULL);
        _exit(98);
    }
    ended("vfork and exec", p);
    printf("memory %d %d, parent's descriptor %s, child's %s\n", local, shared,
           fcntl(closed_in_child, F_GETFD) == 0 ? "open" : "closed", fcntl(50, F_GETFD) == -1 ? "closed" : "open");
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        if ((p = vfork()) == 0) {
            execl("/does/not/exist", "x", NULL);
            _exit(errno == ENOENT ? 10 + i : 97);
        }
        ended("vfork and _exit", p);
    }
    close(closed_in_child), close(keep);
    printf("close after vfork: %d\n", close(closed_in_child));
}

static int in_clone(void *arg) {
    shared += 1;
    _exit(*(int *)arg);
}

static int returns(void *arg) { return *(int *)arg + shared; }

static void clones(void) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    int value = 21;
    shared = 0;
    fflush(stdout);
    ended("clone, own memory", clone(in_clone, stack + sizeof stack, SIGCHLD, &value));
    printf("shared %d\n", shared);
    ended("clone, shared memory", clone(in_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &value));
    printf("shared %d\n", shared);
    ended("clone, entry returns", clone(returns, stack + sizeof stack, SIGCHLD, &value));
    printf("clone without a function: %d\n", clone(NULL, stack + sizeof stack, SIGCHLD, NULL));
    pid_t p = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (p == 0)
        _exit(23);
    ended("clone by number", p);
    if ((p = syscall(SYS_fork)) == 0)
        _exit(24);
    ended("fork by number", p);
    if ((p = _Fork()) == 0)
        _exit(25);
    ended("_Fork", p);
}

static void spawns(void) {
    char *argv[] = {"me", "args", "spawned", NULL};
    pid_t p = 0;
    fflush(stdout);
    int r = posix_spawn(&p, self, NULL, NULL, argv, environ);
    ended("posix_spawn", p);
    printf("posix_spawn %d\n", r);
    fflush(stdout);
    r = posix_spawnp(&p, self, NULL, NULL, argv, environ);
    ended("posix_spawnp", p);
    printf("posix_spawnp %d\n", r);
    printf("posix_spawn of nothing %d\n", posix_spawn(&p, "/does/not/exist", NULL, NULL, argv, environ));
    fflush(stdout);
    printf("system %d\n", WEXITSTATUS(system("exit 6")));
    char line[64] = "";
    FILE *f = popen("echo popen; exit 7", "r");
    fgets(line, sizeof line, f);
    printf("%spclose %d\n", line, WEXITSTATUS(pclose(f)));
    wordexp_t w;
    r = wordexp("$(echo words)", &w, 0);
    printf("wordexp %d %s\n", r, r == 0 ? w.we_wordv[0] : "");
}

static void terminals(void) {
    int master;
    fflush(stdout);
    pid_t p = forkpty(&master, NULL, NULL, NULL);
    if (p == 0)
        _exit(isatty(0) ? 31 : 32);
    ended("forkpty", p);
    close(master);
}

static void daemons(void) {
    int pipes[2];
    char got[64] = "";
    if (pipe(pipes))
        return;
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        if (daemon(0, 0))
            _exit(41);
        char cwd[16] = "", out[64];
        getcwd(cwd, sizeof cwd);
        int n = snprintf(out, sizeof out, "daemon in %s, leader %d, output %s", cwd, getsid(0) == getpid(),
                         isatty(1) ? "tty" : "not a tty");
        _exit(write(pipes[1], out, n) != n);
    }
    close(pipes[1]);
    ended("daemon's parent", p);
    ssize_t n = read(pipes[0], got, sizeof got - 1);
    printf("%.*s\n", (int)n, got);
    close(pipes[0]);
}

static void at_exit(void) { printf("atexit ran\n"); }
static void at_quick(void) {
    if (write(1, "at_quick_exit ran\n", 18)) {}
}

int main(int argc, char **argv) {
    self = "/proc/self/exe";
    char path[4096];
    ssize_t n = readlink(self, path, sizeof path - 1);
    path[n] = 0;
    self = path;
    const char *mode = argc > 1 ? argv[1] : "all";
    if (!strcmp(mode, "args")) {
        printf("%d args", argc);
        for (int i = 0; i <= argc; i++)
            printf(" %s", argv[i] ? argv[i] : "(end)");
        printf(" MARK=%s\n", getenv("MARK") ? getenv("MARK") : "none");
        return argc;
    }
    if (!strcmp(mode, "exit")) { atexit(at_exit); exit(51); }
    if (!strcmp(mode, "_exit")) { atexit(at_exit); _exit(52); }
    if (!strcmp(mode, "_Exit")) { atexit(at_exit); _Exit(53); }
    if (!strcmp(mode, "quick_exit")) { at_quick_exit(at_quick); quick_exit(54); }
    if (!strcmp(mode, "exit_group")) { syscall(SYS_exit_group, 55); }
    if (!strcmp(mode, "abort")) { signal(SIGABRT, SIG_DFL); abort(); }
    if (!strcmp(mode, "kill")) { raise(SIGKILL); }
    if (!strcmp(mode, "segv")) { raise(SIGSEGV); }
    execs();
    vforks();
    clones();
    spawns();
    terminals();
    daemons();
    return 42;
}
