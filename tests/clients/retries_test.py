"""The openai, anthropic and ollama packages for Python, unmodified, at a server that
is full, and at a cluster that has lost a stage: OpenAI's and Anthropic's ask again
after Retry-After and get the answer, Ollama's tells the refusal.
"""

import contextlib
import json
import time
import unittest

from client_cluster import MESSAGES, skip
import api
import harness
from refusals_test import Completions, Connection

try:
    import anthropic
    import ollama
    import openai
except ImportError:
    skip("needs the openai, anthropic and ollama packages (tests/run installs "
         "them)")



MANY = 30  # retries
QUESTION = MESSAGES[0]["content"]


class Attempts:
    """What a client's tries were answered: a hook of its HTTP client. After the
    first refusal it calls `on_refusal`."""

    def __init__(self, on_refusal):
        self.statuses, self.waits, self.counts = [], [], []
        self._on_refusal, self._asked_at, self._told = on_refusal, None, None
        self.hooks = {"request": [self._ask], "response": [self._answer]}

    def _ask(self, request):
        if self._told is not None:
            self.waits.append((time.monotonic() - self._asked_at, self._told))
        self.counts.append(request.headers["x-stainless-retry-count"])

    def _answer(self, response):
        self.statuses.append(response.status_code)
        self._told = response.headers.get("retry-after")
        self._asked_at = time.monotonic()
        if response.status_code != 200 and len(self.statuses) == 1:
            self._on_refusal()


def chat(url, model, attempts, **fields):
    """The text of a chat's answer; so the next two, of other dialects."""
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=MANY,
                       http_client=openai.DefaultHttpxClient(
                           event_hooks=attempts.hooks)) as client:
        answer = client.chat.completions.create(
            model=model, messages=MESSAGES, temperature=0, max_tokens=24,
            **fields)
        if not fields.get("stream"):
            return answer.choices[0].message.content
        return "".join(part.choices[0].delta.content or "" for part in answer)


def response(url, model, attempts, **fields):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=MANY,
                       http_client=openai.DefaultHttpxClient(
                           event_hooks=attempts.hooks)) as client:
        answer = client.responses.create(
            model=model, input=QUESTION, temperature=0, max_output_tokens=24,
            **fields)
        if not fields.get("stream"):
            return answer.output_text
        return "".join(event.delta for event in answer
                       if event.type == "response.output_text.delta")


def message(url, model, attempts, **fields):
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=MANY,
                             http_client=anthropic.DefaultHttpxClient(
                                 event_hooks=attempts.hooks)) as client:
        answer = client.messages.create(
            model=model, messages=MESSAGES, max_tokens=24,
            extra_body={"temperature": 0}, **fields)
        if not fields.get("stream"):
            return answer.content[0].text
        return "".join(event.delta.text for event in answer
                       if event.type == "content_block_delta")


CALLS = (chat, response, message)


class RetriesTest(unittest.TestCase):
    def check(self, call, on_refusal, status, **fields):
        """The client is refused with `status` and then answered."""
        with self.subTest(call=call.__name__, **fields):
            attempts = Attempts(on_refusal)
            text = call(self.cluster.url, self.model, attempts, **fields)
            self.assertEqual(text, self.wanted)
            *refused, last = attempts.statuses
            self.assertEqual(last, 200)
            self.assertEqual(set(refused), {status}, attempts.statuses)
            self.assertEqual(attempts.counts,
                             [str(count) for count in range(len(refused) + 1)])
            for waited, told in attempts.waits:
                self.assertGreaterEqual(waited, int(told))

    @contextlib.contextmanager
    def a_cluster(self, *options):
        with harness.Cluster(harness.default_model(), "--threads", 1,
                             *options) as self.cluster:
            _, models = api.get(self.cluster.url, "/v1/models")
            self.model = json.loads(models)["data"][0]["id"]
            status, answer = api.post(
                self.cluster.url, "/v1/chat/completions",
                {"messages": MESSAGES, "temperature": 0, "max_tokens": 24})
            self.assertEqual(status, 200, answer)
            self.wanted = answer["choices"][0]["message"]["content"]
            yield

    def take_place(self):
        """A stream that has the one place of the cluster."""
        place = Connection(self.cluster.url, "/v1/completions",
                           {"model": self.model, "stream": True,
                            **Completions().body("Hi", 8000)})
        place.read(1)
        return place

    def test_a_full_server_is_asked_again(self):
        with self.a_cluster("--max-running", 1, "--max-queue", 0):
            for call in CALLS:
                for fields in ({}, {"stream": True}):
                    place = self.take_place()
                    self.check(call, place.close, 429, **fields)
            with contextlib.closing(self.take_place()):
                client = ollama.Client(host=self.cluster.url)
                with self.assertRaises(ollama.ResponseError) as caught:
                    client.chat(model=self.model, messages=MESSAGES)
            self.assertEqual(caught.exception.status_code, 429)
            self.assertIn("the queue is full", caught.exception.error)

    def test_a_cluster_that_lost_a_stage_is_asked_again(self):
        with self.a_cluster("--recovery-timeout", 0, "--resplit-after", 0):
            lose = lambda: self.cluster.kill("stage", 1)  # noqa: E731
            for call, status in zip(CALLS, (503, 503, 529)):
                lose()
                harness.wait_for(
                    lambda: api.try_get(self.cluster.url, "/readyz")[0] == 503,
                    30, "the gateway sees it")
                again = []
                self.check(call, lambda: again.append(
                    self.cluster.restart("stage", 1)), status)
                lose = again[0].kill


if __name__ == "__main__":
    harness.main()
