// Channels by C++: both ends in one process, and what closes itself.
#include "check.h"

#include <bypath.hpp>
#include <chrono>
#include <string>
#include <thread>

using namespace std::chrono_literals;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    auto listener = bypath::ChannelListener::bind(argv[1], 4096);
    CHECK(listener && !bypath::ChannelListener::bind(argv[1]));
    std::thread other([&] {
        auto channel = bypath::Channel::connect(argv[1], 60s);
        CHECK(channel);
        char room[100];
        for (;;) {
            const auto length = channel->receiver.read(room, sizeof room, 60s);
            CHECK(length);
            if (*length == 0) break;
            CHECK(channel->sender.write_all({room, *length}, 60s));
        }
    });
    auto channel = listener->accept(60s);
    CHECK(channel);
    CHECK(channel->receiver.read(nullptr, 0, 0ns));
    const std::string text(3000, 'x');
    CHECK(channel->sender.write_all(text, 60s));
    std::string back;
    while (back.size() < text.size()) {
        const auto runs = channel->receiver.peek(1, 60s);
        CHECK(runs && (*runs)[0].length > 0);
        for (const auto &run : *runs) back.append(reinterpret_cast<const char *>(run.octets), run.length);
        CHECK(channel->receiver.release((*runs)[0].length + (*runs)[1].length));
    }
    CHECK(back == text);
    char room[4];
    CHECK(channel->receiver.read(room, sizeof room, 0ns).status() == BYPATH_E_WOULD_BLOCK);
    const auto sleeps = channel->receiver.arm();
    CHECK(sleeps && *sleeps && channel->receiver.descriptor());
    const auto place = channel->sender.reserve(2, 60s);
    CHECK(place);
    (*place)[0].octets[0] = 'y';
    CHECK(channel->sender.commit(1));
    const auto one = channel->receiver.read(room, sizeof room, 60s);
    CHECK(one && *one == 1 && room[0] == 'y');
    bypath::ChannelSender moved = std::move(channel->sender);
    CHECK(channel->sender.write({"z", 1}, 0ns).status() == BYPATH_E_INVALID);
    moved.close();
    other.join();
    const auto end = channel->receiver.read(room, sizeof room, 60s);
    CHECK(end && *end == 0);
    std::puts("all as it should be");
}
