/* Other descriptors, processes and images that move the next bytes of a direction, which nobody else does meanwhile. */
#include "roads.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct way lent(struct way *w, int fd, unsigned more)
{
    struct way c = *w;
    c.fd = fd;
    c.may = (c.may & ~(unsigned)ALONE) | LENT | more;
    return c;
}

/* ---- processes ------------------------------------------------------------------------------------------------ */

static void wait_for_child(struct way *w, pid_t child, const char *what)
{
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR)
            fail(w, "%s: waitpid: %m", what);
    if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        fail(w, "%s: status %x", what, status);
}

static void by_fork(struct way *w, size_t n)
{
    int dies = any(w, 4) == 0;
    pid_t child = fork();
    if (child < 0)
        fail(w, "fork: %m");
    if (child == 0) {
        struct way c = lent(w, w->fd, CHILD);
        move(&c, n);
        if (dies)
            raise(SIGKILL);
        _exit(0);
    }
    wait_for_child(w, child, "a forked child");
}

/* What another image needs to know to move n bytes. */
struct words {
    char text[6][24], *list[10];
};

static char **mover(struct words *t, struct way *w, int fd, size_t n)
{
    snprintf(t->text[0], 24, "%d", w->pair);
    snprintf(t->text[1], 24, "%d", w->side);
    snprintf(t->text[2], 24, "%u", (w->may & (OUT | FREE)) | LENT | CHILD | CLEAN);
    snprintf(t->text[3], 24, "%d", fd);
    snprintf(t->text[4], 24, "%zu", n);
    char *list[] = {(char *)own, "move", (char *)file, t->text[0], t->text[1], t->text[2], t->text[3], t->text[4], NULL};
    memcpy(t->list, list, sizeof list);
    return t->list;
}

/* The environment, with this library or without. */
static char **environment(struct way *w, int plain, char *list[400])
{
    static _Thread_local char preload[600];
    int n = 0;
    for (char **e = environ; *e != NULL && n < 398; e++)
        if (strncmp(*e, "LD_PRELOAD=", 11) != 0)
            list[n++] = *e;
    if (!plain && w->end->preload[0]) {
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", w->end->preload);
        list[n++] = preload;
    }
    list[n] = NULL;
    return list;
}

static void by_image(struct way *w, enum road road, size_t n)
{
    struct words t;
    char *list[400], **e = environment(w, any(w, 3) == 0, list);
    pid_t child = -1;
    if (road == R_SPAWN) {
        posix_spawn_file_actions_t actions;
        int other = any(w, 2) ? 300 + (int)(w->may & OUT) : w->fd;
        posix_spawn_file_actions_init(&actions);
        if (other != w->fd)
            posix_spawn_file_actions_adddup2(&actions, w->fd, other);
        if (posix_spawn(&child, own, &actions, NULL, mover(&t, w, other, n), e) != 0)
            fail(w, "posix_spawn: %m");
        posix_spawn_file_actions_destroy(&actions);
    } else if (road == R_VFORK) {
        char **words = mover(&t, w, w->fd, n);
        child = vfork();
        if (child == 0) {
            execve(own, words, e);
            _exit(7);
        }
    } else {
        child = fork();
        if (child == 0) {
            execve(own, mover(&t, w, w->fd, n), e);
            _exit(7);
        }
    }
    if (child < 0)
        fail(w, "a child: %m");
    wait_for_child(w, child, "another program");
}

static void by_shell(struct way *w, size_t n)
{
    struct words t;
    char line[2000];
    char **v = mover(&t, w, w->fd, n);
    snprintf(line, sizeof line, "exec %s %s %s %s %s %s %s %s", v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
    int status = system(line);
    if (status != 0)
        fail(w, "system: status %x", status);
}

/* This process goes on as another image, sometimes as one without the library. */
void become(struct way *w)
{
    char pair[24], side[24], *list[400];
    snprintf(pair, sizeof pair, "%d", w->pair);
    snprintf(side, sizeof side, "%d", w->side);
    if (any(w, 3) == 0) {
        int fd = dup(w->fd);
        forget_edges(w->fd);
        close(w->fd);
        atomic_store(&w->end->fd, fd);
    }
    /* Its handler goes with this image. */
    signal(SIGIO, SIG_IGN);
    execve(own, (char *[]){(char *)own, "image", (char *)file, pair, side, NULL},
           environment(w, any(w, 8) == 0, list));
    fail(w, "exec: %m");
}

/* ---- the helper ----------------------------------------------------------------------------------------------- */

struct command {
    int what, pair, side, fd, pid, back; /* what: 'r' the descriptor is in the message, 't' take it */
    unsigned may;
    size_t n;
};

static pthread_mutex_t one_command = PTHREAD_MUTEX_INITIALIZER;

/* A message with a descriptor, or without if it is -1. */
static void put(int channel, const void *data, size_t n, int fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec v = {(void *)data, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control.room, m.msg_controllen = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    while (sendmsg(channel, &m, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            return;
}

/* False at the end. */
static int get(int channel, void *data, size_t n, int *fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec v = {data, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t k;
    while ((k = recvmsg(channel, &m, 0)) < 0 && errno == EINTR)
        m.msg_controllen = sizeof control.room;
    *fd = -1;
    struct cmsghdr *c = k > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c != NULL && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return k == (ssize_t)n;
}

void serve_end(int channel)
{
    struct shared *all = map();
    struct command c;
    int fd;
    while (get(channel, &c, sizeof c, &fd)) {
        if (c.what == 't') {
            int process = pidfd_open(c.pid, 0);
            fd = any(&(struct way){.random = &all->pairs[c.pair].ends[c.side].random[c.may & OUT]}, 2)
                     ? (int)syscall(SYS_pidfd_getfd, process, c.fd, 0)
                     : pidfd_getfd(process, c.fd, 0);
            int error = errno;
            close(process);
            if (fd < 0 && error == EPERM) {
                put(channel, &error, sizeof error, -1);
                continue;
            }
        }
        struct way w = way(all, c.pair, c.side, fd, c.may | LENT | CHILD);
        if (fd < 0)
            fail(&w, "the helper got no descriptor: %m");
        move(&w, c.n);
        int nothing = 0;
        put(channel, &nothing, sizeof nothing, c.back ? fd : -1);
        close(fd);
    }
    _exit(0);
}

void start_helper(struct way *w, int kind)
{
    int two[2];
    char number[24];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, two))
        fail(w, "socketpair: %m");
    if (kind == HELPER_KIN)
        /* Whoever is forked from here on is of one family. */
        close(socket(AF_INET, SOCK_STREAM, 0));
    if (fork() == 0) {
        char *list[400];
        close(two[0]);
        if (kind == HELPER_KIN)
            serve_end(two[1]);
        snprintf(number, sizeof number, "%d", two[1]);
        execve(own, (char *[]){(char *)own, "helper", (char *)file, number, NULL},
               environment(w, kind == HELPER_PLAIN, list));
        _exit(7);
    }
    close(two[1]);
    w->end->helper = two[0];
}

/* False if it is busy, or may not. */
static int by_helper(struct way *w, enum road road, size_t n)
{
    struct command c = {.what = road == R_TAKEN ? 't' : 'r', .pair = w->pair, .side = w->side, .fd = w->fd,
                        .pid = getpid(), .may = w->may & (OUT | FREE), .n = n};
    int answer = 0, fd, gone = 0;
    if (pthread_mutex_trylock(&one_command) != 0)
        return 0;
    c.back = road == R_RIGHTS && any(w, 2);
    put(w->end->helper, &c, sizeof c, road == R_RIGHTS ? w->fd : -1);
    if (road == R_RIGHTS) {
        atomic_store(&w->end->for_good, 1);
        if (c.back && (w->may & ALONE) && any(w, 2)) {
            /* Nobody has it for a while but the message, then the helper. */
            gone = 1;
            forget_edges(w->fd);
            close(w->fd);
        }
    }
    if (!get(w->end->helper, &answer, sizeof answer, &fd))
        fail(w, "the helper is gone");
    if (fd >= 0 && gone) {
        w->fd = fd;
        atomic_store(&w->end->fd, fd);
    } else if (fd >= 0) {
        if (any(w, 2) && dup2(fd, w->fd) != w->fd)
            fail(w, "dup2: %m");
        close(fd);
    } else if (c.back) {
        fail(w, "the helper gave nothing back");
    }
    if (road == R_TAKEN && answer == 0)
        atomic_store(&w->end->for_good, 1);
    pthread_mutex_unlock(&one_command);
    if (answer != 0)
        refuse(w, R_TAKEN);
    return answer == 0;
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

static int by_another_number(struct way *w, enum road road, size_t n)
{
    int fd;
    if (road == R_DUP2)
        fd = dup2(w->fd, 200 + w->side * 2 + (int)(w->may & OUT));
    else if (road == R_DUPFD)
        fd = fcntl(w->fd, any(w, 2) ? F_DUPFD : F_DUPFD_CLOEXEC, 100);
    else
        fd = dup(w->fd);
    if (fd < 0)
        fail(w, "another number: %m");
    if (road == R_RENUMBER) {
        forget_edges(w->fd);
        close(w->fd);
        w->fd = fd;
        atomic_store(&w->end->fd, fd);
    }
    struct way c = lent(w, fd, 0);
    move(&c, n);
    if (road != R_RENUMBER)
        close(fd);
    return 1;
}

int by_others(struct way *w, enum road road, size_t n)
{
    uint64_t need = atomic_load(&w->end->need);
    int went = 1;
    struct note *noted = note(w, road, n);
    if (!(w->may & OUT))
        atomic_store(&w->end->need, at(w) + n);
    switch (road) {
    case R_FORK:
        by_fork(w, n);
        break;
    case R_FORK_EXEC:
    case R_VFORK:
    case R_SPAWN:
        by_image(w, road, n);
        break;
    case R_SYSTEM:
        by_shell(w, n);
        break;
    case R_RIGHTS:
    case R_TAKEN:
        went = by_helper(w, road, n);
        break;
    case R_IMAGE:
        atomic_store(&w->end->need, need);
        done(w, noted, 1);
        become(w);
    default:
        went = by_another_number(w, road, n);
    }
    if (!(w->may & OUT))
        atomic_store(&w->end->need, need);
    done(w, noted, went ? (int64_t)n : 0);
    return went;
}
