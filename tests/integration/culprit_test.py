"""A request that ends its gateway ends itself alone.

Two gateways whose grammars crash where the test says so (crashing_bridge.cc): at
the compile, at an answer's first mask, at its 50th. One client sends such a
request to the standby; eight streams of another client, through the same standby,
end with the tokens of a calm run, and no connection of theirs is cut.
"""

import http.client
import itertools
import json
import os
import pathlib
import tempfile
import threading
import time
import unittest
import urllib.parse

import api
import harness

SECONDS = 60  # of a start or a change of roles, at the most
LATEST = 180  # seconds, of an answer
CRASHING = "tests/testing/crashing_gateway/sluice-crashing-gateway"
ALICE, MALLORY = "sk-alice-0123456789", "sk-mallory-0123456789"
STREAMS = 8
# The most gateways that the culprit may end: RepeatOrder.
MOST = {"compile": 2, "mask:1": 2, "mask:50": 3}


def ask(url, key, body, headers=None, on_line=None):
    """(status, headers, text)."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port,
                                            timeout=LATEST)
    text = []
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json",
                            "Authorization": "Bearer " + key,
                            **(headers or {})})
        answer = connection.getresponse()
        for line in answer:
            text.append(line.decode())
            if on_line and answer.status == 200:
                on_line(text[-1])
        return answer.status, dict(answer.getheaders()), "".join(text)
    finally:
        connection.close()


def innocent(index):
    body = {"prompt": [1, 403, 407, 261 + index], "max_tokens": 400,
            "temperature": 0.8, "seed": index, "ignore_eos": index % 4 != 3,
            "return_token_ids": True, "stream": True}
    if index % 4 == 3:  # one that may be taken for the culprit
        body["structured_outputs"] = {"regex": "[A-Za-z ,.]{300,390}"}
    return body


def culprit(fault, stream):
    # The title stands for the fault; the text is long enough for 50 masks.
    return {"prompt": [1, 403, 407], "max_tokens": 300, "temperature": 0.8,
            "seed": 1, "stream": stream, "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "schema": {
                    "title": "fault:crash:" + fault, "type": "string",
                    "minLength": 280}}}}


class Innocent(threading.Thread):
    """A stream, whose client asks for the rest where its connection is cut."""

    def __init__(self, urls, index):
        super().__init__()
        self.cuts, self.begun = 0, threading.Event()
        self._urls, self._body = urls, innocent(index)
        self._events, self._last, self._failed = [], None, None
        self.start()

    def run(self):
        end = time.monotonic() + LATEST
        urls = itertools.cycle(self._urls)
        while self._events[-1:] != ["[DONE]"] and not self._failed and (
                time.monotonic() < end):
            before = len(self._events)
            try:
                self._ask(next(urls))
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)
            # http.client tells no end from a cut.
            self.cuts += (len(self._events) > before
                          and self._events[-1] != "[DONE]")

    def _ask(self, url):
        def on_line(line):
            if line.startswith("data: "):
                self._latest = line[6:].rstrip("\n")
                self._latest_id = None
            elif line.startswith("id: "):
                self._latest_id = line[4:].rstrip("\n")
            elif line == "\n" and self._latest:
                self._events.append(self._latest)
                self._last = self._latest_id or self._last
                self._latest = None
                self.begun.set()
        self._latest = None
        headers = {"Last-Event-ID": self._last} if self._last else {}
        status, _, text = ask(url, ALICE, self._body, headers, on_line)
        if status not in (200, 503) or (status == 200 and '"error"' in text):
            self._failed = f"{status}: {text[-300:]}"

    def tokens(self):
        """The ids; fails where the stream ended with an error."""
        self.join(LATEST)
        if self._failed or self._events[-1:] != ["[DONE]"]:
            raise AssertionError(self._failed or "no end")
        ids = []
        for event in map(json.loads, self._events[:-1]):
            if "error" in event:
                raise AssertionError(event)
            for choice in event.get("choices", []):
                ids += choice.get("token_ids") or []
        return ids


class CulpritTest(unittest.TestCase):
    def setUp(self):
        build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]).absolute()
        if harness.SANITIZED or not (build / CRASHING).exists():
            self.skipTest(f"needs {build / CRASHING}, without a sanitizer")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        programs = pathlib.Path(folder.name) / "build"
        for path, target in (("gateway/sluice-gateway", build / CRASHING),
                             ("stage/sluice-stage",
                              build / "services/stage/sluice-stage")):
            link = programs / "services" / path
            link.parent.mkdir(parents=True)
            link.symlink_to(target)
        self.keys = pathlib.Path(folder.name) / "keys"
        self.keys.write_text(f"{ALICE}\n{MALLORY}\n")
        self.keys.chmod(0o600)
        self.programs = programs

    def start(self, gateways):
        self.cluster = harness.Cluster(
            harness.golden("stories"),
            "--gateways", gateways, "--supervise", "--api-key-file", self.keys,
            environment={"SLUICE_BUILD_DIR": str(self.programs)})
        self.addCleanup(self.cluster.close)
        self.urls = ["http://" + self.cluster.process("gateway", index)[
            "addresses"][0] for index in range(gateways)]
        _, standby = self.settle()
        self.calm = [Innocent([self.urls[standby]], index).tokens()
                     for index in range(STREAMS)]

    def role(self, index):
        status, body = api.try_get(self.urls[index], "/readyz", timeout=5)
        return json.loads(body).get("role") if status == 200 else None

    def settle(self):
        """The indices of the leader and of a standby, once all others are."""
        def found():
            roles = [self.role(index) for index in range(len(self.urls))]
            others = roles.count("standby")
            return roles.count("leader") == 1 and others == len(roles) - 1 and (
                roles.index("leader"), roles.index("standby"))
        return harness.wait_for(found, SECONDS, "one leads, the others do not")

    def ends(self):
        """How many gateways have ended so far."""
        log = "".join(path.read_text(errors="replace") for path in
                      pathlib.Path(self.cluster.run_dir).glob("supervisor.log"))
        return sum("gateway" in line and "has ended" in line
                   for line in log.splitlines())

    def test_a_culprit_ends_itself_alone(self):
        self.start(2)
        for fault in MOST:
            for stream in (False, True):
                with self.subTest(fault=fault, stream=stream):
                    cuts = self.check(fault, stream)
                    # A stream with events goes on at once, also where the
                    # standby leads.
                    if not (stream and fault == "mask:50"):
                        self.assertEqual(cuts, 0)

    def test_of_three_gateways_two_remain_or_come_back(self):
        self.start(3)
        for fault in ("compile", "mask:1", "mask:50"):
            with self.subTest(fault=fault):
                self.assertEqual(self.check(fault, stream=False), 0)

    def check(self, fault, stream):
        """The number of others' connections that were cut."""
        leader, standby = self.settle()
        url, before = self.urls[standby], self.ends()
        streams = [Innocent([url, self.urls[leader]], index)
                   for index in range(STREAMS)]
        for one in streams:
            self.assertTrue(one.begun.wait(LATEST))
        code = self.code_of(url, culprit(fault, stream))
        for index, one in enumerate(streams):
            self.assertEqual(one.tokens(), self.calm[index], index)
        self.settle()
        ends = self.ends() - before
        cuts = sum(one.cuts for one in streams)
        print(f"{len(self.urls)} gateways, {fault}, stream {stream}: {code}; "
              f"{ends} gateways ended, {cuts} connections of others cut",
              flush=True)
        # What is compiled apart ends no gateway, and is refused. A standby that
        # leads by then ends with its suspect, and cannot answer it.
        self.assertIn(code, ("lost_gateways", "cut", "refused"))
        self.assertLessEqual(ends, 0 if code == "refused" else MOST[fault])
        return cuts

    def code_of(self, url, body):
        """How the culprit's answer ended."""
        try:
            status, headers, text = ask(url, MALLORY, body)
        except (OSError, http.client.HTTPException):
            return "cut"
        if status == 400:
            return "refused"
        if "lost_gateways" not in text:
            # http.client tells no end from a cut.
            is_cut = body["stream"] and status == 200 and "[DONE]" not in text
            return "cut" if is_cut else f"{status}: {text[-300:]}"
        if "text/event-stream" not in headers["Content-Type"]:
            self.assertEqual((status, headers.get("X-Should-Retry")),
                             (500, "false"))
        return "lost_gateways"


if __name__ == "__main__":
    harness.main()
