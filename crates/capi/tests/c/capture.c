/* Capture files written and read, and what cannot be. Argument: a directory, in which
 * `ours.pcapng` is written; with a second argument it is there already. */
#include "check.h"

static char directory[200], path[300];
/* Whether somebody else wrote the file that is read. */
static int foreign;
static const uint64_t when = 1800000000123456789u;

static const char *file(const char *name) {
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

/* A frame whose octets are told from those of others. */
static void fill(unsigned char *frame, size_t len, unsigned char first) {
    for (size_t i = 0; i < len; i++) frame[i] = (unsigned char)(first + i);
}

static void written(void) {
    bypath_capture_options options;
    bypath_capture_writer *writer;
    bypath_capture_frame about;
    bypath_l2_frame received;
    unsigned char frame[200];
    bypath_mac mac;

    WORKS(bypath_mac_parse("02:00:00:00:00:07", &mac, &error));
    WORKS(bypath_capture_options_init(&options, &error));
    CHECK(options.snap == 0 && options.link_type == BYPATH_LINK_TYPE_ETHERNET && options.comment == NULL);
    options.snap = 120;
    options.mac = mac;
    options.comment = "for the test";
    WORKS(bypath_capture_create(file("ours.pcapng"), "eth7", &options, &writer, &error));

    fill(frame, 60, 1);
    WORKS(bypath_capture_write(writer, when, frame, 60, &error));
    memset(&about, 0, sizeof about);
    about.ns = when + 1;
    about.lost = 3;
    about.whole = 1000;
    about.direction = BYPATH_DIRECTION_OUT;
    about.addressed = BYPATH_TO_GROUP;
    fill(frame, 150, 2);
    WORKS(bypath_capture_write_with(writer, &about, frame, 150, &error));

    /* As bypath_l2_receive fills it: 50 of 80 octets of payload. */
    memset(&received, 0, sizeof received);
    received.destination = bypath_mac_broadcast();
    received.source = mac;
    received.vlan = bypath_vlan(10, 7);
    received.inner_vlan = bypath_vlan(20, 1);
    received.ethertype = 0x88b5;
    received.addressed = BYPATH_TO_BROADCAST;
    received.len = 50;
    received.whole = 80;
    WORKS(bypath_capture_write_received(writer, &received, frame, when + 2, &error));
    received.timestamp_source = BYPATH_TIMESTAMP_SOFTWARE;
    received.timestamp_ns = when + 3;
    received.vlan.tpid = received.inner_vlan.tpid = 0;
    received.addressed = BYPATH_TO_OUTGOING;
    received.whole = received.len;
    WORKS(bypath_capture_write_received(writer, &received, frame, 5, &error));
    WORKS(bypath_capture_flush(writer, &error));

    about.direction = 9;
    FAILS(BYPATH_E_INVALID, bypath_capture_write_with(writer, &about, frame, 150, &error));
    about.direction = BYPATH_DIRECTION_IN;
    about.addressed = BYPATH_TO_OUTGOING;
    FAILS(BYPATH_E_INVALID, bypath_capture_write_with(writer, &about, frame, 150, &error));
    about.addressed = BYPATH_TO_HOST;
    about.whole = 149;
    FAILS(BYPATH_E_INVALID, bypath_capture_write_with(writer, &about, frame, 150, &error));
    received.addressed = 77;
    FAILS(BYPATH_E_INVALID, bypath_capture_write_received(writer, &received, frame, 5, &error));
    received.vlan.tpid = 7;
    FAILS(BYPATH_E_INVALID, bypath_capture_write_received(writer, &received, frame, 5, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_write(writer, when, NULL, 60, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_write(writer, when, frame, SIZE_MAX, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_write(NULL, when, frame, 60, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_write_with(writer, NULL, frame, 60, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_write_received(writer, NULL, frame, 5, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_flush(NULL, &error));
    WORKS(bypath_capture_finish(writer, &error));
    WORKS(bypath_capture_finish(NULL, &error));
}

static void read_again(void) {
    bypath_capture_reader *reader;
    bypath_capture_interface interface;
    bypath_capture_frame frame;
    unsigned char buffer[200], expected[200];
    WORKS(bypath_capture_open(file("ours.pcapng"), &reader, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_interface_of(reader, 0, &interface, &error));

    WORKS(bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    fill(expected, 60, 1);
    CHECK(frame.ns == when && frame.len == 60 && frame.kept == 60 && frame.whole == 60 && frame.lost == 0);
    CHECK(frame.direction == BYPATH_DIRECTION_UNKNOWN && frame.addressed == BYPATH_TO_UNKNOWN);
    CHECK(frame.interface == 0 && memcmp(buffer, expected, 60) == 0);
    WORKS(bypath_capture_interface_of(reader, 0, &interface, &error));
    CHECK(interface.snap == 120 && interface.link_type == 1 && strcmp(interface.name, "eth7") == 0);
    /* Not every program hands the address on. */
    CHECK(foreign || (interface.mac.octets[0] == 2 && interface.mac.octets[5] == 7));
    FAILS(BYPATH_E_INVALID, bypath_capture_interface_of(reader, 1, &interface, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_interface_of(reader, 0, NULL, &error));

    /* Cut by the file, and by the buffer. */
    WORKS(bypath_capture_read(reader, &frame, buffer, 10, &error));
    fill(expected, 150, 2);
    CHECK(frame.ns == when + 1 && frame.len == 10 && frame.kept == 120 && frame.whole == 1000 && frame.lost == 3);
    CHECK(frame.direction == BYPATH_DIRECTION_OUT && frame.addressed == BYPATH_TO_GROUP);
    CHECK(memcmp(buffer, expected, 10) == 0 && buffer[10] == 11);

    FAILS(BYPATH_E_INVALID, bypath_capture_read(reader, NULL, buffer, 10, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_read(reader, &frame, NULL, 10, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_read(NULL, &frame, buffer, 10, &error));
    WORKS(bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    CHECK(frame.ns == when + 2 && frame.len == 22 + 50 && frame.whole == 22 + 80);
    CHECK(memcmp(buffer, "\xff\xff\xff\xff\xff\xff\2\0\0\0\0\7\x81\0\xe0\x0a\x81\0\x20\x14\x88\xb5", 22) == 0);
    CHECK(memcmp(buffer + 22, expected, 50) == 0);
    CHECK(frame.direction == BYPATH_DIRECTION_IN && frame.addressed == BYPATH_TO_BROADCAST);

    WORKS(bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    CHECK(frame.ns == when + 3 && frame.len == 64 && frame.whole == 64 && buffer[12] == 0x88 && buffer[13] == 0xb5);
    CHECK(frame.direction == BYPATH_DIRECTION_OUT && frame.addressed == BYPATH_TO_UNKNOWN);
    FAILS(BYPATH_E_END, bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    FAILS(BYPATH_E_END, bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    CHECK(strstr(error.message, "ours.pcapng: there are no more frames") != NULL);
    WORKS(bypath_capture_close(reader, &error));
    WORKS(bypath_capture_close(NULL, &error));
}

static void trouble(void) {
    bypath_capture_options options;
    bypath_capture_writer *writer = (bypath_capture_writer *)&options;
    bypath_capture_reader *reader = (bypath_capture_reader *)&options;
    bypath_capture_frame frame;
    static unsigned char buffer[100000];
    FILE *stream;

    FAILS(BYPATH_E_SYSTEM, bypath_capture_create(file("nowhere/x.pcapng"), "x", NULL, &writer, &error));
    CHECK(writer == NULL && error.system == 2 && strstr(error.message, "could not create ") != NULL);
    CHECK(strstr(error.message, "nowhere/x.pcapng: No such file") != NULL);
    FAILS(BYPATH_E_SYSTEM, bypath_capture_open(file("nothing.pcapng"), &reader, &error));
    CHECK(reader == NULL && error.system == 2 && strstr(error.message, "nothing.pcapng: No such file") != NULL);
    WORKS(bypath_capture_open(directory, &reader, &error));
    FAILS(BYPATH_E_SYSTEM, bypath_capture_read(reader, &frame, buffer, 10, &error));
    CHECK(error.system == 21 && strstr(error.message, "could not read ") != NULL);
    WORKS(bypath_capture_close(reader, &error));

    WORKS(bypath_capture_options_init(&options, &error));
    options.size = 3;
    FAILS(BYPATH_E_INVALID, bypath_capture_create(file("x"), "x", &options, &writer, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_options_init(NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_create(NULL, "x", NULL, &writer, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_create(file("x"), NULL, NULL, &writer, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_create(file("x"), "\xff", NULL, &writer, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_create(file("x"), "x", NULL, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_open(NULL, &reader, &error));
    FAILS(BYPATH_E_INVALID, bypath_capture_open(file("x"), NULL, &error));

    /* A disk that is full: what is held back cannot be written, and nothing is after that. */
    WORKS(bypath_capture_create("/dev/full", "x", NULL, &writer, &error));
    WORKS(bypath_capture_write(writer, when, buffer, 60, &error));
    FAILS(BYPATH_E_SYSTEM, bypath_capture_flush(writer, &error));
    CHECK(error.system == 28 && strstr(error.message, "could not write /dev/full: No space left") != NULL);
    FAILS(BYPATH_E_SYSTEM, bypath_capture_write(writer, when, buffer, 60, &error));
    FAILS(BYPATH_E_SYSTEM, bypath_capture_finish(writer, &error));
    WORKS(bypath_capture_create("/dev/full", "x", NULL, &writer, &error));
    FAILS(BYPATH_E_SYSTEM, bypath_capture_write(writer, when, buffer, sizeof buffer, &error));
    FAILS(BYPATH_E_SYSTEM, bypath_capture_finish(writer, &error));

    /* No capture file at all; one that ends inside its last frame. */
    stream = fopen(file("text"), "wb");
    CHECK(stream != NULL && fputs("this is not a capture file\n", stream) > 0 && fclose(stream) == 0);
    WORKS(bypath_capture_open(file("text"), &reader, &error));
    FAILS(BYPATH_E_FORMAT, bypath_capture_read(reader, &frame, buffer, 10, &error));
    FAILS(BYPATH_E_FORMAT, bypath_capture_read(reader, &frame, buffer, 10, &error));
    CHECK(strstr(error.message, "/text: octet 0 of the capture file: this is no pcapng file") != NULL);
    WORKS(bypath_capture_close(reader, &error));
    stream = fopen(file("ours.pcapng"), "rb");
    CHECK(stream != NULL);
    size_t size = fread(buffer, 1, sizeof buffer, stream);
    CHECK(size > 500 && fclose(stream) == 0);
    stream = fopen(file("cut.pcapng"), "wb");
    CHECK(stream != NULL && fwrite(buffer, 1, size - 5, stream) == size - 5 && fclose(stream) == 0);
    WORKS(bypath_capture_open(file("cut.pcapng"), &reader, &error));
    for (int i = 0; i < 3; i++) WORKS(bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    FAILS(BYPATH_E_FORMAT, bypath_capture_read(reader, &frame, buffer, sizeof buffer, &error));
    CHECK(strstr(error.message, "cut.pcapng: the capture file ends inside a block") != NULL);
    WORKS(bypath_capture_close(reader, &error));
}

int main(int argc, char **argv) {
    CHECK(argc >= 2 && strlen(argv[1]) < sizeof directory);
    strcpy(directory, argv[1]);
    foreign = argc > 2;
    if (!foreign) written();
    read_again();
    trouble();
    puts("all as it should be");
    return 0;
}
