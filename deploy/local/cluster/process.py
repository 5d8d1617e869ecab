"""The processes of a cluster: starting, finding, stopping."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import time

# A process gets these variables of ours and no others, so that what
# cluster.json tells is enough to start it again.
PASSED_NAMES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ",
                "LD_LIBRARY_PATH", "LD_PRELOAD")
PASSED_PREFIXES = ("SLUICE_", "GRPC_", "ASAN_", "UBSAN_", "LSAN_", "TSAN_",
                   "MALLOC_", "GLIBC_")


# The server's keys, which `up` writes to a file of mode 0600, and a client's.
# Both are kept out of cluster.json.
KEYS_NAME = "SLUICE_API_KEYS"
SECRET_NAMES = (KEYS_NAME, "SLUICE_API_KEY")


def passed_environment():
    return {name: value for name, value in sorted(os.environ.items())
            if name not in SECRET_NAMES and (
                name in PASSED_NAMES or name.startswith(PASSED_PREFIXES))}


@dataclasses.dataclass
class Process:
    """One process as cluster.json lists it. `pid` is of its latest start."""

    role: str  # "stage", "spare", "gateway" or "expert"
    index: int
    argv: list
    environment: dict
    addresses: list  # "host:port" or "unix:PATH" it serves on
    metrics_address: str
    log: str
    pid: int = 0

    @property
    def name(self):
        return self.role if (self.role, self.index) == ("gateway", 0) \
            else f"{self.role} {self.index}"

    def start(self):
        """Starts it in a session of its own: a terminal's Ctrl-C reaches
        only `up`, which drains. Its output is appended to the log."""
        with open(self.log, "ab") as log:
            child = subprocess.Popen(
                self.argv, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True)
        self.pid = child.pid
        # A moment passes until the kernel shows a new program's argv.
        while command_line(child.pid) != self.argv and child.poll() is None:
            time.sleep(0.001)

    def find(self):
        """Pid of the running process with exactly our argv (also one that a
        person started again by hand), else 0. argv holds a path within the
        run folder, so a reused pid or another cluster never matches."""
        if self.pid and command_line(self.pid) == self.argv:
            return self.pid
        for entry in os.listdir("/proc"):
            if entry.isdigit() and command_line(int(entry)) == self.argv:
                return int(entry)
        return 0

    def log_tail(self, lines=15):
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, os.path.getsize(self.log) - 16384))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def command_line(pid):
    """argv of a live process; None if it is gone or only awaits its
    parent."""
    try:
        raw = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return [os.fsdecode(part) for part in raw.split(b"\0")[:-1]]


def is_ours(record):
    """Whether the {"pid", "argv"} record names a live process."""
    return bool(record) and command_line(record["pid"]) == record["argv"]


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def terminate(record, seconds):
    """SIGTERM to the process of a {"pid", "argv"} record, SIGKILL if it is
    still there after `seconds`."""
    _signal(record["pid"], signal.SIGTERM)
    end = time.monotonic() + seconds
    while is_ours(record):
        if time.monotonic() >= end:
            _signal(record["pid"], signal.SIGKILL)
            return
        time.sleep(0.02)


def _wait_gone(processes, seconds, hurry):
    """True once none of `processes` runs; False after `seconds`, or at once
    when `hurry()` says so."""
    end = time.monotonic() + seconds
    while any(process.find() for process in processes):
        if time.monotonic() >= end or hurry():
            return False
        reap()
        time.sleep(0.02)
    return True


def reap():
    """Collects children that ended, so that their pids are free."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def stop_all(processes, say, drain_seconds=35, hurry=lambda: False):
    """Drains and stops: the gateways first, which end their streams, then the
    stages, then the expert hosts. Kills processes that do not end in time
    (or when `hurry()`)."""
    for roles, seconds in ((("gateway",), drain_seconds),
                           (("stage", "spare"), 10), (("expert",), 10)):
        running = [p for p in processes if p.role in roles and p.find()]
        for process in running:
            pid = process.find()
            if pid:
                say(f"stopping {process.name} (pid {pid})")
                _signal(pid, signal.SIGTERM)
        if _wait_gone(running, seconds, hurry):
            continue
        for process in running:
            pid = process.find()
            if pid:
                say(f"{process.name} (pid {pid}) did not end in "
                    f"{seconds} s: killed")
                _signal(pid, signal.SIGKILL)
        _wait_gone(running, 5, lambda: False)
    reap()
