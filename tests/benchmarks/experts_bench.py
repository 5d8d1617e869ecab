#!/usr/bin/env python3
"""What it costs to have all experts on another host, over loopback.

Starts two clusters with deploy/local/up, one with every expert on its stage
and one with every expert on --hosts hosts, lets them take turns, and prints

  * tokens/s of both at batch 1 and 16, and their ratio,
  * round trips per token,
  * microseconds per trip: making the batch before it (serialise), and of it
    the wire, waiting and computing on the host.

Both clusters share the cores: what waits must get out of the way.

Usage: tests/benchmarks/experts_bench.py MODEL [--hosts 1] [--rounds 5]
       [--tokens 48] [--json FILE]
MODEL: a folder from tests/testing/make_model.py --preset glm1b.
"""

import argparse
import json
import os
import random
import re
import statistics
import threading
import time
import urllib.request

import machine
from pipeline_bench import Cluster, prompt_ids, spread

BATCHES = (1, 16)
PARTS = ("serialise", "wire", "queue", "compute")
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="([^"]*)"')


def samples(address):
    """A process's /metrics: [(name, labels, value)]."""
    with urllib.request.urlopen(f"http://{address}/metrics",
                                timeout=30) as answer:
        text = answer.read().decode()
    found = []
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match:
            name, labels, value = match.groups()
            found.append((name, dict(LABEL.findall(labels or "")),
                          float(value)))
    return found


def trips(cluster):
    """Sums over the stages: {"count", "trip" and each part, in seconds}."""
    sums = dict.fromkeys(("count", "trip") + PARTS, 0.0)
    for stage in cluster.stages():
        for name, labels, value in samples(stage["metrics_address"]):
            if name == "sluice_stage_expert_trip_seconds_sum":
                sums["trip"] += value
            elif name == "sluice_stage_expert_trip_seconds_count":
                sums["count"] += value
            elif name == "sluice_stage_expert_part_seconds_sum":
                sums[labels["part"]] += value
    return sums


def run_batch(cluster, batch, tokens, rng):
    """Returns (tokens/s in all, tokens)."""
    results = []

    def work(prompt):
        results.append(cluster.generate(prompt, tokens))

    threads = [threading.Thread(target=work, args=(prompt_ids(rng, 16),))
               for _ in range(batch)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = sum(result[2] for result in results)
    return count / (time.perf_counter() - start), count


def measure(clusters, batch, arguments, rng):
    rates = {name: [] for name in clusters}
    tokens = 0
    before = None
    for i in range(arguments.rounds + 1):
        if i == 1:  # the first round warms up
            before = trips(clusters["remote"])
        for name, cluster in clusters.items():
            rate, count = run_batch(cluster, batch, arguments.tokens, rng)
            if i > 0:
                rates[name].append(rate)
                tokens += count if name == "remote" else 0
    after = trips(clusters["remote"])
    spent = {key: after[key] - before[key] for key in after}
    if spent["count"] == 0:
        raise SystemExit("the remote cluster asked no host of experts")
    micros = {key: round(spent[key] / spent["count"] * 1e6, 1)
              for key in ("trip",) + PARTS}
    return {
        "tokens_per_s": {name: spread(r) for name, r in rates.items()},
        "ratio_remote_to_local": round(statistics.median(
            b / a for a, b in zip(rates["local"], rates["remote"])), 4),
        "trips": int(spent["count"]),
        "trips_per_token": round(spent["count"] / tokens, 3),
        "microseconds_per_trip": micros,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.tokens < 2 or arguments.hosts < 1:
        parser.error("--rounds and --hosts must be above 0, --tokens above 1")
    rng = random.Random(1)
    cores = os.cpu_count()
    report = {"hosts": arguments.hosts, "rounds": arguments.rounds}
    clusters = {}
    try:
        clusters["local"] = Cluster(arguments.model, 1, cores)
        clusters["remote"] = Cluster(
            arguments.model, 1, cores,
            ("--expert-hosts", str(arguments.hosts)))
        for batch in BATCHES:
            key = f"batch_{batch}"
            report[key] = measure(clusters, batch, arguments, rng)
            print(json.dumps({key: report[key]}, indent=2), flush=True)
    finally:
        for cluster in clusters.values():
            cluster.close()
    report["machine"] = machine.describe()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
