/* Bypath: raw Ethernet sockets, TUN devices, a TCP/IP stack of one's own and capture files for C and C++. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Made from crates/capi/src: change it there.
 *
 * Results. Functions answer BYPATH_OK or a negative BYPATH_E_... code, and write what they give through pointers. The
 * last argument, `error`, gets the code, an errno and a text that says what to do; it may be NULL, and is left alone by
 * functions that succeed. Where a function fails, what it gives is not written, unless it says so.
 *
 * Numbers. All are in the byte order of the host, EtherTypes and VLANs too: no htons. Times are nanoseconds. Addresses are
 * in the order in which they are sent.
 *
 * Pointers. NULL and misaligned ones are answered with BYPATH_E_INVALID, as are values that cannot be. That a pointer
 * points to memory of the right size, that texts end with a zero, that a socket or a file is not used after it was closed, and
 * that the memory of two arguments does not overlap, cannot be checked: it is the caller's promise. Memory is never
 * kept: what was passed may be changed or freed when the function has returned.
 *
 * Threads. Different sockets may be used by different threads at the same time. One socket is used by one thread at a
 * time, whichever; a call while another thread is inside one with the same socket is BYPATH_E_BUSY and does nothing.
 * Capture files and TUN devices likewise; a netstack and its sockets may be used by many threads at once, and only closing
 * one of them while another thread is inside a call with it is BYPATH_E_BUSY. To send and receive at once, open two sockets, one of them with BYPATH_SEND_ONLY. bypath_l2_close must be the last
 * call: no other thread may still begin one. A wait ends by a frame, its time-out or a signal, not by another thread: to
 * be able to stop a receiver, poll bypath_l2_descriptor together with a descriptor of your own, and receive with
 * BYPATH_WAIT_NEVER. Functions may not be called from signal handlers. A process that forks shares its sockets with its
 * child: use and close them in one of the two only. Threads of the library's own close sockets, because
 * the kernel takes its time for that; they take no signals, and end after a second without work. Each netstack has a thread,
 * which takes no signals either, until it is closed.
 *
 * Nothing of this library unwinds into the caller, and no function ends the process on purpose: a mistake of the
 * library's own is BYPATH_E_INTERNAL, and some lines on standard error.
 *
 * Versions. Before 1.0 each minor version may change structures, and then the SONAME changes with it. */


#ifndef BYPATH_H
#define BYPATH_H

#include <stddef.h>
#include <stdint.h>

// It worked.
#define BYPATH_OK 0

// There is no such interface. The text names those there are.
#define BYPATH_E_UNKNOWN -1

// No interface can have such a long name.
#define BYPATH_E_NAME -2

// The interface carries no Ethernet frames.
#define BYPATH_E_NOT_ETHERNET -3

// The interface is switched off.
#define BYPATH_E_DOWN -4

// The interface was removed, the netstack of a socket was closed, or a channel's other end reads no more: close it.
#define BYPATH_E_GONE -5

// A capability is missing, CAP_NET_RAW most often. The text names it.
#define BYPATH_E_NOT_ALLOWED -6

// The payload is longer than the interface's MTU; or a datagram of a channel than there can be, or than the buffer.
#define BYPATH_E_TOO_LONG -7

// The frame is shorter than a header.
#define BYPATH_E_TOO_SHORT -8

// Nothing happened in time.
#define BYPATH_E_TIMED_OUT -9

// It would have to wait, and the socket does not.
#define BYPATH_E_WOULD_BLOCK -10

// A signal came while waiting.
#define BYPATH_E_INTERRUPTED -11

// The device's queue is full.
#define BYPATH_E_QUEUE_FULL -12

// An argument cannot be used: NULL, out of range, contradictory. The text says which.
#define BYPATH_E_INVALID -13

// Another thread is inside a call with this socket, or this file.
#define BYPATH_E_BUSY -14

// The system answered something else: see `system` of the error.
#define BYPATH_E_SYSTEM -15

// A mistake of this library's own. A socket that it happened to can only be closed.
#define BYPATH_E_INTERNAL -16

// The kernel, or the interface's driver, cannot do it. The text says what can be done instead.
#define BYPATH_E_UNSUPPORTED -17

// Another program has it: the device queue, or the interface's place for a program.
#define BYPATH_E_IN_USE -18

// The file is not what its format allows, or ends in the middle. The text says where.
#define BYPATH_E_FORMAT -19

// The file has been read to its end; or all datagrams of a channel, whose other end sends no more.
#define BYPATH_E_END -20

// A host answered that nobody takes datagrams at that address and port.
#define BYPATH_E_UNREACHABLE -21

// There is no way to that address: no route leads there, or who should know says so.
#define BYPATH_E_NO_ROUTE -22

// Nobody listens at that address and port, or who does is not to be spoken with.
#define BYPATH_E_REFUSED -23

// The other side has ended the connection at once.
#define BYPATH_E_RESET -24

// Nothing can be written any more: that was finished, or the connection is over.
#define BYPATH_E_CLOSED -25

// Octets of an error's text, terminating zero included.
#define BYPATH_ERROR_TEXT 512

// The version of this header, to be compared with that of the library that runs: its first number.
#define BYPATH_VERSION_MAJOR 0

// Its second number.
#define BYPATH_VERSION_MINOR 1

// Its third number.
#define BYPATH_VERSION_PATCH 0

// Octets of an address's text, terminating zero included.
#define BYPATH_MAC_TEXT 18

// EtherType of the hybrid protocol's data frames: IEEE 802, local experimental EtherType 1.
#define BYPATH_ETHERTYPE_HYBRID 34997

// EtherType of messages between programs on one host.
#define BYPATH_ETHERTYPE_IPC 43690

// Tag protocol identifier of a VLAN tag (IEEE 802.1Q).
#define BYPATH_TPID_VLAN 33024

// Tag protocol identifier of a service tag, the outer one of two (IEEE 802.1ad).
#define BYPATH_TPID_SERVICE 34984

// VLAN of the hybrid protocol unless another is asked for.
#define BYPATH_DEFAULT_VLAN 10

// Priority of the hybrid protocol unless another is asked for: the highest.
#define BYPATH_DEFAULT_PRIORITY 7

// Octets of a header without a tag.
#define BYPATH_HEADER 14

// Least octets of payload in a padded frame.
#define BYPATH_SHORTEST_PAYLOAD 46

// A time-out that never comes.
#define BYPATH_FOREVER 18446744073709551615ull

// Nobody takes the time of received frames.
#define BYPATH_TIMESTAMP_NONE 0

// The kernel does: ns since 1970 (UTC).
#define BYPATH_TIMESTAMP_SOFTWARE 1

// The device does: ns of its own clock.
#define BYPATH_TIMESTAMP_HARDWARE 2

// For options only: the kernel does, and with `BYPATH_MODE_XDP` nobody.
#define BYPATH_TIMESTAMP_USUAL 3

// It is not known to whom a frame was addressed.
#define BYPATH_TO_UNKNOWN 0

// To this interface.
#define BYPATH_TO_HOST 1

// To everybody.
#define BYPATH_TO_BROADCAST 2

// To a group.
#define BYPATH_TO_GROUP 3

// To another host.
#define BYPATH_TO_OTHER_HOST 4

// Sent by this host.
#define BYPATH_TO_OUTGOING 5

// Octets of an interface's name, terminating zero included.
#define BYPATH_INTERFACE_NAME 16

// Octets of the name of a queueing discipline, terminating zero included.
#define BYPATH_QUEUEING_NAME 32

// Nobody copies frames where the driver can do without, elsewhere the kernel does.
#define BYPATH_TRANSFER_BEST 0

// The kernel copies frames between the device and our memory.
#define BYPATH_TRANSFER_COPY 1

// Nobody copies: the device reads and writes our memory. Opening fails where the driver cannot do that.
#define BYPATH_TRANSFER_ZERO_COPY 2

// Frames are looked at in the driver where it can do that, behind it elsewhere.
#define BYPATH_PLACE_BEST 0

// In the driver ("native"). Opening fails where it cannot do that.
#define BYPATH_PLACE_DRIVER 1

// Behind it: works with every interface, costs more ("generic").
#define BYPATH_PLACE_GENERIC 2

// One system call per frame.
#define BYPATH_MODE_PLAIN 0

// One system call for many frames (recvmmsg, sendmmsg).
#define BYPATH_MODE_MMSG 1

// A ring shared with the kernel: no system call per frame, the least CPU. A frame that comes alone may be given over a
// millisecond late.
#define BYPATH_MODE_RING 2

// Receiving only: a ring of slots in which each frame can be seen at once. For programs that spin.
#define BYPATH_MODE_LATENCY_RING 3

// AF_XDP, both ways: frames of the EtherTypes and the VLAN asked for pass by the kernel's path, and nobody else receives
// them; all others stay on it. One socket has a device queue. It needs at least one EtherType. There are no timestamps,
// fanout, send times, frames that this host sends, sockets that only send, and no `receive_queue`: asking for one of them
// is `BYPATH_E_INVALID`.
#define BYPATH_MODE_XDP 4

// A waiting call sleeps.
#define BYPATH_WAIT_SLEEP 0

// A waiting call looks without a pause: the quickest, and a processor's whole time.
#define BYPATH_WAIT_SPIN 1

// No call waits: `BYPATH_E_WOULD_BLOCK`.
#define BYPATH_WAIT_NEVER 2

// Frames of the socket's own VLAN are received, or of all if it has none.
#define BYPATH_VLAN_OWN 0

// Tagged or not, of whatever VLAN.
#define BYPATH_VLAN_ANY 1

// Frames without a tag, or with a priority only.
#define BYPATH_VLAN_NONE 2

// Frames of VLAN `receive_vlan_id`.
#define BYPATH_VLAN_ID 3

// Flag: frames to any group are received.
#define BYPATH_ALL_GROUPS 1

// Flag: frames to other hosts are received if the device gives them to us, as loopback and veth do.
#define BYPATH_FOREIGN 2

// Flag: the device is to give us everything, and everything is received.
#define BYPATH_PROMISCUOUS 4

// Flag: frames that this host sends are received, too.
#define BYPATH_OUTGOING 8

// Flag: sent frames do not pass the queueing discipline.
#define BYPATH_QDISC_BYPASS 16

// Flag: nothing is received.
#define BYPATH_SEND_ONLY 32

// Flag: the interface may be down; frames come when it is up.
#define BYPATH_MAY_BE_DOWN 64

// Flag: short frames are not padded.
#define BYPATH_NO_PADDING 128

// Flag: a send ring on loopback, too.
#define BYPATH_RING_ON_LOOPBACK 256

// Every flag there is.
// Flag, with `BYPATH_MODE_XDP`: the kernel is woken for every batch, and does not tell when it must be.
#define BYPATH_ALWAYS_WAKE 512

// No sharing among sockets.
#define BYPATH_FANOUT_OFF 0

// Frames of one flow to one socket.
#define BYPATH_FANOUT_HASH 1

// In turns.
#define BYPATH_FANOUT_ROUND_ROBIN 2

// By the processor that received the frame.
#define BYPATH_FANOUT_CPU 3

// To the first socket that has room.
#define BYPATH_FANOUT_ROLLOVER 4

// At random.
#define BYPATH_FANOUT_RANDOM 5

// By the device queue that the frame came through.
#define BYPATH_FANOUT_QUEUE 6

// Frames are sent at once.
#define BYPATH_CLOCK_NONE 0

// Frames may carry a time of CLOCK_MONOTONIC at which they are sent, for the queueing discipline `fq`.
#define BYPATH_CLOCK_MONOTONIC 1

// The same with CLOCK_TAI, for `etf` and `taprio`.
#define BYPATH_CLOCK_TAI 2

// Octets of an endpoint's text, terminating zero included.
#define BYPATH_ENDPOINT_TEXT 56

// Headers and payload are written from where they are (writev).
#define BYPATH_TUN_PIECES 0

// Headers and payload are copied together and written.
#define BYPATH_TUN_ASSEMBLE 1

// As pieces, and where many datagrams are given, up to 64 of one size with one system call (USO; Linux 6.2).
#define BYPATH_TUN_SUPER 2

// The kernel computes checksums where it offers to, we do elsewhere.
#define BYPATH_CHECKSUM_USUAL 0

// The kernel does, if anybody must.
#define BYPATH_CHECKSUM_KERNEL 1

// The library does.
#define BYPATH_CHECKSUM_OWN 2

// Nobody does, and the datagram says so (IPv4 only).
#define BYPATH_CHECKSUM_OMITTED 3

// Flag: the device exists, and persists. Without it, a device that exists is `BYPATH_E_IN_USE`.
#define BYPATH_TUN_ATTACH 1

// Flag: the device stays when it is closed.
#define BYPATH_TUN_PERSISTENT 2

// Flag: datagrams must not be cut into fragments (DF).
#define BYPATH_TUN_DONT_FRAGMENT 4

// Flag: neither side leaves checksums and segmentation to the other.
#define BYPATH_TUN_NO_OFFLOADS 8

// Flag: the device of `tap:` or `tun:` exists, and persists. Without it, a device that exists is `BYPATH_E_IN_USE`.
#define BYPATH_NETSTACK_ATTACH 1

// Flag: an IPv4 address and routes come from a DHCP server.
#define BYPATH_NETSTACK_DHCP 2

// Flag: no thread of the library's: calls move the frames, and spin where they would sleep. See `bypath_netstack_poll`.
#define BYPATH_NETSTACK_IN_PROCESS 4

// Room for a counter's name.
#define BYPATH_COUNTER_NAME 48

// Others are still asked whether an address is theirs: it is used for nothing.
#define BYPATH_ADDRESS_TENTATIVE 0

// It is used for everything.
#define BYPATH_ADDRESS_PREFERRED 1

// It is used by those who have it.
#define BYPATH_ADDRESS_DEPRECATED 2

// Another host has it: it is used for nothing.
#define BYPATH_ADDRESS_DUPLICATE 3

// Flag: short segments are sent at once, and not collected while something is not acknowledged (TCP_NODELAY).
#define BYPATH_TCP_NODELAY 1

// Flag: short segments are not sent before this is taken back (TCP_CORK).
#define BYPATH_TCP_CORK 2

// Flag: no selective acknowledgements are agreed on. For opening.
#define BYPATH_TCP_NO_SACK 4

// Flag: no timestamps are agreed on. For opening.
#define BYPATH_TCP_NO_TIMESTAMPS 8

// Flag: no windows above 65,535 octets are agreed on. For opening.
#define BYPATH_TCP_NO_WINDOW_SCALE 16

// Flag: explicit congestion notification is agreed on, where the other side wants it, too. For opening.
#define BYPATH_TCP_ECN 32

// Flag: bound to `::`, it has nothing to do with IPv4. For opening.
#define BYPATH_TCP_ONLY_V6 64

// Flag: other listeners that have it, too, may have the same address and port: they share who calls (SO_REUSEPORT). For opening.
#define BYPATH_TCP_REUSE_PORT 128

// Flag: segments find out what the path takes by longer ones that arrive or do not (RFC 4821); else, what routers say is all that is
// known of it, and where they say nothing a connection may stand still.
#define BYPATH_TCP_PROBE_MTU 256

// Flag: the same, after several time-outs in a row and no earlier.
#define BYPATH_TCP_PROBE_MTU_AFTER_TIMEOUTS 512

// Congestion control: CUBIC (RFC 9438), the usual one.
#define BYPATH_TCP_CUBIC 0

// Congestion control: Reno (RFC 5681).
#define BYPATH_TCP_RENO 1

// State of a connection, with the kernel's number: it is open.
#define BYPATH_TCP_ESTABLISHED 1

// State: a SYN was sent.
#define BYPATH_TCP_SYN_SENT 2

// State: a SYN came, and was answered.
#define BYPATH_TCP_SYN_RECV 3

// State: this side has finished.
#define BYPATH_TCP_FIN_WAIT1 4

// State: this side has finished, and the other side knows.
#define BYPATH_TCP_FIN_WAIT2 5

// State: both have finished and know it.
#define BYPATH_TCP_TIME_WAIT 6

// State: it is over.
#define BYPATH_TCP_CLOSE 7

// State: the other side has finished.
#define BYPATH_TCP_CLOSE_WAIT 8

// State: both have finished, the other side first, and it does not know of this side.
#define BYPATH_TCP_LAST_ACK 9

// State: both have finished, and the other side does not know of this side.
#define BYPATH_TCP_CLOSING 11

// Agreed on: selective acknowledgements.
#define BYPATH_TCP_AGREED_SACK 1

// Agreed on: timestamps.
#define BYPATH_TCP_AGREED_TIMESTAMPS 2

// Agreed on: explicit congestion notification.
#define BYPATH_TCP_AGREED_ECN 4

// What is polled: a call that reads would not wait.
#define BYPATH_READABLE 1

// What is polled: a call that writes would not wait.
#define BYPATH_WRITABLE 2

// What is shut down: nothing more is read; calls that wait for octets, and later ones, read the end.
#define BYPATH_SHUT_READ 0

// What is shut down: nothing more is written; the other side reads an end behind what was.
#define BYPATH_SHUT_WRITE 1

// What is shut down: both.
#define BYPATH_SHUT_BOTH 2

// Flag: it may send to everybody (255.255.255.255, and the last address of a network).
#define BYPATH_UDP_BROADCAST 1

// Flag: its address and port may be those of other sockets that have this flag, too: all get what is for a group or for
// everybody, and the last one that was bound gets the rest (SO_REUSEADDR).
#define BYPATH_UDP_REUSE_ADDRESS 2

// Flag: the same, and each datagram goes to one of them (SO_REUSEPORT).
#define BYPATH_UDP_REUSE_PORT 4

// Flag: bound to `::`, it has nothing to do with IPv4.
#define BYPATH_UDP_ONLY_V6 8

// Flag: a datagram that does not fit into the MTU is `BYPATH_E_TOO_LONG`, and not cut into fragments.
#define BYPATH_UDP_DONT_FRAGMENT 16

// Flag: it is told of errors that may pass, too, such as a host that cannot be reached just now, and of all errors while it is connected to
// nobody (IP_RECVERR). They are told as others are.
#define BYPATH_UDP_ALL_ERRORS 32

// Frames begin with an Ethernet header. The numbers of other kinds: <https://www.tcpdump.org/linktypes.html>.
#define BYPATH_LINK_TYPE_ETHERNET 1

// It is not told which way a frame went.
#define BYPATH_DIRECTION_UNKNOWN 0

// It was received.
#define BYPATH_DIRECTION_IN 1

// It was sent.
#define BYPATH_DIRECTION_OUT 2

// Octets of the name of an interface in a capture file, terminating zero included. Longer ones are cut.
#define BYPATH_CAPTURE_NAME 128

// Octets of a channel's rings where nothing else is wished.
#define BYPATH_CHANNEL_RING 262144

// A capture file that is read. Only pointers to it are of use.
typedef struct bypath_capture_reader bypath_capture_reader;

// A capture file that is written. Only pointers to it are of use.
typedef struct bypath_capture_writer bypath_capture_writer;

// The half of a channel that receives datagrams. Only pointers to it are of use.
typedef struct bypath_channel_datagram_receiver bypath_channel_datagram_receiver;

// The half of a channel that sends datagrams. Only pointers to it are of use.
typedef struct bypath_channel_datagram_sender bypath_channel_datagram_sender;

// A name at which channels are made. Only pointers to it are of use.
typedef struct bypath_channel_listener bypath_channel_listener;

// The half of a channel that reads. Only pointers to it are of use.
typedef struct bypath_channel_receiver bypath_channel_receiver;

// The half of a channel that writes. Only pointers to it are of use.
typedef struct bypath_channel_sender bypath_channel_sender;

// A raw Ethernet socket. Only pointers to it are of use.
typedef struct bypath_l2_socket bypath_l2_socket;

// A TCP/IP stack of our own on a link, run by a thread of the library's, or by the calls of its sockets. Only pointers to it are of use.
typedef struct bypath_netstack bypath_netstack;

// A connection of a netstack. Only pointers to it are of use. Several threads may use one at the same time, such as one that reads
// and one that writes.
typedef struct bypath_tcp bypath_tcp;

// Somebody calls somebody else, and is not answered yet. Only pointers to it are of use; one call ends it.
typedef struct bypath_tcp_call bypath_tcp_call;

// What gets the calls to others that come through a netstack's link: a proxy, or the end of a tunnel. Only pointers to it are of use.
// Several threads may use one at the same time.
typedef struct bypath_tcp_forwarder bypath_tcp_forwarder;

// What gets connections to an address and port of a netstack. Only pointers to it are of use. Several threads may use one at the
// same time.
typedef struct bypath_tcp_listener bypath_tcp_listener;

// A TUN device, and the datagrams of one own address over it. Only pointers to it are of use.
typedef struct bypath_tun bypath_tun;

// A UDP socket of a netstack. Only pointers to it are of use. Several threads may use one at the same time, such as one that
// receives and one that sends.
typedef struct bypath_udp bypath_udp;

// A hardware address, in the order in which it is sent.
typedef struct bypath_mac {
    // Its octets.
    uint8_t octets[6];
} bypath_mac;

// What a function answers: `BYPATH_OK`, or one of the negative codes `BYPATH_E_...`.
typedef int32_t bypath_status;

// What went wrong, and what to do about it. It belongs to the caller; functions write it only when they fail.
typedef struct bypath_error {
    // `BYPATH_E_...`
    int32_t status;
    // The errno that stands for it.
    int32_t system;
    // One or two sentences of UTF-8 with the remedy, terminated by a zero; cut if they are too long.
    char message[BYPATH_ERROR_TEXT];
} bypath_error;

// A VLAN tag. One with `tpid` 0 is no tag.
typedef struct bypath_vlan_tag {
    // `BYPATH_TPID_VLAN`, `BYPATH_TPID_SERVICE`; 0: no tag.
    uint16_t tpid;
    // VLAN, 0 to 4094; 0: a priority only.
    uint16_t vlan;
    // Priority, 0 to 7.
    uint8_t priority;
    // Drop eligible: 0 or 1.
    uint8_t drop_eligible;
} bypath_vlan_tag;

// An interface.
typedef struct bypath_interface {
    // Number, from 1.
    uint32_t index;
    // Largest payload of a frame in octets.
    uint32_t mtu;
    // IFF_... of netdevice(7).
    uint32_t flags;
    // Speed in Mbit/s; 0 where the driver does not tell one.
    uint32_t speed;
    // Whether a cable, or a peer, is there: 1 or 0; -1 where that is not told, or it is down.
    int32_t carrier;
    // 1 if it is switched on, 0 if not.
    uint8_t up;
    // 1 for the loopback interface.
    uint8_t loopback;
    // 1 if it carries Ethernet frames.
    uint8_t ethernet;
    // Hardware address.
    struct bypath_mac mac;
    // Name, such as `eth0`.
    char name[BYPATH_INTERFACE_NAME];
    // Queueing discipline of sent frames, such as `noqueue`, `fq` or `mq`.
    char queueing[BYPATH_QUEUEING_NAME];
} bypath_interface;

// What socket is wanted. Fill it by `bypath_l2_options_init`, then change what should differ. It may be thrown away when
// `bypath_l2_open` has returned.
typedef struct bypath_l2_options {
    // Octets of this structure: set by `bypath_l2_options_init`, by which the library knows what it was given.
    size_t size;
    // More EtherTypes of received frames, beside `ethertype`.
    const uint16_t *more_ethertypes;
    // How many.
    size_t more_ethertype_count;
    // Groups whose frames are received.
    const struct bypath_mac *groups;
    // How many.
    size_t group_count;
    // The longest wait in ns; `BYPATH_FOREVER` unless changed.
    uint64_t timeout_ns;
    // Octets of the receive queue; 0: the usual 4 MiB.
    size_t receive_queue;
    // Octets of the receive ring, where the mode has one; 0: the usual 8 MiB. With `BYPATH_MODE_XDP` of the buffers to
    // receive into; 0: as many as 2048 frames of an ordinary MTU take.
    size_t receive_ring;
    // Octets of a block of the receive ring of `BYPATH_MODE_RING`, 32 KiB to 4 MiB; 0: the usual 128 KiB. A sleeping reader is
    // woken for each.
    size_t block;
    // Frames of the send ring, where the mode has one; 0: the usual 256, 512 with `BYPATH_MODE_XDP`.
    size_t send_ring;
    // Frames of one system call in `BYPATH_MODE_MMSG`; 0: the usual 64.
    size_t batch;
    // `BYPATH_ALL_GROUPS` and the other flags, joined by `|`.
    uint32_t flags;
    // How calls wait: `BYPATH_WAIT_...`
    uint32_t wait;
    // The way in: `BYPATH_MODE_...`
    uint32_t receive_mode;
    // The way out: `BYPATH_MODE_...` without `BYPATH_MODE_LATENCY_RING`; `BYPATH_MODE_XDP` is for both ways together.
    uint32_t send_mode;
    // Who takes the time of received frames: `BYPATH_TIMESTAMP_...`; `BYPATH_TIMESTAMP_USUAL` unless changed.
    uint32_t timestamps;
    // Which VLANs' frames are received: `BYPATH_VLAN_...`
    uint32_t receive_vlan;
    // How the sockets of a fanout group share frames: `BYPATH_FANOUT_...`
    uint32_t fanout;
    // The clock of `at_ns` of sent frames: `BYPATH_CLOCK_...`
    uint32_t send_clock;
    // The device queue, from 0, with `BYPATH_MODE_XDP`. Other queues stay with the kernel.
    uint32_t queue;
    // Who copies frames, with `BYPATH_MODE_XDP`: `BYPATH_TRANSFER_...`
    uint32_t transfer;
    // Where frames are looked at, with `BYPATH_MODE_XDP`: `BYPATH_PLACE_...`
    uint32_t place;
    // With `BYPATH_MODE_XDP`: receiving calls work in the device's queue themselves for so many microseconds at most; 0:
    // they do not.
    uint32_t busy_poll_us;
    // Frames of one such poll, to 65535; 0: the usual 64.
    uint32_t busy_poll_budget;
    // EtherType of sent and of received frames, such as `BYPATH_ETHERTYPE_HYBRID`. 0, as it is unless changed, and no
    // other ones: frames of every EtherType are received, and frames are sent by `bypath_l2_send_with` only.
    uint16_t ethertype;
    // The fanout group, if there is one.
    uint16_t fanout_group;
    // The VLAN, with `BYPATH_VLAN_ID`.
    uint16_t receive_vlan_id;
    // The tag of sent frames, such as `bypath_vlan(10, 7)`; frames of its VLAN are received, of whatever priority. None
    // unless changed.
    struct bypath_vlan_tag tag;
} bypath_l2_options;

// What has passed through a socket since it was opened.
typedef struct bypath_l2_statistics {
    // Frames received.
    uint64_t received;
    // Octets of these frames.
    uint64_t received_octets;
    // Frames that were dropped because they were not received in time.
    uint64_t dropped;
    // Received frames left out because they were longer than any buffer.
    uint64_t cut;
    // Frames accepted for sending.
    uint64_t sent;
    // Octets of these frames.
    uint64_t sent_octets;
    // Accepted frames that were not sent after all.
    uint64_t refused;
} bypath_l2_statistics;

// What was asked, and what was obtained of it. What is for `BYPATH_MODE_XDP` is 0 in other modes.
typedef struct bypath_l2_obtained {
    // Octets of the receive queue, by the kernel's count.
    size_t receive_queue;
    // Octets of the receive ring, with `BYPATH_MODE_XDP` of the buffers to receive into; 0: there is none.
    size_t receive_ring;
    // Frames of the send ring; 0: there is none.
    size_t send_ring;
    // With `BYPATH_MODE_XDP`: octets of the longest frame that can be received.
    size_t longest_received;
    // With `BYPATH_MODE_XDP`: octets of all buffers.
    size_t memory;
    // The way in that was asked for: `BYPATH_MODE_...`
    uint32_t receive_mode_asked;
    // The way in.
    uint32_t receive_mode;
    // The way out that was asked for: `BYPATH_MODE_...`
    uint32_t send_mode_asked;
    // The way out.
    uint32_t send_mode;
    // Who was to take the time of received frames: `BYPATH_TIMESTAMP_...`
    uint32_t timestamps_asked;
    // Who takes it: `BYPATH_TIMESTAMP_...`
    uint32_t timestamps;
    // With `BYPATH_MODE_XDP`: the device queue.
    uint32_t queue;
    // With `BYPATH_MODE_XDP`: who was to copy: `BYPATH_TRANSFER_...`
    uint32_t transfer_asked;
    // Who copies: `BYPATH_TRANSFER_COPY` or `BYPATH_TRANSFER_ZERO_COPY`.
    uint32_t transfer;
    // With `BYPATH_MODE_XDP`: where frames were to be looked at: `BYPATH_PLACE_...`
    uint32_t place_asked;
    // Where they are looked at: `BYPATH_PLACE_DRIVER` or `BYPATH_PLACE_GENERIC`.
    uint32_t place;
    // 1 if sent frames bypass the queueing discipline.
    uint8_t qdisc_bypass;
    // 1 if the queue sends frames at their time.
    uint8_t send_time;
    // With `BYPATH_MODE_XDP`: 1 if the kernel was to tell when it must be woken.
    uint8_t need_wakeup_asked;
    // 1 if it tells.
    uint8_t need_wakeup;
    // With `BYPATH_MODE_XDP`: 1 if the device was to be polled.
    uint8_t busy_poll_asked;
    // 1 if it is polled.
    uint8_t busy_poll;
    // With `BYPATH_MODE_XDP`: 1 if the MTU asks for frames that lie in several buffers.
    uint8_t multi_buffer_asked;
    // 1 if frames may lie in several buffers.
    uint8_t multi_buffer;
} bypath_l2_obtained;

// What stands before the payload of a frame to be sent. Fill it by `bypath_l2_header_init`.
typedef struct bypath_l2_header {
    // When it is to be sent, in ns of the clock asked for by `send_clock`; 0: at once.
    uint64_t at_ns;
    // To whom.
    struct bypath_mac destination;
    // From whom.
    struct bypath_mac source;
    // The VLAN tag.
    struct bypath_vlan_tag vlan;
    // A second tag, behind the first.
    struct bypath_vlan_tag inner_vlan;
    // What the payload is.
    uint16_t ethertype;
} bypath_l2_header;

// Octets to be sent.
typedef struct bypath_octets {
    // Where they are; may be NULL if there are none.
    const void *data;
    // How many.
    size_t len;
} bypath_octets;

// What is known of a received frame.
typedef struct bypath_l2_frame {
    // Octets of payload in the buffer.
    size_t len;
    // Octets of payload that the frame had, padding included: more than `len` if the buffer was too short.
    size_t whole;
    // When it arrived, in ns; of which clock, `timestamp_source` says.
    uint64_t timestamp_ns;
    // Who took the time: `BYPATH_TIMESTAMP_...`; with `BYPATH_TIMESTAMP_NONE` there is none.
    uint32_t timestamp_source;
    // Whom it was addressed to: `BYPATH_TO_...`
    uint32_t addressed;
    // To whom.
    struct bypath_mac destination;
    // From whom.
    struct bypath_mac source;
    // The outermost VLAN tag.
    struct bypath_vlan_tag vlan;
    // The second tag of two.
    struct bypath_vlan_tag inner_vlan;
    // What the payload is; below 0x0600 the payload's length (IEEE 802.3).
    uint16_t ethertype;
} bypath_l2_frame;

// A place for a received frame.
typedef struct bypath_l2_slot {
    // Where the payload goes.
    void *data;
    // Octets that there is room for.
    size_t capacity;
    // What is known of the frame: written by `bypath_l2_receive_batch`.
    struct bypath_l2_frame frame;
} bypath_l2_slot;

// Takes a received frame: `context` is what was given to `bypath_l2_receive_each`, `payload` has `frame->len` octets. Both
// `frame` and `payload` are there until it returns.
//
// It must return: no longjmp, no exception. Calls with the same socket are answered with `BYPATH_E_BUSY` meanwhile.
typedef void (*bypath_l2_taker)(void *context,
                                const struct bypath_l2_frame *frame,
                                const void *payload);

// An address and a port.
typedef struct bypath_endpoint {
    // The address in the order in which it is sent: 4 octets of IPv4, or 16 of IPv6.
    uint8_t address[16];
    // The port, in the byte order of the host.
    uint16_t port;
    // 4 or 6.
    uint8_t family;
    // Not used.
    uint8_t reserved;
} bypath_endpoint;

// What device is wanted, and how datagrams are sent. Fill it by `bypath_tun_options_init`, then change what should differ.
// It may be thrown away when `bypath_tun_open` has returned.
typedef struct bypath_tun_options {
    // Octets of this structure: set by `bypath_tun_options_init`, by which the library knows what it was given.
    size_t size;
    // The interface's name: `%d` stands for the first number that is free. NULL: `tun%d`.
    const char *name;
    // The kernel's address and the length of the network's prefix, such as `10.9.0.1/24`, through which it reaches us.
    // NULL: it has one already, or none.
    const char *address;
    // The own address and port, such as `10.9.0.2:7000`, which the kernel reaches through the device and does not have
    // itself.
    const char *local;
    // Another device node than `/dev/net/tun`; NULL: that one.
    const char *path;
    // The longest wait of a receiving call in ns; `BYPATH_FOREVER` unless changed; 0: it does not wait.
    uint64_t timeout_ns;
    // Octets of the largest packet; 0: 1500, or what an existing device has.
    uint32_t mtu;
    // How packets are handed over: `BYPATH_TUN_PIECES`, `BYPATH_TUN_ASSEMBLE`, `BYPATH_TUN_SUPER`.
    uint32_t mode;
    // Who computes checksums: `BYPATH_CHECKSUM_...`
    uint32_t checksum;
    // `BYPATH_TUN_ATTACH` and the other flags, joined by `|`.
    uint32_t flags;
    // Routers that a packet may pass; 0: 64.
    uint8_t ttl;
    // The differentiated services code point, 0 to 63.
    uint8_t dscp;
    // Not used.
    uint8_t reserved[6];
} bypath_tun_options;

// What became of what was asked.
typedef struct bypath_tun_obtained {
    // Octets of the longest datagram.
    size_t most_payload;
    // Octets of the longest datagram that is not cut.
    size_t most_uncut;
    // The interface's number.
    uint32_t index;
    // Its MTU.
    uint32_t mtu;
    // The interface's name.
    char name[16];
    // 1 if the kernel takes and gives datagrams without a checksum.
    uint8_t checksum;
    // 1 if it takes and gives TCP super-packets.
    uint8_t tcp;
    // 1 if it takes and gives super-packets of datagrams.
    uint8_t udp;
    // 1 if the device stays when it is closed.
    uint8_t persistent;
    // 1 if it did not exist before.
    uint8_t created;
    // Not used.
    uint8_t reserved[3];
} bypath_tun_obtained;

// What is known of a received datagram.
typedef struct bypath_tun_datagram {
    // Octets of payload in the buffer.
    size_t len;
    // Octets of payload that the datagram had: more than `len` if the buffer was too short.
    size_t whole;
    // From whom.
    struct bypath_endpoint source;
    // Routers that it might still have passed.
    uint8_t ttl;
    // Type of service, traffic class: DSCP in the upper six bits, ECN in the lower two.
    uint8_t class_octet;
    // Not used.
    uint8_t reserved[2];
} bypath_tun_datagram;

// Takes a received datagram: `context` is what was given to `bypath_tun_receive_each`, `payload` has `datagram->len` octets.
// Both `datagram` and `payload` are there until it returns.
//
// It must return: no longjmp, no exception. Calls with the same device are answered with `BYPATH_E_BUSY` meanwhile.
typedef void (*bypath_tun_taker)(void *context,
                                 const struct bypath_tun_datagram *datagram,
                                 const void *payload);

// What netstack is wanted. Fill it by `bypath_netstack_options_init`, then change what should differ. It may be thrown away when
// `bypath_netstack_open` has returned.
typedef struct bypath_netstack_options {
    // Octets of this structure: set by `bypath_netstack_options_init`, by which the library knows what it was given.
    size_t size;
    // What it stands on: `tap:NAME` or `tun:NAME`, a device that is made, with the kernel at its other end (`%d` in the name
    // stands for the first number that is free); `packet:IFACE`, an interface by packet sockets; `xdp:IFACE`, the first queue of
    // one by AF_XDP: all IP that comes there is the netstack's then.
    const char *link;
    // Its own addresses, each with the length of the network's prefix, such as `10.9.0.2/24`. Best such as the kernel does not
    // have.
    const char *const *addresses;
    // How many.
    size_t address_count;
    // The kernel's addresses at its end of a device, such as `10.9.0.1/24`.
    const char *const *kernel_addresses;
    // How many.
    size_t kernel_address_count;
    // The routers for all other networks, such as `10.9.0.1`: one of IPv4, one of IPv6.
    const char *const *routers;
    // How many.
    size_t router_count;
    // The name that a DHCP server is told; NULL: none.
    const char *host_name;
    // The longest wait of `bypath_netstack_open` for addresses, in ns: 30 s unless changed. `BYPATH_FOREVER`: no limit.
    uint64_t timeout_ns;
    // MTU of a device; 0: 1500, or what an existing one has.
    uint32_t mtu;
    // `BYPATH_NETSTACK_ATTACH`, `BYPATH_NETSTACK_DHCP`, `BYPATH_NETSTACK_IN_PROCESS`, joined by `|`.
    uint32_t flags;
} bypath_netstack_options;

// What a netstack stands on.
typedef struct bypath_netstack_obtained {
    // Octets of the largest packet.
    uint32_t mtu;
    // The name of the device or interface.
    char name[16];
} bypath_netstack_obtained;

// An address of a netstack.
typedef struct bypath_netstack_address {
    // In the order in which it is sent: 4 octets of IPv4, or 16 of IPv6.
    uint8_t address[16];
    // 4 or 6.
    uint8_t family;
    // Bits of the network's prefix.
    uint8_t prefix;
    // What it may be used for: `BYPATH_ADDRESS_...`
    uint8_t state;
    // Not used.
    uint8_t reserved;
} bypath_netstack_address;

// Something that is counted.
typedef struct bypath_counter {
    // How often, since the netstack was opened.
    uint64_t value;
    // What: the layer, then the name; with `_drop_` in it and a reason: what ended there.
    char name[BYPATH_COUNTER_NAME];
} bypath_counter;

// What a connection, or a listener and its connections, want. Fill it by `bypath_tcp_options_init`, or
// `bypath_tcp_read_options` for those of a connection, then change what should differ.
typedef struct bypath_tcp_options {
    // Octets of this structure: set by what fills it, by which the library knows what it was given.
    size_t size;
    // Octets that may be written and not acknowledged.
    size_t send_octets;
    // Octets that may have come and not been read: the largest window.
    size_t receive_octets;
    // Of a listener: connections that wait to be accepted at most.
    size_t backlog;
    // The longest wait of calls, in ns, `bypath_tcp_connect` included; `BYPATH_FOREVER` unless changed; 0: they do not wait. For
    // opening: later on it is `bypath_tcp_set_timeouts`.
    uint64_t timeout_ns;
    // Silence before the other side is asked whether it is still there, in ns; 0, as it is unless changed: it is not asked.
    uint64_t keepalive_idle_ns;
    // Between such questions, in ns.
    uint64_t keepalive_interval_ns;
    // How long what was written is still sent after the connection was closed, in ns: beyond, it is given up with a reset; 0: at
    // once. `BYPATH_FOREVER`, as it is unless changed: as long as the other side answers. Closing does not wait.
    uint64_t linger_ns;
    // Octets that are not acknowledged for so long end the connection, in ns (RFC 5482). `BYPATH_FOREVER`, as it is unless
    // changed: when they were sent again often enough.
    uint64_t user_timeout_ns;
    // Questions without an answer that end the connection.
    uint32_t keepalive_probes;
    // Congestion control: `BYPATH_TCP_CUBIC`, `BYPATH_TCP_RENO`.
    uint32_t congestion;
    // `BYPATH_TCP_NODELAY` and the other flags, joined by `|`.
    uint32_t flags;
    // Routers that packets may pass; 0: the usual 64.
    uint8_t ttl;
    // Type of service, traffic class of packets: DSCP in the upper six bits; ECN is the netstack's.
    uint8_t class_octet;
    // Octets of payload of the short segments that `BYPATH_TCP_PROBE_MTU` begins with; 1024 unless changed, 48 at least.
    uint16_t base_mss;
} bypath_tcp_options;

// How a connection does, in the manner of TCP_INFO (tcp(7)).
typedef struct bypath_tcp_statistics {
    // Smoothed round trip in ns; 0: not measured yet.
    uint64_t srtt_ns;
    // Its variance in ns.
    uint64_t rttvar_ns;
    // The shortest round trip of the last minutes in ns; 0: not measured yet.
    uint64_t min_rtt_ns;
    // How long an acknowledgement is waited for, in ns.
    uint64_t rto_ns;
    // Octets that were acknowledged, in all.
    uint64_t octets_acknowledged;
    // Octets that came in their order, in all.
    uint64_t octets_received;
    // Octets that were sent again, in all.
    uint64_t octets_again;
    // Segments that came.
    uint64_t segments_in;
    // Segments that were sent.
    uint64_t segments_out;
    // Octets that were written and are not acknowledged.
    uint64_t unacknowledged;
    // Of those, octets that were not sent yet.
    uint64_t unsent;
    // Octets that came and were not read.
    uint64_t unread;
    // Octets that may be on their way.
    uint32_t cwnd;
    // The largest `cwnd` until something was lost.
    uint32_t ssthresh;
    // Octets of payload of a segment that is sent.
    uint32_t mss;
    // The largest that came, as far as is known.
    uint32_t receive_mss;
    // Octets that the other side takes.
    uint32_t send_window;
    // Octets that the other side was told it may send.
    uint32_t receive_window;
    // Octets on their way.
    uint32_t in_flight;
    // Octets that are lost and were not sent again yet.
    uint32_t lost;
    // Octets that arrived beyond gaps.
    uint32_t sacked;
    // Congestion control: `BYPATH_TCP_CUBIC`, `BYPATH_TCP_RENO`.
    uint32_t congestion;
    // `BYPATH_TCP_ESTABLISHED` or another state.
    uint8_t state;
    // `BYPATH_TCP_AGREED_...`, joined by `|`.
    uint8_t agreed;
    // How far the other side's windows are shifted.
    uint8_t send_shift;
    // How far this side's are.
    uint8_t receive_shift;
    // Not used.
    uint8_t reserved[4];
} bypath_tcp_statistics;

// What is known of a received datagram.
typedef struct bypath_udp_datagram {
    // Octets of payload in the buffer.
    size_t len;
    // Octets of payload that the datagram had: more than `len` if the buffer was too short.
    size_t whole;
    // From whom.
    struct bypath_endpoint source;
    // To which address and port.
    struct bypath_endpoint destination;
    // Routers that it might still have passed.
    uint8_t ttl;
    // Type of service, traffic class: DSCP in the upper six bits, ECN in the lower two.
    uint8_t class_octet;
    // Not used.
    uint8_t reserved[6];
} bypath_udp_datagram;

// What capture file is wanted. Fill it by `bypath_capture_options_init`, then change what should differ. It may be thrown
// away when `bypath_capture_create` has returned.
typedef struct bypath_capture_options {
    // Octets of this structure: set by `bypath_capture_options_init`, by which the library knows what it was given.
    size_t size;
    // A remark about the interface, for people; NULL, as it is unless changed: none.
    const char *comment;
    // Octets that are written of each frame at most; 0, as it is unless changed: all.
    uint32_t snap;
    // What frames begin with: `BYPATH_LINK_TYPE_ETHERNET` unless changed.
    uint16_t link_type;
    // The interface's hardware address; zeroes, as it is unless changed: not told.
    struct bypath_mac mac;
} bypath_capture_options;

// What a capture file says about a frame. One of zeroes says nothing but that it was captured in 1970.
typedef struct bypath_capture_frame {
    // Nanoseconds since 1970 (UTC).
    uint64_t ns;
    // Frames that were lost between the one before and this one, as far as that is told.
    uint64_t lost;
    // Octets in the buffer that it was read into. Not looked at by functions that write.
    size_t len;
    // Octets in the file: more than `len` if the buffer was too short. Not looked at by functions that write.
    size_t kept;
    // Octets that the frame had: more than `kept` if only its beginning was written. For functions that write, 0: as many
    // as they are given.
    size_t whole;
    // The number of its interface in the file, from 0. Not looked at by functions that write.
    uint32_t interface;
    // Which way it went: `BYPATH_DIRECTION_...`
    uint32_t direction;
    // Whom it was addressed to: `BYPATH_TO_...`; files do not tell `BYPATH_TO_OUTGOING`.
    uint32_t addressed;
} bypath_capture_frame;

// What a capture file says about an interface.
typedef struct bypath_capture_interface {
    // Octets that were written of each frame at most; 0: all.
    uint32_t snap;
    // What its frames begin with, such as `BYPATH_LINK_TYPE_ETHERNET`.
    uint16_t link_type;
    // Its hardware address; zeroes: not told.
    struct bypath_mac mac;
    // Its name; empty: not told.
    char name[BYPATH_CAPTURE_NAME];
} bypath_capture_interface;

// An end of a channel that is for another process.
typedef struct bypath_channel_remote {
    // Memory, the sender's bell, the receiver's bell: close-on-exec.
    int descriptors[3];
} bypath_channel_remote;

// A run of a ring's octets. The other process can change them at any time: what is looked at twice may differ.
typedef struct bypath_channel_run {
    // Where it begins.
    uint8_t *octets;
    // How many.
    size_t length;
} bypath_channel_run;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The code's name, such as `BYPATH_E_TIMED_OUT`: a constant text. Never NULL.
const char *bypath_status_name(int32_t status);

// The version of the library that runs, such as `0.1.0`: a constant text. Never NULL.
const char *bypath_version(void);

// The address of everybody.
struct bypath_mac bypath_mac_broadcast(void);

// Reads an address such as `02:00:5e:10:00:01`, or with `-`.
//
// Fails with `BYPATH_E_INVALID`.
bypath_status bypath_mac_parse(const char *address,
                               struct bypath_mac *mac,
                               struct bypath_error *error);

// Writes an address as text, such as `02:00:5e:10:00:01`, into `BYPATH_MAC_TEXT` octets.
//
// Fails with `BYPATH_E_INVALID` if `address` is NULL.
bypath_status bypath_mac_format(struct bypath_mac mac, char *address, struct bypath_error *error);

// The tag of a VLAN (0 to 4094; 0: a priority only) with a priority (0 to 7), by IEEE 802.1Q and not drop eligible. That
// the numbers can be is checked where the tag is used.
struct bypath_vlan_tag bypath_vlan(uint16_t vlan,
                                   uint8_t priority);

// All interfaces of the calling thread's network namespace, by index.
//
// Writes up to `capacity` of them into `list`, and into `count` how many there are, which may be more. With a capacity
// of 0 `list` may be NULL.
//
// Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_interfaces(struct bypath_interface *list,
                                size_t capacity,
                                size_t *count,
                                struct bypath_error *error);

// The interface of this name.
//
// Fails with `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_interface_named(const char *name,
                                     struct bypath_interface *found,
                                     struct bypath_error *error);

// Fills options with the usual values.
//
// Fails with `BYPATH_E_INVALID` if `options` is NULL.
bypath_status bypath_l2_options_init(struct bypath_l2_options *options, struct bypath_error *error);

// Opens a socket on an interface, such as `eth0`. Close it by `bypath_l2_close`.
//
// Needs the capability CAP_NET_RAW; with `BYPATH_MODE_XDP` CAP_NET_ADMIN and CAP_BPF, too, of the whole machine and not of
// a user namespace. `options` may be NULL for the usual ones. When it fails, `*socket` is NULL.
//
// Fails with `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_NOT_ETHERNET`, `BYPATH_E_DOWN`, `BYPATH_E_NOT_ALLOWED`,
// `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`; with `BYPATH_MODE_XDP` also `BYPATH_E_UNSUPPORTED` where the kernel or the driver
// cannot do it, and `BYPATH_E_IN_USE` where another program has the queue, or the interface's place for a program.
bypath_status bypath_l2_open(const char *interface,
                             const struct bypath_l2_options *options,
                             struct bypath_l2_socket **socket,
                             struct bypath_error *error);

// Closes a socket: in microseconds, and the same interface can be opened anew at once. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
bypath_status bypath_l2_close(struct bypath_l2_socket *socket,
                              struct bypath_error *error);

// The descriptor to poll: readable (POLLIN) when a frame may be there. Read, write and close it by this library only. It
// is valid as long as the socket. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_descriptor(struct bypath_l2_socket *socket,
                                   int *descriptor,
                                   struct bypath_error *error);

// This end's hardware address. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_mac(struct bypath_l2_socket *socket,
                            struct bypath_mac *mac,
                            struct bypath_error *error);

// Octets of the longest payload that `bypath_l2_send` sends: 4 less than the MTU for a socket with a tag on loopback. A
// second tag takes 4 everywhere. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_mtu(struct bypath_l2_socket *socket,
                            size_t *mtu,
                            struct bypath_error *error);

// Changes the longest wait, in ns; `BYPATH_FOREVER`: no limit. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_set_timeout(struct bypath_l2_socket *socket,
                                    uint64_t timeout_ns,
                                    struct bypath_error *error);

// Changes how calls wait: `BYPATH_WAIT_...`. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_set_wait(struct bypath_l2_socket *socket,
                                 uint32_t wait,
                                 struct bypath_error *error);

// Begins to receive frames to a group.
//
// Fails with `BYPATH_E_INVALID` for an address that is no group's, `BYPATH_E_GONE`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_join(struct bypath_l2_socket *socket,
                             struct bypath_mac group,
                             struct bypath_error *error);

// Ends `bypath_l2_join`.
//
// Fails with `BYPATH_E_INVALID` for a group that was not joined, `BYPATH_E_GONE`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_leave(struct bypath_l2_socket *socket,
                              struct bypath_mac group,
                              struct bypath_error *error);

// Reads the counters. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_read_statistics(struct bypath_l2_socket *socket,
                                        struct bypath_l2_statistics *statistics,
                                        struct bypath_error *error);

// Says what was obtained of what was asked.
//
// Why something was not obtained is written into `notes`, one sentence to a line, cut to `capacity` octets with the zero
// that ends it. `notes` may be NULL with a capacity of 0.
//
// Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_read_obtained(struct bypath_l2_socket *socket,
                                      struct bypath_l2_obtained *obtained,
                                      char *notes,
                                      size_t capacity,
                                      struct bypath_error *error);

// Fills a header with what `bypath_l2_send` would send: the own address, tag and EtherType of the socket (0 if it has
// none), at once.
//
// Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_l2_header_init(struct bypath_l2_socket *socket,
                                    struct bypath_mac to,
                                    struct bypath_l2_header *header,
                                    struct bypath_error *error);

// Sends one frame, with the socket's EtherType and tag. Short payloads are padded with zeroes to
// `BYPATH_SHORTEST_PAYLOAD` octets; the receiver cannot tell padding from payload.
//
// Fails with `BYPATH_E_TOO_LONG` beyond the MTU, `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_INTERRUPTED`,
// `BYPATH_E_QUEUE_FULL`, `BYPATH_E_DOWN`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`; the
// frame was not sent then.
bypath_status bypath_l2_send(struct bypath_l2_socket *socket,
                             struct bypath_mac to,
                             const void *payload,
                             size_t len,
                             struct bypath_error *error);

// Sends one frame with a header of your own. Fails as `bypath_l2_send` does.
bypath_status bypath_l2_send_with(struct bypath_l2_socket *socket,
                                  const struct bypath_l2_header *header,
                                  const void *payload,
                                  size_t len,
                                  struct bypath_error *error);

// Sends a whole frame as it is: header included, without frame check sequence; no tag and no padding is added.
//
// Fails as `bypath_l2_send` does, and with `BYPATH_E_TOO_SHORT` for less than `BYPATH_HEADER` octets.
bypath_status bypath_l2_send_octets(struct bypath_l2_socket *socket,
                                    const void *frame,
                                    size_t len,
                                    struct bypath_error *error);

// Sends many frames to one address, with as few system calls as the mode needs.
//
// `*sent` is how many were sent: fewer than `count` if the time was over, or something went wrong after the first ones;
// 0 if it fails. Fails as `bypath_l2_send` does.
bypath_status bypath_l2_send_batch(struct bypath_l2_socket *socket,
                                   struct bypath_mac to,
                                   const struct bypath_octets *payloads,
                                   size_t count,
                                   size_t *sent,
                                   struct bypath_error *error);

// Waits for a frame and copies its payload into `buffer`, as much as fits.
//
// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_DOWN` once when the interface
// goes down, `BYPATH_E_GONE` from when it is removed, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`.
bypath_status bypath_l2_receive(struct bypath_l2_socket *socket,
                                void *buffer,
                                size_t capacity,
                                struct bypath_l2_frame *frame,
                                struct bypath_error *error);

// Waits for a frame, and puts it and those that are there already into `slots`, up to `count` of them.
//
// `*received` is how many slots were filled, from the first one on: 0 only if it fails, or if `count` is 0. Fails as
// `bypath_l2_receive` does.
bypath_status bypath_l2_receive_batch(struct bypath_l2_socket *socket,
                                      struct bypath_l2_slot *slots,
                                      size_t count,
                                      size_t *received,
                                      struct bypath_error *error);

// Waits for a frame, and gives it and those that are there already, up to `most`, to `taker`, one after the other. Nothing
// is copied: payloads are read where the kernel put them.
//
// `*received` is how many were given: 0 only if it fails, or if `most` is 0. Fails as `bypath_l2_receive` does.
bypath_status bypath_l2_receive_each(struct bypath_l2_socket *socket,
                                     size_t most,
                                     bypath_l2_taker taker,
                                     void *context,
                                     size_t *received,
                                     struct bypath_error *error);

// Reads an address and a port, such as `10.9.0.1:9000` or `[fd09::1]:9000`.
//
// Fails with `BYPATH_E_INVALID`.
bypath_status bypath_endpoint_parse(const char *address,
                                    struct bypath_endpoint *endpoint,
                                    struct bypath_error *error);

// Writes an address and a port as text into `BYPATH_ENDPOINT_TEXT` octets.
//
// Fails with `BYPATH_E_INVALID`.
bypath_status bypath_endpoint_format(struct bypath_endpoint endpoint,
                                     char *address,
                                     struct bypath_error *error);

// Fills options with what is usual: `local` is to be set.
//
// Fails with `BYPATH_E_INVALID` if `options` is NULL.
bypath_status bypath_tun_options_init(struct bypath_tun_options *options,
                                      struct bypath_error *error);

// Makes a TUN device, or attaches to one, and begins to send and receive datagrams. Close it by `bypath_tun_close`.
//
// Making one needs the capability CAP_NET_ADMIN, which root of a user and network namespace of one's own has
// (`unshare --user --net --map-root-user`). When it fails, `*tun` is NULL and nothing is left behind.
//
// Fails with `BYPATH_E_NAME`, `BYPATH_E_IN_USE` for a name that is taken, `BYPATH_E_UNKNOWN`, `BYPATH_E_NOT_ALLOWED`,
// `BYPATH_E_UNSUPPORTED` where there is no TUN device or it has no super-packets, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_tun_open(const struct bypath_tun_options *options,
                              struct bypath_tun **tun,
                              struct bypath_error *error);

// Closes it; a device that does not persist is gone afterwards. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
bypath_status bypath_tun_close(struct bypath_tun *tun, struct bypath_error *error);

// The descriptor to poll: readable (POLLIN) when a packet may be there. Read, write and close it by this library only. It
// is valid until `bypath_tun_close`. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_tun_descriptor(struct bypath_tun *tun,
                                    int *descriptor,
                                    struct bypath_error *error);

// Changes the longest wait of receiving calls, in ns; `BYPATH_FOREVER`: no limit; 0: they do not wait. Fails with
// `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_tun_set_timeout(struct bypath_tun *tun,
                                     uint64_t timeout_ns,
                                     struct bypath_error *error);

// Changes how packets are handed over: `BYPATH_TUN_PIECES`, `BYPATH_TUN_ASSEMBLE`, `BYPATH_TUN_SUPER`. Fails with
// `BYPATH_E_UNSUPPORTED`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_tun_set_mode(struct bypath_tun *tun,
                                  uint32_t how,
                                  struct bypath_error *error);

// Tells what became of what was asked. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_tun_read_obtained(struct bypath_tun *tun,
                                       struct bypath_tun_obtained *obtained,
                                       struct bypath_error *error);

// Sends one datagram. One that does not fit into the MTU is cut into fragments, unless `BYPATH_TUN_DONT_FRAGMENT` was asked.
//
// Fails with `BYPATH_E_TOO_LONG`, `BYPATH_E_DOWN`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`,
// `BYPATH_E_SYSTEM`.
bypath_status bypath_tun_send(struct bypath_tun *tun,
                              struct bypath_endpoint to,
                              const void *payload,
                              size_t len,
                              struct bypath_error *error);

// Sends many datagrams to one receiver; with `BYPATH_TUN_SUPER` those of one size that follow each other by one system call.
//
// `*sent` is how many were sent: fewer than `count` if something went wrong after the first ones; 0 if it fails. Fails as
// `bypath_tun_send` does.
bypath_status bypath_tun_send_batch(struct bypath_tun *tun,
                                    struct bypath_endpoint to,
                                    const struct bypath_octets *payloads,
                                    size_t count,
                                    size_t *sent,
                                    struct bypath_error *error);

// Cuts octets into datagrams of `size`, the last of which may be shorter, and sends them; with `BYPATH_TUN_SUPER` up to 64
// by one system call, and nothing is copied.
//
// `*sent` is how many datagrams were sent; 0 if it fails. Fails as `bypath_tun_send` does.
bypath_status bypath_tun_send_cut(struct bypath_tun *tun,
                                  struct bypath_endpoint to,
                                  const void *data,
                                  size_t len,
                                  size_t size,
                                  size_t *sent,
                                  struct bypath_error *error);

// Waits for a datagram to the own address and copies its payload into `buffer`, as much as fits.
//
// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_UNREACHABLE` once when a host
// answered that nobody takes what was sent, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`.
bypath_status bypath_tun_receive(struct bypath_tun *tun,
                                 void *buffer,
                                 size_t capacity,
                                 struct bypath_tun_datagram *datagram,
                                 struct bypath_error *error);

// Waits for a datagram, and gives it and those that are there already, up to `most`, to `taker`, one after the other. Those
// of a super-packet come out of one system call, and nothing is copied.
//
// `*received` is how many were given: 0 only if it fails, or if `most` is 0. Fails as `bypath_tun_receive` does.
bypath_status bypath_tun_receive_each(struct bypath_tun *tun,
                                      size_t most,
                                      bypath_tun_taker taker,
                                      void *context,
                                      size_t *received,
                                      struct bypath_error *error);

// Fills options with what is usual: `link`, and addresses or `BYPATH_NETSTACK_DHCP`, are to be set.
//
// Fails with `BYPATH_E_INVALID` if `options` is NULL.
bypath_status bypath_netstack_options_init(struct bypath_netstack_options *options,
                                           struct bypath_error *error);

// Opens a link, puts a TCP/IP stack on it, and returns when its addresses can be used. Close it by `bypath_netstack_close`.
//
// Making a device needs the capability CAP_NET_ADMIN, which root of a user and network namespace of one's own has
// (`unshare --user --net --map-root-user`); `packet:` CAP_NET_RAW; `xdp:` CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF of the whole
// machine. When it fails, `*netstack` is NULL and nothing is left behind.
//
// Fails with `BYPATH_E_IN_USE` where another host has an address, or the device exists, `BYPATH_E_TIMED_OUT` where no DHCP server
// answers, `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_NOT_ETHERNET`, `BYPATH_E_DOWN`, `BYPATH_E_GONE`,
// `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_UNSUPPORTED`, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_netstack_open(const struct bypath_netstack_options *options,
                                   struct bypath_netstack **netstack,
                                   struct bypath_error *error);

// Closes it: what is still to be sent is sent, a lease is given back, within 0.2 s; a device that does not persist is gone
// afterwards. Calls of its sockets that wait, and all later ones, answer `BYPATH_E_GONE`; the sockets are still to be closed. NULL
// is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
bypath_status bypath_netstack_close(struct bypath_netstack *netstack,
                                    struct bypath_error *error);

// Tells what it stands on. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_netstack_read_obtained(struct bypath_netstack *netstack,
                                            struct bypath_netstack_obtained *obtained,
                                            struct bypath_error *error);

// Its addresses, those of a DHCP server included.
//
// Writes up to `capacity` of them into `list`, and into `count` how many there are, which may be more. With a capacity of 0
// `list` may be NULL. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_netstack_addresses(struct bypath_netstack *netstack,
                                        struct bypath_netstack_address *list,
                                        size_t capacity,
                                        size_t *count,
                                        struct bypath_error *error);

// Gives it one more address, such as `10.9.0.3/24`. One of IPv6 may be used when others were asked whether it is theirs: look at
// its state. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_netstack_add_address(struct bypath_netstack *netstack,
                                          const char *own,
                                          struct bypath_error *error);

// Takes an address away, such as `10.9.0.3`. Fails with `BYPATH_E_INVALID`, also if it does not have it.
bypath_status bypath_netstack_remove_address(struct bypath_netstack *netstack,
                                             const char *own,
                                             struct bypath_error *error);

// What its stack has counted.
//
// Writes up to `capacity` counters into `list`, and into `count` how many there are, which may be more. With a capacity of 0
// `list` may be NULL. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_netstack_counters(struct bypath_netstack *netstack,
                                       struct bypath_counter *list,
                                       size_t capacity,
                                       size_t *count,
                                       struct bypath_error *error);

// Moves what there is to be moved between the link and the sockets of a netstack that was opened with `BYPATH_NETSTACK_IN_PROCESS`, and
// does what is due. `moved` becomes 1, or 0 where there was nothing to do; it may be NULL.
//
// Calls of such a netstack's sockets do this themselves as long as they find nothing: one with a time-out of 0 once, others until there is
// something or their time is over. They use no other thread, and no system call but the link's. What nobody calls for does not happen:
// what was lost is not sent again, and nobody hears answers, so that a program which does something else for a while calls this now and then.
// The descriptors of sockets follow with it.
//
// Fails with `BYPATH_E_GONE` when the link has gone, `BYPATH_E_INVALID`.
bypath_status bypath_netstack_poll(struct bypath_netstack *netstack,
                                   int *moved,
                                   struct bypath_error *error);

// Sleeps until `bypath_netstack_poll` would have something to do, for this time at most (ns; `BYPATH_FOREVER`: no limit), or until a signal
// comes: for programs that spin for a while only. Calls of other threads wake nobody. Fails with `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
bypath_status bypath_netstack_wait(struct bypath_netstack *netstack,
                                   uint64_t timeout_ns,
                                   struct bypath_error *error);

// Asks a netstack service, and waits for its answer: at most ten seconds for each row of it.
//
// `service`: its name, or the path of its socket, which has a slash; NULL: `default`. `question`: `service`, `sockets`, `stats`, `addresses`,
// `routes`, `neighbors` or `links`; or an object of JSON that asks for a change or for echo requests, such as
// `{"what":"change","change":"add-address","address":"10.9.0.3/24"}`. docs/netstack-service.md has all of them, and what the fields
// of answers mean.
//
// The answer is an array of JSON objects, with a zero behind it. Writes as much of it as `capacity` octets have room for, the zero included, and
// into `length` how many octets it has without: if those are no fewer than `capacity`, it was cut. Of a change 256 octets are enough:
// asked again, it is made again. With a capacity of 0 `answer` may be NULL.
//
// Fails with `BYPATH_E_REFUSED` where no service answers, `BYPATH_E_RESET` where it does not know the question or does not admit this user,
// `BYPATH_E_NOT_ALLOWED` for changes by others than root and the service's user, `BYPATH_E_IN_USE` for what is there already,
// `BYPATH_E_UNKNOWN` for an interface that it does not have, `BYPATH_E_TIMED_OUT`, `BYPATH_E_BUSY`, `BYPATH_E_FORMAT`,
// `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_service_ask(const char *service,
                                 const char *question,
                                 char *answer,
                                 size_t capacity,
                                 size_t *length,
                                 struct bypath_error *error);

// Fills options with what is usual.
//
// Fails with `BYPATH_E_INVALID` if `options` is NULL.
bypath_status bypath_tcp_options_init(struct bypath_tcp_options *options,
                                      struct bypath_error *error);

// Calls `to`, and waits until the connection is open. Close it by `bypath_tcp_close`. `from`: the own address, or port, or both
// (`0.0.0.0`, `::` and port 0 leave them open); NULL: as it comes. `options`: what is wanted; NULL: what is usual. When it fails,
// `*tcp` is NULL, and nothing is left of the call.
//
// Fails with `BYPATH_E_REFUSED` where nobody listens, `BYPATH_E_TIMED_OUT`, `BYPATH_E_RESET`, `BYPATH_E_NO_ROUTE`,
// `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_IN_USE` where no port is free, `BYPATH_E_WOULD_BLOCK` with a time-out of 0,
// `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM` for too many sockets.
bypath_status bypath_tcp_connect(struct bypath_netstack *netstack,
                                 struct bypath_endpoint to,
                                 const struct bypath_endpoint *from,
                                 const struct bypath_tcp_options *options,
                                 struct bypath_tcp **tcp,
                                 struct bypath_error *error);

// Calls `to`, and does not wait: the connection is open when `bypath_tcp_finish_connect` says so. The descriptor for
// `BYPATH_WRITABLE` is readable when that has something to say. Close it by `bypath_tcp_close` in any case.
//
// Fails as `bypath_tcp_connect` does, with what is known at once.
bypath_status bypath_tcp_begin_connect(struct bypath_netstack *netstack,
                                       struct bypath_endpoint to,
                                       const struct bypath_endpoint *from,
                                       const struct bypath_tcp_options *options,
                                       struct bypath_tcp **tcp,
                                       struct bypath_error *error);

// Waits until a connection is open, as long as writing may wait. It may be called again.
//
// Fails as `bypath_tcp_connect` does; once it has told why there is no connection, with `BYPATH_E_CLOSED`.
bypath_status bypath_tcp_finish_connect(struct bypath_tcp *tcp,
                                        struct bypath_error *error);

// Closes it. What was written is still sent, without waiting for it; if octets came that were not read, the connection is reset
// instead. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
// nothing is closed: `bypath_tcp_shutdown` with `BYPATH_SHUT_READ` ends a call that waits for octets, `bypath_tcp_abort` any.
bypath_status bypath_tcp_close(struct bypath_tcp *tcp,
                               struct bypath_error *error);

// Waits for octets, and takes as many as there are and fit; `*len`: how many. 0 says that the other side has finished, and that
// everything was read; so does a capacity of 0 at once.
//
// Fails with `BYPATH_E_RESET`, `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_GONE`,
// `BYPATH_E_INVALID`. Why a connection ended is told once; afterwards there is an end. After one's own
// `bypath_tcp_abort` there is what had come before, then an end, and no error.
bypath_status bypath_tcp_read(struct bypath_tcp *tcp,
                              void *buffer,
                              size_t capacity,
                              size_t *len,
                              struct bypath_error *error);

// The same, and the octets stay.
bypath_status bypath_tcp_peek(struct bypath_tcp *tcp,
                              void *buffer,
                              size_t capacity,
                              size_t *len,
                              struct bypath_error *error);

// Waits for room, and queues as many octets to be sent as there is room for; `*written`: how many.
//
// Fails with `BYPATH_E_CLOSED` where writing was finished, or the connection is over and it was told why, `BYPATH_E_RESET`,
// `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`. After one's own
// `bypath_tcp_abort` it is `BYPATH_E_CLOSED`.
bypath_status bypath_tcp_write(struct bypath_tcp *tcp,
                               const void *data,
                               size_t len,
                               size_t *written,
                               struct bypath_error *error);

// The same with several pieces, one behind the other, of which the first 64 are looked at.
bypath_status bypath_tcp_write_pieces(struct bypath_tcp *tcp,
                                      const struct bypath_octets *pieces,
                                      size_t count,
                                      size_t *written,
                                      struct bypath_error *error);

// Queues all octets to be sent, and waits for room as often as that takes; each wait is as long as writing may wait. `*written`:
// how many were queued, also when it fails, unless `written` is NULL.
//
// Fails as `bypath_tcp_write` does.
bypath_status bypath_tcp_write_all(struct bypath_tcp *tcp,
                                   const void *data,
                                   size_t len,
                                   size_t *written,
                                   struct bypath_error *error);

// Reads no more, writes no more, or both: `BYPATH_SHUT_...`
//
// Fails with `BYPATH_E_CLOSED` where the connection is over, `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
bypath_status bypath_tcp_shutdown(struct bypath_tcp *tcp, uint32_t how, struct bypath_error *error);

// Ends the connection at once, with a reset: what was written and not acknowledged is lost; what came can still be read, and
// then there is an end (`bypath_tcp_read`: 0 octets, no error); writing fails with `BYPATH_E_CLOSED`. Calls that wait end. It is still
// to be closed; a second time does nothing. Fails with `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
bypath_status bypath_tcp_abort(struct bypath_tcp *tcp,
                               struct bypath_error *error);

// Its own address and port. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_local(struct bypath_tcp *tcp,
                               struct bypath_endpoint *local,
                               struct bypath_error *error);

// The other side's. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_remote(struct bypath_tcp *tcp,
                                struct bypath_endpoint *remote,
                                struct bypath_error *error);

// Changes the longest waits of calls that begin afterwards, in ns: of those that read, and of those that write.
// `BYPATH_FOREVER`: no limit; 0: they do not wait, and answer `BYPATH_E_WOULD_BLOCK`. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_tcp_set_timeouts(struct bypath_tcp *tcp,
                                      uint64_t read_ns,
                                      uint64_t write_ns,
                                      struct bypath_error *error);

// What it wants now; `timeout_ns` is that of calls that read. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_read_options(struct bypath_tcp *tcp,
                                      struct bypath_tcp_options *options,
                                      struct bypath_error *error);

// Wants something else, but for what is for opening: that stays. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_set_options(struct bypath_tcp *tcp,
                                     const struct bypath_tcp_options *options,
                                     struct bypath_error *error);

// How it does. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_read_statistics(struct bypath_tcp *tcp,
                                         struct bypath_tcp_statistics *statistics,
                                         struct bypath_error *error);

// One of its two descriptors to poll. Both are polled for POLLIN: the one for `BYPATH_READABLE` is readable while a call that reads
// would not wait, the one for `BYPATH_WRITABLE` while one that writes would not, and when a connection that was begun is open or
// has failed. Calls that fail at once do not wait, either. After a write that found no room for everything there is room when half
// of it is free. Two threads that read may both be told of the same octets.
//
// Poll them, and do nothing else with them; they are valid as long as the connection. Fails with `BYPATH_E_INVALID`,
// `BYPATH_E_SYSTEM` where none is to be had.
bypath_status bypath_tcp_descriptor(struct bypath_tcp *tcp,
                                    uint32_t what,
                                    int *descriptor,
                                    struct bypath_error *error);

// Listens to this address and port of the netstack's. The addresses `0.0.0.0` and `::` stand for all of them, port 0 for one that
// is free: `bypath_tcp_listener_local` tells it. Close it by `bypath_tcp_listener_close`.
//
// `options`: what connections shall want that are accepted; NULL: what is usual. When it fails, `*listener` is NULL.
//
// Fails with `BYPATH_E_IN_USE`, `BYPATH_E_INVALID` for an address that is not the netstack's, `BYPATH_E_GONE`,
// `BYPATH_E_SYSTEM` for too many sockets.
bypath_status bypath_tcp_listen(struct bypath_netstack *netstack,
                                struct bypath_endpoint local,
                                const struct bypath_tcp_options *options,
                                struct bypath_tcp_listener **listener,
                                struct bypath_error *error);

// Closes it: who called and was not accepted is reset; connections that were accepted go on. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
// nothing is closed.
bypath_status bypath_tcp_listener_close(struct bypath_tcp_listener *listener,
                                        struct bypath_error *error);

// Waits for the next connection. Close it by `bypath_tcp_close`. `remote`: gets who has called, unless it is NULL. When it fails,
// `*tcp` is NULL.
//
// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
bypath_status bypath_tcp_accept(struct bypath_tcp_listener *listener,
                                struct bypath_tcp **tcp,
                                struct bypath_endpoint *remote,
                                struct bypath_error *error);

// Its own address and port. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_listener_local(struct bypath_tcp_listener *listener,
                                        struct bypath_endpoint *local,
                                        struct bypath_error *error);

// Changes the longest wait of `bypath_tcp_accept` calls that begin afterwards, in ns; `BYPATH_FOREVER`: no limit; 0: they do not
// wait, and answer `BYPATH_E_WOULD_BLOCK`. Connections have that of the options. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_tcp_listener_set_timeout(struct bypath_tcp_listener *listener,
                                              uint64_t timeout_ns,
                                              struct bypath_error *error);

// The descriptor to poll: readable (POLLIN) while a connection can be accepted, or the netstack has gone. Poll it, and do
// nothing else with it; it is valid as long as the listener. Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM` where none is to be had.
bypath_status bypath_tcp_listener_descriptor(struct bypath_tcp_listener *listener,
                                             int *descriptor,
                                             struct bypath_error *error);

// Makes a socket that is bound to this address and port of the netstack's. The addresses `0.0.0.0` and `::` stand for all of them,
// port 0 for one that is free: `bypath_udp_local` tells it. Close it by `bypath_udp_close`.
//
// Its calls wait as long as it takes, unless `bypath_udp_set_timeout` says otherwise. `flags`: 0, or `BYPATH_UDP_BROADCAST` and
// the other flags joined by `|`. When it fails, `*udp` is NULL.
//
// Fails with `BYPATH_E_IN_USE`, `BYPATH_E_INVALID` for an address that is not the netstack's, `BYPATH_E_GONE`,
// `BYPATH_E_SYSTEM` for too many sockets.
bypath_status bypath_udp_bind(struct bypath_netstack *netstack,
                              struct bypath_endpoint local,
                              uint32_t flags,
                              struct bypath_udp **udp,
                              struct bypath_error *error);

// Closes it; what it has still to send is sent. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
// nothing is closed.
bypath_status bypath_udp_close(struct bypath_udp *udp,
                               struct bypath_error *error);

// Changes the longest wait of calls that begin afterwards, in ns; `BYPATH_FOREVER`: no limit; 0: they do not wait, and answer
// `BYPATH_E_WOULD_BLOCK`. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_udp_set_timeout(struct bypath_udp *udp,
                                     uint64_t timeout_ns,
                                     struct bypath_error *error);

// Sends to this partner from now on, and hears of it alone. Nothing is sent.
//
// Fails with `BYPATH_E_NO_ROUTE`, `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_udp_connect(struct bypath_udp *udp,
                                 struct bypath_endpoint remote,
                                 struct bypath_error *error);

// Has no partner any more. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_udp_disconnect(struct bypath_udp *udp, struct bypath_error *error);

// Its own address and port. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
bypath_status bypath_udp_local(struct bypath_udp *udp,
                               struct bypath_endpoint *local,
                               struct bypath_error *error);

// To whom it is connected. Fails with `BYPATH_E_INVALID`, also if it is to nobody, `BYPATH_E_GONE`.
bypath_status bypath_udp_remote(struct bypath_udp *udp,
                                struct bypath_endpoint *remote,
                                struct bypath_error *error);

// Begins to hear a group, whose port does not matter. Fails with `BYPATH_E_IN_USE` if it does, `BYPATH_E_INVALID`, `BYPATH_E_GONE`,
// `BYPATH_E_SYSTEM` for too many groups.
bypath_status bypath_udp_join(struct bypath_udp *udp,
                              struct bypath_endpoint group,
                              struct bypath_error *error);

// Ends `bypath_udp_join`. Fails with `BYPATH_E_INVALID`, also if the group was not joined, `BYPATH_E_GONE`.
bypath_status bypath_udp_leave(struct bypath_udp *udp,
                               struct bypath_endpoint group,
                               struct bypath_error *error);

// Sends one datagram to whom it is connected. Waits while as much as it may have is still to be sent.
//
// Fails with `BYPATH_E_TOO_LONG`, `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, and once with
// what the network said of an earlier datagram: `BYPATH_E_UNREACHABLE`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_NOT_ALLOWED`.
bypath_status bypath_udp_send(struct bypath_udp *udp,
                              const void *payload,
                              size_t len,
                              struct bypath_error *error);

// Sends one datagram to this receiver. Fails as `bypath_udp_send` does, with `BYPATH_E_NO_ROUTE` also at once where no route
// leads there, and with `BYPATH_E_NOT_ALLOWED` for everybody without `BYPATH_UDP_BROADCAST`.
bypath_status bypath_udp_send_to(struct bypath_udp *udp,
                                 struct bypath_endpoint to,
                                 const void *payload,
                                 size_t len,
                                 struct bypath_error *error);

// Waits for a datagram and copies its payload into `buffer`, as much as fits.
//
// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, and once with what the network said
// of an earlier datagram: `BYPATH_E_UNREACHABLE`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_TOO_LONG`.
bypath_status bypath_udp_receive(struct bypath_udp *udp,
                                 void *buffer,
                                 size_t capacity,
                                 struct bypath_udp_datagram *datagram,
                                 struct bypath_error *error);

// One of its two descriptors to poll. Both are polled for POLLIN: the one for `BYPATH_READABLE` is readable while a call that
// receives would not wait, the one for `BYPATH_WRITABLE` while half of what it may have unsent is free. Calls that fail at once do
// not wait, either. Two threads that receive may both be told of the same datagram.
//
// Poll them, and do nothing else with them; they are valid as long as the socket. Fails with `BYPATH_E_INVALID`,
// `BYPATH_E_SYSTEM` where none is to be had.
bypath_status bypath_udp_descriptor(struct bypath_udp *udp,
                                    uint32_t what,
                                    int *descriptor,
                                    struct bypath_error *error);

// Fills options with the usual values.
//
// Fails with `BYPATH_E_INVALID` if `options` is NULL.
bypath_status bypath_capture_options_init(struct bypath_capture_options *options,
                                          struct bypath_error *error);

// Begins a capture file (pcapng) for one interface, such as `eth0`; the name is what the file says. A file that is there
// already is emptied. End it by `bypath_capture_finish`.
//
// `options` may be NULL for the usual ones. When it fails, `*writer` is NULL. Fails with `BYPATH_E_INVALID`, and with
// `BYPATH_E_SYSTEM` where the file cannot be written.
bypath_status bypath_capture_create(const char *path,
                                    const char *interface,
                                    const struct bypath_capture_options *options,
                                    struct bypath_capture_writer **writer,
                                    struct bypath_error *error);

// Writes one frame, header included, with the time at which it was captured, in ns since 1970.
//
// What is written is held back until there is enough of it: see `bypath_capture_flush`. Fails with `BYPATH_E_INVALID`,
// `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`. After `BYPATH_E_SYSTEM` nothing is written any more, and every further call answers
// the same.
bypath_status bypath_capture_write(struct bypath_capture_writer *writer,
                                   uint64_t ns,
                                   const void *frame,
                                   size_t len,
                                   struct bypath_error *error);

// Writes one frame, and what is known of it. Fails as `bypath_capture_write` does.
bypath_status bypath_capture_write_with(struct bypath_capture_writer *writer,
                                        const struct bypath_capture_frame *about,
                                        const void *frame,
                                        size_t len,
                                        struct bypath_error *error);

// Writes one frame as a function such as `bypath_l2_receive` gave it: `payload` has `frame->len` octets. Header and tags are
// put in front as they were on the wire.
//
// Its time is the kernel's, where the kernel took it; otherwise, as with `BYPATH_MODE_XDP`, it is `ns`, since 1970. Fails as
// `bypath_capture_write` does.
bypath_status bypath_capture_write_received(struct bypath_capture_writer *writer,
                                            const struct bypath_l2_frame *frame,
                                            const void *payload,
                                            uint64_t ns,
                                            struct bypath_error *error);

// Hands the operating system what is held back, so that whoever reads the file sees it: whole frames. Fails as
// `bypath_capture_write` does.
bypath_status bypath_capture_flush(struct bypath_capture_writer *writer,
                                   struct bypath_error *error);

// Ends a capture file: what is held back is written, and the file is closed. NULL is left alone.
//
// The pointer must not be used afterwards, unless it fails with `BYPATH_E_BUSY`, where nothing is closed. Fails also as
// `bypath_capture_write` does: the file is closed then, and what is in it may end early.
bypath_status bypath_capture_finish(struct bypath_capture_writer *writer,
                                    struct bypath_error *error);

// Opens a capture file (pcapng). End it by `bypath_capture_close`.
//
// When it fails, `*reader` is NULL. Fails with `BYPATH_E_INVALID`, and with `BYPATH_E_SYSTEM` where the file cannot be
// read. Whether it is such a file the first `bypath_capture_read` tells.
bypath_status bypath_capture_open(const char *path,
                                  struct bypath_capture_reader **reader,
                                  struct bypath_error *error);

// Reads the next frame into `buffer`, as much as fits, and what the file says about it into `frame`.
//
// Fails with `BYPATH_E_END` behind the last frame, `BYPATH_E_FORMAT` for what the format does not allow (frames before it
// are good), `BYPATH_E_SYSTEM`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`. After one of the first three every further call
// answers the same.
bypath_status bypath_capture_read(struct bypath_capture_reader *reader,
                                  struct bypath_capture_frame *frame,
                                  void *buffer,
                                  size_t capacity,
                                  struct bypath_error *error);

// What the file says about an interface, by its number in the frame that was read last.
//
// Fails with `BYPATH_E_INVALID` for a number that no frame until now has had, `BYPATH_E_BUSY`.
bypath_status bypath_capture_interface_of(struct bypath_capture_reader *reader,
                                          uint32_t number,
                                          struct bypath_capture_interface *interface,
                                          struct bypath_error *error);

// Closes a capture file that was read. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
bypath_status bypath_capture_close(struct bypath_capture_reader *reader,
                                   struct bypath_error *error);

// Takes a name of this user's at which channels with rings of so many octets are made: a power of two from 4096 to 1 MiB.
//
// A name without a slash stands in `$XDG_RUNTIME_DIR/bypath/channel`, or without that variable in `/tmp/bypath-UID/channel`; one with a slash is a path,
// whose folder must be this user's, and nobody else's to write to. What a process that was killed has left is replaced.
//
// Fails with `BYPATH_E_IN_USE`, `BYPATH_E_NAME` (too long), `BYPATH_E_NOT_ALLOWED` (somebody else's folder), `BYPATH_E_INVALID`,
// `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_listen(const char *name,
                                    uint32_t ring,
                                    struct bypath_channel_listener **listener,
                                    struct bypath_error *error);

// Waits so long for a process that wants a channel (ns; 0: no wait; `BYPATH_FOREVER`: no limit), and gives this end's halves. Processes of other users
// are sent away.
//
// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_accept(struct bypath_channel_listener *listener,
                                    uint64_t timeout_ns,
                                    struct bypath_channel_sender **sender,
                                    struct bypath_channel_receiver **receiver,
                                    struct bypath_error *error);

// The descriptor to poll for POLLIN: somebody waits. Still owned by the listener.
bypath_status bypath_channel_listener_descriptor(struct bypath_channel_listener *listener,
                                                 int *descriptor,
                                                 struct bypath_error *error);

// Gives the name back. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
bypath_status bypath_channel_listener_close(struct bypath_channel_listener *listener,
                                            struct bypath_error *error);

// A channel with the process that listens at a name of this user's (`bypath_channel_listen`); waits so long for its answer (ns; `BYPATH_FOREVER`: no
// limit).
//
// Fails with `BYPATH_E_REFUSED` where nobody listens, `BYPATH_E_RESET`, `BYPATH_E_TIMED_OUT`, `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_NAME`,
// `BYPATH_E_FORMAT`, `BYPATH_E_INVALID`, `BYPATH_E_WOULD_BLOCK` (too many wait), `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_connect(const char *name,
                                     uint64_t timeout_ns,
                                     struct bypath_channel_sender **sender,
                                     struct bypath_channel_receiver **receiver,
                                     struct bypath_error *error);

// Both ends of a new channel with rings of so many octets: this end's halves, and what another process opens with `bypath_channel_open` after it inherited
// the descriptors or got them by SCM_RIGHTS. They are the caller's to close.
//
// Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_pair(uint32_t ring,
                                  struct bypath_channel_sender **sender,
                                  struct bypath_channel_receiver **receiver,
                                  struct bypath_channel_remote *remote,
                                  struct bypath_error *error);

// Opens an end from its descriptors, in the order that `bypath_channel_pair` gave: open ones of the caller's that nothing else uses. They are used
// up where it works, and stay as they are where it fails.
//
// Fails with `BYPATH_E_INVALID`: they are not those of such a channel's end, or in another order; `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_open(const struct bypath_channel_remote *remote,
                                  struct bypath_channel_sender **sender,
                                  struct bypath_channel_receiver **receiver,
                                  struct bypath_error *error);

// Reads at least one octet, and what there is up to `capacity`, into `octets`, and how many into `length`: 0 at the end of the stream, which the other end makes by
// closing its sender, or by its own end. With a `capacity` of 0 none are read, which is no end. Waits so long (ns; 0: no wait; `BYPATH_FOREVER`: no limit).
//
// Fails with `BYPATH_E_WOULD_BLOCK` (with a wait of 0), `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_FORMAT` where the other end wrote to the
// memory what no correct one does, `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
bypath_status bypath_channel_read(struct bypath_channel_receiver *receiver,
                                  void *octets,
                                  size_t capacity,
                                  uint64_t timeout_ns,
                                  size_t *length,
                                  struct bypath_error *error);

// Writes as many octets as there is room for, at least one, and how many into `written`. Waits so long for room (ns; 0: no wait; `BYPATH_FOREVER`: no limit).
//
// Fails with `BYPATH_E_GONE` where the other end reads no more, which is seen at the latest when the ring is full, `BYPATH_E_WOULD_BLOCK`,
// `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
bypath_status bypath_channel_write(struct bypath_channel_sender *sender,
                                   const void *octets,
                                   size_t length,
                                   uint64_t timeout_ns,
                                   size_t *written,
                                   struct bypath_error *error);

// Shows what has come, where it lies: writes two runs, the second one of length 0 unless the ring begins anew in it. Together they have at least `least` octets (1 to
// half of the ring), fewer only before the end of the stream, none at it. They stay until they are released, or the receiver is closed.
// Waits, and fails, as `bypath_channel_read`.
bypath_status bypath_channel_peek(struct bypath_channel_receiver *receiver,
                                  size_t least,
                                  uint64_t timeout_ns,
                                  struct bypath_channel_run *runs,
                                  struct bypath_error *error);

// Gives the first `count` of the octets that were shown back; the rest can follow later. A read makes the end of what was shown. Fails with `BYPATH_E_INVALID` where fewer were shown,
// `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`.
bypath_status bypath_channel_release(struct bypath_channel_receiver *receiver,
                                     size_t count,
                                     struct bypath_error *error);

// Gives room for at least `least` octets (1 to half of the ring), where they will lie, as two runs. Nothing is sent before `bypath_channel_commit`.
// Waits, and fails, as `bypath_channel_write`.
bypath_status bypath_channel_reserve(struct bypath_channel_sender *sender,
                                     size_t least,
                                     uint64_t timeout_ns,
                                     struct bypath_channel_run *runs,
                                     struct bypath_error *error);

// Sends the first `count` octets of the room that was given; the rest can follow later. A write makes the end of that room. Fails with `BYPATH_E_INVALID` where less was given,
// `BYPATH_E_GONE`, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`.
bypath_status bypath_channel_commit(struct bypath_channel_sender *sender,
                                    size_t count,
                                    struct bypath_error *error);

// Before the receiver's descriptor is polled for POLLIN: `sleep` becomes 1 if it will be readable as soon as there are `least` octets or the stream has ended, or
// earlier; 0 if that is so already and it may not be. Fails with `BYPATH_E_FORMAT`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_channel_receiver_arm(struct bypath_channel_receiver *receiver,
                                          size_t least,
                                          int *sleep,
                                          struct bypath_error *error);

// The same of the sender, for room for `least` octets. Its descriptor is polled for POLLIN, too.
bypath_status bypath_channel_sender_arm(struct bypath_channel_sender *sender,
                                        size_t least,
                                        int *sleep,
                                        struct bypath_error *error);

// The descriptor to poll after `bypath_channel_receiver_arm`. Still owned by the receiver.
bypath_status bypath_channel_receiver_descriptor(struct bypath_channel_receiver *receiver,
                                                 int *descriptor,
                                                 struct bypath_error *error);

// The descriptor to poll after `bypath_channel_sender_arm`. Still owned by the sender.
bypath_status bypath_channel_sender_descriptor(struct bypath_channel_sender *sender,
                                               int *descriptor,
                                               struct bypath_error *error);

// How long calls that wait look before they sleep (ns; `BYPATH_FOREVER`: they never sleep). 50 us to begin with. One of both may be NULL.
bypath_status bypath_channel_set_spin(struct bypath_channel_sender *sender,
                                      struct bypath_channel_receiver *receiver,
                                      uint64_t spin_ns,
                                      struct bypath_error *error);

// Ends the stream at the other end, after what was committed. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
bypath_status bypath_channel_sender_close(struct bypath_channel_sender *sender,
                                          struct bypath_error *error);

// Reads no more: the other end's writes fail. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
bypath_status bypath_channel_receiver_close(struct bypath_channel_receiver *receiver,
                                            struct bypath_error *error);

// As `bypath_channel_accept`; the process gets a channel of datagrams. One listener may give both kinds.
//
// Fails as `bypath_channel_accept`.
bypath_status bypath_channel_datagram_accept(struct bypath_channel_listener *listener,
                                             uint64_t timeout_ns,
                                             struct bypath_channel_datagram_sender **sender,
                                             struct bypath_channel_datagram_receiver **receiver,
                                             struct bypath_error *error);

// As `bypath_channel_connect`, with a listener that gives channels of datagrams.
//
// Fails as `bypath_channel_connect`; with `BYPATH_E_INVALID`, too, where the listener gives the other kind.
bypath_status bypath_channel_datagram_connect(const char *name,
                                              uint64_t timeout_ns,
                                              struct bypath_channel_datagram_sender **sender,
                                              struct bypath_channel_datagram_receiver **receiver,
                                              struct bypath_error *error);

// As `bypath_channel_pair`, of datagrams: the other end is for `bypath_channel_datagram_open`.
//
// Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_datagram_pair(uint32_t ring,
                                           struct bypath_channel_datagram_sender **sender,
                                           struct bypath_channel_datagram_receiver **receiver,
                                           struct bypath_channel_remote *remote,
                                           struct bypath_error *error);

// As `bypath_channel_open`, of datagrams.
//
// Fails with `BYPATH_E_INVALID`: they are not those of such a channel's end; `BYPATH_E_SYSTEM`.
bypath_status bypath_channel_datagram_open(const struct bypath_channel_remote *remote,
                                           struct bypath_channel_datagram_sender **sender,
                                           struct bypath_channel_datagram_receiver **receiver,
                                           struct bypath_error *error);

// The octets that a datagram of this channel has at most: half of the ring but 8, and 65527.
//
// Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_channel_datagram_longest(struct bypath_channel_datagram_sender *sender,
                                              size_t *longest,
                                              struct bypath_error *error);

// Sends a datagram; it may be empty. Waits so long for room (ns; 0: no wait; `BYPATH_FOREVER`: no limit), and loses nothing.
//
// Fails with `BYPATH_E_TOO_LONG`; `BYPATH_E_GONE` where the other end reads no more, which is seen at the latest when the ring is full; `BYPATH_E_WOULD_BLOCK`
// (with a wait of 0), `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`; `BYPATH_E_FORMAT` where the other end wrote to the memory what no correct one does;
// `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
bypath_status bypath_channel_datagram_send(struct bypath_channel_datagram_sender *sender,
                                           const void *octets,
                                           size_t length,
                                           uint64_t timeout_ns,
                                           struct bypath_error *error);

// Takes the next datagram into `octets`, and how many it has, which may be none, into `length`. Waits so long (ns; 0: no wait; `BYPATH_FOREVER`: no limit).
//
// Fails with `BYPATH_E_END` once the other end sends no more and all was received; `BYPATH_E_TOO_LONG` where it has more than `capacity` octets: it stays, and `length`
// tells how many; `BYPATH_E_WOULD_BLOCK` (with a wait of 0), `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`; `BYPATH_E_FORMAT` where the other end wrote to the
// memory what no correct one does; `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
bypath_status bypath_channel_datagram_receive(struct bypath_channel_datagram_receiver *receiver,
                                              void *octets,
                                              size_t capacity,
                                              uint64_t timeout_ns,
                                              size_t *length,
                                              struct bypath_error *error);

// Shows the next datagram where it lies: writes two runs, the second one of length 0 unless the ring begins anew in it. It stays until it is released, or the receiver is
// closed; its length stays what it is, its octets can be changed by the other process.
// Waits, and fails, as `bypath_channel_datagram_receive`.
bypath_status bypath_channel_datagram_peek(struct bypath_channel_datagram_receiver *receiver,
                                           uint64_t timeout_ns,
                                           struct bypath_channel_run *runs,
                                           struct bypath_error *error);

// Gives the next datagram back, shown or not. Fails with `BYPATH_E_WOULD_BLOCK` or `BYPATH_E_END` where there is none, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
bypath_status bypath_channel_datagram_release(struct bypath_channel_datagram_receiver *receiver,
                                              struct bypath_error *error);

// Gives room for a datagram of at most `most` octets, where they will lie, as two runs. Nothing is sent before `bypath_channel_datagram_commit`.
// Waits, and fails, as `bypath_channel_datagram_send`.
bypath_status bypath_channel_datagram_reserve(struct bypath_channel_datagram_sender *sender,
                                              size_t most,
                                              uint64_t timeout_ns,
                                              struct bypath_channel_run *runs,
                                              struct bypath_error *error);

// Sends a datagram of the first `count` octets of the room that was given, which it uses up; another send does, too. Fails with `BYPATH_E_INVALID` where less was given,
// `BYPATH_E_GONE`, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`.
bypath_status bypath_channel_datagram_commit(struct bypath_channel_datagram_sender *sender,
                                             size_t count,
                                             struct bypath_error *error);

// Before the receiver's descriptor is polled for POLLIN: `sleep` becomes 1 if it will be readable as soon as there is a datagram or the end, or earlier; 0 if that is so
// already and it may not be. Fails with `BYPATH_E_FORMAT`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
bypath_status bypath_channel_datagram_receiver_arm(struct bypath_channel_datagram_receiver *receiver,
                                                   int *sleep,
                                                   struct bypath_error *error);

// The same of the sender, for room for a datagram of `length` octets. Its descriptor is polled for POLLIN, too.
bypath_status bypath_channel_datagram_sender_arm(struct bypath_channel_datagram_sender *sender,
                                                 size_t length,
                                                 int *sleep,
                                                 struct bypath_error *error);

// The descriptor to poll after `bypath_channel_datagram_receiver_arm`. Still owned by the receiver.
bypath_status bypath_channel_datagram_receiver_descriptor(struct bypath_channel_datagram_receiver *receiver,
                                                          int *descriptor,
                                                          struct bypath_error *error);

// The descriptor to poll after `bypath_channel_datagram_sender_arm`. Still owned by the sender.
bypath_status bypath_channel_datagram_sender_descriptor(struct bypath_channel_datagram_sender *sender,
                                                        int *descriptor,
                                                        struct bypath_error *error);

// As `bypath_channel_set_spin`. One of both may be NULL.
bypath_status bypath_channel_datagram_set_spin(struct bypath_channel_datagram_sender *sender,
                                               struct bypath_channel_datagram_receiver *receiver,
                                               uint64_t spin_ns,
                                               struct bypath_error *error);

// Tells the other end that no more is sent, after what was committed. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
bypath_status bypath_channel_datagram_sender_close(struct bypath_channel_datagram_sender *sender,
                                                   struct bypath_error *error);

// Receives no more: the other end's calls fail. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
bypath_status bypath_channel_datagram_receiver_close(struct bypath_channel_datagram_receiver *receiver,
                                                     struct bypath_error *error);

// From now on, TCP that comes through the netstack's link and is for nobody there comes here, to whatever address and port. A netstack
// has one forwarder at most. Close it by `bypath_tcp_forwarder_close`. The netstack needs a way to those who call, such as a router.
//
// `options`: what connections shall want that are accepted, and how many calls wait; NULL: what is usual. When it fails, `*forwarder` is
// NULL.
//
// Fails with `BYPATH_E_IN_USE` where there is one, `BYPATH_E_INVALID`, `BYPATH_E_GONE`, `BYPATH_E_SYSTEM` for too many sockets.
bypath_status bypath_tcp_forward(struct bypath_netstack *netstack,
                                 const struct bypath_tcp_options *options,
                                 struct bypath_tcp_forwarder **forwarder,
                                 struct bypath_error *error);

// Closes it: calls that were not taken are refused; those that were taken, and connections, go on. NULL is left alone.
//
// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
// nothing is closed.
bypath_status bypath_tcp_forwarder_close(struct bypath_tcp_forwarder *forwarder,
                                         struct bypath_error *error);

// Waits for the next call. Nothing answers it before `bypath_tcp_call_accept` does; end it by that or by `bypath_tcp_call_refuse`. `from`
// and `to`: get who calls, and whom, unless they are NULL. When it fails, `*call` is NULL.
//
// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
bypath_status bypath_tcp_forwarder_next(struct bypath_tcp_forwarder *forwarder,
                                        struct bypath_tcp_call **call,
                                        struct bypath_endpoint *from,
                                        struct bypath_endpoint *to,
                                        struct bypath_error *error);

// Changes the longest wait of `bypath_tcp_forwarder_next` calls that begin afterwards, in ns; `BYPATH_FOREVER`: no limit; 0: they do
// not wait, and answer `BYPATH_E_WOULD_BLOCK`. Connections have that of the options. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_tcp_forwarder_set_timeout(struct bypath_tcp_forwarder *forwarder,
                                               uint64_t timeout_ns,
                                               struct bypath_error *error);

// The descriptor to poll: readable (POLLIN) while there is a call to be taken, or the netstack has gone. Poll it, and do nothing else
// with it; it is valid as long as the forwarder. Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM` where none is to be had.
bypath_status bypath_tcp_forwarder_descriptor(struct bypath_tcp_forwarder *forwarder,
                                              int *descriptor,
                                              struct bypath_error *error);

// Answers as whom is called, and waits until the connection is open: a minute at most, whatever time-out there is. Close it by
// `bypath_tcp_close`. When it fails, `*tcp` is NULL.
//
// The call is over, and its pointer must not be used afterwards, unless it fails with `BYPATH_E_INVALID`. Fails with that,
// `BYPATH_E_REFUSED` and `BYPATH_E_RESET` where nobody calls any more, `BYPATH_E_TIMED_OUT`, `BYPATH_E_GONE`.
bypath_status bypath_tcp_call_accept(struct bypath_tcp_call *call,
                                     struct bypath_tcp **tcp,
                                     struct bypath_error *error);

// Refuses it, as where nobody listens. The pointer must not be used afterwards. NULL is left alone. Fails with `BYPATH_E_INVALID`.
bypath_status bypath_tcp_call_refuse(struct bypath_tcp_call *call,
                                     struct bypath_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BYPATH_H */
