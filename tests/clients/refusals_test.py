"""The table of refusals in each dialect, against live clusters: status, headers and
body of every refusal, whole and streamed, and how a stream ends whose stage is lost.
"""

import contextlib
import http.client
import json
import pathlib
import re
import tempfile
import unittest
import urllib.parse

import client_cluster  # noqa: F401  (the path of api and harness)
import api
import harness

KEY = {"Authorization": "Bearer sk-alice"}
LONG_TEXT = "word " * 9000
LONG_ANSWER = "Count from 1 to 1000."
POSITIONS = 8192  # of the default model


class OpenAi:
    """OpenAI's chats; completions and responses have the same errors."""
    path = "/v1/chat/completions"
    wrong = {"temperature": "hot"}
    wrong_name = "temperature"
    knows_models = True
    unavailable = 503

    def body(self, text, tokens=4):
        return {"messages": [{"role": "user", "content": text}],
                "max_tokens": tokens, "temperature": 0, "ignore_eos": True}

    def error(self, case, headers, error):
        """(type, code, message) of a body, whose shape it checks."""
        case.assertEqual(set(error), {"error"})
        error = error["error"]
        case.assertEqual(set(error), {"message", "type", "param", "code"})
        for name in ("param", "code"):
            case.assertIsInstance(error[name], (str, type(None)))
        return error["type"], error["code"], error["message"]

    def wanted(self, row):
        return row["openai"]

    def too_long(self):
        return rf"maximum context length is {POSITIONS} tokens.* has \d+$"

    def end(self, case, lines):
        """(type, code) of the error that ends a stream."""
        case.assertEqual(lines[-1], "data: [DONE]")
        kind, code, _ = self.error(case, {}, json.loads(lines[-2][6:]))
        return kind, code

    lost = ("service_unavailable_error", "unavailable")


class Completions(OpenAi):
    path = "/v1/completions"

    def body(self, text, tokens=4):
        return {"prompt": text, "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True}


class Responses(OpenAi):
    path = "/v1/responses"
    lost = ("response.failed", "server_error")

    def body(self, text, tokens=4):
        return {"input": text, "max_output_tokens": tokens, "temperature": 0,
                "ignore_eos": True}

    def end(self, case, lines):
        events = [json.loads(line[6:]) for line in lines
                  if line.startswith("data: ")]
        case.assertEqual([event["sequence_number"] for event in events],
                         list(range(len(events))))
        response = events[-1]["response"]
        case.assertEqual(response["status"], "failed")
        case.assertEqual(set(response["error"]), {"code", "message"})
        return events[-1]["type"], response["error"]["code"]


class Messages(OpenAi):
    path = "/v1/messages"
    knows_models = False
    unavailable = 529
    lost = ("overloaded_error", None)

    def error(self, case, headers, error):
        case.assertEqual(set(error), {"type", "error", "request_id"})
        case.assertEqual(error["type"], "error")
        if headers:
            case.assertEqual(error["request_id"], headers["Request-Id"])
        error = error["error"]
        case.assertEqual(set(error), {"type", "message"})
        return error["type"], None, error["message"]

    def wanted(self, row):
        return row["messages"], None

    def too_long(self):
        return rf"^prompt is too long: \d+ tokens > {POSITIONS} maximum$"

    def end(self, case, lines):
        case.assertEqual(lines[-2], "event: error")
        kind, code, _ = self.error(case, {}, json.loads(lines[-1][6:]))
        return kind, code


class Ollama(OpenAi):
    path = "/api/chat"
    wrong = {"options": {"temperature": "hot"}}
    wrong_name = "options.temperature"
    lost = (None, None)

    def body(self, text, tokens=4):
        return {"messages": [{"role": "user", "content": text}],
                "options": {"num_predict": tokens, "temperature": 0}}

    def error(self, case, headers, error):
        case.assertEqual(set(error), {"error"})
        case.assertIsInstance(error["error"], str)
        return None, None, error["error"]

    def wanted(self, row):
        return None, None

    def end(self, case, lines):
        return self.error(case, {}, json.loads(lines[-1]))[:2]


class Generate(Ollama):
    path = "/api/generate"

    def body(self, text, tokens=4):
        return {"prompt": text,
                "options": {"num_predict": tokens, "temperature": 0}}


class LlamaCpp(OpenAi):
    path = "/completion"
    lost = ("unavailable_error", 503)

    def body(self, text, tokens=4):
        return {"prompt": text, "n_predict": tokens, "temperature": 0,
                "ignore_eos": True}

    def error(self, case, headers, error):
        case.assertEqual(set(error), {"error"})
        error = error["error"]
        keys = {"code", "message", "type"}
        if error["type"] == "exceed_context_size_error":
            keys |= {"n_prompt_tokens", "n_ctx"}
            case.assertEqual(error["n_ctx"], POSITIONS)
            case.assertGreater(error["n_prompt_tokens"], POSITIONS)
        case.assertEqual(set(error), keys)
        return error["type"], error["code"], error["message"]

    def wanted(self, row):
        return row["llamacpp"], row["status"]

    def end(self, case, lines):
        kind, code, _ = self.error(case, {}, json.loads(lines[-1][6:]))
        return kind, code


DIALECTS = (OpenAi(), Completions(), Responses(), Messages(), Ollama(),
            Generate(), LlamaCpp())


def row(status, openai_type, openai_code, messages, llamacpp):
    return {"status": status, "openai": (openai_type, openai_code),
            "messages": messages, "llamacpp": llamacpp}


INVALID = "invalid_request_error"
AUTHENTICATION = "authentication_error"
# What a refusal is in each dialect: status; OpenAI's type and code; Anthropic's and
# llama.cpp's type. Ollama's is the text alone.
TABLE = {
    "malformed JSON": row(400, INVALID, None, INVALID, INVALID),
    "no object": row(400, INVALID, None, INVALID, INVALID),
    "a wrong field": row(400, INVALID, None, INVALID, INVALID),
    "too long": row(400, INVALID, "context_length_exceeded", INVALID,
                    "exceed_context_size_error"),
    "no key": row(401, AUTHENTICATION, "invalid_api_key", AUTHENTICATION,
                  AUTHENTICATION),
    "a wrong key": row(401, AUTHENTICATION, "invalid_api_key", AUTHENTICATION,
                       AUTHENTICATION),
    "another page": row(403, INVALID, "origin_not_allowed", "permission_error",
                        "permission_error"),
    "an unknown model": row(404, INVALID, "model_not_found", None,
                            "not_found_error"),
    "an unknown path": row(404, INVALID, "not_found", "not_found_error", None),
    "another method": row(405, INVALID, "method_not_allowed", INVALID, INVALID),
    "too large": row(413, INVALID, "request_too_large", "request_too_large",
                     INVALID),
    "a coded body": row(415, INVALID, None, INVALID, INVALID),
    "too many wrong keys": row(429, AUTHENTICATION, "too_many_wrong_api_keys",
                               "rate_limit_error", "unavailable_error"),
    "full": row(429, "rate_limit_error", "queue_full", "rate_limit_error",
                "unavailable_error"),
    "no stage": row(503, "service_unavailable_error", "unavailable",
                    "overloaded_error", "unavailable_error"),
}
RETRIED = {429, 503, 529}


class Connection:
    """A request whose answer is read line by line."""

    def __init__(self, url, path, body, headers=None):
        parts = urllib.parse.urlsplit(url)
        self._http = http.client.HTTPConnection(parts.hostname, parts.port,
                                                timeout=300)
        self._http.request("POST", path, json.dumps(body),
                           {"Content-Type": "application/json",
                            **(headers or {})})
        self.answer = self._http.getresponse()
        self.lines = []

    def read(self, count=None):
        """Reads `count` lines that are not empty, or all that are left."""
        while count is None or len(self.lines) < count:
            line = self.answer.readline()
            if not line:
                break
            if line.strip():
                self.lines.append(line.decode().rstrip("\r\n"))
        return self.lines

    def close(self):
        self.answer.close()
        self._http.close()


def announce(url, path, length, headers):
    """What a server says to the head of a request with a body of `length`."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port,
                                            timeout=60)
    with contextlib.closing(connection):
        connection.putrequest("POST", path)
        for name, value in {"Content-Type": "application/json",
                            "Content-Length": str(length), **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


class RefusalsCase(unittest.TestCase):
    def check(self, dialect, what, answer):
        """Compares an answer with TABLE; its message."""
        status, headers, raw = answer
        wanted = TABLE[what]
        is_unavailable = wanted["status"] == 503
        self.assertEqual(status, dialect.unavailable if is_unavailable
                         else wanted["status"], raw)
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertEqual(headers["X-Request-Id"], "mine-1")
        self.assertEqual("Allow" in headers, status == 405)
        self.assertEqual("WWW-Authenticate" in headers, status == 401)
        self.assertEqual("Retry-After" in headers, status in RETRIED)
        if status in RETRIED:
            self.assertRegex(headers["Retry-After"], r"^[1-9]\d*$")
        kind, code, message = dialect.error(self, headers, json.loads(raw))
        self.assertEqual((kind, code), dialect.wanted(wanted), raw)
        self.assertTrue(message)
        return message

    def ask(self, dialect, headers=None, method="POST", below="", raw=None,
            **fields):
        """An answer to a short request, or to the bytes `raw`."""
        body = {"model": self.model, "stream": False, **dialect.body("Hi"),
                **fields} if raw is None else raw
        return api.request(self.url, method, dialect.path + below, body,
                           {"X-Request-Id": "mine-1", **self.key,
                            **(headers or {})})


class RefusalsTest(RefusalsCase):
    """A cluster with keys and a place for one request."""

    key = KEY

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-refusals-")
        cls.addClassCleanup(folder.cleanup)
        keys = pathlib.Path(folder.name) / "keys"
        keys.write_text("alice:sk-alice\n")
        keys.chmod(0o600)
        cluster = harness.Cluster(
            harness.default_model(), "--threads", 1, "--max-running", 1,
            "--max-queue", 0, "--api-key-file", keys)
        cls.addClassCleanup(cluster.close)
        cls.url = cluster.url
        _, _, models = api.request(cls.url, "GET", "/v1/models", headers=KEY)
        cls.model = json.loads(models)["data"][0]["id"]

    def each(self, check):
        """Calls `check` with each dialect, and its field of a whole answer and
        of a stream."""
        for dialect in DIALECTS:
            for stream in (False, True):
                with self.subTest(path=dialect.path, stream=stream):
                    check(dialect, {"stream": stream})

    def test_bodies(self):
        def check(dialect, stream):
            message = self.check(dialect, "malformed JSON",
                                 self.ask(dialect, raw=b"{nope"))
            self.assertIn("byte", message)
            message = self.check(dialect, "no object",
                                 self.ask(dialect, raw=b"[]"))
            self.assertIn("object", message)
            message = self.check(
                dialect, "a wrong field",
                self.ask(dialect, **stream, **dialect.wrong))
            self.assertTrue(message.startswith(dialect.wrong_name), message)
            message = self.check(dialect, "a coded body", self.ask(
                dialect, headers={"Content-Encoding": "gzip"}, **stream))
            self.assertIn("Content-Encoding", message)
        self.each(check)

    def test_lengths(self):
        def check(dialect, stream):
            message = self.check(
                dialect, "too long",
                self.ask(dialect, **stream, **dialect.body(LONG_TEXT)))
            self.assertRegex(message, dialect.too_long())
            message = self.check(dialect, "too large", announce(
                self.url, dialect.path, 1 << 30,
                {"X-Request-Id": "mine-1", **KEY}))
            self.assertIn(str(1 << 30), message)
        self.each(check)

    def test_a_history_of_pictures_is_no_refusal(self):
        picture = "QWxhZGRpbjpvcGVu" * (24 << 16)  # 24 MiB of base64
        link = "data:image/png;base64," + picture
        firsts = {
            OpenAi: {"content": [{"type": "image_url",
                                  "image_url": {"url": link}}]},
            Responses: {"content": [{"type": "input_image",
                                     "image_url": link}]},
            Messages: {"content": [{"type": "image", "source": {
                "type": "base64", "media_type": "image/png",
                "data": picture}}]},
            Ollama: {"content": "", "images": [picture]}}
        for kind, first in firsts.items():
            with self.subTest(path=kind.path):
                name = "input" if kind is Responses else "messages"
                answer = self.ask(kind(), **{name: [
                    {"role": "user", **first},
                    {"role": "assistant", "content": "I see."},
                    {"role": "user", "content": "Hi"}]})
                self.assertEqual(answer[0], 200, answer[2])

    def test_access(self):
        def check(dialect, stream):
            self.check(dialect, "no key", self.ask(
                dialect, headers={"Authorization": ""}, **stream))
            message = self.check(dialect, "another page", self.ask(
                dialect, headers={"Origin": "http://other.example"}, **stream))
            self.assertIn("http://other.example", message)
        self.each(check)
        wrong = {"Authorization": "Bearer sk-bob"}
        for dialect in DIALECTS:
            with self.subTest(path=dialect.path):
                self.check(dialect, "a wrong key",
                           self.ask(dialect, headers=wrong))
        harness.wait_for(lambda: self.ask(OpenAi(), headers=wrong)[0] == 429,
                         30, "wrong keys are too many")
        for dialect in DIALECTS:
            with self.subTest(path=dialect.path):
                self.check(dialect, "too many wrong keys",
                           self.ask(dialect, headers=wrong))

    def test_names(self):
        def check(dialect, stream):
            answer = self.ask(dialect, **stream, model="other")
            if dialect.knows_models:
                message = self.check(dialect, "an unknown model", answer)
                self.assertIn("other", message)
            else:
                self.assertEqual(answer[0], 200)
                self.assertIn(b'"model":"other"', answer[2])
            answer = self.ask(dialect, below="/nope", **stream)
            # What is below llama.cpp's paths is no path of its.
            is_other = isinstance(dialect, LlamaCpp)
            self.check(OpenAi() if is_other else dialect, "an unknown path",
                       answer)
            answer = self.ask(dialect, method="DELETE")
            self.check(dialect, "another method", answer)
            self.assertEqual(answer[1]["Allow"], "POST, OPTIONS")
        self.each(check)

    def test_a_full_server(self):
        place = Connection(self.url, "/v1/completions",
                           {"model": self.model, "stream": True,
                            **Completions().body("Hi", 8000)}, KEY)
        with contextlib.closing(place):
            place.read(1)
            self.each(lambda dialect, stream: self.check(
                dialect, "full", self.ask(dialect, **stream)))
        harness.wait_for(lambda: self.ask(Completions())[0] == 200, 30,
                         "the place is free again")


class LostStageTest(RefusalsCase):
    """A cluster that waits a second for a lost stage."""

    key = {}

    def test_streams_end_as_their_dialects_say_and_service_returns(self):
        with harness.Cluster(
                harness.default_model(), "--threads", 1, "--recovery-timeout", 1,
                "--resplit-after", 0) as cluster:
            self.url = cluster.url
            _, models = api.get(cluster.url, "/v1/models")
            self.model = json.loads(models)["data"][0]["id"]
            streams = [Connection(
                cluster.url, dialect.path,
                {"model": self.model, "stream": True,
                 **dialect.body(LONG_ANSWER, 4000)}) for dialect in DIALECTS]
            for stream in streams:
                self.assertEqual(stream.answer.status, 200)
                stream.read(8)
            cluster.kill("stage", 1)
            for dialect, stream in zip(DIALECTS, streams):
                with (self.subTest(path=dialect.path),
                      contextlib.closing(stream)):
                    lines = [line for line in stream.read()
                             if not re.match(r"id: |: ", line)]
                    self.assertEqual(dialect.end(self, lines), dialect.lost)
            for dialect in DIALECTS:
                for stream in (False, True):
                    with self.subTest(path=dialect.path, stream=stream):
                        self.check(dialect, "no stage",
                                   self.ask(dialect, stream=stream))
            cluster.restart("stage", 1)
            harness.wait_for(
                lambda: api.try_get(cluster.url, "/readyz")[0] == 200, 120,
                "the stage is back")
            for dialect in DIALECTS:
                self.assertEqual(self.ask(dialect)[0], 200, dialect.path)


if __name__ == "__main__":
    harness.main()
