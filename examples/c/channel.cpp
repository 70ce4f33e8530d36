// Octets between two programs: `channel_cpp listen NAME` sends back what comes, `channel_cpp call NAME TEXT` prints what comes back.
// Who listens waits in an epoll set, as beside other descriptors, and sends octets from where they lie.
#include <bypath.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <unistd.h>

static constexpr auto forever = std::chrono::nanoseconds::max();
static constexpr auto now = std::chrono::nanoseconds::zero();

static int failed(const char *what, const bypath::Error &error) {
    std::fprintf(stderr, "%s: %s\n", what, error.message());
    return 1;
}

static int serve(bypath::Channel &channel, int set) {
    const auto descriptor = channel.receiver.descriptor();
    if (!descriptor) return failed("descriptor", descriptor.error());
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(set, EPOLL_CTL_ADD, *descriptor, &event) != 0) return std::perror("epoll_ctl"), 1;
    for (;;) {
        const auto runs = channel.receiver.peek(1, now);
        if (runs.status() == BYPATH_E_WOULD_BLOCK) {
            // First said, then waited: there may be something by now.
            const auto sleeps = channel.receiver.arm();
            if (!sleeps) return failed("arm", sleeps.error());
            if (*sleeps && epoll_wait(set, &event, 1, -1) < 0) return std::perror("epoll_wait"), 1;
            continue;
        }
        if (!runs) return failed("peek", runs.error());
        std::size_t length = 0;
        for (const auto &run : *runs) {
            // The other program may change them meanwhile: here they are passed on, whatever they are.
            const std::string_view octets(reinterpret_cast<const char *>(run.octets), run.length);
            const auto written = channel.sender.write_all(octets, forever);
            if (!written) return failed("write", written.error());
            length += run.length;
        }
        if (length == 0) return 0;
        const auto released = channel.receiver.release(length);
        if (!released) return failed("release", released.error());
    }
}

static int listen(const char *name) {
    auto listener = bypath::ChannelListener::bind(name);
    if (!listener) return failed(name, listener.error());
    std::puts("listening");
    std::fflush(stdout);
    auto channel = listener->accept(forever);
    if (!channel) return failed(name, channel.error());
    const int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return std::perror("epoll_create1"), 1;
    const int status = serve(*channel, set);
    close(set);
    return status;
}

static int call(const char *name, std::string_view text) {
    auto channel = bypath::Channel::connect(name, forever);
    if (!channel) return failed(name, channel.error());
    const auto written = channel->sender.write_all(text, forever);
    if (!written) return failed("write", written.error());
    channel->sender.close();
    std::string room(4096, 0);
    for (;;) {
        const auto length = channel->receiver.read(room.data(), room.size(), forever);
        if (!length) return failed("read", length.error());
        if (*length == 0) return std::puts(""), 0;
        std::fwrite(room.data(), 1, *length, stdout);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && std::string_view(argv[1]) == "listen") return listen(argv[2]);
    if (argc == 4 && std::string_view(argv[1]) == "call") return call(argv[2], argv[3]);
    std::fprintf(stderr, "usage: channel_cpp listen NAME | channel_cpp call NAME TEXT\n");
    return 2;
}
