/* Ends of connections that do what they are told, line by line, and say how long it took and what came of it.
 *
 *   stopped peer          prints its port, accepts one connection
 *   stopped middle A B    connects to the ports A and B
 *
 * Each connection begins with a dialogue. Then lines are read (END counts the connections, from 0):
 *
 *   give END N            sends N bytes of the stream in messages of 200; says how many went
 *   take END N            receives until N more bytes have come, or the end; says how many came
 *   send END N MS         sends N bytes, with SO_SNDTIMEO; ends at the first error
 *   recv END N MS         receives until N bytes, with SO_RCVTIMEO; ends at the first error
 *   poll END MS           for POLLIN and POLLPRI
 *   talk END N            as much of a dialogue as N round trips
 *   shut END, close END
 *
 * The answer: bytes, errno (0 = none), milliseconds of the last call. The peer answers a `talk` while it reads no line: "echo N". */
#include "crash.h"
#include <sys/time.h>
#include <time.h>

#define MESSAGE 200
#define PIECE 10000
#define ROUNDS 40

static struct end {
    int fd;
    uint64_t out, in; /* the streams */
    uint64_t sent, got;
} ends[2];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void set_time(int fd, int which, int ms)
{
    struct timeval t = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
    if (setsockopt(fd, SOL_SOCKET, which, &t, sizeof t) < 0)
        fail("setsockopt");
}

static ssize_t one_send(struct end *e, size_t n)
{
    unsigned char bytes[PIECE];
    n = n < sizeof bytes ? n : sizeof bytes;
    for (size_t i = 0; i < n; i++)
        bytes[i] = stream_byte(e->out, e->sent + i);
    ssize_t r = send(e->fd, bytes, n, MSG_NOSIGNAL);
    if (r > 0)
        e->sent += r;
    return r;
}

static ssize_t one_recv(struct end *e, size_t n)
{
    unsigned char bytes[PIECE];
    ssize_t r = recv(e->fd, bytes, n < sizeof bytes ? n : sizeof bytes, 0);
    for (ssize_t i = 0; i < r; i++)
        if (bytes[i] != stream_byte(e->in, e->got + i)) {
            fprintf(stderr, "wrong byte at %llu\n", (unsigned long long)(e->got + i));
            exit(2);
        }
    if (r > 0)
        e->got += r;
    return r;
}

/* Until `n` bytes have gone, an error or the end; in messages of `most`. */
static void move(struct end *e, ssize_t (*step)(struct end *, size_t), size_t n, size_t most)
{
    size_t done = 0;
    int error = 0;
    double took = 0;
    while (done < n) {
        double begin = now();
        ssize_t r = step(e, n - done < most ? n - done : most);
        error = r < 0 ? errno : 0;
        took = now() - begin;
        if (r <= 0)
            break;
        done += r;
    }
    printf("%zu %d %.0f\n", done, error, took);
}

static int dialogue(struct end *e, int speaks_first, int rounds)
{
    for (int i = 0; i < rounds; i++)
        for (int turn = 0; turn < 2; turn++)
            for (size_t done = 0; done < MESSAGE;) {
                ssize_t r = (turn == !speaks_first ? one_send : one_recv)(e, MESSAGE - done);
                if (r <= 0)
                    return 0;
                done += r;
            }
    return 1;
}

static void serve(char *line)
{
    int which = 0, ms = 0;
    unsigned long n = 0;
    char word[16];
    if (sscanf(line, "%15s %d %lu %d", word, &which, &n, &ms) < 2 || which < 0 || which > 1)
        fail(line);
    struct end *e = &ends[which];
    double begin = now();
    if (strcmp(word, "give") == 0)
        return move(e, one_send, n, MESSAGE);
    if (strcmp(word, "take") == 0)
        return move(e, one_recv, n, MESSAGE);
    if (strcmp(word, "send") == 0) {
        set_time(e->fd, SO_SNDTIMEO, ms);
        move(e, one_send, n, PIECE);
        return set_time(e->fd, SO_SNDTIMEO, 0);
    }
    if (strcmp(word, "recv") == 0) {
        set_time(e->fd, SO_RCVTIMEO, ms);
        move(e, one_recv, n, PIECE);
        return set_time(e->fd, SO_RCVTIMEO, 0);
    }
    int r = 0;
    if (strcmp(word, "poll") == 0) {
        struct pollfd one = { .fd = e->fd, .events = POLLIN | POLLPRI };
        r = poll(&one, 1, (int)n);
    } else if (strcmp(word, "talk") == 0) {
        r = dialogue(e, 1, (int)n) - 1;
    } else if (strcmp(word, "echo") == 0) {
        r = dialogue(e, 0, (int)n) - 1;
    } else if (strcmp(word, "shut") == 0) {
        r = shutdown(e->fd, SHUT_WR);
    } else if (strcmp(word, "close") == 0) {
        r = close(e->fd);
    } else {
        fail(word);
    }
    printf("%d %d %.0f\n", r, r < 0 ? errno : 0, now() - begin);
}

int main(int argc, char **argv)
{
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2) {
        ends[0] = (struct end){ .fd = accept_one(listen_on_loopback()), .out = 1, .in = 2 };
    } else {
        for (int i = 0; i < 2; i++)
            ends[i] = (struct end){ .fd = connect_to(atoi(argv[2 + i])), .out = 2, .in = 1 };
    }
    for (int i = 0; i < argc - 1 && i < 2; i++)
        if (!dialogue(&ends[i], argc > 2, ROUNDS))
            fail("the dialogue");
    printf("ready\n");
    char line[100];
    while (fgets(line, sizeof line, stdin))
        serve(line);
    return 0;
}
