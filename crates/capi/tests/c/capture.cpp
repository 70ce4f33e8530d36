// Capture files by the classes. Argument: a directory.
#include "check.h"

#include <bypath.hpp>

#include <string>

using namespace std::chrono_literals;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const std::string path = std::string(argv[1]) + "/classes.pcapng";
    bypath::CaptureOptions options;
    options.snap(64).mac(bypath_mac{{2, 0, 0, 0, 0, 1}}).comment("of the classes").link_type(BYPATH_LINK_TYPE_ETHERNET);
    auto created = bypath::CaptureWriter::create(path.c_str(), "eth7", options);
    CHECK(created);
    bypath::CaptureWriter writer = std::move(*created);
    CHECK(created->flush().status() == BYPATH_E_INVALID);
    CHECK(writer.write(1800000000s + 5ns, std::string(60, 'a')));
    bypath_capture_frame about{};
    about.ns = 77;
    about.direction = BYPATH_DIRECTION_IN;
    CHECK(writer.write_with(about, std::string(100, 'b')));
    bypath::Frame received{};
    received.len = received.whole = 5;
    received.ethertype = 0x88b5;
    CHECK(writer.write_received(received, "hello", 9ns) && writer.flush());
    CHECK(writer.write_with(about, bypath::Octets(nullptr, 5)).status() == BYPATH_E_INVALID);
    CHECK(writer.raw() != nullptr && writer.finish() && writer.finish().status() == BYPATH_E_INVALID);

    auto opened = bypath::CaptureReader::open(path.c_str());
    CHECK(opened && opened->raw() != nullptr);
    bypath::CaptureReader reader = std::move(*opened);
    auto frame = reader.read();
    CHECK(frame && frame->ns == 1800000000000000005u && frame->octets == std::vector<std::uint8_t>(60, 'a'));
    auto interface = reader.interface_of(frame->interface);
    CHECK(interface && std::string(interface->name) == "eth7" && bypath::Mac(interface->mac).text() == "02:00:00:00:00:01");
    char place[10];
    auto known = reader.read(place, sizeof place);
    CHECK(known && known->len == 10 && known->kept == 64 && known->whole == 100 && place[9] == 'b');
    frame = reader.read(16);
    CHECK(frame && frame->octets.size() == 16 && frame->whole == 19 && frame->octets[14] == 'h' && frame->ns == 9);
    CHECK(reader.read().status() == BYPATH_E_END);

    // What is not finished is closed all the same.
    { auto dropped = bypath::CaptureWriter::create(path.c_str(), "x"); CHECK(dropped && dropped->write(1ns, "frame")); }
    reader = std::move(*bypath::CaptureReader::open(path.c_str()));
    CHECK(reader.read()->octets.size() == 5);
    auto nowhere = bypath::CaptureWriter::create("/nowhere/x", "x");
    CHECK(!nowhere && nowhere.status() == BYPATH_E_SYSTEM && nowhere.error().system() == 2);
    CHECK(bypath::CaptureReader::open("/nowhere/x").status() == BYPATH_E_SYSTEM);
    std::puts("all as it should be");
    return 0;
}
