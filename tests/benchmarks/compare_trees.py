#!/usr/bin/env python3
"""Two trees of this project, each with its release build, in turns: do 30 chats
of the default model have the same answers, and what does a token cost?

Answers: ids, text, finish and log probabilities at --weights f32, two stages;
the golden chats greedily, others greedily and drawn with seeds. Cost, of
`stories` (tests/golden) on one stage of one thread: the median time between tokens of one
stream, and the gateway's CPU time per token of 64 streams.

  tests/benchmarks/compare_trees.py OLD NEW [--rounds 4]
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import load_client as lc

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPICS = ("the sea", "a red bicycle", "prime numbers", "how bread is made",
          "winter in Oslo", "a letter to a friend", "sorting algorithms",
          "the moon", "why leaves fall", "a recipe for soup", "tea", "maps",
          "rivers of Europe", "the number 42", "a short poem", "music",
          "chess openings", "photosynthesis", "trains", "a robot's diary")
STREAMS = 64


class Cluster:
    def __init__(self, tree, *options):
        self._tree = pathlib.Path(tree).resolve()
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-bench-")
        self._run("up", "--port", "0", "--detach", "--weights", "f32",
                  *options)
        document = json.loads(pathlib.Path(
            self._folder.name, "cluster.json").read_text("utf-8"))
        self.url = document["url"]
        self._gateway = next(one["pid"] for one in document["processes"]
                             if one["role"] == "gateway")
        self.model = json.loads(lc.api.get(self.url, "/v1/models")[1]
                                )["data"][0]["id"]

    def _run(self, command, *options):
        subprocess.run(
            [str(self._tree / "deploy/local" / command), "--run-dir",
             self._folder.name, *map(str, options)], check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ,
                 "SLUICE_BUILD_DIR": str(self._tree / "build/release")})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run("down")
        self._folder.cleanup()

    def gateway_seconds(self):
        fields = pathlib.Path(f"/proc/{self._gateway}/stat").read_text(
            "utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def conversations(found):
    """Every list of messages in the golden chats."""
    if isinstance(found, dict):
        if isinstance(found.get("messages"), list):
            yield found["messages"]
        found = list(found.values())
    if isinstance(found, list):
        for one in found:
            yield from conversations(one)


def answers(tree):
    golden = json.loads((ROOT / "tests/golden/smollm2_chats.json")
                        .read_text("utf-8"))
    chats = list(conversations(golden))[:10] + [
        [{"role": "user", "content": f"Tell me about {topic}."}]
        for topic in TOPICS]
    found = []
    with Cluster(tree, "--stages", 2) as cluster:
        for index, messages in enumerate(chats):
            drawn = index >= 10 and index % 2 == 0
            status, _, raw = lc.api.request(
                cluster.url, "POST", "/v1/chat/completions",
                {"model": cluster.model, "messages": messages,
                 "max_tokens": 64, "temperature": 0.8 if drawn else 0,
                 "seed": index, "logprobs": True, "top_logprobs": 2,
                 "return_token_ids": True})
            if status != 200:
                sys.exit(f"{tree}: {status} {raw[:300]}")
            answer = json.loads(raw)
            found.append((answer["choices"], answer["usage"]["prompt_tokens"]))
    return found


def load(cluster, streams, requests, tokens):
    """Times between tokens, in seconds, sorted."""
    rng = random.Random(1)

    async def slot():
        return [await lc.stream(lc.address_of(cluster.url), {
            "model": cluster.model, "max_tokens": tokens, "temperature": 0,
            "prompt": [rng.randrange(4, 250) for _ in range(32)],
            "ignore_eos": True, "stream": True})
            for _ in range(requests // streams)]

    async def everything():
        return await asyncio.gather(*(slot() for _ in range(streams)))
    done = [one for some in asyncio.run(everything()) for one in some]
    if not all(one.ok for one in done):
        sys.exit(f"{cluster.url}: a stream failed")
    return sorted(gap for one in done for gap in one.gaps)


def cost(tree):
    """(milliseconds between tokens, microseconds of the gateway a token)."""
    with Cluster(tree, "--model", ROOT / "build/golden/stories",
                 "--stages", 1, "--threads", 1) as cluster:
        load(cluster, 1, 2, 200)
        gap = statistics.median(load(cluster, 1, 6, 400))
        load(cluster, STREAMS, STREAMS, 100)
        before = cluster.gateway_seconds()
        load(cluster, STREAMS, 4 * STREAMS, 200)
        spent = cluster.gateway_seconds() - before
    return gap * 1e3, spent / (4 * STREAMS * 200) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs=2, metavar="TREE")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    old, new = (answers(tree) for tree in options.trees)
    same = sum(a == b for a, b in zip(old, new))
    print(f"equal answers: {same} of {len(new)}", flush=True)
    found = {tree: [] for tree in options.trees}
    for _ in range(options.rounds):
        for tree in options.trees:
            found[tree].append(cost(tree))
    for tree, rows in found.items():
        gap, spent = (statistics.median(column) for column in zip(*rows))
        print(f"{tree}: {gap:.3f} ms between tokens, {spent:.1f} us of the "
              "gateway's CPU a token")
    return 0 if same == len(new) else 1


if __name__ == "__main__":
    sys.exit(main())
