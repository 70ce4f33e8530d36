/* Channels of datagrams, from C: two processes, by a name and by inherited descriptors; the one that reads is killed at last. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG UINT64_C(60000000000)

/* The other process: what comes goes back, where it lies. */
static void echo(bypath_channel_datagram_sender *to, bypath_channel_datagram_receiver *from) {
    for (;;) {
        bypath_channel_run there[2], room[2];
        bypath_status told = bypath_channel_datagram_peek(from, LONG, there, &error);
        if (told == BYPATH_E_END) break;
        CHECK(told == BYPATH_OK);
        size_t count = there[0].length + there[1].length;
        WORKS(bypath_channel_datagram_reserve(to, count, LONG, room, &error));
        CHECK(room[0].length + room[1].length == count);
        for (size_t at = 0; at < count; at++) {
            unsigned char octet = at < there[0].length ? there[0].octets[at] : there[1].octets[at - there[0].length];
            if (at < room[0].length) room[0].octets[at] = octet;
            else room[1].octets[at - room[0].length] = octet;
        }
        WORKS(bypath_channel_datagram_commit(to, count, &error));
        WORKS(bypath_channel_datagram_release(from, &error));
    }
    WORKS(bypath_channel_datagram_sender_close(to, &error));
    WORKS(bypath_channel_datagram_receiver_close(from, &error));
}

static void is_echoed(bypath_channel_datagram_sender *to, bypath_channel_datagram_receiver *from) {
    static char text[2040], back[2040];
    for (size_t turn = 0; turn < 300; turn++) {
        size_t count = turn == 7 ? sizeof text : turn * 97 % 1500, length = 1;
        memset(text, 'a' + (int)(turn % 26), sizeof text);
        WORKS(bypath_channel_datagram_send(to, text, count, LONG, &error));
        WORKS(bypath_channel_datagram_receive(from, back, sizeof back, LONG, &length, &error));
        CHECK(length == count && memcmp(text, back, count) == 0);
    }
}

int main(int argc, char **argv) {
    bypath_channel_listener *listener = NULL;
    bypath_channel_datagram_sender *to = NULL;
    bypath_channel_datagram_receiver *from = NULL;
    bypath_channel_sender *octets_to = NULL;
    bypath_channel_receiver *octets_from = NULL;
    bypath_channel_remote remote, wrong;
    bypath_channel_run runs[2];
    size_t length = 0;
    int status = 0, sleep = 0, descriptor = -1;
    char octets[16], *long_one;
    CHECK(argc == 2);

    /* By a name. */
    FAILS(BYPATH_E_REFUSED, bypath_channel_datagram_connect(argv[1], LONG, &to, &from, &error));
    WORKS(bypath_channel_listen(argv[1], 4096, &listener, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_channel_datagram_accept(listener, 0, &to, &from, &error));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        WORKS(bypath_channel_datagram_connect(argv[1], LONG, &to, &from, &error));
        echo(to, from);
        _exit(0);
    }
    WORKS(bypath_channel_datagram_accept(listener, LONG, &to, &from, &error));
    is_echoed(to, from);
    /* Nothing has come: it would wait, or a descriptor does. */
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_channel_datagram_receive(from, octets, sizeof octets, 0, &length, &error));
    FAILS(BYPATH_E_TIMED_OUT, bypath_channel_datagram_receive(from, octets, sizeof octets, 1000, &length, &error));
    FAILS(BYPATH_E_WOULD_BLOCK, bypath_channel_datagram_release(from, &error));
    WORKS(bypath_channel_datagram_receiver_arm(from, &sleep, &error));
    CHECK(sleep == 1);
    WORKS(bypath_channel_datagram_receiver_descriptor(from, &descriptor, &error));
    struct pollfd wait = {descriptor, POLLIN, 0};
    CHECK(poll(&wait, 1, 0) == 0);
    WORKS(bypath_channel_datagram_send(to, "five.", 5, LONG, &error));
    CHECK(poll(&wait, 1, 60000) == 1);
    /* Too small a buffer: it stays. */
    FAILS(BYPATH_E_TOO_LONG, bypath_channel_datagram_receive(from, octets, 4, LONG, &length, &error));
    CHECK(length == 5);
    WORKS(bypath_channel_datagram_peek(from, 0, runs, &error));
    CHECK(runs[0].length + runs[1].length == 5 && runs[0].octets[0] == 'f');
    WORKS(bypath_channel_datagram_release(from, &error));
    /* Too long a datagram. */
    WORKS(bypath_channel_datagram_longest(to, &length, &error));
    CHECK(length == 2040 && (long_one = calloc(1, 2041)) != NULL);
    FAILS(BYPATH_E_TOO_LONG, bypath_channel_datagram_send(to, long_one, 2041, LONG, &error));
    FAILS(BYPATH_E_TOO_LONG, bypath_channel_datagram_reserve(to, 2041, 0, runs, &error));
    FAILS(BYPATH_E_TOO_LONG, bypath_channel_datagram_sender_arm(to, 2041, &sleep, &error));
    /* Room that was given, and no other. */
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_commit(to, 0, &error));
    WORKS(bypath_channel_datagram_reserve(to, 100, LONG, runs, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_commit(to, 2041, &error));
    WORKS(bypath_channel_datagram_commit(to, 0, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_commit(to, 0, &error));
    WORKS(bypath_channel_datagram_receive(from, octets, sizeof octets, LONG, &length, &error));
    CHECK(length == 0);
    /* An empty one, and the end. */
    WORKS(bypath_channel_datagram_send(to, NULL, 0, LONG, &error));
    WORKS(bypath_channel_datagram_receive(from, NULL, 0, LONG, &length, &error));
    CHECK(length == 0);
    WORKS(bypath_channel_datagram_sender_close(to, &error));
    FAILS(BYPATH_E_END, bypath_channel_datagram_receive(from, octets, sizeof octets, LONG, &length, &error));
    FAILS(BYPATH_E_END, bypath_channel_datagram_peek(from, LONG, runs, &error));
    WORKS(bypath_channel_datagram_receiver_close(from, &error));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    WORKS(bypath_channel_listener_close(listener, &error));

    /* By descriptors; killed. */
    WORKS(bypath_channel_datagram_pair(4096, &to, &from, &remote, &error));
    /* What cannot be opened stays as it is. */
    FAILS(BYPATH_E_INVALID, bypath_channel_open(&remote, &octets_to, &octets_from, &error));
    wrong = remote;
    wrong.descriptors[0] = remote.descriptors[1];
    wrong.descriptors[1] = remote.descriptors[0];
    FAILS(BYPATH_E_INVALID, bypath_channel_open(&wrong, &octets_to, &octets_from, &error));
    wrong.descriptors[0] = 1 << 20;
    FAILS(BYPATH_E_INVALID, bypath_channel_open(&wrong, &octets_to, &octets_from, &error));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bypath_channel_datagram_sender *my_to = NULL;
        bypath_channel_datagram_receiver *my_from = NULL;
        WORKS(bypath_channel_datagram_sender_close(to, &error));
        WORKS(bypath_channel_datagram_receiver_close(from, &error));
        WORKS(bypath_channel_datagram_open(&remote, &my_to, &my_from, &error));
        /* These are used up. */
        for (int i = 0; i < 3; i++) CHECK(close(remote.descriptors[i]) == -1);
        echo(my_to, my_from);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) CHECK(close(remote.descriptors[i]) == 0);
    WORKS(bypath_channel_datagram_set_spin(to, from, 0, &error));
    is_echoed(to, from);
    WORKS(bypath_channel_datagram_sender_descriptor(to, &descriptor, &error));
    CHECK(descriptor >= 0 && kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    FAILS(BYPATH_E_END, bypath_channel_datagram_receive(from, octets, sizeof octets, LONG, &length, &error));
    bypath_status told = BYPATH_OK;
    for (int i = 0; told == BYPATH_OK && i < 10000; i++)
        told = bypath_channel_datagram_send(to, octets, sizeof octets, LONG, &error);
    CHECK(told == BYPATH_E_GONE);
    WORKS(bypath_channel_datagram_sender_arm(to, 0, &sleep, &error));
    CHECK(sleep == 0);
    WORKS(bypath_channel_datagram_sender_close(to, &error));
    WORKS(bypath_channel_datagram_receiver_close(from, &error));

    /* A full ring loses nothing. */
    WORKS(bypath_channel_datagram_pair(4096, &to, &from, &remote, &error));
    bypath_channel_datagram_sender *other_to = NULL;
    bypath_channel_datagram_receiver *other_from = NULL;
    WORKS(bypath_channel_datagram_open(&remote, &other_to, &other_from, &error));
    unsigned sent = 0, got = 0, number = 0;
    while (bypath_channel_datagram_send(to, &sent, sizeof sent, 0, &error) == BYPATH_OK) sent++;
    CHECK(error.status == BYPATH_E_WOULD_BLOCK && sent == 256);
    WORKS(bypath_channel_datagram_sender_arm(to, sizeof sent, &sleep, &error));
    CHECK(sleep == 1);
    for (; got < sent; got++) {
        WORKS(bypath_channel_datagram_receive(other_from, &number, sizeof number, 0, &length, &error));
        CHECK(length == sizeof number && number == got);
    }
    WORKS(bypath_channel_datagram_sender_descriptor(to, &descriptor, &error));
    wait.fd = descriptor;
    CHECK(poll(&wait, 1, 60000) == 1);

    /* What cannot be. */
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_peek(from, LONG, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_receive(from, NULL, 1, LONG, &length, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_send(NULL, octets, 1, LONG, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_send(to, NULL, 1, LONG, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_pair(5000, &to, &from, &remote, &error));
    FAILS(BYPATH_E_INVALID, bypath_channel_datagram_set_spin(NULL, NULL, 0, &error));
    WORKS(bypath_channel_datagram_sender_close(to, &error));
    WORKS(bypath_channel_datagram_receiver_close(from, &error));
    WORKS(bypath_channel_datagram_sender_close(other_to, &error));
    WORKS(bypath_channel_datagram_receiver_close(other_from, &error));
    WORKS(bypath_channel_datagram_sender_close(NULL, &error));
    free(long_one);
    puts("all as it should be");
    return 0;
}
