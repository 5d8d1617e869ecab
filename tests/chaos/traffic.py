"""Streams of random requests, what each of them told, and whether that is what
a calm cluster tells."""

import http.client
import json
import random
import threading
import time
import traceback
import urllib.parse

from shapes import SCHEMA, TOOL

STREAMS = 6
# Seconds for which a client tries to reach a gateway that is not there.
PATIENCE = 90
# Gaps below this are no pause (seconds).
PAUSE = 0.25
# Seconds after a gateway is ready again within which a client may still notice
# that it was away: its thread waits for a processor.
LATE = 3


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
    between two of them, `pauses` the long ones: [(from, to)]."""

    def __init__(self):
        self.choices = {}
        self.usage = None
        self.gap = 0.0
        self.pauses = []
        self.problem = None
        self.over = False
        self._last = None

    def take(self, text):
        now = time.monotonic()
        if self._last is not None:
            self.gap = max(self.gap, now - self._last)
            if now - self._last > PAUSE:
                self.pauses.append((self._last, now))
        self._last = now
        if text == "[DONE]":
            self.over = True
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

    def begins(self, whole):
        """Whether what was told is the beginning of `whole`, in every part."""
        *calm, usage = json.loads(whole)
        return self.usage in (None, usage) and all(
            index < len(calm) and begins_choice(plain(told), calm[index])
            for index, told in self.choices.items())



def plain(told):
    """A choice as JSON has it, its log probabilities joined."""
    return json.loads(json.dumps(
        {**told, "logprobs": joined(told["logprobs"])}))


def begins_choice(told, calm):
    calls = [(call, calm["calls"].get(index))
             for index, call in told["calls"].items()]
    return (calm["text"].startswith(told["text"])
            and calm["ids"][:len(told["ids"])] == told["ids"]
            and calm["logprobs"][:len(told["logprobs"])] == told["logprobs"]
            and all(want is not None
                    and want["name"].startswith(call["name"])
                    and want["arguments"].startswith(call["arguments"])
                    for call, want in calls)
            and told["ends"] in ([], calm["ends"]))


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


class Stream:
    """A streamed request by a patient client. It tries again while nobody
    answers, or while it is told to (503 before the stream began); where the
    gateway dies under a stream that has event ids, it asks for the rest.

    `cut`: the stream broke off without an end. `troubles`: [(moment, which)]
    of all that befell it, each a key of TROUBLES; `resumed`: how often it went
    on after one."""

    TROUBLES = {"refused": "no connection, or closed before the answer's head",
                "broken": "the stream broke off",
                "turned away": "503"}

    def __init__(self, url, path, body):
        self.told = Transcript()
        self.cut = None
        self.resumed = 0
        self.troubles = []
        self.begin = time.monotonic()
        self._url, self._path = url, path
        self._body = {**body, "stream": True, "return_token_ids": True,
                      "stream_options": {"include_usage": True}}
        self._last_id = None
        self._running = False
        self._retry()

    def _retry(self):
        while not self._attempt():
            if time.monotonic() > self.begin + PATIENCE:
                self.told.problem = f"no answer within {PATIENCE} s"
                return
            time.sleep(0.1)
        for index, choice in self.told.choices.items():
            if len(choice["ends"]) != 1 and not self.cut and \
                    self.told.problem is None:
                self.told.problem = \
                    f"choice {index} has ends {choice['ends']}"

    def _attempt(self):
        """False if it is to be tried again."""
        parts = urllib.parse.urlsplit(self._url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port,
                                                timeout=180)
        try:
            return self._ask(connection)
        except (OSError, http.client.HTTPException) as error:
            return self._broken(repr(error))
        finally:
            connection.close()

    def _ask(self, connection):
        headers = {"Content-Type": "application/json"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        connection.request("POST", self._path, json.dumps(self._body), headers)
        answer = connection.getresponse()
        if answer.status == 503:
            self._note("turned away")
            return False
        if answer.status != 200:
            what = "the rest" if self._running else "the stream"
            self.told.problem = f"asked for {what}, got {answer.status}: " \
                f"{answer.read().decode()}"
            return True
        self.resumed += self._running
        self._running = True
        self._read(answer)
        return True if self.told.over else self._broken("no [DONE]")

    def _read(self, answer):
        """An event is whole with the empty line behind it. It counts with an
        id, its own or of a later event: what comes behind the last id is told
        again to who resumes. So does the end."""
        event, waiting = {}, []
        for line in answer:
            text = line.decode()
            if text == "\n":
                if "data" in event:
                    waiting.append(event["data"])
                if "id" in event or self._last_id is None or \
                        event.get("data") == "[DONE]":
                    for data in waiting:
                        self.told.take(data)
                    waiting = []
                self._last_id = event.get("id", self._last_id)
                event = {}
            elif text.endswith("\n"):
                name, _, value = text.rstrip("\n").partition(": ")
                event[name] = value

    def _broken(self, why):
        """True if that was the end of it."""
        self._note("broken" if self._running else "refused")
        if not self._running or self._last_id is not None:
            return False
        self.cut = why
        return True

    def _note(self, which):
        self.troubles.append((time.monotonic(), which))


class Load:
    """Streams of random requests, until it is stopped. `gateway_dies` and
    `gateway_is_back` tell when streams may break off or be resumed, and new
    ones be refused and turned away; at any other time that is wrong. A client
    rests for `pace` seconds between two streams, on average."""

    def __init__(self, url, bodies, want, draw, pace=0):
        self.done = 0
        self.gaps = []
        self.pauses = []
        self.wrong = []
        self.counts = {"cut by the gateway": 0, "resumed": 0,
                       **dict.fromkeys(Stream.TROUBLES, 0)}
        self._url, self._bodies, self._want = url, bodies, want
        self._pace = pace
        self._deaths = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run,
                             args=(random.Random(draw.random()),),
                             daemon=True)
            for _ in range(STREAMS)]
        for thread in self._threads:
            thread.start()

    def gateway_dies(self):
        self._deaths.append([time.monotonic(), None])

    def gateway_is_back(self):
        for death in self._deaths:
            death[1] = death[1] or time.monotonic()

    def _without_gateway(self, moment):
        return any(begin <= moment and (end is None or moment <= end + LATE)
                   for begin, end in self._deaths)

    def _run(self, draw):
        while not self._stop.is_set():
            which = draw.randrange(len(self._bodies))
            try:
                stream = Stream(self._url, *self._bodies[which])
            except Exception:  # an answer that is none
                with self._lock:
                    self.wrong.append({"request": self._bodies[which],
                                       "problem": traceback.format_exc()})
                return
            with self._lock:
                self._take(stream, which)
            self._stop.wait(2 * self._pace * draw.random())

    def _take(self, stream, which):
        told = stream.told
        self.done += 1
        self.gaps.append(told.gap)
        self.pauses += told.pauses
        self.counts["resumed"] += stream.resumed
        for _, trouble in stream.troubles:
            self.counts[trouble] += 1
        unexcused = [trouble for moment, trouble in stream.troubles
                     if not self._without_gateway(moment)]
        self.counts["cut by the gateway"] += bool(stream.cut)
        is_right = told.begins if stream.cut else told.whole().__eq__
        if told.problem is None and not unexcused and \
                is_right(self._want[which]):
            return
        self.wrong.append({
            "request": self._bodies[which], "cut": stream.cut,
            "problem": told.problem, "while the gateway was there": unexcused,
            "got": told.whole(), "want": self._want[which]})

    def pause_within(self, begin, end):
        """The longest one that has a part in there, in seconds."""
        with self._lock:
            return max((to - since for since, to in self.pauses
                        if since < end and to > begin), default=0.0)

    def stop(self):
        """Lets the streams end. AssertionError if one does not."""
        self._stop.set()
        end = time.monotonic() + 200
        for thread in self._threads:
            thread.join(max(0, end - time.monotonic()))
        alive = sum(thread.is_alive() for thread in self._threads)
        if alive:
            raise AssertionError(f"{alive} of {STREAMS} clients still wait "
                                 "200 s after the last fault")
