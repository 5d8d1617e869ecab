"""Bugs put into the product by hand, which a simulation must find.

A test module has MUTANTS and a class that derives from Mutants; see
tests/engine/mutants_test.py.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SEEDS = 1000
CHOSEN = os.environ.get("SLUICE_MUTANTS", "")  # a pattern of their names


class Mutants:
    """Builds TARGET from a copy of the tree, with one bug at a time, and runs
    it over SEEDS seeds, or those that the bug names."""

    TARGET = ""   # the simulation
    BINARY = ""   # below the build's folder
    OPTIONS = []  # of CMake
    SECONDS = 120  # a run that takes longer has no end
    # (name, file below common/, what stands there, what is put in its place),
    # and the seeds of a bug that SEEDS do not find
    MUTANTS = []

    @classmethod
    def setUpClass(cls):
        for name, file, there, *_ in cls.MUTANTS:
            count = (ROOT / "common" / file).read_text().count(there)
            assert count == 1, f"{name}: {file} has {there!r} {count} times"
        if not os.environ.get("SLUICE_LONG"):
            raise unittest.SkipTest(
                f"builds {len(cls.MUTANTS)} times (SLUICE_LONG=1)")
        base = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR",
                                           ROOT / "build/release"))
        cls.folder = base / "mutants" / cls.TARGET
        shutil.rmtree(cls.folder, ignore_errors=True)
        cls.source = cls.folder / "source"
        cls.source.mkdir(parents=True)
        names = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
            capture_output=True, text=True, check=True).stdout.split("\n")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (cls.source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, cls.source / name)
        subprocess.run(
            ["cmake", "-S", cls.source, "-B", cls.folder / "build", "-GNinja",
             "-DCMAKE_BUILD_TYPE=Release", *cls.OPTIONS,
             "-DCMAKE_CXX_COMPILER_LAUNCHER=" + (
                 shutil.which("ccache") or "")],
            stdout=subprocess.DEVNULL, check=True)

    def simulate(self, seeds=SEEDS):
        """The finished process of a build and a run; None: no end."""
        subprocess.run(["ninja", "-C", self.folder / "build", self.TARGET],
                       stdout=subprocess.DEVNULL, check=True)
        environment = {**os.environ, "SLUICE_SIMULATION_SEEDS": str(seeds)}
        try:
            return subprocess.run(
                [self.folder / "build" / self.BINARY], env=environment,
                capture_output=True, text=True, errors="replace",
                timeout=self.SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None

    def test_each_bug_is_found(self):
        self.assertEqual(self.simulate().returncode, 0)
        self.assertTrue(any(re.search(CHOSEN, one[0]) for one in self.MUTANTS),
                        f"no mutant is called {CHOSEN}")
        for name, file, there, instead, *seeds in self.MUTANTS:
            if not re.search(CHOSEN, name):
                continue
            with self.subTest(name):
                path = self.source / "common" / file
                whole = path.read_text()
                self.assertEqual(whole.count(there), 1, there)
                path.write_text(whole.replace(there, instead))
                try:
                    done = self.simulate(*seeds)
                finally:
                    path.write_text(whole)
                if done is None:
                    print(f"{name}: a run without an end", flush=True)
                    continue
                self.assertNotEqual(done.returncode, 0, name)
                seed = re.search(r"SLUICE_SIMULATION_FIRST=(\d+)",
                                 done.stdout)
                print(f"{name}: " + (f"seed {seed.group(1)}" if seed else
                      f"exit status {done.returncode}"), flush=True)


def main():
    program = unittest.main(exit=False, verbosity=2)
    if program.result.skipped and not program.result.testsRun:
        sys.exit(SKIPPED)
    sys.exit(not program.result.wasSuccessful())
