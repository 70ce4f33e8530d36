// Sends a file through a TUN device in super-packets of 1000-octet datagrams: `tun_cpp 10.9.0.1:9000 FILE`. Whoever listens
// there, an ordinary UDP socket, receives datagrams like any others.
#include <bypath.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>

static int failed(const bypath::Error &error) {
    std::fprintf(stderr, "tun: %s\n", error.message());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: tun_cpp ADDRESS:PORT FILE\n");
        return 2;
    }
    auto to = bypath::Endpoint::parse(argv[1]);
    if (!to) return failed(to.error());
    std::ifstream file(argv[2], std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) {
        std::fprintf(stderr, "tun: %s cannot be read\n", argv[2]);
        return 1;
    }
    // The kernel's end, and ours.
    auto tun = bypath::Tun::open(bypath::TunOptions("10.9.0.2:7000").address("10.9.0.1/24").mode(BYPATH_TUN_SUPER));
    if (!tun) return failed(tun.error());
    auto sent = tun->send_cut(*to, data, 1000);
    if (!sent) return failed(sent.error());
    std::printf("%zu octets in %zu datagrams sent\n", data.size(), *sent);
    return 0;
}
