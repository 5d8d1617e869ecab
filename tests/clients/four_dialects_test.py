"""One request in four dialects: the same tokens, whole and streamed.

The same conversation over /v1/chat/completions, /v1/responses, /v1/messages and
/api/chat has the same prompt, the same answer and as many tokens, at temperature
0 and drawn by a seed; so have the same tools.
"""

import http.client
import json
import tempfile
import unittest
import urllib.parse

from client_cluster import ClientCluster
import api
import harness
import tool_model

QUESTION = "Name three colours and what they are good for."
SYSTEM = "You are terse."
FIRST = ("Hello.", "Hello! What do you want to know?")
MAX_TOKENS = 60
WEATHER = {"name": "get_weather", "description": "Weather of a city.",
           "parameters": {"type": "object", "required": ["city"],
                          "properties": {"city": {"type": "string"},
                                         "days": {"type": "integer"}}}}


def turns(question):
    return [{"role": "user", "content": FIRST[0]},
            {"role": "assistant", "content": FIRST[1]},
            {"role": "user", "content": question}]


def post_lines(url, path, body):
    """The lines of a streamed answer."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port,
                                            timeout=300)
    try:
        connection.request("POST", path, json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise AssertionError(f"{path}: {answer.status}: {text}")
    return text.splitlines()


def events_of(lines):
    return [json.loads(line[6:]) for line in lines
            if line.startswith("data: ") and line != "data: [DONE]"]


class Answer:
    """What of an answer is the same in every dialect. `calls`: names with
    arguments."""

    def __init__(self, text, reasoning="", calls=(), prompt=None, tokens=None):
        self.text, self.reasoning, self.calls = text, reasoning, list(calls)
        self.prompt, self.tokens = prompt, tokens

    def __eq__(self, other):
        return vars(self) == vars(other)

    def __repr__(self):
        return repr(vars(self))


class Dialect:
    """How a conversation is asked in a dialect, and what its answer is."""
    path = None
    streaming = {"stream": True}

    def body(self, model, question, temperature, seed, tools):
        raise NotImplementedError

    def whole(self, answer):
        raise NotImplementedError

    def streamed(self, lines):
        raise NotImplementedError

    def ask(self, url, model, question, temperature=0, seed=None, tools=()):
        """The answer, whole and of a stream."""
        body = self.body(model, question, temperature, seed, tools)
        status, answer = api.post(url, self.path, {**body, "stream": False})
        if status != 200:
            raise AssertionError(f"{self.path}: {status}: {answer}")
        lines = post_lines(url, self.path, {**body, **self.streaming})
        return self.whole(answer), self.streamed(lines)


class Chat(Dialect):
    path = "/v1/chat/completions"
    streaming = {"stream": True, "stream_options": {"include_usage": True}}

    def body(self, model, question, temperature, seed, tools):
        body = {"model": model, "temperature": temperature,
                "max_tokens": MAX_TOKENS,
                "messages": [{"role": "system", "content": SYSTEM},
                             *turns(question)]}
        if seed is not None:
            body["seed"] = seed
        if tools:
            body["tools"] = [{"type": "function", "function": tool}
                             for tool in tools]
        return body

    def whole(self, answer):
        message, usage = answer["choices"][0]["message"], answer["usage"]
        return Answer(message["content"] or "",
                      message.get("reasoning_content") or "",
                      [(call["function"]["name"],
                        json.loads(call["function"]["arguments"]))
                       for call in message.get("tool_calls") or ()],
                      usage["prompt_tokens"], usage["completion_tokens"])

    def streamed(self, lines):
        text, reasoning, calls, usage = "", "", {}, None
        for event in events_of(lines):
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                delta = choice["delta"]
                text += delta.get("content") or ""
                reasoning += delta.get("reasoning_content") or ""
                for piece in delta.get("tool_calls") or ():
                    call = calls.setdefault(piece["index"], ["", ""])
                    call[0] += piece["function"].get("name") or ""
                    call[1] += piece["function"].get("arguments") or ""
        return Answer(text, reasoning, [(name, json.loads(arguments))
                                        for name, arguments in calls.values()],
                      usage["prompt_tokens"], usage["completion_tokens"])


class Responses(Dialect):
    path = "/v1/responses"

    def body(self, model, question, temperature, seed, tools):
        body = {"model": model, "temperature": temperature,
                "max_output_tokens": MAX_TOKENS, "instructions": SYSTEM,
                "input": turns(question)}
        if seed is not None:
            body["seed"] = seed
        if tools:
            body["tools"] = [{"type": "function", "strict": False, **tool}
                             for tool in tools]
        return body

    def whole(self, answer):
        text, reasoning, calls = "", "", []
        for item in answer["output"]:
            if item["type"] == "function_call":
                calls.append((item["name"], json.loads(item["arguments"])))
            for part in item.get("content") or ():
                if part["type"] == "output_text":
                    text += part["text"]
                elif part["type"] == "reasoning_text":
                    reasoning += part["text"]
        usage = answer["usage"]
        return Answer(text, reasoning, calls, usage["input_tokens"],
                      usage["output_tokens"])

    def streamed(self, lines):
        text, reasoning, names, arguments, usage = "", "", {}, {}, None
        for event in events_of(lines):
            kind = event["type"].removeprefix("response.")
            if kind == "output_text.delta":
                text += event["delta"]
            elif kind == "reasoning_text.delta":
                reasoning += event["delta"]
            elif kind == "function_call_arguments.delta":
                index = event["output_index"]
                arguments[index] = arguments.get(index, "") + event["delta"]
            elif kind == "output_item.added":
                names[event["output_index"]] = event["item"].get("name")
            elif kind in ("completed", "incomplete"):
                usage = event["response"]["usage"]
        return Answer(text, reasoning,
                      [(names[index], json.loads(one))
                       for index, one in arguments.items()],
                      usage["input_tokens"], usage["output_tokens"])


class Messages(Dialect):
    path = "/v1/messages"

    def body(self, model, question, temperature, seed, tools):
        body = {"model": model, "temperature": temperature,
                "max_tokens": MAX_TOKENS, "system": SYSTEM,
                "thinking": {"type": "adaptive"},
                "messages": turns(question)}
        if seed is not None:
            body["seed"] = seed
        if tools:
            body["tools"] = [
                {"name": tool["name"], "description": tool["description"],
                 "input_schema": tool["parameters"]} for tool in tools]
        return body

    @staticmethod
    def prompt(usage):
        return usage["input_tokens"] + (
            usage.get("cache_read_input_tokens") or 0)

    def whole(self, answer):
        kinds = {"text": "", "thinking": ""}
        calls = []
        for block in answer["content"]:
            if block["type"] == "tool_use":
                calls.append((block["name"], block["input"]))
            else:
                kinds[block["type"]] += block[block["type"]]
        return Answer(kinds["text"], kinds["thinking"], calls,
                      self.prompt(answer["usage"]),
                      answer["usage"]["output_tokens"])

    def streamed(self, lines):
        kinds = {"text": "", "thinking": ""}
        names, inputs, usage = {}, {}, {}
        for event in events_of(lines):
            if event["type"] == "message_start":
                usage = event["message"]["usage"]
            elif event["type"] == "message_delta":
                usage = {**usage, **event["usage"]}
            elif event["type"] == "content_block_start":
                names[event["index"]] = event["content_block"].get("name")
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                kind = delta["type"].removesuffix("_delta")
                if kind == "input_json":
                    inputs[event["index"]] = (inputs.get(event["index"], "") +
                                              delta["partial_json"])
                elif kind in kinds:
                    kinds[kind] += delta[kind]
        return Answer(kinds["text"], kinds["thinking"],
                      [(names[index], json.loads(one))
                       for index, one in inputs.items()],
                      self.prompt(usage), usage["output_tokens"])


class Ollama(Dialect):
    path = "/api/chat"

    def body(self, model, question, temperature, seed, tools):
        options = {"temperature": temperature, "num_predict": MAX_TOKENS}
        if seed is not None:
            options["seed"] = seed
        body = {"model": model, "options": options,
                "messages": [{"role": "system", "content": SYSTEM},
                             *turns(question)]}
        if tools:
            body["tools"] = [{"type": "function", "function": tool}
                             for tool in tools]
        return body

    def whole(self, answer):
        return self.joined([answer])

    def streamed(self, lines):
        return self.joined([json.loads(line) for line in lines])

    @staticmethod
    def joined(parts):
        messages = [part["message"] for part in parts]
        return Answer(
            "".join(one.get("content") or "" for one in messages),
            "".join(one.get("thinking") or "" for one in messages),
            [(call["function"]["name"], call["function"]["arguments"])
             for one in messages for call in one.get("tool_calls") or ()],
            parts[-1]["prompt_eval_count"], parts[-1]["eval_count"])


DIALECTS = (Chat(), Responses(), Messages(), Ollama())


class FourDialectsTest(unittest.TestCase):
    def check(self, url, model, **fields):
        """The one answer of all dialects."""
        wanted = None
        for dialect in DIALECTS:
            with self.subTest(path=dialect.path, **fields):
                whole, streamed = dialect.ask(url, model, QUESTION, **fields)
                self.assertEqual(streamed, whole)
                wanted = wanted or whole
                self.assertEqual(whole, wanted)
        return wanted

    def test_a_conversation_has_the_same_answer(self):
        cluster = ClientCluster()
        self.addCleanup(cluster.close)
        answer = self.check(cluster.url, cluster.model)
        self.assertGreater(answer.tokens, 8)
        for seed in (1, 2):
            self.check(cluster.url, cluster.model, temperature=1.1, seed=seed)

    def test_tools_have_the_same_calls_and_reasoning(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        self.addCleanup(folder.cleanup)
        with harness.Cluster(tool_model.make(folder.name),
                             *tool_model.FLAGS) as cluster:
            _, models = api.get(cluster.url, "/v1/models")
            model = json.loads(models)["data"][0]["id"]
            answer = self.check(cluster.url, model, tools=(WEATHER,))
        self.assertEqual(answer.calls, [tool_model.CALL])
        self.assertEqual(answer.reasoning, tool_model.REASONING)


if __name__ == "__main__":
    harness.main()
