"""deploy/release on the binaries that are built: two checkouts at different
paths, with other settings around them, give the same bytes; the sums and the
signature hold, as deploy/UPGRADING.md says to check them; a changed file does
not pass; the image's archive is what its Dockerfile says, and starts."""

import hashlib
import json
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

ROOT = harness.ROOT
VERSION = re.search(r"^project\(sluice VERSION (\S+)",
                    (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
TOOLS = {"cpack": "cmake", "dpkg-shlibdeps": "dpkg-dev",
         "patchelf": "patchelf", "ssh-keygen": "openssh-client",
         "git": "git", "xz": "xz-utils"}


def run(*command, code=0, **options):
    """The output of a command that ends with `code`."""
    done = subprocess.run([str(word) for word in command], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, timeout=900, check=False,
                          **options)
    if done.returncode != code:
        raise AssertionError(f"{command} ended with {done.returncode}, not "
                             f"{code}\n{done.stdout[-4000:]}")
    return done.stdout


def copy_of_the_checkout(into):
    """The files that git knows, and new ones, without what is built."""
    names = run("git", "ls-files", "-co", "--exclude-standard", "-z",
                cwd=ROOT).rstrip("\0").split("\0")
    for name in names:
        source, target = ROOT / name, into / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


class ReleaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tool, package in TOOLS.items():
            if not shutil.which(tool):
                raise unittest.SkipTest(f"needs {tool} (Debian's {package})")
        cls.folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="sluice-release-")))
        cls.key = cls.folder / "release"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.key)
        git = run("git", "rev-parse", "--absolute-git-dir", cwd=ROOT).strip()
        copy = cls.folder / "another checkout"
        copy_of_the_checkout(copy)
        for parts in (ROOT / "build").glob("parts-*"):
            # Debian's packages that a bundle has: fetched once.
            shutil.copytree(parts, copy / "build" / parts.name, symlinks=True)
        home = cls.folder / "home"
        (home / "tmp").mkdir(parents=True)
        cls.outs = [cls.folder / "a", home / "longer" / "b"]
        running = [
            cls.start(ROOT, cls.outs[0], cwd="/", umask=0o022),
            cls.start(copy, cls.outs[1], cwd=cls.folder, umask=0o077,
                      GIT_DIR=git, HOME=str(home), TZ="Asia/Tokyo",
                      TMPDIR=str(home / "tmp"), LC_ALL="C.UTF-8")]
        for one in running:
            cls.addClassCleanup(one.wait)
            cls.addClassCleanup(one.kill)
        for one in running:
            told = one.communicate(timeout=900)[0]
            if one.returncode == 3:
                raise unittest.SkipTest("Debian's packages for the bundle "
                                        "cannot be had: " + told[-300:])
            if one.returncode != 0:
                raise AssertionError(told[-4000:])

    @classmethod
    def start(cls, checkout, out, cwd, umask, **environment):
        return subprocess.Popen(
            [checkout / "deploy/release", "--out", out, "--key", cls.key],
            cwd=cwd, umask=umask, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, **environment})

    def test_two_checkouts_give_the_same_bytes(self):
        names = [sorted(path.relative_to(out).as_posix()
                        for path in out.rglob("*")) for out in self.outs]
        self.assertEqual(*names)
        for name in names[0]:
            first, other = (hashlib.sha256((out / name).read_bytes())
                            for out in self.outs)
            self.assertEqual(first.hexdigest(), other.hexdigest(), name)

    def test_everything_of_the_version_is_there_and_in_the_sums(self):
        names = {path.name for path in self.outs[0].iterdir()}
        for start, end in (("sluice-gateway_", r"\.deb"),
                           ("sluice-stage_", ".deb"),
                           ("sluice-expert_", ".deb"),
                           ("sluice-cli_", ".deb"),
                           ("sluice-demo-model_", ".deb"),
                           ("sluice-", r"\.tar\.[gx]z"),
                           ("sluice-", ".image.tar"),
                           ("sluice-", ".cdx.json")):
            matching = [name for name in names
                        if re.fullmatch(f"{start}.*{end}", name)]
            self.assertTrue(matching, (start, end, names))
            for name in matching:
                self.assertIn(VERSION, name)
        sums = (self.outs[0] / "SHA256SUMS").read_text()
        self.assertEqual(set(re.findall(r"^[0-9a-f]{64}  (.*)$", sums, re.M)),
                         names - {"SHA256SUMS", "SHA256SUMS.sig"})

    def check(self, folder, public, code=0):
        """Runs the commands of the page in the folder; returns the output."""
        page = (ROOT / "deploy/UPGRADING.md").read_text()
        (commands,) = re.findall(r"```\n(echo .*?)```", page, re.S)
        shutil.copy(public, folder / "release.pub")
        return run("bash", "-e", "-c", commands, cwd=folder, code=code)

    def test_sums_and_signature_hold_until_something_changes(self):
        told = self.check(self.outs[0], f"{self.key}.pub")
        self.assertIn('Good "file" signature', told)
        self.assertNotIn("FAILED", told)
        changed = self.folder / "changed"
        shutil.copytree(self.outs[0], changed)
        victim = changed / f"sluice-{VERSION}.cdx.json"
        whole = victim.read_bytes()
        victim.write_bytes(whole[:-1] + b" ")
        self.assertIn(f"{victim.name}: FAILED",
                      self.check(changed, f"{self.key}.pub", code=1))
        # An attacker can change the sums, and has no key to sign them.
        sums = changed / "SHA256SUMS"
        sums.write_text(re.sub(
            rf"^\w+(  {re.escape(victim.name)})$",
            hashlib.sha256(victim.read_bytes()).hexdigest() + r"\1",
            sums.read_text(), flags=re.M))
        self.assertIn("Could not verify signature",
                      self.check(changed, f"{self.key}.pub", code=255))
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
            self.folder / "other")
        self.assertIn("Could not verify signature", self.check(
            self.outs[0], self.folder / "other.pub", code=255))
        for folder in (*self.outs, changed):
            for name in ("release.pub", "signers"):
                (folder / name).unlink(missing_ok=True)

    def test_what_it_cannot_do_it_refuses(self):
        def refused(*words):
            return run(ROOT / "deploy/release", *words, code=1)
        self.assertIn("is no empty folder",
                      refused("--out", self.outs[0]))
        run("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f",
            self.folder / "ecdsa")
        none = self.folder / "none"
        self.assertIn("type ECDSA, it must be ED25519", refused(
            "--out", none, "--key", self.folder / "ecdsa"))
        self.assertIn("cannot be read", refused("--out", none, "--key",
                                                self.folder / "nothing"))
        self.assertIn("usage:", run(ROOT / "deploy/release", "--nope", code=2))
        self.assertFalse(none.exists())

    def image(self):
        (path,) = self.outs[0].glob("*.image.tar")
        return path

    def test_the_image_is_the_dockerfiles_and_starts(self):
        unpacked = self.folder / "layout"
        with tarfile.open(self.image()) as archive:
            archive.extractall(unpacked, filter="data")
        blobs = unpacked / "blobs/sha256"
        for blob in blobs.iterdir():
            self.assertEqual(hashlib.sha256(blob.read_bytes()).hexdigest(),
                             blob.name)
        (listed,) = json.loads((unpacked / "manifest.json").read_text())
        self.assertEqual(listed["RepoTags"], [f"sluice:{VERSION}"])
        image = json.loads((unpacked / listed["Config"]).read_text())
        config = image["config"]
        labels = config["Labels"]
        self.assertEqual(labels["org.opencontainers.image.version"], VERSION)
        self.assertEqual(labels["org.opencontainers.image.revision"],
                         run("git", "rev-parse", "HEAD", cwd=ROOT).strip())
        self.assertEqual(config["User"], "10001:10001")
        self.assertEqual(config["Healthcheck"]["Test"][:3],
                         ["CMD", "sluice", "probe"])
        self.assertEqual(config["Healthcheck"]["StartPeriod"], 600 * 10**9)
        (layer,) = listed["Layers"]
        root = self.folder / "image"
        with tarfile.open(unpacked / layer) as archive:
            members = {one.name: one for one in archive.getmembers()}
            archive.extractall(root, filter="tar")
        self.assertEqual((members["models"].uid, members["usr"].uid),
                         (10001, 0))
        self.assertIn("usr/share/sluice/sbom.cdx.json", members)
        if os.getuid() == 0:
            for program in ("sluice-gateway", "sluice-stage", "sluice-expert",
                            "sluice"):
                told = run("chroot", root, f"/usr/bin/{program}", "--version",
                           env={"PATH": os.environ["PATH"]})
                self.assertTrue(told.startswith(f"{program} {VERSION}\n"), told)

    def test_skopeo_reads_the_image_in_both_of_its_forms(self):
        if not shutil.which("skopeo"):
            self.skipTest("needs skopeo")
        for form in ("oci-archive", "docker-archive"):
            told = json.loads(run("skopeo", "inspect",
                                  f"{form}:{self.image()}"))
            self.assertEqual(
                told["Labels"]["org.opencontainers.image.version"], VERSION)
            run("skopeo", "--insecure-policy", "copy",
                f"{form}:{self.image()}", f"dir:{self.folder / form}")


if __name__ == "__main__":
    harness.main()
