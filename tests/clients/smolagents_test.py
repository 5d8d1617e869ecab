"""smolagents, unmodified, against a live cluster: a step of its agents and an
answer by a schema."""

import json
import unittest

from client_cluster import ClientCluster, skip
import harness

try:
    import smolagents
    from typed_answer import HOT, MAX_TOKENS, QUESTION, SEEDS, Person
except ImportError:
    skip("needs the smolagents package in build/venv-structured (tests/run "
         "installs it)")


@smolagents.tool
def note_age(name: str, age: int) -> str:
    """Notes a person's age.

    Args:
        name: The person's name.
        age: The person's age in years.
    """
    return f"{name} is {age}"


class SmolagentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def model(self, **fields):
        return smolagents.OpenAIModel(
            model_id=self.cluster.model, api_base=self.cluster.base_url,
            api_key="none", client_kwargs={"max_retries": 0},
            **{"max_tokens": MAX_TOKENS, "temperature": HOT, **fields})

    @staticmethod
    def question():
        return [smolagents.ChatMessage(
            role="user", content=[{"type": "text", "text": QUESTION}])]

    def test_a_schema_is_kept_to_with_every_seed(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                answer = self.model(seed=seed).generate(
                    self.question(), response_format={
                        "type": "json_schema", "json_schema": {
                            "name": "person", "strict": True,
                            "schema": Person.model_json_schema()}})
                Person.model_validate_json(answer.content)

    def test_a_required_tool_is_called(self):
        answer = self.model(seed=1).generate(
            self.question(), tools_to_call_from=[note_age])
        self.assertTrue(answer.tool_calls)
        for call in answer.tool_calls:
            self.assertEqual(call.function.name, "note_age")
            arguments = json.loads(call.function.arguments)
            self.assertEqual({name: type(value)
                              for name, value in arguments.items()},
                             {"name": str, "age": int})

    def whole_answers(self, kind, **options):
        """What the model answered in the first step of agents of several
        seeds, less what max_tokens cut: nothing bounds the agents' texts. What
        an agent makes of the answer is a matter of the model."""
        answers = []
        for seed in SEEDS:
            agent = kind(tools=[note_age], max_steps=1,
                         model=self.model(seed=seed, temperature=0.3,
                                          max_tokens=200),
                         verbosity_level=smolagents.LogLevel.OFF, **options)
            step = next(step for step in agent.run(QUESTION, stream=True)
                        if isinstance(step, smolagents.ActionStep))
            answers.append(step.model_output_message)
        whole = [answer for answer in answers
                 if answer.raw.choices[0].finish_reason != "length"]
        self.assertTrue(whole, answers)
        return whole

    def test_an_agents_step_calls_its_tools(self):
        for answer in self.whole_answers(smolagents.ToolCallingAgent):
            self.assertTrue(answer.tool_calls)
            for call in answer.tool_calls:
                self.assertIn(call.function.name, ("note_age", "final_answer"))

    def test_a_code_agents_step_is_a_thought_and_code(self):
        for answer in self.whole_answers(
                smolagents.CodeAgent, use_structured_outputs_internally=True):
            self.assertEqual({name: type(value) for name, value
                              in json.loads(answer.content).items()},
                             {"thought": str, "code": str})


if __name__ == "__main__":
    harness.main()
