"""A DNS server on 127.0.0.1:53 that knows the names of its command line, each
NAME=IP: an A record for each, none of another type, and no other name.

Prints "listening" once it does.
"""

import ipaddress
import socket
import struct
import sys

HEADER = struct.Struct(">6H")
NO_SUCH_NAME = 3
A, INTERNET = 1, 1


def question(packet):
    """Name, type and end of the first question."""
    labels, at = [], HEADER.size
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    kind, _ = struct.unpack_from(">2H", packet, at + 1)
    return ".".join(labels).lower(), kind, at + 5


def answer(packet, known):
    number = HEADER.unpack_from(packet)[0]
    name, kind, end = question(packet)
    address = known.get(name) if kind == A else None
    flags = 0x8580 | (0 if name in known else NO_SUCH_NAME)
    reply = HEADER.pack(number, flags, 1, 1 if address else 0, 0, 0)
    reply += packet[HEADER.size:end]
    if address:  # The name is a pointer to the question's.
        reply += struct.pack(">3HIH", 0xc00c, A, INTERNET, 60, 4)
        reply += ipaddress.IPv4Address(address).packed
    return reply


def main(arguments):
    known = dict(word.split("=") for word in arguments)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    print("listening", flush=True)
    while True:
        packet, sender = server.recvfrom(512)
        server.sendto(answer(packet, known), sender)


if __name__ == "__main__":
    main(sys.argv[1:])
