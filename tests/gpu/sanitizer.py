"""Every operation under compute-sanitizer, in both numerics: what a call has no time
for, the next one goes on with."""
import os
import pathlib
import re
import shutil
import sys
import time

import binaries
import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
# initcheck comes last: a read that it names may be of padding, which a kernel loads
# and does not use.
RUNS = [(tool, what)
        for tool in ("memcheck", "racecheck", "synccheck", "initcheck")
        for what in ("check-small", "check-fast-small")]
FOUND = 9  # its exit code where it finds something
# Seconds in which a case ends, even under racecheck: one that an earlier call had
# begun, too, and takes as many of a call by itself.
STUCK = 120
# What it says, but for titles and sums of nothing.
_SAID = re.compile(r"^=+ (?!COMPUTE|[A-Z ]*SUMMARY: 0\b)(\S.*)$", re.M)


def folders():
    """Where it may be beside the path: those of toolkits, and of wheels."""
    toolkits = [*filter(None, [os.environ.get("CUDA_HOME")]), "/usr/local/cuda"]
    wheels = [*(ROOT / "build/venv-cuda/lib").glob("python3*/site-packages"),
              *map(pathlib.Path, sys.path)]
    return [*(pathlib.Path(toolkit) / name for toolkit in toolkits
              for name in ("bin", "compute-sanitizer")),
            *(wheel / "nvidia/cu13/bin" for wheel in wheels
              # Those before 13.4 lack what starts the program.
              if (wheel / "nvidia/cu13/compute-sanitizer").is_dir())]


def find():
    """The program's path; None without one."""
    places = [os.environ.get("PATH", os.defpath), *map(str, folders())]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def measure(tool, command, out, end, before):
    """Looks, until time.monotonic() is `end`, at what was not looked at `before`,
    which is an earlier call's result, or {}. `command` is device_check with its
    device. Returns what the part's file has, what is wrong, and what is
    unfinished, as texts."""
    with programs.uninterrupted():
        return _measure(tool, command, out, end, before)


def _measure(tool, command, out, end, before):
    binary = binaries.identity(command[0])
    runs = dict(before.get("runs", {})) \
        if before.get("binary") == binary else {}
    # What was not tried, what goes on, what found something.
    todo = sorted((key for key in map(" ".join, RUNS)
                   if runs.get(key, {}).get("result") != 0),
                  key=lambda key: (key in runs, "result" in runs.get(key, {})))
    for at, key in enumerate(todo):
        name, what = key.split()
        earlier = {} if "result" in runs.get(key, {}) else runs.get(key, {})
        runs[key] = _run(
            [tool, "--tool", name, "--error-exitcode", str(FOUND), *command,
             what], out / f"sanitizer-{name}-{what}.log",
            programs.share(end, len(todo) - at), earlier)
    wrong = [f"{key}: {run.get('result', run.get('said'))}"
             for key, run in runs.items()
             if run.get("result", 0) != 0 or "said" in run]
    unfinished = [f"{key}: goes on at case {run['next']}"
                  for key, run in runs.items() if "result" not in run]
    return {"tool": str(tool), "binary": binary, "runs": runs}, wrong, unfinished


def _run(command, log, end, earlier):
    """What comes of one run: {"result": 0, or what is wrong}, or {"next": the first
    case that is to be looked at} with what was "said" so far."""
    first = earlier.get("next", 0)
    size = log.stat().st_size if log.exists() else 0
    start = time.monotonic()
    ended = programs.lines_of([*command, str(first)], log, end,
                              programs.NO_SILENCE)
    text = ""
    if log.exists():
        with open(log, "rb") as file:
            file.seek(size)
            text = file.read().decode(errors="replace")
    found = _SAID.search(text)
    said = earlier.get("said") or (found[1] if found else None)
    if ended.why and ended.why in (programs.OUT_OF_TIME, programs.stopped()):
        reached = max((line["begin"] for line in ended.lines if "begin" in line),
                      default=first)
        begun = any(line.get("begin") == reached for line in ended.lines)
        if begun and earlier.get("next") == reached and \
                time.monotonic() - start >= STUCK:
            said = said or f"case {reached} does not end"
            reached += 1
        return {"next": reached, **({"said": said} if said else {})}
    how = ended.why or ended.code
    if said is None and not any("end" in line for line in ended.lines):
        said = "it ended before its last case"
    return {"result": f"{how}: {said} (see {log})" if said else how}
