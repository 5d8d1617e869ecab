#!/usr/bin/env python3
"""Makes the golden models: tiny models of every family, in the layout that
released models have, with weights from a seed, and the reference's answers.

  make.py [--out FOLDER] [NAME...]   default: all, into build/golden

Of recipes/NAME.json and answers/NAME.json it makes FOLDER/NAME. Every file must
have the SHA-256 that the recipe names; else nothing of that model is written.
What is there already, of the same recipe, is left as it is; FOLDER/made lists the
models by the digest of what they are made of. Needs numpy.
"""

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import sys

try:
    import numpy as np
except ImportError:
    # Another interpreter of this machine has Debian's python3-numpy.
    if pathlib.Path(sys.executable).resolve().parent == pathlib.Path(
            "/usr/bin"):
        sys.exit("the golden models need numpy: apt-get install python3-numpy")
    os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])

import answers as reference_answers
import recipe as recipes

ROOT = pathlib.Path(__file__).resolve().parents[2]


def digest(name):
    """Of all that golden model NAME is made of."""
    recipe = recipes.read(name)
    reference_answers.read(name)  # is there
    parts = [recipes.FOLDER / "make.py", recipes.FOLDER / "recipe.py",
             recipes.FOLDER / "answers.py",
             recipes.path(name), reference_answers.path(name)]
    if "tokenizer" in recipe:
        parts.append(recipes.FOLDER / recipe["tokenizer"])
    found = hashlib.sha256()
    for path in parts:
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def answer_files(name, sums):
    """expected.safetensors and expected.json: what the reference answered."""
    answers = reference_answers.read(name)
    for file, value in answers["sums"].items():
        if sums.get(file) != value:
            raise recipes.RecipeError(
                f"golden model {name}: the reference read another {file}: "
                f"SHA-256 {value}, the recipe makes {sums.get(file)}")
    made, shown = [], []
    for i, prompt in enumerate(answers["prompts"]):
        for key in ("ids", "greedy_ids"):
            values = np.array(prompt[key], "<i8")
            made.append((f"prompt_{i}.{key}", "I64", values.shape,
                         values.tobytes()))
        shape = (prompt["last_logits"]["positions"],
                 prompt["last_logits"]["vocab_size"])
        logits = reference_answers.unpack(prompt["last_logits"]["values"]).reshape(shape)
        made.append((f"prompt_{i}.last_logits", "F32", shape,
                     logits.astype("<f4").tobytes()))
        shown.append({key: value for key, value in prompt.items()
                      if key != "last_logits"})
    answers["prompts"] = shown
    return {"expected.safetensors": recipes.safetensors(made, False),
            "expected.json": (json.dumps(answers) + "\n").encode()}


def write(folder, files):
    """The folder with these files, whole or not at all."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for file, data in files.items():
        (new / file).write_bytes(data)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def made_before(stamp):
    """{name: digest} of what is there."""
    try:
        return dict(line.split() for line in stamp.read_text().splitlines())
    except FileNotFoundError:
        return {}


def make(out, wanted):
    out.mkdir(parents=True, exist_ok=True)
    stamp = out / "made"
    with open(out / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # presets are built at the same time
        before = made_before(stamp)
        made = dict(before)
        for name in set(before) - set(recipes.names()):
            shutil.rmtree(out / name, ignore_errors=True)
            del made[name]
        for name in wanted:
            now = digest(name)
            if before.get(name) == now and (out / name).is_dir():
                continue
            recipe = recipes.read(name)
            files = recipes.checked_files(name, recipe)
            files.update(answer_files(name, recipes.sums(files)))
            write(out / name, files)
            made[name] = now
            print(f"made golden model {name}")
        text = "".join(f"{name} {made[name]}\n" for name in sorted(made))
        if not stamp.exists() or stamp.read_text() != text:
            stamp.write_text(text)
        else:
            os.utime(stamp)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--out", type=pathlib.Path,
                        default=ROOT / "build/golden")
    args = parser.parse_args()
    try:
        make(args.out, args.names or recipes.names())
    except recipes.RecipeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
