"""langchain-openai, unmodified, against a live cluster."""

import asyncio
import json
import tempfile
import unittest

from client_cluster import ANSWER, ClientCluster, skip
import api
import harness
import tool_model

try:
    from langchain_core.messages import (AIMessage, HumanMessage,
                                         SystemMessage, ToolMessage)
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI, OpenAI
except ImportError:
    skip("needs the langchain-openai package (tests/run installs it)")

QUESTION = "Name the capital of France."


class LangChainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def options(self, **fields):
        return {"model": self.cluster.model, "api_key": "none",
                "base_url": self.cluster.base_url, "temperature": 0,
                "max_tokens": 24, "max_retries": 0, **fields}

    def chat(self, **fields):
        return ChatOpenAI(**self.options(**fields))

    def test_a_model_is_invoked(self):
        answer = self.chat().invoke(QUESTION)
        self.assertIn(ANSWER, answer.content)
        usage = answer.usage_metadata
        self.assertEqual(usage["total_tokens"],
                         usage["input_tokens"] + usage["output_tokens"])
        self.assertIn(answer.response_metadata["finish_reason"],
                      ("stop", "length"))

    def test_a_stream_says_the_same_and_ends_with_usage(self):
        whole = self.chat().invoke(QUESTION)
        parts = list(self.chat(stream_usage=True).stream(QUESTION))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.assertEqual(total.content, whole.content)
        self.assertGreater(len(parts), 3)
        self.assertEqual(total.usage_metadata["output_tokens"],
                         whole.usage_metadata["output_tokens"])

    def test_a_chain_of_prompt_model_and_parser_runs(self):
        prompt = ChatPromptTemplate.from_messages(
            [("system", "You answer in one short sentence."),
             ("human", "What is the capital of {country}?")])
        chain = prompt | self.chat() | StrOutputParser()
        self.assertIn(ANSWER, chain.invoke({"country": "France"}))

    def test_a_batch_is_answered_in_order(self):
        model = self.chat(max_tokens=8)
        questions = ["Say one.", QUESTION, "Say three."]
        answers = [a.content for a in model.batch(questions)]
        self.assertEqual(answers,
                         [model.invoke(q).content for q in questions])

    def test_async_calls_and_streams_say_the_same(self):
        async def run():
            model = self.chat()
            whole = await model.ainvoke(QUESTION)
            text = ""
            async for part in model.astream(QUESTION):
                text += part.content
            return whole.content, text
        whole, text = asyncio.run(run())
        self.assertEqual(whole, text)

    def test_a_history_with_tool_messages_is_taken(self):
        call = {"name": "weather", "args": {"city": "Paris"}, "id": "call_1"}
        answer = self.chat().invoke([
            SystemMessage("You are terse."), HumanMessage("Weather?"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("sunny", tool_call_id="call_1"),
            HumanMessage([{"type": "text", "text": QUESTION}])])
        self.assertTrue(answer.content)

    def test_logprobs_and_choices_arrive(self):
        answer = self.chat(logprobs=True, top_logprobs=2).invoke(QUESTION)
        entries = answer.response_metadata["logprobs"]["content"]
        self.assertEqual(len(entries[0]["top_logprobs"]), 2)
        result = self.chat(n=2, temperature=1.3, seed=7).generate(
            [[HumanMessage(QUESTION)]])
        self.assertEqual(len(result.generations[0]), 2)

    def test_a_stop_string_ends_the_text(self):
        text = self.chat().invoke("Count from 1 to 9.", stop=["4"]).content
        self.assertNotIn("4", text)

    def test_plain_completions_work(self):
        model = OpenAI(**self.options())
        text = model.invoke("The capital of France is")
        self.assertIn(ANSWER, text)
        self.assertEqual("".join(model.stream("The capital of France is")),
                         text)

    def test_a_model_without_a_format_of_calls_calls(self):
        def weather(city: str) -> str:
            """Weather of a city."""
            return city
        model = self.chat(max_tokens=200).bind_tools(
            [weather], tool_choice="required", parallel_tool_calls=False)
        calls = model.invoke("What is the weather in Paris?").tool_calls
        self.assertEqual([call["name"] for call in calls], ["weather"])
        self.assertIsInstance(calls[0]["args"]["city"], str)


def get_weather(city: str, days: int) -> str:
    """Weather of a city."""
    return f"{city}, {days} days: sunny"


class LangChainToolsTest(unittest.TestCase):
    """A model that calls a tool, on a cluster of its own."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = harness.Cluster(tool_model.make(folder.name),
                                      *tool_model.FLAGS)
        cls.addClassCleanup(cls.cluster.close)
        _, models = api.get(cls.cluster.url, "/v1/models")
        cls.model = ChatOpenAI(
            model=json.loads(models)["data"][0]["id"], api_key="none",
            base_url=cls.cluster.url + "/v1", temperature=0,
            max_retries=0).bind_tools([get_weather])

    def check_call(self, message):
        name, arguments = tool_model.CALL
        (call,) = message.tool_calls
        self.assertEqual((call["name"], call["args"]), (name, arguments))
        self.assertTrue(call["id"].startswith("call_"))
        self.assertEqual(message.content.strip(), tool_model.CONTENT)

    def test_a_bound_tool_is_called(self):
        message = self.model.invoke(QUESTION)
        self.check_call(message)
        self.assertEqual(message.response_metadata["finish_reason"],
                         "tool_calls")
        details = message.usage_metadata["output_token_details"]
        self.assertEqual(details["reasoning"], 3)

    def test_a_stream_adds_up_to_the_same_call(self):
        parts = list(self.model.stream(QUESTION))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.check_call(total)

    def test_an_agent_loop_ends_with_an_answer(self):
        messages = [HumanMessage(QUESTION)]
        messages.append(self.model.invoke(messages))
        for call in messages[-1].tool_calls:
            messages.append(ToolMessage(get_weather(**call["args"]),
                                        tool_call_id=call["id"]))
        answer = self.model.invoke(messages)
        self.assertEqual(answer.content, tool_model.ANSWER)
        self.assertFalse(answer.tool_calls)


if __name__ == "__main__":
    harness.main()
