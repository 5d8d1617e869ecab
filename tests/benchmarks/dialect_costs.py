#!/usr/bin/env python3
"""What each dialect costs beside chats: the time to the first token, and the
gateway's CPU per token.

One cluster, the same chats in every dialect, in turns: a round has each dialect
once, in an order that is drawn. The chats are greedy, so all dialects must
tell the same text and count the same tokens. Chats are measured twice (`chat`,
`chat again`): how far apart the two are is what the figures are unsure by.

Goals: the same texts and tokens everywhere; no dialect takes more than 1.25
times the gateway's CPU of chats per token, nor 1.1 times their TTFT.

Usage: tests/benchmarks/dialect_costs.py [--rounds 30] [--chats 4]
       [--tokens 64] [--model PATH] [--json FILE] [--short]
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import time

import load_client as lc

MOST_CPU, MOST_TTFT = 1.25, 1.1
TICKS = os.sysconf("SC_CLK_TCK")


def messages(text):
    return [{"role": "user", "content": text}]


# By dialect: its path, the body of a chat of so many tokens, the text of a
# line's JSON and the tokens that it counts, where it has such.
def chat(name, text, tokens):
    return {"model": name, "messages": messages(text), "max_tokens": tokens,
            "temperature": 0, "stream_options": {"include_usage": True}}


def chat_piece(event):
    usage = event.get("usage") or {}
    delta = event["choices"][0]["delta"] if event["choices"] else {}
    return delta.get("content") or "", usage.get("completion_tokens")


def responses(name, text, tokens):
    return {"model": name, "input": text, "max_output_tokens": tokens,
            "temperature": 0}


def responses_piece(event):
    usage = (event.get("response") or {}).get("usage") or {}
    is_text = event["type"] == "response.output_text.delta"
    return event["delta"] if is_text else "", usage.get("output_tokens")


def anthropic(name, text, tokens):
    return {"model": name, "messages": messages(text), "max_tokens": tokens,
            "temperature": 0}


def anthropic_piece(event):
    usage = event.get("usage") if event["type"] == "message_delta" else None
    return (event.get("delta") or {}).get("text", ""), \
        (usage or {}).get("output_tokens")


def ollama(name, text, tokens):
    return {"model": name, "messages": messages(text),
            "options": {"num_predict": tokens, "temperature": 0}}


def ollama_piece(event):
    return event["message"]["content"], event.get("eval_count")


DIALECTS = {
    "chat": ("/v1/chat/completions", chat, chat_piece),
    "responses": ("/v1/responses", responses, responses_piece),
    "messages": ("/v1/messages", anthropic, anthropic_piece),
    "ollama": ("/api/chat", ollama, ollama_piece),
    "chat again": ("/v1/chat/completions", chat, chat_piece),
}


def ask(connection, name, dialect, text, tokens):
    """(seconds to the first text, text, tokens) of one streamed chat."""
    path, body, piece_of = DIALECTS[dialect]
    begun = time.perf_counter()
    connection.request("POST", path, json.dumps(
        {**body(name, text, tokens), "stream": True}),
        {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first, told, counted = None, [], None
    for line in answer:
        line = line.removeprefix(b"data: ").strip()
        if not line.startswith(b"{"):
            continue
        piece, count = piece_of(json.loads(line))
        if piece and first is None:
            first = time.perf_counter() - begun
        told.append(piece)
        counted = count or counted
    if answer.status != 200 or first is None or not counted:
        raise RuntimeError(f"{dialect}: {answer.status}, "
                           f"{len(told)} pieces, {counted} tokens")
    return first, "".join(told), counted


def cpu_seconds(pid):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text()
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def run(url, pid, name, options):
    connection = http.client.HTTPConnection(*lc.address_of(url), timeout=300)
    rng = random.Random(5)
    seen = {dialect: {"ttft": [], "cpu": 0, "tokens": 0}
            for dialect in DIALECTS}
    different = []
    for turn in range(options.rounds):
        texts = [f"Tell me about number {rng.randrange(10 ** 6)}."
                 for _ in range(options.chats)]
        for text in texts:  # every dialect then finds the prompt in the cache
            ask(connection, name, "chat", text, options.tokens)
        told = {}
        for dialect in rng.sample(list(DIALECTS), len(DIALECTS)):
            before = cpu_seconds(pid)
            answers = [ask(connection, name, dialect, text, options.tokens)
                       for text in texts]
            one = seen[dialect]
            one["cpu"] += cpu_seconds(pid) - before
            one["tokens"] += sum(count for _, _, count in answers)
            one["ttft"] += [first for first, _, _ in answers]
            told[dialect] = [(text, count) for _, text, count in answers]
        different += [f"round {turn}: {dialect}" for dialect in DIALECTS
                      if told[dialect] != told["chat"]]
    return {dialect: {"ttft_ms": 1e3 * statistics.median(one["ttft"]),
                      "gateway_cpu_us_per_token":
                      1e6 * one["cpu"] / one["tokens"],
                      "tokens": one["tokens"]}
            for dialect, one in seen.items()}, different


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    lc.add_common_options(parser)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--chats", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    if options.short:
        options.rounds, options.chats, options.tokens = 1, 2, 8
    if options.model is None:
        options.model = lc.harness.ROOT / "deploy/demo_model/weights"
    with lc.cluster(options) as cluster:
        pid, = [entry["pid"] for entry in cluster.file["processes"]
                if entry["role"] == "gateway"]
        name = lc.model_name(cluster.url)
        figures, different = run(cluster.url, pid, name, options)
    goals = [("the same texts and tokens in every dialect",
              different or "all", not different)]
    for dialect in ("responses", "messages", "ollama"):
        for figure, most in (("gateway_cpu_us_per_token", MOST_CPU),
                             ("ttft_ms", MOST_TTFT)):
            base = (figures["chat"][figure] + figures["chat again"][figure]) / 2
            ratio = figures[dialect][figure] / base
            met = None if options.short else ratio <= most
            goals.append((f"{dialect}: {figure} of chats, at most {most}",
                          round(ratio, 3), met))
    if options.short:
        goals = goals[:1]
    lc.finish(options, {"dialects": figures}, goals)


if __name__ == "__main__":
    main()
