"""A stage that loads and packs a model, while a call of it fails: it ends with
the reason or serves, and no file that is packed in part is taken for a whole
one."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] /
                       "integration"))

import harness  # noqa: E402
from failing_calls import (FailingCalls, Tally, large_allocations, places,  # noqa: E402
                           small_allocations, writes)

STAGE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / \
    "services/stage/sluice-stage"


class Stage:
    """A stage process that is started to load, and waited for."""

    def __init__(self, folder, environment, *options):
        self.log = folder / "stage.log"
        notify = folder / "notify"
        notify.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(notify))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [STAGE, "--listen", f"unix:{folder}/stage.sock", "--model",
                 str(harness.golden("stories")),
                 "--layers", "0-4", "--threads", "2", "--kv-blocks", "64",
                 *options],
                env={**os.environ, **environment,
                     "NOTIFY_SOCKET": str(notify)},
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def loads(self):
        """Whether it serves; else it has ended."""
        self._socket.settimeout(0.02)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if b"READY=1" in self._socket.recv(4096):
                    return True
            except TimeoutError:
                if self.process.poll() is not None:
                    return False
        raise AssertionError("neither ready nor ended:\n" + self.words())

    def words(self):
        return self.log.read_text(errors="replace")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._socket.close()


# Within the head of a packed file (common/weights/packed_file.h).
SUM_AND_PROOF = range(48, 88)


class LoadTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="sluice-failures-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.calls = FailingCalls()

    def run_stage(self, place, *options):
        """"served", or how it ended."""
        self.calls.arm(place)
        stage = Stage(self.folder, self.calls.environment, *options)
        try:
            if stage.loads():
                return "served", stage.words()
            return stage.process.returncode, stage.words()
        finally:
            self.calls.disarm()
            stage.end()

    def try_each(self, tally, place, most, most_long, check, *options):
        outcome, words = self.run_stage(place, *options)
        self.assertEqual(outcome, "served", words)
        tally.calls = self.calls.count
        for one in places(place, tally.calls, most, most_long):
            with self.subTest(place=str(one)):
                outcome, words = self.run_stage(one, *options)
                tally.add(outcome)
                check(one, outcome, words)
        tally.print()

    def check_end(self, place, outcome, words):
        """Served, or ended with a reason."""
        if outcome == "served":
            return
        self.assertEqual(outcome, 1, f"{place}:\n{words}")
        self.assertRegex(words.splitlines()[-1],
                         r"(?i) E .*(memory|cannot|No space|Input/output)",
                         words)

    def test_large_allocations(self):
        self.try_each(Tally("loading, large allocations"),
                      large_allocations(), 25, None, self.check_end,
                      "--packed", "off")

    def test_small_allocations(self):
        def check(place, outcome, words):
            # It may end as it likes, and a supervisor starts it again.
            del place
            self.assertIn(outcome, ("served", 1, -signal.SIGABRT), words)
        self.try_each(Tally("loading, small allocations"),
                      small_allocations(), 15, 300, check, "--packed", "off")

    def packed_files(self, folder):
        """{path: bytes}; each folder has a secret of its own, so its length
        stands for it, and sums and proofs of heads are left out."""
        def comparable(path):
            data = path.read_bytes()
            if path.name == "secret":
                return len(data)
            return data[:SUM_AND_PROOF.start] + data[SUM_AND_PROOF.stop:]
        return {path.relative_to(folder): comparable(path)
                for path in sorted(folder.rglob("*"))
                if path.is_file() and not re.search(r"tmp|part|lock|draft",
                                                    path.name)}

    def pack(self, what, place, most):
        whole = self.folder / "whole"
        whole.mkdir()
        outcome, words = self.run_stage(writes(), "--packed", str(whole))
        self.assertEqual(outcome, "served", words)
        expected = self.packed_files(whole)
        self.assertGreater(len(expected), 0, words)
        number = 0

        def fresh():
            nonlocal number
            number += 1
            folder = self.folder / f"packed-{number}"
            folder.mkdir()
            return folder

        tally = Tally(what)
        outcome, words = self.run_stage(place, "--packed", str(fresh()))
        tally.calls = self.calls.count
        for one in places(place, tally.calls, most):
            with self.subTest(place=str(one)):
                folder = fresh()
                outcome, words = self.run_stage(one, "--packed", str(folder))
                tally.add(outcome)
                self.check_end(one, outcome, words)
                for path, data in self.packed_files(folder).items():
                    self.assertTrue(data == expected.get(path),
                                    f"{one}: {path} is not whole\n{words}")
                # Behind the failure the next start packs what is missing.
                outcome, words = self.run_stage(writes(), "--packed",
                                                str(folder))
                self.assertEqual(outcome, "served", words)
                self.assertTrue(self.packed_files(folder) == expected, words)
        tally.print()

    def test_writes_of_packed_weights(self):
        self.pack("packing, writes", writes(), 40)

    def test_large_allocations_of_packing(self):
        self.pack("packing, large allocations", large_allocations(), 10)


if __name__ == "__main__":
    harness.main()
