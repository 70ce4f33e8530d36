// AF_XDP sockets by the classes. Run where `left` and `right` are connected, with the rights to attach programs.
#include "check.h"

#include <bypath.hpp>

static bypath::Socket opened(const char *name, const bypath::Options &options) {
    auto socket = bypath::Socket::open(name, options);
    if (!socket) std::fprintf(stderr, "%s: %s\n", socket.error().name(), socket.error().message());
    CHECK(socket);
    return std::move(*socket);
}

int main() {
    bypath::Options packet, xdp;
    for (bypath::Options *both : {&packet, &xdp})
        both->ethertype(BYPATH_ETHERTYPE_HYBRID).vlan(10, 7).timeout(std::chrono::seconds(20));
    xdp.xdp().place(BYPATH_PLACE_GENERIC).transfer(BYPATH_TRANSFER_COPY).busy_poll(std::chrono::microseconds(20), 32);
    auto left = opened("left", xdp);
    auto right = opened("right", packet);
    auto got = left.obtained();
    CHECK(got && got->receive_mode == BYPATH_MODE_XDP && got->place == BYPATH_PLACE_GENERIC && got->notes.empty());
    CHECK(got->transfer == BYPATH_TRANSFER_COPY && got->busy_poll_asked == 1 && got->busy_poll == 1);
    char text[1500];
    for (int i = 0; i < 10; i++) {
        CHECK(left.send(*right.mac(), std::string(60, 'l')));
        auto frame = right.receive(text, sizeof text);
        CHECK(frame && frame->len == 60 && text[59] == 'l' && frame->vlan.vlan == 10 && frame->vlan.priority == 7);
        CHECK(right.send(*left.mac(), std::string(60, 'r')));
        frame = left.receive(text, sizeof text);
        CHECK(frame && frame->len == 60 && text[59] == 'r' && frame->vlan.vlan == 10 && frame->vlan.priority == 7);
    }
    CHECK(bypath::Socket::open("left", xdp).status() == BYPATH_E_IN_USE);
    CHECK(bypath::Socket::open("right", xdp.xdp(9)).status() == BYPATH_E_INVALID);
    std::puts("all as it should be");
    return 0;
}
