"""Clusters that parts of tests/gpu/run start: none outlives its part."""
import concurrent.futures
import contextlib
import ctypes
import functools
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import pipeline_bench  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position

AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # clusters that run
UP = 60  # seconds until a cluster of a small model has answered
ANSWER = 60  # seconds of an answer
DOWN = 60  # seconds until a cluster has ended that is asked to
KILL = 10  # seconds of kill()
TAIL = 4000  # bytes of a process's log that are kept
FOLLOWER_RANKS = "SLUICE_STAGE_FOLLOWER_RANKS"  # --follower-ranks


class Asked(typing.NamedTuple):
    """What a small model is run on."""
    devices: str
    numerics: str = "canonical"
    stages: int = 2
    ranks: int = 1
    variables: dict = {}  # of the environment
    experts: str = ""  # what a host of all experts is on; "": there is none
    # Of further processes, what a rank of the only stage is on in each.
    followers: tuple = ()


@contextlib.contextmanager
def cluster(options, log, end, environment, seconds=UP, followers=()):
    """A cluster of deploy/local/up with `options`, which is up within so many
    seconds; gives what its cluster.json has. Behind, it is asked to end. It is
    killed if what is within raises, and once programs are stopped.
    `followers`: of each, the command that brings a rank of the first stage, but
    for that one's address."""
    with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as run_dir, \
            programs.killed_by(functools.partial(kill, run_dir)), \
            _follow(followers, run_dir, environment):
        try:
            up = programs.lines_of(
                [ROOT / "deploy/local/up", "--detach", "--run-dir", run_dir,
                 "--port", "0", *options], log,
                min(end, time.monotonic() + seconds), seconds,
                env=environment)
            if up.code != 0:
                raise OSError(f"deploy/local/up: {up.why or up.code}: "
                              f"{''.join(up.said.splitlines()[-1:])}")
            yield json.loads(
                (pathlib.Path(run_dir) / "cluster.json").read_text())
            programs.lines_of(
                [ROOT / "deploy/local/down", "--run-dir", run_dir], log,
                min(end, time.monotonic() + DOWN), DOWN, env=environment)
        except BaseException:
            _keep_logs(run_dir, log)
            raise
        finally:
            kill(run_dir)


@contextlib.contextmanager
def _follow(commands, run_dir, environment):
    """Runs `commands`, which bring ranks, from when the first stage's address is
    known. They end with the stage, or are killed behind."""
    if not commands:
        yield
        return
    over, started = threading.Event(), []
    own = {name: value for name, value in environment.items()
           if name != FOLLOWER_RANKS}

    def start():
        address = None
        while address is None and not over.wait(0.05):
            with contextlib.suppress(OSError, ValueError, StopIteration):
                document = json.loads(
                    (pathlib.Path(run_dir) / "cluster.json").read_text())
                address = next(
                    process["addresses"][0] for process in document["processes"]
                    if process["role"] == "stage")
        for rank, command in enumerate(commands if address else (), 1):
            with open(f"{run_dir}/rank-{rank}.log", "wb") as log:
                started.append(subprocess.Popen(
                    [*command, "--first-rank", str(rank), "--lead", address],
                    stdout=log, stderr=log, env=own))

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for process in started:
            process.kill()
            process.wait()


def _keep_logs(run_dir, log):
    """Adds the ends of what a cluster's processes said to a file."""
    with open(log, "a", encoding="utf-8") as to:
        for path in sorted(pathlib.Path(run_dir).glob("*.log")):
            said = path.read_bytes()[-TAIL:].decode(errors="replace")
            to.write(f"{path}:\n{said}\n")


def kill(run_dir):
    """Kills what has a run folder in its command line, as all processes of a
    cluster have, and the commands that start and end it."""
    end = time.monotonic() + KILL
    while pids := list(_processes_of(os.fsencode(run_dir))):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return
        time.sleep(0.02)


def _processes_of(name):
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if name in (entry / "cmdline").read_bytes():
                yield int(entry.name)


def left(end):
    """Seconds that an answer may take."""
    return max(1.0, min(ANSWER, end - time.monotonic()))


class Client(pipeline_bench.Cluster):
    """Asks a cluster that is up for tokens, until `end`."""

    # pylint: disable-next=super-init-not-called
    def __init__(self, document, model, end):
        self.processes = document["processes"]
        self.address = document["url"].removeprefix("http://")
        self.model = model
        self.end = end

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        return http.client.HTTPConnection(host, int(port),
                                          timeout=left(self.end))


def answers(build, model, asked, log, end):
    """Greedy and drawn tokens of a model of a few layers, by a cluster."""
    environment = dict(os.environ, SLUICE_BUILD_DIR=str(build),
                       **asked.variables)
    if asked.followers:
        environment[FOLLOWER_RANKS] = str(len(asked.followers))
    options = ["--model", model, "--stages", str(asked.stages),
               "--ranks", str(asked.ranks), "--threads", "1",
               "--kv-blocks", "64", "--packed", "off",
               "--device", asked.devices, "--numerics", asked.numerics]
    if asked.experts:
        options += ["--expert-hosts", "1", "--expert-device", asked.experts]
    followers = [[pathlib.Path(build) / "services/stage/sluice-stage",
                  "--model", model, "--threads", "1", "--packed", "off",
                  "--device", device] for device in asked.followers]
    with cluster(options, log, end, environment,
                 followers=followers) as document:
        found = [complete(document["url"], model.name, temperature, end)
                 for temperature in (0, 0.8)]
        if asked.experts:
            missed = missing(metrics(document, end), asked, has_nvml())
            if missed:
                raise OSError("/metrics lack " + ", ".join(missed))
        return found


def metrics(document, end):
    """What /metrics of a cluster's stages say, and of its hosts of experts."""
    found = {"stage": "", "expert": ""}
    for process in document["processes"]:
        if process["role"] in found:
            with urllib.request.urlopen(
                    f"http://{process['metrics_address']}/metrics",
                    timeout=left(end)) as page:
                found[process["role"]] += page.read().decode()
    return found


def missing(said, asked, nvml):
    """Which series of a cluster with a host of experts are not there, or 0: the
    rows that the host computed, and with NVML the GPUs' memory."""
    wanted = [("expert", 'sluice_expert_rows_total{outcome="answered"}')]
    for role, devices in (("stage", asked.devices), ("expert", asked.experts)):
        if nvml and "cuda" in devices:
            wanted.append((role, f"sluice_{role}_gpu_memory_total_bytes{{"))
    return [name for role, name in wanted if not re.search(
        rf"(?m)^{re.escape(name)}.* (?!0$)\S+$", said[role])]


def has_nvml():
    """Whether the library that watches GPUs is there, and starts."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 0
    except (OSError, AttributeError):
        return False


def complete(url, model, temperature, end):
    body = {"model": model, "prompt": [5, 17, 9, 200, 31, 7], "seed": 3,
            "max_tokens": 24, "temperature": temperature, "logprobs": 1,
            "ignore_eos": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=left(end)) as answer:
        choice = json.load(answer)["choices"][0]
    return [choice["text"], choice["logprobs"]["token_logprobs"]]


def at_once(work):
    """What each of some functions returns, by its key; why, as text, in the
    place of what raises."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        coming = {key: pool.submit(one) for key, one in work.items()}
        try:
            return {key: _result(future) for key, future in coming.items()}
        except programs.Stopped:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _result(future):
    try:
        return future.result()
    # Whatever ends one, the others are looked at.
    except (Exception, SystemExit) as error:  # pylint: disable=broad-except
        return f"{type(error).__name__}: {error}"
