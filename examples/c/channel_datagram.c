/* Datagrams between two programs: `channel_datagram listen NAME` sends back what comes, `channel_datagram call NAME TEXT...` sends the
   texts, each as one datagram, and prints what comes back. */
#include <bypath.h>
#include <stdio.h>
#include <string.h>

static bypath_error error;

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, error.message);
    return 1;
}

int main(int argc, char **argv) {
    bypath_channel_datagram_sender *to = NULL;
    bypath_channel_datagram_receiver *from = NULL;
    static char room[65527];
    size_t length = 0;
    if (argc == 3 && strcmp(argv[1], "listen") == 0) {
        bypath_channel_listener *listener = NULL;
        if (bypath_channel_listen(argv[2], BYPATH_CHANNEL_RING, &listener, &error) != BYPATH_OK) return failed(argv[2]);
        puts("listening");
        fflush(stdout);
        if (bypath_channel_datagram_accept(listener, BYPATH_FOREVER, &to, &from, &error) != BYPATH_OK) return failed(argv[2]);
        for (;;) {
            bypath_status told = bypath_channel_datagram_receive(from, room, sizeof room, BYPATH_FOREVER, &length, &error);
            if (told == BYPATH_E_END) break;
            if (told != BYPATH_OK) return failed("receive");
            if (bypath_channel_datagram_send(to, room, length, BYPATH_FOREVER, &error) != BYPATH_OK) return failed("send");
        }
        bypath_channel_listener_close(listener, NULL);
    } else if (argc >= 4 && strcmp(argv[1], "call") == 0) {
        if (bypath_channel_datagram_connect(argv[2], BYPATH_FOREVER, &to, &from, &error) != BYPATH_OK) return failed(argv[2]);
        for (int i = 3; i < argc; i++) {
            if (bypath_channel_datagram_send(to, argv[i], strlen(argv[i]), BYPATH_FOREVER, &error) != BYPATH_OK)
                return failed("send");
            if (bypath_channel_datagram_receive(from, room, sizeof room, BYPATH_FOREVER, &length, &error) != BYPATH_OK)
                return failed("receive");
            printf("%zu octets: %.*s\n", length, (int)length, room);
        }
    } else {
        fprintf(stderr, "usage: channel_datagram listen NAME | channel_datagram call NAME TEXT...\n");
        return 2;
    }
    bypath_channel_datagram_sender_close(to, NULL);
    bypath_channel_datagram_receiver_close(from, NULL);
    return 0;
}
