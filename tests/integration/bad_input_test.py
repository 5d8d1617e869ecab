"""What is refused over HTTP: with which status, which words, and nothing
crashes. Runs under AddressSanitizer too."""

import concurrent.futures
import http.client
import json
import socket
import time
import unittest
import urllib.parse

import api
import harness

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = harness.golden("stories")
        # Room for one that runs and one that waits.
        cls.cluster = harness.Cluster(folder, "--max-running", 1,
                                      "--max-queue", 1)
        cls.addClassCleanup(cls.cluster.close)
        cls.url = cls.cluster.url

    def tearDown(self):
        status, _ = api.get(self.url, "/readyz")
        self.assertEqual(status, 200, self.cluster.logs())

    def refused(self, body, status=400, path=COMPLETIONS, param=None):
        """The error object of a refused request; checks its form."""
        got, answer = api.post(self.url, path, body)
        self.assertEqual(got, status, answer)
        error = answer["error"]
        self.assertIsInstance(error["message"], str)
        self.assertIsInstance(error["type"], str)
        for key in ("param", "code"):
            self.assertTrue(error[key] is None or
                            isinstance(error[key], str), error)
        if param:
            self.assertEqual(error["param"], param, error)
        return error

    def test_an_unknown_model_is_named(self):
        error = self.refused({"model": "nope", "prompt": "a"}, 404)
        self.assertIn("nope", error["message"])

    def test_malformed_json_is_refused(self):
        for raw in (b"{", b"", b"[1,2", b'{"prompt": "a",}', b"\xff\xfe",
                    b'{"prompt": "\xc3("}', b"null", b"[]", b'"x"',
                    b'{"prompt": NaN}', b'{"temperature": 1e999}'):
            with self.subTest(raw=raw):
                status, _, body = api.request(self.url, "POST", COMPLETIONS,
                                              raw)
                self.assertEqual(status, 400, body)
                json.loads(body)["error"]["message"].encode()

    def test_deep_nesting_is_refused(self):
        for depth in (100, 100000):
            raw = b'{"prompt": ' + b"[" * depth + b"]" * depth + b"}"
            status, _, body = api.request(self.url, "POST", COMPLETIONS, raw)
            self.assertEqual(status, 400, body[:200])

    def test_a_body_of_100_mb_is_refused_before_it_is_read(self):
        parts = urllib.parse.urlsplit(self.url)
        with socket.create_connection((parts.hostname, parts.port),
                                      30) as peer:
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Content-Length: 104857600\r\n\r\n{")
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            self.assertEqual(answer.status, 413)
            self.assertIn("error", json.loads(answer.read()))

    def test_a_prompt_that_is_too_long_names_both_lengths(self):
        error = self.refused({"prompt": [1] * 5000, "max_tokens": 1})
        self.assertIn("5000", error["message"])
        self.assertEqual(error["code"], "context_length_exceeded")

    def test_wrong_types_are_refused_by_name(self):
        for param, value in (
                ("max_tokens", "5"), ("max_tokens", -2), ("max_tokens", 1.5),
                ("temperature", "hot"), ("temperature", -0.1),
                ("top_p", 1.5), ("top_p", [1]),
                ("top_k", -7), ("min_p", 2), ("seed", "x"),
                ("stop", 5), ("stop", {"a": 1}), ("stop_token_ids", "1"),
                ("stop_token_ids", [-1]), ("logprobs", -1),
                ("logprobs", 1000), ("stream", "yes"), ("echo", 1),
                ("max_tokens", 10 ** 30), ("min_tokens", -2)):
            with self.subTest(param=param, value=value):
                self.refused({"prompt": "a", param: value}, param=param)

    def test_odd_prompts_are_refused(self):
        for prompt in ([], [[]], [1, "a"], ["a", 1], 5, {"a": 1}, [-1],
                       [512], [2 ** 40], [1.5], None):
            with self.subTest(prompt=prompt):
                self.refused({"prompt": prompt}, param="prompt")
        self.refused({"max_tokens": 1}, param="prompt")

    def test_fields_that_are_not_built_are_refused_unless_neutral(self):
        for param, value in (("best_of", 129), ("suffix", "x"), ("n", 129),
                             ("presence_penalty", 2.5), ("length_penalty", 2),
                             ("logit_bias", {"512": 1})):
            with self.subTest(param=param):
                self.refused({"prompt": "a", param: value}, param=param)
        api.completion(self.url, "a", max_tokens=1, n=1, presence_penalty=0,
                       frequency_penalty=0.0, logit_bias=None, user="me",
                       no_such_field={"x": 1})

    def test_odd_chats_are_refused(self):
        for messages in (None, "hi", [], [5], [{"role": "user"}],
                         [{"content": "x"}], [{"role": 1, "content": "x"}],
                         [{"role": "user", "content": 5}]):
            with self.subTest(messages=messages):
                self.refused({"messages": messages}, path=CHAT)

    def test_a_full_queue_is_told_with_when_to_come_back(self):
        def complete():
            return api.post(self.url, COMPLETIONS,
                            {"prompt": "a", "max_tokens": 5})[0]

        def wait_until(series):
            harness.wait_for(lambda: api.metrics(self.url)[series] == 1, 10,
                             f"{series} is 1")

        full = 'sluice_gateway_rejections_total{reason="queue_full"} 1\n'
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            # Nothing goes on meanwhile; short of what turns readiness off.
            begin = time.monotonic()
            with self.cluster.stopped("stage", 0):
                running = pool.submit(complete)
                wait_until("vllm:num_requests_running")
                waiting = pool.submit(complete)
                wait_until("vllm:num_requests_waiting")
                status, headers, body = api.request(
                    self.url, "POST", COMPLETIONS, {"prompt": "a"})
            self.assertLess(time.monotonic() - begin, 5,
                            "too slow here: the stage was nearly given up")
            self.assertEqual((running.result(), waiting.result()), (200, 200))
        self.assertEqual(status, 429, body)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(int(headers["Retry-After-Ms"]),
                         1000 * int(headers["Retry-After"]))
        error = json.loads(body)["error"]
        self.assertIn("the queue is full: 1 requests wait, limit 1",
                      error.pop("message"))
        self.assertEqual(error, {"type": "rate_limit_error", "param": None,
                                 "code": "queue_full"})
        self.assertIn(full, api.get(self.url, "/metrics")[1])

    def test_unknown_paths_and_methods_are_told(self):
        for method, path, want in (("GET", "/v1/nope", 404),
                                   ("GET", COMPLETIONS, 405),
                                   ("DELETE", "/v1/models", 405)):
            status, _, body = api.request(self.url, method, path)
            self.assertEqual(status, want, body)
            self.assertIn("error", json.loads(body))

    def test_junk_bytes_end_their_connection_alone(self):
        parts = urllib.parse.urlsplit(self.url)
        for junk in (b"\x00" * 100, b"GET\r\n\r\n", b"\x16\x03\x01" * 30,
                     b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                     b"GET / HTTP/9.9\r\n\r\n", b"A" * 100000):
            with socket.create_connection((parts.hostname, parts.port),
                                          30) as peer:
                try:
                    peer.sendall(junk)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass
                except ConnectionError:
                    pass  # Cutting us off is an answer too.

    def test_two_lengths_that_contradict_are_refused(self):
        parts = urllib.parse.urlsplit(self.url)
        with socket.create_connection((parts.hostname, parts.port),
                                      30) as peer:
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Length: 5\r\n"
                         b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            self.assertEqual(answer.status, 400)


if __name__ == "__main__":
    harness.main()
