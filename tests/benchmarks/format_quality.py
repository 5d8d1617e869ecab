#!/usr/bin/env python3
"""What each format of weights costs in quality, beside F32, on one model.

The model's weights are widened to F32 and become each format again; logits on
a text are compared with those of F32 on the same tokens (quality_bench): mean
and largest error, KL divergence, how often the likeliest token is the same,
perplexity; and how many of the ten golden chats' greedy tokens are chosen, each
after the right ones before. With --llama-perplexity the second half of each
window of the text is scored by llama.cpp, too, on the same files.

Formats: those of --weights, made at load; files made by the package gguf; with
--llama-quantize also those that only llama.cpp's tool makes. A row that is no
whole number of a format's blocks gets what that tool chooses; "weights" tells.

The default text is the reference of Python's language that `help()` shows
(pydoc_data.topics of this interpreter; PSF License 2.0).

Usage: build/venv/bin/python3 tests/benchmarks/format_quality.py
       [--model GGUF] [--text FILE --licence NAME] [--chats FILE]
       [--formats NAME,..] [--llama-quantize PATH] [--llama-perplexity PATH]
       [--tokens N] [--window N]
       [--json FILE]
"""

import argparse
import json
import os
import pathlib
import platform
import pydoc_data.topics
import re
import subprocess
import sys
import tempfile

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT_BYTES = 56 << 10
AT_LOAD = ("bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")
BY_PACKAGE = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")
BY_TOOL = ("Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_NL", "IQ4_XS")


def rewrite(model, out, type_name):
    """A copy of a GGUF whose matrices, widened, have another type. Rows that
    are no whole number of its blocks stay F32, as vectors do."""
    import gguf
    reader = gguf.GGUFReader(model)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub)
    wanted = getattr(gguf.GGMLQuantizationType, type_name)
    elements = gguf.GGML_QUANT_SIZES[wanted][0]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        fits = values.ndim > 1 and values.shape[-1] % elements == 0
        kind = wanted if fits else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind),
                          raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def held_out_text(limit=TEXT_BYTES):
    """The first `limit` bytes of the topics of Python's reference, by name."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    if len(text) < limit:
        raise SystemExit(f"the topics have {len(text)} bytes, {limit} are "
                         "needed")
    return text[:limit].decode(errors="ignore")


def candidates(arguments, folder):
    """[(format, how it was made, argument of quality_bench)] and the F32
    file."""
    wanted = arguments.formats.split(",") if arguments.formats else None
    f32 = folder / "f32.gguf"
    rewrite(arguments.model, f32, "F32")
    out = [("as stored", "the model's file", str(arguments.model))]
    out += [(name, "--weights", f"{f32}:{name}") for name in AT_LOAD]
    made = [(name, "gguf package") for name in BY_PACKAGE]
    if arguments.llama_quantize:
        made += [(name, "llama-quantize") for name in BY_TOOL]
    out += [(name, how, str(folder / f"{name}.gguf")) for name, how in made]
    if wanted:
        out = [one for one in out if one[0] in wanted]
    for name, how, path in out:
        if how == "gguf package":
            rewrite(f32, path, name)
        elif how == "llama-quantize":
            subprocess.run([arguments.llama_quantize, "--pure", f32, path,
                            name, str(os.cpu_count())], check=True,
                           cwd=folder, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    return f32, out


def bench_once(arguments, f32, text, formats):
    """The figures of F32 and of each format. A format whose file Sluice does
    not read is taken out of `formats`, with a word about it."""
    build = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR")
                         or ROOT / "build/release")
    command = [build / "tests/benchmarks/model/quality_bench", f"{f32}:f32",
               text, *[one[2] for one in formats],
               "--threads", arguments.threads, "--window", arguments.window]
    if arguments.tokens:
        command += ["--tokens", arguments.tokens]
    if arguments.chats:
        command += ["--chats", arguments.chats]
    command = list(map(str, command))
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    if done.returncode == 0:
        return [json.loads(line) for line in done.stdout.splitlines()]
    said = done.stderr.strip().splitlines()[-1:]
    refused = [one for one in formats if said and one[2] + ":" in said[0]]
    if not refused:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}"
                         f"\n{done.stderr[-2000:]}")
    print(f"{refused[0][0]} is left out: {said[0]}", flush=True)
    formats.remove(refused[0])
    return bench_once(arguments, f32, text, formats)


def by_llama(arguments, path, text, tokens):
    """llama.cpp's perplexity of a file, on as many whole windows."""
    command = [arguments.llama_perplexity, "-m", path, "-f", text, "-c",
               arguments.window, "-b", arguments.window, "--chunks",
               tokens // arguments.window, "-t", arguments.threads]
    done = subprocess.run(list(map(str, command)), check=False, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL)
    found = re.search(r"Final estimate: PPL (?:over .* )?= ([\d.]+)",
                      done.stdout + done.stderr)
    if not found:
        raise SystemExit(f"{' '.join(map(str, command))}: no estimate\n"
                         f"{done.stderr[-2000:]}")
    return float(found[1])


def measure(arguments, f32, text, formats):
    """The figures of F32 and of each format, a line each."""
    figures = bench_once(arguments, f32, text, formats)
    made = [("f32", "reference"), *[one[:2] for one in formats]]
    if len(figures) != len(made):
        raise SystemExit(f"{len(made)} lines expected, got {figures}")
    rows = [{"format": name, "made": how,
             **{key: value for key, value in seen.items() if key != "model"}}
            for (name, how), seen in zip(made, figures)]
    paths = [str(f32), *[one[2] for one in formats]]
    for row, path in zip(rows, paths):
        if arguments.llama_perplexity and row["made"] != "--weights":
            row["llama_perplexity"] = by_llama(arguments, path, text,
                                               row["tokens"])
    return rows


def table(rows):
    lines = [f"{'format':10} {'made by':14} {'weights':18} {'MB':>6} "
             f"{'mean err':>8} {'max err':>8} {'KL':>8} {'top-1':>7} "
             f"{'ppl':>7} {'chats':>6} {'late':>7} {'theirs':>7}"]
    for row in rows:
        chats = row.get("chat_agreement")
        told = "-" if chats is None else f"{chats:.3f}"
        lines.append(
            f"{row['format']:10} {row['made']:14} {row['weights']:18} "
            f"{row['weights_bytes'] * 1e-6:>6.1f} {row['mean_error']:>8.4f} "
            f"{row['max_error']:>8.3f} {row['kl']:>8.5f} "
            f"{row['top1_agreement']:>7.4f} {row['perplexity']:>7.3f} "
            f"{told:>6} {row.get('late_perplexity', 0):>7.3f} "
            f"{row.get('llama_perplexity', 0):>7.3f}")
    return "\n".join(lines)


def default_chats():
    return str(ROOT / "tests/golden/smollm2_chats.json")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", help="default: the default model")
    parser.add_argument("--text")
    parser.add_argument("--licence", help="of --text")
    parser.add_argument("--chats", default=default_chats())
    parser.add_argument("--formats")
    parser.add_argument("--llama-quantize", metavar="PATH")
    parser.add_argument("--llama-perplexity", metavar="PATH")
    parser.add_argument("--tokens", type=int, help="of the text at most")
    parser.add_argument("--window", type=int, default=512,
                        help="tokens that see each other, at most 512")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if (arguments.text is None) != (arguments.licence is None):
        parser.error("--text and --licence go together")
    if arguments.model is None:
        import load_client
        arguments.model = load_client.harness.default_model()
    if arguments.llama_quantize:
        arguments.llama_quantize = os.path.abspath(arguments.llama_quantize)
    if arguments.llama_perplexity:
        arguments.llama_perplexity = os.path.abspath(
            arguments.llama_perplexity)
    with tempfile.TemporaryDirectory() as own:
        folder = pathlib.Path(own)
        text = arguments.text
        if text is None:
            text = folder / "text"
            text.write_text(held_out_text(), encoding="utf-8")
        size = pathlib.Path(text).stat().st_size
        f32, formats = candidates(arguments, folder)
        rows = measure(arguments, f32, text, formats)
    source = arguments.text or ("pydoc_data.topics of Python "
                                f"{platform.python_version()}")
    licence = arguments.licence or "PSF License 2.0"
    print(f"{size} bytes of {source} ({licence}), {rows[0]['tokens']} tokens")
    print(table(rows))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({
            "model": os.path.basename(arguments.model),
            "text": {"source": source, "licence": licence, "bytes": size},
            "command": sys.argv[1:], "machine": machine.describe(),
            "formats": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
