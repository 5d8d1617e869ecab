"""Streams that run beside a test, and their tokens."""

import json
import threading
import time

import api


class Streams:
    """Streams in threads; `outcomes` has (status, events) of each."""

    def __init__(self, url, bodies):
        self.outcomes = [None] * len(bodies)
        self._started = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._run, args=(url, i, b))
                         for i, b in enumerate(bodies)]
        for thread in self._threads:
            thread.start()

    def _run(self, url, index, body):
        begun = []

        def on_event(event):
            if not begun:
                begun.append(event)
                self._started.release()

        self.outcomes[index] = api.stream(url, "/v1/completions", body,
                                          on_event=on_event)

    def wait_for_tokens(self):
        """Returns once every stream has had a token."""
        for _ in self._threads:
            if not self._started.acquire(timeout=60):
                raise AssertionError("no token within 60 s")

    def alive(self):
        return any(thread.is_alive() for thread in self._threads)

    def join(self, seconds):
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        return not self.alive()


def body_of(index, tokens):
    return {"prompt": [1, 403, 407, 261 + index], "max_tokens": tokens,
            "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def ids_of(outcome):
    """The token ids of a stream that ended well."""
    status, events = outcome
    if status != 200 or events[-1] != "[DONE]":
        raise AssertionError(f"{status}: {events[-2:]}")
    ids = []
    for event in events[:-1]:
        if "error" in json.loads(event):
            raise AssertionError(event)
        for choice in json.loads(event).get("choices", []):
            ids += choice.get("token_ids") or []
    return ids
