#!/usr/bin/env python3
"""What `sluice plan` says of this machine, beside clusters that run on it.

For each shape a cluster is started once, and stays. A round is: the machine's
rates and the plan (`sluice plan MODEL --machine here`), then at once the same
cluster measured by `sluice bench`: one stream, several streams, a long prompt.
Ratios are of a round's plan to its run, so that a machine whose speed changes
with its other tenants compares with itself; their spread says how much it did.
Memory is that of the stages' processes (proportional set size) once random
prompts have filled every KV block, and after a step with all its logits.

  tests/benchmarks/plan_against_runs.py [--rounds 5] [--shapes a,b] [--json FILE]

Goals: memory within 5 %, medians of speeds within 15 %.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from pipeline_bench import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = 8
PROMPT = 32    # tokens before a decode
ANSWER = 96    # tokens of an answer
CONTEXT = PROMPT + ANSWER // 2  # of the average decode step
LONG = 448     # tokens of a long prompt
FILL = 500     # tokens of a prompt that fills the cache


def sluice():
    build = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR",
                                        ROOT / "build/release"))
    return str(build / "services/cli/sluice")


def default_model():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                        pathlib.Path.home() / ".cache"))
    return cache / "sluice/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def synthetic(folder):
    """The 1.24 B shape of Llama 3.2, random; made once into the folder."""
    path = pathlib.Path(folder, "llama1b")
    if not path.exists():
        subprocess.run([sys.executable,
                        ROOT / "tests/testing/make_model.py", "--preset",
                        "llama1b", "--out", path], check=True,
                       stdout=subprocess.DEVNULL)
    return path


# name -> (model by the folder for made ones, stages, weights, KV blocks)
SHAPES = {
    "stories": (lambda _: ROOT / "build/golden/stories",
                    1, "auto", 1024),
    "SmolLM2-135M Q4_1": (lambda _: default_model(), 1, "auto", 256),
    "demo model (experts)": (lambda _: ROOT / "deploy/demo_model/weights",
                             1, "auto", 1024),
    "1.24 B as Q4_0": (synthetic, 1, "q4_0", 256),
    "SmolLM2-135M on two stages": (lambda _: default_model(), 2, "auto", 256),
}


def plan(model, stages, weights, blocks):
    """The figures of `sluice plan` on this machine, measured now."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [sluice(), "plan", model, "--machine", "here", "--stages",
             str(stages), "--weights", weights, "--kv-blocks", str(blocks),
             "--context", str(CONTEXT), "--prompt", str(LONG), "--streams",
             f"1,{STREAMS}", "--json", file.name],
            check=True, stdout=subprocess.DEVNULL)
        return json.load(file)


def rates():
    """This machine as `sluice bench machine` sees it now."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([sluice(), "bench", "machine", "--types", "q4_0,bf16",
                        "--rounds", "3", "--json", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        return json.load(file)


def bench(cluster, *options):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([sluice(), "bench", "--url",
                        f"http://{cluster.address}", "--quiet", "--json",
                        file.name, *map(str, options)], check=True,
                       stdout=subprocess.DEVNULL)
        return json.load(file)["summary"]


def measure(cluster, rng):
    """{"one", "many", "ttft"}: tokens/s of one stream and of several in all,
    from the time between tokens; seconds to the first token of a long
    prompt, whose ids no cache has."""
    def tokens_per_second(streams):
        found = bench(cluster, "--concurrency", streams, "--requests",
                      2 * streams if streams > 1 else 4, "--prompt-tokens",
                      PROMPT, "--output-tokens", ANSWER)
        return streams * 1e3 / found["tpot_ms"]["mean"]
    prompts = [[rng.randrange(4, 250) for _ in range(LONG)] for _ in range(3)]
    ttft = statistics.median(cluster.generate(ids, 1)[0] for ids in prompts)
    return {"one": tokens_per_second(1), "many": tokens_per_second(STREAMS),
            "ttft": ttft}


def fill(cluster, blocks, rng):
    """Random prompts until every block was used, and the logits of all tokens
    of one, so that a step is as large as steps are."""
    for _ in range(blocks * 16 // FILL + 4):
        cluster.generate([rng.randrange(4, 250) for _ in range(FILL)], 1)
    connection = cluster.connect()
    connection.request("POST", "/v1/completions", json.dumps({
        "model": cluster.model, "max_tokens": 1, "echo": True, "logprobs": 1,
        "prompt": [rng.randrange(4, 250) for _ in range(FILL)]}),
        {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"{answer.status}: {answer.read()[:500]}")
    answer.read()
    connection.close()


def stage_bytes(cluster):
    """Bytes of the stages' processes that are theirs."""
    total = 0
    for stage in cluster.stages():
        with open(f"/proc/{stage['pid']}/smaps_rollup",
                  encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file
                         if line.startswith("Pss:")) * 1024
    return total


def planned_bytes(figures):
    return sum(stage["weights_bytes"] + stage["kv_bytes"]
               + stage["work_bytes"] for stage in figures["stages"])


def run_shape(name, folder, rounds, rng):
    find, stages, weights, blocks = SHAPES[name]
    model = str(find(folder))
    cluster = Cluster(model, stages, os.cpu_count(),
                      ("--weights", weights, "--kv-blocks", str(blocks),
                       "--packed", "off"))
    pairs = []
    try:
        measure(cluster, rng)  # warms up
        for _ in range(rounds):
            said = plan(model, stages, weights, blocks)
            pairs.append((said, measure(cluster, rng)))
        fill(cluster, blocks, rng)
        used = stage_bytes(cluster)
    finally:
        cluster.close()

    def ratios(of_plan, key):
        found = [of_plan(said) / run[key] for said, run in pairs]
        return {"median": round(statistics.median(found), 3),
                "min": round(min(found), 3), "max": round(max(found), 3)}
    return {
        "memory": {"planned_mb": round(planned_bytes(said) * 1e-6, 1),
                   "measured_mb": round(used * 1e-6, 1),
                   "ratio": round(planned_bytes(said) / used, 3)},
        "one_stream": ratios(
            lambda said: said["speeds"][0]["tokens_per_second"], "one"),
        f"{STREAMS}_streams": ratios(
            lambda said: said["speeds"][1]["tokens_per_second"], "many"),
        "ttft": ratios(lambda said: said["ttft_seconds"], "ttft"),
        "rounds": [{"planned": [said["speeds"][0]["tokens_per_second"],
                                said["speeds"][1]["tokens_per_second"],
                                said["ttft_seconds"]],
                    "measured": [run["one"], run["many"], run["ttft"]]}
                   for said, run in pairs]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--folder", default=tempfile.gettempdir(),
                        help="where models that are made stay")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    report = {"command": " ".join(sys.argv), "shapes": {},
              "machine": rates(), "load_average": os.getloadavg()}
    rng = random.Random(1)
    for name in SHAPES:
        if name not in arguments.shapes.split(","):
            continue
        found = run_shape(name, arguments.folder, arguments.rounds, rng)
        report["shapes"][name] = found
        print(name, json.dumps({key: value for key, value in found.items()
                                if key != "rounds"}), flush=True)
        report["load_average_at_end"] = os.getloadavg()
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main()
