"""SmolLM2 over HTTP against the reference's answers to ten chats."""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest

import api
import harness

sys.path.insert(0, str(harness.ROOT / "tests/text/vocabularies"))

from texts import TEXTS  # noqa: E402

GAP = 0.01  # below it, another rounding may choose the other token
LOGPROB = 1e-3


def expected():
    path = harness.ROOT / "tests/golden/smollm2_chats.json"
    return json.loads(path.read_text())["prompts"]


def chat(url, prompt):
    status, answer = api.post(url, "/v1/chat/completions", {
        "messages": prompt["messages"], "temperature": 0, "max_tokens": 64,
        "logprobs": True, "top_logprobs": 5, "return_token_ids": True,
        "return_tokens_as_token_ids": True})
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    return answer


def tokens(url, text):
    status, answer = api.post(url, "/tokenize", {"prompt": text})
    if status != 200:
        raise AssertionError(f"{status}: {answer}")
    return answer["tokens"]


def essence(answer):
    """What two servers of the same model say alike."""
    choice = api.choice_of(answer)
    return (answer["prompt_token_ids"], choice["token_ids"],
            choice["finish_reason"], choice["logprobs"])


class SmolLm2Test(unittest.TestCase):
    def test_ten_chats_are_answered_as_the_reference_does(self):
        self.run_chats(harness.default_model())

    def test_the_folder_that_transformers_makes_of_it_answers_the_same(self):
        folder = os.environ.get("SLUICE_SMOLLM2_HF")
        if not folder:
            self.skipTest("needs SLUICE_SMOLLM2_HF, a folder made by "
                          "tests/testing/gguf_to_hf.py (tests/run --long "
                          "makes one)")
        self.run_chats(folder)

    def test_the_folder_that_convert_makes_of_it_answers_bit_for_bit(self):
        """Blocks as they are stored: ids, logprobs and tokens are equal."""
        model = harness.default_model()
        texts = [*TEXTS, (harness.ROOT / "README.md").read_text()]
        build = os.environ["SLUICE_BUILD_DIR"]
        told = {}
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "smollm2")
            subprocess.run([os.path.join(build, "services/cli/sluice"),
                            "convert", str(model), out], check=True,
                           stdout=subprocess.DEVNULL)
            for path in (model, out):
                with harness.Cluster(path, "--stages", "2") as cluster:
                    told[path] = [
                        [tokens(cluster.url, text) for text in texts],
                        [essence(chat(cluster.url, prompt))
                         for prompt in expected()[:3]]]
        self.assertGreater(max(map(len, told[out][0])), 2000)
        self.assertEqual(told[out], told[model])

    def run_chats(self, model):
        prompts = expected()
        with harness.Cluster(model, "--weights", "f32", "--stages", "3",
                             "--max-queue-wait", "300") as cluster:
            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(
                    lambda prompt: chat(cluster.url, prompt), prompts))
        for number, (prompt, answer) in enumerate(zip(prompts, answers)):
            with self.subTest(chat=number):
                self.check(number, prompt, answer)

    def check(self, number, prompt, answer):
        self.assertEqual(answer["prompt_token_ids"], prompt["prompt_ids"])
        choice = api.choice_of(answer)
        ids, want = choice["token_ids"], prompt["greedy_ids"]
        unsure = next((i for i, gap in enumerate(prompt["gaps"])
                       if gap <= GAP), len(want))
        parts = next((i for i, pair in enumerate(zip(ids, want))
                      if pair[0] != pair[1]), min(len(ids), len(want)))
        entries = choice["logprobs"]["content"]
        worst = max(abs(entry["logprob"] - logprob) for entry, logprob in
                    zip(entries[:parts], prompt["logprobs"]))
        print(f"chat {number}: {parts} of {len(want)} ids equal, first gap "
              f"of at most {GAP} at {unsure}, logprobs within {worst:.1e}")
        # The end token is not among the ids that are given out.
        sure = min(unsure, len(want) - (choice["finish_reason"] == "stop"))
        self.assertGreaterEqual(parts, sure)
        self.assertLess(worst, LOGPROB)
        for step in range(min(sure, len(entries))):
            got = [api.token_id(top["token"]) for top in
                   entries[step]["top_logprobs"]]
            self.assertEqual(got[0], want[step])


if __name__ == "__main__":
    harness.main()
