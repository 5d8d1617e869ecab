#!/usr/bin/env python3
"""What cutting a model into stages costs, and what it gains.

Starts clusters with deploy/local/up, lets them take turns (A B A B ...), and
prints medians and ratios. Waiting processes must get out of the way, so both
clusters stay up while one works. At its end the CPU's flags and its read
bandwidth.

  decode   one stage against two, all cores given to each: tokens/s at batch 1
           and TTFT of a 512-token prompt. Goal: two at most 3 % slower.
  prefill  a 4,096-token prompt over two stages pinned to one core each
           against one stage pinned to one core. Goal: TTFT at most 0.6.
  streams  aggregate tokens/s of 8 streams against one, one stage. Goal: 3.

Usage: tests/benchmarks/pipeline_bench.py MODEL [--case decode,prefill,streams]
       [--rounds 7] [--json FILE]
MODEL: a folder from tests/testing/make_model.py --preset llama1b.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import machine

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


class Cluster:
    """One cluster in a run folder of its own, from up to down."""

    def __init__(self, model, stages, threads, extra=()):
        self.run_dir = tempfile.mkdtemp(prefix="sluice-bench-")
        command = [os.path.join(ROOT, "deploy/local/up"), "--model", model,
                   "--stages", str(stages), "--threads", str(threads),
                   "--run-dir", self.run_dir, "--port", "0", "--detach",
                   *extra]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)
        with open(os.path.join(self.run_dir, "cluster.json")) as f:
            self.processes = json.load(f)["processes"]
        gateway = next(p for p in self.processes if p["role"] == "gateway")
        self.address = http_address(gateway)
        with self.get("/v1/models") as models:
            entry = json.load(models)["data"][0]
        self.model = entry["id"]

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        return http.client.HTTPConnection(host, int(port), timeout=600)

    def get(self, path):
        connection = self.connect()
        connection.request("GET", path)
        return connection.getresponse()

    def stages(self):
        return [p for p in self.processes if p["role"] == "stage"]

    def pin(self, cores):
        """Pins stage i, with all its threads, to cores[i]."""
        for stage, core in zip(self.stages(), cores):
            subprocess.run(["taskset", "-acp", str(core), str(stage["pid"])],
                           check=True, stdout=subprocess.DEVNULL)

    def generate(self, prompt, tokens):
        """Returns (seconds to first token, seconds in all, tokens)."""
        body = json.dumps({
            "model": self.model, "prompt": prompt, "max_tokens": tokens,
            "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}})
        connection = self.connect()
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", body,
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(f"{response.status}: {response.read()[:500]}")
        first = usage = None
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if first is None and event.get("choices"):
                first = time.perf_counter() - start
            usage = event.get("usage") or usage
        total = time.perf_counter() - start
        connection.close()
        return first, total, usage["completion_tokens"]

    def close(self):
        subprocess.run([os.path.join(ROOT, "deploy/local/down"),
                        "--run-dir", self.run_dir], check=False,
                       stdout=subprocess.DEVNULL)


def http_address(process):
    addresses = process["addresses"]
    if isinstance(addresses, dict):
        addresses = addresses.get("http") or next(iter(addresses.values()))
    if isinstance(addresses, list):
        addresses = addresses[0]
    return addresses.removeprefix("http://").rstrip("/")


def prompt_ids(rng, count):
    """Fresh ids every time, so that no prefix is found in the cache."""
    return [rng.randrange(4, 250) for _ in range(count)]


def spread(values):
    return {"median": round(statistics.median(values), 4),
            "min": round(min(values), 4), "max": round(max(values), 4)}


def case_decode(model, rounds, rng):
    cores = os.cpu_count()
    one, two = Cluster(model, 1, cores), Cluster(model, 2, cores)
    rates, ttft = {1: [], 2: []}, {1: [], 2: []}
    try:
        for i in range(rounds + 1):
            for stages, cluster in ((1, one), (2, two)):
                first, total, count = cluster.generate(prompt_ids(rng, 16), 48)
                rate = (count - 1) / (total - first)
                first512, _, _ = cluster.generate(prompt_ids(rng, 512), 1)
                if i > 0:  # the first round warms up
                    rates[stages].append(rate)
                    ttft[stages].append(first512)
    finally:
        one.close()
        two.close()
    return {
        "decode_tokens_per_s": {k: spread(v) for k, v in rates.items()},
        "ttft_512_s": {k: spread(v) for k, v in ttft.items()},
        "decode_ratio_two_to_one": round(
            statistics.median(b / a for a, b in zip(rates[1], rates[2])), 4),
        "ttft_ratio_two_to_one": round(
            statistics.median(b / a for a, b in zip(ttft[1], ttft[2])), 4),
    }


def case_prefill(model, rounds, rng):
    extra = ("--prefill-chunk", "256")
    one, two = Cluster(model, 1, 1, extra), Cluster(model, 2, 1, extra)
    ttft = {1: [], 2: []}
    try:
        one.pin([0])
        two.pin([0, 1])
        for _ in range(max(3, rounds // 2)):
            for stages, cluster in ((1, one), (2, two)):
                first, _, _ = cluster.generate(prompt_ids(rng, 4096), 1)
                ttft[stages].append(first)
    finally:
        one.close()
        two.close()
    return {
        "ttft_4096_s": {k: spread(v) for k, v in ttft.items()},
        "ttft_ratio_two_to_one": round(
            statistics.median(b / a for a, b in zip(ttft[1], ttft[2])), 4),
    }


def case_streams(model, rounds, rng):
    cluster = Cluster(model, 1, os.cpu_count())
    aggregate = {1: [], 8: []}
    try:
        for i in range(rounds + 1):
            for streams in (1, 8):
                results = []

                def work():
                    results.append(cluster.generate(prompt_ids(rng, 16), 48))

                threads = [threading.Thread(target=work)
                           for _ in range(streams)]
                start = time.perf_counter()
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                elapsed = time.perf_counter() - start
                if i > 0:
                    aggregate[streams].append(
                        sum(r[2] for r in results) / elapsed)
    finally:
        cluster.close()
    return {
        "aggregate_tokens_per_s": {k: spread(v) for k, v in aggregate.items()},
        "ratio_8_to_1": round(statistics.median(
            b / a for a, b in zip(aggregate[1], aggregate[8])), 3),
    }


CASES = {"decode": case_decode, "prefill": case_prefill,
         "streams": case_streams}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    report = {"rounds": arguments.rounds}
    rng = random.Random(1)
    for case in arguments.case.split(","):
        report[case] = CASES[case](arguments.model, arguments.rounds, rng)
        print(json.dumps({case: report[case]}, indent=2), flush=True)
    report["machine"] = machine.describe()
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump(report, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
