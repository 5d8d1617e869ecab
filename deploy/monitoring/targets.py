#!/usr/bin/env python3
"""Writes Prometheus' targets (file_sd) for the clusters of run folders.

usage: deploy/monitoring/targets.py RUN_DIR... >targets/local.json

Each process of a folder's cluster.json becomes a target with the labels
cluster (the folder's name), role (gateway, stage, expert) and index.
"""

import json
import pathlib
import sys


def targets(run_dir):
    """The file_sd entries of one run folder's cluster."""
    run_dir = pathlib.Path(run_dir).resolve()
    cluster = json.loads((run_dir / "cluster.json").read_text())
    return [{"targets": [entry["metrics_address"]],
             "labels": {"cluster": run_dir.name, "role": entry["role"],
                        "index": str(entry["index"])}}
            for entry in cluster["processes"]]


def main(run_dirs):
    if not run_dirs or run_dirs[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    entries = []
    for run_dir in run_dirs:
        try:
            entries += targets(run_dir)
        except FileNotFoundError as error:
            print(f"no cluster runs in {run_dir}: {error}", file=sys.stderr)
            return 1
    json.dump(entries, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
