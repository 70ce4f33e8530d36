// Bypath for C++17: what bypath.h has, with sockets that close themselves and results that carry a value or an error.
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Header only, on top of the C functions. It throws nothing and compiles with -fno-exceptions and -fno-rtti. The rules of
// bypath.h hold, above all: one thread at a time per socket.
#ifndef BYPATH_HPP
#define BYPATH_HPP

#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
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

// The interface of this name.
inline Result<Interface> interface_named(const char *name) {
    return detail::get<Interface>([&](Interface *i, bypath_error *e) { return bypath_interface_named(name, i, e); });
}

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
    Options &ethertype(std::uint16_t value) {
        if (raw_.ethertype == 0) raw_.ethertype = value;
        else more_ethertypes_.push_back(value);
        return *this;
    }
    // Frames to this group are received.
    Options &group(Mac value) { groups_.push_back(value); return *this; }
    // The tag of sent frames; frames of this VLAN are received.
    Options &vlan(std::uint16_t id, std::uint8_t priority) noexcept {
        raw_.tag = bypath_vlan(id, priority);
        return *this;
    }
    // Which VLANs' frames are received, in place of the own one's: BYPATH_VLAN_..., with a number for BYPATH_VLAN_ID.
    Options &receive_vlan(std::uint32_t which, std::uint16_t id = 0) noexcept {
        raw_.receive_vlan = which;
        raw_.receive_vlan_id = id;
        return *this;
    }
    // Who takes the time of received frames: BYPATH_TIMESTAMP_...
    Options &timestamps(std::uint32_t who) noexcept { raw_.timestamps = who; return *this; }
    // The longest wait.
    Options &timeout(std::chrono::nanoseconds longest) noexcept {
        raw_.timeout_ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return *this;
    }
    // The ways in and out: BYPATH_MODE_...; BYPATH_MODE_XDP is both.
    Options &mode(std::uint32_t receive, std::uint32_t send) noexcept {
        raw_.receive_mode = receive;
        raw_.send_mode = send;
        return *this;
    }
    // AF_XDP both ways: frames of the EtherTypes and the VLAN asked for, through one device queue, past the kernel's path.
    Options &xdp(std::uint32_t queue = 0) noexcept {
        raw_.queue = queue;
        return mode(BYPATH_MODE_XDP, BYPATH_MODE_XDP);
    }
    // With AF_XDP: who copies frames, BYPATH_TRANSFER_..., and where they are looked at, BYPATH_PLACE_...
    Options &transfer(std::uint32_t who) noexcept { raw_.transfer = who; return *this; }
    Options &place(std::uint32_t where) noexcept { raw_.place = where; return *this; }
    // With AF_XDP: receiving calls work in the device's queue themselves, for so long at most.
    Options &busy_poll(std::chrono::microseconds longest, std::uint32_t budget = 0) noexcept {
        raw_.busy_poll_us = longest.count() < 0 ? 0 : static_cast<std::uint32_t>(longest.count());
        raw_.busy_poll_budget = budget;
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
        if (!more_ethertypes_.empty()) {
            all.more_ethertypes = more_ethertypes_.data();
            all.more_ethertype_count = more_ethertypes_.size();
        }
        if (!groups_.empty()) {
            all.groups = groups_.data();
            all.group_count = groups_.size();
        }
        return all;
    }

    bypath_l2_options raw_{};
    std::vector<std::uint16_t> more_ethertypes_;
    std::vector<bypath_mac> groups_;
};

// What was obtained of what was asked, and why not all of it.
struct Obtained : bypath_l2_obtained {
    // One sentence to a line; empty if everything was obtained.
    std::string notes;
};

// A raw Ethernet socket, closed with its object. One thread at a time. An object that was closed, or moved from, answers
// BYPATH_E_INVALID.
class Socket {
public:
    // Opens a socket on an interface, such as eth0.
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

    // Closes it now.
    void close() noexcept { (void)bypath_l2_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_l2_socket *raw() noexcept { return raw_; }

    // Sends one frame with the socket's EtherType and tag.
    Status send(Mac to, Octets payload) {
        return detail::call([&](bypath_error *e) { return bypath_l2_send(raw_, to, payload.data, payload.size, e); });
    }
    // Sends one frame with a header of your own: change what header() gives.
    Status send_with(const Header &header, Octets payload) {
        return detail::call(
            [&](bypath_error *e) { return bypath_l2_send_with(raw_, &header, payload.data, payload.size, e); });
    }
    // Sends a whole frame as it is.
    Status send_octets(Octets frame) {
        return detail::call([&](bypath_error *e) { return bypath_l2_send_octets(raw_, frame.data, frame.size, e); });
    }
    // Sends many frames to one address; how many were sent may be fewer.
    Result<std::size_t> send_batch(Mac to, const bypath_octets *payloads, std::size_t count) {
        return detail::get<std::size_t>([&](std::size_t *sent, bypath_error *e) {
            return bypath_l2_send_batch(raw_, to, payloads, count, sent, e);
        });
    }
    // The header of what send() sends.
    Result<Header> header(Mac to) {
        return detail::get<Header>([&](Header *h, bypath_error *e) { return bypath_l2_header_init(raw_, to, h, e); });
    }
    // Waits for a frame and copies its payload into the buffer, as much as fits.
    Result<Frame> receive(void *buffer, std::size_t capacity) {
        return detail::get<Frame>(
            [&](Frame *frame, bypath_error *e) { return bypath_l2_receive(raw_, buffer, capacity, frame, e); });
    }
    // Waits for a frame, and fills slots with it and those that are there already.
    Result<std::size_t> receive_batch(Slot *slots, std::size_t count) {
        return detail::get<std::size_t>([&](std::size_t *received, bypath_error *e) {
            return bypath_l2_receive_batch(raw_, slots, count, received, e);
        });
    }
    // Waits for a frame, and gives it and those that are there already, up to `most`, to `take(const Frame &, const void *)`,
    // without a copy. An exception that leaves `take` ends the program.
    template <typename F>
    Result<std::size_t> receive_each(std::size_t most, F &&take) {
        using Take = std::remove_reference_t<F>;
        const bypath_l2_taker taker = [](void *context, const bypath_l2_frame *frame, const void *payload) noexcept {
            (*static_cast<Take *>(context))(*frame, payload);
        };
        void *context = const_cast<void *>(static_cast<const void *>(std::addressof(take)));
        return detail::get<std::size_t>([&](std::size_t *received, bypath_error *e) {
            return bypath_l2_receive_each(raw_, most, taker, context, received, e);
        });
    }
    // The descriptor to poll; still owned by this object.
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_l2_descriptor(raw_, d, e); });
    }
    // This end's address.
    Result<Mac> mac() {
        return detail::get<Mac>([&](Mac *mac, bypath_error *e) { return bypath_l2_mac(raw_, mac, e); });
    }
    // Octets of the longest payload.
    Result<std::size_t> mtu() {
        return detail::get<std::size_t>([&](std::size_t *m, bypath_error *e) { return bypath_l2_mtu(raw_, m, e); });
    }
    // Changes the longest wait.
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return detail::call([&](bypath_error *e) { return bypath_l2_set_timeout(raw_, ns, e); });
    }
    // Changes how calls wait: BYPATH_WAIT_...
    Status set_wait(std::uint32_t how) {
        return detail::call([&](bypath_error *e) { return bypath_l2_set_wait(raw_, how, e); });
    }
    // Begins to receive frames to a group.
    Status join(Mac group) {
        return detail::call([&](bypath_error *e) { return bypath_l2_join(raw_, group, e); });
    }
    // Ends join().
    Status leave(Mac group) {
        return detail::call([&](bypath_error *e) { return bypath_l2_leave(raw_, group, e); });
    }
    // What has passed, and what was dropped.
    Result<bypath_l2_statistics> statistics() {
        return detail::get<bypath_l2_statistics>(
            [&](bypath_l2_statistics *s, bypath_error *e) { return bypath_l2_read_statistics(raw_, s, e); });
    }
    // What was obtained of what was asked.
    Result<Obtained> obtained() {
        return detail::get<Obtained>([&](Obtained *o, bypath_error *e) {
            char notes[2000] = "";
            const bypath_status status = bypath_l2_read_obtained(raw_, o, notes, sizeof notes, e);
            o->notes = notes;
            return status;
        });
    }

private:
    explicit Socket(bypath_l2_socket *raw) noexcept : raw_(raw) {}
    bypath_l2_socket *raw_;
};

// What capture file is wanted.
class CaptureOptions {
public:
    CaptureOptions() noexcept { (void)bypath_capture_options_init(&raw_, nullptr); }
    // Octets that are written of each frame at most; 0: all.
    CaptureOptions &snap(std::uint32_t octets) noexcept { raw_.snap = octets; return *this; }
    // What frames begin with: BYPATH_LINK_TYPE_ETHERNET unless changed.
    CaptureOptions &link_type(std::uint16_t number) noexcept { raw_.link_type = number; return *this; }
    // The interface's address.
    CaptureOptions &mac(Mac address) noexcept { raw_.mac = address; return *this; }
    // A remark about the interface.
    CaptureOptions &comment(std::string text) { comment_ = std::move(text); return *this; }

private:
    friend class CaptureWriter;
    bypath_capture_options complete() const noexcept {
        bypath_capture_options all = raw_;
        if (!comment_.empty()) all.comment = comment_.c_str();
        return all;
    }

    bypath_capture_options raw_{};
    std::string comment_;
};

// A capture file (pcapng) that is written. Its object's end closes it, but only finish() tells whether all was written. An
// object that was finished, or moved from, answers BYPATH_E_INVALID.
class CaptureWriter {
public:
    // Begins a file for one interface, by the name that the file says.
    static Result<CaptureWriter> create(const char *path, const char *interface,
                                        const CaptureOptions &options = CaptureOptions()) {
        const bypath_capture_options all = options.complete();
        bypath_capture_writer *raw = nullptr;
        bypath_error error;
        if (bypath_capture_create(path, interface, &all, &raw, &error) != BYPATH_OK) return Error(error);
        return CaptureWriter(raw);
    }

    CaptureWriter(CaptureWriter &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    CaptureWriter &operator=(CaptureWriter &&other) noexcept {
        if (this != &other) {
            (void)bypath_capture_finish(raw_, nullptr);
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    CaptureWriter(const CaptureWriter &) = delete;
    CaptureWriter &operator=(const CaptureWriter &) = delete;
    ~CaptureWriter() { (void)bypath_capture_finish(raw_, nullptr); }

    // Writes one frame, header included, with its time since 1970.
    Status write(std::chrono::nanoseconds since_1970, Octets frame) {
        return detail::call([&](bypath_error *e) {
            return bypath_capture_write(raw_, ns(since_1970), frame.data, frame.size, e);
        });
    }
    // Writes one frame, and what is known of it.
    Status write_with(const bypath_capture_frame &about, Octets frame) {
        return detail::call([&](bypath_error *e) {
            return bypath_capture_write_with(raw_, &about, frame.data, frame.size, e);
        });
    }
    // Writes one frame as a socket's receive() gave it, with the kernel's time, or the one given here where it took none.
    Status write_received(const Frame &frame, const void *payload, std::chrono::nanoseconds since_1970) {
        return detail::call([&](bypath_error *e) {
            return bypath_capture_write_received(raw_, &frame, payload, ns(since_1970), e);
        });
    }
    // Lets readers of the file see what was written.
    Status flush() {
        return detail::call([&](bypath_error *e) { return bypath_capture_flush(raw_, e); });
    }
    // Ends the file.
    Status finish() {
        if (raw_ == nullptr) return flush();
        return detail::call([&](bypath_error *e) { return bypath_capture_finish(std::exchange(raw_, nullptr), e); });
    }
    // For the C functions; still owned by this object.
    bypath_capture_writer *raw() noexcept { return raw_; }

private:
    explicit CaptureWriter(bypath_capture_writer *raw) noexcept : raw_(raw) {}
    static std::uint64_t ns(std::chrono::nanoseconds time) noexcept {
        return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
    }
    bypath_capture_writer *raw_;
};

// A frame of a capture file: what the file says, and the octets that are in it.
struct CapturedFrame : bypath_capture_frame {
    std::vector<std::uint8_t> octets;
};

// A capture file (pcapng) that is read, closed with its object. An object that was moved from answers BYPATH_E_INVALID.
class CaptureReader {
public:
    static Result<CaptureReader> open(const char *path) {
        bypath_capture_reader *raw = nullptr;
        bypath_error error;
        if (bypath_capture_open(path, &raw, &error) != BYPATH_OK) return Error(error);
        return CaptureReader(raw);
    }

    CaptureReader(CaptureReader &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    CaptureReader &operator=(CaptureReader &&other) noexcept {
        if (this != &other) {
            (void)bypath_capture_close(raw_, nullptr);
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    CaptureReader(const CaptureReader &) = delete;
    CaptureReader &operator=(const CaptureReader &) = delete;
    ~CaptureReader() { (void)bypath_capture_close(raw_, nullptr); }

    // The next frame, as much of it as fits into the buffer; BYPATH_E_END behind the last one.
    Result<bypath_capture_frame> read(void *buffer, std::size_t capacity) {
        return detail::get<bypath_capture_frame>([&](bypath_capture_frame *frame, bypath_error *e) {
            return bypath_capture_read(raw_, frame, buffer, capacity, e);
        });
    }
    // The next frame with up to `longest` of its octets.
    Result<CapturedFrame> read(std::size_t longest = 65536 + 22) {
        CapturedFrame frame{};
        frame.octets.resize(longest);
        bypath_error error;
        if (bypath_capture_read(raw_, &frame, frame.octets.data(), longest, &error) != BYPATH_OK) return Error(error);
        frame.octets.resize(frame.len);
        return Result<CapturedFrame>(std::move(frame));
    }
    // What the file says about an interface, by its number in the frame that was read last.
    Result<bypath_capture_interface> interface_of(std::uint32_t number) {
        return detail::get<bypath_capture_interface>([&](bypath_capture_interface *i, bypath_error *e) {
            return bypath_capture_interface_of(raw_, number, i, e);
        });
    }
    // For the C functions; still owned by this object.
    bypath_capture_reader *raw() noexcept { return raw_; }

private:
    explicit CaptureReader(bypath_capture_reader *raw) noexcept : raw_(raw) {}
    bypath_capture_reader *raw_;
};

// An address and a port.
struct Endpoint : bypath_endpoint {
    Endpoint() noexcept : bypath_endpoint{} {}
    Endpoint(const bypath_endpoint &raw) noexcept : bypath_endpoint(raw) {}

    // Such as 10.9.0.1:9000 or [fd09::1]:9000.
    static Result<Endpoint> parse(const char *text) {
        return detail::get<Endpoint>(
            [&](Endpoint *to, bypath_error *e) { return bypath_endpoint_parse(text, to, e); });
    }
    std::string text() const {
        char place[BYPATH_ENDPOINT_TEXT] = "";
        (void)bypath_endpoint_format(*this, place, nullptr);
        return place;
    }
};

// What TUN device is wanted, and how datagrams are sent over it.
class TunOptions {
public:
    // The own end, such as 10.9.0.2:7000.
    explicit TunOptions(std::string local) : local_(std::move(local)) { (void)bypath_tun_options_init(&raw_, nullptr); }

    // The interface's name: %d stands for the first number that is free.
    TunOptions &name(std::string value) { name_ = std::move(value); return *this; }
    // The kernel's end, such as 10.9.0.1/24.
    TunOptions &address(std::string value) { address_ = std::move(value); return *this; }
    // Octets of the largest packet.
    TunOptions &mtu(std::uint32_t octets) noexcept { raw_.mtu = octets; return *this; }
    // How packets are handed over: BYPATH_TUN_...
    TunOptions &mode(std::uint32_t how) noexcept { raw_.mode = how; return *this; }
    // Who computes checksums: BYPATH_CHECKSUM_...
    TunOptions &checksum(std::uint32_t who) noexcept { raw_.checksum = who; return *this; }
    TunOptions &ttl(std::uint8_t routers) noexcept { raw_.ttl = routers; return *this; }
    TunOptions &dscp(std::uint8_t code) noexcept { raw_.dscp = code; return *this; }
    // The longest wait of receiving calls.
    TunOptions &timeout(std::chrono::nanoseconds longest) noexcept {
        raw_.timeout_ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return *this;
    }
    // BYPATH_TUN_ATTACH and the others.
    TunOptions &flags(std::uint32_t more) noexcept { raw_.flags |= more; return *this; }

private:
    friend class Tun;
    bypath_tun_options complete() const noexcept {
        bypath_tun_options all = raw_;
        all.local = local_.c_str();
        all.name = name_.empty() ? nullptr : name_.c_str();
        all.address = address_.empty() ? nullptr : address_.c_str();
        return all;
    }

    bypath_tun_options raw_{};
    std::string local_, name_, address_;
};

// A received datagram: what is known of it.
using Datagram = bypath_tun_datagram;

// A TUN device and the datagrams of one own address over it, closed with its object. One thread at a time. An object that
// was closed, or moved from, answers BYPATH_E_INVALID.
class Tun {
public:
    static Result<Tun> open(const TunOptions &options) {
        const bypath_tun_options all = options.complete();
        bypath_tun *raw = nullptr;
        bypath_error error;
        if (bypath_tun_open(&all, &raw, &error) != BYPATH_OK) return Error(error);
        return Tun(raw);
    }

    Tun(Tun &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Tun &operator=(Tun &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Tun(const Tun &) = delete;
    Tun &operator=(const Tun &) = delete;
    ~Tun() { close(); }

    // Closes it now.
    void close() noexcept { (void)bypath_tun_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_tun *raw() noexcept { return raw_; }

    // Sends one datagram.
    Status send(Endpoint to, Octets payload) {
        return detail::call([&](bypath_error *e) { return bypath_tun_send(raw_, to, payload.data, payload.size, e); });
    }
    // Sends many datagrams to one receiver; how many were sent may be fewer.
    Result<std::size_t> send_batch(Endpoint to, const bypath_octets *payloads, std::size_t count) {
        return detail::get<std::size_t>([&](std::size_t *sent, bypath_error *e) {
            return bypath_tun_send_batch(raw_, to, payloads, count, sent, e);
        });
    }
    // Cuts octets into datagrams of `size`, and sends them.
    Result<std::size_t> send_cut(Endpoint to, Octets data, std::size_t size) {
        return detail::get<std::size_t>([&](std::size_t *sent, bypath_error *e) {
            return bypath_tun_send_cut(raw_, to, data.data, data.size, size, sent, e);
        });
    }
    // Waits for a datagram and copies its payload into the buffer, as much as fits.
    Result<Datagram> receive(void *buffer, std::size_t capacity) {
        return detail::get<Datagram>(
            [&](Datagram *d, bypath_error *e) { return bypath_tun_receive(raw_, buffer, capacity, d, e); });
    }
    // Waits for a datagram, and gives it and those that are there already, up to `most`, to
    // `take(const Datagram &, const void *)`, without a copy. An exception that leaves `take` ends the program.
    template <typename F>
    Result<std::size_t> receive_each(std::size_t most, F &&take) {
        using Take = std::remove_reference_t<F>;
        const bypath_tun_taker taker = [](void *context, const bypath_tun_datagram *d, const void *payload) noexcept {
            (*static_cast<Take *>(context))(*d, payload);
        };
        void *context = const_cast<void *>(static_cast<const void *>(std::addressof(take)));
        return detail::get<std::size_t>([&](std::size_t *received, bypath_error *e) {
            return bypath_tun_receive_each(raw_, most, taker, context, received, e);
        });
    }
    // What became of what was asked.
    Result<bypath_tun_obtained> obtained() {
        return detail::get<bypath_tun_obtained>(
            [&](bypath_tun_obtained *o, bypath_error *e) { return bypath_tun_read_obtained(raw_, o, e); });
    }
    // The descriptor to poll; still owned by this object.
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_tun_descriptor(raw_, d, e); });
    }
    // Changes how packets are handed over: BYPATH_TUN_...
    Status set_mode(std::uint32_t how) {
        return detail::call([&](bypath_error *e) { return bypath_tun_set_mode(raw_, how, e); });
    }
    // Changes the longest wait.
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return detail::call([&](bypath_error *e) { return bypath_tun_set_timeout(raw_, ns, e); });
    }

private:
    explicit Tun(bypath_tun *raw) noexcept : raw_(raw) {}
    bypath_tun *raw_ = nullptr;
};

// Asks the netstack service of this name, or at this path: see bypath_service_ask. The answer is an array of JSON objects.
inline Result<std::string> ask(const std::string &service, const std::string &question) {
    std::string answer(1 << 16, '\0');
    for (;;) {
        std::size_t length = 0;
        bypath_error error;
        const auto status = bypath_service_ask(service.c_str(), question.c_str(), &answer[0], answer.size(), &length, &error);
        if (status != BYPATH_OK) return Error(error);
        const bool whole = length < answer.size();
        answer.resize(whole ? length : length + (1 << 16));
        if (whole) return answer;
    }
}

// What netstack is wanted.
class NetstackOptions {
public:
    // What it stands on: tap:NAME, tun:NAME, packet:IFACE, xdp:IFACE.
    explicit NetstackOptions(std::string link) : link_(std::move(link)) {
        (void)bypath_netstack_options_init(&raw_, nullptr);
    }

    // An own address, such as 10.9.0.2/24; again: one more.
    NetstackOptions &address(std::string own) { addresses_.push_back(std::move(own)); return *this; }
    // The kernel's address at its end of a device, such as 10.9.0.1/24; again: one more.
    NetstackOptions &kernel(std::string address) { kernels_.push_back(std::move(address)); return *this; }
    // The router for all other networks; again: one more, of IPv6.
    NetstackOptions &router(std::string address) { routers_.push_back(std::move(address)); return *this; }
    // An IPv4 address comes from a DHCP server, which is told this name.
    NetstackOptions &dhcp(std::string host_name = std::string()) {
        raw_.flags |= BYPATH_NETSTACK_DHCP;
        host_name_ = std::move(host_name);
        return *this;
    }
    // The device exists, and persists.
    NetstackOptions &attach() noexcept { raw_.flags |= BYPATH_NETSTACK_ATTACH; return *this; }
    // No thread of the library's: calls move the frames, and spin where they would sleep; see Netstack::poll.
    NetstackOptions &in_process() noexcept { raw_.flags |= BYPATH_NETSTACK_IN_PROCESS; return *this; }
    // Octets of the largest packet of a device.
    NetstackOptions &mtu(std::uint32_t octets) noexcept { raw_.mtu = octets; return *this; }
    // The longest wait for addresses.
    NetstackOptions &timeout(std::chrono::nanoseconds longest) noexcept {
        raw_.timeout_ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return *this;
    }

private:
    friend class Netstack;
    static std::vector<const char *> pointers(const std::vector<std::string> &texts) {
        std::vector<const char *> all;
        for (const std::string &text : texts) all.push_back(text.c_str());
        return all;
    }

    bypath_netstack_options raw_{};
    std::string link_, host_name_;
    std::vector<std::string> addresses_, kernels_, routers_;
};

// A datagram that a UDP socket of a netstack received: what is known of it.
using UdpDatagram = bypath_udp_datagram;

// A UDP socket of a netstack, closed with its object. Several threads may use one at the same time; closing it, or moving it, must
// be the last call. An object that was closed, or moved from, answers BYPATH_E_INVALID.
class Udp {
public:
    Udp(Udp &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Udp &operator=(Udp &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Udp(const Udp &) = delete;
    Udp &operator=(const Udp &) = delete;
    ~Udp() { close(); }

    // Closes it now.
    void close() noexcept { (void)bypath_udp_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_udp *raw() noexcept { return raw_; }

    // Sends to this partner from now on, and hears of it alone.
    Status connect(Endpoint remote) {
        return detail::call([&](bypath_error *e) { return bypath_udp_connect(raw_, remote, e); });
    }
    // Has no partner any more.
    Status disconnect() {
        return detail::call([&](bypath_error *e) { return bypath_udp_disconnect(raw_, e); });
    }
    // Its own address and port.
    Result<Endpoint> local() {
        return detail::get<Endpoint>([&](Endpoint *at, bypath_error *e) { return bypath_udp_local(raw_, at, e); });
    }
    // To whom it is connected.
    Result<Endpoint> remote() {
        return detail::get<Endpoint>([&](Endpoint *at, bypath_error *e) { return bypath_udp_remote(raw_, at, e); });
    }
    // Sends one datagram to whom it is connected.
    Status send(Octets payload) {
        return detail::call([&](bypath_error *e) { return bypath_udp_send(raw_, payload.data, payload.size, e); });
    }
    // Sends one datagram.
    Status send_to(Endpoint to, Octets payload) {
        return detail::call(
            [&](bypath_error *e) { return bypath_udp_send_to(raw_, to, payload.data, payload.size, e); });
    }
    // Waits for a datagram and copies its payload into the buffer, as much as fits.
    Result<UdpDatagram> receive(void *buffer, std::size_t capacity) {
        return detail::get<UdpDatagram>(
            [&](UdpDatagram *d, bypath_error *e) { return bypath_udp_receive(raw_, buffer, capacity, d, e); });
    }
    // Changes the longest wait; zero: no wait; std::chrono::nanoseconds::max(): no limit.
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = longest == std::chrono::nanoseconds::max() ? BYPATH_FOREVER
                                 : longest.count() < 0                      ? 0
                                                       : static_cast<std::uint64_t>(longest.count());
        return detail::call([&](bypath_error *e) { return bypath_udp_set_timeout(raw_, ns, e); });
    }
    // A descriptor to poll for POLLIN, for BYPATH_READABLE or BYPATH_WRITABLE; still owned by this object.
    Result<int> descriptor(std::uint32_t what) {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_udp_descriptor(raw_, what, d, e); });
    }
    // Begins to hear a group, whose port does not matter.
    Status join(Endpoint group) {
        return detail::call([&](bypath_error *e) { return bypath_udp_join(raw_, group, e); });
    }
    // Ends join().
    Status leave(Endpoint group) {
        return detail::call([&](bypath_error *e) { return bypath_udp_leave(raw_, group, e); });
    }

private:
    friend class Netstack;
    explicit Udp(bypath_udp *raw) noexcept : raw_(raw) {}
    bypath_udp *raw_ = nullptr;
};

// What TCP connections want.
class TcpOptions {
public:
    TcpOptions() noexcept { (void)bypath_tcp_options_init(&raw_, nullptr); }
    // Of a connection, to be changed.
    explicit TcpOptions(const bypath_tcp_options &raw) noexcept : raw_(raw) {}

    // BYPATH_TCP_NODELAY and the others.
    TcpOptions &flags(std::uint32_t more) noexcept { raw_.flags |= more; return *this; }
    // Short segments are sent at once.
    TcpOptions &nodelay(bool on = true) noexcept { return flag(BYPATH_TCP_NODELAY, on); }
    // Short segments are not sent before this is taken back.
    TcpOptions &cork(bool on = true) noexcept { return flag(BYPATH_TCP_CORK, on); }
    // Octets that may be written and not acknowledged; octets that may have come and not been read.
    TcpOptions &buffers(std::size_t send, std::size_t receive) noexcept {
        raw_.send_octets = send;
        raw_.receive_octets = receive;
        return *this;
    }
    // Connections that wait to be accepted at most.
    TcpOptions &backlog(std::size_t most) noexcept { raw_.backlog = most; return *this; }
    // The longest wait of calls; zero: no wait.
    TcpOptions &timeout(std::chrono::nanoseconds longest) noexcept { raw_.timeout_ns = ns(longest); return *this; }
    // Questions after such a silence, so often and so far apart.
    TcpOptions &keepalive(std::chrono::nanoseconds idle, std::chrono::nanoseconds interval, std::uint32_t probes) noexcept {
        raw_.keepalive_idle_ns = ns(idle);
        raw_.keepalive_interval_ns = ns(interval);
        raw_.keepalive_probes = probes;
        return *this;
    }
    // How long what was written is still sent after closing; zero: it is reset at once.
    TcpOptions &linger(std::chrono::nanoseconds longest) noexcept { raw_.linger_ns = ns(longest); return *this; }
    // Octets that are not acknowledged for so long end it.
    TcpOptions &user_timeout(std::chrono::nanoseconds longest) noexcept { raw_.user_timeout_ns = ns(longest); return *this; }
    // Segments find out what the path takes (RFC 4821); the same after several time-outs; the short segments that it begins with.
    TcpOptions &probe_mtu(bool on = true) noexcept { return flag(BYPATH_TCP_PROBE_MTU, on); }
    TcpOptions &probe_mtu_after_timeouts(bool on = true) noexcept { return flag(BYPATH_TCP_PROBE_MTU_AFTER_TIMEOUTS, on); }
    TcpOptions &base_mss(std::uint16_t octets) noexcept { raw_.base_mss = octets; return *this; }
    // Congestion control: BYPATH_TCP_CUBIC, BYPATH_TCP_RENO.
    TcpOptions &congestion(std::uint32_t which) noexcept { raw_.congestion = which; return *this; }
    // Everything else.
    bypath_tcp_options &raw() noexcept { return raw_; }
    const bypath_tcp_options &raw() const noexcept { return raw_; }

private:
    static std::uint64_t ns(std::chrono::nanoseconds time) noexcept {
        return time == std::chrono::nanoseconds::max() ? BYPATH_FOREVER
               : time.count() < 0                      ? 0
                                                       : static_cast<std::uint64_t>(time.count());
    }
    TcpOptions &flag(std::uint32_t which, bool on) noexcept {
        raw_.flags = on ? raw_.flags | which : raw_.flags & ~which;
        return *this;
    }

    bypath_tcp_options raw_{};
};

// How a connection does.
using TcpStatistics = bypath_tcp_statistics;

// A TCP connection of a netstack, closed with its object. Several threads may use one at the same time; closing it, or moving it,
// must be the last call. An object that was closed, or moved from, answers BYPATH_E_INVALID.
class Tcp {
public:
    Tcp(Tcp &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Tcp &operator=(Tcp &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Tcp(const Tcp &) = delete;
    Tcp &operator=(const Tcp &) = delete;
    ~Tcp() { close(); }

    // Closes it now; what was written is still sent.
    void close() noexcept { (void)bypath_tcp_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_tcp *raw() noexcept { return raw_; }

    // Of one that was begun: waits until it is open.
    Status finish_connect() {
        return detail::call([&](bypath_error *e) { return bypath_tcp_finish_connect(raw_, e); });
    }
    // Waits for octets, and takes as many as there are and fit; 0: the other side has finished.
    Result<std::size_t> read(void *buffer, std::size_t capacity) {
        return detail::get<std::size_t>(
            [&](std::size_t *len, bypath_error *e) { return bypath_tcp_read(raw_, buffer, capacity, len, e); });
    }
    // The same, and they stay.
    Result<std::size_t> peek(void *buffer, std::size_t capacity) {
        return detail::get<std::size_t>(
            [&](std::size_t *len, bypath_error *e) { return bypath_tcp_peek(raw_, buffer, capacity, len, e); });
    }
    // Waits for room, and queues as many octets as there is room for.
    Result<std::size_t> write(Octets data) {
        return detail::get<std::size_t>([&](std::size_t *written, bypath_error *e) {
            return bypath_tcp_write(raw_, data.data, data.size, written, e);
        });
    }
    // The same with several pieces, one behind the other.
    Result<std::size_t> write_pieces(const bypath_octets *pieces, std::size_t count) {
        return detail::get<std::size_t>([&](std::size_t *written, bypath_error *e) {
            return bypath_tcp_write_pieces(raw_, pieces, count, written, e);
        });
    }
    // Queues all octets.
    Status write_all(Octets data) {
        return detail::call(
            [&](bypath_error *e) { return bypath_tcp_write_all(raw_, data.data, data.size, nullptr, e); });
    }
    // Reads no more, writes no more, or both: BYPATH_SHUT_...
    Status shutdown(std::uint32_t how = BYPATH_SHUT_WRITE) {
        return detail::call([&](bypath_error *e) { return bypath_tcp_shutdown(raw_, how, e); });
    }
    // Ends it at once, with a reset. What came can still be read, then there is an end; writing fails with BYPATH_E_CLOSED.
    Status abort() {
        return detail::call([&](bypath_error *e) { return bypath_tcp_abort(raw_, e); });
    }
    // Its own address and port.
    Result<Endpoint> local() {
        return detail::get<Endpoint>([&](Endpoint *at, bypath_error *e) { return bypath_tcp_local(raw_, at, e); });
    }
    // The other side's.
    Result<Endpoint> remote() {
        return detail::get<Endpoint>([&](Endpoint *at, bypath_error *e) { return bypath_tcp_remote(raw_, at, e); });
    }
    // Changes the longest wait; zero: no wait; std::chrono::nanoseconds::max(): no limit.
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = TcpOptions().timeout(longest).raw().timeout_ns;
        return detail::call([&](bypath_error *e) { return bypath_tcp_set_timeouts(raw_, ns, ns, e); });
    }
    // What it wants.
    Result<TcpOptions> options() {
        bypath_tcp_options raw;
        bypath_error error;
        if (bypath_tcp_read_options(raw_, &raw, &error) != BYPATH_OK) return Error(error);
        return TcpOptions(raw);
    }
    // Wants something else.
    Status set_options(const TcpOptions &options) {
        return detail::call([&](bypath_error *e) { return bypath_tcp_set_options(raw_, &options.raw(), e); });
    }
    // How it does.
    Result<TcpStatistics> statistics() {
        return detail::get<TcpStatistics>(
            [&](TcpStatistics *s, bypath_error *e) { return bypath_tcp_read_statistics(raw_, s, e); });
    }
    // A descriptor to poll for POLLIN, for BYPATH_READABLE or BYPATH_WRITABLE; still owned by this object.
    Result<int> descriptor(std::uint32_t what) {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_tcp_descriptor(raw_, what, d, e); });
    }

private:
    friend class Netstack;
    friend class TcpListener;
    friend class TcpCall;
    explicit Tcp(bypath_tcp *raw) noexcept : raw_(raw) {}
    bypath_tcp *raw_ = nullptr;
};

// What gets connections to an address and port of a netstack, closed with its object. Several threads may use one at the same time.
// An object that was closed, or moved from, answers BYPATH_E_INVALID.
class TcpListener {
public:
    TcpListener(TcpListener &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    TcpListener &operator=(TcpListener &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    TcpListener(const TcpListener &) = delete;
    TcpListener &operator=(const TcpListener &) = delete;
    ~TcpListener() { close(); }

    // Closes it now.
    void close() noexcept { (void)bypath_tcp_listener_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_tcp_listener *raw() noexcept { return raw_; }

    // Waits for the next connection.
    Result<Tcp> accept() {
        bypath_tcp *tcp = nullptr;
        bypath_error error;
        if (bypath_tcp_accept(raw_, &tcp, nullptr, &error) != BYPATH_OK) return Error(error);
        return Tcp(tcp);
    }
    // Its own address and port.
    Result<Endpoint> local() {
        return detail::get<Endpoint>(
            [&](Endpoint *at, bypath_error *e) { return bypath_tcp_listener_local(raw_, at, e); });
    }
    // Changes the longest wait of accept(); zero: no wait; std::chrono::nanoseconds::max(): no limit.
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = TcpOptions().timeout(longest).raw().timeout_ns;
        return detail::call([&](bypath_error *e) { return bypath_tcp_listener_set_timeout(raw_, ns, e); });
    }
    // The descriptor to poll for POLLIN; still owned by this object.
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_tcp_listener_descriptor(raw_, d, e); });
    }

private:
    friend class Netstack;
    explicit TcpListener(bypath_tcp_listener *raw) noexcept : raw_(raw) {}
    bypath_tcp_listener *raw_ = nullptr;
};

// Somebody calls somebody else, and is not answered yet; refused with its object. An object that was ended, or moved from, answers
// BYPATH_E_INVALID.
class TcpCall {
public:
    TcpCall(TcpCall &&other) noexcept
        : raw_(std::exchange(other.raw_, nullptr)), from_(other.from_), to_(other.to_) {}
    TcpCall &operator=(TcpCall &&other) noexcept {
        if (this != &other) {
            refuse();
            raw_ = std::exchange(other.raw_, nullptr);
            from_ = other.from_;
            to_ = other.to_;
        }
        return *this;
    }
    TcpCall(const TcpCall &) = delete;
    TcpCall &operator=(const TcpCall &) = delete;
    ~TcpCall() { refuse(); }

    // Who calls.
    Endpoint from() const noexcept { return from_; }
    // Whom.
    Endpoint to() const noexcept { return to_; }
    // Refuses it now, as where nobody listens.
    void refuse() noexcept { (void)bypath_tcp_call_refuse(std::exchange(raw_, nullptr), nullptr); }
    // Answers as whom is called, and waits until the connection is open. The call is over in any case.
    Result<Tcp> accept() {
        bypath_tcp *tcp = nullptr;
        bypath_error error;
        if (bypath_tcp_call_accept(std::exchange(raw_, nullptr), &tcp, &error) != BYPATH_OK) return Error(error);
        return Tcp(tcp);
    }

private:
    friend class TcpForwarder;
    TcpCall(bypath_tcp_call *raw, Endpoint from, Endpoint to) noexcept : raw_(raw), from_(from), to_(to) {}
    bypath_tcp_call *raw_ = nullptr;
    Endpoint from_, to_;
};

// What gets the calls to others that come through a netstack's link, closed with its object. Several threads may use one at the same
// time. An object that was closed, or moved from, answers BYPATH_E_INVALID.
class TcpForwarder {
public:
    TcpForwarder(TcpForwarder &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    TcpForwarder &operator=(TcpForwarder &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    TcpForwarder(const TcpForwarder &) = delete;
    TcpForwarder &operator=(const TcpForwarder &) = delete;
    ~TcpForwarder() { close(); }

    // Closes it now.
    void close() noexcept { (void)bypath_tcp_forwarder_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_tcp_forwarder *raw() noexcept { return raw_; }

    // Waits for the next call; nothing answers it before TcpCall::accept() does.
    Result<TcpCall> next() {
        bypath_tcp_call *call = nullptr;
        Endpoint from, to;
        bypath_error error;
        if (bypath_tcp_forwarder_next(raw_, &call, &from, &to, &error) != BYPATH_OK) return Error(error);
        return TcpCall(call, from, to);
    }
    // Changes the longest wait of next(); zero: no wait; std::chrono::nanoseconds::max(): no limit.
    Status set_timeout(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = TcpOptions().timeout(longest).raw().timeout_ns;
        return detail::call([&](bypath_error *e) { return bypath_tcp_forwarder_set_timeout(raw_, ns, e); });
    }
    // The descriptor to poll for POLLIN; still owned by this object.
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_tcp_forwarder_descriptor(raw_, d, e); });
    }

private:
    friend class Netstack;
    explicit TcpForwarder(bypath_tcp_forwarder *raw) noexcept : raw_(raw) {}
    bypath_tcp_forwarder *raw_ = nullptr;
};

// A TCP/IP stack of our own on a link, closed with its object; its sockets then answer BYPATH_E_GONE. Several threads may use one at
// the same time. An object that was closed, or moved from, answers BYPATH_E_INVALID.
class Netstack {
public:
    // Opens the link, and returns when the addresses can be used.
    static Result<Netstack> open(const NetstackOptions &options) {
        const auto addresses = NetstackOptions::pointers(options.addresses_);
        const auto kernels = NetstackOptions::pointers(options.kernels_);
        const auto routers = NetstackOptions::pointers(options.routers_);
        bypath_netstack_options all = options.raw_;
        all.link = options.link_.c_str();
        all.addresses = addresses.data();
        all.address_count = addresses.size();
        all.kernel_addresses = kernels.data();
        all.kernel_address_count = kernels.size();
        all.routers = routers.data();
        all.router_count = routers.size();
        all.host_name = options.host_name_.empty() ? nullptr : options.host_name_.c_str();
        bypath_netstack *raw = nullptr;
        bypath_error error;
        if (bypath_netstack_open(&all, &raw, &error) != BYPATH_OK) return Error(error);
        return Netstack(raw);
    }

    Netstack(Netstack &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Netstack &operator=(Netstack &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Netstack(const Netstack &) = delete;
    Netstack &operator=(const Netstack &) = delete;
    ~Netstack() { close(); }

    // Closes it now.
    void close() noexcept { (void)bypath_netstack_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_netstack *raw() noexcept { return raw_; }

    // Makes a UDP socket that is bound to this address and port; flags: BYPATH_UDP_...
    Result<Udp> bind(Endpoint local, std::uint32_t flags = 0) {
        bypath_udp *udp = nullptr;
        bypath_error error;
        if (bypath_udp_bind(raw_, local, flags, &udp, &error) != BYPATH_OK) return Error(error);
        return Udp(udp);
    }
    // Listens to this address and port.
    Result<TcpListener> listen(Endpoint local, const TcpOptions &options = TcpOptions()) {
        bypath_tcp_listener *listener = nullptr;
        bypath_error error;
        if (bypath_tcp_listen(raw_, local, &options.raw(), &listener, &error) != BYPATH_OK) return Error(error);
        return TcpListener(listener);
    }
    // Gets the calls to others that come through the link.
    Result<TcpForwarder> forward(const TcpOptions &options = TcpOptions()) {
        bypath_tcp_forwarder *forwarder = nullptr;
        bypath_error error;
        if (bypath_tcp_forward(raw_, &options.raw(), &forwarder, &error) != BYPATH_OK) return Error(error);
        return TcpForwarder(forwarder);
    }
    // Calls, and waits until the connection is open.
    Result<Tcp> connect(Endpoint to, const TcpOptions &options = TcpOptions()) {
        bypath_tcp *tcp = nullptr;
        bypath_error error;
        if (bypath_tcp_connect(raw_, to, nullptr, &options.raw(), &tcp, &error) != BYPATH_OK) return Error(error);
        return Tcp(tcp);
    }
    // Calls, and does not wait: finish_connect() tells when the connection is open.
    Result<Tcp> begin_connect(Endpoint to, const TcpOptions &options = TcpOptions()) {
        bypath_tcp *tcp = nullptr;
        bypath_error error;
        if (bypath_tcp_begin_connect(raw_, to, nullptr, &options.raw(), &tcp, &error) != BYPATH_OK) return Error(error);
        return Tcp(tcp);
    }
    // What it stands on.
    // In process: moves what there is to be moved, and does what is due; false: there was nothing to do. Calls that find nothing do it, too.
    Result<bool> poll() {
        auto moved = detail::get<int>([&](int *m, bypath_error *e) { return bypath_netstack_poll(raw_, m, e); });
        if (!moved) return moved.error();
        return *moved != 0;
    }
    // In process: sleeps until poll would have something to do, for this time at most.
    Status wait(std::chrono::nanoseconds longest) {
        const std::uint64_t ns = longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
        return detail::call([&](bypath_error *e) { return bypath_netstack_wait(raw_, ns, e); });
    }
    Result<bypath_netstack_obtained> obtained() {
        return detail::get<bypath_netstack_obtained>(
            [&](bypath_netstack_obtained *o, bypath_error *e) { return bypath_netstack_read_obtained(raw_, o, e); });
    }
    // Its addresses.
    Result<std::vector<bypath_netstack_address>> addresses() {
        return list<bypath_netstack_address>(bypath_netstack_addresses);
    }
    // Gives it one more address, such as 10.9.0.3/24.
    Status add_address(const char *own) {
        return detail::call([&](bypath_error *e) { return bypath_netstack_add_address(raw_, own, e); });
    }
    // Takes an address away, such as 10.9.0.3.
    Status remove_address(const char *own) {
        return detail::call([&](bypath_error *e) { return bypath_netstack_remove_address(raw_, own, e); });
    }
    // What its stack has counted.
    Result<std::vector<bypath_counter>> counters() { return list<bypath_counter>(bypath_netstack_counters); }

private:
    explicit Netstack(bypath_netstack *raw) noexcept : raw_(raw) {}

    template <typename T, typename F>
    Result<std::vector<T>> list(F function) {
        std::vector<T> all;
        for (;;) {
            std::size_t count = 0;
            bypath_error error;
            if (function(raw_, all.data(), all.size(), &count, &error) != BYPATH_OK) return Error(error);
            const bool whole = count <= all.size();
            all.resize(count);
            if (whole) return all;
        }
    }

    bypath_netstack *raw_ = nullptr;
};

namespace detail {
inline std::uint64_t wait_ns(std::chrono::nanoseconds longest) noexcept {
    if (longest == std::chrono::nanoseconds::max()) return BYPATH_FOREVER;
    return longest.count() < 0 ? 0 : static_cast<std::uint64_t>(longest.count());
}
} // namespace detail

// Octets of a ring, where they lie: the second run is empty unless the ring begins anew in them.
using ChannelRuns = std::array<bypath_channel_run, 2>;

// The half of a channel that writes, closed with its object. Waits: zero: none; std::chrono::nanoseconds::max(): no limit.
class ChannelSender {
public:
    ChannelSender(ChannelSender &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    ChannelSender &operator=(ChannelSender &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    ChannelSender(const ChannelSender &) = delete;
    ChannelSender &operator=(const ChannelSender &) = delete;
    ~ChannelSender() { close(); }

    // Ends the stream at the other end.
    void close() noexcept { (void)bypath_channel_sender_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_channel_sender *raw() noexcept { return raw_; }
    // Writes what there is room for, at least one octet; how many.
    Result<std::size_t> write(Octets octets, std::chrono::nanoseconds longest) {
        return detail::get<std::size_t>([&](std::size_t *n, bypath_error *e) {
            return bypath_channel_write(raw_, octets.data, octets.size, detail::wait_ns(longest), n, e);
        });
    }
    // Writes all of them; `longest` is for each wait.
    Status write_all(Octets octets, std::chrono::nanoseconds longest) {
        while (octets.size > 0) {
            const auto n = write(octets, longest);
            if (!n) return n.error();
            octets = Octets(static_cast<const char *>(octets.data) + *n, octets.size - *n);
        }
        return std::monostate{};
    }
    // Room for at least so many octets, and sends the first ones of it.
    Result<ChannelRuns> reserve(std::size_t least, std::chrono::nanoseconds longest) {
        return detail::get<ChannelRuns>([&](ChannelRuns *runs, bypath_error *e) {
            return bypath_channel_reserve(raw_, least, detail::wait_ns(longest), runs->data(), e);
        });
    }
    Status commit(std::size_t count) {
        return detail::call([&](bypath_error *e) { return bypath_channel_commit(raw_, count, e); });
    }
    // Whether descriptor() may be polled for POLLIN now.
    Result<bool> arm(std::size_t least = 1) {
        int sleep = 0;
        bypath_error error;
        if (bypath_channel_sender_arm(raw_, least, &sleep, &error) != BYPATH_OK) return Error(error);
        return sleep != 0;
    }
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_channel_sender_descriptor(raw_, d, e); });
    }

private:
    friend class Channel;
    explicit ChannelSender(bypath_channel_sender *raw) noexcept : raw_(raw) {}
    bypath_channel_sender *raw_ = nullptr;
};

// The half that reads.
class ChannelReceiver {
public:
    ChannelReceiver(ChannelReceiver &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    ChannelReceiver &operator=(ChannelReceiver &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    ChannelReceiver(const ChannelReceiver &) = delete;
    ChannelReceiver &operator=(const ChannelReceiver &) = delete;
    ~ChannelReceiver() { close(); }

    // Reads no more: the other end's writes fail.
    void close() noexcept { (void)bypath_channel_receiver_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_channel_receiver *raw() noexcept { return raw_; }
    // Reads at least one octet; 0: the end of the stream.
    Result<std::size_t> read(void *octets, std::size_t capacity, std::chrono::nanoseconds longest) {
        return detail::get<std::size_t>([&](std::size_t *n, bypath_error *e) {
            return bypath_channel_read(raw_, octets, capacity, detail::wait_ns(longest), n, e);
        });
    }
    // Shows at least so many octets, fewer before the end, none at it; gives the first ones back.
    Result<ChannelRuns> peek(std::size_t least, std::chrono::nanoseconds longest) {
        return detail::get<ChannelRuns>([&](ChannelRuns *runs, bypath_error *e) {
            return bypath_channel_peek(raw_, least, detail::wait_ns(longest), runs->data(), e);
        });
    }
    Status release(std::size_t count) {
        return detail::call([&](bypath_error *e) { return bypath_channel_release(raw_, count, e); });
    }
    // Whether descriptor() may be polled for POLLIN now.
    Result<bool> arm(std::size_t least = 1) {
        int sleep = 0;
        bypath_error error;
        if (bypath_channel_receiver_arm(raw_, least, &sleep, &error) != BYPATH_OK) return Error(error);
        return sleep != 0;
    }
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_channel_receiver_descriptor(raw_, d, e); });
    }

private:
    friend class Channel;
    explicit ChannelReceiver(bypath_channel_receiver *raw) noexcept : raw_(raw) {}
    bypath_channel_receiver *raw_ = nullptr;
};

// Bytes between two processes that were written for it, both ways: docs/channel.md.
class Channel {
public:
    ChannelSender sender;
    ChannelReceiver receiver;

    // With the process that listens at a name of this user's.
    static Result<Channel> connect(const char *name, std::chrono::nanoseconds longest) {
        return of([&](bypath_channel_sender **s, bypath_channel_receiver **r, bypath_error *e) {
            return bypath_channel_connect(name, detail::wait_ns(longest), s, r, e);
        });
    }
    // From the descriptors of an end, which are used up where it works.
    static Result<Channel> open(const bypath_channel_remote &remote) {
        return of([&](bypath_channel_sender **s, bypath_channel_receiver **r, bypath_error *e) {
            return bypath_channel_open(&remote, s, r, e);
        });
    }
    // This end of a new channel; the descriptors of the other one are the caller's to pass on and to close.
    static Result<Channel> pair(bypath_channel_remote &remote, std::uint32_t ring = BYPATH_CHANNEL_RING) {
        return of([&](bypath_channel_sender **s, bypath_channel_receiver **r, bypath_error *e) {
            return bypath_channel_pair(ring, s, r, &remote, e);
        });
    }

private:
    friend class ChannelListener;
    Channel(bypath_channel_sender *s, bypath_channel_receiver *r) noexcept : sender(s), receiver(r) {}
    template <typename F>
    static Result<Channel> of(F function) {
        bypath_channel_sender *s = nullptr;
        bypath_channel_receiver *r = nullptr;
        bypath_error error;
        if (function(&s, &r, &error) != BYPATH_OK) return Error(error);
        return Channel(s, r);
    }
};

// The half of a channel that sends datagrams, closed with its object. Waits: as of ChannelSender.
class DatagramSender {
public:
    DatagramSender(DatagramSender &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    DatagramSender &operator=(DatagramSender &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    DatagramSender(const DatagramSender &) = delete;
    DatagramSender &operator=(const DatagramSender &) = delete;
    ~DatagramSender() { close(); }

    void close() noexcept { (void)bypath_channel_datagram_sender_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_channel_datagram_sender *raw() noexcept { return raw_; }
    // Octets of a datagram at most.
    Result<std::size_t> longest() {
        return detail::get<std::size_t>([&](std::size_t *n, bypath_error *e) { return bypath_channel_datagram_longest(raw_, n, e); });
    }
    // Sends a datagram, which may be empty; it waits for room.
    Status send(Octets datagram, std::chrono::nanoseconds longest) {
        return detail::call([&](bypath_error *e) {
            return bypath_channel_datagram_send(raw_, datagram.data, datagram.size, detail::wait_ns(longest), e);
        });
    }
    // Room for a datagram of at most so many octets, and sends one of the first ones of it.
    Result<ChannelRuns> reserve(std::size_t most, std::chrono::nanoseconds longest) {
        return detail::get<ChannelRuns>([&](ChannelRuns *runs, bypath_error *e) {
            return bypath_channel_datagram_reserve(raw_, most, detail::wait_ns(longest), runs->data(), e);
        });
    }
    Status commit(std::size_t count) {
        return detail::call([&](bypath_error *e) { return bypath_channel_datagram_commit(raw_, count, e); });
    }
    // Whether descriptor() may be polled for POLLIN now, for room for a datagram of so many octets.
    Result<bool> arm(std::size_t length) {
        int sleep = 0;
        bypath_error error;
        if (bypath_channel_datagram_sender_arm(raw_, length, &sleep, &error) != BYPATH_OK) return Error(error);
        return sleep != 0;
    }
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_channel_datagram_sender_descriptor(raw_, d, e); });
    }

private:
    friend class DatagramChannel;
    explicit DatagramSender(bypath_channel_datagram_sender *raw) noexcept : raw_(raw) {}
    bypath_channel_datagram_sender *raw_ = nullptr;
};

// The half that receives datagrams. BYPATH_E_END: the other end sends no more.
class DatagramReceiver {
public:
    DatagramReceiver(DatagramReceiver &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    DatagramReceiver &operator=(DatagramReceiver &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    DatagramReceiver(const DatagramReceiver &) = delete;
    DatagramReceiver &operator=(const DatagramReceiver &) = delete;
    ~DatagramReceiver() { close(); }

    void close() noexcept { (void)bypath_channel_datagram_receiver_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_channel_datagram_receiver *raw() noexcept { return raw_; }
    // Takes the next datagram: how many octets it has. BYPATH_E_TOO_LONG: more than `capacity`; it stays.
    Result<std::size_t> receive(void *octets, std::size_t capacity, std::chrono::nanoseconds longest) {
        return detail::get<std::size_t>([&](std::size_t *n, bypath_error *e) {
            return bypath_channel_datagram_receive(raw_, octets, capacity, detail::wait_ns(longest), n, e);
        });
    }
    // Shows the next datagram where it lies; gives it back.
    Result<ChannelRuns> peek(std::chrono::nanoseconds longest) {
        return detail::get<ChannelRuns>([&](ChannelRuns *runs, bypath_error *e) {
            return bypath_channel_datagram_peek(raw_, detail::wait_ns(longest), runs->data(), e);
        });
    }
    Status release() {
        return detail::call([&](bypath_error *e) { return bypath_channel_datagram_release(raw_, e); });
    }
    // Whether descriptor() may be polled for POLLIN now.
    Result<bool> arm() {
        int sleep = 0;
        bypath_error error;
        if (bypath_channel_datagram_receiver_arm(raw_, &sleep, &error) != BYPATH_OK) return Error(error);
        return sleep != 0;
    }
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_channel_datagram_receiver_descriptor(raw_, d, e); });
    }

private:
    friend class DatagramChannel;
    explicit DatagramReceiver(bypath_channel_datagram_receiver *raw) noexcept : raw_(raw) {}
    bypath_channel_datagram_receiver *raw_ = nullptr;
};

// Datagrams between two processes that were written for it, both ways: docs/channel.md.
class DatagramChannel {
public:
    DatagramSender sender;
    DatagramReceiver receiver;

    // With the process that listens at a name of this user's.
    static Result<DatagramChannel> connect(const char *name, std::chrono::nanoseconds longest) {
        return of([&](bypath_channel_datagram_sender **s, bypath_channel_datagram_receiver **r, bypath_error *e) {
            return bypath_channel_datagram_connect(name, detail::wait_ns(longest), s, r, e);
        });
    }
    // From the descriptors of an end, which are used up where it works.
    static Result<DatagramChannel> open(const bypath_channel_remote &remote) {
        return of([&](bypath_channel_datagram_sender **s, bypath_channel_datagram_receiver **r, bypath_error *e) {
            return bypath_channel_datagram_open(&remote, s, r, e);
        });
    }
    // This end of a new channel; the descriptors of the other one are the caller's to pass on and to close.
    static Result<DatagramChannel> pair(bypath_channel_remote &remote, std::uint32_t ring = BYPATH_CHANNEL_RING) {
        return of([&](bypath_channel_datagram_sender **s, bypath_channel_datagram_receiver **r, bypath_error *e) {
            return bypath_channel_datagram_pair(ring, s, r, &remote, e);
        });
    }

private:
    friend class ChannelListener;
    DatagramChannel(bypath_channel_datagram_sender *s, bypath_channel_datagram_receiver *r) noexcept
        : sender(s), receiver(r) {}
    template <typename F>
    static Result<DatagramChannel> of(F function) {
        bypath_channel_datagram_sender *s = nullptr;
        bypath_channel_datagram_receiver *r = nullptr;
        bypath_error error;
        if (function(&s, &r, &error) != BYPATH_OK) return Error(error);
        return DatagramChannel(s, r);
    }
};

// A name at which channels are made, given back with its object.
class ChannelListener {
public:
    static Result<ChannelListener> bind(const char *name, std::uint32_t ring = BYPATH_CHANNEL_RING) {
        bypath_channel_listener *raw = nullptr;
        bypath_error error;
        if (bypath_channel_listen(name, ring, &raw, &error) != BYPATH_OK) return Error(error);
        return ChannelListener(raw);
    }
    ChannelListener(ChannelListener &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    ChannelListener &operator=(ChannelListener &&other) noexcept {
        if (this != &other) {
            close();
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    ChannelListener(const ChannelListener &) = delete;
    ChannelListener &operator=(const ChannelListener &) = delete;
    ~ChannelListener() { close(); }

    void close() noexcept { (void)bypath_channel_listener_close(std::exchange(raw_, nullptr), nullptr); }
    // For the C functions; still owned by this object.
    bypath_channel_listener *raw() noexcept { return raw_; }
    // Waits for the next process that wants a channel.
    Result<Channel> accept(std::chrono::nanoseconds longest) {
        return Channel::of([&](bypath_channel_sender **s, bypath_channel_receiver **r, bypath_error *e) {
            return bypath_channel_accept(raw_, detail::wait_ns(longest), s, r, e);
        });
    }
    // The same; it gets a channel of datagrams.
    Result<DatagramChannel> accept_datagrams(std::chrono::nanoseconds longest) {
        return DatagramChannel::of(
            [&](bypath_channel_datagram_sender **s, bypath_channel_datagram_receiver **r, bypath_error *e) {
                return bypath_channel_datagram_accept(raw_, detail::wait_ns(longest), s, r, e);
            });
    }
    // The descriptor to poll for POLLIN; still owned by this object.
    Result<int> descriptor() {
        return detail::get<int>([&](int *d, bypath_error *e) { return bypath_channel_listener_descriptor(raw_, d, e); });
    }

private:
    explicit ChannelListener(bypath_channel_listener *raw) noexcept : raw_(raw) {}
    bypath_channel_listener *raw_ = nullptr;
};

} // namespace bypath

#endif // BYPATH_HPP
