"""One hash: 32 mixed requests give byte-identical tokens and logprobs
however the work is cut over real processes.

usage: one_hash.py stories|smollm2 [--rows N] [--weights f32|bf16|auto]

Every pair of settings of any two axes occurs in some row (pairwise covering; the
first preempts with a prefix cache); --rows takes the first N of them (0: it is skipped), but all in the long mode.
With --weights auto the weights stay as they are stored.
Counters of the gateways show that what the rows ask for did happen.
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import time
import unittest

import api
import harness

AXES = {
    "stages": [1, 2, 3],
    "ranks": [1, 2, 3],
    "concurrency": [32, 8, 1],
    "chunk": [16, 64, 0],
    "cache": [True, False],
    "pool": ["small", "large"],
    "threads": [2, 1],
    "isa": ["avx512", "avx2", "portable"],
}
# name -> (golden model or None: the default one, vocabulary, lengths of the four long prompts,
# of long answers, blocks of the pools, how many prompts are longer than an
# attention chunk and how many answers begin before its end and end beyond it)
MODELS = {
    "stories": ("stories", 512, (110, 244, 120, 290), 110,
                {"small": 21, "large": 400}, {"prompts": 1, "answers": 1}),
    "smollm2": (None, 49152, (258, 24, 24, 24), 42,
                {"small": 17, "large": 400}, {"prompts": 1, "answers": 0}),
}
ATTENTION_CHUNK = 256  # positions, of kernels/attention.h
# What must have occurred in some row, by the gateways' counters.
OCCURRED = {
    "steps with several sequences": "sluice_gateway_shared_steps_total",
    "split prefills": "sluice_gateway_split_prefills_total",
    "preemptions": "vllm:num_preemptions_total",
    "tokens of prefix hits": "vllm:prefix_cache_hits_total",
}
IN_FLIGHT = "sluice_gateway_plans_in_flight_max"


def cpu_isas():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    found = ["portable"]
    if " avx2 " in flags and " fma " in flags:
        found.insert(0, "avx2")
        if all(f" {name} " in flags for name in
               ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
            found.insert(0, "avx512")
    return found


def pairwise_rows(axes):
    """Rows that cover every pair of values of two axes, built greedily."""
    names = list(axes)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2)
               for x in axes[a] for y in axes[b]}
    chance = random.Random(3)
    rows = []

    def gain(row):
        return sum(((a, row[a]), (b, row[b])) in missing
                   for a, b in itertools.combinations(names, 2))

    def take(row):
        nonlocal missing
        missing -= {((a, row[a]), (b, row[b]))
                    for a, b in itertools.combinations(names, 2)}
        rows.append(row)

    # Many at once, a pool that runs dry, and prefixes that come back.
    take({name: values[min(1, len(values) - 1)] if name in ("stages", "ranks")
          else values[0] for name, values in axes.items()})
    while missing:
        # A missing pair is set, the rest drawn: the best of many draws.
        first, second = min(missing, key=repr)
        draws = []
        for _ in range(200):
            row = {name: chance.choice(values)
                   for name, values in axes.items()}
            row.update([first, second])
            draws.append(row)
        take(max(draws, key=gain))
    return rows


def make_requests(vocabulary, long_prompts, long_answer):
    """32 requests: greedy and sampled, short and long, some with a common
    beginning, penalties, biases or two choices, one with its prompt's
    logprobs."""
    chance = random.Random(11)

    def ids(count):
        return [chance.randrange(4, vocabulary) for _ in range(count)]

    common = ids(40)
    requests = []
    for i in range(32):
        prompt = ids(3 + i % 11)
        if i % 4 == 1:
            prompt = common + prompt
        if i % 8 == 2:
            prompt = ids(long_prompts[i // 8])
        body = {"prompt": prompt, "max_tokens": 4 + 5 * (i % 7),
                "ignore_eos": i % 3 != 0, "logprobs": i % 4,
                "return_token_ids": True,
                "return_tokens_as_token_ids": True, "temperature": 0}
        if i % 2:
            body.update(temperature=0.7 + 0.1 * (i % 5), seed=1000 + i)
            body.update([("top_k", 20), ("top_p", 0.9),
                         ("min_p", 0.05)][i % 3:i % 3 + 1])
        if 4 <= i < 10:  # Side by side they outgrow a small pool.
            body.update(max_tokens=long_answer, ignore_eos=True)
        if i == 7:
            body.update(echo=True, logprobs=2)
        body.update([("frequency_penalty", 0.6), ("presence_penalty", -0.7),
                     ("repetition_penalty", 1.3), ("n", 2),
                     ("logit_bias", {"7": 3, str(40 + i): -100})][i % 6:][:1])
        requests.append(body)
    return requests


def run_requests(url, requests, concurrency):
    """The bytes that must be the same: ids and logprobs as they were sent."""
    def one(body):
        answer = api.completion(url, body["prompt"], **{
            k: v for k, v in body.items() if k != "prompt"}, timeout=1200)
        return json.dumps([[choice["token_ids"], choice["logprobs"],
                            choice["finish_reason"]]
                           for choice in answer["choices"]], sort_keys=True)
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return "\n".join(pool.map(one, requests)).encode()


def run_row(model, row, pools, requests, weights):
    """(bytes, counters) of one cluster."""
    options = ["--weights", weights, "--stages", row["stages"],
               "--ranks", row["ranks"], "--prefill-chunk", row["chunk"],
               "--kv-blocks", pools[row["pool"]],
               "--threads", row["threads"], "--isa", row["isa"],
               "--max-queue-wait", 1200]  # none is refused for its turn
    if not row["cache"]:
        options.append("--no-prefix-cache")
    with harness.Cluster(model, *options) as cluster:
        # Counters start after the first prompt of `up`.
        before = api.metrics(cluster.url)
        out = run_requests(cluster.url, requests, row["concurrency"])
        after = api.metrics(cluster.url)
    counters = {name: after[name] - before.get(name, 0)
                for name in OCCURRED.values()}
    counters[IN_FLIGHT] = after[IN_FLIGHT]
    return out, counters


def flip_bit(folder, target):
    """A copy of a safetensors model with one bit of one weight changed."""
    shutil.copytree(folder, target, dirs_exist_ok=True)
    path = pathlib.Path(target) / "model.safetensors"
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    size = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:8 + size])
    name = sorted(key for key in header if "layers.2" in key
                  and "down_proj" in key)[0]
    at = 8 + size + header[name]["data_offsets"][0] + 4 * 17
    raw[at + 2] ^= 0x10  # a bit of an F32's mantissa
    path.write_bytes(raw)
    return target


class OneHash:
    def __init__(self, name, weights):
        path, vocabulary, *lengths, self.pools, self.crossed = MODELS[name]
        self.model = harness.golden(path) if path \
            else harness.default_model()
        self.weights = weights
        self.requests = make_requests(vocabulary, *lengths)
        self.totals = dict.fromkeys([*OCCURRED.values(), IN_FLIGHT], 0.0)
        self.first = None
        self.failures = []

    def run(self, rows):
        for number, row in enumerate(rows):
            begin = time.monotonic()
            out, counters = run_row(self.model, row, self.pools,
                                    self.requests, self.weights)
            for name, value in counters.items():
                self.totals[name] = max(value, self.totals[name]) \
                    if name == IN_FLIGHT else self.totals[name] + value
            digest = hashlib.sha256(out).hexdigest()[:16]
            print(f"{number + 1}/{len(rows)} {digest} "
                  f"{time.monotonic() - begin:5.1f} s  {row}", flush=True)
            if self.first is None:
                self.first = out
            elif out != self.first:
                self.tell_difference(row, out)

    def run_until_all_occurred(self, row):
        """What occurs in a row depends on which requests meet: a machine that
        is busy elsewhere has them come one by one."""
        for _ in range(3):
            if all(self.totals[name] > 0 for name in OCCURRED.values()):
                return
            print("once more, for what has not occurred")
            self.run([row])

    def tell_difference(self, row, out):
        lines = [i for i, pair in enumerate(zip(out.split(b"\n"),
                                                self.first.split(b"\n")))
                 if pair[0] != pair[1]]
        self.failures.append(f"{row} differs from the first row in requests "
                             f"{lines}")

    def check_occurred(self):
        for what, name in OCCURRED.items():
            print(f"{what}: {self.totals[name]:.0f}")
            if self.totals[name] <= 0:
                self.failures.append(f"no {what} occurred")
        print(f"most plans in flight: {self.totals[IN_FLIGHT]:.0f}")
        if self.totals[IN_FLIGHT] < 2:
            self.failures.append("never two plans in flight")

    def check_crossed(self):
        """Prompts, and answers that began before it, beyond an attention
        chunk, by what was answered."""
        prompts = [len(body["prompt"]) for body in self.requests]
        ends = [prompt + max(len(choice[0]) for choice in json.loads(answer))
                for prompt, answer in zip(prompts, self.first.split(b"\n"))]
        crossed = {
            "prompts": sum(prompt > ATTENTION_CHUNK for prompt in prompts),
            "answers": sum(prompt < ATTENTION_CHUNK < end
                           for prompt, end in zip(prompts, ends))}
        print(f"went beyond {ATTENTION_CHUNK} positions: {crossed}")
        if crossed != self.crossed:
            self.failures.append(f"{self.crossed} should have")

    def check_changed_bit(self):
        row = {name: values[0] for name, values in AXES.items()}
        row["isa"] = cpu_isas()[0]
        with tempfile.TemporaryDirectory() as folder:
            out, _ = run_row(flip_bit(self.model, folder), row, self.pools,
                             self.requests, self.weights)
        print("one changed bit in one weight: "
              + hashlib.sha256(out).hexdigest()[:16])
        if out == self.first:
            self.failures.append("a changed weight did not change the hash")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--weights", choices=["f32", "bf16", "auto"], default="f32")
    options = parser.parse_args(arguments)
    axes = {**AXES, "isa": cpu_isas()}
    if len(axes["isa"]) < len(AXES["isa"]):
        print(f"this CPU has {axes['isa']} alone")
    if options.model == "smollm2" and not harness.LONG:
        axes["isa"] = axes["isa"][:-1] or axes["isa"]  # portable is slow
    rows = pairwise_rows(axes)
    if not harness.LONG:
        rows = rows[:options.rows]
    if not rows:
        print("skipped: its rows take minutes: SLUICE_LONG=1 (tests/run --long)")
        return harness.SKIPPED
    try:
        test = OneHash(options.model, options.weights)
    except unittest.SkipTest as skip:
        print(f"skipped: {skip}")
        return harness.SKIPPED
    test.run(rows)
    test.run_until_all_occurred(rows[0])
    test.check_occurred()
    test.check_crossed()
    if pathlib.Path(test.model).is_dir():
        test.check_changed_bit()
    print("\n".join(test.failures) or
          f"one hash over {len(rows)} clusters of real processes")
    return 1 if test.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
