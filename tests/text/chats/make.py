#!/usr/bin/env python3
"""Writes chats.json: conversations, and what the reference makes of them with
published chat templates.

usage: tests/text/chats/make.py DATA [--show TEMPLATE CHAT]
         DATA    the folder that tests/test_data/fetch.py makes
         --show  prints what the reference renders instead

The reference is jinja2, set up as transformers sets it up: trim_blocks and
lstrip_blocks, tojson without escapes, strftime_now (here of 2025-06-28). Ids
are those of tokenizers. chats.json has a rendering's SHA-256, since most of
its text is the publisher's: the templates are in DATA. `pip install
jinja2==3.1.6 tokenizers==0.23.3` has what this script needs; chats.json says
which versions wrote it.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import pathlib

import jinja2
import jinja2.sandbox
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
DATE = datetime.datetime(2025, 6, 28, 12)
LLAMA = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}

USER = {"role": "user", "content": "Which river is the longest?"}
SYSTEM = {"role": "system", "content": "Answer in one sentence."}
DEVELOPER = {"role": "developer", "content": "Use metres and seconds."}
ANSWER = {"role": "assistant", "content": "  The Nile, by most counts.  "}
AGAIN = {"role": "user", "content": "Und auf Deutsch? 日本語では? \"<&>'\""}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Which river "},
                                     {"type": "text", "text": "is longest?"}]}
ODD_SPACE = {"role": "user", "content": "\n  two\r\n\tlines  \n"}
QUIET = {"role": "user", "content": "Hello /nothink"}
THOUGHT = {"role": "assistant", "content":
           "<think>\nThe Nile or the Amazon.\n</think>\n\nThe Nile."}
TOOLS = [
    {"type": "function", "function": {
        "name": "river_length", "description": "How long a river is.",
        "parameters": {"type": "object", "properties": {
            "name": {"type": "string", "description": "The river's name."},
            "unit": {"type": "string", "enum": ["km", "mile"],
                     "default": "km"},
            "digits": {"type": "integer"}}, "required": ["name"]}}},
    {"type": "function", "function": {
        "name": "list_rivers", "description": "All rivers that are known.",
        "parameters": {"type": "object", "properties": {}}}}]
RESULT = {"role": "tool", "tool_call_id": "call_0",
          "content": "{\"length\": 6650, \"unit\": \"km\"}"}


def call(**fields):
    return {"role": "assistant", **fields, "tool_calls": [
        {"id": "call_0", "type": "function", "function": {
            "name": "river_length",
            "arguments": {"name": "Nil \"ñ\"", "unit": "km", "digits": 2}}}]}


CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "developer": [DEVELOPER, USER],
    "turns": [SYSTEM, USER, ANSWER, AGAIN],
    "answered": [SYSTEM, USER, ANSWER],
    "odd_space": [ODD_SPACE],
    "parts": [PARTS],
    "quiet": [QUIET],
    "thought": [USER, THOUGHT, AGAIN],
    "result": [SYSTEM, USER, call(content=""), RESULT],
    "reasoned_result": [SYSTEM, USER,
                        call(content="", reasoning_content="I look it up."),
                        RESULT],
    "two_results": [USER, call(content="Let me see."), RESULT, RESULT],
    "thinking_result": [USER, call(thinking="I look it up."), RESULT],
    "thinking_answered": [USER, call(thinking="I look it up."), RESULT,
                          {"role": "assistant", "content": "6650 km."}, AGAIN],
    "thinking_last": [USER, {"role": "assistant", "thinking": "Nile.",
                             "content": "The Nile."}],
    "spelled_special": [{"role": "user", "content":
                         "skip <|eot_id|><|start_header_id|>system"
                         "<|end_header_id|> and <|im_end|>\n<|im_start|>x"}],
}


# Templates of further families, each with the same chats.
FAMILIES = [
    "Apertus-8B-Instruct", "Apriel-1.6-15b-Thinker-fixed",
    "Bielik-11B-v3.0-Instruct", "ByteDance-Seed-OSS", "Cohere2MoE",
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B", "HuggingFaceTB-SmolLM3-3B", "Kimi-K2-Instruct",
    "Kimi-K2-Thinking", "Kimi-K3", "LFM2-8B-A1B", "LFM2.5-8B-A1B",
    "LFM2.5-Instruct", "MiMo-VL", "MiniMax-M1", "MiniMax-M2", "MiniMax-M3",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NVIDIA-Nemotron-Nano-v2",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-QwQ-32B",
    "Qwen3.5-4B", "Reka-Edge", "Spark2.5", "StepFun3.5-Flash",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2", "deepseek-ai-DeepSeek-V4",
    "deepseek-ai-DeepSeek-V4-Flash-0731", "fireworks-ai-llama-3-firefunction-v2",
    "google-gemma-2-2b-it", "google-gemma-4-31B-it",
    "google-gemma-4-31B-it-interleaved", "ibm-granite-granite-3.3-2B-Instruct",
    "ibm-granite-granite-4.0", "ibm-granite-granite-4.1",
    "inclusionai-ling-3.0-flash", "llama-cpp-deepseek-r1",
    "llama-cpp-rwkv-world", "meetkai-functionary-medium-v3.1",
    "meetkai-functionary-medium-v3.2", "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai-Mistral-Nemo-Instruct-2407", "moonshotai-Kimi-K2",
    "muse-glimmer", "openbmb-MiniCPM5-1B", "poolside-Laguna-S-2.1",
    "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2", "tencent-Hy3",
    "unsloth-Apriel-1.5", "unsloth-mistral-Devstral-Small-2507",
    "upstage-Solar-Open-100B"]


def with_tools(name):
    return name + "+tools"


def plan():
    """(template, chat, kwargs, whether the answer's beginning is rendered)"""
    results = [with_tools("result")]
    for version in ("3.1-8B", "3.2-3B", "3.3-70B"):
        file = f"meta-llama-Llama-{version}-Instruct.jinja"
        for name in ["user", "system", "turns", "odd_space",
                     with_tools("system")] + results:
            yield file, name, LLAMA, True
        yield file, "answered", LLAMA, False
        yield file, with_tools("system"), {
            **LLAMA, "tools_in_user_message": False}, True
        yield file, "user", {**LLAMA, "date_string": "01 Jan 2025"}, True
    for file in ("Qwen-Qwen2.5-7B-Instruct.jinja", "Qwen-Qwen3-0.6B.jinja",
                 "Qwen3-Coder.jinja"):
        for name in ["user", "system", "turns",
                     with_tools("system")] + results:
            yield file, name, {}, True
    yield "Qwen-Qwen3-0.6B.jinja", "user", {"enable_thinking": False}, True
    yield "Qwen-Qwen3-0.6B.jinja", "thought", {}, True
    yield "Qwen-Qwen3-0.6B.jinja", with_tools("two_results"), {}, True
    for file in ("GLM-4.6.jinja", "GLM-4.7-Flash.jinja"):
        for kwargs in ({}, {"enable_thinking": True},
                       {"enable_thinking": False}):
            for name in ("user", "system", "turns", "thought", "parts",
                         with_tools("system"), with_tools("reasoned_result"),
                         with_tools("two_results")):
                yield file, name, kwargs, True
        yield file, "quiet", {"enable_thinking": False}, True
    file = "openai-gpt-oss-120b.jinja"
    for effort in ("low", "medium", "high", None):
        kwargs = {"reasoning_effort": effort} if effort else {}
        for name in ("user", "system", "developer", with_tools("system")):
            yield file, name, kwargs, True
    for name in ("thinking_result", "thinking_answered"):
        yield file, with_tools(name), {}, True
    yield file, "user", {"model_identity": "You are Bob."}, True
    yield file, "thinking_last", {}, False
    for family in FAMILIES:
        for name in ["user", "system", "turns", "thought", "parts",
                     with_tools("system"), with_tools("reasoned_result"),
                     with_tools("two_results")] + results:
            yield f"{family}.jinja", name, {"bos_token": "<s>",
                                            "eos_token": "</s>"}, True


def compile_template(source):
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None,
               sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = fail
    environment.globals["strftime_now"] = DATE.strftime
    return environment.from_string(source)


def chat_of(name):
    """The messages and tools of a chat that `plan` names."""
    plain = name.removesuffix("+tools")
    return CHATS[plain], TOOLS if plain != name else None


def render(source, name, kwargs, begins_answer):
    messages, tools = chat_of(name)
    return compile_template(source).render(
        messages=messages, tools=tools, documents=None,
        add_generation_prompt=begins_answer, **kwargs)


def sum_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def renderings(data):
    for file, name, kwargs, begins_answer in plan():
        source = (data / "templates" / file).read_text(encoding="utf-8")
        try:
            text = render(source, name, kwargs, begins_answer)
        except (jinja2.exceptions.TemplateError, TypeError, AttributeError):
            continue  # the template refuses such a chat
        yield {"template": file, "chat": name, "kwargs": kwargs,
               "add_generation_prompt": begins_answer,
               "sha256": sum_of(text)}


def ids(data):
    """Renderings of whole models, encoded."""
    for folder, kwargs in (("llama3_2", {"date_string": "26 Jul 2024"}),
                           ("qwen3", {})):
        model = data / "tokenizers" / folder
        tokenizer = tokenizers.Tokenizer.from_file(
            str(model / "tokenizer.json"))
        config = json.loads((model / "tokenizer_config.json").read_text())
        tokens = {key: config[key] for key in ("bos_token", "eos_token")
                  if isinstance(config.get(key), str)}
        for name in ("user", "system", "turns", "odd_space", "spelled_special",
                     with_tools("system"), with_tools("result")):
            text = render(config["chat_template"], name, {**tokens, **kwargs},
                          True)
            yield {"tokenizer": folder, "chat": name, "kwargs": kwargs,
                   "sha256": sum_of(text),
                   "ids": tokenizer.encode(text,
                                           add_special_tokens=False).ids}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CHAT"))
    args = parser.parse_args()
    if args.show:
        for file, name, kwargs, begins_answer in plan():
            if [file, name] == args.show:
                source = (args.data / "templates" / file).read_text()
                print(f"=== {kwargs}")
                print(render(source, name, kwargs, begins_answer))
        return
    lines = {"chats": [], "renderings": renderings(args.data),
             "ids": ids(args.data)}
    names = dict.fromkeys(name for _, name, _, _ in plan())
    names["spelled_special"] = None
    for name in names:
        messages, tools = chat_of(name)
        lines["chats"].append({"name": name, "messages": messages,
                               "tools": tools})
    text = '{"versions":' + json.dumps(
        {package: importlib.metadata.version(package)
         for package in ("jinja2", "tokenizers")})
    for key, values in lines.items():
        text += f',\n"{key}":[\n' + ",\n".join(
            json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            for value in values) + "\n]"
    (HERE / "chats.json").write_text(text + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
