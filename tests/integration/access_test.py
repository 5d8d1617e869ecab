"""Who may come in: API keys, web pages, HTTPS, listeners that others reach;
and a gateway that drains."""

import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

import api
import harness
from raw_client import Raw

COMPLETIONS = "/v1/completions"
ALICE = {"Authorization": "Bearer sk-alice-0123456789"}
BOB = {"Authorization": "Bearer sk-bob-0123456789"}


def generation(count, stream=False):
    return {"prompt": "Once upon a time", "max_tokens": count,
            "temperature": 0, "ignore_eos": True, "stream": stream}


def data_of(raw):
    """The data of a stream's events, without what tells of the run."""
    events = [line[6:] for line in raw.decode().splitlines()
              if line.startswith("data: ")]
    return [event if event == "[DONE]" else
            {**json.loads(event), "usage": None} for event in events]


class AccessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.keys = pathlib.Path(folder.name) / "keys"
        self.write_keys("# who may come in\nalice:sk-alice-0123456789\n")
        self.cluster = harness.Cluster(
            harness.golden("stories"),
            "--api-key-file", self.keys, "--max-queue", "1000",
            "--max-queue-wait", "600")
        self.addCleanup(self.cluster.close)
        self.url = self.cluster.url

    def write_keys(self, text):
        draft = self.keys.with_suffix(".new")
        draft.write_text(text)
        draft.chmod(0o600)
        draft.rename(self.keys)

    def status(self, method, path, body=None, headers=None):
        return api.request(self.url, method, path, body, headers)[0]

    def test_keys_let_in_and_change_while_it_runs(self):
        self.assertRegex(self.cluster.up.stdout, r"answer: \S")
        self.assertIn("Authorization: Bearer", self.cluster.up.stdout)
        self.assertNotIn("sk-alice", self.cluster.up.stdout)
        for path in ("/livez", "/readyz", "/health", "/"):
            self.assertEqual(self.status("GET", path), 200, path)
        for path in ("/v1/models", "/metrics", "/version"):
            self.assertEqual(self.status("GET", path), 401, path)
            self.assertEqual(self.status("GET", path, headers=ALICE), 200)
        self.assertEqual(
            self.status("POST", COMPLETIONS, generation(2)), 401)
        self.assertEqual(
            self.status("POST", COMPLETIONS, generation(2), ALICE), 200)
        self.assertEqual(
            self.status("POST", COMPLETIONS, generation(2), BOB), 401)
        self.write_keys("bob:sk-bob-0123456789\n")
        harness.wait_for(
            lambda: self.status("GET", "/v1/models", headers=BOB) == 200, 10,
            "the new key is known")
        # Bob's was a wrong one until then.
        self.assertIn(self.status("GET", "/v1/models", headers=ALICE),
                      (401, 429))
        self.write_keys("short:1\n")
        harness.wait_for(lambda: self.status(
            "GET", "/v1/models", headers=BOB) == 200 and
            "the keys from before stay" in self.cluster.logs(), 10,
            "a bad file is logged and changes nothing")
        _, _, text = api.request(self.url, "GET", "/metrics", headers=BOB)
        self.assertNotIn(b"alice", text)  # names of keys only if asked for
        for secret in ("sk-alice", "sk-bob"):
            self.assertNotIn(secret.encode(), text)
            self.assertNotIn(secret, self.cluster.logs(1000))

    def test_a_line_that_goes_gives_nobody_anothers_streams(self):
        carol, dave = ({"Authorization": f"Bearer sk-{name}-0123456789"}
                       for name in ("carol", "dave"))
        lines = ["alice:sk-alice-0123456789", "bob:sk-bob-0123456789",
                 "sk-carol-0123456789", "sk-dave-0123456789"]

        def use(lines, known):
            self.write_keys("\n".join(lines) + "\n")
            harness.wait_for(lambda: [self.status(
                "GET", "/version", headers=BOB), self.status(
                    "GET", "/version", headers=dave)] == known, 10,
                             "the keys are read")

        use(lines, [200, 200])
        status, _, whole = api.request(
            self.url, "POST", COMPLETIONS, generation(8, stream=True),
            {**carol, "X-Request-Id": "of-carol"})
        self.assertEqual(status, 200)
        # A name that could be the stream's is nobody's to choose.
        use(["alice:sk-alice-0123456789", *lines[2:]], [401, 200])
        path = "/v1/streams/of-carol"
        self.assertEqual(self.status("GET", path, headers=dave), 404)
        self.assertEqual(self.status("GET", path, headers=ALICE), 404)
        status, _, again = api.request(self.url, "GET", path, headers=carol)
        self.assertEqual((status, data_of(again)), (200, data_of(whole)))
        for name in ("key-1", "key-2", "key-" + hashlib.sha256(
                b"sk-carol-0123456789").hexdigest()[:12]):
            self.write_keys(f"{name}:sk-bob-0123456789\n" + lines[3] + "\n")
            harness.wait_for(
                lambda name=name: f"line 1: the name {name} looks like"
                in self.cluster.logs(1000), 10, "the name is refused")
            # 429: the polls above were wrong keys, too.
            self.assertIn(self.status("GET", path, headers=BOB), (401, 429))

    def test_what_only_key_holders_are_told(self):
        _, _, raw = api.request(self.url, "GET", "/v1/models", headers=ALICE)
        self.assertIn("root", json.loads(raw)["data"][0])
        headers = {"X-Api-Key": "sk-alice-0123456789"}
        self.assertEqual(self.status("GET", "/cluster", headers=headers), 200)
        self.assertEqual(self.status("GET", "/cluster"), 401)

    def test_known_keys_are_never_delayed_by_wrong_ones(self):
        answers = [api.request(self.url, "GET", "/version", None, {
            "Authorization": f"Bearer sk-guess-{i:010}"}) for i in range(60)]
        self.assertEqual([one[0] for one in answers[:10]], [401] * 10)
        refused = [one for one in answers if one[0] == 429]
        self.assertGreater(len(refused), 30)
        for _, headers, body in refused:
            self.assertIn(int(headers["Retry-After"]), range(1, 11))
            self.assertEqual(json.loads(body)["error"]["code"],
                             "too_many_wrong_api_keys")
        # After a restart no key has come in before.
        self.cluster.kill("gateway")
        harness.wait_for(lambda: not api.try_get(self.url, "/livez")[0], 10,
                         "the gateway ends")
        gateway = self.cluster.restart("gateway")
        self.addCleanup(gateway.wait, 30)
        self.addCleanup(gateway.terminate)
        harness.wait_for(lambda: api.try_get(self.url, "/livez")[0] == 200, 60,
                         "the gateway is there again")
        for i in range(30):
            wrong = self.status("GET", "/version", headers={
                "X-Api-Key": f"sk-guess-{i:010}"})
            self.assertEqual(wrong, 401 if i < 10 else 429, i)
            self.assertEqual(self.status("GET", "/version", headers=ALICE),
                             200)

    def test_a_key_file_that_cannot_be_read_is_named(self):
        with harness.Cluster(harness.golden("stories"),
                             "--api-key-file", self.keys.with_name("none"),
                             expect=6) as cluster:
            self.assertIn("none: No such file", cluster.up.stderr)
            self.assertNotIn("Traceback", cluster.up.stderr)

    def test_a_draining_gateway_finishes_and_answers_probes(self):
        length = 240 if harness.SANITIZED else 480  # within --drain-timeout

        def finish(_):
            """What is wrong with the answer; nothing if it is whole."""
            status, _, body = api.request(self.url, "POST", COMPLETIONS,
                                          generation(length, True), ALICE)
            whole = status == 200 and body.endswith(b"data: [DONE]\n\n")
            return None if whole else (status, body[-300:])

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            streams = [pool.submit(finish, i) for i in range(64)]
            harness.wait_for(lambda: self.taken() == 64, 30,
                             "the engine has all")
            gateway = self.cluster.process("gateway")["pid"]
            os.kill(gateway, signal.SIGTERM)
            harness.wait_for(
                lambda: self.status("GET", "/readyz") == 503, 10,
                "not ready")
            self.assertEqual(self.status("GET", "/livez"), 200)
            self.assertEqual(self.status("GET", "/metrics", headers=ALICE),
                             200)
            status, headers, _ = api.request(self.url, "POST", COMPLETIONS,
                                             generation(2), ALICE)
            self.assertEqual(status, 503)
            self.assertIn("Retry-After", headers)
            self.assertEqual(headers["Connection"], "close")
            self.assertFalse(all(stream.done() for stream in streams))
            self.assertEqual([stream.result() for stream in streams],
                             [None] * len(streams))
        harness.wait_for(lambda: api.try_get(self.url, "/livez")[0] == 0, 10,
                         "the gateway ends")
        harness.wait_for(lambda: "stopped" in self.cluster.logs(), 10,
                         "it says that it stopped")

    def taken(self):
        """How many requests run or wait to; a request for metrics is none."""
        _, _, text = api.request(self.url, "GET", "/metrics", headers=ALICE)
        return sum(int(float(value)) for value in re.findall(
            rb"\nvllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)", text))


class DoorsTest(unittest.TestCase):
    """Gateways whose stages are not there: who may come in is asked first."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def gateway(self, *options, **environment):
        """Starts a gateway; (its process, where its words go)."""
        log = self.folder / "log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) /
                 "services/gateway/sluice-gateway",
                 "--stages", "127.0.0.1:1", "--model",
                 harness.golden("stories"),
                 "--port-file", self.folder / "port",
                 "--drain-timeout", "1", *options],
                stderr=out, stdout=out, stdin=subprocess.DEVNULL,
                env={**os.environ, **environment})

        def end():
            process.kill()
            process.wait(30)
        self.addCleanup(end)
        return process, log

    def port(self):
        file = self.folder / "port"
        return int(harness.wait_for(
            lambda: file.exists() and file.read_text().strip(), 30,
            "the gateway listens").rsplit(":", 1)[1])

    def ask(self, connection, headers=None, method="GET", path="/version",
            body=None):
        """The status, and the code of the error."""
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            raw = answer.read()
            code = json.loads(raw)["error"]["code"] \
                if answer.status >= 400 else None
            return answer.status, code

    def expiry(self, port, context):
        """When the certificate of HTTPS ends, as the metrics say."""
        with contextlib.closing(http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=30, context=context)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return float(re.search(
            r'^sluice_tls_certificate_expiry_timestamp_seconds\{use="http"\} '
            r"(\S+)$", text, re.M)[1])

    def test_beyond_loopback_needs_keys_or_open(self):
        process, log = self.gateway("--listen", "0.0.0.0:0")
        self.assertEqual(process.wait(30), 1)
        self.assertIn("--api-key-file", log.read_text())
        self.assertIn("--open", log.read_text())
        process, log = self.gateway("--listen", "0.0.0.0:0",
                                    SLUICE_API_KEYS="a:sk-0123456789,b:sk-b-9"
                                    "876543210")
        port = self.port()
        self.assertIn("plain text", log.read_text())
        for key, status in (("sk-0123456789", 200), ("sk-b-9876543210", 200),
                            ("sk-other", 401)):
            connection = http.client.HTTPConnection("127.0.0.1", port, 30)
            self.assertEqual(
                self.ask(connection, {"X-Api-Key": key})[0], status)
        self.assertNotIn("sk-0123456789", log.read_text())

    def test_other_web_pages_are_refused(self):
        self.gateway("--listen", "127.0.0.1:0", "--allowed-hosts",
                     "llm.example", "--cors-origins", "https://page.example")
        port = self.port()

        def ask(headers, **more):
            return self.ask(http.client.HTTPConnection("127.0.0.1", port, 30),
                            headers, **more)
        ours = f"http://127.0.0.1:{port}"
        self.assertEqual(ask({})[0], 200)
        self.assertEqual(ask({"Origin": ours})[0], 200)
        self.assertEqual(ask({"Origin": "https://page.example"})[0], 200)
        self.assertEqual(ask({"Host": "llm.example"})[0], 200)
        self.assertEqual(ask({"Host": "evil.example"}),
                         (421, "host_not_allowed"))
        self.assertEqual(ask({"Host": "evil.example"}, path="/livez")[0], 200)
        for origin in ("https://evil.example", "null"):
            self.assertEqual(ask({"Origin": origin}),
                             (403, "origin_not_allowed"))
        post = {"method": "POST", "path": "/tokenize",
                "body": '{"prompt": "a"}'}
        self.assertEqual(ask({"Origin": ours, "Content-Type": "text/plain"},
                             **post), (415, "unsupported_content_type"))
        self.assertEqual(ask({"Content-Type": "text/plain"}, **post)[0], 200)

    def test_this_machines_pages_and_containers_come_in(self):
        self.gateway("--listen", "127.0.0.1:0")
        port = self.port()

        def ask(headers, **more):
            connection = http.client.HTTPConnection("127.0.0.1", port, 30)
            return self.ask(connection, headers, **more)
        for host in ("host.docker.internal:8080", "HOST.docker.internal",
                     "host.containers.internal"):
            self.assertEqual(ask({"Host": host})[0], 200, host)
        for host in ("[::1].evil.com", "127.0.0.1.evil.com", "[::1]x",
                     "localhost:80:80", "user@localhost", "2130706433",
                     socket.gethostname() + ".evil.com"):
            self.assertEqual(ask({"Host": host}), (421, "host_not_allowed"),
                             host)
        post = {"method": "POST", "path": "/tokenize",
                "body": '{"prompt": "a"}'}
        for origin in ("app://obsidian.md", "vscode-webview://1a2b",
                       "tauri://localhost", "file://",
                       "http://tauri.localhost", "http://localhost:3000",
                       "https://[::1]:5173"):
            self.assertEqual(ask({"Origin": origin})[0], 200, origin)
            self.assertEqual(ask({"Origin": origin, "Content-Type":
                                  "application/json"}, **post)[0], 200)
        for origin in ("null", "https://evil.example",
                       "http://localhost.evil.example"):
            self.assertEqual(ask({"Origin": origin}),
                             (403, "origin_not_allowed"), origin)

    def test_spare_slashes_and_empty_lines_are_overlooked(self):
        self.gateway("--listen", "127.0.0.1:0",
                     SLUICE_API_KEYS="a:sk-0123456789")
        port = self.port()

        def status(path, key="X-Api-Key: sk-0123456789\r\n", begin=""):
            with Raw(f"http://127.0.0.1:{port}") as client:
                client.send(f"{begin}GET {path} HTTP/1.1\r\nHost: x\r\n{key}"
                            "\r\n".encode())
                return client.answer()[0]
        for path in ("/version", "/version/", "//version", "///version//"):
            self.assertEqual(status(path), 200, path)
            self.assertEqual(status(path, ""), 401, path)
        for path in ("/livez/", "//livez"):
            self.assertEqual(status(path, ""), 200, "it needs no key")
        for path in ("/peer/streams/", "//peer/streams", "/page/../version",
                     "/livez/../version", "/./version"):
            self.assertIn(status(path), (400, 404), path)
            self.assertIn(status(path, ""), (400, 401, 404), path)
        self.assertEqual(status("/version", begin="\r\n\r\n"), 200)

    def test_a_proxys_clients_are_told_apart(self):
        _, log = self.gateway(
            "--listen", "127.0.0.1:0", "--trusted-proxies",
            "127.0.0.1,10.0.0.0/8", "--access-log",
            SLUICE_API_KEYS="a:sk-0123456789,b:sk-9876543210")
        port = self.port()

        def ask(key, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", port, 30)
            return self.ask(connection, {"X-Api-Key": key, **{
                name.replace("_", "-"): value
                for name, value in headers.items()}})[0]
        for i in range(30):
            self.assertEqual(
                ask("sk-guess", X_Forwarded_For="9.9.9.9, 192.0.2.1, 10.1.1.1"),
                401 if i < 10 else 429, i)
        self.assertEqual(ask("sk-guess", X_Forwarded_For="192.0.2.2"), 401)
        self.assertEqual(ask("sk-guess", Forwarded='for="[2001:db8::1]:1"'),
                         401)
        self.assertEqual(ask("sk-guess", Forwarded="for=192.0.2.1"), 429)
        for value in ("unknown", "192.0.2.2:x", "192.0.2.256"):
            self.assertEqual(ask("sk-guess", X_Forwarded_For=value), 401)
        self.assertEqual(ask("sk-9876543210", X_Forwarded_For="192.0.2.1"), 200)
        text = log.read_text()
        for address in ("192.0.2.1", "192.0.2.2", "2001:db8::/64",
                        "127.0.0.1"):
            self.assertIn(address, text)
        process, log = self.gateway("--listen", "127.0.0.1:0",
                                    "--trusted-proxies", "nginx")
        self.assertEqual(process.wait(30), 1)
        self.assertIn("--trusted-proxies: 'nginx'", log.read_text())

    @unittest.skipUnless(shutil.which("openssl"), "needs openssl")
    def test_https_with_a_certificate_that_changes(self):
        def make(name):
            for file in ("cert", "key"):
                (self.folder / f"{file}.pem").unlink(missing_ok=True)
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                 "-days", "1", "-subj", f"/CN={name}", "-addext",
                 "subjectAltName=IP:127.0.0.1", "-keyout",
                 self.folder / "key.pem", "-out", self.folder / "cert.pem"],
                check=True, capture_output=True)
            return ssl.create_default_context(
                cafile=self.folder / "cert.pem")

        def ask(context):
            return self.ask(http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=30, context=context))

        def shown(context):
            try:
                return ask(context)[0] == 200
            except ssl.SSLError:
                return False
        first = make("first")
        _, log = self.gateway(
            "--listen", "127.0.0.1:0", "--http-tls-cert",
            self.folder / "cert.pem", "--http-tls-key",
            self.folder / "key.pem")
        port = self.port()
        harness.wait_for(lambda: "listening on https://" in log.read_text(),
                         10, "it says that it speaks TLS")
        self.assertEqual(ask(first)[0], 200)
        self.assertAlmostEqual(self.expiry(port, first),
                               time.time() + 86400, delta=300)
        second = make("second")
        harness.wait_for(lambda: shown(second), 20, "the new certificate")
        self.assertFalse(shown(first))


if __name__ == "__main__":
    harness.main()
