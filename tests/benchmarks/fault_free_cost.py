#!/usr/bin/env python3
"""What recovery costs where nothing fails: a cluster with all of it beside one
without, on this machine, in turns.

  on   the defaults, a spare and a second gateway: replay logs, ids of events,
       the journal of streams and its copy
  off  one gateway, no spare, stages of --replay-log=false, a gateway of
       --no-event-ids and --stream-journal-mb 0

paired_runs.py tells how they take turns, and what a ratio is. A goal is met where
the whole interval lies within it, missed where it lies beyond, and else unsure. The
memory is by live token: of the boundary log by its formula (4 bytes x hidden size for
each boundary of stages; none for a GGUF), of the journal of streams by the gateway's
metrics.

Usage: tests/benchmarks/fault_free_cost.py [--model PATH] [--stages 2]
       [--streams 1,8,32] [--tokens 200] [--turns 3] [--rounds 6] [--json FILE]
       [--short]
"""

import argparse
import json
import pathlib

import load_client as lc
import paired_runs as paired

OFF = {"SLUICE_STAGE_REPLAY_LOG": "false",
       "SLUICE_GATEWAY_NO_EVENT_IDS": "true",
       "SLUICE_GATEWAY_STREAM_JOURNAL_MB": "0"}
WITHIN = 0.01  # of the fault-free cost, the goal


def start(arguments, kind):
    more, environment = (("--spares", "1", "--gateways", "2"), None) \
        if kind == "on" else ((), OFF)
    return lc.harness.Cluster(
        arguments.model or lc.harness.default_model(), "--stages",
        str(arguments.stages), "--max-queue-wait", "600", *more,
        environment=environment)


def judge(name, ratio, rounds):
    """True, False, or None where the interval does not tell."""
    if rounds < 3:
        return None
    low, high = ratio["from"], ratio["to"]
    if name == "tokens_per_s":  # less is worse
        low, high = -high, -low
        bound = -(1 - WITHIN)
    else:
        bound = 1 + WITHIN
    return True if high <= bound else False if low > bound else None


def hidden_size(model):
    """Of a model folder; None of a file."""
    path = pathlib.Path(model, "config.json")
    if not path.exists():
        return None
    config = json.loads(path.read_text())
    return config.get("hidden_size") or config["text_config"]["hidden_size"]


def memory(arguments, url):
    metrics = lc.api.metrics(url)
    kept = metrics["sluice_gateway_stream_journal_streams"]
    a_stream = metrics["sluice_gateway_stream_journal_bytes"] / max(kept, 1)
    live = arguments.prompt + arguments.tokens
    hidden = hidden_size(arguments.model) if arguments.model else None
    return {"boundary_log_bytes_per_live_token":
            hidden and 4 * hidden * (arguments.stages - 1),
            "stream_journal_bytes_per_stream": round(a_stream),
            "stream_journal_bytes_per_live_token": round(a_stream / live, 2),
            "live_tokens_per_stream": live}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    paired.add_options(parser)
    arguments, counts = paired.parse(parser)
    used = {}

    def note_memory(kind, cluster):
        if kind == "on":
            used.update(memory(arguments, paired.leading(cluster)[0]))

    runs = paired.measure_rounds(
        arguments, counts, lambda kind: start(arguments, kind), note_memory)
    goals = [(f"{name} of {one['streams']} streams within {WITHIN:.0%} of "
              "those without", one[name]["ratio"],
              judge(name, one[name]["ratio"], arguments.rounds))
             for one in runs for name in paired.FIGURES]
    lc.finish(arguments, {"runs": runs, "memory": used}, goals)


if __name__ == "__main__":
    main()
