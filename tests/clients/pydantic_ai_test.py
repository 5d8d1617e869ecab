"""pydantic-ai, unmodified, against a live cluster: typed outputs, no retries."""

import asyncio
import unittest

from client_cluster import ClientCluster, skip
import harness

try:
    import openai
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    from pydantic_ai.exceptions import UnexpectedModelBehavior
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from typed_answer import HOT, MAX_TOKENS, QUESTION, SEEDS, Person, Pet
except ImportError:
    skip("needs the pydantic-ai-slim package (tests/run installs it)")

OUTPUTS = (ToolOutput, NativeOutput)


class PydanticAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def run_agent(self, output, use, **fields):
        """What `use` makes of an agent whose answers are an `output`."""
        async def run():
            async with openai.AsyncOpenAI(
                    base_url=self.cluster.base_url, api_key="none",
                    max_retries=0) as client:
                agent = Agent(
                    OpenAIChatModel(self.cluster.model, provider=OpenAIProvider(
                        openai_client=client)),
                    output_type=output, retries=0, model_settings={
                        "temperature": HOT, "max_tokens": MAX_TOKENS,
                        "seed": 1, **fields})
                return await use(agent)
        return asyncio.run(run())

    @staticmethod
    async def ask(agent):
        return (await agent.run(QUESTION)).output

    def test_every_seed_gives_a_model_of_data(self):
        for output in OUTPUTS:
            for seed in SEEDS:
                with self.subTest(output=output, seed=seed):
                    person = self.run_agent(output(Person), self.ask, seed=seed)
                    self.assertIsInstance(person, Person)

    def test_one_of_several_models_of_data_comes(self):
        for output in ([ToolOutput(Person), ToolOutput(Pet)],
                       NativeOutput([Person, Pet])):
            with self.subTest(output=output):
                self.assertIsInstance(self.run_agent(output, self.ask),
                                      (Person, Pet))

    def test_plain_types_come_as_such(self):
        for output in OUTPUTS:
            for kind in (bool, float):
                with self.subTest(output=output, kind=kind):
                    self.assertIsInstance(
                        self.run_agent(output(kind), self.ask), kind)

    def test_a_stream_ends_with_a_model_of_data(self):
        async def stream(agent):
            async with agent.run_stream(QUESTION) as result:
                parts = [part async for part in result.stream_output(
                    debounce_by=None)]
            return parts, await result.get_output()
        for output in OUTPUTS:
            with self.subTest(output=output):
                parts, person = self.run_agent(output(Person), stream)
                self.assertIsInstance(person, Person)
                self.assertEqual(parts[-1], person)

    def test_a_cut_answer_is_an_error(self):
        for output in OUTPUTS:
            with self.subTest(output=output), \
                    self.assertRaises(UnexpectedModelBehavior):
                self.run_agent(output(Person), self.ask, max_tokens=4)


if __name__ == "__main__":
    harness.main()
