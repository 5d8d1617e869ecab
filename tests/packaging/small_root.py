"""A root folder that holds busybox and nothing else, as a machine of its own: a
network with loopback alone, process ids and mounts. Needs root and
busybox-static."""

import contextlib
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile

BUSYBOX = "/bin/busybox"
DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9),
           "tty": (5, 0)}


def lacks():
    """What is missing here to make one; empty if nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("unshare", "nsenter", "ip", BUSYBOX):
        if not shutil.which(program):
            return f"needs {program}"
    with open(BUSYBOX, "rb") as file:
        if b"/ld-linux" in file.read(4096):
            return "needs a static busybox (Debian's busybox-static)"
    try:
        with tempfile.TemporaryDirectory(prefix="sluice-root-") as folder:
            with contextlib.closing(SmallRoot(f"{folder}/root")) as root:
                root.open()
    except PermissionError as error:
        return f"makes no device here (CAP_MKNOD): {error}"
    except subprocess.CalledProcessError as error:
        return f"makes no namespaces here (CAP_SYS_ADMIN): {error.stderr.strip()}"
    return ""


class SmallRoot:
    """At `path`, which is made. Closing it ends every process in it."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self._holder = self._first = None
        for name in ("bin", "dev", "etc", "home", "proc", "tmp"):
            (self.path / name).mkdir(parents=True)
        for name in ("home", "tmp"):
            (self.path / name).chmod(0o1777)
        shutil.copy(BUSYBOX, self.path / "bin/busybox")
        for name in subprocess.run([BUSYBOX, "--list"], check=True, text=True,
                                   capture_output=True).stdout.split():
            if name != "busybox":
                (self.path / "bin" / name).symlink_to("busybox")
        for name, (major, minor) in DEVICES.items():
            os.mknod(self.path / "dev" / name, 0o666 | stat.S_IFCHR,
                     os.makedev(major, minor))
            (self.path / "dev" / name).chmod(0o666)

    def open(self):
        """subprocess.CalledProcessError where there are no namespaces."""
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
             "sh", "-c", 'ip link set lo up && mount -t proc proc "$0/proc" && '
             'echo up && exec sleep 3600', self.path],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self._holder.stdout.readline() != b"up\n":
            raise subprocess.CalledProcessError(
                1, "unshare", stderr=self._holder.stderr.read().decode())
        pid = self._holder.pid
        self._first = pathlib.Path(
            f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        return self

    def close(self):
        if self._holder is None:
            return
        if self._first:
            os.kill(int(self._first), signal.SIGKILL)
        self._holder.wait(30)
        self._holder.stdout.close()
        self._holder.stderr.close()

    def network(self, *command):
        """The words that run a command of this machine in the root's network."""
        return ["nsenter", "-t", self._first, "-n", *map(str, command)]

    def inside(self, *command, user="1000:1000", home="/home", environment=()):
        """The words that run a command in the root, with an environment that has
        nothing of this machine."""
        return ["nsenter", "-t", self._first, "-n", "-m", "-p", "chroot",
                f"--userspec={user}", str(self.path), "/bin/env", "-i",
                f"HOME={home}", "PATH=/bin", *environment, "/bin/sh", "-c",
                'cd "$HOME" && exec "$0" "$@"', *map(str, command)]

    def run(self, *command, status=0, **options):
        """(stdout, stderr) of a command that ends with `status`."""
        done = subprocess.run(self.inside(*command, **options), text=True,
                              capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=120, check=False)
        if done.returncode != status:
            raise AssertionError(
                f"{command} ended with {done.returncode}, not {status}:\n"
                f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout, done.stderr

    def put(self, source, at):
        """Copies a file to `at` in the root."""
        target = self.path / at.lstrip("/")
        shutil.copy(source, target)
        return at

    def files(self, *beside):
        """Every path below the root but those of /proc and `beside`."""
        found = set()
        for folder, folders, names in os.walk(self.path):
            at = pathlib.Path(folder).relative_to(self.path)
            if at == pathlib.Path():
                folders.remove("proc")
            found |= {str(at / name) for name in names + folders}
        return {path for path in found if not path.startswith(beside)} \
            if beside else found
