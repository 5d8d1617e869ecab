"""Watching a running cluster until it is asked to stop."""

import os
import signal
import time

import process

# Seconds until a process that died is started again; back to the first once
# it has lived for STEADY seconds.
BACKOFF = (0.2, 0.5, 1, 2, 5, 10)
STEADY = 30


class StopRequest:
    """Counts SIGINT, SIGTERM and SIGHUP. The first asks for a drain, the
    second for haste."""

    def __init__(self):
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number, frame):
        self.count += 1

    def asked(self):
        return self.count > 0

    def hurry(self):
        return self.count > 1


class _Watched:
    def __init__(self, watched):
        self.process = watched
        self.up = True
        self.tries = 0
        self.started = time.monotonic()
        self.restart_at = 0.0


def watch(cluster_file, document, stop, restart, say):
    """Returns when `stop` is asked. Tells of processes that end and, with
    `restart`, starts them again with the same argv; a process that somebody
    started again by hand is taken over."""
    watched = [_Watched(entry) for entry in document["processes"]]
    while not stop.asked():
        process.reap()
        for entry in watched:
            if _check(entry, restart, say):
                cluster_file.write(document)
        time.sleep(0.1)


def _check(entry, restart, say):
    """One look at one process; true if its pid has changed."""
    now = time.monotonic()
    if _alive(entry.process):
        if now - entry.started > STEADY:
            entry.tries = 0
        return False
    if entry.up:
        entry.up = False
        _tell_death(entry, restart, say)
        delay = BACKOFF[min(entry.tries, len(BACKOFF) - 1)]
        entry.restart_at = now + delay
        entry.tries += 1
    pid = entry.process.find()
    if pid:
        say(f"{entry.process.name} is back as pid {pid}")
        entry.process.pid = pid
    elif restart and now >= entry.restart_at:
        entry.process.start()
        say(f"{entry.process.name} started again as pid {entry.process.pid}")
    else:
        return False
    entry.up = True
    entry.started = now
    return True


def _alive(watched):
    return process.is_ours({"pid": watched.pid, "argv": watched.argv})


def _tell_death(entry, restart, say):
    dead = entry.process
    say(f"{dead.name} (pid {dead.pid}) has ended; its log: {dead.log}")
    for line in dead.log_tail(5).splitlines():
        say("  | " + line)
    if not restart:
        say(f"it serves again once it is started with the argv that "
            f"{os.path.dirname(dead.log)}/cluster.json lists for it "
            "(--supervise does so by itself)")
