"""instructor, unmodified, against a live cluster: typed answers, no retries."""

import unittest

from client_cluster import ClientCluster, skip
import harness

try:
    import instructor
    import openai
    import pydantic
    from instructor.core import IncompleteOutputException
    from typed_answer import HOT, MAX_TOKENS, MESSAGES, SEEDS, Person, Pet
except ImportError:
    skip("needs the instructor package in build/venv-structured (tests/run "
         "installs it)")

Mode = instructor.Mode


class AnyObject(pydantic.BaseModel):
    """Every JSON object, and nothing else."""
    model_config = pydantic.ConfigDict(extra="allow")


class InstructorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ClientCluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.openai = openai.OpenAI(base_url=cls.cluster.base_url,
                                   api_key="none", max_retries=0)

    def client(self, mode):
        return instructor.from_openai(self.openai, mode=mode)

    def options(self, **fields):
        return {"model": self.cluster.model, "messages": MESSAGES, "seed": 1,
                "max_tokens": MAX_TOKENS, "temperature": HOT,
                "max_retries": 0, "response_model": Person, **fields}

    def test_every_seed_gives_a_model_of_data(self):
        for mode in (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA):
            for seed in SEEDS:
                with self.subTest(mode=mode, seed=seed):
                    person = self.client(mode).create(
                        **self.options(seed=seed))
                    self.assertIsInstance(person, Person)
                    self.assertIsInstance(person.pets[0], Pet)

    def test_a_stream_of_parts_ends_with_a_model_of_data(self):
        for mode in (Mode.TOOLS, Mode.JSON_SCHEMA):
            with self.subTest(mode=mode):
                parts = list(self.client(mode).create_partial(
                    **self.options()))
                self.assertGreater(len(parts), 3)
                Person.model_validate(parts[-1].model_dump())

    # In these two modes the schema is in the prompt alone, which a model of
    # this size does not follow: what the server can promise is an object.
    def test_json_mode_gives_an_object(self):
        given = 0
        for seed in range(4):
            try:
                answer = self.client(Mode.JSON).create(
                    **self.options(seed=seed, response_model=AnyObject))
            except IncompleteOutputException:
                continue  # max_tokens cut it: nothing bounds a free object
            self.assertIsInstance(answer, AnyObject)
            given += 1
        self.assertGreater(given, 0)

    # The schema is sent besides, as vLLM's users do.
    def test_markdown_mode_takes_what_structured_outputs_hold_to(self):
        schema = Person.model_json_schema()
        for seed in SEEDS:
            with self.subTest(seed=seed):
                self.assertIsInstance(
                    self.client(Mode.MD_JSON).create(**self.options(
                        seed=seed,
                        extra_body={"structured_outputs": {"json": schema}})),
                    Person)

    def test_a_cut_answer_is_an_error_of_its_length(self):
        for mode in (Mode.TOOLS, Mode.JSON_SCHEMA):
            with self.subTest(mode=mode), \
                    self.assertRaises(IncompleteOutputException):
                self.client(mode).create(**self.options(max_tokens=4))


if __name__ == "__main__":
    harness.main()
