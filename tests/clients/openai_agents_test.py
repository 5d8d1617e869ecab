"""openai-agents, unmodified, in its default mode (/v1/responses) and over chats:
agents that call a function, are told its result, and answer; streamed, too."""

import asyncio
import json
import tempfile
import unittest

from client_cluster import skip
import api
import harness
import tool_model

try:
    import agents
    import openai
except ImportError:
    skip("needs the openai-agents package in build/venv-dialects (tests/run "
         "installs it)")

QUESTION = "What is the weather in Köln?"


class OpenAiAgentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        agents.set_tracing_disabled(True)
        folder = tempfile.TemporaryDirectory(prefix="sluice-tools-")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = harness.Cluster(tool_model.make(folder.name),
                                      *tool_model.FLAGS)
        cls.addClassCleanup(cls.cluster.close)
        _, models = api.get(cls.cluster.url, "/v1/models")
        cls.model = json.loads(models)["data"][0]["id"]

    def agent(self, kind, client, asked):
        @agents.function_tool
        def get_weather(city: str, days: int) -> str:
            """Weather of a city."""
            asked.append({"city": city, "days": days})
            return "sunny"
        return agents.Agent(
            name="Weather", tools=[get_weather],
            model=kind(model=self.model, openai_client=client),
            model_settings=agents.ModelSettings(temperature=0))

    def run_agent(self, kind, streamed):
        asked = []

        async def run():
            async with openai.AsyncOpenAI(
                    base_url=self.cluster.url + "/v1", api_key="none",
                    max_retries=0) as client:
                agent = self.agent(kind, client, asked)
                if not streamed:
                    return await agents.Runner.run(agent, QUESTION)
                result = agents.Runner.run_streamed(agent, QUESTION)
                async for _ in result.stream_events():
                    pass
                return result
        answer = asyncio.run(run()).final_output
        self.assertEqual(asked, [tool_model.CALL[1]])
        self.assertEqual(answer, tool_model.ANSWER)

    def test_an_agent_calls_a_function_and_answers(self):
        for kind in (agents.OpenAIResponsesModel,
                     agents.OpenAIChatCompletionsModel):
            for streamed in (False, True):
                with self.subTest(kind=kind.__name__, streamed=streamed):
                    self.run_agent(kind, streamed)


if __name__ == "__main__":
    harness.main()
