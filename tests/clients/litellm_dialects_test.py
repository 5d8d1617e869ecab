"""litellm's bridges, unmodified: its calls of /v1/responses and /v1/messages, its
chats by Anthropic's and Ollama's dialects, and its bridges from one to another."""

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

QUESTION = MESSAGES[0]["content"]


class LiteLlmDialectsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def fields(self, provider, base, **fields):
        return {"model": f"{provider}/{self.cluster.model}", "api_base": base,
                "api_key": "none", "temperature": 0, "num_retries": 0,
                **fields}

    def chats(self):
        """{provider: fields of a chat by its dialect}"""
        short = {"messages": MESSAGES, "max_tokens": 24}
        url, base = self.cluster.url, self.cluster.base_url
        return {"openai": self.fields("openai", base, **short),
                "openai/responses": self.fields("openai/responses", base,
                                                **short),
                "anthropic": self.fields("anthropic", url, **short),
                "ollama_chat": self.fields("ollama_chat", url, **short)}

    def test_a_chat_is_the_same_by_every_dialect(self):
        texts = {}
        for provider, fields in self.chats().items():
            with self.subTest(provider=provider):
                answer = litellm.completion(**fields)
                texts[provider] = answer.choices[0].message.content
                self.assertGreater(answer.usage.completion_tokens, 0)
                text = "".join(
                    chunk.choices[0].delta.content or ""
                    for chunk in litellm.completion(**fields, stream=True)
                    if chunk.choices)
                self.assertEqual(text, texts[provider])
        self.assertEqual(len(set(texts.values())), 1, texts)
        self.assertIn(ANSWER, texts["openai"])

    def test_responses_are_answered_and_streamed(self):
        fields = self.fields("openai", self.cluster.base_url, input=QUESTION,
                             max_output_tokens=24)
        answer = litellm.responses(**fields)
        text = answer.output[0].content[0].text
        self.assertIn(ANSWER, text)
        streamed = "".join(
            event.delta for event in litellm.responses(**fields, stream=True)
            if event.type == "response.output_text.delta")
        self.assertEqual(streamed, text)

    def test_messages_are_answered_natively_and_through_the_bridge(self):
        texts = []
        for provider, base in (("anthropic", self.cluster.url),
                               ("openai", self.cluster.base_url)):
            with self.subTest(provider=provider):
                answer = asyncio.run(litellm.anthropic.messages.acreate(
                    **self.fields(provider, base, messages=MESSAGES,
                                  max_tokens=24)))
                texts.append(answer["content"][0]["text"])
        self.assertEqual(texts[0], texts[1])
        self.assertIn(ANSWER, texts[0])


if __name__ == "__main__":
    harness.main()
