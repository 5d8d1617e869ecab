"""What a figure means nothing without: the CPU, its flags, and the bandwidth
at which its cores read memory, measured in the same run."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Those that say how fast it computes.
_TOLD = ("avx", "fma", "f16c", "amx")


def describe(*options):
    """{"cpu", "cores", "cpu_flags", "read_gb_per_s", "load_average"} of this
    machine, printed too; takes a second. For when nothing else runs.
    `options`: machine_bench's. Builds it if it is not there."""
    load = os.getloadavg()[0]
    done = subprocess.run([_binary(), *options], capture_output=True,
                          text=True, check=True)
    found = parse(done.stdout)
    found["load_average"] = load
    print(f"{found['cpu']}, {found['cores']} cores, "
          f"{' '.join(found['cpu_flags'])}; {found['read_gb_per_s']} GB/s "
          "read", flush=True)
    return found


def parse(text):
    """What machine_bench printed, as a dictionary; ValueError if it is not
    that."""
    match = re.fullmatch(r"CPU: (.*), (\d+) cores\nflags: (.*)\n"
                         r"read bandwidth: ([\d.]+) GB/s, .*\n", text)
    if not match:
        raise ValueError(f"not what machine_bench prints: {text!r}")
    return {"cpu": match[1], "cores": int(match[2]),
            "cpu_flags": [flag for flag in match[3].split()
                          if flag.startswith(_TOLD)],
            "read_gb_per_s": float(match[4])}


def _binary():
    default = ROOT / "build" / "release"
    build = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR") or default)
    path = build / "tests/benchmarks/machine/machine_bench"
    if not path.exists() and build == default:
        subprocess.run(
            ["bash", "-c", "set -euo pipefail; source deploy/local/lib.sh; "
             "sluice_build release machine_bench"], cwd=ROOT, check=True,
            stdout=sys.stderr)
    if not path.exists():
        sys.exit(f"{path} is not built")
    return path
