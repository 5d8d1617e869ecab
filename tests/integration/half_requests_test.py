"""Requests that come in halves, from many connections of a few addresses: they
keep nobody out, with API keys and without."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import resource
import socket
import subprocess
import tempfile
import time
import unittest

import harness

ADDRESSES = [f"127.0.0.{last}" for last in range(1, 6)]
HALVES = 4300  # above --max-connections
KEY = "sk-0123456789-0123456789"
HALF_HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nX-A: "
HALF_BODY = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
             b"Content-Length: 100\r\n\r\n{")
# The other half of the machine's descriptors is the gateway's.
FILES = HALVES + 500


class Flood:
    """Connections with a half request each, which are made again once the
    gateway has closed them, as long as it lasts."""

    def __init__(self, port, half):
        self.port, self.half = port, half
        self.sockets, self.closed = [], 0

    def open(self, count):
        for index in range(count):
            one = socket.socket()
            with contextlib.suppress(OSError):
                one.settimeout(10)
                one.bind((ADDRESSES[index % len(ADDRESSES)], 0))
                one.connect(("127.0.0.1", self.port))
                one.sendall(self.half)
            self.sockets.append(one)

    def renew(self):
        """The oldest eighth of all, again."""
        count = len(self.sockets) // 8
        for one in self.sockets[:count]:
            one.close()
        del self.sockets[:count]
        self.open(count)

    def close(self):
        for one in self.sockets:
            one.close()


class HalfRequestsTest(unittest.TestCase):
    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < FILES:
            self.skipTest(f"needs {FILES} open files, the hard limit is "
                          f"{hard} (ulimit -Hn)")
        if soft != resource.RLIM_INFINITY and soft < FILES:
            resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE,
                            (soft, hard))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, **environment):
        """A gateway without stages; its port."""
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(
                [pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) /
                 "services/gateway/sluice-gateway",
                 "--stages", "127.0.0.1:1", "--listen", "127.0.0.1:0",
                 "--model", harness.golden("stories"),
                 "--port-file", self.folder / "port", "--drain-timeout", "1"],
                stderr=log, stdout=log, stdin=subprocess.DEVNULL,
                env={**os.environ, **environment})

        def end():
            process.kill()
            process.wait(30)
        self.addCleanup(end)
        file = self.folder / "port"
        return int(harness.wait_for(
            lambda: file.exists() and file.read_text().strip(), 60,
            "the gateway listens").rsplit(":", 1)[1])

    def tokenize(self, port, source):
        """The status of a whole request from `source`, and its seconds."""
        begin = time.monotonic()
        with contextlib.closing(http.client.HTTPConnection(
                "127.0.0.1", port, timeout=30,
                source_address=(source, 0))) as connection:
            connection.request("POST", "/tokenize", '{"prompt": "a"}', {
                "X-Api-Key": KEY, "Content-Type": "application/json"})
            answer = connection.getresponse()
            json.loads(answer.read())
            return answer.status, time.monotonic() - begin

    def check(self, half, **environment):
        port = self.start(**environment)
        flood = Flood(port, half)
        self.addCleanup(flood.close)
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=30,
                                          source_address=("127.0.0.9", 0))
        self.addCleanup(kept.close)

        def ask_kept():
            kept.request("POST", "/tokenize", '{"prompt": "a"}', {
                "X-Api-Key": KEY, "Content-Type": "application/json"})
            answer = kept.getresponse()
            answer.read()
            self.assertEqual(answer.status, 200)

        ask_kept()
        took = []
        flood.open(HALVES)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for _ in range(8):
                renewing = pool.submit(flood.renew)
                for source in ("127.0.0.9", *ADDRESSES):
                    status, seconds = self.tokenize(port, source)
                    self.assertEqual(status, 200, source)
                    took.append(seconds)
                ask_kept()
                renewing.result()
        print(f"{HALVES} half requests, {len(took)} whole ones: the slowest "
              f"took {1000 * max(took):.0f} ms", flush=True)
        self.assertLess(max(took), 10)

    def test_half_heads(self):
        self.check(HALF_HEAD)

    def test_half_bodies(self):
        self.check(HALF_BODY)

    def test_half_heads_before_a_key(self):
        self.check(HALF_HEAD, SLUICE_API_KEYS=f"a:{KEY}")

    def test_half_bodies_without_a_key(self):
        self.check(HALF_BODY, SLUICE_API_KEYS=f"a:{KEY}")


if __name__ == "__main__":
    harness.main()
