"""Who may reach the stages of a cluster on this machine, and what one who
does can do. A stranger here speaks HTTP/2 by hand: no client of ours, and no
more than a socket."""

import base64
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

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, ACK = 1, 4, 1
END_HEADERS, END_STREAM = 4, 1


def model():
    return harness.shared("data/models/stories260K-hf")


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
    header = pathlib.Path(__file__).parents[2] / "common/wire/stage.h"
    return int(re.search(r"kProtocolVersion = (\d+);",
                         header.read_text()).group(1))


def hello(name, secret):
    """A v1.Hello of this build's protocol, as gRPC sends bytes: in base64."""
    raw = (b"\x08" + bytes([protocol_version()]) +
           b"\x12" + bytes([len(name)]) + name +
           b"\x22" + bytes([len(secret)]) + secret)
    return base64.b64encode(raw).rstrip(b"=")


class Stranger:
    """One call of Control, and all that comes back."""

    def __init__(self, path, said):
        self.begun = time.monotonic()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        block = b"".join(field(*pair) for pair in (
            (b":method", b"POST"), (b":scheme", b"http"),
            (b":path", b"/sluice.v1.Stage/Control"), (b":authority", b"x"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"),
            (b"sluice-hello-bin", said)))
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0) +
                            frame(HEADERS, END_HEADERS, 1, block))

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


if __name__ == "__main__":
    harness.main()
