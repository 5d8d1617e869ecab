#!/usr/bin/env python3
"""What a token costs in figures that other processes do not change:
instructions and allocations of a stage and of a gateway. (`sluice bench layers`
tells how often threads meet in a step, and the bytes that a step reads.)

One of both runs under callgrind, which knows AVX2 and no AVX-512, so the
kernels are the AVX2 ones. The stage has one thread. The counts of a warm
interval of N tokens of each stream, 16 N for the gateway, are divided by the
tokens: prompts are two tokens. A gateway also works by the clock, a little.

Usage: tests/benchmarks/instructions.py MODEL [--tokens 64] [--streams 1,8]
       [--build DIR] [--json FILE]
Needs valgrind (Debian: valgrind).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import machine
from processes import ROOT, Pair, get

# Calls of these are allocations; new and calloc of C++ and Rust end in them.
ALLOCATORS = re.compile(r"(malloc|calloc|realloc|memalign|aligned_alloc|"
                        r"posix_memalign)(@@?.*)?('\d+)?$")
CALLGRIND = ["valgrind", "--tool=callgrind", "--compress-strings=yes",
             "--callgrind-out-file=callgrind.out.%p"]


def counts_of(path):
    """{"instructions", "allocations"} of callgrind's file."""
    names, found = {}, {"instructions": 0, "allocations": 0}
    called = None
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        if line.startswith("totals:"):
            found["instructions"] = int(line.split()[1])
        match = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line)
        if match:
            if match[3]:
                names[match[2]] = match[3]
            if match[1] == "cfn":
                called = names[match[2]]
        elif line.startswith("calls=") and called:
            if ALLOCATORS.match(called):
                found["allocations"] += int(line[len("calls="):].split()[0])
    return found


def control(option, pid, folder):
    subprocess.run(["callgrind_control", option, str(pid)], cwd=folder,
                   check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def answer(url, tokens):
    body = json.dumps({"prompt": [1, 2], "max_tokens": tokens, "stream": True,
                       "ignore_eos": True, "temperature": 0}).encode()
    status = get(url + "/v1/completions", body, seconds=3000)
    if status != 200:
        raise SystemExit(f"a request: {status}")


def measure(pair, name, streams, tokens, keep):
    """Counts per token of the process `name`, of `streams` answers at once."""
    process = getattr(pair, name)
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        def run(count):
            list(pool.map(lambda _: answer(pair.url, count), range(streams)))
        run(4)
        control("--zero", process.pid, pair.folder)
        run(tokens)
    before = set(pair.folder.glob("callgrind.out.*"))
    control("--dump", process.pid, pair.folder)
    until = time.monotonic() + 60
    while True:
        whole = [path for path in
                 set(pair.folder.glob("callgrind.out.*")) - before
                 if "totals:" in path.read_text("utf-8", "replace")]
        if whole:
            break
        if time.monotonic() > until:
            raise SystemExit(f"no counts of the {name} came")
        time.sleep(0.1)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copy(whole[0], keep / f"callgrind.out.{name}.{streams}")
    return {key: count / (streams * tokens)
            for key, count in counts_of(whole[0]).items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--build", type=pathlib.Path,
                        default=ROOT / "build/release")
    parser.add_argument("--keep", type=pathlib.Path,
                        help="a folder for the counts, "
                        "for callgrind_annotate")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if not shutil.which("callgrind_control"):
        raise SystemExit("needs valgrind: apt-get install valgrind")
    arguments.build = arguments.build.resolve()
    found = {"machine": machine.describe(), "command": sys.argv,
             "date": time.strftime("%Y-%m-%d"), "per token": {}}
    for name, tokens in (("stage", arguments.tokens),
                         ("gateway", 16 * arguments.tokens)):
        with Pair(arguments.build, os.path.abspath(arguments.model),
                  ["--threads", "1", "--kv-blocks", "1024",
                   "--peer-timeout", "300"],
                  ["--peer-timeout", "300", "--ahead-ms", "0"],
                  {name: CALLGRIND}, patience_s=1200) as pair:
            for streams in map(int, arguments.streams.split(",")):
                counts = measure(pair, name, streams, tokens, arguments.keep)
                found["per token"][f"{name}, {streams} streams"] = counts
                print(f"{name:8}{streams:3} streams"
                      f"{counts['instructions']:14,.0f} instructions "
                      f"{counts['allocations']:8.1f} allocations", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n",
                                  encoding="utf-8")


if __name__ == "__main__":
    main()
