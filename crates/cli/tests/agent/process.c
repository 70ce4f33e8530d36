/* Processes and signals: fork, exec, spawn, system, popen, descriptors sent to others, ends of every kind. */
#include "agent.h"
#include <fcntl.h>
#include <signal.h>
#include <poll.h>
#include <sys/epoll.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct child {
    char name[32];
    pid_t pid;
} children[8];

static int make_fifos(const char *path)
{
    char name[512];
    snprintf(name, sizeof name, "%s.in", path);
    if (mkfifo(name, 0600) != 0)
        return -1;
    snprintf(name, sizeof name, "%s.out", path);
    return mkfifo(name, 0600);
}

static void remember(const char *path, pid_t pid, struct out *o)
{
    const char *slash = strrchr(path, '/');
    for (int i = 0; i < 8; i++)
        if (children[i].pid == 0) {
            snprintf(children[i].name, sizeof children[i].name, "%s", slash ? slash + 1 : path);
            children[i].pid = pid;
            say(o, "child pid=%d", pid);
            return;
        }
    say(o, "! too many children");
}

/* fork PATH: the child answers on the named pipes PATH.in and PATH.out. */
static void do_fork(struct args *a, struct out *o)
{
    if (make_fifos(arg(a, 1)) != 0) {
        say(o, "! mkfifo %s", strerror(errno));
        return;
    }
    pid_t pid = fork();
    if (pid < 0) {
        answer(o, -1, errno);
        return;
    }
    if (pid == 0) {
        memset(children, 0, sizeof children);
        serve_fifo(arg(a, 1));
    }
    remember(arg(a, 1), pid, o);
}

/* The environment without the library (`plain`), or as it is (`same`). */
static char **environment(const char *kind)
{
    if (strcmp(kind, "plain") != 0)
        return environ;
    static char *plain[1024];
    int n = 0;
    for (char **e = environ; *e && n < 1023; e++)
        if (strncmp(*e, "LD_PRELOAD=", 11) != 0)
            plain[n++] = *e;
    plain[n] = NULL;
    return plain;
}

/* exec plain|same [execvp|execl|fexecve|raw]: this program again, on the same pipes; a failure is answered. */
static void do_exec(struct args *a, struct out *o)
{
    char *argv[] = {(char *)agent_path, "--resume", NULL};
    char **env = environment(arg(a, 1));
    const char *how = arg(a, 2);
    /* The new image finds the answer of this command as its first line of work: it must not answer twice. */
    if (strcmp(how, "missing") == 0) {
        CALL(o, execve("/nonexistent/program", argv, env));
        return;
    }
    static const char done[] = "exec\n";
    syscall(SYS_write, CONTROL_OUT, done, sizeof done - 1);
    if (strcmp(how, "execvp") == 0) {
        environ = env;
        execvp(agent_path, argv);
    } else if (strcmp(how, "execl") == 0) {
        environ = env;
        execl(agent_path, agent_path, "--resume", (char *)NULL);
    } else if (strcmp(how, "fexecve") == 0) {
        fexecve(open(agent_path, O_RDONLY | O_CLOEXEC), argv, env);
    } else if (strcmp(how, "raw") == 0) {
        plain(SYS_execve, (long)agent_path, (long)argv, (long)env);
    } else {
        execve(agent_path, argv, env);
    }
    _exit(97);
}

/* spawn PATH plain|same: posix_spawn of this program on named pipes */
static void do_spawn(struct args *a, struct out *o)
{
    char *argv[] = {(char *)agent_path, "--fifo", (char *)arg(a, 1), NULL};
    pid_t pid = 0;
    if (make_fifos(arg(a, 1)) != 0) {
        say(o, "! mkfifo %s", strerror(errno));
        return;
    }
    int error = posix_spawn(&pid, agent_path, NULL, NULL, argv, environment(arg(a, 2)));
    if (error)
        answer(o, -1, error);
    else
        remember(arg(a, 1), pid, o);
}

/* vfork_exec FD N SEED: a vfork child becomes a plain program that writes to FD. */
static void do_vfork_exec(struct args *a, struct out *o)
{
    char line[256];
    snprintf(line, sizeof line, "write %s %s %s", arg(a, 1), arg(a, 2), arg(a, 3));
    char *argv[] = {(char *)agent_path, "--do", line, NULL};
    char **env = environment("plain");
    pid_t pid = vfork();
    if (pid == 0) {
        execve(agent_path, argv, env);
        _exit(96);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    say(o, "status %d", WEXITSTATUS(status));
}

/* vfork_write FD N SEED: a vfork child writes to FD, and ends. */
static void do_vfork_write(struct args *a, struct out *o)
{
    unsigned char octets[64];
    size_t len = (size_t)num(a, 2);
    int fd = (int)num(a, 1), status = 0;
    fill(octets, len > sizeof octets ? sizeof octets : len, (unsigned)num(a, 3), 0);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(write(fd, octets, len) != (ssize_t)len);
    waitpid(pid, &status, 0);
    say(o, "status %d", WEXITSTATUS(status));
}

/* vfork_recv FD LEN: a vfork child receives, and does not wait. */
static void do_vfork_recv(struct args *a, struct out *o)
{
    unsigned char octets[256];
    size_t len = (size_t)num(a, 2) > sizeof octets ? sizeof octets : (size_t)num(a, 2);
    int fd = (int)num(a, 1), status = 0;
    volatile long got = -1;
    volatile int error = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        errno = UNTOUCHED;
        got = recv(fd, octets, len, MSG_DONTWAIT);
        error = errno;
        _exit(0);
    }
    waitpid(pid, &status, 0);
    answer(o, got, error);
}

/* vfork_over FD: a vfork child executes a program that finds something else at FD */
static void do_vfork_over(struct args *a, struct out *o)
{
    char *argv[] = {"true", NULL};
    char **env = environment("plain");
    int fd = (int)num(a, 1), other = open("/dev/null", O_RDWR);
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(other, fd);
        execve("/bin/true", argv, env);
        _exit(96);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    close(other);
    say(o, "status %d", WEXITSTATUS(status));
}

/* system COMMAND and popen COMMAND: the command is executed by a program that the shell starts. */
static void do_system(struct args *a, struct out *o)
{
    char line[1024];
    snprintf(line, sizeof line, "env -u LD_PRELOAD %s --do '%s'", agent_path, a->rest + 1);
    int status = system(line);
    say(o, "status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -status);
}
static void do_popen(struct args *a, struct out *o)
{
    char line[1024], text[256] = "";
    snprintf(line, sizeof line, "env -u LD_PRELOAD %s --do '%s'", agent_path, a->rest + 1);
    FILE *f = popen(line, "r");
    if (!f || !fgets(text, sizeof text, f))
        say(o, "! popen");
    say(o, "status %d says %s", f ? pclose(f) : -1, text);
}

static struct child *find_child(const char *name)
{
    for (int i = 0; i < 8; i++)
        if (children[i].pid && strcmp(children[i].name, name) == 0)
            return &children[i];
    return NULL;
}

/* strike NAME FD poll|epoll: sends, kills the child that receives, sends again, and sleeps on that socket: what is told of it */
static void do_strike(struct args *a, struct out *o)
{
    struct child *c = find_child(arg(a, 1));
    struct epoll_event e = {0};
    int fd = (int)num(a, 2), ep = epoll_create1(EPOLL_CLOEXEC), n;
    struct pollfd p = {fd, 0, 0};
    siginfo_t ended;
    if (!c) {
        say(o, "! no child %s", arg(a, 1));
        return;
    }
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    send(fd, "one", 3, 0);
    kill(c->pid, SIGKILL);
    waitid(P_PID, (id_t)c->pid, &ended, WEXITED | WNOWAIT);
    long sent = send(fd, "two", 3, 0);
    if (strcmp(arg(a, 3), "poll") == 0) {
        n = poll(&p, 1, 5000);
        e.events = (uint32_t)p.revents;
    } else {
        n = epoll_wait(ep, &e, 1, 5000);
    }
    close(ep);
    say(o, "sent %ld told %d %#x", sent, n, e.events);
}

/* wait NAME: how the child ended */
static void do_wait(struct args *a, struct out *o)
{
    struct child *c = find_child(arg(a, 1));
    int status = 0;
    uint64_t end = now_ms() + DEADLINE_MS;
    pid_t pid = 0;
    if (!c) {
        say(o, "! no child %s", arg(a, 1));
        return;
    }
    while ((pid = waitpid(c->pid, &status, WNOHANG)) == 0 && now_ms() < end)
        nap_us(500);
    if (pid != c->pid)
        say(o, "still running");
    else if (WIFEXITED(status))
        say(o, "exit %d", WEXITSTATUS(status));
    else
        say(o, "signal %d", WTERMSIG(status));
    if (pid == c->pid)
        c->pid = 0;
}

/* scm_send UNIX FD; scm_recv UNIX */
static void do_scm_send(struct args *a, struct out *o)
{
    int fd = (int)num(a, 2);
    char byte = 'f', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CALL(o, sendmsg((int)num(a, 1), &m, 0));
}
static void do_scm_recv(struct args *a, struct out *o)
{
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CALL(o, recvmsg((int)num(a, 1), &m, 0));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    say(o, " fd=%d", fd);
}

static atomic_int signals[65];
static void count_signal(int sig) { atomic_fetch_add(&signals[sig], 1); }

static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int value;
    } names[] = {{"pipe", SIGPIPE}, {"usr1", SIGUSR1}, {"usr2", SIGUSR2}, {"alrm", SIGALRM}, {"chld", SIGCHLD},
                 {"io", SIGIO},     {"urg", SIGURG},   {"kill", SIGKILL}, {"stop", SIGSTOP}, {"cont", SIGCONT},
                 {"term", SIGTERM}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].value;
    return (int)number(name);
}

/* sigaction SIGNAL count|ignore|default [restart] */
static void do_sigaction(struct args *a, struct out *o)
{
    struct sigaction s = {0};
    s.sa_handler = strcmp(arg(a, 2), "count") == 0    ? count_signal
                   : strcmp(arg(a, 2), "ignore") == 0 ? SIG_IGN
                                                      : SIG_DFL;
    s.sa_flags = strcmp(arg(a, 3), "restart") == 0 ? SA_RESTART : 0;
    CALL(o, sigaction(signal_number(arg(a, 1)), &s, NULL));
}
/* signals NAME: how many arrived since the last time */
static void do_signals(struct args *a, struct out *o)
{
    say(o, "%d", atomic_exchange(&signals[signal_number(arg(a, 1))], 0));
}
/* wait_signal NAME: until at least one arrived */
static void do_wait_signal(struct args *a, struct out *o)
{
    uint64_t end = now_ms() + DEADLINE_MS;
    int sig = signal_number(arg(a, 1));
    while (!atomic_load(&signals[sig]) && now_ms() < end)
        nap_us(200);
    say(o, atomic_load(&signals[sig]) ? "came" : "never");
}
static void do_kill(struct args *a, struct out *o)
{
    CALL(o, kill((pid_t)num(a, 1), signal_number(arg(a, 2))));
}
static void do_setitimer(struct args *a, struct out *o)
{
    struct itimerval t = {.it_value = {num(a, 1) / 1000, num(a, 1) % 1000 * 1000}};
    CALL(o, setitimer(ITIMER_REAL, &t, NULL));
}

static void do_exit_now(struct args *a, struct out *o)
{
    (void)o;
    _exit((int)num_or(a, 1, 0));
}
static void do_exit(struct args *a, struct out *o)
{
    (void)o;
    exit((int)num_or(a, 1, 0));
}
static void do_quick_exit(struct args *a, struct out *o)
{
    (void)o;
    quick_exit((int)num_or(a, 1, 0));
}
static void do_kill9(struct args *a, struct out *o)
{
    (void)a;
    (void)o;
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}
static void do_abort(struct args *a, struct out *o)
{
    (void)a;
    (void)o;
    abort();
}
/* spin MS: computes without any call */
static void do_spin(struct args *a, struct out *o)
{
    uint64_t end = now_ms() + (uint64_t)num(a, 1);
    while (now_ms() < end)
        ;
    say(o, "spun");
}
static void do_preloaded(struct args *a, struct out *o)
{
    (void)a;
    char line[512];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        found |= strstr(line, "libbypath_preload") != NULL;
    if (f)
        fclose(f);
    say(o, found ? "preloaded" : "plain");
}

const struct command process_commands[] = {
    {"fork", do_fork},       {"exec", do_exec},           {"spawn", do_spawn},
    {"vfork_exec", do_vfork_exec}, {"vfork_write", do_vfork_write}, {"vfork_over", do_vfork_over}, {"vfork_recv", do_vfork_recv}, {"system", do_system}, {"popen", do_popen},
    {"strike", do_strike},   {"wait", do_wait},       {"scm_send", do_scm_send},   {"scm_recv", do_scm_recv},
    {"sigaction", do_sigaction}, {"signals", do_signals}, {"wait_signal", do_wait_signal},
    {"kill", do_kill},       {"setitimer", do_setitimer}, {"_exit", do_exit_now},
    {"exit", do_exit},       {"quick_exit", do_quick_exit}, {"kill9", do_kill9},
    {"abort", do_abort},     {"spin", do_spin},           {"preloaded", do_preloaded},
    {NULL, NULL},
};
