"""A cluster over machines: each a network namespace with a disk, a
certificate and a supervisor of its own, and a relay before every stage. Needs
root, ip, tc and openssl."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import harness

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
HERE = pathlib.Path(__file__).resolve().parent
BRIDGE = "slc"
NET = "10.233.0"
# Two stages, a spare, and the gateway.
NAMES = ("a", "b", "c", "g")
DISK = "48m"
NOWHERE = "02:00:00:00:00:fe"  # a MAC of no machine
# Seconds until a process that died is started again, as `up` does.
BACKOFF = (0.2, 0.5, 1, 2, 5)
STEADY = 30


def lacks():
    """What is missing here to make machines; empty if nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "tc", "openssl", "mount"):
        if not shutil.which(program):
            return f"needs {program}"
    return ""


def do(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check,
                          capture_output=True, text=True)


def address(name):
    return f"{NET}.{NAMES.index(name) + 1}"


class Network:
    """The namespaces, whose names are this machine's: one at a time has them,
    the next one waits. What is broken is mended by the block's end."""

    LOCK = pathlib.Path(tempfile.gettempdir(), "sluice-chaos-network.lock")

    def __init__(self):
        self._lock = None

    def open(self):
        """subprocess.CalledProcessError where there are no namespaces. Close
        it in any case."""
        self._lock = open(self.LOCK, "w")
        harness.wait_for(self._take, 900, f"{self.LOCK} is free")
        self._remove()
        do("ip", "link", "add", BRIDGE, "type", "bridge")
        do("ip", "link", "set", BRIDGE, "up")
        do("ip", "addr", "add", f"{NET}.254/24", "dev", BRIDGE)
        for name in NAMES:
            space, veth = self.space(name), f"{BRIDGE}{name}"
            do("ip", "netns", "add", space)
            do("ip", "link", "add", veth, "type", "veth", "peer", "name",
               "eth0", "netns", space)
            do("ip", "link", "set", veth, "master", BRIDGE, "up")
            do("ip", "-n", space, "addr", "add", address(name) + "/24", "dev",
               "eth0")
            do("ip", "-n", space, "link", "set", "eth0", "up")
            do("ip", "-n", space, "link", "set", "lo", "up")

    def _take(self):
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self):
        if self._lock is not None:
            self._remove()
            self._lock.close()
            self._lock = None

    def _remove(self):
        for name in NAMES:
            do("ip", "netns", "del", self.space(name), check=False)
        do("ip", "link", "del", BRIDGE, check=False)

    @staticmethod
    def space(name):
        return f"{BRIDGE}-{name}"

    @contextlib.contextmanager
    def cut_off(self, name):
        """The machine has no link at all."""
        do("ip", "link", "set", f"{BRIDGE}{name}", "down")
        try:
            yield
        finally:
            do("ip", "link", "set", f"{BRIDGE}{name}", "up")

    @contextlib.contextmanager
    def cut(self, source, target):
        """What `source` sends to `target` gets lost; the other way is open."""
        words = ("ip", "-n", self.space(source), "neigh")
        do(*words, "replace", address(target), "lladdr", NOWHERE, "dev",
           "eth0", "nud", "permanent")
        try:
            yield
        finally:
            do(*words, "del", address(target), "dev", "eth0")

    @contextlib.contextmanager
    def narrow(self, name, rate):
        """What the machine sends is of at most `rate` (as tc writes it)."""
        words = ("tc", "-n", self.space(name), "qdisc")
        do(*words, "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst",
           "4kb", "latency", "400ms")
        try:
            yield
        finally:
            do(*words, "del", "dev", "eth0", "root")


class Disk:
    """A small one of a machine; a context manager."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def open(self):
        self.folder.mkdir()
        do("mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", self.folder)

    def close(self):
        do("umount", "-l", self.folder, check=False)

    @contextlib.contextmanager
    def full(self):
        filler = self.folder / "filler"
        with open(filler, "wb", buffering=0) as out:
            with contextlib.suppress(OSError):
                while True:
                    out.write(b"f" * 4096)
        try:
            yield
        finally:
            filler.unlink()


class Process:
    """One that is started again when it has ended, with `options` besides."""

    def __init__(self, role, index, host, argv):
        self.role, self.index, self.host, self.argv = role, index, host, argv
        self.options = []
        self.log = None
        self._child = None
        self._began = 0.0
        self._again_at = None
        self._tries = 0

    @property
    def pid(self):
        return self._child.pid if self._child else 0

    def entry(self):
        return {"role": self.role, "index": self.index, "pid": self.pid,
                "argv": self.argv, "log": str(self.log)}

    def keep(self):
        """One look: starts it where it is not there."""
        now = time.monotonic()
        if self._child is not None:
            if self._child.poll() is None:
                return
            if self._again_at is None:
                if now - self._began > STEADY:
                    self._tries = 0
                pause = BACKOFF[min(self._tries, len(BACKOFF) - 1)]
                self._again_at = now + pause
                self._tries += 1
            if now < self._again_at:
                return
        with open(self.log, "ab") as out:
            self._child = subprocess.Popen(
                ["ip", "netns", "exec", Network.space(self.host),
                 *map(str, self.argv), *self.options], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True)
        self._began, self._again_at = now, None

    def stop(self, seconds):
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Relay:
    """Before a stage: what passes it may be delayed, held, cut."""

    def __init__(self, host):
        self._child = subprocess.Popen(
            ["ip", "netns", "exec", Network.space(host), sys.executable, "-B",
             str(HERE / "relay.py"), f"{address(host)}:7101",
             f"{address(host)}:7001"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        if self._child.stdout.readline() != "listening\n":
            raise RuntimeError(f"no relay on {host}")

    def tell(self, **order):
        self._child.stdin.write(json.dumps(order) + "\n")
        self._child.stdin.flush()
        if self._child.stdout.readline() != "done\n":
            raise RuntimeError("the relay is gone")

    @contextlib.contextmanager
    def set(self, **rules):
        self.tell(set=rules)
        try:
            yield
        finally:
            self.tell(set={})

    def close(self):
        self._child.stdin.close()
        self._child.wait(10)
        self._child.stdout.close()


class Certificates:
    """Made by the command, and one per machine that has expired."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def make(self):
        hosts = [word for name in NAMES
                 for word in ("--host", f"{name}={address(name)}")]
        do(harness.ROOT / "deploy/local/certificates", self.folder, *hosts,
           "--roles", "gateway,stage")

    def options(self, name, role):
        return ["--tls-cert", self.folder / f"{name}-{role}.pem", "--tls-key",
                self.folder / f"{name}-{role}.key", "--tls-ca",
                self.folder / "ca.pem"]

    @contextlib.contextmanager
    def expired(self, name, role="stage"):
        """The machine's certificate is one whose time is over."""
        path = self.folder / f"{name}-{role}.pem"
        good = path.read_bytes()
        old = self.folder / f"{name}-{role}.old"
        request = self.folder / f"{name}-{role}.request"
        extensions = self.folder / f"{name}-{role}.extensions"
        extensions.write_text(
            f"subjectAltName=URI:sluice://role/{role},IP:{address(name)}\n"
            "extendedKeyUsage=serverAuth,clientAuth\n")
        do("openssl", "req", "-new", "-key", path.with_suffix(".key"), "-subj",
           f"/CN={path.stem}", "-out", request)
        do("openssl", "x509", "-req", "-in", request, "-CA",
           self.folder / "ca.pem", "-CAkey", self.folder / "ca.key",
           "-set_serial", "0x" + os.urandom(8).hex(), "-days", "-1",
           "-extfile", extensions, "-out", old)
        os.replace(old, path)
        try:
            yield
        finally:
            old.write_bytes(good)
            os.replace(old, path)


class Machines:
    """The cluster; a context manager. `url`, `file` and `logs` are as of
    harness.Cluster."""

    def __init__(self, model):
        self._made = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.run_dir = self._made.name
        folder = pathlib.Path(self.run_dir)
        self.url = f"http://{address('g')}:8080"
        self.network = Network()
        self.disks = {name: Disk(folder / f"disk-{name}") for name in NAMES}
        self.certificates = Certificates(folder / "tls")
        self.relays = {}
        self.processes = []
        self._model = model
        self._end = threading.Event()
        self._keeper = threading.Thread(target=self._keep)

    def __enter__(self):
        try:
            self.network.open()
            for disk in self.disks.values():
                disk.open()
            self.certificates.make()
            self.relays = {name: Relay(name) for name in "abc"}
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(self.logs(), file=sys.stderr)
        self.close()

    def _start(self):
        stages = [self._stage(index, name, split) for index, (name, split) in
                  enumerate((("a", 0), ("b", 1), ("c", None)))]
        targets = [f"{address(name)}:7101" for name in "abc"]
        gateway = Process("gateway", 0, "g", [
            BUILD / "services/gateway/sluice-gateway", "--model", self._model,
            "--listen", f"{address('g')}:8080", "--open", "--stages",
            ",".join(targets[:2]), "--spares", targets[2],
            "--drain-timeout", 30, "--max-queue-wait", 300,
            *self.certificates.options("g", "gateway")])
        self.processes = [*stages, gateway]
        for process in self.processes:
            process.log = self.disks[process.host].folder / "log"
        self._keeper.start()

    def _stage(self, index, name, split):
        layers = ["--layers", "assigned"] if split is None else [
            "--layers", "auto", "--stage-index", split, "--num-stages", 2]
        return Process(*(("spare", 0) if split is None else ("stage", index)),
                       name, [
            BUILD / "services/stage/sluice-stage", "--model", self._model,
            "--listen", f"{address(name)}:7001", *layers, "--weights", "f32",
            "--threads", 1, "--packed", self.disks[name].folder / "packed",
            *self.certificates.options(name, "stage")])

    def _keep(self):
        while not self._end.wait(0.05):
            for process in self.processes:
                process.keep()

    def process_of(self, entry):
        return next(one for one in self.processes
                    if (one.role, one.index) == (entry["role"],
                                                 entry["index"]))

    @property
    def file(self):
        return {"processes": [one.entry() for one in self.processes]}

    def close(self):
        self._end.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for process in reversed(self.processes):
            process.stop(40)
        for relay in self.relays.values():
            relay.close()
        self.network.close()
        for disk in self.disks.values():
            disk.close()
        self._made.cleanup()

    def logs(self, lines=30):
        out = []
        for process in self.processes:
            with contextlib.suppress(OSError):
                tail = process.log.read_text(errors="replace").splitlines()
                out.append(f"--- {process.role} {process.index} on "
                           f"{process.host}\n" + "\n".join(tail[-lines:]))
        return "\n".join(out)
