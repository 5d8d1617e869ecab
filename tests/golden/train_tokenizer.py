#!/usr/bin/env python3
"""Trains the tokenizer of the golden model `stories`, which the folder keeps.

  train_tokenizer.py    writes stories_tokenizer.json

512 ids: <unk> <s> </s>, the 256 bytes, and pieces of byte-pair encoding, learned
from chats of the demo model (deploy/demo_model/corpus); text is encoded as Llama
2's tokenizer does. Needs the package `tokenizers` (0.23.3 made what is here).
"""

import json
import pathlib
import sys

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1] / "deploy/demo_model"))

import make_data  # noqa: E402

SIZE, CHATS, SPACE = 512, 6000, "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def texts():
    """What is said in the first chats, line by line."""
    corpus = make_data.Corpus(1, held=False)
    for _ in range(CHATS):
        for message in corpus.mixed()["messages"]:
            yield from (message.get("content") or "").splitlines()


def learn():
    """(pieces, merges): words are learned from, each with the space before it."""
    learning = tokenizers.Tokenizer(models.BPE())
    learning.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    learning.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=SIZE - len(SPECIAL) - len(BYTES), show_progress=False))
    model = json.loads(learning.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def main():
    pieces, merges = learn()
    vocab = {text: id for id, text in enumerate(SPECIAL + BYTES + pieces)}
    made = tokenizers.Tokenizer(models.BPE(
        vocab, [tuple(pair) for pair in merges], unk_token=SPECIAL[0],
        fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([
        normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    made.decoder = decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1",
        special_tokens=[("<s>", vocab["<s>"])])
    made.add_special_tokens(SPECIAL)
    path = FOLDER / "stories_tokenizer.json"
    path.write_text(made.to_str() + "\n", encoding="utf-8")
    print(f"{path}: {made.get_vocab_size()} ids, {len(merges)} merges")


if __name__ == "__main__":
    main()
