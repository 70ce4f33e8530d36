/* The scripted program of the differential tests: reads one command a line, executes it as the libc call of
 * that name, answers one line. It is an ordinary C program: whatever stands below libc is under test.
 *
 * Answer: RETURN ERRNO [details], ERRNO is `-` on success. Its own pipes live on descriptors 200 and 201 and
 * are used by raw system calls only, so that 3, 4, ... are free and the calls under test stay undisturbed. */
#ifndef AGENT_H
#define AGENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CONTROL_IN 200
#define CONTROL_OUT 201
/* A copy of standard error, which scripts may close. */
#define ERRORS 202
#define MAX_WORDS 64
#define MAX_LINE 4096
#define SLOTS 10                /* concurrent commands: the main thread and its helpers */
#define AREA_SIZE (12u << 20)   /* largest buffer of one command */
#define GUARD 64                /* bytes behind a receive buffer that must stay untouched */
#define DEADLINE_MS 5000        /* nothing that is expected to happen takes longer */

/* One command line, split at blanks; `slot` picks the buffers of the executing thread. */
struct args {
    int n;
    char *word[MAX_WORDS];
    const char *rest; /* the unsplit line behind the first word */
    int slot;
};

struct out {
    char text[MAX_LINE];
    size_t len;
};

typedef void command_fn(struct args *a, struct out *o);
struct command {
    const char *name;
    command_fn *run;
};

extern const struct command socket_commands[], data_commands[], ready_commands[], process_commands[],
    bad_commands[], stdio_commands[], told_commands[], datagram_commands[];
extern const char *agent_path;
/* Set: internet addresses stand for abstract AF_UNIX names that begin with this. */
extern const char *unix_names;

/* agent.c */
void say(struct out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer(struct out *o, long ret, int error);
void execute(const char *line, int slot, struct out *o);
void serve(void) __attribute__((noreturn));
void serve_fifo(const char *path) __attribute__((noreturn));
uint64_t now_ms(void);
void nap_us(unsigned us);
long number(const char *word);
const char *arg(struct args *a, int i);
long num(struct args *a, int i);
long num_or(struct args *a, int i, long otherwise);

/* A system call as a program makes it that does not use the C library: nothing is in between. */
static inline long plain(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    long result = x0;
#endif
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* sockets.c */
socklen_t parse_address(const char *word, struct sockaddr_storage *to);
int local_port(const struct sockaddr_storage *of, socklen_t len);
void say_address(struct out *o, const struct sockaddr_storage *from, socklen_t len);
long message_flags(const char *word);

/* data.c */
unsigned char *area(int slot);
void fill(unsigned char *to, size_t n, unsigned seed, size_t position);
void *bad_pointer(const char *kind, size_t len);

/* Runs a call with errno set to a value that it never produces and reports result and errno; a successful
 * call that changes errno is reported too. */
#define UNTOUCHED EXDEV
#define CALL(o, expression)                                                                                  \
    do {                                                                                                     \
        errno = UNTOUCHED;                                                                                   \
        long ret_ = (long)(expression);                                                                      \
        answer(o, ret_, errno);                                                                              \
    } while (0)

#endif
