"""What answers that keep to a grammar cost: tokens per second of the same tokens
with and without one, in turns.

usage: constrained_speed.py URL [--streams 1,8,32] [--tokens 128] [--rounds 3]
                            [--out FILE]

URL: a gateway's, as http://127.0.0.1:8080. Three kinds of requests, in turns:
  free      no grammar, ignore_eos
  same      the regular expression of any text: the same tokens as `free`, so
            that the difference is what masks cost (checked: texts are equal)
  object    a JSON Schema with strings of 400 characters: masks within strings
and, with one stream, `forced`: a schema whose long names are forced.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import time
import urllib.request

PROMPT = "Write a long story about a lighthouse and its keeper."
STRING = {"type": "string", "minLength": 400}
KINDS = {
    "free": {"ignore_eos": True},
    "same": {"ignore_eos": True, "structured_outputs": {"regex": "(?s:.*)"}},
    "object": {"response_format": {"type": "json_schema", "json_schema": {
        "name": "story", "schema": {
            "type": "object", "properties": {"title": STRING, "text": STRING},
            "required": ["title", "text"], "additionalProperties": False}}}},
}
NAMES = [f"the_{name}_of_the_person_who_keeps_the_lighthouse_of_the_town"
         for name in ("first_name", "family_name", "age", "height", "town")]
FORCED = {"type": "object", "additionalProperties": False,
          "required": NAMES, "properties": {
              name: {"type": "integer", "minimum": 0, "maximum": 99}
              for name in NAMES}}


def ask(url, seed, **fields):
    body = json.dumps({
        "messages": [{"role": "user", "content": PROMPT}], "seed": seed,
        "temperature": 0.8, **fields}).encode()
    request = urllib.request.Request(
        url + "/v1/chat/completions", body,
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        answer = json.load(answer)
    return (answer["choices"][0]["message"]["content"],
            answer["usage"]["completion_tokens"])


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
    options = parser.parse_args()
    report = {}
    for streams in map(int, options.streams.split(",")):
        rates = {kind: [] for kind in KINDS}
        run(options.url, streams, options.tokens, "object")  # compiled once
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
            "same_to_free": round(medians["same"] / medians["free"], 3),
            "object_to_free": round(medians["object"] / medians["free"], 3)}
        print(streams, json.dumps(report[streams]), flush=True)
    format_ = {"type": "json_schema",
               "json_schema": {"name": "person", "schema": FORCED}}
    times, tokens = [], 0
    for seed in range(options.rounds + 1):
        begin = time.monotonic()
        _, tokens = ask(options.url, seed, max_tokens=400,
                        response_format=format_)
        times.append(time.monotonic() - begin)
    rate = tokens / statistics.median(times[1:])
    report["forced"] = {"tokens_per_second": round(rate, 1),
                        "tokens": tokens}
    print("forced", json.dumps(report["forced"]))
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(report, indent=1) +
                                             "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
