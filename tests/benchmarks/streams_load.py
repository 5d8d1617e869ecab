#!/usr/bin/env python3
"""256 streams at once with mixed lengths, then clients that go away.

  streams     every slot starts its next request when the last ended; all must
              complete and none may starve. Spread of TTFT and of each stream's
              rate; resident memory after the first minute.
              /readyz is asked ten times a second and must never be off.
  disconnects requests cut at random moments; afterwards no block and no
              sequence may be in use.

Usage: tests/benchmarks/streams_load.py [--streams 256] [--seconds 600]
       [--disconnects 1000] [--model PATH] [--json FILE] [--short]
"""

import argparse
import asyncio
import random
import time

import load_client as lc

PROMPT, OUTPUT = (8, 128), (16, 128)  # tokens, each drawn evenly
BLOCK = 16  # tokens of a KV block


def body(name, rng):
    return {"model": name, "prompt": lc.prompt_ids(rng, rng.randint(*PROMPT)),
            "max_tokens": rng.randint(*OUTPUT), "ignore_eos": True,
            "temperature": 0.8, "seed": rng.randrange(1 << 30)}


async def load(url, name, streams, seconds, watch):
    """(answers of `streams` slots kept busy for `seconds`, refusals)."""
    address, answers, refused = lc.address_of(url), [], [0]
    end = time.perf_counter() + seconds

    async def slot(number):
        rng = random.Random(number)
        while time.perf_counter() < end:
            request = body(name, rng)
            answer = await lc.stream(address, request)
            while answer.status == 429:  # comes back when it is told to
                refused[0] += 1
                await asyncio.sleep(float(answer.headers["retry-after"]))
                answer = await lc.stream(address, request)
            answers.append((request["max_tokens"], answer))

    sampling = asyncio.create_task(watch.run())
    await asyncio.gather(*[slot(number) for number in range(streams)])
    sampling.cancel()
    return answers, refused[0]


async def warm(url, name, blocks):
    """Computes prompts that together fill the KV pool once: its pages are
    the process's own from then on."""
    address, rng = lc.address_of(url), random.Random(1)
    for _ in range(blocks * BLOCK // 8000 + 1):
        await asyncio.gather(*[
            lc.stream(address, {"model": name, "max_tokens": 1,
                                "prompt": lc.prompt_ids(rng, 1000)})
            for _ in range(8)])


async def disconnect(url, name, count, at_once=64):
    """Cuts `count` requests at random moments; how many had tokens."""
    address, rng, begun = lc.address_of(url), random.Random(7), [0]
    left = [count]

    async def slot():
        while left[0] > 0:
            left[0] -= 1
            answer = await lc.stream(
                address, body(name, rng), leave_after=rng.random() ** 2 * 24)
            begun[0] += bool(answer.times)

    await asyncio.gather(*[slot() for _ in range(at_once)])
    return begun[0]


def left_over(url, seconds=15):
    """What is in use once all clients are gone."""
    end = time.monotonic() + seconds
    while True:
        now = lc.api.metrics(url)
        use = {"running": now["vllm:num_requests_running"],
               "waiting": now["vllm:num_requests_waiting"],
               "kv_usage": now["vllm:kv_cache_usage_perc"],
               # The asking itself is one.
               "inflight": now["sluice_gateway_inflight_requests"] - 1}
        if not any(use.values()) or time.monotonic() > end:
            return use
        time.sleep(0.1)


def figures(answers, seconds):
    whole = [(wanted, answer) for wanted, answer in answers if answer.ok]
    rates = [(len(a.times) - 1) / (a.times[-1] - a.times[0])
             for _, a in whole if len(a.times) > 1]
    return {
        "requests": len(answers), "complete": len(whole),
        "errors": [a.error for _, a in answers if not a.ok][:5],
        "tokens_per_s": round(sum(w for w, _ in whole) / seconds, 1),
        "ttft_s": lc.spread([a.ttft for _, a in whole]),
        "stream_tokens_per_s": lc.spread(rates),
        "longest_gap_s": lc.spread([max(a.gaps) for _, a in whole if a.gaps])}


def run(arguments):
    options = ["--max-running", str(arguments.streams), "--max-queue", "512",
               "--max-queue-wait", "3600", "--kv-blocks",
               str(arguments.kv_blocks)]
    with lc.cluster(arguments, *options) as cluster:
        name, watch = lc.model_name(cluster.url), lc.MemoryWatch(cluster)
        if not arguments.short and not arguments.no_warm:
            lc.gather(warm(cluster.url, name, arguments.kv_blocks))
        prober = lc.Prober(cluster.url, ["/readyz"], 0.1)
        begin = time.perf_counter()
        answers, refused = lc.gather(
            load(cluster.url, name, arguments.streams, arguments.seconds,
                 watch))
        streams = {"refused_for_now": refused,
                   **figures(answers, time.perf_counter() - begin)}
        seen = prober.finish()["/readyz"]
        streams["readyz_asked"] = len(seen)
        streams["readyz_off"] = sum(status != 200 for _, _, status in seen)
        streams["readyz_s"] = lc.spread([took for _, took, _ in seen])
        begun = lc.gather(disconnect(cluster.url, name,
                                     arguments.disconnects))
        use = left_over(cluster.url)
    return streams, watch, begun, use


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kv-blocks", type=int, default=3072)
    parser.add_argument("--no-warm", action="store_true",
                        help="do not fill the KV pool first; its pages then "
                        "count as growth")
    parser.add_argument("--disconnects", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.seconds, arguments.disconnects = 5, 50
    streams, watch, begun, use = run(arguments)
    growth = watch.growth()
    rates = streams["stream_tokens_per_s"]
    goals = [
        ("every stream completes",
         f"{streams['complete']} of {streams['requests']}",
         streams["complete"] == streams["requests"]),
        ("none starves: the slowest stream has a fifth of the median rate",
         f"{rates['min']} of {rates['p50']} tokens/s",
         rates["min"] >= rates["p50"] / 5),
        ("/readyz is never off under full load",
         f"{streams['readyz_off']} of {streams['readyz_asked']}",
         streams["readyz_off"] == 0),
        ("nothing is in use after the disconnects", use,
         not any(use.values()))]
    known = {k: v for k, v in growth.items() if v is not None}
    if known and not arguments.short:
        goals.append(("memory grows by less than 1 MiB a minute",
                      known, max(known.values()) < 1))
    lc.finish(arguments, {
        "streams": arguments.streams, "seconds": arguments.seconds, **streams,
        "rss_mib_per_minute": growth, "rss_peak_mib": watch.peak(),
        "disconnects": arguments.disconnects,
        "disconnected_after_tokens": begun, "left_over": use}, goals)


if __name__ == "__main__":
    main()
