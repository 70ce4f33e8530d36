// Datagrams between two programs: `channel_datagram_cpp listen NAME` sends back what comes, `channel_datagram_cpp call NAME TEXT...`
// sends the texts, each as one datagram, and prints what comes back.
#include <bypath.hpp>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

static constexpr auto forever = std::chrono::nanoseconds::max();

static int failed(const char *what, const bypath::Error &error) {
    std::fprintf(stderr, "%s: %s\n", what, error.message());
    return 1;
}

static int listen(const char *name) {
    auto listener = bypath::ChannelListener::bind(name);
    if (!listener) return failed(name, listener.error());
    std::puts("listening");
    std::fflush(stdout);
    auto channel = listener->accept_datagrams(forever);
    if (!channel) return failed(name, channel.error());
    std::vector<char> room(65527);
    for (;;) {
        const auto length = channel->receiver.receive(room.data(), room.size(), forever);
        if (length.status() == BYPATH_E_END) return 0;
        if (!length) return failed("receive", length.error());
        const auto sent = channel->sender.send({room.data(), *length}, forever);
        if (!sent) return failed("send", sent.error());
    }
}

static int call(const char *name, char **texts) {
    auto channel = bypath::DatagramChannel::connect(name, forever);
    if (!channel) return failed(name, channel.error());
    std::vector<char> room(65527);
    for (; *texts; texts++) {
        const auto sent = channel->sender.send(std::string_view(*texts), forever);
        if (!sent) return failed("send", sent.error());
        const auto length = channel->receiver.receive(room.data(), room.size(), forever);
        if (!length) return failed("receive", length.error());
        std::printf("%zu octets: %.*s\n", *length, static_cast<int>(*length), room.data());
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && std::string_view(argv[1]) == "listen") return listen(argv[2]);
    if (argc >= 4 && std::string_view(argv[1]) == "call") return call(argv[2], argv + 3);
    std::fprintf(stderr, "usage: channel_datagram_cpp listen NAME | channel_datagram_cpp call NAME TEXT...\n");
    return 2;
}
