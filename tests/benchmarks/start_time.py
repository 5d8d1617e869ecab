#!/usr/bin/env python3
"""How long a stage and a gateway take from their start to /readyz and to a
first token, and how much memory the stage then has.

The first start is apart: it writes the packed weights where they are missing,
and reads the files into the page cache. Goal, for a packed 1 B model with a
warm page cache: below 1 s to /readyz.

Usage: tests/benchmarks/start_time.py MODEL [--runs 7] [--build DIR]
       [--stage-option=--kv-blocks=2048]... [--json FILE]
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import machine
from processes import ROOT, Pair, get


def memory_of(pid):
    """{"rss_mib", "huge_mib"} of a process."""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(
            encoding="ascii").splitlines():
        for name, key in (("Rss:", "rss_mib"), ("AnonHugePages:", "huge_mib")):
            if line.startswith(name):
                found[key] = int(line.split()[1]) // 1024
    return found


def one_start(arguments):
    """Seconds to /readyz and to an answer, and the stage's memory."""
    with Pair(arguments.build, arguments.model,
              arguments.stage_option) as pair:
        ready = time.monotonic() - pair.begun
        body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 1}).encode()
        status = get(pair.url + "/v1/completions", body)
        if status != 200:
            raise SystemExit(f"the first request: {status}")
        return {"ready_s": ready, "answer_s": time.monotonic() - pair.begun,
                **memory_of(pair.stage.pid)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--build", type=pathlib.Path,
                        default=ROOT / "build/release")
    parser.add_argument("--stage-option", action="append", default=[])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    found = {"machine": machine.describe(), "command": sys.argv,
             "date": time.strftime("%Y-%m-%d")}
    starts = [one_start(arguments) for _ in range(arguments.runs + 1)]
    found["first"], found["starts"] = starts[0], starts[1:]
    for name in ("ready_s", "answer_s"):
        values = [start[name] for start in starts[1:]]
        print(f"{name}: first start {starts[0][name]:.2f}, then median "
              f"{statistics.median(values):.2f}, "
              f"{min(values):.2f} to {max(values):.2f}")
    print(f"stage: {starts[-1]['rss_mib']} MiB resident, "
          f"{starts[-1]['huge_mib']} MiB of them in huge pages")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n",
                                  encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
