// A TCP/IP stack by the classes. Run in a network namespace of its own.
#include "check.h"

#include <bypath.hpp>
#include <cstring>
#include <string>

template <typename T>
static T works(bypath::Result<T> result) {
    if (!result) std::fprintf(stderr, "%s: %s\n", result.error().name(), result.error().message());
    CHECK(result);
    return std::move(*result);
}

static bypath::Endpoint at(const char *text) { return works(bypath::Endpoint::parse(text)); }

int main() {
    // Two of them, one on each end of the cable `left` and `right`.
    auto opened = [](const char *link, const char *own) {
        return works(bypath::Netstack::open(
            bypath::NetstackOptions(link).address(own).timeout(std::chrono::seconds(20))));
    };
    auto left = opened("packet:left", "10.1.0.1/24");
    auto right = opened("packet:right", "10.1.0.2/24");
    CHECK(std::string(works(left.obtained()).name) == "left" && works(right.obtained()).mtu == 1500);

    auto server = works(right.bind(at("0.0.0.0:7"), BYPATH_UDP_REUSE_PORT));
    auto client = works(left.bind(at("0.0.0.0:0")));
    CHECK(server.set_timeout(std::chrono::seconds(20)) && client.set_timeout(std::chrono::seconds(20)));
    CHECK(client.connect(at("10.1.0.2:7")) && works(client.remote()).text() == "10.1.0.2:7");
    static char buffer[65536];
    for (std::size_t length : {1u, 1472u, 1473u, 40000u}) {
        const std::string text(length, 'x');
        CHECK(client.send(text));
        auto question = works(server.receive(buffer, sizeof buffer));
        CHECK(question.len == length && bypath::Endpoint(question.destination).text() == "10.1.0.2:7");
        CHECK(server.send_to(question.source, bypath::Octets(buffer, question.len)));
        auto answer = works(client.receive(buffer, sizeof buffer));
        CHECK(answer.len == length && text.compare(0, length, buffer, length) == 0);
    }
    CHECK(server.join(at("239.1.2.3:0")));
    auto sender = works(left.bind(at("0.0.0.0:0"), BYPATH_UDP_BROADCAST));
    CHECK(sender.send_to(at("239.1.2.3:7"), "to a group"));
    CHECK(works(server.receive(buffer, sizeof buffer)).len == 10 && server.leave(at("239.1.2.3:0")));

    auto told = works(left.bind(at("0.0.0.0:0"), BYPATH_UDP_ALL_ERRORS));
    CHECK(told.set_timeout(std::chrono::seconds(20)) && told.send_to(at("10.1.0.2:99"), "to nobody"));
    CHECK(told.receive(buffer, sizeof buffer).status() == BYPATH_E_UNREACHABLE);

    CHECK(left.add_address("10.1.0.3/24") && works(left.addresses()).size() == 2 && left.remove_address("10.1.0.3"));
    bool delivered = false;
    for (const auto &counter : works(right.counters()))
        delivered = delivered || (std::strcmp(counter.name, "udp_delivered") == 0 && counter.value == 5);
    CHECK(delivered);

    CHECK(client.disconnect() && client.set_timeout(std::chrono::nanoseconds(0)));
    CHECK(client.receive(buffer, sizeof buffer).status() == BYPATH_E_WOULD_BLOCK);
    bypath::Udp moved = std::move(client);
    // It was bound by its connect, which is taken back.
    CHECK(client.send("x").status() == BYPATH_E_INVALID && moved.local().status() == BYPATH_E_INVALID);
    CHECK(moved.connect(at("10.1.0.2:7")) && works(moved.local()).port != 0);
    // One without a thread, and its own clock.
    auto polled = works(bypath::Netstack::open(
        bypath::NetstackOptions("tap:polled").address("10.2.0.2/24").kernel("10.2.0.1/24").in_process()));
    while (works(polled.poll())) {}
    CHECK(polled.wait(std::chrono::milliseconds(1)));
    polled.close();
    CHECK(polled.poll().status() == BYPATH_E_INVALID);
    right.close();
    CHECK(server.receive(buffer, sizeof buffer).status() == BYPATH_E_GONE);
    CHECK(right.bind(at("0.0.0.0:0")).status() == BYPATH_E_INVALID);
    CHECK(left.bind(at("10.1.0.9:0")).status() == BYPATH_E_INVALID);
    CHECK(bypath::Netstack::open(bypath::NetstackOptions("packet:nobody").dhcp()).status() == BYPATH_E_UNKNOWN);
    CHECK(bypath::Netstack::open(bypath::NetstackOptions("tun:t").dhcp("me")).status() == BYPATH_E_INVALID);
    CHECK(bypath::Netstack::open(bypath::NetstackOptions("tap:left").kernel("10.9.0.1/24").address("10.9.0.2/24").mtu(9000))
              .status() == BYPATH_E_IN_USE);
    CHECK(bypath::Netstack::open(bypath::NetstackOptions("tap:nobody").attach().address("10.9.0.2/24").router("10.9.0.1"))
              .status() == BYPATH_E_UNKNOWN);
    std::puts("all as it should be");
    return 0;
}
