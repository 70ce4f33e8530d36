/* Frames into a capture file for Wireshark, and out of one.
 *
 *     cc record.c $(pkg-config --cflags --libs bypath) -o record
 *
 *     record right frames.pcapng 5        writes the next 5 frames of EtherType 0x88B5, of whatever VLAN
 *     record right frames.pcapng 5 xdp    the same by AF_XDP: nobody else receives these frames meanwhile; as root
 *     record frames.pcapng                lists what is in the file
 */
#define _POSIX_C_SOURCE 200809L
#include <bypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failed(const bypath_error *error) {
    fprintf(stderr, "record: %s\n", error->message);
    return 1;
}

static int list(const char *path) {
    bypath_capture_reader *reader;
    bypath_capture_interface interface;
    bypath_capture_frame frame;
    bypath_error error;
    unsigned char octets[65536 + 22];
    bypath_status status;

    if (bypath_capture_open(path, &reader, &error) != BYPATH_OK) return failed(&error);
    while ((status = bypath_capture_read(reader, &frame, octets, sizeof octets, &error)) == BYPATH_OK) {
        bypath_capture_interface_of(reader, frame.interface, &interface, NULL);
        printf("%llu.%09llu %s: %zu octets\n", (unsigned long long)(frame.ns / 1000000000),
               (unsigned long long)(frame.ns % 1000000000), interface.name, frame.whole);
    }
    bypath_capture_close(reader, NULL);
    return status == BYPATH_E_END ? 0 : failed(&error);
}

/* For frames that the kernel took no time of. */
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int record(const char *interface, const char *path, long count, int xdp) {
    bypath_l2_options options;
    bypath_l2_obtained obtained;
    bypath_l2_socket *socket;
    bypath_l2_frame frame;
    bypath_capture_writer *writer;
    bypath_error error;
    unsigned char payload[65536];
    bypath_status status = BYPATH_OK;

    bypath_l2_options_init(&options, NULL);
    options.ethertype = BYPATH_ETHERTYPE_HYBRID;
    options.flags = BYPATH_ALL_GROUPS;
    options.receive_mode = options.send_mode = xdp ? BYPATH_MODE_XDP : BYPATH_MODE_MMSG;
    if (bypath_l2_open(interface, &options, &socket, &error) != BYPATH_OK) return failed(&error);
    if (bypath_capture_create(path, interface, NULL, &writer, &error) != BYPATH_OK) {
        bypath_l2_close(socket, NULL);
        return failed(&error);
    }
    bypath_l2_read_obtained(socket, &obtained, NULL, 0, NULL);
    if (obtained.receive_mode != BYPATH_MODE_XDP)
        puts("ready, by a packet socket");
    else
        printf("ready, by AF_XDP: %s, looked at %s the driver\n",
               obtained.transfer == BYPATH_TRANSFER_ZERO_COPY ? "not copied" : "copied",
               obtained.place == BYPATH_PLACE_DRIVER ? "in" : "behind");
    fflush(stdout);

    while (count-- > 0 && status == BYPATH_OK) {
        status = bypath_l2_receive(socket, payload, sizeof payload, &frame, &error);
        if (status == BYPATH_OK) status = bypath_capture_write_received(writer, &frame, payload, now(), &error);
    }
    if (status != BYPATH_OK) failed(&error);
    /* The last octets may be those that find no room. */
    if (bypath_capture_finish(writer, &error) != BYPATH_OK) status = failed(&error);
    bypath_l2_close(socket, NULL);
    return status == BYPATH_OK ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2) return list(argv[1]);
    if (argc == 4 || (argc == 5 && strcmp(argv[4], "xdp") == 0))
        return record(argv[1], argv[2], strtol(argv[3], NULL, 10), argc == 5);
    fprintf(stderr, "usage: record INTERFACE FILE COUNT [xdp]\n       record FILE\n");
    return 2;
}
