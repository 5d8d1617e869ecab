#!/usr/bin/env python3
"""Makes a random model of any size in the released layout.

Families: llama, qwen3_moe (any pattern of dense and sparse layers), glm4_moe
(mixture of experts, with a shared one) and gpt_oss (windows, sinks, experts in
MXFP4 or, with --experts-dtype bf16, transposed).

The folder has config.json, generation_config.json, safetensors (one file, or
shards with an index) and a tokenizer whose text spells the ids ("t5 t17" is
[5, 17]; 0 to 3 are <pad> <s> </s> <end>), so that a server can run on it.
Only the standard library is used, and about 2 GB are written in 15 s. The
same arguments always give the same bytes.

  make_model.py --preset tiny --out /tmp/tiny
  make_model.py --preset llama1b --out /tmp/llama1b
  make_model.py --preset vocab128k --out /tmp/vocab128k
  make_model.py --preset glm1b --out /tmp/glm1b
  make_model.py --preset gptoss1b --experts 64 --out /tmp/gptoss
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
# About the size of the default model (SmolLM2-135M) with Llama 3's
# vocabulary: 180 M parameters, 0.36 GB. Its draws at temperature 1 have about
# the entropy of a trained model's, one or two nats.
PRESETS["vocab128k"] = dict(
    PRESETS["tiny"], layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64,
    intermediate=1536, vocab=128256, max_positions=8192, logit_std=6.0)
# What the families with experts add; llama has none of it.
MOE = dict(family="glm4_moe", tie=False, experts=8, experts_per_token=2,
           moe_intermediate=64, shared_experts=1, first_dense=1, groups=1,
           qk_norm=True, mtp=False, max_positions=131072, rope_theta=1e6)
OSS = dict(MOE, family="gpt_oss", experts_per_token=4, window=128,
           shared_experts=0, first_dense=0, experts_dtype="mxfp4",
           rope_theta=150000.0)
QWEN = dict(MOE, family="qwen3_moe", shared_experts=0, first_dense=0,
            sparse_step=1, mlp_only_layers=())
PRESETS["qwen3moe-tiny"] = dict(PRESETS["tiny"], **QWEN)
PRESETS["qwen3moe-tiny"].update(layers=6, dtype="f32", intermediate=96)
PRESETS["glm-tiny"] = dict(PRESETS["tiny"], layers=3, **MOE)
PRESETS["gptoss-tiny"] = dict(PRESETS["tiny"], **OSS)
# About 1.0 B parameters, 0.15 B of them active for a token; 2 GB as BF16.
PRESETS["glm1b"] = dict(
    PRESETS["tiny"], layers=12, hidden=1024, heads=16, kv_heads=4, head_dim=64,
    intermediate=4096, vocab=32000,
    **dict(MOE, experts=48, experts_per_token=4, moe_intermediate=512))
# About 1.2 B parameters; 0.8 GB, its experts in MXFP4.
PRESETS["gptoss1b"] = dict(
    PRESETS["tiny"], layers=12, hidden=1024, heads=16, kv_heads=4, head_dim=64,
    intermediate=1024, vocab=32000,
    **dict(OSS, experts=32, moe_intermediate=1024))
SPECIAL = ["<pad>", "<s>", "</s>", "<end>"]
ELEMENT_BYTES = {"bf16": 2, "f32": 4, "codes": 1, "scales": 1}
STORED = {"bf16": "BF16", "f32": "F32", "codes": "U8", "scales": "U8"}
MXFP4_RMS = 2.93  # of its sixteen codes, at a scale of 1
CHUNK = 1 << 22  # elements made at a time
LOGIT_STD = 3.0  # of a random model's logits, about, unless told


def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    for name in ("layers", "hidden", "heads", "kv-heads", "head-dim",
                 "intermediate", "vocab", "max-positions", "experts",
                 "experts-per-token", "moe-intermediate", "shared-experts",
                 "first-dense", "groups", "window", "sparse-step"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--dtype", choices=("bf16", "f32"))
    parser.add_argument("--experts-dtype", choices=("mxfp4", "bf16"),
                        help="of gpt_oss")
    parser.add_argument("--mlp-only-layers", metavar="N,N",
                        type=lambda text: [int(n) for n in text.split(",")],
                        help="dense ones of qwen3_moe")
    parser.add_argument("--qk-norm", action=argparse.BooleanOptionalAction)
    parser.add_argument("--mtp", action=argparse.BooleanOptionalAction,
                        help="a layer behind the last, for glm4_moe")
    parser.add_argument("--tie", action=argparse.BooleanOptionalAction)
    parser.add_argument("--llama3", action=argparse.BooleanOptionalAction,
                        help="llama3 rope scaling")
    parser.add_argument("--rope-theta", type=float)
    parser.add_argument("--logit-std", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out", required=True, help="folder to make")
    args = parser.parse_args(argv)
    args.family = PRESETS[args.preset].get("family", "llama")
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
        "architectures": [{"llama": "LlamaForCausalLM",
                           "qwen3_moe": "Qwen3MoeForCausalLM",
                           "glm4_moe": "Glm4MoeForCausalLM",
                           "gpt_oss": "GptOssForCausalLM"}[args.family]],
        "model_type": args.family,
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
    if args.family == "glm4_moe":
        config.update({
            "attention_bias": True, "partial_rotary_factor": 0.5,
            "use_qk_norm": args.qk_norm, "n_routed_experts": args.experts,
            "num_experts_per_tok": args.experts_per_token,
            "moe_intermediate_size": args.moe_intermediate,
            "n_shared_experts": args.shared_experts,
            "first_k_dense_replace": args.first_dense,
            "n_group": args.groups, "topk_group": (args.groups + 1) // 2,
            "norm_topk_prob": True, "routed_scaling_factor": 1.0,
            "num_nextn_predict_layers": int(args.mtp),
        })
    elif args.family == "qwen3_moe":
        config.update({
            "num_experts": args.experts,
            "num_experts_per_tok": args.experts_per_token,
            "moe_intermediate_size": args.moe_intermediate,
            "norm_topk_prob": True, "decoder_sparse_step": args.sparse_step,
            "mlp_only_layers": list(args.mlp_only_layers),
        })
    elif args.family == "gpt_oss":
        config.update({
            "attention_bias": True, "num_local_experts": args.experts,
            "num_experts_per_tok": args.experts_per_token,
            "intermediate_size": args.moe_intermediate,
            "swiglu_limit": 7.0, "sliding_window": args.window,
            "layer_types": [("full_attention" if i % 2 else
                             "sliding_attention")
                            for i in range(args.layers)],
            "rope_scaling": {
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        })
        if args.experts_dtype == "mxfp4":
            config["quantization_config"] = {"quant_method": "mxfp4"}
    return config


class Tensors:
    """The model's tensors as (name, shape, root mean square, type); a root
    mean square of 0 stands for a norm's weight."""

    def __init__(self, args):
        self.args = args
        self.inner = 1.0 / math.sqrt(args.hidden)
        # What each layer adds to the residual keeps it near one in size.
        self.residual = 1.0 / math.sqrt(2.0 * args.layers)

    def one(self, name, shape, rms, dtype=None):
        yield name, shape, rms, dtype or self.args.dtype

    def linear(self, name, out, width, rms, bias=False):
        yield from self.one(name + ".weight", (out, width), rms)
        if bias:
            yield from self.one(name + ".bias", (out,), 0.1)

    def all(self):
        args, hidden = self.args, self.args.hidden
        logits = (args.logit_std or LOGIT_STD) / math.sqrt(hidden)
        yield from self.linear("model.embed_tokens", args.vocab, hidden,
                               logits)
        behind = args.family == "glm4_moe" and args.mtp
        for layer in range(args.layers + behind):
            yield from self.layer(layer, f"model.layers.{layer}.")
        if behind:
            yield from self.mtp(f"model.layers.{args.layers}.")
        yield from self.one("model.norm.weight", (hidden,), 0)
        if not args.tie:
            yield from self.linear("lm_head", args.vocab, hidden, logits)

    def layer(self, layer, prefix):
        args, hidden = self.args, self.args.hidden
        yield from self.one(prefix + "input_layernorm.weight", (hidden,), 0)
        yield from self.attention(prefix + "self_attn.")
        yield from self.one(prefix + "post_attention_layernorm.weight",
                            (hidden,), 0)
        if args.family == "gpt_oss":
            yield from self.gpt_oss_experts(prefix + "mlp.")
        elif self.is_dense(layer):
            yield from self.mlp(prefix + "mlp.", args.intermediate, 2.0)
        else:
            yield from self.glm_experts(prefix + "mlp.")

    def is_dense(self, layer):
        args = self.args
        if args.family == "qwen3_moe":
            return (layer in args.mlp_only_layers
                    or (layer + 1) % args.sparse_step != 0)
        return args.family == "llama" or layer < args.first_dense

    def attention(self, prefix):
        args, hidden = self.args, self.args.hidden
        q, kv = args.heads * args.head_dim, args.kv_heads * args.head_dim
        bias = args.family not in ("llama", "qwen3_moe")
        for name, out in (("q", q), ("k", kv), ("v", kv)):
            yield from self.linear(f"{prefix}{name}_proj", out, hidden,
                                   self.inner, bias)
        yield from self.linear(prefix + "o_proj", hidden, q,
                               self.residual / math.sqrt(q),
                               args.family == "gpt_oss")
        if args.family == "qwen3_moe" or (args.family == "glm4_moe"
                                          and args.qk_norm):
            for name in ("q_norm", "k_norm"):
                yield from self.one(f"{prefix}{name}.weight",
                                    (args.head_dim,), 0)
        if args.family == "gpt_oss":
            yield from self.one(prefix + "sinks", (args.heads,), 1.0)

    def mlp(self, prefix, size, gain):
        hidden = self.args.hidden
        yield from self.linear(prefix + "gate_proj", size, hidden, self.inner)
        yield from self.linear(prefix + "up_proj", size, hidden, self.inner)
        yield from self.linear(prefix + "down_proj", hidden, size,
                               gain * self.residual / math.sqrt(size))

    def glm_experts(self, prefix):
        args = self.args
        yield from self.linear(prefix + "gate", args.experts, args.hidden,
                               self.inner)
        if args.family == "glm4_moe":
            yield from self.one(prefix + "gate.e_score_correction_bias",
                                (args.experts,), 0.05, "f32")
        for expert in range(args.experts):
            yield from self.mlp(f"{prefix}experts.{expert}.",
                                args.moe_intermediate, 2.0)
        if args.shared_experts:
            yield from self.mlp(prefix + "shared_experts.",
                                args.shared_experts * args.moe_intermediate,
                                1.0)

    def gpt_oss_experts(self, prefix):
        args, hidden = self.args, self.args.hidden
        experts, size = args.experts, args.moe_intermediate
        yield from self.linear(prefix + "router", experts, hidden, self.inner,
                               True)
        for name, out, width, rms in (
                ("gate_up_proj", 2 * size, hidden, self.inner),
                ("down_proj", hidden, size,
                 self.residual / math.sqrt(size))):
            name = f"{prefix}experts.{name}"
            if args.experts_dtype == "mxfp4":
                groups = (experts, out, width // 32)
                yield from self.one(name + "_blocks", groups + (16,), rms,
                                    "codes")
                yield from self.one(name + "_scales", groups, rms, "scales")
            else:
                yield from self.one(name, (experts, width, out), rms)
            yield from self.one(name + "_bias", (experts, out), 0.05)

    def mtp(self, prefix):
        hidden = self.args.hidden
        yield from self.linear(prefix + "eh_proj", hidden, 2 * hidden,
                               self.inner)
        for name in ("enorm", "hnorm", "shared_head.norm"):
            yield from self.one(f"{prefix}{name}.weight", (hidden,), 0)


def random_values(rng, count, rms, dtype):
    """`count` little-endian values: random sign and mantissa, one exponent.

    BF16 is sign and seven bits of the exponent in the high byte, the last bit
    of the exponent and the mantissa in the low one; F32 has two bytes of
    mantissa more. Translating whole strings of bytes is what makes this fast.
    MXFP4's codes are any bytes; its scales are all the same power of two.
    """
    if dtype == "codes":
        return rng.randbytes(count)
    if dtype == "scales":
        return bytes([127 + round(math.log2(rms / MXFP4_RMS))]) * count
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
    for name, shape, _, dtype in tensors:
        end = offset + math.prod(shape) * ELEMENT_BYTES[dtype]
        header[name] = {"dtype": STORED[dtype], "shape": list(shape),
                        "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape, rms, dtype in tensors:
            # A stream per tensor: its bytes do not depend on the sharding.
            rng = random.Random(f"{args.seed} {name}")
            left = math.prod(shape)
            while left > 0:
                count = min(left, CHUNK)
                file.write(random_values(rng, count, rms, dtype))
                left -= count


def split(tensors, count):
    """Cuts the list into `count` runs of about equal size."""
    total = sum(math.prod(shape) for _, shape, _, _ in tensors)
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
    shards = split(list(Tensors(args).all()), args.shards)
    if len(shards) == 1:
        write_safetensors(os.path.join(args.out, "model.safetensors"),
                          shards[0], args)
        return
    weight_map, total = {}, 0
    for number, tensors in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(os.path.join(args.out, name), tensors, args)
        for tensor, shape, _, dtype in tensors:
            weight_map[tensor] = name
            total += math.prod(shape) * ELEMENT_BYTES[dtype]
    write_json(os.path.join(args.out, "model.safetensors.index.json"),
               {"metadata": {"total_size": total}, "weight_map": weight_map})


if __name__ == "__main__":
    main(sys.argv[1:])
