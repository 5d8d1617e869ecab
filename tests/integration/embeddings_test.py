"""POST /v1/embeddings on golden models: the reference's hidden states, and the
same bits over cuts, ranks, batches and the loss of a stage."""

import base64
import json
import math
import pathlib
import shutil
import struct
import tempfile
import threading
import unittest

import api
import harness

MODEL = "qwen3"
CUTS = ((), ("--stages", "2"), ("--stages", "2", "--ranks", "2"))


def with_pooling(folder, mode):
    """A copy of the golden model that says how it pools."""
    out = pathlib.Path(folder) / mode
    shutil.copytree(harness.golden(MODEL), out)
    (out / "1_Pooling").mkdir()
    (out / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 64, f"pooling_mode_{mode}": True}))
    return out


def embed(url, inputs, **fields):
    """The embeddings of token ids, as bytes."""
    status, answer = api.post(url, "/v1/embeddings", {
        "input": inputs, "encoding_format": "base64", **fields})
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    return [base64.b64decode(one["embedding"]) for one in answer["data"]]


def floats(raw):
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


class EmbeddingsTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.prompts = [list(harness.golden_answer(MODEL, i)[0])
                        for i in range(4)]

    def cluster(self, mode, *options):
        return harness.Cluster(
            with_pooling(self.folder, mode), "--weights", "f32", "--kv-type",
            "f32", *options)

    def check_reference(self, raw, logits):
        """The head times the embedding is the logits, but for one factor: the
        hidden state's norm."""
        tensors = harness.read_safetensors(
            harness.golden(MODEL) / "model.safetensors")
        shape, head = tensors["model.embed_tokens.weight"]  # tied
        value = floats(raw)
        self.assertAlmostEqual(dot(value, value), 1, places=6)
        told = [dot(head[row * shape[1]:(row + 1) * shape[1]], value)
                for row in range(shape[0])]
        norm = dot(told, logits) / dot(told, told)
        most = max(abs(one) for one in logits)
        for one, want in zip(told, logits):
            self.assertAlmostEqual(norm * one / most, want / most, places=5)

    def test_the_last_token_is_the_references_on_every_cut(self):
        seen = []
        for options in CUTS:
            with self.subTest(options=options), \
                    self.cluster("lasttoken", *options) as cluster:
                seen.append(embed(cluster.url, self.prompts))
                # Alone, and found in the prefix cache.
                for prompt, raw in zip(self.prompts, seen[-1]):
                    self.assertEqual(embed(cluster.url, prompt), [raw])
            shutil.rmtree(pathlib.Path(self.folder) / "lasttoken")
        self.assertEqual(seen[1:], seen[:-1])
        expected = harness.read_safetensors(
            harness.golden(MODEL) / "expected.safetensors")
        for at, raw in enumerate(seen[0]):
            shape, logits = expected[f"prompt_{at}.last_logits"]
            self.check_reference(raw, logits[-shape[1]:])

    def test_the_mean_is_that_of_all_tokens_on_every_cut(self):
        seen = []
        for options in CUTS:
            with self.subTest(options=options), self.cluster(
                    "mean_tokens", "--debug", *options) as cluster:
                seen.append(embed(cluster.url, self.prompts))
                _, rows = api.post(cluster.url, "/debug/logits",
                                   {"prompt": self.prompts[2]})
            shutil.rmtree(pathlib.Path(self.folder) / "mean_tokens")
        self.assertEqual(seen[1:], seen[:-1])
        logits = [math.fsum(column) for column in zip(*rows["logits"])]
        self.check_reference(seen[0][2], logits)

    def test_a_lost_stage_is_a_pause(self):
        inputs = [self.prompts[3][:60 + at] + self.prompts[2]
                  for at in range(64)]
        with self.cluster("mean_tokens", "--stages", "2") as cluster:
            want = embed(cluster.url, inputs)
            got = []
            asked = threading.Thread(
                target=lambda: got.extend(embed(cluster.url, inputs * 8)))
            asked.start()
            cluster.kill("stage", 1)
            cluster.restart("stage", 1)
            asked.join(120)
            self.assertEqual(got, want * 8)

    def test_numbers_bytes_and_fewer_dimensions(self):
        with self.cluster("cls_token") as cluster:
            raw, = embed(cluster.url, self.prompts[1])
            status, answer = api.post(cluster.url, "/v1/embeddings",
                                      {"input": self.prompts[1]})
            self.assertEqual(status, 200)
            told = answer["data"][0]["embedding"]
            self.assertEqual(struct.pack(f"<{len(told)}f", *told), raw)
            self.assertEqual(answer["usage"], {
                "prompt_tokens": len(self.prompts[1]),
                "total_tokens": len(self.prompts[1])})
            few, = embed(cluster.url, self.prompts[1], dimensions=8)
            norm = math.sqrt(dot(told[:8], told[:8]))
            for one, want in zip(floats(few), told):
                self.assertAlmostEqual(one, want / norm, places=6)

    def test_a_model_without_pooling_says_so(self):
        with harness.Cluster(harness.golden(MODEL)) as cluster:
            status, answer = api.post(cluster.url, "/v1/embeddings",
                                      {"input": [1]})
            self.assertEqual(status, 400)
            self.assertIn("1_Pooling/config.json", answer["error"]["message"])


if __name__ == "__main__":
    harness.main()
