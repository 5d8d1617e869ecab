"""What answers that keep to a grammar cost: tokens per second of the same tokens
with and without one, in turns.

usage: constrained_speed.py URL [--streams 1,8,32] [--tokens 128] [--rounds 3]
                            [--out FILE] [--first-token]

URL: a gateway's, as http://127.0.0.1:8080. Kinds of requests, in turns:
  free      no grammar, ignore_eos
  same      the regular expression of any text: the same tokens as `free`, so
            that the difference is what masks cost (checked: texts are equal)
  records   a JSON Schema of a list of people: names, numbers, an enum
  words     a JSON Schema of a list of strings
  counted   a JSON Schema of strings of at least 400 characters: each character
            counts, so that no two masks are of the same state
and, with one stream, `forced`: a schema whose long names are forced; and the
time to the first token with a new schema of 11 kB, and with the same again
(--first-token: this alone).
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import sys
import time
import urllib.request

PROMPT = "Write a long story about a lighthouse and its keeper."
STRING = {"type": "string"}
COUNTED = {"type": "string", "minLength": 400}


def answer(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {
        "name": "answer", "schema": schema}}}


def record(properties):
    return {"type": "object", "properties": properties,
            "required": list(properties), "additionalProperties": False}


KINDS = {
    "free": {"ignore_eos": True},
    "same": {"ignore_eos": True, "structured_outputs": {"regex": "(?s:.*)"}},
    "records": answer(record({"people": {
        "type": "array", "minItems": 40, "items": record({
            "name": STRING, "age": {"type": "integer"}, "town": STRING,
            "work": {"enum": ["cook", "clerk", "doctor", "pilot"]}})}})),
    "words": answer({"type": "array", "minItems": 200, "items": STRING}),
    "counted": answer(record({"title": COUNTED, "text": COUNTED})),
}
NAMES = [f"the_{name}_of_the_person_who_keeps_the_lighthouse_of_the_town"
         for name in ("first_name", "family_name", "age", "height", "town")]
FORCED = record({name: {"type": "integer", "minimum": 0, "maximum": 99}
                 for name in NAMES})


def large_schema(number):
    """A schema of 11 kB; another one for each number."""
    types = ("string", "integer", "boolean", "number")
    return record({f"field_{number}_{i}_of_the_record": {
        "type": types[i % 4],
        "description": "A field of the record, which says what it is about, "
                       "in a few words."} for i in range(70)})


def first_token(url, rounds):
    """Milliseconds to an answer of one token: medians of 10 for each round."""
    times = {"free": [], "new_schema": [], "again": []}
    for _ in range(10 * rounds):
        number = random.randrange(1 << 30)
        schema = answer(large_schema(number))
        for kind, fields in (("free", {}), ("new_schema", schema),
                             ("again", schema)):
            begin = time.monotonic()
            ask(url, random.randrange(1 << 30), max_tokens=1, **fields)
            times[kind].append(1e3 * (time.monotonic() - begin))
    return {kind: round(statistics.median(all_), 1)
            for kind, all_ in times.items()} | {
                "schema_bytes": len(json.dumps(large_schema(1 << 29)))}


def ask(url, seed, **fields):
    body = json.dumps({
        "messages": [{"role": "user", "content": PROMPT}], "seed": seed,
        "temperature": 0.8, **fields}).encode()
    request = urllib.request.Request(
        url + "/v1/chat/completions", body,
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        reply = json.load(reply)
    return (reply["choices"][0]["message"]["content"],
            reply["usage"]["completion_tokens"])


def run(url, streams, tokens, kind):
    """(tokens per second, texts) of `streams` requests at once."""
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        begin = time.monotonic()
        answers = list(pool.map(
            lambda seed: ask(url, seed, max_tokens=tokens, **KINDS[kind]),
            range(streams)))
        seconds = time.monotonic() - begin
    return sum(count for _, count in answers) / seconds, [a[0] for a in answers]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    parser.add_argument("--first-token", action="store_true")
    options = parser.parse_args()
    report = {}
    if not options.first_token:
        measure_speed(options, report)
    report["first_token_ms"] = first_token(options.url, options.rounds)
    print("first_token_ms", json.dumps(report["first_token_ms"]))
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(report, indent=1) +
                                             "\n", encoding="utf-8")


def measure_speed(options, report):
    """Adds tokens per second to `report`."""
    for streams in map(int, options.streams.split(",")):
        rates = {kind: [] for kind in KINDS}
        for kind in KINDS:  # compiled once
            run(options.url, 1, 8, kind)
        for _ in range(options.rounds):
            texts = {}
            for kind in KINDS:
                rate, texts[kind] = run(options.url, streams, options.tokens,
                                        kind)
                rates[kind].append(rate)
            if texts["free"] != texts["same"]:
                sys.exit("a grammar of any text changed a token")
        medians = {kind: statistics.median(all_) for kind, all_ in
                   rates.items()}
        report[streams] = {
            "tokens_per_second": {k: [round(v, 1) for v in all_]
                                  for k, all_ in rates.items()},
            "to_free": {k: round(v / medians["free"], 3)
                        for k, v in medians.items()}}
        print(streams, json.dumps(report[streams]), flush=True)
    times, tokens = [], 0
    for seed in range(options.rounds + 1):
        begin = time.monotonic()
        _, tokens = ask(options.url, seed, max_tokens=400,
                        **answer(FORCED))
        times.append(time.monotonic() - begin)
    rate = tokens / statistics.median(times[1:])
    report["forced"] = {"tokens_per_second": round(rate, 1),
                        "tokens": tokens}
    print("forced", json.dumps(report["forced"]))


if __name__ == "__main__":
    main()
