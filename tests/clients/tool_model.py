"""A model that calls a tool: the golden gpt_oss, whose greedy tokens are known,
with a vocabulary in which they spell a call.

It says what GLM would, so the cluster is told the format by its flags. To a
conversation that ends with a tool's result it answers in words.
"""

import json
import pathlib

import harness

FLAGS = ["--weights", "f32", "--stages", 2, "--threads", 1,
         "--tool-format", "glm", "--reasoning-format", "think"]
REASONING = "Need it."
CONTENT = "Let me look."
CALL = ("get_weather", {"city": "Köln", "days": 2})
ANSWER = "It is sunny."

_CALLING = ["<think>", "Need", " it.", "</think>", "\n", "Let me look.\n",
            "<tool_call>", "get_weather\n<arg_key>",
            "city</arg_key>\n<arg_value>K", "öln</arg_value>\n<arg_key>",
            "days</arg_key>\n<arg_value>2</arg_value>\n", "</tool_call>"]
_ANSWERING = ["<think></think>It is", " sunny."]


def _byte_level(text):
    """`text` in GPT-2's byte alphabet."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters.update((byte, chr(256 + i)) for i, byte in enumerate(others))
    return "".join(letters[byte] for byte in text.encode())


def _tokenizer(texts, whole):
    """A tokenizer.json of 256 ids. `texts`: what ids stand for; those of
    `whole` are cut out of any text."""
    names = {id: _byte_level(texts.get(id, f"[t{id}]")) for id in range(256)}
    added = [{"id": id, "content": texts[id], "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False,
              "special": False} for id in whole]
    for id in whole:
        names[id] = texts[id]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": sorted(added, key=lambda one: one["id"]),
            "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False,
                      "vocab": {name: id for id, name in names.items()},
                      "merges": []}}


def make(folder):
    """Writes the model into `folder`, whose path it returns."""
    golden = harness.golden("gpt_oss")
    prompts = json.loads((golden / "expected.json").read_text())["prompts"]
    ask, told = prompts[0], prompts[1]
    texts, ends = {}, []
    for prompt, said in ((ask, _CALLING), (told, _ANSWERING)):
        ids = prompt["greedy_ids"][:len(said) + 1]
        texts.update(zip(ids, said))
        ends.append(ids[-1])
    for id in {*ask["ids"], *told["ids"]}:
        texts.setdefault(id, f"(p{id})")
    # One id, one text: else the golden values are not what this needs.
    for prompt, said in ((ask, _CALLING), (told, _ANSWERING)):
        for id, text in zip(prompt["greedy_ids"], said):
            assert texts[id] == text, (id, text)
    assert not set(ends) & set(texts), ends
    whole = sorted({*ask["ids"], *told["ids"]})
    chat_template = "{{{{ {} if messages[-1].role == 'tool' else {} }}}}".format(
        *(json.dumps("".join(texts[id] for id in prompt["ids"]))
          for prompt in (told, ask)))
    folder = pathlib.Path(folder)
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(golden / name)
    for name, value in (
            ("tokenizer.json", _tokenizer(texts, whole)),
            ("tokenizer_config.json", {"chat_template": chat_template}),
            ("generation_config.json", {"eos_token_id": ends})):
        (folder / name).write_text(json.dumps(value))
    return folder
