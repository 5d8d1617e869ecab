#!/usr/bin/env python3
"""Makes what gguf_reference_test compares with. Needs gguf and numpy.

  gguf_reference.py blocks DIR     random blocks of every format: DIR/all.gguf
                                   and DIR/NAME.f32, the package's values
  gguf_reference.py digests FILE   a line "NAME SHA256" for every tensor of a
                                   llama GGUF, as F32 in the model's own order
"""

import hashlib
import sys

import gguf
import numpy as np

ROWS = 37
FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
           "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS",
           "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0", "NVFP4"]
# Byte offsets of the F16 scales within a block: kept finite.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0],
          "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0], "TQ1_0": [52], "TQ2_0": [64]}


def random_rows(name, rng):
    """Raw bytes of ROWS rows of two blocks (plain types: 64 elements)."""
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = 64 if elements == 1 else 2
    if name in ("F32", "F16"):
        values = rng.standard_normal((ROWS, blocks)).astype(
            {"F32": np.float32, "F16": np.float16}[name])
        values[0, :4] = [0.0, -0.0, 6e-8, 65504.0]  # a subnormal of F16
        return kind, values.view(np.uint8)
    raw = rng.integers(0, 256, (ROWS, blocks, size), dtype=np.uint8)
    if name == "BF16":
        raw[..., 1] &= 0xBF  # exponents below 128: no NaN
    if name == "IQ1_M":
        raw[..., 55] &= 0xBF  # the last four bits of its scale
    if name == "NVFP4":
        raw[..., :4] &= 0x7F  # scales have no sign
    for at in SCALES.get(name, []):
        raw[..., at + 1] &= 0xBF
    return kind, raw.reshape(ROWS, blocks * size)


def write_blocks(folder):
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(f"{folder}/all.gguf", "reference")
    for name in FORMATS:
        kind, raw = random_rows(name, rng)
        values = gguf.quants.dequantize(raw, kind)
        values.astype("<f4").tofile(f"{folder}/{name}.f32")
        # GGUFWriter takes plain types by their values' dtype.
        if name in ("F32", "F16"):
            raw = raw.view({"F32": np.float32, "F16": np.float16}[name])
            writer.add_tensor(name, raw)
        else:
            writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def half_split(values, heads):
    """Undoes the interleaving of q and k rows within each head."""
    rows = values.reshape(heads, values.shape[0] // heads // 2, 2, -1)
    return rows.swapaxes(1, 2).reshape(values.shape)


def print_digests(path):
    reader = gguf.GGUFReader(path)

    def count(key):
        return int(reader.fields[f"llama.attention.{key}"].parts[-1][0])

    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name:
            values = half_split(values, count("head_count"))
        elif ".attn_k." in tensor.name:
            values = half_split(values, count("head_count_kv"))
        data = np.ascontiguousarray(values, dtype="<f4")
        print(tensor.name, hashlib.sha256(data.tobytes()).hexdigest())


if __name__ == "__main__":
    {"blocks": write_blocks, "digests": print_digests}[sys.argv[1]](
        sys.argv[2])
