"""Models of real sizes with made-up weights: what tests/gpu/run asks of each.

A model is an outline (tests/testing/make_outline.py), some megabytes that stand
for its weights; tests/gpu/model_speed runs it.
"""
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
UNCONFIRMED = HERE.parents[1] / "kernels/cuda/runtime/unconfirmed.h"
sys.path.insert(0, str(HERE.parent / "testing"))
import make_outline  # pylint: disable=wrong-import-position
import peaks  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position
import two_stages  # pylint: disable=wrong-import-position

PROMPT = DECODE = 128
PREFILL = 2048
STREAMS = (1, 32, 128)
SECONDS = 480  # after which a part begins no more measurements
TOO_LARGE = 3  # model_speed's exit code
SILENCE = 90  # seconds without a line: weights load in 16 at most
KV_BYTES = 2  # of a value of the KV cache, in BF16

# Name: preset, format, numerics, and what decode at batch 1 has to reach on an
# H200, an H100 and another GPU: tokens a second, or below 1 a share of the read
# bandwidth.
OF_READ, CANONICAL = (0.8,), {"": (0.5,)}
MODELS = {
    "llama1b": ("llama1b", "bf16", "fast", {"H200": (950, 0.8), "": OF_READ}),
    "llama8b": ("llama8b", "bf16", "fast",
                {"H200": (200, 229), "H100": (155, 170), "": OF_READ}),
    "llama8b_fp8": ("llama8b", "fp8", "fast",
                    {"H200": (350, 0.8), "": OF_READ}),
    "llama70b_fp8": ("llama70b", "fp8", "fast",
                     {"H200": (47, 0.8), "": OF_READ}),
    "gptoss20b": ("gptoss20b", "bf16", "fast",
                  {"H200": (600, 928), "H100": (450,), "": OF_READ}),
    "gptoss120b": ("gptoss120b", "bf16", "fast",
                   {"H200": (450, 688), "H100": (330,), "": OF_READ}),
    "glmair_fp8": ("glmair", "fp8", "fast",
                   {"H200": (220, 256), "": OF_READ}),
    "glmair_q4": ("glmair", "q4_0", "fast",
                  {"H200": (350, 423), "": OF_READ}),
    # Products of many tokens by wgmma.
    "llama8b_wgmma": ("llama8b", "bf16", "fast", {"": ()}),
    # What else no GPU has confirmed.
    "llama8b_unconfirmed": ("llama8b", "bf16", "fast", {"": ()}),
    "gptoss20b_unconfirmed": ("gptoss20b", "bf16", "fast", {"": ()}),
    "canonical_q4_0_unconfirmed": ("llama8b", "q4_0", "canonical", {"": ()}),
    "canonical_q4_0": ("llama8b", "q4_0", "canonical", CANONICAL),
    "canonical_q8_0": ("llama8b", "q8_0", "canonical", CANONICAL),
    "canonical_q4_k": ("llama8b", "q4_k", "canonical", CANONICAL),
}
# What a CPU tries the parts with: models of the same formats.
TINY = {"llama1b": "outline-tiny", "llama8b": "outline-tiny",
        "llama70b": "outline-tiny", "gptoss20b": "gptoss-tiny",
        "gptoss120b": "gptoss-tiny", "glmair": "outline-tiny-moe"}


def unconfirmed():
    """The rows of kernels/cuda/runtime/unconfirmed.h whose bits are those of what
    runs instead on one GPU, for $SLUICE_UNCONFIRMED."""
    rows = re.findall(r'\{Unconfirmed::k\w+,\s*"(\w+)"', UNCONFIRMED.read_text())
    return ",".join(row for row in rows if row not in ("wgmma", "nccl_graphs"))


def environment(asked=""):
    """With what $SLUICE_UNCONFIRMED names, and nothing else of its table."""
    return dict(os.environ, SLUICE_UNCONFIRMED=asked, SLUICE_WGMMA="0",
                SLUICE_NCCL_GRAPHS="0")


def environment_of(name):
    """A model's."""
    what = name.rsplit("_", maxsplit=1)[-1]
    return environment({"wgmma": "wgmma", "unconfirmed": unconfirmed()}
                       .get(what, ""))


def by_what(lines):
    """{"load": .., "decode": {"1": ..}, "decode_ahead": {"1": ..},
    "prefill": ..} of a program's lines."""
    found = {"decode": {}, "decode_ahead": {}}
    for line in lines:
        what = line.pop("what")
        if what in ("decode", "decode_ahead"):
            found[what][str(line.pop("streams"))] = line
        else:
            found[what] = line
    return found


def decode_rate(found, streams):
    """What the services do: steps ahead where the device overlaps them."""
    ahead = found.get("decode_ahead", {}).get(str(streams), {})
    if "tok_per_s" in ahead:
        return ahead
    return found.get("decode", {}).get(str(streams), {})


def lengths(device):
    """The options that say how much is measured."""
    prompt, decode, prefill, streams = PROMPT, DECODE, PREFILL, STREAMS
    if device == "cpu":
        prompt, decode, prefill, streams = 16, 4, 64, (1, 2, 5)
    return ["--prompt", str(prompt), "--decode", str(decode),
            "--prefill", str(prefill),
            "--streams", ",".join(map(str, streams)),
            "--seconds", str(SECONDS)]


def measure(name, program, device, out, end):
    """Runs a model of MODELS until time.monotonic() is `end`; returns what its
    file has, and why it failed."""
    preset, form, numerics, _ = MODELS[name]
    if device == "cpu":
        preset, numerics = TINY[preset], "canonical"
    folder = out / "models" / f"{preset}-{form}"
    if not (folder / "model.safetensors.index.json").exists():
        make_outline.make(preset, form, folder)
    ended = programs.lines_of(
        [program, folder, "--device", device, "--numerics", numerics,
         "--kv-type", "bf16", *lengths(device)], out / f"{name}.log", end,
        SILENCE, env=environment_of(name))
    found = {"preset": preset, "format": form,
             **make_outline.facts(preset, form), **by_what(ended.lines)}
    if ended.code == TOO_LARGE:
        found["skipped"] = ended.said
    elif ended.code != 0:
        how = ended.why or f"exit code {ended.code}"
        return found, f"{how}: {ended.said} (see {name}.log)"
    return found, None


def add_shares(found, read_gb_per_s):
    """Adds the share of the read bandwidth to decode at batch 1: of the weights
    that a token reads, and of the keys and values of its middle position."""
    one = decode_rate(found, 1)
    if "tok_per_s" not in one:
        return
    bytes_read = (found["active_bytes"]
                  + (PROMPT + DECODE // 2) * found["kv_values"] * KV_BYTES)
    one["gb_per_s"] = round(bytes_read * one["tok_per_s"] * 1e-9, 2)
    one["share_of_read_bandwidth"] = round(one["gb_per_s"] / read_gb_per_s, 4)


def prefill_tflops(found):
    """TFLOP/s of the prompt's products; None where it was not measured."""
    prefill = found.get("prefill", {})
    if "tok_per_s" not in prefill:
        return None
    return 2e-12 * found["prompt_products"] * prefill["tok_per_s"]


def kind_of(name):
    """Of the matrix units that multiply a model's weights in a prompt: fast
    numerics widen codes to BF16."""
    return "int8_tops" if MODELS[name][2] == "canonical" else "bf16_tflops"


def matrix_share(found, name, rates):
    """The prompt's products against the measured rate; None without both."""
    rate, kind = prefill_tflops(found), kind_of(name)
    return rate / rates[kind]["rate"] if rate and kind in rates else None


def add_matrix_share(found, name, rates):
    """Adds what the prompt's products come to, and their share."""
    rate, share = prefill_tflops(found), matrix_share(found, name, rates)
    if rate is not None:
        found["prefill"]["products_tflops"] = round(rate, 4)
    if share is not None:
        found["prefill"].update(matrix_rate=kind_of(name),
                                share_of_matrix_rate=round(share, 4))


def ratio(results, name, streams):
    """Decode against PyTorch's of the same run; None without both."""
    rates = [decode_rate(results.get(part, {}), streams).get("tok_per_s")
             for part in (name, f"pytorch_{name}")]
    return rates[0] / rates[1] if None not in rates and rates[1] else None


def goal_rows(results):
    """(what, seen, goal, whether it is reached) of every goal of the run; seen
    is None for what was not measured, the last then too."""
    gpu = results.get("bandwidth", {}).get("name", "")
    card = next((card for card in ("H200", "H100") if card in gpu), "")
    rates = peaks.matrix_rates(results)
    for name, (_, _, _, goals) in MODELS.items():
        one = decode_rate(results.get(name, {}), 1)
        for goal in goals.get(card, goals[""]):
            if goal < 1:
                yield row(f"{name}: share of read bandwidth",
                          one.get("share_of_read_bandwidth"), goal)
            else:
                yield row(f"{name}: tok/s at batch 1", one.get("tok_per_s"),
                          goal)
    for name, streams, goal in (
            ("llama8b", 1, 1.1), ("llama8b", 32, 1.1), ("llama8b", 128, 1.1),
            ("llama8b_fp8", 32, 1.3), ("llama8b_fp8", 128, 1.3)):
        yield row(f"{name}: {streams} streams, times PyTorch's",
                  ratio(results, name, streams), goal)
    yield row("two stages over gRPC, times one process",
              results.get("two_stages", {}).get("ratio"), two_stages.LEAST)
    for name, goal in (("llama8b", 0.5), ("llama8b_wgmma", 0.5),
                       ("canonical_q4_0", 0.15), ("canonical_q8_0", 0.15),
                       ("canonical_q4_k", 0.15)):
        yield row(f"{name}: prompt of {PREFILL}, share of {kind_of(name)}",
                  matrix_share(results.get(name, {}), name, rates), goal)


def row(what, seen, goal):
    return what, seen, goal, None if seen is None else seen >= goal


def print_tables(results):
    """Every model's speeds, then the goals."""
    for name in MODELS:
        found = results.get(name)
        if found is None:
            continue
        if "skipped" in found:
            print(f"{name:16} skipped: {found['skipped']}")
            continue
        for streams in found["decode"]:
            rate = decode_rate(found, streams)
            if "skipped" in rate:
                print(f"{name:16} {streams:>4} streams skipped: "
                      f"{rate['skipped']}")
                continue
            share = rate.get("share_of_read_bandwidth")
            times = ratio(results, name, streams)
            print(f"{name:16} {streams:>4} streams {rate['tok_per_s']:10.1f} "
                  f"tok/s {rate['ms_p50']:9.3f} ms/step"
                  + (f" {100 * share:5.1f} % of read" if share else "")
                  + (f" {times:5.2f} x PyTorch" if times else ""))
        rate = prefill_tflops(found)
        if rate is not None:
            share = found["prefill"].get("share_of_matrix_rate")
            print(f"{name:16} prompt       {found['prefill']['tok_per_s']:10.1f}"
                  f" tok/s {rate:9.2f} TFLOP/s"
                  + (f" {100 * share:5.1f} % of {kind_of(name)}" if share
                     else ""))
    if not any(name in results for name in MODELS):
        return
    print(f"{'goal':52} {'seen':>9} {'wanted':>9}")
    for what, seen, goal, reached in goal_rows(results):
        verdict = {None: "not measured", True: "reached", False: "MISSED"}
        print(f"{what:52} {'' if seen is None else format(seen, '9.3f'):>9} "
              f"{goal:9.3f} {verdict[reached]}")
