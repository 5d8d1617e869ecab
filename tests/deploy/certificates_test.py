"""The certificates of a cluster: names, roles, what is made when."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ROOT / "deploy/local/certificates"


def run(*words):
    return subprocess.run([str(word) for word in (COMMAND, *words)],
                          capture_output=True, text=True, check=False)


def shown(path):
    return subprocess.run(["openssl", "x509", "-in", str(path), "-noout",
                           "-text"], capture_output=True, text=True,
                          check=True).stdout


class CertificatesTest(unittest.TestCase):
    def setUp(self):
        if not shutil.which("openssl"):
            self.skipTest("needs the openssl command")
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "tls")

    def test_each_role_of_each_host_has_its_own(self):
        done = run(self.folder, "--host", "a=10.0.0.1", "--host",
                   "b=b.example,::1", "--roles", "gateway,stage")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         sorted(["ca.key", "ca.pem", *(
                             f"{host}-{role}.{end}" for host in "ab"
                             for role in ("gateway", "stage")
                             for end in ("key", "pem"))]))
        for path in self.folder.iterdir():
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)
        for role in ("gateway", "stage"):
            text = shown(self.folder / f"b-{role}.pem")
            self.assertEqual(re.findall(r"URI:(\S+?),", text),
                             [f"sluice://role/{role}"])
            self.assertIn("DNS:b.example", text)
            self.assertIn("IP Address:0:0:0:0:0:0:0:1", text)
        checked = subprocess.run(
            ["openssl", "verify", "-CAfile", self.folder / "ca.pem",
             self.folder / "a-stage.pem"], capture_output=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_what_is_there_stays_unless_renewed(self):
        one = ("--host", "a=10.0.0.1", "--roles", "stage")
        run(self.folder, *one)
        files = {path.name: path.read_bytes()
                 for path in self.folder.iterdir()}
        again = run(self.folder, *one)
        self.assertEqual((again.returncode, again.stdout), (0, ""))
        self.assertEqual(files, {path.name: path.read_bytes()
                                 for path in self.folder.iterdir()})
        renewed = run(self.folder, *one, "--renew")
        self.assertEqual(renewed.stdout, f"{self.folder}/a-stage.pem\n")
        for name, old in files.items():
            same = (self.folder / name).read_bytes() == old
            self.assertEqual(same, name.startswith("ca."), name)

    def test_other_addresses_and_a_near_end_make_another(self):
        def made(*addresses, days=90):
            return run(self.folder, "--host", "a=" + ",".join(addresses),
                       "--roles", "stage", "--days", days).stdout
        told = f"{self.folder}/a-stage.pem\n"
        self.assertIn(told, made("10.0.0.1", "fe80::0:1"))
        self.assertEqual(made("fe80::1", "10.0.0.1"), "")
        self.assertEqual(made("10.0.0.1"), told)
        self.assertEqual(made("10.0.0.2", days=6), told)
        self.assertNotIn("10.0.0.1", shown(self.folder / "a-stage.pem"))
        self.assertEqual(made("10.0.0.2"), told)
        self.assertEqual(made("10.0.0.2"), "")
        (self.folder / "a-stage.pem").write_text("no certificate")
        self.assertEqual(made("10.0.0.2"), told)

    def test_bad_options_are_named(self):
        for words, told in ((("--host", "a"), "NAME=ADDRESS"),
                            (("--host", "a=x,URI:y z"), "NAME=ADDRESS"),
                            (("--host", "a=x", "--roles", "king"), "'king'"),
                            (("--host", "a=x", "--days", "0"), "--days")):
            done = run(self.folder, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(told, done.stderr)
            self.assertFalse(self.folder.exists())

    def test_an_authority_without_its_key_signs_nothing(self):
        run(self.folder, "--host", "a=10.0.0.1")
        (self.folder / "ca.key").unlink()
        done = run(self.folder, "--host", "b=10.0.0.2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ca.key is missing", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
