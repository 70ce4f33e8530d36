/* The command loop, its threads, and the pipes to the driver. */
#include "agent.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *agent_path;

void say(struct out *o, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(o->text + o->len, sizeof o->text - o->len, format, ap);
    va_end(ap);
    if (n > 0)
        o->len += (size_t)n < sizeof o->text - o->len ? (size_t)n : sizeof o->text - o->len - 1;
}

void answer(struct out *o, long ret, int error)
{
    if (ret == -1) {
        const char *name = strerrorname_np(error);
        say(o, "-1 %s", name ? name : "E?");
    } else {
        say(o, "%ld -", ret);
        if (error != UNTOUCHED)
            say(o, " errno-touched=%d", error);
    }
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void nap_us(unsigned us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    syscall(SYS_nanosleep, &t, NULL);
}

long number(const char *word) { return strtol(word, NULL, 0); }

const char *arg(struct args *a, int i)
{
    if (i < a->n)
        return a->word[i];
    static const char missing[] = "?";
    return missing;
}

long num(struct args *a, int i) { return number(arg(a, i)); }

long num_or(struct args *a, int i, long otherwise) { return i < a->n ? number(a->word[i]) : otherwise; }

/* ---- commands in threads ------------------------------------------------------------------------------- */

struct task {
    char name[32];
    char line[MAX_LINE];
    pthread_t thread;
    atomic_int tid;
    atomic_int done;
    atomic_int begins;
    int used;
    int slot;
    int stat; /* of /proc */
    struct out out;
};
static struct task tasks[SLOTS];

static void *task_main(void *p)
{
    struct task *t = p;
    atomic_store(&t->tid, (int)syscall(SYS_gettid));
    while (!atomic_load(&t->begins))
        nap_us(20);
    execute(t->line, t->slot, &t->out);
    atomic_store(&t->done, 1);
    return NULL;
}

static struct task *find_task(const char *name)
{
    for (int i = 1; i < SLOTS; i++)
        if (tasks[i].used && strcmp(tasks[i].name, name) == 0)
            return &tasks[i];
    return NULL;
}

/* What the kernel says of a thread, or -1. */
static int open_stat(int tid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

static void start_task(struct args *a, struct out *o)
{
    const char *line = strstr(a->rest, arg(a, 1)) + strlen(arg(a, 1));
    struct task *t = NULL;
    for (int i = 1; i < SLOTS && !t; i++)
        if (!tasks[i].used) {
            t = &tasks[i];
            t->slot = i;
        }
    if (!t || find_task(arg(a, 1))) {
        say(o, "! no room for thread %s", arg(a, 1));
        return;
    }
    t->used = 1;
    t->out.len = 0;
    atomic_store(&t->done, 0);
    atomic_store(&t->tid, 0);
    atomic_store(&t->begins, 0);
    snprintf(t->name, sizeof t->name, "%s", arg(a, 1));
    while (*line == ' ')
        line++;
    snprintf(t->line, sizeof t->line, "%s", line);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 20);
    if (pthread_create(&t->thread, &attr, task_main, t) != 0) {
        t->used = 0;
        say(o, "! pthread_create");
        return;
    }
    pthread_attr_destroy(&attr);
    while (atomic_load(&t->tid) == 0)
        nap_us(20);
    /* Opened before the command begins, and above the numbers that it is given: accept(2) takes its number as it is called. */
    int fd = open_stat(atomic_load(&t->tid));
    t->stat = fd < 0 ? -1 : (int)syscall(SYS_dup3, fd, ERRORS + t->slot, O_CLOEXEC);
    if (fd >= 0)
        syscall(SYS_close, fd);
    atomic_store(&t->begins, 1);
    say(o, "started");
}

static char task_state(struct task *t)
{
    char text[512];
    long n = t->stat < 0 ? -1 : syscall(SYS_pread64, t->stat, text, sizeof text - 1, 0);
    if (n < 0) { /* few descriptors, or the script closed them all */
        int fd = open_stat(atomic_load(&t->tid));
        n = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof text - 1);
        if (fd >= 0)
            syscall(SYS_close, fd);
    }
    if (n <= 0)
        return '?';
    text[n] = 0;
    char *p = strrchr(text, ')');
    return p && p[1] ? p[2] : '?';
}

/* blocked NAME: the command sleeps, and goes on sleeping for a while. */
static void task_blocked(struct args *a, struct out *o)
{
    struct task *t = find_task(arg(a, 1));
    if (!t) {
        say(o, "! no thread %s", arg(a, 1));
        return;
    }
    uint64_t end = now_ms() + DEADLINE_MS;
    int asleep = 0;
    while (!atomic_load(&t->done) && asleep < 12 && now_ms() < end) {
        asleep = task_state(t) == 'S' ? asleep + 1 : 0;
        nap_us(1000);
    }
    say(o, "%s", atomic_load(&t->done) ? "done" : asleep ? "blocked" : "running");
}

/* join NAME [MS]: the result of the command; join_any: only that it ended. */
static void task_join(struct args *a, struct out *o)
{
    struct task *t = find_task(arg(a, 1));
    if (!t) {
        say(o, "! no thread %s", arg(a, 1));
        return;
    }
    uint64_t end = now_ms() + (uint64_t)num_or(a, 2, DEADLINE_MS);
    for (unsigned step = 20; !atomic_load(&t->done); step = step < 1000 ? step * 2 : 1000) {
        if (now_ms() > end) {
            say(o, "still-blocked");
            return;
        }
        nap_us(step);
    }
    pthread_join(t->thread, NULL);
    if (t->stat >= 0)
        syscall(SYS_close, t->stat);
    t->used = 0;
    say(o, "%s", strcmp(arg(a, 0), "join_any") == 0 ? "joined" : t->out.text);
}

static void task_signal(struct args *a, struct out *o)
{
    struct task *t = find_task(arg(a, 1));
    if (!t)
        say(o, "! no thread %s", arg(a, 1));
    else
        say(o, "%d", pthread_kill(t->thread, (int)num(a, 2)));
}

/* timed MIN MAX COMMAND: also says whether the command took that many milliseconds. */
static void timed(struct args *a, struct out *o)
{
    const char *line = a->rest;
    for (int i = 0; i < 2; i++) {
        while (*line == ' ')
            line++;
        while (*line && *line != ' ')
            line++;
    }
    while (*line == ' ')
        line++;
    uint64_t start = now_ms();
    execute(line, a->slot, o);
    uint64_t took = now_ms() - start;
    if ((long)took < num(a, 1) || (long)took > num(a, 2))
        say(o, " time=%lu", (unsigned long)took);
    else
        say(o, " in-time");
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static int listens;

/* listens: from now on this process waits for its next command in a read of the library's, which looks after what other
 * ends ask for. Otherwise, and after `computes`, the library does nothing for anybody meanwhile. */
static void start_listening(struct args *a, struct out *o)
{
    listens = strcmp(arg(a, 0), "listens") == 0;
    say(o, "%s", arg(a, 0));
}

/* As many there may be at the start. */
static struct rlimit descriptors;

/* 0 to 2 as they are at the start, whatever they were since. */
static void open_standard(void)
{
    long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) {
        int is_there = fd == 2 && syscall(SYS_fcntl, ERRORS, F_GETFD) >= 0;
        long from = is_there ? ERRORS : null;
        if (from != fd)
            syscall(SYS_dup3, from, fd, 0);
    }
    if (null > 2)
        syscall(SYS_close, null);
}

static void quiet_close_all(struct args *a, struct out *o)
{
    /* Through libc: the library must hear of it. */
    (void)a;
    listens = 0;
    for (int fd = 0; fd < CONTROL_IN; fd++)
        close(fd);
    open_standard();
    /* One that was executed anew does not know. */
    if (descriptors.rlim_max)
        setrlimit(RLIMIT_NOFILE, &descriptors);
    int left = 0;
    for (int i = 1; i < SLOTS; i++)
        left += tasks[i].used;
    if (left)
        say(o, "! %d threads left", left);
    else
        say(o, "ready");
}

static void own_pid(struct args *a, struct out *o)
{
    (void)a;
    say(o, "%ld", syscall(SYS_getpid));
}

/* port FD and peer FD: the local port, or the other end's, asked behind libc's back (for the driver, not part of a script). */
static void own_port(struct args *a, struct out *o)
{
    struct sockaddr_storage s;
    socklen_t len = sizeof s;
    long name = strcmp(arg(a, 0), "peer") == 0 ? SYS_getpeername : SYS_getsockname;
    if (syscall(name, num(a, 1), &s, &len) != 0)
        say(o, "0");
    else
        say(o, "%d", local_port(&s, len));
}

static const struct command loop_commands[] = {
    {"go", start_task},    {"blocked", task_blocked}, {"join", task_join}, {"tkill", task_signal}, {"join_any", task_join},
    {"timed", timed},      {"reset", quiet_close_all}, {"pid", own_pid},    {"port", own_port},
    {"peer", own_port},
    {"listens", start_listening}, {"computes", start_listening},
    {NULL, NULL},
};

void execute(const char *line, int slot, struct out *o)
{
    char copy[MAX_LINE];
    snprintf(copy, sizeof copy, "%s", line);
    struct args a = {.n = 0, .slot = slot};
    char *save = NULL;
    for (char *w = strtok_r(copy, " ", &save); w && a.n < MAX_WORDS; w = strtok_r(NULL, " ", &save))
        a.word[a.n++] = w;
    if (a.n == 0) {
        say(o, "! empty command");
        return;
    }
    while (*line == ' ')
        line++;
    a.rest = line + strlen(a.word[0]);
    const struct command *tables[] = {loop_commands,    data_commands, socket_commands, ready_commands,
                                      process_commands, bad_commands,  stdio_commands, told_commands,
                                      datagram_commands};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct command *c = tables[t]; c->name; c++)
            if (strcmp(c->name, a.word[0]) == 0) {
                c->run(&a, o);
                return;
            }
    say(o, "! unknown command %s", a.word[0]);
}

void serve(void)
{
    static char line[MAX_LINE];
    static struct out o;
    size_t have = 0;
    for (;;) {
        char *end;
        while (!(end = memchr(line, '\n', have))) {
            long room = (long)(sizeof line - have);
            long n = listens ? syscall(SYS_read, CONTROL_IN, line + have, room)
                             : plain(SYS_read, CONTROL_IN, (long)(line + have), room);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                _exit(0); /* the driver is gone */
            have += (size_t)n;
        }
        *end = 0;
        o.len = 0;
        o.text[0] = 0;
        execute(line, 0, &o);
        size_t used = (size_t)(end - line) + 1;
        memmove(line, line + used, have - used);
        have -= used;
        o.text[o.len++] = '\n';
        for (size_t at = 0; at < o.len;) {
            long n = syscall(SYS_write, CONTROL_OUT, o.text + at, o.len - at);
            if (n < 0 && errno != EINTR)
                _exit(99);
            at += n > 0 ? (size_t)n : 0;
        }
    }
}

/* A second command stream for a child: PATH.in and PATH.out were made by the parent. */
void serve_fifo(const char *path)
{
    char name[512];
    memset(tasks, 0, sizeof tasks);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.%s", path, i ? "out" : "in");
        long fd;
        do
            fd = syscall(SYS_openat, AT_FDCWD, name, i ? O_WRONLY : O_RDONLY);
        while (fd < 0 && errno == EINTR);
        if (fd < 0)
            _exit(98);
        if (fd != CONTROL_IN + i) {
            syscall(SYS_dup3, fd, CONTROL_IN + i, 0);
            syscall(SYS_close, fd);
        }
    }
    serve();
}

int main(int argc, char **argv)
{
    agent_path = getenv("AGENT_PATH");
    unix_names = getenv("AGENT_UNIX");
    if (argc > 2 && strcmp(argv[1], "--fifo") == 0)
        serve_fifo(argv[2]);
    if (argc > 2 && strcmp(argv[1], "--do") == 0) {
        static struct out o;
        execute(argv[2], 0, &o);
        long n = syscall(SYS_write, 1, o.text, o.len);
        return n == (long)o.len && o.text[0] != '-' && o.text[0] != '!' ? 0 : 1;
    }
    if (argc > 1 && strcmp(argv[1], "--resume") == 0)
        serve();
    /* Start: the pipes move out of the way, 0 to 2 become ordinary descriptors. */
    for (int i = 0; i < 2; i++)
        syscall(SYS_dup3, i, CONTROL_IN + i, 0);
    getrlimit(RLIMIT_NOFILE, &descriptors);
    syscall(SYS_dup3, 2, ERRORS, O_CLOEXEC);
    open_standard();
    /* Whatever else was inherited is in the way (a build tool's pipes, for instance). */
    for (int fd = 3; fd < CONTROL_IN; fd++)
        syscall(SYS_close, fd);
    serve();
}
