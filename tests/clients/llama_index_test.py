"""LlamaIndex, unmodified, against a live cluster: structured prediction, no
retries."""

import unittest

from client_cluster import ClientCluster, skip
import harness

try:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    from typed_answer import HOT, MAX_TOKENS, QUESTION, SEEDS, Person
except ImportError:
    skip("needs the llama-index packages in build/venv-structured (tests/run "
         "installs them)")

# By a call of a tool that is required, and by response_format.
METHODS = {"tools": {"is_function_calling_model": True},
           "format": {"is_function_calling_model": True,
                      "should_use_structured_outputs": True}}
PROMPT = PromptTemplate("{question}")


def note_age(name: str, age: int) -> str:
    """Notes a person's age."""
    return f"{name} is {age}"


class LlamaIndexTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)

    def llm(self, method, seed=1):
        return OpenAILike(
            model=self.cluster.model, api_base=self.cluster.base_url,
            api_key="none", is_chat_model=True, max_retries=0,
            context_window=8192, max_tokens=MAX_TOKENS, temperature=HOT,
            additional_kwargs={"seed": seed}, **METHODS[method])

    def test_every_seed_gives_a_model_of_data(self):
        for method in METHODS:
            for seed in SEEDS:
                with self.subTest(method=method, seed=seed):
                    person = self.llm(method, seed).structured_predict(
                        Person, PROMPT, question=QUESTION)
                    self.assertIsInstance(person, Person)

    def test_a_structured_llm_chats_in_models_of_data(self):
        for method in METHODS:
            with self.subTest(method=method):
                answer = self.llm(method).as_structured_llm(Person).chat(
                    [ChatMessage(role="user", content=QUESTION)])
                self.assertIsInstance(answer.raw, Person)
                self.assertEqual(
                    Person.model_validate_json(answer.message.content),
                    answer.raw)

    # With tools LlamaIndex leaves a stream's choice to the model.
    def test_a_stream_ends_with_a_model_of_data(self):
        parts = list(self.llm("format").stream_structured_predict(
            Person, PROMPT, question=QUESTION))
        self.assertGreater(len(parts), 3)
        self.assertIsInstance(parts[-1], Person)

    def test_a_required_tool_is_called(self):
        llm = self.llm("tools")
        answer = llm.chat_with_tools(
            [FunctionTool.from_defaults(note_age)], QUESTION,
            tool_required=True)
        calls = llm.get_tool_calls_from_response(answer)
        self.assertTrue(calls)
        for call in calls:
            self.assertEqual(call.tool_name, "note_age")
            self.assertEqual(
                {name: type(value)
                 for name, value in call.tool_kwargs.items()},
                {"name": str, "age": int})


if __name__ == "__main__":
    harness.main()
