#!/usr/bin/env python3
"""What one client's long prompts do to another client's stream.

  alone    a client decodes; another time a long prompt comes, nothing else
  beside   a client decodes while another sends long prompts back to back
The client alone is timed before and after.

Goals: the decoding client's median time between tokens at most 1.5 times and
its p99 at most 3 times what it is alone; the long prompt's time to its first
token at most 4 times what it is alone.

Usage: tests/benchmarks/fairness.py [--prompt-tokens 8000] [--prompts 3]
       [--model PATH] [--json FILE] [--short]
"""

import argparse
import asyncio
import random
import statistics

import load_client as lc


def decoding(name, rng, tokens):
    return {"model": name, "prompt": lc.prompt_ids(rng, 32),
            "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
            "return_token_ids": True}


def long_prompt(name, rng, tokens):
    return {"model": name, "prompt": lc.prompt_ids(rng, tokens),
            "max_tokens": 1, "temperature": 0}


def whole(answer):
    if not answer.ok:
        raise SystemExit(f"a request failed: {answer.status} {answer.error}")
    return answer


async def alone(url, name, arguments, rng):
    """(gaps of a stream, TTFTs of long prompts), each with no company."""
    address = lc.address_of(url)
    stream = whole(await lc.stream(
        address, decoding(name, rng, arguments.decode_tokens)))
    ttfts = []
    for _ in range(arguments.prompts):
        ttfts.append(whole(await lc.stream(
            address, long_prompt(name, rng, arguments.prompt_tokens))).ttft)
    return stream.gaps, ttfts


async def beside(url, name, arguments, rng):
    """The same with both: gaps while a long prompt was being read."""
    address, stop, gaps, ttfts = lc.address_of(url), asyncio.Event(), [], []
    spans = []

    async def decode():
        while not stop.is_set():
            answer = whole(await lc.stream(
                address, decoding(name, rng, arguments.decode_tokens),
                headers=["X-Request-Id: decoder"]))
            spans.append(answer.times)

    decoder = asyncio.create_task(decode())
    await asyncio.sleep(1)
    windows = []
    for _ in range(arguments.prompts):
        answer = whole(await lc.stream(
            address, long_prompt(name, rng, arguments.prompt_tokens)))
        ttfts.append(answer.ttft)
        windows.append((answer.begun, answer.times[0]))
    stop.set()
    await decoder
    for times in spans:
        gaps += [b - a for a, b in zip(times, times[1:])
                 if any(begin <= a and b <= end for begin, end in windows)]
    return gaps, ttfts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--prompt-tokens", type=int, default=8000)
    parser.add_argument("--decode-tokens", type=int, default=300)
    parser.add_argument("--prompts", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.prompt_tokens, arguments.prompts = 1500, 1
        arguments.decode_tokens = 60
    rng = random.Random(5)
    with lc.cluster(arguments) as cluster:
        name = lc.model_name(cluster.url)
        lone_gaps, lone_ttft = lc.gather(
            alone(cluster.url, name, arguments, rng))
        gaps, ttft = lc.gather(beside(cluster.url, name, arguments, rng))
        lone_gaps += whole(lc.gather(lc.stream(
            lc.address_of(cluster.url),
            decoding(name, rng, arguments.decode_tokens)))).gaps
    ratios = {
        "itl_p50": lc.percentile(gaps, .5) / lc.percentile(lone_gaps, .5),
        "itl_p99": lc.percentile(gaps, .99) / lc.percentile(lone_gaps, .99),
        "ttft": statistics.median(ttft) / statistics.median(lone_ttft)}
    ratios = {name: round(value, 3) for name, value in ratios.items()}
    limits = {"itl_p50": 1.5, "itl_p99": 3, "ttft": 4}
    lc.finish(arguments, {
        "prompt_tokens": arguments.prompt_tokens,
        "itl_alone_s": lc.spread(lone_gaps), "itl_beside_s": lc.spread(gaps),
        "tokens_beside": len(gaps), "ttft_alone_s": lc.spread(lone_ttft),
        "ttft_beside_s": lc.spread(ttft), "ratios": ratios},
        [(f"{name} at most {limit} times its own", ratios[name],
          ratios[name] <= limit) for name, limit in limits.items()])


if __name__ == "__main__":
    main()
