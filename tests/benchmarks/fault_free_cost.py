#!/usr/bin/env python3
"""What recovery costs where nothing fails: a cluster with all of it beside one
without, on this machine, in turns.

  on   the defaults, a spare and a second gateway: replay logs, ids of events,
       the journal of streams and its copy
  off  one gateway, no spare, stages of --replay-log=false, a gateway of
       --no-event-ids and --stream-journal-mb 0

Each pair is a run of either, which begins a pair taking turns. Of the pairs'
ratios (on / off) of tokens/s and of the mean time between tokens there are the
median and its bootstrap interval (95 %). The memory is by live token: of the
boundary log by its formula (4 bytes x hidden size for each boundary of stages),
of the journal of streams by the gateway's metrics.

Usage: tests/benchmarks/fault_free_cost.py [--model PATH] [--stages 2]
       [--streams 1,8,32] [--tokens 200] [--pairs 10] [--json FILE] [--short]
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
WITHIN = 0.01  # of the fault-free cost, the goal
RESAMPLES = 2000


def start(arguments, kind):
    more, environment = ((), OFF) if kind == "off" else (
        ("--spares", "1", "--gateways", "2"), None)
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


def compare(arguments, urls, streams, rng):
    runs = {"on": [], "off": []}
    for kind in runs:  # caches and threads are warm
        run(arguments, urls[kind], streams, rng)
    for pair in range(arguments.pairs):
        for kind in sorted(runs, reverse=pair % 2 == 1):
            runs[kind].append(run(arguments, urls[kind], streams, rng))
    of = {kind: list(zip(*seen)) for kind, seen in runs.items()}
    result = {"streams": streams, "pairs": arguments.pairs}
    for index, name in enumerate(("tokens_per_s", "itl_s")):
        on, off = of["on"][index], of["off"][index]
        result[name] = {
            "on": lc.spread(on), "off": lc.spread(off),
            "ratio": median_of([a / b for a, b in zip(on, off)], rng)}
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
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--ids", type=int, default=40000,
                        help="prompts are of token ids from 1,000 up to here")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.streams, arguments.pairs, arguments.tokens = "1,2", 2, 40
    rng = random.Random(arguments.seed)
    with contextlib.ExitStack() as clusters:
        urls = {kind: leading(clusters.enter_context(start(arguments, kind)))
                for kind in ("on", "off")}
        runs = [compare(arguments, urls, int(streams), rng)
                for streams in arguments.streams.split(",")]
        used = memory(arguments, urls["on"])
    lc.finish(arguments, {"runs": runs, "memory": used}, [
        (f"{name} of {one['streams']} streams within {WITHIN:.0%} of those "
         "without", one[name]["ratio"],
         one[name]["ratio"]["median"] >= 1 - WITHIN if name == "tokens_per_s"
         else one[name]["ratio"]["median"] <= 1 + WITHIN)
        for one in runs for name in ("tokens_per_s", "itl_s")])


if __name__ == "__main__":
    main()
