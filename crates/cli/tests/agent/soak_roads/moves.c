/* The bytes of one direction, moved a chunk at a time by whatever road may be taken. */
#include "roads.h"

static const int weights[ROADS] = {
#define WEIGHT(id, text, weight) [R_##id] = weight,
    OUTWARD(WEIGHT) INWARD(WEIGHT) BY_OTHERS(WEIGHT) WAITS(WEIGHT) CHANGES(WEIGHT)
#undef WEIGHT
};

/* The stream of a direction: 8 bytes from one mixing of their position. */
static void stream(unsigned char *to, size_t n, uint64_t seed, uint64_t p)
{
    for (size_t i = 0; i < n;) {
        uint64_t x = (p + i) / 8 * 0x9e3779b97f4a7c15ull ^ seed;
        x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
        x ^= x >> 32;
        for (size_t k = (p + i) % 8; k < 8 && i < n; k++, i++)
            to[i] = (unsigned char)(x >> (8 * k));
    }
}

/* Where in the stream these bytes belong, if it is not far: -1 = nowhere. */
static long long belongs(struct way *w, const unsigned char *got, size_t n, uint64_t near)
{
    unsigned char want[12];
    if (n < sizeof want)
        return -1;
    uint64_t first = near > 400000 ? near - 400000 : 0;
    for (uint64_t p = first; p < near + 400000; p++) {
        stream(want, sizeof want, w->seed, p);
        if (memcmp(want, got, sizeof want) == 0)
            return (long long)p;
    }
    return -1;
}

void check(struct way *w, const unsigned char *got, size_t n, const char *where)
{
    static _Thread_local unsigned char want[BUFFER];
    uint64_t p = at(w);
    stream(want, n, w->seed, p);
    if (memcmp(want, got, n) == 0)
        return;
    size_t i = 0;
    while (want[i] == got[i])
        i++;
    fail(w, "%s: wrong byte at %llu (%zu of %zu): what came belongs to %lld", where, (unsigned long long)(p + i), i, n,
         belongs(w, got + i, n - i, p + i));
}

/* Whether no ring may serve this connection after such a road. */
static int is_final(enum road road)
{
    switch (road) {
    case R_OUT_STDIO:
    case R_IN_STDIO:
    case R_ZEROCOPY:
    case R_OOB:
    case R_OUT_AIO:
    case R_IN_AIO:
    case R_OUT_URING:
    case R_IN_URING:
    case R_RIGHTS:
    case R_TAKEN:
    case R_SPAWN:
    case R_SYSTEM:
    case R_VFORK:
    case R_FORK_EXEC:
    case R_ASYNC:
        return 1;
    default:
        return 0;
    }
}

/* How many turns of a connection are for what a ring serves, so that there is one when the rest comes: some in three of four;
 * many in one of them, for who asks from outside. */
static unsigned simple_turns(struct end *e)
{
    switch (e->conn % 4) {
    case 2:
        return e->total - e->ops / 2;
    case 3:
        return 0;
    default:
        return GENTLE;
    }
}

int begins(struct way *w)
{
    return w->end->total - w->end->left < simple_turns(w->end) && !(w->may & LENT);
}

/* The first road after that: often one that ends the ring for good. ROADS: any. */
enum road first_final(struct way *w)
{
    static const enum road list[] = {R_RIGHTS, R_RIGHTS, R_TAKEN, R_TAKEN, R_SPAWN, R_FORK_EXEC, R_VFORK,
                                     R_SYSTEM, R_OOB,    R_ZEROCOPY, R_OUT_STDIO};
    struct end *e = w->end;
    if ((e->conn % 4 != 1 && e->conn % 4 != 2) || e->total - e->left != simple_turns(e))
        return ROADS;
    enum road road = list[any(w, sizeof list / sizeof *list)];
    return may_take(w, road) ? road : ROADS;
}

static int is_simple(enum road road)
{
    return road <= R_OUT_NUMBER || (road >= FIRST_INWARD && road <= R_IN_NUMBER) || road >= FIRST_WAIT;
}

int may_take(struct way *w, enum road road)
{
    unsigned may = w->may;
    if (begins(w) && !is_simple(road))
        return 0;
    /* One of four connections is left to the reversible roads for most of its life. */
    if (is_final(road) && !(may & LENT) && w->end->conn % 4 == 0 && w->end->left > w->end->ops / 4)
        return 0;
    switch (road) {
    case R_OUT_AIO:
    case R_IN_AIO:
        return (may & CLEAN) != 0;
    case R_OUT_URING:
    case R_IN_URING:
        return (may & CHILD) != 0;
    case R_OUT_RAW:
    case R_IN_RAW:
        /* A hook has to see what a ring has to know of. */
        return atomic_load(&w->end->for_good) != 0;
    case R_OUT_STDIO:
        return !(fcntl(w->fd, F_GETFL) & O_NONBLOCK);
    case R_RENUMBER:
    case R_IMAGE:
    case R_NONBLOCK:
        return (may & ALONE) != 0;
    case R_OOB:
        return w->end->conn % 2 == 1;
    case R_IN_SPLICE:
    case R_IN_TEE:
        /* Linux may wait for ever in a splice at the mark of urgent data. */
        return w->end->conn % 2 == 0;
    case R_TAKEN:
        return w->end->plain || w->end->helps != HELPER_PLAIN;
    case R_ASYNC:
        return (may & ALONE) || !(may & OUT);
    default:
        return 1;
    }
}

/* One of the roads from `first` on that may be taken. */
int chosen(struct way *w, int first, int end)
{
    for (;;) {
        uint64_t all = 0, r;
        for (int i = first; i < end; i++)
            all += (uint64_t)weights[i];
        r = any(w, all);
        for (int i = first; i < end; i++) {
            if (r < (uint64_t)weights[i]) {
                if (may_take(w, (enum road)i))
                    return i;
                break;
            }
            r -= (uint64_t)weights[i];
        }
    }
}

/* Up to n bytes by one road. 0: it could not go on and has waited until it can; -1: the other end has ended. */
ssize_t step(struct way *w, size_t n)
{
    int out = (w->may & OUT) != 0;
    return step_by(w, (enum road)(out ? chosen(w, 0, FIRST_INWARD) : chosen(w, FIRST_INWARD, FIRST_OTHER)), n);
}

ssize_t step_by(struct way *w, enum road road, size_t n)
{
    int out = (w->may & OUT) != 0;
    n = n > BUFFER ? BUFFER : n;
    if (out)
        stream(w->buffer, n, w->seed, at(w));
    struct note *noted = note(w, road, n);
    ssize_t k = out ? outward(w, road, n) : inward(w, road, n);
    int error = errno;
    done(w, noted, k < 0 ? -error : k);
    if (k > 0) {
        if (!out)
            check(w, w->buffer, (size_t)k, "a read");
        atomic_fetch_add(out ? &w->end->sent : &w->end->received, (uint64_t)k);
        return k;
    }
    if (k == 0 && !out)
        return -1;
    if (k < 0 && error == EINTR)
        return 0;
    if (k == 0 || error != EAGAIN) {
        errno = error;
        fail(w, "%zd: %m", k);
    }
    if (!out)
        saw_nothing();
    if (!wait_for(w, PATIENCE_MS))
        fail(w, "it cannot go on; the other end has %s", out ? "stopped reading" : "sent more");
    return 0;
}

void move(struct way *w, size_t n)
{
    while (n > 0) {
        ssize_t k = step(w, n);
        if (k < 0)
            return;
        n -= (size_t)k;
    }
}
