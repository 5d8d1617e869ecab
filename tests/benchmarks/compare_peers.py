#!/usr/bin/env python3
"""Sluice beside other CPU engines: random models of real shapes, one run.

All engines take turns within a round, each on the same model in its own format
(tests/testing/make_gguf.py, make_dllama.py): tokens a second of a prompt, of
one decoding sequence, and of some that decode together. Medians over rounds
and the medians of the rounds' ratios, ours to theirs. A ratio of two engines
stands though other programs run; a figure alone does not.

Peers are built elsewhere and named by the paths of their own tools; several may
be given as NAME=PATH. Without one there is nothing to compare: exit code 0.

  compare_peers.py --llama-bench ik=PATH/llama-bench \\
      --llama-batched-bench ik=PATH/llama-batched-bench \\
      --bench-options ik='-rtr 1' --batched-options ik=-rtr \\
      --dllama PATH/dllama --types Q4_0 --rounds 5 --csv peers.csv

llama-bench measures prompt and decode of one sequence, llama-batched-bench some
sequences, llama-server HTTP (peer_http.py, on --gguf or the default model),
dllama prompt and decode of Q4_0. Keys and values: F32 here, F16 in llama.cpp.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ("prefill", "decode", "batch")
# llama-batched-bench's context before it decodes; decode_bench has the same.
BATCH_CONTEXT = 16


def run(command, arguments, with_errors=False):
    """What the command prints, its threads pinned; SystemExit if it fails.
    Peers leave logs where they run: a folder that is gone afterwards."""
    environment = dict(os.environ)
    if arguments.pin:
        cores = range(arguments.threads)
        environment["GOMP_CPU_AFFINITY"] = " ".join(map(str, cores))
        command = ["taskset", "-c", ",".join(map(str, cores)), *command]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            list(map(str, command)), env=environment, text=True, cwd=folder,
            capture_output=True, check=False, timeout=1800,
            stdin=subprocess.DEVNULL, errors="replace")
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status "
                         f"{done.returncode}\n"
                         f"{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + (done.stderr if with_errors else "")


def read_llama_bench(text):
    """{"prefill", "decode"} of llama-bench's JSON."""
    out = {}
    for row in json.loads(text[text.index("["):]):
        figure = "decode" if row["n_gen"] > 0 else "prefill"
        out[figure] = float(row["avg_ts"])
    return out


def read_batched_bench(text):
    """{"batch"} of the last row of llama-batched-bench's table."""
    rows = re.findall(r"^\|(?:\s*[\d.]+\s*\|){10}\s*$", text, re.MULTILINE)
    if not rows:
        raise SystemExit(f"no row of a table: {text[-500:]!r}")
    return {"batch": float(rows[-1].split("|")[8])}


def read_dllama(text):
    """{"prefill", "decode"} of dllama's last lines."""
    rates = re.findall(r"tokens/s:\s*([\d.]+)", text)
    if len(rates) != 2:
        raise SystemExit(f"not two rates: {text[-500:]!r}")
    return {"prefill": float(rates[0]), "decode": float(rates[1])}


class Engines:
    """The engines and how each is asked; `models` are the files of a type."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.names = ["sluice"]
        for option in (arguments.llama_bench, arguments.llama_batched_bench):
            self.names += [name for name in option if name not in self.names]
        if arguments.dllama:
            self.names.append("dllama")

    def measure(self, name, models):
        """{figure: tokens a second} of one turn of an engine."""
        if name == "sluice":
            return self._sluice(models["gguf"])
        if name == "dllama":
            return self._dllama(models["dllama"]) if "dllama" in models else {}
        return self._llama(name, models["gguf"])

    def _sluice(self, model):
        a = self.arguments
        return json.loads(run(
            [a.decode_bench, model, "--threads", a.threads, "--pin",
             "true" if a.pin else "false", "--once",
             f"{a.prefill},{a.decode},{a.streams}",
             *a.sluice_options.split()], a))

    def _llama(self, name, model):
        a, out = self.arguments, {}
        if name in a.llama_bench:
            out |= read_llama_bench(run(
                [a.llama_bench[name], "-m", model, "-t", a.threads, "-p",
                 a.prefill, "-n", a.decode, "-r", 1, "-o", "json",
                 *a.bench_options.get(name, "").split()], a))
        if name in a.llama_batched_bench:
            room = a.streams * (BATCH_CONTEXT + a.decode)
            out |= read_batched_bench(run(
                [a.llama_batched_bench[name], "-m", model, "-c", room + 256,
                 "-t", a.threads, "-tb", a.threads, "-npp", BATCH_CONTEXT,
                 "-ntg", a.decode, "-npl", a.streams,
                 *a.batched_options.get(name, "").split()], a, True))
        return out

    def _dllama(self, model):
        a = self.arguments
        return read_dllama(run(
            [a.dllama, "inference", "--model", f"{model}.m", "--tokenizer",
             f"{model}.t", "--buffer-float-type", "q80", "--max-seq-len",
             a.prefill + a.decode + 64, "--temperature", 0, "--nthreads",
             a.threads, "--steps", a.prefill + a.decode, "--prompt",
             "ab" * (a.prefill // 2)], a))


def make_models(arguments, type_name, folder):
    """{"gguf": file, "dllama": its name without .m} of a type."""
    venv = ROOT / "build/venv/bin/python3"
    python = venv if venv.exists() else sys.executable
    at = folder / f"{arguments.preset}-{type_name}"
    models = {"gguf": at.with_suffix(".gguf")}
    made = [("make_gguf.py", models["gguf"], models["gguf"],
             ["--type", type_name])]
    if arguments.dllama and type_name == "Q4_0":
        models["dllama"] = at
        made.append(("make_dllama.py", at, at.with_suffix(".m"), []))
    for script, out, file, more in made:
        if not file.exists():
            subprocess.run([python, ROOT / "tests/testing" / script, "--preset",
                            arguments.preset, "--out", out, *more], check=True)
    return models


def compare(engines, models, rounds):
    """[{engine: {figure: tokens a second}} of each round]; turns alternate."""
    out = []
    order = list(engines.names)
    for number in range(rounds):
        out.append({name: engines.measure(name, models) for name in order})
        print(f"round {number + 1} of {rounds}: " + "; ".join(
            f"{name} " + ", ".join(f"{value:.1f}" for value in seen.values())
            for name, seen in out[-1].items()), flush=True)
        order.reverse()
    return out


def summary(rounds, names):
    """{figure: {engine: {"median", "least", "most", "ratio"}}}; the ratio is
    the median over rounds of ours to theirs."""
    out = {}
    for figure in FIGURES:
        for name in names:
            pairs = [(seen["sluice"][figure], seen[name][figure])
                     for seen in rounds if figure in seen[name]]
            if not pairs:
                continue
            theirs = [value for _, value in pairs]
            out.setdefault(figure, {})[name] = {
                "median": statistics.median(theirs), "least": min(theirs),
                "most": max(theirs), "ratio": round(statistics.median(
                    ours / value for ours, value in pairs), 3)}
    return out


def fastest(row):
    """The fastest peer of a figure, and our ratio to it; None without one."""
    peers = {name: seen for name, seen in row.items() if name != "sluice"}
    if not peers:
        return None
    name = max(peers, key=lambda peer: peers[peer]["median"])
    return name, peers[name]["ratio"]


def table(results):
    lines = [f"{'type':8} {'figure':8} {'engine':12} {'tokens/s':>9} "
             f"{'least':>9} {'most':>9} {'ours to it':>10}"]
    for type_name, figures in results.items():
        for figure, row in figures.items():
            for name, seen in row.items():
                lines.append(f"{type_name:8} {figure:8} {name:12} "
                             f"{seen['median']:>9.2f} {seen['least']:>9.2f} "
                             f"{seen['most']:>9.2f} {seen['ratio']:>10.3f}")
    return "\n".join(lines)


def write_csv(path, runs):
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["type", "round", "engine", "figure", "tokens_per_s"])
        for type_name, rounds in runs.items():
            for number, seen in enumerate(rounds, 1):
                for name, figures in seen.items():
                    for figure, value in figures.items():
                        out.writerow([type_name, number, name, figure, value])


def plot(results):
    """An SVG: a bar per peer and figure, our ratio to it; a line at 1."""
    bars = [(f"{type_name} {figure}, {name}", seen["ratio"])
            for type_name, figures in results.items()
            for figure, row in figures.items()
            for name, seen in row.items() if name != "sluice"]
    unit = 400 / max([1.0, *[ratio for _, ratio in bars]])
    height = 22 * len(bars) + 30
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="700" '
             f'height="{height}" font-family="sans-serif" font-size="12">',
             '<text x="5" y="15">tokens a second, ours to theirs</text>']
    for row, (name, ratio) in enumerate(bars):
        y = 22 * row + 25
        lines += [f'<text x="5" y="{y + 13}">{name}</text>',
                  f'<rect x="220" y="{y}" width="{ratio * unit:.1f}" '
                  f'height="17" fill="{"#4a7" if ratio >= 1 else "#c64"}"/>',
                  f'<text x="{225 + ratio * unit:.1f}" y="{y + 13}">'
                  f'{ratio:.2f}</text>']
    one = 220 + unit
    lines += [f'<line x1="{one:.1f}" x2="{one:.1f}" y1="22" y2="{height}" '
              'stroke="black"/>', "</svg>"]
    return "\n".join(lines) + "\n"


def over_http(arguments):
    """{peer: what peer_http.py found} of each llama-server."""
    out = {}
    for name, path in arguments.llama_server.items():
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable,
                       pathlib.Path(__file__).with_name("peer_http.py"),
                       "--peer", path, "--threads", str(arguments.threads),
                       "--rounds", str(arguments.rounds), "--json", file.name,
                       "--peer-options",
                       arguments.server_options.get(name, "")]
            if arguments.gguf:
                command += ["--gguf", arguments.gguf]
            # Its exit status tells of a goal; what it wrote is wanted.
            subprocess.run(command, check=False)
            text = pathlib.Path(file.name).read_text(encoding="utf-8")
            if not text:
                raise SystemExit(f"peer_http.py wrote nothing for {name}")
            out[name] = json.loads(text)
    return out


def named(words):
    """{name: value} of NAME=VALUE; a value alone is that of "llama.cpp"."""
    out = {}
    for word in words:
        name, equals, value = word.partition("=")
        out[name if equals else "llama.cpp"] = value if equals else word
    return out


def parse(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for tool in ("llama-bench", "llama-batched-bench", "llama-server"):
        parser.add_argument(f"--{tool}", action="append", default=[],
                            metavar="[NAME=]PATH")
    for tool in ("bench", "batched", "server"):
        parser.add_argument(f"--{tool}-options", action="append", default=[],
                            metavar="NAME='WORDS'")
    parser.add_argument("--dllama", metavar="PATH")
    parser.add_argument("--decode-bench", metavar="PATH", default=(
        pathlib.Path(os.environ.get("SLUICE_BUILD_DIR")
                     or ROOT / "build/release")
        / "tests/benchmarks/model/decode_bench"))
    parser.add_argument("--sluice-options", default="", metavar="'WORDS'",
                        help="of decode_bench, as '--isa avx2'")
    parser.add_argument("--preset", default="llama1b", help="of make_gguf.py")
    parser.add_argument("--model", metavar="GGUF",
                        help="measured in the place of random models")
    parser.add_argument("--types", default="Q4_0,Q8_0,Q4_K")
    parser.add_argument("--models", help="folder that keeps the models")
    parser.add_argument("--gguf", help="what llama-server serves")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-pin", dest="pin", action="store_false")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    for kind in ("json", "csv", "plot"):
        parser.add_argument(f"--{kind}", metavar="FILE")
    arguments = parser.parse_args(words)
    for option in ("llama_bench", "llama_batched_bench", "llama_server",
                   "bench_options", "batched_options", "server_options"):
        setattr(arguments, option, named(getattr(arguments, option)))
    # Tools run in folders of their own.
    for tools in (arguments.llama_bench, arguments.llama_batched_bench,
                  arguments.llama_server):
        for name, path in tools.items():
            tools[name] = os.path.abspath(path)
    for option in ("dllama", "decode_bench", "gguf", "model"):
        path = getattr(arguments, option)
        setattr(arguments, option, path and os.path.abspath(path))
    return arguments


def main():
    arguments = parse()
    engines = Engines(arguments)
    if len(engines.names) == 1 and not arguments.llama_server:
        print("no peer is named: nothing to compare")
        return
    runs = {}
    with tempfile.TemporaryDirectory() as own:
        folder = pathlib.Path(arguments.models or own).resolve()
        folder.mkdir(exist_ok=True, parents=True)
        types = ([pathlib.Path(arguments.model).stem] if arguments.model
                 else arguments.types.split(","))
        for type_name in types if len(engines.names) > 1 else []:
            models = ({"gguf": arguments.model} if arguments.model
                      else make_models(arguments, type_name, folder))
            runs[type_name] = compare(engines, models, arguments.rounds)
    results = {type_name: summary(rounds, engines.names)
               for type_name, rounds in runs.items()}
    print(table(results))
    for type_name, figures in results.items():
        for figure, row in figures.items():
            found = fastest(row)
            if found:
                print(f"{type_name} {figure}: {found[1]:.2f} times the "
                      f"fastest peer, {found[0]}")
    http = over_http(arguments)
    if arguments.csv:
        write_csv(arguments.csv, runs)
    if arguments.plot:
        pathlib.Path(arguments.plot).write_text(plot(results),
                                                encoding="utf-8")
    described = machine.describe()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({
            "command": sys.argv[1:], "machine": described, "rounds": runs,
            "ours_to_theirs": results, "http": http}, indent=1) + "\n",
            encoding="utf-8")


if __name__ == "__main__":
    main()
