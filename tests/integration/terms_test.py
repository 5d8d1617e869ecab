"""A stranger holds a free stage for a second and raises its term as far as the
stage lets it: the next gateway serves, and the one after it. What resets a
term."""

import json
import os
import pathlib
import subprocess
import time
import unittest

import api
import harness
from strangers_test import (ACK, DATA, END_HEADERS, END_STREAM, HEADERS,
                            PREFACE, SETTINGS, call_headers, dial, frame,
                            in_metadata, model, number, protocol_version)

ABSURD = (1 << 63) - 1
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice")


def varint(value):
    raw = b""
    while value > 127:
        raw += bytes([value & 127 | 128])
        value >>= 7
    return raw + bytes([value])


def sized(tag, value):
    """A field of bytes."""
    return bytes([tag << 3 | 2]) + varint(len(value)) + value


def fields(raw):
    """The last value of each field of a message."""
    found, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(raw):
        key = read()
        value = read()
        if key & 7 == 2:
            value, at = raw[at:at + value], at + value
        found[key >> 3] = value
    return found


class Hold:
    """A Control stream of a peer that is nobody's gateway."""

    def __init__(self, address, count):
        said = in_metadata(
            number(1, protocol_version()) + sized(2, b"rogue") +
            sized(4, b"r" * 32) + number(6, count) + number(7, ABSURD))
        self.socket = dial(address)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(
            HEADERS, END_HEADERS, 1, call_headers(said)))
        self.raw = self.messages = b""
        self.welcome = fields(self.next()[1])

    def next(self):
        """The fields of the stage's next message."""
        while len(self.messages) < 5 or len(self.messages) < 5 + (
                int.from_bytes(self.messages[1:5], "big")):
            while len(self.raw) < 9 or len(self.raw) < 9 + int.from_bytes(
                    self.raw[:3], "big"):
                more = self.socket.recv(65536)
                if not more:
                    raise AssertionError("the stage ended the stream")
                self.raw += more
            size = int.from_bytes(self.raw[:3], "big")
            kind, flags = self.raw[3], self.raw[4]
            payload, self.raw = self.raw[9:9 + size], self.raw[9 + size:]
            if kind == DATA:
                self.messages += payload
            if kind == HEADERS and flags & END_STREAM:
                raise AssertionError(payload)
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0))
        size = int.from_bytes(self.messages[1:5], "big")
        message = self.messages[5:5 + size]
        self.messages = self.messages[5 + size:]
        return fields(message)

    def term(self):
        return self.welcome[8]

    def assign(self, address, term, epoch):
        """The stage's Assigned to an Assign that is right but for these."""
        identity = fields(self.welcome[3])
        assign = (number(2, epoch) + sized(3, self.welcome[4]) +
                  sized(7, b"e" * 32) + number(8, identity.get(5, 0)) +
                  number(9, identity[6]) + number(12, term))
        if identity[6] < identity[7]:
            assign += (sized(4, address.encode()) + sized(5, identity[2]) +
                       number(6, identity[6]))
        request = sized(2, assign)
        self.socket.sendall(frame(
            DATA, 0, 1, b"\0" + len(request).to_bytes(4, "big") + request))
        return fields(self.next()[2])

    def close(self):
        self.socket.close()


class TermsTest(unittest.TestCase):
    def say(self, cluster):
        return api.choice_of(api.completion(
            cluster.url, [1, 403], max_tokens=8, temperature=0,
            return_token_ids=True)
        )["token_ids"]

    def wait_for_ready(self, cluster):
        harness.wait_for(
            lambda: api.try_get(cluster.url, "/readyz")[0] == 200, 60,
            "the gateway serves")
        return json.loads(api.get(cluster.url, "/readyz")[1])["term"]

    def free(self, address):
        """A hold as soon as the stage is free."""
        held = []

        def take():
            try:
                held.append(Hold(address, 1))
            except AssertionError:
                return False
            return True
        harness.wait_for(take, 30, "the stage is free")
        return held[0]

    def burn(self, address):
        """What a stranger reaches within a second."""
        hold, count, end = self.free(address), 1, time.monotonic() + 1
        for term, epoch in ((ABSURD, 1), (1 << 31, 5), (ABSURD, ABSURD)):
            answer = hold.assign(address, term, epoch)
            self.assertIn(b"this hold has term", answer[3])
        while time.monotonic() < end:
            hold.assign(address, hold.term() + 1000, ABSURD)
            hold.close()
            count += 1
            hold = Hold(address, count)
        hold.close()
        return hold.term(), count

    def reset(self, address):
        done = subprocess.run(
            [str(SLUICE), "reset-term", address],
            capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_the_cluster_serves_on_after_a_strangers_second(self):
        with harness.Cluster(model(), "--tcp") as cluster:
            want = self.say(cluster)
            stages = [cluster.process("stage", index)["addresses"][0]
                      for index in range(2)]
            gateway = None
            for address in (stages[0], stages[1], stages[0]):
                if gateway is None:
                    cluster.kill("gateway")
                else:
                    gateway.kill()
                term, holds = self.burn(address)
                self.assertLess(term, 1 << 20)
                begin = time.monotonic()
                gateway = cluster.restart("gateway")
                served = self.wait_for_ready(cluster)
                print(f"{holds} holds in a second: term {term}; the gateway "
                      f"serves {time.monotonic() - begin:.1f} s after its "
                      f"start, term {served}", flush=True)
                self.assertGreaterEqual(served, term)
                self.assertEqual(self.say(cluster), want)
            # A stage that starts again comes up to the term of the others.
            cluster.kill("stage", 1)
            cluster.restart("stage", 1)
            self.wait_for_ready(cluster)
            self.assertEqual(self.say(cluster), want)

    def test_a_term_is_reset_where_no_epoch_runs(self):
        with harness.Cluster(model(), "--tcp") as cluster:
            stages = [cluster.process("stage", index)["addresses"][0]
                      for index in range(2)]
            code, said = self.reset(stages[0])
            self.assertEqual(code, 1, said)
            self.assertIn("serves in epoch 1.1", said)
            self.assertEqual(api.try_get(cluster.url, "/readyz")[0], 200)
            cluster.kill("gateway")
            self.free(stages[0]).close()
            for address in stages:
                self.free(address).close()
                code, said = self.reset(address)
                self.assertEqual(code, 0, said)
                self.assertRegex(said, r"term \d+ is reset")
            cluster.restart("gateway")
            self.assertEqual(self.wait_for_ready(cluster), 1)
            self.assertEqual(self.reset("127.0.0.1:1")[0], 1)


if __name__ == "__main__":
    harness.main()
