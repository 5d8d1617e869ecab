#!/usr/bin/env python3
"""What recovery costs where nothing fails: a cluster with all of it beside one
without, on this machine, in turns.

  on   the defaults, a spare and a second gateway: replay logs, ids of events,
       the journal of streams and its copy
  off  one gateway, no spare, stages of --replay-log=false, a gateway of
       --no-event-ids and --stream-journal-mb 0
  off2 the same as off: what two clusters differ by chance

A round starts each of them once, alone on the machine, in an order of its own. Of
the rounds' ratios, on to the geometric mean of off and off2, and off2 to off, there
are the median and its bootstrap interval (95 %), for tokens/s, for the mean time
between tokens, and for the CPU time of the stages and the gateway that answers, a
token. A goal is met where the whole interval lies within it, missed where it lies
beyond, and else unsure. The memory is by live token: of the boundary log by
its formula (4 bytes x hidden size for each boundary of stages; none for a GGUF), of
the journal of streams by the gateway's metrics.

Usage: tests/benchmarks/fault_free_cost.py [--model PATH] [--stages 2]
       [--streams 1,8,32] [--tokens 200] [--turns 3] [--rounds 6] [--json FILE]
       [--short]
"""

import argparse
import asyncio
import itertools
import json
import math
import pathlib
import random
import statistics
import time

import load_client as lc

OFF = {"SLUICE_STAGE_REPLAY_LOG": "false",
       "SLUICE_GATEWAY_NO_EVENT_IDS": "true",
       "SLUICE_GATEWAY_STREAM_JOURNAL_MB": "0"}
KINDS = ("on", "off", "off2")
FIGURES = ("tokens_per_s", "itl_s", "cpu_s_per_token")
WITHIN = 0.01  # of the fault-free cost, the goal
RESAMPLES = 2000


def start(arguments, kind):
    more, environment = (("--spares", "1", "--gateways", "2"), None) \
        if kind == "on" else ((), OFF)
    return lc.harness.Cluster(
        arguments.model or lc.harness.default_model(), "--stages",
        str(arguments.stages), "--max-queue-wait", "600", *more,
        environment=environment)


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


def measure(arguments, kind, counts, rng):
    """{streams: {figure: mean of the turns}} of a cluster, and its memory."""
    seen = {}
    with start(arguments, kind) as cluster:
        for streams in counts:
            run(arguments, cluster, streams, rng)  # caches, threads are warm
            turns = [run(arguments, cluster, streams, rng)
                     for _ in range(arguments.turns)]
            seen[streams] = {name: statistics.fmean(turn[name]
                                                    for turn in turns)
                             for name in FIGURES}
        return seen, memory(arguments, leading(cluster)[0])


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


def judge(name, ratio, rounds):
    """True, False, or None where the interval does not tell."""
    if rounds < 3:
        return None
    low, high = ratio["from"], ratio["to"]
    if name == "tokens_per_s":  # less is worse
        low, high = -high, -low
        bound = -(1 - WITHIN)
    else:
        bound = 1 + WITHIN
    return True if high <= bound else False if low > bound else None


def hidden_size(model):
    """Of a model folder; None of a file."""
    path = pathlib.Path(model, "config.json")
    if not path.exists():
        return None
    config = json.loads(path.read_text())
    return config.get("hidden_size") or config["text_config"]["hidden_size"]


def memory(arguments, url):
    metrics = lc.api.metrics(url)
    kept = metrics["sluice_gateway_stream_journal_streams"]
    a_stream = metrics["sluice_gateway_stream_journal_bytes"] / max(kept, 1)
    live = arguments.prompt + arguments.tokens
    hidden = hidden_size(arguments.model) if arguments.model else None
    return {"boundary_log_bytes_per_live_token":
            hidden and 4 * hidden * (arguments.stages - 1),
            "stream_journal_bytes_per_stream": round(a_stream),
            "stream_journal_bytes_per_live_token": round(a_stream / live, 2),
            "live_tokens_per_stream": live}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--ids", type=int, default=40000,
                        help="prompts are of token ids from 1,000 up to here")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.streams, arguments.turns, arguments.tokens = "1,2", 2, 40
        arguments.rounds = 1
    rng = random.Random(arguments.seed)
    counts = [int(streams) for streams in arguments.streams.split(",")]
    orders = list(itertools.permutations(KINDS))
    rounds, used = [], None
    for number in range(arguments.rounds):
        seen = {}
        for kind in orders[number % len(orders)]:
            seen[kind], took = measure(arguments, kind, counts, rng)
            used = took if kind == "on" else used
        rounds.append(seen)
    runs = [summary(streams, rounds, rng) for streams in counts]
    goals = [(f"{name} of {one['streams']} streams within {WITHIN:.0%} of "
              "those without", one[name]["ratio"],
              judge(name, one[name]["ratio"], arguments.rounds))
             for one in runs for name in FIGURES]
    lc.finish(arguments, {"runs": runs, "memory": used}, goals)


if __name__ == "__main__":
    main()
