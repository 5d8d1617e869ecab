#!/usr/bin/env python3
"""Makes what gguf_blocks_test compares with. Needs gguf and numpy.

  gguf_blocks.py DIR   random blocks of every format: DIR/NAME.raw, and
                       DIR/NAME.f32, the package's values of them
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


if __name__ == "__main__":
    main(sys.argv[1])
