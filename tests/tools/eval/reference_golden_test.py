"""What `sluice eval make-reference` makes of golden models by transformers: their
golden answers, and a file by which a live cluster passes (long mode)."""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "integration"))
sys.path.insert(0, str(TESTS / "golden"))

import answers
import harness

MAKE = TESTS.parent / "services/cli/make_reference"
sys.path.insert(0, str(MAKE))
try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing} (build/venv-evals: tests/run --long)")
    sys.exit(harness.SKIPPED)

# Plain attention, caps and windows, a state, sinks in MXFP4, one that reads images.
FAMILIES = ("llama3-tied", "gemma2", "lfm2", "gpt_oss-mxfp4", "gemma3")
TOKENS = 64


def make(model, out, *words):
    done = subprocess.run(
        [sys.executable, "-B", MAKE, "--model", model, "--name", "golden",
         "--out", out, "--python", sys.executable, *words],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stderr


def end_ids(model):
    ends = set()
    for name in ("config.json", "generation_config.json"):
        path = model / name
        config = json.loads(path.read_text()) if path.exists() else {}
        found = config.get("eos_token_id")
        ends.update(found if isinstance(found, list) else [found])
    return ends


class ReferenceGoldenTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "made.json"

    def prompts_of(self, golden):
        """A file with the golden prompts."""
        path = self.folder / "prompts.jsonl"
        path.write_text("".join(
            json.dumps({"prompt": prompt["ids"]}) + "\n"
            for prompt in golden["prompts"]))
        return path

    def check_ids(self, made, want, ends):
        """An answer ends behind an end token, where the golden one goes on."""
        self.assertEqual(made, want[:len(made)])
        ended = [at for at, token in enumerate(want) if token in ends]
        self.assertEqual(len(made), min([TOKENS, *(at + 1 for at in ended)]))

    def check_logits(self, prompt, want):
        """The likeliest ids of the prompt's last positions, by golden logits."""
        last = want["last_logits"]
        rows = answers.unpack(last["values"]).reshape(
            last["positions"], last["vocab_size"]).tolist()
        for at, row in enumerate(rows):
            position = len(want["ids"]) - len(rows) + at + 1
            norm = math.log(sum(math.exp(value) for value in row))
            order = sorted(range(len(row)), key=lambda i: -row[i])
            self.assertEqual(prompt["top_ids"][position][:3], order[:3])
            for token, logprob in zip(prompt["top_ids"][position],
                                      prompt["top_logprobs"][position]):
                self.assertAlmostEqual(logprob, row[token] - norm, delta=2e-5)

    def test_the_golden_answers_are_made(self):
        for name in FAMILIES:
            with self.subTest(name):
                golden = json.loads(answers.path(name).read_text())
                make(harness.golden(name), self.out, "--dtype", "float64",
                     "--max-tokens", str(TOKENS), "--prompts",
                     self.prompts_of(golden))
                made = json.loads(self.out.read_text())
                ends = end_ids(harness.golden(name))
                self.assertEqual(made["made_by"]["dtype"], "float64")
                self.assertEqual(made["left_out"], {})
                for prompt, want in zip(made["prompts"], golden["prompts"],
                                        strict=True):
                    self.assertEqual(prompt["ids"], want["ids"])
                    self.check_ids(prompt["greedy_ids"], want["greedy_ids"],
                                   ends)
                    self.check_logits(prompt, want)

    def refusal(self, model):
        done = subprocess.run(
            [sys.executable, "-B", MAKE, "--model", model, "--name", "golden",
             "--out", self.out, "--python", sys.executable],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertFalse(self.out.exists())
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_what_transformers_cannot_load_is_named(self):
        model = self.folder / "model"
        shutil.copytree(harness.golden("qwen3"), model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(
            {**config, "model_type": "strange", "auto_map": {}}))
        said = self.refusal(model)
        self.assertIn("does not know the model type 'strange'", said)
        self.assertIn("is not run", said)
        (model / "config.json").write_text(json.dumps(
            {**config, "num_hidden_layers": config["num_hidden_layers"] + 1}))
        self.assertIn("transformers reports missing_keys: ",
                      self.refusal(model))
        (model / "config.json").write_text(json.dumps(config))
        (model / "model.safetensors").write_bytes(b"\x08" + bytes(20))
        self.assertIn(f"could not load {model}: ", self.refusal(model))
        (model / "config.json").unlink()
        self.assertIn("is no model that transformers reads", self.refusal(model))
        gguf = self.folder / "a.gguf"
        gguf.write_bytes(b"GGUF" + bytes(40))
        self.assertIn(f"could not load {gguf}: ", self.refusal(gguf))

    def test_pieces_of_logits_are_those_of_the_whole(self):
        import model as models
        for name in ("gemma2", "lfm2", "gemma3"):
            with self.subTest(name), torch.inference_mode():
                model = models.load(harness.golden(name), "float32")
                self.assertTrue(model._in_pieces)
                ids = list(range(3, 40))
                whole, = model.rows(ids)
                before, models._LOGITS_BYTES = (models._LOGITS_BYTES,
                                                8 * 5 * model.vocab_size)
                try:
                    pieces = list(model.rows(ids))
                finally:
                    models._LOGITS_BYTES = before
                self.assertEqual(len(pieces), 8)
                self.assertTrue(torch.allclose(torch.cat(pieces), whole,
                                               atol=1e-5))

    def test_a_cluster_agrees_with_a_reference_of_all_prompts(self):
        model = self.folder / "stories"
        shutil.copytree(harness.golden("stories"), model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(
            json.dumps({**config, "max_position_embeddings": 4000}))
        said = make(model, self.out, "--max-tokens", "16")
        self.assertIn("long_4k is left out: 4000 tokens and 16 of the answer",
                      said)
        made = json.loads(self.out.read_text())
        self.assertEqual(list(made["left_out"]), ["long_4k"])
        self.assertEqual(len(made["prompts"]), 21)
        self.assertEqual(len(made["prompts"][-1]["ids"]), 2000)
        with harness.Cluster(model, "--stages", "1") as cluster:
            command = pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                                   "services/cli/sluice")
            done = subprocess.run(
                [command, "eval", "--reference", self.out, "--run-dir",
                 cluster.run_dir], capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("| chinese |", done.stdout)
            self.assertIn("| long_2k | 2000 |", done.stdout)


if __name__ == "__main__":
    harness.main()
