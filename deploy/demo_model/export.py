#!/usr/bin/env python3
"""Writes a checkpoint as a released model: the folder that is served.

  export.py --run /tmp/demo_run --out deploy/demo_model/weights
"""

import argparse
import json
import os
import shutil

import safetensors.torch
import torch

import chats
import model as glm

MOST_BYTES = 12 << 20  # of the weights, in the repository


def stop_ids(tokenizer):
    return [tokenizer.token_to_id(name) for name in chats.STOPS]


def export(net, tokenizer_path, out):
    os.makedirs(out, exist_ok=True)
    tensors = dict(net.released())
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    if size > MOST_BYTES:
        raise SystemExit(f"the weights have {size} bytes, more than "
                         f"{MOST_BYTES}")
    tokenizer = chats.load_tokenizer(tokenizer_path)
    stops = stop_ids(tokenizer)
    config = dict(net.config, eos_token_id=stops, pad_token_id=stops[0])
    if tokenizer.get_vocab_size() != config["vocab_size"]:
        raise SystemExit(f"{tokenizer_path} has {tokenizer.get_vocab_size()} "
                         f"ids, the model {config['vocab_size']}")
    safetensors.torch.save_file(tensors, os.path.join(
        out, "model.safetensors"), metadata={"format": "pt"})
    shutil.copyfile(tokenizer_path, os.path.join(out, "tokenizer.json"))
    shutil.copyfile(chats.TEMPLATE, os.path.join(out, "chat_template.jinja"))
    for name, value in (
            ("config.json", config),
            ("generation_config.json", {
                "eos_token_id": stops, "pad_token_id": stops[0],
                "do_sample": False}),
            ("tokenizer_config.json", {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>",
                "model_max_length": config["max_position_embeddings"],
                "clean_up_tokenization_spaces": False})):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, help="folder of the run")
    parser.add_argument("--out", required=True, help="folder to write")
    args = parser.parse_args()
    with open(os.path.join(chats.FOLDER, "config.json"),
              encoding="utf-8") as file:
        net = glm.Model(json.load(file))
    state = torch.load(os.path.join(args.run, "state.pt"),
                       map_location="cpu", weights_only=True)
    net.load_state_dict(state["net"])
    size = export(net, os.path.join(args.run, "data", "tokenizer.json"),
                  args.out)
    print(f"{args.out}: step {state['step']} of {state['plan']['steps']}, "
          f"{size} bytes of weights")


if __name__ == "__main__":
    main()
