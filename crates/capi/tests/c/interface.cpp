// What bypath.hpp adds: ownership, results, lists. Run where `left` and `right` are connected.
#include "check.h"

#include <bypath.hpp>

#include <cstring>

static bypath::Socket opened(const char *name, const bypath::Options &options) {
    auto socket = bypath::Socket::open(name, options);
    if (!socket) std::fprintf(stderr, "%s: %s\n", socket.error().name(), socket.error().message());
    CHECK(socket);
    return std::move(*socket);
}

static void lists() {
    auto all = bypath::interfaces();
    CHECK(all && all->size() == 3 && std::strcmp((*all)[0].name, "lo") == 0);
    auto left = bypath::interface_named("left");
    CHECK(left && left->mtu == 1500);
    auto nowhere = bypath::interface_named("nowhere");
    CHECK(!nowhere && nowhere.status() == BYPATH_E_UNKNOWN && nowhere.error().system() > 0);
    CHECK(std::strstr(nowhere.error().message(), "there are: lo, ") != nullptr);
    CHECK(std::strcmp(nowhere.error().name(), "BYPATH_E_UNKNOWN") == 0);

    auto mac = bypath::Mac::parse("02-00-5E-10-00-01");
    CHECK(mac && mac->text() == "02:00:5e:10:00:01" && *mac != bypath::Mac::broadcast());
    auto wrong = bypath::Mac::parse("02:00");
    CHECK(!wrong && std::strstr(wrong.error().message(), "`02:00`") != nullptr);
}

static void frames() {
    bypath::Options options;
    options.ethertype(BYPATH_ETHERTYPE_HYBRID)
        .ethertype(BYPATH_ETHERTYPE_IPC)
        .vlan(10, 7)
        .receive_vlan(BYPATH_VLAN_ANY)
        .group(bypath::Mac(bypath_mac{{3, 0, 0, 0, 0, 1}}))
        .timestamps(BYPATH_TIMESTAMP_SOFTWARE)
        .mode(BYPATH_MODE_RING, BYPATH_MODE_PLAIN)
        .timeout(std::chrono::seconds(20));
    auto left = opened("left", options);
    auto right = opened("right", options);
    auto obtained = right.obtained();
    CHECK(obtained && obtained->receive_mode == BYPATH_MODE_RING && obtained->receive_ring > 0 && obtained->notes.empty());
    auto to = right.mac();
    CHECK(to && *to != *left.mac() && *right.mtu() == 1500 && *right.descriptor() >= 0);

    char text[1500];
    CHECK(left.send(*to, std::string(60, 'x')));
    auto frame = right.receive(text, sizeof text);
    CHECK(frame && frame->len == 60 && text[59] == 'x' && frame->vlan.vlan == 10 && frame->vlan.priority == 7);
    CHECK(bypath::Mac(frame->source) == *left.mac() && frame->timestamp_ns > 0);

    auto header = left.header(bypath_mac{{3, 0, 0, 0, 0, 1}});
    CHECK(header);
    header->ethertype = BYPATH_ETHERTYPE_IPC;
    CHECK(left.send_with(*header, std::vector<std::uint8_t>(50, 7)));
    bypath::Slot slot{};
    slot.data = text;
    slot.capacity = sizeof text;
    auto received = right.receive_batch(&slot, 1);
    CHECK(received && *received == 1 && slot.frame.addressed == BYPATH_TO_GROUP && slot.frame.ethertype == 0xaaaa);

    const bypath_octets parts[] = {{"first, and long enough not to be padded by anybody", 50}, {"second", 6}};
    CHECK(*left.send_batch(*to, parts, 2) == 2);
    std::size_t count = 0;
    std::string first;
    while (count < 2) {
        CHECK(right.receive_each(2 - count, [&](const bypath::Frame &f, const void *payload) {
            if (count++ == 0) first.assign(static_cast<const char *>(payload), f.len);
        }));
    }
    CHECK(first == "first, and long enough not to be padded by anybody");
    CHECK(right.statistics()->received == 4 && right.statistics()->dropped == 0);

    CHECK(right.set_timeout(std::chrono::microseconds(100)));
    CHECK(right.receive(text, sizeof text).status() == BYPATH_E_TIMED_OUT);
    CHECK(right.set_wait(BYPATH_WAIT_NEVER));
    CHECK(right.receive(text, sizeof text).status() == BYPATH_E_WOULD_BLOCK);
    CHECK(right.join(bypath_mac{{3, 0, 0, 0, 0, 2}}) && right.leave(bypath_mac{{3, 0, 0, 0, 0, 2}}));

    // Moved from, moved into, closed.
    bypath::Socket other = std::move(left);
    CHECK(left.send(*to, "x").status() == BYPATH_E_INVALID);
    CHECK(other.send(*to, "x"));
    other = std::move(right);
    CHECK(*other.mac() == *to);
    other.close();
    other.close();
    CHECK(other.mac().status() == BYPATH_E_INVALID);

    options.raw().flags = 0x80000000u;
    CHECK(bypath::Socket::open("left", options).status() == BYPATH_E_INVALID);
}

int main() {
    lists();
    frames();
    std::puts("all as it should be");
    return 0;
}
