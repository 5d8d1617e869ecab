"""Parts of tests/gpu/run that start clusters, tried on the CPU."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class ServicesTest(unittest.TestCase):
    def test_one_stage_and_two_take_turns(self):
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [sys.executable, HERE / "run", "--device", "cpu", "--build",
                 os.environ["SLUICE_BUILD_DIR"], "--out", out, "--parts",
                 "two_stages"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.loads(
                (pathlib.Path(out) / "two_stages.json").read_text())
            self.assertGreater(found["ratio"], 0)
            for stages in ("1", "2"):
                self.assertGreater(found["tok_per_s"][stages]["min"], 0)


if __name__ == "__main__":
    unittest.main()
