#!/usr/bin/env python3
"""What transformers answers in F32, for the cluster's tests.

  make_golden.py --model deploy/demo_model/weights \\
      --out deploy/demo_model/golden.json

Two held-out chats of each of ten tasks: the prompt as messages, text and ids;
up to 32 greedy ids with their logprobs, the 20 best at every step, and the
gap between the two best logits.
"""

import argparse
import json

import torch
import transformers

import evaluate
import make_data

STEPS, TOP = 32, 20
LEFT_OUT = ("talk", "repeat", "recall")
DIGITS = 5


@torch.no_grad()
def golden(chat, model, tokenizer):
    text = evaluate.prompt_of(chat, tokenizer)
    ids = tokenizer(text, add_special_tokens=False,
                    return_tensors="pt")["input_ids"]
    stops = model.generation_config.eos_token_id
    out = {"task": chat["task"], "messages": chat["messages"][:-1],
           "tools": chat.get("tools"),
           "enable_thinking": chat.get("thinking", True), "text": text,
           "prompt_ids": ids[0].tolist(), "greedy_ids": [], "logprobs": [],
           "top20": [], "gaps": []}
    for _ in range(STEPS):  # whole forward passes: no cache to trust
        logits = model(ids).logits[0, -1]
        best = logits.log_softmax(-1).topk(TOP)
        token = int(best.indices[0])
        out["greedy_ids"].append(token)
        out["logprobs"].append(round(float(best.values[0]), DIGITS))
        out["top20"].append([[int(i), round(float(v), DIGITS)]
                             for i, v in zip(best.indices, best.values)])
        out["gaps"].append(round(float(best.values[0] - best.values[1]),
                                 DIGITS))
        if token in stops:
            break
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
    out["greedy_text"] = tokenizer.decode(out["greedy_ids"])
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)  # more only wait for one another
    transformers.utils.logging.disable_progress_bar()
    model, tokenizer, _ = evaluate.load(args.model)
    held = make_data.heldout(args.seed, 10)
    some = [chat for task, chats in held.items() if task not in LEFT_OUT
            for chat in chats[-2:]]
    prompts = [golden(chat, model, tokenizer) for chat in some]
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"transformers": transformers.__version__,
                   "dtype": "float32", "prompts": prompts}, file)
        file.write("\n")
    sure = min(gap for prompt in prompts for gap in prompt["gaps"])
    print(f"{len(prompts)} prompts, smallest gap {sure}")


if __name__ == "__main__":
    main()
