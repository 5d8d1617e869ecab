#!/usr/bin/env python3
"""Readiness is progress: a stopped stage turns it off, full load never does.

  stop  streams run; a stage gets SIGSTOP, 5 s later SIGCONT. /readyz must be
        off within 3 s of the stop and come back; the streams must go on to
        the tokens that they have undisturbed.
  load  full load for --seconds: /readyz must never be off.

Usage: tests/benchmarks/stop_cont.py [--seconds 600] [--model PATH]
       [--json FILE] [--short]
"""

import argparse
import asyncio
import random
import signal
import time

import load_client as lc

STREAMS, STOPPED_S, LOADED = 4, 5.0, 64


def bodies(name, tokens):
    rng = random.Random(3)
    return [{"model": name, "prompt": lc.prompt_ids(rng, 24),
             "max_tokens": tokens, "ignore_eos": True, "temperature": 0.9,
             "seed": number, "return_token_ids": True}
            for number in range(STREAMS)]


async def streams(url, requests):
    """The token ids of each; raises unless each is whole."""
    answers = await asyncio.gather(*[
        lc.stream(lc.address_of(url), request, keep=True)
        for request in requests])
    for answer in answers:
        if not answer.ok:
            raise SystemExit(f"a stream failed: {answer.status} "
                             f"{answer.error}")
    return [[token for event in answer.data
             for token in event["choices"][0]["token_ids"]]
            for answer in answers]


async def interrupted(cluster, requests, lead):
    """(ids, time of SIGSTOP, time of SIGCONT), by time.time()."""
    running = asyncio.create_task(streams(cluster.url, requests))
    await asyncio.sleep(lead)
    stop = time.time()
    cluster.kill("stage", 1, signal.SIGSTOP)
    await asyncio.sleep(STOPPED_S)
    cluster.kill("stage", 1, signal.SIGCONT)
    resume = time.time()
    return await running, stop, resume


def stopped(cluster, tokens):
    requests = bodies(lc.model_name(cluster.url), tokens)
    begin = time.perf_counter()
    undisturbed = lc.gather(streams(cluster.url, requests))
    lead = (time.perf_counter() - begin) / 4
    prober = lc.Prober(cluster.url, ["/readyz"], 0.02)
    ids, stop, resume = lc.gather(interrupted(cluster, requests, lead))
    time.sleep(1)
    seen = prober.finish()["/readyz"]
    off = [when for when, _, status in seen
           if status == 503 and when >= stop]
    back = [when for when, _, status in seen
            if status == 200 and when >= resume]
    return {
        "off_before_the_stop": sum(status != 200 for when, _, status in seen
                                   if when < stop),
        "off_after_s": round(off[0] - stop, 3) if off else None,
        "back_after_s": round(back[0] - resume, 3) if back else None,
        "same_tokens": ids == undisturbed,
        "tokens": sum(len(one) for one in ids)}


async def load(url, name, seconds):
    end, rng = time.perf_counter() + seconds, random.Random(4)

    async def slot():
        count = 0
        while time.perf_counter() < end:
            answer = await lc.stream(lc.address_of(url), {
                "model": name, "prompt": lc.prompt_ids(rng, 96),
                "max_tokens": 48, "ignore_eos": True})
            count += answer.ok
            if answer.status == 429:
                await asyncio.sleep(1)
        return count

    return sum(await asyncio.gather(*[slot() for _ in range(LOADED)]))


def loaded(cluster, seconds):
    prober = lc.Prober(cluster.url, ["/readyz"], 0.1)
    complete = lc.gather(load(cluster.url, lc.model_name(cluster.url),
                              seconds))
    seen = prober.finish()["/readyz"]
    return {"seconds": seconds, "complete": complete, "asked": len(seen),
            "off": sum(status != 200 for _, _, status in seen),
            "answered_in_s": lc.spread([took for _, took, _ in seen])}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--tokens", type=int, default=400)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.seconds, arguments.tokens = 5, 150
    with lc.cluster(arguments) as cluster:
        stop = stopped(cluster, arguments.tokens)
        full = loaded(cluster, arguments.seconds)
    off, back = stop["off_after_s"], stop["back_after_s"]
    lc.finish(arguments, {"stop": stop, "load": full}, [
        ("/readyz is off within 3 s of SIGSTOP", off,
         off is not None and off <= 3),
        ("/readyz is back after SIGCONT", back, back is not None),
        ("the streams go on with the same tokens", stop["same_tokens"],
         stop["same_tokens"]),
        ("/readyz is never off under full load",
         f"{full['off']} of {full['asked']}", full["off"] == 0)])


if __name__ == "__main__":
    main()
