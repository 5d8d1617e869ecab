"""What the load scripts share: a lean client, clusters, figures, reports.

The client speaks just enough HTTP/1.1 for streams of an OpenAI endpoint, on
one asyncio loop, so that it costs little beside the server it loads.
"""

import asyncio
import dataclasses
import datetime
import json
import multiprocessing
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.parse

import machine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

MIB = 1024 * 1024
# A finish reason that comes alone, after the last token.
_LAST = re.compile(rb'"text":"".*"finish_reason":"|'
                   rb'"finish_reason":"[^}]*"text":""')


@dataclasses.dataclass
class Answer:
    """One request's course; times are seconds of time.perf_counter()."""

    begun: float
    status: int = 0              # 0: no answer
    answered: float = 0          # when the status line was there
    headers: dict = dataclasses.field(default_factory=dict)
    times: list = dataclasses.field(default_factory=list)  # of every event
    data: list = dataclasses.field(default_factory=list)   # if kept
    done: bool = False           # [DONE] was seen
    ended: float = 0
    error: str = ""

    @property
    def ok(self):
        return self.status == 200 and self.done and not self.error

    @property
    def ttft(self):
        return self.times[0] - self.begun

    @property
    def gaps(self):
        """Times between tokens, in seconds."""
        return [b - a for a, b in zip(self.times, self.times[1:])]


def address_of(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


async def stream(address, body, *, path="/v1/completions", headers=(),
                 leave_after=None, keep=False, answer=None):
    """The Answer to a streamed request. `leave_after`: seconds after which
    the connection is cut. `keep`: keep the events' data. `answer`: one to fill
    in, for who looks at it meanwhile."""
    answer = answer or Answer(time.perf_counter())
    work = _stream(answer, address, body, path, headers, keep)
    try:
        await asyncio.wait_for(work, leave_after)
    except asyncio.TimeoutError:
        answer.error = "left"
    except (OSError, EOFError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    answer.ended = time.perf_counter()
    return answer


async def _stream(answer, address, body, path, headers, keep):
    raw = json.dumps({**body, "stream": True}).encode()
    head = [f"POST {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}",
            "Content-Type: application/json", "Connection: close",
            f"Content-Length: {len(raw)}", *headers, "", ""]
    reader, writer = await asyncio.open_connection(*address, limit=MIB)
    try:
        writer.write("\r\n".join(head).encode() + raw)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        answer.answered = time.perf_counter()
        answer.status = int(lines[0].split()[1])
        answer.headers = {name.lower(): value for name, _, value in
                          (line.partition(": ") for line in lines[1:])}
        if answer.status != 200:
            answer.error = (await reader.read()).decode(errors="replace")
            return
        while not answer.done:
            _take(answer, await reader.readuntil(b"\n\n"), keep)
    finally:
        writer.transport.abort()  # also cuts what is still being sent


def _take(answer, piece, keep):
    """One event; the chunk's frame before it is passed over."""
    at = piece.find(b"data: ")
    if at < 0:
        return
    data = piece[at + 6:].split(b"\n", 1)[0]
    if data == b"[DONE]":
        answer.done = True
    elif data.startswith(b'{"error"'):
        answer.error = data.decode(errors="replace")
    elif b'"choices":[]' not in data:
        if keep:
            answer.data.append(json.loads(data))
        if not _LAST.search(data):
            answer.times.append(time.perf_counter())


def gather(coroutine):
    """asyncio.run, with room for many sockets."""
    import resource  # of Unix alone, as the scripts are
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    return asyncio.run(coroutine)


def cluster(arguments, *options):
    """A cluster of `--model` (default: the default model)."""
    model = arguments.model or harness.default_model()
    return harness.Cluster(model, "--stages", str(arguments.stages), *options)


def model_name(url):
    return json.loads(api.get(url, "/v1/models")[1])["data"][0]["id"]


def prompt_ids(rng, count, end=40000):
    """Fresh ids below `end` every time, so that no prefix is found in the
    cache."""
    return [rng.randrange(min(1000, end // 2), end) for _ in range(count)]


class MemoryWatch:
    """Resident bytes of a cluster's processes over time."""

    def __init__(self, cluster_):
        self._pids = {f"{p['role']}-{p['index']}": p["pid"]
                      for p in cluster_.file["processes"]}
        self.samples = {name: [] for name in self._pids}

    def sample(self):
        now = time.monotonic()
        for name, pid in self._pids.items():
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            kib = int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
            self.samples[name].append((now, kib * 1024))

    async def run(self, seconds=5):
        while True:
            self.sample()
            await asyncio.sleep(seconds)

    def growth(self, after=60):
        """{process: MiB a minute}, least squares, without the first
        `after` seconds; None where too little was seen."""
        out = {}
        for name, samples in self.samples.items():
            begin = samples[0][0] + after
            points = [(t, v) for t, v in samples if t >= begin]
            out[name] = round(60 * slope(points) / MIB, 3) \
                if len(points) > 2 else None
        return out

    def peak(self):
        return {name: round(max(v for _, v in samples) / MIB)
                for name, samples in self.samples.items()}


def slope(points):
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    square = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / square


class Prober:
    """Asks paths again and again from a process of its own, so that the load
    client's own work is not in the figures."""

    def __init__(self, url, paths, interval):
        self._stop = multiprocessing.Event()
        self._receive, send = multiprocessing.Pipe(False)
        self._child = multiprocessing.Process(
            target=_probe, args=(url, paths, interval, self._stop, send))
        self._child.start()

    def finish(self):
        """{path: [(wall time, seconds, status)]}."""
        self._stop.set()
        out = self._receive.recv()
        self._child.join()
        return out


def _probe(url, paths, interval, stop, send):
    out = {path: [] for path in paths}
    while not stop.is_set():
        for path in paths:
            begin = time.perf_counter()
            status, _ = api.try_get(url, path, timeout=10)
            out[path].append((time.time(), time.perf_counter() - begin,
                              status))
        stop.wait(interval)
    send.send(out)


def percentile(values, share):
    """The value that `share` of the values do not exceed; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values, digits=4):
    """Smallest, p50, p90, p99 and largest."""
    if not values:
        return None
    return {"min": round(min(values), digits),
            **{f"p{int(100 * share)}": round(percentile(values, share),
                                             digits)
               for share in (.5, .9, .99)},
            "max": round(max(values), digits)}


def conditions():
    """What a figure means nothing without. For when nothing else runs."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"],
                            cwd=harness.ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    return {
        **machine.describe(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"),
        "command": " ".join(["tests/benchmarks/" + pathlib.Path(
            sys.argv[0]).name, *sys.argv[1:]]),
        "commit": commit}


def add_common_options(parser):
    parser.add_argument("--model", help="folder or GGUF (default: the "
                        "default model of deploy/local/up)")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--short", action="store_true",
                        help="a smoke test: small and quick")
    parser.add_argument("--json", metavar="FILE")
    # Ended from outside, a script still stops its cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def finish(arguments, report, goals):
    """Prints `report` and how it stands to `goals` ((what, seen, met); None:
    the figures do not tell), writes the JSON, ends the process: 0 if every goal
    was met, else 1."""
    report = {"conditions": conditions(), **report,
              "goals": [dict(zip(("goal", "seen", "met"), goal))
                        for goal in goals]}
    print(json.dumps({key: value for key, value in report.items()
                      if key != "goals"}, indent=1))
    for what, seen, met in goals:
        word = "unsure" if met is None else "met   " if met else "MISSED"
        print(f"{word}  {what}: {seen}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(
            json.dumps(report, indent=1) + "\n")
    sys.exit(0 if all(met for _, _, met in goals) else 1)
