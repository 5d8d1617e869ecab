#!/usr/bin/env python3
"""What recovery costs where nothing fails: a cluster with all of it beside one
without, on this machine, in turns.

  on   the defaults, a spare and a second gateway: replay logs, ids of events,
       the journal of streams and its copy
  off  one gateway, no spare, stages of --replay-log=false, a gateway of
       --no-event-ids and --stream-journal-mb 0
  off2 the same as off: what two clusters differ by chance

Which cluster starts first changes its speed, so each round starts them anew,
another one first. In a round each turn runs all three, in changing order. Of the
turns' ratios (on / off, off2 / off) of tokens/s and of the mean time between
tokens there are the median and its bootstrap interval (95 %). The memory is by
live token: of the boundary log by its formula (4 bytes x hidden size for each
boundary of stages), of the journal of streams by the gateway's metrics.

Usage: tests/benchmarks/fault_free_cost.py [--model PATH] [--stages 2]
       [--streams 1,8,32] [--tokens 200] [--turns 4] [--rounds 3] [--json FILE]
       [--short]
"""

import argparse
import asyncio
import contextlib
import json
import pathlib
import random
import statistics
import time

import load_client as lc

OFF = {"SLUICE_STAGE_REPLAY_LOG": "false",
       "SLUICE_GATEWAY_NO_EVENT_IDS": "true",
       "SLUICE_GATEWAY_STREAM_JOURNAL_MB": "0"}
KINDS = ("on", "off", "off2")
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
    """The URL of the gateway that leads."""
    for entry in cluster.file["processes"]:
        url = "http://" + entry["addresses"][0]
        if entry["role"] == "gateway" and json.loads(
                lc.api.get(url, "/readyz")[1]).get("role") != "standby":
            return url
    raise SystemExit("no gateway leads")


async def together(url, requests):
    begin = time.perf_counter()
    answers = await asyncio.gather(*(
        lc.stream(lc.address_of(url), request) for request in requests))
    return answers, time.perf_counter() - begin


def run(arguments, url, streams, rng):
    """(tokens/s, mean seconds between two tokens of a stream)."""
    requests = [{"model": lc.model_name(url),
                 "prompt": lc.prompt_ids(rng, arguments.prompt, arguments.ids),
                 "max_tokens": arguments.tokens, "ignore_eos": True,
                 "temperature": 0.9, "seed": number}
                for number in range(streams)]
    answers, seconds = lc.gather(together(url, requests))
    failed = [answer.error for answer in answers if not answer.ok]
    if failed:
        raise SystemExit(f"{streams} streams: {failed[0]}")
    gaps = [gap for answer in answers for gap in answer.gaps]
    return streams * arguments.tokens / seconds, statistics.fmean(gaps)


def median_of(ratios, rng):
    """The median, and the interval in which it is by the bootstrap."""
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios)))
                     for _ in range(RESAMPLES))
    return {"median": round(statistics.median(ratios), 4),
            "from": round(medians[int(0.025 * RESAMPLES)], 4),
            "to": round(medians[int(0.975 * RESAMPLES)], 4)}


def rotated(kinds, by):
    by %= len(kinds)
    return (*kinds[by:], *kinds[:by])


def measure(arguments, urls, streams, rng):
    """What each kind of cluster did in each turn of a round."""
    runs = {kind: [] for kind in KINDS}
    for kind in KINDS:  # caches and threads are warm
        run(arguments, urls[kind], streams, rng)
    for turn in range(arguments.turns):
        for kind in rotated(KINDS, turn):
            runs[kind].append(run(arguments, urls[kind], streams, rng))
    return runs


def summary(streams, rounds, rng):
    """Of the rounds' `measure`s."""
    runs = {kind: [one for each in rounds for one in each[kind]]
            for kind in KINDS}
    of = {kind: list(zip(*seen)) for kind, seen in runs.items()}
    result = {"streams": streams, "turns": len(runs["on"])}
    for index, name in enumerate(("tokens_per_s", "itl_s")):
        off = of["off"][index]
        result[name] = {kind: lc.spread(of[kind][index]) for kind in KINDS}
        for kind, ratio in (("on", "ratio"), ("off2", "by_chance")):
            result[name][ratio] = median_of(
                [a / b for a, b in zip(of[kind][index], off)], rng)
    return result


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
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
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
    seen = {streams: [] for streams in counts}
    for number in range(arguments.rounds):
        with contextlib.ExitStack() as clusters:
            urls = {kind: leading(clusters.enter_context(start(arguments, kind)))
                    for kind in rotated(KINDS, number)}
            for streams in counts:
                seen[streams].append(measure(arguments, urls, streams, rng))
            used = memory(arguments, urls["on"])
    runs = [summary(streams, rounds, rng) for streams, rounds in seen.items()]
    lc.finish(arguments, {"runs": runs, "memory": used}, [
        (f"{name} of {one['streams']} streams within {WITHIN:.0%} of those "
         "without", one[name]["ratio"],
         one[name]["ratio"]["median"] >= 1 - WITHIN if name == "tokens_per_s"
         else one[name]["ratio"]["median"] <= 1 + WITHIN)
        for one in runs for name in ("tokens_per_s", "itl_s")])


if __name__ == "__main__":
    main()
