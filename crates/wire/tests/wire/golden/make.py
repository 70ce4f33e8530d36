#!/usr/bin/env python3
"""Makes frames.txt: frames that scapy builds and frames of captures, and what tshark reads in them.

    golden/make.py CAPTURE.pcap > golden/frames.txt

The capture is of Linux talking to itself over a veth pair between two network namespaces, with tcpdump and without
checksum offload: IPv6 coming up, echoes whole and in fragments, a TCP connection, datagrams to a closed port.
The tests of this crate read that file; neither scapy nor tshark is needed to run them.
"""
import logging
import subprocess
import sys
import tempfile

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import *  # noqa: E402

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
E = Ether(dst=B, src=A)
I4 = IP(src="192.0.2.1", dst="198.51.100.2", id=0x1234)
I6 = IPv6(src="2001:db8::1", dst="2001:db8:1::2", fl=0xABCDE, tc=0xB9, hlim=63)
T = TCP(sport=40000, dport=443, seq=0xFFFFFFF0, ack=0x01020304, window=4321)
U = UDP(sport=5353, dport=53)
LL4 = IPv6(src="fe80::a", dst="ff02::1", hlim=255)

FRAMES = {
    "udp4": E / I4 / U / b"odd",
    "udp4 without checksum": E / I4 / UDP(sport=1, dport=2, chksum=0) / b"none",
    "udp4 with a wrong checksum": E / I4 / UDP(sport=1, dport=2, chksum=0x1234) / b"wrong",
    "udp4 short, padded": E / I4 / U / b"x" / Padding(b"\0" * 17),
    "ip4 with a wrong checksum": E / IP(src="192.0.2.1", dst="192.0.2.2", chksum=0x4321) / U / b"1",
    "ip4 options": E / IP(src="192.0.2.1", dst="224.0.0.22", ttl=1, tos=0xC0, options=[IPOption_Router_Alert()]) / U,
    "ip4 first fragment": E / IP(src="192.0.2.1", dst="192.0.2.2", flags="MF", id=7, proto=17) / bytes(U / (b"f" * 40)),
    "ip4 later fragment": E / IP(src="192.0.2.1", dst="192.0.2.2", frag=185, id=7, proto=17) / (b"g" * 24),
    "vlan 10, priority 7": E / Dot1Q(vlan=10, prio=7) / I4 / U / b"tagged",
    "vlan, drop eligible": E / Dot1Q(vlan=4094, prio=1, id=1) / I6 / U / b"tagged",
    "priority tag": E / Dot1Q(vlan=0, prio=5, type=0x88B5) / (b"p" * 46),
    "two tags": E / Dot1AD(vlan=200, prio=3) / Dot1Q(vlan=10, prio=6) / I4 / T / b"data",
    "local experimental": Ether(dst="ff:ff:ff:ff:ff:ff", src=A, type=0x88B5) / (b"payload" * 8),
    "arp request": Ether(dst="ff:ff:ff:ff:ff:ff", src=A) / ARP(op=1, hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2"),
    "arp reply, tagged": E / Dot1Q(vlan=3) / ARP(op=2, hwsrc=A, psrc="10.0.0.1", hwdst=B, pdst="10.0.0.2"),
    "tcp4 syn": E / I4 / TCP(sport=1, dport=2, flags="SEC", seq=7, options=[("MSS", 1460), ("SAckOK", b""), ("Timestamp", (123456, 0)), ("NOP", None), ("WScale", 10)]),
    "tcp4 sack": E / I4 / TCP(sport=1, dport=2, flags="A", ack=9, options=[("NOP", None), ("NOP", None), ("SAck", (100, 200, 300, 400, 500, 600))]),
    "tcp4 urgent": E / I4 / TCP(sport=1, dport=2, flags="PAU", urgptr=3, window=0) / b"urgent",
    "tcp4 unknown option": E / I4 / TCP(sport=1, dport=2, flags="S", options=[(254, b"\xf9\x89\x01\x02"), ("MSS", 536)]),
    "tcp6 data": E / I6 / TCP(sport=8080, dport=50000, flags="PA", options=[("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]) / (b"x" * 33),
    "tcp6 wrong checksum": E / I6 / TCP(sport=8080, dport=50000, flags="R", chksum=0xBEEF),
    "icmp4 echo": E / I4 / ICMP(id=0x1234, seq=5) / b"ping data",
    "icmp4 host unreachable": E / I4 / ICMP(type=3, code=1) / bytes(IP(src="198.51.100.2", dst="203.0.113.9") / U / b"quoted")[:28],
    "icmp4 fragmentation needed": E / I4 / ICMP(type=3, code=4, nexthopmtu=1400) / bytes(IP(src="198.51.100.2", dst="203.0.113.9", flags="DF", len=1500) / TCP(sport=7, dport=8, chksum=1))[:40],
    "icmp4 time exceeded": E / I4 / ICMP(type=11, code=0) / bytes(IP(src="198.51.100.2", dst="203.0.113.9", ttl=1) / U)[:28],
    "icmp4 parameter problem": E / I4 / ICMP(type=12, code=0, ptr=20) / bytes(IP(src="198.51.100.2", dst="203.0.113.9") / U)[:28],
    "icmp4 redirect": E / I4 / ICMP(type=5, code=1, gw="192.0.2.254") / bytes(IP(src="198.51.100.2", dst="203.0.113.9") / U)[:28],
    "icmp6 echo": E / I6 / ICMPv6EchoRequest(id=9, seq=8, data=b"hello"),
    "icmp6 too big": E / I6 / ICMPv6PacketTooBig(mtu=1280) / IPv6(src="2001:db8:1::2", dst="2001:db8::1") / U / b"quoted",
    "icmp6 unreachable": E / I6 / ICMPv6DestUnreach(code=4) / IPv6(src="2001:db8:1::2", dst="2001:db8::1") / U / b"quoted",
    "icmp6 time exceeded": E / I6 / ICMPv6TimeExceeded(code=0) / IPv6(src="2001:db8:1::2", dst="2001:db8::1") / U,
    "icmp6 parameter problem": E / I6 / ICMPv6ParamProblem(code=1, ptr=40) / IPv6(src="2001:db8:1::2", dst="2001:db8::1", nh=253) / b"12345678",
    "nd solicitation": E / IPv6(src="fe80::a", dst="ff02::1:ff00:b", hlim=255) / ICMPv6ND_NS(tgt="fe80::b") / ICMPv6NDOptSrcLLAddr(lladdr=A),
    "nd advertisement": E / IPv6(src="fe80::b", dst="fe80::a", hlim=255) / ICMPv6ND_NA(R=1, S=1, O=1, tgt="fe80::b") / ICMPv6NDOptDstLLAddr(lladdr=B),
    "nd router advertisement": E / LL4 / ICMPv6ND_RA(chlim=64, M=1, O=0, routerlifetime=1800, reachabletime=30000, retranstimer=1000) / ICMPv6NDOptSrcLLAddr(lladdr=A) / ICMPv6NDOptMTU(mtu=1500) / ICMPv6NDOptPrefixInfo(prefixlen=64, L=1, A=1, validlifetime=86400, preferredlifetime=14400, prefix="2001:db8:7::") / ICMPv6NDOptRDNSS(lifetime=600, dns=["2001:db8::53"]),
    "nd redirect": E / IPv6(src="fe80::1", dst="fe80::a", hlim=255) / ICMPv6ND_Redirect(tgt="fe80::2", dst="2001:db8::9") / ICMPv6NDOptDstLLAddr(lladdr=B),
    "ip6 hop by hop": E / I6 / IPv6ExtHdrHopByHop(options=[RouterAlert()]) / U / b"alert",
    "ip6 destination options": E / I6 / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / T,
    "ip6 routing": E / I6 / IPv6ExtHdrRouting(type=253, segleft=0, addresses=["2001:db8::7"]) / U / b"routed",
    "ip6 first fragment": E / I6 / IPv6ExtHdrFragment(id=0xDEADBEEF, m=1, offset=0, nh=17) / bytes(U / (b"f" * 48)),
    "ip6 later fragment": E / I6 / IPv6ExtHdrFragment(id=0xDEADBEEF, m=0, offset=181, nh=17) / (b"g" * 20),
    "ip6 atomic fragment": E / I6 / IPv6ExtHdrFragment(id=1) / U / b"alone",
    "ip6 all headers": E / I6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrFragment(id=5) / IPv6ExtHdrDestOpt() / T / b"deep",
}

FIELDS = """eth.dst eth.src ieee8021ad.id ieee8021ad.priority ieee8021ad.dei vlan.id vlan.priority vlan.dei
arp.opcode arp.src.hw_mac arp.src.proto_ipv4 arp.dst.hw_mac arp.dst.proto_ipv4
ip.hdr_len ip.dsfield ip.len ip.id ip.flags.df ip.flags.mf ip.frag_offset ip.ttl ip.proto ip.checksum.status ip.src ip.dst
ipv6.tclass ipv6.flow ipv6.plen ipv6.nxt ipv6.hlim ipv6.src ipv6.dst
ipv6.fraghdr.offset ipv6.fraghdr.more ipv6.fraghdr.ident ipv6.routing.type ipv6.routing.segleft
udp.srcport udp.dstport udp.checksum.status
tcp.srcport tcp.dstport tcp.seq_raw tcp.ack_raw tcp.hdr_len tcp.flags tcp.window_size_value tcp.urgent_pointer
tcp.options.mss_val tcp.options.wscale.shift tcp.options.timestamp.tsval tcp.options.timestamp.tsecr
tcp.options.sack_le tcp.options.sack_re tcp.checksum.status
icmp.type icmp.code icmp.mtu icmp.redir_gw icmp.checksum.status
icmpv6.type icmpv6.code icmpv6.mtu icmpv6.echo.identifier icmpv6.echo.sequence_number icmpv6.checksum.status
icmpv6.nd.ns.target_address icmpv6.nd.na.target_address icmpv6.nd.rd.target_address icmpv6.rd.na.destination_address icmpv6.opt.linkaddr
icmpv6.nd.ra.router_lifetime icmpv6.opt.mtu icmpv6.opt.prefix icmpv6.opt.prefix.length icmpv6.opt.rdnss""".split()


def main():
    frames = [(name, bytes(frame)) for name, frame in FRAMES.items()]
    for path in sys.argv[1:]:
        captured = [bytes(p) for p in rdpcap(path)]
        frames += [(f"kernel {i}", frame) for i, frame in enumerate(captured)]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        wrpcap(file.name, [Ether(f) for _, f in frames])
        command = ["tshark", "-n", "-r", file.name, "-T", "fields", "-E", "occurrence=a", "-E", "separator=/t"]
        for option in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE",
                       "ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE", "tcp.relative_sequence_numbers:FALSE"]:
            command += ["-o", option]
        for field in FIELDS:
            command += ["-e", field]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    version = subprocess.run(["tshark", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    print(f"# Frames built by scapy {conf.version} and captured from Linux, and what {version.split(' (')[0]} reads in them.")
    print("# Made by make.py. For each: a name, the octets, the fields.")
    assert len(lines) == len(frames)
    for (name, octets), line in zip(frames, lines):
        values = [f"{f}={v}" for f, v in zip(FIELDS, line.split("\t")) if v]
        print(f"\n= {name}\n{octets.hex()}\n{' '.join(values)}")


main()
