// What a UDP datagram costs in gVisor's netstack, and what TCP moves: the work of `bypath bench stack`, printed in the same rows.
//
// The device is a sink that takes the length of each packet; of the last one of every stretch it takes the octets, which are
// looked at outside of the timed part.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// As long as stretches of the others, about 100 us: one that the system interrupts falls out of the median.
	stretch = 50
	headers = header.EthernetMinimumSize + header.IPv4MinimumSize + header.UDPMinimumSize
	ports   = 60_000 // that are used of each address
	size    = 64     // octets of payload that are received
)

var (
	ownMAC  = tcpip.LinkAddress("\x02\x00\x00\x00\x00\x01")
	peerMAC = tcpip.LinkAddress("\x02\x00\x00\x00\x00\x02")
	peer    = tcpip.AddrFrom4([4]byte{10, 0, 0, 200})
)

func own(n int) tcpip.Address { return tcpip.AddrFrom4([4]byte{10, 0, 0, byte(1 + n)}) }

// sink is a device.
type sink struct {
	mtu        uint32
	offload    stack.LinkEndpointCapabilities
	dispatcher stack.NetworkDispatcher
	packets    int
	length     int
	keep       bool
	frame      []byte
}

func (s *sink) MTU() uint32                                  { return s.mtu }
func (s *sink) SetMTU(mtu uint32)                            { s.mtu = mtu }
func (s *sink) MaxHeaderLength() uint16                      { return 0 }
func (s *sink) LinkAddress() tcpip.LinkAddress               { return ownMAC }
func (s *sink) SetLinkAddress(tcpip.LinkAddress)             {}
func (s *sink) Capabilities() stack.LinkEndpointCapabilities { return s.offload }
func (s *sink) Attach(dispatcher stack.NetworkDispatcher)    { s.dispatcher = dispatcher }
func (s *sink) IsAttached() bool                             { return s.dispatcher != nil }
func (s *sink) Wait()                                        {}
func (s *sink) ARPHardwareType() header.ARPHardwareType      { return header.ARPHardwareNone }
func (s *sink) AddHeader(*stack.PacketBuffer)                {}
func (s *sink) ParseHeader(*stack.PacketBuffer) bool         { return true }
func (s *sink) Close()                                       {}
func (s *sink) SetOnCloseAction(func())                      {}
func (s *sink) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for _, packet := range list.AsSlice() {
		s.packets++
		s.length = packet.Size()
		if s.keep {
			s.frame = s.frame[:0]
			for _, octets := range packet.AsSlices() {
				s.frame = append(s.frame, octets...)
			}
		}
	}
	return list.Len(), nil
}

func check(err tcpip.Error) {
	if err != nil {
		panic(err.String())
	}
}

// network makes a stack with as many addresses as asked for: it goes through all of them for each packet.
func network(device *sink, addresses int) *stack.Stack {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{udp.NewProtocol},
	})
	check(s.CreateNIC(1, ethernet.New(device)))
	for n := range addresses {
		address := tcpip.AddressWithPrefix{Address: own(n), PrefixLen: 24}
		check(s.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: address}, stack.AddressProperties{}))
	}
	subnet := tcpip.AddressWithPrefix{Address: own(0), PrefixLen: 24}.Subnet()
	s.SetRouteTable([]tcpip.Route{{Destination: subnet, NIC: 1}})
	check(s.AddStaticNeighbor(1, ipv4.ProtocolNumber, peer, peerMAC))
	return s
}

func socket(s *stack.Stack, address tcpip.Address, port uint16) (tcpip.Endpoint, *waiter.Queue) {
	var queue waiter.Queue
	endpoint, err := s.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, &queue)
	check(err)
	check(endpoint.Bind(tcpip.FullAddress{Addr: address, Port: port}))
	return endpoint, &queue
}

type writer struct {
	device   *sink
	endpoint tcpip.Endpoint
	payload  []byte
	offload  bool
	salt     byte
}

func newWriter(offload bool, length int) *writer {
	device := &sink{mtu: 65535 + header.EthernetMinimumSize}
	if offload {
		device.offload = stack.CapabilityTXChecksumOffload
	}
	endpoint, _ := socket(network(device, 1), own(0), 9)
	check(endpoint.Connect(tcpip.FullAddress{Addr: peer, Port: 9}))
	return &writer{device: device, endpoint: endpoint, payload: make([]byte, length), offload: offload}
}

func (w *writer) stretch(n int) (time.Duration, error) {
	w.salt++
	for at := range w.payload {
		w.payload[at] = byte(at) ^ w.salt
	}
	before := w.device.packets
	var reader bytes.Reader
	options := tcpip.WriteOptions{}
	begun := time.Now()
	for at := range n {
		w.device.keep = at == n-1
		reader.Reset(w.payload)
		count, err := w.endpoint.Write(&reader, options)
		if err != nil || int(count) != len(w.payload) || w.device.length != headers+len(w.payload) {
			return 0, fmt.Errorf("a write yielded %d octets, %v", count, err)
		}
	}
	elapsed := time.Since(begun)
	if w.device.packets-before != n {
		return 0, fmt.Errorf("%d packets of %d writes", w.device.packets-before, n)
	}
	return elapsed, w.look()
}

// look checks the last frame.
func (w *writer) look() error {
	frame := w.device.frame
	eth := header.Ethernet(frame)
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	datagram := header.UDP(ip.Payload())
	length := uint16(len(datagram))
	sum := header.PseudoHeaderChecksum(udp.ProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), length)
	good := eth.DestinationAddress() == peerMAC && eth.SourceAddress() == ownMAC && ip.IsChecksumValid() &&
		bytes.Equal(datagram.Payload(), w.payload)
	if !w.offload {
		good = good && datagram.IsChecksumValid(ip.SourceAddress(), ip.DestinationAddress(), checksum.Checksum(datagram.Payload(), 0))
	} else {
		// A device gets none, or the pseudo header's.
		good = good && (datagram.Checksum() == 0 || datagram.Checksum() == sum)
	}
	if !good {
		return errors.New("the last frame is wrong")
	}
	return nil
}

type receiver struct {
	device   *sink
	endpoint tcpip.Endpoint
	entry    waiter.Entry
	readable bool
	frames   [][]byte
	room     bytes.Buffer
}

func newReceiver(idle int) *receiver {
	device := &sink{mtu: 1500 + header.EthernetMinimumSize}
	addresses := 1 + idle/ports
	s := network(device, addresses)
	r := &receiver{device: device}
	var queue *waiter.Queue
	r.endpoint, queue = socket(s, own(0), 7)
	r.entry = waiter.NewFunctionEntry(waiter.ReadableEvents, func(waiter.EventMask) { r.readable = true })
	queue.EventRegister(&r.entry)
	for n := range idle {
		socket(s, own(n%addresses), uint16(1024+n/addresses))
	}
	for n := range 64 {
		r.frames = append(r.frames, frame(byte(n)))
	}
	return r
}

func frame(salt byte) []byte {
	octets := make([]byte, headers+size)
	header.Ethernet(octets).Encode(&header.EthernetFields{SrcAddr: peerMAC, DstAddr: ownMAC, Type: ipv4.ProtocolNumber})
	ip := header.IPv4(octets[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ip)), TTL: 64, Protocol: uint8(udp.ProtocolNumber), SrcAddr: peer, DstAddr: own(0)})
	ip.SetChecksum(^ip.CalculateChecksum())
	datagram := header.UDP(ip.Payload())
	datagram.Encode(&header.UDPFields{SrcPort: 9, DstPort: 7, Length: uint16(len(datagram))})
	for at := range datagram.Payload() {
		datagram.Payload()[at] = byte(at*3) ^ salt
	}
	sum := header.PseudoHeaderChecksum(udp.ProtocolNumber, peer, own(0), uint16(len(datagram)))
	sum = checksum.Checksum(datagram.Payload(), sum)
	datagram.SetChecksum(^datagram.CalculateChecksum(sum))
	return octets
}

func (r *receiver) stretch(n int) (time.Duration, error) {
	begun := time.Now()
	for at := range n {
		octets := r.frames[at%len(r.frames)]
		packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(octets)})
		r.readable = false
		r.device.dispatcher.DeliverNetworkPacket(0, packet)
		packet.DecRef()
		if !r.readable {
			return 0, errors.New("a datagram did not come")
		}
		r.room.Reset()
		_, err := r.endpoint.Read(&r.room, tcpip.ReadOptions{})
		if err != nil || !bytes.Equal(r.room.Bytes(), octets[headers:]) {
			return 0, fmt.Errorf("a datagram came not as it was sent: %v", err)
		}
	}
	return time.Since(begun), nil
}

type measured interface {
	stretch(n int) (time.Duration, error)
}

func measure(name string, subject measured, seconds float64) {
	must := func(elapsed time.Duration, err error) time.Duration {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		return elapsed
	}
	must(subject.stretch(stretch))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var times []float64
	end := time.Now().Add(time.Duration(seconds * 1e9))
	for len(times) == 0 || time.Now().Before(end) {
		times = append(times, float64(must(subject.stretch(stretch)).Nanoseconds())/stretch)
	}
	runtime.ReadMemStats(&after)
	sort.Float64s(times)
	n := uint64(len(times) * stretch)
	fmt.Printf("%-30s %10d %10.1f ns/op %6d B/op %4d allocs/op\n", name, n, times[len(times)/2],
		(after.TotalAlloc-before.TotalAlloc)/n, (after.Mallocs-before.Mallocs)/n)
}

func main() {
	seconds := flag.Float64("seconds", 0.2, "of each row")
	idle := flag.Int("idle", 100_000, "idle sockets at most")
	peer := flag.Bool("kernel-peer", false, "streams between the stack and the kernel, and nothing else")
	peerCore := flag.Int("peer-core", 0, "of the kernel's end")
	end := flag.String("kernel-end", "", "this is the kernel's end; true: it sends")
	flag.Parse()
	if *end != "" {
		kernelEnd(*end == "true", *seconds)
		return
	}
	if *peer {
		kernelPeer(*seconds, *peerCore)
		return
	}
	for _, offload := range []bool{false, true} {
		name := map[bool]string{false: "checksum", true: "offload"}[offload]
		for length := 1; length <= 2048; length *= 2 {
			measure(fmt.Sprintf("WritePacket/%s/%d", name, length), newWriter(offload, length), *seconds)
		}
	}
	for _, n := range []int{1, 100, 10_000, 100_000, 1_000_000} {
		if n <= *idle {
			measure(fmt.Sprintf("ReceiveUDP/idle-%d", n), newReceiver(n), *seconds)
		}
	}
	pairs(*seconds)
}
