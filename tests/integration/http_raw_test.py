"""The gateway's bytes as they are on the wire, over raw sockets: the framing
of server-sent events, and connections as odd and hostile clients make them."""

import concurrent.futures
import contextlib
import itertools
import json
import random
import resource
import socket
import struct
import time
import unittest

import api
import harness
from raw_client import Raw, generation, post

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HEADER_TIMEOUT = 1.0
BODY_TIMEOUT = 2.0
CONNECTIONS = 4096  # --max-connections, if it is not said


class HttpRawTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = harness.golden("stories")
        cls.cluster = harness.Cluster(folder)
        cls.addClassCleanup(cls.cluster.close)
        cls.restart_with_short_timeouts()
        cls.url = cls.cluster.url

    @classmethod
    def restart_with_short_timeouts(cls):
        """The gateway again, as slow clients find it sooner."""
        cls.cluster.kill("gateway")
        harness.wait_for(
            lambda: not api.try_get(cls.cluster.url, "/livez")[0], 10,
            "the gateway ends")
        gateway = cls.cluster.restart(
            "gateway", 0, f"--header-timeout={HEADER_TIMEOUT}",
            f"--body-timeout={BODY_TIMEOUT}")
        cls.addClassCleanup(gateway.wait, 30)
        cls.addClassCleanup(gateway.terminate)
        cls.gateway = gateway
        harness.wait_for(
            lambda: api.try_get(cls.cluster.url, "/readyz")[0] == 200, 60,
            "the gateway is ready again")

    def tearDown(self):
        self.assertEqual(api.get(self.url, "/readyz")[0], 200,
                         self.cluster.logs())

    def raw(self, timeout=60):
        return Raw(self.url, timeout)

    def stages_hold(self):
        """How many sequences each stage knows."""
        return [api.metrics(entry["metrics_address"])["sluice_stage_sequences"]
                for entry in self.cluster.file["processes"]
                if entry["role"] == "stage"]

    def assert_idle(self):
        """No sequence, no block and no connection but ours is in use, and no
        stage knows of a sequence."""
        def idle():
            now = api.metrics(self.url)
            return not any(now[name] for name in (
                "vllm:num_requests_running", "vllm:num_requests_waiting",
                "vllm:kv_cache_usage_perc", "sluice_gateway_queue_depth")
                ) and now["sluice_gateway_inflight_requests"] == 1
        harness.wait_for(idle, 30, "nothing is in use")
        harness.wait_for(lambda: not any(self.stages_hold()), 30,
                         "no stage knows of a sequence")

    # Framing -----------------------------------------------------------------

    def test_a_stream_is_framed_exactly(self):
        with self.raw() as client:
            client.send(post(COMPLETIONS, generation(
                True, stream_options={"include_usage": True})))
            status, headers = client.head()
            self.assertEqual(status, 200)
            self.assertEqual(headers["content-type"],
                             "text/event-stream; charset=utf-8")
            self.assertEqual(headers["transfer-encoding"], "chunked")
            self.assertEqual(headers["cache-control"], "no-cache")
            self.assertEqual(headers["x-accel-buffering"], "no")
            self.assertEqual(headers["connection"], "keep-alive")
            self.assertNotIn("content-length", headers)
            self.assertTrue(headers["x-request-id"])
            chunks = client.chunks()
            # One chunk is one event, and nothing but.
            for chunk in chunks:
                self.assertRegex(
                    chunk, rb"\Adata: [^\r\n]+\n(id: [!-~]+\n)?\n\Z")
            self.assertEqual(chunks[-1], b"data: [DONE]\n\n")
            events = [json.loads(chunk.split(b"\n")[0][6:])
                      for chunk in chunks[:-1]]
            self.assertEqual({event["object"] for event in events},
                             {"text_completion"})
            self.assertEqual(events[-1]["choices"], [])
            self.assertEqual(events[-1]["usage"]["completion_tokens"], 8)
            finished = [event["choices"][0]["finish_reason"]
                        for event in events[:-1]]
            self.assertEqual(finished[-1], "length")
            self.assertEqual(set(finished[:-1]), {None})
            # The connection is still good.
            client.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertEqual(client.answer()[2], b"ok\n")

    def test_a_stream_over_http_1_0_ends_with_the_connection(self):
        with self.raw() as client:
            client.send(post(COMPLETIONS, generation(True)).replace(
                b"HTTP/1.1", b"HTTP/1.0", 1))
            _, headers = client.head()
            self.assertNotIn("transfer-encoding", headers)
            self.assertEqual(headers["connection"], "close")
            self.assertTrue(client.rest().endswith(b"data: [DONE]\n\n"))

    def test_the_same_text_streamed_and_whole(self):
        with self.raw() as client:
            client.send(post(COMPLETIONS, generation(True, 40)) +
                        post(COMPLETIONS, generation(False, 40)))
            client.head()
            text = client.streamed_text()
            whole = json.loads(client.answer()[2])
            self.assertEqual(text, whole["choices"][0]["text"])

    def test_pipelined_requests_are_answered_in_order(self):
        with self.raw() as client:
            client.send(post(COMPLETIONS, generation(True)) +
                        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" +
                        post(COMPLETIONS, generation(False)) +
                        post("/tokenize", {"prompt": "a"}) +
                        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.head()
            self.assertEqual(client.chunks()[-1], b"data: [DONE]\n\n")
            self.assertEqual(json.loads(client.answer()[2])["object"], "list")
            self.assertEqual(json.loads(client.answer()[2])["object"],
                             "text_completion")
            self.assertIn(b"tokens", client.answer()[2])
            self.assertEqual(client.answer()[0], 404)

    # Requests ------------------------------------------------------------------

    def test_continue_is_said_when_expected(self):
        with self.raw() as client:
            raw = post(COMPLETIONS, generation(False), "Expect: 100-continue")
            head, _, body = raw.partition(b"\r\n\r\n")
            client.send(head + b"\r\n\r\n")
            self.assertEqual(client.until(b"\r\n\r\n"),
                             b"HTTP/1.1 100 Continue\r\n\r\n")
            client.send(body)
            self.assertEqual(client.answer()[0], 200)
            client.send(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                        b"Expect: 100-continue\r\n"
                        b"Content-Length: 100000000\r\n\r\n")
            self.assertEqual(client.answer()[0], 413)

    def test_a_chunked_body_is_read_however_it_is_cut(self):
        raw = json.dumps(generation(False)).encode()
        head = post(COMPLETIONS, b"", "Transfer-Encoding: chunked",
                    length=False)
        for size in (1, 7, len(raw)):
            pieces = [raw[at:at + size] for at in range(0, len(raw), size)]
            body = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece)
                            for piece in pieces)
            with self.raw() as client:
                client.send(head)
                client.send(body + b"0\r\nTrailer: x\r\n\r\n")
                self.assertEqual(client.answer()[0], 200)

    def test_what_is_not_understood_is_refused_in_json(self):
        body = b'{"prompt": "a", "max_tokens": 1}'
        for raw, want in (
                (post(COMPLETIONS, body, "Transfer-Encoding: gzip, chunked",
                      length=False), 501),
                (post(COMPLETIONS, body, "Content-Encoding: gzip"), 415),
                (post(COMPLETIONS, body, "Expect: wonders"), 417),
                (post(COMPLETIONS, body, "Host: y"), 400),
                (b"GET nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                (b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 17000 +
                 b"\r\n\r\n", 431),
                (b"GET / HTTP/1.1\r\nHost: localhost\r\n" +
                 b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(5000)) +
                 b"\r\n", 431)):
            with self.subTest(raw=raw[:60]), self.raw() as client:
                client.send(raw)
                status, headers, answer = client.answer()
                self.assertEqual(status, want, answer)
                self.assertEqual(headers["connection"], "close")
                self.assertIn("x-request-id", headers)
                self.assertIsInstance(json.loads(answer)["error"]["message"],
                                      str)
                self.assertEqual(client.rest(), b"")

    def test_parser_words_never_leak(self):
        for body in (b"{", b'{"prompt": 1e999}', b"\xff", b'{"a": "\\ud800"}'):
            _, _, answer = api.request(self.url, "POST", COMPLETIONS, body)
            for word in (b"json.exception", b"nlohmann", b"parse_error"):
                self.assertNotIn(word, answer)

    # Connections ---------------------------------------------------------------

    def test_half_closed_clients_get_their_answers(self):
        for stream in (False, True):
            with self.raw() as client:
                client.send(post(COMPLETIONS, generation(stream, 200)))
                client.socket.shutdown(socket.SHUT_WR)
                answer = client.rest()
                self.assertIn(b"HTTP/1.1 200 OK\r\n", answer)
                self.assertIn(b"data: [DONE]\n\n" if stream
                              else b'"completion_tokens":200', answer)
        self.assert_idle()

    def test_clients_that_close_are_noticed(self):
        for stream, begun in itertools.product((False, True), repeat=2):
            with self.subTest(stream=stream, begun=begun):
                before = api.metrics(self.url)
                client = self.raw()
                client.send(post(COMPLETIONS, generation(stream, 480)) * 30)
                if begun:
                    harness.wait_for(lambda: all(self.stages_hold()), 30,
                                     "every stage knows of a sequence")
                client.socket.close()
                self.assert_idle()
                made = (api.metrics(self.url)["vllm:generation_tokens_total"] -
                        before["vllm:generation_tokens_total"])
                self.assertLess(made, 5 * 480)

    def kept(self, stack, count):
        """So many connections that stay, each of which has had an answer."""
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(self.raw()))
            self.assertEqual(clients[-1].ask("/livez"), (200, "ok\n"))
        return clients

    def wait_connections(self, count, ask):
        """Until the gateway has `count`, by the page that `ask` brings."""
        harness.wait_for(
            lambda: f"\nsluice_gateway_connections {count}\n" in
            ask("/metrics")[1], 30, f"{count} connections")

    def test_thousands_of_connections_up_to_the_limit(self):
        self.allow_files(CONNECTIONS + 256)
        idle, streams = 3000, 48
        prompts = [[1, 261 + i] for i in range(8)]
        texts = [choice["text"] for choice in api.completion(
            self.url, **generation(False, 300, prompt=prompts))["choices"]]
        with contextlib.ExitStack() as stack, \
                harness.measured(f"{CONNECTIONS} connections"):
            waiting = self.kept(stack, idle)
            busy = [stack.enter_context(self.raw()) for _ in range(streams)]
            for i, client in enumerate(busy):
                client.send(post(COMPLETIONS, generation(
                    True, 300, prompt=prompts[i % len(prompts)])))
            self.wait_connections(idle + streams + 1,
                                  lambda path: api.get(self.url, path))
            self.assertGreater(api.metrics(self.url)[
                "sluice_gateway_inflight_requests"], 1)
            self.assertEqual(api.get(self.url, "/readyz")[0], 200)
            for i, client in enumerate(busy):
                self.assertEqual(client.head()[0], 200)
                self.assertEqual(client.streamed_text(),
                                 texts[i % len(prompts)])
            others = self.kept(stack, CONNECTIONS - idle - streams)
            self.wait_connections(CONNECTIONS, others[0].ask)
            # One more takes the place of the one that is idle longest.
            with self.raw() as late:
                self.assertEqual(late.ask("/livez"), (200, "ok\n"))
            self.assertEqual(waiting.pop(0).rest(), b"")
            self.assertEqual(others[0].ask("/readyz")[0], 200)
            others.pop().socket.close()
            # Before both are noticed, a new one takes an idle one's place.
            self.wait_connections(CONNECTIONS - 2, others[0].ask)
            self.assertEqual(api.get(self.url, "/readyz")[0], 200)
            for client in waiting + busy + others:
                self.assertEqual(client.ask("/livez"), (200, "ok\n"))
        self.wait_connections(1, lambda path: api.get(self.url, path))
        self.assert_idle()

    def allow_files(self, count):
        """Raises this process's limit of open files, as a gateway its own."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < count:
            self.skipTest(f"needs {count} open files, the hard limit is "
                          f"{hard} (ulimit -Hn)")
        if soft != resource.RLIM_INFINITY and soft < count:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE,
                            (soft, hard))

    def test_slow_headers_and_bodies_are_closed_in_time(self):
        def trickle(begin, limit):
            start = time.monotonic()
            with self.raw(timeout=0.05) as client:
                try:
                    client.send(begin)
                    while True:
                        client.send(b"a")
                        try:
                            if not client.socket.recv(100):
                                break
                        except TimeoutError:
                            pass
                except ConnectionError:
                    pass
            took = time.monotonic() - start
            self.assertGreater(took, limit * 0.8)
            self.assertLess(took, limit + 5)

        slow = [(b"GET / HTTP/1.1\r\nX: ", HEADER_TIMEOUT)] * 50 + [
            (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
             b"Content-Length: 100000\r\n\r\n{", BODY_TIMEOUT)] * 10
        with concurrent.futures.ThreadPoolExecutor(len(slow)) as pool:
            trickles = [pool.submit(trickle, *one) for one in slow]
            # Meanwhile others are served.
            status, _ = api.post(self.url, COMPLETIONS, generation(False))
            self.assertEqual(status, 200)
            for one in trickles:
                one.result()
        self.assert_idle()

    @unittest.skipIf(harness.SANITIZED,
                     "a sanitizer keeps freed memory for a while")
    def test_large_bodies_leave_their_memory(self):
        def resident():
            return api.metrics(self.url)["process_resident_memory_bytes"]

        chat = json.dumps({"messages": [
            {"role": "user", "content": "word " * 1600000}]}).encode()
        ids = b'{"prompt": [' + b"1," * 4000000 + b"1]}"
        before = resident()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for done in [pool.submit(api.request, self.url, "POST", path, raw)
                         for path, raw in ((CHAT, chat),
                                           (COMPLETIONS, ids)) * 6]:
                self.assertIn(done.result()[0], (400, 429, 503))
        peak = resident()
        harness.wait_for(lambda: resident() < before + 100e6, 30,
                         "large bodies' memory is given back")
        print(f"resident MB: {before / 1e6:.0f} before, {peak / 1e6:.0f} "
              f"right after, {resident() / 1e6:.0f} soon after", flush=True)

    def test_random_disconnects_leave_nothing_in_use(self):
        dice = random.Random(5)
        count = 1000 if harness.LONG else 200
        plans = [(dice.random() < 0.7, dice.random() < 0.5,
                  dice.expovariate(20), dice.random())
                 for _ in range(count)]

        def leave(stream, reset, delay, cut):
            with self.raw() as client:
                raw = post(COMPLETIONS, generation(stream, 200))
                if cut < 0.1:  # a request that never ends
                    raw = raw[:int(len(raw) * cut * 10)]
                client.send(raw)
                end = time.monotonic() + delay
                client.socket.settimeout(max(delay, 0.001))
                try:
                    while time.monotonic() < end and client.socket.recv(500):
                        pass
                except TimeoutError:
                    pass
                if reset:
                    client.socket.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))

        with harness.measured(f"{count} disconnects"), \
                concurrent.futures.ThreadPoolExecutor(16) as pool:
            for done in [pool.submit(leave, *plan) for plan in plans]:
                done.result()
            self.assert_idle()
        status, _ = api.post(self.url, COMPLETIONS, generation(False))
        self.assertEqual(status, 200)


if __name__ == "__main__":
    harness.main()
