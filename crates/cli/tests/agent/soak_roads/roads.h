/* Two ends of one TCP connection, each moving the bytes of both directions on every road there is, at random. What an
 * end has done stands in a file that all of its processes and images map: where its streams are, what was done lately,
 * how often each road was taken. */
#ifndef SOAK_ROADS_H
#define SOAK_ROADS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

/* Roads by which bytes leave, come in, by which others move them, by which one waits; and what changes the rest. */
#define OUTWARD(X)                                                                                                     \
    X(SEND, "send", 6)                                                                                                 \
    X(WRITE, "write", 6)                                                                                               \
    X(SENDTO, "sendto", 2)                                                                                             \
    X(WRITEV, "writev", 4)                                                                                             \
    X(PWRITEV2, "pwritev2", 2)                                                                                         \
    X(SENDMSG, "sendmsg", 4)                                                                                           \
    X(SENDMMSG, "sendmmsg", 4)                                                                                         \
    X(OUT_NUMBER, "syscall(write, sendto)", 3)                                                                         \
    X(SNDTIMEO, "SO_SNDTIMEO", 2)                                                                                      \
    X(SENDFILE, "sendfile", 4)                                                                                         \
    X(OUT_SPLICE, "splice out", 2)                                                                                     \
    X(VMSPLICE, "vmsplice and splice out", 2)                                                                          \
    X(OUT_TEE, "tee and splice out", 2)                                                                                \
    X(OOB, "MSG_OOB", 2)                                                                                               \
    X(ZEROCOPY, "MSG_ZEROCOPY", 1)                                                                                     \
    X(OUT_STDIO, "fwrite", 3)                                                                                          \
    X(OUT_AIO, "aio_write", 15)                                                                                         \
    X(OUT_URING, "io_uring send", 8)                                                                                   \
    X(OUT_RAW, "inline write", 2)
#define INWARD(X)                                                                                                      \
    X(RECV, "recv", 6)                                                                                                 \
    X(READ, "read", 6)                                                                                                 \
    X(READV, "readv", 4)                                                                                               \
    X(PREADV2, "preadv2", 2)                                                                                           \
    X(RECVMSG, "recvmsg", 4)                                                                                           \
    X(RECVMMSG, "recvmmsg", 4)                                                                                         \
    X(PEEK, "MSG_PEEK", 4)                                                                                             \
    X(WAITALL, "MSG_WAITALL", 4)                                                                                       \
    X(PEEKALL, "MSG_PEEK|MSG_WAITALL", 2)                                                                              \
    X(IN_NUMBER, "syscall(read, recvfrom)", 3)                                                                         \
    X(RCVLOWAT, "SO_RCVLOWAT", 2)                                                                                      \
    X(RCVTIMEO, "SO_RCVTIMEO", 2)                                                                                      \
    X(IN_SPLICE, "splice in", 2)                                                                                       \
    X(IN_TEE, "splice in and tee", 2)                                                                                  \
    X(IN_STDIO, "fread", 2)                                                                                            \
    X(IN_AIO, "aio_read", 15)                                                                                           \
    X(IN_URING, "io_uring recv", 8)                                                                                    \
    X(IN_RAW, "inline read", 2)
#define BY_OTHERS(X)                                                                                                   \
    X(DUP, "dup", 3)                                                                                                   \
    X(DUP2, "dup2", 3)                                                                                                 \
    X(DUPFD, "F_DUPFD", 3)                                                                                             \
    X(RENUMBER, "dup and close of the old", 3)                                                                         \
    X(FORK, "fork", 4)                                                                                                 \
    X(FORK_EXEC, "fork and exec", 2)                                                                                   \
    X(VFORK, "vfork and exec", 1)                                                                                      \
    X(SPAWN, "posix_spawn", 2)                                                                                         \
    X(SYSTEM, "system", 1)                                                                                             \
    X(RIGHTS, "SCM_RIGHTS", 2)                                                                                         \
    X(TAKEN, "pidfd_getfd", 2)                                                                                         \
    X(IMAGE, "exec", 3)
#define WAITS(X)                                                                                                       \
    X(POLL, "poll", 3)                                                                                                 \
    X(PPOLL, "ppoll", 1)                                                                                               \
    X(SELECT, "select", 2)                                                                                             \
    X(PSELECT, "pselect", 1)                                                                                           \
    X(LEVEL, "epoll, level", 2)                                                                                        \
    X(EDGE, "epoll, edge", 2)                                                                                          \
    X(ONESHOT, "epoll, oneshot", 2)                                                                                    \
    X(KEPT_EDGE, "epoll, an edge of long ago", 4)
#define CHANGES(X)                                                                                                     \
    X(ASYNC, "O_ASYNC", 1)                                                                                             \
    X(NONBLOCK, "O_NONBLOCK", 1)                                                                                       \
    X(SIGIO_CAME, "SIGIO", 1)                                                                                          \
    X(RECEIVED_ALL, "waiting for the reader", 1)

enum road {
#define NAME(id, text, weight) R_##id,
    OUTWARD(NAME) FIRST_INWARD,
    BEFORE_INWARD = FIRST_INWARD - 1,
    INWARD(NAME) FIRST_OTHER,
    BEFORE_OTHER = FIRST_OTHER - 1,
    BY_OTHERS(NAME) FIRST_WAIT,
    BEFORE_WAIT = FIRST_WAIT - 1,
    WAITS(NAME) FIRST_CHANGE,
    BEFORE_CHANGE = FIRST_CHANGE - 1,
    CHANGES(NAME) ROADS
#undef NAME
};

enum { BUFFER = 70000, WINDOW = 48 << 10, NOTES = 48, PAIRS = 8, PATIENCE_MS = 20000, GENTLE = 25, WATCHED_MS = 10000 };

/* What was done: for who has to find out why it was wrong. */
struct note {
    uint16_t road, open;
    int32_t pid, fd;
    uint32_t n;
    uint64_t at;
    int64_t result;
};

/* One end of a pair's connections. Its streams are numbered through all of them. */
struct end {
    _Atomic int pid, fd;
    _Atomic uint64_t sent, received;
    _Atomic uint64_t need;           /* what must have been sent before its reader goes on */
    _Atomic uint64_t ended_at;       /* what was sent in all when the last of these was */
    _Atomic uint32_t ended, left_behind; /* connections whose sending side is shut, that are closed */
    _Atomic uint32_t for_good;           /* no process of it may have a ring, but the kernel's connection only */
    uint32_t conn, conns, left, total, ops, eof, shut, threads, free, helps, plain, async, side;
    int32_t listener, helper;
    uint64_t random[2];
    char preload[512];
    _Atomic uint32_t noted[2];
    struct note notes[2][NOTES];
};

enum { HELPER_KIN, HELPER_STRANGER, HELPER_PLAIN };

struct pair {
    _Atomic uint32_t port;
    struct end ends[2];
};

struct shared {
    uint64_t seed;
    _Atomic uint32_t taken[ROADS], refused[ROADS];
    _Atomic uint32_t failed;
    char failure[300];
    struct pair pairs[PAIRS];
};

/* What whoever moves bytes of one direction knows. */
enum {
    OUT = 1,
    FREE = 2,    /* may wait for the other end: that does both directions at once */
    LENT = 4,    /* the bytes of somebody who waits */
    CLEAN = 8,   /* a process that began as this program, for this alone */
    ALONE = 16,  /* both directions are moved by this one thread */
    CHILD = 32,  /* another process than the end's own */
};
struct way {
    struct shared *all;
    struct end *end, *peer;
    int pair, side, fd;
    unsigned may;
    uint64_t seed;
    uint64_t *random;
    unsigned char *buffer;
};

extern const char *file, *own;
extern char **environ;

/* main.c */
uint64_t any(struct way *w, uint64_t below);
struct shared *map(void);
struct way way(struct shared *all, int pair, int side, int fd, unsigned may);
void fail(struct way *w, const char *what, ...) __attribute__((noreturn, format(printf, 2, 3)));
struct note *note(struct way *w, enum road road, size_t n);
void done(struct way *w, struct note *note, int64_t result);
void refuse(struct way *w, enum road road);
uint64_t at(struct way *w);
uint64_t ahead(struct way *w);
uint64_t now_ms(void);

/* moves.c: one chunk, by any road; exactly n bytes. */
ssize_t step(struct way *w, size_t n);
ssize_t step_by(struct way *w, enum road road, size_t n);
enum road first_final(struct way *w);
void move(struct way *w, size_t n);
int begins(struct way *w);
int chosen(struct way *w, int first, int end);

/* outward.c, inward.c, uring.c: n bytes of w->buffer, or into it. */
ssize_t outward(struct way *w, enum road road, size_t n);
ssize_t inward(struct way *w, enum road road, size_t n);
ssize_t by_uring(struct way *w, size_t n);
long inline_call(long number, long a, long b, long c, long d, long e, long f);
void check(struct way *w, const unsigned char *got, size_t n, const char *where);

/* waits.c */
int wait_for(struct way *w, int ms);
void forget_edges(int fd);
void saw_nothing(void);

/* others.c: true if n bytes went that way. */
int by_others(struct way *w, enum road road, size_t n);
void start_helper(struct way *w, int kind);
void serve_end(int channel);
int may_take(struct way *w, enum road road);
void become(struct way *w) __attribute__((noreturn));

#endif
