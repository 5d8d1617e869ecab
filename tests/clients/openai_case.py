"""What the tests of the openai package share: a client of the one cluster."""

import unittest

from client_cluster import MESSAGES, ClientCluster, skip

try:
    import openai
except ImportError:
    skip("needs the openai package (tests/run installs it)")


class OpenAiCase(unittest.TestCase):
    """`cluster`, `client`, its `options`, and `model`; one try per request,
    so that an error is seen as it is."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.options = dict(base_url=cls.cluster.base_url, api_key="none",
                           max_retries=0)
        cls.client = openai.OpenAI(**cls.options)
        cls.model = cls.client.models.list().data[0].id

    def chat(self, client=None, **fields):
        """A chat's answer: greedy and short, unless `fields` say otherwise."""
        return (client or self.client).chat.completions.create(
            **{"model": self.model, "messages": MESSAGES, "temperature": 0,
               "max_tokens": 24, **fields})
