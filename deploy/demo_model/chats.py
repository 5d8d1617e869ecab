"""Chats to text and ids: the model's own template and tokenizer, as they are
shipped, so that training sees what a server will render."""

import json
import os

import jinja2
import jinja2.sandbox
import numpy
import tokenizers

FOLDER = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = os.path.join(FOLDER, "chat_template.jinja")
# GLM's special tokens, in GLM's order, behind the byte pairs. The second
# group is not "special": it is text that parsers read.
SPECIAL = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>",
           "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
PLAIN = ["<think>", "</think>", "<tool_call>", "</tool_call>",
         "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>",
         "<arg_value>", "</arg_value>", "/nothink"]
STOPS = ["<|endoftext|>", "<|user|>", "<|observation|>"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def _template():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = (
        lambda value, ensure_ascii=False:
        json.dumps(value, ensure_ascii=ensure_ascii))
    with open(TEMPLATE, encoding="utf-8") as file:
        return environment.from_string(file.read())


_compiled = _template()


def render(chat, prompt=False):
    """The text of a chat; with `prompt` that of all before its last message,
    and where the answer begins. A whole one ends with the token that stops
    the model: whose turn is next."""
    messages = chat["messages"]
    values = {"tools": chat.get("tools")}
    if not chat.get("thinking", True):
        values["enable_thinking"] = False
    if prompt:
        return _compiled.render(messages=messages[:-1],
                                add_generation_prompt=True, **values)
    text = _compiled.render(messages=messages, add_generation_prompt=False,
                            **values)
    calls = messages[-1].get("tool_calls")
    return text + ("<|observation|>" if calls else "<|user|>")


def train_tokenizer(texts, size):
    """Byte-level BPE with `size` ids, special ones included."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN),
                                        behavior="isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False,
                                            use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    extra = SPECIAL + PLAIN
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - len(extra), show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    cut = [piece for text in texts for piece in _without(text, extra)]
    tokenizer.train_from_iterator(cut, trainer)
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=True)
         for name in SPECIAL])
    tokenizer.add_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=False)
         for name in PLAIN])
    if tokenizer.get_vocab_size() != size:
        raise ValueError(f"the tokenizer has {tokenizer.get_vocab_size()} "
                         f"ids, not {size}: too little text")
    return tokenizer


def _without(text, names):
    for name in names:
        text = text.replace(name, "\0")
    return [piece for piece in text.split("\0") if piece]


def load_tokenizer(path):
    return tokenizers.Tokenizer.from_file(path)


def read_chats(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def targets(ids, tokenizer, last_alone=False):
    """Which ids the model has to write: those from behind <|assistant|> to
    the stop, that included; of all answers or of the last alone."""
    start = tokenizer.token_to_id("<|assistant|>")
    stops = {tokenizer.token_to_id(name) for name in STOPS}
    wanted = numpy.zeros(len(ids), dtype=bool)
    writing = False
    for at, token in enumerate(ids):
        wanted[at] = writing
        if token == start:
            writing = True
            if last_alone:
                wanted[:] = False
        elif token in stops:
            writing = False
    return wanted
