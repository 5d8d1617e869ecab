"""Readiness is progress: a stopped stage, a full queue, a drain."""

import os
import pathlib
import signal
import threading
import time
import unittest

import api
import harness
from streams import Streams, body_of, ids_of

OFF_WITHIN = 3.0
PAUSE = OFF_WITHIN + 1  # seconds a stage is stopped
TOKENS = 150  # of a stream: it outlasts a signal sent behind its first token


def readiness(url):
    status, text = api.get(url, "/readyz")
    return status == 200, text


class StallTest(unittest.TestCase):
    def model(self):
        return harness.default_model()

    def check_pause(self, cluster, index):
        bodies = [body_of(i, TOKENS) for i in range(3)]
        calm = Streams(cluster.url, bodies)
        self.assertTrue(calm.join(120))
        want = [ids_of(outcome) for outcome in calm.outcomes]

        streams = Streams(cluster.url, bodies)
        streams.wait_for_tokens()
        begin = time.monotonic()
        with cluster.stopped("stage", index):
            self.assertTrue(streams.alive(), "streams were over before")
            harness.wait_for(lambda: not readiness(cluster.url)[0],
                             OFF_WITHIN, f"off with stage {index} stopped")
            seconds = time.monotonic() - begin
            self.assertIn(f"stage {index}", readiness(cluster.url)[1])
            self.assertEqual(api.get(cluster.url, "/livez")[0], 200)
            harness.wait_for(lambda: time.monotonic() - begin > PAUSE,
                             PAUSE + 1, "the pause is over")
            self.assertTrue(streams.alive(), "a stream ended meanwhile")
        with harness.measured(f"stage {index} stopped: off after "
                              f"{seconds:.2f} s; from SIGCONT to ready"):
            harness.wait_for(lambda: readiness(cluster.url)[0], 10,
                             f"ready after stage {index} went on")
        self.assertTrue(streams.join(120))
        self.assertEqual([ids_of(outcome) for outcome in streams.outcomes],
                         want)

    def test_a_stopped_stage_turns_readiness_off_and_streams_go_on(self):
        with harness.Cluster(self.model(), "--stages", "2") as cluster:
            for index in (0, 1) if harness.LONG else (1,):
                with self.subTest(stage=index):
                    self.check_pause(cluster, index)
            epoch = api.metrics(cluster.url)["sluice_gateway_epoch"]
            self.assertGreater(epoch, 0)

    def test_full_load_never_turns_it_off(self):
        seconds = 600 if harness.LONG else 6
        with harness.Cluster(self.model(), "--stages", "2") as cluster:
            stop = threading.Event()
            answers, off = [], []

            def load(index):
                while not stop.is_set():
                    answers.append(api.post(cluster.url, "/v1/completions",
                                            body_of(index, 16))[0])

            threads = [threading.Thread(target=load, args=(i,))
                       for i in range(24)]
            for thread in threads:
                thread.start()
            end = time.monotonic() + seconds
            slowest = 0.0
            while time.monotonic() < end:
                begin = time.monotonic()
                ready, text = readiness(cluster.url)
                slowest = max(slowest, time.monotonic() - begin)
                if not ready:
                    off.append(text)
                stop.wait(0.05)
            stop.set()
            for thread in threads:
                thread.join(120)
            print(f"{len(answers)} requests in {seconds} s, slowest /readyz "
                  f"{slowest * 1000:.0f} ms")
            self.assertEqual(off, [])
            self.assertEqual(set(answers), {200})

    def check_draining(self, cluster):
        harness.wait_for(lambda: not readiness(cluster.url)[0], 3,
                         "off at once")
        self.assertIn("draining", readiness(cluster.url)[1])
        self.assertEqual(api.get(cluster.url, "/livez")[0], 200)
        self.assertEqual(api.get(cluster.url, "/metrics")[0], 200)
        status, answer = api.post(cluster.url, "/v1/completions",
                                  body_of(1, 1))
        self.assertEqual(status, 503, answer)

    def test_sigterm_refuses_new_work_and_still_answers_probes(self):
        with harness.Cluster(self.model(), "--stages", "2") as cluster:
            gateway = cluster.process("gateway")["pid"]
            streams = Streams(cluster.url, [body_of(0, TOKENS)])
            streams.wait_for_tokens()
            # The stream cannot end while the calls are made.
            with cluster.stopped("stage", 1):
                os.kill(gateway, signal.SIGTERM)
                self.check_draining(cluster)
                self.assertTrue(streams.alive(), "the stream was over before")
            self.assertTrue(streams.join(60))
            self.assertEqual(len(ids_of(streams.outcomes[0])), TOKENS)
            harness.wait_for(
                lambda: api.try_get(cluster.url, "/livez")[0] == 0, 10,
                "the gateway is gone")
            log = pathlib.Path(cluster.process("stage", 0)["log"])
            harness.wait_for(
                lambda: "let go of this stage" in log.read_text(), 10,
                "stage 0 notices that the gateway is gone")
            # The stages are there for the next gateway.
            cluster.restart("gateway")
            harness.wait_for(
                lambda: api.try_get(cluster.url, "/readyz")[0] == 200, 30,
                "ready with a new gateway")


if __name__ == "__main__":
    harness.main()
