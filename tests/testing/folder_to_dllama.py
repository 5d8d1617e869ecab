#!/usr/bin/env python3
"""Writes a folder of safetensors (llama, qwen3 or qwen3_moe in F32 or BF16) as
distributed-llama's converter does: OUT.m in one type of weights, and OUT.t of
a byte-level tokenizer.json. For small models: it is slow, and needs nothing but
Python.

  folder_to_dllama.py FOLDER OUT --type f32|f16|q40|q80
"""

import argparse
import json
import math
import os
import struct

MODEL_MAGIC, TOKENIZER_MAGIC = 0xA00ABCD, 0x567124
ARCHITECTURES = {"llama": 0xABCD00, "qwen3": 0xABCD01, "qwen3_moe": 0xABCD02}
TYPES = {"f32": 0, "f16": 1, "q40": 2, "q80": 3}
BLOCK = 32


class Tensors:
    """All tensors of a folder, as lists of floats with their shapes."""

    def __init__(self, folder):
        self.found = {}
        for name in sorted(os.listdir(folder)):
            if name.startswith("model") and name.endswith(".safetensors"):
                self.read(os.path.join(folder, name))

    def read(self, path):
        with open(path, "rb") as file:
            raw = file.read()
        size = struct.unpack_from("<Q", raw)[0]
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + at for at in entry["data_offsets"])
            if entry["dtype"] == "F32":
                values = struct.unpack(f"<{(end - begin) // 4}f",
                                       raw[begin:end])
            elif entry["dtype"] == "BF16":
                halves = struct.unpack(f"<{(end - begin) // 2}H",
                                       raw[begin:end])
                values = struct.unpack(
                    f"<{len(halves)}f",
                    b"".join(struct.pack("<I", half << 16) for half in halves))
            else:
                raise SystemExit(f"{name} is {entry['dtype']}")
            self.found[name] = (entry["shape"], values)

    def __getitem__(self, name):
        return self.found[name]

    def __contains__(self, name):
        return name in self.found


def interleaved(shape, values, heads):
    """Rows of each head with its halves interleaved: row 2j + h is row
    h * (head / 2) + j."""
    rows, cols = shape
    half = rows // heads // 2
    order = [head * 2 * half + h * half + j for head in range(heads)
             for j in range(half) for h in range(2)]
    return shape, [value for row in order
                   for value in values[row * cols:(row + 1) * cols]]


def q40(block):
    """The greatest element by size becomes code 0 of 0 to 15."""
    low, high = min(block), max(block)
    scale = (low if -low > high else high) / -8
    inverse = 1 / scale if scale else 0
    codes = [min(max(int(value * inverse + 8.5), 0), 15) for value in block]
    return struct.pack("<e16B", scale, *(codes[i] | codes[i + 16] << 4
                                         for i in range(16)))


def q80(block):
    scale = max(abs(value) for value in block) / 127
    inverse = 1 / scale if scale else 0
    return struct.pack("<e32b", scale,
                       *(round(value * inverse) for value in block))


def encoded(values, type_name):
    if type_name == "f32":
        return struct.pack(f"<{len(values)}f", *values)
    if type_name == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    encode = q40 if type_name == "q40" else q80
    return b"".join(encode(values[at:at + BLOCK])
                    for at in range(0, len(values), BLOCK))


def header(magic, pairs):
    data = b"".join(struct.pack("<ii", key, value) for key, value in pairs)
    return struct.pack("<ii", magic, 8 + len(data)) + data


def model_header(config, type_name):
    heads = config["num_attention_heads"]
    pairs = [(0, 0), (1, ARCHITECTURES[config["model_type"]]), (11, 1),
             (2, config["hidden_size"]), (3, config["intermediate_size"]),
             (4, config["num_hidden_layers"]), (5, heads),
             (6, config.get("num_key_value_heads", heads)),
             (13, TYPES[type_name]), (10, config["max_position_embeddings"]),
             (9, config["vocab_size"]), (7, config.get("num_experts", 0)),
             (8, config.get("num_experts_per_tok", 0))]
    if "rope_theta" in config:
        pairs.append((12, int(config["rope_theta"])))
    scaling = config.get("rope_scaling")
    if scaling:
        pairs += [(14, int(scaling["factor"])),
                  (15, int(scaling["low_freq_factor"])),
                  (16, int(scaling["high_freq_factor"])),
                  (17, int(scaling["original_max_position_embeddings"])),
                  (18, 2)]
    if "head_dim" in config:
        pairs.append((19, config["head_dim"]))
    pairs.append((20, -round(math.log10(config["rms_norm_eps"]))))
    if "moe_intermediate_size" in config:
        pairs.append((21, config["moe_intermediate_size"]))
    return header(MODEL_MAGIC, pairs)


def write_model(path, folder, type_name):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = Tensors(folder)
    is_llama = config["model_type"] == "llama"
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    with open(path, "wb") as out:
        def put(name, to, permuted_heads=0):
            shape, values = tensors[name]
            if is_llama and permuted_heads:
                shape, values = interleaved(shape, values, permuted_heads)
            out.write(encoded(values, to))

        def mlp(prefix):
            for part in ("gate", "down", "up"):
                put(f"{prefix}.{part}_proj.weight", type_name)

        out.write(model_header(config, type_name))
        put("model.embed_tokens.weight", "f32")
        for layer in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}"
            put(f"{prefix}.self_attn.q_proj.weight", type_name, heads)
            put(f"{prefix}.self_attn.k_proj.weight", type_name, kv_heads)
            put(f"{prefix}.self_attn.v_proj.weight", type_name)
            put(f"{prefix}.self_attn.o_proj.weight", type_name)
            if config.get("num_experts", 0):
                put(f"{prefix}.mlp.gate.weight", "f32")
                for expert in range(config["num_experts"]):
                    mlp(f"{prefix}.mlp.experts.{expert}")
            else:
                mlp(f"{prefix}.mlp")
            norms = ["input_layernorm", "post_attention_layernorm"]
            if not is_llama:
                norms = ["self_attn.q_norm", "self_attn.k_norm"] + norms
            for norm in norms:
                put(f"{prefix}.{norm}.weight", "f32")
        put("model.norm.weight", "f32")
        head = "lm_head.weight"
        put(head if head in tensors else "model.embed_tokens.weight", type_name)


def byte_alphabet():
    """The byte that each character of a byte-level vocabulary stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    return {**{chr(byte): byte for byte in shown},
            **{chr(256 + at): byte for at, byte in enumerate(others)}}


def write_tokenizer(path, folder):
    def read(name):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)

    json_text, config = read("tokenizer.json"), read("config.json")
    said = read("tokenizer_config.json")
    names = {id_: name for name, id_ in json_text["model"]["vocab"].items()}
    names.update({token["id"]: token["content"]
                  for token in json_text["added_tokens"]})
    alphabet = byte_alphabet()
    tokens = []
    for id_ in range(len(names)):
        token = b""
        for character in names[id_]:
            token += (bytes([alphabet[character]]) if character in alphabet
                      else character.encode())
        tokens.append(token)
    ends = config["eos_token_id"]
    ends = ends if isinstance(ends, list) else [ends]
    template = said.get("chat_template", "").encode()
    pairs = [(3, config["bos_token_id"]), (0, 1), (1, len(tokens)),
             (2, max(map(len, tokens)))]
    if template:
        pairs.append((7, len(template)))
    pairs += [(9, len(ends)), (10, int(said.get("add_bos_token", True)))]
    with open(path, "wb") as out:
        out.write(header(TOKENIZER_MAGIC, pairs) + template)
        out.write(struct.pack(f"<{len(ends)}i", *ends))
        for id_, token in enumerate(tokens):
            out.write(struct.pack("<fI", -float(id_), len(token)) + token)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("out", help="without .m and .t, which are added")
    parser.add_argument("--type", choices=TYPES, default="q40")
    arguments = parser.parse_args()
    write_model(arguments.out + ".m", arguments.folder, arguments.type)
    write_tokenizer(arguments.out + ".t", arguments.folder)


if __name__ == "__main__":
    main()
