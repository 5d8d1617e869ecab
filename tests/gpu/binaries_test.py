"""binaries.py, with a command in the place of cmake: what is missing is built or
named, and a build that is ended goes on."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock as mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import binaries  # pylint: disable=wrong-import-position
import large_models  # pylint: disable=wrong-import-position
import summary  # pylint: disable=wrong-import-position

# Configures, then "builds" a binary at a time; $HOW: "hang" after the first, "fail"
# there, or nothing.
CMAKE = f"""#!{sys.executable}
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index(
    "-B" if "-B" in sys.argv else "--build") + 1])
if "-B" in sys.argv:
    (folder / "CMakeCache.txt").write_text("SLUICE_CUDA:BOOL=ON")
    sys.exit()
for name in {binaries.ALL}:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(name)
    path.chmod(0o755)
    if os.environ.get("HOW") == "fail":
        sys.exit(1)
    if os.environ.get("HOW") == "hang":
        (folder / "hangs").touch()
        time.sleep(600)
"""
ENSURE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import binaries
sys.exit(binaries.ensure(pathlib.Path(sys.argv[2]), ["check"], "cuda:0"))
"""


class BuildTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.folder = self.root / "build"
        self.write(self.root / "bin/cmake", CMAKE)
        # A CUDA that $CUDA_HOME alone names.
        self.write(self.root / "cuda/bin/nvcc", "")
        self.environment = {
            "CUDA_HOME": str(self.root / "cuda"),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def ensure(self, *parts, device="cuda:0", **environment):
        """The exit code, and what is said."""
        said = io.StringIO()
        with mock.patch.dict(os.environ, {**self.environment, **environment}), \
                contextlib.redirect_stderr(said), \
                contextlib.redirect_stdout(said):
            return (binaries.ensure(self.folder, parts or ["check"], device),
                    said.getvalue())

    def test_every_part_but_pytorch_has_its_binaries(self):
        for part in summary.PARTS:
            self.assertEqual(not binaries.needed(part),
                             part.startswith("pytorch"), part)
        for name in large_models.MODELS:
            self.assertEqual(binaries.needed(name), (binaries.SPEED,))
        self.assertLess(set(binaries.NEEDED), set(summary.PARTS))

    def test_what_is_missing_is_built_once(self):
        code, said = self.ensure("check", "services")
        self.assertEqual(code, 0, said)
        lacked = (binaries.CHECK, *binaries.SERVICES, binaries.EXPERT)
        self.assertIn(f"lacks {', '.join(lacked)}; building: cmake --preset "
                      "cuda", said)
        self.assertEqual(binaries.lacking(self.folder, summary.PARTS), [])
        self.assertFalse((self.folder / binaries.INCOMPLETE).exists())
        self.assertEqual(self.ensure(*summary.PARTS), (0, ""))

    def test_one_binary_is_not_all_that_parts_need(self):
        self.assertEqual(self.ensure()[0], 0)
        (self.folder / binaries.SPEED).unlink()
        (self.folder / binaries.SERVICES[0]).unlink()
        self.assertEqual(self.ensure("check", "models"), (0, ""))
        code, said = self.ensure("llama8b", "check")
        self.assertEqual(code, 0, said)
        self.assertIn(f"lacks {binaries.SPEED}; building", said)

    def test_a_build_that_fails_is_not_taken_for_one_that_is_done(self):
        code, said = self.ensure(HOW="fail")
        self.assertEqual(code, 1)
        self.assertIn(f"the build failed; in {binaries.ROOT}: cmake", said)
        self.assertEqual(binaries.lacking(self.folder, ["check"]), [])
        code, said = self.ensure()
        self.assertEqual(code, 0)
        self.assertIn("the build in it has not ended; building: cmake", said)

    def test_a_signal_ends_a_build_which_goes_on_next_time(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            shutil.rmtree(self.folder, ignore_errors=True)
            running = subprocess.Popen(
                [sys.executable, "-B", "-c", ENSURE, HERE, self.folder],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, **self.environment, "HOW": "hang"})
            while not (self.folder / "hangs").exists():
                self.assertIsNone(running.poll())
                time.sleep(0.02)
            running.send_signal(number)
            _, said = running.communicate(timeout=60)
            self.assertEqual(running.returncode, 128 + number, said)
            self.assertIn(f"the build was ended by {number.name}", said)
            self.assertIn("call tests/gpu/run again", said)
            self.assertEqual(self.ensure()[0], 0)

    def test_what_cannot_be_built_is_named_with_the_command(self):
        code, said = self.ensure(device="cpu")
        self.assertEqual(code, 2)
        self.assertIn(f"lacks {binaries.CHECK}; --device cpu builds nothing. "
                      f"To build, in {binaries.ROOT}: cmake --preset cuda -B "
                      f"{self.folder} ", said)
        self.write(self.folder / binaries.CHECK, "")
        self.assertIn("this is no folder that cmake builds in",
                      self.ensure("llama8b")[1])
        self.write(self.folder / "CMakeCache.txt", "SLUICE_CUDA:BOOL=OFF\n")
        self.assertIn("this is a build without SLUICE_CUDA",
                      self.ensure("llama8b")[1])
        (self.folder / "CMakeCache.txt").write_text("SLUICE_CUDA:BOOL=ON\n")
        code, said = self.ensure("llama8b", PATH="/nowhere")
        self.assertEqual(code, 2)
        self.assertIn(f"lacks {binaries.SPEED}; there is no cmake here", said)

    def test_nvcc_is_that_of_cuda_home_first(self):
        with mock.patch.dict(os.environ, self.environment):
            self.assertEqual(binaries.find_nvcc(),
                             str(self.root / "cuda/bin/nvcc"))
        self.write(self.root / "bin/nvcc", "")
        with mock.patch.dict(os.environ, {
                **self.environment, "CUDA_HOME": "/nowhere"}), \
                mock.patch.object(binaries, "ROOT", self.root):
            self.assertEqual(binaries.find_nvcc(), str(self.root / "bin/nvcc"))
        with mock.patch.dict(os.environ, {"CUDA_HOME": "", "PATH": "/nowhere"}), \
                mock.patch.object(binaries, "ROOT", self.root):
            self.assertIsNone(binaries.find_nvcc())


class CommitTest(unittest.TestCase):
    """Which commit binaries are of."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in (binaries.CHECK, binaries.SPEED):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def record(self, commit, changed=(), before=None):
        with mock.patch.object(binaries, "head",
                               lambda: (commit, list(changed))):
            binaries.record(self.folder, before)

    def test_what_the_build_wrote_is_told(self):
        self.record("abc1", ["kernels/cuda/math.h"])
        self.assertEqual(binaries.commit_of(self.folder, None), {
            "commit": "abc1", "commit_from": str(self.folder / "commit"),
            "changed": ["kernels/cuda/math.h"]})
        self.assertEqual(binaries.commit_of(self.folder, "abc"), {
            "commit": "abc", "commit_from": "--commit",
            "changed": ["kernels/cuda/math.h"]})
        self.assertEqual(
            binaries.commit_of(self.folder, "def")["commit_from"],
            f"--commit, but {self.folder / 'commit'} tells abc1")

    def test_a_commit_that_came_during_the_build_is_told(self):
        self.record("abc1", before="abc0")
        self.assertEqual(
            binaries.commit_of(self.folder, None)["changed"],
            ["all since abc0, where the build began"])

    def test_without_either_it_is_unknown(self):
        found = binaries.commit_of(self.folder, None)
        self.assertIsNone(found["commit"])
        self.assertIn(f"unknown: there is no {self.folder / 'commit'}, and "
                      "--commit is not given", found["commit_from"])
        self.assertEqual(binaries.commit_of(self.folder, "abc"), {
            "commit": "abc", "commit_from":
            f"--commit; there is no {self.folder / 'commit'}"})

    def test_other_binaries_are_not_taken_for_those_of_the_record(self):
        self.record("abc1")
        (self.folder / binaries.SPEED).write_text("another")
        found = binaries.commit_of(self.folder, None)
        self.assertIsNone(found["commit"])
        self.assertIn(f"tells of other binaries: {binaries.SPEED}, and",
                      found["commit_from"])

    def test_a_record_that_cannot_be_read_is_named(self):
        for text in ("{", "[]", "{}"):
            (self.folder / "commit").write_text(text)
            found = binaries.commit_of(self.folder, None)
            self.assertIsNone(found["commit"])
            self.assertRegex(found["commit_from"], "Error: ")

    def test_the_checkout_tells_its_commit_and_what_is_changed(self):
        if not (binaries.ROOT / ".git").exists():
            self.skipTest("this is no checkout")
        subprocess.run([sys.executable, "-B", HERE / "binaries.py",
                        self.folder], check=True)
        told = json.loads((self.folder / "commit").read_text())
        self.assertRegex(told["commit"], "^[0-9a-f]{40}$")
        self.assertEqual(set(told["binaries"]),
                         {binaries.CHECK, binaries.SPEED})

    def test_strip_keeps_a_binary_what_it_is(self):
        if not (shutil.which("gcc") and shutil.which("strip")):
            self.skipTest("there is no gcc")
        for number in (1, 2):
            source = self.folder / f"{number}.c"
            source.write_text(f"int main(void) {{ return {number}; }}")
            subprocess.run(["gcc", "-Wl,--build-id", source, "-o",
                            self.folder / str(number)], check=True)
        one, two = (binaries.identity(self.folder / name) for name in "12")
        self.assertNotEqual(one, two)
        size = (self.folder / "1").stat().st_size
        subprocess.run(["strip", self.folder / "1"], check=True)
        self.assertLess((self.folder / "1").stat().st_size, size)
        self.assertEqual(binaries.identity(self.folder / "1"), one)


if __name__ == "__main__":
    unittest.main()
