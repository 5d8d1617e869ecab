"""Asks a model to call generated tools, and validates each call: with
`tool_choice` `required` every answer is a call, its name is one of the offered,
and its arguments fit the tool's schema.

usage: tool_answers.py URL [--tools 200] [--temperature 1.2] [--at-once 8]
                       [--others 3] [--max-tokens 1500] [--out FILE]

URL: a gateway's, as http://127.0.0.1:8080. Each tool is asked for once, among up
to `--others` others, in turns as `required`, named and strict. Answers that
`max_tokens` cuts are counted apart. Ends with 1 after an answer without a call or
with a call that does not fit. Needs the package jsonschema.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import urllib.error
import urllib.request

import jsonschema

FINE = {"valid", "cut by max_tokens"}
WORDS = ("city", "date", "name", "limit", "query", "user", "path", "color",
         "price", "note", "count", "kind", "tag", "mode", "unit", "order")


def string(rng):
    schema = {"type": "string"}
    if rng.random() < 0.5:
        schema["maxLength"] = rng.randrange(1, 40)
    return schema


def integer(rng):
    low = rng.randrange(-100, 100)
    return {"type": "integer", "minimum": low,
            "maximum": low + rng.randrange(1000)}


def schema_of(rng, level):
    kinds = [string, integer,
             lambda _: {"type": "boolean"},
             lambda _: {"type": "number", "minimum": 0, "maximum": 1000},
             lambda r: {"enum": r.sample(WORDS, r.randrange(1, 6))},
             lambda r: {"type": ["integer", "null"]}]
    if level < 2:
        kinds += [lambda r: {"type": "array", "items": schema_of(r, level + 1),
                             "minItems": r.randrange(2),
                             "maxItems": r.randrange(1, 4)},
                  lambda r: object_of(r, level + 1)]
    return rng.choice(kinds)(rng)


def object_of(rng, level):
    names = rng.sample(WORDS, rng.randrange(0 if level == 0 else 1, 5))
    return {"type": "object",
            "properties": {name: schema_of(rng, level) for name in names},
            "required": [name for name in names if rng.random() < 0.7],
            "additionalProperties": False}


def tools_of(count):
    rng = random.Random(1)
    for number in range(count):
        name = "_".join(rng.sample(WORDS, 2)) + f"_{number}"
        yield {"type": "function", "function": {
            "name": name, "description": f"Works on the {name}.",
            "parameters": object_of(rng, 0)}}


def ask(url, fields):
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(fields).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)["choices"][0]
    except urllib.error.HTTPError as error:
        return {"finish_reason": f"{error.code}: {error.read()[:300]}",
                "message": {}}


def judge(choice, offered):
    """What became of one request."""
    if choice["finish_reason"] == "length":
        return "cut by max_tokens"
    calls = choice["message"].get("tool_calls") or []
    if not calls or choice["finish_reason"] != "tool_calls":
        return f"no call: {json.dumps(choice)[:300]}"
    if choice["message"].get("content"):
        return f"content beside calls: {choice['message']['content'][:300]}"
    for call in calls:
        name, text = call["function"]["name"], call["function"]["arguments"]
        if name not in offered:
            return f"unknown function: {name}"
        try:
            arguments = json.loads(text)
        except ValueError:
            return f"arguments are no JSON: {text[:300]}"
        parameters = offered[name]["function"]["parameters"]
        for error in jsonschema.Draft202012Validator(parameters).iter_errors(
                arguments):
            return f"arguments do not fit: {error.message[:200]}: {text[:300]}"
    return "valid"


def run(tools, index, options):
    rng = random.Random(index)
    tool = json.loads(json.dumps(tools[index]))
    others = rng.sample(tools[:index] + tools[index + 1:],
                        rng.randrange(options.others + 1))
    name = tool["function"]["name"]
    choice = "required"
    if index % 3 == 1:
        choice, others = {"type": "function", "function": {"name": name}}, []
    if index % 3 == 2:
        tool["function"]["strict"] = True
    offered = {one["function"]["name"]: one for one in [tool, *others]}
    return judge(ask(options.url, {
        "messages": [{"role": "user", "content": f"Call {name}, please."}],
        "tools": list(offered.values()), "tool_choice": choice,
        "parallel_tool_calls": index % 2 == 0, "temperature": options.temperature,
        "seed": index, "max_tokens": options.max_tokens}), offered)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--tools", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=1.2)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--others", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=1500)
    parser.add_argument("--out")
    options = parser.parse_args()
    tools = list(tools_of(options.tools))
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        results = list(pool.map(
            lambda index: run(tools, index, options), range(len(tools))))
    counts = collections.Counter(results)
    for index, result in enumerate(results):
        if result not in FINE:
            print(index, json.dumps(tools[index]), result)
    report = {"tools": len(tools), "results": dict(counts)}
    print(json.dumps(report, indent=1))
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(report, indent=1) +
                                             "\n", encoding="utf-8")
    if set(counts) - FINE:
        sys.exit(1)


if __name__ == "__main__":
    main()
