"""Typed answers of the openai package and of LangChain, unmodified: what their
models of data describe is what comes back, whatever the model would say."""

import enum
import json
import unittest

from client_cluster import skip
import harness

try:
    import langchain_openai
    import openai
    import pydantic
except ImportError:
    skip("needs openai and langchain-openai (tests/run installs them)")

MESSAGES = [{"role": "user", "content": "Lily is six years old and has a dog "
                                        "and a cat. Tell me of her."}]


class Pet(str, enum.Enum):
    CAT = "cat"
    DOG = "dog"


class Person(pydantic.BaseModel):
    """A person with pets, and nothing else: left to itself, a small model goes
    on with members of its own."""
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    pets: list[Pet] = pydantic.Field(max_length=2)


class StructuredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The default model's template shows no format of calls: the generic one.
        cls.cluster = harness.Cluster(harness.default_model(), "--stages", 2)
        cls.addClassCleanup(cls.cluster.close)
        cls.client = openai.OpenAI(base_url=cls.cluster.url + "/v1",
                                   api_key="none", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    def options(self, **fields):
        return {"model": self.model, "messages": MESSAGES, "seed": 1,
                "max_tokens": 600, **fields}

    def test_parse_gives_a_model_of_data(self):
        for seed in range(4):
            with self.subTest(seed=seed):
                answer = self.client.chat.completions.parse(
                    response_format=Person, temperature=1.2,
                    **self.options(seed=seed))
                self.assertIsInstance(answer.choices[0].message.parsed, Person)
                self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_a_streamed_answer_is_parsed_too(self):
        with self.client.chat.completions.stream(
                response_format=Person, **self.options()) as stream:
            for _ in stream:
                pass
            answer = stream.get_final_completion()
        self.assertIsInstance(answer.choices[0].message.parsed, Person)

    def test_a_cut_answer_is_an_error_of_its_length(self):
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(
                response_format=Person, **self.options(max_tokens=4))

    def test_parsed_tools_have_the_arguments_types(self):
        tool = openai.pydantic_function_tool(Person)
        message = self.client.chat.completions.parse(
            tools=[tool], tool_choice="required",
            **self.options()).choices[0].message
        self.assertIsNone(message.content)
        for call in message.tool_calls:
            self.assertIsInstance(call.function.parsed_arguments, Person)

    def test_a_json_object_is_one(self):
        answer = self.client.chat.completions.create(
            response_format={"type": "json_object"}, **self.options())
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(
                json.loads(answer.choices[0].message.content), dict)

    def test_langchains_methods_give_a_model_of_data(self):
        chat = langchain_openai.ChatOpenAI(
            base_url=self.cluster.url + "/v1", api_key="none",
            model=self.model, max_tokens=600, seed=1)
        for method in ("json_schema", "function_calling"):
            with self.subTest(method=method):
                person = chat.with_structured_output(
                    Person, method=method).invoke("Tell me of Lily, six.")
                self.assertIsInstance(person, Person)

    def test_a_schema_that_cannot_be_held_to_names_its_keyword(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(
                response_format={"type": "json_schema", "json_schema": {
                    "name": "x", "schema": {"not": {"type": "string"}}}},
                **self.options())
        self.assertEqual(caught.exception.param,
                         "response_format.json_schema.schema")
        self.assertIn("`not`", caught.exception.message)


if __name__ == "__main__":
    harness.main()
