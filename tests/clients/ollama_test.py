"""The ollama package, unmodified, over /api: chats, prompts, lists, refusals."""

import asyncio
import json
import tempfile
import unittest

from client_cluster import ANSWER, MESSAGES, ClientCluster, skip
import api
import harness
import tool_model

try:
    import ollama
    import pydantic
except ImportError:
    skip("needs the ollama package (tests/run installs it)")

QUESTION = MESSAGES[0]["content"]
GREEDY = {"temperature": 0, "num_predict": 24}


def get_weather(city: str, days: int) -> str:
    """Weather of a city.

    Args:
      city: its name
      days: how many
    """
    return f"{city}, {days} days: sunny"


class OllamaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.model = cls.cluster.model
        cls.client = ollama.Client(host=cls.cluster.url)

    def ask(self, **fields):
        return self.client.chat(**{"model": self.model, "messages": MESSAGES,
                                   "options": GREEDY, **fields})

    def open_ai(self, path, **fields):
        status, answer = api.post(self.cluster.url, path, {
            "model": self.model, "temperature": 0, "max_tokens": 24, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def refusal(self, call, **fields):
        with self.assertRaises(ollama.ResponseError) as caught:
            call(**fields)
        return caught.exception

    def test_a_chat_says_what_openais_says(self):
        answer = self.ask()
        chat = self.open_ai("/v1/chat/completions", messages=MESSAGES)
        choice = chat["choices"][0]
        self.assertIn(ANSWER, answer.message.content)
        self.assertEqual(answer.message.content, choice["message"]["content"])
        self.assertEqual(answer.message.role, "assistant")
        self.assertEqual(answer.done_reason, choice["finish_reason"])
        self.assertIs(answer.done, True)
        self.assertEqual(answer.model, self.model)
        self.assertEqual(answer.prompt_eval_count,
                         chat["usage"]["prompt_tokens"])
        self.assertEqual(answer.eval_count, chat["usage"]["completion_tokens"])
        for duration in (answer.total_duration, answer.prompt_eval_duration,
                         answer.eval_duration):
            self.assertGreater(duration, 0)

    def test_a_stream_gives_the_same_in_pieces(self):
        whole, parts = self.ask(), list(self.ask(stream=True))
        self.assertEqual("".join(part.message.content for part in parts),
                         whole.message.content)
        self.assertEqual([part.done for part in parts],
                         [False] * (len(parts) - 1) + [True])
        self.assertEqual(parts[-1].eval_count, whole.eval_count)
        self.assertEqual(parts[-1].done_reason, whole.done_reason)
        self.assertGreater(len(parts), 3)

    def test_async_calls_and_streams_say_the_same(self):
        async def run():
            client = ollama.AsyncClient(host=self.cluster.url)
            fields = dict(model=self.model, messages=MESSAGES, options=GREEDY)
            whole = await client.chat(**fields)
            text = ""
            async for part in await client.chat(stream=True, **fields):
                text += part.message.content
            return whole.message.content, text
        whole, text = asyncio.run(run())
        self.assertEqual(whole, text)

    def test_a_stream_is_what_comes_without_being_asked_for(self):
        status, headers, body = api.request(
            self.cluster.url, "POST", "/api/chat",
            {"model": self.model, "messages": MESSAGES, "options": GREEDY})
        self.assertEqual(status, 200)
        self.assertIn("application/x-ndjson", headers["Content-Type"])
        lines = [json.loads(line) for line in body.splitlines()]
        self.assertGreater(len(lines), 3)
        self.assertIs(lines[-1]["done"], True)

    def test_a_prompt_is_a_chat_of_one_message_or_raw(self):
        chat = self.ask().message.content
        answer = self.client.generate(model=self.model, prompt=QUESTION,
                                      options=GREEDY)
        self.assertEqual(answer.response, chat)
        parts = list(self.client.generate(model=self.model, prompt=QUESTION,
                                          options=GREEDY, stream=True))
        self.assertEqual("".join(part.response for part in parts), chat)
        raw = self.client.generate(model=self.model, raw=True, options=GREEDY,
                                   prompt="The capital of France is")
        plain = self.open_ai("/v1/completions",
                             prompt="The capital of France is")
        self.assertEqual(raw.response, plain["choices"][0]["text"])
        system = self.client.generate(model=self.model, prompt=QUESTION,
                                      system="You are terse.", options=GREEDY)
        self.assertEqual(system.response, self.ask(messages=[
            {"role": "system", "content": "You are terse."},
            *MESSAGES]).message.content)

    def test_options_are_those_of_the_sampler(self):
        options = {"temperature": 1.2, "top_k": 40, "top_p": 0.9, "seed": 7,
                   "num_predict": 24}
        answer = self.ask(options=options).message.content
        chat = self.open_ai("/v1/chat/completions", messages=MESSAGES,
                            temperature=1.2, top_k=40, top_p=0.9, seed=7)
        self.assertEqual(answer, chat["choices"][0]["message"]["content"])
        cut = self.ask(options={**GREEDY, "num_predict": 3})
        self.assertEqual((cut.eval_count, cut.done_reason), (3, "length"))
        stopped = self.ask(options={"temperature": 0, "stop": ["is"]})
        self.assertNotIn("is", stopped.message.content)

    def test_a_format_is_json_or_a_schema(self):
        class City(pydantic.BaseModel):
            name: str
            people: int
        options = {"temperature": 0, "num_predict": 100}
        answer = self.ask(format=City.model_json_schema(), options=options)
        City.model_validate_json(answer.message.content)
        prompt = self.client.generate(
            model=self.model, prompt="Paris", options=options,
            format=City.model_json_schema())
        City.model_validate_json(prompt.response)

    def test_the_model_is_listed_shown_and_loaded(self):
        tagged = self.model + ":latest"
        listed = [one for one in self.client.list().models
                  if one.model == tagged]
        self.assertEqual(len(listed), 1)
        self.assertTrue(listed[0].digest)
        self.assertIn(tagged, [one.model for one in self.client.ps().models])
        self.assertEqual(self.ask(model=tagged).message.content,
                         self.ask().message.content)
        shown = self.client.show(self.model)
        self.assertIn("completion", shown.capabilities)
        self.assertIn("tools", shown.capabilities)
        self.assertIn(8192, shown.modelinfo.values())
        self.assertTrue(shown.template)
        status, text = api.get(self.cluster.url, "/api/version")
        self.assertEqual(status, 200)
        self.assertRegex(json.loads(text)["version"], r"^\d+\.\d+\.\d+")

    def test_a_served_name_is_pulled_and_no_other(self):
        self.assertEqual(self.client.pull(self.model).status, "success")
        self.assertEqual([part.status for part in
                          self.client.pull(self.model, stream=True)][-1],
                         "success")
        error = self.refusal(self.client.pull, model="other")
        self.assertEqual(error.status_code, 404)
        self.assertIn("other", error.error)

    def test_models_are_not_made_copied_or_deleted(self):
        for call, fields in (
                (self.client.create, {"model": "new", "from_": self.model}),
                (self.client.copy, {"source": self.model,
                                    "destination": "new"}),
                (self.client.delete, {"model": self.model})):
            with self.subTest(call=call.__name__):
                error = self.refusal(call, **fields)
                self.assertEqual(error.status_code, 404)
                self.assertIn(f"/api/{call.__name__}", error.error)

    def test_refusals_are_texts(self):
        error = self.refusal(self.ask, model="other")
        self.assertEqual((error.status_code, error.error),
                         (404, "model 'other' not found"))
        for options, word in (({"temperature": -1}, "temperature"),
                              ({"top_p": 7}, "top_p")):
            with self.subTest(options=options):
                error = self.refusal(self.ask, options=options)
                self.assertEqual(error.status_code, 400)
                self.assertIn(word, error.error)
        status, body = api.post(self.cluster.url, "/api/other", {})
        self.assertEqual(status, 404)
        self.assertIsInstance(body["error"], str)

    def test_a_prompt_that_is_too_long_says_so(self):
        error = self.refusal(self.ask, messages=[
            {"role": "user", "content": "word " * 9000}])
        self.assertEqual(error.status_code, 400)
        self.assertIn("8192 tokens", error.error)

    def test_an_empty_conversation_loads_the_model(self):
        answer = self.client.chat(model=self.model, messages=[])
        self.assertEqual((answer.done, answer.done_reason), (True, "load"))

    def test_a_client_that_leaves_cancels_its_answer(self):
        stream = self.ask(stream=True, options={"num_predict": 4000},
                          messages=[{"role": "user",
                                     "content": "Count from 1 to 1000."}])
        next(stream)
        stream.close()
        self.cluster.wait_until_idle()


class OllamaToolsTest(unittest.TestCase):
    """A model that reasons and calls a tool, on a cluster of its own."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = harness.Cluster(tool_model.make(folder.name),
                                      *tool_model.FLAGS)
        cls.addClassCleanup(cls.cluster.close)
        cls.client = ollama.Client(host=cls.cluster.url)
        cls.model = cls.client.list().models[0].model

    def ask(self, messages=(), **fields):
        return self.client.chat(
            model=self.model, options={"temperature": 0}, tools=[get_weather],
            messages=[{"role": "user",
                       "content": "What is the weather in Köln?"}, *messages],
            **fields)

    def check(self, messages):
        self.assertEqual("".join(one.thinking or "" for one in messages),
                         tool_model.REASONING)
        self.assertEqual("".join(one.content or "" for one in messages).strip(),
                         tool_model.CONTENT)
        calls = [call.function for one in messages
                 for call in one.tool_calls or []]
        self.assertEqual([(call.name, call.arguments) for call in calls],
                         [tool_model.CALL])

    def test_an_answer_has_thinking_content_and_a_call(self):
        self.check([self.ask(think=True).message])

    def test_a_stream_gives_the_same(self):
        self.check([part.message for part in self.ask(think=True, stream=True)])

    def test_an_agent_sends_the_call_and_its_result_back(self):
        message = self.ask(think=True).message
        answer = self.ask([message, {
            "role": "tool", "tool_name": "get_weather", "content": "sunny"}])
        self.assertEqual(answer.message.content, tool_model.ANSWER)
        self.assertIsNone(answer.message.tool_calls)


if __name__ == "__main__":
    harness.main()
