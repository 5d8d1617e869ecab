"""Debian's Prometheus and Alertmanager: the system's, or build/prometheus's,
which tests/run unpacks."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "prometheus" / "usr" / "bin"
SHARE = UNPACKED.parent / "share"
DEFAULT_TEMPLATE = pathlib.Path("/usr/share/prometheus/alertmanager/"
                                "default.tmpl")
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def find(name):
    """The program's path, or None."""
    found = shutil.which(name) or UNPACKED / name
    return str(found) if os.access(found, os.X_OK) else None


def need(*names):
    """Paths of the programs; ends the test as skipped without one."""
    missing = [name for name in names if not find(name)]
    if missing:
        print(f"skipped: needs {', '.join(missing)} (Debian's prometheus and "
              "prometheus-alertmanager, which tests/run unpacks)")
        sys.exit(SKIPPED)
    return [find(name) for name in names]


def alertmanager():
    """Alertmanager's command line. An unpacked one sees its templates, whose
    path is fixed, in a mount namespace of its own."""
    program, = need("prometheus-alertmanager")
    if DEFAULT_TEMPLATE.exists():
        return [program]
    unshare, = need("unshare")
    user = [] if os.geteuid() == 0 else ["-r"]
    command = [unshare, "-m", *user, "sh", "-c",
               f"mount -t overlay overlay -o lowerdir={SHARE}:/usr/share "
               '/usr/share && exec "$@"', "sh"]
    done = subprocess.run([*command, "true"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        print("skipped: Debian's prometheus-alertmanager is not installed, and "
              f"its templates cannot be mounted: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    return [*command, program]
