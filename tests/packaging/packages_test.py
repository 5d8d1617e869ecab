"""A fresh Debian 12 runs the bundle without a package more, and the packages
from their installation to the first token in less than a minute.

No systemd runs in a chroot: the test starts each unit's ExecStart as an
unprivileged user and stands for systemd at its notify socket. Long mode alone:
debootstrap fetches 100 MB.
"""

import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402

MAX_SECONDS = 60
URL = "http://127.0.0.1:8000"
NOBODY = "65534:65534"


def run(*command, **options):
    """The output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, timeout=900, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))} ended with "
                             f"{done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def mirror():
    """The Debian mirror that apt uses here."""
    listed = run("apt-get", "indextargets", "--format", "$(REPO_URI)",
                 "Codename: bookworm", "Label: Debian")
    return (listed.split() or ["http://deb.debian.org/debian"])[0]


class Root:
    """A fresh Debian 12 with a network of its own that has loopback alone."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "root"
        run("debootstrap", "--variant=minbase", "bookworm", self.path,
            mirror())
        for source in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(source, self.path / "etc")
        for part in ("/etc/apt/sources.list.d", "/etc/apt/apt.conf.d",
                     "/usr/share/keyrings"):
            shutil.copytree(part, str(self.path) + part, dirs_exist_ok=True)
        run("mount", "-t", "proc", "proc", self.path / "proc")
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c",
             "ip link set lo up && echo up && exec sleep 3600"],
            stdout=subprocess.PIPE)
        assert self._holder.stdout.readline() == b"up\n"

    def inside(self, *command, user=None):
        """The command's words, to be run in the root and its network."""
        who = [f"--userspec={user}"] if user else []
        return ["nsenter", "-t", str(self._holder.pid), "-n", "chroot", *who,
                str(self.path), *map(str, command)]

    def run(self, *command, **options):
        return run(*self.inside(*command), **options)

    def apt(self, *words):
        """apt-get with the machine's network."""
        run("chroot", self.path, "apt-get", "-q", *words, env={
            **os.environ, "DEBIAN_FRONTEND": "noninteractive"})

    def close(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()
        subprocess.run(["umount", self.path / "proc"], check=False)


class Manager:
    """systemd's end of a service: starts ExecStart, hears what is told."""

    def __init__(self, root, command, user=NOBODY):
        at = root.path / "run" / f"notify-{time.monotonic_ns()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(at))
        at.chmod(0o777)
        self._socket.settimeout(60)
        self.process = subprocess.Popen(
            root.inside("env", f"NOTIFY_SOCKET=/run/{at.name}",
                        "WATCHDOG_USEC=2000000", "XDG_CACHE_HOME=/tmp",
                        *command, user=user),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def heard(self):
        try:
            return self._socket.recv(256).decode()
        except TimeoutError:
            self.process.kill()
            raise AssertionError("nothing in 60 s: "
                                 + self.process.stderr.read()) from None

    def stop(self):
        """What was told from SIGTERM on, and the exit code."""
        self.process.terminate()
        text = self.process.communicate(timeout=150)[1]
        self._socket.settimeout(1)
        told = []
        try:
            while True:
                told.append(self._socket.recv(256).decode())
        except TimeoutError:
            pass
        self._socket.close()
        return told, self.process.returncode, text


def definition(path):
    """The sections of a definition file of Apptainer, by name."""
    known = {"arguments", "files", "post", "environment", "runscript", "test",
             "labels", "help"}
    sections, name = {}, None
    for line in path.read_text().splitlines():
        if line.startswith("%"):
            name = line[1:]
            if name not in known or name in sections:
                raise AssertionError(f"{path}: section {line}")
            sections[name] = ""
        elif name:
            sections[name] += line.strip() + "\n"
        elif line and not line.startswith(("#", "Bootstrap: ", "From: ")):
            raise AssertionError(f"{path}: header {line}")
    return sections


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not harness.LONG:
            raise unittest.SkipTest("debootstrap fetches 100 MB: SLUICE_LONG=1 "
                                    "(tests/run --long)")
        for tool in ("debootstrap", "cpack", "dpkg-shlibdeps", "patchelf",
                     "unshare", "nsenter", "ip"):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"needs {tool} (debootstrap, cmake, "
                                        "dpkg-dev, patchelf, util-linux, "
                                        "iproute2)")
        if os.getuid() != 0:
            raise unittest.SkipTest("needs root: debootstrap, chroot")
        cls.folder = tempfile.TemporaryDirectory(prefix="sluice-packages-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = pathlib.Path(cls.folder.name) / "out"
        cls.make(cls.out)
        cls.root = Root(cls.folder.name)
        cls.addClassCleanup(cls.root.close)

    @staticmethod
    def make(out, *kinds):
        run(harness.ROOT / "deploy/packages/make", *kinds, "--out", out)

    def debs(self):
        return sorted(self.out.glob("*.deb"))

    def first_token(self, sluice):
        """Waits for readiness and for a token; returns the text."""
        end = time.monotonic() + MAX_SECONDS
        while True:
            done = subprocess.run(
                self.root.inside(*sluice, "generate", "Once upon a time",
                                 "--max-tokens", 1, "--temperature", 0,
                                 "--url", URL, user=NOBODY),
                capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0:
                return done.stdout
            self.assertLess(time.monotonic(), end, done.stderr)
            time.sleep(0.05)

    def serve(self, stage, gateway, sluice):
        """Starts both, waits for a token; returns the managers."""
        managers = [Manager(self.root, stage), Manager(self.root, gateway)]
        for manager in managers:
            self.addCleanup(manager.process.kill)
            self.assertEqual(manager.heard(), "READY=1")
        self.assertTrue(self.first_token(sluice).strip())
        return managers

    def stop(self, managers):
        for manager in reversed(managers):
            told, code, log = manager.stop()
            self.assertEqual(code, 0, log)
            self.assertIn("STOPPING=1", told)

    def test_1_the_bundle_needs_no_package(self):
        (tarball,) = self.out.glob("*.tar.gz")
        run("tar", "-C", self.root.path / "opt", "-xf", tarball)
        at = "/opt/" + tarball.name.removesuffix(".tar.gz")
        model = at + "/share/sluice/demo-model"
        self.stop(self.serve(
            [at + "/bin/sluice-stage", "--model", model, "--listen",
             "127.0.0.1:7001"],
            [at + "/bin/sluice-gateway", "--model", model, "--listen",
             "127.0.0.1:8000", "--stages", "127.0.0.1:7001"],
            [at + "/bin/sluice"]))
        shutil.rmtree(str(self.root.path) + at)

    def test_1_apptainers_steps_make_an_image_that_answers(self):
        """Apptainer itself is no package: its sections are run in the root."""
        sections = definition(harness.ROOT / "deploy/apptainer/sluice.def")
        (tarball,) = self.out.glob("*.tar.gz")
        argument = sections["arguments"].strip().partition("=")
        self.assertEqual((argument[0], pathlib.Path(argument[2]).name),
                         ("TARBALL", tarball.name))
        source, target = sections["files"].split("\n")[0].rsplit(None, 1)
        self.assertEqual(source.strip(), "{{ TARBALL }}")
        shutil.copy(tarball, str(self.root.path) + target)
        run("chroot", self.root.path, "sh", "-c", sections["post"])
        self.assertFalse(pathlib.Path(str(self.root.path) + target).exists())
        told = self.root.run("sh", "-c", sections["test"])
        self.assertEqual(told.count("0.1.0"), 4, told)

        def start(*words):
            return ["sh", "-c", sections["environment"] + "\n"
                    + sections["runscript"], "sh", *words]
        model = "/opt/sluice/share/sluice/demo-model"
        self.stop(self.serve(
            start("sluice-stage", "--model", model, "--listen",
                  "127.0.0.1:7001"),
            start("sluice-gateway", "--model", model, "--listen",
                  "127.0.0.1:8000", "--stages", "127.0.0.1:7001"),
            start("sluice")))
        self.assertIn("generate", self.root.run(*start()))
        shutil.rmtree(str(self.root.path) + "/opt/sluice")

    def test_2_packages_answer_within_a_minute(self):
        names = set()
        for deb in self.debs():
            shutil.copy(deb, self.root.path / "tmp")
            for one in run("dpkg-deb", "-f", deb, "Depends").split(","):
                if one.strip():
                    names.add(one.split("(")[0].strip())
        self.root.apt("update")
        self.root.apt("install", "-y", "--no-install-recommends", *names)
        for compiler in ("cc", "gcc", "g++", "clang"):
            self.assertIsNone(shutil.which(
                compiler, path=f"{self.root.path}/usr/bin"))
        start = time.monotonic()
        self.root.run("dpkg", "-i", *(f"/tmp/{d.name}" for d in self.debs()))
        installed = time.monotonic() - start
        managers = self.serve(self.exec_start("sluice-stage@.service", "0"),
                              self.exec_start("sluice-gateway.service"),
                              ["sluice"])
        seconds = time.monotonic() - start
        print(f"from dpkg -i to the first token: {seconds:.1f} s, of them "
              f"{installed:.1f} s for the installation", flush=True)
        self.assertLess(seconds, MAX_SECONDS)
        self.assertEqual(managers[0].heard(), "WATCHDOG=1")
        self.stop(managers)
        host = Manager(self.root, self.exec_start("sluice-expert@.service",
                                                  "0"))
        self.addCleanup(host.process.kill)
        self.assertEqual(host.heard(), "READY=1")
        self.stop([host])

    def test_2_the_launcher_answers_from_packages(self):
        """As a user without a checkout, after the packages are installed."""
        def sluice(*words):
            return run(*self.root.inside(
                "env", "-i", "HOME=/tmp/home", "PATH=/usr/bin:/bin", "sluice",
                *words, user=NOBODY))
        self.root.run("install", "-d", "-o", "65534", "/tmp/home")
        told = sluice("up", "--detach", "--port", "0")
        self.assertIn("serving the small model that comes along", told)
        self.assertIn("A stage is one part of the pipeline", told)
        self.assertIn("\nready\n", sluice("status"))
        self.assertIn("stopped", sluice("down"))

    def exec_start(self, unit, instance=""):
        text = (self.root.path / "usr/lib/systemd/system" / unit).read_text()
        line = next(l for l in text.splitlines()
                    if l.startswith("ExecStart="))
        return shlex.split(line.removeprefix("ExecStart=")
                           .replace("%i", instance))

    def test_3_upgrade_and_rollback_keep_options_and_a_purge_leaves_nothing(self):
        options = self.root.path / "etc/sluice/gateway.toml"
        edited = options.read_text() + 'log-level = "warning"\n'
        options.write_text(edited)
        build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
        newer = pathlib.Path(self.folder.name) / "newer"
        run("cpack", "--config", build / "CPackConfig.cmake", "-G", "DEB",
            "-B", newer, "-D", "CPACK_DEBIAN_PACKAGE_RELEASE=2",
            "-D", "CPACK_COMPONENTS_ALL=gateway;cli", cwd=harness.ROOT)
        for deb in newer.glob("*.deb"):
            shutil.copy(deb, self.root.path / "tmp")
        self.root.run("sh", "-c", "dpkg -i /tmp/sluice-*-2_*.deb")
        version = self.root.run("dpkg-query", "-W", "-f", "${Version}",
                                "sluice-gateway")
        self.assertTrue(version.endswith("-2"), version)
        self.assertEqual(options.read_text(), edited)
        # And back.
        self.root.run("sh", "-c", "dpkg -i /tmp/sluice-gateway_*-1_*.deb "
                      "/tmp/sluice-cli_*-1_*.deb")
        version = self.root.run("dpkg-query", "-W", "-f", "${Version}",
                                "sluice-gateway")
        self.assertTrue(version.endswith("-1"), version)
        self.assertEqual(options.read_text(), edited)
        names = [d.name.split("_")[0] for d in self.debs()]
        self.root.run("dpkg", "--remove", *names)
        self.assertEqual(options.read_text(), edited)
        self.root.run("dpkg", "--purge", *names)
        left = run("find", self.root.path, "-xdev", "-name", "*sluice*",
                   "-not", "-path", "*/tmp/*", "-not", "-path", "*/run/*")
        self.assertEqual(left, "")

    def test_4_the_same_binaries_give_the_same_bytes(self):
        again = pathlib.Path(self.folder.name) / "again"
        self.make(again, "deb")
        for deb in self.debs():
            self.assertEqual(deb.read_bytes(),
                             (again / deb.name).read_bytes(), deb.name)


if __name__ == "__main__":
    harness.main()
