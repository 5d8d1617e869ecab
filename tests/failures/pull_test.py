"""`sluice pull` and `sluice convert`, while a call of them fails: they end with
the reason or with all that was asked for, and no file has its name before it is
whole.

usage: pull_test.py SLUICE [unittest's options]
"""

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "tools/hub"), str(TESTS / "integration")]

import fake_hub  # noqa: E402
import harness  # noqa: E402
from failing_calls import (FailingCalls, Tally, large_allocations, places,  # noqa: E402
                           small_allocations, writes)
from pull_case import NAME, PullCase  # noqa: E402


def is_openssl_start(said):
    """Whether the failing call is OpenSSL's, in its own start: version 3.0
    crashes there without memory, before it does anything for us."""
    frames = [line for line in said.splitlines() if "[0x" in line]
    first = next((line for line in frames
                  if "libsluice_failing_calls" not in line), "")
    return "libcrypto.so" in first and "OPENSSL_init" in said


class FailuresCase(PullCase):
    def setUp(self):
        super().setUp()
        self.calls = FailingCalls()

    def run_failing(self, place, *words, allowed):
        """The exit status, which is 0, one with a reason, or `allowed`."""
        self.calls.arm(place)
        done = subprocess.run(
            [self.sluice, *words], text=True, timeout=120,
            env=self.environment(**self.calls.environment),
            stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.calls.disarm()
        if done.returncode == -signal.SIGSEGV and is_openssl_start(done.stderr):
            return done.returncode, done.stderr
        if done.returncode not in (0, *allowed):
            self.assertIn(done.returncode, (1, 2), f"{place}:\n{done.stderr}")
            self.assertIn("error:", done.stderr, place)
        return done.returncode, done.stderr

    def try_each(self, what, place, most, most_long=None, allowed=()):
        tally = Tally(what)
        self.reset()
        outcome, said = self.run_failing(place, *self.words(), allowed=())
        self.assertEqual(outcome, 0, said)
        tally.calls = self.calls.count
        for one in places(place, tally.calls, most, most_long):
            with self.subTest(place=str(one)):
                self.reset()
                outcome, said = self.run_failing(one, *self.words(),
                                                 allowed=allowed)
                tally.add(outcome)
                self.check(outcome, f"{one}:\n{said}")
        tally.print()


class PullFailuresTest(FailuresCase):
    def reset(self):
        shutil.rmtree(self.home / "hf", ignore_errors=True)

    def words(self):
        return "pull", NAME

    def check(self, outcome, said):
        repository = self.repository
        whole = {repository.digest(path): data
                 for path, data in repository.files.items()}
        for name, data in self.blobs().items():
            if not name.endswith(".incomplete"):
                self.assertTrue(data == whole.get(name), f"{name}: {said}")
        snapshot = self.model / "snapshots" / fake_hub.COMMIT
        if snapshot.exists():
            for path in snapshot.rglob("*"):
                if path.is_file() and ".link-" not in path.name:
                    self.assertTrue(
                        path.read_bytes() ==
                        repository.files[str(path.relative_to(snapshot))],
                        f"{path}: {said}")
        if outcome != 0:
            found = subprocess.run(
                [self.sluice, "pull", NAME], text=True, timeout=60,
                env=self.environment(HF_HUB_OFFLINE="1"),
                capture_output=True, check=False)
            if found.returncode == 0:
                self.check_model(pathlib.Path(found.stdout.strip()), said)
        self.check_model(self.pull(), said)

    def check_model(self, path, said):
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            self.assertTrue((path / name).read_bytes() ==
                            self.repository.files[name], f"{name}: {said}")

    def test_writes(self):
        self.try_each("pulling, writes", writes(), 45)

    def test_large_allocations(self):
        self.try_each("pulling, large allocations", large_allocations(), 15)

    def test_small_allocations(self):
        self.try_each("pulling, small allocations", small_allocations(), 15,
                      400, allowed=(-signal.SIGABRT,))


class ConvertFailuresTest(FailuresCase):
    """A folder; other forms below."""
    form = []
    name = "out"

    def setUp(self):
        super().setUp()
        self.out = self.home / self.name
        self.source = harness.golden("stories")
        self.reset()
        self.run_sluice(*self.words())
        self.expected = self.files()

    def reset(self):
        for path in self.home.glob("out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def words(self):
        return "convert", str(self.source), str(self.out), *self.form

    def files(self):
        if not self.out.exists():
            return None
        return {path.relative_to(self.out):
                hashlib.sha256(path.read_bytes()).hexdigest()
                for path in self.out.rglob("*") if path.is_file()}

    def check(self, outcome, said):
        self.assertIn(self.files(), (None, self.expected), said)
        if outcome == 0:
            self.assertEqual(self.files(), self.expected, said)

    def test_writes(self):
        self.try_each(f"converting to {self.name} {self.form}, writes",
                      writes(), 30)

    def test_large_allocations(self):
        self.try_each(
            f"converting to {self.name} {self.form}, large allocations",
            large_allocations(), 15)


class ConvertToFp8FailuresTest(ConvertFailuresTest):
    form = ["--weights", "fp8"]


class ConvertToDllamaFailuresTest(ConvertFailuresTest):
    """A .m and its .t; what describes them comes behind them."""
    form = ["--weights", "f32"]
    name = "out.m"

    def files(self):
        found = {name: hashlib.sha256((self.home / name).read_bytes())
                       .hexdigest()
                 for name in ("out.m", "out.t") if (self.home / name).exists()}
        return found or None

    def check(self, outcome, said):
        found = self.files()
        if outcome != 0 and found is not None and "out.m" not in found:
            self.fail(f"a tokenizer without its model: {said}")
        super().check(outcome, said)


if __name__ == "__main__":
    PullCase.sluice = os.path.abspath(sys.argv.pop(1))
    harness.main()
