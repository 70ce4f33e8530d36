// Asks whoever sends datagrams back, from a host of its own: `netstack_cpp packet:left 10.1.0.1/24 10.1.0.2:7 hello there`.
// netstack.c answers.
#include <bypath.hpp>

#include <chrono>
#include <cstdio>

static int failed(const bypath::Error &error) {
    std::fprintf(stderr, "netstack: %s\n", error.message());
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        std::fprintf(stderr, "usage: netstack_cpp LINK ADDRESS/PREFIX TO:PORT WORD...\n");
        return 2;
    }
    auto to = bypath::Endpoint::parse(argv[3]);
    if (!to) return failed(to.error());
    auto any = bypath::Endpoint::parse(to->family == 4 ? "0.0.0.0:0" : "[::]:0");
    auto stack = bypath::Netstack::open(bypath::NetstackOptions(argv[1]).address(argv[2]));
    if (!stack) return failed(stack.error());
    auto udp = stack->bind(*any);
    if (!udp) return failed(udp.error());
    auto connected = udp->connect(*to);
    if (!connected) return failed(connected.error());
    (void)udp->set_timeout(std::chrono::seconds(5));
    for (int i = 4; i < argc; i++) {
        char buffer[65536];
        auto sent = udp->send(argv[i]);
        if (!sent) return failed(sent.error());
        auto answer = udp->receive(buffer, sizeof buffer);
        if (!answer) return failed(answer.error());
        std::printf("%s: %.*s\n", bypath::Endpoint(answer->source).text().c_str(), static_cast<int>(answer->len), buffer);
    }
    return 0;
}
