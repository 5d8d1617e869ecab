#!/usr/bin/env python3
"""The maker of the golden models: what it writes, and what it refuses."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import make  # first: takes an interpreter with numpy
import answers
import numpy as np
import recipe as recipes

MOST_OF_A_MODEL, MOST_OF_ALL = 40 << 10, 3 << 20  # bytes of answers


class RecipeTest(unittest.TestCase):
    def test_names_with_lists_stand_for_each(self):
        self.assertEqual(list(recipes._spread("a.{0-1,3}.b.{7}.c")),
                         ["a.0.b.7.c", "a.1.b.7.c", "a.3.b.7.c"])
        self.assertEqual(list(recipes._spread("norm")), ["norm"])

    def test_values_have_their_mean_and_deviation(self):
        made = recipes._numbers({"seed": "x"}, "t", [100, 500], "1.5+0.25")
        self.assertAlmostEqual(made.mean(), 1.5, delta=0.002)
        self.assertAlmostEqual(made.std(), 0.25 * 0.2887, delta=0.001)
        self.assertLess(np.abs(made - 1.5).max(), 0.25)
        with self.assertRaisesRegex(recipes.RecipeError, "t: no values.*'2x'"):
            recipes._numbers({"seed": "x"}, "t", [1], "2x")

    def test_bf16_is_rounded_to_the_nearest_and_ties_to_even(self):
        for value, bits in ((1.0, 0x3f80), (1 + 2 ** -8, 0x3f80),
                            (1 + 3 * 2 ** -8, 0x3f82), (-0.3, 0xbe9a),
                            (1 + 2 ** -8 + 2 ** -20, 0x3f81)):
            made = recipes._stored(np.array([value]), "BF16")
            self.assertEqual(int.from_bytes(made, "little"), bits, value)

    def test_experts_are_what_their_blocks_and_scales_stand_for(self):
        wide, packed = (
            {name: (shape, data) for name, _, shape, data in
             recipes.tensors(recipes.read(model))}
            for model in ("gpt_oss", "gpt_oss-mxfp4"))
        table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
        name = "model.layers.2.mlp.experts.gate_up_proj"
        (experts, rows, columns), data = wide[name]
        values = np.frombuffer(data, "<f4").reshape(experts, rows, columns)
        blocks, scales = (packed[f"{name}_{part}"][1]
                          for part in ("blocks", "scales"))
        for expert, row, column in ((0, 0, 0), (7, 63, 127), (3, 33, 65),
                                    (5, 18, 4)):
            block = (expert * columns + column) * rows // 32 + row // 32
            pair = blocks[block * 16 + row % 32 // 2]
            code = pair >> 4 if row % 2 else pair & 15
            sign = -1 if code & 8 else 1
            self.assertEqual(values[expert, row, column], sign *
                             table[code & 7] * 2.0 ** (scales[block] - 127))

    def test_shards_and_their_index_have_every_tensor_once(self):
        files = recipes.files(recipes.read("llama2-bf16-sharded"))
        index = json.loads(files["model.safetensors.index.json"])
        found = {}
        for name, data in files.items():
            if name.endswith(".safetensors"):
                size = int.from_bytes(data[:8], "little")
                header = json.loads(data[8:8 + size])
                header.pop("__metadata__")
                self.assertGreaterEqual(len(header), 5)
                found.update((tensor, name) for tensor in header)
        self.assertEqual(found, index["weight_map"])
        self.assertEqual(len(set(found.values())), 3)


class AnswersTest(unittest.TestCase):
    def test_logits_are_kept_within_half_a_step(self):
        logits = np.random.default_rng(1).normal(0, 5, 4000)
        kept = answers.unpack(answers.pack(logits))
        self.assertLessEqual(np.abs(kept - logits).max(),
                             answers.LOGITS_STEP / 2)
        with self.assertRaisesRegex(ValueError, "below 32.0, one is 32.5"):
            answers.pack([0, 32.5])

    def test_they_are_small(self):
        sizes = {path.stem: path.stat().st_size
                 for path in (recipes.FOLDER / "answers").iterdir()}
        self.assertEqual(sorted(sizes), recipes.names())
        self.assertLessEqual(max(sizes.values()), MOST_OF_A_MODEL, sizes)
        self.assertLessEqual(sum(sizes.values()), MOST_OF_ALL, sizes)


class MakeTest(unittest.TestCase):
    """On a copy of the folder that has two small models."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name, "out")
        self.folder = pathlib.Path(folder.name, "golden")
        for part in ("recipes", "answers"):
            (self.folder / part).mkdir(parents=True)
            for name in ("qwen3", "llama2-bf16-sharded"):
                shutil.copy(recipes.FOLDER / part / f"{name}.json",
                            self.folder / part)
        for name in ("make.py", "recipe.py", "answers.py"):
            shutil.copy(recipes.FOLDER / name, self.folder)
        patch = mock.patch.object(recipes, "FOLDER", self.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def change(self, part, name, change):
        path = self.folder / part / f"{name}.json"
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    def make(self, *names):
        make.make(self.out, names or recipes.names())

    def times(self):
        return {path: path.stat().st_mtime_ns
                for path in self.out.rglob("*.safetensors")}

    def test_what_is_there_is_left_and_what_changed_is_made_again(self):
        self.make()
        first = self.times()
        self.assertEqual(len(first), 6)
        self.make()
        self.assertEqual(self.times(), first)
        self.change("answers", "qwen3",
                    lambda answer: answer.update(ignored=["x"]))
        self.make()
        again = self.times()
        for path, time in first.items():
            self.assertEqual(again[path] == time, path.parent.name != "qwen3")
        shutil.rmtree(self.out / "qwen3")
        self.make()
        self.assertTrue((self.out / "qwen3/config.json").exists())

    def test_a_model_without_a_recipe_goes(self):
        self.make()
        (self.folder / "recipes/qwen3.json").unlink()
        self.make()
        self.assertEqual([path.name for path in self.out.iterdir()
                          if path.is_dir()], ["llama2-bf16-sharded"])

    def refused(self, what):
        with self.assertRaisesRegex(recipes.RecipeError, what):
            self.make("qwen3")
        self.assertFalse((self.out / "qwen3").exists())

    def test_other_bytes_than_the_recipe_says_are_refused_by_name(self):
        self.change("recipes", "qwen3",
                    lambda recipe: recipe.update(seed="qwen3/other"))
        self.refused("golden model qwen3: SHA-256 of model.safetensors is "
                     "[0-9a-f]{64}, not [0-9a-f]{64}")

    def test_a_file_that_the_recipe_does_not_sum_is_refused(self):
        self.change("recipes", "qwen3",
                    lambda recipe: recipe["sums"].pop("config.json"))
        self.refused("qwen3: SHA-256 of config.json .* not in the recipe")

    def test_answers_to_other_files_are_refused(self):
        self.change("answers", "qwen3", lambda answer: answer["sums"].update(
            {"model.safetensors": "0" * 64}))
        self.refused("qwen3: the reference read another model.safetensors")

    def test_a_model_without_answers_is_refused(self):
        (self.folder / "answers/qwen3.json").unlink()
        self.refused("qwen3 has no reference")

    def test_the_command_names_a_model_that_there_is_not(self):
        done = subprocess.run(
            [sys.executable, "-B", make.__file__, "--out", self.out, "qwen9"],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no golden model qwen9", done.stderr)

    def test_two_makers_at_once_write_the_same(self):
        makers = [subprocess.Popen([sys.executable, "-B", make.__file__,
                                    "--out", self.out, "qwen3"],
                                   stdout=subprocess.PIPE) for _ in range(2)]
        said = [maker.communicate()[0] for maker in makers]
        self.assertEqual([maker.returncode for maker in makers], [0, 0])
        self.assertEqual(sorted(said), [b"", b"made golden model qwen3\n"])
        made = {path.name: path.read_bytes()
                for path in (self.out / "qwen3").iterdir()
                if not path.name.startswith("expected")}
        self.assertEqual(recipes.sums(made), recipes.read("qwen3")["sums"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
