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


SCHEMA = {
    "type": "object", "additionalProperties": False,
    "required": ["name", "age", "pets"],
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "nickname": {"type": ["string", "null"], "maxLength": 12},
        "pets": {"type": "array", "minItems": 1, "maxItems": 2, "items": {
            "type": "object", "additionalProperties": False,
            "required": ["kind"],
            "properties": {"kind": {"enum": ["cat", "dog"]}}}}}}


def schema_config(cluster):
    """Chats at a high temperature that keep to a schema, which promptfoo's
    own validator checks."""
    return {
        "description": "a live cluster and a schema",
        "providers": [
            {"id": f"openai:chat:{cluster.model}", "label": f"seed {seed}",
             "config": {"apiBaseUrl": cluster.base_url, "apiKey": "none",
                        "temperature": 1.2, "seed": seed, "max_tokens": 600,
                        "response_format": {
                            "type": "json_schema", "json_schema": {
                                "name": "person", "strict": True,
                                "schema": SCHEMA}}}} for seed in range(2)],
        "prompts": ["{{name}} has a dog and a cat. Tell me of {{name}}."],
        "tests": [
            {"vars": {"name": name},
             "assert": [{"type": "is-json", "value": SCHEMA}]}
            for name in ("Lily", "Tom")]}


class PromptfooTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def evaluate(self, configuration):
        """The results of an evaluation, all of whose four tests pass."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            file, out = folder / "promptfooconfig.json", folder / "out.json"
            file.write_text(json.dumps(configuration))
            run_client([PROGRAM, "eval", "-c", file, "-o", out, "--no-cache",
                        "--no-progress-bar", "--no-table"], self.cluster, 600,
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
        return results["results"]

    def test_an_evaluation_of_chat_and_completions_passes(self):
        for result in self.evaluate(config(self.cluster)):
            self.assertGreater(result["response"]["tokenUsage"]["total"], 0)

    def test_an_evaluation_with_a_schema_passes(self):
        for result in self.evaluate(schema_config(self.cluster)):
            # promptfoo reads what keeps to a schema.
            self.assertIsInstance(result["response"]["output"], dict)


if __name__ == "__main__":
    harness.main()
