#!/usr/bin/env python3
"""Trains this folder's vocabularies on the demo model's chats and writes what
the reference libraries make of texts.py with them.

usage: tests/text/vocabularies/make.py [DATA]    writes into this folder

With DATA, the folder that tests/test_data/fetch.py makes, it writes
published.json instead: the same texts with published vocabularies.

One vocabulary of each kind that common/text reads, of 512 tokens or fewer.
The references are tokenizers, sentencepiece and tiktoken; `pip install
tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0 gguf==0.19.0
jinja2==3.1.6 numpy` has what this script needs. vectors.json says which
versions wrote it.
"""

import base64
import importlib.metadata
import io
import json
import pathlib
import random
import struct
import sys

import gguf
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

import texts

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "deploy/demo_model"))

from corpus import facts, numbers, stories, tools  # noqa: E402

SIZE = 512
SPECIAL = ["<|begin|>", "<|end|>"]
PLAIN = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# What a file of ranks is known by: its family's number of them.
FAMILIES = {"gpt-2": (50256, GPT2), "llama-bpe": (128000, LLAMA3),
            "gpt-4o": (199998, O200K)}


def training_texts():
    rng = random.Random(1)
    makers = [stories.told, facts.fact, numbers.addition, tools.call]
    drawn = [makers[i % len(makers)](rng, False) for i in range(2000)]
    return [message["content"] for chat in drawn
            for message in chat["messages"] if message.get("content")]


def by_patterns(*patterns):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
         for pattern in patterns] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def add_tokens(tokenizer):
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=True)
         for name in SPECIAL])
    tokenizer.add_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=False)
         for name in PLAIN])


def byte_level(corpus):
    """Trained without splits, and on texts.py beside the chats: its merges go
    across the places where families split, so that a wrong split shows."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = by_patterns()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus[:100] + texts.TEXTS * 20, trainers.BpeTrainer(
            vocab_size=SIZE - len(SPECIAL + PLAIN), show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.pre_tokenizer = by_patterns(LLAMA3)
    add_tokens(tokenizer)
    return tokenizer


def sentencepiece_model(corpus, kind="bpe", size=SIZE, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in corpus
                                for line in text.split("\n") if line]),
        model_writer=out, vocab_size=size, model_type=kind,
        character_coverage=0.999, num_threads=1, minloglevel=2, **options)
    return out.getvalue()


def byte_fallback(processor):
    """The same as a tokenizer.json, as transformers writes Llama 2's."""
    pieces = [processor.id_to_piece(i) for i in range(SIZE)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    cuts = []
    for i, piece in enumerate(pieces[259:], 259):
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            if left in vocabulary and right in vocabulary:
                cuts.append((-processor.get_score(i), vocabulary[left],
                             vocabulary[right], (left, right)))
    tokenizer = tokenizers.Tokenizer(models.BPE(
        vocab=vocabulary, merges=[cut[-1] for cut in sorted(cuts)],
        unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=True)
         for name in ("<unk>", "<s>", "</s>")])
    return tokenizer


def unigram(model):
    """A tokenizer.json of the unigram kind, by sentencepiece's scores: the
    trainer of tokenizers gives other ones each time."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    size = processor.get_piece_size()
    tokenizer = tokenizers.Tokenizer(models.Unigram(
        [(processor.id_to_piece(i), processor.get_score(i))
         for i in range(size)], unk_id=processor.unk_id()))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=True)
         for name in ("<unk>", "<s>", "</s>", *SPECIAL)])
    return tokenizer


def kinds_of(processor):
    """GGUF's token types, which are sentencepiece's."""
    kinds = []
    for i in range(SIZE):
        kinds.append(2 if processor.is_unknown(i) else
                     3 if processor.is_control(i) else
                     6 if processor.is_byte(i) else 1)
    return kinds


def write_gguf(name, model, tokens, kinds, **keys):
    writer = gguf.GGUFWriter(HERE / name, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if "scores" in keys:
        writer.add_token_scores(keys["scores"])
    if "merges" in keys:
        writer.add_token_merges(keys["merges"])
        writer.add_tokenizer_pre(keys["pre"])
    writer.add_bos_token_id(keys["bos"])
    writer.add_eos_token_id(keys["eos"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_dllama(name, processor):
    """distributed-llama's format: a header of keys, then score, length and
    bytes of each token; those of one byte as "<0x0A>"."""
    tokens = [processor.id_to_piece(i).replace("▁", " ").encode()
              for i in range(SIZE)]
    pairs = [(0, 1), (1, SIZE), (2, max(map(len, tokens))), (3, 1), (9, 1),
             (10, 1)]
    out = struct.pack("<ii", 0x567124, 8 + 8 * len(pairs))
    out += b"".join(struct.pack("<ii", *pair) for pair in pairs)
    out += struct.pack("<i", 2)
    for i, token in enumerate(tokens):
        out += struct.pack("<fi", processor.get_score(i), len(token)) + token
    (HERE / name).write_bytes(out)


def write_ranks(name, tokenizer):
    """The byte-level vocabulary as ranks; returned as tiktoken takes them."""
    alphabet = {char: byte for byte, char in _byte_characters().items()}
    names = sorted(tokenizer.get_vocab(with_added_tokens=False).items(),
                   key=lambda entry: entry[1])
    ranks = {bytes(alphabet[char] for char in token): i
             for i, (token, _) in enumerate(names)}
    (HERE / name).write_bytes(b"".join(
        base64.b64encode(token) + b" %d\n" % i for token, i in ranks.items()))
    return ranks


def _byte_characters():
    """GPT-2's byte to character table."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {**{byte: chr(byte) for byte in visible},
            **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def vectors_of(encode, decode):
    """Ids of each text, and what they are decoded to where that differs."""
    ids = [encode(text) for text in texts.TEXTS]
    decoded = {}
    for i, (one, text) in enumerate(zip(ids, texts.TEXTS)):
        if (back := decode(one)) != text:
            decoded[str(i)] = back
    return {"ids": ids, "decoded": decoded}


def of_tokenizers(tokenizer):
    return vectors_of(
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def of_sentencepiece(processor):
    return vectors_of(processor.encode, processor.decode)


def of_tiktoken(pattern, ranks):
    encoding = tiktoken.Encoding("ranks", pat_str=pattern,
                                 mergeable_ranks=ranks, special_tokens={})
    return vectors_of(encoding.encode_ordinary, encoding.decode)


def json_cases(bytes_of):
    """The byte-level vocabulary under each family's splits: `patch` is what
    differs in its tokenizer.json."""
    whole = json.loads(bytes_of.to_str())
    changes = {
        "as trained": {},
        "gpt-2": {"pre_tokenizer": by_patterns(GPT2)},
        "qwen2": {"pre_tokenizer": by_patterns(QWEN2),
                  "normalizer": normalizers.NFC()},
        "gpt-4o": {"pre_tokenizer": by_patterns(O200K)},
        "smollm": {"pre_tokenizer": by_patterns(r"\p{N}", GPT2)},
    }
    for name, parts in changes.items():
        changed = tokenizers.Tokenizer.from_str(json.dumps(whole))
        for part, value in parts.items():
            setattr(changed, part, value)
        now = json.loads(changed.to_str())
        patch = {key: now[key] for key in parts}
        yield {"name": name, "file": "byte_level.json", "patch": patch,
               "parses_special": True, **of_tokenizers(changed)}


def ranks_of(path):
    return {base64.b64decode(token): int(rank) for token, rank in
            (line.split() for line in path.read_bytes().splitlines())}


def published(data):
    cases = []
    for name in ("tokenizers/mistral", "tokenizers/llama3_2",
                 "tokenizers/qwen3"):
        tokenizer = tokenizers.Tokenizer.from_file(
            str(data / name / "tokenizer.json"))
        cases.append({"name": name, "file": name, "parses_special": True,
                      **of_tokenizers(tokenizer)})
    for name, pattern in (("vocab/llama3-tokenizer.model", LLAMA3),
                          ("vocab/o200k_base.tiktoken", O200K),
                          ("vocab/r50k_base.tiktoken", GPT2)):
        cases.append({"name": name, "file": name, "parses_special": False,
                      **of_tiktoken(pattern, ranks_of(data / name))})
    name = "vocab/mistral-tokenizer.model"
    processor = sentencepiece.SentencePieceProcessor(str(data / name))
    cases.append({"name": name, "file": name, "parses_special": False,
                  **of_sentencepiece(processor)})
    write_vectors("published.json", cases)


def main():
    corpus = training_texts()
    cases = []

    trained = byte_level(corpus)
    (HERE / "byte_level.json").write_text(trained.to_str(), encoding="utf-8")
    cases += json_cases(trained)
    whole = json.loads(trained.to_str())
    merges = [" ".join(merge) for merge in whole["model"]["merges"]]
    tokens = [token for token, _ in sorted(trained.get_vocab().items(),
                                           key=lambda entry: entry[1])]
    kinds = [3 if token in SPECIAL else 4 if token in PLAIN else 1
             for token in tokens]
    write_gguf("byte_level.gguf", "gpt2", tokens, kinds, merges=merges,
               pre="smaug-bpe", bos=tokens.index(SPECIAL[0]),
               eos=tokens.index(SPECIAL[1]))
    cases.append({"name": "GGUF of gpt2's kind", "file": "byte_level.gguf",
                  "parses_special": True, **of_tokenizers(trained)})
    ranks = write_ranks("byte_level.tiktoken", trained)
    for name, (size, pattern) in FAMILIES.items():
        cases.append({"name": f"ranks of {name}",
                      "file": "byte_level.tiktoken", "num_ranks": size,
                      "parses_special": False, **of_tiktoken(pattern, ranks)})

    model = sentencepiece_model(corpus, byte_fallback=True,
                                normalization_rule_name="identity",
                                remove_extra_whitespaces=False)
    (HERE / "pieces.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    cases.append({"name": "sentencepiece", "file": "pieces.model",
                  "parses_special": False, **of_sentencepiece(processor)})
    write_gguf("pieces.gguf", "llama",
               [processor.id_to_piece(i) for i in range(SIZE)],
               kinds_of(processor), bos=1, eos=2,
               scores=[processor.get_score(i) for i in range(SIZE)])
    cases.append({"name": "GGUF of llama's kind", "file": "pieces.gguf",
                  "parses_special": False, **of_sentencepiece(processor)})
    write_dllama("pieces.t", processor)
    cases.append({"name": "distributed-llama", "file": "pieces.t",
                  "parses_special": False, **of_sentencepiece(processor)})
    fallback = byte_fallback(processor)
    (HERE / "byte_fallback.json").write_text(fallback.to_str(),
                                             encoding="utf-8")
    cases.append({"name": "BPE with byte fallback",
                  "file": "byte_fallback.json", "parses_special": True,
                  **of_tokenizers(fallback)})

    # Without bytes, for make_symbols.py.
    (HERE / "bare.model").write_bytes(sentencepiece_model(
        corpus, size=160, byte_fallback=False,
        normalization_rule_name="identity"))

    rules = HERE / "rules.tsv"
    model = sentencepiece_model(corpus, byte_fallback=True,
                                normalization_rule_tsv=str(rules))
    (HERE / "rules.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    cases.append({"name": "sentencepiece with a normalizer",
                  "file": "rules.model", "parses_special": False,
                  # Decoded, it loses every space that it begins with.
                  **of_sentencepiece(processor), "decoded": None})

    scored = unigram(sentencepiece_model(
        corpus, kind="unigram", size=300,
        normalization_rule_name="identity", remove_extra_whitespaces=False))
    (HERE / "unigram.json").write_text(scored.to_str(), encoding="utf-8")
    cases.append({"name": "unigram", "file": "unigram.json",
                  "parses_special": True, **of_tokenizers(scored)})
    write_vectors("vectors.json", cases)


def write_vectors(name, cases):
    """A line a case."""
    versions = {package: importlib.metadata.version(package) for package in
                ("tokenizers", "sentencepiece", "tiktoken")}
    lines = ",\n".join(json.dumps(case, ensure_ascii=False,
                                  separators=(",", ":")) for case in cases)
    (HERE / name).write_text(
        '{"versions":' + json.dumps(versions) + ',\n"texts":' +
        json.dumps(texts.TEXTS, separators=(",", ":")) +
        ',\n"cases":[\n' + lines + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        published(pathlib.Path(sys.argv[1]))
    else:
        main()
