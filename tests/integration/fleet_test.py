"""`up --hosts`: one command, three machines reached by ssh, each a network
namespace with a daemon of its own. Needs root, ip and sshd."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import harness

sys.path.insert(0, str(harness.ROOT / "tests/testing"))
import ssh_machines  # noqa: E402

UP = harness.ROOT / "deploy/local/up"
DOWN = harness.ROOT / "deploy/local/down"
CLI = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "services/cli/sluice"
NAMES = ("a", "b", "c")


class FleetTest(unittest.TestCase):
    def setUp(self):
        missing = ssh_machines.lacks()
        if missing:
            self.skipTest(missing)
        self.model = harness.golden("stories")
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.machines = ssh_machines.Machines(self.folder, NAMES)
        self.addCleanup(self.machines.close)
        try:
            self.machines.open()
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr}")
        self.run_dir = self.folder / "run"
        self.addCleanup(self.down)

    def hosts_toml(self, **replaced):
        """Stages on a and b, the gateway on c."""
        hosts = {name: {"ssh": self.machines.destination(name),
                        "address": name,
                        "run_dir": str(self.folder / f"at-{name}")}
                 for name in NAMES}
        hosts["a"]["layers"], hosts["b"]["layers"] = "0-1", "2-4"
        hosts["c"]["stages"] = 0
        for name, keys in replaced.items():
            hosts[name].update(keys)
        path = self.folder / "hosts.toml"
        path.write_text(f'model = "{self.model}"\ngateway = "c"\n' + "".join(
            f"\n[hosts.{name}]\n" + "".join(
                f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
            for name, keys in hosts.items()))
        return path

    def environment(self):
        return {**os.environ, "SLUICE_SSH": self.machines.ssh}

    def up(self, hosts, *options):
        return subprocess.run(
            [str(UP), "--hosts", str(hosts), "--run-dir", str(self.run_dir),
             "--detach", *options], capture_output=True, text=True,
            env=self.environment(), timeout=300, check=False)

    def down(self):
        return subprocess.run(
            [str(DOWN), "--run-dir", str(self.run_dir)], capture_output=True,
            text=True, env=self.environment(), timeout=120, check=False)

    def document(self):
        return json.loads((self.run_dir / "cluster.json").read_text())

    def open(self, path, body=None, timeout=60):
        request = urllib.request.Request(
            self.document()["url"] + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=timeout)

    def status(self):
        try:
            with self.open("/readyz", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def check_reference(self):
        ids, expected = harness.golden_answer("stories", 1)
        with self.open("/v1/completions", {
                "prompt": ids, "max_tokens": len(expected), "temperature": 0,
                "ignore_eos": True, "return_token_ids": True}) as answer:
            choice = json.load(answer)["choices"][0]
        self.assertEqual(choice["token_ids"], expected)

    def stream(self, tokens=400):
        return self.open("/v1/completions", {
            "prompt": "Once upon a time", "max_tokens": tokens,
            "temperature": 0, "ignore_eos": True, "stream": True}, 180)

    @staticmethod
    def rest(stream, begun=""):
        """Text and whether the stream is whole."""
        text, whole = begun, False
        for line in stream:
            if line.startswith(b"data: [DONE]"):
                whole = True
            elif line.startswith(b"data: "):
                text += json.loads(line[6:])["choices"][0]["text"]
        stream.close()
        return text, whole

    def begun(self, stream):
        """The text of a stream's first tokens."""
        text = ""
        while len(text) < 20:
            line = stream.readline()
            if line.startswith(b"data: "):
                text += json.loads(line[6:])["choices"][0]["text"]
        return text

    @staticmethod
    def processes_of(folder):
        """Pids by program of what runs from the folder, supervisors apart."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0].startswith(str(folder)):
                found[pathlib.Path(words[0]).name] = int(path.parent.name)
        return found

    def test_layers_follow_what_hosts_and_links_can_do(self):
        try:
            self.machines.slow("b", 0.25)
        except OSError as error:
            self.skipTest(f"no control groups here: {error}")
        hosts = self.hosts_toml(a={"layers": "", "threads": 1},
                                b={"layers": "", "threads": 1})
        done = self.up(hosts)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The model fits the fast host, and a hop costs more than it saves.
        self.assertIn("host a: layers 0-4, ", done.stderr)
        self.assertIn("without a stage: b, c", done.stderr)
        self.assertIn(" times as long", done.stderr)
        self.assertEqual(
            {entry["name"]: [one["role"] for one in entry["processes"]]
             for entry in self.document()["hosts"]},
            {"a": ["stage"], "b": [], "c": ["gateway"]})
        self.check_reference()
        self.assertEqual(self.down().returncode, 0)
        rates = [self.folder / f"at-{name}/rates.json" for name in "ab"]
        measured = [path.stat().st_mtime_ns for path in rates]
        done = self.up(hosts, "--split-by", "memory")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_reference()
        self.assertEqual(self.down().returncode, 0)
        done = self.up(hosts)  # what is measured is kept
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path.stat().st_mtime_ns for path in rates], measured)

    def test_three_machines_answer_lose_one_and_stop(self):
        done = self.up(self.hosts_toml())
        self.assertEqual(done.returncode, 0, done.stderr)
        for told in ("host a: started stage 0", "host b: started stage 1",
                     "host c: started gateway", "copying this build's"):
            self.assertIn(told, done.stderr)
        self.assertIn("2 stages on 3 hosts", done.stdout)
        self.assertEqual(self.status(), 200)
        expected, whole = self.rest(self.stream())
        self.assertTrue(whole)
        self.check_reference()
        for name in ("a-stage-0", "b-stage-1", "c-gateway"):
            log = self.run_dir / f"{name}.log"
            harness.wait_for(lambda log=log: log.exists() and
                             log.stat().st_size, 10, f"{log} is told here")
        shown = subprocess.run([str(CLI), "status", "--run-dir",
                                str(self.run_dir)], capture_output=True,
                               text=True, check=False)
        self.assertEqual(shown.returncode, 0, shown.stderr + shown.stdout)
        for word in ("a  ", "stage 0", "b  ", "stage 1", "c  ", "gateway"):
            self.assertIn(word, shown.stdout)
        self.check_secrets()
        self.check_a_killed_stage(expected)
        self.check_a_machine_cut_off(expected)
        again = self.up(self.hosts_toml())
        self.assertEqual(again.returncode, 7, again.stderr)
        stopped = self.down()
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        for name in NAMES:
            self.assertEqual(self.processes_of(self.folder / f"at-{name}"),
                             {}, name)
        self.check_the_second_start()

    def check_secrets(self):
        for name in NAMES:
            for path in (self.folder / f"at-{name}" / "tls").iterdir():
                self.assertEqual(path.stat().st_mode & 0o077, 0, path)
                self.assertNotEqual(path.name, "ca.key")

    def check_a_killed_stage(self, expected):
        stream = self.stream()
        begun = self.begun(stream)
        pid = self.processes_of(self.folder / "at-b")["sluice-stage"]
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.rest(stream, begun), (expected, True))
        harness.wait_for(lambda: self.processes_of(
            self.folder / "at-b").get("sluice-stage", pid) != pid, 30,
                         "started again by its machine's supervisor")
        harness.wait_for(lambda: "stage" in (
            self.run_dir / "b-supervisor.log").read_text(), 10,
                         "the death is told here")

    def check_a_machine_cut_off(self, expected):
        harness.wait_for(lambda: self.status() == 200, 60, "ready again")
        self.machines.cut("b")
        try:
            harness.wait_for(lambda: self.status() not in (0, 200), 60,
                             "the loss is noticed")
            supervisor = self.run_dir / "supervisor.log"
            harness.wait_for(lambda: "host b is lost" in
                             supervisor.read_text(), 60, "ssh's loss is told")
        finally:
            self.machines.join("b")
        harness.wait_for(lambda: self.status() == 200, 60, "back")
        self.assertEqual(self.rest(self.stream()), (expected, True))
        harness.wait_for(lambda: "host b is back" in supervisor.read_text(),
                         60, "ssh's return is told")

    def check_the_second_start(self):
        """Nothing is copied or signed again."""
        before = (self.run_dir / "tls/a-stage.pem").read_bytes()
        done = self.up(self.hosts_toml())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("copying", done.stderr)
        self.assertEqual((self.run_dir / "tls/a-stage.pem").read_bytes(),
                         before)
        self.assertEqual(self.down().returncode, 0)

    def test_what_cannot_start_is_named_and_leaves_nothing(self):
        begin = time.monotonic()
        for replaced, code, told in (
                ({"b": {"ssh": "root@10.232.0.77"}}, 6,
                 "host b (root@10.232.0.77) cannot be reached"),
                ({"b": {"model": "/none"}}, 5, "host b: its model /none"),
                ({"b": {"binaries": "/none"}}, 6,
                 "host b: there is no sluice-stage in /none"),
                ({"b": {"port": 70000}}, 2, "port must be between"),
                ({"b": {"layers": "3-4"}}, 2, "must begin at 2"),
                ({"b": {"layers": "2-9"}}, 6, "stage 1")):
            done = self.up(self.hosts_toml(**replaced))
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(told, done.stderr)
            self.assertFalse((self.run_dir / "cluster.json").exists())
            for name in NAMES:
                self.assertEqual(
                    self.processes_of(self.folder / f"at-{name}"), {}, name)
        self.assertLess(time.monotonic() - begin, 200)


if __name__ == "__main__":
    harness.main()
