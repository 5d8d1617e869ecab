#!/usr/bin/env python3
"""Makes the chats that the demo model learns from and is measured on.

  make_data.py --out /tmp/demo_run/data

writes train.jsonl and heldout.jsonl: a chat per line as the API takes it,
with its task. The same seed and counts give the same bytes on every machine;
only the standard library is used. Stories that are near to an earlier one,
and chats equal to an earlier one, are left out (small talk and facts about
Sluice, of which there are few, repeat).
"""

import argparse
import itertools
import json
import os
import random
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from corpus import (copies, facts, mixed, near, numbers,  # noqa: E402
                    shapes, stories, tools)

# task -> (how it is made, its weight in train)
TASKS = {
    "repeat": (copies.repeat, 10),
    "recall": (copies.recall, 10),
    "story": (stories.told, 11),
    "story_question": (stories.read, 21),
    "addition": (numbers.addition, 12),
    "comparison": (numbers.comparison, 6),
    "fact": (facts.fact, 4),
    "talk": (facts.talk, 1),
    "json": (shapes.shape, 11),
    "call": (tools.call, 21),
    "decline": (tools.decline, 6),
    "chat": (mixed.chat, 8),
    "unseen_call": (tools.unseen_call, 0),  # held-out alone
}
FEW = {"fact": 60, "talk": 20}  # most that a held-out part has of these
QUIET = 0.12  # share of chats with enable_thinking off
SYSTEM = ["You are a helpful assistant.", "Be brief and friendly.",
          "You are the demo model of Sluice.", "Answer in one sentence."]


class Corpus:
    """One part, drawn chat by chat; knows what it has given."""

    def __init__(self, seed, held):
        self._rng = random.Random(f"{seed} {'heldout' if held else 'train'}")
        self._held = held
        self._near = near.NearIndex()
        self._given = set()
        self.left_out = {"near": 0, "equal": 0}

    def chat(self, task):
        while True:
            chat = TASKS[task][0](self._rng, self._held)
            chat["task"] = task
            self._dress(chat)
            if self._take(chat):
                return chat

    def mixed(self):
        """A chat of a task drawn by the weights of train."""
        weights = [weight for _, weight in TASKS.values()]
        return self.chat(self._rng.choices(list(TASKS), weights)[0])

    def _dress(self, chat):
        """Thinking off in some chats, a system message before some."""
        rng = self._rng
        if rng.random() < QUIET:
            chat["thinking"] = False
            for message in chat["messages"]:
                message.pop("reasoning_content", None)
        if rng.random() < 0.05:
            chat["messages"].insert(0, {"role": "system",
                                        "content": rng.choice(SYSTEM)})

    def _take(self, chat):
        text = chat.pop("near", None)
        repeats = chat.pop("repeats", False)
        if text is not None and not self._near.add(text):
            self.left_out["near"] += 1
            return False
        key = zlib.crc32(line_of(chat).encode())
        if key in self._given and not repeats:
            self.left_out["equal"] += 1
            return False
        self._given.add(key)
        return True


def line_of(chat):
    return json.dumps(chat, ensure_ascii=False) + "\n"


def write(path, chats):
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8", newline="\n") as file:
        for chat in chats:
            file.write(line_of(chat))
    os.replace(partial, path)


def heldout(seed, each):
    """task -> `each` held-out chats, of some tasks fewer (FEW)."""
    held = Corpus(seed, held=True)
    return {task: [held.chat(task)
                   for _ in range(min(each, FEW.get(task, each)))]
            for task in TASKS}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder to make")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", type=int, default=180000, help="chats")
    parser.add_argument("--heldout", type=int, default=200,
                        help="chats of each task")
    args = parser.parse_args(argv)
    os.makedirs(args.out, exist_ok=True)
    write(os.path.join(args.out, "heldout.jsonl"),
          itertools.chain(*heldout(args.seed, args.heldout).values()))
    train = Corpus(args.seed, held=False)
    write(os.path.join(args.out, "train.jsonl"),
          (train.mixed() for _ in range(args.train)))
    print(f"{args.train} chats to train on; left out: "
          f"{train.left_out['near']} near-duplicates, "
          f"{train.left_out['equal']} equals")


if __name__ == "__main__":
    main(sys.argv[1:])
