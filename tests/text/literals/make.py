#!/usr/bin/env python3
"""Writes literals.json: random literals of Python and what they are in JSON, by
ast.literal_eval and json.dumps.

usage: tests/text/literals/make.py [SEED [COUNT]]

The file in the repository is that of no arguments.
"""

import ast
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
PLAIN = ["a", "B7", " ", "'", '"', "é", "😀", "{", "]", ",", ":", "(", ")", "#",
         "\t", "\x00", "\x1b", "\n", "True", "None", "0x", "\\", "/", "it's"]
ESCAPES = ["\\n", "\\t", "\\r", "\\\\", "\\'", '\\"', "\\a", "\\b", "\\f", "\\v",
           "\\0", "\\7", "\\12", "\\101", "\\x41", "\\xe9", "\\u00e9",
           "\\U0001f600", "\\d", "\\/", "\\.", "\\-", "\\q", "\\\n", "\\18"]
NUMBERS = ["0", "00", "7", "-3", "+5", "--2", "- 4", "1_000", "0x1F", "0XfF",
           "-0b101", "0o17", "1.5", "-.5", "5.", "1e5", "2E-3", "1_0.2_5",
           "-0.0", "123456789012", "3.e2"]
WORDS = ["True", "False", "None"]


def string(rng):
    quote = rng.choice(["'", '"', "'''", '"""'])
    inside = ""
    for _ in range(rng.randint(0, 5)):
        piece = rng.choice(rng.choice([PLAIN, ESCAPES]))
        if piece == "\\":
            piece = "\\\\"
        if piece == "\x00" or (piece == "\n" and len(quote) == 1):
            continue
        if quote[0] in piece and not piece.startswith("\\"):
            piece = piece.replace(quote[0], "\\" + quote[0])
        inside += piece
    return rng.choice(["", "", "", "r", "R", "u"]) + quote + inside + quote


def strings(rng):
    return rng.choice(["", " ", "\n"]).join(
        string(rng) for _ in range(rng.choice([1, 1, 1, 2])))


def listed(rng, parts, closers):
    comma = rng.choice([", ", ",", " ,\n "])
    end = rng.choice(["", "", ",", " , "]) if parts else ""
    return closers[0] + comma.join(parts) + end + closers[1]


def literal(rng, depth=0):
    kind = rng.randint(0, 8 if depth < 3 else 4)
    if kind < 2:
        return strings(rng)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice(WORDS)
    parts = [literal(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == 5:
        return listed(rng, parts, rng.choice(["[]", "()"]))
    if kind == 6:
        return "(" + literal(rng, depth + 1) + ")"
    if kind == 7:
        return "{" + rng.choice([string(rng), rng.choice(NUMBERS)]) + "}"
    keys = [strings(rng) if rng.random() < .8 else
            rng.choice(["1", "-2", "True", "None"]) for _ in parts]
    return listed(rng, [key + rng.choice([": ", ":"]) + part
                        for key, part in zip(keys, parts)], "{}")


def plain(value):
    """Sets as lists; dicts without keys that are one key of JSON."""
    if isinstance(value, dict):
        made = {}
        for key, part in value.items():
            name = key if isinstance(key, str) else json.dumps(key)
            if name in made:
                raise ValueError("two keys")
            made[name] = plain(part)
        return made
    if isinstance(value, (list, tuple, set)):
        return [plain(part) for part in value]
    return value


def main(seed=1, count=300):
    rng = random.Random(seed)
    made = []
    while len(made) < count:
        text = literal(rng)
        try:
            value = plain(ast.literal_eval(text))
        except (SyntaxError, ValueError, TypeError):
            continue  # no literal, as 00.5 or two keys
        made.append([text, value])
    lines = ",\n".join(json.dumps(one) for one in made)
    (HERE / "literals.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
