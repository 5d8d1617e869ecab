#!/usr/bin/env python3
"""The pause of running streams when a stage is killed (kill -9), and what is
computed again.

  supervised  the supervisor starts the killed process again
  spare       a spare takes its place
  anew        supervised, without a prefix cache: no stage keeps anything
  resplit     nothing takes its place: the others split the layers anew, 1 s
              after the loss (--resplit-after), which is part of the pause

The kill comes when every stream has --live tokens, --prompt of them its
prompt's; then it goes on for --rest tokens. A stream's pause goes from the kill to its next token that
needed the new process. `down_s` is the part until the pipeline is up: noticing,
start and load; the rest is the replay. `replayed` counts positions that any
stage computes again, `on_survivors` those of them that stages compute that lost
nothing.

Usage: tests/benchmarks/recovery_pause.py [--model PATH] [--stages 2]
       [--streams 1,8,64] [--kill 0,1] [--kinds supervised,spare,anew]
       [--json FILE] [--short]
"""

import argparse
import asyncio
import random
import time

import load_client as lc

OPTIONS = {"supervised": ("--supervise",), "spare": ("--spares", "1"),
           "anew": ("--supervise", "--no-prefix-cache"),
           "resplit": ("--resplit-after", "1")}


async def killed(cluster, stage, requests, least):
    """(answers, time of the kill) of streams that a stage dies under once each
    has `least` tokens."""
    address = lc.address_of(cluster.url)
    answers = [lc.Answer(time.perf_counter()) for _ in requests]
    tasks = [asyncio.create_task(lc.stream(address, request, answer=answer))
             for request, answer in zip(requests, answers)]
    while not all(len(answer.times) >= least or answer.error
                  for answer in answers):
        await asyncio.sleep(0.01)
    cluster.kill("stage", stage)
    kill = time.perf_counter()
    await asyncio.gather(*tasks)
    return answers, kill


def pause_of(answer, kill):
    """Seconds from the kill to the end of the longest gap that ends after it;
    None for a stream that was over."""
    times = answer.times
    gaps = [(b - a, b) for a, b in zip(times, times[1:]) if b > kill]
    return max(gaps)[1] - kill if gaps else None


def measure(arguments, kind, stage, streams):
    requests = [{"prompt": lc.prompt_ids(random.Random(number),
                                         arguments.prompt, arguments.ids),
                 "max_tokens": arguments.live + arguments.rest
                 - arguments.prompt, "ignore_eos": True,
                 "temperature": 0.9, "seed": number}
                for number in range(streams)]
    blocks = streams * ((arguments.live + arguments.rest) // 16 + 2) + 64
    with lc.cluster(arguments, *OPTIONS[kind], "--kv-blocks", str(blocks),
                    "--max-queue-wait", "600") as cluster:
        name = lc.model_name(cluster.url)
        for request in requests:
            request["model"] = name
        answers, kill = lc.gather(killed(
            cluster, stage, requests, arguments.live - arguments.prompt))
        metrics = lc.api.metrics(cluster.url)
    failed = [answer.error for answer in answers if not answer.ok]
    if failed:
        raise SystemExit(f"{kind}, {streams} streams: {failed[0]}")
    running = [answer for answer in answers if answer.times[-1] > kill]
    live = sum(arguments.prompt + sum(moment <= kill
                                      for moment in answer.times)
               for answer in running)
    replayed = metrics["sluice_gateway_replayed_tokens_total"]
    kept = metrics["sluice_gateway_kept_tokens_total"]
    return {"kind": kind, "killed": stage, "streams": len(running),
            "live_tokens": live,
            "down_s": round(metrics["sluice_gateway_last_recovery_seconds"], 3),
            "pause_s": lc.spread([pause_of(answer, kill)
                                  for answer in running], 3),
            "replayed": int(replayed), "on_survivors": int(replayed - kept)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--streams", default="1,8,64")
    parser.add_argument("--kill", default="0,1", help="stages, one at a time")
    parser.add_argument("--kinds", default="supervised,spare,anew")
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--rest", type=int, default=400)
    parser.add_argument("--ids", type=int, default=40000,
                        help="prompts are of token ids from 1,000 up to here")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.streams, arguments.live = "2", 100
    if "," not in arguments.kill and int(arguments.kill) >= arguments.stages:
        parser.error(f"--kill {arguments.kill}: there are "
                     f"{arguments.stages} stages")
    runs = [measure(arguments, kind, int(stage), int(streams))
            for _ in range(arguments.rounds)
            for kind in arguments.kinds.split(",")
            for stage in arguments.kill.split(",")
            for streams in arguments.streams.split(",")]
    keeping = [run for run in runs if run["kind"] not in ("anew", "resplit")]
    # A sequence's last block is not full, and its next token is in flight.
    share = max((run["on_survivors"] / run["live_tokens"] for run in keeping),
                default=0)
    lc.finish(arguments, {"runs": runs}, [
        ("survivors compute again at most a block of each stream",
         round(share, 4), share <= 17 / arguments.live)] if keeping else [])


if __name__ == "__main__":
    main()
