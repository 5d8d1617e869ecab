"""The openai package, unmodified, against a live cluster."""

import asyncio
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402

try:
    import openai
except ImportError:
    print("skipped: needs the openai package (tests/run installs it)")
    sys.exit(harness.SKIPPED)

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "Paris"


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster(harness.default_model())
        cls.addClassCleanup(cls.cluster.close)
        options = dict(base_url=cls.cluster.url + "/v1", api_key="none",
                       max_retries=0)
        cls.client = openai.OpenAI(**options)
        cls.options = options
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **fields):
        return self.client.chat.completions.create(
            model=self.model, messages=MESSAGES, temperature=0,
            max_tokens=24, **fields)

    def test_a_chat_is_answered(self):
        answer = self.chat()
        choice = answer.choices[0]
        self.assertIn(ANSWER, choice.message.content)
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(answer.object, "chat.completion")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens,
                         usage.prompt_tokens + usage.completion_tokens)

    def test_a_streamed_chat_says_the_same(self):
        whole = self.chat().choices[0]
        text, finishes, usage = "", [], None
        for chunk in self.chat(stream=True,
                               stream_options={"include_usage": True}):
            self.assertEqual(chunk.object, "chat.completion.chunk")
            if not chunk.choices:
                usage = chunk.usage
                continue
            text += chunk.choices[0].delta.content or ""
            if chunk.choices[0].finish_reason:
                finishes.append(chunk.choices[0].finish_reason)
        self.assertEqual(text, whole.message.content)
        self.assertEqual(finishes, [whole.finish_reason])
        self.assertGreater(usage.completion_tokens, 0)

    def test_logprobs_of_a_chat_come_with_alternatives(self):
        content = self.chat(logprobs=True,
                            top_logprobs=3).choices[0].logprobs.content
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
            self.assertEqual(bytes(entry.bytes).decode(errors="replace"),
                             entry.token)

    def test_a_completion_and_its_stream_say_the_same(self):
        fields = dict(model=self.model, prompt="The capital of France is",
                      max_tokens=12, temperature=0)
        whole = self.client.completions.create(**fields)
        self.assertEqual(whole.object, "text_completion")
        self.assertIn(ANSWER, whole.choices[0].text)
        parts = [chunk.choices[0].text for chunk in
                 self.client.completions.create(stream=True, **fields)]
        self.assertEqual("".join(parts), whole.choices[0].text)
        self.assertGreater(len(parts), 3)

    def test_several_prompts_give_a_choice_each(self):
        answer = self.client.completions.create(
            model=self.model, prompt=["One, two,", "Red, green,"],
            max_tokens=4, temperature=0, logprobs=2)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        for choice in answer.choices:
            self.assertEqual(len(choice.logprobs.tokens),
                             len(choice.logprobs.token_logprobs))
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)

    def test_a_stop_string_ends_the_text_before_it(self):
        answer = self.client.completions.create(
            model=self.model, prompt="1, 2, 3, 4,", max_tokens=30,
            temperature=0, stop=["7"])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertNotIn("7", answer.choices[0].text)
        self.assertIn("6", answer.choices[0].text)

    def test_a_seed_gives_the_same_sample_again(self):
        def sample(seed):
            return self.client.chat.completions.create(
                model=self.model, messages=MESSAGES, temperature=1.5,
                max_tokens=24, seed=seed).choices[0].message.content
        self.assertEqual(sample(5), sample(5))
        self.assertGreater(len({sample(seed) for seed in range(4)}), 1)

    def test_the_async_client_runs_many_at_once(self):
        async def run():
            client = openai.AsyncOpenAI(**self.options)

            async def one():
                text = ""
                stream = await client.chat.completions.create(
                    model=self.model, messages=MESSAGES, temperature=0,
                    max_tokens=24, stream=True)
                async for chunk in stream:
                    text += chunk.choices[0].delta.content or ""
                return text
            return await asyncio.gather(*[one() for _ in range(8)])
        self.assertEqual(set(asyncio.run(run())),
                         {self.chat().choices[0].message.content})

    def test_errors_are_raised_as_their_classes(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nope",
                                                messages=MESSAGES)
        self.assertIn("nope", caught.exception.message)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(top_p=7)
        self.assertEqual(caught.exception.param, "top_p")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model=self.model,
                                           prompt=[1] * 20000, max_tokens=1)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_models_can_be_listed_and_fetched(self):
        self.assertEqual(self.client.models.retrieve(self.model).id,
                         self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nope")


if __name__ == "__main__":
    harness.main()
