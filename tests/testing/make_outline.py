#!/usr/bin/env python3
"""Makes the outline of a random model: a folder of any size in some megabytes.

The folder has config.json and, in the place of the weights, an outline
(common/weights/safetensors_outline.h): the header, and the first 4 KiB of each
tensor. Reading it with OutlineReads::kRepeat gives weights by which speed can
be measured. Matrices of layers are in --format; a head and an embedding beside
blocks of Q4 or Q8 are in Q8_0, beside FP8 in BF16. gpt-oss has its experts in
MXFP4 whatever is asked. The same arguments always give the same bytes.

  make_outline.py --preset llama8b --format fp8 --out /tmp/llama8b-fp8
"""
import argparse
import json
import math
import os
import random
import struct
import sys

import make_model

LLAMA3 = dict(make_model.PRESETS["llama1b"], tie=False, head_dim=128)
make_model.PRESETS.update({
    "llama8b": dict(LLAMA3, layers=32, hidden=4096, intermediate=14336),
    "llama70b": dict(LLAMA3, layers=80, hidden=8192, heads=64,
                     intermediate=28672),
    "gptoss20b": dict(
        make_model.PRESETS["tiny"], layers=24, hidden=2880, heads=64,
        kv_heads=8, head_dim=64, intermediate=2880, vocab=201088,
        **dict(make_model.OSS, experts=32, moe_intermediate=2880)),
    "glmair": dict(
        make_model.PRESETS["tiny"], layers=46, hidden=4096, heads=96,
        kv_heads=8, head_dim=128, intermediate=10944, vocab=151552,
        **dict(make_model.MOE, experts=128, experts_per_token=8,
               moe_intermediate=1408, qk_norm=False)),
    # To try what reads outlines; its rows are whole blocks of Q4_K.
    "outline-tiny": dict(make_model.PRESETS["tiny"], hidden=256, heads=4,
                         head_dim=64, intermediate=512, vocab=512, tie=False),
    "outline-tiny-moe": dict(
        make_model.PRESETS["glm-tiny"], hidden=256, head_dim=64,
        intermediate=512, moe_intermediate=256, vocab=512),
})
make_model.PRESETS["gptoss120b"] = dict(
    make_model.PRESETS["gptoss20b"], layers=36, experts=128)

OUTLINED = 4096  # bytes of a matrix, kIdentityBytes
REPEATED = 1 << 22  # bytes of a piece that is written at once
FP8_BLOCK = 128  # rows and columns with one scale
# Elements and bytes of a block, the offsets of its F16 scales, and the root
# mean square of an element at a scale of 1 with random codes.
BLOCKS = {"q8_0": (32, 34, (0,), 74), "q4_0": (32, 18, (0,), 4.6),
          "q4_k": (256, 144, (0, 2), 320)}
FORMATS = ("bf16", "fp8", *BLOCKS)


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = (math.ldexp(8 + mantissa, exponent - 10) if exponent
             else math.ldexp(mantissa, -9))
    return -value if code & 128 else value


# 0x7f and 0xff are no numbers.
FP8_CODES = bytes(code if code & 127 != 127 else 0x70 for code in range(256))
FP8_RMS = math.sqrt(sum(e4m3(code) ** 2 for code in FP8_CODES) / 256)


class Stored:
    """A tensor of the file: name, type, shape, and what begins it."""

    def __init__(self, name, dtype, shape, element_bytes, begin):
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.bytes = math.prod(shape) * element_bytes
        self.begin = begin  # of a random generator and a number of bytes

    def outline(self, seed):
        size = self.bytes if len(self.shape) < 2 else min(self.bytes, OUTLINED)
        rng = random.Random(f"{seed} {self.name}")
        return bytes(self.begin(rng, size))[:size]


def plain(name, shape, rms, dtype):
    size = make_model.ELEMENT_BYTES[dtype]
    return Stored(name, make_model.STORED[dtype], shape, size,
                  lambda rng, count: make_model.random_values(
                      rng, -(-count // size), rms, dtype))


def fp8(name, shape, rms):
    """Codes, and a scale for each block of FP8_BLOCK rows and columns."""
    scales = tuple(-(-size // FP8_BLOCK) for size in shape)
    scale = struct.pack("<f", rms / FP8_RMS)
    return [Stored(name, "F8_E4M3", shape, 1, lambda rng, count:
                   rng.randbytes(count).translate(FP8_CODES)),
            Stored(name + "_scale_inv", "F32", scales, 4,
                   lambda rng, count: scale * (count // 4))]


def blocks(name, shape, rms, kind):
    elements, size, offsets, unit = BLOCKS[kind]
    if shape[1] % elements != 0:
        raise SystemExit(f"{name} has {shape[1]} columns, no multiple of the "
                         f"{elements} of a block of {kind}")

    def begin(rng, count):
        made = bytearray(rng.randbytes(-(-count // size) * size))
        for at in range(0, len(made), size):
            for offset in offsets:
                struct.pack_into("<e", made, at + offset, rms / unit)
        return made
    return Stored(f"{name}_{kind}", "U8",
                  (shape[0], shape[1] // elements * size), 1, begin)


def stored(args, form):
    """The model's tensors as they are stored in the format."""
    for name, shape, rms, dtype in make_model.Tensors(args).all():
        inside = name.startswith("model.layers.")
        matrix = name.endswith("_proj.weight")
        if form == "fp8" and inside and matrix:
            yield from fp8(name, shape, rms)
        elif form in BLOCKS and inside and matrix:
            yield blocks(name, shape, rms, form)
        elif form in BLOCKS and not inside and len(shape) == 2:
            yield blocks(name, shape, rms, "q8_0")
        else:
            yield plain(name, shape, rms, dtype)


def arguments(preset, *more):
    return make_model.parse_args(["--preset", preset, "--out", "", *more])


def facts(preset, form):
    """What a token costs: bytes of weights that it reads at batch 1, all of the
    model's, values of a position's keys and values, and multiplications of its
    matrices in a prompt (the head is for the last token alone)."""
    args = arguments(preset)
    total = active = 0
    for tensor in stored(args, form):
        total += tensor.bytes
        share = 1.0
        if ".experts." in tensor.name:
            share = args.experts_per_token / args.experts
        elif tensor.name.startswith("model.embed_tokens") and not args.tie:
            share = 0.0  # a row
        active += share * tensor.bytes
    products = 0
    for name, shape, _, dtype in make_model.Tensors(args).all():
        if not name.startswith("model.layers.") or len(shape) < 2:
            continue
        if dtype == "scales" or name.endswith("_bias"):
            continue
        values = math.prod(shape) * (2 if dtype == "codes" else 1)
        share = (args.experts_per_token / args.experts
                 if ".experts." in name else 1.0)
        products += share * values
    return {"weights_bytes": total, "active_bytes": round(active),
            "kv_values": 2 * args.layers * args.kv_heads * args.head_dim,
            "prompt_products": round(products)}


def repeated(begin, size):
    """`begin` again and again, in pieces; the last one ends at `size` bytes."""
    piece = begin * max(1, REPEATED // len(begin))
    for at in range(0, size, len(piece)):
        yield piece[:size - at]


def make(preset, form, out, seed=0, whole=False):
    """`whole`: the weights themselves, which repeat what begins each tensor, and
    a tokenizer, for programs that read no outlines."""
    args = arguments(preset)
    args.out = out
    os.makedirs(out, exist_ok=True)
    config = make_model.config_of(args)
    if form == "fp8":
        config["quantization_config"] = {
            "quant_method": "fp8", "weight_block_size": [FP8_BLOCK] * 2}
    elif form in BLOCKS:
        config["quantization_config"] = {"quant_method": "sluice"}
    make_model.write_json(os.path.join(out, "config.json"), config)
    header, offset, tensors = {}, 0, list(stored(args, form))
    for tensor in tensors:
        header[tensor.name] = {
            "dtype": tensor.dtype, "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.bytes]}
        offset += tensor.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    shard = "model-00001-of-00001.safetensors"
    name = shard if whole else shard + ".outline"
    with open(os.path.join(out, name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            begin = tensor.outline(seed)
            size = tensor.bytes if whole else len(begin)
            file.writelines(repeated(begin, size))
    if whole:
        make_model.write_tokenizer(args)
    make_model.write_json(
        os.path.join(out, "model.safetensors.index.json"),
        {"metadata": {"total_size": offset},
         "weight_map": {tensor.name: shard for tensor in tensors}})


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=make_model.PRESETS, required=True)
    parser.add_argument("--format", choices=FORMATS, default="bf16")
    parser.add_argument("--out", required=True, help="folder to make")
    options = parser.parse_args(argv)
    make(options.preset, options.format, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
