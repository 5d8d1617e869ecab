#!/usr/bin/env python3
"""What a split by time gains over a split by memory, on hosts of unequal speed.

Network namespaces are the hosts of `up --hosts`, each with a share of a
processor (a control group's quota) and a memory. The same cluster is started
split by memory, split by time, and in every order and cut that fits the memory
(each `--grid`th). Prints the tokens/s of one stream, the split that is the
fastest, what the plan expected, and whether all answers were the same.

  tests/benchmarks/fleet_split.py [MODEL] [--host NAME:PROCESSORS:MEMORY]...
                                  [--tokens 60] [--rounds 3] [--grid 3]
                                  [--json FILE]

MODEL: by default the default model. Needs root, ip, sshd, control groups, and
as many processors as the shares add up to.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile

import fleet_links
import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
import ssh_machines  # noqa: E402

LAYERS = re.compile(r"^host (\S+): layers (\d+)-(\d+), ([\d.]+) ms", re.M)


def host(text):
    """NAME:PROCESSORS:MEMORY."""
    name, processors, memory = text.split(":")
    return name, float(processors), memory


def hosts_toml(machines, folder, options, cut=None):
    """`cut`: [(name, first, last)] in the order of the layers; None: no layers
    are named. The gateway is on the first host."""
    order = [name for name, _, _ in cut] if cut else [
        name for name, _, _ in options.host]
    layers = {name: f"{first}-{last}" for name, first, last in cut or ()}
    memory = {name: memory for name, _, memory in options.host}
    text = (f'model = "{options.model}"\n'
            f'gateway = "{options.host[0][0]}"\n')
    for name in order + [name for name in memory if name not in order]:
        text += (f'\n[hosts.{name}]\nssh = "{machines.destination(name)}"\n'
                 f'address = "{name}"\nthreads = 1\n'
                 f'run_dir = "{folder}/at-{name}"\n')
        if name in layers:
            text += f'layers = "{layers[name]}"\n'
        elif cut:
            text += "stages = 0\n"
        else:
            text += f'memory = "{memory[name]}"\n'
    path = pathlib.Path(folder, "hosts.toml")
    path.write_text(text)
    return path


def measure(machines, folder, options, cut=None, *words):
    """(tokens/s of one stream, the text, what `up` told)."""
    fleet = fleet_links.Fleet(
        machines, folder, hosts_toml(machines, folder, options, cut),
        options.host[0][0], *words)
    try:
        fleet.generate(options.prompt, 8)  # warm
        text, seconds = fleet.generate(options.prompt, options.tokens)
    finally:
        fleet.close()
    return (options.tokens - 1) / seconds, text, fleet.told


def cuts(count, most, grid):
    """Every order of one or more hosts, and every cut of `count` layers whose
    parts have at most `most` of each host; parts are multiples of `grid` but
    the last one."""
    names = list(most)
    for size in range(1, len(names) + 1):
        for order in itertools.permutations(names, size):
            for inner in itertools.product(range(grid, count, grid),
                                           repeat=size - 1):
                bounds = [0, *itertools.accumulate(inner), count]
                parts = [b - a for a, b in zip(bounds, bounds[1:])]
                if all(0 < part <= most[name]
                       for name, part in zip(order, parts)):
                    yield [(name, a, b - 1) for name, a, b in zip(
                        order, bounds, bounds[1:])]


def by_plan(told):
    return [(name, int(first), int(last))
            for name, first, last, _ in LAYERS.findall(told)]


def run(machines, folder, options):
    found = {"memory": [], "time": []}
    texts, told = set(), ""
    for _ in range(options.rounds):
        for name in found:
            rate, text, told_now = measure(machines, folder, options, None,
                                           "--split-by", name)
            found[name].append(rate)
            texts.add(text)
            told = told_now if name == "time" else told
            print(f"by {name}: {rate:.2f} tokens/s", flush=True)
    chosen = by_plan(told)
    count = chosen[-1][2] + 1
    brute = {}
    most = dict(zip([name for name, _, _ in options.host],
                    options.most_layers or [count] * len(options.host)))
    for cut in cuts(count, most, options.grid):
        rate, text, _ = measure(machines, folder, options, cut)
        texts.add(text)
        name = ", ".join(f"{host} {first}-{last}" for host, first, last in cut)
        brute[name] = rate
        print(f"{name}: {rate:.2f} tokens/s", flush=True)
    return {"rates": found, "chosen": chosen, "told": told, "brute": brute,
            "texts": len(texts)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", metavar="MODEL", default=None)
    parser.add_argument("--host", type=host, action="append", metavar="SPEC")
    parser.add_argument("--most-layers", metavar="N,...",
                        type=lambda text: list(map(int, text.split(","))),
                        help="that fit each host's memory, of the cuts that "
                        "are tried")
    parser.add_argument("--prompt", default="Once upon a time there was")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--grid", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.host is None:
        options.host = [host("fast:1:96M"), host("slow:0.25:96M")]
    if options.model is None:
        sys.path.insert(0, str(ROOT / "deploy/local/cluster"))
        import model
        options.model = model.fetch_default()
    options.model = pathlib.Path(options.model).absolute()
    missing = ssh_machines.lacks()
    if missing:
        parser.error(missing)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        machines = ssh_machines.Machines(
            folder, [name for name, _, _ in options.host])
        machines.open()
        try:
            for name, processors, _ in options.host:
                machines.slow(name, processors)
            found = run(machines, folder, options)
        finally:
            machines.close()
    rates = {name: statistics.median(values)
             for name, values in found["rates"].items()}
    best = max(found["brute"], key=found["brute"].get, default=None)
    print(f"\nby memory {rates['memory']:.2f}, by time {rates['time']:.2f} "
          f"tokens/s: {rates['time'] / rates['memory']:.2f} times as fast")
    if best:
        print(f"the best of {len(found['brute'])} cuts: {best}, "
              f"{found['brute'][best]:.2f} tokens/s")
    print(f"different answers: {found['texts'] - 1}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"what": "fleet_split", "command": sys.argv,
             "date": datetime.date.today().isoformat(),
             "machine": machine.describe(), "processors": os.cpu_count(),
             "hosts": options.host, **found}, indent=1) + "\n")
    return 1 if found["texts"] > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
