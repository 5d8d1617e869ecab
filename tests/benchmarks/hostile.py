#!/usr/bin/env python3
"""What one client that sends the worst allowed requests does to another's.

Two API keys. B's streams run for a while alone (calm), and then while A sends,
over --connections connections and without a pause, what costs the most that
is allowed: texts of megabytes to tokenize, answers with the logprobs of whole
prompts for many choices, histories of many tool calls, generations of the
longest length for many choices, prompts that fill the context; and reads some
of the answers slowly. A's client is a process of its own at the lowest
priority: its own work on the same cores is not what is measured.

Goals: B's ITL p99 and its median TTFT at most twice what they are in the calm
run, /livez below 50 ms (p99).

Usage: tests/benchmarks/hostile.py [--seconds 60] [--connections 16]
       [--model PATH] [--json FILE] [--short]
"""

import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import pathlib
import random
import tempfile
import time

import load_client as lc

STREAMS, PROMPT, OUTPUT = 8, 32, 64
KEYS = {"a": "hostile-0123456789", "b": "patient-0123456789"}


def key(name):
    return f"Authorization: Bearer {KEYS[name]}"


def worst(name, context):
    """[(what, path, body)], encoded."""
    rng = random.Random(7)
    half = lc.prompt_ids(rng, context // 2)
    calls = [{"id": f"c{i}", "type": "function", "function":
              {"name": "f" * 60, "arguments": json.dumps({"x": "y" * 900})}}
             for i in range(300)]
    bodies = [
        ("tokenize", "/tokenize", {"prompt": "some words " * 90000}),
        ("prompt_logprobs", "/v1/completions",
         {"prompt": half, "prompt_logprobs": 20, "n": 16, "max_tokens": 1}),
        ("echo", "/v1/completions",
         {"prompt": half, "echo": True, "logprobs": 20, "n": 16,
          "max_tokens": 1, "stream": True}),
        ("calls", "/v1/chat/completions",
         {"messages": [{"role": "user", "content": "hi"},
                       {"role": "assistant", "tool_calls": calls}],
          "max_tokens": 1}),
        ("long", "/v1/completions",
         {"prompt": lc.prompt_ids(rng, 8), "n": 16, "ignore_eos": True,
          "max_tokens": context // 2, "stream": True}),
        ("prompt", "/v1/completions",
         {"prompt": lc.prompt_ids(rng, context - 8), "max_tokens": 1})]
    return [(what, path, json.dumps({"model": name, **body}
                                    if path != "/tokenize" else body).encode())
            for what, path, body in bodies]


async def one(address, path, raw, slow, give_up):
    """The status of a request; its answer is read, or looked at slowly."""
    head = [f"POST {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}",
            "Content-Type: application/json", "Connection: close", key("a"),
            f"Content-Length: {len(raw)}", "", ""]
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write("\r\n".join(head).encode() + raw)
        status = int((await reader.readline()).split()[1])
        while time.monotonic() < give_up:
            if not await reader.read(1024 if slow else 1 << 20):
                break
            if slow:
                await asyncio.sleep(0.2)
        return status
    finally:
        writer.transport.abort()


async def attack(address, bodies, connections, stop, seen):
    turn = 0

    async def slot(index):
        nonlocal turn
        while not stop.is_set():
            what, path, raw = bodies[turn % len(bodies)]
            turn += 1
            try:
                status = await asyncio.wait_for(
                    one(address, path, raw, index % 4 == 3,
                        time.monotonic() + 20), 60)
            except (OSError, EOFError, ValueError, IndexError,
                    asyncio.TimeoutError) as error:
                status = type(error).__name__
            seen[f"{what} {status}"] += 1
            if status == 429:
                await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(slot(i)) for i in range(connections)]
    while not stop.is_set():
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()


def attacker(address, bodies, connections, stop, send):
    os.nice(19)
    seen = collections.Counter()
    lc.gather(attack(address, bodies, connections, stop, seen))
    send.send(dict(seen))


async def streams(address, name, seconds):
    """(gaps, TTFTs, errors) of B's streams, closed loop; of many lengths, so
    that some begin while others decode."""
    rng, answers = random.Random(3), []
    end = time.perf_counter() + seconds

    async def slot():
        while time.perf_counter() < end:
            answers.append(await lc.stream(
                address, {"model": name, "prompt": lc.prompt_ids(rng, PROMPT),
                          "max_tokens": rng.randrange(OUTPUT // 2, 2 * OUTPUT),
                          "ignore_eos": True, "temperature": 0},
                headers=[key("b")]))
            if not answers[-1].ok:
                await asyncio.sleep(0.5)

    await asyncio.gather(*[slot() for _ in range(STREAMS)])
    whole = [answer for answer in answers if answer.ok]
    return ([gap for answer in whole for gap in answer.gaps],
            [answer.ttft for answer in whole],
            [f"{a.status} {a.error[:200]}" for a in answers if not a.ok])


def figures(gaps, ttfts, errors, probes):
    return {"itl_s": lc.spread(gaps), "ttft_s": lc.spread(ttfts),
            "tokens": len(gaps) + len(ttfts), "errors": errors[:5],
            "failed": len(errors),
            "livez_s": lc.spread([took for _, took, _ in probes["/livez"]]),
            "livez_not_200": sum(status != 200
                                 for _, _, status in probes["/livez"])}


def loop_figures(url):
    """What the gateway tells of its event loops and of exceptions."""
    _, _, text = lc.api.request(url, "GET", "/metrics", headers=dict(
        [key("b").split(": ")]))
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.decode().splitlines()
            if not line.startswith("#") and "bucket" not in line
            and ("loop" in line or "exceptions" in line or "yields" in line)}


def measure(url, name, arguments, hostile):
    address, stop = lc.address_of(url), multiprocessing.Event()
    receive, send = multiprocessing.Pipe(False)
    child = None
    if hostile:
        child = multiprocessing.Process(target=attacker, args=(
            address, worst(name, arguments.context), arguments.connections,
            stop, send))
        child.start()
        time.sleep(2)  # it has begun
    prober = lc.Prober(url, ("/livez",), 0.05)
    gaps, ttfts, errors = lc.gather(streams(address, name, arguments.seconds))
    out = figures(gaps, ttfts, errors, prober.finish())
    if child is not None:
        stop.set()
        out["sent"] = dict(sorted(receive.recv().items()))
        child.join()
    return out


def run(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "keys"
        path.write_text("".join(f"{n}:{k}\n" for n, k in KEYS.items()))
        path.chmod(0o600)
        with lc.cluster(arguments, "--api-key-file", str(path)) as cluster:
            headers = dict([key("b").split(": ")])
            _, _, raw = lc.api.request(cluster.url, "GET", "/v1/models",
                                       headers=headers)
            model = json.loads(raw)["data"][0]
            arguments.context = min(model["max_model_len"], 4096)
            measure(cluster.url, model["id"],
                    argparse.Namespace(**{**vars(arguments), "seconds": 3}),
                    False)  # warm
            watch = lc.MemoryWatch(cluster)
            calm = measure(cluster.url, model["id"], arguments, False)
            watch.sample()
            hostile = measure(cluster.url, model["id"], arguments, True)
            watch.sample()
            return {"calm": calm, "hostile": hostile,
                    "gateway": loop_figures(cluster.url),
                    "rss_mib": watch.peak()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.seconds, arguments.connections = 10, 6
    report = run(arguments)
    calm, hostile = report["calm"], report["hostile"]
    if hostile["itl_s"] is None:
        raise SystemExit(f"no stream of B ended well: {hostile['errors']}")
    itl = hostile["itl_s"]["p99"] / calm["itl_s"]["p99"]
    ttft = hostile["ttft_s"]["p50"] / calm["ttft_s"]["p50"]
    lc.finish(arguments, report, [
        ("ITL p99 at most twice that of the calm run", round(itl, 2), itl <= 2),
        ("TTFT p50 at most twice that of the calm run", round(ttft, 2),
         ttft <= 2),
        ("/livez p99 below 50 ms", hostile["livez_s"]["p99"],
         hostile["livez_s"]["p99"] < 0.05 and not hostile["livez_not_200"]),
        ("no stream of B fails", hostile["failed"], not hostile["failed"])])


if __name__ == "__main__":
    main()
