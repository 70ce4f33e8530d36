// Says lines to whoever sends them back by TCP, and prints the answers: `tcp_lines packet:left 10.1.0.1/24 10.1.0.2:7 hello there`.
// tcp_echo.c answers.
#include <bypath.hpp>

#include <chrono>
#include <cstdio>
#include <string>

static int failed(const bypath::Error &error) {
    std::fprintf(stderr, "tcp_lines: %s\n", error.message());
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        std::fprintf(stderr, "usage: tcp_lines LINK ADDRESS/PREFIX TO:PORT LINE...\n");
        return 2;
    }
    auto to = bypath::Endpoint::parse(argv[3]);
    if (!to) return failed(to.error());
    auto stack = bypath::Netstack::open(bypath::NetstackOptions(argv[1]).address(argv[2]));
    if (!stack) return failed(stack.error());
    auto tcp = stack->connect(*to, bypath::TcpOptions().timeout(std::chrono::seconds(5)).nodelay());
    if (!tcp) return failed(tcp.error());
    for (int i = 4; i < argc; i++) {
        auto said = tcp->write_all(argv[i] + std::string("\n"));
        if (!said) return failed(said.error());
    }
    auto finished = tcp->shutdown();
    if (!finished) return failed(finished.error());
    for (;;) {
        char buffer[4096];
        auto len = tcp->read(buffer, sizeof buffer);
        if (!len) return failed(len.error());
        if (*len == 0) return 0;
        std::fwrite(buffer, 1, *len, stdout);
    }
}
