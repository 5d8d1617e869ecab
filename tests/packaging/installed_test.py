"""What `cmake --install` puts below a prefix, as the packages do: `sluice up`,
`status` and `down` work there by this machine's Python, without the checkout."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
RIGHT = "A stage is one part of the pipeline"
# Of who has no build folder, and no model in the cache.
OUTSIDE = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1"}


class InstalledTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-installed-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "usr"
        for part in ("gateway", "stage", "cli", "demo"):
            subprocess.run(["cmake", "--install", BUILD, "--component", part,
                            "--prefix", cls.prefix], check=True,
                           capture_output=True)

    def sluice(self, *words, status=0, program=None):
        done = subprocess.run(
            [program or self.prefix / "bin/sluice", *words], text=True,
            env={**OUTSIDE, "HOME": str(self.folder)}, timeout=120,
            capture_output=True, stdin=subprocess.DEVNULL, cwd=self.folder,
            check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def test_a_cluster_starts_answers_and_stops(self):
        self.addCleanup(self.sluice, "down")
        out, err = self.sluice("up", "--detach", "--port", "0")
        self.assertIn("serving the small model that comes along", err)
        self.assertIn(RIGHT, out)
        self.assertIn("stop it with: sluice down --run-dir", out)
        _, err = self.sluice("up", "--detach", status=7)
        self.assertIn("Stop it with sluice down", err)
        out, _ = self.sluice("status")
        self.assertIn("\nready\n", out)
        out, _ = self.sluice("generate", "Once upon a time", "--max-tokens",
                             "4", "--temperature", "0")
        self.assertTrue(out.strip())
        cluster = json.loads((self.folder / ".local/state/sluice/default/"
                              "cluster.json").read_text())
        for entry in cluster["processes"]:
            self.assertEqual(pathlib.Path(entry["argv"][0]).parent,
                             self.prefix / "bin")
        self.assertEqual(cluster["supervisor"]["argv"][2],
                         str(self.prefix / "share/sluice/launcher"))
        _, err = self.sluice("down")
        self.assertIn("stopped", err)
        _, err = self.sluice("down")
        self.assertIn("nothing runs in", err)

    def test_exit_codes_are_those_of_the_page(self):
        out, _ = self.sluice("up", "--help")
        self.assertIn("usage: sluice up", out)
        self.sluice("up", "--stages", "0", status=2)
        self.sluice("up", "--model", "/none", status=5)
        _, err = self.sluice("up", "--no-install", status=3)
        self.assertIn("missing: the default model", err)
        _, err = self.sluice("up", "--model", self.prefix / "share/sluice/"
                             "demo-model", "--expert-hosts", "1", status=6)
        self.assertIn("bin/sluice-expert is not installed", err)

    def test_the_program_of_make_reference_is_installed(self):
        python = self.folder / "python"
        python.write_text('#!/bin/sh\necho "$@"\n')
        python.chmod(0o755)
        out, _ = self.sluice("eval", "make-reference", self.prefix /
                             "share/sluice/demo-model", "--python", python)
        program = self.prefix / "share/sluice/make_reference"
        self.assertIn(str(program / "answers.py"), out)
        for name in ("requirements.txt", "prompts.jsonl"):
            self.assertTrue((program / name).exists(), name)

    def test_without_the_launcher_it_says_where_it_looked(self):
        alone = self.folder / "alone/bin/sluice"
        alone.parent.mkdir(parents=True)
        shutil.copy(self.prefix / "bin/sluice", alone)
        _, err = self.sluice("up", program=alone, status=1)
        self.assertIn("neither share/sluice/launcher in "
                      f"{self.folder}/alone nor deploy/local/up", err)


if __name__ == "__main__":
    harness.main()
