"""Who may reach the stages of a cluster on this machine, and what one who
does can do. A stranger here speaks HTTP/2 by hand: no client of ours, and no
more than a socket."""

import base64
import contextlib
import json
import os
import pathlib
import re
import socket
import stat
import struct
import subprocess
import tempfile
import time
import unittest

import api
import harness
from streams import Streams, body_of, ids_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
ACK, END_HEADERS, END_STREAM = 1, 4, 1


def model():
    return harness.golden("stories")


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) +
            struct.pack(">I", stream) + payload)


def length(count):
    """Of a string in HPACK, below 254."""
    return bytes([count]) if count < 127 else bytes([127, count - 127])


def field(name, value):
    """One header, literally."""
    return b"\0" + length(len(name)) + name + length(len(value)) + value


def protocol_version():
    """Of this build."""
    header = pathlib.Path(__file__).parents[2] / "common/wire/protocol_versions.h"
    return int(re.search(r"kProtocolVersion = (\d+);",
                         header.read_text()).group(1))


def number(tag, value):
    """A varint field of a message; left out if 0."""
    if not value:
        return b""
    raw = bytes([tag << 3])
    while value > 127:
        raw += bytes([value & 127 | 128])
        value >>= 7
    return raw + bytes([value])


def text(tag, value):
    """A field of bytes, below 128."""
    return bytes([tag << 3 | 2, len(value)]) + value


def in_metadata(raw):
    """As gRPC sends bytes: in base64."""
    return base64.b64encode(raw).rstrip(b"=")


def hello(name, secret):
    """A v1.Hello of this build's protocol."""
    return in_metadata(number(1, protocol_version()) + text(2, name) +
                       text(4, secret))


def steps_hello(epoch, layer, secret):
    """A v1.StepsHello, as from a stage before layer `layer`."""
    return in_metadata(number(1, protocol_version()) + number(3, epoch) +
                       number(6, layer) + text(8, secret))


def results_request(epoch, secret, tokens_only=False):
    """A v1.ResultsRequest."""
    return in_metadata(number(2, epoch) + text(3, secret) +
                       number(4, tokens_only))


def dial(address):
    """`address`: a socket file, or HOST:PORT."""
    if address.startswith("/"):
        to = socket.socket(socket.AF_UNIX)
        to.settimeout(10)
        to.connect(address)
        return to
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 10)


def call_headers(said, method="Control"):
    return b"".join(field(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", b"http"),
        (b":path", b"/sluice.v1.Stage/" + method.encode()),
        (b":authority", b"x"), (b"content-type", b"application/grpc"),
        (b"te", b"trailers"), (b"sluice-hello-bin", said)))


class Stranger:
    """One call, and all that comes back."""

    def __init__(self, address, said, method="Control"):
        self.begun = time.monotonic()
        self.socket = dial(address)
        self.socket.sendall(
            PREFACE + frame(SETTINGS, 0, 0) +
            frame(HEADERS, END_HEADERS, 1, call_headers(said, method)))

    def answer(self):
        """The bytes of the trailers, and after how many seconds they came."""
        data = b""
        with self.socket:
            while True:
                while len(data) >= 9:
                    size = int.from_bytes(data[:3], "big")
                    if len(data) < 9 + size:
                        break
                    kind, flags = data[3], data[4]
                    payload, data = data[9:9 + size], data[9 + size:]
                    if kind == HEADERS and flags & END_STREAM:
                        return payload, time.monotonic() - self.begun
                    if kind == SETTINGS and not flags & ACK:
                        self.socket.sendall(frame(SETTINGS, ACK, 0))
                more = self.socket.recv(65536)
                if not more:
                    raise AssertionError("closed without an answer")
                data += more


def socket_of(cluster, index=0):
    address = cluster.process("stage", index)["addresses"][0]
    return address.removeprefix("unix:")


class SocketFilesTest(unittest.TestCase):
    def test_stages_listen_where_only_their_user_comes_in(self):
        with harness.Cluster(model()) as cluster:
            shown = json.loads(api.get(cluster.url, "/cluster")[1])["stages"]
            for index in range(2):
                entry = cluster.process("stage", index)
                address = entry["addresses"][0]
                self.assertEqual(
                    address, f"unix:{cluster.run_dir}/stage-{index}.sock")
                self.assertEqual(shown[index]["address"], address)
                mode = os.lstat(address[5:]).st_mode
                self.assertTrue(stat.S_ISSOCK(mode))
                self.assertEqual(stat.S_IMODE(mode), 0o600)
                # No second process takes it.
                second = subprocess.run(entry["argv"], capture_output=True,
                                        env=entry["environment"], text=True,
                                        timeout=60, check=False)
                self.assertEqual(second.returncode, 1)
                self.assertIn("the address is in use", second.stderr)
            self.assertIn("token_ids", api.choice_of(api.completion(
                cluster.url, [1, 403], max_tokens=4, return_token_ids=True)))
            self.assertEqual(cluster.down(), 0)
            left = [path.name for path in
                    pathlib.Path(cluster.run_dir).iterdir()]
            self.assertFalse([name for name in left if ".sock" in name])

    def test_a_killed_stage_comes_back_on_its_socket(self):
        with harness.Cluster(model()) as cluster:
            cluster.kill("stage", 1)
            harness.wait_for(
                lambda: api.try_get(cluster.url, "/readyz")[0] == 503, 10,
                "the loss is noticed")
            self.assertTrue(os.path.exists(socket_of(cluster, 1)))
            cluster.restart("stage", 1)
            harness.wait_for(
                lambda: api.try_get(cluster.url, "/readyz")[0] == 200, 30,
                "ready again")

    def test_a_long_run_folder_has_its_sockets_elsewhere(self):
        with tempfile.TemporaryDirectory(prefix="sluice-test-") as base:
            run_dir = os.path.join(base, "x" * 100)
            os.mkdir(run_dir)
            up = subprocess.run(
                [str(word) for word in (
                    *harness.Cluster.UP, "--model", model(), "--port", "0",
                    "--run-dir", run_dir, "--detach")],
                capture_output=True, text=True, timeout=300, check=False)
            try:
                self.assertEqual(up.returncode, 0, up.stderr)
                document = json.loads(
                    pathlib.Path(run_dir, "cluster.json").read_text())
                address = document["processes"][0]["addresses"][0]
                folder = os.path.dirname(address.removeprefix("unix:"))
                self.assertLessEqual(len(address) - 5, 107)
                self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
            finally:
                subprocess.run([str(word) for word in (
                    *harness.Cluster.DOWN, "--run-dir", run_dir)],
                    capture_output=True, timeout=120, check=False)
            self.assertFalse(os.path.exists(folder))

    def test_with_tcp_they_have_ports(self):
        with harness.Cluster(model(), "--tcp") as cluster:
            self.assertRegex(cluster.process("stage")["addresses"][0],
                             r"^127\.0\.0\.1:\d+$")


class StrangersTest(unittest.TestCase):
    """As the user of the cluster: others do not get so far."""

    def test_no_refusal_helps_to_take_a_stage(self):
        with harness.Cluster(model()) as cluster:
            log = pathlib.Path(cluster.process("stage")["log"]).read_text()
            gateway = re.search(r"gateway (\S+) holds this stage", log)[1]
            path = socket_of(cluster)
            for name in (b"rogue", gateway.encode()):
                trailers, _ = Stranger(path, hello(name, b"r" * 32)).answer()
                self.assertIn(b"held by another gateway", trailers)
                self.assertNotIn(gateway.encode(), trailers)
            # What older gateways did: no hello in the metadata.
            trailers, _ = Stranger(path, b"").answer()
            self.assertIn(b"begins with a hello", trailers)
            self.assertEqual(api.try_get(cluster.url, "/readyz")[0], 200)
            again = pathlib.Path(cluster.process("stage")["log"]).read_text()
            self.assertEqual(again.count("holds this stage"), 1)
            self.assertNotIn("rrrrrrrr", again)

    def test_fifty_refused_hellos_a_second_are_answered_within_one(self):
        with harness.Cluster(model()) as cluster:
            path, slowest, begin = socket_of(cluster), 0, time.monotonic()
            for count in range(250):
                trailers, seconds = Stranger(
                    path, hello(b"rogue", b"r" * 32)).answer()
                self.assertIn(b"held by another gateway", trailers)
                slowest = max(slowest, seconds)
                if count % 50 == 0:
                    api.completion(cluster.url, [1, 403], max_tokens=4)
            took = time.monotonic() - begin
            print(f"250 refused hellos in {took:.2f} s, the slowest answered "
                  f"after {1000 * slowest:.0f} ms", flush=True)
            self.assertLess(slowest, 1)
            self.assertLess(took, 5)
            log = pathlib.Path(cluster.process("stage")["log"]).read_text()
            self.assertLess(log.count("is refused"), 10)


class Rogue:
    """What one who reaches a port of a stage tries. Each try gets its
    connections, else OSError; the stage may close them at any time."""

    def __init__(self, address):
        self.address = address

    def tries(self):
        return [self.silent_connections, self.garbage, self.settings_flood,
                self.ping_flood, self.rapid_resets, self.endless_headers,
                self.data_before_a_hello, self.many_calls]

    def _send(self, *pieces):
        with dial(self.address) as to, contextlib.suppress(OSError):
            for piece in pieces:
                to.sendall(piece)
            to.settimeout(0.05)
            while to.recv(65536):
                pass

    def silent_connections(self):
        with contextlib.ExitStack() as held:
            for _ in range(200):
                held.enter_context(dial(self.address))
            time.sleep(0.5)

    def garbage(self):
        for _ in range(20):
            self._send(os.urandom(4096))
            self._send(PREFACE + os.urandom(4096))

    def settings_flood(self):
        self._send(PREFACE, frame(SETTINGS, 0, 0) * 20000)

    def ping_flood(self):
        self._send(PREFACE + frame(SETTINGS, 0, 0),
                   frame(PING, 0, 0, b"12345678") * 20000)

    def rapid_resets(self):
        """Calls that are given up at once (CVE-2023-44487)."""
        block = call_headers(hello(b"rogue", b"r" * 32))
        self._send(PREFACE + frame(SETTINGS, 0, 0), *(
            frame(HEADERS, END_HEADERS, 2 * call + 1, block) +
            frame(RST, 0, 2 * call + 1, b"\0\0\0\x08")
            for call in range(2000)))

    def endless_headers(self):
        """A header of which no end comes."""
        self._send(PREFACE + frame(SETTINGS, 0, 0) +
                   frame(HEADERS, 0, 1, call_headers(b"")),
                   *(frame(CONTINUATION, 0, 1, field(b"x", b"y" * 200) * 70)
                     for _ in range(500)))

    def data_before_a_hello(self):
        self._send(PREFACE + frame(SETTINGS, 0, 0) +
                   frame(HEADERS, END_HEADERS, 1, call_headers(b"")),
                   frame(DATA, 0, 1, b"\0" + struct.pack(">I", 1 << 20)),
                   *(frame(DATA, 0, 1, b"z" * 16000) for _ in range(65)))

    def many_calls(self):
        """Of one connection, none of them ended."""
        block = call_headers(hello(b"rogue", b"r" * 32))
        self._send(PREFACE + frame(SETTINGS, 0, 0), *(
            frame(HEADERS, END_HEADERS, 2 * call + 1, block)
            for call in range(1000)))


class RoguesTest(unittest.TestCase):
    """Whoever reaches a stage's port changes no stream. Another role's
    certificate: namespaces_test."""

    def resident(self, cluster):
        """Bytes of every process, by pid."""
        return {entry["pid"]: 4096 * int(pathlib.Path(
            f"/proc/{entry['pid']}/statm").read_text().split()[1])
                for entry in cluster.file["processes"]}

    def check_refused(self, address):
        """Epochs and secrets that are not the pipeline's."""
        for epoch in (0, 1, 2, 1 << 40):
            for secret in (b"", b"r" * 32):
                for said, method in (
                        (steps_hello(epoch, 2, secret), "Steps"),
                        (results_request(epoch, secret), "Results"),
                        (results_request(epoch, secret, True), "Results")):
                    trailers, _ = Stranger(address, said, method).answer()
                    self.assertRegex(trailers, rb"grpc-status[^0]*[1-9]")
        trailers, _ = Stranger(address, hello(b"rogue", b"r" * 32)).answer()
        self.assertIn(b"held by another gateway", trailers)

    def test_what_rogues_try_changes_no_stream(self):
        bodies = [body_of(index, 450) for index in range(4)]
        with harness.Cluster(model(), "--tcp") as cluster:
            calm = Streams(cluster.url, bodies)
            self.assertTrue(calm.join(120))
            want = [ids_of(one) for one in calm.outcomes]
            before = self.resident(cluster)
            for index in range(2):
                rogue = Rogue(cluster.process("stage", index)["addresses"][0])
                self.check_refused(rogue.address)
                for attempt in rogue.tries():
                    with self.subTest(attempt.__name__, stage=index):
                        streams = Streams(cluster.url, bodies)
                        streams.wait_for_tokens()
                        attempt()
                        self.assertTrue(streams.join(60))
                        self.assertEqual(
                            [ids_of(one) for one in streams.outcomes], want)
            metrics = api.metrics(cluster.url)
            self.assertEqual(metrics["sluice_gateway_recoveries_total"], 0)
            grown = {pid: (size - before[pid]) >> 20
                     for pid, size in self.resident(cluster).items()}
            print(f"MiB more after all tries: {sorted(grown.values())}",
                  flush=True)
            self.assertLess(max(grown.values()), 512)


if __name__ == "__main__":
    harness.main()
