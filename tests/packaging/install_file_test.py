"""The file that installs itself (deploy/packages/install.sh.in), with a small
tree in the place of the bundle: what it refuses, what it leaves as it was when a
step fails, and what a removal finds after an interruption. By each shell that is
here."""

import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402

SOURCE = harness.ROOT / "deploy/packages/install.sh.in"
FILES = {"bin/sluice": shutil.which("sleep"), "bin/sluice-stage": None,
         "lib/libc.so": None, "share/man/man1/sluice.1": None,
         "share/sluice/demo-model/config.json": None}
PAGE = "share/man/man1/sluice.1"
SHELLS = [words for words in (["sh"], ["busybox", "sh"])
          if shutil.which(words[0])]


def write_script(path, version, files):
    """install.sh.in with a tree of these files, as deploy/packages/make does."""
    packed = io.BytesIO()
    name = f"sluice-{version}-linux-test"
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for file, source in files.items():
            body = (pathlib.Path(source).read_bytes() if source else
                    f"{file} of {version}\n".encode())
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size, info.mode = len(body), 0o755
            archive.addfile(info, io.BytesIO(body))
    text = SOURCE.read_text()
    for word, value in (
            ("NAME", name), ("VERSION", version), ("ARCH", "test"),
            ("MACHINE", os.uname().machine), ("LINE", text.count("\n") + 1),
            ("SHA256", hashlib.sha256(packed.getvalue()).hexdigest())):
        text = text.replace(f"@{word}@", str(value))
    path.write_bytes(text.encode() + packed.getvalue())


class InstallFileTest(unittest.TestCase):
    shell = SHELLS[0]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-install-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.prefix = self.folder / "prefix"
        self.tree = self.prefix / "lib/sluice"
        self.first = self.folder / "first.sh"
        self.second = self.folder / "second.sh"
        write_script(self.first, "1.0", FILES)
        write_script(self.second, "2.0", {
            **{name: source for name, source in FILES.items() if name != PAGE},
            "bin/sluice-new": None, "share/man/man8/sluice-stage.8": None})

    def sh(self, script, *words, status=0, prefix=None, path="", umask=0o022):
        """Its messages; a folder of `path` is looked into before all others."""
        done = subprocess.run(
            [*self.shell, script, "--prefix", prefix or self.prefix, *words],
            capture_output=True, text=True, cwd=self.folder, umask=umask,
            env={"PATH": f"{path}:/usr/bin:/bin".lstrip(":")}, check=False,
            stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def state(self):
        """Every path of the prefix: link's target, file's contents."""
        found = {}
        for path in self.prefix.rglob("*"):
            name = str(path.relative_to(self.prefix))
            found[name] = (os.readlink(path) if path.is_symlink() else
                           None if path.is_dir() else path.read_bytes())
        return found

    def fault(self, program, body):
        """A folder with a program of this name, which is a script."""
        if self.shell != SHELLS[0]:
            self.skipTest("busybox has such programs in itself")
        folder = self.folder / f"fault-{program}"
        folder.mkdir(exist_ok=True)
        script = folder / program
        script.write_text(f"#!/bin/sh\nreal=/usr/bin/{program}\n{body}\n")
        script.chmod(0o755)
        return folder

    def test_it_installs_replaces_and_removes(self):
        self.sh(self.first)
        self.assertEqual((self.prefix / "bin/sluice-stage").read_text(),
                         "bin/sluice-stage of 1.0\n")
        self.sh(self.second)
        self.assertEqual((self.prefix / "bin/sluice-stage").read_text(),
                         "bin/sluice-stage of 2.0\n")
        self.assertTrue((self.prefix / "bin/sluice-new").exists())
        self.assertFalse((self.prefix / PAGE).is_symlink())
        self.sh(self.first, "--uninstall")
        self.assertFalse(self.prefix.exists())
        self.assertIn("nothing that this file installed",
                      self.sh(self.first, "--uninstall", status=1))

    def test_a_tree_of_somebody_else_is_refused(self):
        self.tree.mkdir(parents=True)
        (self.tree / "theirs").write_text("theirs")
        before = self.state()
        told = self.sh(self.first, status=1)
        self.assertIn(f"{self.tree} is there, and not of an installation by "
                      "this file", told)
        self.assertEqual(self.state(), before)

    def test_files_that_a_user_added_are_refused_by_name(self):
        self.sh(self.first)
        packed = self.tree / "share/sluice/demo-model/sluice.packed/uid-0"
        packed.mkdir(parents=True)  # A stage's, made anew when it lacks.
        (packed / "weights").write_text("packed")
        (self.tree / "share/own model.gguf").write_text("own")
        before = self.state()
        for words in ((), ("--uninstall",)):
            told = self.sh(self.second, *words, status=1)
            self.assertIn("\n./share/own model.gguf\n", told)
            self.assertNotIn("packed", told)
        self.assertEqual(self.state(), before)
        (self.tree / "share/own model.gguf").unlink()
        self.sh(self.second)
        self.sh(self.second, "--uninstall")
        self.assertFalse(self.prefix.exists())

    def test_programs_that_run_are_refused(self):
        self.sh(self.first)
        child = subprocess.Popen([self.prefix / "bin/sluice", "60"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        before = self.state()
        for words in ((), ("--uninstall",)):
            self.assertIn(f"a program of {self.tree} runs (pid {child.pid})",
                          self.sh(self.second, *words, status=1))
        self.assertEqual(self.state(), before)

    def test_a_link_that_cannot_be_made_changes_nothing(self):
        path = self.fault("ln", 'case $* in *sluice-new*) exit 1 ;; esac\n'
                          'exec $real "$@"')
        self.assertIn("cannot be made", self.sh(self.second, status=1,
                                                path=path))
        self.assertFalse(self.prefix.exists())
        self.sh(self.first)
        before = self.state()
        self.assertIn("cannot be made", self.sh(self.second, status=1,
                                                path=path))
        self.assertEqual(self.state(), before)

    def test_a_signal_changes_nothing(self):
        self.sh(self.first)
        before = self.state()
        for file in ("new", "old"):  # At the first rename, at the second.
            with self.subTest(file):
                path = self.fault(
                    "mv", f'case $* in */new\\ */sluice | */sluice\\ */{file})'
                    ' $real "$@"; kill $PPID; exit ;; esac\nexec $real "$@"')
                self.sh(self.second, status=1, path=path)
                self.assertEqual(self.state(), before)

    def test_a_death_between_the_renames_is_recovered(self):
        self.sh(self.first)
        path = self.fault("mv", '$real "$@"\n'
                          'case $* in */old) kill -9 $PPID ;; esac')
        self.sh(self.second, status=-9, path=path)
        self.assertFalse(self.tree.exists())
        self.sh(self.second)
        self.sh(self.first)
        self.assertEqual((self.prefix / "bin/sluice-stage").read_text(),
                         "bin/sluice-stage of 1.0\n")
        self.sh(self.first, "--uninstall")
        self.assertFalse(self.prefix.exists())

    def test_a_removal_that_was_interrupted_can_be_repeated(self):
        path = self.fault("rm", 'case $* in */lib/sluice/share) '
                          'kill -9 $PPID; exit ;; esac\nexec $real "$@"')
        self.sh(self.first)
        self.sh(self.first, "--uninstall", status=-9, path=path)
        self.assertFalse((self.prefix / "bin/sluice").is_symlink())
        self.assertTrue((self.tree / "installed").exists())
        self.sh(self.first, "--uninstall")
        self.assertFalse(self.prefix.exists())

    def test_a_removal_leaves_links_that_lead_elsewhere(self):
        self.sh(self.first)
        link = self.prefix / "bin/sluice"
        link.unlink()
        link.symlink_to("/usr/bin/true")
        self.sh(self.first, "--uninstall")
        self.assertEqual(self.state(), {"bin": None, "bin/sluice":
                                        "/usr/bin/true"})

    def test_what_is_installed_is_for_all_whatever_the_umask(self):
        self.sh(self.first, umask=0o077)
        for path in [self.prefix, *self.prefix.rglob("*")]:
            self.assertEqual(path.stat().st_mode & 0o044, 0o044, path)

    def test_folders_that_are_links_are_followed(self):
        (self.folder / "elsewhere/deep/bin").mkdir(parents=True)
        self.prefix.mkdir()
        (self.prefix / "bin").symlink_to(self.folder / "elsewhere/deep/bin")
        self.sh(self.first)
        self.assertEqual((self.prefix / "bin/sluice-stage").read_text(),
                         "bin/sluice-stage of 1.0\n")
        other = self.folder / "other"
        other.symlink_to(self.prefix)
        for name in (f"{self.prefix}/", f"{self.prefix}/lib/..", other,
                     "prefix", "./prefix//"):
            with self.subTest(prefix=str(name)):
                self.sh(self.second, prefix=name)
        self.sh(self.second, "--uninstall", prefix=other)
        self.assertEqual(self.state(), {"bin": os.readlink(self.prefix / "bin")})
        self.assertEqual(os.listdir(self.folder / "elsewhere/deep/bin"), [])
        self.sh(self.first, prefix=f"{self.folder}/new/")
        self.assertTrue((self.folder / "new/bin/sluice-stage").exists())
        self.assertIn("'..' after a folder that is not there",
                      self.sh(self.first, prefix="none/../x", status=1))

    def test_nothing_is_written_in_the_folder_of_all(self):
        """A name in /tmp that another user can guess."""
        self.assertEqual(re.findall(r"TMPDIR|/tmp", SOURCE.read_text()), [])


class BusyboxTest(InstallFileTest):
    """The same by another shell."""

    @classmethod
    def setUpClass(cls):
        if len(SHELLS) < 2:
            raise unittest.SkipTest("needs busybox")
        cls.shell = SHELLS[1]


if __name__ == "__main__":
    harness.main()
