"""LangChain's packages of four dialects, unmodified: the same answers, streams,
typed answers, and calls with their results."""

import json
import tempfile
import unittest

from client_cluster import ANSWER, ClientCluster, skip
import api
import harness
import tool_model

try:
    import pydantic
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_ollama import ChatOllama
    from langchain_openai import ChatOpenAI
except ImportError:
    skip("needs LangChain's packages in build/venv-dialects (tests/run "
         "installs them)")

QUESTION = "Name the capital of France."


class City(pydantic.BaseModel):
    """A city."""
    name: str
    people: int


def get_weather(city: str, days: int) -> str:
    """Weather of a city."""
    return f"{city}, {days} days: sunny"


def models(url, name, tokens=24):
    """{package and dialect: its model}"""
    open_ai = {"model": name, "api_key": "none", "base_url": url + "/v1",
               "temperature": 0, "max_tokens": tokens, "max_retries": 0}
    return {
        "openai, chats": ChatOpenAI(**open_ai),
        "openai, responses": ChatOpenAI(**open_ai, use_responses_api=True),
        "anthropic": ChatAnthropic(
            model=name, api_key="none", base_url=url, temperature=0,
            max_tokens=tokens, max_retries=0),
        "ollama": ChatOllama(model=name, base_url=url, temperature=0,
                             num_predict=tokens)}


def text_of(message):
    return message.text if isinstance(message.text, str) else message.text()


class LangChainDialectsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def models(self, tokens=24):
        return models(self.cluster.url, self.cluster.model, tokens)

    def test_each_says_the_same_whole_and_streamed(self):
        texts, counts = set(), set()
        for name, model in self.models().items():
            with self.subTest(name):
                answer = model.invoke(QUESTION)
                texts.add(text_of(answer))
                usage = answer.usage_metadata
                counts.add((usage["input_tokens"], usage["output_tokens"]))
                parts = list(model.stream(QUESTION))
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
                self.assertEqual(text_of(total), text_of(answer))
                self.assertGreater(len(parts), 3)
        self.assertEqual((len(texts), len(counts)), (1, 1), (texts, counts))
        self.assertIn(ANSWER, texts.pop())

    def test_each_gives_an_answer_of_a_type(self):
        for name, model in self.models(100).items():
            with self.subTest(name):
                typed = model.with_structured_output(City)
                self.assertIsInstance(typed.invoke("Paris"), City)


class LangChainDialectsToolsTest(unittest.TestCase):
    """A model that calls a tool, on a cluster of its own."""

    def test_each_calls_and_is_told_the_result(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        self.addCleanup(folder.cleanup)
        with harness.Cluster(tool_model.make(folder.name),
                             *tool_model.FLAGS) as cluster:
            _, listed = api.get(cluster.url, "/v1/models")
            served = json.loads(listed)["data"][0]["id"]
            for name, model in models(cluster.url, served, 400).items():
                with self.subTest(name):
                    self.check(model.bind_tools([get_weather]))

    def check(self, model):
        question = HumanMessage("What is the weather in Köln?")
        answer = model.invoke([question])
        self.assertEqual([(call["name"], call["args"])
                          for call in answer.tool_calls], [tool_model.CALL])
        told = model.invoke([question, answer, ToolMessage(
            "sunny", tool_call_id=answer.tool_calls[0]["id"])])
        self.assertEqual(text_of(told), tool_model.ANSWER)
        total = None
        for part in model.stream([question]):
            total = part if total is None else total + part
        self.assertEqual([(call["name"], call["args"])
                          for call in total.tool_calls], [tool_model.CALL])


if __name__ == "__main__":
    harness.main()
