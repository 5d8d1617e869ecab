"""What `sluice plan --write up` and `systemd` write, started as it is written: on
this machine, and on machines that are network namespaces. Answers are those of a
cluster that nobody planned."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "integration"),
                str(HERE.parents[1] / "testing")]

import harness  # noqa: E402
import planned  # noqa: E402
import ssh_machines  # noqa: E402
from harness import ROOT  # noqa: E402

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]).absolute()
UNITS = ROOT / "deploy/systemd"
BODY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
        "ignore_eos": True, "return_token_ids": True}


def ask(url, **changed):
    """(status, token ids or the error's text)."""
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps({**BODY, **changed}).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return 200, json.load(answer)["choices"][0]["token_ids"]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class PlanCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with harness.Cluster(planned.DEMO, "--stages", "1") as cluster:
            cls.want = ask(cluster.url)[1]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-plan-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # The written commands are those of a checkout's root.
        (self.folder / "deploy").symlink_to(ROOT / "deploy")
        self.run_dir = self.folder / "run"

    def check(self, url):
        """The answer, and that the context is the planned one."""
        self.assertEqual(ask(url), (200, self.want))
        status, said = ask(url, max_tokens=600)
        self.assertEqual(status, 400, said)
        self.assertIn("512", said)

    def started(self, environment=None):
        """The cluster.json that a started `up` left; `up` ends with the test."""
        self.addCleanup(
            subprocess.run,
            [ROOT / "deploy/local/down", "--run-dir", self.run_dir],
            capture_output=True, timeout=120, check=False,
            env={**os.environ, **(environment or {})})
        return json.loads((self.run_dir / "cluster.json").read_text())


class UpTest(PlanCase):
    def test_a_plan_of_this_machine_is_one_command(self):
        """Two stages and a host of experts of one box."""
        text = planned.write(
            "up", planned.machine("a", address="localhost")
            + planned.machine("b", address="localhost")
            + planned.machine("e", address="localhost", role="experts"))
        script = self.folder / "plan.sh"
        script.write_text(text.rstrip("\n") + " --detach --port 0 --packed off "
                          f"--run-dir {self.run_dir}\n")
        done = subprocess.run(["bash", "-e", script], cwd=self.folder, text=True,
                              capture_output=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        document = self.started()
        roles = [one["role"] for one in document["processes"]]
        self.assertEqual(sorted(roles), ["expert", "gateway", "stage", "stage"])
        self.check(document["url"])

    def test_what_no_command_starts_is_said(self):
        done = planned.run("up", planned.machine("a")
                           + planned.machine("e", role="experts"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("starts no hosts of experts", done.stderr)
        self.assertEqual(done.stdout, "")


class MachinesTest(PlanCase):
    """Machines a, b and c, of which a plan of two stages leaves c out."""

    NAMES = ("a", "b", "c")

    def setUp(self):
        super().setUp()
        missing = ssh_machines.lacks()
        if missing:
            self.skipTest(missing)
        self.machines = ssh_machines.Machines(self.folder, self.NAMES, "slp",
                                              "10.233.0")
        self.addCleanup(self.machines.close)
        try:
            self.machines.open()
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr}")

    def toml(self, **keys):
        return "".join(
            planned.machine(name, address=self.machines.address(name),
                            **keys.get(name, {})) for name in self.NAMES)

    def test_up_starts_the_planned_hosts(self):
        text = planned.write("up", self.toml(), options=(
            *planned.SMALL, "--stages", "2"))
        hosts = self.folder / "hosts.toml"
        hosts.write_text(text)
        # The command of the file's first line; `ssh a` is a matter of the user's
        # own configuration.
        words = shlex.split(text.split("\n")[0].removeprefix("# hosts.toml: "))
        with open(self.folder / "ssh_config", "a") as config:
            for name in self.NAMES:
                config.write(f"Host {name}\n  User root\n  HostName "
                             f"{self.machines.address(name)}\n")
        environment = {"SLUICE_SSH": self.machines.ssh}
        done = subprocess.run(
            ["bash", *words, "--run-dir", self.run_dir, "--detach", "--packed",
             "off"], cwd=self.folder, env={**os.environ, **environment},
            capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        document = self.started(environment)
        self.assertEqual([one["name"] for one in document["hosts"]], ["a", "b"])
        told = [process["argv"] for host in document["hosts"]
                for process in host["processes"] if process["role"] == "stage"]
        layers = [argv[argv.index("--layers") + 1] for argv in told]
        self.assertEqual(layers, re.findall(r'layers = "(.*)"', text))
        self.check(document["url"])

    def test_systemd_runs_the_units_of_each_machine(self):
        text = planned.write(
            "systemd", self.toml(c={"role": "experts"}),
            options=(*planned.SMALL, "--source", str(planned.DEMO)))
        script = self.folder / "plan.sh"
        script.write_text(text)
        self.make_certificates(text)
        for name in self.NAMES:
            subprocess.run(["sh", script, name, self.root(name)], check=True)
        self.assertEqual(subprocess.run(
            ["sh", script, "z", self.root("z")], capture_output=True,
            check=False).returncode, 2)
        for name, units in (("c", ["sluice-expert@0"]),
                            ("b", ["sluice-stage@1"]),
                            ("a", ["sluice-stage@0", "sluice-gateway"])):
            self.assertIn(f"units='{' '.join(units)}'", text)
            for unit in units:
                self.verify(name, unit)
                self.run_unit(name, unit)
        with self.way_to("a", 8000) as url:
            harness.wait_for(lambda: self.is_ready(url), 120,
                             f"ready: {self.logs()}")
            self.check(url)

    def root(self, name):
        return self.folder / f"root-{name}"

    def make_certificates(self, text):
        words = shlex.split(re.search(r"#   (deploy/local/certificates .*)",
                                      text)[1])
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
        for name in self.NAMES:
            to = self.root(name) / "etc/sluice/tls"
            to.mkdir(parents=True)
            for path in [*(self.folder / "tls").glob(f"{name}-*"),
                         self.folder / "tls/ca.pem"]:
                shutil.copy(path, to)

    def verify(self, name, unit):
        """systemd finds no fault with the unit and its drop-in."""
        if not shutil.which("systemd-analyze"):
            return
        folder = self.root(name) / "etc/systemd/system"
        for path in [*UNITS.glob("*.service"), *UNITS.glob("*.target")]:
            (folder / path.name).write_text(re.sub(
                r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(),
                flags=re.M))
        path = folder / f"{unit}.service"
        if not path.exists():
            path.symlink_to(re.sub("@.*", "@.service", unit))

        def faults():
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", path],
                capture_output=True, text=True, check=False)
            return done.returncode, done.stderr
        self.assertEqual(faults(), (0, ""))
        drop_in = folder / f"{unit}.service.d/60-plan.conf"
        written = drop_in.read_text()
        drop_in.write_text(written + "Typo=yes\n")
        self.assertIn("Typo", faults()[1])
        drop_in.write_text(written)

    def run_unit(self, name, unit):
        """Its ExecStart, with the written files in their places."""
        root = self.root(name)
        template, _, instance = unit.partition("@")
        text = (UNITS / (template + ("@.service" if instance else ".service"))
                ).read_text()
        command = re.search(r"^ExecStart=(.*)", text, re.M)[1]
        words = shlex.split(command.replace("%i", instance))
        drop_in = (root / f"etc/systemd/system/{unit}.service.d/60-plan.conf"
                   ).read_text()
        config = pathlib.Path(f"{root}{words[2]}")
        said = config.read_text()
        for credential, path in re.findall(r"LoadCredential=(\w+):(.*)", drop_in):
            given = f"/run/credentials/{unit}.service/{credential}"
            self.assertIn(given, said)
            said = said.replace(given, path)
        config.write_text(said.replace('"/etc/', f'"{root}/etc/'))
        service = template.removeprefix("sluice-")
        with open(self.folder / f"{unit}.log", "w") as log:
            child = subprocess.Popen(
                ["ip", "netns", "exec", f"slp-{name}",
                 BUILD / f"services/{service}/{template}", words[1], config],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"],
                     "XDG_CACHE_HOME": str(self.folder / "cache")})
        self.addCleanup(child.wait)
        self.addCleanup(child.terminate)
        self.addCleanup(self.check_memory, child.pid, drop_in)

    def check_memory(self, pid, drop_in):
        """The written limit was enough."""
        limit = re.search(r"MemoryMax=(\d+)M", drop_in)
        if limit:
            peak = re.search(r"VmHWM:\s+(\d+) kB",
                             pathlib.Path(f"/proc/{pid}/status").read_text())
            self.assertLess(int(peak[1]) >> 10, int(limit[1]))

    def way_to(self, name, port):
        """A context manager: this machine's URL of a port of a's loopback."""
        local = f"127.0.0.1:{harness_port()}"
        return Way(self.machines, name, local, port)

    def is_ready(self, url):
        try:
            with urllib.request.urlopen(url + "/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def logs(self):
        return "".join(f"\n--- {path.name}\n{path.read_text()[-1500:]}"
                       for path in self.folder.glob("*.log"))


def harness_port():
    sys.path.append(str(ROOT / "deploy/local/cluster"))
    import ports
    return ports.choose(1)[0]


class Way:
    """A tunnel of ssh."""

    def __init__(self, machines, name, local, port):
        self._child = subprocess.Popen(
            [*shlex.split(machines.ssh), "-N", "-L", f"{local}:127.0.0.1:{port}",
             machines.destination(name)], stdin=subprocess.DEVNULL)
        self._url = f"http://{local}"

    def __enter__(self):
        return self._url

    def __exit__(self, *_):
        self._child.terminate()
        self._child.wait(10)


if __name__ == "__main__":
    harness.main()
