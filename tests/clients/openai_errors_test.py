"""The openai package, unmodified: errors, timeouts, cancelled requests."""

import asyncio

from client_cluster import MESSAGES
from openai_case import OpenAiCase, openai
import harness

LONG_STORY = dict(temperature=0, max_tokens=4000,
                  extra_body={"ignore_eos": True})


class OpenAiErrorsTest(OpenAiCase):
    def refused(self, **fields):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(**fields)
        error = caught.exception
        self.assertEqual(error.type, "invalid_request_error")
        return error

    def test_an_unknown_model_is_not_found_by_name(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="nope")
        self.assertIn("nope", caught.exception.message)
        self.assertEqual(caught.exception.code, "model_not_found")

    def test_a_value_out_of_range_names_its_field(self):
        for name, value in (("top_p", 7), ("temperature", -1), ("n", 0),
                            ("n", 100000), ("presence_penalty", 9),
                            ("frequency_penalty", -9), ("max_tokens", -2)):
            with self.subTest(field=name, value=value):
                self.assertEqual(self.refused(**{name: value}).param, name)

    def test_too_long_a_prompt_says_so_by_its_code(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model=self.model,
                                           prompt=[1] * 20000, max_tokens=1)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_what_is_not_built_is_refused_by_name(self):
        tool = {"type": "custom", "custom": {"name": "weather"}}
        self.assertEqual(self.refused(tools=[tool]).param, "tools")
        error = self.refused(response_format={"type": "structural_tag"})
        self.assertEqual(error.param, "response_format")
        image = {"type": "image_url", "image_url": {"url": "http://a/b.png"}}
        error = self.refused(messages=[{"role": "user", "content": [image]}])
        self.assertIn("content[0].type", error.message)

    def test_other_endpoints_are_refused_by_name(self):
        calls = {
            "embeddings": lambda: self.client.embeddings.create(
                model=self.model, input="a"),
            "moderations": lambda: self.client.moderations.create(input="a")}
        for name, call in calls.items():
            with self.subTest(endpoint=name):
                with self.assertRaises(openai.APIStatusError) as caught:
                    call()
                self.assertIn(caught.exception.status_code, (400, 404, 501))
                self.assertIn(name, caught.exception.message)

    def test_a_request_id_comes_with_answers_and_errors(self):
        answer = self.chat(extra_headers={"X-Request-Id": "mine-77"})
        self.assertEqual(answer._request_id, "mine-77")
        self.assertTrue(self.chat()._request_id)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="nope",
                      extra_headers={"X-Request-Id": "mine-78"})
        self.assertEqual(caught.exception.request_id, "mine-78")

    def test_a_timeout_is_raised_and_its_request_ended(self):
        hasty = openai.OpenAI(**{**self.options, "timeout": 0.5})
        with self.assertRaises(openai.APITimeoutError):
            self.chat(client=hasty, **LONG_STORY)
        self.cluster.wait_until_idle()

    def test_a_closed_stream_ends_its_request(self):
        stream = self.chat(stream=True, **LONG_STORY)
        for number, _ in enumerate(stream):
            if number == 3:
                break
        stream.close()
        self.cluster.wait_until_idle()

    def test_a_cancelled_task_ends_its_request(self):
        async def run():
            async with openai.AsyncOpenAI(**self.options) as client:
                stream = await client.chat.completions.create(
                    model=self.model, messages=MESSAGES, stream=True,
                    **LONG_STORY)
                begun = asyncio.Event()

                async def read():
                    async for _ in stream:
                        begun.set()
                task = asyncio.create_task(read())
                await begun.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
        asyncio.run(run())
        self.cluster.wait_until_idle()

    def test_a_server_that_is_not_there_is_a_connection_error(self):
        nobody = openai.OpenAI(**{**self.options,
                                  "base_url": "http://127.0.0.1:9/v1"})
        with self.assertRaises(openai.APIConnectionError):
            self.chat(client=nobody)


if __name__ == "__main__":
    harness.main()
