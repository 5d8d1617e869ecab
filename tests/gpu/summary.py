"""What tests/gpu/run has found, part by part: tables, verdicts, one file."""
import json

import large_models
import peaks
import picture

# Models that pytorch_loop.py times, too.
LOOPS = ("llama8b", "llama8b_fp8", "llama1b")
# What tells most comes first: a GPU may be lent for minutes.
PARTS = ("machine", "bandwidth", "peaks", "devices", "check", "check_fast",
         "models", "services", "llama1b", "llama8b", "llama8b_fp8", "gptoss20b",
         "canonical_q4_0", "canonical_q8_0", "canonical_q4_k",
         "check_unconfirmed", "models_unconfirmed", "llama8b_unconfirmed",
         "gptoss20b_unconfirmed", "canonical_q4_0_unconfirmed", "check_wgmma",
         "llama8b_wgmma", "llama70b_fp8", "gptoss120b", "glmair_fp8",
         "glmair_q4", "ranks", "two_stages", "pytorch",
         *(f"pytorch_{name}" for name in LOOPS), "time", "time_fast",
         "sanitizer")
# Those that say yes or no.
CHECKS = ("devices", "check", "check_fast", "check_unconfirmed", "check_wgmma",
          "models", "models_unconfirmed", "services", "ranks", "sanitizer")
TIMES = ("time", "time_fast")


def write(out):
    """Prints what all parts have found, and writes it into one file."""
    results = {part: json.loads((out / (part + ".json")).read_text())
               for part in PARTS if (out / (part + ".json")).exists()}
    add_shares(results)
    add_matrix_shares(results)
    for state in ("failed", "unfinished"):
        why = {part: json.loads(path.read_text())["why"] for part in PARTS
               if (path := out / f"{part}.{state}.json").exists()}
        if why:
            results[state] = why
    commits = out / "commits.json"
    if commits.exists():
        results["commits"] = json.loads(commits.read_text())
    (out / "all.json").write_text(json.dumps(results, indent=1) + "\n")
    drawn = picture.svg(results)
    if drawn is not None:
        (out / "results.svg").write_text(drawn)
    print_table(results)
    for part in CHECKS:
        print(f"{part:16} {state_of(part, results, out)}")


def add_shares(results):
    """Adds shares of the read bandwidth, whenever it was measured."""
    read = results.get("bandwidth", {}).get("read_gb_per_s")
    if read is None:
        print("the bandwidth is not measured (--parts bandwidth): no shares")
        return
    for part in TIMES:
        for op in results.get(part, []):
            # What stays in caches has no rate of the memory's bytes.
            if "gb_per_s" in op:
                op["share_of_read_bandwidth"] = round(op["gb_per_s"] / read, 4)
    for name in large_models.MODELS:
        large_models.add_shares(results.get(name, {}), read)


def add_matrix_shares(results):
    """Adds the largest rates of matrix units, and prompts' shares of them."""
    rates = peaks.matrix_rates(results)
    for name in large_models.MODELS:
        large_models.add_matrix_share(results.get(name, {}), name, rates)
    if rates:
        results["matrix_rates"] = {**rates, "counted": peaks.COUNTED}


def state_of(part, results, out):
    earlier = f"; before: {out / (part + '.json')}" if part in results else ""
    for state in ("FAILED", "unfinished"):
        path = out / f"{part}.{state.lower()}.json"
        if path.exists():
            return f"{state}: see {path}{earlier}"
    if part not in results:
        return "not run"
    found = results[part] if isinstance(results[part], dict) else {}
    if "skipped" in found:
        return f"skipped: {found['skipped']}"
    left_out = found.get("left_out", [])
    return f"passes; left out: {len(left_out)} ({', '.join(left_out)})" \
        if left_out else "passes"


def print_table(results):
    for name, value in results.get("bandwidth", {}).items():
        print(f"{name:24} {value}")
    peaks.print_rates(results)
    for part in TIMES:
        for op in results.get(part, []):
            rate = op.get("gb_per_s")
            share = op.get("share_of_read_bandwidth")
            print(f"{part:9} {op['op']:24} {op['tokens']:4} tokens "
                  f"{op['us']:12.1f} us"
                  + ("" if rate is None else f" {rate:9.1f} GB/s")
                  + ("" if share is None else f" {100 * share:5.1f} %"))
    large_models.print_tables(results)
