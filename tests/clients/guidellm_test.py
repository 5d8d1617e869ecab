"""guidellm, unmodified: a short run against a live cluster (long mode)."""

import json
import pathlib
import tempfile
import unittest

from client_cluster import (ClientCluster, only_in_long_mode, run_client,
                            skip)
import evals_model
import harness

only_in_long_mode("guidellm")
PROGRAM = harness.ROOT / "build" / "venv-evals" / "bin" / "guidellm"
if not PROGRAM.exists():
    skip("needs build/venv-evals (tests/run --long makes it)")
REQUESTS, STREAMS, PROMPT, OUTPUT = 12, 4, 48, 24


class GuideLlmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def benchmark(self, route):
        """The one benchmark of guidellm's report of a run over `route`."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "report.json"
            run_client(
                [PROGRAM, "run", "--backend",
                 f"kind=openai_http,target={self.cluster.url},"
                 f"model={self.cluster.model},request_format={route}",
                 "--profile", f"kind=concurrent,streams={STREAMS}",
                 "--constraint", f"kind=max_requests,count={REQUESTS}",
                 "--tokenizer", "kind=huggingface_auto,"
                 f"model={evals_model.folder()}",
                 "--data", f"kind=synthetic_text,prompt_tokens={PROMPT},"
                 f"output_tokens={OUTPUT}",
                 "--output", f"kind=json,path={out}",
                 "--disable-console"],
                self.cluster, 600, {"HF_HUB_OFFLINE": "1", "HOME": folder})
            return json.loads(out.read_text())["benchmarks"][0]

    def test_chats_and_completions_are_measured_without_an_error(self):
        for route in ("/v1/chat/completions", "/v1/completions"):
            with self.subTest(route=route):
                requests = self.benchmark(route)["requests"]
                self.assertEqual(len(requests["errored"]), 0)
                self.assertEqual(len(requests["successful"]), REQUESTS)
                for request in requests["successful"]:
                    self.assertEqual(request["output_tokens"], OUTPUT)
                    self.assertGreater(
                        request["time_to_first_token_ms"], 0)
        self.cluster.wait_until_idle()


if __name__ == "__main__":
    harness.main()
