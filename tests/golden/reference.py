#!/usr/bin/env python3
"""The reference's answers to a golden model: transformers, in double throughout.

  reference.py NAME...              writes answers/NAME.json
  reference.py --find-seed NAME...  besides, changes the recipe: its seed, the
                                    first "NAME/0", "NAME/1".. that will do, and
                                    the sums of its files

Needs numpy, torch (CPU) and transformers 5; run once for a new recipe, so tests do
without them. Weights, norms, softmaxes, routers and rotary tables are computed in
float64, also where transformers' modules ask for float32. Greedy ids come from
full forward passes without a cache, end tokens ignored. A seed will do if the two
best logits are more than 0.002 apart at every step, and 20 of a prompt's first
64 greedy ids differ: a path that stands at one id tests less.
"""

import argparse
import json
import pathlib
import platform
import sys
import tempfile
import types

import numpy as np
import torch
import transformers

import answers
import recipe as recipes

LAST_POSITIONS = 4
SMALLEST_GAP = 0.002
DISTINCT = 20  # of the first 64 greedy ids


class _Double(types.ModuleType):
    """torch, for a module that names its dtypes: float32 is float64."""

    def __getattr__(self, name):
        return getattr(torch, "float64" if name in ("float32", "float")
                       else name)


def in_double():
    """Makes what transformers has loaded compute in double."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    double = _Double("torch")
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.") and hasattr(module, "torch"):
            if "modeling_" in name or name.startswith(
                    "transformers.integrations"):
                module.torch = double


def _kind(config):
    """The class that loads a model: those that read images have another."""
    kind = transformers.AutoModelForCausalLM
    if type(config) in kind._model_mapping:
        return kind
    return transformers.AutoModelForImageTextToText


def load(folder):
    """(model of a folder in double, tensors that it does not use)"""
    options = {}
    config = transformers.AutoConfig.from_pretrained(folder)
    if getattr(config, "quantization_config", None):
        options["quantization_config"] = transformers.Mxfp4Config(
            dequantize=True)
    found, report = _kind(config).from_pretrained(
        folder, dtype=torch.float64,
        attn_implementation="eager", output_loading_info=True,
        experts_implementation="eager", **options)
    for key in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report.get(key):
            raise ValueError(f"{folder}: {key}: {report[key]}")
    return found.eval(), sorted(report["unexpected_keys"])


def steps(model, ids, count, cached):
    """Yields the logits behind the prompt, and behind each greedy id."""
    path, cache = list(ids), None
    for _ in range(count):
        given = path if cache is None else path[-1:]
        out = model(torch.tensor([given]), use_cache=cached,
                    past_key_values=cache)
        cache = out.past_key_values if cached else None
        yield out.logits[0, -1]
        path.append(int(out.logits[0, -1].argmax()))


@torch.no_grad()
def greedy(model, ids, count, cached=False):
    """(greedy ids, smallest gap); None where these will not do."""
    found, smallest = [], float("inf")
    for row in steps(model, ids, count, cached):
        best = row.topk(2)
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        if smallest <= SMALLEST_GAP:
            return None
        found.append(int(best.indices[0]))
    return (found, smallest) if len(set(found[:64])) >= DISTINCT else None


@torch.no_grad()
def answer(model, ids, count):
    """One prompt of answers/NAME.json; None where its greedy ids will not do."""
    found = greedy(model, ids, count)
    if found is None:
        return None
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    if logits.dtype != torch.float64:
        raise ValueError(f"logits in {logits.dtype}")
    last = logits[-LAST_POSITIONS:].numpy()
    return {"ids": ids, "greedy_ids": found[0],
            "smallest_gap": round(found[1], 6),
            "logits_std": round(float(logits.std()), 3),
            "last_logits": {"positions": last.shape[0],
                            "vocab_size": last.shape[1],
                            "values": answers.pack(last)}}


def versions():
    return {"transformers": transformers.__version__,
            "torch": torch.__version__, "numpy": np.__version__,
            "python": platform.python_version(), "dtype": "float64",
            "attention": "eager"}


def load_files(files):
    """What load gives for {file: bytes}."""
    with tempfile.TemporaryDirectory() as folder:
        for file, data in files.items():
            (pathlib.Path(folder) / file).write_bytes(data)
        # Imported first, so that _in_double finds it.
        config = transformers.AutoConfig.from_pretrained(folder)
        _ = _kind(config)._model_mapping[type(config)]
        in_double()
        return load(folder)


def _as_the_reference_knows_it(recipe, files):
    """The files, with the config that the recipe has for the reference alone."""
    if "reference" not in recipe:
        return files
    config = {**recipe["config"], **recipe["reference"]}
    return {**files, "config.json": json.dumps(config).encode()}


def all_differ(recipe, found):
    """Whether the ids of which the recipe asks it differ: the first ones of
    these greedy ids, and those of the prompts before them."""
    ids = []
    for count, prompt, answer in zip(recipe.get("all_differ", ()),
                                     recipes.prompts(recipe), found):
        ids += [*set(prompt), *answer[0][:count]]
    return len(set(ids)) == len(ids)


def ask(recipe, files):
    """answers/NAME.json; None if this seed will not do."""
    model, ignored = load_files(_as_the_reference_knows_it(recipe, files))
    for name in ignored:
        if not name.startswith(tuple(recipe.get("ignored", ()))):
            raise ValueError(f"{recipe['seed']}: the reference does not use "
                             f"{name}, and the recipe does not say so")
    # A cache shows sooner that a seed will not do.
    count, found = recipe.get("greedy_tokens", 64), []
    for ids in recipes.prompts(recipe):
        found.append(greedy(model, ids, count, True))
        if found[-1] is None or not all_differ(recipe, found):
            return None
    prompts = []
    for ids in recipes.prompts(recipe):
        prompts.append(answer(model, ids, count))
        if prompts[-1] is None:
            return None
    return {"made_by": versions(),
            "sums": recipes.sums(files), "ignored": ignored,
            "prompts": prompts}


def find_seed(name):
    """(recipe, files, answers) of the first seed that will do."""
    recipe = recipes.read(name)
    stem = recipe["seed"].rpartition("/")[0]
    for number in range(1000):
        recipe["seed"] = f"{stem}/{number}"
        files = recipes.files(recipe)
        found = ask(recipe, files)
        if found is not None:
            recipe["sums"] = recipes.sums(files)
            return recipe, found
    raise ValueError(f"{name}: none of 1000 seeds will do")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.add_argument("--find-seed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in args.names:
        if args.find_seed:
            recipe, found = find_seed(name)
            recipes.path(name).write_text(recipes.text(recipe))
        else:
            recipe = recipes.read(name)
            files = recipes.checked_files(name, recipe)
            found = ask(recipe, files)
            if found is None:
                sys.exit(f"{name}: seed {recipe['seed']} gives a gap below "
                         f"{SMALLEST_GAP} or too few distinct ids")
        answers.path(name).write_text(answers.text(found))
        gaps = [prompt["smallest_gap"] for prompt in found["prompts"]]
        kinds = [len(set(prompt["greedy_ids"])) for prompt in found["prompts"]]
        print(f"{name}: seed {recipe['seed']}, smallest gap {min(gaps)}, distinct "
              f"greedy ids {kinds}, standard deviation of the logits "
              f"{[prompt['logits_std'] for prompt in found['prompts']]}",
              flush=True)


if __name__ == "__main__":
    main()
