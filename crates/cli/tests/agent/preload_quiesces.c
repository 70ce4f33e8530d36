// What pthread_atfork(3) registers waits for threads that open connections, have them come up, and close them, as libraries do that bring their threads to rest
// around a fork; or locks what malloc(3) needs, while another thread does; or the C library itself waits, in fork(),
// for the lock of a stream under which connections are opened and closed, and other calls are made that a fork excludes; or forks are refused before. Usage: quiesces threads|nothing|arena|stream|refused. With EARLY it is a
// library, whose constructor registers. Prints how many forks it came through.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "warm.h"

enum { FORKS = 12, ARENA_FORKS = 300, REFUSED_FORKS = 200, NOBODY = 54321, COPIES = 400 };

static void *connects(void *unused) {
    int ends[2];
    warm_connection(ends);
    close(ends[0]);
    close(ends[1]);
    return unused;
}

static void quiesce(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, connects, NULL) || pthread_join(thread, NULL))
        die("thread");
}

#ifdef EARLY
__attribute__((constructor)) static void early(void) {
    if (pthread_atfork(quiesce, quiesce, quiesce))
        die("pthread_atfork");
}
#else
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
static pthread_mutex_t arena = PTHREAD_MUTEX_INITIALIZER;

#define LOCKED(type, call)           \
    do {                             \
        pthread_mutex_lock(&arena);  \
        type result = call;          \
        pthread_mutex_unlock(&arena); \
        return result;               \
    } while (0)

void *malloc(size_t n) { LOCKED(void *, __libc_malloc(n)); }
void *calloc(size_t n, size_t size) { LOCKED(void *, __libc_calloc(n, size)); }
void *realloc(void *p, size_t n) { LOCKED(void *, __libc_realloc(p, n)); }
void free(void *p) { LOCKED(int, (__libc_free(p), 0)); }

static void hold(void) { pthread_mutex_lock(&arena); }
static void release(void) { pthread_mutex_unlock(&arena); }

static int over;

static void *connects_on(void *unused) {
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        connects(unused);
    return unused;
}

static FILE *lines;
// A connection, of which many descriptors are made and closed.
static int *kept;

// As a logger does that sends its lines over a connection.
static void *logs(void *unused) {
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        int copies[COPIES];
        flockfile(lines);
        connects(unused);
        for (int i = 0; i < COPIES; i++)
            copies[i] = dup(*kept);
        for (int i = 0; i < COPIES; i++)
            if (close(copies[i]))
                die("close");
        pid_t child = _Fork();
        if (child == 0)
            _exit(0);
        if (seteuid(geteuid()) || unshare(CLONE_FS) || waitpid(child, NULL, 0) != child)
            die("calls");
        funlockfile(lines);
    }
    return unused;
}

static void *flushes(void *unused) {
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        fflush(NULL);
        usleep(100);
    }
    return unused;
}

static void fork_once(int *ends) {
    char data[] = "between";
    pid_t child = fork();
    if (child == 0) {
        if (ends)
            all(ends[0], data, sizeof data, 1);
        // Streams that others had are locked for ever here.
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        die("fork");
    if (ends)
        all(ends[1], data, sizeof data, 0);
    if (strcmp(data, "between"))
        die("octets");
}

// More often than a family has places for processes.
static void be_refused(void) {
    struct rlimit one = {1, RLIM_INFINITY}, many = {RLIM_INFINITY, RLIM_INFINITY};
    if (getrlimit(RLIMIT_NPROC, &many))
        die("getrlimit");
    one.rlim_max = many.rlim_max;
    // Root has as many as it likes.
    if ((geteuid() == 0 && setuid(NOBODY)) || setrlimit(RLIMIT_NPROC, &one))
        die("setrlimit");
    for (int i = 0; i < REFUSED_FORKS; i++)
        if (fork() != -1 || errno != EAGAIN)
            die("a fork that is not refused");
    many.rlim_cur = many.rlim_max;
    if (setrlimit(RLIMIT_NPROC, &many))
        die("setrlimit");
}

int main(int count, char **words) {
    int ends[2], n = 0;
    alarm(60);
    if (count < 2)
        return 2;
    if (!strcmp(words[1], "threads") && pthread_atfork(quiesce, quiesce, quiesce))
        die("pthread_atfork");
    if (!strcmp(words[1], "arena")) {
        pthread_t thread;
        if (pthread_atfork(hold, release, release) || pthread_create(&thread, NULL, connects_on, NULL))
            die("pthread_atfork");
        for (; n < ARENA_FORKS; n++)
            fork_once(NULL);
        __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
    } else {
        fork_once(NULL);
        warm_connection(ends);
        if (!strcmp(words[1], "refused"))
            be_refused();
        int is_logged = !strcmp(words[1], "stream");
        pthread_t threads[2];
        kept = ends;
        lines = fopen("/dev/null", "w");
        if (is_logged && (pthread_create(&threads[0], NULL, logs, NULL) || pthread_create(&threads[1], NULL, flushes, NULL)))
            die("threads");
        for (; n < FORKS; n++) {
            int copies[2] = {dup(ends[0]), dup(ends[1])};
            fork_once(copies);
            close(copies[0]);
            close(copies[1]);
        }
        __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < 2 && is_logged; i++)
            pthread_join(threads[i], NULL);
    }
    printf("through %d\n", n);
    return 0;
}
#endif
