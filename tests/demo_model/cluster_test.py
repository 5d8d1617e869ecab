"""The demo model over HTTP, against transformers' answers to twenty chats.

SLUICE_DEMO_MODEL may name a folder with weights/ and golden.json, such as
deploy/demo_model/make leaves; by default those in the tree.
"""

import concurrent.futures
import json
import os
import pathlib
import sys
import unittest

import recipe

sys.path.insert(0, str(recipe.ROOT / "tests" / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("SLUICE_DEMO_MODEL") or recipe.FOLDER)
GAP = 0.01  # below it, another rounding may choose the other token
LOGPROB = 1e-3


def chat(url, prompt):
    body = {"messages": prompt["messages"], "temperature": 0,
            "max_tokens": 32, "logprobs": True, "top_logprobs": 20,
            "return_token_ids": True, "return_tokens_as_token_ids": True}
    if prompt["tools"]:
        body["tools"] = prompt["tools"]
    if not prompt["enable_thinking"]:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    status, answer = api.post(url, "/v1/chat/completions", body)
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    return answer


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather in a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}}, "required": ["city"]}}}


def ask(url, text, **fields):
    """The choice of an answer to one message."""
    status, answer = api.post(url, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": text}], "temperature": 0,
        "max_tokens": 100, **fields})
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    return api.choice_of(answer)


class DemoModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prompts = json.loads((FOLDER / "golden.json").read_text())[
            "prompts"]

    def test_twenty_chats_are_answered_as_transformers_does(self):
        with harness.Cluster(FOLDER / "weights", "--weights", "f32",
                             "--stages", "3") as cluster:
            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(
                    lambda prompt: chat(cluster.url, prompt), self.prompts))
        for number, (prompt, answer) in enumerate(zip(self.prompts, answers,
                                                      strict=True)):
            with self.subTest(chat=number, task=prompt["task"]):
                self.check(prompt, answer)

    def check(self, prompt, answer):
        self.assertEqual(answer["prompt_token_ids"], prompt["prompt_ids"])
        choice = api.choice_of(answer)
        ids, want = choice["token_ids"], prompt["greedy_ids"]
        unsure = next((i for i, gap in enumerate(prompt["gaps"])
                       if gap <= GAP), len(want))
        # The end token is not among the ids that are given out.
        sure = min(unsure, len(want) - (choice["finish_reason"] != "length"))
        self.assertEqual(ids[:sure], want[:sure])
        for step, entry in enumerate(choice["logprobs"]["content"][:sure]):
            self.assertAlmostEqual(entry["logprob"], prompt["logprobs"][step],
                                   delta=LOGPROB)
            got = {api.token_id(top["token"]): top["logprob"]
                   for top in entry["top_logprobs"]}
            # The last of the twenty may change places with the next.
            for token, logprob in prompt["top20"][step][:10]:
                self.assertAlmostEqual(got[token], logprob, delta=LOGPROB)

    def test_experts_on_two_hosts_answer_call_and_write_json(self):
        with harness.Cluster(FOLDER / "weights", "--stages", "2",
                             "--expert-hosts", "2",
                             "--expert-replicas", "2") as cluster:
            answer = ask(cluster.url, "What is a stage?")
            call = ask(cluster.url, "What is the weather in Oslo?",
                       tools=[WEATHER])
            written = ask(cluster.url, "Mira is 30 years old. She lives in "
                          "Rome. Answer as JSON with the keys name, age and "
                          "city.")
        print(answer["message"]["content"])
        self.assertIn("layers", answer["message"]["content"])
        self.assertEqual(answer["finish_reason"], "stop")
        function = call["message"]["tool_calls"][0]["function"]
        print(function)
        self.assertEqual(call["finish_reason"], "tool_calls")
        self.assertEqual(function["name"], "get_weather")
        self.assertEqual(json.loads(function["arguments"]), {"city": "Oslo"})
        print(written["message"]["content"])
        self.assertEqual(json.loads(written["message"]["content"]),
                         {"name": "Mira", "age": 30, "city": "Rome"})


if __name__ == "__main__":
    if not (FOLDER / "golden.json").exists():
        print(f"skipped: no trained weights in {FOLDER}")
        sys.exit(harness.SKIPPED)
    harness.main()
