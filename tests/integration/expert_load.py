"""Streams that go on while hosts of experts come and go, and what was seen."""

import json
import threading
import time

import api

PROMPTS = [[5, 17, 80], [9, 33, 120, 64], [40, 7], [101, 3, 3, 77, 12],
           [60, 61, 62], [13, 200], [90, 14, 2, 8], [77, 150, 31]]
TOKENS = 48


def body(index, tokens=TOKENS):
    return {"prompt": PROMPTS[index % len(PROMPTS)], "max_tokens": tokens,
            "temperature": 0.7, "seed": 11 + index, "ignore_eos": True,
            "return_token_ids": True}


def token_ids(events):
    """Of a whole streamed completion; AssertionError if it ended in an
    error."""
    ids = []
    for event in events:
        if event == "[DONE]":
            return ids
        parsed = json.loads(event)
        if "error" in parsed:
            raise AssertionError(parsed["error"])
        for choice in parsed["choices"]:
            ids += choice.get("token_ids") or []
    raise AssertionError("a stream without an end")


def expected(url, streams):
    """What every stream must give, asked one after another."""
    return [api.choice_of(api.completion(url, **{
        k: v for k, v in body(i).items()}))["token_ids"]
        for i in range(streams)]


class Load:
    """`streams` clients, each asking its request again and again; a context
    manager that ends them, and counts. `gaps`: (when, seconds) between two
    events of a stream."""

    def __init__(self, url, want):
        self.url = url
        self.want = want
        self.done = 0
        self.failed = []
        self.differing = 0
        self.gaps = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,))
                         for i in range(len(want))]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, index):
        while not self._stop.is_set():
            last = None
            gaps = []

            def on_event(_):
                nonlocal last
                now = time.monotonic()
                if last is not None:
                    gaps.append((now, now - last))
                last = now
            try:
                status, events = api.stream(self.url, "/v1/completions",
                                            body(index), 120, on_event)
                if status != 200:
                    raise AssertionError(f"{status}: {events}")
                ids = token_ids(events)
            except Exception as error:  # Whatever it is, it is a failure.
                with self._lock:
                    self.failed.append(repr(error))
                time.sleep(0.05)
                continue
            with self._lock:
                self.done += 1
                self.differing += ids != self.want[index]
                self.gaps += gaps

    def wait_done(self, more, seconds=120):
        """Until so many more requests have ended."""
        target = self.done + len(self.failed) + more
        end = time.monotonic() + seconds
        while self.done + len(self.failed) < target:
            if time.monotonic() > end:
                raise AssertionError(f"not {more} requests in {seconds} s")
            time.sleep(0.01)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
