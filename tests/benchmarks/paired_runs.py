"""Clusters with something on beside such without, each alone on the machine, in
rounds: what fault_free_cost.py and steps_ahead.py share.

A round starts a cluster of each of KINDS once, in an order of its own:

  on    with it
  off   without it
  off2  the same as off: what two clusters differ by chance

Of the rounds' ratios, on to the geometric mean of off and off2, and off2 to off,
there are the median and its bootstrap interval (95 %), for tokens/s, for the mean
time between tokens, and for the CPU time of the stages and the gateway that
answers, a token.
"""

import asyncio
import itertools
import json
import math
import pathlib
import random
import statistics
import time

import load_client as lc

KINDS = ("on", "off", "off2")
FIGURES = ("tokens_per_s", "itl_s", "cpu_s_per_token")
RESAMPLES = 2000


def add_options(parser):
    lc.add_common_options(parser)
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--ids", type=int, default=40000,
                        help="prompts are of token ids from 1,000 (or half of "
                        "this) up to here")
    parser.add_argument("--seed", type=int, default=1)


def parse(parser):
    """The options, and the counts of streams; little of all with --short."""
    arguments = parser.parse_args()
    if arguments.short:
        arguments.streams, arguments.turns, arguments.tokens = "1,2", 2, 40
        arguments.rounds = 1
    return arguments, [int(streams) for streams in arguments.streams.split(",")]


def leading(cluster):
    """The URL of the gateway that leads, and its process id."""
    for entry in cluster.file["processes"]:
        url = "http://" + entry["addresses"][0]
        if entry["role"] == "gateway" and json.loads(
                lc.api.get(url, "/readyz")[1]).get("role") != "standby":
            return url, entry["pid"]
    raise SystemExit("no gateway leads")


async def together(url, requests):
    begin = time.perf_counter()
    answers = await asyncio.gather(*(
        lc.stream(lc.address_of(url), request) for request in requests))
    return answers, time.perf_counter() - begin


def cpu_seconds(pids):
    """Of all their threads since they started."""
    return 1e-9 * sum(
        int(path.read_text().split()[0])
        for pid in pids
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def run(arguments, cluster, streams, rng):
    """{figure: value} of `streams` streams at once."""
    url, gateway = leading(cluster)
    pids = [gateway, *(entry["pid"] for entry in cluster.file["processes"]
                       if entry["role"] == "stage")]
    requests = [{"model": lc.model_name(url),
                 "prompt": lc.prompt_ids(rng, arguments.prompt, arguments.ids),
                 "max_tokens": arguments.tokens, "ignore_eos": True,
                 "temperature": 0.9, "seed": number}
                for number in range(streams)]
    before = cpu_seconds(pids)
    answers, seconds = lc.gather(together(url, requests))
    cpu = cpu_seconds(pids) - before
    failed = [answer.error for answer in answers if not answer.ok]
    if failed:
        raise SystemExit(f"{streams} streams: {failed[0]}")
    gaps = [gap for answer in answers for gap in answer.gaps]
    tokens = streams * arguments.tokens
    return {"tokens_per_s": tokens / seconds, "itl_s": statistics.fmean(gaps),
            "cpu_s_per_token": cpu / tokens}


def median_of(ratios, rng):
    """The median, and the interval in which it is by the bootstrap."""
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios)))
                     for _ in range(RESAMPLES))
    return {"median": round(statistics.median(ratios), 4),
            "from": round(medians[int(0.025 * RESAMPLES)], 4),
            "to": round(medians[int(0.975 * RESAMPLES)], 4)}


def measure(arguments, cluster, counts, rng):
    """{streams: {figure: mean of the turns}} of a cluster."""
    seen = {}
    for streams in counts:
        run(arguments, cluster, streams, rng)  # caches, threads are warm
        turns = [run(arguments, cluster, streams, rng)
                 for _ in range(arguments.turns)]
        seen[streams] = {name: statistics.fmean(turn[name] for turn in turns)
                         for name in FIGURES}
    return seen


def summary(streams, rounds, rng):
    """Of what `measure` saw of each kind in each round."""
    result = {"streams": streams, "rounds": [
        {kind: {name: round(value, 6) for name, value in seen[streams].items()}
         for kind, seen in one.items()} for one in rounds]}
    for name in FIGURES:
        on, off, off2 = ([one[kind][streams][name] for one in rounds]
                         for kind in KINDS)
        result[name] = {
            "on": statistics.median(on), "off": statistics.median(off),
            "ratio": median_of([a / math.sqrt(b * c)
                                for a, b, c in zip(on, off, off2)], rng),
            "by_chance": median_of([c / b for b, c in zip(off, off2)], rng)}
    return result


def measure_rounds(arguments, counts, start, at_end=None):
    """`summary` of each count of streams. `start(kind)` gives a cluster, which
    `at_end(kind, cluster)` sees before it ends."""
    rng = random.Random(arguments.seed)
    orders = list(itertools.permutations(KINDS))
    rounds = []
    for number in range(arguments.rounds):
        seen = {}
        for kind in orders[number % len(orders)]:
            with start(kind) as cluster:
                seen[kind] = measure(arguments, cluster, counts, rng)
                if at_end:
                    at_end(kind, cluster)
        rounds.append(seen)
    return [summary(streams, rounds, rng) for streams in counts]
