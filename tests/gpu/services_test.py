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

GOLDEN, SPARSE = "qwen3", "glm4_moe-air"  # have a few layers; that has experts
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

    def model(self, name=GOLDEN):
        model = fake_build.load().golden(name)
        if model is None:
            self.fail(f"there is no golden model {name}: "
                      "tests/golden/make.py makes it")
        return model

    def found_of_one_golden(self, part, name=GOLDEN):
        """What a part finds of one golden model alone."""
        model = self.model(name)
        (self.folder / "golden").mkdir()
        (self.folder / "golden" / name).symlink_to(model)
        found = self.found(part, SLUICE_GOLDEN=str(self.folder / "golden"))
        text, probabilities = found[name]["answers"]["cpu"][0]
        self.assertTrue(text)
        self.assertEqual(len(probabilities), 24)
        return found[name]["same"]

    def test_one_stage_and_two_take_turns(self):
        found = self.found("two_stages")
        self.assertGreater(found["ratio"], 0)
        for stages in ("1", "2"):
            self.assertGreater(found["tok_per_s"][stages]["min"], 0)

    def test_two_stages_answer_as_one_device_does(self):
        self.assertEqual(self.found_of_one_golden("services"),
                         {"cpu": True, "cpu,cpu": True})

    def test_a_stage_with_its_experts_on_a_host_answers_as_two_stages_do(self):
        self.assertEqual(self.found_of_one_golden("services", SPARSE), {
            "cpu": True, "cpu,cpu": True, "cpu, experts: cpu": True})

    def test_series_of_hosts_of_experts_and_of_gpus_are_missed(self):
        both = clusters.Asked("cuda:0", stages=1, experts="cuda:0")
        rows = 'sluice_expert_rows_total{outcome="answered"}'
        of_gpus = {role: f"sluice_{role}_gpu_memory_total_bytes{{"
                   for role in ("stage", "expert")}
        said = {"stage": f'{of_gpus["stage"]}gpu="GPU-a"}} 8e+10\n',
                "expert": f'{rows} 12\n{of_gpus["expert"]}gpu="GPU-a"}} 8e+10\n'}
        self.assertEqual(clusters.missing(said, both, True), [])
        self.assertEqual(clusters.missing(
            {**said, "stage": ""}, both, True), [of_gpus["stage"]])
        said["expert"] = f'{rows} 0\n{of_gpus["expert"]}gpu="GPU-a"}} 0\n'
        self.assertEqual(clusters.missing(said, both, True),
                         [rows, of_gpus["expert"]])
        self.assertEqual(clusters.missing(said, both, False), [rows])
        self.assertEqual(clusters.missing(
            said, both._replace(experts="cpu"), True), [rows])

    def test_ranks_answer_as_one_stage_does(self):
        self.assertEqual(self.found_of_one_golden("ranks"), {
            "cpu": True, "cpu, 2 ranks": True, "cpu, 4 ranks": True})

    def test_ranks_of_several_processes_answer_as_one_does(self):
        emulated = pathlib.Path(
            self.build, "tests/services/stage/sluice_emulated_stage")
        if not emulated.exists():
            self.skipTest(f"not built: {emulated}")
        services = self.folder / "build/services"
        for service, name in (("gateway", "sluice-gateway"), ("cli", "sluice"),
                              ("stage", "sluice-stage")):
            (services / service).mkdir(parents=True)
            (services / service / name).symlink_to(
                emulated if service == "stage" else pathlib.Path(
                    self.build, "services", service, name).absolute())
        one, three = (clusters.answers(
            services.parent, self.model(), clusters.Asked(
                "cpu", stages=1, followers=followers),
            self.folder / "log", time.monotonic() + clusters.UP)
            for followers in ((), ("cpu", "cpu")))
        self.assertEqual(three, one)

    def test_what_is_asked_of_gpus_comes_to_stages_which_miss_the_gpu(self):
        if fake_build.load().no_gpu() is None:
            self.skipTest("this machine has a GPU")
        log = self.folder / "log"
        for asked in (clusters.Asked("cuda:0", "fast", 3),
                      clusters.Asked("cpu,cuda:0"),
                      clusters.Asked("cuda:0", stages=1, ranks=2),
                      clusters.Asked("cuda:0,1", stages=1),
                      clusters.Asked("cuda:0", stages=1,
                                     followers=("cuda:1",))):
            device = asked.devices.removeprefix("cpu,")
            with self.assertRaisesRegex(OSError, f"device {device}: ",
                                        msg=str(asked)):
                clusters.answers(self.build, self.model(), asked, log,
                                 time.monotonic() + clusters.UP)

    def test_what_is_asked_of_gpus_comes_to_hosts_of_experts(self):
        if fake_build.load().no_gpu() is None:
            self.skipTest("this machine has a GPU")
        log = self.folder / "log"
        for stages in ("cpu", "cuda:0"):
            asked = clusters.Asked(stages, stages=1, experts="cuda:0")
            with self.assertRaisesRegex(OSError, "device cuda:0: ", msg=stages):
                clusters.answers(self.build, self.model(SPARSE), asked, log,
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
