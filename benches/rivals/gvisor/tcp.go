package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/pipe"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// TCP between two stacks of gVisor, and with a socket of the kernel over TAP and TUN.

const (
	chunk   = 64 << 10 // octets of a write, and of a read at most
	least   = 4 << 20  // octets between two looks at the clock
	warm    = 16 << 20 // octets, all of them looked at, before anything is timed
	period  = 4093     // octets after which the stream repeats itself
	glance  = 16       // octets at the beginning of a read that are looked at while it is timed
	kernelA = "198.18.0.1"
)

var (
	kernelAddress = tcpip.AddrFrom4([4]byte{198, 18, 0, 1})
	stackAddress  = tcpip.AddrFrom4([4]byte{198, 18, 0, 2})
)

func pattern(length int) []byte {
	octets := make([]byte, period+length)
	for at := range octets {
		n := at % period
		octets[at] = byte(n*n*31 + n*7 + n>>8)
	}
	return octets
}

// tcpStack makes a stack with one address and buffers as large as its makers recommend for fast links.
func tcpStack(link stack.LinkEndpoint, address tcpip.Address) *stack.Stack {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
		HandleLocal:        false,
	})
	sack := tcpip.TCPSACKEnabled(true)
	check(s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: 4 << 20, Max: 8 << 20}
	check(s.SetTransportProtocolOption(tcp.ProtocolNumber, &send))
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: 4 << 20, Max: 8 << 20}
	check(s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive))
	check(s.CreateNIC(1, link))
	own := tcpip.AddressWithPrefix{Address: address, PrefixLen: 24}
	check(s.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: own}, stack.AddressProperties{}))
	s.SetRouteTable([]tcpip.Route{{Destination: own.Subnet(), NIC: 1}})
	return s
}

// pair has two stacks with a cable between them, which hands over packets without a copy.
type pair struct {
	client, server *stack.Stack
	listener       *gonet.TCPListener
}

func newPair(mtu uint32) *pair {
	a, b := pipe.New(ownMAC, peerMAC, mtu)
	p := &pair{client: tcpStack(a, stackAddress), server: tcpStack(b, kernelAddress)}
	var err error
	p.listener, err = gonet.ListenTCP(p.server, tcpip.FullAddress{NIC: 1, Addr: kernelAddress, Port: 80}, ipv4.ProtocolNumber)
	must(err)
	return p
}

func (p *pair) open() (net.Conn, net.Conn) {
	client, err := gonet.DialContextTCP(context.Background(), p.client, tcpip.FullAddress{NIC: 1, Addr: kernelAddress, Port: 80}, ipv4.ProtocolNumber)
	must(err)
	server, err := p.listener.Accept()
	must(err)
	return client, server
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pour writes until it fails: who reads hangs up.
func pour(to io.Writer, octets []byte, length int) {
	at := 0
	for {
		n, err := to.Write(octets[at : at+length])
		if err != nil {
			return
		}
		at = (at + n) % period
	}
}

// drain reads for so many seconds; gigabits a second of each stretch.
func drain(from io.Reader, octets []byte, length int, seconds float64) []float64 {
	room := make([]byte, length)
	var rates []float64
	read, before := 0, 0
	var since, begun time.Time
	for {
		n, err := from.Read(room)
		must(err)
		look := n
		if read >= warm {
			look = min(n, glance)
		}
		at := read % period
		if !bytes.Equal(room[:look], octets[at:at+look]) {
			must(errors.New("wrong octets"))
		}
		read += n
		if read < warm {
			continue
		}
		now := time.Now()
		if since.IsZero() {
			before, since, begun = read, now, now
			continue
		}
		if read-before < least {
			continue
		}
		rates = append(rates, float64(read-before)*8/float64(now.Sub(since).Nanoseconds()))
		before, since = read, now
		if now.Sub(begun).Seconds() >= seconds {
			return rates
		}
	}
}

func row(name string, figures []float64, unit string) {
	sort.Float64s(figures)
	fmt.Printf("%-30s %10d %10.2f %s\n", name, len(figures), figures[len(figures)/2], unit)
}

func repeat(seconds float64, stretch func() float64) []float64 {
	var figures []float64
	for begun := time.Now(); len(figures) == 0 || time.Since(begun).Seconds() < seconds; {
		figures = append(figures, stretch())
	}
	return figures
}

func pairs(seconds float64) {
	octets := pattern(chunk)
	for _, mtu := range []uint32{1500, 65535} {
		client, server := newPair(mtu).open()
		go pour(client, octets, chunk)
		row(fmt.Sprintf("PairStream/mtu-%d-copied", mtu), drain(server, octets, chunk, seconds), "Gb/s")
		server.Close()
		client.Close()
	}
	client, server := newPair(1500).open()
	go func() {
		room := make([]byte, 2)
		for {
			if n, err := server.Read(room); err != nil || n != 1 {
				return
			}
			room[0] = ^room[0]
			if _, err := server.Write(room[:1]); err != nil {
				return
			}
		}
	}()
	room := make([]byte, 2)
	row("PairPingpong/mtu-1500", repeat(seconds, func() float64 {
		begun := time.Now()
		for n := range 50 {
			_, err := client.Write([]byte{byte(n)})
			must(err)
			count, err := client.Read(room)
			must(err)
			if count != 1 || room[0] != ^byte(n) {
				must(errors.New("a wrong octet"))
			}
		}
		return float64(time.Since(begun).Nanoseconds()) / 50
	}), "ns")
	p := newPair(1500)
	row("PairChurn/mtu-1500", repeat(seconds, func() float64 {
		begun := time.Now()
		for n := range 50 {
			client, server := p.open()
			_, err := client.Write([]byte{byte(n)})
			must(err)
			must(client.Close())
			count, err := server.Read(room)
			must(err)
			if count != 1 || room[0] != byte(n) {
				must(errors.New("a wrong octet"))
			}
			if _, err := server.Read(room); err != io.EOF {
				must(errors.New("the end did not come"))
			}
			must(server.Close())
		}
		return 50 / time.Since(begun).Seconds() / 1000
	}), "k/s")
}

// kernelEnd is the program at the kernel's end: it says so when it listens, and what it measured if it receives.
func kernelEnd(sends bool, seconds float64) {
	listener, err := net.Listen("tcp", kernelA+":7000")
	must(err)
	fmt.Println("ready")
	conn, err := listener.Accept()
	must(err)
	octets := pattern(4 * chunk)
	if sends {
		pour(conn, octets, 4*chunk)
		return
	}
	for _, rate := range drain(conn, octets, 4*chunk, seconds) {
		fmt.Println(rate)
	}
}

// kernelPeer is to be run in namespaces of its own; this process has one core, the kernel's end another one.
func kernelPeer(seconds float64, core int) {
	for _, name := range []string{"tap", "tun"} {
		for _, sends := range []bool{true, false} {
			stream(name, sends, seconds, core)
		}
	}
}

func stream(name string, sends bool, seconds float64, core int) {
	device := fmt.Sprintf("rival%s%t", name, sends)[:10]
	open := tun.Open
	options := &fdbased.Options{MTU: 1500, GVisorGSOEnabled: true, RXChecksumOffload: true, PacketDispatchMode: fdbased.Readv}
	if name == "tap" {
		open = tun.OpenTAP
		options.EthernetHeader, options.Address = true, peerMAC
	}
	fd, err := open(device)
	must(err)
	options.FDs = []int{fd}
	for _, words := range []string{"addr add " + kernelA + "/24 dev " + device, "link set " + device + " up"} {
		must(exec.Command("ip", strings.Fields(words)...).Run())
	}
	link, err := fdbased.New(options)
	must(err)
	s := tcpStack(link, stackAddress)
	self, err := os.Executable()
	must(err)
	peer := exec.Command("taskset", "-c", strconv.Itoa(core), self, "-kernel-end", fmt.Sprint(!sends), "-seconds", fmt.Sprint(seconds))
	peer.Stderr = os.Stderr
	output, err := peer.StdoutPipe()
	must(err)
	must(peer.Start())
	_, err = io.ReadFull(output, make([]byte, len("ready\n")))
	must(err)
	conn, err := gonet.DialContextTCP(context.Background(), s, tcpip.FullAddress{NIC: 1, Addr: kernelAddress, Port: 7000}, ipv4.ProtocolNumber)
	must(err)
	octets := pattern(4 * chunk)
	var rates []float64
	if sends {
		go pour(conn, octets, 4*chunk)
		told, err := io.ReadAll(output)
		must(err)
		for _, word := range strings.Fields(string(told)) {
			rate, err := strconv.ParseFloat(word, 64)
			must(err)
			rates = append(rates, rate)
		}
		row("KernelPeerSend/"+name, rates, "Gb/s")
	} else {
		rates = drain(conn, octets, 4*chunk, seconds)
		row("KernelPeerReceive/"+name, rates, "Gb/s")
		// It has enough.
		must(peer.Process.Kill())
	}
	conn.Close()
	_ = peer.Wait()
	must(exec.Command("ip", "link", "del", device).Run())
}
