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
MAX_CUDA_EXPOSURE = 1.7  # devices, written code and netlink are opened
# The drop-in for GPUs of a unit.
DROP_INS = {"sluice-stage@.service": "stage-cuda.conf",
            "sluice-expert@.service": "expert-cuda.conf"}
# What the drop-ins may set, beside DeviceAllow=.
OPENED = {"PrivateDevices": "no", "DevicePolicy": "closed",
          "SupplementaryGroups": "video", "MemoryDenyWriteExecute": "no",
          "Environment": "CUDA_CACHE_PATH=/var/cache/sluice/cuda",
          "ExecStartPre": "+-/usr/bin/nvidia-modprobe -u -c 0"}


def analyze(*words):
    return subprocess.run(["systemd-analyze", *words], capture_output=True,
                          text=True, timeout=120, check=False)


def value(unit, key):
    """The unit's last value of `key`."""
    lines = (FOLDER / unit).read_text().splitlines()
    return [line.split("=", 1)[1] for line in lines
            if line.startswith(key + "=")][-1]


def copy_units(folder):
    """Copies of the units in `folder`, which systemd finds no fault with where no
    binary is installed: verify wants each ExecStart to be there."""
    folder = pathlib.Path(folder)
    for path in [*FOLDER.glob("*.service"), *FOLDER.glob("*.target")]:
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true",
                      path.read_text(), flags=re.M)
        # systemd checks a template by its name alone.
        (folder / path.name).write_text(text)
    return folder


def exposure(path):
    done = analyze("security", "--offline=true", str(path))
    match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert match is not None, done.stdout + done.stderr
    print(path, "exposure", match[1])
    return float(match[1]), done.stdout


class UnitsTest(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("needs systemd-analyze (Debian's systemd)")

    def test_systemd_finds_no_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            done = analyze("verify", "--man=no", *(
                str(path) for path in copy_units(folder).iterdir()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_fault_would_be_found(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.service"
            bad.write_text("[Service]\nExecStart=/bin/true\nTypo=yes\n")
            self.assertIn("Typo", analyze("verify", str(bad)).stderr)

    def test_no_unit_gives_up_or_takes_the_whole_machine(self):
        for unit in UNITS:
            head, _, service = (FOLDER / unit).read_text().partition(
                "[Service]")
            self.assertIn("\nStartLimitIntervalSec=0\n", head)
            self.assertIn("\nRestart=", service)
            self.assertRegex(value(unit, "MemoryMax"), r"^[1-9]\d?%$")
            self.assertLessEqual(int(value(unit, "TasksMax")), 8192)

    def test_every_service_is_in_a_sandbox(self):
        self.assertEqual(len(UNITS), 3)
        for unit in UNITS:
            self.assertLessEqual(exposure(FOLDER / unit)[0], MAX_EXPOSURE)


class CudaDropInsTest(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("needs systemd-analyze (Debian's systemd)")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = copy_units(folder.name)
        for unit, name in DROP_INS.items():
            self.drop_in(unit).parent.mkdir()
            shutil.copy(FOLDER / name, self.drop_in(unit))

    def drop_in(self, unit):
        return self.folder / f"{unit}.d" / "50-cuda.conf"

    def verify(self):
        return analyze("verify", "--man=no", *(
            str(self.folder / unit) for unit in DROP_INS))

    def test_systemd_finds_no_fault_with_them(self):
        done = self.verify()
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_systemd_reads_them_and_would_find_a_fault(self):
        for unit in DROP_INS:
            with open(self.drop_in(unit), "a", encoding="ascii") as file:
                file.write("Typo=yes\n")
        said = self.verify().stderr
        for unit in DROP_INS:
            self.assertRegex(said, f"{unit}.d/50-cuda.conf:.*Typo")

    def test_they_open_nvidias_devices_and_all_else_stays_closed(self):
        for unit in DROP_INS:
            level, said = exposure(self.folder / unit)
            self.assertLessEqual(level, MAX_CUDA_EXPOSURE)
            self.assertGreater(level, exposure(FOLDER / unit)[0])
            self.assertRegex(said, "DeviceAllow= .*char-nvidia-uvm:rwm")
            # Netlink is for NCCL, which connects the GPUs of a stage.
            self.assertRegex(
                said, ("✗" if "stage" in unit else "✓")
                + r" RestrictAddressFamilies=~AF_NETLINK")
            for family in ("AF_PACKET", "…"):
                self.assertRegex(
                    said, f"✓ RestrictAddressFamilies=~{family}")

    def test_they_set_what_a_gpu_needs_and_nothing_else(self):
        for unit, name in DROP_INS.items():
            text = (FOLDER / name).read_text()
            lines = re.findall(r"^(\w+)=(.*)$",
                               text.split("[Service]")[1], re.M)
            devices = [line[1] for line in lines if line[0] == "DeviceAllow"]
            self.assertEqual(
                {device.split()[0] for device in devices},
                {f"char-nvidia{end}" for end in
                 ("", "ctl", "-frontend", "-uvm", "-caps")})
            rest = {key: word for key, word in lines if key != "DeviceAllow"}
            if "stage" in unit:
                self.assertEqual(rest.pop("RestrictAddressFamilies"),
                                 "AF_NETLINK")
            self.assertEqual(rest, OPENED)


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
