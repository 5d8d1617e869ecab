"""A stage is lost under load: a pause, and the same tokens."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import threading
import time
import unittest

import api
import harness
from streams import Streams, ids_of

SECONDS = 30  # of a recovery, at the most
TOKENS = 450  # of a stream


def body_of(index):
    """A request whose stream outlives the loss of a stage."""
    return {"prompt": [1, 403, 407, 261 + index], "max_tokens": TOKENS,
            "temperature": 0.8, "seed": index, "ignore_eos": True,
            "return_token_ids": True}


@contextlib.contextmanager
def stopped_thread(pid, name):
    """One thread of a process stands still; the others go on."""
    seize, interrupt = 0x4206, 0x4207  # of sys/ptrace.h
    thread = next(int(task.name)
                  for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                  if (task / "comm").read_text().strip() == name)
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                       ctypes.c_void_p]
    if ptrace(seize, thread, None, None) != 0:
        raise unittest.SkipTest("needs ptrace of another process "
                                f"({os.strerror(ctypes.get_errno())})")
    if ptrace(interrupt, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), "PTRACE_INTERRUPT")
    yield  # the process ends: a tracer has nothing to undo


def is_ready(cluster):
    return api.try_get(cluster.url, "/readyz")[0] == 200


class FailureTest(unittest.TestCase):
    STREAMS = 8

    def model(self):
        return harness.golden("stories")

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
            # Of streams that began long before the last one, some may have had
            # all their tokens.
            cut = [(status, events) for status, events in streams.outcomes
                   if "error" in json.loads(events[-2])]
            self.assertTrue(cut)
            for outcome in streams.outcomes:
                if outcome not in cut:
                    self.assertEqual(len(ids_of(outcome)), TOKENS)
            for status, events in cut:
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
        # Its layers have no other place; see moves_test.py.
        with harness.Cluster(self.model(), "--resplit-after", "0") as cluster:
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

    def test_a_spare_takes_the_place_of_a_lost_stage(self):
        with harness.Cluster(self.model(), "--spares", "1",
                             "--weights", "f32") as cluster:
            want = self.calm(cluster)
            for number in (signal.SIGKILL, signal.SIGTERM):
                with self.subTest(number=number):
                    before = self.cluster_of(cluster)
                    self.assertEqual(len(before["spares"]), 1)
                    streams = self.flowing(cluster)
                    cluster.kill(*self.holder(cluster, 1), number)
                    self.expect_same(streams, want)
                    after = self.cluster_of(cluster)
                    self.assertEqual(after["stages"][1]["address"],
                                     before["spares"][0]["address"])
                    # The dead one is the next spare.
                    cluster.restart(*self.role_of(
                        cluster, before["stages"][1]["address"]))
                    harness.wait_for(
                        lambda: self.cluster_of(cluster)["spares"][0]["state"]
                        == "ready", SECONDS, "the spare is back")

    def cluster_of(self, cluster):
        return json.loads(api.get(cluster.url, "/cluster")[1])

    def role_of(self, cluster, address):
        """(role, index) of the process that listens on `address`."""
        return next((entry["role"], entry["index"])
                    for entry in cluster.file["processes"]
                    if entry["addresses"][0] == address)

    def holder(self, cluster, index):
        return self.role_of(
            cluster, self.cluster_of(cluster)["stages"][index]["address"])

    def test_a_stage_that_stands_still_is_replaced(self):
        with harness.Cluster(self.model(), "--supervise") as cluster:
            want = self.calm(cluster)
            old = cluster.process("stage", 1)["pid"]
            streams = self.flowing(cluster)
            begin = time.monotonic()
            with stopped_thread(old, "stage-loop"):
                self.assertTrue(streams.join(60))
            print(f"a stage stood still: {time.monotonic() - begin:.1f} s")
            self.expect_same(streams, want)
            self.assertNotEqual(cluster.process("stage", 1)["pid"], old)
            self.wait_ready(cluster, "ready again")

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
