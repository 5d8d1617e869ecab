"""Where a root folder as a machine of its own cannot be made, a line says why:
tests skip, and nothing of it is left."""

import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402
import small_root  # noqa: E402


class SmallRootTest(unittest.TestCase):
    def setUp(self):
        missing = small_root.lacks()
        if missing:
            self.skipTest(missing)
        if not shutil.which("setpriv"):
            self.skipTest("needs setpriv (util-linux)")

    def test_a_machine_without_a_capability_says_so(self):
        for capability, words in (("mknod", "CAP_MKNOD"),
                                  ("sys_admin", "CAP_SYS_ADMIN")):
            with self.subTest(capability):
                told = subprocess.run(
                    ["setpriv", "--bounding-set", f"-{capability}",
                     "--inh-caps", f"-{capability}", sys.executable, "-Bc",
                     "import small_root; print(small_root.lacks())"],
                    cwd=pathlib.Path(__file__).parent, capture_output=True,
                    text=True, check=True, timeout=60)
                self.assertRegex(told.stdout, rf"^.*{words}.*\n$")


if __name__ == "__main__":
    harness.main()
