"""The answers of a reference: transformers on this machine's CPU. It runs in the
environment that environment.py makes, or by another Python with the packages.

Greedy ids come from a cache; one pass without a cache over prompt and answer gives
every log probability, and confirms the ids.
"""

import argparse
import platform
import sys
import time

import prompts
import reference_file
from environment import requirements
from failure import Failure

try:
    import torch
    import transformers

    import model as models
except ImportError as missing:
    print(f"error: {sys.executable}: {missing}; make-reference needs "
          f"{', '.join(requirements())}", file=sys.stderr)
    sys.exit(1)

# A cache's id may differ from the whole pass's where the two best logits are this
# near: rounding decides there, and the answer ends.
NEAR = {"float64": 1e-8, "float32": 1e-2, "bfloat16": 0.5}
DIGITS = 7  # of log probabilities, behind the point


class Untrusted(Exception):
    """The cache of this model's code gives other ids than a whole pass."""


def greedy(model, ids, count, cached):
    """Up to `count` greedy ids; an end token is the last."""
    found, cache, given = [], None, list(ids)
    while len(found) < count:
        row, cache = model.last_row(given, cache, cached)
        found.append(int(row.argmax()))
        if found[-1] in model.end_ids:
            break
        given = found[-1:] if cached else [*ids, *found]
    return found


def scores(model, ids, top):
    """Of the rows behind all ids but the last: [(log probability of the next id,
    likeliest ids, their log probabilities, gap of the two best)]."""
    found, at = [], 0
    for rows in model.rows(ids[:-1]):
        rows = rows.double().log_softmax(-1)
        best = rows.topk(min(max(top, 2), rows.shape[1]))
        for row, values, indices in zip(rows, best.values, best.indices):
            at += 1
            found.append((float(row[ids[at]]), indices.tolist()[:top],
                          values.tolist()[:top],
                          float(values[0] - values[1])))
    return found


def confirmed(model, ids, answer, rows, near):
    """How many ids of the answer the whole pass gives, too."""
    for at, token in enumerate(answer):
        value, likeliest, values, _ = rows[len(ids) - 1 + at]
        if likeliest[0] == token:
            continue
        if values[0] - value > near:
            raise Untrusted(f"the cache gives id {token} at position {at} of "
                            f"the answer, a whole pass {likeliest[0]}, which is "
                            f"{values[0] - value:.3g} nats likelier")
        return at
    return len(answer)


def answer(model, name, ids, options):
    """The prompt's entry in the file."""
    near = NEAR[options.dtype]
    while True:
        made = greedy(model, ids, options.max_tokens, model.trusts_cache)
        rows = scores(model, ids + made, options.top)
        try:
            made = made[:confirmed(model, ids, made, rows, near)]
            break
        except Untrusted as error:
            if not model.trusts_cache:
                raise Failure(f"{name}: two passes without a cache differ: "
                              f"{error}") from error
            print(f"{name}: {error}; answers are made without a cache from "
                  "here on, which takes longer", file=sys.stderr)
            model.trusts_cache = False
    rows = rows[:len(ids) + len(made) - 1]
    split = len(ids) - 1
    short = [[round(value, DIGITS) for value in row[2]] for row in rows]
    return {"name": name, "ids": ids,
            "prompt_logprobs": [None, *(round(row[0], DIGITS)
                                        for row in rows[:split])],
            "greedy_ids": made,
            "greedy_logprobs": [round(row[0], DIGITS) for row in rows[split:]],
            "gaps": [round(row[3], DIGITS) for row in rows[split:]],
            "greedy_text": model.text(made),
            "top_ids": [[], *(row[1] for row in rows)],
            "top_logprobs": [[], *short]}


def wanted(model, options):
    """([(name, ids)], {name: why it is left out})"""
    chosen, left_out = [], {}

    def take(name, ids, why):
        room = model.context - options.max_tokens
        if ids and len(ids) > room:
            why = (f"{len(ids)} tokens and {options.max_tokens} of the answer "
                   f"are more than the model's context of {model.context}")
            ids = None
        if ids and max(ids) >= model.vocab_size:
            why = (f"id {max(ids)} is not below the vocabulary's "
                   f"{model.vocab_size}")
            ids = None
        if ids:
            chosen.append((name, [int(token) for token in ids]))
        else:
            left_out[name] = why

    entries = prompts.read(options.prompts or prompts.OWN)
    names = [entry["name"] for entry in entries]
    if len(set(names)) != len(names):
        raise Failure(f"{options.prompts}: two prompts have one name", 2)
    for entry in entries:
        take(entry["name"], prompts.ids_of(entry, model.tokenizer),
             "the tokenizer makes no token of it")
    if not options.prompts:
        for name, tokens in prompts.LONG.items():
            take(name, prompts.long_ids(model.tokenizer, tokens),
                 "the tokenizer does not spell its text")
    return chosen, left_out


def head(model, options):
    def tell(name):
        print(f"reading {name}", file=sys.stderr)
    return {"made_by": {"transformers": transformers.__version__,
                        "torch": torch.__version__,
                        "python": platform.python_version(),
                        "dtype": options.dtype,
                        "attention": model.attention},
            "model": {"name": options.name, "type": model.kind,
                      "vocab_size": model.vocab_size,
                      **reference_file.digest(options.model, tell)},
            "max_tokens": options.max_tokens, "top": options.top}


def make(options):
    model = models.load(options.model, options.dtype)
    chosen, left_out = wanted(model, options)
    for name, why in left_out.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    if not chosen:
        raise Failure("no prompt is left")
    asked = {"prompts": [{"name": name, "ids": ids} for name, ids in chosen]}
    asked = reference_file.text_digest(asked)
    out = reference_file.ReferenceFile(
        options.out, {**head(model, options), "asked": asked})
    if out.prompts:
        print(f"{len(out.prompts)} prompts were made before", file=sys.stderr)
    for at, (name, ids) in enumerate(chosen, 1):
        if out.has(name):
            continue
        begin = time.monotonic()
        print(f"{at} of {len(chosen)}: {name}, {len(ids)} tokens .. ", end="",
              file=sys.stderr, flush=True)
        made = answer(model, name, ids, options)
        out.add(made)
        print(f"{len(made['greedy_ids'])} of the answer, "
              f"{time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    out.finish([name for name, _ in chosen], left_out)
    print(options.out)


def parse(words):
    parser = argparse.ArgumentParser()
    for name in ("--model", "--name", "--out", "--dtype"):
        parser.add_argument(name, required=True)
    parser.add_argument("--prompts")
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--top", type=int, required=True)
    return parser.parse_args(words)


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    options = parse(sys.argv[1:])
    try:
        with torch.inference_mode():
            make(options)
        return 0
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.code
    except (MemoryError, RuntimeError) as error:
        if not models.is_out_of_memory(error):
            raise
        print(f"error: memory ran out in {options.dtype}: "
              f"{str(error).splitlines()[0]}. --dtype bfloat16 takes half of "
              "float32's; finished prompts are kept, and the same command goes "
              "on behind them", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
