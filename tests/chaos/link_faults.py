"""Faults of links and machines; the cluster is a machines.Machines."""

import contextlib
import pathlib
import shutil
import signal
import time

import faults
import harness
import machines

STAGES = ("a", "b", "c")


class Machines(faults.Faults):
    """Besides what befalls processes anywhere."""

    KINDS = ("kill", "kill_two", "stop_shortly", "stop_long", "tell_to_end",
             "no_descriptors", "kill_gateway", "stop_gateway",
             "cut_off", "cut_one_way", "cut_both_ways", "cut_and_kill",
             "cut_off_two", "narrow", "delay", "slow", "hold", "reset",
             "half_open", "blink", "full_disk", "expired_certificate",
             "another_model")
    OTHER_MODEL = None  # set by the test

    def _for(self, *blocks, seconds=None):
        """Within all of them for a while; how long."""
        seconds = seconds or min(self.draw.choice((0.5, 1, 2, 3, 4, 8)),
                                 self.longest)
        with contextlib.ExitStack() as stack:
            for block in blocks:
                stack.enter_context(block)
            time.sleep(seconds)
        return f"{seconds:.1f} s"

    def _stage(self):
        return self.draw.choice(STAGES)

    def _pair(self):
        """Two machines; the gateway's may be one."""
        return self.draw.sample(machines.NAMES, 2)

    def cut_off(self):
        name = self._stage()
        return f"{name} for {self._for(self.cluster.network.cut_off(name))}"

    def cut_off_two(self):
        two = self.draw.sample(STAGES, 2)
        return f"{two[0]} and {two[1]} for " + self._for(
            *map(self.cluster.network.cut_off, two))

    def cut_one_way(self):
        one, other = self._pair()
        return f"{one} to {other} for " + self._for(
            self.cluster.network.cut(one, other))

    def cut_both_ways(self):
        one, other = self._pair()
        return f"{one} and {other} for " + self._for(
            self.cluster.network.cut(one, other),
            self.cluster.network.cut(other, one))

    def cut_and_kill(self):
        """A link breaks, and a process dies meanwhile."""
        one, other = self._pair()
        with self.cluster.network.cut(one, other):
            killed = self.kill()
            self._pause(0.5, 5)
        return f"{one} to {other}, and {killed}"

    def narrow(self):
        name = self._stage()
        rate = self.draw.choice(("64kbit", "256kbit", "1mbit"))
        return f"{name} sends {rate} for " + self._for(
            self.cluster.network.narrow(name, rate))

    # --- by the relay before a stage

    def _set(self, **rules):
        name = self._stage()
        return f"{name} for " + self._for(
            self.cluster.relays[name].set(**rules))

    def delay(self):
        seconds = self.draw.choice((0.02, 0.1, 0.4, 1))
        return f"{seconds} s, " + self._set(delay=seconds)

    def slow(self):
        rate = self.draw.choice((2_000, 20_000, 200_000))
        return f"{rate} bytes/s, " + self._set(rate=rate)

    def hold(self):
        ways = self.draw.choice(("in", "out", "both"))
        return f"{ways}, " + self._set(hold=ways)

    def reset(self):
        name = self._stage()
        self.cluster.relays[name].tell(reset=True)
        return name

    def half_open(self):
        name = self._stage()
        self.cluster.relays[name].tell(forget=True)
        return name

    def blink(self):
        """Reset every half second."""
        name, times = self._stage(), self.draw.randrange(2, 8)
        for _ in range(times):
            self.cluster.relays[name].tell(reset=True)
            time.sleep(0.5)
        return f"{name} {times} times"

    # --- machines

    def full_disk(self):
        """A process starts on it, and has nothing packed from before."""
        victim, = self.victims()
        process = self.cluster.process_of(victim)
        disk = self.cluster.disks[process.host]
        shutil.rmtree(disk.folder / "packed", ignore_errors=True)
        with disk.full():
            faults.try_signal(victim, signal.SIGKILL)
            time.sleep(self.draw.uniform(1, 6))
        return process.host

    def expired_certificate(self):
        """It is used for new connections from then on, and by a process that
        starts."""
        victim, = self.victims()
        host = self.cluster.process_of(victim).host
        with self.cluster.certificates.expired(host):
            if self.draw.random() < 0.5:
                faults.try_signal(victim, signal.SIGKILL)
            else:
                time.sleep(2)  # until the files have been read again
                self.cluster.relays[host].tell(reset=True)
            time.sleep(self.draw.uniform(1, 8))
        return host

    def another_model(self):
        """It is back with another model: refused by name, then replaced."""
        victim, = self.victims()
        process = self.cluster.process_of(victim)
        log = pathlib.Path(self.entries("gateway")[0]["log"])
        before = log.stat().st_size
        process.options = ["--model", str(self.OTHER_MODEL)]
        faults.try_signal(victim, signal.SIGKILL)
        try:
            harness.wait_for(
                lambda: b"digest" in log.read_bytes()[before:], 30,
                f"the gateway names the model of {faults.named(victim)}")
        finally:
            process.options = []
            faults.try_signal(process.entry(), signal.SIGKILL)
        return faults.named(victim)
