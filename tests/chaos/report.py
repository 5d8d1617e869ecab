"""Sums up what chaos_test.py saw: python3 report.py COMMIT FILE... > SUMMARY.

FILE: of SLUICE_CHAOS_RESULTS. Times are in seconds."""

import collections
import json
import pathlib
import sys

COUNTS = ("faults", "streams", "wrong", "cut by the gateway", "resumed",
          "refused", "broken", "turned away", "recoveries", "replayed_tokens", "kept_tokens",
          "resplits")


def spread(values):
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2],
            "p99": ordered[min(99 * len(ordered) // 100, len(ordered) - 1)],
            "worst": ordered[-1]}


def counted(runs):
    return {
        **{count: int(sum(run[count] for run in runs)) for count in COUNTS},
        "longest_gap_of_a_stream": spread(
            [gap for run in runs for gap in run["gaps_seconds"]])}


def by_kind(runs):
    kinds = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        for kind, entry in run["kinds"].items():
            for what in ("ready_seconds", "pause_seconds"):
                kinds[kind][what] += entry[what]
    return {kind: {"count": len(entry["ready_seconds"]),
                   "ready_again": spread(entry["ready_seconds"]),
                   "longest_pause": spread(entry["pause_seconds"])}
            for kind, entry in sorted(kinds.items())}


def machine():
    """The processor's name, and how many threads it has here."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in info.splitlines()
             if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {len(names)} vCPUs"


def main():
    commit, *files = sys.argv[1:]
    runs = [json.loads(pathlib.Path(file).read_text()) for file in files]
    clusters = sorted({run["cluster"] for run in runs})
    json.dump({
        "commit": commit,
        "command": "SLUICE_CHAOS_FAULTS=N SLUICE_CHAOS_SEED=SEED python3 "
                   "tests/chaos/chaos_test.py ChaosTest.test_CLUSTER",
        "runs": [{key: run[key] for key in ("cluster", "seed", "faults")}
                 for run in runs],
        "machine": machine(),
        "all": counted(runs),
        "clusters": {cluster: counted([run for run in runs
                                       if run["cluster"] == cluster])
                     for cluster in clusters},
        "kinds": by_kind(runs)}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
