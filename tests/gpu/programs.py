"""Measuring programs of tests/gpu/run: their lines of JSON, also where one ends
early or hangs."""
import json
import queue
import subprocess
import tempfile
import threading
import time

LIMIT = 590  # seconds of a program
SILENCE = 180  # seconds without a line, after which it hangs
MOST_DEATHS = 8  # of the programs that look at one list of cases


def lines_of(command, log, env=None, silence=None):
    """A program's JSON lines, its exit code (None: it hung, or ran out of time,
    and was killed) and what it said beside them. All of it is added to the file
    `log`."""
    lines, code, end = [], None, time.monotonic() + LIMIT
    silence = SILENCE if silence is None else silence
    with open(log, "a", encoding="utf-8") as to, \
            tempfile.TemporaryFile("w+", errors="replace") as beside:
        to.write(f"$ {' '.join(map(str, command))}\n")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=beside,
                              text=True, env=env) as program:
            try:
                for line in _each(program.stdout, silence, end):
                    to.write(line)
                    # A program that is cut off may leave half a line.
                    if line.startswith("{") and line.endswith("}\n"):
                        lines.append(json.loads(line))
                code = program.wait(max(0.1, end - time.monotonic()))
            except (TimeoutError, subprocess.TimeoutExpired):
                pass
            finally:
                program.kill()
        beside.seek(0)
        said = beside.read()
        to.write(said + "\n")
    return lines, code, said.strip()


def _each(stream, silence, end):
    """The lines of a stream. Raises TimeoutError."""
    coming = queue.Queue()

    def read():
        for line in stream:
            coming.put(line)
        coming.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        left = min(silence, end - time.monotonic())
        try:
            line = coming.get(timeout=max(0.0, left))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            return
        yield line


def look_at_cases(command, log, env=None, silence=None):
    """What device_check finds at its list of cases, and why that is not as it
    must be (None: it is). A case that ends the program, or hangs, has an entry
    "died"; the others are looked at all the same."""
    found, first, wrong = [], 0, None
    for _ in range(MOST_DEATHS):
        lines, code, said = lines_of([*command, str(first)], log, env, silence)
        begun = [line for line in lines if "begin" in line]
        found += [line for line in lines if "begin" not in line]
        if code == 0:
            return found, wrong
        if code == 1:
            return found, wrong or "see \"found\""
        how = "hangs" if code is None else f"exit code {code}"
        how += f": {said.splitlines()[-1]}" if said else ""
        if not begun:
            return found, how
        last = begun[-1]
        found.append({"op": last["op"], "tokens": last["tokens"], "died": how})
        wrong = wrong or f"{last['op']}, {last['tokens']} tokens: {how}"
        first = last["begin"] + 1
    return found, f"{MOST_DEATHS} cases died, the first: {wrong}"
