#!/usr/bin/env python3
"""Measures the served folder on held-out chats, through transformers.

  evaluate.py --model deploy/demo_model/weights --out evaluation.json

Answers are greedy, in F32. The held-out part is drawn from the seed: it needs
no files. Prints a table for the card.
"""

import argparse
import json
import os
import re
import sys
import time

import safetensors.torch
import torch
import transformers

import chats
import make_data
import model as glm
import train

# task -> the share the project wants
GOALS = {"addition": 0.95, "call": 0.95, "unseen_call": 0.85, "json": 0.98,
         "story_question": 0.90}
CALL = re.compile(r"<tool_call>(\S+)\n((?:<arg_key>.*?</arg_key>\n"
                  r"<arg_value>.*?</arg_value>\n)*)</tool_call>", re.S)
ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\n<arg_value>(.*?)"
                      r"</arg_value>", re.S)


def load(folder):
    """(transformers' model, its tokenizer, ours with the same weights)."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    # transformers knows the index of the MTP layer of released models alone.
    behind = rf"model\.layers\.{config['num_hidden_layers']}\..*"
    transformers.Glm4MoeForCausalLM._keys_to_ignore_on_load_unexpected = [
        behind]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours = glm.Model(config)
    ours.take_released(safetensors.torch.load_file(
        os.path.join(folder, "model.safetensors")))
    return theirs.eval(), tokenizer, ours.eval()


def prompt_of(chat, tokenizer):
    quiet = {} if chat.get("thinking", True) else {"enable_thinking": False}
    return tokenizer.apply_chat_template(
        chat["messages"][:-1], tools=chat.get("tools"), tokenize=False,
        add_generation_prompt=True, **quiet)


@torch.no_grad()
def answers(model, tokenizer, prompts, size=40, limit=128):
    """The greedy continuations, as text without the token that stopped."""
    tokenizer.padding_side = "left"
    texts = []
    for first in range(0, len(prompts), size):
        batch = tokenizer(prompts[first:first + size], return_tensors="pt",
                          padding=True, add_special_tokens=False)
        out = model.generate(input_ids=batch["input_ids"],
                             attention_mask=batch["attention_mask"],
                             max_new_tokens=limit, do_sample=False)
        for row in out[:, batch["input_ids"].shape[1]:]:
            texts.append(tokenizer.decode(row, skip_special_tokens=True))
    return texts


def split_answer(text):
    """(reasoning, what follows it)."""
    match = re.match(r"\s*<think>(.*?)</think>\s*(.*)$", text, re.S)
    return (match.group(1), match.group(2).strip()) if match else (
        "", text.strip())


def parse_call(text, tools):
    """(name, arguments) of exactly one well-formed call of a given tool, its
    arguments of the types that the schema says; or None."""
    match = CALL.fullmatch(text)
    if not match:
        return None
    named = [tool["function"] for tool in tools
             if tool["function"]["name"] == match.group(1)]
    if not named:
        return None
    properties = named[0]["parameters"]["properties"]
    arguments = {}
    for key, value in ARGUMENT.findall(match.group(2)):
        if properties.get(key, {}).get("type") == "integer":
            if not re.fullmatch(r"-?\d+", value):
                return None
            value = int(value)
        arguments[key] = value
    return match.group(1), arguments


def right(chat, text):
    """Whether the answer is right; of JSON whether its shape is."""
    wanted = chat["messages"][-1]
    answer = split_answer(text)[1]
    if chat["task"] in ("call", "unseen_call"):
        function = wanted["tool_calls"][0]["function"]
        return parse_call(answer, chat["tools"]) == (
            function["name"], function["arguments"])
    if chat["task"] == "json":
        return same_shape(answer, json.loads(wanted["content"]))
    return answer == wanted["content"]


def same_shape(answer, wanted):
    try:
        value = json.loads(answer)
    except ValueError:
        return False
    return isinstance(value, dict) and list(value) == list(wanted) and all(
        type(value[key]) is type(wanted[key]) for key in wanted)


def measure_task(task, some, theirs, tokenizer):
    """Share of right answers; of JSON also that of right values."""
    texts = answers(theirs, tokenizer,
                    [prompt_of(chat, tokenizer) for chat in some])
    good = [right(chat, text) for chat, text in zip(some, texts)]
    result = {"chats": len(some), "right": round(sum(good) / len(good), 4)}
    if task in GOALS:
        result["goal"] = GOALS[task]
    if task == "json":
        exact = [split_answer(text)[1] == chat["messages"][-1]["content"]
                 for chat, text in zip(some, texts)]
        result["values"] = round(sum(exact) / len(exact), 4)
    wrong = [text for text, fine in zip(texts, good) if not fine]
    result["wrong"] = wrong[:3]
    return result


@torch.no_grad()
def measure_text(some, tokenizer, theirs, ours):
    """On the held-out chats as they stand: loss, drafts accepted, and each
    expert's share of the tokens, as a multiple of the mean."""
    loss = accepted = count = 0.0
    for chat in some:
        ids = tokenizer(chats.render(chat), add_special_tokens=False,
                        return_tensors="pt")["input_ids"]
        wanted = torch.from_numpy(chats.targets(
            ids[0].tolist(), tokenizer.backend_tokenizer, True))[None]
        batch = (ids, torch.arange(ids.shape[1])[None],
                 torch.zeros_like(ids), wanted)
        one, _, _, share = train.losses(ours, *batch)
        weight = int(wanted.sum())
        loss += one.item() * weight
        accepted += share.item() * weight
        count += weight
    # Ours is the same function: checked where the figures come from.
    mine = ours.head(ours(*batch[:3])[0])
    apart = (mine - theirs(ids).logits).abs().max().item()
    if apart > 1e-3:
        raise SystemExit(f"our logits are {apart} from those of transformers")
    loads = torch.stack([router.load for router in ours.routers()])
    loads = loads / loads.mean(dim=1, keepdim=True)
    return {"loss": round(loss / count, 4),
            "drafts_accepted": round(accepted / count, 4),
            "expert_load": [[round(x, 2) for x in row]
                            for row in loads.tolist()],
            "least_load": round(loads.min().item(), 2),
            "most_load": round(loads.max().item(), 2)}


def table(result):
    lines = ["| task | right | wanted |", "| --- | --- | --- |"]
    for task, one in result["tasks"].items():
        goal = f"{one['goal']:.0%}" if "goal" in one else ""
        lines.append(f"| {task} | {one['right']:.1%} | {goal} |")
    text = result["text"]
    lines += [f"| JSON values | {result['tasks']['json']['values']:.1%} | |",
              f"| drafts accepted | {text['drafts_accepted']:.1%} | 60% |",
              f"| expert load, times the mean | {text['least_load']} to "
              f"{text['most_load']} | 0.33 to 3 |",
              f"| loss, nats a token | {text['loss']} | |"]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder")
    parser.add_argument("--out", help="file for the figures, JSON")
    parser.add_argument("--each", type=int, default=200, help="of a task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()
    theirs, tokenizer, ours = load(args.model)
    held = make_data.heldout(args.seed, args.each)
    sums = held["addition"]
    held["addition"] = [chat for chat in sums if chat.get("thinking", True)]
    held["addition, thinking off"] = [chat for chat in sums
                                      if not chat.get("thinking", True)]
    started = time.monotonic()
    tasks = {}
    for task, some in held.items():
        if task in ("story", "talk", "chat"):
            continue  # no one answer is right
        tasks[task] = measure_task(task, some, theirs, tokenizer)
        print(f"{task}: {tasks[task]['right']:.1%} of {len(some)}",
              file=sys.stderr)
    text = measure_text([chat for some in held.values()
                         for chat in some[:40]], tokenizer, theirs, ours)
    result = {"transformers": transformers.__version__, "seed": args.seed,
              "tasks": tasks, "text": text,
              "seconds": round(time.monotonic() - started)}
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    print(table(result))


if __name__ == "__main__":
    main()
