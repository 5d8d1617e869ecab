"""A cluster with API keys, and a gateway that drains."""

import concurrent.futures
import os
import pathlib
import signal
import tempfile
import unittest

import api
import harness

COMPLETIONS = "/v1/completions"
ALICE = {"Authorization": "Bearer sk-alice-0123456789"}
BOB = {"Authorization": "Bearer sk-bob-0123456789"}


def generation(count, stream=False):
    return {"prompt": "Once upon a time", "max_tokens": count,
            "temperature": 0, "ignore_eos": True, "stream": stream}


class AccessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.keys = pathlib.Path(folder.name) / "keys"
        self.write_keys("# who may come in\nalice:sk-alice-0123456789\n")
        self.cluster = harness.Cluster(
            harness.shared("data/models/stories260K-hf"),
            "--api-key-file", self.keys, "--max-queue", "1000")
        self.addCleanup(self.cluster.close)
        self.url = self.cluster.url

    def write_keys(self, text):
        draft = self.keys.with_suffix(".new")
        draft.write_text(text)
        draft.chmod(0o600)
        draft.rename(self.keys)

    def status(self, method, path, body=None, headers=None):
        return api.request(self.url, method, path, body, headers)[0]

    def test_keys_let_in_and_change_while_it_runs(self):
        self.assertRegex(self.cluster.up.stdout, r"answer: \S")
        self.assertIn("Authorization: Bearer", self.cluster.up.stdout)
        self.assertNotIn("sk-alice", self.cluster.up.stdout)
        for path in ("/livez", "/readyz", "/health", "/"):
            self.assertEqual(self.status("GET", path), 200, path)
        for path in ("/v1/models", "/metrics", "/version"):
            self.assertEqual(self.status("GET", path), 401, path)
            self.assertEqual(self.status("GET", path, headers=ALICE), 200)
        self.assertEqual(
            self.status("POST", COMPLETIONS, generation(2)), 401)
        self.assertEqual(
            self.status("POST", COMPLETIONS, generation(2), ALICE), 200)
        self.assertEqual(
            self.status("POST", COMPLETIONS, generation(2), BOB), 401)
        self.write_keys("bob:sk-bob-0123456789\n")
        harness.wait_for(
            lambda: self.status("GET", "/v1/models", headers=BOB) == 200, 10,
            "the new key is known")
        self.assertEqual(self.status("GET", "/v1/models", headers=ALICE), 401)
        self.write_keys("short:1\n")
        harness.wait_for(lambda: self.status(
            "GET", "/v1/models", headers=BOB) == 200 and
            "the keys from before stay" in self.cluster.logs(), 10,
            "a bad file is logged and changes nothing")
        _, _, text = api.request(self.url, "GET", "/metrics", headers=BOB)
        self.assertNotIn(b"alice", text)  # names of keys only if asked for
        for secret in ("sk-alice", "sk-bob"):
            self.assertNotIn(secret.encode(), text)
            self.assertNotIn(secret, self.cluster.logs(1000))

    def test_a_key_file_that_cannot_be_read_is_named(self):
        with harness.Cluster(harness.shared("data/models/stories260K-hf"),
                             "--api-key-file", self.keys.with_name("none"),
                             expect=6) as cluster:
            self.assertIn("none: No such file", cluster.up.stderr)
            self.assertNotIn("Traceback", cluster.up.stderr)

    def test_a_draining_gateway_finishes_and_answers_probes(self):
        length = 240 if harness.SANITIZED else 480  # within --drain-timeout

        def finish(_):
            status, _, body = api.request(self.url, "POST", COMPLETIONS,
                                          generation(length, True), ALICE)
            return status == 200 and body.endswith(b"data: [DONE]\n\n")

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            streams = [pool.submit(finish, i) for i in range(64)]
            harness.wait_for(lambda: self.inflight() >= 64, 30,
                             "all are being answered")
            gateway = self.cluster.process("gateway")["pid"]
            os.kill(gateway, signal.SIGTERM)
            harness.wait_for(
                lambda: self.status("GET", "/readyz") == 503, 10,
                "not ready")
            self.assertEqual(self.status("GET", "/livez"), 200)
            self.assertEqual(self.status("GET", "/metrics", headers=ALICE),
                             200)
            status, headers, _ = api.request(self.url, "POST", COMPLETIONS,
                                             generation(2), ALICE)
            self.assertEqual(status, 503)
            self.assertIn("Retry-After", headers)
            self.assertEqual(headers["Connection"], "close")
            self.assertFalse(all(stream.done() for stream in streams))
            self.assertTrue(all(stream.result() for stream in streams))
        harness.wait_for(lambda: api.try_get(self.url, "/livez")[0] == 0, 10,
                         "the gateway ends")
        harness.wait_for(lambda: "stopped" in self.cluster.logs(), 10,
                         "it says that it stopped")

    def inflight(self):
        _, _, text = api.request(self.url, "GET", "/metrics", headers=ALICE)
        name = b"\nsluice_gateway_inflight_requests "
        return float(text.partition(name)[2].split(b"\n", 1)[0])


if __name__ == "__main__":
    harness.main()
