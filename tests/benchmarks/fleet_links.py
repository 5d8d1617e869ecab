#!/usr/bin/env python3
"""What the way between machines costs a cluster of `up --hosts`.

Three network namespaces are the machines: two stages and the gateway, mTLS
between them, started by one command over ssh. The same two stages and gateway
on one machine are the baseline. Links are made longer by relays, so much one
way; every case takes its turn in each round. Prints medians of tokens/s of one
stream and of eight, tells whether every answer was the same, and at its end the
machine.

  tests/benchmarks/fleet_links.py [MODEL] [--tokens 120] [--rounds 3]
                                  [--delays 1,20] [--json FILE]

MODEL: by default `stories` (tests/golden), whose steps are short, so that links are what is
measured. Needs root, ip and sshd.
"""

import argparse
import concurrent.futures
import datetime
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
import ssh_machines  # noqa: E402

STREAMS = 8
NAMES = ("a", "b", "c")
PORTS = (7001, 7002)
LOCAL = ROOT / "deploy/local"


def hosts_toml(machines, folder, model, spread):
    """Stages on a and b and the gateway on c, or all of them on c."""
    stages = {"a": 1, "b": 1, "c": 0} if spread else {"c": 2}
    text = f'model = "{model}"\ngateway = "c"\n'
    for name, count in stages.items():
        text += (f'\n[hosts.{name}]\nssh = "{machines.destination(name)}"\n'
                 f'address = "{name}"\nstages = {count}\nthreads = '
                 f'{max(1, count)}\nrun_dir = "{folder}/at-{name}"\n')
    path = pathlib.Path(folder, "hosts.toml")
    path.write_text(text)
    return path


class Fleet:
    """A cluster over the machines of a hosts.toml, with its gateway on
    `gateway`."""

    def __init__(self, machines, folder, hosts, gateway, *options):
        self._address = machines.address(gateway)
        self._run_dir = pathlib.Path(folder, "run")
        self._environment = {**os.environ, "SLUICE_SSH": machines.ssh}
        self.told = self._run("up", "--hosts", hosts, "--detach",
                              "--host", "0.0.0.0", "--open", *options)

    def _run(self, command, *options):
        """What the command said."""
        done = subprocess.run(
            [str(LOCAL / command), "--run-dir", str(self._run_dir),
             *map(str, options)], env=self._environment, capture_output=True,
            text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stderr

    def close(self):
        self._run("down")

    def generate(self, prompt, tokens):
        """The text, and the seconds from its first token to its last."""
        connection = http.client.HTTPConnection(self._address, 8080,
                                                timeout=600)
        connection.request("POST", "/v1/completions", json.dumps({
            "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text, times = "", []
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
                text += json.loads(line[6:])["choices"][0]["text"]
        connection.close()
        return text, times[-1] - times[0]

    def measure(self, tokens):
        """(tokens/s of one stream, of several in all, their texts)."""
        prompts = [f"Once upon a time there were {count + 2} friends"
                   for count in range(STREAMS)]
        self.generate(prompts[0], tokens)  # warm
        _, seconds = self.generate(prompts[0], tokens)
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            begin = time.perf_counter()
            texts = [text for text, _ in pool.map(
                lambda prompt: self.generate(prompt, tokens), prompts)]
            many = STREAMS * tokens / (time.perf_counter() - begin)
        return (tokens - 1) / seconds, many, texts


def measure_all(machines, folder, options):
    """{case: [(one, many), ...]}, and how many texts differ from the first
    round's on one machine."""
    cases = [("one machine", False, 0), ("three machines", True, 0), *(
        (f"three machines, {delay:g} ms", True, delay)
        for delay in options.delays)]
    found = {name: [] for name, _, _ in cases}
    expected, different = None, 0
    for _ in range(options.rounds):
        for name, spread, delay in cases:
            if delay:
                machines.delay(delay, PORTS)
            else:
                machines.direct()
            fleet = Fleet(machines, folder, hosts_toml(
                machines, folder, options.model, spread), "c",
                "--split-by", "memory")
            try:
                one, many, texts = fleet.measure(options.tokens)
            finally:
                fleet.close()
            expected = expected or texts
            different += sum(a != b for a, b in zip(texts, expected))
            found[name].append((one, many))
            print(f"{name}: {one:.1f} and {many:.1f} tokens/s", flush=True)
    return found, different


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", metavar="MODEL",
                        default=ROOT / "build/golden/stories")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delays", default=[1, 20],
                        type=lambda text: list(map(float, text.split(","))))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.model = pathlib.Path(options.model).absolute()
    if not options.model.exists():
        parser.error(f"there is no {options.model}")
    missing = ssh_machines.lacks()
    if missing:
        parser.error(missing)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        machines = ssh_machines.Machines(folder, NAMES)
        machines.open()
        try:
            found, different = measure_all(machines, folder, options)
        finally:
            machines.close()
    medians = {name: [statistics.median(column) for column in zip(*rows)]
               for name, rows in found.items()}
    print(f"\n{'tokens/s':28} {'1 stream':>9} {STREAMS:>4} streams")
    for name, (one, many) in medians.items():
        print(f"{name:28} {one:9.1f} {many:12.1f}")
    print(f"answers that differ: {different}")
    figures = {"what": "fleet_links", "command": sys.argv,
               "date": datetime.date.today().isoformat(),
               "machine": machine.describe(), "rounds": found,
               "medians": medians, "different": different}
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps(figures, indent=1) + "\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
