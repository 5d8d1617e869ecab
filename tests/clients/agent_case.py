"""A coding agent at work, for tests: an empty home, an empty environment, and
loopback alone.

The task: a file is read, its fault repaired, and a check run. Its model says what
a script wants (agent_model.py), on two stages and a spare, of which a stage is
killed in the middle of the answer that repairs the file.
"""

import fcntl
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from client_cluster import ClientCluster, only_in_long_mode, skip
from refusals_test import Completions, Connection
import agent_model
import api
import harness

PACKAGES = harness.ROOT / "build" / "node" / "coding"
BIN = PACKAGES / "node_modules" / ".bin"
FAULTY = "def add(a, b):\n    return a - b\n"
REPAIRED = "def add(a, b):\n    return a + b\n"
CHECK = ("import calc\n"
         "assert calc.add(2, 3) == 5, calc.add(2, 3)\n"
         "open('checked', 'w').close()\n"
         "print('all is well')\n")
CHECKING = "python3 check.py"
TASK = "Repair add in calc.py, then run check.py."
# What the model says: the second answer is the long one.
LOOKS = "<think>\nThe file first.\n</think>\n\nI read calc.py."
REPAIRS = "<think>\n{}\n</think>\n\nadd subtracts. I repair it.".format(
    " ".join(f"Line {line} is as it should be." for line in range(1, 101)))
CHECKS = "Now the check."
DONE = "Repaired, and the check passes."
# Tokens of all answers before a stage dies: behind those of the first and of a
# title, far before the end of the second, which has more than 700.
KILL_AFTER = 250
SECONDS = 300  # of one agent's run, at most
SOME = 2  # refusals before a trouble ends

_LOOPBACK = "SLUICE_LOOPBACK_ALONE"


def on_loopback_alone():
    """Begins the program anew in a network that has loopback alone; skips where
    the machine gives none."""
    if _LOOPBACK not in os.environ:
        unshare = [shutil.which("unshare") or "unshare", "--map-root-user",
                   "--net"]
        try:
            given = subprocess.run([*unshare, "true"], capture_output=True,
                                   check=False).returncode == 0
        except OSError:
            given = False
        if not given:
            skip(f"needs a network of its own: {' '.join(unshare)} fails")
        os.environ[_LOOPBACK] = "1"
        os.execv(unshare[0], [*unshare, sys.executable, "-B", *sys.argv])
    with socket.socket() as any_socket:
        up = struct.pack("16sh", b"lo", 0x1)  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS
        try:
            any_socket.connect(("192.0.2.1", 80))
        except OSError:
            return
    raise AssertionError("there is more than loopback")


def needs(*paths):
    """Ends the program as skipped unless it is the long mode and `paths` are
    there; else goes on with loopback alone."""
    only_in_long_mode("coding agents")
    for path in paths:
        if not path.exists():
            skip(f"needs {path} (tests/run --long makes it)")
    on_loopback_alone()


class AgentCase(unittest.TestCase):
    """`work`, the agent's folder, with a fault; its `home`, empty."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-agent-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name) / "home"
        self.work = pathlib.Path(folder.name) / "work"
        self.home.mkdir()
        self.work.mkdir()
        (self.work / "calc.py").write_text(FAULTY)
        (self.work / "check.py").write_text(CHECK)

    def run_agent(self, command, environment):
        """What an agent printed in `work`, and its status."""
        node = shutil.which("node")
        path = [str(pathlib.Path(node).parent)] if node else []
        done = subprocess.run(
            [str(word) for word in command], cwd=self.work,
            env={"HOME": str(self.home),
                 "PATH": ":".join([*path, "/usr/bin", "/bin"]), **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=SECONDS, check=False)
        return done.stdout + done.stderr, done.returncode

    def finish_task(self, script, command_of):
        """The agent's output. `command_of`(cluster) is (command, environment)."""
        with agent_model.ScriptedCluster([script]) as cluster:
            killer = _Killer(cluster)
            text, status = self.run_agent(*command_of(cluster))
            killer.end()
            self.assertEqual(status, 0, text)
            self.assertEqual((self.work / "calc.py").read_text(), REPAIRED,
                             text)
            self.assertTrue((self.work / "checked").exists(), text)
            self.assertIn(DONE, text)
            self.assertTrue(killer.has_killed, "the answers were too short")
            metrics = api.metrics(cluster.url)
            self.assertGreater(
                metrics["sluice_gateway_replayed_tokens_total"], KILL_AFTER)
            print(f"{metrics['vllm:prompt_tokens_total']:.0f} prompt tokens, "
                  f"{metrics['vllm:generation_tokens_total']:.0f} drawn, "
                  f"{metrics['sluice_gateway_replayed_tokens_total']:.0f} "
                  "computed again", flush=True)
            return text

    def finish_though_refused(self, script, command_of, trouble):
        """The agent's output. Its first requests are refused, until `trouble`,
        Full or Lost, has refused SOME of them."""
        with agent_model.ScriptedCluster([script], *trouble.OPTIONS) as cluster:
            ending = _Ending(trouble(cluster))
            text, status = self.run_agent(*command_of(cluster))
            self.assertTrue(ending.end(), "nothing was refused: " + text)
            self.assertEqual(status, 0, text)
            self.assertEqual((self.work / "calc.py").read_text(), REPAIRED,
                             text)
            self.assertIn(DONE, text)

    def run_on_default_model(self, command_of):
        """(output, status) on the default model, of 8,192 positions."""
        model = harness.default_model()
        with harness.Cluster(model, "--any-model-name",
                             "--max-tokens-overflow", "cut") as cluster:
            return self.run_agent(*command_of(cluster))


def repairing(agent_tool, *calls):
    """A script without a long answer: it says `calls` and is done."""
    return agent_model.script(tool=agent_tool, steps=[
        *("Next. " + one for one in calls), DONE])


class Full:
    """A server with one place, which a stream of its own has: 429."""

    OPTIONS = ("--max-running", 1, "--max-queue", 0)
    STATUS = "4xx"

    def __init__(self, cluster):
        self.url = cluster.url
        self._place = Connection(cluster.url, "/v1/completions", {
            "stream": True, **Completions().body("Hi", 60000)})
        self._place.read(1)

    def end(self):
        self._place.close()


class Lost:
    """A cluster without its last stage and without a spare: 503, and 529 to
    Anthropic's clients."""

    OPTIONS = ("--spares", 0, "--recovery-timeout", 0, "--resplit-after", 0)
    STATUS = "5xx"

    def __init__(self, cluster):
        self.url, self._cluster = cluster.url, cluster
        cluster.kill("stage", 1)
        harness.wait_for(lambda: api.try_get(self.url, "/readyz")[0] == 503, 30,
                         "the gateway misses the stage")

    def end(self):
        self._cluster.restart("stage", 1)


class _Ending(threading.Thread):
    """Ends a trouble when it has refused SOME requests to answer."""

    def __init__(self, trouble):
        super().__init__()
        self._trouble, self._ended, self._has_refused = trouble, False, False
        self.start()

    def run(self):
        wanted = re.compile(
            r'http_requests_total\{handler="/v1/[a-z/]+",method="POST",'
            rf'status="{self._trouble.STATUS}"\}} (\d+)')
        while not self._ended and not self._has_refused:
            _, text = api.get(self._trouble.url, "/metrics")
            self._has_refused = sum(map(int, wanted.findall(text))) >= SOME
            time.sleep(0.05)
        self._trouble.end()

    def end(self):
        """Whether requests were refused."""
        self._ended = True
        self.join()
        return self._has_refused


class _Killer(threading.Thread):
    """Kills a stage when KILL_AFTER tokens have been drawn."""

    def __init__(self, cluster):
        super().__init__()
        self.has_killed = False
        self._cluster, self._ended = cluster, False
        self.start()

    def run(self):
        while not self._ended:
            now = api.metrics(self._cluster.url)
            if now["vllm:generation_tokens_total"] >= KILL_AFTER:
                if now["vllm:num_requests_running"]:
                    self._cluster.kill("stage", 1)
                    self.has_killed = True
                return
            time.sleep(0.01)

    def end(self):
        self._ended = True
        self.join()
