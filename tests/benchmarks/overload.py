#!/usr/bin/env python3
"""Ten times the load that the cluster can carry, open loop.

Measures the best goodput first (closed loop, as many streams as may run),
then sends requests at --factor times that rate, at random moments (Poisson),
whatever becomes of them. Refused requests must be told so at once, with
Retry-After; those accepted must be served as fast as before; /metrics and
/readyz, asked from a process of its own, must answer throughout.

Usage: tests/benchmarks/overload.py [--factor 10] [--seconds 120]
       [--model PATH] [--json FILE] [--short]
"""

import argparse
import asyncio
import random
import time

import load_client as lc

PROMPT, OUTPUT, STREAMS = 64, 64, 64
PROBED = ("/metrics", "/readyz")


def body(name, rng):
    return {"model": name, "prompt": lc.prompt_ids(rng, PROMPT),
            "max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0}


def tokens_between(answers, begin, end):
    """Tokens a second that reached clients of complete answers."""
    count = sum(1 for answer in answers if answer.ok
                for moment in answer.times if begin <= moment < end)
    return count / (end - begin)


async def best(url, name, seconds):
    """Goodput of STREAMS closed-loop clients, after a third to warm up: over
    several of their rounds, whose prompts all come at once at first."""
    address, answers, rng = lc.address_of(url), [], random.Random(1)
    begin = time.perf_counter()
    end = begin + seconds

    async def slot():
        while time.perf_counter() < end:
            answers.append(await lc.stream(address, body(name, rng)))
            if answers[-1].status == 429:
                await asyncio.sleep(1)

    await asyncio.gather(*[slot() for _ in range(STREAMS)])
    return tokens_between(answers, begin + seconds / 3, end)


async def flood(url, name, rate, seconds, watch):
    """(answers, begin, end) of requests sent at `rate` a second."""
    address, rng, tasks = lc.address_of(url), random.Random(2), []
    sampling = asyncio.create_task(watch.run(2))
    begin = due = time.perf_counter()
    while due < begin + seconds:
        await asyncio.sleep(max(0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(
            lc.stream(address, body(name, rng))))
        due += rng.expovariate(rate)
    end = time.perf_counter()
    answers = await asyncio.gather(*tasks)
    sampling.cancel()
    return answers, begin, end


def run(arguments):
    with lc.cluster(arguments, "--kv-blocks", "4096") as cluster:
        url, watch = cluster.url, lc.MemoryWatch(cluster)
        name = lc.model_name(url)
        most = lc.gather(best(url, name, arguments.best_seconds))
        rate = arguments.factor * most / OUTPUT
        prober = lc.Prober(url, PROBED, 0.2)
        answers, begin, end = lc.gather(
            flood(url, name, rate, arguments.seconds, watch))
        probes = prober.finish()
        bounds = stage_bounds(cluster)
    third = (end - begin) / 4
    return {
        "best_tokens_per_s": round(most, 1),
        "offered_requests_per_s": round(rate, 2),
        "goodput_tokens_per_s": round(
            tokens_between(answers, begin + third, end), 1),
        **course(answers), "probes": probe_figures(probes),
        "rss_mib_per_minute": watch.growth(arguments.seconds / 2),
        "rss_peak_mib": watch.peak(), "stage_bound_mib": bounds}


def stage_bounds(cluster):
    """{process: MiB of weights and the whole KV pool}: a stage's pages of the
    pool become its own when they are first used."""
    bounds = {}
    for process in cluster.file["processes"]:
        if process["role"] != "stage":
            continue
        seen = lc.api.metrics(process["metrics_address"])
        bounds[f"stage-{process['index']}"] = round(
            (seen["sluice_stage_weights_bytes"] +
             seen["sluice_stage_kv_bytes"]) / lc.MIB)
    return bounds


def course(answers):
    refused = [a for a in answers if a.status == 429]
    whole = [a for a in answers if a.ok]
    other = [a for a in answers if not a.ok and a.status != 429]
    return {
        "requests": len(answers), "complete": len(whole),
        "refused": len(refused), "other": len(other),
        "errors": [f"{a.status} {a.error}" for a in other][:5],
        "refused_with_retry_after": sum(
            a.headers.get("retry-after", "").isdigit() for a in refused),
        "retry_after_s": lc.spread([float(a.headers["retry-after"])
                                    for a in refused
                                    if "retry-after" in a.headers]),
        "refused_within_s": lc.spread([a.answered - a.begun
                                       for a in refused]),
        "ttft_s": lc.spread([a.ttft for a in whole])}


def probe_figures(probes):
    return {path: {"asked": len(seen),
                   "not_200": sum(status != 200 for _, _, status in seen),
                   "seconds": lc.spread([took for _, took, _ in seen])}
            for path, seen in probes.items()}


def goals_of(report):
    """p99 stands for "within": the client shares the machine's cores."""
    slow = report["refused_within_s"]
    ratio = report["goodput_tokens_per_s"] / report["best_tokens_per_s"]
    growth = report["rss_mib_per_minute"]["gateway-0"]
    room = {name: bound + 256 - report["rss_peak_mib"][name]
            for name, bound in report["stage_bound_mib"].items()}
    goals = [
        ("requests are refused", report["refused"], report["refused"] > 0),
        ("every refusal has Retry-After", report["refused_with_retry_after"],
         report["refused_with_retry_after"] == report["refused"]),
        ("refused within 50 ms (p99)", slow,
         slow is not None and slow["p99"] <= 0.05),
        ("goodput is 90 % of the best or more", round(ratio, 3),
         ratio >= 0.9),
        ("nothing else goes wrong", report["errors"], report["other"] == 0),
        ("the gateway's memory grows by less than 8 MiB a minute", growth,
         growth is None or growth < 8),
        ("stages stay below weights, KV pool and 256 MiB: room left", room,
         min(room.values()) > 0)]
    for path, seen in report["probes"].items():
        goals.append((f"{path} within 50 ms (p99), always 200",
                      (seen["seconds"], seen["not_200"]),
                      seen["seconds"]["p99"] <= 0.05
                      and seen["not_200"] == 0))
    return goals


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--best-seconds", type=float, default=160)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.seconds, arguments.best_seconds = 10, 10
    report = run(arguments)
    lc.finish(arguments, {"seconds": arguments.seconds, **report},
              goals_of(report))


if __name__ == "__main__":
    main()
