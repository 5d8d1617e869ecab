"""promptfoo, unmodified, against a live cluster (long mode)."""

import json
import os
import pathlib
import tempfile
import unittest

from client_cluster import ClientCluster, only_in_long_mode, run_client, skip
import harness

FOLDER = harness.ROOT / "build" / "node" / "promptfoo"
PROGRAM = FOLDER / "node_modules" / ".bin" / "promptfoo"
only_in_long_mode("promptfoo")
if not PROGRAM.exists():
    skip(f"needs {FOLDER} (tests/run --long makes it where there is npm)")


def config(cluster):
    """A configuration as its users write it: providers, prompts, asserts."""
    options = {"apiBaseUrl": cluster.base_url, "apiKey": "none",
               "temperature": 0, "max_tokens": 24}
    return {
        "description": "a live cluster",
        "providers": [
            {"id": f"openai:chat:{cluster.model}", "label": "chat",
             "config": options},
            {"id": f"openai:completion:{cluster.model}",
             "label": "completion", "config": options}],
        "prompts": ["The capital of {{country}} is"],
        "tests": [
            {"vars": {"country": country},
             "assert": [{"type": "contains", "value": capital},
                        {"type": "latency", "threshold": 60000}]}
            for country, capital in (("Germany", "Berlin"),
                                     ("Japan", "Tokyo"))]}


class PromptfooTest(unittest.TestCase):
    def test_an_evaluation_of_chat_and_completions_passes(self):
        cluster = ClientCluster()
        self.addCleanup(cluster.close)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            file, out = folder / "promptfooconfig.json", folder / "out.json"
            file.write_text(json.dumps(config(cluster)))
            run_client([PROGRAM, "eval", "-c", file, "-o", out, "--no-cache",
                        "--no-progress-bar", "--no-table"], cluster, 600,
                       {"PROMPTFOO_DISABLE_TELEMETRY": "1",
                        "PROMPTFOO_DISABLE_UPDATE": "1",
                        "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
                        "PROMPTFOO_CONFIG_DIR": name, "HOME": name,
                        "PATH": os.environ["PATH"]})
            results = json.loads(out.read_text())["results"]
        print("promptfoo:", results["stats"], flush=True)
        self.assertEqual(results["stats"]["successes"], 4)
        self.assertEqual(results["stats"]["failures"], 0)
        self.assertEqual(results["stats"]["errors"], 0)
        for result in results["results"]:
            self.assertGreater(result["response"]["tokenUsage"]["total"], 0)


if __name__ == "__main__":
    harness.main()
