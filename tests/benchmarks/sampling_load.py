#!/usr/bin/env python3
"""What sampling costs beside greedy, over HTTP, and what long prompts cost.

Every way to sample runs between two greedy runs of the same streams (g A g B
g ...), and its ratio is taken to their mean, so that a machine whose speed
drifts is in both. Per number of streams and way: tokens a second, CPU
milliseconds a token of gateway and stages, each with the median of its ratios.
On a machine that others use the ratio of CPU times says more: goals are of
rates, which want an idle one.

  long   the same with prompts of --long tokens, which the prefix cache holds
  TTFT   of 1,000 and 4,000 fresh tokens in turns, one stream

Usage: tests/benchmarks/sampling_load.py [--model PATH] [--streams 1,8,32]
       [--rounds 5] [--output-tokens 64] [--long 3000] [--only WAY,..]
       [--threads N] [--json FILE] [--short]

A model with a vocabulary of 128,256 in the size of the default one:
  tests/testing/make_model.py --preset vocab128k --out DIR
"""

import argparse
import asyncio
import os
import pathlib
import random
import statistics
import time

import load_client as lc

GREEDY = {"temperature": 0}
PENALTIES = {"temperature": 1, "frequency_penalty": 0.3,
             "presence_penalty": 0.3, "repetition_penalty": 1.1}
WAYS = {
    "temperature 1": {"temperature": 1},
    "top_p 0.95": {"temperature": 1, "top_p": 0.95},
    "min_p 0.05": {"temperature": 1, "min_p": 0.05},
    "top_k 40": {"temperature": 1, "top_k": 40},
    "penalties": PENALTIES,
    "logprobs 5": {"temperature": 1, "logprobs": 5},
}
LONG_WAYS = ("temperature 1", "penalties")
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(cluster):
    """{role: CPU seconds that its processes have used}."""
    out = {}
    for entry in cluster.file["processes"]:
        text = pathlib.Path(f"/proc/{entry['pid']}/stat").read_text()
        fields = text.rsplit(")", 1)[1].split()
        role = out.get(entry["role"], 0)
        out[entry["role"]] = role + (int(fields[11]) + int(fields[12])) / TICK
    return out


class Load:
    """Bursts of streams on one cluster."""

    def __init__(self, cluster, arguments):
        self._cluster, self._arguments = cluster, arguments
        self._name = lc.model_name(cluster.url)
        self._address = lc.address_of(cluster.url)
        self._rng = random.Random(3)
        self._long = [lc.prompt_ids(self._rng, arguments.long)
                      for _ in range(max(arguments.streams))]

    async def _together(self, bodies):
        return await asyncio.gather(*[lc.stream(self._address, body)
                                      for body in bodies])

    def ask(self, bodies):
        answers = lc.gather(self._together(bodies))
        for answer in answers:
            if not answer.ok:
                raise SystemExit(f"a stream failed: {answer.status} "
                                 f"{answer.error}")
        return answers

    def body(self, prompt, tokens, fields):
        return {"model": self._name, "prompt": prompt, "max_tokens": tokens,
                "ignore_eos": True, "seed": self._rng.randrange(1 << 30),
                **fields}

    def run(self, streams, fields, long=False):
        """(tokens/s from the moment that all streams decode, CPU ms a token
        by role)."""
        prompts = self._long[:streams] if long else [
            lc.prompt_ids(self._rng, 16) for _ in range(streams)]
        tokens = self._arguments.output_tokens
        before = cpu_seconds(self._cluster)
        answers = self.ask([self.body(prompt, tokens, fields)
                            for prompt in prompts])
        after = cpu_seconds(self._cluster)
        begin = max(answer.times[0] for answer in answers)
        end = max(answer.times[-1] for answer in answers)
        late = sum(sum(moment > begin for moment in answer.times)
                   for answer in answers)
        return late / (end - begin), {
            role: 1e3 * (after[role] - before[role]) / (tokens * streams)
            for role in after}

    def fill_cache(self, streams):
        """One prompt after the other: together they would wait for longer than
        the gateway lets them."""
        for prompt in self._long[:streams]:
            self.ask([self.body(prompt, 1, GREEDY)])

    def ttft(self, tokens):
        begin = time.perf_counter()
        answer, = self.ask([self.body(lc.prompt_ids(self._rng, tokens), 1,
                                      GREEDY)])
        return answer.times[0] - begin


def measure(load, streams, ways, arguments, long=False):
    """{way: tokens/s and ratios of every round}; greedy is among them."""
    seen = {way: {"rates": [], "ratios": [], "cpu": [], "costs": []}
            for way in ["greedy", *ways]}
    if long:
        load.fill_cache(streams)
    load.run(streams, GREEDY, long)  # warms up
    order = list(ways)
    for _ in range(arguments.rounds):
        greedy = load.run(streams, GREEDY, long)
        for way in order:
            rate, cpu = load.run(streams, WAYS[way], long)
            last, greedy = greedy, load.run(streams, GREEDY, long)
            beside = (last[0] + greedy[0]) / 2
            seen[way]["rates"].append(rate)
            seen[way]["ratios"].append(rate / beside)
            seen[way]["cpu"].append(cpu)
            seen["greedy"]["rates"].append(greedy[0])
            # Two greedy runs that are as far apart: what noise alone does.
            seen["greedy"]["ratios"].append(greedy[0] / last[0])
            seen["greedy"]["cpu"].append(greedy[1])
            costs = [sum(roles.values()) for roles in (cpu, last[1],
                                                       greedy[1])]
            seen[way]["costs"].append(2 * costs[0] / (costs[1] + costs[2]))
            seen["greedy"]["costs"].append(costs[2] / costs[1])
        order.append(order.pop(0))
    return {way: {
        "tokens_per_s": lc.spread(row["rates"], 2),
        "of_greedy": lc.spread(row["ratios"], 3),
        "cpu_of_greedy": lc.spread(row["costs"], 3),
        "cpu_ms_per_token": {
            role: round(statistics.median(cpu[role] for cpu in row["cpu"]), 3)
            for role in row["cpu"][0]}} for way, row in seen.items()}


def measure_ttft(load, arguments):
    out = {1000: [], 4000: []}
    for _ in range(arguments.rounds):
        for tokens, times in out.items():
            times.append(load.ttft(tokens))
    ratio = statistics.median(out[4000]) / statistics.median(out[1000])
    return {**{f"ttft_s_of_{tokens}": lc.spread(times)
               for tokens, times in out.items()}, "ratio": round(ratio, 2)}


def show(streams, rows, what=""):
    for way, row in rows.items():
        cpu = " ".join(f"{role} {value:.2f}" for role, value
                       in row["cpu_ms_per_token"].items())
        print(f"{streams:>3} streams{what} {way:14} "
              f"{row['tokens_per_s']['p50']:>8.1f} tokens/s, of greedy "
              f"{row['of_greedy']['p50']:.3f} ({row['of_greedy']['min']:.2f} "
              f"to {row['of_greedy']['max']:.2f}); CPU ms a token {cpu}, of "
              f"greedy {row['cpu_of_greedy']['p50']:.3f}", flush=True)


def run(arguments, ways):
    options = ["--threads", str(arguments.threads), "--max-running",
               str(max(arguments.streams))]
    results, goals = {"short": {}, "long": {}}, []
    with lc.cluster(arguments, *options) as cluster:
        load = Load(cluster, arguments)
        for streams in arguments.streams:
            rows = measure(load, streams, ways, arguments)
            show(streams, rows)
            results["short"][streams] = rows
            goals += [(f"{way} at {streams} streams at least 0.97 of greedy",
                       rows[way]["of_greedy"]["p50"],
                       rows[way]["of_greedy"]["p50"] >= 0.97)
                      for way in ways]
            if arguments.long and streams <= 8:
                rows = measure(load, streams,
                               [way for way in LONG_WAYS if way in ways],
                               arguments, long=True)
                show(streams, rows, " long")
                results["long"][streams] = rows
        results["ttft"] = None if arguments.no_ttft else measure_ttft(
            load, arguments)
    if results["ttft"]:
        goals.append(("TTFT of 4,000 tokens at most 7 times that of 1,000",
                      results["ttft"]["ratio"],
                      results["ttft"]["ratio"] <= 7))
    return results, goals


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.set_defaults(stages=1)
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--long", type=int, default=3000,
                        help="tokens of long prompts; 0: none")
    parser.add_argument("--only", help="of the ways, by comma")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-ttft", action="store_true")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.streams, arguments.rounds, arguments.long = "1,4", 1, 0
    arguments.streams = [int(word) for word in arguments.streams.split(",")]
    ways = arguments.only.split(",") if arguments.only else list(WAYS)
    results, goals = run(arguments, ways)
    lc.finish(arguments, {"beside_greedy": results}, goals)


if __name__ == "__main__":
    main()
