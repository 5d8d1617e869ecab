#!/usr/bin/env python3
"""Sluice beside llama.cpp's server: the same GGUF, threads, requests, run.

Both servers are up all the time and take turns (A B, B A, ...): 1, 8 and 32
streams that start together, each with a prompt of its own. Aggregate tokens
a second, TTFT p50 and p99, ITL p99, and the ratios, ours to theirs.

Usage: tests/benchmarks/peer_http.py --peer PATH/llama-server --gguf FILE
       [--threads 2] [--streams 1,8,32] [--rounds 3] [--prompt-tokens 128]
       [--output-tokens 64] [--weights auto|bf16|f32] [--sampling JSON]
       [--json FILE] [--short]
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import tempfile
import time

import load_client as lc


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def peer(arguments, streams):
    """The URL of a llama-server that serves `streams` at once."""
    url = f"http://127.0.0.1:{free_port()}"
    each = arguments.prompt_tokens + arguments.output_tokens + 16
    command = [arguments.peer, "--model", arguments.gguf, "--host",
               "127.0.0.1", "--port", url.rsplit(":", 1)[1], "--threads",
               str(arguments.threads), "--threads-batch",
               str(arguments.threads), "--threads-http", "4", "--parallel",
               str(streams), "--ctx-size", str(each * streams),
               *arguments.peer_options.split()]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=log, stderr=log,
                                 stdin=subprocess.DEVNULL)
        try:
            lc.harness.wait_for(
                lambda: lc.api.try_get(url, "/health")[0] == 200
                or child.poll() is not None, 120, "the peer is up")
            if child.poll() is not None:
                log.seek(0)
                raise SystemExit(log.read()[-4000:].decode())
            yield url, child.pid
        finally:
            child.terminate()
            child.wait(30)


async def together(url, name, requests):
    address = lc.address_of(url)
    begin = time.perf_counter()
    answers = await asyncio.gather(*[
        lc.stream(address, {**request, "model": name})
        for request in requests])
    return answers, time.perf_counter() - begin


def requests_of(rng, streams, arguments):
    # What both understand alike; ids, so that no tokenizer differs.
    return [{"prompt": lc.prompt_ids(rng, arguments.prompt_tokens),
             "max_tokens": arguments.output_tokens, "ignore_eos": True,
             "seed": rng.randrange(1 << 30), **arguments.sampling}
            for _ in range(streams)]


def figures(answers, seconds, arguments):
    for answer in answers:
        if not answer.ok:
            raise SystemExit(f"a stream failed: {answer.status} "
                             f"{answer.error}")
    ttft = [answer.ttft for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps]
    return {"tokens_per_s": len(answers) * arguments.output_tokens / seconds,
            "ttft_p50_s": lc.percentile(ttft, .5),
            "ttft_p99_s": lc.percentile(ttft, .99),
            "itl_p50_s": lc.percentile(gaps, .5),
            "itl_p99_s": lc.percentile(gaps, .99)}


def measure(servers, streams, arguments, rng):
    """{server: {figure: [value of each round]}}, servers taking turns."""
    out = {server: {} for server in servers}
    order = list(servers)
    for turn in range(arguments.rounds + 1):
        requests = requests_of(rng, streams, arguments)
        for server in order:
            answers, seconds = lc.gather(
                together(*servers[server], requests))
            seen = figures(answers, seconds, arguments)
            if turn > 0:  # the first round warms up
                for name, value in seen.items():
                    out[server].setdefault(name, []).append(value)
        order.reverse()
    return out


def table(results):
    lines = [f"{'streams':>7} {'figure':14} {'sluice':>10} {'peer':>10} "
             f"{'ratio':>7}"]
    for streams, row in results.items():
        for name, ratio in row["ratios"].items():
            ours, theirs = row["sluice"][name], row["peer"][name]
            lines.append(f"{streams:>7} {name:14} {ours['p50']:>10.4f} "
                         f"{theirs['p50']:>10.4f} {ratio:>7.3f}")
    return "\n".join(lines)


def run(arguments, counts):
    results, rng = {}, random.Random(9)
    options = ["--threads", str(arguments.threads), "--weights",
               arguments.weights, "--kv-blocks", "4096",
               "--max-queue-wait", "600"]  # the peer refuses nothing
    with lc.cluster(arguments, *options) as cluster, \
            peer(arguments, max(counts)) as (peer_url, peer_pid):
        servers = {"sluice": (cluster.url, lc.model_name(cluster.url)),
                   "peer": (peer_url, lc.model_name(peer_url))}
        for streams in counts:
            seen = measure(servers, streams, arguments, rng)
            results[streams] = {
                server: {name: lc.spread(values)
                         for name, values in rows.items()}
                for server, rows in seen.items()}
            results[streams]["ratios"] = {
                name: round(statistics.median(
                    a / b for a, b in zip(seen["sluice"][name],
                                          seen["peer"][name])), 3)
                for name in seen["sluice"]}
        rss = pathlib.Path(f"/proc/{peer_pid}/status").read_text()
    return results, rss.split("VmRSS:")[1].split("kB")[0].strip()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.set_defaults(stages=1)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--gguf", help="default: the default model")
    parser.add_argument("--peer-options", default="", metavar="'WORDS'")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--sampling", type=json.loads, metavar="JSON",
                        default={"temperature": 0},
                        help='fields of every request, as {"temperature": 1, '
                        '"top_p": 0.95}; default: greedy')
    arguments = parser.parse_args()
    arguments.gguf = arguments.model = str(
        arguments.gguf or lc.harness.default_model())
    if arguments.short:
        arguments.streams, arguments.rounds = "1,4", 1
    counts = [int(word) for word in arguments.streams.split(",")]
    results, peer_rss = run(arguments, counts)
    version = subprocess.run([arguments.peer, "--version"], text=True,
                             capture_output=True, check=False)
    print(table(results))
    most = results[counts[-1]]["ratios"]
    lc.finish(arguments, {
        "peer_version": (version.stderr + version.stdout).strip().split(
            "\n")[0],
        "peer_rss_kib": peer_rss, "ours_to_theirs": results},
        [(f"TTFT p50 at {counts[-1]} streams below the peer's",
          most["ttft_p50_s"], most["ttft_p50_s"] < 1)])


if __name__ == "__main__":
    main()
