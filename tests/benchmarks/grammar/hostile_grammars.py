"""What hostile grammars do to plain streams beside them: the time between tokens
of 8 streams, alone and beside connections that send such grammars without pause.

usage: hostile_grammars.py URL [--streams 8] [--hostile 2] [--rounds 3]
                           [--seconds 15] [--out FILE]

URL: a gateway's, as http://127.0.0.1:8080. The two kinds of runs come in turns.
Before them each grammar is sent alone: its status and time.
"""

import argparse
import collections
import itertools
import json
import pathlib
import statistics
import threading
import time
import urllib.error
import urllib.request

import hostile_texts


def send(url, body):
    request = urllib.request.Request(url + "/v1/chat/completions", body,
                                     {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=120)


def hostile_bodies():
    return [json.dumps({"messages": [{"role": "user", "content": "Hi"}],
                        "max_tokens": 20, **fields}).encode()
            for fields in hostile_texts.request_fields()]


def ask(url, body):
    """(status, seconds) of one request."""
    begin = time.monotonic()
    try:
        with send(url, body) as answer:
            answer.read()
            status = answer.status
    except urllib.error.HTTPError as error:
        error.read()
        status = error.code
    return status, time.monotonic() - begin


def plain(url, gaps, end, seed):
    """Adds the milliseconds between a stream's tokens to `gaps`."""
    while time.monotonic() < end:
        body = json.dumps({
            "messages": [{"role": "user", "content": "Tell a long story."}],
            "max_tokens": 150, "ignore_eos": True, "stream": True,
            "seed": seed}).encode()
        with send(url, body) as answer:
            last = None
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                now = time.perf_counter()
                if last is not None:
                    gaps.append(1e3 * (now - last))
                last = now


def hostile(url, bodies, statuses, end, first):
    for index in itertools.count(first):
        if time.monotonic() > end:
            return
        status, _ = ask(url, bodies[index % len(bodies)])
        statuses[status] += 1


def run(url, streams, bodies, num_hostile, seconds):
    gaps, statuses = [], collections.Counter()
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=plain, args=(url, gaps, end, seed))
               for seed in range(streams)]
    threads += [threading.Thread(target=hostile,
                                 args=(url, bodies, statuses, end, 29 * index))
                for index in range(num_hostile)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gaps.sort()
    return {"tokens": len(gaps), "p50_ms": round(gaps[len(gaps) // 2], 2),
            "p99_ms": round(gaps[int(0.99 * len(gaps))], 2),
            "max_ms": round(gaps[-1], 1), "statuses": dict(statuses)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--hostile", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--out")
    options = parser.parse_args()
    bodies = hostile_bodies()
    alone = [(*ask(options.url, body), body) for body in bodies]
    dearest = max(alone, key=lambda one: one[1])
    report = {
        "grammars": len(alone),
        "statuses": dict(collections.Counter(one[0] for one in alone)),
        "longest_s": round(dearest[1], 2),
        "longest": dearest[2][-90:].decode(), "runs": []}
    print(json.dumps(report), flush=True)
    for _ in range(options.rounds):
        pair = {"alone": run(options.url, options.streams, bodies, 0,
                             options.seconds),
                "beside": run(options.url, options.streams, bodies,
                              options.hostile, options.seconds)}
        report["runs"].append(pair)
        print(json.dumps(pair), flush=True)
    report["p99_ratio"] = round(statistics.median(
        pair["beside"]["p99_ms"] / pair["alone"]["p99_ms"]
        for pair in report["runs"]), 2)
    print("p99_ratio", report["p99_ratio"])
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(report, indent=1) +
                                             "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
