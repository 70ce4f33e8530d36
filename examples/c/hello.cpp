// Says hello from one interface to another, and shows what arrives: `hello_cpp left right "hello there"`.
#include <bypath.hpp>

#include <chrono>
#include <cstdio>

static int failed(const bypath::Error &error) {
    std::fprintf(stderr, "hello: %s\n", error.message());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: hello_cpp FROM TO TEXT\n");
        return 2;
    }
    bypath::Options options;
    options.ethertype(BYPATH_ETHERTYPE_HYBRID)
        .vlan(BYPATH_DEFAULT_VLAN, BYPATH_DEFAULT_PRIORITY)
        .timeout(std::chrono::seconds(5));
    auto from = bypath::Socket::open(argv[1], options);
    if (!from) return failed(from.error());
    auto to = bypath::Socket::open(argv[2], options);
    if (!to) return failed(to.error());
    auto address = to->mac();
    if (!address) return failed(address.error());

    if (auto sent = from->send(*address, argv[3]); !sent) return failed(sent.error());
    char text[1500];
    auto frame = to->receive(text, sizeof text);
    if (!frame) return failed(frame.error());
    // The rest is padding.
    std::printf("VLAN %d priority %d: %.*s\n", frame->vlan.vlan, frame->vlan.priority, static_cast<int>(frame->len), text);
    return 0;
}
