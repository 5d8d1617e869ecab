#!/usr/bin/env python3
"""What plans that leave before the last result is back give on this machine: a
cluster with them beside one without, in turns.

  on   a gateway of --ahead-ms A: while a step takes at most A milliseconds, one plan
       more than there are stages is in flight
  off  a gateway of --ahead-ms 0

paired_runs.py tells how they take turns, and what a ratio is. On CPUs a stage
computes one step at a time, so all that can be gained is the way of a result to the
gateway and of the next plan back; what it costs is the row of an end that is found
late.

Usage: tests/benchmarks/steps_ahead.py [--model PATH] [--stages 1]
       [--ahead-ms 5] [--streams 1,8,32] [--tokens 200] [--turns 3] [--rounds 6]
       [--json FILE] [--short]
"""

import argparse

import load_client as lc
import paired_runs as paired


def start(arguments, kind):
    ahead = arguments.ahead_ms if kind == "on" else 0
    return lc.harness.Cluster(
        arguments.model or lc.harness.default_model(), "--stages",
        str(arguments.stages), "--max-queue-wait", "600",
        environment={"SLUICE_GATEWAY_AHEAD_MS": str(ahead)})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    paired.add_options(parser)
    parser.set_defaults(stages=1)
    parser.add_argument("--ahead-ms", type=float, default=5)
    arguments, counts = paired.parse(parser)
    runs = paired.measure_rounds(arguments, counts,
                                 lambda kind: start(arguments, kind))
    lc.finish(arguments, {"ahead_ms": arguments.ahead_ms,
                          "stages": arguments.stages, "runs": runs}, [])


if __name__ == "__main__":
    main()
