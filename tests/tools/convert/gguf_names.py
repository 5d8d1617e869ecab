#!/usr/bin/env python3
"""Reads a GGUF with the gguf package and compares every tensor's name and
rank, and every key, with what the package knows of the architecture. Prints
"all known", or each odd one and ends with 1. Ends with 3 without the package.

  gguf_names.py FILE
"""

import re
import sys

try:
    import gguf
except ImportError:
    sys.exit(3)


def known_names(arch):
    """Patterns of the architecture's tensors."""
    names = [gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[arch]]
    return [re.compile(re.escape(name).replace(r"\{bid\}", r"\d+") +
                       r"\.(weight|bias)$") for name in names]


def known_keys(arch):
    """All keys of the package's tables, with the architecture's name."""
    found = set()

    def walk(table):
        for name, value in vars(table).items():
            if name.startswith("_"):
                continue
            if isinstance(value, str):
                found.add(value.replace("{arch}", arch))
            elif isinstance(value, type):
                walk(value)

    walk(gguf.Keys)
    return found


def text(reader, key):
    return bytes(reader.fields[key].parts[-1]).decode()


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    arch_name = text(reader, "general.architecture")
    arch = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[
        arch_name]
    odd = []
    patterns = known_names(arch)
    hidden = int(reader.fields[f"{arch_name}.embedding_length"].parts[-1][0])
    for tensor in reader.tensors:
        if not any(pattern.match(tensor.name) for pattern in patterns):
            odd.append(f"tensor {tensor.name}")
        shape = [int(size) for size in tensor.shape]
        stacked = "_exps." in tensor.name
        is_matrix = tensor.name.endswith(".weight") and not re.search(
            r"norm|sinks|rope_f|ffn_gate_inp_shexp", tensor.name)
        if len(shape) != (2 if is_matrix else 1) + stacked:
            odd.append(f"shape {shape} of {tensor.name}")
        if tensor.name == "token_embd.weight" and shape[0] != hidden:
            odd.append(f"shape {shape} of {tensor.name}")
        if not is_matrix and tensor.tensor_type != gguf.GGMLQuantizationType.F32:
            odd.append(f"type {tensor.tensor_type} of {tensor.name}")
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.size != tensor.n_elements:
            odd.append(f"{values.size} elements of {tensor.name}")
    keys = known_keys(arch_name)
    for key in reader.fields:
        if not key.startswith("GGUF.") and key not in keys:
            odd.append(f"key {key}")
    print("\n".join(odd) if odd else
          f"{len(reader.tensors)} tensors, {len(reader.fields)} keys, all known")
    sys.exit(1 if odd else 0)


if __name__ == "__main__":
    main()
