/* Round trips of raw frames.
 *
 *     ping right echo          sends every frame back to where it came from, until nothing comes for five seconds
 *     ping left MAC [COUNT]    sends COUNT frames, one after the other, and says how long their answers took
 */
#define _POSIX_C_SOURCE 200809L
#include <bypath.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 16
static unsigned char room[BATCH][1500];

static unsigned long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

/* Receives what is there, many frames with one call, and sends each back. */
static bypath_status echo(bypath_l2_socket *socket, bypath_error *error) {
    bypath_l2_slot slots[BATCH];
    bypath_status status;
    struct pollfd wait = {.events = POLLIN};
    unsigned long long answered = 0;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < BATCH; i++) {
        slots[i].data = room[i];
        slots[i].capacity = sizeof room[i];
    }
    status = bypath_l2_set_wait(socket, BYPATH_WAIT_NEVER, error);
    if (status == BYPATH_OK) status = bypath_l2_descriptor(socket, &wait.fd, error);
    if (status != BYPATH_OK) return status;
    while (poll(&wait, 1, 5000) > 0) {
        size_t received = 0;
        status = bypath_l2_receive_batch(socket, slots, BATCH, &received, error);
        if (status == BYPATH_E_WOULD_BLOCK || status == BYPATH_E_INTERRUPTED) continue;
        if (status != BYPATH_OK) return status;
        for (size_t i = 0; i < received; i++) {
            status = bypath_l2_send(socket, slots[i].frame.source, slots[i].data, slots[i].frame.len, error);
            if (status != BYPATH_OK) return status;
            answered++;
        }
        /* The last one is marked. */
        if (received > 0 && room[received - 1][4] == 1) break;
    }
    printf("%llu frames answered\n", answered);
    return BYPATH_OK;
}

static bypath_status ping(bypath_l2_socket *socket, bypath_mac to, unsigned count, bypath_error *error) {
    unsigned char payload[46] = {0}, answer[1500];
    unsigned long long least = ~0ull, most = 0, sum = 0;
    for (unsigned n = 0; n < count; n++) {
        bypath_l2_frame frame;
        bypath_status status;
        unsigned long long begin = now_ns(), took;
        for (int i = 0; i < 4; i++) payload[i] = (unsigned char)(n >> (8 * i));
        payload[4] = n + 1 == count;
        status = bypath_l2_send(socket, to, payload, sizeof payload, error);
        if (status == BYPATH_OK) status = bypath_l2_receive(socket, answer, sizeof answer, &frame, error);
        if (status != BYPATH_OK) return status;
        took = now_ns() - begin;
        if (frame.len != sizeof payload || memcmp(answer, payload, sizeof payload) != 0) {
            fprintf(stderr, "ping: the answer to frame %u is another one\n", n);
            exit(1);
        }
        sum += took;
        if (took < least) least = took;
        if (took > most) most = took;
    }
    printf("%u round trips: least %llu ns, mean %llu ns, most %llu ns\n", count, least, sum / count, most);
    return BYPATH_OK;
}

int main(int argc, char **argv) {
    bypath_l2_options options;
    bypath_l2_socket *socket;
    bypath_mac to;
    bypath_error error;
    bypath_status status;
    int echoes = argc > 2 && strcmp(argv[2], "echo") == 0;
    int count = argc > 3 ? atoi(argv[3]) : 1000;

    if (argc < 3 || count < 1) {
        fprintf(stderr, "usage: ping INTERFACE echo | ping INTERFACE MAC [COUNT]\n");
        return 2;
    }
    bypath_l2_options_init(&options, NULL);
    options.ethertype = BYPATH_ETHERTYPE_HYBRID;
    options.timeout_ns = 5000000000;
    if (echoes) options.receive_mode = options.send_mode = BYPATH_MODE_MMSG;
    status = echoes ? BYPATH_OK : bypath_mac_parse(argv[2], &to, &error);
    if (status == BYPATH_OK) status = bypath_l2_open(argv[1], &options, &socket, &error);
    if (status == BYPATH_OK) {
        if (echoes) {
            puts("ready");
            fflush(stdout);
        }
        status = echoes ? echo(socket, &error) : ping(socket, to, (unsigned)count, &error);
        bypath_l2_close(socket, NULL);
    }
    if (status != BYPATH_OK) fprintf(stderr, "ping: %s\n", error.message);
    return status == BYPATH_OK ? 0 : 1;
}
