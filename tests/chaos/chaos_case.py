"""A cluster under faults and streams, and the checks of both."""

import itertools
import json
import os
import pathlib
import random
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import api  # noqa: E402
import harness  # noqa: E402

import traffic  # noqa: E402

MODEL = harness.ROOT / "deploy/demo_model/weights"
# In each of the four clusters.
FAULTS = int(os.environ.get("SLUICE_CHAOS_FAULTS", 75 if harness.LONG else 0))
# Where that says nothing: a few, in two of the clusters, that hold nothing for
# long.
SHORT = {"supervised": 3, "machines": 2}
SHORT_SECONDS = 1.5
SEED = int(os.environ.get("SLUICE_CHAOS_SEED", random.randrange(1 << 30)))
# Seconds after which no further fault begins; 0: none.
SECONDS = float(os.environ.get("SLUICE_CHAOS_SECONDS", 0))
LONG = "long: set SLUICE_LONG or SLUICE_CHAOS_FAULTS"
READY_WITHIN = 60
COUNTERS = ("recoveries", "replayed_tokens", "kept_tokens", "resplits")


def is_ready(cluster):
    return api.try_get(cluster.url, "/readyz", 5)[0] == 200


def share(values, part):
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


class Run:
    """What befell one cluster, as data."""

    def __init__(self, name):
        self.name = name
        self.kinds = {}
        self.faults = 0
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._seen = dict(self.counters)

    def add(self, kind, begin, end, ready):
        """Moments: of the fault's begin and end, and of readiness after it."""
        self.faults += 1
        entry = self.kinds.setdefault(
            kind, {"count": 0, "ready_seconds": [], "spans": []})
        entry["count"] += 1
        entry["ready_seconds"].append(round(ready - end, 2))
        entry["spans"].append((begin, ready))

    def count(self, cluster):
        """Adds what the gateway has counted since; a new one begins at 0.
        Returns the recoveries of all."""
        metrics = api.metrics(cluster.url)
        for name in COUNTERS:
            now = metrics[f"sluice_gateway_{name}_total"]
            before = self._seen[name]
            self.counters[name] += now - before if now >= before else now
            self._seen[name] = now
        return self.counters["recoveries"]

    def document(self, load):
        for entry in self.kinds.values():
            entry["pause_seconds"] = [round(load.pause_within(*span), 2)
                                      for span in entry.pop("spans")]
        return {"cluster": self.name, "seed": SEED, "faults": self.faults,
                "kinds": self.kinds, "streams": load.done, **load.counts,
                "wrong": len(load.wrong), **self.counters,
                "gaps_seconds": [round(gap, 3) for gap in load.gaps]}


class ChaosCase(unittest.TestCase):
    # Seconds from the beginning of a fault to that of the next one, at least.
    EVERY = 0
    # Seconds between two streams of a client, on average.
    PACE = 0

    def after_fault(self, cluster):
        """The cluster is ready again."""

    def after_streams(self, cluster):
        """No client asks for anything."""

    def check(self, name, cluster, kinds, count=None):
        count = count or FAULTS or SHORT[name]
        print(f"SLUICE_CHAOS_SEED={SEED} SLUICE_CHAOS_FAULTS={count}",
              flush=True)
        draw = random.Random(SEED)
        bodies = list(itertools.chain.from_iterable(
            traffic.requests(draw) for _ in range(2 if FAULTS else 1)))
        harness.wait_for(lambda: is_ready(cluster), READY_WITHIN, "ready")
        want = []
        for body in bodies:
            calm = traffic.Stream(cluster.url, *body)
            self.assertEqual((calm.told.problem, calm.cut, calm.troubles),
                             (None, None, []), body)
            want.append(calm.told.whole())
        load = traffic.Load(cluster.url, bodies, want, draw, self.PACE)
        run = Run(name)
        try:
            befalls = kinds(cluster, draw, load)
            if not FAULTS and name in SHORT:
                befalls.longest = SHORT_SECONDS
            self.inject(cluster, befalls, run, count)
            load.stop()
            self.assertEqual(load.wrong, [])
            run.count(cluster)
            self.after_streams(cluster)
            self.tell(run, load)
        except BaseException:
            self.keep_logs(cluster, load, run)
            raise
        finally:
            load.stop()

    def inject(self, cluster, kinds, run, count):
        draw, load = kinds.draw, kinds.load
        start = begin = time.monotonic()
        for number in range(count):
            if SECONDS and time.monotonic() > start + SECONDS:
                break
            time.sleep(max(0.2 + draw.random(),
                           number and begin + self.EVERY - time.monotonic()))
            gateway = kinds.gateway()
            begin = time.monotonic()
            kind, what = kinds.next() if number else kinds.certain()
            end = time.monotonic()
            time.sleep(0.3)  # for the gateway to notice
            harness.wait_for(lambda: is_ready(cluster), READY_WITHIN,
                             f"ready after fault {number}, {kind}: {what}")
            load.gateway_is_back()
            ready = time.monotonic()
            run.count(cluster)
            if number == 0:  # it must have been felt
                harness.wait_for(lambda: run.count(cluster) > 0, 30,
                                 f"a recovery after {kind}: {what}")
            if kind not in kinds.OF_GATEWAY:
                self.assertEqual(kinds.gateway(), gateway,
                                 f"another gateway after {kind}: {what}")
            run.add(kind, begin, end, ready)
            print(f"  {number}: {kind}: {what}; ready after "
                  f"{ready - end:.2f} s", flush=True)
            self.assertEqual(load.wrong, [], f"{kind}: {what}")
            self.after_fault(cluster)

    @staticmethod
    def tell(run, load):
        print(f"{run.faults} faults, {load.done} streams, {load.counts}, "
              f"{run.counters}; the longest gap of a stream: p50 "
              f"{share(load.gaps, 0.5):.2f} s, p99 "
              f"{share(load.gaps, 0.99):.2f} s, worst {max(load.gaps):.2f} s",
              flush=True)
        folder = os.environ.get("SLUICE_CHAOS_RESULTS")
        if folder:
            path = pathlib.Path(folder, f"{run.name}-{SEED}.json")
            path.write_text(json.dumps(run.document(load)))

    @staticmethod
    def keep_logs(cluster, load, run):
        folder = os.environ.get("SLUICE_CHAOS_LOGS")
        if folder:
            path = pathlib.Path(folder, f"{run.name}-{SEED}")
            path.mkdir(parents=True, exist_ok=True)
            (path / "wrong.json").write_text(json.dumps(load.wrong, indent=1))
            (path / "cluster.log").write_text(cluster.logs(100000))
            print(f"the logs are in {path}", flush=True)

