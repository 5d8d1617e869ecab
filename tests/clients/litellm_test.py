"""litellm, unmodified, against a live cluster."""

import asyncio
import os
import unittest

from client_cluster import ANSWER, MESSAGES, ClientCluster, skip
import harness

# Its price list comes from the package instead of the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
try:
    import litellm
except ImportError:
    skip("needs the litellm package in build/venv-litellm (tests/run "
         "installs it)")

PROVIDERS = ("openai", "hosted_vllm")


class LiteLlmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def fields(self, provider="openai", **fields):
        return {"model": f"{provider}/{self.cluster.model}",
                "api_base": self.cluster.base_url, "api_key": "none",
                "messages": MESSAGES, "temperature": 0, "max_tokens": 24,
                "num_retries": 0, "max_retries": 0, **fields}

    def chat(self, provider="openai", **fields):
        return litellm.completion(**self.fields(provider, **fields))

    def test_a_chat_is_answered_through_both_providers(self):
        texts = set()
        for provider in PROVIDERS:
            answer = self.chat(provider)
            texts.add(answer.choices[0].message.content)
            self.assertEqual(
                answer.usage.total_tokens,
                answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(len(texts), 1)
        self.assertIn(ANSWER, texts.pop())

    def test_a_stream_says_the_same_with_usage(self):
        whole = self.chat()
        for provider in PROVIDERS:
            chunks = list(self.chat(provider, stream=True,
                                    stream_options={"include_usage": True}))
            rebuilt = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
            self.assertEqual(rebuilt.choices[0].message.content,
                             whole.choices[0].message.content)
            self.assertEqual(rebuilt.choices[0].finish_reason,
                             whole.choices[0].finish_reason)
            usages = [chunk.usage for chunk in chunks
                      if getattr(chunk, "usage", None)]
            self.assertEqual(usages[-1].completion_tokens,
                             whole.usage.completion_tokens)

    def test_text_completions_work(self):
        answer = litellm.text_completion(
            model=f"text-completion-openai/{self.cluster.model}",
            api_base=self.cluster.base_url, api_key="none",
            prompt="The capital of France is", max_tokens=12, temperature=0)
        self.assertIn(ANSWER, answer.choices[0].text)

    def test_async_streams_run_at_once(self):
        async def one():
            text = ""
            stream = await litellm.acompletion(**self.fields(stream=True))
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            return text

        async def run():
            return await asyncio.gather(*[one() for _ in range(4)])
        self.assertEqual(len(set(asyncio.run(run()))), 1)

    def test_sampling_fields_pass_through(self):
        answer = self.chat(n=2, seed=5, top_p=0.9, temperature=1.1,
                           presence_penalty=0.5, frequency_penalty=0.5,
                           stop=["\n\n"])
        self.assertEqual(len(answer.choices), 2)
        answer = self.chat(logprobs=True, top_logprobs=2)
        self.assertEqual(
            len(answer.choices[0].logprobs.content[0].top_logprobs), 2)

    def test_errors_are_mapped_to_its_classes(self):
        with self.assertRaises(litellm.BadRequestError):
            self.chat(temperature=-1)
        with self.assertRaises(litellm.NotFoundError):
            litellm.completion(**{**self.fields(), "model": "openai/nope"})
        with self.assertRaises(litellm.ContextWindowExceededError):
            self.chat(messages=[{"role": "user", "content": "a b " * 9000}])


if __name__ == "__main__":
    harness.main()
