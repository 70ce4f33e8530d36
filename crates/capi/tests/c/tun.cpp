// TUN devices by the classes. Run in a network namespace of its own.
#include "check.h"

#include <bypath.hpp>

int main() {
    // Two devices, and the kernel between them as a router: what one sends, the other receives.
    auto opened = [](const char *local, const char *address) {
        bypath::TunOptions options(local);
        options.address(address).mtu(9000).mode(BYPATH_TUN_SUPER).timeout(std::chrono::seconds(20)).dscp(46).ttl(9);
        auto tun = bypath::Tun::open(options);
        if (!tun) std::fprintf(stderr, "%s: %s\n", tun.error().name(), tun.error().message());
        CHECK(tun);
        return std::move(*tun);
    };
    if (FILE *forward = std::fopen("/proc/sys/net/ipv4/ip_forward", "w")) {
        std::fputs("1", forward);
        std::fclose(forward);
    }
    auto left = opened("10.9.0.2:7000", "10.9.0.1/24");
    auto right = opened("10.8.0.2:9000", "10.8.0.1/24");
    auto to = bypath::Endpoint::parse("10.8.0.2:9000");
    CHECK(to && to->text() == "10.8.0.2:9000");
    auto got = left.obtained();
    CHECK(got && got->udp == 1 && got->mtu == 9000);
    const std::string many(60 * 1000, 'm');
    for (int round = 0; round < 10; round++) {
        CHECK(left.send(*to, "one"));
        char text[100];
        auto datagram = right.receive(text, sizeof text);
        CHECK(datagram && datagram->len == 3 && datagram->ttl == 8 && datagram->class_octet == 46 << 2);
        CHECK(bypath::Endpoint(datagram->source).text() == "10.9.0.2:7000");
        auto sent = left.send_cut(*to, many, 1000);
        CHECK(sent && *sent == 60);
        const bypath_octets two[] = {{many.data(), 100}, {many.data(), 100}};
        sent = left.send_batch(*to, two, 2);
        CHECK(sent && *sent == 2);
        std::size_t count = 0, octets = 0;
        while (count < 62) {
            auto received = right.receive_each(100, [&](const bypath::Datagram &d, const void *payload) {
                CHECK(static_cast<const char *>(payload)[d.len - 1] == 'm');
                count++;
                octets += d.len;
            });
            CHECK(received);
        }
        CHECK(count == 62 && octets == many.size() + 200);
    }
    CHECK(left.set_mode(BYPATH_TUN_ASSEMBLE) && left.set_timeout(std::chrono::nanoseconds(0)) && left.descriptor());
    char text[100];
    CHECK(left.receive(text, sizeof text).status() == BYPATH_E_WOULD_BLOCK);
    bypath::Tun moved = std::move(left);
    CHECK(left.send(*to, "x").status() == BYPATH_E_INVALID && moved.send(*to, "x"));
    moved.close();
    CHECK(moved.send(*to, "x").status() == BYPATH_E_INVALID);
    CHECK(bypath::Tun::open(bypath::TunOptions("nowhere")).status() == BYPATH_E_INVALID);
    CHECK(bypath::Tun::open(bypath::TunOptions("10.9.0.2:1").name("lo")).status() == BYPATH_E_IN_USE);
    std::puts("all as it should be");
    return 0;
}
