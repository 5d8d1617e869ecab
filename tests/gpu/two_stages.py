"""One stage against two on one device, over HTTP and gRPC, one stream: what
tests/gpu/run asks of the services' speed.

The services read files alone, so the model's made-up weights are written: Llama 8B
in BF16 (16 GB) where the disk has room, else Llama 1B.
"""
import contextlib
import os
import pathlib
import random
import shutil
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
for part in ("testing", "benchmarks"):
    sys.path.insert(0, str(ROOT / "tests" / part))
import clusters  # pylint: disable=wrong-import-position
import make_outline  # pylint: disable=wrong-import-position
import pipeline_bench  # pylint: disable=wrong-import-position

PROMPT = TOKENS = 128
ROUNDS = 7
UP = 250  # seconds until a cluster has loaded the model
SPARE = 1.2  # of the model's bytes that the disk must have
LEAST = 0.95  # two stages' speed, of one's


def written(folder, device):
    """The folder of a model with random weights, and its preset."""
    presets = ("llama8b", "llama1b") if device != "cpu" else ("outline-tiny",)
    free = shutil.disk_usage(folder).free
    for preset in presets:
        path = folder / f"{preset}-whole"
        done = path / "done"
        if done.exists():
            return path, preset
        size = make_outline.facts(preset, "bf16")["weights_bytes"]
        if free < SPARE * size:
            continue
        make_outline.make(preset, "bf16", path, whole=True)
        done.touch()
        return path, preset
    raise OSError(f"{folder} has {free / 1e9:.1f} GB free, too little for a "
                  f"model of {presets[-1]}")


def measure(build, device, out, end):
    """Tokens a second of one stream with one stage and with two, in turns,
    until time.monotonic() is `end`."""
    folder = out / "models"
    folder.mkdir(parents=True, exist_ok=True)
    model, preset = written(folder, device)
    threads = 1 if device == "cpu" else os.cpu_count()
    rounds, tokens = (1, 8) if device == "cpu" else (ROUNDS, TOKENS)
    options = ("--model", model, "--threads", str(threads),
               "--kv-blocks", "256", "--device", device, "--packed", "off",
               "--kv-type", "bf16", "--max-context", "512",
               "--ready-timeout", "240")
    environment = dict(os.environ, SLUICE_BUILD_DIR=str(build))
    rng, rates, clients = random.Random(1), {1: [], 2: []}, {}
    with contextlib.ExitStack() as stack:
        for stages in rates:
            clients[stages] = clusters.Client(stack.enter_context(
                clusters.cluster((*options, "--stages", str(stages)),
                                 out / "two_stages.log", end, environment,
                                 UP)), model.name, end)
        for turn in range(rounds + 1):
            for stages, client in clients.items():
                ids = pipeline_bench.prompt_ids(rng, PROMPT)
                first, total, count = client.generate(ids, tokens)
                if turn > 0:  # the first round warms up
                    rates[stages].append((count - 1) / (total - first))
    return {"preset": preset,
            "tok_per_s": {str(stages): pipeline_bench.spread(values)
                          for stages, values in rates.items()},
            "ratio": statistics.median(two / one for one, two
                                       in zip(rates[1], rates[2]))}
