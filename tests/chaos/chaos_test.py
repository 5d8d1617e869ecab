"""Random faults under random streams: each stream is as it is without faults.

    SLUICE_CHAOS_FAULTS=300 SLUICE_CHAOS_SEED=7 python3 chaos_test.py

A stage, a spare or two of them are killed, stopped for a while, or told to end,
in a cluster that starts again what dies. Meanwhile streams of every kind run:
chat, tools, grammars, seeds, penalties, log probabilities, several choices, stop
strings, long prompts. What a client got must be what it gets from a calm
cluster, whole, with one end. The seed makes the same faults and requests; their
moments are the machine's.
"""

import itertools
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

MODEL = harness.ROOT / "deploy/demo_model/weights"
FAULTS = int(os.environ.get("SLUICE_CHAOS_FAULTS",
                            300 if harness.LONG else 10))
SEED = int(os.environ.get("SLUICE_CHAOS_SEED", random.randrange(1 << 30)))
STREAMS = 6
READY_WITHIN = 60

SCHEMA = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30},
    "numbers": {"type": "array", "items": {"type": "integer"},
                "maxItems": 12}},
          "required": ["name", "numbers"], "additionalProperties": False}
TOOL = {"type": "function", "function": {
    "name": "look_up", "description": "Looks a word up.",
    "parameters": {"type": "object", "properties": {
        "word": {"type": "string", "maxLength": 40},
        "depth": {"type": "integer", "minimum": 0, "maximum": 99}},
                   "required": ["word", "depth"],
                   "additionalProperties": False}}}


def chat(text, **fields):
    return "/v1/chat/completions", {
        "messages": [{"role": "user", "content": text}], "temperature": 0.9,
        **fields}


def completion(text, **fields):
    return "/v1/completions", {"prompt": text, "temperature": 0.9, **fields}


def requests(draw):
    """One of each kind, their seeds drawn: [(path, body)]."""
    def seed():
        return draw.randrange(1 << 31)

    return [
        completion("Once upon a time", seed=seed(), max_tokens=300,
                   ignore_eos=True, logprobs=3),
        completion("The sluice was", seed=seed(), max_tokens=250,
                   ignore_eos=True, repetition_penalty=1.2,
                   presence_penalty=0.3, top_p=0.9, stop=["zzzz", "qqqqq"]),
        completion("word " * 120, seed=seed(), max_tokens=60,
                   ignore_eos=True),
        completion("One", temperature=0, max_tokens=300, ignore_eos=True),
        chat("Tell me a story.", seed=seed(), max_tokens=200, n=3,
             ignore_eos=True),
        chat("Give me numbers.", seed=seed(), max_tokens=300,
             response_format={"type": "json_schema", "json_schema": {
                 "name": "numbers", "schema": SCHEMA}}),
        chat("Look up a word.", seed=seed(), max_tokens=300, tools=[TOOL],
             tool_choice="required"),
        chat("Count.", seed=seed(), max_tokens=200, logprobs=True,
             top_logprobs=2, ignore_eos=True),
    ]


def add_call(told, call):
    function = call.get("function", {})
    known = told.setdefault(call["index"], {"name": "", "arguments": ""})
    known["name"] += function.get("name") or ""
    known["arguments"] += function.get("arguments") or ""


class Transcript:
    """What a stream told, whatever its events were; `gap` is the longest time
    between two of them."""

    def __init__(self):
        self.choices = {}
        self.usage = None
        self.gap = 0.0
        self.problem = None
        self._last = None

    def take(self, text):
        now = time.monotonic()
        if self._last is not None:
            self.gap = max(self.gap, now - self._last)
        self._last = now
        if text == "[DONE]":
            return
        event = json.loads(text)
        if "error" in event:
            self.problem = text
        if event.get("usage"):
            self.usage = [event["usage"][key] for key in
                          ("prompt_tokens", "completion_tokens")]
        for choice in event.get("choices", []):
            self._take_choice(choice)

    def _take_choice(self, choice):
        told = self.choices.setdefault(choice["index"], {
            "text": "", "ids": [], "logprobs": [], "calls": {}, "ends": []})
        delta = choice.get("delta", choice)
        told["text"] += delta.get("content") or choice.get("text") or ""
        told["ids"] += choice.get("token_ids") or []
        told["logprobs"].append(json.dumps(choice.get("logprobs")))
        for call in delta.get("tool_calls") or []:
            add_call(told["calls"], call)
        if choice.get("finish_reason"):
            told["ends"].append(choice["finish_reason"])

    def whole(self):
        """All that must be equal. Log probabilities as a set of events' texts
        would depend on their cut: they are joined."""
        return json.dumps([{**told, "logprobs": joined(told["logprobs"])}
                           for _, told in sorted(self.choices.items())]
                          + [self.usage], sort_keys=True)


def joined(texts):
    """The log probabilities of all events as one list."""
    tokens = []
    for text in texts:
        value = json.loads(text)
        if not value:
            continue
        if "content" in value:
            tokens += value["content"] or []
        else:
            tokens += zip(value.get("tokens") or [],
                          value.get("token_logprobs") or [],
                          [json.dumps(top) for top in
                           value.get("top_logprobs") or []])
    return tokens


def run(url, path, body):
    transcript = Transcript()
    body = {**body, "stream_options": {"include_usage": True},
            "return_token_ids": True}
    try:
        status, events = api.stream(url, path, body,
                                    on_event=transcript.take)
        if status != 200:
            transcript.problem = f"{status}: {events}"
        elif events[-1] != "[DONE]":
            transcript.problem = f"no end: {events[-1]}"
    except OSError as error:
        transcript.problem = repr(error)
    for index, told in transcript.choices.items():
        if len(told["ends"]) != 1 and transcript.problem is None:
            transcript.problem = f"choice {index} has ends {told['ends']}"
    return transcript


class Load:
    """Streams of random requests, until it is stopped."""

    def __init__(self, url, bodies, want, draw):
        self.done = 0
        self.gaps = []
        self.wrong = []
        self._url, self._bodies, self._want = url, bodies, want
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._stream,
                             args=(random.Random(draw.random()),))
            for _ in range(STREAMS)]
        for thread in self._threads:
            thread.start()

    def _stream(self, draw):
        while not self._stop.is_set():
            which = draw.randrange(len(self._bodies))
            got = run(self._url, *self._bodies[which])
            with self._lock:
                self.done += 1
                self.gaps.append(got.gap)
                if got.problem or got.whole() != self._want[which]:
                    self.wrong.append((self._bodies[which], got.problem,
                                       got.whole(), self._want[which]))

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(120)


class Faults:
    """Faults on the stages and spares of a cluster, drawn."""

    def __init__(self, cluster, draw):
        self._cluster = cluster
        self._draw = draw

    def _victims(self, number=1):
        entries = [entry for entry in self._cluster.file["processes"]
                   if entry["role"] in ("stage", "spare")]
        return self._draw.sample(entries, number)

    def _signal(self, entry, number):
        try:
            os.kill(entry["pid"], number)
        except ProcessLookupError:
            pass  # between its end and its next start

    def kill(self):
        victim, = self._victims()
        self._signal(victim, signal.SIGKILL)
        return f"kill {victim['role']} {victim['index']}"

    def kill_two(self):
        for victim in self._victims(2):
            self._signal(victim, signal.SIGKILL)
        return "kill two"

    def kill_again(self):
        """Another one dies while the first one's place is filled."""
        self.kill()
        time.sleep(self._draw.random())
        return self.kill() + " again"

    def tell_to_end(self):
        victim, = self._victims()
        self._signal(victim, signal.SIGTERM)
        return f"SIGTERM {victim['role']} {victim['index']}"

    def stop(self):
        victim, = self._victims()
        seconds = self._draw.choice((0.3, 1.0, 3.0, 5.0))
        self._signal(victim, signal.SIGSTOP)
        time.sleep(seconds)
        self._signal(victim, signal.SIGCONT)
        return f"stop {victim['role']} {victim['index']} for {seconds} s"

    def next(self):
        return self._draw.choice((self.kill, self.kill, self.kill_two,
                                  self.kill_again, self.tell_to_end,
                                  self.stop))()


def is_ready(cluster):
    return api.try_get(cluster.url, "/readyz")[0] == 200


def share(values, part):
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


class ChaosTest(unittest.TestCase):
    def test_streams_are_whole_whatever_dies(self):
        print(f"SLUICE_CHAOS_SEED={SEED} SLUICE_CHAOS_FAULTS={FAULTS}",
              flush=True)
        draw = random.Random(SEED)
        bodies = list(itertools.chain.from_iterable(
            requests(draw) for _ in range(2)))
        with harness.Cluster(MODEL, "--stages", "2", "--spares", "1",
                             "--supervise", "--weights", "f32",
                             "--max-queue-wait", "300") as cluster:
            want = []
            for body in bodies:
                calm = run(cluster.url, *body)
                self.assertIsNone(calm.problem, body)
                want.append(calm.whole())
            load = Load(cluster.url, bodies, want, draw)
            try:
                self.inject(cluster, Faults(cluster, draw), load, draw)
            finally:
                load.stop()
            metrics = api.metrics(cluster.url)
        print(f"{FAULTS} faults, {load.done} streams, "
              f"{metrics['sluice_gateway_recoveries_total']:.0f} recoveries, "
              f"{metrics['sluice_gateway_replayed_tokens_total']:.0f} tokens "
              "replayed, "
              f"{metrics['sluice_gateway_kept_tokens_total']:.0f} of them on "
              "replaced stages alone; the longest gap of a stream: p50 "
              f"{share(load.gaps, 0.5):.2f} s, p99 "
              f"{share(load.gaps, 0.99):.2f} s, worst {max(load.gaps):.2f} s",
              flush=True)
        self.assertEqual(load.wrong, [])
        self.assertGreater(metrics["sluice_gateway_recoveries_total"], 0)
        self.assertGreater(metrics["sluice_gateway_kept_tokens_total"], 0)

    def inject(self, cluster, faults, load, draw):
        for number in range(FAULTS):
            time.sleep(0.2 + draw.random())
            what = faults.next()
            begin = time.monotonic()
            time.sleep(0.3)  # for the gateway to notice
            harness.wait_for(lambda: is_ready(cluster), READY_WITHIN,
                             f"ready after fault {number}, {what}")
            print(f"  {number}: {what}; ready after "
                  f"{time.monotonic() - begin:.2f} s", flush=True)
            self.assertEqual(load.wrong, [], what)


if __name__ == "__main__":
    harness.main()
