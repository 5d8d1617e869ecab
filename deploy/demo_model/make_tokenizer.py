#!/usr/bin/env python3
"""Trains the tokenizer and turns the chats into rows of ids.

  make_tokenizer.py --data /tmp/demo_run/data

writes beside the chats: tokenizer.json, and train.npz with every chat's ids
one behind the other, which of them are targets, and where each chat begins.
Chats longer than a row are left out and counted.
"""

import argparse
import itertools
import os
import sys

import numpy

import chats


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--size", type=int, default=1536)
    parser.add_argument("--row", type=int, default=320)
    parser.add_argument("--sample", type=int, default=6000,
                        help="chats that the tokenizer is trained on")
    args = parser.parse_args(argv)
    source = os.path.join(args.data, "train.jsonl")
    sample = itertools.islice(chats.read_chats(source), args.sample)
    tokenizer = chats.train_tokenizer(map(chats.render, sample), args.size)
    tokenizer.save(os.path.join(args.data, "tokenizer.json"))

    ids, wanted, starts, long, length = [], [], [0], 0, 0
    for chat in chats.read_chats(source):
        one = tokenizer.encode(chats.render(chat),
                               add_special_tokens=False).ids
        if len(one) > args.row:
            long += 1
            continue
        ids.append(numpy.array(one, dtype=numpy.uint16))
        wanted.append(chats.targets(one, tokenizer, chat["task"] == "chat"))
        length += len(one)
        starts.append(length)
    numpy.savez(os.path.join(args.data, "train.npz"),
                ids=numpy.concatenate(ids),
                wanted=numpy.concatenate(wanted),
                starts=numpy.array(starts))
    print(f"{len(starts) - 1} chats, {length} tokens, "
          f"{length / (len(starts) - 1):.1f} each; {long} too long")


if __name__ == "__main__":
    main(sys.argv[1:])
