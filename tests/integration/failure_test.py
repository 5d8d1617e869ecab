"""A stage is killed under load: errors, readiness, service again."""

import json
import signal
import threading
import time
import unittest

import api
import harness


def endless(url, results, index):
    """One streamed completion; leaves (status, events or error) behind."""
    body = {"prompt": [1, 403, 407, 261 + index], "max_tokens": 500,
            "temperature": 0, "ignore_eos": True}
    try:
        results[index] = api.stream(url, "/v1/completions", body)
    except OSError as error:
        results[index] = (0, [repr(error)])
    except Exception as error:  # A broken chunked body, for instance.
        results[index] = (-1, [repr(error)])


class FailureTest(unittest.TestCase):
    STREAMS = 8

    def model(self):
        return harness.shared("data/models/stories260K-hf")

    def check_ends(self, results):
        """Every stream ended in a clean OpenAI error, or was complete."""
        errors = 0
        for status, events in results:
            self.assertIn(status, (200, 503), events)
            # A stream's error, too, is followed by its end.
            last = json.loads([e for e in events if e != "[DONE]"][-1])
            if "error" not in last:
                self.assertEqual(events[-1], "[DONE]")
                self.assertTrue(last["choices"][0]["finish_reason"])
                continue
            error = last["error"]
            errors += 1
            self.assertTrue(error.pop("message"))
            self.assertEqual(error, {"type": "service_unavailable_error",
                                     "code": "unavailable", "param": None})
        return errors

    def kill_under_load(self, cluster, index):
        threads, results = self.flowing(cluster)
        begin = time.monotonic()
        cluster.kill("stage", index)
        for thread in threads:
            thread.join(30)
        seconds = time.monotonic() - begin
        errors = self.check_ends(results)
        print(f"stage {index} killed: {errors} of {self.STREAMS} streams "
              f"ended in an error within {seconds:.2f} s")
        self.assertGreater(errors, 0)
        self.assertLess(seconds, 5)

    def check_killed(self, cluster, index):
        self.kill_under_load(cluster, index)
        status, text = api.get(cluster.url, "/readyz")
        self.assertEqual(status, 503)
        self.assertIn(f"stage {index}", text)
        self.assertEqual(api.get(cluster.url, "/livez")[0], 200)
        status, answer = api.post(cluster.url, "/v1/completions",
                                  {"prompt": [1], "max_tokens": 1})
        self.assertEqual(status, 503)
        self.assertIsInstance(answer["error"]["message"], str)
        with harness.measured("  from restart to ready"):
            cluster.restart("stage", index)
            harness.wait_for(
                lambda: api.get(cluster.url, "/readyz")[0] == 200, 30,
                f"ready after stage {index} was started again")

    def test_a_killed_stage_is_told_and_taken_back(self):
        with harness.Cluster(self.model(), "--stages", "3") as cluster:
            gateway = cluster.process("gateway")["pid"]
            want = api.completion(cluster.url, [1, 403], max_tokens=20,
                                  temperature=0, return_token_ids=True)
            for index in range(3):
                with self.subTest(stage=index):
                    self.check_killed(cluster, index)
                    got = api.completion(cluster.url, [1, 403],
                                         max_tokens=20, temperature=0,
                                         return_token_ids=True)
                    self.assertEqual(api.choice_of(got)["token_ids"],
                                     api.choice_of(want)["token_ids"])
            self.assertEqual(cluster.process("gateway")["pid"], gateway)

    def flowing(self, cluster):
        """Streams under way: (their threads, their results to be)."""
        results = [None] * self.STREAMS
        threads = [threading.Thread(target=endless,
                                    args=(cluster.url, results, i))
                   for i in range(self.STREAMS)]
        before = api.metrics(cluster.url)["vllm:generation_tokens_total"]
        for thread in threads:
            thread.start()

        def all_flow():
            now = api.metrics(cluster.url)
            begun = now["vllm:num_requests_running"] >= self.STREAMS
            return (now["vllm:generation_tokens_total"] > before + self.STREAMS
                    and (begun or any(results)))

        harness.wait_for(all_flow, 30, "tokens flow")
        return threads, results

    def told_to_end(self, cluster, index):
        """SIGTERM to a stage under streams, which all come to their end."""
        threads, results = self.flowing(cluster)
        stage = cluster.process("stage", index)
        cluster.kill("stage", index, signal.SIGTERM)
        probe = harness.wait_for(
            lambda: (lambda answer: answer[0] != 200 and answer)(
                api.try_get("http://" + stage["metrics_address"], "/readyz")),
            3, "the stage itself is not ready")
        self.assertEqual(probe[0], 503, probe)
        self.assertIn('"state":"draining"', probe[1])
        harness.wait_for(lambda: api.get(cluster.url, "/readyz")[0] == 503,
                         3, "off at once")
        self.assertIn(f"stage {index}", api.get(cluster.url, "/readyz")[1])
        status, headers, body = api.request(
            cluster.url, "POST", "/v1/completions",
            {"prompt": [1], "max_tokens": 1})
        drained = not any(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join(60)
        self.assertEqual(self.check_ends(results), 0, results)
        self.assertEqual(status, 503, body)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        if not drained:  # Else its 60 s are no longer what is known.
            self.assertEqual(int(headers["Retry-After"]), 30, body)
            self.assertIn(b"draining", body)
            self.assertRegex(api.get(cluster.url, "/metrics")[1],
                             r'rejections_total\{reason="draining"\} [1-9]')
        harness.wait_until_free(stage["argv"])
        with harness.measured(f"stage {index} told to end; from restart to "
                              "ready"):
            cluster.restart("stage", index)
            harness.wait_for(
                lambda: api.get(cluster.url, "/readyz")[0] == 200, 30,
                f"ready after stage {index} was started again")
        self.assertGreater(api.metrics(cluster.url)[
            "sluice_gateway_last_recovery_seconds"], 0)

    def test_a_stage_told_to_end_lets_its_streams_end(self):
        with harness.Cluster(self.model()) as cluster:
            for index in range(2):
                with self.subTest(stage=index):
                    self.told_to_end(cluster, index)

    def test_all_may_be_told_to_end_at_once(self):
        with harness.Cluster(self.model()) as cluster:
            threads, results = self.flowing(cluster)
            for role, index in (("stage", 0), ("stage", 1), ("gateway", 0)):
                cluster.kill(role, index, signal.SIGTERM)
            for thread in threads:
                thread.join(60)
            self.assertEqual(self.check_ends(results), 0, results)
            for role, index in (("stage", 0), ("stage", 1), ("gateway", 0)):
                harness.wait_until_free(cluster.process(role, index)["argv"])

    def test_supervise_starts_the_dead_again(self):
        with harness.Cluster(self.model(), "--supervise") as cluster:
            for role, index in (("stage", 1), ("gateway", 0)):
                old = cluster.process(role, index)["pid"]
                cluster.kill(role, index)
                harness.wait_for(
                    lambda: cluster.process(role, index)["pid"] != old, 30,
                    f"{role} {index} has a new pid")
                harness.wait_for(
                    lambda: api.try_get(cluster.url, "/readyz")[0] == 200,
                    30, "ready again")
            api.completion(cluster.url, [1], max_tokens=3)


if __name__ == "__main__":
    harness.main()
