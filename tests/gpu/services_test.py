"""Parts of tests/gpu/run that start clusters or test programs, tried on the CPU: their
command lines are those of a GPU, but for its name."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import binaries  # pylint: disable=wrong-import-position
import clusters  # pylint: disable=wrong-import-position
import fake_build  # pylint: disable=wrong-import-position

GOLDEN = "qwen3"  # has a few layers
CASES = ("NcclGraphTest.*", "CudaFastNumericsTest.*")  # take a moment


class ServicesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.build = os.environ["SLUICE_BUILD_DIR"]

    def found(self, part, **environment):
        """What a part finds on the CPU."""
        done = subprocess.run(
            [sys.executable, HERE / "run", "--device", "cpu", "--build",
             self.build, "--out", self.folder, "--parts", part],
            capture_output=True, text=True, check=False,
            env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads((self.folder / f"{part}.json").read_text())

    def model(self):
        model = fake_build.load().golden(GOLDEN)
        if model is None:
            self.skipTest(f"there is no golden model {GOLDEN}")
        return model

    def found_of_one_golden(self, part):
        """What a part finds of one golden model alone."""
        model = self.model()
        (self.folder / "golden").mkdir()
        (self.folder / "golden" / GOLDEN).symlink_to(model)
        found = self.found(part, SLUICE_SHARED=str(self.folder))
        text, probabilities = found[GOLDEN]["answers"]["cpu"][0]
        self.assertTrue(text)
        self.assertEqual(len(probabilities), 24)
        return found[GOLDEN]["same"]

    def test_one_stage_and_two_take_turns(self):
        found = self.found("two_stages")
        self.assertGreater(found["ratio"], 0)
        for stages in ("1", "2"):
            self.assertGreater(found["tok_per_s"][stages]["min"], 0)

    def test_two_stages_answer_as_one_device_does(self):
        self.assertEqual(self.found_of_one_golden("services"),
                         {"cpu": True, "cpu,cpu": True})

    def test_ranks_answer_as_one_stage_does(self):
        self.assertEqual(self.found_of_one_golden("ranks"), {
            "cpu": True, "cpu, 2 ranks": True, "cpu, 4 ranks": True})

    def test_what_is_asked_of_gpus_comes_to_stages_which_miss_the_gpu(self):
        if fake_build.load().no_gpu() is None:
            self.skipTest("this machine has a GPU")
        log = self.folder / "log"
        for asked in (clusters.Asked("cuda:0", "fast", 3),
                      clusters.Asked("cpu,cuda:0"),
                      clusters.Asked("cuda:0", stages=1, ranks=2),
                      clusters.Asked("cuda:0,1", stages=1)):
            device = asked.devices.removeprefix("cpu,")
            with self.assertRaisesRegex(OSError, f"device {device}: ",
                                        msg=str(asked)):
                clusters.answers(self.build, self.model(), asked, log,
                                 time.monotonic() + clusters.UP)

    def test_test_programs_run_and_are_counted(self):
        if missing := binaries.lacking(pathlib.Path(self.build), ["models"]):
            self.skipTest(f"not built: {', '.join(missing)}")
        if fake_build.load().no_gpu() is None:
            self.skipTest("this machine has a GPU")
        found = self.found("models", GTEST_FILTER=":".join(CASES))
        if "skipped" in found:
            self.skipTest("these tests need a GPU in a build with SLUICE_CUDA")
        for path in binaries.TESTS:
            counted = found[path.removeprefix("tests/")]
            self.assertEqual((counted["failed"], counted["died"]), ([], {}))
            self.assertGreater(counted["passed"], 0, path)

    def test_devices_are_named_and_missed(self):
        found = self.found("devices", GTEST_FILTER="DeviceChoiceTest.*")
        counted = found["device/device_test"]
        self.assertEqual((counted["failed"], counted["died"]), ([], {}))
        self.assertGreater(counted["passed"], 5)


if __name__ == "__main__":
    unittest.main()
