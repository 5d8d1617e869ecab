"""What Open WebUI's server sends to an OpenAI connection, replayed.

Its back end lists the models of the connection, then proxies the chats of
many users: streams with fields of its own beside OpenAI's, and background
tasks (titles, tags, follow-up questions) that do not stream.
"""

import concurrent.futures
import json
import unittest

from client_cluster import ANSWER, ClientCluster
import api
import harness

# As its back end sends them.
HEADERS = {"Authorization": "Bearer sk-none", "Accept": "*/*",
           "Accept-Encoding": "gzip, deflate, br",
           "User-Agent": "Python/3.11 aiohttp/3.11.11",
           "X-OpenWebUI-User-Name": "Ada%20L.",
           "X-OpenWebUI-User-Id": "b7f0", "X-OpenWebUI-User-Role": "user"}
HISTORY = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello! How can I help?"},
    {"role": "user", "content": "Name the capital of France."}]
TITLE = """### Task:
Generate a concise, 3-5 word title summarizing the chat history.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: Name the capital of France.
ASSISTANT: Paris.
</chat_history>"""


class OpenWebUiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def post(self, body):
        return api.request(self.cluster.url, "POST", "/v1/chat/completions",
                           body, HEADERS)

    def test_the_connection_lists_its_models(self):
        status, headers, body = api.request(
            self.cluster.url, "GET", "/v1/models", headers=HEADERS,
            timeout=10)
        self.assertEqual(status, 200)
        self.assertIn("application/json", headers["Content-Type"])
        models = json.loads(body)
        self.assertEqual(models["object"], "list")
        for model in models["data"]:
            self.assertEqual(model["object"], "model")
            self.assertTrue({"id", "owned_by", "created"} <= set(model))

    def test_a_chat_streams_with_its_extra_fields(self):
        status, headers, body = self.post({
            "stream": True, "model": self.cluster.model,
            "messages": HISTORY, "stream_options": {"include_usage": True},
            "temperature": 0, "max_tokens": 24, "top_p": 0.9, "top_k": 40,
            "min_p": 0.0, "seed": 0, "frequency_penalty": 0,
            "presence_penalty": 0, "repeat_penalty": 1.1, "num_ctx": 4096,
            "stop": ["<|im_end|>"], "logit_bias": {},
            "reasoning_effort": "low"})
        self.assertEqual(status, 200, body)
        self.assertIn("text/event-stream", headers["Content-Type"])
        self.assertNotIn("Content-Encoding", headers)
        lines = body.decode().splitlines()
        self.assertEqual(lines[-2], "data: [DONE]")
        chunks = [json.loads(line[6:]) for line in lines
                  if line.startswith("data: {")]
        text = "".join(choice["delta"].get("content") or ""
                       for chunk in chunks for choice in chunk["choices"])
        self.assertIn(ANSWER, text)
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertGreater(chunks[-1]["usage"]["total_tokens"], 0)

    def test_background_tasks_are_answered_beside_a_chat(self):
        task = {"model": self.cluster.model, "stream": False,
                "messages": [{"role": "user", "content": TITLE}],
                "max_completion_tokens": 16}
        chat = {"model": self.cluster.model, "messages": HISTORY,
                "stream": True, "max_tokens": 32}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self.post, [chat, task, task, task]))
        for status, _, body in answers:
            self.assertEqual(status, 200, body)
        for _, _, body in answers[1:]:
            message = json.loads(body)["choices"][0]["message"]
            self.assertTrue(message["content"])

    def test_an_error_has_the_message_that_is_shown(self):
        status, _, body = self.post({"model": "nope", "messages": HISTORY})
        self.assertEqual(status, 404)
        self.assertIn("nope", json.loads(body)["error"]["message"])

    def test_a_long_chat_past_the_context_says_so(self):
        long = [{"role": "user", "content": "word " * 12000}]
        status, _, body = self.post({"model": self.cluster.model,
                                     "messages": long, "stream": True})
        self.assertEqual(status, 400)
        self.assertIn("token", json.loads(body)["error"]["message"])


if __name__ == "__main__":
    harness.main()
