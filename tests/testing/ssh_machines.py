"""Machines for tests: network namespaces on one bridge, each with an sshd of
its own that one key opens, and names for each other. They share this
machine's files. Needs root, ip and sshd."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Of a share of the processors; a quota is at least a millisecond.
PERIOD_MICROSECONDS = 20000
RELAY = pathlib.Path(__file__).with_name("delay_relay.py")
SSHD = "/usr/sbin/sshd"


def lacks():
    """What is missing here to make machines; empty if nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "ssh", "ssh-keygen", SSHD):
        if not shutil.which(program):
            return f"needs {program}"
    return ""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True,
                          text=True)


class Machines:
    """Machine `names[i]` is a namespace PREFIX-NAME at address NET.(i+1);
    this machine is at NET.254. Links may be given a delay or cut. With `chroot`
    the machines have that folder's files instead of this machine's: one in a
    path that root alone may write to."""

    def __init__(self, folder, names, prefix="slm", net="10.232.0",
                 chroot=None):
        self._chroot = chroot
        self._folder = pathlib.Path(folder)
        self._prefix = prefix
        self._net = net
        self._names = list(names)
        self._children = {}
        self._relays = []
        self._groups = []

    def open(self):
        """subprocess.CalledProcessError where there are no namespaces."""
        self.close()
        ip("link", "add", self._prefix, "type", "bridge")
        ip("link", "set", self._prefix, "up")
        ip("addr", "add", f"{self._net}.254/24", "dev", self._prefix)
        self._make_keys()
        for name in self._names:
            self._write_hosts(name, 0)
            self._make(name)
        for name in self._names:
            self._wait_for_sshd(name)

    def slow(self, name, processors):
        """From now on what the machine runs gets so much of processors' time,
        as 0.25. OSError where no control group can be made."""
        quota = int(PERIOD_MICROSECONDS * processors)
        if (CGROUPS / "cpu").is_dir():  # version 1
            group = CGROUPS / "cpu" / self._space(name)
            limits = {"cpu.cfs_period_us": PERIOD_MICROSECONDS,
                      "cpu.cfs_quota_us": quota}
        else:
            group = CGROUPS / self._space(name)
            limits = {"cpu.max": f"{quota} {PERIOD_MICROSECONDS}"}
        group.mkdir(exist_ok=True)
        self._groups.append(group)
        for file, value in limits.items():
            (group / file).write_text(str(value))
        (group / "cgroup.procs").write_text(str(self._children[name].pid))

    def _free(self):
        """Takes the machines' processes out of their control groups."""
        for group in self._groups:
            end = time.monotonic() + 10
            while group.is_dir() and time.monotonic() < end:
                for pid in (group / "cgroup.procs").read_text().split():
                    try:
                        (group.parent / "cgroup.procs").write_text(pid)
                    except ProcessLookupError:
                        pass
                try:
                    group.rmdir()
                except OSError:
                    time.sleep(0.01)
        self._groups.clear()

    def close(self):
        self._free()
        self.direct()
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            child.wait(10)
        self._children.clear()
        for name in self._names:
            ip("netns", "del", self._space(name), check=False)
            # A session that goes on keeps its machine, and the link's end there.
            ip("link", "del", self._veth(name), check=False)
            shutil.rmtree(self._etc(name), ignore_errors=True)
        ip("link", "del", self._prefix, check=False)

    def address(self, name):
        return f"{self._net}.{self._names.index(name) + 1}"

    def destination(self, name):
        return f"root@{self.address(name)}"

    @property
    def ssh(self):
        """The ssh command that has the key."""
        return shlex.join(["ssh", "-F", str(self._folder / "ssh_config")])

    def cut(self, name):
        ip("link", "set", self._veth(name), "down")

    def join(self, name):
        ip("link", "set", self._veth(name), "up")

    def direct(self):
        """Names mean the machines themselves again."""
        for child in self._relays:
            child.terminate()
        for child in self._relays:
            child.wait(10)
            child.stdout.close()
        self._relays.clear()
        for name in self._names:
            self._write_hosts(name, 0)

    def delay(self, milliseconds, ports):
        """From now on the ports of a machine that another calls by name are
        so far away, one way: by relays on this machine, at NET.(101 + i)."""
        self.direct()
        for index, name in enumerate(self._names):
            relay = f"{self._net}.{101 + index}"
            ip("addr", "add", relay + "/24", "dev", self._prefix, check=False)
            for port in ports:
                child = subprocess.Popen(
                    [sys.executable, "-B", str(RELAY), f"{relay}:{port}",
                     f"{self.address(name)}:{port}", str(milliseconds)],
                    stdout=subprocess.PIPE, text=True)
                self._relays.append(child)
                if child.stdout.readline() != "listening\n":
                    raise RuntimeError(f"no relay at {relay}:{port}")
        for name in self._names:
            self._write_hosts(name, 100)

    def _space(self, name):
        return f"{self._prefix}-{name}"

    def _etc(self, name):
        return pathlib.Path("/etc/netns", self._space(name))

    def _veth(self, name):
        return f"{self._prefix}{self._names.index(name)}"

    def _write_hosts(self, name, relays):
        """In place: the file is mounted over /etc/hosts in the machine."""
        lines = ["127.0.0.1 localhost"]
        for index, other in enumerate(self._names):
            at = index + 1 + (relays if other != name else 0)
            lines.append(f"{self._net}.{at} {other}")
        self._etc(name).mkdir(parents=True, exist_ok=True)
        (self._etc(name) / "hosts").write_text("\n".join(lines) + "\n")

    def _make(self, name):
        space, veth = self._space(name), self._veth(name)
        ip("netns", "add", space)
        ip("link", "add", veth, "type", "veth", "peer", "name", "eth0",
           "netns", space)
        ip("link", "set", veth, "master", self._prefix, "up")
        ip("-n", space, "addr", "add", self.address(name) + "/24", "dev",
           "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        with open(self._folder / f"sshd-{name}.log", "wb") as log:
            self._children[name] = subprocess.Popen(
                ["ip", "netns", "exec", space, *self._with_proc(), SSHD, "-D",
                 "-e", "-f", str(self._folder / "sshd_config")],
                stdin=subprocess.DEVNULL, stderr=log)

    def _with_proc(self):
        """Words that mount /proc in the folder, for the daemon alone."""
        return ["sh", "-c", 'mount -t proc proc "$0/proc" && exec "$@"',
                str(self._chroot)] if self._chroot else []

    def _make_keys(self):
        for key in ("host_key", "user_key"):
            (self._folder / key).unlink(missing_ok=True)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "",
                            "-f", str(self._folder / key)], check=True)
        (self._folder / "sshd_config").write_text(
            f"HostKey {self._folder}/host_key\n"
            f"AuthorizedKeysFile {self._folder}/user_key.pub\n"
            "PidFile none\nStrictModes no\nPasswordAuthentication no\n"
            "PermitRootLogin yes\n"
            + (f"ChrootDirectory {self._chroot}\n" if self._chroot else ""))
        (self._folder / "ssh_config").write_text(
            f"IdentityFile {self._folder}/user_key\nIdentitiesOnly yes\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
            "LogLevel ERROR\n")

    def _wait_for_sshd(self, name):
        end = time.monotonic() + 30
        while subprocess.run([*shlex.split(self.ssh), self.destination(name),
                              "true"], check=False, capture_output=True
                             ).returncode:
            if time.monotonic() > end:
                raise RuntimeError(f"no sshd in {self._space(name)}: " + (
                    self._folder / f"sshd-{name}.log").read_text())
            time.sleep(0.1)
