"""A stream that was cut goes on where it was, at this gateway or another one.

Requests of every kind are cut at a random event: the client leaves, or the
gateway is killed and started again. What the client had and the rest that it
gets are together the stream that nobody cut. SLUICE_RESUME_ROUNDS: how many
times; SLUICE_RESUME_SEED repeats the cuts.
"""

import collections
import http.client
import json
import os
import random
import re
import threading
import unittest
import urllib.parse

import api
import harness
from shapes import SCHEMA, TOOL

MODEL = harness.ROOT / "deploy/demo_model/weights"
ROUNDS = int(os.environ.get("SLUICE_RESUME_ROUNDS", 20 if harness.LONG else 1))
SEED = int(os.environ.get("SLUICE_RESUME_SEED", random.randrange(1 << 30)))
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DONE = "[DONE]"

Event = collections.namedtuple("Event", "id data")
# What a client has of a stream: its events, and whether it ended.
Part = collections.namedtuple("Part", "events done request_id")



def chat(text, **fields):
    return CHAT, {"messages": [{"role": "user", "content": text}],
                  "temperature": 0.9, "stream": True, **fields}


def completion(prompt, **fields):
    return COMPLETIONS, {"prompt": prompt, "temperature": 0.9, "stream": True,
                         **fields}


USAGE = {"stream_options": {"include_usage": True}}

# Without seeds, but for one: a resumed stream draws as the first one did.
KINDS = {
    "chat": chat("Tell me a story.", max_tokens=100, ignore_eos=True),
    "usage": chat("Tell me.", max_tokens=60, ignore_eos=True, seed=11,
                  stream_options={"include_usage": True,
                                  "continuous_usage_stats": True}),
    "tools": chat("Look up a word.", max_tokens=200, tools=[TOOL],
                  tool_choice="required", **USAGE),
    "grammar": chat("Give me numbers.", max_tokens=200, n=2,
                    response_format={"type": "json_schema", "json_schema": {
                        "name": "numbers", "schema": SCHEMA}}, **USAGE),
    "logprobs": chat("Count.", max_tokens=60, logprobs=True, top_logprobs=2,
                     return_token_ids=True, ignore_eos=True),
    "choices": chat("Say something.", max_tokens=60, n=3, ignore_eos=True,
                    **USAGE),
    "stop": chat("Tell me a story.", max_tokens=150, ignore_eos=True,
                 stop=["the", "qqqqq"], include_stop_str_in_output=True),
    "echo": completion("Once upon a time", max_tokens=60, echo=True,
                       logprobs=3, ignore_eos=True),
    "penalties": completion("The sluice was", max_tokens=80, ignore_eos=True,
                            repetition_penalty=1.2, presence_penalty=0.3,
                            frequency_penalty=0.2, top_p=0.9, **USAGE),
    "long": chat("Tell me a long story.", max_tokens=800, ignore_eos=True),
    "default": completion("Once more", ignore_eos=True),
    "prompts": completion(["One", "One"], max_tokens=40, n=2, ignore_eos=True,
                          return_token_ids=True),
}


def many_bytes(url):
    """A chat whose answer has characters of several bytes, among them some
    that are cut in two: the tokens that spell such ones are likely."""
    _, answer = api.post(url, "/tokenize", {
        "prompt": "Жил 水 🌊 é", "add_special_tokens": False})
    return chat("Tell me.", max_tokens=60, ignore_eos=True, logprobs=True,
                logit_bias={str(token): 12 for token in answer["tokens"]},
                **USAGE)


class Stream:
    """An answer's events, as a client of server-sent events takes them: one
    counts when the empty line behind it is there."""

    def __init__(self, url, method, path, body=None, last=None):
        parts = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=60)
        headers = {"Content-Type": "application/json"}
        if last is not None:
            headers["Last-Event-ID"] = last
        self._connection.request(method, path, body, headers)
        self._answer = self._connection.getresponse()
        self.nothing_left = self._answer.status == 204
        if self._answer.status not in (200, 204):
            raise AssertionError(f"{self._answer.status}: "
                                 f"{self._answer.read().decode()}")
        self.request_id = self._answer.headers["X-Request-Id"]

    def events(self):
        """Every Event; the last one has the data [DONE]."""
        name = data = None
        for line in self._answer:
            text = line.decode().rstrip("\n")
            if text.startswith("id: "):
                name = text[4:]
            elif text.startswith("data: "):
                data = text[6:]
            elif not text and data is not None:
                yield Event(name, data)
                name = data = None

    def part(self, count=None, on_event=None):
        """Up to `count` events, until the connection ends."""
        events, done = [], self.nothing_left
        try:
            for event in self.events():
                if event.data == DONE:
                    done = True
                    continue
                events.append(event)
                if on_event:
                    on_event()
                if len(events) == count:
                    break
        except (OSError, http.client.HTTPException):
            pass  # cut
        self._connection.close()
        return Part(events, done, self.request_id)


def kept(part):
    """Without what came behind the last id: it is told again."""
    events = list(part.events)
    while events and events[-1].id is None:
        events.pop()
    return part._replace(events=events)


def take_logprobs(told, logprobs):
    if "content" in logprobs:
        told["logprobs"] += logprobs["content"]
    else:
        told["logprobs"] += zip(logprobs["tokens"], logprobs["token_logprobs"],
                                logprobs["top_logprobs"],
                                logprobs["text_offset"])


def take_choice(told, choice):
    delta = choice.get("delta", choice)
    told["roles"] += [delta["role"]] if "role" in delta else []
    told["content"] += delta.get("content") or choice.get("text") or ""
    told["reasoning"] += delta.get("reasoning") or ""
    told["ids"] += choice.get("token_ids") or []
    told["prompts"] += [choice.get("prompt_token_ids")] \
        if "prompt_token_ids" in choice else []
    if choice.get("logprobs"):
        take_logprobs(told, choice["logprobs"])
    for call in delta.get("tool_calls") or []:
        known = told["calls"].setdefault(call["index"], ["", "", ""])
        for at, text in enumerate((call.get("id"),
                                   call["function"].get("name"),
                                   call["function"].get("arguments"))):
            known[at] += text or ""
    if choice["finish_reason"]:
        told["ends"].append((choice["finish_reason"], choice["stop_reason"]))


def told_by(events):
    """All that a client sees, however it is cut into events."""
    heads, usage, choices = [], [], {}
    for event in events:
        value = json.loads(event.data)
        if "error" in value:
            raise AssertionError(event.data)
        head = [value[key] for key in ("id", "object", "created", "model",
                                       "system_fingerprint")]
        if head not in heads:
            heads.append(head)
        if value.get("usage") and not value["choices"]:
            counts = value["usage"]
            usage.append([counts["prompt_tokens"],
                          counts["completion_tokens"], counts["total_tokens"],
                          counts.get("completion_tokens_details")])
        for choice in value["choices"]:
            take_choice(choices.setdefault(choice["index"], {
                "roles": [], "content": "", "reasoning": "", "ids": [],
                "prompts": [], "logprobs": [], "calls": {}, "ends": []}),
                        choice)
    return json.loads(json.dumps([heads, usage, sorted(choices.items())]))


def start_of(event):
    """The id of a client that has nothing of the event's stream."""
    head, progress = event.id.rsplit("~", 1)
    return head + "~" + "." * progress.removesuffix(".u").count(".")


class ResumeTest(unittest.TestCase):
    cluster = None
    kinds = None  # KINDS, and one that needs the tokenizer
    restarted = None  # the gateway, once it was killed

    def post(self, kind, last=None, tidy=False):
        path, body = self.kinds[kind]
        text = json.dumps(dict(sorted(body.items())), separators=(",", ":")) \
            if tidy else json.dumps(body)
        return Stream(self.cluster.url, "POST", path, text, last)

    def get(self, part, last=None):
        return Stream(self.cluster.url, "GET",
                      "/v1/streams/" + part.request_id, last=last)

    def check(self, kind, part, rest, whole):
        with self.subTest(kind=kind, cut=part.events[-1].id):
            self.assertTrue(whole.done and rest.done)
            self.assertEqual(rest.request_id, part.request_id)
            want = told_by(whole.events)
            self.assertEqual(told_by(part.events + rest.events), want)
            self.assertEqual(len(want[0]), 1)
            for _, choice in want[2]:
                self.assertEqual(len(choice["ends"]), 1)

    def cut_by_the_client(self, draw):
        for kind in self.kinds:
            whole = self.post(kind).part()
            self.assertTrue(whole.done)
            count = draw.randrange(1, len(whole.events) + 1)
            # Of the whole stream, and of one whose client leaves.
            had = kept(whole._replace(events=whole.events[:count]))
            last = had.events[-1].id
            self.check(kind, had, self.post(kind, last, tidy=True).part(),
                       whole)
            had = kept(self.post(kind).part(
                draw.randrange(1, max(2, len(whole.events)))))
            last = had.events[-1].id
            self.check(kind, had, self.get(had, last).part(),
                       self.get(had).part())
            yield whole

    def cut_by_a_kill(self, draw):
        """Kills the gateway once each kind has an event, and some more came;
        returns how many streams that cut."""
        begun = {kind: threading.Event() for kind in self.kinds}
        events = threading.Semaphore(0)
        parts = {}

        def on_event(kind):
            begun[kind].set()
            events.release()

        def read(kind):
            try:
                parts[kind] = self.post(kind).part(
                    on_event=lambda: on_event(kind))
            except (OSError, http.client.HTTPException):
                pass  # cut before its header

        threads = [threading.Thread(target=read, args=(kind,))
                   for kind in self.kinds]
        for thread in threads:
            thread.start()
        for kind, event in begun.items():
            self.assertTrue(event.wait(60), kind)
        for _ in range(draw.randrange(1, 100)):
            # Fewer than asked for are left if the streams were quick.
            if not events.acquire(timeout=0.05):
                break
        if self.restarted:
            self.restarted.kill()
        else:
            self.cluster.kill("gateway")
        for thread in threads:
            thread.join(60)
        self.restarted = self.cluster.restart("gateway")
        harness.wait_for(
            lambda: api.try_get(self.cluster.url, "/readyz")[0] == 200, 60,
            "the new gateway is ready")
        cut = {kind: kept(part) for kind, part in parts.items()
               if part.events}
        self.assertEqual(set(cut), set(self.kinds))
        for kind, part in cut.items():
            path = "/v1/streams/" + part.request_id
            self.assertEqual(api.get(self.cluster.url, path)[0], 404)
            rest = self.post(kind, part.events[-1].id).part()
            whole = self.post(kind, start_of(part.events[0])).part()
            self.check(kind, part, rest, whole)
        return sum(not part.done for part in cut.values())

    def test_the_rest_of_a_cut_stream_is_the_rest(self):
        print(f"SLUICE_RESUME_SEED={SEED} SLUICE_RESUME_ROUNDS={ROUNDS}",
              flush=True)
        draw = random.Random(SEED)
        killed = 0
        with harness.Cluster(MODEL, "--stages", "2", "--weights",
                             "f32") as cluster:
            self.cluster = cluster
            self.kinds = {**KINDS, "bytes": many_bytes(cluster.url)}
            for _ in range(ROUNDS):
                wholes = list(self.cut_by_the_client(draw))
                resumed = api.metrics(cluster.url)[
                    "sluice_gateway_resumed_streams_total"]
                self.assertGreaterEqual(resumed, 3 * len(self.kinds))
                killed += self.cut_by_a_kill(draw)
            self.assertGreater(killed, 0)
            self.refuse(wholes[0])
        events = [event for whole in wholes for event in whole.events]
        named = sum(len(event.id or "") for event in events) / len(events)
        told = sum(len(event.data) for event in events) / len(events)
        print(f"{ROUNDS} rounds of {len(self.kinds)} kinds, {killed} streams "
              f"cut by a kill; an id has {named:.0f} bytes beside {told:.0f} of "
              "data, means", flush=True)

    def refuse(self, whole):
        # Of the new gateway: the old one's are gone.
        whole = self.post("chat", start_of(whole.events[0])).part()
        self.assertTrue(self.get(whole, whole.events[-1].id).nothing_left)
        self.assertFalse(self.get(whole, whole.events[-2].id).nothing_left)
        path, body = self.kinds["chat"]
        for last, other, words in (
                (whole.events[0].id, {"max_tokens": 99}, "another request"),
                (whole.events[0].id + ".0", {}, "2 choices"),
                ("garbage", {}, "Last-Event-ID")):
            status, _, raw = api.request(
                self.cluster.url, "POST", path, {**body, **other},
                {"Last-Event-ID": last})
            error = json.loads(raw)["error"]
            self.assertEqual((status, error["param"]), (400, "Last-Event-ID"))
            self.assertRegex(error["message"], re.escape(words))


if __name__ == "__main__":
    harness.main()
