"""The units are what systemd takes, keep services in a sandbox, and name options
and stop times that the services have."""

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

FOLDER = harness.ROOT / "deploy/systemd"
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
MAX_EXPOSURE = 1.5  # of 10, as systemd-analyze counts


def analyze(*words):
    return subprocess.run(["systemd-analyze", *words], capture_output=True,
                          text=True, timeout=120, check=False)


def value(unit, key):
    """The unit's last value of `key`."""
    lines = (FOLDER / unit).read_text().splitlines()
    return [line.split("=", 1)[1] for line in lines
            if line.startswith(key + "=")][-1]


class UnitsTest(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("needs systemd-analyze (Debian's systemd)")

    def test_systemd_finds_no_fault(self):
        # verify wants each ExecStart to be there: a file stands for it.
        with tempfile.TemporaryDirectory() as folder:
            for path in [*FOLDER.glob("*.service"), *FOLDER.glob("*.target")]:
                text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true",
                              path.read_text(), flags=re.M)
                # systemd checks a template by its name alone.
                (pathlib.Path(folder) / path.name).write_text(text)
            done = analyze("verify", "--man=no", *(
                str(path) for path in pathlib.Path(folder).iterdir()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_fault_would_be_found(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.service"
            bad.write_text("[Service]\nExecStart=/bin/true\nTypo=yes\n")
            self.assertIn("Typo", analyze("verify", str(bad)).stderr)

    def test_every_service_is_in_a_sandbox(self):
        self.assertEqual(len(UNITS), 3)
        for unit in UNITS:
            done = analyze("security", "--offline=true", str(FOLDER / unit))
            match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
            self.assertIsNotNone(match, done.stdout + done.stderr)
            print(unit, "exposure", match[1])
            self.assertLessEqual(float(match[1]), MAX_EXPOSURE)


class StopTimesTest(unittest.TestCase):
    def test_systemd_waits_as_long_as_the_table_says(self):
        table = (harness.ROOT / "services/README.md").read_text()
        for name, unit in (("gateway", "sluice-gateway.service"),
                           ("stage", "sluice-stage@.service"),
                           ("expert", "sluice-expert@.service")):
            row = re.search(rf"^\| `sluice-{name}` \|[^|]*\|[^|]*\| (\d+)",
                            table, re.M)
            self.assertEqual(value(unit, "TimeoutStopSec"), row[1])


class OptionsTest(unittest.TestCase):
    def test_the_services_know_every_option_of_the_packaged_files(self):
        binaries = pathlib.Path(harness.os.environ["SLUICE_BUILD_DIR"])
        for name in ("gateway", "stage-0", "expert-0"):
            service = name.split("-")[0]
            binary = binaries / "services" / service / f"sluice-{service}"
            text = (FOLDER / f"{name}.toml").read_text()
            # Examples in comments are options, too.
            text = re.sub(r"^#   ", "", text, flags=re.M)
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(re.sub(r'^model = .*', 'model = "/nowhere"', text,
                                  flags=re.M))
                file.flush()
                done = subprocess.run([binary, "--config", file.name],
                                      capture_output=True, text=True,
                                      timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertNotIn("no option", done.stderr)
            self.assertRegex(done.stderr, "nowhere|credentials")


if __name__ == "__main__":
    harness.main()
