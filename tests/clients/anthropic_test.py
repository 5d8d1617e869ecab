"""The anthropic package, unmodified, over /v1/messages: whole, streamed, async,
calls and the way back, counts, refusals and their types."""

import asyncio
import json
import tempfile
import unittest

from client_cluster import ANSWER, MESSAGES, ClientCluster, skip
import api
import harness
import tool_model

try:
    import anthropic
    import pydantic
    from anthropic.types import Message, RawMessageStreamEvent
except ImportError:
    skip("needs the anthropic package (tests/run installs it)")

# Of the SDK's own union: an event that it has not, or a field that is missing, is
# an error here, though the SDK itself lets it pass.
EVENT = pydantic.TypeAdapter(RawMessageStreamEvent)
WEATHER = {"name": "get_weather", "description": "Weather of a city.",
           "input_schema": {"type": "object", "required": ["city"],
                            "properties": {"city": {"type": "string"},
                                           "days": {"type": "integer"}}}}
PICTURE = {"type": "image", "source": {
    "type": "base64", "media_type": "image/png", "data":
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAW"
    "jR9awAAAABJRU5ErkJggg=="}}
# This version of the package has no field for it.
GREEDY = {"temperature": 0}
VERSION = {"anthropic-version": "2023-06-01"}


class AnthropicCase(unittest.TestCase):
    @classmethod
    def connect(cls, url):
        """One try per request, so that an error is seen as it is."""
        cls.options = dict(base_url=url, api_key="none", max_retries=0)
        cls.client = anthropic.Anthropic(**cls.options)

    def ask(self, **fields):
        """An answer: greedy and short, unless `fields` say otherwise."""
        return self.client.messages.create(
            **{"model": self.model, "messages": MESSAGES, "max_tokens": 24,
               "extra_body": GREEDY, **fields})

    def events(self, **fields):
        """The events of a stream, each as the SDK's types have it; checks that
        blocks follow one another."""
        events = list(self.ask(stream=True, **fields))
        for event in events:
            EVENT.validate_json(event.to_json())
        kinds = [event.type for event in events]
        self.assertEqual(kinds[0], "message_start")
        self.assertEqual(kinds[-2:], ["message_delta", "message_stop"])
        start = events[0].message
        self.assertEqual((start.content, start.stop_reason), ([], None))
        at, is_open = -1, False
        for event in events[1:-2]:
            if event.type == "content_block_start":
                self.assertFalse(is_open)
                at, is_open = at + 1, True
            else:
                self.assertTrue(is_open)
                is_open = event.type != "content_block_stop"
            self.assertEqual(event.index, at)
        self.assertFalse(is_open)
        return events

    def refusal(self, **fields):
        """(status, type, message) of the SDK's error."""
        with self.assertRaises(anthropic.APIStatusError) as caught:
            self.ask(**fields)
        body = caught.exception.body
        self.assertEqual(body["type"], "error")
        self.assertTrue(body["request_id"])
        return (caught.exception.status_code, body["error"]["type"],
                body["error"]["message"])


class AnthropicTest(AnthropicCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.model = cls.cluster.model
        cls.connect(cls.cluster.url)

    def chat(self, **fields):
        status, answer = api.post(self.cluster.url, "/v1/chat/completions", {
            "model": self.model, "messages": MESSAGES, "temperature": 0,
            "max_tokens": 24, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def test_a_message_says_what_a_chat_says(self):
        message, chat = self.ask(), self.chat()
        Message.model_validate_json(message.to_json())
        choice = chat["choices"][0]
        self.assertIn(ANSWER, message.content[0].text)
        self.assertEqual([block.text for block in message.content],
                         [choice["message"]["content"]])
        self.assertEqual(message.stop_reason, {
            "stop": "end_turn", "length": "max_tokens"}[
                choice["finish_reason"]])
        self.assertEqual(message.usage.input_tokens +
                         (message.usage.cache_read_input_tokens or 0),
                         chat["usage"]["prompt_tokens"])
        self.assertEqual(message.usage.output_tokens,
                         chat["usage"]["completion_tokens"])
        self.assertEqual((message.type, message.role, message.model),
                         ("message", "assistant", self.model))
        self.assertTrue(message.id.startswith("msg_"))

    def test_a_stream_gives_the_same_in_pieces(self):
        whole = self.ask()
        events = self.events()
        text = "".join(event.delta.text for event in events
                       if event.type == "content_block_delta")
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(events[-2].delta.stop_reason, whole.stop_reason)
        self.assertEqual(events[-2].usage.output_tokens,
                         whole.usage.output_tokens)
        self.assertGreater(len(events), 6)

    def test_the_stream_helper_puts_a_message_together(self):
        with self.client.messages.stream(
                model=self.model, messages=MESSAGES, max_tokens=24,
                extra_body=GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, self.ask().content[0].text)
        self.assertEqual(final.content[0].text, text)

    def test_async_calls_and_streams_say_the_same(self):
        async def run():
            async with anthropic.AsyncAnthropic(**self.options) as client:
                fields = dict(model=self.model, messages=MESSAGES,
                              max_tokens=24, extra_body=GREEDY)
                whole = await client.messages.create(**fields)
                async with client.messages.stream(**fields) as stream:
                    text = "".join([part async for part in stream.text_stream])
                return whole.content[0].text, text
        whole, text = asyncio.run(run())
        self.assertEqual(whole, text)

    def test_an_answer_ends_with_its_reason(self):
        cut = self.ask(max_tokens=4, messages=[
            {"role": "user", "content": "Count from 1 to 1000."}])
        self.assertEqual(cut.stop_reason, "max_tokens")
        self.assertEqual(cut.usage.output_tokens, 4)
        stopped = self.ask(max_tokens=200, stop_sequences=["is"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence),
                         ("stop_sequence", "is"))
        self.assertNotIn("is", stopped.content[0].text)

    def test_more_tokens_than_the_context_are_cut(self):
        # The package refuses as many without a stream or a timeout.
        message = self.ask(max_tokens=128000, timeout=60)
        self.assertEqual(message.stop_reason, "end_turn")
        events = self.events(max_tokens=128000)
        self.assertEqual(events[-2].delta.stop_reason, "end_turn")

    def test_system_is_a_text_or_blocks_and_comes_in_mid_conversation(self):
        chat = self.chat(messages=[
            {"role": "system", "content": "You are terse."}, *MESSAGES])
        wanted = chat["choices"][0]["message"]["content"]
        for system in ("You are terse.",
                       [{"type": "text", "text": "You are terse.",
                         "cache_control": {"type": "ephemeral"}}],
                       [{"type": "text", "text":
                         "x-anthropic-billing-header: cc_version=1.2.3;"},
                        {"type": "text", "text": "You are terse."}]):
            with self.subTest(system=str(system)[:50]):
                self.assertEqual(self.ask(system=system).content[0].text,
                                 wanted)
        middle = self.ask(messages=[
            {"role": "user", "content": "Hello."},
            {"role": "system", "content": "You are terse."}, *MESSAGES])
        self.assertTrue(middle.content)

    def test_the_last_assistant_message_goes_on(self):
        message = self.ask(messages=[
            *MESSAGES, {"role": "assistant", "content": "The capital is"}])
        self.assertIn(ANSWER, message.content[0].text)
        self.assertFalse(message.content[0].text.startswith("The capital"))

    def test_tokens_of_a_conversation_are_counted(self):
        fields = dict(model=self.model, messages=MESSAGES, system="Be brief.",
                      tools=[WEATHER])
        counted = self.client.messages.count_tokens(**fields)
        usage = self.ask(**fields).usage
        self.assertEqual(
            counted.input_tokens,
            usage.input_tokens + (usage.cache_read_input_tokens or 0))

    def test_a_required_tool_is_used(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"},
                       {"type": "any", "disable_parallel_tool_use": True}):
            with self.subTest(choice=choice):
                fields = dict(tools=[WEATHER], tool_choice=choice,
                              max_tokens=200)
                message = self.ask(**fields)
                uses = [block for block in message.content
                        if block.type == "tool_use"]
                self.assertTrue(uses, message.content)
                self.assertEqual(message.stop_reason, "tool_use")
                for use in uses:
                    self.assertEqual(use.name, "get_weather")
                    self.assertIsInstance(use.input["city"], str)
                pieces = {}
                for event in self.events(**fields):
                    if event.type == "content_block_delta" and (
                            event.delta.type == "input_json_delta"):
                        pieces[event.index] = (pieces.get(event.index, "") +
                                               event.delta.partial_json)
                self.assertEqual([json.loads(one) for one in pieces.values()],
                                 [use.input for use in uses])

    def test_no_tool_is_used_of_what_none_may_be(self):
        message = self.ask(tools=[WEATHER], tool_choice={"type": "none"})
        self.assertEqual([block.type for block in message.content], ["text"])

    def test_server_tools_and_deferred_tools_are_left_out(self):
        message = self.ask(tools=[{"type": "web_search_20250305",
                                   "name": "web_search", "max_uses": 8}])
        self.assertEqual(message.content[0].text, self.ask().content[0].text)
        deferred = self.client.messages.count_tokens(
            model=self.model, messages=MESSAGES,
            tools=[{**WEATHER, "defer_loading": True}])
        self.assertEqual(deferred.input_tokens,
                         self.client.messages.count_tokens(
                             model=self.model,
                             messages=MESSAGES).input_tokens)

    def test_pictures_are_no_error(self):
        message = self.ask(messages=[
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather",
                 "input": {"city": "Paris"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1",
                 "content": [PICTURE]},
                {"type": "text", "text": "And this?"}, PICTURE]}],
            tools=[WEATHER])
        self.assertTrue(message.content)

    def test_what_agents_send_besides_is_taken(self):
        plain = self.ask().content[0].text
        message = self.client.beta.messages.create(
            model=self.model, messages=MESSAGES, max_tokens=24, extra_body=GREEDY,
            betas=["claude-code-20250219", "context-management-2025-06-27"],
            thinking={"type": "adaptive", "display": "omitted"},
            context_management={"edits": [{"type": "clear_thinking_20251015",
                                           "keep": "all"}]},
            output_config={"effort": "high"},
            metadata={"user_id": "{\"session_id\":\"1\"}"})
        self.assertEqual(message.content[0].text, plain)

    def test_refusals_have_the_types_of_this_dialect(self):
        for fields, status, kind in (
                ({"messages": []}, 400, "invalid_request_error"),
                ({"extra_body": {"temperature": 9}}, 400, "invalid_request_error"),
                ({"max_tokens": 0}, 400, "invalid_request_error"),
                ({"tools": [WEATHER], "tool_choice": {
                    "type": "tool", "name": "other"}}, 400,
                 "invalid_request_error")):
            with self.subTest(fields=str(fields)[:60]):
                self.assertEqual(self.refusal(**fields)[:2], (status, kind))

    def test_a_prompt_that_is_too_long_says_by_how_much(self):
        status, kind, message = self.refusal(messages=[
            {"role": "user", "content": "word " * 9000}])
        self.assertEqual((status, kind), (400, "invalid_request_error"))
        self.assertRegex(
            message, r"^prompt is too long: \d+ tokens > 8192 maximum")

    def test_errors_of_the_server_have_the_shape_of_the_path(self):
        for path, headers, status, kind in (
                ("/v1/messages/other", {}, 404, "not_found_error"),
                ("/v1/other", VERSION, 404, "not_found_error")):
            with self.subTest(path=path):
                got, _, body = api.request(self.cluster.url, "POST", path, {},
                                           headers)
                answer = json.loads(body)
                self.assertEqual((got, answer["type"], answer["error"]["type"]),
                                 (status, "error", kind))
                self.assertTrue(answer["request_id"])

    def test_models_are_listed_in_this_dialect(self):
        models = self.client.models.list()
        self.assertEqual(models.data[0].type, "model")
        self.assertIn(self.model, [model.id for model in models.data])
        self.assertIs(models.has_more, False)

    def test_a_client_that_leaves_cancels_its_answer(self):
        with self.client.messages.stream(
                model=self.model, max_tokens=4000, messages=[
                    {"role": "user", "content": "Count from 1 to 1000."}],
        ) as stream:
            next(stream.text_stream)
        self.cluster.wait_until_idle()


class AnthropicToolsTest(AnthropicCase):
    """A model that reasons and calls a tool, on a cluster of its own."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = harness.Cluster(tool_model.make(folder.name),
                                      *tool_model.FLAGS)
        cls.addClassCleanup(cls.cluster.close)
        _, models = api.get(cls.cluster.url, "/v1/models")
        cls.model = json.loads(models)["data"][0]["id"]
        cls.connect(cls.cluster.url)

    def ask(self, **fields):
        return super().ask(**{"messages": [
            {"role": "user", "content": "What is the weather in Köln?"}],
            "tools": [WEATHER], "max_tokens": 400, **fields})

    def check(self, content):
        thinking, text, use = content
        self.assertEqual((thinking.type, thinking.thinking),
                         ("thinking", tool_model.REASONING))
        self.assertEqual(text.text.strip(), tool_model.CONTENT)
        self.assertEqual((use.type, use.name, use.input),
                         ("tool_use", *tool_model.CALL))

    def test_an_answer_has_thinking_text_and_a_call(self):
        for thinking in ({"type": "adaptive"},
                         {"type": "enabled", "budget_tokens": 1024}):
            with self.subTest(thinking=thinking):
                message = self.ask(thinking=thinking, max_tokens=1500)
                self.check(message.content)
                self.assertEqual(message.stop_reason, "tool_use")

    def test_a_stream_gives_the_same_blocks(self):
        with self.client.messages.stream(
                model=self.model, max_tokens=400, extra_body=GREEDY,
                tools=[WEATHER], thinking={"type": "adaptive"}, messages=[
                    {"role": "user",
                     "content": "What is the weather in Köln?"}]) as stream:
            list(stream)
            final = stream.get_final_message()
        self.check(final.content)
        events = self.events(thinking={"type": "adaptive"})
        self.assertEqual(
            [event.content_block.type for event in events
             if event.type == "content_block_start"],
            ["thinking", "text", "tool_use"])

    def test_thinking_is_left_out_where_it_is_omitted(self):
        block = self.ask(thinking={"type": "adaptive",
                                   "display": "omitted"}).content[0]
        self.assertEqual((block.type, block.thinking), ("thinking", ""))

    def test_an_agent_sends_the_call_and_its_result_back(self):
        first = self.ask(thinking={"type": "adaptive"})
        history = [{"role": "user", "content": "What is the weather in Köln?"},
                   {"role": "assistant", "content": first.content},
                   {"role": "user", "content": [
                       {"type": "tool_result", "content": "sunny",
                        "tool_use_id": first.content[-1].id}]}]
        answer = self.ask(messages=history)
        texts = [block.text for block in answer.content
                 if block.type == "text"]
        self.assertEqual(texts, [tool_model.ANSWER])
        self.assertEqual(answer.stop_reason, "end_turn")


if __name__ == "__main__":
    harness.main()
