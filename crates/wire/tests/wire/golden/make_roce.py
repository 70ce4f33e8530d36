#!/usr/bin/env python3
"""Makes roce.txt: RoCEv2 packets whose ICRCs scapy computed, each with what tshark reads in it.

    /usr/bin/python3 make_roce.py > roce.txt

Needs scapy 2.5 and tshark 4.0 (Debian 12). scapy knows the ICRC of IPv4 only. The extended headers are given as octets,
since scapy has no classes for most of them.
"""
import struct
import subprocess
import tempfile

from scapy.all import IP, UDP, Ether, Raw, wrpcap
from scapy.contrib.roce import BTH, cnp

FIELDS = """ip.src ip.dst ip.id udp.srcport infiniband.bth.opcode infiniband.bth.se infiniband.bth.m
infiniband.bth.padcnt infiniband.bth.tver infiniband.bth.p_key infiniband.bth.destqp infiniband.bth.a infiniband.bth.psn
infiniband.reth.va infiniband.reth.r_key infiniband.reth.dmalen infiniband.aeth.syndrome infiniband.aeth.msn
infiniband.deth.q_key infiniband.deth.srcqp infiniband.immdt infiniband.ieth
infiniband.atomiceth.swapdt infiniband.atomiceth.cmpdt infiniband.atomicacketh.origremdt
infiniband.invariant.crc""".split()

RETH = struct.pack(">QII", 0x1122334455667788, 0x99AABBCC, 5000)
ATOMIC = struct.pack(">QIQQ", 0x1122334455667788, 0x99AABBCC, 0x0102030405060708, 0x1112131415161718)
AETH = struct.pack(">I", 0x1F000007)
NAK = struct.pack(">I", 0x60000008)
RNR = struct.pack(">I", 0x2E000009)
ORIGINAL = struct.pack(">Q", 0xA1A2A3A4A5A6A7A8)
IMMEDIATE = struct.pack(">I", 0xDEADBEEF)
KEY = struct.pack(">I", 0x99AABBCC)
DETH = struct.pack(">II", 0x80010000, 0x000123)
WHOLE = bytes(range(256))

PACKETS = [
    ("send-first", 0x00, WHOLE), ("send-middle", 0x01, WHOLE), ("send-last", 0x02, b"abcde"),
    ("send-last-immediate", 0x03, IMMEDIATE + b"abcd"), ("send-only", 0x04, bytes(range(16))),
    ("send-only-empty", 0x04, b""), ("send-only-immediate", 0x05, IMMEDIATE + b"abc"),
    ("write-first", 0x06, RETH + WHOLE), ("write-middle", 0x07, WHOLE), ("write-last", 0x08, b"a"),
    ("write-last-immediate", 0x09, IMMEDIATE + b"ab"), ("write-only", 0x0A, RETH + b"abcdefg"),
    ("write-only-immediate", 0x0B, RETH + IMMEDIATE + b"abcdefgh"), ("read-request", 0x0C, RETH),
    ("read-first", 0x0D, AETH + WHOLE), ("read-middle", 0x0E, WHOLE), ("read-last", 0x0F, AETH + b"xyz"),
    ("read-only", 0x10, AETH + b"wxyz"), ("ack", 0x11, AETH), ("nak-sequence", 0x11, NAK), ("nak-rnr", 0x11, RNR),
    ("atomic-ack", 0x12, AETH + ORIGINAL), ("compare-swap", 0x13, ATOMIC), ("fetch-add", 0x14, ATOMIC),
    ("send-last-invalidate", 0x16, KEY + b"ab"), ("send-only-invalidate", 0x17, KEY + b"abc"),
    ("uc-send-only", 0x24, b"hello"), ("uc-send-only-immediate", 0x25, IMMEDIATE + b"hello"),
    ("uc-write-first", 0x26, RETH + WHOLE), ("uc-write-only", 0x2A, RETH + b"hello"),
    ("uc-write-only-immediate", 0x2B, RETH + IMMEDIATE + b"hello"),
    ("ud-send-only", 0x64, DETH + b"hello"), ("ud-send-only-immediate", 0x65, DETH + IMMEDIATE + b"hello"),
]


def frame(number, opcode, body):
    pad = -len(body) % 4
    ip = IP(src="10.1.2.3", dst="10.4.5.6", id=number, flags="DF" if number % 2 else 0, tos=number, ttl=64 - number)
    bth = BTH(opcode=opcode, solicited=number % 2, migreq=1, padcount=pad, pkey=0xFFFF, dqpn=0x10203 + number,
              ackreq=number // 2 % 2, psn=0xFFFFF0 + number if number < 16 else number)
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / UDP(sport=49152 + number, dport=4791) / bth \
        / Raw(body + bytes(pad))


def main():
    frames = [(name, bytes(frame(n, opcode, body))) for n, (name, opcode, body) in enumerate(PACKETS)]
    notice = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.1.2.3", dst="10.4.5.6", id=77) \
        / UDP(sport=50000, dport=4791) / cnp(dqpn=0x123)
    frames.append(("cnp", bytes(notice)))
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        wrpcap(file.name, [Ether(octets) for _, octets in frames])
        command = ["tshark", "-n", "-r", file.name, "-T", "fields", "-E", "separator=|"]
        for field in FIELDS:
            command += ["-e", field]
        read = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\n")
    print("Made by make_roce.py: name, octets from the Ethernet header on, what tshark reads.")
    for (name, octets), values in zip(frames, read):
        told = [f"{f}={v}" for f, v in zip(FIELDS, values.split("|")) if v]
        print(f"\n= {name}\n{octets.hex()}\n{' '.join(told)}", end="")
    print()


main()
