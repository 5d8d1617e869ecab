"""The chats that the demo model learns from: their bytes, that the two parts
have nothing in common, and that what they teach is true."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import recipe
import make_data
from corpus import near, stories, tools, words

# Of `make_data.py --train 400 --heldout 8`. A change of the grammar changes
# them, and with them what the committed log says.
DIGESTS = {
    "train.jsonl":
        "9b92c9bfeba63ca1f633a71ef41558a9f6c9c26fa48d83b35b0293fc699c1c91",
    "heldout.jsonl":
        "62b1cd57b1359844e052e6f199601d266bbd22e951c7a2bad0879c4a299b3b39",
}
ENDINGS = {"integer": int, "string": str}


def chats_of(task, count, held=False):
    part = make_data.Corpus(seed=7, held=held)
    return [part.chat(task) for _ in range(count)]


def make(folder, hash_seed):
    subprocess.run(
        [sys.executable, "-B", str(recipe.FOLDER / "make_data.py"), "--out",
         folder, "--train", "400", "--heldout", "8"],
        check=True, capture_output=True,
        env=dict(os.environ, PYTHONHASHSEED=hash_seed))
    digests = {}
    for name in DIGESTS:
        with open(os.path.join(folder, name), "rb") as file:
            digests[name] = hashlib.sha256(file.read()).hexdigest()
    return digests


class BytesTest(unittest.TestCase):
    def test_the_committed_seed_gives_the_same_bytes_everywhere(self):
        for hash_seed in ("1", "2"):
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(make(folder, hash_seed), DIGESTS)

    def test_another_seed_gives_other_chats(self):
        one, other = (make_data.Corpus(seed, False).mixed()
                      for seed in (1, 2))
        self.assertNotEqual(one, other)

    def test_a_larger_corpus_begins_with_the_smaller(self):
        few, many = (make_data.Corpus(1, False) for _ in range(2))
        self.assertEqual([few.mixed() for _ in range(50)],
                         [many.mixed() for _ in range(80)][:50])


class PartsTest(unittest.TestCase):
    def pairs(self, held):
        return {tuple(re.findall(r"\d+", chat["messages"][-1]["content"])[:2])
                for chat in chats_of("addition", 600, held)}

    def test_no_sum_is_in_both_parts(self):
        trained, held = self.pairs(False), self.pairs(True)
        self.assertGreater(len(held), 200)
        self.assertFalse(trained & held)

    def test_no_story_is_in_both_parts(self):
        told = [{message["content"] for chat in chats_of("story", 200, held)
                 for message in chat["messages"]
                 if len(message["content"]) > 200}
                for held in (False, True)]
        self.assertEqual([len(part) for part in told], [200, 200])
        self.assertFalse(told[0] & told[1])

    def test_unseen_names_are_never_trained_on(self):
        named = [{tool["function"]["name"] for chat in chats
                  for tool in chat["tools"]}
                 for chats in (chats_of("call", 1500),
                               chats_of("unseen_call", 300, held=True))]
        self.assertGreater(len(named[1]), 100)
        self.assertFalse(named[0] & named[1])

    def test_held_out_keys_are_about_a_tenth(self):
        share = sum(words.held_out("add", a, b) for a in range(100)
                    for b in range(100)) / 10000
        self.assertGreater(share, 0.08)
        self.assertLess(share, 0.12)


class TruthTest(unittest.TestCase):
    def test_sums_and_their_steps_are_right(self):
        for chat in chats_of("addition", 500):
            answer = chat["messages"][-1]
            a, b, total = map(int, re.fullmatch(
                r"(\d+) \+ (\d+) = (\d+)\.", answer["content"]).groups())
            self.assertEqual(a + b, total)
            thought = answer.get("reasoning_content", "")
            for line in re.findall(r"([\d +]+) = (\d+)", thought):
                self.assertEqual(sum(map(int, line[0].split(" + "))),
                                 int(line[1]), thought)

    def test_what_is_copied_stands_in_the_prompt(self):
        for chat in chats_of("repeat", 300):
            asked, answer = (message["content"]
                             for message in chat["messages"][-2:])
            self.assertIn(answer, asked)
        for chat in chats_of("recall", 300):
            told = next(message["content"] for message in chat["messages"]
                        if message["role"] == "user")
            for message in chat["messages"]:
                if message["role"] == "assistant":
                    name, what = message["content"][:-1].split(" is ", 1)
                    self.assertRegex(told, rf"\b{name}(?: is|:| =) {what}\.")

    def test_comparisons_are_right(self):
        for chat in chats_of("comparison", 500):
            answer = chat["messages"][-1]["content"]
            one, relation, other = re.fullmatch(
                r"(\d+) (?:is|and) (larger than|smaller than|\d+)"
                r"(?: (\d+)| are equal)\.", answer).groups()
            if other is None:
                self.assertEqual(one, relation)
            elif relation == "larger than":
                self.assertGreater(int(one), int(other))
            else:
                self.assertLess(int(one), int(other))

    def test_every_answer_about_a_story_was_told(self):
        """The words of each answer that are not of its wording stand in the
        story."""
        rng_chats = chats_of("story_question", 300)
        for chat in rng_chats:
            told = chat["messages"]
            start = 1 if told[0]["role"] == "system" else 0
            story = told[start]["content"].lower()
            for message in told[start + 1::2]:
                self.assertEqual(message["role"], "assistant")
                for word in re.findall(r"\w+", message["content"].lower()):
                    if word not in ("is", "was", "went", "to", "the", "for",
                                    "looking", "met", "got", "it", "one",
                                    "a", "an"):
                        self.assertIn(word, story)

    def test_every_kind_of_question_is_asked(self):
        asked = " ".join(message["content"] for chat in
                         chats_of("story_question", 300)
                         for message in chat["messages"]
                         if message["role"] == "user")
        for wordings, _ in stories.QUESTIONS.values():
            for wording in wordings:
                first = wording.split("{")[0]
                self.assertIn(first, asked)

    def test_calls_fit_the_schemas_in_their_prompts(self):
        for chat in chats_of("call", 400):
            schemas = {tool["function"]["name"]: tool["function"]
                       for tool in chat["tools"]}
            self.assertEqual(len(schemas), len(chat["tools"]))
            for message in chat["messages"]:
                for call in message.get("tool_calls", []):
                    function = call["function"]
                    properties = schemas[function["name"]]["parameters"][
                        "properties"]
                    self.assertEqual(list(function["arguments"]),
                                     list(properties))
                    for key, value in function["arguments"].items():
                        self.assertIs(type(value),
                                      ENDINGS[properties[key]["type"]])

    def test_no_tool_that_is_given_fits_what_is_declined(self):
        purpose = {text: kind for kind, texts in tools.DESCRIPTIONS.items()
                   for text in texts}
        declined = 0
        for chat in chats_of("decline", 300):
            if chat["messages"][-1]["content"] != tools.DECLINE:
                continue
            declined += 1
            asked = chat["messages"][-2]["content"]
            for tool in chat["tools"]:
                kind = purpose[tool["function"]["description"]]
                for wording in tools.ASKS[kind]:
                    pattern = re.sub(r"\\\{\d?\\\}", "(.+)",
                                     re.escape(wording))
                    match = re.fullmatch(pattern, asked)
                    self.assertTrue(
                        match is None or kind == "calculate",
                        f"{kind} can do: {asked}")
        self.assertGreater(declined, 100)

    def test_answers_as_json_have_the_keys_that_were_asked_for(self):
        for chat in chats_of("json", 300):
            asked = chat["messages"][-2]["content"]
            for key, value in json.loads(
                    chat["messages"][-1]["content"]).items():
                self.assertIn(key, asked)
                if isinstance(value, (str, int)) and not isinstance(value,
                                                                    bool):
                    self.assertIn(str(value), asked)


class NearIndexTest(unittest.TestCase):
    STORY = ("One morning, a brave fox named Mira went to the harbor. She was "
             "looking for a red key, because she had lost it the day before. "
             "Then she met Otto, a shy bear. Together they found the key "
             "under the stairs. From that day on they were friends.")

    def test_a_story_with_one_other_word_is_refused(self):
        index = near.NearIndex()
        self.assertTrue(index.add(self.STORY))
        self.assertFalse(index.add(self.STORY.replace("red", "blue")))

    def test_another_story_is_kept(self):
        index = near.NearIndex()
        index.add(self.STORY)
        other = chats_of("story", 1)[0]["messages"][-1]["content"]
        self.assertTrue(index.add(other))

    def test_the_estimate_is_near_the_true_similarity(self):
        first = [f"w{i}" for i in range(300)]
        second = first[:200] + [f"v{i}" for i in range(100)]
        runs = [{tuple(t[i:i + 3]) for i in range(298)}
                for t in (first, second)]
        true = len(runs[0] & runs[1]) / len(runs[0] | runs[1])
        estimate = near.similarity(near.signature(" ".join(first)),
                                   near.signature(" ".join(second)))
        self.assertAlmostEqual(estimate, true, delta=0.2)


if __name__ == "__main__":
    recipe.main()
