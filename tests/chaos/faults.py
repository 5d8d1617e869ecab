"""Faults on the processes of a cluster, drawn. A fault is a method; its name
is its kind, what it returns says what was done to whom."""

import os
import pathlib
import resource
import signal
import time

import harness


def runs(entry):
    """Whether its pid is that process, of its command: not 0, which would be
    this one's group, and not another that has got the number since."""
    if entry["pid"] <= 0:
        return False
    try:
        command = pathlib.Path(f"/proc/{entry['pid']}/cmdline").read_bytes()
    except OSError:
        return False
    argv = "\0".join(map(str, entry["argv"])).encode()
    return argv + b"\0" in command


def try_signal(entry, number):
    """Whether it was there: else it is between its end and its next start."""
    if not runs(entry):
        return False
    try:
        os.kill(entry["pid"], number)
    except ProcessLookupError:
        return False
    return True


def named(entry):
    return f"{entry['role']} {entry['index']}"


class Faults:
    """All kinds take turns, in an order that is drawn anew each time. `load`
    is told when streams may break."""

    KINDS = ()
    # Those that take the gateway away, as its clients see it.
    OF_GATEWAY = ("kill_gateway", "end_gateway")
    # Kinds that take long by what they are.
    SLOW = ("flap", "another_model", "expired_certificate", "full_disk")
    longest = 12  # seconds for which anything is held; below 12: none is SLOW

    def __init__(self, cluster, draw, load):
        self.cluster, self.draw, self.load = cluster, draw, load
        self._turn = []

    def next(self):
        """(kind, what was done)."""
        if not self._turn:
            kinds = [kind for kind in self.KINDS
                     if self.longest >= Faults.longest
                     or kind not in self.SLOW]
            self._turn = self.draw.sample(kinds, len(kinds))
        kind = self._turn.pop()
        return kind, getattr(self, kind)()

    def entries(self, *roles):
        return [entry for entry in self.cluster.file["processes"]
                if entry["role"] in roles]

    def gateway(self):
        """The gateway's pid."""
        return self.entries("gateway")[0]["pid"]

    def victims(self, number=1):
        return self.draw.sample(self.entries("stage", "spare", "expert"),
                                number)

    def certain(self):
        """(kind, what was done): of a process that has a place, at once."""
        victim = self.draw.choice(self.entries("stage"))
        if not try_signal(victim, signal.SIGKILL):
            raise AssertionError(f"{named(victim)} does not run: {victim}")
        return "kill", named(victim)

    def _pause(self, least, most):
        """Sleeps for a time in between; how long, in seconds."""
        seconds = min(self.draw.uniform(least, most), self.longest)
        time.sleep(seconds)
        return seconds

    def _held(self, victim, seconds):
        """Stopped for a while."""
        seconds = min(seconds, self.longest)
        try_signal(victim, signal.SIGSTOP)
        time.sleep(seconds)
        try_signal(victim, signal.SIGCONT)
        return f"{named(victim)} stopped for {seconds:.1f} s"

    # --- stages, spares and hosts of experts

    def kill(self):
        victim, = self.victims()
        try_signal(victim, signal.SIGKILL)
        return named(victim)

    def kill_two(self):
        two = self.victims(2)
        for victim in two:
            try_signal(victim, signal.SIGKILL)
        return " and ".join(map(named, two))

    def kill_again(self):
        """Another one dies while the first one's place is filled."""
        first = self.kill()
        time.sleep(self.draw.random())
        return f"{first}, then {self.kill()}"

    def tell_to_end(self):
        victim, = self.victims()
        try_signal(victim, signal.SIGTERM)
        return named(victim)

    def stop_shortly(self):
        victim, = self.victims()
        return self._held(victim, self.draw.uniform(0.1, 2))

    def stop_long(self):
        """Beyond --lost-after, and once in a while beyond --peer-timeout."""
        victim, = self.victims()
        return self._held(victim, self.draw.choice((3, 4, 6, 12)))

    def flap(self):
        """Killed every 2 s."""
        victim, = self.victims()
        times = self.draw.randrange(3, 6)
        for _ in range(times):
            now = next(entry for entry in self.entries(victim["role"])
                       if entry["index"] == victim["index"])
            try_signal(now, signal.SIGKILL)
            time.sleep(2)
        return f"{named(victim)} {times} times"

    def no_descriptors(self):
        """It can open no further file, and a neighbour comes back just then."""
        victim, other = self.victims(2)
        self._limited(victim, resource.RLIMIT_NOFILE, 3)
        if self.draw.random() < 0.5:
            try_signal(other, signal.SIGKILL)
        seconds = self._pause(1, 5)
        self._limited(victim, resource.RLIMIT_NOFILE, None)
        return f"{named(victim)} for {seconds:.1f} s"

    def no_memory(self):
        """Its address space may grow by a little alone."""
        victim, = self.victims()
        try:
            pages = int(pathlib.Path(f"/proc/{victim['pid']}/statm")
                        .read_text().split()[0])
        except OSError:
            pages = 0
        more = self.draw.choice((0, 1 << 20, 8 << 20))
        self._limited(victim, resource.RLIMIT_AS, 4096 * pages + more)
        seconds = self._pause(1, 4)
        self._limited(victim, resource.RLIMIT_AS, None)
        return f"{named(victim)} at {more >> 20} MiB more, {seconds:.1f} s"

    @staticmethod
    def _limited(victim, what, soft):
        """None: up to the hard limit again. It may have died meanwhile."""
        if not runs(victim):
            return
        try:
            _, hard = resource.prlimit(victim["pid"], what)
            if soft is None:
                soft = hard
            resource.prlimit(victim["pid"], what, (soft, hard))
        except (ProcessLookupError, PermissionError):
            pass

    # --- the gateway

    def kill_gateway(self):
        """Its streams are cut, unless they have ids to resume by."""
        victim, = self.entries("gateway")
        self.load.gateway_dies()
        try_signal(victim, signal.SIGKILL)
        self._wait_for_another(victim)
        return "killed"

    def end_gateway(self):
        """Its streams end whole, and new ones are refused until it is back."""
        victim, = self.entries("gateway")
        self.load.gateway_dies()
        try_signal(victim, signal.SIGTERM)
        self._wait_for_another(victim)
        return "told to end"

    def stop_gateway(self):
        victim, = self.entries("gateway")
        return self._held(victim, self.draw.choice((0.5, 2, 4, 12)))

    def _wait_for_another(self, gone):
        harness.wait_for(
            lambda: self.entries("gateway")[0]["pid"] not in (0, gone["pid"]),
            60, "another gateway")


class Supervised(Faults):
    """Two stages and a spare, started again when they die."""

    KINDS = ("kill", "kill_two", "kill_again", "tell_to_end", "stop_shortly",
             "stop_long", "flap", "no_descriptors", "no_memory",
             "kill_gateway", "end_gateway", "stop_gateway")


class Experts(Faults):
    """Stages, and hosts of experts with two replicas of each."""

    KINDS = ("kill", "kill_two", "kill_again", "tell_to_end", "stop_shortly",
             "stop_long", "flap", "no_descriptors", "no_memory",
             "lose_range", "kill_gateway")

    def lose_range(self):
        """All hosts of an expert at once."""
        for victim in self.entries("expert"):
            try_signal(victim, signal.SIGKILL)
        return "every host of experts"


class Shrinking(Faults):
    """Stages that these faults alone start again: the others split the layers
    anew."""

    KINDS = ("lose", "lose_two", "come_and_go", "another_model")
    OTHER_MODEL = None  # set by the test

    def __init__(self, cluster, draw, load):
        super().__init__(cluster, draw, load)
        self._pids = {}

    def entries(self, *roles):
        """With the pids of those that were started here."""
        return [{**entry, "pid": self._pids.get(named(entry), entry["pid"])}
                for entry in super().entries(*roles)]

    def _start(self, victim, *options):
        child = self.cluster.restart(victim["role"], victim["index"], *options)
        self._pids[named(victim)] = child.pid
        return child

    def certain(self):
        victim = self.draw.choice(self.entries("stage"))
        return "lose", self._lose(victim)

    def lose(self):
        victim, = self.victims()
        return self._lose(victim)

    def _lose(self, victim):
        if not try_signal(victim, signal.SIGKILL):
            raise AssertionError(f"{named(victim)} does not run: {victim}")
        seconds = self.draw.uniform(0.5, 6)
        time.sleep(seconds)
        self._start(victim)
        return f"{named(victim)} for {seconds:.1f} s"

    def lose_two(self):
        two = self.victims(2)
        for victim in two:
            try_signal(victim, signal.SIGKILL)
            time.sleep(self.draw.choice((0, 1, 3)))
        time.sleep(self.draw.uniform(0.5, 4))
        for victim in two:
            self._start(victim)
        return " and ".join(map(named, two))

    def come_and_go(self):
        victim, = self.victims()
        times = self.draw.randrange(2, 5)
        try_signal(victim, signal.SIGKILL)
        for _ in range(times):
            child = self._start(victim)
            time.sleep(2)
            child.kill()
            child.wait()
        self._start(victim)
        return f"{named(victim)} {times} times"

    def another_model(self):
        """It is back with another model: refused by name, then replaced."""
        victim, = self.victims()
        try_signal(victim, signal.SIGKILL)
        log = pathlib.Path(self.entries("gateway")[0]["log"])
        before = log.stat().st_size
        child = self._start(victim, "--model", self.OTHER_MODEL)
        harness.wait_for(
            lambda: b"digest" in log.read_bytes()[before:], 30,
            f"the gateway names the model of {named(victim)}")
        child.kill()
        child.wait()
        self._start(victim)
        return named(victim)
