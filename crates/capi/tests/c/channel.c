/* Channels, from C: two processes, by a name and by inherited descriptors; the one that reads is killed at last. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG UINT64_C(60000000000)

static void write_all(bypath_channel_sender *to, const char *octets, size_t length) {
    while (length > 0) {
        size_t written = 0;
        WORKS(bypath_channel_write(to, octets, length, LONG, &written, &error));
        CHECK(written > 0);
        octets += written;
        length -= written;
    }
}

/* The other process: what comes goes back, where it lies. */
static void echo(bypath_channel_sender *to, bypath_channel_receiver *from) {
    for (;;) {
        bypath_channel_run there[2], room[2];
        WORKS(bypath_channel_peek(from, 1, LONG, there, &error));
        if (there[0].length == 0) break;
        WORKS(bypath_channel_reserve(to, 1, LONG, room, &error));
        size_t count = there[0].length < room[0].length ? there[0].length : room[0].length;
        memcpy(room[0].octets, there[0].octets, count);
        WORKS(bypath_channel_commit(to, count, &error));
        WORKS(bypath_channel_release(from, count, &error));
    }
    WORKS(bypath_channel_sender_close(to, &error));
    WORKS(bypath_channel_receiver_close(from, &error));
}

static void is_echoed(bypath_channel_sender *to, bypath_channel_receiver *from) {
    static char text[1500], back[1500];
    for (int turn = 0; turn < 200; turn++) {
        size_t at = 0, length = 0;
        memset(text, 'a' + turn % 26, sizeof text);
        write_all(to, text, sizeof text);
        while (at < sizeof back) {
            WORKS(bypath_channel_read(from, back + at, sizeof back - at, LONG, &length, &error));
            CHECK(length > 0);
            at += length;
        }
        CHECK(memcmp(text, back, sizeof text) == 0);
    }
}

/* An end that takes back what it has shown: an error where that is noticed, and what was given is used up all the same. */
static void what_is_taken_back_stays(void) {
    bypath_channel_sender *to = NULL;
    bypath_channel_receiver *from = NULL;
    bypath_channel_remote remote;
    bypath_channel_run runs[2];
    char octets[3000] = {0};
    size_t length = 0;
    int sleep = 0;
    WORKS(bypath_channel_pair(4096, &to, &from, &remote, &error));
    char *memory = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, remote.descriptors[0], 0);
    CHECK(memory != MAP_FAILED);
    /* docs/shm-format.md: the tail of what comes here, the head of what goes. */
    _Atomic uint64_t *tail = (_Atomic uint64_t *)(void *)(memory + 4096 + 128);
    _Atomic uint64_t *head = (_Atomic uint64_t *)(void *)(memory + 4096 + 128 + 512 + 128);
    atomic_store(tail, 1000);
    WORKS(bypath_channel_peek(from, 1, 0, runs, &error));
    atomic_store(tail, 1);
    FAILS(BYPATH_E_FORMAT, bypath_channel_receiver_arm(from, 2, &sleep, &error));
    WORKS(bypath_channel_release(from, 1000, &error));
    FAILS(BYPATH_E_FORMAT, bypath_channel_read(from, octets, 1, 0, &length, &error));
    WORKS(bypath_channel_write(to, octets, sizeof octets, 0, &length, &error));
    atomic_store(head, 3000);
    WORKS(bypath_channel_reserve(to, 2000, 0, runs, &error));
    atomic_store(head, 0);
    FAILS(BYPATH_E_FORMAT, bypath_channel_sender_arm(to, 2000, &sleep, &error));
    WORKS(bypath_channel_commit(to, 2000, &error));
    CHECK(munmap(memory, 16384) == 0);
    for (int i = 0; i < 3; i++) CHECK(close(remote.descriptors[i]) == 0);
    WORKS(bypath_channel_sender_close(to, &error));
    WORKS(bypath_channel_receiver_close(from, &error));
}

int main(int argc, char **argv) {
    bypath_channel_listener *listener = NULL, *second = NULL;
    bypath_channel_sender *to = NULL;
    bypath_channel_receiver *from = NULL;
    bypath_channel_remote remote;
    bypath_channel_run runs[2];
    size_t length = 0;
    int status = 0, sleep = 0, descriptor = -1;
    char octets[16];
    CHECK(argc == 2);

    /* By a name. */
    FAILS(BYPATH_E_REFUSED, bypath_channel_connect(argv[1], LONG, &to, &from, &error));
    WORKS(bypath_channel_listen(argv[1], 4096, &listener, &error));
    FAILS(BYPATH_E_IN_USE, bypath_channel_listen(argv[1], 4096, &second, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_channel_accept(listener, 0, &to, &from, &error));
    WORKS(bypath_channel_listener_descriptor(listener, &descriptor, &error));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        WORKS(bypath_channel_connect(argv[1], LONG, &to, &from, &error));
        echo(to, from);
        _exit(0);
    }
    struct pollfd wait = {descriptor, POLLIN, 0};
    CHECK(poll(&wait, 1, 60000) == 1);
    WORKS(bypath_channel_accept(listener, LONG, &to, &from, &error));
    is_echoed(to, from);
    /* Nothing has come: it would wait, or a descriptor does. */
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_channel_read(from, octets, sizeof octets, 0, &length, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_channel_read(from, octets, sizeof octets, 1000, &length, &error));
    WORKS(bypath_channel_receiver_arm(from, 1, &sleep, &error));
    CHECK(sleep == 1);
    WORKS(bypath_channel_receiver_descriptor(from, &descriptor, &error));
    wait.fd = descriptor;
    CHECK(poll(&wait, 1, 0) == 0);
    write_all(to, "x", 1);
    CHECK(poll(&wait, 1, 60000) == 1);
    WORKS(bypath_channel_peek(from, 1, LONG, runs, &error));
    CHECK(runs[0].length == 1 && runs[0].octets[0] == 'x' && runs[1].length == 0);
    FAILS(BYPATH_E_INVALID, bypath_channel_release(from, 2, &error));
    WORKS(bypath_channel_release(from, 1, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_release(from, 1, &error));
    /* Room that was given, and no other. */
    FAILS(BYPATH_E_INVALID, bypath_channel_commit(to, 1, &error));
    WORKS(bypath_channel_reserve(to, 4, LONG, runs, &error));
    CHECK(runs[0].length >= 4);
    FAILS(BYPATH_E_INVALID, bypath_channel_commit(to, runs[0].length + runs[1].length + 1, &error));
    memcpy(runs[0].octets, "room", 4);
    WORKS(bypath_channel_commit(to, 2, &error));
    WORKS(bypath_channel_commit(to, 2, &error));
    write_all(to, "!", 1);
    FAILS(BYPATH_E_INVALID, bypath_channel_commit(to, 1, &error));
    WORKS(bypath_channel_peek(from, 5, LONG, runs, &error));
    for (size_t i = 0; i < 5; i++)
        CHECK((i < runs[0].length ? runs[0].octets[i] : runs[1].octets[i - runs[0].length]) == "room!"[i]);
    WORKS(bypath_channel_read(from, octets, 2, LONG, &length, &error));
    CHECK(length == 2 && octets[0] == 'r' && octets[1] == 'o');
    FAILS(BYPATH_E_INVALID, bypath_channel_release(from, 1, &error));
    WORKS(bypath_channel_peek(from, 3, LONG, runs, &error));
    WORKS(bypath_channel_release(from, 3, &error));
    /* One direction ends, then the other one. */
    WORKS(bypath_channel_sender_close(to, &error));
    WORKS(bypath_channel_read(from, octets, sizeof octets, LONG, &length, &error));
    CHECK(length == 0);
    WORKS(bypath_channel_receiver_close(from, &error));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    WORKS(bypath_channel_listener_close(listener, &error));
    CHECK(access(argv[1], F_OK) != 0);

    /* By descriptors; killed. */
    WORKS(bypath_channel_pair(8192, &to, &from, &remote, &error));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bypath_channel_sender *my_to = NULL;
        bypath_channel_receiver *my_from = NULL;
        WORKS(bypath_channel_sender_close(to, &error));
        WORKS(bypath_channel_receiver_close(from, &error));
        bypath_channel_remote swapped = {{remote.descriptors[0], remote.descriptors[2], remote.descriptors[1]}};
        FAILS(BYPATH_E_INVALID, bypath_channel_open(&swapped, &my_to, &my_from, &error));
        WORKS(bypath_channel_open(&remote, &my_to, &my_from, &error));
        echo(my_to, my_from);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) CHECK(close(remote.descriptors[i]) == 0);
    WORKS(bypath_channel_set_spin(to, from, 0, &error));
    is_echoed(to, from);
    WORKS(bypath_channel_sender_descriptor(to, &descriptor, &error));
    CHECK(descriptor >= 0 && kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    WORKS(bypath_channel_read(from, octets, sizeof octets, LONG, &length, &error));
    CHECK(length == 0);
    bypath_status told = BYPATH_OK;
    for (int i = 0; told == BYPATH_OK && i < 10000; i++)
        told = bypath_channel_write(to, octets, sizeof octets, LONG, &length, &error);
    CHECK(told == BYPATH_E_GONE);
    WORKS(bypath_channel_sender_arm(to, 1, &sleep, &error));
    CHECK(sleep == 0);

    what_is_taken_back_stays();

    /* What cannot be. */
    FAILS(BYPATH_E_INVALID, bypath_channel_peek(from, 0, LONG, runs, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_peek(from, 1, LONG, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_read(from, NULL, 1, LONG, &length, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_write(NULL, octets, 1, LONG, &length, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_listen(argv[1], 5000, &listener, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_listen("", 4096, &listener, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_pair(1, &to, &from, &remote, &error));
    FAILS(BYPATH_E_NOT_ALLOWED, bypath_channel_listen("/tmp/x", 4096, &listener, &error));
    remote.descriptors[0] = -1;
    FAILS(BYPATH_E_INVALID, bypath_channel_open(&remote, &to, &from, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_set_spin(NULL, NULL, 0, &error));
    WORKS(bypath_channel_sender_close(to, &error));
    WORKS(bypath_channel_receiver_close(from, &error));
    WORKS(bypath_channel_sender_close(NULL, &error));
    puts("all as it should be");
    return 0;
}
