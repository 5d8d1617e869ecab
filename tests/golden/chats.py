#!/usr/bin/env python3
"""The reference's answers to ten chats with the default model: transformers, in
double, on the weights that it dequantises of the GGUF.

  chats.py MODEL.gguf    writes smollm2_chats.json

Needs torch (CPU), transformers 5 and gguf; run once, so tests do without them. A
chat has its messages, the text and ids of its prompt, up to 64 greedy ids (the end
token among them) and their text, and for every id its log probability and the gap
between the two best logits.
"""

import argparse
import hashlib
import json
import pathlib

import torch
import transformers

import reference

TOKENS, DIGITS = 64, 5
CHATS = [
    [("user", "What is gravity?")],
    [("user", "Write a haiku about rivers.")],
    [("system", "You answer in one short sentence."),
     ("user", "Why is the sky blue?")],
    [("user", "Hello! Who are you?")],
    [("user", "List three uses of copper.")],
    [("user", "My name is Ada."), ("assistant", "Nice to meet you, Ada!"),
     ("user", "What is my name?")],
    [("user", "Translate 'good morning' to French.")],
    [("user", "Write a Python function that returns the factorial of n.")],
    [("user", "Explain the difference between a virus and a bacterium to a ten "
      "year old child in a few sentences.")],
    [("user", "What is 7 + 5?")],
]


def load(path):
    """(model in double, tokenizer)"""
    options = {"gguf_file": path.name}
    kind = transformers.AutoModelForCausalLM
    found = kind.from_pretrained(path.parent, dtype=torch.float64,
                                 attn_implementation="eager", **options)
    reference.in_double()
    # Made again, so that the rotary table is computed in double, too.
    config = found.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = kind.from_config(config, dtype=torch.float64,
                             attn_implementation="eager")
    model.load_state_dict({name: tensor.double() for name, tensor in
                           found.state_dict().items()})
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent,
                                                           **options)
    return model.eval(), tokenizer


@torch.no_grad()
def answer(model, tokenizer, messages):
    text = tokenizer.apply_chat_template(messages, tokenize=False,
                                         add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = list(prompt)
    for row in reference.steps(model, prompt, TOKENS, cached=True):
        ids.append(int(row.argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    # One pass over all of it: no cache to trust.
    rows = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0].double()
    rows = rows[len(prompt) - 1:].log_softmax(-1)
    best = rows.topk(2)
    greedy = best.indices[:, 0].tolist()
    if greedy != ids[len(prompt):]:
        raise ValueError(f"{text!r}: the cache gives other ids")
    return {"messages": messages, "text": text, "prompt_ids": prompt,
            "greedy_ids": greedy,
            "greedy_text": tokenizer.decode(greedy, skip_special_tokens=True),
            "logprobs": [round(float(value), DIGITS)
                         for value in best.values[:, 0]],
            "gaps": [round(float(first - second), DIGITS)
                     for first, second in best.values]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("model", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, tokenizer = load(args.model)
    prompts = [answer(model, tokenizer, [{"role": role, "content": content}
                                         for role, content in chat])
               for chat in CHATS]
    head = {"made_by": reference.versions(), "model": args.model.name,
            "sha256": hashlib.sha256(args.model.read_bytes()).hexdigest()}
    lines = ",\n".join(f"  {json.dumps(prompt)}" for prompt in prompts)
    path = pathlib.Path(__file__).resolve().parent / "smollm2_chats.json"
    path.write_text(json.dumps(head)[:-1] + f', "prompts": [\n{lines}\n]}}\n')
    print(f"{path}: smallest gap "
          f"{min(gap for prompt in prompts for gap in prompt['gaps'])}")


if __name__ == "__main__":
    main()
