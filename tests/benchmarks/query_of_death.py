#!/usr/bin/env python3
"""Whether any request ends, cuts or delays more than itself.

Two gateways and two stages. B's 8 streams run for a while alone (calm), and
then while A sends, over --connections connections: every file of the fuzzers'
corpora as a body and as a grammar of each kind, --grammars drawn grammars
(every kind, extreme numbers, depth, width), --bodies drawn bodies and as many of
other dialects, in turns to both gateways (tests/benchmarks/grammar/drawn_texts.py). A's client runs at
the lowest priority: its own work on the same cores is not what is measured.

Goals: no process dies, none of B's streams is cut, and no pause of B's is more
than 250 ms above the calm run's p99. Exit status 1 where a process died or a
stream was cut; 2 where a pause was longer (not with --short, since a smoke
test runs beside others).

Usage: tests/benchmarks/query_of_death.py [--grammars 10000] [--bodies 10000]
       [--seed 1] [--connections 4] [--calm-seconds 30] [--model PATH]
       [--json FILE] [--short]
"""

import argparse
import asyncio
import collections
import http.client
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time

import load_client as lc

sys.path.insert(0, str(pathlib.Path(__file__).parent / "grammar"))
import drawn_texts  # noqa: E402

STREAMS = 8
MOST_MORE_SECONDS = 0.25
KEYS = {"a": "deadly-0123456789", "b": "innocent-0123456789"}
CORPUS = lc.harness.ROOT / "tests/fuzz/corpus"
KINDS = ("guided_json", "guided_regex", "guided_grammar", "grammar",
         "json_schema", "regex")


def corpus():
    """(what, path, body) of each file of the corpora, as a body and as each
    kind of grammar."""
    for path in sorted(CORPUS.glob("*/*")):
        raw = path.read_bytes()[:1 << 20]
        name = f"{path.parent.name}/{path.name}"
        yield name, "/v1/chat/completions", raw
        yield name, "/v1/completions", raw
        if path.parent.name not in ("grammar", "tool_grammar", "request_text"):
            continue
        text = raw.decode(errors="replace")
        for kind in KINDS:
            for chat in (False, True):
                where, body = drawn_texts.request_of({kind: text}, chat)
                yield f"{name} {kind}", where, drawn_texts.encoded(body)


def drawn(rng, grammars, bodies):
    drawer = drawn_texts.Drawer(rng)
    for turn in range(max(grammars, bodies)):
        if turn < grammars:
            kind, fields = drawer.grammar()
            path, body = drawn_texts.request_of(fields, kind == "tools"
                                                or rng.random() < 0.5)
            yield kind, path, drawn_texts.encoded(body)
        if turn < bodies:
            path = rng.choice(("/v1/chat/completions", "/v1/completions",
                               "/tokenize", "/detokenize"))
            yield "body", path, drawn_texts.encoded(drawer.body())
            path, body = drawer.dialect_body()
            yield f"dialect {path.replace('/', ' ')}", path, \
                drawn_texts.encoded(body)


def send(address, path, body):
    """The status; 0 where the connection is lost without an answer."""
    connection = http.client.HTTPConnection(*address, timeout=120)
    try:
        connection.request("POST", path, body, {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {KEYS['a']}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def attacker(index, count, addresses, options, send_back):
    """Every count-th request, from the index-th on."""
    os.nice(19)
    requests = itertools.chain(corpus(), drawn(
        random.Random(options.seed), options.grammars, options.bodies))
    seen, lost = collections.Counter(), []
    for turn, (what, path, body) in enumerate(requests):
        if turn % count != index:
            continue
        if options.corpus_share and turn % options.corpus_share:
            continue
        status = send(addresses[turn // count % len(addresses)], path, body)
        while status == 429:
            time.sleep(0.05)
            status = send(addresses[turn // count % len(addresses)], path, body)
        kind = what.split("/")[0]
        if not kind.startswith("dialect"):
            kind = kind.split(" ")[0]
        seen[f"{kind} {status}"] += 1
        if status == 0:
            lost.append((what, path, body[:2000].decode(errors="replace")))
    send_back.send((dict(seen), lost))


async def streams(address, name, until):
    """Answers of B's streams, closed loop, until `until()`."""
    rng, answers = random.Random(3), []

    async def slot():
        while not until():
            answers.append(await lc.stream(
                address, {"model": name,
                          "prompt": lc.prompt_ids(rng, 16, end=400),
                          "max_tokens": rng.randrange(32, 128),
                          "ignore_eos": True, "seed": rng.randrange(1 << 30)},
                headers=[f"Authorization: Bearer {KEYS['b']}"]))
            if not answers[-1].ok:
                await asyncio.sleep(0.2)

    await asyncio.gather(*[slot() for _ in range(STREAMS)])
    return answers


def figures(answers):
    gaps = [gap for answer in answers for gap in answer.gaps]
    return {"itl_s": lc.spread(gaps), "streams": len(answers),
            "tokens": sum(len(answer.times) for answer in answers),
            "cut": [f"{a.status} {a.error[:200]}" for a in answers if not a.ok]}


def started(cluster):
    """{process: (pid, start time)}: another one where a process died."""
    out = {}
    for entry in cluster.file["processes"]:
        try:
            stat = pathlib.Path(f"/proc/{entry['pid']}/stat").read_text()
            begun = stat.rpartition(")")[2].split()[19]
        except FileNotFoundError:
            begun = None
        out[f"{entry['role']}-{entry['index']}"] = (entry["pid"], begun)
    return out


def run(cluster, options):
    addresses = [tuple(lc.address_of("http://" + entry["addresses"][0]))
                 for entry in cluster.file["processes"]
                 if entry["role"] == "gateway"]
    name = options.name
    before = started(cluster)
    end = time.monotonic() + options.calm_seconds
    calm = figures(lc.gather(streams(addresses[-1], name,
                                     lambda: time.monotonic() > end)))
    pipes, children = [], []
    for index in range(options.connections):
        receive, send_back = multiprocessing.Pipe(False)
        children.append(multiprocessing.Process(
            target=attacker, args=(index, options.connections, addresses,
                                   options, send_back)))
        children[-1].start()
        send_back.close()
        pipes.append(receive)
    beside = figures(lc.gather(streams(
        addresses[-1], name, lambda: all(pipe.poll() for pipe in pipes))))
    seen, lost = collections.Counter(), []
    for pipe, child in zip(pipes, children):
        counted, without = pipe.recv()
        seen.update(counted)
        lost += without
        child.join()
    died = [process for process, one in started(cluster).items()
            if one != before[process]]
    return {"calm": calm, "beside": beside, "requests": sum(seen.values()),
            "statuses": dict(sorted(seen.items())), "lost": lost[:20],
            "died": died}


def judged(result, short):
    """The exit status, and what it says."""
    allowed = result["calm"]["itl_s"]["p99"] + MOST_MORE_SECONDS
    pause = result["beside"]["itl_s"]["max"]
    print(f"{result['requests']} requests: died {result['died'] or 'none'}, "
          f"without an answer {len(result['lost'])}, "
          f"cut {len(result['beside']['cut'])} of "
          f"{result['beside']['streams']} streams, longest pause {pause:.3f} s "
          f"(allowed {allowed:.3f})")
    if result["died"] or result["beside"]["cut"] or result["lost"]:
        return 1
    return 2 if pause > allowed and not short else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--grammars", type=int, default=10000)
    parser.add_argument("--bodies", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--calm-seconds", type=float, default=30)
    options = parser.parse_args()
    options.corpus_share = 0
    if options.short:
        options.grammars, options.bodies = 150, 150
        options.calm_seconds, options.corpus_share = 3, 3
    if options.model is None:
        options.model = lc.harness.ROOT / "deploy/demo_model/weights"
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("".join(f"{k}:{v}\n" for k, v in KEYS.items()))
        keys.chmod(0o600)
        with lc.cluster(options, "--gateways", "2", "--api-key-file", keys,
                        "--model-name", "model") as cluster:
            options.name = "model"
            result = run(cluster, options)
    code = judged(result, options.short)
    print(json.dumps(result, indent=1), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {**lc.conditions(), **result}, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
