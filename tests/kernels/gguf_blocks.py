#!/usr/bin/env python3
"""Makes what gguf_blocks_test compares with. Needs gguf and numpy.

  gguf_blocks.py DIR   random blocks of every format: DIR/NAME.raw, and
                       DIR/NAME.f32, the package's values of them; of formats
                       that the package makes: DIR/NAME.x, random values, and
                       DIR/NAME.made, its blocks of them
"""

import sys

import gguf
import numpy as np

BLOCKS = 97
# Byte offsets of the F16 scales within a block: kept finite.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0],
          "Q5_1": [0, 2], "IQ4_NL": [0], "MXFP4": [], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_XS": [0]}


def main(folder):
    rng = np.random.default_rng(11)
    for name, scales in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        raw = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in scales:
            raw[:, at + 1] &= 0xBF
        if name == "MXFP4":
            raw[:, 0] %= 250  # larger ones overflow
        raw.tofile(f"{folder}/{name}.raw")
        gguf.quants.dequantize(raw, kind).astype("<f4").tofile(
            f"{folder}/{name}.f32")
    # Values of many sizes, whole blocks of zeros, one and equal elements.
    x = rng.standard_normal((BLOCKS, 32)).astype("<f4")
    x *= np.exp2(rng.integers(-30, 12, (BLOCKS, 1))).astype("<f4")
    x[3] = 0
    x[4, 1:] = 0
    x[5] = x[5, 0]
    for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        x.tofile(f"{folder}/{name}.x")
        gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).tofile(
            f"{folder}/{name}.made")


if __name__ == "__main__":
    main(sys.argv[1])
