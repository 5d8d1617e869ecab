"""Measuring programs of tests/gpu/run: their lines of JSON, also where one ends
early or hangs, or where all of them are stopped."""
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
import typing

MOST_DEATHS = 8  # of the programs that look at one list of cases
OUT_OF_TIME = "out of time"
NO_SILENCE = 1e9  # seconds: a program may be silent until its end
_BEGUN = re.compile(r"^\[ RUN +\] (\S+)", re.M)
_DONE = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] ([^ ,]+).*\(\d+ ms\)$", re.M)


class Stopped(BaseException):
    """What runs ends now; why."""


class _Stop:
    """What stop() has done, and what it has to do."""
    why = None
    kills = []  # functions
    holds = 1  # above 0, stop() raises nothing in the main thread


class Ended(typing.NamedTuple):
    """How a program ended."""
    lines: list  # of JSON, read
    code: typing.Optional[int]  # None: it was killed
    said: str  # beside its lines
    why: str  # it was killed or not begun: "hangs", "out of time", what stop()
    # was told


def stop(why):
    """Kills all programs that run, and lets none begin until go_on(). In the
    main thread, which signals interrupt, raises Stopped within interruptible();
    not while lines_of() waits for a program, which ends by itself."""
    _Stop.why = why
    for kill in list(_Stop.kills):
        kill()
    if not _Stop.holds:
        raise Stopped(why)


def go_on():
    """Lets programs begin again."""
    _Stop.why = None


def stopped():
    """Why all programs are stopped; None if they are not."""
    return _Stop.why


@contextlib.contextmanager
def interruptible():
    """Within, stop() raises Stopped; also if it was called before."""
    with _holding(-1):
        _raise_if_stopped()
        yield


def uninterrupted():
    """Within, stop() raises nothing: what runs looks at stopped(), or ends with
    its programs."""
    return _holding(1)


def share(end, count):
    """Until when the first of `count` programs may run, of all until `end`."""
    now = time.monotonic()
    return now + (end - now) / count


@contextlib.contextmanager
def killed_by(kill):
    """Within, stop() calls `kill`. Raises Stopped if it was called before."""
    _Stop.kills.append(kill)
    try:
        _raise_if_stopped()
        yield
    finally:
        _Stop.kills.remove(kill)


@contextlib.contextmanager
def _holding(count):
    """Adds to the holds. Other threads are not interrupted, so have none."""
    count *= threading.current_thread() is threading.main_thread()
    _Stop.holds += count
    try:
        yield
    finally:
        _Stop.holds -= count


def _raise_if_stopped():
    if _Stop.why is not None:
        raise Stopped(_Stop.why)


def lines_of(command, log, end, silence, **options):
    """Runs a program until it ends, is silent for so many seconds, or
    time.monotonic() is `end`, or stop() is called; then it is killed, with what
    it started. All that it says is added to the file `log`. `options` are
    Popen's."""
    if stopped() is not None:
        return Ended([], None, "", stopped())
    lines, why = [], ""
    with _holding(1), open(log, "a", buffering=1, encoding="utf-8") as to, \
            tempfile.TemporaryFile("w+", errors="replace") as beside:
        to.write(f"$ {' '.join(map(str, command))}\n")
        try:
            program = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=beside, text=True,
                errors="replace", start_new_session=True, **options)
        except OSError as error:
            return Ended([], None, "", str(error))
        try:
            for line in _each(program, silence, end):
                to.write(line)
                # A program that is cut off may leave half a line.
                if line.startswith('{"') and line.endswith("}\n"):
                    lines.append(json.loads(line))
        except (TimeoutError, Stopped) as reason:
            why = str(reason)
        except ValueError as broken:
            why = f"a line that is no JSON: {broken}"
        finally:
            _kill(program)
        beside.seek(0)
        said = beside.read()
        to.write(said + "\n")
    return Ended(lines, None if why else program.returncode, said.strip(), why)


def _kill_group(program):
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _kill(program):
    """Kills what is left of a program's session."""
    _kill_group(program)
    program.wait()


def _each(program, silence, end):
    """A program's lines until it has ended. Raises TimeoutError, and Stopped."""
    # Its put() may interrupt its get(), as a signal does.
    coming = queue.SimpleQueue()

    def read():
        # Ends when the last process that has the pipe does, or is killed.
        with program.stdout as lines:
            for line in lines:
                coming.put(line)
        program.wait()
        coming.put(None)

    def kill():
        _kill_group(program)
        coming.put(None)

    threading.Thread(target=read, daemon=True).start()
    with killed_by(kill):
        while True:
            left = end - time.monotonic()
            try:
                line = coming.get(timeout=max(0.0, min(silence, left)))
            except queue.Empty:
                raise TimeoutError("hangs" if silence < left
                                   else OUT_OF_TIME) from None
            if line is None:
                _raise_if_stopped()
                return
            yield line


def look_at_cases(command, log, end, silence, env=None):
    """What device_check finds at its list of cases, and why that is not as it
    must be (None: it is). A case that ends the program, or hangs, has an entry
    "died"; the others are looked at all the same, until `end` or stop()."""
    with uninterrupted():
        return _look_at_cases(command, log, end, silence, env)


def _look_at_cases(command, log, end, silence, env):
    found, first, wrong = [], 0, None
    for _ in range(MOST_DEATHS):
        ended = lines_of([*command, str(first)], log, end, silence,
                         env=env)
        begun = [line for line in ended.lines if "begin" in line]
        done = any("end" in line for line in ended.lines)
        found += [line for line in ended.lines
                  if "begin" not in line and "end" not in line]
        if done and ended.code in (0, 1):
            return found, wrong or ('see "found"' if ended.code else None)
        how = ended.why or f"exit code {ended.code}"
        if ended.said:
            how += f": {ended.said.splitlines()[-1]}"
        if not begun:
            return found, wrong or how
        last = begun[-1]
        case = {key: value for key, value in last.items() if key != "begin"}
        shapes = f", {last['shapes']}" if "shapes" in last else ""
        tokens = f", {last['tokens']} tokens" if "tokens" in last else ""
        what = f"{last['op']}{shapes}{tokens}: {how}"
        if ended.why not in ("", "hangs"):
            return found, f"{wrong}; then {what}" if wrong else what
        found.append({**case, "died": how})
        wrong = wrong or what
        first = last["begin"] + 1
    return found, f"{MOST_DEATHS} cases died, the first: {wrong}"


def run_gtest(command, log, end, silence, **options):
    """What a test program's cases come to, and why that is not as it must be
    (None: it is). A case that ends the program, or hangs, stands in "died"; the
    others are run all the same, until `end` or stop()."""
    with uninterrupted():
        return _run_gtest(command, log, end, silence, options)


def _run_gtest(command, log, end, silence, options):
    before = log.stat().st_size if log.exists() else 0
    died, begun = {}, []
    for _ in range(MOST_DEATHS):
        others = [f"--gtest_filter=-{':'.join(begun)}"] if begun else []
        ended = lines_of([*command, *others], log, end, silence, **options)
        with open(log, "rb") as file:
            file.seek(before)
            text = file.read().decode(errors="replace")
        done = {name: how for how, name in _DONE.findall(text)}
        last, begun = len(begun), list(dict.fromkeys(_BEGUN.findall(text)))
        open_cases = [name for name in begun[last:] if name not in done]
        how = ended.why or f"exit code {ended.code}"
        if ended.said and ended.code not in (0, 1):
            how += f": {ended.said.splitlines()[-1]}"
        died.update((name, how) for name in open_cases)
        if not open_cases or ended.why not in ("", "hangs"):
            break
    found = {what.lower(): [name for name, how in done.items() if how == what]
             for what in ("FAILED", "SKIPPED")}
    found.update(passed=list(done.values()).count("OK"), died=died)
    wrong = [*found["failed"], *(f"{name} ({how})"
                                 for name, how in died.items())]
    if not wrong and ended.code != 0:
        wrong.append(how)
    return found, "; ".join(wrong) or None
