"""`up --model ORG/NAME`: the demo model from a hub, to its first answer."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tests/integration")]

import api  # noqa: E402
import fake_hub  # noqa: E402
import harness  # noqa: E402

DEMO = ROOT / "deploy/demo_model/weights"
NAME = "sluice-tests/demo"


class UpTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.hub = fake_hub.FakeHub()
        self.addCleanup(self.hub.close)
        files = {path.name: path.read_bytes() for path in DEMO.iterdir()}
        self.hub.repositories[NAME] = fake_hub.Repository(
            files, lfs=["model.safetensors"])
        self.settings = {"HF_HOME": str(self.home / "hf"),
                         "HF_ENDPOINT": self.hub.url}

    def answer(self, cluster):
        body = {"messages": [{"role": "user",
                              "content": "What is a stage in Sluice?"}],
                "temperature": 0, "max_tokens": 20}
        status, answer = api.post(cluster.url, "/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        return api.choice_of(answer)["message"]["content"]

    def test_the_demo_model_answers_by_its_name_as_from_its_folder(self):
        # The connection is cut once on the way.
        self.hub.faults["model.safetensors"] = [("cut", 100_000)]
        with harness.Cluster(NAME, environment=self.settings) as cluster:
            self.assertIn("snapshots/" + fake_hub.COMMIT,
                          cluster.file["model"])
            pulled = self.answer(cluster)
        with harness.Cluster(DEMO) as cluster:
            self.assertEqual(self.answer(cluster), pulled)
        self.assertEqual(len(self.hub.asked("cdn")), 2)
        asked = len(self.hub.asked())
        with harness.Cluster(NAME, "--no-install",
                             environment=self.settings) as cluster:
            self.assertEqual(self.answer(cluster), pulled)
        self.assertEqual(len(self.hub.asked()), asked)

    def up(self, *words):
        return subprocess.run(
            [ROOT / "deploy/local/up", "--run-dir", self.home / "run",
             *words], capture_output=True, text=True, timeout=60,
            env={**os.environ, **self.settings}, check=False)

    def test_what_the_hub_refuses_ends_with_its_own_code(self):
        done = self.up("--model", "no-one/none")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("there is no such model", done.stderr)
        self.assertIn("--model no-one/none", done.stderr)
        done = self.up("--model", NAME, "--no-install")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("HF_HUB_OFFLINE is set", done.stderr)


if __name__ == "__main__":
    unittest.main()
