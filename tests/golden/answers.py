"""The reference's answers to a golden model: answers/NAME.json.

It has the versions that computed them, the sums of the files that were read, and
for each prompt its ids, greedy ids, the smallest gap between the two best logits
on their way, and the logits of the prompt's last positions.
"""

import base64
import json

import numpy as np

import recipe as recipes

LOGITS_STEP = 2.0 ** -18  # of the numbers of three bytes


def unpack(text):
    """Logits as doubles, from base64 of little-endian numbers of three bytes."""
    parts = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 3)
    values = parts.astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])
    values -= (values >> 23) << 24
    return values * LOGITS_STEP


def pack(logits):
    """What unpack reads; each logit is rounded by LOGITS_STEP / 2 at the most."""
    values = np.rint(np.asarray(logits, np.float64).ravel() / LOGITS_STEP)
    if np.abs(values).max() >= 1 << 23:
        raise ValueError(f"logits must be below {2 ** 23 * LOGITS_STEP}, one is "
                         f"{np.abs(logits).max()}")
    values = values.astype(np.int64) & 0xffffff
    parts = np.stack([values & 255, values >> 8 & 255, values >> 16], axis=-1)
    return base64.b64encode(parts.astype(np.uint8).tobytes()).decode()


def path(name):
    return recipes.FOLDER / "answers" / f"{name}.json"


def read(name):
    if not path(name).exists():
        raise recipes.RecipeError(f"golden model {name} has no reference: "
                                  f"{path(name)} is not there")
    return json.loads(path(name).read_text())


def text(answers):
    """answers/NAME.json: a prompt has a line for each of its lists."""
    prompts = ",\n".join(
        "    {" + ",\n     ".join(f"{json.dumps(key)}: {json.dumps(value)}"
                                for key, value in prompt.items()) + "}"
        for prompt in answers["prompts"])
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}"
                      for key, value in answers.items() if key != "prompts")
    return f'{{\n{head},\n  "prompts": [\n{prompts}\n  ]\n}}\n'
