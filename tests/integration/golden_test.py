"""The golden models over HTTP: logprobs of every position, greedy ids.

Logprobs of all positions are compared with those of the same model in double,
which are the reference's where it tells its own (tests/model/golden_test.cc).
"""

import array
import math
import os
import pathlib
import subprocess
import unittest

import api
import harness

TOLERANCE = 5e-5
REFERENCE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"],
                         "tests/model/reference_logits")


def logits_in_double(folder, prompts, vocab):
    """Rows of logits for each of the prompts' positions, prompt by prompt."""
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in prompts)
    done = subprocess.run([REFERENCE, folder], input=lines.encode(),
                          stdout=subprocess.PIPE, timeout=300, check=True)
    flat = array.array("d", done.stdout)
    ends = [0]
    for ids in prompts:
        ends.append(ends[-1] + len(ids) * vocab)
    return [[flat[at:at + vocab] for at in range(begin, end, vocab)]
            for begin, end in zip(ends, ends[1:])]


def log_softmax(row):
    top = max(row)
    norm = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - norm for x in row]


class GoldenTest(unittest.TestCase):
    def check_folder(self, name, *options):
        folder = harness.golden(name)
        tensors = harness.read_safetensors(folder / "expected.safetensors")
        count = sum(key.endswith(".ids") for key in tensors)
        prompts = [list(tensors[f"prompt_{i}.ids"][1]) for i in range(count)]
        vocab = tensors["prompt_0.last_logits"][0][-1]
        in_double = logits_in_double(folder, prompts, vocab)
        with harness.Cluster(folder, "--weights", "f32",
                             *options) as cluster:
            for i in range(count):
                with self.subTest(prompt=i):
                    self.check_echo(cluster.url, prompts[i], in_double[i])
                    self.check_greedy(cluster.url, tensors, i)

    def check_echo(self, url, ids, logits):
        rows = [log_softmax(row) for row in logits]
        answer = api.completion(url, ids, max_tokens=0, echo=True, logprobs=5,
                                return_tokens_as_token_ids=True)
        logprobs = api.choice_of(answer)["logprobs"]
        got = logprobs["token_logprobs"]
        self.assertEqual([api.token_id(t) for t in logprobs["tokens"]], ids)
        self.assertIsNone(got[0])
        worst = 0.0
        for t in range(1, len(ids)):
            worst = max(worst, abs(got[t] - rows[t - 1][ids[t]]))
            for token, value in logprobs["top_logprobs"][t].items():
                worst = max(worst, abs(
                    value - rows[t - 1][api.token_id(token)]))
        print(f"{len(ids)} tokens, worst logprob {worst:.1e}")
        self.assertLess(worst, TOLERANCE)

    def check_greedy(self, url, tensors, i):
        answer = api.completion(
            url, list(tensors[f"prompt_{i}.ids"][1]), max_tokens=64,
            temperature=0, ignore_eos=True, return_token_ids=True)
        choice = api.choice_of(answer)
        self.assertEqual(choice["token_ids"],
                         list(tensors[f"prompt_{i}.greedy_ids"][1]))
        self.assertEqual(choice["prompt_token_ids"],
                         list(tensors[f"prompt_{i}.ids"][1]))

    def test_llama3_with_tied_embeddings_gives_the_reference_values(self):
        self.check_folder("llama3-tied", "--stages", "2")

    def test_llama2_in_bf16_shards_gives_the_reference_values(self):
        self.check_folder("llama2-bf16-sharded", "--stages", "3",
                          "--ranks", "2")

    def test_experts_on_two_hosts_give_the_reference_values(self):
        self.check_folder("glm4_moe-air", "--stages", "2",
                          "--expert-hosts", "2")
        self.check_folder("glm4_moe-46", "--ranks", "2",
                          "--expert-hosts", "2", "--expert-replicas", "2")
        self.check_folder("gpt_oss-mxfp4", "--stages", "2",
                          "--expert-hosts", "2")

    def test_stories_are_told_token_by_token_as_the_reference_tells_them(self):
        folder = harness.golden("stories")
        ids, expected = harness.golden_answer("stories")
        self.assertEqual(len(expected), 200)
        with harness.Cluster(folder, "--weights", "f32", "--stages", "3",
                             "--ranks", "3") as cluster:
            answer = api.completion(
                cluster.url, ids, max_tokens=len(expected), temperature=0,
                ignore_eos=True, return_token_ids=True)
        self.assertEqual(api.choice_of(answer)["token_ids"], expected)


if __name__ == "__main__":
    harness.main()
