"""The lock of Debian's packages in a bundle: it names all of them, and a version
that apt does not have is told, not passed over."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402

PACKAGES = harness.ROOT / "deploy/packages"
LOCK = PACKAGES / "debian-packages.lock"


class LockTest(unittest.TestCase):
    def test_it_names_each_package_of_both_architectures(self):
        (names,) = re.findall(r"^bundled_packages=\(([^)]*)\)",
                              (PACKAGES / "make").read_text(), re.M)
        lines = [line for line in LOCK.read_text().splitlines()
                 if not line.startswith("#")]
        for line in lines:
            self.assertRegex(line, r"^\w+ \S+ \S+ [0-9a-f]{64}$")
        self.assertEqual(
            sorted(tuple(line.split()[:2]) for line in lines),
            sorted((arch, name) for arch in ("amd64", "arm64")
                   for name in names.split()))

    def test_a_version_that_apt_lacks_ends_it(self):
        for tool in ("apt-get", "patchelf", "python3.11", "dpkg-deb"):
            if not shutil.which(tool):
                self.skipTest(f"needs {tool}")
        with tempfile.TemporaryDirectory(prefix="sluice-lock-") as folder:
            root = pathlib.Path(folder)
            for name in ("deploy/packages", "deploy/local"):
                shutil.copytree(harness.ROOT / name, root / name)
            lock = root / "deploy/packages" / LOCK.name
            lock.write_text(re.sub(r"^(\w+ openssl) \S+", r"\1 1.0-1",
                                   LOCK.read_text(), flags=re.M))
            (root / "CMakeCache.txt").write_text(
                "CMAKE_PROJECT_VERSION:STATIC=1.0\nSLUICE_CUDA:BOOL=OFF\n")
            done = subprocess.run(
                [root / "deploy/packages/make", "bundle"], text=True,
                capture_output=True, timeout=300, check=False,
                env={**os.environ, "SLUICE_BUILD_DIR": folder,
                     "SOURCE_DATE_EPOCH": "1"})
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("make --write-lock takes", done.stderr)
            self.assertFalse((root / "build/parts-amd64").exists())
            if "E: Failed to fetch" not in done.stderr:
                self.assertRegex(done.stderr, "apt has openssl .*, not 1.0-1")


if __name__ == "__main__":
    harness.main()
