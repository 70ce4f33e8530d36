// Bypath for C++17: what bypath.h has, with sockets that close themselves and results that carry a value or an error.
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Header only, on top of the C functions. It throws nothing and compiles with -fno-exceptions and -fno-rtti. The rules of
// bypath.h hold, above all: one thread at a time per socket.
#ifndef BYPATH_HPP
#define BYPATH_HPP

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bypath.h"

namespace bypath {

// What went wrong, and what to do about it.
class Error {
public:
    explicit Error(const bypath_error &raw) noexcept : raw_(raw) {}
    // BYPATH_E_...
    bypath_status status() const noexcept { return raw_.status; }
    // The errno that stands for it.
    int system() const noexcept { return raw_.system; }
    // One or two sentences with the remedy.
    const char *message() const noexcept { return raw_.message; }
    // The name of the status.
    const char *name() const noexcept { return bypath_status_name(raw_.status); }

private:
    bypath_error raw_;
};

// A value, or an error. To ask for what is not there is a mistake of the program.
template <typename T>
class [[nodiscard]] Result {
public:
    Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : held_(std::in_place_index<1>, error) {}

    explicit operator bool() const noexcept { return held_.index() == 0; }
    bool has_value() const noexcept { return held_.index() == 0; }
    T &value() noexcept { assert(has_value()); return *std::get_if<0>(&held_); }
    const T &value() const noexcept { assert(has_value()); return *std::get_if<0>(&held_); }
    T &operator*() noexcept { return value(); }
    const T &operator*() const noexcept { return value(); }
    T *operator->() noexcept { return &value(); }
    const T *operator->() const noexcept { return &value(); }
    const Error &error() const noexcept { assert(!has_value()); return *std::get_if<1>(&held_); }
    // BYPATH_OK, or the error's.
    bypath_status status() const noexcept { return has_value() ? BYPATH_OK : error().status(); }

private:
    std::variant<T, Error> held_;
};

// Of functions that give nothing.
using Status = Result<std::monostate>;

namespace detail {
template <typename F>
Status call(F function) {
    bypath_error error;
    if (function(&error) == BYPATH_OK) return std::monostate{};
    return Error(error);
}

template <typename T, typename F>
Result<T> get(F function) {
    T value{};
    bypath_error error;
    if (function(&value, &error) == BYPATH_OK) return value;
    return Error(error);
}
} // namespace detail

// Octets somewhere: what a std::span is in C++20.
struct Octets {
    const void *data = nullptr;
    std::size_t size = 0;

    constexpr Octets() noexcept = default;
    constexpr Octets(const void *first, std::size_t count) noexcept : data(first), size(count) {}
    Octets(std::string_view text) noexcept : data(text.data()), size(text.size()) {}
    Octets(const char *text) noexcept : Octets(std::string_view(text)) {}
    Octets(const std::string &text) noexcept : data(text.data()), size(text.size()) {}
    Octets(const std::vector<std::uint8_t> &octets) noexcept : data(octets.data()), size(octets.size()) {}
};

// A hardware address.
struct Mac : bypath_mac {
    Mac() noexcept : bypath_mac{} {}
    Mac(const bypath_mac &raw) noexcept : bypath_mac(raw) {}

    static Mac broadcast() noexcept { return bypath_mac_broadcast(); }
    static Result<Mac> parse(const char *text) {
        return detail::get<Mac>([&](Mac *mac, bypath_error *e) { return bypath_mac_parse(text, mac, e); });
    }
    std::string text() const {
        char place[BYPATH_MAC_TEXT] = "";
        (void)bypath_mac_format(*this, place, nullptr);
        return place;
    }
    friend bool operator==(const Mac &a, const Mac &b) noexcept {
        for (std::size_t i = 0; i < sizeof a.octets; ++i)
            if (a.octets[i] != b.octets[i]) return false;
        return true;
    }
    friend bool operator!=(const Mac &a, const Mac &b) noexcept { return !(a == b); }
};

// A received frame: what is known of it. `len` octets of payload are in the buffer.
using Frame = bypath_l2_frame;
// An interface.
using Interface = bypath_interface;
// A place for a received frame.
using Slot = bypath_l2_slot;
// What stands before a payload.
using Header = bypath_l2_header;

// All interfaces of this network namespace.
inline Result<std::vector<Interface>> interfaces() {
    std::vector<Interface> list;
    for (;;) {
        std::size_t count = 0;
        bypath_error error;
        if (bypath_interfaces(list.data(), list.size(), &count, &error) != BYPATH_OK) return Error(error);
        const bool whole = count <= list.size();
        list.resize(count);
        if (whole) return list;
    }
}

// What socket is wanted.
class Options {
public:
    Options() noexcept { (void)bypath_l2_options_init(&raw_, nullptr); }

    // What sent frames carry, and which frames are received; again: one more that is received.
    Options &ethertype(std::uint16_t value) { ethertypes_.push_back(value); return *this; }
    // Frames to this group are received.
    Options &group(Mac value) { groups_.push_back(value); return *this; }
    // The tag of sent frames; frames of this VLAN are received.
    Options &vlan(std::uint16_t id, std::uint8_t priority) noexcept {
        raw_.tag = bypath_vlan_tag{BYPATH_TPID_VLAN, id, priority, 0};
        return *this;
    }
    // The longest wait.
    Options &timeout(std::chrono::nanoseconds longest) noexcept {
        raw_.timeout_ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return *this;
    }
    // The ways in and out: BYPATH_MODE_...
    Options &mode(std::uint32_t receive, std::uint32_t send) noexcept {
        raw_.receive_mode = receive;
        raw_.send_mode = send;
        return *this;
    }
    // How calls wait: BYPATH_WAIT_...
    Options &wait(std::uint32_t how) noexcept { raw_.wait = how; return *this; }
    // BYPATH_PROMISCUOUS and the others.
    Options &flags(std::uint32_t more) noexcept { raw_.flags |= more; return *this; }
    // Everything else. The lists of EtherTypes and groups are put in when a socket is opened.
    bypath_l2_options &raw() noexcept { return raw_; }

private:
    friend class Socket;
    bypath_l2_options complete() const noexcept {
        bypath_l2_options all = raw_;
        if (!ethertypes_.empty()) {
            all.ethertypes = ethertypes_.data();
            all.ethertype_count = ethertypes_.size();
        }
        if (!groups_.empty()) {
            all.groups = groups_.data();
            all.group_count = groups_.size();
        }
        return all;
    }

    bypath_l2_options raw_{};
    std::vector<std::uint16_t> ethertypes_;
    std::vector<bypath_mac> groups_;
};

// A raw Ethernet socket, closed with its object. One thread at a time.
class Socket {
public:
    static Result<Socket> open(const char *interface, const Options &options = Options()) {
        const bypath_l2_options all = options.complete();
        bypath_l2_socket *raw = nullptr;
        bypath_error error;
        if (bypath_l2_open(interface, &all, &raw, &error) != BYPATH_OK) return Error(error);
        return Socket(raw);
    }

    Socket(Socket &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Socket &operator=(Socket &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    ~Socket() { close(); }

    // Closes it now; its functions answer BYPATH_E_INVALID afterwards.
    void close() noexcept { (void)bypath_l2_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_l2_socket *raw() noexcept { return raw_; }

    Status send(Mac to, Octets payload) {
        return detail::call([&](bypath_error *e) { return bypath_l2_send(raw_, to, payload.data, payload.size, e); });
    }
    Status send_with(const Header &header, Octets payload) {
        return detail::call(
            [&](bypath_error *e) { return bypath_l2_send_with(raw_, &header, payload.data, payload.size, e); });
    }
    Status send_octets(Octets frame) {
        return detail::call([&](bypath_error *e) { return bypath_l2_send_octets(raw_, frame.data, frame.size, e); });
    }
    Result<std::size_t> send_batch(Mac to, const bypath_octets *payloads, std::size_t count) {
        return detail::get<std::size_t>([&](std::size_t *sent, bypath_error *e) {
            return bypath_l2_send_batch(raw_, to, payloads, count, sent, e);
        });
    }
    Result<Header> header(Mac to) {
        return detail::get<Header>([&](Header *h, bypath_error *e) { return bypath_l2_header_init(raw_, to, h, e); });
    }
    Result<Frame> receive(void *buffer, std::size_t capacity) {
        return detail::get<Frame>(
            [&](Frame *frame, bypath_error *e) { return bypath_l2_receive(raw_, buffer, capacity, frame, e); });
    }
    Result<std::size_t> receive_batch(Slot *slots, std::size_t count) {
        return detail::get<std::size_t>([&](std::size_t *received, bypath_error *e) {
            return bypath_l2_receive_batch(raw_, slots, count, received, e);
        });
    }
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_l2_descriptor(raw_, d, e); });
    }
    Result<Mac> mac() {
        return detail::get<Mac>([&](Mac *mac, bypath_error *e) { return bypath_l2_mac(raw_, mac, e); });
    }
    Result<std::size_t> mtu() {
        return detail::get<std::size_t>([&](std::size_t *m, bypath_error *e) { return bypath_l2_mtu(raw_, m, e); });
    }
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return detail::call([&](bypath_error *e) { return bypath_l2_set_timeout(raw_, ns, e); });
    }
    Status set_wait(std::uint32_t how) {
        return detail::call([&](bypath_error *e) { return bypath_l2_set_wait(raw_, how, e); });
    }
    Status join(Mac group) {
        return detail::call([&](bypath_error *e) { return bypath_l2_join(raw_, group, e); });
    }
    Status leave(Mac group) {
        return detail::call([&](bypath_error *e) { return bypath_l2_leave(raw_, group, e); });
    }
    Result<bypath_l2_statistics> statistics() {
        return detail::get<bypath_l2_statistics>(
            [&](bypath_l2_statistics *s, bypath_error *e) { return bypath_l2_read_statistics(raw_, s, e); });
    }

private:
    explicit Socket(bypath_l2_socket *raw) noexcept : raw_(raw) {}
    bypath_l2_socket *raw_;
};

} // namespace bypath

#endif // BYPATH_HPP
