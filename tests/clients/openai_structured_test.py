"""Typed answers of the openai package and of LangChain, unmodified: what their
models of data describe is what comes back, whatever the model would say."""

import datetime
import enum
import json
import unittest
import uuid

from client_cluster import skip
import harness

try:
    import langchain_openai
    import openai
    import pydantic
    from typed_answer import HOT, MAX_TOKENS, MESSAGES, SEEDS, Person
except ImportError:
    skip("needs openai and langchain-openai (tests/run installs them)")


class Mood(enum.Enum):
    CALM = "calm"
    WILD = "wild"


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(max_length=20)
    zip_code: str = pydantic.Field(pattern="^[0-9]{5}$")


class Household(pydantic.BaseModel):
    """People within an object, members that may be null, and types that a
    string is read as."""
    people: list[Person] = pydantic.Field(min_length=1, max_length=2)
    address: Address | None
    mood: Mood | None
    since: datetime.date
    key: uuid.UUID
    floor: int | None = pydantic.Field(default=None, ge=-1, le=9)
    shares: tuple[bool, bool]


class Room(pydantic.BaseModel):
    floor: int | None = pydantic.Field(ge=-1, le=9)


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
                "max_tokens": MAX_TOKENS, **fields}

    def test_parse_gives_a_model_of_data(self):
        for kind in (Person, Household):
            for seed in SEEDS:
                with self.subTest(kind=kind, seed=seed):
                    answer = self.client.chat.completions.parse(
                        response_format=kind, temperature=HOT,
                        **self.options(seed=seed))
                    self.assertIsInstance(answer.choices[0].message.parsed,
                                          kind)
                    self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_a_member_that_may_be_null_is_given_or_null(self):
        answer = self.client.chat.completions.parse(
            response_format=Room, temperature=HOT, n=16,
            **self.options(messages=[{
                "role": "user",
                "content": "The floor is unknown, so say null."}]))
        self.assertEqual({type(choice.message.parsed.floor)
                          for choice in answer.choices}, {int, type(None)})

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
            model=self.model, max_tokens=MAX_TOKENS, seed=1, max_retries=0)
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

    def test_tags_within_free_text(self):
        schema = {"type": "object", "properties": {"age": {"type": "integer"}},
                  "required": ["age"], "additionalProperties": False}
        tag = {"type": "tag", "begin": "<person>", "end": "</person>",
               "content": {"type": "json_schema", "json_schema": schema}}
        answer = self.client.chat.completions.create(**self.options(
            response_format={"type": "structural_tag", "format": {
                "type": "triggered_tags", "triggers": ["<person"],
                "tags": [tag], "at_least_one": True,
                "stop_after_first": True}}))
        text = answer.choices[0].message.content
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        inner = text.removeprefix("<person>").removesuffix("</person>")
        self.assertEqual(len(text) - len(inner), 17)
        self.assertIsInstance(json.loads(inner)["age"], int)


if __name__ == "__main__":
    harness.main()
