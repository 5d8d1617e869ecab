#!/usr/bin/env python3
"""The pause of running streams when layers move by plan, and whether their
tokens are those of a cluster in which nothing moves.

  spare   a stage is told to end (SIGTERM); a spare takes its place
  remove  a stage is told to end; the others take its layers
  rejoin  a stage that was gone comes back and gets layers again

The move begins when every stream has --live tokens, --prompt of them its
prompt's; then it goes on for --rest tokens (rejoin: the process is started
then, and joins by itself). A stream's pause is its longest gap between tokens
from there on; `gap_s` is the longest one before, of all streams. `copied` counts
bytes of keys and values that stages copied. Each kind runs with copies and with
--no-move-kv.

Usage: tests/benchmarks/planned_moves.py [--model PATH] [--streams 1,8,64]
       [--kinds spare,remove,rejoin] [--json FILE] [--short]
"""

import argparse
import asyncio
import json
import pathlib
import random
import re
import signal
import time

import load_client as lc

QUICK = ("--resplit-after", "1", "--rejoin-after", "1")
SECONDS = 300
COPIED = re.compile(r"has copied (\d+) bytes of keys and values")


def stages_of(cluster):
    status = json.loads(lc.api.get(cluster.url, "/cluster")[1])
    return len(status["stages"]) if status["ready"] else 0


def wait_for_stages(cluster, count):
    lc.harness.wait_for(lambda: stages_of(cluster) == count, SECONDS,
                        f"{count} stages")


async def moved(cluster, begin, requests, least):
    """(answers, time of the move) of streams under which layers move once each
    has `least` tokens."""
    address = lc.address_of(cluster.url)
    answers = [lc.Answer(time.perf_counter()) for _ in requests]
    tasks = [asyncio.create_task(
        lc.stream(address, request, answer=answer, keep=True))
        for request, answer in zip(requests, answers)]
    while not all(len(answer.times) >= least or answer.error
                  for answer in answers):
        await asyncio.sleep(0.01)
    moment = time.perf_counter()
    begin()
    await asyncio.gather(*tasks)
    return answers, moment


def ids_of(answer):
    return [token for event in answer.data for choice in event["choices"]
            for token in choice.get("token_ids") or []]


def longest(answer, begin, end=float("inf")):
    """The longest gap that ends in these times; 0 without one."""
    times = answer.times
    return max((b - a for a, b in zip(times, times[1:]) if begin < b <= end),
               default=0)


def requests_of(arguments, name, streams, rest):
    return [{"model": name,
             "prompt": lc.prompt_ids(random.Random(number), arguments.prompt,
                                     arguments.ids),
             "max_tokens": arguments.live + rest - arguments.prompt,
             "ignore_eos": True, "temperature": 0.9, "seed": number,
             "return_token_ids": True} for number in range(streams)]


def measure(arguments, kind, streams, copies):
    rest = arguments.rest
    blocks = streams * ((arguments.live + rest) // 16 + 2) + 64
    spares = ("--spares", "1") if kind == "spare" else ()
    off = () if copies else ("--no-move-kv",)
    arguments.stages = 2 if kind == "spare" else 3
    with lc.cluster(arguments, *QUICK, *spares, *off, "--kv-blocks",
                    str(blocks), "--max-queue-wait", "3600",
                    "--max-running", str(max(streams, 1))) as cluster:
        requests = requests_of(arguments, lc.model_name(cluster.url), streams,
                               rest)
        wanted = None
        if arguments.check:
            answers, _ = lc.gather(moved(cluster, lambda: None, requests, 1))
            wanted = [ids_of(answer) for answer in answers]
        count = arguments.stages
        if kind == "rejoin":
            cluster.kill("stage", 1)
            wait_for_stages(cluster, count - 1)

        def begin():
            if kind == "rejoin":
                cluster.restart("stage", 1)
            else:
                cluster.kill("stage", 1, signal.SIGTERM)

        before = lc.api.metrics(cluster.url)
        answers, moment = lc.gather(moved(
            cluster, begin, requests, arguments.live - arguments.prompt))
        after = lc.api.metrics(cluster.url)
        wait_for_stages(cluster, count - 1 if kind == "remove" else count)
        log = (pathlib.Path(cluster.run_dir) / "gateway.log").read_text(
            errors="replace")
    failed = [answer.error for answer in answers if not answer.ok]
    if failed:
        raise SystemExit(f"{kind}, {streams} streams: {failed[0]}")
    replayed = "sluice_gateway_replayed_tokens_total"
    recovery = "sluice_gateway_last_recovery_seconds"
    run = {"kind": kind, "copies": copies, "streams": streams,
           "down_s": round(after[recovery], 3),
           "pause_s": lc.spread([longest(answer, moment)
                                 for answer in answers], 3),
           "gap_s": round(max(longest(answer, 0, moment)
                              for answer in answers), 3),
           "replayed": int(after[replayed] - before[replayed]),
           "copied": sum(int(n) for n in COPIED.findall(log)),
           "equal": None if wanted is None else
           wanted == [ids_of(answer) for answer in answers]}
    print(json.dumps(run), flush=True)
    return run


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--streams", default="1,8,64")
    parser.add_argument("--kinds", default="spare,remove,rejoin")
    parser.add_argument("--copies", default="on,off")
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--rest", type=int, default=400)
    parser.add_argument("--ids", type=int, default=40000,
                        help="prompts are of token ids from 1,000 up to here")
    parser.add_argument("--no-check", dest="check", action="store_false",
                        help="do not hold the tokens against a run without a "
                        "move")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.streams, arguments.live = "2", 100
    runs = [measure(arguments, kind, int(streams), copies == "on")
            for kind in arguments.kinds.split(",")
            for streams in arguments.streams.split(",")
            for copies in arguments.copies.split(",")]
    copying = [run for run in runs if run["copies"]]
    lc.finish(arguments, {"runs": runs}, [
        ("the longest pause of a move with copies, s",
         max((run["pause_s"]["max"] for run in copying), default=0),
         all(run["pause_s"]["max"] <= 1 for run in copying)),
        ("runs whose tokens differ",
         sum(run["equal"] is False for run in runs),
         all(run["equal"] is not False for run in runs))])


if __name__ == "__main__":
    main()
