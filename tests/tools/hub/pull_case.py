"""What the tests of `sluice pull` share: a hub with one model, a home, a run of
the command.
"""

import os
import pathlib
import random
import subprocess
import tempfile
import time
import unittest

import fake_hub

NAME = "some-org/Some.Model-1B"
FOLDER = "models--some-org--Some.Model-1B"


def weights(size, seed=1):
    return random.Random(seed).randbytes(size)


class PullCase(unittest.TestCase):
    sluice = ""  # the command

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.cache = self.home / "hf/hub"
        self.model = self.cache / FOLDER
        self.hub = fake_hub.FakeHub()
        self.addCleanup(self.hub.close)
        self.data = weights(300_000)
        self.repository = self.add(NAME, {
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b"{}",
            "model.safetensors": self.data,
            "pytorch_model.bin": b"pickled",
            "original/consolidated.pth": b"pickled",
            "README.md": b"# A model"}, lfs=["model.safetensors"])

    def add(self, name, files, **options):
        made = fake_hub.Repository(files, **options)
        self.hub.repositories[name] = made
        return made

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.home),
                "HF_HOME": str(self.home / "hf"), "HF_ENDPOINT": self.hub.url,
                "HF_HUB_DOWNLOAD_TIMEOUT": "2", **more}

    def run_sluice(self, *words, code=0, before=None, **environment):
        done = subprocess.run([self.sluice, *words], text=True, timeout=60,
                              env=self.environment(**environment),
                              stdin=subprocess.DEVNULL, capture_output=True,
                              preexec_fn=before, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def pull(self, name=NAME, code=0, **environment):
        """Where the model is; of a failed pull, what it says."""
        done = self.run_sluice("pull", name, code=code, **environment)
        if code:
            self.assertEqual(done.stdout, "")
            return done.stderr
        return pathlib.Path(done.stdout.strip())

    def wait_for(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def blobs(self):
        folder = self.model / "blobs"
        return ({path.name: path.read_bytes() for path in folder.iterdir()}
                if folder.exists() else {})
