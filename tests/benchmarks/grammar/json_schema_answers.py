"""Draws answers to JSON Schemas by their grammars and validates each of them:
the share of schemas that are supported, what refuses the others, and answers
that do not fit (there must be none).

usage: json_schema_answers.py --model TOKENIZER [--seeds N] [--max-tokens N]
                              [--out FILE] SOURCE...

SOURCE: a folder of the JSON Schema test suite (files with a list of {"schema",
"tests"}), or of schemas, one a file. Needs the package jsonschema[format];
its sdist has the suite in json/tests/draft2020-12. The tool `grammar_answers`
is that of SLUICE_BUILD_DIR, or of build/release.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import jsonschema
import jsonschema.validators
import referencing.exceptions

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build/release"))


UNCHECKED = "unchecked"


def schemas_of(folder):
    """(name, schema) of all files below `folder`."""
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, UnicodeDecodeError):
            continue
        if isinstance(value, list):
            for case in value:
                if isinstance(case, dict) and "schema" in case:
                    yield f"{path.stem}: {case['description']}", case["schema"]
        elif isinstance(value, dict):
            yield path.stem, value


def validator_of(schema):
    kind = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def reason_of(error):
    """The keyword that refuses a schema, or the first words."""
    keyword = re.search(r"`([^`]+)`", error)
    if keyword and "not supported" in error or keyword and "at \"" in error:
        return keyword.group(1)
    return error.removeprefix("schema: ")[:60]


def check(schema, answer):
    """None, or why a complete answer does not fit."""
    try:
        value = json.loads(answer["text"])
    except ValueError as error:
        return f"no JSON: {error}"
    try:
        validator_of(schema).validate(value)
    except jsonschema.ValidationError as error:
        return f"{error.json_path}: {error.message[:200]}"
    except (re.error, referencing.exceptions.Unresolvable):
        return UNCHECKED  # Python's regular expressions know no \\p
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--out")
    parser.add_argument("source", nargs="+")
    options = parser.parse_args()
    cases = [case for folder in options.source for case in schemas_of(folder)]
    lines = "".join(json.dumps({"kind": "json_schema",
                                "text": json.dumps(schema)}) + "\n"
                    for _, schema in cases)
    tool = BUILD / "tests/benchmarks/grammar/grammar_answers"
    made = subprocess.run(
        [tool, options.model, str(options.seeds), str(options.max_tokens)],
        input=lines, stdout=subprocess.PIPE, text=True, check=True)
    refused = collections.Counter()
    counts = collections.Counter()
    wrong, steps, compiles = [], [], []
    for (name, schema), line in zip(cases, made.stdout.rstrip("\n").split("\n"),
                                    strict=True):
        result = json.loads(line)
        compiles.append(result["compile_ms"])
        if "error" in result:
            refused[reason_of(result["error"])] += 1
            continue
        counts["supported"] += 1
        steps += result["steps_us"]
        for answer in result["answers"]:
            if "error" in answer:
                counts["ended by an error"] += 1
                wrong.append((name, "error: " + answer["error"], ""))
            elif not answer["complete"]:
                counts["cut"] += 1
            else:
                counts["complete"] += 1
                why = check(schema, answer)
                if why == UNCHECKED:
                    counts[UNCHECKED] += 1
                elif why:
                    counts["invalid"] += 1
                    wrong.append((name, why, answer["text"][:120]))
    report = {
        "schemas": len(cases), **counts,
        "share_supported": round(counts["supported"] / len(cases), 4),
        "refused": dict(refused.most_common()),
        "compile_ms": {"p50": statistics.median(compiles),
                       "max": max(compiles)},
        "step_us": {"p50": statistics.median(steps),
                    "p99": sorted(steps)[int(0.99 * len(steps))],
                    "max": max(steps)} if steps else {},
    }
    print(json.dumps(report, indent=1))
    for name, why, text in wrong[:40]:
        print(f"  {name}: {why} {text}", file=sys.stderr)
    if options.out:
        pathlib.Path(options.out).write_text(
            json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if counts["invalid"] else 0


if __name__ == "__main__":
    sys.exit(main())
