"""tests/gpu/run over programs that only seem to be those of a build."""
import argparse
import importlib.machinery
import importlib.util
import json
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


class FakeBuild(unittest.TestCase):
    """A folder of such programs, and of results."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def make(self, name, program):
        """A program in Python of the build."""
        path = self.folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{program}")
        path.chmod(0o755)

    def begin(self, parts, again=False, **options):
        if not (self.folder / "tests/gpu/device_check").exists():
            self.make("gpu/device_check", "")  # else nothing is run
        return subprocess.Popen(
            [sys.executable, HERE / "run", "--device", "cpu", "--build",
             self.folder, "--out", self.out, "--parts", parts,
             *(["--again"] if again else [])],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **options)

    def run_parts(self, parts, **options):
        """The exit code, and what was said."""
        running = self.begin(parts, **options)
        said = "".join(running.communicate(timeout=120))
        return running.returncode, said

    def found(self, part):
        return json.loads((self.out / f"{part}.json").read_text())

    def run_of(self, module, device="cpu", again=False):
        return module.Run(argparse.Namespace(
            build=self.folder, device=device, out=self.out, commit=None,
            again=again))
