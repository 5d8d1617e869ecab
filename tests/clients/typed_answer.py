"""What the tests of typed answers ask for: a person, with members of every
kind. Each text and list has a bound, and no object has members besides: left to
itself, a small model does not end."""

import typing

import pydantic

import harness

QUESTION = ("Lily is six years old and has a dog and a cat. "
            "Tell me of her.")
MESSAGES = [{"role": "user", "content": QUESTION}]
MAX_TOKENS = 600  # more than the longest Person
HOT = 1.2         # a temperature at which the model alone writes no JSON
# Every test asks once per seed and mode.
SEEDS = range(4 if harness.LONG else 2)


class Pet(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: typing.Literal["cat", "dog"]
    name: str = pydantic.Field(min_length=1, max_length=12)


class Person(pydantic.BaseModel):
    """A person with pets."""
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    nickname: str | None = pydantic.Field(default=None, max_length=12)
    pets: list[Pet] = pydantic.Field(min_length=1, max_length=2)
