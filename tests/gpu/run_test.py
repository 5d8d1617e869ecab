"""tests/gpu/run without a GPU: it says so; its parts, tried on the CPU."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def load():
    loader = importlib.machinery.SourceFileLoader("gpu_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("gpu_run", loader))
    loader.exec_module(module)
    return module


def run(*options):
    return subprocess.run([sys.executable, HERE / "run", *options],
                          capture_output=True, text=True, check=False)


class RunTest(unittest.TestCase):
    def test_a_machine_without_a_gpu_is_told_so(self):
        if load().no_gpu() is None:
            self.skipTest("this machine has a GPU")
        done = run()
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: no GPU here: ", done.stdout)

    def test_unknown_parts_are_refused(self):
        done = run("--device", "cpu", "--parts", "machine,speed")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'speed' is none of machine, bandwidth", done.stderr)

    def test_parts_write_results_and_are_not_run_twice(self):
        build = os.environ["SLUICE_BUILD_DIR"]
        if not (pathlib.Path(build) / "tests/gpu/device_check").exists():
            self.skipTest("device_check is not built")
        with tempfile.TemporaryDirectory() as out:
            options = ("--device", "cpu", "--build", build, "--out", out,
                       "--parts",
                       "machine,bandwidth,check,check_fast,time,"
                       "pytorch,sanitizer")
            done = run(*options)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            results = json.loads((pathlib.Path(out) / "all.json").read_text())
            self.assertEqual(results["machine"]["device"]["device"], "cpu")
            self.assertGreater(results["bandwidth"]["read_gb_per_s"], 0)
            self.assertTrue(all(op["same"] for op in results["check"]))
            self.assertGreater(len(results["check"]), 100)
            self.assertTrue(all(op["error"] == 0
                                for op in results["check_fast"]))
            self.assertTrue(all(op["us"] > 0 for op in results["time"]))
            self.assertRegex(done.stdout, r"linear Q4_K +1 tokens .* GB/s")
            again = run(*options)
            self.assertEqual(again.stdout.count("done before"), 7,
                             again.stdout)
            broken = run("--device", "cuda:4711", *options[2:])
            self.assertNotEqual(broken.returncode, 0)


if __name__ == "__main__":
    unittest.main()
