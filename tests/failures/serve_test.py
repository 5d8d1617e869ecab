"""A gateway and a stage that serve while a call of one of them fails: the
request is answered, with an error or with what it always gets, and the process
goes on.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "integration"))

import api  # noqa: E402
import harness  # noqa: E402
import shapes  # noqa: E402
from failing_calls import (FailingCalls, Tally, large_allocations, places,  # noqa: E402
                           small_allocations)

# What a request may be answered with beside 200: too little memory, an error of
# the server, or a refusal because of either.
REFUSALS = (429, 500, 502, 503, 507)


def make_model(folder):
    """The tiny model, with a template and room for a long prompt."""
    shutil.copytree(harness.golden("stories"), folder,
                    dirs_exist_ok=True)
    config = folder / "config.json"
    config.chmod(0o644)
    config.write_text(json.dumps({**json.loads(config.read_text()),
                                  "max_position_embeddings": 4096}))
    shutil.copy(
        harness.test_data("templates/meta-llama-Llama-3.1-8B-Instruct.jinja"),
        folder / "chat_template.jinja")


def requests():
    """(path, body) of each kind that allocates by what a client sends."""
    words = "Once upon a time there was a little girl. "
    chat = {"messages": [{"role": "user", "content": words * 30}],
            "max_tokens": 6, "temperature": 0}
    return [
        ("/v1/chat/completions", {**chat, "response_format": {
            "type": "json_schema", "json_schema": {
                "name": "x", "schema": shapes.SCHEMA}}}),
        ("/v1/completions", {"prompt": [1] + [403] * 700, "max_tokens": 4,
                             "temperature": 0, "stream": True,
                             "ignore_eos": True, "logprobs": 3}),
        # Of more ids than 4,096: an array of more than 64 KiB.
        ("/tokenize", {"prompt": words * 600}),
        ("/v1/completions", {"prompt": words * 20, "max_tokens": 4,
                             "temperature": 0, "n": 3, "ignore_eos": True}),
    ]


def plain(raw):
    """An answer without its times and ids, and what was found in the cache."""
    text = re.sub(r"(?m)^(id)?:.*$", "", raw.decode(errors="replace"))
    text = re.sub(r'"cached_tokens": ?\d+', "", text)
    return re.sub(r'"(id|created|request_id|system_fingerprint)": ?'
                  r'("[^"]*"|\d+)', "", text)


def difference(text, same):
    """Where two texts begin to differ."""
    at = len(os.path.commonprefix([text, same]))
    return f"'..{text[max(0, at - 60):at + 60]}' instead of " \
        f"'..{same[max(0, at - 60):at + 60]}'"


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sluice-failures-")
        model = pathlib.Path(cls.folder.name) / "model"
        model.mkdir()
        make_model(model)
        cls.calls = {"gateway": FailingCalls(), "stage": FailingCalls()}
        cls.cluster = harness.Cluster(
            str(model), "--stages", 1, "--threads", 1, "--kv-blocks", 600,
            "--max-context", 4096)
        cls.children = {}
        try:
            for role in ("stage", "gateway"):
                cls.cluster.kill(role)
                cls.start(role)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        for child in cls.children.values():
            child.kill()
            child.wait()
        cls.cluster.close()
        cls.folder.cleanup()

    @classmethod
    def start(cls, role):
        """The role's process once more, with calls that can fail."""
        entry = cls.cluster.process(role)
        harness.wait_until_free(entry["argv"])
        cls.calls[role].disarm()
        with open(entry["log"], "ab") as log:
            cls.children[role] = subprocess.Popen(
                entry["argv"], env={**entry["environment"],
                                    **cls.calls[role].environment},
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        harness.wait_for(
            lambda: api.try_get(cls.cluster.url, "/readyz")[0] == 200, 60,
            f"{role} is ready again")

    def ask_all(self):
        """[(status, text)] of the requests, one after the other."""
        answers = []
        for path, body in requests():
            try:
                status, _, raw = api.request(self.cluster.url, "POST", path,
                                             body, timeout=60)
                answers.append((status, plain(raw)))
            except OSError as error:
                answers.append((0, str(error)))
            except Exception as error:  # a cut answer
                answers.append((0, repr(error)))
        return answers

    def log(self, role):
        path = pathlib.Path(self.cluster.process(role)["log"])
        return path.read_text(errors="replace")[-6000:]

    def try_each(self, role, what, place, most, most_long=None, may_end=False):
        calls, tally = self.calls[role], Tally(what)
        for _ in range(2):
            expected = self.ask_all()
        for status, text in expected:
            self.assertEqual(status, 200, text)
        calls.arm(place)
        self.ask_all()
        calls.disarm()
        tally.calls = calls.count
        for one in places(place, tally.calls, most, most_long):
            with self.subTest(role=role, place=str(one)):
                self.try_one(role, one, tally, expected, may_end)
        tally.print()

    def try_one(self, role, place, tally, expected, may_end):
        self.calls[role].arm(place)
        answers = self.ask_all()
        self.calls[role].disarm()
        child = self.children[role]
        if any(status == 0 for status, _ in answers):
            try:  # What was cut may have been its end.
                child.wait(3)
            except subprocess.TimeoutExpired:
                pass
        if child.poll() is not None:
            self.start(role)
            tally.add(f"ended with {child.returncode}")
            self.assertTrue(may_end and child.returncode in
                            (1, 75, -signal.SIGABRT), self.log(role))
            return
        tally.add("same" if answers == expected else "refused")
        for (status, text), (_, same) in zip(answers, expected):
            if status == 200:
                self.assertTrue(text == same or '"error"' in text,
                                f"{place}: {difference(text, same)}")
            elif not may_end:
                self.assertIn(status, REFUSALS, f"{place}: {text}\n"
                              f"{self.log(role)}")
        self.check_calm(place, role, expected)

    def check_calm(self, place, role, expected):
        """Everything is answered as ever, if need be when the pipeline is
        whole again."""
        def calm():
            answers = self.ask_all()
            if answers == expected:
                return True
            self.assertFalse(any(
                status == 200 and '"error"' not in text and text != same
                for (status, text), (_, same) in zip(answers, expected)),
                f"{place}: {answers}")
            return None
        harness.wait_for(calm, 30, f"calm behind {place} of {role}:\n"
                         f"{self.log(role)}")

    def test_large_allocations_of_the_gateway(self):
        self.try_each("gateway", "serving, gateway's large allocations",
                      large_allocations(), 25)

    def test_large_allocations_of_the_stage(self):
        self.try_each("stage", "serving, stage's large allocations",
                      large_allocations(), 15)

    def test_small_allocations_of_the_gateway(self):
        self.try_each("gateway", "serving, gateway's small allocations",
                      small_allocations(), 8, 200, may_end=True)

    def test_small_allocations_of_the_stage(self):
        self.try_each("stage", "serving, stage's small allocations",
                      small_allocations(), 2, 100, may_end=True)


if __name__ == "__main__":
    harness.main()
