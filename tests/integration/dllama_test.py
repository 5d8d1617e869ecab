"""A model of distributed-llama (.m, .t) answers as the folder that it was made
of."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import api
import harness

BODY = {"prompt": [5, 17, 80, 3], "max_tokens": 24, "temperature": 0.8,
        "seed": 4, "ignore_eos": True, "return_token_ids": True}


class DllamaTest(unittest.TestCase):
    def answer(self, model):
        with harness.Cluster(model, "--stages", "2",
                             "--weights", "f32") as cluster:
            answer = api.completion(cluster.url, **BODY)
        choice = api.choice_of(answer)
        return choice["token_ids"]

    def test_a_cluster_serves_it(self):
        golden = harness.golden("llama3-tied")
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "tiny"
            subprocess.run(
                [sys.executable,
                 harness.ROOT / "tests/testing/folder_to_dllama.py", golden,
                 model, "--type", "f32"], check=True)
            self.assertEqual(self.answer(f"{model}.m"), self.answer(golden))

    def test_a_file_that_is_cut_is_refused_by_name(self):
        golden = harness.golden("llama3-tied")
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "tiny"
            subprocess.run(
                [sys.executable,
                 harness.ROOT / "tests/testing/folder_to_dllama.py", golden,
                 model, "--type", "f32"], check=True)
            whole = model.with_suffix(".m").read_bytes()
            model.with_suffix(".m").write_bytes(whole[:100000])
            with harness.Cluster(f"{model}.m", expect=6) as cluster:
                self.assertIn("are beyond the file's end at 100000",
                              cluster.up.stderr)


if __name__ == "__main__":
    harness.main()
