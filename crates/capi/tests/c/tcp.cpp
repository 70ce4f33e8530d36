// TCP of a netstack by the classes. Run in a network namespace of its own.
#include "check.h"

#include <bypath.hpp>
#include <poll.h>
#include <string>

template <typename T>
static T works(bypath::Result<T> result) {
    if (!result) std::fprintf(stderr, "%s: %s\n", result.error().name(), result.error().message());
    CHECK(result);
    return std::move(*result);
}

static bypath::Endpoint at(const char *text) { return works(bypath::Endpoint::parse(text)); }

static bool is_ready(int fd, int milliseconds) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, milliseconds) == 1;
}

int main() {
    using namespace std::chrono_literals;
    // Two netstacks, one on each end of the cable `left` and `right`.
    auto opened = [](const char *link, const char *own, const char *router) {
        return works(bypath::Netstack::open(bypath::NetstackOptions(link).address(own).router(router).timeout(20s)));
    };
    auto left = opened("packet:left", "10.1.0.1/24", "10.1.0.2");
    auto right = opened("packet:right", "10.1.0.2/24", "10.1.0.1");

    auto listener = works(right.listen(at("0.0.0.0:80"), bypath::TcpOptions().timeout(20s).backlog(5)));
    CHECK(works(listener.local()).port == 80);
    const int calls = works(listener.descriptor());
    CHECK(!is_ready(calls, 0));
    auto client = works(left.connect(at("10.1.0.2:80"),
                                     bypath::TcpOptions().timeout(20s).nodelay().congestion(BYPATH_TCP_RENO).buffers(50000, 60000)));
    CHECK(is_ready(calls, 20000));
    auto server = works(listener.accept());
    CHECK(works(client.remote()).text() == "10.1.0.2:80" && works(server.remote()).port == works(client.local()).port);

    const std::string text(40000, 'x');
    static char buffer[65536];
    CHECK(client.write_all(text));
    std::size_t got = 0;
    while (got < text.size()) got += works(server.read(buffer + got, sizeof buffer - got));
    CHECK(got == text.size() && text.compare(0, got, buffer, got) == 0);
    const bypath_octets pieces[] = {{"one ", 4}, {"two", 3}};
    CHECK(works(server.write_pieces(pieces, 2)) == 7 && is_ready(works(client.descriptor(BYPATH_READABLE)), 20000));
    CHECK(works(client.peek(buffer, 3)) == 3 && works(client.read(buffer, sizeof buffer)) == 7);
    CHECK(is_ready(works(client.descriptor(BYPATH_WRITABLE)), 0) && works(client.write("y")) == 1);

    auto wanted = works(client.options());
    CHECK((wanted.raw().flags & BYPATH_TCP_NODELAY) && wanted.raw().congestion == BYPATH_TCP_RENO);
    CHECK(client.set_options(wanted.nodelay(false).linger(0s).user_timeout(5s).keepalive(60s, 5s, 3).cork(false).probe_mtu_after_timeouts().base_mss(600)));
    CHECK(works(client.options()).raw().keepalive_probes == 3);
    const auto how = works(client.statistics());
    CHECK(how.state == BYPATH_TCP_ESTABLISHED && how.octets_received == 7);
    CHECK(client.shutdown() && client.write("z").status() == BYPATH_E_CLOSED);
    CHECK(works(server.read(buffer, sizeof buffer)) == 1 && works(server.read(buffer, sizeof buffer)) == 0);
    CHECK(server.set_timeout(0s) && client.set_timeout(std::chrono::nanoseconds::max()));
    CHECK(server.abort() && client.read(buffer, sizeof buffer).status() == BYPATH_E_RESET);

    CHECK(left.connect(at("10.1.0.2:81"), bypath::TcpOptions().timeout(20s)).status() == BYPATH_E_REFUSED);
    auto begun = works(left.begin_connect(at("10.1.0.2:80")));
    CHECK(begun.finish_connect());
    CHECK(listener.set_timeout(20s) && works(listener.accept()).set_timeout(1s));
    CHECK(listener.set_timeout(0s) && listener.accept().status() == BYPATH_E_WOULD_BLOCK);
    bypath::Tcp moved = std::move(begun);
    CHECK(begun.write("x").status() == BYPATH_E_INVALID && works(moved.local()).port != 0);
    bypath::TcpListener other = std::move(listener);
    CHECK(listener.accept().status() == BYPATH_E_INVALID && works(other.local()).port == 80);

    // Calls to others, of which one is accepted.
    auto forwarder = works(right.forward(bypath::TcpOptions().timeout(20s)));
    CHECK(right.forward().status() == BYPATH_E_IN_USE);
    auto far = works(left.begin_connect(at("198.51.100.7:80"), bypath::TcpOptions().timeout(20s)));
    CHECK(is_ready(works(forwarder.descriptor()), 20000));
    auto call = works(forwarder.next());
    CHECK(call.to().text() == "198.51.100.7:80" && call.from().text() == works(far.local()).text());
    bypath::TcpCall taken = std::move(call);
    CHECK(call.accept().status() == BYPATH_E_INVALID);
    auto near = works(taken.accept());
    CHECK(far.finish_connect() && works(near.local()).text() == "198.51.100.7:80");
    CHECK(taken.accept().status() == BYPATH_E_INVALID);
    CHECK(near.write_all("near") && works(far.read(buffer, sizeof buffer)) == 4);
    for (int way = 0; way < 2; way++) {
        auto nobody = works(left.begin_connect(at("198.51.100.7:81"), bypath::TcpOptions().timeout(20s)));
        {
            auto refused = works(forwarder.next());
            if (way == 1) refused.refuse();
        }
        CHECK(nobody.finish_connect().status() == BYPATH_E_REFUSED);
    }
    bypath::TcpForwarder passed = std::move(forwarder);
    CHECK(forwarder.next().status() == BYPATH_E_INVALID && passed.set_timeout(0s));
    CHECK(passed.next().status() == BYPATH_E_WOULD_BLOCK);
    passed.close();
    CHECK(right.forward());
    auto udp = works(right.bind(at("0.0.0.0:7")));
    CHECK(!is_ready(works(udp.descriptor(BYPATH_READABLE)), 0) && is_ready(works(udp.descriptor(BYPATH_WRITABLE)), 0));
    right.close();
    CHECK(server.write("x").status() == BYPATH_E_GONE && other.accept().status() == BYPATH_E_GONE);
    CHECK(right.listen(at("0.0.0.0:82")).status() == BYPATH_E_INVALID);
    std::puts("all as it should be");
    return 0;
}
