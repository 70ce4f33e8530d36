/* A channel between two programs: `channel listen NAME` sends back what comes, `channel call NAME TEXT` prints what comes back. */
#include <bypath.h>
#include <stdio.h>
#include <string.h>

static bypath_error error;

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, error.message);
    return 1;
}

int main(int argc, char **argv) {
    bypath_channel_sender *to = NULL;
    bypath_channel_receiver *from = NULL;
    char room[4096];
    size_t length = 0, written = 0;
    if (argc == 3 && strcmp(argv[1], "listen") == 0) {
        bypath_channel_listener *listener = NULL;
        if (bypath_channel_listen(argv[2], BYPATH_CHANNEL_RING, &listener, &error) != BYPATH_OK) return failed(argv[2]);
        puts("listening");
        fflush(stdout);
        if (bypath_channel_accept(listener, BYPATH_FOREVER, &to, &from, &error) != BYPATH_OK) return failed(argv[2]);
        for (;;) {
            if (bypath_channel_read(from, room, sizeof room, BYPATH_FOREVER, &length, &error) != BYPATH_OK) return failed("read");
            if (length == 0) break;
            for (size_t at = 0; at < length; at += written)
                if (bypath_channel_write(to, room + at, length - at, BYPATH_FOREVER, &written, &error) != BYPATH_OK)
                    return failed("write");
        }
        bypath_channel_listener_close(listener, NULL);
    } else if (argc == 4 && strcmp(argv[1], "call") == 0) {
        if (bypath_channel_connect(argv[2], BYPATH_FOREVER, &to, &from, &error) != BYPATH_OK) return failed(argv[2]);
        for (size_t at = 0; at < strlen(argv[3]); at += written)
            if (bypath_channel_write(to, argv[3] + at, strlen(argv[3]) - at, BYPATH_FOREVER, &written, &error) != BYPATH_OK)
                return failed("write");
        bypath_channel_sender_close(to, NULL);
        to = NULL;
        while (bypath_channel_read(from, room, sizeof room, BYPATH_FOREVER, &length, &error) == BYPATH_OK && length > 0)
            fwrite(room, 1, length, stdout);
        puts("");
    } else {
        fprintf(stderr, "usage: channel listen NAME | channel call NAME TEXT\n");
        return 2;
    }
    bypath_channel_sender_close(to, NULL);
    bypath_channel_receiver_close(from, NULL);
    return 0;
}
