"""What the processes of a cluster hold while they live: memory, descriptors,
threads."""

import pathlib
import statistics
import time

import faults

KINDS = ("rss_mb", "descriptors", "threads")
# How much more the last quarter of a life may hold than the second one.
ROOM = {"rss_mb": lambda held: 4 + 0.05 * held,
        "descriptors": lambda held: 8, "threads": lambda held: 4}


def held_by(pid):
    """{kind: value}; nothing if the process is gone."""
    process = pathlib.Path("/proc", str(pid))
    try:
        status = dict(line.split(":", 1) for line in
                      (process / "status").read_text().splitlines())
        return {"rss_mb": int(status["VmRSS"].split()[0]) / 1024,
                "descriptors": len(list((process / "fd").iterdir())),
                "threads": int(status["Threads"])}
    except (OSError, KeyError, ValueError):
        return None


class Residents:
    """Samples of every process, by name and pid; `others` {name: pid}: those
    that are not in cluster.json."""

    def __init__(self, others):
        self._others = others
        self._lives = {}

    def look(self, cluster):
        here = {faults.named(entry): entry["pid"]
                for entry in cluster.file["processes"] if faults.runs(entry)}
        for name, pid in {**here, **self._others}.items():
            held = held_by(pid)
            if held is not None:
                self._lives.setdefault((name, pid), []).append(
                    (time.monotonic(), held))

    def long_lives(self, seconds):
        """[{process, seconds, kind: [in the second quarter, in the last]}] of
        those that have lived for `seconds`; medians."""
        found = []
        for (name, _), samples in sorted(self._lives.items()):
            begin, end = samples[0][0], samples[-1][0]
            if end - begin < seconds:
                continue
            quarters = [[held for moment, held in samples
                         if since <= (moment - begin) / (end - begin) <= to]
                        for since, to in ((0.25, 0.5), (0.75, 1))]
            if not all(quarters):
                continue
            found.append({
                "process": name, "seconds": round(end - begin),
                **{kind: [round(statistics.median(held[kind] for held in part),
                                1) for part in quarters] for kind in KINDS}})
        return found


def grown(lives):
    """Those that hold more at last, in words."""
    return [f"{life['process']}, {life['seconds']} s: {kind} "
            f"{life[kind][0]}, then {life[kind][1]}"
            for life in lives for kind in KINDS
            if life[kind][1] > life[kind][0] + ROOM[kind](life[kind][0])]
