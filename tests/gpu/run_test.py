"""tests/gpu/run without a GPU: it says so; parts of one program on the CPU."""
import argparse
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
from fake_build import load  # pylint: disable=wrong-import-position


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

    def test_a_binary_that_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("--device", "cpu", "--build", folder, "--parts",
                       "machine,llama1b")
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"{folder} lacks tests/gpu/device_check, "
                          "tests/gpu/model_speed; --device cpu builds nothing",
                          done.stderr)

    def test_every_part_is_there_once_and_services_come_before_speeds(self):
        module = load()
        parts = module.summary.PARTS
        self.assertEqual(len(set(parts)), len(parts))
        self.assertLess(set(module.large_models.MODELS), set(parts))
        self.assertLess(set(module.summary.CHECKS), set(parts))
        order = [parts.index(part) for part in (
            "bandwidth", "peaks", "check", "check_fast", "models", "services",
            "llama8b", "gptoss120b", "ranks", "two_stages", "pytorch", "time",
            "sanitizer")]
        self.assertEqual(order, sorted(order))
        with tempfile.TemporaryDirectory() as out:
            run_of = module.Run(argparse.Namespace(
                build=out, device="cpu", out=out, commit=None, again=False))
            for part in parts:
                self.assertTrue(callable(run_of.part(part)), part)

    def test_a_part_has_a_limit(self):
        module = load()
        begin = time.monotonic()
        with self.assertRaisesRegex(module.programs.Stopped,
                                    "not done in 1 s"):
            with module.part_limit(1):
                time.sleep(60)
        module.programs.go_on()
        with module.part_limit(60):
            pass
        self.assertLess(time.monotonic() - begin, 60)

    def test_parts_write_results_and_are_not_run_twice(self):
        build = os.environ["SLUICE_BUILD_DIR"]
        if not (pathlib.Path(build) / "tests/gpu/device_check").exists():
            self.skipTest("device_check is not built")
        with tempfile.TemporaryDirectory() as out:
            options = ("--device", "cpu", "--build", build, "--out", out,
                       "--parts",
                       "machine,bandwidth,peaks,check,check_fast,check_wgmma,"
                       "time,pytorch,sanitizer")
            done = run(*options)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            results = json.loads((pathlib.Path(out) / "all.json").read_text())
            self.assertEqual(results["machine"]["device"]["device"], "cpu")
            self.assertIn("commit_from", results["machine"])
            self.assertRegex(done.stdout, r"(?m)^cpu: .*\n[0-9]+ CPUs: .*; commit "
                             f"{results['machine']['commit']} ")
            self.assertGreater(results["bandwidth"]["read_gb_per_s"], 0)
            self.assertIn("are a GPU's", results["peaks"]["skipped"])
            self.assertTrue(all(op["same"] for op in results["check"]))
            self.assertGreater(len(results["check"]), 100)
            for part in ("check_fast", "check_wgmma"):
                close = [op["error"] for op in results[part] if "error" in op]
                alone = [op["same_bits"] for op in results[part]
                         if "same_bits" in op]
                self.assertEqual(set(close), {0})
                self.assertEqual(set(alone), {True})
            self.assertTrue(all(op["us"] > 0 for op in results["time"]))
            self.assertRegex(done.stdout, r"linear Q4_K +1 tokens .* us")
            again = run(*options)
            done = {part for part, found in results.items()
                    if part != "commits" and "skipped" not in found}
            self.assertEqual(again.stdout.count("done before"), len(done),
                             again.stdout)
            self.assertLessEqual({"machine", "bandwidth", "check"}, done)
            broken = run("--device", "cuda:4711", *options[2:])
            self.assertNotEqual(broken.returncode, 0)

    def test_models_with_made_up_weights_run_in_every_format(self):
        build = os.environ["SLUICE_BUILD_DIR"]
        if not (pathlib.Path(build) / "tests/gpu/model_speed").exists():
            self.skipTest("model_speed is not built")
        models = load().large_models.MODELS
        with tempfile.TemporaryDirectory() as out:
            done = run("--device", "cpu", "--build", build, "--out", out,
                       "--parts", ",".join(
                           ("bandwidth", *models, "pytorch_llama8b")))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            results = json.loads((pathlib.Path(out) / "all.json").read_text())
            for name in models:
                found = results[name]
                self.assertGreater(found["load"]["weights_bytes"], 0, name)
                self.assertEqual(set(found["decode"]), {"1", "2", "5"})
                for rate in (*found["decode"].values(), found["prefill"]):
                    self.assertGreater(rate["tok_per_s"], 0)
                self.assertGreater(
                    found["decode"]["1"]["share_of_read_bandwidth"], 0)
                self.assertRegex(done.stdout, rf"{name} +1 streams .*tok/s")
            for name, held in (("llama8b", "bf16"), ("llama8b_fp8", "fp8"),
                               ("gptoss20b", "MXFP4"), ("glmair_q4", "Q4_0"),
                               ("canonical_q4_k", "Q4_K")):
                self.assertIn(held, results[name]["load"]["weights"])
            self.assertRegex(done.stdout, r"check_fast +not run")
            loop = results["pytorch_llama8b"]
            self.assertTrue("skipped" in loop or loop["decode"], loop)


if __name__ == "__main__":
    unittest.main()
