"""Watching a running cluster until it is asked to stop."""

import contextlib
import os
import signal
import threading
import time

import process

# Seconds until a process that died is started again; back to the first once
# it has lived for STEADY seconds.
BACKOFF = (0.2, 0.5, 1, 2, 5, 10)
STEADY = 30


class StopRequest:
    """Counts SIGINT, SIGTERM and SIGHUP. The first asks for a drain, a Ctrl-C
    after it for haste: a terminal that closes and a second `down` do not."""

    def __init__(self):
        self._count = 0
        self._haste = False
        self._interrupts = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number, frame):
        self._haste = self._haste or (self.asked()
                                      and number == signal.SIGINT)
        self._count += 1
        if self._interrupts:
            self._interrupts = False  # Once: what cleans up is let be.
            raise KeyboardInterrupt

    def asked(self):
        return self._count > 0

    def hurry(self):
        return self._haste

    def raise_if_asked(self):
        if self.asked():
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interrupts(self):
        """Whatever waits in here ends with a KeyboardInterrupt once it is
        asked to stop, or was before."""
        self._interrupts = True
        try:
            self.raise_if_asked()
            yield
            self.raise_if_asked()
        finally:
            self._interrupts = False


def stop_at_eof():
    """Sends SIGTERM to this process once its standard input ends: at the end
    of the process that holds the other end of the pipe, however it ends.
    Children get no part of the pipe."""
    pipe = os.dup(0)  # not inherited
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def wait():
        try:
            while os.read(pipe, 4096):
                pass
        except OSError:
            pass  # What cannot be read has ended.
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=wait, name="eof", daemon=True).start()


class _Watched:
    def __init__(self, watched):
        self.process = watched
        self.up = True
        self.tries = 0
        self.started = time.monotonic()
        self.restart_at = 0.0


def watch(cluster_file, document, stop, restart, say):
    """Returns when `stop` is asked, or when a new pid is to be written and the
    file is not of `document` any more. Tells of processes that end and, with
    `restart`, starts them again with the same argv; a process that a user
    started again by hand is taken over."""
    watched = [_Watched(entry) for entry in document["processes"]]
    saved, troubled = True, False
    while not stop.asked():
        process.reap()
        for entry in watched:
            if _check(entry, restart, say):
                saved = False
        if not saved:
            try:
                if not cluster_file.update(document):
                    say(f"{cluster_file.path} is gone, or another cluster's")
                    return
                saved, troubled = True, False
            except OSError as error:  # Tried again: it is what `down` reads.
                if not troubled:
                    say(f"{cluster_file.path} cannot be written: {error}")
                troubled = True
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
        _back_off(entry, now)
    pid = entry.process.find()
    if pid:
        say(f"{entry.process.name} is back as pid {pid}")
        entry.process.pid = pid
    elif not restart or now < entry.restart_at or not _start(entry, say):
        return False
    entry.up = True
    entry.started = now
    return True


def _start(entry, say):
    """False, and a longer pause, if the system does not let it start."""
    try:
        entry.process.start()
    except OSError as error:
        _back_off(entry, time.monotonic())
        say(f"{entry.process.name} cannot be started again: {error}")
        return False
    say(f"{entry.process.name} started again as pid {entry.process.pid}")
    return True


def _back_off(entry, now):
    entry.restart_at = now + BACKOFF[min(entry.tries, len(BACKOFF) - 1)]
    entry.tries += 1


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
