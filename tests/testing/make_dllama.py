#!/usr/bin/env python3
"""Makes a random llama of a real shape in distributed-llama's format.

FILE.m has the header, an F32 embedding and q40 matrices (the bytes of GGUF's
Q4_0 blocks); FILE.t a vocabulary whose first tokens are one printable letter
each, so that a text of n letters has n tokens. Shapes as in make_gguf.py. Needs
the packages gguf and numpy (build/venv has both).

  make_dllama.py --preset llama1b --out /tmp/llama1b
"""

import argparse
import math
import struct

import numpy as np

import make_gguf

MODEL_MAGIC, TOKENIZER_MAGIC = 0xA00ABCD, 0x567124
LLAMA, SILU, Q40 = 0xABCD00, 1, 2
LETTERS = [bytes([code]) for code in range(ord("!"), ord("~") + 1)]


def header(magic, pairs):
    """The magic, the header's own size, and the keys with their values."""
    data = b"".join(struct.pack("ii", key, value) for key, value in pairs)
    return struct.pack("ii", magic, 8 + len(data)) + data


def model_header(shape):
    return header(MODEL_MAGIC, [
        (0, 0), (1, LLAMA), (2, shape["hidden"]), (3, shape["ffn"]),
        (4, shape["layers"]), (5, shape["heads"]), (6, shape["kv_heads"]),
        (7, 0), (8, 0), (9, shape["vocab"]), (10, shape["context"]),
        (11, SILU), (12, int(shape["theta"])), (13, Q40),
        (19, shape["head_dim"]), (20, 5)])


def write_model(path, shape, seed):
    blocks = make_gguf.Blocks("Q4_0", seed)
    hidden, heads = shape["hidden"], shape["heads"] * shape["head_dim"]
    kv = shape["kv_heads"] * shape["head_dim"]
    ones = np.ones(hidden, np.float32).tobytes()
    with open(path, "wb") as out:
        def matrix(rows, cols, std=None):
            out.write(blocks.matrix(rows, cols,
                                    std or 1 / math.sqrt(cols)).tobytes())

        out.write(model_header(shape))
        for _ in range(shape["vocab"]):
            row = blocks.random.standard_normal(hidden, np.float32)
            out.write((row * np.float32(3 / math.sqrt(hidden))).tobytes())
        for _ in range(shape["layers"]):
            for rows, cols in ((heads, hidden), (kv, hidden), (kv, hidden),
                               (hidden, heads), (shape["ffn"], hidden),
                               (hidden, shape["ffn"]), (shape["ffn"], hidden)):
                matrix(rows, cols)
            out.write(ones + ones)  # the norms of attention and MLP
        out.write(ones)
        matrix(shape["vocab"], hidden, 3 / math.sqrt(hidden))


def write_tokenizer(path, vocab):
    """The last two ids begin and end a text."""
    tokens = LETTERS + [b"t%d" % i for i in range(len(LETTERS), vocab)]
    with open(path, "wb") as out:
        out.write(header(TOKENIZER_MAGIC, [
            (0, 1), (1, vocab), (2, max(map(len, tokens))), (3, vocab - 2),
            (9, 1), (10, 1)]))
        out.write(struct.pack("i", vocab - 1))
        for token in tokens:
            out.write(struct.pack("fI", 0.0, len(token)) + token)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    dense = [name for name, shape in make_gguf.PRESETS.items()
             if shape["arch"] == "llama"]
    parser.add_argument("--preset", choices=dense, default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True,
                        help="without .m and .t, which are added")
    arguments = parser.parse_args()
    shape = make_gguf.PRESETS[arguments.preset]
    write_model(arguments.out + ".m", shape, arguments.seed)
    write_tokenizer(arguments.out + ".t", shape["vocab"])


if __name__ == "__main__":
    main()
