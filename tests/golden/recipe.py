"""Recipes: what the files of a golden model are, computed from a seed.

A recipe (recipes/NAME.json) has
  seed      what the weights and the prompts' ids are drawn from
  config    config.json; `generation` (generation_config.json), `tokenizer`
            (a file of this folder) and `tokenizer_config` where they differ
            from what most models have
  dtype     of the tensors that name none; `shards` where there are several
  tensors   rows of name, shape, values and perhaps dtype. A name has lists in
            braces: layers.{0-2,5} stands for four names.
  first_id  of every prompt, and `greedy_tokens` that the reference answers with,
            where they are not any id and 64
  all_differ  [counts]: so many first greedy ids of the first prompts, and the
            ids of these prompts, differ from one another
  rows      {name: [[begin, end, factor]..]}: rows of a tensor that are smaller
  ignored   beginnings of names: tensors that plain inference does not use
  reference keys of config.json that the reference reads with other values: of a
            model_type that it has under another name
  sums      SHA-256 of every file that the recipe makes

Values are
  S, M+S         M + S u, where u is drawn from (-1, 1) with a standard
                 deviation of 0.289; rounded once, to the dtype
  mxfp4 blocks   pairs of codes, every code as likely
  mxfp4 scales E exponents E - 1 to E + 1
  mxfp4 values   what NAME_blocks and NAME_scales stand for, [E, in, out]
  as NAME        the values of another tensor

u is the sum of four 16-bit numbers minus its mean, divided by 2^17. They are the
bytes of SHAKE-128 of "SEED/NAME", little-endian, so that every Python and numpy
gives the same files.
"""

import hashlib
import itertools
import json
import pathlib
import re
import struct

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
PROMPTS = (1, 7, 40, 150)  # tokens
SPECIAL = ("<pad>", "<s>", "</s>", "<end>")
ELEMENT_BYTES = {"F32": 4, "BF16": 2, "U8": 1}
MXFP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
MXFP4 = np.concatenate([MXFP4, -MXFP4])


class RecipeError(Exception):
    """A recipe that is not as this file says."""


def names():
    """Of all recipes."""
    return sorted(path.stem for path in (FOLDER / "recipes").glob("*.json"))


def path(name):
    return FOLDER / "recipes" / f"{name}.json"


def read(name):
    if not path(name).exists():
        raise RecipeError(f"no golden model {name}: {path(name)} is not there")
    return json.loads(path(name).read_text())


def text(recipe):
    """recipes/NAME.json: a line for each key of a dictionary, for each tensor."""
    def shown(value):
        if isinstance(value, dict):
            lines = [f"    {json.dumps(key)}: {json.dumps(one)}"
                     for key, one in value.items()]
            return "{\n" + ",\n".join(lines) + "\n  }"
        if isinstance(value, list):
            lines = [f"    {json.dumps(one)}" for one in value]
            return "[\n" + ",\n".join(lines) + "\n  ]"
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {shown(value)}"
                              for key, value in recipe.items()) + "\n}\n"


def _draw(seed, name, size):
    return hashlib.shake_128(f"{seed}/{name}".encode()).digest(size)


def _spread(pattern):
    """The names that a name with lists in braces stands for."""
    parts = re.split(r"{([0-9,-]+)}", pattern)
    choices = []
    for text in parts[1::2]:
        ends = [[int(end) for end in piece.split("-")]
                for piece in text.split(",")]
        choices.append([n for piece in ends
                        for n in range(piece[0], piece[-1] + 1)])
    for chosen in itertools.product(*choices):
        words = [str(n) for n in chosen] + [""]
        yield "".join(part + word for part, word in zip(parts[::2], words))


def _numbers(recipe, name, shape, values):
    """M + S u in double, exact."""
    mean, _, scale = values.rpartition("+")
    try:
        mean, scale = float(mean or 0), float(scale)
    except ValueError:
        raise RecipeError(f"{name}: no values are called {values!r}") from None
    words = np.frombuffer(_draw(recipe["seed"], name, 8 * int(np.prod(shape))),
                          "<u2").reshape(*shape, 4)
    sums = words.astype(np.int64).sum(axis=-1) - 2 * 65535
    made = mean + sums.astype(np.float64) * (scale / 2 ** 17)
    for begin, end, factor in recipe.get("rows", {}).get(name, ()):
        made[begin:end] *= factor
    return made


def _blocks(recipe, name, shape):
    return np.frombuffer(_draw(recipe["seed"], name, int(np.prod(shape))),
                         np.uint8).reshape(shape)


def _scales(recipe, name, shape, exponent):
    return (_blocks(recipe, name, shape) % 3 + (126 + exponent)).astype(
        np.uint8)


def _mxfp4_values(recipe, name, shape, exponent):
    """[experts, in, out] of blocks [experts, out, in / 32, 16]: the lower four
    bits come first."""
    experts, wide, high = shape
    packed = _blocks(recipe, name + "_blocks", (experts, high, wide // 32, 16))
    scales = _scales(recipe, name + "_scales", (experts, high, wide // 32),
                     exponent)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(
        experts, high, wide // 32, 32)
    values = np.ldexp(MXFP4[codes],
                      scales.astype(np.int32)[..., None] - 127)
    return values.reshape(experts, high, wide).transpose(0, 2, 1)


def _stored(values, dtype):
    """Little-endian bytes; BF16 is rounded to the nearest, ties to even."""
    narrow = values.astype("<f4")
    if dtype == "F32":
        return narrow.tobytes()
    if dtype == "BF16":
        bits = narrow.view("<u4")
        bits = bits + 0x7fff + (bits >> 16 & 1)
        return (bits >> 16).astype("<u2").tobytes()
    raise RecipeError(f"no numbers are stored as {dtype}")


def _tensor(recipe, name, shape, values, dtype):
    """(dtype, bytes)"""
    kind = re.fullmatch(r"mxfp4 (blocks|scales|values)(?: (-?\d+))?", values)
    if not kind:
        source = values[3:] if values.startswith("as ") else name
        if source != name:
            values = next(row[2] for row in recipe["tensors"]
                          if source in _spread(row[0]))
        return dtype, _stored(_numbers(recipe, source, shape, values), dtype)
    if kind[1] == "blocks":
        return "U8", _blocks(recipe, name, shape).tobytes()
    if kind[1] == "scales":
        return "U8", _scales(recipe, name, shape, int(kind[2])).tobytes()
    return dtype, _stored(_mxfp4_values(recipe, name, shape, int(kind[2])),
                          dtype)


def tensors(recipe):
    """[(name, dtype, shape, bytes)], as they lie in the files: the wider dtype
    first, then by name."""
    made = []
    for pattern, shape, values, *dtype in recipe["tensors"]:
        for name in _spread(pattern):
            kind, data = _tensor(recipe, name, shape, values,
                                 dtype[0] if dtype else recipe["dtype"])
            made.append((name, kind, shape, data))
    made.sort(key=lambda one: (-ELEMENT_BYTES[one[1]], one[0]))
    return made


def safetensors(made, metadata=True):
    """The bytes of a file of these tensors."""
    header = {"__metadata__": {"format": "pt"}} if metadata else {}
    at = 0
    for name, dtype, shape, data in made:
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text,
                     *(data for *_, data in made)])


def _weight_files(recipe):
    """{file: bytes}; shards of about equal size, with an index."""
    made, shards = tensors(recipe), recipe.get("shards", 1)
    if shards == 1:
        return {"model.safetensors": safetensors(made)}
    total, at = sum(len(data) for *_, data in made), 0
    parts = [[] for _ in range(shards)]
    for one in made:
        parts[at * shards // total].append(one)
        at += len(one[3])
    files, where = {}, {}
    for i, part in enumerate(parts, 1):
        file = f"model-{i:05}-of-{shards:05}.safetensors"
        files[file] = safetensors(part)
        where.update((name, file) for name, *_ in part)
    index = {"metadata": {"total_size": total},
             "weight_map": dict(sorted(where.items()))}
    files["model.safetensors.index.json"] = _json(index)
    return files


def _json(value):
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _spelling(vocab_size):
    """tokenizer.json of text that spells the ids: "t5 t17" is [5, 17]."""
    added = [{"id": id, "content": text, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for id, text in enumerate(SPECIAL)]
    vocab = {text: id for id, text in enumerate(SPECIAL)}
    vocab.update((f"t{id}", id) for id in range(len(SPECIAL), vocab_size))
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocab,
                      "unk_token": SPECIAL[0]}}


def vocab_size(recipe):
    return recipe["config"].get("text_config", recipe["config"])["vocab_size"]


def files(recipe):
    """{name: bytes} of all files of the model."""
    config = recipe["config"]
    made = _weight_files(recipe)
    made["config.json"] = _json(config)
    made["generation_config.json"] = _json(recipe.get(
        "generation", {"eos_token_id": [2, 3], "do_sample": False}))
    if "tokenizer" in recipe:
        made["tokenizer.json"] = (FOLDER / recipe["tokenizer"]).read_bytes()
    else:
        made["tokenizer.json"] = _json(_spelling(vocab_size(recipe)))
    text = config.get("text_config", config)
    made["tokenizer_config.json"] = _json(recipe.get("tokenizer_config", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
        "eos_token": "</s>", "pad_token": "<pad>",
        "model_max_length": text.get("max_position_embeddings", 2048),
        "clean_up_tokenization_spaces": False}))
    return made


def sums(made):
    return {name: hashlib.sha256(data).hexdigest()
            for name, data in sorted(made.items())}


def checked_files(name, recipe):
    """{file: bytes}, with the sums that the recipe names."""
    made = files(recipe)
    found, wanted = sums(made), recipe["sums"]
    for file in sorted({*found, *wanted}):
        if found.get(file) != wanted.get(file):
            raise RecipeError(
                f"golden model {name}: SHA-256 of {file} is "
                f"{found.get(file, 'none, as it is not made')}, not "
                f"{wanted.get(file, 'in the recipe')}")
    return made


def prompts(recipe):
    """Ids of four prompts, each id as likely; `first_id` begins them where the
    recipe has it."""
    drawn = []
    for i, count in enumerate(PROMPTS):
        words = np.frombuffer(_draw(recipe["seed"], f"prompt {i}", 2 * count),
                              "<u2")
        ids = [int(word) % vocab_size(recipe) for word in words]
        if "first_id" in recipe:
            ids[0] = recipe["first_id"]
        drawn.append(ids)
    return drawn
