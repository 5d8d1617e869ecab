"""What the network between machines does: latency and rate of the links from
this machine to others, each of which runs this, too."""

import hmac
import json
import socket
import statistics
import sys
import threading
import time

ROUND_TRIPS = 40
SECONDS = 0.15  # of a transfer that tells the rate
FIRST_BYTES = 1 << 16
MOST_BYTES = 1 << 28
PIECE = bytes(1 << 20)
PATIENCE = 10  # seconds for any answer


def serve(token, address):
    """Answers probes that know the token, until the process ends. Returns the
    listening socket. OSError if the address is not this machine's or in use."""
    family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server(address, family=family)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection, token),
                             daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener


def _answer(connection, token):
    """Takes messages of 8 bytes of length and so many bytes; answers each with
    a byte. A caller without the token is cut off."""
    with connection:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if not hmac.compare_digest(_read(connection, len(token)), token):
                return
            buffer = bytearray(len(PIECE))
            while True:
                left = int.from_bytes(_read(connection, 8), "big")
                while left:
                    got = connection.recv_into(buffer, min(left, len(buffer)))
                    if not got:
                        return
                    left -= got
                connection.sendall(b"\0")
        except OSError:
            return


def _read(connection, size):
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection ended")
        data += piece
    return bytes(data)


def measure(token, address):
    """(seconds of a message one way, bytes per second) to a machine that
    serves. OSError if it does not answer."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(token)
        _send(connection, 0)
        latency = statistics.median(
            _send(connection, 0) for _ in range(ROUND_TRIPS)) / 2
        size = FIRST_BYTES
        while True:
            seconds = _send(connection, size)
            if seconds > SECONDS or size >= MOST_BYTES:
                # The last byte's way and the answer's are no part of the rate.
                return latency, size / max(seconds - 2 * latency,
                                           seconds / 10)
            size *= 4


def _send(connection, size):
    """Sends so many bytes; returns the seconds until they are answered."""
    begin = time.perf_counter()
    connection.sendall(size.to_bytes(8, "big"))
    for at in range(0, size, len(PIECE)):
        connection.sendall(memoryview(PIECE)[:min(len(PIECE), size - at)])
    _read(connection, 1)
    return time.perf_counter() - begin


def main():
    """Standard input: a line {"token", "listen": [HOST, PORT]}, answered with
    {} once this machine listens; then a line of [HOST, PORT] for each link to
    measure, answered with {"latency_seconds", "bytes_per_second"}. Every line
    may be answered with {"error"} instead. Ends with its input."""
    told = json.loads(sys.stdin.readline())
    token = bytes.fromhex(told["token"])
    listener = None
    try:
        listener = serve(token, tuple(told["listen"]))
        _say({})
        for line in sys.stdin:
            latency, rate = measure(token, tuple(json.loads(line)))
            _say({"latency_seconds": latency, "bytes_per_second": rate})
    except OSError as error:
        _say({"error": str(error)})
    finally:
        if listener:
            listener.close()
    return 0


def _say(document):
    print(json.dumps(document), flush=True)
