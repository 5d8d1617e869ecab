#!/usr/bin/env python3
"""Makes a random Llama model of any size in the released layout.

The folder has config.json, generation_config.json, safetensors (one file, or
shards with an index) and a tokenizer whose text spells the ids ("t5 t17" is
[5, 17]; 0 to 3 are <pad> <s> </s> <end>), so that a server can run on it.
Only the standard library is used, and about 2 GB are written in 15 s. The
same arguments always give the same bytes.

  make_model.py --preset tiny --out /tmp/tiny
  make_model.py --preset llama1b --out /tmp/llama1b
  make_model.py --preset tiny --layers 6 --dtype f32 --shards 3 --out /tmp/m
"""

import argparse
import json
import math
import os
import random
import struct
import sys

PRESETS = {
    "tiny": dict(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16,
                 intermediate=128, vocab=256, dtype="bf16", tie=True,
                 rope_theta=10000.0, max_positions=2048, llama3=False),
    # The shape of Llama-3.2-1B: 1.24 B parameters, 2.5 GB as BF16.
    "llama1b": dict(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64,
                    intermediate=8192, vocab=128256, dtype="bf16", tie=True,
                    rope_theta=500000.0, max_positions=131072, llama3=True),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<end>"]
ELEMENT_BYTES = {"bf16": 2, "f32": 4}
CHUNK = 1 << 22  # elements made at a time
LOGIT_STD = 3.0  # of a random model's logits, about


def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    for name in ("layers", "hidden", "heads", "kv-heads", "head-dim",
                 "intermediate", "vocab", "max-positions"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--dtype", choices=ELEMENT_BYTES)
    parser.add_argument("--tie", action=argparse.BooleanOptionalAction)
    parser.add_argument("--llama3", action=argparse.BooleanOptionalAction,
                        help="llama3 rope scaling")
    parser.add_argument("--rope-theta", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out", required=True, help="folder to make")
    args = parser.parse_args(argv)
    for name, value in PRESETS[args.preset].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.heads % args.kv_heads:
        parser.error(f"--heads {args.heads} is no multiple of --kv-heads "
                     f"{args.kv_heads}")
    if args.vocab <= len(SPECIAL) or args.shards < 1 or args.layers < 1:
        parser.error("--vocab must be above 4, --shards and --layers above 0")
    return args


def config_of(args):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "torch_dtype": {"bf16": "bfloat16", "f32": "float32"}[args.dtype],
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
        "vocab_size": args.vocab,
        "hidden_size": args.hidden,
        "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads,
        "num_key_value_heads": args.kv_heads,
        "head_dim": args.head_dim,
        "intermediate_size": args.intermediate,
        "rms_norm_eps": 1e-5,
        "rope_theta": args.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": args.max_positions,
        "tie_word_embeddings": args.tie,
        "attention_bias": False,
        "mlp_bias": False,
    }
    if args.llama3:
        config["rope_scaling"] = {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    return config


def tensors_of(args):
    """Yields (name, shape, root mean square); 0 stands for a norm's weight."""
    hidden, mlp = args.hidden, args.intermediate
    q, kv = args.heads * args.head_dim, args.kv_heads * args.head_dim
    # What each layer adds to the residual keeps it near one in size.
    residual = 1.0 / math.sqrt(2.0 * args.layers)
    logits = LOGIT_STD / math.sqrt(hidden)
    yield "model.embed_tokens.weight", (args.vocab, hidden), logits
    for layer in range(args.layers):
        prefix = f"model.layers.{layer}."
        inner = 1.0 / math.sqrt(hidden)
        yield prefix + "input_layernorm.weight", (hidden,), 0
        yield prefix + "self_attn.q_proj.weight", (q, hidden), inner
        yield prefix + "self_attn.k_proj.weight", (kv, hidden), inner
        yield prefix + "self_attn.v_proj.weight", (kv, hidden), inner
        yield (prefix + "self_attn.o_proj.weight", (hidden, q),
               residual / math.sqrt(q))
        yield prefix + "post_attention_layernorm.weight", (hidden,), 0
        yield prefix + "mlp.gate_proj.weight", (mlp, hidden), inner
        yield prefix + "mlp.up_proj.weight", (mlp, hidden), inner
        yield (prefix + "mlp.down_proj.weight", (hidden, mlp),
               2.0 * residual / math.sqrt(mlp))
    yield "model.norm.weight", (hidden,), 0
    if not args.tie:
        yield "lm_head.weight", (args.vocab, hidden), logits


def random_values(rng, count, rms, dtype):
    """`count` little-endian values: random sign and mantissa, one exponent.

    BF16 is sign and seven bits of the exponent in the high byte, the last bit
    of the exponent and the mantissa in the low one; F32 has two bytes of
    mantissa more. Translating whole strings of bytes is what makes this fast.
    """
    if rms == 0:  # 1 to 1.06
        exponent, signs, mantissa = 127, 0, 7
    else:  # magnitudes in [2^e, 2^(e+1)) have a root mean square of 1.53 2^e
        exponent = 127 + round(math.log2(rms / 1.53))
        signs, mantissa = 0x80, 0x7F
    high = bytes((b & signs) | (exponent >> 1) for b in range(256))
    low = bytes((b & mantissa) | (exponent & 1) << 7 for b in range(256))
    size = ELEMENT_BYTES[dtype]
    out = bytearray(count * size)
    out[size - 1::size] = rng.randbytes(count).translate(high)
    out[size - 2::size] = rng.randbytes(count).translate(low)
    if size == 4:
        out[0::4] = rng.randbytes(count)
        out[1::4] = rng.randbytes(count)
    return out


def write_safetensors(path, tensors, args):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    size = ELEMENT_BYTES[args.dtype]
    for name, shape, _ in tensors:
        end = offset + math.prod(shape) * size
        header[name] = {"dtype": args.dtype.upper(), "shape": list(shape),
                        "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape, rms in tensors:
            # A stream per tensor: its bytes do not depend on the sharding.
            rng = random.Random(f"{args.seed} {name}")
            left = math.prod(shape)
            while left > 0:
                count = min(left, CHUNK)
                file.write(random_values(rng, count, rms, args.dtype))
                left -= count


def split(tensors, count):
    """Cuts the list into `count` runs of about equal size."""
    total = sum(math.prod(shape) for _, shape, _ in tensors)
    shards, done = [[] for _ in range(count)], 0
    for tensor in tensors:
        shards[min(count - 1, done * count // total)].append(tensor)
        done += math.prod(tensor[1])
    return [shard for shard in shards if shard]


def write_json(path, value, indent=2):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=indent)


def write_tokenizer(args):
    words = SPECIAL + [f"t{i}" for i in range(len(SPECIAL), args.vocab)]
    added = [dict(id=i, content=text, single_word=False, lstrip=False,
                  rstrip=False, normalized=False, special=True)
             for i, text in enumerate(SPECIAL)]
    write_json(os.path.join(args.out, "tokenizer.json"), {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "unk_token": "<pad>",
                  "vocab": {word: i for i, word in enumerate(words)}},
    }, indent=None)
    write_json(os.path.join(args.out, "tokenizer_config.json"), {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
        "eos_token": "</s>", "pad_token": "<pad>",
        "model_max_length": args.max_positions,
        "clean_up_tokenization_spaces": False,
    })


def main(argv):
    args = parse_args(argv)
    os.makedirs(args.out, exist_ok=True)
    write_json(os.path.join(args.out, "config.json"), config_of(args))
    write_json(os.path.join(args.out, "generation_config.json"),
               {"eos_token_id": [2, 3], "do_sample": False})
    write_tokenizer(args)
    shards = split(list(tensors_of(args)), args.shards)
    if len(shards) == 1:
        write_safetensors(os.path.join(args.out, "model.safetensors"),
                          shards[0], args)
        return
    weight_map, total = {}, 0
    for number, tensors in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(os.path.join(args.out, name), tensors, args)
        for tensor, shape, _ in tensors:
            weight_map[tensor] = name
            total += math.prod(shape) * ELEMENT_BYTES[args.dtype]
    write_json(os.path.join(args.out, "model.safetensors.index.json"),
               {"metadata": {"total_size": total}, "weight_map": weight_map})


if __name__ == "__main__":
    main(sys.argv[1:])
