"""The openai package, unmodified: reasoning, tool calls, and the way back."""

import json
import tempfile
import unittest

from client_cluster import skip
import harness
import tool_model

try:
    import openai
    import pydantic
except ImportError:
    skip("needs the openai package (tests/run installs it)")

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}}}}]
MESSAGES = [{"role": "user", "content": "What is the weather in Köln?"}]
ID = r"^call_[0-9a-f]{16}_0_0$"


class GetWeather(pydantic.BaseModel):
    city: str
    days: int


class OpenAiToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = harness.Cluster(tool_model.make(folder.name),
                                      *tool_model.FLAGS)
        cls.addClassCleanup(cls.cluster.close)
        cls.client = openai.OpenAI(base_url=cls.cluster.url + "/v1",
                                   api_key="none", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": MESSAGES, "temperature": 0,
               "tools": TOOLS, **fields})

    def check_call(self, call):
        name, arguments = tool_model.CALL
        self.assertRegex(call.id, ID)
        self.assertEqual(call.type, "function")
        self.assertEqual(call.function.name, name)
        self.assertEqual(json.loads(call.function.arguments), arguments)

    def test_an_answer_has_reasoning_content_and_a_call(self):
        answer = self.chat()
        choice = answer.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.message.reasoning_content,
                         tool_model.REASONING)
        self.assertEqual(choice.message.reasoning, tool_model.REASONING)
        self.assertEqual(choice.message.content.strip(), tool_model.CONTENT)
        self.assertEqual(len(choice.message.tool_calls), 1)
        self.check_call(choice.message.tool_calls[0])
        details = answer.usage.completion_tokens_details
        self.assertEqual(details.reasoning_tokens, 3)

    def test_a_stream_gives_the_same_in_pieces(self):
        whole = self.chat().choices[0].message
        content, reasoning, calls, finishes, usage = "", "", {}, [], None
        for chunk in self.chat(stream=True,
                               stream_options={"include_usage": True}):
            if not chunk.choices:
                usage = chunk.usage
                continue
            delta = chunk.choices[0].delta
            content += delta.content or ""
            reasoning += getattr(delta, "reasoning_content", None) or ""
            for piece in delta.tool_calls or []:
                if piece.index not in calls:
                    self.assertRegex(piece.id, ID)
                    self.assertEqual(piece.type, "function")
                    calls[piece.index] = [piece.function.name, ""]
                else:
                    self.assertIsNone(piece.id)
                    self.assertIsNone(piece.function.name)
                calls[piece.index][1] += piece.function.arguments
            if chunk.choices[0].finish_reason:
                finishes.append(chunk.choices[0].finish_reason)
        function = whole.tool_calls[0].function
        self.assertEqual(content, whole.content)
        self.assertEqual(reasoning, whole.reasoning_content)
        self.assertEqual(calls, {0: [function.name, function.arguments]})
        self.assertEqual(finishes, ["tool_calls"])
        self.assertEqual(usage.completion_tokens_details.reasoning_tokens, 3)

    def test_the_stream_helper_puts_the_call_together(self):
        with self.client.chat.completions.stream(
                model=self.model, messages=MESSAGES, temperature=0,
                tools=TOOLS) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion().choices[0]
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.assertEqual(final.finish_reason, "tool_calls")
        self.check_call(final.message.tool_calls[0])

    def test_parsed_arguments_are_the_models(self):
        tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
        message = self.client.chat.completions.parse(
            model=self.model, messages=MESSAGES, temperature=0,
            tools=[tool]).choices[0].message
        parsed = message.tool_calls[0].function.parsed_arguments
        self.assertEqual(parsed, GetWeather(**tool_model.CALL[1]))

    def test_an_agent_sends_the_call_and_its_result_back(self):
        message = self.chat().choices[0].message
        history = [*MESSAGES, message.model_dump(exclude_none=True),
                   {"role": "tool", "content": "sunny",
                    "tool_call_id": message.tool_calls[0].id}]
        choice = self.chat(messages=history).choices[0]
        self.assertEqual(choice.message.content, tool_model.ANSWER)
        self.assertIsNone(choice.message.tool_calls)
        self.assertEqual(choice.finish_reason, "stop")

    def test_choices_have_calls_of_their_own(self):
        choices = self.chat(n=2).choices
        ids = {choice.message.tool_calls[0].id for choice in choices}
        self.assertEqual(len(ids), 2)
        self.assertEqual(choices[0].message.tool_calls[0].function,
                         choices[1].message.tool_calls[0].function)

    def test_logprobs_come_for_every_token(self):
        choice = self.chat(logprobs=True,
                           extra_body={"return_token_ids": True}).choices[0]
        self.assertEqual(len(choice.logprobs.content), len(choice.token_ids))

    def test_no_call_is_made_of_what_none_may_be(self):
        choice = self.chat(tool_choice="none").choices[0]
        self.assertIsNone(choice.message.tool_calls)
        self.assertIn("<tool_call>get_weather", choice.message.content)
        self.assertEqual(choice.finish_reason, "stop")

    def test_a_call_that_is_required_is_made(self):
        for choice in ("required", {"type": "function",
                                    "function": {"name": "get_weather"}}):
            with self.subTest(choice=choice):
                answer = self.chat(tool_choice=choice).choices[0]
                self.assertEqual(answer.finish_reason, "tool_calls")
                self.assertIsNone(answer.message.content)
                for call in answer.message.tool_calls:
                    self.assertEqual(call.function.name, "get_weather")
                    GetWeather.model_validate(
                        {"days": 0, **json.loads(call.function.arguments)})

    def test_choices_and_functions_that_cannot_be_are_refused(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(tool_choice={"type": "function",
                                   "function": {"name": "other"}})
        self.assertEqual(caught.exception.param, "tool_choice")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(functions=[TOOLS[0]["function"]])
        self.assertIn("cannot go with tools", str(caught.exception))

    def test_functions_the_older_form_are_answered_in_it(self):
        choice = self.client.chat.completions.create(
            model=self.model, messages=MESSAGES, temperature=0,
            functions=[TOOLS[0]["function"]],
            function_call={"name": TOOLS[0]["function"]["name"]}).choices[0]
        self.assertEqual(choice.finish_reason, "function_call")
        self.assertEqual(choice.message.function_call.name, "get_weather")
        self.assertIsNone(choice.message.tool_calls)
        GetWeather.model_validate(
            {"days": 0, **json.loads(choice.message.function_call.arguments)})


if __name__ == "__main__":
    harness.main()
