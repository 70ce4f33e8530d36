/* Two programs say hello to each other in raw Ethernet frames, on VLAN 10 with the highest priority.
 *
 *     cc hello.c $(pkg-config --cflags --libs bypath) -o hello
 *
 *     hello right              waits for a frame and answers it
 *     hello left "hello there" sends one and waits for the answer
 */
#include <bypath.h>
#include <stdio.h>
#include <string.h>

static int failed(const bypath_error *error) {
    fprintf(stderr, "hello: %s\n", error->message);
    return 1;
}

/* Short frames are padded, so the text carries its length. */
static bypath_status send_text(bypath_l2_socket *socket, bypath_mac to, const char *text, bypath_error *error) {
    unsigned char payload[1500];
    size_t len = strlen(text);
    if (len > sizeof payload - 2) len = sizeof payload - 2;
    payload[0] = (unsigned char)(len >> 8);
    payload[1] = (unsigned char)len;
    memcpy(payload + 2, text, len);
    return bypath_l2_send(socket, to, payload, len + 2, error);
}

static void show(const bypath_l2_frame *frame, const unsigned char *payload) {
    char source[BYPATH_MAC_TEXT];
    size_t len = frame->len < 2 ? 0 : (size_t)(payload[0] << 8 | payload[1]);
    if (frame->len < 2 || len > frame->len - 2) len = 0;
    bypath_mac_format(frame->source, source, NULL);
    printf("%s on VLAN %d priority %d: %.*s\n", source, frame->vlan.vlan, frame->vlan.priority, (int)len,
           (const char *)payload + 2);
}

int main(int argc, char **argv) {
    bypath_l2_options options;
    bypath_l2_socket *socket;
    bypath_l2_frame frame;
    bypath_error error;
    unsigned char buffer[1500];
    bypath_status status = BYPATH_E_TIMED_OUT;

    if (argc < 2) {
        fprintf(stderr, "usage: hello INTERFACE [TEXT]\n");
        return 2;
    }
    bypath_l2_options_init(&options, NULL);
    options.ethertype = BYPATH_ETHERTYPE_HYBRID;
    options.tag = bypath_vlan(BYPATH_DEFAULT_VLAN, BYPATH_DEFAULT_PRIORITY);
    options.timeout_ns = argc > 2 ? 100000000 : 20000000000;
    if (bypath_l2_open(argv[1], &options, &socket, &error) != BYPATH_OK) return failed(&error);

    if (argc > 2) {
        /* Nobody may listen yet: ask again until somebody answers. */
        for (int i = 0; i < 200 && status == BYPATH_E_TIMED_OUT; i++) {
            status = send_text(socket, bypath_mac_broadcast(), argv[2], &error);
            if (status == BYPATH_OK) status = bypath_l2_receive(socket, buffer, sizeof buffer, &frame, &error);
        }
        if (status == BYPATH_OK) show(&frame, buffer);
    } else {
        status = bypath_l2_receive(socket, buffer, sizeof buffer, &frame, &error);
        if (status == BYPATH_OK) {
            show(&frame, buffer);
            status = send_text(socket, frame.source, "I am here", &error);
        }
    }
    if (status != BYPATH_OK) failed(&error);
    bypath_l2_close(socket, NULL);
    return status == BYPATH_OK ? 0 : 1;
}
