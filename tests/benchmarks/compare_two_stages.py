#!/usr/bin/env python3
"""Two processes with one core each, beside engines that split models too.

All take turns within a round on the same random model (make_gguf.py,
make_dllama.py), in Q4_0: Sluice as two stages behind its gateway, over HTTP;
llama.cpp with half of the layers in an rpc-server; distributed-llama as a root
and a worker. Tokens a second of a prompt and of one decoding sequence; medians
over rounds and of the rounds' ratios, ours to theirs. Sluice's gateway and the
client here share the two cores.

  compare_two_stages.py --llama-bench PATH --rpc-server PATH --dllama PATH \\
      [--preset llama1b] [--models DIR] [--rounds 5] [--json FILE]

Peers are built elsewhere. Without one there is nothing to compare: exit code 0.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import tempfile
import time

import compare_peers
import machine
import peer_http
import pipeline_bench

TYPE = "Q4_0"


@contextlib.contextmanager
def server(command, port):
    """A peer's process on core 1, once it listens on the port."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(["taskset", "-c", "1", *map(str, command)],
                                 stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=log)
        try:
            end = time.monotonic() + 60
            while not listens(child.pid, port):
                if child.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} does not listen: "
                                     f"{log.read()[-2000:].decode()}")
                time.sleep(0.1)
            yield
        finally:
            child.terminate()
            child.wait(30)


def listens(pid, port):
    """By /proc: a worker takes one connection, so none is tried."""
    wanted = f":{port:04X} "
    with contextlib.suppress(OSError), \
            open(f"/proc/{pid}/net/tcp", encoding="ascii") as table:
        return any(wanted in line and " 0A " in line for line in table)
    return False


def one_core(command):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["taskset", "-c", "0", *map(str, command)], text=True, cwd=folder,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=1800, errors="replace")
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: exit status {done.returncode}\n"
                         f"{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


class Engines:
    def __init__(self, arguments, models, cluster):
        self._arguments = arguments
        self._models = models
        self._cluster = cluster
        self._random = random.Random(1)
        self.names = ["sluice"]
        if arguments.llama_bench:
            self.names.append("llama.cpp")
        if arguments.dllama:
            self.names.append("dllama")

    def measure(self, name, _):
        return {"sluice": self._sluice, "llama.cpp": self._llama,
                "dllama": self._dllama}[name]()

    def _sluice(self):
        a = self._arguments
        first, _, _ = self._cluster.generate(
            pipeline_bench.prompt_ids(self._random, a.prefill), 1)
        begin, total, count = self._cluster.generate(
            pipeline_bench.prompt_ids(self._random, 16), a.decode)
        return {"prefill": a.prefill / first,
                "decode": (count - 1) / (total - begin)}

    def _llama(self):
        a, port = self._arguments, peer_http.free_port()
        with server([a.rpc_server, "--host", "127.0.0.1", "--port", port,
                     "--threads", 1], port):
            return compare_peers.read_llama_bench(one_core(
                [a.llama_bench, "-m", self._models["gguf"], "-t", 1, "-ngl",
                 a.remote_layers, "--rpc", f"127.0.0.1:{port}", "-p",
                 a.prefill, "-n", a.decode, "-r", 1, "-o", "json"]))

    def _dllama(self):
        a, port = self._arguments, peer_http.free_port()
        model = self._models["dllama"]
        with server([a.dllama, "worker", "--port", port, "--nthreads", 1],
                    port):
            return compare_peers.read_dllama(one_core(
                [a.dllama, "inference", "--model", f"{model}.m",
                 "--tokenizer", f"{model}.t", "--buffer-float-type", "q80",
                 "--max-seq-len", a.prefill + a.decode + 64, "--temperature",
                 0, "--nthreads", 1, "--steps", a.prefill + a.decode,
                 "--workers", f"127.0.0.1:{port}", "--prompt",
                 "ab" * (a.prefill // 2)]))


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llama-bench", metavar="PATH")
    parser.add_argument("--rpc-server", metavar="PATH")
    parser.add_argument("--dllama", metavar="PATH")
    parser.add_argument("--remote-layers", type=int, default=8,
                        help="of llama.cpp's, on the rpc-server")
    parser.add_argument("--preset", default="llama1b", help="of make_gguf.py")
    parser.add_argument("--models", help="folder that keeps the models")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if bool(arguments.llama_bench) != bool(arguments.rpc_server):
        parser.error("--llama-bench and --rpc-server go together")
    for option in ("llama_bench", "rpc_server", "dllama"):
        path = getattr(arguments, option)
        setattr(arguments, option, path and os.path.abspath(path))
    return arguments


def main():
    arguments = parse()
    if not arguments.llama_bench and not arguments.dllama:
        print("no peer is named: nothing to compare")
        return
    with tempfile.TemporaryDirectory() as own:
        folder = pathlib.Path(arguments.models or own).resolve()
        folder.mkdir(exist_ok=True, parents=True)
        models = compare_peers.make_models(arguments, TYPE, folder)
        cluster = pipeline_bench.Cluster(str(models["gguf"]), 2, 1)
        try:
            cluster.pin([0, 1])
            engines = Engines(arguments, models, cluster)
            rounds = compare_peers.compare(engines, models, arguments.rounds)
        finally:
            cluster.close()
    results = {TYPE: compare_peers.summary(rounds, engines.names)}
    print(compare_peers.table(results))
    described = machine.describe()
    print(json.dumps(described))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(
            {"what": __doc__.splitlines()[0], "preset": arguments.preset,
             "prefill": arguments.prefill, "decode": arguments.decode,
             "results": results, "rounds": rounds, "machine": described},
            indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
