"""`sluice convert ORG/NAME`: a hub's model is fetched, or found in the cache, and
written anew.

usage: convert_test.py SLUICE [unittest's options]
"""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pull_case import PullCase  # noqa: E402

DEMO = HERE.parents[2] / "deploy/demo_model/weights"
NAME = "sluice-tests/demo"


class ConvertTest(PullCase):
    def setUp(self):
        super().setUp()
        self.files = {path.name: path.read_bytes() for path in DEMO.iterdir()}
        self.add(NAME, self.files, lfs=["model.safetensors"])
        self.out = self.home / "out"

    def convert(self, model, out, *words, **more):
        return self.run_sluice("convert", str(model), str(out), *words, **more)

    def contents(self, folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def test_a_hubs_model_gives_what_its_folder_gives(self):
        done = self.convert(NAME, self.out, "--weights", "q80")
        self.assertIn("of them fetched now", done.stderr)
        direct = self.home / "direct"
        self.convert(DEMO, direct, "--weights", "q8_0")
        wanted = self.contents(direct)
        got = self.contents(self.out)
        self.assertEqual(sorted(got), sorted(wanted))
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            self.assertTrue(got[name] == wanted[name], name)

    def test_a_model_in_the_cache_is_found_offline(self):
        offline = {"HF_HUB_OFFLINE": "1"}
        done = self.convert(NAME, self.out, code=1, **offline)
        self.assertIn(f"{NAME}: there is no such file or folder, and as a "
                      "hub's model it could not be had", done.stderr)
        self.assertFalse(self.out.exists())
        self.pull(NAME)
        done = self.convert(NAME, self.out, "--weights", "fp8", **offline)
        self.assertIn("0.0 MB of them fetched now", done.stderr)
        self.assertTrue((self.out / "tokenizer.json").exists())

    def test_a_folder_of_this_name_goes_before(self):
        folder = self.home / NAME
        folder.parent.mkdir()
        os.symlink(DEMO, folder)
        done = subprocess.run(
            [self.sluice, "convert", NAME, "out"], cwd=self.home, text=True,
            timeout=60, env=self.environment(HF_HUB_OFFLINE="1"),
            stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("fetched", done.stderr)
        self.assertFalse(self.cache.exists())

    def test_an_unknown_name_of_weights_tells_the_known_ones(self):
        done = self.convert(DEMO, self.out, "--weights", "int4", code=2)
        self.assertIn("weights 'int4' are not known; known are stored, f32, "
                      "bf16, q8_0, q4_0,", done.stderr)
        self.assertIn("q40, q80, fp8, gptq, awq", done.stderr)
        done = self.convert(DEMO, self.out, "--weights-for", "lm_head=q9",
                            code=2)
        self.assertIn("type 'q9' is not known; known are f32,", done.stderr)


if __name__ == "__main__":
    PullCase.sluice = os.path.abspath(sys.argv.pop(1))
    unittest.main()
