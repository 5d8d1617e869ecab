"""What a gateway's flags let requests ask for: names of the model, stop
strings, max_tokens; on the demo model, whose own name is not its folder's."""

import json
import os
import pathlib
import subprocess
import unittest

import api
import harness

MODEL = harness.ROOT / "deploy/demo_model/weights"
QUESTION = [{"role": "user", "content": "What is 2 plus 3?"}]
GATEWAY = (pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) /
           "services/gateway/sluice-gateway")


class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster(MODEL, "--stages", 1)
        cls.addClassCleanup(cls.cluster.close)
        cls.url = cls.cluster.url

    def names(self):
        return [entry["id"] for entry in
                json.loads(api.get(self.url, "/v1/models")[1])["data"]]

    def chat(self, **fields):
        return api.post(self.url, "/v1/chat/completions",
                        {"messages": QUESTION, "temperature": 0,
                         "max_tokens": 4, **fields})

    def test_1_without_flags_it_has_its_own_name_and_the_defaults(self):
        self.assertEqual(self.names(), ["sluice-demo"])
        reading = json.loads(api.get(self.url, "/cluster")[1])
        self.assertEqual(reading["model"]["name"], "sluice-demo")
        status, answer = self.chat(model="weights")
        self.assertEqual((status, answer["error"]["code"]),
                         (404, "model_not_found"))
        self.assertEqual(self.chat(stop=["a"] * 33)[0], 400)
        status, answer = self.chat(max_tokens=64000)
        self.assertEqual((status, answer["error"]["param"]),
                         (400, "max_tokens"))

    def test_2_flags_change_them(self):
        self.cluster.kill("gateway")
        gateway = self.cluster.restart(
            "gateway", 0, "--served-model-name=org/first,second",
            "--any-model-name", "--max-stop-strings=2",
            "--max-tokens-overflow=cut")
        self.addClassCleanup(gateway.terminate)
        harness.wait_for(
            lambda: api.try_get(self.url, "/readyz")[0] == 200, 60,
            "the gateway is back")
        self.assertEqual(self.names(), ["org/first", "second"])
        for name in ("org/first", "second", "another-model"):
            status, answer = self.chat(model=name)
            self.assertEqual((status, answer["model"]), (200, "org/first"))
        status, answer = self.chat(stop=["a", "b", "c"])
        self.assertEqual((status, answer["error"]["message"]),
                         (400, "stop: has 3 strings, limit 2"))
        status, answer = self.chat(max_tokens=64000, stop=["\n"])
        self.assertEqual(status, 200, answer)
        self.assertIn('model_name="org/first"',
                      api.get(self.url, "/metrics")[1])

    def test_bad_values_are_told_by_their_flag(self):
        for flags, message in (
                (["--served-model-name=a,,b"], "each name must have 1 to 256"),
                (["--served-model-name=a", "--model-name=b"], "give either"),
                (["--max-stop-strings=-1"], "--max-stop-strings must be"),
                (["--max-tokens-overflow=no"], "must be refuse or cut"),
                (["--sse-head-after=-1"], "--sse-head-after must be"),
                (["--sse-ping-interval=0.001"], "must be 0 or at least 0.01")):
            with self.subTest(flags=flags):
                done = subprocess.run(
                    [GATEWAY, "--model", MODEL, "--stages", "127.0.0.1:1",
                     *flags], capture_output=True, text=True, timeout=60,
                    check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    harness.main()
