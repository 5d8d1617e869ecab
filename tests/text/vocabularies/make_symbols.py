#!/usr/bin/env python3
"""Writes symbols.json: what sentencepiece makes of random texts with the
options of its normalizer and with symbols that a user defines.

usage: tests/text/vocabularies/make_symbols.py [SEED [CASES]]

A case is one of this folder's models with a few bytes behind it: fields that
come twice in a protobuf count as the last ones say, and further pieces are
further pieces. The file in the repository is that of no arguments; `pip install
sentencepiece==0.2.3` has what this script needs.
"""

import importlib.metadata
import itertools
import json
import pathlib
import random
import sys

import sentencepiece

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["pieces.model", "rules.model", "bare.model"]
CONTROL, USER_DEFINED = 3, 4
SYMBOLS = ["stage", "two wait", " tokens", "  ", "\u2581\u2581", "\u2581hold",
           "\u2460", "\ufb01", "\n", "\t", "<think>", "</think>", "\u00e9",
           "sto", "stone", "\u2581", "aa", "aaa", "\u200b", "\U0001f642",
           "<|x|>", "\u3000", "e\u0301", "\u2581\n"]
PIECES = ["stage", "tokens", "two", "wait", "hold", " ", " ", "  ", "   ", "\t",
          "\n", "\u2460", "\ufb01", "\u00e9", "e\u0301", "\u200b", "\u3000",
          "\u00a0", "<think>", "</think>", "<|x|>", "<s>", "sto", "stone", "a",
          "aaaa", "\u2581", "12", ", ", ".", "\U0001f642", "\u4e2d", "\uff21",
          "\uff21\u0301", "\r\n", "\ufb01\u0301", "X", "it's"]


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def appended(options, pieces):
    """The options as a NormalizerSpec and a TrainerSpec, and the pieces."""
    adds_space, collapses, is_suffix = options
    out = text(3, number(3, adds_space) + number(4, collapses))
    out += text(2, number(24, is_suffix))
    for piece, kind in pieces:
        out += text(1, text(1, piece.encode()) + number(3, kind))
    return out


def draw_pieces(rng, processor):
    known = {processor.id_to_piece(i)
             for i in range(processor.get_piece_size())}
    free = [symbol for symbol in SYMBOLS if symbol not in known]
    drawn = rng.sample(free, min(len(free), rng.choice([0, 2, 6, 10])))
    return [(symbol, USER_DEFINED) for symbol in drawn] + [("<ctl>", CONTROL)]


def draw_text(rng, pieces):
    pool = PIECES + 4 * [piece for piece, _ in pieces]
    return "".join(rng.choice(pool) for _ in range(rng.randint(0, 9)))


def main(seed=1, cases=1):
    rng = random.Random(seed)
    made = []
    for _ in range(cases):
        for name, *options in itertools.product(MODELS, *[[True, False]] * 3):
            model = (HERE / name).read_bytes()
            pieces = draw_pieces(rng, sentencepiece.SentencePieceProcessor(
                model_proto=model))
            more = appended(options, pieces)
            processor = sentencepiece.SentencePieceProcessor(
                model_proto=model + more)
            drawn = [draw_text(rng, pieces) for _ in range(10)]
            made.append({"file": name, "append": more.hex(), "texts": drawn,
                         "ids": [processor.encode(one) for one in drawn]})
    lines = ",\n".join(json.dumps(case, separators=(",", ":"))
                       for case in made)
    version = importlib.metadata.version("sentencepiece")
    (HERE / "symbols.json").write_text(
        f'{{"version":"{version}","cases":[\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
