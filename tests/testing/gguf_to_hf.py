#!/usr/bin/env python3
"""Makes a Hugging Face model folder out of a GGUF with transformers.

Usage: gguf_to_hf.py MODEL.gguf OUT [--dtype float32|bfloat16]
Needs what tests/requirements-evals.txt names: `tests/run --long` installs that
into build/venv-evals and makes build/smollm2-hf. The weights are the GGUF's,
dequantised by transformers, so a server must give the same tokens of either.
"""

import argparse
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("out")
    parser.add_argument("--dtype", default="float32",
                        choices=("float32", "bfloat16"))
    arguments = parser.parse_args()
    folder, name = os.path.split(os.path.abspath(arguments.gguf))
    dtype = getattr(torch, arguments.dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name,
                                                 dtype=dtype)
    # A model read from a GGUF refuses to be saved: its weights, dequantised,
    # move into a plain one of the same configuration.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(
        {name: tensor.to(dtype) for name, tensor in model.state_dict().items()})
    plain.generation_config = model.generation_config
    plain.save_pretrained(arguments.out)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(
        arguments.out)


if __name__ == "__main__":
    main()
