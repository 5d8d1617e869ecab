"""Tests of fetch.py with an npm of this test, which gives an archive of its
own."""

import contextlib
import hashlib
import io
import os
import pathlib
import tarfile
import tempfile
import unittest
from unittest import mock

import fetch

NPM = """#!/bin/sh
echo called >>"$CALLS"
[ -n "$ARCHIVE" ] || { echo "npm error network" >&2; exit 1; }
cp "$ARCHIVE" .
"""
WORDS = b"two words"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class FetchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.into = self.folder / "data"
        archive = self.folder / "words-1.tgz"
        with tarfile.open(archive, "w:gz") as out:
            member = tarfile.TarInfo("package/words.txt")
            member.size = len(WORDS)
            out.addfile(member, io.BytesIO(WORDS))
        npm = self.folder / "bin/npm"
        npm.parent.mkdir()
        npm.write_text(NPM)
        npm.chmod(0o755)
        environment = mock.patch.dict(os.environ, {
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PATH": f"{npm.parent}:{os.environ['PATH']}",
            "CALLS": str(self.folder / "calls"), "ARCHIVE": str(archive)})
        environment.start()
        self.addCleanup(environment.stop)
        self.archive_sum = sha256(archive.read_bytes())

    def fetch(self, archive_sum=None, file_sum=sha256(WORDS),
              path="words.txt"):
        """Exit status and what is said."""
        table = self.folder / "packages.toml"
        table.write_text(
            '[[package]]\nregistry = "npm"\nname = "words"\nversion = "1"\n'
            f'sha256 = "{archive_sum or self.archive_sum}"\n'
            'within = "package/"\n'
            f'files = [["{path}", "texts/a.txt", "{file_sum}"]]\n')
        said = io.StringIO()
        with mock.patch.object(fetch, "TABLE", table), \
                contextlib.redirect_stderr(said):
            return fetch.main([str(self.into)]), said.getvalue()

    def calls(self):
        path = self.folder / "calls"
        return len(path.read_text().split()) if path.exists() else 0

    def test_a_file_is_fetched_once(self):
        for _ in range(2):
            self.assertEqual(self.fetch()[0], 0)
            self.assertEqual((self.into / "texts/a.txt").read_bytes(), WORDS)
        (self.into / "texts/a.txt").write_bytes(b"changed")
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual((self.into / "texts/a.txt").read_bytes(), WORDS)
        self.assertEqual(self.calls(), 1)

    def test_a_damaged_cache_is_fetched_again(self):
        self.fetch()
        (fetch.cache_folder() / sha256(WORDS)).write_bytes(b"x")
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.calls(), 2)

    def test_what_an_earlier_table_named_goes(self):
        self.fetch()
        old = self.into / "others/old.txt"
        old.parent.mkdir(parents=True)
        old.write_text("old")
        placed = self.into / fetch.PLACED
        placed.write_text(placed.read_text() + "others/old.txt\n")
        own = self.into / "own.txt"
        own.write_text("not of fetch.py")
        self.fetch()
        self.assertFalse(old.parent.exists())
        self.assertTrue(own.exists())

    def test_a_folder_of_others_is_refused_and_stays(self):
        self.into.mkdir()
        (self.into / "own.txt").write_text("not of fetch.py")
        with self.assertRaisesRegex(SystemExit, "did not make it"):
            self.fetch()
        self.assertEqual([path.name for path in self.into.iterdir()], ["own.txt"])
        with self.assertRaises(SystemExit):
            fetch.main(["--help"])

    def check_refused(self, expected, **options):
        status, said = self.fetch(**options)
        self.assertEqual(status, 1)
        self.assertIn(expected, said)
        self.assertEqual(len([line for line in said.splitlines()
                              if line.startswith("no words 1: ")]), 1)
        self.assertFalse((self.into / "texts/a.txt").exists())

    def test_an_archive_of_another_sum_is_refused(self):
        self.check_refused(f"SHA-256 is {self.archive_sum}",
                           archive_sum="0" * 64)

    def test_a_file_of_another_sum_is_refused(self):
        self.check_refused(f"words.txt has SHA-256 {sha256(WORDS)}",
                           file_sum="0" * 64)

    def test_a_file_that_the_archive_lacks_is_told(self):
        self.check_refused("no package/none.txt", path="none.txt")

    def test_no_network_is_one_line_a_package(self):
        with mock.patch.dict(os.environ, {"ARCHIVE": ""}):
            self.check_refused("npm error network")


if __name__ == "__main__":
    unittest.main()
