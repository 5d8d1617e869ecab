"""Grammars that crash, run for ever or grow for ever end their own request alone.

The gateway is sluice-crashing-gateway (tests/testing/crashing_gateway): what its
marked grammars do, a fault of the compiler would."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import tempfile
import statistics
import time
import unittest
import urllib.parse

import api
import harness

MODEL = harness.ROOT / "deploy/demo_model/weights"
PATH = "/v1/chat/completions"
KEYS = {"dear": "dear-0123456789abcdef", "quick": "quick-0123456789abcdef"}
# What a request of somebody else may take longer than in a calm cluster.
ALLOWED = 0.25


def key(name):
    return {"Authorization": f"Bearer {KEYS[name]}"}


def build_with_crashes(folder):
    """A build folder whose gateway is the crashing one."""
    built = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
    for name in ("stage/sluice-stage", "expert/sluice-expert", "cli/sluice"):
        place = folder / "services" / name
        place.parent.mkdir(parents=True)
        if (built / "services" / name).exists():
            place.symlink_to(built / "services" / name)
    place = folder / "services/gateway/sluice-gateway"
    place.parent.mkdir()
    place.symlink_to(
        built / "tests/testing/crashing_gateway/sluice-crashing-gateway")


def body(title, **members):
    schema = {"title": title, "type": "object", "additionalProperties": False,
              "required": ["a"], "properties": {"a": {"enum": [1, 2]}}}
    return {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8,
            "temperature": 0, "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": schema}}, **members}


def post(url, message, name):
    """(status, JSON)."""
    status, _, raw = api.request(url, "POST", PATH, message, key(name))
    return status, json.loads(raw)


def children(pid):
    """The processes that `pid` started and that run."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text[text.rindex(")") + 2:].split()[:2]
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


class CompileProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        folder = pathlib.Path(folder.name)
        build_with_crashes(folder)
        keys = folder / "keys"
        keys.write_text("".join(f"{name}:{secret}\n"
                                for name, secret in KEYS.items()))
        keys.chmod(0o600)
        cls.cluster = harness.Cluster(
            MODEL, "--stages", 1, "--api-key-file", keys,
            environment={"SLUICE_BUILD_DIR": str(folder)})
        cls.addClassCleanup(cls.cluster.close)
        cls.url = cls.cluster.url
        cls.pid = cls.cluster.process("gateway")["pid"]

    def ask(self, title, name="quick", **members):
        return post(self.url, body(title, **members), name)

    def failures(self, reason):
        _, _, text = api.request(self.url, "GET", "/metrics",
                                 headers=key("quick"))
        found = re.search(rb"sluice_gateway_grammar_failures_total\{[^}]*"
                          rb'reason="%s"[^}]*\} (\S+)' % reason.encode(), text)
        return float(found[1])

    def trials(self):
        return [trial for process in children(self.pid)
                for trial in children(process)]

    def test_1_a_fault_is_its_own_requests(self):
        for fault, reason, words in (
                ("crash:compile", "crashed", "the compiler crashed"),
                ("crash:mask:1", "crashed", "the compiler crashed"),
                ("overflow:compile", "crashed", "the compiler crashed"),
                ("loop:compile", "time", "the limit is 1000"),
                ("memory:compile", "memory", "MiB of memory")):
            with self.subTest(fault=fault):
                before = self.failures(reason)
                status, answer = self.ask(f"fault:{fault}")
                self.assertEqual(status, 400, answer)
                error = answer["error"]
                self.assertIn(words, error["message"])
                self.assertTrue(error["param"].startswith("response_format"),
                                error)
                self.assertEqual(self.failures(reason), before + 1)
                status, answer = self.ask("plain")
                self.assertEqual(status, 200, answer)
        os.kill(self.pid, 0)

    def test_2_a_strict_tool_that_crashes_is_named(self):
        tool = {"type": "function", "function": {
            "name": "f", "strict": True, "parameters": {
                "type": "object", "additionalProperties": False,
                "required": ["fault:crash:compile"], "properties": {
                    "fault:crash:compile": {"type": "integer"}}}}}
        status, answer = post(self.url, {
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
            "tools": [tool], "tool_choice": "required"}, "quick")
        self.assertEqual(status, 400, answer)
        self.assertEqual(answer["error"]["param"], "tools", answer)

    def test_3_others_do_not_wait_for_dear_grammars(self):
        def timed(title):
            begin = time.monotonic()
            status, answer = self.ask(title, max_tokens=1)
            self.assertEqual(status, 200, answer)
            return time.monotonic() - begin

        calm = sorted(timed(f"calm {i}") for i in range(20))
        end = time.monotonic() + 6

        def dear(worker):
            count = 0
            while time.monotonic() < end:
                self.ask(f"fault:loop:compile {worker} {count}", "dear")
                count += 1
            return count

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(dear, i) for i in range(4)]
            time.sleep(1)
            busy = []
            while time.monotonic() < end - 0.5:
                busy.append(timed(f"busy {len(busy)}"))
            counts = [worker.result() for worker in workers]
        self.assertGreaterEqual(sum(counts), 4)
        self.assertGreater(len(busy), 4)
        # Each would wait for a whole trial; the machine holds up some.
        self.assertLess(statistics.median(busy), calm[-1] + ALLOWED,
                        f"calm {calm}, busy {busy}")

    def test_4_who_leaves_takes_their_trial_along(self):
        child = self.restart("--max-grammar-compile-ms", "60000")
        parts = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port)
        connection.request("POST", PATH,
                           json.dumps(body("fault:loop:compile")),
                           {"Content-Type": "application/json",
                            **key("quick")})
        harness.wait_for(self.trials, 10, "a trial")
        connection.close()
        harness.wait_for(lambda: not self.trials(), 5, "no trial")
        self.assertIsNone(child.poll())

    def test_5_a_stop_waits_for_no_grammar(self):
        child = self.restart("--max-grammar-compile-ms", "60000")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.ask, "fault:loop:compile")
            harness.wait_for(self.trials, 10, "a trial")
            begin = time.monotonic()
            child.send_signal(signal.SIGTERM)
            status, answer = asked.result(30)
            self.assertEqual(status, 503, answer)
            self.assertLess(time.monotonic() - begin, 2)
            child.wait(20)
        self.assertEqual(children(self.pid), [])

    def restart(self, *options):
        os.kill(self.pid, signal.SIGTERM)
        harness.wait_for(lambda: not pathlib.Path(
            f"/proc/{self.pid}").exists() or "Z" in pathlib.Path(
                f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1][:3],
            30, "the gateway ends")
        child = self.cluster.restart("gateway", 0, *options)
        type(self).pid = child.pid
        self.addClassCleanup(child.kill)
        harness.wait_for(lambda: api.try_get(self.url, "/readyz")[0] == 200, 60,
                         "the gateway is ready")
        return child


if __name__ == "__main__":
    harness.main()
