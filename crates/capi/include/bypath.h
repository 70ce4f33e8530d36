/* Bypath: raw Ethernet sockets for C and C++. SPDX-License-Identifier: MIT OR Apache-2.0
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
 * points to memory of the right size, that texts end with a zero, that a socket is not used after it was closed, and
 * that the memory of two arguments does not overlap, cannot be checked: it is the caller's promise. Memory is never
 * kept: what was passed may be changed or freed when the function has returned.
 *
 * Threads. Different sockets may be used by different threads at the same time. One socket is used by one thread at a
 * time, whichever; a call while another thread is inside one with the same socket is BYPATH_E_BUSY and does nothing.
 * To send and receive at once, open two sockets, one of them with BYPATH_SEND_ONLY. bypath_l2_close must be the last
 * call: no other thread may still begin one. A wait ends by a frame, its time-out or a signal, not by another thread: to
 * be able to stop a receiver, poll bypath_l2_descriptor together with a descriptor of your own, and receive with
 * BYPATH_WAIT_NEVER. Functions may not be called from signal handlers. A process that forks shares its sockets with its
 * child: use and close them in one of the two only. Threads of the library's own close sockets, because
 * the kernel takes its time for that; they take no signals, and end after a second without work.
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

// The interface was removed: close the socket.
#define BYPATH_E_GONE -5

// The capability CAP_NET_RAW is missing.
#define BYPATH_E_NOT_ALLOWED -6

// The payload is longer than the interface's MTU.
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

// Another thread is inside a call with this socket.
#define BYPATH_E_BUSY -14

// The system answered something else: see `system` of the error.
#define BYPATH_E_SYSTEM -15

// A mistake of this library's own. A socket that it happened to can only be closed.
#define BYPATH_E_INTERNAL -16

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

// One system call per frame.
#define BYPATH_MODE_PLAIN 0

// One system call for many frames (recvmmsg, sendmmsg).
#define BYPATH_MODE_BATCH 1

// A ring shared with the kernel: no system call per frame, the least CPU. A frame that comes alone may be given over a
// millisecond late.
#define BYPATH_MODE_RING 2

// Receiving only: a ring of slots in which each frame can be seen at once. For programs that spin.
#define BYPATH_MODE_LATENCY_RING 3

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

// A raw Ethernet socket. Only pointers to it are of use.
typedef struct bypath_l2_socket bypath_l2_socket;

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
    // Octets of the receive ring, where the mode has one; 0: the usual 8 MiB.
    size_t receive_ring;
    // Frames of the send ring, where the mode has one; 0: the usual 256.
    size_t send_ring;
    // Frames of one system call in `BYPATH_MODE_BATCH`; 0: the usual 64.
    size_t batch;
    // `BYPATH_ALL_GROUPS` and the other flags, joined by `|`.
    uint32_t flags;
    // How calls wait: `BYPATH_WAIT_...`
    uint32_t wait;
    // The way in: `BYPATH_MODE_...`
    uint32_t receive_mode;
    // The way out: `BYPATH_MODE_...` without `BYPATH_MODE_LATENCY_RING`.
    uint32_t send_mode;
    // Who takes the time of received frames: `BYPATH_TIMESTAMP_...`; the kernel unless changed.
    uint32_t timestamps;
    // Which VLANs' frames are received: `BYPATH_VLAN_...`
    uint32_t receive_vlan;
    // How the sockets of a fanout group share frames: `BYPATH_FANOUT_...`
    uint32_t fanout;
    // The clock of `at_ns` of sent frames: `BYPATH_CLOCK_...`
    uint32_t send_clock;
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
    // Received frames left out because they were longer than the buffers made for the MTU.
    uint64_t cut;
    // Frames accepted for sending.
    uint64_t sent;
    // Octets of these frames.
    uint64_t sent_octets;
    // Accepted frames that were not sent after all.
    uint64_t refused;
} bypath_l2_statistics;

// What was obtained of what was asked.
typedef struct bypath_l2_obtained {
    // Octets of the receive queue, by the kernel's count.
    size_t receive_queue;
    // Octets of the receive ring; 0: there is none.
    size_t receive_ring;
    // Frames of the send ring; 0: there is none.
    size_t send_ring;
    // The way in: `BYPATH_MODE_...`
    uint32_t receive_mode;
    // The way out: `BYPATH_MODE_...`
    uint32_t send_mode;
    // Who takes the time of received frames: `BYPATH_TIMESTAMP_...`
    uint32_t timestamps;
    // 1 if sent frames bypass the queueing discipline.
    uint8_t qdisc_bypass;
    // 1 if the queue sends frames at their time.
    uint8_t send_time;
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
// Needs the capability CAP_NET_RAW. `options` may be NULL for the usual ones. When it fails, `*socket` is NULL.
//
// Fails with `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_NOT_ETHERNET`, `BYPATH_E_DOWN`, `BYPATH_E_NOT_ALLOWED`,
// `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
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

// Octets of the longest payload. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BYPATH_H */
