// Channels of datagrams by C++: both ends in one process, and what closes itself.
#include "check.h"

#include <bypath.hpp>
#include <chrono>
#include <string>
#include <thread>

using namespace std::chrono_literals;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    auto listener = bypath::ChannelListener::bind(argv[1], 4096);
    CHECK(listener);
    std::thread other([&] {
        auto channel = bypath::DatagramChannel::connect(argv[1], 60s);
        CHECK(channel);
        char room[2040];
        for (;;) {
            const auto length = channel->receiver.receive(room, sizeof room, 60s);
            if (length.status() == BYPATH_E_END) break;
            CHECK(length && channel->sender.send({room, *length}, 60s));
        }
    });
    auto channel = listener->accept_datagrams(60s);
    CHECK(channel);
    CHECK(*channel->sender.longest() == 2040);
    for (const std::size_t length : {std::size_t{0}, std::size_t{14}, std::size_t{2040}}) {
        const std::string text(length, 'x');
        CHECK(channel->sender.send(text, 60s));
        const auto runs = channel->receiver.peek(60s);
        CHECK(runs);
        std::string back;
        for (const auto &run : *runs) back.append(reinterpret_cast<const char *>(run.octets), run.length);
        CHECK(back == text && channel->receiver.release());
    }
    char room[4];
    CHECK(channel->receiver.receive(room, sizeof room, 0ns).status() == BYPATH_E_WOULD_BLOCK);
    const auto sleeps = channel->receiver.arm();
    CHECK(sleeps && *sleeps && channel->receiver.descriptor());
    const auto room_there = channel->sender.arm(2040);
    CHECK(room_there && !*room_there && channel->sender.descriptor());
    const auto place = channel->sender.reserve(20, 60s);
    CHECK(place);
    (*place)[0].octets[0] = 'y';
    CHECK(channel->sender.commit(1));
    const auto one = channel->receiver.receive(room, sizeof room, 60s);
    CHECK(one && *one == 1 && room[0] == 'y');
    bypath::DatagramSender moved = std::move(channel->sender);
    CHECK(channel->sender.send({"z", 1}, 0ns).status() == BYPATH_E_INVALID);
    moved.close();
    other.join();
    CHECK(channel->receiver.receive(room, sizeof room, 60s).status() == BYPATH_E_END);

    bypath_channel_remote remote;
    auto here = bypath::DatagramChannel::pair(remote, 8192);
    CHECK(here && !bypath::Channel::open(remote));
    auto there = bypath::DatagramChannel::open(remote);
    CHECK(there && here->sender.send({"z", 1}, 60s));
    CHECK(*there->receiver.receive(room, sizeof room, 60s) == 1);
    std::puts("all as it should be");
}
