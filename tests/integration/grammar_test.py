"""Answers that keep to a grammar, of live clusters: whatever a model would say,
at a high temperature and for every seed, the answer fits."""

import json
import unittest

import api
import harness

PROMPT = "Once upon a time, there was a little girl named Lily. She"
# Sanitizers look at memory: two answers of a kind; every answer in release.
SEEDS = range(2 if harness.SANITIZED and not harness.LONG else 8)
SCHEMA = {
    "type": "object", "additionalProperties": False,
    "required": ["name", "age"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
# White space alone may be 34 tokens at each of nine places.
MAX_TOKENS = 450
FORMAT = {"type": "json_schema",
          "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
TOOLS = [{"type": "function", "function": {
    "name": name, "description": "Tells of a person.", "parameters": SCHEMA}}
    for name in ("tell_person", "tell_friend")]


class Grammars:
    """The cases of both models."""

    def check_person(self, text):
        person = json.loads(text)
        self.assertEqual(list(person), ["name", "age"], text)
        self.assertTrue(1 <= len(person["name"]) <= 12, text)
        self.assertIsInstance(person["age"], int)
        self.assertTrue(0 <= person["age"] <= 120, text)

    def complete(self, **fields):
        return api.completion(self.url, PROMPT, **{
            "max_tokens": MAX_TOKENS, "temperature": 1.2, **fields})

    def test_every_seed_fits_the_schema(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                choice = api.choice_of(self.complete(
                    seed=seed, response_format=FORMAT))
                self.assertEqual(choice["finish_reason"], "stop")
                self.check_person(choice["text"])

    def test_choices_of_one_request_fit_each(self):
        answer = self.complete(n=4, seed=3, response_format=FORMAT)
        texts = [choice["text"] for choice in answer["choices"]]
        self.assertEqual(len(texts), 4)
        for text in texts:
            self.check_person(text)
        alone = self.complete(seed=3, response_format=FORMAT)
        self.assertEqual(api.choice_of(alone)["text"], texts[0])

    def test_regexes_choices_and_grammars_cover_the_answer(self):
        for fields, pattern in (
                ({"regex": "[0-9]{3}-[0-9]{4}"}, "[0-9]{3}-[0-9]{4}"),
                ({"guided_choice": ["red", "green"]}, "red|green"),
                ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
                ({"grammar": 'root ::= "a" [bc]+ "d"'}, "a[bc]+d"),
                ({"structured_outputs": {"grammar": 'start: "x" /[yz]{2}/'}},
                 "x[yz]{2}")):
            for seed in SEEDS[:3]:
                with self.subTest(fields=fields, seed=seed):
                    choice = api.choice_of(self.complete(seed=seed, **fields))
                    self.assertRegex(choice["text"], f"^(?:{pattern})$")
                    self.assertEqual(choice["finish_reason"], "stop")

    def test_a_whole_answer_ends_whatever_else_is_asked_for(self):
        choice = api.choice_of(self.complete(
            regex="abc", ignore_eos=True, min_tokens=50))
        self.assertEqual(choice["text"], "abc")
        self.assertEqual(choice["finish_reason"], "stop")

    def test_a_cut_answer_ends_by_its_length(self):
        choice = api.choice_of(self.complete(
            response_format=FORMAT, max_tokens=3))
        self.assertEqual(choice["finish_reason"], "length")

    def test_a_stream_says_what_the_whole_answer_says(self):
        fields = {"prompt": PROMPT, "seed": 5, "temperature": 1.2,
                  "max_tokens": MAX_TOKENS, "response_format": FORMAT,
                  "logprobs": 2, "return_token_ids": True}
        whole = api.choice_of(self.complete(**{
            name: fields[name] for name in fields if name != "prompt"}))
        status, events = api.stream(self.url, "/v1/completions",
                                    {**fields, "stream": True})
        self.assertEqual(status, 200)
        choices = [json.loads(event)["choices"][0] for event in events
                   if event != "[DONE]"]
        self.assertEqual("".join(c["text"] for c in choices), whole["text"])
        ids = [id for c in choices for id in c.get("token_ids") or []]
        self.assertEqual(ids, whole["token_ids"])

    def test_usage_counts_every_token_once(self):
        answer = self.complete(response_format=FORMAT, seed=1, logprobs=0,
                               return_token_ids=True)
        choice = api.choice_of(answer)
        self.assertEqual(answer["usage"]["completion_tokens"],
                         len(choice["token_ids"]))
        self.assertEqual(len(choice["logprobs"]["token_logprobs"]),
                         len(choice["token_ids"]))

    def test_bad_schemas_are_refused_by_field_and_keyword(self):
        for schema, words in (({"not": {}}, "`not`"),
                              ({"type": "strin"}, "type"),
                              ({"$ref": "#"}, "$ref"),
                              (False, "schema")):
            with self.subTest(schema=schema):
                status, answer = api.post(
                    self.url, "/v1/completions",
                    {"prompt": "a", "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "x", "schema": schema}}})
                self.assertEqual(status, 400, answer)
                error = answer["error"]
                self.assertEqual(error["param"],
                                 "response_format.json_schema.schema")
                self.assertIn(words, error["message"])
                self.assertLess(len(error["message"]), 2000)


class Stories(Grammars, unittest.TestCase):
    """A tiny model on two stages: the last one samples by the masks."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster(
            harness.golden("stories"), "--stages", 2,
            "--threads", 1)
        cls.addClassCleanup(cls.cluster.close)
        cls.url = cls.cluster.url


class SmolLm2(Grammars, unittest.TestCase):
    """A vocabulary of 49,152 tokens, and chats."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster(
            harness.default_model(), "--stages", 2,
            "--tool-format", "hermes")
        cls.addClassCleanup(cls.cluster.close)
        cls.url = cls.cluster.url

    def chat(self, **fields):
        status, answer = api.post(self.url, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me of Lily."}],
            "max_tokens": MAX_TOKENS, "temperature": 1.2, **fields})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def test_a_chat_fits_the_schema(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                choice = self.chat(seed=seed, response_format=FORMAT)
                self.assertEqual(choice["finish_reason"], "stop")
                self.check_person(choice["message"]["content"])

    def test_any_object_is_one(self):
        for seed in SEEDS[:3]:
            choice = self.chat(seed=seed,
                               response_format={"type": "json_object"})
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(
                    json.loads(choice["message"]["content"]), dict)

    def test_a_required_call_is_made(self):
        named = {"type": "function", "function": {"name": "tell_friend"}}
        for choice, names in (("required", {"tell_person", "tell_friend"}),
                              (named, {"tell_friend"})):
            for seed in SEEDS[:4]:
                with self.subTest(choice=choice, seed=seed):
                    answer = self.chat(tools=TOOLS, tool_choice=choice,
                                       seed=seed, parallel_tool_calls=False)
                    self.assertEqual(answer["finish_reason"], "tool_calls")
                    self.assertIsNone(answer["message"]["content"])
                    (call,) = answer["message"]["tool_calls"]
                    self.assertIn(call["function"]["name"], names)
                    self.check_person(call["function"]["arguments"])


if __name__ == "__main__":
    harness.main()
