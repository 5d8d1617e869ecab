"""Manual pages of a program are whole where two installations run at once."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402

SCRIPT = harness.ROOT / "deploy/packages/install_pages.cmake"


class InstallPagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-pages-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, number, body):
        """An installation below `number` of a program that is this script."""
        program = self.folder / f"program-{number}"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        (self.folder / f"{number}.cmake").write_text(
            f'set(program "{program}")\nset(name sluice-stage)\n'
            f'set(section 8)\nset(folder "{self.folder}/pages/stage")\n'
            f'set(CMAKE_INSTALL_PREFIX "{self.folder}/{number}/usr")\n'
            f'include("{SCRIPT}")\n')
        return subprocess.Popen(
            ["cmake", "-P", self.folder / f"{number}.cmake"], text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def test_two_at_once_do_not_meet(self):
        ready = [self.folder / f"ready-{number}" for number in range(2)]
        # Each program waits for the other one in the midst of its pages.
        running = [self.start(number, f'echo "$2"; touch "{ready[number]}"\n'
                              f'until [ -e "{ready[1 - number]}" ]; do '
                              f'sleep 0.05; done; echo {number}')
                   for number in range(2)]
        for number, one in enumerate(running):
            told = one.communicate(timeout=60)[1]
            self.assertEqual(one.returncode, 0, told)
            share = self.folder / f"{number}/usr/share"
            self.assertEqual(
                (share / "man/man8/sluice-stage.8").read_text(),
                f"man\n{number}\n")
            self.assertEqual(
                (share / "zsh/vendor-completions/_sluice-stage").read_text(),
                f"zsh\n{number}\n")
        self.assertEqual(os.listdir(self.folder / "pages/stage"), [])

    def test_a_program_that_fails_is_named(self):
        one = self.start(0, "exit 3")
        self.assertIn("program-0 --print man: 3",
                      " ".join(one.communicate(timeout=60)[1].split()))
        self.assertNotEqual(one.returncode, 0)


if __name__ == "__main__":
    harness.main()
