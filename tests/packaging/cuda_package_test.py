"""The packages of a build with SLUICE_CUDA: their names, what they stand in the
place of, and what is in them. CPack makes them of programs that do nothing, so
that no nvcc is needed; deploy/packages/make refuses the wrong kind of build."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import small_root  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
VERSION = "0.1.0"
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(sluice VERSION {VERSION} LANGUAGES C)
foreach(name sluice-gateway sluice-stage sluice-expert sluice)
  add_executable(${{name}} main.c)
endforeach()
add_subdirectory(deploy/packages)
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True,
                          capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class CudaPackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.build = cls.folder / "build"
        (cls.folder / "CMakeLists.txt").write_text(PROJECT)
        (cls.folder / "main.c").write_text("int main(void) { return 0; }\n")
        for name in ("deploy", "LICENSE"):
            (cls.folder / name).symlink_to(ROOT / name)
        run("cmake", "-G", "Ninja", "-S", cls.folder, "-B", cls.build,
            "-DSLUICE_CUDA:BOOL=ON", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", cls.build)
        run(ROOT / "deploy/packages/make", "deb", "--cuda", "--out",
            cls.folder / "out", cwd=ROOT,
            env={**os.environ, "SLUICE_BUILD_DIR": str(cls.build)})
        cls.packages = {path.name.split("_")[0]: path
                        for path in (cls.folder / "out").glob("*.deb")}

    def field(self, package, name):
        return run("dpkg-deb", "-f", self.packages[package], name).strip()

    def test_what_computes_has_a_package_and_nothing_else(self):
        self.assertEqual(set(self.packages), {
            "sluice-stage-cuda", "sluice-expert-cuda", "sluice-cli-cuda"})

    def test_each_stands_in_the_place_of_the_one_for_cpus(self):
        for part in ("stage", "expert", "cli"):
            package = f"sluice-{part}-cuda"
            self.assertEqual(self.field(package, "Provides"),
                             f"sluice-{part} (= {VERSION}-1)")
            for field in ("Conflicts", "Replaces"):
                self.assertEqual(self.field(package, field), f"sluice-{part}")
            self.assertIn("NVIDIA", self.field(package, "Description"))

    def test_nvidias_libraries_are_suggested_and_not_needed(self):
        for package in self.packages:
            needed = self.field(package, "Depends")
            for name in ("cuda", "nccl", "nvidia"):
                self.assertNotIn(name, needed)
        self.assertIn("libnccl2", self.field("sluice-stage-cuda", "Suggests"))

    def test_they_have_programs_units_and_licences(self):
        listed = run("dpkg-deb", "-c", self.packages["sluice-stage-cuda"])
        for path in ("/usr/bin/sluice-stage", "/etc/sluice/stage-0.toml",
                     "sluice-stage@.service",
                     "/usr/share/doc/sluice-stage-cuda/copyright"):
            self.assertIn(path, listed)
        notice = run("dpkg-deb", "--fsys-tarfile",
                     self.packages["sluice-stage-cuda"], encoding="latin-1")
        self.assertIn("libcudart_static.a", notice)

    def test_each_unit_has_a_drop_in_and_stays_as_it_is(self):
        for part, name in (("stage", "stage-cuda.conf"),
                           ("expert", "expert-cuda.conf")):
            out = self.folder / f"out-{part}"
            run("dpkg-deb", "-x", self.packages[f"sluice-{part}-cuda"], out)
            systemd = out / "usr/lib/systemd/system"
            unit = f"sluice-{part}@.service"
            for installed, source in ((f"{unit}.d/50-cuda.conf", name),
                                      (unit, unit)):
                self.assertEqual((systemd / installed).read_text(),
                                 (ROOT / "deploy/systemd" / source).read_text())
            self.assertEqual(len(list(out.rglob("*.conf"))), 1)

    def test_a_build_for_cpus_has_no_drop_in(self):
        build, out = self.folder / "cpu", self.folder / "cpu-out"
        run("cmake", "-G", "Ninja", "-S", self.folder, "-B", build,
            "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", build)
        for part in ("stage", "expert"):
            run("cmake", "--install", build, "--component", part,
                "--prefix", out)
        self.assertTrue(
            (out / "lib/systemd/system/sluice-stage@.service").exists())
        self.assertEqual(list(out.rglob("*.conf")), [])

    def test_the_bundle_finds_drivers_that_no_list_names(self):
        """A stand-in for the driver's library, in each folder that the README
        names; the root has no list of libraries."""
        missing = small_root.lacks() or next(
            (f"needs {tool}" for tool in ("patchelf", "python3.11", "apt-get")
             if shutil.which(tool) is None), "")
        if missing:
            self.skipTest(missing)
        run(ROOT / "deploy/packages/make", "bundle", "--cuda", "--out",
            self.folder / "bundle", cwd=ROOT,
            env={**os.environ, "SLUICE_BUILD_DIR": str(self.build)})
        (packed,) = (self.folder / "bundle").glob("*-cuda.tar.gz")
        library = self.folder / "libcuda.so.1"
        (self.folder / "driver.c").write_text(
            "int cuInit(unsigned flags) { return (int)flags; }\n")
        run("cc", "-shared", "-o", library, self.folder / "driver.c")
        page = (ROOT / "deploy/packages/INSTALL.md").read_text()
        folders = ("/usr/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
                   "/usr/local/nvidia/lib64")
        root = small_root.SmallRoot(self.folder / "root")
        self.addCleanup(root.close)
        root.open()
        root.put(packed, "/tmp/bundle.tar.gz")
        root.run("tar", "-xzf", "/tmp/bundle.tar.gz")
        at = f"/home/{packed.name.removesuffix('.tar.gz')}"
        load = (f"{at}/lib/sluice/python/bin/python3", "-ISBc",
                "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(7) == 7")
        root.run(*load, status=1)
        for folder in folders:
            with self.subTest(folder=folder):
                self.assertIn(f"`{folder}`", page)
                (root.path / folder[1:]).mkdir(parents=True)
                shutil.copy(library, root.path / folder[1:])
                root.run(*load)
                (root.path / folder[1:] / library.name).unlink()

    def test_a_build_of_the_other_kind_is_refused(self):
        for value, words, told in (
                ("OFF", ("--cuda",), "a build without SLUICE_CUDA"),
                ("ON", (), "its packages are those of --cuda")):
            folder = self.folder / f"build-{value}"
            folder.mkdir()
            (folder / "CMakeCache.txt").write_text(
                f"SLUICE_CUDA:BOOL={value}\n")
            done = subprocess.run(
                [ROOT / "deploy/packages/make", "deb", *words, "--out",
                 self.folder / "none"], cwd=ROOT, capture_output=True,
                text=True, check=False,
                env={**os.environ, "SLUICE_BUILD_DIR": str(folder)})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(told, done.stderr)

    def test_it_is_not_for_another_processor(self):
        done = subprocess.run(
            [ROOT / "deploy/packages/make", "--cuda", "--arch", "arm64"],
            cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("not with --arch", done.stderr)


if __name__ == "__main__":
    for tool in ("cmake", "cpack", "ninja", "cc", "dpkg-shlibdeps", "dpkg-deb"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(SKIPPED)
    unittest.main()
