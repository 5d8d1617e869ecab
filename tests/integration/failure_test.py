"""A stage is lost under load: a pause, and the same tokens."""

import json
import signal
import threading
import time
import unittest

import api
import harness
from streams import Streams, ids_of

SECONDS = 30  # of a recovery, at the most


def body_of(index):
    """A request whose stream outlives the loss of a stage."""
    return {"prompt": [1, 403, 407, 261 + index], "max_tokens": 450,
            "temperature": 0.8, "seed": index, "ignore_eos": True,
            "return_token_ids": True}


def is_ready(cluster):
    return api.try_get(cluster.url, "/readyz")[0] == 200


class FailureTest(unittest.TestCase):
    STREAMS = 8

    def model(self):
        return harness.shared("data/models/stories260K-hf")

    def calm(self, cluster):
        """The ids of all streams when nothing fails."""
        streams = Streams(cluster.url,
                          [body_of(i) for i in range(self.STREAMS)])
        self.assertTrue(streams.join(120))
        return [ids_of(outcome) for outcome in streams.outcomes]

    def flowing(self, cluster):
        streams = Streams(cluster.url,
                          [body_of(i) for i in range(self.STREAMS)])
        streams.wait_for_tokens()
        self.assertTrue(streams.alive(), "the streams were over before")
        return streams

    def expect_same(self, streams, want):
        self.assertTrue(streams.join(120))
        self.assertEqual([ids_of(outcome) for outcome in streams.outcomes],
                         want)

    def wait_ready(self, cluster, what):
        harness.wait_for(lambda: is_ready(cluster), SECONDS, what)

    def ask_beside(self, cluster):
        """A request on its way: (its thread, the list of its answer)."""
        answer = []
        thread = threading.Thread(target=lambda: answer.append(api.post(
            cluster.url, "/v1/completions", {"prompt": [1], "max_tokens": 3})))
        thread.start()
        return thread, answer

    def check_killed(self, cluster, index, want):
        streams = self.flowing(cluster)
        cluster.kill("stage", index)
        harness.wait_for(lambda: not is_ready(cluster), 5, "not ready")
        self.assertIn(f"stage {index}", api.get(cluster.url, "/readyz")[1])
        self.assertEqual(api.get(cluster.url, "/livez")[0], 200)
        thread, answer = self.ask_beside(cluster)
        with harness.measured(f"stage {index} killed; from restart to ready"):
            cluster.restart("stage", index)
            self.wait_ready(cluster, f"ready with a new stage {index}")
        self.expect_same(streams, want)
        thread.join(60)
        self.assertEqual(answer[0][0], 200, answer)

    def test_a_killed_stage_is_a_pause(self):
        with harness.Cluster(self.model(), "--stages", "3") as cluster:
            gateway = cluster.process("gateway")["pid"]
            want = self.calm(cluster)
            for index in range(3):
                with self.subTest(stage=index):
                    self.check_killed(cluster, index, want)
            self.assertEqual(cluster.process("gateway")["pid"], gateway)
            metrics = api.metrics(cluster.url)
            self.assertEqual(metrics["sluice_gateway_recoveries_total"], 3)
            self.assertGreater(
                metrics["sluice_gateway_replayed_tokens_total"], 0)
            self.assertGreater(
                metrics["sluice_gateway_last_recovery_seconds"], 0)
            self.assertEqual(
                metrics["sluice_gateway_suspended_sequences"], 0)

    def test_two_stages_lost_at_once_are_a_pause(self):
        with harness.Cluster(self.model(), "--stages", "3") as cluster:
            want = self.calm(cluster)
            streams = self.flowing(cluster)
            for index in (0, 2):
                cluster.kill("stage", index)
            for index in (2, 0):
                cluster.restart("stage", index)
            self.expect_same(streams, want)

    def test_a_stage_that_does_not_come_back_ends_its_streams(self):
        with harness.Cluster(self.model(), "--recovery-timeout",
                             "1") as cluster:
            streams = self.flowing(cluster)
            begin = time.monotonic()
            cluster.kill("stage", 1)
            self.assertTrue(streams.join(30))
            print(f"ended within {time.monotonic() - begin:.2f} s")
            for status, events in streams.outcomes:
                self.assertEqual(status, 200)
                self.assertEqual(events[-1], "[DONE]")
                error = json.loads(events[-2])["error"]
                self.assertIn("not recovered within 1 s", error.pop("message"))
                self.assertEqual(error, {"type": "service_unavailable_error",
                                         "code": "unavailable", "param": None})
            status, headers, body = api.request(
                cluster.url, "POST", "/v1/completions",
                {"prompt": [1], "max_tokens": 1})
            self.assertEqual(status, 503, body)
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            cluster.restart("stage", 1)
            self.wait_ready(cluster, "ready with a new stage 1")
            api.completion(cluster.url, [1], max_tokens=3)

    def told_to_end(self, cluster, index, want):
        """SIGTERM to a stage under streams, which all come to their end; a
        request that comes meanwhile waits."""
        streams = self.flowing(cluster)
        stage = cluster.process("stage", index)
        cluster.kill("stage", index, signal.SIGTERM)
        probe = harness.wait_for(
            lambda: (lambda answer: answer[0] != 200 and answer)(
                api.try_get("http://" + stage["metrics_address"], "/readyz")),
            3, "the stage itself is not ready")
        self.assertEqual(probe[0], 503, probe)
        self.assertIn('"state":"draining"', probe[1])
        harness.wait_for(lambda: not is_ready(cluster), 3, "off at once")
        self.assertIn(f"stage {index}", api.get(cluster.url, "/readyz")[1])
        thread, answer = self.ask_beside(cluster)
        self.expect_same(streams, want)
        harness.wait_until_free(stage["argv"])
        with harness.measured(f"stage {index} told to end; from restart to "
                              "ready"):
            cluster.restart("stage", index)
            self.wait_ready(cluster, f"ready with a new stage {index}")
        thread.join(60)
        self.assertEqual(answer[0][0], 200, answer)
        self.assertGreater(api.metrics(cluster.url)[
            "sluice_gateway_last_recovery_seconds"], 0)

    def test_a_stage_told_to_end_lets_its_streams_end(self):
        with harness.Cluster(self.model()) as cluster:
            want = self.calm(cluster)
            for index in range(2):
                with self.subTest(stage=index):
                    self.told_to_end(cluster, index, want)

    def test_all_may_be_told_to_end_at_once(self):
        with harness.Cluster(self.model()) as cluster:
            want = self.calm(cluster)
            streams = self.flowing(cluster)
            for role, index in (("stage", 0), ("stage", 1), ("gateway", 0)):
                cluster.kill(role, index, signal.SIGTERM)
            self.expect_same(streams, want)
            for role, index in (("stage", 0), ("stage", 1), ("gateway", 0)):
                harness.wait_until_free(cluster.process(role, index)["argv"])

    def test_supervise_starts_the_dead_again(self):
        with harness.Cluster(self.model(), "--supervise") as cluster:
            want = self.calm(cluster)
            old = cluster.process("stage", 1)["pid"]
            streams = self.flowing(cluster)
            cluster.kill("stage", 1)
            self.expect_same(streams, want)
            self.assertNotEqual(cluster.process("stage", 1)["pid"], old)
            old = cluster.process("gateway")["pid"]
            cluster.kill("gateway")
            harness.wait_for(
                lambda: cluster.process("gateway")["pid"] != old, SECONDS,
                "the gateway has a new pid")
            self.wait_ready(cluster, "ready again")
            api.completion(cluster.url, [1], max_tokens=3)


if __name__ == "__main__":
    harness.main()
