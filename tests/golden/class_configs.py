#!/usr/bin/env python3
"""The configs that transformers' classes have of themselves: every key of every
model type that is served, with its default, as config.json would have it.

  class_configs.py [FILE]   writes tests/model_config/class_configs.json

Needs transformers 5, which the file names; run for a new model type or version, so
that tests do without it.
"""

import json
import pathlib
import re
import sys

import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "common/model_config/model_families.cc"
OUT = ROOT / "tests/model_config/class_configs.json"

# Keys of training, of how a program answers, and of images.
NOT_COMPUTED = re.compile(
    r"_name_or_path|architectures|attention_dropout|chunk_size_feed_forward|"
    r"dtype|id2label|initializer_range|label2id|output_.*|problem_type|"
    r"return_dict|router_.*|transformers_version|use_cache|"
    r"(?!text_config).*_config|.*_token_(id|index)|is_encoder_decoder")

# What a class leaves to the file.
GIVEN = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 0,
              "num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
}


def class_config(known, model_type):
    """A class's own config; its text part is that of the text's class."""
    config = json.loads(known[model_type](**GIVEN.get(model_type, {}))
                        .to_json_string(use_diff=False))
    text = config.get("text_config")
    if text:
        config["text_config"] = class_config(known, text["model_type"])
    return config


def model_types():
    """The model types of the table of families."""
    table = FAMILIES.read_text().split("constexpr Family kFamilies")[1]
    return re.findall(r'\{"([a-z0-9_]+)",\s*Read', table)


def computed(config):
    """A config's keys that say what is computed."""
    return {key: computed(value) if key == "text_config" else value
            for key, value in config.items()
            if key == "per_layer_config" or not NOT_COMPUTED.fullmatch(key)}


def main(out):
    """Writes the configs, one model type a line."""
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    lines = ['"transformers": ' + json.dumps(transformers.__version__)]
    for model_type in sorted(model_types()):
        if model_type not in known:
            print(f"{model_type}: transformers has no class of it",
                  file=sys.stderr)
            continue
        config = class_config(known, model_type)
        lines.append(json.dumps(model_type) + ": " +
                     json.dumps(computed(config), sort_keys=True))
    out.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
