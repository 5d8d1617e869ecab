"""What a gateway said to a stage, said again by someone who has read it."""

import contextlib
import pathlib
import re
import signal
import socket
import threading
import time
import unittest

import api
import harness
from strangers_test import dial, model
from streams import Streams, body_of, ids_of


class Recorder:
    """A link to a stage, and what its clients said; a context manager."""

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._said = []  # by connection
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    stage = dial(self._target)
                except OSError:
                    client.close()
                    continue
                stage.settimeout(None)
                said = bytearray()
                self._said.append(said)
                for ends in ((client, stage, said), (stage, client, None)):
                    threading.Thread(target=self._carry, args=ends,
                                     daemon=True).start()

    @staticmethod
    def _carry(source, to, said):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if said is not None:
                    said += piece
                to.sendall(piece)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()  # the other direction's thread has the other end

    def said_to_control(self):
        """All bytes of the connection that holds the stage."""
        return next(bytes(said) for said in reversed(self._said)
                    if b"/sluice.v1.Stage/Control" in said)


def say_again(address, said, until=None, seconds=10):
    """What the stage answers to the same bytes: up to `until`, or until it is
    silent for `seconds`."""
    answer = b""
    with contextlib.suppress(OSError), dial(address) as to:
        to.settimeout(seconds)
        to.sendall(said)
        while not (until and until in answer):
            more = to.recv(65536)
            if not more:
                break
            answer += more
    return answer


class CopiesTest(unittest.TestCase):
    """Who has read what a gateway said to a stage, its secret and all, as one
    can where TLS is off, says the same again."""

    REFUSED = b"held by another gateway"
    WELCOME = b"-canonical"  # the stage's arithmetic

    def setUp(self):
        self.bodies = [body_of(index, 450) for index in range(4)]

    def flowing(self):
        streams = Streams(self.cluster.url, self.bodies)
        streams.wait_for_tokens()
        return streams

    def expect_same(self, streams):
        self.assertTrue(streams.join(60))
        self.assertEqual([ids_of(one) for one in streams.outcomes], self.want)

    def start_gateway(self, *options):
        child = self.cluster.restart("gateway", 0, *options)
        harness.wait_for(
            lambda: api.try_get(self.cluster.url, "/readyz")[0] == 200, 30,
            "the gateway is ready")
        return child

    @contextlib.contextmanager
    def recorded(self):
        """(first stage, Recorder, gateway) of a cluster whose gateway reaches
        the first stage by the Recorder; `want` is what calm streams had."""
        with harness.Cluster(model(), "--tcp") as self.cluster:
            first, second = (self.cluster.process("stage", index)[
                "addresses"][0] for index in range(2))
            calm = self.flowing()
            self.assertTrue(calm.join(60))
            self.want = [ids_of(one) for one in calm.outcomes]
            self.cluster.kill("gateway", 0, signal.SIGTERM)
            with Recorder(first) as link:
                gateway = self.start_gateway(
                    "--stages", f"{link.address},{second}")
                try:
                    yield first, link, gateway
                finally:
                    gateway.send_signal(signal.SIGCONT)
                    gateway.terminate()
                    gateway.wait(60)

    def test_a_copy_of_a_gateways_bytes_changes_no_stream(self):
        with self.recorded() as (stage, link, gateway):
            said = link.said_to_control()
            self.while_it_is_held(stage, said)
            gateway.terminate()
            gateway.wait(60)
            say_again(stage, said, seconds=0.2)  # a free stage's
            self.start_gateway()
            self.expect_same(self.flowing())

    def test_what_a_copy_told_a_new_run_of_a_stage_counts_for_nothing(self):
        """The copy comes before the gateway: the stage takes the gateway's
        epoch for its own, whose keys and values its new run does not have."""
        self.bodies = [body_of(index, 450) for index in range(16)]
        with self.recorded() as (stage, link, gateway):
            streams = self.flowing()
            harness.wait_for(lambda: self.generated() >= 300, 60,
                             "many tokens")
            gateway.send_signal(signal.SIGSTOP)
            self.assertTrue(streams.alive())
            loads = self.logged("loaded ")
            self.cluster.kill("stage")
            self.cluster.restart("stage")
            # A copy that is sent before the stage has loaded waits 10 s for an
            # answer: by then the other stage has let go of its gateway.
            harness.wait_for(lambda: self.logged("loaded ") > loads, 30,
                             "the stage has loaded again")
            copy = self.say_until_assigned(stage, link.said_to_control())
            gateway.send_signal(signal.SIGCONT)
            self.expect_same(streams)
            copy.close()
            self.assertGreater(api.metrics(self.cluster.url)[
                "sluice_gateway_recoveries_total"], 0)

    def generated(self):
        return api.metrics(self.cluster.url)["vllm:generation_tokens_total"]

    def logged(self, pattern):
        """How often `pattern` is in the first stage's log."""
        log = pathlib.Path(self.cluster.process("stage")["log"])
        return len(re.findall(pattern, log.read_text()))

    def epochs(self):
        return self.logged(r"epoch \S+ assigned")

    def say_until_assigned(self, stage, said):
        """A connection by which the stage takes what was said for its
        gateway's epoch."""
        before, end = self.epochs(), time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                to = dial(stage)
                to.sendall(said)
                if self.welcomes(to):
                    harness.wait_for(lambda: self.epochs() > before, 30,
                                     "the stage takes the epoch")
                    return to
                to.close()
            time.sleep(0.1)
        raise AssertionError("the copy was not welcome within 60 s")

    def welcomes(self, to):
        to.settimeout(10)
        answer = b""
        with contextlib.suppress(OSError):
            while more := to.recv(65536):
                answer += more
                if self.WELCOME in answer:
                    return True
        return False

    def while_it_is_held(self, stage, said):
        streams = self.flowing()
        for _ in range(5):
            self.assertIn(self.REFUSED, say_again(stage, said, self.REFUSED))
        self.expect_same(streams)
        self.assertEqual(api.metrics(self.cluster.url)[
            "sluice_gateway_recoveries_total"], 0)


if __name__ == "__main__":
    harness.main()
