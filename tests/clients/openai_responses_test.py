"""The openai package, unmodified, over /v1/responses: whole, streamed, async,
typed answers, calls and the way back, refusals."""

import asyncio
import json
import tempfile
import typing
import unittest

from client_cluster import ANSWER, MESSAGES, skip
import harness
import tool_model
from openai_case import OpenAiCase

try:
    import openai
    import pydantic
    from openai.types.responses import Response, ResponseStreamEvent
except ImportError:
    skip("needs the openai package (tests/run installs it)")

QUESTION = MESSAGES[0]["content"]
# Of the SDK's own union: an event that it has not, or a field that is missing, is
# an error here, though the SDK itself lets it pass.
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)
WEATHER = {"type": "function", "name": "get_weather", "strict": False,
           "description": "Weather of a city.",
           "parameters": {"type": "object", "required": ["city"],
                          "properties": {"city": {"type": "string"},
                                         "days": {"type": "integer"}}}}
PICTURE = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
           "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


class City(pydantic.BaseModel):
    name: str
    size: typing.Literal["small", "large"]


class ResponsesCase(OpenAiCase):
    def respond(self, **fields):
        """A response: greedy and short, unless `fields` say otherwise."""
        return self.client.responses.create(
            **{"model": self.model, "input": QUESTION, "temperature": 0,
               "max_output_tokens": 24, **fields})

    def events(self, **fields):
        """The events of a stream, each as the SDK's types have it."""
        events = [event for event in self.respond(stream=True, **fields)
                  if event.type != "keepalive"]  # the SDK's types have none
        for event in events:
            EVENT.validate_json(event.to_json())
        numbers = [event.sequence_number for event in events]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[0], 0)
        self.assertEqual([event.type for event in events[:2]],
                         ["response.created", "response.in_progress"])
        for event in events[:2]:
            self.assertEqual(event.response.status, "in_progress")
            self.assertEqual(event.response.output, [])
        self.check_items(events)
        return events

    def check_items(self, events):
        """Each item is added, then done, and the final response has it."""
        final, open_items, done = events[-1].response, {}, []
        for event in events[2:-1]:
            index = getattr(event, "output_index", None)
            if event.type == "response.output_item.added":
                self.assertEqual(index, len(open_items))
                open_items[index] = event.item
            elif event.type == "response.output_item.done":
                self.assertEqual(event.item.id, open_items[index].id)
                done.append(event.item)
            elif index is not None:
                self.assertEqual(event.item_id, open_items[index].id)
        self.assertEqual([item.to_dict() for item in done],
                         [item.to_dict() for item in final.output])
        self.assertEqual({event.response.id for event in events
                          if hasattr(event, "response")}, {final.id})

    def refusal(self, **fields):
        with self.assertRaises(openai.APIStatusError) as caught:
            self.respond(**fields)
        return caught.exception


class ResponsesTest(ResponsesCase):
    def test_a_response_says_what_a_chat_says(self):
        response = self.respond()
        Response.model_validate_json(response.to_json())
        chat = self.chat()
        self.assertIn(ANSWER, response.output_text)
        self.assertEqual(response.output_text, chat.choices[0].message.content)
        self.assertEqual(response.object, "response")
        self.assertEqual(response.model, self.model)
        self.assertIs(response.store, False)
        self.assertEqual(response.usage.input_tokens, chat.usage.prompt_tokens)
        self.assertEqual(response.usage.output_tokens,
                         chat.usage.completion_tokens)
        self.assertEqual(
            response.usage.total_tokens,
            response.usage.input_tokens + response.usage.output_tokens)
        self.assertTrue(response.id.startswith("resp_"))
        self.assertTrue(response.output[0].id.startswith("msg_"))

    def test_a_stream_gives_the_same_in_pieces(self):
        whole = self.respond()
        events = self.events()
        text = "".join(event.delta for event in events
                       if event.type == "response.output_text.delta")
        done = [event.text for event in events
                if event.type == "response.output_text.done"]
        self.assertEqual(text, whole.output_text)
        self.assertEqual(done, [text])
        final = events[-1].response
        self.assertEqual(final.output_text, text)
        self.assertEqual(final.status, whole.status)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        self.assertGreater(len(events), 8)

    def test_text_comes_in_the_order_of_events(self):
        events = self.events(max_output_tokens=200)
        kinds = [event.type.removeprefix("response.") for event in events]
        short = [kind for at, kind in enumerate(kinds)
                 if kind != "output_text.delta" or kinds[at - 1] != kind]
        self.assertEqual(short, [
            "created", "in_progress", "output_item.added",
            "content_part.added", "output_text.delta", "output_text.done",
            "content_part.done", "output_item.done", "completed"])

    def test_the_stream_helper_puts_a_response_together(self):
        with self.client.responses.stream(
                model=self.model, input=QUESTION, temperature=0,
                max_output_tokens=200) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_response()
        self.assertIn("response.output_text.delta", kinds)
        self.assertEqual(final.output_text,
                         self.respond(max_output_tokens=200).output_text)

    def test_async_calls_and_streams_say_the_same(self):
        async def run():
            async with openai.AsyncOpenAI(**self.options) as client:
                fields = dict(model=self.model, input=QUESTION, temperature=0,
                              max_output_tokens=24)
                whole = await client.responses.create(**fields)
                text = ""
                async for event in await client.responses.create(
                        stream=True, **fields):
                    if event.type == "response.output_text.delta":
                        text += event.delta
                return whole.output_text, text
        whole, text = asyncio.run(run())
        self.assertEqual(whole, text)

    def test_an_answer_that_is_cut_is_incomplete(self):
        response = self.respond(max_output_tokens=16,
                                input="Count from 1 to 1000.")
        self.assertEqual(response.status, "incomplete")
        self.assertEqual(response.incomplete_details.reason,
                         "max_output_tokens")
        events = self.events(max_output_tokens=16,
                             input="Count from 1 to 1000.")
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertEqual(events[-1].response.output_text, response.output_text)

    def test_parsed_text_is_the_models(self):
        response = self.client.responses.parse(
            model=self.model, input="Paris as JSON.", temperature=0,
            max_output_tokens=64, text_format=City)
        self.assertIsInstance(response.output_parsed, City)
        with self.client.responses.stream(
                model=self.model, input="Paris as JSON.", temperature=0,
                max_output_tokens=64, text_format=City) as stream:
            list(stream)
            final = stream.get_final_response()
        self.assertEqual(final.output_parsed, response.output_parsed)

    def test_items_of_an_answer_are_taken_back(self):
        first = self.respond()
        history = [{"role": "user", "content": QUESTION}, *first.output,
                   {"role": "user", "content": "And of Spain?"}]
        second = self.respond(input=history)
        chat = self.chat(messages=[
            *MESSAGES, {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And of Spain?"}])
        self.assertEqual(second.output_text, chat.choices[0].message.content)
        self.assertEqual(second.usage.input_tokens, chat.usage.prompt_tokens)

    def test_instructions_are_a_system_message(self):
        text = self.respond(instructions="You are terse.").output_text
        chat = self.chat(messages=[
            {"role": "system", "content": "You are terse."}, *MESSAGES])
        self.assertEqual(text, chat.choices[0].message.content)

    def test_tokens_of_an_input_are_counted(self):
        counted = self.client.responses.input_tokens.count(
            model=self.model, input=QUESTION)
        self.assertEqual(counted.input_tokens,
                         self.respond().usage.input_tokens)

    def test_a_required_function_is_called(self):
        response = self.respond(tools=[WEATHER], tool_choice="required",
                                max_output_tokens=200)
        calls = [item for item in response.output
                 if item.type == "function_call"]
        self.assertTrue(calls, response.output)
        for call in calls:
            self.assertEqual(call.name, "get_weather")
            self.assertIsInstance(json.loads(call.arguments)["city"], str)
        events = self.events(tools=[WEATHER], tool_choice="required",
                             max_output_tokens=200)
        self.assertEqual(
            [item.arguments for item in events[-1].response.output
             if item.type == "function_call"],
            [call.arguments for call in calls])
        arguments = {}
        for event in events:
            if event.type == "response.function_call_arguments.delta":
                arguments[event.item_id] = (
                    arguments.get(event.item_id, "") + event.delta)
        self.assertEqual(list(arguments.values()),
                         [call.arguments for call in calls])

    def test_a_call_of_a_namespace_has_its_name_apart(self):
        phone = {"type": "namespace", "name": "phone",
                 "description": "Of this telephone.", "tools": [
                     {"type": "function", "name": "hang_up", "strict": False,
                      "description": "Ends a call.", "parameters": {
                          "type": "object", "properties": {
                              "number": {"type": "integer"}}}}]}
        response = self.respond(tools=[phone], tool_choice="required",
                                max_output_tokens=200)
        call = next(item for item in response.output
                    if item.type == "function_call")
        self.assertEqual((call.name, call.namespace), ("hang_up", "phone"))
        again = self.respond(tools=[phone], input=[
            {"role": "user", "content": "Hang up."}, *response.output,
            *({"type": "function_call_output", "call_id": item.call_id,
               "output": "done"} for item in response.output
              if item.type == "function_call")])
        self.assertTrue(again.output)

    def test_a_custom_tool_gets_a_string_of_its_grammar(self):
        for syntax, definition in (
                ("regex", "[A-C][0-9]{3}"),
                ("lark", "start: LETTER DIGITS\nLETTER: /[A-C]/\n"
                         "DIGITS: /[0-9]{3}/")):
            with self.subTest(syntax=syntax):
                tool = {"type": "custom", "name": "seat",
                        "description": "Chooses a seat.",
                        "format": {"type": "grammar", "syntax": syntax,
                                   "definition": definition}}
                fields = dict(tools=[tool], tool_choice="required",
                              max_output_tokens=200)
                response = self.respond(**fields)
                call = response.output[-1]
                self.assertEqual((call.type, call.name),
                                 ("custom_tool_call", "seat"))
                self.assertRegex(call.input, "^[A-C][0-9]{3}$")
                events = self.events(**fields)
                self.assertEqual(
                    [event.input for event in events
                     if event.type == "response.custom_tool_call_input.done"],
                    [item.input for item in response.output
                     if item.type == "custom_tool_call"])

    def test_hosted_tools_are_left_out_unless_they_are_chosen(self):
        plain = self.respond().output_text
        for tool in ({"type": "web_search"},
                     {"type": "image_generation"},
                     {"type": "local_shell"},
                     {"type": "code_interpreter",
                      "container": {"type": "auto"}}):
            with self.subTest(tool=tool["type"]):
                self.assertEqual(self.respond(tools=[tool]).output_text, plain)
        error = self.refusal(tools=[{"type": "web_search"}],
                             tool_choice={"type": "web_search"})
        self.assertEqual(error.status_code, 400)
        self.assertEqual(error.param, "tool_choice")

    def test_a_picture_of_the_history_is_no_error(self):
        response = self.respond(input=[
            {"role": "user", "content": [
                {"type": "input_text", "text": "Look at it."},
                {"type": "input_image", "image_url": PICTURE,
                 "detail": "auto"}]},
            {"type": "function_call", "call_id": "call_1", "name": "view",
             "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": [
                {"type": "input_image", "image_url": PICTURE,
                 "detail": "auto"}]}])
        self.assertTrue(response.output)

    def test_refusals_name_their_field(self):
        for fields, status, code, param in (
                ({"model": "other"}, 404, "model_not_found", "model"),
                ({"previous_response_id": "resp_0"}, 400,
                 "previous_response_not_found", "previous_response_id"),
                ({"input": "word " * 9000}, 400, "context_length_exceeded",
                 "input"),
                ({"temperature": 3}, 400, None, "temperature"),
                ({"max_output_tokens": -1}, 400, None, "max_output_tokens")):
            with self.subTest(fields=str(fields)[:60]):
                error = self.refusal(**fields)
                self.assertEqual((error.status_code, error.param),
                                 (status, param), error.body)
                if code:
                    self.assertEqual(error.code, code)

    def test_a_prompt_that_is_too_long_says_by_how_much(self):
        error = self.refusal(input="word " * 9000)
        self.assertIn("this model's maximum context length is 8192 tokens",
                      str(error))

    def test_a_client_that_leaves_cancels_its_answer(self):
        stream = self.respond(input="Count from 1 to 1000.", stream=True,
                              max_output_tokens=4000)
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        stream.close()
        self.cluster.wait_until_idle()


class ResponsesToolsTest(ResponsesCase):
    """A model that reasons and calls a tool, on a cluster of its own."""

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

    def ask(self, **fields):
        return self.respond(**{"input": "What is the weather in Köln?",
                               "tools": [WEATHER], "max_output_tokens": None,
                               **fields})

    def check(self, output):
        reasoning, message, call = output
        self.assertEqual(reasoning.type, "reasoning")
        self.assertEqual(reasoning.content[0].text, tool_model.REASONING)
        self.assertEqual(message.content[0].text.strip(), tool_model.CONTENT)
        name, arguments = tool_model.CALL
        self.assertEqual((call.type, call.name), ("function_call", name))
        self.assertEqual(json.loads(call.arguments), arguments)

    def test_an_answer_has_reasoning_a_message_and_a_call(self):
        response = self.ask()
        self.assertEqual(response.status, "completed")
        self.check(response.output)
        self.assertEqual(
            response.usage.output_tokens_details.reasoning_tokens, 3)

    def test_a_stream_gives_the_same_items(self):
        events = self.events(input="What is the weather in Köln?",
                             tools=[WEATHER], max_output_tokens=None)
        self.check(events[-1].response.output)
        text = "".join(event.delta for event in events
                       if event.type == "response.reasoning_text.delta")
        self.assertEqual(text, tool_model.REASONING)

    def test_summaries_come_where_they_are_asked_for(self):
        item = self.ask(reasoning={"summary": "auto"}).output[0]
        self.assertEqual("".join(part.text for part in item.summary),
                         tool_model.REASONING)
        self.assertEqual(self.ask().output[0].summary, [])

    def test_an_agent_sends_the_items_and_the_result_back(self):
        first = self.ask().output
        answer = self.ask(input=[
            {"role": "user", "content": "What is the weather in Köln?"},
            *first, {"type": "function_call_output", "output": "sunny",
                     "call_id": first[-1].call_id}])
        self.assertEqual(answer.output_text, tool_model.ANSWER)

    def test_parsed_arguments_are_the_models(self):
        class GetWeather(pydantic.BaseModel):
            city: str
            days: int
        response = self.client.responses.parse(
            model=self.model, input="What is the weather in Köln?",
            temperature=0, tools=[openai.pydantic_function_tool(
                GetWeather, name="get_weather")])
        call = next(item for item in response.output
                    if item.type == "function_call")
        self.assertEqual(call.parsed_arguments,
                         GetWeather(**tool_model.CALL[1]))


if __name__ == "__main__":
    harness.main()
