"""Answers and events as the types of the openai, anthropic and ollama packages for
Python have them, validated strictly: nothing that a type requires is missing, nothing
has another type, and what no type knows is in EXTRAS. So are the requests of
`sluice chat`.

The packages themselves build their objects without a check.
"""

import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import typing
import unittest

from client_cluster import MESSAGES, ClientCluster, skip
import api
import harness
import tool_model

try:
    import pydantic
    from anthropic import types as anthropic
    from anthropic.types import message_create_params
    import ollama
    from ollama._types import ChatRequest
    from openai import types as openai
    from openai.types import chat, responses
    from openai.types.chat import completion_create_params
    from openai.types.responses import response_create_params
except ImportError:
    skip("needs the openai, anthropic and ollama packages (tests/run installs "
         "them)")

# Members that answers have and the types do not, and who reads them.
EXTRAS = {
    "openai.ChatCompletionMessage.reasoning": "vLLM's, OpenRouter's clients",
    "openai.ChatCompletionMessage.reasoning_content": "DeepSeek's clients",
    "openai.ChoiceDelta.reasoning": "as a whole answer's",
    "openai.ChoiceDelta.reasoning_content": "as a whole answer's",
    "openai.Choice.stop_reason": "vLLM's clients",
    "openai.CompletionChoice.stop_reason": "vLLM's clients",
    "openai.Model.architecture": "OpenRouter's clients",
    "openai.Model.context_length": "OpenRouter's clients",
    "openai.Model.max_model_len": "vLLM's clients",
    "openai.Model.meta": "llama.cpp's clients",
    "openai.Model.parent": "vLLM's clients",
    "openai.Model.permission": "vLLM's clients",
    "openai.Response.store": "OpenAI's documents have it",
    "openai.ResponseFunctionCallArgumentsDoneEvent.name":
        "OpenAI's documents have it",
    "openai.LogprobTopLogprob.bytes": "OpenAI's documents have it",
    "openai.Logprob.bytes": "a whole response has it",
    "ollama.Message.ToolCall.id": "Ollama's server has it",
    "ollama.Message.ToolCall.Function.index": "Ollama's server has it",
    "ollama.TokenLogprob.bytes": "Ollama's server has it",
    "ollama.Logprob.bytes": "Ollama's server has it",
    "ollama.ListResponse.Model.name": "Ollama's server has it",
}
# Where OpenAI's own server sends a null that its types do not have: the type, the
# place, and what stands for the null here.
NULLS = {
    ("Completion", "choices.*.finish_reason"): "stop",  # of a chunk
    ("Completion", "choices.*.logprobs.token_logprobs.*"): 0.0,  # the first
    ("Completion", "choices.*.logprobs.top_logprobs.*"): {},
}
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice")
VERSION = {"anthropic-version": "2023-06-01"}
QUESTION = "What is the weather in Köln?"
PARAMETERS = {"type": "object", "required": ["city"],
              "properties": {"city": {"type": "string"},
                             "days": {"type": "integer"}}}
FUNCTION = {"name": "get_weather", "description": "Weather of a city.",
            "parameters": PARAMETERS}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]


def member(union, value):
    """The type of a union whose `type` is that of `value`."""
    for kind in typing.get_args(typing.get_args(union)[0]):
        if value["type"] in typing.get_args(
                kind.model_fields["type"].annotation):
            return kind
    raise AssertionError(f"no type of the union has {value}")


found = set()  # members that no type knows
begun = set()  # classes of tests that were not skipped


def tearDownModule():  # pylint: disable=invalid-name
    unknown, stale = found - EXTRAS.keys(), EXTRAS.keys() - found
    assert not unknown, f"no type knows {sorted(unknown)}"
    assert len(begun) < 2 or not stale, f"no answer has {sorted(stale)}"


class TypesCase(unittest.TestCase):
    """Answers of a cluster at `url`, which serves `model`."""

    def check(self, kind, value):
        """`value` as an object of `kind`."""
        try:
            model = kind.model_validate_json(json.dumps(value), strict=True)
        except pydantic.ValidationError as error:
            if not self.fill(kind, value, error):
                raise AssertionError(f"{error}\n{json.dumps(value)}") from None
            return self.check(kind, value)
        self.compare(value, model)
        return model

    @staticmethod
    def fill(kind, value, error):
        """Puts something in the place of the nulls of NULLS; whether there is
        no other error."""
        for one in error.errors():
            *path, last = one["loc"]
            place = ".".join("*" if isinstance(step, int) else step
                             for step in one["loc"])
            if one["input"] is not None or (kind.__name__, place) not in NULLS:
                return False
            holder = value
            for step in path:
                holder = holder[step]
            holder[last] = NULLS[kind.__name__, place]
        return True

    def compare(self, value, model):
        """Notes what `value` has and `model`, made of it, does not."""
        if isinstance(model, pydantic.BaseModel):
            fields = type(model).model_fields
            names = {field.alias or name: name
                     for name, field in fields.items()}
            for key, part in value.items():
                if key not in names:
                    kind = type(model)
                    found.add(f"{kind.__module__.split('.')[0]}."
                              f"{kind.__qualname__}.{key}")
                else:
                    self.compare(part, getattr(model, names[key]))
        elif isinstance(model, (list, tuple)):
            for part, made in zip(value, model, strict=True):
                self.compare(part, made)
        elif isinstance(model, dict):
            for key, part in value.items():
                self.compare(part, model[key])

    def post(self, path, body, headers=None):
        status, _, raw = api.request(self.url, "POST", path, body, headers)
        self.assertEqual(status, 200, raw)
        return json.loads(raw)

    def get(self, path, headers=None, method="GET"):
        status, _, raw = api.request(self.url, method, path, headers=headers)
        self.assertEqual(status, 200, raw)
        return json.loads(raw)

    def events(self, path, body):
        """The data of a stream's events, or the lines of one without events."""
        status, _, raw = api.request(self.url, "POST", path,
                                     {**body, "stream": True})
        self.assertEqual(status, 200, raw)
        lines = [line for line in raw.decode().splitlines() if line]
        if lines[0].startswith("{"):
            return [json.loads(line) for line in lines]
        return [json.loads(line[6:]) for line in lines
                if line.startswith("data: ") and line != "data: [DONE]"]


class DefaultModelTest(TypesCase):
    """Plain answers of the default model."""

    @classmethod
    def setUpClass(cls):
        cluster = ClientCluster()
        cls.addClassCleanup(cluster.close)
        cls.url, cls.model = cluster.url, cluster.model
        begun.add(cls)

    def test_chats(self):
        body = {"model": self.model, "messages": MESSAGES, "max_tokens": 4}
        for fields in ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 2},
                       {"response_format": {"type": "json_object"}}):
            with self.subTest(fields=fields):
                self.check(chat.ChatCompletion, self.post(
                    "/v1/chat/completions", {**body, **fields}))
                for event in self.events("/v1/chat/completions",
                                         {**body, **fields}):
                    self.check(chat.ChatCompletionChunk, event)

    def test_completions_and_models(self):
        body = {"model": self.model, "prompt": "Hi", "max_tokens": 4}
        for fields in ({}, {"n": 2}, {"logprobs": 2, "echo": True}):
            with self.subTest(fields=fields):
                self.check(openai.Completion,
                           self.post("/v1/completions", {**body, **fields}))
                for event in self.events("/v1/completions",
                                         {**body, **fields}):
                    self.check(openai.Completion, event)
        models = self.get("/v1/models")
        self.assertEqual(models["object"], "list")
        for one in models["data"]:
            self.check(openai.Model, one)
        self.check(openai.Model, self.get(f"/v1/models/{self.model}"))

    def test_responses(self):
        body = {"model": self.model, "input": "Paris.",
                "max_output_tokens": 24}
        for fields in (
                {"include": ["message.output_text.logprobs"],
                 "top_logprobs": 2, "metadata": {"a": "b"},
                 "instructions": "Be brief."},
                {"text": {"format": {"type": "json_schema", "name": "city",
                                     "schema": PARAMETERS}}}):
            with self.subTest(fields=fields):
                self.check(responses.Response,
                           self.post("/v1/responses", {**body, **fields}))
                for event in self.events("/v1/responses", {**body, **fields}):
                    self.check(member(responses.ResponseStreamEvent, event),
                               event)

    def test_ollama(self):
        prompt = {"model": self.model, "prompt": "Hi",
                  "options": {"num_predict": 4}}
        for fields in ({}, {"logprobs": True, "top_logprobs": 2},
                       {"format": "json"}):
            with self.subTest(fields=fields):
                self.check(ollama.GenerateResponse, self.post(
                    "/api/generate", {**prompt, **fields, "stream": False}))
                for line in self.events("/api/generate", {**prompt, **fields}):
                    self.check(ollama.GenerateResponse, line)


class ToolModelTest(TypesCase):
    """A model that reasons and calls a tool, and keeps responses."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        cls.addClassCleanup(folder.cleanup)
        cluster = harness.Cluster(tool_model.make(folder.name),
                                  *tool_model.FLAGS, "--response-store", 16)
        cls.addClassCleanup(cluster.close)
        cls.url = cluster.url
        _, models = api.get(cls.url, "/v1/models")
        cls.model = json.loads(models)["data"][0]["id"]
        begun.add(cls)

    def test_chats(self):
        body = {"model": self.model, "temperature": 0, "tools": CHAT_TOOLS,
                "messages": [{"role": "user", "content": QUESTION}]}
        called = self.check(chat.ChatCompletion,
                            self.post("/v1/chat/completions", body))
        self.assertTrue(called.choices[0].message.tool_calls)
        for fields in ({}, {"stream_options": {"include_usage": True}}):
            for event in self.events("/v1/chat/completions",
                                     {**body, **fields}):
                self.check(chat.ChatCompletionChunk, event)

    def test_responses(self):
        tools = [{"type": "function", **FUNCTION},
                 {"type": "custom", "name": "seat", "description": "A seat."},
                 {"type": "web_search"}]
        body = {"model": self.model, "input": QUESTION, "temperature": 0,
                "tools": tools}
        for fields in (
                {}, {"reasoning": {"effort": "low", "summary": "auto"}},
                {"max_output_tokens": 2}):
            with self.subTest(fields=fields):
                whole = self.check(responses.Response, self.post(
                    "/v1/responses", {**body, **fields}))
                kinds = set()
                for event in self.events("/v1/responses", {**body, **fields}):
                    kinds.add(event["type"])
                    self.check(member(responses.ResponseStreamEvent, event),
                               event)
                self.assertIn("response.created", kinds)
                self.assertEqual(
                    self.check(responses.Response,
                               self.get(f"/v1/responses/{whole.id}")).output,
                    whole.output)
        again = self.post("/v1/responses", {
            **body, "previous_response_id": whole.id})
        self.check(responses.Response, again)
        items = self.get(f"/v1/responses/{again['id']}/input_items?order=asc")
        self.assertGreater(
            len(self.check(responses.ResponseItemList, items).data), 1)
        self.check(responses.InputTokenCountResponse,
                   self.post("/v1/responses/input_tokens", body))

    def test_messages(self):
        tools = [{"name": "get_weather", "description": "Weather of a city.",
                  "input_schema": PARAMETERS}]
        body = {"model": "claude", "max_tokens": 64, "temperature": 0,
                "messages": [{"role": "user", "content": QUESTION}],
                "tools": tools, "thinking": {"type": "adaptive"}}
        for fields in ({}, {"thinking": {"type": "adaptive",
                                         "display": "omitted"}},
                       {"max_tokens": 2}, {"tools": []}):
            with self.subTest(fields=fields):
                self.check(anthropic.Message,
                           self.post("/v1/messages", {**body, **fields}))
                for event in self.events("/v1/messages", {**body, **fields}):
                    self.check(member(anthropic.RawMessageStreamEvent, event),
                               event)
        self.check(anthropic.MessageTokensCount,
                   self.post("/v1/messages/count_tokens", body))
        models = self.get("/v1/models", VERSION)
        for one in models["data"]:
            self.check(anthropic.ModelInfo, one)
        status, _, raw = api.request(self.url, "POST", "/v1/messages", {})
        self.assertEqual(status, 400)
        self.check(anthropic.ErrorResponse, json.loads(raw))

    def test_ollama(self):
        body = {"model": self.model, "options": {"temperature": 0},
                "messages": [{"role": "user", "content": QUESTION}],
                "tools": CHAT_TOOLS, "think": True}
        for fields in ({}, {"logprobs": True, "top_logprobs": 2}):
            self.check(ollama.ChatResponse, self.post(
                "/api/chat", {**body, **fields, "stream": False}))
            for line in self.events("/api/chat", {**body, **fields}):
                self.check(ollama.ChatResponse, line)
        self.check(ollama.ListResponse, self.get("/api/tags"))
        self.check(ollama.ProcessResponse, self.get("/api/ps"))
        self.check(ollama.ShowResponse,
                   self.post("/api/show", {"model": self.model}))
        for line in self.events("/api/pull", {"model": self.model}):
            self.check(ollama.ProgressResponse, line)


class Recorder(http.server.BaseHTTPRequestHandler):
    """Passes requests on to `url`; `bodies` has those of POST by their path."""

    url, bodies = None, None

    def do_GET(self):
        self.pass_on(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append((self.path, json.loads(body)))
        self.pass_on(body)

    def pass_on(self, body):
        headers = {name: value for name, value in self.headers.items()
                   if name.lower() not in ("host", "connection",
                                           "content-length")}
        status, given, raw = api.request(self.url, self.command, self.path,
                                         body, headers)
        self.send_response(status)
        self.send_header("Content-Type", given.get("Content-Type", ""))
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


class OwnRequestsTest(unittest.TestCase):
    """What `sluice chat` sends in each dialect is what the packages would send."""

    PARAMETERS = {
        "/v1/chat/completions":
            completion_create_params.CompletionCreateParamsStreaming,
        "/v1/responses":
            response_create_params.ResponseCreateParamsStreaming,
        "/v1/messages": message_create_params.MessageCreateParamsStreaming}
    # This version of the package has no field for them; Anthropic's server has.
    MORE = {"/v1/messages": {"temperature", "top_p"}}

    def check(self, path, body):
        if path == "/api/chat":
            ChatRequest.model_validate_json(json.dumps(body), strict=True)
            self.assertLessEqual(set(body), set(ChatRequest.model_fields))
            return
        kind = self.PARAMETERS[path]
        self.assertLessEqual(set(body), set(kind.__annotations__) |
                             self.MORE.get(path, set()))
        valid = pydantic.TypeAdapter(kind).validate_python(body)
        for part in valid.values():  # lazily checked
            if not isinstance(part, (str, dict)) and hasattr(part, "__iter__"):
                self.assertTrue(list(part))

    def test_each_dialect(self):
        cluster = ClientCluster()
        self.addCleanup(cluster.close)
        recorder = type("Here", (Recorder,), {"url": cluster.url,
                                              "bodies": []})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), recorder)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        for dialect in ("chat", "responses", "messages", "ollama"):
            with self.subTest(dialect=dialect):
                recorder.bodies.clear()
                subprocess.run(
                    [SLUICE, "chat", "--url",
                     f"http://127.0.0.1:{server.server_port}", "--dialect",
                     dialect, "--system", "Be brief.", "--max-tokens", "8",
                     "--temperature", "0", "--top-p", "0.9"],
                    input="Hi.\n\nAnd?\n", text=True, timeout=120, check=True,
                    capture_output=True)
                self.assertEqual(len(recorder.bodies), 2)
                for path, body in recorder.bodies:
                    self.check(path, body)


if __name__ == "__main__":
    harness.main()
