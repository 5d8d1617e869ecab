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
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
POLL_S = 0.005
PATIENCE_S = 120


def get(url, data=None):
    """The status of an answer; None without one."""
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def memory_of(pid):
    """{"rss_mib", "huge_mib"} of a process."""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(
            encoding="ascii").splitlines():
        for name, key in (("Rss:", "rss_mib"), ("AnonHugePages:", "huge_mib")):
            if line.startswith(name):
                found[key] = int(line.split()[1]) // 1024
    return found


def one_start(build, arguments, folder):
    """Seconds to /readyz and to an answer, and the stage's memory."""
    socket, port = folder / "stage.sock", folder / "port"
    for path in (socket, port):
        path.unlink(missing_ok=True)
    begin = time.monotonic()
    processes = []
    try:
        with open(folder / "log", "w", encoding="utf-8") as log:
            processes.append(subprocess.Popen(
                [build / "services/stage/sluice-stage", "--model",
                 arguments.model, "--listen", f"unix:{socket}", "--layers",
                 "auto", *arguments.stage_option], stderr=log))
            processes.append(subprocess.Popen(
                [build / "services/gateway/sluice-gateway", "--model",
                 arguments.model, "--stages", f"unix:{socket}", "--listen",
                 "127.0.0.1:0", "--port-file", port], stderr=log))
        while not port.exists():
            check(processes, begin, folder)
        url = "http://" + port.read_text(encoding="ascii").strip()
        while get(url + "/readyz") != 200:
            check(processes, begin, folder)
        ready = time.monotonic() - begin
        body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 1}).encode()
        status = get(url + "/v1/completions", body)
        if status != 200:
            raise SystemExit(f"the first request: {status}")
        return {"ready_s": ready, "answer_s": time.monotonic() - begin,
                **memory_of(processes[0].pid)}
    finally:
        for process in processes:
            process.kill()
            process.wait()


def check(processes, begin, folder):
    """Waits a moment; ends the run where nothing can come of it."""
    time.sleep(POLL_S)
    if time.monotonic() - begin > PATIENCE_S or any(
            process.poll() is not None for process in processes):
        raise SystemExit((folder / "log").read_text(encoding="utf-8"))


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
    with tempfile.TemporaryDirectory() as folder:
        starts = [one_start(arguments.build, arguments, pathlib.Path(folder))
                  for _ in range(arguments.runs + 1)]
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
