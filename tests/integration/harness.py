"""Clusters of real processes for tests, started as a person starts them.

Standard library alone. The binaries are those of SLUICE_BUILD_DIR (ctest sets
it to its own build folder), else of build/release.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = bool(os.environ.get("SLUICE_LONG"))
# Set by ctest where the binaries carry a sanitizer.
SANITIZED = bool(os.environ.get("SLUICE_SANITIZED"))
SKIPPED = 77  # ctest's SKIP_RETURN_CODE

os.environ.setdefault("SLUICE_BUILD_DIR", str(ROOT / "build" / "release"))


def golden(name):
    """Folder of the golden model `name` that tests/golden/make.py makes."""
    base = os.environ.get("SLUICE_GOLDEN") or ROOT / "build/golden"
    path = pathlib.Path(base) / name
    if not (path / "config.json").exists():
        raise AssertionError(f"no golden model {path}: tests/golden/make.py "
                             "makes it")
    return path


def test_data(relative):
    """Path within build/data; skips the test if it is absent."""
    base = os.environ.get("SLUICE_TEST_DATA") or ROOT / "build" / "data"
    path = pathlib.Path(base) / relative
    if not path.exists():
        raise unittest.SkipTest(f"needs build/data/{relative}, which "
                                "tests/test_data/fetch.py makes")
    return path


def default_model():
    """Path of SmolLM2 in the user's cache; skips if it was not fetched."""
    sys.path.insert(0, str(ROOT / "deploy" / "local" / "cluster"))
    try:
        import model
        path = model.default_path()
    finally:
        sys.path.pop(0)
    if not path.exists():
        raise unittest.SkipTest(f"needs the default model at {path} "
                                "(deploy/local/up fetches it)")
    return path


def read_safetensors(path):
    """{name: (shape, flat list)} of F32 and I64 tensors."""
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<Q", raw)[0]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        letter, width = {"F32": ("f", 4), "I64": ("q", 8)}[entry["dtype"]]
        values = struct.unpack(f"<{(end - begin) // width}{letter}",
                               raw[begin:end])
        tensors[name] = (entry["shape"], values)
    return tensors


def golden_answer(name, prompt=0):
    """(ids, greedy ids) of a golden model's prompt, by the reference."""
    tensors = read_safetensors(golden(name) / "expected.safetensors")
    return tuple(list(tensors[f"prompt_{prompt}.{key}"][1])
                 for key in ("ids", "greedy_ids"))


def wait_for(condition, seconds, what):
    """The first true value of condition(); fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def wait_until_free(argv, seconds=30):
    """Until the address of --listen, if argv has one, can be bound: whoever
    had it may still be ending, or another's outgoing connection is there. A
    socket file is whose lock is held."""
    listen = next((word.removeprefix("--listen=") if "=" in word else argv[at]
                   for at, word in enumerate(argv, 1)
                   if word.split("=")[0] == "--listen"), None)
    if listen is None:
        return
    if listen.startswith("unix:"):
        def unlocked():
            try:
                with open(listen[5:] + ".lock") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                return True
            except BlockingIOError:
                return False
            return True
        wait_for(unlocked, seconds, f"{listen} is free again")
        return
    host, port = listen.rsplit(":", 1)

    def free():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host.strip("[]"), int(port)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                return False
        return True
    wait_for(free, seconds, f"{listen} is free again")


class Cluster:
    """A cluster in a run folder of its own; a context manager."""

    UP = (ROOT / "deploy/local/up",)
    DOWN = (ROOT / "deploy/local/down",)

    def __init__(self, model, *options, environment=None, expect=0):
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.run_dir = self._folder.name
        self._environment = {**os.environ, **(environment or {})}
        self._started = []
        # Nothing is written beside the tests' models, stages work at the same
        # time whatever this machine's cores are, and what a test kills is dead
        # until the test starts it again.
        command = [*self.UP, "--model", model, "--port", "0", "--run-dir",
                   self.run_dir, "--detach", "--packed", "off",
                   "--max-plans-in-flight", "0", "--no-supervise", *options]
        self.up = subprocess.run(
            [str(word) for word in command], env=self._environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=900, check=False)
        if self.up.returncode != expect:
            message = (f"up ended with {self.up.returncode}:\n"
                       f"{self.up.stdout}{self.up.stderr}\n{self.logs()}")
            self.close()
            raise AssertionError(message)
        self.url = self.file["url"] if expect == 0 else None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and not issubclass(kind, unittest.SkipTest):
            print(self.logs(), file=sys.stderr)
        self.close()

    def close(self):
        self.down()
        for child in self._started:
            child.wait(30)
        self._folder.cleanup()

    def down(self):
        return subprocess.run(
            [str(word) for word in (*self.DOWN, "--run-dir", self.run_dir)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False).returncode

    @property
    def file(self):
        return json.loads(
            (pathlib.Path(self.run_dir) / "cluster.json").read_text())

    def process(self, role, index=0):
        return next(entry for entry in self.file["processes"]
                    if (entry["role"], entry["index"]) == (role, index))

    def kill(self, role, index=0, number=signal.SIGKILL):
        os.kill(self.process(role, index)["pid"], number)

    @contextlib.contextmanager
    def stopped(self, role, index=0):
        """A process that stands still meanwhile."""
        pid = self.process(role, index)["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def restart(self, role, index=0, *options):
        """Starts a process again from what cluster.json tells alone, with
        `options` besides."""
        entry = self.process(role, index)
        wait_until_free(entry["argv"])
        with open(entry["log"], "ab") as log:
            child = subprocess.Popen(
                [*entry["argv"], *options], env=entry["environment"], stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self._started.append(child)
        return child

    def logs(self, lines=30):
        out = []
        for path in sorted(pathlib.Path(self.run_dir).glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            out.append(f"--- {path.name}\n" + "\n".join(tail))
        return "\n".join(out)


@contextlib.contextmanager
def measured(what):
    """Prints how long the block took."""
    begin = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begin:.2f} s", flush=True)


def main():
    """unittest's main, that ends with SKIPPED if tests were skipped, a class of
    them at once or each, and no other passed."""
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    # A class that skips as a whole is not among the tests that ran.
    single = sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    if result.skipped and result.testsRun <= single:
        sys.exit(SKIPPED)
    sys.exit(0)
