#!/usr/bin/env python3
"""`sluice bench` beside guidellm, on the same server, taking turns.

Both send the same number of completions of the same lengths at the same
concurrency, round by round (A B A B ...); the medians of the rounds are
compared: mean and median TTFT, ITL, output tokens/s, requests/s. Goal: within
3 %.

  --server paced    guidellm's own paced server: what is measured is known,
                    and costs next to nothing, so that a difference is one of
                    measuring
  --server cluster  a cluster of ours; both clients take their part of the
                    same cores, guidellm the larger one

With --together both run at the same time, each with half of the streams, and
only requests within the time that both ran are counted: then what else the
machine does is the same for both.

Usage: tests/benchmarks/compare_bench.py --guidellm PATH [--server paced]
       [--streams 4] [--requests 40] [--prompt 128] [--output 64] [--rounds 3]
       [--ttft-ms 120] [--together] [--tokenizer FOLDER] [--sluice PATH]
       [--json FILE]
PATH: bin/guidellm of a virtual environment (pip install guidellm==0.8.1).
FOLDER: a tokenizer as Hugging Face writes it; guidellm makes its prompts by it.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile

import machine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

ITL_MS = 25  # of the paced server
GOAL = 0.03


class PacedServer:
    """guidellm's mock server, of a fixed pace; a context manager."""

    def __init__(self, guidellm, ttft_ms):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [guidellm, "mock-server", "--port", str(port), "--host",
             "127.0.0.1", "--model", "paced", "--ttft-ms", str(ttft_ms),
             "--itl-ms", str(ITL_MS), "--output-tokens", "64"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1"}, start_new_session=True)

    def __enter__(self):
        harness.wait_for(
            lambda: api.try_get(self.url, "/v1/models")[0] == 200, 60,
            "guidellm's paced server answers")
        return self

    def __exit__(self, *_):
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)


@dataclasses.dataclass
class Request:
    """One answered request; times in seconds of the calendar."""

    begin: float
    end: float
    ttft: float
    tokens: int
    itl: float  # its mean


def run_sluice(options, url, model, seed, streams):
    """The requests of one round of `sluice bench`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [options.sluice, "bench", "--url", url, "--model", model,
             "--concurrency", str(streams), "--requests",
             str(options.requests), "--prompt-tokens", str(options.prompt),
             "--output-tokens", str(options.output), "--warmup", "0",
             "--seed", str(seed), "--quiet", "--json", out.name],
            check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=900)
        result = json.load(out)
    began = result["summary"]["began_unix_s"]
    return [Request(begin, begin + r["e2e_ms"] / 1e3, r["ttft_ms"] / 1e3,
                    r["output_tokens"], statistics.mean(r["itl_ms"]) / 1e3)
            for r in result["requests"]
            for begin in [began + r["scheduled_s"]]]


def run_guidellm(options, url, model, seed, streams):
    """The requests of one round of guidellm, by its own report."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "report.json"
        subprocess.run(
            [options.guidellm, "run", "--backend",
             f"kind=openai_http,target={url},model={model},"
             "request_format=/v1/completions",
             "--profile", f"kind=concurrent,streams={streams}",
             "--constraint", f"kind=max_requests,count={options.requests}",
             "--tokenizer",
             f"kind=huggingface_auto,model={options.tokenizer}",
             "--data", f"kind=synthetic_text,prompt_tokens={options.prompt},"
             f"output_tokens={options.output}",
             "--seed", f"kind=static,value={seed}",
             "--output", f"kind=json,path={out}", "--disable-console"],
            check=True, timeout=900, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HOME": folder})
        benchmark = json.loads(out.read_text())["benchmarks"][0]
    return [Request(r["info"]["timings"]["request_start"],
                    r["info"]["timings"]["request_end"],
                    r["time_to_first_token_ms"] / 1e3, r["output_tokens"],
                    r["inter_token_latency_ms"] / 1e3)
            for r in benchmark["requests"]["successful"]]


def figures(requests):
    span = max(r.end for r in requests) - min(r.begin for r in requests)
    gaps = sum(r.tokens - 1 for r in requests)
    return {
        "TTFT mean, ms": 1e3 * statistics.mean(r.ttft for r in requests),
        "TTFT median, ms": 1e3 * statistics.median(r.ttft for r in requests),
        "ITL mean, ms": 1e3 * sum(r.itl * (r.tokens - 1)
                                  for r in requests) / gaps,
        "end to end mean, ms": 1e3 * statistics.mean(r.end - r.begin
                                                     for r in requests),
        "output tokens/s": sum(r.tokens for r in requests) / span,
        "requests/s": len(requests) / span}


CLIENTS = {"sluice bench": run_sluice, "guidellm": run_guidellm}


def run_in_turn(options, url, model, seed):
    return {name: run(options, url, model, seed, options.streams)
            for name, run in CLIENTS.items()}


def run_together(options, url, model, seed):
    """Both at once; the one that starts sooner repeats its round."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        theirs = pool.submit(run_guidellm, options, url, model, seed,
                             options.streams // 2)
        ours = []
        while not theirs.done():
            seed += 1
            ours += run_sluice(options, url, model, seed,
                               options.streams // 2)
    both = {"sluice bench": ours, "guidellm": theirs.result()}
    begin = max(min(r.begin for r in some) for some in both.values())
    end = min(max(r.end for r in some) for some in both.values())
    return {name: [r for r in some if r.begin >= begin and r.end <= end]
            for name, some in both.items()}


def compare(options, url, model):
    """[{name: figure}] of each, round by round."""
    rounds = {name: [] for name in CLIENTS}
    run = run_together if options.together else run_in_turn
    # In turn, a first round is for warmth; together, each warms the other.
    for turn in range(1 if options.together else 0, options.rounds + 1):
        for name, requests in run(options, url, model,
                                  1000 * (turn + 1)).items():
            if turn == 0:
                continue
            rounds[name].append(figures(requests))
            print(f"round {turn}, {name}, {len(requests)} requests: " +
                  ", ".join(f"{key} {value:.2f}" for key, value in
                            rounds[name][-1].items()), flush=True)
    return rounds


def print_table(rounds):
    """The medians side by side; true if all are within the goal."""
    close = True
    print(f"\n{'median of the rounds':22} {'sluice bench':>13} "
          f"{'guidellm':>10} {'ratio':>7}")
    for key in rounds["guidellm"][0]:
        ours, theirs = (statistics.median(each[key] for each in rounds[name])
                        for name in ("sluice bench", "guidellm"))
        within = abs(ours / theirs - 1) <= GOAL
        close = close and within
        print(f"{key:22} {ours:13.2f} {theirs:10.2f} {ours / theirs:7.3f}"
              f"{'' if within else '  more than 3 %'}")
    return close


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--guidellm", required=True)
    parser.add_argument("--server", choices=("paced", "cluster"),
                        default="paced")
    parser.add_argument("--sluice", default=pathlib.Path(
        os.environ["SLUICE_BUILD_DIR"], "services/cli/sluice"))
    parser.add_argument("--tokenizer", default=os.path.expanduser(
        "~/.cache/sluice/models/smollm2-hf"))
    for name, number in (("streams", 4), ("requests", 40), ("prompt", 128),
                         ("output", 64), ("rounds", 3)):
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--ttft-ms", type=int, default=120,
                        help="of the paced server")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--json")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.server == "paced":
        with PacedServer(options.guidellm, options.ttft_ms) as server:
            rounds = compare(options, server.url, "paced")
    else:
        with harness.Cluster(harness.default_model(), "--stages", "1",
                             "--threads", "1") as cluster:
            _, models = api.get(cluster.url, "/v1/models")
            model = json.loads(models)["data"][0]["id"]
            rounds = compare(options, cluster.url, model)
    close = print_table(rounds)
    found = machine.describe()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"command": sys.argv, "machine": found, "rounds": rounds}, indent=1))
    return 0 if close else 1


if __name__ == "__main__":
    sys.exit(main())
